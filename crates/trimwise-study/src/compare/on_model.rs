//! `compare` in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trimwise::compare::cell::{CellError, CellSpec, run_cell_until};
use trimwise::compare::days::DaysSpec;
use trimwise::compare::result::Cell;
use trimwise::failure::{Failure, Mistake, key, set};
use trimwise::files::FileError;
use trimwise::fs::host::{HostConfig, LinuxVersion};
use trimwise::fs::layout::FormatOptions;
use trimwise::numbers::counted;
use trimwise::policy::{Policy, PolicyId, PolicySpec, Trimmer};
use trimwise::profile::Profile;
use trimwise::replay::ReplaySpec;
use trimwise::words;
use trimwise_linux::file_system::FileSystem;
use trimwise_linux::pool;

use super::CompareRequest;
use super::here::StandIn;
use super::plan::{On, check_trim, needs_days};
use super::room::Room;
use super::workload::{Kind, Workload, is_full, report_phase};
use super::{Comparison, Grid, Linux, finish, no_fill, ranges};
use crate::caller::{self, Caller, OnInterrupt, Report, Silent};
use crate::defaults;
use crate::given::Given;
use crate::guest_limits::GuestLimits;
use crate::input;

/// A comparison in the model.
pub type Plan = super::plan::Plan<Trimmer, LinuxVersion>;

impl Plan {
    pub fn of(request: &CompareRequest) -> Result<Self, Failure> {
        let workload = Workload::of(request)?;
        let found = StandIn::of(request, &workload)?;
        Self::on(request, workload, found)
    }

    /// Makes a plan for a host whose stand-in is known.
    pub fn on(request: &CompareRequest, workload: Workload, found: Option<StandIn>) -> Result<Self, Failure> {
        let target = request.checking()?;
        let given_linux = match (&found, &request.linux, &target) {
            (Some(found), None, None) => found.linux.clone(),
            (_, linux, _) => linux.clone(),
        };
        // A model that is checked on a kernel models that kernel.
        let (option, version) = match (&given_linux, &target) {
            (None, Some(target)) => ("check", target.kernel.version()),
            (linux, _) => ("linux", linux.as_deref().unwrap_or(defaults::LINUX)),
        };
        let linux: LinuxVersion =
            version.parse().map_err(|e| Mistake::on(option).because(format!("{e}")).fail())?;
        let has_prelude = match &workload.kind {
            Kind::Command(_) => return Err(workload.needs_linux()),
            Kind::Trace(file) => file.open()?.header().has_prelude,
            Kind::Postmark(..) | Kind::Timed(_) | Kind::Program(..) => false,
        };
        if has_prelude && request.utilization.is_some() {
            let why = ": the trace starts with the requests that filled its drive";
            let why = words!["cannot be used with ", set("workload", &workload.argument), why];
            return Err(Mistake::on("utilization").that_is(why).fail());
        }
        if request.fill {
            return Err(no_fill());
        }
        let of_host = found.as_ref().map(StandIn::utilization);
        let utilization = request.utilization()?.or(of_host).unwrap_or_default();
        let on = On {
            linux,
            version: given_linux.as_deref(),
            utilization: (!has_prelude).then_some(utilization),
            usual: &|found, is_over_days| match found {
                Some(found) => found.policies(is_over_days, None).into_iter().map(Given::of).collect(),
                None if is_over_days && request.days.is_some_and(|days| days < defaults::DAYS) => {
                    defaults::POLICIES_OF_A_DAY.map(Given::from).into()
                }
                None if is_over_days => defaults::POLICIES_OVER_DAYS.map(Given::from).into(),
                None => defaults::POLICIES.map(Given::from).into(),
            },
            policy: &|asked, is_over_days| match input::trimmer(asked)? {
                (name, policy) if policy.is_hosted() && !is_over_days => Err(needs_days(&name)),
                named => Ok(named),
            },
        };
        let mut plan = Self::resolved(request, (workload, found), on)?;
        if let Some(file) = plan.workload.kind.trace()
            && plan.policies.iter().any(|policy| PolicyId::from(*policy) != PolicyId::OFF)
        {
            file.expect_to_trim()?;
        }
        if let Some(limited) = plan.policies.iter().find(|policy| policy.spec().limit().is_some()) {
            plan.workload.expect_deletions(limited)?;
        }
        for (_, device) in &plan.devices {
            for policy in &plan.policies {
                check_trim(device, (policy, policy.needs_trim()), ", or off and the bound ideal")?;
            }
            plan.workload.check(&Room::of(device, FormatOptions::TODAY, utilization)?, device)?;
        }
        plan.settings.linux =
            Some(Linux { version: version.to_owned(), stands_for: linux.discard().kernels().into() });
        Ok(plan)
    }
}

/// Runs every cell.
///
/// # Errors
///
/// If the request has limits of guests, which the model does not use, or there is no result.
pub fn run(request: &CompareRequest, plan: Plan, caller: &dyn Caller) -> Result<Comparison, Failure> {
    refuse_limits(request)?;
    plan.workload.tell_notes(caller);
    let stop = caller.stop(OnInterrupt::StopAndShow)?;
    compared(request, &plan, &[], (caller, &stop))
}

/// Rejects limits of guests, of which the model has none.
pub(crate) fn refuse_limits(request: &CompareRequest) -> Result<(), Failure> {
    if request.limits.are_given() {
        return Err(GuestLimits::only_for_guests(words![set("target", "kernel:..."), " or ", key("check")]));
    }
    Ok(())
}

/// Runs every cell but those that are known.
pub fn compared(
    request: &CompareRequest,
    plan: &Plan,
    known: &[Cell],
    (caller, stop): (&dyn Caller, &Arc<AtomicBool>),
) -> Result<Comparison, Failure> {
    let place = |cell: &Cell| {
        let policy = plan.policies.iter().position(|policy| cell.policy == (*policy).into())?;
        Some((policy * request.reps as usize + cell.rep as usize, cell.clone()))
    };
    let known: Vec<(usize, Cell)> = known.iter().filter_map(place).collect();
    let grid = Grid { devices: &plan.devices, policies: &plan.policies, reps: request.reps };
    if plan.here.is_some() && known.is_empty() {
        let runs = plan.policies.len() * request.reps as usize;
        let jobs = grid.jobs(request.jobs, pool::memory_of_run).clamp(1, runs.max(1));
        caller
            .note(&format!("{}, {jobs} at a time; Ctrl-C keeps finished runs", counted(runs as u64, "run")));
    }
    let ran = grid.run(caller, request.jobs, pool::memory_of_run, known, |progress, index, pair, rep| {
        if stop.load(Ordering::SeqCst) {
            return Err(Failure::Interrupted);
        }
        progress.begin_ageing(index);
        plan.run_cell(pair, rep, caller::report(progress, index), stop)
    });
    if matches!(&ran, (finished, Some(Failure::Interrupted)) if finished.is_empty()) {
        caller.note("no run had finished, so nothing is kept");
    }
    let mut comparison = finish(request, plan.settings.clone(), plan.here.clone(), ran)?;
    ranges::try_ends(request, plan, &mut comparison, (caller, stop));
    Ok(comparison)
}

/// Runs every cell for a program that embeds this one, also under policies of its own. These run on this thread, one
/// after the other. If there are any, and no `--policy`, no others run. `stop` ends the comparison between two runs.
/// `tick` is called all the time during runs under own policies.
pub fn run_own(
    request: &CompareRequest,
    own: &[Policy],
    stop: &Arc<AtomicBool>,
    tick: &Report,
) -> Result<Comparison, Failure> {
    request.check()?;
    if let Some(fs) = request.fs.filter(|fs| *fs != FileSystem::Ext4) {
        let of = Mistake::of("fs", fs.name()).because("a program that embeds trimwise runs the model");
        return Err(of.expected("ext4, or the command `trimwise compare`").fail());
    }
    let mut plan = Plan::of(request)?;
    if let Some(twice) =
        own.iter().enumerate().find(|(i, policy)| own[..*i].iter().any(|p| p.id() == policy.id()))
    {
        let name = twice.1;
        return Err(Mistake::that(format!("two policies are named {name}"))
            .expected("different names")
            .fail());
    }
    if request.policies.is_empty() && !own.is_empty() {
        plan.policies.clear();
    }
    let is_going = || if stop.load(Ordering::SeqCst) { Err(Failure::Interrupted) } else { Ok(()) };
    let grid = Grid { devices: &plan.devices, policies: &plan.policies, reps: request.reps };
    let (mut cells, mut ended_by) =
        grid.run(&Silent::default(), request.jobs, pool::memory_of_run, Vec::new(), |_, _, pair, rep| {
            is_going()?;
            plan.run_cell(pair, rep, Arc::new(|_, _| ()), stop)
        });
    let runs = plan.devices.iter().flat_map(|(_, device)| own.iter().map(move |policy| (device, policy)));
    for (device, policy) in runs {
        for rep in 0..request.reps {
            if ended_by.is_none() {
                let pair = (device, policy.clone());
                let trimmer = Trimmer::Kernel(PolicySpec::OFF);
                let ran = is_going()
                    .and_then(|()| plan.run_policy(pair, trimmer, (plan.seed, rep), Arc::clone(tick), stop));
                match ran {
                    Ok(cell) => cells.push(cell),
                    Err(failure) => ended_by = Some(failure),
                }
            }
        }
    }
    // A program has no use for half a comparison.
    ended_by.map_or(Ok(()), Err)?;
    finish(request, plan.settings.clone(), None, (cells, None))
}

impl Plan {
    /// Runs one cell, which is deterministic on any thread. It ends soon after `stop` is raised.
    pub fn run_cell(
        &self,
        pair: (&Profile, Trimmer),
        rep: u32,
        report: Report,
        stop: &Arc<AtomicBool>,
    ) -> Result<Cell, Failure> {
        self.run_seeded(pair, self.seed, rep, report, stop)
    }

    pub fn run_seeded(
        &self,
        (device, trimmer): (&Profile, Trimmer),
        seed: u64,
        rep: u32,
        report: Report,
        stop: &Arc<AtomicBool>,
    ) -> Result<Cell, Failure> {
        let policy = if self.days.is_some() { trimmer.policy() } else { trimmer.in_force() };
        self.run_policy((device, policy), trimmer, (seed, rep), report, stop)
    }

    /// Runs one cell under any policy. Over days, `trimmer` trims from outside.
    pub fn run_policy(
        &self,
        (device, policy): (&Profile, Policy),
        trimmer: Trimmer,
        (seed, rep): (u64, u32),
        report: Report,
        stop: &Arc<AtomicBool>,
    ) -> Result<Cell, Failure> {
        if let Some(file) = self.workload.kind.trace() {
            let spec = ReplaySpec {
                device: device.name.clone(),
                ssd: device.config.clone(),
                faults: device.faults,
                policy,
                linux: self.linux,
                utilization: self.utilization.unwrap_or_default(),
                before: Arc::default(),
                rep,
                seed,
                options: file.options,
            };
            return file.run_cell(spec, &report, stop);
        }
        let spec = CellSpec {
            device: device.name.clone(),
            ssd: device.config.clone(),
            faults: device.faults,
            thin: device.thin,
            policy,
            workload: self.workload.to_model()?,
            days: self.days.clone().map(|days| DaysSpec { days, trimmer, has_backlog: false }),
            host: HostConfig::of(self.linux, self.memory),
            format: FormatOptions::TODAY,
            utilization: self.utilization,
            long_in_use: self.long_in_use,
            rep,
            seed,
        };
        let tell = Box::new(move |progress| report_phase(&report, progress));
        let ran = run_cell_until(&spec, Arc::clone(stop), tell);
        ran.map_err(|e| self.failure(device, &spec, &e))
    }

    /// Explains a failed run to the user.
    fn failure(&self, device: &Profile, spec: &CellSpec, error: &CellError) -> Failure {
        let no_space = match error {
            CellError::Device(_) | CellError::Format(_) => {
                return Mistake::of("devices", &spec.device).because(error.to_string()).fail();
            }
            CellError::Workload { source, .. } => is_full(source),
            CellError::File { source, .. } => matches!(**source, FileError::NoSpace { .. }),
            _ => false,
        };
        if error.is_stopped() {
            return Failure::Interrupted;
        }
        if !no_space {
            return Failure::run(error);
        }
        let why = match Room::of(device, spec.format, self.utilization.unwrap_or_default()) {
            Ok(room) => room.when_full(self.workload.needed()),
            Err(failure) => return failure,
        };
        let of = words![set("workload", &self.workload.argument), " on ", spec.device.clone()];
        Failure::Run(words![of, format!(", policy {}: ", spec.policy), why])
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    use trimwise::policy::{Availability, Decision, DiscardGeneration, Governor, PolicyEvent, Shape, View};

    use super::*;

    /// Issues all waiting work, one command at a time, or unwinds at the first commit that freed something.
    struct Own {
        unwinds: bool,
    }

    impl Governor for Own {
        fn availability(&self, _: DiscardGeneration) -> Availability {
            Availability::Reuse
        }

        fn on_event(&mut self, _: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>) {
            if view.pending_units > 0 && view.in_flight == 0 {
                if self.unwinds {
                    resume_unwind(Box::new("stop"));
                }
                decisions.push(Decision::Issue(Shape::NEXT));
            }
        }
    }

    #[test]
    fn a_policy_of_the_caller_is_compared_and_may_unwind_out_of_a_run() {
        let dir = tempfile::tempdir().unwrap();
        let drive = dir.path().join("small.toml");
        let text =
            include_str!("../../../../profiles/sata-small.toml").replace("8_589_934_592", "536_870_912");
        std::fs::write(&drive, text).unwrap();
        let request = CompareRequest {
            workload: "append:64KiB:8MiB".to_owned(),
            devices: vec![drive.display().to_string()],
            policies: vec!["off".into()],
            utilization: Some("50".into()),
            reps: 2,
            ..CompareRequest::default()
        };
        let named = |name: &str, unwinds: bool| Policy::new(name, move || Box::new(Own { unwinds }));
        let compared = |own: &[Policy]| run_own(&request, own, &Arc::default(), &(Arc::new(|_, _| ()) as _));
        let policies = |comparison: &Comparison| {
            comparison.cells.iter().map(|cell| cell.policy.to_string()).collect::<Vec<_>>()
        };
        let json = |comparison: &Comparison| serde_json::to_string(comparison).unwrap();
        let one = compared(&[named("own", false)]).unwrap();
        assert_eq!(policies(&one), ["off", "off", "own", "own"]);
        assert!(one.cells[2].device_stats.as_ref().unwrap().trim_commands > 0);

        let unwound = catch_unwind(AssertUnwindSafe(|| compared(&[named("own", true)]).map(|_| ())));
        assert_eq!(unwound.unwrap_err().downcast_ref::<&str>(), Some(&"stop"));
        let again = compared(&[named("own", false)]).unwrap();
        assert_eq!(json(&again), json(&one), "nothing is left of the run that was cut off");
        let both = compared(&[named("off", false)]).unwrap();
        assert_eq!(policies(&both)[2], "own:off", "it is not the built-in one of that name");
        let refused = compared(&[named("a", false), named("a", false)]).map(|_| ());
        assert!(
            matches!(&refused, Err(Failure::Usage(why)) if why.to_string().contains("two policies are named a")),
            "{refused:?}"
        );
    }

    #[test]
    fn a_policy_of_ones_own_runs_in_the_same_repetitions_as_those_that_come_with_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let drive =
            include_str!("../../../../profiles/sata-small.toml").replace("8_589_934_592", "536_870_912");
        let mail = "set number 50\nset transactions 200\nset size 1000 20000\nrun\n";
        let request = CompareRequest {
            workload: file("small.pmrc", mail),
            devices: vec![file("small.toml", &drive)],
            policies: vec!["commit".into()],
            utilization: Some("10".into()),
            reps: 2,
            ..CompareRequest::default()
        };
        let own = Policy::new("own", || PolicySpec::COMMIT.governor());
        for days in [None, Some(1)] {
            let request = CompareRequest { days, ..request.clone() };
            let own = std::slice::from_ref(&own);
            let comparison = run_own(&request, own, &Arc::default(), &(Arc::new(|_, _| ()) as Report));
            let mut cells = comparison.unwrap().cells;
            let mut own = cells.split_off(2);
            own.iter_mut().for_each(|cell| cell.policy = cells[0].policy.clone());
            assert_eq!(format!("{own:?}"), format!("{cells:?}"));
        }
    }
}
