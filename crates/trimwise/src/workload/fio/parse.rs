//! Makes jobs of a job file's sections.

use std::collections::{BTreeMap, BTreeSet};

use super::layout::{Plan, laid_out};
use super::reader::Reader;
use super::section::plan;
use super::text::{FioError, FioErrors, Overrides, Place, Surroundings, Text, wrong};
use super::{Durable, Io, Job, Sequence};
use crate::content::ContentClass;
use crate::units::{Bytes, SimDuration};
use crate::workload::latency::Operation;

/// Maximum number of processes of all jobs, as in fio.
const PROCESSES_MAX: u64 = 4096;
const TASKS_MAX: u64 = 65_536;
const FILES_MAX: u64 = 1_000_000;

#[derive(Clone, Debug, PartialEq)]
pub struct JobFile {
    /// The file as one text without variables, includes and overrides.
    pub text: String,
    /// Processes in the order in which fio numbers them.
    pub jobs: Vec<Job>,
    /// Notes on ignored options, with their lines.
    pub notes: Vec<String>,
    /// The processes before their sizes were known.
    pub(super) plans: Vec<Plan>,
}

impl JobFile {
    /// Parses a job file that includes no other.
    ///
    /// # Errors [`FioErrors`] with each line that is wrong or beyond the model.
    pub fn parse(text: &str) -> Result<Self, FioErrors> {
        Self::read(text, &[], &())
    }

    /// Parses a job file. `overrides` replace its options, `surroundings` supply what it includes.
    pub fn read(
        text: &str,
        overrides: &Overrides,
        surroundings: &dyn Surroundings,
    ) -> Result<Self, FioErrors> {
        let mut text = Text::read(text, overrides, surroundings);
        let mut errors = std::mem::take(&mut text.errors);
        let mut notes = text.notes();
        let mut plans = Vec::new();
        let mut group = 0;
        let (mut processes, mut tasks, mut files) = (0, 0, 0);
        for section in &text.sections {
            let mut reader = Reader::new(section, &mut errors);
            if reader.flag("stonewall", false) && processes > 0 {
                group += 1;
                tasks = 0;
            }
            let copies = reader.number("numjobs", 1, 1, PROCESSES_MAX);
            let Some(first) = plan(&mut reader, &mut notes, group) else { continue };
            processes += copies;
            tasks += copies * u64::from(first.job.depth);
            files += copies * first.names.len() as u64;
            if processes > PROCESSES_MAX || tasks > TASKS_MAX {
                let what = format!("{processes} processes so far, which have {tasks} operations in flight");
                let most = format!(
                    "at most {PROCESSES_MAX} processes, and {TASKS_MAX} operations of all at one time"
                );
                errors.push(wrong(&section.place, what, most));
                break;
            }
            if files > FILES_MAX {
                let what = format!("{files} files of all processes so far");
                errors.push(wrong(&section.place, what, format!("at most {FILES_MAX}")));
                break;
            }
            // fio numbers the copies of a job backwards, after the first.
            for copy in [0].into_iter().chain((1..copies).rev()) {
                plans.push(first.copy(copy, plans.len() as u64 + 1));
            }
        }
        check_waits(&text, &plans, &mut errors);
        let jobs = match laid_out(&plans, None) {
            Ok(jobs) => jobs,
            Err(mut more) => {
                errors.append(&mut more);
                Vec::new()
            }
        };
        if jobs.is_empty() && errors.is_empty() {
            let place = text.sections.first().map_or_else(Place::default, |section| section.place.clone());
            errors.push(wrong(&place, "no job does I/O", "a job with an engine that does"));
        }
        if errors.is_empty() {
            return Ok(Self { text: text.flat(), jobs, notes, plans });
        }
        let mut seen = BTreeSet::new();
        errors.retain(|error| seen.insert((error.place.clone(), error.what.clone())));
        errors.sort_by(|a, b| a.place.cmp(&b.place));
        Err(FioErrors(errors))
    }

    /// Returns true if some files have the size of the free space, because no option gives theirs.
    pub fn fills_space(&self) -> bool {
        self.plans.iter().any(Plan::fills_space)
    }

    /// Lays the jobs out on a file system with this much free space, which files without a size divide.
    ///
    /// # Errors [`FioErrors`] if a size is too small for the job's blocks.
    pub fn fitted(&self, free: Bytes) -> Result<Self, FioErrors> {
        if !self.fills_space() {
            return Ok(self.clone());
        }
        Ok(Self { jobs: laid_out(&self.plans, Some(free)).map_err(FioErrors)?, ..self.clone() })
    }

    pub fn operations(&self, run_seed: u64) -> u64 {
        let transfers =
            |job| Sequence::new(job, run_seed).filter(|io| matches!(io, Io::Transfer { .. })).count();
        self.jobs.iter().map(|job| transfers(job) as u64).sum()
    }

    /// Returns the option by which a job itself decides when its operations happen; `None` if there is none.
    pub fn own_pace(&self) -> Option<&'static str> {
        let of = |job: &Job| {
            let options = [
                ("runtime", job.runtime.is_some() || job.time_based),
                ("rate", job.rate.iter().any(Option::is_some)),
                ("thinktime", job.think > SimDuration::ZERO),
                ("ramp_time", job.ramp > SimDuration::ZERO),
                ("startdelay", job.starts_after > SimDuration::ZERO),
            ];
            options.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
        };
        self.jobs.iter().find_map(of).or_else(|| self.fills_space().then_some("size, which is missing,"))
    }

    /// Returns true if a job makes such calls.
    pub fn make(&self, operation: Operation) -> bool {
        self.jobs.iter().any(|job| match operation {
            Operation::Read => job.reads() || job.verify.is_some_and(|verify| verify.reads),
            Operation::Write => job.writes(),
            Operation::Fsync => {
                job.fsync > 0 || job.fdatasync > 0 || job.end_fsync || job.durable != Durable::No
            }
            Operation::Unlink => job.unlinks,
            Operation::Create | Operation::Append => false,
        })
    }

    pub(super) fn files(&self) -> BTreeMap<&str, u64> {
        let mut files = BTreeMap::new();
        for file in self.jobs.iter().flat_map(|job| &job.files) {
            let bytes: &mut u64 = files.entry(file.name.as_str()).or_default();
            *bytes = (*bytes).max(file.length);
        }
        files
    }

    /// Returns the space that the files take. Files that fill the free space count as nothing.
    pub fn needed(&self) -> Bytes {
        let filling: BTreeSet<&str> =
            self.plans.iter().filter(|plan| plan.fills_space()).flat_map(|plan| plan.paths()).collect();
        let sized = self.files().into_iter().filter(|(name, _)| !filling.contains(name));
        Bytes(sized.fold(0, |sum, (_, bytes)| sum.saturating_add(bytes)))
    }
    /// Returns the number of tasks: the maximum number of operations in flight of jobs that run at the same time.
    pub fn tasks(&self) -> u32 {
        let mut of_groups: BTreeMap<u32, u32> = BTreeMap::new();
        self.jobs.iter().for_each(|job| *of_groups.entry(job.group).or_default() += job.depth);
        of_groups.into_values().max().unwrap_or(0)
    }

    /// Returns the kind of data that most of the jobs write.
    pub fn content(&self) -> ContentClass {
        let writers = || self.jobs.iter().filter(|job| job.writes());
        let count = |class| writers().filter(|job| job.class == class).count();
        let classes = ContentClass::ALL.into_iter().filter(|class| count(*class) > 0);
        classes.max_by_key(|class| count(*class)).unwrap_or_default()
    }
}

/// Rejects a `wait_for` that names no earlier job.
fn check_waits(text: &Text, plans: &[Plan], errors: &mut Vec<FioError>) {
    for plan in plans {
        let Some(waits_for) = &plan.job.waits_for else { continue };
        let is_before = |other: &Plan| {
            other.job.thread_number < plan.job.thread_number
                && other.job.name == *waits_for
                && *waits_for != plan.job.name
        };
        if plan.job.copy == 0 && !plans.iter().any(is_before) {
            let section = text.sections.iter().find(|section| section.name == plan.job.name);
            let place =
                section.and_then(|section| section.options.get("wait_for")).and_then(|all| all.last());
            let place = place.map_or_else(|| plan.place.clone(), |given| given.place.clone());
            errors.push(wrong(
                &place,
                format!("no job before this one is called '{waits_for}'"),
                "the name of one",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::options;
    use super::super::text::Limit;
    use super::*;

    fn parsed(text: &str) -> JobFile {
        JobFile::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }

    #[test]
    fn a_job_has_what_the_file_says() {
        let text = "[global]\nsize=2m ; a comment\ngroup_reporting\nname=x\n[a]\nrw=randrw\nbs=4k,8k\niodepth=4\n\
                    ioengine=libaio\ndirect=1\nnumjobs=3\n[b]\nstonewall\nreadwrite=read\nnrfiles=3\ndirectory=x/y\n\
                    runtime=90\n[c]\nname=y\n";
        let file = parsed(text);
        assert_eq!(
            file.notes,
            [
                "ignored, as it only changes what fio reports: group_reporting (line 3), name (line 4 and 1 more)"
            ]
        );
        let brief = |job: &Job| (job.name.clone(), job.thread_number, job.group, job.files[0].name.clone());
        // fio numbers the copies of a job backwards, after the first.
        assert_eq!(
            file.jobs.iter().map(brief).collect::<Vec<_>>(),
            [
                ("a".into(), 1, 0, "a.0.0".into()),
                ("a".into(), 2, 0, "a.2.0".into()),
                ("a".into(), 3, 0, "a.1.0".into()),
                ("b".into(), 4, 1, "x/y/b.0.0".into()),
                ("c".into(), 5, 1, "c.0.0".into()),
            ]
        );
        assert_eq!(file.jobs[0].sizes.ranges, [(4096, 4096), (8192, 8192), (8192, 8192)]);
        // A third of 2 MiB, and what is left over in blocks for the first.
        assert_eq!(file.jobs[3].files.iter().map(|file| file.bytes).collect::<Vec<_>>(), [699_050; 3]);
        assert_eq!((file.tasks(), file.jobs[3].runtime), (12, Some(SimDuration::from_secs(90))));
        assert_eq!(JobFile::parse(&file.text).unwrap().jobs, file.jobs);
    }

    #[test]
    fn all_errors_are_told_at_once_with_their_lines() {
        let text = "[a]\nsize=1m\nrw=randwirte\nthinktime_iotime=5\nbssplit=4k/60:8k/60\nread_iolog=x\nioengine=falloc\n\
                    iodpeth=4\n";
        let errors = JobFile::parse(text).unwrap_err();
        let lines: Vec<(usize, Limit)> = errors.0.iter().map(|e| (e.place.line, e.limit)).collect();
        use Limit::{Fio, Model};
        assert_eq!(lines, [(3, Fio), (4, Model), (5, Fio), (6, Model), (7, Model), (8, Fio)]);
        let shown = errors.to_string();
        for part in [
            "6 errors\n  line 3: 'randwirte' is not a value of rw; expected one of read",
            "line 5: '4k/60:8k/60' is not a value of bssplit; expected SIZE/PERCENT:..., whose shares add up to at most 100",
            "line 7: ioengine=falloc is beyond the model; expected an engine that reads and writes files: psync",
            "line 8: fio has no option 'iodpeth'; expected `iodepth`?",
            "\nA real kernel runs what is beyond the model, once the other errors are fixed: --target kernel:6.12:ext4 \
             --workload 'cmd:fio FILE'",
        ] {
            assert!(shown.contains(part), "{part}\n{shown}");
        }
    }

    #[test]
    fn a_real_kernel_is_advised_for_what_fio_runs() {
        let shown = |text: &str| JobFile::parse(text).unwrap_err().to_string();
        let beyond = shown("[a]\nsize=1m\nioengine=falloc");
        assert!(
            beyond.starts_with("line 3: ioengine=falloc is beyond the model; expected an engine"),
            "{beyond}"
        );
        assert!(
            !beyond.contains("cpuio") && beyond.contains("\nA real kernel runs it unchanged: "),
            "{beyond}"
        );
        // Debian's fio lacks these, or they need a library, a device or a server.
        for option in ["ioengine=spdk", "ioengine=rados", "ioengine=libpmem", "zonemode=zbd", "sprandom=1"] {
            let shown = shown(&format!("[a]\nsize=1m\n{option}\n[b]\nsize=1m\nioengine=null"));
            assert!(shown.contains(option) && !shown.contains("A real kernel"), "{shown}");
        }
        for wrong in ["[a]\nsize=1m\niodpeth=4", "[a]\nsize={{ size }}"] {
            assert!(!shown(wrong).contains("kernel"), "{wrong}");
        }
    }

    #[test]
    fn values_are_read_as_fio_reads_them() {
        let sizes = |text: &str| parsed(text).jobs[0].sizes.ranges.map(|(from, _)| from);
        let bytes = |text: &str| parsed(text).jobs[0].size;
        let one = |options: &str| format!("[a]\nrw=randrw\nsize=4m\n{options}\n");
        assert_eq!(sizes(&one("blocksize=4k-512k")), [4096, 524_288, 524_288]);
        assert_eq!(sizes(&one("bs=4k:8k:16k")), [4096, 8192, 16_384]);
        assert_eq!(sizes(&one("bs=(2*2k),(4*4k)")), [4096, 16_384, 16_384]);
        assert_eq!(bytes(&one("size=(1024*1024)")), 1 << 20);
        assert_eq!(bytes(&one("size=1m-2m")), 2 << 20);
        assert_eq!(bytes(&one("size=1Mi")), 1 << 20);
        assert_eq!(sizes(&one("bs=4K,8K,16K,32K,64K")), [4096, 8192, 16_384]);
        // A comment that is none to fio, which goes on behind the number.
        let commented =
            &parsed(&one("size=2m   // size: as on the drive\ndirect=1 // yes\nruntime=60 // sec")).jobs[0];
        assert_eq!((commented.size, commented.direct), (2 << 20, true));
        assert_eq!(commented.runtime, Some(SimDuration::from_secs(60)));
        assert_eq!(parsed(&one("rwmixread=70:30")).jobs[0].read_percent, 30);
        assert_eq!(parsed(&one("runtime=(1*2)")).jobs[0].runtime, Some(SimDuration::from_secs(2)));
        assert_eq!(
            parsed(&one("bs=4k-512k")).notes,
            ["bs=4k-512k of [a] is 4k for reads, 512k for writes and 512k for TRIMs, as in fio; a range is \
              bsrange=4k-512k"]
        );
        let wrong = |options: &str| JobFile::parse(&one(options)).unwrap_err().0.remove(0);
        let error = wrong("bs=128*$X");
        assert_eq!(error.what, "'128*$X' is not a value of bs; fio would take the first number alone");
        assert!(error.expected.ends_with("; a variable is ${NAME}"), "{error}");
        assert!(wrong("size=4*1m").expected.ends_with("; or (4*1m)"));
        // fio goes on behind the minus, and would take 4 KiB.
        assert_eq!(wrong("size=(1m-4k)").what, "'(1m-4k)' is not a value of size");
    }

    #[test]
    fn each_section_has_the_unit_of_its_own_kb_base() {
        let bytes = |text: &str| parsed(text).jobs.iter().map(|job| job.size).collect::<Vec<_>>();
        for (text, expected) in [
            ("[global]\nsize=4m\n[global]\nkb_base=1000\n[a]\nbs=4ki\n[b]\nsize=4m", [4 << 20, 4_000_000]),
            ("[global]\nkb_base=1000\nsize=4m\n[a]\nkb_base=1024\nbs=4k\n[b]", [4_000_000, 4_000_000]),
            ("[global]\nsize=4mib\n[a]\nkb_base=1000\n[b]\nkb_base=1000\nsize=4mib", [4_000_000, 4 << 20]),
            ("[global]\nsize=(4m)\n[a]\nkb_base=1000\n[b]", [4 << 20, 4 << 20]),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
            assert_eq!(bytes(&parsed(text).text), expected, "{text}");
        }
        // Neither names nor times have sizes in them.
        let text = "[global]\nfilename=4m\nruntime=5m\nbssplit=4k/50:8k/50\nsize=1m\n[a]\nkb_base=1000\n";
        let job = parsed(text).jobs.remove(0);
        assert_eq!((&*job.files[0].name, job.runtime), ("4m", Some(SimDuration::from_secs(300))));
        assert_eq!(job.sizes.ranges[0], (4096, 8192));
    }

    #[test]
    fn errors_of_an_included_file_are_in_the_order_of_its_lines() {
        struct Included;
        impl Surroundings for Included {
            fn included(&self, _: &str) -> Result<String, String> {
                Ok("rw=sideways\nszie=1m\n".to_owned())
            }

            fn variable(&self, _: &str) -> Option<String> {
                None
            }
        }
        let text = "[a]\nsize=1m\ninclude x\nbs=0";
        let errors = JobFile::read(text, &[], &Included).unwrap_err().0;
        let places: Vec<String> = errors.iter().map(|error| error.place.to_string()).collect();
        assert_eq!(places, ["line 4", "x, line 1", "x, line 2"]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line, what) in [
            ("[a]\nsize=1m\nio_size=101%", 3, "'101%' is not a value of io_size"),
            ("[a]\nsize=1k", 2, "a size of 1024 bytes is less than a block of 4096"),
            ("[a]\nsize=1m\ndirect=1\nbs=100", 4, "direct transfers of parts of sectors"),
            (
                "[a]\nsize=1m\nrandom_generator=lfsr\nrw=randread\nbsrange=4k-8k",
                3,
                "lfsr with several block sizes",
            ),
            ("[a\n", 1, "'[a' is not a section header"),
            ("[a]\nsize=1m\nnumjobs=5000", 3, "'5000' is not a value of numjobs"),
            (
                "[a]\nsize=1m\nnumjobs=4096\nioengine=io_uring\niodepth=32",
                1,
                "4096 processes so far, which have 131072",
            ),
            ("[a]\nsize=1m\nwait_for=b\n[b]\nsize=1m", 3, "no job before this one is called 'b'"),
            ("[a]\nsize=1m\nrate=1m\nrate_iops=5", 4, "rate and rate_iops contradict"),
            ("[a]\nsize=1m\nfilename=x\n[b]\nsize=1m\nfilename=x/y", 4, "'x' would be a file, and a folder"),
            ("[a]\nsize=18446744073709551615", 2, "a file of 18446744073709551615 bytes"),
            (
                "[a]\nsize=4m\noffset=18446744073709551615",
                3,
                "a file of 4194304 bytes from offset 18446744073709551615",
            ),
            (
                "[a]\nsize=4m\nnumjobs=2\noffset_increment=18446744073709551615",
                4,
                "a file of 4194304 bytes from offset 18446744073709551615",
            ),
            ("[a]\nfilesize=1m\noffset=2m", 3, "offset 2097152 is past the end of a file"),
            ("[a]\nsize=1m\0", 2, "a NUL character"),
            ("[a]\nsize=8g\nrw=write\nbs=2g", 4, "reads or writes of 2147483648 bytes in one call"),
            ("[a]\nsize=8g\nrw=trimwrite\nbs=4k,4k,2g", 4, "reads or writes of 2147483648 bytes in one call"),
            ("[a]\nsize=1m\nrw=rw\nloops=2\nunlink_each_loop=1", 5, "a job that would read the files"),
            ("[global]\nbs=x\n[a]\nfoo=1\nsize={{ size }}", 5, "'size={{ size }}' is of a template"),
            ("[a]\n{% if x %}\nsize={{ size }}\n{% endif %}\nfoo=1", 2, "'{% if x %}' is of a template"),
            ("[a]\nioengine=cpuio", 1, "no job does I/O"),
            ("", 1, "no job section"),
        ] {
            let errors = JobFile::parse(text).unwrap_err();
            assert_eq!((errors.0.len(), errors.0[0].place.line), (1, line), "{errors}");
            assert!(errors.0[0].what.starts_with(what), "{errors}");
        }
    }

    #[test]
    fn devices_and_absolute_paths_are_files_and_take_what_is_free() {
        let file = parsed(
            "[a]\nfilename=/dev/sda:/dev/sdb\nrw=randread\n[b]\nfilename=/dev/sda\noffset=50%\nsize=25%",
        );
        assert!(file.fills_space());
        assert_eq!(file.needed(), Bytes(0));
        let fitted = file.fitted(Bytes::mib(64)).unwrap();
        let files: Vec<_> = fitted.files().into_iter().collect();
        assert_eq!(files, [("dev/sda", 30 << 20), ("dev/sdb", 30 << 20)]);
        let [a, b] = &fitted.jobs[..] else { panic!("two jobs") };
        assert_eq!((a.size, b.size, b.files[0].offset), (60 << 20, 7_864_320, 15 << 20));
        assert!(file.fitted(Bytes(1000)).unwrap_err().to_string().contains("do not fit"));
        for (text, shown) in [
            ("[a]", "the free space in a.0.0"),
            ("[a]\nsize=50%", "50 % of the free space in a.0.0"),
            ("[a]\nsize=200%", "the free space in a.0.0"),
            ("[a]\nsize=50%\n[b]", "50 % of 1/2 of the free space in a.0.0"),
            ("[a]\nsize=50%\nfilename=x\n[b]\nfilename=x", "50 % of the free space in x"),
            ("[a]\nsize=50%\nfilesize=4m", "2 MiB in a.0.0"),
            ("[a]\nrw=trim\nbs=2g\nsize=1%", "1 % of the free space in a.0.0"),
        ] {
            let description = parsed(text).description().to_string();
            assert!(description.contains(&format!("; {shown}\n")), "{description}");
        }
        let whole = |size: &str| parsed(&format!("[a]\nfilesize=4m\nsize={size}")).needed();
        assert_eq!(whole("200%"), whole("100%"));
    }

    #[test]
    fn groups_share_tasks_and_a_job_that_computes_is_left_out() {
        let file = parsed(
            "[global]\nioengine=io_uring\nsize=1m\niodepth=1000\n[a]\n[b]\nstonewall\n[c]\niodepth=24\n\
             [d]\nioengine=cpuio\ncpuload=50",
        );
        assert_eq!((file.tasks(), file.jobs.len()), (1024, 3));
        assert!(
            file.notes.iter().any(|note| note == "[d] only computes (cpuio); left out"),
            "{:?}",
            file.notes
        );
    }

    #[test]
    fn directions_that_an_option_leaves_out_keep_their_default() {
        let k = |kib: u64| kib << 10;
        for (text, ranges, random) in [
            ("bssplit=,,32k/100", [(k(4), k(4)), (k(4), k(4)), (k(32), k(32))], [100; 3]),
            ("bs=1k\nbssplit=,4k/10:8k/90", [(k(1), k(1)), (k(4), k(8)), (k(4), k(8))], [100; 3]),
            ("bsrange=2k-4k,\nbssplit=,,8k", [(k(2), k(4)), (k(4), k(4)), (k(8), k(8))], [100; 3]),
            ("bs=,8k\npercentage_random=,50,", [(k(4), k(4)), (k(8), k(8)), (k(8), k(8))], [100, 50, 100]),
            ("percentage_random=99,,", [(k(4), k(4)); 3], [99, 100, 100]),
            ("rw=randtrim\nbs=2g\nsize=8g", [(k(2 << 20), k(2 << 20)); 3], [100; 3]),
            ("rw=read\nbs=512m\nsize=1g", [(k(512 << 10), k(512 << 10)); 3], [100; 3]),
        ] {
            let job = &parsed(&format!("[a]\nsize=1m\n{text}")).jobs[0];
            assert_eq!((job.sizes.ranges, job.percent_random), (ranges, random), "{text}");
        }
    }

    #[test]
    fn what_waits_in_the_page_cache_is_one_operation_at_a_time() {
        for (text, depth) in [
            ("ioengine=libaio", 1),
            ("ioengine=posixaio", 1),
            ("ioengine=libaio\ndirect=1", 8),
            ("ioengine=io_uring", 8),
            ("ioengine=psync\ndirect=1", 1),
        ] {
            let file = parsed(&format!("[a]\nsize=1m\niodepth=8\n{text}"));
            let is_told = file.notes.iter().any(|note| note.starts_with("one operation at a time, as "));
            assert_eq!((file.tasks(), is_told), (depth, depth == 1 && !text.contains("psync")), "{text}");
        }
    }

    #[test]
    fn files_are_removed_between_loops_and_not_after_the_last() {
        let file = parsed("[a]\nrw=write\nsize=8k\nloops=3\nunlink_each_loop=1");
        let removals: Vec<usize> = Sequence::new(&file.jobs[0], 1)
            .enumerate()
            .filter_map(|(i, io)| (io == Io::Unlink).then_some(i))
            .collect();
        assert_eq!(removals, [2, 5]);
        let description = file.description().to_string();
        assert!(description.ends_with("; 3 loops; files removed between loops\n"), "{description}");
    }

    #[test]
    fn what_is_written_has_the_class_that_is_nearest() {
        for (text, class) in [
            ("", ContentClass::Incompressible),
            ("buffer_compress_percentage=50", ContentClass::PseudoRandom),
            ("buffer_compress_percentage=90", ContentClass::Compressible),
            ("buffer_compress_percentage=100", ContentClass::Zeros),
            ("zero_buffers", ContentClass::Zeros),
            ("dedupe_percentage=80", ContentClass::Duplicated),
        ] {
            assert_eq!(parsed(&format!("[a]\nrw=write\nsize=1m\n{text}")).content(), class, "{text}");
        }
    }

    /// Lines that are nearly right.
    fn line() -> impl Strategy<Value = String> {
        let key = prop::sample::select(options::names().collect::<Vec<_>>());
        let value = prop_oneof![
            "[0-9]{1,20}[kmgt]?i?b?",
            "-?[0-9]{1,3}%?",
            "[0-9]{1,4}[kmg]?[-,:/][0-9]{1,4}[kmg]?",
            "(read|write|trim|rw|randread|randwrite|randrw|randtrimwrite)(:-?[0-9]{1,2}k?)?",
            "(libaio|lfsr|zipf:[0-9.]{1,4}|pareto:0.[0-9]|zoned:50/50:50/50|normal:5|sequence:3,1|random:4|dsync)",
            "4k/(25|50):8k/:512/",
            "\\PC{0,12}",
        ];
        prop_oneof![
            8 => (key, value).prop_map(|(key, value)| format!("{key}={value}")),
            1 => "\\[[a-z/.]{0,6}\\]?",
            1 => "\\PC{0,20}",
        ]
    }

    proptest! {
        #[test]
        fn no_text_panics(lines in prop::collection::vec(line(), 0..20)) {
            let text = format!("[global]\nsize=64k\n[a]\n{}", lines.join("\n"));
            if let Ok(file) = JobFile::parse(&text) {
                prop_assert!(file.tasks() >= 1);
                prop_assert_eq!(&JobFile::parse(&file.text).unwrap().jobs, &file.jobs);
                let file = file.fitted(Bytes::mib(16)).unwrap_or(file);
                for job in file.jobs.iter().filter(|_| file.needed().0 < 1 << 26) {
                    for io in Sequence::new(job, 1).take(100) {
                        let (Io::Transfer { file: index, offset, bytes, .. } | Io::Trim { file: index, offset, bytes }) = io else {
                            continue;
                        };
                        prop_assert!(bytes > 0 && offset + bytes <= job.files[index].length, "{io:?} {job:?}");
                    }
                }
            }
        }
    }
}
