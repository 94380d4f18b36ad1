//! The native part of the Python package: runs the words of the command line without the interpreter's lock, and hosts
//! policies that are written in Python.

mod policy;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::create_exception;
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use trimwise_cli::embed::{self, Failure};

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
    "A policy written in Python raised, or returned nonsense."
);

/// How often a wait looks for Ctrl-C.
const LOOKED_EVERY: Duration = Duration::from_millis(50);

fn error(failure: Failure) -> PyErr {
    match failure {
        Failure::Usage(why) => UsageError::new_err(why),
        Failure::Run(why) => RunError::new_err(why),
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

/// Runs a command, such as `["policies", "--json", FILE]`, and returns the text that is left to print.
#[pyfunction]
fn command(py: Python<'_>, words: Vec<String>) -> PyResult<String> {
    aside(py, move |stop| embed::run(&words, stop))
}

/// Compares policies; returns the JSON and the text of `trimwise compare`. `own` are policies written in Python, as name,
/// factory, availability and whether extents merge.
#[pyfunction]
fn compare(
    py: Python<'_>,
    words: Vec<String>,
    own: Vec<(String, Py<PyAny>, String, bool)>,
) -> PyResult<(String, String)> {
    if own.is_empty() {
        let compared = aside(py, move |stop| embed::compare(&words, &[], stop, &(Arc::new(|_, _| ()) as _)))?;
        return Ok((compared.json, compared.text));
    }
    let raised = Raised::default();
    let own = own
        .into_iter()
        .map(|(name, factory, availability, merges)| {
            let availability = policy::availability(&name, &availability)?;
            let own = OwnPolicy { name, factory, availability, merges, raised: raised.clone() };
            Ok(own.policy())
        })
        .collect::<PyResult<Vec<_>>>()?;
    // On this thread: only the interpreter's main thread learns of Ctrl-C.
    let ticking = raised.clone();
    let ran = py.detach(|| {
        catch_unwind(AssertUnwindSafe(|| {
            let tick: embed::Tick = Arc::new(move |_, _| {
                Python::attach(|py| py.check_signals()).unwrap_or_else(|error| ticking.unwind(error));
            });
            embed::compare(&words, &own, &AtomicBool::new(false), &tick)
        }))
    });
    match (raised.take(), ran) {
        (Some(raised), _) => Err(raised),
        (None, Ok(compared)) => compared.map(|c| (c.json, c.text)).map_err(error),
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
    module.add_function(wrap_pyfunction!(command, module)?)?;
    module.add_function(wrap_pyfunction!(compare, module)?)
}
