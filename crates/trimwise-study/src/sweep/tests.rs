use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "parquet")]
use parquet::file::reader::{FileReader as _, SerializedFileReader};
#[cfg(feature = "parquet")]
use parquet::record::Field;

use super::*;
use crate::caller::Silent;

/// The default drive with a sixteenth of its capacity, so that it is aged quickly, and a small PostMark.
fn grid(folder: &Path, rest: &str) -> Result<Grid, Failure> {
    let text = include_str!("../../../../profiles/sata-small.toml").replace("8_589_934_592", "536_870_912");
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let drive = file("small.toml", &text);
    let mail = file("small.pmrc", "set number 20\nset transactions 50\nset size 1000 20000\nrun\n");
    let log = file(
        "log",
        "fio version 3 iolog\n0 a write 0 4096\n10 a read 0 4096\n20 a trim 0 4096\n30 a write 8192 4096\n",
    );
    let rest = rest.replace("DRIVE", &drive).replace("MAIL", &mail).replace("LOG", &log);
    Grid::parse(&rest, "grid.toml", &SweepRequest::default(), None)
}

/// The paths of all figures in a row.
fn leaves(value: &Value, path: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(entries) => {
            entries.iter().for_each(|(key, value)| leaves(value, &format!("{path}/{key}"), into));
        }
        Value::Array(entries) if entries.is_empty() => {}
        _ => drop(into.insert(path.to_owned())),
    }
}

#[test]
fn every_figure_of_a_cell_has_a_column() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = Vec::new();
    let progress = Silent::default().progress(1, "cells");
    for rest in [
        "workloads = ['MAIL', 'append:64KiB:4MiB', 'fullwrite:64KiB:4MiB', 'lsm:operations=200', 'trace:LOG']",
        "workloads = ['MAIL']\ndays = 1\nday = 'flat'",
    ] {
        let rest =
            format!("devices = ['DRIVE']\npolicies = ['off', 'commit']\nutilizations_percent = [10]\n{rest}");
        let grid = grid(folder.path(), &rest).unwrap_or_else(|e| panic!("{e}"));
        for cell in 0..grid.description.cells {
            let Ran::Done(Outcome::Result(result)) =
                run_cell(&grid.place(cell), (&progress, 0), &Arc::default()).unwrap()
            else {
                panic!("cell {cell} failed")
            };
            rows.push(row(&grid, cell, Ok(*result)).unwrap());
        }
    }
    let columns = columns::columns();
    let names: BTreeSet<&str> = columns.iter().map(|column| &*column.name).collect();
    assert_eq!(names.len(), columns.len(), "a name twice");
    let known: BTreeSet<&str> = columns.iter().map(columns::Column::pointer).collect();
    // The grid has these.
    let others = ["device", "policy", "target", "rep"].map(|name| format!("/result/{name}"));
    for row in &rows {
        let mut found = BTreeSet::new();
        leaves(row, "", &mut found);
        for path in found.iter().filter(|path| !others.contains(path)) {
            assert!(known.contains(&**path), "{path} has no column");
        }
        let lost: Vec<_> = columns.iter().filter(|column| column.loses(row)).collect();
        assert!(lost.is_empty(), "{lost:?} in {row}");
    }

    #[cfg(feature = "parquet")]
    a_file_has_all_of(&rows);
}

/// Checks that rows are read back as they were written.
#[cfg(feature = "parquet")]
fn a_file_has_all_of(rows: &[Value]) {
    let bytes = parquet_file::written(rows).unwrap();
    assert_eq!(bytes, parquet_file::written(rows).unwrap());
    let file = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
    let read: Vec<_> = file.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!(read.len(), rows.len());
    for (read, row) in read.iter().zip(rows) {
        let of = |name: &str| read.get_column_iter().find(|(n, _)| *n == name).unwrap().1.clone();
        assert_eq!(of("policy"), Field::Str(row["policy"].as_str().unwrap().to_owned()));
        assert_eq!(of("duration_ns"), Field::Long(row["result"]["duration_ns"].as_i64().unwrap()));
        let amplification = row["result"]["device_stats"]["write_amplification"].as_f64().unwrap();
        assert_eq!(of("device_stats_write_amplification"), Field::Double(amplification));
        assert_eq!(of("error"), Field::Null);
    }
}

/// Each of two shards scans at its end. A cell that the other one enters meanwhile, behind the scan, must be found too.
#[test]
fn regression_a_sum_next_to_a_whole_number_is_rounded_to_it() {
    use trimwise::compare::figure::Kind;
    assert_eq!(columns::number(Kind::Nanoseconds, 2.9999999), 3);
    assert_eq!(columns::number(Kind::Units, 3.2), 3);
    assert_eq!(columns::number(Kind::Ratio, 2.9), 2.9);
}

#[test]
fn cells_that_come_during_a_scan_are_scanned_again() {
    let dir = tempfile::tempdir().unwrap();
    let grid = grid(
        dir.path(),
        "devices = ['DRIVE']\npolicies = ['off', 'commit']\nutilizations_percent = [10]\nworkloads = ['MAIL']\nreps = 2",
    )
    .unwrap_or_else(|e| panic!("{e}"));
    let cells = grid.description.cells;
    let folder = Folder::open(&dir.path().join("out"), &grid, false).unwrap();
    let enter = |cell: u64| folder.enter(cell, &Outcome::Error("invented".to_owned())).unwrap();
    enter(0);
    let mut seen = Vec::new();
    let found = until_unchanged(
        || folder.count(cells),
        || {
            let rows = rows_of(&grid, &folder, 0..cells)?.len();
            // The other shard enters one behind each of the first two scans.
            seen.push(rows);
            if seen.len() <= 2 {
                enter(seen.len() as u64);
            }
            Ok(rows)
        },
    );
    assert_eq!((found.unwrap(), seen), (3, vec![1, 2, 3]));
    // The other shard has run the same cell: its file stays.
    enter(1);
    assert_eq!(folder.count(cells), 3);
}

/// As when another process adds cells meanwhile.
#[cfg(feature = "parquet")]
#[test]
fn a_data_set_that_is_written_again_lists_each_part_once() {
    let dir = tempfile::tempdir().unwrap();
    let grid =
        grid(dir.path(), "devices = ['DRIVE']\npolicies = ['off']\nworkloads = ['MAIL']\nreps = 2").unwrap();
    let folder = Folder::open(&dir.path().join("out"), &grid, false).unwrap();
    let mut summary = Summary::of(&grid, &SweepRequest::default());
    for (cell, missing) in [(0, 1), (1, 0)] {
        folder.enter(cell, &Outcome::Error("invented".to_owned())).unwrap();
        write_parts(&grid, &folder, &mut summary).unwrap();
        assert_eq!((summary.parts.len(), summary.missing_cells), (1, missing), "{:?}", summary.parts);
    }
}

#[test]
fn a_wrong_grid_is_refused_with_its_line_its_key_and_what_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let good = "devices = ['DRIVE']\npolicies = ['off']\nworkloads = ['MAIL']\n";
    assert_eq!(grid(folder.path(), good).map_err(|e| e.to_string()).map(|g| g.description.cells), Ok(1));
    for (text, expected) in [
        (
            "devices = ['nosuch']\npolicies = ['off']\nworkloads = ['MAIL']",
            &["grid.toml:1: devices: nosuch: ", "sata-small"][..],
        ),
        (
            "devices = ['DRIVE']\npolicies = ['off',\n'lasy']\nworkloads = ['MAIL']",
            &["grid.toml:3: policies: ", "lasy", "lazy"],
        ),
        (
            "devices = ['DRIVE']\npolicies = ['off']\nworkloads = ['nosuch']",
            &["grid.toml:3: workloads: nosuch: ", "lsm"],
        ),
        (
            "policies = ['off']\n",
            &["grid.toml: devices: is missing; expected a list", "grid.toml: workloads: is missing"],
        ),
        (
            "devices = ['sata-smal', 'nope']\npolicies = ['comit']\nworkloads = ['nosuch']\n\
             utilizations_percent = [50, 170]\nseeds = []\nreps = 0\ndays = 0\nday = 'owl'",
            &[
                "grid.toml:1: devices: sata-smal: ",
                "grid.toml:1: devices: nope: ",
                "grid.toml:2: policies: ",
                "grid.toml:3: workloads: nosuch: ",
                "grid.toml:4: utilizations_percent: 170",
                "grid.toml:5: seeds: is empty",
                "grid.toml:6: reps: 0 is not accepted",
                "grid.toml:7: days: 0 is not accepted",
                "grid.toml:8: day: ",
            ],
        ),
        (
            &format!("{good}size = 3"),
            &["grid.toml:4: size = 3: unknown field `size`", "utilizations_percent"],
        ),
        (
            &format!("{good}seeds = ['9-3']"),
            &["grid.toml:4: seeds: '9-3' is not accepted", "such as \"1-100\""],
        ),
        (&format!("{good}seeds = [1.5]"), &["grid.toml:4: ", "1.5", "expected a whole number"]),
        (&format!("{good}seeds = [3, '1-5']"), &["grid.toml:4: seeds: 3 is given twice"]),
        (
            &format!("{good}utilizations_percent = [20, 101]"),
            &["grid.toml:4: utilizations_percent: 101", "from 0 to 100"],
        ),
        (
            &format!("{good}utilizations_percent = []"),
            &["grid.toml:4: utilizations_percent: is empty; expected at least one entry, such as 80"],
        ),
        (&format!("{good}seeds = []"), &["grid.toml:4: seeds: is empty", "such as 1 or \"1-100\""]),
        (
            "devices = ['DRIVE']\npolicies = [\n]\nworkloads = ['MAIL']",
            &["grid.toml:2: policies: is empty", "such as \"commit\""],
        ),
        (
            "devices = []\npolicies = ['off']\nworkloads = []",
            &["grid.toml:1: devices: is empty", "such as \"sata-small\""],
        ),
        (
            "devices = ['DRIVE']\npolicies = ['off']\nworkloads = []",
            &["grid.toml:3: workloads: is empty", "such as \"default\""],
        ),
        (&format!("{good}linux = 'x'"), &["grid.toml:4: linux: 'x'"]),
        (
            "devices = ['DRIVE']\npolicies = ['trimwised']\nworkloads = ['MAIL']",
            &["grid.toml:2: policies: trimwised: the daemon works over hours; expected days = N with it"],
        ),
        (
            "devices = ['DRIVE']\npolicies = ['off']\nworkloads = ['MAIL', '']",
            &["grid.toml:3: workloads: an entry is empty; expected a name, such as \"default\""],
        ),
        (&format!("{good}days = 1.5"), &["grid.toml:4: days = 1.5: ", "expected a whole number"]),
        (&format!("{good}seeds = 3"), &["grid.toml:4: seeds = 3: ", "expected a list"]),
        (&format!("{good}seeds = ['1-9999999']\nreps = 1000"), &["at most 10000000 cells"]),
        (&format!("{good}day = 'flat'"), &["grid.toml:4: day: needs days"]),
        (
            "devices = ['DRIVE', 'DRIVE']\npolicies = ['off']\nworkloads = ['MAIL']",
            &["grid.toml:1: devices: '", "small.toml' is given twice; expected each once"],
        ),
        (
            "devices = ['DRIVE']\npolicies = ['off',\n'discard', 'commit']\nworkloads = ['MAIL']",
            &["grid.toml:3: policies: 'commit' is given twice, as 'discard' and as 'commit'"],
        ),
        (
            &format!("{good}utilizations_percent = [20, 30, 20]"),
            &["grid.toml:4: utilizations_percent: '20' is given twice"],
        ),
        (
            "devices = ['DRIVE']\npolicies = ['off']\nworkloads = ['append:64KiB:1GiB']",
            &["grid.toml:3: ", "its file needs 963.8 MiB"],
        ),
    ] {
        let Err(failure) = grid(folder.path(), text) else { panic!("accepted: {text}") };
        assert!(matches!(failure, Failure::Usage(_)), "{failure:?}");
        for words in expected {
            assert!(failure.to_string().contains(words), "'{words}' is not in: {failure}");
        }
    }
}

#[test]
fn a_shard_is_a_number_of_some() {
    assert_eq!("3/64".parse(), Ok(Shard { number: 3, of: 64 }));
    for text in ["0/3", "4/3", "3", "a/b", "1/0", "-1/3"] {
        assert!(text.parse::<Shard>().is_err(), "{text}");
    }
    for group in 0..20 {
        assert_eq!((1..=7).filter(|&number| Shard { number, of: 7 }.has(group)).count(), 1);
    }
}

#[test]
fn shards_may_begin_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let grid = grid(folder.path(), "devices = ['DRIVE']\nworkloads = ['MAIL']\npolicies = ['off']").unwrap();
    for round in 0..500 {
        let path = folder.path().join(round.to_string());
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for cell in 0..4 {
                let (path, grid, start) = (&path, &grid, &start);
                scope.spawn(move || {
                    start.wait();
                    let entered = folder::Folder::open(path, grid, false)
                        .and_then(|folder| folder.enter(cell, &Outcome::Error("an end".to_owned())));
                    entered.unwrap_or_else(|e| panic!("round {round}: {e}"));
                });
            }
        });
    }
}

#[test]
fn regression_of_a_long_line_an_error_quotes_a_part() {
    let folder = tempfile::tempdir().unwrap();
    let Err(failure) = grid(folder.path(), &format!("a={}{}", "[".repeat(100_000), "]".repeat(100_000)))
    else {
        panic!("accepted")
    };
    let said = failure.to_string();
    assert!(said.len() < 300 && said.contains("grid.toml:1: a=[["), "{} bytes: {said:.300}", said.len());
    assert!(said.contains("[ [...] ]") && said.contains("recurse"), "{said}");
}
