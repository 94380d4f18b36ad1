//! The result of a published experiment as data: the JSON of `reproduce`, and the source of its tables and reports.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use trimwise_uml::images::KernelImage;

use super::postmark_vendors::rows::{self, VendorRow};
use crate::guests::RealKernel;
use crate::made::{self, MadeBy};
use crate::plot::{Plot, Table};

/// The result of a repeated experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExperimentResult {
    /// Name of the experiment on the command line.
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
    /// The code and the kernels that made it; empty in documents of earlier versions.
    #[serde(default)]
    pub made_by: MadeBy,
    /// The seed of all its runs.
    pub seed: u64,
    /// Repetitions of each cell.
    pub reps: u32,
    /// Figures next to the published ones.
    pub rows: Rows,
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

impl ExperimentResult {
    /// Names the kernels that an experiment of its own kernels ran on.
    pub(super) fn made_on<'a>(self, images: impl IntoIterator<Item = &'a KernelImage>) -> Self {
        let kernels = images.into_iter().map(made::kernel).collect();
        Self { made_by: MadeBy::kernels(kernels, self.seed), ..self }
    }
}

/// The rows of an experiment: data for programs, in the layout of its source, with the figures and tables of them for
/// people. Read back from a document, they are what they were.
#[derive(Clone, Debug)]
pub struct Rows {
    data: Value,
    plots: Vec<Plot>,
    tables: Vec<Table>,
    notes: Vec<String>,
}

impl Rows {
    /// Makes the rows of what an experiment shows to programs: a list of figures, the list of `postmark-vendors`, or
    /// observations of another layout, with figures under `plots` if they have any.
    ///
    /// # Panics
    /// If that is none of these.
    pub(super) fn of(data: &impl Serialize) -> Self {
        let rows = serde_json::to_value(data).and_then(serde_json::from_value);
        rows.expect("an experiment's rows are plain data")
    }

    /// Returns the figures.
    pub fn plots(&self) -> &[Plot] {
        &self.plots
    }

    /// Returns the tables that follow from the data alone, and sentences that sum them up. Other layouts come with
    /// tables in [`ExperimentResult::tables`].
    pub fn tables(&self) -> (&[Table], &[String]) {
        (&self.tables, &self.notes)
    }

    /// Whether figures and tables show all that is there.
    pub fn are_shown(&self) -> bool {
        self.data.is_array() && !(self.plots.is_empty() && self.tables.is_empty())
    }
}

impl Serialize for Rows {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.data.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Rows {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let data = Value::deserialize(deserializer)?;
        let is_list_of = |key: &str| data.get(0).is_some_and(|first| first.get(key).is_some());
        let (mut plots, mut tables, mut notes) = Default::default();
        if is_list_of("metric") {
            let rows = Vec::<VendorRow>::deserialize(&data).map_err(D::Error::custom)?;
            (tables, notes) = (rows::tables(&rows), rows::errors(&rows));
        } else if let Some(of_data) = if is_list_of("series") { Some(&data) } else { data.get("plots") } {
            plots = Vec::<Plot>::deserialize(of_data).map_err(D::Error::custom)?;
        }
        Ok(Self { data, plots, tables, notes })
    }
}

/// Whether a published claim holds here, and in which role.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claim {
    /// Stable identifier.
    pub id: String,
    /// The claim in a sentence, with its tolerance.
    pub text: String,
    /// Basis of the claim in the source.
    pub basis: Basis,
    /// Role of the claim here.
    pub role: Role,
    /// Reason why the claim is not a check.
    pub because: Option<String>,
    /// True if the claim was met.
    pub met: bool,
    /// The published figure, in words or a number.
    pub published: Figure,
    /// The measured figure.
    pub measured: Figure,
    /// The least and the most that the measured figure may be, null on a side without a limit; left out if the claim is
    /// not about one figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<[Option<f64>; 2]>,
}

/// A measured figure that differs from the published one by no more than this is the same: half of its second digit.
const SAME: f64 = 0.05;

impl Claim {
    /// By how much the measured figures differ from the published ones, as shares of these; empty if they are no
    /// numbers.
    pub fn deviations(&self) -> Vec<f64> {
        let of = |measured: &[f64], published: &[f64]| {
            let pairs = measured.iter().zip(published).filter(|(_, published)| **published != 0.0);
            pairs.map(|(measured, published)| measured / published - 1.0).collect()
        };
        match (&self.measured, &self.published) {
            (Figure::Number(measured), Figure::Number(published)) => of(&[*measured], &[*published]),
            (Figure::Numbers(measured), Figure::Numbers(published)) if measured.len() == published.len() => {
                of(measured, published)
            }
            _ => Vec::new(),
        }
    }

    /// Whether it is met although the measured figure is not the published one.
    pub fn is_met_by_tolerance(&self) -> bool {
        self.met && self.deviations().iter().any(|deviation| deviation.abs() > SAME)
    }
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
