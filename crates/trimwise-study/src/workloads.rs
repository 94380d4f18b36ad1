//! The named workloads and shapes of days.

use serde::Serialize;
use trimwise::failure::Failure;
use trimwise::workload::apps::parameters::{Parameter, Spec};
use trimwise::workload::apps::{ALL, Application};
use trimwise::workload::days::{NAMED, NamedDay};

/// The named workloads and days; the order of the keys is part of the format.
#[derive(Debug, Serialize)]
pub struct Workloads {
    /// The version of trimwise.
    pub trimwise: &'static str,
    /// The workloads.
    pub workloads: Vec<Workload>,
    /// Shapes of a day, for `compare --days`.
    pub days: Vec<Day>,
}

/// A shape of a day.
#[derive(Debug, Serialize)]
pub struct Day {
    /// Its name.
    pub name: &'static str,
    /// What it is like.
    pub about: &'static str,
    /// Where its weights come from; `-` if nowhere.
    pub source: &'static str,
    /// Weights of the hours from midnight.
    pub weekday: [u32; 24],
    /// The same on Saturdays and Sundays.
    pub weekend: [u32; 24],
}

/// A named workload.
#[derive(Debug, Serialize)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Space that it takes with the defaults.
    pub needed_bytes: u64,
    /// Tasks that run at the same time.
    pub tasks: u32,
    /// What can be set, with the source of each default.
    pub parameters: Vec<Parameter>,
}

impl Workloads {
    /// Lists them.
    ///
    /// # Errors
    ///
    /// A [`Failure`] if a default is wrong.
    pub fn all() -> Result<Self, Failure> {
        let workload = |spec: &&'static Spec| {
            let application: Application = spec.name.parse().map_err(Failure::run)?;
            Ok(Workload {
                name: spec.name,
                about: spec.about,
                needed_bytes: application.needed().0,
                tasks: application.tasks(),
                parameters: spec.all().copied().collect(),
            })
        };
        Ok(Self {
            trimwise: trimwise::VERSION,
            workloads: ALL.iter().map(workload).collect::<Result<_, Failure>>()?,
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
