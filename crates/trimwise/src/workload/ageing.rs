//! Ageing: a file system that has been full once and was then emptied to a wanted utilization.
//!
//! Files of mixed sizes fill it to the brim, then files chosen at random are deleted until the wanted
//! share is in use. What that leaves behind in the device depends on the policy under which it happens,
//! and that is the point: without TRIM the deleted files' blocks stay valid there.

use rand_core::Rng;
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::files::{FileError, Files, OpenMode};
use crate::units::Bytes;

/// Directory that holds the files of the ageing step, apart from those of the workload.
pub const DIRECTORY: &str = "aged";

/// Smallest and largest file, in KiB: mail and documents to pictures; their sizes are uniform between.
const FILE_KIB: (u64, u64) = (16, 4096);

/// The files that stayed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aged {
    /// Files written in all.
    pub files_written: u64,
    /// Files deleted again.
    pub files_deleted: u64,
    /// Bytes in use at the end.
    pub used: Bytes,
}

/// Fills the file system, then deletes files at random until at most `utilization_percent` of it is in use.
///
/// # Errors
///
/// What the file system answers, except that it is full.
pub async fn age<F: Files>(fs: &F, utilization_percent: u64, seed: u64) -> Result<Aged, FileError> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let buffer = vec![0u8; 1 << 20];
    let mut aged = Aged::default();
    let mut present: Vec<u64> = Vec::new();
    fs.mkdir(DIRECTORY).await?;
    loop {
        let kib = FILE_KIB.0 + below(&mut rng, FILE_KIB.1 - FILE_KIB.0 + 1);
        let number = aged.files_written;
        let path = path_of(number);
        match write_file(fs, &path, kib * 1024, &buffer).await {
            Ok(()) => {
                aged.files_written += 1;
                present.push(number);
            }
            Err(FileError::NoSpace { .. }) => break,
            Err(other) => return Err(other),
        }
    }
    let space = fs.statfs().await?;
    let wanted = Bytes(space.total.0 / 100 * utilization_percent.min(100));
    // The file that did not fit was cut short; it goes first.
    fs.unlink(&path_of(aged.files_written)).await.or_else(|e| match e {
        FileError::NotFound { .. } => Ok(()),
        other => Err(other),
    })?;
    loop {
        let space = fs.statfs().await?;
        aged.used = Bytes(space.total.0 - space.free.0.min(space.total.0));
        if aged.used <= wanted || present.is_empty() {
            break;
        }
        let victim = present.swap_remove(below(&mut rng, present.len() as u64) as usize);
        fs.unlink(&path_of(victim)).await?;
        aged.files_deleted += 1;
    }
    fs.sync().await?;
    Ok(aged)
}

async fn write_file<F: Files>(fs: &F, path: &str, bytes: u64, buffer: &[u8]) -> Result<(), FileError> {
    let mut file = fs.open(path, OpenMode::Create).await?;
    let mut left = bytes as usize;
    while left > 0 {
        let n = left.min(buffer.len());
        fs.write(&mut file, &buffer[..n]).await?;
        left -= n;
    }
    fs.close(file).await
}

fn path_of(number: u64) -> String {
    format!("{DIRECTORY}/{number}")
}

/// A number below `n`, without floating point; the bias of one in 2^32 does not matter here.
fn below(rng: &mut Xoshiro256PlusPlus, n: u64) -> u64 {
    ((rng.next_u64() >> 32) * n) >> 32
}
