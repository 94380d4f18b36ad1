//! Ctrl-C (and SIGTERM).
//!
//! A run in the model holds nothing but memory, so it simply ends, and finished runs are kept. A run on a real
//! directory removes its files first. A trim ends after the current slice, device tests end with the results so far,
//! and a command that waits for the daemon only stops waiting. Once results are complete and being written, perhaps
//! into a pipe that nobody reads, an interrupt ends any command at once.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use trimwise::failure::Failure;
use trimwise_study::caller::OnInterrupt;

/// Exit code of an interrupted command, as a shell reports a process that Ctrl-C ended.
pub const EXIT_CODE: u8 = 130;

/// Returns what to tell the user when the flag is raised.
fn notice(how: OnInterrupt) -> &'static str {
    match how {
        OnInterrupt::Exit => "error: interrupted",
        OnInterrupt::Stop => "stopping: removing the files of this run",
        OnInterrupt::StopAfterStep => "stopping after this slice; press Ctrl-C again to end at once",
        OnInterrupt::StopAfterRun => "stopping; press Ctrl-C again to end at once",
        OnInterrupt::StopAndShow => "stopping with what has finished; press Ctrl-C again to end at once",
        OnInterrupt::StopWaiting => "no longer waiting; trimwised continues",
    }
}

static DELIVERS: AtomicBool = AtomicBool::new(false);

/// The temporary name of the file that is being written.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Records that all runs have ended and only their results remain to be written.
pub fn begin_delivery() {
    DELIVERS.store(true, Ordering::SeqCst);
}

/// Names the file that an interrupt must remove; `None` if there is none.
pub fn set_unfinished(path: Option<&Path>) {
    *UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner) = path.map(Path::to_owned);
}

fn end_delivery() -> ! {
    let unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).take();
    unfinished.map(std::fs::remove_file);
    eprintln!("\nerror: interrupted while the results were being written");
    std::process::exit(EXIT_CODE.into());
}

/// Installs the handler and returns the flag that it raises when the user wants to stop.
pub fn install(on_interrupt: OnInterrupt) -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    on_signal(move || {
        if DELIVERS.load(Ordering::SeqCst) {
            end_delivery();
        }
        let is_first = !raised.swap(true, Ordering::SeqCst);
        if is_first {
            eprintln!("\n{}", notice(on_interrupt));
        }
        // A run with files to remove always removes them, no matter how often it is interrupted.
        if on_interrupt == OnInterrupt::Exit || (!is_first && on_interrupt != OnInterrupt::Stop) {
            std::process::exit(EXIT_CODE.into());
        }
    })?;
    Ok(flag)
}

/// Calls `act`, on a separate thread, at each SIGINT, SIGTERM or SIGHUP.
pub fn on_signal(mut act: impl FnMut() + Send + 'static) -> Result<(), Failure> {
    let failed = |e| Failure::run(format!("cannot install the handler for Ctrl-C: {e}"));
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || signals.forever().for_each(|_| act())).map_err(failed)?;
    Ok(())
}
