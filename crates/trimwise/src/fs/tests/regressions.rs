//! Failures found by the other tests, each reproduced in a few steps.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::{Guarded, drive, guard, hosts, mounted, narrow, with_queue};
use crate::block::{BlockQueue, Command, QueueConfig, Stage};
use crate::files::{FileError, Files, OpenMode};
use crate::fs::Ext4;
use crate::fs::host::DiscardGeneration;
use crate::policy::PolicySpec;
use crate::ssd::{LinkKind, SsdConfig, TrimKind};
use crate::units::{Bytes, Lpn, SimDuration, UnitRange};

const PAGE: u64 = 4096;

fn on_drive<F: Future<Output = ()> + 'static>(test: impl FnOnce(BlockQueue) -> F) {
    with_queue(&drive(64), QueueConfig::default(), test);
}

async fn write(fs: &Ext4, path: &str, pages: u64) -> Result<(), FileError> {
    let mut file = fs.open(path, OpenMode::Append).await?;
    fs.write(&mut file, &vec![0; (pages * PAGE) as usize]).await?;
    fs.close(file).await
}

async fn create(fs: &Ext4, path: &str, pages: u64) {
    let file = fs.open(path, OpenMode::Create).await.unwrap();
    fs.close(file).await.unwrap();
    write(fs, path, pages).await.unwrap();
}

/// Starts a task and returns a flag that says whether it has ended.
fn start(fs: &Ext4, task: impl Future<Output = ()> + 'static) -> Rc<Cell<bool>> {
    let ended = Rc::new(Cell::new(false));
    let flag = Rc::clone(&ended);
    fs.queue().sim().spawn(async move {
        task.await;
        flag.set(true);
    });
    ended
}

async fn pause(fs: &Ext4, ms: u64) {
    fs.queue().sim().clone().sleep(SimDuration::from_millis(ms)).await;
}

/// A file that is open gets a window of 128 pages for its first 100. The rest is for other files again as soon as the
/// file is closed and all of it is written.
#[test]
fn a_closed_file_keeps_no_window() {
    on_drive(|queue| async move {
        let fs = mounted(&queue, PolicySpec::OFF, DiscardGeneration::Worker).await;
        let preallocated = || fs.0.state.borrow().disk.allocator.mballoc().preallocated_units();
        let mut file = fs.open("a", OpenMode::Create).await.unwrap();
        fs.write(&mut file, &vec![0; 100 * PAGE as usize]).await.unwrap();
        fs.fsync(&mut file).await.unwrap();
        assert_eq!(preallocated(), 28);
        fs.write(&mut file, &vec![0; 5 * PAGE as usize]).await.unwrap();
        fs.close(file).await.unwrap();
        assert_eq!(preallocated(), 28, "five pages have yet to be written there");
        fs.sync().await.unwrap();
        assert_eq!(preallocated(), 0);
        fs.audit().unwrap();
    });
}

/// A handle that may fill a transaction by itself starts a new one.
#[test]
fn a_transaction_has_room_for_all_that_its_handles_may_change() {
    on_drive(|queue| async move {
        let fs = mounted(&queue, PolicySpec::OFF, DiscardGeneration::Worker).await;
        let most = fs.0.state.borrow().journal.transaction_max;
        create(&fs, "a", 1).await;
        let running = fs.0.state.borrow().journal.running_tid().unwrap();
        assert_eq!(fs.start_handle(10).await.tid, running);
        assert!(fs.start_handle(most).await.tid > running);
    });
}

/// In ordered mode, without a conversion of unwritten blocks: some requests wait in the queue when the commit begins.
#[test]
fn a_commit_waits_for_the_data_of_its_new_blocks() {
    let slow = QueueConfig { max_request: Bytes::kib(16), background_waiting_max: 64, ..narrow() };
    with_queue(&drive(64), slow, |queue| async move {
        let fs = mounted(&queue, PolicySpec::OFF, DiscardGeneration::CommitSerial).await;
        create(&fs, "a", 100).await;
        fs.submit_all().await;
        let (tid, in_transfer) = {
            let state = fs.0.state.borrow();
            (state.journal.running_tid().unwrap(), state.cache.writeback_pages())
        };
        assert!(in_transfer > 0);
        fs.commit_and_wait(tid).await;
        assert_eq!(fs.0.state.borrow().cache.writeback_pages(), 0);
    });
}

/// The last flush of a commit does not cover later writes.
#[test]
fn a_commit_in_its_last_flush_has_no_flush_to_come() {
    on_drive(|queue| async move {
        let fs = mounted(&queue, PolicySpec::OFF, DiscardGeneration::Worker).await;
        create(&fs, "a", 10).await;
        fs.submit_all().await;
        pause(&fs, 100).await;
        let tid = fs.0.state.borrow().journal.running_tid().unwrap();
        let flushes = Rc::new(Cell::new(0));
        let count = Rc::clone(&flushes);
        queue.trace(Some(Box::new(move |_, stage, command| {
            count.set(count.get() + u32::from((stage, command) == (Stage::Dispatched, &Command::Flush)));
        })));
        fs.request_commit(tid);
        assert!(fs.0.state.borrow().journal.will_flush(tid));
        while flushes.get() < 2 {
            queue.sim().clone().sleep(SimDuration::from_micros(1)).await;
        }
        assert!(!fs.0.state.borrow().journal.is_committed(tid));
        assert!(!fs.0.state.borrow().journal.will_flush(tid));
    });
}

/// The file has 300 extents. Extents whose data are not yet written stay separate. A tree block holds 340.
#[test]
fn a_tree_has_a_block_for_340_extents_written_or_not_unless_pages_have_reserved_the_last_blocks() {
    for (unwritten, is_full, blocks) in [(40, false, 1), (41, false, 2), (41, true, 1)] {
        on_drive(|queue| async move {
            let fs = mounted(&queue, PolicySpec::OFF, DiscardGeneration::Worker).await;
            create(&fs, "a", 1).await;
            let state = &mut *fs.0.state.borrow_mut();
            let inode = state.disk.names["a"].inode;
            let entry = &mut state.disk.inodes[inode as usize];
            (0..300).for_each(|i| entry.add_extent(i * 10, UnitRange::new(Lpn(5_000 + i * 20), 5)));
            entry.unwritten = (0..unwritten).map(|i| (i * 10 + 2, 1)).collect();
            entry.tree = vec![Lpn(12_000)];
            if is_full {
                state.reserved_pages = u64::MAX;
            }
            fs.grow_tree(state, inode, 0);
            assert_eq!(state.disk.inodes[inode as usize].tree.len(), blocks);
        });
    }
}

#[test]
fn write_back_of_a_file_goes_on_where_it_stopped() {
    on_drive(|queue| async move {
        let fs = mounted(&queue, PolicySpec::OFF, DiscardGeneration::Worker).await;
        create(&fs, "a", 96).await;
        let inode = fs.0.state.borrow().disk.names["a"].inode;
        assert_eq!(fs.write_pages(inode, 32).await, 32);
        pause(&fs, 100).await;
        let mut file = fs.open("a", OpenMode::CreateKeep).await.unwrap();
        fs.write(&mut file, &[0; PAGE as usize]).await.unwrap();
        assert_eq!(fs.write_pages(inode, 32).await, 32);
        let is_dirty = |page| {
            let state = fs.0.state.borrow();
            state.cache.page(&state.disk.inodes[inode as usize].chunks, page).dirty != 0
        };
        assert_eq!([0, 1, 32, 64].map(is_dirty), [true, false, false, true]);
        fs.close(file).await.unwrap();
    });
}

/// A bitmap that is being written to its place holds up the removal, and with it the commit that another task requests:
/// all changes under one handle belong to one transaction.
#[test]
fn regression_blocks_are_freed_with_the_last_of_their_metadata() {
    on_drive(|queue| async move {
        let fs = mounted(&queue, PolicySpec::COMMIT, DiscardGeneration::CommitSerial).await;
        create(&fs, "a", 10).await;
        fs.sync().await.unwrap();
        let bitmap = {
            let state = &mut *fs.0.state.borrow_mut();
            let block = state.disk.layout.block_bitmap(0);
            state.journal.lock_for_test(block, true);
            block
        };
        let task = fs.clone();
        let removed = start(&fs, async move { task.unlink("a").await.unwrap() });
        pause(&fs, 10).await;
        let task = fs.clone();
        let synced = start(&fs, async move { task.sync().await.unwrap() });
        pause(&fs, 1_000).await;
        let trims = || queue.with_ssd(|ssd| ssd.stats().trim.units_invalidated);
        let before = trims();
        assert!(!removed.get() && !synced.get());
        assert_eq!(fs.ledger().freed, 0, "freed by a transaction that lacks the bitmap");
        fs.0.state.borrow_mut().journal.lock_for_test(bitmap, false);
        fs.0.events.metadata_io_done.notify_all();
        pause(&fs, 1_000).await;
        assert!(removed.get() && synced.get());
        assert_eq!(trims() - before, 10);
    });
}

#[test]
fn regression_read_ahead_outlives_the_mount() {
    let mut config = drive(64);
    config.link.kind = LinkKind::Nvme;
    config.nand.t_read_ns = 1_000_000_000;
    config.cache.volatile = false; // or the flush waits behind the read
    with_queue(&config, QueueConfig::default(), |queue| async move {
        let fs = mounted(&queue, PolicySpec::OFF, DiscardGeneration::Worker).await;
        create(&fs, "a", 64).await;
        create(&fs, "b", 3_000).await; // the first is in the flash alone then
        let fs = fs.unmount().await.mount(super::host(DiscardGeneration::Worker), PolicySpec::OFF.governor());
        let fs = fs.await;
        let mut file = fs.open("a", OpenMode::Read).await.unwrap();
        for _ in 0..2 {
            fs.read(&mut file, &mut [0; PAGE as usize]).await.unwrap();
        }
        let reads = |fs: &Ext4| fs.0.state.borrow().disk.inodes.iter().map(|i| i.reads).sum::<u64>();
        assert_eq!(reads(&fs), 1);
        let volume = fs.unmount().await;
        assert!(volume.disk.inodes.iter().all(|i| i.reads == 0));
        queue.sim().clone().sleep(SimDuration::from_secs(30)).await;
    });
}

/// FITRIM holds all free blocks, while write-back needs those that it has reserved.
#[test]
fn regression_write_back_waits_for_blocks_that_are_in_a_trim() {
    on_drive(|queue| async move {
        let fs = mounted(&queue, PolicySpec::OFF, DiscardGeneration::CommitBatched).await;
        create(&fs, "a", 1).await;
        fs.sync().await.unwrap();
        let mut free = fs.statfs().await.unwrap().free.units_floor();
        for pages in [free / 2, free - free / 2 - 100] {
            write(&fs, "a", pages).await.unwrap();
        }
        fs.sync().await.unwrap();
        free = 100;
        assert_eq!(fs.statfs().await.unwrap().free.units_floor(), free);
        write(&fs, "a", free).await.unwrap();
        let task = fs.clone();
        let trimmed = start(&fs, async move {
            assert_eq!(task.trim_free(UnitRange::new(Lpn(0), u64::MAX / 2), 1).await, 100);
        });
        fs.queue().sim().clone().yield_now().await;
        fs.audit().unwrap();
        assert_eq!(write(&fs, "a", 1).await.map_err(|e| matches!(e, FileError::NoSpace { .. })), Err(true));
        fs.sync().await.unwrap();
        assert!(trimmed.get());
        assert_eq!(fs.statfs().await.unwrap().free, Bytes(0));
        fs.audit().unwrap();
        // Full: pages with blocks can be overwritten, pages without cannot be written.
        let mut file = fs.open("a", OpenMode::CreateKeep).await.unwrap();
        fs.write(&mut file, &[0; 3 * PAGE as usize]).await.unwrap();
        assert!(matches!(write(&fs, "a", 1).await, Err(FileError::NoSpace { .. })));
    });
}

/// The file is emptied while the reader waits to update the access time.
#[test]
fn regression_a_reader_of_a_file_that_is_cut_short_finds_its_end() {
    on_drive(|queue| async move {
        let fs = mounted(&queue, PolicySpec::OFF, DiscardGeneration::Worker).await;
        create(&fs, "a", 8).await;
        fs.sync().await.unwrap();
        let block = {
            let state = &mut *fs.0.state.borrow_mut();
            let block = state.disk.layout.inode_block(state.disk.names["a"].inode);
            state.journal.lock_for_test(block, true);
            block
        };
        let task = fs.clone();
        let read = start(&fs, async move {
            let mut file = task.open("a", OpenMode::Read).await.unwrap();
            assert_eq!(task.read(&mut file, &mut [0; 8 * PAGE as usize]).await, Ok(0));
        });
        pause(&fs, 1).await;
        let task = fs.clone();
        let emptied = start(&fs, async move { drop(task.open("a", OpenMode::Create).await.unwrap()) });
        pause(&fs, 1).await;
        assert_eq!((read.get(), emptied.get()), (false, false));
        fs.0.state.borrow_mut().journal.lock_for_test(block, false);
        fs.0.events.metadata_io_done.notify_all();
        pause(&fs, 1).await;
        assert_eq!((read.get(), emptied.get()), (true, true));
    });
}

#[test]
fn regression_an_open_file_that_was_removed_is_not_the_next_one() {
    on_drive(|queue| async move {
        let fs = mounted(&queue, PolicySpec::OFF, DiscardGeneration::Worker).await;
        create(&fs, "a", 5).await;
        let mut old = fs.open("a", OpenMode::CreateKeep).await.unwrap();
        fs.unlink("a").await.unwrap();
        create(&fs, "b", 1).await;
        let error = fs.write(&mut old, &[0; 3 * PAGE as usize]).await.unwrap_err();
        assert_eq!(error.to_string(), "a: removed while it was open");
        assert_eq!(fs.read(&mut old, &mut [0; 10]).await, Ok(0));
        fs.fsync(&mut old).await.unwrap();
        let mut new = fs.open("b", OpenMode::Read).await.unwrap();
        assert_eq!(fs.read(&mut new, &mut [0; 5 * PAGE as usize]).await, Ok(PAGE as usize));
    });
}

#[test]
fn regression_two_tasks_make_the_same_name_once() {
    on_drive(|queue| async move {
        let fs = mounted(&queue, PolicySpec::OFF, DiscardGeneration::Worker).await;
        let inodes = Rc::new(RefCell::new(Vec::new()));
        for _ in 0..2 {
            let (task, inodes) = (fs.clone(), Rc::clone(&inodes));
            start(&fs, async move {
                let file = task.open("a", OpenMode::CreateKeep).await.unwrap();
                inodes.borrow_mut().push(file.inode);
            });
        }
        pause(&fs, 100).await;
        assert_eq!(inodes.borrow()[0], inodes.borrow()[1]);
        assert_eq!(fs.0.state.borrow().disk.directories[""].entries, 1);
    });
}

/// A checkpoint must not write a freed directory block, which may have a new owner by then.
#[test]
fn regression_a_removed_directory_is_not_written_to_its_place() {
    on_drive(|queue| async move {
        let fs = mounted(&queue, PolicySpec::OFF, DiscardGeneration::Worker).await;
        fs.mkdir("d").await.unwrap();
        create(&fs, "d/a", 1).await;
        let block = fs.extents("d").unwrap()[0];
        fs.sync().await.unwrap();
        fs.unlink("d/a").await.unwrap();
        fs.rmdir("d").await.unwrap();
        assert!(matches!(fs.rmdir("").await, Err(FileError::NotFound { .. })));
        queue.trace(Some(Box::new(move |_, stage, command| {
            if let (Stage::Dispatched, Command::Write(range, _)) = (stage, command) {
                assert!(!super::overlaps(*range, block), "{range:?} holds a freed block");
            }
        })));
        fs.sync().await.unwrap();
        pause(&fs, 60_000).await; // write-back of metadata that have expired
        queue.trace(None);
    });
}

#[test]
fn regression_a_name_that_cannot_be_made_leaves_no_trace() {
    on_drive(|queue| async move {
        let fs = mounted(&queue, PolicySpec::OFF, DiscardGeneration::Worker).await;
        create(&fs, "a", 1).await;
        loop {
            let free = fs.statfs().await.unwrap().free.units_floor();
            if free == 0 {
                break;
            }
            write(&fs, "a", free.min(1_000)).await.unwrap();
        }
        fs.mkdir("d").await.unwrap();
        assert!(matches!(fs.open("d/b", OpenMode::Create).await, Err(FileError::NoSpace { .. })));
        fs.audit().unwrap();
        fs.rmdir("d").await.unwrap(); // it counted an entry
        fs.unlink("a").await.unwrap();
        // `mkdir` waits for the blocks that the removal will free.
        fs.mkdir("e").await.unwrap();
        create(&fs, "e/a", 1).await;
    });
}

/// Five tasks wait for room in a queue of two; the ones woken have nothing to submit.
#[test]
fn regression_a_wake_up_for_room_is_not_lost() {
    with_queue(&drive(64), narrow(), |queue| async move {
        for at in [0, 100, 200] {
            queue.submit_background_write(UnitRange::new(Lpn(at), 16), || ());
        }
        let woken = Rc::new(Cell::new(0));
        for _ in 0..5 {
            let (queue2, woken) = (queue.clone(), Rc::clone(&woken));
            queue.sim().spawn(async move {
                queue2.wait_for_room().await;
                woken.set(woken.get() + 1);
            });
        }
        queue.sim().clone().sleep(SimDuration::from_secs(1)).await;
        assert_eq!(woken.get(), 5);
    });
}

/// A TRIM is sent only after the commit record of the transaction that freed its blocks is flushed.
#[test]
fn a_trim_follows_the_flush_of_its_commit_record() {
    for generation in
        [DiscardGeneration::CommitSerial, DiscardGeneration::CommitBatched, DiscardGeneration::Worker]
    {
        for kind in [LinkKind::Sata, LinkKind::Nvme] {
            let trim_kind = if kind == LinkKind::Nvme { TrimKind::Nvme } else { TrimKind::AtaNonQueued };
            let mut config: SsdConfig = drive(64);
            config.link.kind = kind;
            config.trim.kind = trim_kind;
            with_queue(&config, QueueConfig::default(), move |queue| async move {
                let fs = mounted(&queue, PolicySpec::COMMIT, generation).await;
                create(&fs, "a", 10).await;
                fs.sync().await.unwrap();
                let seen = Rc::new(RefCell::new(Vec::new()));
                let sink = Rc::clone(&seen);
                queue.trace(Some(Box::new(move |_, stage, command| {
                    let name = match command {
                        Command::Read(_) | Command::ReadPart(_) => "read",
                        Command::Write(range, _) if range.units == 1 => "record",
                        Command::Write(..) | Command::WritePart(..) => "log",
                        Command::Trim(_) => "trim",
                        Command::Flush => "flush",
                    };
                    let stage = if stage == Stage::Dispatched { "+" } else { "-" };
                    sink.borrow_mut().push(format!("{name}{stage}"));
                })));
                fs.unlink("a").await.unwrap();
                let tid = fs.0.state.borrow().journal.newest_open_tid().unwrap();
                fs.commit_and_wait(tid).await;
                pause(&fs, 1_000).await;
                queue.trace(None);
                let expected = "log+ log- flush+ flush- record+ record- flush+ flush- trim+ trim-";
                assert_eq!(seen.borrow().join(" "), expected);
            });
        }
    }
}

/// Under every policy and kernel, and with an `fstrim` that comes too early.
#[test]
fn no_block_is_trimmed_before_the_commit_that_frees_it() {
    for (policy, generation) in hosts() {
        on_drive(move |queue| async move {
            let fs = mounted(&queue, policy, generation).await;
            let guarded = Rc::new(RefCell::new(Guarded::default()));
            guard(&fs, Rc::clone(&guarded));
            for round in 0..3 {
                for name in ["a", "b"] {
                    create(&fs, name, 100).await;
                }
                fs.sync().await.unwrap();
                for name in ["a", "b"] {
                    assert_ne!(fs.extents(name), Some(Vec::new()), "{name} has blocks to free");
                    guarded.borrow_mut().freeing(&fs, name);
                    fs.unlink(name).await.unwrap();
                    fs.trim_free(UnitRange::new(Lpn(0), u64::MAX), 1).await;
                    // Commit by its own timer, or on request.
                    pause(&fs, 6_000 * round).await;
                }
                fs.sync().await.unwrap();
            }
        });
    }
}

/// A pass that finds only extents too short for it still ends, and later passes find extents that are freed later.
#[test]
fn regression_short_extents_do_not_end_a_policy_s_passes_for_good() {
    for policy in ["btrfs", "zfs", "f2fs"] {
        on_drive(move |queue| async move {
            let fs = mounted(&queue, policy.parse().unwrap(), DiscardGeneration::Worker).await;
            // Single pages between others that stay.
            for name in ["a", "b", "c", "d", "e"] {
                create(&fs, name, 1).await;
                fs.sync().await.unwrap();
            }
            create(&fs, "long", 1_000).await;
            fs.sync().await.unwrap();
            for name in ["b", "d"] {
                fs.unlink(name).await.unwrap();
            }
            fs.sync().await.unwrap();
            pause(&fs, 1_000_000).await;
            assert_eq!(fs.ledger().issued, 0, "{policy}");
            assert_eq!(fs.ledger().pending, 2, "{policy}");

            fs.unlink("long").await.unwrap();
            fs.sync().await.unwrap();
            pause(&fs, 1_000_000).await;
            assert!(fs.ledger().issued >= 1_000, "{policy}: {:?}", fs.ledger());
        });
    }
}

/// Appended data begin in the file's last block and continue in new ones. Write-back takes the old block first and then
/// all new ones together, so they lie in one extent.
#[test]
fn what_is_appended_lies_in_one_extent() {
    on_drive(|queue| async move {
        let fs = mounted(&queue, PolicySpec::OFF, DiscardGeneration::Worker).await;
        let append = |path: &'static str, bytes: u64| {
            let fs = fs.clone();
            async move {
                let mut file = fs.open(path, OpenMode::Append).await.unwrap();
                fs.write(&mut file, &vec![0; bytes as usize]).await.unwrap();
                fs.close(file).await.unwrap();
                fs.sync().await.unwrap();
            }
        };
        create(&fs, "a", 20).await;
        append("a", 100).await;
        create(&fs, "b", 20).await;
        append("a", 40 * PAGE).await;
        let units: Vec<u64> = fs.extents("a").unwrap().iter().map(|extent| extent.units).collect();
        assert_eq!(units, [21, 40]);
    });
}
