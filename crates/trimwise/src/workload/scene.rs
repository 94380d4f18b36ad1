//! Workloads that PostMark cannot express: a mail spool that makes each mail durable, a database with its log, trees
//! that are unpacked and deleted.
//!
//! Each scene depends on its seed alone: it makes the same calls in the same order on the model and on a real file
//! system.

use std::fmt;
use std::str::FromStr;

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::ageing::{below, write_zeros};
use crate::files::{FileError, Files, OpenMode};
use crate::units::SimDuration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// Creates mails of 1 to 32 KiB, each durable before the next; older ones are read and removed at random.
    Spool,
    /// Overwrites random pages of 16 KiB in a file of 192 MiB, after a durable record in a log; the oldest of four log
    /// files of 16 MiB is removed when the newest is full.
    Database,
    /// Unpacks trees of 20 directories with 25 files of 1 to 64 KiB each, and deletes the oldest of four.
    Trees,
}

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("'{0}' is not a scene; expected spool, database or trees")]
pub struct SceneError(String);

impl FromStr for Scene {
    type Err = SceneError;

    fn from_str(text: &str) -> Result<Self, SceneError> {
        [Self::Spool, Self::Database, Self::Trees]
            .into_iter()
            .find(|scene| scene.to_string() == text)
            .ok_or_else(|| SceneError(text.to_owned()))
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Spool => "spool",
            Self::Database => "database",
            Self::Trees => "trees",
        })
    }
}

struct Draw(Xoshiro256PlusPlus);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        below(&mut self.0, n)
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

async fn write_file<F: Files>(fs: &F, path: &str, bytes: u64, is_durable: bool) -> Result<(), FileError> {
    const PIECE: usize = 64 << 10;
    let mut file = fs.open(path, OpenMode::Create).await?;
    write_zeros(fs, &mut file, bytes, PIECE).await?;
    if is_durable {
        fs.fsync(&mut file).await?;
    }
    fs.close(file).await
}

impl Scene {
    pub async fn run<F: Files>(self, fs: &F, seed: u64) -> Result<SimDuration, FileError> {
        let draw = Draw(Xoshiro256PlusPlus::seed_from_u64(seed));
        let begin = fs.now();
        match self {
            Self::Spool => spool(fs, draw).await?,
            Self::Database => database(fs, draw).await?,
            Self::Trees => trees(fs, draw).await?,
        }
        Ok(fs.now().since(begin))
    }
}

async fn spool<F: Files>(fs: &F, mut draw: Draw) -> Result<(), FileError> {
    const KEPT: usize = 3_000;
    fs.mkdir("spool").await?;
    let mut present: Vec<u64> = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    for number in 0..9_000u64 {
        write_file(fs, &format!("spool/{number}"), draw.between(KIB, 32 * KIB), true).await?;
        present.push(number);
        if number % 4 == 0 {
            let read = present[draw.below(present.len() as u64) as usize];
            let mut file = fs.open(&format!("spool/{read}"), OpenMode::Read).await?;
            while fs.read(&mut file, &mut buffer).await? > 0 {}
            fs.close(file).await?;
        }
        if present.len() > KEPT {
            let removed = present.swap_remove(draw.below(present.len() as u64) as usize);
            fs.unlink(&format!("spool/{removed}")).await?;
        }
    }
    Ok(())
}

async fn database<F: Files>(fs: &F, mut draw: Draw) -> Result<(), FileError> {
    const PAGE: u64 = 16 * KIB;
    const TABLE: u64 = 192 * MIB;
    const LOG: u64 = 16 * MIB;
    const LOGS: u64 = 4;
    let page = vec![0; PAGE as usize];
    write_file(fs, "table", TABLE, true).await?;
    let mut table = fs.open("table", OpenMode::CreateKeep).await?;
    let (mut number, mut logged) = (0u64, 0u64);
    let mut log = fs.open("log.0", OpenMode::Create).await?;
    for _ in 0..8_000 {
        // The log is durable before the page is written; pages are synced in their own time, as by a checkpoint.
        fs.write(&mut log, &page[..draw.between(4, 16) as usize * KIB as usize]).await?;
        fs.fsync(&mut log).await?;
        logged += PAGE;
        fs.seek(&mut table, draw.below(TABLE / PAGE) * PAGE).await?;
        fs.write(&mut table, &page).await?;
        if draw.below(8) == 0 {
            fs.fsync(&mut table).await?;
        }
        if logged >= LOG {
            fs.close(log).await?;
            number += 1;
            log = fs.open(&format!("log.{number}"), OpenMode::Create).await?;
            logged = 0;
            if number >= LOGS {
                fs.unlink(&format!("log.{}", number - LOGS)).await?;
            }
        }
    }
    fs.close(log).await?;
    fs.close(table).await
}

async fn trees<F: Files>(fs: &F, mut draw: Draw) -> Result<(), FileError> {
    const DIRECTORIES: u64 = 20;
    const FILES: u64 = 25;
    const KEPT: u64 = 4;
    for tree in 0..40u64 {
        fs.mkdir(&format!("tree{tree}")).await?;
        for directory in 0..DIRECTORIES {
            fs.mkdir(&format!("tree{tree}/{directory}")).await?;
            for file in 0..FILES {
                let path = format!("tree{tree}/{directory}/{file}");
                write_file(fs, &path, draw.between(KIB, 64 * KIB), false).await?;
            }
        }
        if let Some(oldest) = tree.checked_sub(KEPT) {
            for directory in 0..DIRECTORIES {
                for file in 0..FILES {
                    fs.unlink(&format!("tree{oldest}/{directory}/{file}")).await?;
                }
                fs.rmdir(&format!("tree{oldest}/{directory}")).await?;
            }
            fs.rmdir(&format!("tree{oldest}")).await?;
        }
    }
    fs.sync().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scene_prints_as_it_was_parsed() {
        for name in ["spool", "database", "trees"] {
            assert_eq!(name.parse::<Scene>().unwrap().to_string(), name);
        }
        assert!("mail".parse::<Scene>().unwrap_err().to_string().contains("'mail'"));
    }
}
