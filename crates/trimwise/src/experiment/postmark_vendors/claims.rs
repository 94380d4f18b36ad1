//! What the table of `postmark-vendors` says: its rows beside the published ones, and which claims hold.

use super::{CREATION_ALONE_PER_S, Column, DEVICES, METRICS, Means, TRANSACTIONS_PER_S};
use crate::experiment::result::{Claim, Figure, VendorRow, open_claims};

/// All columns, measured.
pub struct Table<'a> {
    /// In the order of `columns`.
    pub measured: &'a [Means],
    pub columns: &'a [Column],
}

/// Tolerances as the claims state them: of a rate, of the deletion phase (the larger of the two), and the
/// size of a DIFF that counts as none.
const RATE_TOLERANCE: f64 = 0.10;
const DELETION_TOLERANCE: f64 = 0.25;
const DELETION_TOLERANCE_S: f64 = 3.0;
const SMALL_DIFF_PERCENT: f64 = 5.0;

impl Table<'_> {
    fn pairs(&self) -> impl Iterator<Item = (Column, &Means, Means)> {
        self.columns.iter().zip(self.measured).map(|(&c, m)| (c, m, Means::published(c)))
    }

    fn at(&self, device: &str, buffering: bool, discard: bool) -> Option<&Means> {
        self.pairs()
            .find(|(c, ..)| c.device == device && c.buffering == buffering && c.discard == discard)
            .map(|(_, m, _)| m)
    }

    /// Change of Transactions/s by discard, in percent: measured and published.
    fn diffs(&self) -> Vec<(&'static str, bool, f64, f64)> {
        let mut diffs = Vec::new();
        for device in DEVICES {
            for buffering in [true, false] {
                let published =
                    |discard| Means::published(Column { device, buffering, discard }).transactions_per_s();
                if let (Some(off), Some(on)) =
                    (self.at(device, buffering, false), self.at(device, buffering, true))
                {
                    let measured = on.transactions_per_s() / off.transactions_per_s() - 1.0;
                    let known = published(true) / published(false) - 1.0;
                    diffs.push((device, buffering, 100.0 * measured, 100.0 * known));
                }
            }
        }
        diffs
    }

    /// The source's rows in its order, and behind those of each table the phase that its rates hide.
    pub fn rows(&self) -> Vec<VendorRow> {
        let mut rows = Vec::new();
        for device in DEVICES {
            for buffering in [true, false] {
                let (Some(off), Some(on)) =
                    (self.at(device, buffering, false), self.at(device, buffering, true))
                else {
                    continue;
                };
                let published = |discard| Means::published(Column { device, buffering, discard });
                let (published_off, published_on) = (published(false), published(true));
                let row = |metric: &str, of: &dyn Fn(&Means) -> f64, fitted: bool| VendorRow {
                    device: device.to_owned(),
                    postmark_buffering: buffering,
                    metric: metric.to_owned(),
                    nodiscard: of(off),
                    discard: of(on),
                    published_nodiscard: of(&published_off),
                    published_discard: of(&published_on),
                    fitted,
                };
                for (index, metric) in METRICS.into_iter().enumerate() {
                    let fitted = buffering && [TRANSACTIONS_PER_S, CREATION_ALONE_PER_S].contains(&index);
                    rows.push(row(metric, &|means| means.values[index], fitted));
                }
                rows.push(row("Duration_of_deletion", &|means| means.deletion_s, false));
            }
        }
        rows
    }

    pub fn rates(&self) -> Claim {
        let errors: Vec<f64> = self
            .pairs()
            .flat_map(|(_, m, p)| {
                [
                    m.transactions_per_s() / p.transactions_per_s() - 1.0,
                    m.creation_alone_per_s() / p.creation_alone_per_s() - 1.0,
                ]
            })
            .collect();
        let within = errors.iter().filter(|e| e.abs() <= RATE_TOLERANCE).count();
        let worst = errors.iter().map(|e| e.abs()).fold(0.0, f64::max);
        Claim {
            id: "postmark-vendors",
            text: format!(
                "Transactions/s and Creation_alone/s of all {} columns within 10 % ({within} of {} are)",
                self.columns.len(),
                errors.len()
            ),
            met: within == errors.len(),
            published: Figure::Text(format!("{} columns", self.columns.len())),
            measured: Figure::Text(format!("largest error {:.1} %", 100.0 * worst)),
        }
    }

    pub fn deletion(&self) -> Claim {
        let mut outside = Vec::new();
        for (c, m, p) in self.pairs() {
            let error = (m.deletion_s - p.deletion_s).abs();
            if error > (DELETION_TOLERANCE * p.deletion_s).max(DELETION_TOLERANCE_S) {
                let how = match (c.buffering, c.discard) {
                    (true, false) => "buffered",
                    (true, true) => "buffered, discard",
                    (false, false) => "unbuffered",
                    (false, true) => "unbuffered, discard",
                };
                outside.push(format!("{} {how}: {:.1} s for {:.1} s", c.device, m.deletion_s, p.deletion_s));
            }
        }
        let vendor2 = |discard| {
            let column = Column { device: "vendor2", buffering: true, discard };
            (
                self.at("vendor2", true, discard).map_or(0.0, |m| m.deletion_s),
                Means::published(column).deletion_s,
            )
        };
        // The drive that the source's factor of fifty is about.
        let (off, on) = (vendor2(false), vendor2(true));
        let shown = |numbers| {
            let is_there = self.columns.iter().any(|c| c.device == "vendor2");
            if is_there { Figure::Numbers(numbers) } else { Figure::Text("vendor2 left out".to_owned()) }
        };
        let text = if outside.is_empty() {
            format!("the deletion phase of all {} columns within 25 % or 3 s", self.columns.len())
        } else {
            format!(
                "the deletion phase of all {} columns within 25 % or 3 s ({} are; outside: {})",
                self.columns.len(),
                self.measured.len() - outside.len(),
                outside.join("; ")
            )
        };
        Claim {
            id: "postmark-deletion",
            text,
            met: outside.is_empty(),
            published: shown(vec![off.1, on.1]),
            measured: shown(vec![off.0, on.0]),
        }
    }

    pub fn creation_unmoved(&self) -> Claim {
        let moved =
            self.diff_of(CREATION_ALONE_PER_S).fold(0.0, |worst: f64, change: f64| worst.max(change.abs()));
        let published = |device, buffering| {
            let rate =
                |discard| Means::published(Column { device, buffering, discard }).creation_alone_per_s();
            rate(true) / rate(false) - 1.0
        };
        let known = DEVICES
            .into_iter()
            .flat_map(|device| [published(device, true), published(device, false)])
            .fold(0.0, |worst: f64, change: f64| worst.max(change.abs()));
        Claim {
            id: "postmark-alone",
            text: "Creation_alone/s moves by less than 2 % with discard".to_owned(),
            met: moved < 0.02,
            published: Figure::Text(format!("at most {:.1} %", 100.0 * known)),
            measured: Figure::Text(format!("at most {:.1} %", 100.0 * moved)),
        }
    }

    fn diff_of(&self, metric: usize) -> impl Iterator<Item = f64> + '_ {
        DEVICES.into_iter().flat_map(move |device| {
            [true, false].into_iter().filter_map(move |buffering| {
                let off = self.at(device, buffering, false)?.values[metric];
                let on = self.at(device, buffering, true)?.values[metric];
                Some(on / off - 1.0)
            })
        })
    }

    pub fn order(&self) -> Claim {
        let diffs = self.diffs();
        let size = |device: &str, buffering: bool| {
            diffs.iter().find(|d| d.0 == device && d.1 == buffering).map_or(0.0, |d| d.2.abs())
        };
        let met = [true, false].into_iter().all(|b| {
            let rest = ["vendor4", "vendor5", "vendor6"].map(|d| size(d, b));
            let largest_rest = rest.into_iter().fold(0.0, f64::max);
            size("vendor2", b) > size("vendor3", b)
                && size("vendor3", b) > size("vendor1", b)
                && size("vendor1", b) > largest_rest
                && largest_rest <= SMALL_DIFF_PERCENT
        });
        Claim {
            id: "postmark-order",
            text:
                "|DIFF| of Transactions/s ranks vendor2 > vendor3 > vendor1 > the rest, and stays within 5 % \
                   for vendors 4, 5 and 6"
                    .to_owned(),
            met,
            published: Figure::Numbers(diffs.iter().map(|d| d.3).collect()),
            measured: Figure::Numbers(diffs.iter().map(|d| d.2).collect()),
        }
    }

    pub fn signs(&self) -> Claim {
        let large: Vec<_> = self.diffs().into_iter().filter(|d| d.3.abs() > SMALL_DIFF_PERCENT).collect();
        let wrong = large.iter().filter(|d| d.2 * d.3 <= 0.0).count();
        let negative = large.iter().filter(|d| d.3 < 0.0).count();
        Claim {
            id: "postmark-sign",
            text: "DIFF of Transactions/s has the right sign where it is beyond 5 %".to_owned(),
            met: wrong == 0,
            published: Figure::Text(format!(
                "{} columns beyond {SMALL_DIFF_PERCENT} %, {negative} of them negative",
                large.len()
            )),
            measured: Figure::Text(format!("{wrong} of them with the wrong sign")),
        }
    }

    pub fn small_stay_small(&self) -> Claim {
        let small: Vec<_> = self.diffs().into_iter().filter(|d| d.3.abs() <= SMALL_DIFF_PERCENT).collect();
        let worst = small.iter().fold(0.0, |worst: f64, d| worst.max(d.2.abs()));
        Claim {
            id: "postmark-small",
            text: "DIFF of Transactions/s is within 5 % where the published one is".to_owned(),
            met: worst <= SMALL_DIFF_PERCENT,
            published: Figure::Text(format!("{} columns within {SMALL_DIFF_PERCENT} %", small.len())),
            measured: Figure::Text(format!("at most {worst:.1} %")),
        }
    }

    /// What came out, from the figures themselves; `claims` are those of this table.
    pub fn finding(&self, claims: &[Claim]) -> String {
        let paying: Vec<String> = self
            .diffs()
            .into_iter()
            .filter(|d| d.1 && d.2 < -SMALL_DIFF_PERCENT)
            .map(|d| format!("{} {:.0} %", d.0, d.2))
            .collect();
        let drives = DEVICES.iter().filter(|device| self.at(device, true, true).is_some()).count();
        let pays = match paying.len() {
            0 => "None of the drives pays for discard during the transactions.".to_owned(),
            n => format!(
                "{n} of {drives} drives pay for discard during the transactions (rate, buffered: {}).",
                paying.join(", ")
            ),
        };
        format!("{pays} {}", open_claims(claims))
    }
}
