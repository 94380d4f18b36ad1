//! Requests and answers as plain data, for everything that needs real kernels, emulated drives or experiments.

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

/// The laboratory, run in this process.
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

/// Returns the limits of a guest, with defaults for those that are not given.
pub fn limits(given: &GuestLimits) -> Limits {
    let default = Limits::default();
    let or = |given: Option<u64>, default| given.map_or(default, Duration::from_secs);
    Limits {
        silence: or(given.max_silence_s, default.silence),
        wall: or(given.max_wall_s, default.wall),
        ..default
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trimwise_study::caller::Silent;
    use trimwise_uml::cell::KernelPolicy;

    use super::bench::map;
    use super::crashtest::{on_kernel, soak};
    use super::kernel::run::Plan;
    use super::*;

    /// Returns the error of a request that is read from JSON.
    fn refused<R: serde::de::DeserializeOwned, A>(
        request: serde_json::Value,
        run: impl FnOnce(&R) -> Result<A, Failure>,
    ) -> String {
        let request: R = serde_json::from_value(request).unwrap();
        run(&request).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn requests_that_are_read_have_defaults_and_are_refused_beyond_their_ranges() {
        let caller = &Silent::default();
        let crash = |request| refused(request, |r| crashtest::run(r, caller));
        assert_eq!(crash(json!({"cuts": 0})), "--cuts 0: expected a value from 1 to 10000000");
        assert_eq!(crash(json!({"cuts": 9, "run": 1})), "--cuts and --run: expected only one of them");
        let target = "kernel:6.12:ext4";
        let crash = |request| refused(request, |r| on_kernel::run(r, caller));
        assert!(crash(json!({"target": target, "cut": 1, "run": 1})).contains("--cut and --run"));
        assert!(crash(json!({"target": target, "max_wall_s": 0})).starts_with("--max-wall 0: expected"));
        let soak = json!({"target": "6.12:ext4", "duration": {"secs": 1, "nanos": 0}});
        assert!(refused(soak, |r| soak::run(r, caller)).contains("expected kernel:VERSION:FS"));
        let program = |more: &str, value: u64| {
            let request = json!({"target": "6.12:ext4", "command": ["true"], more: value});
            refused(request, |r| Plan::of(r).map(drop))
        };
        assert_eq!(program("aged_percent", 101), "--aged 101: expected a value from 0 to 100");
        assert!(program("memory_mib", 1).starts_with("--memory 1: expected"));
        let map = json!({"target": "sata-small", "point_s": 3601});
        assert!(refused(map, |r| map::run(r, caller)).starts_with("--point 3601: expected"));
        let tests = json!({"ops": 1, "jobs": 0});
        assert!(refused(tests, |r| selftest::run(r, caller)).starts_with("--jobs 0: expected"));
    }

    #[test]
    fn results_of_btrfs_name_its_own_discard_as_conclusions_do() {
        assert_eq!(KernelPolicy::Async.id(), trimwise_study::conclusion::async_discard());
        assert_eq!(KernelPolicy::Commit.id(), trimwise::policy::PolicyId::COMMIT);
    }
}
