//! A desktop: a browser's cache, SQLite databases, small settings files, and now and then an update.
//!
//! Each step is one of these, in the given shares:
//!
//! - a cache entry is written as a file of its own (Chromium's simple cache); when the cache is full, the oldest
//!   entries go until a tenth is free;
//! - a transaction of an SQLite database in its default mode (`journal_mode=DELETE`, `synchronous=FULL`): the rollback
//!   journal is created, written and synced, pages are changed in place and synced, and the journal is removed;
//! - a settings file is replaced: written under another name, synced and renamed (GLib's `g_file_set_contents`);
//! - an update: a package is downloaded, unpacked over the old files and removed.

use std::collections::VecDeque;

use super::parameters::{Parameter, parameters};
use super::{Place, Workload};
use crate::files::{FileError, Files, OpenMode};
use crate::units::{Bytes, SimDuration};

pub const ABOUT: &str =
    "A desktop: a browser's cache, SQLite transactions, settings files replaced, and updates.";

parameters! {
    pub struct Parameters {
        steps: count(20_000, 1, 1_000_000_000, "steps", "assumed").scaled(),
        cache: size(
            Bytes::mib(320),
            Bytes::mib(1),
            Bytes::gib(64),
            "size of the browser's cache",
            "Chromium: up to 320 MiB (net/disk_cache)",
        ).shrinks(),
        caching: percent(70, "steps that write a cache entry", "assumed"),
        sqlite: percent(20, "steps that are a transaction of SQLite", "assumed"),
        settings: percent(9, "steps that replace a settings file; the others are updates", "assumed"),
        update: size(Bytes::mib(8), Bytes::kib(64), Bytes::gib(4), "size of an update", "assumed"),
        pause: millis(0, 0, 60_000, "milliseconds between two steps", "assumed"),
    }
}

const DATABASES: u64 = 6;
const DATABASE: u64 = 4 << 20;
const PAGE: u64 = 4096;
const PAGES_CHANGED_MAX: u64 = 8;
/// Bytes of the journal's header, and of the data around each page in it.
const JOURNAL_HEADER: u64 = 512;
const JOURNAL_RECORD: u64 = PAGE + 8;
const SETTINGS: u64 = 40;
const PARTS: u64 = 16;

impl Workload for Parameters {
    fn operations(&self) -> u64 {
        self.steps
    }

    fn pauses(&self) -> bool {
        self.pause > SimDuration::ZERO
    }

    fn day(&self) -> &'static str {
        "office"
    }

    fn needed(&self) -> Bytes {
        Bytes(self.cache.0 + 3 * self.update.0 + DATABASES * DATABASE + Bytes::mib(32).0)
    }
}

pub async fn run<F: Files>(at: &Place<'_, F, Parameters>) -> Result<(), FileError> {
    let (stage, p) = (at.stage, at.parameters);
    for directory in ["cache", "profile", "settings", "system"] {
        stage.mkdir(&at.path(directory)).await?;
    }
    for number in 0..DATABASES {
        let file = stage.create(&at.path(&format!("profile/{number}.sqlite")), DATABASE).await?;
        stage.close(file).await?;
    }
    let (mut cached, mut in_cache): (VecDeque<(String, u64)>, u64) = Default::default();
    for step in 0..p.steps {
        stage.operation().await;
        let share = stage.below(100);
        if share < p.caching {
            // An entry has a header; most are small scripts and pictures, a few are media.
            let kib = if stage.happens(5) { 256 + stage.below(2048) } else { 1 + stage.below(96) };
            let bytes = (kib << 10).min(p.cache.0 / 8);
            let path = at.path(&format!("cache/{step:08x}_0"));
            let file = stage.create(&path, bytes).await?;
            stage.close(file).await?;
            cached.push_back((path, bytes));
            in_cache += bytes;
            if in_cache > p.cache.0 {
                while in_cache > p.cache.0 / 10 * 9 {
                    let Some((path, bytes)) = cached.pop_front() else { break };
                    stage.unlink(&path).await?;
                    in_cache -= bytes;
                }
            }
        } else if share < p.caching + p.sqlite {
            transaction(at, stage.below(DATABASES)).await?;
        } else if share < p.caching + p.sqlite + p.settings {
            let path = at.path(&format!("settings/{}.conf", stage.below(SETTINGS)));
            replace(at, &path, 1024 + stage.below(7 << 10)).await?;
        } else {
            update(at).await?;
        }
        if p.pause > SimDuration::ZERO {
            stage.sleep(p.pause).await;
        }
    }
    Ok(())
}

async fn transaction<F: Files>(at: &Place<'_, F, Parameters>, number: u64) -> Result<(), FileError> {
    let stage = at.stage;
    let database = at.path(&format!("profile/{number}.sqlite"));
    let journal = format!("{database}-journal");
    let pages: Vec<u64> =
        (0..1 + stage.below(PAGES_CHANGED_MAX)).map(|_| stage.below(DATABASE / PAGE)).collect();
    let mut undo = stage.create(&journal, 0).await?;
    stage.pwrite(&mut undo, 0, JOURNAL_HEADER).await?;
    let mut file = stage.open(&database, OpenMode::CreateKeep).await?;
    for (i, page) in pages.iter().enumerate() {
        stage.pread(&mut file, page * PAGE, PAGE).await?;
        stage.pwrite(&mut undo, JOURNAL_HEADER + i as u64 * JOURNAL_RECORD, JOURNAL_RECORD).await?;
    }
    // The number of records goes into the header once they are durable.
    stage.fdatasync(&mut undo).await?;
    stage.pwrite(&mut undo, 0, JOURNAL_HEADER).await?;
    stage.fdatasync(&mut undo).await?;
    for page in pages {
        stage.pwrite(&mut file, page * PAGE, PAGE).await?;
    }
    stage.fdatasync(&mut file).await?;
    stage.close(file).await?;
    stage.close(undo).await?;
    stage.unlink(&journal).await
}

async fn replace<F: Files>(at: &Place<'_, F, Parameters>, path: &str, bytes: u64) -> Result<(), FileError> {
    let new = format!("{path}.new");
    let mut file = at.stage.create(&new, bytes).await?;
    at.stage.fsync(&mut file).await?;
    at.stage.close(file).await?;
    at.stage.rename(&new, path).await
}

async fn update<F: Files>(at: &Place<'_, F, Parameters>) -> Result<(), FileError> {
    let (stage, bytes) = (at.stage, at.parameters.update.0);
    let archive = at.path("system/package.deb");
    let mut file = stage.create(&archive, bytes / 3).await?;
    stage.fsync(&mut file).await?;
    stage.close(file).await?;
    stage.read_whole(&archive, 128 << 10).await?;
    for part in 0..PARTS {
        replace(at, &at.path(&format!("system/part{part}")), bytes / PARTS).await?;
    }
    stage.unlink(&archive).await
}
