use serde::Serialize;
use trimwise::failure::Failure;
use trimwise::units::Bytes;
use trimwise_linux::block_device::{BlockDevice, DiscardCounts};
use trimwise_linux::code::Code;
use trimwise_linux::free_space::Estimate;
use trimwise_linux::layout::Kind;
use trimwise_linux::privilege::advice;
use trimwise_linux::trim::{self, Ended, Held, Outcome, Span, Target, TrimmedGroups};

use crate::conclusion::Conclusion;

#[derive(Clone, Debug, Serialize)]
pub struct TrimReport {
    pub trimwise: &'static str,
    pub settings: TrimSettings,
    pub file_system: FileSystem,
    pub devices: Vec<Device>,
    /// Size of the trim, found before anything is sent.
    pub estimate: EstimateReport,
    /// `None` in a dry run.
    pub trim: Option<TrimDone>,
    /// Limits of the figures.
    pub notes: Vec<String>,
    /// What to do about TRIM there from now on; `None` if the doctor does not know the file system.
    pub conclusion: Option<Conclusion>,
    /// Why the trim ended early, if it did.
    #[serde(skip)]
    pub failure: Option<Failure>,
}

#[derive(Clone, Debug, Serialize)]
pub struct TrimSettings {
    pub dry_run: bool,
    /// The shortest extent requested of FITRIM.
    pub min_extent_bytes: Bytes,
    /// The shortest extent that is actually sent: the device's granularity and the file system's blocks count too.
    pub min_extent_effective_bytes: Bytes,
    pub offset_bytes: u64,
    /// Length from the offset; `None` is up to the end of an address space of unknown size (btrfs).
    pub length_bytes: Option<Bytes>,
    /// `None` if everything is one slice.
    pub groups_per_slice: Option<u64>,
    pub pause_ms: u64,
    pub command: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct FileSystem {
    pub mount_point: String,
    /// `ext4`, `xfs`...
    pub kind: String,
    pub mounted_with: String,
    /// The file system's word for groups; `None` if it has no known groups.
    pub groups_name: Option<&'static str>,
    pub groups: Option<u64>,
    pub group_bytes: Option<Bytes>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Device {
    /// The kernel's name.
    pub name: String,
    /// The statistics file that counts the device's discards.
    pub counted_in: String,
    pub discard_granularity_bytes: Bytes,
    pub discard_max_bytes: Bytes,
    pub ranges_per_command: u64,
}

/// The estimate of what would be sent.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "basis", rename_all = "kebab-case")]
pub enum EstimateReport {
    /// From the map of free extents.
    FreeExtents {
        extents: u64,
        bytes: Bytes,
        /// Commands, if none are merged.
        commands_max: u64,
        too_short_extents: u64,
        too_short_bytes: Bytes,
    },
    /// At most the unused space on the devices.
    UpperBound { bytes_max: Bytes },
}

#[derive(Clone, Debug, Serialize)]
pub struct TrimDone {
    pub slices_done: usize,
    pub slices: usize,
    /// The sum of FITRIM's return values.
    pub fitrim_answered_bytes: Bytes,
    /// The meaning of that sum on this file system.
    pub fitrim_answer_means: &'static str,
    /// `None` on a kernel that does not count discards.
    pub device_counted: Option<Counted>,
    /// `taken`; `accepted` (by a virtual disk, whose host may ignore it); `unverified` (failed discards would not have
    /// shown, or do not reach every drive); or `failed`.
    pub verdict: &'static str,
    /// Code of what is wrong or unknown.
    pub code: Option<Code>,
    /// Bytes that the device verifiably took, or a virtual disk accepted; `None` if none is verified.
    pub taken_bytes: Option<Bytes>,
    /// What else is free according to the file system's map, unless it is known to be trimmed; `None` without a map, and if
    /// ext4 may have skipped some of it, having trimmed it before.
    pub untrimmed_bytes: Option<Bytes>,
    /// What the layers below held before and after, where they say it.
    pub given_back: Vec<GivenBack>,
    pub duration_ns: u64,
    /// `done`, `interrupted` or `failed`.
    pub ended: &'static str,
    pub failure: Option<String>,
}

/// Space that a layer below holds for the file system: a thin pool, the file of a loop device, zram's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GivenBack {
    pub layer: String,
    pub before_bytes: Bytes,
    pub after_bytes: Bytes,
}

impl GivenBack {
    pub fn between(before: &[Held], after: &[Held]) -> Vec<Self> {
        let pairs =
            before.iter().filter_map(|one| Some((one, after.iter().find(|other| other.layer == one.layer)?)));
        let given = pairs.map(|(before, after)| Self {
            layer: before.layer.clone(),
            before_bytes: before.bytes,
            after_bytes: after.bytes,
        });
        given.collect()
    }

    /// Says what came back.
    pub fn sentence(&self) -> String {
        let Self { layer, before_bytes, after_bytes } = self;
        let came = match before_bytes.0.checked_sub(after_bytes.0) {
            Some(0) => "nothing came back".to_owned(),
            Some(back) => format!("{} came back", Bytes(back)),
            None => "it grew meanwhile".to_owned(),
        };
        format!("Below it, {layer} holds {after_bytes} now, and held {before_bytes} before: {came}.")
    }
}

/// Discards that the kernel counted on the devices.
#[derive(Clone, Debug, Serialize)]
pub struct Counted {
    pub commands: u64,
    /// Requests that were merged into others.
    pub merged: u64,
    pub bytes: Bytes,
}

impl From<DiscardCounts> for Counted {
    fn from(counts: DiscardCounts) -> Self {
        Self { commands: counts.commands, merged: counts.merged, bytes: counts.bytes }
    }
}

impl FileSystem {
    pub fn of(target: &Target) -> Self {
        let layout = target.layout.as_ref();
        Self {
            mount_point: target.mount.mount_point.display().to_string(),
            kind: target.mount.fs_type.clone(),
            mounted_with: target.mount.discard().to_string(),
            groups_name: layout.map(|_| target.kind.groups_name()),
            groups: layout.map(|layout| layout.groups()),
            group_bytes: layout.map(|layout| layout.group),
        }
    }
}

impl From<&BlockDevice> for Device {
    fn from(device: &BlockDevice) -> Self {
        Self {
            name: device.name.clone(),
            counted_in: device.sysfs_link().join("stat").display().to_string(),
            discard_granularity_bytes: device.limits.granularity,
            discard_max_bytes: device.limits.max,
            ranges_per_command: device.limits.ranges,
        }
    }
}

impl From<&Estimate> for EstimateReport {
    fn from(estimate: &Estimate) -> Self {
        match estimate {
            Estimate::Extents(extents) => Self::FreeExtents {
                extents: extents.count,
                bytes: extents.bytes,
                commands_max: extents.commands_max,
                too_short_extents: extents.too_short,
                too_short_bytes: extents.too_short_bytes,
            },
            Estimate::Bound(bytes_max) => Self::UpperBound { bytes_max: *bytes_max },
        }
    }
}

impl TrimDone {
    /// Summarises a trim of `slices` slices. `stops` says why nothing of it reaches the drive, if that is known.
    pub fn of(
        target: &Target,
        estimate: &Estimate,
        trimmed: TrimmedGroups,
        outcome: &Outcome,
        slices: usize,
        stops: Option<&str>,
    ) -> Self {
        let (ended, failure) = match &outcome.ended {
            Ended::Done => ("done", stops.map(str::to_owned)),
            Ended::Stopped => ("interrupted", None),
            Ended::Failed(error) => ("failed", Some(error.to_string())),
        };
        let has_failed = matches!(outcome.ended, Ended::Failed(_));
        let (verdict, code) = judged(has_failed, stops.is_some(), outcome.is_unverified, target.is_virtual);
        let taken = if stops.is_some() { Bytes(0) } else { outcome.taken };
        let is_known = matches!(outcome.ended, Ended::Done) && stops.is_none() && !outcome.is_unverified;
        Self {
            slices_done: outcome.slices_done,
            slices,
            fitrim_answered_bytes: outcome.answered,
            fitrim_answer_means: trim::answer_means(target.kind),
            device_counted: outcome.counted.map(Counted::from),
            verdict,
            code,
            taken_bytes: Some(taken).filter(|taken| taken.0 > 0 || stops.is_some() || !outcome.is_unverified),
            untrimmed_bytes: estimate
                .exact()
                .and_then(|free| untrimmed(free, taken, outcome.answered, is_known, trimmed)),
            given_back: Vec::new(),
            duration_ns: u64::try_from(outcome.elapsed.as_nanos()).unwrap_or(u64::MAX),
            ended,
            failure,
        }
    }
}

/// Returns what is not known to be trimmed of the `free` space in the map; `None` if that is unknown, since ext4 does not
/// say what it skipped.
fn untrimmed(
    free: Bytes,
    taken: Bytes,
    answered: Bytes,
    is_known: bool,
    trimmed: TrimmedGroups,
) -> Option<Bytes> {
    let may_skip = matches!(trimmed, TrimmedGroups::Skipped | TrimmedGroups::Unknown);
    match is_known {
        true if may_skip && answered < free => None,
        true => Some(Bytes(0)),
        false => Some(Bytes(free.0.saturating_sub(taken.0))),
    }
}

/// Returns the verdict on a trim, and its code.
fn judged(
    has_failed: bool,
    stops: bool,
    is_unverified: bool,
    is_virtual: bool,
) -> (&'static str, Option<Code>) {
    match () {
        () if has_failed => ("failed", Some(Code::TrimFailed)),
        () if stops => ("failed", Some(Code::TrimStops)),
        () if is_unverified => ("unverified", Some(Code::TrimUnverified)),
        () if is_virtual => ("accepted", Some(Code::TrimOnVirtualDisk)),
        () => ("taken", None),
    }
}

pub fn notes(
    target: &Target,
    span: Span,
    trimmed: TrimmedGroups,
    estimate: &Estimate,
    outcome: Option<&Outcome>,
) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |text: String| notes.push(text);
    match (target.kind, estimate) {
        (Kind::Ext4, Estimate::Extents(_)) => note(
            match trimmed {
                TrimmedGroups::Again | TrimmedGroups::AgainSince { .. } => {
                    "ext4 was last asked for longer extents, so it will visit the groups that it trimmed then again."
                }
                TrimmedGroups::Skipped => {
                    "ext4 skips block groups that it has trimmed since the mount if nothing was freed in them since \
                     then. It does not say which they are, so it may send less than estimated, even nothing."
                }
                TrimmedGroups::Unknown => {
                    "ext4 skips block groups that it has trimmed since the mount if nothing was freed in them since \
                     then, unless it is asked for shorter extents than the last time, which this kernel does not \
                     report (Linux 5.17 and later do). So it may send less than estimated. If the shortest extent asked \
                     for is smaller than the last time, put all groups into one slice: after the first slice it skips \
                     them again."
                }
            }
            .to_string(),
        ),
        (_, Estimate::Extents(_)) => note(
            "XFS trims again what it has trimmed before; extents that were freed a moment ago may be left out."
                .to_string(),
        ),
        (Kind::Btrfs, Estimate::Bound(_)) => note(
            "Btrfs does not list its free space: the bound is the size of its devices less what is in use on them. How \
             much of that is sent is not known in advance. Ranges are logical addresses. Device space outside all \
             block groups is trimmed whatever the range; what has been trimmed of it since the mount is \
             skipped."
                .to_string(),
        ),
        (_, Estimate::Bound(_)) => note(format!(
            "{} does not list its free space: the bound is the size of the device less what is in use. How much of \
             that is sent is not known in advance.",
            target.mount.fs_type
        )),
    }
    if let Some(layout) = &target.layout {
        if layout.assumed {
            note(format!(
                "The superblock on {} cannot be read ({}); groups are assumed to be {} large, the default of mkfs.",
                target.devices[0].name,
                advice("run as root"),
                layout.group
            ));
        }
        if layout.realtime.0 > 0 {
            note(format!("The realtime device of this XFS ({}) is not trimmed.", layout.realtime));
        }
        if target.kind == Kind::Ext4 && span.end != layout.group_end(span.end.saturating_sub(1)) {
            note(
                "The range ends inside a block group: since Linux 6.8 ext4 sends a free extent that crosses the end \
                 whole, as do stable kernels since early 2024, and so the estimate counts it."
                    .to_string(),
            );
        }
    }
    if target.devices.iter().any(|device| device.limits.ranges > 1) {
        note(
            "The device takes several ranges per command; if the kernel merges ranges, it sends fewer commands."
                .into(),
        );
    }
    if outcome.is_some_and(|outcome| outcome.counted.is_some()) {
        note(
            "The device's count includes all discards in that time, whoever sent them, and failed ones."
                .to_string(),
        );
    }
    if let (Some(_), [_, ..]) = (outcome, &target.stops[..]) {
        note(format!(
            "It does not reach every drive: TRIM stops at {}. `trimwise doctor` says why.",
            target.stops.join(", ")
        ));
    } else if outcome
        .is_some_and(|outcome| outcome.is_unverified && !matches!(outcome.ended, Ended::Failed(_)))
    {
        note(format!(
            "Whether the device took all of it is unverified: failed discards would show only in the kernel's tracepoints \
             (tracefs, Linux 5.18 and later), which cannot be read here, or have none of this device's driver; or {} sent \
             less than its map shows. `trimwise verify dir:PATH` reads the disk.",
            target.mount.fs_type
        ));
    }
    if outcome.is_some() && target.is_virtual {
        note(
            "A virtual disk accepts discards even where its host ignores them (QEMU's default), which cannot be seen \
             here."
                .to_string(),
        );
    }
    if outcome.is_some_and(|outcome| outcome.counted.is_none()) {
        note("This kernel does not count discards (Linux 4.19 and later do).".to_string());
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_back_is_the_difference() {
        let held = |layer: &str, mib: u64| Held { layer: layer.to_owned(), bytes: Bytes::mib(mib) };
        let before = [held("the thin pool p", 6), held("gone", 1), held("a file", 3), held("zram", 3)];
        let after = [held("the thin pool p", 2), held("a file", 3), held("zram", 4)];
        let said: Vec<String> = GivenBack::between(&before, &after).iter().map(GivenBack::sentence).collect();
        assert_eq!(
            said,
            [
                "Below it, the thin pool p holds 2 MiB now, and held 6 MiB before: 4 MiB came back.",
                "Below it, a file holds 3 MiB now, and held 3 MiB before: nothing came back.",
                "Below it, zram holds 4 MiB now, and held 3 MiB before: it grew meanwhile.",
            ]
        );
    }

    #[test]
    fn what_ext4_may_have_skipped_is_not_known_to_be_trimmed() {
        use TrimmedGroups::{Again, AgainSince, Skipped, Unknown};
        const FREE: Bytes = Bytes(8000);
        for (trimmed, answered, is_known, expected) in [
            (Skipped, 0, true, None),
            (Skipped, 7999, true, None),
            (Unknown, 0, true, None),
            (Skipped, 8000, true, Some(0)),
            (Again, 7999, true, Some(0)),
            (AgainSince { last: 2 }, 7999, true, Some(0)),
            (Skipped, 5000, false, Some(3000)),
        ] {
            let found = untrimmed(FREE, Bytes(answered), Bytes(answered), is_known, trimmed);
            assert_eq!(found, expected.map(Bytes), "{trimmed:?}, {answered} answered, known {is_known}");
        }
    }

    #[test]
    fn each_verdict_of_a_trim_has_its_code() {
        for (has_failed, stops, is_unverified, is_virtual, verdict, code) in [
            (false, false, false, false, "taken", None),
            (false, false, false, true, "accepted", Some("trim.sent.on-virtual-disk")),
            (false, false, true, true, "unverified", Some("trim.sent.unverified")),
            (false, true, true, true, "failed", Some("trim.sent.stops")),
            (true, true, true, true, "failed", Some("trim.sent.failed")),
        ] {
            let (said, found) = judged(has_failed, stops, is_unverified, is_virtual);
            assert_eq!((said, found.map(Code::as_str)), (verdict, code));
        }
    }
}
