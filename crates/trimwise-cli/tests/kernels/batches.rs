//! System calls of a guest's workload go to its kernel in batches (preload/batch.c), which must give what the same calls
//! give one by one.

use trimwise::block::Port;
use trimwise::compare::result::Cell;
use trimwise::ssd::{Ssd, SsdConfig};
use trimwise::units::Bytes;
use trimwise_linux::sparse_store::SparseStore;
use trimwise_uml::disk::Disk;
use trimwise_uml::job::{FileSystem, Job, JobError, Outcome, Step};

use crate::guest_faults::guest;
use crate::reproduction::image;

/// Runs steps in a guest with a drive of 512 MiB.
fn run(version: &str, work: Step, one_by_one: bool) -> Option<Result<Cell, JobError>> {
    let kernel = image(version)?;
    let guest = guest(&kernel);
    let config = SsdConfig { capacity_bytes: Bytes::mib(512).0, ..SsdConfig::default() };
    let port = Port::new(Ssd::new(&config, 1).unwrap());
    let store = SparseStore::in_memory(port.size()).unwrap();
    let file_system = FileSystem::Ext4;
    let mut steps = vec![
        Step::Mkfs { file_system, options: vec![] },
        Step::Mount { file_system, options: "discard".to_owned() },
    ];
    steps.extend(one_by_one.then_some(Step::CallOneByOne));
    steps.push(work);
    let report = guest.run(&Job { steps }, &mut [Disk::new(port, store, "test", false)]);
    Some(report.map(|report| match report.steps.into_iter().last().map(|step| step.outcome) {
        Some(Outcome::Cell(cell, _)) => *cell,
        other => panic!("{other:?}"),
    }))
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
}
