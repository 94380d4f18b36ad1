//! The append benchmark and the write on a full file system, in the model.

mod fs_common;

use fs_common::*;
use trimwise::block::{BlockQueue, Command, QueueConfig, Stage};
use trimwise::fs::host::DiscardGeneration;

#[test]
fn probe() {
    let _ = (DiscardGeneration::Worker, QueueConfig::default());
}
