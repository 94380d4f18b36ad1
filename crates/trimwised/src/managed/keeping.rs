//! Knowledge of trimmed space on a managed file system: loaded from the last daemon and kept for the next.

use trimwise::live::{Known, LiveHost};
use trimwise::units::{Bytes, SimDuration};

use super::{Managed, Means};
use crate::known::{Kept, Present};

impl Managed {
    /// Returns earlier knowledge of the file system: under other settings or another size, or by the last daemon.
    pub(super) fn known_before(&mut self, total: u64, means: &mut Means<'_>) -> Option<Known> {
        if let Some(known) = self.carried.take() {
            return Some(known);
        }
        let kept = means.known.take(self.candidate.mount.numbers)?;
        self.failed_before |= kept.failed_before(self.candidate.session);
        // What it only keeps for that.
        if kept.trimmed.is_empty() {
            return None;
        }
        let point = &self.candidate.mount.mount_point;
        let present =
            self.present(total).ok_or_else(|| "this kernel gives its mount no unique number".to_owned());
        match present.and_then(|present| kept.believed(present)) {
            Ok(known) => {
                let bytes = known.trimmed.iter().map(|span| span.bytes().0).sum();
                let text = format!("{} are known to be trimmed already.", Bytes(bytes));
                means.history.add(point, "remembered", text, bytes);
                Some(known)
            }
            Err(why) => {
                let text = format!("The last daemon's knowledge of it is discarded: {why}.");
                means.history.add(point, "forgotten", text, 0);
                None
            }
        }
    }

    fn present(&self, total: u64) -> Option<Present> {
        let (sensed, at_s) = self.sensed?;
        Some(Present { session: self.candidate.session?, total, written: sensed.written, at_s })
    }

    pub fn kept(&self) -> Option<Kept> {
        let known = self.live.as_ref().and_then(LiveHost::known).or_else(|| self.carried.clone());
        let nothing = || Known {
            trimmed: Vec::new(),
            is_unverified: false,
            forget_in: SimDuration::ZERO,
            unseen: Bytes(0),
        };
        let known = known.or_else(|| self.forgets_failures().then(nothing))?;
        let present = self.present(self.probed?.total)?;
        Some(Kept::new(self.candidate.mount.numbers, present, known, self.failed_before))
    }
}
