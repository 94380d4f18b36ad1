//! `trimwise reproduce model-ext4`, one shape of it; all of it with `KERNELS=full`. Also checks what is refused before
//! anything boots.

use crate::reproduction::{error, image, is_full, is_met, refused, reproduce};
use serde_json::Value;

/// Returns the result of an experiment, whole or its sample; `None` if its kernel is not built.
fn result(version: &str, experiment: &str, sample: &str) -> Option<Value> {
    image(version)?;
    let only = if is_full() { String::new() } else { format!("--only {sample}") };
    let output = reproduce(&format!("{experiment} {only} --json -")).output().unwrap();
    assert!(output.status.success(), "{}", error(&output));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn the_modelled_ext4_asks_its_drive_for_what_the_real_one_does() {
    let Some(result) = result("6.1", "model-ext4", "mixed") else { return };
    for id in KEPT {
        assert!(is_met(&result, id), "{id}: {:#}", result["claims"]);
    }
    let mut compared = 0;
    for pair in result["rows"].as_array().unwrap() {
        // One commit more or less is much of such a short journal, and depends on which side of 10 s a run ends.
        if pair["kernel"]["commits"] == pair["model"]["commits"] {
            compared += 1;
            // Metadata are a claim only: the README says how far off they are, and that the build decides.
            let [kernel, model] =
                ["kernel", "model"].map(|side| pair[side]["journal_blocks"].as_f64().unwrap());
            assert!((model / kernel - 1.0).abs() <= 0.15, "{pair:#}");
        }
        let discards = pair["policy"] == "commit";
        for side in ["kernel", "model"] {
            let figure = |name: &str| pair[side][name].as_u64().unwrap();
            assert_eq!(figure("discards") > 0, discards, "{side}: {pair:#}");
            for name in
                ["data_blocks", "journal_blocks", "metadata_blocks", "commits", "flushes", "duration_ns"]
            {
                assert!(figure(name) > 0, "{side}, {name}: {pair:#}");
            }
            // Each commit flushes twice, and logs at least a descriptor, a block and a commit block.
            assert!(figure("flushes") >= 2 * figure("commits"), "{side}: {pair:#}");
            assert!(figure("journal_blocks") >= 3 * figure("commits"), "{side}: {pair:#}");
        }
    }
    assert!(compared > 0, "no pair has the same number of commits on both sides: {result:#}");
}

/// The claims that must hold; the experiment's README explains those that do not.
const KEPT: [&str; 2] = ["model-data", "model-duration"];

#[test]
fn what_there_is_not_is_refused_with_what_there_is() {
    refused("model-ext4 --only tiny", &["--only tiny", "small, large, mixed"]);
    refused("model-ext4", &["trimwise kernel build --version 6.1"]);
}
