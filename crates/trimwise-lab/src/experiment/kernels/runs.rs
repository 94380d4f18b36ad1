//! Boots the kernels and reads the discards from the drive's trace.

use trimwise::units::Bytes;
use trimwise_uml::images::{self, KernelImage};
use trimwise_uml::job::{FileSystem, Outcome, Step};

use super::observe::{Calls, Deletion, Discarded, Discards, Layout, Piece, covered, gaps_taken, union};
use super::{
    AFTER_FITRIM_NS, CAPACITY, Case, DEVICE, DeletionRun, EXTENT_BYTES, EXTENTS, Fitrim, KERNELS, Kernel,
    LATER_FSYNCS, Measured, Mount, PLAIN_BYTES, RemountRun, RemountStep, SETTLE_NS, SMALL_BYTES, UnmountRun,
    WINDOW_NS, file_systems,
};
use crate::experiment::Request;
use crate::experiment::result::ExperimentResult;
use crate::guests::{self, Ran};
use trimwise::failure::{Failure, Mistake, Mistakes};

/// The guest's memory, enough for the largest file and its journal.
const MEMORY: Bytes = Bytes::mib(256);

/// Memory of this computer that a run of one case takes: guest, model, and the guest's data.
const MEMORY_OF_RUN: Bytes = Bytes::mib(900);

pub(super) fn run(request: &Request) -> Result<ExperimentResult, Failure> {
    let choice = Choice::of(&request.only)?;
    let measured =
        Measured { kernels: choice.kernels(), missing: choice.missing.clone(), ..Measured::default() };
    let runs = request.boot(MEMORY_OF_RUN, &choice.runs(), |(image, case)| run_case(request, image, case))?;
    let measured = runs.into_iter().fold(measured, |mut all, mut one| {
        all.deletions.append(&mut one.deletions);
        all.unmounts.append(&mut one.unmounts);
        all.remounts.append(&mut one.remounts);
        all
    });
    let result = super::evaluate(&measured, request.reps, request.seed);
    Ok(result.made_on(choice.images.iter().map(|(image, _)| image)))
}

fn run_case(request: &Request, image: &KernelImage, case: Case) -> Result<Measured, Failure> {
    let kernel = image.name.to_string();
    let guest = guests::guest(image, MEMORY, &request.bounds)?;
    let done = |steps| Ran::new(&guest, DEVICE, CAPACITY, request.seed, steps);
    let mut measured = Measured::default();
    match case {
        Case::Deletions(mount) => {
            measured.deletions.push(deletion_run(&done(deletions(mount)?)?, kernel, mount)?);
        }
        Case::Unmount(mount) => measured.unmounts.push(unmount_run(&done(unmount(mount)?)?, kernel, mount)?),
        Case::Remount(mount) => measured.remounts.push(remount_run(&done(remount(mount)?)?, kernel, mount)?),
    }
    Ok(measured)
}

/// Files to remove, in the order of [`Layout::ALL`]. When the first is removed, the last still lies between its pieces;
/// when the last is removed, nothing does.
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

impl Ran {
    fn discards(&self, first: usize, last: usize) -> Vec<Discarded> {
        Discarded::of(self.requests(first, last), 0)
    }

    fn counted(&self, first: usize, last: usize) -> Discards {
        Discards::of(&self.discards(first, last))
    }

    fn pieces(&self, step: usize) -> Result<Vec<Piece>, Failure> {
        Ok(self.extents(step)?.iter().map(|e| (e.offset_bytes, e.length_bytes)).collect())
    }

    fn fitrim(&self, step: usize) -> Result<Fitrim, Failure> {
        let begin_ns = self.marks[step].at.0;
        let answer_bytes = self.outcome(step, |outcome| match outcome {
            Outcome::Trimmed { answer_bytes } => Some(*answer_bytes),
            _ => None,
        })?;
        let discards = self.discards(step, step + 1);
        Ok(Fitrim {
            answer_bytes,
            call_ns: self.duration_ns(step),
            last_ns: discards.iter().map(|d| d.done_ns - begin_ns).max(),
            in_call: self.counted(step, step),
            discards: Discards::of(&discards),
        })
    }
}

/// Returns true if FIEMAP reports addresses of the drive; btrfs reports its own.
fn on_drive(mount: Mount) -> bool {
    mount.file_system != "btrfs"
}

fn deletion_run(ran: &Ran, kernel: String, mount: Mount) -> Result<DeletionRun, Failure> {
    let mut deletions = Vec::new();
    let asked = ran.all(|step| matches!(step, Step::Extents { .. }));
    let between = ran.pieces(asked[0])?;
    for (&asked, layout) in asked[1..].iter().zip(Layout::ALL) {
        let removed = asked + 1;
        let (unlink_ns, fsync_ns) = ran.outcome(removed, |outcome| match *outcome {
            Outcome::Removed { unlink_ns, fsync_ns } => Some((unlink_ns, fsync_ns)),
            _ => None,
        })?;
        let (next, last) = (removed + 1, removed + 1 + LATER_FSYNCS as usize);
        let later: Vec<u64> = (next + 1..=last).map(|step| ran.duration_ns(step)).collect();
        let calls = Calls {
            unlink_ns,
            fsync_ns,
            next_fsync_ns: ran.duration_ns(next),
            later_fsync_mean_ns: later.iter().sum::<u64>() / LATER_FSYNCS,
            later_fsync_max_ns: later.iter().copied().max().unwrap_or(0),
        };
        let (begin_ns, ranges) = (ran.marks[removed].at.0, ran.discards(removed, last + 1));
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
        let mut own = ran.text(asked - 1)?.lines().map(|line| line.split(' ').collect::<Vec<_>>());
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

struct Choice {
    images: Vec<(KernelImage, Vec<Case>)>,
    missing: Vec<String>,
}

impl Choice {
    /// Selects the parts that `--only` names (`6.1`, `6.1:ext4`), or everything.
    fn of(only: &[String]) -> Result<Self, Failure> {
        let file_systems = file_systems();
        let mut wanted: Vec<(&str, Option<&str>)> = Vec::new();
        for part in only {
            let (version, fs) = part.split_once(':').map_or((part.as_str(), None), |(v, fs)| (v, Some(fs)));
            if !KERNELS.contains(&version) || fs.is_some_and(|fs| !file_systems.contains(&fs)) {
                let expected = format!(
                    "VERSION or VERSION:FS with a version of {} and a file system of {}",
                    KERNELS.join(", "),
                    file_systems.join(", ")
                );
                return Err(Mistake::of("only", part).expected(expected).fail());
            }
            if let Some(why) = fs.and_then(|fs| super::cannot_run(version, fs)) {
                return Err(Mistake::of("only", part).because(format!("cannot be examined: {why}")).fail());
            }
            wanted.push((version, fs));
        }
        let is_wanted = |version: &str, fs: &str| {
            wanted.is_empty() || wanted.iter().any(|&(v, f)| v == version && f.is_none_or(|f| f == fs))
        };
        let (mut images, mut missing) = (Vec::new(), Vec::new());
        for version in KERNELS {
            let mut cases = super::cases();
            cases.retain(|case| is_wanted(version, case.mount().file_system));
            let mut left_out = Vec::new();
            for &fs in &file_systems {
                if let Some(why) = super::cannot_run(version, fs) {
                    let all = cases.len();
                    cases.retain(|case| case.mount().file_system != fs);
                    let text = || format!("{fs} of {version} is left out: {why}");
                    left_out.extend((cases.len() < all).then(text));
                }
            }
            if cases.is_empty() {
                continue;
            }
            match images::find(version) {
                Ok(image) => {
                    images.push((image, cases));
                    missing.append(&mut left_out);
                }
                Err(error) if wanted.is_empty() => missing.push(error.to_string()),
                Err(error) => return Err(error.mistake().fail()),
            }
        }
        if images.is_empty() {
            Mistakes::of(missing.iter().map(|why| Err(Mistake::that(&**why).fail())))?;
        }
        let used = |fs: &FileSystem| {
            images.iter().flat_map(|(_, cases)| cases).any(|case| case.mount().file_system == fs.name())
        };
        let used = FileSystem::ALL.iter().filter(|fs| used(fs));
        Mistakes::of(used.map(|fs| fs.check_mkfs().map_err(|e| Mistake::that(e.to_string()).fail())))?;
        Ok(Self { images, missing })
    }

    fn kernels(&self) -> Vec<Kernel> {
        let kernel = |(image, _): &(KernelImage, Vec<Case>)| Kernel {
            version: image.name.to_string(),
            release: image.release.clone(),
        };
        self.images.iter().map(kernel).collect()
    }

    /// Returns the runs, kernels in the outer loop, so that a table lists one after another.
    fn runs(&self) -> Vec<(&KernelImage, Case)> {
        self.images.iter().flat_map(|(image, cases)| cases.iter().map(move |&case| (image, case))).collect()
    }
}

pub(super) fn check(only: &[String]) -> Result<(), Failure> {
    Choice::of(only).map(drop)
}
