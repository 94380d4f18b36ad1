//! Thin storage between the modelled file system and the drive.

use trimwise::block::thin::{ThinConfig, ThinKind};
use trimwise::block::{BlockQueue, QueueConfig};
use trimwise::files::Files as _;
use trimwise::fs::host::DiscardGeneration;
use trimwise::fs::layout::FormatOptions;
use trimwise::fs::{Ext4, Volume};
use trimwise::policy::PolicySpec;
use trimwise::ssd::LinkKind;
use trimwise::units::{Bytes, Lpn, UnitRange};

use crate::fs_common::{dispatched, drive, fsync, host, on_queue, trace, write};

const EVERYTHING: UnitRange = UnitRange { start: Lpn(0), units: u64::MAX };

fn held_mib(queue: &BlockQueue) -> f64 {
    queue.with_thin(|volume, now| volume.held(now).now.0 as f64 / f64::from(1 << 20)).unwrap()
}

/// Runs `test` on a file system of 512 MiB on thin storage.
fn on_thin<F: Future<Output = ()> + 'static>(
    thin: ThinConfig,
    policy: PolicySpec,
    test: impl FnOnce(Ext4) -> F + 'static,
) {
    let host = host(DiscardGeneration::Worker);
    on_queue(drive(LinkKind::Sata, 1), host.queue, move |queue| async move {
        queue.put_thin(thin);
        let options = FormatOptions { journal: Some(Bytes::mib(4)), ..FormatOptions::default() };
        let volume = Volume::format(&queue, options).await.unwrap();
        test(volume.mount(host, policy.governor()).await).await;
    });
}

fn pool(chunk: Bytes) -> ThinConfig {
    ThinConfig::new(ThinKind::Pool, chunk)
}

#[test]
fn the_drive_is_told_of_whole_chunks_only() {
    on_queue(drive(LinkKind::Sata, 1), QueueConfig::default(), |queue| async move {
        queue.put_thin(pool(Bytes::kib(64)));
        queue.write(UnitRange::new(Lpn(0), 64)).await;
        let seen = trace(&queue);
        let mapped = |unit: u64| queue.with_ssd(|ssd| ssd.is_mapped(Lpn(unit)));
        queue.trim(&[UnitRange::new(Lpn(4), 12)]).await;
        assert_eq!((dispatched(&seen), mapped(4), held_mib(&queue)), (String::new(), true, 0.25));
        // From 10 to 40: all of the second chunk, half of the first and of the third.
        queue.trim(&[UnitRange::new(Lpn(10), 30)]).await;
        assert_eq!(dispatched(&seen), "T");
        assert_eq!([15, 16, 31, 32].map(mapped), [true, false, false, true]);
        assert_eq!(held_mib(&queue), 3.0 / 16.0);
    });
}

/// A file of 3 MiB on chunks of 1 MiB: what of it is a whole chunk comes back, under discard and under fstrim.
#[test]
fn a_removed_file_gives_its_whole_chunks_back() {
    for (policy, trims) in [(PolicySpec::COMMIT, false), (PolicySpec::OFF, true)] {
        on_thin(pool(Bytes::mib(1)), policy, move |fs| async move {
            write(&fs, "a", 768).await;
            fsync(&fs, "a").await;
            fs.sync().await.unwrap();
            let extents = fs.extents("a").unwrap();
            let units = |e: &UnitRange| (e.start.0.div_ceil(256), e.end().0 / 256);
            let whole: u64 = extents.iter().map(units).map(|(from, to)| to.saturating_sub(from)).sum();
            assert!(whole >= 2, "{extents:?}");
            let before = held_mib(fs.queue());
            fs.unlink("a").await.unwrap();
            fs.sync().await.unwrap();
            fs.drain_discards().await;
            assert_eq!(before - held_mib(fs.queue()), if trims { 0.0 } else { whole as f64 });
            if trims {
                fs.trim_free(EVERYTHING, 1).await;
                assert!(before - held_mib(fs.queue()) >= whole as f64);
            }
        });
    }
}

/// `ext4_trim_fs` raises the smallest extent to the granularity, and gives up if no group has that much.
#[test]
fn fitrim_sends_nothing_below_the_granularity_that_the_volume_announces() {
    // Of four groups of 128 MiB one has the inode tables, and one the journal.
    let free =
        |fs: &Ext4| 4 * 32_768 - fs.metadata_blocks().iter().map(|range| range.units).sum::<u64>() - 1_024;
    for (chunk, whole_groups) in
        [(Bytes::kib(64), None), (Bytes::mib(128), Some(2)), (Bytes::mib(256), Some(0))]
    {
        on_thin(pool(chunk), PolicySpec::OFF, move |fs| async move {
            let sent = fs.trim_free(EVERYTHING, 1).await;
            assert_eq!(sent, whole_groups.map_or(free(&fs), |groups| groups * 32_768), "{chunk}");
        });
    }
}

/// What mke2fs fills with zeros, the journal of 4 MiB, takes no clusters of a qcow2 image, and chunks of a pool.
#[test]
fn zeros_of_mke2fs_take_space_in_a_pool_and_none_in_qcow2() {
    let taken = |kind| {
        let held = std::rc::Rc::new(std::cell::Cell::new(0.0));
        let seen = std::rc::Rc::clone(&held);
        on_queue(drive(LinkKind::Sata, 1), QueueConfig::default(), move |queue| async move {
            queue.put_thin(ThinConfig::new(kind, Bytes::kib(64)));
            let options = FormatOptions { journal: Some(Bytes::mib(4)), ..FormatOptions::default() };
            Volume::format(&queue, options).await.unwrap();
            seen.set(held_mib(&queue));
        });
        held.get()
    };
    let [pool, qcow2] = [ThinKind::Pool, ThinKind::Qcow2].map(taken);
    let journal = pool - qcow2;
    assert!((4.0..=4.07).contains(&journal), "{pool} {qcow2}");
}

/// The bound knows of every free unit, so that nothing that it could have back stays held.
#[test]
fn the_bound_gives_back_chunks_whose_parts_were_freed_one_by_one() {
    let held = |policy: &'static str| {
        let held = std::rc::Rc::new(std::cell::Cell::new(0.0));
        let seen = std::rc::Rc::clone(&held);
        on_thin(pool(Bytes::mib(1)), policy.parse().unwrap(), move |fs| async move {
            for file in 0..512 {
                write(&fs, &file.to_string(), 16).await;
            }
            fs.sync().await.unwrap();
            let before = held_mib(fs.queue());
            for file in 0..512 {
                fs.unlink(&file.to_string()).await.unwrap();
                fs.sync().await.unwrap();
            }
            fs.drain_discards().await;
            seen.set(before - held_mib(fs.queue()));
        });
        held.get()
    };
    // 32 MiB of files, freed in pieces of 64 KiB.
    assert_eq!(held("commit"), 0.0);
    assert!(held("ideal") >= 31.0, "{}", held("ideal"));
}
