//! PostMark on a smaller drive.

use super::config::PostmarkConfig;

/// Minimum number of files and transactions of a scaled run. With fewer, the ends of a run (files created before,
/// commits after) weigh too much.
const NUMBER_MIN: u32 = 2_000;
const TRANSACTIONS_MIN: u32 = 20_000;

impl PostmarkConfig {
    /// Returns the run for a drive of `factor` times the size, from 0 to 1: files of the same sizes, but fewer of them.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        let of = |value: u32| (f64::from(value) * factor).round() as u32;
        Self { number: of(self.number).max(1), transactions: of(self.transactions), ..self.clone() }
    }

    /// Returns the smallest factor at which a run still shows what it shows in full; at most 1.
    pub fn scale_min(&self) -> f64 {
        let part = |least: u32, of: u32| f64::from(least) / f64::from(of.max(1));
        part(NUMBER_MIN, self.number).max(part(TRANSACTIONS_MIN, self.transactions)).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_transactions_shrink_down_to_a_floor() {
        let config = PostmarkConfig { number: 8_000, transactions: 400_000, ..PostmarkConfig::default() };
        assert_eq!(config.scale_min(), 0.25);
        let small = config.scaled(0.25);
        assert_eq!((small.number, small.transactions), (2_000, 100_000));
        assert_eq!((small.size_high, small.scale_min()), (config.size_high, 1.0));
        assert_eq!(PostmarkConfig::default().scale_min(), 1.0, "500 files are few");
        assert_eq!(PostmarkConfig { number: 1, ..config }.scaled(0.001).number, 1);
    }
}
