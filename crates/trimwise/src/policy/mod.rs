//! TRIM policies.
//!
//! A policy is three separate things, and keeping them apart is what makes it safe and portable:
//!
//! - the **governor** ([`Governor`]) decides *when and how much*. It is a pure state machine: it sees
//!   events with a view of the host ([`PolicyEvent`], [`View`]) and answers decisions into a list that it is
//!   handed; it does no I/O, reads no clock and draws no random number.
//! - the **pending set** ([`PendingSet`]) knows *what may be trimmed*: extents whose freeing transaction is
//!   durable and that nobody has allocated since. The host owns it, and only a [`TrimToken`] taken out of
//!   it can be issued. No governor, however wrong, can lose data.
//! - the **availability rule** ([`Availability`]) says *when a freed block may be allocated again*.
//!
//! A policy is one file with one governor; [`PolicySpec`] is how they are written on the command line and put
//! together, and the only way to them. Whom they come from: `set` and `lazy` from papers, `commit` and `kernel515` from Linux, `btrfs`,
//! `zfs` and `f2fs` from file systems that others built, `judicious` from all of them.

mod batch;
mod btrfs;
mod commit;
mod extents;
mod f2fs;
mod governor;
mod ideal;
mod judicious;
mod kernel;
mod lazy;
mod off;
mod pending;
pub(crate) mod set;
mod spec;
#[cfg(test)]
mod tests;
mod zfs;

pub use batch::BatchConfig;
pub use governor::{
    Acknowledged, Decision, Explanation, Governor, HostTraits, Needs, PolicyEvent, Shape, View,
};
pub use kernel::{DiscardGeneration, LinuxVersion, LinuxVersionError};
pub use pending::{Ledger, PendingSet, TrimToken};
pub use spec::{PolicyError, PolicySpec, TERMS};

/// When freed blocks may be allocated again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// As soon as the freeing transaction is durable; an allocation that meets them takes them out of the
    /// pending set.
    AfterCommit,
    /// Once their TRIM has been issued (Linux up to 5.14 with `discard`, lazy TRIM as published).
    AfterIssue,
    /// As soon as the freeing transaction is durable, and before other free blocks: what is written again
    /// needs no TRIM.
    Reuse,
}
