//! Conclusions on invented runs, and what all commands say and do on several hosts.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::process::Command;

use serde_json::json;

use trimwise::compare::days::DaysFigures;
use trimwise::compare::result::ThinFigures;
use trimwise::compare::result::{
    Cell, CellId, CellLedger, DeviceFigures, DriveFacts, PostmarkFigures, Target, WorkloadFigures,
};
use trimwise::policy::{PolicySpec, Trimmer};
use trimwise::ssd::{LinkKind, SsdConfig};
use trimwise::units::{Bytes, SimDuration, Utilization};
use trimwise::workload::stage::Done;
use trimwise_linux::daemon::config::Config;
use trimwise_linux::daemon::control::Response;
use trimwise_linux::doctor::{Lender, Purpose};
use trimwise_linux::here::Here as Found;
use trimwise_linux::today::MountedBy;
use trimwise_testing::fake_host::{GIB, Host, SDA};

use trimwise::compare::judge::TIME_PERCENT;
use trimwise::compare::means::Host as Has;

use super::*;
use crate::compare::{CompareRequest, Settings, finish};

const NVME: &str = "pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1";
const MMC: &str = "pci0000:00/mmc0/mmc0:0001/block/mmcblk0";
const RUN: &str = "/run/trimwise";
const WEEKLY: &str = "etc/systemd/system/timers.target.wants/fstrim.timer";

/// A host with systemd whose `/` is this file system on a drive. `options` are those of mountinfo.
fn host(fs: &str, options: &str, drive: &str) -> Host {
    let host = Host::new(&format!("22 1 8:1 / / rw - {fs} /dev/root rw{options}\n"));
    host.device(drive, "8:0", 2 * GIB).device(&format!("{drive}/p1"), "8:1", 2 * GIB);
    host.file(&format!("sys/devices/{drive}/p1/partition"), "1");
    host.file(&format!("sys/devices/{drive}/size"), &(200 * GIB / 512).to_string());
    host.file("usr/lib/systemd/system/trimwised.service", "[Service]\n");
    host.file("usr/lib/systemd/system/fstrim.timer", "[Timer]\nOnCalendar=weekly\n");
    host.file("etc/fstab", &format!("# static\nUUID=1 / {fs} defaults{options} 0 1\n"));
    fs::create_dir_all(host.0.path().join("run/systemd/system")).unwrap();
    host
}

fn found(host: &Host) -> Found {
    Found::of(&HostRoot::new(host.0.path()), RUN.as_ref(), Path::new("/")).unwrap()
}

/// A trimwised that follows the host's configuration, for as long as the host exists.
fn start_daemon(host: &Host) {
    let run = host.0.path().join("run/trimwise");
    fs::create_dir_all(&run).unwrap();
    let config = host.0.path().join("etc/trimwise.toml");
    if !config.exists() {
        fs::write(&config, "").unwrap();
    }
    fs::remove_file(run.join("control.sock")).ok();
    let listener = UnixListener::bind(run.join("control.sock")).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut line = String::new();
            let mut reader = BufReader::new(stream);
            if reader.read_line(&mut line).is_err() || line.is_empty() {
                continue;
            }
            let Ok(config) = Config::load(&config) else { return };
            let treatment = config.treatment(Path::new("/"));
            let managed = treatment.map(
                |one| json!({"mount_point": "/", "status": {"policy": one.policy.to_string(), "paused": false}}),
            );
            let status = json!({"dry_run": false, "file_systems": managed.into_iter().collect::<Vec<_>>()});
            reader.get_mut().write_all(Response::done(status).line().as_bytes()).ok();
        }
    });
}

fn hosts() -> Vec<(&'static str, Host)> {
    let weekly = |host: Host| {
        host.file(WEEKLY, "");
        host
    };
    let superblock = host("ext4", "", NVME);
    superblock.file("proc/fs/ext4/p1/options", "rw\ndiscard\n");
    let luks = Host::new("22 1 253:0 / / rw - ext4 /dev/mapper/root rw\n");
    luks.device(SDA, "8:0", GIB).device("virtual/block/dm-0", "253:0", 0).slave("virtual/block/dm-0", SDA);
    luks.file("sys/devices/virtual/block/dm-0/dm/name", "root");
    luks.file("sys/devices/virtual/block/dm-0/dm/uuid", "CRYPT-LUKS2-1-root");
    luks.file(&format!("sys/devices/{SDA}/size"), &(200 * GIB / 512).to_string());
    let unit = host("xfs", "", NVME);
    unit.file("etc/fstab", "").file("etc/systemd/system/-.mount", "[Mount]\nWhat=/dev/root\n");
    let plain = host("ext4", "", SDA);
    fs::remove_dir(plain.0.path().join("run/systemd/system")).unwrap();
    fs::remove_file(plain.0.path().join("etc/fstab")).unwrap();
    let container = Host::new("22 1 259:3 / / rw - ext4 /dev/nvme0n1p3 rw\n");
    let daemon = weekly(host("ext4", "", NVME));
    let (alone, two) = (host("ext4", "", SDA), weekly(host("ext4", ",discard", SDA)));
    for host in [&daemon, &alone, &two] {
        host.file("etc/systemd/system/multi-user.target.wants/trimwised.service", "");
        start_daemon(host);
    }
    two.file("usr/lib/systemd/system/fstrim.timer", "[Timer]\nOnCalendar=daily\n");
    two.script("etc/cron.weekly/fstrim", "")
        .file("etc/systemd/system/timers.target.wants/fstrim-weekly@-.timer", "");
    two.file(
        "etc/trimwise.toml.d/advice-root.toml",
        "manage = \"listed\"\n[mount.\"/\"]\npolicy = \"lazy\"\n",
    );
    vec![
        ("ext4, discard, weekly", weekly(host("ext4", ",discard", NVME))),
        ("ext4, weekly", weekly(host("ext4", "", NVME))),
        ("ext4, discard in the superblock", superblock),
        ("xfs, discard", host("xfs", ",discard", SDA)),
        ("xfs, a unit mounts it", unit),
        ("btrfs, discard=async", host("btrfs", ",discard=async", NVME)),
        ("f2fs, discard by default", host("f2fs", ",discard", SDA)),
        ("ext4, SD card, 95 % full", weekly(host("ext4", "", MMC))),
        ("ext4, LUKS drops TRIM", luks),
        ("ext4, neither systemd nor fstab", plain),
        ("ext4, notrim", weekly(host("ext4", ",X-fstrim.notrim", SDA))),
        ("ext4, in a container", container),
        ("ext4, trimwised and weekly", daemon),
        ("ext4, trimwised alone", alone),
        ("ext4, discard, trimwised by advice, daily, weekly twice", two),
    ]
}

/// Carries out a command for root on the host in its folder.
fn carry_out(command: &str, host: &Host) {
    let at = |path: &str| host.0.path().join(path);
    let words: Vec<&str> = command.split(' ').collect();
    match words[..] {
        ["mount", "--options-source=mtab", "-o", remount, "/"] => {
            mount_again(host, remount.strip_prefix("remount,").unwrap());
        }
        ["systemctl", "daemon-reload"] | ["systemctl", "reload", "trimwised"] => {}
        ["systemctl", verb, "--now", unit] => {
            let is_daemon = unit == "trimwised";
            let wanted = match is_daemon {
                true => at("etc/systemd/system/multi-user.target.wants/trimwised.service"),
                false => at(&format!("etc/systemd/system/timers.target.wants/{unit}")),
            };
            match verb {
                "enable" => {
                    fs::create_dir_all(wanted.parent().unwrap()).unwrap();
                    fs::write(wanted, "").unwrap();
                    if is_daemon {
                        start_daemon(host);
                    }
                }
                "disable" => {
                    fs::remove_file(wanted).unwrap();
                    if is_daemon {
                        fs::remove_file(at("run/trimwise/control.sock")).unwrap();
                    }
                }
                other => panic!("{other}"),
            }
        }
        _ => {
            let etc = format!("{}/", at("etc").display());
            let ran = Command::new("sh").args(["-c", &command.replace("/etc/", &etc)]).status().unwrap();
            assert!(ran.success(), "{command}");
        }
    }
}

fn mount_again(host: &Host, option: &str) {
    let info = host.0.path().join("proc/1/mountinfo");
    let text = fs::read_to_string(&info).unwrap();
    let shown = if option == "nodiscard" { String::new() } else { format!(",{option}") };
    let (before, _) = text.trim_end().rsplit_once(' ').unwrap();
    fs::write(&info, format!("{before} rw{shown}\n")).unwrap();
    let options = host.0.path().join("proc/fs/ext4/p1/options");
    if options.exists() {
        fs::write(options, format!("rw\n{option}\n")).unwrap();
    }
}

/// Checks the conclusion of each command, and the steps to each policy. Nothing already set is set again, no other
/// mount is touched, and all commands agree.
#[test]
fn all_commands_agree_on_the_hosts() {
    let mut table = String::new();
    for (name, host) in hosts() {
        let mut found = found(&host);
        if name.contains("95 %") {
            found.utilization = Utilization::of(95);
        }
        let root = HostRoot::new(host.0.path());
        let report = doctor::examine(&root, RUN.as_ref(), None).unwrap();
        let of_doctor = of_diagnosis(&report.file_systems[0]);
        let of_mount = of_mount_in(&root, RUN.as_ref(), Path::new("/"));
        assert_eq!(of_mount.as_ref(), Some(&of_doctor), "{name}");
        assert_eq!(report.file_systems[0].today, found.today, "{name}");
        assert_eq!(report.file_systems[0].passes, found.passes, "{name}");
        assert!(of_doctor.steps.is_empty() && of_doctor.decision != Decision::Change, "{name}");
        expect_short(&of_doctor.head);
        let (mount, today) = (&found.mount, found.today.policy(&found.mount.fs_type).unwrap());
        assert_eq!(of_doctor.today.as_ref(), Some(&today), "{name}");
        writeln!(table, "{name}: {}", found.today.sentence()).unwrap();
        of_doctor.head.iter().for_each(|line| writeln!(table, "  | {line}").unwrap());
        // `compare --here` and `advise`, if one policy is much better.
        let Some(here) = Here::of_found(found.clone()) else { continue };
        assert_eq!((here.today(true), here.passes()), (Some(today.clone()), found.passes), "{name}");
        for policy in ["off", "commit", "batch:1d", "batch:1w", "trimwised"] {
            let policy = if policy == "commit" { own_discard(&mount.fs_type) } else { policy.into() };
            let steps = Steps::to(&policy, &found);
            let name_of = policy.to_string();
            let times =
                [(&*today.to_string(), vec![100.0; 6]), (&*name_of, vec![50.0; 6]), ("off", vec![100.0; 6])]
                    .map(|(name, times)| (name.to_owned(), times));
            let mut times: Vec<(&str, Vec<f64>)> =
                times.iter().map(|(name, of)| (&**name, of.clone())).collect();
            times.dedup_by(|b, a| a.0 == b.0);
            if times.len() == 3 && times[1].0 == "off" {
                times.pop();
            }
            let conclusion = comparison(Some(&here), &times, Some(7), false).conclusion.unwrap();
            expect_short(&conclusion.head);
            if today == policy {
                assert!(steps.is_empty(), "{name}: {policy} is what it does: {steps:?}");
                continue;
            }
            if found.passes == Some(false) {
                assert!(steps.is_empty() && conclusion.steps.is_empty(), "{name}");
                assert_eq!(conclusion.decision, Decision::CannotTell, "{name}");
                conclusion.head.iter().for_each(|line| writeln!(table, "  {policy}: {line}").unwrap());
                continue;
            }
            assert_eq!(
                (conclusion.decision, &conclusion.steps),
                (Decision::Change, &steps),
                "{name}: {policy}"
            );
            assert!(!steps.is_empty(), "{name}: {policy}: nothing is said of how to change to it");
            writeln!(table, "  {policy}").unwrap();
            for command in &steps.commands {
                assert!(!command.contains("fstrim.timer"), "{name}: {command} reaches other mounts");
                assert!(!command.contains("MOUNT"), "{name}: {command}");
                let set = format!("remount,{} ", mount.discard());
                assert!(!command.contains(&set), "{name}: {command} is so already");
                let ignored = mount.fs_type == "xfs" && command.contains("remount");
                assert!(!ignored, "{name}: XFS ignores {command}");
                writeln!(table, "    {command}").unwrap();
            }
            steps.by_hand.iter().for_each(|by_hand| writeln!(table, "    ({by_hand})").unwrap());
            assert!(steps.commands.is_empty() || !steps.undo.is_empty(), "{name}, {policy}");
        }
    }
    let expected = include_str!("hosts.txt");
    if table != expected {
        let file = std::env::temp_dir().join("hosts.txt");
        fs::write(&file, &table).unwrap();
        panic!("the table is now as in {}", file.display());
    }
}

/// After the commands, the host has the policy, and the doctor finds nothing wrong with it. After the undo, the host is
/// as it was.
#[test]
fn the_commands_do_what_they_are_for_and_can_be_taken_back() {
    let mut done = 0;
    for policy in ["off", "commit", "batch:1d", "batch:1w", "trimwised"] {
        for (name, host) in hosts() {
            let before = found(&host);
            let policy = if policy == "commit" { own_discard(&before.mount.fs_type) } else { policy.into() };
            let steps = Steps::to(&policy, &before);
            let is_xfs = before.mount.fs_type == "xfs";
            let is_rest =
                |by_hand: &String| !by_hand.starts_with("XFS takes") && !by_hand.contains("next mount");
            if steps.commands.is_empty() || steps.by_hand.iter().any(is_rest) {
                continue;
            }
            let carry_out_all = |commands: &[String]| {
                commands.iter().for_each(|command| carry_out(command, &host));
                if is_xfs && let MountedBy::Fstab { options, .. } = found(&host).today.mounted_by {
                    let option = options.iter().find(|one| one.ends_with("discard"));
                    mount_again(&host, option.map_or("nodiscard", |option| option));
                }
            };
            carry_out_all(&steps.commands);
            let after = found(&host);
            let did = after.today.policy(&after.mount.fs_type);
            assert_eq!(did.as_ref(), Some(&policy), "{name}: {steps:#?}\n{:#?}", after.today);
            let report = doctor::examine(&HostRoot::new(host.0.path()), RUN.as_ref(), None).unwrap();
            let wrong: Vec<_> = report.file_systems[0].findings.iter().filter(|one| one.wrong).collect();
            assert!(wrong.is_empty(), "{name}: {policy} is called wrong: {wrong:?}");
            carry_out_all(&steps.undo);
            assert_eq!(found(&host).today, before.today, "{name}: {policy} is not taken back: {steps:#?}");
            done += 1;
        }
    }
    assert!(done > 40, "{done}");
}

/// Each class stands in for its own drive, and all its runs are in the file.
#[test]
fn the_doctor_s_first_line_says_what_is_wrong() {
    let first = |host: &Host| {
        let report = doctor::examine(&HostRoot::new(host.0.path()), RUN.as_ref(), None).unwrap();
        of_diagnosis(&report.file_systems[0]).head.swap_remove(0)
    };
    let container = host("ext4", "", SDA);
    container.file("proc/1/status", "CapBnd:\t00000000a80425fb");
    assert!(first(&container).starts_with("What trims / is up to this container's host"));
    // The drives are all right; the trimming is wrong.
    let left_out = host("ext4", "", SDA);
    left_out
        .file(WEEKLY, "")
        .file("usr/lib/systemd/system/fstrim.service", "[Service]\nExecStart=/sbin/fstrim -a -t xfs\n");
    assert_eq!(first(&left_out), "/ is set up so that nothing trims it.");
    let mixed = host("ext4", ",discard", SDA);
    mixed.file("proc/1/mountinfo", "22 1 253:0 / / rw - ext4 /dev/mapper/x rw,discard\n");
    mixed.device("virtual/block/dm-0", "253:0", GIB).slave("virtual/block/dm-0", SDA);
    mixed
        .file("sys/devices/virtual/block/dm-0/dm/name", "x")
        .file("sys/devices/virtual/block/dm-0/dm/uuid", "LVM-1");
    let other = "pci0000:00/ata2/host1/target1:0:0/1:0:0:0/block/sdb";
    mixed.device(other, "8:16", 0).slave("virtual/block/dm-0", other);
    assert_eq!(first(&mixed), "TRIM of / does not reach all of its drives; see sdb.");
}

#[test]
fn the_runs_of_the_classes_are_complete() {
    let kept: Vec<String> =
        class::RUNS.lines().map(|line| line.split(' ').take(3).collect::<Vec<_>>().join(" ")).collect();
    let runs: Vec<String> = class::runs().map(|run| run.name()).collect();
    assert_eq!(kept, runs);
    for profile in class::profiles() {
        assert_eq!(class::stands_for(profile).as_deref(), Some(profile));
    }
}

#[test]
fn a_mount_that_vanished_is_left_alone() {
    let mut found = found(&hosts()[1].1);
    let folder = tempfile::tempdir().unwrap();
    found.mount.mount_point = folder.path().join("gone");
    let steps = Steps::to(&"commit".into(), &found);
    assert!(!steps.commands.is_empty());
    for is_there in [false, true] {
        if is_there {
            fs::create_dir(&found.mount.mount_point).unwrap();
        }
        let refused = steps.carry_out(&|done| panic!("{done}")).unwrap_err().to_string();
        assert!(refused.contains("nothing was changed"), "{refused}");
    }
}

/// The daemon accepts the file of the steps, follows its policy there, and leaves other mounts alone.
#[test]
fn the_daemon_follows_the_policy_that_the_steps_write() {
    let hosts = hosts();
    let found = found(&hosts[1].1);
    let mut written = 0;
    for policy in PolicySpec::examples() {
        if !policy.suits_live_host()
            || Means::of_trimmer(Trimmer::Kernel(policy), Has::UNKNOWN) == Means::Stock
        {
            continue;
        }
        let steps = Steps::to(&policy.into(), &found);
        let (_, text) = steps.files().find(|(file, _)| file.ends_with("advice-root.toml")).unwrap();
        let config = Config::parse(&[("advice.toml".into(), text.to_owned())]).unwrap();
        assert_eq!(config.treatment(Path::new("/")).unwrap().policy, policy);
        assert_eq!(config.treatment(Path::new("/srv")), None);
        written += 1;
    }
    assert!(written >= 3, "{written}");
}

/// At most five lines of 80 columns, broken at blanks.
fn expect_short(head: &[String]) {
    let lines: usize = head
        .iter()
        .map(|line| {
            let mut lines = 1;
            let mut column = 0;
            for word in line.split(' ') {
                let width = word.chars().count();
                if column > 0 && column + 1 + width > 80 {
                    lines += 1;
                    column = 0;
                }
                column += width + usize::from(column > 0);
            }
            lines
        })
        .sum();
    assert!(lines <= 5, "{lines} lines: {head:#?}");
}

/// A small generator, so that each case can be made again from its number.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn comparison(
    here: Option<&Here>,
    times: &[(&str, Vec<f64>)],
    days: Option<u32>,
    partial: bool,
) -> Comparison {
    comparison_with(here, times, days, partial, |_| None)
}

/// A comparison on a drive to whose flash a policy writes `nand_of` units for each 1,000 of the host.
fn comparison_with(
    here: Option<&Here>,
    times: &[(&str, Vec<f64>)],
    days: Option<u32>,
    partial: bool,
    nand_of: impl Fn(&str) -> Option<u64>,
) -> Comparison {
    let cell = |policy: &str, rep: usize, seconds: f64| {
        let id = CellId { device: "d".into(), policy: policy.into(), target: Target::Model, rep: rep as u32 };
        let duration = SimDuration::from_nanos((seconds * 1e9) as u64);
        let done = Done { files_removed: 1, ..Done::default() };
        let days = days.map(|days| DaysFigures {
            elapsed_ns: u64::from(days) * 86_400_000_000_000,
            ..DaysFigures::default()
        });
        let device_stats = nand_of(policy).map(|nand| DeviceFigures {
            host_units_written: 1_000_000,
            nand_units_written: nand * 1_000,
            write_amplification: nand as f64 / 1_000.0,
            erases: nand,
            trim_commands: 1,
            ..DeviceFigures::default()
        });
        let drive = device_stats.as_ref().map(|_| DriveFacts::of(&SsdConfig::default()));
        Cell { days, device_stats, drive, ..Cell::new(id, duration, WorkloadFigures::Program(done)) }
    };
    let cells = times.iter().flat_map(|(policy, reps)| {
        reps.iter().enumerate().map(move |(rep, seconds)| cell(policy, rep, *seconds))
    });
    let request = CompareRequest { workload: "desktop".to_owned(), ..CompareRequest::default() };
    let settings = Settings {
        reps: times[0].1.len() as u32,
        days,
        day: days.map(|_| "office".to_owned()),
        ..Settings::of(&request, |_| ())
    };
    let failure = partial.then_some(trimwise::failure::Failure::Interrupted);
    finish(&request, settings, here.cloned(), (cells.collect(), failure)).unwrap()
}

#[test]
fn postmark_that_ends_before_a_commit_needs_more_transactions() {
    let runs = [("off", vec![1.0, 1.0]), ("commit", vec![1.0, 1.0])];
    let mut comparison = comparison(None, &runs, None, false);
    comparison.cells.iter_mut().for_each(|cell| cell.ledger = Some(CellLedger::default()));
    assert_eq!(of(&comparison).head[1..], [words::FREED_NOTHING, words::FREE_SOMETHING]);
    let postmark = WorkloadFigures::Postmark(PostmarkFigures::default());
    comparison.cells.iter_mut().for_each(|cell| cell.workload = postmark.clone());
    let head = of(&comparison).head;
    assert_eq!(head[1..], [words::REMOVED_TOO_SOON, words::MORE_TRANSACTIONS]);
    expect_short(&head);
}

/// Runs that are missing, insignificant or immaterial lead to no command, and neither do policies that no host can
/// have.
#[test]
fn commands_follow_only_a_change_that_is_shown_and_material() {
    let hosts: Vec<Here> = hosts().iter().filter_map(|(_, host)| Here::of_found(found(host))).collect();
    let pool = [
        "off",
        "commit",
        "batch:1d",
        "batch:1w",
        "trimwised",
        "lazy+reuse",
        "lazy+fill",
        "judicious",
        "dm-trim",
        "ideal",
    ];
    let mut seen = [0; 5];
    for seed in 0..500 {
        let draw = &mut Draw(seed);
        let reps = 1 + draw.below(8);
        let spread = [0.0, 0.001, 0.01, 0.1][draw.below(4) as usize];
        // In a third of the cases, policies differ only by chance.
        let bases = [1, 5, 5][draw.below(3) as usize];
        let times: Vec<(&str, Vec<f64>)> = pool
            .iter()
            .map(|policy| {
                let base = [100.0, 100.5, 97.0, 60.0, 150.0][draw.below(bases) as usize];
                let time = |draw: &mut Draw| base * (1.0 + spread * (draw.below(1000) as f64 / 1000.0 - 0.5));
                (*policy, (0..reps).map(|_| time(draw)).collect())
            })
            .collect();
        let partial = draw.below(5) == 0;
        let here = &hosts[draw.below(hosts.len() as u64) as usize];
        let conclusion = comparison(Some(here), &times, None, partial).conclusion.unwrap();
        expect_short(&conclusion.head);
        seen[conclusion.decision as usize] += 1;
        let is_change = conclusion.decision == Decision::Change;
        assert!(is_change || conclusion.steps.is_empty(), "{seed}: {conclusion:?}");
        assert_ne!(is_change, conclusion.policy == conclusion.today, "{seed}: {conclusion:?}");
        if is_change {
            let policy = conclusion.policy.unwrap().known().unwrap();
            assert!(
                Means::of_trimmer(policy, Has { link: Some(LinkKind::Sata), discard: None }).is_attainable(),
                "{seed}"
            );
            assert!(!partial && (reps >= 4 || spread == 0.0), "{seed}");
            let worth = conclusion.worth.unwrap();
            assert!(worth.time_saved_percent > TIME_PERCENT, "{seed}: {worth:?}");
            assert!(worth.time_saved_percent_interval.unwrap()[0] > 0.0, "{seed}: {worth:?}");
        }
    }
    // Nothing is known of these drives' wear, so none is called untrimmed.
    assert_eq!(seen[Decision::Untrimmed as usize], 0);
    assert_eq!(seen.iter().filter(|count| **count > 20).count(), 4, "each other decision is there: {seen:?}");
}

/// No host is told to use a target below its file system, only what that would bring.
#[test]
fn what_a_target_would_bring_stands_in_a_line_of_its_own() {
    let of = |seconds: f64| (0..6).map(|rep| seconds + f64::from(rep) * 0.001).collect::<Vec<f64>>();
    let said = |target: f64| {
        let times = [
            ("off", of(100.0)),
            ("commit", of(80.0)),
            ("dm-trim:set:40:90+lazy:1:1+reuse+merge", of(target)),
        ];
        let conclusion = comparison(None, &times, None, false).conclusion.unwrap();
        assert_eq!((conclusion.decision, conclusion.policy), (Decision::Change, Some("commit".into())));
        expect_short(&conclusion.head);
        conclusion.head.join("\n")
    };
    let line = "\nNot on a stock host: the module dm-trim would bring 25 % less time than that.\n";
    assert!(said(60.0).contains(line), "{}", said(60.0));
    assert!(!said(79.9).contains("stock host") && !said(90.0).contains("stock host"), "{}", said(79.9));
}

/// No host is told to keep a policy that it cannot have, even if that is the baseline.
#[test]
fn what_no_host_has_is_not_kept() {
    for baseline in ["dm-trim", "ideal", "lazy+reuse"] {
        for others in [&["commit"][..], &[]] {
            let times: Vec<(&str, Vec<f64>)> =
                [baseline].iter().chain(others).map(|policy| (*policy, vec![100.0; 6])).collect();
            let conclusion = comparison(None, &times, None, false).conclusion.unwrap();
            assert_eq!(conclusion.decision, Decision::CannotTell, "{conclusion:?}");
            assert!(conclusion.head.join(" ").contains("is not available on a host"), "{conclusion:?}");
        }
    }
}

#[test]
fn a_difference_that_nobody_would_notice_does_not_matter() {
    let here = Here::of_found(found(&hosts()[1].1)).unwrap();
    let times = |weekly: f64| {
        let of = |seconds: f64| (0..6).map(|rep| seconds + f64::from(rep) * 0.001).collect::<Vec<f64>>();
        vec![("batch:1w", of(weekly)), ("commit", of(10.0)), ("ideal", of(9.0))]
    };
    // A third less, but four seconds of waiting in a week.
    let small = comparison(Some(&here), &times(14.0), Some(7), false).conclusion.unwrap();
    assert_eq!(small.decision, Decision::DoesNotMatter, "{small:?}");
    let large = comparison(Some(&here), &times(140.0), Some(7), false).conclusion.unwrap();
    assert_eq!(large.decision, Decision::Change, "{large:?}");
    assert!(
        large.head[1].starts_with("It saves 19 s of waiting a day (93 % less waiting)"),
        "{:?}",
        large.head
    );
    assert_eq!(large.steps.commands[0], "mount --options-source=mtab -o remount,discard /");
    let worse = comparison(Some(&here), &times(1.0), Some(7), false).conclusion.unwrap();
    assert_eq!(worse.decision, Decision::DoesNotMatter, "{worse:?}");
    let much_worse: Vec<(&str, Vec<f64>)> = times(1.0)
        .into_iter()
        .map(|(policy, times)| (policy, times.iter().map(|t| t * 100.0).collect()))
        .collect();
    let keep = comparison(Some(&here), &much_worse, Some(7), false).conclusion.unwrap();
    assert_eq!(
        (keep.decision, keep.head[0].as_str()),
        (Decision::Keep, "Keep / as it is (fstrim.timer once a week trims it).")
    );
}

/// On thin storage the space decides where nothing trims: what gives most of it back, within 5 %, and takes no longer.
#[test]
fn on_thin_storage_the_space_decides() {
    let of = |commit_s: f64, weekly_mib: u64| {
        let times = [six("off", 100.0), six("commit", commit_s), six("batch:1w", 100.0)];
        let mut comparison = comparison_with(None, &times, Some(7), false, |_| Some(1_000));
        for cell in &mut comparison.cells {
            let mib = match &*cell.policy.to_string() {
                "off" => 1_000,
                "commit" => 100,
                _ => weekly_mib,
            };
            let thin = ThinFigures { excess_bytes_mean: Bytes::mib(mib).0 as f64, ..ThinFigures::default() };
            cell.device_stats.as_mut().unwrap().thin = Some(thin);
        }
        comparison.conclude();
        comparison.conclusion.unwrap()
    };
    for (commit_s, weekly_mib, policy) in [
        (100.0, 151, "commit"),
        (100.0, 150, "batch:1w"),
        (200.0, 900, "batch:1w"), // it takes 14 s a day longer
    ] {
        let conclusion = of(commit_s, weekly_mib);
        let is_so = (conclusion.decision, conclusion.policy, conclusion.purpose);
        assert_eq!(is_so, (Decision::Untrimmed, Some(policy.into()), Some(Aim::Space)), "{weekly_mib} MiB");
    }
    let [first, second, ..] = &of(100.0, 151).head[..] else { panic!("two lines") };
    assert_eq!(first, "Trim it: nothing else gives the space back. `commit` (mount option `discard`) does.");
    let held = "On average 100 MiB stay held beyond what is used, and 1000 MiB without TRIM.";
    assert_eq!(*second, format!("{held} It costs no waiting that is shown."));
}

/// What is lent has its line, also where a layer keeps a discard from it, or from the drive below it.
#[test]
fn space_that_a_layer_shuts_out_or_keeps_is_told() {
    const VIRTIO: &str = "pci0000:00/virtio1/block/vda";
    let head = |drive: &str, mapping: &str, uuid: &str, limits: [u64; 2]| {
        let host = Host::new("22 1 253:1 / /data rw - xfs /dev/mapper/x rw\n");
        host.device(drive, "8:0", GIB).device("virtual/block/dm-0", "253:0", limits[0]);
        host.device("virtual/block/dm-1", "253:1", limits[1]);
        host.slave("virtual/block/dm-0", drive).slave("virtual/block/dm-1", "virtual/block/dm-0");
        for (name, mapping, uuid) in [("dm-0", mapping, uuid), ("dm-1", "vg-lv", "LVM-9")] {
            host.file(&format!("sys/devices/virtual/block/{name}/dm/name"), mapping);
            host.file(&format!("sys/devices/virtual/block/{name}/dm/uuid"), uuid);
        }
        host.script("etc/cron.weekly/fstrim", "");
        let root = HostRoot::new(host.0.path());
        of_diagnosis(&doctor::examine(&root, RUN.as_ref(), None).unwrap().file_systems[0]).head
    };
    let luks = head(VIRTIO, "c", "CRYPT-LUKS2-1-c", [0, 0]);
    assert_eq!(
        luks[..2],
        [
            "TRIM of /data does not reach its drive. It stops at dm-0.",
            "So nothing comes back of the space on the host outside, for vda."
        ]
    );
    let vdo = head(SDA, "vg-pool-vpool", "LVM-1-vpool", [GIB, GIB]);
    assert_eq!(
        vdo,
        [
            "/data offers back what it frees (/etc/cron.weekly/fstrim once a week trims it).",
            "That is what TRIM is for here: space in VDO vg-pool-vpool. Its drive gets nothing of it."
        ]
    );
}

/// What must not be trimmed is not advised to be, whoever lends its space.
#[test]
fn what_speaks_against_trimming_is_the_first_line() {
    let head = |kernel: &str, version: &str, errors: &str| {
        let host = Host::new("22 1 9:0 / / rw - ext4 /dev/md0 rw\n");
        host.device(SDA, "8:0", GIB).device("virtual/block/md0", "9:0", GIB).slave("virtual/block/md0", SDA);
        host.file("sys/devices/virtual/block/md0/md/level", "raid10\n");
        host.file("proc/sys/kernel/osrelease", kernel).file("proc/version", version);
        if !errors.is_empty() {
            host.file("sys/fs/ext4/md0/errors_count", errors);
        }
        let root = HostRoot::new(host.0.path());
        let report = doctor::examine(&root, RUN.as_ref(), None).unwrap();
        of_diagnosis(&report.file_systems[0]).head.remove(0)
    };
    const DEBIAN: &str = "Linux version 6.1.0-34-amd64 #1 SMP Debian 6.1.135-1 (2025-04-25)";
    for (kernel, version, errors, expected) in [
        ("6.1.0-34-amd64", DEBIAN, "", "Do not trim / on this kernel; see md0."),
        ("5.15.0-150-generic", "", "", "Before anything trims /, see md0: this kernel may harm it."),
        ("6.12.43", "", "3", "Do not trim / before it has been checked: ext4 has recorded errors in it."),
        ("6.12.43", "", "0", "Nothing trims / today"),
    ] {
        let head = head(kernel, version, errors);
        assert!(head.starts_with(expected), "{kernel}: {head}");
    }
}

/// Where space is lent and nothing gives it back, that decides, also if trimming costs time.
#[test]
fn what_is_lent_decides_where_nothing_gives_it_back() {
    let bare = host("ext4", "", NVME);
    let mut found = found(&bare);
    found.purposes = vec![Purpose {
        aim: Aim::Space,
        layer: "dm-2".to_owned(),
        whose: "in thin pool vg-pool".to_owned(),
        image: None,
        lender: Some(Lender::Pool),
        is_reached: Some(true),
        held_bytes: None,
        could_free_bytes: None,
        fill: None,
        full_in_days_min: None,
    }];
    let on = |found: &Found, weekly_s: f64| {
        let here = Here::of_found(found.clone()).unwrap();
        let times = [six("off", 100.0), six("commit", 120.0), six("batch:1w", weekly_s)];
        comparison(Some(&here), &times, Some(7), false).conclusion.unwrap()
    };
    for (weekly_s, policy, cost) in [
        (100.0, "batch:1w", "It costs no waiting that is shown."),
        (110.0, "batch:1w", "It would cost 1.4 s of waiting a day (10 % more waiting)."),
    ] {
        let conclusion = on(&found, weekly_s);
        assert_eq!(
            (conclusion.decision, conclusion.policy, conclusion.purpose),
            (Decision::Untrimmed, Some(policy.into()), Some(Aim::Space)),
            "{weekly_s} s"
        );
        assert_eq!(
            conclusion.head[..2],
            [
                "Trim /: nothing gives its space back today. fstrim once a week does.".to_owned(),
                format!("That decides here, whatever the drive gains: space in thin pool vg-pool. {cost}"),
            ]
        );
    }
    // No discard reaches it, or something trims: the drive alone decides.
    found.purposes[0].is_reached = Some(false);
    assert_eq!(on(&found, 100.0).purpose, None);
    found.purposes[0].is_reached = Some(true);
    found.today.discard = "discard".to_owned();
    assert_ne!(on(&found, 100.0).decision, Decision::Untrimmed);
}

/// A host that nothing trims is not told that it does not matter how it is trimmed.
#[test]
fn regression_nothing_trims_it_is_an_answer_of_its_own() {
    let bare = host("ext4", "", NVME);
    let here = Here::of_found(found(&bare)).unwrap();
    let days = |nand: u64| {
        let nand = move |policy: &str| Some(if policy == "off" { 1_000 } else { nand });
        let times = [six("off", 100.0), six("commit", 100.0), six("batch:1w", 100.0)];
        comparison_with(Some(&here), &times, Some(7), false, nand).conclusion.unwrap()
    };
    let gentler = days(800);
    assert_eq!((gentler.decision, gentler.policy.clone()), (Decision::Untrimmed, Some("batch:1w".into())));
    assert_eq!(gentler.head[0], "Nothing trims / today. Trim it: fstrim once a week is enough.");
    assert!(gentler.steps.commands.iter().any(|command| command.contains("systemctl enable")), "{gentler:?}");
    let alike = days(990);
    assert_eq!((alike.decision, alike.policy), (Decision::DoesNotMatter, Some(PolicyId::OFF)));
    assert_eq!(
        [&*alike.head[0], alike.head.last().unwrap()],
        [
            "Nothing trims / today. These runs show no cost of that, nor of trimming it.",
            "A weekly trim is one command: `systemctl enable --now fstrim.timer`, with systemd."
        ]
    );
}

#[test]
fn options_of_fstab_change_in_their_line_only() {
    let text = "# a\nUUID=1 / ext4 defaults 0 1\n/dev/b /b ext4 defaults 0 2\n";
    let changed = steps::with_options(text, 2, "defaults", "defaults,discard").unwrap();
    assert_eq!(changed, text.replacen("defaults", "defaults,discard", 1));
    assert_eq!(steps::with_options(text, 2, "noatime", "x"), None, "somebody changed it");
    assert_eq!(steps::with_options(text, 9, "defaults", "x"), None);
    assert_eq!(steps::with_options(text, 0, "defaults", "x"), None);
    // The options may also be the name of the device.
    let odd = steps::with_options("defaults /m ext4 defaults 0 0", 1, "defaults", "ro").unwrap();
    assert_eq!(odd, "defaults /m ext4 ro 0 0");
}

fn six(policy: &str, seconds: f64) -> (&str, Vec<f64>) {
    (policy, vec![seconds; 6])
}

#[test]
fn the_decision_turns_at_two_percent_and_at_five_seconds_a_day() {
    use Decision::{Change, DoesNotMatter, Keep};
    #[rustfmt::skip]
    let rows = [
        // days, seconds of `off` and of `commit`, the decision, and its second line
        (None, 100.0, 98.1, DoesNotMatter, "The choices differ by 1.9 % at most."),
        (None, 100.0, 97.9, Change, "This work needs 2.1 % less time."),
        (None, 100.0, 101.9, DoesNotMatter, "The choices differ by 1.9 % at most."),
        (None, 100.0, 102.1, Keep, "`commit` would need 2.1 % more time."),
        (Some(1), 10.0, 5.1, DoesNotMatter, "The choices differ by 4.9 s of waiting a day at most."),
        (Some(1), 10.0, 4.9, Change, "It saves 5.1 s of waiting a day (51 % less waiting)."),
        (Some(1), 10.0, 14.9, DoesNotMatter, "The choices differ by 4.9 s of waiting a day at most."),
        (Some(1), 10.0, 15.1, Keep, "`commit` would cost 5.1 s of waiting a day (51 % more waiting)."),
        (Some(2), 20.0, 10.2, DoesNotMatter, "The choices differ by 4.9 s of waiting a day at most."),
        (Some(2), 20.0, 9.8, Change, "It saves 5.1 s of waiting a day (51 % less waiting)."),
        (Some(1), 1_000.0, 981.0, DoesNotMatter, "The choices differ by 19 s of waiting a day at most."),
        (Some(1), 1_000.0, 979.0, Change, "It saves 21 s of waiting a day (2.1 % less waiting)."),
    ];
    for (days, off, commit, decision, line) in rows {
        let case = format!("off {off} s, commit {commit} s, days {days:?}");
        let times = [six("off", off), six("commit", commit)];
        let one = comparison(None, &times, days, false).conclusion.unwrap();
        assert_eq!((one.decision, one.head[1].as_str()), (decision, line), "{case}");
        let policy = if decision == Change { "commit" } else { "off" };
        assert_eq!(one.policy, Some(policy.into()), "{case}");
        let worth = one.worth.unwrap();
        assert!((worth.time_saved_percent - (off - commit) / off * 100.0).abs() < 1e-6, "{case}: {worth:?}");
        let a_day = days.map(|days| (off - commit) / f64::from(days));
        let is_near = |a: Option<f64>, b: Option<f64>| a.zip(b).is_none_or(|(a, b)| (a - b).abs() < 1e-6);
        assert_eq!(worth.waiting_saved_s_per_day.is_some(), a_day.is_some(), "{case}: {worth:?}");
        assert!(is_near(worth.waiting_saved_s_per_day, a_day), "{case}: {worth:?}");
    }
}

#[test]
fn a_difference_that_chance_explains_is_weighed_by_the_ends_of_its_interval() {
    let even = vec![100.0; 6];
    #[rustfmt::skip]
    let rows: [(&str, Vec<f64>, Decision, &str); 5] = [
        ("may be worse only", vec![100.0, 100.0, 100.0, 100.0, 110.0, 110.0], Decision::Keep,
            "Nothing else is better; `commit` may need 10 % more time."),
        ("may be better only", vec![100.0, 100.0, 100.0, 100.0, 90.0, 90.0], Decision::CannotTell, "`commit`: "),
        ("touches zero and both ends are small", vec![100.0, 100.0, 100.0, 100.0, 101.0, 101.0],
            Decision::DoesNotMatter, "The choices differ by "),
        ("wide on both sides", vec![60.0, 70.0, 80.0, 120.0, 130.0, 140.0], Decision::CannotTell, "`commit`: between "),
        ("shown", vec![90.0, 90.1, 90.2, 90.3, 90.4, 90.5], Decision::Change, "This work needs 9.8 % less time"),
    ];
    for (case, commit, decision, line) in rows {
        let times = [("off", even.clone()), ("commit", commit)];
        let one = comparison(None, &times, None, false).conclusion.unwrap();
        assert_eq!(one.decision, decision, "{case}: {one:?}");
        assert!(one.head[1].starts_with(line), "{case}: {:?}", one.head);
        assert_eq!(one.policy == Some("commit".into()), decision == Decision::Change, "{case}");
        let [low, high] = one.worth.unwrap().time_saved_percent_interval.unwrap();
        assert!(low <= high, "{case}: {low} to {high}");
    }
}

#[test]
fn the_policy_that_is_chosen_is_the_best_that_a_host_can_have() {
    type Others = &'static [(&'static str, f64)];
    #[rustfmt::skip]
    let rows: [(&str, Others, &str); 7] = [
        ("the one that saves most", &[("commit", 80.0), ("batch:1d", 79.0)], "batch:1d"),
        ("of about the same, the one without a daemon", &[("commit", 80.9), ("set:40:90", 79.0)], "commit"),
        ("the daemon for two points more", &[("commit", 81.1), ("set:40:90", 79.0)], "set:40:90"),
        ("no bound", &[("commit", 90.0), ("ideal", 50.0)], "commit"),
        ("no policy of a changed kernel", &[("commit", 90.0), ("lazy+reuse", 50.0)], "commit"),
        ("no target below the file system", &[("commit", 90.0), ("dm-trim", 50.0)], "commit"),
        ("nothing that is worse", &[("commit", 120.0), ("batch:1d", 90.0)], "batch:1d"),
    ];
    for (case, others, chosen) in rows {
        let others = others.iter().map(|&(policy, seconds)| six(policy, seconds));
        let times: Vec<_> = [six("off", 100.0)].into_iter().chain(others).collect();
        let one = comparison(None, &times, None, false).conclusion.unwrap();
        assert_eq!((one.decision, one.policy), (Decision::Change, Some(chosen.into())), "{case}");
        assert_eq!(one.head[0], format!("Use `{chosen}` rather than `off`."), "{case}");
    }
}

#[test]
fn a_file_system_has_no_discard_but_its_own() {
    let times = [
        ("off", 200.0),
        ("batch:1w", 100.0),
        ("batch:1d", 90.0),
        ("commit", 80.0),
        ("btrfs", 70.0),
        ("f2fs", 60.0),
    ];
    for (fs, options, chosen) in [
        ("ext4", "", "commit"),
        ("xfs", "", "commit"),
        ("btrfs", "", "btrfs"),
        ("f2fs", ",nodiscard", "f2fs"),
    ] {
        let host = host(fs, options, NVME);
        host.file(WEEKLY, "");
        let here = Here::of_found(found(&host)).unwrap();
        assert_eq!(here.today(false), Some(PolicyId::OFF), "{fs}: its timer aside");
        let times = times.map(|(policy, seconds)| six(policy, seconds));
        let one = comparison(Some(&here), &times, None, false).conclusion.unwrap();
        assert_eq!((one.decision, one.policy), (Decision::Change, Some(chosen.into())), "{fs}");
        assert!(!one.steps.is_empty(), "{fs}");
    }
}

#[test]
fn a_discard_of_another_mode_is_chosen_if_it_ran_on_a_kernel() {
    let host = host("btrfs", "", NVME);
    host.file(WEEKLY, "");
    let here = Here::of_found(found(&host)).unwrap();
    for (target, chosen) in [(Target::Model, "btrfs"), (Target::Kernel("6.12:btrfs".to_owned()), "commit")] {
        let times = [six("off", 200.0), six("btrfs", 100.0), six("commit", 50.0)];
        let mut comparison = comparison(Some(&here), &times, None, false);
        comparison.settings.target = target;
        let one = of(&comparison);
        let at = &comparison.settings.target;
        assert_eq!((one.decision, one.policy), (Decision::Change, Some(chosen.into())), "{at}");
    }
}

#[test]
fn what_cannot_be_concluded_says_why() {
    let weekly = || Here::of_found(found(&hosts()[1].1)).unwrap();
    let half = |policy| [six("off", 100.0), six(policy, 50.0)];
    #[rustfmt::skip]
    let rows = [
        ("partial", comparison(None, &half("commit"), None, true),
            "It was stopped or failed; too few runs finished for a conclusion.",
            "Run it again to the end (the command below)."),
        ("a bound alone", comparison(None, &half("ideal"), None, false),
            "Of the policies that ran, only `off` is available on a host.",
            "Leave --policy out, or add what is available on a host (--policy off, commit)."),
        ("today did not run", comparison(Some(&weekly()), &half("commit"), Some(7), false),
            "Its policy today is not among those that ran.",
            "Run `trimwise compare` with `batch:1w` among its --policy."),
        ("one run of each", comparison(None, &[("off", vec![100.0]), ("commit", vec![50.0])], None, false),
            "`commit`: one run of each gives no confidence interval.",
            "To be surer: more runs (--reps 6), or longer ones."),
    ];
    for (case, comparison, why, help) in rows {
        let one = comparison.conclusion.unwrap();
        assert_eq!(one.decision, Decision::CannotTell, "{case}");
        let last = one.head.last().unwrap();
        assert_eq!((one.head[1].as_str(), last.as_str()), (why, help), "{case}");
        assert!(one.steps.is_empty(), "{case}");
        assert_eq!(one.policy, one.today, "{case}");
        assert_eq!(one.worth.is_some(), case == "one run of each", "{case}: {:?}", one.worth);
    }
}

#[test]
fn more_life_of_the_flash_decides_where_time_does_not() {
    #[rustfmt::skip]
    let rows = [
        // units to the flash under `off` and `commit`, seconds of `commit`, decision, times as long
        (2_000, 1_000, 100.0, Decision::Change, 2.0),
        (1_000, 2_000, 100.0, Decision::Keep, 0.5),
        (1_040, 1_000, 100.0, Decision::DoesNotMatter, 1.04),
        (1_060, 1_000, 100.0, Decision::Change, 1.06),
        // Better in one and worse in the other is no reason to change.
        (2_000, 1_000, 110.0, Decision::Keep, 2.0),
        (1_000, 2_000, 90.0, Decision::Keep, 0.5),
    ];
    for (off, commit, seconds, decision, life) in rows {
        let case = format!("{off} and {commit} units, {seconds} s");
        let nand = |policy: &str| Some(if policy == "off" { off } else { commit });
        let times = [six("off", 100.0), six("commit", seconds)];
        let one = comparison_with(None, &times, None, false, nand).conclusion.unwrap();
        assert_eq!(one.decision, decision, "{case}: {one:?}");
        let worth = one.worth.unwrap();
        assert!((worth.life_times.unwrap() - life).abs() < 1e-9, "{case}: {worth:?}");
        assert_eq!(worth.life_years, None, "{case}: no days");
    }
}

/// The advice for a host that follows it is to stay there, whatever it was compared with before.
#[test]
fn regression_of_those_that_save_about_the_same_time_the_gentler_is_chosen() {
    let seconds = |policy: &str, batch: f64| match policy {
        "off" => 100.0,
        "batch:1d" => batch,
        _ => 80.5,
    };
    let nand = |policy: &str| match policy {
        "off" => Some(2_000),
        "batch:1d" => Some(1_640),
        _ => Some(1_440),
    };
    for (batch, all, chosen) in [
        (79.0, &["off", "commit", "batch:1d"][..], "commit"),
        (79.0, &["batch:1d", "commit"], "commit"),
        (79.0, &["commit", "batch:1d"], "commit"),
        // More than two points are worth the wear.
        (78.0, &["off", "commit", "batch:1d"], "batch:1d"),
    ] {
        let times: Vec<_> = all.iter().map(|policy| six(policy, seconds(policy, batch))).collect();
        let one = comparison_with(None, &times, None, false, nand).conclusion.unwrap();
        assert_eq!(one.policy, Some(chosen.into()), "{all:?}, {batch} s: {one:?}");
    }
}

#[test]
fn of_lives_that_hardly_differ_the_shortest_is_told() {
    let nand = |policy: &str| match policy {
        "off" => Some(1_000),
        "commit" => Some(1_030),
        _ => Some(980),
    };
    let times = [six("off", 100.0), six("commit", 100.0), six("batch:1d", 100.0)];
    let one = comparison_with(None, &times, None, false, nand).conclusion.unwrap();
    assert_eq!(one.decision, Decision::DoesNotMatter, "{one:?}");
    let times = one.worth.unwrap().life_times.unwrap();
    assert!((times - 1.0 / 1.03).abs() < 1e-9, "{times}");
}

#[test]
fn of_those_that_save_only_wear_the_longest_life_is_chosen() {
    for (batch, daemon, chosen) in [
        (1_000, 1_500, "batch:1d"),
        (1_500, 1_000, "set:40:90"),
        (1_060, 1_000, "set:40:90"),
        (1_020, 1_000, "batch:1d"),
    ] {
        let nand = |policy: &str| match policy {
            "off" => Some(2_000),
            "batch:1d" => Some(batch),
            _ => Some(daemon),
        };
        let times = [six("off", 100.0), six("batch:1d", 100.0), six("set:40:90", 100.0)];
        let one = comparison_with(None, &times, None, false, nand).conclusion.unwrap();
        assert_eq!((one.decision, one.policy), (Decision::Change, Some(chosen.into())), "{batch} {daemon}");
    }
}

#[test]
fn drives_that_ask_for_different_things_are_named() {
    let one = |device: &str, commit: f64| {
        let cells = comparison(None, &[six("off", 100.0), six("commit", commit)], None, false).cells;
        cells
            .into_iter()
            .map(|mut cell| {
                cell.device = device.to_owned();
                cell
            })
            .collect::<Vec<_>>()
    };
    for (times, decision, line) in [
        (
            [50.0, 100.0, 50.0],
            Decision::CannotTell,
            "It depends on the drive: `commit` on a, keep on b, `commit` on c.",
        ),
        (
            [50.0, 60.0, 70.0],
            Decision::Change,
            "That holds on each of the 3 drives; each has its figures below.",
        ),
    ] {
        let cells: Vec<Cell> =
            ["a", "b", "c"].into_iter().zip(times).flat_map(|(name, commit)| one(name, commit)).collect();
        let whole = comparison(None, &[six("off", 100.0), six("commit", 50.0)], None, false);
        let found = of(&Comparison { cells, ..whole });
        let said = &found.head[usize::from(decision == Decision::Change)];
        assert_eq!((found.decision, said.as_str(), found.worth), (decision, line, None), "{times:?}");
    }
}

#[test]
fn drives_that_ask_for_different_policies_are_named() {
    let whole = |commit| {
        comparison(None, &[six("off", 100.0), six("commit", commit), six("batch:1d", 70.0)], None, false)
    };
    let cells = [("a", 50.0), ("b", 90.0)].into_iter().flat_map(|(device, commit)| {
        whole(commit).cells.into_iter().map(move |mut cell| {
            cell.device = device.to_owned();
            cell
        })
    });
    let found = of(&Comparison { cells: cells.collect(), ..whole(50.0) });
    assert_eq!(found.decision, Decision::CannotTell, "{found:?}");
    assert_eq!(found.head[0], "It depends on the drive: `commit` on a, `batch:1d` on b.");
}
