//! `rocksdb`, `pebble` and `steps`: an application that limits its own deletions, above any policy.
//!
//! Where TRIM is dear, the removal of a large file under `discard` holds up everything else until its TRIMs are through.
//! The kernel has no limit on that rate for ext4, so applications delete slowly. Each of these was read to its end,
//! except where it says so:
//!
//! - **RocksDB** (`SstFileManager`; file/delete_scheduler.cc at 1dfa7297933d). A file is renamed to `*.trash`. One thread
//!   cuts `bytes_max_delete_chunk` off its end, with an fsync, until that much or less is left, and then removes it, with
//!   an fsync of its directory. After each piece it sleeps until `bytes so far / rate` since the queue was last empty.
//!   While the trash is more than `max_trash_db_ratio` (0.25) of all files, further files are removed at once. The rate
//!   is off by default (0), so it has no default here either. At the end the trash stays; the next start goes on.
//! - **Pebble** (CockroachDB; internal/deletepacer at f82e3ff74d10). Files are removed whole, one after the other; each
//!   makes a debt of its size, at most 1 GiB, which must be paid off at the rate before the next. The rate is the largest
//!   of the baseline and the mean of what came in the last 5 minutes, plus the larger of what works off older files in 5
//!   minutes and what brings the free space back to a minimum (16 GiB) in 10 s. More than 1,000 files, or the end, turn
//!   it off. The baseline of 128 MiB/s is CockroachDB's (cockroachdb/pebble#2673). Pebble counts the 5 minutes in
//!   hundredths; here they are exact.
//! - **steps**: those of MySQL's distributions and of scripts for `DROP TABLE`: a second name, and then a part of
//!   the file at a time. 128 MiB each 100 ms is AliSQL's `innodb_data_file_purge_max_size` and `_interval`; TXSQL cuts 128
//!   or 64 MiB (`innodb_async_truncate_size`). Only their manuals are public
//!   (<https://www.alibabacloud.com/help/en/doc-detail/134095.htm>, <https://www.tencentcloud.com/document/product/236/43500>),
//!   and were read in excerpts; that there is no fsync is assumed. What D. Mituzas advises (<https://dom.as/2016/05/02/on-removing-files/>) is the
//!   same by hand.
//!
//! Ceph's BlueStore has no files: its queue of discards (`bdev_async_discard_threads`, src/blk/kernel/KernelDevice.cc)
//! frees space once it was discarded, as `serial` does here. btrfs's `discard=async` limits the discards instead
//! (fs/btrfs/discard.c): the policy `btrfs`.

use std::collections::VecDeque;
use std::fmt;

use super::spec::grammar::{Duration, Part, Wrong, wrong};
use crate::units::{Bytes, SimDuration, SimTime};

const RATES: &str = "a whole number above 0 with its unit, up to 1TiB/s: 64MiB/s";
const SIZES: &str = "a multiple of 4KiB with its unit, up to 1TiB: 64MiB";

/// How an application limits its deletions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    RocksDb { rate: Bytes, chunk: Bytes },
    Pebble { rate: Bytes, free: Bytes },
    Steps { step: Bytes, pause: SimDuration },
}

/// Terms as help shows them.
pub(super) const FORMS: [(&str, &str); 3] = [
    ("rocksdb:RATE[:CHUNK]", "an application that deletes as RocksDB: RATE a second, in chunks"),
    ("pebble[:RATE[:FREE]]", "as CockroachDB: whole files at RATE a second, faster below FREE"),
    ("steps[:SIZE[:PAUSE]]", "as MySQL's slow drop: SIZE of a file, then PAUSE"),
];

/// RocksDB's `max_trash_db_ratio` as a divisor.
const TRASH_DIVISOR: u64 = 4;

impl Limit {
    /// Parses a term. Returns `None` if it is not one of a limit.
    pub(super) fn parse(term: Part<'_>, name: &str, arguments: &[Part<'_>]) -> Option<Result<Self, Wrong>> {
        let (form, _) = FORMS.iter().find(|(form, _)| name_of(form) == name)?;
        Some(Self::read(term, name, form, arguments))
    }

    fn read(term: Part<'_>, name: &str, form: &str, arguments: &[Part<'_>]) -> Result<Self, Wrong> {
        let size = |index: usize, what: &str, or: Bytes| {
            arguments.get(index).map_or(Ok(or), |part| part.size(what, SIZES))
        };
        let rate = || arguments.first().map(|part| part.rate(RATES));
        let limit = match name {
            "rocksdb" => match rate() {
                Some(rate) => Self::RocksDb { rate: rate?, chunk: size(1, "chunk", Bytes::mib(64))? },
                None => {
                    let what = format!("'{name}' lacks its rate, which RocksDB has no default for");
                    return wrong(term.at + term.text.len(), what, format!("{form}, as in rocksdb:64MiB/s"));
                }
            },
            "pebble" => Self::Pebble {
                rate: rate().unwrap_or(Ok(Bytes::mib(128)))?,
                free: size(1, "free space", Bytes::gib(16))?,
            },
            _ => Self::Steps {
                step: size(0, "step", Bytes::mib(128))?,
                pause: arguments
                    .get(1)
                    .map_or(Ok(SimDuration::from_millis(100)), |part| part.duration("pause"))?,
            },
        };
        match arguments.get(2) {
            Some(more) => wrong(more.at, format!("unexpected '{}'", more.text), form),
            None => Ok(limit),
        }
    }

    /// How the application is told, in a sentence.
    pub fn setting(self) -> String {
        match self {
            Self::RocksDb { rate, chunk } => format!(
                "In RocksDB, give the SstFileManager rate_bytes_per_sec = {} and bytes_max_delete_chunk = {}.",
                rate.0, chunk.0
            ),
            Self::Pebble { rate, free } => format!(
                "In Pebble, set DeletionPacing to a baseline of {} bytes a second and {} bytes of free space.",
                rate.0, free.0
            ),
            Self::Steps { step, pause } => {
                let pause = crate::numbers::rough_time(pause.as_secs_f64());
                format!(
                    "In the application, cut {step} off a file, wait {pause}, and so on before it is removed."
                )
            }
        }
    }

    /// Returns how much of a file goes next, if that is not all that is left of it.
    pub(crate) fn piece(self, left: Bytes) -> Option<Bytes> {
        match self {
            Self::RocksDb { chunk: piece, .. } | Self::Steps { step: piece, .. } => {
                (left > piece).then_some(piece)
            }
            Self::Pebble { .. } => None,
        }
    }

    /// Returns true if each piece is made durable before the next one.
    pub(crate) fn syncs(self) -> bool {
        matches!(self, Self::RocksDb { .. })
    }

    /// Returns true if a file is removed at once, with this much waiting and in use.
    pub(crate) fn is_at_once(self, waiting: Bytes, used: Bytes) -> bool {
        matches!(self, Self::RocksDb { .. }) && waiting.0 > used.0 / TRASH_DIVISOR
    }

    /// Returns true if what still waits at the end of a run goes at once.
    pub(crate) fn empties_at_the_end(self) -> bool {
        matches!(self, Self::Pebble { .. })
    }
}

pub(super) fn name_of(form: &str) -> &str {
    form.split([':', '[']).next().unwrap_or(form)
}

/// A size in the notation of policies.
struct Size(Bytes);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bytes(bytes) = self.0;
        let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        let unit = units.into_iter().find(|(_, shift)| bytes.is_multiple_of(1 << shift));
        let (name, shift) = unit.unwrap_or(("B", 0));
        write!(f, "{}{name}", bytes >> shift)
    }
}

impl fmt::Display for Limit {
    /// Writes defaults only where something follows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::RocksDb { rate, chunk } => {
                write!(f, "rocksdb:{}/s", Size(rate))?;
                if chunk == Bytes::mib(64) { Ok(()) } else { write!(f, ":{}", Size(chunk)) }
            }
            Self::Pebble { rate, free } => match (rate == Bytes::mib(128), free == Bytes::gib(16)) {
                (true, true) => f.write_str("pebble"),
                (false, true) => write!(f, "pebble:{}/s", Size(rate)),
                (_, false) => write!(f, "pebble:{}/s:{}", Size(rate), Size(free)),
            },
            Self::Steps { step, pause } => {
                match (step == Bytes::mib(128), pause == SimDuration::from_millis(100)) {
                    (true, true) => f.write_str("steps"),
                    (false, true) => write!(f, "steps:{}", Size(step)),
                    (_, false) => write!(f, "steps:{}:{}", Size(step), Duration(pause)),
                }
            }
        }
    }
}

/// What waits to be deleted, as a pace sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub files: usize,
    pub bytes: u64,
    pub free: Bytes,
}

/// The times at which pieces may go.
#[derive(Debug)]
pub(crate) struct Pace {
    limit: Limit,
    /// RocksDB: when the queue was last empty. Otherwise when the last piece was gone, or the rate was last set.
    since: SimTime,
    /// RocksDB: bytes deleted since then. Pebble: bytes not paid off yet.
    bytes: f64,
    pebble: Pebble,
}

/// The state of Pebble's `rateCalculator`, in bytes a second.
#[derive(Debug, Default)]
struct Pebble {
    rate: f64,
    backlog_rate: f64,
    free_rate: f64,
    /// Files of the last 5 minutes: when they came, and their sizes.
    recent: VecDeque<(SimTime, u64)>,
}

impl Pace {
    const RECENT: SimDuration = SimDuration::from_secs(300);
    const BACKLOG_S: f64 = 300.0;
    const FREE_S: f64 = 10.0;
    const FILES_MAX: usize = 1000;
    const DEBT_MAX: f64 = (1u64 << 30) as f64;

    pub fn new(limit: Limit, now: SimTime) -> Self {
        Self { limit, since: now, bytes: 0.0, pebble: Pebble::default() }
    }

    /// Notes that a file has come.
    pub fn comes(&mut self, now: SimTime, bytes: u64) {
        if matches!(self.limit, Limit::Pebble { .. }) {
            self.pebble.recent.push_back((now, bytes));
        }
    }

    /// Notes that something waits again after nothing did.
    pub fn resumes(&mut self, now: SimTime) {
        if let Limit::RocksDb { rate, .. } = self.limit
            && self.since + after(self.bytes, rate.0 as f64) <= now
        {
            (self.since, self.bytes) = (now, 0.0);
        }
    }

    /// Returns when the next piece may go; `None` if there is no limit now.
    pub fn due(&mut self, now: SimTime, waiting: Waiting) -> Option<SimTime> {
        match self.limit {
            Limit::RocksDb { rate, .. } => Some(self.since + after(self.bytes, rate.0 as f64)),
            Limit::Steps { pause, .. } if self.bytes > 0.0 => Some(self.since + pause),
            Limit::Steps { .. } => None,
            Limit::Pebble { rate, free } => self.due_in_pebble(now, waiting, (rate, free)),
        }
    }

    fn due_in_pebble(
        &mut self,
        now: SimTime,
        waiting: Waiting,
        (baseline, free): (Bytes, Bytes),
    ) -> Option<SimTime> {
        let passed = now.since(std::mem::replace(&mut self.since, now));
        let pebble = &mut self.pebble;
        if waiting.files > Self::FILES_MAX {
            let recent = std::mem::take(&mut pebble.recent);
            (self.bytes, *pebble) = (0.0, Pebble { recent, ..Pebble::default() });
            return None;
        }
        self.bytes = (self.bytes - pebble.rate * passed.as_secs_f64()).max(0.0);
        while pebble.recent.front().is_some_and(|(at, _)| now.since(*at) >= Self::RECENT) {
            pebble.recent.pop_front();
        }
        let recent: u64 = pebble.recent.iter().map(|(_, bytes)| bytes).sum();
        let drained = |before: f64, excess: u64, seconds: f64| match excess {
            0 => 0.0,
            _ => before.max(excess as f64 / seconds),
        };
        pebble.backlog_rate =
            drained(pebble.backlog_rate, waiting.bytes.saturating_sub(recent), Self::BACKLOG_S);
        pebble.free_rate = drained(pebble.free_rate, free.0.saturating_sub(waiting.free.0), Self::FREE_S);
        pebble.rate = (baseline.0 as f64).max(recent as f64 / Self::RECENT.as_secs_f64())
            + pebble.backlog_rate.max(pebble.free_rate);
        (self.bytes > 0.0).then(|| now + after(self.bytes, pebble.rate) + SimDuration::from_nanos(1))
    }

    /// Notes that a piece goes now.
    pub fn goes(&mut self, bytes: u64) {
        match self.limit {
            Limit::RocksDb { .. } => self.bytes += bytes as f64,
            Limit::Pebble { .. } if self.pebble.rate > 0.0 => {
                self.bytes = (self.bytes + bytes as f64).min(Self::DEBT_MAX);
            }
            Limit::Pebble { .. } => {}
            Limit::Steps { .. } => self.bytes = bytes as f64,
        }
    }

    /// Notes that the piece is gone.
    pub fn gone(&mut self, now: SimTime) {
        if matches!(self.limit, Limit::Steps { .. }) {
            self.since = now;
        }
    }
}

fn after(bytes: f64, rate: f64) -> SimDuration {
    SimDuration::from_nanos((bytes / rate * 1e9) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_application_is_told_its_limit_in_bytes() {
        let (rate, chunk) = (Bytes::mib(64), Bytes::mib(1));
        let rocksdb = Limit::RocksDb { rate, chunk }.setting();
        assert!(
            rocksdb.contains("rate_bytes_per_sec = 67108864 and bytes_max_delete_chunk = 1048576"),
            "{rocksdb}"
        );
        let pebble = Limit::Pebble { rate, free: Bytes::gib(1) }.setting();
        assert!(
            pebble.contains("baseline of 67108864 bytes") && pebble.contains("1073741824 bytes of free"),
            "{pebble}"
        );
        let steps = Limit::Steps { step: Bytes::mib(128), pause: SimDuration::from_millis(100) }.setting();
        assert!(steps.contains("cut 128 MiB off a file, wait 100 ms, and"), "{steps}");
    }
    use crate::policy::PolicySpec;

    const GIB: u64 = 1 << 30;

    fn pace(text: &str) -> Pace {
        let limit = format!("commit+{text}").parse::<PolicySpec>().unwrap().limit().unwrap();
        Pace::new(limit, SimTime::ZERO)
    }

    fn at(seconds: u64) -> SimTime {
        SimTime(seconds * 1_000_000_000)
    }

    fn waiting(bytes: u64, free: Bytes) -> Waiting {
        Waiting { files: 1, bytes, free }
    }

    #[test]
    fn rocksdb_may_catch_up_until_nothing_waits() {
        let mut pace = pace("rocksdb:64MiB/s");
        let due = |pace: &mut Pace, now| pace.due(at(now), waiting(GIB, Bytes::gib(1)));
        assert_eq!(due(&mut pace, 0), Some(at(0)));
        pace.goes(128 << 20);
        assert_eq!(due(&mut pace, 0), Some(at(2)));
        pace.goes(64 << 20);
        // The queue was empty before the last sleep was over: the sum goes on.
        pace.resumes(at(2));
        assert_eq!(due(&mut pace, 2), Some(at(3)));
        pace.resumes(at(7));
        pace.goes(64 << 20);
        assert_eq!(due(&mut pace, 7), Some(at(8)));
    }

    #[test]
    fn pebble_deletes_faster_after_much_with_a_backlog_and_below_its_free_space() {
        let rate = |pace: &mut Pace, now: u64, queued: u64, free: Bytes| {
            pace.due(at(now), waiting(queued, free));
            pace.pebble.rate / f64::from(1 << 20)
        };
        let ample = Bytes::gib(100);
        let mut paced = pace("pebble:100MiB/s");
        assert!((rate(&mut paced, 0, 0, ample) - 100.0).abs() < 1e-9);
        // 60 GiB of the last five minutes are 204.8 MiB/s.
        paced.comes(at(0), 60 * GIB);
        assert!((rate(&mut paced, 1, 60 * GIB, ample) - 204.8).abs() < 1e-9);
        // When five minutes have passed, they are a backlog, which is worked off in another five.
        assert!((rate(&mut paced, 300, 60 * GIB, ample) - 304.8).abs() < 1e-9);
        assert!((rate(&mut paced, 301, 30 * GIB, ample) - 304.8).abs() < 1e-9, "until it is gone");
        assert!((rate(&mut paced, 302, 0, ample) - 100.0).abs() < 1e-9);
        // 6 GiB below the 16 GiB, within 10 s.
        assert!((rate(&mut paced, 303, 0, Bytes::gib(10)) - 714.4).abs() < 1e-9);
        let many = Waiting { files: 1001, bytes: GIB, free: ample };
        paced.goes(GIB);
        assert_eq!(paced.due(at(304), many), None);

        let mut paced = pace("pebble:1GiB/s:4KiB");
        assert_eq!(paced.due(at(0), waiting(0, ample)), None);
        paced.goes(4 * GIB);
        assert_eq!(
            paced.due(at(0), waiting(0, ample)),
            Some(SimTime(1_000_000_001)),
            "at most 1 GiB is owed"
        );
    }

    #[test]
    fn a_limit_prints_as_it_was_parsed_and_an_error_says_what_is_accepted() {
        for text in [
            "commit+rocksdb:64MiB/s",
            "serial+rocksdb:1GiB/s:4KiB",
            "set:40:90+lazy+reuse+pebble",
            "set:40:90+pebble:1MiB/s",
            "off+pebble:128MiB/s:1GiB",
            "commit+steps",
            "commit+steps:64MiB",
            "commit+steps:128MiB:2s",
        ] {
            assert_eq!(text.parse::<PolicySpec>().unwrap().to_string(), text);
        }
        assert_eq!(
            "rocksdb:65536KiB+commit".parse::<PolicySpec>().unwrap().to_string(),
            "commit+rocksdb:64MiB/s"
        );
        for (text, column, words) in [
            ("commit+rocksdb", 15, "lacks its rate"),
            ("commit+rocksdb:0MiB/s", 16, "rate '0MiB/s'; expected a whole number above 0"),
            ("commit+rocksdb:64", 16, "rate '64'"),
            ("commit+rocksdb:64MiB/h", 16, "rate '64MiB/h'"),
            ("commit+rocksdb:64MiB/s:2TiB", 24, "chunk '2TiB'; expected a multiple of 4KiB"),
            ("commit+rocksdb:64MiB/s:1KiB", 24, "chunk '1KiB'"),
            ("commit+rocksdb:64MiB/s:1MiB:1", 29, "unexpected '1'; expected rocksdb:RATE[:CHUNK]"),
            ("commit+pebble:1GiB/s:0GiB", 22, "free space '0GiB'"),
            ("commit+steps:1MiB:0s", 19, "pause '0s'"),
            ("commit+pebble+steps", 15, "'steps' contradicts 'pebble': both limit deletions"),
            ("pebble", 1, "nothing says when to trim; expected commit+pebble"),
            ("commit+pebbel", 8, "did you mean `pebble`?"),
            ("commit+ceph", 8, "rocksdb, pebble, steps"),
        ] {
            let error = text.parse::<PolicySpec>().expect_err(text);
            assert_eq!(error.column, column, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
        assert!(PolicySpec::parse_live("commit+pebble").is_err(), "trimwised deletes nothing");
    }
}
