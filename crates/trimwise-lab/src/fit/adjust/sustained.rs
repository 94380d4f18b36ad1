//! The long write: its limit, and the size of the cache before it.

use trimwise::units::UNIT_BYTES;

use super::super::estimate::{Estimate, Numbers};
use super::super::model::{self, Job};
use super::layout::with_dies;
use super::{Adjusting, SAME};
use trimwise::failure::Failure;

impl Adjusting<'_> {
    fn model_sustained(&self) -> Result<Numbers, Failure> {
        Ok(model::run(&self.config, self.plan, Job::Sustained, self.stop)?.samples.numbers())
    }

    pub(super) fn sustained(&mut self) -> Result<(), Failure> {
        let Some(mut rate) = self.estimate(|n| n.sustained, 0.0) else { return Ok(()) };
        self.config.controller.write_bytes_per_s = None;
        let predicted = |n: Numbers| n.sustained.unwrap_or(0.0);
        let mut reached = predicted(self.model_sustained()?);
        if let (true, Some([(a, _), (b, _)])) = (self.is_unsteady(), self.numbers.tails) {
            self.notes.push(format!(
                "the sustained write went from {} to {} MB/s, as when garbage collection starts or the host is busy: \
                 the cache size could not be fitted, and the rate is uncertain",
                (a / 1e6).round(),
                (b / 1e6).round()
            ));
            (rate.low, rate.high) = (rate.low.min(a).min(b), rate.high.max(a).max(b));
            if (rate.low * (1.0 - SAME)..=rate.high * (1.0 + SAME)).contains(&reached) {
                return Ok(());
            }
        }
        // The flash may be too slow: use more dies if reads left their number open, or else programs that are shorter
        // in effect.
        while reached < rate.value * (1.0 - SAME) && !self.dies_known {
            let g = &self.config.geometry;
            let Some(config) = with_dies(&self.config, (g.channels, g.dies_per_channel * 2)) else { break };
            let before = std::mem::replace(&mut self.config, config);
            let now = predicted(self.model_sustained()?);
            if now < reached * 1.05 {
                self.config = before;
                break;
            }
            reached = now;
        }
        if reached < rate.value * (1.0 - SAME) && reached > 0.0 {
            let before = *self.t_prog();
            *self.t_prog() = ((before as f64 * reached / rate.value).round() as u64).max(1);
            let now = predicted(self.model_sustained()?);
            if now < reached * 1.02 {
                *self.t_prog() = before;
            } else {
                let has_slc = self.config.slc.is_some();
                let setting = if has_slc { "slc.t_prog_ns" } else { "nand.t_prog_ns" };
                let ns = *self.t_prog();
                self.fits.retain(|fit| fit.setting != setting);
                let by = |rate_end: f64| ns as f64 * rate.value / rate_end.max(1.0);
                let found = Estimate { value: ns as f64, low: by(rate.high), high: by(rate.low) };
                let samples = self.samples.sustained_ns.len();
                self.note(setting, found, samples, "what the sustained write needs with these dies; ");
                reached = now;
            }
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
        let how = "the sustained write, which is slower than the base's flash; ";
        let value = self.note("controller.write_bytes_per_s", found, samples, how);
        self.config.controller.write_bytes_per_s = Some(value);
        Ok(())
    }

    /// Returns true if the two quarters after the cache was full suggest different caches.
    fn is_unsteady(&self) -> bool {
        let transfer = (self.samples.sustained_units * UNIT_BYTES) as f64;
        let ahead = self.numbers.ahead.unwrap_or(0.0);
        self.numbers.tails.is_some_and(|[(_, a), (_, b)]| (a - b).abs() > (2.0 * transfer).max(ahead / 2.0))
    }

    pub(super) fn cache(&mut self) -> Result<(), Failure> {
        if self.is_unsteady() {
            return Ok(());
        }
        let transfer = (self.samples.sustained_units * UNIT_BYTES) as f64;
        let whole = transfer * self.samples.sustained_ns.len() as f64;
        let seen = |ahead: f64| ahead > 2.0 * transfer && ahead < 0.4 * whole;
        let Some(ahead) = self.estimate(|n| n.ahead, transfer).filter(|e| seen(e.value)) else {
            return Ok(());
        };
        let base = self.config.cache.bytes;
        if base == 0 {
            return Ok(());
        }
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
        let bytes = self.config.cache.bytes as f64;
        // Resampling keeps a drift; the quarters show it.
        let tails = self.numbers.tails.map_or([ahead.value; 2], |tails| tails.map(|(_, ahead)| ahead));
        let low = tails.into_iter().fold(ahead.low, f64::min);
        let high = tails.into_iter().fold(ahead.high, f64::max);
        let found =
            Estimate { value: bytes, low: bytes + low - ahead.value, high: bytes + high - ahead.value };
        self.note("cache.bytes", found, self.samples.sustained_ns.len(), "");
        Ok(())
    }
}
