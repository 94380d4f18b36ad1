//! A fleet: the documents of many hosts, and what follows from them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trimwise::failure::{Failure, Mistake, argument};
use trimwise::live::Untrimmed;
use trimwise::units::Bytes;
use trimwise_linux::code::{Code, named};
use trimwise_linux::files::read_input;

use crate::SCHEMA;
use crate::daemon::UntrimmedOf;
use trimwise::numbers::counted;

/// For comparison, 2,000 file systems take 3 MB.
const BYTES_MAX: u64 = 64 << 20;

/// Summary of many hosts. Hosts, file systems and findings are sorted by name.
#[derive(Debug, Default, Serialize)]
pub struct Fleet {
    /// The version that reads the documents, not the hosts'.
    pub trimwise: &'static str,
    pub hosts: BTreeSet<String>,
    /// Number of hosts by their version of trimwise.
    pub versions: BTreeMap<String, usize>,
    pub file_systems: Vec<FileSystem>,
    /// Drives and file systems where TRIM does not arrive or is not honoured.
    pub not_honoured: Vec<Finding>,
    /// Other problems, as judged by the hosts.
    pub trouble: Vec<Finding>,
    /// Counts of each code in [`not_honoured`](Self::not_honoured) and [`trouble`](Self::trouble).
    pub codes: BTreeMap<String, Counted>,
    /// Number of file systems by policy.
    pub policies: BTreeMap<String, usize>,
    pub unusable: Vec<Unusable>,
}

/// A file system of a host, from `trimwise status`.
#[derive(Debug, PartialEq, Serialize)]
pub struct FileSystem {
    pub host: String,
    pub mount_point: String,
    /// `ext4`, `xfs`...
    pub fs_type: String,
    pub policy: String,
    pub size_bytes: u64,
    pub used_bytes: u64,
    /// Free space not trimmed since it was freed. Unknown until the daemon has read it, and where the kernel itself
    /// discards, since nobody counts that.
    pub stale_bytes: Untrimmed,
    /// The kernel itself discards (mount option `discard`).
    pub online: bool,
    /// Trimmed by slices since the daemon started.
    pub trimmed_bytes: u64,
}

/// Something about a host that somebody should look at.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    pub host: String,
    /// The mount point or the device; empty for the whole host.
    pub place: String,
    /// The finding and its evidence, without a full stop.
    pub what: String,
    /// May be a code that only a newer version knows. `None` if the host's version has no codes.
    pub code: Option<String>,
    /// The command that reported it: `status`, `doctor` or `verify`.
    pub from: &'static str,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    pub findings: usize,
    /// Number of hosts with at least one.
    pub hosts: usize,
    /// `None` if this version does not know the code.
    pub meaning: Option<&'static str>,
}

#[derive(Debug, Serialize)]
pub struct Unusable {
    pub file: PathBuf,
    /// Also says what was expected.
    pub why: String,
}

/// The parts of `trimwise status --json` that a fleet needs.
#[derive(Deserialize)]
struct Status {
    dry_run: bool,
    config_problem: Option<String>,
    state_problem: Option<String>,
    history_problem: Option<String>,
    mounts_problem: Option<String>,
    limits_problem: Option<String>,
    metrics_problem: Option<String>,
    taken_problem: Option<String>,
    option_problem: Option<String>,
    #[serde(default)]
    codes: Vec<String>,
    file_systems: Vec<Managed>,
}

#[derive(Deserialize)]
struct Managed {
    mount_point: String,
    fs_type: String,
    status: Option<Live>,
    problem: Option<String>,
    option_problem: Option<String>,
    #[serde(default)]
    codes: Vec<String>,
}

#[derive(Deserialize)]
struct Live {
    policy: String,
    used_bytes: u64,
    total_bytes: u64,
    waiting_bytes: Untrimmed,
    left_bytes: Untrimmed,
    mapped: Option<bool>,
    online: bool,
    trouble: bool,
    why: String,
    totals: Totals,
}

#[derive(Deserialize)]
struct Totals {
    trimmed_bytes: u64,
    counted_bytes: u64,
    slices: Option<u64>,
}

/// The parts of `trimwise doctor --json` that a fleet needs.
#[derive(Deserialize)]
struct Doctor {
    file_systems: Vec<Examined>,
    findings: Vec<Told>,
}

#[derive(Deserialize)]
struct Examined {
    mount_point: String,
    /// `None` if sysfs does not show the device.
    passes: Option<bool>,
    findings: Vec<Told>,
}

#[derive(Deserialize)]
struct Told {
    code: Option<String>,
    wrong: bool,
    what: String,
}

/// The parts of `trimwise verify --json` that a fleet needs, for a device or (`verdict`) a directory.
#[derive(Deserialize)]
struct Verified {
    settings: Settings,
    judgement: Option<Judgement>,
    verdict: Option<String>,
    /// Not in documents of versions before it.
    code: Option<String>,
    sentence: Option<String>,
}

#[derive(Deserialize)]
struct Settings {
    target: String,
}

#[derive(Deserialize)]
struct Judgement {
    verdict: String,
    reasons: Vec<String>,
}

fn of_place(place: impl std::fmt::Display) -> Mistake {
    Mistake::of(argument("files"), place)
}

impl Fleet {
    /// Reads files, and the documents in folders.
    ///
    /// # Errors
    ///
    /// If a place does not exist, or no file is found. A file that cannot be used goes to [`Self::unusable`].
    pub fn read(places: &[PathBuf]) -> Result<Self, Failure> {
        let mut fleet = Self { trimwise: trimwise::VERSION, ..Self::default() };
        let mut files = BTreeSet::new();
        for place in places {
            let fail = |e: std::io::Error| {
                let expected = "a file that `trimwise status --json FILE` wrote, or a folder of them";
                of_place(place.display()).because(e.to_string()).expected(expected).fail()
            };
            if fs::metadata(place).map_err(fail)?.is_dir() {
                files_below(place, &mut files, &mut fleet.unusable).map_err(fail)?;
            } else {
                files.insert(place.clone());
            }
        }
        if files.is_empty() && fleet.unusable.is_empty() {
            let places: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
            return Err(of_place(places.join(", ")).because("no file there is named *.json").fail());
        }
        let mut versions = BTreeMap::new();
        let mut told = BTreeMap::new();
        for file in files {
            match fleet.take(&file, &mut told) {
                Ok((host, version)) => drop(versions.insert(host, version)),
                Err(why) => fleet.unusable.push(Unusable { file, why }),
            }
        }
        fleet.hosts = versions.keys().cloned().collect();
        for version in versions.into_values() {
            *fleet.versions.entry(version).or_default() += 1;
        }
        for one in &fleet.file_systems {
            *fleet.policies.entry(one.policy.clone()).or_default() += 1;
        }
        let place = |one: &FileSystem| (one.host.clone(), one.mount_point.clone());
        fleet.file_systems.sort_by_key(place);
        fleet.not_honoured.sort();
        fleet.trouble.sort();
        let mut hosts: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for one in fleet.not_honoured.iter().chain(&fleet.trouble) {
            let Some(code) = &one.code else { continue };
            fleet.codes.entry(code.clone()).or_default().findings += 1;
            hosts.entry(code).or_default().insert(&one.host);
        }
        for (code, counted) in &mut fleet.codes {
            counted.hosts = hosts[code.as_str()].len();
            counted.meaning = named(code).map(|entry| entry.meaning);
        }
        Ok(fleet)
    }

    /// Takes one document; returns the host and its version of trimwise. `told` holds the files already taken, by host,
    /// kind and target.
    fn take(
        &mut self,
        file: &Path,
        told: &mut BTreeMap<(String, String), PathBuf>,
    ) -> Result<(String, String), String> {
        let host = host_of(file)?;
        let bytes = read_input(file, BYTES_MAX + 1).map_err(|e| e.to_string())?;
        if bytes.len() as u64 > BYTES_MAX {
            return Err(format!("larger than {} MiB; expected the status of one host", BYTES_MAX >> 20));
        }
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Err("is empty; did the command on the host fail?".to_owned());
        }
        let document: Value = serde_json::from_slice(&bytes).map_err(|e| format!("is not JSON: {e}"))?;
        let (Some(version), Some(schema)) = (document["trimwise"].as_str(), document["schema"].as_u64())
        else {
            let keys =
                "expected the JSON of `trimwise status`, `doctor` or `verify`, with `schema` and `trimwise`";
            return Err(keys.to_owned());
        };
        if schema != u64::from(SCHEMA) {
            return Err(format!(
                "has schema {schema}, of trimwise {version}; this trimwise reads schema {SCHEMA}"
            ));
        }
        let version = version.to_owned();
        let has = |key: &str| document.get(key).is_some();
        let kind = match () {
            () if has("uptime_ns") && has("file_systems") => "status",
            () if has("kernel") && has("file_systems") => "doctor",
            () if has("judgement") || has("verdict") && has("sentence") => "verify",
            () => {
                return Err(
                    "is JSON of another command; expected JSON of status, doctor or verify".to_owned()
                );
            }
        };
        let target = document["settings"]["target"].as_str().unwrap_or_default();
        match told.entry((host.clone(), format!("{kind} {target}"))) {
            Entry::Vacant(place) => drop(place.insert(file.to_owned())),
            Entry::Occupied(other) => {
                return Err(format!("{host}'s {kind} is also in {}, which was used", other.get().display()));
            }
        }
        match kind {
            "status" => self.take_status(&host, serde_json::from_value(document).map_err(wrong)?),
            "doctor" => self.take_doctor(&host, serde_json::from_value(document).map_err(wrong)?),
            _ => self.take_verified(&host, serde_json::from_value(document).map_err(wrong)?),
        }
        Ok((host, version))
    }

    fn take_status(&mut self, host: &str, status: Status) {
        let finding = |place: &str, code: &str, what: String| {
            let (host, place) = (host.to_owned(), place.to_owned());
            Finding { host, place, what, code: Some(code.to_owned()), from: "status" }
        };
        let mut trouble = |place: &str, code: Code, what: String| {
            self.trouble.push(finding(place, code.as_str(), ended(&what)));
        };
        let whole = [
            (
                Code::DaemonConfig,
                status.config_problem.map(|why| format!("the configuration is broken: {why}")),
            ),
            (Code::DaemonState, status.state_problem),
            (Code::DaemonHistory, status.history_problem),
            (Code::DaemonMounts, status.mounts_problem),
            (Code::DaemonLimits, status.limits_problem),
            (Code::DaemonMetrics, status.metrics_problem),
            (Code::DaemonMountTaken, status.taken_problem),
            (Code::DaemonOption, status.option_problem),
        ];
        let whole = whole.into_iter().filter_map(|(code, what)| Some((code, what?)));
        whole.for_each(|(code, what)| trouble("", code, what));
        // A finding of a newer version is known by its code alone.
        let newer = |codes: &[String], place: &str| {
            let newer: Vec<&String> = codes.iter().filter(|code| named(code).is_none()).collect();
            newer.into_iter().map(|code| finding(place, code, NEWER.to_owned())).collect::<Vec<_>>()
        };
        self.trouble.extend(newer(&status.codes, ""));
        for one in status.file_systems {
            self.trouble.extend(newer(&one.codes, &one.mount_point));
            let mut trouble = |code: Code, what: &str| {
                self.trouble.push(finding(&one.mount_point, code.as_str(), ended(what)));
            };
            if let Some(problem) = &one.problem {
                trouble(Code::DaemonMount, problem);
            }
            if let Some(problem) = &one.option_problem {
                trouble(Code::DaemonOption, problem);
            }
            let Some(live) = one.status else { continue };
            if live.trouble {
                trouble(Code::DaemonTrouble, &live.why);
            }
            let Totals { trimmed_bytes, counted_bytes, slices } = live.totals;
            let UntrimmedOf { waiting, left } =
                UntrimmedOf::written(live.waiting_bytes, live.left_bytes, live.mapped, slices);
            if trimmed_bytes > 0 && counted_bytes == 0 && !status.dry_run {
                let trimmed = Bytes(trimmed_bytes);
                let what = format!("slices trimmed {trimmed}, but the device counted no discard meanwhile");
                self.not_honoured.push(finding(&one.mount_point, Code::DaemonUncounted.as_str(), what));
            }
            self.file_systems.push(FileSystem {
                host: host.to_owned(),
                mount_point: one.mount_point,
                fs_type: one.fs_type,
                policy: live.policy,
                size_bytes: live.total_bytes,
                used_bytes: live.used_bytes,
                stale_bytes: match live.online {
                    true => Untrimmed::Unknown,
                    false => waiting + left,
                },
                online: live.online,
                trimmed_bytes,
            });
        }
    }

    fn take_doctor(&mut self, host: &str, doctor: Doctor) {
        let finding = |place: &str, what: &str, code: Option<String>| Finding {
            host: host.to_owned(),
            place: place.to_owned(),
            what: ended(what),
            code,
            from: "doctor",
        };
        for one in doctor.file_systems {
            let wrong: Vec<&Told> = one.findings.iter().filter(|f| f.wrong).collect();
            let is_stopped = one.passes == Some(false);
            let list = if is_stopped { &mut self.not_honoured } else { &mut self.trouble };
            list.extend(wrong.iter().map(|f| finding(&one.mount_point, &f.what, f.code.clone())));
            if is_stopped && wrong.is_empty() {
                let code = Code::StopsBelow.to_string();
                self.not_honoured.push(finding(
                    &one.mount_point,
                    "TRIM does not reach the drive",
                    Some(code),
                ));
            }
        }
        let of_host = doctor.findings.iter().filter(|f| f.wrong);
        self.trouble.extend(of_host.map(|f| finding("", &f.what, f.code.clone())));
    }

    fn take_verified(&mut self, host: &str, verified: Verified) {
        let (verdict, why) = match verified.judgement {
            Some(Judgement { verdict, reasons }) => (verdict, reasons.into_iter().next()),
            None => (verified.verdict.unwrap_or_default(), verified.sentence),
        };
        let known = match verdict.as_str() {
            "ignored" => Some((Code::VerifyIgnored, "TRIM is ignored")),
            "harmful" => Some((Code::VerifyHarmful, "TRIM does harm")),
            "unsupported" => Some((Code::VerifyUnsupported, "the device does not accept TRIM")),
            "in_part" => Some((Code::VerifyInPart, "TRIM reaches only a part")),
            "restores_in_part" => {
                Some((Code::VerifyRestoresInPart, "TRIM restores only a part of the speed"))
            }
            "not_sent" => Some((Code::VerifyNotSent, "the kernel did not send the TRIM")),
            "stops" => Some((Code::VerifyStops, "a layer below passes no TRIM on")),
            _ => None,
        };
        let (code, meaning) = match (known, verified.code) {
            (Some((code, meaning)), _) => (code.to_string(), meaning),
            (None, Some(newer)) if named(&newer).is_none() => (newer, NEWER),
            _ => return,
        };
        let why = why.map_or(String::new(), |why| format!(": {}", ended(&why)));
        self.not_honoured.push(Finding {
            host: host.to_owned(),
            place: verified.settings.target,
            what: format!("{meaning}{why}"),
            code: Some(code),
            from: "verify",
        });
    }

    pub fn failure(&self) -> Option<Failure> {
        let files = counted(self.unusable.len() as u64, "file");
        (!self.unusable.is_empty()).then(|| Failure::run(format!("{files} cannot be used")))
    }

    /// Returns the sum of what is known to be stale, and the number of hosts that have any. The sum is unknown if that
    /// of each file system is.
    pub fn stale(&self) -> (Untrimmed, usize) {
        let known = || self.file_systems.iter().filter(|one| one.stale_bytes != Untrimmed::Unknown);
        let stale = known().filter(|one| one.stale_bytes != Untrimmed::Known(Bytes(0)));
        let hosts: BTreeSet<&str> = stale.map(|one| one.host.as_str()).collect();
        let sum = known().map(|one| one.stale_bytes).reduce(|sum, one| sum + one);
        (sum.unwrap_or(Untrimmed::Unknown), hosts.len())
    }

    pub fn usual_policy(&self) -> Option<&str> {
        let most = self.policies.values().max()?;
        self.policies.iter().find(|(_, count)| *count == most).map(|(policy, _)| policy.as_str())
    }
}

/// What is known of a finding of a newer version.
const NEWER: &str = "a finding that this version does not know";

/// Puts a sentence on one line, without its full stop.
fn ended(sentence: &str) -> String {
    let line: Vec<&str> = sentence.split_whitespace().collect();
    line.join(" ").trim_end_matches('.').to_owned()
}

fn wrong(error: serde_json::Error) -> String {
    format!("is not in trimwise's format: {error}")
}

/// Finds files called `*.json`. Hidden files are left out, since they may be half written. A folder inside that cannot
/// be read is unusable.
fn files_below(
    folder: &Path,
    files: &mut BTreeSet<PathBuf>,
    unusable: &mut Vec<Unusable>,
) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if entry.file_type()?.is_dir() && !hidden {
            if let Err(error) = files_below(&path, files, unusable) {
                unusable.push(Unusable { file: path, why: error.to_string() });
            }
        } else if !hidden && path.extension().is_some_and(|e| e == "json") {
            files.insert(path);
        }
    }
    Ok(())
}

/// Returns the host that a file is about, from the names `HOST.json`, `HOST.status.json` or `HOST/status.json`.
fn host_of(file: &Path) -> Result<String, String> {
    let is_word = |word: &str| ["status", "doctor", "verify"].contains(&word) || word.starts_with("verify-");
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let stem = name.strip_suffix(".json").unwrap_or(name);
    let host = match stem.rsplit_once('.') {
        Some((host, word)) if is_word(word) => host,
        _ if is_word(stem) => {
            let folder = file.parent().and_then(Path::file_name).and_then(|name| name.to_str());
            folder.unwrap_or_default()
        }
        _ => stem,
    };
    if host.is_empty() {
        return Err(
            "does not say which host it is about; expected HOST.json, or a folder called HOST".to_owned()
        );
    }
    Ok(host.to_owned())
}
