use super::*;

/// A drive small enough for the quick tests.
fn small(policy: &str) -> Settings {
    Settings { capacity_mib: 256, policy: policy.to_owned(), ..Settings::default() }
}

/// A scene after `secs` of its workload, advanced in steps.
fn after(settings: &Settings, step: SimDuration, secs: u64) -> Scene {
    let mut scene = Scene::new(settings).unwrap();
    scene.shared.keeps_calls.set(true);
    while scene.elapsed().is_none_or(|elapsed| elapsed < SimDuration::from_secs(secs)) {
        scene.advance(step, SimDuration::from_secs(secs));
        assert_eq!(scene.failure(), None);
    }
    scene
}

const STEP: SimDuration = SimDuration::from_millis(100);

#[test]
fn every_page_is_valid_stale_invalid_or_free() {
    for policy in ["off", "commit", "lazy+reuse"] {
        for workload in Workload::ALL.map(|(workload, _)| workload) {
            let settings = Settings { workload, ..small(policy) };
            let scene = after(&settings, STEP, 10);
            let report = scene.report(0);
            let blocks = scene.blocks();
            let mut stale = 0;
            for block in &blocks {
                let [valid, stale_units, invalid, free, ..] = block.words();
                stale += u64::from(stale_units);
                assert_eq!(u64::from(valid + stale_units + invalid + free), report.superblock_units);
            }
            assert_eq!(blocks.len() as u64 * report.superblock_units, report.physical_units);
            let fs = scene.shared.fs.borrow().clone().unwrap();
            assert_eq!(stale, fs.stale_units(), "{policy}, {workload:?}");
            fs.audit().unwrap();
            scene.queue.with_ssd(|ssd| ssd.audit()).unwrap();
            let last = report.samples.last().unwrap();
            assert!(last.operations > 10 && last.host_units > 0, "{last:?}");
            assert!(report.prepared_percent > 90, "{}", report.prepared_percent);
            assert!(last.worst_us * 1.01 >= last.p99_all_us.unwrap(), "{last:?}");
            assert!(last.worst_us >= last.waiting_us, "{last:?}");
            assert_eq!(last.trims > 0, policy != "off", "{policy}, {workload:?}: {last:?}");
        }
    }
}

#[test]
fn a_scene_depends_on_its_seed_and_not_on_its_steps() {
    let settings = small("commit");
    let ms = SimDuration::from_millis;
    let [coarse, fine] = [1_000, 7].map(|step| after(&settings, ms(step), 5));
    // A coarse step ends the preparation late; the samples are the workload's own.
    assert_eq!(coarse.report(0).samples[..10], fine.report(0).samples[..10]);
    let other = after(&Settings { seed: 2, ..settings }, ms(1_000), 5);
    assert_ne!(coarse.report(0).samples[..10], other.report(0).samples[..10]);
}

#[test]
fn two_policies_get_the_same_workload() {
    for (workload, _) in Workload::ALL {
        let [off, commit] =
            ["off", "commit"].map(|policy| after(&Settings { workload, ..small(policy) }, STEP, 8));
        let (off, commit) = (off.shared.calls.borrow(), commit.shared.calls.borrow());
        let common = off.len().min(commit.len());
        assert!(common > 20, "{workload:?}: {common}");
        assert_eq!(off[..common], commit[..common], "{workload:?}");
    }
}

#[test]
fn trims_are_seen_in_the_blocks_where_they_happen() {
    let scene = after(&small("commit"), STEP, 5);
    let seen: u64 = scene.blocks().iter().map(|block| u64::from(block.trimmed_units)).sum();
    let counted = scene.queue.with_ssd(|ssd| ssd.stats().trim.units_invalidated);
    assert_eq!(seen, counted);
}

#[test]
fn bad_settings_are_refused_with_what_would_be_accepted() {
    let refused = |change: fn(&mut Settings)| {
        let mut settings = Settings::default();
        change(&mut settings);
        Scene::new(&settings).err().expect("a bad setting").to_string()
    };
    let texts = [
        (refused(|s| s.fullness_percent = 99), "fullness_percent: 99 % is outside 10 to 95 %"),
        (refused(|s| s.rate_mib_per_s = 0), "rate_mib_per_s: 0 MiB/s is outside 1 to 64 MiB/s"),
        (refused(|s| s.capacity_mib = 1 << 40), "is outside 256 to 2048 MiB"),
        (refused(|s| s.over_provisioning_percent = 0), "over_provisioning_percent: 0 % is outside 5 to 50 %"),
        (refused(|s| s.drive = "floppy".into()), "'floppy' is not one of the drives"),
        (refused(|s| s.policy = "sometimes".into()), "'sometimes'"),
    ];
    for (text, expected) in texts {
        assert!(text.contains(expected), "{text}");
    }
    let json = Settings::from_json(br#"{"drive": 1}"#).unwrap_err().to_string();
    assert!(json.starts_with("settings: "), "{json}");
}

#[test]
fn the_page_is_offered_every_policy_and_only_drives_that_work() {
    let catalogue = Catalogue::new();
    assert_eq!(catalogue.policies.len(), PolicySpec::examples().len());
    assert!(catalogue.drives.iter().any(|(name, _)| *name == "sata-small"));
    for (drive, _) in &catalogue.drives {
        let settings = Settings { drive: (*drive).to_owned(), ..Settings::default() };
        assert!(Scene::new(&settings).is_ok_and(|scene| !scene.blocks().is_empty()), "{drive}");
    }
}
