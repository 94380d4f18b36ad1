//! The grid: which cells a sweep has.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};
use toml::Spanned;
use trimwise::policy::{PolicyId, Trimmer};
use trimwise::profile::Profile;
use trimwise_lab::failure::Failure;
use trimwise_lab::kept::hash;

use crate::check::REPS;
use crate::compare::CompareRequest;
use crate::compare::on_model::Plan;
use crate::compare::workload::{Kind, Workload};
use crate::{defaults, input, jobs};

/// More cells than this are a mistake: a year on a hundred cores.
const CELLS_MAX: u64 = 10_000_000;

/// The file, as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    devices: List<String>,
    policies: List<String>,
    workloads: List<String>,
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
    /// For each workload and utilization, utilizations innermost.
    plans: Vec<Plan>,
}

/// What decides the results of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The version of trimwise.
    pub trimwise: String,
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
}

/// A device or workload, and a hash of all that it stands for: a file may have changed under its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Named {
    pub name: String,
    pub sha256: String,
}

/// The coordinates of a cell.
pub struct Place<'a> {
    pub device: (&'a str, &'a Profile),
    pub policy: Trimmer,
    pub workload: &'a str,
    pub plan: &'a Plan,
    pub seed: u64,
    pub rep: u32,
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
        let mut resolved: Vec<(String, R)> = Vec::new();
        for given in list.get_ref() {
            if given.get_ref().to_string().is_empty() {
                let why = format!("{key}: an entry is empty; expected a name, such as {example}");
                return Err(self.refuse(&given.span(), why));
            }
            let one = resolve(given)?;
            if let Some(earlier) = resolved.iter().position(|(name, _)| *name == one.0) {
                let spelled = [&list.get_ref()[earlier], given].map(|given| given.get_ref().to_string());
                let why = format!("{key}: {}", input::given_twice(&one.0, &spelled[0], &spelled[1]));
                return Err(self.refuse(&given.span(), why));
            }
            resolved.push(one);
        }
        Ok(resolved)
    }
}

impl Grid {
    /// Reads a grid and checks all that it names.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let file = path.display().to_string();
        let text = input::read(&file, "grid", "a grid (TOML)", &[]).map_err(|failure| match failure {
            Failure::Usage(why) => Failure::usage(why.trim_start_matches("--grid ")),
            other => other,
        })?;
        Self::parse(&text, &file)
    }

    /// Parses the text of the file of this name.
    pub fn parse(text: &str, file: &str) -> Result<Self, Failure> {
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

        source.distinct(("devices", "\"sata-small\""), &document.devices, |given| {
            let resolved = input::device(given.get_ref());
            resolved.map_err(|failure| source.refuse_as("devices", "--device", &given.span(), failure))
        })?;
        let policies = source.distinct(("policies", "\"lazy+reuse\""), &document.policies, |given| {
            let resolved = input::trimmer(given.get_ref());
            resolved.map_err(|failure| source.refuse_as("policies", "--policy", &given.span(), failure))
        })?;
        let mut jobs = Vec::new();
        for given in document.workloads.get_ref() {
            let files = jobs::in_folder(given.get_ref())
                .map_err(|failure| source.refuse_as("workloads", "--workload", &given.span(), failure))?;
            jobs.extend(files.into_iter().map(|file| Spanned::new(given.span(), file)));
        }
        let jobs = Spanned::new(document.workloads.span(), jobs);
        let workloads = source.distinct(("workloads", "\"default\""), &jobs, |given| {
            let workload = Workload::named(given.get_ref())
                .map_err(|failure| source.refuse_as("workloads", "--workload", &given.span(), failure))?;
            Ok((given.get_ref().clone(), (given.span(), workload)))
        })?;
        let utilizations = match &document.utilizations_percent {
            None => vec![defaults::UTILIZATION_PERCENT],
            Some(list) => {
                let percents = source.distinct(("utilizations_percent", "80"), list, |given| {
                    let percent = source.number("utilizations_percent", given, 0..101)?;
                    Ok((percent.to_string(), percent as u8))
                })?;
                percents.into_iter().map(|(_, percent)| percent).collect()
            }
        };
        let seeds = seeds(&source, document.seeds.as_ref())?;
        let number = |key, given: &Option<Spanned<i64>>, accepted: Range<i64>| {
            given.as_ref().map(|value| source.number(key, value, accepted)).transpose()
        };
        let reps = number("reps", &document.reps, 1..i64::from(*REPS.end()) + 1)?.unwrap_or(1) as u32;
        let memory_range = defaults::MEMORY_MIB_MIN as i64..defaults::MEMORY_MIB_MAX as i64 + 1;
        let memory_mib = number("memory_mib", &document.memory_mib, memory_range)?
            .map_or(defaults::MEMORY_MIB, i64::cast_unsigned);
        let days = number("days", &document.days, 1..i64::from(trimwise::workload::days::DAYS_MAX) + 1)?;
        let day = match (&document.day, days) {
            (Some(given), None) => return Err(source.refuse(&given.span(), "day: needs days")),
            (Some(given), _) => {
                Some(given.get_ref().parse().map_err(|e| source.refuse(&given.span(), format!("day: {e}")))?)
            }
            (None, _) => None,
        };
        let linux = document.linux.as_ref().map(|given| given.get_ref().clone());

        let request = |workload: &str, utilization| CompareRequest {
            workload: workload.to_owned(),
            devices: document.devices.get_ref().iter().map(|given| given.get_ref().clone()).collect(),
            policies: document.policies.get_ref().iter().map(|given| given.get_ref().clone()).collect(),
            utilization: Some(utilization),
            linux: linux.clone(),
            memory: Some(memory_mib),
            reps,
            days: days.map(|days| days as u32),
            day: day.clone(),
            ..CompareRequest::default()
        };
        let mut plans = Vec::new();
        for (name, (at, _)) in &workloads {
            for utilization in &utilizations {
                let plan = Plan::of(&request(name, *utilization));
                plans.push(plan.map_err(|failure| {
                    let Failure::Usage(why) = &failure else { return failure };
                    let policies = ("policies", "--policy", Some(document.policies.span()));
                    let linux = ("linux", "--linux", document.linux.as_ref().map(Spanned::span));
                    // The plan names the option first; here its key and line in the grid say where.
                    for (key, option, place) in [policies, linux] {
                        if let Some(at) = place.filter(|_| why.starts_with(option)) {
                            return source.refuse_as(key, option, &at, failure);
                        }
                    }
                    source.refuse(at, format!("workloads: {name} at {utilization} percent: {why}"))
                })?);
            }
        }
        let Some(Plan { devices, .. }) = plans.first() else {
            return Err(Failure::usage(format!("{file}: has no cells")));
        };
        let description = Description {
            trimwise: trimwise::VERSION.to_owned(),
            cells: 0,
            devices: devices
                .iter()
                .map(|(name, profile)| {
                    let contents = format!("{:?} {:?}", profile.config, profile.faults);
                    Named { name: name.clone(), sha256: hash(contents.as_bytes()) }
                })
                .collect(),
            policies: policies.into_iter().map(|(_, policy)| policy.into()).collect(),
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
        };
        let sizes = description.sizes();
        let cells = sizes.iter().try_fold(1u64, |cells, (_, size)| cells.checked_mul(*size));
        let cells = cells.filter(|&cells| cells <= CELLS_MAX).ok_or_else(|| {
            Failure::usage(format!(
                "{file}: has {}; expected at most {CELLS_MAX} cells",
                description.product()
            ))
        })?;
        Ok(Self { file: file.to_owned(), description: Description { cells, ..description }, plans })
    }

    /// Returns each workload once.
    pub fn workloads(&self) -> impl Iterator<Item = &Workload> {
        self.plans.iter().step_by(self.description.utilizations_percent.len()).map(|plan| &plan.workload)
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
        let plan = &self.plans[workload * d.utilizations_percent.len() + utilization];
        let (device, profile) = &plan.devices[digit(d.devices.len())];
        Place {
            device: (device, profile),
            policy: plan.policies[policy],
            workload: &d.workloads[workload].name,
            plan,
            seed: d.seeds[seed],
            rep: rep as u32,
        }
    }

    /// The devices.
    pub fn devices(&self) -> impl Iterator<Item = &Profile> {
        self.plans.iter().take(1).flat_map(|plan| plan.devices.iter().map(|(_, profile)| profile))
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
