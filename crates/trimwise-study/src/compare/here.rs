//! `compare --here PATH`: the model of this host, with a built-in profile in place of its drive.
//!
//! This file chooses the profile, and [`Scale`] the size of the modelled drive; work and memory shrink with it. The
//! user's options take precedence over what was found.

use std::borrow::Cow;
use std::path::Path;

use serde::{Deserialize, Serialize};
use trimwise::compare::result::Target;
use trimwise::failure::{Failure, Mistake, key};
use trimwise::policy::{LinuxVersion, PolicyId, Trimmer};
use trimwise::profile::Profile;
use trimwise::units::{Bytes, Utilization};
use trimwise::words;
use trimwise_linux::daemon::DEFAULT_RUN;
use trimwise_linux::doctor::{Aim, nothing_returns};
use trimwise_linux::file_system::FileSystem;
use trimwise_linux::here::{Drive, Here as Found};
use trimwise_linux::host_root::HostRoot;
use trimwise_linux::today::own_discard;

use super::CompareRequest;
use super::scale::{Scale, as_sold};
use super::workload::Workload;
use crate::conclusion::async_discard;
use crate::conclusion::steps::Steps;
use crate::defaults;
use crate::stand_in::{Chosen, profile_for};

/// The least memory of a scaled-down host.
const MEMORY_MIB_MIN: u64 = 128;

/// `matched_by` of a profile named by `--device`.
const GIVEN: &str = "given";

/// The host, and what stands in for it: the key `here` of the JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Here {
    mount: String,
    /// The mounted device: `/dev/sda1`.
    device: String,
    /// The drive below: `sda`; `None` if there is none or it is unknown.
    drive: Option<String>,
    /// The model name that the drive reports.
    model: Option<String>,
    size_bytes: Option<u64>,
    /// The largest discard that the drive accepts; 0 if none.
    discard_max_bytes: Option<u64>,
    /// How the profile was chosen: `model`, `class`, or `given` by the user.
    matched_by: Cow<'static, str>,
    /// The profile that stands in.
    profile: String,
    /// The modelled capacity as a share of the drive's, or of the profile's if the user gave it.
    scale: f64,
    /// The modelled work as a share of the whole.
    #[serde(default = "whole")]
    work_scale: f64,
    kernel: String,
    memory_bytes: Option<u64>,
    /// `ext4`, `btrfs`...
    file_system: String,
    #[serde(rename = "utilization_percent")]
    utilization: Utilization,
    /// The mount's discard option, and the timer that trims it.
    policy: String,
    /// The host's current policy over days; `None` if trimwise does not know it.
    #[serde(default)]
    today: Option<PolicyId>,
    /// The host's current policy in words.
    #[serde(default)]
    today_text: String,
    /// Whether TRIM passes down to the drive, as far as sysfs shows.
    #[serde(default)]
    passes: Option<bool>,
    /// What nothing gives back today, and of what, in words: `space in thin pool vg-pool`.
    #[serde(default)]
    loan: Option<(Aim, String)>,
    /// In words: what was found, and what stands in for it.
    #[serde(default)]
    lines: [String; 2],
    /// In words: what the figures stand for. Empty in results of older versions.
    #[serde(default)]
    stands_for: String,
    /// Needed for the steps of a change; `None` if this was read from a file.
    #[serde(skip)]
    found: Option<Found>,
}

/// Results of older versions have no scale of the work, which they never scaled.
fn whole() -> f64 {
    1.0
}

impl Here {
    pub fn mount(&self) -> &str {
        &self.mount
    }

    /// The host's current policy in the runs; `None` if trimwise does not know it.
    pub fn today(&self, is_over_days: bool) -> Option<PolicyId> {
        Some(in_runs(self.today.as_ref()?, is_over_days))
    }

    /// Returns whether runs without days leave out the host's periodic trims.
    pub fn has_timer(&self) -> bool {
        self.today.as_ref().is_some_and(|today| today.spec().is_some_and(|spec| spec.batch().is_some()))
    }

    /// The host's current policy, in a sentence without its end.
    pub fn today_sentence(&self) -> &str {
        &self.today_text
    }

    /// Work of the whole host as a multiple of the modelled work. Totals (times, bytes, waiting in a day) grow by this
    /// factor. Ratios, latencies, write amplification and years of life over days do not change. Counts of erases do
    /// not scale, since a smaller drive may have smaller blocks.
    pub fn work(&self) -> f64 {
        1.0 / self.work_scale
    }

    pub fn file_system(&self) -> &str {
        &self.file_system
    }

    /// True if runs on such a target are of the model's ext4 in place of another file system.
    pub fn is_as_ext4(&self, target: &Target) -> bool {
        *target == Target::Model && self.file_system != "ext4"
    }

    pub fn passes(&self) -> Option<bool> {
        self.passes
    }

    /// Space or memory that nothing gives back today; `None` if nothing is lent, or something trims.
    pub fn loan(&self) -> Option<(Aim, &str)> {
        self.loan.as_ref().map(|(aim, words)| (*aim, &**words))
    }

    /// The evidence for the figures.
    pub fn evidence(&self) -> &'static str {
        match &*self.matched_by {
            "model" => "a model of this drive",
            "class" => "a drive of its class",
            _ => "the drive of --device",
        }
    }

    /// What would make the figures more certain.
    pub fn surer(&self) -> String {
        match (&*self.matched_by, &self.drive) {
            ("model" | "class", Some(drive)) => {
                format!("To be surer: `trimwise fit /dev/{drive}` measures your drive; then --device.")
            }
            _ => format!(
                "To be surer: record your work (`trimwise record {}`), then --workload trace:FILE.",
                self.mount
            ),
        }
    }

    /// Adds the findings about this host, which no document has.
    pub(crate) fn found_again(&mut self, found: StandIn) {
        self.found = Some(found.found);
    }

    /// The steps from the host's current policy to another one.
    pub fn steps_to(&self, policy: &PolicyId) -> Steps {
        match &self.found {
            Some(found) => Steps::to(&of_host(policy, &self.file_system), found),
            None => Steps::default(),
        }
    }

    /// What the figures stand for, in a sentence or two.
    pub fn stands_for(&self) -> &str {
        &self.stands_for
    }

    /// In a sentence or two each: what was found, what stands in for it, and what the figures stand for.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        let lines = self.lines.iter().chain([&self.stands_for]);
        lines.map(String::as_str).filter(|line| !line.is_empty())
    }
}

/// Translates a host's policy to runs. Without days there is no timer, and the model's policy stands for the daemon's.
fn in_runs(policy: &PolicyId, is_over_days: bool) -> PolicyId {
    match policy.known() {
        Some(Trimmer::Kernel(spec)) if !is_over_days && spec.batch().is_some() => PolicyId::OFF,
        Some(Trimmer::Daemon(spec)) if !is_over_days => spec.into(),
        _ => policy.clone(),
    }
}

/// Translates a host's policy to runs on its own file system.
fn on_kernel(policy: PolicyId) -> PolicyId {
    match () {
        () if policy == own_discard("btrfs") => async_discard(),
        () if policy == own_discard("f2fs") => PolicyId::COMMIT,
        () => policy,
    }
}

/// Translates a policy of runs on a kernel to a host with such a file system.
fn of_host(policy: &PolicyId, file_system: &str) -> PolicyId {
    match file_system {
        "btrfs" if *policy == async_discard() => own_discard(file_system),
        "f2fs" if *policy == PolicyId::COMMIT => own_discard(file_system),
        _ => policy.clone(),
    }
}

pub struct StandIn {
    found: Found,
    /// The file system that answers, in a sentence; empty if that is obvious.
    answered_by: String,
    /// The profile, as `--device` names it.
    pub device: String,
    matched_by: &'static str,
    why: String,
    /// The modelled share of the drive and its work.
    pub scale: Scale,
    /// The whole drive, in words.
    drive: String,
    pub memory_mib: Option<u64>,
    /// The modelled Linux; `None` if the model does not know the host's.
    pub linux: Option<String>,
}

impl StandIn {
    pub fn of(request: &CompareRequest, workload: &Workload) -> Result<Option<Self>, Failure> {
        let Some(path) = &request.here else { return Ok(None) };
        let found = Found::of(&HostRoot::default(), Path::new(DEFAULT_RUN), path);
        let found = found.map_err(|e| Mistake::of("here", path.display()).because(e.to_string()).fail())?;
        Self::chosen(found, request, workload).map(Some)
    }

    /// Chooses the profile and scale for a host.
    ///
    /// # Errors
    ///
    /// If nothing can stand in for its drive.
    pub fn chosen(found: Found, request: &CompareRequest, workload: &Workload) -> Result<Self, Failure> {
        let refused = |why: String| {
            let expected = words!["a directory on an SSD, or ", key("devices"), " to name the profile"];
            let of = Mistake::of("here", found.mount.mount_point.display());
            of.because(why).expected(expected).fail()
        };
        let on = |why: &str| {
            let names: Vec<&str> = found.drives.iter().map(|drive| drive.name.as_str()).collect();
            refused(format!("it is on {why}: {}", names.join(", ")))
        };
        let (device, matched_by, why) = match &request.devices[..] {
            [device] => (device.clone(), GIVEN, "as --device says".to_owned()),
            [] => match (found.drives.first(), found.drives.iter().find_map(Drive::why_no_ssd)) {
                (None, _) => {
                    let fs_type = &found.mount.fs_type;
                    return Err(refused(format!("{fs_type}: {}", found.why_no_drive())));
                }
                (Some(_), Some(why)) => return Err(on(why)),
                (Some(drive), None) => {
                    let Chosen { profile, by, why } = profile_for(drive).map_err(on)?;
                    (profile, by, why)
                }
            },
            several => {
                let given = format!("; {} were given", several.len());
                return Err(Mistake::on("here").that_is(words!["takes one ", key("devices"), given]).fail());
            }
        };
        let drive_size = found.drives.first().map(|drive| drive.size).filter(|size| size.0 > 0);
        let own = drive_size.filter(|_| matched_by != GIVEN);
        let (_, profile) = crate::input::device(&device)?;
        let of_profile = Bytes(profile.config.capacity_bytes);
        let scale = Scale::of(own.unwrap_or(of_profile), &profile.config, workload, request.full_size);
        let drive = match own {
            Some(size) => format!("your {} drive", as_sold(size)),
            None => format!("a {} drive", as_sold(of_profile)),
        };
        let linux = Some(found.kernel.clone()).filter(|kernel| kernel.parse::<LinuxVersion>().is_ok());
        let memory_mib = request.memory.or_else(|| scaled_memory(&found, scale.work));
        let is_ext4 = found.mount.fs_type == FileSystem::Ext4.name();
        let answered_by =
            if is_ext4 { String::new() } else { "The modelled file system is ext4.".to_owned() };
        Ok(Self { device, matched_by, why, scale, drive, memory_mib, linux, answered_by, found })
    }

    pub fn is_given(&self) -> bool {
        self.matched_by == GIVEN
    }

    pub fn utilization(&self) -> Utilization {
        self.found.utilization
    }

    pub fn file_system(&self) -> &str {
        &self.found.mount.fs_type
    }

    pub fn kernel(&self) -> &str {
        &self.found.kernel
    }

    /// Sets the sentence on the file system that answers.
    pub fn answered_by(&mut self, sentence: String) {
        self.answered_by = sentence;
    }

    /// The default policies: the host's current one, the ones that stock Linux offers there, trimwised, and the bound.
    /// On a kernel, only the ones that its file system has. There a day of trimwised takes minutes, so it runs only on
    /// request.
    pub fn policies(&self, is_over_days: bool, kernel: Option<&dyn Fn(&PolicyId) -> bool>) -> Vec<PolicyId> {
        let found = &self.found;
        let called = |policy| if kernel.is_some() { on_kernel(policy) } else { policy };
        let usual: &[&str] = match is_over_days {
            true => &["batch:1d", "batch:1w", "trimwised", "ideal"],
            false => &["ideal"],
        };
        let usual = usual.iter().map(|policy| PolicyId::from(*policy));
        let mut policies = vec![PolicyId::OFF, called(own_discard(&found.mount.fs_type))];
        policies.extend(usual.filter(|policy| !policy.is_daemon() || kernel.is_none()));
        let today = found.today.policy(&found.mount.fs_type).map(called);
        let today = today.map(|policy| in_runs(&policy, is_over_days));
        if let Some(today) = today.filter(|today| !policies.contains(today)) {
            policies.insert(1, today);
        }
        policies.retain(|policy| kernel.is_none_or(|has| has(policy)));
        policies
    }

    /// Scales the device down and describes it.
    pub fn stand_in(
        &self,
        (name, profile): &mut (String, Profile),
        is_over_days: bool,
        is_on_kernel: bool,
    ) -> Result<Here, Failure> {
        let own_name = name.clone();
        let capacity = self.scale.capacity;
        if profile.config.capacity_bytes > capacity.0 {
            profile.config = profile.config.scaled(capacity.0).map_err(|error| {
                let why = format!("{own_name} cannot be scaled to {capacity}: {error}");
                let expected = words![key("full_size"), ", or another ", key("devices")];
                Mistake::that(why).expected(expected).fail()
            })?;
            profile.name = format!("{own_name} ({capacity})");
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
            matched_by: self.matched_by.into(),
            profile: own_name.clone(),
            scale: self.scale.drive,
            work_scale: self.scale.work,
            kernel: found.kernel.clone(),
            memory_bytes: found.memory.map(|memory| memory.0),
            file_system: found.mount.fs_type.clone(),
            utilization: found.utilization,
            policy: found.policy(),
            today: match found.today.policy(&found.mount.fs_type) {
                Some(policy) if is_on_kernel => Some(on_kernel(policy)),
                today => today,
            },
            today_text: found.today.sentence(),
            loan: nothing_returns(&found.purposes, &found.today).map(|one| (one.aim, one.words())),
            passes: found.passes,
            found: Some(found.clone()),
            lines: [self.found_line(), self.stand_in_line(&own_name, profile, is_on_kernel)],
            stands_for: self.scale.stands_for(self.memory_mib.map(Bytes::mib), is_over_days, &self.drive),
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
                    "{} drives; the first stands for all: {}; also {}",
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
            found.utilization,
            found.policy(),
            found.kernel,
        )
    }

    fn stand_in_line(&self, name: &str, profile: &Profile, is_on_kernel: bool) -> String {
        let mut line = format!("In its place: {name}, {}{}.", self.why, self.whether_fitted(profile));
        if !self.answered_by.is_empty() {
            line += &format!(" {}", self.answered_by);
        }
        let drive = self.found.drives.iter().map(|drive| drive.size.0).sum::<u64>();
        if self.found.size.0.saturating_mul(10) < drive.saturating_mul(9) {
            line += " It fills the whole modelled drive; the one here is on a part of the drive.";
        }
        if self.found.drives.iter().any(|drive| drive.discard_max.0 == 0) {
            line += " The drive here does not accept TRIM; see `trimwise doctor`.";
        }
        if self.linux.is_none() && !is_on_kernel {
            line += &format!(" Linux {} is unknown to the model.", self.found.kernel);
        }
        line
    }

    /// Whether the profile was fitted to this drive, as far as the profile tells.
    fn whether_fitted(&self, profile: &Profile) -> &'static str {
        let model = self.found.drives.first().map_or("", |drive| drive.model.as_str());
        match self.is_given() {
            false => "; it was not fitted to this drive",
            true if profile.fitted().next().is_none() => "",
            true if profile.models.is_empty() || model.is_empty() => ", fitted",
            true if profile.describes(model) => ", fitted to a drive of this model",
            true => ", fitted to a drive of another model",
        }
    }
}

/// Memory of the modelled host, scaled like the work.
fn scaled_memory(found: &Found, scale: f64) -> Option<u64> {
    let whole = found.memory?.0 >> 20;
    let scaled = (whole as f64 * scale) as u64;
    Some(scaled.max(MEMORY_MIB_MIN.min(whole)).max(defaults::MEMORY_MIB_MIN))
}

fn described(drive: &Drive) -> String {
    let model = if drive.model.is_empty() { "no model" } else { &drive.model };
    let link = drive.link.name().unwrap_or("unknown link");
    let trim = if drive.discard_max.0 == 0 { "no TRIM" } else { "takes TRIM" };
    format!("{}: {model}, {}, {}, {trim}", drive.name, drive.size, link)
}

#[cfg(test)]
impl Here {
    /// The description for all the work on this host's whole drive; `None` if nothing can stand in for it.
    pub(crate) fn of_found(found: Found) -> Option<Self> {
        let request = CompareRequest { full_size: true, ..CompareRequest::default() };
        let stand_in = StandIn::chosen(found, &request, &Workload::of(&request).unwrap()).ok()?;
        Some(stand_in.stand_in(&mut crate::input::device(&stand_in.device).unwrap(), false, false).unwrap())
    }
}

#[cfg(test)]
mod tests {
    use trimwise_linux::doctor::Periodic;
    use trimwise_linux::doctor::Transport;
    use trimwise_linux::mount::parse_mountinfo;
    use trimwise_linux::today::{MountedBy, Today};

    use super::*;
    use crate::conclusion::class::usual_drive;

    fn drive(link: Transport, model: &str, gib: u64) -> Drive {
        usual_drive(link, model, Bytes::gib(gib))
    }

    fn found(mount: &str, drives: Vec<Drive>) -> Found {
        let size = drives.iter().map(|drive| drive.size.0).sum();
        Found {
            mount: parse_mountinfo(mount.as_bytes()).remove(0),
            drives,
            size: Bytes(size),
            utilization: Utilization::of(63),
            today: Today {
                discard: "nodiscard".to_owned(),
                at_intervals: vec![Periodic {
                    name: "fstrim.timer".to_owned(),
                    policy: Some("batch:1w".into()),
                    heeds_fstab: true,
                }],
                not_here: Vec::new(),
                mounted_by: MountedBy::Unknown,
                also_at: Vec::new(),
            },
            passes: Some(true),
            purposes: Vec::new(),
            has_systemd: true,
            root: HostRoot::default(),
            kernel: "6.12.43-amd64".to_owned(),
            memory: Some(Bytes::gib(16)),
        }
    }

    const EXT4: &str = "22 1 8:1 / /home rw - ext4 /dev/sda1 rw";

    pub fn chosen(found: Found, options: &str) -> Result<(StandIn, Here, Profile), Failure> {
        let workload = defaults::WORKLOAD_AT_ONCE.to_owned();
        let mut request = CompareRequest { workload, ..CompareRequest::default() };
        let mut words = options.split_whitespace();
        while let Some(word) = words.next() {
            match word {
                "--full-size" => request.full_size = true,
                "--device" => {}
                "--memory" => request.memory = words.next().map(|mib| mib.parse().unwrap()),
                device => request.devices.push(device.to_owned()),
            }
        }
        let stand_in = StandIn::chosen(found, &request, &Workload::of(&request)?)?;
        let mut device = crate::input::device(&stand_in.device)?;
        let here = stand_in.stand_in(&mut device, false, false)?;
        Ok((stand_in, here, device.1))
    }

    fn words(here: &Here) -> String {
        here.lines().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_known_model_has_its_own_profile_and_is_scaled_down_with_the_memory() {
        let known = drive(Transport::Ata, "Samsung SSD 870 EVO 500GB", 512);
        let (stand_in, here, profile) = chosen(found(EXT4, vec![known.clone()]), "").unwrap();
        assert_eq!((here.profile.as_str(), &*here.matched_by), ("sata-500gb-slc", "model"));
        assert_eq!((here.scale, here.work()), (0.03125, 32.0));
        assert_eq!(
            [true, false].map(|is_over_days| here.today(is_over_days)),
            [Some("batch:1w".into()), Some(PolicyId::OFF)]
        );
        assert_eq!((profile.config.capacity_bytes, stand_in.memory_mib), (16 << 30, Some(512)));
        assert_eq!(profile.name, "sata-500gb-slc (16 GiB)");
        assert_eq!(stand_in.linux.as_deref(), Some("6.12.43-amd64"));
        let text = words(&here);
        for expected in [
            "Here: /home (ext4 on /dev/sda1), 63 % in use, TRIM: nodiscard, fstrim.timer; sda: Samsung SSD 870 EVO",
            "In its place: sata-500gb-slc, made from published figures of this model; it was not fitted to this drive.",
            "Modelled at 1/32: 16 GiB drive, 512 MiB memory, 1/32 of the work; times and bytes are 1/32 of those of your \
             550 GB drive.",
        ] {
            assert!(text.contains(expected), "{text}");
        }
        let (stand_in, here, _) = chosen(found(EXT4, vec![known]), "--full-size").unwrap();
        assert!(here.scale > 0.9 && stand_in.memory_mib > Some(14_000), "the profile is a little smaller");
    }

    #[test]
    fn other_drives_are_taken_by_class() {
        let nvme = drive(Transport::Nvme, "X", 1000);
        let dramless = Drive { borrows_memory: true, ..nvme.clone() };
        let safe = Drive { is_volatile: false, ..nvme.clone() };
        for (drive, profile) in [
            (nvme, "nvme-1tb-slc"),
            (dramless, "nvme-500gb-dramless"),
            (safe, "nvme-960gb-enterprise"),
            (drive(Transport::Ata, "X", 100), "sata-generic"),
            (drive(Transport::Ata, "X", 1000), "sata-500gb-slc"),
            (drive(Transport::Mmc, "X", 60), "ufs21-64gb"),
            (drive(Transport::Ufs, "X", 200), "ufs4-256gb"),
        ] {
            let (_, here, _) = chosen(found(EXT4, vec![drive]), "").unwrap();
            assert_eq!((here.profile.as_str(), &*here.matched_by), (profile, "class"));
        }
        // A drive below the limit is modelled at its own size.
        let (_, here, profile) = chosen(found(EXT4, vec![drive(Transport::Mmc, "X", 8)]), "").unwrap();
        assert_eq!((here.scale.to_string().as_str(), profile.config.capacity_bytes), ("1", 8 << 30));
    }

    #[test]
    fn the_line_about_a_known_drive_names_the_fact_that_chose_its_class() {
        let p1 = drive(Transport::Nvme, "CT1000P1SSD8", 931);
        let (_, here, _) = chosen(found(EXT4, vec![p1]), "").unwrap();
        assert_eq!((here.profile.as_str(), here.evidence()), ("nvme-512gb-qlc", "a drive of its class"));
        let expected = "In its place: nvme-512gb-qlc, chosen by class (Crucial P1: QLC with a static and a dynamic SLC cache, \
                        by profiles/models.toml), since no profile names its model; it was not fitted to this drive.";
        assert!(words(&here).contains(expected), "{}", words(&here));
    }

    #[test]
    fn what_is_given_wins_and_no_ssd_is_refused_without_it() {
        let disk = Drive { rotates: true, ..drive(Transport::Ata, "ST2000DM008", 1863) };
        let memory = found("22 1 0:5 / /srv rw - tmpfs tmpfs rw", Vec::new());
        let in_image = Drive { is_below_loop: true, ..drive(Transport::Nvme, "CT1000P1SSD8", 1000) };
        let of_virtual = "--here /home: it is on a virtual disk, which does not show what drive is below it: sda; expected a \
                          directory on an SSD, or --device to name the profile";
        for (found, expected) in [
            (found(EXT4, vec![disk.clone()]), "--here /home: it is on a hard disk"),
            (found(EXT4, vec![drive(Transport::Virtio, "", 20)]), of_virtual),
            (found(EXT4, vec![in_image]), "it is on a loop device, whose TRIM frees space in a file"),
            (found(EXT4, vec![drive(Transport::Nvme, "INTEL MEMPEK1J032GA", 29)]), "it is on Optane"),
            (memory, "--here /srv: tmpfs: it is in memory; expected a directory on an SSD, or --device"),
        ] {
            let refused = chosen(found.clone(), "").err().unwrap().to_string();
            assert!(refused.contains(expected), "{refused}");
            let (stand_in, here, profile) = chosen(found, "--device sata-small --memory 700").unwrap();
            assert!(stand_in.is_given() && here.scale.to_string() == "1", "{here:?}");
            assert_eq!((profile.name.as_str(), stand_in.memory_mib), ("sata-small", Some(700)));
            let text = words(&here);
            assert!(text.contains("sata-small, as --device says.") && !text.contains("fitted"), "{text}");
        }
        let several = chosen(found(EXT4, vec![disk]), "--device sata-small sata-generic").err().unwrap();
        assert!(several.to_string().contains("one --device"), "{several}");
    }

    #[test]
    fn a_fitted_profile_says_so_and_whether_its_drive_is_of_this_model() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("my.toml");
        let own = Profile::embedded_text("sata-generic").unwrap();
        assert!(own.contains("\n[sources]\n") && !own.contains("\"cache.bytes\""));
        let fitted =
            own.replacen("\n[sources]\n", "\n[sources]\n\"cache.bytes\" = \"fitted: 1 [1, 1] 95 %\"\n", 1);
        for (models, expected) in [
            ("", "as --device says, fitted."),
            ("models = [\"X 100\"]\n", "as --device says, fitted to a drive of this model."),
            ("models = [\"Y\"]\n", "as --device says, fitted to a drive of another model."),
        ] {
            std::fs::write(&path, format!("{models}{fitted}")).unwrap();
            let found = found(EXT4, vec![drive(Transport::Ata, "X 100", 100)]);
            let (_, here, _) = chosen(found, &format!("--device {}", path.display())).unwrap();
            assert!(words(&here).contains(expected), "{}", words(&here));
        }
    }

    #[test]
    fn what_the_host_does_today_and_what_linux_offers_there_is_compared() {
        let policies = |mount: &str, discard: &str, periodic: Option<&str>, is_over_days| {
            let mut found =
                found(mount, vec![drive(Transport::Ata, "A", 100), drive(Transport::Ata, "B", 100)]);
            discard.clone_into(&mut found.today.discard);
            let periodic = periodic.map(|policy| Periodic {
                name: "x".to_owned(),
                policy: Some(policy.into()),
                heeds_fstab: true,
            });
            found.today.at_intervals = periodic.into_iter().collect();
            let (stand_in, here, _) = chosen(found, "").unwrap();
            let policies = stand_in.policies(is_over_days, None);
            (policies.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "), here)
        };
        let btrfs = "22 1 0:40 / /home rw - btrfs /dev/sda rw,discard=async";
        let (over_days, here) = policies(btrfs, "discard=async", None, true);
        assert_eq!(over_days, "off btrfs batch:1d batch:1w trimwised ideal");
        let text = words(&here);
        assert!(text.contains("2 drives; the first stands for all: sda: A"), "{text}");
        assert!(text.contains("The modelled file system is ext4."), "{text}");
        let kernel = Target::Kernel("6.12:btrfs".to_owned());
        let is_as_ext4 = [Target::Model, kernel].map(|target| here.is_as_ext4(&target));
        assert_eq!(is_as_ext4, [true, false], "title and verdict say so");
        assert_eq!(policies(btrfs, "discard=async", None, false).0, "off btrfs ideal");
        // btrfs itself, on a kernel: its own names, and nothing that only the model has.
        let own = |policy: &PolicyId| {
            let name = policy.to_string();
            ["off", "commit", "async"].contains(&&*name) || name.starts_with("batch")
        };
        let joined =
            |policies: Vec<PolicyId>| policies.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let (stand_in, ..) = chosen(found(btrfs, vec![drive(Transport::Ata, "A", 100)]), "").unwrap();
        assert_eq!(joined(stand_in.policies(true, Some(&own))), "off async batch:1d batch:1w");
        assert_eq!(joined(stand_in.policies(false, Some(&own))), "off async");
        for (policy, host, name) in
            [("async", "btrfs", "btrfs"), ("commit", "btrfs", "commit"), ("commit", "f2fs", "f2fs")]
        {
            assert_eq!(of_host(&policy.into(), host), name.into(), "{policy} on {host}");
            assert_eq!(on_kernel(name.into()), policy.into(), "{name}");
        }
        let monthly = policies(EXT4, "nodiscard", Some("batch:30d"), true).0;
        assert_eq!(monthly, "off batch:30d commit batch:1d batch:1w trimwised ideal");
        assert_eq!(policies(EXT4, "nodiscard", Some("batch:30d"), false).0, "off commit ideal");
        assert!(
            policies(EXT4, "nodiscard", Some("trimwised:lazy"), true).0.starts_with("off trimwised:lazy ")
        );
    }
}
