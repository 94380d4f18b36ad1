//! Grids of write amplification: a sample, or all by an environment variable (`just full`). Dirty and clean drives next to
//! what was published.

mod dirty_and_clean;
mod map;
mod spare;
mod write_amplification;
