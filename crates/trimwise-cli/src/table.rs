//! Text that fits the terminal, or 100 columns without one.

pub mod export;
mod grid;
pub mod plot;

use std::io::IsTerminal;

use console::{Term, measure_text_width};
use trimwise_linux::text::is_unprintable;

use grid::Grid;

/// Maximum width of prose, and of everything if standard output is not a terminal, in columns.
pub const WIDTH_MAX: usize = 100;
/// Minimum width that text is laid out for, even in a narrower terminal.
const WIDTH_MIN: usize = 20;

/// Returns the width of a terminal in columns; `None` if it is not a terminal, or its width is unknown.
fn columns_of(terminal: &Term) -> Option<usize> {
    let columns = terminal.is_term().then(|| terminal.size_checked()).flatten().map(|(_, columns)| columns);
    columns.filter(|columns| *columns > 0).map(|columns| usize::from(columns).max(WIDTH_MIN))
}

/// Returns the width for tables, in columns.
fn width_here() -> usize {
    columns_of(&Term::stdout()).unwrap_or(WIDTH_MAX)
}

/// Returns the width for prose, in columns. Longer lines are hard to read.
pub fn prose_width() -> usize {
    width_here().min(WIDTH_MAX)
}

/// Lays out a table of a text column and columns of figures.
///
/// If the table is too wide, its cells are wrapped; if it is still too wide, it is split into several tables below each
/// other; and if not even two columns fit, each row becomes a paragraph.
pub fn laid_out(header: &[impl AsRef<str>], rows: &[impl AsRef<[String]>]) -> String {
    laid_out_with(header, rows, &[])
}

/// Lays out a table as [`laid_out`] does, below its title.
pub fn titled(title: &str, header: &[impl AsRef<str>], rows: &[impl AsRef<[String]>]) -> String {
    titled_in_two(title, header, rows, None)
}

/// Lays out a table as [`titled`] does, with a line above a row.
pub fn titled_in_two(
    title: &str,
    header: &[impl AsRef<str>],
    rows: &[impl AsRef<[String]>],
    parted_at: Option<usize>,
) -> String {
    export::keep(title, header, rows, &[]);
    format!("{}\n\n{}", bold(title), Grid::new(header, rows, &[]).parted_at(parted_at).within(width_here()))
}

/// Lays out a table as [`laid_out`] does, with a description below each row, from which it is never separated.
pub fn laid_out_with(
    header: &[impl AsRef<str>],
    rows: &[impl AsRef<[String]>],
    descriptions: &[String],
) -> String {
    export::keep("", header, rows, descriptions);
    Grid::new(header, rows, descriptions).within(width_here())
}

/// Lays out a table as [`titled`] does, in at most `width` columns, with a description below each row if there are any.
pub fn titled_within(
    title: &str,
    header: &[impl AsRef<str>],
    rows: &[impl AsRef<[String]>],
    descriptions: &[String],
    width: usize,
) -> String {
    export::keep(title, header, rows, descriptions);
    format!("{}\n\n{}", bold(title), Grid::new(header, rows, descriptions).within(width_here().min(width)))
}

/// Removes characters that a terminal would interpret or show out of order: users choose the names of mount points and
/// files.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if is_unprintable(c) { '\u{fffd}' } else { c }).collect()
}

/// Wraps prose at spaces; each line begins with `indent` spaces.
pub fn folded(text: &str, indent: usize) -> String {
    folded_to(text.split_whitespace(), indent, prose_width())
}

/// Wraps words into lines of `width` columns, each after `indent` spaces. A longer word gets a line of its own.
fn folded_to<'a>(words: impl Iterator<Item = &'a str>, indent: usize, width: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    for word in words {
        let length = measure_text_width(word);
        if used > 0 && used + 1 + length > width {
            out.push('\n');
            used = 0;
        }
        if used == 0 {
            out.extend(std::iter::repeat_n(' ', indent));
            used = indent;
        } else {
            out.push(' ');
            used += 1;
        }
        out += word;
        used += length;
    }
    out.push('\n');
    out
}

/// Lays out words with their descriptions, next to them, or below them in a narrow terminal.
pub fn described(entries: &[(impl AsRef<str>, impl AsRef<str>)], indent: usize) -> String {
    described_in(entries, indent, prose_width())
}

fn described_in(entries: &[(impl AsRef<str>, impl AsRef<str>)], indent: usize, width: usize) -> String {
    /// Minimum width for descriptions next to their words.
    const MEANING_MIN: usize = 24;
    let entries = entries.iter().map(|(word, meaning)| (word.as_ref(), meaning.as_ref()));
    let widest = entries.clone().map(|(word, _)| measure_text_width(word)).max().unwrap_or(0);
    let column = indent + widest + grid::BETWEEN;
    let entry = |(word, meaning): (&str, &str)| {
        let meaning = meaning.split_whitespace();
        if column + MEANING_MIN > width {
            return format!("{:indent$}{word}\n{}", "", folded_to(meaning, indent + grid::BETWEEN, width));
        }
        let gap = column - indent - measure_text_width(word);
        format!("{:indent$}{word}{:gap$}{}", "", "", folded_to(meaning, column, width).trim_start())
    };
    entries.map(entry).collect()
}

/// Fits text to a terminal: wraps lines that are too long for it. Commands, which are indented below a line that ends
/// with a colon, stay whole, so that they can be copied. Without a terminal, the text stays as it is.
pub fn fitted(text: &str, terminal: &Term) -> String {
    columns_of(terminal).map_or_else(|| text.to_owned(), |width| fitted_to(text, width))
}

fn fitted_to(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut heading = None;
    for line in text.split_inclusive('\n') {
        let words = line.trim_start_matches(' ');
        let indent = line.len() - words.len();
        heading = heading.filter(|heading| *heading < indent);
        if heading.is_some() || measure_text_width(line.trim_end()) <= width {
            out += line;
        } else {
            out += &folded_to(words.split_whitespace(), indent, width);
        }
        if words.trim_end().ends_with(':') {
            heading = Some(indent);
        }
    }
    out
}

/// Makes text bold on a terminal that supports it; not with NO_COLOR.
pub fn bold(text: &str) -> String {
    styled(text, 1)
}

/// Makes text dim, under the same conditions as [`bold`].
pub fn dim(text: &str) -> String {
    styled(text, 2)
}

fn styled(text: &str, style: u8) -> String {
    let dumb = std::env::var_os("TERM").is_none_or(|t| t == "dumb");
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    if std::io::stdout().is_terminal() && !no_color && !dumb {
        format!("\u{1b}[{style}m{text}\u{1b}[0m")
    } else {
        text.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_folded_between_words_and_a_long_word_stays_whole() {
        let text = format!("{} tail", "word ".repeat(25));
        let folded_text = folded(&text, 2);
        assert!(
            folded_text.lines().all(|l| l.starts_with("  w") && l.chars().count() <= 100 || l == "  tail")
        );
        assert!(folded_text.lines().count() == 2);
        assert_eq!(folded(&"x".repeat(120), 0), format!("{}\n", "x".repeat(120)));
    }

    #[test]
    fn a_meaning_is_next_to_its_word_or_below_it() {
        let entries = [("doctor", "is TRIM on, and does it reach the drive?"), ("fit", "measures a drive")];
        let wide =
            "  doctor  is TRIM on, and does it\n          reach the drive?\n  fit     measures a drive\n";
        assert_eq!(described_in(&entries, 2, 34), wide);
        let narrow =
            "  doctor\n    is TRIM on, and\n    does it reach\n    the drive?\n  fit\n    measures a drive\n";
        assert_eq!(described_in(&entries, 2, 20), narrow);
    }

    #[test]
    fn long_lines_are_folded_and_commands_stay_in_one_piece() {
        let text = "a heading that is too long\n  as is this\nNow:\n  mount -o remount,discard /\n  sync it all, too\n  \
                    and another line";
        let fitted = "a heading that\nis too long\n  as is this\nNow:\n  mount -o remount,discard /\n  sync it all, too\n  \
                      and another line";
        assert_eq!(fitted_to(text, 15), fitted);
    }
}
