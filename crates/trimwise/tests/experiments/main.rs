//! Grids of write amplification: a sample, or all by an environment variable (`just full`).

mod map;
mod spare;
mod write_amplification;
