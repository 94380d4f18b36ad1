//! Makes the job of a section from its options.

use super::layout::Plan;
use super::options::{self, Engine};
use super::reader::Reader;
use super::values;
use super::{
    BlockSizes, Distribution, Durable, Ends, FileOrder, Flow, Generator, Job, READ, Rate, Service, Steps,
    Strides, TRIM, Verify, WRITE,
};
use crate::content::ContentClass;

const DEPTH_MAX: u64 = 1024;
const BLOCK_BYTES: u64 = 4096;
/// Maximum number of bytes in one read or write, whose data are in memory.
const TRANSFER_MAX: u64 = 1 << 30;
/// Granularity of direct transfers.
const SECTOR_BYTES: u64 = 512;
const SECOND_NS: u64 = 1_000_000_000;
const MICROSECOND_NS: u64 = 1_000;

fn percent(text: &str) -> Option<u64> {
    values::number(text, 1024).filter(|n| *n <= 100)
}

fn order(reader: &mut Reader) -> ([bool; 3], bool, Steps) {
    const WORDS: &[(&str, ([bool; 3], bool))] = &[
        ("read", ([true, false, false], false)),
        ("write", ([false, true, false], false)),
        ("trim", ([false, false, true], false)),
        ("rw", ([true, true, false], false)),
        ("readwrite", ([true, true, false], false)),
        ("trimwrite", ([false, true, true], false)),
        ("randread", ([true, false, false], true)),
        ("randwrite", ([false, true, false], true)),
        ("randtrim", ([false, false, true], true)),
        ("randrw", ([true, true, false], true)),
        ("randtrimwrite", ([false, true, true], true)),
    ];
    let kb_base = reader.kb_base;
    let parse = |text: &str| {
        let (word, step) = text.split_once(':').map_or((text, None), |(word, step)| (word, Some(step)));
        let (directions, random) = WORDS.iter().find(|(name, _)| *name == word)?.1;
        let (sign, size) = match step.map(|step| step.strip_prefix('-').map_or((1, step), |step| (-1, step)))
        {
            None => return Some((directions, random, 0, 1)),
            Some((sign, text)) => (sign, i64::try_from(values::number(text, kb_base)?).ok()?),
        };
        match random {
            true if sign > 0 && (1..=u32::MAX.into()).contains(&size) => {
                Some((directions, true, 0, size as u64))
            }
            true => None,
            false => Some((directions, false, sign * size, 1)),
        }
    };
    let words: Vec<&str> = WORDS.iter().map(|(word, _)| *word).collect();
    let expected = format!("one of {}, with :SKIP or :COUNT where fio has it", words.join(", "));
    let (directions, random, skip, every) =
        reader.value("rw", &expected, parse).unwrap_or(([true, false, false], false, 0, 1));
    let is_identical =
        reader.word("rw_sequencer", &[("sequential", false), ("identical", true)]).unwrap_or(false);
    (directions, random, Steps { skip, every, is_identical })
}

fn block_sizes(reader: &mut Reader) -> BlockSizes {
    let kb_base = reader.kb_base;
    let fixed = reader.directions("bs", "a block size", |text| values::block_size(text, kb_base));
    let range = |text: &str| values::block_range(text, kb_base);
    let ranges = reader.directions("bsrange", "a range of block sizes such as 4k-64k", range);
    let mut ranges = [READ, WRITE, TRIM].map(|i| {
        let fixed = fixed[i].unwrap_or(BLOCK_BYTES);
        ranges[i].unwrap_or((fixed, fixed))
    });
    let expected = "SIZE/PERCENT:..., whose shares add up to at most 100";
    let splits = reader.directions("bssplit", expected, |text| values::split(text, kb_base));
    let splits = splits.map(Option::unwrap_or_default);
    for (range, split) in ranges.iter_mut().zip(&splits) {
        let sizes = || split.iter().map(|(bytes, _)| *bytes);
        if let (Some(least), Some(most)) = (sizes().min(), sizes().max()) {
            *range = (least, most);
        }
    }
    let is_by_order = reader.flag("bs_is_seq_rand", false);
    BlockSizes { ranges, splits, is_unaligned: reader.flag("bs_unaligned", false), is_by_order }
}

fn distribution(reader: &mut Reader) -> Distribution {
    let kb_base = reader.kb_base;
    let expected = "random, zipf[:THETA[:CENTER]], pareto[:H[:CENTER]], normal[:DEVIATION[:CENTER]], \
                    zoned:ACCESSES/SIZE:... in percent, zoned_abs:ACCESSES/SIZE:... or sequence:BLOCK,...";
    let parse = |text: &str| values::distribution(text, kb_base);
    let is_strided = reader.flag("random_sequence_stride", false);
    match reader.value("random_distribution", expected, parse) {
        Some(Distribution::Sequence(blocks, _)) => Distribution::Sequence(blocks, is_strided),
        given => given.unwrap_or(Distribution::Uniform),
    }
}

fn service(reader: &mut Reader) -> Service {
    let expected = "roundrobin, sequential or random, with :COUNT if several operations keep together, zipf[:THETA], \
                    pareto[:H] or normal[:DEVIATION]";
    let parse = |text: &str| {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let run = if rest.is_empty() { Some(1) } else { rest.parse().ok().filter(|run| *run > 0) };
        let order = match name {
            "roundrobin" => FileOrder::RoundRobin,
            "sequential" => FileOrder::Sequential,
            "random" => FileOrder::Random,
            _ => {
                return values::skewed(text).map(|shape| Service { order: FileOrder::Skewed(shape), run: 1 });
            }
        };
        Some(Service { order, run: run? })
    };
    let default = Service { order: FileOrder::RoundRobin, run: 1 };
    reader.value("file_service_type", expected, parse).unwrap_or(default)
}

fn strides(reader: &mut Reader) -> Option<Strides> {
    let kb_base = reader.kb_base;
    let mut bytes = |name| {
        let expected = "a size in bytes";
        reader.value(name, expected, |text| values::number(text, kb_base)).unwrap_or(0)
    };
    let (size, range, skip) = (bytes("zonesize"), bytes("zonerange"), bytes("zoneskip"));
    let mode = reader.given("zonemode").map(|given| given.value.as_str());
    match mode {
        Some("zbd") => {
            let what = "zonemode=zbd: a drive of zones that are written in order";
            reader.beyond(
                &["zonemode"],
                what,
                "zonemode=none or strided; the modelled drives have no such zones",
                false,
            );
            None
        }
        Some("none") | None if size == 0 => None,
        Some("strided") | None if size > 0 => {
            Some(Strides { size, range: if range == 0 { size } else { range }, skip })
        }
        Some("strided") => {
            reader.wrong(&["zonemode"], "zonemode=strided without zonesize", "zonesize= as well");
            None
        }
        Some("none") => {
            reader.wrong(&["zonesize"], "zonesize with zonemode=none", "no zonesize, or zonemode=strided");
            None
        }
        _ => {
            reader.word("zonemode", &[("none", ()), ("strided", ())]);
            None
        }
    }
}

fn verify(reader: &mut Reader) -> Option<Verify> {
    let is_off = reader.given("verify").is_none_or(|given| matches!(given.value.as_str(), "0" | "none"));
    let reads = reader.flag("do_verify", true);
    let every = reader.number("verify_backlog", 0, 0, u64::MAX);
    let batch = reader.number("verify_backlog_batch", 0, 0, u64::MAX);
    let backlog = (every > 0).then_some((every, if batch > 0 { batch } else { every }));
    let (is_all, in_order) = (reader.flag("verify_only", false), reader.flag("experimental_verify", false));
    (!is_off).then_some(Verify { reads, backlog, is_all, in_order })
}

fn rates(reader: &mut Reader) -> [Option<Rate>; 3] {
    let kb_base = reader.kb_base;
    let number = |text: &str| values::number(text, kb_base);
    let mut each = |name, expected| reader.directions(name, expected, number).map(Option::unwrap_or_default);
    let (rate, operations) = (each("rate", "bytes per second"), each("rate_iops", "operations per second"));
    if rate.iter().any(|n| *n > 0) && operations.iter().any(|n| *n > 0) {
        reader.wrong(&["rate_iops"], "rate and rate_iops contradict each other", "one of them");
    }
    [READ, WRITE, TRIM].map(|i| match (rate[i], operations[i]) {
        (0, 0) => None,
        (0, operations) => Some(Rate::Operations(operations)),
        (bytes, _) => Some(Rate::Bytes(bytes)),
    })
}

/// Returns the class of data that is nearest to what the job writes.
fn class(reader: &mut Reader) -> ContentClass {
    let compresses = reader.number("buffer_compress_percentage", 0, 0, 100);
    let repeats = reader.number("dedupe_percentage", 0, 0, 100);
    let is_pattern = reader.given("buffer_pattern").is_some_and(|given| !given.value.is_empty());
    let is_zero = reader.flag("zero_buffers", false);
    match compresses {
        _ if repeats >= 50 => ContentClass::Duplicated,
        0 if is_zero || is_pattern => ContentClass::Zeros,
        0..=18 => ContentClass::Incompressible,
        19..=62 => ContentClass::PseudoRandom,
        63..=93 => ContentClass::Compressible,
        _ => ContentClass::Zeros,
    }
}

/// Makes the first process of a section's job; `None` if the job does no I/O.
pub fn plan(reader: &mut Reader, notes: &mut Vec<String>, group: u32) -> Option<Plan> {
    reader.refuse_others();
    let ioengine = reader.given("ioengine").map_or("psync", |given| given.value.as_str());
    let ioengine = ioengine.split(':').next().unwrap_or_default();
    let depth = reader.number("iodepth", 1, 1, DEPTH_MAX);
    let (engine, is_raw) = match options::engine(ioengine) {
        Some(Engine::Idle) => {
            notes.push(format!("[{}] only computes ({ioengine}); left out", reader.section.name));
            return None;
        }
        Some(engine) => (engine, options::is_raw(ioengine)),
        None if ioengine == "null" => {
            let expected = "`:ioengine=psync` after the file's name, to do it";
            reader.beyond(&["ioengine"], "ioengine=null does none of its I/O", expected, true);
            (Engine::Overlapping, false)
        }
        None => {
            let expected = format!("an engine that reads and writes files: {}", options::engines());
            let what = format!("ioengine={ioengine} is beyond the model");
            reader.beyond(&["ioengine"], what, expected, options::debian_runs(ioengine));
            (Engine::Overlapping, false)
        }
    };
    let (directions, random, steps) = order(reader);
    let sizes = block_sizes(reader);
    if let Some(given) = reader.given("bs").filter(|given| given.value.contains(['-', ':'])) {
        let ([read, write, trim], bs) = (sizes.ranges.map(|(from, _)| values::written(from)), &given.value);
        notes.push(format!(
            "bs={bs} of [{}] is {read} for reads, {write} for writes and {trim} for TRIMs, as in fio; a range is \
             bsrange={bs}",
            reader.section.name
        ));
    }
    let used = |i: usize| directions[i] || (sizes.is_by_order && i != TRIM);
    let least = sizes.ranges.map(|(from, _)| from);
    if directions[READ] || directions[WRITE] {
        // A TRIM carries no data, unless its block is then written.
        let carries = |i: usize| used(i) && (i != TRIM || directions[WRITE]);
        let largest = (0..3).filter(|i| carries(*i)).map(|i| sizes.ranges[i].1).max().unwrap_or(0);
        if largest > TRANSFER_MAX {
            let what = format!("reads or writes of {largest} bytes in one call");
            reader.beyond(&["bs", "bsrange", "bssplit"], what, "at most 1g; TRIMs may be larger", true);
        }
    }
    let kb_base = reader.kb_base;
    let align =
        reader.directions("blockalign", "a number of bytes", |text| values::block_size(text, kb_base));
    let align = [READ, WRITE, TRIM].map(|i| align[i].filter(|_| random).unwrap_or(least[i]));

    let seed = reader.value("randseed", "a number", |text| values::number(text, 1024));
    let own_seed = seed.is_none() && !reader.flag("randrepeat", true);
    let distribution = distribution(reader);
    let generators = [
        ("tausworthe", Generator::Tausworthe),
        ("tausworthe64", Generator::Tausworthe64),
        ("lfsr", Generator::Lfsr),
    ];
    let generator = reader.word("random_generator", &generators).unwrap_or(Generator::Tausworthe);
    if generator == Generator::Lfsr
        && random
        && (0..3).any(|i| used(i) && sizes.ranges[i].0 != sizes.ranges[i].1)
    {
        let what = "lfsr with several block sizes writes past the end of what it visits";
        reader.wrong(&["random_generator"], what, "one block size, or tausworthe");
    }
    let no_map = reader.flag("norandommap", false);
    let has_map = !no_map && distribution == Distribution::Uniform && align == least;

    let direct = reader.flag("direct", false) || is_raw;
    let is_whole = |bytes: u64| bytes.is_multiple_of(SECTOR_BYTES);
    let used: Vec<(u64, u64)> = (0..3).filter(|i| used(*i)).map(|i| sizes.ranges[i]).collect();
    let is_partial = used.iter().any(|(from, to)| !is_whole(*from) || !is_whole(*to))
        || (random && (0..3).any(|i| directions[i] && !is_whole(align[i])))
        || sizes.is_unaligned;
    if direct && is_partial {
        let expected = format!("multiples of {SECTOR_BYTES} bytes, or `:direct=0` after the file's name");
        reader.wrong(
            &["bs", "bsrange", "bssplit", "direct"],
            "direct transfers of parts of sectors",
            expected,
        );
    }
    let read_percent = reader.number("rwmixread", 50, 0, 100);
    let runtime = Some(reader.time("runtime", SECOND_NS)).filter(|time| time.0 > 0);
    let mut time_based = reader.flag("time_based", false);
    if time_based && runtime.is_none() {
        time_based = false;
        notes.push(format!(
            "ignored as in fio, as there is no runtime: time_based of [{}]",
            reader.section.name
        ));
    }
    let shares = reader.directions("percentage_random", "a percentage", percent);
    let flow = match reader.number("flow", 0, 0, 1000) {
        0 => None,
        weight => {
            let sleep = reader.time("flow_sleep", MICROSECOND_NS);
            Some(Flow { id: reader.number("flow_id", 0, 0, u64::MAX), weight, sleep })
        }
    };
    let ends = [("group", Ends::Group), ("stonewall", Ends::Group), ("all", Ends::All)];
    let ends = reader.word("exit_what", &ends).unwrap_or(Ends::Group);
    let durable = [
        ("none", Durable::No),
        ("0", Durable::No),
        ("1", Durable::Whole),
        ("sync", Durable::Whole),
        ("dsync", Durable::Data),
    ];
    let overlaps = match engine {
        Engine::OverlappingDirect if !direct && depth > 1 => {
            let name = &reader.section.name;
            notes.push(format!(
                "one operation at a time, as {ioengine} waits for buffered ones: iodepth of [{name}]"
            ));
            false
        }
        engine => matches!(engine, Engine::Overlapping | Engine::OverlappingDirect),
    };
    let unlinks_in_loops = reader.flag("unlink_each_loop", false);
    if unlinks_in_loops && directions[READ] {
        let expected = "`:unlink_each_loop=0` after the file's name, or a job that only writes or trims";
        reader.wrong(&["unlink_each_loop"], "a job that would read the files it has removed", expected);
    }
    let fsync_on_close = reader.flag("fsync_on_close", false);
    let end_fsync = reader.flag("end_fsync", false);

    let job = Job {
        name: reader.section.name.clone(),
        thread_number: 0,
        copy: 0,
        group,
        waits_for: reader.given("wait_for").map(|given| given.value.clone()),
        starts_after: reader.time("startdelay", SECOND_NS),
        directions,
        random,
        align,
        steps,
        zones: strides(reader),
        files: Vec::new(),
        service: service(reader),
        open_files: 0,
        size: 0,
        io_size: None,
        operations_max: Some(reader.number("number_ios", 0, 0, u64::MAX)).filter(|n| *n > 0),
        depth: if overlaps { depth as u32 } else { 1 },
        fsync: reader.number("fsync", 0, 0, u64::MAX),
        fdatasync: reader.number("fdatasync", 0, 0, u64::MAX),
        end_fsync: end_fsync || fsync_on_close,
        fsync_on_close,
        durable: reader.word("sync", &durable).unwrap_or(Durable::No),
        direct,
        rate: rates(reader),
        is_poisson: reader.word("rate_process", &[("linear", false), ("poisson", true)]).unwrap_or(false),
        think: reader.time("thinktime", MICROSECOND_NS),
        think_every: reader.number("thinktime_blocks", 1, 1, u64::MAX),
        runtime,
        time_based,
        ramp: reader.time("ramp_time", SECOND_NS),
        read_percent,
        seed: seed.unwrap_or(0x89),
        repeats: seed.is_none() && !own_seed,
        own_seed,
        has_map,
        may_overwrite: !has_map || reader.flag("softrandommap", false) || steps.skip != 0 || steps.every > 1,
        generator,
        distribution,
        percent_random: shares.map(|share| share.unwrap_or(100)),
        counts_in_loop: engine != Engine::OneAtATime && !time_based,
        loops: reader.number("loops", 1, 0, 1_000_000_000).max(1),
        verify: verify(reader),
        flow,
        ends: reader.flag("exitall", false).then_some(ends),
        creates_on_open: reader.flag("create_on_open", false),
        unlinks: reader.flag("unlink", false),
        unlinks_in_loops,
        invalidates: reader.flag("invalidate", true),
        class: class(reader),
        sizes,
    };
    Plan::read(job, reader)
}
