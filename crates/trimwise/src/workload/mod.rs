//! Workloads, each written once as an async function over the narrow file trait ([`Files`](crate::files::Files)).

pub mod ageing;
pub mod apps;
pub mod days;
pub mod fio;
pub mod fragmenting;
pub mod full_write;
pub mod latency;
pub mod limited;
pub mod own;
pub mod postmark;
pub mod program;
pub mod scene;
pub mod stage;
pub mod tagged;
pub mod timed;
pub mod week;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The directory that a program creates for its files, and removes.
pub const DIRECTORY: &str = "trimwise-workload";

/// Locks a mutex. A task that panicked leaves nothing half done here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
