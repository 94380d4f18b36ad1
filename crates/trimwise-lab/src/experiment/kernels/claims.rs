use super::observe::Layout;
use super::{DeletionRun, Fitrim, KERNELS, MOUNTS, Measured};
use crate::experiment::claims::Figures;

/// Returns figures of each kernel's ext4, and of each file system over all examined kernels, oldest first.
pub fn figures(measured: &Measured) -> Figures {
    let mut figures = Figures::default();
    for kernel in KERNELS {
        ext4(&mut figures, measured, kernel);
    }
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    for mount in MOUNTS.iter().filter(|mount| !mount.discards()) {
        let fs = mount.file_system;
        for run in measured.deletions.iter().filter(|run| run.mount == *mount) {
            let fitrims = [&run.first_fitrim, &run.second_fitrim, &run.third_fitrim];
            for (i, fitrim) in fitrims.into_iter().enumerate() {
                figures.push(format!("fitrim.{fs}.{}", i + 1), [mib(fitrim.discards.bytes)]);
            }
            let Fitrim { answer_bytes, call_ns, last_ns, discards, .. } = run.first_fitrim;
            let is_of_claim = ["ext4", "btrfs"].contains(&fs);
            figures.push("answer", is_of_claim.then(|| over(answer_bytes, discards.bytes)));
            figures.set(format!("call.{fs}.{}", run.kernel), [ms(call_ns)]);
            figures.set(format!("last.{fs}.{}", run.kernel), [ms(last_ns.unwrap_or(0))]);
        }
        for run in measured.remounts.iter().filter(|run| run.mount.file_system == fs) {
            for (i, step) in run.steps.iter().enumerate() {
                figures
                    .push(format!("remount.{fs}.{}", i + 1), [over(step.discards.bytes, step.freed_bytes)]);
            }
        }
    }
    figures
}

fn ext4(figures: &mut Figures, measured: &Measured, kernel: &str) {
    let is_it = |run: &&DeletionRun, options: &str| {
        run.kernel == kernel && run.mount.file_system == "ext4" && run.mount.options == options
    };
    for (options, suffix) in [("discard", ""), ("nodiscard", ".without")] {
        let run = measured.deletions.iter().find(|run| is_it(run, options));
        for deletion in run.iter().flat_map(|run| &run.deletions) {
            let layout = match deletion.layout {
                Layout::Plain => "plain",
                Layout::GapsOccupied => "occupied",
                Layout::GapsFree => "free",
            };
            let mut set =
                |name: &str, value: f64| figures.set(format!("{layout}.{name}.{kernel}{suffix}"), [value]);
            set("ratio", deletion.ratio());
            set("taken", deletion.gaps_taken.unwrap_or(f64::NAN));
            set("commands", deletion.discards.commands as f64);
            set("in-fsync", deletion.in_fsync.commands as f64);
            set("last", ms(deletion.last_ns.unwrap_or(0)) / 1e3);
            set("fsync", ms(deletion.calls.fsync_ns));
            set("later", ms(deletion.calls.later_fsync_mean_ns));
        }
    }
    let unmounted =
        measured.unmounts.iter().find(|run| run.kernel == kernel && run.mount.file_system == "ext4");
    let covered = unmounted.and_then(|run| Some(over(run.covered_bytes?, run.freed_bytes)));
    figures.set(format!("unmount.{kernel}"), covered);
}

fn over(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
