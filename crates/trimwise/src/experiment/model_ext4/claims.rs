//! What is asked of the model, and how far it is off.

use super::{Pair, Side};
use crate::experiment::result::{Claim, Figure};

/// A figure that is compared: how it is called, how far the model may be off, and how to find it.
pub struct Compared {
    /// The end of the claim's name.
    id: &'static str,
    /// For people.
    pub name: &'static str,
    /// Percent; `None`: it is shown and nothing is claimed of it.
    limit_percent: Option<f64>,
    /// The figure.
    pub of: fn(&Side) -> u64,
}

/// What is compared, in the order of the table.
pub const COMPARED: [Compared; 9] = [
    Compared {
        id: "model-data",
        name: "data blocks",
        limit_percent: Some(2.0),
        of: |side| side.traffic.data_blocks,
    },
    Compared {
        id: "model-journal",
        name: "journal blocks",
        limit_percent: Some(15.0),
        of: |side| side.traffic.journal_blocks,
    },
    Compared {
        id: "model-metadata",
        name: "metadata blocks",
        limit_percent: Some(15.0),
        of: |side| side.traffic.metadata_blocks,
    },
    Compared { id: "", name: "commits", limit_percent: None, of: |side| side.commits },
    Compared { id: "", name: "flushes", limit_percent: None, of: |side| side.traffic.flushes },
    Compared {
        id: "model-discards",
        name: "discards",
        limit_percent: Some(10.0),
        of: |side| side.traffic.discards,
    },
    Compared {
        id: "model-discarded",
        name: "discarded bytes",
        limit_percent: Some(10.0),
        of: |side| side.traffic.discarded_bytes,
    },
    Compared { id: "", name: "blocks read", limit_percent: None, of: |side| side.traffic.read_blocks },
    Compared {
        id: "model-duration",
        name: "duration",
        limit_percent: Some(15.0),
        of: |side| side.duration_ns,
    },
];

/// The model over the kernel, percent off; nothing beside nothing is no error.
pub fn error_percent(pair: &Pair, of: fn(&Side) -> u64) -> f64 {
    match (of(&pair.kernel), of(&pair.model)) {
        (0, 0) => 0.0,
        (0, _) => f64::INFINITY,
        (kernel, model) => (model as f64 / kernel as f64 - 1.0) * 100.0,
    }
}

/// One claim a figure and case.
pub fn all(pairs: &[Pair]) -> Vec<Claim> {
    let limited = COMPARED.iter().filter_map(|compared| Some((compared, compared.limit_percent?)));
    limited.map(|(compared, limit)| claim(compared, limit, pairs)).collect()
}

fn claim(compared: &Compared, limit: f64, pairs: &[Pair]) -> Claim {
    let errors: Vec<(f64, &Pair)> =
        pairs.iter().map(|pair| (error_percent(pair, compared.of), pair)).collect();
    let within = errors.iter().filter(|(error, _)| error.abs() <= limit).count();
    let worst = errors.iter().max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
    let measured = worst.map_or("not measured".to_owned(), |(error, pair)| {
        format!(
            "within it {within} of {}, the worst {error:+.1} % ({}, {})",
            errors.len(),
            pair.shape,
            pair.policy
        )
    });
    Claim {
        id: compared.id,
        text: format!("{} of the model are within {limit} % of the real ext4's in every case", compared.name),
        met: !errors.is_empty() && within == errors.len(),
        published: Figure::Text(format!("at most {limit} % off")),
        measured: Figure::Text(measured),
    }
}

/// How many figures are within their limits.
pub fn finding(pairs: &[Pair]) -> String {
    let limited = || COMPARED.iter().filter_map(|compared| Some((compared.of, compared.limit_percent?)));
    let errors =
        pairs.iter().flat_map(|pair| limited().map(move |(of, limit)| (error_percent(pair, of), limit)));
    let (mut within, mut all) = (0, 0);
    for (error, limit) in errors {
        all += 1;
        within += u32::from(error.abs() <= limit);
    }
    format!("{within} of {all} figures of the model are within their limits of the real ext4. ")
}

#[cfg(test)]
mod tests {
    use super::super::{GuestFacts, log::Traffic};
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

    fn met(pairs: &[Pair]) -> Vec<&'static str> {
        all(pairs).iter().filter(|claim| claim.met).map(|claim| claim.id).collect()
    }

    #[test]
    fn each_figure_has_its_own_limit_and_one_case_beyond_it_fails_the_claim() {
        assert_eq!(met(&[pair(1000, 1000), pair(1000, 981)]).len(), 6);
        let loose =
            ["model-journal", "model-metadata", "model-discards", "model-discarded", "model-duration"];
        assert_eq!(met(&[pair(1000, 1000), pair(1000, 1149)]), loose);
        assert_eq!(met(&[pair(1000, 840), pair(1000, 1000)]), ["model-discards", "model-discarded"]);
        assert!(met(&[]).is_empty());
        assert!(finding(&[pair(1000, 1149)]).starts_with("5 of 6 figures"));
    }

    #[test]
    fn something_where_the_kernel_has_nothing_is_an_error() {
        let mut pair = pair(10, 10);
        pair.model.traffic.discards = 1;
        assert!(!met(&[pair]).contains(&"model-discards"));
    }
}
