//! `postmark-vendors`: PostMark with and without discard on six vendors' drives.
//!
//! The published table (L. Czerner, 2010) gives means of ten runs for six drives, with and without PostMark's
//! buffering, with and without ext4's discard. Each drive here has three fitted numbers: the rate of its write path,
//! the time of its read path, and the time of a TRIM command. They are fitted to Transactions/s and Creation_alone/s of
//! the *buffered* columns and nothing else; one host serves all six. The other figures check the model: the deletion
//! phase, in which a cost per file would be wrong by a factor of fifty, and the unbuffered columns.

mod claims;
pub(super) mod rows;

use claims::Table;
use trimwise::block::QueueConfig;
use trimwise::compare::cell::{CellError, CellSpec, run_in_turn};
use trimwise::compare::result::{Cell, PostmarkFigures};
use trimwise::fs::host::{CpuCosts, DiscardGeneration, HostConfig, Writeback};
use trimwise::fs::layout::FormatOptions;
use trimwise::policy::PolicySpec;
use trimwise::profile::Profile;
use trimwise::units::{Bytes, SimDuration};
use trimwise::workload::postmark::PostmarkConfig;

use trimwise_linux::real_kernel;
use trimwise_uml::cell::{KernelCell, KernelPolicy, KernelTarget, KernelWorkload};

use super::result::ExperimentResult;
use super::{Experiment, Host, Request};
use crate::guests;
use trimwise::failure::{Failure, Mistake};
use trimwise_linux::pool;

/// The experiment; the source has ten repetitions.
pub static EXPERIMENT: Experiment = Experiment {
    name: "postmark-vendors",
    question: "Does ext4's discard cost PostMark anything, on six vendors' drives of 2010?",
    reps: 10,
    claims: include_str!("../../../../../experiments/postmark-vendors/claims.toml"),
    host: Host::ModelOrKernel("6.12:ext4", check),
    run: |request| match &request.target {
        None => run(request),
        Some(target) => run_on_kernel(request, target),
    },
};

const PUBLISHED: &str = include_str!("../../../../../experiments/postmark-vendors/published.csv");

pub const DEVICES: [&str; 6] = ["vendor1", "vendor2", "vendor3", "vendor4", "vendor5", "vendor6"];

/// One column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The drive, a built-in profile.
    pub device: &'static str,
    /// PostMark's `buffering`.
    pub buffering: bool,
    /// True if mounted with discard.
    pub discard: bool,
}

impl Column {
    fn profile(&self) -> Profile {
        Profile::embedded(self.device).expect("the six drives are built in")
    }
}

/// Returns all 24 columns in the order of the table, or only those of the drives in `only`.
pub fn columns(only: &[String]) -> Vec<Column> {
    let mut columns = Vec::new();
    for device in DEVICES.into_iter().filter(|device| only.is_empty() || only.iter().any(|o| o == device)) {
        for buffering in [true, false] {
            for discard in [false, true] {
                columns.push(Column { device, buffering, discard });
            }
        }
    }
    columns
}

/// Returns the host, the same for all columns. The source, of 2010, names neither machine nor kernel.
pub fn host() -> HostConfig {
    HostConfig {
        // Assumed: an ordinary test machine of the year.
        memory: Bytes::gib(2),
        cpu: CpuCosts {
            // Assumed: two to three times what Linux 6.18 takes on a server of 2023.
            syscall: SimDuration::from_nanos(500),
            page_write: SimDuration::from_nanos(3_000),
            page_read: SimDuration::from_nanos(500),
            copy_page: SimDuration::from_nanos(1_000),
            open: SimDuration::from_nanos(8_000),
            create: SimDuration::from_nanos(40_000),
            unlink: SimDuration::from_nanos(80_000),
            page_truncate: SimDuration::from_nanos(300),
        },
        // CFQ as of Linux 2.6.32: up to `quantum` (8) background requests, but one at a time while a task waits for the
        // device.
        queue: QueueConfig {
            max_request: Bytes::kib(512),
            background_depth: 8,
            background_ramp: Some(SimDuration::from_millis(100)),
            ..QueueConfig::default()
        },
        // The kernels of that year waited for each discard inside the commit.
        discard: DiscardGeneration::CommitSerial,
        // They also stopped writers at the limit.
        writeback: Writeback::AtTheLimit,
        ..HostConfig::of_the_2010s()
    }
}

pub fn workload(buffering: bool) -> PostmarkConfig {
    PostmarkConfig {
        number: 50_000,
        transactions: 50_000,
        size_low: 1_000,
        size_high: 200_000,
        read_block: 4_096,
        write_block: 4_096,
        bias_read: Some(5),
        bias_create: Some(5),
        buffering,
        ..PostmarkConfig::default()
    }
}

/// Returns the cell of a column: each repetition with a new file system on the same drive, which mkfs discards.
pub fn spec(column: Column, profile: &Profile, seed: u64) -> CellSpec {
    CellSpec {
        device: column.device.to_owned(),
        ssd: profile.config.clone(),
        faults: profile.faults,
        thin: None,
        policy: if column.discard { PolicySpec::COMMIT } else { PolicySpec::OFF }.into(),
        workload: workload(column.buffering).into(),
        days: None,
        host: host(),
        format: FormatOptions::default(),
        utilization: None,
        long_in_use: false,
        rep: 0,
        seed,
    }
}

/// Means over the repetitions of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Means {
    values: [f64; METRICS.len()],
    /// Duration of the deletion phase, calculated by subtraction, as the source's figures allow.
    pub deletion_s: f64,
    reps: u32,
}

const METRICS: [&str; 13] = [
    "Total_duration",
    "Duration_of_transactions",
    "Transactions/s",
    "Files_created/s",
    "Creation_alone/s",
    "Creation_mixed_with_transaction/s",
    "Read/s",
    "Append/s",
    "Deleted/s",
    "Deletion_alone/s",
    "Deletion_mixed_with_transaction/s",
    "Read_B/s",
    "Write_B/s",
];

const TOTAL: usize = 0;
const TRANSACTIONS: usize = 1;
const TRANSACTIONS_PER_S: usize = 2;
const CREATION_ALONE_PER_S: usize = 4;

impl Means {
    /// Returns the metrics of a run, as PostMark 1.51's terse report computes them, but from exact times: there
    /// `Deleted/s` is the number *created*, and `Deletion_alone/s` is over the *creation* phase.
    fn of_run(p: &PostmarkFigures) -> [f64; METRICS.len()] {
        let (total, transactions, creation) = (p.total_s, p.transactions_s, p.creation_alone_s);
        [
            total,
            transactions,
            p.transactions_per_s,
            p.created as f64 / total,
            p.creation_alone_per_s,
            p.created_mixed as f64 / transactions,
            p.read as f64 / transactions,
            p.appended as f64 / transactions,
            p.created as f64 / total,
            p.deletion_alone as f64 / creation,
            p.deleted_mixed as f64 / transactions,
            p.bytes_read as f64 / total,
            p.bytes_written as f64 / total,
        ]
    }

    /// Returns the means of a column's runs of PostMark.
    pub fn of(runs: &[Cell]) -> Self {
        let runs: Vec<&PostmarkFigures> = runs.iter().filter_map(|run| run.workload.postmark()).collect();
        let n = runs.len().max(1) as f64;
        let mut means = Self { reps: runs.len() as u32, ..Self::default() };
        for run in runs {
            for (mean, value) in means.values.iter_mut().zip(Self::of_run(run)) {
                *mean += value / n;
            }
            means.deletion_s += run.deletion_alone_s / n;
        }
        means
    }

    pub fn transactions_per_s(&self) -> f64 {
        self.values[TRANSACTIONS_PER_S]
    }

    /// Before the transactions.
    pub fn creation_alone_per_s(&self) -> f64 {
        self.values[CREATION_ALONE_PER_S]
    }

    /// Returns the published means of a column.
    pub fn published(column: Column) -> Self {
        let mut means = Self { reps: EXPERIMENT.reps, ..Self::default() };
        for row in published() {
            if row.device != column.device || row.buffering != column.buffering {
                continue;
            }
            if let Some(index) = METRICS.iter().position(|m| *m == row.metric) {
                means.values[index] = row.means[usize::from(column.discard)];
            }
        }
        let creation_s = 50_000.0 / means.creation_alone_per_s();
        means.deletion_s = means.values[TOTAL] - means.values[TRANSACTIONS] - creation_s;
        means
    }
}

struct PublishedRow {
    device: &'static str,
    buffering: bool,
    metric: &'static str,
    /// Without and with discard.
    means: [f64; 2],
}

fn published() -> impl Iterator<Item = PublishedRow> {
    PUBLISHED.lines().filter(|line| line.starts_with("vendor")).filter_map(|line| {
        let mut fields = line.split(',');
        Some(PublishedRow {
            device: fields.next()?,
            buffering: fields.next()? == "true",
            metric: fields.next()?,
            means: [fields.next()?.parse().ok()?, fields.next()?.parse().ok()?],
        })
    })
}

/// Runs one column; `after_each` is called after each repetition.
pub fn run_column(column: Column, reps: u32, seed: u64, after_each: &dyn Fn()) -> Result<Means, CellError> {
    Ok(Means::of(&run_in_turn(&spec(column, &column.profile(), seed), reps, after_each)?))
}

fn check(only: &[String], _: Option<&KernelTarget>) -> Result<(), Failure> {
    match only.iter().find(|only| !DEVICES.contains(&only.as_str())) {
        None => Ok(()),
        Some(unknown) => {
            Err(Mistake::of("only", unknown).expected(format!("one of {}", DEVICES.join(", "))).fail())
        }
    }
}

fn run(request: &Request) -> Result<ExperimentResult, Failure> {
    let columns = columns(&request.only);
    let Request { reps, seed, .. } = *request;
    let means =
        request.spread(&DEVICES, columns.len(), reps, |i, step| run_column(columns[i], reps, seed, step))?;
    Ok(evaluate(&columns, &means, seed))
}

/// Runs the same drives, workload and memory with a real file system. The source's processor time is not included.
fn run_on_kernel(request: &Request, target: &KernelTarget) -> Result<ExperimentResult, Failure> {
    let Request { reps, seed, .. } = *request;
    let columns = columns(&request.only);
    let image = guests::image(target)?;
    let guest = guests::guest(&image, host().memory, &request.bounds)?;
    let mut memory = Bytes(0);
    for column in &columns {
        let device = column.profile();
        guests::check_size(&device, target.file_system)?;
        let of_guest = guests::memory_of_guest(guest.memory, &device, None);
        memory = memory.max(Bytes(pool::memory_of_run(&device).0.saturating_add(of_guest.0)));
    }
    let means = request.spread_in(memory, columns.len(), reps, |i, step| {
        let column = columns[i];
        let cell = |rep| {
            KernelCell {
                device: &column.profile(),
                target,
                policy: if column.discard { KernelPolicy::Commit } else { KernelPolicy::Off },
                workload: &KernelWorkload::Postmark(workload(column.buffering).to_text()),
                utilization: None,
                long_in_use: false,
                days: None,
                rep,
                seed,
            }
            .run(&guest)
        };
        let cells = (0..reps).map(|rep| cell(rep).map_err(guests::failure).inspect(|_| step()));
        Ok::<_, Failure>(Means::of(&cells.collect::<Result<Vec<_>, _>>()?))
    })?;
    let mut result = evaluate(&columns, &means, seed);
    let title = real_kernel::title(&image.release, &image.recipe);
    result.finding =
        format!("On kernel:{target} ({}), where computing takes no time: {}", title, result.finding);
    Ok(result)
}

/// Makes rows and claims from the means of these columns. The order of the drives is judged only if all are present.
pub fn evaluate(columns: &[Column], means: &[Means], seed: u64) -> ExperimentResult {
    let table = Table { measured: means, columns };
    let reps = means.first().map_or(0, |m| m.reps);
    let mut result = EXPERIMENT.judge(&table.figures(), &table.rows(), reps, seed);
    result.finding.insert_str(0, &table.finding());
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_table_is_complete() {
        assert_eq!(published().count(), DEVICES.len() * 2 * METRICS.len());
        for column in columns(&[]) {
            let p = Means::published(column);
            assert!(p.values.iter().all(|v| *v > 0.0), "{column:?}");
        }
        let p = Means::published(Column { device: "vendor2", buffering: true, discard: true });
        assert!((p.deletion_s - 97.6).abs() < 0.1, "{}", p.deletion_s);
    }

    #[test]
    fn claims_hold_of_the_published_figures_themselves() {
        for (only, claims) in [(vec![], 11), (vec!["vendor2".to_owned()], 7)] {
            let columns = columns(&only);
            let means: Vec<Means> = columns.iter().copied().map(Means::published).collect();
            let result = evaluate(&columns, &means, 1);
            assert_eq!(result.claims.iter().filter(|c| c.met).count(), claims, "{:#?}", result.claims);
        }
    }

    #[test]
    fn claims_fail_when_discard_costs_nothing() {
        let columns = columns(&[]);
        let mut means: Vec<Means> = columns.iter().copied().map(Means::published).collect();
        for pair in means.chunks_mut(2) {
            pair[1] = pair[0];
        }
        let result = evaluate(&columns, &means, 1);
        let met: Vec<&str> = result.claims.iter().filter(|c| c.met).map(|c| c.id.as_str()).collect();
        assert_eq!(
            met,
            ["postmark-alone", "postmark-alone-fitted", "postmark-small", "postmark-small-fitted"]
        );
    }
}
