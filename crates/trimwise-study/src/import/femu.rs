//! FEMU's black-box drive (Li et al., FEMU, FAST 2018; github.com/MoatLab/FEMU): the options of `-device femu`, in a
//! command line or in a script such as `run-blackbox.sh`.
//!
//! FEMU erases *lines*: a block of each plane of all chips. It has no cache, and no limit of the link unless one is
//! given. It is the only one of the simulators with a cost of TRIM.

use toml::Value;
use trimwise::failure::Failure;
use trimwise::ssd::VictimPolicy;
use trimwise::units::UNIT_BYTES;

use super::draft::{NS_MAX, RATE_MAX};
use super::foreign::{Foreign, Parameter};
use super::{Draft, Unused};

/// Finds the options; `None` if there are none. Variables of the script (`name=value` at the beginning of a line)
/// replace `$name`, `${name}` and `${name:-default}`.
pub(super) fn parameters(text: &str) -> Option<Vec<Parameter>> {
    let assignment = |line: &str| {
        let (name, value) = line.trim_start().split_once('=')?;
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let value = value.split('#').next().unwrap_or_default().trim().trim_matches(['"', '\'']);
        is_name.then(|| (name.to_owned(), value.to_owned()))
    };
    let mut variables = Vec::new();
    for (name, value) in text.lines().filter_map(assignment) {
        let value = resolved(&value, &variables);
        variables.push((name, value));
    }
    let is_meant = |line: &&str| line.contains("femu,") || line.contains("FEMU_OPTIONS=");
    let mut parameters = Vec::new();
    let is_comment = |line: &str| line.trim_start().starts_with('#');
    for (number, line) in text.lines().enumerate().filter(|(_, line)| is_meant(line) && !is_comment(line)) {
        for option in line.split(',').skip(1) {
            let option = option.split([' ', '"', '\'', '\\']).next().unwrap_or_default();
            if let Some((name, value)) = option.split_once('=') {
                parameters.push(Parameter {
                    name: name.to_owned(),
                    value: resolved(value, &variables),
                    line: number + 1,
                });
            }
        }
    }
    (!parameters.is_empty()).then_some(parameters)
}

/// Resolves `$name`, `${name}` and `${name:-default}`. Other values are returned unchanged.
fn resolved(value: &str, variables: &[(String, String)]) -> String {
    let Some(name) = value.strip_prefix('$') else { return value.to_owned() };
    let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
    let (name, default) = match name.split_once(['-', '=']) {
        Some((name, default)) => (name.trim_end_matches(':'), Some(default)),
        None => (name, None),
    };
    let known = variables.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let found = known.filter(|known| !known.is_empty() || default.is_none()).or(default);
    found.unwrap_or(value).to_owned()
}

/// Makes a profile. The error lists everything that is wrong.
pub(super) fn draft(mut from: Foreign) -> Result<(Draft, Vec<Unused>), Failure> {
    let mut draft = Draft::default();
    from.word("femu_mode", &[("1", ())]);
    // Missing options have FEMU's defaults (hw/femu/femu.c).
    let mut or = |name: &str, usual: u64, most: u64| from.number_or(name, usual, 0..=most);
    let page_bytes = or("secsz", 512, 4096) * or("secs_per_pg", 8, 2048);
    let (pages, blocks) = (or("pgs_per_blk", 256, 65_536), or("blks_per_pl", 256, 1 << 24));
    let (planes, luns, channels) =
        (or("pls_per_lun", 1, 64), or("luns_per_ch", 8, 1024), or("nchs", 8, 1024));
    let [read, program, erase] = [("pg_rd_lat", 40_000), ("pg_wr_lat", 200_000), ("blk_er_lat", 2_000_000)]
        .map(|(name, ns)| or(name, ns, NS_MAX));
    let transfer = or("pg_xfer_lat", 0, NS_MAX);
    let (trim, firmware) = (or("trim_lat_ns", 0, NS_MAX), or("fw_cpu_ns", 0, NS_MAX));
    let megabytes_per_s = or("pcie_bandwidth_mbps", 0, 1 << 20);
    let high = or("gc_thres_pcent_high", 95, 100);
    let entries = or("entries", 2047, 65_536);
    let (megabytes, spare) = (or("devsz_mb", 1024, 1 << 30), or("op_pcent", 0, 1000));

    let flash = [luns, planes, blocks, pages, page_bytes].iter().fold(channels, |a, b| a.saturating_mul(*b));
    let (capacity, source) = match spare {
        0 => (megabytes << 20, "devsz_mb"),
        _ => (
            (u128::from(flash) * 100 / u128::from(100 + spare)) as u64 / UNIT_BYTES * UNIT_BYTES,
            "the flash; op_pcent % of it are spare",
        ),
    };
    draft.number("capacity_bytes", capacity, source);
    draft.number("geometry.channels", channels, "nchs");
    draft.number("geometry.dies_per_channel", luns, "luns_per_ch");
    draft.number("geometry.planes_per_die", planes, "pls_per_lun");
    draft.number("geometry.blocks_per_plane", blocks, "blks_per_pl");
    draft.number("geometry.pages_per_block", pages, "pgs_per_blk");
    draft.number("geometry.page_bytes", page_bytes, "secsz times secs_per_pg");
    draft.number(
        "geometry.superblock_planes",
        channels * luns * planes,
        "FEMU's line: a block of every plane",
    );
    draft.number("nand.t_read_ns", read, "pg_rd_lat");
    draft.number("nand.t_prog_ns", program, "pg_wr_lat");
    draft.number("nand.t_erase_ns", erase, "blk_er_lat");
    let (rate, source) = match transfer {
        0 => (RATE_MAX, "pg_xfer_lat is 0: no limit"),
        ns => (
            (page_bytes * 1_000_000_000 / ns).clamp(100_000, RATE_MAX),
            "a page in pg_xfer_lat, though FEMU of August 2026 has this phase switched off",
        ),
    };
    draft.number("nand.bus_bytes_per_s", rate, source);
    draft.assume(&[("nand.endurance_cycles", 3000.into())], "FEMU counts no wear");
    draft.set("link.kind", "nvme", "FEMU is an NVMe drive");
    let (rate, source) = match megabytes_per_s {
        0 => (RATE_MAX, "pcie_bandwidth_mbps is 0: no limit"),
        rate => (rate * 1_000_000, "pcie_bandwidth_mbps"),
    };
    draft.number("link.bytes_per_s", rate, source);
    draft.number("link.overhead_per_command_ns", 0, "FEMU adds none; its own time is the host's");
    draft.number("link.queue_depth", (entries + 1).min(65_536), "entries");
    for name in ["controller.read_overhead_ns", "controller.write_overhead_ns"] {
        draft.number(name, firmware, "fw_cpu_ns");
    }
    let none = "FEMU has no cache: a write takes the program's time";
    draft.number("cache.bytes", 0, none);
    draft.set("cache.volatile", false, none);
    draft.number("cache.flush_ns", 0, none);
    draft.victim(VictimPolicy::Greedy, "the line with the fewest valid pages");
    draft.set(
        "gc.shared_frontier",
        false,
        "FEMU writes copies and new data to one line in older versions, to two now",
    );
    draft.number("gc.host_frontiers", 1, "one open line");
    let free = blocks * (100 - high) / 100;
    draft.number(
        "gc.free_superblocks_min",
        free.max(2),
        "gc_thres_pcent_high: the lines that are free when writes wait",
    );
    draft.without_idle_collection("FEMU collects after commands");
    draft.assume(&[("wear_levelling.interval_erases", Value::from(64))], "FEMU levels no wear");
    let own: [(_, Value, _); 6] = [
        ("trim.cost_per_command_ns", 0.into(), "FEMU counts ranges"),
        ("trim.cost_per_range_ns", (trim as i64).into(), "trim_lat_ns"),
        ("trim.cost_per_unit_ns", 0.into(), "FEMU counts ranges"),
        ("trim.place", "before_ack".into(), "FEMU delays the command itself"),
        ("trim.slowdown_percent", 0.into(), "FEMU delays the command itself"),
        ("trim.read_after", "zeros".into(), "FEMU clears what is deallocated"),
    ];
    draft.assume_trim("FEMU takes any NVMe command", &own);
    draft.mark_defaults(&from.missing, "FEMU");
    Ok((draft, from.finish(&WITHOUT_COUNTERPART)?))
}

const WITHOUT_COUNTERPART: [(&str, &str); 13] = [
    ("ch_xfer_lat", "FEMU does not use it"),
    ("cmd_addr_lat", "FEMU does not use it"),
    ("status_lat", "FEMU does not use it"),
    ("nand_cell_type", "with it FEMU takes times of its own instead of pg_rd_lat, pg_wr_lat and blk_er_lat"),
    ("gc_thres_pcent", "from there on FEMU collects lines of which an eighth is stale; here one threshold"),
    ("namespaces", "one namespace"),
    ("queues", "one queue"),
    ("multipoller_enabled", "FEMU's own speed"),
    ("poller_ratio", "FEMU's own speed"),
    ("serial", "a name"),
    ("id", "a name"),
    ("err_*", "no errors are injected"),
    ("mdts", "commands have no longest data"),
];
