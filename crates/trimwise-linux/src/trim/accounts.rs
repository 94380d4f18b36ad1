//! Decides if the drive took what a trim sent: one rule for `trimwise trim`, `verify` and the daemon.
//!
//! Three accounts tell of it, and none is complete. FITRIM's return value leaves out failed discards on ext4 and btrfs,
//! and says nothing on XFS, which does not look at the result (`xfs_discard_endio`). The device's counter has every
//! request that ended, failed ones too, and those that others sent. Failed requests are reported by a tracepoint
//! (`block_rq_error`), where tracefs can be used and the disks have a request queue. Discards refused as unsupported
//! show up only there: the kernel hides EOPNOTSUPP (`blkdev_issue_discard`), and then lowers the device's limit to
//! zero.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use trimwise::units::Bytes;

use crate::block_device::{BlockDevice, SysBlock};
use crate::doctor;
use crate::host_root::HostRoot;
use crate::layout::Kind;
use crate::tracefs::format::{EventFormat, Tracepoint};
use crate::tracefs::{Instance, InstanceError, TRACING, remove_left_behind};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounts {
    pub answered: Bytes,
    /// Discards that the kernel counted on the devices meanwhile, from any source; `None` if it does not count them.
    pub counted: Option<Bytes>,
    /// Failed discards on the disks below meanwhile; `None` if they are not reported.
    pub failed: Option<u64>,
    /// True if the counter may include more than this trim sent: the file system sends discards of its own (`discard`),
    /// or a mapping counts one more than once.
    pub online: bool,
    /// True if a layer below is known not to pass TRIM on to at least one of the drives. FITRIM succeeds above it, and
    /// devices count what they are sent.
    pub stops: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The drive took this much.
    Taken(Bytes),
    /// No failure is known, but it might not show, or the discards do not reach every drive.
    Unverified,
    /// Discards failed. The drive took at most this much of them; `None` if that is unknown.
    Failed(Option<Bytes>),
}

impl Accounts {
    pub fn verdict(self, kind: Kind) -> Verdict {
        let reports = matches!(kind, Kind::Ext4 | Kind::Btrfs);
        let answered =
            reports.then(|| self.counted.map_or(self.answered, |counted| counted.min(self.answered)));
        match (self.failed, self.counted) {
            (Some(1..), _) => Verdict::Failed(answered),
            _ if self.stops => Verdict::Unverified,
            // The kernel counted less than FITRIM claims to have sent.
            (_, Some(counted)) if reports && counted < self.answered => Verdict::Unverified,
            (Some(0), counted) => match (answered, counted) {
                (Some(bytes), _) | (None, Some(bytes)) => Verdict::Taken(bytes),
                (None, None) => Verdict::Unverified,
            },
            // Some discards failed, or another program sent some at the same time.
            (None, Some(counted)) if kind == Kind::Ext4 && !self.online && counted > self.answered => {
                Verdict::Failed(answered)
            }
            (None, Some(_)) if kind == Kind::Btrfs || (kind == Kind::Ext4 && !self.online) => {
                Verdict::Taken(self.answered)
            }
            (None, Some(Bytes(0))) if !self.online => Verdict::Taken(Bytes(0)),
            (None, _) => Verdict::Unverified,
        }
    }

    pub fn failed_words(self) -> String {
        match self.failed {
            Some(_) => "discards failed or were refused; the kernel's log says why".to_owned(),
            None => format!(
                "discards failed, or something else trims it too, such as fstrim: the device was sent {} bytes, and \
                 FITRIM counts {} as done; if they failed, the kernel's log says why",
                self.counted.unwrap_or_default().0,
                self.answered.0
            ),
        }
    }
}

/// Returns true if the kernel reports every failed request of these devices: only where each disk below has a request
/// queue. Drivers without one (some NVMe multipath, zram, pmem) report none.
pub fn reports_failures<'a>(devices: impl IntoIterator<Item = &'a BlockDevice>) -> bool {
    let disks = doctor::disks(&HostRoot::default(), devices.into_iter().map(|device| &device.sysfs));
    !disks.is_empty() && disks.iter().all(|disk| Path::new("/sys/class/block").join(disk).join("mq").is_dir())
}

/// Counts failed discards on some disks, through a separate trace instance.
pub(super) struct Failures {
    disks: BTreeSet<(u32, u32)>,
    format: EventFormat,
    // Declared before the instance, which cannot be removed while they are open.
    pipes: Vec<File>,
    instance: Instance,
}

const BUFFER_KIB: usize = 64;
const NAME: &str = "trimwise-trim-";

impl Failures {
    pub fn watch(devices: &[BlockDevice]) -> Option<Self> {
        if !reports_failures(devices) {
            return None;
        }
        let numbers = |disk: &String| SysBlock::named(&HostRoot::default(), disk).ok()?.numbers().ok();
        let disks = doctor::disks(&HostRoot::default(), devices.iter().map(|device| &device.sysfs));
        let disks = disks.iter().map(numbers).collect::<Option<BTreeSet<_>>>()?;
        let tracing = Path::new(TRACING);
        remove_left_behind(tracing, NAME);
        let instance = Instance::create(tracing, &format!("{NAME}{}", std::process::id())).ok()?;
        let format = instance.find(Tracepoint::Error)?;
        let begin = || -> Result<Vec<File>, InstanceError> {
            instance.set_buffers(0, BUFFER_KIB, BUFFER_KIB)?;
            instance.report_failed_discards()?;
            let pipes = instance.pipes()?;
            instance.write("tracing_on", "1")?;
            Ok(pipes)
        };
        let pipes = begin().ok()?;
        Some(Self { disks, format, pipes, instance })
    }

    /// Returns the number of discards that failed since the last call; `None` if some reports were lost.
    pub fn count(&mut self) -> Option<u64> {
        let page = self.instance.page();
        let mut buffer = vec![0; page.size];
        let (mut failed, mut lost) = (0, 0);
        for pipe in &mut self.pipes {
            while let Ok(n @ 1..) = pipe.read(&mut buffer) {
                lost += page.records(&buffer[..n], |_, record| {
                    let read = self.format.read(record);
                    failed += u64::from(read.is_some_and(|read| self.disks.contains(&read.device)));
                });
            }
        }
        // Once one is known to have failed, it does not matter how many more did.
        (lost == 0 || failed > 0).then_some(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: Bytes = Bytes::mib(80);

    fn verdict(kind: Kind, answered: Bytes, counted: Option<Bytes>, failed: Option<u64>) -> Verdict {
        Accounts { answered, counted, failed, online: false, stops: false }.verdict(kind)
    }

    #[test]
    fn each_verdict_holds_up_to_its_limit() {
        use Verdict::{Failed, Taken, Unverified};
        const LESS: Bytes = Bytes(SENT.0 - 1);
        const MORE: Bytes = Bytes(SENT.0 + 1);
        const NONE: Bytes = Bytes(0);
        let (less, sent, more, none) = (Some(LESS), Some(SENT), Some(MORE), Some(NONE));
        // What the device counted, failed requests, whether other discards may be among those counted; then the verdict on
        // ext4, btrfs, XFS and any other. FITRIM always says that it sent SENT.
        for (counted, failed, online, expected) in [
            // Failures are reported, and none happened.
            (sent, Some(0), false, [Taken(SENT), Taken(SENT), Taken(SENT), Taken(SENT)]),
            (more, Some(0), false, [Taken(SENT), Taken(SENT), Taken(MORE), Taken(MORE)]),
            (more, Some(0), true, [Taken(SENT), Taken(SENT), Taken(MORE), Taken(MORE)]),
            (less, Some(0), false, [Unverified, Unverified, Taken(LESS), Taken(LESS)]),
            (None, Some(0), false, [Taken(SENT), Taken(SENT), Unverified, Unverified]),
            // One failed.
            (sent, Some(1), false, [Failed(sent), Failed(sent), Failed(None), Failed(None)]),
            (less, Some(1), false, [Failed(less), Failed(less), Failed(None), Failed(None)]),
            (more, Some(1), true, [Failed(sent), Failed(sent), Failed(None), Failed(None)]),
            (None, Some(1), false, [Failed(sent), Failed(sent), Failed(None), Failed(None)]),
            // Failures are not reported.
            (sent, None, false, [Taken(SENT), Taken(SENT), Unverified, Unverified]),
            (more, None, false, [Failed(sent), Taken(SENT), Unverified, Unverified]),
            (more, None, true, [Unverified, Taken(SENT), Unverified, Unverified]),
            (sent, None, true, [Unverified, Taken(SENT), Unverified, Unverified]),
            (less, None, false, [Unverified; 4]),
            (none, None, false, [Unverified, Unverified, Taken(NONE), Taken(NONE)]),
            (none, None, true, [Unverified; 4]),
            (None, None, false, [Unverified; 4]),
        ] {
            let kinds = [Kind::Ext4, Kind::Btrfs, Kind::Xfs, Kind::Other];
            for (kind, expected) in kinds.into_iter().zip(expected) {
                let of = |stops| Accounts { answered: SENT, counted, failed, online, stops }.verdict(kind);
                let case = format!("{kind:?}, counted {counted:?}, failed {failed:?}, online {online}");
                assert_eq!(of(false), expected, "{case}");
                // A layer that passes none on hides what the drive took, and not that some failed.
                let expected = if matches!(failed, Some(1..)) { expected } else { Unverified };
                assert_eq!(of(true), expected, "{case}, and a layer stops TRIM");
            }
        }
    }

    #[test]
    fn a_failure_is_described_by_what_is_known_of_it() {
        let words = |failed| {
            Accounts { answered: Bytes(7), counted: Some(Bytes(9)), failed, online: false, stops: false }
                .failed_words()
        };
        assert!(words(Some(1)).starts_with("discards failed or were refused;"), "{}", words(Some(1)));
        let unknown = words(None);
        assert!(unknown.contains("sent 9 bytes, and FITRIM counts 7 as done"), "{unknown}");
    }

    /// What the kernel could not report may have failed, too.
    #[test]
    fn failures_are_unknown_if_reports_were_lost_and_none_came() {
        const PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
            \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
            \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
        const ERROR: &str = "ID: 9\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
            \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
            \tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\
            \tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;\n";
        const MISSED: u64 = 1 << 31;
        let record = |minor: u32| {
            let mut record = vec![0; 28];
            record[..2].copy_from_slice(&9_u16.to_ne_bytes());
            record[8..12].copy_from_slice(&((7_u32 << 20) | minor).to_ne_bytes());
            let words = record.len() as u32 / 4;
            let head = if cfg!(target_endian = "big") { words << 27 } else { words };
            [head.to_ne_bytes().to_vec(), record].concat()
        };
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("events")).unwrap();
        std::fs::create_dir(at("instances")).unwrap();
        std::fs::write(at("events/header_page"), PAGE).unwrap();
        for (minors, flags, expected) in [
            (&[][..], 0, Some(0)),
            (&[3, 3], 0, Some(2)),
            (&[3, 4], 0, Some(1)), // one of another disk
            (&[], MISSED, None),
            (&[4], MISSED, None),
            (&[3], MISSED, Some(1)),
        ] {
            let data: Vec<u8> = minors.iter().flat_map(|&minor| record(minor)).collect();
            let mut page = [0_u64.to_ne_bytes(), (data.len() as u64 | flags).to_ne_bytes()].concat();
            page.extend(data);
            page.resize(4096, 0);
            std::fs::write(at("pipe"), page).unwrap();
            let mut failures = Failures {
                disks: [(7, 3)].into(),
                format: Tracepoint::Error.parse(ERROR).unwrap(),
                pipes: vec![File::open(at("pipe")).unwrap()],
                instance: Instance::create(folder.path(), NAME).unwrap(),
            };
            assert_eq!(failures.count(), expected, "{minors:?}, flags {flags:x}");
        }
    }

    #[test]
    fn failed_requests_decide() {
        let half = Bytes::mib(40);
        assert_eq!(verdict(Kind::Ext4, half, Some(SENT), Some(3)), Verdict::Failed(Some(half)));
        assert_eq!(verdict(Kind::Ext4, SENT, Some(SENT), Some(3)), Verdict::Failed(Some(SENT)));
        assert_eq!(verdict(Kind::Xfs, SENT, Some(SENT), Some(3)), Verdict::Failed(None));
        assert_eq!(verdict(Kind::Xfs, Bytes::gib(1), Some(SENT), Some(0)), Verdict::Taken(SENT));
        // Another program trimmed it too.
        assert_eq!(verdict(Kind::Ext4, half, Some(SENT), Some(0)), Verdict::Taken(half));
    }

    #[test]
    fn without_reports_a_file_system_that_hides_failures_is_not_believed() {
        assert_eq!(verdict(Kind::Xfs, SENT, Some(SENT), None), Verdict::Unverified);
        assert_eq!(verdict(Kind::Other, SENT, Some(SENT), None), Verdict::Unverified);
        assert_eq!(verdict(Kind::Xfs, SENT, Some(Bytes(0)), None), Verdict::Taken(Bytes(0)));
        assert_eq!(verdict(Kind::Ext4, SENT, Some(SENT), None), Verdict::Taken(SENT));
        assert_eq!(verdict(Kind::Btrfs, SENT, Some(Bytes::gib(1)), None), Verdict::Taken(SENT));
        assert_eq!(verdict(Kind::Ext4, Bytes(0), Some(SENT), None), Verdict::Failed(Some(Bytes(0))));
        let online =
            Accounts { answered: Bytes(0), counted: Some(SENT), failed: None, online: true, stops: false };
        assert_eq!(online.verdict(Kind::Ext4), Verdict::Unverified);
    }

    #[test]
    fn what_a_layer_below_keeps_is_not_claimed() {
        for failed in [None, Some(0)] {
            let kept = Accounts { answered: SENT, counted: Some(SENT), failed, online: false, stops: true };
            assert_eq!(kept.verdict(Kind::Ext4), Verdict::Unverified);
            assert_eq!(kept.verdict(Kind::Xfs), Verdict::Unverified);
        }
    }

    #[test]
    fn what_the_kernel_did_not_count_is_not_claimed() {
        for failed in [None, Some(0)] {
            assert_eq!(verdict(Kind::Ext4, SENT, Some(Bytes(0)), failed), Verdict::Unverified);
            assert_eq!(verdict(Kind::Xfs, SENT, None, failed), Verdict::Unverified);
        }
        assert_eq!(verdict(Kind::Ext4, SENT, None, None), Verdict::Unverified);
    }
}
