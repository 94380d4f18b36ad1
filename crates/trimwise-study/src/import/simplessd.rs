//! SimpleSSD 2's configuration (Gouk et al., Amber, MICRO 2018; github.com/SimpleSSD/SimpleSSD): sections with
//! `key = value`.
//!
//! Times are in picoseconds. SimpleSSD keeps one open superblock for each part of the flash that works independently,
//! and writes copies and new data to the same one. Missing parameters have SimpleSSD's defaults (`config.cc` of each
//! part).

use toml::Value;
use trimwise::failure::Failure;
use trimwise::ssd::VictimPolicy;
use trimwise::units::UNIT_BYTES;

use super::draft::NS_MAX;
use super::foreign::{Foreign, Parameter};
use super::{Draft, Unused};

/// Reads the parameters as `section.key`; `None` if there is no section `[pal]`.
pub(super) fn parameters(text: &str) -> Option<Vec<Parameter>> {
    let (mut parameters, mut section, mut has_flash) = (Vec::new(), String::new(), false);
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.trim().to_owned();
            has_flash |= section == "pal";
        } else if let Some((name, value)) = line.split_once('=') {
            let name = format!("{section}.{}", name.trim());
            parameters.push(Parameter { name, value: value.trim().to_owned(), line: number + 1 });
        }
    }
    has_flash.then_some(parameters)
}

/// Makes a profile. The error lists everything that is wrong.
pub(super) fn draft(mut from: Foreign) -> Result<(Draft, Vec<Unused>), Failure> {
    let mut draft = Draft::default();
    let channels = from.number_or("pal.Channel", 8, 1..=1024_u64);
    let packages = from.number_or("pal.Package", 4, 1..=1024_u64);
    let dies = from.number_or("pal.Die", 2, 1..=1024_u64);
    let mut planes = from.number_or("pal.Plane", 1, 1..=64_u64);
    let mut blocks = from.number_or("pal.Block", 512, 1..=1_u64 << 20);
    let pages = from.number_or("pal.Page", 512, 1..=65_536_u64);
    let page_bytes = from.number_or("pal.PageSize", 16_384, 1..=1_u64 << 20);
    let together = from.word_or("pal.EnableMultiPlaneOperation", true, &BOOLEAN);
    let mut source = ["Plane", "Block"];
    if !together {
        (planes, blocks) = (1, blocks * planes);
        source = ["planes work one after the other: as one", "Block times Plane"];
    }
    let total = channels * packages * dies * planes;
    let spare = from.number_or("ftl.OverProvisioningRatio", 0.25, 0.0..=0.99);
    let physical = total.saturating_mul(blocks).saturating_mul(pages).saturating_mul(page_bytes);
    let capacity = (physical as f64 * (1.0 - spare)) as u64 / UNIT_BYTES * UNIT_BYTES;
    draft.number("capacity_bytes", capacity, "the flash minus the share OverProvisioningRatio");
    draft.number("geometry.channels", channels, "Channel");
    draft.number("geometry.dies_per_channel", packages * dies, "Package times Die");
    draft.number("geometry.planes_per_die", planes, source[0]);
    draft.number("geometry.blocks_per_plane", blocks, source[1]);
    draft.number("geometry.pages_per_block", pages, "Page");
    draft.number("geometry.page_bytes", page_bytes, "PageSize");
    let gang = from.letters("pal.SuperblockSize", &[('C', channels), ('W', packages), ('D', dies), ('P', 1)])
        * planes;
    draft.number("geometry.superblock_planes", gang, "SuperblockSize, with all planes of a die");

    // The kinds of pages of a flash, each with its default for a read and a write.
    let [lsb, csb, msb] =
        [("LSB", [40_000_000, 500_000_000]), ("CSB", [0, 0]), ("MSB", [65_000_000, 1_300_000_000])];
    let kinds = [("0", &[lsb][..]), ("1", &[lsb, msb]), ("2", &[lsb, csb, msb])];
    let pages_of = from.word_or("pal.NANDType", kinds[1].1, &kinds);
    for (index, (name, operation)) in
        [("nand.t_read_ns", "Read"), ("nand.t_prog_ns", "Write")].into_iter().enumerate()
    {
        let times = pages_of.iter().map(|(bit, usual)| {
            let name = format!("{bit}{operation}");
            let time = from.number_or(&format!("pal.{name}"), usual[index], 0..=NS_MAX * 1000);
            (name, time)
        });
        draft.page_time(name, &times.collect::<Vec<_>>(), 1000, "NANDType");
    }
    let erase = from.number_or("pal.Erase", 3_500_000_000, 1..=NS_MAX * 1000);
    draft.number("nand.t_erase_ns", erase / 1000, "Erase");
    let widths = ["8", "16", "24", "32", "40", "48", "56", "64"];
    let bytes =
        from.word_or("pal.DMAWidth", 1, &std::array::from_fn::<_, 8, _>(|i| (widths[i], i as u64 + 1)));
    let rate = from.number_or("pal.DMASpeed", 400, 1..=100_000_u64) * bytes;
    draft.number("nand.bus_bytes_per_s", rate << 20, "DMASpeed times DMAWidth; a mega is 2^20 in SimpleSSD");
    let cycles = from.number_or("ftl.EraseThreshold", 100_000, 1..=100_000_000_u64);
    draft.number("nand.endurance_cycles", cycles, "EraseThreshold");

    draft.set("link.kind", "nvme", "assumed: the file has NVMe, UFS and SATA, and its host chooses");
    let generations = [("0", 250_000_000_u64), ("1", 500_000_000), ("2", 984_615_384)];
    let lane = from.word_or("nvme.PCIEGeneration", generations[2].1, &generations);
    let lanes = from.number_or("nvme.PCIELane", 4, 1..=64_u64);
    draft.number(
        "link.bytes_per_s",
        lane * lanes,
        "PCIEGeneration and PCIELane of [nvme], after line coding",
    );
    let firmware =
        "the firmware's time follows from instructions and a clock in SimpleSSD; as nvme-generic's";
    let times: [(&str, Value); 3] = [
        ("link.overhead_per_command_ns", 500.into()),
        ("controller.read_overhead_ns", 1500.into()),
        ("controller.write_overhead_ns", 1500.into()),
    ];
    draft.assume(&times, firmware);
    draft.assume(&[("link.queue_depth", 256.into())], "as nvme-generic's");

    let caches = from.word_or("icl.EnableWriteCache", true, &BOOLEAN);
    let bytes = from.number_or("icl.CacheSize", 32 << 20, 0..=1_u64 << 40);
    let least = 2 * planes * page_bytes.max(UNIT_BYTES) * (total / gang.max(1));
    let (bytes, source) = match bytes {
        _ if !caches => (0, "EnableWriteCache is 0"),
        bytes if bytes < least => (least, "CacheSize is below two pages of each die, the least"),
        bytes => (bytes, "CacheSize, all of it for writes"),
    };
    draft.number("cache.bytes", bytes, source);
    draft.assume(
        &[("cache.volatile", true.into()), ("cache.flush_ns", 0.into())],
        "SimpleSSD's flush only writes",
    );

    let choices = from.number_or("ftl.DChoiceParam", 3, 1..=1024_u32);
    let victims = [
        ("0", VictimPolicy::Greedy),
        ("1", VictimPolicy::CostBenefit),
        ("2", VictimPolicy::Random),
        ("3", VictimPolicy::DChoices(choices)),
    ];
    let victim = from.word_or("ftl.EvictPolicy", VictimPolicy::Greedy, &victims);
    draft.victim(victim, "EvictPolicy of [ftl]");
    draft.set("gc.shared_frontier", true, "SimpleSSD writes copies to the blocks that are open for the host");
    draft.frontiers(total / gang.max(1), "one open superblock for each part that works by itself");
    let superblocks = total / gang.max(1) * blocks;
    let free = (from.number_or("ftl.GCThreshold", 0.05, 0.0..=1.0) * superblocks as f64) as u64;
    draft.number("gc.free_superblocks_min", free.max(2), "GCThreshold of all superblocks");
    draft.without_idle_collection("SimpleSSD collects while writing");
    draft.assume(&[("wear_levelling.interval_erases", 64.into())], "SimpleSSD levels no wear");
    draft.assume_trim("SimpleSSD's TRIM takes its firmware's time only", &[]);
    draft.mark_defaults(&from.missing, "SimpleSSD");
    Ok((draft, from.finish(&WITHOUT_COUNTERPART)?))
}

const BOOLEAN: [(&str, bool); 4] = [("0", false), ("1", true), ("false", false), ("true", true)];

const WITHOUT_COUNTERPART: [(&str, &str); 20] = [
    ("cpu.*", "the controller has one time a command"),
    ("nvme.*", "the link has one rate"),
    ("ufs.*", "the drive is taken as NVMe"),
    ("sata.*", "the drive is taken as NVMe"),
    ("dram.*", "the cache's memory takes no time"),
    ("pal.CSB*", "no such pages in this flash"),
    ("pal.MSB*", "no such pages in this flash"),
    ("pal.PageAllocation", "writes go to the dies in turn"),
    ("ftl.MappingMode", "page mapping"),
    ("ftl.FillingMode", "a run prepares the drive"),
    ("ftl.FillRatio", "a run prepares the drive"),
    ("ftl.InvalidPageRatio", "a run prepares the drive"),
    ("ftl.GCMode", "collection ends when enough is free"),
    ("ftl.GCReclaimBlocks", "collection ends when enough is free"),
    ("ftl.GCReclaimThreshold", "collection ends when enough is free"),
    ("ftl.EnableRandomIOTweak", "the map's unit is 4 KiB"),
    ("icl.CacheWaySize", "the cache may hold any unit"),
    ("icl.EnableReadCache", "the cache is for writes"),
    ("icl.*", "the cache is for writes, and reads ahead by controller.read_ahead_bytes"),
    ("pal.*", "not in a profile"),
];
