//! Images of virtual machines: random writes inside, flushes by the guests, images removed and made again.
//!
//! Raw images are written whole, as copies of a template. Guests then write in them: small blocks at random places,
//! most of them in the part that a guest uses most, and runs of larger ones. Each guest flushes now and then, which the
//! host turns into fdatasync (`cache=writeback`). At intervals counted in writes, a machine is thrown away: its image is removed,
//! and a new one is copied.

use super::parameters::{Parameter, parameters};
use super::{Place, Workload};
use crate::files::{FileError, Files, OpenMode};
use crate::units::Bytes;

pub const ABOUT: &str =
    "Virtual machine images: random writes and flushes inside them, images removed and copied again.";

parameters! {
    pub struct Parameters {
        images: count(6, 1, 1_000, "images at a time", "assumed"),
        image: size(Bytes::mib(128), Bytes::mib(1), Bytes::gib(1024), "size of an image", "assumed").scaled(),
        writes: count(60_000, 1, 1_000_000_000, "writes of all guests", "assumed").scaled(),
        flush: count(64, 1, 1_000_000, "writes of a guest between two flushes", "assumed"),
        life: count(10_000, 1, 1_000_000_000, "writes between two removals of an image", "assumed").shrinks(),
        hot: percent(80, "writes that go to the first fifth of an image", "assumed"),
    }
}

/// Bytes of most writes: a guest's page.
const SMALL: u64 = 4 << 10;
const LARGE: u64 = 64 << 10;
const LARGE_PERCENT: u64 = 20;

impl Workload for Parameters {
    fn operations(&self) -> u64 {
        self.writes
    }

    fn needed(&self) -> Bytes {
        Bytes(self.image.0 * (self.images + 1))
    }

    fn reads(&self) -> bool {
        false
    }
}

pub async fn run<F: Files>(at: &Place<'_, F, Parameters>) -> Result<(), FileError> {
    let (stage, p) = (at.stage, at.parameters);
    let image = |number: u64| at.path(&format!("{number}.img"));
    let mut images = Vec::new();
    let mut last = 0;
    for _ in 0..p.images {
        last += 1;
        images.push((last, make(at, &image(last)).await?, 0));
    }
    let (count, blocks) = (images.len() as u64, p.image.0 / LARGE);
    for write in 1..=p.writes {
        stage.operation().await;
        let chosen = stage.below(count) as usize;
        let (number, file, unflushed) = &mut images[chosen];
        let range = if stage.happens(p.hot) { blocks.div_ceil(5) } else { blocks };
        let offset = stage.below(range) * LARGE;
        if stage.happens(LARGE_PERCENT) {
            stage.pwrite(file, offset, LARGE).await?;
        } else {
            stage.pwrite(file, offset + stage.below(LARGE / SMALL) * SMALL, SMALL).await?;
        }
        *unflushed += 1;
        if *unflushed == p.flush {
            stage.fdatasync(file).await?;
            *unflushed = 0;
        }
        if write % p.life == 0 {
            let old = image(*number);
            last += 1;
            let new = make(at, &image(last)).await?;
            stage.close(std::mem::replace(file, new)).await?;
            (*number, *unflushed) = (last, 0);
            stage.unlink(&old).await?;
        }
    }
    for (_, file, _) in images {
        stage.close(file).await?;
    }
    Ok(())
}

async fn make<F: Files>(at: &Place<'_, F, Parameters>, path: &str) -> Result<F::File, FileError> {
    let mut file = at.stage.create(path, at.parameters.image.0).await?;
    at.stage.fsync(&mut file).await?;
    at.stage.close(file).await?;
    at.stage.open(path, OpenMode::CreateKeep).await
}
