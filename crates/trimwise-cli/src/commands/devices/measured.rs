//! The text of published measurements.

use trimwise::drives::measured::{Bound, Comparable, Load, Measurement, Read, State, Summary, Unit, What};
use trimwise::numbers::counted;
use trimwise::units::Bytes;
use trimwise_study::devices::{Measured, Published};

use crate::figures::{NONE, significant, thousands, time};
use crate::table::export::{self, Kind};
use crate::table::{folded, titled_within};

/// Width of the tables, in columns.
const WIDTH: usize = 80;

/// Maximum length of a repository's name in a short reference.
const REPOSITORY_MAX: usize = 14;

const LEGEND: &str = "P: the source was read in part only. D: derived from what it says, or doubtful. U: it does not \
                      name the drive. ≥, ≤: the true figure is above, or below.";
const WHERE: &str = "Whole sources, and what they say: --details, --csv, --json.";
const SUMMARY: &str = "The lowest, the median and the highest of each figure by class of drives, without bounds (≥, ≤). NVMe \
                       with HMB includes drives with no DRAM at all; enterprise means that the maker promises to keep the \
                       write cache at a power cut; NVMe, map?: nobody says where the map lies.";

/// Renders the measurements by what was measured, and what they say of each class.
pub fn text(measured: &Measured, has_summary: bool, has_details: bool) -> String {
    let mut text = String::new();
    for what in What::ALL {
        let of: Vec<&Published> =
            measured.measurements.iter().filter(|one| one.measurement.what == what).collect();
        if !of.is_empty() {
            text += &(table(what, &of, has_details) + "\n");
        }
    }
    text += &folded(LEGEND, 0);
    if !has_details {
        text += &folded(WHERE, 0);
    }
    if has_summary {
        text.push('\n');
        text += &folded(SUMMARY, 0);
        for figure in Comparable::ALL {
            let of: Vec<&Summary> = measured.summary.iter().filter(|one| one.figure == figure).collect();
            text += &("\n".to_owned() + &summary(figure, &of));
        }
    }
    text
}

fn table(what: What, of: &[&Published], has_details: bool) -> String {
    type Column = (&'static str, fn(&Published) -> String);
    let columns: [Column; 6] = [
        ("class", |one| one.class.name().to_owned()),
        ("figure", |one| figure_of(&one.measurement)),
        ("range", |one| range(&one.measurement)),
        ("state", |one| state(&one.measurement)),
        ("source", |one| short(&one.measurement)),
        ("", marks),
    ];
    let cells = columns.map(|(heading, cell)| (heading, of.iter().map(|one| cell(one)).collect::<Vec<_>>()));
    let kept: Vec<_> = cells.iter().filter(|(_, cells)| cells.iter().any(|cell| cell != NONE)).collect();
    let header: Vec<&str> =
        std::iter::once("drive").chain(kept.iter().map(|(heading, _)| *heading)).collect();
    let drive = |one: &Published| one.measurement.drive.trim_start_matches("unnamed ").to_owned();
    let row = |(at, one): (usize, &&Published)| {
        std::iter::once(drive(one)).chain(kept.iter().map(|(_, cells)| cells[at].clone())).collect()
    };
    let rows: Vec<Vec<String>> = of.iter().enumerate().map(row).collect();
    let details: Vec<String> =
        if has_details { of.iter().map(|one| details(&one.measurement)).collect() } else { Vec::new() };
    let text = titled_within(what.words(), &header, &rows, &details, WIDTH);
    export::replace(|| for_programs(of));
    text
}

fn figure_of(one: &Measurement) -> String {
    let bound = match one.bound {
        Some(Bound::Lower) => "≥ ",
        Some(Bound::Upper) => "≤ ",
        None => "",
    };
    format!("{bound}{}", in_unit(one.unit, one.value, one.value_high))
}

/// Formats a figure, or both ends of a range, with its unit.
fn in_unit(unit: Unit, value: f64, high: Option<f64>) -> String {
    let (number, behind): (fn(f64) -> String, &str) = match unit {
        Unit::Seconds => (time, ""),
        Unit::SecondsPerGib => (time, "/GiB"),
        Unit::PerSecond => (thousands, "/s"),
        Unit::Ratio => (significant, ""),
        Unit::Bytes => (gigabytes, " GB"),
        Unit::BytesPerSecond => (|bytes| thousands(bytes / 1e6), " MB/s"),
    };
    match high {
        Some(high) => format!("{} to {}{behind}", number(value), number(high)),
        None => format!("{}{behind}", number(value)),
    }
}

fn gigabytes(bytes: f64) -> String {
    significant(bytes / 1e9)
}

/// The size of a range, and how many are in a command if that is known.
fn range(one: &Measurement) -> String {
    let size = one.range_bytes.map(|bytes| match bytes % 1_000_000 {
        0 => format!("{} MB", thousands(bytes as f64 / 1e6)),
        _ => Bytes(bytes).to_string(),
    });
    let of_many = one.what == What::TrimLatency && one.ranges.is_none();
    match size {
        Some(size) if of_many => format!("{size}, of several"),
        Some(size) => size,
        None => NONE.to_owned(),
    }
}

fn state(one: &Measurement) -> String {
    let state = one.state.map(|state| match state {
        State::Full => "full",
        State::Empty => "empty",
        State::Dirty => "dirty",
        State::Part => "partly full",
    });
    let load = one.load.map(|load| match load {
        Load::Idle => "idle",
        Load::Busy => "busy",
    });
    let percent = one.full_percent.map(|percent| format!("{percent} % full"));
    let words: Vec<String> = state.into_iter().chain(load).map(str::to_owned).chain(percent).collect();
    if words.is_empty() { NONE.to_owned() } else { words.join(", ") }
}

/// Returns a short reference: the thread of a repository, or the site, with the year.
fn short(one: &Measurement) -> String {
    let address = one.source.split_once("://").map_or(&*one.source, |(_, rest)| rest);
    let parts: Vec<&str> = address.split('/').collect();
    let place = match parts[..] {
        ["github.com", _, repository, "issues" | "pull", number, ..] => {
            let name: String = repository.chars().take(REPOSITORY_MAX).collect();
            let cut = if name.len() < repository.len() { "…" } else { "" };
            format!("{name}{cut}#{number}")
        }
        _ => {
            let labels: Vec<&str> = parts[0].split('.').collect();
            labels[labels.len().saturating_sub(2)..].join(".")
        }
    };
    one.year.map_or_else(|| place.clone(), |year| format!("{place} {year}"))
}

fn marks(one: &Published) -> String {
    let is = [
        ('P', one.measurement.read == Read::Part),
        ('D', one.measurement.assumes.is_some()),
        ('U', one.unnamed),
    ];
    let marks: String = is.into_iter().filter(|(_, is)| *is).map(|(mark, _)| mark).collect();
    if marks.is_empty() { NONE.to_owned() } else { marks }
}

fn details(one: &Measurement) -> String {
    let said = one.said.as_ref().map_or_else(String::new, |said| format!("\"{said}\". "));
    let assumes = one.assumes.as_ref().map_or_else(String::new, |assumes| format!("Here: {assumes}. "));
    format!("{said}{assumes}{}", one.source)
}

/// All that is known, for programs.
fn for_programs(of: &[&Published]) -> (Vec<(String, Kind)>, Vec<Vec<String>>) {
    const COLUMNS: [(&str, Kind); 21] = [
        ("drive", Kind::Text),
        ("class", Kind::Text),
        ("link", Kind::Text),
        ("flash", Kind::Text),
        ("map", Kind::Text),
        ("firmware", Kind::Text),
        ("what", Kind::Text),
        ("range", Kind::Number("bytes")),
        ("ranges", Kind::Number("")),
        ("state", Kind::Text),
        ("load", Kind::Text),
        ("full", Kind::Number("%")),
        ("value", Kind::Number("")),
        ("value_high", Kind::Number("")),
        ("bound", Kind::Text),
        ("unit", Kind::Text),
        ("read", Kind::Text),
        ("said", Kind::Text),
        ("assumes", Kind::Text),
        ("source", Kind::Text),
        ("year", Kind::Text),
    ];
    let row = |one: &&Published| {
        let entry = serde_json::to_value(one).unwrap_or_default();
        let cell = |heading: &str| {
            let key = match heading {
                "range" => "range_bytes",
                "full" => "full_percent",
                same => same,
            };
            match &entry[key] {
                serde_json::Value::Null => NONE.to_owned(),
                serde_json::Value::String(text) => text.clone(),
                number => number.as_f64().map_or_else(|| number.to_string(), |number| number.to_string()),
            }
        };
        COLUMNS.iter().map(|(heading, _)| cell(heading)).collect()
    };
    let columns = COLUMNS.iter().map(|(heading, kind)| ((*heading).to_owned(), *kind)).collect();
    (columns, of.iter().map(row).collect())
}

fn summary(figure: Comparable, of: &[&Summary]) -> String {
    const HEADER: [&str; 6] = ["class", "lowest", "median", "highest", "figures", "drives"];
    let row = |one: &&Summary| {
        let end = |value: f64| in_unit(one.unit, value, None);
        let range = one.range.map(|range| [range.lowest, range.median, range.highest].map(end));
        let none = || [NONE, "not measured", NONE].map(str::to_owned);
        let bounds = if one.bounds > 0 {
            format!(" + {}", counted(one.bounds as u64, "bound"))
        } else {
            String::new()
        };
        std::iter::once(one.class.name().to_owned())
            .chain(range.unwrap_or_else(none))
            .chain([format!("{}{bounds}", one.measurements), one.drives.to_string()])
            .collect()
    };
    let rows: Vec<Vec<String>> = of.iter().map(row).collect();
    let text = titled_within(figure.words(), &HEADER, &rows, &[], WIDTH);
    export::replace(|| {
        let headings = ["class", "unit", "lowest", "median", "highest", "measurements", "drives", "bounds"];
        let kind =
            |heading: &str| if ["class", "unit"].contains(&heading) { Kind::Text } else { Kind::Number("") };
        let row = |one: &&Summary| {
            let end = |of: fn(&trimwise::drives::measured::Range) -> f64| {
                one.range.as_ref().map_or_else(|| NONE.to_owned(), |range| of(range).to_string())
            };
            vec![
                one.class.name().to_owned(),
                one.unit.name().to_owned(),
                end(|range| range.lowest),
                end(|range| range.median),
                end(|range| range.highest),
                one.measurements.to_string(),
                one.drives.to_string(),
                one.bounds.to_string(),
            ]
        };
        (headings.map(|heading| (heading.to_owned(), kind(heading))).to_vec(), of.iter().map(row).collect())
    });
    text
}

#[cfg(test)]
mod tests {
    use trimwise_study::devices::measured;

    use super::*;
    use crate::table::export::tables_of;

    #[test]
    fn every_measurement_is_shown_in_tables_of_80_columns() {
        let all = measured(None).unwrap();
        let (shown, tables) = tables_of(|| text(&all, true, false));
        let prose = [LEGEND, WHERE, SUMMARY].map(|prose| folded(prose, 0));
        for line in shown.lines().filter(|line| !prose.iter().any(|prose| prose.contains(line))) {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        let kinds = What::ALL.iter().filter(|what| shown.contains(what.words())).count();
        assert_eq!((kinds, tables.len()), (15, 15 + Comparable::ALL.len()));
        let csv = export::csv(&tables);
        // One table of all measurements, and one of all summaries, each with its heading.
        assert_eq!(csv.lines().count(), 1 + 193 + 1 + 1 + 6 * 7);
        assert!(
            csv.starts_with("table,drive,class,link,flash,map,firmware,what,\"range, bytes\",ranges,state,"),
            "{csv}"
        );
        assert!(csv.contains(",trim_latency,4096,1,part,,,0.00007163,,,s,part,"), "{csv}");
    }

    #[test]
    fn a_row_has_figure_state_short_source_and_marks_and_details_the_whole() {
        let rows = |pattern: &str, has_details| {
            let found = measured(Some(pattern)).unwrap();
            export::markdown(&tables_of(|| text(&found, false, has_details)).1)
        };
        for (pattern, expected) in [
            (
                "fio issue 764",
                "| U.2 NVMe drive (fio issue 764) | NVMe, map? | 71.63 µs | 4 KiB | partly full | fio#764 2019 | PU |",
            ),
            ("Intel X25-M", "| SATA | ≤ 400.0 ms/GiB | full, idle | anandtech.com | PD |"),
            ("i3.8xlarge", "| NVMe, map? | 5,490 to 7,550/s | 512 KiB | idle | launchpad.net | PDU |"),
            (
                "Mi Notebook",
                "| unknown | 25.00 µs | 445.3 KiB, of several | partly full | XiaoMi-Pro-Hac…#265 2020 |",
            ),
            (
                "Crucial P1 1TB",
                "| Crucial P1 1TB | NVMe, DRAM | 0.031 | dirty, 80 % full | cdrlabs.com | PD |",
            ),
            ("Crucial P1 1TB", "| NVMe, DRAM | 140.0 GB | empty | techpowerup.com |"),
            ("Crucial P1 1TB", "| NVMe, DRAM | 1,600 MB/s |"),
            ("RC100", "| NVMe, HMB | 1.000 s | 4,000 MB | busy | pcper.com 2018 | PD |"),
        ] {
            let rows = rows(pattern, false);
            assert!(rows.contains(expected), "{rows}");
        }
        let details = rows("fio issue 764", true);
        assert!(details.contains("| \"trimwrite 4k: trim lat (usec) min=66"), "{details}");
        assert!(details.contains("https://github.com/axboe/fio/issues/764 |"), "{details}");
    }

    #[test]
    fn where_nothing_was_measured_the_summary_says_so() {
        let shown = text(&measured(None).unwrap(), true, false);
        let from = shown.find(Comparable::TrimCommand.words()).unwrap();
        let rows: Vec<Vec<&str>> =
            shown[from..].lines().skip(4).take(7).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0].join(" "), "NVMe, DRAM - not measured - 0 0");
        assert_eq!(rows[3].join(" "), "NVMe, map? 71.63 µs 162.5 µs 182.1 µs 4 4");
    }
}
