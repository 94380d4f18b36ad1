use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::PollFd;

use super::{END_MAX, Options, Service};
use crate::candidate::Candidate;
use crate::discover::{Found, Skipped, Wanted};
use crate::look;
use crate::managed::Managed;
use crate::process::Left;
use crate::sense::{self, Place, Seen};
use crate::speak::{warn, warn_of};
use crate::worker::Worker;
use trimwise_linux::mount::{Mount, mountinfo};

/// Minimum and maximum interval between full looks, which find changes of devices. In between, a look waits as long
/// again as nothing has changed.
const DISCOVER_EVERY: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(300)];
/// Minimum and maximum time between samples.
const SAMPLE_EVERY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// Minimum time between looks, however many mounts come and go.
const BURST: Duration = Duration::from_millis(200);
/// Minimum ratio of the time between looks to the duration of a look.
const LOOK_SHARE: u32 = 4;
/// Time until the retry of a failed look.
const AGAIN: Duration = Duration::from_secs(10);
/// Time to wait for a look at start and stop.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Time limit for an answer of the worker that looks. The sampler is given longer, since it reports hanging file
/// systems itself.
const LOOK_MAX: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub enum Looked {
    Found,
    Configured(Option<u64>),
}

pub struct Looking {
    pub(super) worker: Worker<Looked>,
    /// The tag of each request is true for samples, false for a list of places to sample.
    sampler: Worker<bool>,
    watched: Vec<Place>,
    sampled_at: Instant,
    /// True if some path hung or was gone at the last sample.
    has_missed: bool,
    asked_at: Option<Instant>,
    /// True if a look is wanted, such as after a change of mounts.
    is_wanted: bool,
    /// True if the next look must report even if nothing has changed.
    is_whole: bool,
    not_before: Instant,
    next: Instant,
    changed_at: Instant,
    pub(super) problem: Option<String>,
    pub(super) descriptors_short: Option<u64>,
}

impl Looking {
    pub(super) fn new(options: &Options) -> Self {
        let now = Instant::now();
        let patience = options.patience.min(LOOK_MAX);
        Self {
            worker: Worker::new(options.program.clone(), look::COMMAND, patience),
            sampler: Worker::new(options.program.clone(), sense::COMMAND, options.patience),
            watched: Vec::new(),
            sampled_at: now,
            has_missed: false,
            asked_at: None,
            is_wanted: true,
            is_whole: true,
            not_before: now,
            next: now,
            changed_at: now,
            problem: None,
            descriptors_short: None,
        }
    }

    pub(super) fn discover_now(&mut self) {
        (self.is_wanted, self.is_whole) = (true, true);
    }

    pub(super) fn mounts_changed(&mut self) {
        self.is_wanted = true;
    }

    /// Requests a look at once, without the usual pause, since a user waits for it.
    pub(super) fn discover_at_once(&mut self) {
        self.discover_now();
        self.not_before = Instant::now();
    }

    pub(super) fn waits(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.worker.waits().into_iter().chain(self.sampler.waits())
    }

    pub(super) fn polled(&mut self, ready: &mut impl Iterator<Item = bool>) {
        self.worker.polled(ready);
        self.sampler.polled(ready);
    }

    /// Returns the time until the next look begins, if one is wanted.
    pub(super) fn due_in(&self, now: Instant) -> Option<Duration> {
        let wanted = self.is_wanted && self.asked_at.is_none();
        wanted.then(|| self.not_before.saturating_duration_since(now))
    }

    pub(super) fn end(&mut self, left: &mut Left) {
        let until = Instant::now() + END_MAX;
        self.worker.end(left, until);
        self.sampler.end(left, until);
    }
}

impl Service {
    /// Handles the workers' answers, and starts the next look when due.
    pub(super) fn look(&mut self, now: Instant) {
        self.hear_looks(now);
        self.hear_samples(now);
        let looking = &mut self.looking;
        looking.is_wanted |= now >= looking.next;
        if looking.is_wanted && looking.asked_at.is_none() && now >= looking.not_before {
            self.ask_for_mounts();
        }
    }

    fn ask_for_mounts(&mut self) {
        let wanted = Wanted::new(&self.options.places, &self.config, self.journal.changes());
        let now = Instant::now();
        let ask = look::Ask::Discover { wanted, whole: self.looking.is_whole };
        match self.looking.worker.ask(Looked::Found, &ask) {
            Ok(()) => {
                (self.looking.is_wanted, self.looking.is_whole) = (false, false);
                self.looking.asked_at = Some(now);
                let [least, most] = DISCOVER_EVERY;
                self.looking.next = now + (now - self.looking.changed_at).clamp(least, most);
            }
            Err(why) => self.not_found(why),
        }
    }

    fn not_found(&mut self, why: String) {
        let problem = format!("the mounts cannot be examined: {why}");
        warn_of(&mut self.looking.problem, Some(problem));
        self.looking.asked_at = None;
        self.looking.discover_now();
        self.looking.not_before = Instant::now() + AGAIN;
        self.tell_reloaded();
    }

    fn hear_looks(&mut self, now: Instant) {
        for (looked, answer) in self.looking.worker.hear::<look::Answer>(now) {
            match (looked, answer) {
                (Looked::Found, Ok(look::Answer::Found(Ok(found)))) => {
                    let asked_at = self.looking.asked_at.take().unwrap_or(now);
                    let took = now - asked_at;
                    self.looking.not_before = now + BURST.max(took * LOOK_SHARE);
                    self.looking.problem = None;
                    if let Some(found) = found {
                        self.looking.changed_at = now;
                        self.found(found, asked_at);
                        self.sample(now);
                    }
                    self.watch();
                    // Another look is wanted if this one began before the configuration was read.
                    if !self.looking.is_wanted {
                        self.tell_reloaded();
                    }
                }
                (Looked::Found, Ok(look::Answer::Found(Err(why))) | Err(why)) => self.not_found(why),
                (Looked::Configured(request), Ok(look::Answer::Configured(read))) => {
                    self.configured(request, read);
                }
                (Looked::Configured(request), Err(why)) => self.configured(request, Err(why)),
                (Looked::Found, Ok(_)) | (Looked::Configured(_), Ok(_)) => {
                    warn("the worker that examines mounts sent an unexpected answer");
                }
            }
        }
    }

    pub(super) fn discover_and_wait(&mut self) {
        let until = Instant::now() + WAIT_MAX.min(self.options.patience);
        // A look in progress might not report unchanged results.
        self.wait_for_look(until);
        self.looking.is_whole = true;
        self.ask_for_mounts();
        self.wait_for_look(until);
    }

    fn wait_for_look(&mut self, until: Instant) {
        loop {
            let now = Instant::now();
            self.looking.worker.not_polled();
            self.hear_looks(now);
            if self.looking.asked_at.is_none() || now >= until {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Handles the result of a look: manages new file systems, and releases missing ones.
    fn found(&mut self, found: Found, asked_at: Instant) {
        if self.is_ending {
            return self.restore_unmanaged(found.changed);
        }
        // After a remount it may be a different file system, so nothing is known about it.
        let is_mounted = |mount: &Mount| found.mounted.contains(&(mount.id, mount.device.clone()));
        let (mut new, mut refused) = (Vec::new(), Vec::new());
        self.defend_claims(); // should the kernel not have told
        let mut before = std::mem::take(&mut self.managed);
        self.claims.begin();
        for candidate in found.candidates {
            let Some(treatment) = self.config.treatment(&candidate.mount.mount_point) else { continue };
            let numbers = candidate.mount.numbers;
            // Between two looks another file system may have been mounted there, with the same numbers and the same
            // mount id.
            let is_there = |one: &Managed| {
                let sessions = one.candidate.session.zip(candidate.session);
                is_mounted(&one.candidate.mount) && sessions.is_none_or(|(then, now)| then == now)
            };
            let is_other = |one: &Managed| {
                // Restore the mount option before applying new settings.
                !is_there(one)
                    || one.treatment.is_another(&treatment) && self.journal.was(&one.candidate).is_some()
            };
            let known = match before.remove(&numbers) {
                Some(other) if is_other(&other) => {
                    let is_mounted = is_there(&other);
                    self.let_go(other, is_mounted);
                    None
                }
                known => known,
            };
            match known {
                Some(mut one) => {
                    let claims = &mut self.claims;
                    one.seen_as(candidate, asked_at, &mut self.journal, claims, &mut self.history);
                    one.treat(treatment);
                    self.managed.insert(numbers, one);
                }
                None => {
                    if let Some(why) = self.why_refused(numbers, &candidate.mount.mount_point) {
                        let Mount { mount_point, fs_type, .. } = candidate.mount;
                        refused.push(Skipped { mount_point, fs_type, why });
                        continue;
                    }
                    if self.adopt(&candidate) {
                        continue;
                    }
                    // With `once`, ignore pauses.
                    let paused = !self.options.once && self.paused.contains(&candidate.mount.mount_point);
                    new.push((numbers, Managed::new(candidate, treatment, paused)));
                }
            }
        }
        let skipped: BTreeMap<_, _> = found
            .skipped
            .iter()
            .rev()
            .filter(|one| !one.fs_type.is_empty())
            .map(|one| (&one.mount_point, one))
            .collect();
        for gone in before.into_values() {
            let point = gone.candidate.mount.mount_point.clone();
            let is_mounted = is_mounted(&gone.candidate.mount);
            let why = if is_mounted {
                skipped.get(&point).map_or("its mount is skipped", |one| one.why.as_str())
            } else {
                "it was unmounted"
            };
            self.let_go(gone, is_mounted);
            self.history.add(&point, "gone", format!("It is no longer managed: {why}."), 0);
        }
        self.restore_unmanaged(found.changed);
        new.retain(|(numbers, _)| !self.is_restoring(*numbers));
        if !new.is_empty() {
            // Only changes are reported, and the sampler could mistake a new file system for one that it has already
            // reported.
            self.looking.watched.clear();
        }
        self.managed.extend(new);
        for one in refused.iter().filter(|one| !self.skipped.contains(one)) {
            warn(&format!("{} is not managed: {}", one.mount_point.display(), one.why));
        }
        self.skipped = found.skipped;
        self.skipped.extend(refused);
        let is_used = |numbers| self.managed.contains_key(&numbers) || self.is_restoring(numbers);
        let unused: Vec<_> = self.claims.held().filter(|&numbers| !is_used(numbers)).collect();
        self.claims.release(&unused);
    }

    /// Makes claims again that were removed, and lets go of file systems that another daemon has claimed meanwhile.
    pub(super) fn defend_claims(&mut self) {
        for numbers in self.claims.defend() {
            if let Some(lost) = self.managed.remove(&numbers) {
                let point = lost.candidate.mount.mount_point.clone();
                self.let_go(lost, true);
                let text = "It is no longer managed: another trimwised took it.".to_owned();
                self.history.add(&point, "gone", text, 0);
                self.looking.discover_now();
            }
        }
    }

    /// Returns why a file system is left to another daemon; `None` if it is this daemon's.
    pub(super) fn why_refused(&mut self, numbers: (u32, u32), mount_point: &Path) -> Option<String> {
        if self.options.dry_run || self.claims.claim(numbers, mount_point) {
            return None;
        }
        self.claims.why_refused(numbers).map(str::to_owned)
    }

    /// Takes over a change of the mount option by a daemon that was killed and had another state folder. Returns true if
    /// the next look restores it, before the file system is managed.
    fn adopt(&mut self, candidate: &Candidate) -> bool {
        let changed = self.claims.changed(candidate.mount.numbers, candidate.session);
        let is_new = self.journal.saving.has_begun() && self.journal.of(candidate).is_none();
        let Some(change) = changed.filter(|_| is_new).cloned() else { return false };
        self.journal.adopt(change);
        self.looking.discover_now();
        true
    }

    pub(super) fn is_sample_due(&self, now: Instant) -> bool {
        now.duration_since(self.looking.sampled_at) >= self.sample_every()
    }

    pub(super) fn sample_at(&self) -> Instant {
        self.looking.sampled_at + self.sample_every()
    }

    fn sample_every(&self) -> Duration {
        if self.options.once || self.looking.has_missed {
            return SAMPLE_EVERY[0];
        }
        let [least, most] = SAMPLE_EVERY;
        self.managed.values().filter_map(Managed::sample_every).fold(most, Duration::min).max(least)
    }

    pub(super) fn sample(&mut self, now: Instant) {
        // Do not make up for seconds missed during sleep.
        let since = now - std::mem::replace(&mut self.looking.sampled_at, now);
        if self.looking.sampler.asked().next().is_some() {
            return;
        }
        let place = |(&key, one): (&(u32, u32), &Managed)| Place {
            key,
            path: one.candidate.path.clone(),
            mount_id: one.candidate.mount.id,
            devices: one.candidate.devices.iter().map(|device| device.sysfs.path().to_owned()).collect(),
        };
        let is_same = |(place, (key, one)): (&Place, (&(u32, u32), &Managed))| {
            let devices = one.candidate.devices.iter().map(|device| device.sysfs.path());
            place.key == *key
                && place.path == one.candidate.path
                && place.mount_id == one.candidate.mount.id
                && devices.eq(&place.devices)
        };
        let watched = &self.looking.watched;
        let mut asked = Ok(());
        if watched.len() != self.managed.len() || !watched.iter().zip(&self.managed).all(is_same) {
            let host = &self.options.places.host;
            let places: Vec<Place> = self.managed.iter().map(place).collect();
            let (mountinfo, proc) = (mountinfo(host), host.path("/proc"));
            let watch = sense::Ask::Watch { mountinfo, proc, places: places.clone() };
            asked = self.looking.sampler.ask_at(now, false, &watch);
            self.looking.watched = places;
        }
        let ask = sense::Ask::Sample { seconds: (since.as_millis() as u64 + 500) / 1000 };
        if asked.and_then(|()| self.looking.sampler.ask_at(now, true, &ask)).is_err() {
            self.looking.watched.clear(); // a newly started worker knows nothing
        }
    }

    /// Returns the reason why sampling costs more than necessary.
    pub(super) fn limits_problem(&self) -> Option<String> {
        let limit = self.looking.descriptors_short?;
        Some(format!(
            "no more than {limit} files may be open (RLIMIT_NOFILE, LimitNOFILE= of the unit), fewer than there are \
             devices: the counts of some are reopened for each sample"
        ))
    }

    fn hear_samples(&mut self, now: Instant) {
        for (is_sample, answer) in self.looking.sampler.hear::<Seen>(now) {
            match answer {
                Ok(seen) if is_sample => self.seen(seen),
                Ok(_) => {}
                Err(why) => {
                    warn(&format!("file systems were not sampled: {why}"));
                    self.looking.watched.clear();
                }
            }
        }
    }

    fn seen(&mut self, seen: Seen) {
        self.looking.has_missed = !seen.gone.is_empty() || !seen.hanging.is_empty();
        self.looking.is_wanted |= seen.mounts_changed;
        if self.looking.descriptors_short != seen.descriptors_short {
            self.looking.descriptors_short = seen.descriptors_short;
            self.limits_problem().iter().for_each(|problem| warn(problem));
        }
        let gone: BTreeSet<_> = seen.gone.iter().copied().collect();
        let changed: BTreeMap<_, _> = seen.changed.iter().copied().collect();
        let hanging =
            seen.hanging.iter().flat_map(|(&seconds, keys)| keys.iter().map(move |&key| (key, seconds)));
        let hanging: BTreeMap<_, _> = hanging.collect();
        self.each(|one, means| {
            let key = one.candidate.mount.numbers;
            match hanging.get(&key) {
                Some(&seconds) => one.hangs(seconds, means),
                // The file system is going away; the list of mounts will show it.
                None if gone.contains(&key) => {}
                None => one.sampled(changed.get(&key).copied(), &seen, means),
            }
        });
    }
}
