//! Arguments of `device`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use trimwise::units::Bytes;
use trimwise_device::TimeScale;
use trimwise_device::nbd::Address;

use crate::requests::device::{DriveRequest, THREADS};
use trimwise_cli::arguments::{JsonArguments, TableArguments, some_bytes, whole, whole_in, word};
use trimwise_study::defaults;

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise device attach --profile sata-generic --size 8GiB\n      \
    prints its node, such as /dev/loop0; format, mount and trim it like any disk\n  \
    trimwise device list\n  \
    trimwise device detach /dev/loop0\n      \
    stop it and show the requests that it served\n  \
    trimwise device serve --profile ufs21-64gb --size 8GiB --nbd unix:/run/drive.sock\n      \
    qemu-system-x86_64 ... -drive file=nbd:unix:/run/drive.sock,format=raw,discard=unmap\n\n\
    How exact its times are: docs/model.md")]
pub struct DeviceArguments {
    /// What to do
    #[command(subcommand)]
    pub command: DeviceCommand,

    /// Where the devices of this host are registered [default: /run/trimwise/devices; for users other than root
    /// $XDG_RUNTIME_DIR/trimwise/devices, or else ~/.local/state/trimwise/devices]
    #[arg(long, global = true, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum DeviceCommand {
    /// Make a block device of this host (/dev/loopN) that behaves like a modelled drive, in real time
    Attach(AttachArguments),
    /// Stop devices, and show the requests that each served
    Detach(DetachArguments),
    /// Serve a modelled drive to QEMU and others over NBD, in real time
    Serve(ServeArguments),
    /// List the emulated devices and the requests that each served; cleans up after killed servers
    List(ListArguments),
}

#[derive(Debug, Args)]
pub struct DriveArguments {
    /// SSD profile: built-in name (see `trimwise devices`) or TOML file; @VERSION after it chooses one of its firmwares
    #[arg(long, value_name = "NAME|FILE", default_value = defaults::DEVICE, value_parser = word)]
    pub profile: String,

    /// Size of the drive: the same drive with fewer and smaller blocks [default: as in the profile]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = some_bytes)]
    pub size: Option<Bytes>,

    /// Factor by which everything takes longer than modelled, from 0.001 to 1000: at 10, what takes a drive 0.1 ms
    /// takes 1 ms, and the host's own delays weigh a tenth
    #[arg(long, value_name = "X", default_value = "1", allow_negative_numbers = true)]
    pub time_scale: TimeScale,

    /// Seed of everything that the drive draws at random
    #[arg(long, short = 's', value_name = "N", default_value_t = defaults::SEED, value_parser = whole::<u64>(0, u64::MAX),
          allow_negative_numbers = true)]
    pub seed: u64,

    /// Keep the data in this file, sparsely, and leave it there; the drive's own state starts fresh each time [default:
    /// memory, gone at the end]
    #[arg(long, value_name = "FILE")]
    pub backing: Option<PathBuf>,

    /// Name of the device [default: the profile's, with a number if that is taken]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Set by the command itself for the process that serves in the background
    #[arg(long, hide = true)]
    pub announced: bool,
}

impl DriveArguments {
    pub fn request(&self) -> DriveRequest {
        DriveRequest {
            profile: self.profile.clone(),
            size: self.size,
            time_scale: self.time_scale,
            seed: self.seed,
            backing: self.backing.clone(),
            name: self.name.clone(),
        }
    }
}

#[derive(Debug, Args)]
pub struct AttachArguments {
    #[command(flatten)]
    pub drive: DriveArguments,

    /// Stay in the foreground until Ctrl-C, instead of serving in the background
    #[arg(long)]
    pub foreground: bool,

    /// Threads that serve [default: the number of cores, at most 4]
    #[arg(long, value_name = "N", value_parser = whole_in(&THREADS), allow_negative_numbers = true)]
    pub threads: Option<u16>,
}

#[derive(Debug, Args)]
pub struct ServeArguments {
    #[command(flatten)]
    pub drive: DriveArguments,

    /// Where to serve: unix:PATH, a socket to create, or tcp:ADDRESS:PORT; one or more. NBD has no password: anyone who
    /// can reach the address can read and write
    #[arg(long, value_name = "ADDRESS", required = true, num_args = 1..)]
    pub nbd: Vec<Address>,

    /// Serve in the background, instead of until Ctrl-C
    #[arg(long)]
    pub background: bool,
}

#[derive(Debug, Args)]
pub struct DetachArguments {
    /// Name or node; one or more
    #[arg(value_name = "NAME|/dev/loopN", value_parser = word, required_unless_present = "all", conflicts_with = "all")]
    pub devices: Vec<String>,

    /// All devices
    #[arg(long)]
    pub all: bool,

    #[command(flatten)]
    pub json: JsonArguments,
}

#[derive(Debug, Args)]
pub struct ListArguments {
    #[command(flatten)]
    pub json: JsonArguments,

    #[command(flatten)]
    pub tables: TableArguments,
}
