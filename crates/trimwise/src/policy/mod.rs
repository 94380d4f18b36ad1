//! TRIM policies.
//!
//! A policy is three separate things, and keeping them apart is what makes it safe and portable:
//!
//! - the **governor** ([`Governor`]) decides *when and how much*. It is a pure state machine: it sees events with a
//!   view of the host ([`PolicyEvent`], [`View`]) and appends its decisions to a list. It does no I/O, reads no clock
//!   and draws no random number.
//! - the **pending set** ([`PendingSet`]) knows *what may be trimmed*: extents whose freeing transaction is durable and
//!   that have not been allocated since. The host owns it, and only a [`TrimToken`] taken out of it can be issued. No
//!   governor, however wrong, can lose data.
//! - the **availability rule** ([`Availability`]) says *when a freed block may be allocated again*.
//!
//! A file system hosts all three in a [`HostedPolicy`], the interpreter of decisions, by implementing [`PolicyHost`].
//!
//! A policy is one file with one governor. [`PolicySpec`] parses and combines the built-in ones; runs take any
//! [`Policy`]. Origins: `set` and `lazy` come from papers, `commit` and `kernel515` from Linux, `btrfs`, `zfs` and `f2fs` from
//! other file systems, `judicious` from all of them; `adaptive` learns its limits.

mod aged;
pub(crate) mod extents;
mod governor;
mod host;
mod identity;
mod kernel;
mod limit;
mod named;
mod pending;
pub(crate) mod set;
mod spec;
#[cfg(test)]
mod tests;
pub mod wire;

use serde::{Deserialize, Serialize};

pub use batch::BatchConfig;
pub use governor::{
    Acknowledged, Decision, Explanation, Governor, HostTraits, Needs, PolicyEvent, Served, Shape, View,
};
pub(crate) use host::WAKES_IN_THE_PAST;
pub use host::{HostedPolicy, InCommit, PolicyHost, TrimCommand};
pub(crate) use identity::DAEMON;
pub use identity::{PolicyId, Trimmer};
pub use kernel::{DiscardGeneration, LinuxVersion, LinuxVersionError, Native};
pub use lazy::LazyConfig;
pub use limit::Limit;
pub(crate) use limit::{Pace, Waiting};
pub use named::Policy;
pub use pending::{Ledger, PendingSet, TrimToken};
pub(crate) use quiet::EXTENTS_MAX as QUIET_EXTENTS_MAX;
pub use set::SetConfig;
pub(crate) use spec::LiveUse;
pub use spec::{PolicyError, PolicySpec, terms};
pub use wire::serve;

macro_rules! policies {
    ($($module:ident: $($TERM:ident)+,)+) => {
        $(mod $module;)+

        /// The terms of all policies, in the order of help.
        const TERMS: &[&spec::term::Term] = &[$($(&$module::$TERM),+),+];
    };
}

// A new policy is its file and its line here.
policies! {
    off: TERM,
    commit: COMMIT KERNEL515 SERIAL TOGETHER,
    lazy: TERM,
    batch: TERM,
    btrfs: TERM,
    zfs: TERM,
    f2fs: TERM,
    quiet: TERM,
    judicious: TERM,
    adaptive: TERM,
    ideal: TERM,
}

/// When freed blocks may be allocated again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Availability {
    /// As soon as the freeing transaction is durable. An allocation takes its blocks out of the pending set.
    #[default]
    AfterCommit,
    /// Once their TRIM has been issued (Linux up to 5.14 with `discard`, lazy TRIM as published).
    AfterIssue,
    /// As soon as the freeing transaction is durable, and in preference to other free blocks: blocks that are written
    /// again need no TRIM.
    Reuse,
}
