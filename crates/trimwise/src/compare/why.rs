//! Why a policy fares as it does: what its TRIMs cost, what they saved, and where the device's time went.
//!
//! Only medians are used, so that the text is the same wherever the cells came from.

use crate::compare::summary::{DeviceSummary, PolicySummary};
use crate::numbers::thousands;
use crate::policy::PolicyId;
use crate::units::{Bytes, UNIT_BYTES};

/// Smallest share that explains something: of the run for times, of the flash's writes for copies.
const EXPLAINS: f64 = 0.02;
const CAUSES_MAX: usize = 3;
/// The largest accepted endurance, that of a drive that does not wear.
const UNLIMITED_CYCLES: u32 = 100_000_000;
const YEAR_S: f64 = 365.25 * 86_400.0;

/// The causes of device time other than TRIM: the key of `busy_ns`, and words for it.
const CAUSES: [(&str, &str); 10] = [
    ("link", "the host link"),
    ("controller", "the controller"),
    ("write_path", "moving writes to the flash"),
    ("read_host", "reading for the host"),
    ("read_gc", "reading data to copy"),
    ("read_map", "reading the map"),
    ("program_host", "programming what the host wrote"),
    ("program_gc", "programming copies"),
    ("erase", "erasing"),
    ("flush", "flushes"),
];

/// What explains a policy's speed: medians on one device, or their sums over several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Causes {
    pub run_s: f64,
    /// Time until its last TRIM was done, which can be after its end. The ledger's share of TRIM is relative to this
    /// time.
    pub trimmed_s: f64,
    pub trim_commands: f64,
    pub trim_s: f64,
    /// Device time by cause, as in `CAUSES`.
    pub busy_s: [f64; CAUSES.len()],
    pub gc_units: f64,
    pub folded_units: f64,
    pub nand_units: f64,
}

impl Causes {
    /// Returns the causes of one policy; `None` on a real directory.
    pub fn of(p: &PolicySummary) -> Option<Self> {
        let busy_s = |cause: &str| {
            p.device_median_of(|d| d.busy_ns.get(cause).copied().unwrap_or_default() as f64 / 1e9)
        };
        let run_s = p.median_of(|c| c.elapsed_ns() as f64 / 1e9);
        let trim_s = busy_s("trim")?;
        let share = p.ledger_median_of(|l| l.trim_busy_percent / 100.0).filter(|share| *share > 0.0);
        Some(Self {
            run_s,
            trimmed_s: share.map_or(run_s, |share| trim_s / share),
            trim_commands: p.device_median_of(|d| d.trim_commands as f64)?,
            trim_s,
            busy_s: CAUSES.map(|(cause, _)| busy_s(cause).unwrap_or_default()),
            gc_units: p.device_median_of(|d| d.gc_units_copied as f64)?,
            folded_units: p.device_median_of(|d| d.folded_units as f64)?,
            nand_units: p.device_median_of(|d| d.nand_units_written as f64)?,
        })
    }

    /// Returns the sums over several devices, in their order; `None` if the policy did not run on one of them.
    pub fn sum(devices: &[DeviceSummary], policy: &PolicyId) -> Option<Self> {
        devices.iter().try_fold(Self::default(), |sum, device| {
            let one = Self::of(device.policy(policy)?)?;
            Some(Self {
                run_s: sum.run_s + one.run_s,
                trimmed_s: sum.trimmed_s + one.trimmed_s,
                trim_commands: sum.trim_commands + one.trim_commands,
                trim_s: sum.trim_s + one.trim_s,
                busy_s: std::array::from_fn(|i| sum.busy_s[i] + one.busy_s[i]),
                gc_units: sum.gc_units + one.gc_units,
                folded_units: sum.folded_units + one.folded_units,
                nand_units: sum.nand_units + one.nand_units,
            })
        })
    }
}

/// Explains how `policy` differs from `baseline`. Each is a name and its causes.
pub fn explain(policy: (&PolicyId, &Causes), baseline: (&PolicyId, &Causes)) -> String {
    let sentences = [trims(policy), trims(baseline), copies(policy, baseline), device_time(policy, baseline)];
    sentences.into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Describes what its TRIMs cost; empty if it sent none.
fn trims((name, causes): (&PolicyId, &Causes)) -> String {
    if causes.trim_commands == 0.0 {
        return String::new();
    }
    let commands = match thousands(causes.trim_commands) {
        one if one == "1" => "The only TRIM command".to_owned(),
        many => format!("The {many} TRIM commands"),
    };
    let share = causes.trim_s / causes.trimmed_s;
    let outlast = causes.trimmed_s > causes.run_s * (1.0 + EXPLAINS);
    let of = if outlast { "the time until the last one completed" } else { "its run" };
    let cost = match share > EXPLAINS {
        true => format!("took {} of device time, {} of {of}", seconds(causes.trim_s), percent(share)),
        false => format!("cost little: {} of device time", seconds(causes.trim_s)),
    };
    format!("{commands} of `{name}` {cost}.")
}

/// Describes what collection and folding copied less or more; empty if that makes no difference that matters.
fn copies((name, policy): (&PolicyId, &Causes), (_, baseline): (&PolicyId, &Causes)) -> String {
    let parts = [
        ("garbage collection", policy.gc_units, baseline.gc_units),
        ("folding of the SLC cache", policy.folded_units, baseline.folded_units),
    ];
    let matters = |(_, here, there): &(&str, f64, f64)| {
        (here - there).abs() > EXPLAINS * baseline.nand_units.max(policy.nand_units)
    };
    let parts: Vec<String> = parts
        .into_iter()
        .filter(matters)
        .map(|(what, here, there)| {
            let bytes = Bytes(((here - there).abs() * UNIT_BYTES as f64) as u64);
            let share = match there > 0.0 {
                true => format!(" ({})", percent((here - there).abs() / there)),
                false => String::new(),
            };
            format!("{what} copied {bytes} {}{share}", less_or_more(here, there))
        })
        .collect();
    if parts.is_empty() { String::new() } else { format!("With `{name}`, {}.", parts.join(", and ")) }
}

fn device_time((name, policy): (&PolicyId, &Causes), (other, baseline): (&PolicyId, &Causes)) -> String {
    let mut causes: Vec<(&str, f64, f64)> = CAUSES
        .iter()
        .zip(policy.busy_s.iter().zip(baseline.busy_s))
        .map(|(c, (&h, t))| (c.1, h, t))
        .collect();
    causes.retain(|(_, here, there)| (here - there).abs() > EXPLAINS * baseline.run_s);
    // The sort is stable: equal differences stay in the order of the list.
    causes.sort_by(|(_, h1, t1), (_, h2, t2)| (h2 - t2).abs().total_cmp(&(h1 - t1).abs()));
    let parts: Vec<String> = causes
        .into_iter()
        .take(CAUSES_MAX)
        .enumerate()
        .map(|(i, (what, here, there))| {
            let difference = (here - there).abs();
            let of = if i == 0 { format!(" of the run of `{other}`") } else { String::new() };
            let share = percent(difference / baseline.run_s);
            format!("{} {} for {what} ({share}{of})", seconds(difference), less_or_more(here, there))
        })
        .collect();
    if parts.is_empty() {
        let other_use = if policy.trim_s > 0.0 || baseline.trim_s > 0.0 { "other use" } else { "use" };
        return format!(
            "No {other_use} of device time differs from that with `{other}` by more than {} of the run.",
            percent(EXPLAINS)
        );
    }
    format!("Device time with `{name}`, summed over dies and channels: {}.", parts.join(", "))
}

fn less_or_more(here: f64, there: f64) -> &'static str {
    if here < there { "less" } else { "more" }
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let digits = usize::from(percent < 9.95);
    format!("{percent:.digits$} %").replace(".0 %", " %")
}

#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Endurance {
    /// Bytes that the host can write, in units of 10^12: capacity times cycles over write amplification.
    pub tbw: f64,
    /// How long the drive lasts if this workload runs without a pause, or day by day as it was spread; `None` if it
    /// writes nothing.
    pub years: Option<f64>,
    pub pe_cycles: u32,
    /// The rated cycles are assumed, as the profile says.
    pub assumed: bool,
    /// The workload was spread over days, so `years` counts its idle time too.
    #[serde(skip)]
    pub is_spread: bool,
}

impl Endurance {
    /// Returns the endurance under a policy; `None` if nothing is known about the drive.
    pub fn of(p: &PolicySummary) -> Option<Self> {
        let drive = p.runs.first()?.drive.filter(|drive| drive.endurance_cycles < UNLIMITED_CYCLES)?;
        let bytes = drive.capacity_bytes as f64 * f64::from(drive.endurance_cycles)
            / p.device_median_of(|d| d.write_amplification)?;
        let written = p.device_median_of(|d| d.host_units_written as f64)? * UNIT_BYTES as f64;
        let run_s = p.median_of(|c| c.elapsed_ns() as f64 / 1e9);
        let years = (written > 0.0 && run_s > 0.0).then(|| bytes / (written / run_s) / YEAR_S);
        Some(Self {
            tbw: bytes / 1e12,
            years: years.filter(|_| bytes.is_finite()),
            pe_cycles: drive.endurance_cycles,
            assumed: drive.endurance_is_assumed,
            is_spread: p.runs.iter().any(|c| c.days.is_some()),
        })
        .filter(|endurance| endurance.tbw.is_finite())
    }

    /// A sentence about a policy, and about the baseline if that is another.
    pub fn sentence(self, policy: &PolicyId, baseline: Option<(&PolicyId, Self)>) -> String {
        let tbw = |e: Self| format!("{} TB written", factor(e.tbw));
        let mut text = format!("Endurance: {} with `{policy}`", tbw(self));
        if let Some((policy, other)) = baseline {
            text += &format!(", {} with `{policy}`", tbw(other));
        }
        let assumed = if self.assumed { ", assumed" } else { "" };
        text += &format!(" ({} P/E cycles{assumed})", thousands(f64::from(self.pe_cycles)));
        if let Some(years) = self.years {
            let how = if self.is_spread { "spread over such days" } else { "run without a pause" };
            text += &format!("; this workload, {how}, takes {}", time(years));
            if let Some(other) = baseline.and_then(|(_, other)| other.years) {
                text += &format!(" and {}", time(other));
            }
            text += " to write that";
        }
        text + "."
    }
}

fn time(years: f64) -> String {
    let (value, unit) = match years * 365.25 {
        _ if years >= 1.0 => (years, "years"),
        days if days >= 1.0 => (days, "days"),
        days => (days * 24.0, "hours"),
    };
    format!("{} {unit}", factor(value))
}

/// A factor with a sensible number of digits.
pub(super) fn factor(f: f64) -> String {
    match f.abs() {
        a if a >= 100.0 => format!("{f:.0}"),
        a if a >= 10.0 => format!("{f:.1}"),
        _ => format!("{f:.2}"),
    }
}

pub(super) fn seconds(f: f64) -> String {
    match f {
        f if f >= 100.0 => format!("{f:.0} s"),
        f if f >= 1.0 || f == 0.0 => format!("{f:.2} s"),
        f => format!("{:.2} ms", f * 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline() -> Causes {
        let mut causes = Causes {
            run_s: 100.0,
            trimmed_s: 100.0,
            gc_units: 2_000_000.0,
            folded_units: 500_000.0,
            nand_units: 3_000_000.0,
            ..Causes::default()
        };
        (causes.busy_s[5], causes.busy_s[7], causes.busy_s[8]) = (1.0, 60.0, 20.0);
        causes
    }

    fn better() -> Causes {
        let mut causes =
            Causes { run_s: 50.0, trimmed_s: 50.0, trim_commands: 1234.0, trim_s: 5.0, ..baseline() };
        (causes.gc_units, causes.folded_units) = (500_000.0, 490_000.0);
        (causes.busy_s[0], causes.busy_s[7], causes.busy_s[8]) = (3.0, 15.0, 12.5);
        causes
    }

    #[test]
    fn cost_savings_and_the_largest_differences_are_named() {
        assert_eq!(
            explain((&"lazy".into(), &better()), (&"off".into(), &baseline())),
            "The 1,234 TRIM commands of `lazy` took 5.00 s of device time, 10 % of its run. With `lazy`, garbage \
             collection copied 5.7 GiB less (75 %). Device time with `lazy`, summed over dies and channels: 45.00 s \
             less for programming copies (45 % of the run of `off`), 7.50 s less for erasing (7.5 %), 3.00 s more \
             for the host link (3 %)."
        );
    }

    #[test]
    fn the_share_of_trims_that_outlast_the_run_is_that_of_the_ledger() {
        let late = Causes { trimmed_s: 62.5, ..better() };
        let text = explain((&"lazy".into(), &late), (&"off".into(), &baseline()));
        let said = "The 1,234 TRIM commands of `lazy` took 5.00 s of device time, 8 % of the time until the last one \
             completed.";
        assert!(text.starts_with(said), "{text}");
    }

    #[test]
    fn folding_that_a_policy_saved_is_named() {
        let policy = Causes { folded_units: 250_000.0, trim_commands: 1.0, trim_s: 0.1, ..baseline() };
        assert_eq!(
            explain((&"lazy".into(), &policy), (&"off".into(), &baseline())),
            "The only TRIM command of `lazy` cost little: 100.00 ms of device time. With `lazy`, folding of the SLC \
             cache copied 976.6 MiB less (50 %). No other use of device time differs from that with `off` by more \
             than 2 % of the run."
        );
    }

    #[test]
    fn what_explains_nothing_is_left_out() {
        let mut policy = baseline();
        policy.busy_s[7] += 1.9;
        policy.gc_units += 50_000.0;
        assert_eq!(
            explain((&"lazy".into(), &policy), (&"off".into(), &baseline())),
            "No use of device time differs from that with `off` by more than 2 % of the run."
        );
    }

    #[test]
    fn endurance_is_told_in_a_unit_that_suits() {
        let one =
            Endurance { tbw: 150.0, years: Some(2.5), pe_cycles: 600, assumed: false, is_spread: false };
        assert_eq!(
            one.sentence(&"off".into(), None),
            "Endurance: 150 TB written with `off` (600 P/E cycles); this workload, run without a pause, takes 2.50 \
             years to write that."
        );
        let [half, none] =
            [Some(0.5), None].map(|years| Endurance { tbw: 20.0, years, assumed: true, ..one });
        assert_eq!(
            half.sentence(
                &"lazy".into(),
                Some((&PolicyId::OFF, Endurance { years: Some(0.001), tbw: 5.0, ..half }))
            ),
            "Endurance: 20.0 TB written with `lazy`, 5.00 TB written with `off` (600 P/E cycles, assumed); this \
             workload, run without a pause, takes 183 days and 8.77 hours to write that."
        );
        assert_eq!(
            none.sentence(&"off".into(), None),
            "Endurance: 20.0 TB written with `off` (600 P/E cycles, assumed)."
        );
    }
}
