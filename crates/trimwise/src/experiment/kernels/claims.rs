//! What was read in the kernels' sources or seen on other machines, and whether it holds on each kernel here.
//!
//! ext4 frees and discards in three ways over time. Up to 4.12 the commit sent one discard at a time and waited for each;
//! a015434480dc (4.13) submitted all of a commit together and waited at its end, which 5.10 has; 55cdd0af2bc5 (5.15) handed
//! them to a worker that sends one at a time after the commit, which 6.1 and 6.12 have. That worker asks the code of
//! FITRIM, `ext4_try_to_trim_range`, for the free space from the beginning of each freed extent on, and what that finds may
//! end far behind it.

use super::observe::{Deletion, Discards, Issued, Layout};
use super::{DeletionRun, Measured, RemountRun, UnmountRun};
use crate::experiment::result::{Claim, Figure};

/// What is expected of ext4 on a kernel, with the names of its claims.
struct Expected {
    kernel: &'static str,
    /// Whether discards belong to the commit (up to 5.14), and are of what was freed alone.
    in_commit: bool,
    gaps_free: &'static str,
    gaps_occupied: &'static str,
    when: &'static str,
    fsync: &'static str,
    later: &'static str,
    unmount: &'static str,
}

const EXT4: [Expected; 3] = [
    Expected {
        kernel: "5.10",
        in_commit: true,
        gaps_free: "kernels-gaps-free-5.10",
        gaps_occupied: "kernels-gaps-occupied-5.10",
        when: "kernels-when-5.10",
        fsync: "kernels-fsync-5.10",
        later: "kernels-later-5.10",
        unmount: "kernels-unmount-5.10",
    },
    Expected {
        kernel: "6.1",
        in_commit: false,
        gaps_free: "kernels-gaps-free-6.1",
        gaps_occupied: "kernels-gaps-occupied-6.1",
        when: "kernels-when-6.1",
        fsync: "kernels-fsync-6.1",
        later: "kernels-later-6.1",
        unmount: "kernels-unmount-6.1",
    },
    Expected {
        kernel: "6.12",
        in_commit: false,
        gaps_free: "kernels-gaps-free-6.12",
        gaps_occupied: "kernels-gaps-occupied-6.12",
        when: "kernels-when-6.12",
        fsync: "kernels-fsync-6.12",
        later: "kernels-later-6.12",
        unmount: "kernels-unmount-6.12",
    },
];

/// "Exactly" leaves room for a block of the extent tree that goes with a scattered file.
const EXACT: std::ops::RangeInclusive<f64> = 0.99..=1.01;
/// A discard that runs on sends a hundred times what was freed, or more.
const RUNS_ON: f64 = 100.0;
/// "About twice".
const TWICE: std::ops::RangeInclusive<f64> = 1.5..=2.5;
/// A call is slower if it takes a tenth longer, and much slower if ten times.
const SLOWER: f64 = 1.1;
const MUCH_SLOWER: f64 = 10.0;

/// All claims about what was observed.
pub fn all(measured: &Measured) -> Vec<Claim> {
    let mut claims = Vec::new();
    for expected in &EXT4 {
        claims.extend(ext4(measured, expected).into_iter().flatten());
    }
    claims.extend(fitrims(measured).into_iter().flatten());
    claims.extend(remounts(measured).into_iter().flatten());
    claims
}

/// What came out, in a sentence or two.
pub fn finding(measured: &Measured) -> String {
    let says = |expected: &Expected| {
        let free = deletion(measured, expected.kernel, "discard", Layout::GapsFree)?;
        let when = match free.issued {
            Issued::Never => "not at all",
            Issued::InCommit => "inside the commit",
            Issued::Afterwards => "after the commit",
            Issued::Both => "inside the commit and after it",
        };
        Some(format!(
            "ext4 of {} discards {:.1} times what was freed, {when}. ",
            expected.kernel,
            free.ratio()
        ))
    };
    EXT4.iter().filter_map(says).collect()
}

fn claim(id: &'static str, text: &str, published: &str, (met, measured): (bool, String)) -> Claim {
    let (published, measured) = (Figure::Text(published.to_owned()), Figure::Text(measured));
    Claim { id, text: text.to_owned(), met, published, measured }
}

fn run<'a>(measured: &'a Measured, kernel: &str, options: &str) -> Option<&'a DeletionRun> {
    let is_it = |run: &&DeletionRun| {
        run.kernel == kernel && run.mount.file_system == "ext4" && run.mount.options == options
    };
    measured.deletions.iter().find(is_it)
}

fn deletion<'a>(measured: &'a Measured, kernel: &str, options: &str, layout: Layout) -> Option<&'a Deletion> {
    run(measured, kernel, options)?.deletions.iter().find(|deletion| deletion.layout == layout)
}

fn ext4(measured: &Measured, expected: &Expected) -> [Option<Claim>; 6] {
    let of = |layout| deletion(measured, expected.kernel, "discard", layout);
    let (free, occupied) = (of(Layout::GapsFree), of(Layout::GapsOccupied));
    let without = deletion(measured, expected.kernel, "nodiscard", Layout::GapsFree);
    let kernel = expected.kernel;
    [
        free.map(|free| {
            let shown = times(free);
            if expected.in_commit {
                let text = format!("ext4 of {kernel} discards what was freed (within 1 %), gaps free");
                claim(expected.gaps_free, &text, "exactly", (EXACT.contains(&free.ratio()), shown))
            } else {
                let text = format!(
                    "ext4 of {kernel} runs on through free gaps: one removal discards 100 times its size or more"
                );
                let published = "503 times (256 MiB freed, 128,866 MiB discarded)";
                claim(expected.gaps_free, &text, published, (free.ratio() >= RUNS_ON, shown))
            }
        }),
        occupied.map(|occupied| {
            let shown = times(occupied);
            if expected.in_commit {
                let text = format!("ext4 of {kernel} discards what was freed (within 1 %), gaps occupied");
                claim(expected.gaps_occupied, &text, "exactly", (EXACT.contains(&occupied.ratio()), shown))
            } else {
                let text = format!("with the gaps occupied ext4 of {kernel} discards about twice what was freed");
                let published = "2.0 times (1 GiB freed, about 2,000 MiB discarded, on 6.18)";
                claim(expected.gaps_occupied, &text, published, (TWICE.contains(&occupied.ratio()), shown))
            }
        }),
        free.map(|free| {
            let wanted = if expected.in_commit { Issued::InCommit } else { Issued::Afterwards };
            let (text, published) = if expected.in_commit {
                ("ext4 of 5.10 discards inside the commit", "inside (a015434480dc)")
            } else {
                ("ext4 discards after the commit", "after, by a worker (55cdd0af2bc5)")
            };
            let text = format!("{text}: the fsync of the directory returns {} them",
                if expected.in_commit { "behind" } else { "before" });
            let last = free.last_ns.map_or(String::new(), |ns| format!(", the last ended after {:.3} s", ns as f64 / 1e9));
            let shown = format!("{kernel}: {} of {} commands in the fsync{last}", free.in_fsync.commands, free.discards.commands);
            claim(expected.when, &text, published, (free.issued == wanted, shown))
        }),
        free.zip(without).map(|(with, without)| {
            let ratio = over(with.calls.fsync_ns, without.calls.fsync_ns);
            let shown = format!("{} with discard, {} without", ms(with.calls.fsync_ns), ms(without.calls.fsync_ns));
            if expected.in_commit {
                let text = "on 5.10 the fsync behind the removal of a scattered file takes ten times longer with discard, or more";
                claim(expected.fsync, text, "4,101 ms against 0.86 ms (2,048 extents, 2 ms a discard)", (ratio >= MUCH_SLOWER, shown))
            } else {
                let text = format!("on {kernel} that fsync takes no longer with discard (within 10 %)");
                claim(expected.fsync, &text, "0.86 ms with and without", (ratio <= SLOWER, shown))
            }
        }),
        free.zip(without).map(|(with, without)| {
            let (a, b) = (with.calls.later_fsync_mean_ns, without.calls.later_fsync_mean_ns);
            let shown = format!("{} with discard, {} without", ms(a), ms(b));
            let ratio = over(a, b);
            if expected.in_commit {
                let text = "on 5.10 the fsyncs after that take no longer (within 10 %)";
                claim(expected.later, text, "0.87 ms with and without", (ratio <= SLOWER, shown))
            } else {
                let text = format!("on {kernel} the fsyncs after that take longer, beside the discards (by more than 10 %)");
                claim(expected.later, &text, "10.57 ms against 0.87 ms", (ratio > SLOWER, shown))
            }
        }),
        unmounted(measured, kernel).and_then(|run| {
            let covered = run.covered_bytes? as f64 / run.freed_bytes.max(1) as f64;
            let shown = format!("{:.0} % of the freed bytes were discarded before the unmount ended", 100.0 * covered);
            Some(if expected.in_commit {
                let text = "on 5.10 nothing waits, so that an unmount drops nothing";
                claim(expected.unmount, text, "all is discarded in the commit", (covered >= 0.99, shown))
            } else {
                let text = format!("on {kernel} an unmount drops what waits");
                claim(expected.unmount, &text, "what is queued is dropped", (covered < 0.99, shown))
            })
        }),
    ]
}

fn unmounted<'a>(measured: &'a Measured, kernel: &str) -> Option<&'a UnmountRun> {
    measured.unmounts.iter().find(|run| run.kernel == kernel && run.mount.file_system == "ext4")
}

fn times(deletion: &Deletion) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    format!(
        "{:.2} times ({:.0} MiB freed, {:.0} MiB discarded)",
        deletion.ratio(),
        mib(deletion.freed_bytes),
        mib(deletion.discards.bytes)
    )
}

fn over(a_ns: u64, b_ns: u64) -> f64 {
    a_ns as f64 / b_ns.max(1) as f64
}

fn ms(ns: u64) -> String {
    format!("{:.2} ms", ns as f64 / 1e6)
}

/// One claim over all kernels that were looked at: met if it holds of each.
fn of_each<'a, R: 'a>(
    id: &'static str,
    text: &str,
    published: &str,
    runs: impl Iterator<Item = &'a R>,
    holds: impl Fn(&R) -> (bool, String),
) -> Option<Claim> {
    let found: Vec<(bool, String)> = runs.map(holds).collect();
    let shown: Vec<&str> = found.iter().map(|(_, shown)| shown.as_str()).collect();
    let met = found.iter().all(|(met, _)| *met);
    (!found.is_empty()).then(|| claim(id, text, published, (met, shown.join("; "))))
}

fn fitrims(measured: &Measured) -> [Option<Claim>; 5] {
    let of = |fs: &'static str| {
        let unmixed = move |run: &&DeletionRun| run.mount.file_system == fs && !run.mount.discards();
        measured.deletions.iter().filter(unmixed)
    };
    let mib = |d: Discards| d.bytes >> 20;
    let both = |run: &DeletionRun| {
        format!(
            "{}: {} MiB, then {} MiB",
            run.kernel,
            mib(run.first_fitrim.discards),
            mib(run.second_fitrim.discards)
        )
    };
    let again = |run: &DeletionRun| {
        let (first, second) = (run.first_fitrim.discards.bytes, run.second_fitrim.discards.bytes);
        (first > 0 && second as f64 >= 0.99 * first as f64, both(run))
    };
    let everything = "everything again";
    [
        of_each(
            "kernels-fitrim-ext4",
            "a second FITRIM on ext4 sends nothing",
            "groups that were trimmed are left out",
            of("ext4"),
            |run| (run.first_fitrim.discards.bytes > 0 && run.second_fitrim.discards.bytes == 0, both(run)),
        ),
        of_each(
            "kernels-fitrim-xfs",
            "a second FITRIM on XFS sends everything again (99 % or more)",
            everything,
            of("xfs"),
            again,
        ),
        // Space that belongs to no block group is remembered as trimmed, until an unmount, since 929be17a9b49 (5.2).
        of_each(
            "kernels-fitrim-btrfs",
            "a third FITRIM on btrfs sends what the second did (99 % or more), space without a block group not again",
            "everything again inside block groups",
            of("btrfs"),
            |run| {
                let sent = [&run.first_fitrim, &run.second_fitrim, &run.third_fitrim];
                let [first, second, third] = sent.map(|fitrim| fitrim.discards.bytes);
                let again = second > 0 && second < first && third as f64 >= 0.99 * second as f64;
                (again, format!("{}, then {} MiB", both(run), mib(run.third_fitrim.discards)))
            },
        ),
        of_each(
            "kernels-fitrim-answer",
            "FITRIM of ext4 and btrfs answers what it has sent (within 1 %)",
            "ext4: blocks submitted; btrfs: bytes discarded",
            of("ext4").chain(of("btrfs")),
            |run| {
                let ratio = over(run.first_fitrim.answer_bytes, run.first_fitrim.discards.bytes);
                let shown = format!("{} {}: {ratio:.3} of what was sent", run.kernel, run.mount.file_system);
                (EXACT.contains(&ratio), shown)
            },
        ),
        of_each(
            "kernels-fitrim-returns",
            "FITRIM of XFS returns before its discards have ended, on 6.12",
            "seen on 6.12 and later",
            of("xfs").filter(|run| run.kernel == "6.12"),
            |run| {
                let fitrim = run.first_fitrim;
                let last = fitrim.last_ns.unwrap_or(0);
                (last > fitrim.call_ns, format!("call {}, discards {}", ms(fitrim.call_ns), ms(last)))
            },
        ),
    ]
}

fn remounts(measured: &Measured) -> [Option<Claim>; 3] {
    let of = |fs: &'static str| measured.remounts.iter().filter(move |run| run.mount.file_system == fs);
    let shown = |run: &RemountRun| {
        let steps: Vec<String> =
            run.steps.iter().map(|s| format!("{} MiB", s.discards.bytes >> 20)).collect();
        format!("{}: {}", run.kernel, steps.join(", "))
    };
    let pattern = |run: &RemountRun, wanted: [bool; 3]| {
        // What is left of copy-on-write trees may be discarded beside the file, so less than a tenth is nothing.
        let sent = run.steps.iter().map(|step| step.discards.bytes * 10 > step.freed_bytes);
        (sent.eq(wanted), shown(run))
    };
    let toggles = |run: &RemountRun| pattern(run, [false, true, false]);
    let published = "discards while the option is there";
    [
        of_each(
            "kernels-remount-ext4",
            "mount -o remount toggles discard on ext4",
            published,
            of("ext4"),
            toggles,
        ),
        of_each(
            "kernels-remount-btrfs",
            "mount -o remount toggles discard on btrfs",
            published,
            of("btrfs"),
            toggles,
        ),
        of_each(
            "kernels-remount-xfs",
            "XFS accepts remount,discard and changes nothing",
            "accepted, no discards",
            of("xfs"),
            |run| pattern(run, [false, false, false]),
        ),
    ]
}
