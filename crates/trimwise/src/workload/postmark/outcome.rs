use serde::{Deserialize, Serialize};

use super::script::Counts;
use crate::units::{SimDuration, SimTime};
use crate::workload::latency::OpLatencies;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseTimes {
    /// The first file is about to be created (the subdirectories exist).
    pub begin: SimTime,
    /// The pool is complete: the transactions start.
    pub created: SimTime,
    /// The transactions are done, and the deletion of the rest starts.
    pub transacted: SimTime,
    /// All files are deleted (the subdirectories still exist).
    pub end: SimTime,
}

#[derive(Clone, Debug)]
pub struct Outcome {
    pub counts: Counts,
    pub transactions: u64,
    pub times: PhaseTimes,
    /// Latencies of each operation: creations, reads and appends from before `open` to after `close`.
    pub latencies: OpLatencies,
    /// The transactions ended early because every file was deleted. PostMark then prints "out of files!", deletes
    /// nothing more and prints no report; the figures cover the operations before.
    pub out_of_files: bool,
}

/// PostMark's figures, exact where PostMark's own report rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PostmarkFigures {
    pub total_s: f64,
    pub transactions_s: f64,
    pub creation_alone_s: f64,
    pub deletion_alone_s: f64,
    pub created: u64,
    /// Files created before the transactions.
    pub creation_alone: u64,
    pub created_mixed: u64,
    pub read: u64,
    pub appended: u64,
    pub deleted: u64,
    /// Files deleted after the transactions.
    pub deletion_alone: u64,
    pub deleted_mixed: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub out_of_files: bool,
    pub transactions_per_s: f64,
    pub creation_alone_per_s: f64,
    /// Files deleted each second of the deletion phase. (PostMark 1.51's terse report divides by the duration of the
    /// creation phase instead.)
    pub deletion_alone_per_s: f64,
}

impl Outcome {
    pub fn duration(&self) -> SimDuration {
        self.times.end.since(self.times.begin)
    }

    /// Returns the exact figures. A rate over zero time is 0.
    pub fn figures(&self) -> PostmarkFigures {
        let Counts { created, created_mixed, read, appended, deleted, deleted_mixed, .. } = self.counts;
        let (creation_alone, deletion_alone) = (created - created_mixed, deleted - deleted_mixed);
        let PhaseTimes { begin, created: t1, transacted, end } = self.times;
        let transactions_s = transacted.since(t1).as_secs_f64();
        let creation_alone_s = t1.since(begin).as_secs_f64();
        let deletion_alone_s = end.since(transacted).as_secs_f64();
        // Each transaction reads or appends, and creates or deletes. If the run was cut short, the larger half gives
        // their number.
        let transactions = if self.out_of_files {
            (read + appended).max(created_mixed + deleted_mixed)
        } else {
            self.transactions
        };
        let rate = |count: u64, seconds: f64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        PostmarkFigures {
            total_s: end.since(begin).as_secs_f64(),
            transactions_s,
            creation_alone_s,
            deletion_alone_s,
            created,
            creation_alone,
            created_mixed,
            read,
            appended,
            deleted,
            deletion_alone,
            deleted_mixed,
            bytes_read: self.counts.bytes_read,
            bytes_written: self.counts.bytes_written,
            out_of_files: self.out_of_files,
            transactions_per_s: rate(transactions, transactions_s),
            creation_alone_per_s: rate(creation_alone, creation_alone_s),
            deletion_alone_per_s: rate(deletion_alone, deletion_alone_s),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An outcome of the large published set, with phase boundaries given in milliseconds.
    pub(in super::super) fn large_set(begin: u64, created: u64, transacted: u64, end: u64) -> Outcome {
        let at = |ms: u64| SimTime(ms * 1_000_000);
        Outcome {
            counts: Counts {
                created: 74_761,
                created_mixed: 24_761,
                read: 24_974,
                appended: 25_025,
                deleted: 74_761,
                deleted_mixed: 25_239,
                bytes_read: 2_753_016_550,
                bytes_written: 8_615_456_523,
                bytes_read_f32: 2_753_002_240.0,
                bytes_written_f32: 8_615_364_608.0,
            },
            transactions: 50_000,
            times: PhaseTimes {
                begin: at(begin),
                created: at(created),
                transacted: at(transacted),
                end: at(end),
            },
            latencies: OpLatencies::default(),
            out_of_files: false,
        }
    }

    #[test]
    fn figures_are_exact_and_divide_each_phase_by_its_own_time() {
        let figures = large_set(500, 50_500, 150_500, 175_500).figures();
        assert_eq!(
            (figures.creation_alone_s, figures.transactions_s, figures.deletion_alone_s),
            (50.0, 100.0, 25.0)
        );
        assert_eq!(figures.total_s, 175.0);
        assert_eq!((figures.creation_alone, figures.deletion_alone), (50_000, 49_522));
        assert_eq!((figures.creation_alone_per_s, figures.transactions_per_s), (1000.0, 500.0));
        assert_eq!(figures.deletion_alone_per_s, 49_522.0 / 25.0);
        assert_eq!(large_set(0, 0, 0, 0).figures().transactions_per_s, 0.0);
    }

    #[test]
    fn regression_a_run_cut_short_has_the_rate_of_what_it_did() {
        let mut outcome = large_set(0, 0, 10_000, 10_000);
        outcome.out_of_files = true;
        outcome.counts.created_mixed = 63;
        outcome.counts.deleted_mixed = 73;
        outcome.counts.read = 60;
        outcome.counts.appended = 70;
        let figures = outcome.figures();
        assert!(figures.out_of_files);
        assert_eq!(figures.transactions_per_s, 13.6);
    }
}
