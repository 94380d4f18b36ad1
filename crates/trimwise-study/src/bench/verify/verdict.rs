use std::fmt;
use std::mem;

use serde::Serialize;
use trimwise::numbers::grouped;
use trimwise_linux::code::Code;

use super::course::{Course, all};
use super::{Evidence, Integrity};

/// A TRIM that reaches less of its range than this, in percent, counts as reaching nothing: some reads are quick by
/// chance.
const REACHES_NOTHING: f64 = 5.0;
/// A TRIM that reaches this much of its range, in percent, counts as reaching all of it.
const REACHES_ALL: f64 = 95.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    RestoresFully,
    RestoresInPart,
    Ignored,
    /// TRIM destroys data that it must not destroy, breaks a promise that others rely on, or makes the device slower.
    Harmful,
    Unsupported,
    /// The torture did not slow the device down, or noise hides the effect of TRIM, and there is no other evidence.
    Undetermined,
}

impl Verdict {
    /// Returns the code of what is wrong or unknown.
    pub const fn code(self) -> Option<Code> {
        match self {
            Self::RestoresFully => None,
            Self::RestoresInPart => Some(Code::VerifyRestoresInPart),
            Self::Ignored => Some(Code::VerifyIgnored),
            Self::Harmful => Some(Code::VerifyHarmful),
            Self::Unsupported => Some(Code::VerifyUnsupported),
            Self::Undetermined => Some(Code::VerifyUndetermined),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    IgnoresTrim,
    TrimsInPart,
    /// TRIM reaches its range, as far as can be seen, but not all of the speed comes back.
    StaysSlow,
    /// TRIM frees units outside its range.
    WrongRange,
    /// TRIM frees data written after it.
    LateTrim,
    /// Zeros are promised after TRIM, but reads return old data.
    BreaksZerosPromise,
    Slows,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judgement {
    pub verdict: Verdict,
    /// Worst first.
    pub faults: Vec<Fault>,
    pub reasons: Vec<String>,
}

impl Verdict {
    pub const fn text(self) -> &'static str {
        match self {
            Self::RestoresFully => "restores fully",
            Self::RestoresInPart => "restores in part",
            Self::Ignored => "ignored",
            Self::Harmful => "harmful",
            Self::Unsupported => "not supported",
            Self::Undetermined => "cannot tell",
        }
    }
}

impl Fault {
    pub const fn text(self) -> &'static str {
        match self {
            Self::IgnoresTrim => "TRIM is ignored",
            Self::TrimsInPart => "TRIM reaches only a part of its range",
            Self::StaysSlow => "TRIM does not restore full speed",
            Self::WrongRange => "TRIM frees what it was not told to free",
            Self::LateTrim => "a TRIM frees what was written after it",
            Self::BreaksZerosPromise => "zeros are promised after TRIM, but reads return old data",
            Self::Slows => "TRIM makes the device slower",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Returns whether more measurements could lead to an answer.
pub(super) fn is_in_doubt(evidence: &Evidence) -> bool {
    judge_with_doubt(evidence).1
}

pub fn judge(evidence: &Evidence) -> Judgement {
    judge_with_doubt(evidence).0
}

fn judge_with_doubt(evidence: &Evidence) -> (Judgement, bool) {
    if !evidence.takes_trim {
        let reasons = vec!["the device says that it does not support TRIM".to_owned()];
        return (Judgement { verdict: Verdict::Unsupported, faults: Vec::new(), reasons }, false);
    }
    let Evidence { integrity, .. } = evidence;
    let reads =
        Course::of("sequential reads", evidence, |s| s.read_mb_per_s, |measured| &measured.reads_mb_per_s);
    let writes =
        Course::of("random writes", evidence, |s| s.write_mb_per_s, |measured| &measured.writes_mb_per_s);
    let courses: Vec<&Course> = reads.iter().chain(&writes).collect();
    let mut reasons: Vec<String> = courses.iter().map(|course| course.sentence()).collect();
    if !evidence.is_clean_by_erase {
        reasons.push("\"clean\" was made by a TRIM, since the device is not erased here".to_owned());
    }
    let mut faults = Vec::new();
    if integrity.kept_lost_units > 0 {
        faults.push(Fault::WrongRange);
        let Integrity { kept_units, kept_lost_units, .. } = *integrity;
        let (lost, of) = (grouped(kept_lost_units), grouped(kept_units));
        reasons.push(format!("{lost} of {of} units that were never trimmed are lost"));
    }
    if integrity.rewritten_lost_units > 0 {
        // A TRIM that hits a neighbour also hits what was rewritten there; that is not a separate fault.
        if integrity.kept_lost_units == 0 {
            faults.push(Fault::LateTrim);
        }
        let Integrity { rewritten_units, rewritten_lost_units, .. } = *integrity;
        let (lost, of) = (grouped(rewritten_lost_units), grouped(rewritten_units));
        reasons.push(format!("{lost} of {of} units written after their TRIM are lost"));
    }
    // Reads of a hole reach no drive, so they prove nothing about it.
    let judged: Vec<&Course> = if evidence.leaves_holes { writes.iter().collect() } else { courses };
    let worse: Vec<Option<bool>> = judged.iter().map(|course| course.is_worse()).collect();
    if evidence.leaves_holes {
        reasons.push(
            "TRIM leaves holes in the file: reads of those reach no drive, and writes there wait for the file system \
             to allocate blocks, which is not the drive's doing"
                .to_owned(),
        );
    } else if worse.contains(&Some(true)) {
        faults.push(Fault::Slows);
    }
    let slowed: Vec<&Course> =
        judged.iter().filter(|course| course.is_slowed() == Some(true)).copied().collect();
    let reached = if evidence.leaves_holes { Reached::Untold } else { Reached::of(evidence) };
    let (mut answer, effect) = effect_of(&reached, &slowed, evidence.leaves_holes);
    faults.extend(effect);
    if let Some(percent) = evidence.reached_percent.filter(|_| !evidence.leaves_holes) {
        reasons.push(format!(
            "{percent:.0} % of the trimmed units are read as quickly as units that never held data"
        ));
    }
    reasons.push(zeros_sentence(evidence));
    // Reads returned old data where zeros were promised. If TRIM did not get there at all, another fault already says
    // so.
    if evidence.promises_zeros && integrity.trimmed_old_units > 0 {
        match effect {
            Some(Fault::IgnoresTrim | Fault::TrimsInPart) => {}
            // Another fault already says which units were freed instead.
            _ if faults.contains(&Fault::WrongRange) => {}
            // Some of the range reads as zeros, so TRIM reached only that part.
            _ if integrity.trimmed_old_units < integrity.trimmed_units => {
                faults.push(Fault::TrimsInPart);
                answer = Some(Verdict::RestoresInPart);
            }
            _ => faults.push(Fault::BreaksZerosPromise),
        }
    }
    let harms = [Fault::WrongRange, Fault::LateTrim, Fault::Slows, Fault::BreaksZerosPromise]
        .iter()
        .any(|f| faults.contains(f));
    let verdict = match answer {
        _ if harms => Verdict::Harmful,
        Some(verdict) => verdict,
        None => Verdict::Undetermined,
    };
    // Lost data are lost, whatever the noise.
    let is_open = verdict == Verdict::Undetermined || faults.iter().all(|fault| *fault == Fault::Slows);
    let is_noisy = judged.iter().any(|course| course.is_slowed().is_none())
        || slowed.iter().any(|course| course.is_restored().is_none())
        || !evidence.leaves_holes && worse.contains(&None)
        || matches!(reached, Reached::InDoubt);
    if slowed.is_empty() && judged.iter().all(|course| course.is_slowed() == Some(false)) {
        reasons.push("the torture did not slow the device down, so TRIM had nothing to restore".to_owned());
    } else if evidence.leaves_holes && slowed.iter().any(|course| course.is_restored() == Some(false)) {
        reasons.push("the speed that does not come back may be lost to the file system".to_owned());
    } else if verdict == Verdict::Undetermined {
        reasons.push(format!(
            "measurements of the same state differ too much to tell, even after {} rounds",
            evidence.rounds.max(1)
        ));
    }
    (Judgement { verdict, faults, reasons }, is_open && is_noisy && verdict != Verdict::Harmful)
}

/// Reach of TRIM, judged by the time of reads.
enum Reached {
    Nothing,
    Part,
    All,
    InDoubt,
    Untold,
}

impl Reached {
    fn of(evidence: &Evidence) -> Self {
        let class = |percent: f64| match percent {
            percent if percent < REACHES_NOTHING => Self::Nothing,
            percent if percent < REACHES_ALL => Self::Part,
            _ => Self::All,
        };
        // A model's first TRIM is not subject to chance.
        let is_noisy = evidence.measured[0].reads_mb_per_s.len() > 1;
        let second = evidence.reached_again_percent.filter(|_| is_noisy);
        match (evidence.reached_percent.map(class), second.map(class)) {
            (None, _) => Self::Untold,
            (Some(first), Some(second)) if mem::discriminant(&first) != mem::discriminant(&second) => {
                Self::InDoubt
            }
            (Some(first), _) => first,
        }
    }
}

/// Judges the effect of TRIM by its reach and by the measures that the torture slowed down; the worst counts.
fn effect_of(reached: &Reached, slowed: &[&Course], leaves_holes: bool) -> (Option<Verdict>, Option<Fault>) {
    let is_untold = matches!(reached, Reached::Untold | Reached::InDoubt);
    match reached {
        Reached::Nothing => return (Some(Verdict::Ignored), Some(Fault::IgnoresTrim)),
        Reached::Part => return (Some(Verdict::RestoresInPart), Some(Fault::TrimsInPart)),
        _ => {}
    }
    if slowed.is_empty() {
        return ((!is_untold).then_some(Verdict::RestoresFully), None);
    }
    if is_untold && all(slowed, Course::is_nothing_back) == Some(true) {
        return (Some(Verdict::Ignored), Some(Fault::IgnoresTrim));
    }
    if slowed.iter().any(|course| course.is_restored() == Some(false)) {
        // In a file, the missing speed may be lost to the file system.
        if leaves_holes {
            return (None, None);
        }
        return (Some(Verdict::RestoresInPart), Some(Fault::StaysSlow));
    }
    (all(slowed, Course::is_restored).map(|_| Verdict::RestoresFully), None)
}

fn zeros_sentence(evidence: &Evidence) -> String {
    let Integrity { trimmed_units, trimmed_zero_units, trimmed_old_units, .. } = evidence.integrity;
    let [units, zeros, old] = [trimmed_units, trimmed_zero_units, trimmed_old_units].map(grouped);
    let meaning = match evidence.promises_zeros {
        true => "the device promises zeros",
        false => "the device promises nothing, so this proves nothing",
    };
    format!("of {units} trimmed units {zeros} read as zeros and {old} as before; {meaning}")
}

#[cfg(test)]
mod tests {
    use super::super::{Measured, Speed, Speeds};
    use super::*;

    fn speed(read: f64, write: f64) -> Option<Speed> {
        Some(Speed { read_mb_per_s: read, write_mb_per_s: write })
    }

    /// A device that was slowed down from 100 to 20 MB/s, and then came back to `trimmed`.
    fn evidence(trimmed: Option<Speed>) -> Evidence {
        let speeds = Speeds {
            clean: speed(400.0, 100.0),
            tortured: speed(400.0, 20.0),
            trimmed,
            trimmed_again: trimmed,
        };
        Evidence { takes_trim: true, is_clean_by_erase: true, speeds, ..Evidence::default() }
    }

    fn said(evidence: &Evidence) -> (Verdict, Vec<Fault>) {
        let judgement = judge(evidence);
        assert!(!judgement.reasons.is_empty());
        (judgement.verdict, judgement.faults)
    }

    #[test]
    fn each_verdict_on_a_drive_has_its_code() {
        for (verdict, code) in [
            (Verdict::RestoresFully, None),
            (Verdict::RestoresInPart, Some("verify.trim.restores-in-part")),
            (Verdict::Ignored, Some("verify.trim.ignored")),
            (Verdict::Harmful, Some("verify.trim.harmful")),
            (Verdict::Unsupported, Some("verify.trim.unsupported")),
            (Verdict::Undetermined, Some("verify.trim.undetermined")),
        ] {
            assert_eq!(verdict.code().map(Code::as_str), code, "{verdict:?}");
        }
    }

    #[test]
    fn speed_alone_tells_full_part_and_nothing() {
        assert_eq!(said(&evidence(speed(400.0, 95.0))), (Verdict::RestoresFully, vec![]));
        assert_eq!(said(&evidence(speed(400.0, 60.0))), (Verdict::RestoresInPart, vec![Fault::StaysSlow]));
        assert_eq!(said(&evidence(speed(400.0, 24.0))), (Verdict::Ignored, vec![Fault::IgnoresTrim]));
        assert_eq!(said(&evidence(speed(400.0, 12.0))).0, Verdict::Harmful);
        assert_eq!(said(&Evidence::default()), (Verdict::Unsupported, vec![]));
    }

    #[test]
    fn one_measure_that_stays_behind_is_enough() {
        let mut both = evidence(speed(250.0, 100.0));
        both.speeds.tortured = speed(180.0, 20.0);
        assert_eq!(said(&both), (Verdict::RestoresInPart, vec![Fault::StaysSlow]));
    }

    #[test]
    fn how_far_trim_reaches_tells_where_speed_does_not() {
        let reaching = |percent, trimmed| Evidence { reached_percent: Some(percent), ..evidence(trimmed) };
        let restored = speed(400.0, 100.0);
        assert_eq!(said(&reaching(100.0, restored)), (Verdict::RestoresFully, vec![]));
        assert_eq!(said(&reaching(60.0, restored)), (Verdict::RestoresInPart, vec![Fault::TrimsInPart]));
        assert_eq!(said(&reaching(1.0, speed(400.0, 30.0))), (Verdict::Ignored, vec![Fault::IgnoresTrim]));
        assert_eq!(
            said(&reaching(100.0, speed(400.0, 30.0))),
            (Verdict::RestoresInPart, vec![Fault::StaysSlow]),
            "it was reached, and stays slow"
        );
    }

    #[test]
    fn regression_counts_of_units_have_their_thousands_apart() {
        let mut found = evidence(speed(400.0, 100.0));
        (found.integrity.trimmed_units, found.integrity.trimmed_zero_units) = (2048, 1024);
        let sentence = zeros_sentence(&found);
        assert!(
            sentence.starts_with("of 2,048 trimmed units 1,024 read as zeros and 0 as before"),
            "{sentence}"
        );
    }

    #[test]
    fn lost_data_outweigh_speed() {
        let mut lost = evidence(speed(400.0, 100.0));
        lost.integrity.kept_lost_units = 3;
        lost.integrity.rewritten_lost_units = 1;
        assert_eq!(said(&lost), (Verdict::Harmful, vec![Fault::WrongRange]));
        (lost.promises_zeros, lost.integrity.trimmed_units, lost.integrity.trimmed_old_units) = (true, 9, 9);
        assert_eq!(said(&lost), (Verdict::Harmful, vec![Fault::WrongRange]), "one cause explains both");
        (lost.integrity.kept_lost_units, lost.integrity.trimmed_old_units) = (0, 0);
        assert_eq!(said(&lost), (Verdict::Harmful, vec![Fault::LateTrim]));
    }

    #[test]
    fn old_data_count_only_against_a_promise() {
        let mut old = evidence(speed(400.0, 100.0));
        old.integrity.trimmed_units = 10;
        old.integrity.trimmed_old_units = 10;
        assert_eq!(said(&old), (Verdict::RestoresFully, vec![]));
        old.promises_zeros = true;
        assert_eq!(said(&old), (Verdict::Harmful, vec![Fault::BreaksZerosPromise]));
        old.integrity.trimmed_old_units = 4;
        assert_eq!(said(&old), (Verdict::RestoresInPart, vec![Fault::TrimsInPart]), "the others are zeros");
        old.speeds.trimmed = speed(400.0, 20.0);
        assert_eq!(said(&old), (Verdict::Ignored, vec![Fault::IgnoresTrim]), "one cause explains both");
    }

    /// Five measurements of each stage, with `noise_percent` of noise.
    fn noisy(figures: [(f64, f64); 4], noise_percent: f64) -> Evidence {
        let around = |mean: f64, salt: usize| {
            let at = |i: usize| ((i * 7 + salt * 3) % 5) as f64 / 2.0 - 1.0;
            (0..5).map(|i| mean * (1.0 + at(i) * noise_percent / 100.0)).collect::<Vec<f64>>()
        };
        let mut evidence = Evidence { takes_trim: true, ..Evidence::default() };
        for (i, (read, write)) in figures.into_iter().enumerate() {
            evidence.measured[i] =
                Measured { reads_mb_per_s: around(read, i), writes_mb_per_s: around(write, i + 1) };
        }
        evidence
    }

    #[test]
    fn what_the_noise_hides_is_not_judged() {
        let full = [(400.0, 100.0), (400.0, 20.0), (400.0, 98.0), (400.0, 99.0)];
        assert_eq!(said(&noisy(full, 2.0)), (Verdict::RestoresFully, vec![]));
        assert!(!is_in_doubt(&noisy(full, 2.0)));
        let part = [(400.0, 100.0), (400.0, 20.0), (400.0, 60.0), (400.0, 61.0)];
        assert_eq!(said(&noisy(part, 10.0)), (Verdict::RestoresInPart, vec![Fault::StaysSlow]));
        // Here nine tenths are a matter of chance.
        let doubtful = [(400.0, 100.0), (400.0, 20.0), (400.0, 90.0), (400.0, 91.0)];
        assert_eq!(said(&noisy(doubtful, 10.0)).1, []);
        assert!(is_in_doubt(&noisy(doubtful, 10.0)));
        // The second TRIM of the same range shows the noise between two stages.
        let drifting = [(400.0, 100.0), (400.0, 90.0), (400.0, 60.0), (400.0, 100.0)];
        assert_eq!(said(&noisy(drifting, 2.0)), (Verdict::Undetermined, vec![]));
        let slows = [(400.0, 100.0), (400.0, 90.0), (400.0, 60.0), (400.0, 60.0)];
        assert_eq!(said(&noisy(slows, 2.0)), (Verdict::Harmful, vec![Fault::Slows]));
    }

    /// A healthy file system was called harmful because writes into punched holes wait for it.
    #[test]
    fn regression_a_drive_is_not_blamed_for_allocation_into_holes() {
        let figures = [(9000.0, 60.0), (2000.0, 100.0), (9000.0, 55.0), (9000.0, 56.0)];
        let on_device = noisy(figures, 2.0);
        assert_eq!(said(&on_device), (Verdict::Harmful, vec![Fault::Slows]));
        let in_file = Evidence { leaves_holes: true, ..on_device };
        assert_eq!(said(&in_file), (Verdict::Undetermined, vec![]));
        assert!(!is_in_doubt(&in_file), "another round would show the same");
        let figures = [(9000.0, 588.0), (1200.0, 300.0), (9000.0, 398.0), (9000.0, 404.0)];
        let stays_slow = Evidence { leaves_holes: true, ..noisy(figures, 2.0) };
        assert_eq!(said(&stays_slow), (Verdict::Undetermined, vec![]));
        let lost = Integrity { kept_units: 9, kept_lost_units: 1, ..Integrity::default() };
        let lost = Evidence { integrity: lost, ..in_file };
        assert_eq!(said(&lost), (Verdict::Harmful, vec![Fault::WrongRange]), "data that are lost are lost");
    }

    #[test]
    fn two_answers_of_how_far_trim_reaches_are_none() {
        let figures = [(400.0, 100.0), (400.0, 99.0), (400.0, 98.0), (400.0, 99.0)];
        let reaching = |first, second| Evidence {
            reached_percent: Some(first),
            reached_again_percent: Some(second),
            ..noisy(figures, 2.0)
        };
        assert_eq!(said(&reaching(93.0, 97.0)), (Verdict::Undetermined, vec![]));
        assert_eq!(said(&reaching(60.0, 62.0)), (Verdict::RestoresInPart, vec![Fault::TrimsInPart]));
        assert_eq!(said(&reaching(99.0, 98.0)), (Verdict::RestoresFully, vec![]));
    }

    #[test]
    fn without_a_slowdown_there_is_nothing_to_see() {
        let mut quick = evidence(speed(400.0, 100.0));
        quick.speeds.tortured = quick.speeds.clean;
        assert_eq!(said(&quick), (Verdict::Undetermined, vec![]));
    }
}
