//! What was sent, in numbers and words: the only place that says them.

use super::Totals;
use crate::units::Bytes;

/// Free space that was sent, by what is known of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// The device took it.
    pub taken: Bytes,
    /// It is not known whether the device took it: it was skipped, stopped on the way, or nothing would say that it failed.
    pub unverified: Bytes,
}

impl Sent {
    /// Says both numbers. `done` is a verb for what was taken: trimmed, accepted.
    pub fn words(self, done: &str) -> String {
        let taken = format!("{} {done}", self.taken);
        match self.unverified {
            Bytes(0) => taken,
            sent => format!("{taken}, {sent} more not known to be trimmed"),
        }
    }
}

impl std::ops::AddAssign for Sent {
    fn add_assign(&mut self, other: Self) {
        self.taken.0 += other.taken.0;
        self.unverified.0 += other.unverified.0;
    }
}

impl Totals {
    pub fn sent(&self) -> Sent {
        Sent { taken: Bytes(self.trimmed_bytes), unverified: Bytes(self.unverified_bytes) }
    }

    /// Returns what was sent since an earlier total.
    pub fn sent_since(&self, before: &Self) -> Sent {
        let since = |now: u64, before: u64| Bytes(now.saturating_sub(before));
        Sent {
            taken: since(self.trimmed_bytes, before.trimmed_bytes),
            unverified: since(self.unverified_bytes, before.unverified_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unverified_is_never_called_done() {
        let words = |taken, unverified| Sent { taken, unverified }.words("trimmed");
        assert_eq!(words(Bytes::mib(3), Bytes(0)), "3 MiB trimmed");
        assert_eq!(words(Bytes(0), Bytes::mib(400)), "0 B trimmed, 400 MiB more not known to be trimmed");
    }
}
