//! Decides what became of what a trim sent: one rule for `trimwise trim`, `verify` and the daemon.
//!
//! Four accounts tell of it, and none is complete. FITRIM's return value leaves out failed discards on ext4 and btrfs,
//! and says nothing on XFS, which does not look at the result (`xfs_discard_endio`). The device's counter has the
//! requests that ended, failed ones too, and those that others sent; device-mapper leaves out what some targets fail.
//! The file system's own map says how much should have been sent. And tracepoints report failed discards, where tracefs
//! can be used and the disks have a request queue: `block_rq_error` for requests, `block_bio_complete` for what fails in a
//! layer above (a dm target), where no request is ever made. Discards refused as unsupported show up only there: the kernel
//! hides EOPNOTSUPP (`blkdev_issue_discard`), and then lowers the device's limit to zero.
//!
//! After a failure, a file system believes that what failed was trimmed: ext4 marks the block group
//! (`ext4_trim_all_free`), f2fs forgets the extent (`__remove_discard_cmd`). So what it leaves out later proves nothing.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use trimwise::units::{Bytes, Span};

use crate::block_device::{BlockDevice, SysBlock};
use crate::doctor;
use crate::host_root::HostRoot;
use crate::layout::Kind;
use crate::tracefs::format::{EventFormat, Traced, Tracepoint};
use crate::tracefs::{Instance, InstanceError, TRACING, remove_left_behind};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounts {
    /// What should be sent at least, according to the file system's map; `None` if it has none, or may leave out groups
    /// that it has trimmed before.
    pub sent: Option<Bytes>,
    pub answered: Bytes,
    /// Discards that the kernel counted on the devices meanwhile, from any source; `None` if it does not count them.
    pub counted: Option<Bytes>,
    /// Failed discards on the devices and below them meanwhile; `None` if they are not reported.
    pub failed: Option<u64>,
    /// True if the counter may include more than this trim sent: the file system sends discards of its own (`discard`),
    /// or a mapping counts one more than once.
    pub online: bool,
    /// True if a layer below is known not to pass TRIM on to at least one of the drives. FITRIM succeeds above it, and
    /// devices count what they are sent.
    pub stops: bool,
    /// True if discards failed since this file system was mounted.
    pub failed_before: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The drive took this much, and the file system had no more to send.
    Taken(Bytes),
    /// No failure is known, but it might not show, or the discards do not reach every drive. The drive took this much of
    /// them for sure.
    Unverified(Bytes),
    /// Discards failed. The drive took at most this much of them; `None` if that is unknown.
    Failed(Option<Bytes>),
}

impl Accounts {
    pub fn verdict(self, kind: Kind) -> Verdict {
        use Verdict::{Failed, Taken, Unverified};
        let Self { answered, counted, .. } = self;
        let reports = matches!(kind, Kind::Ext4 | Kind::Btrfs);
        let at_most = if reports { answered } else { counted.unwrap_or_default() };
        // Some discards failed, or another program sent some at the same time.
        let excess = kind == Kind::Ext4 && !self.online && counted.is_some_and(|counted| counted > answered);
        // XFS and btrfs send again what failed.
        let forgets_failures = self.failed_before && matches!(kind, Kind::Ext4 | Kind::Other);
        // The file system sent less than it had to, or less arrived.
        let is_short = match self.sent {
            Some(sent) => at_most < sent,
            None => forgets_failures,
        };
        let unless = |doubted: bool| {
            let taken = self.sent.map_or(at_most, |sent| if reports { at_most } else { at_most.min(sent) });
            if doubted && is_short { Unverified(taken) } else { Taken(taken) }
        };
        match (self.failed, counted) {
            (Some(1..), _) => {
                Failed(reports.then(|| counted.map_or(answered, |counted| counted.min(answered))))
            }
            _ if self.stops => Unverified(Bytes(0)),
            // The kernel counted less than FITRIM claims to have sent.
            (_, Some(counted)) if reports && counted < answered => Unverified(Bytes(0)),
            (Some(0), None) if !reports => Unverified(Bytes(0)),
            (Some(0), _) => unless(excess || forgets_failures),
            (None, Some(_)) if excess => Failed(Some(answered)),
            (None, Some(_)) if kind == Kind::Btrfs || (kind == Kind::Ext4 && !self.online) => unless(true),
            (None, Some(Bytes(0))) if !self.online => unless(true),
            (None, _) => Unverified(Bytes(0)),
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
    have_queues(&HostRoot::default(), devices)
}

fn have_queues<'a>(root: &HostRoot, devices: impl IntoIterator<Item = &'a BlockDevice>) -> bool {
    let disks = doctor::disks(root, devices.into_iter().map(|device| &device.sysfs));
    let has_queue = |disk: &String| root.path("/sys/class/block").join(disk).join("mq").is_dir();
    !disks.is_empty() && disks.iter().all(has_queue)
}

/// A device on which discards failed. Requests name the disk whatever partition they were sent to, so their sectors tell
/// the partitions apart.
///
/// NVMe takes several ranges in one request, of which the event names the first. The kernel merges ranges of different
/// partitions only if their senders have the same control group and I/O priority, and send them at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedPart {
    /// Kernel name of the device.
    pub device: String,
    /// Its partitions where some failed, and where none did.
    hit: BTreeSet<String>,
    missed: BTreeSet<String>,
}

impl FailedPart {
    /// Finds what of a device the sectors are; `None` if the device is gone.
    pub fn of(host: &HostRoot, numbers: (u32, u32), sectors: &[Span]) -> Option<Self> {
        let device = SysBlock::of_numbers(host, numbers).ok()?;
        let is_hit = |partition: &SysBlock| {
            let (Ok(start), Ok(size)) = (partition.number("start"), partition.number("size")) else {
                return true;
            };
            sectors
                .iter()
                .any(|failed| failed.start < start + size && start < failed.end.max(failed.start + 1))
        };
        let (hit, missed): (Vec<_>, Vec<_>) = device.partitions().partition(is_hit);
        let names = |those: Vec<SysBlock>| those.iter().map(SysBlock::name).collect();
        Some(Self { device: device.name(), hit: names(hit), missed: names(missed) })
    }

    /// Returns true if what failed may belong to something on these devices.
    pub fn is_of(&self, layers: &BTreeSet<String>) -> bool {
        layers.contains(&self.device) && (layers.is_disjoint(&self.missed) || !layers.is_disjoint(&self.hit))
    }
}

/// Counts failed discards on some devices, through a separate trace instance.
pub(super) struct Failures {
    devices: BTreeSet<(u32, u32)>,
    /// Their kernel names.
    layers: BTreeSet<String>,
    host: HostRoot,
    /// Refused discards are no news where TRIM is known to stop.
    stops: bool,
    formats: Vec<(Tracepoint, EventFormat)>,
    // Declared before the instance, which cannot be removed while they are open.
    pipes: Vec<File>,
    instance: Instance,
}

const BUFFER_KIB: usize = 64;
const NAME: &str = "trimwise-trim-";

impl Failures {
    pub fn watch(devices: &[BlockDevice], stops: bool) -> Option<Self> {
        if !reports_failures(devices) {
            return None;
        }
        let numbers = |disk: &String| SysBlock::named(&HostRoot::default(), disk).ok()?.numbers().ok();
        let layers = doctor::layers(&HostRoot::default(), devices.iter().map(|device| &device.sysfs));
        let numbers = layers.iter().map(numbers).collect::<Option<BTreeSet<_>>>()?;
        Self::on(Path::new(TRACING), HostRoot::default(), numbers, layers, stops)
    }

    fn on(
        tracing: &Path,
        host: HostRoot,
        devices: BTreeSet<(u32, u32)>,
        layers: BTreeSet<String>,
        stops: bool,
    ) -> Option<Self> {
        remove_left_behind(tracing, NAME);
        let instance = Instance::create(tracing, &format!("{NAME}{}", std::process::id())).ok()?;
        let begin = || -> Result<_, InstanceError> {
            instance.set_buffers(0, BUFFER_KIB, BUFFER_KIB)?;
            let formats = instance.report_failed_discards()?;
            let pipes = instance.pipes()?;
            instance.write("tracing_on", "1")?;
            Ok((formats, pipes))
        };
        let (formats, pipes) = begin().ok()?;
        (!formats.is_empty()).then_some(Self { devices, layers, host, stops, formats, pipes, instance })
    }

    /// Returns the number of discards that failed since the last call; `None` if some reports were lost.
    pub fn count(&mut self) -> Option<u64> {
        let page = self.instance.page();
        let mut buffer = vec![0; page.size];
        let (mut failed, mut lost) = (0, 0);
        let may_be_ours = |read: &Traced| {
            let part = FailedPart::of(&self.host, read.device, &[read.sectors()]);
            part.is_none_or(|part| part.is_of(&self.layers))
        };
        for pipe in &mut self.pipes {
            while let Ok(n @ 1..) = pipe.read(&mut buffer) {
                lost += page.records(&buffer[..n], |_, record| {
                    let mut read =
                        self.formats.iter().filter_map(|(point, format)| Some((point, format.read(record)?)));
                    let is_failed = |(point, read): (&Tracepoint, Traced)| {
                        self.devices.contains(&read.device)
                            && !(self.stops && point.is_refusal(&read))
                            && (failed > 0 || may_be_ours(&read))
                    };
                    failed += u64::from(read.next().is_some_and(is_failed));
                });
            }
        }
        // Once one is known to have failed, it does not matter how many more did.
        (lost == 0 || failed > 0).then_some(failed)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use trimwise_testing::fake_host::{Host, SDA};

    use super::*;

    const SENT: Bytes = Bytes::mib(80);

    const ACCOUNTS: Accounts = Accounts {
        sent: None,
        answered: SENT,
        counted: Some(SENT),
        failed: None,
        online: false,
        stops: false,
        failed_before: false,
    };

    fn verdict(kind: Kind, answered: Bytes, counted: Option<Bytes>, failed: Option<u64>) -> Verdict {
        Accounts { answered, counted, failed, ..ACCOUNTS }.verdict(kind)
    }

    const KINDS: [Kind; 4] = [Kind::Ext4, Kind::Btrfs, Kind::Xfs, Kind::Other];
    const UNVERIFIED: Verdict = Verdict::Unverified(Bytes(0));

    #[test]
    fn each_verdict_holds_up_to_its_limit() {
        use Verdict::{Failed, Taken};
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
            (less, Some(0), false, [UNVERIFIED, UNVERIFIED, Taken(LESS), Taken(LESS)]),
            (None, Some(0), false, [Taken(SENT), Taken(SENT), UNVERIFIED, UNVERIFIED]),
            // One failed.
            (sent, Some(1), false, [Failed(sent), Failed(sent), Failed(None), Failed(None)]),
            (less, Some(1), false, [Failed(less), Failed(less), Failed(None), Failed(None)]),
            (more, Some(1), true, [Failed(sent), Failed(sent), Failed(None), Failed(None)]),
            (None, Some(1), false, [Failed(sent), Failed(sent), Failed(None), Failed(None)]),
            // Failures are not reported.
            (sent, None, false, [Taken(SENT), Taken(SENT), UNVERIFIED, UNVERIFIED]),
            (more, None, false, [Failed(sent), Taken(SENT), UNVERIFIED, UNVERIFIED]),
            (more, None, true, [UNVERIFIED, Taken(SENT), UNVERIFIED, UNVERIFIED]),
            (sent, None, true, [UNVERIFIED, Taken(SENT), UNVERIFIED, UNVERIFIED]),
            (less, None, false, [UNVERIFIED; 4]),
            (none, None, false, [UNVERIFIED, UNVERIFIED, Taken(NONE), Taken(NONE)]),
            (none, None, true, [UNVERIFIED; 4]),
            (None, None, false, [UNVERIFIED; 4]),
        ] {
            for (kind, expected) in KINDS.into_iter().zip(expected) {
                let of = |stops| Accounts { counted, failed, online, stops, ..ACCOUNTS }.verdict(kind);
                let case = format!("{kind:?}, counted {counted:?}, failed {failed:?}, online {online}");
                assert_eq!(of(false), expected, "{case}");
                // A layer that passes none on hides what the drive took, and not that some failed.
                let expected = if matches!(failed, Some(1..)) { expected } else { UNVERIFIED };
                assert_eq!(of(true), expected, "{case}, and a layer stops TRIM");
            }
        }
    }

    /// The map's part in it: it shows 271 MiB, as on an ext4 over a dm table with 4 MiB of `error`. There FITRIM answers 255,
    /// and the device counts 267.
    #[test]
    fn the_map_is_held_against_the_answer() {
        use Verdict::{Failed, Taken, Unverified};
        const fn mib(n: u64) -> Bytes {
            Bytes::mib(n)
        }
        // FITRIM's answer, what the device counted, failed requests, whether some failed before; then the verdict on ext4,
        // btrfs, XFS and any other.
        for (answered, counted, failed, failed_before, expected) in [
            // The failure is reported.
            (
                255,
                267,
                Some(1),
                false,
                [Failed(Some(mib(255))), Failed(Some(mib(255))), Failed(None), Failed(None)],
            ),
            // It is not: only ext4's answer is sure to be complete.
            (255, 267, None, false, [Failed(Some(mib(255))), Unverified(mib(255)), UNVERIFIED, UNVERIFIED]),
            // Reports that say nothing of it are not believed alone.
            (
                255,
                267,
                Some(0),
                false,
                [Unverified(mib(255)), Taken(mib(255)), Taken(mib(267)), Taken(mib(267))],
            ),
            // The whole extent was in the target, which counts nothing of it.
            (255, 255, None, false, [Unverified(mib(255)), Unverified(mib(255)), UNVERIFIED, UNVERIFIED]),
            // The rest was in use by then, or had been trimmed.
            (255, 255, Some(0), false, [Taken(mib(255)); 4]),
            (0, 0, Some(0), false, [Taken(mib(0)); 4]),
            // After a failure, ext4 and f2fs leave out what failed.
            (0, 0, Some(0), true, [UNVERIFIED, Taken(mib(0)), Taken(mib(0)), UNVERIFIED]),
            (0, 0, None, true, [UNVERIFIED; 4]),
            (
                255,
                255,
                Some(0),
                true,
                [Unverified(mib(255)), Taken(mib(255)), Taken(mib(255)), Unverified(mib(255))],
            ),
            (271, 271, Some(0), true, [Taken(mib(271)); 4]),
            // XFS without reports: a counter of zero is no proof either, if something should have been sent.
            (0, 0, None, false, [UNVERIFIED; 4]),
            (271, 271, None, false, [Taken(mib(271)), Taken(mib(271)), UNVERIFIED, UNVERIFIED]),
            // Others sent some too.
            (271, 280, Some(0), false, [Taken(mib(271)); 4]),
        ] {
            let (answered, counted) = (mib(answered), Some(mib(counted)));
            for (kind, expected) in KINDS.into_iter().zip(expected) {
                let accounts =
                    Accounts { sent: Some(mib(271)), answered, counted, failed, failed_before, ..ACCOUNTS };
                assert_eq!(accounts.verdict(kind), expected, "{kind:?}: {accounts:?}");
            }
        }
        // f2fs has no map, and sends nothing more of what failed, whatever else it sends.
        let f2fs = Accounts { answered: Bytes(0), counted: Some(Bytes(0)), failed: Some(0), ..ACCOUNTS };
        assert_eq!(f2fs.verdict(Kind::Other), Taken(Bytes(0)));
        assert_eq!(Accounts { failed_before: true, ..f2fs }.verdict(Kind::Other), UNVERIFIED);
        let some = Accounts { failed_before: true, counted: Some(Bytes(1)), ..f2fs };
        assert_eq!(some.verdict(Kind::Other), Unverified(Bytes(1)));
        assert_eq!(some.verdict(Kind::Xfs), Taken(Bytes(1)));
    }

    #[test]
    fn a_failure_is_described_by_what_is_known_of_it() {
        let words = |failed| {
            Accounts { answered: Bytes(7), counted: Some(Bytes(9)), failed, ..ACCOUNTS }.failed_words()
        };
        assert!(words(Some(1)).starts_with("discards failed or were refused;"), "{}", words(Some(1)));
        let unknown = words(None);
        assert!(unknown.contains("sent 9 bytes, and FITRIM counts 7 as done"), "{unknown}");
    }

    #[test]
    fn failures_are_reported_where_each_disk_below_has_a_queue() {
        const SDB: &str = "pci0000:00/ata2/host1/target1:0:0/1:0:0:0/block/sdb";
        for (with_queue, expected) in
            [(&[SDA, SDB][..], true), (&[SDA], false), (&[SDB], false), (&["virtual/block/dm-0"], false)]
        {
            let host = Host::new("");
            host.device(SDA, "8:0", 1).device(SDB, "8:16", 1).device("virtual/block/dm-0", "252:0", 1);
            host.slave("virtual/block/dm-0", SDA).slave("virtual/block/dm-0", SDB);
            host.file("sys/devices/virtual/block/dm-0/queue/discard_granularity", "512");
            host.file("sys/devices/virtual/block/dm-0/size", "8");
            for place in with_queue {
                host.file(&format!("sys/devices/{place}/mq/0/cpu_list"), "0");
            }
            let root = HostRoot::new(host.0.path());
            let mapped = BlockDevice::of(SysBlock::named(&root, "dm-0").unwrap()).unwrap();
            assert_eq!(have_queues(&root, [&mapped]), expected, "queues of {with_queue:?}");
            assert!(!have_queues(&root, []), "no device");
        }
    }

    const REFUSED: i32 = -95;
    /// The ids of `block_rq_error` and `block_bio_complete` in the fake tracing folder.
    const ERROR: u16 = 2100;
    const BIO: u16 = 2090;
    const DATA_BYTES: usize = 240;

    /// A record of a request or bio on disk 8:MINOR.
    fn record(id: u16, minor: u32, error: i32) -> Vec<u8> {
        const WORDS: u32 = 8;
        // The kernel's bit field `type_len:5, time_delta:27`.
        let head = if cfg!(target_endian = "big") { WORDS << 27 } else { WORDS };
        let mut record = head.to_ne_bytes().to_vec();
        record.resize(4 + 4 * WORDS as usize, 0);
        record[4..6].copy_from_slice(&id.to_ne_bytes());
        record[12..16].copy_from_slice(&(8 << 20 | minor).to_ne_bytes());
        record[32..36].copy_from_slice(&error.to_ne_bytes());
        record
    }

    /// A page of a trace, before which a record was lost or not.
    fn page(records: &[Vec<u8>], is_lost: bool) -> Vec<u8> {
        let data = records.concat();
        let commit = data.len() as u64 | u64::from(is_lost) << 31;
        let mut page = [0u64.to_ne_bytes(), commit.to_ne_bytes()].concat();
        page.extend(data);
        page.resize(16 + DATA_BYTES, 0);
        page
    }

    /// A tracing folder with the pages that two processors recorded, and the folder of this process's instance.
    fn tracing(pages: [&[Vec<u8>]; 2]) -> (Host, String) {
        let host = Host::new("");
        let field = |what: &str, offset: usize, size: usize| {
            format!("\tfield:{what};\toffset:{offset};\tsize:{size};\tsigned:0;\n")
        };
        let header = field("u64 timestamp", 0, 8) + &field("local_t commit", 8, 8);
        host.file("events/header_page", &(header + &field("char data", 16, DATA_BYTES)));
        let instance = format!("instances/{NAME}{}", std::process::id());
        let fields = field("unsigned short common_type", 0, 2) + &field("dev_t dev", 8, 4);
        let range = field("sector_t sector", 16, 8) + &field("unsigned int nr_sector", 24, 4);
        let range = range + &field("int error", 28, 4);
        for (name, id) in [("block_rq_error", ERROR), ("block_bio_complete", BIO)] {
            let format = format!("name: {name}\nID: {id}\nformat:\n{fields}{range}");
            host.file(&format!("{instance}/events/block/{name}/format"), &format);
        }
        for (processor, pages) in pages.into_iter().enumerate() {
            let pipe = format!("{instance}/per_cpu/cpu{processor}/trace_pipe_raw");
            host.file(&pipe, "");
            fs::write(host.0.path().join(pipe), pages.concat()).unwrap();
        }
        (host, instance)
    }

    fn on(host: &Host, devices: BTreeSet<(u32, u32)>, layers: &[&str], stops: bool) -> Option<Failures> {
        let layers = layers.iter().map(|&name| name.to_owned()).collect();
        Failures::on(host.0.path(), HostRoot::new(host.0.path()), devices, layers, stops)
    }

    #[test]
    fn failed_discards_of_another_partition_do_not_count() {
        let failed_at = |sector: u64, sectors: u32| {
            let mut record = record(ERROR, 0, -5);
            record[20..28].copy_from_slice(&sector.to_ne_bytes());
            record[28..32].copy_from_slice(&sectors.to_ne_bytes());
            record
        };
        // sda1 has the sectors 2048 to 4095, sda2 the next 4096.
        for (sector, sectors, layers, expected) in [
            (2048, 8, &["sda1", "sda"][..], 1),
            (2048, 8, &["sda2", "sda"], 0),
            (4095, 1, &["sda1", "sda"], 1),
            (4096, 1, &["sda1", "sda"], 0),
            (4096, 1, &["sda2", "sda"], 1),
            (4095, 2, &["sda2", "sda"], 1),
            (8191, 1, &["sda2", "sda"], 1),
            (8192, 1, &["sda2", "sda"], 0),
            (2048, 8, &["sda1", "sda2", "sda"], 1),
            (0, 8, &["sda"], 1), // all of the disk
        ] {
            let (host, _) = tracing([&[page(&[failed_at(sector, sectors)], false)], &[]]);
            host.device(SDA, "8:0", 1 << 30);
            for (name, numbers, start, size) in [("sda1", "8:1", 2048, 2048), ("sda2", "8:2", 4096, 4096)] {
                host.device(&format!("{SDA}/{name}"), numbers, 0);
                for (attribute, value) in [("partition", 1), ("start", start), ("size", size)] {
                    host.file(&format!("sys/devices/{SDA}/{name}/{attribute}"), &value.to_string());
                }
            }
            let mut failures = on(&host, BTreeSet::from([(8, 0)]), layers, false).unwrap();
            assert_eq!(failures.count(), Some(expected), "{sectors} at {sector}, {layers:?}");
        }
    }

    #[test]
    fn failed_discards_of_the_devices_are_counted_once() {
        const EIO: i32 = -5;
        let ours = || record(ERROR, 0, EIO);
        let (of_others, of_another_event) = (record(ERROR, 16, EIO), record(ERROR + 1, 0, EIO));
        // The pages of two processors, and the count.
        for (case, one, other, expected) in [
            ("no record", vec![], vec![], Some(0)),
            ("an empty page", vec![page(&[], false)], vec![], Some(0)),
            ("one failed", vec![page(&[ours()], false)], vec![], Some(1)),
            ("a bio above any request", vec![page(&[record(BIO, 32, EIO)], false)], vec![], Some(1)),
            ("a bio of another device", vec![page(&[record(BIO, 48, EIO)], false)], vec![], Some(0)),
            ("one refused", vec![page(&[record(BIO, 32, REFUSED)], false)], vec![], Some(1)),
            ("on another processor", vec![], vec![page(&[ours()], false)], Some(1)),
            ("two and one", vec![page(&[ours(), ours()], false)], vec![page(&[ours()], false)], Some(3)),
            ("two pages", vec![page(&[ours()], false), page(&[ours()], false)], vec![], Some(2)),
            ("another disk's", vec![page(&[of_others], false)], vec![], Some(0)),
            ("another event", vec![page(&[of_another_event, ours()], false)], vec![], Some(1)),
            ("one lost", vec![page(&[], true)], vec![], None),
            ("one lost of two pages", vec![page(&[], true), page(&[], false)], vec![], None),
            ("lost and failed", vec![page(&[], true)], vec![page(&[ours()], false)], Some(1)),
        ] {
            let (host, _) = tracing([&one, &other]);
            let devices = BTreeSet::from([(8, 0), (8, 32)]);
            let mut failures = on(&host, devices, &[], false).unwrap();
            assert_eq!(failures.count(), expected, "{case}");
            assert_eq!(failures.count(), Some(0), "{case}, since then");
        }
        let pages = [page(&[record(BIO, 0, REFUSED), ours()], false)];
        let (host, _) = tracing([&pages, &[]]);
        let mut failures = on(&host, BTreeSet::from([(8, 0)]), &[], true).unwrap();
        assert_eq!(failures.count(), Some(1), "where TRIM stops, refusing it is no failure");
    }

    #[test]
    fn an_instance_records_failed_discards_until_it_is_dropped() {
        let (host, instance) = tracing([&[], &[]]);
        let left = host.0.path().join(format!("instances/{NAME}{}", u32::MAX));
        fs::create_dir_all(&left).unwrap();
        let failures = on(&host, BTreeSet::new(), &[], false).unwrap();
        assert!(!left.exists(), "the instance of a process that is gone is removed");
        let text = |file: &str| fs::read_to_string(host.0.path().join(&instance).join(file)).unwrap();
        for (file, expected) in [
            ("tracing_on", "1"),
            ("buffer_size_kb", "64"),
            ("events/block/block_rq_error/filter", "error != 0 && rwbs ~ \"*D*\""),
            ("events/block/block_rq_error/enable", "1"),
            ("events/block/block_bio_complete/filter", "error != 0 && rwbs ~ \"*D*\""),
            ("events/block/block_bio_complete/enable", "1"),
        ] {
            assert_eq!(text(file), expected, "{file}");
        }
        drop(failures);
        assert_eq!(text("events/enable"), "0", "it is in use, so it stops recording");
        let without = Host::new("");
        assert!(on(&without, BTreeSet::new(), &[], false).is_none(), "no tracefs");
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
        assert_eq!(verdict(Kind::Xfs, SENT, Some(SENT), None), UNVERIFIED);
        assert_eq!(verdict(Kind::Other, SENT, Some(SENT), None), UNVERIFIED);
        assert_eq!(verdict(Kind::Xfs, SENT, Some(Bytes(0)), None), Verdict::Taken(Bytes(0)));
        assert_eq!(verdict(Kind::Ext4, SENT, Some(SENT), None), Verdict::Taken(SENT));
        assert_eq!(verdict(Kind::Btrfs, SENT, Some(Bytes::gib(1)), None), Verdict::Taken(SENT));
        assert_eq!(verdict(Kind::Ext4, Bytes(0), Some(SENT), None), Verdict::Failed(Some(Bytes(0))));
        let online = Accounts { answered: Bytes(0), online: true, ..ACCOUNTS };
        assert_eq!(online.verdict(Kind::Ext4), UNVERIFIED);
    }

    #[test]
    fn what_a_layer_below_keeps_is_not_claimed() {
        for failed in [None, Some(0)] {
            let kept = Accounts { failed, stops: true, ..ACCOUNTS };
            assert_eq!(kept.verdict(Kind::Ext4), UNVERIFIED);
            assert_eq!(kept.verdict(Kind::Xfs), UNVERIFIED);
        }
    }

    #[test]
    fn what_the_kernel_did_not_count_is_not_claimed() {
        for failed in [None, Some(0)] {
            assert_eq!(verdict(Kind::Ext4, SENT, Some(Bytes(0)), failed), UNVERIFIED);
            assert_eq!(verdict(Kind::Xfs, SENT, None, failed), UNVERIFIED);
        }
        assert_eq!(verdict(Kind::Ext4, SENT, None, None), UNVERIFIED);
    }
}
