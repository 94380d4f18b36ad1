//! Evaluates the commands that a drive received for a deletion.

use serde::Serialize;
use trimwise_uml::disk::{TraceEntry, Traced};

/// One discarded range, as the drive saw it. All times are from one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discarded {
    pub at_ns: u64,
    pub done_ns: u64,
    pub offset_bytes: u64,
    pub length_bytes: u64,
}

impl Discarded {
    /// Extracts the discards from a drive's trace. Times count from `begin_ns`.
    pub fn of(trace: &[TraceEntry], begin_ns: u64) -> Vec<Self> {
        let discarded = |entry: &TraceEntry| Self {
            at_ns: entry.at_ns - begin_ns,
            done_ns: entry.done_ns - begin_ns,
            offset_bytes: entry.offset_bytes,
            length_bytes: entry.length_bytes,
        };
        trace.iter().filter(|entry| entry.kind == Traced::Discard).map(discarded).collect()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Discards {
    pub commands: u64,
    pub ranges: u64,
    /// Bytes in these discards; a range that is discarded twice counts twice.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    Plain,
    /// In many pieces, between which another file lies.
    GapsOccupied,
    GapsFree,
}

impl Layout {
    /// In the order of the deletions. The file in one piece comes second: if it were already gone, a discard of a piece
    /// next to it would extend into its space.
    pub const ALL: [Self; 3] = [Self::GapsOccupied, Self::Plain, Self::GapsFree];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "one piece",
            Self::GapsOccupied => "gaps taken",
            Self::GapsFree => "gaps free",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Issued {
    Never,
    /// All discards ended before the fsync of the directory returned.
    InCommit,
    Afterwards,
    Both,
}

impl Issued {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::InCommit => "in fsync",
            Self::Afterwards => "after",
            Self::Both => "both",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Calls {
    pub unlink_ns: u64,
    pub fsync_ns: u64,
    /// Duration of an append of 4 KiB to another file with its fsync, right after the deletion.
    pub next_fsync_ns: u64,
    /// Mean duration of [`super::LATER_FSYNCS`] more of these.
    pub later_fsync_mean_ns: u64,
    pub later_fsync_max_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Deletion {
    pub layout: Layout,
    pub freed_bytes: u64,
    pub extents: u64,
    /// Share of the space between the pieces that another file occupies, according to FIEMAP; `None` if there is no
    /// such file.
    pub gaps_taken: Option<f64>,
    #[serde(flatten)]
    pub calls: Calls,
    pub issued: Issued,
    pub discards: Discards,
    pub in_fsync: Discards,
    pub distinct_bytes: u64,
    /// Discarded bytes of the file; `None` if the file system does not report their location on the drive.
    pub covered_bytes: Option<u64>,
    /// Arrival of the first discard, since the start of the unlink.
    pub first_ns: Option<u64>,
    /// Acknowledgement of the last discard, since the start of the unlink.
    pub last_ns: Option<u64>,
    /// Discarded bytes over the time since the start of the unlink; at most [`CURVE_POINTS_MAX`] points.
    pub curve: Vec<CurvePoint>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CurvePoint {
    pub at_ns: u64,
    pub bytes: u64,
}

pub(crate) const CURVE_POINTS_MAX: usize = 60;

/// Offset and length of a piece of a file on the drive, in bytes.
pub type Piece = (u64, u64);

impl Deletion {
    /// Evaluates the discards of the window, in the order in which the drive received them. The unlink began at
    /// `begin_ns` on the same clock; `commands` is the number of commands of the ranges; `on_drive` is true if `pieces`
    /// are addresses of the drive.
    pub fn of(
        layout: Layout,
        pieces: &[Piece],
        on_drive: bool,
        calls: Calls,
        begin_ns: u64,
        ranges: &[Discarded],
    ) -> Self {
        let end_of_fsync = begin_ns + calls.unlink_ns + calls.fsync_ns;
        let early: Vec<Discarded> = ranges.iter().copied().filter(|d| d.at_ns < end_of_fsync).collect();
        let (discards, in_fsync) = (Discards::of(ranges), Discards::of(&early));
        let issued = match (in_fsync.ranges, discards.ranges - in_fsync.ranges) {
            (0, 0) => Issued::Never,
            (_, 0) => Issued::InCommit,
            (0, _) => Issued::Afterwards,
            _ => Issued::Both,
        };
        let spans = union(ranges);
        Self {
            layout,
            freed_bytes: pieces.iter().map(|piece| piece.1).sum(),
            extents: pieces.len() as u64,
            gaps_taken: None,
            calls,
            issued,
            discards,
            in_fsync,
            distinct_bytes: spans.iter().map(|span| span.1).sum(),
            covered_bytes: on_drive.then(|| covered(pieces, &spans)),
            first_ns: ranges.iter().map(|d| d.at_ns - begin_ns).min(),
            last_ns: ranges.iter().map(|d| d.done_ns - begin_ns).max(),
            curve: curve(ranges, begin_ns),
        }
    }

    pub fn ratio(&self) -> f64 {
        self.discards.bytes as f64 / self.freed_bytes.max(1) as f64
    }
}

impl Discards {
    /// Counts these ranges. Ranges of one command are adjacent and have the same times.
    pub fn of(ranges: &[Discarded]) -> Self {
        let same = |a: &Discarded, b: &Discarded| (a.at_ns, a.done_ns) == (b.at_ns, b.done_ns);
        Self {
            commands: ranges.chunk_by(same).count() as u64,
            ranges: ranges.len() as u64,
            bytes: ranges.iter().map(|d| d.length_bytes).sum(),
        }
    }
}

/// Returns the union of the ranges, in order and without overlap.
pub fn union(ranges: &[Discarded]) -> Vec<Piece> {
    let mut sorted: Vec<Piece> = ranges.iter().map(|d| (d.offset_bytes, d.length_bytes)).collect();
    sorted.sort_unstable();
    let mut spans: Vec<Piece> = Vec::new();
    for (offset, length) in sorted {
        match spans.last_mut() {
            Some(last) if offset <= last.0 + last.1 => {
                last.1 = last.1.max(offset + length - last.0);
            }
            _ => spans.push((offset, length)),
        }
    }
    spans
}

/// Returns the bytes of `pieces` that lie in `spans`, which are in order and do not overlap.
pub fn covered(pieces: &[Piece], spans: &[Piece]) -> u64 {
    let within = |&(offset, length): &Piece| {
        let first = spans.partition_point(|span| span.0 + span.1 <= offset);
        spans[first..]
            .iter()
            .take_while(|span| span.0 < offset + length)
            .map(|span| (span.0 + span.1).min(offset + length) - span.0.max(offset))
            .sum::<u64>()
    };
    pieces.iter().map(within).sum()
}

/// Returns the share of the space between the pieces of a file that another file's pieces occupy. Gaps longer than a
/// piece are not counted, since the file continues elsewhere there.
pub fn gaps_taken(pieces: &[Piece], others: &[Piece]) -> Option<f64> {
    let mut sorted = pieces.to_vec();
    sorted.sort_unstable();
    let between = sorted
        .windows(2)
        .map(|pair| (pair[0].0 + pair[0].1, pair[1].0.saturating_sub(pair[0].0 + pair[0].1)));
    let gaps: Vec<Piece> = between.filter(|gap| (1..=super::EXTENT_BYTES).contains(&gap.1)).collect();
    let mut spans = others.to_vec();
    spans.sort_unstable();
    let all: u64 = gaps.iter().map(|gap| gap.1).sum();
    (all > 0).then(|| covered(&gaps, &spans) as f64 / all as f64)
}

/// Keeps the first and the last point, and some between them at about equal steps.
fn curve(ranges: &[Discarded], begin_ns: u64) -> Vec<CurvePoint> {
    let mut done: Vec<(u64, u64)> = ranges.iter().map(|d| (d.done_ns - begin_ns, d.length_bytes)).collect();
    done.sort_unstable();
    let mut bytes = 0;
    let mut points: Vec<CurvePoint> = Vec::new();
    for (at_ns, length) in done {
        bytes += length;
        match points.last_mut() {
            Some(last) if last.at_ns == at_ns => last.bytes = bytes,
            _ => points.push(CurvePoint { at_ns, bytes }),
        }
    }
    let step = points.len().div_ceil(CURVE_POINTS_MAX - 1).max(1);
    let last = points.len().saturating_sub(1);
    let keeps = |&(i, _): &(usize, CurvePoint)| i % step == 0 || i == last;
    points.into_iter().enumerate().filter(keeps).map(|(_, point)| point).collect()
}
