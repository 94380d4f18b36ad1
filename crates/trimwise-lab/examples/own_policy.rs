//! A policy of your own: compared with `off` and `commit` on the model, and attacked by power cuts.
//!
//! `cargo run --release -p trimwise-lab --example own_policy`

use std::error::Error;

use trimwise::compare::cell::{CellSpec, run_cell};
use trimwise::compare::result::Cell;
use trimwise::policy::{
    Availability, Decision, DiscardGeneration, Governor, Policy, PolicyEvent, PolicySpec, Shape, View,
};
use trimwise::profile::Profile;
use trimwise::units::Bytes;
use trimwise::workload::postmark::PostmarkConfig;
use trimwise_lab::crash::CrashTest;

/// Waits until 1 MiB is freed, then issues one command at a time until all is trimmed.
struct Heap {
    is_emptying: bool,
}

impl Governor for Heap {
    fn availability(&self, _: DiscardGeneration) -> Availability {
        Availability::Reuse
    }

    fn on_event(&mut self, _: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>) {
        self.is_emptying = view.pending_units >= if self.is_emptying { 1 } else { 256 };
        if self.is_emptying && view.in_flight == 0 {
            decisions.push(Decision::Issue(Shape::NEXT));
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let heap = Policy::new("heap", || Box::new(Heap { is_emptying: false }));
    let mut drive = Profile::embedded("sata-small").ok_or("no such profile")?;
    drive.config.capacity_bytes = Bytes::gib(1).0;
    let (number, transactions, size_high) = (1_000, 20_000, 100_000);
    let workload = PostmarkConfig { number, transactions, size_high, ..PostmarkConfig::default() };
    for policy in [PolicySpec::OFF.into(), PolicySpec::COMMIT.into(), heap.clone()] {
        let mut spec = CellSpec::new(drive.clone(), policy, workload.clone());
        spec.host.memory = Bytes::mib(32); // so little that the files do not stay in it
        let Cell { policy, duration_ns, device_stats, .. } = run_cell(&spec, Box::new(|_| ()))?;
        let device = device_stats.ok_or("no device")?;
        let (ms, trims) = (duration_ns / 1_000_000, device.trim_commands);
        println!("{policy}: {ms} ms, write amplification {:.2}, {trims} TRIMs", device.write_amplification);
    }
    let report = CrashTest { policy: heap, seed: 1, cuts: 500 }.run()?;
    println!("{} power cuts, {} TRIMs, {} violations", report.cuts, report.trims, report.violations);
    if report.violations == 0 { Ok(()) } else { Err("it loses data".into()) }
}
