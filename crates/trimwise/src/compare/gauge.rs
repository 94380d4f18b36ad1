//! Figures of the device and of the pending set while a workload runs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::held::HeldGauge;
use super::ledger::CellLedger;
use super::result::{BlockMap, BlockShares, DeviceFigures, TimelineSample};
use crate::fs::Ext4;
use crate::policy::Ledger;
use crate::ssd::{Ssd, SsdStats, Wear};
use crate::units::{SimDuration, SimTime};

const TIMELINE_SAMPLES_MAX: usize = 200;
/// Maximum number of groups of superblocks in a cell's map. More could not be seen on a page.
const BLOCK_GROUPS_MAX: usize = 128;

/// Reads the device and the pending set when a workload begins and when it has ended.
pub struct Gauge {
    sampler: Rc<RefCell<Sampler>>,
    ledger: Ledger,
    blocks: BlockShares,
    held: Option<HeldGauge>,
}

impl Gauge {
    pub fn start(fs: &Ext4) -> Self {
        let sim = fs.queue().sim().clone();
        let begin = sim.now();
        // Garbage collection during the rest before the workload does not count.
        let before = fs.queue().with_ssd_mut(|ssd| {
            ssd.catch_up(begin);
            *ssd.stats()
        });
        fs.restart_stale();
        let sampler = Rc::new(RefCell::new(Sampler {
            samples: Vec::new(),
            step: SimDuration::from_secs(1),
            begin,
            before,
            dropped_stale_units: 0,
            running: true,
            fs: fs.clone(),
        }));
        let shared = Rc::clone(&sampler);
        sim.clone().spawn(async move {
            while shared.borrow().running {
                shared.borrow_mut().sample(sim.now());
                let step = shared.borrow().step;
                sim.sleep(step).await;
            }
        });
        Self { sampler, ledger: fs.ledger(), blocks: block_shares(fs), held: HeldGauge::start(fs) }
    }

    pub fn has_freed(&self, fs: &Ext4) -> bool {
        fs.ledger().since(&self.ledger).freed > 0
    }

    pub fn finish(self) -> (DeviceFigures, CellLedger) {
        let sampler = &mut *self.sampler.borrow_mut();
        let fs = sampler.fs.clone();
        let now = fs.queue().sim().now();
        sampler.sample(now);
        sampler.running = false;
        let stats = fs.queue().with_ssd(|ssd| *ssd.stats()).since(&sampler.before);
        let wear = fs.queue().with_ssd(Ssd::wear);
        let (max, mean) = fs.stale_max_and_mean();
        let stale = Stale { max: Some(max), mean: Some(mean), end: Some(fs.stale_units()) };
        let superblocks = fs.queue().with_ssd(|ssd| ssd.superblocks().len() as u64);
        let blocks = (superblocks > 0).then(|| BlockMap {
            superblocks,
            before: self.blocks,
            after: block_shares(&fs),
        });
        let figures = device_figures(&stats, wear, stale, std::mem::take(&mut sampler.samples));
        let thin = self.held.as_ref().and_then(HeldGauge::finish);
        let figures = DeviceFigures { blocks, thin, ..figures };
        let units = fs.ledger().since(&self.ledger);
        (figures, CellLedger::new(units, stats.busy_ns.trim, now.since(sampler.begin)))
    }
}

fn block_shares(fs: &Ext4) -> BlockShares {
    let stale = fs.stale_units_by_superblock();
    let (states, size) = fs.queue().with_ssd(|ssd| (ssd.superblocks(), ssd.superblock_units()));
    let groups = states.len().min(BLOCK_GROUPS_MAX);
    let mut shares = BlockShares::default();
    for group in 0..groups {
        let members = group * states.len() / groups..(group + 1) * states.len() / groups;
        let units = size * members.len() as u64;
        let sum = |of: &dyn Fn(usize) -> u32| members.clone().map(|i| u64::from(of(i))).sum::<u64>();
        let stale = sum(&|i| stale[i]);
        let (valid, written) = (sum(&|i| states[i].valid_units), sum(&|i| states[i].written_units));
        // At most a thousand, which fits in a `u16`.
        let permille = |part: u64| (part.min(units) * 1000 / units.max(1)) as u16;
        shares.in_use_permille.push(permille(valid.saturating_sub(stale)));
        shares.stale_permille.push(permille(stale));
        shares.invalid_permille.push(permille(written.saturating_sub(valid)));
    }
    shares
}

/// Units that are free in the file system and hold data in the device, as far as the host can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stale {
    pub max: Option<u64>,
    pub mean: Option<f64>,
    pub end: Option<u64>,
}

/// Gathers the figures of a device. Stale units and the timeline come from the host.
pub fn device_figures(
    stats: &SsdStats,
    wear: Wear,
    stale: Stale,
    timeline: Vec<TimelineSample>,
) -> DeviceFigures {
    let busy = &stats.busy_ns;
    DeviceFigures {
        host_units_written: stats.host_units_written,
        nand_units_written: stats.nand_units.total(),
        write_amplification: if stats.host_units_written == 0 { 1.0 } else { stats.write_amplification() },
        trim_commands: stats.trim.commands,
        trim_ranges: stats.trim.ranges,
        trimmed_units: stats.trim.units_invalidated,
        erases: stats.block_erases,
        erase_count_min: wear.min,
        erase_count_mean: wear.mean,
        erase_count_max: wear.max,
        gc_units_copied: stats.nand_units.gc,
        folded_units: stats.nand_units.folding,
        map_units_written: stats.nand_units.map,
        map_lookups_missed: stats.map_cache.misses,
        stale_units_max: stale.max,
        stale_units_mean: stale.mean,
        stale_units_end: stale.end,
        busy_ns: BTreeMap::from([
            ("link".into(), busy.link),
            ("controller".into(), busy.controller),
            ("write_path".into(), busy.write_path),
            ("read_host".into(), busy.read),
            ("read_gc".into(), busy.read_gc),
            ("read_map".into(), busy.read_map),
            ("program_host".into(), busy.program_host),
            ("program_gc".into(), busy.program_gc),
            ("erase".into(), busy.erase),
            ("trim".into(), busy.trim),
            ("flush".into(), busy.flush),
        ]),
        timeline,
        blocks: None,
        thin: None,
    }
}

/// Samples stale units and writes while a workload runs, every second at first. Whenever there are too many samples,
/// drops every other one and doubles the step.
struct Sampler {
    fs: Ext4,
    begin: SimTime,
    before: SsdStats,
    samples: Vec<TimelineSample>,
    step: SimDuration,
    /// Stale units of a dropped sample, to be merged into the next.
    dropped_stale_units: u64,
    running: bool,
}

impl Sampler {
    fn sample(&mut self, now: SimTime) {
        let stats = self.fs.queue().with_ssd(|ssd| *ssd.stats()).since(&self.before);
        self.samples.push(TimelineSample {
            at_ns: now.since(self.begin).as_nanos(),
            stale_units: self.fs.take_recent_stale_max().max(std::mem::take(&mut self.dropped_stale_units)),
            host_units_written: stats.host_units_written,
            nand_units_written: stats.nand_units.total(),
            gc_units_copied: Some(stats.nand_units.gc),
            trim_busy_ns: Some(stats.busy_ns.trim),
        });
        if self.samples.len() >= TIMELINE_SAMPLES_MAX {
            let mut kept = Vec::with_capacity(TIMELINE_SAMPLES_MAX);
            for (i, mut sample) in std::mem::take(&mut self.samples).into_iter().enumerate() {
                if i % 2 == 0 {
                    sample.stale_units =
                        sample.stale_units.max(std::mem::take(&mut self.dropped_stale_units));
                    kept.push(sample);
                } else {
                    self.dropped_stale_units = sample.stale_units;
                }
            }
            self.samples = kept;
            self.step = self.step * 2;
        }
    }
}
