//! `trimwise reproduce lazy-3 --on kernel`, one or two append sizes: on a stock kernel, on one that has the papers'
//! policies, and (with the feature `kernel-5-10-tests`) on one that discards inside the commit. All of the papers'
//! experiments on the second with `KERNELS=full`. Also checks what is refused before anything boots.

use serde_json::Value;

use crate::reproduction::{error, image, is_met, refused, reproduce};

/// Returns the result of an experiment on this kernel; `None` if it is not built.
fn result(kernel: &str, experiment: &str) -> Option<Value> {
    image(kernel)?;
    let output = reproduce(&format!("{experiment} --on kernel:{kernel}:ext4 --json -")).output().unwrap();
    assert!(output.status.success(), "{}", error(&output));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[track_caller]
fn assert_met(result: &Value, ids: &[&str]) {
    for id in ids {
        assert!(is_met(result, id), "{id}: {:#}", result["claims"]);
    }
}

#[test]
fn fsync_behind_a_removal_takes_as_long_in_the_model_as_on_the_real_ext4() {
    let Some(result) = result("6.1", "lazy-3 --only 1024") else { return };
    assert_met(&result, &["lazy-3-model-commit", "lazy-3-model-off"]);
    assert_eq!(result["kernel"]["name"], "6.1");
    let claims = result["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 2, "a stock kernel is asked nothing about policies that it lacks");
}

#[test]
#[cfg(feature = "kernel-5-10-tests")]
fn discards_inside_the_commit_take_as_long_in_the_model_as_on_the_real_ext4() {
    let Some(result) = result("5.10", "lazy-3 --only 64 1024") else { return };
    assert_met(&result, &["lazy-3-grows", "lazy-3-off-64k", "lazy-3-model-commit", "lazy-3-model-off"]);
}

#[test]
fn the_papers_claims_hold_on_the_real_ext4_as_far_as_they_did() {
    const KERNEL: &str = "6.12+ext4-trim";
    let Some(lazy) = result(KERNEL, "lazy-3 --only 64 1024") else { return };
    assert_met(&lazy, &["lazy-fsync-64k", "lazy-fsync-all-sizes", "lazy-fsync-spread", "lazy-3-model-lazy"]);
    if crate::reproduction::is_full() {
        for experiment in ["lazy-4", "lazy-table2", "set-1a", "set-1b"] {
            let result = result(KERNEL, experiment).unwrap();
            let near = |claim: &&Value| claim["id"].as_str().is_some_and(|id| id.contains("-model-"));
            let near: Vec<&Value> = result["claims"].as_array().unwrap().iter().filter(near).collect();
            assert!(!near.is_empty(), "{experiment}");
            println!("{experiment}: {near:#?}");
        }
    }
}

#[test]
fn what_there_is_not_is_refused_with_what_there_is() {
    refused("lazy-3 --on kernel:6.1:ext4 --only 48", &["--only 48", "64, 128"]);
    refused("set-1a --on kernel:6.1:ext4 --only 15", &["--only 15", "10, 20"]);
    refused("set-1b --on kernel:6.1:ext4 --only lazy", &["--only lazy", "off, commit"]);
    refused("lazy-table2 --on kernel:6.1:xfs", &["about ext4"]);
    refused("lazy-4 --on kernel", &["trimwise kernel build --version 6.12 --with"]);
    refused("lazy-3 --on kernel:5.10:ext4", &["trimwise kernel build --version 5.10"]);
    refused("lazy-3 --on dir:/tmp", &["--on dir:/tmp", "`kernel`"]);
    refused("lazy-3 --only 64", &["--only 64", "--on kernel"]);
    refused("set-1a --full", &["--full", "--on kernel"]);
    refused("capacity --on kernel", &["capacity", "set-1b"]);
}
