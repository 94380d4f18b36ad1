//! A model measured as if it were a drive, and fitted from the profile of another.

use super::*;
use trimwise::block::{BlockQueue, ModelDevice, QueueConfig};
use trimwise::engine::Sim;
use trimwise::profile::SettingValue;
use trimwise::profile::ranges::{Factor, Range};
use trimwise::ssd::{Ssd, TrimPlace};
use trimwise::units::SimDuration;

fn measured(truth: &Profile, read_only: bool) -> (Measured, Plan) {
    measured_for(truth, read_only, 30)
}

fn measured_for(truth: &Profile, read_only: bool, seconds: u64) -> (Measured, Plan) {
    let sim = Sim::new();
    let ssd = Ssd::new(&sized(&truth.config).unwrap(), 7).unwrap();
    let device = ModelDevice::new(BlockQueue::new(&sim, ssd, QueueConfig::default()), truth.name.clone());
    let region = check(device.facts()).unwrap();
    let plan = Plan { region, read_only, time: SimDuration::from_secs(seconds), seed: 1 };
    let measured = sim.run(async move {
        if read_only {
            fill(&device, plan).await?;
        }
        measure(&device, plan, &|_, _| {}).await
    });
    (measured.unwrap().unwrap(), plan)
}

/// What the truth has where a fit claims a number. Of two pairs of settings only the sum or the product shows.
fn true_value(truth: &Profile, fitted: &Profile, setting: &str) -> Option<u64> {
    let own = truth.settings.iter().find(|s| s.name == setting).map(|s| s.value.clone());
    let page = |profile: &Profile| u64::from(profile.config.geometry.page_bytes);
    let range = |profile: &Profile| profile.config.trim.cost_per_range_ns;
    match (setting, own) {
        ("trim.cost_per_command_ns", Some(SettingValue::Whole(value))) => {
            Some((value + range(truth)).saturating_sub(range(fitted)))
        }
        ("geometry.planes_per_die", Some(SettingValue::Whole(value))) => {
            Some(value * page(truth) / page(fitted))
        }
        ("trim.cost_per_mapped_unit_ns" | "trim.latency_per_command_ns", None) => Some(0),
        (_, Some(SettingValue::Whole(value))) => Some(value),
        _ => None,
    }
}

/// Fits `truth` from `base`: each number of the truth lies in its interval, and what is held back is predicted.
fn finds_again(truth: &str, base: &str) -> Fitted {
    let (truth, base) = (Profile::embedded(truth).unwrap(), Profile::embedded(base).unwrap());
    let (measured, plan) = measured(&truth, false);
    let fitted = fit(&measured, &base, "fitted", plan, &Arc::default()).unwrap();
    let mut compared = 0;
    for fit in &fitted.fits {
        let Some((low, high)) = fit.interval else { continue };
        let Some(value) = true_value(&truth, &fitted.profile, fit.setting) else { continue };
        assert!((low..=high).contains(&value), "{}: {fit:?}, and it is {value}", truth.name);
        // An interval that holds everything would prove nothing. Of what is not there, only an upper bound is known.
        assert!(value == 0 || high < 4 * value.max(1_000), "{}: {fit:?}", truth.name);
        compared += 1;
    }
    assert!(compared >= 10, "{}: only {compared} numbers: {:?}", truth.name, fitted.fits);
    assert_eq!(fitted.predictions.len(), 5);
    for prediction in &fitted.predictions {
        assert!(prediction.error_percent.abs() <= 10.0, "{}: {prediction:?}", truth.name);
    }
    let worst =
        |of: fn(&Prediction) -> f64| fitted.predictions.iter().map(of).fold(0.0, |a, b| f64::max(a, b.abs()));
    let (own, bases) = (worst(|p| p.error_percent), worst(|p| p.base_error_percent));
    assert!(bases > 20.0, "{}: the base predicts as well: {own} and {bases}", truth.name);
    fitted
}

#[test]
fn a_sata_drive_is_found_again_and_each_value_says_where_it_comes_from() {
    let fitted = finds_again("sata-small", "sata-generic");
    let profile = Profile::parse(&fitted.toml, "fitted.toml").unwrap();
    assert_eq!(profile.settings, fitted.profile.settings);
    for setting in &profile.settings {
        let source = profile.source(&setting.name).unwrap();
        let starts = ["fitted: ", "taken from sata-generic", "follows from fitted settings"];
        assert!(starts.iter().any(|start| source.starts_with(start)), "{}: {source}", setting.name);
    }
    let of_read = profile.source("nand.t_read_ns").unwrap();
    assert!(
        of_read.contains(" [") && of_read.contains("] 95 %, ") && of_read.ends_with(" samples"),
        "{of_read}"
    );
    assert!(profile.source("gc.victim").unwrap().starts_with("taken from"));
    assert!(profile.fitted().any(|setting| setting == "link.bytes_per_s"));
}

#[test]
fn a_drive_whose_trims_work_on_in_the_background_is_found_again() {
    let fitted = finds_again("vendor6", "vendor5");
    let trim = &fitted.profile.config.trim;
    assert_eq!(trim.place, trimwise::ssd::TrimPlace::Background);
    assert_eq!(trim.slowdown_percent, 100);
}

#[test]
fn a_queued_trim_is_found_again_what_it_occupies_apart_from_what_it_only_takes() {
    let truth = Profile::embedded("ufs21-64gb").unwrap();
    let mut base = truth.clone();
    base.config.trim.cost_per_command_ns /= 2;
    base.config.trim.latency_per_command_ns /= 2;
    let (measured, plan) = measured_for(&truth, false, 2);
    let fitted = fit(&measured, &base, "fitted", plan, &Arc::default()).unwrap();
    let (found, told) = (&fitted.profile.config.trim, &truth.config.trim);
    for (setting, found, told) in [
        ("trim.cost_per_command_ns", found.cost_per_command_ns, told.cost_per_command_ns),
        ("trim.latency_per_command_ns", found.latency_per_command_ns, told.latency_per_command_ns),
    ] {
        assert!(told > 0 && found.abs_diff(told) * 20 < told, "{setting}: {found}, not {told}");
        assert!(fitted.fits.iter().any(|fit| fit.setting == setting), "{setting}: {:?}", fitted.fits);
    }
}

#[test]
fn a_drive_that_begins_to_collect_does_not_tell_its_cache() {
    let mut truth = Profile::embedded("sata-small").unwrap();
    truth.config.capacity_bytes = Bytes::gib(1).0;
    truth.config.geometry.pages_per_block = 32;
    let base = Profile::embedded("sata-small").unwrap();
    let (measured, plan) = measured_for(&truth, false, 5);
    let fitted = fit(&measured, &base, "fitted", plan, &Arc::default()).unwrap();
    let limits = ["cache.bytes", "controller.write_bytes_per_s"];
    assert!(fitted.fits.iter().all(|fit| !limits.contains(&fit.setting)), "{:?}", fitted.fits);
    assert!(
        fitted.notes.iter().any(|note| note.contains("cache size could not be fitted")),
        "{:?}",
        fitted.notes
    );
}

fn make_writes_wait(measured: &mut Measured) {
    for (i, sized) in measured.samples.writes.iter_mut().enumerate() {
        sized.latencies_ns.iter_mut().for_each(|ns| *ns *= 8.0 + i as f64);
    }
}

#[test]
fn a_profile_does_not_contradict_its_measurements_and_says_where_it_is_the_worse_one() {
    // A busy host: single commands wait for a processor, loads do not.
    let base = Profile::embedded("sata-small").unwrap();
    let (mut measured, plan) = measured_for(&base, false, 5);
    make_writes_wait(&mut measured);
    let trims = measured.samples.trims.iter_mut();
    trims.for_each(|sized| sized.latencies_ns.iter_mut().for_each(|ns| *ns *= 8.0));
    let fitted = fit(&measured, &base, "fitted", plan, &Arc::default()).unwrap();
    let link = fitted.profile.config.link.bytes_per_s as f64;
    let seen = measured.held.iter().filter_map(|held| held.bytes_per_s);
    let seen = seen.chain(measured.samples.numbers().sequential_read).fold(0.0, f64::max);
    assert!(link >= 0.999 * seen, "{link} and {seen}");
    assert!(fitted.predicts_worse, "the base is the truth: {:?}", fitted.predictions);
    assert!(fitted.warnings[0].contains("keep sata-small: the fit predicts worse"), "{:?}", fitted.warnings);
    assert!(fitted.toml.contains("# Warning: keep sata-small"));
}

/// The Toshiba RC100 holds others up for a second while 4 GB are deleted.
#[test]
fn a_verdict_hangs_no_more_on_what_a_trim_takes_once_that_is_measured() {
    let base = Profile::embedded("nvme-500gb-dramless").unwrap();
    let mut truth = base.clone();
    (truth.config.trim.cost_per_unit_ns, truth.config.trim.place) = (1_000, TrimPlace::BeforeAck);
    let of_trim = |range: &Range| range.setting.factor() == Factor::TrimCost;
    assert!(base.ranges().iter().any(of_trim));
    let (measured, plan) = measured_for(&truth, false, 30);
    let fitted = fit(&measured, &base, "fitted", plan, &Arc::default()).unwrap();
    let trim = &fitted.profile.config.trim;
    assert!((990..=1_010).contains(&trim.cost_per_unit_ns) && trim.place == TrimPlace::BeforeAck, "{trim:?}");
    assert!(!fitted.profile.ranges().iter().any(of_trim));
}

#[test]
fn what_a_trim_takes_is_kept_where_the_rest_of_the_fit_is_worse_than_the_base() {
    let base = Profile::embedded("sata-small").unwrap();
    let mut truth = base.clone();
    truth.config.trim.cost_per_unit_ns = 2_000;
    let (mut measured, plan) = measured_for(&truth, false, 5);
    make_writes_wait(&mut measured);
    for (i, sized) in measured.samples.reads.iter_mut().enumerate() {
        sized.latencies_ns.iter_mut().for_each(|ns| *ns *= 8.0 + i as f64);
    }
    let fitted = fit(&measured, &base, "fitted", plan, &Arc::default()).unwrap();
    let config = &fitted.profile.config;
    assert!((1_900..=2_100).contains(&config.trim.cost_per_unit_ns), "{:?}", config.trim);
    assert_eq!(
        (&config.cache, &config.nand, &config.link),
        (&base.config.cache, &base.config.nand, &base.config.link)
    );
    assert!(!fitted.predicts_worse, "{:?}", fitted.predictions);
    assert!(fitted.fits.iter().all(|fit| fit.setting.starts_with("trim.")), "{:?}", fitted.fits);
    assert!(fitted.notes.iter().any(|note| note.starts_with("only what a TRIM takes")), "{:?}", fitted.notes);
}

#[test]
fn reads_alone_tell_of_reads_alone() {
    let (truth, base) =
        (Profile::embedded("sata-240gb-2012").unwrap(), Profile::embedded("sata-generic").unwrap());
    let (measured, plan) = measured(&truth, true);
    assert!(measured.samples.writes.is_empty() && measured.samples.trims.is_empty());
    let fitted = fit(&measured, &base, "fitted", plan, &Arc::default()).unwrap();
    assert_eq!(fitted.profile.config.trim, base.config.trim);
    assert_eq!(fitted.profile.config.cache, base.config.cache);
    assert!(fitted.fits.iter().any(|fit| fit.setting == "nand.t_read_ns"), "{:?}", fitted.fits);
    assert_eq!(fitted.predictions.len(), 2);
}

#[test]
fn a_drive_without_trim_is_fitted_without_it() {
    let mut truth = Profile::embedded("sata-small").unwrap();
    truth.config.trim = trimwise::ssd::TrimConfig::unsupported();
    let base = Profile::embedded("sata-generic").unwrap();
    let fitted = || {
        let (measured, plan) = measured(&truth, false);
        fit(&measured, &base, "fitted", plan, &Arc::default()).unwrap()
    };
    let first = fitted();
    assert!(!first.profile.config.trim.is_supported());
    assert!(first.profile.source("trim.kind").unwrap().contains("reports no TRIM"));
    assert_eq!((first.predictions.len(), first.read_beside_trims), (4, None));
    assert_eq!(fitted().toml, first.toml, "the same measurements give the same file");
}

#[test]
fn too_small_a_target_is_refused() {
    let facts = |bytes: Bytes| DeviceFacts {
        name: "small".to_owned(),
        size_units: bytes.units_floor(),
        sector_bytes: 512,
        trim: None,
        is_model: true,
    };
    let refused = check(&facts(Bytes::mib(32))).unwrap_err().to_string();
    assert!(refused.contains("expected at least 64 MiB"), "{refused}");
    assert!(check(&facts(REGION_MIN)).is_ok());
}
