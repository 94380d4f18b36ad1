//! scratch
use trimwise::experiment::cell::*;
use trimwise::fs::host::*;
use trimwise::fs::layout::*;
use trimwise::policy::PolicySpec;
use trimwise::ssd::*;
use trimwise::units::*;
use trimwise::workload::postmark::PostmarkConfig;
fn arg<T: std::str::FromStr>(name: &str, d: T) -> T {
    std::env::args()
        .find_map(|a| a.strip_prefix(&format!("{name}=")).and_then(|v| v.parse().ok()))
        .unwrap_or(d)
}
fn main() {
    let mut ssd = SsdConfig::default();
    ssd.capacity_bytes = 60_000_000_000;
    ssd.geometry.channels = 10;
    ssd.geometry.dies_per_channel = 1;
    ssd.geometry.superblock_planes = 20;
    ssd.link.bytes_per_s = 270_000_000;
    ssd.nand.bus_bytes_per_s = 40_000_000;
    ssd.controller.write_bytes_per_s = Some(arg("write", 100_000_000));
    ssd.controller.read_overhead_ns = arg("read", 300_000);
    ssd.trim.cost_per_command_ns = arg("trim", 70_000_000);
    let mut host = HostConfig::modern();
    host.discard = DiscardGeneration::CommitSerial;
    host.memory = Bytes::mib(arg("mem", 2048));
    host.queue.max_request = Bytes::kib(512);
    host.cpu.unlink = SimDuration::from_micros(arg("unlink_us", 50));
    host.cpu.page_truncate = SimDuration::from_nanos(300);
    host.cpu.page_write = SimDuration::from_nanos(3000);
    host.cpu.copy_page = SimDuration::from_nanos(1000);
    host.queue.background_depth = arg("bg", 8);
    host.queue.background_ramp = Some(SimDuration::from_millis(arg("ramp", 100)));
    host.queue.starvation_limit = arg("starve", 16);
    let n: u32 = arg("number", 50000);
    let spec = CellSpec {
        device: "x".into(),
        ssd,
        policy: arg("policy", PolicySpec::Off),
        workload: PostmarkConfig {
            number: n,
            transactions: n,
            size_low: 1000,
            size_high: 200000,
            read_block: 4096,
            write_block: 4096,
            buffering: true,
            ..PostmarkConfig::default()
        },
        host,
        format: FormatOptions { journal: Some(Bytes::mib(arg("journal", 128))), discard: true },
        utilization_percent: None,
        rep: arg("rep", 0),
        seed: 1,
    };
    let t = std::time::Instant::now();
    let run = run_cell(&spec, |_| ()).unwrap();
    let p = &run.cell.postmark;
    let d = run.cell.device_stats.as_ref().unwrap();
    println!(
        "{} C {:.1} ({:.1}/s) T {:.1} ({:.2}/s) D {:.2} total {:.1} WA {:.3} trims {} host {} wall {:?}",
        spec.policy,
        p.creation_alone_s,
        p.creation_alone_per_s,
        p.transactions_s,
        p.transactions_per_s,
        p.deletion_alone_s,
        p.total_s,
        d.write_amplification,
        d.trim_commands,
        d.host_units_written,
        t.elapsed()
    );
}
