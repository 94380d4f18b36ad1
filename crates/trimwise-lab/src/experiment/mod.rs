//! The published experiments, each with its settings, its figures and its claims.

pub mod capacity;
pub mod claims;
pub mod daemon_week;
pub mod kernels;
pub mod lazy;
pub mod model_ext4;
pub mod postmark_vendors;
pub mod result;
pub mod sandforce;
pub mod set;
pub mod settling;
pub mod verdicts;
