//! What is measured while a workload runs: what was before it does not count.

use crate::fs_common::{drive, format, host, on_fs, on_queue, sleep_ms, write};
use trimwise::block::QueueConfig;
use trimwise::compare::gauge::Gauge;
use trimwise::compare::watch::{Issue, Watch};
use trimwise::files::Files;
use trimwise::fs::host::DiscardGeneration;
use trimwise::fs::{Ext4, Volume};
use trimwise::policy::PolicySpec;
use trimwise::ssd::{LinkKind, SsdConfig};
use trimwise::units::{Bytes, Lpn, UnitRange};

const EVERYWHERE: UnitRange = UnitRange { start: Lpn(0), units: u64::MAX };

/// Makes this many units stale for a moment.
async fn spike(fs: &Ext4, units: u64) {
    write(fs, "gone", units).await;
    fs.sync().await.unwrap();
    fs.unlink("gone").await.unwrap();
    fs.sync().await.unwrap();
    assert_eq!(fs.stale_units(), units);
    sleep_ms(fs, 10).await;
    fs.trim_free(EVERYWHERE, 1).await;
    assert_eq!(fs.stale_units(), 0);
}

#[test]
fn space_that_was_stale_before_a_workload_is_not_its_own() {
    on_fs(drive(LinkKind::Sata, 1), host(DiscardGeneration::Worker), PolicySpec::OFF, |fs| async move {
        spike(&fs, 1_000).await;
        let gauge = Gauge::start(&fs);
        sleep_ms(&fs, 1_000).await;
        let (device, _) = gauge.finish();
        let stale = (device.stale_units_max, device.stale_units_mean, device.stale_units_end);
        assert_eq!(stale, (Some(0), Some(0.0), Some(0)));
    });
}

/// In the second of a sample that is dropped when there are too many.
#[test]
fn a_timeline_keeps_its_peaks_when_it_becomes_coarser() {
    on_fs(drive(LinkKind::Sata, 1), host(DiscardGeneration::Worker), PolicySpec::OFF, |fs| async move {
        let gauge = Gauge::start(&fs);
        sleep_ms(&fs, 100_300).await;
        spike(&fs, 1_000).await;
        sleep_ms(&fs, 200_000).await;
        let (device, _) = gauge.finish();
        assert!(device.timeline.len() < 200);
        let peak = device.timeline.iter().map(|sample| sample.stale_units).max();
        assert_eq!((peak, device.stale_units_max), (Some(1_000), Some(1_000)));
    });
}

#[test]
fn what_the_drive_collected_at_idle_before_a_workload_is_not_its_own() {
    let drive = SsdConfig {
        capacity_bytes: Bytes::mib(56).0,
        over_provisioning_percent: Some(50.into()),
        ..drive(LinkKind::Sata, 1)
    };
    on_queue(drive, QueueConfig::default(), |queue| async move {
        let host = host(DiscardGeneration::Worker);
        let volume = Volume::format(&queue, format()).await.unwrap();
        let fs = volume.mount(host, PolicySpec::OFF.governor()).await;
        for round in 0..4 {
            write(&fs, &format!("{round}"), 8_000).await;
            fs.sync().await.unwrap();
            fs.unlink(&format!("{round}")).await.unwrap();
            fs.sync().await.unwrap();
        }
        let before = queue.with_ssd(|ssd| ssd.stats().block_erases);
        sleep_ms(&fs, 3_000).await;
        let gauge = Gauge::start(&fs);
        let collected = queue.with_ssd(|ssd| ssd.stats().block_erases) - before;
        assert!(collected > 0, "the drive did nothing while it rested");
        write(&fs, "one", 1).await;
        fs.sync().await.unwrap();
        let (device, _) = gauge.finish();
        assert_eq!((device.erases, device.gc_units_copied), (0, 0));
    });
}

/// From the flush before the first TRIM to the end of the last.
#[test]
fn the_trims_of_a_removal_are_timed_from_the_end_of_its_commit() {
    on_queue(drive(LinkKind::Sata, 5), QueueConfig::default(), |queue| async move {
        let run = |start| UnitRange::new(Lpn(start), 1);
        let watch = Watch::new(&queue);
        watch.start();
        assert_eq!(watch.stop(), Issue::default());
        watch.start();
        queue.write(run(0)).await;
        queue.flush().await;
        let durable = queue.sim().now();
        for start in [10, 20] {
            queue.trim(&[run(start)]).await;
            queue.write(run(start)).await;
            queue.flush().await;
        }
        queue.trim(&[run(30)]).await;
        let time = queue.sim().now().since(durable);
        queue.flush().await;
        assert_eq!(watch.stop(), Issue { commands: 3, time });
    });
}
