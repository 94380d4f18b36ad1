//! `set-1a` and `set-1b`: when TRIM at every commit is worth its time, and whether SeT knows it.
//!
//! Both are from "To TRIM or Not to TRIM: Judicious TRIMing for Solid State Drives" (SOSP 2011, poster). Its figures
//! are drawn without numbers, so only their shape is checked. Both use one drive, one host and one way of ageing;
//! [`Setting`] and the READMEs document what the source leaves open.

mod on_kernel;
pub mod one_a;
mod one_a_on_kernel;
pub mod one_b;
mod one_b_on_kernel;

use trimwise::block::BlockQueue;
use trimwise::compare::cell::{CellError, SETTLING, commit_phase};
use trimwise::engine::Sim;
use trimwise::fs::host::HostConfig;
use trimwise::fs::layout::FormatOptions;
use trimwise::fs::{Ext4, Volume, VolumeImage};
use trimwise::policy::PolicySpec;
use trimwise::profile::Profile;
use trimwise::ssd::{Ssd, SsdConfig, SsdStats};
use trimwise::units::{Bytes, SimDuration, Utilization};
use trimwise::workload::ageing::Population;
use trimwise::workload::latency::Operation;
use trimwise::workload::postmark::{self, PostmarkConfig};

use super::{Experiment, Host, postmark_vendors, real_ext4};

/// The source does not give its number of repetitions.
pub static ONE_A: Experiment = Experiment {
    name: "set-1a",
    question: "How full must a drive be before TRIM at every commit is worth its time to PostMark?",
    reps: 1,
    claims: include_str!("../../../../../experiments/set-1a/claims.toml"),
    host: Host::ModelOrKernel(real_ext4::KERNEL, one_a_on_kernel::check),
    run: |request| match &request.target {
        None => one_a::run_all(request),
        Some(target) => one_a_on_kernel::run(request, target),
    },
};

/// The source does not give its number of repetitions.
pub static ONE_B: Experiment = Experiment {
    name: "set-1b",
    question: "Does SeT, which turns TRIM on and off, beat TRIM that is always on or always off?",
    reps: 1,
    claims: include_str!("../../../../../experiments/set-1b/claims.toml"),
    host: Host::ModelOrKernel(real_ext4::KERNEL, one_b_on_kernel::check),
    run: |request| match &request.target {
        None => one_b::run_all(request),
        Some(target) => one_b_on_kernel::run(request, target),
    },
};

pub(crate) const DEVICE: &str = "sata-60gb-2011";

#[derive(Clone, Debug)]
pub struct Setting {
    pub ssd: SsdConfig,
    pub host: HostConfig,
    pub format: FormatOptions,
    pub workload: PostmarkConfig,
    /// Further ageing after the file system was full: the number of turns, and what is left of it in each before it is
    /// filled again.
    pub turnovers: (u32, Utilization),
}

impl Setting {
    /// Returns the source's settings, with these assumptions:
    ///
    /// - the machine: that of `postmark-vendors`, with a kernel that waits for each discard inside the commit;
    /// - PostMark's block size, seed and buffering: 4 KiB, and the defaults otherwise;
    /// - how the file system was aged: filled, and then a fifth of it replaced five times, so that as much was
    ///   written again as it holds.
    pub fn published() -> Self {
        Self {
            ssd: Profile::embedded(DEVICE).expect("the drive is built in").config,
            host: postmark_vendors::host(),
            format: FormatOptions::default(),
            workload: PostmarkConfig {
                number: 4_250,
                transactions: 20_000,
                size_low: 100_000,
                size_high: 3_000_000,
                read_block: 4_096,
                write_block: 4_096,
                ..PostmarkConfig::default()
            },
            turnovers: (5, Utilization::of(80)),
        }
    }

    /// Returns a sixteenth of these settings in everything that has a size.
    #[must_use]
    pub fn sixteenth(mut self) -> Self {
        self.ssd.capacity_bytes /= 16;
        let geometry = &mut self.ssd.geometry;
        geometry.blocks_per_plane = geometry.blocks_per_plane.map(|blocks| blocks / 16 + 2);
        self.workload.number /= 16;
        self.workload.transactions /= 16;
        self.host.memory.0 /= 16;
        self
    }
}

/// A full file system, with its files and the drive below.
#[derive(Clone)]
pub struct Aged {
    volume: VolumeImage,
    files: Population,
}

/// Ages a new drive until it is full, without TRIM except by mkfs. All runs start from this state.
pub fn age(setting: &Setting, seed: u64) -> Result<Aged, CellError> {
    let sim = Sim::new();
    let queue = BlockQueue::new(&sim, Ssd::new(&setting.ssd, seed)?, setting.host.queue);
    let Setting { host, format, turnovers: (times, left), .. } = *setting;
    sim.run(async move {
        let volume = Volume::format(&queue, format).await?;
        let fs = volume.mount(host, PolicySpec::OFF.governor()).await;
        let mut files = Population::new(&fs, seed).await?;
        files.fill(&fs).await?;
        for _ in 0..times {
            files.delete_to(&fs, left).await?;
            files.fill(&fs).await?;
        }
        Ok(Aged { volume: fs.unmount().await.image(), files })
    })?
}

/// A run of PostMark and its effect on the drive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// In percent, as the drive sees it at the start.
    pub device_utilization_percent: f64,
    pub total_s: f64,
    pub write_amplification: f64,
    pub copied_gib: f64,
    pub trim_commands: u64,
    /// Time that the drive spent on TRIM.
    pub trim_s: f64,
    /// Mean space that was free in the file system and valid in the drive, in percent of the drive.
    pub stale_percent: f64,
    /// 99th percentile of the latency of the worst kind of operation.
    pub p99_ms: f64,
}

impl Run {
    /// Returns the drive's part of the figures.
    fn of(total_s: f64, mapped_units: u64, capacity_units: u64, stats: &SsdStats) -> Self {
        Self {
            device_utilization_percent: 100.0 * mapped_units as f64 / capacity_units as f64,
            total_s,
            write_amplification: stats.write_amplification(),
            copied_gib: Bytes::from_units(stats.nand_units.gc).0 as f64 / Bytes::gib(1).0 as f64,
            trim_commands: stats.trim.commands,
            trim_s: SimDuration::from_nanos(stats.busy_ns.trim).as_secs_f64(),
            ..Self::default()
        }
    }
}

/// Lets the drive rest, runs PostMark and measures its effects. `rep` decides the phase of the commit timer.
async fn postmark_on(
    fs: &Ext4,
    workload: &PostmarkConfig,
    policy: PolicySpec,
    rep: u32,
) -> Result<Run, CellError> {
    let sim = fs.queue().sim();
    sim.sleep(SETTLING + commit_phase(rep)).await;
    let (before, mapped, capacity) = fs.queue().with_ssd_mut(|ssd| {
        ssd.catch_up(sim.now());
        (*ssd.stats(), ssd.mapped_units(), ssd.capacity_units())
    });
    fs.restart_stale();
    let outcome = postmark::run(fs, workload, &mut |_| ()).await.map_err(|source| CellError::Workload {
        device: DEVICE.to_owned(),
        policy: policy.to_string(),
        source: Box::new(source),
    })?;
    let stats: SsdStats = fs.queue().with_ssd(|ssd| *ssd.stats()).since(&before);
    let (_, stale_units) = fs.stale_max_and_mean();
    let p99_ns = Operation::ALL
        .into_iter()
        .filter_map(|o| Some(outcome.latencies.summary(o)?.p99_ns))
        .max()
        .unwrap_or(0);
    Ok(Run {
        stale_percent: 100.0 * stale_units / capacity as f64,
        p99_ms: SimDuration::from_nanos(p99_ns).as_secs_f64() * 1e3,
        ..Run::of(outcome.duration().as_secs_f64(), mapped, capacity, &stats)
    })
}
