//! Named workloads: file operations of applications, with the removals that make TRIM matter.
//!
//! Each workload is one file: its parameters with their sources (`SPEC`), the space that it takes (`needed`), the
//! number of its tasks (`tasks`), their operations (`run`) and the number of operations of its own kind (`operations`).
//! The registry below names it once.

pub mod parameters;

use parameters::{COMMON, Spec};

use super::program::DIRECTORY;
use super::stage::Stage;
use crate::files::{FileError, Files};
use crate::units::Bytes;

macro_rules! registry {
    ($($name:ident),* $(,)?) => {
        $(mod $name;)*

        /// All named workloads, in listing order.
        pub const ALL: &[&Spec] = &[$(&$name::SPEC),*];

        impl Application {
            fn needed_by_one(&self) -> u64 {
                let values = self.values();
                match self.spec.name {
                    $(name if name == $name::SPEC.name => $name::needed(&values),)*
                    _ => 0,
                }
            }

            fn tasks_of_one(&self) -> u32 {
                let values = self.values();
                match self.spec.name {
                    $(name if name == $name::SPEC.name => $name::tasks(&values),)*
                    _ => 0,
                }
            }

            fn operations_of_one(&self) -> u64 {
                let values = self.values();
                match self.spec.name {
                    $(name if name == $name::SPEC.name => $name::operations(&values),)*
                    _ => 0,
                }
            }

            async fn run<F: Files>(&self, at: &Place<'_, F>) -> Result<(), FileError> {
                match self.spec.name {
                    $(name if name == $name::SPEC.name => $name::run(at).await,)*
                    _ => Ok(()),
                }
            }
        }
    };
}

registry!(lsm, segments, oltp, maildir, unpack, desktop, logs, vm);

/// A named workload with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    spec: &'static Spec,
    /// Values as given, in the order of [`Spec::all`].
    values: Vec<u64>,
}

/// Values of parameters, scaled.
pub(crate) struct Values<'a>(&'a Application);

impl Values<'_> {
    /// Returns the value of a parameter that the workload has.
    pub fn get(&self, name: &str) -> u64 {
        let found = self.0.spec.all().zip(&self.0.values).find(|(p, _)| p.name == name);
        let (parameter, &value) = found.expect("a workload asks for its own parameters");
        if parameter.scales { value.saturating_mul(self.0.common(1)) } else { value }
    }
}

/// The copy in which a task works, with its file system and parameters.
pub(crate) struct Place<'a, F: Files> {
    pub stage: &'a Stage<'a, F>,
    pub values: Values<'a>,
    /// Number of the task within its copy.
    pub task: u32,
    /// Number of the copy.
    pub copy: u32,
}

impl<F: Files> Place<'_, F> {
    /// Returns a path in the copy's directory.
    pub fn path(&self, name: &str) -> String {
        format!("{DIRECTORY}/{}/{name}", self.copy)
    }
}

impl Application {
    /// Returns true if a text is meant as a named workload, valid or not: it begins with one of their names.
    pub fn is_meant(text: &str) -> bool {
        let name = text.split(':').next();
        ALL.iter().any(|spec| Some(spec.name) == name)
    }

    fn values(&self) -> Values<'_> {
        Values(self)
    }

    /// Returns the value of one of the parameters that every workload has.
    fn common(&self, index: usize) -> u64 {
        self.values[self.values.len() - COMMON.len() + index]
    }

    fn copies(&self) -> u32 {
        self.common(0) as u32
    }

    /// Returns the number of tasks of all copies.
    pub fn tasks(&self) -> u32 {
        self.copies() * self.tasks_of_one()
    }

    /// Returns the maximum space that all copies take at one time.
    pub fn needed(&self) -> Bytes {
        Bytes(self.needed_by_one().saturating_mul(u64::from(self.copies())))
    }

    /// Returns the number of operations of the workload's own kind, of all copies.
    pub fn operations(&self) -> u64 {
        self.operations_of_one().saturating_mul(u64::from(self.copies()))
    }

    /// Returns true if the workload pauses between operations by itself.
    pub fn pauses(&self) -> bool {
        self.spec.all().zip(&self.values).any(|(parameter, &value)| parameter.name == "pause" && value > 0)
    }

    pub(super) async fn prepare<F: Files>(&self, stage: &Stage<'_, F>) -> Result<(), FileError> {
        for copy in 0..self.copies() {
            stage.mkdir(&format!("{DIRECTORY}/{copy}")).await?;
        }
        Ok(())
    }

    pub(super) async fn run_task<F: Files>(&self, stage: &Stage<'_, F>) -> Result<(), FileError> {
        let of_one = self.tasks_of_one();
        let (task, copy) = (stage.task % of_one, stage.task / of_one);
        self.run(&Place { stage, values: self.values(), task, copy }).await
    }
}

#[cfg(test)]
mod tests;
