//! When a guest in virtual time is ended.

use serde::{Deserialize, Serialize};
use trimwise::failure::Failure;

use crate::check::{GUEST_S, within};

/// Error for guest limits where no guest runs.
pub const GUEST_LIMITS: &str = "--max-silence and --max-wall apply only to guests";

/// How long a guest may take, in this computer's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GuestLimits {
    /// Seconds without a word from its kernel, which computes or hangs; `None`: two minutes.
    pub max_silence_s: Option<u64>,
    /// Seconds in all; `None`: one hour.
    pub max_wall_s: Option<u64>,
}

impl GuestLimits {
    /// Whether any limit is given.
    pub const fn are_given(&self) -> bool {
        self.max_silence_s.is_some() || self.max_wall_s.is_some()
    }

    /// Rejects limits that are none.
    ///
    /// # Errors
    ///
    /// A [`Failure`] that names the accepted range.
    pub fn check(&self) -> Result<(), Failure> {
        within("--max-silence", self.max_silence_s, &GUEST_S)?;
        within("--max-wall", self.max_wall_s, &GUEST_S)
    }
}
