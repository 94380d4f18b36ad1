//! `verify` on every profile and firmware, sound and with each fault: the verdict must name what was planted.
//!
//! Drives are shrunk to 512 MiB; see `SsdConfig::shrunk`. The judgement knows nothing of profile or fault.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use trimwise::block::{BlockQueue, ModelDevice, QueueConfig};
use trimwise::content::ContentClass;
use trimwise::engine::Sim;
use trimwise::profile::Profile;
use trimwise::ssd::{Drive, Faults, ReadAfterTrim, SsdConfig, TrimConfig};
use trimwise::units::Bytes;
use trimwise_lab::bench::verify::{Fault, Torture, Verdict, Verification, verify};
use trimwise_lab::bench::{Hooks, Settings};

const CAPACITY: Bytes = Bytes::mib(512);

fn run(config: &SsdConfig, faults: Faults) -> Verification {
    let sim = Sim::new();
    let queue = BlockQueue::new(&sim, Drive::new(config, faults, 1).unwrap(), QueueConfig::default());
    let device = ModelDevice::new(queue, "a device");
    // HD Tach and ATTO use such data too. What a compressing drive does with other data is another question.
    let settings = Settings { content: ContentClass::Compressible, ..Settings::default() };
    let run = async move { verify(&device, &settings, &Torture::default(), Hooks::default()).await.unwrap() };
    sim.run(run).unwrap()
}

/// What is planted, under the name that the table shows.
#[derive(Clone, Copy)]
struct Plant(&'static str, Faults);

/// What must be said of a drive with these faults, of which it has one at most.
fn expected(trim: &TrimConfig, faults: &Faults) -> (Verdict, Option<Fault>) {
    match faults {
        _ if !trim.is_supported() => (Verdict::Unsupported, None),
        Faults { ignores_trim: true, .. } => (Verdict::Ignored, Some(Fault::IgnoresTrim)),
        Faults { trims_percent: 0..100, .. } => (Verdict::RestoresInPart, Some(Fault::TrimsInPart)),
        Faults { trim_shift_units: 1.., .. } => (Verdict::Harmful, Some(Fault::WrongRange)),
        Faults { queued_trim_late_writes: 1.., .. } => (Verdict::Harmful, Some(Fault::LateTrim)),
        Faults { breaks_zeros_promise: true, .. } => (Verdict::Harmful, Some(Fault::BreaksZerosPromise)),
        _ => (Verdict::RestoresFully, None),
    }
}

/// The faults that a drive with this TRIM can have.
fn plants(trim: &TrimConfig) -> Vec<Plant> {
    let sound = Faults::default();
    if !trim.is_supported() {
        return Vec::new();
    }
    let mut plants = vec![
        Plant("ignores", Faults { ignores_trim: true, ..sound }),
        Plant("partial", Faults { trims_percent: 50, ..sound }),
        Plant("wrong range", Faults { trim_shift_units: 24, ..sound }),
        Plant("far off", Faults { trim_shift_units: 100_003, ..sound }),
    ];
    if trim.is_queued() {
        plants.push(Plant("late", Faults { queued_trim_late_writes: 100, ..sound }));
    }
    if trim.read_after == ReadAfterTrim::Zeros {
        plants.push(Plant("promise", Faults { breaks_zeros_promise: true, ..sound }));
    }
    plants
}

/// A profile or one of its firmware variants, and what is planted there besides what it does wrong by itself.
fn cases_of(name: &str, base: Option<&Profile>) -> Vec<(String, Plant, SsdConfig)> {
    let profile = Profile::embedded(name).unwrap();
    let config = profile.config.shrunk(CAPACITY.0).unwrap();
    let config = SsdConfig { track_tags: true, ..config };
    let own = match profile.faults.is_sound() {
        _ if !config.trim.is_supported() => "no TRIM",
        true => "sound",
        false => "its own",
    };
    let mut plants_here = vec![Plant(own, profile.faults)];
    if profile.faults.is_sound() {
        // A variant that treats TRIM as its profile does is planted one fault, and none if it is the same drive.
        let is_same = base.is_some_and(|base| base.config == profile.config);
        let has_same_trim = base.is_some_and(|base| base.config.trim == profile.config.trim);
        let most = if is_same {
            0
        } else if has_same_trim {
            1
        } else {
            usize::MAX
        };
        plants_here.extend(plants(&config.trim).into_iter().take(most));
    }
    let mut cases: Vec<_> =
        plants_here.into_iter().map(|plant| (name.to_owned(), plant, config.clone())).collect();
    for variant in profile.firmware_variants.iter().filter(|_| base.is_none()) {
        cases.extend(cases_of(&format!("{name}@{}", variant.version), Some(&profile)));
    }
    cases
}

#[test]
fn every_profile_firmware_and_fault_gets_its_verdict() {
    let cases: Vec<_> = Profile::embedded_names().flat_map(|name| cases_of(name, None)).collect();
    let has = |name: &str, what: &str| cases.iter().any(|(n, plant, _)| n == name && plant.0 == what);
    assert!(has("sandforce-240gb@5.0.2", "its own") && !has("sandforce-240gb@5.0.2", "partial"));
    assert!(has("vertex-60gb@1.41", "no TRIM") && has("vertex-60gb@1.4", "ignores"));
    let (next, lines) = (AtomicUsize::new(0), Mutex::new(vec![None; cases.len()]));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some((name, Plant(what, faults), config)) = cases.get(index) else { return };
                    let (verdict, named) = expected(&config.trim, faults);
                    let found = run(config, *faults);
                    let judgement = found.judgement.unwrap();
                    // The planted fault must be named; a wrong range also leaves something that TRIM does not restore.
                    let names_it = named.is_none_or(|fault| judgement.faults.contains(&fault));
                    let only = judgement.faults.len() == usize::from(named.is_some());
                    let right =
                        judgement.verdict == verdict && names_it && (only || verdict == Verdict::Harmful);
                    let speeds = found.evidence.speeds.stages().map(|(_, speed)| match speed {
                        Some(s) => format!("{:>5.0} {:>5.0}", s.read_mb_per_s, s.write_mb_per_s),
                        None => format!("{:>5} {:>5}", "-", "-"),
                    });
                    let line = format!(
                        "{} {name:<24} {what:<12} {:<18} {}",
                        if right { "    " } else { "BAD " },
                        judgement.verdict.text(),
                        speeds.join(" | ")
                    );
                    lines.lock().unwrap()[index] = Some((right, line));
                }
            });
        }
    });
    let lines: Vec<(bool, String)> = lines.into_inner().unwrap().into_iter().flatten().collect();
    let table: Vec<&str> = lines.iter().map(|(_, line)| line.as_str()).collect();
    println!("{}", table.join("\n"));
    assert_eq!(lines.len(), cases.len());
    let bad: Vec<&str> = lines.iter().filter(|(right, _)| !right).map(|(_, line)| line.as_str()).collect();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}
