//! Several tasks that use the same few files without coordination.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use proptest::prelude::*;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Guarded, config, drive, format, guard, host, hosts, narrow, with_queue};
use crate::block::QueueConfig;
use crate::engine::Event;
use crate::files::{FileError, Files, OpenMode};
use crate::fs::{Ext4, Volume};
use crate::units::{Lpn, SimDuration, UnitRange};

const PATHS: [&str; 7] = ["a", "b", "c", "d/a", "d/b", "e/a", "d"];
const TASKS: u64 = 4;

/// Accepts only errors that races explain: a full file system, a name that exists or does not, or a removed file.
fn is_expected(result: Result<(), FileError>) {
    match result {
        Err(FileError::Interrupted) => panic!("interrupted"),
        Err(FileError::Other { path, reason }) => {
            let known = ["is a directory", "directory not empty", "removed while it was open"];
            assert!(known.contains(&reason.as_str()), "{path}: {reason}");
        }
        _ => {}
    }
}

async fn one_operation(fs: &Ext4, rng: &mut Xoshiro256PlusPlus) -> Result<(), FileError> {
    let mut below = |n: u64| rng.next_u64() % n;
    let path = PATHS[below(PATHS.len() as u64) as usize];
    match below(12) {
        0 => fs.unlink(path).await,
        1 => fs.mkdir(["d", "e"][below(2) as usize]).await,
        2 => fs.rmdir(["d", "e", ""][below(3) as usize]).await,
        3 => fs.sync().await,
        4 => {
            fs.trim_free(UnitRange::new(Lpn(below(20_000)), below(20_000)), below(32)).await;
            Ok(())
        }
        5 => {
            fs.queue().sim().clone().sleep(SimDuration::from_millis(below(3_000))).await;
            Ok(())
        }
        kind => {
            let modes = [OpenMode::Create, OpenMode::CreateKeep, OpenMode::Append, OpenMode::Read];
            let mut file = fs.open(path, modes[below(4) as usize]).await?;
            for _ in 0..below(4) {
                let len = [5_000, 100_000, 3_000_000][below(3) as usize];
                fs.seek(&mut file, below(5_000_000)).await?;
                if kind < 9 {
                    fs.write(&mut file, &vec![0; below(len) as usize]).await?;
                } else {
                    fs.read(&mut file, &mut vec![0; below(len) as usize]).await?;
                }
                if below(4) == 0 {
                    fs.fsync(&mut file).await?;
                }
            }
            fs.close(file).await
        }
    }
}

fn run(policy: usize, seed: u64) {
    let queue = if seed.is_multiple_of(2) { narrow() } else { QueueConfig::default() };
    with_queue(&drive(64), queue, move |queue| async move {
        let (policy, generation) = hosts()[policy];
        // In the small journal a transaction has no room for two handles, so nearly every handle waits.
        let journal_mib = if seed.is_multiple_of(3) { 1 } else { 4 };
        let volume = Volume::format(&queue, format(journal_mib)).await.unwrap();
        let fs = volume.mount(host(generation), policy.governor()).await;
        let live = PATHS.iter().map(|&p| p.to_owned()).chain([String::new(), "e".to_owned()]).collect();
        guard(&fs, Rc::new(RefCell::new(Guarded { live, ..Guarded::default() })));
        let ended = Event::new(queue.sim());
        let running = Rc::new(RefCell::new((0..TASKS).collect::<BTreeSet<_>>()));
        for task in 0..TASKS {
            let (fs, ended, running) = (fs.clone(), ended.clone(), Rc::clone(&running));
            queue.sim().spawn(async move {
                let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ (task << 32));
                for _ in 0..150 {
                    is_expected(one_operation(&fs, &mut rng).await);
                    fs.audit().unwrap();
                }
                running.borrow_mut().remove(&task);
                ended.notify_all();
            });
        }
        while !running.borrow().is_empty() {
            ended.wait().await;
        }
        fs.sync().await.unwrap();
        queue.with_ssd(|ssd| {
            for path in PATHS {
                for lpn in fs.extents(path).unwrap_or_default().into_iter().flat_map(UnitRange::iter) {
                    // A directory's block may still be only in the log.
                    assert!(path == "d" || ssd.is_mapped(lpn), "{path} has lost {lpn:?}");
                }
            }
        });
        let volume = fs.unmount().await;
        queue.with_ssd(|ssd| ssd.audit()).unwrap();
        queue.trace(None);
        let fs = volume.mount(host(generation), policy.governor()).await;
        fs.audit().unwrap();
    });
}

/// `fsync` waited for a write that had ended while it looked for dirty pages.
#[test]
fn regression_fsync_does_not_wait_for_a_write_that_has_ended() {
    run(3, 9_540_252_279_381_528_759);
}

proptest! {
    #![proptest_config(config(250))]
    #[test]
    fn tasks_that_race_break_nothing(policy in 0..hosts().len(), seed in any::<u64>()) {
        run(policy, seed);
    }
}
