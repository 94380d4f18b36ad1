//! Numbers as tables and reports show them.

use trimwise::experiment::statistics::{Comparison, Interval, Sample};
use trimwise::experiment::summary::PolicySummary;
pub use trimwise::experiment::verdict::thousands;
use trimwise::units::{Bytes, UNIT_BYTES};

/// What stands where there is no figure.
pub const NONE: &str = "-";

/// The minus sign, as wide as a plus.
const MINUS: &str = "\u{2212}";

/// About four significant digits, without an exponent.
pub fn significant(f: f64) -> String {
    match f.abs() {
        a if !a.is_finite() => NONE.to_string(),
        a if a >= 999.5 => thousands(f.round()),
        a if a >= 99.95 => format!("{f:.1}"),
        a if a >= 9.995 => format!("{f:.2}"),
        a if a >= 0.001 || a == 0.0 => format!("{f:.3}"),
        _ => format!("{f:.6}"),
    }
}

/// A whole number, its digits in groups of three: `1,234,567`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A relative change with its sign: `0.163` is `+16.3 %`.
pub fn change(ratio: f64) -> String {
    let percent = ratio * 100.0;
    let text = match percent.abs() {
        a if !a.is_finite() => return NONE.to_string(),
        a if a >= 999.5 => format!("{} %", thousands(percent.abs())),
        a => format!("{a:.1} %"),
    };
    if text == "0.0 %" {
        text
    } else if percent < 0.0 {
        format!("{MINUS}{text}")
    } else {
        format!("+{text}")
    }
}

/// How far an interval reaches from its median, on the wider side: `± 1.2 %`.
pub fn plus_minus(median: f64, interval: Interval) -> String {
    if interval.confidence <= 0.0 {
        return "± ?".to_string(); // a single run
    }
    let reach = (interval.high - median).max(median - interval.low);
    if median == 0.0 { "± 0 %".to_string() } else { format!("± {:.1} %", reach / median * 100.0) }
}

/// The number of runs; where one says it all, that it is exact.
pub fn runs(sample: &Sample) -> String {
    if sample.is_exact() { "1, exact".to_string() } else { sample.n().to_string() }
}

/// The median of a duration with its interval.
pub fn duration(sample: &Sample) -> String {
    let median = format!("{} s", significant(sample.median()));
    if sample.is_exact() {
        median
    } else {
        format!("{median} {}", plus_minus(sample.median(), sample.interval()))
    }
}

/// The change in duration against the baseline; `~` where there is none that is significant.
pub fn difference(comparison: Option<&Comparison>) -> String {
    match comparison {
        None => String::new(),
        Some(c) if !c.significant => "~".to_string(),
        Some(c) => change(1.0 / c.ratio - 1.0),
    }
}

/// A number of units as bytes.
pub fn units_as_bytes(units: f64) -> String {
    Bytes((units * UNIT_BYTES as f64) as u64).to_string()
}

/// A span of time in the unit that suits it.
pub fn nanoseconds(ns: f64) -> String {
    let (value, unit) = match ns {
        n if n >= 1e9 => (n / 1e9, "s"),
        n if n >= 1e6 => (n / 1e6, "ms"),
        n if n >= 1e3 => (n / 1e3, "\u{b5}s"),
        n => (n, "ns"),
    };
    let digits = if value >= 99.95 { 0 } else { usize::from(value.fract() != 0.0) };
    format!("{value:.digits$} {unit}")
}

/// The figures of a policy that follow its duration in table and report.
pub fn of_policy(p: &PolicySummary) -> [String; 5] {
    let device = |figure: Option<f64>, show: &dyn Fn(f64) -> String| figure.map_or(NONE.to_string(), show);
    [
        significant(p.median_of(|c| c.postmark.transactions_per_s)),
        device(p.device_median_of(|d| d.write_amplification), &|wa| format!("{wa:.2}")),
        device(p.device_median_of(|d| d.erases as f64), &thousands),
        device(p.device_median_of(|d| d.trim_commands as f64), &thousands),
        device(p.device_median_of(|d| d.stale_units_max as f64), &units_as_bytes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_in_groups() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn numbers_have_as_many_digits_as_they_deserve() {
        assert_eq!(significant(2628.5), "2,629"); // ties away from zero, not to even
        assert_eq!(significant(182.44), "182.4");
        assert_eq!(significant(20.16), "20.16");
        assert_eq!(significant(0.5), "0.500");
        assert_eq!(significant(f64::NAN), "-");
        assert_eq!(thousands(1_234_567.0), "1,234,567");
        assert_eq!(thousands(-0.4), "0");
        assert_eq!(thousands(-1234.0), "\u{2212}1,234");
    }

    #[test]
    fn changes_carry_their_sign() {
        assert_eq!(change(0.1628), "+16.3 %");
        assert_eq!(change(-0.9363), "\u{2212}93.6 %");
        assert_eq!(change(0.0001), "0.0 %");
        assert_eq!(change(10.9369), "+1,094 %");
    }

    #[test]
    fn time_is_shown_in_the_unit_that_suits() {
        assert_eq!(nanoseconds(999.0), "999 ns");
        assert_eq!(nanoseconds(1_500.0), "1.5 \u{b5}s");
        assert_eq!(nanoseconds(2_000_000.0), "2 ms");
        assert_eq!(nanoseconds(12_340_000_000.0), "12.3 s");
    }

    #[test]
    fn one_inexact_run_has_an_unknown_interval() {
        let one = Sample::new(vec![10.0], false).unwrap();
        assert_eq!(duration(&one), "10.00 s ± ?");
        assert_eq!(runs(&one), "1");
        let exact = Sample::new(vec![10.0; 3], true).unwrap();
        assert_eq!(duration(&exact), "10.00 s");
        assert_eq!(runs(&exact), "1, exact");
    }
}
