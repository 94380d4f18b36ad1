//! Arguments of `kernel`.

use std::num::NonZero;
use std::path::PathBuf;
use trimwise::units::Utilization;

use clap::{Args, Subcommand};
use trimwise_uml::job::BootOptions;

use crate::requests::kernel::KernelBuildRequest;
use crate::requests::kernel::run::KernelRunRequest;
use trimwise_cli::arguments::{GuestLimits, JsonArguments, TableArguments, whole, whole_in, word};
use trimwise_study::defaults;
use trimwise_study::given::Given;

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise kernel build\n      \
    every known kernel, from Debian's source packages; a few minutes each\n  \
    trimwise kernel list\n  \
    trimwise kernel run 6.1:ext4 -- postmark <mail.pmrc\n\n\
    Kernels are kept in $TRIMWISE_KERNELS, or else $XDG_CACHE_HOME/trimwise/kernels, or else\n\
    ~/.cache/trimwise/kernels. Those of the package trimwise-kernels come first.\n\
    What they are, and what a build needs: docs/guide.md")]
pub struct KernelArguments {
    #[command(subcommand)]
    pub command: KernelCommand,
}

#[derive(Debug, Subcommand)]
pub enum KernelCommand {
    /// Build the kernels that are missing; needs no privileges and installs nothing
    #[command(disable_version_flag = true)]
    Build(KernelBuildArguments),
    /// List built kernels and those that can be built
    List(KernelListArguments),
    /// Run a program on a kernel in virtual time, in a file system on a modelled drive
    #[command(disable_version_flag = true)]
    Run(KernelRunArguments),
    /// Remove a built kernel, or the log of a failed build
    #[command(disable_version_flag = true)]
    Remove(KernelRemoveArguments),
}

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise kernel build --version 6.1\n  \
    trimwise kernel build --version 5.10 6.12 --jobs 2\n  \
    trimwise kernel build --version 6.6 --source linux-6.6.30.tar.xz\n      \
    a kernel of your own choice, or one whose Debian package is out of reach\n  \
    trimwise kernel build --version 6.12 --with kernel/ext4-trim --variant kasan\n      \
    makes 6.12+ext4-trim+kasan, as in kernel run 6.12+ext4-trim+kasan:ext4\n  \
    trimwise kernel build --version 6.12 --variant dm\n      \
    makes 6.12+dm, whose guests can use dmsetup(8)\n\n\
    Exit codes: 0 done, 1 a build failed, 2 wrong arguments, 130 interrupted.")]
pub struct KernelBuildArguments {
    /// Kernel series to build; one or more [default: all that `trimwise kernel list` describes]
    #[arg(long = "version", value_name = "V", num_args = 1..)]
    pub versions: Vec<String>,

    /// Apply the patches of these folders, in this order: the file `series` in a folder names its patches, whole files
    /// with their places, and `.config` files. Source and objects are kept for the next build, about 2 GiB a version
    /// (`trimwise kernel remove --source` removes them)
    #[arg(long, value_name = "DIR", num_args = 1.., requires = "versions")]
    pub with: Vec<PathBuf>,

    /// Build with this configuration as well, and keep source and objects: kasan (KASAN, UBSAN, lockdep, and the checks
    /// of ext4 and JBD2) or dm (the device mapper: linear, striped, crypt, snapshots and thin volumes)
    #[arg(long, value_name = "NAME", requires = "versions")]
    pub variant: Option<String>,

    /// Build from this source: a clean tree (which is not changed) or a tarball
    #[arg(long, value_name = "DIR|TARBALL", requires = "versions")]
    pub source: Option<PathBuf>,

    /// Compilers at a time [default: the number of cores]
    #[arg(long, short = 'j', value_name = "N", value_parser = jobs, allow_negative_numbers = true)]
    pub jobs: Option<NonZero<u16>>,

    /// Also rebuild existing kernels, from the newest package; replace the file of the result if it exists
    #[arg(long, short = 'f')]
    pub force: bool,

    /// Write what was built as JSON to a new file; `-`, or no FILE, prints it instead of the table
    #[arg(long, short = 'J', value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,

    #[command(flatten)]
    pub tables: TableArguments,
}

impl KernelBuildArguments {
    pub fn request(&self) -> KernelBuildRequest {
        KernelBuildRequest {
            versions: self.versions.clone(),
            with: self.with.clone(),
            variant: self.variant.clone(),
            source: self.source.clone(),
            jobs: self.jobs,
            again: self.force,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise kernel list\n  \
    trimwise kernel list --json - | jq -r '.kernels[] | select(.state == \"built\") | .linux'")]
pub struct KernelListArguments {
    #[command(flatten)]
    pub json: JsonArguments,

    #[command(flatten)]
    pub tables: TableArguments,
}

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise kernel run 6.1:ext4 -- postmark <mail.pmrc\n  \
    trimwise kernel run 5.10:ext4:discard,noatime -- fio --name=a --size=64m --rw=randwrite \\\n      \
    --clocksource=clock_gettime\n  \
    trimwise kernel run 6.1:btrfs --device ufs21-64gb --trace t.csv -- sh -c 'seq 9999 >a; sync'\n  \
    trimwise kernel run 6.1:ext4:discard --aged 80 --trace a.trace -- fio $PWD/mine.fio\n      \
    on an ext4 that was full once; compare --workload trace:a.trace replays it\n  \
    trimwise kernel run 6.12:ext4 --image root.img -- fstrim -v .\n  \
    trimwise kernel run 6.12:ext4 --disk sata-small -- sh -ec 'mkfs.xfs -q /dev/vdb\n      \
    mkdir b; mount /dev/vdb b; cp -r /etc b'\n  \
    trimwise kernel run 6.12:none -- sh -ec 'mkfs.ext4 -q /dev/vda; mount /dev/vda /tmp/fs; ...'\n      \
    has the drive to itself, as test suites such as xfstests need it\n\n\
    The program comes from this computer, whose files the guest sees read-only. It runs in the root of\n\
    the file system and reads standard input unless that is a terminal. Computing takes no virtual time.\n\
    /tmp is the guest's own. Output appears as it comes, and is kept whatever ends the run.\n\n\
    Exit codes: 0 done, 1 the program or the run failed, 2 wrong arguments, 130 interrupted.")]
pub struct KernelRunArguments {
    /// Kernel, file system (ext4, xfs, btrfs or f2fs) and mount options as in mount(8); KERNEL:none mounts nothing and
    /// leaves the drive, /dev/vda, to the program
    #[arg(value_name = "KERNEL:FS[:MOUNT_OPTIONS]")]
    pub target: String,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, last = true)]
    pub command: Vec<String>,

    /// SSD profile: built-in name (see `trimwise devices`) or TOML file [default: sata-small]
    #[arg(long, short = 'd', value_name = "NAME|FILE", value_parser = word)]
    pub device: Option<String>,

    /// Age the file system first: fill it, then delete files at random until this share is in use, and let it rest; the
    /// figures count from the program's start
    #[arg(long, value_name = "PCT", allow_negative_numbers = true)]
    pub aged: Option<Utilization>,

    /// Use a copy of this image of a file system instead of a new file system. It is written to the drive first, which
    /// then rests; the figures count from the program's start. The file stays as it is
    #[arg(long, value_name = "FILE", conflicts_with = "aged")]
    pub image: Option<PathBuf>,

    /// Give the guest a second, empty drive of this profile, /dev/vdb: built-in name or TOML file
    #[arg(long, value_name = "NAME|FILE", value_parser = word)]
    pub disk: Option<String>,

    /// Memory of the guest, in MiB [default: 1024]
    #[arg(long, value_name = "MIB", value_parser = whole_in(&defaults::MEMORIES_MIB), allow_negative_numbers = true)]
    pub memory: Option<u64>,

    /// Seed of everything that the modelled drives and --aged draw: same seed, same result
    #[arg(long, short = 's', value_name = "N", default_value_t = defaults::SEED, value_parser = whole::<u64>(0, u64::MAX),
          allow_negative_numbers = true)]
    pub seed: u64,

    #[command(flatten)]
    pub limits: GuestLimits,

    /// Add these words, separated by spaces, to the kernel's command line. Words that change how time passes, or that
    /// the guest depends on, are rejected
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub boot: Option<BootOptions>,

    /// Write the guest's kernel log to a new file, even if the run fails
    #[arg(long, value_name = "FILE")]
    pub kernel_log: Option<PathBuf>,

    /// Write each block request to the first drive since the program's start, with its times, to a new file; FILE.trace
    /// (or FILE.trace.zst, compressed) is a trace for `trimwise trace`, `replay` and `compare --workload trace:FILE`;
    /// FILE.blktrace is one for `btt -i FILE.blktrace` and `blkparse -i -`, and FILE.blktrace.0 for `blkparse -i FILE`
    #[arg(long, value_name = "FILE.csv|FILE.json|FILE.trace|FILE.blktrace")]
    pub trace: Option<PathBuf>,

    /// Like --trace, for the second drive
    #[arg(long, value_name = "FILE.csv|FILE.json|FILE.trace|FILE.blktrace", requires = "disk")]
    pub disk_trace: Option<PathBuf>,

    /// Write the result, with the program's output, as JSON to a new file, even if the run fails; `-`, or no FILE, prints
    /// it at the end instead of the output as it comes
    #[arg(long, short = 'J', value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,

    /// Replace existing files of --json, --trace, --disk-trace and --kernel-log
    #[arg(long, short = 'f')]
    pub force: bool,
}

impl KernelRunArguments {
    pub fn request(&self) -> KernelRunRequest {
        KernelRunRequest {
            target: self.target.clone(),
            command: self.command.clone(),
            device: self.device.clone(),
            aged_percent: self.aged.map(Given::of),
            image: self.image.clone(),
            disk: self.disk.clone(),
            memory_mib: self.memory,
            seed: self.seed,
            limits: self.limits.request(),
            boot: self.boot.clone(),
            is_traced: self.trace.is_some(),
            is_disk_traced: self.disk_trace.is_some(),
        }
    }
}

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise kernel remove 6.12\n  \
    trimwise kernel remove 6.12+ext4-trim+kasan\n  \
    trimwise kernel remove --source 6.12")]
pub struct KernelRemoveArguments {
    /// Which kernel, as `trimwise kernel list` names it
    #[arg(value_name = "KERNEL", required_unless_present = "source")]
    pub kernel: Option<String>,

    /// Remove the source and objects that are kept for this version; kernels stay
    #[arg(long, value_name = "VERSION", conflicts_with = "kernel")]
    pub source: Option<String>,
}

fn jobs(text: &str) -> Result<NonZero<u16>, String> {
    let number = whole::<u16>(1, 1024)(text)?;
    NonZero::new(number).ok_or_else(|| "expected a whole number from 1 to 1024".to_string())
}
