//! The modelled file system next to a real one, as tables: a table per case, with a row per figure.

use super::Pair;
use super::claims::{COMPARED, Compared, error_percent};

use crate::plot::Table;
use trimwise::numbers::{change, grouped, time};

pub fn all(pairs: &[Pair]) -> Vec<Table> {
    pairs.iter().map(table).collect()
}

fn table(pair: &Pair) -> Table {
    let row = |compared: &Compared| {
        let figure = |of: u64| match compared.name {
            "duration" => time(of as f64 / 1e9),
            _ => grouped(of),
        };
        let error = error_percent(pair, compared.of);
        let error = if error.is_finite() { change(error / 100.0) } else { "none there".to_owned() };
        [
            compared.name.to_owned(),
            figure((compared.of)(&pair.kernel)),
            figure((compared.of)(&pair.model)),
            error,
        ]
    };
    Table::new(
        format!("PostMark \"{}\", policy {}", pair.shape, pair.policy),
        ["", "real ext4", "model", "model is off by"],
        COMPARED.iter().map(row).collect(),
    )
}
