//! The grid: the cells of a sweep.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use toml::Spanned;
use trimwise::compare::result::Target;
use trimwise::failure::{Asked, Failure, Key, Mistake, Mistakes, argument, key, shortened};
use trimwise::policy::{Policy, PolicyId, Trimmer};
use trimwise::profile::Profile;
use trimwise::units::Utilization;
use trimwise::words;
use trimwise::workload::days::DayShape;
use trimwise_linux::kept::hash;
use trimwise_linux::pool;

use super::SweepRequest;
use super::on_kernel::{KernelCell, KernelPlans, Kernels};
use crate::check::REPS;
use crate::compare::workload::Workload;
use crate::compare::{CompareRequest, on_model};
use crate::given::Given;
use crate::{defaults, input, jobs};

/// More cells than this are a mistake: a year on a hundred cores.
const CELLS_MAX: u64 = 10_000_000;
/// Characters of a line that an error quotes.
const LINE_SHOWN: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    devices: Option<List<String>>,
    policies: Option<List<Given<PolicyId>>>,
    workloads: Option<List<String>>,
    utilizations_percent: Option<List<Whole>>,
    seeds: Option<List<Seeds>>,
    reps: Option<Spanned<Whole>>,
    linux: Option<Spanned<String>>,
    memory_mib: Option<Spanned<Whole>>,
    days: Option<Spanned<Whole>>,
    day: Option<Spanned<String>>,
}

/// A list with the positions of itself and its entries.
type List<T> = Spanned<Entries<T>>;

struct Entries<T>(Vec<Spanned<T>>);

#[derive(Clone, Copy)]
struct Whole(i64);

/// Deserializes a value under the name that messages use for its type, instead of Rust's.
struct Expecting<T>(&'static str, PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Expecting<Entries<T>> {
    type Value = Entries<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let next = std::iter::from_fn(|| list.next_element().transpose());
        next.collect::<Result<_, _>>().map(Entries)
    }
}

impl<'de> Visitor<'de> for Expecting<Whole> {
    type Value = Whole;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Whole(number))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(Expecting::<Self>("a list", PhantomData))
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_i64(Expecting::<Self>("a whole number", PhantomData))
    }
}

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a whole number from 0, or a range such as \"1-100\"")]
enum Seeds {
    One(u64),
    Range(String),
}

/// A grid whose every value has been checked.
pub struct Grid {
    /// The grid's file, for messages.
    pub file: String,
    /// Settings that decide the results, as kept in `_sweep.json`.
    pub description: Description,
    plans: Plans,
    /// The caller's own policy, which then is the only one.
    own: Option<Policy>,
}

pub struct Own {
    pub policy: Policy,
    /// Hash of the policy's file.
    pub sha256: String,
}

/// A plan for each workload and utilization, utilizations innermost.
enum Plans {
    Model(Vec<on_model::Plan>),
    Kernel(Box<dyn KernelPlans>),
}

/// Settings that decide the results of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    pub trimwise: String,
    /// The code of the model, and of the programs in guests. Builds of one version may differ in it.
    #[serde(default)]
    pub made_by: String,
    pub cells: u64,
    pub devices: Vec<Named>,
    pub policies: Vec<PolicyId>,
    pub workloads: Vec<Named>,
    #[serde(rename = "utilizations_percent")]
    pub utilizations: Vec<Utilization>,
    pub seeds: Vec<u64>,
    pub reps: u32,
    pub linux: String,
    pub memory_mib: u64,
    pub days: Option<u32>,
    pub day: Option<String>,
    /// The file of the caller's own policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<Named>,
    /// The file system, unless it is the model's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<String>,
    /// The kernel that runs the file system, and the programs that its guests run. Empty in the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<Named>,
}

/// A device, a workload or a caller's file, with a hash of its content: a file may have changed under its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Named {
    pub name: String,
    pub sha256: String,
}

pub struct Place<'a> {
    pub device: (&'a str, &'a Profile),
    pub policy: &'a PolicyId,
    pub workload: &'a str,
    pub utilization: Utilization,
    pub seed: u64,
    pub rep: u32,
    pub on: On<'a>,
}

/// Where a cell runs, and the name of the policy there.
pub enum On<'a> {
    Model(&'a on_model::Plan, Trimmer),
    Own(&'a on_model::Plan, &'a Policy),
    Kernel(&'a dyn KernelPlans, KernelCell),
}

impl On<'_> {
    /// The target in results.
    pub fn target(&self) -> Target {
        match self {
            Self::Model(..) | Self::Own(..) => Target::Model,
            Self::Kernel(plans, _) => Target::Kernel(plans.target()),
        }
    }
}

/// The grid's text, to which messages point.
struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn refuse(&self, at: &Range<usize>, mistake: Mistake) -> Failure {
        let line = 1 + self.text.bytes().take(at.start).filter(|&byte| byte == b'\n').count();
        mistake.at(self.file, Some(line)).fail()
    }

    /// Adds the position of a wrong list entry.
    fn refuse_entry(&self, key: &'static str, at: &Range<usize>, failure: Failure) -> Failure {
        let Failure::Usage(Mistakes(mistakes)) = failure else { return failure };
        let placed = mistakes.into_iter().map(|mistake| {
            let of_key = match (mistake.at.is_some(), mistake.key()) {
                (false, None) => Mistake { asked: Mistake::on(key).asked, ..mistake },
                (false, Some(of)) if *of == Key::from(key) => mistake,
                _ => Mistake::on(key).with(Mistakes(vec![mistake])),
            };
            Err(self.refuse(at, of_key))
        });
        Mistakes::of(placed).err().unwrap_or(Failure::Interrupted)
    }

    fn number(
        &self,
        key: &'static str,
        given: &Spanned<Whole>,
        accepted: Range<i64>,
    ) -> Result<i64, Failure> {
        let Whole(number) = *given.get_ref();
        if accepted.contains(&number) {
            return Ok(number);
        }
        let expected = format!("a whole number from {} to {}", accepted.start, accepted.end - 1);
        Err(self
            .refuse(&given.span(), Mistake::of(key, number).that_is("is not accepted").expected(expected)))
    }

    fn expect_some<T>(&self, key: &'static str, list: &List<T>, example: &str) -> Result<(), Failure> {
        if !list.get_ref().0.is_empty() {
            return Ok(());
        }
        let expected = format!("at least one entry, such as {example}");
        Err(self.refuse(&list.span(), Mistake::on(key).because("is empty").expected(expected)))
    }

    /// Resolves the entries of a list. Rejects one that is empty or has an entry twice. Returns the name of each entry,
    /// with the further result of `resolve`.
    fn distinct<T: ToString, R>(
        &self,
        (key, example): (&'static str, &str),
        list: &List<T>,
        resolve: impl Fn(&Spanned<T>) -> Result<(String, R), Failure>,
    ) -> Result<Vec<(String, R)>, Failure> {
        self.expect_some(key, list, example)?;
        let mut resolved: Vec<(&T, String, R)> = Vec::new();
        let mut wrong = Mistakes::default();
        for given in &list.get_ref().0 {
            let spelled = given.get_ref();
            let one = if spelled.to_string().is_empty() {
                let expected = format!("a name, such as {example}");
                Err(self
                    .refuse(&given.span(), Mistake::on(key).because("an entry is empty").expected(expected)))
            } else {
                resolve(given).and_then(|(name, rest)| {
                    let Some((earlier, ..)) = resolved.iter().find(|(_, other, _)| *other == name) else {
                        return Ok((name, rest));
                    };
                    let (earlier, spelled) = (earlier.to_string(), spelled.to_string());
                    let twice = input::given_twice(Mistake::on(key), &name, &earlier, &spelled);
                    Err(self.refuse_entry(key, &given.span(), twice))
                })
            };
            resolved.extend(wrong.keep(one)?.map(|(name, rest)| (spelled, name, rest)));
        }
        wrong.end()?;
        Ok(resolved.into_iter().map(|(_, name, rest)| (name, rest)).collect())
    }
}

impl Grid {
    /// Reads a grid and checks everything that it names.
    pub fn read(asked: &SweepRequest, kernels: Option<&dyn Kernels>) -> Result<Self, Failure> {
        let file = asked.grid.display().to_string();
        let text = input::read(&file, argument("grid"), "a grid (TOML)", &[])?;
        Self::parse(&text, &file, asked, kernels)
    }

    /// Parses a grid's text. `file` is for messages. Without `kernels`, every cell runs in the model.
    ///
    /// # Errors
    ///
    /// Lists every mistake.
    pub fn parse(
        text: &str,
        file: &str,
        asked: &SweepRequest,
        kernels: Option<&dyn Kernels>,
    ) -> Result<Self, Failure> {
        let source = Source { file, text };
        let document: Document = toml::from_str(text).map_err(|error| {
            let Some(at) = error.span() else {
                return Mistake::that(error.message()).at(file, None).fail();
            };
            // The quoted line shows which key and value it is.
            let rest = &text[at.start.min(text.len())..];
            let begin = text[..text.len() - rest.len()].rfind('\n').map_or(0, |newline| newline + 1);
            let line = text[begin..].lines().next().unwrap_or_default().trim();
            let shown =
                if line.is_empty() { String::new() } else { format!("{}: ", shortened(line, LINE_SHOWN)) };
            source.refuse(&at, Mistake::that(format!("{shown}{}", error.message())))
        })?;

        let missing = [
            ("devices", "\"sata-small\"", document.devices.is_none()),
            ("policies", "\"off\", \"commit\"", document.policies.is_none()),
            ("workload", "\"default\"", document.workloads.is_none()),
        ];
        let missing = missing.into_iter().filter(|(.., is_missing)| *is_missing).map(|(key, example, _)| {
            let expected = format!("a list, such as [{example}]");
            Mistake::on(key).because("is missing").expected(expected).at(file, None)
        });
        let lists = (document.devices, document.policies, document.workloads);
        let (Some(devices), Some(policies), Some(workloads)) = lists else {
            return Err(Failure::Usage(Mistakes(missing.collect())));
        };
        let mut wrong = Mistakes::default();
        wrong.keep(source.distinct(("devices", "\"sata-small\""), &devices, |given| {
            let resolved = input::device(given.get_ref());
            resolved.map_err(|failure| source.refuse_entry("devices", &given.span(), failure))
        }))?;
        let mut jobs = Vec::new();
        for given in &workloads.get_ref().0 {
            let files = jobs::in_folder(given.get_ref())
                .map_err(|failure| source.refuse_entry("workload", &given.span(), failure));
            jobs.extend(
                wrong.keep(files)?.into_iter().flatten().map(|file| Spanned::new(given.span(), file)),
            );
        }
        // Rejected folders leave no jobs. Their own error says more than that there are none.
        let are_refused = jobs.is_empty() && !workloads.get_ref().0.is_empty();
        let jobs = Spanned::new(workloads.span(), Entries(jobs));
        let workloads = match are_refused {
            true => Ok(Vec::new()),
            false => source.distinct(("workload", "\"default\""), &jobs, |given| {
                let workload = Workload::named(given.get_ref())
                    .map_err(|failure| source.refuse_entry("workload", &given.span(), failure))?;
                Ok((given.get_ref().clone(), (given.span(), workload)))
            }),
        };
        let workloads = wrong.keep(workloads)?.unwrap_or_default();
        let utilizations = document.utilizations_percent.as_ref().map(|list| {
            let percents = source.distinct(("utilization", "80"), list, |given| {
                let percent = source.number("utilization", given, 0..101)?;
                Ok((percent.to_string(), Utilization::of(percent as u8)))
            })?;
            Ok(percents.into_iter().map(|(_, percent)| percent).collect())
        });
        let utilizations = utilizations.unwrap_or_else(|| Ok(vec![Utilization::default()]));
        let utilizations = wrong.keep(utilizations)?.unwrap_or_default();
        let seeds = wrong.keep(seeds(&source, document.seeds.as_ref()))?.unwrap_or_default();
        let mut number = |key, given: &Option<Spanned<Whole>>, accepted: Range<i64>| {
            let number = given.as_ref().map(|value| source.number(key, value, accepted)).transpose();
            wrong.keep(number).map(Option::flatten)
        };
        let reps = number("reps", &document.reps, 1..i64::from(*REPS.end()) + 1)?.unwrap_or(1) as u32;
        let memory_range = defaults::MEMORY_MIB_MIN as i64..defaults::MEMORY_MIB_MAX as i64 + 1;
        let memory_mib = number("memory", &document.memory_mib, memory_range)?
            .map_or(defaults::MEMORY_MIB, i64::cast_unsigned);
        let days = number("days", &document.days, 1..i64::from(trimwise::workload::days::DAYS_MAX) + 1)?;
        let day = match (&document.day, &document.days) {
            (Some(given), None) => {
                Err(source.refuse(&given.span(), Mistake::on("day").because(words!["needs ", key("days")])))
            }
            (Some(given), _) => {
                let shape = given.get_ref().parse::<DayShape>();
                shape
                    .map(Some)
                    .map_err(|e| source.refuse(&given.span(), Mistake::on("day").because(e.to_string())))
            }
            (None, _) => Ok(None),
        };
        let day = wrong.keep(day)?.flatten();
        let linux = document.linux.as_ref().map(|given| given.get_ref().clone());
        let named = |on: Option<&dyn KernelPlans>| {
            source.distinct(("policies", "\"commit\""), &policies, |given| {
                let resolved = match on {
                    None => input::trimmer(given.get_ref()).map(|(name, trimmer)| (name, trimmer.into())),
                    Some(plans) => plans.policy(given.get_ref()),
                };
                resolved.map_err(|failure| source.refuse_entry("policies", &given.span(), failure))
            })
        };
        if asked.fs.is_none() {
            wrong.keep(named(None))?;
        }
        wrong.end()?;

        let request = |workload: &str, utilization| CompareRequest {
            workload: workload.to_owned(),
            devices: devices.get_ref().0.iter().map(|given| given.get_ref().clone()).collect(),
            policies: policies.get_ref().0.iter().map(|given| given.get_ref().clone()).collect(),
            utilization: Some(Given::of(utilization)),
            linux: linux.clone(),
            memory: Some(memory_mib),
            reps,
            days: days.map(|days| days as u32),
            day: day.clone(),
            fs: asked.fs,
            limits: asked.limits,
            jobs: asked.jobs,
            ..CompareRequest::default()
        };
        // A plan names the value that it rejects; here the position in the grid is added.
        let of = |spanned: Option<Range<usize>>| spanned.unwrap_or_default();
        let places = [
            ("policies", policies.span()),
            ("devices", devices.span()),
            ("linux", of(document.linux.as_ref().map(Spanned::span))),
            ("memory", of(document.memory_mib.as_ref().map(Spanned::span))),
        ];
        let located = |failure: Failure, elsewhere: &dyn Fn(Mistake) -> Failure| {
            let Failure::Usage(Mistakes(mistakes)) = failure else { return failure };
            let placed = mistakes.into_iter().map(|mistake| {
                let place = places.iter().find(|(key, _)| mistake.key() == Some(&Key::from(*key)));
                Err(match place {
                    Some((_, at)) => source.refuse(at, mistake),
                    None => elsewhere(mistake),
                })
            });
            Mistakes::of(placed).err().unwrap_or(Failure::Interrupted)
        };
        let Some((first, (_, workload))) = workloads.first() else {
            return Err(Mistake::that("has no cells").at(file, None).fail());
        };
        let first = request(first, Utilization::default());
        let on_kernel = match kernels.map_or(Ok(None), |kernels| kernels.chosen(&first, workload)) {
            Ok(on_kernel) => on_kernel,
            Err(failure) => return Err(located(failure, &|mistake| mistake.at(file, None).fail())),
        };
        let policies = named(on_kernel.as_deref())?;
        let each_plan = || {
            workloads.iter().flat_map(|(name, (at, workload))| {
                utilizations.iter().map(move |&percent| (name, at, workload, percent))
            })
        };
        let refused = |(name, at, percent): (&String, &Range<usize>, Utilization), failure| {
            located(failure, &|mistake| {
                let of = Mistake::of("workload", format!("{name} at {percent} percent"));
                let named = Asked { key: "workload".into(), value: Some(name.clone()) };
                source.refuse(
                    at,
                    match mistake.at.is_none() && mistake.asked == [named] {
                        true => Mistake { asked: of.asked, ..mistake },
                        false => of.with(Mistakes(vec![mistake])),
                    },
                )
            })
        };
        let plans = match on_kernel {
            None => {
                let mut plans = Vec::new();
                for (name, at, _, percent) in each_plan() {
                    let plan = on_model::Plan::of(&request(name, percent));
                    plans.extend(wrong.keep(plan.map_err(|failure| refused((name, at, percent), failure)))?);
                }
                wrong.end()?;
                Plans::Model(plans)
            }
            Some(mut on) => {
                for (name, at, workload, percent) in each_plan() {
                    if workload.kind.may_change() {
                        let why = "is a program of this computer, which may be another one next time";
                        let expected = "a workload of trimwise, or `trimwise compare`";
                        return Err(
                            source.refuse(at, Mistake::of("workload", name).because(why).expected(expected))
                        );
                    }
                    let added = on.add(&request(name, percent));
                    added.map_err(|failure| refused((name, at, percent), failure))?;
                }
                for (number, (name, at, _, percent)) in each_plan().enumerate() {
                    on.check(number).map_err(|failure| refused((name, at, percent), failure))?;
                }
                Plans::Kernel(on)
            }
        };
        let description = Description {
            trimwise: trimwise::VERSION.to_owned(),
            made_by: plans.made_by(),
            cells: 0,
            devices: plans
                .devices()
                .iter()
                .map(|(name, profile)| {
                    let contents = format!("{:?} {:?}", profile.config, profile.faults);
                    Named { name: name.clone(), sha256: hash(contents.as_bytes()) }
                })
                .collect(),
            policies: policies.into_iter().map(|(_, policy)| policy).collect(),
            file_system: asked
                .fs
                .filter(|_| matches!(plans, Plans::Kernel(_)))
                .map(|fs| fs.name().to_owned()),
            kernel: plans.kernel()?,
            workloads: workloads
                .into_iter()
                .map(|(name, (at, workload))| {
                    let mut contents = format!("{:?}", workload.kind).into_bytes();
                    if let Some(trace) = workload.kind.trace() {
                        let read = trace.bytes();
                        contents.extend(read.map_err(|e| {
                            source.refuse(&at, Mistake::of("workload", &name).because(e.to_string()))
                        })?);
                    }
                    Ok(Named { name, sha256: hash(&contents) })
                })
                .collect::<Result<_, Failure>>()?,
            utilizations,
            seeds,
            reps,
            linux: linux.unwrap_or_else(|| defaults::LINUX.to_owned()),
            memory_mib,
            days: days.map(|days| days as u32),
            day: document.day.map(Spanned::into_inner),
            own: Vec::new(),
        };
        let sizes = description.sizes();
        let cells = sizes.iter().try_fold(1u64, |cells, (_, size)| cells.checked_mul(*size));
        let cells = cells.filter(|&cells| cells <= CELLS_MAX).ok_or_else(|| {
            let of = Mistake::that(format!("has {}", description.product())).at(file, None);
            of.expected(format!("at most {CELLS_MAX} cells")).fail()
        })?;
        Ok(Self {
            file: file.to_owned(),
            description: Description { cells, ..description },
            plans,
            own: None,
        })
    }

    pub fn of_own(self, Own { policy, sha256 }: Own) -> Self {
        let description = Description {
            cells: self.description.cells / self.cells_per_group(),
            policies: vec![policy.id().clone()],
            own: vec![Named { name: policy.id().to_string(), sha256 }],
            ..self.description
        };
        Self { description, own: Some(policy), ..self }
    }

    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Returns each workload once.
    pub fn workloads(&self) -> impl Iterator<Item = &Workload> {
        let per_workload = self.description.utilizations.len();
        (0..self.description.workloads.len())
            .map(move |workload| self.plans.workload(workload * per_workload))
    }

    /// Cells that differ only in the policy are a group. Their numbers are consecutive.
    pub fn cells_per_group(&self) -> u64 {
        self.description.policies.len() as u64
    }

    /// Cells that differ only in policy, repetition and seed are a case. Their numbers are consecutive.
    pub fn cells_per_case(&self) -> u64 {
        self.cells_per_group() * u64::from(self.description.reps) * self.description.seeds.len() as u64
    }

    /// The cell with a number. Policies are innermost, then repetitions, seeds, utilizations, workloads, devices.
    pub fn place(&self, cell: u64) -> Place<'_> {
        let d = &self.description;
        let mut rest = cell as usize;
        let mut digit = |size: usize| {
            let digit = rest % size;
            rest /= size;
            digit
        };
        let policy = digit(d.policies.len());
        let rep = digit(d.reps as usize);
        let seed = digit(d.seeds.len());
        let utilization = digit(d.utilizations.len());
        let workload = digit(d.workloads.len());
        let plan = workload * d.utilizations.len() + utilization;
        let device = digit(d.devices.len());
        let seed = d.seeds[seed];
        let on = match (&self.plans, &self.own) {
            (Plans::Model(plans), Some(own)) => On::Own(&plans[plan], own),
            (Plans::Model(plans), None) => On::Model(&plans[plan], plans[plan].policies[policy]),
            (Plans::Kernel(on), _) => {
                On::Kernel(&**on, KernelCell { plan, device, policy, seed, rep: rep as u32 })
            }
        };
        let (name, profile) = &self.plans.devices()[device];
        Place {
            device: (name, profile),
            policy: &d.policies[policy],
            workload: &d.workloads[workload].name,
            utilization: d.utilizations[utilization],
            seed,
            rep: rep as u32,
            on,
        }
    }

    /// Default number of parallel cells: as many as fit into memory.
    pub fn default_jobs(&self) -> usize {
        match &self.plans {
            Plans::Model(_) => {
                let devices = self.plans.devices().iter();
                let largest = devices.map(|(_, device)| pool::memory_of_run(device)).max();
                pool::default_jobs(largest.unwrap_or_default())
            }
            Plans::Kernel(on) => on.jobs(),
        }
    }
}

impl Plans {
    fn devices(&self) -> &[(String, Profile)] {
        match self {
            Self::Model(plans) => plans.first().map_or(&[], |plan| &plan.devices),
            Self::Kernel(on) => on.devices(),
        }
    }

    fn workload(&self, plan: usize) -> &Workload {
        match self {
            Self::Model(plans) => &plans[plan].workload,
            Self::Kernel(on) => on.workload(plan),
        }
    }

    /// The kernel, and the programs of this computer that its guests run.
    fn kernel(&self) -> Result<Vec<Named>, Failure> {
        match self {
            Self::Model(_) => Ok(Vec::new()),
            Self::Kernel(on) => on.kernel(),
        }
    }

    /// The parts of the code that decide the results, with their hashes. Devices and workloads have hashes of their
    /// own.
    fn made_by(&self) -> String {
        match self {
            Self::Model(_) => crate::MODEL.to_owned(),
            Self::Kernel(on) => format!("{}, {}", crate::MODEL, on.made_by()),
        }
    }
}

impl Description {
    fn sizes(&self) -> [(&'static str, u64); 6] {
        [
            ("devices", self.devices.len() as u64),
            ("policies", self.policies.len() as u64),
            ("workloads", self.workloads.len() as u64),
            ("utilizations", self.utilizations.len() as u64),
            ("seeds", self.seeds.len() as u64),
            ("repetitions", u64::from(self.reps)),
        ]
    }

    /// The number of cells as a product.
    pub fn product(&self) -> String {
        let factors: Vec<String> =
            self.sizes().iter().map(|(what, size)| format!("{size} {}", singular(what, *size))).collect();
        factors.join(" x ")
    }

    /// The text of `_sweep.json`.
    pub fn text(&self) -> Result<String, Failure> {
        Ok(serde_json::to_string_pretty(self).map_err(Failure::run)? + "\n")
    }
}

fn singular(what: &str, size: u64) -> &str {
    match what {
        "policies" if size == 1 => "policy",
        _ if size == 1 => what.trim_end_matches('s'),
        _ => what,
    }
}

fn seeds(source: &Source, given: Option<&List<Seeds>>) -> Result<Vec<u64>, Failure> {
    let Some(given) = given else { return Ok(vec![defaults::SEED]) };
    source.expect_some("seed", given, "1 or \"1-100\"")?;
    let mut seeds = Vec::new();
    let mut seen = BTreeSet::new();
    for entry in &given.get_ref().0 {
        let of_entry = match entry.get_ref() {
            Seeds::One(seed) => Some(*seed..=*seed),
            Seeds::Range(text) => text
                .split_once('-')
                .and_then(|(first, last)| Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)),
        };
        let accepted = of_entry.filter(|range| {
            !range.is_empty() && range.end() - range.start() < CELLS_MAX && *range.end() <= i64::MAX as u64
        });
        let range = accepted.ok_or_else(|| {
            let found = source.text.get(entry.span()).unwrap_or_default();
            let expected = "a whole number from 0, or a range such as \"1-100\"";
            let of = Mistake::of("seed", found).that_is("is not accepted");
            source.refuse(&entry.span(), of.expected(expected))
        })?;
        if let Some(twice) = range.clone().find(|&seed| !seen.insert(seed)) {
            let of = Mistake::of("seed", twice).that_is("is given twice").expected("each once");
            return Err(source.refuse(&entry.span(), of));
        }
        seeds.extend(range);
    }
    Ok(seeds)
}
