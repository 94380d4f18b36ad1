//! Conclusions about a class of drives without a run, from runs of the model made beforehand.
//!
//! `classes.txt` has the figures of each run: a week of `desktop`'s office days, 80 % full, on Linux 6.12 with 16 GiB
//! of memory, six times under each policy of a stock host and under trimwised, and once at either end of the ranges of
//! what the profile assumes. The test
//! `the_figures_of_the_classes_are_the_models_own` of the tier `experiments` runs them again, and writes the file if
//! `CLASSES=write` is set.

use std::sync::Arc;

use trimwise::compare::days::DaysFigures;
use trimwise::compare::result::{Cell, CellId, DeviceFigures, DriveFacts, Target, WorkloadFigures};
use trimwise::compare::sensitivity::{AtEnds, Side, Tried};
use trimwise::failure::{Failure, Mistake, argument};
use trimwise::policy::PolicyId;
use trimwise::profile::Profile;
use trimwise::profile::ranges::Factor;
use trimwise::units::{Bytes, SimDuration, Utilization};
use trimwise::workload::stage::Done;
use trimwise_linux::code::Code;
use trimwise_linux::doctor::{Aim, Diagnosis, Purpose, Transport};
use trimwise_linux::here::{Drive, Here as Found};
use trimwise_linux::host_root::HostRoot;
use trimwise_linux::mount::Mount;
use trimwise_linux::today::{MountedBy, Today};

use super::Conclusion;
use super::steps::Steps;
use crate::compare::here::StandIn;
use crate::compare::on_model::Plan;
use crate::compare::ranges::{at_side, shift, trim_times};
use crate::compare::workload::Workload;
use crate::compare::{CompareRequest, Settings, finish};
use crate::defaults;
use crate::stand_in::profile_for;

/// A line for each run: profile (with `:for_trim` or `:against_trim` at an end of its ranges), policy, repetition, waiting
/// in ns, units written by the host and to the flash, blocks erased, TRIM ranges and units trimmed.
pub const RUNS: &str = include_str!("classes.txt");

/// The policies of a stock host, and trimwised.
pub const POLICIES: [&str; 6] = ["off", "commit", "btrfs", "batch:1d", "batch:1w", "trimwised"];

pub const REPS: u32 = defaults::REPS;

pub const LINUX: &str = "6.12";

const MEMORY: Bytes = Bytes::gib(16);

/// A drive for each profile that stands in for drives of hosts: its size in GB, its link and its model name.
const DRIVES: [(&str, u64, Transport, &str); 10] = [
    ("sata-generic", 256, Transport::Ata, ""),
    ("sata-500gb-slc", 256, Transport::Ata, "Samsung SSD 870 EVO"),
    ("sata-1tb-qlc", 256, Transport::Ata, "Samsung SSD 860 QVO 1TB"),
    ("sata-240gb-2012", 240, Transport::Ata, "Crucial_CT240M500SSD1"),
    ("sata-960gb-enterprise", 256, Transport::Ata, "INTEL SSDSC2KB480G7"),
    ("nvme-1tb-slc", 256, Transport::Nvme, ""),
    ("nvme-500gb-dramless", 256, Transport::Nvme, "WD Blue SN570"),
    ("nvme-960gb-enterprise", 256, Transport::Nvme, "SAMSUNG MZQLB"),
    ("ufs21-64gb", 64, Transport::Mmc, ""),
    ("ufs4-256gb", 256, Transport::Ufs, ""),
];

pub fn profiles() -> impl Iterator<Item = &'static str> {
    DRIVES.iter().map(|(profile, ..)| *profile)
}

/// A run of a class.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub profile: &'static str,
    /// `None`: at the profile's own values.
    pub side: Option<Side>,
    pub policy: &'static str,
    pub rep: u32,
}

/// All runs, in the order of the file.
pub fn runs() -> impl Iterator<Item = Run> {
    profiles().flat_map(|profile| {
        let likely =
            POLICIES.into_iter().flat_map(move |policy| (0..REPS).map(move |rep| (None, policy, rep)));
        let ends = Side::BOTH.into_iter().flat_map(|side| POLICIES.map(|policy| (Some(side), policy, 0)));
        let has_ranges = Profile::embedded(profile).is_some_and(|profile| !profile.ranges().is_empty());
        let of = move |(side, policy, rep)| Run { profile, side, policy, rep };
        likely.chain(ends.filter(move |_| has_ranges)).map(of)
    })
}

impl Run {
    /// The first three words of its line.
    pub fn name(&self) -> String {
        format!("{} {} {}", place(self.profile, self.side), self.policy, self.rep)
    }
}

/// The first word of a run's line.
fn place(profile: &str, side: Option<Side>) -> String {
    match side {
        None => profile.to_owned(),
        Some(Side::ForTrim) => format!("{profile}:for_trim"),
        Some(Side::AgainstTrim) => format!("{profile}:against_trim"),
    }
}

/// Carries out a run and returns its line.
pub fn run(run: Run) -> Result<String, Failure> {
    let Run { profile, side, policy, rep } = run;
    let mount = Mount {
        id: 1,
        parent: 0,
        numbers: (8, 1),
        mount_point: "/".into(),
        device: "/dev/sda1".to_owned(),
        fs_type: "ext4".to_owned(),
        options: Vec::new(),
        discards_by_default: false,
    };
    let today = Today {
        discard: "nodiscard".to_owned(),
        at_intervals: Vec::new(),
        not_here: Vec::new(),
        mounted_by: MountedBy::Unknown,
        also_at: Vec::new(),
    };
    let (request, workload, stand_in) = of_class(profile, mount, today)
        .ok_or_else(|| Mistake::of(argument("profile"), profile).because("no such class").fail())??;
    let request = CompareRequest { policies: vec![policy.into()], ..request };
    let plan = Plan::on(&request, workload, Some(stand_in))?;
    let likely = &plan.devices[0].1;
    let device = match side {
        None => likely.clone(),
        Some(side) => at_side(likely, &likely.ranges(), &Factor::ALL, side)
            .ok_or_else(|| Failure::run("no drive can be like that"))?,
    };
    let cell = plan.run_cell((&device, plan.policies[0]), rep, Arc::new(|_, _| ()), &Arc::default())?;
    let d = cell.device_stats.unwrap_or_default();
    let figures = [
        cell.duration_ns,
        d.host_units_written,
        d.nand_units_written,
        d.erases,
        d.trim_ranges,
        d.trimmed_units,
    ];
    let figures = figures.map(|figure| figure.to_string()).join(" ");
    Ok(format!("{} {figures}", run.name()))
}

type OfClass = (CompareRequest, Workload, StandIn);

/// The profile that stands in for the drive of a class.
#[cfg(test)]
pub(super) fn stands_for(profile: &str) -> Option<String> {
    profile_for(&drive(profile)?).ok().map(|chosen| chosen.profile)
}

fn drive(profile: &str) -> Option<Drive> {
    let (_, gb, link, model) = DRIVES.into_iter().find(|(name, ..)| *name == profile)?;
    Some(usual_drive(link, model, Bytes(gb * 1_000_000_000)))
}

/// A flash drive of this host that takes TRIM and has a volatile cache.
pub(crate) fn usual_drive(link: Transport, model: &str, size: Bytes) -> Drive {
    Drive {
        name: "sda".to_owned(),
        model: model.to_owned(),
        size,
        link,
        rotates: false,
        discard_max: Bytes::gib(2),
        is_volatile: true,
        borrows_memory: false,
        is_remote: false,
        is_virtual: false,
        is_below_loop: false,
    }
}

/// The stand-in for a host of this class; `None` if the class is unknown.
fn of_class(profile: &str, mount: Mount, today: Today) -> Option<Result<OfClass, Failure>> {
    let drive = drive(profile)?;
    let found = Found {
        root: HostRoot::new("/nonexistent"),
        mount,
        size: drive.size,
        drives: vec![drive],
        utilization: Utilization::default(),
        today,
        passes: Some(true),
        purposes: Vec::new(),
        has_systemd: false,
        kernel: LINUX.to_owned(),
        memory: Some(MEMORY),
    };
    let request = CompareRequest {
        workload: defaults::WORKLOAD_HERE.to_owned(),
        here: Some("/".into()),
        days: Some(defaults::DAYS),
        ..CompareRequest::default()
    };
    let workload = Workload::of(&request);
    Some(workload.and_then(|workload| {
        let stand_in = StandIn::chosen(found, &request, &workload)?;
        Ok((request, workload, stand_in))
    }))
}

/// Concludes on a file system as on a host of its drive's class. `None` if TRIM may not reach the drive, or the class
/// or the host's current policy is unknown.
pub(super) fn conclusion(one: &Diagnosis) -> Option<Conclusion> {
    let drive = one.drives.first().filter(|drive| drive.why_no_ssd().is_none())?;
    // The runs weigh the flash, and nothing else.
    let reaches_flash = |purpose: &Purpose| purpose.aim == Aim::Flash && purpose.is_reached == Some(true);
    if !one.purposes.is_empty() && !one.purposes.iter().any(reaches_flash) {
        return None;
    }
    // btrfs's synchronous discard costs what no run of another file system shows.
    if one
        .findings
        .iter()
        .any(|finding| finding.code == Code::BtrfsSyncDiscard || finding.code.forbids_trim())
    {
        return None;
    }
    if one.is_host_s || one.passes != Some(true) || one.findings.iter().any(|finding| finding.wrong) {
        return None;
    }
    let mount = Mount {
        id: 0,
        parent: 0,
        numbers: (0, 0),
        mount_point: one.mount_point.clone(),
        device: one.device.clone(),
        fs_type: one.fs_type.clone(),
        options: Vec::new(),
        discards_by_default: false,
    };
    let profile = profile_for(drive).ok()?.profile;
    let (request, _, stand_in) = of_class(&profile, mount, one.today.clone())?.ok()?;
    let mut device = crate::input::device(&stand_in.device).ok()?;
    let here = stand_in.stand_in(&mut device, true, false).ok()?;
    let drive = DriveFacts::of(&device.1.config);
    let cells = |side| -> Vec<Cell> {
        let place = place(&profile, side);
        RUNS.lines().filter_map(|line| cell(line, &place, (&profile, drive))).collect()
    };
    let (at_ends, cells) = (at_ends(&device.1, &cells(None), &cells), cells(None));
    here.today(true).filter(|today| cells.iter().any(|cell| cell.policy == *today))?;
    let settings =
        Settings { days: request.days, day: Some("office".to_owned()), ..Settings::of(&request, |_| ()) };
    let mut comparison = finish(&request, settings, Some(here), (cells, None)).ok()?;
    comparison.at_ends.extend(at_ends);
    comparison.conclude();
    Some(Conclusion { steps: Steps::default(), ..comparison.conclusion? })
}

/// How the policies ran at the ends of the ranges. `None` if the drive has none.
fn at_ends(device: &Profile, likely: &[Cell], cells: &dyn Fn(Option<Side>) -> Vec<Cell>) -> Option<AtEnds> {
    let ranges = device.ranges();
    let trim = trim_times(device, &ranges, &likely.iter().collect::<Vec<_>>());
    let mut ends =
        AtEnds { device: likely.first()?.device.clone(), ranges, trim, tried: Vec::new(), runs: 0 };
    let factors = ends.factors();
    ends.tried = Side::BOTH
        .into_iter()
        .map(|side| {
            let of = |there: &Cell| {
                let likely =
                    likely.iter().find(|likely| (&likely.policy, likely.rep) == (&there.policy, 0))?;
                Some(shift(likely, Some(there)))
            };
            let shifts = cells(Some(side)).iter().filter_map(of).collect();
            Tried { factors: factors.clone(), side, shifts }
        })
        .filter(|tried| !tried.shifts.is_empty())
        .collect();
    ends.runs = ends.tried.iter().map(|tried| tried.shifts.len()).sum();
    (!ends.tried.is_empty()).then_some(ends)
}

/// Reads the line of a run; `None` if it is of another place.
fn cell(line: &str, place: &str, (profile, drive): (&str, DriveFacts)) -> Option<Cell> {
    let mut words = line.split(' ');
    (words.next()? == place).then_some(())?;
    let policy: PolicyId = words.next()?.into();
    let numbers: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let [rep, waiting_ns, host, nand, erases, trim_ranges, trimmed_units] = numbers[..] else { return None };
    let id = CellId { device: profile.to_owned(), policy, target: Target::Model, rep: rep as u32 };
    let freed = WorkloadFigures::Program(Done { files_removed: 1, ..Done::default() });
    let elapsed_ns = u64::from(defaults::DAYS) * 86_400_000_000_000;
    Some(Cell {
        days: Some(DaysFigures { elapsed_ns, ..DaysFigures::default() }),
        device_stats: Some(DeviceFigures {
            host_units_written: host,
            nand_units_written: nand,
            write_amplification: nand as f64 / host.max(1) as f64,
            erases,
            // At most: a command may have several.
            trim_commands: trim_ranges,
            trim_ranges,
            trimmed_units,
            ..DeviceFigures::default()
        }),
        drive: Some(drive),
        ..Cell::new(id, SimDuration::from_nanos(waiting_ns), freed)
    })
}
