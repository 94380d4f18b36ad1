//! The laboratory, which runs real kernels: its requests and answers.
//!
//! The laboratory may be in this process or a program of its own. That program reads a request as one line of JSON
//! ([`Line`]) from its standard input, and perhaps [`Line::Stop`] later. It writes lines of JSON ([`Said`]): notes and
//! progress, and at the end the answer. Documents leave out what follows from the rest or is of no use to a reader, so
//! the answer carries that next to the document.

use serde::{Deserialize, Serialize};
use trimwise::compare::result::{Cell, DriveFacts};
use trimwise::failure::Failure;
use trimwise::policy::DiscardGeneration;

use crate::advise::Advice;
use crate::caller::{Caller, OnInterrupt};
use crate::compare::{CompareRequest, Comparison};
use crate::sweep::{Summary, SweepRequest};

/// Runs requests that need real kernels. [`compare::run`](crate::compare::run) and its like decide which do.
pub trait Laboratory: Sync {
    /// Returns why the laboratory is not available and what helps, or `None` if it is available.
    fn missing(&self) -> Option<(String, String)>;
    fn compare(&self, request: &CompareRequest, caller: &dyn Caller) -> Result<Comparison, Failure>;
    fn advise(&self, request: &CompareRequest, caller: &dyn Caller) -> Result<Advice, Failure>;
    fn sweep(&self, request: &SweepRequest, caller: &dyn Caller) -> Result<Summary, Failure>;
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    Compare(CompareRequest),
    Advise(CompareRequest),
    Sweep(SweepRequest),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    Ask(Box<Ask>),
    /// The user wants to stop: shut down the guests, and answer with what has finished.
    Stop,
}

/// A line from the laboratory. Progress displays are numbered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    Note(String),
    /// From now on the run can be stopped, with this effect of an interrupt.
    Stoppable(OnInterrupt),
    Begin {
        display: usize,
        runs: usize,
        /// The name of the runs, such as `cells`.
        what: String,
    },
    /// A run starts by ageing its file system.
    Ageing {
        display: usize,
        run: usize,
    },
    Update {
        display: usize,
        run: usize,
        done: u64,
        total: u64,
    },
    Doing {
        display: usize,
        what: String,
    },
    /// At most this many of all runs are needed; the rest takes about this long.
    Expect {
        display: usize,
        runs: usize,
        left_ms: Option<u64>,
    },
    Finish {
        display: usize,
    },
    /// The last line.
    Answer(Result<Box<Answer>, Failure>),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Compare(Box<WholeComparison>),
    Advise(Box<WholeAdvice>),
    Sweep {
        summary: Box<Summary>,
        /// See [`Summary::ended_by`].
        ended_by: Option<Failure>,
        /// See [`Summary::is_out`].
        is_out: bool,
    },
}

/// A comparison with the parts that its document leaves out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WholeComparison {
    comparison: Comparison,
    cells: Vec<OfCell>,
    check: Vec<OfCell>,
    ended_by: Option<Failure>,
}

/// The parts of a run that its document leaves out, except for its objective, which the settings have.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct OfCell {
    drive: Option<DriveFacts>,
    discard: Option<DiscardGeneration>,
    postmark_report: String,
}

impl OfCell {
    fn of(cell: &Cell) -> Self {
        Self { drive: cell.drive, discard: cell.discard, postmark_report: cell.postmark_report.clone() }
    }

    fn restore_all(all: Vec<Self>, cells: &mut [Cell]) {
        for (cell, of_cell) in cells.iter_mut().zip(all) {
            cell.drive = of_cell.drive;
            cell.discard = of_cell.discard;
            cell.postmark_report = of_cell.postmark_report;
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
    /// Puts the parts back.
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

/// An advice with the parts that its document leaves out.
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
    /// Puts the parts back.
    ///
    /// # Errors
    ///
    /// See [`WholeComparison::into_comparison`].
    pub fn into_advice(self) -> Result<Advice, String> {
        let comparison = self.comparison.map(WholeComparison::into_comparison).transpose()?;
        Ok(Advice { comparison, ended_by: self.ended_by, ..self.advice })
    }
}
