//! `trimwised` in trouble, on the real ext4, XFS and btrfs of Linux 6.1 in virtual time: killed at random moments
//! within its slices, on mounts that disappear, change or fill up, on failing drives, with a clock that jumps, and with
//! a full or broken state folder. [`Script::run`] checks what must hold after each of them.

use crate::guest_daemon::{Done, Script, kernel};
use serde_json::Value;
use trimwise::units::Bytes;
use trimwise_uml::disk::{Fault, Traced};
use trimwise_uml::job::{DAEMON_FOLDER, FileSystem, MOUNT_POINT, Step};

/// Kills of the daemon on each file system.
const KILLS: u64 = 50;
/// Minimum number of kills that hit a discard in progress; docs/architecture.md tells how many do.
const KILLS_WITHIN_DISCARDS: usize = 3;
/// Mounts of a flood.
const MOUNTS: u64 = 200;
/// Freeing this much is worth a new map at once.
const FREED: Bytes = Bytes::mib(80);
/// Longer than the daemon needs to trim the whole drive, one discard at a time.
const PATIENCE_S: u64 = 120;

/// A generator of random instants, the same in every run: Knuth's MMIX.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A daemon that is killed again and again, each time at the next drawn instant after something was freed.
fn killed(file_system: FileSystem, seed: u64) -> Script {
    let mut script = Script::new(file_system, &[], "true");
    let mut draw = Draw(seed);
    for kill in 0..KILLS {
        script.daemon(
            ["", "toggle = true\npolicy = \"set:1:2\"", "toggle = true\npolicy = \"lazy\""]
                [kill as usize % 3],
        );
        script.free_in_pieces();
        script.trimwise("", &["trim", MOUNT_POINT, "--now"]);
        script.then(Step::Sleep { ns: draw.below(1_500_000_000) });
        script.named(&format!("kill {kill}"), Step::KillDaemon);
    }
    script.daemon("policy = \"off\"\ntoggle = false");
    script.sleep_s(2);
    script.history("history");
    script.then(Step::StopDaemon);
    script
}

/// Counts the kills that hit a discard in progress.
fn within_discards(done: &Done) -> usize {
    let at = |kill| done.step(&format!("kill {kill}")).begin_ns;
    // The guest's own clock started at the first mark, except for the boot.
    let boot = done.marks[1].at.0 - done.steps[0].end_ns;
    let within = |at: u64| {
        let mut discards = done.trace.iter().filter(|entry| entry.kind == Traced::Discard);
        discards.any(|entry| (entry.at_ns..entry.done_ns).contains(&(boot + at)))
    };
    (0..KILLS).filter(|&kill| within(at(kill))).count()
}

fn leaves_everything_sound(file_system: FileSystem) {
    let Some(kernel) = kernel(file_system) else { return };
    is_sound(&killed(file_system, 1).run(&kernel, 1));
}

#[track_caller]
fn is_sound(done: &Done) {
    let within = within_discards(done);
    eprintln!("{within} of {KILLS} kills came while the drive was at a discard");
    assert!(within >= KILLS_WITHIN_DISCARDS, "only {within} kills came while the drive was at a discard");
    let history = done.json("history");
    assert_eq!(history["entries"].as_array().unwrap().last().unwrap()["kind"], "policy", "{history:#}");
}

test_on!(leaves_everything_sound: ext4 btrfs);

#[test]
fn killed_fifty_times_on_xfs_and_the_same_twice() {
    let Some(kernel) = kernel(FileSystem::Xfs) else { return };
    let run = || killed(FileSystem::Xfs, 1).run(&kernel, 1);
    let (first, second) = std::thread::scope(|scope| {
        let other = scope.spawn(run);
        (run(), other.join().unwrap())
    });
    is_sound(&first);
    assert_eq!(first.trace, second.trace, "what the drive was asked for");
    let steps = |done: &Done| serde_json::to_string(&done.steps).unwrap();
    assert_eq!(steps(&first), steps(&second), "what each step gave, and when");
}

/// Asserts that nothing is waiting, or only what is not yet worth a command and below the bound (ext4), or that the
/// kernel's own discard handles it (btrfs).
#[track_caller]
fn is_cared_for(done: &Done, when: &str) {
    let status = done.status(when);
    let waits = status["waiting_bytes"].as_u64();
    let is_put_off = status["reason"]["code"] == "parts-only" && waits <= status["bound_bytes"].as_u64();
    let trimmed = (waits == Some(0) || is_put_off) && status["totals"]["slices"].as_u64() > Some(0);
    assert!(trimmed || status["reason"]["code"] == "online", "{when}: {status:#}");
}

/// Asserts that the mount is skipped, or not there.
#[track_caller]
fn is_let_alone(done: &Done, when: &str) {
    assert_eq!(done.status(when), Value::Null, "{when}");
}

/// Asserts that at least `least` bytes were discarded between two steps.
#[track_caller]
fn is_discarded(done: &Done, from: &str, to: &str, least: u64) {
    let bytes = done.discarded_before(to) - done.discarded_before(from);
    assert!(bytes >= least, "from {from} to {to}: {bytes} bytes");
}

#[track_caller]
fn tells_of(done: &Done, kinds: &[&str]) {
    let history = done.json("history");
    let told =
        |kind: &&str| history["entries"].as_array().unwrap().iter().any(|entry| entry["kind"] == **kind);
    assert!(kinds.iter().all(told), "{kinds:?}: {history:#}");
}

fn follows_its_mount(file_system: FileSystem) {
    let Some(kernel) = kernel(file_system) else { return };
    let (mkfs, before_mount, grow): (&[&str], _, &[&str]) = match file_system {
        FileSystem::Ext4 => (&[], "resize2fs /dev/vda 512M", &["resize2fs", "/dev/vda"]),
        FileSystem::Xfs => (&["-d", "size=512m"], "true", &["xfs_growfs", "-d", MOUNT_POINT]),
        _ => (&["-b", "512m"], "true", &["btrfs", "filesystem", "resize", "max", MOUNT_POINT]),
    };
    let mut script = Script::new(file_system, mkfs, before_mount);
    script.daemon("toggle = true\npressure-max = 101");
    script.sleep_s(PATIENCE_S);
    script.status("at first");
    script.then(Step::Remount { options: "ro".to_owned() });
    script.sleep_s(10);
    script.status("read-only");
    script.then(Step::Remount { options: String::new() });
    script.sleep_s(PATIENCE_S);
    script.status("read-write");
    script.shell("fill", &format!("dd if=/dev/zero of={MOUNT_POINT}/full bs=1M"));
    script.then(Step::Sync);
    script.sleep_s(10);
    script.status("full");
    script.then(Step::Remove { file: "full".to_owned() });
    script.sleep_s(PATIENCE_S);
    script.status("empty again");
    script.program("grow", grow);
    script.sleep_s(PATIENCE_S);
    script.status("grown");
    script.then(Step::Unmount);
    script.sleep_s(10);
    script.status("unmounted");
    script.mount();
    script.sleep_s(PATIENCE_S);
    script.status("mounted again");
    script.history("history");
    script.then(Step::StopDaemon);

    let done = script.run(&kernel, 1);
    for when in ["at first", "empty again", "grown", "mounted again"] {
        is_cared_for(&done, when);
    }
    let again = done.status("read-write");
    let waits = again["waiting_bytes"].as_u64();
    let is_known = again["mapped"] == true && waits <= again["bound_bytes"].as_u64();
    assert!(is_known || again["reason"]["code"] == "online", "{again:#}");
    if file_system != FileSystem::Btrfs {
        assert_eq!(
            done.discarded_before("read-only"),
            done.discarded_before("read-write"),
            "nothing is sent again"
        );
    }
    is_let_alone(&done, "read-only");
    let skipped = done.json("read-only")["skipped"].to_string();
    assert!(skipped.contains(&format!("\"mount_point\":\"{MOUNT_POINT}\"")), "{skipped}");
    let (full, grown) = (done.status("full"), done.status("grown"));
    assert!(full["used_bytes"].as_u64() > full["total_bytes"].as_u64().map(|all| all / 10 * 8), "{full:#}");
    is_discarded(&done, "full", "empty again", Bytes::mib(250).0);
    assert!(grown["total_bytes"].as_u64() > Some(Bytes::mib(900).0), "{grown:#}");
    is_let_alone(&done, "unmounted");
    let acts = if file_system == FileSystem::Btrfs { "online" } else { "trimmed" };
    tells_of(&done, &["found", "gone", acts]);
}

test_on!(follows_its_mount: ext4 xfs btrfs);

/// An option that the daemon turned on is restored when the mount becomes read-only; the mount must stay read-only.
fn regression_a_read_only_mount_stays_read_only(file_system: FileSystem) {
    let Some(kernel) = kernel(file_system) else { return };
    let mut script = Script::new(file_system, &[], "true");
    script.daemon("toggle = true\npolicy = \"set:1:2\"");
    script.sleep_s(30);
    script.named("on", Step::Read { path: "/proc/self/mountinfo".to_owned() });
    script.then(Step::Remount { options: "ro".to_owned() });
    script.sleep_s(30);
    script.named("read-only", Step::Read { path: "/proc/self/mountinfo".to_owned() });
    script.then(Step::StopDaemon);
    script.named("ended", Step::Read { path: "/proc/self/mountinfo".to_owned() });
    script.then(Step::Remount { options: String::new() });

    let done = script.run(&kernel, 1);
    // The last field is the file system's own options, after the device.
    let of_file_system = |name| {
        let options = done.mount_options(name);
        options.rsplit(' ').next().unwrap().split(',').map(str::to_owned).collect::<Vec<_>>()
    };
    let has = |name, word: &str| of_file_system(name).iter().any(|option| option.starts_with(word));
    assert!(has("on", "discard") && has("on", "rw"), "{:?}", of_file_system("on"));
    for name in ["read-only", "ended"] {
        assert!(has(name, "ro") && !has(name, "discard"), "{name}: {:?}", of_file_system(name));
    }
}

test_on!(regression_a_read_only_mount_stays_read_only: ext4 btrfs);

fn tells_what_its_drive_does(file_system: FileSystem) {
    let Some(kernel) = kernel(file_system) else { return };
    let mut script = Script::new(file_system, &[], "true");
    let trim_now = |script: &mut Script, name: &str| {
        script.trimwise("", &["trim", MOUNT_POINT, "--now"]);
        script.sleep_s(PATIENCE_S);
        script.status(name);
    };
    script.daemon("pressure-max = 101\ntoggle = false");
    script.sleep_s(PATIENCE_S);
    trim_now(&mut script, "sound");
    script.during(Fault::DiscardsFail, |script| {
        script.free(FREED);
        trim_now(script, "failing");
    });
    trim_now(&mut script, "sound again");
    script.then(Step::Append { file: "gone".to_owned(), bytes: FREED.0 });
    script.then(Step::Sync);
    script.sleep_s(5);
    script.during(Fault::Gone, |script| {
        script.shell("", "rm gone; sync -f .");
        trim_now(script, "gone");
        script.then(Step::Unmount);
        script.sleep_s(20);
        script.status("unmounted");
    });
    script.mount();
    script.sleep_s(PATIENCE_S);
    trim_now(&mut script, "back");
    script.during(Fault::DiscardsRefused, |script| {
        script.free(FREED);
        trim_now(script, "refused");
    });
    script.history("history");
    script.then(Step::StopDaemon);

    let done = script.run(&kernel, 1);
    for when in ["sound", "sound again", "back"] {
        is_cared_for(&done, when);
    }
    let failing = done.status("failing");
    assert_eq!(failing["reason"]["code"], "failed", "{failing:#}");
    let words = ["discards failed", "Input/output error"];
    assert!(words.iter().any(|words| failing["why"].as_str().unwrap().contains(words)), "{failing:#}");
    assert!(failing["waiting_bytes"].as_u64() >= Some(FREED.0 * 9 / 10), "it still waits: {failing:#}");
    is_discarded(&done, "failing", "sound again", FREED.0 * 9 / 10);
    // ext4 and XFS are still there, but fail; btrfs is read-only at once.
    let gone = done.status("gone");
    let skipped = done.json("gone")["skipped"].to_string();
    assert!(
        gone["reason"]["code"] == "failed" || gone.is_null() && skipped.contains(MOUNT_POINT),
        "{gone:#} {skipped}"
    );
    is_let_alone(&done, "unmounted");
    // Linux treats discards that virtio refuses as done, so that failure cannot be seen.
    assert_eq!(done.discarded_before("refused"), done.discarded_before("back"));
    tells_of(&done, &["found", "gone", "trimmed", "failed"]);
}

test_on!(tells_what_its_drive_does: ext4 xfs btrfs);

#[test]
fn a_clock_that_jumps_a_second_daemon_a_flood_of_mounts() {
    let Some(kernel) = kernel(FileSystem::Ext4) else { return };
    let mut script = Script::new(FileSystem::Ext4, &[], "true");
    script.daemon("pressure-max = 101");
    script.sleep_s(PATIENCE_S);
    script.status("at first");
    // 2096, and 1973.
    for clock in ["4000000000", "100000000"] {
        script.shell("", &format!("date -s @{clock}"));
        script.free(FREED);
        script.sleep_s(PATIENCE_S);
        script.status(clock);
    }
    script.second_daemon("second");
    script.shell(
        "",
        &format!(
            "i=0; while [ $i -lt {MOUNTS} ]; do mkdir /tmp/m$i; case $((i % 2)) in \
             0) mount -t tmpfs tmpfs /tmp/m$i;; 1) mount --bind {MOUNT_POINT} /tmp/m$i;; esac; i=$((i + 1)); done"
        ),
    );
    script.free(FREED);
    script.sleep_s(PATIENCE_S);
    script.status("flood");
    script.shell("", &format!("i=0; while [ $i -lt {MOUNTS} ]; do umount /tmp/m$i; i=$((i + 1)); done"));
    script.history("history");
    script.then(Step::StopDaemon);

    let done = script.run(&kernel, 1);
    for (from, to) in [("at first", "4000000000"), ("4000000000", "100000000"), ("100000000", "flood")] {
        is_cared_for(&done, to);
        assert!(done.discarded_before(to) >= done.discarded_before(from));
    }
    // What was freed three times, apart from what may wait.
    is_discarded(&done, "at first", "flood", FREED.0);
    let second = done.program("second");
    assert!(
        second.code == Some(1) && second.errors.text().contains("another trimwised uses it"),
        "{second:?}"
    );
    let flood = done.json("flood");
    assert_eq!(flood["file_systems"].as_array().unwrap().len(), 1);
    assert_eq!(flood["skipped"].to_string().matches("the same file system as").count() as u64, MOUNTS / 2);
    // Entries stay in the order in which they happened, whatever the clock said.
    let history = done.json("history");
    let clocks = history["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["at_ms"].as_i64().unwrap() / 100_000_000_000);
    let mut clocks: Vec<i64> = clocks.collect();
    clocks.dedup();
    assert_eq!(clocks, [18, 40, 1], "{history:#}");
}

#[test]
fn a_state_folder_that_is_full_or_broken() {
    let Some(kernel) = kernel(FileSystem::Ext4) else { return };
    let state = format!("{DAEMON_FOLDER}/state");
    let mut script = Script::new(
        FileSystem::Ext4,
        &[],
        &format!("mkdir -p {state} && mount -t tmpfs -o size=256k,mode=700 tmpfs {state}"),
    );
    script.daemon("pressure-max = 101");
    script.sleep_s(PATIENCE_S);
    script.history("at first");
    script.shell("", &format!("dd if=/dev/zero of={state}/ballast bs=4k; true"));
    script.free(FREED);
    script.sleep_s(PATIENCE_S);
    script.status("status when full");
    script.history("full");
    script.named("killed when full", Step::KillDaemon);
    script.daemon("pressure-max = 101");
    script.sleep_s(PATIENCE_S);
    script.status("status begun full");
    script.history("begun full");
    script.shell("", &format!("rm {state}/ballast"));
    script.sleep_s(PATIENCE_S);
    script.history("room again");
    for file in ["history.db", "known.json", "mount-options.json"] {
        script.shell("", &format!("head -c 10000 /dev/zero | tr '\\0' x > {state}/{file}"));
    }
    script.free(FREED);
    script.sleep_s(PATIENCE_S);
    script.history("broken");
    script.named("killed when broken", Step::KillDaemon);
    for file in ["history.db", "known.json", "mount-options.json"] {
        script.shell("", &format!("head -c 10000 /dev/zero | tr '\\0' x > {state}/{file}"));
    }
    script.daemon("pressure-max = 101");
    script.sleep_s(PATIENCE_S);
    script.status("status begun broken");
    script.history("begun broken");
    script.named("said", Step::StopDaemon);
    script.shell("files", &format!("ls {state}"));

    let done = script.run(&kernel, 1);
    for (from, to) in [("at first", "status when full"), ("room again", "broken")] {
        is_discarded(&done, from, to, FREED.0 * 4 / 10);
    }
    for when in ["status when full", "status begun full", "status begun broken"] {
        is_cared_for(&done, when);
    }
    // What is written stays, and what does not fit waits in memory; a kill loses it.
    let entries = |name: &str| done.json(name)["entries"].as_array().unwrap().clone();
    assert_eq!(entries("full")[..entries("at first").len()], entries("at first"));
    assert!(entries("full").len() > entries("at first").len());
    assert_eq!(entries("begun full")[..entries("at first").len()], entries("at first"));
    assert_eq!(entries("room again"), entries("begun full"));
    // A broken file is moved aside, and a new one is started.
    for (name, kind) in [("broken", "trimmed"), ("begun broken", "found")] {
        assert_eq!(entries(name)[0]["kind"], kind, "{:?}", entries(name));
    }
    assert!(done.output("files").lines().any(|file| file == "history.db.aside"));
    assert!(done.text("said").contains("known.json cannot be parsed"), "{}", done.text("said"));
}

/// f2fs does not list its free space: the daemon walks all of its addresses, slice by slice.
#[test]
fn what_f2fs_has_freed_is_found_by_a_walk() {
    let Some(kernel) = kernel(FileSystem::F2fs) else { return };
    let remount = |script: &mut Script, option: &str| {
        script.then(Step::Remount { options: option.to_owned() });
    };
    let mut script = Script::new(FileSystem::F2fs, &[], "true");
    remount(&mut script, "nodiscard"); // its default is to discard
    script.daemon("pressure-max = 101");
    script.free(FREED);
    script.sleep_s(30);
    script.status("freed");
    script.trimwise("", &["trim", MOUNT_POINT, "--now"]);
    script.sleep_s(PATIENCE_S);
    script.status("walked");
    script.trimwise("", &["trim", MOUNT_POINT, "--now"]);
    script.sleep_s(PATIENCE_S);
    script.status("walked again");
    script.history("history");
    script.then(Step::StopDaemon);
    remount(&mut script, "discard,alloc_mode=reuse"); // a remount would reset alloc_mode

    let done = script.run(&kernel, 1);
    let freed = done.status("freed");
    assert!(freed["mapped"] == false && freed["waiting_bytes"].as_u64() >= Some(FREED.0), "{freed:#}");
    is_cared_for(&done, "walked");
    is_discarded(&done, "freed", "walked", FREED.0);
    assert!(done.status("walked")["totals"]["slices"].as_u64() > Some(3), "{:#}", done.status("walked"));
    // f2fs keeps a record of what it has sent.
    let again = done.discarded_before("walked again") - done.discarded_before("walked");
    assert!(again < FREED.0, "{again} bytes");
    tells_of(&done, &["found", "trimmed"]);
}
