//! Options of the kernel's command line that a user adds.

use std::fmt;
use std::str::FromStr;

/// Options other than those that every guest needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootOptions(Vec<String>);

/// Names of options that determine how a guest runs: its memory, boot medium, console, randomness and environment.
const OURS: [&str; 17] = [
    "mem",
    "root",
    "rootfstype",
    "rootflags",
    "ro",
    "rw",
    "init",
    "rdinit",
    "initrd",
    "panic",
    "norandmaps",
    "hostfs",
    "umid",
    "uml_dir",
    "PATH",
    "LC_ALL",
    "noreboot",
];

/// Prefixes of such names: consoles, host devices and networks, randomness.
const OURS_BEGIN: [&str; 10] =
    ["con", "ssl", "stderr", "ubd", "eth", "vec", "random.", "virtio_uml.", "virtio_mmio.", "LD_"];

/// Names of options with which a guest would not stop where virtual time stops, or would not notice that it stops.
const OF_TIME: [&str; 8] = [
    "time_travel",
    "time_travel_start",
    "clocksource",
    "clock",
    "nohz",
    "highres",
    "notsc",
    "initcall_debug",
];

impl BootOptions {
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl fmt::Display for BootOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

impl FromStr for BootOptions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        if words.is_empty() {
            return Err("expected options such as ext4.mballoc_debug=1, separated by spaces".to_owned());
        }
        for word in &words {
            // To the kernel, a dash in a name is an underscore.
            let name = word.split('=').next().unwrap_or_default().replace('-', "_");
            let name = name.as_str();
            let why = if OF_TIME.contains(&name) {
                "sets the guest's clock, which here follows the drive's time"
            } else if OURS.contains(&name) || OURS_BEGIN.iter().any(|begin| name.starts_with(begin)) {
                "is set by trimwise, which cannot run the guest otherwise"
            } else if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !word.is_ascii() {
                "is not a kernel command-line option; expected NAME or NAME=VALUE"
            } else {
                continue;
            };
            return Err(format!("'{word}' {why}"));
        }
        Ok(Self(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guest_cannot_do_without_is_refused() {
        let parse = |text: &str| text.parse::<BootOptions>();
        let options = parse(" loglevel=7  scsi_mod.use_blk_mq=1 slub_debug ").unwrap();
        assert_eq!(
            options.words().collect::<Vec<_>>(),
            ["loglevel=7", "scsi_mod.use_blk_mq=1", "slub_debug"]
        );
        for (text, word) in [
            ("quiet time-travel=inf-cpu", "'time-travel=inf-cpu' sets"),
            ("time_travel=inf-cpu", "'time_travel=inf-cpu' sets"),
            ("clocksource=tsc", "'clocksource=tsc' sets"),
            ("init=/bin/sh", "'init=/bin/sh' is set"),
            ("con0=fd:0,fd:1", "is set by trimwise"),
            ("random.trust_cpu=on", "is set by trimwise"),
            ("--help", "is not a kernel command-line option"),
            ("=1", "is not a kernel command-line option"),
            (" ", "separated by spaces"),
        ] {
            assert!(parse(text).unwrap_err().contains(word), "{text}");
        }
    }
}
