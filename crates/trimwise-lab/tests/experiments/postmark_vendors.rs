//! The experiment `postmark-vendors`, sampled: one repetition of the columns of the slowest trimmer and of a quick one, judged
//! by what nothing was fitted to: the unbuffered columns, and the deletion phase of all columns as its claim states it.
//!
//! All of it: `cargo run --release -- reproduce postmark-vendors`.

use std::thread;

use trimwise_lab::experiment::postmark_vendors::{Means, columns, evaluate, run_column};
use trimwise_lab::experiment::result::{Claim, Role};

/// The means of a drive's columns, and its checks.
fn checks(device: &str) -> (Vec<Means>, Vec<Claim>) {
    let columns = columns(&[device.to_owned()]);
    let means: Vec<Means> = columns.iter().map(|&column| run_column(column, 1, 1, &|| ()).unwrap()).collect();
    let claims = evaluate(&columns, &means, 1).claims;
    (means, claims.into_iter().filter(|claim| claim.role == Role::Check).collect())
}

fn open(checks: &[Claim]) -> Vec<&str> {
    checks.iter().filter(|claim| !claim.met).map(|claim| claim.id.as_str()).collect()
}

#[test]
fn what_was_not_fitted_of_the_slowest_and_of_a_quick_trimmer() {
    let [(means, slowest), (_, quick)] = thread::scope(|scope| {
        ["vendor2", "vendor5"]
            .map(|device| scope.spawn(move || checks(device)))
            .map(|run| run.join().unwrap())
    });
    let ids: Vec<&str> = quick.iter().map(|claim| claim.id.as_str()).collect();
    assert_eq!(ids, ["postmark-vendors", "postmark-deletion", "postmark-alone", "postmark-small"]);
    assert_eq!(open(&quick), [""; 0], "{quick:#?}");
    // The README says what is known of this drive's deletion phase.
    assert_eq!(open(&slowest), ["postmark-deletion"], "{slowest:#?}");
    assert_eq!(slowest.len(), 4);

    // A cost for each deleted file would be the same in both phases. The published ratio is about 50 to 1: the
    // foreground does not wait for the commits of files that it only deletes.
    let [off, on] = [&means[0], &means[1]];
    let in_transactions_s = 50_000.0 / on.transactions_per_s() - 50_000.0 / off.transactions_per_s();
    let each_transaction_ms = 1e3 * in_transactions_s / 25_239.0;
    let each_deletion_ms = 1e3 * (on.deletion_s - off.deletion_s) / 49_522.0;
    assert!(each_transaction_ms > 50.0, "{each_transaction_ms} ms");
    assert!(each_deletion_ms < each_transaction_ms / 20.0, "{each_deletion_ms} ms");
}
