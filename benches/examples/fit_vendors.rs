//! Fits the three numbers of each drive of the experiment `postmark-vendors`.
//!
//!     cargo run --release --manifest-path benches/Cargo.toml --example fit_vendors [VENDOR...]
//!
//! The write path is fitted on Creation_alone/s and the read path on Transactions/s, both without discard;
//! then the time of a TRIM command on Transactions/s with discard. All three on the buffered columns, and on
//! nothing else. Where discard did not slow a drive down, its TRIM takes no time. The result is printed as
//! the lines of a profile.

use trimwise::compare::cell::{CellError, run_in_turn};
use trimwise::profile::Profile;
use trimwise_lab::experiment::postmark_vendors::{Column, DEVICES, Means, spec};

/// Repetitions of each trial: means over some phases of the commit timer.
const REPS: u32 = 3;
const ROUNDS: u32 = 7;

fn measure(profile: &Profile, device: &'static str, discard: bool) -> Result<Means, CellError> {
    let column = Column { device, buffering: true, discard };
    Ok(Means::of(&run_in_turn(&spec(column, profile, 1), REPS, &|| ())?))
}

fn scale(value: u64, factor: f64) -> u64 {
    (value as f64 * factor.clamp(0.05, 20.0)).round() as u64
}

fn fit(device: &'static str) -> Result<(), CellError> {
    let mut profile = Profile::embedded(device).expect("the six drives are built in");
    let target = |discard| Means::published(Column { device, buffering: true, discard });
    let (off, on) = (target(false), target(true));
    for _ in 0..ROUNDS {
        let m = measure(&profile, device, false)?;
        let creation = off.creation_alone_per_s() / m.creation_alone_per_s();
        let transactions = off.transactions_per_s() / m.transactions_per_s();
        let controller = &mut profile.config.controller;
        controller.write_bytes_per_s = controller.write_bytes_per_s.map(|rate| scale(rate, creation));
        controller.read_overhead_ns = scale(controller.read_overhead_ns, transactions.powf(-1.3));
    }
    // The time that discard adds to a transaction is nearly proportional to the time of a TRIM.
    let free = {
        profile.config.trim.cost_per_command_ns = 0;
        measure(&profile, device, true)?.transactions_per_s()
    };
    if on.transactions_per_s() < free {
        profile.config.trim.cost_per_command_ns = 1_000_000;
        for _ in 0..ROUNDS {
            let m = measure(&profile, device, true)?;
            let added = |rate: f64| (1.0 / rate - 1.0 / free).max(1e-9);
            let factor = added(on.transactions_per_s()) / added(m.transactions_per_s());
            profile.config.trim.cost_per_command_ns = scale(profile.config.trim.cost_per_command_ns, factor);
        }
    }
    let (m_off, m_on) = (measure(&profile, device, false)?, measure(&profile, device, true)?);
    println!("{device}:");
    println!("  controller.write_bytes_per_s = {}", profile.config.controller.write_bytes_per_s.unwrap_or(0));
    println!("  controller.read_overhead_ns = {}", profile.config.controller.read_overhead_ns);
    println!("  trim.cost_per_command_ns = {}", profile.config.trim.cost_per_command_ns);
    for (what, m, p) in [("nodiscard", m_off, off), ("discard", m_on, on)] {
        println!(
            "  {what}: creation {:.1}/s of {:.1}, transactions {:.2}/s of {:.2}, deletion {:.1} s of {:.1}",
            m.creation_alone_per_s(),
            p.creation_alone_per_s(),
            m.transactions_per_s(),
            p.transactions_per_s(),
            m.deletion_s,
            p.deletion_s
        );
    }
    Ok(())
}

fn main() -> Result<(), CellError> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    for device in DEVICES {
        if wanted.is_empty() || wanted.iter().any(|w| w == device) {
            fit(device)?;
        }
    }
    Ok(())
}
