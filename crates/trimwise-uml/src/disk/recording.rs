//! A record of a disk's commands with their bytes, so that the disk's power can be cut afterwards at any event.
//!
//! The format is the record of the crash checker ([`trimwise::fs::witness::Record`]): commands with their contents unit
//! by unit, and the order in which they were submitted and acknowledged. Here the contents are bytes. A write of a part
//! of a unit carries the whole unit, merged with its last contents, as in a drive that maps whole units.

use std::collections::BTreeSet;

use trimwise::fs::witness::{ContentId, Event, NEVER, Op, OpKind, Record, UNKNOWN};
use trimwise::units::{Lpn, UNIT_BYTES, UnitRange};

pub type UnitBytes = [u8; UNIT_BYTES as usize];
const ZEROS: UnitBytes = [0; UNIT_BYTES as usize];

#[derive(Debug)]
pub struct Recording {
    pub record: Record,
    pub marks: Vec<usize>,
    /// Contents, indexed by their number less [`FIRST`].
    contents: Vec<Box<UnitBytes>>,
    /// True if acknowledged writes are durable only after a flush.
    has_volatile_cache: bool,
}

/// The number of the first content that is neither zeros nor trimmed.
const FIRST: ContentId = UNKNOWN + 1;

impl Recording {
    pub(super) fn new(has_volatile_cache: bool) -> Self {
        Self { record: Record::default(), marks: Vec::new(), contents: Vec::new(), has_volatile_cache }
    }

    /// Returns the bytes of a unit; `None` for one that was trimmed.
    pub fn bytes(&self, content: ContentId) -> Option<&UnitBytes> {
        match content {
            NEVER => Some(&ZEROS),
            _ => content.checked_sub(FIRST).map(|index| &*self.contents[index as usize]),
        }
    }

    /// Records a write over these units, whose bytes are now `units`, in order. Returns the command's number.
    pub(super) fn written(&mut self, start: Lpn, units: &[u8]) -> usize {
        let mut contents = Vec::new();
        for unit in units.as_chunks::<{ UNIT_BYTES as usize }>().0 {
            if *unit == ZEROS {
                contents.push(NEVER);
            } else {
                contents.push(FIRST + self.contents.len() as ContentId);
                self.contents.push(Box::new(*unit));
            }
        }
        self.begin(OpKind::Write { start, contents })
    }

    pub(super) fn trimmed(&mut self, units: Vec<UnitRange>) -> usize {
        self.begin(OpKind::Trim(units))
    }

    pub(super) fn flushed(&mut self) -> usize {
        self.begin(OpKind::Flush)
    }

    fn begin(&mut self, kind: OpKind) -> usize {
        let number = self.record.ops.len();
        self.record.ops.push(Op { kind, dispatched: self.record.events.len(), completed: usize::MAX });
        self.record.events.push(Event::Dispatched(number));
        number
    }

    pub(super) fn acknowledged(&mut self, number: usize) {
        self.record.ops[number].completed = self.record.events.len();
        self.record.events.push(Event::Completed(number));
        if !self.has_volatile_cache && !matches!(self.record.ops[number].kind, OpKind::Flush) {
            let flush = self.flushed();
            self.acknowledged(flush);
        }
    }

    pub(super) fn marked(&mut self) {
        self.marks.push(self.record.events.len());
    }
}

/// Units whose bytes a guest has changed since the last call, for a host that copies only these.
pub type Changed = BTreeSet<u64>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_volatile_cache_every_acknowledged_command_is_flushed() {
        for (has_volatile_cache, events) in [(true, 2), (false, 4)] {
            let mut recording = Recording::new(has_volatile_cache);
            let command = recording.written(Lpn(3), &[7; UNIT_BYTES as usize]);
            recording.acknowledged(command);
            recording.marked();
            assert_eq!(recording.marks, [events]);
        }
    }

    #[test]
    fn contents_are_kept_unit_by_unit() {
        let mut recording = Recording::new(true);
        recording.written(Lpn(0), &[[7; UNIT_BYTES as usize], [0; UNIT_BYTES as usize]].concat());
        let OpKind::Write { contents, .. } = &recording.record.ops[0].kind else { panic!("not a write") };
        let bytes = contents.iter().map(|&content| recording.bytes(content).unwrap()[0]);
        assert_eq!(bytes.collect::<Vec<_>>(), [7, 0]);
        assert_eq!(contents[1], NEVER);
    }
}
