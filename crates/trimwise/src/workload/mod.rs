//! Workloads, each written once as an async function over the narrow file trait.

pub mod ageing;
pub mod files;
pub mod fragmenting;
pub mod full_write;
pub mod latency;
pub mod own;
pub mod postmark;
pub mod scene;
pub mod timed;
pub mod week;
