//! The report: one self-contained HTML file without network access.
//!
//! Templates escape everything that is put into them. Only the style sheet, the script and the charts' data are marked
//! as safe; in the data, everything that could end their element is escaped. The script (`report/page.js`) draws the
//! charts.

pub mod chart;
pub mod pair;
pub mod plots;

use minijinja::value::Serde;
use minijinja::{Environment, HtmlEscape, UndefinedBehavior, Value};
use serde::Serialize;

use trimwise::failure::Failure;
use trimwise_study::plot::Plot;

use crate::figures::MINUS;
use crate::table::plot::{Block, is_tabled};
use chart::{Chart, Styles};

const STYLE: &str = include_str!("report/style.css");
const SCRIPT: &str = include_str!("report/page.js");

/// A chart as the templates read it.
#[derive(Serialize)]
pub struct Figure {
    title: String,
    caption: String,
    data: Value,
    values: Option<Block>,
}

impl Figure {
    pub fn of(chart: &Chart) -> Result<Self, Failure> {
        let data = serde_json::to_string(chart)
            .map_err(|e| Failure::run(format!("cannot make the chart '{}': {e}", chart.title)))?;
        Ok(Self {
            title: chart.title.clone(),
            caption: chart.whole_caption(),
            // Without `<`, nothing in the data can end their element or begin another.
            data: safe(data.replace('<', "\\u003c")),
            values: chart.values(),
        })
    }

    /// Returns the figure of a plot. If the plot is short enough for a table of the page itself, its values are left
    /// out.
    pub fn of_plot(plot: &Plot, styles: &mut Styles) -> Result<Self, Failure> {
        let figure = Self::of(&plots::of(plot, styles))?;
        Ok(Self { values: figure.values.filter(|_| !is_tabled(plot)), ..figure })
    }
}

/// Marks a text as markup that needs no escaping.
fn safe(markup: impl Into<String>) -> Value {
    Value::from_safe_string(markup.into())
}

/// Turns prose with names between backticks into escaped markup. Names become code, negative numbers get a minus sign,
/// and no line breaks before a percent sign.
pub fn with_code(text: &str) -> Value {
    let mut markup = String::new();
    for (i, piece) in text.split('`').enumerate() {
        markup += &if i % 2 == 1 {
            format!("<code>{}</code>", HtmlEscape(piece))
        } else {
            HtmlEscape(&with_minus_signs(piece).replace(" %", "\u{a0}%")).to_string()
        };
    }
    safe(markup)
}

/// Turns a command into markup in which no line breaks within a word, as it could after a hyphen.
fn in_words(text: &str) -> Value {
    let word = |piece: &str| {
        let word = piece.trim_end();
        format!("<span class=\"word\">{}</span>{}", HtmlEscape(word), &piece[word.len()..])
    };
    safe(text.split_inclusive(char::is_whitespace).map(word).collect::<String>())
}

/// Returns which columns, after the first, contain words and are therefore aligned left. Their first cells decide.
fn words_of(rows: Vec<Vec<String>>, header: Vec<String>) -> Vec<bool> {
    let first = |column| rows.first()?.get(column).and_then(|cell: &String| cell.chars().next());
    (0..header.len()).map(|column| column > 0 && first(column).is_some_and(char::is_alphabetic)).collect()
}

/// Replaces the hyphen of negative numbers with a minus sign, as tables have it. Leaves the hyphens of options, dates
/// and ranges alone.
fn with_minus_signs(text: &str) -> String {
    let mut signed = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let begins = signed.chars().next_back().is_none_or(|before| before.is_whitespace() || before == '(');
        let is_minus = letter == '-' && begins && letters.peek().is_some_and(char::is_ascii_digit);
        if is_minus {
            signed += MINUS;
        } else {
            signed.push(letter);
        }
    }
    signed
}

/// Renders a template that extends `base.html`. Template names end in `.html`, which turns escaping on.
pub fn rendered(template: &'static str, page: &impl Serialize) -> Result<String, Failure> {
    let fail = |e: minijinja::Error| Failure::run(format!("cannot make the report: {e:#}"));
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_filter("code", |text: &str| with_code(text));
    environment.add_filter("words", |text: &str| in_words(text));
    environment.add_filter("words_of", words_of);
    environment.add_global("style", safe(STYLE));
    environment.add_global("script", safe(SCRIPT));
    let shared =
        [("base.html", include_str!("report/base.html")), ("parts.html", include_str!("report/parts.html"))];
    for (name, template) in shared.into_iter().chain([("page.html", template)]) {
        environment.add_template(name, template).map_err(fail)?;
    }
    let page = environment.get_template("page.html").and_then(|t| t.render(Serde(page))).map_err(fail)?;
    Ok(page.replace(is_unprintable, "\u{fffd}"))
}

/// Returns true for characters that would garble the page. `page.js` checks the data of charts in the same way.
fn is_unprintable(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || (c.is_control() && !matches!(c, '\n' | '\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_broken_between_words_and_copied_as_it_is() {
        let markup = in_words("compare --reps 6\nrm <a>").to_string();
        let word = |word: &str| format!("<span class=\"word\">{word}</span>");
        let words = [word("compare"), word("--reps"), word("6"), word("rm"), word("&lt;a&gt;")];
        assert_eq!(markup, format!("{} {} {}\n{} {}", words[0], words[1], words[2], words[3], words[4]));
    }

    #[test]
    fn only_the_hyphen_of_a_negative_number_becomes_a_minus_sign() {
        let text = "-3.5 % (-1 to -0.2), 5-10, 2026-11-25, 6.12-1, -o, `set -1` and - 4";
        let markup = with_code(text).to_string();
        let expected = "\u{2212}3.5\u{a0}% (\u{2212}1 to \u{2212}0.2), 5-10, 2026-11-25, 6.12-1, -o, <code>set -1</code> and - 4";
        assert_eq!(markup, expected);
    }
}
