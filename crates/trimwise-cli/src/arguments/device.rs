//! Arguments of `device`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use trimwise::units::Bytes;
use trimwise_device::TimeScale;
use trimwise_device::nbd::Address;

use super::{JsonArguments, some_bytes, whole};
use crate::defaults;

/// Arguments of `device`.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise device attach --profile sata-generic --size 8GiB\n      \
    prints its node, such as /dev/loop0; mkfs, mount and discard it as any disk\n  \
    trimwise device list\n  \
    trimwise device detach /dev/loop0\n      \
    and says what was asked of it\n  \
    trimwise device serve --profile ufs21-64gb --size 8GiB --nbd unix:/run/drive.sock\n      \
    qemu-system-x86_64 ... -drive file=nbd:unix:/run/drive.sock,format=raw,discard=unmap\n\n\
    How exact its times are: docs/model.md")]
pub struct DeviceArguments {
    /// What to do
    #[command(subcommand)]
    pub command: DeviceCommand,

    /// Where the devices of this host are registered [default: /run/trimwise/devices; of a user other than
    /// root $XDG_RUNTIME_DIR/trimwise/devices, or else ~/.local/state/trimwise/devices]
    #[arg(long, global = true, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

/// What can be done with emulated devices.
#[derive(Debug, Subcommand)]
pub enum DeviceCommand {
    /// Make a block device of this host (/dev/loopN) that behaves like a modelled drive, in real time
    Attach(AttachArguments),
    /// End devices, and say what was asked of them
    Detach(DetachArguments),
    /// Serve a modelled drive to QEMU and others over NBD, in real time
    Serve(ServeArguments),
    /// List the emulated devices, and what was asked of each; takes away what a killed server left
    List(ListArguments),
}

/// Which drive is emulated.
#[derive(Debug, Args)]
pub struct DriveArguments {
    /// SSD profile: built-in name (see `trimwise devices`) or TOML file, with @VERSION one of its
    /// firmwares
    #[arg(long, value_name = "NAME|FILE", default_value = defaults::DEVICE)]
    pub profile: String,

    /// How large the drive is: the same drive with fewer and smaller blocks [default: as the profile]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = some_bytes)]
    pub size: Option<Bytes>,

    /// How much longer than modelled everything takes, from 0.001 to 1000: at 10, what takes a drive
    /// 0.1 ms takes 1 ms, and the host's own delays weigh a tenth
    #[arg(long, value_name = "X", default_value = "1", allow_negative_numbers = true)]
    pub time_scale: TimeScale,

    /// Seed of what the drive draws at random
    #[arg(long, short = 's', value_name = "N", default_value_t = defaults::SEED, value_parser = whole::<u64>(0, u64::MAX),
          allow_negative_numbers = true)]
    pub seed: u64,

    /// Keep the data in this file, sparsely, and leave it there; the drive's own state begins fresh with
    /// each start [default: memory, gone at the end]
    #[arg(long, value_name = "FILE")]
    pub backing: Option<PathBuf>,

    /// What it is called here [default: as the profile, with a number if that is taken]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Set by the command itself on the process that serves in the background
    #[arg(long, hide = true)]
    pub announced: bool,
}

/// Arguments of `device attach`.
#[derive(Debug, Args)]
pub struct AttachArguments {
    /// Which drive
    #[command(flatten)]
    pub drive: DriveArguments,

    /// Stay until Ctrl-C, instead of serving in the background
    #[arg(long)]
    pub foreground: bool,

    /// Threads that serve [default: as many as cores, at most 4]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1, 64), allow_negative_numbers = true)]
    pub threads: Option<u16>,
}

/// Arguments of `device serve`.
#[derive(Debug, Args)]
pub struct ServeArguments {
    /// Which drive
    #[command(flatten)]
    pub drive: DriveArguments,

    /// Where: unix:PATH, a socket that is made there, or tcp:ADDRESS:PORT; one or several. NBD has no
    /// password: who reaches the address may read and write
    #[arg(long, value_name = "ADDRESS", required = true, num_args = 1..)]
    pub nbd: Vec<Address>,

    /// Serve in the background, instead of until Ctrl-C
    #[arg(long)]
    pub background: bool,
}

/// Arguments of `device detach`.
#[derive(Debug, Args)]
pub struct DetachArguments {
    /// Name or node; one or several
    #[arg(value_name = "NAME|/dev/loopN", required_unless_present = "all", conflicts_with = "all")]
    pub devices: Vec<String>,

    /// All of them
    #[arg(long)]
    pub all: bool,

    #[command(flatten)]
    pub json: JsonArguments,
}

/// Arguments of `device list`.
#[derive(Debug, Args)]
pub struct ListArguments {
    #[command(flatten)]
    pub json: JsonArguments,
}
