//! Holes punched into files, and direct transfers.

use std::cell::Cell;
use std::rc::Rc;

use super::{drive, mounted, with_queue};
use crate::block::QueueConfig;
use crate::engine::{Budget, Event};
use crate::files::{Files, OpenMode};
use crate::fs::host::DiscardGeneration;
use crate::units::{Bytes, UNIT_BYTES};

const BLOCKS: u64 = 256;

#[test]
fn a_hole_frees_its_whole_blocks_while_others_write_past_the_cache() {
    with_queue(&drive(64), QueueConfig::default(), |queue| async move {
        let fs = mounted(&queue, "commit".parse().unwrap(), DiscardGeneration::Worker).await;
        let data = vec![0; (BLOCKS * UNIT_BYTES) as usize];
        let mut file = fs.open("a", OpenMode::Create).await.unwrap();
        fs.write(&mut file, &data).await.unwrap();
        fs.fsync(&mut file).await.unwrap();
        let before = fs.statfs().await.unwrap().free;

        let (sim, ended, left) = (queue.sim().clone(), Event::new(queue.sim()), Rc::new(Cell::new(4)));
        for task in 0..4 {
            let (fs, ended, left) = (fs.clone(), ended.clone(), Rc::clone(&left));
            sim.spawn(async move {
                let mut file = fs.open("a", OpenMode::Direct).await.unwrap();
                for i in 0..100 {
                    let block = (i * 7 + task) % BLOCKS;
                    fs.pwrite(&mut file, block * UNIT_BYTES, &[0; UNIT_BYTES as usize]).await.unwrap();
                }
                fs.close(file).await.unwrap();
                left.set(left.get() - 1);
                ended.notify_all();
            });
        }
        for hole in 0..16 {
            // Two blocks and a part of the next one on each side.
            fs.punch(&mut file, hole * 16 * UNIT_BYTES + 100, 3 * UNIT_BYTES).await.unwrap();
        }
        while left.get() > 0 {
            ended.wait().await;
        }
        fs.audit().unwrap();
        fs.punch(&mut file, 0, BLOCKS * UNIT_BYTES).await.unwrap();
        fs.sync().await.unwrap();
        fs.drain_discards().await;
        fs.audit().unwrap();
        let length = fs.pread(&mut file, BLOCKS * UNIT_BYTES - 1, &mut [0; 2]).await.unwrap();
        assert_eq!(length, 1, "the length stays");
        let freed = Bytes(fs.statfs().await.unwrap().free.0 - before.0);
        assert!(freed >= Bytes::from_units(BLOCKS - 3), "{freed}");
    });
}

#[test]
fn direct_transfers_of_sectors_read_what_they_leave_of_a_unit() {
    with_queue(&drive(64), QueueConfig::default(), |queue| async move {
        let fs = mounted(&queue, "off".parse().unwrap(), DiscardGeneration::Worker).await;
        let mut file = fs.open("a", OpenMode::Create).await.unwrap();
        fs.write(&mut file, &[0; 16 << 10]).await.unwrap();
        fs.sync().await.unwrap();
        let mut file = fs.open("a", OpenMode::Direct).await.unwrap();
        let reads = || queue.with_ssd(|ssd| ssd.stats().host_units_read);
        let before = reads();
        fs.pwrite(&mut file, 4096, &[0; 4096]).await.unwrap();
        assert_eq!(reads(), before, "a whole unit");
        fs.pwrite(&mut file, 8192 - 512, &[0; 1024]).await.unwrap();
        assert_eq!(reads(), before + 2, "parts of two");
        assert!(fs.pwrite(&mut file, 100, &[0; 512]).await.is_err());
    });
}

/// Each completed read once woke all tasks that were reading: thousands in flight took minutes.
#[test]
fn regression_a_direct_read_wakes_its_own_task_only() {
    with_queue(&drive(64), QueueConfig::default(), |queue| async move {
        const TASKS: u64 = 512;
        let fs = mounted(&queue, "off".parse().unwrap(), DiscardGeneration::Worker).await;
        let mut file = fs.open("a", OpenMode::Create).await.unwrap();
        fs.write(&mut file, &[0; (BLOCKS * UNIT_BYTES) as usize]).await.unwrap();
        fs.sync().await.unwrap();
        // Some ten events for each read, instead of hundreds.
        queue.sim().set_budget(Budget { in_all: TASKS * 8 * 20, ..Budget::default() });
        let (ended, left) = (Event::new(queue.sim()), Rc::new(Cell::new(TASKS)));
        for task in 0..TASKS {
            let (fs, ended, left) = (fs.clone(), ended.clone(), Rc::clone(&left));
            queue.sim().spawn(async move {
                let mut file = fs.open("a", OpenMode::Direct).await.unwrap();
                for i in 0..8 {
                    let block = (i * 31 + task) % BLOCKS;
                    fs.pread(&mut file, block * UNIT_BYTES, &mut [0; UNIT_BYTES as usize]).await.unwrap();
                }
                left.set(left.get() - 1);
                ended.notify_all();
            });
        }
        while left.get() > 0 {
            ended.wait().await;
        }
    });
}
