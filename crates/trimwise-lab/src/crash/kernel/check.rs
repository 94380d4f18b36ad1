//! Compares the files found after a cut with the contents that they may have.

use std::ops::Range;

use trimwise::workload::tagged::bytes::{Run, byte};
use trimwise_uml::job::FoundFile;

use super::Broken;
use super::expected::{Change, Expected};

const SHOWN_BYTES: usize = 8;

pub(super) fn files(expected: &[Expected], found: &[FoundFile], broken: &mut Vec<Broken>) -> u64 {
    // For each expected file, true if a file that was found can be it.
    let mut is_there = vec![false; expected.len()];
    for file in found {
        let path = &file.path;
        if let Some(error) = &file.error {
            broken.push(Broken::Unreadable { path: path.clone(), error: error.clone() });
            continue;
        }
        let candidates = (0..expected.len()).rev();
        let mut candidates: Vec<usize> = candidates.filter(|&i| expected[i].names.contains(path)).collect();
        let is_known = !candidates.is_empty();
        candidates.retain(|&i| !expected[i].is_gone);
        let judged: Vec<(usize, Option<Broken>)> =
            candidates.iter().map(|&i| (i, content(path, &expected[i], &file.runs))).collect();
        for (i, _) in judged.iter().filter(|(_, wrong)| wrong.is_none()) {
            is_there[*i] = true;
        }
        if judged.iter().any(|(_, wrong)| wrong.is_none()) {
            continue;
        }
        // Report the difference to a file that must exist.
        let nearest = judged.iter().position(|(i, _)| expected[*i].must_exist).unwrap_or(0);
        match judged.into_iter().nth(nearest) {
            Some((i, wrong)) => {
                is_there[i] = true;
                broken.extend(wrong);
            }
            None if is_known => broken.push(Broken::RemovedFileIsBack { path: path.clone() }),
            None => broken.push(Broken::UnexpectedFile { path: path.clone() }),
        }
    }
    for (expected, _) in expected.iter().zip(&is_there).filter(|(e, there)| e.must_exist && !**there) {
        broken.push(Broken::SyncedFileMissing { path: expected.names.join("' or '") });
    }
    expected.iter().filter(|expected| expected.must_exist).count() as u64
}

/// Checks a file's length and every byte of it; returns the first error.
pub(super) fn content(path: &str, expected: &Expected, found: &[Run]) -> Option<Broken> {
    let length = found.iter().map(Run::length_bytes).sum::<u64>();
    let (shortest, longest) = lengths(expected);
    if length < shortest || length > longest {
        return Some(Broken::WrongLength { path: path.to_owned(), found_bytes: length, shortest, longest });
    }
    let wrong = |at: u64, found: String| {
        Some(Broken::WrongBytes {
            path: path.to_owned(),
            offset_bytes: at,
            found,
            expected: describe(expected, at),
        })
    };
    let mut at = 0;
    for run in found {
        let end = at + run.length_bytes();
        match run {
            Run::Of(operation, _) => {
                let held = |at| byte(*operation, at);
                if let Some(at) = first_foreign(expected, at..end, Some(*operation), held) {
                    return wrong(at, format!("what operation {operation} wrote"));
                }
            }
            Run::Zeros(_) => {
                if let Some(at) = first_foreign(expected, at..end, None, |_| 0) {
                    return wrong(at, "zeros".to_owned());
                }
            }
            Run::Raw(bytes) => {
                for (offset, &held) in (at..).zip(bytes) {
                    if !may_be(expected, offset, held) {
                        let from = (offset - at) as usize;
                        let shown = &bytes[from..bytes.len().min(from + SHOWN_BYTES)];
                        return wrong(offset, format!("the bytes {shown:02x?}"));
                    }
                }
            }
            Run::Garbage(_) => return wrong(at, "bytes that no operation wrote".to_owned()),
        }
        at = end;
    }
    None
}

/// Returns the minimum and maximum length of the file: a write or a truncation may be there in part.
fn lengths(expected: &Expected) -> (u64, u64) {
    let mut length = expected.base.length;
    let (mut shortest, mut longest) = (length, length);
    for change in &expected.optional {
        length = match *change {
            Change::Write { offset, length: written, .. } => length.max(offset + written),
            Change::Truncate { length } => length,
            Change::Punch { .. } => length,
        };
        shortest = shortest.min(length);
        longest = longest.max(length);
    }
    (shortest, longest)
}

/// Returns the parts of the file where this operation's bytes may be, or zeros if it is `None`.
fn sources(expected: &Expected, operation: Option<u32>) -> Vec<(u64, u64)> {
    let mut parts = Vec::new();
    match operation {
        Some(operation) => {
            let pieces = expected.base.pieces.iter().filter(|piece| piece.2 == operation);
            parts.extend(pieces.map(|&(start, end, _)| (start, end)));
            parts.extend(expected.optional.iter().filter_map(|change| match *change {
                Change::Write { operation: this, offset, length } if this == operation => {
                    Some((offset, offset + length))
                }
                _ => None,
            }));
        }
        None => {
            let mut hole = 0;
            for &(start, end, _) in &expected.base.pieces {
                parts.push((hole, start));
                hole = end;
            }
            parts.push((hole, u64::MAX));
            parts.extend(expected.optional.iter().filter_map(|change| match *change {
                Change::Truncate { length } => Some((length, u64::MAX)),
                Change::Punch { offset, length } => Some((offset, offset + length)),
                Change::Write { .. } => None,
            }));
        }
    }
    parts.sort_unstable();
    parts
}

/// Returns the first place of a range that cannot hold this operation's bytes (zeros if it is `None`).
fn first_foreign(
    expected: &Expected,
    range: Range<u64>,
    operation: Option<u32>,
    held: impl Fn(u64) -> u8,
) -> Option<u64> {
    let mut at = range.start;
    for (start, stop) in sources(expected, operation).into_iter().chain([(range.end, range.end)]) {
        // A byte here may be another operation's with the same value.
        let gap = at..start.min(range.end);
        if let Some(wrong) = gap.into_iter().find(|&at| !may_be(expected, at, held(at))) {
            return Some(wrong);
        }
        at = at.max(stop);
    }
    None
}

fn may_be(expected: &Expected, at: u64, held: u8) -> bool {
    let covers = |start: u64, end: u64| start <= at && at < end;
    let of_base = expected.base.pieces.iter().find(|piece| covers(piece.0, piece.1));
    let is_base = match of_base {
        Some(&(_, _, operation)) => held == byte(operation, at),
        None => held == 0,
    };
    is_base
        || expected.optional.iter().any(|change| match *change {
            Change::Write { operation, offset, length } => {
                covers(offset, offset + length) && held == byte(operation, at)
            }
            Change::Truncate { length } => held == 0 && at >= length,
            Change::Punch { offset, length } => held == 0 && covers(offset, offset + length),
        })
}

fn describe(expected: &Expected, at: u64) -> String {
    let covers = |start: u64, end: u64| start <= at && at < end;
    let pieces = expected.base.pieces.iter().filter(|piece| covers(piece.0, piece.1));
    let mut may_be: Vec<String> = pieces.map(|piece| format!("operation {}", piece.2)).collect();
    if may_be.is_empty() {
        may_be.push("zeros".to_owned());
    }
    let later = expected.optional.iter().filter_map(|change| match *change {
        Change::Write { operation, offset, length } if covers(offset, offset + length) => {
            Some(format!("operation {operation}"))
        }
        _ => None,
    });
    may_be.extend(later);
    let how = if expected.promised { "as synced, or written since" } else { "never synced" };
    format!("{} ({how})", may_be.join(" or "))
}

#[cfg(test)]
mod tests {
    use trimwise::workload::tagged::bytes::{attribute, written};

    use super::super::history::History;
    use super::super::history::tests::log;
    use super::*;

    /// What is found wrong in these files, after a cut before the mark `now` of the shared log.
    fn wrong(now: usize, found: &[(&str, Vec<u8>)]) -> Vec<Broken> {
        let expected = History::of(&log()).at(now, None);
        let file = |(path, bytes): &(&str, Vec<u8>)| FoundFile {
            path: (*path).to_owned(),
            runs: attribute(bytes),
            error: None,
        };
        let found: Vec<FoundFile> = found.iter().map(file).collect();
        let mut broken = Vec::new();
        files(&expected, &found, &mut broken);
        broken
    }

    fn kinds(broken: &[Broken]) -> Vec<&'static str> {
        broken.iter().map(Broken::kind).collect()
    }

    /// What the operations 2 and 4 of the shared log leave.
    fn first() -> Vec<u8> {
        written(2, 0, 5000)
    }

    fn second() -> Vec<u8> {
        let mut bytes = first();
        bytes[1000..1100].copy_from_slice(&written(4, 1000, 100));
        bytes
    }

    #[test]
    fn a_synced_file_is_there_and_whole() {
        assert_eq!(wrong(6, &[("a", first())]), [], "synced, nothing since");
        assert_eq!(kinds(&wrong(6, &[])), ["synced-file-missing"]);
        assert_eq!(kinds(&wrong(6, &[("a", vec![])])), ["wrong-length"]);
        assert_eq!(kinds(&wrong(6, &[("a", second())])), ["wrong-bytes"], "not written yet");
        let mut holed = first();
        holed[4096..].fill(0);
        assert_eq!(kinds(&wrong(6, &[("a", holed)])), ["wrong-bytes"]);
        assert_eq!(kinds(&wrong(6, &[("a", first()), ("b", vec![])])), ["unexpected-file"]);
    }

    #[test]
    fn what_was_not_synced_may_be_there_or_not_or_in_part() {
        assert_eq!(wrong(3, &[]), [], "never synced");
        assert_eq!(wrong(3, &[("a", vec![0; 5000])]), []);
        assert_eq!(wrong(3, &[("a", first()[..77].to_vec())]), []);
        for bytes in [first(), second()] {
            assert_eq!(wrong(8, &[("a", bytes)]), []);
        }
        let mut part = second();
        part[1050..1100].copy_from_slice(&first()[1050..1100]);
        assert_eq!(wrong(8, &[("a", part.clone())]), []);
        part[1060] ^= 1;
        assert_eq!(kinds(&wrong(8, &[("a", part)])), ["wrong-bytes"]);
    }

    #[test]
    fn a_file_keeps_one_of_its_names_until_its_removal_is_durable() {
        for name in ["a", "b"] {
            assert_eq!(wrong(10, &[(name, second())]), [], "renamed, not synced");
        }
        assert_eq!(kinds(&wrong(10, &[])), ["synced-file-missing"]);
        assert_eq!(wrong(12, &[("b", second())]), []);
        assert_eq!(kinds(&wrong(12, &[("a", second())])), ["unexpected-file", "synced-file-missing"]);
        for found in [vec![], vec![("b", second())]] {
            assert_eq!(wrong(14, &found), [], "unlinked, not synced");
        }
        assert_eq!(kinds(&wrong(16, &[("b", second())])), ["removed-file-is-back"]);
        assert_eq!(wrong(16, &[]), []);
    }

    #[test]
    fn holes_and_truncations_since_the_sync_may_be_there_or_not_or_in_part() {
        let base = written(1, 0, 4096);
        let with = |change: Change| {
            let mut expected = Expected { optional: vec![change], ..Expected::default() };
            expected.base.apply(Change::Write { operation: 1, offset: 0, length: 4096 });
            move |bytes: &[u8]| content("a", &expected, &attribute(bytes)).map(|wrong| wrong.kind())
        };
        let zeros = |range: Range<usize>| {
            let mut bytes = base.clone();
            bytes[range].fill(0);
            bytes
        };
        let punched = with(Change::Punch { offset: 512, length: 512 });
        for range in [0..0, 512..1024, 600..700] {
            assert_eq!(punched(&zeros(range)), None);
        }
        for range in [500..1024, 512..1040, 2048..4096] {
            assert_eq!(punched(&zeros(range)), Some("wrong-bytes"));
        }
        assert_eq!(punched(&base[..4095]), Some("wrong-length"));
        let cut = with(Change::Truncate { length: 2048 });
        for bytes in [&base[..], &base[..3000], &base[..2048], &zeros(2048..4096)] {
            assert_eq!(cut(bytes), None);
        }
        assert_eq!(cut(&base[..2047]), Some("wrong-length"));
        assert_eq!(cut(&zeros(2000..4096)), Some("wrong-bytes"));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_reported_and_those_that_had_to_be_there_are_counted() {
        let history = History::of(&log());
        let error = Some("Input/output error".to_owned());
        let unreadable = [FoundFile { path: "a".to_owned(), runs: Vec::new(), error }];
        for (now, had_to_be_there, expected) in
            [(3, 0, &["unreadable"][..]), (6, 1, &["unreadable", "synced-file-missing"])]
        {
            let mut broken = Vec::new();
            assert_eq!(files(&history.at(now, None), &unreadable, &mut broken), had_to_be_there);
            assert_eq!(kinds(&broken), expected);
        }
    }

    /// Where two operations write the same byte, a part of a cell looks like a whole one of the older.
    #[test]
    fn regression_a_byte_that_two_operations_share_is_of_either() {
        let shared = (2..).find(|&newer| byte(newer, 16) == byte(1, 16)).unwrap();
        let mut expected = Expected::default();
        expected.base.apply(Change::Write { operation: 1, offset: 0, length: 64 });
        expected.base.apply(Change::Write { operation: shared, offset: 0, length: 17 });
        let mut bytes = written(1, 0, 64);
        bytes[..17].copy_from_slice(&written(shared, 0, 17));
        assert_eq!(content("a", &expected, &attribute(&bytes)), None);
        bytes[..16].copy_from_slice(&written(1, 0, 16));
        assert_eq!(content("a", &expected, &attribute(&bytes)).unwrap().kind(), "wrong-bytes");
    }

    #[test]
    fn garbage_is_never_right() {
        let found = attribute(&vec![0xdb; 8192]);
        let expected = Expected { optional: vec![Change::Truncate { length: 8192 }], ..Expected::default() };
        assert_eq!(content("a", &expected, &found).unwrap().kind(), "wrong-bytes");
    }
}
