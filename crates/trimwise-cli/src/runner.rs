//! The one place where the command meets the models and real directories.
//!
//! Everything else in this crate works on names, cells and results through [`Models`], and is tested with
//! fabricated ones.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use trimwise::experiment::result::{Cell, ExperimentResult};

use crate::failure::Failure;

/// What a run reports while it goes on: how much of how much is done.
pub type Report<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// One run in the model.
#[derive(Clone, Copy, Debug)]
pub struct ModelRun<'a, M: Models + ?Sized> {
    /// The device.
    pub device: &'a M::Device,
    /// The policy.
    pub policy: &'a M::Policy,
    /// The workload.
    pub workload: &'a M::Workload,
    /// How full the device is before the run, in percent.
    pub utilization_percent: u8,
    /// Repetition, from 0.
    pub rep: u32,
    /// The seed of the whole comparison.
    pub seed: u64,
}

/// A device profile or an experiment in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// One line about it.
    pub summary: String,
}

/// What can be run.
pub trait Models: Sync {
    /// A device profile.
    type Device: Sync;
    /// A policy.
    type Policy: Sync;
    /// A workload.
    type Workload: Sync;

    /// The built-in device profiles.
    fn devices(&self) -> Vec<Listed>;
    /// The device of this name, or of the profile in this file, with the name that tables show.
    fn device(&self, argument: &str) -> Result<(String, Self::Device), Failure>;
    /// The policy that is written so, with the name that tables show.
    fn policy(&self, argument: &str) -> Result<(String, Self::Policy), Failure>;
    /// The workload of this name, or of this configuration file.
    fn workload(&self, argument: &str) -> Result<Self::Workload, Failure>;
    /// Runs one cell in virtual time: deterministic, and the same on any thread.
    fn run_model(&self, run: &ModelRun<Self>, report: Report) -> Result<Cell, Failure>;
    /// What a real directory's file system is and does with TRIM, in a word for the table's policy column;
    /// refuses a directory that the workload cannot use.
    fn directory_policy(&self, directory: &Path, workload: &Self::Workload) -> Result<String, Failure>;
    /// Runs the workload in a real directory and removes what it made there, also when told to stop.
    fn run_directory(
        &self,
        directory: &Path,
        policy: &str,
        workload: &Self::Workload,
        rep: u32,
        stop: &AtomicBool,
    ) -> Result<Cell, Failure>;
    /// The published experiments that can be made again.
    fn experiments(&self) -> Vec<Listed>;
    /// Makes one of them again.
    fn reproduce(
        &self,
        name: &str,
        reps: Option<u32>,
        jobs: usize,
        report: Report,
    ) -> Result<ExperimentResult, Failure>;
}

/// The models of this build.
#[derive(Clone, Copy, Debug)]
pub struct Linked;

/// What a part that is not linked answers.
fn not_linked(what: &str) -> Failure {
    Failure::run(format!("{what} is not part of this build"))
}

impl Models for Linked {
    type Device = ();
    type Policy = ();
    type Workload = ();

    fn devices(&self) -> Vec<Listed> {
        Vec::new()
    }

    fn device(&self, argument: &str) -> Result<(String, ()), Failure> {
        let embedded: Vec<String> = self.devices().into_iter().map(|d| d.name).collect();
        if embedded.iter().any(|name| name == argument) {
            return Ok((argument.to_string(), ()));
        }
        read_input(argument, "device", "a profile (TOML)", &embedded)?;
        Err(not_linked("the device model"))
    }

    fn policy(&self, argument: &str) -> Result<(String, ()), Failure> {
        if crate::defaults::POLICIES.contains(&argument) {
            return Ok((argument.to_string(), ()));
        }
        Err(Failure::usage(format!(
            "policy '{argument}' is not accepted; expected one of {}",
            crate::defaults::POLICIES.join(", ")
        )))
    }

    fn workload(&self, argument: &str) -> Result<(), Failure> {
        if argument == crate::defaults::WORKLOAD {
            return Ok(());
        }
        read_input(argument, "workload", "a PostMark configuration", &[crate::defaults::WORKLOAD.to_string()])
            .map(drop)
    }

    fn run_model(&self, _: &ModelRun<Self>, _: Report) -> Result<Cell, Failure> {
        Err(not_linked("the model"))
    }

    fn directory_policy(&self, directory: &Path, (): &()) -> Result<String, Failure> {
        if directory.is_dir() {
            Ok("mounted".to_string())
        } else {
            Err(Failure::usage(format!("--target dir:{}: not a directory", directory.display())))
        }
    }

    fn run_directory(&self, _: &Path, _: &str, (): &(), _: u32, _: &AtomicBool) -> Result<Cell, Failure> {
        Err(not_linked("running on a real directory"))
    }

    fn experiments(&self) -> Vec<Listed> {
        Vec::new()
    }

    fn reproduce(
        &self,
        name: &str,
        _: Option<u32>,
        _: usize,
        _: Report,
    ) -> Result<ExperimentResult, Failure> {
        Err(not_linked(&format!("the experiment '{name}'")))
    }
}

/// Reads an input file that was given where a built-in name could stand.
///
/// The largest that makes any sense is far below a mebibyte; a device file or a disk image given by mistake
/// is refused instead of read to its end.
fn read_input(argument: &str, option: &str, what: &str, names: &[String]) -> Result<String, Failure> {
    use std::io::Read;
    const BYTES_MAX: u64 = 1 << 20;

    let fail = |reason: String| Failure::usage(format!("--{option} {argument}: {reason}"));
    let file = match std::fs::File::open(argument) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let built_in = match names {
                [] => String::new(),
                names => format!(" ({})", names.join(", ")),
            };
            return Err(fail(format!("neither a built-in name{built_in} nor a file")));
        }
        Err(e) => return Err(fail(e.to_string())),
    };
    if file.metadata().is_ok_and(|m| m.is_dir()) {
        return Err(fail(format!("a directory, not {what}")));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| fail(e.to_string()))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(fail(format!("larger than 1 MiB: this is not {what}")));
    }
    String::from_utf8(bytes).map_err(|_| fail(format!("not UTF-8 text: this is not {what}")))
}

#[cfg(test)]
pub mod fabricated;
