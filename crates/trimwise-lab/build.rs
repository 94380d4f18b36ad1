//! Hashes the sources that decide results, part by part: [`crate::made`] says what a table was made by.

include!("../hash_sources.rs");

/// The parts, and their folders below that of all crates.
const PARTS: [(&str, &[&str]); 5] = [
    ("model", &["trimwise/src"]),
    ("profiles", &["../profiles"]),
    ("experiment", &["trimwise-lab/src/experiment"]),
    ("guest", &["trimwise-uml/src", "trimwise-linux/src"]),
    ("daemon", &["trimwised/src"]),
];

fn main() {
    let parts = PARTS.map(|(name, folders)| hash_of(name, folders));
    println!("cargo::rustc-env=TRIMWISE_PARTS={}", parts.join(", "));
}
