//! What the kernel says on its console.

use std::path::Path;

/// Lines of the guest's console that an error shows.
const LAST_LINES: usize = 16;

/// Messages of a kernel about a fault in or below it.
const COMPLAINTS: [&str; 15] = [
    "WARNING: ",
    "BUG: ",
    "kernel BUG at",
    "UBSAN: ",
    "Oops",
    "general protection fault",
    "INFO: task ",
    "Out of memory: ",
    "EXT4-fs error",
    "JBD2: Error",
    "Aborting journal",
    "Corruption",
    "BTRFS error",
    "BTRFS critical",
    "I/O error",
];

/// Whether this line of a kernel's log reports a fault.
pub(crate) fn complains(line: &str) -> bool {
    COMPLAINTS.iter().any(|words| line.contains(words))
}

/// Returns the first few lines of the console that report a fault.
pub(crate) fn complaints(console: &Path) -> Vec<String> {
    let text = std::fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines()
        .map(str::trim_end)
        .filter(|line| complains(line))
        .take(LAST_LINES)
        .map(str::to_owned)
        .collect()
}

/// Returns the console's last meaningful lines, without the dump of stack and registers after a panic.
pub(crate) fn last_lines(console: &Path) -> String {
    let text = std::fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let is_hex = |word: &str| word.len() >= 8 && word.chars().all(|c| c.is_ascii_hexdigit());
    let says_something = |line: &&str| {
        let line = line.trim();
        let is_dump = line.starts_with("[<") || line == "Stack:" || line == "Call Trace:";
        !line.is_empty() && !is_dump && !line.split_whitespace().all(is_hex)
    };
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(says_something).collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    if last.is_empty() { "(none)".to_owned() } else { last.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_faults_are_complaints() {
        let folder = tempfile::tempdir().unwrap();
        let console = folder.path().join("console");
        let log = "EXT4-fs (vda): mounted filesystem\nBTRFS info (device vda): using crc32c\nrandom: crng init done\n";
        let faults = "[    1.0] WARNING: CPU: 0 PID: 1 at fs/x.c:1 f+0x1/0x2\nBUG: KASAN: use-after-free in f\n\
                      EXT4-fs error (device vda): f:1: bad\n";
        std::fs::write(&console, format!("{log}{faults}")).unwrap();
        assert_eq!(complaints(&console), faults.lines().collect::<Vec<_>>());
    }
}
