//! Each application on the modelled file system.

use std::rc::Rc;

use super::*;
use crate::block::BlockQueue;
use crate::compare::cell::run_tasks;
use crate::engine::Sim;
use crate::fs::Volume;
use crate::fs::host::HostConfig;
use crate::fs::layout::FormatOptions;
use crate::policy::{Ledger, LinuxVersion, PolicySpec};
use crate::ssd::{Ssd, SsdConfig};
use crate::units::SimTime;
use crate::workload::latency::{OpLatencies, Operation};
use crate::workload::limited::Limited;
use crate::workload::program::Program;
use crate::workload::stage::{Done, Session, joined, sum};

/// Each application, small, with its frees: minimum and maximum in percent of its writes.
const SMALL: &[(&str, u64, u64)] = &[
    ("lsm:operations=20k,keys=4k,memtable=512KiB,table=512KiB,base=1MiB", 60, 100),
    ("segments:total=64MiB,segment=1MiB,keep=2MiB,partitions=4,delay=10", 60, 100),
    (
        "oltp:transactions=600,data=8MiB,segment=512KiB,checkpoint=1MiB,keep=512KiB,sort=300,sorted=1MiB,rewrite=2",
        10,
        100,
    ),
    ("maildir:messages=100,deliveries=600,users=3", 60, 100),
    ("unpack:packages=4,files=20,upgrades=10,layers=6,members=60,kept=2", 25, 100),
    ("desktop:steps=600,cache=8MiB,update=1MiB", 5, 100),
    ("logs:total=32MiB,logs=3,rotate=1MiB,keep=3", 0, 120),
    ("vm:images=2,image=8MiB,writes=2k,life=400", 5, 100),
    ("rmtree:directories=4,files=20", 0, 0),
];

fn parsed(text: &str) -> Application {
    text.parse().unwrap_or_else(|e| panic!("{e}"))
}

/// Results of a run: its end, its counts and latencies, the frees, and free space before and after.
type Ran = (SimTime, Done, OpLatencies, Ledger, [Bytes; 2]);

fn run(text: &str, seed: u64) -> Ran {
    let name = text.to_owned();
    let program = Program::parse(text, "").unwrap();
    let mut ssd = SsdConfig {
        capacity_bytes: Bytes::mib(256).0,
        over_provisioning_percent: Some(30.into()),
        ..SsdConfig::default()
    };
    ssd.geometry.pages_per_block = 32;
    let sim = Sim::new();
    let host = HostConfig::of(LinuxVersion::TODAY, Bytes::mib(256));
    let queue = BlockQueue::new(&sim, Ssd::new(&ssd, 1).unwrap(), host.queue);
    let ran = sim.run(async move {
        let volume = Volume::format(&queue, FormatOptions::TODAY).await.unwrap();
        let fs = volume.mount(host, PolicySpec::COMMIT.governor()).await;
        let free = fs.statfs().await.unwrap().free;
        let session = Rc::new(Session::new(program.clone(), seed));
        let limited = Limited::start(&fs, None);
        session.prepare(&limited).await.unwrap();
        let (done, latencies) = sum(joined(run_tasks(&limited, &session).await).unwrap());
        assert_eq!(done.operations, program.operations(seed), "{name}");
        let end = fs.now();
        fs.sync().await.unwrap();
        let (ledger, used) = (fs.ledger(), free.0 - fs.statfs().await.unwrap().free.0);
        assert!(used <= program.needed().0 + Bytes::mib(4).0, "{name} left {}", Bytes(used));
        session.remove(&fs).await.unwrap();
        fs.sync().await.unwrap();
        let left = fs.statfs().await.unwrap().free;
        fs.audit().unwrap();
        (end, done, latencies, ledger, [free, left])
    });
    ran.unwrap()
}

#[test]
fn each_runs_leaves_nothing_and_frees_its_share() {
    for spec in ALL {
        let runs = SMALL.iter().filter(|(text, ..)| text.split(':').next() == Some(spec.name)).count();
        assert_eq!(runs, 1, "small runs of {} in SMALL; each application needs one there", spec.name);
    }
    for &(text, from, to) in SMALL {
        let (_, done, latencies, ledger, [free, left]) = run(text, 1);
        // A directory's block stays with its parent.
        assert!(free.0 - left.0 <= 4 * 4096, "{text} leaves {}", Bytes(free.0 - left.0));
        assert!(done.operations > 0 && done.files_removed > 0 && done.fsyncs > 0, "{text}: {done:?}");
        for operation in [Operation::Fsync, Operation::Write] {
            let is_removal = text.starts_with("rmtree") && operation == Operation::Write;
            assert!(latencies.summary(operation).is_some() || is_removal, "{text}");
        }
        // What is removed may have been written before.
        let percent = (ledger.freed * 4096 * 100).checked_div(done.written_bytes).unwrap_or(0);
        assert!((from..=to).contains(&percent), "{text} frees {percent} % of {}", Bytes(done.written_bytes));
    }
}

#[test]
fn a_tree_is_removed_slower_if_its_metadata_must_be_read() {
    let removal = |text: &str| {
        let (_, done, latencies, ..) = run(text, 1);
        assert_eq!((done.files_removed, done.operations, done.written_bytes), (200, 4, 0), "{text}");
        latencies.summary(Operation::Unlink).unwrap()
    };
    let cold = removal("rmtree:directories=4,files=50");
    let cached = removal("rmtree:directories=4,files=50,cached=1");
    // A read of the flash takes 60 us. Few unlinks need one: names, inodes and bitmaps lie together.
    assert!(cold.max_ns > cached.max_ns + 60_000, "{cold:?} {cached:?}");
    assert_eq!(cold.p50_ns, cached.p50_ns);
}

#[test]
fn each_is_in_the_guide() {
    let guide = include_str!("../../../../../docs/guide.md");
    for name in ALL.iter().map(|spec| spec.name) {
        assert!(
            guide.contains(&format!("`{name}`")),
            "docs/guide.md does not mention the application `{name}`"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_another() {
    for (text, ..) in SMALL {
        let text = format!("{text},tasks=2");
        let figures = |seed| {
            let (end, done, _, ledger, _) = run(&text, seed);
            (end, done, ledger)
        };
        assert_eq!(figures(1), figures(1), "{text}");
        // Batches of segments are all alike.
        assert!(text.starts_with("segments") || figures(1) != figures(2), "{text}");
    }
}

#[test]
fn applications_run_side_by_side_each_in_its_own_directories() {
    // With `lsm` and `oltp` twice: tasks that wait for each other share what is of their own part alone.
    let parts = [0, 2, 5, 0, 2].map(|number: usize| SMALL[number].0);
    let text = format!("{},tasks=2", parts.join("+"));
    let program = Program::parse(&text, "").unwrap();
    assert_eq!(program.to_string(), text);
    let alone = parts.map(|text| Program::parse(text, "").unwrap());
    let tasks = alone.iter().map(Program::tasks).sum::<u32>() + alone[4].tasks();
    assert_eq!(program.tasks(), tasks);
    let (_, together, _, _, [free, left]) = run(&text, 1);
    assert!(free.0 - left.0 <= 8 * 4096, "{} left", Bytes(free.0 - left.0));
    let apart = parts.map(|text| run(text, 1).1);
    let operations = apart.iter().map(|done| done.operations).sum::<u64>() + apart[4].operations;
    assert_eq!(together.operations, operations);
    assert!(together.written_bytes > apart.iter().map(|done| done.written_bytes).sum(), "{together:?}");
}

#[test]
fn what_is_printed_is_what_was_parsed() {
    for (text, ..) in SMALL {
        let text = format!("{text},tasks=2,scale=3");
        let application = parsed(&text);
        assert_eq!(parsed(&application.to_string()), application, "{text}");
    }
    for spec in ALL {
        assert_eq!(parsed(spec.name).to_string(), spec.name);
        for parameter in spec.all() {
            for value in [parameter.min, parameter.default, parameter.max] {
                let text = format!("{}:{}={}", spec.name, parameter.name, parameter.shown(value));
                assert_eq!(parsed(&parsed(&text).to_string()), parsed(&text));
            }
        }
    }
    assert_eq!(parsed("lsm:value=2048,operations=5000").to_string(), "lsm:operations=5k,value=2KiB");
}

#[test]
fn errors_name_the_column_and_what_is_accepted() {
    for (text, column, expected) in [
        ("lsn", 1, "lsm, segments, oltp"),
        ("lsm:", 5, "operations=, reads="),
        ("lsm:writes=5", 5, "operations=, reads="),
        ("lsm:value=", 11, "a size from 1 to 1MiB"),
        ("lsm:value=2MiB", 11, "a size from 1 to 1MiB"),
        ("lsm:reads=101", 11, "a percentage from 0 to 100"),
        ("lsm:reads=5,reads=6", 13, "it once"),
        ("lsm:reads=5,,", 13, "operations=, reads="),
        ("lsm:keys=0", 10, "a number from 1k to 1000M"),
        ("lsm:scale=20000", 11, "a number from 1 to 10k"),
    ] {
        let error = text.parse::<Application>().unwrap_err();
        let mistake = &error.mistakes[0];
        assert_eq!(mistake.column, column, "{error}");
        assert!(mistake.expected.to_string().contains(expected), "{error}");
    }
    for (text, meant) in
        [("oltp:dta=1G", "`data`"), ("lsm:operations=1,raeds=5", "`reads`"), ("olpt", "`oltp`")]
    {
        let said = text.parse::<Application>().unwrap_err().to_string();
        assert!(said.contains(&format!("; did you mean {meant}? Expected ")), "{said}");
    }
    let said = "oltp:colour=1".parse::<Application>().unwrap_err().to_string();
    assert!(!said.contains("did you mean"), "{said}");
    let all = "lsm:writes=5,reads=101,keys=k".parse::<Application>().unwrap_err();
    let columns = |error: &super::parameters::WorkloadError| {
        error.mistakes.iter().map(|mistake| mistake.column).collect::<Vec<_>>()
    };
    assert_eq!(columns(&all), [5, 20, 29], "{all}");
    let side_by_side = Application::parse_all("oltp+lsm:raeds=5+desktop+olpt+").unwrap_err();
    assert_eq!(columns(&side_by_side), [10, 26, 31], "{side_by_side}");
}

#[test]
fn scale_multiplies_what_is_marked() {
    let three = vm::Parameters::read(&|p| if p.scales { 3 * p.default } else { p.default });
    assert_eq!(parsed("vm:scale=3").own, Named::Vm(three.clone()));
    assert_eq!((three.image, three.writes, three.images), (Bytes::mib(3 * 128), 180_000, 6));
    assert_eq!(parsed("lsm:tasks=4").tasks(), 8);
}

/// The defaults fit on the default device at its default utilization: a fifth of 7.4 GiB.
#[test]
fn defaults_fit_on_the_default_device() {
    for spec in ALL {
        let needed = parsed(spec.name).needed();
        assert!(needed <= Bytes::mib(1450), "{} needs {needed}", spec.name);
    }
}
