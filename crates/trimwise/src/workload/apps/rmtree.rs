//! A tree of files that was on the disk before is removed, as `rm -r` does it, and the removal made durable.
//!
//! The tree is made before the run. Unless it stays cached, the caches are dropped then (on a real host with
//! `drop_caches`, which needs root), so that a removal must read names, inodes, extents and bitmaps from the drive: they
//! wait there for the TRIMs of what was removed before. The run ends when the removal is durable.
//!
//! Sizes of files are those of `unpack`.

use super::parameters::{Parameter, parameters};
use super::unpack::size;
use super::{Place, Workload};
use crate::files::{FileError, Files};
use crate::units::Bytes;

pub const ABOUT: &str = "A tree of files that was on the disk before is removed, as with rm -r.";

parameters! {
    pub struct Parameters {
        directories: count(100, 1, 100_000, "directories of the tree", "assumed").scaled(),
        files: count(50, 1, 100_000, "files of a directory", "assumed"),
        cached: count(0, 0, 1, "1: names and inodes are in memory", "-"),
    }
}

impl Workload for Parameters {
    fn operations(&self) -> u64 {
        self.directories
    }

    fn needed(&self) -> Bytes {
        Bytes(self.directories * self.files * Bytes::kib(80).0 + Bytes::mib(32).0)
    }

    fn reads(&self) -> bool {
        false
    }
}

fn directory<F: Files>(at: &Place<'_, F, Parameters>, number: u64) -> String {
    at.path(&format!("tree/d{number}"))
}

pub(super) async fn prepare<F: Files>(at: &Place<'_, F, Parameters>) -> Result<(), FileError> {
    let (stage, p) = (at.stage, at.parameters);
    stage.mkdir(&at.path("tree")).await?;
    for number in 0..p.directories {
        let directory = directory(at, number);
        stage.mkdir(&directory).await?;
        for file in 0..p.files {
            let file = stage.create(&format!("{directory}/file{file}"), size(stage)).await?;
            stage.close(file).await?;
        }
    }
    if p.cached == 1 { stage.sync().await } else { stage.drop_caches().await }
}

pub async fn run<F: Files>(at: &Place<'_, F, Parameters>) -> Result<(), FileError> {
    let (stage, p) = (at.stage, at.parameters);
    for number in 0..p.directories {
        stage.operation().await;
        let directory = directory(at, number);
        for file in 0..p.files {
            stage.unlink(&format!("{directory}/file{file}")).await?;
        }
        stage.rmdir(&directory).await?;
    }
    stage.rmdir(&at.path("tree")).await?;
    stage.sync().await
}
