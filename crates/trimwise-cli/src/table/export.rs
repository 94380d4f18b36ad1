//! Tables in other forms: CSV for programs, Markdown for pages.
//!
//! A command lays out its tables while it makes its text. [`tables_of`] makes that text and keeps what was laid out, so
//! each table has all forms, with the same cells.
//!
//! In CSV a cell such as `~ +83.4 %` is a number. A column of such cells becomes up to three: the number, with its unit
//! in the heading; the percentage after `±`; and the mark `~`. A column in which any cell is something else stays text.

use std::cell::RefCell;

use trimwise::numbers::{MINUS, NONE};
use trimwise_study::plot::Table;

thread_local! {
    /// The tables laid out so far, while [`tables_of`] collects them.
    static LAID_OUT: RefCell<Option<Vec<Table>>> = const { RefCell::new(None) };
}

/// Makes a text, and returns it with the tables in it.
pub fn tables_of(text: impl FnOnce() -> String) -> (String, Vec<Table>) {
    LAID_OUT.set(Some(Vec::new()));
    let text = text();
    (text, LAID_OUT.take().unwrap_or_default())
}

/// Keeps a table for other forms if they are wanted. Anything laid out as a table is kept without this.
pub fn keep(
    title: &str,
    header: &[impl AsRef<str>],
    rows: impl IntoIterator<Item: AsRef<[String]>>,
    descriptions: &[String],
) {
    LAID_OUT.with_borrow_mut(|kept| {
        let Some(kept) = kept else { return };
        let described = (!descriptions.is_empty()).then(|| "description".to_owned());
        let header = header.iter().map(|heading| heading.as_ref().to_owned()).chain(described).collect();
        let row = |(at, row): (usize, &[String])| row.iter().chain(descriptions.get(at)).cloned().collect();
        let rows = rows.into_iter().enumerate().map(|(at, cells)| row((at, cells.as_ref()))).collect();
        kept.push(Table { title: title.to_owned(), header, rows });
    });
}

/// Writes tables as CSV (RFC 4180, but with newlines only).
///
/// Of several tables, those with the same columns become one, whose first column is the title. Others follow after an
/// empty line.
pub fn csv(tables: &[Table]) -> String {
    let has_titles = tables.len() > 1;
    let mut joined: Vec<Table> = Vec::new();
    for table in tables {
        let title = has_titles.then(|| table.title.clone());
        let heading = has_titles.then(|| "table".to_owned());
        let header: Vec<String> = heading.into_iter().chain(table.header.iter().cloned()).collect();
        let mut name = String::new();
        let rows = table.rows.iter().map(|row| {
            let mut row = row.clone();
            // A blank name stands for that of the row above, which a reader sees and a program does not.
            if let Some(first) = row.first_mut() {
                match first.trim() {
                    "" => first.clone_from(&name),
                    named => name = named.to_owned(),
                }
            }
            title.iter().cloned().chain(row).collect()
        });
        match joined.iter_mut().find(|other| other.header == header) {
            Some(other) => other.rows.extend(rows),
            None => joined.push(Table { title: String::new(), rows: rows.collect(), header }),
        }
    }
    let names = 1 + usize::from(has_titles);
    joined.iter().map(|table| csv_of(table, names)).collect::<Vec<_>>().join("\n")
}

fn csv_of(table: &Table, names: usize) -> String {
    let column = |at: usize| {
        let cells: Vec<&str> = table.rows.iter().map(|row| row.get(at).map_or("", String::as_str)).collect();
        let quantities = if at < names { None } else { quantities(&table.header[at], &cells) };
        quantities.unwrap_or_else(|| vec![as_text(&table.header[at], &cells)])
    };
    let columns: Vec<Vec<String>> = (0..table.header.len()).flat_map(column).collect();
    let line =
        |at: usize| columns.iter().map(|column| quoted(&column[at])).collect::<Vec<_>>().join(",") + "\n";
    (0..=table.rows.len()).map(line).collect()
}

fn as_text(heading: &str, cells: &[&str]) -> Vec<String> {
    let cell = |cell: &&str| if *cell == NONE { String::new() } else { cell.trim().to_owned() };
    std::iter::once(heading.to_owned()).chain(cells.iter().map(cell)).collect()
}

fn quoted(cell: &str) -> String {
    match cell.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    }
}

/// A cell that is a number.
#[derive(Debug, Default, PartialEq)]
struct Quantity {
    /// In the unit of the heading.
    number: String,
    unit: &'static str,
    plus_minus_percent: String,
    mark: &'static str,
}

/// Reads a part of a quantity that becomes a column.
type Part = fn(&Quantity) -> &str;

/// Units of cells: that of the heading, the digits by which a decimal unit is smaller, and the bytes of one of a size.
const UNITS: [(&str, &str, usize, f64); 15] = [
    ("", "", 0, 0.0),
    ("%", "%", 0, 0.0),
    ("s", "s", 0, 0.0),
    ("ms", "s", 3, 0.0),
    ("\u{b5}s", "s", 6, 0.0),
    ("ns", "s", 9, 0.0),
    ("B", "bytes", 0, 1.0),
    ("kB", "bytes", 0, 1e3),
    ("MB", "bytes", 0, 1e6),
    ("GB", "bytes", 0, 1e9),
    ("TB", "bytes", 0, 1e12),
    ("KiB", "bytes", 0, 1024.0),
    ("MiB", "bytes", 0, 1_048_576.0),
    ("GiB", "bytes", 0, 1_073_741_824.0),
    ("TiB", "bytes", 0, 1_099_511_627_776.0),
];

impl Quantity {
    fn of(cell: &str) -> Option<Self> {
        let unmarked = cell.trim().strip_prefix('~');
        let mark = if unmarked.is_some() { "~" } else { "" };
        let cell = unmarked.unwrap_or(cell).trim();
        if cell.is_empty() || cell == NONE {
            return Some(Self { mark, ..Self::default() });
        }
        let (value, plus_minus) = cell.split_once(" \u{b1} ").unwrap_or((cell, ""));
        let plus_minus_percent = match plus_minus.strip_suffix(" %") {
            Some(percent) => digits(percent)?,
            None if plus_minus.is_empty() => String::new(),
            None => return None,
        };
        let (number, unit) = value.split_once(' ').unwrap_or((value, ""));
        let &(_, unit, smaller, bytes) = UNITS.iter().find(|(written, ..)| *written == unit)?;
        let written = digits(number)?;
        let number = if smaller > 0 {
            let decimals = written.split_once('.').map_or(0, |(_, decimals)| decimals.len()) + smaller;
            format!("{:.decimals$}", written.parse::<f64>().ok()? / 10_f64.powi(smaller as i32))
        } else if bytes > 0.0 {
            format!("{:.0}", written.parse::<f64>().ok()? * bytes)
        } else {
            written
        };
        Some(Self { number, unit, plus_minus_percent, mark })
    }
}

/// Returns a number as programs write it: `−1,234.5` is `-1234.5`.
fn digits(number: &str) -> Option<String> {
    let minus = number.strip_prefix(MINUS).or(number.strip_prefix('-'));
    let unsigned = minus.or(number.strip_prefix('+')).unwrap_or(number);
    let (whole, decimals) = unsigned.split_once('.').map_or((unsigned, None), |(w, d)| (w, Some(d)));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut groups = whole.split(',');
    let is_number = groups.next().is_some_and(are_digits)
        && groups.all(|group| group.len() == 3 && are_digits(group))
        && decimals.is_none_or(are_digits);
    let sign = if minus.is_some() { "-" } else { "" };
    is_number.then(|| format!("{sign}{}", unsigned.replace(',', "")))
}

/// Returns the columns of a column of numbers, with their headings; `None` if any cell is something else.
fn quantities(heading: &str, cells: &[&str]) -> Option<Vec<Vec<String>>> {
    let cells: Vec<Quantity> = cells.iter().map(|cell| Quantity::of(cell)).collect::<Option<_>>()?;
    let mut known = cells.iter().filter(|cell| !cell.number.is_empty());
    let unit = known.next().map_or("", |cell| cell.unit);
    if known.any(|cell| cell.unit != unit) {
        return None;
    }
    let column = |unit: &str, of: Part| {
        let heading = if unit.is_empty() { heading.to_owned() } else { format!("{heading}, {unit}") };
        let column = std::iter::once(heading).chain(cells.iter().map(|cell| of(cell).to_owned()));
        column.collect::<Vec<String>>()
    };
    let mut columns = vec![column(unit, |cell| &cell.number)];
    let others: [(&str, Part); 2] = [("\u{b1} %", |cell| &cell.plus_minus_percent), ("~", |cell| cell.mark)];
    let is_used = |(_, of): &(&str, Part)| cells.iter().any(|cell| !of(cell).is_empty());
    columns.extend(others.into_iter().filter(is_used).map(|(unit, of)| column(unit, of)));
    Some(columns)
}

/// Returns true for a number with anything behind it, and for no figure.
fn is_about_a_number(cell: &str) -> bool {
    let cell = cell.trim_start_matches(['~', ' ', '<', '+', '-']).trim_start_matches(MINUS);
    cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit())
}

/// Writes tables as GitHub's Markdown, each below its title. Columns of numbers are aligned to the right.
pub fn markdown(tables: &[Table]) -> String {
    let table = |table: &Table| {
        let title =
            if table.title.is_empty() { String::new() } else { format!("**{}**\n\n", escaped(&table.title)) };
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let are_numbers = |at: usize| table.rows.iter().all(|row| is_about_a_number(&row[at]));
        let rules: Vec<&str> =
            (0..table.header.len()).map(|at| if at > 0 && are_numbers(at) { "--:" } else { "---" }).collect();
        let rows: String = table.rows.iter().map(|row| line(row)).collect();
        format!("{title}{}| {} |\n{rows}", line(&table.header), rules.join(" | "))
    };
    tables.iter().map(table).collect::<Vec<_>>().join("\n")
}

/// Escapes what Markdown or HTML would interpret.
fn escaped(cell: &str) -> String {
    let mut text = String::new();
    for letter in cell.trim().chars() {
        match letter {
            '\n' => text += "<br>",
            '\\' | '|' | '*' | '_' | '`' | '<' | '[' => text.extend(['\\', letter]),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{laid_out, laid_out_with, titled};

    fn rows(rows: &[&[&str]]) -> Vec<Vec<String>> {
        rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect()
    }

    fn compared() -> Vec<Table> {
        let header = ["policy", "n", "total", "vs off", "vs ideal", "erases", "stale max"];
        let cells = rows(&[
            &["off", "1, exact", "238.9 s ± 0.1 %", "", "~ +83.4 %", "17,760", "1.6 GiB"],
            &["set:40:90+lazy", "6", "1,463 s ± 10.3 %", "\u{2212}39.6 %", "0.0 %", "-", "332.1 MiB"],
            &["ideal", "6", "12.30 ms", "~", "", "0", "0 B"],
        ]);
        tables_of(|| laid_out(&header, &cells)).1
    }

    #[test]
    fn a_column_of_numbers_has_its_unit_in_the_heading() {
        let expected = "\
policy,n,\"total, s\",\"total, ± %\",\"vs off, %\",\"vs off, ~\",\"vs ideal, %\",\"vs ideal, ~\",erases,\"stale max, bytes\"
off,\"1, exact\",238.9,0.1,,,83.4,~,17760,1717986918
set:40:90+lazy,6,1463,10.3,-39.6,,0.0,,,348232090
ideal,6,0.01230,,,~,,,0,0
";
        assert_eq!(csv(&compared()), expected);
    }

    #[test]
    fn a_column_with_anything_else_stays_text() {
        let of = |cells: &[&str]| quantities("x", cells).map(|columns| columns.concat().join("|"));
        assert_eq!(of(&["5.7 ms", "283.1 µs bg"]), None);
        assert_eq!(of(&["5.7 ms", "3 %"]), None, "two units");
        assert_eq!(of(&["1,2", "3"]), None, "a list");
        assert_eq!(of(&["< 0.1 %", "3.0 %"]), None);
        assert_eq!(of(&["100-120"]), None);
        assert_eq!(of(&["6.12", "6.1"]).as_deref(), Some("x|6.12|6.1"), "a version keeps its digits");
        assert_eq!(of(&["+3 s", "5 ns", "-"]).as_deref(), Some("x, s|3|0.000000005|"));
        assert_eq!(
            csv(&[Table::new("", ["a", "b"], vec![["-".into(), "x \"y\"\nz".into()]])]),
            "a,b\n,\"x \"\"y\"\"\nz\"\n"
        );
    }

    /// Each function that writes a number in a cell is read back.
    #[test]
    fn each_way_to_write_a_number_is_read() {
        use crate::figures::{change, grouped, nanoseconds, significant, thousands, time};
        use trimwise::units::Bytes;
        for (written, expected) in [
            (change(-0.9363), "-93.6 %"),
            (change(10.9369), "1094 %"),
            (grouped(1_234_567), "1234567 "),
            (nanoseconds(1_500.0), "0.0000015 s"),
            (significant(-2628.5), "-2629 "),
            (thousands(-1234.0), "-1234 "),
            (time(0.0123), "0.01230 s"),
            (trimwise::numbers::percent(12.34), "12.3 %"),
            (Bytes(5 << 40).to_string(), "5497558138880 bytes"),
            (Bytes(1000).to_string(), "1000 bytes"),
        ] {
            let Quantity { number, unit, .. } = Quantity::of(&written).expect(&written);
            assert_eq!(format!("{number} {unit}"), expected, "{written}");
        }
    }

    #[test]
    fn tables_with_the_same_columns_become_one_with_their_titles() {
        let two = |name: &str, mb: &str| titled(name, &["test", "MB/s"], &rows(&[&["seq", mb], &["", "2"]]));
        let (_, tables) =
            tables_of(|| two("a, new", "1") + &two("b", "1,000") + &titled("c", &["x"], &rows(&[&["y"]])));
        let expected = "\
table,test,MB/s
\"a, new\",seq,1
\"a, new\",seq,2
b,seq,1000
b,seq,2

table,x
c,y
";
        assert_eq!(csv(&tables), expected);
    }

    #[test]
    fn markdown_keeps_what_it_would_interpret_and_aligns_numbers() {
        let cells = rows(&[&["a|b*\nc", "1,000"], &["<i>", "-"]]);
        let (_, mut tables) = tables_of(|| titled("T: 80 %", &["policy", "n"], &cells));
        tables.extend(tables_of(|| laid_out_with(&["d"], &rows(&[&["x"]]), &["a drive".to_owned()])).1);
        let expected = "\
**T: 80 %**

| policy | n |
| --- | --: |
| a\\|b\\*<br>c | 1,000 |
| \\<i> | - |

| d | description |
| --- | --- |
| x | a drive |
";
        assert_eq!(markdown(&tables), expected);
        assert_eq!(markdown(&[]), "");
    }

    #[test]
    fn tables_are_kept_only_while_a_text_is_made_for_them() {
        laid_out(&["x"], &rows(&[&["before"]]));
        let (text, tables) = tables_of(|| "no table".to_owned());
        assert_eq!((&*text, tables.len()), ("no table", 0));
        assert_eq!(compared().len(), 1);
    }
}
