//! The doctor on fake hosts: sysfs, procfs and fstab in a folder.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use trimwise_linux::doctor::{DoctorError, Finding, Report, examine};
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
    let told = |mark: &str, f: &Finding| {
        let helps = if f.nothing_helps { "NOTHING HELPS " } else { "" };
        let commands = f.commands.iter().map(|command| format!("  # {command}\n")).collect::<String>();
        format!("{mark} {}: {} -> {helps}{:?}\n{commands}", f.place, f.what, f.mend)
    };
    let findings = all.map(|f| told(if f.wrong { "WRONG" } else { "note" }, f));
    findings.chain(report.not_checked.iter().map(|f| told("UNCHECKED", f))).collect()
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
    assert_eq!((one.layers[1].discard_max_bytes, one.layers[1].discards), (Some(2 * GIB), Some(12)));
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
        &["note discard: it already discards what is freed", "fstrim.timer finds little left to trim"],
    );
    let both = sound("");
    both.file("etc/systemd/system/multi-user.target.wants/trimwised.service", "");
    expect(&both.examine(), 0, &["fstrim.timer, trimwised: more than one"]);
    // The timer follows fstab unless it is empty; a socket without a listener does not count as a daemon.
    let unlisted = sound("");
    unlisted.file("etc/fstab", "UUID=2 /home xfs defaults 0 1\n").file("run/trimwise/control.sock", "");
    // fstrim finds / by the kernel's command line.
    unlisted.file("proc/cmdline", "quiet root=UUID=1 ro\n");
    expect(&unlisted.examine(), 0, &[]);
    unlisted.file("proc/cmdline", "quiet\n");
    let words = [
        "WRONG /: nothing trims it",
        "fstrim.timer: it follows /etc/fstab, which does not list this file system",
    ];
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
    // It needs none.
    expect(&disk.examine(), 0, &["note sda: sda is a hard disk"]);
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
        "note loop0: TRIM punches holes in /srv/disk.img; they become free space of /, xfs on /dev/sda";
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

const SDB: &str = "pci0000:00/ata2/host1/target1:0:0/1:0:0:0/block/sdb";
const SAS: &str = "pci0000:00/0000:03:00.0/host2/port-2:0/end_device-2:0/target2:0:0/2:0:0:0/block/sdc";
const VIRTIO_SCSI: &str = "pci0000:00/0000:00:03.0/virtio0/host0/target0:0:3/0:0:3:0/block/sdd";
const NVME: &str = "pci0000:00/0000:04:00.0/nvme/nvme0/nvme0n1";

/// A host as a table writes it: one thing a line.
///
/// ```text
/// timer                                  fstrim.timer is on
/// mount MOUNTINFO                        a line of mountinfo
/// disk PLACE NUMBERS MAX                 a device, in bytes
/// on NAME NUMBERS MAX BELOW...           a virtual device over others
/// dm NAME MAPPING UUID                   makes it a mapping
/// file PATH TEXT                         \n stands for a new line
/// link PATH TARGET
/// ```
fn built(lines: &str) -> Host {
    let host = Host::new("");
    let mut mounts = String::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split(' ').collect();
        let rest = |n: usize| line.splitn(n + 1, ' ').nth(n).unwrap_or_default().replace("\\n", "\n");
        match words[0] {
            "timer" => {
                fs::create_dir_all(host.0.path().join("run/systemd/system")).unwrap();
                host.file("etc/systemd/system/timers.target.wants/fstrim.timer", "");
            }
            "mount" => mounts += &(rest(1) + "\n"),
            "disk" => {
                host.device(words[1], words[2], words[3].parse().unwrap());
            }
            "part" => {
                host.device(words[1], words[2], 0).file(&format!("sys/devices/{}/partition", words[1]), "1");
            }
            "on" => {
                let place = format!("virtual/block/{}", words[1]);
                host.device(&place, words[2], words[3].parse().unwrap());
                for below in &words[4..] {
                    host.slave(&place, below);
                }
            }
            "dm" => {
                let at = format!("sys/devices/virtual/block/{}/dm", words[1]);
                host.file(&format!("{at}/name"), words[2]).file(&format!("{at}/uuid"), &rest(3));
            }
            "file" => {
                host.file(words[1], &rest(2));
            }
            "link" => {
                let link = host.0.path().join(words[1]);
                fs::create_dir_all(link.parent().unwrap()).unwrap();
                symlink(words[2], link).unwrap();
            }
            word => panic!("{word}"),
        }
    }
    host.file("proc/1/mountinfo", &mounts);
    host
}

/// What a host is, how many things are wrong there, whether TRIM passes on the first file system, what the doctor says,
/// and what it must not say (after a `!`).
type Case<'a> = (&'a str, usize, Option<bool>, &'a [&'a str]);

#[track_caller]
fn judge(cases: &[Case<'_>]) {
    for (lines, wrong, passes, words) in cases {
        let report = built(lines).examine();
        let said = said(&report);
        assert_eq!(report.wrong(), *wrong, "{lines}\n{said}");
        assert_eq!(report.file_systems.first().and_then(|one| one.passes), *passes, "{lines}\n{said}");
        for word in *words {
            let (word, expected) = word.strip_prefix('!').map_or((*word, true), |word| (word, false));
            assert_eq!(said.contains(word), expected, "'{word}' in\n{lines}\n{said}");
        }
        serde_json::to_string(&report).unwrap();
    }
}

const EXT4_ON_SDA: &str = "timer\nmount 22 1 8:0 / / rw - ext4 /dev/sda rw\n";

#[test]
fn the_state_in_effect_counts() {
    let plain = |rest: &str| {
        format!("{EXT4_ON_SDA}disk {SDA} 8:0 {GIB}\nfile etc/fstab UUID=1 / ext4 defaults 0 1\n{rest}")
    };
    let with_cron = format!(
        "mount 22 1 8:0 / / rw - ext4 /dev/sda rw\ndisk {SDA} 8:0 {GIB}\n\
         file etc/cron.d/trim 5 3 * * 0 root /sbin/fstrim -a || true"
    );
    let notrim = format!(
        "timer\nmount 22 1 8:0 /persist/srv /srv rw - ext4 /dev/sda rw\nmount 23 1 8:0 / /nix rw - ext4 /dev/sda rw\n\
         disk {SDA} 8:0 {GIB}\n\
         file etc/fstab UUID=1 /nix ext4 defaults 0 2\\n/nix/persist/srv /srv none bind,X-fstrim.notrim 0 0"
    );
    let sysroot = |rest: &str| {
        format!(
            "timer\nmount 22 1 0:30 / / ro - overlay composefs ro\nmount 30 22 259:3 / /sysroot ro - xfs /dev/p3 rw\n\
             mount 32 22 259:3 /var /var rw - xfs /dev/p3 rw\ndisk {NVME} 259:3 {GIB}\n\
             file etc/fstab UUID=0 / xfs defaults 0 0\nfile proc/cmdline root=UUID=0\n{rest}"
        )
    };
    judge(&[
        // One device under two names is one file system.
        (&plain("mount 23 22 8:0 /srv /srv/ftp rw - ext4 /dev/root rw"), 0, Some(true), &["mounted 2 times"]),
        (&with_cron, 0, Some(true), &["!nothing trims it"]),
        (&notrim, 0, Some(true), &["!nothing trims it", "!X-fstrim.notrim"]),
        (
            &sysroot(""),
            1,
            Some(true),
            &["WRONG /sysroot: nothing trims it", "--listed-in /proc/self/mountinfo"],
        ),
        (
            &sysroot(
                "file usr/lib/systemd/system/fstrim.service [Service]\\nExecStart=/sbin/fstrim --fstab\n\
                 file run/systemd/system/fstrim.service.d/all.conf [Service]\\nExecStart=\\nExecStart=-/sbin/fstrim -av",
            ),
            0,
            Some(true),
            &["!nothing trims it"],
        ),
        (
            &plain(
                "mount 23 22 0:50 / /home rw - tmpfs t rw\n\
                 file usr/lib/systemd/system/fstrim.service [Service]\\nExecStart=/sbin/fstrim /home",
            ),
            1,
            Some(true),
            &["fstrim.timer: it trims only /home"],
        ),
        // btrfs without a node, trimmed by btrfsmaintenance and by fstrim.
        (
            &format!(
                "timer\nmount 22 1 0:40 /@ / rw - btrfs /dev/root rw\ndisk {SDA} 8:0 {GIB}\ndisk {SDB} 8:16 {GIB}\n\
                 file etc/systemd/system/timers.target.wants/btrfs-trim.timer\n\
                 file etc/sysconfig/btrfsmaintenance BTRFS_TRIM_MOUNTPOINTS=\"/:/srv\"\n\
                 link sys/fs/btrfs/1-2/devices/sda ../../../../devices/{SDA}"
            ),
            0,
            Some(true),
            &["fstrim.timer, btrfs-trim.timer: more than one"],
        ),
        (
            &format!(
                "timer\nmount 22 1 8:0 / / rw - f2fs /dev/sda rw,discard\ndisk {SDA} 8:0 {GIB}\n\
                 file etc/fstab UUID=1 / f2fs defaults 0 1"
            ),
            0,
            Some(true),
            &["f2fs does so by default; `nodiscard` turns it off"],
        ),
    ]);
}

#[test]
fn what_was_not_checked_is_not_called_sound() {
    let zfs = "timer\nmount 22 1 0:25 / / rw - zfs rpool/ROOT rw\nmount 23 22 0:26 / /home rw - zfs rpool/home rw\n";
    judge(&[
        (zfs, 0, None, &["UNCHECKED /, /home: zfs, pool rpool", "# zpool get autotrim rpool"]),
        (
            &format!(
                "mount 22 1 8:0 / /data rw - fuseblk /dev/sda rw\ndisk {SDA} 8:0 {GIB}\ndisk {SDB} 8:16 {GIB}\n\
                 file proc/swaps Filename Type\\n/dev/sdb partition 8 0 -2\n\
                 file etc/fstab /dev/sdb none swap sw 0 0\nmount 23 1 7:1 / /snap ro - squashfs /dev/loop1 ro"
            ),
            0,
            None,
            &[
                "UNCHECKED /data: fuseblk",
                "note swap on /dev/sdb: line 1 of /etc/fstab says no `discard`",
                "swapon --discard=once /dev/sdb",
                "!squashfs",
            ],
        ),
        (
            &format!(
                "mount 22 1 0:25 / / rw - bcachefs /dev/nvme0n1:/dev/sda rw\ndisk {NVME} 259:0 {GIB}\ndisk {SDA} 8:0 0\n\
                 file sys/fs/bcachefs/1/dev-0/discard 1"
            ),
            0,
            None,
            &["nvme0n1 accepts TRIM; sda accepts no TRIM", "bcachefs has no FITRIM"],
        ),
        // A device that sysfs does not show.
        (
            "mount 22 1 8:0 / / rw - ext4 /dev/sda rw",
            0,
            None,
            &["UNCHECKED /: /dev/sda: sysfs does not show"],
        ),
        // A container: its host trims, and no unit would start here.
        (
            &format!(
                "{EXT4_ON_SDA}disk {SDA} 8:0 {GIB}\nfile proc/1/uid_map 0 100000 65536\nfile etc/fstab x /x ext4"
            ),
            0,
            Some(true),
            &["UNCHECKED container: nothing here may trim", "!systemctl", "!WRONG"],
        ),
        (
            &format!("{EXT4_ON_SDA}disk {SDA} 8:0 {GIB}\nfile proc/1/status CapBnd:\t00000000a80425fb"),
            0,
            Some(true),
            &["CAP_SYS_ADMIN"],
        ),
    ]);
    let root = built(zfs);
    let at = |path: &str| {
        examine(&HostRoot::new(root.0.path()), Path::new("/run/trimwise"), Some(Path::new(path)))
    };
    assert_eq!(at("/home").unwrap().not_checked.len(), 1);
    let refused = at("/proc").unwrap_err().to_string();
    assert!(refused.ends_with("this host has none"), "{refused}");
}

#[test]
fn a_remedy_fits_its_layer() {
    let md = |level: &str, rest: &str| {
        format!(
            "timer\nmount 22 1 9:0 / /data rw,noatime - xfs /dev/md0 rw\ndisk {SDA} 8:0 {GIB}\ndisk {SDB} 8:16 {GIB}\n\
             on md0 9:0 0 {SDA} {SDB}\nfile sys/devices/virtual/block/md0/md/level {level}\n{rest}"
        )
    };
    let disk = |place: &str, rest: &str| {
        let name = place.rsplit('/').next().unwrap();
        let attributes: String = rest
            .split(';')
            .filter(|one| !one.is_empty())
            .map(|one| format!("file sys/devices/{place}/{}\n", one.trim()))
            .collect();
        format!("timer\nmount 22 1 8:0 / / rw - ext4 /dev/{name} rw\ndisk {place} 8:0 0\n{attributes}")
    };
    let dm = |numbers: &str, name: &str, uuid: &str, below: &str| {
        format!(
            "timer\nmount 22 1 {numbers} / /data rw - xfs /dev/mapper/x rw\ndisk {SDA} 8:0 {GIB}\ndisk {SDB} 8:16 {GIB}\n\
             {below}\non dm-9 {numbers} 0 {SDA}\ndm dm-9 {name} {uuid}"
        )
    };
    judge(&[
        (
            &md("raid1", ""),
            1,
            Some(false),
            &["assembled while they had none", "# mdadm --assemble /dev/md0 /dev/sda /dev/sdb", "!raid456"],
        ),
        (
            &md("raid0", "file sys/module/raid0/parameters/devices_discard_performance N"),
            1,
            Some(false),
            &["# echo Y > /sys/module/raid0/parameters/devices_discard_performance", "!raid456"],
        ),
        (
            &md("raid5", "file sys/module/raid456/parameters/devices_handle_discard_safely N"),
            1,
            Some(false),
            &[
                "# echo Y > /sys/module/raid456/parameters/devices_handle_discard_safely",
                "# mdadm --stop /dev/md0",
            ],
        ),
        (
            &md("raid6", "file sys/module/raid456/parameters/devices_handle_discard_safely Y"),
            1,
            Some(false),
            &["assembled while they had none", "!echo Y"],
        ),
        (
            &md(
                "raid5",
                "file sys/module/raid456/parameters/devices_handle_discard_safely Y\n\
                 file sys/devices/virtual/block/md0/md/raid_disks 3\n\
                 file sys/devices/virtual/block/md0/md/chunk_size 1073741824",
            ),
            1,
            Some(false),
            &["whole stripes of 2147483648 bytes", "NOTHING HELPS"],
        ),
        (
            &dm("254:9", "vg-home--x", "LVM-1", ""),
            1,
            Some(false),
            &["its limits are from then", "# dmsetup resume vg-home--x"],
        ),
        (&dm("254:9", "mpatha", "mpath-360", ""), 1, Some(false), &["# multipath -r mpatha"]),
        (
            &dm("254:9", "veracrypt1", "", ""),
            1,
            Some(false),
            &["WRONG dm-9: the dm-crypt mapping veracrypt1"],
        ),
        (
            &dm("254:9", "c", "CRYPT-LUKS1-1-c", ""),
            1,
            Some(false),
            &["# cryptsetup refresh --allow-discards c\n"],
        ),
        (
            &dm("254:9", "c", "CRYPT-LUKS2-1-c", ""),
            1,
            Some(false),
            &["# cryptsetup refresh --allow-discards --persistent c\n", "asks for the passphrase"],
        ),
        // cryptsetup would have to be told cipher and key again.
        (
            &dm("254:9", "c", "CRYPT-PLAIN-c", ""),
            1,
            Some(false),
            &[
                "# dmsetup table --showkeys c | awk ",
                "| dmsetup reload c\n  # dmsetup resume c\n",
                "!cryptsetup",
            ],
        ),
        // TRIM would destroy a volume that is hidden in what is free of another.
        (
            &dm("254:9", "c", "CRYPT-TCRYPT-c", ""),
            1,
            Some(false),
            &["unless it hides a second volume", "!# "],
        ),
        // Switched off by hand; the kernel takes only multiples of the granularity.
        (
            &disk(SDA, "queue/discard_max_hw_bytes 4294966784;queue/discard_granularity 4096"),
            1,
            Some(false),
            &["switched off in sysfs", "# echo 4294963200 > /sys/block/sda/queue/discard_max_bytes"],
        ),
        // It takes no number of more than 32 bits; NVMe's limit is larger.
        (
            &disk(NVME, "queue/discard_max_hw_bytes 2199023255040;queue/discard_granularity 512"),
            1,
            Some(false),
            &["# echo 4294966784 > /sys/block/nvme0n1/queue/discard_max_bytes"],
        ),
        // Linux 6.12.42 sets the granularity to 0 then, and so refuses every other limit.
        (
            &disk(NVME, "queue/discard_max_hw_bytes 2199023255040;queue/discard_granularity 0"),
            1,
            Some(false),
            &["switched off in sysfs", "boot, without what sets it to 0", "!# "],
        ),
        (
            &disk(USB, "device/scsi_disk/6:0:0:0/provisioning_mode unmap"),
            1,
            Some(false),
            &["is `unmap` already", "!udev rule"],
        ),
        (
            &disk(USB, "device/scsi_disk/6:0:0:0/provisioning_mode full"),
            1,
            Some(false),
            &[
                "the USB adapter",
                "grep -q 'LBPU[^0-9]*1' && echo unmap > /sys/block/sdb/device/scsi_disk/6:0:0:0/",
            ],
        ),
        (
            &disk(SAS, "device/scsi_disk/2:0:0:0/provisioning_mode disabled;device/vpd_pgb2 12345\u{40}"),
            1,
            Some(false),
            &["# echo writesame_16 > /sys/block/sdc/device/scsi_disk/2:0:0:0/provisioning_mode"],
        ),
        (
            &disk(
                SAS,
                "device/vendor ATA;device/model Samsung SSD 860 EVO;device/scsi_disk/2:0:0:0/provisioning_mode full",
            ),
            1,
            Some(false),
            &["the SAS HBA passes no TRIM on to Samsung SSD 860 EVO", "SATA port", "!queued"],
        ),
        // A hypervisor's disk that claims UNMAP carries it out, whatever its mode is.
        (
            &disk(
                VIRTIO_SCSI,
                "device/vendor QEMU;queue/rotational 1;device/scsi_disk/0:0:3:0/provisioning_mode full;\
                 device/vpd_pgb2 12345\u{7f}",
            ),
            1,
            Some(false),
            &[
                "# echo writesame_16 > /sys/block/sdd/device/scsi_disk/0:0:3:0/provisioning_mode",
                "!virtual",
                "!hard",
            ],
        ),
        (
            &disk(VIRTIO_SCSI, "device/vendor QEMU;device/scsi_disk/0:0:3:0/provisioning_mode full"),
            1,
            Some(false),
            &["the virtual disk sdd", "NOTHING HELPS"],
        ),
        // QEMU's usb-storage: its adapter shows no page B2.
        (
            &disk(USB, "device/vendor QEMU;device/scsi_disk/6:0:0:0/provisioning_mode full"),
            1,
            Some(false),
            &["the USB adapter", "LBPU", "!virtual"],
        ),
        // libata claims WRITE SAME for every disk.
        (
            &disk(SDA, "device/scsi_disk/0:0:0:0/provisioning_mode full;device/vpd_pgb2 12345\u{40}"),
            1,
            Some(false),
            &["offers no TRIM", "NOTHING HELPS", "!# "],
        ),
        (
            &disk("vbd-768/block/xvda", ""),
            1,
            Some(false),
            &["the virtual disk xvda", "NOTHING HELPS", "!firmware"],
        ),
        (
            &disk("virtual/block/nbd0", ""),
            1,
            Some(false),
            &["another host (NBD)", "NOTHING HELPS", "!firmware"],
        ),
        (
            &disk("platform/host3/session1/target3:0:0/3:0:0:0/block/sdd", ""),
            1,
            Some(false),
            &["another host (iSCSI)", "!firmware"],
        ),
        (
            &format!("{EXT4_ON_SDA}disk {SDA} 8:0 {GIB}\nfile sys/devices/{SDA}/device/model QEMU HARDDISK"),
            0,
            Some(true),
            &["note sda: a virtual disk", "discard=unmap"],
        ),
        (
            &format!(
                "{EXT4_ON_SDA}disk {SDA} 8:0 0\nfile proc/cmdline root=/dev/sda libata.force=1.00:notrim"
            ),
            1,
            Some(false),
            &["forbids TRIM"],
        ),
    ]);
}

#[test]
fn ntfs3_trims_only_if_it_is_mounted_with_discard() {
    let ntfs3 = |options: &str| {
        format!("timer\nmount 22 1 8:0 / /my\\040data rw - ntfs3 /dev/sda {options}\ndisk {SDA} 8:0 {GIB}")
    };
    let refuses = ["WRONG sda: ntfs3 refuses", "# mount -o remount,discard '/my data'", "!finds little left"];
    judge(&[
        (&ntfs3("rw,uid=0"), 1, Some(false), &refuses),
        (&ntfs3("rw,discard"), 0, Some(true), &["!WRONG", "finds little left"]),
        (&ntfs3("ro"), 0, Some(true), &["!WRONG"]),
    ]);
}

#[test]
fn only_local_data_that_was_not_checked_counts() {
    let ext4 = format!("{EXT4_ON_SDA}disk {SDA} 8:0 {GIB}\n");
    let is_unchecked = |host: &str| {
        let report = built(host).examine();
        assert_eq!(report.wrong(), 0, "{}", said(&report));
        (report.is_unchecked, report.not_checked.len())
    };
    let desktop = ext4.clone()
        + "mount 30 22 0:60 / /run/user/1000/doc rw - fuse.portal portal rw\n\
           mount 31 22 0:61 / /run/user/1000/gvfs rw - fuse.gvfsd-fuse gvfsd-fuse rw\n\
           mount 32 22 0:62 / /mnt/far rw - fuse.sshfs me@far:/ rw\n\
           mount 33 22 0:63 / /mnt/vault rw - fuse /dev/fuse rw\n\
           mount 34 22 7:1 / /snap/core/1 ro - squashfs /dev/loop1 ro\n\
           mount 35 22 0:64 / /tmp rw - tmpfs /dev/shm rw\n\
           mount 36 22 0:65 / /var/lib/docker/1 rw - overlay overlay rw\n\
           mount 37 22 0:66 / /net rw - nfs4 far:/x rw\n\
           mount 38 22 0:67 / /share rw - 9p /dev/root rw\n\
           mount 39 22 0:68 / /misc rw - autofs /etc/auto.misc rw\n\
           mount 40 22 0:69 / /sys/firmware/efi/efivars rw - efivarfs efivarfs rw\n\
           mount 41 22 11:0 / /media/cd ro - iso9660 /dev/sr0 ro\n";
    assert_eq!(is_unchecked(&desktop), (false, 0));
    let stick = "mount 50 22 8:33 / /media/stick rw - fuseblk /dev/sdc1 rw\n";
    let odd = "mount 51 22 8:49 / /odd rw - reiserfs /dev/sdd1 rw\n";
    assert_eq!(is_unchecked(&(ext4.clone() + stick + odd)), (false, 2));
    let zfs = "mount 22 1 0:25 / / rw - zfs rpool/ROOT rw\nmount 23 22 0:26 / /home rw - zfs rpool/home rw\n";
    let sda_at =
        |point: &str| format!("mount 24 22 8:0 / {point} rw - vfat /dev/sda rw\ndisk {SDA} 8:0 {GIB}\n");
    // What holds / matters, whatever else there is, and a boot partition says nothing of the rest.
    assert_eq!(is_unchecked(&format!("timer\n{zfs}{}", sda_at("/srv"))), (true, 1));
    let home = zfs.lines().nth(1).unwrap();
    assert_eq!(is_unchecked(&format!("timer\n{home}\n{}", sda_at("/boot/efi"))), (true, 1));
    assert_eq!(is_unchecked(&format!("timer\n{}", sda_at("/boot/efi"))), (false, 0));
    assert_eq!(is_unchecked("timer"), (true, 0));
    let host = built(&(ext4 + stick));
    let asked = |path: &str| {
        examine(&HostRoot::new(host.0.path()), Path::new("/run/trimwise"), Some(Path::new(path))).unwrap()
    };
    assert_eq!((asked("/media/stick").is_unchecked, asked("/").is_unchecked), (true, false));
}

#[test]
fn a_stack_is_a_graph() {
    let block = |name: &str| format!("virtual/block/{name}");
    // A thin volume and its pool, whose metadata lies on the same disk; with the limits of disk, data, pool and volume.
    let pool = |[disk, data, pool, volume]: [u64; 4]| {
        let on = |name: &str, minor: u32, max: u64, below: &str, dm: &str| {
            format!("on {name} 254:{minor} {max} {below}\ndm {name} {dm}\n")
        };
        let parts = format!("{} {}", block("dm-0"), block("dm-1"));
        [
            "mount 22 1 254:4 / /data rw - xfs /dev/mapper/vg-thin rw\nfile etc/cron.weekly/fstrim\n"
                .to_owned(),
            format!("disk {SDA} 8:0 {disk}\n"),
            on("dm-0", 0, data, SDA, "vg-pool_tmeta LVM-1"),
            on("dm-1", 1, data, SDA, "vg-pool_tdata LVM-2"),
            on("dm-2", 2, pool, &parts, "vg-pool-tpool LVM-3-tpool"),
            on("dm-4", 4, volume, &block("dm-2"), "vg-thin LVM-4"),
        ]
        .concat()
    };
    let thin = pool([0, 0, GIB, GIB]);
    // The metadata on a disk without TRIM: nothing of the file system lies there.
    let beside = pool([GIB, GIB, GIB, GIB]).replace(&format!("254:0 {GIB} {SDA}"), &format!("254:0 0 {SDB}"))
        + &format!("disk {SDB} 8:16 0");
    // Each leg of the RAID has integrity, whose metadata lies on the same disk.
    let mut integrity = format!(
        "mount 22 1 254:9 / /data rw - xfs /dev/mapper/vg-r rw\nfile etc/cron.weekly/fstrim\n\
         disk {SDA} 8:0 {GIB}\ndisk {SDB} 8:16 {GIB}\n"
    );
    for (leg, disk) in [(0, SDA), (1, SDB)] {
        let [orig, meta, image] = [1, 2, 3].map(|n| n + 3 * leg);
        integrity += &format!(
            "on dm-{orig} 254:{orig} {GIB} {disk}\ndm dm-{orig} vg-r_rimage_{leg}_iorig LVM-1\n\
             on dm-{meta} 254:{meta} {GIB} {disk}\ndm dm-{meta} vg-r_rimage_{leg}_imeta LVM-1\n\
             on dm-{image} 254:{image} 0 {} {}\ndm dm-{image} vg-r_rimage_{leg} LVM-1\n",
            block(&format!("dm-{orig}")),
            block(&format!("dm-{meta}"))
        );
    }
    integrity += &format!("on dm-9 254:9 0 {} {}\ndm dm-9 vg-r LVM-1", block("dm-3"), block("dm-6"));
    // dm-crypt under nine linear volumes: each takes its limits from below.
    let mut deep = format!(
        "mount 22 1 254:9 / /data rw - xfs /dev/mapper/v9 rw\nfile etc/cron.weekly/fstrim\ndisk {SDA} 8:0 {GIB}\n\
         on dm-0 254:0 0 {SDA}\ndm dm-0 c CRYPT-LUKS2-1-c\n"
    );
    for n in 1..10 {
        deep += &format!("on dm-{n} 254:{n} 0 {}\ndm dm-{n} v{n} LVM-1\n", block(&format!("dm-{}", n - 1)));
    }
    let cycle = format!(
        "mount 22 1 254:1 / /data rw - xfs /dev/mapper/a rw\non dm-0 254:0 {GIB} {}\ndm dm-0 a LVM-1\n\
         on dm-1 254:1 {GIB} {}\ndm dm-1 b LVM-2",
        block("dm-1"),
        block("dm-0")
    );
    let vanished = format!(
        "mount 22 1 254:0 / /data rw - xfs /dev/mapper/a rw\non dm-0 254:0 {GIB} {SDA}\ndm dm-0 a LVM-1"
    );
    // One disk takes TRIM, the other does not: the volume cannot.
    let mixed = format!(
        "mount 22 1 254:0 / /data rw - xfs /dev/mapper/a rw\nfile etc/cron.weekly/fstrim\n\
         disk {SDA} 8:0 {GIB}\ndisk {SDB} 8:16 0\non dm-0 254:0 0 {SDA} {SDB}\ndm dm-0 a LVM-1"
    );
    judge(&[
        (&thin, 1, Some(false), &["WRONG sda", "note dm-4: trimming it frees room in its pool", "!WRONG dm"]),
        (&beside, 0, Some(true), &["!WRONG"]),
        // A disk that can be switched on, below everything: each table above has its limits from then.
        (
            &format!(
                "{}\nfile sys/devices/{VIRTIO_SCSI}/device/scsi_disk/0:0:3:0/provisioning_mode full\n\
                 file sys/devices/{VIRTIO_SCSI}/device/vpd_pgb2 12345\u{60}",
                pool([0, 0, 0, GIB]).replace(SDA, VIRTIO_SCSI)
            ),
            1,
            Some(false),
            &[
                "WRONG sdd",
                "# echo writesame_16 > /sys/block/sdd/device/scsi_disk/0:0:3:0/provisioning_mode\n  # dmsetup table \
                 vg-pool_tdata ",
                "# dmsetup resume vg-pool_tdata\n  # dmsetup table vg-pool-tpool ",
            ],
        ),
        (
            &pool([GIB, GIB, 0, GIB]),
            1,
            Some(false),
            &["WRONG dm-2: the thin pool", "# lvchange --discards passdown vg/pool\n"],
        ),
        (
            &pool([GIB, GIB, 0, 0]),
            1,
            Some(false),
            &[
                "WRONG dm-2: the thin pool vg-pool-tpool ignores TRIM",
                "# umount --all-targets /dev/mapper/vg-thin\n  # lvchange --activate n vg/thin vg/pool\n",
                "# mount -t xfs -o rw /dev/mapper/vg-thin /data\n",
                "!dmsetup",
            ],
        ),
        (
            &integrity,
            2,
            Some(false),
            &[
                "WRONG dm-3: dm-integrity",
                "WRONG dm-6",
                "# lvconvert --yes --raidintegrity n vg/r\n  # dmsetup table vg-r | dmsetup reload vg-r",
                "checksums",
            ],
        ),
        (
            &deep,
            1,
            Some(false),
            &["WRONG dm-0: dm-crypt", "--persistent c\n  # dmsetup table v1", "# dmsetup resume v9\n"],
        ),
        (&cycle, 0, None, &["UNCHECKED /data", "lies on itself"]),
        (&vanished, 0, None, &["UNCHECKED /data", "does not show what lies below dm-0"]),
        (
            "mount 22 1 7:0 / /data rw - ext4 /dev/loop0 rw\nmount 23 1 8:0 / /below rw - vfat /dev/sda rw\n\
             on loop0 7:0 4096\nfile sys/devices/virtual/block/loop0/loop/backing_file /below/image\n\
             file etc/cron.weekly/fstrim",
            1,
            Some(false),
            &["WRONG loop0: ", "cannot punch holes", "ext4, XFS"],
        ),
        (&mixed, 1, Some(false), &["WRONG sdb", "!WRONG dm-0"]),
    ]);
    let lines = |host: &str| built(host).examine().file_systems[0].layers.len();
    assert_eq!((lines(&thin), lines(&deep)), (6, 11), "a disk under two branches is listed twice");
}

#[test]
fn odd_names_and_very_many_mounts_are_no_obstacle() {
    let host = built(&format!("{EXT4_ON_SDA}disk {SDA} 8:0 {GIB}"));
    let mut mounts = b"22 1 8:0 / /bad\\012line\xff rw - ext4 /dev/sda rw\n".to_vec();
    (0..2000).for_each(|n| {
        mounts.extend(format!("{} 22 8:0 /{n} /m/{n} rw - ext4 /dev/sda rw\n", n + 30).bytes())
    });
    (0..2000)
        .for_each(|n| mounts.extend(format!("{} 22 0:{n} / /t/{n} rw - tmpfs t rw\n", n + 4030).bytes()));
    fs::write(host.0.path().join("proc/1/mountinfo"), &mounts).unwrap();
    let report = host.examine();
    assert_eq!((report.file_systems.len(), report.file_systems[0].today.also_at.len()), (1, 2000));
    let json = serde_json::to_string(&report).unwrap();
    assert!(json.contains("/bad\\nline\u{fffd}"), "{}", &json[..300]);
    let odd = std::ffi::OsStr::from_bytes(b"/bad\nline\xff");
    let root = HostRoot::new(host.0.path());
    let one = examine(&root, Path::new("/run/trimwise"), Some(Path::new(odd))).unwrap();
    assert_eq!(one.file_systems[0].mount_point, Path::new(odd));
    let refused = examine(&root, Path::new("/run/trimwise"), Some(Path::new("/a\nb\x1b[31m"))).unwrap_err();
    assert!(!refused.to_string().contains(char::is_control), "{refused:?}");
}

#[test]
fn the_last_run_of_the_timer_is_told() {
    let host = built(&format!(
        "{EXT4_ON_SDA}disk {SDA} 8:0 {GIB}\nfile usr/lib/systemd/system/fstrim.timer [Timer]\\nOnCalendar=weekly\n\
         file var/lib/systemd/timers/stamp-fstrim.timer"
    ));
    expect(&host.examine(), 0, &["note fstrim.timer: it last elapsed less than an hour ago"]);
    let stamp = fs::File::options()
        .write(true)
        .open(host.0.path().join("var/lib/systemd/timers/stamp-fstrim.timer"))
        .unwrap();
    let days_ago =
        |days: u64| std::time::SystemTime::now() - std::time::Duration::from_secs(days * 86_400 + 60);
    stamp.set_modified(days_ago(3)).unwrap();
    expect(&host.examine(), 0, &["it last elapsed 3 days ago"]);
    stamp.set_modified(days_ago(20)).unwrap();
    expect(&host.examine(), 0, &["it last elapsed 20 days ago, which is more than twice its interval"]);
    assert!(host.examine().last_fstrim.unwrap().ago_s > 19 * 86_400);
}

#[test]
fn no_remedy_does_harm() {
    let raid = |mounts: &str, rest: &str| {
        format!(
            "mount 22 1 9:0 / {mounts} rw - xfs /dev/md0 rw\ndisk {SDA} 8:0 {GIB}\ndisk {SDB} 8:16 {GIB}\n\
             on md0 9:0 0 {SDA} {SDB}\nfile sys/devices/virtual/block/md0/md/level raid1\n{rest}"
        )
    };
    let md = "file sys/devices/virtual/block/md0";
    let anew = ["WRONG md0", "# umount --all-targets", "# mdadm --assemble /dev/md0 /dev/sda /dev/sdb"];
    let only_words = ["WRONG md0", "!# umount", "!# mdadm"];
    let lvm = format!(
        "mount 22 1 252:0 / /srv rw - xfs /dev/mapper/vg-x rw\ndisk {SDA} 8:0 {GIB}\non dm-1 252:1 {GIB} {SDA}\n\
         dm dm-1 vg-x_rimage_0 LVM-b\non dm-0 252:0 0 virtual/block/dm-1\ndm dm-0 vg-x LVM-a"
    );
    let thin = format!(
        "mount 22 1 252:0 / /srv rw - xfs /dev/mapper/v rw\ndisk {SDA} 8:0 {GIB}\non dm-1 252:1 {GIB} {SDA}\n\
         dm dm-1 pool-thindata x\non dm-2 252:2 0 virtual/block/dm-1\ndm dm-2 pool x\n\
         on dm-0 252:0 0 virtual/block/dm-2\ndm dm-0 v x"
    );
    judge(&[
        (&raid("/srv", ""), 1, Some(false), &anew),
        (&raid("/srv", &format!("{md}/md/raid_disks 2")), 1, Some(false), &anew),
        // A member that is missing, that sysfs no longer shows, or that a container holds.
        (&raid("/srv", &format!("{md}/md/raid_disks 3")), 1, Some(false), &only_words),
        (&raid("/srv", &format!("{md}/md/degraded 1")), 1, Some(false), &only_words),
        (
            &raid("/srv", "link sys/devices/virtual/block/md0/slaves/sdz ../../gone"),
            1,
            Some(false),
            &only_words,
        ),
        (&raid("/srv", &format!("{md}/md/metadata_version external:/md127/0")), 1, Some(false), &only_words),
        // More than one mount would have to go.
        (&raid("/srv", "mount 23 1 8:99 / /srv/sub rw - ext2 /dev/x rw"), 1, Some(false), &only_words),
        (&raid("/srv", "mount 23 1 9:0 /a /home rw - xfs /dev/md0 rw"), 1, Some(false), &only_words),
        (&raid("/srv", &format!("{md}/md0p2/partition 2")), 1, Some(false), &only_words),
        // A name that no line of a shell can show.
        (&raid("/n\\012w", ""), 1, Some(false), &only_words),
        // Its level is not known without dmsetup: no parameter that destroys data.
        (&lvm, 1, Some(false), &["WRONG dm-0: the RAID volume vg-x", "!echo Y"]),
        (&thin, 1, Some(false), &["ignores TRIM", "!# umount"]),
        // No parameter helps where the disks take less than a stripe.
        (
            &raid("/srv", &format!("{md}/md/chunk_size 524288\n{md}/md/raid_disks 3"))
                .replace("raid1", "raid5")
                .replace(&format!("8:16 {GIB}"), "8:16 65536"),
            1,
            Some(false),
            &["whole stripes of 1048576 bytes", "!echo Y"],
        ),
    ]);
}

#[test]
fn a_loop_device_is_followed_as_far_as_it_can_be() {
    let over = |file: &str, holder: &str, max: u64| {
        format!(
            "mount 22 1 7:0 / /data rw - ext4 /dev/loop0 rw\nmount 23 1 0:77 / /net rw - {holder} x rw\n\
             disk virtual/block/loop0 7:0 {max}\nfile sys/devices/virtual/block/loop0/loop/backing_file {file}\n\
             file sys/devices/virtual/block/loop0/queue/discard_max_hw_bytes 4294966784\ndisk {SDA} 8:0 0"
        )
    };
    let shared: &[&str] = &["UNCHECKED /data: /dev/loop0: /net/x.img lies on"];
    judge(&[
        (
            &over("/net/x.img", "vfat", 4_294_966_784),
            1,
            Some(false),
            &["cannot punch holes", "!switched off"],
        ),
        (
            &over("/net/x.img", "exfat", 4_294_966_784),
            1,
            Some(false),
            &["cannot punch holes", "!switched off"],
        ),
        (&over("/net/x.img", "xfs", 0), 1, Some(false), &["switched off"]),
        (&over("/net/x.img", "nfs4", GIB), 0, None, shared),
        (&over("/net/x.img", "cifs", GIB), 0, None, shared),
        (&over("/net/x.img", "fuse.sshfs", GIB), 0, None, shared),
        (&over("/dev/sda", "xfs", GIB), 1, Some(false), &["WRONG sda", "!punches holes"]),
        (
            &over("/net/gone", "devtmpfs", GIB),
            0,
            None,
            &["UNCHECKED /data: /dev/loop0: sysfs does not show /net/gone"],
        ),
    ]);
}

#[test]
fn a_layer_above_is_judged_by_its_own_kind() {
    let under = |kind: &str, rest: &str| {
        format!(
            "mount 22 1 252:0 / / rw - xfs /dev/mapper/x rw\ndisk {SDA} 8:0 0\n\
             file sys/devices/{SDA}/queue/discard_max_hw_bytes {GIB}\non dm-0 252:0 0 {SDA}\ndm dm-0 x {kind}\n{rest}"
        )
    };
    let crypt = ["which blocks are free", "# cryptsetup refresh --allow-discards --persistent x"];
    let raid = format!(
        "mount 22 1 9:0 / / rw - xfs /dev/md0 rw\ndisk {SDA} 8:0 0\n\
         file sys/devices/{SDA}/queue/discard_max_hw_bytes {GIB}\non md0 9:0 0 {SDA}\n\
         file sys/devices/virtual/block/md0/md/level raid5"
    );
    judge(&[
        (&under("CRYPT-LUKS2-1-x", ""), 1, Some(false), &crypt),
        (&under("CRYPT-TCRYPT-1-x", ""), 1, Some(false), &["hides a second volume", "!cryptsetup refresh"]),
        (&under("CRYPT-INTEGRITY-x", ""), 1, Some(false), &["WRONG sda", "dm-integrity (x) drops TRIM"]),
        (
            &under(
                "LVM-1",
                "on dm-1 252:1 0\ndm dm-1 x-cow LVM-2\nlink sys/devices/virtual/block/dm-0/slaves/dm-1 ../../dm-1",
            ),
            1,
            Some(false),
            &["x is a snapshot, or has one", "!dmsetup"],
        ),
        (&under("LVM-1", ""), 1, Some(false), &["# dmsetup resume x"]),
        (&raid, 1, Some(false), &["# echo Y > /sys/module/raid456/parameters/devices_handle_discard_safely"]),
    ]);
}

#[test]
fn what_needs_no_trim_or_must_not_have_it_is_told() {
    let on_sda = |options: &str, max: u64, rest: &str| {
        format!("{EXT4_ON_SDA}disk {SDA} 8:0 {max}\n{rest}")
            .replace("/dev/sda rw", &format!("/dev/sda {options}"))
    };
    let dead = ["the file system failed", "check it with `fsck /dev/sda`"];
    let fstab = "file etc/fstab /dev/sda / ext4 defaults 0 1\n";
    judge(&[
        (&on_sda("rw,emergency_ro", GIB, ""), 1, Some(true), &dead),
        (&on_sda("rw,shutdown", GIB, ""), 1, Some(true), &dead),
        (
            &on_sda("rw", 0, &format!("file sys/devices/{SDA}/queue/rotational 1")),
            0,
            Some(false),
            &["is a hard disk"],
        ),
        (&on_sda("ro", 0, ""), 0, Some(false), &["note sda: sda offers no TRIM", "nothing to trim"]),
        (
            &on_sda("rw", GIB, &format!("{fstab}link etc/systemd/system/fstrim.service /dev/null")),
            1,
            Some(true),
            &["# systemctl unmask fstrim.service", "!printf"],
        ),
        (
            &on_sda(
                "rw",
                GIB,
                &format!("{fstab}file etc/systemd/system/fstrim.service [Service]\\nExecStart=/bin/true"),
            ),
            1,
            Some(true),
            &["systemctl cat fstrim.service", "!printf"],
        ),
        (
            &format!(
                "mount 22 1 252:0 / / ro - ext4 /dev/mapper/root ro\ndisk {SDA} 8:0 {GIB}\non dm-0 252:0 0 {SDA}\n\
                 dm dm-0 root CRYPT-VERITY-1-root"
            ),
            0,
            Some(false),
            &["!dm-crypt (", "nothing to trim"],
        ),
    ]);
}
