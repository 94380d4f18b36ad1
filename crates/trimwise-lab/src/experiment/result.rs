//! The result of a published experiment as data: the JSON of `reproduce`, and the source of its tables and reports.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use trimwise_uml::images::KernelImage;

use super::postmark_vendors::rows::{self, VendorRow};
use crate::guests::RealKernel;
use crate::made::{self, MadeBy};
use crate::plot::{Plot, Table};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExperimentResult {
    /// Name on the command line.
    pub experiment: String,
    pub question: String,
    pub source: String,
    /// The result in a sentence or two, and how many claims of each role are met.
    pub finding: String,
    /// The real kernel on which the experiment ran, if it did not run in the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<RealKernel>,
    pub trimwise: String,
    /// The code and the kernels that made the result; empty in documents of earlier versions.
    #[serde(default)]
    pub made_by: MadeBy,
    pub seed: u64,
    pub reps: u32,
    /// Figures next to the published ones.
    pub rows: Rows,
    /// Tables that only the experiment itself can lay out, for reports made from the JSON.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Table>,
    /// The source's claims, judged.
    pub claims: Vec<Claim>,
    /// Claims that were not tried because a figure was not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untried: Vec<String>,
    /// The command that repeats the experiment; empty in documents of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
}

impl ExperimentResult {
    /// Adds the kernels of an experiment that chooses its own.
    pub(super) fn made_on<'a>(self, images: impl IntoIterator<Item = &'a KernelImage>) -> Self {
        let kernels = images.into_iter().map(made::kernel).collect();
        Self { made_by: MadeBy::kernels(kernels, self.seed), ..self }
    }
}

/// Rows of an experiment: data for programs, in the layout of its source, with figures and tables for people. Reading a
/// document back gives the same rows.
#[derive(Clone, Debug)]
pub struct Rows {
    data: Value,
    plots: Vec<Plot>,
    tables: Vec<Table>,
    notes: Vec<String>,
}

impl Rows {
    /// Makes rows from an experiment's data for programs: a list of figures, the list of `postmark-vendors`, or
    /// observations of another layout, with figures, if any, under `plots`.
    ///
    /// # Panics
    /// If the data have none of these forms.
    pub(super) fn of(data: &impl Serialize) -> Self {
        let rows = serde_json::to_value(data).and_then(serde_json::from_value);
        rows.expect("an experiment's rows are plain data")
    }

    pub fn plots(&self) -> &[Plot] {
        &self.plots
    }

    /// Returns the tables that follow from the data alone, and sentences that sum them up. Other layouts have their
    /// tables in [`ExperimentResult::tables`].
    pub fn tables(&self) -> (&[Table], &[String]) {
        (&self.tables, &self.notes)
    }

    /// Returns true if figures and tables show all of the data.
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

/// A published claim and its judgement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claim {
    pub id: String,
    /// The claim in a sentence, with its tolerance.
    pub text: String,
    /// The source's basis for the claim.
    pub basis: Basis,
    pub role: Role,
    /// Reason why the claim is not a check.
    pub because: Option<String>,
    pub met: bool,
    pub published: Figure,
    pub measured: Figure,
    /// Minimum and maximum of the measured figure, null on a side without a limit; left out if the claim is not about a
    /// single figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<[Option<f64>; 2]>,
}

/// Measured and published figures that differ by no more than half of the second digit count as equal.
const SAME: f64 = 0.05;

impl Claim {
    /// Returns the differences between measured and published figures as shares of the latter; empty if they are not
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

    /// Returns true if the claim is met although the measured figure differs from the published one.
    pub fn is_met_by_tolerance(&self) -> bool {
        self.met && self.deviations().iter().any(|deviation| deviation.abs() > SAME)
    }
}

/// The source's basis for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// The source measured it, and gives figures.
    Measured,
    /// The source drew it without numbers.
    Drawn,
    /// The source believes or infers it. Limits of our own are of this kind too.
    Asserted,
}

impl Basis {
    pub const fn words(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Drawn => "drawn",
            Self::Asserted => "asserted",
        }
    }
}

/// Significance of a claim that holds here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The claim could have failed: nothing was fitted to it.
    Check,
    /// Something was chosen with the claim in view, so it proves little.
    Fitted,
    /// The claim follows from how the model is made, so it proves nothing.
    BuiltIn,
}

impl Role {
    pub const fn words(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Fitted => "fitted",
            Self::BuiltIn => "built-in",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Figure {
    Number(f64),
    Numbers(Vec<f64>),
    Text(String),
}
