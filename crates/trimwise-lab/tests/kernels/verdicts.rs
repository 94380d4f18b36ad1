//! `trimwise reproduce verdicts-ext4`, one cell of it on 6.1; all of it with `KERNELS=full`.

use crate::reproduction::{error, image, is_full, is_met, refused, reproduce};
use serde_json::Value;

#[test]
fn the_model_says_of_a_mail_spool_what_the_real_ext4_says() {
    if image("6.1").is_none() {
        return;
    }
    let only = if is_full() { "" } else { "--only 6.1 spool sata-small 80%" };
    let output = reproduce(&format!("verdicts-ext4 {only} --reps 1 --json -")).output().unwrap();
    assert!(output.status.success(), "{}", error(&output));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let kept: &[&str] = if is_full() { &OF_ALL } else { &OF_CELL };
    for id in kept {
        assert!(is_met(&result, id), "{id}: {:#}", result["claims"]);
    }
    for row in result["rows"].as_array().unwrap() {
        for side in ["kernel", "model"] {
            let side = &row[side][0];
            assert!(side["data_blocks"].as_u64().unwrap() > 0, "{row:#}");
            // `off` sends no TRIM.
            assert!(row["policy"] != "off" || side["discards"] == 0, "{row:#}");
        }
    }
}

/// On a new file system, where neither the drive's history nor memory decides when data are written: each block of a
/// file lies where the kernel puts it, and each commit frees what the kernel's frees.
#[test]
fn the_model_frees_commit_by_commit_what_the_real_ext4_frees() {
    if image("6.12").is_none() {
        return;
    }
    let output = reproduce("verdicts-ext4 --explain spool 0% --json -").output().unwrap();
    assert!(output.status.success(), "{}", error(&output));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&result["difference"], &result["allocation"]), (&Value::Null, &Value::Null));
    let extents = |side: &str| -> Vec<Value> {
        let commits = result[side]["commits"].as_array().unwrap();
        commits.iter().map(|commit| commit["extents"].clone()).collect()
    };
    // Of 9,000 mails 3,000 are kept.
    let (kernel, model) = (extents("kernel"), extents("model"));
    assert!(kernel.len() > 5_900, "{}", kernel.len());
    assert_eq!(kernel, model);
}

#[test]
fn a_cell_that_cannot_be_explained_is_refused_with_what_can_be() {
    refused(
        "verdicts-ext4 --explain tiny",
        &["--explain tiny", "spool", "nvme-generic", "0%", "PostMark file"],
    );
    refused("verdicts-ext4 --explain mail spool", &["one workload"]);
    refused("verdicts-ext4 --explain mail 64MiB", &["at least 128 MiB"]);
    refused("verdicts-ext4 --explain /nowhere.pm", &["/nowhere.pm", "No such file"]);
    refused("lazy-3 --explain mail", &["--explain", "verdicts-ext4"]);
}

/// The claims that hold over all cells, and those that hold in this one.
const OF_ALL: [&str; 2] = ["verdicts-duration", "verdicts-wa"];
const OF_CELL: [&str; 5] =
    ["verdicts-agree", "verdicts-misleading", "verdicts-duration", "verdicts-data", "verdicts-wa"];

#[test]
fn cells_that_there_are_not_are_refused_with_those_there_are() {
    refused("verdicts-ext4 --only tiny", &["--only tiny", "spool", "nvme-generic", "50%"]);
    refused("verdicts-ext4", &["trimwise kernel build --version 6.12"]);
}
