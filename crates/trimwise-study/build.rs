//! Hashes the model: a sweep goes on only with results of the same.

include!("../hash_sources.rs");

fn main() {
    println!("cargo::rustc-env=TRIMWISE_MODEL={}", hash_of("model", &["trimwise/src"]));
}
