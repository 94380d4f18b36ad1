//! Invented cells: plausible and deterministic.

use std::collections::BTreeMap;

use trimwise::compare::ledger::{CellLedger, compare_with_off};
use trimwise::compare::result::Target;
use trimwise::compare::result::{
    BlockMap, BlockShares, Cell, DeviceFigures, PostmarkFigures, QUANTILES, TimelineSample, WorkloadFigures,
};
use trimwise::policy::Ledger;
use trimwise::units::SimDuration;
use trimwise::workload::latency::{LatencySummary, Operation};

use trimwise_study::compare::Mounted;

/// Invents a cell as the model would return it.
pub fn cell(device: &str, policy: &str, rep: u32, seconds: f64) -> Cell {
    let ns = |s: f64| (s * 1e9) as u64;
    let (stale, wa, trims, erases) = match policy {
        "off" => (900_000, 2.4, 0, 14_200),
        "commit" => (1_200, 1.35, 181_234, 8_100),
        _ => (0, 1.31, 0, 7_950),
    };
    let trim_ns = if policy == "commit" { ns(seconds * 0.3) } else { 0 };
    let mut latency = BTreeMap::new();
    let mut latency_quantiles_ns = BTreeMap::new();
    for (i, operation) in Operation::ALL.into_iter().enumerate().take(4) {
        let base = 20_000.0 * (i + 1) as f64 * seconds;
        let quantiles: Vec<u64> =
            QUANTILES.iter().enumerate().map(|(q, _)| (base * 2f64.powi(q as i32)) as u64).collect();
        let summary = LatencySummary {
            count: 50_000,
            p50_ns: quantiles[3],
            p99_ns: quantiles[7],
            p999_ns: quantiles[9],
            max_ns: quantiles[11],
        };
        latency.insert(operation.name().into(), summary);
        latency_quantiles_ns.insert(operation.name().into(), quantiles);
    }
    let timeline = (0..=50u64)
        .map(|i| TimelineSample {
            at_ns: ns(seconds) * i / 50,
            stale_units: stale * i / 50,
            host_units_written: 42_000 * i,
            nand_units_written: (42_000.0 * wa) as u64 * i,
            gc_units_copied: Some((42_000.0 * (wa - 1.0)) as u64 * i),
            trim_busy_ns: Some(trim_ns * i / 50),
        })
        .collect();
    let busy = [
        ("link", 0.2),
        ("host_writes", 0.45),
        ("host_reads", 0.08),
        ("gc", 0.2 * (wa - 1.0)),
        ("erase", 0.05),
        ("flush", 0.02),
    ];
    let mut busy_ns: BTreeMap<std::borrow::Cow<'static, str>, u64> =
        busy.into_iter().map(|(cause, share)| (cause.into(), ns(seconds * share))).collect();
    busy_ns.insert("trim".into(), trim_ns);
    Cell {
        device: device.into(),
        policy: policy.into(),
        target: Target::Model,
        judged: None,
        drive: None,
        discard: None,
        postmark_report: String::new(),
        rep,
        duration_ns: ns(seconds),
        days: None,
        workload: WorkloadFigures::Postmark(PostmarkFigures {
            total_s: seconds,
            transactions_s: seconds * 0.62,
            creation_alone_s: seconds * 0.3,
            deletion_alone_s: seconds * 0.08,
            created: 74_761,
            creation_alone: 50_000,
            created_mixed: 24_761,
            read: 24_974,
            appended: 25_025,
            deleted: 74_761,
            deletion_alone: 49_522,
            deleted_mixed: 25_239,
            bytes_read: 2_753_016_550,
            bytes_written: 8_615_456_523,
            out_of_files: false,
            transactions_per_s: 50_000.0 / (seconds * 0.62),
            creation_alone_per_s: 50_000.0 / (seconds * 0.3),
            deletion_alone_per_s: 49_522.0 / (seconds * 0.08),
        }),
        deletions: None,
        ledger: Some(ledger(policy, trim_ns, ns(seconds))),
        device_stats: Some(DeviceFigures {
            host_units_written: 2_103_000,
            nand_units_written: (2_103_000.0 * wa) as u64,
            write_amplification: wa,
            trim_commands: trims,
            trim_ranges: trims,
            trimmed_units: trims * 11,
            erases,
            erase_count_min: 0,
            erase_count_mean: 1.0,
            erase_count_max: 2,
            gc_units_copied: (2_103_000.0 * (wa - 1.0)) as u64,
            folded_units: 0,
            map_units_written: 0,
            map_lookups_missed: 0,
            stale_units_max: Some(stale),
            stale_units_mean: Some(stale as f64 / 2.0),
            stale_units_end: Some(stale / 2),
            busy_ns,
            timeline,
            blocks: Some(BlockMap {
                superblocks: 6,
                before: shares(0),
                after: shares(stale as u16 % 1000 / 2),
            }),
            thin: None,
        }),
        latency,
        latency_quantiles_ns,
    }
}

/// Invents the shares of three groups of blocks.
fn shares(stale: u16) -> BlockShares {
    BlockShares {
        in_use_permille: vec![500, 250, 0],
        stale_permille: vec![stale, stale / 2, 0],
        invalid_permille: vec![0, 250, 1000],
    }
}

/// Invents a ledger that suits the policy.
fn ledger(policy: &str, trim_ns: u64, passed_ns: u64) -> CellLedger {
    let freed = 2_000_000;
    let units = match policy {
        "off" => Ledger { freed, dropped: freed, ..Ledger::default() },
        "commit" => {
            Ledger { freed, issued: freed - 1_234, pending: 1_000, in_tokens: 234, ..Ledger::default() }
        }
        "lazy+reuse" => Ledger { freed, issued: freed / 4, reused: freed / 4 * 3, ..Ledger::default() },
        _ => Ledger { freed, issued: freed, ..Ledger::default() },
    };
    CellLedger::new(units, trim_ns, SimDuration::from_nanos(passed_ns))
}

/// Invents the mount of a real directory.
pub fn mounted() -> Mounted {
    Mounted { point: Some("/mnt".into()), file_system: Some("ext4".into()), policy: "discard".into() }
}

/// Invents the cells of `off`, `commit` and `ideal` on each device.
pub fn cells(devices: &[&str], reps: u32, noisy: bool) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (d, device) in devices.iter().enumerate() {
        for (policy, seconds) in [("off", 182.4), ("commit", 212.1 - 60.0 * d as f64), ("ideal", 120.0)] {
            cells.extend((0..reps).map(|rep| cell(device, policy, rep, seconds * spread(rep, noisy))));
        }
    }
    compare_with_off(&mut cells);
    cells
}

pub fn spread(rep: u32, noisy: bool) -> f64 {
    if noisy { 1.0 + 0.004 * f64::from(rep * 7 % 5) } else { 1.0 }
}
