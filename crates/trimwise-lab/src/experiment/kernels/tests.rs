//! The experiment's sums and claims, on invented traces.

use super::observe::*;
use super::*;

const MIB: u64 = 1 << 20;

fn range(at_ns: u64, done_ns: u64, offset_bytes: u64, length_bytes: u64) -> Discarded {
    Discarded { at_ns, done_ns, offset_bytes, length_bytes }
}

#[test]
fn what_is_discarded_twice_counts_twice_and_covers_once() {
    let ranges = [range(10, 20, 0, 100), range(20, 30, 50, 100), range(40, 50, 300, 10)];
    assert_eq!(union(&ranges), [(0, 150), (300, 10)]);
    assert_eq!(Discards::of(&ranges), Discards { commands: 3, ranges: 3, bytes: 210 });
    // Pieces that begin before, end after, lie within, and touch nothing.
    assert_eq!(covered(&[(140, 20), (290, 30), (10, 5), (200, 50)], &union(&ranges)), 10 + 10 + 5);
    assert_eq!(covered(&[(0, 1000)], &union(&ranges)), 160);
}

#[test]
fn gaps_between_pieces_are_looked_for_in_the_other_file() {
    let size = EXTENT_BYTES;
    let pieces = [(4 * size, size), (0, size), (2 * size, size), (1000 * size, size)];
    assert_eq!(gaps_taken(&pieces, &[(3 * size, size), (size, size / 2)]), Some(0.75));
    assert_eq!(gaps_taken(&pieces[..1], &[]), None);
}

#[test]
fn ranges_with_the_same_instants_are_one_command() {
    let ranges = [range(1, 5, 0, 4), range(1, 5, 8, 4), range(1, 9, 16, 4)];
    assert_eq!(Discards::of(&ranges), Discards { commands: 2, ranges: 3, bytes: 12 });
}

#[test]
fn discards_are_in_the_fsync_if_the_drive_got_them_before_it_returned() {
    let calls = Calls { unlink_ns: 10, fsync_ns: 90, ..Calls::default() };
    let of =
        |ranges: &[Discarded]| Deletion::of(Layout::Plain, &[(0, 64), (96, 32)], true, calls, 1000, ranges);
    let early = range(1050, 1200, 0, 64);
    let late = range(1100, 1300, 64, 64);
    assert_eq!(of(&[]).issued, Issued::Never);
    assert_eq!(of(&[early]).issued, Issued::InCommit);
    assert_eq!(of(&[late]).issued, Issued::Afterwards);
    let both = of(&[early, late]);
    assert_eq!((both.issued, both.in_fsync.commands, both.discards.commands), (Issued::Both, 1, 2));
    assert_eq!((both.first_ns, both.last_ns), (Some(50), Some(300)));
    assert_eq!((both.freed_bytes, both.distinct_bytes, both.covered_bytes), (96, 128, Some(96)));
    assert_eq!(both.curve, [CurvePoint { at_ns: 200, bytes: 64 }, CurvePoint { at_ns: 300, bytes: 128 }]);
}

#[test]
fn a_long_curve_keeps_its_ends() {
    let ranges: Vec<Discarded> = (0..1000).map(|i| range(i, i + 1, i * 8, 8)).collect();
    let curve = Deletion::of(Layout::Plain, &[], false, Calls::default(), 0, &ranges).curve;
    assert!((CURVE_POINTS_MAX / 2..=CURVE_POINTS_MAX).contains(&curve.len()), "{}", curve.len());
    assert_eq!(curve.first(), Some(&CurvePoint { at_ns: 1, bytes: 8 }));
    assert_eq!(curve.last(), Some(&CurvePoint { at_ns: 1000, bytes: 8000 }));
}

/// A deletion of 64 MiB with `times` as much discarded, in the fsync or a second after it.
fn deletion(layout: Layout, times: f64, is_in_fsync: bool, fsync_ms: u64, later_us: u64) -> Deletion {
    let calls = Calls {
        unlink_ns: 0,
        fsync_ns: fsync_ms * 1_000_000,
        next_fsync_ns: later_us * 1000,
        later_fsync_mean_ns: later_us * 1000,
        later_fsync_max_ns: later_us * 1000,
    };
    let at_ns = if is_in_fsync { 1 } else { 1_000_000_000 };
    let ranges = [range(at_ns, at_ns + 1, 0, (times * (64 * MIB) as f64) as u64)];
    let sent = if times > 0.0 { &ranges[..] } else { &[] };
    Deletion { gaps_taken: Some(1.0), ..Deletion::of(layout, &[(0, 64 * MIB)], true, calls, 0, sent) }
}

fn fitrim(mib: u64) -> Fitrim {
    let discards = Discards { commands: 1, ranges: 1, bytes: mib * MIB };
    Fitrim { answer_bytes: mib * MIB, call_ns: 1, last_ns: Some(2), in_call: discards, discards }
}

fn mounted(kernel: &str, mount: Mount, deletions: Vec<Deletion>, fitrims: [u64; 3]) -> DeletionRun {
    DeletionRun {
        kernel: kernel.to_owned(),
        mount,
        deletions,
        first_fitrim: fitrim(fitrims[0]),
        second_fitrim: fitrim(fitrims[1]),
        third_fitrim: fitrim(fitrims[2]),
    }
}

/// All kernels as published, except where `change` changes them.
fn published(change: impl Fn(&str, Layout) -> Option<f64>) -> Measured {
    let mut measured = Measured::default();
    for kernel in KERNELS {
        let old = kernel == "5.10";
        measured.kernels.push(Kernel { version: kernel.to_owned(), release: format!("{kernel}.1") });
        for mount in MOUNTS {
            let deletions = Layout::ALL.map(|layout| {
                let times = match (mount.discards(), old, layout) {
                    (false, ..) => 0.0,
                    (true, false, Layout::GapsFree) => 500.0,
                    (true, ..) => 1.0,
                };
                let times = change(kernel, layout).filter(|_| mount.discards()).unwrap_or(times);
                let fsync_ms = if old && mount.discards() { 4000 } else { 1 };
                let later_us = if !old && mount.discards() { 9000 } else { 900 };
                deletion(layout, times, old, fsync_ms, later_us)
            });
            let again = match mount.file_system {
                "ext4" => [100, 0, 1],
                "btrfs" => [100, 40, 41],
                _ => [100, 100, 100],
            };
            measured.deletions.push(mounted(kernel, mount, deletions.into(), again));
            if mount.discards() {
                measured.unmounts.push(UnmountRun {
                    kernel: kernel.to_owned(),
                    mount,
                    freed_bytes: 100,
                    before_unmount: Discards::default(),
                    in_unmount: Discards::default(),
                    unmount_ns: 1,
                    covered_bytes: Some(if old { 100 } else { 10 }),
                    after_mount: Discards::default(),
                    fitrim: fitrim(1),
                });
                let bytes = |sends: bool| if sends && mount.file_system != "xfs" { 64 * MIB } else { 0 };
                let step = |options: &str, sends| RemountStep {
                    options: options.to_owned(),
                    shown_options: String::new(),
                    freed_bytes: 64 * MIB,
                    discards: Discards { commands: 1, ranges: 1, bytes: bytes(sends) },
                };
                let steps = [("nodiscard", false), (mount.options, true), ("nodiscard", false)];
                let steps = steps.map(|(options, sends)| step(options, sends)).into();
                measured.remounts.push(RemountRun { kernel: kernel.to_owned(), mount, steps });
            }
        }
    }
    measured
}

fn not_met(measured: &Measured) -> Vec<String> {
    evaluate(measured, 1, 1).claims.into_iter().filter(|claim| !claim.met).map(|claim| claim.id).collect()
}

#[test]
fn claims_hold_of_what_was_published() {
    let measured = published(|_, _| None);
    assert_eq!(not_met(&measured), [""; 0]);
    let result = evaluate(&measured, 1, 1);
    let mut ids: Vec<&str> = result.claims.iter().map(|claim| claim.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), result.claims.len()), (3 * 6 + 5 + 3, 3 * 6 + 5 + 3));
    let plots = result.rows.plots();
    assert_eq!(plots.len(), 4 * Layout::ALL.len());
    assert_eq!(plots[0].series.len(), KERNELS.len(), "only with discard");
}

#[test]
fn claims_fail_of_kernels_that_do_otherwise() {
    let exact = |kernel: &str, _| (kernel == "6.1").then_some(1.0);
    assert_eq!(not_met(&published(exact)), ["kernels-gaps-free-6.1"]);
    let twice = |kernel: &str, layout| (kernel == "6.1" && layout == Layout::GapsOccupied).then_some(2.0);
    assert_eq!(not_met(&published(twice)), ["kernels-gaps-occupied-6.1"]);
    let mut open = published(|_, _| None);
    open.deletions.iter_mut().flat_map(|run| &mut run.deletions).for_each(|d| d.gaps_taken = Some(0.9));
    assert_eq!(not_met(&open).len(), KERNELS.len(), "gaps that are not known to be taken");
    let runs_on = |kernel: &str, layout| (kernel == "5.10" && layout == Layout::GapsFree).then_some(1.02);
    assert_eq!(not_met(&published(runs_on)), ["kernels-gaps-free-5.10"]);
    let never = |kernel: &str, _| (kernel == "6.12").then_some(0.0);
    let open = ["kernels-gaps-free-6.12", "kernels-gaps-occupied-6.12", "kernels-when-6.12"];
    assert_eq!(not_met(&published(never)), open);
}

#[test]
fn claims_about_fitrim_and_remount_are_of_every_kernel() {
    let mut measured = published(|_, _| None);
    for run in measured.deletions.iter_mut().filter(|run| run.kernel == "6.1" && !run.mount.discards()) {
        let swapped = if run.mount.file_system == "ext4" { 100 } else { 0 };
        run.second_fitrim = fitrim(swapped);
        run.first_fitrim.answer_bytes += 3 * MIB;
    }
    for run in measured.deletions.iter_mut().filter(|run| run.kernel == "6.12") {
        run.first_fitrim.last_ns = Some(run.first_fitrim.call_ns);
    }
    for run in measured.remounts.iter_mut().filter(|run| run.kernel == "5.10") {
        for step in &mut run.steps {
            step.discards.bytes = 64 * MIB - step.discards.bytes;
        }
    }
    for run in &mut measured.unmounts {
        run.covered_bytes = run.covered_bytes.map(|covered| 100 - covered);
    }
    let open = [
        "kernels-unmount-5.10",
        "kernels-fitrim-ext4",
        "kernels-fitrim-xfs",
        "kernels-fitrim-btrfs",
        "kernels-fitrim-answer",
        "kernels-fitrim-returns",
        "kernels-remount-ext4",
        "kernels-remount-btrfs",
        "kernels-remount-xfs",
    ];
    assert_eq!(not_met(&measured), open);
    for run in &mut measured.unmounts {
        run.covered_bytes = Some(100);
    }
    assert!(not_met(&measured).contains(&"kernels-unmount-6.1".to_owned()));
}

#[test]
fn claims_about_fsync_compare_with_the_mount_without_discard() {
    let mut measured = published(|_, _| None);
    for run in measured.deletions.iter_mut().filter(|run| !run.mount.discards()) {
        for deletion in &mut run.deletions {
            let calls = &mut deletion.calls;
            let (fsync, later) = (calls.fsync_ns, calls.later_fsync_mean_ns);
            let is_old = run.kernel == "5.10";
            calls.fsync_ns = if is_old { 4000 * fsync } else { fsync / 2 };
            calls.later_fsync_mean_ns = if is_old { later / 2 } else { 10 * later };
        }
    }
    let open =
        ["fsync", "later"].map(|what| KERNELS.map(|kernel| format!("kernels-{what}-{kernel}"))).concat();
    assert_eq!(not_met(&measured), open);
}

#[test]
fn what_was_not_looked_at_makes_no_claim() {
    let mut measured = published(|_, _| None);
    let is_chosen = |kernel: &str, mount: Mount| kernel == "6.1" && mount.file_system == "ext4";
    measured.deletions.retain(|run| is_chosen(&run.kernel, run.mount));
    measured.unmounts.clear();
    measured.remounts.clear();
    measured.missing.push("6.12 is not built".to_owned());
    let result = evaluate(&measured, 1, 1);
    let others = ["kernels-fitrim-ext4", "kernels-fitrim-answer"];
    assert!(result.claims.iter().all(|c| c.id.ends_with("-6.1") || others.contains(&c.id.as_str())));
    assert_eq!(result.claims.len(), 5 + 2);
    assert!(result.finding.contains("6.12 is not built"), "{}", result.finding);
    assert_eq!(evaluate(&Measured::default(), 1, 1).claims.len(), 0);
}
