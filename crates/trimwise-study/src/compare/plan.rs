//! A comparison that is checked and ready to run: what the model and real kernels have in common.

use std::fmt::Display;

use trimwise::failure::{Failure, Mistake, key, set};
use trimwise::policy::PolicyId;
use trimwise::profile::Profile;
use trimwise::units::{Bytes, Utilization};
use trimwise::words;
use trimwise::workload::days::Days;
use trimwise_linux::file_system::FileSystem;

use super::here::{Here, StandIn};
use super::target::RunOn;
use super::workload::Workload;
use super::{CompareRequest, Settings, or};
use crate::defaults;
use crate::given::Given;
use crate::input::{self, distinct, named};

/// `P` is a policy, and `L` the Linux that carries it out.
pub struct Plan<P, L> {
    /// The devices, with their names in tables.
    pub devices: Vec<(String, Profile)>,
    pub policies: Vec<P>,
    pub workload: Workload,
    /// The days over which the workload is spread.
    pub days: Option<Days>,
    /// Fullness before the run; `None` for a new file system, and for a trace that fills its own drive.
    pub utilization: Option<Utilization>,
    pub linux: L,
    pub memory: Bytes,
    pub seed: u64,
    /// The findings on this host, and what stands in for it.
    pub here: Option<Here>,
    /// Whether the drive starts in the state of one in long use.
    pub long_in_use: bool,
    /// The request, as results show it.
    pub settings: Settings,
}

/// What the model and a kernel each decide themselves.
pub struct On<'a, P, L> {
    pub linux: L,
    /// The version for `--linux` in the command that repeats the runs.
    pub version: Option<&'a str>,
    pub utilization: Option<Utilization>,
    pub usual: &'a Usual<'a>,
    pub policy: &'a Resolve<'a, P>,
}

/// Returns the default policies; the flag says whether the work is spread over days.
pub type Usual<'a> = dyn Fn(Option<&StandIn>, bool) -> Vec<Given<PolicyId>> + 'a;

/// Resolves a policy, and its name in tables; the flag says whether the work is spread over days.
pub type Resolve<'a, P> = dyn Fn(&Given<PolicyId>, bool) -> Result<(String, P), Failure> + 'a;

impl<P, L> Plan<P, L> {
    /// Resolves the names in a request.
    pub fn resolved(
        request: &CompareRequest,
        (workload, found): (Workload, Option<StandIn>),
        On { linux, version, utilization, usual, policy }: On<P, L>,
    ) -> Result<Self, Failure> {
        let target = request.target()?;
        let kernel = if let RunOn::Kernel(kernel) = target { Some(kernel) } else { None };
        let days = days(request, &workload)?;
        let policy_arguments = match &request.policies[..] {
            [] => usual(found.as_ref(), days.is_some()),
            given => given.to_vec(),
        };
        let policies = distinct(&policy_arguments, "policies", |asked| policy(asked, days.is_some()))?;
        let device_arguments = match &found {
            Some(found) => vec![found.device.clone()],
            None => or(&request.devices, [defaults::DEVICE]),
        };
        let mut devices = named(&device_arguments, "devices", |name| input::device(name))?;
        let unfit = match (kernel, &request.check, workload.kind.trace()) {
            (Some(_), ..) => Some(words!["a real kernel (", set("target", target), ")"]),
            (_, Some(check), _) => Some(words!["a real kernel (", set("check", check), ")"]),
            (.., Some(_)) => Some(words!["a trace (", set("workload", &workload.argument), ")"]),
            _ => None,
        };
        if let (Some((name, _)), Some(unfit)) =
            (devices.iter().find(|(_, device)| device.thin.is_some()), unfit)
        {
            let why = words!["thin storage is modelled below the model's file system, not below ", unfit];
            return Err(Mistake::of("devices", name).because(why).expected("the drive alone").fail());
        }
        let stand_in = |found: &StandIn| found.stand_in(&mut devices[0], days.is_some(), kernel.is_some());
        let here = found.as_ref().map(stand_in).transpose()?;
        let workload = found.as_ref().map_or_else(|| workload.clone(), |found| workload.scaled(&found.scale));
        let memory_mib = request.memory.or(found.as_ref().and_then(|found| found.memory_mib));
        let is_default_memory = memory_mib.is_none() && kernel.is_none() && request.check.is_none();
        let memory_mib = memory_mib.unwrap_or(defaults::MEMORY_MIB);
        let seed = request.seed.unwrap_or(defaults::SEED);
        let settings = Settings::of(request, |command| {
            if found.as_ref().is_none_or(StandIn::is_given) {
                device_arguments.iter().for_each(|d| command.option("--device", d));
            }
            policy_arguments.iter().for_each(|p| command.option("--policy", p));
            utilization.iter().for_each(|percent| command.option("--utilization", percent));
            version.iter().for_each(|version| command.option("--linux", version));
            if !is_default_memory {
                command.option("--memory", memory_mib);
            }
            request.check.iter().for_each(|target| command.option("--check", target));
            if let Some(days) = &days {
                command.option("--days", days.days());
                command.option("--day", days.shape());
            }
            command.option("--reps", request.reps);
            command.option("--seed", seed);
        });
        let memory = Bytes::mib(memory_mib);
        let file_system = kernel.map_or(FileSystem::Ext4, |kernel| kernel.file_system);
        let settings = Settings {
            target: target.into(),
            file_system: Some(file_system.name().into()),
            utilization,
            host_memory_bytes: Some(memory.0),
            days: days.as_ref().map(Days::days),
            day: days.as_ref().map(|days| days.shape().to_string()),
            ..settings
        };
        // A kernel that checks the model ages its file system once.
        let long_in_use = here.is_some() && request.check.is_none();
        Ok(Self {
            devices,
            policies,
            workload,
            days,
            utilization,
            linux,
            memory,
            seed,
            here,
            long_in_use,
            settings,
        })
    }
}

/// The error for the daemon without days.
pub fn needs_days(policy: &str) -> Failure {
    let expected = words![set("days", "N"), " with it, such as ", set("days", 7)];
    Mistake::of("policies", policy).because("the daemon works over hours").expected(expected).fail()
}

/// Returns the days over which the workload is spread, if it is.
pub fn days(request: &CompareRequest, workload: &Workload) -> Result<Option<Days>, Failure> {
    let is_unspoken = request.here.is_some() && request.check.is_none() || request.is_usual();
    let is_week = || is_unspoken && workload.expect_no_own_pace().is_ok();
    let days = match request.days {
        Some(0) => return Ok(None),
        Some(days) => days,
        None if is_week() => defaults::DAYS,
        None => return Ok(None),
    };
    if request.check.is_some() {
        let why = words!["cannot be used with ", key("days"), ": it checks work without pauses"];
        return Err(Mistake::on("check").that_is(why).expected("one of them").fail());
    }
    workload.expect_no_own_pace()?;
    let shape = match &request.day {
        Some(shape) => shape.clone(),
        None => {
            let usual = workload.day();
            usual.parse().map_err(|e: String| Mistake::of("day", usual).because(e).fail())?
        }
    };
    Days::new(days, shape).map(Some).map_err(|e| Mistake::of("days", days).because(e.to_string()).fail())
}

/// Rejects a policy that trims on a drive without TRIM. `or` is what else can run there.
pub fn check_trim(
    device: &Profile,
    (policy, trims): (impl Display, bool),
    or: &'static str,
) -> Result<(), Failure> {
    if device.config.trim.is_supported() || !trims {
        return Ok(());
    }
    let of = Mistake::of("policies", policy).because(format!("{} does not support TRIM", device.name));
    Err(of.expected(words![set("policies", "off"), " there", or]).fail())
}
