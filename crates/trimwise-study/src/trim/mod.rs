//! A manual trim of a mounted file system, or a dry run of one.

pub mod now;
pub mod report;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trimwise::failure::{Failure, Mistake, Mistakes, key};
use trimwise::units::Bytes;
use trimwise::words;
use trimwise_linux::block_device::BlockDeviceError;
use trimwise_linux::daemon::DEFAULT_RUN;
use trimwise_linux::layout::Kind;
use trimwise_linux::trim::{self, Ended, Meaning, Outcome, Plan, Target, TrimError};

use crate::caller::{Caller, OnInterrupt};
use crate::check::{at_most_one, within};
use crate::command_text::CommandText;
use crate::conclusion;
use crate::input::expect_mount;

use report::{Device, FileSystem, GivenBack, TrimDone, TrimReport, TrimSettings};

/// Small enough that a stop takes effect soon, large enough that there are few calls.
const SLICE: Bytes = Bytes::gib(1);

pub const GROUPS: RangeInclusive<u64> = 1..=u64::MAX;
pub const PAUSE_MS: RangeInclusive<u64> = 0..=86_400_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrimRequest {
    pub mount: PathBuf,
    #[serde(default)]
    pub dry_run: bool,
    /// Free extents below this are left out; `None`: only the device's granularity limits them.
    pub min_extent: Option<Bytes>,
    /// Address to start at; `None`: 0.
    pub offset: Option<Bytes>,
    /// Length from the offset; `None`: to the end.
    pub length: Option<Bytes>,
    /// Block groups in a slice; `None`: as many as `slice` gives, or make 1 GiB.
    pub groups: Option<u64>,
    /// Rounded up to whole groups.
    pub slice: Option<Bytes>,
    /// Pause between two slices; `None`: none.
    pub pause_ms: Option<u64>,
}

/// Trims the file system, or finds out what would be sent.
///
/// # Errors
///
/// A [`Failure`] if the file system cannot be trimmed, or not even one slice was. A trim that ends early is in the
/// [answer](TrimReport::failure).
pub fn run(request: &TrimRequest, caller: &dyn Caller) -> Result<TrimReport, Failure> {
    const SIZES: RangeInclusive<Bytes> = Bytes(1)..=Bytes(u64::MAX);
    Mistakes::of([
        within("groups", request.groups, &GROUPS),
        within("pause_ms", request.pause_ms, &PAUSE_MS),
        at_most_one(&[("groups", request.groups.is_some()), ("slice", request.slice.is_some())]),
        within("slice", request.slice, &SIZES),
        within("length", request.length, &SIZES),
    ])?;
    expect_mount("mount", &request.mount)?;
    let target = Target::of(&request.mount).map_err(refused)?;
    target.expect_writable().map_err(refused)?;
    let span = target.span(request.offset.unwrap_or_default(), request.length).map_err(refused)?;
    let min_extent = request.min_extent.unwrap_or_default();
    let least = target.least_extent(min_extent).map_err(refused)?;
    let groups = groups_per_slice(request, &target)?;
    let slices = target.slices(span, groups.unwrap_or(u64::MAX));
    let estimate = target.estimate(span, min_extent).map_err(failed)?;
    let trimmed = target.trimmed_groups(least);

    let held = if request.dry_run { Vec::new() } else { trim::held_below(&target) };
    let outcome = if request.dry_run {
        None
    } else {
        let pause = Duration::from_millis(request.pause_ms.unwrap_or(0));
        let plan = Plan { slices: slices.clone(), min_extent, pause };
        let stop = caller.stop(OnInterrupt::StopAfterStep)?;
        let progress = caller.progress(plan.slices.len(), "slices");
        let outcome = trim::run(&target, &plan, &stop, |done| progress.done(done - 1));
        progress.finish();
        match outcome.map_err(failed)? {
            // Nothing was sent, so there is nothing to report.
            Outcome { answered: Bytes(0), counted, ended: Ended::Failed(error), .. }
                if counted.is_none_or(|counted| counted.commands == 0) =>
            {
                return Err(failed(error));
            }
            outcome => Some(outcome),
        }
    };
    let settings = TrimSettings {
        dry_run: request.dry_run,
        min_extent_bytes: min_extent,
        min_extent_effective_bytes: least,
        offset_bytes: span.start,
        length_bytes: Some(span.bytes()).filter(|_| span.end != u64::MAX),
        groups_per_slice: groups,
        pause_ms: request.pause_ms.unwrap_or(0),
        command: command(request),
    };
    // Even above a layer that passes no discards on, FITRIM succeeds and devices count discards.
    let diagnosis = conclusion::diagnosis(Path::new(DEFAULT_RUN), &target.mount.mount_point);
    let stops = diagnosis.as_ref().filter(|one| one.passes == Some(false)).and_then(|one| {
        let wrong = one.findings.iter().find(|finding| finding.wrong)?;
        Some(format!("it does not reach the drive; it stops at {}", wrong.place))
    });
    let trim = outcome.as_ref().map(|outcome| TrimDone {
        given_back: GivenBack::between(&held, &trim::held_below(&target)),
        ..TrimDone::of(&target, &estimate, trimmed, outcome, slices.len(), stops.as_deref())
    });
    Ok(TrimReport {
        trimwise: trimwise::VERSION,
        settings,
        file_system: FileSystem::of(&target),
        devices: target.devices.iter().map(Device::from).collect(),
        estimate: (&estimate).into(),
        conclusion: diagnosis.as_ref().map(conclusion::of_diagnosis),
        notes: report::notes(&target, span, trimmed, &estimate, outcome.as_ref()),
        trim,
        failure: match outcome.map(|outcome| outcome.ended) {
            None => None,
            Some(Ended::Done) => {
                let point = target.mount.mount_point.display();
                stops.map(|why| Failure::run(format!("{point}: TRIM was sent, but {why}")))
            }
            Some(Ended::Stopped) => Some(Failure::Interrupted),
            Some(Ended::Failed(error)) => Some(failed(error)),
        },
    })
}

/// A mount that cannot be trimmed is a usage error.
pub fn refused(error: TrimError) -> Failure {
    match error {
        TrimError::BeyondTheEnd { .. } => Mistake::on("offset").because(error.to_string()).fail(),
        TrimError::LeastExtent { .. } => Mistake::on("min_extent").because(error.to_string()).fail(),
        TrimError::Mount(_)
        | TrimError::Device(BlockDeviceError::None { .. })
        | TrimError::NotAMountPoint { .. }
        | TrimError::NoDiscard { .. } => Mistake::that(error.to_string()).fail(),
        _ => Failure::run(error),
    }
}

/// A failed trim is a failed run, unless trimming cannot work there.
fn failed(error: TrimError) -> Failure {
    match error {
        _ if error.means() == Some(Meaning::NoCall) => Mistake::that(error.to_string()).fail(),
        _ if error.means() == Some(Meaning::NotPermitted) => {
            Failure::Run(words![error.to_string(), "; or use ", key("dry_run")])
        }
        _ => Failure::run(error),
    }
}

/// `None` if the file system is one slice.
fn groups_per_slice(request: &TrimRequest, target: &Target) -> Result<Option<u64>, Failure> {
    let Some(layout) = &target.layout else {
        let given = [("groups", request.groups.is_some()), ("slice", request.slice.is_some())];
        if let Some((field, _)) = given.into_iter().find(|(_, given)| *given) {
            let why = match target.kind {
                Kind::Btrfs => {
                    "each call to btrfs trims the space outside all block groups, whatever the range"
                }
                _ => "its groups are unknown",
            };
            let (mount, fs) = (target.mount.mount_point.display(), &target.mount.fs_type);
            let why = format!("{mount} is {fs}, which is trimmed in one piece: {why}");
            let expected = words!["neither ", key("groups"), " nor ", key("slice")];
            return Err(Mistake::on(field).because(why).expected(expected).fail());
        }
        return Ok(None);
    };
    let of_size = |size: Bytes| size.0.div_ceil(layout.group.0);
    let by_default = (SLICE.0 / layout.group.0).max(1);
    Ok(Some(request.groups.or(request.slice.map(of_size)).unwrap_or(by_default)))
}

fn command(request: &TrimRequest) -> String {
    let mut command = CommandText::new("trim");
    command.path(&request.mount);
    if request.dry_run {
        command.argument("--dry-run");
    }
    let sizes = [
        ("--min-extent", request.min_extent),
        ("--offset", request.offset),
        ("--length", request.length),
        ("--slice", request.slice),
    ];
    for (option, size) in sizes {
        if let Some(size) = size {
            command.option(option, size.0);
        }
    }
    for (option, number) in [("--groups", request.groups), ("--pause", request.pause_ms)] {
        if let Some(number) = number {
            command.option(option, number);
        }
    }
    command.into_text()
}
