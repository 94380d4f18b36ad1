//! The reader's question: is a drive worse off if it is tortured raw and then trimmed as a whole than if the same
//! torture goes through a file system that trims all the time?
//!
//! Both use the same drive, scaled down, under the faulty firmware. *Raw* is what the source did: fill, torture, one
//! TRIM of everything. *Through files*, an ext4 with TRIM at each commit is filled with files. They get as many
//! overwrites of 4 KiB at random places as the raw drive, and now and then one is removed and rewritten. All data are
//! incompressible: that is the class of data that the modelled file system writes.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use trimwise::block::BlockQueue;
use trimwise::compare::cell::audited;
use trimwise::content::ContentClass;
use trimwise::engine::Sim;
use trimwise::files::{FileError, Files, OpenMode};
use trimwise::fs::host::HostConfig;
use trimwise::fs::layout::FormatOptions;
use trimwise::fs::{Ext4, Volume};
use trimwise::policy::PolicySpec;
use trimwise::ssd::{Faults, SsdConfig};
use trimwise::units::{Bytes, SimTime, UNIT_BYTES};

use super::{CellError, FILL, Figures, Image, figures_of};
use crate::bench::{Part, Test};

const CLASS: ContentClass = ContentClass::Incompressible;
const FILE: Bytes = Bytes::mib(4);
/// Fill levels of the file system, in percent of the space that files can use: a usual level, and the maximum that a
/// file system can cover.
pub(crate) const LEVELS_PERCENT: [u64; 2] = [50, 95];
/// One of this many operations removes a file and rewrites it; the others overwrite 4 KiB.
const OVERWRITES_A_REMOVAL: u64 = 4096;
/// Capacity of the drive: small enough that a file system on it can be worked on for this long.
const CAPACITY: Bytes = Bytes(8_000_000_000);

#[derive(Clone, Debug)]
pub struct FilesSetting {
    pub ssd: SsdConfig,
    pub faults: Faults,
    /// The host; its memory is scaled down like the drive.
    pub host: HostConfig,
    pub torture_s: u32,
    /// Amount written to measure writes.
    pub written: Bytes,
}

impl FilesSetting {
    /// Scales down a drive with its torture and the amount written to measure it.
    pub(super) fn of(
        ssd: &SsdConfig,
        faults: Faults,
        torture_s: u32,
        written: Bytes,
    ) -> Result<Self, CellError> {
        let share = |amount: u64| {
            (u128::from(amount) * u128::from(CAPACITY.0) / u128::from(ssd.capacity_bytes)) as u64
        };
        let host = HostConfig::of_the_2010s();
        Ok(Self {
            host: HostConfig { memory: Bytes(share(host.memory.0)), ..host },
            torture_s: share(torture_s.into()).max(1) as u32,
            written: Bytes(share(written.0)),
            ssd: super::shrunk(ssd, CAPACITY)?,
            faults,
        })
    }
}

/// State of the drive after both ways.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilesRun {
    pub clean: Figures,
    /// Raw: tortured, before TRIM.
    pub raw_tortured: Figures,
    /// Raw: after one TRIM of everything.
    pub raw_trimmed: Figures,
    pub raw_units: u64,
    /// Through files, at each of [`LEVELS_PERCENT`].
    pub levels: Vec<Level>,
}

/// State of the drive after torture through files, at one level.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Level {
    /// With the files in place.
    pub in_place: Figures,
    /// After removal of all files.
    pub removed: Figures,
    /// Units sent to the drive for the torture.
    pub units: u64,
    /// Units that the drive held at the end, before the files were removed, in percent.
    pub mapped_percent: f64,
}

pub fn run_files(setting: &FilesSetting, seed: u64, after_each: &dyn Fn()) -> Result<FilesRun, CellError> {
    let measure = |image: &Image| figures_of(image, setting.written, CLASS, seed, false);
    let new = Image::new(&setting.ssd, seed)?.under(setting.faults)?;
    let clean = measure(&new)?;
    after_each();
    let (_, full) = new.test(&FILL, CLASS, seed)?;
    let before = full.drive.ssd().stats().host_units_written;
    let (_, tortured) = full.test(&[Test::Torture(Some(setting.torture_s))], CLASS, seed ^ 1)?;
    let overwrites = tortured.drive.ssd().stats().host_units_written - before;
    after_each();
    let raw_tortured = measure(&tortured)?;
    let (_, trimmed) = tortured.test(&[Test::Trim(Part::ALL)], CLASS, seed)?;
    let raw_trimmed = measure(&trimmed)?;
    after_each();

    let mut levels = Vec::new();
    for percent in LEVELS_PERCENT {
        let (in_place, removed, units) = through_files(setting, percent, overwrites, seed)?;
        let ssd = in_place.drive.ssd();
        let mapped_percent = 100.0 * ssd.mapped_units() as f64 / ssd.capacity_units() as f64;
        let (in_place, removed) = (measure(&in_place)?, measure(&removed)?);
        levels.push(Level { in_place, removed, units, mapped_percent });
        after_each();
    }
    after_each();
    Ok(FilesRun { clean, raw_tortured, raw_trimmed, raw_units: overwrites, levels })
}

/// Measures the drive with the files at the end, and without them. Returns also the amount written for the overwrites.
fn through_files(
    setting: &FilesSetting,
    percent: u64,
    overwrites: u64,
    seed: u64,
) -> Result<(Image, Image, u64), CellError> {
    let FilesSetting { ssd, faults, host, .. } = setting.clone();
    let sim = Sim::new();
    let new = Image::new(&ssd, seed)?.under(faults)?;
    let queue = BlockQueue::new(&sim, new.drive, host.queue);
    sim.clone().run(async move {
        let policy = PolicySpec::COMMIT;
        let volume = Volume::format(&queue, FormatOptions::default()).await?;
        let fs = volume.mount(host, policy.governor()).await;
        let count = fill(&fs, percent).await?;
        let written = |fs: &Ext4| fs.queue().with_ssd(|ssd| ssd.stats().host_units_written);
        let before = written(&fs);
        torture(&fs, count, overwrites, seed).await?;
        let written = written(&fs) - before;
        fs.drain_discards().await;
        let in_place = image(&fs, sim.now());
        for number in 0..count {
            fs.unlink(&path_of(number)).await?;
        }
        fs.sync().await?;
        fs.drain_discards().await;
        let volume = audited(fs, super::DEVICE, &policy).await?;
        let removed = Image { drive: volume.queue().drive().clone(), at: sim.now() };
        Ok::<_, CellError>((in_place, removed, written))
    })?
}

fn image(fs: &Ext4, at: SimTime) -> Image {
    Image { drive: fs.queue().drive().clone(), at }
}

/// Writes files up to the level. Returns their number.
async fn fill(fs: &Ext4, percent: u64) -> Result<u64, FileError> {
    let space = fs.statfs().await?;
    let room = space.free.0 / 100 * percent;
    let count = room / FILE.0;
    for number in 0..count {
        write_file(fs, number).await?;
    }
    fs.sync().await?;
    Ok(count)
}

async fn write_file(fs: &Ext4, number: u64) -> Result<(), FileError> {
    static DATA: [u8; 1 << 20] = [0; 1 << 20];
    let mut file = fs.open(&path_of(number), OpenMode::Create).await?;
    for _ in 0..FILE.0 / DATA.len() as u64 {
        fs.write(&mut file, &DATA).await?;
    }
    fs.close(file).await
}

/// Overwrites `overwrites` units at random places of the files, and removes and rewrites some of the files.
async fn torture(fs: &Ext4, count: u64, overwrites: u64, seed: u64) -> Result<(), FileError> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut below = |n: u64| ((u128::from(rng.next_u64()) * u128::from(n)) >> 64) as u64;
    let unit = [0; UNIT_BYTES as usize];
    for i in 1..=overwrites {
        let number = below(count);
        if i % OVERWRITES_A_REMOVAL == 0 {
            fs.unlink(&path_of(number)).await?;
            write_file(fs, number).await?;
        }
        let mut file = fs.open(&path_of(number), OpenMode::CreateKeep).await?;
        fs.seek(&mut file, below(FILE.0 / UNIT_BYTES) * UNIT_BYTES).await?;
        fs.write(&mut file, &unit).await?;
        fs.close(file).await?;
    }
    fs.sync().await
}

fn path_of(number: u64) -> String {
    format!("{number}")
}
