//! Any policy under a name, so that runs take policies that the grammar does not know.

use std::fmt;
use std::sync::Arc;

use super::{Governor, PolicyId, PolicySpec, Trimmer};

/// A policy as runs take it: a name, and governors in their initial state.
///
/// A [`PolicySpec`] converts into one; a policy of your own is a name and a function:
///
/// ```
/// use trimwise::policy::{
///     Availability, Decision, DiscardGeneration, Governor, Policy, PolicyEvent, Shape, View,
/// };
///
/// /// Sends one command at a time as soon as a thousand extents wait.
/// struct Heap;
///
/// impl Governor for Heap {
///     fn availability(&self, _: DiscardGeneration) -> Availability {
///         Availability::Reuse
///     }
///     fn on_event(&mut self, _: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>) {
///         if view.pending_extents >= 1000 && view.in_flight == 0 {
///             decisions.push(Decision::Issue(Shape::NEXT));
///         }
///     }
/// }
///
/// let heap = Policy::new("heap", || Box::new(Heap));
/// assert_eq!(heap.to_string(), "heap");
/// ```
#[derive(Clone)]
pub struct Policy {
    id: PolicyId,
    make: Arc<dyn Fn() -> Box<dyn Governor> + Send + Sync>,
    /// The policy of a target below the file system.
    target: Option<PolicySpec>,
}

impl Policy {
    /// Names a policy. `make` returns a governor in its initial state. The name may be that of a built-in policy: the
    /// two are told apart.
    pub fn new(name: &str, make: impl Fn() -> Box<dyn Governor> + Send + Sync + 'static) -> Self {
        Self::of(PolicyId::Named(name.into()), make)
    }

    pub(super) fn of(id: PolicyId, make: impl Fn() -> Box<dyn Governor> + Send + Sync + 'static) -> Self {
        Self { id, make: Arc::new(make), target: None }
    }

    /// Combines a policy of the file system with one of a target below it.
    pub fn over(of_fs: PolicySpec, target: PolicySpec) -> Self {
        let below = Trimmer::Block(target);
        let id = if of_fs == PolicySpec::COMMIT {
            PolicyId::Known(below)
        } else {
            PolicyId::Named(format!("{of_fs} over {below}").into())
        };
        Self { target: Some(target), ..Self::of(id, move || of_fs.governor()) }
    }

    pub fn id(&self) -> &PolicyId {
        &self.id
    }

    /// Returns a governor in its initial state, for the file system.
    pub fn governor(&self) -> Box<dyn Governor> {
        (self.make)()
    }

    pub fn target(&self) -> Option<Box<dyn Governor>> {
        self.target.map(PolicySpec::governor)
    }
}

impl From<PolicySpec> for Policy {
    fn from(spec: PolicySpec) -> Self {
        Self::of(spec.into(), move || spec.governor())
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Policy({})", self.id)
    }
}
