//! What trims a file system, what leaves it out, and what was not checked.

use super::*;

#[test]
fn a_sound_host_is_sound() {
    let report = sound("").examine();
    expect(&report, "", &[]);
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
    expect(
        &nobody.examine(),
        "mount.trim.nothing",
        &["note /: nothing trims it", "trimwise advise --here /"],
    );
    nobody.file("etc/fstab", "# comment\nUUID=1 / xfs defaults,X-fstrim.notrim 0 1\n");
    expect(&nobody.examine(), "mount.fstab.exempt", &["X-fstrim.notrim"]);
    expect(
        &sound(",discard").examine(),
        "mount.discard.and-timer",
        &["note discard: it already discards what is freed", "fstrim.timer finds little left to trim"],
    );
    let both = sound("");
    both.file("etc/systemd/system/multi-user.target.wants/trimwised.service", "");
    expect(&both.examine(), "host.trimmers.several", &["fstrim.timer, trimwised: more than one"]);
    // The timer follows fstab unless it is empty; a socket without a listener does not count as a daemon.
    let unlisted = sound("");
    unlisted.file("etc/fstab", "UUID=2 /home xfs defaults 0 1\n").file("run/trimwise/control.sock", "");
    // fstrim finds / by the kernel's command line.
    unlisted.file("proc/cmdline", "quiet root=UUID=1 ro\n");
    expect(&unlisted.examine(), "", &[]);
    unlisted.file("proc/cmdline", "quiet\n");
    let words = [
        "WRONG /: nothing trims it",
        "fstrim.timer: it follows /etc/fstab, which does not list this file system",
    ];
    expect(&unlisted.examine(), "!mount.fstab.missing", &words);
    unlisted.file("etc/fstab", "UUID=2 /home xfs defaults 0 1\nUUID=1 / xfs defaults 0 1\n");
    expect(&unlisted.examine(), "", &[]);
    // A writable file system may be mounted read-only.
    let ro = sound("");
    ro.file("proc/1/mountinfo", "22 1 8:1 / / ro,relatime - xfs /dev/sda1 rw\n");
    fs::remove_file(ro.0.path().join("etc/systemd/system/timers.target.wants/fstrim.timer")).unwrap();
    expect(&ro.examine(), "mount.trim.nothing", &["nothing trims it"]);
    // Under another init, an enabled timer never runs.
    let other_init = sound(",discard");
    fs::remove_dir(other_init.0.path().join("run/systemd/system")).unwrap();
    expect(&other_init.examine(), "", &[]);
    symlink("/dev/null", both.0.path().join("etc/systemd/system/fstrim.timer")).unwrap();
    expect(&both.examine(), "", &[]);
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
    expect(
        &host.examine(),
        "fs.ext4.discards-too-much",
        &["far more than was freed", "trimwise advise --here /"],
    );
    host.file("proc/sys/kernel/osrelease", "5.10.0-30-amd64");
    expect(&host.examine(), "", &[]);
}

#[test]
fn bind_mounts_are_one_file_system_and_a_path_is_a_mount_point() {
    let host = sound("");
    let text = "22 1 8:1 / / rw - xfs /dev/sda1 rw\n23 22 8:1 /srv /srv rw - xfs /dev/sda1 rw\n\
        24 22 0:5 / /proc rw - proc proc rw\n";
    host.file("proc/1/mountinfo", text);
    expect(&host.examine(), "mount.bind.several", &["mounted 2 times"]);
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
        (
            &plain("mount 23 22 8:0 /srv /srv/ftp rw - ext4 /dev/root rw"),
            "mount.bind.several",
            Some(true),
            &["mounted 2 times"],
        ),
        (&with_cron, "", Some(true), &["!nothing trims it"]),
        (&notrim, "mount.bind.several", Some(true), &["!nothing trims it", "!X-fstrim.notrim"]),
        (
            &sysroot(""),
            "!mount.fstab.missing mount.bind.several",
            Some(true),
            &["WRONG /sysroot: nothing trims it", "--listed-in /proc/self/mountinfo"],
        ),
        (
            &sysroot(
                "file usr/lib/systemd/system/fstrim.service [Service]\\nExecStart=/sbin/fstrim --fstab\n\
                 file run/systemd/system/fstrim.service.d/all.conf [Service]\\nExecStart=\\nExecStart=-/sbin/fstrim -av",
            ),
            "mount.bind.several",
            Some(true),
            &["!nothing trims it"],
        ),
        (
            &plain(
                "mount 23 22 0:50 / /home rw - tmpfs t rw\n\
                 file usr/lib/systemd/system/fstrim.service [Service]\\nExecStart=/sbin/fstrim /home",
            ),
            "!mount.trim.left-out",
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
            "host.trimmers.several",
            Some(true),
            &["fstrim.timer, btrfs-trim.timer: more than one"],
        ),
        (
            &format!(
                "timer\nmount 22 1 8:0 / / rw - f2fs /dev/sda rw,discard\ndisk {SDA} 8:0 {GIB}\n\
                 file etc/fstab UUID=1 / f2fs defaults 0 1"
            ),
            "mount.discard.and-timer",
            Some(true),
            &["f2fs does so by default; `nodiscard` turns it off"],
        ),
    ]);
}

#[test]
fn what_was_not_checked_is_not_called_sound() {
    let zfs = "timer\nmount 22 1 0:25 / / rw - zfs rpool/ROOT rw\nmount 23 22 0:26 / /home rw - zfs rpool/home rw\n";
    judge(&[
        (
            zfs,
            "?unchecked.zfs.by-itself",
            None,
            &["UNCHECKED /, /home: zfs, pool rpool", "# zpool get autotrim rpool"],
        ),
        (
            &format!(
                "mount 22 1 8:0 / /data rw - fuseblk /dev/sda rw\ndisk {SDA} 8:0 {GIB}\ndisk {SDB} 8:16 {GIB}\n\
                 file proc/swaps Filename Type\\n/dev/sdb partition 8 0 -2\n\
                 file etc/fstab /dev/sdb none swap sw 0 0\nmount 23 1 7:1 / /snap ro - squashfs /dev/loop1 ro"
            ),
            "swap.discard.off ?unchecked.fuse.served",
            None,
            &[
                "UNCHECKED /data: fuseblk",
                "note swap on /dev/sdb: line 1 of /etc/fstab has no `discard`",
                "swapon --discard=once /dev/sdb",
                "!squashfs",
            ],
        ),
        (
            &format!(
                "mount 22 1 0:25 / / rw - bcachefs /dev/nvme0n1:/dev/sda rw\ndisk {NVME} 259:0 {GIB}\ndisk {SDA} 8:0 0\n\
                 file sys/fs/bcachefs/1/dev-0/discard 1"
            ),
            "?unchecked.bcachefs.by-itself",
            None,
            &["nvme0n1 accepts TRIM; sda accepts no TRIM", "bcachefs has no FITRIM"],
        ),
        // A device that sysfs does not show.
        (
            "mount 22 1 8:0 / / rw - ext4 /dev/sda rw",
            "mount.trim.nothing ?unchecked.layers.hidden",
            None,
            &["UNCHECKED /: /dev/sda: sysfs does not show"],
        ),
        // A container: its host trims, and no unit would start here.
        (
            &format!(
                "{EXT4_ON_SDA}disk {SDA} 8:0 {GIB}\nfile proc/1/uid_map 0 100000 65536\nfile etc/fstab x /x ext4"
            ),
            "?host.container.may-not-trim",
            Some(true),
            &["UNCHECKED container: nothing here may trim", "!systemctl", "!WRONG"],
        ),
        (
            &format!("{EXT4_ON_SDA}disk {SDA} 8:0 0\nfile proc/1/uid_map 0 100000 65536"),
            "disk.drive.no-trim ?host.container.may-not-trim",
            Some(false),
            &["note sda: sda does not support TRIM", "!WRONG"],
        ),
        (
            &format!("{EXT4_ON_SDA}disk {SDA} 8:0 {GIB}\nfile proc/1/status CapBnd:\t00000000a80425fb"),
            "?host.container.may-not-trim",
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
fn ntfs3_trims_only_if_it_is_mounted_with_discard() {
    let ntfs3 = |options: &str| {
        format!("timer\nmount 22 1 8:0 / /my\\040data rw - ntfs3 /dev/sda {options}\ndisk {SDA} 8:0 {GIB}")
    };
    let refuses = ["WRONG sda: ntfs3 refuses", "# mount -o remount,discard '/my data'", "!finds little left"];
    judge(&[
        (&ntfs3("rw,uid=0"), "!fs.ntfs3.needs-discard", Some(false), &refuses),
        (&ntfs3("rw,discard"), "mount.discard.and-timer", Some(true), &["!WRONG", "finds little left"]),
        (&ntfs3("ro"), "mount.options.read-only", Some(true), &["!WRONG"]),
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
    let unknown = built(&(ext4.clone() + stick + odd)).examine();
    assert_eq!(codes(&unknown), "?unchecked.fuse.served ?unchecked.fs.unknown");
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
fn the_last_run_of_the_timer_is_told() {
    let host = built(&format!(
        "{EXT4_ON_SDA}disk {SDA} 8:0 {GIB}\nfile usr/lib/systemd/system/fstrim.timer [Timer]\\nOnCalendar=weekly\n\
         file var/lib/systemd/timers/stamp-fstrim.timer"
    ));
    expect(&host.examine(), "host.fstrim.ran", &["note fstrim.timer: it last elapsed less than an hour ago"]);
    let stamp = fs::File::options()
        .write(true)
        .open(host.0.path().join("var/lib/systemd/timers/stamp-fstrim.timer"))
        .unwrap();
    let days_ago =
        |days: u64| std::time::SystemTime::now() - std::time::Duration::from_secs(days * 86_400 + 60);
    stamp.set_modified(days_ago(3)).unwrap();
    expect(&host.examine(), "host.fstrim.ran", &["it last elapsed 3 days ago"]);
    stamp.set_modified(days_ago(20)).unwrap();
    expect(
        &host.examine(),
        "host.fstrim.late",
        &["it last elapsed 20 days ago, which is more than twice its interval"],
    );
    assert!(host.examine().last_fstrim.unwrap().ago_s > 19 * 86_400);
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
        (&on_sda("rw,emergency_ro", GIB, ""), "!fs.state.failed", Some(true), &dead),
        (&on_sda("rw,shutdown", GIB, ""), "!fs.state.failed", Some(true), &dead),
        (
            &on_sda("rw", 0, &format!("file sys/devices/{SDA}/queue/rotational 1")),
            "disk.rotational.no-trim",
            Some(false),
            &["is a hard disk"],
        ),
        (
            &on_sda("ro", 0, ""),
            "disk.drive.no-trim mount.options.read-only",
            Some(false),
            &["note sda: sda does not support TRIM", "nothing to trim"],
        ),
        (
            &on_sda("rw", GIB, &format!("{fstab}link etc/systemd/system/fstrim.service /dev/null")),
            "!mount.timer.masked",
            Some(true),
            &["# systemctl unmask fstrim.service", "!printf"],
        ),
        (
            &on_sda(
                "rw",
                GIB,
                &format!("{fstab}file etc/systemd/system/fstrim.service [Service]\\nExecStart=/bin/true"),
            ),
            "!mount.timer.runs-nothing",
            Some(true),
            &["systemctl cat fstrim.service", "!printf"],
        ),
        (
            &format!(
                "mount 22 1 252:0 / / ro - ext4 /dev/mapper/root ro\ndisk {SDA} 8:0 {GIB}\non dm-0 252:0 0 {SDA}\n\
                 dm dm-0 root CRYPT-VERITY-1-root"
            ),
            "layer.mapping.kind-unknown mount.options.read-only",
            Some(false),
            &["!dm-crypt (", "nothing to trim"],
        ),
    ]);
}

#[test]
fn only_what_runs_trims() {
    let on_sda =
        |rest: &str| format!("mount 22 1 8:0 / / rw - ext4 /dev/sda rw\ndisk {SDA} 8:0 {GIB}\n{rest}");
    let systemd = "file run/systemd/system/x";
    let weekly = "OnCalendar=weekly";
    for (rest, expected) in [
        ("script etc/cron.weekly/fstrim #!/bin/sh\\nfstrim -a", &["/etc/cron.weekly/fstrim"][..]),
        // run-parts leaves these out.
        ("file etc/cron.weekly/fstrim #!/bin/sh\\nfstrim -a", &[]),
        ("script etc/cron.weekly/fstrim.disabled #!/bin/sh\\nfstrim -a", &[]),
        ("file etc/cron.d/trim.dpkg-old 5 3 * * 0 root fstrim -a", &[]),
        ("script etc/cron.weekly/fstrim~ #!/bin/sh\\nfstrim -a", &[]),
        // cronie's takes a dot.
        (
            "script etc/cron.daily/trim.sh #!/bin/sh\\nfstrim -a\nfile usr/bin/run-parts #!/bin/bash",
            &["/etc/cron.daily/trim.sh"],
        ),
        ("script etc/cron.daily/trim.rpmsave #!/bin/sh\\nfstrim -a\nfile usr/bin/run-parts #!/bin/bash", &[]),
        ("script etc/cron.daily/.trim #!/bin/sh\\nfstrim -a\nfile usr/bin/run-parts #!/bin/bash", &[]),
        ("script etc/periodic/weekly/fstrim #!/bin/sh\\nfstrim -a", &["/etc/periodic/weekly/fstrim"]),
        // Alpine's spool is a link.
        (
            "file etc/crontabs/root 0 3 * * 6 fstrim -a\nlink var/spool/cron/crontabs /etc/crontabs",
            &["/etc/crontabs/root"],
        ),
        (
            &format!(
                "{systemd}\nscript etc/cron.weekly/fstrim #!/bin/sh\\n[ -d /run/systemd/system ] && exit 0\\nfstrim -a"
            ),
            &[],
        ),
        (
            "script etc/cron.weekly/fstrim #!/bin/sh\\n[ -d /run/systemd/system ] && exit 0\\nfstrim -a",
            &["/etc/cron.weekly/fstrim"],
        ),
        // The unit is gone.
        (
            &format!(
                "{systemd}\nlink etc/systemd/system/timers.target.wants/fstrim.timer /usr/lib/systemd/system/fstrim.timer"
            ),
            &[],
        ),
        (
            &format!(
                "{systemd}\nlink etc/systemd/system/timers.target.wants/fstrim.timer /gone\n\
                 file usr/lib/systemd/system/fstrim.timer [Timer]\\n{weekly}"
            ),
            &["fstrim.timer"],
        ),
        // NixOS: links that begin at the host's root.
        (
            &format!(
                "{systemd}\nlink etc/systemd/system /nix/units\nfile nix/st/fstrim.timer [Timer]\\n{weekly}\n\
                 link nix/units/fstrim.timer /nix/st/fstrim.timer\n\
                 link nix/units/timers.target.wants/fstrim.timer ../fstrim.timer"
            ),
            &["fstrim.timer"],
        ),
        (
            &format!(
                "{systemd}\nlink etc/systemd/system /nix/units\nlink nix/units/fstrim.timer /dev/null\n\
                 link nix/units/timers.target.wants/fstrim.timer ../fstrim.timer"
            ),
            &[],
        ),
    ] {
        let report = built(&on_sda(rest)).examine();
        assert_eq!(report.trimmers, expected, "{rest}");
        let names: Vec<_> = report.file_systems[0].today.at_intervals.iter().map(|one| &one.name).collect();
        assert_eq!(names, expected, "{rest}");
    }
    let service = |options: &str, more: &str| {
        format!(
            "{EXT4_ON_SDA}disk {SDA} 8:0 {GIB}\nfile etc/fstab /dev/sda / ext4 defaults{more} 0 1\n\
             file usr/lib/systemd/system/fstrim.service [Service]\\nExecStart=/sbin/fstrim {options}"
        )
    };
    judge(&[
        (
            &service("--all --types xfs", ""),
            "!mount.trim.left-out",
            Some(true),
            &["it trims only the types `xfs`", "!printf", "!add it"],
        ),
        (&service("--all --types xfs,ext4", ""), "", Some(true), &["!nothing trims it"]),
        (
            &service("--fstab", ",ro"),
            "!mount.fstab.read-only",
            Some(true),
            &["says `ro`", "remove `ro` from", "!does not list", "!printf"],
        ),
        (&service("--all", ",ro"), "", Some(true), &["!nothing trims it"]),
        // As Debian's has it: met here.
        (
            &service("--all\\nConditionPathExists=!/etc/initrd-release", ""),
            "",
            Some(true),
            &["!does not start"],
        ),
        (
            &service("--all\\nConditionPathExists=|/gone\\nConditionPathExists=|/etc", ""),
            "",
            Some(true),
            &["!does not start"],
        ),
        (
            &service("--all\\nConditionPathIsDirectory=!/etc", ""),
            "!mount.trim.left-out",
            Some(true),
            &["fstrim.service does not start: `ConditionPathIsDirectory=!/etc` is not met"],
        ),
        (
            &service("--all\\nConditionPathExists=|/gone\\nConditionPathExists=|!/etc", ""),
            "!mount.trim.left-out",
            Some(true),
            &["fstrim.service does not start: `ConditionPathExists=|/gone` is not met"],
        ),
    ]);
}

#[test]
fn who_turned_discard_on_is_told() {
    let ext4 = |mount: &str, fstab: &str, rest: &str| {
        format!(
            "timer\nmount 22 1 8:0 / / rw - ext4 /dev/sda {mount}\ndisk {SDA} 8:0 {GIB}\n\
             file etc/fstab /dev/sda / ext4 {fstab} 0 1\n{rest}"
        )
    };
    let superblock = "file proc/fs/ext4/sda/options rw\\ndiscard";
    judge(&[
        (
            &ext4("rw", "defaults", superblock),
            "mount.discard.and-timer fs.ext4.discards-too-much",
            Some(true),
            &["its superblock says so"],
        ),
        // Mountinfo shows only what is no default of the file system.
        (
            &ext4("rw,discard", "defaults", superblock),
            "mount.discard.and-timer fs.ext4.discards-too-much",
            Some(true),
            &["or a remount", "!superblock"],
        ),
        (
            &ext4("rw,discard", "discard,nodiscard", superblock),
            "mount.discard.and-timer fs.ext4.discards-too-much",
            Some(true),
            &["or a remount", "!superblock"],
        ),
        (
            &ext4("rw,discard", "discard", superblock),
            "mount.discard.and-timer fs.ext4.discards-too-much",
            Some(true),
            &["!remount", "!superblock"],
        ),
        (&ext4("rw", "discard,nodiscard", ""), "", Some(true), &["!it lists discard"]),
        (&ext4("rw", "discard", ""), "mount.fstab.discard-not-in-effect", Some(true), &["it lists discard"]),
    ]);
}

#[test]
fn fstrim_needs_a_kernel_and_its_devices() {
    let mounted = |kernel: &str, fs_type: &str, at: &str, options: &str| {
        format!(
            "timer\nmount 22 1 8:0 / {at} rw - {fs_type} /dev/sda rw{options}\ndisk {SDA} 8:0 {GIB}\ndisk {SDB} 8:16 0\n\
             file sys/devices/{SDB}/queue/rotational 1\nfile proc/sys/kernel/osrelease {kernel}"
        )
    };
    let realtime = |kernel: &str| mounted(kernel, "xfs", "/srv", ",rtdev=/dev/sdb");
    judge(&[
        (
            &mounted("4.9.0", "vfat", "/srv", ""),
            "!fs.fstrim.kernel-too-old",
            Some(false),
            &["cannot trim vfat before Linux 4.19", "!# mount"],
        ),
        (
            &mounted("4.9.0", "vfat", "/boot/efi", ""),
            "fs.fstrim.kernel-too-old",
            Some(false),
            &["note sda: fstrim cannot"],
        ),
        (
            &mounted("4.9.0", "vfat", "/srv", ",discard"),
            "mount.discard.and-timer",
            Some(true),
            &["!cannot trim"],
        ),
        (&mounted("4.19.1", "vfat", "/srv", ""), "", Some(true), &["!cannot trim"]),
        (
            &mounted("5.10.0", "exfat", "/srv", ""),
            "!fs.fstrim.kernel-too-old",
            Some(false),
            &["cannot trim exfat before Linux 5.13"],
        ),
        (&mounted("5.15.0", "exfat", "/srv", ""), "", Some(true), &["!cannot trim"]),
        (&mounted("5.10.0", "ext4", "/srv", ""), "", Some(true), &["!cannot trim"]),
        (
            &realtime("6.1.0"),
            "disk.rotational.no-trim fs.xfs.realtime-untrimmed",
            Some(true),
            &["note sdb: sdb is a hard disk", "which Linux before 6.11 does not trim"],
        ),
        (
            &realtime("6.12.0"),
            "disk.rotational.no-trim",
            Some(true),
            &["note sdb: sdb is a hard disk", "!6.11"],
        ),
    ]);
}

#[test]
fn swap_is_told_of_by_its_own_line() {
    let host = |swaps: &str, fstab: &str, rest: &str| {
        format!(
            "{EXT4_ON_SDA}disk {SDA} 8:0 {GIB}\ndisk {SDB} 8:16 {GIB}\nfile proc/swaps Filename Type\\n{swaps}\n\
             file etc/fstab /dev/sda / ext4 defaults 0 1\\n{fstab}\n{rest}"
        )
    };
    let crypt = format!("on dm-0 254:0 0 {SDA}\ndm dm-0 swap CRYPT-PLAIN-swap");
    let file = "/swap\\040file file 8 0 -2";
    judge(&[
        (
            &host(&format!("/dev/sdb partition 8 0 -2\\n{file}"), "/dev/sdb none swap discard", ""),
            "swap.discard.on swap.discard.off",
            Some(true),
            &[
                "swap on /dev/sdb: line 2 of /etc/fstab says `discard`",
                "swap on /swap file: no line of /etc/fstab",
            ],
        ),
        (
            &host(file, "/swap\\040file none swap discard=once", ""),
            "swap.discard.on",
            Some(true),
            &["swap on /swap file: line 2 of /etc/fstab says `discard=once`"],
        ),
        (
            &host("/dev/dm-0 partition 8 0 -2", "/dev/mapper/swap none swap discard", &crypt),
            "swap.discard.no-trim",
            Some(true),
            &["says `discard`, but dm-0 accepts no TRIM", "/etc/crypttab"],
        ),
        (
            &host("/dev/dm-0 partition 8 0 -2", "/dev/mapper/swap none swap sw", &crypt),
            "",
            Some(true),
            &["!swap on"],
        ),
    ]);
}

#[test]
fn a_note_is_made_under_its_own_condition_only() {
    let on = |fs_type: &str, options: &str, rest: &str| {
        format!(
            "timer\nmount 22 1 8:0 / /srv rw - {fs_type} /dev/sda {options}\ndisk {SDA} 8:0 {GIB}\n{rest}"
        )
    };
    let without_timer = |fs_type: &str, options: &str, rest: &str| {
        on(fs_type, options, rest).strip_prefix("timer\n").unwrap().to_owned()
    };
    let kernel = |release: &str| format!("file proc/sys/kernel/osrelease {release}");
    let fstab = |options: &str| format!("file etc/fstab /dev/sda /srv ext4 {options} 0 1");
    let daemon =
        "file run/systemd/system/x\nfile etc/systemd/system/multi-user.target.wants/trimwised.service";
    let cron = "script etc/cron.weekly/fstrim #!/bin/sh\\nfstrim --all";
    let stamp = "file var/lib/systemd/timers/stamp-fstrim.timer";
    let both = "mount.discard.and-timer fs.ext4.discards-too-much";
    judge(&[
        (&on("ext4", "rw,discard", &kernel("6.0.19")), "mount.discard.and-timer", Some(true), &[]),
        // 6.8 and the stable kernels with its change.
        (&on("ext4", "rw,discard", &kernel("6.1.76")), "mount.discard.and-timer", Some(true), &[]),
        (&on("ext4", "rw,discard", &kernel("6.1.77")), both, Some(true), &["discards far more", "!may"]),
        (&on("ext4", "rw,discard", &kernel("6.6.15-arch1")), "mount.discard.and-timer", Some(true), &[]),
        (&on("ext4", "rw,discard", &kernel("6.7.3")), "mount.discard.and-timer", Some(true), &[]),
        (&on("ext4", "rw,discard", &kernel("5.15.149")), both, Some(true), &["!may"]),
        (&on("ext4", "rw,discard", &kernel("5.15.148")), "mount.discard.and-timer", Some(true), &[]),
        (&on("ext4", "rw,discard", &kernel("6.8.0-31-generic")), both, Some(true), &["!may"]),
        (&on("ext4", "rw,discard", &kernel("6.1.0-13-amd64")), both, Some(true), &["may discard far more"]),
        (&on("ext4", "rw", &kernel("6.8.0")), "", Some(true), &[]),
        (&on("ext3", "rw,discard", &kernel("6.8.0")), "mount.discard.and-timer", Some(true), &[]),
        // What the daemon does about discard is its own business.
        (&without_timer("xfs", "rw,discard", daemon), "", Some(true), &[]),
        // fstrim --all never reads fstab.
        (&without_timer("ext4", "rw", &format!("{cron}\n{}", fstab("X-fstrim.notrim"))), "", Some(true), &[]),
        (&without_timer("ext4", "rw", &fstab("X-fstrim.notrim")), "mount.fstab.exempt", Some(true), &[]),
        (
            &on("ext4", "ro,emergency_ro", ""),
            "!fs.state.failed",
            Some(true),
            &["WRONG emergency_ro: the file system failed", "fsck"],
        ),
        (&on("ext4", "ro,discard", &fstab("discard")), "mount.options.read-only", Some(true), &[]),
        (
            &on("xfs", "rw", &fstab("discard").replace("ext4", "xfs")),
            "mount.fstab.discard-not-in-effect",
            Some(true),
            &["XFS applies it only at mount time"],
        ),
        (&on("ext4", "rw", &fstab("discard")), "mount.fstab.discard-not-in-effect", Some(true), &["!XFS"]),
        (
            &on("btrfs", "rw,discard=async", ""),
            "mount.discard.and-timer",
            Some(true),
            &["note discard=async", "btrfs does so by default since Linux 6.2"],
        ),
        (
            &on("f2fs", "rw", &kernel("3.17.8")),
            "!fs.fstrim.kernel-too-old",
            Some(false),
            &["before Linux 3.18"],
        ),
        (&on("f2fs", "rw", &kernel("3.18.0")), "", Some(true), &[]),
        (&on("exfat", "rw", &kernel("5.12.19")), "!fs.fstrim.kernel-too-old", Some(false), &[]),
        (&on("exfat", "rw", &kernel("5.13.0")), "", Some(true), &[]),
        (
            &on("xfs", "rw,rtdev=/dev/sdb", &format!("disk {SDB} 8:16 {GIB}\n{}", kernel("6.10.9"))),
            "fs.xfs.realtime-untrimmed",
            Some(true),
            &["note sdb"],
        ),
        (
            &on("xfs", "rw,rtdev=/dev/sdb", &format!("disk {SDB} 8:16 {GIB}\n{}", kernel("6.11.0"))),
            "",
            Some(true),
            &[],
        ),
        // A timer that is not enabled did not run of late.
        (
            &without_timer("xfs", "rw", &format!("file run/systemd/system/x\n{stamp}")),
            "mount.trim.nothing",
            Some(true),
            &[],
        ),
        (&on("xfs", "rw", stamp), "host.fstrim.ran", Some(true), &[]),
    ]);
    // The host as a whole is told of only where nothing was asked for.
    let host = built(&on(
        "xfs",
        "rw",
        &format!("{stamp}\nfile proc/swaps Filename Type\\n/dev/sdz partition 8 0 -2"),
    ));
    assert_eq!(codes(&host.examine()), "host.fstrim.ran swap.discard.off");
    let root = HostRoot::new(host.0.path());
    let one = examine(&root, Path::new("/run/trimwise"), Some(Path::new("/srv"))).unwrap();
    assert_eq!(codes(&one), "");
}

#[test]
fn the_remedy_for_a_mount_that_fstab_omits_runs_the_host_s_fstrim() {
    for (programs, expected) in [
        (&["usr/bin/fstrim"][..], "/usr/bin/fstrim"),
        (&["usr/bin/fstrim", "sbin/fstrim"], "/sbin/fstrim"),
        (&["sbin/fstrim", "usr/sbin/fstrim"], "/usr/sbin/fstrim"),
        (&[], "/sbin/fstrim"),
    ] {
        let files: String = programs.iter().map(|program| format!("file {program} x\n")).collect();
        judge(&[(
            &format!(
                "timer\nmount 22 1 8:0 / /srv rw - ext4 /dev/sda rw\ndisk {SDA} 8:0 {GIB}\n\
                 file etc/fstab UUID=2 /home xfs defaults 0 1\n{files}"
            ),
            "!mount.fstab.missing",
            Some(true),
            &[
                &format!("'ExecStart={expected} --listed-in /proc/self/mountinfo --verbose"),
                "# systemctl daemon-reload",
            ],
        )]);
    }
}

#[test]
fn swap_in_memory_needs_no_discard_and_a_line_may_name_its_device_in_any_way() {
    let host = |swaps: &str, fstab: &str, rest: &str| {
        format!(
            "{EXT4_ON_SDA}disk {SDA} 8:0 {GIB}\ndisk {SDB} 8:16 {GIB}\nfile proc/swaps Filename Type\\n{swaps}\n\
             file etc/fstab /dev/sda / ext4 defaults 0 1\\n{fstab}\n{rest}"
        )
    };
    let sdb = "/dev/sdb partition 8 0 -2";
    let zram = "/dev/zram0 partition 8 0 100";
    judge(&[
        (
            &host(zram, "", ""),
            "swap.zram.freed-by-linux",
            Some(true),
            &["note swap on /dev/zram0: it lies in memory", "!swapon"],
        ),
        // The only line for the only area on a disk.
        (
            &host(&format!("{zram}\\n{sdb}"), "LABEL=swap none swap discard", ""),
            "swap.zram.freed-by-linux swap.discard.on",
            Some(true),
            &["line 2"],
        ),
        // Of two areas, neither is named by it.
        (
            &host(&format!("{sdb}\\n/dev/sdy partition 8 0 -2"), "LABEL=swap none swap discard", ""),
            "swap.discard.off swap.discard.off",
            Some(true),
            &["no line of /etc/fstab says"],
        ),
        (
            &host(sdb, "/dev/sdb none swap sw", ""),
            "swap.discard.off",
            Some(true),
            &[
                "line 2 of /etc/fstab has no `discard`",
                "# swapoff /dev/sdb\n  # swapon --discard=once /dev/sdb",
            ],
        ),
        // Not dm-crypt: crypttab is not the place.
        (
            &host(sdb, "/dev/sdb none swap discard", "").replace(&format!("8:16 {GIB}"), "8:16 0"),
            "swap.discard.no-trim",
            Some(true),
            &["but sdb accepts no TRIM", "!crypttab"],
        ),
    ]);
}

#[test]
fn at_most_three_mounts_of_a_pool_are_named() {
    let pool = |mounts: usize| {
        let mounts =
            (0..mounts).map(|n| format!("mount {} 1 0:{} / /z{n} rw - zfs tank/{n} rw\n", n + 30, n + 60));
        mounts.collect::<String>()
    };
    judge(&[
        (&pool(3), "?unchecked.zfs.by-itself", None, &["UNCHECKED /z0, /z1, /z2: zfs, pool tank"]),
        (&pool(4), "?unchecked.zfs.by-itself", None, &["UNCHECKED /z0, /z1, /z2, ...: zfs, pool tank"]),
    ]);
}

#[test]
fn accounts_of_the_host_are_given() {
    const LUN: &str = "platform/host3/session1/target3:0:0/3:0:0:1/block/sdb";
    let lun = |kernel: &str, mode: &str, page: &str| {
        let scsi = format!("file sys/devices/{LUN}/device");
        format!(
            "timer\nmount 22 1 8:16 / /pv rw - xfs /dev/sdb rw\ndisk {LUN} 8:16 {GIB}\n\
             {scsi}/scsi_disk/3:0:0:1/provisioning_mode {mode}\n{scsi}/vpd_pgb2 {page}\nfile proc/sys/kernel/osrelease {kernel}"
        )
    };
    let lvm = |place: &str, conf: &str| {
        let conf = if conf.is_empty() { String::new() } else { format!("file etc/lvm/lvm.conf {conf}") };
        format!(
            "timer\nmount 22 1 253:0 / /data rw - xfs /dev/mapper/vg-data rw\ndisk {place} 8:16 {GIB}\n\
             on dm-0 253:0 {GIB} {place}\ndm dm-0 vg-data LVM-abc\n{conf}"
        )
    };
    let errors =
        |count: &str| format!("{EXT4_ON_SDA}disk {SDA} 8:0 {GIB}\nfile sys/fs/ext4/sda/errors_count {count}");
    let cron = |line: &str| format!("mount 22 1 8:0 / / rw - xfs /dev/sda rw\ndisk {SDA} 8:0 {GIB}\n{line}");
    let off = "host.lvm.issue-discards-off";
    let both = "12345\u{e0}";
    judge(&[
        // LBPU, LBPWS and LBPWS10 are claimed, UNMAP first. The file is text, so the bits are in the first byte of UTF-8.
        (
            &lun("3.10.0-1160.el7.x86_64", "writesame_16", both),
            "!disk.scsi.other-mode",
            Some(true),
            &[
                "WRONG sdb: sdb claims UNMAP first, but is sent `writesame_16`: Linux before 4.12",
                "# echo unmap > /sys/block/sdb/device/scsi_disk/3:0:0:1/provisioning_mode",
            ],
        ),
        (
            &lun("6.1.0", "writesame_16", both),
            "disk.scsi.other-mode",
            Some(true),
            &["note sdb", "no limit for UNMAP"],
        ),
        (&lun("3.10.0", "unmap", both), "", Some(true), &[]),
        (&lun("3.10.0", "writesame_16", "12345@"), "", Some(true), &[]),
        // Removed volumes.
        (
            &lvm(LUN, "devices {\\n  issue_discards = 0\\n}"),
            off,
            Some(true),
            &[
                "note LVM: /etc/lvm/lvm.conf says issue_discards = 0: removed and shrunk logical volumes are never discarded, so sdb",
                "# sed -i '/^[^#]*issue_discards/s/= *0/= 1/' /etc/lvm/lvm.conf",
            ],
        ),
        (&lvm(LUN, "# issue_discards = 1"), off, Some(true), &["as it is by default", "!# sed"]),
        (&lvm(LUN, ""), off, Some(true), &["as it is by default"]),
        (&lvm(LUN, "issue_discards=1"), "", Some(true), &[]),
        (&lvm(SDA, "issue_discards = 0"), "", Some(true), &[]),
        // Errors of ext4.
        (
            &errors("3"),
            "!fs.ext4.errors",
            Some(true),
            &["WRONG sda: ext4 has recorded 3 errors", "`fsck -f /dev/sda`"],
        ),
        (&errors("1"), "!fs.ext4.errors", Some(true), &["recorded 1 error in"]),
        (&errors("0"), "", Some(true), &[]),
        // A script that run-parts leaves out.
        (
            &cron("file etc/cron.weekly/fstrim #!/bin/sh\\nexec /sbin/fstrim -a"),
            "!mount.cron.not-executable",
            Some(true),
            &["/etc/cron.weekly/fstrim: it is not executable", "# chmod a+x /etc/cron.weekly/fstrim"],
        ),
        (&cron("script etc/cron.weekly/fstrim #!/bin/sh\\nexec /sbin/fstrim -a"), "", Some(true), &[]),
        // WSL.
        (
            &format!(
                "timer\nmount 22 1 8:0 / / rw - xfs /dev/sda rw\ndisk {SDA} 8:0 {GIB}\nfile sys/devices/{SDA}/device/vendor Msft\n\
                 file proc/sys/kernel/osrelease 5.15.153.1-microsoft-standard-WSL2"
            ),
            "disk.virtual.host-unknown",
            Some(true),
            &["unless it is sparse", "`wsl --manage DISTRO --set-sparse true`", "--allow-unsafe"],
        ),
        (
            &format!(
                "timer\nmount 22 1 8:0 / / rw - xfs /dev/sda rw\ndisk {SDA} 8:0 {GIB}\nfile sys/devices/{SDA}/device/vendor Msft"
            ),
            "disk.virtual.host-unknown",
            Some(true),
            &["!wsl", "VHDX"],
        ),
    ]);
}

#[test]
fn what_uses_devices_without_a_mount_here_is_told() {
    let host = |rest: &str| {
        format!(
            "timer\nmount 22 1 8:0 / / rw - xfs /dev/sda rw\ndisk {SDA} 8:0 {GIB}\nlink proc/1/ns/mnt mnt:[1]\n{rest}"
        )
    };
    let volume = |name: &str| {
        format!(
            "disk {NVME} 259:0 {GIB}\non dm-0 253:0 {GIB} {NVME}\ndm dm-0 {name} LVM-1\n\
        link sys/devices/{NVME}/holders/dm-0 ../../../../../../virtual/block/dm-0\n"
        )
    };
    let opened = |program: &str| {
        volume("vg-raw")
            + &format!(
                "file proc/77/comm {program}\nlink proc/77/fd/5 /dev/dm-0\nlink proc/77/ns/mnt mnt:[1]"
            )
    };
    // A process in a mount namespace of its own, in this control group.
    let contained = |group: &str, rest: &str| {
        volume("pve-vm--101--disk--0")
            + &format!(
                "link proc/88/ns/mnt mnt:[2]\nlink proc/89/ns/mnt mnt:[2]\nfile proc/88/cgroup 0::{group}\n\
                 file proc/88/mountinfo 40 1 253:0 / / rw - ext4 /dev/mapper/pve-vm--101--disk--0 rw\n{rest}"
            )
    };
    let mounted = "?unchecked.namespace.mounted";
    judge(&[
        (
            &host(&volume("ceph--aaaa-osd--block--bbbb")),
            "?unchecked.ceph.osd",
            Some(true),
            &["UNCHECKED dm-0: a Ceph OSD", "# ceph config get osd bdev_enable_discard"],
        ),
        (&host(&volume("vg-unused")), "", Some(true), &[]),
        (
            &host(&opened("qemu-system-x86")),
            "?unchecked.device.in-use",
            Some(true),
            &["UNCHECKED dm-0: the disk of a virtual machine", "(qemu-system-x86)", "discard='unmap'"],
        ),
        (&host(&opened("bstore_aio")), "?unchecked.ceph.osd", Some(true), &["UNCHECKED dm-0"]),
        (
            &host(&opened("postgres")),
            "?unchecked.device.in-use",
            Some(true),
            &["a database on the device itself"],
        ),
        (&host(&opened("tgtd")), "?unchecked.device.in-use", Some(true), &["so no fstrim reaches it (tgtd)"]),
        // It only looks.
        (&host(&opened("smartd")), "", Some(true), &[]),
        // What accepts no TRIM is no loss.
        (&host(&opened("postgres").replace(&format!("253:0 {GIB}"), "253:0 0")), "", Some(true), &[]),
        // In use by a mount.
        (
            &host(&format!("mount 23 22 253:0 / /srv rw - xfs /dev/dm-0 rw\n{}", opened("postgres"))),
            "",
            Some(true),
            &["!UNCHECKED"],
        ),
        (
            &host(&contained("/lxc/101/ns", "file etc/pve/x")),
            mounted,
            Some(true),
            &[
                "UNCHECKED /dev/mapper/pve-vm--101--disk--0: mounted only in the mount namespace of the container 101, at /",
                "# pct fstrim 101",
            ],
        ),
        (
            &host(&contained("/lxc.payload.web/init.scope", "")),
            mounted,
            Some(true),
            &["the container web (LXC)", "# nsenter --target 88 --mount fstrim --verbose /\n"],
        ),
        (
            &host(&contained("/system.slice/docker-1.scope", "")),
            mounted,
            Some(true),
            &["a container of Docker"],
        ),
        (&host(&contained("/user.slice", "")), mounted, Some(true), &["process 88"]),
        // The same namespace, or the same file system.
        (&host(&contained("/", "").replace("mnt:[2]", "mnt:[1]")), "", Some(true), &[]),
        (&host(&contained("/", "").replace("40 1 253:0", "40 1 8:0")), "", Some(true), &[]),
        (
            &host("file proc/spl/kstat/zfs/tank/state ONLINE"),
            "?unchecked.zfs.by-itself",
            Some(true),
            &["UNCHECKED nothing of it is mounted here: zfs, pool tank"],
        ),
        // An OSD by the folder of its data.
        (
            &host(&(volume("vg-x") + "link var/lib/ceph/osd/ceph-3/block /dev/dm-0")),
            "?unchecked.ceph.osd",
            Some(true),
            &["UNCHECKED dm-0"],
        ),
        // The cache of a bcache.
        (
            &format!(
                "timer\nmount 22 1 252:0 / / rw - xfs /dev/bcache0 rw\ndisk {SDA} 8:0 {GIB}\ndisk {NVME} 259:0 {GIB}\n\
                 on bcache0 252:0 {GIB} {SDA} {NVME}\nlink sys/devices/virtual/block/bcache0/bcache ../../../{SDA}/bcache\n\
                 file sys/devices/{SDA}/bcache/running 1\nfile sys/devices/{NVME}/bcache/discard 0"
            ),
            "layer.bcache-cache.no-discard",
            Some(true),
            &["note nvme0n1: the cache of a bcache", "# echo 1 > /sys/block/nvme0n1/bcache/discard"],
        ),
    ]);
}
