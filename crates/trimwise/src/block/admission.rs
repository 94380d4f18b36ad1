//! Admission of commands: how many a drive has at once, and which of them run alone.
//!
//! This is the only place that knows these rules of an interface. [`super::BlockQueue`] applies them to events in
//! virtual time, [`super::Port`] to instants of completion.

use crate::ssd::{LinkKind, SsdConfig};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Transfer,
    Trim,
    Flush,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    depth: u32,
    queues_trims: bool,
    queues_flushes: bool,
}

impl Admission {
    pub(super) fn of(config: &SsdConfig) -> Self {
        Self {
            depth: config.link.queue_depth,
            queues_trims: config.trim.is_queued(),
            queues_flushes: config.link.kind != LinkKind::Sata,
        }
    }

    pub(super) fn depth(self) -> u32 {
        self.depth
    }

    pub(crate) fn trim_depth(self) -> u32 {
        if self.runs_alone(Kind::Trim) { 1 } else { self.depth }
    }

    pub(super) fn has_room(self, in_drive: usize) -> bool {
        in_drive < self.depth as usize
    }

    /// Returns true if a command waits until the drive is empty, and later commands wait for its end.
    pub(super) fn runs_alone(self, kind: Kind) -> bool {
        match kind {
            Kind::Transfer => false,
            Kind::Trim => !self.queues_trims,
            Kind::Flush => !self.queues_flushes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssd::TrimKind;

    fn admission(link: LinkKind, trim: TrimKind) -> Admission {
        let mut config = SsdConfig::default();
        (config.link.kind, config.link.queue_depth, config.trim.kind) = (link, 32, trim);
        Admission::of(&config)
    }

    #[test]
    fn sata_flushes_and_unqueued_trims_run_alone() {
        for (link, trim, trims_alone, flushes_alone) in [
            (LinkKind::Sata, TrimKind::AtaNonQueued, true, true),
            (LinkKind::Sata, TrimKind::AtaQueued, false, true),
            (LinkKind::Nvme, TrimKind::Nvme, false, false),
            (LinkKind::Ufs, TrimKind::Ufs, false, false),
        ] {
            let rules = admission(link, trim);
            let alone = [Kind::Transfer, Kind::Trim, Kind::Flush].map(|kind| rules.runs_alone(kind));
            assert_eq!(alone, [false, trims_alone, flushes_alone], "{link:?} {trim:?}");
            assert_eq!(rules.trim_depth(), if trims_alone { 1 } else { 32 });
            assert_eq!([31, 32].map(|in_drive| rules.has_room(in_drive)), [true, false]);
        }
    }
}
