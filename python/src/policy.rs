//! Policies that are written in Python.
//!
//! A policy sees events and returns decisions. It never holds a token for blocks: the host takes those out of the pending
//! set, so a policy in Python, like one in Rust, cannot trim blocks that are in use, whatever it returns.

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::prelude::*;
use trimwise::policy::wire::Decided;
use trimwise::policy::{self, Availability, DiscardGeneration, Governor, Policy, PolicyEvent};
use trimwise::units::SimTime;

use crate::PolicyError;

/// What happened.
#[pyclass(frozen, module = "trimwise")]
#[derive(Clone, Debug)]
pub enum Event {
    Hosted { trim_depth: u32, ranges_max: u32, range_units_max: u64, total_units: u64, group_units: u64 },
    Committed { freed_units: u64 },
    Issued { ranges: u32, units: u64, took_ns: u64 },
    PassOver {},
    Trimmed { units: u64 },
    Woken {},
}

impl From<&PolicyEvent> for Event {
    fn from(event: &PolicyEvent) -> Self {
        match *event {
            PolicyEvent::Hosted(host) => Self::Hosted {
                trim_depth: host.trim_depth,
                ranges_max: host.ranges_max,
                range_units_max: host.range_units_max,
                total_units: host.total_units,
                group_units: host.group_units,
            },
            PolicyEvent::Committed { freed_units } => Self::Committed { freed_units },
            PolicyEvent::Issued(done) => {
                Self::Issued { ranges: done.ranges, units: done.units, took_ns: done.took.as_nanos() }
            }
            PolicyEvent::PassOver => Self::PassOver {},
            PolicyEvent::Trimmed { units } => Self::Trimmed { units },
            PolicyEvent::Woken => Self::Woken {},
        }
    }
}

#[pymethods]
impl Event {
    fn __repr__(&self) -> String {
        format!("Event.{self:?}")
    }
}

/// The host at the moment of an event.
#[pyclass(frozen, get_all, module = "trimwise")]
#[derive(Debug)]
pub struct View {
    now_ns: u64,
    used_units: u64,
    total_units: u64,
    freed_units: u64,
    pending_units: u64,
    pending_extents: u64,
    untrimmed_units: u64,
    in_flight: u32,
    requests: u32,
    quiet_ns: u64,
    requests_done: u64,
    oldest_ns: Option<u64>,
    served_requests: u64,
    served_bytes: u64,
    served_time_ns: u64,
    served_busy_ns: u64,
}

#[pymethods]
impl View {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

impl From<&policy::View> for View {
    fn from(view: &policy::View) -> Self {
        Self {
            now_ns: view.now.0,
            used_units: view.used_units,
            total_units: view.total_units,
            freed_units: view.freed_units,
            pending_units: view.pending_units,
            pending_extents: view.pending_extents,
            untrimmed_units: view.untrimmed_units,
            in_flight: view.in_flight,
            requests: view.requests,
            quiet_ns: view.quiet.as_nanos(),
            requests_done: view.requests_done,
            oldest_ns: view.oldest.map(|since| since.0),
            served_requests: view.served.requests,
            served_bytes: view.served.bytes.0,
            served_time_ns: view.served.time.as_nanos(),
            served_busy_ns: view.served.busy.as_nanos(),
        }
    }
}

/// What a policy decides.
#[pyclass(frozen, module = "trimwise")]
#[derive(Clone, Debug)]
pub enum Decision {
    DropFreed {},
    CatchUp {},
    #[pyo3(constructor = (together = false))]
    IssueInCommit {
        together: bool,
    },
    #[pyo3(constructor = (ranges_max = 1, units_min = 1, units_max = None, runs_on = false))]
    Issue {
        ranges_max: u32,
        units_min: u64,
        units_max: Option<u64>,
        runs_on: bool,
    },
    #[pyo3(constructor = (start_unit = 0, units = None, units_min = 1))]
    TrimFree {
        start_unit: u64,
        units: Option<u64>,
        units_min: u64,
    },
    Reveal {},
    WakeAt {
        at_ns: u64,
    },
}

#[pymethods]
impl Decision {
    fn __repr__(&self) -> String {
        format!("Decision.{self:?}")
    }
}

impl Decision {
    /// What the host carries out at the instant `now`.
    fn checked(&self, event: &PolicyEvent, now: SimTime) -> PyResult<policy::Decision> {
        let decided = match *self {
            Self::DropFreed {} => Decided::DropFreed {},
            Self::CatchUp {} => Decided::CatchUp {},
            Self::IssueInCommit { together } => Decided::IssueInCommit { together },
            Self::Issue { ranges_max, units_min, units_max, runs_on } => {
                Decided::Issue { ranges_max, units_min, units_max, runs_on }
            }
            Self::TrimFree { start_unit, units, units_min } => {
                Decided::TrimFree { start_unit, units, units_min }
            }
            Self::Reveal {} => Decided::Reveal {},
            Self::WakeAt { at_ns } => Decided::WakeAt { at_ns },
        };
        decided
            .checked(event, now)
            .map_err(|why| PyValueError::new_err(format!("Decision.{self:?}: {why}")))
    }
}

/// Reads a policy's availability rule.
pub fn availability(policy: &str, rule: &str) -> PyResult<Availability> {
    Ok(match rule {
        "after_commit" => Availability::AfterCommit,
        "after_issue" => Availability::AfterIssue,
        "reuse" => Availability::Reuse,
        other => {
            return Err(PyValueError::new_err(format!(
                "policy {policy}: availability is '{other}'; expected 'after_commit', 'after_issue' or 'reuse'"
            )));
        }
    })
}

/// The exception that ended a run.
#[derive(Clone, Default)]
pub struct Raised(Arc<Mutex<Option<PyErr>>>);

/// What unwinds through the model.
struct Unwinding;

impl Raised {
    /// Ends the run. The model's callbacks return nothing, so this unwinds; without a panic, so nothing is printed.
    pub fn unwind(&self, error: PyErr) -> ! {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        resume_unwind(Box::new(Unwinding))
    }

    /// Takes the exception, if there is one.
    pub fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A policy written in Python.
pub struct OwnPolicy {
    pub name: String,
    /// Makes an object with a method `on_event`.
    pub factory: Py<PyAny>,
    pub availability: Availability,
    pub merges: bool,
    pub takes_oldest_first: bool,
    pub raised: Raised,
}

impl OwnPolicy {
    /// Each run begins with a new object.
    pub fn policy(self) -> Policy {
        let name = self.name.clone();
        Policy::new(&name, move || {
            let made = Python::attach(|py| self.factory.call0(py)?.getattr(py, "on_event"));
            let on_event = made.unwrap_or_else(|error| {
                let error =
                    Python::attach(|py| named(py, error, format!("policy {} cannot be made", self.name)));
                self.raised.unwind(error)
            });
            Box::new(Hosted {
                name: self.name.clone(),
                on_event,
                availability: self.availability,
                merges: self.merges,
                takes_oldest_first: self.takes_oldest_first,
                raised: self.raised.clone(),
            })
        })
    }
}

/// Says where an exception came from; it becomes the cause. What is no mistake, such as Ctrl-C, stays as it is.
fn named(py: Python<'_>, error: PyErr, place: String) -> PyErr {
    if !error.is_instance_of::<PyException>(py) {
        return error;
    }
    let named = PolicyError::new_err(format!("{place}: {error}"));
    named.set_cause(py, Some(error));
    named
}

struct Hosted {
    name: String,
    on_event: Py<PyAny>,
    availability: Availability,
    merges: bool,
    takes_oldest_first: bool,
    raised: Raised,
}

impl Hosted {
    fn decide(
        &mut self,
        py: Python<'_>,
        event: &PolicyEvent,
        view: &policy::View,
        decisions: &mut Vec<policy::Decision>,
    ) -> PyResult<()> {
        py.check_signals()?;
        let answer = self.on_event.bind(py).call1((Event::from(event), View::from(view)))?;
        let mut add = |decision: &Bound<'_, PyAny>| -> PyResult<()> {
            let decision = decision.cast::<Decision>().map_err(|_| {
                let found = decision.repr().map_or_else(|_| "it".to_owned(), |repr| repr.to_string());
                PyTypeError::new_err(format!(
                    "on_event returned {found}; expected None, a trimwise.Decision, or a list of them"
                ))
            })?;
            decisions.push(decision.get().checked(event, view.now)?);
            Ok(())
        };
        if answer.is_none() {
            return Ok(());
        }
        if answer.is_instance_of::<Decision>() {
            return add(&answer);
        }
        match answer.try_iter() {
            Ok(mut several) => several.try_for_each(|decision| add(&decision?)),
            Err(_) => add(&answer),
        }
    }
}

impl Governor for Hosted {
    fn availability(&self, _: DiscardGeneration) -> Availability {
        self.availability
    }

    fn merges(&self) -> bool {
        self.merges
    }

    fn takes_oldest_first(&self) -> bool {
        self.takes_oldest_first
    }

    fn on_event(&mut self, event: &PolicyEvent, view: &policy::View, decisions: &mut Vec<policy::Decision>) {
        let decided = Python::attach(|py| {
            self.decide(py, event, view, decisions).map_err(|error| {
                let at = view.now.named();
                named(py, error, format!("policy {} at {at}, on Event.{:?}", self.name, Event::from(event)))
            })
        });
        decided.unwrap_or_else(|error| self.raised.unwind(error));
    }
}
