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
            unverified: Vec::new(),
            forget_in: SimDuration::ZERO,
            unseen: Bytes(0),
        };
        let known = known.or_else(|| self.forgets_failures().then(nothing))?;
        let present = self.present(self.probed?.total)?;
        Some(Kept::new(self.candidate.mount.numbers, present, known, self.failed_before))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use trimwise_linux::daemon::config::Config;
    use trimwise_linux::mount::parse_mountinfo;

    use super::*;
    use crate::candidate::Candidate;
    use crate::helper::Probed;
    use crate::sense::Sensed;

    /// Ext4 and f2fs go on to believe that what failed was trimmed; XFS and btrfs believe nothing.
    #[test]
    fn a_failure_is_kept_even_if_nothing_is_known_to_be_trimmed() {
        for (fs_type, failed_before, expected) in [
            ("ext4", false, None),
            ("ext4", true, Some(true)),
            ("f2fs", true, Some(true)),
            ("xfs", true, None),
            ("btrfs", true, None),
        ] {
            let line = format!("22 1 8:1 / / rw - {fs_type} /dev/sda1 rw\n");
            let candidate = Candidate::of_test(&parse_mountinfo(line.as_bytes())[0]);
            let treatment = Config::default().treatment(Path::new("/")).unwrap();
            let mut one = Managed::new(candidate, treatment, false);
            one.sensed = Some((Sensed::default(), 1));
            one.probed = Some(Probed { block: 4096, group: 0, first_group: 0, total: 1 << 30, maps: false });
            one.failed_before = failed_before;
            let kept = one.kept();
            let found = kept.as_ref().map(|kept| kept.failed_before(Some(7)));
            assert_eq!(found, expected, "{fs_type}, failed before {failed_before}");
            assert!(kept.is_none_or(|kept| kept.trimmed.is_empty()));
        }
    }
}
