//! The one place where the command meets the models and real directories.
//!
//! Everything else in this crate works on names, cells and results through [`Models`], and is tested with
//! fabricated ones.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use trimwise::compare::result::Cell;
use trimwise::fs::host::LinuxVersion;
use trimwise::units::Bytes;
use trimwise_lab::bench::{Results, Settings, Test};
use trimwise_lab::crash::CrashReport;
use trimwise_lab::experiment::result::ExperimentResult;
use trimwise_uml::cell::{KernelPolicy, KernelTarget};
use trimwise_uml::images::KernelImage;
use trimwise_uml::machine::Limits;

use crate::failure::Failure;

/// Progress callback of a run: how much is done, of how much.
pub type Report = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// Progress callback of device tests: the test's number, and how many thousandths of it are done.
pub type BenchProgress = Arc<dyn Fn(usize, u64) + Send + Sync>;

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
    /// All memory of the modelled host.
    pub memory: Bytes,
    /// The modelled host's Linux.
    pub linux: LinuxVersion,
    /// Repetition, from 0.
    pub rep: u32,
    /// The seed of the whole comparison.
    pub seed: u64,
}

/// One run on a real kernel.
#[derive(Clone, Copy, Debug)]
pub struct KernelRun<'a, M: Models + ?Sized> {
    /// The device.
    pub device: &'a M::Device,
    /// The workload.
    pub workload: &'a M::Workload,
    /// The kernel.
    pub image: &'a KernelImage,
    /// Its file system.
    pub target: &'a KernelTarget,
    /// The policy.
    pub policy: KernelPolicy,
    /// How full the file system is made before the run, in percent.
    pub utilization_percent: Option<u8>,
    /// Memory of the guest.
    pub memory: Bytes,
    /// Repetition, from 0.
    pub rep: u32,
    /// The seed of the whole comparison.
    pub seed: u64,
    /// How long the guest may take.
    pub limits: Limits,
    /// Set when the user wants to stop.
    pub stop: &'a Arc<AtomicBool>,
}

/// How to repeat an experiment.
#[derive(Clone, Debug)]
pub struct Reproduction<'a> {
    /// Its name.
    pub name: &'a str,
    /// The real kernel to run it on, if not the model.
    pub target: Option<&'a KernelTarget>,
    /// Repetitions, if not as many as in its source.
    pub reps: Option<u32>,
    /// Runs at a time; `None` for as many as suit this computer.
    pub jobs: Option<u16>,
    /// Parts of it to run, in the experiment's own grammar; empty means all.
    pub only: &'a [String],
    /// Limits of the guests that it boots.
    pub bounds: guests::Bounds,
}

/// An experiment in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// One line about it.
    pub summary: String,
    /// Whether it boots kernels, which must be ended when the user stops it.
    pub boots: bool,
}

/// Where a real directory is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mounted {
    /// Where its file system is mounted; `None` if the system does not say.
    pub point: Option<String>,
    /// `ext4`, `btrfs`...
    pub file_system: Option<String>,
    /// How it uses TRIM, in a word for the table's policy column.
    pub policy: String,
}

/// What can be run.
pub trait Models: Sync {
    /// A device profile.
    type Device: Sync;
    /// A policy.
    type Policy: Sync;
    /// A workload.
    type Workload: Sync;

    /// Finds the device of this name or profile file, or one of its firmware variants; returns it with the name that
    /// tables show.
    fn device(&self, argument: &str) -> Result<(String, Self::Device), Failure>;
    /// Parses a policy; returns it with the name that tables show.
    fn policy(&self, argument: &str) -> Result<(String, Self::Policy), Failure>;
    /// Finds the workload of this name or configuration file.
    fn workload(&self, argument: &str) -> Result<Self::Workload, Failure>;
    /// Whether it is PostMark, which has a report of its own.
    fn is_postmark(&self, workload: &Self::Workload) -> bool;
    /// Rejects a policy that the device cannot carry out.
    fn check_policy(&self, device: &Self::Device, policy: &Self::Policy) -> Result<(), Failure>;
    /// Rejects what cannot fit on the device, before anything runs.
    fn check_room(
        &self,
        device: &Self::Device,
        workload: &Self::Workload,
        utilization_percent: u8,
    ) -> Result<(), Failure>;
    /// Estimates how much memory of this computer one run on the device takes.
    fn memory_of_run(&self, device: &Self::Device) -> Bytes;
    /// Runs one cell in virtual time: deterministic, and the same on any thread.
    fn run_model(&self, run: &ModelRun<Self>, report: Report) -> Result<Cell, Failure>;
    /// Finds the kernel of a target and checks that this computer has everything its file system needs.
    fn kernel(&self, target: &KernelTarget) -> Result<KernelImage, Failure>;
    /// Rejects what cannot run on a kernel, before anything runs.
    fn check_kernel_run(&self, run: &KernelRun<Self>) -> Result<(), Failure>;
    /// Runs one cell on a real kernel in virtual time: deterministic, and the same on any thread.
    fn run_kernel(&self, run: &KernelRun<Self>) -> Result<Cell, Failure>;
    /// Estimates how much memory of this computer such a run takes.
    fn kernel_memory(&self, run: &KernelRun<Self>) -> Bytes;
    /// Describes a real directory; rejects one that the workload cannot use, and, unless `may_fill`, a workload that
    /// takes all the space there.
    fn directory(
        &self,
        directory: &Path,
        workload: &Self::Workload,
        may_fill: bool,
    ) -> Result<Mounted, Failure>;
    /// Runs the workload in a real directory and removes its files there, even when told to stop.
    fn run_directory(
        &self,
        directory: &Path,
        policy: &str,
        workload: &Self::Workload,
        rep: u32,
        stop: &Arc<AtomicBool>,
        report: Report,
    ) -> Result<Cell, Failure>;
    /// The default policies of a crash test.
    fn crash_policies(&self) -> Vec<String>;
    /// Makes one run of a crash test and its cuts: deterministic, and the same on any thread.
    fn crash_run(
        &self,
        policy: &Self::Policy,
        seed: u64,
        cuts: u64,
        run: u64,
    ) -> Result<CrashReport, Failure>;
    /// Runs device tests on a new device in virtual time; when told to stop, returns the results so far.
    fn bench_model(
        &self,
        device: &Self::Device,
        tests: &[Test],
        settings: &Settings,
        stop: &Arc<AtomicBool>,
        on_progress: BenchProgress,
    ) -> Result<Results, Failure>;
    /// Runs device tests on a real file or device, if the user agreed to overwrite it; when told to stop, returns the
    /// results so far.
    fn bench_real(
        &self,
        target: &RealTarget,
        tests: &[Test],
        settings: &Settings,
        stop: &Arc<AtomicBool>,
        on_progress: BenchProgress,
    ) -> Result<Results, Failure>;
    /// The published experiments that can be repeated.
    fn experiments(&self) -> Vec<Listed>;
    /// Rejects a requested experiment that this computer cannot run, before anything runs.
    fn check_reproduction(&self, asked: &Reproduction) -> Result<(), Failure>;
    /// Repeats one of them.
    fn reproduce(&self, asked: &Reproduction, report: Report) -> Result<ExperimentResult, Failure>;
}

mod bench;
mod daemon_week;
pub mod devices;
mod experiments;
#[cfg(test)]
pub mod fabricated;
pub mod guests;
mod input;
mod kernels;
mod lazy_kernel;
mod linked;
mod model_ext4;
mod real;
mod room;
pub mod traces;
mod verdicts;
pub mod verify;
mod workloads;

pub use input::expect_mount;
pub use linked::{Linked, usual_name};
pub use real::RealTarget;
