//! The result of a published experiment as data: the JSON of `reproduce`, and the source of its tables and reports.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::daemon_week::WeekRows;
use super::kernels::KernelRows;
use super::model_ext4::Pair;
use super::verdicts::Row;
use crate::guests::RealKernel;
use crate::plot::{Plot, Table};

/// The result of a repeated experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExperimentResult {
    /// Its name on the command line.
    pub experiment: String,
    /// The question that it answers.
    pub question: String,
    /// The source of its claims.
    pub source: String,
    /// The result in a sentence or two, and how many claims of each role are met.
    pub finding: String,
    /// The real kernel that it ran on, if the model was not its host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<RealKernel>,
    /// The version of trimwise.
    pub trimwise: String,
    /// The seed of all its runs.
    pub seed: u64,
    /// Repetitions of each of its cells.
    pub reps: u32,
    /// Its figures next to the published ones.
    pub rows: ExperimentRows,
    /// Tables of rows that only their experiment lays out, for a report that is made from the JSON.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Table>,
    /// The source's claims, whether they hold here, and in which role.
    pub claims: Vec<Claim>,
    /// The claims that were not tried, because something that they are about was not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untried: Vec<String>,
    /// The command that repeats it; empty in documents of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
}

/// The rows of an experiment; each experiment has its source's layout.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum ExperimentRows {
    /// PostMark with and without discard on several vendors' devices.
    Vendors(Vec<VendorRow>),
    /// Figures, one after another.
    Plots(Vec<Plot>),
    /// Observations of real kernels, with figures.
    Kernels(Box<KernelRows>),
    /// The modelled file system next to a real one.
    Compared(Vec<Pair>),
    /// The kernel's and the model's side of every cell of the truth table.
    Verdicts(Vec<Row>),
    /// Days of work under each way of trimming.
    Weeks(Box<WeekRows>),
    /// The figures of a document that was read, whose rows only the experiment itself lays out.
    Figures {
        /// These figures.
        plots: Vec<Plot>,
    },
}

/// Rows of the plain layouts are read as they are, of the others their figures.
impl<'de> Deserialize<'de> for ExperimentRows {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut rows = Value::deserialize(deserializer)?;
        let read = match rows.get(0) {
            Some(first) if first.get("series").is_some() => Vec::deserialize(rows).map(Self::Plots),
            Some(first) if first.get("metric").is_some() => Vec::deserialize(rows).map(Self::Vendors),
            _ => match rows.get_mut("plots").map(Value::take) {
                Some(plots) => Vec::deserialize(plots).map(|plots| Self::Figures { plots }),
                None => Ok(Self::Figures { plots: Vec::new() }),
            },
        };
        read.map_err(serde::de::Error::custom)
    }
}

impl ExperimentRows {
    /// Returns its figures.
    pub fn plots(&self) -> &[Plot] {
        match self {
            Self::Vendors(_) | Self::Compared(_) | Self::Verdicts(_) => &[],
            Self::Plots(plots) | Self::Figures { plots } => plots,
            Self::Kernels(rows) => &rows.plots,
            Self::Weeks(rows) => &rows.plots,
        }
    }
}

/// One metric of one device, with and without discard, next to the published values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VendorRow {
    /// The device profile's name.
    pub device: String,
    /// Whether PostMark went through the C library's buffering.
    pub postmark_buffering: bool,
    /// The metric, by the source's name.
    pub metric: String,
    /// Mean without discard, in the model.
    pub nodiscard: f64,
    /// Mean with discard, in the model.
    pub discard: f64,
    /// Published mean without discard.
    pub published_nodiscard: f64,
    /// Published mean with discard.
    pub published_discard: f64,
    /// Whether the profile's parameters were fitted to this row; if not, it is a check.
    pub fitted: bool,
}

impl VendorRow {
    /// Returns the model's relative error without and with discard: 0.1 is 10 % too much.
    pub fn errors(&self) -> (f64, f64) {
        let error = |measured: f64, published: f64| {
            if published == 0.0 { 0.0 } else { measured / published - 1.0 }
        };
        (error(self.nodiscard, self.published_nodiscard), error(self.discard, self.published_discard))
    }
}

/// Whether a published claim holds here, and in which role.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claim {
    /// Stable identifier.
    pub id: String,
    /// The claim in a sentence, with its tolerance.
    pub text: String,
    /// How the source knows.
    pub basis: Basis,
    /// Its role here.
    pub role: Role,
    /// Why it is not a check.
    pub because: Option<String>,
    /// Whether it was met.
    pub met: bool,
    /// The published figure, in words or a number.
    pub published: Figure,
    /// The measured figure.
    pub measured: Figure,
}

/// How the source of a claim knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// The source measured it, and gives figures.
    Measured,
    /// The source drew it without numbers.
    Drawn,
    /// The source believes or infers it; our own limits are of this kind too.
    Asserted,
}

impl Basis {
    /// Returns it in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Drawn => "drawn",
            Self::Asserted => "asserted",
        }
    }
}

/// How much it means that a claim holds here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The claim could have failed: nothing was fitted to it.
    Check,
    /// Something was chosen with the claim in view, so it says little.
    Fitted,
    /// The claim follows from how the model is made, so it says nothing.
    BuiltIn,
}

impl Role {
    /// Returns it in words.
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
