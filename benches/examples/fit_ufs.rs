//! Fits the two numbers of TRIM of the Lazy TRIM paper's storage, the profile `ufs21-64gb`.
//!
//!     cargo run --release --manifest-path benches/Cargo.toml --example fit_ufs
//!
//! `trim.cost_per_command_ns`, which occupies the device, on the 840 ms for which a write waits under lazy TRIM (table II);
//! `trim.latency_per_command_ns`, in which commands overlap, on the 0.40 of traditional's time in which all TRIMs are
//! issued at best (figure 4, at appends of 64 KiB). On nothing else: the other figures are checks. The result is printed
//! as the lines of a profile.

use trimwise::compare::cell::CellError;
use trimwise::policy::PolicySpec;
use trimwise::ssd::SsdConfig;
use trimwise::units::Bytes;
use trimwise_lab::experiment::lazy::{device, host, run_size, run_write};

const WRITE_MS: f64 = 840.0;
const RATIO: f64 = 0.40;
/// Both answers are nearly linear in their number.
const ROUNDS: u32 = 4;
const SEED: u64 = 1;

fn write_ms(ssd: &SsdConfig, lazy: PolicySpec) -> Result<f64, CellError> {
    Ok(run_write(host(), ssd, lazy, true, 0, SEED)?.took.as_nanos() as f64 / 1e6)
}

/// Time of traditional and of lazy for all TRIMs, nanoseconds, and how many there are.
fn issue_ns(ssd: &SsdConfig, lazy: PolicySpec) -> Result<(f64, f64, f64), CellError> {
    let run = |policy| run_size(host(), ssd, policy, Bytes::kib(64), 0, SEED).map(|run| run.issue);
    let (traditional, lazy) = (run(PolicySpec::COMMIT)?, run(lazy)?);
    let ns = |issue: trimwise_lab::experiment::lazy::Issue| issue.time.as_nanos() as f64;
    Ok((ns(traditional), ns(lazy), traditional.commands as f64))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let lazy: PolicySpec = "lazy".parse()?;
    let mut ssd = device();
    ssd.trim.cost_per_command_ns = 50_000;
    ssd.trim.latency_per_command_ns = 50_000;
    for _ in 0..ROUNDS {
        let cost = ssd.trim.cost_per_command_ns as f64;
        ssd.trim.cost_per_command_ns = (cost * WRITE_MS / write_ms(&ssd, lazy)?).round() as u64;
        let (traditional, parallel, commands) = issue_ns(&ssd, lazy)?;
        // One by one each command takes its latency as well: what is missing to the ratio is missing there.
        let missing = (parallel / RATIO - traditional) / commands;
        let latency = ssd.trim.latency_per_command_ns as f64 + missing;
        ssd.trim.latency_per_command_ns = latency.max(0.0).round() as u64;
    }
    let (traditional, parallel, _) = issue_ns(&ssd, lazy)?;
    println!("trim.cost_per_command_ns = {}", ssd.trim.cost_per_command_ns);
    println!("trim.latency_per_command_ns = {}", ssd.trim.latency_per_command_ns);
    println!("  write {:.1} ms of {WRITE_MS}", write_ms(&ssd, lazy)?);
    println!("  issue time {:.4} of {RATIO} of traditional's", parallel / traditional);
    Ok(())
}
