//! The laboratory, which runs real kernels: what is asked of it, and what it answers.
//!
//! It may be in this process, or a program of its own. To that a request goes as one line of JSON ([`Line`]) on its standard
//! input, and perhaps [`Line::Stop`] later. It writes lines of JSON ([`Said`]): notes and progress, and at the end what came
//! of the request. Documents leave out what follows from the rest or is of no use to a reader, so what is sent carries
//! that next to them.

use serde::{Deserialize, Serialize};
use trimwise::compare::result::{Cell, DriveFacts};
use trimwise::failure::Failure;

use crate::advise::Advice;
use crate::caller::{Caller, OnInterrupt};
use crate::compare::{CompareRequest, Comparison};
use crate::sweep::{Summary, SweepRequest};

/// Runs requests that need real kernels. [`compare::run`](crate::compare::run) and its like decide which do.
pub trait Laboratory: Sync {
    /// Says why it cannot be asked, and what helps; `None` if it can.
    fn missing(&self) -> Option<(String, String)>;
    /// Runs a comparison.
    fn compare(&self, request: &CompareRequest, caller: &dyn Caller) -> Result<Comparison, Failure>;
    /// Searches for the best policy.
    fn advise(&self, request: &CompareRequest, caller: &dyn Caller) -> Result<Advice, Failure>;
    /// Runs the cells of a grid.
    fn sweep(&self, request: &SweepRequest, caller: &dyn Caller) -> Result<Summary, Failure>;
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// A comparison.
    Compare(CompareRequest),
    /// An advice.
    Advise(CompareRequest),
    /// The cells of a grid.
    Sweep(SweepRequest),
}

/// A line to the laboratory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The request.
    Ask(Box<Ask>),
    /// The user wants to stop: end the guests, and answer with what has finished.
    Stop,
}

/// A line from the laboratory. Displays of progress are numbered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// A note for whoever asked.
    Note(String),
    /// From now on the run can be stopped; what an interrupt does then.
    Stoppable(OnInterrupt),
    /// A display of progress begins.
    Begin {
        /// Its number.
        display: usize,
        /// How many runs it shows.
        runs: usize,
        /// What they are called.
        what: String,
    },
    /// A run starts by ageing its file system.
    Ageing {
        /// Number of the display.
        display: usize,
        /// Number of the run.
        run: usize,
    },
    /// How far a run is.
    Update {
        /// Number of the display.
        display: usize,
        /// Number of the run.
        run: usize,
        /// Steps done.
        done: u64,
        /// All steps.
        total: u64,
    },
    /// What is being done now.
    Doing {
        /// Number of the display.
        display: usize,
        /// What that is.
        what: String,
    },
    /// A display of progress ends.
    Finish {
        /// Its number.
        display: usize,
    },
    /// The last line: what came of the request.
    Answer(Result<Box<Answer>, Failure>),
}

/// The answer to an [`Ask`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Of a comparison.
    Compare(Box<WholeComparison>),
    /// Of an advice.
    Advise(Box<WholeAdvice>),
    /// Of a grid.
    Sweep {
        /// The document.
        summary: Box<Summary>,
        /// See [`Summary::ended_by`].
        ended_by: Option<Failure>,
        /// See [`Summary::is_out`].
        is_out: bool,
    },
}

/// A comparison with what its document leaves out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WholeComparison {
    comparison: Comparison,
    cells: Vec<OfCell>,
    check: Vec<OfCell>,
    ended_by: Option<Failure>,
}

/// What the document of a run leaves out, except for what it is judged by: the settings say that.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct OfCell {
    drive: Option<DriveFacts>,
    postmark_report: String,
}

impl OfCell {
    fn of(cell: &Cell) -> Self {
        Self { drive: cell.drive, postmark_report: cell.postmark_report.clone() }
    }

    fn restore_all(all: Vec<Self>, cells: &mut [Cell]) {
        for (cell, of_cell) in cells.iter_mut().zip(all) {
            (cell.drive, cell.postmark_report) = (of_cell.drive, of_cell.postmark_report);
        }
    }
}

impl From<Comparison> for WholeComparison {
    fn from(mut comparison: Comparison) -> Self {
        Self {
            cells: comparison.cells.iter().map(OfCell::of).collect(),
            check: comparison.check.iter().flat_map(|check| &check.cells).map(OfCell::of).collect(),
            ended_by: comparison.ended_by.take(),
            comparison,
        }
    }
}

impl WholeComparison {
    /// Returns the comparison.
    ///
    /// # Errors
    ///
    /// If its runs cannot be judged as its settings say.
    pub fn into_comparison(self) -> Result<Comparison, String> {
        let Self { mut comparison, cells, check, ended_by } = self;
        OfCell::restore_all(cells, &mut comparison.cells);
        if let Some(found) = &mut comparison.check {
            OfCell::restore_all(check, &mut found.cells);
        }
        comparison.ended_by = ended_by;
        comparison.restored()
    }
}

/// An advice with what its document leaves out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WholeAdvice {
    advice: Advice,
    comparison: Option<WholeComparison>,
    ended_by: Option<Failure>,
}

impl From<Advice> for WholeAdvice {
    fn from(mut advice: Advice) -> Self {
        let comparison = advice.comparison.take().map(WholeComparison::from);
        let ended_by = advice.ended_by.take();
        Self { advice, comparison, ended_by }
    }
}

impl WholeAdvice {
    /// Returns the advice.
    ///
    /// # Errors
    ///
    /// As [`WholeComparison::into_comparison`].
    pub fn into_advice(self) -> Result<Advice, String> {
        let comparison = self.comparison.map(WholeComparison::into_comparison).transpose()?;
        Ok(Advice { comparison, ended_by: self.ended_by, ..self.advice })
    }
}
