//! Which figure of the model stands next to an entry of the register, or why none does.

use serde::Serialize;
use trimwise::drives::Flash;
use trimwise::drives::measured::{Measurement, What};

/// Why an entry has no counterpart in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    Bound,
    Unnamed,
    NoProfile,
    Given,
    Host,
    Secure,
    Ranges,
    NotSaid,
    NoFlash,
}

impl Why {
    pub const ALL: [Self; 9] = [
        Self::Bound,
        Self::Unnamed,
        Self::NoProfile,
        Self::Given,
        Self::Host,
        Self::Secure,
        Self::Ranges,
        Self::NotSaid,
        Self::NoFlash,
    ];

    pub const fn words(self) -> &'static str {
        match self {
            Self::Bound => "only a bound is known",
            Self::Unnamed => "the drive is not named",
            Self::NoProfile => "no profile of it predates its figure",
            Self::Given => "profiles are made of such figures",
            Self::Host => "nobody says how many pieces were free",
            Self::Secure => "the model has no secure TRIM",
            Self::Ranges => "nobody says how many ranges a command had",
            Self::NotSaid => "too little is public about drive or test",
            Self::NoFlash => "it has no flash",
        }
    }
}

/// An entry with a counterpart, other than dirty and clean drives.
struct Named {
    what: What,
    drive: &'static str,
    /// Part of what the source says, if the drive has several such entries.
    said: &'static str,
    /// Figures of the model and what is special about them. The first counts for the entry.
    figures: &'static [(&'static str, &'static str)],
}

const fn named(
    what: What,
    drive: &'static str,
    said: &'static str,
    figures: &'static [(&'static str, &'static str)],
) -> Named {
    Named { what, drive, said, figures }
}

const NAMED: [Named; 13] = [
    named(
        What::OpGain,
        "Intel 710 200GB",
        "",
        &[("spare-intel-710", ""), ("spare-intel-710-random", "random victims, parity")],
    ),
    named(
        What::OpGain,
        "FusionIO ioDrive Duo 320GB SLC",
        "with 100GiB",
        &[("spare-iodrive-100", "100 GiB"), ("spare-iodrive-100-random", "100 GiB, random victims")],
    ),
    named(
        What::OpGain,
        "FusionIO ioDrive Duo 320GB SLC",
        "with 150GiB",
        &[("spare-iodrive-150", "150 GiB"), ("spare-iodrive-150-random", "150 GiB, random victims")],
    ),
    named(
        What::WriteAmplification,
        "Intel 710 200GB",
        "",
        &[("wa-intel-710", ""), ("wa-intel-710-random", "random victims, parity")],
    ),
    named(What::TrimWaRatio, "unnamed (model and simulation, no drive)", "", &[("wa-trims", "")]),
    named(What::TrimLatency, "OCZ Agility 3", "", &[("trim-agility-3", "")]),
    named(What::TrimLatency, "unnamed U.2 NVMe drive (fio issue 764)", "", &[("trim-fio-764", "")]),
    named(What::DiscardRate, "unnamed NVMe drive (fio issue 396)", "", &[("trim-fio-396", "")]),
    named(What::DiscardRate, "unnamed NVMe drive (Open-CAS tracer 182)", "", &[("trim-open-cas-182", "")]),
    named(What::DiscardRate, "unnamed NVMe of AWS i3.8xlarge, 1.9TB", "", &[("trim-aws-i3", "")]),
    named(
        What::DiscardWhole,
        "Intel SSDPE2KX040T8 (P4510 4TB)",
        "18.468s",
        &[("whole-p4510", "state not said")],
    ),
    named(What::DiscardWhole, "Intel SSDPE2KX040T8 (P4510 4TB)", "18.038s", &[("whole-p4510-full", "full")]),
    named(
        What::Stall,
        "Toshiba RC100 240GB",
        "",
        &[("stall-rc100", ""), ("stall-rc100-written", "map written through")],
    ),
];

/// Name of a drive in names of figures.
pub fn slug(drive: &str) -> String {
    drive.to_lowercase().replace([' ', '.'], "-")
}

/// Returns the figures of the model next to this entry, and what is special about each. `drives` have a profile made of
/// public specifications.
pub fn counterparts(one: &Measurement, drives: &[String]) -> Result<Vec<(String, &'static str)>, Why> {
    let figures =
        |all: &[(&str, &'static str)]| all.iter().map(|(name, note)| ((*name).to_owned(), *note)).collect();
    let said = one.said.as_deref().unwrap_or_default();
    let is_it =
        |named: &&Named| named.what == one.what && named.drive == one.drive && said.contains(named.said);
    if let Some(named) = NAMED.iter().find(is_it) {
        return Ok(figures(named.figures));
    }
    let no_drive = if one.is_unnamed() { Why::Unnamed } else { Why::NoProfile };
    match one.what {
        What::DirtyOverClean | What::AfterRestOverClean if drives.contains(&one.drive) => {
            let kind = if one.what == What::DirtyOverClean { "dirty" } else { "rested" };
            Ok(vec![(format!("{kind}-{}", slug(&one.drive)), "")])
        }
        What::SlcBytes | What::SlcWriteBytesPerS | What::AfterSlcWriteBytesPerS => Err(Why::Given),
        What::FstrimTime => Err(Why::Host),
        What::SecureTrimLatency => Err(Why::Secure),
        _ if one.bound.is_some() => Err(Why::Bound),
        What::TrimLatency | What::DiscardRate if one.ranges != Some(1) => Err(Why::Ranges),
        _ if one.flash == Some(Flash::Optane) => Err(Why::NoFlash),
        What::OpGain => Err(Why::NotSaid),
        _ => Err(no_drive),
    }
}
