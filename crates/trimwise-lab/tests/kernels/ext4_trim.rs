//! The patch set `kernel/ext4-trim`: SeT, Lazy TRIM and Reuse TRIM in the real ext4 of Linux 6.12.

use std::collections::BTreeMap;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;
use trimwise::units::Bytes;
use trimwise_uml::disk::Fault;
use trimwise_uml::job::{FileSystem, Step};

use crate::common::command_in as trimwise;
use crate::guest_daemon::{Done, Script};
use crate::reproduction::{changed_drive, error, folder_with_drive, image};

/// The kernel of these tests: `trimwise kernel build --version 6.12 --with kernel/ext4-trim`.
const KERNEL: &str = "6.12+ext4-trim";

/// What the scripts below share. `write_files` leaves files that lie next to each other, each with the numbers from its
/// name on; `check_files` reads them from the drive.
const HELPERS: &str = r#"
    mount_point=$PWD; options=$1
    device=$(awk -v at="$PWD" '$2 == at { print $1 }' /proc/self/mounts)
    content() { seq "$1" 99999 | head -c 65536; }
    write_files() { for i in $(seq "$1" "$2"); do content "$i" >"$i"; done; sync; sleep 8; }
    check_files() {
        sync; echo 3 >/proc/sys/vm/drop_caches
        for i in [0-9]*; do content "$i" | cmp - "$i" || exit 3; done
    }
    check_file_system() {
        cd /; umount "$mount_point" || exit 4; e2fsck -fn "$device" >&2 || exit 5
        mount -t ext4 -o "$options" "$device" "$mount_point" && cd "$mount_point" || exit 6
    }
    counters() { for f in /sys/fs/ext4/*/trim_*; do echo "${f##*/trim_} $(cat "$f")"; done; }
    counter() { cat /sys/fs/ext4/*/trim_"$1"; }
"#;

/// A guest's run: its script's lines, and the phases of its result by their names.
struct Guest {
    lines: Vec<String>,
    phases: BTreeMap<String, Value>,
}

impl Guest {
    /// Returns what the script printed after this word: a counter, above all.
    #[track_caller]
    fn number(&self, word: &str) -> u64 {
        let line = self.lines.iter().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no '{word}' in {:?}", self.lines)).trim().parse().unwrap()
    }

    /// Asserts that each block handed over went exactly one way, and that none is left.
    #[track_caller]
    fn is_balanced(&self) {
        let [queued, issued, reused, dropped] =
            ["queued_blocks", "issued_blocks", "reused_blocks", "dropped_blocks"]
                .map(|name| self.number(name));
        assert_eq!(queued, issued + reused + dropped, "{:?}", self.lines);
        assert_eq!((self.number("pending_blocks"), self.number("queue_length")), (0, 0), "{:?}", self.lines);
    }

    fn discarded_bytes(&self, phase: &str) -> u64 {
        self.phases[phase]["requests"]["discarded_bytes"].as_u64().unwrap()
    }
}

fn run(folder: &TempDir, options: &str, script: &str) -> Output {
    run_on(folder, "drive.toml", options, script)
}

fn run_on(folder: &TempDir, drive: &str, options: &str, script: &str) -> Output {
    let line = format!("kernel run {KERNEL}:ext4:{options} --device {drive} --memory 256 --json - -- sh -ec");
    let script = format!("{HELPERS}\n{script}");
    trimwise(folder.path(), &line).args([&script, "sh", options]).output().unwrap()
}

#[track_caller]
fn guest(folder: &TempDir, options: &str, script: &str) -> Guest {
    guest_of(&run(folder, options, script), options)
}

#[track_caller]
fn guest_of(output: &Output, options: &str) -> Guest {
    let result: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{options}: {e}: {}", error(output)));
    assert!(output.status.success(), "{options}: {}\n{}", error(output), result["program"]);
    let phases = result["phases"].as_array().unwrap().iter();
    Guest {
        lines: result["program"]["output"].as_str().unwrap().lines().map(str::to_owned).collect(),
        phases: phases.map(|p| (p["phase"].as_str().unwrap().to_owned(), p.clone())).collect(),
    }
}

#[test]
fn options_are_shown_and_can_be_changed() {
    let Some(folder) = folder_with_drive(KERNEL) else { return };
    let script = r#"
        shown() { awk -v at="$PWD" '$2 == at { print $4 }' /proc/self/mounts; }
        shown
        for options in discard=serial discard=commit,trim_low=20,trim_high=80 discard=lazy,trim_reuse discard nodiscard
        do mount -o remount,"$options" "$PWD"; shown; done"#;
    let lines = guest(&folder, "discard=lazy,trim_workers=2-5,trim_drain=70", script).lines;
    let expected = [
        "rw,relatime,discard=lazy,trim_workers=2-5,notrim_reuse,trim_drain=70",
        "rw,relatime,discard=serial",
        "rw,relatime,discard=commit,trim_low=20,trim_high=80",
        "rw,relatime,discard=lazy,trim_workers=2-5,trim_reuse,trim_drain=70,trim_low=20,trim_high=80",
        "rw,relatime,discard,trim_low=20,trim_high=80",
        // The watermarks decide again with discard.
        "rw,relatime,trim_low=20,trim_high=80",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn bad_options_refuse_the_mount_and_the_log_says_why() {
    let Some(folder) = folder_with_drive(KERNEL) else { return };
    for (options, why) in [
        ("discard=later", "Bad value for 'discard'"),
        ("discard=lazy,trim_workers=0-3", "trim_workers=0-3: must be MIN-MAX with 1 <= MIN <= MAX <= 64"),
        ("discard=lazy,trim_workers=5-4", "trim_workers=5-4: must be MIN-MAX"),
        ("discard=lazy,trim_workers=1-65", "trim_workers=1-65: must be MIN-MAX"),
        ("discard=lazy,trim_workers=8", "trim_workers=8: must be MIN-MAX"),
        ("discard=lazy,trim_workers=+1-8", "trim_workers=+1-8: must be MIN-MAX"),
        ("discard=lazy,trim_workers=4294967297-4294967298", "must be MIN-MAX"),
        ("discard=lazy,trim_drain=600001", "trim_drain=600001 is above 600000 ms"),
        ("discard,trim_high=101", "trim_high=101 is above 100 %"),
        ("discard,trim_high=half", "Bad value for 'trim_high'"),
        ("discard,trim_low=-1,trim_high=9", "Bad value for 'trim_low'"),
        ("discard,trim_low=50,trim_high=40", "trim_low=50 is above trim_high=40"),
        ("discard,trim_low=50", "trim_low=50 is above trim_high=0"),
        ("trim_high=50", "trim_low and trim_high need discard"),
        ("discard=serial,trim_reuse", "trim_workers, trim_reuse and trim_drain need discard=lazy"),
    ] {
        let output = run(&folder, options, "true");
        let message = error(&output);
        assert_eq!(output.status.code(), Some(1), "{options}: {message}");
        assert!(message.contains(why), "{options}: {message}");
    }
}

/// `fsconfig` goes on after a value that was refused, with what was given before.
#[test]
fn a_refused_value_leaves_what_was_given_before() {
    let Some(folder) = folder_with_drive(KERNEL) else { return };
    let script = r#"
        cd /; umount "$mount_point"
        cat >/tmp/fsconfig.py <<'END'
import ctypes, sys
device, at, *values = sys.argv[1:]
NR_MOVE_MOUNT, NR_FSOPEN, NR_FSCONFIG, NR_FSMOUNT = 429, 430, 431, 432
SET_STRING, CREATE = 1, 6
system_call = ctypes.CDLL(None).syscall
context = system_call(NR_FSOPEN, b"ext4", 0)
def set(key, value):
    return system_call(NR_FSCONFIG, context, SET_STRING, key.encode(), value.encode(), 0)
assert set("source", device) == 0 and set("discard", "lazy") == 0
print("taken", *(value for value in values if set("trim_workers", value) == 0))
assert system_call(NR_FSCONFIG, context, CREATE, None, None, 0) == 0
mount = system_call(NR_FSMOUNT, context, 0, 0)
assert system_call(NR_MOVE_MOUNT, mount, b"", -100, at.encode(), 4) == 0
END
        for values in "2-5 1-999999" "2-5 0-0"; do
            python3 /tmp/fsconfig.py "$device" "$mount_point" $values
            grep -o 'trim_workers=[^,]*' /proc/self/mounts
            umount "$mount_point"
        done
        mount "$device" "$mount_point""#;
    let lines = guest(&folder, "discard=lazy", script).lines;
    assert_eq!(lines, ["taken 2-5", "trim_workers=2-5"].repeat(2));
}

/// A read-only mount that leaves the journal alone, to rescue what is there, takes these options like any other; only
/// writing needs the journal.
#[test]
fn a_mount_without_its_journal_is_read_only_or_refused() {
    let Some(folder) = folder_with_drive(KERNEL) else { return };
    let script = r#"
        cd /; umount "$mount_point"; mount -o ro,noload,"$options" "$device" "$mount_point"; echo mounted
        mount -o remount,rw "$mount_point" 2>/dev/null && exit 7
        umount "$mount_point"; mkfs.ext4 -q -F -O ^has_journal "$device"
        mount -o "$options" "$device" "$mount_point" 2>/dev/null && exit 8
        dmesg | grep -o "discard=lazy needs a journal" | uniq -c
        mount "$device" "$mount_point""#;
    assert_eq!(
        guest(&folder, "discard=lazy", script).lines,
        ["mounted", "      2 discard=lazy needs a journal"]
    );
}

/// 100 of 200 files that lie next to each other are removed: as many extents.
const REMOVE_EVERY_SECOND: &str =
    "write_files 1 200; rm -- *[13579]; sync .; echo after_commit $(counter pending_blocks);
    sleep 20; counters; check_files; check_file_system";

#[test]
fn what_was_freed_is_discarded_and_nothing_else() {
    let Some(folder) = folder_with_drive(KERNEL) else { return };
    for (mode, in_commit) in [("serial", true), ("commit", true), ("lazy", false)] {
        let guest = guest(&folder, &format!("discard={mode}"), REMOVE_EVERY_SECOND);
        guest.is_balanced();
        let issued = guest.number("issued_blocks");
        assert!(issued >= 1600 && issued == guest.number("queued_blocks"), "{mode}: {issued}");
        assert_eq!(guest.discarded_bytes("program"), issued * 4096, "{mode}");
        assert!(guest.number("commands") >= 100 && guest.number("time_ns") > 0, "{mode}: {:?}", guest.lines);
        // Within the commit, or after it.
        assert_eq!(guest.number("after_commit") == 0, in_commit, "{mode}");
    }
}

/// A drive forgets whole units of its granularity. The counters say what it forgot, not what it was sent.
#[test]
fn the_counters_say_what_a_drive_of_coarse_granularity_forgot() {
    let Some(folder) = folder_with_drive(KERNEL) else { return };
    let modes = ["serial", "lazy", "lazy,trim_reuse", "commit"];
    // Units of 64 KiB, and of 192 KiB. The block layer cuts discards as if a granularity were a power of two, and joins
    // the pieces again unless all discards are sent together.
    for (units, modes) in [(16, &modes[..]), (48, &modes[..3])] {
        let drive = &format!("{units}.toml");
        changed_drive(&folder, drive, "granularity_units = 1", &format!("granularity_units = {units}"));
        // Up to 4.3 units each, so that what is freed neither begins nor ends with a unit.
        let script = &format!(
            "for i in $(seq 400); do content $i | cat - /dev/zero | head -c $((i * {units} * 44)) >$i; done; sync
             rm *[13579]; sync .; sleep 20; counters"
        );
        for mode in modes {
            let options = &format!("discard={mode}");
            let told = &format!("{options}, {units} units");
            let guest = guest_of(&run_on(&folder, drive, options, script), told);
            guest.is_balanced();
            let [issued, dropped] = ["issued_blocks", "dropped_blocks"].map(|name| guest.number(name));
            assert!(issued > 1000 && dropped > 1000, "{told}: {:?}", guest.lines);
            assert_eq!(guest.phases["program"]["device_stats"]["trimmed_units"], issued, "{told}");
            assert!(guest.discarded_bytes("program") > issued * 4096, "{told}");
        }
    }
}

#[test]
fn selective_trim_is_off_when_there_is_room_and_on_when_there_is_none() {
    let Some(folder) = folder_with_drive(KERNEL) else { return };
    // With data=writeback, plain discard does not wait for the commit; the gate decides there.
    for mode in ["async", "async,data=writeback", "serial", "commit", "lazy", "lazy,trim_reuse"] {
        let options = format!("discard={mode},trim_low=90,trim_high=95");
        let closed = guest(&folder, &options, REMOVE_EVERY_SECOND);
        closed.is_balanced();
        assert_eq!((closed.discarded_bytes("program"), closed.number("open")), (0, 0), "{mode}");
        assert!(closed.number("dropped_blocks") >= 1600, "{mode}: {:?}", closed.lines);
        let open = guest(&folder, &format!("discard={mode},trim_high=1"), REMOVE_EVERY_SECOND);
        assert!(open.discarded_bytes("program") >= 1600 * 4096 && open.number("open") == 1, "{mode}");
    }
}

/// It turns when twice as much is allocated as freed within ten seconds, or freed as allocated, however small the part of
/// the drive.
#[test]
fn between_the_watermarks_the_direction_decides() {
    let Some(folder) = folder_with_drive(KERNEL) else { return };
    let script =
        "change() { rm -f $(seq $1 $2); for i in $(seq $3 $4); do content $i >$i; done; sync; sleep 12; }
        write_files 1 5; write_files 6 200; echo rising $(counter open); sleep 20
        change 1 40 201 230; echo rising_mix $(counter open)
        change 41 150 0 -1; echo falling $(counter open); sleep 20
        change 151 180 301 340; echo falling_mix $(counter open)
        change 0 -1 401 410; echo little $(counter open)";
    let guest = guest(&folder, "discard=commit,trim_low=0,trim_high=100", script);
    assert_eq!(
        ["rising", "rising_mix", "falling", "falling_mix", "little"].map(|when| guest.number(when)),
        [0, 0, 1, 1, 1],
        "{:?}",
        guest.lines
    );
}

/// What was allocated and freed before says nothing of a time without discard.
#[test]
fn the_watermarks_begin_anew_with_discard() {
    let Some(folder) = folder_with_drive(KERNEL) else { return };
    let script = "write_files 1 5; write_files 6 100; echo rising $(counter open)
        mount -o remount,nodiscard .; mount -o remount,discard=commit .; echo anew $(counter open)
        write_files 101 105; write_files 106 200; echo rising_again $(counter open)";
    let guest = guest(&folder, "discard=commit,trim_low=0,trim_high=100", script);
    let open = ["rising", "anew", "rising_again"].map(|when| guest.number(when));
    assert_eq!(open, [0, 1, 0], "{:?}", guest.lines);
}

#[test]
fn unmounting_drains_the_queue_within_its_bound_or_drops_it() {
    let Some(folder) = folder_with_drive(KERNEL) else { return };
    let script = "write_files 1 400; rm -- *[13579]; sync .; echo pending $(counter pending_blocks)";
    let mut at_unmount = [0; 2];
    for (at_unmount, drain) in at_unmount.iter_mut().zip([0, 60_000]) {
        let guest = guest(&folder, &format!("discard=lazy,trim_workers=1-1,trim_drain={drain}"), script);
        let pending = guest.number("pending") * 4096;
        *at_unmount = guest.discarded_bytes("unmount") * 100 / pending;
    }
    // Of what was pending, in percent: next to nothing, then all but what went out before the unmount began.
    assert!(at_unmount[0] < 50 && at_unmount[1] >= 90, "{at_unmount:?}");
}

/// What is freed last waits for its discard while a full file system is written to.
#[test]
fn what_waits_for_its_discard_is_room_for_a_full_file_system() {
    let Some(folder) = folder_with_drive(KERNEL) else { return };
    let script = r#"
        write_files 1 200
        step=1073741824; at=0
        while [ $step -ge 4096 ]; do
            if fallocate -o $at -l $step fill 2>/dev/null; then at=$((at + step)); else step=$((step / 2)); fi
        done
        sync; sleep 8; echo left $(stat -f -c %a .)
        rm -- *[13579]; sync .
        for i in $(seq 201 290); do content $i >$i || exit 7; sync $i; done
        sync; sleep 20; counters; check_files; check_file_system"#;
    for mode in ["serial", "commit", "lazy,trim_workers=1-1", "lazy,trim_workers=1-1,trim_reuse"] {
        let guest = guest(&folder, &format!("discard={mode}"), script);
        guest.is_balanced();
        assert!(guest.number("left") < 300, "{mode}: {:?}", guest.lines);
    }
}

/// A drive whose TRIM takes 80 ms would take a minute for what waits here. An allocation does not wait for it: it takes
/// its room from the queue. Nor does one that has no room for another reason.
#[test]
fn no_allocation_waits_for_the_queue() {
    let Some(folder) = folder_with_drive(KERNEL) else { return };
    let queue = r#"
        cd /; umount "$mount_point"; mkfs.ext4 -q -F -m 0 -N 100 "$device" 256M
        mount -o "$options" "$device" "$mount_point"; cd "$mount_point"
        fallocate -l 128M holes
        for i in $(seq 0 2 1023); do echo "fpunch $((i * 128))k 128k"; done | xfs_io holes
        sync .; before=$(counter issued_blocks)
        waiting() { [ $(($(counter issued_blocks) - before)) -lt 8192 ] || { counters; exit 7; } }"#;
    for (name, then) in [
        ("room", "dd if=/dev/zero of=fill bs=1M 2>/dev/null || sync; echo left $(stat -f -c %a .)"),
        (
            "no inode",
            "for i in $(seq 9999); do true 2>/dev/null >i$i || break; done; [ $i -lt 9999 ] || exit 8; echo left 0",
        ),
        (
            "too large an attribute",
            "python3 -c \"import os; os.setxattr('holes', 'user.a', b'x' * 5000)\" 2>/dev/null && exit 8; echo left 0",
        ),
    ] {
        let script = format!("{queue}\n{then}\nwaiting; mount -o remount,trim_drain=0 .; check_file_system");
        let options = "discard=lazy,trim_workers=1-1";
        let guest = guest_of(&run_on(&folder, "vendor2", options, &script), name);
        assert!(guest.number("left") < 32, "{name}: {:?}", guest.lines);
    }
}

/// A drive on which one discard takes ten seconds, and `$device` with little room on it. The block that listed the extents
/// of what is removed may be a discard of its own.
fn slow_and_full(folder: &TempDir, options: &str, mkfs: &str, script: &str) -> Guest {
    changed_drive(folder, "slow.toml", "command_ns = 300_000", "command_ns = 10_000_000_000");
    let script = format!(
        "cd /; umount $mount_point; mkfs.ext4 -q -F -b 4096 -E nodiscard {mkfs} $device 256M
         mount -o $options $device $mount_point; cd $mount_point
         since() {{ echo waited $(($(date +%s) - $1)); }}
         fill() {{
             step=134217728; at=0
             while [ $step -ge 4096 ]; do
                 if \"$@\" fallocate -o $at -l $step full 2>/dev/null; then at=$((at + step)); else step=$((step / 2)); fi
             done
         }}
         {script}
         mount -o remount,trim_drain=0 .; check_file_system"
    );
    guest_of(&run_on(folder, "slow.toml", options, &script), options)
}

/// What is in flight may be all that an ordinary user has left. Renaming into a directory that needs a block waits for
/// it, as creating does.
#[test]
fn a_name_that_is_moved_waits_for_what_is_in_flight() {
    let Some(folder) = folder_with_drive(KERNEL) else { return };
    let script = r#"
        name=$(printf 'n%.0s' $(seq 246)); chmod 777 .; mkdir -m 777 d
        for i in $(seq 10 24); do true >d/$name$i; done; true >${name}25
        user() { setpriv --reuid 1000 --clear-groups "$@"; }
        user true; user fallocate -l 32M big; touch full; chmod 666 full; fill user
        sync; rm big; sync .; began=$(date +%s)
        echo left $(stat -f -c %a .); user mv ${name}25 d; since $began; ls d | wc -l"#;
    for options in ["discard=lazy", "discard=lazy,trim_reuse"] {
        let guest = slow_and_full(&folder, options, "-m 20 -N 200", script);
        assert!(guest.number("left") >= 8192, "{options}: {:?}", guest.lines);
        assert!((5..25).contains(&guest.number("waited")), "{options}: {:?}", guest.lines);
        assert_eq!(guest.lines.last().unwrap(), "16", "{options}");
    }
}

/// A write through a mapping first moves inline data to a block, and waits for that block instead of failing with SIGBUS.
#[test]
fn inline_data_written_through_a_mapping_wait_for_what_is_in_flight() {
    let Some(folder) = folder_with_drive(KERNEL) else { return };
    let script = r#"
        chmod 777 .; user() { setpriv --reuid 1000 --clear-groups "$@"; }
        user sh -c 'echo inline >small'; user fallocate -l 32M big; touch full; chmod 666 full; fill user
        sync; user python3 -c 'import mmap'; echo inline $(stat -c %b small); rm big; sync .; began=$(date +%s)
        user python3 -c "
import mmap
with open('small', 'r+b') as file, mmap.mmap(file.fileno(), 0) as mapped:
    mapped[0] = ord('I')"
        since $began; echo sectors $(stat -c %b small); cat small"#;
    let options = "discard=lazy";
    let guest = slow_and_full(&folder, options, "-m 20 -N 200 -O inline_data", script);
    assert_eq!(["inline", "sectors"].map(|when| guest.number(when)), [1, 8], "{:?}", guest.lines);
    assert!((5..25).contains(&guest.number("waited")), "{:?}", guest.lines);
    assert_eq!(guest.lines.last().unwrap(), "Inline");
}

/// What is in flight may be all that is free: when others have used the reserved clusters, or because what a transaction
/// frees is room before its commit. What may not fail (here a block for the extents of a file that a hole is punched
/// into) waits for it.
#[test]
fn what_may_not_fail_waits_for_what_is_in_flight() {
    let Some(folder) = folder_with_drive(KERNEL) else { return };
    let script = |meanwhile: &str| {
        format!(
            r#"echo 0 >/sys/fs/ext4/"${{device#/dev/}}"/reserved_clusters
            for i in 0 2 4 6; do fallocate -o ${{i}}M -l 1M four; done
            fallocate -l 32M big; fallocate -l 32M later; touch full; fill; sync
            for i in $(seq 100); do fallocate -l 4K more$i 2>/dev/null || break; done; sync
            echo left $(stat -f -c %f .); rm big; sync .; began=$(date +%s); sleep 0.2; {meanwhile}
            fallocate -p -o 256K -l 512K four; since $began
            echo sectors $(stat -c %b four)"#
        )
    };
    for mode in ["lazy,trim_workers=1-1", "lazy,trim_workers=1-1,trim_reuse"] {
        for meanwhile in ["true", "rm later"] {
            let told = format!("{mode}, {meanwhile}");
            let guest = slow_and_full(&folder, &format!("discard={mode}"), "-m 0 -N 200", &script(meanwhile));
            assert_eq!(guest.number("left"), 0, "{told}: {:?}", guest.lines);
            assert!((5..25).contains(&guest.number("waited")), "{told}: {:?}", guest.lines);
            // 4 MiB without the hole, and the block for the extents.
            assert_eq!(guest.number("sectors"), (4096 - 512) * 2 + 8, "{told}");
        }
    }
}

/// More workers begin with the remount, not with the next commit that frees something.
#[test]
fn a_remount_with_more_workers_wakes_them() {
    let Some(folder) = folder_with_drive(KERNEL) else { return };
    let script = "write_files 1 400; rm -- *[13579]; sync .; echo before $(counter workers)
        mount -o remount,trim_workers=8-8 .; sleep 1; echo after $(counter workers)
        mount -o remount,trim_drain=0 .";
    let guest = guest_of(&run_on(&folder, "vendor2", "discard=lazy,trim_workers=1-1", script), "1-1");
    assert_eq!(["before", "after"].map(|when| guest.number(when)), [1, 8], "{:?}", guest.lines);
}

/// `FILL_ROUNDS=5000` makes as many rounds with each drive and options.
#[test]
fn filling_at_random_finds_all_room_and_never_hangs() {
    let Some(folder) = folder_with_drive(KERNEL) else { return };
    let rounds = std::env::var("FILL_ROUNDS").map_or(10, |rounds| rounds.parse().unwrap());
    for (seed, (options, disk)) in [
        ("discard=lazy", "sata-small"),
        ("discard=lazy,trim_workers=1-1", "vendor2"),
        ("discard=lazy,trim_workers=1-4,trim_reuse", "vendor2"),
    ]
    .iter()
    .enumerate()
    {
        let line = format!(
            "kernel run {KERNEL}:ext4 --device drive.toml --disk {disk} --memory 256 --json - -- bash -c"
        );
        let output = trimwise(folder.path(), &line)
            .args([include_str!("fill.sh"), "fill.sh", options, &seed.to_string(), &rounds.to_string()])
            .output()
            .unwrap();
        let guest = guest_of(&output, options);
        assert_eq!(guest.number("rounds"), rounds, "{options}: {:?}", guest.lines);
        // A write of 64 KiB may fail for want of a block for its extents, which the next then has.
        let left = guest.lines.iter().filter_map(|line| line.strip_prefix("left ")?.parse::<u64>().ok());
        assert!(left.clone().max() < Some(128), "{options}: {:?}", left.collect::<Vec<_>>());
    }
}

/// Every change of options in turn, while files come and go; and a freeze, in which nothing is discarded.
#[test]
fn options_change_under_load_without_harm() {
    let Some(folder) = folder_with_drive(KERNEL) else { return };
    let script = r#"
        discards() { awk '{ print $12 }' /sys/block/"${device#/dev/}"/stat; }
        first=1
        for to in nodiscard discard=lazy,trim_reuse discard=lazy,notrim_reuse discard=serial discard=commit discard \
                discard=lazy,trim_low=1,trim_high=2 discard=lazy,trim_low=0,trim_high=0,trim_reuse ro rw,"$options"; do
            mount -o remount,"$to" "$mount_point"
            [ "$to" = ro ] && continue
            for i in $(seq $first $((first + 23))); do content $i >$i; done; sync
            rm -- *[147]; sync .; first=$((first + 24))
            # Plain discard goes on while frozen, as ever.
            fsfreeze -f .; before=$(discards); sleep 3
            [ "$to" = discard ] || [ "$before" = "$(discards)" ] || exit 8
            fsfreeze -u .
        done
        sleep 20; counters; check_files; check_file_system; check_files"#;
    guest(&folder, "discard=lazy", script).is_balanced();
}

/// A look at the counters from outside of the mount.
const COUNTERS: &str = "for f in /sys/fs/ext4/vda/trim_*; do echo ${f##*/trim_} $(cat $f); done";

/// Returns what a step with [`COUNTERS`] saw, which must add up.
#[track_caller]
fn looked(done: &Done, name: &str) -> Guest {
    let lines = done.output(name).lines().map(str::to_owned).collect();
    let looked = Guest { lines, phases: BTreeMap::new() };
    looked.is_balanced();
    looked
}

/// Blocks whose discard fails are free all the same. A drive that refuses discards gets none until the next remount.
#[test]
fn a_drive_whose_discards_fail_costs_no_space() {
    let Some(_folder) = folder_with_drive(KERNEL) else { return };
    let Some(kernel) = image(KERNEL) else { return };
    for mode in ["serial", "commit", "lazy", "lazy,trim_reuse"] {
        for fault in [Fault::DiscardsFail, Fault::DiscardsRefused] {
            let mut script = Script::new(FileSystem::Ext4, &[], "true");
            let remount = |options: String| Step::Remount { options };
            script.then(remount(format!("discard={mode}")));
            let look = &format!("echo free $(stat -f -c %f .); {COUNTERS}");
            script.shell("before", look);
            script.during(fault, |script| {
                script.free_in_pieces();
                script.free(Bytes::mib(16));
                script.shell("failing", look);
            });
            script.free(Bytes::mib(16));
            script.shell("afterwards", look);
            script.then(remount("nodiscard".to_owned()));
            script.then(remount(format!("discard={mode}")));
            script.free(Bytes::mib(16));
            script.shell("remounted", look);
            script.then(remount("nodiscard".to_owned()));
            let done = script.run(&kernel, 1);
            let [before, failing, afterwards, remounted] =
                ["before", "failing", "afterwards", "remounted"].map(|name| looked(&done, name));
            let of = |looked: &Guest| ["free", "errors", "issued_blocks"].map(|name| looked.number(name));
            let all = [&before, &failing, &afterwards, &remounted].map(of);
            let told = format!("{mode}, {fault:?}: {all:?}");
            // The gaps between the pieces stay.
            let gaps = 48 * 64;
            assert!(all[1..].iter().all(|[free, ..]| *free >= all[0][0] - gaps - 16), "{told}");
            assert_eq!(all[1][2], all[0][2], "nothing was discarded: {told}");
            assert!(failing.number("dropped_blocks") >= 4096 + 48 * 64, "{told}");
            let fails = fault == Fault::DiscardsFail;
            assert_eq!(all[1][1] > 0, fails, "{told}");
            assert_eq!(all[2][2] > all[1][2], fails, "{told}");
            assert!(all[3][2] >= all[2][2] + 4096, "{told}");
        }
    }
}

/// What waits for its discard when the drive vanishes is let go, and nothing waits for it, unmounting neither.
#[test]
fn a_drive_that_vanishes_leaves_nothing_waiting() {
    let Some(_folder) = folder_with_drive(KERNEL) else { return };
    let Some(kernel) = image(KERNEL) else { return };
    for mode in ["lazy,trim_workers=1-1", "lazy,trim_reuse"] {
        let mut script = Script::new(FileSystem::Ext4, &[], "true");
        script.then(Step::Remount { options: format!("discard={mode},trim_drain=600000") });
        script.free_in_pieces();
        script.during(Fault::Gone, |script| {
            script.shell("", "sync -f .; fallocate -l 1T full");
            script.sleep_s(30);
            script.shell("gone", COUNTERS);
            script.then(Step::Unmount);
        });
        script.mount();
        let done = script.run(&kernel, 1);
        let gone = looked(&done, "gone");
        assert!(gone.number("issued_blocks") < gone.number("queued_blocks"), "{mode}: {:?}", gone.lines);
        assert!(gone.number("dropped_blocks") > 0, "{mode}: {:?}", gone.lines);
    }
}
