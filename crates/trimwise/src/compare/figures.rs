use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::watch::Issue;
use crate::trace::{PaceKind, ReplayFigures};
use crate::workload::latency::{LatencySummary, Operation};
use crate::workload::own::OwnFigures;
use crate::workload::postmark::PostmarkFigures;
use crate::workload::stage::Done;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    #[default]
    Total,
    /// The time that tasks spent in their operations, in a run over days.
    Waiting,
    /// The fsync after the removal.
    Fsync,
    /// The synchronous write that needs a block.
    Write,
    /// The mean latency of a trace's requests, where their times are given.
    MeanLatency,
    /// A quantile of the latency of one kind of operation: `p99:fsync`.
    Latency(Quantile, Operation),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantile {
    P50,
    P99,
    P999,
    Max,
}

impl Quantile {
    pub const ALL: [Self; 4] = [Self::P50, Self::P99, Self::P999, Self::Max];

    pub fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Max => "max",
        }
    }

    pub fn of(self, latency: &LatencySummary) -> u64 {
        match self {
            Self::P50 => latency.p50_ns,
            Self::P99 => latency.p99_ns,
            Self::P999 => latency.p999_ns,
            Self::Max => latency.max_ns,
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Total => f.pad("total"),
            Self::Waiting => f.pad("waiting"),
            Self::Fsync => f.pad("fsync"),
            Self::Write => f.pad("write"),
            Self::MeanLatency => f.pad("latency"),
            Self::Latency(quantile, operation) => write!(f, "{}:{}", quantile.name(), operation.name()),
        }
    }
}

impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Measure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let own = [Self::Total, Self::Waiting, Self::Fsync, Self::Write, Self::MeanLatency];
        let found = own.into_iter().find(|measure| measure.to_string() == text);
        found.map_or_else(|| text.parse(), Ok).map_err(serde::de::Error::custom)
    }
}

impl FromStr for Measure {
    type Err = String;

    /// Parses a measure that can be chosen: `total`, or a quantile of an operation.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "total" {
            return Ok(Self::Total);
        }
        let parts = text.split_once(':').and_then(|(quantile, operation)| {
            let quantile = Quantile::ALL.into_iter().find(|q| q.name() == quantile)?;
            Some(Self::Latency(quantile, Operation::ALL.into_iter().find(|o| o.name() == operation)?))
        });
        parts.ok_or_else(|| {
            let quantiles = Quantile::ALL.map(Quantile::name).join("|");
            let operations = Operation::ALL.map(Operation::name).join("|");
            format!(
                "'{text}' is not a measure; expected total or {quantiles}:{operations}, such as p99:fsync"
            )
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadFigures {
    Postmark(PostmarkFigures),
    Append(AppendFigures),
    FullWrite(FullWriteFigures),
    Replay(ReplayFigures),
    Program(Done),
    Own(OwnFigures),
}

impl WorkloadFigures {
    pub fn postmark(&self) -> Option<&PostmarkFigures> {
        match self {
            Self::Postmark(figures) => Some(figures),
            Self::Append(_) | Self::FullWrite(_) | Self::Replay(_) | Self::Program(_) | Self::Own(_) => None,
        }
    }

    /// Returns the figures of a trace.
    pub fn replay(&self) -> Option<&ReplayFigures> {
        match self {
            Self::Replay(figures) => Some(figures),
            Self::Postmark(_) | Self::Append(_) | Self::FullWrite(_) | Self::Program(_) | Self::Own(_) => {
                None
            }
        }
    }

    /// Returns what the calls of a program did.
    pub fn program(&self) -> Option<&Done> {
        match self {
            Self::Program(done) => Some(done),
            Self::Postmark(_) | Self::Append(_) | Self::FullWrite(_) | Self::Replay(_) | Self::Own(_) => None,
        }
    }

    /// Returns the operations that the workload times one after another, and their nanoseconds.
    pub fn timed_ns(&self) -> Option<[(&'static str, u64); 2]> {
        match self {
            Self::Append(figures) => Some([("unlink", figures.unlink_ns), ("fsync", figures.fsync_ns)]),
            Self::FullWrite(figures) => {
                Some([("fsync", figures.fsync_ns.unwrap_or(0)), ("write", figures.write_ns)])
            }
            Self::Postmark(_) | Self::Replay(_) | Self::Program(_) | Self::Own(_) => None,
        }
    }

    /// Returns the TRIMs of the removed file, if the workload times one operation; `None` on a real directory.
    pub fn removal_trims(&self) -> Option<RemovalTrims> {
        match self {
            Self::Append(AppendFigures { trims, .. }) | Self::FullWrite(FullWriteFigures { trims, .. }) => {
                *trims
            }
            Self::Postmark(_) | Self::Program(_) | Self::Replay(_) | Self::Own(_) => None,
        }
    }

    /// Returns the measure by which policies are judged under this workload, and its nanoseconds unless it is the run's
    /// duration.
    pub(super) fn judged(&self, is_over_days: bool) -> (Measure, Option<u64>) {
        match self {
            Self::Append(figures) => (Measure::Fsync, Some(figures.fsync_ns)),
            Self::FullWrite(figures) => (Measure::Write, Some(figures.write_ns)),
            Self::Replay(figures) if figures.pace == PaceKind::Open => {
                (Measure::MeanLatency, Some(figures.latency_mean_ns))
            }
            Self::Postmark(_) | Self::Program(_) if is_over_days => (Measure::Waiting, None),
            Self::Postmark(_) | Self::Program(_) | Self::Replay(_) | Self::Own(_) => (Measure::Total, None),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppendFigures {
    pub append_bytes: u64,
    pub file_bytes: u64,
    pub pieces: u64,
    pub unlink_ns: u64,
    /// The fsync after the unlink.
    pub fsync_ns: u64,
    /// The TRIMs of the removed file; `None` on a real directory.
    pub trims: Option<RemovalTrims>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FullWriteFigures {
    pub append_bytes: u64,
    pub file_bytes: u64,
    /// The fsync between the removal and the write, if there was one.
    pub fsync_ns: Option<u64>,
    /// The write of one block, and its fsync.
    pub write_ns: u64,
    /// The TRIMs of the removed file; `None` on a real directory.
    pub trims: Option<RemovalTrims>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalTrims {
    pub commands: u64,
    /// Time from the end of the commit until the last was acknowledged; 0 if there were none.
    pub acknowledged_ns: u64,
}

impl From<Issue> for RemovalTrims {
    fn from(issue: Issue) -> Self {
        Self { commands: issue.commands, acknowledged_ns: issue.time.as_nanos() }
    }
}
