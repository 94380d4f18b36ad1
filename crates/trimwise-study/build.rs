//! Hashes the code of the model, since a sweep resumes only with results of that code.

include!("../hash_sources.rs");

fn main() {
    println!("cargo::rustc-env=TRIMWISE_MODEL={}", hash_of("model", &["trimwise/src"]));
}
