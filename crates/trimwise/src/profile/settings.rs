//! The settings of a profile, in the order of [`SsdConfig`].

use std::collections::BTreeMap;

use super::ProfileError;
use super::reader::{Reader, Table};
use crate::ssd::{
    BlockMappingConfig, CacheConfig, CompressingConfig, ControllerConfig, Faults, GcConfig, GeometryConfig,
    LinkConfig, LinkKind, MapCacheConfig, MappingConfig, NandConfig, ReadAfterTrim, SlcConfig, SsdConfig,
    TrimConfig, TrimKind, TrimPlace, VictimPolicy, WearLevellingConfig,
};

pub(crate) fn read_config(root: &mut Table, r: &mut Reader) -> Result<SsdConfig, ProfileError> {
    let capacity_bytes = root.u64(r, "capacity_bytes")?;
    let over_provisioning_percent = root.optional_u32(r, "over_provisioning_percent")?;

    let mut t = root.table(r, "geometry")?;
    let geometry = GeometryConfig {
        channels: t.u32(r, "channels")?,
        dies_per_channel: t.u32(r, "dies_per_channel")?,
        planes_per_die: t.u32(r, "planes_per_die")?,
        blocks_per_plane: t.optional_u32(r, "blocks_per_plane")?,
        pages_per_block: t.u32(r, "pages_per_block")?,
        page_bytes: t.u32(r, "page_bytes")?,
        superblock_planes: t.u32(r, "superblock_planes")?,
    };
    t.finish(r)?;

    let mut t = root.table(r, "nand")?;
    let nand = NandConfig {
        t_read_ns: t.u64(r, "t_read_ns")?,
        t_prog_ns: t.u64(r, "t_prog_ns")?,
        t_erase_ns: t.u64(r, "t_erase_ns")?,
        bus_bytes_per_s: t.u64(r, "bus_bytes_per_s")?,
        endurance_cycles: t.u32(r, "endurance_cycles")?,
    };
    t.finish(r)?;

    let mapping = read_mapping(root, r)?;
    let slc = read_slc(root, r)?;

    let mut t = root.table(r, "link")?;
    let kinds = [("sata", LinkKind::Sata), ("nvme", LinkKind::Nvme), ("ufs", LinkKind::Ufs)];
    let link = LinkConfig {
        kind: t.one_of(r, "kind", &kinds)?,
        bytes_per_s: t.u64(r, "bytes_per_s")?,
        overhead_per_command_ns: t.u64(r, "overhead_per_command_ns")?,
        queue_depth: t.u32(r, "queue_depth")?,
    };
    t.finish(r)?;

    let mut t = root.table(r, "controller")?;
    let controller = ControllerConfig {
        read_overhead_ns: t.u64(r, "read_overhead_ns")?,
        write_overhead_ns: t.u64(r, "write_overhead_ns")?,
        write_bytes_per_s: t.optional_u64(r, "write_bytes_per_s")?,
        read_ahead_bytes: t.optional_u64(r, "read_ahead_bytes")?.unwrap_or(0),
    };
    t.finish(r)?;

    let mut t = root.table(r, "cache")?;
    let cache = CacheConfig {
        bytes: t.u64(r, "bytes")?,
        volatile: t.bool(r, "volatile")?,
        flush_ns: t.u64(r, "flush_ns")?,
    };
    t.finish(r)?;

    let gc = read_gc(root, r)?;

    let mut t = root.table(r, "wear_levelling")?;
    let wear_levelling = WearLevellingConfig {
        threshold_erases: t.optional_u32(r, "threshold_erases")?,
        interval_erases: t.u32(r, "interval_erases")?,
    };
    t.finish(r)?;

    let trim = read_trim(root, r)?;
    Ok(SsdConfig {
        capacity_bytes,
        over_provisioning_percent,
        geometry,
        nand,
        mapping,
        slc,
        link,
        controller,
        cache,
        gc,
        wear_levelling,
        trim,
        track_tags: false,
    })
}

fn read_mapping(root: &mut Table, r: &mut Reader) -> Result<MappingConfig, ProfileError> {
    enum Kind {
        Page,
        Block,
        Compressing,
    }
    let Some(mut t) = root.optional_table(r, "mapping")? else { return Ok(MappingConfig::default()) };
    let kinds = [("page", &Kind::Page), ("block", &Kind::Block), ("compressing", &Kind::Compressing)];
    let mapping = match t.one_of(r, "kind", &kinds)? {
        Kind::Page => {
            let bytes = t.optional_u64(r, "map_cache_bytes")?;
            MappingConfig::Page { map_cache: bytes.map(|bytes| MapCacheConfig { bytes }) }
        }
        Kind::Block => {
            MappingConfig::Block(BlockMappingConfig { log_superblocks: t.u32(r, "log_superblocks")? })
        }
        Kind::Compressing => MappingConfig::Compressing(CompressingConfig {
            granule_bytes: t.u32(r, "granule_bytes")?,
            head_bytes: t.u32(r, "head_bytes")?,
            deduplicates: t.bool(r, "deduplicates")?,
            read_latency_ns: t.u64(r, "read_latency_ns")?,
            fragment_read_ns: t.u64(r, "fragment_read_ns")?,
            recycles_from_stale_percent: t.optional_u32(r, "recycles_from_stale_percent")?,
            references_checked_at_collection: t.bool(r, "references_checked_at_collection")?,
        }),
    };
    t.finish(r)?;
    Ok(mapping)
}

fn read_slc(root: &mut Table, r: &mut Reader) -> Result<Option<SlcConfig>, ProfileError> {
    let Some(mut t) = root.optional_table(r, "slc")? else { return Ok(None) };
    let slc = SlcConfig {
        static_superblocks: t.u32(r, "static_superblocks")?,
        dynamic_percent: t.u32(r, "dynamic_percent")?,
        bits_per_cell: t.u32(r, "bits_per_cell")?,
        t_prog_ns: t.u64(r, "t_prog_ns")?,
        t_read_ns: t.u64(r, "t_read_ns")?,
        fold_when_idle: t.bool(r, "fold_when_idle")?,
        fold_threshold_percent: t.u32(r, "fold_threshold_percent")?,
    };
    t.finish(r)?;
    Ok(Some(slc))
}

pub(crate) fn read_faults(root: &mut Table, r: &mut Reader) -> Result<Faults, ProfileError> {
    let sound = Faults::default();
    let Some(mut t) = root.optional_table(r, "faults")? else { return Ok(sound) };
    let faults = Faults {
        ignores_trim: t.optional_bool(r, "ignores_trim")?.unwrap_or(sound.ignores_trim),
        trims_percent: t.optional_u32(r, "trims_percent")?.unwrap_or(sound.trims_percent),
        trim_shift_units: t.optional_u32(r, "trim_shift_units")?.unwrap_or(sound.trim_shift_units),
        queued_trim_late_writes: t
            .optional_u32(r, "queued_trim_late_writes")?
            .unwrap_or(sound.queued_trim_late_writes),
        breaks_zeros_promise: t
            .optional_bool(r, "breaks_zeros_promise")?
            .unwrap_or(sound.breaks_zeros_promise),
    };
    t.finish(r)?;
    Ok(faults)
}

fn read_gc(root: &mut Table, r: &mut Reader) -> Result<GcConfig, ProfileError> {
    let mut t = root.table(r, "gc")?;
    let victims = [
        ("greedy", VictimPolicy::Greedy),
        ("cost_benefit", VictimPolicy::CostBenefit),
        ("d_choices", VictimPolicy::DChoices(0)),
        ("fifo", VictimPolicy::Fifo),
    ];
    let mut victim = t.one_of(r, "victim", &victims)?;
    if let VictimPolicy::DChoices(d) = &mut victim {
        *d = t.u32(r, "d_choices")?;
    }
    let gc = GcConfig {
        victim,
        shared_frontier: t.bool(r, "shared_frontier")?,
        host_frontiers: t.u32(r, "host_frontiers")?,
        free_superblocks_min: t.u32(r, "free_superblocks_min")?,
        idle: t.bool(r, "idle")?,
        idle_threshold_ns: t.u64(r, "idle_threshold_ns")?,
        idle_free_superblocks: t.u32(r, "idle_free_superblocks")?,
    };
    t.finish(r)?;
    Ok(gc)
}

fn read_trim(root: &mut Table, r: &mut Reader) -> Result<TrimConfig, ProfileError> {
    let mut t = root.table(r, "trim")?;
    let kinds = [
        ("unsupported", TrimKind::Unsupported),
        ("ata_non_queued", TrimKind::AtaNonQueued),
        ("ata_queued", TrimKind::AtaQueued),
        ("nvme", TrimKind::Nvme),
        ("ufs", TrimKind::Ufs),
    ];
    let places = [("before_ack", TrimPlace::BeforeAck), ("background", TrimPlace::Background)];
    let reads = [
        ("zeros", ReadAfterTrim::Zeros),
        ("old", ReadAfterTrim::Old),
        ("undefined", ReadAfterTrim::Undefined),
    ];
    let kind = t.one_of(r, "kind", &kinds)?;
    // Without TRIM nothing needs to be said about it.
    let none = TrimConfig::unsupported();
    let may_lack = kind == TrimKind::Unsupported;
    let trim = TrimConfig {
        kind,
        max_ranges: t.u32_or(r, "max_ranges", none.max_ranges, may_lack)?,
        max_units_per_range: t.u32_or(r, "max_units_per_range", none.max_units_per_range, may_lack)?,
        granularity_units: t.u32_or(r, "granularity_units", none.granularity_units, may_lack)?,
        cost_per_command_ns: t.u64_or(r, "cost_per_command_ns", 0, may_lack)?,
        cost_per_range_ns: t.u64_or(r, "cost_per_range_ns", 0, may_lack)?,
        cost_per_unit_ns: t.u64_or(r, "cost_per_unit_ns", 0, may_lack)?,
        cost_per_mapped_unit_ns: t.u64_or(r, "cost_per_mapped_unit_ns", 0, true)?,
        latency_per_command_ns: t.u64_or(r, "latency_per_command_ns", 0, true)?,
        place: t.one_of_or(r, "place", &places, none.place, may_lack)?,
        slowdown_percent: t.u32_or(r, "slowdown_percent", 0, may_lack)?,
        read_after: t.one_of_or(r, "read_after", &reads, none.read_after, may_lack)?,
    };
    t.finish(r)?;
    Ok(trim)
}

/// Where the numbers come from; a variant's own entries stand before those of the file.
pub(crate) fn read_sources(mut t: Table, r: &mut Reader) -> Result<BTreeMap<String, String>, ProfileError> {
    let settings = std::mem::take(&mut r.settings);
    if let Some((name, at)) = t.own_keys(r).find(|(name, _)| !settings.contains(*name)) {
        let message =
            format!("sources.{name} names no setting; expected a setting or a table of this profile");
        return Err(r.refuse(&at, message));
    }
    t.keys().into_iter().map(|name| Ok((name.to_owned(), t.string(r, name)?))).collect()
}
