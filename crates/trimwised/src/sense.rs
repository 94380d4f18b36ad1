//! Samples file systems, with a few short reads for each, and without opening a file of the mount. The daemon asks for a
//! round each second or each few seconds, as its decisions need it.
//!
//! A worker samples all file systems in one round ([`Sampler`]). A call that asks a mount for its space (statvfs) can
//! hang: below a folder whose server does not respond, or where the file system itself hangs. That blocks only the
//! thread that makes the call. Another thread continues with the rest, and the blocked one returns when the kernel
//! releases it.

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rustix::fs::statvfs;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::futex;
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};

use trimwise_linux::block_device::parse_stat;
use trimwise_linux::mount::mount_id;

pub(crate) const COMMAND: &str = "sample";

/// Maximum number of threads that may hang at a time. Beyond it, the rest wait until one returns.
const HANGING_MAX: usize = 64;
/// A thread without progress for this long counts as hanging; a device that is merely slow responds sooner.
const GRACE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Seconds without a change after which a file system counts as quiet.
const QUIET_S: u64 = 30;
/// Seconds between samples of a quiet file system at least, so that many idle ones cost hardly more than those in use.
/// Discards are a change too, so a file system that is being trimmed is sampled each second.
const QUIET_EVERY_S: u64 = 4;
/// Up to this many quiet file systems are sampled together, which wakes the thread less often; more take turns.
const TOGETHER_MAX: usize = 64;
const DESCRIPTORS_SPARE: usize = 64;
/// Seconds between comparisons of the list of mounts: the kernel does not report changed options.
const COMPARE_EVERY_S: u64 = 10;
const UPTIME: &str = "/proc/uptime";

/// Major and minor number, which identify a file system in samples.
pub type Key = (u32, u32);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub key: Key,
    pub path: PathBuf,
    pub mount_id: u64,
    pub devices: Vec<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Sample these places from now on, and no others. `mountinfo` lists the mounts; the I/O pressure is below `proc`.
    Watch { mountinfo: PathBuf, proc: PathBuf, places: Vec<Place> },
    /// Sample all places now, this many seconds after the last round.
    Sample { seconds: u64 },
}

/// Counts of all devices of a file system together, its space, and the bytes written to its first device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 9]", into = "[u64; 9]")]
pub struct Sensed {
    pub used: u64,
    pub total: u64,
    pub done: u64,
    /// Total time of these reads and writes, in milliseconds.
    pub took_ms: u64,
    /// Time during which there were some, in milliseconds; of several devices, the sum.
    pub busy_ms: u64,
    pub moved: u64,
    pub in_flight: u64,
    pub written: u64,
    pub discards: u64,
}

impl From<[u64; 9]> for Sensed {
    fn from(counts: [u64; 9]) -> Self {
        let [used, total, done, took_ms, busy_ms, moved, in_flight, written, discards] = counts;
        Self { used, total, done, took_ms, busy_ms, moved, in_flight, written, discards }
    }
}

impl From<Sensed> for [u64; 9] {
    fn from(one: Sensed) -> Self {
        let Sensed { used, total, done, took_ms, busy_ms, moved, in_flight, written, discards } = one;
        [used, total, done, took_ms, busy_ms, moved, in_flight, written, discards]
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    pub changed: Vec<(Key, Sensed)>,
    pub gone: Vec<Key>,
    /// File systems that hang, by the number of seconds.
    pub hanging: BTreeMap<u64, Vec<Key>>,
    /// The limit on descriptors, if it is too small to keep the count files of all devices open. The rest are then
    /// opened for each sample.
    pub descriptors_short: Option<u64>,
    /// Share of the last 10 s in which some task waited for I/O, in thousandths.
    pub pressure_permille: u64,
    /// Seconds since the host booted, those of suspension included.
    pub at_s: u64,
    pub mounts_changed: bool,
}

struct Seat {
    place: Place,
    /// True if there are enough descriptors to keep the count files open.
    keeps_open: bool,
    /// The count files of the devices, kept open: opening one takes longer than reading it, and with many file systems
    /// that is most of the daemon's cost. They are files of sysfs, not of the mount.
    stats: Mutex<Vec<File>>,
    /// The file system's own id, which shows if the path leads elsewhere.
    fsid: Mutex<Option<u64>>,
    is_asked: AtomicBool,
    /// The latest sample not yet reported; `Some(None)` if the file system is going away.
    latest: Mutex<Option<Option<Sensed>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seat {
    fn new(place: Place, keeps_open: bool) -> Self {
        let (stats, fsid, is_asked, latest) = <(Mutex<Vec<File>>, Mutex<Option<u64>>, _, _)>::default();
        Self { place, keeps_open, stats, fsid, is_asked, latest }
    }

    fn sample(&self) {
        self.is_asked.store(true, Ordering::Release);
        let sensed = self.sensed();
        *locked(&self.latest) = Some(sensed);
        self.is_asked.store(false, Ordering::Release);
    }

    fn sensed(&self) -> Option<Sensed> {
        let space = statvfs(&self.place.path).ok().filter(|space| self.is_of_mount(space.f_fsid))?;
        let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
        let mut sensed = Sensed {
            used: bytes(space.f_blocks.saturating_sub(space.f_bfree)),
            total: bytes(space.f_blocks),
            ..Sensed::default()
        };
        let mut stats = locked(&self.stats);
        let counted = self.open(&mut stats).and_then(|()| count(&stats, &mut sensed));
        // A device that returns under the same name has a new file.
        if counted.is_none() || !self.keeps_open {
            stats.clear();
        }
        counted.map(|()| sensed)
    }

    /// Returns true if the path still leads to the sampled mount. After an unmount it leads to the file system below,
    /// whose size would look like a resize until the list of mounts is read.
    fn is_of_mount(&self, fsid: u64) -> bool {
        let mut known = locked(&self.fsid);
        // This id comes for free; asking for the mount's id doubles the cost.
        if *known != Some(fsid) {
            if mount_id(&self.place.path).is_some_and(|id| id != self.place.mount_id) {
                return false;
            }
            *known = Some(fsid);
        }
        true
    }

    fn open(&self, stats: &mut Vec<File>) -> Option<()> {
        if stats.is_empty() {
            let open = |sysfs: &PathBuf| File::open(sysfs.join("stat")).ok();
            *stats = self.place.devices.iter().map(open).collect::<Option<_>>()?;
        }
        Some(())
    }
}

fn count(stats: &[File], sensed: &mut Sensed) -> Option<()> {
    for (index, file) in stats.iter().enumerate() {
        let stat = read_short(file, parse_stat)?;
        sensed.done = sensed.done.saturating_add(stat.requests);
        sensed.took_ms = sensed.took_ms.saturating_add(stat.requests_ms);
        sensed.busy_ms = sensed.busy_ms.saturating_add(stat.busy_ms);
        sensed.moved = sensed.moved.saturating_add(stat.read.0).saturating_add(stat.written.0);
        sensed.in_flight = sensed.in_flight.saturating_add(stat.in_flight);
        let discards = stat.discards.map_or(0, |discards| discards.commands);
        sensed.discards = sensed.discards.saturating_add(discards);
        if index == 0 {
            sensed.written = stat.written.0;
        }
    }
    Some(())
}

/// Reads a file of less than 512 bytes from its beginning: the kernel writes such files anew for each read.
fn read_short<T>(file: &File, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let mut buffer = [0; 512];
    let read = file.read_at(&mut buffer, 0).ok()?;
    parse(std::str::from_utf8(buffer.get(..read)?).ok()?)
}

/// A file of the kernel, kept open from one read to the next.
#[derive(Default)]
struct Kept {
    path: PathBuf,
    file: Option<File>,
}

impl Kept {
    fn new(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    /// Calls `read` with the file; it is opened again after a failure.
    fn with<T>(&mut self, read: impl FnOnce(&File) -> Option<T>) -> Option<T> {
        let file = self.file.take().or_else(|| File::open(&self.path).ok())?;
        let result = read(&file);
        self.file = result.is_some().then_some(file);
        result
    }
}

/// One round through all file systems that do not hang. Threads take one seat after another.
struct Round {
    seats: Vec<Arc<Seat>>,
    next: AtomicUsize,
    unfinished: AtomicUsize,
    /// Set to 1 once all have been sampled. A futex: a channel would read the clock several times.
    done: AtomicU32,
}

impl Round {
    fn run(&self) {
        while let Some(seat) = self.seats.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            seat.sample();
            if self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.done.store(1, Ordering::Release);
                let _ = futex::wake(&self.done, futex::Flags::PRIVATE, 1); // nobody waits for an abandoned round
            }
        }
    }
}

struct Taken {
    seat: Arc<Seat>,
    told: Option<Sensed>,
    quiet_s: u64,
    /// The instant at which the file system was first found to hang.
    hangs_since: Option<Instant>,
}

#[derive(Default)]
pub struct Sampler {
    mountinfo: Kept,
    pressure: Kept,
    uptime: Kept,
    seats: Vec<Taken>,
    /// Seconds of all rounds together.
    passed_s: u64,
    descriptors_short: Option<u64>,
    runner: Option<Sender<Arc<Round>>>,
    /// Time of the last comparison of the list of mounts, in seconds of the rounds, and the hash of the list.
    compared: Option<(u64, u64)>,
}

impl Sampler {
    pub fn answer(&mut self, ask: Ask) -> Seen {
        match ask {
            Ask::Watch { mountinfo, proc, places } => {
                (self.mountinfo, self.pressure) = (Kept::new(mountinfo), Kept::new(proc.join("pressure/io")));
                self.uptime = Kept::new(UPTIME.into());
                self.watch(places);
                Seen::default()
            }
            Ask::Sample { seconds } => self.sample(seconds),
        }
    }

    /// Changes the set of sampled places. Hanging seats are kept.
    fn watch(&mut self, places: Vec<Place>) {
        let before = std::mem::take(&mut self.seats);
        let mut before: BTreeMap<Key, Arc<Seat>> =
            before.into_iter().map(|taken| (taken.seat.place.key, taken.seat)).collect();
        let limit = raise_descriptors();
        let most = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(DESCRIPTORS_SPARE);
        let mut wanted = 0;
        let mut seat = |place: Place| {
            wanted += place.devices.len();
            let keeps_open = wanted <= most;
            let known = before.remove(&place.key);
            let known = known.filter(|known| known.place == place && known.keeps_open == keeps_open);
            let seat = known.unwrap_or_else(|| Arc::new(Seat::new(place, keeps_open)));
            Taken { seat, told: None, quiet_s: 0, hangs_since: None }
        };
        self.seats = places.into_iter().map(&mut seat).collect();
        self.descriptors_short = (wanted > most).then_some(limit);
    }

    fn sample(&mut self, seconds: u64) -> Seen {
        let before_s = self.passed_s;
        self.passed_s += seconds;
        let (take_turns, now_s) = (self.seats.len() > TOGETHER_MAX, self.passed_s);
        let is_asked = |taken: &Taken| taken.seat.is_asked.load(Ordering::Acquire);
        let is_due = |(index, taken): &(usize, &Taken)| {
            let turn = |at_s: u64| (at_s + if take_turns { *index as u64 } else { 0 }) / QUIET_EVERY_S;
            let rests = taken.quiet_s >= QUIET_S && turn(now_s) == turn(before_s);
            !rests && !is_asked(taken)
        };
        let hanging = self.seats.iter().filter(|taken| is_asked(taken)).count();
        let due = self.seats.iter().enumerate().filter(is_due);
        let seats: Vec<_> = due.map(|(_, taken)| Arc::clone(&taken.seat)).collect();
        let unfinished = seats.len().into();
        let round = Arc::new(Round { seats, next: 0.into(), unfinished, done: 0.into() });
        if !round.seats.is_empty() {
            self.go_through(&round, hanging);
        }
        let mut seen = Seen {
            descriptors_short: self.descriptors_short,
            pressure_permille: self.pressure.with(|file| read_short(file, parse_pressure)).unwrap_or(0),
            at_s: self.uptime.with(|file| read_short(file, parse_uptime)).unwrap_or(0),
            mounts_changed: self.mounts_changed(),
            ..Seen::default()
        };
        for taken in &mut self.seats {
            let is_hanging = is_asked(taken);
            let Taken { seat, told, quiet_s, hangs_since } = taken;
            let key = seat.place.key;
            if is_hanging {
                let since = hangs_since.get_or_insert_with(Instant::now);
                seen.hanging.entry(since.elapsed().as_secs()).or_default().push(key);
                continue;
            }
            *hangs_since = None;
            match locked(&seat.latest).take() {
                Some(None) => seen.gone.push(key),
                Some(now) if now != *told => {
                    (*told, *quiet_s) = (now, 0);
                    seen.changed.extend(now.map(|now| (key, now)));
                }
                Some(_) => *quiet_s = quiet_s.saturating_add(seconds),
                None => {}
            }
        }
        seen
    }

    /// Waits until all seats have been sampled except those that hang.
    fn go_through(&mut self, round: &Arc<Round>, mut hanging: usize) {
        let sent = self.runner.as_ref().is_some_and(|runner| runner.send(Arc::clone(round)).is_ok());
        if !sent {
            self.runner = runner(round);
        }
        let mut unfinished = round.seats.len();
        while round.done.load(Ordering::Acquire) == 0 {
            let waited = futex::wait(&round.done, futex::Flags::PRIVATE, 0, Some(&GRACE));
            if waited != Err(Errno::TIMEDOUT) {
                continue;
            }
            let now = round.unfinished.load(Ordering::Acquire);
            if now == unfinished {
                // The hanging thread is abandoned, and ends when it returns: its channel is closed.
                self.runner = None;
                hanging += 1;
                if round.next.load(Ordering::Relaxed) >= round.seats.len() || hanging >= HANGING_MAX {
                    return;
                }
                self.runner = runner(round);
            }
            unfinished = now;
        }
    }

    fn mounts_changed(&mut self) -> bool {
        if self.compared.is_some_and(|(at_s, _)| self.passed_s < at_s + COMPARE_EVERY_S) {
            return false;
        }
        let now = self.mountinfo.with(|file| {
            let (mut hasher, mut buffer, mut from) = (DefaultHasher::new(), vec![0; 16 << 10], 0);
            while let read @ 1.. = file.read_at(&mut buffer, from).ok()? {
                hasher.write(&buffer[..read]);
                from += read as u64;
            }
            Some(hasher.finish())
        });
        let now = now.unwrap_or(0);
        let before = self.compared.replace((self.passed_s, now));
        before.is_some_and(|(_, before)| before != now)
    }
}

/// Starts a thread that runs this round and then those that it is sent; `None` if it cannot be started.
fn runner(round: &Arc<Round>) -> Option<Sender<Arc<Round>>> {
    let (sender, rounds) = channel::<Arc<Round>>();
    let first = Arc::clone(round);
    let run = move || {
        first.run();
        drop(first);
        rounds.iter().for_each(|round| round.run());
    };
    // The stack only holds one line of a file.
    std::thread::Builder::new().stack_size(64 << 10).spawn(run).ok().map(|_| sender)
}

/// Raises the limit on open files to its maximum; returns the new limit.
pub(crate) fn raise_descriptors() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Reads `350735.47 234388.90`: the seconds since boot, as of CLOCK_BOOTTIME. Where a kernel's vDSO has no clocks, as in
/// User-Mode Linux 7.3, rustix panics when it reads that clock.
fn parse_uptime(text: &str) -> Option<u64> {
    text.split('.').next()?.parse().ok()
}

/// Reads the share of the last 10 s in which some task waited for I/O, in thousandths, from `/proc/pressure/io`: `some
/// avg10=1.25 avg60=...`.
pub(crate) fn parse_pressure(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let percent = line.split_ascii_whitespace().find_map(|field| field.strip_prefix("avg10="))?;
    let (whole, part) = percent.split_once('.').unwrap_or((percent, "0"));
    let tenths = part.get(..1)?.parse::<u64>().ok()?;
    Some(whole.parse::<u64>().ok()?.saturating_mul(10).saturating_add(tenths))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimwise_linux::mount::mount_of;

    #[test]
    fn pressure_is_read_in_thousandths() {
        let text =
            "some avg10=12.34 avg60=1.00 avg300=0.00 total=1\nfull avg10=99.00 avg60=0 avg300=0 total=0\n";
        assert_eq!(parse_pressure(text), Some(123));
        assert_eq!(parse_pressure("some avg10=100.00"), Some(1000));
        for other in ["", "full avg10=1.00", "some avg10=x.1", "some avg10=1."] {
            assert_eq!(parse_pressure(other), None, "{other}");
        }
    }

    #[test]
    fn unchanged_samples_are_not_reported_again() {
        let folder = tempfile::tempdir().unwrap();
        let device = folder.path().join("sda");
        std::fs::create_dir(&device).unwrap();
        let count = |done: u64| {
            let text = format!("{done} 0 8 5 7 0 16 6 1 0 0 0 0 0 0 0 0\n");
            std::fs::write(device.join("stat"), text).unwrap();
        };
        let here = mount_of(folder.path()).unwrap().id;
        let place = |minor, path: &str, mount_id| Place {
            key: (8, minor),
            path: folder.path().join(path),
            mount_id,
            devices: vec![device.clone()],
        };
        let mut sampler = Sampler::default();
        let mountinfo = folder.path().join("mountinfo");
        sampler.answer(Ask::Watch {
            mountinfo: mountinfo.clone(),
            proc: folder.path().into(),
            places: vec![place(1, "", here), place(2, "none", here), place(3, "", here + 1)],
        });
        count(3);
        let seen = sampler.answer(Ask::Sample { seconds: 1 });
        let (key, sensed) = seen.changed[0];
        assert_eq!((key, sensed.done, sensed.took_ms, sensed.written), ((8, 1), 10, 11, 16 * 512));
        // The third path leads to another mount, as after an unmount; before Linux 5.8 that cannot be detected.
        let elsewhere = mount_id(folder.path()).is_some();
        let gone: &[Key] = if elsewhere { &[(8, 2), (8, 3)] } else { &[(8, 2)] };
        assert_eq!((seen.changed.len(), &seen.gone[..]), (2 - usize::from(elsewhere), gone));
        // The space of this folder changes when others write.
        let again = |sampler: &mut Sampler| {
            let seen = sampler.answer(Ask::Sample { seconds: 1 });
            seen.changed.iter().map(|(_, sensed)| sensed.done).collect::<Vec<_>>()
        };
        assert!([vec![], vec![10]].contains(&again(&mut sampler)));
        count(4);
        assert_eq!(again(&mut sampler), [11]);
    }

    #[test]
    fn a_quiet_file_system_is_sampled_seldom_until_something_happens_there() {
        let folder = tempfile::tempdir().unwrap();
        let device = folder.path().join("sda");
        std::fs::create_dir(&device).unwrap();
        let count = |requests: u64, discards: u64| {
            let text = format!("{requests} 0 8 5 7 0 16 6 1 0 0 {discards} 0 0 0 0 0\n");
            std::fs::write(device.join("stat"), text).unwrap();
        };
        // Its space never changes.
        let path = PathBuf::from("/proc");
        let place =
            Place { key: (8, 1), mount_id: mount_of(&path).unwrap().id, path, devices: vec![device.clone()] };
        let (mountinfo, proc) = (folder.path().join("mountinfo"), folder.path().to_owned());
        let mut sampler = Sampler::default();
        sampler.answer(Ask::Watch { mountinfo, proc, places: vec![place] });
        let mut changes = |samples: u64, seconds: u64| -> Vec<u64> {
            let is_changed = |_: &u64| !sampler.answer(Ask::Sample { seconds }).changed.is_empty();
            (1..=samples).filter(is_changed).collect()
        };
        count(1, 0);
        assert_eq!(changes(QUIET_S + 10, 1), [1]);
        count(1, 1);
        assert_eq!(changes(QUIET_EVERY_S, 1), [4], "a discard, in the 44th round, its next turn");
        for requests in 2..12 {
            count(requests, 1);
            assert_eq!(changes(1, 1), [1], "and then each second");
        }
        assert_eq!(changes(QUIET_S, 5), [0_u64; 0]);
        for requests in 12..22 {
            count(requests, 1);
            assert_eq!(changes(1, 5), [1], "rounds as rare as that are its turn");
        }
    }
}
