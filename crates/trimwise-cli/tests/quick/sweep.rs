//! A sweep gives the same bytes, whatever happens to the processes that run it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{command_in, refused, said, text};
use trimwise_testing::command_line::contents;

/// A grid of 24 small cells.
fn grid(folder: &Path) {
    let drive = include_str!("../../../../profiles/sata-small.toml").replace("8_589_934_592", "536_870_912");
    fs::write(folder.join("small.toml"), drive).unwrap();
    fs::write(folder.join("small.pmrc"), "set number 20\nset transactions 50\nset size 1000 20000\nrun\n")
        .unwrap();
    let text = "devices = ['small.toml']\npolicies = ['off', 'lazy+reuse', 'ideal']\n\
                workloads = ['small.pmrc', 'append:64KiB:4MiB']\nutilizations_percent = [10, 30]\nseeds = [1, 7]\n";
    fs::write(folder.join("grid.toml"), text).unwrap();
}

/// A grid of one of these cells.
const ONE_CELL: &str =
    "devices = ['small.toml']\npolicies = ['off']\nworkloads = ['small.pmrc']\nutilizations_percent = [10]\n";

/// The files of finished cells.
fn cells(folder: &Path) -> Vec<PathBuf> {
    let is_cell = |path: &PathBuf| !path.file_name().unwrap().to_string_lossy().starts_with('.');
    let entries = fs::read_dir(folder.join("_cells/00000")).into_iter().flatten();
    let mut cells: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).filter(is_cell).collect();
    cells.sort();
    cells
}

#[test]
fn jobs_shards_kills_and_broken_files_change_no_byte() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    grid(dir.path());
    let sweep = |line: &str| command_in(dir.path(), &format!("sweep grid.toml {line}")).output().unwrap();
    said(
        &sweep("--out one --dry-run"),
        &["24 cells\n  1 device x 3 policies x 2 workloads x 2 utilizations x 2 seeds"],
    );
    assert!(!at("one").exists(), "a dry run writes nothing");
    said(&sweep("--out one --jobs 1"), &["24 run now, 0 finished before", "one/part-00000.parquet"]);
    let expected = contents(&at("one"));
    assert_eq!(expected.len(), 24 + 2, "cells, description, part");
    assert_eq!(&expected[expected.len() - 1].1[..4], b"PAR1");

    said(&sweep("--out two --jobs 2"), &["24 run now"]);
    assert!(contents(&at("two")) == expected, "two jobs give other bytes than one");

    for shard in ["2/3", "3/3", "1/3"] {
        said(&sweep(&format!("--out shards --shard {shard}")), &["shard", "run now, 0 finished before"]);
    }
    assert!(contents(&at("shards")) == expected, "shards give other bytes than the whole");

    // Folders of their own, then put together.
    for shard in 1..=3 {
        said(&sweep(&format!("--out own{shard} --shard {shard}/3")), &["cells of the grid are missing"]);
        let mut copy = Command::new("cp");
        copy.args(["-r", &format!("own{shard}/."), "own"]).current_dir(dir.path());
        assert!(copy.status().unwrap().success());
    }
    said(&sweep("--out own"), &["0 run now, 24 finished before"]);
    assert!(contents(&at("own")) == expected, "put together, shards give other bytes");

    // Killed in the middle.
    let mut child = command_in(dir.path(), "sweep grid.toml --out killed --jobs 2").spawn().unwrap();
    let begin = Instant::now();
    while cells(&at("killed")).len() < 5 {
        assert!(begin.elapsed() < Duration::from_secs(300), "no cell was finished");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let finished = cells(&at("killed"));
    let times = |paths: &[PathBuf]| -> Vec<_> {
        paths.iter().map(|path| path.metadata().unwrap().modified().unwrap()).collect()
    };
    let before = times(&finished);
    // What a kill may leave: a file under its temporary name, half a file, another cell's, and one of another sweep.
    fs::write(at("killed/_cells/00000/.00000001.0123456789abcdef.new"), "half").unwrap();
    let whole = fs::read(at("one/_cells/00000/00000020")).unwrap();
    fs::write(at("killed/_cells/00000/00000020"), &whole[..whole.len() / 2]).unwrap();
    fs::write(at("killed/_cells/00000/00000021"), &whole).unwrap();
    let foreign = text(&whole).replacen("trimwise sweep ", "trimwise sweep 0", 1);
    fs::write(at("killed/_cells/00000/00000022"), foreign).unwrap();
    // A file without an end.
    drop(fs::remove_file(at("killed/_cells/00000/00000023")));
    symlink("/dev/zero", at("killed/_cells/00000/00000023")).unwrap();
    let kept = finished.iter().filter(|path| path.file_name().unwrap() < "00000020").count();
    let words = format!("{} run now, {kept} finished before; damaged and run again: 4", 24 - kept);
    said(&sweep("--out killed"), &[&words]);
    assert!(contents(&at("killed")) == expected, "after a kill there are other bytes");
    assert_eq!(times(&finished[..kept]), before[..kept], "a finished cell was written again");
    said(&sweep("--out killed"), &["0 run now, 24 finished before"]);
}

#[test]
fn another_grid_or_version_and_a_folder_of_something_else_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    grid(dir.path());
    fs::write(at("grid.toml"), ONE_CELL).unwrap();
    let sweep = || command_in(dir.path(), "sweep grid.toml --out r").output().unwrap();
    said(&sweep(), &["1 run now"]);
    let before = contents(&at("r"));

    fs::write(at("grid.toml"), ONE_CELL.replace("[10]", "[20]")).unwrap();
    refused(
        2,
        &sweep(),
        &["--out r: ", "utilizations_percent was [10], now [20]", "expected another folder"],
    );
    fs::write(at("grid.toml"), ONE_CELL).unwrap();
    fs::write(at("small.pmrc"), "set number 21\nset transactions 50\nset size 1000 20000\nrun\n").unwrap();
    refused(2, &sweep(), &["workloads: the contents of \"small.pmrc\" have changed"]);
    grid(dir.path());
    fs::write(at("grid.toml"), ONE_CELL).unwrap();
    let description = fs::read_to_string(at("r/_sweep.json")).unwrap();
    let version = format!("\"trimwise\": \"{}\"", trimwise_version());
    fs::write(at("r/_sweep.json"), description.replace(&version, "\"trimwise\": \"0.0.1\"")).unwrap();
    refused(2, &sweep(), &["trimwise was \"0.0.1\", now"]);
    fs::write(at("r/_sweep.json"), &description).unwrap();
    assert!(contents(&at("r")) == before, "nothing was overwritten");

    fs::create_dir(at("other")).unwrap();
    fs::write(at("other/precious"), "").unwrap();
    let output = command_in(dir.path(), "sweep grid.toml --out other").output().unwrap();
    refused(2, &output, &["--out other: holds precious and is not the folder of a sweep"]);
    let output = command_in(dir.path(), "sweep nosuch.toml --out r2").output().unwrap();
    refused(2, &output, &["nosuch.toml: there is no such file"]);
    fs::write(at("grid.toml"), ONE_CELL.replace("'off'", "'of'")).unwrap();
    refused(
        2,
        &command_in(dir.path(), "sweep grid.toml --out r2").output().unwrap(),
        &["grid.toml:2: policies: "],
    );
    assert!(!at("r2").exists(), "a wrong grid makes no folder");
}

#[test]
fn regression_what_stands_where_results_go_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    grid(dir.path());
    fs::write(at("grid.toml"), ONE_CELL).unwrap();
    let sweep = |out: &str| command_in(dir.path(), &format!("sweep grid.toml --out {out}")).output().unwrap();
    refused(2, &sweep("grid.toml"), &["--out grid.toml: is a file; expected a directory"]);
    refused(2, &sweep("grid.toml/r"), &["--out grid.toml/r: a part of this path is a file"]);

    refused(2, &sweep("-"), &["--out -: cannot be printed; expected a directory"]);

    // A key of the grid is no option.
    refused(2, &command_in(dir.path(), "sweep --reps 3").output().unwrap(), &["give `reps` in the grid"]);
    refused(2, &sweep("r --policy off"), &["'--policy", "give `policies` in the grid"]);

    said(&sweep("r"), &["1 run now"]);
    let before = contents(&at("r"));
    refused(
        2,
        &sweep("r --json r/_sweep.json --force"),
        &["--json r/_sweep.json is in --out r, which is read"],
    );
    fs::rename(at("r/_cells"), at("kept")).unwrap();
    // The second share has no cell.
    refused(1, &sweep("r --shard 2/2"), &["r/part-00000.parquet: _cells has none of its cells"]);
    fs::rename(at("kept"), at("r/_cells")).unwrap();
    let refuses = |words: &str| refused(2, &sweep("r"), &[words]);
    for foreign in ["part-00001.parquet", "part-0.parquet", "part-mine.parquet"] {
        fs::write(at("r").join(foreign), "").unwrap();
        refuses(&format!(
            "--out r: holds {foreign}, which is not part of this sweep but would be read with its results; move it \
             away or remove it"
        ));
        fs::remove_file(at("r").join(foreign)).unwrap();
    }
    for (place, words) in [
        ("r/part-00000.parquet", "--out r: holds part-00000.parquet, which is not a regular file"),
        (
            "r/_cells/00000/00000000",
            "r/_cells/00000/00000000: is a directory; expected the file of a finished cell: move it away or remove it",
        ),
        (
            "r/_sweep.json",
            "--out r: its _sweep.json is not a regular file; expected the one that sweep wrote",
        ),
    ] {
        let file = fs::read(at(place)).unwrap();
        fs::remove_file(at(place)).unwrap();
        fs::create_dir(at(place)).unwrap();
        refuses(words);
        fs::remove_dir(at(place)).unwrap();
        fs::write(at(place), file).unwrap();
    }
    for place in ["r/_cells/00000", "r/_cells"] {
        fs::rename(at(place), at("kept")).unwrap();
        fs::write(at(place), "").unwrap();
        refuses(&format!("{place}: is a file; expected a folder of finished cells"));
        fs::remove_file(at(place)).unwrap();
        fs::rename(at("kept"), at(place)).unwrap();
    }
    said(&sweep("r"), &["0 run now, 1 finished before"]);
    assert!(contents(&at("r")) == before, "nothing was overwritten");
}

fn trimwise_version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// The files just fit, but the directory that names them does not.
#[test]
fn a_failed_cell_is_recorded_and_the_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    grid(dir.path());
    let full = "set number 15600\nset size 4096\nset bias create 0\nset transactions 20\nrun\n";
    fs::write(dir.path().join("full.pmrc"), full).unwrap();
    let text = "devices = ['small.toml']\npolicies = ['off']\nworkloads = ['full.pmrc', 'small.pmrc']\n\
                utilizations_percent = [88]\n";
    fs::write(dir.path().join("grid.toml"), text).unwrap();
    for (run, found) in [(2, 0), (0, 2)] {
        let output = command_in(dir.path(), "sweep grid.toml --out r --json").output().unwrap();
        refused(1, &output, &["1 of 2 cells failed"]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&json["run_cells"], &json["found_cells"]), (&run.into(), &found.into()), "{json}");
        assert_eq!((&json["failed_cells"], &json["missing_cells"]), (&1.into(), &0.into()), "{json}");
        let failed = &json["failures"][0];
        assert_eq!((&failed["cell"], &failed["workload"]), (&0.into(), &"full.pmrc".into()));
        assert!(failed["error"].as_str().unwrap().contains("is full"), "{failed}");
        assert_eq!(json["parts"][0], "part-00000.parquet");
    }
}

#[test]
fn the_example_of_the_guide_is_a_grid() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    said(
        &command_in(&docs, "sweep sweep.toml --out nowhere --dry-run").output().unwrap(),
        &["sweep.toml: 10,000 cells"],
    );
}
