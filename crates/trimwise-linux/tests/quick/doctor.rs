//! The doctor on fake hosts: sysfs, procfs and fstab in a folder.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use trimwise_linux::doctor::{DoctorError, Report, examine};
use trimwise_linux::host_root::HostRoot;

use trimwise_testing::fake_host::{GIB, Host, SDA};

trait Examined {
    fn examine(&self) -> Report;
}

impl Examined for Host {
    fn examine(&self) -> Report {
        examine(&HostRoot::new(self.0.path()), Path::new("/run/trimwise"), None).unwrap()
    }
}

const USB: &str = "pci0000:00/usb2/2-1/host6/target6:0:0/6:0:0:0/block/sdb";

/// All findings and their fixes, in one text.
fn said(report: &Report) -> String {
    let all = report.file_systems.iter().flat_map(|one| &one.findings).chain(&report.findings);
    all.map(|f| {
        format!("{} {}: {} -> {:?}\n", if f.wrong { "WRONG" } else { "note" }, f.place, f.what, f.mend)
    })
    .collect()
}

#[track_caller]
fn expect(report: &Report, wrong: usize, words: &[&str]) {
    let said = said(report);
    assert_eq!(report.wrong(), wrong, "{said}");
    for words in words {
        assert!(said.contains(words), "'{words}' is not in: {said}");
    }
}

fn sound(options: &str) -> Host {
    let host = Host::new(&format!("22 1 8:1 / / rw,relatime shared:1 - xfs /dev/sda1 rw{options}\n"));
    host.device(SDA, "8:0", 2 * GIB).device(&format!("{SDA}/sda1"), "8:1", 0);
    host.file(&format!("sys/devices/{SDA}/sda1/partition"), "1");
    host.file(&format!("sys/devices/{SDA}/device/model"), "INTEL SSDSC2BB48");
    host.file("etc/systemd/system/timers.target.wants/fstrim.timer", "");
    fs::create_dir_all(host.0.path().join("run/systemd/system")).unwrap();
    host
}

#[test]
fn a_sound_host_is_sound() {
    let report = sound("").examine();
    expect(&report, 0, &[]);
    let one = &report.file_systems[0];
    assert!(one.passes == Some(true) && one.today.discard == "nodiscard");
    let layers: Vec<_> = one.layers.iter().map(|layer| (layer.name.as_str(), layer.what.as_str())).collect();
    assert_eq!(layers, [("sda1", "partition"), ("sda", "SATA INTEL SSDSC2BB48")]);
    assert_eq!((one.layers[1].discard_max_bytes, one.layers[1].discards), (2 * GIB, Some(12)));
    assert_eq!(report.trimmers, ["fstrim.timer"]);
}

#[test]
fn nothing_trims_or_two_things_do() {
    let nobody = sound("");
    fs::remove_file(nobody.0.path().join("etc/systemd/system/timers.target.wants/fstrim.timer")).unwrap();
    // Whether anything should is a question of what it costs, so this is no fault.
    expect(&nobody.examine(), 0, &["note /: nothing trims it", "trimwise advise --here /"]);
    nobody.file("etc/fstab", "# comment\nUUID=1 / xfs defaults,X-fstrim.notrim 0 1\n");
    expect(&nobody.examine(), 0, &["X-fstrim.notrim"]);
    expect(
        &sound(",discard").examine(),
        0,
        &["note discard: it discards what is freed by itself", "fstrim.timer finds little left"],
    );
    let both = sound("");
    both.file("etc/systemd/system/multi-user.target.wants/trimwised.service", "");
    expect(&both.examine(), 0, &["fstrim.timer, trimwised: more than one"]);
    // The timer follows fstab unless it is empty; a socket without a listener does not count as a daemon.
    let unlisted = sound("");
    unlisted.file("etc/fstab", "UUID=2 /home xfs defaults 0 1\n").file("run/trimwise/control.sock", "");
    let words = ["WRONG /: nothing trims it", "fstrim.timer: it follows /etc/fstab, which does not list it"];
    expect(&unlisted.examine(), 1, &words);
    unlisted.file("etc/fstab", "UUID=2 /home xfs defaults 0 1\nUUID=1 / xfs defaults 0 1\n");
    expect(&unlisted.examine(), 0, &[]);
    // A writable file system may be mounted read-only.
    let ro = sound("");
    ro.file("proc/1/mountinfo", "22 1 8:1 / / ro,relatime - xfs /dev/sda1 rw\n");
    fs::remove_file(ro.0.path().join("etc/systemd/system/timers.target.wants/fstrim.timer")).unwrap();
    expect(&ro.examine(), 0, &["nothing trims it"]);
    // Under another init, an enabled timer never runs.
    let other_init = sound(",discard");
    fs::remove_dir(other_init.0.path().join("run/systemd/system")).unwrap();
    expect(&other_init.examine(), 0, &[]);
    symlink("/dev/null", both.0.path().join("etc/systemd/system/fstrim.timer")).unwrap();
    expect(&both.examine(), 0, &[]);
}

#[test]
fn options_and_timers_are_those_in_effect() {
    let host = Host::new(
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 8:2 / /home rw - ext4 /dev/sda2 rw,nodiscard\n",
    );
    host.device(SDA, "8:0", 2 * GIB);
    for (number, part) in [("8:1", "sda1"), ("8:2", "sda2")] {
        host.device(&format!("{SDA}/{part}"), number, 0)
            .file(&format!("sys/devices/{SDA}/{part}/partition"), "1");
        // `tune2fs -o discard`: mountinfo shows only what differs from that.
        let options = if part == "sda1" { "rw\ndiscard\nbarrier\n" } else { "rw\nbarrier\n" };
        host.file(&format!("proc/fs/ext4/{part}/options"), options);
    }
    fs::create_dir_all(host.0.path().join("run/systemd/system")).unwrap();
    host.file("etc/systemd/system/timers.target.wants/fstrim.timer", "");
    host.file("usr/lib/systemd/system/fstrim.timer", "[Timer]\nOnCalendar=weekly\n");
    let today = |host: &Host| -> Vec<(String, Option<String>)> {
        let of = |one: &trimwise_linux::doctor::Diagnosis| {
            let periodic = one.today.at_intervals.first();
            (one.today.discard.clone(), periodic.and_then(|one| Some(one.policy.as_ref()?.to_string())))
        };
        host.examine().file_systems.iter().map(of).collect()
    };
    let both = |every: Option<&str>| {
        ["discard", "nodiscard"].map(|discard| (discard.to_owned(), every.map(str::to_owned))).to_vec()
    };
    assert_eq!(today(&host), both(Some("batch:1w")));
    host.file("etc/systemd/system/fstrim.timer.d/often.conf", "[Timer]\nOnCalendar=\nOnCalendar=daily\n");
    assert_eq!(today(&host), both(Some("batch:1d")));
    host.file("etc/systemd/system/fstrim.timer.d/twice.conf", "[Timer]\nOnCalendar=*-*-1\n");
    assert_eq!(today(&host), both(None), "two calendars are no interval");
    // One mount has its own timer in addition to the host's.
    host.file("etc/systemd/system/timers.target.wants/fstrim-hourly@home.timer", "");
    let names = |index: usize| {
        let report = host.examine();
        let all = report.file_systems[index].today.at_intervals.iter();
        all.map(|one| (one.name.clone(), one.policy.as_ref().map(ToString::to_string))).collect::<Vec<_>>()
    };
    let timer = ("fstrim.timer".to_owned(), None);
    assert_eq!(names(0), std::slice::from_ref(&timer));
    assert_eq!(names(1), [timer, ("fstrim-hourly@home.timer".to_owned(), Some("batch:1h".to_owned()))]);
}

#[test]
fn ext4_s_discard_option_sends_too_much_on_new_kernels() {
    let host = Host::new("22 1 8:0 / / rw - ext4 /dev/sda rw,discard\n");
    host.device(SDA, "8:0", GIB);
    expect(&host.examine(), 0, &["far more than was freed", "trimwise advise --here /"]);
    host.file("proc/sys/kernel/osrelease", "5.10.0-30-amd64");
    expect(&host.examine(), 0, &[]);
}

#[test]
fn the_layer_at_which_trim_stops_is_named() {
    let crypt = Host::new("22 1 253:0 / / rw - xfs /dev/mapper/root rw\n");
    crypt.file("etc/cron.weekly/fstrim", "");
    crypt.device(SDA, "8:0", GIB).device("virtual/block/dm-0", "253:0", 0).slave("virtual/block/dm-0", SDA);
    crypt.file("sys/devices/virtual/block/dm-0/dm/name", "root\n");
    crypt.file("sys/devices/virtual/block/dm-0/dm/uuid", "CRYPT-LUKS2-1234-root\n");
    expect(
        &crypt.examine(),
        1,
        &["WRONG dm-0: dm-crypt (root) drops TRIM", "--allow-discards --persistent root"],
    );
    assert_eq!(crypt.examine().file_systems[0].passes, Some(false));

    // A logical volume above it is not the cause.
    crypt.device("virtual/block/dm-1", "253:1", 0).slave("virtual/block/dm-1", "virtual/block/dm-0");
    crypt.file("sys/devices/virtual/block/dm-1/dm/name", "vg-home");
    crypt.file("sys/devices/virtual/block/dm-1/dm/uuid", "LVM-abc");
    crypt.file("proc/1/mountinfo", "22 1 253:1 / /home rw - xfs /dev/mapper/vg-home rw\n");
    let report = crypt.examine();
    expect(&report, 1, &["WRONG dm-0"]);
    let depths: Vec<_> = report.file_systems[0].layers.iter().map(|l| (l.what.as_str(), l.depth)).collect();
    assert_eq!(depths, [("LVM vg-home", 0), ("dm-crypt root", 1), ("SATA", 2)]);

    let usb = Host::new("22 1 8:16 / /media rw - ext4 /dev/sdb rw\n");
    usb.device(USB, "8:16", 0).file(&format!("sys/devices/{USB}/device/model"), "ASMT105x");
    usb.file(&format!("sys/devices/{USB}/queue/rotational"), "1");
    expect(
        &usb.examine(),
        1,
        &["the USB adapter of ASMT105x", "/sys/block/sdb/device/scsi_disk/*/provisioning_mode"],
    );

    let raid = Host::new("22 1 9:0 / / rw - xfs /dev/md0 rw\n");
    raid.device(SDA, "8:0", GIB).device("virtual/block/md0", "9:0", 0).slave("virtual/block/md0", SDA);
    raid.file("sys/devices/virtual/block/md0/md/level", "raid5\n");
    expect(&raid.examine(), 1, &["Linux RAID (raid5)", "devices_handle_discard_safely"]);

    let disk = Host::new("22 1 8:0 / / rw - xfs /dev/sda rw\n");
    disk.device(SDA, "8:0", 0).file(&format!("sys/devices/{SDA}/queue/rotational"), "1");
    expect(&disk.examine(), 1, &["is a hard disk"]);
}

#[test]
fn a_loop_device_refers_to_the_file_system_of_its_file() {
    let loops = "22 1 7:0 / /data rw - ext4 /dev/loop0 rw,discard\n";
    let host =
        Host::new(&format!("{loops}23 1 8:0 / / rw - xfs /dev/sda rw\n24 1 0:5 / /img rw - tmpfs none rw\n"));
    host.device("virtual/block/loop0", "7:0", 4 * GIB).device(SDA, "8:0", 4 * GIB);
    host.file("sys/devices/virtual/block/loop0/loop/backing_file", "/srv/disk.img\n");
    let said_of = |host: &Host| said(&host.examine());
    let on_xfs = said_of(&host);
    let words =
        "note loop0: TRIM makes holes in /srv/disk.img, which become free space of /, xfs on /dev/sda";
    assert!(on_xfs.contains(words) && on_xfs.contains("see `trimwise doctor /`"), "{on_xfs}");
    host.file("sys/devices/virtual/block/loop0/loop/backing_file", "/img/disk.img\n");
    let in_memory = said_of(&host);
    assert!(
        in_memory.contains("holes in /img/disk.img, so trimmed space no longer takes up room on tmpfs"),
        "{in_memory}"
    );
}

#[test]
fn a_drive_with_a_known_fault_is_named() {
    let host = sound("");
    host.file(&format!("sys/devices/{SDA}/device/model"), "Samsung SSD 860 EVO 1TB");
    expect(&host.examine(), 0, &["note sda: Samsung SSD 860 EVO 1TB loses data with queued TRIM"]);
}

#[test]
fn bind_mounts_are_one_file_system_and_a_path_is_a_mount_point() {
    let host = sound("");
    let text = "22 1 8:1 / / rw - xfs /dev/sda1 rw\n23 22 8:1 /srv /srv rw - xfs /dev/sda1 rw\n\
        24 22 0:5 / /proc rw - proc proc rw\n";
    host.file("proc/1/mountinfo", text);
    expect(&host.examine(), 0, &["mounted 2 times"]);
    assert_eq!(host.examine().file_systems.len(), 1);
    let root = HostRoot::new(host.0.path());
    assert_eq!(
        examine(&root, Path::new("/run/trimwise"), Some(Path::new("/srv"))).unwrap().file_systems[0]
            .mount_point,
        Path::new("/srv")
    );
    let refused = examine(&root, Path::new("/run/trimwise"), Some(Path::new("/proc"))).unwrap_err();
    assert!(
        matches!(refused, DoctorError::NoMount { .. }) && refused.to_string().contains("such as /"),
        "{refused}"
    );
}

#[test]
fn this_machine_can_be_examined() {
    let report = examine(&HostRoot::default(), Path::new("/run/trimwise"), None).unwrap();
    assert!(!report.kernel.is_empty());
    for one in &report.file_systems {
        assert!(one.findings.iter().all(|finding| !finding.what.is_empty()), "{one:?}");
    }
}
