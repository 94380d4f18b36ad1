//! Reads the kernel's messages on its console.

use std::path::Path;

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

/// Returns true if this line of a kernel's log reports a fault.
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

/// Returns a sentence about it if these lines of a kernel's log say that its memory ran out.
pub(crate) fn out_of_memory(lines: &str) -> Option<String> {
    if let Some((_, killed)) = lines.split_once("Out of memory: Killed process ") {
        let name =
            killed.split_once('(').and_then(|(_, name)| name.split_once(')')).map_or("", |(name, _)| name);
        return Some(format!("the guest ran out of memory, and its kernel killed '{name}'"));
    }
    let panics = [
        "Kernel panic - not syncing: Out of memory",
        "Kernel panic - not syncing: System is deadlocked on memory",
    ];
    panics.iter().any(|panic| lines.contains(panic)).then(|| "the guest ran out of memory".to_owned())
}

/// Returns the last messages of a file system of this name, without its successes and the kernel's timestamps: the
/// reason why it was not mounted.
pub(crate) fn refusal(console: &Path, file_system: &str) -> Option<String> {
    /// Btrfs and XFS give a reason, and then say that they did not mount.
    const LINES: usize = 2;
    let text = std::fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let says_why = |line: &&str| {
        let line = line.to_ascii_lowercase();
        let is_news =
            ["mounted filesystem", "mounting", " info ", " loaded"].iter().any(|news| line.contains(news));
        line.starts_with(file_system) && !is_news
    };
    let lines: Vec<&str> = text.lines().map(without_time).filter(says_why).collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    (!last.is_empty()).then(|| last.join("; "))
}

fn without_time(line: &str) -> &str {
    let line = line.trim();
    let rest = line.strip_prefix('[').and_then(|line| line.split_once("] "));
    rest.filter(|(time, _)| time.trim().parse::<f64>().is_ok()).map_or(line, |(_, rest)| rest.trim_start())
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
    fn a_refused_mount_has_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        let console = folder.path().join("console");
        let reason = |log: &str, file_system| {
            std::fs::write(&console, log).unwrap();
            refusal(&console, file_system)
        };
        let boot = "Btrfs loaded, zoned=no\nSGI XFS with security attributes\n[    0.1] EXT4-fs (vda): mounted filesystem \
                    00000000 r/w\n[    0.2] EXT4-fs (vda): unmounting filesystem 00000000.\n";
        for none in ["ext4", "xfs", "btrfs", "f2fs"] {
            assert_eq!(reason(boot, none), None);
        }
        let ext4 = format!(
            "{boot}[    0.300000] EXT4-fs: Unknown parameter 'x'\ntrimwise: EINVAL\nreboot: Power down\n"
        );
        assert_eq!(reason(&ext4, "ext4").unwrap(), "EXT4-fs: Unknown parameter 'x'");
        let btrfs = "BTRFS info (device vda): using crc32c\nBTRFS error (device vda): bad\nBTRFS error (device vda): \
                     open_ctree failed\n";
        let both = "BTRFS error (device vda): bad; BTRFS error (device vda): open_ctree failed";
        assert_eq!(reason(btrfs, "btrfs").unwrap(), both);
    }

    #[test]
    fn a_lack_of_memory_is_named_with_its_victim() {
        let of = |line: &str| out_of_memory(&format!("[    1.0] a\n[    2.0] {line}\n[    2.1] b\n"));
        let killed =
            of("Out of memory: Killed process 57 (python3) total-vm:270000kB, anon-rss:9kB").unwrap();
        assert_eq!(killed, "the guest ran out of memory, and its kernel killed 'python3'");
        let panic = "Kernel panic - not syncing: System is deadlocked on memory";
        assert_eq!(of(panic).unwrap(), "the guest ran out of memory");
        assert_eq!(of("Kernel panic - not syncing: Attempted to kill init!"), None);
    }

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
