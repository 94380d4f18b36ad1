//! Parses sizes as people write them.

use std::str::FromStr;

use thiserror::Error;

use super::Bytes;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{text}' is not a size: expected a whole number of bytes below 16 EiB, such as 4096, 64KiB or 1.5GiB (1,024 bytes \
     to the KiB; K, M, G, T alone mean the same) or 64kB (1,000 bytes to the kB)"
)]
pub struct SizeError {
    pub text: String,
}

impl FromStr for Bytes {
    type Err = SizeError;

    /// Parses the output of [`Bytes`] and more: digits, an optional fraction, optional blanks and a unit. `KiB`,
    /// `MiB`... are binary, `kB`, `MB`... decimal; `K`, `M`... are binary, as in fstrim(8). A fraction must give whole
    /// bytes.
    fn from_str(text: &str) -> Result<Self, SizeError> {
        size(text.trim()).map(Self).ok_or_else(|| SizeError { text: text.to_string() })
    }
}

fn size(text: &str) -> Option<u64> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let unit_bytes = u128::from(unit_bytes(unit.trim_start())?);
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction.trim_end_matches('0')),
        Some(_) => return None,
        None => (number, ""),
    };
    // The largest unit has fewer than nineteen decimals.
    let scale = u32::try_from(fraction.len()).ok().filter(|&digits| digits < 19).map(|d| 10u128.pow(d))?;
    let digits = u128::from(whole.parse::<u64>().ok()?) * scale
        + if fraction.is_empty() { 0 } else { u128::from(fraction.parse::<u64>().ok()?) };
    let scaled = digits.checked_mul(unit_bytes)?;
    scaled.is_multiple_of(scale).then(|| scaled / scale).and_then(|bytes| u64::try_from(bytes).ok())
}

fn unit_bytes(unit: &str) -> Option<u64> {
    if unit.is_empty() || unit == "B" {
        return Some(1);
    }
    let mut letters = unit.chars();
    let power =
        "kMGTPE".find(letters.next().map(|letter| if letter == 'K' { 'k' } else { letter })?)? as u32 + 1;
    match letters.as_str() {
        "" | "iB" => Some(1024u64.pow(power)),
        "B" => Some(1000u64.pow(power)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn binary_and_decimal_units_are_told_apart() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512 B", 512),
            ("64KiB", 65_536),
            ("64 K", 65_536),
            ("64kB", 64_000),
            ("64KB", 64_000),
            (" 128 MiB ", 128 << 20),
            ("1.5GiB", 3 << 29),
            ("1.50G", 3 << 29),
            ("0.5kB", 500),
            ("2TB", 2_000_000_000_000),
            ("15EiB", 15 << 60),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn an_error_names_the_text() {
        for text in [
            "",
            "B",
            "MiB",
            "-1",
            "+1",
            "1.",
            ".5",
            "1.5",
            "0.3KiB",
            "1.2.3",
            "12 XB",
            "1Kib",
            "1Mb",
            "1iB",
            "16EiB",
            "18446744073709551616",
            "1e9",
            "1 M iB",
            "0x10",
            "1.00000000000000000001E",
            "٣",
        ] {
            let message = text.parse::<Bytes>().unwrap_err().to_string();
            assert!(message.contains(&format!("'{text}'")) && message.contains("64KiB"), "{message}");
        }
    }

    proptest! {
        #[test]
        fn whole_multiples_are_read_as_they_are_printed(number in 0u64..1024, shift in 0u32..5) {
            let bytes = Bytes(number << (10 * shift));
            prop_assert_eq!(bytes.to_string().parse(), Ok(bytes));
        }

        #[test]
        fn no_text_panics_the_parser(text in "\\PC*") {
            let _ = text.parse::<Bytes>();
        }
    }
}
