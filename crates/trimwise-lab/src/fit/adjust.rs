//! From numbers to a drive: the base's configuration with what was measured in place of what it assumed.
//!
//! Most numbers are settings as they are. Three are not, and are found by running the same probe on the model:
//! the dies, from reads at several depths; the limit of the write path or the planes, from the sustained write; and the
//! size of the cache, from what was acknowledged before the rate fell.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use trimwise::profile::SettingValue;
use trimwise::ssd::{LinkKind, SsdConfig, TrimConfig, TrimKind, TrimPlace};
use trimwise::units::UNIT_BYTES;

use super::estimate::{Estimate, Numbers, estimate};
use super::model::{self, Job};
use super::probe::{Plan, Samples};
use crate::failure::Failure;

/// A setting that was fitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Its dotted name in a profile.
    pub setting: &'static str,
    /// Its value.
    pub value: SettingValue,
    /// The 95 % interval; `None` for what is no number.
    pub interval: Option<(u64, u64)>,
    /// Measurements behind it.
    pub samples: usize,
    /// How, if it needs saying.
    pub how: &'static str,
}

/// Dies that a drive may have, in the search.
const DIES: [u32; 11] = [1, 2, 4, 8, 12, 16, 24, 32, 64, 128, 256];
/// Numbers of dies whose error is larger than the best one's by less than this, in logarithms a depth, are as good.
const AS_GOOD: f64 = 0.02;
/// Rates that differ by less than this share are the same.
const SAME: f64 = 0.02;

/// What is being fitted.
pub(super) struct Adjusting<'a> {
    pub config: SsdConfig,
    pub fits: Vec<Fit>,
    pub notes: Vec<String>,
    samples: &'a Samples,
    numbers: Numbers,
    drawn: Vec<Numbers>,
    plan: Plan,
    stop: &'a Arc<AtomicBool>,
}

impl<'a> Adjusting<'a> {
    pub fn new(base: &SsdConfig, samples: &'a Samples, plan: Plan, stop: &'a Arc<AtomicBool>) -> Self {
        Self {
            config: base.clone(),
            fits: Vec::new(),
            notes: Vec::new(),
            samples,
            numbers: samples.numbers(),
            drawn: samples.bootstrap(plan.seed),
            plan,
            stop,
        }
    }

    /// Fits all that the measurements tell.
    pub fn all(&mut self, has_trim: bool) -> Result<(), Failure> {
        self.singles();
        self.dies()?;
        if !self.plan.read_only {
            self.program();
            self.sustained()?;
            self.cache()?;
            self.trim(has_trim);
        }
        Ok(())
    }

    fn estimate(&self, of: impl Fn(&Numbers) -> Option<f64>, resolution: f64) -> Option<Estimate> {
        estimate(of(&self.numbers), &self.drawn, of, resolution)
    }

    fn note(&mut self, setting: &'static str, found: Estimate, samples: usize, how: &'static str) -> u64 {
        let whole = |value: f64| value.round().max(0.0) as u64;
        let value = whole(found.value);
        let interval = Some((found.low.floor().max(0.0) as u64, found.high.ceil() as u64));
        self.fits.push(Fit { setting, value: SettingValue::Whole(value), interval, samples, how });
        value
    }

    /// A time.
    fn time(
        &mut self,
        setting: &'static str,
        samples: usize,
        of: impl Fn(&Numbers) -> Option<f64>,
    ) -> Option<u64> {
        let found = self.estimate(of, 2.0)?;
        Some(self.note(setting, found, samples, ""))
    }

    /// A rate, from the time of a unit.
    fn rate(
        &mut self,
        setting: &'static str,
        samples: usize,
        of: impl Fn(&Numbers) -> Option<f64>,
    ) -> Option<u64> {
        let found = self.estimate(of, 1.0)?;
        let rate = |unit_ns: f64| (UNIT_BYTES as f64 * 1e9 / unit_ns.max(0.01)).min(1e12);
        let (value, low, high) = (rate(found.value), rate(found.high), rate(found.low));
        Some(self.note(setting, Estimate { value, low, high }, samples, ""))
    }

    /// What closed forms give.
    fn singles(&mut self) {
        let count = |sizes: &[super::probe::Sized]| sizes.iter().map(|s| s.latencies_ns.len()).sum::<usize>();
        let (reads, writes) = (count(&self.samples.reads), count(&self.samples.writes));
        let bursts: usize = self.samples.bursts.iter().map(|b| b.spacing_ns.len()).sum();
        if let Some(rate) = self.rate("link.bytes_per_s", writes, |n| n.link_unit) {
            self.config.link.bytes_per_s = rate;
        }
        if let Some(ns) = self.time("link.overhead_per_command_ns", writes + bursts, |n| n.link_overhead) {
            self.config.link.overhead_per_command_ns = ns;
        }
        if let Some(ns) = self.time("controller.write_overhead_ns", writes + bursts, |n| n.write_overhead) {
            self.config.controller.write_overhead_ns = ns;
        }
        let hits = self.samples.hits_ns.len();
        if let Some(ns) = self.time("controller.read_overhead_ns", hits, |n| n.read_overhead) {
            self.config.controller.read_overhead_ns = ns;
        }
        if let Some(rate) = self.rate("nand.bus_bytes_per_s", reads, |n| n.bus_unit) {
            self.config.nand.bus_bytes_per_s = rate;
        }
        let has_slc = self.config.slc.is_some();
        let setting = if has_slc { "slc.t_read_ns" } else { "nand.t_read_ns" };
        if self.numbers.read.is_some() {
            if let Some(ns) = self.time(setting, reads, |n| n.read) {
                *self.t_read() = ns;
            }
        } else if let Some(found) = self.read_alone() {
            let ns = self.note(setting, found, reads, "the whole latency less the base's overheads; ");
            *self.t_read() = ns;
        }
        if let Some(ns) = self.time("cache.flush_ns", self.samples.flushes_ns.len(), |n| n.flush) {
            self.config.cache.flush_ns = ns;
        }
        if let Some(share) = self.numbers.stream {
            let ahead = &mut self.config.controller.read_ahead_bytes;
            let found = match share < 0.6 {
                true => (*ahead).max(256 << 10),
                false => 0,
            };
            if (*ahead == 0) != (found == 0) {
                *ahead = found;
                self.fits.push(Fit {
                    setting: "controller.read_ahead_bytes",
                    value: SettingValue::Whole(found),
                    interval: None,
                    samples: self.samples.stream_ns.len(),
                    how: "whether there is any, from sequential reads one at a time; ",
                });
            }
        }
    }

    fn t_read(&mut self) -> &mut u64 {
        match &mut self.config.slc {
            Some(slc) => &mut slc.t_read_ns,
            None => &mut self.config.nand.t_read_ns,
        }
    }

    /// tR where nothing told the controller's part: with `--read-only`, or where the cache serves no reads.
    fn read_alone(&self) -> Option<Estimate> {
        let (config, one) = (&self.config, self.samples.reads.first()?);
        let fixed = config.controller.read_overhead_ns + config.link.overhead_per_command_ns;
        let units = [config.link.bytes_per_s, config.nand.bus_bytes_per_s].map(|r| 4096e9 / r as f64);
        let rest = fixed as f64 + units[0] + units[1];
        let sample = trimwise::compare::statistics::Sample::new(one.latencies_ns.clone(), false)?;
        let (value, interval) = (sample.median() - rest, sample.interval());
        let low = interval.low - rest;
        (value > 0.05 * rest).then_some(Estimate { value, low, high: interval.high - rest })
    }

    fn stripe_units(&self) -> u64 {
        let g = &self.config.geometry;
        u64::from(g.superblock_planes.min(g.planes_per_die)) * u64::from(g.page_bytes) / UNIT_BYTES
    }

    /// tPROG, from flushes; and whether they drain the cache at all.
    fn program(&mut self) {
        let stripe_ns = 4096e9 / self.config.nand.bus_bytes_per_s as f64 * self.stripe_units() as f64;
        let count = self.samples.flushes_after_ns.len();
        if count == 0 {
            return;
        }
        let drains = self.numbers.program.is_some();
        if self.config.cache.volatile != drains {
            self.config.cache.volatile = drains;
            self.fits.push(Fit {
                setting: "cache.volatile",
                value: SettingValue::Flag(drains),
                interval: None,
                samples: count,
                how: "whether a flush after a write takes longer than one without; ",
            });
        }
        let has_slc = self.config.slc.is_some();
        let setting = if has_slc { "slc.t_prog_ns" } else { "nand.t_prog_ns" };
        let of = |n: &Numbers| n.program.map(|program| program - stripe_ns).filter(|&t| t > 1.0);
        if let Some(found) = self.estimate(of, 2.0 + self.stripe_units() as f64) {
            let ns = self.note(setting, found, count, "");
            *self.t_prog() = ns;
        }
    }

    fn t_prog(&mut self) -> &mut u64 {
        match &mut self.config.slc {
            Some(slc) => &mut slc.t_prog_ns,
            None => &mut self.config.nand.t_prog_ns,
        }
    }

    /// The parallelism.
    fn dies(&mut self) -> Result<(), Failure> {
        let measured = self.numbers.random_read;
        let base = self.config.geometry.channels * self.config.geometry.dies_per_channel;
        let mut errors: Vec<(u32, f64)> = Vec::new();
        let mut all = DIES.to_vec();
        if !all.contains(&base) {
            all.push(base);
            all.sort_unstable();
        }
        for dies in all {
            let Some(config) = with_dies(&self.config, dies) else { continue };
            let Ok(outcome) = model::run(&config, self.plan, Job::RandomReads, self.stop) else {
                continue;
            };
            let predicted = outcome.samples.numbers().random_read;
            let pairs: Vec<f64> = measured
                .iter()
                .zip(predicted)
                .filter_map(|(m, p)| Some((p? / (*m)?).ln().abs()))
                .collect();
            if !pairs.is_empty() {
                errors.push((dies, pairs.iter().sum::<f64>() / pairs.len() as f64));
            }
        }
        let Some(&(best, least)) = errors.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else { return Ok(()) };
        let good = || errors.iter().filter(|(_, error)| *error <= least + AS_GOOD).map(|(dies, _)| *dies);
        let (low, high) = (good().min().unwrap_or(best), good().max().unwrap_or(best));
        let chosen = if good().any(|dies| dies == base) { base } else { best };
        if let Some(config) = with_dies(&self.config, chosen).filter(|_| chosen != base) {
            self.config = config;
        }
        if high < DIES[DIES.len() - 1] || chosen != base {
            let g = &self.config.geometry;
            let channels = g.channels;
            let per_channel = |dies: u32| u64::from(dies.div_ceil(channels));
            let interval = Some((per_channel(low).min(u64::from(low) / u64::from(channels)), per_channel(high)));
            let samples = self.samples.random_reads.iter().map(|load| load.spacing_ns.len()).sum();
            self.fits.push(Fit {
                setting: "geometry.dies_per_channel",
                value: SettingValue::Whole(g.dies_per_channel.into()),
                interval,
                samples,
                how: "reads at depths 4 to 128 on models with 1 to 256 dies; ",
            });
        }
        Ok(())
    }

    /// The rate of the model's sustained write.
    fn model_sustained(&self) -> Result<Numbers, Failure> {
        Ok(model::run(&self.config, self.plan, Job::Sustained, self.stop)?.samples.numbers())
    }

    /// What limits the sustained write.
    fn sustained(&mut self) -> Result<(), Failure> {
        let Some(rate) = self.estimate(|n| n.sustained, 0.0) else { return Ok(()) };
        self.config.controller.write_bytes_per_s = None;
        let predicted = |n: Numbers| n.sustained.unwrap_or(0.0);
        let mut reached = predicted(self.model_sustained()?);
        // The flash of the base may be too slow: more of its planes, or shorter programs.
        let mut wider = false;
        while reached < rate.value * (1.0 - SAME) && self.config.geometry.planes_per_die < 16 {
            let mut config = self.config.clone();
            config.geometry.planes_per_die *= 2;
            config.geometry.superblock_planes *= 2;
            config.geometry.blocks_per_plane = config.geometry.blocks_per_plane.map(|n| n.div_ceil(2));
            if config.validate().is_err() {
                break;
            }
            let before = std::mem::replace(&mut self.config, config);
            let now = predicted(self.model_sustained()?);
            if now < reached * 1.05 {
                self.config = before;
                break;
            }
            (reached, wider) = (now, true);
        }
        if wider {
            let planes = self.config.geometry.planes_per_die;
            self.fits.push(Fit {
                setting: "geometry.planes_per_die",
                value: SettingValue::Whole(planes.into()),
                interval: None,
                samples: self.samples.sustained_ns.len(),
                how: "the fewest, doubling the base's, that reach the sustained write; ",
            });
        }
        if reached <= rate.value * (1.0 + SAME) {
            return Ok(());
        }
        let mut limit = rate.value;
        for _ in 0..3 {
            self.config.controller.write_bytes_per_s = Some(limit.round() as u64);
            let now = predicted(self.model_sustained()?);
            if now <= 0.0 || (now / rate.value - 1.0).abs() < 0.001 {
                break;
            }
            limit *= rate.value / now;
        }
        let by = limit / rate.value;
        let found = Estimate { value: limit, low: rate.low * by * 0.998, high: rate.high * by * 1.002 };
        let samples = self.samples.sustained_ns.len();
        let how = "the sustained write, below what the flash of the base would take; ";
        let value = self.note("controller.write_bytes_per_s", found, samples, how);
        self.config.controller.write_bytes_per_s = Some(value);
        Ok(())
    }

    /// The size of the write cache.
    fn cache(&mut self) -> Result<(), Failure> {
        let transfer = (self.samples.sustained_units * UNIT_BYTES) as f64;
        let whole = transfer * self.samples.sustained_ns.len() as f64;
        let seen = |ahead: f64| ahead > 2.0 * transfer && ahead < 0.4 * whole;
        let Some(ahead) = self.estimate(|n| n.ahead, transfer).filter(|e| seen(e.value)) else {
            return Ok(());
        };
        let base = self.config.cache.bytes;
        let least = 2 * self.stripe_units() * u64::from(self.config.gc.host_frontiers) * UNIT_BYTES;
        let mut bytes = ahead.value;
        for _ in 0..4 {
            self.config.cache.bytes = ((bytes / UNIT_BYTES as f64).round() as u64 * UNIT_BYTES).max(least);
            let Some(now) = self.model_sustained()?.ahead else { break };
            if (now - ahead.value).abs() < transfer / 8.0 {
                break;
            }
            bytes = (bytes + ahead.value - now).max(least as f64);
        }
        if self.config.validate().is_err() || !seen(bytes) {
            self.config.cache.bytes = base;
            return Ok(());
        }
        let found = Estimate {
            value: self.config.cache.bytes as f64,
            low: bytes + ahead.low - ahead.value,
            high: bytes + ahead.high - ahead.value,
        };
        self.note("cache.bytes", found, self.samples.sustained_ns.len(), "");
        Ok(())
    }

    fn trim(&mut self, has_trim: bool) {
        if !has_trim {
            self.config.trim = TrimConfig::unsupported();
            self.fits.push(Fit {
                setting: "trim.kind",
                value: SettingValue::Word("unsupported".to_owned()),
                interval: None,
                samples: 1,
                how: "the drive reports no TRIM here; ",
            });
            return;
        }
        if !self.config.trim.is_supported() {
            self.config.trim = SsdConfig::default().trim;
            self.config.trim.kind = match self.config.link.kind {
                LinkKind::Sata => TrimKind::AtaNonQueued,
                LinkKind::Nvme => TrimKind::Nvme,
                LinkKind::Ufs => TrimKind::Ufs,
            };
        }
        let samples: usize = self.samples.trims.iter().map(|t| t.latencies_ns.len()).sum();
        let Some(fixed) = self.numbers.trim else { return };
        let n = self.numbers;
        let o = n.link_overhead.unwrap_or(0.0).max(1.0);
        let grows = n.trim_unit.unwrap_or(0.0) > 0.0 || n.trim_mapped.unwrap_or(0.0) > 0.0;
        let background = n.slowdown.is_some();
        // Acknowledged at once, and nothing seen of the work behind it.
        let unseen = !background && !grows && fixed < o && self.config.trim.place == TrimPlace::Background;
        if unseen {
            let what = "TRIM is acknowledged at once; what it costs afterwards is too short to see";
            self.notes.push(what.to_owned());
            return;
        }
        let place = if background { TrimPlace::Background } else { TrimPlace::BeforeAck };
        let word = if background { "background" } else { "before_ack" };
        self.fits.push(Fit {
            setting: "trim.place",
            value: SettingValue::Word(word.to_owned()),
            interval: None,
            samples,
            how: "whether reads after a TRIM are slower; ",
        });
        self.config.trim.place = place;
        let backlog = |n: &Numbers| match n.backlog {
            [data, nothing] => (nothing.unwrap_or(0.0), data.map(|d| (d - nothing.unwrap_or(0.0)).max(0.0))),
        };
        if background {
            let percent = self.estimate(|n| n.slowdown, 1.0);
            if let Some(found) = percent {
                let value = self.note("trim.slowdown_percent", found, samples, "");
                self.config.trim.slowdown_percent = value.min(100_000) as u32;
            }
            // The work ends within a read.
            let read = self.samples.reads.first().and_then(|r| trimwise::compare::statistics::median(&r.latencies_ns));
            let units = self.samples.aftermath.iter().map(|a| a.units).max().unwrap_or(1).max(1) as f64;
            let resolution = 2.0 * read.unwrap_or(0.0) * (1.0 + n.slowdown.unwrap_or(0.0) / 100.0) / units;
            if let Some(found) = self.estimate(|n| Some(backlog(n).0), resolution) {
                self.config.trim.cost_per_unit_ns = self.note("trim.cost_per_unit_ns", found, samples, "");
            }
            if let Some(found) = self.estimate(|n| backlog(n).1, 2.0 * resolution) {
                self.config.trim.cost_per_mapped_unit_ns =
                    self.note("trim.cost_per_mapped_unit_ns", found, samples, "");
            }
            // What is acknowledged at once has no latency of its own beyond the link's.
            self.config.trim.cost_per_command_ns = 0;
            self.config.trim.cost_per_range_ns = 0;
        } else {
            self.config.trim.slowdown_percent = 0;
            // Linux sends a range a command, so only their sum is seen.
            let range = (self.config.trim.cost_per_range_ns as f64).min(fixed);
            self.config.trim.cost_per_range_ns = range as u64;
            if let Some(found) = self.estimate(|n| n.trim.map(|t| (t - range).max(0.0)), 2.0) {
                let how = "a command of one range, less the base's cost of a range; ";
                self.config.trim.cost_per_command_ns =
                    self.note("trim.cost_per_command_ns", found, samples, how);
            }
            if let Some(found) = self.estimate(|n| n.trim_unit, 0.5) {
                self.config.trim.cost_per_unit_ns = self.note("trim.cost_per_unit_ns", found, samples, "");
            }
            if let Some(found) = self.estimate(|n| n.trim_mapped, 0.5) {
                self.config.trim.cost_per_mapped_unit_ns =
                    self.note("trim.cost_per_mapped_unit_ns", found, samples, "");
            }
        }
        if n.trim_latency.is_some() || self.config.trim.latency_per_command_ns > 0 {
            let of = |n: &Numbers| Some(n.trim_latency.unwrap_or(0.0));
            if let Some(found) = self.estimate(of, 4.0) {
                let spacings = self.samples.trim_spacing_ns.len();
                self.config.trim.latency_per_command_ns =
                    self.note("trim.latency_per_command_ns", found, spacings, "");
            }
        }
    }
}

/// The same drive with another number of dies, and as much flash.
fn with_dies(config: &SsdConfig, dies: u32) -> Option<SsdConfig> {
    let old = &config.geometry;
    let before = old.channels * old.dies_per_channel;
    if before == dies {
        return Some(config.clone());
    }
    let mut new = config.clone();
    new.geometry.channels = if dies.is_multiple_of(old.channels) { old.channels } else { dies };
    new.geometry.dies_per_channel = dies / new.geometry.channels;
    // As many superblocks in parallel as before, so a superblock spreads over more or fewer dies.
    let lanes = before * old.planes_per_die / old.superblock_planes.max(1);
    new.geometry.superblock_planes = dies * old.planes_per_die / lanes.clamp(1, dies);
    let planes = |n: u32, dies: u32| (u64::from(n) * u64::from(before)).div_ceil(u64::from(dies)) as u32;
    new.geometry.blocks_per_plane = old.blocks_per_plane.map(|n| planes(n, dies));
    let per_stripe = 2
        * u64::from(new.geometry.superblock_planes.min(old.planes_per_die))
        * u64::from(old.page_bytes)
        * u64::from(config.gc.host_frontiers);
    if new.cache.bytes > 0 {
        new.cache.bytes = new.cache.bytes.max(per_stripe);
    }
    if let Some(slc) = &mut new.slc {
        slc.static_superblocks = planes(slc.static_superblocks, dies).max(1);
    }
    new.validate().ok().map(|()| new)
}
