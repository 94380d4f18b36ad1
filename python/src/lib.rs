//! The native part of the Python package: a door to `trimwise-study`, and a host of policies that are written in Python.
//!
//! A request comes as JSON text and its answer goes as the document that the command's `--json` writes. What works for
//! long runs without the interpreter's lock.

mod policy;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::create_exception;
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use trimwise::policy::Policy;
use trimwise_cli::embed;
use trimwise_lab::requests;
use trimwise::failure::{Door, Failure, Key, Mistake};
use trimwise_study::caller::{Caller, Report, Silent};
use trimwise_study::compare::{CompareRequest, on_model};
use trimwise_study::doctor::{self, DoctorRequest};
use trimwise_study::figures::Figures;
use trimwise_study::findings::Findings;
use trimwise_study::policies::Policies;
use trimwise_study::workloads::Workloads;
use trimwise_study::{Versioned, trace};

use crate::policy::{Decision, Event, OwnPolicy, Raised, View};

create_exception!(
    trimwise,
    UsageError,
    PyValueError,
    "An argument or an input file is wrong; nothing was run."
);
create_exception!(trimwise, RunError, PyRuntimeError, "A run failed.");
create_exception!(
    trimwise,
    PolicyError,
    RunError,
    "A policy written in Python raised an exception, or returned something other than decisions."
);

/// How often a wait looks for Ctrl-C.
const LOOKED_EVERY: Duration = Duration::from_millis(50);

fn error(failure: Failure) -> PyErr {
    match failure {
        Failure::Usage(_) => UsageError::new_err(failure.at(Door::Python)),
        Failure::Run(_) | Failure::Unchecked(_) => RunError::new_err(failure.at(Door::Python)),
        Failure::Interrupted => PyKeyboardInterrupt::new_err(()),
    }
}

/// Does something on another thread while this one waits for it and for Ctrl-C, without the interpreter's lock. After
/// Ctrl-C it is told to stop, and not waited for.
fn aside<T: Send + 'static>(
    py: Python<'_>,
    act: impl FnOnce(&Arc<AtomicBool>) -> Result<T, Failure> + Send + 'static,
) -> PyResult<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = channel();
    let flag = Arc::clone(&stop);
    let work = move || drop(sender.send(catch_unwind(AssertUnwindSafe(|| act(&flag)))));
    std::thread::Builder::new().name("trimwise".to_owned()).spawn(work)?;
    let receiver = Mutex::new(receiver);
    loop {
        let waited =
            py.detach(|| receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LOOKED_EVERY));
        match waited {
            Ok(Ok(done)) => return done.map_err(error),
            Ok(Err(panic)) => return Err(error(Failure::defect(&*panic))),
            Err(RecvTimeoutError::Timeout) => {
                py.check_signals().inspect_err(|_| stop.store(true, Ordering::SeqCst))?;
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(RunError::new_err("the run ended without a result"));
            }
        }
    }
}

/// Reads a request; the failure names the value that does not fit.
fn read<R: DeserializeOwned>(request: &str) -> Result<R, Failure> {
    let read = serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(request));
    read.map_err(|error: serde_path_to_error::Error<serde_json::Error>| {
        let of = Mistake::on(Key::at_path(error.path().to_string()));
        of.because(error.into_inner().to_string()).fail()
    })
}

fn document<A: Serialize>(answer: &A) -> Result<String, Failure> {
    Versioned::of(answer).text().map_err(Failure::run)
}

/// Runs a request aside. An answer that tells of failures is one.
fn answer<R: DeserializeOwned + Send + 'static, A: Serialize + 'static>(
    py: Python<'_>,
    request: &str,
    run: fn(&R, &dyn Caller) -> Result<A, Failure>,
) -> PyResult<String> {
    let request: R = read(request).map_err(error)?;
    aside(py, move |stop| document(&run(&request, &Silent { stop: Arc::clone(stop) })?))
}

/// Runs device tests.
#[pyfunction(name = "bench")]
fn tested(py: Python<'_>, request: &str) -> PyResult<String> {
    answer(py, request, requests::bench::run)
}

/// Cuts the power in the model.
#[pyfunction]
fn crashtest(py: Python<'_>, request: &str) -> PyResult<String> {
    answer(py, request, requests::crashtest::run)
}

/// Repeats a published experiment.
#[pyfunction]
fn reproduce(py: Python<'_>, request: &str) -> PyResult<String> {
    answer(py, request, requests::reproduce::run_one)
}

/// Runs the cells of a grid.
#[pyfunction]
fn sweep(py: Python<'_>, request: &str) -> PyResult<String> {
    answer(py, request, |request, caller| trimwise_study::sweep::run(request, caller, &requests::Here))
}

/// Looks at a trace, `[FORMAT:]FILE`.
#[pyfunction]
fn trace_info(py: Python<'_>, trace: String) -> PyResult<String> {
    aside(py, move |stop| document(&trace::info(&trace, &Silent { stop: Arc::clone(stop) })?))
}

/// Lists the built-in profiles.
#[pyfunction]
fn devices() -> PyResult<String> {
    document(&trimwise_study::devices::all()).map_err(error)
}

/// Lists the terms of policies.
#[pyfunction]
fn policies() -> PyResult<String> {
    document(&Policies::all()).map_err(error)
}

/// Lists the named workloads.
#[pyfunction]
fn workloads() -> PyResult<String> {
    Workloads::all().and_then(|all| document(&all)).map_err(error)
}

/// Examines a host.
#[pyfunction(name = "doctor")]
fn examined(py: Python<'_>, request: &str) -> PyResult<String> {
    answer(py, request, |request: &DoctorRequest, _| doctor::run(request))
}

/// Lists the findings.
#[pyfunction]
fn findings() -> PyResult<String> {
    document(&Findings::all()).map_err(error)
}

/// Lists the figures.
#[pyfunction]
fn figures() -> PyResult<String> {
    document(&Figures::all()).map_err(error)
}

/// What `compare` returns, as text: the comparison as JSON, its runs as rows with the columns of a sweep, and the table.
type Compared = (String, String, String);

fn run_compare(
    request: &CompareRequest,
    own: &[Policy],
    stop: &Arc<AtomicBool>,
    tick: &Report,
) -> Result<Compared, Failure> {
    let comparison = on_model::run_own(request, own, stop, tick)?;
    let rows = serde_json::to_string(&trimwise_study::sweep::rows(&comparison)?).map_err(Failure::run)?;
    Ok((document(&comparison)?, rows, embed::table(&comparison)))
}

/// Compares policies. `own` are policies written in Python, as name, factory, availability, and whether extents merge and
/// the oldest are taken first.
#[pyfunction]
fn compare(py: Python<'_>, request: &str, own: Vec<(String, Py<PyAny>, String, bool, bool)>) -> PyResult<Compared> {
    let request: CompareRequest = read(request).map_err(error)?;
    if own.is_empty() {
        return aside(py, move |stop| run_compare(&request, &[], stop, &(Arc::new(|_, _| ()) as _)));
    }
    let raised = Raised::default();
    let own = own
        .into_iter()
        .map(|(name, factory, availability, merges, takes_oldest_first)| {
            let availability = policy::availability(&name, &availability)?;
            let raised = raised.clone();
            let own = OwnPolicy { name, factory, availability, merges, takes_oldest_first, raised };
            Ok(own.policy())
        })
        .collect::<PyResult<Vec<_>>>()?;
    // On this thread: only the interpreter's main thread learns of Ctrl-C.
    let ticking = raised.clone();
    let ran = py.detach(|| {
        catch_unwind(AssertUnwindSafe(|| {
            let tick: Report = Arc::new(move |_, _| {
                Python::attach(|py| py.check_signals()).unwrap_or_else(|error| ticking.unwind(error));
            });
            run_compare(&request, &own, &Arc::default(), &tick)
        }))
    });
    match (raised.take(), ran) {
        (Some(raised), _) => Err(raised),
        (None, Ok(compared)) => compared.map_err(error),
        (None, Err(panic)) => Err(error(Failure::defect(&*panic))),
    }
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", trimwise::VERSION)?;
    module.add("UsageError", py.get_type::<UsageError>())?;
    module.add("RunError", py.get_type::<RunError>())?;
    module.add("PolicyError", py.get_type::<PolicyError>())?;
    module.add_class::<Event>()?;
    module.add_class::<Decision>()?;
    module.add_class::<View>()?;
    module.add_function(wrap_pyfunction!(tested, module)?)?;
    module.add_function(wrap_pyfunction!(compare, module)?)?;
    module.add_function(wrap_pyfunction!(crashtest, module)?)?;
    module.add_function(wrap_pyfunction!(devices, module)?)?;
    module.add_function(wrap_pyfunction!(examined, module)?)?;
    module.add_function(wrap_pyfunction!(figures, module)?)?;
    module.add_function(wrap_pyfunction!(findings, module)?)?;
    module.add_function(wrap_pyfunction!(policies, module)?)?;
    module.add_function(wrap_pyfunction!(reproduce, module)?)?;
    module.add_function(wrap_pyfunction!(sweep, module)?)?;
    module.add_function(wrap_pyfunction!(trace_info, module)?)?;
    module.add_function(wrap_pyfunction!(workloads, module)?)
}
