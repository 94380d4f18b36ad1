//! What a live host says of itself.

use serde::Serialize;

use super::{Asked, Knowledge, LiveHost, Reason};
use crate::policy::Explanation;
use crate::units::{Bytes, SimDuration};

/// The last slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastSlice {
    /// How long ago it ended.
    pub ago_ns: SimDuration,
    /// How long it took.
    pub took_ns: SimDuration,
    /// What it was expected to trim.
    pub bytes: Bytes,
}

/// Sums since the host began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Slices that ended.
    pub slices: u64,
    /// Slices that failed.
    pub slices_failed: u64,
    /// Slices that took longer than they are to take at most.
    pub slices_over: u64,
    /// How long the longest slice took.
    pub slice_longest_ns: SimDuration,
    /// Free space that slices were to trim.
    pub trimmed_bytes: u64,
    /// What the device counted during slices, whoever sent it.
    pub counted_bytes: u64,
    /// Freed, as maps or utilization showed it.
    pub freed_bytes: u64,
    /// In use again before it was trimmed.
    pub reused_bytes: u64,
    /// Maps that were read.
    pub looks: u64,
    /// Freed, as it was told when it happened; more than maps show, since some is used again before.
    pub told_freed_bytes: u64,
    /// Frees that were lost before they could be told.
    pub frees_lost: u64,
}

/// One file system, as `trimwise status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The policy, as it is written.
    pub policy: String,
    /// Bytes in use.
    pub used_bytes: Bytes,
    /// Bytes of the file system.
    pub total_bytes: Bytes,
    /// `rising`, `falling` or `steady` over the last ten minutes.
    pub trend: &'static str,
    /// Free space that waits for its trim.
    pub waiting_bytes: Bytes,
    /// Free space that is untrimmed, and that the policy does not want.
    pub left_bytes: Bytes,
    /// The most that `judicious` leaves untrimmed.
    pub bound_bytes: Bytes,
    /// Whether the first two come from the file system's map; else they are estimates from utilization.
    pub mapped: bool,
    /// Where it is in what takes more than one step, in thousandths of the addresses: a round through windows of a map
    /// that has more free extents than are kept, or a walk where there is no map. `None` if neither is.
    pub round_permille: Option<u64>,
    /// Whether each free is seen as it happens; else maps and utilization show what was freed.
    pub frees_seen: bool,
    /// Whether the kernel's own online discard is on.
    pub online: bool,
    /// Whether the user paused it.
    pub paused: bool,
    /// What became of the last request to trim all of it.
    pub asked: Asked,
    /// Why it does what it does, as data.
    pub reason: Reason,
    /// The same as a sentence.
    pub why: String,
    /// What would change it.
    pub change: String,
    /// What it does next.
    pub next: String,
    /// The last slice.
    pub last: Option<LastSlice>,
    /// Sums.
    pub totals: Totals,
    /// Mean time of a request without slices, if any was seen.
    pub latency_untouched_ns: Option<SimDuration>,
    /// Mean time of a request beside slices.
    pub latency_touched_ns: Option<SimDuration>,
    /// The most bytes of the next slice.
    pub slice_bytes_max: Bytes,
}

/// A time as people say it, in the largest unit of which there are ten.
fn time_words(time: SimDuration) -> String {
    const SECOND: u64 = 1_000_000_000;
    let units = [
        (86_400 * SECOND, "d"),
        (3_600 * SECOND, "h"),
        (60 * SECOND, "min"),
        (SECOND, "s"),
        (1_000_000, "ms"),
    ];
    let ns = time.as_nanos();
    let (unit, name) = units.into_iter().find(|(unit, _)| ns >= 10 * unit).unwrap_or((1_000, "µs"));
    format!("{} {name}", ns / unit)
}

impl LiveHost {
    /// How it stands.
    pub fn status(&self) -> Status {
        let (untouched, touched) = self.pace.latencies();
        let why = self.reason.to_string();
        Status {
            policy: self.policy.to_string(),
            used_bytes: self.sample.used,
            total_bytes: self.sample.total,
            trend: self.trend_word(),
            waiting_bytes: self.waiting(),
            left_bytes: self.left(),
            bound_bytes: self.bound(),
            mapped: self.is_mapped(),
            round_permille: self.round_permille(),
            frees_seen: self.are_frees_watched(),
            online: self.online,
            paused: self.paused,
            asked: self.asked,
            why,
            change: self.reason.change(),
            next: self.next_words(),
            reason: self.reason.clone(),
            last: self.pace.last().map(|last| LastSlice {
                ago_ns: self.now.since(last.ended),
                took_ns: last.took,
                bytes: last.bytes,
            }),
            totals: self.totals,
            latency_untouched_ns: untouched,
            latency_touched_ns: touched,
            slice_bytes_max: self.pace.bytes_max(),
        }
    }

    /// Sentences for `trimwise explain`: what it does and why, and what would change that.
    pub fn explain(&self) -> Vec<String> {
        let mut sentences = vec![format!("Policy: {}.", self.policy)];
        sentences.push(self.reason.to_string());
        sentences.push(format!("What would change that: {}", self.reason.change()));
        let Explanation { state, change } = self.governor.explain(&self.view());
        // What the policy would do or leave alone says nothing of what the kernel does whatever it says.
        let is_overruled = self.online && self.wants_online() != Some(true);
        if !matches!(self.reason, Reason::Policy { .. }) && !state.is_empty() && !is_overruled {
            sentences.push(format!("The policy itself: {state} What would change that: {change}"));
        }
        sentences.push(self.untrimmed_words());
        sentences.extend(self.toggle_words());
        if !self.is_left_to_kernel() {
            sentences.extend(self.round_words());
            sentences.extend(self.is_mapped().then(|| self.frees_words()));
        }
        sentences.extend(self.slice_words());
        if let (Some(untouched), Some(touched)) = self.pace.latencies() {
            sentences.push(format!(
                "A request takes {} on average, {} beside slices; the rest behind a slice is {} times as long as it.",
                time_words(untouched),
                time_words(touched),
                self.pace.rest_factor()
            ));
        }
        sentences.push(format!("Next: {}", self.next_words()));
        sentences
    }

    fn slice_words(&self) -> Option<String> {
        let Totals { slices, slices_over, slice_longest_ns: longest, .. } = self.totals;
        (slices > 0).then(|| {
            let ms = |time: SimDuration| time.as_nanos().div_ceil(1_000_000);
            format!(
                "A slice is to take {} ms at most: the longest took {} ms; slices that took longer than they were to: \
                 {slices_over} of {slices}.",
                ms(self.pace.target()),
                ms(longest)
            )
        })
    }

    fn round_permille(&self) -> Option<u64> {
        match &self.knowledge {
            Knowledge::Map(_) => self.round.permille(self.facts.total.0),
            Knowledge::Estimate(estimate) => estimate.walked_permille(),
        }
    }

    fn untrimmed_words(&self) -> String {
        let (waiting, left) = (self.waiting(), self.left());
        let untrimmed = Bytes(waiting.0.saturating_add(left.0));
        let is_unknown = match &self.knowledge {
            Knowledge::Map(_) => !self.is_mapped(),
            // The kernel told the device of some of it before the host began, and nobody says of how much.
            Knowledge::Estimate(estimate) => self.online && !estimate.has_walked() && untrimmed.0 == 0,
        };
        let once = "`trimwise trim --now` trims all that is free once";
        match (is_unknown, self.is_left_to_kernel()) {
            (true, true) => {
                format!(
                    "How much of what was free before is untrimmed is not known, and stays as it is: {once}."
                )
            }
            (true, false) => {
                "How much free space is untrimmed is not known: no map of it was read.".to_owned()
            }
            (false, true) if untrimmed.0 == 0 => "All free space is trimmed, as far as is known.".to_owned(),
            (false, true) => format!(
                "Untrimmed free space, from before online discard or from before trimwised began: {untrimmed}, which stay \
                 as they are: {once}."
            ),
            (false, false) => {
                let basis = if self.is_mapped() {
                    "by the file system's own map"
                } else {
                    "estimated from utilization"
                };
                let bound = if self.policy.is_judicious() {
                    format!("; the bound is {}", self.bound())
                } else {
                    String::new()
                };
                format!("Untrimmed free space: {waiting} wait, {left} are left as they are ({basis}){bound}.")
            }
        }
    }

    fn round_words(&self) -> Option<String> {
        let permille = self.round_permille()?;
        let at = format!("{}.{} %", permille / 10, permille % 10);
        Some(match &self.knowledge {
            Knowledge::Estimate(_) => format!(
                "It has no map, so all of its addresses are gone over slice by slice: this is done for {at} of them."
            ),
            Knowledge::Map(_) if !self.round.is_over => format!(
                "It has more free extents than the {} that are kept, so they are gone through in a round, which is at \
                 {at} of its addresses; what waits behind that is not counted.",
                self.facts.spans_max
            ),
            Knowledge::Map(space) => format!(
                "It has more free extents than the {} that are kept, so they are gone through in rounds. The last one is \
                 over; the next begins when {} are freed, as much as was forgotten ({} were since), or within a week.",
                self.facts.spans_max,
                space.forgotten(),
                Bytes(self.freed_since_look)
            ),
        })
    }

    fn frees_words(&self) -> String {
        match (self.are_frees_watched(), self.totals.frees_lost) {
            (true, 0) => "Each free is seen as it happens, through the kernel's tracepoints.".to_owned(),
            (true, lost) => format!(
                "Frees are seen as they happen, through the kernel's tracepoints, but for {lost} that were lost: maps stood \
                 in for those."
            ),
            (false, _) => {
                "What comes and goes between two maps is not seen, and found within a week.".to_owned()
            }
        }
    }

    fn next_words(&self) -> String {
        let walk = match &self.knowledge {
            // Who asked for all of it does not wait for it to be due.
            Knowledge::Estimate(estimate) if self.waiting().0 > 0 && !self.is_asked() && !self.sweep => {
                estimate.next_walk(self.is_forced())
            }
            _ => None,
        };
        match &self.reason {
            Reason::Online { fixed } if *fixed || !self.wants_backlog || walk.is_none() => {
                "nothing; the kernel does it.".to_owned()
            }
            Reason::Paused => "nothing but looks at free space.".to_owned(),
            Reason::Stuck { .. } | Reason::Refused { .. } => "nothing.".to_owned(),
            _ if walk.is_some_and(|at| at > self.now) => format!(
                "a walk over all of it, slice by slice, in {} at the earliest.",
                time_words(walk.unwrap_or_default().since(self.now))
            ),
            _ if self.waiting().0 > 0 => {
                let most = self.waiting().min(self.pace.bytes_max());
                format!("a slice of up to {most}, when nothing of the above stands in its way.")
            }
            _ if self.is_mapped() => "a look at free space when enough was freed.".to_owned(),
            _ => "a trim when enough was freed.".to_owned(),
        }
    }
}
