//! The report: one self-contained HTML file without network access.
//!
//! Templates escape whatever is put into them. Only the style sheet, the script and the data of charts are marked as
//! safe; the data escape what could end their element. The script (`report/page.js`) draws the charts.

pub mod chart;
pub mod pair;
pub mod plots;

use minijinja::value::Serde;
use minijinja::{Environment, HtmlEscape, UndefinedBehavior, Value};
use serde::Serialize;

use trimwise_lab::failure::Failure;
use trimwise_lab::plot::Plot;

use crate::table::plot::{Block, is_tabled};
use chart::{Chart, Styles};

const STYLE: &str = include_str!("report/style.css");
const SCRIPT: &str = include_str!("report/page.js");

/// A figure as the templates read it.
#[derive(Serialize)]
pub struct Figure {
    title: String,
    caption: String,
    data: Value,
    values: Option<Block>,
}

impl Figure {
    /// The figure of a chart.
    pub fn of(chart: &Chart) -> Result<Self, Failure> {
        let data = serde_json::to_string(chart)
            .map_err(|e| Failure::run(format!("cannot make the chart '{}': {e}", chart.title)))?;
        Ok(Self {
            title: chart.title.clone(),
            caption: chart.caption.clone(),
            // Nothing in the data can end their element or begin another.
            data: safe(data.replace('<', "\\u003c")),
            values: chart.values(),
        })
    }

    /// The figure of a plot. If that is short enough, its values are in a table of the page's own.
    pub fn of_plot(plot: &Plot, styles: &mut Styles) -> Result<Self, Failure> {
        let figure = Self::of(&plots::of(plot, styles))?;
        Ok(Self { values: figure.values.filter(|_| !is_tabled(plot)), ..figure })
    }
}

/// Marks text as finished markup.
fn safe(markup: impl Into<String>) -> Value {
    Value::from_safe_string(markup.into())
}

/// Turns prose with names between backticks into markup; the names become code, and everything is escaped.
pub fn with_code(text: &str) -> Value {
    let mut markup = String::new();
    for (i, piece) in text.split('`').enumerate() {
        let escaped = HtmlEscape(piece);
        markup += &if i % 2 == 1 { format!("<code>{escaped}</code>") } else { escaped.to_string() };
    }
    safe(markup)
}

/// Fills a template that extends `base.html`. Names end in `.html`, which turns escaping on.
pub fn rendered(template: &'static str, page: &impl Serialize) -> Result<String, Failure> {
    let fail = |e: minijinja::Error| Failure::run(format!("cannot make the report: {e:#}"));
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_filter("code", |text: &str| with_code(text));
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

/// Whether a character of a document would garble the page. `page.js` does the same to the data of charts.
fn is_unprintable(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || (c.is_control() && !matches!(c, '\n' | '\t'))
}
