//! Why a live host does what it does, as data and as a sentence.

use std::fmt;

use serde::Serialize;

use crate::units::{Bytes, SimDuration};

/// Why the last decision was what it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "code", rename_all = "kebab-case")]
pub enum Reason {
    /// Nothing was seen yet.
    Starting,
    /// The governor's own words.
    Policy {
        /// A sentence.
        state: String,
        /// Another one.
        change: String,
    },
    /// The user paused it.
    Paused,
    /// A slice is under way.
    Trimming {
        /// What it is expected to trim.
        bytes: Bytes,
    },
    /// A map of free space is being read.
    Looking,
    /// The kernel's own online discard is being turned on or off.
    Toggling {
        /// On.
        on: bool,
    },
    /// The kernel's own online discard does it.
    Online {
        /// Whether it is so by mount option and cannot be changed here.
        fixed: bool,
    },
    /// Tasks wait for I/O.
    Pressure {
        /// Share of time in which some task waited for I/O over the last 10 s, in thousandths.
        now_permille: u64,
        /// No slice from here on.
        max_permille: u64,
    },
    /// A rest behind a slice.
    Rest {
        /// How long it still is.
        #[serde(rename = "left_ns")]
        left: SimDuration,
        /// Whether requests take longer beside slices.
        harmful: bool,
    },
    /// What waits is parts of free extents that could only be sent whole.
    PartsOnly {
        /// How much.
        #[serde(rename = "waiting_bytes")]
        waiting: Bytes,
    },
    /// Untrimmed space is above the bound.
    OverBound {
        /// What is untrimmed.
        #[serde(rename = "untrimmed_bytes")]
        untrimmed: Bytes,
        /// The bound.
        #[serde(rename = "bound_bytes")]
        bound: Bytes,
    },
    /// The user asked for all of it now.
    Asked,
    /// A slice or a map failed; it is tried again.
    Failed {
        /// The operating system's words.
        message: String,
        /// When.
        #[serde(rename = "again_in_ns")]
        again_in: SimDuration,
    },
    /// What was given up is still under way in the kernel.
    Stuck {
        /// What it is.
        message: String,
    },
    /// It cannot be trimmed at all.
    Refused {
        /// The operating system's words.
        message: String,
    },
}

impl Reason {
    /// Whether somebody should look after it.
    pub fn is_trouble(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Stuck { .. } | Self::Refused { .. })
    }

    /// What would change it: a sentence.
    pub fn change(&self) -> String {
        match self {
            Self::Starting => "A second.".to_owned(),
            Self::Policy { change, .. } => change.clone(),
            Self::Paused => "`trimwise resume`.".to_owned(),
            Self::Trimming { .. } => "The end of the slice.".to_owned(),
            Self::Looking => "The end of the map.".to_owned(),
            Self::Toggling { .. } => "The end of the remount.".to_owned(),
            Self::Online { fixed: true } => {
                "Mounting without `discard`, or `toggle = true` in the configuration where remounting can change it."
                    .to_owned()
            }
            Self::Online { fixed: false } => "Another policy, or utilization.".to_owned(),
            Self::Pressure { .. } => {
                "Less pressure, or more untrimmed space than the bound (`untrimmed-max`).".to_owned()
            }
            Self::Rest { .. } => "The end of the rest.".to_owned(),
            Self::PartsOnly { .. } => "More that is freed beside them, or more untrimmed than the bound.".to_owned(),
            Self::OverBound { .. } => "Less untrimmed space than the bound.".to_owned(),
            Self::Asked => "The end of what waits.".to_owned(),
            Self::Failed { .. } => "An attempt that succeeds.".to_owned(),
            Self::Stuck { .. } => "A device that answers, or is taken away.".to_owned(),
            Self::Refused { .. } => "Mounting it anew, or another device.".to_owned(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |time: &SimDuration| format!("{:.1} s", time.as_secs_f64());
        match self {
            Self::Starting => f.write_str("It only just begins."),
            Self::Policy { state, .. } => f.write_str(state),
            Self::Paused => f.write_str("Paused by `trimwise pause`."),
            Self::Trimming { bytes } => write!(f, "A slice of {bytes} is being trimmed."),
            Self::Looking => f.write_str("The map of free space is being read, to see what was freed."),
            Self::Toggling { on } => {
                write!(f, "The kernel's online discard is being turned {}.", if *on { "on" } else { "off" })
            }
            Self::Online { fixed: false } => {
                f.write_str("The kernel's own online discard is on, as the policy wants it, and trimwised sends nothing.")
            }
            Self::Online { fixed: true } => f.write_str(
                "It is mounted with online discard: the kernel itself tells the device of what is freed, and trimwised \
                 sends nothing.",
            ),
            Self::Pressure { now_permille, max_permille } => write!(
                f,
                "Tasks waited for I/O in {}.{} % of the last 10 s; no slice begins from {}.{} % on.",
                now_permille / 10,
                now_permille % 10,
                max_permille / 10,
                max_permille % 10
            ),
            Self::Rest { left, harmful: false } => {
                write!(f, "A rest behind the last slice, {} more.", seconds(left))
            }
            Self::Rest { left, harmful: true } => write!(
                f,
                "A rest behind the last slice, {} more: requests took longer beside slices than without.",
                seconds(left)
            ),
            Self::PartsOnly { waiting } => write!(
                f,
                "{waiting} wait in free extents that are trimmed for the most part, and can only be sent with that part."
            ),
            Self::OverBound { untrimmed, bound } => {
                write!(f, "{untrimmed} of free space are untrimmed, more than the bound of {bound}.")
            }
            Self::Asked => f.write_str("`trimwise trim --now` asked for all that waits."),
            Self::Failed { message, again_in } => {
                write!(f, "{message}; it is tried again in {}.", seconds(again_in))
            }
            Self::Stuck { message } => {
                write!(f, "{message}; nothing else is begun here until the kernel lets it end.")
            }
            Self::Refused { message } => write!(f, "It cannot be trimmed: {message}."),
        }
    }
}
