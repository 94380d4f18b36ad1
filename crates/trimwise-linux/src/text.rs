//! Text that users name things by, on its way to a terminal or a log.

/// Whether a terminal would take this character for a command, or would break or reorder the line by it: besides controls,
/// what Unicode has of line separators, marks of direction and other characters that are not seen.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}
