//! The reason for a live host's behaviour, as data and as a sentence.

use std::fmt;

use serde::Serialize;

use crate::units::{Bytes, SimDuration};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "code", rename_all = "kebab-case")]
pub enum Reason {
    Starting,
    /// The governor's own explanation.
    Policy {
        /// A sentence: what it does.
        state: String,
        /// A sentence: what would change that.
        change: String,
    },
    Paused,
    Trimming {
        bytes: Bytes,
    },
    Looking,
    Toggling {
        /// It is being turned on, rather than off.
        on: bool,
    },
    /// The kernel's own online discard does the work.
    Online {
        /// A mount option fixes this, so it cannot be changed here.
        fixed: bool,
    },
    Pressure {
        /// Share of time in which some task waited for I/O over the last 10 s, in thousandths.
        now_permille: u64,
        /// No slice starts at this share or above.
        max_permille: u64,
    },
    Rest {
        #[serde(rename = "left_ns")]
        left: SimDuration,
        /// Requests take longer during slices.
        harmful: bool,
    },
    /// Only parts of free extents are waiting, and the extents could only be sent whole.
    PartsOnly {
        #[serde(rename = "waiting_bytes")]
        waiting: Bytes,
    },
    OverBound {
        #[serde(rename = "untrimmed_bytes")]
        untrimmed: Bytes,
        #[serde(rename = "bound_bytes")]
        bound: Bytes,
    },
    /// All free space goes back at once, since its lender runs short.
    LowWater {
        lender: String,
        used_percent: u64,
        metadata_percent: Option<u64>,
    },
    /// What was freed goes back before it was held for too long.
    Overdue {
        #[serde(rename = "held_for_max_ns")]
        held_for_max: SimDuration,
    },
    Asked,
    /// A slice or a map failed and will be tried again.
    Failed {
        message: String,
        /// Time until the next attempt; 0 during one.
        #[serde(rename = "again_in_ns")]
        again_in: SimDuration,
    },
    Stuck {
        message: String,
    },
    /// The file system cannot be trimmed at all.
    Refused {
        message: String,
    },
}

impl Reason {
    pub fn is_trouble(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Stuck { .. } | Self::Refused { .. })
    }

    /// A sentence: what would change this.
    pub fn change(&self) -> String {
        match self {
            Self::Starting => "The first sample, within a second.".to_owned(),
            Self::Policy { change, .. } => change.clone(),
            Self::Paused => "`trimwise resume`.".to_owned(),
            Self::Trimming { .. } => "The end of the slice.".to_owned(),
            Self::Looking => "Reaching the end of the map.".to_owned(),
            Self::Toggling { .. } => "The end of the remount.".to_owned(),
            Self::Online { fixed: true } => {
                "Mounting without `discard`, or `toggle = true` in the configuration where remounting can change it."
                    .to_owned()
            }
            Self::Online { fixed: false } => "Another policy, or a change in utilization.".to_owned(),
            Self::Pressure { .. } => {
                "Less pressure, or more untrimmed space than the bound (`untrimmed-max`).".to_owned()
            }
            Self::Rest { .. } => "The end of the rest.".to_owned(),
            Self::PartsOnly { .. } => {
                "More space freed next to them, or more untrimmed space than the bound.".to_owned()
            }
            Self::OverBound { .. } => "Less untrimmed space than the bound.".to_owned(),
            Self::LowWater { .. } => "The end of that trim; the next one begins when something is freed.".to_owned(),
            Self::Overdue { .. } | Self::Asked => "The end of that trim.".to_owned(),
            Self::Failed { .. } => "A successful attempt.".to_owned(),
            Self::Stuck { .. } => "The device responding, or its removal.".to_owned(),
            Self::Refused { .. } => "Mounting it again, or another device.".to_owned(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |time: &SimDuration| format!("{:.1} s", time.as_secs_f64());
        match self {
            Self::Starting => f.write_str("Just started."),
            Self::Policy { state, .. } => f.write_str(state),
            Self::Paused => f.write_str("Paused by `trimwise pause`."),
            Self::Trimming { bytes } => write!(f, "Trimming a slice of {bytes}."),
            Self::Looking => f.write_str("Reading the map of free space, to see what was freed."),
            Self::Toggling { on } => {
                write!(f, "Turning the kernel's online discard {}.", if *on { "on" } else { "off" })
            }
            Self::Online { fixed: false } => {
                f.write_str("The kernel's own online discard is on, as the policy wants, so trimwised sends nothing.")
            }
            Self::Online { fixed: true } => f.write_str(
                "The file system is mounted with online discard: the kernel itself tells the device what is freed, and \
                 trimwised sends nothing.",
            ),
            Self::Pressure { now_permille, max_permille } => write!(
                f,
                "Tasks waited for I/O for {}.{} % of the last 10 s; no slice starts at {}.{} % or above.",
                now_permille / 10,
                now_permille % 10,
                max_permille / 10,
                max_permille % 10
            ),
            Self::Rest { left, harmful: false } => {
                write!(f, "Resting after the last slice, {} more.", seconds(left))
            }
            Self::Rest { left, harmful: true } => write!(
                f,
                "Resting after the last slice, {} more: requests took longer during slices than without.",
                seconds(left)
            ),
            Self::PartsOnly { waiting } => write!(
                f,
                "{waiting} are waiting in free extents that are mostly trimmed already and can only be sent whole."
            ),
            Self::OverBound { untrimmed, bound } => {
                write!(f, "{untrimmed} of free space is untrimmed, more than the bound of {bound}.")
            }
            Self::LowWater { lender, used_percent, metadata_percent } => {
                let metadata =
                    metadata_percent.map_or(String::new(), |used| format!(", {used} % of its metadata"));
                write!(
                    f,
                    "Low water: {lender} is {used_percent} % full{metadata}, so all free space is trimmed at once."
                )
            }
            Self::Overdue { held_for_max } => write!(
                f,
                "No lent space may stay untrimmed for longer than {} s (`held-for-max-s`), so all of it is trimmed.",
                held_for_max.as_nanos() / 1_000_000_000
            ),
            Self::Asked => f.write_str("`trimwise trim --now` asked to trim all free space."),
            Self::Failed { message, again_in: SimDuration::ZERO } => {
                write!(f, "{message}; it is being tried again now.")
            }
            Self::Failed { message, again_in } => {
                write!(f, "{message}; it will be tried again in {}.", seconds(again_in))
            }
            Self::Stuck { message } => {
                write!(f, "{message}; nothing else starts here until the kernel lets it end.")
            }
            Self::Refused { message } => write!(f, "The file system cannot be trimmed: {message}."),
        }
    }
}
