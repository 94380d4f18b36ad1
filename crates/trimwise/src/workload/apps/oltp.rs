//! A database with a write-ahead log, as in PostgreSQL: pages updated in place, checkpoints, log segments recycled.
//!
//! A transaction (as in pgbench's TPC-B) reads and changes a random page of the accounts and one of a few hot pages,
//! writes its log records and makes them durable. The first change of a page after a checkpoint puts the whole page
//! into the log (`full_page_writes`). When a checkpoint is due, all changed pages are written in place and made
//! durable; log segments that are no longer needed are renamed for later use, and those beyond the minimum are removed.
//! At intervals counted in transactions, a query sorts on disk: its temporary files are written, read and removed. At
//! intervals counted in checkpoints, a table is rewritten whole, as by `VACUUM FULL` or an index build, and the old one
//! removed.

use std::collections::{BTreeSet, VecDeque};

use super::parameters::{Parameter, parameters};
use super::{Place, Workload};
use crate::files::{FileError, Files, OpenMode};
use crate::units::Bytes;

pub const ABOUT: &str = "A database like PostgreSQL: pages updated in place, a write-ahead log, checkpoints, recycled \
                         log segments, temporary files and rewritten tables.";

parameters! {
    pub struct Parameters {
        transactions: count(40_000, 1, 1_000_000_000, "transactions", "assumed").scaled(),
        data: size(Bytes::mib(384), Bytes::mib(1), Bytes::gib(1024), "size of the table", "assumed").scaled(),
        record: size(
            Bytes(500),
            Bytes(1),
            Bytes::kib(64),
            "log records of a transaction, besides whole pages",
            "assumed",
        ),
        segment: size(
            Bytes::mib(16),
            Bytes::kib(64),
            Bytes::gib(1),
            "size of a log segment",
            "PostgreSQL: wal_segment_size",
        ).shrinks(),
        checkpoint: size(
            Bytes::mib(32),
            Bytes::kib(64),
            Bytes::gib(64),
            "log between two checkpoints",
            "PostgreSQL: max_wal_size is 1 GiB; less here, so that there are several",
        ).shrinks(),
        keep: size(
            Bytes::mib(32),
            Bytes(0),
            Bytes::gib(64),
            "log segments kept for later use",
            "PostgreSQL: min_wal_size is 80 MB; less here, as checkpoints come sooner",
        ).shrinks(),
        sort: count(2_000, 1, 1_000_000_000, "transactions between two sorts on disk", "assumed").shrinks(),
        sorted: size(
            Bytes::mib(32),
            Bytes::kib(64),
            Bytes::gib(64),
            "temporary files of a sort",
            "assumed; PostgreSQL sorts on disk what exceeds work_mem, 4 MB",
        ).shrinks(),
        rewrite: count(3, 1, 1_000_000, "checkpoints between two rewrites of the table", "assumed"),
    }
}

/// Bytes of a page (PostgreSQL: `BLCKSZ`).
const PAGE: u64 = 8192;
/// Number of pages that every transaction can change (pgbench: branches and tellers).
const HOT: u64 = 8;
/// Bytes read and written at a time when a table is copied or sorted.
const PIECE: u64 = 256 << 10;

impl Workload for Parameters {
    fn operations(&self) -> u64 {
        self.transactions
    }

    /// Returns the space for two copies of the table while it is rewritten, the log, and a sort.
    fn needed(&self) -> Bytes {
        let log = self.checkpoint.0 * 2 + self.keep.0 + self.segment.0;
        Bytes(2 * self.data.0 + log + self.sorted.0)
    }
}

pub async fn run<F: Files>(at: &Place<'_, F, Parameters>) -> Result<(), FileError> {
    let p = at.parameters;
    let table_number = 1;
    let table = at.stage.create(&at.path("table.1"), p.data.0).await?;
    let table = durable(at, table, "table.1").await?;
    let log = at.stage.create(&at.path("wal.00000001"), 0).await?;
    let mut database = Database {
        at,
        p,
        table,
        table_number,
        log,
        segment: 1,
        log_bytes: 0,
        since_checkpoint: 0,
        old_segments: VecDeque::new(),
        ready_segments: VecDeque::new(),
        changed: BTreeSet::new(),
        checkpoints: 0,
    };
    for transaction in 1..=p.transactions {
        database.transaction().await?;
        if transaction % p.sort == 0 {
            database.sort().await?;
        }
    }
    at.stage.close(database.table).await?;
    at.stage.close(database.log).await
}

async fn durable<F: Files>(
    at: &Place<'_, F, Parameters>,
    mut file: F::File,
    name: &str,
) -> Result<F::File, FileError> {
    at.stage.fsync(&mut file).await?;
    at.stage.close(file).await?;
    at.stage.open(&at.path(name), OpenMode::CreateKeep).await
}

struct Database<'a, F: Files> {
    at: &'a Place<'a, F, Parameters>,
    p: &'a Parameters,
    table: F::File,
    table_number: u64,
    log: F::File,
    segment: u64,
    log_bytes: u64,
    since_checkpoint: u64,
    old_segments: VecDeque<u64>,
    ready_segments: VecDeque<u64>,
    changed: BTreeSet<u64>,
    checkpoints: u64,
}

impl<F: Files> Database<'_, F> {
    fn wal(&self, segment: u64) -> String {
        self.at.path(&format!("wal.{segment:08}"))
    }

    async fn transaction(&mut self) -> Result<(), FileError> {
        let stage = self.at.stage;
        stage.operation().await;
        let pages = (self.p.data.0 / PAGE).max(1);
        let chosen = [stage.below(pages), stage.below(HOT.min(pages))];
        let mut bytes = self.p.record.0;
        for page in chosen {
            if self.changed.insert(page) {
                stage.pread(&mut self.table, page * PAGE, PAGE).await?;
                bytes += PAGE;
            }
        }
        stage.pwrite(&mut self.log, self.log_bytes, bytes).await?;
        stage.fdatasync(&mut self.log).await?;
        self.log_bytes += bytes;
        self.since_checkpoint += bytes;
        if self.log_bytes >= self.p.segment.0 {
            self.next_segment().await?;
        }
        if self.since_checkpoint >= self.p.checkpoint.0 {
            self.checkpoint().await?;
        }
        Ok(())
    }

    async fn next_segment(&mut self) -> Result<(), FileError> {
        let stage = self.at.stage;
        self.old_segments.push_back(self.segment);
        self.segment += 1;
        let path = self.wal(self.segment);
        let log = if self.ready_segments.pop_front().is_some() {
            stage.open(&path, OpenMode::CreateKeep).await?
        } else {
            // A new segment is filled with zeros (`wal_init_zero`), so that commits never change its length.
            let mut log = stage.create(&path, self.p.segment.0).await?;
            stage.fsync(&mut log).await?;
            log
        };
        stage.close(std::mem::replace(&mut self.log, log)).await?;
        self.log_bytes = 0;
        Ok(())
    }

    async fn checkpoint(&mut self) -> Result<(), FileError> {
        let stage = self.at.stage;
        for page in std::mem::take(&mut self.changed) {
            stage.pwrite(&mut self.table, page * PAGE, PAGE).await?;
        }
        stage.fsync(&mut self.table).await?;
        self.since_checkpoint = 0;
        let kept = self.p.keep.0 / self.p.segment.0;
        while let Some(old) = self.old_segments.pop_front() {
            if (self.ready_segments.len() as u64) < kept {
                let next = self.segment + 1 + self.ready_segments.len() as u64;
                stage.rename(&self.wal(old), &self.wal(next)).await?;
                self.ready_segments.push_back(next);
            } else {
                stage.unlink(&self.wal(old)).await?;
            }
        }
        self.checkpoints += 1;
        if self.checkpoints.is_multiple_of(self.p.rewrite) {
            self.rewrite().await?;
        }
        Ok(())
    }

    async fn rewrite(&mut self) -> Result<(), FileError> {
        let stage = self.at.stage;
        let old = self.at.path(&format!("table.{}", self.table_number));
        self.table_number += 1;
        let new = self.at.path(&format!("table.{}", self.table_number));
        let mut copy = stage.create(&new, 0).await?;
        let (mut from, bytes) = (0, self.p.data.0);
        while from < bytes {
            let piece = PIECE.min(bytes - from);
            stage.pread(&mut self.table, from, piece).await?;
            stage.write(&mut copy, piece).await?;
            from += piece;
        }
        let copy = durable(self.at, copy, &format!("table.{}", self.table_number)).await?;
        stage.close(std::mem::replace(&mut self.table, copy)).await?;
        stage.unlink(&old).await
    }

    async fn sort(&mut self) -> Result<(), FileError> {
        let stage = self.at.stage;
        let path = self.at.path("sort.tmp");
        let mut file = stage.create(&path, 0).await?;
        let mut left = self.p.sorted.0;
        while left > 0 {
            let piece = left.min(PIECE);
            stage.write(&mut file, piece).await?;
            left -= piece;
        }
        stage.close(file).await?;
        stage.read_whole(&path, PIECE).await?;
        stage.unlink(&path).await
    }
}
