//! Matches issued requests with their completions, and returns them in the order of issue.
//!
//! All records go through one queue in time order. A request stays in it until it has completed, and later records wait
//! behind it. So the length of the queue depends on the slowest request, within two bounds: [`PATIENCE`] and
//! [`WAITING_MAX`]. A request that exceeds one of them leaves without a latency.

use std::collections::{HashMap, VecDeque};

use trimwise::trace::{Event, Record, Request, RequestKind};
use trimwise::units::{Lba, SectorRange, SimDuration, SimTime};

/// Time limit for a completion: the time after which Linux resets a drive.
const PATIENCE: SimDuration = SimDuration::from_secs(30);
/// Maximum number of records that wait: five seconds at 50,000 requests a second, in some 50 MB.
const WAITING_MAX: usize = 1 << 18;

/// Identifies a request in flight: device, kind, and the sector of its first part that has not completed.
type Key = (u32, RequestKindIndex, u64);
type RequestKindIndex = u8;

#[derive(Debug, Default)]
pub(crate) struct Requests {
    queue: VecDeque<Waiting>,
    left: u64,
    /// The numbers of requests in flight, counted from the start of the recording.
    in_flight: HashMap<Key, VecDeque<u64>>,
    pub unmatched: u64,
}

#[derive(Debug)]
struct Waiting {
    record: Record,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight(u64),
    Done,
    Requeued,
}

impl Requests {
    /// Adds a request that was issued. Its latency is found later.
    pub fn issued(&mut self, at: SimTime, device: u32, request: Request) {
        let number = self.left + self.queue.len() as u64;
        let key = (device, request.kind as u8, request.sectors.first.0);
        self.in_flight.entry(key).or_default().push_back(number);
        let record = Record { at, device, event: Event::Request(request) };
        self.queue.push_back(Waiting { record, state: State::InFlight(request.sectors.sectors) });
    }

    /// Notes that sectors of a request completed: all, or the first of those that are left.
    pub fn completed(&mut self, at: SimTime, device: u32, kind: RequestKind, sectors: SectorRange) {
        let is_flush = kind == RequestKind::Flush;
        if sectors.sectors == 0 && !is_flush {
            // This is the end of a request that was flushed for; its own completion came before.
            return;
        }
        let Some(number) = self.take_in_flight((device, kind as u8, sectors.first.0)) else {
            self.unmatched += 1;
            return;
        };
        let Some(waiting) = self.waiting(number) else { return };
        let State::InFlight(left) = waiting.state else { return };
        if left > sectors.sectors && !is_flush {
            waiting.state = State::InFlight(left - sectors.sectors);
            let key = (device, kind as u8, sectors.first.0 + sectors.sectors);
            self.in_flight.entry(key).or_default().push_back(number);
            return;
        }
        let issued = waiting.record.at;
        waiting.state = State::Done;
        if let Event::Request(request) = &mut waiting.record.event {
            request.latency = Some(at.max(issued).since(issued));
        }
    }

    /// Notes that the driver returned a request: its latency starts at the next issue.
    pub fn requeued(&mut self, device: u32, kind: RequestKind, first: Lba) {
        let Some(number) = self.take_in_flight((device, kind as u8, first.0)) else { return };
        if let Some(waiting) = self.waiting(number) {
            waiting.state = State::Requeued;
        }
    }

    pub fn other(&mut self, record: Record) {
        self.queue.push_back(Waiting { record, state: State::Done });
    }

    /// Notes that records were lost: any request in flight may have completed meanwhile.
    pub fn lost(&mut self, at: SimTime, records: u64) {
        self.give_up_all();
        self.other(Record { at, device: 0, event: Event::Lost(records) });
    }

    pub fn give_up_all(&mut self) {
        self.in_flight.clear();
        for waiting in self.queue.iter_mut().filter(|waiting| matches!(waiting.state, State::InFlight(_))) {
            waiting.state = State::Done;
        }
    }

    /// Returns the next record, unless an earlier one still waits for its completion.
    pub fn next(&mut self, now: SimTime) -> Option<Record> {
        loop {
            let Waiting { record, state } = self.queue.front()?;
            let (record, state) = (*record, *state);
            if let State::InFlight(left) = state {
                let is_late = now.max(record.at).since(record.at) >= PATIENCE;
                if !is_late && self.queue.len() <= WAITING_MAX {
                    return None;
                }
                self.forget(&record, left);
            }
            self.queue.pop_front();
            self.left += 1;
            if state != State::Requeued {
                return Some(record);
            }
        }
    }

    /// Stops waiting for the first record of the queue, of which `left` sectors remain.
    fn forget(&mut self, record: &Record, left: u64) {
        let Event::Request(request) = record.event else { return };
        let first = request.sectors.first.0 + (request.sectors.sectors - left);
        let key = (record.device, request.kind as u8, first);
        let number = self.left;
        if let Some(numbers) = self.in_flight.get_mut(&key) {
            numbers.retain(|&other| other != number);
            if numbers.is_empty() {
                self.in_flight.remove(&key);
            }
        }
    }

    fn take_in_flight(&mut self, key: Key) -> Option<u64> {
        let numbers = self.in_flight.get_mut(&key)?;
        let number = numbers.pop_front();
        if numbers.is_empty() {
            self.in_flight.remove(&key);
        }
        number
    }

    fn waiting(&mut self, number: u64) -> Option<&mut Waiting> {
        self.queue.get_mut(usize::try_from(number.checked_sub(self.left)?).ok()?)
    }
}

/// Parses the letters of a request (`blk_fill_rwbs()` in kernel/trace/blktrace.c): `F` for a flush before it, its
/// operation, and its flags. Returns `None` for an operation that a trace does not have, such as a command of a user's
/// program.
///
/// Writing zeroes counts as a write, as in the kernel's own statistics.
pub(crate) fn parse(letters: &[u8], sectors: SectorRange) -> Option<Request> {
    let end = letters.iter().position(|&letter| letter == 0).unwrap_or(letters.len());
    let letters = &letters[..end];
    let (flushes, letters) = match letters {
        [b'F', rest @ ..] if matches!(rest.first(), Some(b'F' | b'W' | b'D' | b'R' | b'N')) => (true, rest),
        _ => (false, letters),
    };
    let (&operation, flags) = letters.split_first()?;
    let is_empty = sectors.sectors == 0;
    let kind = match operation {
        b'F' => RequestKind::Flush,
        b'W' | b'N' if flushes && is_empty => RequestKind::Flush,
        b'R' => RequestKind::Read,
        b'D' => RequestKind::Discard,
        b'W' => RequestKind::Write,
        b'N' if !is_empty => RequestKind::Write,
        b'Z' if flags.first() == Some(&b'A') => RequestKind::Write,
        _ => return None,
    };
    let has = |letter| flags.contains(&letter);
    let is_flush = kind == RequestKind::Flush;
    Some(Request {
        kind,
        sectors: if is_flush { SectorRange::new(Lba(0), 0) } else { sectors },
        // Linux waits for all reads but those ahead.
        sync: has(b'S') || (kind == RequestKind::Read && !has(b'A')),
        fua: has(b'F') && !is_flush,
        meta: has(b'M'),
        latency: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, sectors: u64) -> SectorRange {
        SectorRange::new(Lba(first), sectors)
    }

    fn at(micros: u64) -> SimTime {
        SimTime::ZERO + SimDuration::from_micros(micros)
    }

    fn write(first: u64, sectors: u64) -> Request {
        parse(b"WS\0", range(first, sectors)).unwrap()
    }

    fn latencies(requests: &mut Requests, now: SimTime) -> Vec<(u64, Option<u64>)> {
        let mut found = Vec::new();
        while let Some(record) = requests.next(now) {
            let Event::Request(request) = record.event else { panic!("{record:?}") };
            let micros = request.latency.map(|latency| latency.as_nanos() / 1000);
            found.push((request.sectors.first.0, micros));
        }
        found
    }

    #[test]
    fn requests_leave_in_the_order_of_issue_with_their_latency() {
        let mut requests = Requests::default();
        requests.issued(at(0), 0, write(0, 8));
        requests.issued(at(5), 0, write(8, 8));
        requests.issued(at(6), 1, write(8, 8));
        requests.completed(at(10), 0, RequestKind::Write, range(8, 8));
        requests.completed(at(11), 0, RequestKind::Read, range(0, 8));
        assert_eq!((requests.next(at(11)), requests.unmatched), (None, 1));
        requests.completed(at(20), 0, RequestKind::Write, range(0, 8));
        assert_eq!(latencies(&mut requests, at(20)), [(0, Some(20)), (8, Some(5))]);
        requests.completed(at(21), 1, RequestKind::Write, range(8, 8));
        assert_eq!(latencies(&mut requests, at(21)), [(8, Some(15))]);
    }

    #[test]
    fn a_request_that_completes_in_parts_is_done_with_its_last_part() {
        let mut requests = Requests::default();
        requests.issued(at(0), 0, write(100, 24));
        requests.completed(at(1), 0, RequestKind::Write, range(100, 8));
        requests.completed(at(2), 0, RequestKind::Write, range(108, 8));
        assert_eq!(requests.next(at(2)), None);
        requests.completed(at(3), 0, RequestKind::Write, range(116, 0)); // nothing
        requests.completed(at(4), 0, RequestKind::Write, range(116, 8));
        assert_eq!(latencies(&mut requests, at(4)), [(100, Some(4))]);
        assert_eq!((requests.in_flight.len(), requests.unmatched), (0, 0));
    }

    #[test]
    fn the_same_sectors_twice_complete_first_in_first_out() {
        let mut requests = Requests::default();
        for micros in [0, 1] {
            requests.issued(at(micros), 0, write(0, 8));
        }
        requests.completed(at(7), 0, RequestKind::Write, range(0, 8));
        requests.completed(at(9), 0, RequestKind::Write, range(0, 8));
        assert_eq!(latencies(&mut requests, at(9)), [(0, Some(7)), (0, Some(8))]);
    }

    #[test]
    fn a_request_given_back_counts_from_its_next_issue() {
        let mut requests = Requests::default();
        requests.issued(at(0), 0, write(0, 8));
        requests.requeued(0, RequestKind::Write, Lba(0));
        requests.issued(at(50), 0, write(0, 8));
        requests.completed(at(60), 0, RequestKind::Write, range(0, 8));
        assert_eq!(latencies(&mut requests, at(60)), [(0, Some(10))]);
    }

    #[test]
    fn a_request_that_never_completes_leaves_after_half_a_minute() {
        let mut requests = Requests::default();
        requests.issued(at(0), 0, write(0, 24));
        requests.completed(at(1), 0, RequestKind::Write, range(0, 8));
        requests.issued(at(2), 0, write(48, 8));
        requests.completed(at(3), 0, RequestKind::Write, range(48, 8));
        assert_eq!(requests.next(at(29_999_999)), None);
        assert_eq!(latencies(&mut requests, at(30_000_000)), [(0, None), (48, Some(1))]);
        requests.completed(at(30_000_001), 0, RequestKind::Write, range(8, 16));
        assert_eq!((requests.unmatched, requests.in_flight.len()), (1, 0));
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut requests = Requests::default();
        let mut out = 0;
        for i in 0..WAITING_MAX as u64 + 100 {
            requests.issued(at(i), 0, write(i * 8, 8));
            out += latencies(&mut requests, at(i)).len();
        }
        assert_eq!((out, requests.queue.len(), requests.in_flight.len()), (100, WAITING_MAX, WAITING_MAX));
    }

    #[test]
    fn after_a_loss_nothing_in_flight_has_a_latency() {
        let mut requests = Requests::default();
        requests.issued(at(0), 0, write(0, 8));
        requests.lost(at(5), 17);
        requests.completed(at(6), 0, RequestKind::Write, range(0, 8));
        let events: Vec<Event> = std::iter::from_fn(|| requests.next(at(6))).map(|one| one.event).collect();
        assert_eq!(events, [Event::Request(write(0, 8)), Event::Lost(17)]);
    }

    #[test]
    fn letters_are_parsed() {
        let parsed = |letters: &str, sectors: u64| {
            let request = parse(letters.as_bytes(), range(64, sectors))?;
            Some((request.kind, request.sync, request.fua, request.meta))
        };
        use RequestKind::{Discard, Flush, Read, Write};
        for (letters, sectors, expected) in [
            ("R\0\0", 8, Some((Read, true, false, false))),
            ("RA", 8, Some((Read, false, false, false))),
            ("RSM", 8, Some((Read, true, false, true))),
            ("W", 8, Some((Write, false, false, false))),
            ("WFSM", 8, Some((Write, true, true, true))),
            ("FWFS", 8, Some((Write, true, true, false))),
            ("FWS", 0, Some((Flush, true, false, false))),
            ("FF", 0, Some((Flush, false, false, false))),
            ("F", 0, Some((Flush, false, false, false))),
            ("FS", 0, Some((Flush, true, false, false))),
            ("DS", 8, Some((Discard, true, false, false))),
            ("DE", 8, Some((Discard, false, false, false))),
            ("NS", 8, Some((Write, true, false, false))),
            ("N", 0, None),
            ("ZR", 8, None),
            ("", 8, None),
        ] {
            assert_eq!(parsed(letters, sectors), expected, "{letters}");
        }
        assert_eq!(parse(b"FF", range(64, 0)).unwrap().sectors, range(0, 0));
    }
}
