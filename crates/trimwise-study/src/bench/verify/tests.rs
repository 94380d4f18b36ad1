//! A sound and a faulty drive of each kind; the whole table of profiles and faults is in `tests/experiments/verify.rs`.

use trimwise::block::{BlockQueue, ModelDevice, QueueConfig};
use trimwise::engine::Sim;
use trimwise::profile::Profile;
use trimwise::ssd::{Drive, Faults, SsdConfig};

use super::super::tests::{Fabricated, polled};
use super::*;

fn verified(name: &str, faults: Faults) -> Judgement {
    let config = Profile::embedded(name).unwrap().config.shrunk(Bytes::gib(1).0).unwrap();
    let config = SsdConfig { track_tags: true, ..config };
    let sim = Sim::new();
    let queue = BlockQueue::new(&sim, Drive::new(&config, faults, 1).unwrap(), QueueConfig::default());
    let device = ModelDevice::new(queue, name);
    let run = async move {
        verify(&device, &Settings::default(), &Torture::default(), Hooks::default()).await.unwrap()
    };
    sim.run(run).unwrap().judgement.unwrap()
}

#[test]
fn a_sound_drive_restores_and_one_that_ignores_trim_is_found_out() {
    let sound = verified("sata-small", Faults::default());
    assert_eq!(sound.verdict, Verdict::RestoresFully, "{sound:#?}");
    let ignoring = verified("sata-small", Faults { ignores_trim: true, ..Faults::default() });
    assert_eq!(ignoring.verdict, Verdict::Ignored, "{ignoring:#?}");
    assert_eq!(ignoring.faults, [Fault::IgnoresTrim]);
}

/// The device forgets all data: enough to see what is done to it.
#[test]
fn a_real_device_is_measured_often_and_erased_only_as_a_whole() {
    for (part, is_whole) in [("0:100", true), ("50:50", false)] {
        let mut device = Fabricated::new(Bytes::mib(512), |_, _| SimDuration::from_micros(100));
        device.facts.is_model = false;
        device.facts.trim.as_mut().unwrap().promises_zeros = true;
        let settings = Settings { region: part.parse().unwrap(), ..Settings::default() };
        let torture = Torture { written_percent: 1, ..Torture::default() };
        let verification = polled(verify(&device, &settings, &torture, Hooks::default())).unwrap();
        let Verification { evidence, did, judgement, .. } = verification;
        for measured in &evidence.measured {
            assert_eq!((measured.reads_mb_per_s.len(), measured.writes_mb_per_s.len()), (5, 5));
        }
        assert_eq!((evidence.is_clean_by_erase, did.whole_device_erases), (is_whole, u64::from(is_whole)));
        assert!(evidence.takes_trim && evidence.promises_zeros);
        let lost = evidence.integrity;
        assert!(lost.kept_units > 0 && lost.kept_lost_units == lost.kept_units, "{lost:?}");
        assert!(lost.rewritten_units > 0 && lost.rewritten_lost_units == lost.rewritten_units, "{lost:?}");
        let judgement = judgement.unwrap();
        assert_eq!(judgement.verdict, Verdict::Harmful);
        assert_eq!(judgement.faults, [Fault::WrongRange], "one cause explains both");
        assert_eq!(evidence.rounds, 1, "lost data leave no doubt");
    }
}
