//! Time limits of guests in virtual time.

use serde::{Deserialize, Serialize};
use trimwise::failure::{Failure, Mistake, Mistakes};

use trimwise::spelling::Accepted;

use crate::check::{GUEST_S, within};

/// Limits in real time, not the guest's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GuestLimits {
    /// Time without output from the guest's kernel, which computes or hangs; `None`: two minutes.
    pub max_silence_s: Option<u64>,
    /// Total time; `None`: one hour.
    pub max_wall_s: Option<u64>,
}

impl GuestLimits {
    pub const fn are_given(&self) -> bool {
        self.max_silence_s.is_some() || self.max_wall_s.is_some()
    }

    /// The error if limits are given but no guest runs.
    pub fn only_for_guests(expected: impl Into<Accepted>) -> Failure {
        let given = Mistake::on("max_silence_s").and(Mistake::on("max_wall_s"));
        given.that_is("apply only to guests").expected(expected).fail()
    }

    pub fn check(&self) -> Result<(), Failure> {
        Mistakes::of([
            within("max_silence_s", self.max_silence_s, &GUEST_S),
            within("max_wall_s", self.max_wall_s, &GUEST_S),
        ])
    }
}
