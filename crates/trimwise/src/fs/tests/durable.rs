//! The block requests of a durable overwrite: 16 KiB of a file whose blocks are all written, one minute after that.
//!
//! The figures were measured on ext4 of Linux 6.12.117 (`trimwise kernel run 6.12:ext4 --device sata-60gb-2011 --trace`
//! of a program that does the same; writes with the flags and writes followed by the calls gave the same). `ext4_sync_file`
//! commits the transaction of the inode's latest change for `fsync` and `O_SYNC`, but only that of its latest change of
//! length or blocks (`i_datasync_tid`) for `fdatasync` and `O_DSYNC`. An overwrite changes only the file times: one
//! flush for the latter, a commit with two flushes for the former, unless the clock has not ticked since the last.

use std::cell::RefCell;
use std::rc::Rc;

use super::with_queue;
use crate::block::{Command, Stage};
use crate::files::{Files, OpenMode};
use crate::fs::host::HostConfig;
use crate::fs::layout::FormatOptions;
use crate::fs::{Ext4, Volume};
use crate::policy::PolicySpec;
use crate::profile::Profile;
use crate::units::{Bytes, SimDuration};

const ACCESS: u64 = 16 << 10;
/// One write of the data, then the device's cache is emptied.
const IN_PLACE: &str = "write 4, flush";
/// One write of the data, then a commit: descriptor and inode block, flush, commit block, flush.
const WITH_COMMIT: &str = "write 4, write 2, flush, write 1, flush";

/// A way to make a write durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durably {
    /// `O_SYNC`, or `fsync` after the write.
    Sync,
    /// `O_DSYNC`, or `fdatasync` after the write.
    DataSync,
    /// `O_DSYNC` combined with `O_DIRECT`.
    DirectDataSync,
}

/// Overwrites `writes` places, `gap` apart. Returns the requests of each until it is durable, and the microseconds.
fn requests(durably: Durably, gap: SimDuration, writes: u64) -> Vec<(String, u64)> {
    let all = Rc::new(RefCell::new(Vec::new()));
    let result = Rc::clone(&all);
    let host = HostConfig::in_guest("6.12".parse().unwrap(), Bytes::gib(1));
    let drive = Profile::embedded("sata-60gb-2011").unwrap().config.shrunk(Bytes::gib(1).0).unwrap();
    with_queue(&drive, host.queue, move |queue| async move {
        let format = FormatOptions { journal: Some(Bytes::mib(8)), ..FormatOptions::default() };
        let fs: Ext4 =
            Volume::format(&queue, format).await.unwrap().mount(host, PolicySpec::OFF.governor()).await;
        let (sim, buffer) = (queue.sim().clone(), vec![0; ACCESS as usize]);
        let mut file = fs.open("database", OpenMode::Create).await.unwrap();
        for _ in 0..256 {
            fs.write(&mut file, &buffer).await.unwrap();
        }
        fs.close(file).await.unwrap();
        fs.sync().await.unwrap();
        sim.sleep(SimDuration::from_secs(60)).await;
        let mode = if durably == Durably::DirectDataSync { OpenMode::Direct } else { OpenMode::CreateKeep };
        let mut file = fs.open("database", mode).await.unwrap();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let log = Rc::clone(&seen);
        queue.trace(Some(Box::new(move |_, stage, command| match (stage, command) {
            (Stage::Completed, _) => {}
            (_, Command::Write(range, _)) => log.borrow_mut().push(format!("write {}", range.units)),
            (_, Command::Flush) => log.borrow_mut().push("flush".to_owned()),
            (_, other) => log.borrow_mut().push(format!("{other:?}")),
        })));
        for i in 0..writes {
            sim.sleep(gap).await;
            seen.borrow_mut().clear();
            let begin = sim.now();
            fs.pwrite(&mut file, i * 37 % 256 * ACCESS, &buffer).await.unwrap();
            match durably {
                Durably::Sync => fs.fsync(&mut file).await.unwrap(),
                Durably::DataSync | Durably::DirectDataSync => fs.fdatasync(&mut file).await.unwrap(),
            }
            let took_us = sim.now().since(begin).as_nanos() / 1000;
            result.borrow_mut().push((seen.borrow().join(", "), took_us));
        }
        queue.trace(None);
        fs.close(file).await.unwrap();
    });
    all.take()
}

const APART: SimDuration = SimDuration::from_secs(10);
/// 1 ms plus the slack of a kernel timer (50 us).
const CLOSE: SimDuration = SimDuration::from_micros(1_051);

/// Checks requests and time of one overwrite against the kernel's. The time can differ by the cost of finding blocks.
fn check((requests, took_us): &(String, u64), kernel: &str, kernel_us: u64) {
    assert_eq!(requests, kernel);
    assert!(took_us.abs_diff(kernel_us) <= kernel_us / 100, "{took_us} us, on the kernel {kernel_us}");
}

#[test]
fn an_overwrite_with_o_dsync_flushes_once_as_on_6_12() {
    for durably in [Durably::DataSync, Durably::DirectDataSync] {
        for gap in [APART, CLOSE] {
            requests(durably, gap, 8).iter().for_each(|one| check(one, IN_PLACE, 2_182));
        }
    }
}

#[test]
fn an_overwrite_with_o_sync_commits_the_file_times_as_on_6_12() {
    requests(Durably::Sync, APART, 8).iter().for_each(|one| check(one, WITH_COMMIT, 4_381));
}

/// The clock for file times ticks every 10 ms there. In each tick the first overwrite commits, and the others find the
/// time recorded: on the kernel 41 of 100 in 408 ms. The phase of the ticks may add or take one.
#[test]
fn of_overwrites_within_a_tick_one_commits_as_on_6_12() {
    let all = requests(Durably::Sync, CLOSE, 100);
    let (commits, others): (Vec<_>, Vec<_>) = all.iter().partition(|(requests, _)| requests == WITH_COMMIT);
    others.iter().for_each(|one| check(one, IN_PLACE, 2_182));
    assert!((40..=42).contains(&commits.len()), "{} of 100 commit", commits.len());
}
