//! Named workloads on a smaller drive.

use super::parameters::{Kind, Parameter, Spec};
use super::{ALL, Application};
use crate::units::UNIT_BYTES;

/// A scaled workload keeps at least this part of the default of each parameter that scales, and of what follows from
/// those that shrink. With less, rare events (an update, a rewritten table) are too few to show their share.
const PARTS: u64 = 4;

impl Application {
    fn spec(&self) -> &'static Spec {
        ALL.iter().find(|spec| spec.name == self.name).expect("it was made from one")
    }

    fn value(&self, parameter: &Parameter) -> u64 {
        let given = self.given.iter().find(|(p, _)| p.name == parameter.name);
        given.map_or(parameter.default, |(_, value)| *value)
    }

    /// Returns the value as multiplied by `scale`.
    fn full_value(&self, parameter: &Parameter) -> u64 {
        let factor = if parameter.scales { self.common.scale } else { 1 };
        self.value(parameter).saturating_mul(factor)
    }

    /// Returns the workload for a drive of `factor` times the size, from 0 to 1: as many operations on proportionally
    /// less data, with `scale` resolved.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        Self::of(self.spec(), &|p| match p.name {
            "scale" => 1,
            _ if p.scales || p.shrinks => {
                let step =
                    if p.kind == Kind::Size && p.min.is_multiple_of(UNIT_BYTES) { UNIT_BYTES } else { 1 };
                let scaled = (self.full_value(p) as f64 * factor / step as f64).round() as u64 * step;
                scaled.clamp(p.min, p.max)
            }
            _ => self.value(p),
        })
    }

    /// Returns the smallest factor at which the workload still shows what it shows in full; at most 1.
    pub fn scale_min(&self) -> f64 {
        let least = self.spec().all().filter_map(|p| {
            let part = 1.0 / PARTS as f64;
            let of_default = p.default as f64 * part / self.full_value(p).max(1) as f64;
            (p.scales || p.shrinks).then_some(if p.scales { of_default } else { part })
        });
        least.fold(0.0, f64::max).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Application {
        text.parse().unwrap()
    }

    #[test]
    fn a_scaled_workload_is_one_that_can_be_given() {
        for (text, factor, scaled) in [
            ("desktop", 0.25, "desktop:steps=5k,cache=80MiB"),
            ("desktop:scale=8,sqlite=30", 0.125, "desktop:cache=40MiB,sqlite=30"),
            (
                "oltp",
                0.5,
                "oltp:transactions=20k,data=192MiB,segment=8MiB,checkpoint=16MiB,keep=16MiB,sort=1k,sorted=16MiB",
            ),
            ("maildir", 1.0, "maildir"),
            ("maildir:messages=1", 0.01, "maildir:messages=1,deliveries=300"),
        ] {
            let made = parsed(text).scaled(factor);
            assert_eq!(made.to_string(), scaled);
            assert_eq!(parsed(scaled), made, "{text}");
        }
    }

    #[test]
    fn operations_and_space_shrink_in_proportion() {
        for spec in ALL {
            let whole = parsed(spec.name);
            let least = whole.scale_min();
            assert!(least > 0.0 && least < 1.0, "{}: {least}", spec.name);
            for factor in [least, 0.5] {
                let small = whole.scaled(factor);
                let operations = small.operations() as f64 / whole.operations() as f64;
                assert!((operations / factor - 1.0).abs() < 0.02, "{}: {operations} at {factor}", spec.name);
                // Some of it does not shrink: databases of a desktop, buffers.
                let needed = small.needed().0 as f64 / whole.needed().0 as f64;
                assert!(
                    needed > factor * 0.95 && needed < factor * 1.7,
                    "{}: {needed} at {factor}",
                    spec.name
                );
            }
        }
    }

    #[test]
    fn what_is_larger_than_the_default_can_shrink_more() {
        let least = |text: &str| parsed(text).scale_min();
        assert_eq!(
            [least("maildir"), least("maildir:scale=4"), least("maildir:deliveries=100")],
            [0.25, 0.0625, 1.0]
        );
        assert_eq!(least("maildir:deliveries=1M"), 0.25, "as many messages at a time");
        assert_eq!(least("oltp:scale=100"), 0.25, "its checkpoints are of their usual size");
    }
}
