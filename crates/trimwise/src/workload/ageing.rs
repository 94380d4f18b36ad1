//! Ageing: brings a file system to a given utilization.
//!
//! A [`Population`] of files of mixed sizes fills the file system completely, random files are deleted until a wanted
//! share is in use, and new ones are created up to another share. The remains in the device depend on the policy in
//! effect, which is the purpose of ageing: without TRIM the deleted files' blocks stay valid there.
//!
//! One fill leaves the drive's spare flash unwritten, so that it copies nothing until the workload has written as much.
//! On a drive that has long been in use that flash was used up years ago; [`Population::turn_over`] brings it there.

use rand_core::Rng;
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::files::{FileError, Files, OpenMode};
use crate::units::{Bytes, Utilization};

/// Directory that holds the files of the ageing step, apart from those of the workload.
pub const DIRECTORY: &str = "aged";

/// Smallest and largest file, in KiB: from mail and documents to pictures; sizes are uniform in between.
const FILE_KIB: (u64, u64) = (16, 4096);

/// Bytes per system call of the ageing step: large, since it is not measured.
const WRITE_BYTES: usize = 1 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aged {
    pub files_written: u64,
    pub files_deleted: u64,
    pub used: Bytes,
}

/// Fills the file system, then deletes files at random until at most this much of it is in use.
///
/// # Errors Errors of the file system, except that it is full.
pub async fn age<F: Files>(fs: &F, utilization: Utilization, seed: u64) -> Result<Aged, FileError> {
    age_and_turn_over(fs, utilization, Bytes(0), seed).await
}

/// Ages as [`age`] does, then writes `turned_over` bytes of new files in place of others.
pub async fn age_and_turn_over<F: Files>(
    fs: &F,
    utilization: Utilization,
    turned_over: Bytes,
    seed: u64,
) -> Result<Aged, FileError> {
    let mut files = Population::new(fs, seed).await?;
    files.fill(fs).await?;
    let mut used = files.delete_to(fs, utilization).await?;
    if turned_over > Bytes(0) {
        files.turn_over(fs, utilization, turned_over).await?;
        used = used_and_wanted(fs, Utilization::EMPTY).await?.0;
    }
    Ok(Aged { files_written: files.written, files_deleted: files.deleted, used })
}

/// The files of an aged file system. A clone belongs to a clone of the file system that holds them.
#[derive(Clone, Debug)]
pub struct Population {
    rng: Xoshiro256PlusPlus,
    present: Vec<u64>,
    written: u64,
    written_bytes: u64,
    deleted: u64,
}

impl Population {
    /// Creates the directory of the files. `seed` determines their sizes, and which are deleted.
    pub async fn new<F: Files>(fs: &F, seed: u64) -> Result<Self, FileError> {
        fs.mkdir(DIRECTORY).await?;
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Ok(Self { rng, present: Vec::new(), written: 0, written_bytes: 0, deleted: 0 })
    }

    /// Takes over the files that an earlier population left on the file system, by their numbers.
    pub fn of_existing(mut present: Vec<u64>, seed: u64) -> Self {
        // The order decides which files are deleted.
        present.sort_unstable();
        let written = present.last().map_or(0, |last| last + 1);
        Self { rng: Xoshiro256PlusPlus::seed_from_u64(seed), present, written, written_bytes: 0, deleted: 0 }
    }

    /// Uses `seed` from now on, so that clones of one population diverge.
    pub fn reseed(&mut self, seed: u64) {
        self.rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    }

    /// Creates files until none fits any more. The last one, which did not fit, is removed.
    pub async fn fill<F: Files>(&mut self, fs: &F) -> Result<(), FileError> {
        while self.create(fs).await? {}
        Ok(())
    }

    /// Deletes random files until at most this much of the file system is in use, and makes that durable. Returns the
    /// bytes in use.
    pub async fn delete_to<F: Files>(
        &mut self,
        fs: &F,
        utilization: Utilization,
    ) -> Result<Bytes, FileError> {
        let used = loop {
            let (used, wanted) = used_and_wanted(fs, utilization).await?;
            if used <= wanted || self.present.is_empty() {
                break used;
            }
            self.delete_one(fs).await?;
        };
        fs.sync().await?;
        Ok(used)
    }

    /// Creates files until at least this much of the file system is in use, or none fits any more, and makes that
    /// durable. Returns the bytes in use.
    async fn create_to<F: Files>(&mut self, fs: &F, utilization: Utilization) -> Result<Bytes, FileError> {
        let used = loop {
            let (used, wanted) = used_and_wanted(fs, utilization).await?;
            if used >= wanted || !self.create(fs).await? {
                break used;
            }
        };
        fs.sync().await?;
        Ok(used)
    }

    /// Deletes or creates files until this much of the file system is in use. Returns the bytes in use.
    pub async fn adjust_to<F: Files>(
        &mut self,
        fs: &F,
        utilization: Utilization,
    ) -> Result<Bytes, FileError> {
        let (used, wanted) = used_and_wanted(fs, utilization).await?;
        if used > wanted {
            self.delete_to(fs, utilization).await
        } else {
            self.create_to(fs, utilization).await
        }
    }

    /// Removes random files and creates others at this utilization until `bytes` have been written, and makes that
    /// durable.
    pub async fn turn_over<F: Files>(
        &mut self,
        fs: &F,
        utilization: Utilization,
        bytes: Bytes,
    ) -> Result<(), FileError> {
        let end = self.written_bytes.saturating_add(bytes.0);
        while self.written_bytes < end {
            let (used, wanted) = used_and_wanted(fs, utilization).await?;
            if used >= wanted || !self.create(fs).await? {
                if self.present.is_empty() {
                    break; // nothing may be in use
                }
                self.delete_one(fs).await?;
            }
        }
        fs.sync().await
    }

    async fn delete_one<F: Files>(&mut self, fs: &F) -> Result<(), FileError> {
        let victim = below(&mut self.rng, self.present.len() as u64) as usize;
        fs.unlink(&path_of(self.present.swap_remove(victim))).await?;
        self.deleted += 1;
        Ok(())
    }

    async fn create<F: Files>(&mut self, fs: &F) -> Result<bool, FileError> {
        let kib = FILE_KIB.0 + below(&mut self.rng, FILE_KIB.1 - FILE_KIB.0 + 1);
        let path = path_of(self.written);
        match write_file(fs, &path, kib * 1024).await {
            Ok(()) => {
                self.present.push(self.written);
                self.written += 1;
                self.written_bytes += kib * 1024;
                Ok(true)
            }
            Err(FileError::NoSpace { .. }) => match fs.unlink(&path).await {
                Ok(()) | Err(FileError::NotFound { .. }) => Ok(false),
                Err(other) => Err(other),
            },
            Err(other) => Err(other),
        }
    }
}

async fn used_and_wanted<F: Files>(fs: &F, utilization: Utilization) -> Result<(Bytes, Bytes), FileError> {
    let space = fs.statfs().await?;
    Ok((
        Bytes(space.total.0 - space.free.0.min(space.total.0)),
        Bytes(space.total.0 / 100 * utilization.percent()),
    ))
}

/// Writes `bytes` zeros, in system calls of `call_bytes`, at most [`WRITE_BYTES`].
pub(super) async fn write_zeros<F: Files>(
    fs: &F,
    file: &mut F::File,
    bytes: u64,
    call_bytes: usize,
) -> Result<(), FileError> {
    static ZEROS: [u8; WRITE_BYTES] = [0; WRITE_BYTES];
    let mut left = bytes as usize;
    while left > 0 {
        let now = left.min(call_bytes);
        fs.write(file, &ZEROS[..now]).await?;
        left -= now;
    }
    Ok(())
}

async fn write_file<F: Files>(fs: &F, path: &str, bytes: u64) -> Result<(), FileError> {
    let mut file = fs.open(path, OpenMode::Create).await?;
    write_zeros(fs, &mut file, bytes, WRITE_BYTES).await?;
    fs.close(file).await
}

fn path_of(number: u64) -> String {
    format!("{DIRECTORY}/{number}")
}

/// Returns a number below `n`, without floating point; the bias of one in 2^32 does not matter here.
pub(super) fn below(rng: &mut Xoshiro256PlusPlus, n: u64) -> u64 {
    ((rng.next_u64() >> 32) * n) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{BlockQueue, QueueConfig};
    use crate::engine::Sim;
    use crate::fs::host::HostConfig;
    use crate::fs::layout::FormatOptions;
    use crate::fs::{Ext4, Volume};
    use crate::policy::PolicySpec;
    use crate::ssd::{Ssd, SsdConfig};

    /// A file system of 512 MiB.
    async fn mounted(sim: &Sim) -> Ext4 {
        let config = SsdConfig { capacity_bytes: Bytes::mib(512).0, ..SsdConfig::default() };
        let queue = BlockQueue::new(sim, Ssd::new(&config, 1).unwrap(), QueueConfig::default());
        let volume = Volume::format(&queue, FormatOptions::default()).await.unwrap();
        volume.mount(HostConfig::of_the_2010s(), PolicySpec::OFF.governor()).await
    }

    #[test]
    fn utilization_is_reached_from_above_and_from_below_within_a_file() {
        let sim = Sim::new();
        sim.clone()
            .run(async move {
                let fs = mounted(&sim).await;
                let mut files = Population::new(&fs, 1).await.unwrap();
                files.fill(&fs).await.unwrap();
                let (full, total) = used_and_wanted(&fs, Utilization::FULL).await.unwrap();
                assert!(total.0 - full.0 <= FILE_KIB.1 * 1024, "{full} of {total}");
                let mut before = full;
                for utilization in [60, 40, 70, 60, 0].map(Utilization::of) {
                    let used = files.adjust_to(&fs, utilization).await.unwrap();
                    let wanted = Bytes(total.0 / 100 * utilization.percent());
                    let (least, most) = if wanted < before { (wanted, used) } else { (used, wanted) };
                    assert!(
                        least >= most || most.0 - least.0 <= FILE_KIB.1 * 1024,
                        "{used} at {utilization} %"
                    );
                    assert_eq!(used < before, wanted < before);
                    before = used;
                }
                assert!(files.present.is_empty());
                assert_eq!(files.written, files.deleted);
            })
            .unwrap();
    }

    #[test]
    fn turning_files_over_uses_up_the_spare_flash_and_keeps_the_utilization() {
        let sim = Sim::new();
        sim.clone()
            .run(async move {
                let mut config = SsdConfig { capacity_bytes: Bytes::mib(512).0, ..SsdConfig::default() };
                config.over_provisioning_percent = Some(30.into());
                config.geometry.pages_per_block = 32;
                let queue = BlockQueue::new(&sim, Ssd::new(&config, 1).unwrap(), QueueConfig::default());
                let volume = Volume::format(&queue, FormatOptions::default()).await.unwrap();
                let host = HostConfig { memory: Bytes::mib(64), ..HostConfig::of_the_2010s() };
                let fs = volume.mount(host, PolicySpec::OFF.governor()).await;
                let mut files = Population::new(&fs, 1).await.unwrap();
                files.fill(&fs).await.unwrap();
                let before = files.delete_to(&fs, Utilization::of(60)).await.unwrap();
                let collected = || fs.queue().with_ssd(|ssd| ssd.stats().gc_victims);
                assert_eq!(collected(), 0, "the spare flash is not used up");
                let written = files.written_bytes;
                files.turn_over(&fs, Utilization::of(60), Bytes::mib(600)).await.unwrap();
                let turned_over = files.written_bytes - written;
                assert!((Bytes::mib(600).0..Bytes::mib(605).0).contains(&turned_over), "{turned_over}");
                let (after, _) = used_and_wanted(&fs, Utilization::of(60)).await.unwrap();
                assert!(after.0.abs_diff(before.0) <= 2 * FILE_KIB.1 * 1024, "{before} then {after}");
                assert!(collected() > 0);
                // Where everything is full, or nothing may be in use, it ends.
                for utilization in [Utilization::FULL, Utilization::EMPTY] {
                    files.turn_over(&fs, utilization, Bytes::mib(20)).await.unwrap();
                }
                assert!(files.present.is_empty());
            })
            .unwrap();
    }

    #[test]
    fn a_clone_goes_on_with_a_restored_image_as_the_original_does() {
        let sim = Sim::new();
        let (image, files) = sim
            .clone()
            .run(async move {
                let fs = mounted(&sim).await;
                let mut files = Population::new(&fs, 1).await.unwrap();
                files.fill(&fs).await.unwrap();
                (fs.unmount().await.image(), files)
            })
            .unwrap();
        let go_on = |seed| {
            let (sim, image, mut files) = (Sim::new(), image.clone(), files.clone());
            files.reseed(seed);
            sim.clone()
                .run(async move {
                    let volume = image.restore(&sim, QueueConfig::default()).await;
                    let fs = volume.mount(HostConfig::of_the_2010s(), PolicySpec::COMMIT.governor()).await;
                    files.delete_to(&fs, Utilization::of(50)).await.unwrap();
                    fs.drain_discards().await;
                    fs.audit().unwrap();
                    assert_eq!(fs.stale_units(), 0);
                    let volume = fs.unmount().await;
                    let valid = volume.queue().with_ssd(|ssd| {
                        ssd.audit().unwrap();
                        ssd.mapped_units()
                    });
                    // A new file system without TRIM leaves the drive as full as it was.
                    let options = FormatOptions { discard: false, ..FormatOptions::default() };
                    let volume = Volume::format(volume.queue(), options).await.unwrap();
                    let again = volume.queue().with_ssd(Ssd::mapped_units);
                    assert!(again >= valid && again - valid < valid / 10, "{valid} then {again}");
                    (files.present, sim.now())
                })
                .unwrap()
        };
        assert!(image.ssd().mapped_units() * 100 > image.ssd().capacity_units() * 95);
        assert_eq!(go_on(2), go_on(2));
        assert_ne!(go_on(2).0, go_on(3).0);
    }
}
