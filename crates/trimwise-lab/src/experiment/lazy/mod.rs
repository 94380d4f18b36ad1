//! The experiments of the Lazy TRIM paper: figures 3 and 4, and table II.
//!
//! K. Lee, D. H. Kang, D. Jeong and Y. I. Eom, "Lazy TRIM: Optimizing the Journaling Overhead caused by TRIM commands
//! on Ext4 File System", measured a Galaxy S8. The text gives four numbers: the fsync after the removal of a file takes
//! up to 99 % less (at appends of 64 KiB), all TRIMs are issued in up to 60 % less time, and a write that needs a block
//! on a full file system takes 2 ms, 840 ms under lazy TRIM, and 2 ms again with reuse. Everything else is drawn.
//!
//! One profile and one host serve all three. Two numbers of the profile are fitted, to the 60 % and the 840 ms.

mod on_kernel;
mod others;
mod sizes;
mod table2;
mod table2_on_kernel;

pub use sizes::{evaluate_figure_3, evaluate_figure_4, run_size, sizes, sizes_kib};
pub use table2::{FSYNC, FSYNC_NAMES, evaluate_table_2, run_write};
pub use trimwise::compare::watch::Issue;

use trimwise::block::QueueConfig;
use trimwise::fs::host::{CpuCosts, DiscardGeneration, HostConfig};
use trimwise::profile::Profile;
use trimwise::ssd::SsdConfig;
use trimwise::units::{Bytes, SimDuration};

use super::{Experiment, Host, real_ext4};
use crate::plot::{Place, Plot};

pub static FIGURE_3: Experiment = Experiment {
    name: "lazy-3",
    question: "How long does fsync take after the removal of a fragmented file?",
    reps: REPS,
    claims: include_str!("../../../../../experiments/lazy-3/claims.toml"),
    host: Host::ModelOrKernel(real_ext4::KERNEL, others::check),
    run: |request| match &request.target {
        None => Ok(evaluate_figure_3(&sizes::run(request)?, request.seed)),
        Some(target) if others::is_other(target) => others::run(request, target),
        Some(target) => on_kernel::run(request, target, &FIGURE_3, &sizes::FSYNC),
    },
};

pub static FIGURE_4: Experiment = Experiment {
    name: "lazy-4",
    question: "How long does it take to issue all TRIMs of a removed file?",
    reps: REPS,
    claims: include_str!("../../../../../experiments/lazy-4/claims.toml"),
    host: Host::ModelOrKernel(real_ext4::KERNEL, on_kernel::check),
    run: |request| match &request.target {
        None => Ok(evaluate_figure_4(&sizes::run(request)?, request.seed)),
        Some(target) => on_kernel::run(request, target, &FIGURE_4, &sizes::ISSUE),
    },
};

pub static TABLE_2: Experiment = Experiment {
    name: "lazy-table2",
    question: "How long does a write wait that needs a block on a full file system?",
    reps: REPS,
    claims: include_str!("../../../../../experiments/lazy-table2/claims.toml"),
    host: Host::ModelOrKernel(real_ext4::KERNEL, table2_on_kernel::check),
    run: |request| match &request.target {
        None => table2::run(request),
        Some(target) => table2_on_kernel::run(request, target),
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Duration of the measured operation: the fsync after the removal of a file, or the write that needs a block.
    pub took: SimDuration,
    /// The TRIMs of the removed file.
    pub issue: Issue,
}

pub const DEVICE: &str = "ufs21-64gb";

/// The source does not give the number of repetitions. They differ in the phase of the commit timer, and in table II in
/// the file that is removed.
const REPS: u32 = 1;

/// Policies to compare: the source's three, and two more. What the source calls traditional is `commit`.
pub const POLICIES: [&str; 5] = ["commit", "lazy", "lazy+reuse", "judicious", "ideal"];

/// Name of `commit` in figures.
const TRADITIONAL: &str = "commit (traditional)";

pub fn device() -> SsdConfig {
    Profile::embedded(DEVICE).expect("the device is built in").config
}

/// Adds the source's name to that of the policy `commit`, as a series or as a place.
fn labelled(mut plot: Plot) -> Plot {
    let label = |name: &mut String| {
        if name == "commit" {
            *name = TRADITIONAL.to_owned();
        }
    };
    for series in &mut plot.series {
        label(&mut series.name);
        for point in &mut series.points {
            if let Place::In(name) = &mut point.x {
                label(name);
            }
        }
    }
    plot
}

/// The host: a Galaxy S8, 4 GB of memory, Linux 4.4.
pub fn host() -> HostConfig {
    HostConfig {
        // Assumed: Android and the display take the other half of the 4 GB.
        memory: Bytes::gib(2),
        // Android's init.rc (platform/system/core, rootdir): dirty_background_ratio 5, dirty_expire_centisecs 200.
        dirty_background_percent: 5,
        dirty_expire: SimDuration::from_secs(2),
        cpu: CpuCosts {
            // Assumed: twice what a current desktop takes; 2.3 GHz, narrower, slower memory.
            syscall: SimDuration::from_nanos(500),
            page_write: SimDuration::from_nanos(1_200),
            page_read: SimDuration::from_nanos(300),
            copy_page: SimDuration::from_nanos(700),
            open: SimDuration::from_nanos(6_000),
            create: SimDuration::from_nanos(24_000),
            unlink: SimDuration::from_nanos(30_000),
            page_truncate: SimDuration::from_nanos(200),
        },
        // Linux 4.4: SCSI_DEFAULT_MAX_SECTORS, 1,024 sectors.
        queue: QueueConfig { max_request: Bytes::kib(512), ..QueueConfig::default() },
        // Linux 4.4 waits for each discard inside the commit.
        discard: DiscardGeneration::CommitSerial,
        ..HostConfig::of_the_2010s()
    }
}

fn milliseconds(time: SimDuration) -> f64 {
    time.as_nanos() as f64 / 1e6
}
