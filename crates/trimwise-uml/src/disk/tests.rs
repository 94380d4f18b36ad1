//! Requests of a guest whose memory and queue are made here, on a small drive.

use std::cell::RefCell;
use std::rc::Rc;

use trimwise::fs::witness::{Event, NEVER, OpKind};
use trimwise::ssd::{Drive, Faults, SsdConfig};
use vm_memory::{Bytes as _, GuestAddress};

use super::*;

/// Where the guest has its queue, and the data of its requests.
const DESCRIPTORS: u64 = 0;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const DATA: u64 = 0x1_0000;
const DATA_BYTES: u64 = 0x1_0000;
const QUEUE_SIZE: u16 = 16;

/// A guest with one request in each slot of its queue, at most [`QUEUE_SIZE`] over all.
struct Guest {
    front: FrontEnd,
    requests: u16,
    now: SimTime,
}

impl Guest {
    fn new() -> Self {
        let whole = (GuestAddress(0), (DATA + DATA_BYTES * u64::from(QUEUE_SIZE)) as usize);
        let mut front = FrontEnd::over(GuestMemoryMmap::from_ranges(&[whole]).unwrap());
        let (_, queue) = front.queue().unwrap();
        queue.set_size(QUEUE_SIZE * 2);
        queue.try_set_desc_table_address(GuestAddress(DESCRIPTORS)).unwrap();
        queue.try_set_avail_ring_address(GuestAddress(AVAILABLE)).unwrap();
        queue.try_set_used_ring_address(GuestAddress(USED)).unwrap();
        queue.set_ready(true);
        Self { front, requests: 0, now: SimTime::ZERO }
    }

    /// Hands over a request with this data, and room for so many bytes of an answer; returns its slot.
    fn begin(&mut self, disk: &mut Disk, code: u32, sector: u64, data: &[u8], room: usize) -> u16 {
        let slot = self.requests;
        self.requests += 1;
        let (to_disk, to_guest) = (DATA + DATA_BYTES * u64::from(slot), self.answer_at(slot));
        let (memory, _) = self.front.queue().unwrap();
        let head = [&code.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes(), data].concat();
        memory.write_slice(&head, GuestAddress(to_disk)).unwrap();
        let describe = |index: u16, at: u64, bytes: usize, [flags, next]: [u16; 2]| {
            let numbers = [flags.to_le_bytes(), next.to_le_bytes()].concat();
            let all = [&at.to_le_bytes()[..], &(bytes as u32).to_le_bytes(), &numbers].concat();
            memory.write_slice(&all, GuestAddress(DESCRIPTORS + 16 * u64::from(index))).unwrap();
        };
        const HAS_NEXT: u16 = 1;
        const IS_WRITTEN_BY_THE_DISK: u16 = 2;
        describe(slot * 2, to_disk, head.len(), [HAS_NEXT, slot * 2 + 1]);
        describe(slot * 2 + 1, to_guest, room + 1, [IS_WRITTEN_BY_THE_DISK, 0]);
        let entry = GuestAddress(AVAILABLE + 4 + 2 * u64::from(slot));
        memory.write_slice(&(slot * 2).to_le_bytes(), entry).unwrap();
        memory.write_slice(&self.requests.to_le_bytes(), GuestAddress(AVAILABLE + 2)).unwrap();
        disk.take_requests(&mut self.front, self.now).unwrap();
        slot
    }

    fn answer_at(&self, slot: u16) -> u64 {
        DATA + DATA_BYTES * u64::from(slot) + DATA_BYTES / 2
    }

    /// Lets the disk complete what it has completed by now; returns how many requests it has completed in all.
    fn completed(&mut self, disk: &mut Disk) -> u16 {
        disk.complete(&mut self.front, self.now).unwrap();
        let (memory, _) = self.front.queue().unwrap();
        let mut count = [0; 2];
        memory.read_slice(&mut count, GuestAddress(USED + 2)).unwrap();
        u16::from_le_bytes(count)
    }

    /// Hands over a request, and waits for it; returns its answer and its status.
    fn ask(&mut self, disk: &mut Disk, code: u32, sector: u64, data: &[u8], room: usize) -> (Vec<u8>, u8) {
        let slot = self.begin(disk, code, sector, data, room);
        self.now = disk.pending().map(|(done, ..)| done).max().unwrap();
        assert_eq!(self.completed(disk), self.requests);
        let mut answer = vec![0; room + 1];
        let at = GuestAddress(self.answer_at(slot));
        self.front.queue().unwrap().0.read_slice(&mut answer, at).unwrap();
        let status = answer.pop().unwrap();
        (answer, status)
    }

    fn write(&mut self, disk: &mut Disk, sector: u64, data: &[u8]) {
        assert_eq!(self.ask(disk, kind::WRITE, sector, data, 0).1, STATUS_OK);
    }

    /// Discards or writes zeros.
    fn ranges(&mut self, disk: &mut Disk, code: u32, flags: u32, ranges: &[(u64, u32)]) -> u8 {
        let segments = ranges.iter().flat_map(|&(first, sectors)| {
            [&first.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
        });
        self.ask(disk, code, 0, &segments.collect::<Vec<u8>>(), 0).1
    }

    fn mark(&mut self, disk: &mut Disk) -> String {
        let (serial, status) = self.ask(disk, kind::GET_ID, 0, &[], SERIAL_BYTES);
        assert_eq!(status, STATUS_OK);
        String::from_utf8(serial).unwrap().trim_end_matches('\0').to_owned()
    }
}

fn disk(faults: Faults) -> Disk {
    let mut config = SsdConfig { capacity_bytes: Bytes::mib(128).0, ..SsdConfig::default() };
    (config.geometry.pages_per_block, config.over_provisioning_percent) = (32, Some(30.into()));
    let drive = Drive::new(&config, faults, 1).unwrap();
    let store = SparseStore::in_memory(Bytes::from_units(config.capacity_units())).unwrap();
    Disk::new(Port::new(drive), store, "disk", true)
}

fn unit(byte: u8) -> Vec<u8> {
    vec![byte; UNIT_BYTES as usize]
}

/// What a crash test replays must be all that the drive did: what it took, what it destroyed, and no flush that it
/// ignored.
#[test]
fn a_recording_and_the_bytes_say_what_the_drive_did() {
    for ignores_flush in [false, true] {
        let noted = Rc::new(RefCell::new(Vec::new()));
        let notes = Rc::clone(&noted);
        let at_mark = move |mark: usize, _: &SparseStore, changed: Changed| {
            notes.borrow_mut().push((mark, changed.into_iter().collect::<Vec<_>>()));
            Ok(())
        };
        let faults = Faults { ignores_flush, ..Faults::default() };
        let mut disk = disk(faults).recorded().with_exchange(Box::new(at_mark));
        let mut guest = Guest::new();
        assert_eq!(guest.mark(&mut disk), "disk-0");
        guest.write(&mut disk, 8, &unit(7));
        guest.write(&mut disk, 17, &[9; 512]);
        guest.write(&mut disk, 32, &[unit(1), unit(2), unit(3)].concat());
        guest.write(&mut disk, 72, &unit(4));
        // Units 4 and 6; of unit 5 only a half.
        assert_eq!(guest.ranges(&mut disk, kind::DISCARD, 0, &[(32, 8), (44, 12)]), STATUS_OK);
        assert_eq!(guest.ask(&mut disk, kind::FLUSH, 0, &[], 0).1, STATUS_OK);
        assert_eq!(guest.mark(&mut disk), "disk-1");
        assert_eq!(guest.ranges(&mut disk, kind::DISCARD, 0, &[(72, 8)]), STATUS_OK);
        // This drive promises zeros, so it may trim them; the second must be written.
        assert_eq!(guest.ranges(&mut disk, kind::WRITE_ZEROES, FLAG_UNMAP, &[(8, 8)]), STATUS_OK);
        assert_eq!(guest.ranges(&mut disk, kind::WRITE_ZEROES, 0, &[(40, 8)]), STATUS_OK);
        assert_eq!(guest.mark(&mut disk), "disk-2");

        let (bytes, status) = guest.ask(&mut disk, kind::READ, 8, &[], 6 * UNIT_BYTES as usize);
        let mut expected = vec![0; 6 * UNIT_BYTES as usize];
        expected[UNIT_BYTES as usize + 512..UNIT_BYTES as usize + 1024].fill(9);
        assert!(bytes == expected && status == STATUS_OK);
        assert_eq!(*noted.borrow(), [(0, vec![]), (1, vec![1, 2, 4, 5, 6, 9]), (2, vec![1, 5, 9])]);

        let recording = disk.take_recording().unwrap();
        let shown = |kind: &OpKind| match kind {
            OpKind::Write { start, contents } => {
                let first = |&content: &_| recording.bytes(content).unwrap().iter().find(|&&byte| byte != 0);
                let contents =
                    contents.iter().map(|content| (*content != NEVER).then(|| *first(content).unwrap()));
                format!(
                    "write {}: {:?}",
                    start.0,
                    contents.map(Option::unwrap_or_default).collect::<Vec<_>>()
                )
            }
            OpKind::Trim(ranges) => {
                format!(
                    "trim {:?}",
                    ranges.iter().map(|range| (range.start.0, range.units)).collect::<Vec<_>>()
                )
            }
            OpKind::Flush => "flush".to_owned(),
        };
        let told: Vec<String> = recording.record.ops.iter().map(|op| shown(&op.kind)).collect();
        let mut expected = vec![
            "write 1: [7]",
            "write 2: [9]",
            "write 4: [1, 2, 3]",
            "write 9: [4]",
            "trim [(4, 1), (6, 1)]",
            "flush",
        ];
        expected.extend(["trim [(9, 1)]", "trim [(1, 1)]", "write 1: [0]", "write 5: [0]"]);
        expected.retain(|told| *told != "flush" || !ignores_flush);
        assert_eq!(told, expected);
        let all_completed = recording.record.ops.iter().all(|op| op.completed != usize::MAX);
        assert!(all_completed && matches!(recording.record.events[..], [_, Event::Completed(0), ..]));
        assert_eq!(recording.marks, [0, if ignores_flush { 10 } else { 12 }, recording.record.events.len()]);

        let (_, _, trace, marks) = disk.into_parts();
        let traced: Vec<(Traced, u64, u64, bool)> = trace
            .iter()
            .map(|entry| (entry.kind, entry.offset_bytes / 512, entry.length_bytes / 512, entry.is_trim))
            .collect();
        assert_eq!(
            traced,
            [
                (Traced::Write, 8, 8, false),
                (Traced::Write, 17, 1, false),
                (Traced::Write, 32, 24, false),
                (Traced::Write, 72, 8, false),
                (Traced::Discard, 32, 8, true),
                (Traced::Discard, 44, 12, true),
                (Traced::Flush, 0, 0, false),
                (Traced::Discard, 72, 8, true),
                (Traced::WriteZeroes, 8, 8, true),
                (Traced::WriteZeroes, 40, 8, false),
                (Traced::Read, 8, 48, false),
            ]
        );
        assert_eq!(marks.iter().map(|mark| mark.traced).collect::<Vec<_>>(), [0, 7, 10]);
        assert_eq!(marks.iter().map(|mark| mark.counts.discards).collect::<Vec<_>>(), [0, 1, 3]);
    }
}

#[test]
fn a_request_completes_when_the_drive_says_and_its_data_are_there_at_once() {
    let (mut disk, mut guest) = (disk(Faults::default()), Guest::new());
    guest.begin(&mut disk, kind::WRITE, 0, &unit(5), 0);
    let read = guest.begin(&mut disk, kind::READ, 0, &[], UNIT_BYTES as usize);
    let mut dones: Vec<SimTime> = disk.pending().map(|(done, ..)| done).collect();
    dones.sort_unstable();
    assert!(dones[0] > SimTime::ZERO && dones[0] < dones[1], "{dones:?}");
    for (now, completed) in [(dones[0].0 - 1, 0), (dones[0].0, 1), (dones[1].0, 2)] {
        guest.now = SimTime(now);
        assert_eq!(guest.completed(&mut disk), completed, "at {now} ns");
    }
    let mut bytes = unit(0);
    let at = GuestAddress(guest.answer_at(read));
    guest.front.queue().unwrap().0.read_slice(&mut bytes, at).unwrap();
    assert!(bytes == unit(5));
}

/// A step's work is what the drive did between two marks, and what it did while idle is of the step that was idle.
#[test]
fn what_the_drive_collects_while_idle_is_counted_before_the_next_mark() {
    let (mut disk, mut guest) = (disk(Faults::default()), Guest::new());
    let units = disk.port.size().units_floor();
    let write = |start: u64, units: u64| {
        PortRequest::Write(UnitRange::new(Lpn(start), units).into(), Content::new(ContentClass::default(), 0))
    };
    let mut now = SimTime::ZERO;
    for start in (0..units).step_by(64) {
        now = disk.port.submit(now, &write(start, 64)).unwrap();
    }
    for i in 0..units / 2 {
        now = disk.port.submit(now, &write(i * 7919 % units, 1)).unwrap();
    }
    guest.now = now;
    guest.mark(&mut disk);
    guest.now = now + SimDuration::from_secs(10);
    guest.mark(&mut disk);
    let [busy, idle] = &disk.marks[..] else { panic!("{:?}", disk.marks) };
    assert_eq!(idle.stats.host_units_written, busy.stats.host_units_written);
    assert!(idle.stats.nand_units.gc > busy.stats.nand_units.gc, "{:?}", idle.stats);
}

#[test]
fn a_disk_fails_as_planned_between_two_marks_and_marks_go_on() {
    let discard = |guest: &mut Guest, disk: &mut Disk| guest.ranges(disk, kind::DISCARD, 0, &[(0, 8)]);
    let read = |guest: &mut Guest, disk: &mut Disk| guest.ask(disk, kind::READ, 0, &[], 512).1;
    let faults = vec![(1..2, Fault::DiscardsFail), (2..3, Fault::DiscardsRefused), (3..4, Fault::Gone)];
    let (mut disk, mut guest) = (disk(Faults::default()).with_faults(faults), Guest::new());
    let mut statuses = Vec::new();
    for _ in 0..5 {
        let begun = guest.now;
        statuses.push((discard(&mut guest, &mut disk), read(&mut guest, &mut disk)));
        assert!(guest.now > begun, "a failure takes time too, so a kernel that tries again gets on");
        guest.mark(&mut disk);
    }
    const OK: u8 = STATUS_OK;
    let expected = [
        (OK, OK),
        (STATUS_IO_ERROR, OK),
        (STATUS_UNSUPPORTED, OK),
        (STATUS_IO_ERROR, STATUS_IO_ERROR),
        (OK, OK),
    ];
    assert_eq!(statuses, expected);
    assert_eq!(disk.failure(), None, "as planned");
    assert_eq!(guest.ask(&mut disk, 99, 0, &[], 0).1, STATUS_UNSUPPORTED);
}

#[test]
fn the_marks_of_the_guest_are_told_from_those_of_other_programs() {
    let (mut disk, mut guest) = (disk(Faults::default()), Guest::new());
    for _ in 0..4 {
        guest.now += SimDuration::from_secs(1);
        guest.mark(&mut disk);
    }
    for wrong in [[1, 4], [3, 1], [2, 2]] {
        let marks = disk.marks.clone();
        assert!(disk.keep_marks(&wrong).unwrap_err().contains("of 4 marks"), "{wrong:?}");
        disk.marks = marks;
    }
    disk.faults = vec![(0..1, Fault::Gone)];
    let marks = disk.marks.clone();
    assert!(disk.keep_marks(&[0, 2]).unwrap_err().contains("4 marks, of which the guest made 2"));
    (disk.marks, disk.faults) = (marks, Vec::new());
    disk.keep_marks(&[0, 2]).unwrap();
    let at: Vec<u64> = disk.marks.iter().map(|mark| mark.at.0 / 1_000_000_000).collect();
    assert_eq!(at, [1, 3]);
}

/// As if an image had been copied to the drive, and the copy been synced.
#[test]
fn what_is_there_already_was_written_and_flushed() {
    let mut disk = disk(Faults::default());
    disk.write_what_is_there().unwrap();
    assert_eq!(disk.port.counts(), PortCounts::default(), "a new drive stays untouched");
    disk.store.write(3 * UNIT_BYTES, &unit(1)).unwrap();
    disk.store.write(9 * UNIT_BYTES, &[unit(1), unit(2)].concat()).unwrap();
    disk.write_what_is_there().unwrap();
    let PortCounts { writes, written_bytes, flushes, .. } = disk.port.counts();
    assert_eq!((writes, written_bytes, flushes), (2, 3 * UNIT_BYTES, 1));
    assert_eq!(disk.port.drive().ssd().mapped_units(), 3);
}
