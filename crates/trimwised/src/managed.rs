//! One managed file system: its state machine, and the helper that carries out its decisions.

mod job;
mod keeping;
mod sampling;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::PollFd;
use trimwise::live::{
    Cut, Facts, Failed, Known, Lender, Level, LiveHost, Order, Reason, Sent, Settings, Trimmed, Window,
};
use trimwise::units::{Bytes, SimDuration, SimTime};

pub(crate) use self::job::{Doing, Idle, Job};
use crate::candidate::Candidate;
use crate::claims::Claims;
use crate::helper::{Answer, Probed, Request, Task};
use crate::history::History;
use crate::journal::{Journal, Noted};
use crate::known::Store;
use crate::process::Left;
use crate::sense::Sensed;
use crate::speak::{warn, warn_of};
use trimwise_linux::daemon::config::Treatment;
use trimwise_linux::doctor::Loan;
use trimwise_linux::layout::Kind;
use trimwise_linux::mount::turns_discard_on;
use trimwise_linux::remount;
use trimwise_linux::tracefs::format::Traced;
use trimwise_linux::trim::{Accounts, FailedPart, Verdict};

/// Slices of XFS are split at multiples of this.
const XFS_ALIGN: u64 = 1 << 20;

pub struct Means<'a> {
    pub program: &'a Path,
    pub dry_run: bool,
    pub patience: Duration,
    pub now: SimTime,
    pub room: usize,
    /// True if failed discards are reported through tracepoints.
    pub reports_failures: bool,
    pub spans_max: usize,
    pub journal: &'a mut Journal,
    pub claims: &'a mut Claims,
    pub known: &'a mut Store,
    pub history: &'a mut History,
    pub left: &'a mut Left,
    pub(crate) idle: &'a mut Idle,
}

pub struct Managed {
    pub candidate: Candidate,
    pub treatment: Treatment,
    pub live: Option<LiveHost>,
    /// Who lends its space, as last read; `None` if trims are for the drive.
    lender: Option<Lender>,
    probed: Option<Probed>,
    /// The last sample and its time, in seconds since boot.
    sensed: Option<(Sensed, u64)>,
    /// The first size reported by statvfs; a different one means that the file system was resized.
    size: Option<Bytes>,
    hangs: bool,
    job: Option<Job>,
    stuck: Option<Child>,
    held: Option<Order>,
    pub problem: Option<String>,
    /// Knowledge of trimmed space under other settings, or before the file system was resized.
    carried: Option<Known>,
    paused: bool,
    /// The option that the daemon set, and when it knew.
    set: Option<(bool, Instant)>,
    /// True if discards of the last slice may still be in flight.
    in_flight: bool,
    /// Failed discards during the slice in progress; `None` if they are not reported.
    failed: Option<u64>,
    /// A layer refused discards during the slice in progress.
    is_refused: bool,
    /// Discards have failed since it was mounted, as far as known.
    failed_before: bool,
    /// The next daemon does not know of that yet.
    is_failure_unkept: bool,
    /// Why the mount option could not be changed, the last time.
    pub(crate) toggle_problem: Option<String>,
    /// Why ext4 cannot be made to send again what failed.
    still_believed: Option<String>,
    /// True while the old mount option is being written to the journal.
    is_noting: bool,
    probe_again: SimTime,
    told: Option<&'static str>,
    /// Time of the last map, in seconds since 1970.
    pub looked_at_s: Option<u64>,
    pub trimmed_at_s: Option<u64>,
    /// Slices since the last entry of the history, and what they sent.
    untold: (u64, Sent),
}

impl Managed {
    pub fn new(candidate: Candidate, treatment: Treatment, paused: bool) -> Self {
        Self {
            candidate,
            treatment,
            live: None,
            lender: None,
            probed: None,
            sensed: None,
            size: None,
            hangs: false,
            job: None,
            stuck: None,
            held: None,
            problem: None,
            carried: None,
            paused,
            set: None,
            in_flight: false,
            failed: None,
            is_refused: false,
            failed_before: false,
            is_failure_unkept: false,
            toggle_problem: None,
            still_believed: None,
            is_noting: false,
            probe_again: SimTime::ZERO,
            told: None,
            looked_at_s: None,
            trimmed_at_s: None,
            untold: (0, Sent::default()),
        }
    }

    /// Applies new settings. Under another policy the state machine starts over, except that the layout stays known.
    pub fn treat(&mut self, treatment: Treatment) {
        let before = std::mem::replace(&mut self.treatment, treatment);
        if before.is_another(&treatment) {
            self.begin_anew();
        }
        self.settle_purpose();
    }

    fn settings(&self) -> Settings {
        self.treatment.settings(self.candidate.loan.as_ref().is_some_and(|loan| loan.is_of_pool))
    }

    /// Applies the settings, which depend on who lends the space.
    fn settle_purpose(&mut self) {
        let settings = self.settings();
        self.lender.take_if(|_| settings.lent.is_none());
        if let Some(live) = &mut self.live {
            live.set(settings);
            live.see_lender(self.lender.clone());
        }
    }

    /// Returns who lends the space, if trims are for space.
    pub(crate) fn lent(&self) -> Option<&Loan> {
        self.candidate.loan.as_ref().filter(|_| self.settings().lent.is_some())
    }

    /// Takes over what was read of the lender, and acts on it at once.
    pub(crate) fn see_lender(&mut self, lender: Lender, means: &mut Means<'_>) {
        self.lender = self.lent().is_some().then_some(lender);
        if let Some(live) = &mut self.live {
            live.see_lender(self.lender.clone());
        }
        if self.seen().is_some() {
            self.feed(means, LiveHost::tick);
            self.tell_giving(means);
        }
    }

    /// Returns how full the lender is, if that is known.
    pub(crate) fn level(&self) -> Option<Level> {
        self.lender.as_ref()?.level
    }

    /// Returns the space in use, as last sampled.
    pub(crate) fn used(&self) -> Option<u64> {
        Some(self.sensed?.0.used)
    }

    /// Pauses or resumes the file system for a user. A slice that waits for its disk is cancelled.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
        let Some(live) = &mut self.live else { return };
        live.pause(paused);
        if paused && matches!(self.held, Some(Order::Trim(_))) {
            self.held = None;
            live.call_off();
        }
    }

    /// Returns true if it is paused while a slice is still in progress.
    pub(crate) fn is_pausing(&self) -> bool {
        self.paused && self.job.as_ref().is_some_and(|job| job.doing == Doing::Trimming)
    }

    fn begin_anew(&mut self) {
        // If this happens twice before it is examined, keep what it carried.
        self.carried = self.live.as_ref().and_then(LiveHost::known).or(self.carried.take());
        self.live = None;
        self.size = None;
        (self.held, self.toggle_problem) = (None, None);
        self.probe_again = SimTime::ZERO;
    }

    pub fn seen(&self) -> Option<&LiveHost> {
        self.live.as_ref().filter(|live| live.has_seen())
    }

    pub fn kind(&self) -> Kind {
        Kind::of(&self.candidate.mount.fs_type)
    }

    /// Returns true if the file system may leave out what failed: XFS and btrfs send it again.
    fn forgets_failures(&self) -> bool {
        self.failed_before && matches!(self.kind(), Kind::Ext4 | Kind::Other)
    }

    pub(crate) fn has_maps(&self) -> bool {
        self.probed.is_some_and(|probed| probed.maps)
    }

    pub fn freed(&mut self, freed: &[Traced]) {
        if let (Some(live), Some(probed)) = (&mut self.live, &self.probed) {
            // In XFS the limit is that of the last group; nothing is freed after the end of the file system.
            let spans = freed.iter().map(|freed| freed.span(probed.block, probed.group, probed.total));
            live.freed(spans.collect());
        }
    }

    /// Updates the mount as listed by a look that began at `asked_at`. If somebody else changed the option after the
    /// daemon did, it stays: it is neither changed again nor restored.
    pub(crate) fn seen_as(
        &mut self,
        candidate: Candidate,
        asked_at: Instant,
        journal: &mut Journal,
        claims: &mut Claims,
        history: &mut History,
    ) {
        if self.set.is_some_and(|(_, set_at)| asked_at < set_at) {
            return; // it may show the option from before; the next look reports it as a change
        }
        self.candidate = candidate;
        self.settle_purpose();
        let mount = &self.candidate.mount;
        let is_on = mount.discard() != "nodiscard";
        if self.job.is_some() || self.set.is_none_or(|(on, _)| on == is_on) {
            return;
        }
        (self.set, self.toggle_problem) = (None, None);
        if let Some(live) = &mut self.live {
            live.leave_option(format!("somebody else changed it to {}", mount.discard()));
        }
        let text = format!("{} was set by somebody else, and stays.", mount.discard());
        history.add(&mount.mount_point, "online", text, 0);
        if let Some(change) = journal.forget(&self.candidate) {
            claims.settle(&change);
        }
    }

    /// Notes that discards failed on these devices, or were refused there as unsupported.
    pub(crate) fn discards_failed(&mut self, failed: &[FailedPart], refused: &BTreeSet<String>) {
        if self.live.is_none() {
            return;
        }
        let layers = &self.candidate.layers;
        self.is_refused |= !layers.is_disjoint(refused);
        if let Some(FailedPart { device, .. }) = failed.iter().find(|failed| failed.is_of(layers)) {
            self.failed = self.failed.map(|failed| failed + 1);
            self.note_failure();
            let Some(live) = &mut self.live else { return };
            live.device_failed(format!("discards failed: {device} reported errors; see the kernel's log"));
        }
    }

    fn note_failure(&mut self) {
        self.is_failure_unkept |= !std::mem::replace(&mut self.failed_before, true);
    }

    /// Returns true once after the first failure since it was mounted, which a daemon that is killed must not forget.
    pub(crate) fn take_unkept_failure(&mut self) -> bool {
        std::mem::take(&mut self.is_failure_unkept)
    }

    /// Notes that failed discards may have gone unreported.
    pub(crate) fn failures_unseen(&mut self) {
        self.failed = self.failed.filter(|&failed| failed > 0);
    }

    pub fn waits(&self) -> Option<PollFd<'_>> {
        self.job.as_ref().map(Job::waits)
    }

    pub(crate) fn receive(&mut self, left: &mut Left) {
        if let Some(job) = &mut self.job {
            job.hear(left);
        }
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.job.as_ref().is_some_and(Job::is_complete)
    }

    /// Returns the longest time to the next sample that suits its decisions; `None` if it takes none.
    pub(crate) fn sample_every(&self) -> Option<Duration> {
        match &self.live {
            Some(live) => Some(Duration::from_nanos(live.sample_every().as_nanos())),
            None => self.problem.is_none().then_some(Duration::ZERO),
        }
    }

    /// Returns true if a helper is at work. An abandoned one does not count.
    pub(crate) fn has_helper(&self) -> bool {
        self.job.is_some()
    }

    /// Returns true if a helper can be started: one at a time, and none while another hangs.
    fn may_begin(&self, means: &Means<'_>) -> bool {
        self.job.is_none() && self.stuck.is_none() && !self.hangs && means.room > 0
    }

    /// Passes an event to the state machine, and keeps its decision.
    fn feed(&mut self, means: &mut Means<'_>, see: impl FnOnce(&mut LiveHost, SimTime, &mut Vec<Order>)) {
        let Some(live) = &mut self.live else { return };
        let mut orders = Vec::new();
        see(live, means.now, &mut orders);
        debug_assert!(orders.len() <= 1 && (orders.is_empty() || self.held.is_none()));
        if let Some(order) = orders.pop() {
            self.held = Some(order);
        }
    }

    /// Lets the state machine continue when its pause is over.
    pub fn tick(&mut self, means: &mut Means<'_>) {
        if self.live.as_ref().and_then(LiveHost::next_at).is_some_and(|at| at <= means.now) {
            self.feed(means, LiveHost::tick);
        }
    }

    /// Starts the decision that waits. A slice waits while another one runs on one of its disks.
    pub(crate) fn start_held(&mut self, disks_busy: &BTreeSet<String>, means: &mut Means<'_>) {
        let is_trim = matches!(self.held, Some(Order::Trim(_)));
        if !self.may_begin(means) || (is_trim && !self.candidate.layers.is_disjoint(disks_busy)) {
            return;
        }
        let Some(order) = self.held.take() else { return };
        let min_extent = self.treatment.min_extent.0;
        match order {
            Order::Look { from } => {
                if let Some(live) = &mut self.live {
                    live.look_begins(means.now);
                }
                let task = if self.has_maps() {
                    Task::Look { min_extent, from, most: means.spans_max }
                } else {
                    Task::Walk
                };
                self.begin(Doing::Looking, task, means);
            }
            Order::Trim(slice) if means.dry_run => {
                let bytes = slice.bytes.0;
                let point = &self.candidate.mount.mount_point;
                means.history.add(
                    point,
                    "would-trim",
                    format!("A slice of {} (dry run).", slice.bytes),
                    bytes,
                );
                let all = Trimmed { counted: None, taken: slice.bytes, is_proven: true };
                self.feed(means, |live, now, orders| live.trimmed(now, SimDuration::ZERO, Ok(all), orders));
            }
            Order::Trim(slice) => {
                self.failed = (means.reports_failures && self.candidate.reports_failures).then_some(0);
                if let Some(live) = &mut self.live {
                    live.report_failures(self.failed.is_some());
                }
                self.is_refused = false;
                let maps = self.has_maps();
                let task = Task::trim(&slice, min_extent, maps, self.in_flight, self.forgets_failures());
                self.begin(Doing::Trimming, task, means);
            }
            Order::Toggle { on } => self.toggle(on, means),
        }
    }

    fn toggle(&mut self, on: bool, means: &mut Means<'_>) {
        if means.dry_run {
            let no = Failed::Never("dry run".to_owned());
            return self.toggled(Err(no), means);
        }
        if self.candidate.session.is_none() {
            let no = Failed::Never("this kernel cannot tell one mount of it from the next".to_owned());
            return self.toggled(Err(no), means);
        }
        // Note it only once: a failed note is not repeated by itself.
        let noted = if std::mem::replace(&mut self.is_noting, true) {
            means.journal.noted(&self.candidate)
        } else {
            let origin = means.claims.changed(self.candidate.mount.numbers, self.candidate.session);
            means.journal.note(&self.candidate, origin)
        };
        if noted == Noted::Waits {
            self.held = Some(Order::Toggle { on });
            return;
        }
        self.is_noting = false;
        if let Noted::Failed(why) = noted {
            let failed = Failed::Again(format!("the journal of mount options cannot be written: {why}"));
            return self.toggled(Err(failed), means);
        }
        if let Some(Err(why)) = means.journal.of(&self.candidate).map(|change| means.claims.note(change)) {
            let failed = Failed::Again(format!("the old option cannot be noted for other daemons: {why}"));
            return self.toggled(Err(failed), means);
        }
        let option = if on { remount::on(self.kind()) } else { "nodiscard" };
        // Until its helper answers, and if that is killed, nobody knows who set what the mount shows.
        self.set = None;
        let task = Task::Toggle { option: option.to_owned(), before: None, session: self.candidate.session };
        self.begin(Doing::Toggling { on }, task, means);
    }

    fn toggled(&mut self, result: Result<bool, Failed>, means: &mut Means<'_>) {
        let why = result.as_ref().err().filter(|_| !means.dry_run).map(|failed| {
            let point = self.candidate.mount.mount_point.display();
            format!("{point}: online discard could not be changed: {failed}")
        });
        warn_of(&mut self.toggle_problem, why);
        self.feed(means, |live, now, orders| live.toggled(now, result, orders));
    }

    fn begin(&mut self, doing: Doing, task: Task, means: &mut Means<'_>) {
        means.room = means.room.saturating_sub(1);
        let request =
            Request { path: self.candidate.path.clone(), numbers: self.candidate.mount.numbers, task };
        match Job::begin(means.program, doing, request, means.idle) {
            Ok(job) => self.job = Some(job),
            Err(error) => {
                let message = format!("the helper cannot be started: {error}");
                self.done(doing, Duration::ZERO, Vec::new(), &Answer::Again { message }, means);
            }
        }
    }

    fn done(
        &mut self,
        doing: Doing,
        elapsed: Duration,
        spans: Vec<trimwise::units::Span>,
        answer: &Answer,
        means: &mut Means<'_>,
    ) {
        match (doing, answer) {
            (Doing::Probing, Answer::Probed(probed)) => self.host(probed, means),
            (Doing::Probing, other) => {
                let failed = other.failed();
                let never = matches!(failed, Some(Failed::Never(_)));
                self.problem = failed.map(|failed| failed.to_string());
                self.probe_again = means.now + SimDuration::from_secs(if never { 3_600 } else { 10 });
            }
            (Doing::Looking, answer) => {
                if matches!(answer, Answer::Looked { .. }) {
                    self.looked_at_s = Some(now_s());
                }
                let result = match *answer {
                    Answer::Looked { from, upto, .. } => Ok(Window { from, upto, free: &spans }),
                    _ => Err(answer.failed().unwrap_or(Failed::Interrupted)),
                };
                self.feed(means, |live, now, orders| live.looked(now, result, orders));
                self.tell_giving(means);
            }
            (Doing::Trimming, Answer::Trimmed { took_ns, accounts, still_believed }) => {
                let why = still_believed.as_ref().map(|why| {
                    let point = self.candidate.mount.mount_point.display();
                    format!(
                        "{point}: ext4 skips what failed until it is mounted again, since it cannot be told otherwise: {why}"
                    )
                });
                warn_of(&mut self.still_believed, why);
                // Where TRIM is known to stop, refused discards are no news.
                let refused = u64::from(self.is_refused && !accounts.stops);
                let failed = self.failed.take().map(|failed| failed + refused);
                let accounts = Accounts { failed, ..*accounts };
                let (taken, is_proven) = match accounts.verdict(self.kind()) {
                    Verdict::Taken(taken) => (taken, true),
                    Verdict::Unverified(taken) => (taken, false),
                    Verdict::Failed(_) => {
                        self.note_failure();
                        let message = accounts.failed_words();
                        let answer = Answer::Device { message, in_flight: false };
                        return self.done(doing, elapsed, spans, &answer, means);
                    }
                };
                self.in_flight = false;
                self.trimmed_at_s = Some(now_s());
                let took = SimDuration::from_nanos(*took_ns);
                let trimmed = Trimmed { counted: accounts.counted, taken, is_proven };
                self.told.take_if(|told| *told == "failed"); // report the next failure again
                let totals = |one: &Self| one.live.as_ref().map(LiveHost::totals).unwrap_or_default();
                let before = totals(self);
                self.feed(means, |live, now, orders| live.trimmed(now, took, Ok(trimmed), orders));
                let after = totals(self);
                self.untold.0 += after.slices - before.slices;
                self.untold.1 += after.sent_since(&before);
            }
            (Doing::Trimming, answer) => {
                self.failed = None;
                let failed = answer.failed().unwrap_or(Failed::Interrupted);
                if matches!(failed, Failed::Device(_)) {
                    self.note_failure();
                }
                // Discards of an abandoned helper may be in flight too.
                self.in_flight =
                    !matches!(answer, Answer::Device { in_flight: false, .. } | Answer::Never { .. });
                let took = SimDuration::from_nanos(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX));
                self.feed(means, |live, now, orders| live.trimmed(now, took, Err(failed), orders));
                self.tell(means); // it may have moved on by the next second
            }
            (Doing::Toggling { on }, answer) => {
                let result = answer.failed().map_or(Ok(on), Err);
                if result.is_ok() {
                    self.set = Some((on, Instant::now()));
                    let option = if on { remount::on(self.kind()) } else { "nodiscard" };
                    self.candidate.mount.options.retain(|one| !turns_discard_on(one));
                    self.candidate.mount.options.extend(on.then(|| option.to_owned()));
                    let also = match answer {
                        Answer::Toggled { undone, .. } if !undone.is_empty() => {
                            format!(
                                " The kernel changed other options too, which was undone: {}.",
                                undone.join(", ")
                            )
                        }
                        _ => String::new(),
                    };
                    let text = format!("Remounted with {option}.{also}");
                    means.history.add(&self.candidate.mount.mount_point, "online", text, 0);
                }
                self.toggled(result, means);
            }
        }
    }

    fn host(&mut self, probed: &Probed, means: &mut Means<'_>) {
        self.probed = Some(*probed);
        self.problem = None;
        let kind = self.kind();
        let cut = match kind {
            // A slice that begins inside a chunk would skip the rest of it.
            Kind::Btrfs => Cut::Nowhere,
            Kind::Ext4 => Cut::Groups { first: probed.first_group, bytes: probed.group },
            _ => Cut::Anywhere { align: XFS_ALIGN.max(probed.block) },
        };
        let facts = Facts {
            total: Bytes(probed.total),
            cut,
            maps: probed.maps,
            spans_max: means.spans_max,
            toggles: matches!(kind, Kind::Ext4 | Kind::Btrfs),
            online_is_good: kind == Kind::Btrfs,
        };
        let mut live = LiveHost::new(self.treatment.policy, facts, self.settings(), means.now);
        live.see_lender(self.lender.clone());
        if let Some(known) = self.known_before(probed.total, means) {
            live.remember(known);
        }
        if self.paused {
            live.pause(true);
        }
        self.live = Some(live);
        let text = format!("Managed with the policy {}.", self.treatment.policy);
        means.history.add(&self.candidate.mount.mount_point, "found", text, 0);
    }

    /// Notes why space goes back: that may be over by the next sample.
    fn tell_giving(&mut self, means: &mut Means<'_>) {
        let reason = self.live.as_ref().map(LiveHost::reason);
        if matches!(reason, Some(Reason::LowWater { .. } | Reason::Overdue { .. })) {
            self.tell(means);
        }
    }

    fn tell(&mut self, means: &mut Means<'_>) {
        let Some(live) = &self.live else { return };
        let point = &self.candidate.mount.mount_point;
        let code = match live.reason() {
            Reason::Online { .. } => "online",
            Reason::OverBound { .. } => "over-bound",
            Reason::LowWater { .. } => "low-water",
            Reason::Overdue { .. } => "overdue",
            Reason::Pressure { .. } => "pressure",
            Reason::Failed { .. } => "failed",
            Reason::Refused { .. } => "refused",
            Reason::Policy { .. } => "policy",
            _ => return,
        };
        if self.told != Some(code) {
            self.told = Some(code);
            let text = live.reason().to_string();
            if live.reason().is_trouble() {
                warn(&format!("{}: {text}", point.display()));
            }
            means.history.add(point, code, text, 0);
        }
        self.tell_trimmed(means.history);
    }

    pub(crate) fn tell_trimmed(&mut self, history: &mut History) {
        if let (slices @ 1.., sent) = std::mem::take(&mut self.untold) {
            let text = format!("Slices: {slices}, together {}.", sent.words("trimmed"));
            history.add(&self.candidate.mount.mount_point, "trimmed", text, sent.taken.0);
        }
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Claims;
    use crate::places::Places;
    use trimwise_linux::daemon::config::Config;
    use trimwise_linux::host_root::HostRoot;
    use trimwise_linux::mount::parse_mountinfo;

    #[test]
    fn the_first_failure_since_it_was_mounted_is_kept_at_once() {
        let line = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n";
        let treatment = Config::default().treatment(Path::new("/")).unwrap();
        let mut one = Managed::new(Candidate::of_test(&parse_mountinfo(line)[0]), treatment, false);
        assert!(!one.take_unkept_failure());
        one.note_failure();
        assert!(one.failed_before && one.take_unkept_failure() && !one.take_unkept_failure());
        one.note_failure();
        assert!(!one.take_unkept_failure(), "the next daemon knows of the first");
    }

    /// A helper that is killed after it has changed the option a second time does not say so. The daemon took the change
    /// for somebody else's, and forgot the old value.
    #[test]
    fn regression_an_option_changed_twice_stays_the_daemons_if_the_helper_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let candidate = |options: &str| {
            let line = format!("22 1 8:1 / / rw - ext4 /dev/sda1 rw{options}\n");
            Candidate::of_test(&parse_mountinfo(line.as_bytes())[0])
        };
        let mut journal = Journal::default();
        journal.load(Vec::new());
        let places =
            Places { run: folder.path().into(), host: HostRoot::new(folder.path()), ..Places::default() };
        let mut claims = Claims::new(&places, String::new(), false);
        let (mut known, mut history) = (Store::default(), History::default());
        let (mut left, mut idle) = (Left::default(), Idle::default());
        let treatment = Config::default().treatment(Path::new("/")).unwrap();
        let mut one = Managed::new(candidate(""), treatment, false);
        let mut toggle = |one: &mut Managed, journal: &mut Journal, claims: &mut Claims, on: bool| {
            let mut means = Means {
                program: Path::new("/no/such/program"), // instead of a helper that is killed
                dry_run: false,
                patience: Duration::from_secs(1),
                now: SimTime::ZERO,
                room: 1,
                reports_failures: false,
                spans_max: 1,
                journal,
                claims,
                known: &mut known,
                history: &mut history,
                left: &mut left,
                idle: &mut idle,
            };
            one.toggle(on, &mut means);
        };
        toggle(&mut one, &mut journal, &mut claims, true); // which waits for the note
        journal.saved(journal.saving.due(Instant::now()).unwrap(), Ok(()));
        // The first change, to `discard`, is done.
        one.set = Some((true, Instant::now()));
        one.candidate = candidate(",discard");
        toggle(&mut one, &mut journal, &mut claims, false);
        assert!(
            one.toggle_problem.as_ref().unwrap().contains("cannot be started"),
            "{:?}",
            one.toggle_problem
        );
        one.seen_as(candidate(""), Instant::now(), &mut journal, &mut claims, &mut History::default());
        assert_eq!(journal.was(&one.candidate), Some("nodiscard"));
    }
}
