//! What the daemon must reach in the week, for each file system.

use super::{BOUND_PERMILLE, CAPACITY, Row, Trimming, bound};
use crate::experiment::result::{Claim, Figure};
use crate::units::Bytes;

/// The names of a file system's claims.
struct Names {
    file_system: &'static str,
    p99: &'static str,
    amplification: &'static str,
    bound: &'static str,
    discarded: &'static str,
}

const NAMES: [Names; 3] = [
    Names {
        file_system: "ext4",
        p99: "daemon-p99-ext4",
        amplification: "daemon-wa-ext4",
        bound: "daemon-bound-ext4",
        discarded: "daemon-discarded-ext4",
    },
    Names {
        file_system: "xfs",
        p99: "daemon-p99-xfs",
        amplification: "daemon-wa-xfs",
        bound: "daemon-bound-xfs",
        discarded: "daemon-discarded-xfs",
    },
    Names {
        file_system: "btrfs",
        p99: "daemon-p99-btrfs",
        amplification: "daemon-wa-btrfs",
        bound: "daemon-bound-btrfs",
        discarded: "daemon-discarded-btrfs",
    },
];

const P99_MAX: f64 = 1.10;
const AMPLIFICATION_MAX: f64 = 1.05;
const DISCARDED_MAX: f64 = 2.0;
const OF_FSTRIM_MAX: f64 = 0.5;

/// All claims of the file systems that were run under the daemon.
pub fn all(rows: &[Row]) -> Vec<Claim> {
    NAMES.iter().flat_map(|names| of_file_system(rows, names)).collect()
}

fn find<'a>(rows: &'a [Row], file_system: &str, trimming: Trimming) -> Option<&'a Row> {
    rows.iter().find(|row| row.case.file_system == file_system && row.case.trimming == trimming)
}

/// What came out, in a sentence or two.
pub fn finding(rows: &[Row]) -> String {
    let says = |names: &Names| {
        let of = |trimming| find(rows, names.file_system, trimming);
        let (daemon, fstrim) = (of(Trimming::Daemon)?, of(Trimming::FstrimDaily)?);
        let ms = |row: &Row| row.write_trimming.map(|latency| latency.p99_ns as f64 / 1e6);
        Some(format!(
            "On {} the p99 of writes while it trims is {:.2} ms under trimwised and {:.2} ms under a daily fstrim, and \
             write amplification {:.2} and {:.2}. ",
            names.file_system,
            ms(daemon)?,
            ms(fstrim)?,
            daemon.write_amplification,
            fstrim.write_amplification
        ))
    };
    NAMES.iter().filter_map(says).collect()
}

fn of_file_system(rows: &[Row], names: &Names) -> Vec<Claim> {
    let of = |trimming| find(rows, names.file_system, trimming);
    let Some(daemon) = of(Trimming::Daemon) else { return Vec::new() };
    let mut claims = vec![p99(names, daemon, of(Trimming::FstrimDaily)), below_bound(names, daemon)];
    claims.extend(of(Trimming::Discard).map(|always| amplification(names, daemon, always)));
    if names.file_system == "btrfs" {
        claims.extend(of(Trimming::FstrimDaily).map(|fstrim| half_of_fstrim(names, daemon, fstrim)));
    } else {
        claims.push(twice_freed(names, daemon));
    }
    claims
}

fn text(text: String) -> Figure {
    Figure::Text(text)
}

/// Of fewer writes the slowest one is the p99, which is chance.
const WRITES_MIN: u64 = 100;

/// How much longer writes take while it trims, in the hours of one rate of accesses.
struct Slower {
    busy: bool,
    /// So many were written while it trimmed.
    writes: u64,
    /// Over the p99 of untouched hours of that rate; where there is none, of the run that never trims.
    ratio: f64,
    beside_never: bool,
}

impl Slower {
    /// For each rate at which anything was written while it trimmed; with neither to compare it with, nothing is known.
    fn of(row: &Row) -> Option<Vec<Self>> {
        let touched = row.rates.iter().filter_map(|of| Some((of, of.trimming?)));
        let slower = touched.map(|(of, trimming)| {
            let calm = of.untouched.or(of.never)?;
            let ratio = trimming.p99_ns as f64 / calm.p99_ns as f64;
            let writes = trimming.count;
            Some(Self { busy: of.busy, writes, ratio, beside_never: of.untouched.is_none() })
        });
        slower.collect()
    }

    fn text(&self) -> String {
        let hours = if self.busy { "busy hours" } else { "other hours" };
        let beside = if self.beside_never { " beside never, since none of them is untouched" } else { "" };
        let few = if self.writes < WRITES_MIN { " in too few writes" } else { "" };
        format!("{hours} {:.3}{few}{beside}", self.ratio)
    }
}

fn worst(of_run: &[Slower]) -> Option<f64> {
    of_run.iter().filter(|of| of.writes >= WRITES_MIN).map(|of| of.ratio).max_by(f64::total_cmp)
}

fn p99(names: &Names, daemon: &Row, fstrim: Option<&Row>) -> Claim {
    let compared = Slower::of(daemon);
    let nothing_beside = compared.is_none();
    let slower = compared.unwrap_or_default();
    let said = |ratio: Option<f64>| ratio.map_or("not measured".to_owned(), |ratio| format!("{ratio:.3}"));
    let mut parts: Vec<String> = slower.iter().map(Slower::text).collect();
    parts.extend(fstrim.map(|row| {
        let ratio = Slower::of(row).and_then(|of_run| worst(&of_run));
        format!("fstrim daily: {}", said(ratio))
    }));
    if nothing_beside {
        parts.push("hours of one rate are all touched, and never was not run".to_owned());
    }
    let parts = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join("; ")) };
    Claim {
        id: names.p99,
        text: format!(
            "{}: p99 of writes in minutes of trimming over that of untouched hours of the same rate of accesses is at most \
             {P99_MAX}",
            names.file_system
        ),
        met: worst(&slower).is_some_and(|ratio| ratio <= P99_MAX),
        published: text(format!("at most {P99_MAX}")),
        measured: text(said(worst(&slower)) + &parts),
    }
}

fn amplification(names: &Names, daemon: &Row, always: &Row) -> Claim {
    let ratio = daemon.write_amplification / always.write_amplification;
    Claim {
        id: names.amplification,
        text: format!(
            "{}: write amplification is within 5 % of that of the mount option discard",
            names.file_system
        ),
        met: ratio <= AMPLIFICATION_MAX,
        published: text(format!("at most {AMPLIFICATION_MAX}")),
        measured: text(format!(
            "{ratio:.3} ({:.3} over {:.3})",
            daemon.write_amplification, always.write_amplification
        )),
    }
}

fn below_bound(names: &Names, daemon: &Row) -> Claim {
    let bound = bound(CAPACITY.0);
    let measured = match (daemon.under_bound_after_ns, daemon.untrimmed_max_bytes) {
        (Some(after), Some(most)) => format!("{}, from minute {} on", Bytes(most), after / 60_000_000_000),
        _ => "never below it".to_owned(),
    };
    Claim {
        id: names.bound,
        text: format!(
            "{}: once it is worked off, untrimmed space is never above untrimmed-max ({} %)",
            names.file_system,
            BOUND_PERMILLE / 10
        ),
        met: daemon.untrimmed_max_bytes.is_some_and(|most| most <= bound.0),
        published: text(format!("at most {bound}")),
        measured: text(measured),
    }
}

fn twice_freed(names: &Names, daemon: &Row) -> Claim {
    let text = format!("{}: at most twice as much is discarded as was freed", names.file_system);
    discarded(names, text, daemon, daemon.freed_bytes, DISCARDED_MAX)
}

fn half_of_fstrim(names: &Names, daemon: &Row, fstrim: &Row) -> Claim {
    let text = format!("{}: at most half of what a daily fstrim sends is discarded", names.file_system);
    discarded(names, text, daemon, fstrim.discards.bytes, OF_FSTRIM_MAX)
}

/// What the daemon sends is at most so many times as much as something else.
fn discarded(names: &Names, claimed: String, daemon: &Row, of_bytes: u64, max: f64) -> Claim {
    let ratio = daemon.discards.bytes as f64 / of_bytes.max(1) as f64;
    Claim {
        id: names.discarded,
        text: claimed,
        met: ratio <= max,
        published: text(format!("at most {max}")),
        measured: text(format!("{ratio:.2} ({} of {})", Bytes(daemon.discards.bytes), Bytes(of_bytes))),
    }
}
