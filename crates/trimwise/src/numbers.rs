//! Numbers as people read them: thousands separated, about four digits, a suitable unit.

use crate::units::{Bytes, UNIT_BYTES};

/// Shown where there is no figure.
pub const NONE: &str = "-";

/// The minus sign, as wide as a plus.
pub const MINUS: &str = "\u{2212}";

/// Formats a number and what it counts: `1 cut`, `1,000 cuts`.
pub fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Formats with about four significant digits, without an exponent.
pub fn significant(f: f64) -> String {
    let text = match f.abs() {
        a if !a.is_finite() => return NONE.to_string(),
        0.0 => return "0".to_string(),
        a if a >= 999.5 => thousands(f.round()),
        a if a >= 99.95 => format!("{f:.1}"),
        a if a >= 9.995 => format!("{f:.2}"),
        a if a >= 0.001 => format!("{f:.3}"),
        _ => format!("{f:.6}"),
    };
    text.replace('-', MINUS)
}

/// Formats with about two digits, for sizes that are felt rather than compared: `12`, `7.1`, `7`.
pub fn two_digits(value: f64) -> String {
    match value.abs() {
        a if a >= 9.95 => format!("{a:.0}"),
        a if a >= 0.995 || a == 0.0 => format!("{a:.1}").replace(".0", ""),
        a => format!("{a:.2}"),
    }
}

/// Formats a relative change with its sign: `0.163` is `+16.3 %`.
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

/// Formats a time in seconds with about four digits in a suitable unit.
pub fn time(seconds: f64) -> String {
    time_by(seconds, significant)
}

/// Formats a time in seconds as it is spoken of, with two digits.
pub fn rough_time(seconds: f64) -> String {
    time_by(seconds, two_digits)
}

fn time_by(seconds: f64, digits: impl Fn(f64) -> String) -> String {
    let (value, unit) = match seconds.abs() {
        0.0 => return "0 s".to_string(),
        s if s >= 0.9995 => (seconds, "s"),
        s if s >= 0.000_999_5 => (seconds * 1e3, "ms"),
        _ => (seconds * 1e6, "\u{b5}s"),
    };
    format!("{} {unit}", digits(value))
}

/// Formats a share; `0 %` only for exactly none.
pub fn percent(percent: f64) -> String {
    match percent {
        0.0 => "0 %".to_string(),
        p if p < 0.1 => "< 0.1 %".to_string(),
        p => format!("{p:.1} %"),
    }
}

pub fn units_as_bytes(units: f64) -> String {
    Bytes((units * UNIT_BYTES as f64) as u64).to_string()
}

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

/// Formats a rounded number with thousands separators and a true minus sign: `−1,234`.
pub fn thousands(f: f64) -> String {
    let digits = format!("{:.0}", f.abs());
    let sign = if f < 0.0 && digits != "0" { "\u{2212}" } else { "" };
    format!("{sign}{}", in_groups(&digits))
}

/// Formats a whole number with thousands separators: `1,234,567`.
pub fn grouped(n: u64) -> String {
    in_groups(&n.to_string())
}

fn in_groups(digits: &str) -> String {
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
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
        assert_eq!([0.0, -0.0].map(significant), ["0", "0"]);
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
    fn spans_keep_their_digits_in_any_unit() {
        assert_eq!(time(20.751), "20.75 s");
        assert_eq!(time(0.0123), "12.30 ms");
        assert_eq!(time(0.000_012_3), "12.30 \u{b5}s");
        assert_eq!(time(0.0), "0 s");
        assert_eq!(percent(0.01), "< 0.1 %");
        assert_eq!(percent(12.34), "12.3 %");
    }
}
