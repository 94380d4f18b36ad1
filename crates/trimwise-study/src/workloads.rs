//! The named workloads and shapes of days.

use serde::Serialize;
use trimwise::failure::Failure;
use trimwise::workload::apps::parameters::{Parameter, Spec};
use trimwise::workload::apps::{ALL, Application};
use trimwise::workload::days::{NAMED, NamedDay};

#[derive(Debug, Serialize)]
pub struct Workloads {
    pub trimwise: &'static str,
    pub workloads: Vec<Workload>,
    /// For `compare --days`.
    pub days: Vec<Day>,
}

#[derive(Debug, Serialize)]
pub struct Day {
    pub name: &'static str,
    pub about: &'static str,
    /// Source of the weights; `-` if there is none.
    pub source: &'static str,
    /// Weights of the hours from midnight.
    pub weekday: [u32; 24],
    /// Weights of the hours of Saturdays and Sundays.
    pub weekend: [u32; 24],
}

#[derive(Debug, Serialize)]
pub struct Workload {
    pub name: &'static str,
    pub about: &'static str,
    /// Space needed with the default parameters.
    pub needed_bytes: u64,
    pub tasks: u32,
    /// Includes the source of each default.
    pub parameters: Vec<Parameter>,
}

/// One workload of the list.
#[derive(Debug, Serialize)]
pub struct One {
    pub trimwise: &'static str,
    pub workload: Workload,
}

impl One {
    /// Returns the workload of this name, if there is one.
    pub fn named(name: &str) -> Result<Option<Self>, Failure> {
        let spec = ALL.iter().find(|spec| spec.name == name);
        let workload = spec.map(|spec| Workload::of(spec)).transpose()?;
        Ok(workload.map(|workload| Self { trimwise: trimwise::VERSION, workload }))
    }
}

impl Workload {
    fn of(spec: &'static Spec) -> Result<Self, Failure> {
        let application: Application = spec.name.parse().map_err(Failure::run)?;
        Ok(Self {
            name: spec.name,
            about: spec.about,
            needed_bytes: application.needed().0,
            tasks: application.tasks(),
            parameters: spec.all().copied().collect(),
        })
    }
}

impl Workloads {
    pub fn all() -> Result<Self, Failure> {
        Ok(Self {
            trimwise: trimwise::VERSION,
            workloads: ALL.iter().map(|spec| Workload::of(spec)).collect::<Result<_, Failure>>()?,
            days: NAMED
                .iter()
                .map(|&NamedDay { name, about, source, weekday, weekend }| Day {
                    name,
                    about,
                    source,
                    weekday,
                    weekend,
                })
                .collect(),
        })
    }
}
