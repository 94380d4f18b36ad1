//! Contents of the disk after each cut, examined by the kernel and by the file system's own checker.
//!
//! One guest examines many cuts: at the mark before each step, the host puts the next cut's bytes on the disk, changing
//! only the units that differ. The guest mounts it, which replays the journal, reads every file and unmounts it. Then
//! the checker runs on this computer, on the same bytes.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};
use std::rc::Rc;

use trimwise::fs::witness::ContentId;
use trimwise::profile::Profile;
use trimwise::units::{Lpn, UNIT_BYTES, UnitRange};
use trimwise_linux::sparse_store::SparseStore;
use trimwise_uml::cell::{KernelTarget, new_disk};
use trimwise_uml::disk::{Changed, Recording};
use trimwise_uml::job::{Examined, FileSystem, Guest, Job, Outcome, Step};

use super::Broken;
use crate::guests;
use trimwise::failure::Failure;

const LINES: usize = 6;
/// Number of kernels that may break off before the remaining cuts of a run are given up.
const BROKEN_OFF_MAX: usize = 3;

#[derive(Clone, Debug, Default)]
pub(super) struct Finding {
    pub examined: Option<Examined>,
    pub broken: Vec<Broken>,
}

pub(super) struct Examiner<'a> {
    pub guest: &'a Guest,
    pub target: &'a KernelTarget,
    pub device: &'a Profile,
    pub trimmed: u8,
}

struct Shelf {
    recording: Rc<Recording>,
    images: Vec<Vec<ContentId>>,
    /// Contents of the disk's units; `None` for those that the guest has changed.
    shown: Vec<Option<ContentId>>,
    trimmed: [u8; UNIT_BYTES as usize],
    file_system: FileSystem,
    said: Vec<Option<String>>,
    put: usize,
}

impl Shelf {
    /// Called at each mark, after the previous image has been examined. Puts the next one on the disk.
    fn next(&mut self, number: usize, store: &SparseStore, changed: Changed) -> io::Result<()> {
        for unit in changed {
            self.shown[unit as usize] = None;
        }
        if number > 0 {
            self.said.push(check(self.file_system, store.file())?);
        }
        let Some(image) = self.images.get(number) else { return Ok(()) };
        for (unit, (&content, shown)) in (0..).zip(image.iter().zip(&mut self.shown)) {
            if *shown == Some(content) {
                continue;
            }
            *shown = Some(content);
            let bytes = self.recording.bytes(content).unwrap_or(&self.trimmed);
            if bytes.iter().all(|&byte| byte == 0) {
                store.punch_units(UnitRange::new(Lpn(unit), 1))?;
            } else {
                store.write(unit * UNIT_BYTES, bytes)?;
            }
        }
        self.put = number + 1;
        Ok(())
    }
}

impl Examiner<'_> {
    pub fn examine(
        &self,
        recording: &Rc<Recording>,
        images: Vec<Vec<ContentId>>,
    ) -> Result<Vec<Finding>, Failure> {
        let mut found: Vec<Option<Finding>> = vec![None; images.len()];
        for _ in 0..=BROKEN_OFF_MAX {
            let left: Vec<usize> = (0..images.len()).filter(|&cut| found[cut].is_none()).collect();
            if left.is_empty() {
                break;
            }
            let these = left.iter().map(|&cut| images[cut].clone()).collect();
            match self.examine_in_one_guest(recording, these)? {
                Ok(findings) => left.iter().zip(findings).for_each(|(&cut, f)| found[cut] = Some(f)),
                Err((at, said)) => {
                    let broken = vec![Broken::KernelComplains { said }];
                    found[left[at]] = Some(Finding { broken, ..Finding::default() });
                }
            }
        }
        let given_up = || Finding {
            broken: vec![Broken::KernelComplains {
                said: "not examined: earlier kernels stopped unexpectedly".to_owned(),
            }],
            ..Finding::default()
        };
        Ok(found.into_iter().map(|finding| finding.unwrap_or_else(given_up)).collect())
    }

    /// Examines cuts in one guest. If a cut broke its kernel, returns which one, and the kernel's message.
    fn examine_in_one_guest(
        &self,
        recording: &Rc<Recording>,
        images: Vec<Vec<ContentId>>,
    ) -> Result<Result<Vec<Finding>, (usize, String)>, Failure> {
        let KernelTarget { file_system, options, .. } = self.target;
        let step = Step::Examine { file_system: *file_system, options: options.clone() };
        let job = Job { steps: vec![step; images.len()] };
        let units = images.first().map_or(0, Vec::len);
        let shelf = Rc::new(RefCell::new(Shelf {
            recording: Rc::clone(recording),
            images,
            shown: vec![None; units],
            trimmed: [self.trimmed; UNIT_BYTES as usize],
            file_system: *file_system,
            said: Vec::new(),
            put: 0,
        }));
        let at_mark = Rc::clone(&shelf);
        let disk = new_disk(self.device, 0, false).map_err(guests::failure)?;
        let disk = disk.with_exchange(Box::new(move |number, store, changed| {
            at_mark.borrow_mut().next(number, store, changed)
        }));
        let report = match self.guest.run_in_any_case(&job, &mut [disk]) {
            Ok(report) => report,
            Err(error) if error.is_of_the_kernel() => {
                let put = shelf.borrow().put;
                return match put.checked_sub(1) {
                    Some(at) => Ok(Err((at, error.to_string()))),
                    None => Err(Failure::run(error)),
                };
            }
            Err(error) => return Err(guests::job_failure(error)),
        };
        let said = std::mem::take(&mut shelf.borrow_mut().said);
        let mut findings = Vec::new();
        for (step, said) in report.steps.into_iter().zip(said) {
            let Outcome::Examined(examined) = step.outcome else {
                return Err(Failure::run("the guest did not report what it found"));
            };
            let mut broken = Vec::new();
            broken.extend(examined.error.clone().map(|error| Broken::Unusable { error }));
            let complaints = examined.complaints.iter().cloned();
            broken.extend(complaints.map(|said| Broken::KernelComplains { said }));
            // If the mount failed, the checker would report the journal that was not replayed.
            broken
                .extend(said.filter(|_| examined.error.is_none()).map(|said| Broken::CheckerFound { said }));
            let examined = Some(examined).filter(|examined| examined.error.is_none());
            findings.push(Finding { examined, broken });
        }
        Ok(Ok(findings))
    }
}

/// Returns the checker of a file system, its arguments, and its Debian package. No checker changes anything, and each
/// fails if it finds a fault.
pub(super) fn checker(file_system: FileSystem) -> (&'static str, &'static [&'static str], &'static str) {
    match file_system {
        FileSystem::Ext4 => ("e2fsck", &["-f", "-n"], "e2fsprogs"),
        FileSystem::Xfs => ("xfs_repair", &["-n", "-f"], "xfsprogs"),
        FileSystem::Btrfs => ("btrfs", &["check", "--readonly"], "btrfs-progs"),
        FileSystem::F2fs => ("fsck.f2fs", &["--dry-run"], "f2fs-tools"),
    }
}

/// Runs the checker on a disk's bytes; returns its output if it found a fault.
pub(super) fn check(file_system: FileSystem, disk: &File) -> io::Result<Option<String>> {
    let (program, arguments, _) = checker(file_system);
    let path = format!("/proc/{}/fd/{}", std::process::id(), disk.as_raw_fd());
    let output = Command::new(program)
        .args(arguments)
        .arg(path)
        .env("PATH", trimwise_uml::machine::SEARCH_PATH)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| io::Error::new(e.kind(), format!("{program}: {e}")))?;
    let text =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    // fsck.f2fs reports faults only in its text.
    let is_fault =
        |line: &&str| line.contains("[Fail]") || line.contains("[ASSERT]") || line.contains("[FIX]");
    let f2fs: Vec<&str> = text.lines().filter(is_fault).take(LINES).collect();
    if output.status.success() && f2fs.is_empty() {
        return Ok(None);
    }
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let first = &lines[..lines.len().min(LINES)];
    let said = if f2fs.is_empty() { first.join("; ") } else { f2fs.join("; ") };
    Ok(Some(format!("{program} ({}): {said}", output.status)))
}
