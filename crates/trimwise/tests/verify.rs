//! `verify` on every profile and firmware, sound and with each fault: the verdict must name what was planted.
//!
//! Drives are shrunk to 512 MiB; see `SsdConfig::shrunk`. The judgement knows nothing of profile or fault.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use trimwise::bench::verify::{Fault, Torture, Verdict, Verification, verify};
use trimwise::bench::{Hooks, Settings};
use trimwise::block::{BlockQueue, ModelDevice, QueueConfig};
use trimwise::content::ContentClass;
use trimwise::engine::Sim;
use trimwise::profile::Profile;
use trimwise::ssd::{Drive, Faults, ReadAfterTrim, SsdConfig, TrimConfig};
use trimwise::units::Bytes;

const CAPACITY: Bytes = Bytes::mib(512);

fn run(config: &SsdConfig, faults: Faults) -> Verification {
    let sim = Sim::new();
    let queue = BlockQueue::new(&sim, Drive::new(config, faults, 1).unwrap(), QueueConfig::default());
    let device = ModelDevice::new(queue, "a device");
    // HD Tach and ATTO use such data too. What a compressing drive does with other data is another question.
    let settings = Settings { content: ContentClass::Compressible, ..Settings::default() };
    let run = async move {
        verify(&device, &settings, &Torture::default(), Hooks::default()).await.unwrap().unwrap()
    };
    sim.run(run).unwrap()
}

/// The faults that a drive with this TRIM can have, and what must be said of each.
fn plants(trim: &TrimConfig) -> Vec<(&'static str, Faults, Verdict, Vec<Fault>)> {
    let sound = Faults::default();
    if !trim.is_supported() {
        return vec![("no TRIM", sound, Verdict::Unsupported, vec![])];
    }
    let mut plants = vec![
        ("sound", sound, Verdict::RestoresFully, vec![]),
        ("ignores", Faults { ignores_trim: true, ..sound }, Verdict::Ignored, vec![Fault::IgnoresTrim]),
        ("partial", Faults { trims_percent: 50, ..sound }, Verdict::RestoresInPart, vec![Fault::TrimsInPart]),
        ("wrong range", Faults { trim_shift_units: 24, ..sound }, Verdict::Harmful, vec![Fault::WrongRange]),
        ("far off", Faults { trim_shift_units: 100_003, ..sound }, Verdict::Harmful, vec![Fault::WrongRange]),
    ];
    if trim.is_queued() {
        let late = Faults { queued_trim_late_writes: 100, ..sound };
        plants.push(("late", late, Verdict::Harmful, vec![Fault::LateTrim]));
    }
    if trim.read_after == ReadAfterTrim::Zeros {
        let broken = Faults { breaks_zeros_promise: true, ..sound };
        plants.push(("promise", broken, Verdict::Harmful, vec![Fault::BreaksZerosPromise]));
    }
    plants
}

#[test]
fn every_profile_and_fault_gets_its_verdict() {
    let names: Vec<String> = Profile::embedded_names().map(str::to_owned).collect();
    let mut cases = Vec::new();
    for name in &names {
        let profile = Profile::embedded(name).unwrap();
        let config = profile.config.shrunk(CAPACITY.0).unwrap();
        let config = SsdConfig { track_tags: true, ..config };
        for (what, faults, verdict, named) in plants(&config.trim) {
            cases.push((name.clone(), what, config.clone(), faults, verdict, named));
        }
    }
    let (next, lines) = (AtomicUsize::new(0), Mutex::new(vec![None; cases.len()]));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some((name, what, config, faults, verdict, named)) = cases.get(index) else { return };
                    let found = run(config, *faults);
                    // The planted fault must be named; a wrong range also leaves something that TRIM does not restore.
                    let names_it = named.iter().all(|fault| found.judgement.faults.contains(fault));
                    let only = named.len() == found.judgement.faults.len() || *verdict == Verdict::Harmful;
                    let right = found.judgement.verdict == *verdict && names_it && only;
                    let s = found.evidence.speeds;
                    let speeds = [s.clean, s.tortured, s.trimmed, s.trimmed_again]
                        .map(|s| format!("{:>5.0} {:>5.0}", s.read_mb_per_s, s.write_mb_per_s));
                    let line = format!(
                        "{} {name:<24} {what:<12} {:<18} {}",
                        if right { "    " } else { "BAD " },
                        found.judgement.verdict.text(),
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
