//! A log of segments, as in Kafka: batches appended to partitions, old segments removed whole.
//!
//! Each partition appends batches to its newest segment, and an index entry for each. A full segment is closed, made
//! durable with its index, and followed by a new one. When a partition holds more than it keeps, its oldest segment is
//! renamed (`.deleted`), and removed a while later. Between that the log itself makes nothing durable: Kafka leaves it
//! to write-back (`log.flush.interval.messages` is not set).

use std::collections::VecDeque;

use super::parameters::{Parameter, parameters};
use super::{Place, Workload};
use crate::files::{FileError, Files};
use crate::units::{Bytes, SimTime};

pub const ABOUT: &str =
    "A log of segments as in Kafka: batches appended to partitions, old segments removed whole.";

parameters! {
    pub struct Parameters {
        total: size(Bytes::gib(4), Bytes::mib(1), Bytes::gib(1024), "bytes appended", "assumed").scaled(),
        partitions: count(8, 1, 1_000, "partitions written in turn", "assumed").shrinks(),
        batch: size(
            Bytes::kib(16),
            Bytes(1),
            Bytes::mib(1),
            "bytes of a batch",
            "Kafka producer: batch.size is 16,384",
        ),
        segment: size(
            Bytes::mib(16),
            Bytes::kib(64),
            Bytes::gib(2),
            "size of a segment",
            "Kafka: log.segment.bytes is 1 GiB; a 64th here, so that segments come and go",
        ),
        keep: size(
            Bytes::mib(32),
            Bytes::kib(64),
            Bytes::gib(256),
            "what a partition keeps",
            "assumed; Kafka: log.retention.bytes is unlimited, log.retention.hours 168",
        ),
        delay: millis(
            1_000,
            0,
            600_000,
            "milliseconds between the renaming and the removal of a segment",
            "Kafka: log.segment.delete.delay.ms is 60,000; less here, as segments are smaller",
        ),
    }
}

/// Bytes of an index entry (Kafka: 8, one for each `log.index.interval.bytes`; the time index has 12).
const INDEX_ENTRY: u64 = 8;

#[derive(Debug)]
struct Partition<File> {
    log: File,
    index: File,
    bytes: u64,
    newest: u64,
    closed: VecDeque<u64>,
}

impl Workload for Parameters {
    fn operations(&self) -> u64 {
        self.total.0.div_ceil(self.batch.0)
    }

    /// Returns the space for the segments that are kept, the one being written, and the renamed ones: at most as
    /// much again.
    fn needed(&self) -> Bytes {
        let one = self.keep.0 + 2 * self.segment.0;
        Bytes((one * self.partitions * 2).min(self.total.0 + self.total.0 / 8))
    }

    fn reads(&self) -> bool {
        false
    }
}

pub async fn run<F: Files>(at: &Place<'_, F, Parameters>) -> Result<(), FileError> {
    let (stage, p) = (at.stage, at.parameters);
    let (batch, segment, keep) = (p.batch.0, p.segment.0, p.keep.0);
    let delay = p.delay;
    let path =
        |partition: usize, number: u64, what: &str| at.path(&format!("p{partition}/{number:08}.{what}"));
    let mut partitions = Vec::new();
    for i in 0..p.partitions as usize {
        stage.mkdir(&at.path(&format!("p{i}"))).await?;
        let log = stage.create(&path(i, 0, "log"), 0).await?;
        let index = stage.create(&path(i, 0, "index"), 0).await?;
        partitions.push(Partition { log, index, bytes: 0, newest: 0, closed: VecDeque::new() });
    }
    let mut doomed: VecDeque<(SimTime, String)> = VecDeque::new();
    let count = partitions.len();
    for round in 0..p.total.0.div_ceil(batch) as usize {
        let i = round % count;
        stage.operation().await;
        let partition = &mut partitions[i];
        stage.write(&mut partition.log, batch).await?;
        stage.write(&mut partition.index, INDEX_ENTRY).await?;
        partition.bytes += batch;
        if partition.bytes >= segment {
            stage.fsync(&mut partition.log).await?;
            stage.fsync(&mut partition.index).await?;
            partition.closed.push_back(partition.newest);
            partition.newest += 1;
            partition.bytes = 0;
            let log = stage.create(&path(i, partition.newest, "log"), 0).await?;
            stage.close(std::mem::replace(&mut partition.log, log)).await?;
            let index = stage.create(&path(i, partition.newest, "index"), 0).await?;
            stage.close(std::mem::replace(&mut partition.index, index)).await?;
            while partition.closed.len() as u64 * segment > keep {
                let Some(oldest) = partition.closed.pop_front() else { break };
                for what in ["log", "index"] {
                    let (from, to) = (path(i, oldest, what), path(i, oldest, &format!("{what}.deleted")));
                    stage.rename(&from, &to).await?;
                    doomed.push_back((stage.now() + delay, to));
                }
            }
        }
        while doomed.front().is_some_and(|(due, _)| *due <= stage.now()) {
            let Some((_, path)) = doomed.pop_front() else { break };
            stage.unlink(&path).await?;
        }
    }
    for Partition { log, index, .. } in partitions {
        stage.close(log).await?;
        stage.close(index).await?;
    }
    Ok(())
}
