//! Sets of addresses: ascending, disjoint spans.

use crate::units::Span;

pub fn bytes(spans: &[Span]) -> u64 {
    spans.iter().map(|span| span.bytes().0).sum()
}

/// Keeps the `most` longest spans, in order. Returns true if any were dropped.
pub fn keep_longest(spans: &mut Vec<Span>, most: usize) -> bool {
    if spans.len() <= most {
        return false;
    }
    spans.sort_unstable_by_key(|span| (std::cmp::Reverse(span.bytes().0), span.start));
    spans.truncate(most);
    spans.sort_unstable_by_key(|span| span.start);
    spans.shrink_to_fit();
    true
}

pub(crate) fn intersect(a: &[Span], b: &[Span]) -> Vec<Span> {
    let (mut i, mut j, mut both) = (0, 0, Vec::new());
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let (start, end) = (x.start.max(y.start), x.end.min(y.end));
        if start < end {
            both.push(Span { start, end });
        }
        if x.end < y.end {
            i += 1;
        } else {
            j += 1;
        }
    }
    both
}

pub(crate) fn subtract(a: &[Span], b: &[Span]) -> Vec<Span> {
    let (mut j, mut left) = (0, Vec::new());
    for &span in a {
        let mut start = span.start;
        while b.get(j).is_some_and(|other| other.end <= start) {
            j += 1;
        }
        let mut k = j;
        while let Some(other) = b.get(k).filter(|other| other.start < span.end) {
            if other.start > start {
                left.push(Span { start, end: other.start });
            }
            start = start.max(other.end);
            k += 1;
        }
        if start < span.end {
            left.push(Span { start, end: span.end });
        }
    }
    left
}

/// Union of `a` and `b`. Neighbours are merged.
pub fn union(a: &[Span], b: &[Span]) -> Vec<Span> {
    let (mut i, mut j) = (0, 0);
    let mut all: Vec<Span> = Vec::with_capacity(a.len() + b.len());
    loop {
        let next = match (a.get(i), b.get(j)) {
            (Some(x), Some(y)) if x.start <= y.start => *x,
            (_, Some(y)) => *y,
            (Some(x), None) => *x,
            (None, None) => break,
        };
        if a.get(i) == Some(&next) {
            i += 1;
        } else {
            j += 1;
        }
        match all.last_mut() {
            Some(last) if next.start <= last.end => last.end = last.end.max(next.end),
            _ => all.push(next),
        }
    }
    all.shrink_to_fit();
    all
}
