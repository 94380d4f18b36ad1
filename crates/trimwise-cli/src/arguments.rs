//! The command line, as its users see it.

mod daemon;
mod device;
mod doctor;
mod kernel;
mod verify;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use trimwise::content::ContentClass;
use trimwise::policy::terms;
use trimwise::units::Bytes;
use trimwise_lab::bench::{Part, TESTS};

use crate::defaults;
pub use daemon::{
    ConfigArguments, ConfigCheckArguments, ConfigCommand, ExplainArguments, HistoryArguments, PauseArguments,
    StatusArguments,
};
pub use device::{
    AttachArguments, DetachArguments, DeviceArguments, DeviceCommand, DriveArguments, ListArguments,
    ServeArguments,
};
pub use doctor::DoctorArguments;
pub use kernel::{
    GuestLimits, KernelArguments, KernelBuildArguments, KernelCommand, KernelListArguments,
    KernelRemoveArguments, KernelRunArguments,
};
pub use verify::VerifyArguments;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "trimwise",
    version,
    about = "To TRIM or not to TRIM? Answered for one SSD, file system and workload, with numbers.",
    long_about = "To TRIM or not to TRIM? Answered for one SSD, file system and workload, with numbers.\n\n\
                  trimwise runs a workload on models of an SSD and of ext4 in virtual time, once for each TRIM \
                  policy, and says which policy to use and by how much it is better. The same workload runs on \
                  a real directory, so that the models can be checked.",
    after_long_help = "Examples:\n  \
        trimwise compare\n  \
        trimwise compare --workload mail.pmrc --device sata-generic --policy off commit\n  \
        trimwise reproduce postmark-vendors --report vendors/\n  \
        trimwise crashtest --policy lazy+reuse --cuts 10000\n  \
        trimwise verify dir:/home\n  \
        trimwise trim / --dry-run\n\n\
        Exit codes: 0 done, 1 a run failed, 2 wrong arguments or input, 130 interrupted.",
    propagate_version = true,
    max_term_width = 100
)]
pub struct CommandLine {
    /// Print no text and no progress; errors are still printed and requested files still written
    #[arg(long, short = 'q', global = true)]
    pub quiet: bool,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What trimwise can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a workload under several TRIM policies and say which one to use
    Compare(CompareArguments),
    /// Repeat a published experiment and show its figures next to ours
    Reproduce(ReproduceArguments),
    /// Cut the power at many points of random runs and check that no TRIM policy loses data
    Crashtest(CrashtestArguments),
    /// Run device tests one after another: fill, random writes, HD Tach, ATTO, TRIM and others
    Bench(BenchArguments),
    /// Find out whether a drive honours TRIM and whether TRIM restores its speed
    Verify(VerifyArguments),
    /// Trim the free space of a mounted file system in slices; --dry-run shows what would be sent
    Trim(TrimArguments),
    /// Show what the daemon `trimwised` does on each file system
    Status(StatusArguments),
    /// Explain why the daemon does what it does on a file system, and what would change it
    Explain(ExplainArguments),
    /// Show what happened on a file system under the daemon
    History(HistoryArguments),
    /// Pause the daemon's trimming, on one file system or on all
    Pause(PauseArguments),
    /// Resume the daemon's trimming
    Resume(PauseArguments),
    /// Check the daemon's configuration
    Config(ConfigArguments),
    /// Check whether TRIM is on and reaches the drive; if not, name the layer that stops it and the remedy
    Doctor(DoctorArguments),
    /// Turn modelled drives into block devices of this host, or serve them over NBD, in real time
    Device(DeviceArguments),
    /// The init process of a guest in virtual time
    #[command(hide = true)]
    GuestInit,
    /// Build the Linux kernels that run as guests in virtual time; list and remove them
    Kernel(KernelArguments),
    /// List the built-in SSD profiles, or show one in full with the source of each number
    Devices(DevicesArguments),
    /// List the terms of TRIM policies, and examples of policies
    Policies(PoliciesArguments),
    /// Compare the device models with a flat array under random commands, and audit their accounting
    Selftest(SelftestArguments),
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
#[command(after_long_help = compare_help())]
pub struct CompareArguments {
    /// PostMark configuration file or the name of a built-in one; or a benchmark that times one operation:
    /// append[:APPEND[:FILE]], the fsync after removing a fragmented file, or fullwrite[:APPEND[:FILE]][:nofsync], a
    /// write to a full file system, with or without an fsync before it
    #[arg(long, short = 'w', value_name = "FILE.pmrc|NAME|SPEC", default_value = defaults::WORKLOAD,
          value_parser = word)]
    pub workload: String,

    /// SSD profile: built-in name (see `trimwise devices`) or TOML file; @VERSION after it chooses one of its
    /// firmwares; one or more [default: sata-small]
    #[arg(long = "device", short = 'd', value_name = "NAME|FILE", num_args = 1.., value_parser = word)]
    pub devices: Vec<String>,

    #[arg(long = "policy", short = 'p', value_name = "P", num_args = 1.., help = policy_help())]
    pub policies: Vec<String>,

    /// Where to run: `model` (virtual time); `kernel:VERSION:FS[:MOUNT_OPTIONS]`, a real kernel on the
    /// modelled drive (virtual time; FS is ext4, xfs, btrfs or f2fs); `dir:PATH`, an existing directory
    /// (real time)
    #[arg(long, short = 't', value_name = "model|kernel:...|dir:PATH", default_value = "model", value_parser = word)]
    pub target: String,

    /// Also run the policies that a stock kernel has (off, commit, batch) on a real one with the same memory, and
    /// report first where it contradicts the model: kernel:VERSION:ext4[:MOUNT_OPTIONS]
    #[arg(long, value_name = "kernel:VERSION:ext4")]
    pub check: Option<String>,

    /// With fullwrite on a real directory: confirm that it may fill the file system; its files are then removed
    #[arg(long)]
    pub fill: bool,

    /// Age the file system first: fill it, then delete files at random, under the policy, until this share is in use
    /// [default: 80]; on a kernel, the file system is new unless this is given
    #[arg(long, value_name = "PCT", value_parser = whole::<u8>(0, 100), allow_negative_numbers = true)]
    pub utilization: Option<u8>,

    /// Linux version of the modelled host, 2.6 or later: it decides how discard works, how writers are paced and how
    /// write-back is held back [default: 6.12]; with --check the kernel named there
    #[arg(long, value_name = "VERSION")]
    pub linux: Option<String>,

    /// Memory of the machine in MiB, including what the kernel needs [default: 1024]
    #[arg(long, value_name = "MIB", value_parser = whole::<u64>(64, 1_048_576), allow_negative_numbers = true)]
    pub memory: Option<u64>,

    /// Also print PostMark's own report of each run, verbose or terse as the workload says
    #[arg(long)]
    pub postmark: bool,

    /// Repetitions of each device and policy; they differ only by named physical causes
    #[arg(long, short = 'n', value_name = "N", default_value_t = defaults::REPS, value_parser = whole::<u32>(1, 1000),
          allow_negative_numbers = true)]
    pub reps: u32,

    /// Seed of everything drawn at random in the model: same seed, same result [default: 1]
    #[arg(long, short = 's', value_name = "N", value_parser = whole::<u64>(0, u64::MAX), allow_negative_numbers = true)]
    pub seed: Option<u64>,

    #[command(flatten)]
    pub limits: GuestLimits,

    /// Where results go and how they are made
    #[command(flatten)]
    pub output: OutputArguments,
}

/// Arguments of `reproduce`.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise reproduce --list\n  \
    trimwise reproduce postmark-vendors\n  \
    trimwise reproduce --all --json results.json\n\n\
    A claim that is not met is shown as such; the run still succeeds (exit code 0).")]
pub struct ReproduceArguments {
    /// Name of the experiment
    #[arg(value_name = "NAME", required_unless_present_any = ["list", "all"], conflicts_with_all = ["list", "all"])]
    pub name: Option<String>,

    /// List the experiments
    #[arg(long, conflicts_with = "all")]
    pub list: bool,

    /// Run all experiments
    #[arg(long)]
    pub all: bool,

    /// Where to run: model, or kernel:VERSION:FS[:MOUNT_OPTIONS] if a kernel has the experiment's policies
    #[arg(long, short = 't', value_name = "TARGET", default_value = "model", value_parser = word, conflicts_with = "list")]
    pub target: String,

    /// Only these parts: for `kernels`, kernels and file systems (6.1, 6.1:ext4); for `postmark-vendors`, drives
    /// (vendor1); for `model-ext4`, workloads (small); for `lazy-3-kernel`, append sizes in KiB (64); for
    /// `verdicts-ext4`, workloads, drives, kernels, policies and degrees of use (mid 6.12 80%); for `daemon-week` and
    /// `daemon-day`, file systems and ways of trimming (xfs, xfs:daemon)
    #[arg(long, value_name = "PART", num_args = 1.., value_parser = word, conflicts_with_all = ["list", "all"])]
    pub only: Vec<String>,

    /// Repetitions [default: as many as in the source]
    #[arg(long, short = 'n', value_name = "N", value_parser = whole::<u32>(1, 1000), allow_negative_numbers = true,
          conflicts_with = "list")]
    pub reps: Option<u32>,

    #[command(flatten)]
    pub limits: GuestLimits,

    /// Where results go and how they are made
    #[command(flatten)]
    pub output: OutputArguments,
}

/// Arguments of `crashtest`.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise crashtest\n      \
    every kind of policy, 1,000 cuts each\n  \
    trimwise crashtest --policy set:40:90+lazy+reuse --cuts 10000 --seed 7\n      \
    one policy, thoroughly\n  \
    trimwise crashtest --policy lazy --seed 7 --run 12\n      \
    repeat one run and show what the device was told about the blocks concerned\n\n\
    Exit code 1 if a cut loses anything. What is cut, and what must hold: docs/guide.md")]
pub struct CrashtestArguments {
    /// TRIM policy; one or more [default: one of every kind]
    #[arg(long = "policy", short = 'p', value_name = "P", num_args = 1..)]
    pub policies: Vec<String>,

    /// Power cuts for each policy; each run of the workload serves 100 of them [default: 1000]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1, 10_000_000), allow_negative_numbers = true,
          conflicts_with = "run")]
    pub cuts: Option<u64>,

    /// Seed of everything drawn at random: same seed, same result
    #[arg(long, short = 's', value_name = "N", default_value_t = defaults::SEED, value_parser = whole::<u64>(0, u64::MAX),
          allow_negative_numbers = true)]
    pub seed: u64,

    /// Make only the run with this number, counted from 0, with its 100 cuts, to repeat a finding
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0, 99_999), allow_negative_numbers = true)]
    pub run: Option<u64>,

    /// Runs at a time; the result is the same for any number [default: the number of cores]
    #[arg(long, short = 'j', value_name = "N", value_parser = whole::<u16>(1, 1024), allow_negative_numbers = true)]
    pub jobs: Option<u16>,

    #[command(flatten)]
    pub json: JsonArguments,
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
#[command(after_long_help = bench_help())]
pub struct BenchArguments {
    /// What to test: an SSD profile (built-in name, see `trimwise devices`, or TOML file), in the model; or file:PATH
    /// or dev:PATH, a real file or device
    #[arg(value_name = "TARGET", value_parser = word)]
    pub target: String,

    /// Tests, run in this order on the same device; see below
    #[arg(value_name = "TEST", required = true, num_args = 1..)]
    pub tests: Vec<String>,

    /// What to write: zeros, compressible, pseudo-random, incompressible or duplicated
    #[arg(long, value_name = "CLASS", default_value_t = ContentClass::Incompressible)]
    pub content: ContentClass,

    /// Part of the device to test, in percent of it; only erase goes beyond [default: all]
    #[arg(long, value_name = "START_PCT:LEN_PCT", value_parser = region)]
    pub region: Option<Part>,

    /// Seed of the random places: same seed, same places, and in the model the same result
    #[arg(long, short = 's', value_name = "N", default_value_t = defaults::SEED, value_parser = whole::<u64>(0, u64::MAX),
          allow_negative_numbers = true)]
    pub seed: u64,

    /// With file:PATH, if the file does not exist or is empty: the size to make it; a file created here is removed at
    /// the end [default: 1GiB]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = some_bytes)]
    pub size: Option<Bytes>,

    /// With file:PATH and dev:PATH, for tests that write: confirm that what WORD names may be destroyed; without this
    /// option the command says which WORD to give
    #[arg(long, value_name = "WORD")]
    pub destroy: Option<String>,

    /// Write the results as JSON to a new file; `-`, or no FILE, prints them instead of the table
    #[arg(long, short = 'J', value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,

    /// Write an HTML report to DIR/index.html (one file, nothing else needed)
    #[arg(long, short = 'r', value_name = "DIR")]
    pub report: Option<PathBuf>,

    /// Replace existing files of --json and --report
    #[arg(long, short = 'f')]
    pub force: bool,
}

/// Arguments of `trim`.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise trim /home --dry-run\n      \
    how much would be sent, in how many extents and commands\n  \
    trimwise trim /home --min-extent 64KiB --groups 1 --pause 200\n      \
    gently: no extent below 64 KiB, one block group at a time, rests of 0.2 s\n  \
    trimwise trim /home --offset 100GiB --length 10GiB --json -\n      \
    a part of the file system, for another program to read\n  \
    trimwise trim /home --now --wait\n      \
    let the daemon do it, and return when it is done\n\n\
    SIZE is in bytes, or has a unit: KiB, MiB, GiB, TiB (or K, M, G, T) are powers of 1,024,\n\
    kB, MB, GB, TB powers of 1,000.\n\n\
    What the figures mean on each file system: docs/guide.md")]
pub struct TrimArguments {
    /// Where the file system is mounted
    #[arg(value_name = "MOUNT")]
    pub mount: PathBuf,

    /// Send nothing; show what would be sent, according to the file system's own map of its free space
    #[arg(long, short = 'n')]
    pub dry_run: bool,

    /// Leave out free extents shorter than this; a device leaves out those below its granularity anyway [default: 0]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    pub min_extent: Option<Bytes>,

    /// Start at this address of the file system (btrfs: a logical one) [default: 0]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    pub offset: Option<Bytes>,

    /// Trim this much from there on [default: to the end]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = some_bytes)]
    pub length: Option<Bytes>,

    /// Block groups (XFS: allocation groups) per slice; Ctrl-C stops between slices [default: as many as make 1 GiB, at
    /// least 1]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1, u64::MAX), allow_negative_numbers = true)]
    pub groups: Option<u64>,

    /// The same as a size, rounded up to whole groups
    #[arg(long, value_name = "SIZE", conflicts_with = "groups", allow_negative_numbers = true,
          value_parser = some_bytes)]
    pub slice: Option<Bytes>,

    /// Pause between two slices, in milliseconds [default: 0]
    #[arg(long, value_name = "MS", value_parser = whole::<u64>(0, 86_400_000), allow_negative_numbers = true,
          conflicts_with = "dry_run")]
    pub pause: Option<u64>,

    /// Have the daemon trim everything untrimmed now, in its slices, whatever the policy says
    #[arg(long, conflicts_with_all = ["dry_run", "min_extent", "offset", "length", "groups", "slice", "pause"])]
    pub now: bool,

    /// Wait until everything that --now asks for is trimmed; Ctrl-C stops the waiting, not the trim
    #[arg(long, requires = "now")]
    pub wait: bool,

    /// The folder of the daemon's sockets, with --now
    #[arg(long, value_name = "DIR", default_value = "/run/trimwise", requires = "now")]
    pub run: PathBuf,

    #[command(flatten)]
    pub json: JsonArguments,
}

/// Arguments of `devices`.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise devices\n  \
    trimwise devices vertex-60gb@1.41\n      \
    one firmware of a drive: all its numbers, and where they come from\n  \
    trimwise devices --json - | jq '.devices[].name'\n  \
    trimwise compare --device sata-60gb-2011 ufs21-64gb\n\n\
    How to write one: profiles/README.md")]
pub struct DevicesArguments {
    /// Show this one in full: built-in name or TOML file; @VERSION after it chooses one of its firmwares
    #[arg(value_name = "NAME|FILE", value_parser = word)]
    pub device: Option<String>,

    #[command(flatten)]
    pub json: JsonArguments,
}

/// Arguments of `policies`.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise policies\n  \
    trimwise policies --json - | jq '.terms[].term'\n\n\
    What each of them does: docs/guide.md")]
pub struct PoliciesArguments {
    #[command(flatten)]
    pub json: JsonArguments,
}

/// Arguments of `selftest`.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise selftest\n  \
    trimwise selftest --ops 10000000\n      \
    a thousand devices and ten million commands\n  \
    trimwise selftest --part 17 --seed 3\n      \
    repeat one part, as the report of a violation suggests")]
pub struct SelftestArguments {
    /// Number of commands, in parts of 10,000, each with a device of its own
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = whole::<u64>(1, 1_000_000_000_000),
          allow_negative_numbers = true, conflicts_with = "part")]
    pub ops: u64,

    /// Seed of everything drawn at random: same seed, same result
    #[arg(long, short = 's', value_name = "N", default_value_t = defaults::SEED, value_parser = whole::<u64>(0, u64::MAX),
          allow_negative_numbers = true)]
    pub seed: u64,

    /// Run only the part with this number, counted from 0, to repeat a finding
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0, 99_999_999), allow_negative_numbers = true)]
    pub part: Option<u64>,

    /// Parts at a time; the result is the same for any number [default: the number of cores]
    #[arg(long, short = 'j', value_name = "N", value_parser = whole::<u16>(1, 1024), allow_negative_numbers = true)]
    pub jobs: Option<u16>,

    #[command(flatten)]
    pub json: JsonArguments,
}

/// Where a command's result goes as JSON.
#[derive(Clone, Debug, Default, Args)]
pub struct JsonArguments {
    /// Write the result as JSON to a new file; `-`, or no FILE, prints it instead of the text
    #[arg(long, short = 'J', value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,

    /// Replace the file of --json if it exists
    #[arg(long, short = 'f')]
    pub force: bool,
}

/// Arguments about output that commands share.
#[derive(Clone, Debug, Default, Args)]
pub struct OutputArguments {
    /// Runs at a time; the result is the same for any number [default: the number of cores, or fewer if memory is
    /// short]
    #[arg(long, short = 'j', value_name = "N", value_parser = whole::<u16>(1, 1024), allow_negative_numbers = true)]
    pub jobs: Option<u16>,

    /// Write the results as JSON to a new file; `-`, or no FILE, prints them instead of the table
    #[arg(long, short = 'J', value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,

    /// Write an HTML report to DIR/index.html (one file, nothing else needed)
    #[arg(long, short = 'r', value_name = "DIR")]
    pub report: Option<PathBuf>,

    /// Replace existing files of --json and --report
    #[arg(long, short = 'f')]
    pub force: bool,
}

/// Examples of `compare`; the terms of policies come before them.
const COMPARE_EXAMPLES: &str = "Examples:\n  \
    trimwise compare\n      \
    the built-in workload on a built-in device, with everything at its default\n  \
    trimwise compare --policy off set:40:90+lazy+reuse batch:10s ideal\n      \
    your own policies; join terms with `+`\n  \
    trimwise compare --workload append:64KiB:256MiB --policy commit lazy ideal\n      \
    how long fsync takes after a file in that many fragments is removed\n  \
    trimwise compare --workload mail.pmrc --device my-ssd.toml --utilization 80\n      \
    your PostMark configuration on your device profile, 80 % full\n  \
    trimwise compare --device sata-small sata-generic --json - | jq .verdict\n      \
    two devices, for another program to read\n  \
    trimwise compare --target kernel:6.1:ext4 --reps 1\n      \
    the real ext4 of Linux 6.1 on the modelled drive; see `trimwise kernel`\n  \
    trimwise compare --policy off commit batch:30s --check kernel:6.12:ext4\n      \
    the model, and what the real ext4 of Linux 6.12 gives with the same policies\n  \
    trimwise compare --target dir:/mnt/test --report report/\n      \
    the workload on a real directory, as mounted\n\n\
    How to read the table, and what each figure means: docs/guide.md";

/// Help below the options of `compare`.
fn compare_help() -> String {
    let mut help = String::from("Terms of policies (`trimwise policies` lists them too, with examples):\n");
    for (term, meaning) in terms() {
        help += &format!("  {term}\n      {meaning}\n");
    }
    help + "\n" + COMPARE_EXAMPLES
}

/// Help of `--policy`, including the default.
fn policy_help() -> String {
    let default = defaults::POLICIES.join(" ");
    format!(
        "TRIM policy: terms joined with `+`, see below; one or more [default: {default}]. On a kernel, what its \
         file system does: off, commit, async (btrfs), batch:EVERY [default: all but batch]. discard is commit, nodiscard \
         is off, fstrim is batch:1w"
    )
}

/// Help below the options of `bench`: the tests, and examples.
fn bench_help() -> String {
    let mut help = String::from("Tests:\n");
    for (test, meaning) in TESTS {
        help += &format!("  {test}\n      {meaning}\n");
    }
    help + "\nExamples:\n  \
        trimwise bench sata-small seqwrite randwrite\n  \
        trimwise bench sata-small erase fill torture:60 hdtach:reads trim hdtach:reads\n      \
        a drive fresh, full, worn down, and after TRIM\n  \
        trimwise bench my-ssd.toml fill:87.3 trim:87.3:12.7 seqwrite:1GiB:87.3 --json -\n\n\
        What each test does, and how to read its figures: docs/guide.md"
}

/// Parses a part of a device.
fn region(text: &str) -> Result<Part, String> {
    text.parse()
}

/// Parses a whole number; the error names the accepted range.
fn whole<T: TryFrom<u64>>(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|n| (least..=most).contains(n));
        number
            .and_then(|n| T::try_from(n).ok())
            .ok_or_else(|| format!("expected a whole number from {least} to {most}"))
    }
}

/// Rejects an empty word, such as an unset variable of a script.
fn word(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("expected a word that is not empty".to_string()) } else { Ok(text.to_string()) }
}

/// Parses a size above 0.
fn some_bytes(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|e: trimwise::units::SizeError| e.to_string())?;
    if bytes.0 == 0 { Err("expected a size above 0".to_string()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_help_tells_the_defaults_that_are_not_clap_s() {
        let mut command = CommandLine::command();
        command.clone().debug_assert();
        let help = command.find_subcommand_mut("compare").unwrap().render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" "); // clap wraps it
        for value in [
            defaults::UTILIZATION_PERCENT.to_string(),
            defaults::DEVICE.to_string(),
            defaults::LINUX.to_string(),
            defaults::MEMORY_MIB.to_string(),
            defaults::SEED.to_string(),
        ] {
            assert!(help.contains(&format!("[default: {value}]")), "{help}");
        }
    }
}
