//! Requests and their answers as plain data, of what needs real kernels, emulated drives or experiments.

pub mod advise;
pub mod bench;
pub mod compare;
pub mod crashtest;
pub mod device;
pub mod fit;
pub mod kernel;
pub mod reproduce;
pub mod selftest;
pub mod sweep;
pub mod tournament;

use std::time::Duration;

use trimwise::failure::Failure;
use trimwise_study::advise::Advice;
use trimwise_study::caller::Caller;
use trimwise_study::compare::{CompareRequest, Comparison};
use trimwise_study::guest_limits::GuestLimits;
use trimwise_study::laboratory::Laboratory;
use trimwise_study::sweep::{Summary, SweepRequest};
use trimwise_uml::machine::Limits;

/// The laboratory in this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Here;

impl Laboratory for Here {
    fn missing(&self) -> Option<(String, String)> {
        None
    }

    fn compare(&self, request: &CompareRequest, caller: &dyn Caller) -> Result<Comparison, Failure> {
        compare::run(request, caller)
    }

    fn advise(&self, request: &CompareRequest, caller: &dyn Caller) -> Result<Advice, Failure> {
        advise::run(request, caller)
    }

    fn sweep(&self, request: &SweepRequest, caller: &dyn Caller) -> Result<Summary, Failure> {
        trimwise_study::sweep::run_on(request, caller, Some(&sweep::Kernels))
    }
}

/// Returns the limits of a guest, with defaults for those not given.
pub fn limits(given: &GuestLimits) -> Limits {
    let default = Limits::default();
    let or = |given: Option<u64>, default| given.map_or(default, Duration::from_secs);
    Limits {
        silence: or(given.max_silence_s, default.silence),
        wall: or(given.max_wall_s, default.wall),
        ..default
    }
}
