//! Hashes what `trimwise` and `trimwise-lab` have in common: two programs work together only if it is the same.

include!("../hash_sources.rs");

/// Its folders below that of all crates.
const COMMON: [&str; 5] =
    ["trimwise/src", "../profiles", "trimwise-linux/src", "trimwise-study/src", "trimwise-cli/src"];

fn main() {
    println!("cargo::rustc-env=TRIMWISE_BUILD={}", hash_of("build", &COMMON));
}
