//! Conclusions on invented runs, and the steps on ten hosts.

use std::fmt::Write as _;
use std::fs;

use trimwise::compare::days::DaysFigures;
use trimwise::compare::result::{Cell, CellId, Target, WorkloadFigures};
use trimwise::policy::{PolicySpec, Trimmer};
use trimwise::units::SimDuration;
use trimwise::workload::stage::Done;
use trimwise_linux::daemon::config::Config;
use trimwise_linux::here::Here as Found;
use trimwise_testing::fake_host::{GIB, Host, SDA};

use super::*;
use crate::compare::{CompareRequest, Settings, finish};

const NVME: &str = "pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1";
const WEEKLY: &str = "etc/systemd/system/timers.target.wants/fstrim.timer";

/// A host with systemd, whose `/` is this file system on a drive; `options` are those that mountinfo shows.
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
    Found::of(&HostRoot::new(host.0.path()), Path::new("/run/trimwise"), Path::new("/")).unwrap()
}

/// The ten hosts, by name.
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
    vec![
        ("ext4, discard, weekly", weekly(host("ext4", ",discard", NVME))),
        ("ext4, weekly", weekly(host("ext4", "", NVME))),
        ("ext4, discard in the superblock", superblock),
        ("xfs, discard", host("xfs", ",discard", SDA)),
        ("xfs, a unit mounts it", unit),
        ("btrfs, discard=async", host("btrfs", ",discard=async", NVME)),
        ("f2fs, discard by default", host("f2fs", ",discard", SDA)),
        ("ext4, LUKS drops TRIM", luks),
        ("ext4, neither systemd nor fstab", plain),
        ("ext4, notrim", weekly(host("ext4", ",X-fstrim.notrim", SDA))),
    ]
}

/// Nothing that is set is set again, no other mount is touched, and what is done can be taken back.
#[test]
fn the_steps_on_ten_hosts() {
    let mut table = String::new();
    for (name, host) in hosts() {
        let found = found(&host);
        let (mount, today) = (&found.mount, found.today.policy(&found.mount.fs_type).unwrap());
        writeln!(table, "{name}: {}", found.today.sentence()).unwrap();
        for policy in ["off", "commit", "batch:1d", "batch:1w", "trimwised"] {
            let steps = Steps::to(&policy.into(), &found);
            if today == policy.into() {
                assert!(steps.is_empty(), "{name}: {policy} is what it does: {steps:?}");
                continue;
            }
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
    let expected = include_str!("steps-on-ten-hosts.txt");
    assert!(table == expected, "the table is now:\n{table}");
}

/// The daemon accepts what the steps write, follows that policy there, and leaves other mounts alone.
#[test]
fn the_daemon_follows_the_policy_that_the_steps_write() {
    let hosts = hosts();
    let found = found(&hosts[1].1);
    let mut written = 0;
    for policy in PolicySpec::examples() {
        if Means::of(Trimmer::Kernel(policy)) != Means::Daemon {
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

/// All that speak of a host say the same of what it does today.
#[test]
fn the_doctor_and_a_comparison_agree_on_what_a_host_does() {
    for (name, host) in hosts() {
        let found = found(&host);
        let root = HostRoot::new(host.0.path());
        let report = doctor::examine(&root, Path::new("/run/trimwise"), None).unwrap();
        let of_doctor = of_diagnosis(&report.file_systems[0]);
        let here = Here::of_found(found.clone());
        assert_eq!(of_doctor.today, here.today(true), "{name}");
        assert_eq!(of_doctor.mount.as_deref(), Some(here.mount()), "{name}");
        assert_eq!(report.file_systems[0].today.sentence(), here.today_sentence(), "{name}");
        assert_eq!(report.file_systems[0].passes, here.passes(), "{name}");
        assert!(of_doctor.steps.is_empty() && of_doctor.decision != Decision::Change, "{name}");
        expect_short(&of_doctor.head);
    }
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
    let cell = |policy: &str, rep: usize, seconds: f64| {
        let id = CellId { device: "d".into(), policy: policy.into(), target: Target::Model, rep: rep as u32 };
        let duration = SimDuration::from_nanos((seconds * 1e9) as u64);
        let done = Done { files_removed: 1, ..Done::default() };
        let days = days.map(|_| DaysFigures::default());
        Cell { days, ..Cell::new(id, duration, WorkloadFigures::Program(done)) }
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
    let failure = partial.then_some(trimwise_lab::failure::Failure::Interrupted);
    finish(&request, settings, here.cloned(), (cells.collect(), failure)).unwrap()
}

/// No command follows runs that are missing, insignificant, immaterial or of what no host can have.
#[test]
fn commands_follow_only_a_change_that_is_shown_and_material() {
    let hosts: Vec<Here> = hosts().iter().map(|(_, host)| Here::of_found(found(host))).collect();
    let pool = ["off", "commit", "batch:1d", "batch:1w", "trimwised", "lazy+reuse", "ideal"];
    let mut seen = [0; 4];
    for seed in 0..500 {
        let draw = &mut Draw(seed);
        let reps = 1 + draw.below(8);
        let spread = [0.0, 0.001, 0.01, 0.1][draw.below(4) as usize];
        // In a third of the cases nothing differs but by chance.
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
            assert_ne!(Means::of(policy), Means::Changed, "{seed}");
            assert!(!partial && (reps >= 4 || spread == 0.0), "{seed}");
            let worth = conclusion.worth.unwrap();
            assert!(worth.time_saved_percent > TIME_PERCENT, "{seed}: {worth:?}");
            assert!(worth.time_saved_percent_interval.unwrap()[0] > 0.0, "{seed}: {worth:?}");
        }
    }
    assert!(seen.iter().all(|count| *count > 20), "each decision is there: {seen:?}");
}

#[test]
fn a_difference_that_nobody_would_notice_does_not_matter() {
    let here = Here::of_found(found(&hosts()[1].1));
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

#[test]
fn options_of_fstab_change_in_their_line_only() {
    let text = "# a\nUUID=1 / ext4 defaults 0 1\n/dev/b /b ext4 defaults 0 2\n";
    let changed = steps::with_options(text, 2, "defaults", "defaults,discard").unwrap();
    assert_eq!(changed, text.replacen("defaults", "defaults,discard", 1));
    assert_eq!(steps::with_options(text, 2, "noatime", "x"), None, "somebody changed it");
    assert_eq!(steps::with_options(text, 9, "defaults", "x"), None);
    assert_eq!(steps::with_options(text, 0, "defaults", "x"), None);
    // The options may be the name of the device, too.
    let odd = steps::with_options("defaults /m ext4 defaults 0 0", 1, "defaults", "ro").unwrap();
    assert_eq!(odd, "defaults /m ext4 ro 0 0");
}

#[test]
fn wear_is_compared_for_the_same_work_and_matters_only_if_the_flash_is_short_lived() {
    let wear = |significant| {
        let sample = |n: f64| trimwise::compare::statistics::Sample::new(vec![n; 6], significant).unwrap();
        Some(compare(&sample(2.0), &sample(1.0)))
    };
    let life = |times, years, is_rate_known| of_life(Some(times), Some(years), is_rate_known, wear(true));
    assert_eq!(life(1.5, [20.0, 30.0], true), Material::No);
    assert_eq!(life(1.5, [6.0, 9.0], true), Material::Better);
    assert_eq!(life(0.7, [20.0, 14.0], true), Material::Worse);
    assert_eq!(life(1.04, [6.0, 6.2], true), Material::No);
    assert_eq!(life(1.5, [6.0, 9.0], false), Material::PerhapsBetter, "at an unknown rate");
    assert_eq!(life(1.5, [66.8, 47.5], false), Material::No, "it outlasts the host without a pause");
    assert_eq!(of_life(None, None, true, None), Material::No);
}
