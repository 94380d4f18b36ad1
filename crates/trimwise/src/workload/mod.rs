//! Workloads, each written once as an async function over the narrow file trait ([`Files`](crate::files::Files)).

pub mod ageing;
pub mod apps;
pub mod days;
pub mod fio;
pub mod fragmenting;
pub mod full_write;
pub mod latency;
pub mod own;
pub mod postmark;
pub mod program;
pub mod scene;
pub mod stage;
pub mod tagged;
pub mod timed;
pub mod week;
