//! `compare --target kernel:...`: every cell on a real kernel in virtual time.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::guests::{self, Bounds, RealKernel};
use trimwise::compare::result::{Cell, DriveFacts};
use trimwise::failure::{Failure, Mistake, Mistakes, set};
use trimwise::fs::layout::FormatOptions;
use trimwise::policy::{PolicyId, Trimmer};
use trimwise::profile::Profile;
use trimwise::units::{Bytes, Utilization};
use trimwise::words;
use trimwise::workload::days::Days;
use trimwise_linux::kept;
use trimwise_linux::pool;
use trimwise_uml::cell::{self, KernelCell, KernelCellError, KernelPolicy, KernelTarget, KernelWorkload};
use trimwise_uml::images::{self, KernelImage};
use trimwise_uml::job::FileSystem;
use trimwise_uml::machine::Limits;

use super::aged::{Drive, Shared};
use super::unfinished::Unfinished;
use super::workload::to_guest;
use crate::requests::limits;
use trimwise_study::caller::{Caller, OnInterrupt};
use trimwise_study::compare::here::StandIn;
use trimwise_study::compare::plan::{self, On, check_trim, days, needs_days};
use trimwise_study::compare::room::Room;
use trimwise_study::compare::workload::Workload;
use trimwise_study::compare::{CompareRequest, Comparison, Grid, Ran, Settings, finish, no_fill};
use trimwise_study::given::Given;
use trimwise_study::input;
use trimwise_study::whole::{Kind, Whole};

/// Fraction of a drive's bytes that take memory when data are zeros: metadata and short writes, with a margin.
const ZEROS_SHARE: u64 = 8;

/// A comparison on a kernel, which its target names.
pub type Plan = plan::Plan<KernelPolicy, ()>;

/// Lists everything in a request that no kernel can do.
pub(super) fn refusals(request: &CompareRequest, workload: &Workload, target: &KernelTarget) -> Vec<Mistake> {
    let of_usage = |failure: Failure| match failure {
        Failure::Usage(mistakes) => mistakes.0,
        _ => Vec::new(),
    };
    let days = days(request, workload);
    let policies = request.policies.iter().filter_map(|asked| policy(asked, target).err());
    let daemon = request.policies.iter().map(ToString::to_string).filter(|text| Trimmer::is_daemon(text));
    let daemon = daemon.map(|text| needs_days(&text));
    let daemon = daemon.filter(|_| matches!(days, Ok(None)));
    let of_workload = [to_guest(workload).err(), days.as_ref().err().cloned()];
    policies.chain(daemon).chain(of_workload.into_iter().flatten()).flat_map(of_usage).collect()
}

/// Returns what a policy is on this kernel, and its name in tables.
pub(crate) fn policy(
    asked: &Given<PolicyId>,
    target: &KernelTarget,
) -> Result<(String, KernelPolicy), Failure> {
    let policy = KernelPolicy::of_asked(&input::usual_name(&asked.to_string()), asked.value(), target)
        .map_err(|mistake| Mistake { asked: Mistake::on("policies").asked, ..mistake }.fail())?;
    Ok((policy.to_string(), policy))
}

/// Resolves the request, and rejects what no kernel can do.
pub(crate) fn plan(
    request: &CompareRequest,
    target: &KernelTarget,
    (workload, found): (Workload, Option<StandIn>),
) -> Result<Plan, Failure> {
    let mut wrong = Mistakes::default();
    let options = KernelPolicy::check_options(target);
    wrong.keep(options.map_err(|why| Mistake::of("target", &request.target).because(why).fail()))?;
    if request.linux.is_some() {
        let target = set("target", &request.target);
        let why = words!["cannot be used with ", target, ": the target names the kernel"];
        wrong.0.push(Mistake::on("linux").that_is(why));
    }
    if request.fill {
        wrong.keep::<()>(Err(no_fill()))?;
    }
    wrong.0.extend(refusals(request, &workload, target));
    wrong.end()?;
    let has = |policy: &PolicyId| KernelPolicy::of_id(policy, target).is_some();
    let on = On {
        linux: (),
        version: None,
        utilization: request.utilization()?,
        usual: &|found, is_over_days| {
            let mut usual = match found {
                Some(found) => found.policies(is_over_days, Some(&has)),
                None => KernelPolicy::all_of(target).into_iter().map(KernelPolicy::id).collect(),
            };
            if found.is_none() && is_over_days {
                usual.extend(["batch:1d", "batch:1w"].map(PolicyId::from));
            }
            usual.into_iter().map(Given::of).collect()
        },
        policy: &|asked, _| {
            let named = policy(asked, target)?;
            if named.1.is_daemon() {
                guests::trimwised()?;
            }
            Ok(named)
        },
    };
    Plan::resolved(request, (workload, found), on)
}

pub fn run(
    request: &CompareRequest,
    target: &KernelTarget,
    of: (Workload, Option<StandIn>),
    caller: &dyn Caller,
) -> Result<Comparison, Failure> {
    let plan = plan(request, target, of)?;
    let image = guests::image(target)?;
    let runs = Runs::of(&plan, request, (target, &image), (&plan.policies, plan.seed));
    runs.check()?;
    plan.workload.tell_notes(caller);
    let whole = Whole::of(caller, &caller.stop(OnInterrupt::StopAndShow)?, "runs", &[runs.kind()]);
    let ran = runs.cells(&whole, 0);
    drop(whole);
    finish(request, Settings { kernel: Some(runs.kernel()?), ..plan.settings }, plan.here, ran)
}

/// A cell of [`Runs`]: drive, policy and repetition.
pub(crate) type Asked<'a> = (&'a Profile, KernelPolicy, u32);

/// Each policy on each device, repeated as often as requested, on one kernel.
pub(crate) struct Runs<'a> {
    pub grid: Grid<'a, KernelPolicy>,
    pub workload: &'a Workload,
    /// The days over which the workload is spread.
    pub days: Option<&'a Days>,
    /// Whether the drive starts in the state of one in long use.
    pub long_in_use: bool,
    pub image: &'a KernelImage,
    pub target: &'a KernelTarget,
    pub utilization: Option<Utilization>,
    pub memory: Bytes,
    pub seed: u64,
    pub jobs: Option<u16>,
    pub limits: Limits,
}

impl<'a> Runs<'a> {
    /// Returns the runs of these policies on a kernel, otherwise as planned.
    pub fn of<P, L>(
        plan: &'a plan::Plan<P, L>,
        request: &CompareRequest,
        (target, image): (&'a KernelTarget, &'a KernelImage),
        (policies, seed): (&'a [KernelPolicy], u64),
    ) -> Self {
        Self {
            grid: Grid { devices: &plan.devices, policies, reps: request.reps },
            workload: &plan.workload,
            days: plan.days.as_ref(),
            long_in_use: plan.long_in_use,
            image,
            target,
            utilization: plan.utilization,
            memory: plan.memory,
            seed,
            jobs: request.jobs,
            limits: limits(&request.limits),
        }
    }

    /// Rejects what cannot run before anything runs.
    pub fn check(&self) -> Result<(), Failure> {
        to_guest(self.workload)?;
        for (device, policy) in self.grid.pairs() {
            guests::check_size(device, self.target.file_system)?;
            let least = Bytes(self.memory.0.saturating_add(pool::memory_of_run(device).0));
            pool::check_memory(least).map_err(|why| {
                Mistake::of("memory", self.memory.0 >> 20)
                    .because(format!("a guest with a model of {} {why}", device.name))
                    .expected("less memory, or a smaller drive")
                    .fail()
            })?;
            check_trim(device, (policy, policy != KernelPolicy::Off), "")?;
            // For other file systems, the room is unknown.
            if self.target.file_system == FileSystem::Ext4
                && let Ok(room) =
                    Room::of(device, FormatOptions::TODAY, self.utilization.unwrap_or(Utilization::EMPTY))
            {
                self.workload.check(&room, device)?;
            }
        }
        Ok(())
    }

    /// Returns the kernel, as results name it.
    pub fn kernel(&self) -> Result<RealKernel, Failure> {
        guests::real_kernel(self.image, self.target)
    }

    /// Opens the finished runs of earlier commands about the same drives, workload and kernel.
    pub fn unfinished(&self) -> Result<Unfinished, Failure> {
        Ok(Unfinished::of_user(&(self.common()?, self.grid.devices, self.seed)))
    }

    /// Returns what the results of all runs have in common and depend on.
    fn common(&self) -> Result<impl fmt::Debug + use<>, Failure> {
        Ok((self.kernel()?, to_guest(self.workload)?, self.days.cloned(), self.memory))
    }

    /// Runs all cells, as many at a time as fit into memory. An interrupt ends every guest. They are the whole's runs of
    /// this kind.
    pub fn cells(&self, whole: &Whole, kind: usize) -> Ran {
        let unfinished = match self.unfinished() {
            Ok(unfinished) => unfinished,
            Err(failure) => return (Vec::new(), Some(failure)),
        };
        let reps = self.grid.reps;
        let asked: Vec<Asked> = self
            .grid
            .pairs()
            .flat_map(|(device, policy)| (0..reps).map(move |rep| (device, policy, rep)))
            .collect();
        let (ran, failure) = self.each(&asked, (whole, kind), &unfinished, &|_, _| ());
        unfinished.end(&whole.part(kind), failure.is_none());
        (ran.into_iter().map(|(_, cell)| cell).collect(), failure)
    }

    /// Runs each of these cells, as many at a time as fit into memory, and returns the finished ones with their index.
    /// `on` gets each at once.
    pub fn each(
        &self,
        asked: &[Asked],
        (whole, kind): (&Whole, usize),
        unfinished: &Unfinished,
        on: &(dyn Fn(usize, &Cell) + Sync),
    ) -> (Vec<(usize, Cell)>, Option<Failure>) {
        let keys: Result<Vec<Option<String>>, Failure> = asked.iter().map(|of| self.key(*of)).collect();
        let keys = match keys {
            Ok(keys) => keys,
            Err(failure) => return (Vec::new(), Some(failure)),
        };
        let (caller, stop, jobs) = (&whole.part(kind), whole.stop(), self.jobs());
        let found = |key: &Option<String>| unfinished.look::<(Cell, String)>(caller, key.as_ref()?);
        let progress = caller.progress(asked.len(), "runs");
        let (mut finished, mut left) = (Vec::new(), Vec::new());
        for (index, key) in keys.iter().enumerate() {
            match found(key) {
                // The JSON of a cell omits PostMark's report, but a verdict needs it.
                Some((cell, postmark_report)) => {
                    let drive = Some(DriveFacts::of(&asked[index].0.config));
                    let cell = Cell { drive, postmark_report, ..cell };
                    progress.done(index);
                    on(index, &cell);
                    finished.push((index, cell));
                }
                None => left.push(index),
            }
        }
        whole.announce(&title(self.target));
        let shared = match self.shared(left.iter().map(|&index| asked[index]), jobs) {
            Ok(shared) => shared,
            Err(failure) => return (finished, Some(failure)),
        };
        let (ran, failure) = pool::run_finished(jobs, left.len(), |number| {
            if stop.load(Ordering::SeqCst) {
                return Err(Failure::Interrupted);
            }
            let (of_left, drive) = shared.order[number];
            let index = left[of_left];
            progress.update(index, 0, 1);
            let cell = self.run(asked[index], drive.map(|number| &shared.drives[number]), stop)?;
            let cell = cell.map_err(|error| {
                let (device, policy, rep) = asked[index];
                let run = format!("{} under {policy}, repetition {}", device.name, rep + 1);
                guests::failure(error).in_run(run)
            })?;
            if let Some(key) = &keys[index] {
                unfinished.enter(caller, key, &(&cell, &cell.postmark_report));
            }
            progress.done(index);
            on(index, &cell);
            Ok((index, cell))
        });
        finished.extend(ran);
        finished.sort_by_key(|(index, _)| *index);
        (finished, failure)
    }

    /// Returns how many cells run at a time: as many as requested, or as many as fit into memory.
    pub fn jobs(&self) -> usize {
        self.grid.jobs(self.jobs, |device| {
            let guest = match cell::writes_zeros(device, self.target) {
                true => Bytes(self.memory.0.saturating_add(device.config.capacity_bytes / ZEROS_SHARE)),
                false => guests::memory_of_guest(self.memory, device, self.utilization),
            };
            // A cell starts with a copy of its drive.
            let kept = if self.shares() {
                pool::memory_of_run(device).0.saturating_add(guest.0.saturating_sub(self.memory.0))
            } else {
                0
            };
            Bytes(pool::memory_of_run(device).0.saturating_add(guest.0).saturating_add(kept))
        })
    }

    /// Returns everything that a run's result depends on; `None` for a program of this computer, which may have changed
    /// by the next run.
    fn key(&self, asked: Asked) -> Result<Option<String>, Failure> {
        let workload = &to_guest(self.workload)?;
        if self.workload.kind.may_change() {
            return Ok(None);
        }
        let daemon = if asked.1.is_daemon() { Some(guests::trimwised()?) } else { None };
        let daemon = daemon.as_deref().map(images::file_hash).transpose();
        let daemon = daemon.map_err(|e| Failure::run(format!("trimwised: {e}")))?;
        let all = format!("{:?} {:?} {daemon:?}", self.common()?, self.cell(asked, workload));
        Ok(Some(kept::hash(all.as_bytes())))
    }

    fn cell<'b>(&'b self, (device, policy, rep): Asked<'b>, workload: &'b KernelWorkload) -> KernelCell<'b> {
        let Self { target, utilization, long_in_use, days, seed, .. } = *self;
        KernelCell { device, target, policy, workload, utilization, long_in_use, days, rep, seed }
    }

    /// Finds cells that start with the same drive.
    fn shared<'b>(&self, asked: impl Iterator<Item = Asked<'b>>, jobs: usize) -> Result<Shared, Failure> {
        let workload = to_guest(self.workload)?;
        let before: Result<Vec<_>, Failure> = asked
            .map(|of| {
                let steps = self.cell(of, &workload).steps_before();
                let wrong = |e| Mistake::of("devices", &of.0.name).because(format!("{e}")).fail();
                Ok((of.0, steps.map_err(wrong)?))
            })
            .collect();
        Ok(Shared::of(&before?, jobs))
    }

    /// Runs a cell in a guest, on a shared drive or on its own. The outer error means that a guest's programs cannot be
    /// found.
    pub fn run(
        &self,
        asked: Asked,
        shared: Option<&Drive>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Result<Cell, KernelCellError>, Failure> {
        let bounds = Bounds { limits: self.limits, stop: Arc::clone(stop) };
        let mut guest = guests::guest(self.image, self.memory, &bounds)?;
        if asked.1.is_daemon() {
            guest.daemon = Some(guests::trimwised()?);
        }
        let workload = to_guest(self.workload)?;
        let cell = self.cell(asked, &workload);
        Ok(match shared {
            Some(drive) => drive.disk(&cell, &guest).and_then(|disk| cell.run_on(disk, &guest)),
            None => cell.run(&guest),
        })
    }

    /// Returns whether runs that age alike start with the same drive.
    fn shares(&self) -> bool {
        cell::is_aged_before(self.days, self.utilization)
    }

    /// Estimates how long a run that ages its own drive takes here, from measurements on two cores of 2023: booting,
    /// ageing by the amount it writes, and the days. It knows nothing about the work except its days, so it may be off
    /// by a factor of three.
    pub fn expected(&self, policy: KernelPolicy) -> Duration {
        let days = f64::from(self.days.map_or(0, Days::days));
        let of_daemon = if policy.is_daemon() { DAEMON_S_PER_DAY } else { 0.0 };
        let work = if self.days.is_some() { days * (WORK_S_PER_DAY + of_daemon) } else { WORK_S };
        Duration::from_secs_f64(BOOT_S + work) + self.expected_ageing()
    }

    fn expected_ageing(&self) -> Duration {
        let capacity = self.grid.devices.iter().map(|(_, device)| device.config.capacity_bytes).max();
        let gib = capacity.unwrap_or_default() as f64 / Bytes::gib(1).0 as f64;
        let times_written = match (self.utilization, self.long_in_use) {
            (None, _) => 0.0,
            (Some(_), false) => 1.0,
            (Some(_), true) => 2.0,
        };
        let boot = if self.shares() { BOOT_S } else { 0.0 };
        Duration::from_secs_f64(boot + times_written * gib * AGEING_S_PER_GIB)
    }

    /// Returns the number of all runs, and how long they may take.
    pub fn kind(&self) -> Kind {
        let runs = self.grid.pairs().count() * self.grid.reps as usize;
        Kind::of(runs, self.jobs()).expecting(self.expected_mean())
    }

    /// Returns the mean of the policies' expected times; those with the same mount options age a drive only once.
    fn expected_mean(&self) -> Duration {
        let policies = self.grid.policies;
        let all: Duration = policies.iter().map(|policy| self.expected(*policy)).sum();
        let options: BTreeSet<String> =
            policies.iter().map(|policy| policy.mount_options(self.target)).collect();
        let shared = if self.shares() { policies.len() - options.len() } else { 0 };
        all.saturating_sub(self.expected_ageing() * shared as u32) / policies.len().max(1) as u32
    }
}

/// Names a file system and its kernel in a sentence.
pub(crate) fn title(target: &KernelTarget) -> String {
    format!("{} of Linux {}", target.file_system.name(), target.kernel)
}

/// Seconds, in real time, until a guest has mounted its file system.
const BOOT_S: f64 = 2.0;
/// Seconds to write a GiB in a guest.
const AGEING_S_PER_GIB: f64 = 1.5;
/// Seconds for the work of a day, the median of the applications.
const WORK_S_PER_DAY: f64 = 3.0;
/// Seconds for work that is not spread over days, the median of the applications.
const WORK_S: f64 = 30.0;
/// Seconds that trimwised adds to a day: two days of `desktop` took 16, and 39 more with it.
const DAEMON_S_PER_DAY: f64 = 30.0;
