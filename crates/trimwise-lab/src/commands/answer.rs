//! The hidden command `answer`: runs a request from `trimwise`, and reports notes, progress and the answer in lines of
//! JSON.

use std::io::{BufRead as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use trimwise::failure::{Failure, Mistake};
use trimwise_cli::interrupt;
use trimwise_study::caller::{Caller, OnInterrupt, Progress};
use trimwise_study::laboratory::{Answer, Ask, Laboratory as _, Line, Said};

use crate::requests::Here;

/// Minimum time between two progress lines of a run.
const UPDATED_EVERY: Duration = Duration::from_millis(100);

/// Reads a request from standard input and answers it. Failures of the request are part of the answer.
pub fn run() -> Result<(), Failure> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(Failure::run)?;
    let asker = Asker::default();
    let answer = match serde_json::from_str::<Line>(&line) {
        Ok(Line::Ask(ask)) => {
            asker.listen()?;
            answered(&ask, &asker).map(Box::new)
        }
        Ok(Line::Stop) => Err(Failure::Interrupted),
        Err(error) => {
            let why = format!("standard input: {error}");
            Err(Mistake::that(why).expected("a request from trimwise").fail())
        }
    };
    say(&Said::Answer(answer));
    Ok(())
}

fn answered(ask: &Ask, asker: &Asker) -> Result<Answer, Failure> {
    Ok(match ask {
        Ask::Compare(request) => Answer::Compare(Box::new(Here.compare(request, asker)?.into())),
        Ask::Advise(request) => Answer::Advise(Box::new(Here.advise(request, asker)?.into())),
        Ask::Sweep(request) => {
            let mut summary = Here.sweep(request, asker)?;
            let (ended_by, is_out) = (summary.ended_by.take(), summary.is_out);
            Answer::Sweep { summary: Box::new(summary), ended_by, is_out }
        }
    })
}

/// Writes a line. Write errors are ignored: if the asker is gone, the end of standard input ends this process.
fn say(said: &Said) {
    if let Ok(text) = serde_json::to_string(said) {
        let mut output = std::io::stdout().lock();
        let _ = writeln!(output, "{text}").and_then(|()| output.flush());
    }
}

/// The program that asked.
#[derive(Default)]
struct Asker {
    stop: Arc<AtomicBool>,
    displays: AtomicUsize,
}

impl Asker {
    /// Raises the flag when told to stop, and ends this process when the asker is gone. Ctrl-C reaches both processes,
    /// so here it too only raises the flag.
    fn listen(&self) -> Result<(), Failure> {
        let stop = Arc::clone(&self.stop);
        interrupt::on_signal(move || stop.store(true, Ordering::SeqCst))?;
        let stop = Arc::clone(&self.stop);
        let listen = move || {
            let lines = std::io::stdin().lock().lines().map_while(Result::ok);
            lines.for_each(|_| stop.store(true, Ordering::SeqCst));
            std::process::exit(interrupt::EXIT_CODE.into());
        };
        let thread = std::thread::Builder::new().name("asker".to_owned()).spawn(listen);
        thread.map(drop).map_err(Failure::run)
    }
}

impl Caller for Asker {
    fn progress(&self, runs: usize, what: &str) -> Arc<dyn Progress> {
        let display = self.displays.fetch_add(1, Ordering::SeqCst);
        say(&Said::Begin { display, runs, what: what.to_owned() });
        Arc::new(Display { display, told: Mutex::new(vec![None; runs]) })
    }

    fn stop(&self, how: OnInterrupt) -> Result<Arc<AtomicBool>, Failure> {
        say(&Said::Stoppable(how));
        Ok(Arc::clone(&self.stop))
    }

    fn note(&self, text: &str) {
        say(&Said::Note(text.to_owned()));
    }
}

/// Progress of a display, with the time of each run's last line.
struct Display {
    display: usize,
    told: Mutex<Vec<Option<Instant>>>,
}

impl Progress for Display {
    fn begin_ageing(&self, run: usize) {
        say(&Said::Ageing { display: self.display, run });
    }

    fn update(&self, run: usize, done: u64, total: u64) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = told.get_mut(run) else { return };
        if done < total && last.is_some_and(|last| last.elapsed() < UPDATED_EVERY) {
            return;
        }
        *last = Some(Instant::now());
        drop(told);
        say(&Said::Update { display: self.display, run, done, total });
    }

    fn say(&self, what: String) {
        say(&Said::Doing { display: self.display, what });
    }

    fn expect(&self, runs: usize, left: Option<Duration>) {
        let left_ms = left.map(|left| left.as_millis() as u64);
        say(&Said::Expect { display: self.display, runs, left_ms });
    }

    fn finish(&self) {
        say(&Said::Finish { display: self.display });
    }
}
