//! The result of a published experiment as data: what `reproduce` prints as JSON and what tables and reports are made from.

use serde::{Deserialize, Serialize};

use super::daemon_week::WeekRows;
use super::kernels::KernelRows;
use super::model_ext4::Pair;
use super::verdicts::Row;
use crate::plot::Plot;

/// A published experiment, made again.
#[derive(Clone, Debug, Serialize)]
pub struct ExperimentResult {
    /// Its name, as `reproduce` takes it.
    pub experiment: String,
    /// What it asks.
    pub question: String,
    /// Where its claims are from.
    pub source: String,
    /// What came out of it here, in a sentence or two, and how many claims of each role are met.
    pub finding: String,
    /// The version of trimwise.
    pub trimwise: String,
    /// The seed of all its runs.
    pub seed: u64,
    /// Repetitions of each of its cells.
    pub reps: u32,
    /// Its figures beside the published ones.
    pub rows: ExperimentRows,
    /// What its source claims, whether it holds here, and what that is worth.
    pub claims: Vec<Claim>,
}

/// The rows of an experiment; each experiment has its source's layout.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum ExperimentRows {
    /// PostMark with and without discard on several vendors' devices.
    Vendors(Vec<VendorRow>),
    /// Figures, one after the other.
    Plots(Vec<Plot>),
    /// What real kernels did, with figures.
    Kernels(Box<KernelRows>),
    /// The modelled file system beside a real one.
    Beside(Vec<Pair>),
    /// Both sides of every cell of the truth table.
    Verdicts(Vec<Row>),
    /// Days of work under each way of trimming.
    Weeks(Box<WeekRows>),
}

impl ExperimentRows {
    /// Its figures.
    pub fn plots(&self) -> &[Plot] {
        match self {
            Self::Vendors(_) | Self::Beside(_) | Self::Verdicts(_) => &[],
            Self::Plots(plots) => plots,
            Self::Kernels(rows) => &rows.plots,
            Self::Weeks(rows) => &rows.plots,
        }
    }
}

/// One metric of one device, with and without discard, beside what was published.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VendorRow {
    /// The device profile's name.
    pub device: String,
    /// Whether PostMark went through the C library's buffering.
    pub postmark_buffering: bool,
    /// The metric, called as the source calls it.
    pub metric: String,
    /// Mean without discard, in the model.
    pub nodiscard: f64,
    /// Mean with discard, in the model.
    pub discard: f64,
    /// Published mean without discard.
    pub published_nodiscard: f64,
    /// Published mean with discard.
    pub published_discard: f64,
    /// Whether the profile's parameters were fitted on this row; if not, it is a check.
    pub fitted: bool,
}

impl VendorRow {
    /// The model's relative error without and with discard: 0.1 is 10 % too much.
    pub fn errors(&self) -> (f64, f64) {
        let error = |measured: f64, published: f64| {
            if published == 0.0 { 0.0 } else { measured / published - 1.0 }
        };
        (error(self.nodiscard, self.published_nodiscard), error(self.discard, self.published_discard))
    }
}

/// Whether a published claim holds here, and what that is worth.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// Stable name.
    pub id: String,
    /// The claim in a sentence, with its tolerance.
    pub text: String,
    /// How its source knows.
    pub basis: Basis,
    /// What it is worth here.
    pub role: Role,
    /// Why it is no check.
    pub because: Option<String>,
    /// Whether it was met.
    pub met: bool,
    /// The published figure, in words or a number.
    pub published: Figure,
    /// What was measured.
    pub measured: Figure,
}

/// How the source of a claim knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// It measured, and says what.
    Measured,
    /// It drew a picture without numbers.
    Drawn,
    /// It believes or infers; limits that are our own are of this kind too.
    Asserted,
}

impl Basis {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Drawn => "drawn",
            Self::Asserted => "asserted",
        }
    }
}

/// What it is worth that a claim holds here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It could have failed: nothing was fitted to it.
    Check,
    /// Something was chosen with it in view, so that it says little.
    Fitted,
    /// It follows from how the model is made, so that it says nothing.
    BuiltIn,
}

impl Role {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Fitted => "fitted",
            Self::BuiltIn => "built-in",
        }
    }
}

/// A figure of a claim: a number, several, or a phrase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Figure {
    /// A number.
    Number(f64),
    /// Several numbers.
    Numbers(Vec<f64>),
    /// A phrase.
    Text(String),
}
