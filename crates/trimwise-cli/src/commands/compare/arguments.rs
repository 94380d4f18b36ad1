//! Arguments of `compare`.

use std::path::PathBuf;

use clap::Args;
use trimwise::block::thin::ThinConfig;
use trimwise::compare::result::Measure;
use trimwise::policy::{PolicyId, terms};
use trimwise::units::Utilization;
use trimwise::workload::days::{DAYS_MAX, DayShape};
use trimwise_linux::file_system::FileSystem;

use crate::arguments::GuestLimits;
use crate::arguments::{OutputArguments, policy_help, whole, whole_in, word};
use crate::gate::GateArguments;
use trimwise_study::check::REPS;
use trimwise_study::compare::target::{Checking, RunOn};
use trimwise_study::defaults;
use trimwise_study::given::Given;

#[derive(Debug, Args)]
#[command(after_long_help = compare_help())]
pub struct CompareArguments {
    /// PostMark configuration file or the name of a built-in one; an application, NAME[:KEY=VALUE,...] (lsm, oltp...:
    /// see `trimwise workloads`), or several side by side, as in oltp+logs; a fio job file, job:FILE.fio; or a benchmark that times one operation:
    /// append[:APPEND[:FILE]], the fsync after removing a fragmented file, or fullwrite[:APPEND[:FILE]][:nofsync], a
    /// write to a full file system, with or without an fsync before it; or trace:[FORMAT:]FILE[:OPTION...], a block
    /// trace, replayed open (at its recorded times) or closed (as fast as its requests depend on each other); or
    /// cmd:'[SETUP ;; ]PROGRAM ARGUMENTS', a program on this computer, with --target kernel:... or dir:PATH
    /// [default: desktop with --here, on the model maildir:deliveries=10k over a week, and elsewhere default, which is
    /// PostMark]
    #[arg(long, short = 'w', value_name = "FILE.pmrc|NAME|job:FILE.fio|SPEC", value_parser = word)]
    pub workload: Option<String>,

    /// SSD profile: built-in name (see `trimwise devices`) or TOML file; @VERSION after it chooses one of its
    /// firmwares; one or more [default: sata-small]
    #[arg(long = "device", short = 'd', value_name = "NAME|FILE", num_args = 1.., value_parser = word)]
    pub devices: Vec<String>,

    /// Thin storage between the file system and the drive, in chunks of this size, and what it holds: LVM's by its rules
    /// (64KiB to 1GiB), or KIND:CHUNK, where KIND is thin, qcow2, image (a file with holes) or zeros (an array that looks
    /// for them); one or more. The same as --device NAME+KIND:CHUNK
    #[arg(long, value_name = "[KIND:]CHUNK", num_args = 1.., value_delimiter = ',', conflicts_with = "here")]
    pub thin: Vec<ThinConfig>,

    /// Take drive, kernel, memory and fullness from the file system that contains PATH; a built-in profile stands in for
    /// the drive. An explicit --device, --utilization, --linux or --memory overrides what was found
    #[arg(long, value_name = "PATH")]
    pub here: Option<PathBuf>,

    /// Model the whole drive that --here found and all of its work, however large
    #[arg(long, requires = "here")]
    pub full_size: bool,

    #[arg(long = "policy", short = 'p', value_name = "P", num_args = 1.., help = policy_help())]
    pub policies: Vec<Given<PolicyId>>,

    /// Where to run: `model` (virtual time); `kernel:VERSION:FS[:MOUNT_OPTIONS]`, a real kernel on the
    /// modelled drive (virtual time; FS is ext4, xfs, btrfs or f2fs); `dir:PATH`, an existing directory
    /// (real time)
    #[arg(long, short = 't', value_name = "model|kernel:...|dir:PATH", default_value = "model")]
    pub target: Given<RunOn>,

    /// The file system: ext4 is the model; xfs, btrfs and f2fs run themselves, in virtual time, on the built kernel that is
    /// closest to --linux (see `trimwise kernel`) [default: that of --here, or else ext4]
    #[arg(long, value_name = "ext4|xfs|btrfs|f2fs")]
    pub fs: Option<FileSystem>,

    /// Also run the policies that a stock kernel has (off, commit, batch) on a real one with the same memory, and
    /// report first where it contradicts the model: kernel:VERSION:ext4[:MOUNT_OPTIONS]
    #[arg(long, value_name = "kernel:VERSION:ext4")]
    pub check: Option<Given<Checking>>,

    /// With fullwrite on a real directory: confirm that it may fill the file system; its files are then removed
    #[arg(long)]
    pub fill: bool,

    /// Age the file system first: fill it, then delete files at random, under the policy, until this share is in use
    /// [default: 80]; on a kernel, the file system is new unless this is given
    #[arg(long, value_name = "PCT", allow_negative_numbers = true)]
    pub utilization: Option<Utilization>,

    /// Linux version of the modelled host, 2.6 or later: it decides how discard works, how writers are paced and how
    /// write-back is held back [default: 6.12]; with --check the kernel named there
    #[arg(long, value_name = "VERSION")]
    pub linux: Option<String>,

    /// Memory of the machine in MiB, including what the kernel needs [default: 1024]
    #[arg(long, value_name = "MIB", value_parser = whole::<u64>(defaults::MEMORY_MIB_MIN, defaults::MEMORY_MIB_MAX), allow_negative_numbers = true)]
    pub memory: Option<u64>,

    /// What policies are judged by: `total`, the duration of the run, or a latency: p50, p99, p99.9 or max of fsync,
    /// write, read, create, append or unlink; `append` and `fullwrite` are judged by the operation that they time
    #[arg(long, value_name = "total|p99:fsync|...")]
    pub judge: Option<Measure>,

    /// Also print PostMark's own report of each run, verbose or terse as the workload says
    #[arg(long)]
    pub postmark: bool,

    /// Repetitions of each device and policy; they differ only by named physical causes
    #[arg(long, short = 'n', value_name = "N", default_value_t = defaults::REPS,
          value_parser = whole_in(&REPS), allow_negative_numbers = true)]
    pub reps: u32,

    /// Seed of everything drawn at random in the model: same seed, same result [default: 1]
    #[arg(long, short = 's', value_name = "N", value_parser = whole::<u64>(0, u64::MAX), allow_negative_numbers = true)]
    pub seed: Option<u64>,

    /// In virtual time: spread the workload's operations over this many days, so that weekly and daily sweeps (batch:1w,
    /// batch:1d) and the daemon (trimwised, trimwised:POLICY) can be compared. Idle time takes next to no real time.
    /// Policies are judged by the time that the workload waits in its operations. 0: without a pause
    /// [default: 7 with --here or without --workload, if the workload can be spread, or else 0]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(0, u64::from(DAYS_MAX)), allow_negative_numbers = true)]
    pub days: Option<u32>,

    /// How the work is spread over the hours of each day: server, office, nightly, flat (see `trimwise workloads`), or 24
    /// weights from midnight, W,W,...; after a / 24 others for weekends [default: that of the workload, such as office for desktop]
    #[arg(long, value_name = "SHAPE")]
    pub day: Option<DayShape>,

    /// Also print what explains the conclusion: the host, latencies, the ledger, causes, notes
    #[arg(long)]
    pub details: bool,

    #[command(flatten)]
    pub gate: Box<GateArguments>,

    #[command(flatten)]
    pub limits: GuestLimits,

    #[command(flatten)]
    pub output: OutputArguments,
}

/// Examples for the help of `compare`; the terms of policies are listed above them.
const COMPARE_EXAMPLES: &str = "Examples:\n  \
    trimwise compare\n      \
    a week of a mail server on a built-in device, with everything at its default\n  \
    trimwise compare --here /home\n      \
    what to do about TRIM on /home: its drive's class, its fullness, this kernel, a desktop's week\n  \
    trimwise compare --policy off set:40:90+lazy+reuse batch:10s ideal\n      \
    your own policies; join terms with `+`\n  \
    trimwise compare --workload append:64KiB:256MiB --policy commit lazy ideal\n      \
    how long fsync takes after a file in that many fragments is removed\n  \
    trimwise compare --workload lsm:reads=90 --judge p99:fsync\n      \
    an LSM tree with more gets than puts, judged by its slow fsyncs; see `trimwise workloads`\n  \
    trimwise compare --workload job:mine.fio --policy off commit\n      \
    your fio job\n  \
    trimwise compare --workload mail.pmrc --device my-ssd.toml --utilization 80\n      \
    your PostMark configuration on your device profile, 80 % full\n  \
    trimwise compare --device sata-small sata-generic --json - | jq .conclusion\n      \
    two devices, for another program to read\n  \
    trimwise compare --baseline before.json --fail-if \"commit > baseline by 5 %\"\n      \
    exit code 1 if discard takes more than 5 % longer than in the saved result\n  \
    trimwise compare --days 7 --workload desktop --day office\n      \
    a desktop's week: no TRIM, discard, weekly fstrim and the daemon in one table\n  \
    trimwise compare --fs xfs --policy nodiscard discard\n      \
    XFS itself, from a real kernel, in the place of the modelled ext4\n  \
    trimwise compare --target kernel:6.1:ext4 --reps 1\n      \
    the real ext4 of Linux 6.1 on the modelled drive; see `trimwise kernel`\n  \
    trimwise compare --policy off commit batch:30s --check kernel:6.12:ext4\n      \
    the model, and what the real ext4 of Linux 6.12 gives with the same policies\n  \
    trimwise compare --target kernel:6.12:ext4 --workload \"cmd:fio $PWD/mine.fio\"\n      \
    fio itself on that ext4, in virtual time\n  \
    trimwise compare --target kernel:6.12:ext4 --utilization 80 \\\n      \
      --workload \"cmd:sqlite3 a.db '.read $PWD/make.sql' ;; sqlite3 a.db '.read $PWD/use.sql'\"\n      \
    sqlite on a database that was made and synced before\n  \
    trimwise compare --target dir:/mnt/test --report report/\n      \
    the workload on a real directory, as mounted\n\n\
    How to read the table, and what each figure means: docs/guide.md";

/// Help text below the options of `compare`.
fn compare_help() -> String {
    let mut help = String::from("Terms of policies (`trimwise policies` lists them too, with examples):\n");
    for (term, meaning) in terms() {
        help += &format!("  {term}\n      {meaning}\n");
    }
    help + "\n" + COMPARE_EXAMPLES
}
