//! The table of `postmark-vendors`: its rows next to the published ones, and the figures that the claims are about.

use super::rows::VendorRow;
use super::{CREATION_ALONE_PER_S, Column, DEVICES, METRICS, Means, TRANSACTIONS_PER_S};
use crate::experiment::claims::Figures;

pub struct Table<'a> {
    /// In the order of `columns`.
    pub measured: &'a [Means],
    pub columns: &'a [Column],
}

/// A DIFF up to this size counts as none.
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

    /// Returns the drives and kinds of buffering measured both without and with discard: our means and the source's.
    fn mounts(&self) -> impl Iterator<Item = (&'static str, bool, [&Means; 2], [Means; 2])> {
        let of = |device, buffering| {
            let ours = [self.at(device, buffering, false)?, self.at(device, buffering, true)?];
            let published = |discard| Means::published(Column { device, buffering, discard });
            Some((device, buffering, ours, [false, true].map(published)))
        };
        DEVICES
            .into_iter()
            .flat_map(move |device| [true, false].into_iter().filter_map(move |b| of(device, b)))
    }

    /// Returns the change of Transactions/s by discard in percent: measured and published.
    fn diffs(&self) -> Vec<(&'static str, bool, f64, f64)> {
        let diff =
            |off: &Means, on: &Means| 100.0 * (on.transactions_per_s() / off.transactions_per_s() - 1.0);
        let of = |(device, buffering, [off, on], [known_off, known_on]): (_, _, [&Means; 2], [Means; 2])| {
            (device, buffering, diff(off, on), diff(&known_off, &known_on))
        };
        self.mounts().map(of).collect()
    }

    /// Returns the source's rows in its order; each table is followed by the phase that its rates hide.
    pub fn rows(&self) -> Vec<VendorRow> {
        let mut rows = Vec::new();
        for (device, buffering, ours, published) in self.mounts() {
            let row = |metric: &str, of: &dyn Fn(&Means) -> f64, fitted: bool| VendorRow {
                device: device.to_owned(),
                postmark_buffering: buffering,
                metric: metric.to_owned(),
                nodiscard: of(ours[0]),
                discard: of(ours[1]),
                published_nodiscard: of(&published[0]),
                published_discard: of(&published[1]),
                fitted,
            };
            for (index, metric) in METRICS.into_iter().enumerate() {
                let fitted = buffering && [TRANSACTIONS_PER_S, CREATION_ALONE_PER_S].contains(&index);
                rows.push(row(metric, &|means| means.values[index], fitted));
            }
            rows.push(row("Duration_of_deletion", &|means| means.deletion_s, false));
        }
        rows
    }

    /// Returns the figures of the claims for the buffered and the unbuffered columns: ours and (`published.`) the
    /// source's.
    pub fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        let name = |buffering| if buffering { "buffered" } else { "unbuffered" };
        for (c, ours, theirs) in self.pairs() {
            let of = name(c.buffering);
            let mount = if c.discard { "discard" } else { "nodiscard" };
            figures.push(format!("creation.{of}.{mount}"), [ours.creation_alone_per_s()]);
            for (side, means) in [("", ours), ("published.", &theirs)] {
                let rates = [means.transactions_per_s(), means.creation_alone_per_s()];
                figures.push(format!("{side}rates.{of}"), rates);
                figures.push(format!("{side}deletion"), [means.deletion_s]);
            }
            figures
                .push("deletion.vendor2", (c.device == "vendor2" && c.buffering).then_some(ours.deletion_s));
        }
        for (device, buffering, ours, theirs) in self.diffs() {
            let of = name(buffering);
            let size = if theirs.abs() > SMALL_DIFF_PERCENT { "large" } else { "small" };
            for (side, diff) in [("", ours), ("published.", theirs)] {
                figures.push(format!("{side}diff.{size}.{of}"), [diff]);
            }
            figures.push(format!("diff.{of}"), [ours]);
            figures.set(format!("{device}.{of}"), [ours]);
        }
        figures
    }

    pub fn finding(&self) -> String {
        let paying: Vec<String> = self
            .diffs()
            .into_iter()
            .filter(|d| d.1 && d.2 < -SMALL_DIFF_PERCENT)
            .map(|d| format!("{} {:.0} %", d.0, d.2))
            .collect();
        let drives = DEVICES.iter().filter(|device| self.at(device, true, true).is_some()).count();
        match paying.len() {
            0 => "None of the drives pays for discard during the transactions. ".to_owned(),
            n => format!(
                "{n} of {drives} drives pay for discard during the transactions (rate, buffered: {}). ",
                paying.join(", ")
            ),
        }
    }
}
