//! Writes and TRIMs of the same units that are in the drive at the same time.
//!
//! A drive may carry them out in either order, so the written data can be lost, with or without a power cut. On a drive
//! that takes one command after another no cut shows it. A file system must not allocate space while it is being
//! discarded, nor discard space that is being written.

use std::collections::BTreeMap;

use trimwise::fs::witness::{Event, OpKind, Record};
use trimwise::units::UnitRange;

use crate::crash::Broken;

/// Returns the overlaps whose second command was submitted at this event or later, in that order.
pub fn overlaps(record: &Record, first: usize) -> Vec<Broken> {
    let mut in_drive = BTreeMap::new();
    let mut found = Vec::new();
    for (at, event) in record.events.iter().enumerate() {
        match *event {
            Event::Completed(number) => drop(in_drive.remove(&number)),
            Event::Dispatched(number) => {
                let kind = &record.ops[number].kind;
                let others = in_drive.values().copied().filter(|_| at >= first);
                found.extend(
                    others
                        .filter_map(|other| shared(kind, other))
                        .map(|units| Broken::WrittenAndTrimmed { unit: units.start.0, units: units.units }),
                );
                in_drive.insert(number, kind);
            }
            Event::Promised(_) | Event::Gone(_) | Event::Destroyed(_) => {}
        }
    }
    found
}

/// Returns the first units that one of two commands writes and the other trims.
fn shared(one: &OpKind, other: &OpKind) -> Option<UnitRange> {
    let (start, count, trimmed) = match (one, other) {
        (OpKind::Write { start, contents }, OpKind::Trim(trimmed))
        | (OpKind::Trim(trimmed), OpKind::Write { start, contents }) => (*start, contents.len(), trimmed),
        _ => return None,
    };
    let written = UnitRange::new(start, count as u64);
    let shared = trimmed
        .iter()
        .map(|range| UnitRange::between(range.start.max(written.start), range.end().min(written.end())));
    shared.into_iter().find(|shared| shared.units > 0)
}

#[cfg(test)]
mod tests {
    use trimwise::fs::witness::Op;
    use trimwise::units::Lpn;

    use super::*;

    #[test]
    fn only_a_write_and_a_trim_of_the_same_units_at_the_same_time_count() {
        let trim = |start, units| OpKind::Trim(vec![UnitRange::new(Lpn(start), units)]);
        let write = |start, units| OpKind::Write { start: Lpn(start), contents: vec![0; units] };
        let run = |kinds: [OpKind; 2], events: [Event; 4]| {
            let ops = kinds.map(|kind| Op { kind, dispatched: 0, completed: 0 }).into();
            let mut record = Record::default();
            (record.ops, record.events) = (ops, events.into());
            overlaps(&record, 0)
        };
        use Event::{Completed, Dispatched};
        let together = [Dispatched(0), Dispatched(1), Completed(0), Completed(1)];
        let both = |unit, units| [Broken::WrittenAndTrimmed { unit, units }];
        let in_turn = [Dispatched(0), Completed(0), Dispatched(1), Completed(1)];
        assert_eq!(run([trim(8, 8), write(15, 4)], together), both(15, 1));
        assert_eq!(run([write(15, 4), trim(8, 8)], together), both(15, 1), "a TRIM of what is being written");
        assert_eq!(run([trim(8, 8), write(15, 4)], in_turn), []);
        assert_eq!(run([trim(8, 8), write(16, 4)], together), [], "next to it");
        assert_eq!(run([write(8, 8), write(15, 4)], together), []);
        assert_eq!(run([trim(8, 8), OpKind::Flush], together), []);
        let ops = [write(8, 8), trim(8, 8)].map(|kind| Op { kind, dispatched: 0, completed: 0 });
        let mut record = Record::default();
        (record.ops, record.events) = (ops.into(), together.into());
        assert_eq!([1, 2].map(|first| overlaps(&record, first).len()), [1, 0], "one is counted once");
    }
}
