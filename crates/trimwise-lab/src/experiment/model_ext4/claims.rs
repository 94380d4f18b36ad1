//! The compared figures, and the model's errors.

use super::{Pair, Side};
use crate::experiment::claims::Figures;

pub struct Compared {
    id: &'static str,
    pub name: &'static str,
    pub of: fn(&Side) -> u64,
}

pub const COMPARED: [Compared; 9] = [
    Compared { id: "data", name: "data blocks", of: |side| side.traffic.data_blocks },
    Compared { id: "journal", name: "journal blocks", of: |side| side.traffic.journal_blocks },
    Compared { id: "metadata", name: "metadata blocks", of: |side| side.traffic.metadata_blocks },
    Compared { id: "commits", name: "commits", of: |side| side.commits },
    Compared { id: "flushes", name: "flushes", of: |side| side.traffic.flushes },
    Compared { id: "discards", name: "discards", of: |side| side.traffic.discards },
    Compared { id: "discarded", name: "discarded bytes", of: |side| side.traffic.discarded_bytes },
    Compared { id: "read", name: "blocks read", of: |side| side.traffic.read_blocks },
    Compared { id: "duration", name: "duration", of: |side| side.duration_ns },
];

/// Returns the model's error against the kernel in percent; zero if both are zero.
pub fn error_percent(pair: &Pair, of: fn(&Side) -> u64) -> f64 {
    match (of(&pair.kernel), of(&pair.model)) {
        (0, 0) => 0.0,
        (0, _) => f64::INFINITY,
        (kernel, model) => (model as f64 / kernel as f64 - 1.0) * 100.0,
    }
}

/// Returns the compared figures over all cases: `kernel.ID` and `model.ID`.
pub fn figures(pairs: &[Pair]) -> Figures {
    let mut figures = Figures::default();
    for Compared { id, of, .. } in &COMPARED {
        figures.set(format!("kernel.{id}"), pairs.iter().map(|pair| of(&pair.kernel) as f64));
        figures.set(format!("model.{id}"), pairs.iter().map(|pair| of(&pair.model) as f64));
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::super::{GuestFacts, evaluate, log::Traffic};
    use super::*;

    fn pair(kernel: u64, model: u64) -> Pair {
        let side = |n| Side {
            duration_ns: n,
            commits: n,
            traffic: Traffic { data_blocks: n, journal_blocks: n, metadata_blocks: n, ..Traffic::default() },
        };
        Pair {
            shape: "small",
            policy: "off".to_owned(),
            guest: GuestFacts { background_pages: 1, dirty_pages: 2, cached_pages: 0, journal_blocks: 1024 },
            kernel: side(kernel),
            model: side(model),
        }
    }

    fn met(pairs: &[Pair]) -> Vec<String> {
        evaluate(pairs, 1).claims.into_iter().filter(|claim| claim.met).map(|claim| claim.id).collect()
    }

    #[test]
    fn each_figure_has_its_own_limit_and_one_case_beyond_it_fails_the_claim() {
        assert_eq!(met(&[pair(1000, 1000), pair(1000, 981)]).len(), 6);
        let loose =
            ["model-journal", "model-metadata", "model-discards", "model-discarded", "model-duration"];
        assert_eq!(met(&[pair(1000, 1000), pair(1000, 1149)]), loose);
        assert_eq!(met(&[pair(1000, 840), pair(1000, 1000)]), ["model-discards", "model-discarded"]);
        assert!(met(&[]).is_empty());
    }

    #[test]
    fn something_where_the_kernel_has_nothing_is_an_error() {
        let mut pair = pair(10, 10);
        pair.model.traffic.discards = 1;
        assert!(!met(&[pair]).contains(&"model-discards".to_owned()));
    }
}
