//! `sandforce`: the effect of torture on a compressing drive, and what TRIM restores under three firmwares.
//!
//! From "SandForce TRIM Issue & Corsair Force Series GS (240GB) Review" (AnandTech, November 2012). One profile stands
//! for the drive, with its firmware as a variant; the page-mapped drive of the same year is for comparison. Everything
//! is done by the tests of [`crate::bench`], which would do the same to a real drive. A drive is filled and tortured
//! once for each class of data. Every measurement gets a clone of it, under its own firmware, so that no measurement
//! sees what another one wrote.
//!
//! `claims` judges the source's claims, `files` answers the reader's question, `sharing` examines repeating data.

mod claims;
pub mod files;
mod sharing;

pub use claims::{Measured, evaluate};
pub use sharing::{Sharing, run_sharing};

use trimwise::block::{BlockQueue, ModelDevice, QueueConfig};
use trimwise::compare::cell::CellError;
use trimwise::content::ContentClass;
use trimwise::engine::Sim;
use trimwise::profile::Profile;
use trimwise::ssd::{Drive, Faults, SsdConfig};
use trimwise::units::{Bytes, SimTime};

use super::result::ExperimentResult;
use super::{Experiment, Host, Request};
use crate::bench::{Direction, Hooks, Part, Passes, Percent, Results, Settings, Test, TestResult};
use trimwise::failure::Failure;

pub static EXPERIMENT: Experiment = Experiment {
    name: "sandforce",
    question: "What does TRIM give back to a compressing drive that was tortured, and under which firmware?",
    reps: 1,
    claims: include_str!("../../../../../experiments/sandforce/claims.toml"),
    host: Host::Model,
    run,
};

/// Makes the runs; the longest come first, and each reports the same number of steps.
fn run(request: &Request) -> Result<ExperimentResult, Failure> {
    enum Run {
        Class(ClassRun),
        PageMapped(PageMappedRun),
        Files(files::FilesRun, Sharing),
    }
    let (setting, seed) = (Setting::published(), request.seed);
    let runs = request.spread_in(MEMORY, CLASSES.len() + 2, STEPS, |i, step| {
        let run = || match CLASSES.get(i) {
            Some(&class) => run_class(&setting, class, seed, step).map(Run::Class),
            None if i == CLASSES.len() => run_page_mapped(&setting, seed, step).map(Run::PageMapped),
            None => {
                let sharing = run_sharing(&setting, seed)?;
                Ok(Run::Files(files::run_files(&setting.files, seed, step)?, sharing))
            }
        };
        run().map_err(Failure::run)
    })?;
    let mut measured = Measured::default();
    for run in runs {
        match run {
            Run::Class(run) => measured.classes.push(run),
            Run::PageMapped(run) => measured.page_mapped = run,
            Run::Files(run, sharing) => (measured.files, measured.sharing) = (run, sharing),
        }
    }
    Ok(evaluate(&measured, seed))
}

/// The drive, a built-in profile with its firmwares as variants.
pub const DEVICE: &str = "sandforce-240gb";

/// The page-mapped drive for comparison.
pub const PAGE_MAPPED: &str = "sata-240gb-2012";

/// The firmwares: before the fault, with it, and fixed.
pub(crate) const FIRMWARES: [&str; 3] = ["3.x", "5.0.2", "5.0.3"];

/// The data to fill and torture the drive with.
pub const CLASSES: [ContentClass; 3] =
    [ContentClass::Compressible, ContentClass::PseudoRandom, ContentClass::Incompressible];

/// The data that HD Tach and ATTO write.
const THEIR_OWN: ContentClass = ContentClass::Compressible;

#[derive(Clone, Debug)]
pub struct Setting {
    pub ssd: SsdConfig,
    /// Faults of each firmware of [`FIRMWARES`].
    pub firmwares: [Faults; 3],
    pub page_mapped: SsdConfig,
    pub torture_s: u32,
    /// Amount written to measure writes, of the class that the drive was tortured with.
    pub written: Bytes,
    /// The drives of the reader's question, scaled down.
    pub files: files::FilesSetting,
}

impl Setting {
    pub fn published() -> Self {
        let profile = |name: &str| Profile::embedded(name).expect("the drives are built in");
        let firmware = |version: &str| profile(&format!("{DEVICE}@{version}")).faults;
        let (ssd, firmwares) = (profile(DEVICE).config, FIRMWARES.map(firmware));
        let (torture_s, written) = (1200, Bytes::gib(16));
        let files = files::FilesSetting::of(&ssd, firmwares[1], torture_s, written);
        Self {
            files: files.expect("a small drive like the built-in one"),
            page_mapped: profile(PAGE_MAPPED).config,
            torture_s,
            written,
            ssd,
            firmwares,
        }
    }

    /// Returns the settings for drives of `capacity`, with proportionally shorter torture.
    pub fn shrunk(&self, capacity: Bytes) -> Result<Self, CellError> {
        let whole = self.ssd.capacity_bytes;
        let share = |amount: u64| (u128::from(amount) * u128::from(capacity.0) / u128::from(whole)) as u64;
        Ok(Self {
            torture_s: share(self.torture_s.into()).max(1) as u32,
            written: Bytes(share(self.written.0)),
            ssd: shrunk(&self.ssd, capacity)?,
            page_mapped: shrunk(&self.page_mapped, capacity)?,
            ..self.clone()
        })
    }
}

/// Scales down a drive but keeps its cache: it has as many dies as before, and a smaller cache could not keep them
/// busy.
fn shrunk(ssd: &SsdConfig, capacity: Bytes) -> Result<SsdConfig, CellError> {
    Ok(SsdConfig { cache: ssd.cache.clone(), ..ssd.shrunk(capacity.0)? })
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttoSize {
    pub kib: f64,
    /// Megabytes per second.
    pub write: f64,
    /// Megabytes per second.
    pub read: f64,
}

/// Measurements of a drive in one state, in megabytes per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    pub read: f64,
    /// Gigabytes from the beginning of the drive, and throughput, for each zone.
    pub read_zones: Vec<(f64, f64)>,
    /// HD Tach's writes, after the reads.
    pub write: f64,
    /// A long sequential write of data like those of the torture.
    pub same_write: f64,
    /// Empty if ATTO was not run.
    pub atto: Vec<AttoSize>,
}

#[derive(Clone, Debug)]
pub(super) struct Image {
    drive: Drive,
    at: SimTime,
}

impl Image {
    fn new(ssd: &SsdConfig, seed: u64) -> Result<Self, CellError> {
        Ok(Self { drive: Drive::new(ssd, Faults::default(), seed)?, at: SimTime::ZERO })
    }

    fn under(&self, faults: Faults) -> Result<Self, CellError> {
        Ok(Self { drive: self.drive.clone().with_faults(faults)?, at: self.at })
    }

    fn test(
        self,
        tests: &[Test],
        content: ContentClass,
        seed: u64,
    ) -> Result<(Vec<TestResult>, Self), CellError> {
        let (sim, tests) = (Sim::new(), tests.to_vec());
        let (results, image) = sim.clone().run(async move {
            sim.sleep_until(self.at).await;
            let queue = BlockQueue::new(&sim, self.drive, QueueConfig::default());
            let device = ModelDevice::new(queue.clone(), DEVICE);
            let settings = Settings { content, seed, ..Settings::default() };
            let results = crate::bench::run(&device, &tests, &settings, Hooks::default()).await;
            drop(device);
            (results, queue.into_drive().map(|drive| Self { drive, at: sim.now() }))
        })?;
        let failed = |what: String| CellError::Test { device: DEVICE.to_owned(), what };
        let Results { tests, broken, .. } = results.map_err(|error| failed(error.to_string()))?;
        match (broken, image) {
            (Some(broken), _) => Err(failed(format!("{}: {}", broken.test, broken.why))),
            (None, Some(image)) => Ok((tests, image)),
            (None, None) => Err(failed("a command is still in flight".to_owned())),
        }
    }
}

/// Measures clones of a drive in a state. Reads come first, since HD Tach's own writes put a drive in order. The long
/// write of `written` bytes of a class, and ATTO if requested, get separate clones.
fn figures_of(
    image: &Image,
    written: Bytes,
    class: ContentClass,
    seed: u64,
    with_atto: bool,
) -> Result<Figures, CellError> {
    let both = Test::HdTach { passes: Passes::Both, full: false };
    let (hd_tach, _) = image.clone().test(&[both], THEIR_OWN, seed)?;
    let write = Test::Sequential { direction: Direction::Write, size: Some(written), start: Percent::ZERO };
    let (same, _) = image.clone().test(&[write], class, seed)?;
    let mut figures = Figures {
        read: throughput(&hd_tach, "read"),
        write: throughput(&hd_tach, "write"),
        same_write: throughput(&same, "write"),
        read_zones: line(&hd_tach, "read"),
        atto: Vec::new(),
    };
    if with_atto {
        let (atto, _) = image.clone().test(&[Test::Atto], THEIR_OWN, seed)?;
        let reads = line(&atto, "read").into_iter();
        let sizes = line(&atto, "write").into_iter().zip(reads);
        figures.atto = sizes.map(|((kib, write), (_, read))| AttoSize { kib, write, read }).collect();
    }
    Ok(figures)
}

fn throughput(tests: &[TestResult], what: &str) -> f64 {
    let measured = tests.iter().flat_map(|test| &test.measured);
    measured.filter(|m| m.what == what).filter_map(|m| m.throughput_mb_per_s).next_back().unwrap_or(f64::NAN)
}

fn line(tests: &[TestResult], name: &str) -> Vec<(f64, f64)> {
    let series = tests.iter().flat_map(|test| &test.plots).flat_map(|plot| &plot.series);
    let points = series.filter(|series| series.name == name).flat_map(|series| &series.points);
    points
        .filter_map(|point| match point.x {
            crate::plot::Place::At(x) => Some((x, point.y)),
            crate::plot::Place::In(_) => None,
        })
        .collect()
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trimmed {
    pub once: Figures,
    pub twice: Figures,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassRun {
    pub clean: Figures,
    pub tortured: Figures,
    /// Under each firmware of [`FIRMWARES`].
    pub trimmed: Vec<Trimmed>,
    pub erased: Figures,
    pub torture_units: u64,
    /// NAND units over host units in the torture.
    pub torture_write_amplification: f64,
}

const FILL: [Test; 1] = [Test::Fill(Percent::ALL)];
const STEPS: u32 = 6;

/// Maximum memory of a run: the drive of 58.6 million units and two clones of it.
const MEMORY: Bytes = Bytes::gib(4);

pub fn run_class(
    setting: &Setting,
    class: ContentClass,
    seed: u64,
    after_each: &dyn Fn(),
) -> Result<ClassRun, CellError> {
    let new = Image::new(&setting.ssd, seed)?;
    let clean = figures_of(&new, setting.written, class, seed, true)?;
    let (tortured, torture) = fill_and_torture(new, setting, class, seed)?;
    after_each();
    let measured = figures_of(&tortured, setting.written, class, seed, true)?;
    after_each();
    let mut trimmed = Vec::new();
    for faults in setting.firmwares {
        let trim = [Test::Trim(Part::ALL)];
        let (_, once) = tortured.under(faults)?.test(&trim, class, seed)?;
        let figures = figures_of(&once, setting.written, class, seed, true)?;
        let (_, twice) = once.test(&trim, class, seed)?;
        trimmed
            .push(Trimmed { once: figures, twice: figures_of(&twice, setting.written, class, seed, false)? });
        after_each();
    }
    let (_, erased) = tortured.test(&[Test::Erase], class, seed)?;
    let erased = figures_of(&erased, setting.written, class, seed, true)?;
    after_each();
    Ok(ClassRun {
        clean,
        tortured: measured,
        trimmed,
        erased,
        torture_units: torture.0,
        torture_write_amplification: torture.1,
    })
}

/// Fills and tortures a drive. Returns the units written by the torture, and its write amplification.
fn fill_and_torture(
    new: Image,
    setting: &Setting,
    class: ContentClass,
    seed: u64,
) -> Result<(Image, (u64, f64)), CellError> {
    let (_, full) = new.test(&FILL, class, seed)?;
    let before = *full.drive.ssd().stats();
    let (_, tortured) = full.test(&[Test::Torture(Some(setting.torture_s))], class, seed ^ 1)?;
    let stats = tortured.drive.ssd().stats().since(&before);
    Ok((tortured, (stats.host_units_written, stats.write_amplification())))
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageMappedRun {
    pub clean: Figures,
    pub full: Figures,
    pub tortured: Figures,
    pub trimmed: Figures,
}

pub fn run_page_mapped(
    setting: &Setting,
    seed: u64,
    after_each: &dyn Fn(),
) -> Result<PageMappedRun, CellError> {
    let class = THEIR_OWN;
    let figures = |image: &Image| figures_of(image, setting.written, class, seed, false);
    let new = Image::new(&setting.page_mapped, seed)?;
    let clean = figures(&new)?;
    after_each();
    let (_, filled) = new.test(&FILL, class, seed)?;
    let full = figures(&filled)?;
    after_each();
    let (_, worn) = filled.test(&[Test::Torture(Some(setting.torture_s))], class, seed ^ 1)?;
    after_each();
    let tortured = figures(&worn)?;
    after_each();
    let (_, freed) = worn.test(&[Test::Trim(Part::ALL)], class, seed)?;
    after_each();
    let trimmed = figures(&freed)?;
    after_each();
    Ok(PageMappedRun { clean, full, tortured, trimmed })
}
