//! The models and the host of this build.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use trimwise::experiment::cell::{CellError, CellSpec, run_cell};
use trimwise::experiment::postmark_vendors;
use trimwise::experiment::result::{Cell, ExperimentResult, QUANTILES};
use trimwise::fs::host::HostConfig;
use trimwise::fs::layout::FormatOptions;
use trimwise::policy::PolicySpec;
use trimwise::profile::Profile;
use trimwise::workload::latency::Operation;
use trimwise::workload::postmark::{self, Outcome, Phase, PostmarkConfig, Progress, ReportFormat};
use trimwise_host::{RealDirectory, block_on, mount_of};

use super::{Listed, ModelRun, Models, Report, input, workloads};
use crate::defaults::SEED;
use crate::failure::Failure;
use crate::pool;

/// Progress is reported once in so many operations: each takes a microsecond or so, a report little less.
const OPERATIONS_PER_REPORT: u64 = 256;

/// The models of this build.
#[derive(Clone, Copy, Debug)]
pub struct Linked;

impl Models for Linked {
    type Device = Profile;
    type Policy = PolicySpec;
    type Workload = PostmarkConfig;

    fn devices(&self) -> Vec<Listed> {
        Profile::embedded_names()
            .filter_map(Profile::embedded)
            .map(|p| Listed { name: p.name, summary: p.description })
            .collect()
    }

    fn device(&self, argument: &str) -> Result<(String, Profile), Failure> {
        let profile = match Profile::embedded(argument) {
            Some(profile) => profile,
            None => {
                let names: Vec<&str> = Profile::embedded_names().collect();
                let text = input::read(argument, "device", "a profile (TOML)", &names)?;
                Profile::parse(&text, argument).map_err(Failure::usage)?
            }
        };
        Ok((profile.name.clone(), profile))
    }

    fn policy(&self, argument: &str) -> Result<(String, PolicySpec), Failure> {
        let policy: PolicySpec = argument.parse().map_err(Failure::usage)?;
        Ok((policy.name().to_string(), policy))
    }

    fn workload(&self, argument: &str) -> Result<PostmarkConfig, Failure> {
        let names: Vec<&str> = workloads::EMBEDDED.iter().map(|(name, _)| *name).collect();
        let parsed = match workloads::EMBEDDED.iter().find(|(name, _)| *name == argument) {
            Some((name, text)) => PostmarkConfig::parse(text, name),
            None => {
                let text = input::read(argument, "workload", "a PostMark configuration", &names)?;
                PostmarkConfig::parse(&text, argument)
            }
        };
        let mut runs = parsed.map_err(Failure::usage)?.runs;
        match (runs.pop(), runs.len()) {
            (Some(run), 0) => Ok(run.config),
            (_, more) => Err(Failure::usage(format!(
                "--workload {argument}: asks for {} runs; give one `run` a file, so that it is clear what is compared",
                more + 1
            ))),
        }
    }

    fn run_model(&self, run: &ModelRun<Self>, report: Report) -> Result<Cell, Failure> {
        let spec = CellSpec {
            device: run.device.name.clone(),
            ssd: run.device.config.clone(),
            policy: *run.policy,
            workload: run.workload.clone(),
            host: HostConfig { memory: run.memory, discard: run.linux, ..HostConfig::modern() },
            format: FormatOptions::default(),
            utilization_percent: Some(run.utilization_percent.into()),
            rep: run.rep,
            seed: run.seed,
        };
        let finished =
            run_cell(&spec, move |progress| report_phase(&report, progress)).map_err(|e| match e {
                CellError::Device(_) | CellError::Format(_) | CellError::Location(_) => {
                    Failure::usage(format!("{}: {e}", spec.device))
                }
                e => Failure::run(e),
            })?;
        Ok(finished.cell)
    }

    fn directory_policy(&self, directory: &Path, workload: &PostmarkConfig) -> Result<String, Failure> {
        // Opened only to be looked at: a refusal comes before the first file is made.
        let root = RealDirectory::open(directory, Arc::default()).map_err(Failure::usage)?;
        root.plan(workload).map_err(Failure::usage)?;
        Ok(mount_of(directory).map_or("mounted".to_string(), |m| m.discard().to_string()))
    }

    fn run_directory(
        &self,
        directory: &Path,
        policy: &str,
        workload: &PostmarkConfig,
        rep: u32,
        stop: &Arc<AtomicBool>,
        report: Report,
    ) -> Result<Cell, Failure> {
        let root = RealDirectory::open(directory, Arc::clone(stop)).map_err(Failure::run)?;
        let config = root.plan(workload).map_err(Failure::run)?;
        let mut progress = |p| report_phase(&report, p);
        let outcome = block_on(postmark::run(&root, &config, &mut progress))
            .map_err(|_| Failure::run("the run on the directory waited for nothing"))?
            .map_err(|e| if e.is_interrupt() { interrupted(&e) } else { Failure::run(e) })?;
        Ok(directory_cell(directory, policy, rep, &outcome, workload.report))
    }

    fn experiments(&self) -> Vec<Listed> {
        vec![Listed {
            name: postmark_vendors::NAME.to_string(),
            summary: postmark_vendors::QUESTION.to_string(),
        }]
    }

    fn reproduce(
        &self,
        name: &str,
        reps: Option<u32>,
        jobs: usize,
        report: Report,
    ) -> Result<ExperimentResult, Failure> {
        if name != postmark_vendors::NAME {
            return Err(Failure::usage(format!("there is no experiment '{name}'")));
        }
        let columns = postmark_vendors::columns();
        let reps = reps.unwrap_or(postmark_vendors::REPS);
        let done = AtomicU64::new(0);
        let all = columns.len() as u64 * u64::from(reps);
        let means = pool::run_ordered(jobs, columns.len(), |i| {
            let after_each = || report(done.fetch_add(1, Ordering::Relaxed) + 1, all);
            postmark_vendors::run_column(columns[i], reps, SEED, after_each).map_err(Failure::run)
        })?;
        Ok(postmark_vendors::evaluate(&means, SEED))
    }
}

/// An interrupted run that cleaned up is just that; one that could not says what it left.
fn interrupted(error: &postmark::RunError) -> Failure {
    match error {
        postmark::RunError::File { leftovers: Some(_), .. } => Failure::run(error),
        _ => Failure::Interrupted,
    }
}

/// The three phases count the same: which of them is the longest is not known before.
fn report_phase(report: &Report, progress: Progress) {
    if !progress.done.is_multiple_of(OPERATIONS_PER_REPORT) {
        return;
    }
    let phase = match progress.phase {
        Phase::Create => 0,
        Phase::Transactions => 1,
        Phase::Delete => 2,
    };
    let of = progress.of.max(1);
    report(phase * of + progress.done.min(of), 3 * of);
}

fn directory_cell(directory: &Path, policy: &str, rep: u32, outcome: &Outcome, format: ReportFormat) -> Cell {
    let held_by = mount_of(directory).map_or_else(|_| directory.to_path_buf(), |m| m.mount_point);
    let recorded = || Operation::ALL.into_iter().filter_map(|o| Some((o, outcome.latencies.summary(o)?)));
    Cell {
        device: held_by.display().to_string(),
        policy: policy.to_string(),
        target: format!("dir:{}", directory.display()),
        rep,
        duration_ns: outcome.duration().as_nanos(),
        postmark: outcome.figures(),
        device_stats: None,
        latency: recorded().map(|(o, summary)| (o.name(), summary)).collect(),
        latency_quantiles_ns: recorded()
            .map(|(o, _)| (o.name(), outcome.latencies.quantiles(o, &QUANTILES)))
            .collect(),
        postmark_report: postmark::report::of(outcome, format),
    }
}
