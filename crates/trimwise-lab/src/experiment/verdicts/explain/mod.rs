//! Where the model's ext4 and a kernel's part: the first commit that frees other extents, and the first allocation that
//! lies elsewhere.
//!
//! Both sides run one repetition of a cell from mkfs on. The kernel's tracepoints say what it allocates and frees; the
//! model says the same ([`Observed`]). A commit of one side is compared with that of the same number on the other: what
//! its transaction has freed, as a set of blocks' runs (within a transaction, the kernel joins those that touch).

mod course;
mod trace;

use std::cell::RefCell;
use std::fs;
use std::rc::Rc;

use serde::Serialize;
use trimwise::block::{Command, Stage};
use trimwise::failure::{Failure, Mistake};
use trimwise::fs::observed::Observed;
use trimwise::units::{Bytes, Utilization};
use trimwise::workload::postmark::PostmarkConfig;
use trimwise_uml::images::KernelImage;
use trimwise_uml::job::{FileSystem, Step, TRACE, TRACE_STATISTICS};

use super::{CAPACITY, Case, DRIVES, KERNELS, MEMORY, POLICIES, UTILIZATIONS, WORKLOADS, Work, Workload, kernel};
use crate::guests::{self, Bounds, Ran};
pub use course::{Course, Difference, Kind, Seen};

/// Buffer for the tracepoints, which the guest has on top of the memory of a cell.
const BUFFER: Bytes = Bytes::mib(160);

/// The two sides of one repetition of a cell.
#[derive(Debug, Serialize)]
pub struct Explained {
    pub cell: String,
    pub release: String,
    pub seed: u64,
    pub difference: Option<Difference>,
    pub kernel: Course,
    pub model: Course,
}

/// A cell in words, as for `--only`; the workload may be a PostMark file.
#[derive(Debug)]
pub struct Chosen {
    linux: &'static str,
    drive: &'static str,
    utilization: Utilization,
    policy: &'static str,
    workload: Result<Workload<'static>, (String, String)>,
    image: KernelImage,
}

/// Reads the words of a cell: workload or PostMark file, drive, kernel, policy and degree of use, each at most once.
/// What is left out is `mail`, `sata-small`, `6.12`, `commit` and `80%`.
pub fn choose(words: &[String]) -> Result<Chosen, Failure> {
    let degrees = UTILIZATIONS.map(|of| format!("{of}%"));
    let names = WORKLOADS.map(|workload| workload.name);
    let (mut linux, mut drive, mut policy, mut degree, mut workload) = (None, None, None, None, None);
    let mut wrong = None;
    for word in words {
        let of = |all: &[&'static str]| all.iter().copied().find(|name| name == word);
        let is_twice = if let Some(found) = of(&KERNELS) {
            linux.replace(found).is_some()
        } else if let Some(found) = of(&DRIVES) {
            drive.replace(found).is_some()
        } else if let Some(found) = of(&POLICIES) {
            policy.replace(found).is_some()
        } else if let Some(found) = degrees.iter().position(|degree| degree == word) {
            degree.replace(UTILIZATIONS[found]).is_some()
        } else if let Some(found) = WORKLOADS.into_iter().find(|known| known.name == word) {
            workload.replace(Ok(found)).is_some()
        } else if word.contains(['.', '/']) {
            workload.replace(Err(postmark_file(word)?)).is_some()
        } else {
            wrong.get_or_insert_with(|| Mistake::of("explain", word));
            false
        };
        if is_twice {
            let why = "a cell has one workload, drive, kernel, policy and degree of use";
            return Err(Mistake::of("explain", word).because(why).fail());
        }
    }
    if let Some(wrong) = wrong {
        let parts = [&names[..], &DRIVES, &KERNELS, &POLICIES, &degrees.each_ref().map(String::as_str)];
        let parts = parts.map(|names| names.join(", ")).join("; ");
        return Err(wrong.expected(format!("a PostMark file, or of {parts}")).fail());
    }
    let linux = linux.unwrap_or("6.12");
    Ok(Chosen {
        linux,
        drive: drive.unwrap_or("sata-small"),
        utilization: degree.unwrap_or(UTILIZATIONS[1]),
        policy: policy.unwrap_or("commit"),
        workload: workload.unwrap_or(Ok(WORKLOADS[0])),
        image: guests::image(&kernel::target(linux))?,
    })
}

/// Reads a PostMark file with one run. Returns its path and the run's settings.
fn postmark_file(path: &str) -> Result<(String, String), Failure> {
    let of = |why: String| Mistake::of("explain", path).because(why).fail();
    let text = fs::read_to_string(path).map_err(|e| of(e.to_string()))?;
    let parsed = PostmarkConfig::parse(&text, path).map_err(|e| of(e.to_string()))?;
    let [run] = &*parsed.runs else {
        return Err(of(format!("has {} runs; expected one", parsed.runs.len())));
    };
    run.config.for_model().map_err(|e| of(e.to_string()))?;
    let settings = text.lines().filter(|line| !["run", "quit"].contains(&line.trim()));
    Ok((path.to_owned(), settings.map(|line| format!("{line}\n")).collect()))
}

impl Chosen {
    fn case(&self) -> Case<'_> {
        let Self { linux, drive, utilization, policy, .. } = *self;
        let workload = match &self.workload {
            Ok(workload) => *workload,
            Err((name, settings)) => Workload { name, work: Work::Postmark(settings) },
        };
        Case { linux, drive, utilization, workload, policy }
    }

    /// Runs the first repetition on both sides, and compares them.
    pub fn run(&self, seed: u64, bounds: &Bounds) -> Result<Explained, Failure> {
        let case = self.case();
        let kernel = self.on_kernel(seed, bounds)?;
        let model = self.on_model(seed)?;
        let Case { linux, drive, utilization, workload, policy } = case;
        Ok(Explained {
            cell: format!("{} {linux} {drive} {utilization}% {policy}", workload.name),
            release: self.image.release.clone(),
            seed,
            difference: Difference::between(&kernel, &model),
            kernel,
            model,
        })
    }

    fn on_kernel(&self, seed: u64, bounds: &Bounds) -> Result<Course, Failure> {
        let case = self.case();
        let guest = guests::guest(&self.image, Bytes(MEMORY.0 + BUFFER.0), bounds)?;
        let mut steps = kernel::steps(case, 0, seed)?;
        let mounted = steps.iter().position(|step| matches!(step, Step::Mount { file_system: FileSystem::Ext4, .. }));
        let tracepoints = trace::TRACEPOINTS.map(str::to_owned).to_vec();
        steps.insert(mounted.unwrap_or(0), Step::Record { tracepoints, buffer_kib: BUFFER.0 >> 10 });
        let text = steps.len();
        steps.extend([TRACE, TRACE_STATISTICS].map(|path| Step::Read { path: path.to_owned() }));
        let ran = Ran::new(&guest, case.drive, CAPACITY, seed, steps)?;
        trace::check_complete(ran.text(text + 1)?)?;
        let begin_ns = ran.marks.get(text - 1).map_or(0, |mark| mark.at.0);
        let end_ns = ran.marks.get(text).map_or(0, |mark| mark.at.0);
        Ok(Course::of(trace::parse(ran.text(text)?)?, begin_ns, end_ns))
    }

    fn on_model(&self, seed: u64) -> Result<Course, Failure> {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let (noted, requests) = (Rc::clone(&seen), Rc::clone(&seen));
        let side = super::run_model(self.case(), 0, seed, |fs| {
            let sim = fs.queue().sim().clone();
            let clock = sim.clone();
            fs.observe(move |observed| {
                let kind = match observed {
                    Observed::Allocated { inode, page, goal, wanted, blocks } => {
                        Kind::Allocated { inode, page, goal, wanted, blocks, how: String::new() }
                    }
                    Observed::Freed(blocks) => Kind::Freed { blocks },
                    Observed::Closed { tid } => Kind::Closed { tid },
                };
                noted.borrow_mut().push(Seen { at_ns: clock.now().as_nanos(), kind });
            });
            fs.queue().trace(Some(Box::new(move |_, stage, command| {
                if let (Stage::Dispatched, Command::Trim(ranges)) = (stage, command) {
                    let at_ns = sim.now().as_nanos();
                    let trimmed = ranges.iter().map(|&blocks| Seen { at_ns, kind: Kind::Trimmed { blocks } });
                    requests.borrow_mut().extend(trimmed);
                }
            })));
        });
        let duration_ns = side.map_err(Failure::run)?.duration_ns;
        Ok(Course::of(seen.take(), 0, duration_ns))
    }
}
