//! `trimwise reproduce kernels` on real kernels: ext4 of 6.1, or with `KERNELS=full` every built kernel and every file
//! system. Also checks what is refused before anything boots.

use crate::reproduction::{error, image, is_full, is_met, refused, reproduce};
use serde_json::Value;

#[test]
fn real_kernels_discard_as_the_source_says_and_the_same_each_time() {
    if image("6.1").is_none() {
        return;
    }
    let arguments = if is_full() { "kernels --json -" } else { "kernels --only 6.1:ext4 --json -" };
    let [first, second] = [(); 2].map(|()| reproduce(arguments).output().unwrap());
    assert!(first.status.success() && second.status.success(), "{}{}", error(&first), error(&second));
    assert!(first.stdout == second.stdout, "two runs differ");

    let result: Value = serde_json::from_slice(&first.stdout).unwrap();
    for id in
        ["kernels-gaps-free-6.1", "kernels-gaps-occupied-6.1", "kernels-when-6.1", "kernels-fitrim-ext4"]
    {
        assert!(is_met(&result, id), "{id}: {:#}", result["claims"]);
    }
    let runs = result["rows"]["deletions"].as_array().unwrap();
    let of = |options: &str| {
        let is_it = |run: &&Value| {
            run["kernel"] == "6.1" && run["file_system"] == "ext4" && run["options"] == options
        };
        &runs.iter().find(is_it).unwrap()["deletions"]
    };
    for (i, extents) in [1000..=1024, 1..=64, 1000..=1024].into_iter().enumerate() {
        let (with, without) = (&of("discard")[i], &of("nodiscard")[i]);
        assert_eq!(without["discards"]["commands"], 0);
        // The appends after the removal reuse some of its blocks before the worker reaches them.
        let bytes = |name: &str| with[name].as_u64().unwrap();
        assert!(
            bytes("covered_bytes") >= bytes("freed_bytes") / 1000 * 999,
            "all that was freed is discarded: {with:#}"
        );
        let pieces = with["extents"].as_u64().unwrap();
        assert!(extents.contains(&pieces), "{}: {pieces} pieces", with["layout"]);
    }
}

#[test]
fn what_there_is_not_is_refused_with_what_there_is() {
    refused("kernels --only 4.4", &["--only 4.4", "5.10, 6.1, 6.12", "ext4, xfs, btrfs, f2fs"]);
    refused("kernels --only 6.1:zfs", &["--only 6.1:zfs", "ext4, xfs, btrfs, f2fs"]);
    refused("kernels --only 6.1", &["trimwise kernel build --version 6.1"]);
    refused("kernels", &["--version 5.10", "--version 6.1", "--version 6.12"]);
    refused("settling --only 6.1", &["--only", "settling"]);
}
