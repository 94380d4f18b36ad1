//! What spare flash brings: published gains of over-provisioning beside the model, by collector. The table is in
//! `docs/model.md`.

use trimwise::drives::spare::{fusion_io, intel_710, steady};
use trimwise::ssd::VictimPolicy;

const VICTIMS: [VictimPolicy; 4] =
    [VictimPolicy::Greedy, VictimPolicy::Fifo, VictimPolicy::DChoices(2), VictimPolicy::Random];

/// Fails if a figure is not within 1 % of the one in the table.
fn is_as_documented(name: &str, figure: f64, documented: f64) {
    println!("{name}: {figure:.3}");
    assert!((figure / documented - 1.0).abs() < 0.01, "{name}: {figure:.3}, documented {documented}");
}

/// Published: 1.0 PB of random writes, and 1.5 PB with a fifth of the drive unused.
#[test]
fn an_intel_710_with_a_fifth_of_it_unused() {
    for (parity, documented) in [(None, [1.19, 1.19, 1.24, 1.28]), (Some(16), [1.23, 1.24, 1.29, 1.32])] {
        for (victim, documented) in VICTIMS.into_iter().zip(documented) {
            let config = intel_710(victim, parity);
            let amplification = |percent| {
                steady(&config, config.capacity_bytes * percent / 100, 1).unwrap().write_amplification
            };
            let gain = amplification(100) / amplification(80);
            is_as_documented(&format!("{victim:?}, parity {parity:?}"), gain, documented);
        }
    }
}

/// Published: 933.60, 613.48 and 354.37 MiB/s, so 0.66 and 0.38 of the first.
#[test]
fn two_iodrives_with_files_of_100_150_and_200_gib() {
    let documented = [[1.00, 0.67], [1.00, 0.66], [0.74, 0.48], [0.67, 0.42]];
    for (victim, [half, two_thirds]) in VICTIMS.into_iter().zip(documented) {
        let config = fusion_io(victim);
        let [first, second, third] =
            [100, 150, 200].map(|gib| steady(&config, (gib << 30) / 160, 4).unwrap().bytes_per_s);
        println!("{victim:?}: {:.0} MB/s with 100 GiB", first / 1e6);
        is_as_documented(&format!("{victim:?}, 150 GiB"), second / first, half);
        is_as_documented(&format!("{victim:?}, 200 GiB"), third / first, two_thirds);
    }
}
