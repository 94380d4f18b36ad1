//! Power cuts on real kernels.
//!
//! A run boots a guest on a small drive that records its commands with their bytes. Random operations run in the guest
//! ([`trimwise::workload::tagged`]). Then, for each of many cuts,
//!
//! 1. `power` determines the drive's contents as for the model: everything that was flushed, and any subset of the
//!    writes and TRIMs since;
//! 2. a second guest mounts that, reads every file and unmounts it, and the file system's own checker examines the
//!    result (`images`);
//! 3. `check` compares the files with the contents that `history` allows.
//!
//! `overlap` examines the run itself: units that were written and trimmed at the same time.

mod check;
mod expected;
mod history;
mod images;
mod overlap;
mod soak;

use std::collections::BTreeSet;
use std::rc::Rc;

use trimwise::profile::Profile;
use trimwise::ssd::ReadAfterTrim;
use trimwise::units::Bytes;
use trimwise::workload::tagged::{Logged, Plan};
use trimwise_uml::cell::{KernelTarget, new_disk};
use trimwise_uml::disk::Recording;
use trimwise_uml::job::{FileSystem, Guest, Job, Outcome, Step, check_program};
use trimwise_uml::machine::SEARCH_PATH;

use super::power::Platter;
use super::{BROKEN_MAX, Broken, CrashReport, Violation, cut_points, seed_of, survival};
use crate::guests;
use history::History;
use images::Examiner;
pub use soak::{Soak, SoakReport, SoakViolation};
use trimwise::failure::{Failure, Mistake};

pub const CUTS_PER_RUN: u64 = 200;
const CUTS_PER_GUEST: usize = 100;
const OPERATIONS: u32 = 360;
const DRIVE: Bytes = Bytes::mib(64);
/// Maximum number of times that a drive is doubled because its superblocks are too large.
const DOUBLINGS_MAX: u32 = 6;
/// Contents of trimmed units in every second run, if the drive promises nothing.
const GARBAGE: u8 = 0xdb;

/// A crash test of one kernel, file system and mount options.
pub struct KernelCrashTest<'a> {
    pub guest: &'a Guest,
    pub target: &'a KernelTarget,
    /// See [`device`].
    pub device: &'a Profile,
    pub seed: u64,
}

/// Scales the drive down to the minimum that the file system needs, and doubles it until the drive's geometry fits:
/// large superblocks need more room.
pub fn device(profile: Profile, file_system: FileSystem) -> Result<Profile, Failure> {
    let size = Bytes(file_system.least().0.max(DRIVE.0));
    guests::check_size(&profile, file_system)?;
    let mut size = size.0;
    let most = size << DOUBLINGS_MAX;
    loop {
        match profile.config.shrunk(size) {
            Ok(config) => return Ok(Profile { config, ..profile }),
            Err(_) if size < most => size *= 2,
            Err(error) => return Err(Mistake::of("device", profile.name).because(error.to_string()).fail()),
        }
    }
}

/// Checks that the programs that examine a file system are installed.
pub fn check_programs(file_system: FileSystem) -> Result<(), Failure> {
    let (program, _, package) = images::checker(file_system);
    check_program((program, package), SEARCH_PATH, &format!("and checks {}", file_system.name()))
        .map_err(|e| Mistake::that(e.to_string()).fail())
}

struct Made {
    plan: Plan,
    log: Vec<Logged>,
    recording: Rc<Recording>,
    complaints: Vec<String>,
}

impl KernelCrashTest<'_> {
    /// Makes the run with this number (from 0), with these cuts.
    pub fn one_run(
        &self,
        run: u64,
        cuts: std::ops::Range<u64>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CrashReport, Failure> {
        let seed = seed_of(self.seed, run);
        let made = self.work(seed)?;
        self.attack(&made, run, cuts, progress)
    }

    fn work(&self, seed: u64) -> Result<Made, Failure> {
        let KernelTarget { file_system, options, .. } = self.target;
        let drawn = Plan::draw(seed);
        let plan = Plan { operations: OPERATIONS / drawn.tasks, ..drawn };
        let job = Job {
            steps: vec![
                Step::Mkfs { file_system: *file_system, options: mkfs_options(*file_system) },
                Step::Mount { file_system: *file_system, options: options.clone() },
                Step::Tagged { plan: plan.clone() },
                Step::Unmount,
            ],
        };
        let mut disks = [new_disk(self.device, seed, false).map_err(guests::failure)?.recorded()];
        let report = self.guest.run_in_any_case(&job, &mut disks).map_err(guests::job_failure)?;
        let [mut disk] = disks;
        let recording = disk.take_recording().ok_or_else(|| Failure::run("the drive recorded nothing"))?;
        let log = report.steps.into_iter().find_map(|step| match step.outcome {
            Outcome::Logged(log) => Some(log),
            _ => None,
        });
        let log = log.ok_or_else(|| Failure::run("the guest did not report what it did"))?;
        Ok(Made { plan, log, recording: Rc::new(recording), complaints: report.complaints })
    }

    fn attack(
        &self,
        made: &Made,
        run: u64,
        cuts: std::ops::Range<u64>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CrashReport, Failure> {
        let Made { plan, log, recording, complaints } = made;
        let seed = plan.seed;
        let record = &recording.record;
        // Before the first operation only the file system was made.
        let first = log.iter().map(|logged| logged.begin).min();
        let first = first.and_then(|mark| recording.marks.get(mark)).copied().unwrap_or(0);
        let units = self.device.config.capacity_bytes / trimwise::units::UNIT_BYTES;
        let mut platter = Platter::new(record, units);
        let mut cut_now = Vec::new();
        let mut points = cut_points(record, first, cuts, seed).into_iter().peekable();
        for (at, &event) in record.events.iter().enumerate() {
            platter.advance(event);
            while let Some((_, cut)) = points.next_if(|&(point, _)| point == at + 1) {
                let (survival, mut rng) = survival(seed, cut);
                let not_durable = platter.cut(survival, &mut rng);
                cut_now.push((cut, at + 1, survival, not_durable, platter.units().to_vec()));
                platter.restore();
            }
        }

        let history = History::of(log);
        let mut report = CrashReport::of_run(record, first);
        let live = complaints.iter().map(|said| Broken::KernelComplains { said: said.clone() });
        let wrong_reads = history.wrong_reads.iter().map(|(_, wrong)| wrong.clone());
        let live: Vec<Broken> = live.chain(wrong_reads).chain(overlap::overlaps(record, first)).collect();
        let promises = self.device.config.trim.read_after == ReadAfterTrim::Zeros;
        let trimmed = if promises || seed % 2 == 0 { 0 } else { GARBAGE };
        let examiner = Examiner { guest: self.guest, target: self.target, device: self.device, trimmed };
        for group in cut_now.chunks(CUTS_PER_GUEST) {
            let images = group.iter().map(|(.., units)| units.clone()).collect();
            progress(report.cuts + 1, cut_now.len() as u64 + 1);
            let findings = examiner.examine(recording, images)?;
            for ((cut, events, survival, not_durable, _), mut finding) in group.iter().zip(findings) {
                let now = recording.marks.partition_point(|mark| mark <= events);
                let expected = history.at(now, None);
                if let Some(examined) = &finding.examined {
                    report.files_checked += check::files(&expected, &examined.files, &mut finding.broken);
                }
                report.cuts += 1;
                report.not_durable += *not_durable as u64;
                // Errors from the time before the cut count once.
                if report.cuts == 1 {
                    finding.broken.extend(live.iter().cloned());
                }
                if finding.broken.is_empty() {
                    continue;
                }
                let kinds: BTreeSet<&str> = finding.broken.iter().map(Broken::kind).collect();
                kinds.into_iter().for_each(|kind| *report.kinds.entry(kind).or_default() += 1);
                report.note(*cut, || {
                    let mut history = last_operations(log, now, &finding.broken);
                    history.extend(finding.examined.into_iter().flat_map(|examined| examined.log));
                    Violation {
                        run,
                        cut: *cut,
                        events: *events,
                        not_durable: *not_durable,
                        survived: survival.to_string(),
                        machine: describe(plan),
                        broken_count: finding.broken.len(),
                        history,
                        broken: finding.broken.into_iter().take(BROKEN_MAX).collect(),
                    }
                });
            }
        }
        Ok(report)
    }
}

/// Returns further arguments for mkfs: ext4 would use blocks of 1 KiB on such a small drive.
fn mkfs_options(file_system: FileSystem) -> Vec<String> {
    match file_system {
        FileSystem::Ext4 => vec!["-b".to_owned(), "4096".to_owned()],
        FileSystem::Xfs | FileSystem::Btrfs | FileSystem::F2fs => Vec::new(),
    }
}

fn describe(plan: &Plan) -> String {
    format!(
        "{} tasks, {} files each, {} directories, writes up to {} bytes, {} % of the space taken",
        plan.tasks, plan.files, plan.directories, plan.write_bytes_max, plan.ballast_percent
    )
}

/// Describes the last operations before a mark on the files that `broken` names, and the last of all.
fn last_operations(log: &[Logged], now: usize, broken: &[Broken]) -> Vec<String> {
    const LINES: usize = 12;
    let named: Vec<String> = broken.iter().map(Broken::to_string).collect();
    let is_named = |path: &str| named.iter().any(|text| text.contains(&format!("'{path}'")));
    let mut begun: Vec<&Logged> = log.iter().filter(|logged| logged.begin < now).collect();
    begun.sort_by_key(|logged| logged.begin);
    let last = begun.last().map(|logged| logged.id);
    begun.retain(|logged| Some(logged.id) == last || logged.operation.paths().any(is_named));
    let line = |logged: &&Logged| {
        let state = match &logged.error {
            _ if logged.end >= now => "not returned".to_owned(),
            Some(error) => format!("failed: {error}"),
            None => "returned".to_owned(),
        };
        format!("operation {}: {:?}, {state}", logged.id, logged.operation)
    };
    begun[begun.len().saturating_sub(LINES)..].iter().map(line).collect()
}
