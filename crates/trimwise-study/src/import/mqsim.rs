//! MQSim's `ssdconfig.xml` (Tavakkol et al., MQSim, FAST 2018; github.com/CMU-SAFARI/MQSim).
//!
//! Every plane of MQSim has a pool of free blocks, a block that the host fills and a block for copies. The profile has
//! a superblock of one plane, and as many open ones as there are planes. Missing parameters have MQSim's defaults
//! (`src/exec/*_Parameter_Set.cpp`).

use roxmltree::Document;
use trimwise::failure::{Failure, Mistake};
use trimwise::ssd::VictimPolicy;
use trimwise::units::{SECTOR_BYTES, UNIT_BYTES};

use super::draft::{NS_MAX, RATE_MAX};
use super::foreign::{self, Foreign, Parameter};
use super::{Draft, Unused};

/// Parses a text; `None` if it is not XML.
///
/// # Errors
///
/// If it is some other XML.
pub(super) fn document<'a>(text: &'a str, file: &str) -> Result<Option<Document<'a>>, Failure> {
    if !text.trim_start_matches('\u{feff}').trim_start().starts_with('<') {
        return Ok(None);
    }
    let document = foreign::parsed(text, file)?;
    let expected = "Execution_Parameter_Set, as in MQSim's ssdconfig.xml";
    let of = Mistake::of("import", file);
    match document.root_element().tag_name().name() {
        // The second is that of a rewritten one, github.com/Sungup/MQSim.
        "Execution_Parameter_Set" | "ExecParameterSet" => Ok(Some(document)),
        "MQSim_IO_Scenarios" => {
            let why = "a workload of MQSim, not a drive; `trimwise workloads --import` makes a job of it";
            Err(of.because(why).fail())
        }
        "MQSim_Results" => Err(of.because("the results of a run of MQSim").expected(expected).fail()),
        other => Err(of.because(format!("XML with the root '{other}'")).expected(expected).fail()),
    }
}

pub(super) fn parameters(document: &Document) -> Vec<Parameter> {
    let leaves = document.root_element().descendants();
    let leaves = leaves.filter(|node| node.is_element() && !node.children().any(|child| child.is_element()));
    leaves.map(Parameter::of).collect()
}

/// Makes a profile. The error lists everything that is wrong.
pub(super) fn draft(mut from: Foreign) -> Result<(Draft, Vec<Unused>), Failure> {
    let mut draft = Draft::default();
    let channels = from.number_or("Flash_Channel_Count", 8, 1..=1024_u64);
    let chips = from.number_or("Chip_No_Per_Channel", 4, 1..=1024_u64);
    let dies = from.number_or("Die_No_Per_Chip", 2, 1..=1024_u64);
    let planes_per_die = from.number_or("Plane_No_Per_Die", 2, 1..=64_u64);
    let blocks = from.number_or("Block_No_Per_Plane", 2048, 1..=1_u64 << 24);
    let pages = from.number_or("Page_No_Per_Block", 256, 1..=65_536_u64);
    let page_bytes = from.number_or("Page_Capacity", 8192, 1..=1_u64 << 20);
    let planes = channels * chips * dies * planes_per_die;
    let spare = from.number_or("Overprovisioning_Ratio", 0.07, 0.0..=0.99);
    let physical = planes.saturating_mul(blocks).saturating_mul(pages).saturating_mul(page_bytes);
    let capacity = (physical as f64 * (1.0 - spare)) as u64 / UNIT_BYTES * UNIT_BYTES;
    draft.number("capacity_bytes", capacity, "the flash minus the share Overprovisioning_Ratio");

    draft.number("geometry.channels", channels, "Flash_Channel_Count");
    draft.number("geometry.dies_per_channel", chips * dies, "Chip_No_Per_Channel times Die_No_Per_Chip");
    draft.number("geometry.planes_per_die", planes_per_die, "Plane_No_Per_Die");
    draft.number("geometry.blocks_per_plane", blocks, "Block_No_Per_Plane");
    draft.number("geometry.pages_per_block", pages, "Page_No_Per_Block");
    draft.number("geometry.page_bytes", page_bytes, "Page_Capacity");
    draft.number("geometry.superblock_planes", 1, "MQSim erases single blocks");

    let kinds = [("SLC", &["LSB"][..]), ("MLC", &["LSB", "MSB"]), ("TLC", &["LSB", "CSB", "MSB"])];
    let bits = from.word_or("Flash_Technology", kinds[1].1, &kinds);
    let operations = [("nand.t_read_ns", "Page_Read", 75_000), ("nand.t_prog_ns", "Page_Program", 750_000)];
    for (name, operation, usual) in operations {
        let times = bits.iter().map(|bit| {
            let name = format!("{operation}_Latency_{bit}");
            let time = from.number_or(&name, usual, 1..=NS_MAX);
            (name, time)
        });
        draft.page_time(name, &times.collect::<Vec<_>>(), 1, "Flash_Technology");
    }
    draft.number(
        "nand.t_erase_ns",
        from.number_or("Block_Erase_Latency", 3_800_000, 1..=NS_MAX),
        "Block_Erase_Latency",
    );
    let rate = from.number_or("Channel_Transfer_Rate", 300, 1..=1_000_000_u64);
    let width = from.number_or("Flash_Channel_Width", 1, 1..=8_u64);
    let (rate, source) = match (width * 1_000_000_000).checked_div(1000 / rate) {
        Some(rate) => {
            (rate, "Flash_Channel_Width in 1000 / Channel_Transfer_Rate ns, which MQSim rounds down")
        }
        None => (RATE_MAX, "1000 / Channel_Transfer_Rate is below 1 ns, which MQSim rounds down: no limit"),
    };
    draft.number("nand.bus_bytes_per_s", rate, source);
    let cycles = from.number_or("Block_PE_Cycles_Limit", 10_000, 1..=100_000_000_u64);
    draft.number("nand.endurance_cycles", cycles, "Block_PE_Cycles_Limit");

    let nvme = (false, "nvme");
    let (sata, link) = from.word_or("HostInterface_Type", nvme, &[("NVME", nvme), ("SATA", (true, "sata"))]);
    draft.set("link.kind", link, "HostInterface_Type");
    let lane = from.number_or("PCIe_Lane_Bandwidth", 0.4, 0.001..=100.0);
    let lanes = from.number_or("PCIe_Lane_Count", 4, 1..=64_u64);
    let source = "PCIe_Lane_Bandwidth times PCIe_Lane_Count";
    draft.number("link.bytes_per_s", (lane * 1e9 * lanes as f64) as u64, source);
    let delay = from.number_if("SATA_Processing_Delay", 0..=NS_MAX).filter(|_| sata).unwrap_or(0);
    let source = if sata { "SATA_Processing_Delay" } else { "MQSim has none with NVMe" };
    draft.number("link.overhead_per_command_ns", delay, source);
    let depth = from.number_or("IO_Queue_Depth", 1024, 1..=65_536_u64);
    draft.number("link.queue_depth", if sata { depth.min(32) } else { depth }, "IO_Queue_Depth");
    for name in ["controller.read_overhead_ns", "controller.write_overhead_ns"] {
        draft.number(name, 0, "MQSim's controller takes no time");
    }

    let cache = from.number_or("Data_Cache_Capacity", 512 << 20, 0..=1_u64 << 40);
    let least = 2 * page_bytes.max(UNIT_BYTES) * planes;
    let (cache, source) = match cache {
        0 => (0, "Data_Cache_Capacity".to_owned()),
        _ if cache < least => {
            (least, format!("Data_Cache_Capacity is {cache}; two pages of each plane are the least"))
        }
        _ => (cache, "Data_Cache_Capacity; used for writes, as WRITE_CACHE of a flow".to_owned()),
    };
    draft.number("cache.bytes", cache, source);
    draft.assume(&[("cache.volatile", true.into()), ("cache.flush_ns", 0.into())], "MQSim has no flush");

    if !from.word_or("Ideal_Mapping_Table", false, &[("false", false), ("true", true)]) {
        let bytes = from.number_or("CMT_Capacity", 2 << 20, 1..=1_u64 << 40);
        draft.set("mapping.kind", "page", "Address_Mapping");
        let all_pages = planes as f64 * blocks as f64 * pages as f64;
        let entry_bytes = ((2.0 * all_pages.log2() + (page_bytes / SECTOR_BYTES) as f64) / 8.0).ceil();
        let covered_units = bytes as f64 / entry_bytes * page_bytes as f64 / UNIT_BYTES as f64;
        // An entry has four bytes, so a unit of the map holds the places of 1,024 units.
        let bytes = ((covered_units * 4.0) as u64).clamp(UNIT_BYTES, 1 << 40);
        let source = format!(
            "the map of as much of the drive as CMT_Capacity covers, of {entry_bytes} bytes for each page in MQSim; here \
             four for each 4 KiB"
        );
        draft.number("mapping.map_cache_bytes", bytes, source);
    }
    from.word_or("Address_Mapping", (), &[("PAGE_LEVEL", ())]);

    let victims = [
        ("RGA", VictimPolicy::DChoices(blocks.ilog2().max(1))),
        ("GREEDY", VictimPolicy::Greedy),
        ("RANDOM", VictimPolicy::Random),
        ("RANDOM_P", VictimPolicy::DChoices(1)),
        ("RANDOM_PP", VictimPolicy::DChoices(1)),
        ("FIFO", VictimPolicy::Fifo),
    ];
    let victim = from.word_or("GC_Block_Selection_Policy", victims[0].1, &victims);
    draft.victim(
        victim,
        "GC_Block_Selection_Policy, among full blocks; RGA: the best of log2(blocks of a plane)",
    );
    draft.set("gc.shared_frontier", false, "MQSim keeps copies apart from new data");
    draft.frontiers(planes, "one open block in each plane");
    let threshold = from.number_or("GC_Exec_Threshold", 0.05, 0.0..=1.0);
    let free = ((threshold * blocks as f64) as u64).max(1) * planes;
    draft.number("gc.free_superblocks_min", free, "GC_Exec_Threshold of the blocks of each plane");
    draft.without_idle_collection("MQSim collects only when a plane is short of free blocks");

    let levels = from.word_or("Static_Wearleveling_Enabled", true, &[("false", false), ("true", true)]);
    if levels {
        let threshold = from.number_or("Static_Wearleveling_Threshold", 100, 1..=u64::from(u32::MAX));
        draft.number("wear_levelling.threshold_erases", threshold, "Static_Wearleveling_Threshold");
    }
    draft.number("wear_levelling.interval_erases", 1, "MQSim looks after each erase");
    draft.assume_trim("MQSim has no TRIM", &[]);
    draft.mark_defaults(&from.missing, "MQSim");
    Ok((draft, from.finish(&WITHOUT_COUNTERPART)?))
}

const WITHOUT_COUNTERPART: [(&str, &str); 26] = [
    ("Seed", "seeds are given to a run"),
    ("Enabled_Preconditioning", "a run prepares the drive"),
    ("Enable_ResponseTime_Logging", "output only"),
    ("ResponseTime_Logging_Period_Length", "output only"),
    ("Memory_Type", "flash only"),
    ("Queue_Fetch_Size", "commands are fetched without limit"),
    ("Caching_Mechanism", "one cache for writes"),
    ("Data_Cache_Sharing_Mode", "one cache for all"),
    ("Data_Cache_DRAM_*", "the cache's memory takes no time"),
    ("CMT_Capacity", "the whole map is in memory"),
    ("CMT_Sharing_Mode", "one cache for all"),
    ("Plane_Allocation_Scheme", "writes go to the planes in turn"),
    ("Transaction_Scheduling_Policy", "one order of operations: as they arrive at a die"),
    ("Use_Copyback_for_GC", "copies cross the channel"),
    ("Preemptible_GC_Enabled", "collection is not interrupted"),
    ("GC_Hard_Threshold", "collection is not interrupted, so that there is one threshold"),
    ("Dynamic_Wearleveling_Enabled", "free blocks are used in the order in which they were erased"),
    ("Preferred_suspend_*", "programs and erases are not suspended"),
    ("CMD_Suspension_Support", "programs and erases are not suspended"),
    ("Suspend_*", "programs and erases are not suspended"),
    ("Page_Read_Latency_*", "no such pages in this flash"),
    ("Page_Program_Latency_*", "no such pages in this flash"),
    ("Page_Metadat_Capacity", "the spare area is not transferred"),
    ("Flash_Comm_Protocol", "a channel has one rate"),
    ("Static_Wearleveling_Threshold", "wear levelling is off"),
    ("SATA_Processing_Delay", "the drive is not on SATA"),
];
