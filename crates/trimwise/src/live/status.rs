use serde::Serialize;

use super::{Asked, Lender, LiveHost, Reason, Untrimmed};
use crate::policy::Explanation;
use crate::units::{Bytes, SimDuration};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastSlice {
    pub ago_ns: SimDuration,
    pub took_ns: SimDuration,
    pub bytes: Bytes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    pub slices: u64,
    pub slices_failed: u64,
    pub slices_over: u64,
    pub slice_longest_ns: SimDuration,
    /// Free space that the device verifiably took in slices.
    pub trimmed_bytes: u64,
    /// Free space sent in slices where failed discards would not have shown.
    pub unverified_bytes: u64,
    /// Discards that the device counted during slices, from any source.
    pub counted_bytes: u64,
    /// Freed according to maps or utilization.
    pub freed_bytes: u64,
    /// Reused before being trimmed.
    pub reused_bytes: u64,
    pub looks: u64,
    /// Freed according to reports of each free. This is more than maps show, since some of it is reused before the next
    /// map.
    pub told_freed_bytes: u64,
    pub frees_lost: u64,
}

/// One file system, as `trimwise status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    pub policy: String,
    pub used_bytes: Bytes,
    pub total_bytes: Bytes,
    /// `rising`, `falling` or `steady` over the last ten minutes.
    pub trend: &'static str,
    pub waiting_bytes: Untrimmed,
    /// Untrimmed free space that is left alone: by the policy, or because it was sent and may not have been taken.
    pub left_bytes: Untrimmed,
    /// Maximum untrimmed space under `judicious`, or of space that is lent.
    pub bound_bytes: Bytes,
    /// `space` if it is lent and goes back, `flash` if trims are for the drive alone.
    pub purpose: &'static str,
    /// Who lends the space; `None` if nothing is lent, or it does not count.
    pub lender: Option<Lender>,
    /// Space that the lender holds beyond what is used, at most; `None` if unknown.
    pub held_beyond_use_bytes: Option<Bytes>,
    /// The same in a sentence.
    pub lent: Option<String>,
    /// The waiting and left bytes come from the file system's map. Otherwise they are estimated from utilization.
    pub mapped: bool,
    /// Progress of work in several steps, in thousandths of the addresses: a round through the windows of a map with
    /// more free extents than are kept, or a walk where there is no map. `None` if there is neither.
    pub round_permille: Option<u64>,
    /// Each free is seen as it happens. Otherwise maps and utilization show what was freed.
    pub frees_seen: bool,
    pub online: bool,
    pub paused: bool,
    pub asked: Asked,
    /// It needs the user's attention: [`Reason::is_trouble`].
    pub trouble: bool,
    pub reason: Reason,
    pub why: String,
    pub change: String,
    pub next: String,
    pub last: Option<LastSlice>,
    pub totals: Totals,
    pub latency_untouched_ns: Option<SimDuration>,
    pub latency_touched_ns: Option<SimDuration>,
    pub slice_bytes_max: Bytes,
}

/// Describes a time in the largest unit of which it has at least ten.
pub(super) fn time_words(time: SimDuration) -> String {
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
    pub fn status(&self) -> Status {
        let (untouched, touched) = self.pace.latencies();
        let why = self.reason.to_string();
        Status {
            policy: self.policy.to_string(),
            used_bytes: self.load.sample.used,
            total_bytes: self.load.sample.total,
            trend: self.trend_word(),
            waiting_bytes: self.waiting(),
            left_bytes: self.left(),
            bound_bytes: self.bound(),
            purpose: if self.settings.lent.is_some() { "space" } else { "flash" },
            lender: self.lender().cloned(),
            held_beyond_use_bytes: self.held_beyond_use(),
            lent: self.lent_words(),
            mapped: self.knowledge.is_mapped(),
            round_permille: self.knowledge.progress_permille(),
            frees_seen: self.are_frees_watched(),
            online: self.is_online(),
            paused: self.is_paused(),
            asked: self.user.asked,
            why,
            change: self.reason.change(),
            next: self.next_words(),
            trouble: self.reason.is_trouble(),
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
        let Explanation { state, change } = self.policy_words();
        // The policy's explanation does not apply if the kernel discards regardless of it.
        let is_overruled = self.is_online() && self.wants_online() != Some(true);
        if !matches!(self.reason, Reason::Policy { .. }) && !state.is_empty() && !is_overruled {
            sentences.push(format!("The policy itself: {state} What would change that: {change}"));
        }
        sentences.push(self.untrimmed_words());
        sentences.extend(self.lent_words());
        sentences.extend(self.toggle_words());
        if !self.is_left_to_kernel() {
            sentences.extend(self.round_words());
            sentences.extend(self.knowledge.is_mapped().then(|| self.frees_words()));
        }
        sentences.extend(self.slice_words());
        if self.totals.unverified_bytes > 0 {
            sentences.push(format!(
                "So far {}.{}",
                self.totals.sent().words("trimmed"),
                if self.trouble.reports_failures {
                    ""
                } else {
                    " Tracepoints of the block layer (tracefs) would show discards that fail."
                }
            ));
        }
        if let (Some(untouched), Some(touched)) = self.pace.latencies() {
            sentences.push(format!(
                "A request takes {} on average, {} during slices; the rest after a slice is {} times the slice's \
                 duration.",
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
                "A slice should take at most {} ms: the longest took {} ms; slices that took longer: {slices_over} of \
                 {slices}.",
                ms(self.pace.target()),
                ms(longest)
            )
        })
    }

    fn untrimmed_words(&self) -> String {
        let (waiting, left) = (self.waiting(), self.left());
        let once = "run `trimwise trim --now` to trim all free space once";
        match (waiting + left, self.is_left_to_kernel()) {
            (Untrimmed::Unknown, true) => {
                format!(
                    "It is not known how much of the earlier free space is untrimmed. trimwised leaves it alone; \
                     {once}."
                )
            }
            (Untrimmed::Unknown, false) => {
                let why = if self.facts.maps {
                    "no map has been read"
                } else {
                    "online discard was on when trimwised started"
                };
                format!("It is not known how much free space is untrimmed: {why}.")
            }
            (Untrimmed::Known(Bytes(0)), true) => "All free space is trimmed, as far as known.".to_owned(),
            (untrimmed, true) => format!(
                "Untrimmed free space, from before online discard or before trimwised started: {untrimmed}, left \
                 alone; {once}."
            ),
            (Untrimmed::Known(_), false) => {
                let basis = if self.knowledge.is_mapped() {
                    "from the file system's own map"
                } else {
                    "estimated from utilization"
                };
                let bound = if self.is_bounded() {
                    format!("; the bound is {}", self.bound())
                } else {
                    String::new()
                };
                let doubted = match self.knowledge.unverified() {
                    Bytes(0) => String::new(),
                    sent => format!(", of which {sent} were sent, unverified"),
                };
                format!(
                    "Untrimmed free space: {waiting} waiting, {left} left alone{doubted} ({basis}){bound}."
                )
            }
        }
    }

    fn round_words(&self) -> Option<String> {
        let permille = self.knowledge.progress_permille()?;
        Some(self.knowledge.progress_words(&format!("{}.{} %", permille / 10, permille % 10)))
    }

    fn frees_words(&self) -> String {
        match (self.are_frees_watched(), self.totals.frees_lost) {
            (true, 0) => "Each free is seen as it happens, through the kernel's tracepoints.".to_owned(),
            (true, lost) => format!(
                "Frees are seen as they happen, through the kernel's tracepoints, except for {lost} that were lost; \
                 maps stood in for those."
            ),
            (false, _) => {
                "Space allocated and freed again between two maps goes unseen, and is found within a week."
                    .to_owned()
            }
        }
    }

    fn next_words(&self) -> String {
        // A request to trim everything does not wait for a walk to be due.
        let walk = (self.knowledge.waiting().0 > 0 && !self.all_is_wanted())
            .then(|| self.knowledge.next_walk(self.is_forced()))
            .flatten();
        match &self.reason {
            Reason::Online { fixed } if *fixed || !self.wishes.backlog || walk.is_none() => {
                "nothing; the kernel does it.".to_owned()
            }
            Reason::Paused => "nothing but reading maps of free space.".to_owned(),
            Reason::Stuck { .. } | Reason::Refused { .. } => "nothing.".to_owned(),
            _ if !self.policy.needs_trim() && !self.is_asked() => "nothing; the policy is off.".to_owned(),
            _ if walk.is_some_and(|at| at > self.now) => format!(
                "a walk over all addresses, slice by slice, in {} at the earliest.",
                time_words(walk.unwrap_or_default().since(self.now))
            ),
            _ if self.knowledge.waiting().0 > 0 => {
                let most = self.knowledge.waiting().min(self.pace.bytes_max());
                format!("a slice of up to {most}, as soon as none of the above prevents it.")
            }
            _ if self.knowledge.is_mapped() => {
                "reading the map of free space, once enough has been freed.".to_owned()
            }
            _ => "a trim, once enough has been freed.".to_owned(),
        }
    }
}
