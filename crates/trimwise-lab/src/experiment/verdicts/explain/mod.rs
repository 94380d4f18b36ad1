//! Where the model's ext4 and a kernel's part: the first commit that frees other extents, and the first allocation that
//! lies elsewhere.
//!
//! Both sides run the first repetition of a cell from the mount on. The kernel's tracepoints report what it allocates
//! and frees; the model reports the same ([`Observed`]). Commits are compared by number, each as the set of extents that
//! its transaction has freed.

mod course;
mod trace;

use std::cell::RefCell;
use std::fs;
use std::rc::Rc;

use serde::Serialize;
use trimwise::failure::{Failure, Mistake};
use trimwise::fs::observed::Observed;
use trimwise::ssd::SsdStats;
use trimwise::units::{Bytes, Utilization};
use trimwise::workload::postmark::PostmarkConfig;
use trimwise_linux::program_end::expect_success;
use trimwise_uml::images::KernelImage;
use trimwise_uml::job::{FileSystem, Guest, Outcome, Said, Step, TRACE, TRACE_STATISTICS};

use super::{
    CAPACITY, Case, DRIVES, Ended, KERNELS, MEMORY, POLICIES, UTILIZATIONS, WORKLOADS, Work, Workload, kernel,
};
use crate::experiment::model_ext4::log::Traffic;
use crate::guests::{self, Bounds, Ran};
pub use course::{Allocation, Commit, Course, Difference, Freed};
use course::{Kind, Seen};

/// Buffer for tracepoints, which the guest has on top of the memory of a cell.
const BUFFER: Bytes = Bytes::mib(32);
/// Least memory of a guest: below, its buffers and this program leave nothing for files.
const MEMORY_MIN: Bytes = Bytes::mib(128);

/// Both sides of a cell.
#[derive(Debug, Serialize)]
pub struct Explained {
    pub cell: String,
    /// The kernel's release, such as 6.12.117.
    pub release: String,
    pub seed: u64,
    pub kernel: Half,
    pub model: Half,
    /// The first commit that differs; `None` if none does.
    pub difference: Option<Difference>,
    /// The first allocation that differs, and how many before it are the same.
    pub allocation: Option<(u64, Option<Allocation>, Option<Allocation>)>,
}

/// One side: what reached the drive while the workload ran, and what was freed since the mount.
#[derive(Debug, Serialize)]
pub struct Half {
    pub duration_ns: u64,
    #[serde(flatten)]
    pub traffic: Traffic,
    pub drive: SsdStats,
    #[serde(flatten)]
    pub course: Course,
}

impl Half {
    fn new(ended: Ended, course: Course) -> Self {
        let Ended { side, stats, .. } = ended;
        Self { duration_ns: side.duration_ns, traffic: side.traffic, drive: stats, course }
    }
}

/// A cell, from its words.
#[derive(Debug)]
pub struct Chosen {
    linux: &'static str,
    drive: &'static str,
    utilization: Utilization,
    policy: &'static str,
    workload: Program,
    memory: Bytes,
    /// Settings of the guest's kernel: files and what is written to them.
    settings: Vec<Setting>,
    image: KernelImage,
}

#[derive(Debug)]
struct Setting {
    /// As the user wrote it.
    word: String,
    file: String,
    value: String,
}

#[derive(Debug)]
enum Program {
    Named(Workload<'static>),
    /// A PostMark file: its path and its settings.
    File(String, String),
}

/// Reads the words of a cell: a workload or PostMark file, a drive, a kernel, a policy and a degree of use, each at most
/// once; 0% is a new file system. What is left out is `mail`, `sata-small`, `6.12`, `commit` and `80%`. Besides, the
/// memory of both sides (`384MiB`), and settings of the kernel (`vm.dirty_ratio=5`) and of its queue for the drive
/// (`queue/wbt_lat_usec=0`).
pub fn choose(words: &[String]) -> Result<Chosen, Failure> {
    let degrees = [&[Utilization::EMPTY], &UTILIZATIONS[..]].concat();
    let degree_names: Vec<String> = degrees.iter().map(|of| format!("{of}%")).collect();
    let (mut linux, mut drive, mut policy, mut degree, mut workload, mut memory) =
        (None, None, None, None, None, None);
    let mut settings = Vec::new();
    for word in words {
        let known = |all: &[&'static str]| all.iter().copied().find(|name| name == word);
        let of = || Mistake::of("explain", word);
        let is_second = if let Some(found) = known(&KERNELS) {
            linux.replace(found).is_some()
        } else if let Some(found) = known(&DRIVES) {
            drive.replace(found).is_some()
        } else if let Some(found) = known(&POLICIES) {
            policy.replace(found).is_some()
        } else if let Some(found) = degree_names.iter().position(|name| name == word) {
            degree.replace(degrees[found]).is_some()
        } else if let Some(found) = WORKLOADS.into_iter().find(|known| known.name == word) {
            workload.replace(Program::Named(found)).is_some()
        } else if let Ok(bytes) = word.parse::<Bytes>() {
            if bytes < MEMORY_MIN {
                return Err(of()
                    .because("is too little memory")
                    .expected(format!("at least {MEMORY_MIN}"))
                    .fail());
            }
            memory.replace(bytes).is_some()
        } else if let Some(setting) = Setting::of(word) {
            settings.push(setting);
            false
        } else if word.contains(['.', '/']) {
            workload.replace(postmark_file(word)?).is_some()
        } else {
            let names = [&WORKLOADS.map(|workload| workload.name)[..], &DRIVES, &KERNELS, &POLICIES];
            let names = names.map(|names| names.join(", ")).join("; ");
            let expected = format!(
                "a PostMark file; {names}; {}; memory (512MiB) or a setting of the kernel (vm.dirty_ratio=5, \
                 queue/wbt_lat_usec=0)",
                degree_names.join(", ")
            );
            return Err(of().expected(expected).fail());
        };
        if is_second {
            let why = "a cell has one workload, drive, kernel, policy, degree of use and memory";
            return Err(of().because(why).fail());
        }
    }
    let linux = linux.unwrap_or(KERNELS[0]);
    Ok(Chosen {
        linux,
        drive: drive.unwrap_or(DRIVES[0]),
        utilization: degree.unwrap_or(UTILIZATIONS[1]),
        policy: policy.unwrap_or("commit"),
        workload: workload.unwrap_or(Program::Named(WORKLOADS[0])),
        memory: memory.unwrap_or(MEMORY),
        settings,
        image: guests::image(&kernel::target(linux))?,
    })
}

impl Setting {
    /// Reads `vm.dirty_ratio=5`, as for sysctl(8), or `queue/wbt_lat_usec=0`; neither can lead out of its folder.
    fn of(word: &str) -> Option<Self> {
        let (name, value) = word.split_once('=')?;
        let is_part =
            |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let file = match name.strip_prefix("queue/") {
            Some(attribute) => is_part(attribute).then(|| format!("/sys/block/vda/queue/{attribute}")),
            None => (name.contains('.') && name.split('.').all(is_part))
                .then(|| format!("/proc/sys/{}", name.replace('.', "/"))),
        }?;
        Some(Self { word: word.to_owned(), file, value: value.to_owned() })
    }

    fn step(&self) -> Step {
        Step::Program {
            command: ["tee", &self.file].map(str::to_owned).to_vec(),
            input: Said(self.value.clone().into_bytes()),
        }
    }
}

/// Reads a PostMark file that has one run.
fn postmark_file(path: &str) -> Result<Program, Failure> {
    let wrong = |why: String| Mistake::of("explain", path).because(why).fail();
    let text = fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
    let parsed = PostmarkConfig::parse(&text, path).map_err(|e| wrong(e.to_string()))?;
    let [run] = &*parsed.runs else {
        return Err(wrong(format!("has {} runs; expected one", parsed.runs.len())));
    };
    run.config.for_model().map_err(|e| wrong(e.to_string()))?;
    let settings = text.lines().filter(|line| line.trim_start().starts_with("set "));
    Ok(Program::File(path.to_owned(), settings.map(|line| format!("{line}\n")).collect()))
}

impl Chosen {
    fn case(&self) -> Case<'_> {
        let Self { linux, drive, utilization, policy, .. } = *self;
        let workload = match &self.workload {
            Program::Named(workload) => *workload,
            Program::File(name, settings) => Workload { name, work: Work::Postmark(settings) },
        };
        Case { linux, drive, utilization, workload, policy }
    }

    /// Runs the first repetition on both sides, and compares them.
    pub fn run(&self, seed: u64, bounds: &Bounds) -> Result<Explained, Failure> {
        let (model, kernel) = (self.on_model(seed)?, self.on_kernel(seed, bounds)?);
        let Case { linux, drive, utilization, workload, policy } = self.case();
        let settings = self.settings.iter().map(|Setting { word, .. }| format!(" {word}"));
        let of_cell = format!("{} {linux} {drive} {utilization}% {policy} {}", workload.name, self.memory);
        Ok(Explained {
            cell: of_cell + &settings.collect::<String>(),
            release: self.image.release.clone(),
            seed,
            difference: Difference::between(&kernel.course, &model.course),
            allocation: course::first_other_allocation(&kernel.course, &model.course),
            kernel,
            model,
        })
    }

    fn on_kernel(&self, seed: u64, bounds: &Bounds) -> Result<Half, Failure> {
        let case = self.case();
        let options = format!("trace_buf_size={} trace_event=jbd2:jbd2_commit_flushing", BUFFER.0);
        let guest = Guest {
            boot: options.parse().map_err(Failure::run)?,
            ..guests::guest(&self.image, Bytes(self.memory.0 + BUFFER.0), bounds)?
        };
        let mut steps = kernel::steps(case, 0, seed)?;
        let mounts = |step: &Step| matches!(step, Step::Mount { file_system: FileSystem::Ext4, .. });
        let mount = steps.iter().position(mounts).unwrap_or(0);
        steps.splice(mount + 1..mount + 1, self.settings.iter().map(Setting::step));
        let tracepoints = trace::TRACEPOINTS.map(str::to_owned).to_vec();
        steps.insert(mount, Step::Record { tracepoints });
        let text = steps.len();
        steps.extend([TRACE, TRACE_STATISTICS].map(|path| Step::Read { path: path.to_owned() }));
        steps.extend([Step::FreeSpace, Step::Metadata]);
        let ran = Ran::new(&guest, case.drive, CAPACITY, seed, steps)?;
        for (step, report) in &ran.steps {
            if let (Step::Program { command, .. }, Outcome::Program(end)) = (step, &report.outcome) {
                expect_success(command, end).map_err(Failure::run)?;
            }
        }
        trace::check_complete(ran.text(text + 1)?)?;
        let course = Course::of(&trace::parse(ran.text(text)?)?);
        Ok(Half::new(kernel::ended(&ran, text - 1, text + 2)?, course))
    }

    fn on_model(&self, seed: u64) -> Result<Half, Failure> {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let noted = Rc::clone(&seen);
        let ended = super::run_model(self.case(), self.memory, 0, seed, |fs| {
            let sim = fs.queue().sim().clone();
            fs.observe(move |observed| {
                let at_ns = sim.now().as_nanos();
                let kind = match observed {
                    Observed::Allocated { inode, page, goal, wanted, blocks } => {
                        let how = String::new();
                        Kind::Allocated(Allocation {
                            at_ns,
                            inode: inode + 1,
                            page,
                            goal,
                            wanted,
                            blocks,
                            how,
                        })
                    }
                    Observed::Freed(blocks) => Kind::Freed(blocks),
                    Observed::Closed => Kind::Closed,
                };
                noted.borrow_mut().push(Seen { at_ns, kind });
            });
        });
        let ended = ended.map_err(Failure::run)?;
        let mut seen = seen.take();
        // The unmount that follows commits at the same instant.
        seen.retain(|seen| seen.at_ns < ended.at_ns);
        Ok(Half::new(ended, Course::of(&seen)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(words: &str) -> String {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        choose(&words).unwrap_err().to_string()
    }

    #[test]
    fn words_that_are_no_cell_are_refused_with_what_a_cell_has() {
        let unknown = refused("mail nail");
        assert!(
            unknown.contains("nail") && unknown.contains("nvme-generic") && unknown.contains("0%"),
            "{unknown}"
        );
        assert!(refused("mail spool").contains("one workload"));
        assert!(refused("64MiB").contains("at least 128 MiB"));
        assert!(refused("/nowhere/x.pm").contains("No such file"));
        assert!(refused("../vm=1").contains("No such file"), "no setting of the kernel");
        assert!(refused("queue/../x=1").contains("No such file"), "nor of the queue");
    }

    #[test]
    fn settings_are_files_of_the_kernel() {
        let of = |word| Setting::of(word).map(|setting| (setting.file, setting.value));
        let file = |file: &str, value: &str| Some((file.to_owned(), value.to_owned()));
        assert_eq!(of("vm.dirty_ratio=5"), file("/proc/sys/vm/dirty_ratio", "5"));
        assert_eq!(of("queue/wbt_lat_usec=0"), file("/sys/block/vda/queue/wbt_lat_usec", "0"));
        for word in ["vm=1", "vm..x=1", "queue/=1", "queue/x/y=1", "queue.x", "other/x=1"] {
            assert_eq!(of(word), None, "{word}");
        }
    }

    #[test]
    fn a_postmark_file_must_have_one_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("two.pm");
        fs::write(&path, "set number 5\nrun\nset number 6\nrun\n").unwrap();
        assert!(refused(path.to_str().unwrap()).contains("has 2 runs; expected one"));
    }
}
