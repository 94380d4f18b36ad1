//! A sound and a faulty drive of each kind; the whole table of profiles and faults is in `tests/experiments/verify.rs`.

use trimwise::block::{BlockQueue, ModelDevice, QueueConfig};
use trimwise::engine::Sim;
use trimwise::profile::Profile;
use trimwise::ssd::{Drive, Faults, SsdConfig};

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
