//! Runs the cells: a file system is aged in one guest, and each workload begins on a copy of its drive in another.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use trimwise::compare::cell::{SETTLING, commit_phase};
use trimwise::compare::result::{Cell, Target, WorkloadFigures};
use trimwise::profile::Profile;
use trimwise::units::{Bytes, UNIT_BYTES};
use trimwise::workload::days::Days;
use trimwise_uml::cell::{KernelPolicy, KernelTarget, LONG_REST, ageing, daemon_config, new_disk};
use trimwise_uml::images::KernelImage;
use trimwise_uml::job::{Outcome, Step};

use super::{CAPACITY, Case, DRIVES, Figures, KERNEL, MEMORY, Row, UTILIZATIONS, WORKLOADS, Way, Work};
use crate::experiment::Request;
use crate::experiment::result::ExperimentResult;
use crate::guests::{self, Ran};
use crate::made;
use trimwise::failure::{Failure, Mistake};
use trimwise_linux::pool;

/// Memory of this computer that one run takes: guest, two models of the drive and their nonzero data.
const MEMORY_OF_RUN: Bytes = Bytes(MEMORY.0 + (5 << 28));

pub(super) struct Choice {
    image: KernelImage,
    kernel: String,
    cases: Vec<Case>,
}

impl Choice {
    fn target(&self, case: &Case) -> Result<KernelTarget, Failure> {
        format!("{}:{}", self.kernel, case.file_system).parse().map_err(Failure::run)
    }
}

/// Returns the kernel and the cells that `--only` selects by file system, drive, workload, way of trimming or degree of
/// use. Without `is_full` they are a sample, unless a drive or a degree is named.
pub(super) fn choice(
    only: &[String],
    is_full: bool,
    target: Option<&KernelTarget>,
) -> Result<Choice, Failure> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let parts = [
        names(&super::FILE_SYSTEMS),
        names(&DRIVES),
        names(&WORKLOADS.map(|workload| workload.name)),
        names(&Way::ALL.map(Way::name)),
        UTILIZATIONS.map(|percent| format!("{percent}%")).to_vec(),
    ];
    if let Some(unknown) = only.iter().find(|part| !parts.iter().any(|names| names.contains(part))) {
        let all = parts.map(|names| names.join(", ")).join("; ");
        return Err(Mistake::of("only", unknown).expected(format!("one of {all}")).fail());
    }
    let names_place = only.iter().any(|part| parts[1].contains(part) || parts[4].contains(part));
    let mut cases = super::cases();
    cases.retain(|case| {
        let degree = format!("{}%", case.utilization);
        let own = [case.file_system, case.drive, case.workload.name, case.way.name(), &degree];
        let is_asked = parts.iter().zip(own).all(|(names, own)| {
            let mut asked = only.iter().filter(|part| names.contains(part)).peekable();
            asked.peek().is_none() || asked.any(|part| part == own)
        });
        is_asked && (is_full || names_place || case.is_sampled())
    });
    let kernel = target.map_or(KERNEL.to_owned(), |target| target.kernel.to_string());
    if let Some(target) = target {
        if !target.options.is_empty() {
            let why = "each way of trimming sets its own mount options";
            return Err(Mistake::of("on", Target::from(target)).because(why).expected("none").fail());
        }
        cases.retain(|case| case.file_system == target.file_system.name());
    }
    let mut image = None;
    for file_system in super::FILE_SYSTEMS {
        if cases.iter().any(|case| case.file_system == file_system) {
            let target = format!("{kernel}:{file_system}").parse().map_err(Failure::run)?;
            image = Some(guests::image(&target)?);
        }
    }
    if cases.iter().any(|case| case.way == Way::Trimwised) {
        guests::trimwised()?;
    }
    let nothing = || Mistake::of("only", only.join(" ")).because("no cell is all of that").fail();
    Ok(Choice { image: image.ok_or_else(nothing)?, kernel, cases })
}

/// Runs all repetitions of all chosen cells, except those that are kept in the folder.
pub(super) fn run(request: &Request) -> Result<ExperimentResult, Failure> {
    let choice = choice(&request.only, request.full, request.target.as_ref())?;
    let Request { reps, seed, .. } = *request;
    let is_alike = |a: &Case, b: &Case| {
        (a.file_system, a.drive, a.utilization, a.way.aged())
            == (b.file_system, b.drive, b.utilization, b.way.aged())
    };
    let mut states: Vec<Vec<usize>> = Vec::new();
    for (i, case) in choice.cases.iter().enumerate() {
        match states.iter_mut().find(|state| is_alike(&choice.cases[state[0]], case)) {
            Some(state) => state.push(i),
            None => states.push(vec![i]),
        }
    }
    // Finish one repetition of everything before starting the next.
    let groups: Vec<(u32, &Vec<usize>)> =
        (0..reps).flat_map(|rep| states.iter().map(move |state| (rep, state))).collect();
    let steps = choice.cases.len() as u64 * u64::from(reps);
    let done = AtomicU64::new(0);
    let step = || (request.report)(done.fetch_add(1, Ordering::Relaxed) + 1, steps);
    let jobs = request.jobs.unwrap_or_else(|| pool::default_jobs(MEMORY_OF_RUN));
    let ran = pool::run_ordered(jobs, groups.len(), |i| {
        let (rep, state) = groups[i];
        run_state(request, &choice, state, rep, &step)
    })?;
    let mut of_case: BTreeMap<usize, Vec<Figures>> = BTreeMap::new();
    for (case, figures) in ran.into_iter().flatten() {
        of_case.entry(case).or_default().push(figures);
    }
    let rows: Vec<Row> = of_case.into_iter().map(|(i, runs)| Row::new(choice.cases[i], runs)).collect();
    let is_sample = rows.len() < super::cases().len() && !request.full && request.only.is_empty();
    Ok(super::evaluate(&rows, is_sample, (reps, seed)).made_on([&choice.image]))
}

/// Ages a file system, unless no cell needs it, and runs each of these cells on a copy.
fn run_state(
    request: &Request,
    choice: &Choice,
    cases: &[usize],
    rep: u32,
    step: &dyn Fn(),
) -> Result<Vec<(usize, Figures)>, Failure> {
    let draw = request.seed ^ (u64::from(rep) << 32);
    let mut device = Profile::embedded(choice.cases[cases[0]].drive).expect("it is built in");
    device.config = device.config.shrunk(CAPACITY.0).map_err(Failure::run)?;
    let mut aged: Option<Ran> = None;
    let mut found = Vec::new();
    for &i in cases {
        let case = &choice.cases[i];
        let target = choice.target(case)?;
        let policy = |way: Way| KernelPolicy::parse(way.policy(), &target).map_err(Failure::run);
        let before = age(&target, policy(case.way.aged())?, case, &device, draw)?;
        let (steps, work) = work(&target, policy(case.way)?, case, rep, draw)?;
        // Everything that the result depends on, including the code by its hashes.
        let mut code = made::code();
        code.remove("experiment");
        let image = made::kernel(&choice.image);
        let name = format!("{code:?} {image} {:?} {before:?} {steps:?} {}", device.config, request.seed);
        let kept = request.kept.as_ref().map(|kept| kept.look(&name)).transpose()?.flatten();
        let figures = match kept {
            Some(figures) => figures,
            None => {
                let mut guest = guests::guest(&choice.image, MEMORY, &request.bounds)?;
                if aged.is_none() {
                    let disk = new_disk(&device, request.seed, false).map_err(guests::failure)?;
                    aged = Some(Ran::on(&guest, disk, before).map_err(|e| named(case, case.way.aged(), e))?);
                }
                if case.way == Way::Trimwised {
                    guest.daemon = Some(guests::trimwised()?);
                }
                let disk = aged.as_ref().map(|aged| aged.another(true)).transpose()?;
                let disk = disk.ok_or_else(|| Failure::run("nothing was aged"))?;
                let ran = Ran::on(&guest, disk, steps).map_err(|e| named(case, case.way, e))?;
                let figures = measured(&ran, case, work)?;
                if let Some(kept) = &request.kept {
                    kept.enter(&name, &figures)?;
                }
                figures
            }
        };
        step();
        found.push((i, figures));
    }
    Ok(found)
}

/// Adds the cell to a run's failure.
fn named(case: &Case, way: Way, failure: Failure) -> Failure {
    let Case { file_system, drive, utilization, workload, .. } = case;
    let (work, way) = (workload.name, way.name());
    failure.in_run(format!("{file_system} on {drive}, {utilization} % full, {work}, {way}"))
}

fn mount(target: &KernelTarget, policy: KernelPolicy) -> Step {
    Step::Mount { file_system: target.file_system, options: policy.mount_options(target) }
}

/// Returns the steps that bring a file system and its drive into a state of long use under a policy: files are turned
/// over until all flash beyond the space in use was written once more. The rest lasts as long as the slowest discards
/// take.
fn age(
    target: &KernelTarget,
    policy: KernelPolicy,
    case: &Case,
    device: &Profile,
    seed: u64,
) -> Result<Vec<Step>, Failure> {
    let utilization = case.utilization;
    let [age, settle] = ageing(utilization, seed);
    let in_use = CAPACITY.0 / 100 * utilization.percent();
    let bytes = device.config.physical_bytes().map_err(Failure::run)?.saturating_sub(in_use);
    Ok(vec![
        Step::Mkfs { file_system: target.file_system, options: Vec::new() },
        mount(target, policy),
        Step::WriteZeros,
        age,
        Step::TurnOver { utilization, bytes, seed },
        settle,
        Step::Sync,
        Step::Sleep { ns: LONG_REST.as_nanos() },
        Step::Unmount,
    ])
}

/// Returns the steps of the work on an aged file system, and the index of the work among them.
fn work(
    target: &KernelTarget,
    policy: KernelPolicy,
    case: &Case,
    rep: u32,
    draw: u64,
) -> Result<(Vec<Step>, usize), Failure> {
    let mut steps = vec![mount(target, policy), Step::WriteZeros];
    if case.way.trims_before() {
        steps.push(Step::Fitrim { minlen_bytes: 0 });
    }
    steps.push(Step::Sleep { ns: SETTLING.as_nanos() });
    if let KernelPolicy::Daemon(policy) = policy {
        steps.push(Step::Daemon { config: daemon_config(policy) });
    }
    if case.workload.days.is_some() {
        steps.push(Step::Sleep { ns: LONG_REST.as_nanos() });
    }
    steps.push(Step::Sleep { ns: commit_phase(rep).as_nanos() });
    let work = match case.workload.work {
        Work::Postmark(config) => Step::Postmark { config: config.to_owned(), rep },
        Work::Program(argument) => {
            Step::Workload { argument: argument.to_owned(), text: String::new(), scale: 1.0, rep, seed: draw }
        }
    };
    let work = match case.workload.days {
        None => work,
        Some((days, shape)) => {
            let spread = Days::new(days, shape.parse().map_err(Failure::run)?).map_err(Failure::run)?;
            steps.extend(policy.trim_every(Some(&spread)));
            Step::OverDays { days, shape: shape.to_owned(), seed: draw, work: Box::new(work) }
        }
    };
    steps.push(work);
    let at = steps.len() - 1;
    if policy.is_daemon() {
        steps.push(Step::StopDaemon);
    }
    Ok((steps, at))
}

fn measured(ran: &Ran, case: &Case, work: usize) -> Result<Figures, Failure> {
    let cell: &Cell = ran.outcome(work, |outcome| match outcome {
        Outcome::Cell(cell, _) => Some(&**cell),
        _ => None,
    })?;
    // Programs and days mark the disk when their files exist.
    let marks_itself = case.workload.days.is_some() || matches!(case.workload.work, Work::Program(_));
    let first = work + usize::from(marks_itself);
    let [before, after] = ran.marks.get(first..first + 2).unwrap_or_default() else {
        return Err(Failure::run("the guest did not report when the workload ran"));
    };
    let stats = after.stats.since(&before.stats);
    let trims = ran.trace[before.traced..after.traced].iter().filter(|request| request.is_trim);
    let bytes = |units: u64| units * UNIT_BYTES;
    Ok(Figures {
        duration_ns: cell.duration_ns,
        fsync_p99_ns: cell.latency.get("fsync").map(|latency| latency.p99_ns),
        written_bytes: match &cell.workload {
            WorkloadFigures::Postmark(figures) => figures.bytes_written,
            WorkloadFigures::Program(done) => done.written_bytes,
            _ => return Err(Failure::run("the guest reported another workload")),
        },
        host_bytes: bytes(stats.host_units_written),
        flash_bytes: bytes(stats.nand_units.total()),
        trims: trims.clone().count() as u64,
        trimmed_bytes: trims.map(|trim| trim.length_bytes).sum(),
        released_bytes: bytes(stats.trim.units_invalidated),
        fitrim_max_ns: cell.days.as_ref().map_or(0, |days| days.fitrim_max_ns),
    })
}

#[cfg(test)]
mod tests {
    use super::super::cases;
    use super::*;

    #[test]
    fn what_there_is_not_is_refused() {
        for part in ["zfs", "sometimes", "55%"] {
            let refused = choice(&[part.to_owned()], false, None);
            assert!(
                matches!(refused, Err(Failure::Usage(m)) if m.to_string().contains("f2fs; sata-small")),
                "{part}"
            );
        }
        let refused = choice(&[], false, Some(&"6.12:xfs:noatime".parse().unwrap()));
        assert!(matches!(refused, Err(Failure::Usage(m)) if m.to_string().contains("expected none")));
    }

    #[test]
    fn the_work_begins_trimmed_where_a_timer_or_the_daemon_has_run_before() {
        let names = |file_system: &str, workload: &str, way: Way| {
            let of = |case: &&Case| {
                (case.file_system, case.workload.name, case.way) == (file_system, workload, way)
            };
            let case = *cases().iter().find(of).unwrap();
            let target: KernelTarget = format!("6.12:{file_system}").parse().unwrap();
            let policy = KernelPolicy::parse(way.policy(), &target).unwrap();
            let (steps, at) = work(&target, policy, &case, 0, 1).unwrap();
            assert!(matches!(
                steps[at],
                Step::Postmark { .. } | Step::Workload { .. } | Step::OverDays { .. }
            ));
            steps.iter().map(Step::name).collect::<Vec<_>>().join(", ")
        };
        for (file_system, workload, way, expected) in [
            (
                "xfs",
                "postmark",
                Way::Discard,
                "mount of xfs with 'discard', writing zeros, sleep, sleep, PostMark",
            ),
            (
                "f2fs",
                "postmark",
                Way::Fstrim,
                "mount of f2fs with 'nodiscard', writing zeros, FITRIM, sleep, sleep, PostMark",
            ),
            (
                "btrfs",
                "packages-week",
                Way::Weekly,
                "mount of btrfs with 'nodiscard', writing zeros, FITRIM, sleep, sleep, sleep, FITRIM at intervals, \
                 workload unpack:packages=20,upgrades=60,layers=40,kept=3 over 7 days",
            ),
            (
                "ext4",
                "desktop-day",
                Way::Trimwised,
                "mount of ext4 with 'nodiscard', writing zeros, FITRIM, sleep, trimwised, sleep, sleep, \
                 workload desktop:steps=12k,cache=64MiB over 1 days, trimwised",
            ),
        ] {
            assert_eq!(names(file_system, workload, way), expected);
        }
    }
}
