//! `judicious` against the policies that were published, on PostMark with the six vendors' drives: total time and
//! the worst 99th percentile of its operations, as ratios to the best of the others.

use trimwise::compare::cell::run_in_turn;
use trimwise::compare::result::Cell;
use trimwise::compare::statistics::median;
use trimwise::policy::PolicySpec;
use trimwise::profile::Profile;
use trimwise_lab::experiment::postmark_vendors::{self, Column};

/// The others, all of which somebody published or ships.
const PUBLISHED: [&str; 6] = ["off", "commit", "set:40:90", "lazy", "lazy+reuse", "kernel515"];

fn figures(runs: &[Cell]) -> (f64, f64) {
    let total: Vec<f64> = runs.iter().map(|run| run.duration_ns as f64).collect();
    let worst = |run: &Cell| run.latency.values().map(|l| l.p99_ns).max().unwrap_or(0) as f64;
    let p99: Vec<f64> = runs.iter().map(worst).collect();
    (median(&total).unwrap_or(0.0), median(&p99).unwrap_or(0.0))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let reps = std::env::args().nth(1).map_or(Ok(3), |n| n.parse())?;
    for device in postmark_vendors::DEVICES {
        for buffering in [true, false] {
            let profile = Profile::embedded(device).ok_or("unknown device")?;
            let run = |policy: PolicySpec| {
                let column = Column { device, buffering, discard: false };
                let spec = postmark_vendors::spec(column, &profile, 1);
                let runs = run_in_turn(
                    &trimwise::compare::cell::CellSpec { policy: policy.into(), ..spec },
                    reps,
                    &|| (),
                )?;
                Ok::<_, Box<dyn std::error::Error>>(figures(&runs))
            };
            let judicious = run(PolicySpec::JUDICIOUS)?;
            print!(
                "{device} buffering {buffering}: judicious {:.2} s, p99 {:.3} ms;",
                judicious.0 / 1e9,
                judicious.1 / 1e6
            );
            for policy in PUBLISHED {
                let (total, p99) = run(policy.parse()?)?;
                print!(" {policy} {:.3} {:.3};", judicious.0 / total, judicious.1 / p99);
            }
            println!();
        }
    }
    Ok(())
}
