//! Trims a mounted file system manually, as fstrim(8) does, but in slices.
//!
//! FITRIM asks a file system to discard its free space in a range. On ext4 only a fatal signal stops a call (or a host
//! that suspends), and nothing stops a discard in flight. So the range is split into slices of whole groups. Between
//! two slices no file of the mount is open, so it can be unmounted, and the trim can be stopped or can pause.
//!
//! Slices must find the same extents as one call over everything. Two things get in the way:
//!
//! ext4 skips groups that it has trimmed, unless it is asked for shorter extents than the last time; and for the second
//!   slice, the first one is the last time. So the value from before the run is restored before each slice
//!   (`last_trim_minblks` in sysfs, Linux 5.17).
//! XFS walks an allocation group that it trims completely by the length of its extents, a hundred at a time, and one
//!   that it trims in part by their position. The former walk loses extents where many have the same length: of 205
//!   free extents, 200 of them of 60 KiB, fstrim(8) sent 104 (Linux 6.18). A call that ends with an allocation group
//!   counts as one for part of it. So XFS is called once per group, however long the slice.
//!
//! The result is measured in three ways. The meaning of FITRIM's return value depends on the file system
//! ([`answer_means`]). The device's counts (the discard fields of its `stat`) mean the same everywhere, but include
//! discards that others sent in that time, and failed ones. Failed requests are counted where tracefs can be used.
//! [`Accounts::verdict`] decides between them.

mod accounts;
mod errno;
mod error;
mod held;
mod settling;
mod target;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use trimwise::units::Bytes;

use crate::block_device::DiscardCounts;
use crate::layout::Kind;
use accounts::Failures;

pub use accounts::{Accounts, FailedPart, Verdict, reports_failures};
pub use errno::Meaning;
pub use error::{TrimError, hanging_words};
pub use held::{Held, held_below};
pub use settling::Settled;
pub use target::{Before, Span, Target, TrimmedGroups};

/// Returns the meaning of FITRIM's return value on a file system, in words.
pub fn answer_means(kind: Kind) -> &'static str {
    match kind {
        Kind::Ext4 => "bytes of the free extents that ext4 submitted",
        Kind::Xfs => "on XFS since Linux 6.11 the bytes of the range asked for, not what was sent",
        Kind::Btrfs => "bytes that btrfs discarded, on all of its devices",
        Kind::Other => "as this file system defines it",
    }
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub slices: Vec<Span>,
    pub min_extent: Bytes,
    pub pause: Duration,
}

#[derive(Debug)]
pub enum Ended {
    Done,
    Stopped,
    Failed(TrimError),
}

#[derive(Debug)]
pub struct Outcome {
    pub slices_done: usize,
    /// The sum of FITRIM's return values; see [`answer_means`].
    pub answered: Bytes,
    /// The discards that the kernel counted on the devices, from any source, from before the first slice to after the
    /// last; `None` if it does not count them.
    pub counted: Option<DiscardCounts>,
    /// Bytes that the drive took, as far as that is verified.
    pub taken: Bytes,
    /// True if failed discards of some slice would not have shown.
    pub is_unverified: bool,
    /// Real time, including the pauses.
    pub elapsed: Duration,
    pub ended: Ended,
}

/// Trims slice by slice until all are done or `stop` is set. Calls `on_slice` with the number done.
///
/// # Errors
/// If the device's counts cannot be read at the beginning. Later failures end the trim and are part of the outcome.
pub fn run(
    target: &Target,
    plan: &Plan,
    stop: &AtomicBool,
    mut on_slice: impl FnMut(usize),
) -> Result<Outcome, TrimError> {
    target.expect_writable()?;
    target.expect_sound_kernel()?;
    let before = target.counts()?;
    let least = target.least_extent(plan.min_extent)?;
    let trimmed = target.trimmed_groups(least);
    let mut failures = Failures::watch(&target.devices, !target.stops.is_empty());
    let begun = Instant::now();
    let mut outcome = Outcome {
        slices_done: 0,
        answered: Bytes(0),
        counted: None,
        taken: Bytes(0),
        is_unverified: false,
        elapsed: Duration::ZERO,
        ended: Ended::Done,
    };
    for (index, &slice) in plan.slices.iter().enumerate() {
        if index > 0 {
            rest(plan.pause, stop);
        }
        if stop.load(Ordering::Relaxed) {
            outcome.ended = Ended::Stopped;
            break;
        }
        if let (TrimmedGroups::AgainSince { last }, 1..) = (trimmed, index) {
            // If that fails, the slice falls short of its map, and so is unverified.
            drop(target.restore_last_least(last));
        }
        let min_extent = plan.min_extent;
        // What ext4 skips is not in its map.
        let skips = target.kind == Kind::Ext4 && !matches!(trimmed, TrimmedGroups::AgainSince { .. });
        let sent = if skips { Ok(None) } else { target.estimate(slice, min_extent).map(|one| one.exact()) };
        let done =
            sent.and_then(|sent| run_slice(target, slice, min_extent, sent, failures.as_mut(), &mut outcome));
        if let Err(error) = done {
            outcome.ended = Ended::Failed(error);
        }
        if matches!(outcome.ended, Ended::Failed(_)) {
            break;
        }
        outcome.slices_done += 1;
        on_slice(outcome.slices_done);
    }
    outcome.elapsed = begun.elapsed();
    // If the device is gone, the failed slice already says so.
    let after = target.counts().ok().flatten();
    outcome.counted = after.zip(before).map(|(after, before)| after.since(before));
    Ok(outcome)
}

/// Trims a slice, and adds the bytes that the drive took to the outcome.
fn run_slice(
    target: &Target,
    slice: Span,
    min_extent: Bytes,
    sent: Option<Bytes>,
    mut failures: Option<&mut Failures>,
    outcome: &mut Outcome,
) -> Result<(), TrimError> {
    if let Some(failures) = &mut failures {
        failures.count(); // of others, before it
    }
    let before = target.before()?;
    let answered = target.trim_slice(slice, min_extent)?;
    outcome.answered.0 = outcome.answered.0.saturating_add(answered.0);
    let settled = target.settle(before.enough(sent))?;
    if settled.in_flight > 0 {
        return Err(TrimError::Hanging { path: target.shown(), in_flight: settled.in_flight });
    }
    let accounts = target.accounts(&before, answered, failures.and_then(Failures::count))?;
    let accounts = Accounts { sent, ..accounts };
    let (taken, is_known) = match accounts.verdict(target.kind) {
        Verdict::Taken(taken) => (taken, true),
        Verdict::Unverified(taken) => (taken, false),
        Verdict::Failed(taken) => {
            let still_believes = target.doubt_trimmed_groups().err().map(|error| error.to_string());
            outcome.ended =
                Ended::Failed(TrimError::Failed { path: target.shown(), accounts, still_believes });
            (taken.unwrap_or_default(), taken.is_some())
        }
    };
    outcome.taken.0 = outcome.taken.0.saturating_add(taken.0);
    outcome.is_unverified |= !is_known;
    Ok(())
}

fn rest(pause: Duration, stop: &AtomicBool) {
    const LOOK_EVERY: Duration = Duration::from_millis(20);
    let until = Instant::now() + pause;
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}
