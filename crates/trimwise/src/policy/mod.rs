//! TRIM policies.
//!
//! A policy is three separate things, and keeping them apart is what makes it safe and portable:
//!
//! - the **governor** ([`Governor`]) decides *when and how much*. It is a pure state machine: it sees
//!   events and answers decisions into a list that it is handed; it does no I/O, reads no clock and draws
//!   no random number.
//! - the **pending set** ([`PendingSet`]) knows *what may be trimmed*: extents whose freeing transaction is
//!   durable and that nobody has allocated since. The host owns it, and only a [`TrimToken`] taken out of
//!   it can be issued. No governor, however wrong, can lose data.
//! - the **availability rule** ([`Availability`]) says *when a freed block may be allocated again*.
//!
//! A policy is one file with one governor; [`PolicySpec`] is how it is written on the command line.

mod commit;
mod ideal;
mod off;
mod pending;
mod spec;

pub use commit::Commit;
pub use ideal::Ideal;
pub use off::Off;
pub use pending::{Ledger, PendingSet, TrimToken};
pub use spec::{PolicyError, PolicySpec};

/// What a governor is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyEvent {
    /// A transaction became durable, and with it the freeing of these blocks; they are in the pending set.
    Committed {
        /// Units that this transaction freed.
        freed_units: u64,
        /// Units that are pending now, these included.
        pending_units: u64,
        /// Units of the file system in use now.
        used_units: u64,
        /// Units that files could use in all.
        total_units: u64,
    },
}

/// What a governor answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Forget what is pending: the device will not be told.
    DropPending,
    /// Issue what is pending the way the host's own discard option does (see the host's Linux generation).
    IssueAsKernel,
    /// Let the device know what is pending, at no cost. No real host can; it is the bound of all policies.
    Reveal,
}

/// When freed blocks may be allocated again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// As soon as the freeing transaction is durable.
    AfterCommit,
    /// Once their TRIM has been issued (Linux up to 5.14 with `discard`).
    AfterIssue,
}

/// What a policy needs of a host; a host that lacks it refuses the policy plainly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// It must be told of each commit and of what it freed.
    pub commits: bool,
    /// It must be able to tell the device for free: only a modelled device can.
    pub oracle: bool,
}

/// The deciding part of a policy: a pure state machine.
pub trait Governor {
    /// What it needs of a host.
    fn needs(&self) -> Needs;
    /// The availability rule that goes with it. `kernel` is that of the host's own discard option.
    fn availability(&self, kernel: Availability) -> Availability;
    /// Sees `event` and appends what it decides.
    fn on_event(&mut self, event: &PolicyEvent, decisions: &mut Vec<Decision>);
}
