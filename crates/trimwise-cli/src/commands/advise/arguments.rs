//! Arguments of `advise`.

use std::path::PathBuf;

use clap::Args;
use trimwise::compare::result::Measure;
use trimwise::units::Utilization;
use trimwise::workload::days::{DAYS_MAX, DayShape};

use crate::arguments::{GuestLimits, OutputArguments, whole, whole_in, word};
use trimwise_linux::file_system::FileSystem;
use trimwise_study::check::REPS;
use trimwise_study::compare::CompareRequest;
use trimwise_study::compare::target::Checking;
use trimwise_study::defaults;
use trimwise_study::given::Given;

#[derive(Clone, Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct AdviseArguments {
    /// The workload, as for `trimwise compare`: PostMark configuration or built-in name, application, job:FILE.fio,
    /// append, fullwrite, or a recording, trace:FILE [default: desktop with --here, or else
    /// maildir:deliveries=10k, both over a week]
    #[arg(long, short = 'w', value_name = "FILE.pmrc|NAME|job:FILE.fio|SPEC", value_parser = word)]
    pub workload: Option<String>,

    /// SSD profile: built-in name (see `trimwise devices`) or TOML file [default: sata-small]
    #[arg(long, short = 'd', value_name = "NAME|FILE", value_parser = word)]
    pub device: Option<String>,

    /// Take drive, kernel, memory and fullness from the file system that contains PATH, which is also the one that
    /// --apply changes
    #[arg(long, value_name = "PATH")]
    pub here: Option<PathBuf>,

    /// Model the whole drive that --here found and all of its work, however large
    #[arg(long, requires = "here")]
    pub full_size: bool,

    /// The file system: ext4 is the model; xfs, btrfs and f2fs run themselves, in virtual time, on the built kernel that is
    /// closest to --linux (see `trimwise kernel`) [default: that of --here, or else ext4]
    #[arg(long, value_name = "ext4|xfs|btrfs|f2fs")]
    pub fs: Option<FileSystem>,

    /// About how many minutes advice on a kernel may take: this decides how often policies are compared, and whether
    /// trimwised is tried [default: 15]
    #[arg(long, value_name = "MINUTES", value_parser = whole_in(&defaults::BUDGETS_MIN), allow_negative_numbers = true)]
    pub budget: Option<u32>,

    /// How full the file system is before the run [default: 80]
    #[arg(long, value_name = "PCT", allow_negative_numbers = true)]
    pub utilization: Option<Utilization>,

    /// Linux version of the modelled host [default: 6.12]; with --check the kernel named there
    #[arg(long, value_name = "VERSION")]
    pub linux: Option<String>,

    /// Memory of the machine in MiB [default: 1024]
    #[arg(long, value_name = "MIB", value_parser = whole::<u64>(defaults::MEMORY_MIB_MIN, defaults::MEMORY_MIB_MAX), allow_negative_numbers = true)]
    pub memory: Option<u64>,

    /// What policies are judged by: `total`, or a latency such as p99:fsync
    #[arg(long, value_name = "total|p99:fsync|...")]
    pub judge: Option<Measure>,

    /// Spread the workload's operations over this many days, such as 7. Then weekly and daily fstrim and trimwised itself
    /// are tried, and policies are judged by the time that the workload waits in its operations. 0: without a pause
    /// [default: 7 with --here or without --workload, if the workload can be spread, or else 0]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(0, u64::from(DAYS_MAX)), allow_negative_numbers = true)]
    pub days: Option<u32>,

    /// How the work is spread over the hours of each day, as for `trimwise compare` [default: that of the workload]
    #[arg(long, value_name = "SHAPE")]
    pub day: Option<DayShape>,

    /// Also run those of the compared policies that a stock kernel has on a real one: kernel:VERSION:ext4[:MOUNT_OPTIONS]
    #[arg(long, value_name = "kernel:VERSION:ext4")]
    pub check: Option<Given<Checking>>,

    /// If a change is recommended for --here, make it, and print each command as it runs
    #[arg(long, requires = "here")]
    pub apply: bool,

    /// Also print what explains the conclusion: the host, the cost of other choices, what was tried
    #[arg(long)]
    pub details: bool,

    /// Repetitions of the final comparison, with seeds that the search did not use
    #[arg(long, short = 'n', value_name = "N", default_value_t = defaults::ADVICE_REPS,
          value_parser = whole_in(&REPS), allow_negative_numbers = true)]
    pub reps: u32,

    /// Seed of the search; the final comparison uses the next one [default: 1]
    #[arg(long, short = 's', value_name = "N", value_parser = whole::<u64>(0, u64::MAX - 1),
          allow_negative_numbers = true)]
    pub seed: Option<u64>,

    #[command(flatten)]
    pub limits: GuestLimits,

    #[command(flatten)]
    pub output: OutputArguments,
}

const EXAMPLES: &str = "Examples:\n  \
    trimwise advise --here /\n      \
    what to do about TRIM on /, if its use is like a desktop's\n  \
    trimwise advise --here /var/lib --workload oltp --apply\n      \
    for a database; makes the recommended change, if there is one\n  \
    trimwise advise --here /var/lib --workload trace:db.trace\n      \
    for a recorded workload (`trimwise record`)\n  \
    trimwise advise --workload lsm --judge p99:fsync --device nvme-generic\n      \
    the policy whose slow fsyncs are shortest\n  \
    trimwise advise --fs xfs --workload desktop --days 7\n      \
    XFS itself, from a real kernel, in at most a quarter of an hour\n  \
    trimwise advise --workload oltp --check kernel:6.12:ext4\n      \
    the model's answer, checked on a real kernel\n\n\
    What is tried, and how to read the answer: docs/guide.md";

impl AdviseArguments {
    pub fn request(&self) -> CompareRequest {
        CompareRequest {
            workload: self.workload.clone().unwrap_or_default(),
            devices: self.device.iter().cloned().collect(),
            here: self.here.clone(),
            full_size: self.full_size,
            check: self.check.clone(),
            fs: self.fs,
            budget_min: self.budget,
            utilization: self.utilization.map(Given::of),
            linux: self.linux.clone(),
            memory: self.memory,
            judge: self.judge,
            days: self.days,
            day: self.day.clone(),
            reps: self.reps,
            seed: self.seed,
            limits: self.limits.request(),
            jobs: self.output.jobs,
            ..CompareRequest::default()
        }
    }
}
