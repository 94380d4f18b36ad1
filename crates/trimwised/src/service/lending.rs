//! Keeps an eye on those that lend space: how full they are, at a low rate, and soon after much was written.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use trimwise::live::Lender;
use trimwise_linux::doctor::{Gauge, Loan};

use super::{Options, Service};
use crate::lenders::{self, Answer, Ask};
use crate::managed::Managed;
use crate::sense::Key;
use crate::speak::warn_of;
use crate::worker::Worker;

/// Time between two readings, and the longest after several that failed.
const EVERY: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(3_600)];
/// Shortest time between two readings, however much is written.
const SOONEST: Duration = Duration::from_secs(5);
/// Readings take at most one part in this many of the time.
const SHARE: u32 = 100;
/// The lender is read at once when the file systems that it lends to have grown by one part in this many of its size.
const GROWN: u64 = 100;
/// Time limit for a reading.
const READ_MAX: Duration = Duration::from_secs(20);

pub(super) struct Lending {
    /// The tag of a request is the time at which it was sent.
    pub(super) worker: Worker<Instant>,
    next: Instant,
    not_before: Instant,
    failures: u32,
    problem: Option<String>,
    /// Space in use when it was last read.
    used: BTreeMap<Key, u64>,
}

impl Lending {
    pub(super) fn new(options: &Options) -> Self {
        let now = Instant::now();
        Self {
            worker: Worker::new(options.program.clone(), lenders::COMMAND, options.patience.min(READ_MAX)),
            next: now,
            not_before: now,
            failures: 0,
            problem: None,
            used: BTreeMap::new(),
        }
    }

    /// Returns how long to wait for the next reading after one that took `took`, or failed.
    fn rest(&mut self, took: Duration, has_failed: bool) -> Duration {
        let [least, most] = EVERY;
        self.failures = if has_failed { self.failures + 1 } else { 0 };
        (least * (1 << self.failures.min(6))).min(most).max(took * SHARE)
    }
}

impl Service {
    /// Hears what was read of lenders, and lets the file systems act on it at once.
    pub(super) fn hear_lenders(&mut self, now: Instant) {
        for (asked_at, answer) in self.lending.worker.hear::<Answer>(now) {
            let took = now - asked_at;
            let rest = self.lending.rest(took, answer.is_err());
            self.lending.next = now + rest;
            self.lending.not_before = now + if answer.is_err() { rest } else { SOONEST.max(took * SHARE) };
            let problem =
                answer.as_ref().err().map(|why| format!("how full lenders of space are is unknown: {why}"));
            warn_of(&mut self.lending.problem, problem);
            let read: BTreeMap<Key, Lender> = match answer {
                Ok(read) => read.into_iter().collect(),
                Err(why) => {
                    let of = |one: &Managed| Some(one.lent()?.name.clone());
                    let lender = |name| Lender { name, why_unknown: Some(why.clone()), ..Lender::default() };
                    self.managed.iter().filter_map(|(&key, one)| Some((key, lender(of(one)?)))).collect()
                }
            };
            self.each(|one, means| {
                if let Some(lender) = read.get(&one.candidate.mount.numbers) {
                    one.see_lender(lender.clone(), means);
                }
            });
        }
    }

    /// Asks for a reading, if one is due.
    pub(super) fn ask_lenders(&mut self, now: Instant) {
        let lending = &self.lending;
        if lending.worker.asked().next().is_some() || now < lending.not_before {
            return;
        }
        let new = |(key, one): (&Key, &Managed)| one.lent().is_some() && !lending.used.contains_key(key);
        if now < lending.next && !self.have_grown() && !self.managed.iter().any(new) {
            return;
        }
        let loans: Vec<_> =
            self.managed.iter().filter_map(|(&key, one)| Some((key, one.lent()?.clone()))).collect();
        let used = |(key, _): &(Key, Loan)| (*key, self.managed[key].used().unwrap_or(0));
        self.lending.used = loans.iter().map(used).collect();
        if loans.is_empty() {
            self.lending.next = now + EVERY[0];
            return;
        }
        let ask = Ask { host: self.options.places.host.path("/"), loans };
        if let Err(why) = self.lending.worker.ask_at(now, now, &ask) {
            let rest = self.lending.rest(Duration::ZERO, true);
            (self.lending.next, self.lending.not_before) = (now + rest, now + rest);
            let problem = format!("how full lenders of space are is unknown: {why}");
            warn_of(&mut self.lending.problem, Some(problem));
        }
    }

    /// Returns true if the file systems of some lender have grown by much since it was read.
    fn have_grown(&self) -> bool {
        let mut grown: BTreeMap<&Gauge, (u64, u64)> = BTreeMap::new();
        for (key, one) in &self.managed {
            let Some((gauge, level)) = one.lent().and_then(|loan| Some((loan.gauge.as_ref()?, one.level()?)))
            else {
                continue;
            };
            let before = self.lending.used.get(key).copied().unwrap_or(0);
            let (sum, size) = grown.entry(gauge).or_default();
            *sum = sum.saturating_add(one.used().unwrap_or(0).saturating_sub(before));
            *size = level.size_bytes.0;
        }
        grown.values().any(|&(grown, size)| grown > 0 && grown >= size / GROWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Places;
    use trimwise_linux::host_root::HostRoot;

    #[test]
    fn readings_that_fail_or_take_long_become_rare() {
        let places =
            Places { config: "/c".into(), state: "/s".into(), run: "/r".into(), host: HostRoot::default() };
        let patience = Duration::from_secs(1);
        let options = Options { places, dry_run: false, once: false, program: "/no/such".into(), patience };
        let mut lending = Lending::new(&options);
        let second = Duration::from_secs(1);
        assert_eq!(lending.rest(second / 10, false), second * 60);
        assert_eq!(lending.rest(second * 2, false), second * 200);
        let rests: Vec<u64> = (0..8).map(|_| lending.rest(Duration::ZERO, true).as_secs()).collect();
        assert_eq!(rests, [120, 240, 480, 960, 1920, 3600, 3600, 3600]);
        assert_eq!(lending.rest(Duration::ZERO, false), second * 60);
    }
}
