//! System calls of a guest's workload go to its kernel in batches (preload/batch.c), which must give what the same calls
//! give one by one.

use std::collections::BTreeMap;

use trimwise::block::Port;
use trimwise::compare::result::Cell;
use trimwise::ssd::{Ssd, SsdConfig};
use trimwise::units::Bytes;
use trimwise_linux::sparse_store::SparseStore;
use trimwise_uml::disk::Disk;
use trimwise_uml::images::KernelImage;
use trimwise_uml::job::{FileSystem, Job, JobError, Outcome, Said, Step};

use crate::guest_faults::guest;
use crate::reproduction::image;

fn disk(capacity: Bytes) -> Disk {
    let config = SsdConfig::default().shrunk(capacity.0).unwrap();
    let port = Port::new(Ssd::new(&config, 1).unwrap());
    let store = SparseStore::in_memory(port.size()).unwrap();
    Disk::new(port, store, "test", false)
}

fn mount() -> Step {
    Step::Mount { file_system: FileSystem::Ext4, options: "discard".to_owned() }
}

/// Does a step on a new file system.
fn run_on(disk: &mut Disk, kernel: &KernelImage, work: Step, one_by_one: bool) -> Result<Outcome, JobError> {
    let options = ["-b", "4096"].map(str::to_owned).into();
    let mut steps = vec![Step::Mkfs { file_system: FileSystem::Ext4, options }, mount()];
    steps.extend(one_by_one.then_some(Step::CallOneByOne));
    steps.push(work);
    let report = guest(kernel).run(&Job { steps }, std::slice::from_mut(disk))?;
    Ok(report.steps.into_iter().next_back().unwrap().outcome)
}

/// Runs a workload in a guest with a drive of 512 MiB.
fn run(version: &str, work: Step, one_by_one: bool) -> Option<Result<Cell, JobError>> {
    let outcome = run_on(&mut disk(Bytes::mib(512)), &image(version)?, work, one_by_one);
    Some(outcome.map(|outcome| match outcome {
        Outcome::Cell(cell, _) => *cell,
        other => panic!("{other:?}"),
    }))
}

/// Returns the output of a program in the root of the file system.
fn output(outcome: Outcome) -> String {
    match outcome {
        Outcome::Program(end) if end.code == Some(0) => end.output.text().into_owned(),
        other => panic!("{other:?}"),
    }
}

fn shell(line: &str) -> Step {
    Step::Program { command: ["sh", "-c", line].map(str::to_owned).into(), input: Said::default() }
}

/// Runs a workload that fills a file system of 128 MiB. Returns its error, and what another guest then finds.
fn fail(kernel: &KernelImage, work: Step, one_by_one: bool) -> (String, String) {
    let mut disk = disk(Bytes::mib(128));
    let what = match run_on(&mut disk, kernel, work, one_by_one) {
        Err(JobError::Step { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    // A new disk, since the old one has marks.
    let (port, store, ..) = disk.into_parts();
    let mut disk = Disk::new(port, store, "test", false);
    let files = shell("find . -printf '%p %s %b\\n' | sort && stat -f -c '%f %d' .");
    let found = guest(kernel).run(&Job { steps: vec![mount(), files] }, std::slice::from_mut(&mut disk));
    (what, output(found.unwrap().steps.into_iter().next_back().unwrap().outcome))
}

/// Checks that two runs have the same latencies of each operation, apart from a reading of the clock or two.
fn assert_same_latencies(ours: &Cell, theirs: &Cell) {
    let of = |cell: &Cell| -> BTreeMap<String, [u64; 4]> {
        let all = cell.latency.iter();
        all.map(|(name, l)| (name.to_string(), [l.p50_ns, l.p99_ns, l.p999_ns, l.max_ns])).collect()
    };
    let (ours, theirs) = (of(ours), of(theirs));
    assert!(ours.len() > 1 && ours.keys().eq(theirs.keys()), "{ours:?}\n{theirs:?}");
    for (name, ours) in &ours {
        for (a, b) in ours.iter().zip(theirs[name]) {
            // Large ones have three significant digits.
            assert!(a.abs_diff(b) <= 512 + b / 200, "{name}: {ours:?}, and {:?} one by one", theirs[name]);
        }
    }
}

/// The whole numbers among a workload's figures: its calls and bytes, without times.
fn counts(cell: &Cell) -> Vec<(String, u64)> {
    let figures = serde_json::to_value(&cell.workload).unwrap();
    let kind = figures.as_object().unwrap().values().find_map(|value| value.as_object()).unwrap();
    let whole = kind.iter().filter(|(name, _)| !name.ends_with("_ns"));
    let counts: Vec<_> = whole.filter_map(|(name, value)| Some((name.clone(), value.as_u64()?))).collect();
    assert!(counts.len() > 3, "{figures}");
    counts
}

#[test]
fn postmark_in_batches_is_postmark() {
    for buffering in [true, false] {
        let config = format!(
            "set number 300\nset transactions 3000\nset size 500 20000\nset buffering {buffering}\nset subdirectories 3\nrun\n"
        );
        let work = || Step::Postmark { config: config.clone(), rep: 0 };
        let Some(in_batches) = run("6.1", work(), false) else { return };
        let one_by_one = run("6.1", work(), true).unwrap().unwrap();
        let in_batches = in_batches.unwrap();
        // Each of a batch's readings of the clock takes as long as any other; only the first is one more.
        let [ours, theirs] = [&in_batches, &one_by_one].map(|cell| cell.duration_ns);
        assert!(ours.abs_diff(theirs) <= 2 * 256, "{ours} and {theirs} ns");
        assert_eq!(counts(&in_batches), counts(&one_by_one));
        assert_same_latencies(&in_batches, &one_by_one);
    }
}

#[test]
fn a_call_that_fails_in_a_batch_is_the_one_that_fails_without_and_no_later_one_is_made() {
    let Some(kernel) = image("6.1") else { return };
    let free = run_on(&mut disk(Bytes::mib(128)), &kernel, shell("stat -f -c %a ."), false).unwrap();
    let free: u64 = output(free).trim().parse().unwrap();
    // Each file takes a block and all of them fit; with a block of each directory they do not.
    let config = format!(
        "set number {}\nset transactions 10\nset size 1 4096\nset subdirectories 2000\nrun\n",
        free - 1000
    );
    let [in_batches, one_by_one] = [false, true]
        .map(|one_by_one| fail(&kernel, Step::Postmark { config: config.clone(), rep: 0 }, one_by_one));
    // The time at which a commit gives blocks back may decide over one file: each batch reads the clock once more.
    let file = |said: &str| said.split_once(':')?.0.split_once('/')?.1.parse::<u64>().ok();
    let [ours, theirs] =
        [&in_batches, &one_by_one].map(|(said, _)| file(said).unwrap_or_else(|| panic!("{said}")));
    assert!(ours.abs_diff(theirs) <= 1, "{ours} and {theirs}");
    for (said, _) in [&in_batches, &one_by_one] {
        assert!(said.contains("no space left on the file system"), "{said}");
        // It removes the files of the calls before, and knows of no others.
        assert!(said.contains("everything that the run created was removed"), "{said}");
    }
    assert_eq!(in_batches.1, one_by_one.1);
    assert_eq!(in_batches.1.lines().count(), 3, "{}", in_batches.1);
}

#[test]
fn a_measured_call_that_fails_in_a_batch_has_written_what_it_writes_without() {
    let Some(kernel) = image("6.1") else { return };
    for direct in [0, 1] {
        // Of 24 KiB, so that the last write finds room for a part.
        let text = format!("[a]\nrw=write\nbs=24k\nsize=240m\ndirect={direct}\n");
        let argument = "job:a.fio".to_owned();
        let work = Step::Workload { argument, text, scale: 1.0, rep: 0, seed: 1 };
        let [in_batches, one_by_one] =
            [false, true].map(|one_by_one| fail(&kernel, work.clone(), one_by_one));
        assert!(in_batches.0.contains("no space left on the file system"), "{}", in_batches.0);
        assert_eq!(in_batches, one_by_one);
    }
}

#[test]
fn measured_calls_in_batches_of_several_tasks_are_the_same() {
    let text =
        "[global]\nsize=16m\nbs=4k\n[a]\nrw=randwrite\ndirect=1\n[b]\nrw=randrw\nfsync=16\n".to_owned();
    let work = || Step::Workload {
        argument: "job:a.fio".to_owned(),
        text: text.clone(),
        scale: 1.0,
        rep: 0,
        seed: 1,
    };
    let Some(in_batches) = run("6.1", work(), false) else { return };
    let (in_batches, one_by_one) = (in_batches.unwrap(), run("6.1", work(), true).unwrap().unwrap());
    assert_eq!(counts(&in_batches), counts(&one_by_one));
    let share = in_batches.duration_ns as f64 / one_by_one.duration_ns as f64;
    assert!((0.99..1.01).contains(&share), "{share}");
    assert_same_latencies(&in_batches, &one_by_one);
}
