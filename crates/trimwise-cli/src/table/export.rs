//! Tables in other forms: CSV for programs, Markdown for pages.
//!
//! A command lays out its tables while it makes its text. [`tables_of`] makes that text and keeps what was laid out, so
//! each table has all forms, with the same cells.
//!
//! The headings of CSV depend on the command, never on the figures: a column of a declared [`Kind`] has its unit in the
//! heading, and `±` or `~` in columns of their own, whatever the cells are. In other columns a figure has its unit behind
//! it, always the same for a kind: `s`, `bytes`, `%`.

use std::cell::RefCell;

use trimwise::numbers::{MINUS, NONE};
use trimwise_study::plot::Table;

thread_local! {
    /// The tables laid out so far, while [`tables_of`] collects them.
    static LAID_OUT: RefCell<Option<Vec<Kept>>> = const { RefCell::new(None) };
}

/// A table as it is shown, and as programs read it.
#[derive(Clone, Debug)]
pub struct Kept {
    shown: Table,
    /// `None`: as shown.
    for_programs: Option<Table>,
    /// By column; text if missing.
    kinds: Vec<Kind>,
}

/// What the cells of a column are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Text,
    /// A number in this unit: `s`, `bytes`, `%` or none.
    Number(&'static str),
    /// Seconds, with the reach of the interval in percent.
    Measured,
    /// A change in percent, with a mark if it is not significant.
    Change,
    /// The number of runs, and whether they are exact.
    Runs,
}

/// Makes a text, and returns it with the tables in it.
pub fn tables_of(text: impl FnOnce() -> String) -> (String, Vec<Kept>) {
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
        let shown = Table { title: title.to_owned(), header, rows };
        kept.push(Kept { shown, for_programs: None, kinds: Vec::new() });
    });
}

/// Declares the kinds of columns of the table laid out last, by heading.
pub fn declare(kind: impl Fn(&str) -> Kind) {
    LAID_OUT.with_borrow_mut(|kept| {
        let Some(last) = kept.as_mut().and_then(|kept| kept.last_mut()) else { return };
        last.kinds = last.shown.header.iter().map(|heading| kind(heading)).collect();
    });
}

/// Replaces the table laid out last with one for programs, which has columns that are shown only sometimes.
pub fn replace(columns: impl FnOnce() -> (Vec<(String, Kind)>, Vec<Vec<String>>)) {
    LAID_OUT.with_borrow_mut(|kept| {
        let Some(last) = kept.as_mut().and_then(|kept| kept.last_mut()) else { return };
        let (columns, rows) = columns();
        let (header, kinds) = columns.into_iter().unzip();
        last.for_programs = Some(Table { title: last.shown.title.clone(), header, rows });
        last.kinds = kinds;
    });
}

/// Writes tables as CSV (RFC 4180, but with newlines only).
///
/// A table with a title has it as the first column. Tables with the same columns become one; others follow after an
/// empty line.
pub fn csv(tables: &[Kept]) -> String {
    let mut joined: Vec<Vec<Vec<String>>> = Vec::new();
    for kept in tables {
        let table = kept.for_programs.as_ref().unwrap_or(&kept.shown);
        let headings = headings(&table.header);
        let kind = |at: usize| kept.kinds.get(at).copied().unwrap_or_default();
        let title = (!table.title.is_empty()).then_some(&*table.title);
        let header = headings.iter().enumerate().flat_map(|(at, heading)| kind(at).headings(heading));
        let header: Vec<String> = title.map(|_| "table".to_owned()).into_iter().chain(header).collect();
        let mut name = String::new();
        let rows = table.rows.iter().map(|row| {
            let cells = row.iter().enumerate().flat_map(|(at, cell)| match (at, cell.trim()) {
                // A blank name stands for that of the row above, which a reader sees and a program does not.
                (0, "") => vec![name.clone()],
                (0, named) => {
                    named.clone_into(&mut name);
                    vec![name.clone()]
                }
                (_, cell) => kind(at).cells(cell),
            });
            title.map(str::to_owned).into_iter().chain(cells).collect()
        });
        match joined.iter_mut().find(|other| other[0] == header) {
            Some(other) => other.extend(rows),
            None => joined.push(std::iter::once(header.clone()).chain(rows).collect()),
        }
    }
    let line = |row: &Vec<String>| row.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(",") + "\n";
    joined.iter().map(|rows| rows.iter().map(line).collect::<String>()).collect::<Vec<_>>().join("\n")
}

/// Returns headings of which none is blank and no two are the same. One that occurs again belongs to the last column
/// before it whose heading does not.
fn headings(header: &[String]) -> Vec<String> {
    let filled = |(at, heading): (usize, &String)| match heading.trim() {
        "" if at == 0 => "name".to_owned(),
        "" => "note".to_owned(),
        heading => heading.to_owned(),
    };
    let filled: Vec<String> = header.iter().enumerate().map(filled).collect();
    let is_single = |heading: &String| filled.iter().filter(|other| *other == heading).count() == 1;
    let mut owner = "";
    let mut named = Vec::new();
    for heading in &filled {
        if is_single(heading) {
            owner = heading;
            named.push(heading.clone());
        } else {
            named.push(format!("{owner} {heading}").trim_start().to_owned());
        }
    }
    named
}

impl Kind {
    /// Returns the headings of its columns.
    fn headings(self, heading: &str) -> Vec<String> {
        let of = |part: &str| format!("{heading}, {part}");
        match self {
            Self::Text | Self::Number("") => vec![heading.to_owned()],
            Self::Number(unit) => vec![of(unit)],
            Self::Measured => vec![of("s"), of("\u{b1} %")],
            Self::Change => vec![of("%"), of("~")],
            Self::Runs => vec![heading.to_owned(), "exact".to_owned()],
        }
    }

    /// Returns the cells of its columns. What is no number of this unit stays as it is.
    fn cells(self, cell: &str) -> Vec<String> {
        let read = Quantity::of(cell);
        let plain = || if cell == NONE { String::new() } else { cell.to_owned() };
        let number = |unit: &str| match &read {
            Some(read) if read.unit == unit || read.number.is_empty() => read.number.clone(),
            _ => plain(),
        };
        let of_read = |part: fn(&Quantity) -> &str| {
            read.as_ref().map_or_else(String::new, |read| part(read).to_owned())
        };
        match self {
            Self::Text => match &read {
                Some(Quantity { number, unit, plus_minus_percent, mark: "" })
                    if plus_minus_percent.is_empty() =>
                {
                    vec![format!("{number} {unit}").trim().to_owned()]
                }
                _ => vec![plain()],
            },
            Self::Number(unit) => vec![number(unit)],
            Self::Measured => vec![number("s"), of_read(|read| &read.plus_minus_percent)],
            Self::Change => vec![number("%"), of_read(|read| read.mark)],
            Self::Runs => {
                let (runs, exact) = cell.split_once(", ").unwrap_or((cell, ""));
                vec![runs.to_owned(), exact.to_owned()]
            }
        }
    }
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

/// Returns true for a number with anything behind it, and for no figure.
fn is_about_a_number(cell: &str) -> bool {
    let cell = cell.trim_start_matches(['~', ' ', '<', '+', '-']).trim_start_matches(MINUS);
    cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit())
}

/// Writes tables as GitHub's Markdown, each below its title. Columns of numbers are aligned to the right.
pub fn markdown(tables: &[Kept]) -> String {
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
    tables.iter().map(|kept| table(&kept.shown)).collect::<Vec<_>>().join("\n")
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

    fn of_compare(heading: &str) -> Kind {
        match heading {
            "n" => Kind::Runs,
            "total" => Kind::Measured,
            "vs off" | "vs ideal" => Kind::Change,
            "erases" => Kind::Number(""),
            "stale max" => Kind::Number("bytes"),
            _ => Kind::Text,
        }
    }

    fn compared(cells: &[&[&str]]) -> Vec<Kept> {
        let header = ["policy", "n", "total", "vs off", "vs ideal", "erases", "stale max"];
        let table = || {
            let text = laid_out(&header, &rows(cells));
            declare(of_compare);
            text
        };
        tables_of(table).1
    }

    const HEADINGS: &str = "policy,n,exact,\"total, s\",\"total, ± %\",\"vs off, %\",\"vs off, ~\",\"vs ideal, %\",\
                            \"vs ideal, ~\",erases,\"stale max, bytes\"\n";

    #[test]
    fn a_column_of_numbers_has_its_unit_in_the_heading() {
        let cells: [&[&str]; 3] = [
            &["off", "1, exact", "238.9 s ± 0.1 %", "", "~ +83.4 %", "17,760", "1.6 GiB"],
            &["set:40:90+lazy", "6", "1,463 s ± 10.3 %", "\u{2212}39.6 %", "0.0 %", "-", "332.1 MiB"],
            &["ideal", "6", "12.30 ms", "~", "", "0", "0 B"],
        ];
        let expected = "\
off,1,exact,238.9,0.1,,,83.4,~,17760,1717986918
set:40:90+lazy,6,,1463,10.3,-39.6,,0.0,,,348232090
ideal,6,,0.01230,,,~,,,0,0
";
        assert_eq!(csv(&compared(&cells)), format!("{HEADINGS}{expected}"));
    }

    #[test]
    fn regression_headings_are_the_same_whatever_the_figures_are() {
        for cells in [
            ["off", "1", "1 s", "-", "-", "-", "-"],
            ["off", "1", "12 ms", "", "", "none", "unknown"],
            ["off", "1, exact", "-", "~", "~ +3 %", "1", "3 KiB"],
        ] {
            let text = csv(&compared(&[&cells]));
            assert!(text.starts_with(HEADINGS), "{text}");
            let columns = |line: &str| line.replace(", ", "").matches(',').count();
            assert_eq!(text.lines().map(columns).collect::<Vec<_>>(), [10, 10], "{text}");
        }
        assert!(
            csv(&compared(&[&["off", "1", "1 s", "", "", "none", "unknown"]])).ends_with(",none,unknown\n")
        );
    }

    #[test]
    fn regression_no_heading_is_blank_and_none_occurs_twice() {
        let of =
            |header: &[&str]| headings(&header.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>()).join("|");
        assert_eq!(of(&["", "extents", "bytes", ""]), "name|extents|bytes|note");
        let advised = ["policy", "waiting", "longer", "interval", "wear", "interval"];
        assert_eq!(of(&advised), "policy|waiting|longer|longer interval|wear|wear interval");
        let vendors = ["Type", "NODISCARD", "published", "error", "DISCARD", "published", "error"];
        let expected =
            "Type|NODISCARD|NODISCARD published|NODISCARD error|DISCARD|DISCARD published|DISCARD error";
        assert_eq!(of(&vendors), expected);
    }

    #[test]
    fn a_column_of_no_kind_has_figures_in_one_unit_and_else_text() {
        let cells = |cell| Kind::Text.cells(cell).concat();
        for text in ["283.1 \u{b5}s bg", "1,2", "< 0.1 %", "100-120", "6.12", "~ 3"] {
            assert_eq!(cells(text), text);
        }
        assert_eq!([cells("5.7 ms"), cells("1.5 KiB"), cells("3 %")], ["0.0057 s", "1536 bytes", "3 %"]);
        assert_eq!([cells("1,234"), cells("\u{2212}3"), cells("-")], ["1234", "-3", ""]);
        assert_eq!(Kind::Number("s").cells("3 %"), ["3 %"], "another unit");
        let table = Table::new("", ["a", "b"], vec![["-".into(), "x \"y\"\nz".into()]]);
        let kept = Kept { shown: table, for_programs: None, kinds: Vec::new() };
        assert_eq!(csv(&[kept]), "a,b\n-,\"x \"\"y\"\"\nz\"\n");
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
        assert_eq!(compared(&[]).len(), 1);
    }
}
