//! Tables of the discards of real kernels.

use super::observe::{Deletion, Discards};
use super::{DeletionRun, Fitrim, MOUNTS, Measured, Mount, RemountStep};
use trimwise::units::Bytes;

use crate::plot::Table;
use trimwise::numbers::{NONE, grouped, significant, time};

pub fn all(measured: &Measured) -> Vec<Table> {
    let mut file_systems: Vec<&str> = MOUNTS.iter().map(|mount| mount.file_system).collect();
    file_systems.dedup();
    let mut tables: Vec<Table> = Vec::new();
    tables.extend(file_systems.iter().map(|fs| deletions(measured, fs)));
    tables.extend(file_systems.iter().map(|fs| syncs(measured, fs)));
    tables.extend([unmounts(measured), fitrims(measured), remounts(measured)]);
    tables.retain(|table| !table.rows.is_empty());
    tables
}

fn name(kernel: &str, mount: Mount) -> String {
    format!("{kernel} {} {}", mount.file_system, mount.options)
}

fn at(ns: Option<u64>) -> String {
    ns.map_or(NONE.to_owned(), |ns| time(ns as f64 / 1e9))
}

fn bytes(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

fn share(part: Option<u64>, whole: u64) -> String {
    part.map_or(NONE.to_owned(), |part| format!("{} %", 100 * part / whole.max(1)))
}

fn deletions(measured: &Measured, file_system: &str) -> Table {
    let row = |run: &DeletionRun, d: &Deletion| {
        [
            format!("{} {}", run.kernel, run.mount.options),
            d.layout.name().to_owned(),
            bytes(d.freed_bytes),
            grouped(d.discards.commands),
            bytes(d.discards.bytes),
            significant(d.ratio()),
            share(d.covered_bytes, d.freed_bytes),
            d.issued.name().to_owned(),
            at(d.last_ns),
        ]
    };
    let of = |run: &&DeletionRun| run.mount.file_system == file_system && run.mount.discards();
    let discarding = measured.deletions.iter().filter(of);
    Table::new(
        format!("{file_system}: what was discarded after a file was removed and the directory synced"),
        [
            "mount",
            "file layout",
            "freed",
            "commands",
            "discarded",
            "ratio",
            "of freed",
            "issued",
            "last after",
        ],
        discarding.flat_map(|run| run.deletions.iter().map(move |d| row(run, d))).collect(),
    )
}

fn syncs(measured: &Measured, file_system: &str) -> Table {
    let ns = |ns: u64| at(Some(ns));
    let row = |run: &DeletionRun, d: &Deletion| {
        let calls = d.calls;
        [
            format!("{} {}", run.kernel, run.mount.options),
            d.layout.name().to_owned(),
            ns(calls.unlink_ns),
            ns(calls.fsync_ns),
            ns(calls.next_fsync_ns),
            ns(calls.later_fsync_mean_ns),
            ns(calls.later_fsync_max_ns),
        ]
    };
    let of = |run: &&DeletionRun| run.mount.file_system == file_system;
    let runs = measured.deletions.iter().filter(of);
    Table::new(
        format!("{file_system}: how long the calls took, and the appends with fsync that followed"),
        ["mount", "file layout", "unlink", "fsync", "next fsync", "20 more, mean", "longest"],
        runs.flat_map(|run| run.deletions.iter().map(move |d| row(run, d))).collect(),
    )
}

fn unmounts(measured: &Measured) -> Table {
    let rows = measured.unmounts.iter().map(|run| {
        [
            name(&run.kernel, run.mount),
            bytes(run.freed_bytes),
            bytes(run.before_unmount.bytes),
            bytes(run.in_unmount.bytes),
            share(run.covered_bytes, run.freed_bytes),
            at(Some(run.unmount_ns)),
            bytes(run.after_mount.bytes),
            bytes(run.fitrim.discards.bytes),
        ]
    });
    Table::new(
        "Removed, synced and unmounted at once; then mounted again, and FITRIM",
        ["mount", "freed", "before", "in unmount", "of freed", "unmount took", "mounted again", "FITRIM"],
        rows.collect(),
    )
}

fn fitrims(measured: &Measured) -> Table {
    let sent = |d: Discards| format!("{} in {}", bytes(d.bytes), grouped(d.commands));
    let answer = |f: Fitrim| bytes(f.answer_bytes);
    let rows = measured.deletions.iter().map(|run| {
        [
            name(&run.kernel, run.mount),
            sent(run.first_fitrim.discards),
            answer(run.first_fitrim),
            sent(run.second_fitrim.discards),
            sent(run.third_fitrim.discards),
            at(Some(run.first_fitrim.call_ns)),
            bytes(run.first_fitrim.in_call.bytes),
        ]
    });
    Table::new(
        "FITRIM after the deletions, again, and after one more deletion of 1 MiB",
        ["mount", "first sent", "returned", "second sent", "third sent", "first took", "in the call"],
        rows.collect(),
    )
}

fn remounts(measured: &Measured) -> Table {
    let step = |step: &RemountStep| bytes(step.discards.bytes);
    let rows = measured.remounts.iter().map(|run| {
        let mut cells = run.steps.iter().map(step);
        let mut next = || cells.next().unwrap_or_else(|| NONE.to_owned());
        [name(&run.kernel, run.mount), next(), next(), next()]
    });
    Table::new(
        "Discarded after the removal of 64 MiB while options change",
        ["asked for", "mounted nodiscard", "remounted with it", "remounted nodiscard"],
        rows.collect(),
    )
}
