//! Results as text, at most 100 columns wide, or as wide as the terminal if that is narrower.

pub mod plot;

use std::io::IsTerminal;

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use trimwise_linux::text::is_unprintable;

/// No line exceeds this width.
pub const WIDTH_MAX: u16 = 100;
/// In a narrower terminal, figures would be cut to pieces.
pub const WIDTH_MIN: u16 = 60;

/// The maximum width of lines here.
fn width_here() -> u16 {
    let terminal = console::Term::stdout();
    let columns = terminal.is_term().then(|| terminal.size_checked()).flatten().map(|(_, columns)| columns);
    columns.unwrap_or(WIDTH_MAX).clamp(WIDTH_MIN, WIDTH_MAX)
}

const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// A table whose first column is text and whose others are figures.
fn figures_table(header: &[impl AsRef<str>]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).force_no_tty();
    table.set_header(header.iter().enumerate().map(|(i, h)| aligned(i, h.as_ref())));
    table
}

fn aligned(column: usize, text: &str) -> Cell {
    let alignment = if column == 0 { CellAlignment::Left } else { CellAlignment::Right };
    Cell::new(text).set_alignment(alignment)
}

/// Renders the table without trailing blanks; folded only if it would exceed the width.
fn finished(table: Table) -> String {
    finished_in(table, width_here())
}

fn finished_in(mut table: Table, most: u16) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 1)); // and one blank between columns
    }
    let natural: u16 = table.column_max_content_widths().iter().map(|w| w + 2).sum();
    if natural > most + 2 {
        // (the last column's two blanks are cut off)
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(most);
    }
    let mut text = String::new();
    for line in table.lines() {
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Lays out a table of these rows. If it would be too wide, the first column (a policy) is first broken after `+`, so
/// that figures stay in one piece as long as possible.
pub fn laid_out(header: &[impl AsRef<str>], rows: &[impl AsRef<[String]>]) -> String {
    let width = |text: &str| text.chars().count();
    let widths: Vec<usize> = (0..header.len())
        .map(|i| rows.iter().map(|row| width(&row.as_ref()[i])).fold(width(header[i].as_ref()), usize::max))
        .collect();
    let others: usize = widths.iter().skip(1).map(|w| w + 2).sum();
    let left = usize::from(width_here()).saturating_sub(others);
    let mut table = figures_table(header);
    for row in rows {
        table.add_row(row.as_ref().iter().enumerate().map(|(i, text)| match i {
            0 => aligned(i, &broken(text, left)),
            _ => aligned(i, text),
        }));
    }
    finished(table)
}

/// Breaks the text after some `+`, so that its lines are no longer than `width` if possible.
fn broken(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut line = 0;
    for part in text.split_inclusive('+') {
        let length = part.chars().count();
        if line > 0 && line + length > width {
            out.push('\n');
            line = 0;
        }
        out += part;
        line += length;
    }
    out
}

/// Removes what a terminal would take for a command, or would display out of order: mount points and files are named by
/// users.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if is_unprintable(c) { '\u{fffd}' } else { c }).collect()
}

/// Folds prose at blanks; each line begins after `indent` blanks.
pub fn folded(text: &str, indent: usize) -> String {
    let mut out = String::new();
    let mut width = 0;
    let most = usize::from(width_here());
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > most {
            out.push('\n');
            width = 0;
        }
        if width == 0 {
            out.extend(std::iter::repeat_n(' ', indent));
            width = indent;
        } else {
            out.push(' ');
            width += 1;
        }
        out += word;
        width += length;
    }
    out.push('\n');
    out
}

/// Bold on a terminal that supports it; plain elsewhere and if NO_COLOR is set.
pub fn bold(text: &str) -> String {
    let dumb = std::env::var_os("TERM").is_none_or(|t| t == "dumb");
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    if std::io::stdout().is_terminal() && !no_color && !dumb {
        format!("\u{1b}[1m{text}\u{1b}[0m")
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
    fn a_policy_that_makes_its_table_too_wide_is_broken_behind_a_plus() {
        let rows = [vec!["set:40:90+lazy+reuse".to_string(), "x".repeat(85)]];
        let text = laid_out(&["policy", "figure"], &rows);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].starts_with("set:40:90+ ") && lines[3].starts_with("lazy+reuse"), "{text}");
        assert!(lines.iter().all(|l| l.chars().count() <= 100), "{text}");
        assert_eq!(broken("set:40:90+lazy+reuse", 20), "set:40:90+lazy+reuse");
        assert_eq!(broken("set:40:90+lazy", 3), "set:40:90+\nlazy");
    }

    #[test]
    fn a_table_that_is_too_wide_is_folded() {
        let mut table = figures_table(&["policy", "n"]);
        table.add_row(vec!["long name ".repeat(15), "1".to_string()]);
        assert!(finished(table).lines().all(|l| l.chars().count() <= 100));
    }
}
