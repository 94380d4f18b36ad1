//! Determines which share of the trimmed units is free, from the time of single reads.

#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    /// Times on the clean device, where no unit holds data.
    pub unmapped_ns: Vec<u64>,
    /// Times on the full device, where every unit holds data.
    pub mapped_ns: Vec<u64>,
    pub trimmed_ns: Vec<u64>,
}

impl Samples {
    /// Returns the share of the trimmed units that are read as quickly as units that never held data. `None` if reads
    /// with and without data cannot be told apart: at least nine tenths of each must be on their own side of a limit.
    ///
    /// The limit is nearer to reads without data, because reads of quicker flash (an SLC cache) lie between the two.
    /// Reads on the wrong side of the limit, by chance or because of a cache, are taken into account.
    pub(crate) fn reached_percent(&self) -> Option<f64> {
        let (unmapped, mapped) = (quantile(&self.unmapped_ns, 9)?, quantile(&self.mapped_ns, 1)?);
        if self.trimmed_ns.is_empty() || unmapped >= mapped {
            return None;
        }
        let limit = unmapped + (mapped - unmapped) / 4;
        let quick =
            |values: &[u64]| values.iter().filter(|&&ns| ns <= limit).count() as f64 / values.len() as f64;
        let (none, all) = (quick(&self.mapped_ns), quick(&self.unmapped_ns));
        let share = (quick(&self.trimmed_ns) - none) / (all - none);
        Some(100.0 * share.clamp(0.0, 1.0))
    }
}

fn quantile(values: &[u64], tenths: usize) -> Option<u64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get((sorted.len() * tenths / 10).min(sorted.len().saturating_sub(1))).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(mean: u64) -> Vec<u64> {
        (0..100).map(|i| mean + i % 10).collect()
    }

    #[test]
    fn reads_that_are_told_apart_show_how_far_a_trim_reaches() {
        let trimmed = [around(100), around(200), around(100), around(100)].concat();
        let samples = Samples { unmapped_ns: around(100), mapped_ns: around(200), trimmed_ns: trimmed };
        assert_eq!(samples.reached_percent(), Some(75.0));
    }

    #[test]
    fn flash_that_is_quicker_is_still_flash() {
        let trimmed = [around(1100), around(550)].concat();
        let samples = Samples { unmapped_ns: around(100), mapped_ns: around(1000), trimmed_ns: trimmed };
        assert_eq!(samples.reached_percent(), Some(0.0));
    }

    #[test]
    fn what_is_quick_or_slow_by_chance_does_not_count() {
        let clean: Vec<u64> = (0..100).map(|i| if i < 8 { 5000 } else { 100 }).collect();
        let full: Vec<u64> = (0..100).map(|i| if i < 9 { 90 } else { 1000 }).collect();
        let of = |trimmed_ns: &Vec<u64>| {
            let samples = Samples {
                unmapped_ns: clean.clone(),
                mapped_ns: full.clone(),
                trimmed_ns: trimmed_ns.clone(),
            };
            samples.reached_percent()
        };
        assert_eq!((of(&clean), of(&full)), (Some(100.0), Some(0.0)));
        assert_eq!(of(&[clean.clone(), full.clone()].concat()), Some(50.0));
    }

    #[test]
    fn reads_that_look_the_same_show_nothing() {
        let samples = Samples { unmapped_ns: around(100), mapped_ns: around(103), trimmed_ns: around(100) };
        assert_eq!(samples.reached_percent(), None);
        assert_eq!(Samples::default().reached_percent(), None);
    }
}
