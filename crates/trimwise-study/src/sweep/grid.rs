//! The grid: which cells a sweep has.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use toml::Spanned;
use trimwise::compare::result::Target;
use trimwise::failure::Failure;
use trimwise::policy::{Policy, PolicyId, Trimmer};
use trimwise::profile::Profile;
use trimwise_linux::kept::hash;
use trimwise_linux::pool;

use super::SweepRequest;
use super::on_kernel::{KernelCell, KernelPlans, Kernels};
use crate::check::REPS;
use crate::compare::workload::{Kind, Workload};
use crate::compare::{CompareRequest, on_model};
use crate::{defaults, input, jobs};

/// More cells than this are a mistake: a year on a hundred cores.
const CELLS_MAX: u64 = 10_000_000;

/// The file, as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    devices: Option<List<String>>,
    policies: Option<List<String>>,
    workloads: Option<List<String>>,
    utilizations_percent: Option<List<i64>>,
    seeds: Option<List<Seeds>>,
    reps: Option<Spanned<i64>>,
    linux: Option<Spanned<String>>,
    memory_mib: Option<Spanned<i64>>,
    days: Option<Spanned<i64>>,
    day: Option<Spanned<String>>,
}

/// A list, and where it and its entries are.
type List<T> = Spanned<Vec<Spanned<T>>>;

/// An entry of `seeds`.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a whole number from 0, or a range such as \"1-100\"")]
enum Seeds {
    One(u64),
    Range(String),
}

/// A grid whose every value has been checked.
pub struct Grid {
    /// Its file, for messages.
    pub file: String,
    /// What decides the results, as `_sweep.json` keeps it.
    pub description: Description,
    plans: Plans,
    /// Somebody's own policy, which then is the only one.
    own: Option<Policy>,
}

/// Somebody's own policy.
pub struct Own {
    /// The policy.
    pub policy: Policy,
    /// Hash of the file that it is in.
    pub sha256: String,
}

/// Where the cells run: a plan for each workload and utilization, utilizations innermost.
enum Plans {
    Model(Vec<on_model::Plan>),
    Kernel(Box<dyn KernelPlans>),
}

/// What decides the results of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The version of trimwise.
    pub trimwise: String,
    /// The code of the model, and of what runs in guests: builds of one version may differ in it.
    #[serde(default)]
    pub made_by: String,
    /// The number of cells.
    pub cells: u64,
    pub devices: Vec<Named>,
    pub policies: Vec<PolicyId>,
    pub workloads: Vec<Named>,
    pub utilizations_percent: Vec<u8>,
    pub seeds: Vec<u64>,
    pub reps: u32,
    pub linux: String,
    pub memory_mib: u64,
    pub days: Option<u32>,
    pub day: Option<String>,
    /// The file of somebody's own policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<Named>,
    /// The file system, if it is another one than the model's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<String>,
    /// The kernel that runs it, and the programs that its guests run: none in the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<Named>,
}

/// A device, a workload or a file of somebody's, and a hash of all that it stands for: a file may have changed under its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// The hash.
    pub sha256: String,
}

/// The coordinates of a cell.
pub struct Place<'a> {
    pub device: (&'a str, &'a Profile),
    pub policy: &'a PolicyId,
    pub workload: &'a str,
    pub utilization_percent: u8,
    pub seed: u64,
    pub rep: u32,
    pub on: On<'a>,
}

/// Where a cell runs, and the policy as it is called there.
pub enum On<'a> {
    Model(&'a on_model::Plan, Trimmer),
    Own(&'a on_model::Plan, &'a Policy),
    Kernel(&'a dyn KernelPlans, KernelCell),
}

impl On<'_> {
    /// As results name it.
    pub fn target(&self) -> Target {
        match self {
            Self::Model(..) | Self::Own(..) => Target::Model,
            Self::Kernel(plans, _) => Target::Kernel(plans.target()),
        }
    }
}

/// Says with the keys of a grid what speaks of the options of `compare`. What is in backticks is a command.
fn in_grid(why: &str) -> String {
    let parts = why.split('`').enumerate();
    let said = parts.map(|(number, part)| if number % 2 == 0 { with_keys(part) } else { part.to_owned() });
    said.collect::<Vec<_>>().join("`")
}

fn with_keys(why: &str) -> String {
    const KEYS: [&str; 8] = ["days", "day", "device", "policy", "workload", "utilization", "memory", "linux"];
    let words: Vec<&str> = why.split(' ').collect();
    let of_grid = |(number, word): (usize, &&str)| {
        let option = word.trim_end_matches([',', ';', ':', '.', ')']);
        let Some(key) = option.strip_prefix("--").filter(|key| KEYS.contains(key)) else {
            return (*word).to_owned();
        };
        let is_value = |next: &&str| next.starts_with(|c: char| c == 'N' || c.is_ascii_digit());
        let equals = if words.get(number + 1).is_some_and(is_value) { " =" } else { "" };
        format!("{key}{equals}{}", &word[option.len()..])
    };
    words.iter().enumerate().map(of_grid).collect::<Vec<_>>().join(" ")
}

/// What is wrong with a grid: all of it is said at once.
#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    /// Keeps what is wrong for [`Self::end`]; other failures end it at once.
    fn keep<T>(&mut self, checked: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match checked {
            Ok(good) => Ok(Some(good)),
            Err(Failure::Usage(why)) => {
                // Several plans may be refused for the same reason.
                if !self.0.contains(&why) {
                    self.0.push(why);
                }
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }

    fn end(&self) -> Result<(), Failure> {
        if self.0.is_empty() { Ok(()) } else { Err(Failure::usage(self.0.join("\n"))) }
    }
}

/// Where messages point to.
struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn refuse(&self, at: &Range<usize>, why: impl std::fmt::Display) -> Failure {
        let line = 1 + self.text.bytes().take(at.start).filter(|&byte| byte == b'\n').count();
        Failure::usage(format!("{}:{line}: {why}", self.file))
    }

    /// Says where a value is that an argument of `compare` may not have.
    fn refuse_as(&self, key: &str, option: &str, at: &Range<usize>, failure: Failure) -> Failure {
        match failure {
            Failure::Usage(why) => {
                let why = why.strip_prefix(option).unwrap_or(&why).trim_start_matches([':', ' ']);
                self.refuse(at, format!("{key}: {why}"))
            }
            other => other,
        }
    }

    fn number(&self, key: &str, given: &Spanned<i64>, accepted: Range<i64>) -> Result<i64, Failure> {
        let number = *given.get_ref();
        if accepted.contains(&number) {
            return Ok(number);
        }
        let (least, most) = (accepted.start, accepted.end - 1);
        Err(self.refuse(
            &given.span(),
            format!("{key}: {number} is not accepted; expected a whole number from {least} to {most}"),
        ))
    }

    /// Refuses an empty list.
    fn expect_some<T>(&self, key: &str, list: &List<T>, example: &str) -> Result<(), Failure> {
        if !list.get_ref().is_empty() {
            return Ok(());
        }
        let why = format!("{key}: is empty; expected at least one entry, such as {example}");
        Err(self.refuse(&list.span(), why))
    }

    /// Resolves the entries of a list, and refuses one that is empty or has an entry twice. Returns what the entries
    /// are called, each with what else `resolve` returns.
    fn distinct<T: ToString, R>(
        &self,
        (key, example): (&str, &str),
        list: &List<T>,
        resolve: impl Fn(&Spanned<T>) -> Result<(String, R), Failure>,
    ) -> Result<Vec<(String, R)>, Failure> {
        self.expect_some(key, list, example)?;
        let mut resolved: Vec<(&T, String, R)> = Vec::new();
        let mut wrong = Wrong::default();
        for given in list.get_ref() {
            let spelled = given.get_ref();
            let one = if spelled.to_string().is_empty() {
                let why = format!("{key}: an entry is empty; expected a name, such as {example}");
                Err(self.refuse(&given.span(), why))
            } else {
                resolve(given).and_then(|(name, rest)| {
                    let Some((earlier, ..)) = resolved.iter().find(|(_, other, _)| *other == name) else {
                        return Ok((name, rest));
                    };
                    let twice = input::given_twice(&name, &earlier.to_string(), &spelled.to_string());
                    Err(self.refuse(&given.span(), format!("{key}: {twice}")))
                })
            };
            resolved.extend(wrong.keep(one)?.map(|(name, rest)| (spelled, name, rest)));
        }
        wrong.end()?;
        Ok(resolved.into_iter().map(|(_, name, rest)| (name, rest)).collect())
    }
}

impl Grid {
    /// Reads a grid and checks all that it names.
    pub fn read(asked: &SweepRequest, kernels: Option<&dyn Kernels>) -> Result<Self, Failure> {
        let file = asked.grid.display().to_string();
        let text = input::read(&file, "grid", "a grid (TOML)", &[]).map_err(|failure| match failure {
            Failure::Usage(why) => Failure::usage(why.trim_start_matches("--grid ")),
            other => other,
        })?;
        Self::parse(&text, &file, asked, kernels)
    }

    /// Parses the text of the file of this name. Without `kernels`, every cell runs in the model.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it.
    pub fn parse(
        text: &str,
        file: &str,
        asked: &SweepRequest,
        kernels: Option<&dyn Kernels>,
    ) -> Result<Self, Failure> {
        let source = Source { file, text };
        let document: Document = toml::from_str(text).map_err(|error| {
            let Some(at) = error.span() else {
                return Failure::usage(format!("{file}: {}", error.message()));
            };
            // The whole line says which key and value it is.
            let rest = &text[at.start.min(text.len())..];
            let begin = text[..text.len() - rest.len()].rfind('\n').map_or(0, |newline| newline + 1);
            let line = text[begin..].lines().next().unwrap_or_default().trim();
            let shown = if line.is_empty() { String::new() } else { format!("{line}: ") };
            // It speaks of Rust's types.
            let why = error.message().replace("expected i64", "expected a whole number");
            source.refuse(&at, format!("{shown}{}", why.replace("a sequence", "a list")))
        })?;

        let lists = [
            ("devices", "\"sata-small\"", document.devices),
            ("policies", "\"off\", \"commit\"", document.policies),
            ("workloads", "\"default\"", document.workloads),
        ];
        let missing = lists.iter().filter(|(.., list)| list.is_none());
        let missing = missing.map(|(key, example, _)| {
            format!("{file}: {key}: is missing; expected a list, such as [{example}]")
        });
        let missing: Vec<String> = missing.collect();
        let [Some(devices), Some(policies), Some(workloads)] = lists.map(|(.., list)| list) else {
            return Err(Failure::usage(missing.join("\n")));
        };
        let mut wrong = Wrong::default();
        wrong.keep(source.distinct(("devices", "\"sata-small\""), &devices, |given| {
            let resolved = input::device(given.get_ref());
            resolved.map_err(|failure| source.refuse_as("devices", "--device", &given.span(), failure))
        }))?;
        let mut jobs = Vec::new();
        for given in workloads.get_ref() {
            let files = jobs::in_folder(given.get_ref())
                .map_err(|failure| source.refuse_as("workloads", "--workload", &given.span(), failure));
            jobs.extend(
                wrong.keep(files)?.into_iter().flatten().map(|file| Spanned::new(given.span(), file)),
            );
        }
        // Folders that are refused leave no jobs; the refusal says more than that there are none.
        let are_refused = jobs.is_empty() && !workloads.get_ref().is_empty();
        let jobs = Spanned::new(workloads.span(), jobs);
        let workloads = match are_refused {
            true => Ok(Vec::new()),
            false => source.distinct(("workloads", "\"default\""), &jobs, |given| {
                let workload = Workload::named(given.get_ref())
                    .map_err(|failure| source.refuse_as("workloads", "--workload", &given.span(), failure))?;
                Ok((given.get_ref().clone(), (given.span(), workload)))
            }),
        };
        let workloads = wrong.keep(workloads)?.unwrap_or_default();
        let utilizations = document.utilizations_percent.as_ref().map(|list| {
            let percents = source.distinct(("utilizations_percent", "80"), list, |given| {
                let percent = source.number("utilizations_percent", given, 0..101)?;
                Ok((percent.to_string(), percent as u8))
            })?;
            Ok(percents.into_iter().map(|(_, percent)| percent).collect())
        });
        let utilizations = utilizations.unwrap_or_else(|| Ok(vec![defaults::UTILIZATION_PERCENT]));
        let utilizations = wrong.keep(utilizations)?.unwrap_or_default();
        let seeds = wrong.keep(seeds(&source, document.seeds.as_ref()))?.unwrap_or_default();
        let mut number = |key, given: &Option<Spanned<i64>>, accepted: Range<i64>| {
            let number = given.as_ref().map(|value| source.number(key, value, accepted)).transpose();
            wrong.keep(number).map(Option::flatten)
        };
        let reps = number("reps", &document.reps, 1..i64::from(*REPS.end()) + 1)?.unwrap_or(1) as u32;
        let memory_range = defaults::MEMORY_MIB_MIN as i64..defaults::MEMORY_MIB_MAX as i64 + 1;
        let memory_mib = number("memory_mib", &document.memory_mib, memory_range)?
            .map_or(defaults::MEMORY_MIB, i64::cast_unsigned);
        let days = number("days", &document.days, 1..i64::from(trimwise::workload::days::DAYS_MAX) + 1)?;
        let day = match (&document.day, &document.days) {
            (Some(given), None) => Err(source.refuse(&given.span(), "day: needs days")),
            (Some(given), _) => {
                let shape = given.get_ref().parse();
                shape.map(Some).map_err(|e| source.refuse(&given.span(), format!("day: {e}")))
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
                resolved.map_err(|failure| source.refuse_as("policies", "--policy", &given.span(), failure))
            })
        };
        if asked.fs.is_none() {
            wrong.keep(named(None))?;
        }
        wrong.end()?;

        let request = |workload: &str, utilization| CompareRequest {
            workload: workload.to_owned(),
            devices: devices.get_ref().iter().map(|given| given.get_ref().clone()).collect(),
            policies: policies.get_ref().iter().map(|given| given.get_ref().clone()).collect(),
            utilization: Some(utilization),
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
        // The plan names the option first; here its key and line in the grid say where.
        let located = |failure: Failure| {
            let Failure::Usage(why) = &failure else { return Err(failure) };
            let of = |spanned: Option<Range<usize>>| spanned.unwrap_or_default();
            for (key, option, at) in [
                ("policies", "--policy", policies.span()),
                ("devices", "--device", devices.span()),
                ("linux", "--linux", of(document.linux.as_ref().map(Spanned::span))),
                ("memory_mib", "--memory", of(document.memory_mib.as_ref().map(Spanned::span))),
            ] {
                if let Some(why) = why.strip_prefix(option) {
                    let why = in_grid(why.trim_start_matches([':', ' ']));
                    return Err(source.refuse(&at, format!("{key}: {why}")));
                }
            }
            Ok(why.clone())
        };
        let Some((first, (_, workload))) = workloads.first() else {
            return Err(Failure::usage(format!("{file}: has no cells")));
        };
        let first = request(first, defaults::UTILIZATION_PERCENT);
        let on_kernel = match kernels.map_or(Ok(None), |kernels| kernels.chosen(&first, workload)) {
            Ok(on_kernel) => on_kernel,
            Err(failure) => return Err(Failure::Usage(in_grid(&located(failure)?))),
        };
        let policies = named(on_kernel.as_deref())?;
        let each_plan = || {
            workloads.iter().flat_map(|(name, (at, workload))| {
                utilizations.iter().map(move |&percent| (name, at, workload, percent))
            })
        };
        let refused = |(name, at, percent): (&String, &Range<usize>, u8), failure| match located(failure) {
            Ok(why) => {
                let named = format!("--workload {name}");
                let why = why.strip_prefix(&named).unwrap_or(&why).trim_start_matches([':', ' ']);
                source.refuse(at, format!("workloads: {name} at {percent} percent: {}", in_grid(why)))
            }
            Err(failure) => failure,
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
                    if matches!(workload.kind, Kind::Command(_)) {
                        let why = "is a program of this computer, which may be another one next time; expected a workload \
                                   of trimwise, or `trimwise compare`";
                        return Err(source.refuse(at, format!("workloads: {name}: {why}")));
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
                    if let Kind::Trace(trace) = &workload.kind {
                        let read = trace.bytes();
                        contents
                            .extend(read.map_err(|e| source.refuse(&at, format!("workloads: {name}: {e}")))?);
                    }
                    Ok(Named { name, sha256: hash(&contents) })
                })
                .collect::<Result<_, Failure>>()?,
            utilizations_percent: utilizations,
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
            Failure::usage(format!(
                "{file}: has {}; expected at most {CELLS_MAX} cells",
                description.product()
            ))
        })?;
        Ok(Self {
            file: file.to_owned(),
            description: Description { cells, ..description },
            plans,
            own: None,
        })
    }

    /// The same grid under somebody's own policy instead of its policies.
    pub fn of_own(self, Own { policy, sha256 }: Own) -> Self {
        let description = Description {
            cells: self.description.cells / self.cells_per_group(),
            policies: vec![policy.id().clone()],
            own: vec![Named { name: policy.id().to_string(), sha256 }],
            ..self.description
        };
        Self { description, own: Some(policy), ..self }
    }

    /// Whether it is of somebody's own policy.
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Returns each workload once.
    pub fn workloads(&self) -> impl Iterator<Item = &Workload> {
        let per_workload = self.description.utilizations_percent.len();
        (0..self.description.workloads.len())
            .map(move |workload| self.plans.workload(workload * per_workload))
    }

    /// Cells that differ in nothing but the policy are one group: their numbers follow each other.
    pub fn cells_per_group(&self) -> u64 {
        self.description.policies.len() as u64
    }

    /// Cells that differ in nothing but policy, repetition and seed: their numbers follow each other too.
    pub fn cells_per_case(&self) -> u64 {
        self.cells_per_group() * u64::from(self.description.reps) * self.description.seeds.len() as u64
    }

    /// The cell of this number: policies are innermost, then repetitions, seeds, utilizations, workloads, devices.
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
        let utilization = digit(d.utilizations_percent.len());
        let workload = digit(d.workloads.len());
        let plan = workload * d.utilizations_percent.len() + utilization;
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
            utilization_percent: d.utilizations_percent[utilization],
            seed,
            rep: rep as u32,
            on,
        }
    }

    /// Cells at a time if nobody says otherwise: as many as fit into memory.
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

    /// The kernel, and what its guests run of this computer.
    fn kernel(&self) -> Result<Vec<Named>, Failure> {
        match self {
            Self::Model(_) => Ok(Vec::new()),
            Self::Kernel(on) => on.kernel(),
        }
    }

    /// The parts of the code that decide what runs come to, with their hashes. Devices and workloads have hashes of their
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
            ("utilizations", self.utilizations_percent.len() as u64),
            ("seeds", self.seeds.len() as u64),
            ("repetitions", u64::from(self.reps)),
        ]
    }

    /// How the number of cells comes about.
    pub fn product(&self) -> String {
        let factors: Vec<String> =
            self.sizes().iter().map(|(what, size)| format!("{size} {}", singular(what, *size))).collect();
        factors.join(" x ")
    }

    /// The file's text.
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

/// The seeds of all entries, in their order.
fn seeds(source: &Source, given: Option<&List<Seeds>>) -> Result<Vec<u64>, Failure> {
    let Some(given) = given else { return Ok(vec![defaults::SEED]) };
    source.expect_some("seeds", given, "1 or \"1-100\"")?;
    let mut seeds = Vec::new();
    let mut seen = BTreeSet::new();
    for entry in given.get_ref() {
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
            let why = "expected a whole number from 0, or a range such as \"1-100\"";
            source.refuse(&entry.span(), format!("seeds: {found} is not accepted; {why}"))
        })?;
        if let Some(twice) = range.clone().find(|&seed| !seen.insert(seed)) {
            let why = format!("seeds: {twice} is given twice; expected each once");
            return Err(source.refuse(&entry.span(), why));
        }
        seeds.extend(range);
    }
    Ok(seeds)
}
