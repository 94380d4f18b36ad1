//! Conclusions about a class of drives without a run, from runs of the model made beforehand.
//!
//! `classes.txt` has the figures of each run: a week of `desktop`'s office days, 80 % full, on Linux 6.12 with 16 GiB
//! of memory, six times under each policy of a stock host and under trimwised. The test
//! `the_figures_of_the_classes_are_the_models_own` of the tier `experiments` runs them again, and writes the file if
//! `CLASSES=write` is set.

use std::sync::Arc;

use trimwise::compare::days::DaysFigures;
use trimwise::compare::result::{Cell, CellId, DeviceFigures, DriveFacts, Target, WorkloadFigures};
use trimwise::failure::{Failure, Mistake, argument};
use trimwise::policy::PolicyId;
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
use crate::compare::workload::Workload;
use crate::compare::{CompareRequest, Settings, finish};
use crate::defaults;
use crate::stand_in::profile_for;

/// A line for each run: profile, policy, repetition, waiting in ns, units written by the host and to the flash, blocks
/// erased.
pub const RUNS: &str = include_str!("classes.txt");

/// The policies of a stock host, and trimwised.
pub const POLICIES: [&str; 6] = ["off", "commit", "btrfs", "batch:1d", "batch:1w", "trimwised"];

pub const REPS: u32 = defaults::REPS;

pub const LINUX: &str = "6.12";

const MEMORY: Bytes = Bytes::gib(16);

/// A drive for each profile that stands in for drives of hosts: its size in GB, its link and its model name.
const DRIVES: [(&str, u64, Transport, &str); 7] = [
    ("sata-generic", 256, Transport::Ata, ""),
    ("sata-500gb-slc", 256, Transport::Ata, "Samsung SSD 870 EVO"),
    ("nvme-generic", 256, Transport::Nvme, ""),
    ("nvme-500gb-dramless", 256, Transport::Nvme, "WD Blue SN570"),
    ("nvme-960gb-enterprise", 256, Transport::Nvme, "SAMSUNG MZQLB"),
    ("ufs21-64gb", 64, Transport::Mmc, ""),
    ("ufs4-256gb", 256, Transport::Ufs, ""),
];

pub fn profiles() -> impl Iterator<Item = &'static str> {
    DRIVES.iter().map(|(profile, ..)| *profile)
}

/// Runs a profile under a policy and returns the line of the run.
pub fn run(profile: &str, policy: &str, rep: u32) -> Result<String, Failure> {
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
    let cell =
        plan.run_cell((&plan.devices[0].1, plan.policies[0]), rep, Arc::new(|_, _| ()), &Arc::default())?;
    let figures = cell.device_stats.unwrap_or_default();
    let DeviceFigures { host_units_written, nand_units_written, erases, .. } = figures;
    let waiting_ns = cell.duration_ns;
    Ok(format!("{profile} {policy} {rep} {waiting_ns} {host_units_written} {nand_units_written} {erases}"))
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
    let cells: Vec<Cell> = RUNS.lines().filter_map(|line| cell(line, &profile, drive)).collect();
    here.today(true).filter(|today| cells.iter().any(|cell| cell.policy == *today))?;
    let settings =
        Settings { days: request.days, day: Some("office".to_owned()), ..Settings::of(&request, |_| ()) };
    let comparison = finish(&request, settings, Some(here), (cells, None)).ok()?;
    Some(Conclusion { steps: Steps::default(), ..comparison.conclusion? })
}

/// Reads the line of a run; `None` if it is of another profile.
fn cell(line: &str, profile: &str, drive: DriveFacts) -> Option<Cell> {
    let mut words = line.split(' ');
    (words.next()? == profile).then_some(())?;
    let policy: PolicyId = words.next()?.into();
    let is_trimmed = policy != PolicyId::OFF;
    let numbers: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let [rep, waiting_ns, host, nand, erases] = numbers[..] else { return None };
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
            // The file does not say how many; each policy but `off` trims within a week.
            trim_commands: u64::from(is_trimmed),
            ..DeviceFigures::default()
        }),
        drive: Some(drive),
        ..Cell::new(id, SimDuration::from_nanos(waiting_ns), freed)
    })
}
