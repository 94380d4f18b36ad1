//! The judgement, from what the device did.

use std::fmt;

use serde::Serialize;

use super::{Integrity, Speed, Speeds};

/// Slower than this share of its clean speed, a device has something to restore.
const SLOWED: f64 = 0.9;
/// At this share of its clean speed it is restored.
const RESTORED: f64 = 0.9;
/// Less than this share of what was lost, and nothing has come back.
const NOTHING_BACK: f64 = 0.1;
/// A TRIM that reaches less of its range, in percent, reaches nothing of it: some reads are quick by chance.
const REACHES_NOTHING: f64 = 5.0;
/// A TRIM that reaches so much of its range reaches all of it.
const REACHES_ALL: f64 = 95.0;
/// Below this share of the speed before TRIM, TRIM has made it worse.
const WORSE: f64 = 0.8;

/// What the device did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Evidence {
    /// Whether the device takes TRIM at all.
    pub takes_trim: bool,
    /// Whether it promises that trimmed units read as zeros.
    pub promises_zeros: bool,
    /// Whether `clean` was made by an erase, and not by the TRIM that is judged.
    pub is_clean_by_erase: bool,
    /// Whose data TRIM took.
    pub integrity: Integrity,
    /// The share of what was trimmed that is read as quickly as what never held data; `None` where the two kinds of
    /// reads cannot be told apart.
    pub reached_percent: Option<f64>,
    /// What TRIM gave back.
    pub speeds: Speeds,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// TRIM brings the clean speed back.
    RestoresFully,
    /// TRIM brings some of it back.
    RestoresInPart,
    /// TRIM changes nothing.
    Ignored,
    /// TRIM takes data that it must not take, breaks a promise that others rely on, or makes the device slower.
    Harmful,
    /// The device takes no TRIM.
    Unsupported,
    /// The torture did not slow the device down, and nothing else tells.
    Undetermined,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// TRIM is acknowledged and nothing is done.
    IgnoresTrim,
    /// TRIM reaches only a part of its range.
    TrimsInPart,
    /// TRIM reaches its range, as far as can be seen, and speed does not all come back.
    StaysSlow,
    /// TRIM frees what it was not told to free.
    WrongRange,
    /// A TRIM frees what was written after it.
    LateTrim,
    /// Zeros are promised after TRIM, and old data come.
    BreaksZerosPromise,
    /// TRIM makes the device slower.
    Slows,
}

/// What follows from the evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// The answer.
    pub verdict: Verdict,
    /// What is wrong; the worst first.
    pub faults: Vec<Fault>,
    /// What the answer rests on, for people.
    pub reasons: Vec<String>,
}

impl Verdict {
    /// In words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::RestoresFully => "restores fully",
            Self::RestoresInPart => "restores in part",
            Self::Ignored => "ignored",
            Self::Harmful => "harmful",
            Self::Unsupported => "not supported",
            Self::Undetermined => "undetermined",
        }
    }
}

impl Fault {
    /// In words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::IgnoresTrim => "TRIM is ignored",
            Self::TrimsInPart => "TRIM reaches only a part of its range",
            Self::StaysSlow => "TRIM does not bring all speed back",
            Self::WrongRange => "TRIM frees what it was not told to free",
            Self::LateTrim => "a TRIM frees what was written after it",
            Self::BreaksZerosPromise => "zeros are promised after TRIM, and old data come",
            Self::Slows => "TRIM makes the device slower",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// How one measure went through the torture.
struct Course {
    what: &'static str,
    clean: f64,
    tortured: f64,
    trimmed: f64,
    again: f64,
}

impl Course {
    fn of(what: &'static str, speeds: &Speeds, figure: impl Fn(&Speed) -> f64) -> Self {
        let [clean, tortured, trimmed, again] =
            speeds.stages().map(|(_, speed)| speed.as_ref().map_or(0.0, &figure));
        Self { what, clean, tortured, trimmed, again }
    }

    fn is_slowed(&self) -> bool {
        self.tortured < SLOWED * self.clean
    }

    fn is_restored(&self) -> bool {
        self.trimmed >= RESTORED * self.clean
    }

    /// What came back of what was lost.
    fn share_back(&self) -> f64 {
        (self.trimmed - self.tortured) / (self.clean - self.tortured)
    }

    fn is_worse(&self) -> bool {
        self.trimmed < WORSE * self.tortured
    }

    fn sentence(&self) -> String {
        let Self { what, clean, tortured, trimmed, again } = self;
        let second = if (again - trimmed).abs() <= 0.1 * trimmed {
            "a second TRIM changes nothing".to_owned()
        } else {
            format!("a second TRIM: {again:.0} MB/s")
        };
        format!("{what}: {clean:.0} MB/s clean, {tortured:.0} tortured, {trimmed:.0} after TRIM; {second}")
    }
}

/// Judges.
pub fn judge(evidence: &Evidence) -> Judgement {
    if !evidence.takes_trim {
        let reasons = vec!["the device says that it takes no TRIM".to_owned()];
        return Judgement { verdict: Verdict::Unsupported, faults: Vec::new(), reasons };
    }
    let Evidence { integrity, speeds, .. } = evidence;
    let courses = [
        Course::of("sequential reads", speeds, |s| s.read_mb_per_s),
        Course::of("random writes", speeds, |s| s.write_mb_per_s),
    ];
    let mut reasons: Vec<String> = courses.iter().map(Course::sentence).collect();
    if !evidence.is_clean_by_erase {
        reasons.push("\"clean\" was made by a TRIM, since the device is not erased here".to_owned());
    }
    let mut faults = Vec::new();
    if integrity.kept_lost_units > 0 {
        faults.push(Fault::WrongRange);
        let Integrity { kept_units, kept_lost_units, .. } = integrity;
        reasons.push(format!("{kept_lost_units} of {kept_units} units that were never trimmed are lost"));
    }
    if integrity.rewritten_lost_units > 0 {
        // A TRIM that hits a neighbour hits what was written again there, too: that is no fault of its own.
        if integrity.kept_lost_units == 0 {
            faults.push(Fault::LateTrim);
        }
        let Integrity { rewritten_units, rewritten_lost_units, .. } = integrity;
        reasons.push(format!(
            "{rewritten_lost_units} of {rewritten_units} units written after their TRIM are lost"
        ));
    }
    if courses.iter().any(Course::is_worse) {
        faults.push(Fault::Slows);
    }
    let slowed: Vec<&Course> = courses.iter().filter(|course| course.is_slowed()).collect();
    let (mut answer, effect) = effect_of(evidence, &slowed);
    faults.extend(effect);
    if let Some(percent) = evidence.reached_percent {
        reasons
            .push(format!("{percent:.0} % of what was trimmed is read as quickly as what never held data"));
    }
    reasons.push(zeros_sentence(evidence));
    // Old data where zeros were promised; where TRIM did not get there at all, that is said already.
    if evidence.promises_zeros && integrity.trimmed_old_units > 0 {
        match effect {
            Some(Fault::IgnoresTrim | Fault::TrimsInPart) => {}
            // What was freed in their place is known, too.
            _ if faults.contains(&Fault::WrongRange) => {}
            // Some of it reads as zeros: TRIM reached that, and not the rest.
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
    if slowed.is_empty() {
        reasons
            .push("the torture did not slow the device down, so that TRIM had nothing to restore".to_owned());
    }
    Judgement { verdict, faults, reasons }
}

/// What TRIM has done, by how far it reaches and by the measures that the torture slowed down, of which the worst counts.
fn effect_of(evidence: &Evidence, slowed: &[&Course]) -> (Option<Verdict>, Option<Fault>) {
    let reached = evidence.reached_percent;
    let nothing_back = !slowed.is_empty() && slowed.iter().all(|course| course.share_back() < NOTHING_BACK);
    match reached {
        Some(percent) if percent < REACHES_NOTHING => (Some(Verdict::Ignored), Some(Fault::IgnoresTrim)),
        Some(percent) if percent < REACHES_ALL => (Some(Verdict::RestoresInPart), Some(Fault::TrimsInPart)),
        None if nothing_back => (Some(Verdict::Ignored), Some(Fault::IgnoresTrim)),
        _ if slowed.is_empty() => (reached.map(|_| Verdict::RestoresFully), None),
        _ if slowed.iter().all(|course| course.is_restored()) => (Some(Verdict::RestoresFully), None),
        _ => (Some(Verdict::RestoresInPart), Some(Fault::StaysSlow)),
    }
}

fn zeros_sentence(evidence: &Evidence) -> String {
    let Integrity { trimmed_units, trimmed_zero_units, trimmed_old_units, .. } = evidence.integrity;
    let meaning = match evidence.promises_zeros {
        true => "the device promises zeros",
        false => "the device promises nothing, so that this proves nothing",
    };
    format!(
        "of {trimmed_units} trimmed units {trimmed_zero_units} read as zeros and {trimmed_old_units} as before; {meaning}"
    )
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn without_a_slowdown_there_is_nothing_to_see() {
        let mut quick = evidence(speed(400.0, 100.0));
        quick.speeds.tortured = quick.speeds.clean;
        assert_eq!(said(&quick), (Verdict::Undetermined, vec![]));
    }
}
