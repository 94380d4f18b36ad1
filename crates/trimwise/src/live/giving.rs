//! Space that is lent goes back to its lender ([`Lent`](super::Lent)), even if the host is never quiet: by a deadline,
//! and at once when the lender runs short.
//!
//! The bound on what stays untrimmed is that of `judicious`, only lower. The deadline and low water each start a sweep
//! over all that is untrimmed. The one for a deadline begins early enough to end in time; it disregards pressure, and
//! its rests are as long as that time allows. The one for low water disregards rests too.
//!
//! At low water the first sweep of a day sends all free space again: pieces that were freed and sent one after the other
//! may fill a chunk of the pool by now, and only a chunk that is sent whole is freed there. Another sweep starts when
//! something new was freed, so a pool that stays nearly full causes no more work than that.

use serde::{Deserialize, Serialize};

use super::decide::FORCED_WITHIN;
use super::{LiveHost, Reason, SECOND};
use crate::units::{Bytes, SimDuration, SimTime};

/// What is freed may show in a map this much later: XFS writes its log after 30 s.
const SHOWN_WITHIN: SimDuration = SimDuration::from_secs(30);
/// Shortest time between two walks at low water, where there is no map.
const WALK_AGAIN: SimDuration = SimDuration::from_secs(3_600);
/// Shortest time between two sweeps that send all free space again.
const RESEND: SimDuration = SimDuration::from_secs(86_400);

/// Who lends a file system its space, as last read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lender {
    /// In words: `thin pool vg-pool`.
    pub name: String,
    /// `None` if it is unknown how full it is.
    pub level: Option<Level>,
    /// Space that it holds for this file system; `None` if unknown.
    pub held_bytes: Option<Bytes>,
    /// Why the level is unknown.
    pub why_unknown: Option<String>,
}

/// How full a lender is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    pub used_bytes: Bytes,
    pub size_bytes: Bytes,
    /// Share of the space for metadata in use, in percent; `None` if there is no such limit.
    pub metadata_percent: Option<u64>,
    /// It is so full that everything that can goes back at once.
    pub is_low: bool,
    /// It takes no more writes.
    pub is_stopped: bool,
}

impl Level {
    pub fn percent(&self) -> u64 {
        (u128::from(self.used_bytes.0) * 100 / u128::from(self.size_bytes.0.max(1))).min(100) as u64
    }

    /// Describes it: `83 % full, 12 % of its metadata`.
    fn words(&self) -> String {
        let metadata =
            self.metadata_percent.map_or(String::new(), |used| format!(", {used} % of its metadata"));
        let stopped = if self.is_stopped { "; it takes no more writes" } else { "" };
        format!("{} % full{metadata}{stopped}", self.percent())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Overdue,
    Low,
}

#[derive(Debug, Default)]
pub(super) struct Giving {
    lender: Option<Lender>,
    /// The sweep under way, and why.
    sweep: Option<(Due, Reason)>,
    begun: SimTime,
    /// No untrimmed space was freed before this time; `None` if all is trimmed.
    since: Option<SimTime>,
    /// When the last two rounds of maps began.
    rounds: [Option<SimTime>; 2],
    /// Bytes freed until the last round began, and until the last sample.
    mapped: Bytes,
    freed: Bytes,
    freed_at: Option<SimTime>,
    /// When the last sweep for low water began.
    low_at: Option<SimTime>,
    low_not_before: SimTime,
    resend_not_before: SimTime,
}

impl LiveHost {
    /// Notes what is known of the lender. The next decision takes it into account.
    pub fn see_lender(&mut self, lender: Option<Lender>) {
        self.giving.lender = lender;
    }

    /// Returns true if all free space goes back at once.
    pub(super) fn is_low(&self) -> bool {
        matches!(self.giving.sweep, Some((Due::Low, _)))
    }

    /// Returns true if all that was freed goes back before its deadline.
    pub(super) fn is_overdue(&self) -> bool {
        matches!(self.giving.sweep, Some((Due::Overdue, _)))
    }

    pub(super) fn is_giving_back(&self) -> bool {
        self.giving.sweep.is_some()
    }

    pub(super) fn giving_reason(&self) -> Option<Reason> {
        self.giving.sweep.as_ref().map(|(_, reason)| reason.clone())
    }

    /// Returns the time left for the sweep before a deadline; `None` if there is none under way.
    pub(super) fn time_to_give_back(&self) -> Option<SimDuration> {
        // With a margin for the last slices.
        let within = self.give_back_within() / 8 * 7;
        self.is_overdue().then(|| (self.giving.begun + within).since(self.now))
    }

    /// Returns how long before its deadline a sweep begins.
    fn give_back_within(&self) -> SimDuration {
        self.settings.lent.map_or(FORCED_WITHIN, |lent| FORCED_WITHIN.min(lent.held_for_max / 2))
    }

    /// Notes how old untrimmed space may be.
    pub(super) fn see_age(&mut self) {
        let giving = &mut self.giving;
        if self.load.freed > giving.freed {
            (giving.freed, giving.freed_at) = (self.load.freed, Some(self.now));
        }
        let unseen = self.facts.maps && giving.freed > giving.mapped;
        let any = !self.load.sample.online && (unseen || self.knowledge.waiting().0 > 0);
        giving.since = any.then(|| giving.since.unwrap_or(self.now));
    }

    /// Notes a map. `waited` says that something was waiting before it. Returns true if what it shows as freed must wait
    /// for the end of a sweep, which a busy host would never see otherwise.
    pub(super) fn see_map(&mut self, begins: bool, waited: bool) -> bool {
        let is_later = begins && self.is_overdue() && self.giving.rounds[0] >= Some(self.giving.begun);
        let giving = &mut self.giving;
        if begins {
            giving.rounds = [Some(self.now), giving.rounds[0]];
            giving.mapped = self.load.freed;
        }
        if !waited {
            // What it shows as freed was freed since the last round.
            giving.since = giving.since.max(giving.rounds[1]);
        }
        is_later
    }

    /// Starts a sweep if one is due.
    pub(super) fn decide_giving(&mut self) {
        let Some(lent) = self.settings.lent.filter(|_| self.policy.needs_trim()) else {
            self.giving.sweep = None;
            return;
        };
        let giving = &self.giving;
        let level = giving.lender.as_ref().and_then(|lender| Some((lender, lender.level?)));
        // Another map costs little, another walk does not.
        let shown_within = if self.facts.maps { SHOWN_WITHIN } else { SimDuration::ZERO };
        let freed_since = |at: SimTime| giving.freed_at.is_some_and(|freed| freed + shown_within > at);
        let is_new = || giving.low_at.is_none_or(freed_since);
        if let Some((lender, level)) = level.filter(|(_, level)| level.is_low && !self.is_low())
            && self.now >= giving.low_not_before
            && is_new()
        {
            let reason = Reason::LowWater {
                lender: lender.name.clone(),
                used_percent: level.percent(),
                metadata_percent: level.metadata_percent,
            };
            self.giving.low_at = Some(self.now);
            self.begin_giving(Due::Low, reason);
        } else if giving.sweep.is_none()
            && giving
                .since
                .is_some_and(|since| self.now >= since + (lent.held_for_max - self.give_back_within()))
        {
            self.begin_giving(Due::Overdue, Reason::Overdue { held_for_max: lent.held_for_max });
        }
    }

    fn begin_giving(&mut self, due: Due, reason: Reason) {
        (self.giving.sweep, self.giving.begun) = (Some((due, reason)), self.now);
        self.wishes.backlog = true;
        let resends = due == Due::Low && self.now >= self.giving.resend_not_before;
        if resends {
            self.giving.resend_not_before = self.now + RESEND;
        }
        // A walk under way may have passed what was freed since it began.
        if resends || !self.facts.maps {
            self.knowledge.ask_for_all(&self.load.sample);
        } else {
            self.knowledge.want_round();
            self.knowledge.catch_up();
        }
    }

    /// Ends the sweep: all that was free when it began is trimmed.
    pub(super) fn given_back(&mut self) {
        let Some((due, _)) = self.giving.sweep.take() else { return };
        self.giving.since = Some(self.giving.begun);
        if due == Due::Overdue && self.facts.maps {
            self.knowledge.catch_up();
        }
        if due == Due::Low {
            let map_at = self.look_not_before.max(self.now + SECOND);
            self.giving.low_not_before = if self.facts.maps { map_at } else { self.now + WALK_AGAIN };
        }
    }

    pub(super) fn lender(&self) -> Option<&Lender> {
        self.giving.lender.as_ref()
    }

    /// Returns what the lender holds beyond what is in use: an upper bound of what can come back, since the file
    /// system's own structures count as unused.
    pub(super) fn held_beyond_use(&self) -> Option<Bytes> {
        let held = self.lender()?.held_bytes?;
        Some(Bytes(held.0.saturating_sub(self.load.sample.used.0)))
    }

    pub(super) fn lent_words(&self) -> Option<String> {
        let lent = self.settings.lent?;
        let whose = self.lender().map_or(String::new(), |lender| {
            let level = lender.level.map_or_else(
                || match &lender.why_unknown {
                    Some(why) => format!("how full is unknown: {why}"),
                    None => "how full is unknown".to_owned(),
                },
                |level| level.words(),
            );
            format!(" by {} ({level})", lender.name)
        });
        let held = match (self.lender().and_then(|lender| lender.held_bytes), self.held_beyond_use()) {
            (Some(held), Some(beyond)) => format!(" It holds {held}, {beyond} more than is used."),
            _ => String::new(),
        };
        let bounds = if self.policy.needs_trim() {
            let longest = super::status::time_words(lent.held_for_max);
            format!(": at most {} of free space stay untrimmed, and none longer than {longest}", self.bound())
        } else {
            String::new()
        };
        Some(format!("Its space is lent{whose}{bounds}.{held}"))
    }
}
