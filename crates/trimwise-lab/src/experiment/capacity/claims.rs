//! The figures that the claims of the source and its readers are about, and the finding in words.

use super::history::{History, LEVELS, LEVELS_IDLE, LEVELS_RANDOM, LEVELS_WRITE, Measured, mean};
use super::{DEVICES, EXPERIMENT, PAGE, STATIC, label, plots};
use crate::experiment::claims::Figures;
use crate::experiment::result::ExperimentResult;

pub fn evaluate(measured: &Measured, reps: u32, seed: u64) -> ExperimentResult {
    let sentences = [
        sequential_sentence(measured),
        least_free_sentence(measured),
        full_sentence(measured),
        String::new(),
    ];
    let mut result = EXPERIMENT.judge(&figures(measured), &plots::all(measured), reps, seed);
    result.finding.insert_str(0, &sentences.join(" "));
    result
}

/// Returns the figures that the claims are about, in MB/s; `block` and `page` are the two mappings.
fn figures(measured: &Measured) -> Figures {
    let mut figures = Figures::default();
    for (name, level) in ["random.lower", "random.higher"].into_iter().zip(LEVELS_RANDOM) {
        figures.set(name, measured.at(&History::TrimmedRandom { device: STATIC, level }, 0));
    }
    for (name, device) in [("block", STATIC), ("page", PAGE)] {
        for (at, level) in ["87", "63"].into_iter().zip(LEVELS_WRITE) {
            figures.set(format!("{name}.write.{at}"), trimmed_write(measured, device, level));
        }
        for level in [50, 80, 90, 100] {
            figures.set(format!("{name}.trimmed.{level}"), full_to(measured, device, level, true));
        }
        for remainder in [50, 28, 0] {
            figures.set(format!("{name}.untrimmed.{remainder}"), all_but(measured, device, remainder));
        }
        for (pauses, idle) in [("busy", false), ("rested", true)] {
            figures
                .set(format!("{name}.{pauses}"), with_pauses(measured, device, LEVELS_IDLE[1], false, idle));
        }
    }
    figures
}

fn trimmed_write(measured: &Measured, device: &'static str, level: u32) -> Option<f64> {
    mean(&measured.all(&History::TrimmedWrite { device, level }))
}

/// Returns the speed of settled overwrites of a drive that is full to `level`, with its free space trimmed or stale.
fn full_to(measured: &Measured, device: &'static str, level: u32, trimmed: bool) -> Option<f64> {
    measured.at(&History::Overwritten { device, remainder: 0, level, trimmed }, 0)
}

/// Returns the speed of settled overwrites of everything ever written: the drive without a remainder.
fn all_but(measured: &Measured, device: &'static str, remainder: u32) -> Option<f64> {
    measured.at(&History::Overwritten { device, remainder, level: 100, trimmed: false }, 0)
}

fn with_pauses(
    measured: &Measured,
    device: &'static str,
    level: u32,
    trimmed: bool,
    idle: bool,
) -> Option<f64> {
    measured.at(&History::WithPauses { device, level, trimmed, idle }, 0)
}

fn sequential_sentence(measured: &Measured) -> String {
    let [high, low] = LEVELS_WRITE.map(|level| trimmed_write(measured, STATIC, level));
    match (low, high) {
        (Some(low), Some(high)) => format!(
            "A sequential write on the trimmed drive reaches {low:.0} MB/s at 62.9 % and {high:.0} MB/s at 87.3 %: \
             free space does not matter to it."
        ),
        _ => "No sequential write was measured.".to_owned(),
    }
}

/// Returns the smallest share of free space, in percent, with which a drive reaches `percent` of its best speed; `None`
/// if that takes more than was measured, or if nothing was.
fn least_free(measured: &Measured, device: &'static str, percent: f64) -> Option<u32> {
    let speeds: Vec<(u32, f64)> =
        LEVELS.iter().filter_map(|&level| Some((level, full_to(measured, device, level, true)?))).collect();
    let best = speeds.iter().map(|&(_, speed)| speed).fold(0.0, f64::max);
    // All emptier drives must reach the speed too.
    let reached = speeds.iter().take_while(|(_, speed)| *speed >= best * percent / 100.0);
    reached.last().map(|&(level, _)| 100 - level)
}

/// Answers "how much free space should I keep at least?".
fn least_free_sentence(measured: &Measured) -> String {
    let of_device = |device: &'static str| {
        let full = full_to(measured, device, 100, true)?;
        let (most, good) = (least_free(measured, device, 80.0)?, least_free(measured, device, 90.0)?);
        if most == 100 - LEVELS[0] {
            let half = full_to(measured, device, 50, true)?;
            return Some(format!(
                "with {} every bit of it counts, half of it gives {half:.1} MB/s (full: {full:.1} MB/s)",
                label(device)
            ));
        }
        Some(format!(
            "with {} {most} % give 80 % of the speed of a nearly empty drive, {good} % give 90 % (full: {full:.1} \
             MB/s)",
            label(device),
        ))
    };
    let answers: Vec<String> = DEVICES.into_iter().filter_map(of_device).collect();
    if answers.is_empty() {
        return "Overwrites were not measured.".to_owned();
    }
    format!("Sustained random overwrites need space that is free and trimmed: {}.", answers.join(", "))
}

/// Describes how much free space helps if the drive is not told about it.
fn full_sentence(measured: &Measured) -> String {
    let half = |trimmed| full_to(measured, PAGE, 50, trimmed);
    match (half(true), half(false)) {
        (Some(trimmed), Some(stale)) => format!(
            "A page-mapped drive that is half full reaches {trimmed:.1} MB/s if the free half is trimmed, {stale:.1} \
             if not."
        ),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::histories;
    use super::*;

    /// Judges all histories, with figures as claimed except where `change` alters them.
    fn met(change: impl Fn(&History) -> Option<f64>) -> Vec<String> {
        let claimed = |history: &History| match *history {
            History::TrimmedWrite { level: 8_730, .. } => 194.0,
            History::TrimmedWrite { .. } => 190.5,
            History::Overwritten { device: PAGE, remainder: 0, level, trimmed: true } => match level {
                100 => 20.0,
                level => 130.0 - f64::from(level) / 2.0,
            },
            History::Overwritten { device: PAGE, remainder, .. } => 20.0 + f64::from(remainder),
            History::Overwritten { remainder, level, .. } => 8.0 + f64::from(remainder + 100 - level) / 20.0,
            History::WithPauses { idle, .. } => 10.0 + 10.0 * f64::from(u8::from(idle)),
            _ => 30.0,
        };
        let figure = |history: &History| change(history).unwrap_or_else(|| claimed(history));
        let runs = histories().into_iter().map(|history| {
            let figures = vec![vec![figure(&history); 4]];
            (history, figures)
        });
        let result = evaluate(&Measured::new(runs), 1, 1);
        result.claims.into_iter().filter(|claim| claim.met).map(|claim| claim.id).collect()
    }

    const ALL: [&str; 6] = [
        "capacity-87",
        "capacity-63",
        "capacity-random",
        "capacity-untrimmed",
        "capacity-knee",
        "capacity-mapping",
    ];

    fn without(id: &str) -> Vec<&'static str> {
        ALL.into_iter().filter(|claim| *claim != id).collect()
    }

    #[test]
    fn claims_hold_of_what_is_claimed_and_fail_of_anything_else() {
        assert_eq!(met(|_| None), ALL);
        let slow = |history: &History| {
            matches!(history, History::TrimmedWrite { device: STATIC, level: 8_730 }).then_some(184.0)
        };
        assert_eq!(met(slow), without("capacity-87"));
        let fuller = |history: &History| {
            matches!(history, History::TrimmedRandom { level: 8_350, .. }).then_some(28.0)
        };
        assert_eq!(met(fuller), without("capacity-random"));
        let idle = |history: &History| matches!(history, History::WithPauses { .. }).then_some(10.0);
        assert_eq!(met(idle), without("capacity-untrimmed"));
        let straight = |history: &History| match *history {
            History::Overwritten { device: PAGE, remainder: 0, level, trimmed: true } => {
                Some(130.0 - f64::from(level))
            }
            _ => None,
        };
        assert!(met(straight).contains(&"capacity-knee".to_owned()), "the share that is lost still grows");
        let flat = |history: &History| {
            matches!(history, History::Overwritten { device: PAGE, trimmed: true, .. }).then_some(50.0)
        };
        assert_eq!(met(flat), ALL[..4]);
        assert!(evaluate(&Measured::default(), 1, 1).claims.iter().all(|claim| !claim.met));
    }

    #[test]
    fn no_history_is_made_twice() {
        let all = histories();
        for (i, history) in all.iter().enumerate() {
            assert!(!all[..i].contains(history), "{history:?} twice");
        }
    }

    #[test]
    fn the_least_free_space_is_what_all_emptier_drives_keep_up() {
        let speed = |level: u32| if level > 70 { 50.0 } else { 100.0 };
        let runs = LEVELS.map(|level| {
            let history = History::Overwritten { device: PAGE, remainder: 0, level, trimmed: true };
            (history, vec![vec![speed(level)]])
        });
        let measured = Measured::new(runs);
        assert_eq!(least_free(&measured, PAGE, 90.0), Some(30));
        assert_eq!(least_free(&measured, PAGE, 50.0), Some(0));
        assert_eq!(least_free(&measured, STATIC, 50.0), None);
    }
}
