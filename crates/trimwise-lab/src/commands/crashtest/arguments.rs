//! Arguments of `crashtest`.

use std::time::Duration;

use clap::Args;
use trimwise::policy::PolicyId;

use crate::requests::crashtest::on_kernel::{KernelCrashtestRequest, OnKernel};
use crate::requests::crashtest::soak::SoakRequest;
use crate::requests::crashtest::{CUT, CUTS, CrashtestRequest, RUN};
use trimwise_cli::arguments::{GuestLimits, JsonArguments, TableArguments, some_time, whole, whole_in};
use trimwise_cli::commands::verify::arguments::plant;
use trimwise_study::check::JOBS;
use trimwise_study::defaults;
use trimwise_study::given::Given;
use trimwise_study::verify::Plant;

/// An option for the model. clap does not report a missing requirement of an option that conflicts with one that is
/// given, so what needs `--target` also conflicts with this one.
const MODEL: &str = "policies";

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise crashtest\n      \
    every kind of policy, 1,000 cuts each\n  \
    trimwise crashtest --policy set:40:90+lazy+reuse --cuts 10000 --seed 7\n      \
    one policy, thoroughly\n  \
    trimwise crashtest --policy lazy --seed 7 --run 12\n      \
    repeat one run and show what the device was told about the blocks concerned\n  \
    trimwise crashtest --target kernel:6.12:ext4:discard\n      \
    a real ext4 in virtual time; `trimwise kernel list` names the kernels\n  \
    trimwise crashtest --target kernel:6.12+ext4-trim+kasan:ext4 --soak 1h --remount discard nodiscard\n      \
    no cuts: random operations under a kernel with sanitizers\n\n\
    Exit code 1 if a cut loses anything, or --soak finds anything. What is cut, and what must hold: docs/guide.md")]
pub struct CrashtestArguments {
    /// TRIM policy; one or more [default: one of every kind]
    #[arg(long = "policy", short = 'p', value_name = "P", num_args = 1..)]
    pub policies: Vec<Given<PolicyId>>,

    /// A real kernel in virtual time instead of the model: a kernel, a file system (ext4, xfs, btrfs or f2fs) and mount
    /// options as in mount(8)
    #[arg(long, value_name = "kernel:VERSION:FS[:MOUNT_OPTIONS]", conflicts_with = MODEL)]
    pub target: Option<String>,

    /// With --target: the drive, scaled down to at least 64 MiB (xfs: 300 MiB; btrfs, f2fs: 128 MiB): built-in name (see
    /// `trimwise devices`) or TOML file [default: sata-small]
    #[arg(long, short = 'd', value_name = "NAME|FILE", requires = "target", conflicts_with = MODEL)]
    pub device: Option<String>,

    /// With --target: plant this fault in the drive, to see what it breaks
    #[arg(long, value_name = "FAULT", value_parser = plant(), requires = "target", conflicts_with = MODEL)]
    pub fault: Option<Plant>,

    /// With --target: make only the cut with this number, counted from 0 over all runs, to repeat a finding
    #[arg(long, value_name = "N", value_parser = whole_in(&CUT), allow_negative_numbers = true,
          requires = "target", conflicts_with_all = [MODEL, "cuts", "run"])]
    pub cut: Option<u64>,

    /// With --target: cut no power, but repeat random operations for this long (this computer's time, such as 10min or 1h),
    /// until the drive is full and beyond; for kernels with sanitizers
    #[arg(long, value_name = "DURATION", value_parser = some_time, requires = "target",
          conflicts_with_all = [MODEL, "cuts", "cut", "fault"])]
    pub soak: Option<Duration>,

    /// With --soak: remount the file system on the way, with any of these options; one or more
    #[arg(long = "remount", value_name = "MOUNT_OPTIONS", num_args = 1.., requires = "soak",
          conflicts_with = MODEL)]
    pub remounts: Vec<String>,

    #[command(flatten)]
    pub limits: GuestLimits,

    /// Power cuts for each policy; each run of the workload serves 100 of them, on a kernel 200 [default: 1000]
    #[arg(long, value_name = "N", value_parser = whole_in(&CUTS), allow_negative_numbers = true,
          conflicts_with = "run")]
    pub cuts: Option<u64>,

    /// Seed of everything drawn at random: same seed, same result
    #[arg(long, short = 's', value_name = "N", default_value_t = defaults::SEED, value_parser = whole::<u64>(0, u64::MAX),
          allow_negative_numbers = true)]
    pub seed: u64,

    /// Make only the run with this number, counted from 0, with all of its cuts, to repeat a finding
    #[arg(long, value_name = "N", value_parser = whole_in(&RUN), allow_negative_numbers = true)]
    pub run: Option<u64>,

    /// Runs at a time; the result is the same for any number [default: the number of cores]
    #[arg(long, short = 'j', value_name = "N", value_parser = whole_in(&JOBS), allow_negative_numbers = true)]
    pub jobs: Option<u16>,

    #[command(flatten)]
    pub json: JsonArguments,

    #[command(flatten)]
    pub tables: TableArguments,
}

impl CrashtestArguments {
    /// Returns the request for the model.
    pub fn request(&self) -> CrashtestRequest {
        CrashtestRequest {
            policies: self.policies.clone(),
            cuts: self.cuts,
            run: self.run,
            seed: self.seed,
            jobs: self.jobs,
        }
    }

    /// Returns the request for a kernel; `None` without `--target`.
    pub fn kernel_request(&self) -> Option<KernelCrashtestRequest> {
        Some(KernelCrashtestRequest { on: self.on_kernel()?, cuts: self.cuts, cut: self.cut })
    }

    /// Returns the request for a soak; `None` without `--soak`.
    pub fn soak_request(&self) -> Option<SoakRequest> {
        let (on, soak) = self.on_kernel().zip(self.soak)?;
        Some(SoakRequest { on, duration: soak, remounts: self.remounts.clone() })
    }

    fn on_kernel(&self) -> Option<OnKernel> {
        Some(OnKernel {
            target: self.target.as_deref()?.into(),
            device: self.device.clone(),
            fault: self.fault,
            run: self.run,
            seed: self.seed,
            jobs: self.jobs,
            limits: self.limits.request(),
        })
    }
}
