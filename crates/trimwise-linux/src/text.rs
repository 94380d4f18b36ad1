//! Prepares names chosen by users for a terminal, a log, or a shell.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Returns true if a terminal might treat this character as a command, or break or reorder the line by it: control
/// characters, and Unicode's line separators, direction marks and other invisible characters.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_string();
    }
    if word.contains(is_unprintable) {
        return escaped(word.as_bytes());
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Quotes a path, which need not be UTF-8.
pub fn quoted_path(path: &Path) -> String {
    path.to_str().map_or_else(|| escaped(path.as_os_str().as_bytes()), quoted)
}

/// Quotes a word as `$'...'` (POSIX 2024, bash, zsh, busybox), in printable characters only.
fn escaped(word: &[u8]) -> String {
    let octal = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\{byte:03o}")).collect::<String>();
    let mut text = "$'".to_owned();
    for chunk in word.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => text += "\\n",
                '\t' => text += "\\t",
                '\\' | '\'' => text.extend(['\\', c]),
                c if is_unprintable(c) => text += &octal(c.encode_utf8(&mut [0; 4]).as_bytes()),
                c => text.push(c),
            }
        }
        text += &octal(chunk.invalid());
    }
    text + "'"
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::process::Command;

    use super::*;

    /// A name with a newline was shown with a replacement character, and the command could not be repeated.
    #[test]
    fn regression_every_word_survives_a_shell() {
        for (word, expected) in [
            (&b"/srv/my disk"[..], "'/srv/my disk'"),
            (b"/srv/it's", r"'/srv/it'\''s'"),
            (b"/srv/a\nb\t", r"$'/srv/a\nb\t'"),
            (b"/srv/\x1b[2J'\\", r"$'/srv/\033[2J\'\\'"),
            ("/srv/\u{202e}1".as_bytes(), r"$'/srv/\342\200\2561'"),
            (b"/srv/\xff1 \xc3\xa4", r"$'/srv/\3771 ä'"),
        ] {
            let quoted = quoted_path(Path::new(OsStr::from_bytes(word)));
            assert_eq!(quoted, expected);
            let printed = Command::new("bash").args(["-c", &format!("printf %s {quoted}")]).output();
            assert_eq!(printed.unwrap().stdout, word, "{quoted}");
        }
    }
}
