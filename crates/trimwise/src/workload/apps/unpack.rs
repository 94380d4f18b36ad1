//! Packages upgraded and container layers unpacked and removed: trees of small files that come and go.
//!
//! Packages are installed once; then each upgrade replaces the files of a package as dpkg does: every file is written
//! under another name (`.dpkg-new`), made durable and renamed over the old one, whose blocks become free. Container
//! layers are unpacked without that (a registry can supply them again); the oldest layer is removed when there are too
//! many.
//!
//! Sizes of files are drawn from a table (assumed: most files of a distribution are below 16 KiB, a few libraries and
//! programs have most of the bytes).

use std::collections::VecDeque;

use super::parameters::{Parameter, parameters};
use super::{Place, Stage, Workload};
use crate::files::{FileError, Files};
use crate::units::Bytes;

pub const ABOUT: &str =
    "Packages upgraded in place (write, fsync, rename) and container layers unpacked and removed.";

parameters! {
    pub struct Parameters {
        packages: count(40, 1, 100_000, "installed packages", "assumed").scaled(),
        files: count(60, 1, 100_000, "files of a package", "assumed"),
        upgrades: count(120, 0, 10_000_000, "packages upgraded", "assumed").scaled(),
        layers: count(60, 0, 1_000_000, "container layers unpacked", "assumed").scaled(),
        kept: count(8, 1, 10_000, "layers at a time", "assumed").scaled(),
        members: count(600, 1, 1_000_000, "files of a layer", "assumed"),
    }
}

/// Sizes of files: KiB from and up to, and their share in per mille.
const SIZES: [(u64, u64, u64); 5] =
    [(1, 4, 500), (4, 16, 300), (16, 128, 150), (128, 1024, 45), (1024, 8192, 5)];
const FILES_A_DIRECTORY: u64 = 50;

impl Workload for Parameters {
    fn operations(&self) -> u64 {
        self.upgrades + self.layers
    }

    /// Returns the space for packages and layers. The mean size of the table above is 65 KiB.
    fn needed(&self) -> Bytes {
        let files = self.packages * self.files + (self.kept + 1) * self.members;
        Bytes(files * Bytes::kib(80).0 + Bytes::mib(32).0)
    }

    fn reads(&self) -> bool {
        false
    }
}

pub async fn run<F: Files>(at: &Place<'_, F, Parameters>) -> Result<(), FileError> {
    let (stage, p) = (at.stage, at.parameters);
    let (packages, upgrades, layers) = (p.packages, p.upgrades, p.layers);
    for package in 0..packages {
        stage.mkdir(&at.path(&format!("package{package}"))).await?;
        unpack_package(at, package).await?;
    }
    let mut kept = VecDeque::new();
    // Upgrades and layers take turns, in proportion.
    let (mut upgraded, mut unpacked) = (0, 0);
    while upgraded < upgrades || unpacked < layers {
        stage.operation().await;
        if unpacked * upgrades.max(1) >= upgraded * layers.max(1) && upgraded < upgrades || unpacked == layers
        {
            unpack_package(at, stage.below(packages)).await?;
            upgraded += 1;
            continue;
        }
        kept.push_back(unpack_layer(at, unpacked).await?);
        unpacked += 1;
        if kept.len() as u64 > p.kept
            && let Some(tree) = kept.pop_front()
        {
            remove(at, tree).await?;
        }
    }
    Ok(())
}

async fn unpack_package<F: Files>(at: &Place<'_, F, Parameters>, package: u64) -> Result<(), FileError> {
    for number in 0..at.parameters.files {
        let path = at.path(&format!("package{package}/file{number}"));
        let new = format!("{path}.dpkg-new");
        let mut file = at.stage.create(&new, size(at.stage)).await?;
        at.stage.fsync(&mut file).await?;
        at.stage.close(file).await?;
        at.stage.rename(&new, &path).await?;
    }
    Ok(())
}

type Tree = (Vec<String>, Vec<String>);

async fn unpack_layer<F: Files>(at: &Place<'_, F, Parameters>, layer: u64) -> Result<Tree, FileError> {
    let root = at.path(&format!("layer{layer}"));
    let (mut directories, mut files) = (vec![root.clone()], Vec::new());
    at.stage.mkdir(&root).await?;
    for number in 0..at.parameters.members {
        if number % FILES_A_DIRECTORY == 0 {
            let directory = format!("{root}/d{}", number / FILES_A_DIRECTORY);
            at.stage.mkdir(&directory).await?;
            directories.push(directory);
        }
        let path = format!("{root}/d{}/file{number}", number / FILES_A_DIRECTORY);
        let file = at.stage.create(&path, size(at.stage)).await?;
        at.stage.close(file).await?;
        files.push(path);
    }
    Ok((directories, files))
}

async fn remove<F: Files>(
    at: &Place<'_, F, Parameters>,
    (directories, files): Tree,
) -> Result<(), FileError> {
    for path in files {
        at.stage.unlink(&path).await?;
    }
    for path in directories.iter().rev() {
        at.stage.rmdir(path).await?;
    }
    Ok(())
}

pub(super) fn size<F: Files>(stage: &Stage<'_, F>) -> u64 {
    let mut share = stage.below(1000);
    for (from, to, per_mille) in SIZES {
        if share < per_mille {
            return (from << 10) + stage.below((to - from) << 10);
        }
        share -= per_mille;
    }
    4 << 10
}
