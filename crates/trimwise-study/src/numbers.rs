//! Numbers for people. (To be replaced by `trimwise::numbers`.)

pub use trimwise::compare::verdict::grouped;
use trimwise::compare::verdict::thousands;

/// A number with what it counts: `1 cut`, `1,000 cuts`.
pub fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}

fn significant(f: f64) -> String {
    match f.abs() {
        a if a >= 999.5 => thousands(f.round()),
        a if a >= 99.95 => format!("{f:.1}"),
        a if a >= 9.995 => format!("{f:.2}"),
        _ => format!("{f:.3}"),
    }
}

/// Formats a time in seconds with about four digits in a suitable unit.
pub fn time(seconds: f64) -> String {
    let (value, unit) = match seconds.abs() {
        0.0 => return "0 s".to_string(),
        s if s >= 0.9995 => (seconds, "s"),
        s if s >= 0.000_999_5 => (seconds * 1e3, "ms"),
        _ => (seconds * 1e6, "\u{b5}s"),
    };
    format!("{} {unit}", significant(value))
}
