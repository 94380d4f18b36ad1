//! The cost of TRIM, and when it is paid.

use trimwise::compare::statistics::median;
use trimwise::profile::SettingValue;
use trimwise::ssd::{LinkKind, SsdConfig, TrimConfig, TrimKind, TrimPlace};

use super::super::estimate::{Estimate, Numbers};
use super::{Adjusting, Fit};

impl Adjusting<'_> {
    pub(super) fn trim(&mut self, has_trim: bool) {
        if !has_trim {
            self.config.trim = TrimConfig::unsupported();
            self.fits.push(Fit {
                setting: "trim.kind",
                value: SettingValue::Word("unsupported".to_owned()),
                interval: None,
                samples: 1,
                how: "the drive reports no TRIM support here; ",
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
        // TRIM is acknowledged at once, and the work behind that is too short to follow.
        if !background && !grows && fixed < o {
            let slower = n.beside_trims.map_or(0.0, |times| (times - 1.0) * 100.0);
            let was = self.config.trim.place == TrimPlace::Background;
            if slower < 3.0 && !was {
                self.notes.push("TRIM is acknowledged at once and delays nothing".to_owned());
                self.config.trim.cost_per_command_ns = 0;
                self.config.trim.cost_per_range_ns = 0;
                self.config.trim.cost_per_unit_ns = 0;
                self.config.trim.cost_per_mapped_unit_ns = 0;
                self.config.trim.latency_per_command_ns = 0;
                return;
            }
            self.config.trim.place = TrimPlace::Background;
            self.fits.push(Fit {
                setting: "trim.place",
                value: SettingValue::Word("background".to_owned()),
                interval: None,
                samples,
                how: "acknowledged at once; ",
            });
            let percent = |n: &Numbers| n.beside_trims.map(|times| ((times - 1.0) * 100.0).max(0.0));
            if let Some(found) = self.estimate(percent, 1.0) {
                let count = self.samples.reads_beside_trims_ns.len();
                let value = self.note("trim.slowdown_percent", found, count, "reads during TRIMs; ");
                self.config.trim.slowdown_percent = value.min(100_000) as u32;
            }
            let what = "the work of a TRIM after its acknowledgement is too short to measure: its costs come from the base \
                 profile";
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
        // After a large TRIM of data, after one of nothing, and after one of a single unit.
        let backlog = |n: &Numbers| {
            let [data, nothing, unit] = n.backlog.map(|span| span.unwrap_or(0.0));
            (unit, (nothing - unit).max(0.0), (data - nothing.max(unit)).max(0.0))
        };
        if background {
            let percent = self.estimate(|n| n.slowdown, 1.0);
            if let Some(found) = percent {
                let value = self.note("trim.slowdown_percent", found, samples, "");
                self.config.trim.slowdown_percent = value.min(100_000) as u32;
            }
            // The work ends within a read.
            let read = self.samples.reads.first().and_then(|r| median(&r.latencies_ns));
            let units = self.samples.aftermath.iter().map(|a| a.units).max().unwrap_or(1).max(1) as f64;
            let resolution = 3.0 * read.unwrap_or(0.0) * (1.0 + n.slowdown.unwrap_or(0.0) / 100.0);
            let range = self.config.trim.cost_per_range_ns as f64;
            if let Some(found) = self.estimate(|n| Some((backlog(n).0 - range).max(0.0)), resolution) {
                let how = "a command of one range, less the base's cost of a range; ";
                self.config.trim.cost_per_command_ns =
                    self.note("trim.cost_per_command_ns", found, samples, how);
            }
            if let Some(found) = self.estimate(|n| Some(backlog(n).1 / units), resolution / units) {
                self.config.trim.cost_per_unit_ns = self.note("trim.cost_per_unit_ns", found, samples, "");
            }
            if let Some(found) = self.estimate(|n| Some(backlog(n).2 / units), 2.0 * resolution / units) {
                self.config.trim.cost_per_mapped_unit_ns =
                    self.note("trim.cost_per_mapped_unit_ns", found, samples, "");
            }
        } else {
            self.config.trim.slowdown_percent = 0;
            // Linux sends one range per command, so only the sum is visible.
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
            let was = self.config.trim.cost_per_mapped_unit_ns;
            let some = |found: &Estimate| was > 0 || found.value >= 0.5;
            if let Some(found) = self.estimate(|n| n.trim_mapped, 0.5).filter(some) {
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
