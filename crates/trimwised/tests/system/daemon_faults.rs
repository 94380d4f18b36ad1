//! The daemon on drives that fail under mounted file systems: discards that fail, or are refused after they worked, and
//! drives that are pulled out. A sound drive next to each must still be trimmed.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::TRIMWISED;
use crate::faulty::Faulty;
use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use trimwise::units::Bytes;
use trimwise_linux::daemon::control::Request;
use trimwise_linux::tracefs::TRACING;
use trimwise_linux::trim;
use trimwise_testing::daemon::{Daemon, table};
use trimwise_testing::loops::{Loop, can_run, can_trace, sh};
use trimwise_testing::skipped;

const MIB: u64 = 1 << 20;
/// Enough freed space that a map is read at once.
const FREED: u64 = 80 * MIB;

/// A file system on a drive that may fail.
struct Drive {
    faulty: Option<Faulty>,
    device: String,
    point: PathBuf,
    folder: tempfile::TempDir,
}

impl Drive {
    fn new(fs_type: &str) -> Self {
        let folder =
            tempfile::Builder::new().prefix("faulty-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let at = |name: &str| folder.path().join(name);
        let (image, point) = (at("image"), at("mounted"));
        ["served", "mounted"].iter().for_each(|name| fs::create_dir(at(name)).unwrap());
        fs::File::create(&image).unwrap().set_len(400 * MIB).unwrap();
        let image = image.to_str().unwrap();
        match fs_type {
            "ext4" => sh("mkfs.ext4", &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0", image]),
            _ => sh("mkfs.xfs", &["-q", "-f", "-K", image]),
        };
        let mut drive = Self { faulty: None, device: String::new(), point, folder };
        drive.plug_in();
        drive
    }

    /// Plugs the drive in, with its data as they were.
    fn plug_in(&mut self) {
        let at = |name: &str| self.folder.path().join(name);
        let store = fs::File::options().read(true).write(true).open(at("image")).unwrap();
        let faulty = Faulty::new(store, &at("served"));
        self.device = sh("losetup", &["-f", "--show", faulty.file().to_str().unwrap()]).trim().to_owned();
        self.faulty = Some(faulty);
        sh("mount", &[&self.device, self.point.to_str().unwrap()]);
    }

    /// Removes the remains of a drive that was pulled out.
    fn clear_away(&mut self) {
        let quietly = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            let status = command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        };
        let point = self.point.to_str().unwrap_or_default();
        // A helper may have it open for a moment.
        let gone = (0..100).any(|_| {
            quietly("umount", &[point]) || {
                std::thread::sleep(std::time::Duration::from_millis(100));
                !quietly("mountpoint", &["-q", point])
            }
        });
        if !gone {
            eprintln!("{point} could not be unmounted");
            quietly("umount", &["--lazy", point]);
        }
        quietly("losetup", &["-d", &self.device]);
        self.faulty = None;
    }

    fn discards_fail_with(&self, errno: Option<Errno>) {
        let number = errno.map_or(0, |errno| errno.raw_os_error());
        self.faulty.as_ref().unwrap().faults.discard.store(number, Ordering::Relaxed);
    }

    fn fill(&self, name: &str) {
        let data: Vec<u8> =
            (0..FREED as u32).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8 | 1).collect();
        fs::write(self.point.join(name), data).unwrap();
        sh("sync", &["-f", self.point.to_str().unwrap()]);
    }

    /// Space that its image takes on disk; successful discards reduce it.
    fn allocated(&self) -> u64 {
        fs::metadata(self.folder.path().join("image")).unwrap().blocks() * 512
    }

    fn holds(&self, holds: bool) {
        self.faulty.as_ref().unwrap().faults.holds.store(holds, Ordering::Relaxed);
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.point.join(name)).unwrap();
        sh("sync", &["-f", self.point.to_str().unwrap()]);
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        self.discards_fail_with(None);
        if let Some(faulty) = &self.faulty {
            faulty.faults.holds.store(false, Ordering::Relaxed); // or the unmount would wait for the held discards
        }
        self.clear_away();
    }
}

fn can_serve(programs: &[&str]) -> bool {
    let fuse = Path::new("/dev/fuse").exists();
    if !fuse {
        skipped("there is no /dev/fuse, so no failing drive can be emulated");
    }
    can_run(programs) && fuse
}

/// A daemon that manages a drive that will fail and a sound one, and has trimmed both.
fn settled(drive: &Drive, sound: &Loop) -> Daemon {
    settled_with(&[], false, drive, sound)
}

fn settled_with(arguments: &[&'static str], tracepoints: bool, drive: &Drive, sound: &Loop) -> Daemon {
    drive.fill("kept");
    drive.fill("gone");
    sound.fill(["gone".to_owned()], FREED as usize);
    let config = format!("{}[mount.\"{}\"]\n", table(&drive.point, ""), sound.point.display());
    let config = config.replace("tracepoints = false", &format!("tracepoints = {tracepoints}"));
    let mut daemon = Daemon::prepared(TRIMWISED, &config);
    daemon.arguments = arguments.to_vec();
    daemon.start();
    daemon.wait_until_trimmed(&drive.point);
    daemon.wait_until_trimmed(&sound.point);
    daemon
}

/// Checks that the sound drive is trimmed regardless of the other.
fn sound_is_trimmed(daemon: &Daemon, sound: &Loop) {
    let before = sound.discards().1;
    fs::remove_file(sound.point.join("gone")).unwrap();
    sound.sync();
    daemon.wait_until(&sound.point, "trimmed despite a broken one", |status| {
        sound.discards().1 - before >= FREED * 9 / 10 && status["waiting_bytes"] == 0
    });
}

/// The daemon's helpers that are at work: one may wait for the next task.
fn helpers(daemon: &Daemon) -> String {
    let task = format!("/proc/{0}/task/{0}/children", daemon.process());
    let is_helper = |process: &&str| {
        let line = fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
        // A read of standard input: it waits.
        let call = fs::read_to_string(format!("/proc/{process}/syscall")).unwrap_or_default();
        line.contains("\0helper\0") && !call.starts_with("0 0x0 ") // one that has exited has no command line
    };
    let children = fs::read_to_string(task).unwrap_or_default();
    children.split_whitespace().filter(is_helper).collect::<Vec<_>>().join(" ")
}

/// Stops the daemon, and checks that it leaves no process behind.
fn end(mut daemon: Daemon) {
    for _ in 0..100 {
        if helpers(&daemon).trim().is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(helpers(&daemon).trim(), "", "a helper is stuck");
    daemon.end();
}

#[test]
fn failed_discards_are_reported_and_retried() {
    if !can_serve(&["mkfs.ext4"]) {
        return;
    }
    let (drive, sound) = (Drive::new("ext4"), Loop::ext4(256 * MIB));
    let daemon = settled(&drive, &sound);
    drive.discards_fail_with(Some(Errno::IO));
    drive.remove("gone");
    let status = daemon.wait_until(&drive.point, "failed", |status| status["reason"]["code"] == "failed");
    assert!(status["why"].as_str().unwrap().contains("discards failed"), "{status:#}");
    assert!(status["waiting_bytes"].as_u64() >= Some(FREED * 9 / 10), "it still waits: {status:#}");
    let mount = drive.point.clone();
    let explained = daemon.ask(&Request::Explain { mount: mount.clone() }).to_string();
    assert!(explained.contains("discards failed") && explained.contains("tried again"), "{explained}");
    sound_is_trimmed(&daemon, &sound);
    // A user need not wait for the next attempt.
    drive.discards_fail_with(None);
    daemon.ask(&Request::Trim { mount: mount.clone() });
    daemon.wait_until_trimmed(&mount);
    end(daemon);
}

/// A discard that the device does not complete cannot be stopped, not even by SIGKILL.
#[test]
fn a_helper_that_hangs_is_abandoned_once_and_trimming_resumes_when_it_exits() {
    if !can_serve(&["mkfs.ext4"]) {
        return;
    }
    let (drive, sound) = (Drive::new("ext4"), Loop::ext4(256 * MIB));
    let daemon = settled_with(&["--helper-patience-s", "2"], false, &drive, &sound);
    drive.holds(true);
    drive.remove("gone");
    let is_stuck = |status: &serde_json::Value| status["reason"]["code"] == "stuck";
    let status = daemon.wait_until(&drive.point, "stuck", is_stuck);
    assert!(status["why"].as_str().unwrap().contains("did not end in 2 s"), "{status:#}");
    assert!(status["waiting_bytes"].as_u64() >= Some(FREED * 9 / 10), "{status:#}");
    // Nothing else starts on it, even on request.
    let mount = drive.point.clone();
    daemon.ask(&Request::Trim { mount: mount.clone() });
    let of_it = || helpers(&daemon).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let stuck = of_it();
    sound_is_trimmed(&daemon, &sound);
    let slices = status["totals"]["slices"].clone();
    daemon.wait_until(&drive.point, "still stuck", is_stuck);
    assert!(stuck.len() == 1 && of_it().contains(&stuck[0]), "{stuck:?} {:?}", of_it());
    let others = of_it().into_iter().filter(|one| one != &stuck[0]).count();
    assert!(others <= 1, "no more than the sound one's: {:?}", of_it());
    let history = daemon.ask(&Request::History { mount: mount.clone(), limit: 100 }).to_string();
    assert_eq!(history.matches("\"stuck\"").count(), 1, "{history}");

    // What it sent fails in the end, which it cannot tell any more; ext4 may believe it to be trimmed.
    let full = drive.allocated();
    drive.discards_fail_with(Some(Errno::IO));
    drive.holds(false);
    daemon.wait_until(&mount, "released", |status| !is_stuck(status));
    let history = daemon.ask(&Request::History { mount: mount.clone(), limit: 100 }).to_string();
    assert!(history.contains("released"), "{history}");
    drive.discards_fail_with(None);
    daemon.ask(&Request::Trim { mount: mount.clone() });
    daemon.wait_until(&mount, "trimmed", |status| {
        status["waiting_bytes"] == 0 && status["totals"]["slices"] != slices
    });
    assert!(full - drive.allocated() >= FREED * 9 / 10, "{full} {}", drive.allocated());
    end(daemon);
}

/// XFS ignores the result of its discards, and the device counts failed ones too.
#[test]
fn regression_failed_discards_below_xfs_do_not_count_as_trimmed() {
    if !can_serve(&["mkfs.xfs"]) || !can_trace() {
        return;
    }
    let (drive, sound) = (Drive::new("xfs"), Loop::ext4(256 * MIB));
    let daemon = settled_with(&[], true, &drive, &sound);
    let before = daemon.status(&drive.point)["totals"]["trimmed_bytes"].clone();
    drive.discards_fail_with(Some(Errno::IO));
    drive.remove("gone");
    let status = daemon.wait_until(&drive.point, "failed", |status| status["reason"]["code"] == "failed");
    assert!(status["why"].as_str().unwrap().contains("discards failed"), "{status:#}");
    assert_eq!(status["totals"]["trimmed_bytes"], before, "{status:#}");
    sound_is_trimmed(&daemon, &sound);
    drive.discards_fail_with(None);
    let full = drive.allocated();
    daemon.ask(&Request::Trim { mount: drive.point.clone() });
    daemon.wait_until(&drive.point, "trimmed", |status| {
        status["waiting_bytes"] == 0 && status["totals"]["trimmed_bytes"].as_u64() > before.as_u64()
    });
    assert!(full - drive.allocated() >= FREED * 9 / 10, "{full} {}", drive.allocated());
    end(daemon);
}

/// FITRIM of XFS returns before its discards end.
#[test]
fn regression_hanging_discards_below_xfs_do_not_count_as_trimmed() {
    if !can_serve(&["mkfs.xfs"]) {
        return;
    }
    let (drive, sound) = (Drive::new("xfs"), Loop::ext4(256 * MIB));
    let daemon = settled(&drive, &sound);
    let before = daemon.status(&drive.point)["totals"].clone();
    drive.holds(true);
    drive.remove("gone");
    let status = daemon.wait_until(&drive.point, "failed", |status| status["reason"]["code"] == "failed");
    assert!(status["why"].as_str().unwrap().contains("discards hang"), "{status:#}");
    assert_eq!(status["totals"]["trimmed_bytes"], before["trimmed_bytes"], "{status:#}");
    assert!(status["totals"]["slice_longest_ns"].as_u64() > Some(5_000_000_000), "{status:#}");
    sound_is_trimmed(&daemon, &sound);
    drive.holds(false);
    daemon.ask(&Request::Trim { mount: drive.point.clone() });
    daemon.wait_until(&drive.point, "trimmed", |status| {
        status["waiting_bytes"] == 0
            && status["totals"]["unverified_bytes"].as_u64() > before["unverified_bytes"].as_u64()
    });
    end(daemon);
}

/// Without tracepoints nothing says whether discards below XFS failed.
#[test]
fn discards_below_xfs_are_unverified_without_tracepoints() {
    if !can_serve(&["mkfs.xfs"]) {
        return;
    }
    let (drive, sound) = (Drive::new("xfs"), Loop::ext4(256 * MIB));
    let daemon = settled(&drive, &sound);
    let (before, full) = (daemon.status(&drive.point)["totals"].clone(), drive.allocated());
    drive.discards_fail_with(Some(Errno::IO));
    drive.remove("gone");
    let mount = drive.point.clone();
    daemon.ask(&Request::Trim { mount: mount.clone() });
    let status = daemon.wait_until(&mount, "sent", |status| {
        status["totals"]["unverified_bytes"].as_u64()
            >= before["unverified_bytes"].as_u64().map(|n| n + FREED / 2)
    });
    assert_eq!(
        (full, &status["totals"]["trimmed_bytes"]),
        (drive.allocated(), &serde_json::json!(0)),
        "{status:#}"
    );
    let explained = daemon.ask(&Request::Explain { mount: mount.clone() }).to_string();
    assert!(explained.contains("unverified"), "{explained}");
    daemon.ask(&Request::Pause { mount: Some(mount.clone()), all: false });
    let history = daemon.ask(&Request::History { mount, limit: 99 }).to_string();
    assert!(!history.contains("\"trimmed\"") || history.contains("not known to be trimmed"), "{history}");
    // ext4 leaves failed discards out of its answer.
    assert_eq!(daemon.status(&sound.point)["totals"]["unverified_bytes"], 0);
    end(daemon);
}

fn trimmed_by_hand(point: &Path) -> Result<trim::Outcome, trim::TrimError> {
    let target = trim::Target::of(point)?;
    let slices = target.slices(target.span(Bytes(0), None)?, 1);
    let plan = trim::Plan { slices, min_extent: Bytes(0), pause: std::time::Duration::ZERO };
    trim::run(&target, &plan, &AtomicBool::new(false), |_| ())
}

#[test]
fn a_manual_trim_claims_nothing_that_the_drive_refused() {
    if !can_serve(&["mkfs.ext4", "mkfs.xfs"]) || !can_trace() {
        return;
    }
    for fs_type in ["ext4", "xfs"] {
        for errno in [Errno::IO, Errno::OPNOTSUPP] {
            let drive = Drive::new(fs_type);
            drive.fill("gone");
            let sound = trimmed_by_hand(&drive.point).unwrap();
            assert!(matches!(sound.ended, trim::Ended::Done) && !sound.is_unverified, "{fs_type}: {sound:?}");
            assert!(sound.taken.0 > 100 * MIB, "{fs_type}: {sound:?}");
            drive.remove("gone");
            let full = drive.allocated();
            drive.discards_fail_with(Some(errno));
            let refused = trimmed_by_hand(&drive.point).unwrap();
            assert!(matches!(refused.ended, trim::Ended::Failed(_)), "{fs_type} {errno}: {refused:?}");
            assert_eq!(
                (refused.taken, full),
                (Bytes(0), drive.allocated()),
                "{fs_type} {errno}: {refused:?}"
            );
        }
    }
}

/// The kernel takes FITRIM there, and fails each discard.
#[test]
fn a_read_only_device_is_not_trimmed() {
    if !can_run(&["mkfs.ext4", "blockdev"]) {
        return;
    }
    let disk = Loop::ext4(64 * MIB);
    sh("blockdev", &["--setro", disk.node().to_str().unwrap()]);
    let before = disk.discards();
    let said = trimmed_by_hand(&disk.point).map(|outcome| format!("{outcome:?}"));
    sh("blockdev", &["--setrw", disk.node().to_str().unwrap()]);
    assert!(said.unwrap_err().to_string().ends_with("is read-only, so nothing is trimmed there"));
    assert_eq!(disk.discards(), before);
}

#[test]
fn a_damaged_file_system_is_trimmed_no_further_and_fsck_is_advised() {
    if !can_run(&["mkfs.ext4", "dumpe2fs", "dd"]) {
        return;
    }
    let options = "-O metadata_csum,^flex_bg -E nodiscard,lazy_itable_init=0";
    let mkfs: Vec<&str> = ["mkfs.ext4", "-q", "-F"].into_iter().chain(options.split(' ')).collect();
    let mut disk = Loop::new(512 * MIB, &mkfs);
    disk.unmount();
    let dump = sh("dumpe2fs", &[disk.image.to_str().unwrap()]);
    let of_group = dump.split("Group 2:").nth(1).unwrap();
    let block: u64 =
        of_group.split("Block bitmap at ").nth(1).unwrap().split([' ', ',']).next().unwrap().parse().unwrap();
    let image = fs::File::options().write(true).open(&disk.image).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&image, &[0x5a; 4096], block * 4096).unwrap();
    disk.mount();
    let outcome = trimmed_by_hand(&disk.point).unwrap();
    let trim::Ended::Failed(error) = &outcome.ended else { panic!("{outcome:?}") };
    assert_eq!(error.means(), Some(trim::Meaning::Damaged), "{error}");
    assert!(error.to_string().contains(&format!("e2fsck -f /dev/{}", disk.device)), "{error}");
    assert!(outcome.slices_done <= 2, "{outcome:?}");
    disk.remount();
    let daemon = Daemon::prepared(TRIMWISED, &table(&disk.point, ""));
    let once = daemon.output(&["--once"]);
    let said = String::from_utf8_lossy(&once.stderr).into_owned();
    assert_eq!(once.status.code(), Some(1), "{said}");
    assert!(said.contains("is damaged") && said.contains("e2fsck -f"), "{said}");
    assert!(!said.contains(&format!("{0}: {0}", disk.point.display())), "{said}");
}

/// Counts the discards submitted to the block layer for a device, in the test's own trace instance.
struct Sent(PathBuf);

impl Sent {
    fn to(device: &str) -> Self {
        let found = fs::metadata(device).unwrap().rdev();
        let numbers = (u64::from(rustix::fs::major(found)) << 20) | u64::from(rustix::fs::minor(found));
        let instance = Path::new(TRACING).join("instances").join(device.replace('/', "-"));
        let sent = Self(instance);
        let _ = fs::remove_dir(&sent.0); // left by a killed test
        fs::create_dir(&sent.0).unwrap();
        let event = sent.0.join("events/block/block_bio_queue");
        fs::write(event.join("filter"), format!("dev == {numbers} && rwbs ~ \"D*\"")).unwrap();
        fs::write(event.join("enable"), "1").unwrap();
        sent
    }

    fn count(&self) -> usize {
        let trace = fs::read_to_string(self.0.join("trace")).unwrap();
        trace.lines().filter(|line| !line.starts_with('#')).count()
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// The fate of hanging discards is unknown, and another slice could only hang behind them.
#[test]
fn nothing_is_sent_while_discards_hang() {
    if !can_serve(&["mkfs.xfs"]) || !can_trace() {
        return;
    }
    let (drive, sound) = (Drive::new("xfs"), Loop::ext4(256 * MIB));
    let daemon = settled(&drive, &sound);
    let before = daemon.status(&drive.point)["totals"].clone();
    let (sent, full) = (Sent::to(&drive.device), drive.allocated());
    drive.holds(true);
    drive.remove("gone");
    let attempts = |status: &serde_json::Value| {
        status["totals"]["slices_failed"].as_u64().unwrap() - before["slices_failed"].as_u64().unwrap()
    };
    let mount = drive.point.clone();
    daemon.wait_until(&mount, "failed", |status| attempts(status) == 1);
    let in_flight = sent.count();
    // A user asks, which is the next attempt.
    daemon.ask(&Request::Trim { mount: mount.clone() });
    daemon.wait_until(&mount, "tried again", |status| attempts(status) == 2);
    let status = daemon.status(&mount);
    assert!(in_flight > 0 && status["waiting_bytes"].as_u64() >= Some(FREED * 9 / 10), "{status:#}");
    assert_eq!(sent.count(), in_flight, "{status:#}");
    for booked in ["trimmed_bytes", "unverified_bytes", "counted_bytes", "slices"] {
        assert_eq!(status["totals"][booked], before[booked], "{status:#}");
    }
    let explained = daemon.ask(&Request::Explain { mount: mount.clone() }).to_string();
    assert!(explained.contains("discards hang") && explained.contains("still in flight"), "{explained}");
    sound_is_trimmed(&daemon, &sound);
    assert_eq!(sent.count(), in_flight);

    drive.holds(false);
    daemon.ask(&Request::Trim { mount: mount.clone() });
    let status = daemon.wait_until(&mount, "trimmed", |status| status["asked"] == "done");
    assert!(
        status["totals"]["unverified_bytes"].as_u64() > before["unverified_bytes"].as_u64(),
        "{status:#}"
    );
    assert!(sent.count() > in_flight && full - drive.allocated() >= FREED * 9 / 10);
    end(daemon);
}

/// Without tracepoints failed discards below XFS go unnoticed. A user's request sends everything again.
#[test]
fn regression_trim_now_sends_what_is_wrongly_believed_to_be_trimmed() {
    if !can_serve(&["mkfs.xfs"]) {
        return;
    }
    let (drive, sound) = (Drive::new("xfs"), Loop::ext4(256 * MIB));
    let daemon = settled(&drive, &sound);
    let slices = daemon.status(&drive.point)["totals"]["slices"].as_u64();
    drive.discards_fail_with(Some(Errno::IO));
    drive.remove("gone");
    daemon.wait_until(&drive.point, "believed", |status| {
        status["waiting_bytes"] == 0 && status["totals"]["slices"].as_u64() > slices
    });
    drive.discards_fail_with(None);
    let full = drive.allocated();
    daemon.ask(&Request::Trim { mount: drive.point.clone() });
    daemon.wait_until(&drive.point, "sent", |_| full - drive.allocated() >= FREED * 9 / 10);
    end(daemon);
}

#[test]
fn discards_refused_after_they_worked_are_reported() {
    if !can_serve(&["mkfs.ext4", "mkfs.xfs"]) {
        return;
    }
    for fs_type in ["ext4", "xfs"] {
        let (drive, sound) = (Drive::new(fs_type), Loop::ext4(256 * MIB));
        let daemon = settled(&drive, &sound);
        drive.discards_fail_with(Some(Errno::OPNOTSUPP));
        drive.remove("gone");
        let status = daemon.wait_until(&drive.point, "refused", |status| {
            status["reason"]["code"] == "refused" || status.is_null()
        });
        let said = format!("{status} {}", daemon.ask(&Request::Status)["skipped"]);
        assert!(said.contains("does not accept discards"), "{fs_type}: {said}");
        sound_is_trimmed(&daemon, &sound);
        end(daemon);
    }
}

#[test]
fn a_drive_that_is_pulled_out_and_plugged_in_again_is_trimmed_again() {
    if !can_serve(&["mkfs.ext4", "mkfs.xfs"]) {
        return;
    }
    for fs_type in ["ext4", "xfs"] {
        let (mut drive, sound) = (Drive::new(fs_type), Loop::ext4(256 * MIB));
        let daemon = settled(&drive, &sound);
        let slices = daemon.status(&drive.point)["totals"]["slices"].as_u64();
        drive.faulty.as_ref().unwrap().pull_out();
        // This may fail, or succeed in memory only.
        let _ = fs::remove_file(drive.point.join("gone"));
        let _ = Command::new("sync")
            .args(["-f".as_ref(), drive.point.as_os_str()])
            .stderr(Stdio::null())
            .status();
        let mount = drive.point.clone();
        let _ = trimwise_linux::daemon::control::Client::connect(&daemon.run())
            .and_then(|mut client| client.ask(&Request::Trim { mount }));
        let status = daemon.wait_until(&drive.point, "failed, or passed over", |status| {
            status.is_null() || status["reason"]["code"] == "failed" || status["reason"]["code"] == "refused"
        });
        let said = format!("{status} {}", daemon.ask(&Request::Status)["skipped"]);
        let words = ["Input/output error", "read-only", "discards failed"];
        assert!(words.iter().any(|words| said.contains(words)), "{fs_type}: {said}");
        sound_is_trimmed(&daemon, &sound);

        drive.clear_away();
        daemon.wait_until(&drive.point, "gone", serde_json::Value::is_null);
        drive.plug_in();
        let status = daemon.wait_until_trimmed(&drive.point);
        assert!(slices > Some(0) && status["totals"]["slices"].as_u64() > Some(0), "{fs_type}: {status:#}");
        end(daemon);
    }
}

/// From now on, interrupts every FITRIM of this thread's children before it begins.
fn interrupt_fitrim() {
    let fitrim = u64::from(rustix::ioctl::opcode::read_write::<[u64; 3]>(b'X', 121));
    let is_fitrim = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, fitrim).unwrap();
    let rule = SeccompRule::new(vec![is_fitrim]).unwrap();
    fail_calls(libc::SYS_ioctl, vec![rule], Errno::INTR);
}

/// From now on, this system call of this thread's children fails.
fn fail_calls(call: libc::c_long, rules: Vec<SeccompRule>, errno: Errno) {
    let filter = SeccompFilter::new(
        [(call, rules)].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno.raw_os_error().cast_unsigned()),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

#[test]
fn an_interrupted_fitrim_is_reported_once_and_retried() {
    if !can_run(&["mkfs.ext4", "mkfs.xfs"]) {
        return;
    }
    for fs in [Loop::ext4(256 * MIB), Loop::xfs(400 * MIB)] {
        let before = fs.discards().1;
        fs.fill(["gone".to_owned(), "kept".to_owned()], FREED as usize);
        fs::remove_file(fs.point.join("gone")).unwrap();
        fs.sync();
        let config = table(&fs.point, "");
        let mut daemon = Daemon::prepared(TRIMWISED, &config);
        // The filter applies to the thread and its children, and cannot be removed.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                interrupt_fitrim();
                daemon.start();
            });
        });
        let failed = |status: &serde_json::Value| status["reason"]["code"] == "failed";
        let status = daemon.wait_until(&fs.point, "failed", failed);
        assert!(status["why"].as_str().unwrap().contains("Interrupted system call"), "{status:#}");
        assert!(status["waiting_bytes"].as_u64() >= Some(FREED * 9 / 10), "it still waits: {status:#}");
        assert_eq!(fs.discards().1, before);
        let mount = fs.point.clone();
        daemon.ask(&Request::Trim { mount: mount.clone() });
        daemon.wait_until(&mount, "failed again", failed);
        let history = daemon.ask(&Request::History { mount: mount.clone(), limit: 1000 });
        let told =
            history["entries"].as_array().unwrap().iter().filter(|event| event["kind"] == "failed").count();
        assert_eq!(told, 1, "once for all attempts: {history:#}");
        daemon.end();

        daemon.start();
        daemon.wait_until_trimmed(&mount);
        assert!(fs.discards().1 - before >= FREED * 9 / 10);
        end(daemon);
    }
}

#[test]
fn an_option_that_cannot_be_changed_is_a_finding() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(128 * MIB);
    disk.fill((0..5).map(|i| format!("file{i}")), 20 << 20);
    let mut daemon =
        Daemon::prepared(TRIMWISED, &table(&disk.point, "toggle = true\npolicy = \"set:40:80\""));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            fail_calls(libc::SYS_fspick, Vec::new(), Errno::PERM);
            daemon.start();
        });
    });
    let log = daemon.wait_until_said("online discard could not be changed");
    let status = daemon.ask(&Request::Status);
    let one = &status["file_systems"][0];
    assert_eq!(one["codes"], serde_json::json!(["daemon.option.unchanged"]), "{status:#}");
    let why = one["option_problem"].as_str().unwrap();
    assert!(why.contains("remounting with discard: Operation not permitted") && log.contains(why), "{why}");
    end(daemon);
}

/// The daemon wrote what it knows every five minutes only.
#[test]
fn regression_a_failure_is_remembered_by_the_next_daemon_if_this_one_is_killed_at_once() {
    if !can_serve(&["mkfs.ext4"]) || !can_trace() {
        return;
    }
    let (drive, sound) = (Drive::new("ext4"), Loop::ext4(256 * MIB));
    let mut daemon = settled_with(&[], true, &drive, &sound);
    drive.discards_fail_with(Some(Errno::IO));
    drive.remove("gone");
    daemon.wait_until(&drive.point, "failed", |status| status["reason"]["code"] == "failed");
    std::thread::sleep(std::time::Duration::from_secs(2));
    daemon.kill();
    let known = fs::read_to_string(daemon.state("known.json")).unwrap();
    assert!(known.contains("\"failed_before\":true"), "{known}");
}
