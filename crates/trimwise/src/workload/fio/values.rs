//! The values of fio's options: sizes, times, and lists of them for reads, writes and TRIMs.

use super::arithmetic::{Computed, computed};
use super::{Distribution, Shape, Size};
use crate::units::SimDuration;

/// Maximum block size: as large as a file. Transfers, whose data take memory, have a limit of their own.
const BLOCK_MAX: u64 = 1 << 50;
/// Maximum time: 31 years.
const TIME_MAX_NS: u64 = 1_000_000_000_000_000_000;
/// Maximum number of entries of a list in one value, as in fio.
const ENTRIES_MAX: usize = 64;

/// Parses fio's numbers and sizes: with `kb_base=1024`, `k`, `kb` and `ki` are 1,024, and `kib` 1,000; with
/// `kb_base=1000`, `kib` is 1,024. As in fio, a number ends where another may begin, so that `100m/s` is `100m`.
pub fn number(text: &str, kb_base: u64) -> Option<u64> {
    if text.starts_with('(') {
        return computed(text, false, i32::MAX.into())
            .and_then(|Computed { value, .. }| value.try_into().ok());
    }
    let text = text.split([':', '-', ',', '/']).next()?.trim_end();
    if let Some(digits) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        return u64::from_str_radix(digits, 16).ok();
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = unit.to_ascii_lowercase();
    let power = match unit.bytes().next() {
        None | Some(b'b') => 0,
        Some(letter) => 1 + b"kmgtp".iter().position(|known| *known == letter)? as u32,
    };
    let other = if kb_base == 1000 { 1024 } else { 1000 };
    let base = match unit.get(power.min(1) as usize..)? {
        "ib" if power > 0 => other,
        "" | "b" | "i" | "byte" | "bytes" => kb_base,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(base.checked_pow(power)?)
}

/// Splits a value where fio does: at commas, behind the last of them at colons, and behind the last of those at minuses.
pub fn pieces(text: &str) -> Vec<&str> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    let minus = |rest: &str| rest.char_indices().skip(1).find(|(_, c)| *c == '-').map(|(at, _)| at);
    while let Some(at) = rest.find(',').or_else(|| rest.find(':')).or_else(|| minus(rest)) {
        pieces.push(&rest[..at]);
        rest = &rest[at + 1..];
    }
    pieces.push(rest);
    pieces
}

/// Writes a size as [`number`] reads it.
pub fn written(bytes: u64) -> String {
    let unit =
        ['g', 'm', 'k'].into_iter().zip([30, 20, 10]).find(|(_, power)| bytes.is_multiple_of(1 << power));
    match unit {
        Some((unit, power)) if bytes > 0 => format!("{}{unit}", bytes >> power),
        _ => bytes.to_string(),
    }
}

/// Parses a size or a share of the file, such as `50%`; a share may be above 100 %.
pub fn size(text: &str, kb_base: u64) -> Option<Size> {
    match text.strip_suffix('%') {
        Some(percent) => percent.parse().ok().map(Size::Percent),
        None => number(text, kb_base).map(Size::Bytes),
    }
}

pub fn time(text: &str, unit_ns: u64) -> Option<SimDuration> {
    if text.starts_with('(') {
        const SECOND_US: i64 = 1_000_000;
        let is_in_seconds = unit_ns >= 1_000_000_000;
        let largest = if is_in_seconds { i64::from(i32::MAX) / SECOND_US } else { i32::MAX.into() };
        let Computed { value, has_unit } = computed(text, true, largest)?;
        // fio takes whole seconds of a time that is usually in seconds.
        let whole = if is_in_seconds && has_unit { value / SECOND_US } else { value };
        let ns = u64::try_from(whole).ok()?.checked_mul(if is_in_seconds { unit_ns } else { 1_000 })?;
        return (ns <= TIME_MAX_NS).then_some(SimDuration(ns));
    }
    let text = text.split_ascii_whitespace().next()?;
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit_ns = match unit.to_ascii_lowercase().as_str() {
        "" => unit_ns,
        unit if unit.starts_with("us") => 1_000,
        unit if unit.starts_with("ms") => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return None,
    };
    let ns = digits.parse::<u64>().ok()?.checked_mul(unit_ns)?;
    (ns <= TIME_MAX_NS).then_some(SimDuration(ns))
}

pub fn block_size(text: &str, kb_base: u64) -> Option<u64> {
    number(text, kb_base).filter(|bytes| (1..=BLOCK_MAX).contains(bytes))
}

pub fn block_range(text: &str, kb_base: u64) -> Option<(u64, u64)> {
    let (from, to) = text.split_once('-').or_else(|| text.split_once(':'))?;
    let (from, to) = (block_size(from, kb_base)?, block_size(to, kb_base)?);
    Some((from.min(to), from.max(to)))
}

pub fn file_size(text: &str, kb_base: u64) -> Option<(u64, u64)> {
    let pieces = pieces(text);
    let range = (number(pieces.first()?, kb_base)?, number(pieces.last()?, kb_base)?);
    Some(range).filter(|(from, to)| *from > 0 && from <= to)
}

/// Parses one value for reads, writes and TRIMs, or one for each. A missing direction is like the one before it; an
/// empty one has no value, and keeps its default.
pub fn for_each<T: Clone>(parts: &[&str], parse: impl Fn(&str) -> Option<T>) -> Option<[Option<T>; 3]> {
    let of = |part: &str| if part.is_empty() { Some(None) } else { parse(part).map(Some) };
    let mut parts = parts.iter().map(|part| of(part.trim()));
    let read = parts.next()??;
    let write = parts.next().unwrap_or_else(|| Some(read.clone()))?;
    let trim = parts.next().unwrap_or_else(|| Some(write.clone()))?;
    let all = [read, write, trim];
    (parts.next().is_none() && all.iter().any(Option::is_some)).then_some(all)
}

pub fn at_commas(text: &str) -> Vec<&str> {
    text.split(',').collect()
}

/// Parses `SIZE/PERCENT:...`: sizes of blocks with their shares, sorted as fio does. Shares that are left out divide
/// the remainder. If none is left out, the last and most frequent size gets the remainder too.
pub fn split(text: &str, kb_base: u64) -> Option<Vec<(u64, u64)>> {
    let mut entries = Vec::new();
    for entry in text.split(':').take_while(|entry| !entry.is_empty()) {
        let (bytes, share) = entry.split_once('/').unwrap_or((entry, ""));
        let share = if share.is_empty() { None } else { Some(share.trim().parse::<u64>().ok()?.min(100)) };
        entries.push((block_size(bytes.trim(), kb_base)?, share.filter(|share| *share > 0)));
    }
    let given: u64 = entries.iter().filter_map(|(_, share)| *share).sum();
    let missing = entries.iter().filter(|(_, share)| share.is_none()).count() as u64;
    if entries.is_empty() || entries.len() > ENTRIES_MAX || given > 100 {
        return None;
    }
    let rest = if missing == 1 && entries.len() == 1 { 0 } else { 100 - given };
    let share = |share: Option<u64>| share.unwrap_or_else(|| rest / missing.max(1));
    let mut split: Vec<(u64, u64)> = entries.into_iter().map(|(bytes, of)| (bytes, share(of))).collect();
    split.sort_by_key(|(_, share)| *share);
    Some(split)
}

/// Parses `VALUE[:CENTER]`.
fn shape(rest: &str, default: f64, is_fine: fn(f64) -> bool) -> Option<(f64, Option<f64>)> {
    let (value, center) = rest.split_once(':').map_or((rest, None), |(value, center)| (value, Some(center)));
    let value = if value.is_empty() { default } else { value.parse().ok()? };
    let center = center.map(|center| center.parse::<f64>().ok().filter(|c| (0.0..=1.0).contains(c)));
    let center = match center {
        Some(None) => return None,
        Some(center) => center,
        None => None,
    };
    (value.is_finite() && is_fine(value)).then_some((value, center))
}

/// Parses the name and the numbers of a skewed distribution; `None` if it is not one of these.
pub fn skewed(text: &str) -> Option<Shape> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    match name {
        "zipf" => {
            let (theta, center) = shape(rest, 1.1, |theta| theta > 0.0 && theta != 1.0)?;
            Some(Shape::Zipf { theta, center })
        }
        "pareto" => {
            let (h, center) = shape(rest, 0.2, |h| h > 0.0 && h < 1.0)?;
            Some(Shape::Pareto { h, center })
        }
        "normal" | "gauss" => {
            let (deviation, center) = shape(rest, 0.0, |deviation| (0.0..100.0).contains(&deviation))?;
            Some(Shape::Normal { deviation, center })
        }
        _ => None,
    }
}

/// Parses the shares of accesses and of the file (or sizes, if `parse` takes them) of each zone.
fn zones(text: &str, parse: impl Fn(&str) -> Option<u64>) -> Option<Vec<(u64, u64)>> {
    let entries = text.split(':').take_while(|zone| !zone.is_empty()).map(|zone| {
        let (accesses, share) = zone.split_once('/').unwrap_or((zone, ""));
        let share = if share.is_empty() { Some(None) } else { parse(share).map(Some) };
        Some((accesses.parse::<u64>().ok().filter(|n| *n <= 100)?, share?))
    });
    let entries: Option<Vec<(u64, Option<u64>)>> = entries.collect();
    let entries = entries.filter(|entries| !entries.is_empty() && entries.len() <= ENTRIES_MAX)?;
    let given = entries.iter().try_fold(0_u64, |sum, (_, share)| sum.checked_add(share.unwrap_or(0)))?;
    let missing = entries.iter().filter(|(_, share)| share.is_none()).count() as u64;
    let rest = 100_u64.saturating_sub(given) / missing.max(1);
    let zones: Vec<(u64, u64)> =
        entries.into_iter().map(|(accesses, share)| (accesses, share.unwrap_or(rest))).collect();
    (zones.iter().map(|(accesses, _)| accesses).sum::<u64>() == 100).then_some(zones)
}

pub fn distribution(text: &str, kb_base: u64) -> Option<Distribution> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    match name {
        "random" if rest.is_empty() => Some(Distribution::Uniform),
        "zoned" => {
            let one = |text: &str| {
                let percent = |text: &str| text.parse().ok().filter(|n: &u64| *n <= 100);
                zones(text, percent).filter(|zones| zones.iter().map(|zone| zone.1).sum::<u64>() <= 100)
            };
            for_each(&at_commas(rest), one)
                .map(|zones| Distribution::Zoned(zones.map(Option::unwrap_or_default)))
        }
        "zoned_abs" => {
            let one = |text: &str| zones(text, |size| number(size, kb_base));
            for_each(&at_commas(rest), one)
                .map(|zones| Distribution::ZonedBytes(zones.map(Option::unwrap_or_default)))
        }
        "sequence" => {
            let blocks: Option<Vec<u64>> = rest.split(',').map(|n| n.trim().parse().ok()).collect();
            let blocks = blocks.filter(|blocks| blocks.len() <= 1024)?;
            Some(Distribution::Sequence(blocks, false))
        }
        _ => skewed(text).map(Distribution::Skewed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_fio_s() {
        let sizes = ["4k", "4kb", "1ki", "2M", "512", "0x10", "1kib", "9b", "2mbytes", "100MB/s", "(2*2k)"];
        assert_eq!(
            sizes.map(|text| number(text, 1024)),
            [4096, 4096, 1024, 2 << 20, 512, 16, 1000, 9, 2 << 20, 100 << 20, 4096].map(Some)
        );
        assert_eq!(
            ["4k", "1ki", "1MiB", "(4k)"].map(|text| number(text, 1000)),
            [4000, 1000, 1 << 20, 4096].map(Some)
        );
        assert_eq!(
            ["", "k", "4x", "-1", "99999999999g", "1i", "20z", "1bib", "(1-2)"]
                .map(|text| number(text, 1024)),
            [None; 9]
        );
        for (unit, power) in [("k", 10), ("m", 20), ("g", 30), ("t", 40), ("p", 50)] {
            assert_eq!(number(&format!("3{unit}"), 1024), Some(3 << power), "3{unit}");
        }
        for (unit, us) in [("us", 1), ("usec", 1), ("ms", 1_000), ("msec", 1_000), ("s", 1_000_000)] {
            assert_eq!(time(&format!("3{unit}"), 7), Some(SimDuration::from_micros(3 * us)), "3{unit}");
        }
        for (unit, seconds) in [("m", 60), ("h", 3_600), ("d", 86_400)] {
            assert_eq!(time(&format!("3{unit}"), 7), Some(SimDuration::from_secs(3 * seconds)), "3{unit}");
        }
        assert_eq!(time("3w", 7), None);
        assert_eq!(size("30%", 1024), Some(Size::Percent(30)));
        assert_eq!(time("5m", 1), Some(SimDuration::from_secs(300)));
        assert_eq!(time("7", 1_000), Some(SimDuration::from_micros(7)));
        assert_eq!(time("3msecs", 7), Some(SimDuration::from_millis(3)));
        for (text, seconds_us, micros) in [
            ("(1*2)", Some(2_000_000), Some(2)),
            ("(2m)", Some(120_000_000), Some(120_000_000)),
            ("(1s+500ms)", Some(1_000_000), Some(1_500_000)),
            ("(60*60)", None, Some(3600)),
        ] {
            let of = |unit_ns| time(text, unit_ns).map(|time| time.0 / 1_000);
            assert_eq!((of(1_000_000_000), of(1_000)), (seconds_us, micros), "{text}");
        }
    }

    #[test]
    fn shares_of_blocks_are_at_most_the_whole() {
        assert_eq!(split("4k/10:64k/50:32k/40", 1024).unwrap(), [(4096, 10), (32_768, 40), (65_536, 50)]);
        assert_eq!(
            split("512/25:1k/:2k/:4k/", 1024).unwrap(),
            [(512, 25), (1024, 25), (2048, 25), (4096, 25)]
        );
        // What is missing is not written anywhere: a draw beyond all shares takes the last.
        assert_eq!(split("2m/33:4k/33:8k/20", 1024).unwrap(), [(8192, 20), (2 << 20, 33), (4096, 33)]);
        for wrong in ["4k/60:8k/50", "", "4k/x", "0/50:4k/50"] {
            assert_eq!(split(wrong, 1024), None, "{wrong}");
        }
    }

    #[test]
    fn one_value_is_for_all_directions() {
        let parse = |text: &str| number(text, 1024);
        for (text, values) in [
            ("4k", [Some(4096); 3]),
            ("1,2", [Some(1), Some(2), Some(2)]),
            ("1,2,3", [Some(1), Some(2), Some(3)]),
            // As fio 3.42 reads them.
            (",,3", [None, None, Some(3)]),
            (",2", [None, Some(2), Some(2)]),
            (",2,", [None, Some(2), None]),
            ("1,", [Some(1), None, None]),
            ("1,,", [Some(1), None, None]),
        ] {
            assert_eq!(for_each(&at_commas(text), parse), Some(values), "{text}");
        }
        for wrong in ["1,2,3,4", "1,x", "", ",", ",,"] {
            assert_eq!(for_each(&at_commas(wrong), parse), None, "{wrong}");
        }
    }

    #[test]
    fn a_value_is_split_where_fio_splits_it() {
        for (text, expected) in [
            ("4k-512k", &["4k", "512k"][..]),
            ("4k:8k:16k", &["4k", "8k", "16k"]),
            ("4k-8k,16k", &["4k-8k", "16k"]),
            ("4k,8k:16k-32k", &["4k", "8k", "16k", "32k"]),
            ("-1", &["-1"]),
            ("", &[""]),
        ] {
            assert_eq!(pieces(text), expected, "{text}");
        }
        assert_eq!(block_range("64k-4k", 1024), Some((4096, 65_536)));
        assert_eq!(block_range("(1k*4)-(1k*16)", 1024), Some((4096, 16_384)));
        assert_eq!(file_size("4k-1m", 1024), Some((4096, 1 << 20)));
    }

    #[test]
    fn distributions_have_numbers_in_range() {
        let parse = |text: &str| distribution(text, 1024);
        assert_eq!(parse("zipf"), Some(Distribution::Skewed(Shape::Zipf { theta: 1.1, center: None })));
        assert_eq!(
            parse("pareto:0.3:0.5"),
            Some(Distribution::Skewed(Shape::Pareto { h: 0.3, center: Some(0.5) }))
        );
        let Some(Distribution::Zoned([read, ..])) = parse("zoned:50/5:30/15:20/") else { panic!("no zones") };
        assert_eq!(read, [(50, 5), (30, 15), (20, 80)]);
        for wrong in
            ["zipf:1", "zipf:x", "pareto:1", "normal:100", "zipf:1.2:7", "zoned:50/50", "random:1", "x"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
