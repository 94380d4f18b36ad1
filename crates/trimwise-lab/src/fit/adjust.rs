//! Builds a drive from numbers: the base's configuration with measured values in place of its assumptions.
//!
//! Most numbers are settings as they are. Three are not, and are found by running the same probe on the model: the
//! dies, from reads at several depths; the limit of the write path or the planes, from the sustained write; and the
//! size of the cache, from the amount acknowledged before the rate fell.

mod layout;
mod link;
mod sustained;
mod trim;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use trimwise::profile::SettingValue;
use trimwise::ssd::SsdConfig;
use trimwise::units::UNIT_BYTES;

use super::estimate::{Estimate, Numbers, estimate};
use super::model::{self, Job};
use super::probe::{Plan, Samples};
use layout::{with_dies, with_stripe};
use trimwise::failure::Failure;

#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Dotted name in a profile.
    pub setting: &'static str,
    pub value: SettingValue,
    /// The 95 % interval; `None` if the value is not a number.
    pub interval: Option<(u64, u64)>,
    /// Number of measurements behind the value.
    pub samples: usize,
    /// How the value was found, where that needs an explanation.
    pub how: &'static str,
}

/// Channels, and dies per channel, that the search tries.
const CHANNELS: [u32; 5] = [1, 2, 4, 8, 16];
const DIES_PER_CHANNEL: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Layouts are as good as the best one if their error, in logarithms per load, is larger by less than this and half the
/// best one's error.
const AS_GOOD: f64 = 0.004;
/// Rates that differ by less than this share count as equal.
const SAME: f64 = 0.02;

pub(super) struct Adjusting<'a> {
    pub config: SsdConfig,
    pub fits: Vec<Fit>,
    pub notes: Vec<String>,
    samples: &'a Samples,
    dies_known: bool,
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
            dies_known: false,
            samples,
            numbers: samples.numbers(),
            drawn: samples.bootstrap(plan.seed),
            plan,
            stop,
        }
    }

    pub fn all(&mut self, has_trim: bool) -> Result<(), Failure> {
        self.singles();
        self.stripe();
        if !self.plan.read_only {
            self.writes();
            self.program();
        }
        self.dies()?;
        if !self.plan.read_only {
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

    fn time(
        &mut self,
        setting: &'static str,
        samples: usize,
        of: impl Fn(&Numbers) -> Option<f64>,
    ) -> Option<u64> {
        let found = self.estimate(of, 2.0)?;
        Some(self.note(setting, found, samples, ""))
    }

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

    fn singles(&mut self) {
        let count = |sizes: &[super::probe::Sized]| sizes.iter().map(|s| s.latencies_ns.len()).sum::<usize>();
        let (reads, writes) = (count(&self.samples.reads), count(&self.samples.writes));
        let bursts: usize = self.samples.bursts.iter().map(|b| b.spacing_ns.len()).sum();
        if let Some(rate) = self.rate("link.bytes_per_s", writes, |n| n.link_unit) {
            self.config.link.bytes_per_s = rate;
        }
        if let Some(unit) = self.numbers.fastest_unit {
            self.raise_link(UNIT_BYTES as f64 * 1e9 / unit, "the fastest load, at least; ");
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
                    how: "on or off, from sequential reads one at a time; ",
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

    /// Returns tR where nothing told the controller's part: with `--read-only`, or where the cache serves no reads.
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

    /// Finds tPROG from flushes, and whether they drain the cache at all.
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
        let is_cached = self.config.cache.bytes > 0;
        if let Some(found) = self.estimate(of, 2.0 + self.stripe_units() as f64).filter(|_| is_cached) {
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

    fn dies(&mut self) -> Result<(), Failure> {
        let g = &self.config.geometry;
        let base = (g.channels, g.dies_per_channel);
        let mut layouts: Vec<(u32, u32)> =
            CHANNELS.into_iter().flat_map(|c| DIES_PER_CHANNEL.map(|d| (c, d))).chain([base]).collect();
        layouts.sort_unstable();
        layouts.dedup();
        let mut errors: Vec<((u32, u32), f64)> = Vec::new();
        for layout in layouts {
            let Some(config) = with_dies(&self.config, layout) else { continue };
            let outcome = match model::run(&config, self.plan, Job::RandomReads, self.stop) {
                Err(Failure::Interrupted) => return Err(Failure::Interrupted),
                Err(_) => continue,
                Ok(outcome) => outcome,
            };
            let predicted = outcome.samples.numbers().random_read;
            let pairs = self.numbers.random_read.iter().zip(predicted);
            let logs: Vec<f64> = pairs.filter_map(|(m, p)| Some((p? / (*m)?).ln().abs())).collect();
            if !logs.is_empty() {
                errors.push((layout, logs.iter().sum::<f64>() / logs.len() as f64));
            }
        }
        let Some(least) = errors.iter().map(|(_, error)| *error).min_by(f64::total_cmp) else {
            return Ok(());
        };
        let good: Vec<(u32, u32)> = errors
            .iter()
            .filter(|(_, error)| *error <= 1.5 * least + AS_GOOD)
            .map(|(layout, _)| *layout)
            .collect();
        // Dies that program a stripe in each tPROG must produce the sustained write, unless something else limits it.
        let programmed = self.programmed_dies();
        let agrees =
            |(c, d): &(u32, u32)| programmed.is_some_and(|dies| (f64::from(c * d) / dies - 1.0).abs() < SAME);
        let good = match good.iter().any(agrees) {
            true => good.into_iter().filter(agrees).collect(),
            false => good,
        };
        let distance = |(c, d): &(u32, u32)| {
            let log = |a: u32, b: u32| (f64::from(a) / f64::from(b)).ln().abs();
            log(*c, base.0) + log(*d, base.1)
        };
        let Some(&chosen) = good.iter().min_by(|a, b| distance(a).total_cmp(&distance(b))) else {
            return Ok(());
        };
        self.dies_known = good.iter().all(|(c, d)| c * d == chosen.0 * chosen.1);
        if let Some(config) = with_dies(&self.config, chosen) {
            self.config = config;
        }
        let samples = self.samples.random_reads.iter().map(|load| load.spacing_ns.len()).sum();
        let all = CHANNELS.len() * DIES_PER_CHANNEL.len();
        if good.len() * 2 > all {
            self.notes.push(
                "reads at depth show no limit by dies or channels: both counts come from the base \
                     profile"
                    .to_owned(),
            );
            return Ok(());
        }
        type Of = fn(&(u32, u32)) -> u32;
        let settings: [(&'static str, Of); 2] =
            [("geometry.channels", |l| l.0), ("geometry.dies_per_channel", |l| l.1)];
        for (setting, of) in settings {
            let ends = [good.iter().map(of).min(), good.iter().map(of).max()].map(|end| end.map(u64::from));
            self.fits.push(Fit {
                setting,
                value: SettingValue::Whole(of(&chosen).into()),
                interval: ends[0].zip(ends[1]),
                samples,
                how: "reads at depth, on models of 1 to 16 channels with 1 to 32 dies; ",
            });
        }
        Ok(())
    }

    /// Returns how many dies the sustained write keeps busy, if each programs one stripe after the other.
    fn programmed_dies(&self) -> Option<f64> {
        let (rate, _) = (self.numbers.sustained?, self.numbers.program?);
        let t_prog = self.config.slc.as_ref().map_or(self.config.nand.t_prog_ns, |slc| slc.t_prog_ns);
        Some(rate * t_prog as f64 / 1e9 / (self.stripe_units() * UNIT_BYTES) as f64)
    }

    /// Handles writes whose time does not grow with their size, within the noise: the part behind the drive's link
    /// acknowledges them, many at a time.
    fn writes(&mut self) {
        let first = self.samples.writes.first().map(|w| w.latencies_ns.clone());
        let spacing = self.samples.bursts.first().map(|b| b.spacing_ns.clone());
        let (None, Some(single), Some(spacing)) = (self.numbers.write_overhead, first, spacing) else {
            return;
        };
        let of = |values: Vec<f64>| trimwise::compare::statistics::Sample::new(values, false);
        let (Some(single), Some(spacing)) = (of(single), of(spacing)) else { return };
        let between = spacing.median().min(single.median());
        let interval = spacing.interval();
        let found =
            Estimate { value: between, low: interval.low.min(between), high: interval.high.max(between) };
        let link =
            self.config.link.overhead_per_command_ns as f64 + 4096e9 / self.config.link.bytes_per_s as f64;
        let count = spacing.values().len();
        let ns = self.note("controller.write_overhead_ns", found, count, "the spacing of many writes; ");
        self.config.controller.write_overhead_ns = ns;
        if single.median() > 2.0 * (between + link) {
            self.config.cache.bytes = 0;
            self.fits.push(Fit {
                setting: "cache.bytes",
                value: SettingValue::Whole(0),
                interval: None,
                samples: single.values().len(),
                how: "single writes take far longer than many at once, so no cache takes them; ",
            });
            let rest = between + link;
            let interval = single.interval();
            let value = single.median() - rest;
            let found = Estimate { value, low: (interval.low - rest).max(0.0), high: interval.high - rest };
            let setting = if self.config.slc.is_some() { "slc.t_prog_ns" } else { "nand.t_prog_ns" };
            let ns = self.note(setting, found, single.values().len(), "a single write, less the rest; ");
            *self.t_prog() = ns.max(1);
        }
    }

    fn stripe(&mut self) {
        let Some(found) = self.estimate(|n| n.stripe, 0.0) else { return };
        let Some(config) = with_stripe(&self.config, found.value as u64) else { return };
        self.config = config;
        let page = self.config.geometry.page_bytes;
        let planes = |units: f64| ((units as u64 * UNIT_BYTES) / u64::from(page)).max(1);
        self.fits.push(Fit {
            setting: "geometry.planes_per_die",
            value: SettingValue::Whole(self.config.geometry.planes_per_die.into()),
            interval: Some((planes(found.low), planes(found.high))),
            samples: self.samples.reads.iter().map(|sized| sized.latencies_ns.len()).sum(),
            how: "the largest read that one die serves; ",
        });
    }
}
