//! The modelled ext4 next to that of a real kernel: the same PostMark on the same drive, and the requests that reach
//! it.
//!
//! The guest's processor takes no time, so the model's takes none either; the model's memory and journal are those of
//! the guest. Requests are counted from the start of PostMark until [`SETTLE`] after its end, when everything has been
//! written; the duration is PostMark's own.
//!
//! This module is pure: it runs the model and judges. Its caller boots the kernels and provides their results.

mod claims;
pub mod log;

pub use claims::{COMPARED, Compared, error_percent};

use std::cell::RefCell;
use std::rc::Rc;

use log::{Entry, Places, Traffic};
use serde::Serialize;
use trimwise::block::{BlockQueue, Stage};
use trimwise::compare::cell::{CellError, audited};
use trimwise::engine::Sim;
use trimwise::fs::Volume;
use trimwise::fs::host::{HostConfig, Slabs};
use trimwise::fs::layout::FormatOptions;
use trimwise::policy::PolicySpec;
use trimwise::profile::Profile;
use trimwise::ssd::{Drive, SsdConfig};
use trimwise::units::{Bytes, SimDuration, UNIT_BYTES};
use trimwise::workload::postmark::{self, PostmarkConfig};

use super::claims::Published;
use super::result::{ExperimentResult, ExperimentRows};

/// Name on the command line.
pub const NAME: &str = "model-ext4";

/// The question that it answers.
pub const QUESTION: &str = "How close is the modelled ext4 to that of a real kernel?";

/// Nothing is drawn at random: one run is enough.
pub const REPS: u32 = 1;

/// The kernel.
pub const KERNEL: &str = "6.1";

/// The drive.
pub const DEVICE: &str = "sata-generic";

/// Capacity: more than any of the workloads fills, so that there are always free blocks to take.
pub const CAPACITY: Bytes = Bytes::gib(8);

/// The guest's memory; about half of it remains for the page cache.
pub const GUEST_MEMORY: Bytes = Bytes::mib(256);

/// How long both rest after the mount, and after PostMark before counting ends: twice the age at which dirty data is
/// written.
pub const SETTLE: SimDuration = SimDuration::from_secs(70);

/// A PostMark configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its name in the tables.
    pub name: &'static str,
    /// Its text, as PostMark reads it.
    pub config: &'static str,
}

/// Three shapes: metadata dominate the first, the flow of data the second; the third reads and appends over more than
/// fits into memory.
pub const SHAPES: [Shape; 3] = [
    Shape {
        name: "small",
        config: "set number 20000\nset transactions 100000\nset size 500 20000\nset buffering false\nset write 4096\n\
                 set read 4096\n",
    },
    Shape {
        name: "large",
        config: "set number 120\nset transactions 1500\nset size 2000000 10000000\nset buffering false\n\
                 set write 65536\nset read 65536\n",
    },
    Shape {
        name: "mixed",
        config: "set number 4000\nset transactions 20000\nset size 1000 200000\nset buffering false\nset write 4096\n\
                 set read 4096\n",
    },
];

/// What to run on the kernel and in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The workload.
    pub shape: &'static Shape,
    /// Whether the mount discards.
    pub discard: bool,
}

impl Case {
    /// `small, commit`.
    pub fn name(&self) -> String {
        format!("{}, {}", self.shape.name, self.policy())
    }

    /// Returns the policy, which both have under the same name.
    pub fn policy(&self) -> PolicySpec {
        if self.discard { PolicySpec::COMMIT } else { PolicySpec::OFF }
    }
}

/// All cases, in the order of the tables.
pub fn cases() -> Vec<Case> {
    let with = |shape| [false, true].map(|discard| Case { shape, discard });
    SHAPES.iter().flat_map(with).collect()
}

/// Returns the drive of both.
///
/// # Errors
/// [`CellError::Device`] if the profile is invalid.
pub fn device() -> Result<SsdConfig, CellError> {
    let profile = Profile::embedded(DEVICE).expect("the device is built in");
    Ok(profile.config.shrunk(CAPACITY.0)?)
}

/// Properties of the guest that affect its file system, as reported before PostMark began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GuestFacts {
    /// Dirty pages beyond which write-back starts (`nr_dirty_background_threshold` of /proc/vmstat).
    pub background_pages: u64,
    /// Dirty pages beyond which writers would be stopped (`nr_dirty_threshold`).
    pub dirty_pages: u64,
    /// Pages of the guest's programs and of files elsewhere (`Cached` of /proc/meminfo).
    pub cached_pages: u64,
    /// Blocks of the journal that mkfs made.
    pub journal_blocks: u64,
}

impl GuestFacts {
    /// Returns the model's host. Its memory follows from the dirty limits, which are shares of the memory that pages
    /// may fill.
    fn host(&self) -> HostConfig {
        let linux = KERNEL.parse().expect("it is a version");
        let guest = HostConfig::in_guest(linux, GUEST_MEMORY);
        HostConfig {
            memory: Bytes::from_units(self.dirty_pages * 100 / guest.dirty_percent),
            slabs: Slabs { programs_bytes: self.cached_pages * UNIT_BYTES, ..guest.slabs },
            ..guest
        }
    }
}

/// The results of one side, the kernel or the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Side {
    /// PostMark's duration.
    pub duration_ns: u64,
    /// Transactions committed.
    pub commits: u64,
    /// Requests to the drive.
    #[serde(flatten)]
    pub traffic: Traffic,
}

/// Both sides of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// The workload's name.
    pub shape: &'static str,
    /// `off` or `commit`.
    pub policy: String,
    /// Properties of the guest.
    pub guest: GuestFacts,
    /// The results on the kernel.
    pub kernel: Side,
    /// The results in the model.
    pub model: Side,
}

impl Pair {
    /// Runs the model for comparison with the kernel.
    ///
    /// # Errors
    /// [`CellError`].
    pub fn beside(case: Case, guest: GuestFacts, kernel: Side, seed: u64) -> Result<Self, CellError> {
        let model = run_model(case, guest, seed)?;
        Ok(Self { shape: case.shape.name, policy: case.policy().to_string(), guest, kernel, model })
    }
}

/// Runs the model.
///
/// # Errors
/// [`CellError`].
pub fn run_model(case: Case, guest: GuestFacts, seed: u64) -> Result<Side, CellError> {
    let sim = Sim::new();
    let host = guest.host();
    let queue = BlockQueue::new(&sim, Drive::new(&device()?, Default::default(), seed)?, host.queue);
    let parsed = PostmarkConfig::parse(case.shape.config, case.shape.name);
    let config = parsed.expect("it is written here").runs[0].config.for_model()?;
    sim.run(async move {
        let format = FormatOptions {
            journal: Some(Bytes::from_units(guest.journal_blocks)),
            discard: false,
            ..FormatOptions::TODAY
        };
        let volume = Volume::format(&queue, format).await?;
        let fs = volume.mount(host, case.policy().governor()).await;
        let sim = queue.sim();
        sim.sleep(SETTLE).await;

        let log: Rc<RefCell<Vec<Entry>>> = Rc::default();
        let tracer = Rc::clone(&log);
        queue.trace(Some(Box::new(move |_, stage, command| {
            if stage == Stage::Dispatched {
                tracer.borrow_mut().extend(Entry::of(command));
            }
        })));
        let before = fs.commits();
        let result = postmark::run(&fs, &config, &mut |_| ()).await;
        let outcome = result.map_err(|source| CellError::Workload {
            device: DEVICE.to_owned(),
            policy: case.policy().to_string(),
            source: Box::new(source),
        })?;
        sim.sleep(SETTLE).await;
        queue.trace(None);
        let traffic =
            Traffic::of(&log.borrow(), &Places::new(vec![fs.journal_blocks()], fs.metadata_blocks()));
        let commits = fs.commits() - before;
        audited(fs, DEVICE, &case.policy()).await?;
        Ok(Side { duration_ns: outcome.duration().as_nanos(), commits, traffic })
    })?
}

/// Makes the table and the claims.
pub fn evaluate(pairs: &[Pair], seed: u64) -> ExperimentResult {
    let published = Published {
        name: NAME,
        question: QUESTION,
        claims: include_str!("../../../../../experiments/model-ext4/claims.toml"),
    };
    published.judge(&claims::figures(pairs), ExperimentRows::Beside(pairs.to_vec()), REPS, seed)
}
