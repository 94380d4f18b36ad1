//! Lays out rows and columns within a given width.

use console::{Alignment, measure_text_width, pad_str};

use super::{WIDTH_MAX, folded_to};
use crate::figures::NONE;

/// Spaces between columns.
pub const BETWEEN: usize = 2;
/// Spaces before the description of a row.
const DESCRIPTION: usize = 4;
/// Spaces before the figures of a row that is laid out as a paragraph.
const FIGURES: usize = 2;

/// A table of a text column and columns of figures.
pub struct Grid<'a> {
    header: Vec<&'a str>,
    rows: Vec<Vec<&'a str>>,
    /// The text below each row; empty if rows have no descriptions.
    descriptions: &'a [String],
    /// The first row below a line that parts the table.
    parted_at: Option<usize>,
}

impl<'a> Grid<'a> {
    pub fn new(
        header: &'a [impl AsRef<str>],
        rows: &'a [impl AsRef<[String]>],
        descriptions: &'a [String],
    ) -> Self {
        let cells = |row: &'a [String]| row.iter().map(String::as_str).collect();
        Self {
            header: header.iter().map(AsRef::as_ref).collect(),
            rows: rows.iter().map(|row| cells(row.as_ref())).collect(),
            descriptions,
            parted_at: None,
        }
    }

    /// Draws a line above a row.
    pub fn parted_at(self, row: Option<usize>) -> Self {
        Self { parted_at: row, ..self }
    }

    /// Renders the table in lines of at most `width` columns; only a single longer word exceeds them.
    pub fn within(&self, width: usize) -> String {
        let natural = self.widths(measure_text_width);
        let least =
            self.widths(|line| pieces(line).map(|p| measure_text_width(p.trim_end())).max().unwrap_or(0));
        let others_least = least.iter().skip(1).max().copied().unwrap_or(0);
        if total(&natural) <= width {
            self.render(&natural, width)
        } else if total(&least) <= width {
            self.render(&self.shrunk(&natural, &least, width), width)
        } else if self.descriptions.is_empty() && total(&[least[0], others_least]) <= width {
            self.parts(&natural, least[0], width)
        } else {
            self.paragraphs(width)
        }
    }

    /// Returns the largest value of `of` over all lines of each column.
    fn widths(&self, of: impl Fn(&str) -> usize) -> Vec<usize> {
        let largest = |column| self.column(column).flat_map(str::lines).map(&of).max().unwrap_or(0);
        (0..self.header.len()).map(largest).collect()
    }

    fn column(&self, index: usize) -> impl Iterator<Item = &'a str> {
        std::iter::once(self.header[index]).chain(self.rows.iter().map(move |row| row[index]))
    }

    /// Narrows columns until the table fits: as long as possible the first (of policies, say), so that figures stay
    /// whole, and then always the widest.
    fn shrunk(&self, natural: &[usize], least: &[usize], width: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = natural.iter().map(|w| *w.min(&width)).collect();
        while total(&widths) > width {
            let can_shrink = |i: &usize| widths[*i] > least[*i];
            let others = || (1..widths.len()).filter(can_shrink).max_by_key(|i| widths[*i]);
            let Some(column) = Some(0).filter(can_shrink).or_else(others) else { break };
            let lines = self.column(column).flat_map(|cell| wrapped(cell, widths[column] - 1));
            widths[column] = lines.map(|line| measure_text_width(&line)).max().unwrap_or(0);
        }
        widths
    }

    fn render(&self, widths: &[usize], width: usize) -> String {
        let rule = "─".repeat(width.min(total(widths) + 1));
        let mut text = line(&self.header, widths) + &rule + "\n";
        for (index, row) in self.rows.iter().enumerate() {
            if self.parted_at == Some(index) {
                text += &(rule.replace('─', "┄") + "\n");
            }
            text += &line(row, widths);
            text += &self.description(index, width);
        }
        text
    }

    fn description(&self, row: usize, width: usize) -> String {
        let words = |text: &String| folded_to(text.split_whitespace(), DESCRIPTION, width.min(WIDTH_MAX));
        self.descriptions.get(row).map_or_else(String::new, words)
    }

    /// Splits the table into several below each other. Each has the first column, and as many others as fit.
    fn parts(&self, natural: &[usize], least: usize, width: usize) -> String {
        let widest = natural[1..].iter().max().copied().unwrap_or(0);
        let first = if total(&[natural[0], widest]) <= width { natural[0] } else { least };
        let mut parts: Vec<Vec<usize>> = Vec::new();
        let mut used = width;
        for (column, needed) in natural.iter().map(|needed| needed + BETWEEN).enumerate().skip(1) {
            if used + needed > width {
                parts.push(vec![0]);
                used = first;
            }
            used += needed;
            if let Some(part) = parts.last_mut() {
                part.push(column);
            }
        }
        let part = |columns: &Vec<usize>| {
            let of = |cells: &Vec<&'a str>| columns.iter().map(|&column| cells[column]).collect();
            let rows = self.rows.iter().map(of).collect();
            Grid { header: of(&self.header), rows, descriptions: &[], ..*self }.within(width)
        };
        parts.iter().map(part).collect::<Vec<_>>().join("\n")
    }

    /// Renders each row as a paragraph: its name and description, and below them the figures that it has.
    fn paragraphs(&self, width: usize) -> String {
        let prose = width.min(WIDTH_MAX);
        let paragraph = |(index, row): (usize, &Vec<&str>)| {
            let name = |width| wrapped(row[0], width).join("\n");
            let head = match self.descriptions.get(index) {
                Some(description) => {
                    let words = format!("{}: {description}", name(prose.saturating_sub(DESCRIPTION + 1)));
                    folded_to(words.split_whitespace(), DESCRIPTION, prose).trim_start().to_owned()
                }
                None => name(prose) + "\n",
            };
            let known =
                self.header.iter().zip(row).skip(1).filter(|(_, cell)| **cell != NONE && !cell.is_empty());
            let figures: Vec<String> = known.map(|(header, cell)| format!("{header}: {cell}")).collect();
            let figures = figures.join(",\n");
            let lines: Vec<String> =
                figures.lines().flat_map(|figure| wrapped(figure, prose.saturating_sub(FIGURES))).collect();
            head + &folded_to(lines.iter().map(String::as_str), FIGURES, prose)
        };
        self.rows.iter().enumerate().map(paragraph).collect()
    }
}

/// Returns the width of all columns together.
fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + widths.len().saturating_sub(1) * BETWEEN
}

/// Renders a row; cells may span several lines.
fn line(cells: &[&str], widths: &[usize]) -> String {
    let cells: Vec<Vec<String>> =
        cells.iter().zip(widths).map(|(cell, width)| wrapped(cell, *width)).collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    let mut text = String::new();
    for at in 0..height {
        let aligned = cells.iter().zip(widths).enumerate().map(|(column, (lines, width))| {
            let alignment = if column == 0 { Alignment::Left } else { Alignment::Right };
            pad_str(lines.get(at).map_or("", String::as_str), *width, alignment, None)
        });
        text += aligned.collect::<Vec<_>>().join(&" ".repeat(BETWEEN)).trim_end();
        text.push('\n');
    }
    text
}

/// Wraps text into lines of at most `width` columns, breaking where [`pieces`] allows it.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut wrapped = String::new();
        for piece in pieces(line) {
            let longer = measure_text_width(&wrapped) + measure_text_width(piece.trim_end());
            if !wrapped.is_empty() && longer > width {
                lines.push(wrapped.trim_end().to_owned());
                wrapped.clear();
            }
            wrapped += piece;
        }
        lines.push(wrapped.trim_end().to_owned());
    }
    lines
}

/// Splits a line after spaces, except between a number and its unit or a sign and its number. Also splits words after
/// `+`, which joins the terms of a policy.
fn pieces(line: &str) -> impl Iterator<Item = &str> {
    let mut begin = 0;
    let mut word = 0;
    let cuts = line.char_indices().filter(move |&(at, c)| match c {
        ' ' => {
            let before = &line[std::mem::replace(&mut word, at + 1)..at];
            before == "%" || before.contains(char::is_alphabetic)
        }
        '+' => {
            line[..at].ends_with(char::is_alphanumeric) && line[at + 1..].starts_with(char::is_alphanumeric)
        }
        _ => false,
    });
    let ends = cuts.map(|(at, _)| at + 1).chain(std::iter::once(line.len()));
    ends.map(move |end| &line[std::mem::replace(&mut begin, end)..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(rows: &[&[&str]]) -> (Vec<String>, Vec<Vec<String>>) {
        let texts = |row: &&[&str]| row.iter().map(|cell| (*cell).to_owned()).collect();
        let mut rows: Vec<Vec<String>> = rows.iter().map(texts).collect();
        (rows.remove(0), rows)
    }

    const POLICIES: &[&[&str]] = &[
        &["policy", "n", "total", "vs off", "stale max"],
        &["set:40:90+lazy+reuse", "6", "143.6 s ± 3.2 %", "−39.6 %", "335.1 MiB"],
        &["ideal", "6", "127.5 s ± 2.5 %", "~ +1.7 %", "0 B"],
    ];

    #[test]
    fn figures_are_cut_next_to_a_unit_and_policies_behind_a_plus() {
        let cut = |line| pieces(line).collect::<Vec<_>>().join("|");
        assert_eq!(cut("143.6 s ± 3.2 % more"), "143.6 s |± 3.2 % |more");
        assert_eq!(cut("~ +1.7 %"), "~ +1.7 %");
        assert_eq!(cut("set:40:90+lazy+reuse"), "set:40:90+|lazy+|reuse");
        assert_eq!(cut("/home + 399"), "/home |+ 399");
        assert_eq!(cut(""), "");
    }

    #[test]
    fn a_policy_that_makes_its_table_too_wide_is_broken_behind_a_plus() {
        let (header, rows) = grid(POLICIES);
        let text = Grid::new(&header, &rows, &[]).within(54);
        let expected = "\
policy      n            total    vs off  stale max
────────────────────────────────────────────────────
set:40:90+  6  143.6 s ± 3.2 %   −39.6 %  335.1 MiB
lazy+reuse
ideal       6  127.5 s ± 2.5 %  ~ +1.7 %        0 B
";
        assert_eq!(text, expected);
    }

    #[test]
    fn columns_that_do_not_fit_go_to_a_further_table() {
        let (header, rows) = grid(POLICIES);
        let text = Grid::new(&header, &rows, &[]).within(32);
        let expected = "\
policy      n            total
───────────────────────────────
set:40:90+  6  143.6 s ± 3.2 %
lazy+reuse
ideal       6  127.5 s ± 2.5 %

policy        vs off  stale max
────────────────────────────────
set:40:90+   −39.6 %  335.1 MiB
lazy+reuse
ideal       ~ +1.7 %        0 B
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_description_stays_with_its_row_in_any_width() {
        let (header, rows) = grid(&[
            &["device", "capacity", "1 GiB"],
            &["sandforce-240gb-2012", "240 GB", "326.7 µs"],
            &["ufs4", "-", "54.2 µs bg"],
        ]);
        let descriptions = ["a drive of 2012".to_owned(), "of a phone".to_owned()];
        let grid = Grid::new(&header, &rows, &descriptions);
        let wide = "\
device                capacity       1 GiB
──────────────────────────────────────────
sandforce-240gb-2012    240 GB    326.7 µs
    a drive of 2012
ufs4                         -  54.2 µs bg
    of a phone
";
        assert_eq!(grid.within(42), wide);
        let narrow = "\
sandforce-240gb-2012:
    a drive of 2012
  capacity: 240 GB,
  1 GiB: 326.7 µs
ufs4: of a phone
  1 GiB: 54.2 µs bg
";
        assert_eq!(grid.within(20), narrow);
    }

    #[test]
    fn nothing_is_lost_and_only_a_long_word_is_too_wide_in_any_width() {
        let (header, rows) = grid(POLICIES);
        let words = |text: &str| {
            let mut words: Vec<String> = text.split([' ', '\n', '+', ',', ':']).map(str::to_owned).collect();
            words.sort();
            words.dedup();
            words
        };
        for descriptions in [vec![], vec!["a gate before lazy".to_owned(), "a bound of 日本".to_owned()]] {
            let all = rows.iter().flatten().chain(&header[1..]).chain(&descriptions);
            let all = words(&all.map(String::as_str).collect::<Vec<_>>().join(" "));
            for width in 0..=120 {
                let text = Grid::new(&header, &rows, &descriptions).within(width);
                let found = words(&text);
                assert!(all.iter().all(|word| found.contains(word)), "{width}: {text}");
                let is_long =
                    |line: &str| measure_text_width(line) > width && pieces(line.trim()).count() > 1;
                assert!(!text.lines().any(is_long), "{width}: {text}");
            }
        }
    }
}
