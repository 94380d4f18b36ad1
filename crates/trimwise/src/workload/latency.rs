use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::units::SimDuration;

/// Operations with recorded latencies. Their names are the keys of the JSON output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Creating a file: open, all its writes, close.
    Create,
    /// Reading a file: open, all its reads, close; in workloads other than PostMark, one call that reads.
    Read,
    /// Appending to a file: open, the writes, close.
    Append,
    Unlink,
    Fsync,
    Write,
}

impl Operation {
    pub const ALL: [Self; 6] =
        [Self::Create, Self::Read, Self::Append, Self::Unlink, Self::Fsync, Self::Write];

    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Read => "read",
            Self::Append => "append",
            Self::Unlink => "unlink",
            Self::Fsync => "fsync",
            Self::Write => "write",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencySummary {
    pub count: u64,
    /// Median. All quantiles have three significant digits.
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

impl LatencySummary {
    /// Summarizes a histogram of nanoseconds; `None` if it is empty.
    pub(crate) fn of(h: &Histogram<u32>) -> Option<Self> {
        (!h.is_empty()).then(|| Self {
            count: h.len(),
            p50_ns: h.value_at_quantile(0.5),
            p99_ns: h.value_at_quantile(0.99),
            p999_ns: h.value_at_quantile(0.999),
            max_ns: h.max(),
        })
    }
}

/// Creates a histogram of latencies: three significant digits, up to an hour.
pub fn histogram() -> Histogram<u32> {
    const HOUR_NS: u64 = 3_600_000_000_000;
    Histogram::new_with_bounds(1, HOUR_NS, 3).expect("constant bounds are valid")
}

/// One latency histogram for each [`Operation`].
#[derive(Clone, Debug)]
pub struct OpLatencies {
    histograms: [Histogram<u32>; Operation::ALL.len()],
}

impl Default for OpLatencies {
    fn default() -> Self {
        Self { histograms: std::array::from_fn(|_| histogram()) }
    }
}

impl OpLatencies {
    pub fn record(&mut self, operation: Operation, latency: SimDuration) {
        self.histograms[operation as usize].saturating_record(latency.as_nanos().max(1));
    }

    pub fn add(&mut self, other: &Self) {
        for (histogram, other) in self.histograms.iter_mut().zip(&other.histograms) {
            histogram.add(other).expect("all histograms have the same bounds");
        }
    }

    /// Returns the summary of one operation; `None` if there was none.
    pub fn summary(&self, operation: Operation) -> Option<LatencySummary> {
        LatencySummary::of(&self.histograms[operation as usize])
    }

    /// Returns latencies in nanoseconds at the given quantiles, for a distribution plot.
    pub(crate) fn quantiles(&self, operation: Operation, quantiles: &[f64]) -> Vec<u64> {
        let h = &self.histograms[operation as usize];
        quantiles.iter().map(|&q| h.value_at_quantile(q)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_match_the_recorded_latencies() {
        let mut l = OpLatencies::default();
        for us in 1..=1000 {
            l.record(Operation::Read, SimDuration::from_micros(us));
        }
        let s = l.summary(Operation::Read).unwrap();
        assert_eq!(s.count, 1000);
        let figures = [(s.p50_ns, 500), (s.p99_ns, 990), (s.p999_ns, 999), (s.max_ns, 1_000)];
        for (ns, us) in figures {
            assert!(ns.abs_diff(us * 1_000) <= us, "{ns} ns are not {us} us to three digits: {s:?}");
        }
        assert!(l.summary(Operation::Fsync).is_none());
    }
}
