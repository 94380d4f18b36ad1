//! Page cache, read-ahead and journal, with numbers that can be worked out by hand.

use crate::fs_common::{JOURNAL_UNITS, Trace, dispatched, drive, host, on_fs, trace, write};
use trimwise::block::{Command, Stage};
use trimwise::compare::cell::{CellSpec, run_cell};
use trimwise::files::{Files, OpenMode};
use trimwise::fs::Ext4;
use trimwise::fs::host::{DiscardGeneration, HostConfig};
use trimwise::fs::layout::FormatOptions;
use trimwise::policy::PolicySpec;
use trimwise::profile::Profile;
use trimwise::ssd::{Faults, LinkKind};
use trimwise::units::{Bytes, Lpn, SimDuration, UNIT_BYTES, UnitRange, Utilization};
use trimwise::workload::postmark::PostmarkConfig;

/// Where the journal lies: in the middle group of four.
const JOURNAL: UnitRange = UnitRange::new(Lpn(2 * 32_768), JOURNAL_UNITS);

fn plain() -> HostConfig {
    host(DiscardGeneration::Worker)
}

/// Units written to the log, and elsewhere.
fn written(trace: &Trace) -> (u64, u64) {
    let (mut log, mut elsewhere) = (0, 0);
    for (_, stage, command) in trace.borrow().iter() {
        if let (Stage::Dispatched, Command::Write(range, _)) = (stage, command) {
            if range.start >= JOURNAL.start && range.start < JOURNAL.end() {
                assert!(range.end() <= JOURNAL.end(), "{range:?} leaves the journal");
                log += range.units;
            } else {
                elsewhere += range.units;
            }
        }
    }
    (log, elsewhere)
}

/// Makes `count` directories with an empty file in each: at least as many new metadata blocks.
async fn make_directories(fs: &Ext4, count: u32, name: &str) {
    for i in 0..count {
        fs.mkdir(&format!("{name}{i}")).await.unwrap();
        drop(fs.open(&format!("{name}{i}/file"), OpenMode::Create).await.unwrap());
    }
}

/// A transaction holds at most a quarter of the journal: 256 blocks.
#[test]
fn a_large_transaction_is_committed_before_its_time() {
    for (directories, commits) in [(100, false), (300, true)] {
        on_fs(drive(LinkKind::Sata, 1), plain(), PolicySpec::OFF, move |fs| async move {
            let seen = trace(fs.queue());
            make_directories(&fs, directories, "a").await;
            assert!(fs.now().as_nanos() < 5_000_000_000);
            assert_eq!(written(&seen).0 > 0, commits);
        });
    }
}

/// Each round makes 200 directory blocks and changes some 30 others, a few of them in two transactions: in the
/// fifth the log comes around, and the oldest metadata must go to their places although none of them has expired.
/// Now and then the log's tail is written.
#[test]
fn the_journal_wraps_and_checkpoints() {
    on_fs(drive(LinkKind::Sata, 1), plain(), PolicySpec::OFF, |fs| async move {
        let seen = trace(fs.queue());
        make_directories(&fs, 200, "a").await;
        fs.sync().await.unwrap();
        assert_eq!(written(&seen).1, 0, "no need yet");
        for round in ["b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"] {
            make_directories(&fs, 200, round).await;
            fs.sync().await.unwrap();
        }
        assert!(fs.now().as_nanos() < 30_000_000_000, "before anything expires");
        let (log, elsewhere) = written(&seen);
        assert!(log > 12 * 200 && log < 12 * 260, "{log}");
        // Of the 2,400 directory blocks, those are in their places that the log no longer holds.
        assert!(elsewhere + JOURNAL_UNITS >= 2_400 && elsewhere < log, "{elsewhere} of {log}");
        fs.audit().unwrap();
    });
}

/// 32 MiB of memory: from 20 % on, 6.4 MiB, a writer goes as fast as the drive, 10 MB a second.
#[test]
fn a_writer_is_held_at_the_dirty_limit() {
    let mut drive = drive(LinkKind::Sata, 1);
    drive.link.bytes_per_s = 10_000_000;
    let host = HostConfig { memory: Bytes::mib(32), ..plain() };
    on_fs(drive, host, PolicySpec::OFF, |fs| async move {
        let start = fs.now();
        for _ in 0..96 {
            write(&fs, "a", 16).await; // 6 MiB in all
        }
        assert_eq!(fs.now(), start);
        for _ in 0..416 {
            write(&fs, "a", 16).await; // 32 MiB in all
        }
        // 32 MiB less what may be dirty or under way, at 10 MB a second: 2.68 s, and at most a request more.
        let took = fs.now().since(start);
        assert!(took > SimDuration::from_millis(2_600) && took < SimDuration::from_millis(2_800), "{took:?}");
    });
}

/// Windows of 4, 8, 16 pages and then 32, the last one cut at the end: 0, 4, 12, 28, 60, ... 252.
#[test]
fn a_sequential_reader_reads_ahead() {
    on_fs(drive(LinkKind::Sata, 1), plain(), PolicySpec::OFF, |fs| async move {
        write(&fs, "a", 256).await;
        let fs = fs.unmount().await.mount(plain(), PolicySpec::OFF.governor()).await;
        let seen = trace(fs.queue());
        let mut file = fs.open("a", OpenMode::Read).await.unwrap();
        while fs.read(&mut file, &mut [0; UNIT_BYTES as usize]).await.unwrap() > 0 {}
        let starts: Vec<u64> = seen
            .borrow()
            .iter()
            .filter_map(|(_, stage, command)| match command {
                Command::Read(range) if *stage == Stage::Dispatched => Some(range.start.0),
                _ => None,
            })
            .collect();
        let first = fs.extents("a").unwrap()[0].start.0;
        let expected = [0, 4, 12, 28, 60, 92, 124, 156, 188, 220, 252];
        assert_eq!(starts, expected.map(|page| first + page));
        // All of it is in memory now.
        fs.seek(&mut file, 0).await.unwrap();
        let start = fs.now();
        while fs.read(&mut file, &mut [0; 65_536]).await.unwrap() > 0 {}
        assert_eq!((fs.now(), dispatched(&seen).matches('R').count()), (start, 11));
    });
}

/// What is dirty for 30 s is written without anybody asking; what is in a committed transaction only, 30 s
/// after its commit.
#[test]
fn what_expires_is_written() {
    on_fs(drive(LinkKind::Sata, 1), plain(), PolicySpec::OFF, |fs| async move {
        let seen = trace(fs.queue());
        write(&fs, "a", 100).await;
        crate::fs_common::sleep_ms(&fs, 29_000).await;
        assert_eq!(written(&seen).1, 0);
        crate::fs_common::sleep_ms(&fs, 7_000).await;
        // The file, and the metadata of the first commit (at 5 s) at the round of 35 s or 40 s.
        assert!(written(&seen).1 >= 100);
        let first = fs.extents("a").unwrap()[0].start;
        assert!(fs.queue().with_ssd(|ssd| ssd.is_mapped(first)));
    });
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let spec = |seed| CellSpec {
        device: "sata-small".to_owned(),
        ssd: Profile::embedded("sata-small").unwrap().config,
        faults: Faults::default(),
        thin: None,
        policy: PolicySpec::COMMIT.into(),
        workload: PostmarkConfig {
            number: 2_000,
            transactions: 4_000,
            size_high: 60_000,
            seed,
            ..PostmarkConfig::default()
        }
        .into(),
        days: None,
        host: HostConfig { memory: Bytes::mib(64), ..HostConfig::of_the_2010s() },
        format: FormatOptions::default(),
        utilization: Some(Utilization::of(60)),
        long_in_use: false,
        rep: 1,
        seed: u64::from(seed),
    };
    let run = |seed| format!("{:?}", run_cell(&spec(seed), Box::new(|_| ())).unwrap());
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
