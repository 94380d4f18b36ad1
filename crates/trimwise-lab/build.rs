//! Hashes the sources that decide results, part by part: [`crate::made`] says what a table was made by.
//!
//! Comments, tests and layout do not count. The hash only has to change when the code does, so it is FNV-1a.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The parts, and their folders below that of all crates.
const PARTS: [(&str, &[&str]); 5] = [
    ("model", &["trimwise/src"]),
    ("profiles", &["../profiles"]),
    ("experiment", &["trimwise-lab/src/experiment"]),
    ("guest", &["trimwise-uml/src", "trimwise-linux/src"]),
    ("daemon", &["trimwised/src"]),
];

fn main() {
    let crates = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("..");
    let parts = PARTS.map(|(name, folders)| {
        let mut hash = Fnv::default();
        for folder in folders {
            println!("cargo::rerun-if-changed=../{folder}");
            hash.folder(&crates.join(folder));
        }
        format!("{name} {:06x}", (hash.0 ^ hash.0 >> 40) & 0xff_ffff)
    });
    println!("cargo::rustc-env=TRIMWISE_PARTS={}", parts.join(", "));
}

struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn word(&mut self, word: &str) {
        for byte in word.bytes().chain([b' ']) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn folder(&mut self, folder: &Path) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "tests" {
                self.folder(&path);
            } else if name.ends_with(".toml") || (name.ends_with(".rs") && name != "tests.rs") {
                self.file(&name, &fs::read_to_string(&path).unwrap_or_default());
            }
        }
    }

    fn file(&mut self, name: &str, text: &str) {
        self.word(name);
        let text = text.replace("\r\n", "\n");
        // Tests are at the end of their file.
        let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let lines = code.lines().map(str::trim).filter(|line| !line.starts_with("//"));
        lines.flat_map(str::split_whitespace).for_each(|word| self.word(word));
    }
}
