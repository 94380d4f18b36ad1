//! What is compared with what, and the results as data.

pub mod capacity;
pub mod cell;
mod choice;
pub mod claims;
pub mod daemon_week;
mod figures;
pub mod gauge;
pub mod kernels;
pub mod lazy;
pub mod ledger;
pub mod model_ext4;
pub mod plot;
pub mod postmark_vendors;
pub mod result;
pub mod sandforce;
pub mod set;
pub mod settling;
pub mod statistics;
pub mod summary;
pub mod verdict;
pub mod verdicts;
mod watch;
