//! Named workloads: file operations of applications, with the removals that make TRIM matter.
//!
//! Each workload is one file: what it is (`ABOUT`), its parameters with their sources (`Parameters`), what follows from
//! them ([`Workload`]) and its operations (`run`). The registry below names it once.

pub mod parameters;
mod scaled;

use parameters::{Common, Parameter, Spec};

use super::DIRECTORY;
use super::days::USUAL;
use super::stage::Stage;
use crate::files::{FileError, Files};
use crate::units::Bytes;

trait Workload {
    fn operations(&self) -> u64;

    fn needed(&self) -> Bytes;

    fn tasks(&self) -> u32 {
        1
    }

    fn pauses(&self) -> bool {
        false
    }

    /// Returns the usual shape of its days: that of a server, at work at all hours, so that a sweep at midnight meets
    /// some work.
    fn day(&self) -> &'static str {
        USUAL
    }

    fn reads(&self) -> bool {
        true
    }
}

macro_rules! registry {
    ($($Name:ident: $module:ident),* $(,)?) => {
        $(mod $module;)*

        pub const ALL: &[&Spec] = &[$(&Spec {
            name: stringify!($module),
            about: $module::ABOUT,
            parameters: $module::Parameters::LIST,
            read: |value| Named::$Name($module::Parameters::read(value)),
        }),*];

        #[derive(Clone, Debug, PartialEq, Eq)]
        enum Named {
            $($Name($module::Parameters)),*
        }

        impl Named {
            fn workload(&self) -> &dyn Workload {
                match self {
                    $(Self::$Name(parameters) => parameters),*
                }
            }

            async fn run<F: Files>(&self, stage: &Stage<'_, F>, task: u32, copy: u32) -> Result<(), FileError> {
                match self {
                    $(Self::$Name(parameters) => $module::run(&Place { stage, parameters, task, copy }).await),*
                }
            }
        }
    };
}

registry! {
    Lsm: lsm,
    Segments: segments,
    Oltp: oltp,
    Maildir: maildir,
    Unpack: unpack,
    Desktop: desktop,
    Logs: logs,
    Vm: vm,
    Rmtree: rmtree,
}

impl Named {
    /// Makes what must be there before the run begins.
    async fn prepare<F: Files>(&self, stage: &Stage<'_, F>, copy: u32) -> Result<(), FileError> {
        match self {
            Self::Rmtree(parameters) => rmtree::prepare(&Place { stage, parameters, task: 0, copy }).await,
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    name: &'static str,
    /// Values other than the default, as given, in the order of [`Spec::all`].
    given: Vec<(&'static Parameter, u64)>,
    common: Common,
    own: Named,
}

struct Place<'a, F: Files, P> {
    pub stage: &'a Stage<'a, F>,
    pub parameters: &'a P,
    pub task: u32,
    pub copy: u32,
}

impl<F: Files, P> Place<'_, F, P> {
    pub fn path(&self, name: &str) -> String {
        format!("{DIRECTORY}/{}/{name}", self.copy)
    }
}

impl Application {
    /// Returns true if a text is meant as a named workload, valid or not: it begins with one of their names.
    pub fn is_meant(text: &str) -> bool {
        let name = text.split([':', parameters::AND]).next();
        ALL.iter().any(|spec| Some(spec.name) == name)
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the value of a parameter that differs from its default; `None` for others.
    pub fn given(&self, parameter: &Parameter) -> Option<u64> {
        self.given.iter().find(|(given, _)| given.name == parameter.name).map(|(_, value)| *value)
    }

    pub(super) fn copies(&self) -> u32 {
        self.common.tasks as u32
    }

    pub fn tasks(&self) -> u32 {
        self.copies() * self.own.workload().tasks()
    }

    pub fn needed(&self) -> Bytes {
        Bytes(self.own.workload().needed().0.saturating_mul(self.common.tasks))
    }

    /// Returns the number of operations of the workload's own kind, of all copies.
    pub fn operations(&self) -> u64 {
        self.own.workload().operations().saturating_mul(self.common.tasks)
    }

    pub fn pauses(&self) -> bool {
        self.own.workload().pauses()
    }

    pub fn day(&self) -> &'static str {
        self.own.workload().day()
    }

    pub fn reads(&self) -> bool {
        self.own.workload().reads()
    }

    /// Prepares the copies, the first of which has this number.
    pub(super) async fn prepare<F: Files>(&self, stage: &Stage<'_, F>, first: u32) -> Result<(), FileError> {
        for copy in first..first + self.copies() {
            self.own.prepare(stage, copy).await?;
        }
        Ok(())
    }

    pub(super) async fn run_task<F: Files>(&self, stage: &Stage<'_, F>) -> Result<(), FileError> {
        let of_one = self.own.workload().tasks();
        let (first_task, first_copy) = stage.part.first;
        let task = stage.task - first_task;
        self.own.run(stage, task % of_one, first_copy + task / of_one).await
    }
}

#[cfg(test)]
mod tests;
