//! The doctor on fake hosts: sysfs, procfs and fstab in a folder.

mod disks;
mod purposes;
mod stacks;
mod trimmers;

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use trimwise_linux::doctor::{Aim, DoctorError, Finding, Lender, Report, examine, why_not_on_this_kernel};
use trimwise_linux::host_root::HostRoot;
use trimwise_linux::today::Sends;

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
fn expect(report: &Report, expected: &str, words: &[&str]) {
    let said = said(report);
    assert_eq!(codes(report), expected, "{said}");
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
/// script PATH TEXT                       a file that may be executed
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
            "script" => {
                host.script(words[1], &rest(2));
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

/// Codes of all findings in their order, each after its mark: `!` for what is wrong, `?` for what was not checked.
fn codes(report: &Report) -> String {
    let all = report.file_systems.iter().flat_map(|one| &one.findings).chain(&report.findings);
    let found = all.map(|one| format!("{}{}", if one.wrong { "!" } else { "" }, one.code));
    let unchecked = report.not_checked.iter().map(|one| format!("?{}", one.code));
    found.chain(unchecked).collect::<Vec<_>>().join(" ")
}

/// What a host is, the [`codes`] of all that is found there, whether TRIM passes on the first file system, what the doctor
/// says, and what it must not say (after a `!`).
type Case<'a> = (&'a str, &'a str, Option<bool>, &'a [&'a str]);

#[track_caller]
fn judge(cases: &[Case<'_>]) {
    for (lines, expected, passes, words) in cases {
        let report = built(lines).examine();
        let said = said(&report);
        assert_eq!(codes(&report), *expected, "{lines}\n{said}");
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
fn this_machine_can_be_examined() {
    let report = examine(&HostRoot::default(), Path::new("/run/trimwise"), None).unwrap();
    assert!(!report.kernel.is_empty());
    for one in &report.file_systems {
        assert!(one.findings.iter().all(|finding| !finding.what.is_empty()), "{one:?}");
    }
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
