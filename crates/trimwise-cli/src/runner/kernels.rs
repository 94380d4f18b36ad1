//! Boots the kernels of the experiment `kernels` and reads what they did from the drive's trace.

use std::path::Path;

use trimwise::units::Bytes;
use trimwise_lab::experiment::kernels::observe::{
    Calls, Deletion, Discarded, Discards, Layout, Piece, covered, gaps_taken, union,
};
use trimwise_lab::experiment::kernels::{
    self, AFTER_FITRIM_NS, CAPACITY, Case, DEVICE, DeletionRun, EXTENT_BYTES, EXTENTS, Fitrim, KERNELS,
    Kernel, LATER_FSYNCS, MOUNTS, Measured, Mount, PLAIN_BYTES, RemountRun, RemountStep, SETTLE_NS,
    SMALL_BYTES, UnmountRun, WINDOW_NS,
};
use trimwise_uml::disk::TraceEntry;
use trimwise_uml::images::{self, KernelImage};
use trimwise_uml::job::{FileSystem, Job, Outcome, Step, StepReport};

use super::guests::{self, Bounds, unexpected};
use crate::failure::Failure;

/// The guest's memory: it holds the largest file and its journal.
const MEMORY: Bytes = Bytes::mib(256);

/// Memory of this computer that a run of one case takes: guest, model and what the guest writes.
pub const MEMORY_OF_RUN: Bytes = Bytes::mib(900);

/// The results of one case.
pub enum Observed {
    /// Of [`Case::Deletions`].
    Deletions(DeletionRun),
    /// Of [`Case::Unmount`].
    Unmount(UnmountRun),
    /// Of [`Case::Remount`].
    Remount(RemountRun),
}

impl Observed {
    /// Stores them where they belong.
    pub fn enter(self, measured: &mut Measured) {
        match self {
            Self::Deletions(run) => measured.deletions.push(run),
            Self::Unmount(run) => measured.unmounts.push(run),
            Self::Remount(run) => measured.remounts.push(run),
        }
    }
}

/// Runs one case on one kernel.
pub fn run(image: &KernelImage, case: Case, seed: u64, bounds: &Bounds) -> Result<Observed, Failure> {
    let kernel = image.version.clone();
    match case {
        Case::Deletions(mount) => {
            let ran = Ran::new(image, deletions(mount)?, seed, bounds)?;
            deletion_run(&ran, kernel, mount).map(Observed::Deletions)
        }
        Case::Unmount(mount) => {
            let ran = Ran::new(image, unmount(mount)?, seed, bounds)?;
            unmount_run(&ran, kernel, mount).map(Observed::Unmount)
        }
        Case::Remount(mount) => {
            let ran = Ran::new(image, remount(mount)?, seed, bounds)?;
            remount_run(&ran, kernel, mount).map(Observed::Remount)
        }
    }
}

/// The files that are removed, in the order of [`Layout::ALL`]. When the first is removed, the last still lies between
/// its pieces; when the last is removed, nothing does.
const FILES: [&str; 3] = ["scattered", "plain", "scattered.gaps"];

fn file_system(mount: Mount) -> Result<FileSystem, Failure> {
    mount.file_system.parse().map_err(Failure::run)
}

fn append(file: &str, bytes: u64) -> Step {
    Step::Append { file: file.to_owned(), bytes }
}

fn remove(file: &str) -> Step {
    Step::Remove { file: file.to_owned() }
}

fn extents(file: &str) -> Step {
    Step::Extents { file: file.to_owned() }
}

fn scatter() -> Step {
    let file = FILES[0].to_owned();
    Step::Scatter { file, extents: EXTENTS, extent_bytes: EXTENT_BYTES, keeps_gaps: true }
}

fn fresh(mount: Mount, options: &str) -> Result<Vec<Step>, Failure> {
    let file_system = file_system(mount)?;
    let options = options.to_owned();
    Ok(vec![Step::Mkfs { file_system, options: Vec::new() }, Step::Mount { file_system, options }])
}

fn settle() -> [Step; 2] {
    [Step::Sync, Step::Sleep { ns: SETTLE_NS }]
}

fn deletions(mount: Mount) -> Result<Vec<Step>, Failure> {
    let mut steps = fresh(mount, mount.options)?;
    steps.extend([append("plain", PLAIN_BYTES), append("small", SMALL_BYTES), scatter()]);
    steps.extend(settle());
    steps.push(extents(FILES[2]));
    for file in FILES {
        steps.extend([extents(file), remove(file)]);
        steps.extend((0..=LATER_FSYNCS).map(|_| append("other", 4096)));
        steps.push(Step::Sleep { ns: WINDOW_NS });
    }
    let fitrim = || [Step::Fitrim { minlen_bytes: 0 }, Step::Sleep { ns: AFTER_FITRIM_NS }];
    steps.extend(fitrim());
    steps.extend(fitrim());
    steps.extend([remove("small"), Step::Sleep { ns: SETTLE_NS }]);
    steps.extend(fitrim());
    steps.push(Step::Unmount);
    Ok(steps)
}

fn unmount(mount: Mount) -> Result<Vec<Step>, Failure> {
    let mut steps = fresh(mount, mount.options)?;
    steps.push(scatter());
    steps.extend(settle());
    steps.extend([extents(FILES[0]), remove(FILES[0]), Step::Sync, Step::Unmount]);
    let (file_system, options) = (file_system(mount)?, mount.options.to_owned());
    steps.extend([Step::Mount { file_system, options }, Step::Sleep { ns: WINDOW_NS }]);
    steps.extend([Step::Fitrim { minlen_bytes: 0 }, Step::Sleep { ns: AFTER_FITRIM_NS }, Step::Unmount]);
    Ok(steps)
}

fn remount(mount: Mount) -> Result<Vec<Step>, Failure> {
    let mut steps = fresh(mount, "nodiscard")?;
    for file in ["first", "second", "third"] {
        steps.push(append(file, PLAIN_BYTES));
    }
    steps.extend(settle());
    for (file, options) in [("first", None), ("second", Some(mount.options)), ("third", Some("nodiscard"))] {
        steps.extend(options.map(|options| Step::Remount { options: options.to_owned() }));
        steps.extend([Step::Read { path: "/proc/mounts".to_owned() }, extents(file), remove(file)]);
        steps.push(Step::Sleep { ns: WINDOW_NS });
    }
    steps.push(Step::Unmount);
    Ok(steps)
}

/// A job that was done, with what the drive saw.
struct Ran {
    steps: Vec<(Step, StepReport)>,
    trace: Vec<TraceEntry>,
    /// One more than steps: the time, and how many entries the trace had.
    marks: Vec<(u64, usize)>,
}

impl Ran {
    fn new(image: &KernelImage, steps: Vec<Step>, seed: u64, bounds: &Bounds) -> Result<Self, Failure> {
        let mut disks = [guests::small_drive(DEVICE, CAPACITY, seed)?];
        let guest = guests::guest(image, MEMORY, bounds)?;
        let report = guest.run(&Job { steps: steps.clone() }, &mut disks).map_err(guests::job_failure)?;
        let [disk] = disks;
        let (_, _, trace, marks) = disk.into_parts();
        let marks = marks.into_iter().map(|mark| (mark.at.0, mark.traced)).collect();
        Ok(Self { steps: steps.into_iter().zip(report.steps).collect(), trace, marks })
    }

    /// Discards between the beginning of a step and the end of another.
    fn discards(&self, first: usize, last: usize) -> Vec<Discarded> {
        let end = self.marks.get(last + 1).map_or(self.trace.len(), |mark| mark.1);
        let begin = self.marks.get(first).map_or(end, |mark| mark.1);
        guests::discards(&self.trace[begin..end], 0)
    }

    fn counted(&self, first: usize, last: usize) -> Discards {
        Discards::of(&self.discards(first, last))
    }

    /// Returns the steps that satisfy `wanted`.
    fn all(&self, wanted: impl Fn(&Step) -> bool) -> Vec<usize> {
        (0..self.steps.len()).filter(|&i| wanted(&self.steps[i].0)).collect()
    }

    fn duration_ns(&self, step: usize) -> u64 {
        self.steps[step].1.duration().as_nanos()
    }

    /// Returns the extents that FIEMAP reported.
    fn pieces(&self, step: usize) -> Result<Vec<Piece>, Failure> {
        match &self.steps[step].1.outcome {
            Outcome::Extents(found) => Ok(found.iter().map(|e| (e.offset_bytes, e.length_bytes)).collect()),
            other => Err(unexpected(other)),
        }
    }

    fn fitrim(&self, step: usize) -> Result<Fitrim, Failure> {
        match self.steps[step].1.outcome {
            Outcome::Trimmed { answer_bytes } => Ok(Fitrim {
                answer_bytes,
                call_ns: self.duration_ns(step),
                last_ns: {
                    let begin_ns = self.marks[step].0;
                    self.discards(step, step + 1).iter().map(|d| d.done_ns - begin_ns).max()
                },
                in_call: self.counted(step, step),
                discards: self.counted(step, step + 1),
            }),
            ref other => Err(unexpected(other)),
        }
    }
}

/// Whether FIEMAP reports addresses of the drive; btrfs reports its own.
fn on_drive(mount: Mount) -> bool {
    mount.file_system != "btrfs"
}

fn deletion_run(ran: &Ran, kernel: String, mount: Mount) -> Result<DeletionRun, Failure> {
    let mut deletions = Vec::new();
    let asked = ran.all(|step| matches!(step, Step::Extents { .. }));
    let between = ran.pieces(asked[0])?;
    for (&asked, layout) in asked[1..].iter().zip(Layout::ALL) {
        let removed = asked + 1;
        let Outcome::Removed { unlink_ns, fsync_ns } = ran.steps[removed].1.outcome else {
            return Err(unexpected(&ran.steps[removed].1.outcome));
        };
        let (next, last) = (removed + 1, removed + 1 + LATER_FSYNCS as usize);
        let later: Vec<u64> = (next + 1..=last).map(|step| ran.duration_ns(step)).collect();
        let calls = Calls {
            unlink_ns,
            fsync_ns,
            next_fsync_ns: ran.duration_ns(next),
            later_fsync_mean_ns: later.iter().sum::<u64>() / LATER_FSYNCS,
            later_fsync_max_ns: later.iter().copied().max().unwrap_or(0),
        };
        let (begin_ns, ranges) = (ran.marks[removed].0, ran.discards(removed, last + 1));
        let pieces = ran.pieces(asked)?;
        let is_between = layout == Layout::GapsOccupied;
        deletions.push(Deletion {
            gaps_taken: is_between.then(|| gaps_taken(&pieces, &between)).flatten(),
            ..Deletion::of(layout, &pieces, on_drive(mount), calls, begin_ns, &ranges)
        });
    }
    let fitrims = ran.all(|step| matches!(step, Step::Fitrim { .. }));
    let fitrim = |i: usize| ran.fitrim(fitrims[i]);
    let (first_fitrim, second_fitrim, third_fitrim) = (fitrim(0)?, fitrim(1)?, fitrim(2)?);
    Ok(DeletionRun { kernel, mount, deletions, first_fitrim, second_fitrim, third_fitrim })
}

fn unmount_run(ran: &Ran, kernel: String, mount: Mount) -> Result<UnmountRun, Failure> {
    let asked = ran.all(|step| matches!(step, Step::Extents { .. }))[0];
    let unmounted = ran.all(|step| *step == Step::Unmount)[0];
    let pieces = ran.pieces(asked)?;
    let spans = union(&ran.discards(asked + 1, unmounted));
    Ok(UnmountRun {
        kernel,
        mount,
        freed_bytes: pieces.iter().map(|piece| piece.1).sum(),
        before_unmount: ran.counted(asked + 1, unmounted - 1),
        in_unmount: ran.counted(unmounted, unmounted),
        unmount_ns: ran.duration_ns(unmounted),
        covered_bytes: on_drive(mount).then(|| covered(&pieces, &spans)),
        after_mount: ran.counted(unmounted + 1, unmounted + 2),
        fitrim: ran.fitrim(unmounted + 3)?,
    })
}

fn remount_run(ran: &Ran, kernel: String, mount: Mount) -> Result<RemountRun, Failure> {
    let asked = ran.all(|step| matches!(step, Step::Extents { .. })).into_iter();
    let steps = asked.zip(["nodiscard", mount.options, "nodiscard"]).map(|(asked, options)| {
        let Outcome::Text(mounts) = &ran.steps[asked - 1].1.outcome else {
            return Err(unexpected(&ran.steps[asked - 1].1.outcome));
        };
        let mut own = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let shown = own.rfind(|line| line.first() == Some(&"/dev/vda"));
        Ok(RemountStep {
            options: options.to_owned(),
            shown_options: shown.and_then(|line| Some((*line.get(3)?).to_owned())).unwrap_or_default(),
            freed_bytes: ran.pieces(asked)?.iter().map(|piece| piece.1).sum(),
            discards: ran.counted(asked + 1, asked + 2),
        })
    });
    Ok(RemountRun { kernel, mount, steps: steps.collect::<Result<_, _>>()? })
}

/// What to run: kernels that are built, and the cases of each.
pub struct Choice {
    images: Vec<(KernelImage, Vec<Case>)>,
    missing: Vec<String>,
}

impl Choice {
    /// Selects what `--only` names (`6.1`, `6.1:ext4`), or everything.
    ///
    /// # Errors
    /// An unknown part; no kernel, or none of those named; a missing program that makes file systems.
    pub fn of(only: &[String]) -> Result<Self, Failure> {
        let mut file_systems: Vec<&str> = MOUNTS.iter().map(|mount| mount.file_system).collect();
        file_systems.dedup();
        let mut wanted: Vec<(&str, Option<&str>)> = Vec::new();
        for part in only {
            let (version, fs) = part.split_once(':').map_or((part.as_str(), None), |(v, fs)| (v, Some(fs)));
            if !KERNELS.contains(&version) || fs.is_some_and(|fs| !file_systems.contains(&fs)) {
                return Err(Failure::usage(format!(
                    "--only {part}: expected VERSION or VERSION:FS with a version of {} and a file system of {}",
                    KERNELS.join(", "),
                    file_systems.join(", ")
                )));
            }
            if let Some(why) = fs.and_then(|fs| kernels::cannot_run(version, fs)) {
                return Err(Failure::usage(format!("--only {part}: cannot be examined: {why}")));
            }
            wanted.push((version, fs));
        }
        let is_wanted = |version: &str, fs: &str| {
            wanted.is_empty() || wanted.iter().any(|&(v, f)| v == version && f.is_none_or(|f| f == fs))
        };
        let (mut images, mut missing) = (Vec::new(), Vec::new());
        for version in KERNELS {
            let mut cases = kernels::cases();
            cases.retain(|case| is_wanted(version, case.mount().file_system));
            for &fs in &file_systems {
                if let Some(why) = kernels::cannot_run(version, fs) {
                    let all = cases.len();
                    cases.retain(|case| case.mount().file_system != fs);
                    missing.extend((cases.len() < all).then(|| why.to_owned()));
                }
            }
            if cases.is_empty() {
                continue;
            }
            match images::find(version) {
                Ok(image) => images.push((image, cases)),
                Err(error) if wanted.is_empty() => missing.push(error.to_string()),
                Err(error) => return Err(Failure::usage(error)),
            }
        }
        if images.is_empty() {
            return Err(Failure::usage(missing.join("\n")));
        }
        let used = |fs: &FileSystem| {
            images.iter().flat_map(|(_, cases)| cases).any(|case| case.mount().file_system == fs.name())
        };
        let lacking = FileSystem::ALL.iter().filter(|fs| used(fs) && !is_there(fs.mkfs().0));
        let lacking: Vec<(&str, &str)> = lacking.map(|fs| fs.mkfs()).collect();
        if !lacking.is_empty() {
            let programs: Vec<&str> = lacking.iter().map(|l| l.0).collect();
            let packages: Vec<&str> = lacking.iter().map(|l| l.1).collect();
            return Err(Failure::usage(format!(
                "{} {} missing; to install: apt-get install {}",
                programs.join(", "),
                if lacking.len() == 1 { "is" } else { "are" },
                packages.join(" ")
            )));
        }
        Ok(Self { images, missing })
    }

    /// Kernels in the outer loop, so that a table lists one after another.
    pub fn runs(&self) -> Vec<(&KernelImage, Case)> {
        let of = |(image, cases)| {
            let cases: &Vec<Case> = cases;
            cases.iter().map(move |&case| (image, case))
        };
        self.images.iter().map(|(image, cases)| (image, cases)).flat_map(of).collect()
    }

    /// Collects what the runs gave, in their order.
    pub fn measured(&self, observed: Vec<Observed>) -> Measured {
        let kernel = |(image, _): &(KernelImage, Vec<Case>)| Kernel {
            version: image.version.clone(),
            release: image.release.clone(),
        };
        let mut measured = Measured {
            kernels: self.images.iter().map(kernel).collect(),
            missing: self.missing.clone(),
            ..Measured::default()
        };
        observed.into_iter().for_each(|one| one.enter(&mut measured));
        measured
    }
}

/// Whether the guest will find a program; it searches the system's own directories.
fn is_there(program: &str) -> bool {
    ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"]
        .iter()
        .any(|directory| Path::new(directory).join(program).is_file())
}
