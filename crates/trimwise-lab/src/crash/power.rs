//! Contents of a device after a power cut.
//!
//! Commands that completed before the last completed flush was sent to the device are durable. Each unit of a write or
//! TRIM sent since, completed or not, has survived or not, in any subset: a request may be torn between two units. If
//! two commands on one unit survive, the later one counts; if both were in the device at the same time, either may.

use std::collections::BTreeSet;
use std::fmt;

use rand_core::Rng;
use trimwise::fs::witness::{ContentId, Event, NEVER, OpKind, Record, TRIMMED};

use super::below;

/// Selects which of the commands since the last flush survived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    All,
    Nothing,
    OnlyTrims,
    OnlyWrites,
    /// The first commands, in the order in which they were sent to the device.
    Prefix,
    /// Each unit independently, with this probability in percent.
    Units(u8),
    /// Each command as a whole, with this probability in percent.
    Commands(u8),
}

impl Survival {
    pub const ALL: [Self; 10] = [
        Self::Units(50),
        Self::OnlyTrims,
        Self::Commands(50),
        Self::OnlyWrites,
        Self::Units(90),
        Self::Nothing,
        Self::Units(10),
        Self::All,
        Self::Commands(80),
        Self::Prefix,
    ];
}

impl fmt::Display for Survival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("everything since the last flush survived"),
            Self::Nothing => f.write_str("nothing since the last flush survived"),
            Self::OnlyTrims => f.write_str("TRIMs since the last flush survived, writes did not"),
            Self::OnlyWrites => f.write_str("writes since the last flush survived, TRIMs did not"),
            Self::Prefix => f.write_str("the first commands since the last flush survived"),
            Self::Units(percent) => write!(f, "each block since the last flush survived with {percent} %"),
            Self::Commands(percent) => {
                write!(f, "each command since the last flush survived with {percent} %")
            }
        }
    }
}

/// State of the device, event by event; between [`Platter::cut`] and [`Platter::restore`] its state after the cut.
pub(crate) struct Platter<'a> {
    record: &'a Record,
    /// Contents of each unit, durable or after a cut.
    held: Vec<ContentId>,
    /// The command that last set each unit (its index plus one; 0 for none).
    by: Vec<u32>,
    undo: Vec<(usize, ContentId, u32)>,
    /// Writes and TRIMs that are not durable, in the order in which they were sent to the device.
    window: BTreeSet<usize>,
    at: usize,
}

impl<'a> Platter<'a> {
    pub fn new(record: &'a Record, units: u64) -> Self {
        let mut held = vec![NEVER; units as usize];
        for &(block, content) in &record.initial {
            held[block as usize] = content;
        }
        let by = vec![0; held.len()];
        Self { record, held, by, undo: Vec::new(), window: BTreeSet::new(), at: 0 }
    }

    pub fn advance(&mut self, event: Event) {
        self.at += 1;
        let ops = &self.record.ops;
        match event {
            Event::Dispatched(op) if !matches!(ops[op].kind, OpKind::Flush) => {
                self.window.insert(op);
            }
            Event::Completed(op) if matches!(ops[op].kind, OpKind::Flush) => {
                let flushed = ops[op].dispatched;
                let covered: Vec<usize> =
                    self.window.iter().copied().filter(|&op| ops[op].completed < flushed).collect();
                for op in covered {
                    self.window.remove(&op);
                    // Same choice for every cut of the run.
                    self.apply(op, |_| true, |_| op.is_multiple_of(2));
                }
                self.undo.clear();
            }
            _ => {}
        }
    }

    /// Cuts the power; returns the number of commands that the device had not yet made durable.
    pub fn cut(&mut self, survival: Survival, rng: &mut impl Rng) -> usize {
        let window: Vec<usize> = self.window.iter().copied().collect();
        let prefix = below(rng, window.len() as u64 + 1) as usize;
        for (i, &op) in window.iter().enumerate() {
            let is_trim = matches!(self.record.ops[op].kind, OpKind::Trim(_));
            let percent = match survival {
                Survival::All => 100,
                Survival::Nothing => 0,
                Survival::OnlyTrims => u64::from(is_trim) * 100,
                Survival::OnlyWrites => u64::from(!is_trim) * 100,
                Survival::Prefix => u64::from(i < prefix) * 100,
                Survival::Units(percent) => u64::from(percent),
                Survival::Commands(percent) => u64::from(below(rng, 100) < u64::from(percent)) * 100,
            };
            self.survive(op, percent, rng);
        }
        window.len()
    }

    fn survive(&mut self, op: usize, percent: u64, rng: &mut impl Rng) {
        if percent == 0 {
            return;
        }
        let rng = std::cell::RefCell::new(rng);
        let survives = |_: usize| percent >= 100 || below(&mut **rng.borrow_mut(), 100) < percent;
        let is_last = |_: usize| below(&mut **rng.borrow_mut(), 2) == 0;
        self.apply(op, survives, is_last);
    }

    /// Applies those units of a command that satisfy `survives`; `wins` decides against a command that was in the
    /// device at the same time.
    fn apply(&mut self, op: usize, survives: impl Fn(usize) -> bool, wins: impl Fn(usize) -> bool) {
        let record = self.record;
        let this = &record.ops[op];
        let mut put = |unit: usize, content: ContentId| {
            if unit >= self.held.len() || !survives(unit) {
                return;
            }
            let before = self.by[unit];
            if before > 0 && record.ops[before as usize - 1].completed > this.dispatched && !wins(unit) {
                return;
            }
            self.undo.push((unit, self.held[unit], before));
            self.held[unit] = content;
            self.by[unit] = op as u32 + 1;
        };
        match &this.kind {
            OpKind::Write { start, contents } => {
                for (unit, &content) in (start.0 as usize..).zip(contents) {
                    put(unit, content);
                }
            }
            OpKind::Trim(ranges) => {
                for unit in ranges.iter().flat_map(|range| range.iter()) {
                    put(unit.0 as usize, TRIMMED);
                }
            }
            OpKind::Flush => {}
        }
    }

    pub fn read(&self, unit: u64) -> ContentId {
        self.held.get(unit as usize).copied().unwrap_or(NEVER)
    }

    pub fn units(&self) -> &[ContentId] {
        &self.held
    }

    /// Writes a unit after the cut, as a recovery does.
    pub fn replay(&mut self, unit: u64, content: ContentId) {
        if let Some(held) = self.held.get_mut(unit as usize) {
            self.undo.push((unit as usize, *held, self.by[unit as usize]));
            *held = content;
        }
    }

    pub fn restore(&mut self) {
        while let Some((unit, content, by)) = self.undo.pop() {
            self.held[unit] = content;
            self.by[unit] = by;
        }
    }

    pub fn history(&self, unit: u64) -> Vec<String> {
        let name = |op: &trimwise::fs::witness::Op| {
            let what = match &op.kind {
                OpKind::Write { start, contents } => {
                    let content = contents.get((unit - start.0) as usize);
                    let content = content.map(|&c| self.record.describe(c));
                    format!("written: {}", content.unwrap_or_default())
                }
                _ => "trimmed".to_owned(),
            };
            let state = if op.completed < self.at {
                format!("acknowledged at event {}", op.completed)
            } else {
                "not acknowledged".to_owned()
            };
            format!("{what}, given to the device at event {}, {state}", op.dispatched)
        };
        let touching = self.record.ops.iter().enumerate().filter(|(_, op)| {
            op.dispatched < self.at && op.ranges().iter().any(|r| r.start.0 <= unit && unit < r.end().0)
        });
        let mut lines: Vec<String> = touching
            .map(|(i, op)| {
                let durable = if self.window.contains(&i) { "not flushed" } else { "flushed" };
                format!("{}, {durable}", name(op))
            })
            .collect();
        lines.drain(..lines.len().saturating_sub(6));
        lines
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use trimwise::fs::witness::Op;
    use trimwise::units::{Lpn, UnitRange};

    const A: ContentId = 10;
    const B: ContentId = 11;

    fn write(content: ContentId) -> OpKind {
        OpKind::Write { start: Lpn(3), contents: vec![content; 4] }
    }

    fn trim() -> OpKind {
        OpKind::Trim(vec![UnitRange::new(Lpn(3), 4)])
    }

    /// A record in which each command is sent to the device (`+`) and acknowledged (`-`) as the script says.
    fn record(kinds: Vec<OpKind>, script: &[(char, usize)]) -> Record {
        let mut record = Record::default();
        record.ops.extend(kinds.into_iter().map(|kind| Op { kind, dispatched: 0, completed: usize::MAX }));
        for (at, &(sign, op)) in script.iter().enumerate() {
            if sign == '+' {
                record.ops[op].dispatched = at;
                record.events.push(Event::Dispatched(op));
            } else {
                record.ops[op].completed = at;
                record.events.push(Event::Completed(op));
            }
        }
        record
    }

    /// Returns what the four units can hold after a cut at the end, over many draws.
    fn outcomes(record: &Record, survival: Survival) -> BTreeSet<[ContentId; 4]> {
        let mut platter = Platter::new(record, 10);
        record.events.iter().for_each(|&event| platter.advance(event));
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut draw = || {
            platter.cut(survival, &mut rng);
            let held = [3, 4, 5, 6].map(|unit| platter.read(unit));
            platter.restore();
            held
        };
        (0..500).map(|_| draw()).collect()
    }

    #[test]
    fn a_flush_covers_what_was_acknowledged_before_it_began() {
        let kinds = || vec![write(A), OpKind::Flush];
        let covered = record(kinds(), &[('+', 0), ('-', 0), ('+', 1), ('-', 1)]);
        assert_eq!(outcomes(&covered, Survival::Nothing), BTreeSet::from([[A; 4]]));
        for script in [
            [('+', 0), ('+', 1), ('-', 0), ('-', 1)], // acknowledged too late
            [('+', 1), ('+', 0), ('-', 1), ('-', 0)],
        ] {
            let open = record(kinds(), &script);
            assert_eq!(outcomes(&open, Survival::Nothing), BTreeSet::from([[NEVER; 4]]));
            assert_eq!(outcomes(&open, Survival::All), BTreeSet::from([[A; 4]]));
        }
        let unfinished = record(kinds(), &[('+', 0), ('-', 0), ('+', 1)]);
        assert_eq!(outcomes(&unfinished, Survival::Nothing), BTreeSet::from([[NEVER; 4]]));
    }

    #[test]
    fn requests_are_torn_between_units_and_commands_are_not() {
        let open = record(vec![write(A)], &[('+', 0)]);
        assert_eq!(outcomes(&open, Survival::Units(50)).len(), 16);
        assert_eq!(outcomes(&open, Survival::Commands(50)), BTreeSet::from([[A; 4], [NEVER; 4]]));
    }

    #[test]
    fn the_later_command_holds_and_of_two_together_either() {
        let one_after_the_other = record(vec![trim(), write(B)], &[('+', 0), ('-', 0), ('+', 1), ('-', 1)]);
        assert_eq!(outcomes(&one_after_the_other, Survival::All), BTreeSet::from([[B; 4]]));
        assert_eq!(outcomes(&one_after_the_other, Survival::OnlyTrims), BTreeSet::from([[TRIMMED; 4]]));
        let together = record(vec![write(A), trim()], &[('+', 0), ('+', 1), ('-', 0), ('-', 1)]);
        let either = outcomes(&together, Survival::All);
        assert!(either.contains(&[A; 4]) && either.contains(&[TRIMMED; 4]), "{either:?}");
    }
}
