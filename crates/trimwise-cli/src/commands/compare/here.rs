//! `compare --here PATH`: the model of this host, with a built-in profile in place of its drive.
//!
//! Two things are chosen here: which profile stands in, and how small the modelled drive is. A drive above
//! [`QUICK`] is scaled down with its ratios kept, and the host's memory with it. Options that the user gives take
//! precedence over what was found.

use std::path::Path;

use serde::Serialize;
use trimwise::policy::LinuxVersion;
use trimwise::profile::Profile;
use trimwise::units::Bytes;
use trimwise_lab::failure::Failure;
use trimwise_lab::pool;
use trimwise_linux::doctor::Transport;
use trimwise_linux::here::{Drive, Here as Found};
use trimwise_linux::host_root::HostRoot;

use crate::commands::compare::arguments::CompareArguments;
use crate::output::is_quiet;
use crate::table::folded;

/// The largest drive that is modelled whole unless `--full-size` is given.
const QUICK: Bytes = Bytes::gib(16);

/// The least memory of a scaled-down host.
const MEMORY_MIB_MIN: u64 = 128;

/// Processor time of one run with the default workload: so much for the workload, and so much for each GiB of the drive
/// for its ageing. Other workloads take longer or shorter.
const SECONDS_PER_RUN: f64 = 3.0;
const SECONDS_PER_GIB: f64 = 0.03;

/// SATA drives of this size or more are taken for ones with an SLC cache.
const WITH_SLC_CACHE: u64 = 384_000_000_000;

/// Flash storage of phones and boards up to this size is taken for an older one.
const OLD_UFS: u64 = 128_000_000_000;

/// What was found, and what stands in for it: the key `here` of the JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Here {
    /// Where the file system is mounted.
    mount: String,
    /// What is mounted: `/dev/sda1`.
    device: String,
    /// The drive below: `sda`; `None` if there is none or it is unknown.
    drive: Option<String>,
    /// The model that it reports.
    model: Option<String>,
    /// Its size.
    size_bytes: Option<u64>,
    /// The largest discard that it accepts; 0 if none.
    discard_max_bytes: Option<u64>,
    /// How the profile was chosen: `model`, `class`, or `given` by the user.
    matched_by: &'static str,
    /// The profile that stands in.
    profile: String,
    /// The modelled capacity as a share of the drive's, or of the profile's if the user gave it.
    scale: f64,
    /// The host's kernel.
    kernel: String,
    /// The host's memory.
    memory_bytes: Option<u64>,
    /// `ext4`, `btrfs`...
    file_system: String,
    /// How full it is.
    utilization_percent: u8,
    /// The mount's discard option, and what trims it periodically.
    policy: String,
    #[serde(skip)]
    lines: [String; 2],
}

impl Here {
    /// The two lines that open the text.
    pub fn text(&self) -> String {
        self.lines.iter().map(|line| folded(line, 0)).collect::<String>() + "\n"
    }
}

/// What the model takes from this host.
pub struct StandIn {
    found: Found,
    /// The profile, as `--device` names it.
    pub device: String,
    matched_by: &'static str,
    why: String,
    /// Size of the modelled drive at most.
    capacity_max: Bytes,
    /// The size that the scale refers to; `None`: the profile's.
    whole: Option<Bytes>,
    /// The modelled host's memory.
    pub memory_mib: Option<u64>,
    /// The modelled host's Linux; `None` if the host's is unknown to the model.
    pub linux: Option<String>,
}

impl StandIn {
    /// Looks at the directory of `--here`; `None` without that option.
    pub fn of(arguments: &CompareArguments) -> Result<Option<Self>, Failure> {
        let Some(path) = &arguments.here else { return Ok(None) };
        let found = Found::of(&HostRoot::default(), Path::new("/run/trimwise"), path);
        let found = found.map_err(|e| Failure::usage(format!("--here {}: {e}", path.display())))?;
        Self::chosen(found, arguments).map(Some)
    }

    fn chosen(found: Found, arguments: &CompareArguments) -> Result<Self, Failure> {
        let refused = |why: String| {
            Failure::usage(format!(
                "--here {}: {why}; expected a directory on an SSD, or --device to name the profile",
                found.mount.mount_point.display()
            ))
        };
        let (device, matched_by, why) = match &arguments.devices[..] {
            [device] => (device.clone(), "given", "as --device says".to_owned()),
            [] => match (found.drives.first(), found.drives.iter().find_map(Drive::why_no_ssd)) {
                (None, _) => {
                    let fs_type = &found.mount.fs_type;
                    return Err(refused(format!("{fs_type}: {}", found.why_no_drive())));
                }
                (Some(_), Some(why)) => {
                    let names: Vec<&str> = found.drives.iter().map(|drive| drive.name.as_str()).collect();
                    return Err(refused(format!("below it is {why}: {}", names.join(", "))));
                }
                (Some(drive), None) => profile_for(drive),
            },
            several => {
                return Err(Failure::usage(format!(
                    "--here goes with one --device; {} are given",
                    several.len()
                )));
            }
        };
        let drive_size = found.drives.first().map(|drive| drive.size).filter(|size| size.0 > 0);
        let whole = drive_size.filter(|_| matched_by != "given");
        let limit = if arguments.full_size { Bytes(u64::MAX) } else { QUICK };
        let linux = Some(found.kernel.clone()).filter(|kernel| kernel.parse::<LinuxVersion>().is_ok());
        let mut stand_in = Self {
            device,
            matched_by,
            why,
            capacity_max: whole.map_or(limit, |whole| whole.min(limit)),
            whole,
            memory_mib: None,
            linux,
            found,
        };
        let (_, profile) = crate::input::device(&stand_in.device)?;
        stand_in.memory_mib = arguments.memory.or_else(|| stand_in.scaled_memory(&profile));
        Ok(stand_in)
    }

    /// How full the file system is.
    pub fn utilization_percent(&self) -> u8 {
        self.found.utilization_percent
    }

    /// Adds what the host does today to the default policies, if they lack it.
    pub fn add_policy(&self, policies: &mut Vec<String>) {
        let today = match (self.found.mount.discard(), self.found.mount.fs_type.as_str()) {
            ("discard", "f2fs") => "f2fs",
            ("discard=async", _) => "btrfs",
            _ => return, // `off` and `commit` are there
        };
        policies.insert(1.min(policies.len()), today.to_owned());
    }

    fn scale(&self, profile: &Profile) -> f64 {
        let capacity = profile.config.capacity_bytes;
        capacity.min(self.capacity_max.0) as f64 / self.whole.map_or(capacity, |whole| whole.0) as f64
    }

    fn scaled_memory(&self, profile: &Profile) -> Option<u64> {
        let whole = self.found.memory?.0 >> 20;
        let scaled = whole as f64 * self.scale(profile).min(1.0);
        Some((scaled as u64).max(MEMORY_MIB_MIN.min(whole)).max(64))
    }

    /// Scales the device down and describes it.
    pub fn stand_in(&self, (name, profile): &mut (String, Profile)) -> Result<Here, Failure> {
        let scale = self.scale(profile);
        let own_name = name.clone();
        let is_shrunk = profile.config.capacity_bytes > self.capacity_max.0;
        if is_shrunk {
            profile.config = profile.config.shrunk(self.capacity_max.0).map_err(|error| {
                Failure::usage(format!(
                    "{own_name} cannot be scaled to {}: {error}; expected --full-size, or another --device",
                    self.capacity_max
                ))
            })?;
            profile.name = format!("{own_name} ({})", self.capacity_max);
            name.clone_from(&profile.name);
        }
        let found = &self.found;
        let drive = found.drives.first();
        Ok(Here {
            mount: found.mount.mount_point.display().to_string(),
            device: found.mount.device.clone(),
            drive: drive.map(|drive| drive.name.clone()),
            model: drive.map(|drive| drive.model.clone()).filter(|model| !model.is_empty()),
            size_bytes: drive.map(|drive| drive.size.0),
            discard_max_bytes: drive.map(|drive| drive.discard_max.0),
            matched_by: self.matched_by,
            profile: own_name.clone(),
            scale,
            kernel: found.kernel.clone(),
            memory_bytes: found.memory.map(|memory| memory.0),
            file_system: found.mount.fs_type.clone(),
            utilization_percent: found.utilization_percent,
            policy: found.policy(),
            lines: [self.found_line(), self.stand_in_line(&own_name, profile, scale)],
        })
    }

    fn found_line(&self) -> String {
        let found = &self.found;
        let memory = found.memory.map_or(String::new(), |memory| format!(", {memory} of memory"));
        let drive = match &found.drives[..] {
            [] => format!("no drive ({})", found.why_no_drive()),
            [drive] => described(drive),
            [first, others @ ..] => {
                let others: Vec<&str> = others.iter().map(|drive| drive.name.as_str()).collect();
                format!(
                    "{} drives, of which the first counts: {}; also {}",
                    found.drives.len(),
                    described(first),
                    others.join(", ")
                )
            }
        };
        format!(
            "Here: {} ({} on {}), {} % in use, TRIM: {}; {drive}; Linux {}{memory}.",
            found.mount.mount_point.display(),
            found.mount.fs_type,
            found.mount.device,
            found.utilization_percent,
            found.policy(),
            found.kernel,
        )
    }

    fn stand_in_line(&self, name: &str, profile: &Profile, scale: f64) -> String {
        let capacity = Bytes(profile.config.capacity_bytes);
        let mut line = format!("In its place: {name}, {}; it was not fitted to this drive.", self.why);
        if scale < 0.995 {
            line += &format!(" Scaled to 1/{} ({capacity}", figure(1.0 / scale));
            if let Some(memory) = self.memory_mib {
                line += &format!(", with {} of memory", Bytes::mib(memory));
            }
            line +=
                "); the workload is not scaled: it stands for one as many times as large on the whole drive";
            line += " (--full-size models that).";
        }
        if self.found.mount.fs_type != "ext4" {
            line += " The modelled file system is ext4.";
        }
        let drive = self.found.drives.iter().map(|drive| drive.size.0).sum::<u64>();
        if self.found.size.0.saturating_mul(10) < drive.saturating_mul(9) {
            line += " It takes the whole drive; the one here takes a part.";
        }
        if self.found.drives.iter().any(|drive| drive.discard_max.0 == 0) {
            line += " The drive here takes no TRIM; see `trimwise doctor`.";
        }
        if self.linux.is_none() {
            line += &format!(" Linux {} is unknown to the model.", self.found.kernel);
        }
        line
    }
}

/// Says how long the runs may take, on standard error.
pub fn announce(device: &Profile, runs: usize, jobs: Option<u16>) {
    if is_quiet() {
        return;
    }
    let jobs = jobs.map_or_else(|| pool::default_jobs(pool::memory_of_run(device)), usize::from).max(1);
    let gib = device.config.capacity_bytes as f64 / Bytes::gib(1).0 as f64;
    let seconds = (SECONDS_PER_RUN + SECONDS_PER_GIB * gib) * runs.div_ceil(jobs) as f64;
    let about = if seconds < 90.0 {
        format!("{} s", figure(seconds))
    } else {
        format!("{} min", figure(seconds / 60.0))
    };
    eprintln!(
        "note: {runs} runs, {jobs} at a time: about {about} with the default workload; Ctrl-C keeps finished runs"
    );
}

/// Two digits.
fn figure(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

fn described(drive: &Drive) -> String {
    let model = if drive.model.is_empty() { "no model" } else { &drive.model };
    let trim = if drive.discard_max.0 == 0 { "no TRIM" } else { "takes TRIM" };
    format!("{}: {model}, {}, {}, {trim}", drive.name, drive.size, link(drive.link))
}

fn link(link: Transport) -> &'static str {
    match link {
        Transport::Usb => "USB",
        Transport::Ata => "SATA",
        Transport::Nvme => "NVMe",
        Transport::Virtio => "virtio",
        Transport::Mmc => "MMC",
        Transport::Ufs => "UFS",
        Transport::Scsi => "SCSI",
        Transport::Other => "unknown link",
    }
}

/// Finds the profile for a drive: its name, how it was chosen, and why.
fn profile_for(drive: &Drive) -> (String, &'static str, String) {
    let model = Profile::embedded_names()
        .filter_map(Profile::embedded)
        .find(|profile| profile.describes(&drive.model));
    if let Some(profile) = model {
        return (profile.name, "model", "made from published figures of this model".to_owned());
    }
    let (name, class) = match drive.link {
        Transport::Nvme if drive.borrows_memory => ("nvme-500gb-dramless", "an NVMe drive without DRAM"),
        Transport::Nvme if !drive.is_volatile => {
            ("nvme-960gb-enterprise", "an NVMe drive whose write cache survives a power cut")
        }
        Transport::Nvme => ("nvme-generic", "an NVMe drive with DRAM"),
        Transport::Ufs | Transport::Mmc if drive.size.0 <= OLD_UFS => {
            ("ufs21-64gb", "UFS or eMMC up to 128 GB")
        }
        Transport::Ufs | Transport::Mmc => ("ufs4-256gb", "UFS or eMMC above 128 GB"),
        Transport::Ata | Transport::Usb if drive.size.0 >= WITH_SLC_CACHE => {
            ("sata-500gb-slc", "a SATA SSD of 384 GB or more")
        }
        Transport::Ata | Transport::Usb => ("sata-generic", "a SATA SSD below 384 GB"),
        Transport::Virtio | Transport::Scsi | Transport::Other => {
            ("sata-generic", "a guess, since nothing shows what flash is below this disk")
        }
    };
    (name.to_owned(), "class", format!("chosen by class ({class}), since no profile names its model"))
}
