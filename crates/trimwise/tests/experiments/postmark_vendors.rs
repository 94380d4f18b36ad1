//! The experiment `postmark-vendors`, sampled: one repetition of four of its 24 columns.
//!
//! All of it: `cargo run --release -- reproduce postmark-vendors`.

use trimwise::experiment::postmark_vendors::{Column, Means, run_column};

fn column(device: &'static str, discard: bool) -> Column {
    Column { device, buffering: true, discard }
}

fn run(device: &'static str, discard: bool) -> (Means, Means) {
    let column = column(device, discard);
    (run_column(column, 1, 1, &|| ()).unwrap(), Means::published(column))
}

#[track_caller]
fn assert_within_tenth(measured: f64, published: f64) {
    assert!((measured / published - 1.0).abs() < 0.1, "{measured} for {published}");
}

#[test]
fn rates_of_the_slowest_and_of_a_quick_trimmer_are_within_a_tenth() {
    for (device, discard) in [("vendor2", false), ("vendor2", true), ("vendor5", false), ("vendor5", true)] {
        let (measured, published) = run(device, discard);
        assert_within_tenth(measured.transactions_per_s(), published.transactions_per_s());
        assert_within_tenth(measured.creation_alone_per_s(), published.creation_alone_per_s());
    }
}

/// A cost for each deleted file would be the same in both phases. The published ratio is about 50 to 1: the
/// foreground does not wait for the commits of files that it only deletes.
#[test]
fn discard_costs_a_file_deleted_in_the_deletion_phase_next_to_nothing() {
    let ((off, _), (on, _)) = (run("vendor2", false), run("vendor2", true));
    let in_transactions_s = 50_000.0 / on.transactions_per_s() - 50_000.0 / off.transactions_per_s();
    let each_transaction_ms = 1e3 * in_transactions_s / 25_239.0;
    let each_deletion_ms = 1e3 * (on.deletion_s - off.deletion_s) / 49_522.0;
    assert!(each_transaction_ms > 50.0, "{each_transaction_ms} ms");
    assert!(each_deletion_ms < each_transaction_ms / 20.0, "{each_deletion_ms} ms");
}
