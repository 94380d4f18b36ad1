//! Reports of documents from the laboratory's commands, for `trimwise report`.

#[cfg(test)]
mod tests;

use std::any::Any;

use trimwise::failure::Failure;
use trimwise_cli::commands::report::documents::{Kind, OfLaboratory, typed};
use trimwise_cli::commands::report::{ReportArguments, run_with};

use super::bench::map::MapReport;
use super::bench::{self, BenchReport};
use super::{reproduce, tournament};
use crate::experiment::result::ExperimentResult;
use crate::requests::tournament::Tournament;

pub fn run(arguments: &ReportArguments) -> Result<String, Failure> {
    run_with(arguments, &read)
}

/// Parses a document; `file` is for messages.
fn read(kind: Kind, text: &str, file: &str) -> Result<Box<dyn OfLaboratory>, Failure> {
    Ok(match kind {
        Kind::Reproduce if text.trim_start().starts_with('[') => {
            Box::new(Reproduced(typed::<Vec<ExperimentResult>>(text, file)?))
        }
        Kind::Reproduce => Box::new(Reproduced(vec![typed(text, file)?])),
        Kind::Bench => Box::new(typed::<BenchReport>(text, file)?),
        Kind::Map => Box::new(typed::<MapReport>(text, file)?),
        Kind::Tournament => Box::new(typed::<Tournament>(text, file)?),
    })
}

struct Reproduced(Vec<ExperimentResult>);

impl OfLaboratory for Reproduced {
    fn command(&self) -> &'static str {
        Kind::Reproduce.command()
    }

    fn html(&self) -> Result<String, Failure> {
        reproduce::report::html(&self.0, &reproduce::repeat(&self.0))
    }

    fn pair(&self, [a, b]: [&str; 2], other: &dyn Any) -> Option<Result<String, Failure>> {
        let other = other.downcast_ref::<Self>()?;
        Some(reproduce::report::pair([(a, &self.0), (b, &other.0)]))
    }
}

impl OfLaboratory for BenchReport {
    fn command(&self) -> &'static str {
        Kind::Bench.command()
    }

    fn html(&self) -> Result<String, Failure> {
        bench::report::html(self)
    }

    fn pair(&self, [a, b]: [&str; 2], other: &dyn Any) -> Option<Result<String, Failure>> {
        Some(bench::report::pair([(a, self), (b, other.downcast_ref()?)]))
    }
}

impl OfLaboratory for MapReport {
    fn command(&self) -> &'static str {
        Kind::Map.command()
    }

    fn html(&self) -> Result<String, Failure> {
        bench::map::html(self)
    }

    fn pair(&self, [a, b]: [&str; 2], other: &dyn Any) -> Option<Result<String, Failure>> {
        Some(bench::map::pair([(a, self), (b, other.downcast_ref()?)]))
    }
}

impl OfLaboratory for Tournament {
    fn command(&self) -> &'static str {
        Kind::Tournament.command()
    }

    fn html(&self) -> Result<String, Failure> {
        tournament::report::html(self)
    }

    fn pair(&self, _: [&str; 2], _: &dyn Any) -> Option<Result<String, Failure>> {
        None
    }
}
