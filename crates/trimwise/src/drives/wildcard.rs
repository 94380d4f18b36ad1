//! Patterns for the names of drives.

/// Returns true if the pattern matches the whole text. `*` stands for any text, brackets for one of their characters:
/// as much of the kernel's `glob_match` as its lists of drives need.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.as_bytes(), text.as_bytes());
    // The pattern behind the last `*`, and the text that the `*` leaves to it. Earlier ones never need to take more.
    let mut last: Option<(&[u8], &[u8])> = None;
    loop {
        match (pattern, text) {
            ([b'*', rest @ ..], _) => {
                pattern = rest;
                last = Some((rest, text));
            }
            ([], []) => return true,
            _ => match one_more(pattern, text) {
                Some(rests) => (pattern, text) = rests,
                None => {
                    let Some((behind, [_, left @ ..])) = last else { return false };
                    (pattern, text) = (behind, left);
                    last = Some((behind, left));
                }
            },
        }
    }
}

/// Returns what is left of a pattern without a `*` at its head and of the text if the first character matches.
fn one_more<'a>(pattern: &'a [u8], text: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (byte, text) = text.split_first()?;
    match pattern {
        [b'[', rest @ ..] => {
            let end = rest.iter().position(|&byte| byte == b']')?;
            rest[..end].contains(byte).then(|| (&rest[end + 1..], text))
        }
        [first, rest @ ..] => (first == byte).then_some((rest, text)),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_text_must_match() {
        for (pattern, text, is_match) in [
            ("CT*MX500SSD1", "CT1000MX500SSD1", true),
            ("CT*MX500SSD1", "CT1000MX500SSD1 ", false),
            ("CT*MX500SSD1", "XCT1000MX500SSD1", false),
            ("*MZ7LH*", "SAMSUNG MZ7LH480HAHQ", true),
            ("M5[15]0", "M550", true),
            ("M5[15]0", "M540", false),
            ("M5[15", "M51", false),
            ("*", "", true),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1b2b3", false),
            ("*ab", "aab", true),
            ("*[ab]c", "xabc", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, text), is_match, "{pattern} {text:?}");
        }
    }

    #[test]
    fn a_pattern_of_many_stars_ends_soon() {
        assert!(!matches(&"*a".repeat(200), &("a".repeat(150) + "b")));
    }
}
