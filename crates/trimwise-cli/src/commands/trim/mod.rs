//! `trimwise trim`: a manual trim of a mounted file system, or what one would send.

pub mod arguments;
pub mod now;
pub mod report;
pub mod table;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use trimwise::units::Bytes;
use trimwise_lab::failure::Failure;
use trimwise_linux::block_device::BlockDeviceError;
use trimwise_linux::layout::Kind;
use trimwise_linux::trim::{self, Ended, Outcome, Plan, Target, TrimError};

use crate::commands::trim::arguments::TrimArguments;
use crate::output::{self, Destinations};
use crate::progress::Progress;
use trimwise_study::caller::OnInterrupt;
use trimwise_study::command_text::CommandText;
use trimwise_study::input::expect_mount;

use report::{Device, FileSystem, TrimDone, TrimReport, TrimSettings};

/// Default size of a slice: Ctrl-C takes effect soon, and there are few calls.
const SLICE: Bytes = Bytes::gib(1);

/// Runs the command and returns what to print. `on_signal` installs the handler for Ctrl-C and returns the flag that it
/// raises.
pub fn run(
    arguments: &TrimArguments,
    on_signal: impl FnOnce(OnInterrupt) -> Result<Arc<AtomicBool>, Failure>,
) -> Result<String, Failure> {
    let destinations = Destinations::check_json(&arguments.json)?;
    expect_mount(&arguments.mount)?;
    let target = Target::of(&arguments.mount).map_err(refused)?;
    let span = target.span(arguments.offset.unwrap_or_default(), arguments.length).map_err(refused)?;
    let min_extent = arguments.min_extent.unwrap_or_default();
    let least = target.least_extent(min_extent).map_err(refused)?;
    let groups = groups_per_slice(arguments, &target)?;
    let slices = target.slices(span, groups.unwrap_or(u64::MAX));
    let estimate = target.estimate(span, min_extent).map_err(failed)?;
    let trimmed = target.trimmed_groups(least);

    let outcome = if arguments.dry_run {
        None
    } else {
        let pause = Duration::from_millis(arguments.pause.unwrap_or(0));
        let plan = Plan { slices: slices.clone(), min_extent, pause };
        let stop = on_signal(OnInterrupt::StopAfterStep)?;
        let progress = Progress::of(plan.slices.len(), "slices");
        let outcome = trim::run(&target, &plan, &stop, |done| progress.done(done - 1));
        progress.finish();
        match outcome.map_err(failed)? {
            Outcome { slices_done: 0, ended: Ended::Failed(error), .. } => return Err(failed(error)),
            outcome => Some(outcome),
        }
    };
    let settings = TrimSettings {
        dry_run: arguments.dry_run,
        min_extent_bytes: min_extent,
        min_extent_effective_bytes: least,
        offset_bytes: span.start,
        length_bytes: Some(span.bytes()).filter(|_| span.end != u64::MAX),
        groups_per_slice: groups,
        pause_ms: arguments.pause.unwrap_or(0),
        command: command(arguments),
    };
    let report = TrimReport {
        trimwise: trimwise::VERSION,
        settings,
        file_system: FileSystem::of(&target),
        devices: target.devices.iter().map(Device::from).collect(),
        estimate: (&estimate).into(),
        notes: report::notes(&target, span, trimmed, &estimate, outcome.as_ref()),
        trim: outcome.as_ref().map(|outcome| TrimDone::of(&target, outcome, slices.len())),
    };
    let text = destinations.deliver(&report, || table::render(&report))?;
    match outcome.map(|outcome| outcome.ended) {
        None | Some(Ended::Done) => Ok(text),
        // Report what was done even if it is not all.
        Some(Ended::Stopped) => output::print(&text).and(Err(Failure::Interrupted)),
        Some(Ended::Failed(error)) => output::print(&text).and(Err(failed(error))),
    }
}

/// A mount that cannot be trimmed is a usage error.
pub fn refused(error: TrimError) -> Failure {
    match error {
        TrimError::Mount(_)
        | TrimError::Device(BlockDeviceError::None { .. })
        | TrimError::NotAMountPoint { .. }
        | TrimError::NoDiscard { .. }
        | TrimError::BeyondTheEnd { .. }
        | TrimError::LeastExtent { .. } => Failure::usage(error),
        _ => Failure::run(error),
    }
}

/// A failed trim is a failed run, unless trimming cannot work there.
fn failed(error: TrimError) -> Failure {
    match error {
        TrimError::NoFitrim { .. } => Failure::usage(error),
        _ => Failure::run(error),
    }
}

/// Returns the groups per slice; `None` if the file system is one slice.
fn groups_per_slice(arguments: &TrimArguments, target: &Target) -> Result<Option<u64>, Failure> {
    let Some(layout) = &target.layout else {
        let given = [("--groups", arguments.groups.is_some()), ("--slice", arguments.slice.is_some())];
        if let Some((option, _)) = given.into_iter().find(|(_, given)| *given) {
            let why = match target.kind {
                Kind::Btrfs => {
                    "each call to btrfs trims the space outside all block groups, whatever the range"
                }
                _ => "its groups are unknown",
            };
            return Err(Failure::usage(format!(
                "{option}: {} is {}, which is trimmed in one piece: {why}; expected neither --groups nor --slice",
                target.mount.mount_point.display(),
                target.mount.fs_type
            )));
        }
        return Ok(None);
    };
    let of_size = |size: Bytes| size.0.div_ceil(layout.group.0);
    let by_default = (SLICE.0 / layout.group.0).max(1);
    Ok(Some(arguments.groups.or(arguments.slice.map(of_size)).unwrap_or(by_default)))
}

fn command(arguments: &TrimArguments) -> String {
    let mut command = CommandText::new("trim");
    command.argument(arguments.mount.display());
    if arguments.dry_run {
        command.argument("--dry-run");
    }
    let sizes = [
        ("--min-extent", arguments.min_extent),
        ("--offset", arguments.offset),
        ("--length", arguments.length),
        ("--slice", arguments.slice),
    ];
    for (option, size) in sizes {
        if let Some(size) = size {
            command.option(option, size.0);
        }
    }
    for (option, number) in [("--groups", arguments.groups), ("--pause", arguments.pause)] {
        if let Some(number) = number {
            command.option(option, number);
        }
    }
    command.into_text()
}
