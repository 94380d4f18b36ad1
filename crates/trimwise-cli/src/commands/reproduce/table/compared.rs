//! The modelled file system next to a real one, as tables: a table per case, with a row per figure.

use trimwise_lab::experiment::model_ext4::{COMPARED, Compared, Pair, error_percent};

use crate::figures::{change, grouped, time};
use crate::table::plot::Block;

/// Returns one table per case.
pub fn blocks(pairs: &[Pair]) -> Vec<Block> {
    pairs.iter().map(block).collect()
}

fn block(pair: &Pair) -> Block {
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
    Block::new(
        format!("PostMark \"{}\", policy {}", pair.shape, pair.policy),
        ["", "real ext4", "model", "model is off by"],
        COMPARED.iter().map(row).collect(),
    )
}
