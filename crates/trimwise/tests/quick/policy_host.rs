//! A file system of one's own under every policy: the smallest complete host, and a device that forgets what it is told
//! to forget.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use trimwise::policy::{
    Decision, DiscardGeneration, Governor, HostTraits, HostedPolicy, InCommit, PolicyEvent, PolicyHost,
    PolicySpec, Shape, TrimCommand, View,
};
use trimwise::units::{Lpn, SimDuration, SimTime, UnitRange};

const UNITS: u64 = 4_096;
const TRIM_TIME: SimDuration = SimDuration::from_millis(2);

/// What the device has not done yet.
enum Work {
    Command(TrimCommand),
    FreeSpace(UnitRange, u64),
}

/// Extents in a row of blocks, and no metadata at all.
struct Flat {
    policy: HostedPolicy,
    now: Cell<SimTime>,
    allocatable: RefCell<Vec<bool>>,
    /// The file whose data each block holds; nothing after a TRIM.
    device: RefCell<Vec<Option<u64>>>,
    work: RefCell<VecDeque<Work>>,
}

fn blocks(range: UnitRange) -> std::ops::Range<usize> {
    range.start.0 as usize..range.end().0 as usize
}

impl PolicyHost for Flat {
    fn view(&self) -> View {
        let free = self.allocatable.borrow().iter().filter(|free| **free).count() as u64;
        let (now, quiet) = (self.now.get(), SimDuration::from_secs(10));
        View { now, used_units: UNITS - free, total_units: UNITS, quiet, ..View::default() }
    }

    fn withhold(&self, range: UnitRange) {
        let blocks = &mut self.allocatable.borrow_mut()[blocks(range)];
        assert!(blocks.iter().all(|free| *free), "{range:?} is not free");
        blocks.fill(false);
    }

    fn release(&self, range: UnitRange, _is_told: bool) {
        self.allocatable.borrow_mut()[blocks(range)].fill(true);
    }

    fn send(&self, command: TrimCommand) {
        self.work.borrow_mut().push_back(Work::Command(command));
    }

    fn start_trim_free(&self, range: UnitRange, units_min: u64) {
        self.work.borrow_mut().push_back(Work::FreeSpace(range, units_min));
    }

    fn reveal(&self, range: UnitRange) {
        self.device.borrow_mut()[blocks(range)].fill(None);
    }

    fn timer_changed(&self) {}
}

impl Flat {
    fn mount(governor: Box<dyn Governor>, kernel: DiscardGeneration) -> Self {
        let flat = Self {
            policy: HostedPolicy::new(governor, kernel),
            now: Cell::default(),
            allocatable: RefCell::new(vec![true; UNITS as usize]),
            device: RefCell::new(vec![None; UNITS as usize]),
            work: RefCell::default(),
        };
        let (trim_depth, ranges_max, range_units_max) = (8, 64, UNITS);
        let group_units = UNITS / 4;
        let total_units = UNITS;
        let traits = HostTraits { kernel, trim_depth, ranges_max, range_units_max, total_units, group_units };
        flat.policy.tell(&flat, &PolicyEvent::Hosted(traits));
        flat
    }

    /// Writes a file into one extent, preferably one that waits for its TRIM; `None` if there is none.
    fn write(&self, file: u64, units: u64) -> Option<UnitRange> {
        let free = |range: &UnitRange| self.allocatable.borrow()[blocks(*range)].iter().all(|free| *free);
        let waiting = self.policy.fit(Lpn(0), units).filter(free);
        let anywhere = || (0..=UNITS - units).map(|start| UnitRange::new(Lpn(start), units)).find(free);
        let range = waiting.or_else(anywhere)?;
        self.policy.withdraw(range);
        self.allocatable.borrow_mut()[blocks(range)].fill(false);
        self.device.borrow_mut()[blocks(range)].fill(Some(file));
        Some(range)
    }

    /// Makes the removal of these extents durable.
    fn commit(&self, freed: &[UnitRange]) {
        if self.policy.committed(self, freed) == InCommit::Nothing {
            return;
        }
        while let Some(token) = self.policy.take(self, Lpn(0), Shape::NEXT) {
            self.device.borrow_mut()[blocks(token.range())].fill(None);
            self.policy.settle(self, token);
        }
    }

    /// Lets time pass, until the device has done something or the governor is due.
    fn pass(&self, time: SimDuration) {
        self.now.set(self.now.get() + time);
        if self.policy.wake_at().is_some_and(|at| at <= self.now.get()) {
            self.policy.wake(self);
        }
        let work = self.work.borrow_mut().pop_front();
        match work {
            None => {}
            Some(Work::Command(command)) => {
                let ranges = command.ranges();
                ranges.iter().for_each(|range| self.device.borrow_mut()[blocks(*range)].fill(None));
                self.policy.acknowledged(self, command, ranges.len() as u32, TRIM_TIME);
            }
            Some(Work::FreeSpace(range, units_min)) => {
                let allocatable = self.allocatable.borrow().clone();
                let mut units = 0;
                for run in allocatable[blocks(range)].chunk_by(|a, b| a == b) {
                    let start = range.start.offset(units);
                    units += run.len() as u64;
                    if run[0] && run.len() as u64 >= units_min {
                        let run = UnitRange::new(start, run.len() as u64);
                        self.device.borrow_mut()[blocks(run)].fill(None);
                        self.policy.issued_in_batch(run);
                    }
                }
                self.policy.tell(self, &PolicyEvent::Trimmed { units });
            }
        }
    }
}

/// Files come and go under the policy. Returns the units of all files that were removed, and where they went.
fn run(policy: PolicySpec, kernel: DiscardGeneration) -> trimwise::policy::Ledger {
    let flat = Flat::mount(policy.governor(), kernel);
    let mut files: VecDeque<(u64, UnitRange)> = VecDeque::new();
    let mut removed = Vec::new();
    let mut freed = 0;
    for file in 0..1_500_u64 {
        let units = 1 + file.wrapping_mul(0x9e37_79b9) % 61;
        if let Some(range) = flat.write(file, units) {
            files.push_back((file, range));
        }
        if files.len() > 60 + file as usize % 7 {
            removed.extend(files.pop_front().map(|(_, range)| range));
            removed.extend(files.remove(file as usize % 40).map(|(_, range)| range));
        }
        if file % 9 == 0 {
            freed += removed.iter().map(|range| range.units).sum::<u64>();
            flat.commit(&std::mem::take(&mut removed));
        }
        flat.pass(SimDuration::from_millis(file % 5 * 100));
        for (file, range) in files.iter().filter(|_| file % 8 == 0) {
            let data = &flat.device.borrow()[blocks(*range)];
            assert!(data.iter().all(|unit| *unit == Some(*file)), "{policy} lost file {file} at {range:?}");
        }
    }
    let ledger = flat.policy.ledger();
    assert_eq!(ledger.freed, freed);
    let went = ledger.issued + ledger.reused + ledger.dropped + ledger.pending + ledger.in_tokens;
    assert_eq!(went, freed, "{policy}: {ledger:?}");
    ledger
}

#[test]
fn no_policy_loses_data_on_a_host_of_ones_own() {
    for policy in PolicySpec::examples() {
        for kernel in [DiscardGeneration::CommitSerial, DiscardGeneration::WorkerRunningOn] {
            run(policy, kernel);
        }
    }
}

#[test]
fn lazy_with_reuse_trims_part_of_what_was_freed_and_reuses_part() {
    let ledger = run("lazy+reuse".parse().unwrap(), DiscardGeneration::Worker);
    assert!(ledger.issued > 1_000 && ledger.reused > 1_000 && ledger.dropped == 0, "{ledger:?}");
}

/// Issues one command of this shape at each commit.
struct Once(Shape);

impl Governor for Once {
    fn on_event(&mut self, event: &PolicyEvent, _: &View, decisions: &mut Vec<Decision>) {
        if matches!(event, PolicyEvent::Committed { .. }) {
            decisions.push(Decision::Issue(self.0));
        }
    }
}

#[test]
fn a_command_is_cut_at_its_maximum_and_the_next_starts_behind_it_until_nothing_is_there() {
    let shape = Shape { ranges_max: 8, units_min: 6, units_max: 25, runs_on: false };
    let flat = Flat::mount(Box::new(Once(shape)), DiscardGeneration::Worker);
    // What the command that follows the commit of these extents, each of a start and units, is about.
    let command_after = |freed: &[(u64, u64)]| -> Vec<(u64, u64)> {
        let freed: Vec<UnitRange> = freed.iter().map(|&(at, units)| UnitRange::new(Lpn(at), units)).collect();
        flat.commit(&freed);
        let ranges = match flat.work.borrow().front() {
            Some(Work::Command(command)) => command.ranges(),
            _ => Vec::new(),
        };
        flat.pass(SimDuration::ZERO);
        ranges.iter().map(|range| (range.start.0, range.units)).collect()
    };
    assert_eq!(command_after(&[(400, 10)]), [(400, 10)]);
    // Nothing was left, so the next starts from the beginning.
    assert_eq!(command_after(&[(100, 10), (120, 10), (140, 40)]), [(100, 10), (120, 10), (140, 5)]);
    assert_eq!(command_after(&[(0, 10)]), [(145, 25)], "behind the last one, before what lies below it");
    assert_eq!(command_after(&[]), [(170, 10)]);
    // Nothing behind it, so the next starts from the beginning, and skips what is too short.
    assert_eq!(command_after(&[]), []);
    assert_eq!(command_after(&[(20, 5), (30, 6)]), [(0, 10), (30, 6)]);
}
