//! Policies in a process of their own: JSON lines over its standard input and output.
//!
//! The host asks, a line at a time, and the policy answers each line with one. The first is a [`Hello`], answered by
//! [`Traits`]; each further one an [`Asked`], answered by a list of [`Decided`]. docs/tournament.md is the protocol for
//! people. A policy in Rust needs only [`serve`].

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use super::{Availability, Decision, DiscardGeneration, Governor, LinuxVersion, PolicyEvent, Shape, View};
use crate::units::{Lpn, SimTime, UnitRange};

/// The number of this protocol: it changes when a policy that knew it would no longer understand a line.
pub const PROTOCOL: u32 = 1;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    pub trimwise: String,
    /// The first Linux that carries out `discard` as the host does.
    pub linux: String,
}

impl Hello {
    /// The greeting of a host with this kernel.
    pub fn of(kernel: DiscardGeneration) -> Self {
        Self { protocol: PROTOCOL, trimwise: crate::VERSION.to_owned(), linux: kernel.since().to_owned() }
    }
}

/// The policy's answer to [`Hello`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traits {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// [`Governor::availability`].
    #[serde(default)]
    pub availability: Availability,
    /// [`Governor::merges`].
    #[serde(default = "yes")]
    pub merges: bool,
    /// [`Governor::takes_oldest_first`].
    #[serde(default)]
    pub takes_oldest_first: bool,
}

fn yes() -> bool {
    true
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    pub event: PolicyEvent,
    pub view: View,
}

impl Asked {
    pub fn of(event: &PolicyEvent, view: &View) -> Self {
        Self { event: *event, view: *view }
    }
}

/// A [`Decision`] as it is written, which may make no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Decided {
    DropFreed {},
    CatchUp {},
    IssueInCommit {
        #[serde(default)]
        together: bool,
    },
    Issue {
        #[serde(default = "one")]
        ranges_max: u32,
        #[serde(default = "one")]
        units_min: u64,
        /// `None`: any number.
        #[serde(default)]
        units_max: Option<u64>,
        #[serde(default)]
        runs_on: bool,
    },
    TrimFree {
        #[serde(default)]
        start_unit: u64,
        /// `None`: to the end.
        #[serde(default)]
        units: Option<u64>,
        #[serde(default = "one")]
        units_min: u64,
    },
    /// A policy in a process of its own cannot say it.
    #[serde(skip_deserializing)]
    Reveal {},
    WakeAt {
        at_ns: u64,
    },
}

fn one<T: From<u8>>() -> T {
    1.into()
}

impl From<Decision> for Decided {
    fn from(decision: Decision) -> Self {
        let bounded = |units: u64| (units != u64::MAX).then_some(units);
        match decision {
            Decision::DropFreed => Self::DropFreed {},
            Decision::CatchUp => Self::CatchUp {},
            Decision::IssueInCommit { together } => Self::IssueInCommit { together },
            Decision::Issue(Shape { ranges_max, units_min, units_max, runs_on }) => {
                Self::Issue { ranges_max, units_min, units_max: bounded(units_max), runs_on }
            }
            Decision::TrimFree { range, units_min } => {
                Self::TrimFree { start_unit: range.start.0, units: bounded(range.units), units_min }
            }
            Decision::Reveal => Self::Reveal {},
            Decision::WakeAt(at) => Self::WakeAt { at_ns: at.0 },
        }
    }
}

impl Decided {
    /// Returns what the host carries out.
    ///
    /// # Errors
    /// What makes no sense in answer to `event` at the instant `now`.
    pub fn checked(self, event: &PolicyEvent, now: SimTime) -> Result<Decision, String> {
        let is_commit = matches!(event, PolicyEvent::Committed { .. });
        Ok(match self {
            Self::DropFreed {} | Self::IssueInCommit { .. } if !is_commit => {
                return Err("expected only in answer to a commit".to_owned());
            }
            Self::DropFreed {} => Decision::DropFreed,
            Self::CatchUp {} => Decision::CatchUp,
            Self::IssueInCommit { together } => Decision::IssueInCommit { together },
            Self::Issue { ranges_max: 0, .. } => return Err("expected ranges_max from 1".to_owned()),
            Self::Issue { units_min, units_max, .. }
                if units_max.is_some_and(|most| most < units_min.max(1)) =>
            {
                return Err("expected units_max from 1, and not below units_min".to_owned());
            }
            Self::Issue { ranges_max, units_min, units_max, runs_on } => {
                let units_max = units_max.unwrap_or(u64::MAX);
                Decision::Issue(Shape { ranges_max, units_min, units_max, runs_on })
            }
            Self::TrimFree { start_unit, units, units_min } => {
                let most = u64::MAX - start_unit;
                let range = UnitRange { start: Lpn(start_unit), units: units.unwrap_or(most).min(most) };
                Decision::TrimFree { range, units_min }
            }
            Self::Reveal {} => Decision::Reveal,
            Self::WakeAt { at_ns } if at_ns <= now.0 => {
                return Err(format!("expected a time after the present, {} ns", now.0));
            }
            Self::WakeAt { at_ns } => Decision::WakeAt(SimTime(at_ns)),
        })
    }
}

/// Lets a host in another process use a governor, until that host ends. The whole program of a policy for
/// `trimwise tournament` is the governor and
///
/// ```no_run
/// # use trimwise::policy::{Decision, Governor, PolicyEvent, View};
/// # struct Heap;
/// # impl Governor for Heap { fn on_event(&mut self, _: &PolicyEvent, _: &View, _: &mut Vec<Decision>) {} }
/// fn main() -> std::io::Result<()> {
///     trimwise::policy::serve(&mut Heap, std::io::stdin().lock(), std::io::stdout().lock())
/// }
/// ```
///
/// # Errors
/// A line that is not of this protocol, and what reading and writing fail with.
pub fn serve(governor: &mut dyn Governor, mut input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let wrong = |error: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
    let mut line = String::new();
    let mut next = |line: &mut String| -> io::Result<bool> {
        line.clear();
        Ok(input.read_line(line)? > 0)
    };
    if !next(&mut line)? {
        return Ok(());
    }
    let hello: Hello = serde_json::from_str(&line)?;
    let linux: LinuxVersion = hello.linux.parse().map_err(|error| wrong(&error))?;
    let kernel = linux.discard();
    let traits = Traits {
        protocol: PROTOCOL,
        availability: governor.availability(kernel),
        merges: governor.merges(),
        takes_oldest_first: governor.takes_oldest_first(),
    };
    let mut answer = serde_json::to_vec(&traits)?;
    let mut decisions = Vec::new();
    loop {
        answer.push(b'\n');
        output.write_all(&answer)?;
        output.flush()?;
        if !next(&mut line)? {
            return Ok(());
        }
        let Asked { mut event, view } = serde_json::from_str(&line)?;
        if let PolicyEvent::Hosted(host) = &mut event {
            host.kernel = kernel;
        }
        decisions.clear();
        governor.on_event(&event, &view, &mut decisions);
        answer.clear();
        let decided: Vec<Decided> = decisions.iter().map(|&decision| decision.into()).collect();
        serde_json::to_writer(&mut answer, &decided)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Acknowledged, HostTraits, PolicySpec, Served};
    use crate::units::{Bytes, SimDuration};

    fn line(value: &impl Serialize) -> String {
        serde_json::to_string(value).unwrap() + "\n"
    }

    #[test]
    fn every_governor_decides_the_same_behind_the_protocol() {
        let kernel = LinuxVersion::TODAY.discard();
        let host = HostTraits {
            kernel,
            trim_depth: 1,
            ranges_max: 64,
            range_units_max: 8191,
            total_units: 1 << 20,
            group_units: 1 << 15,
        };
        let issued = Acknowledged { ranges: 1, units: 3, took: SimDuration::from_micros(300) };
        // Quiet that follows requests, with space that has waited: what any policy trims in.
        let view = |seconds: u64| View {
            now: SimTime(seconds * 1_000_000_000),
            used_units: 900_000,
            total_units: 1 << 20,
            freed_units: 12,
            pending_units: 9,
            pending_extents: 3,
            untrimmed_units: 4,
            in_flight: 0,
            requests: 0,
            quiet: SimDuration::from_secs(seconds),
            requests_done: 1000 + seconds,
            oldest: Some(SimTime(5)),
            served: Served {
                requests: 1000 * seconds,
                bytes: Bytes::mib(4 * seconds),
                time: SimDuration::from_millis(70 * seconds),
                busy: SimDuration::from_millis(60 * seconds),
            },
        };
        assert_eq!(serde_json::from_str::<View>(&line(&view(7))).unwrap(), view(7), "the line has all of it");
        assert_eq!(
            line(&Asked::of(&PolicyEvent::Issued(issued), &view(7))).trim_end(),
            r#"{"event":{"type":"issued","ranges":1,"units":3,"took_ns":300000},"view":{"now_ns":7000000000,"#
                .to_owned()
                + r#""used_units":900000,"total_units":1048576,"freed_units":12,"pending_units":9,"#
                + r#""pending_extents":3,"untrimmed_units":4,"in_flight":0,"requests":0,"quiet_ns":7000000000,"#
                + r#""requests_done":1007,"oldest_ns":5,"served_requests":7000,"served_bytes":29360128,"#
                + r#""served_time_ns":490000000,"served_busy_ns":420000000}}"#
        );
        assert_eq!(
            serde_json::to_string(&PolicyEvent::Hosted(host)).unwrap(),
            r#"{"type":"hosted","trim_depth":1,"ranges_max":64,"range_units_max":8191,"total_units":1048576,"#
                .to_owned() + r#""group_units":32768}"#
        );
        let events = [
            PolicyEvent::Hosted(host),
            PolicyEvent::Committed { freed_units: 9 },
            PolicyEvent::Woken,
            PolicyEvent::Issued(issued),
            PolicyEvent::PassOver,
            PolicyEvent::Trimmed { units: 3 },
            PolicyEvent::Woken,
        ];
        let mut said = String::new();
        for spec in PolicySpec::examples() {
            let mut governor = spec.governor();
            let mut expected = vec![line(&Traits {
                protocol: PROTOCOL,
                availability: governor.availability(kernel),
                merges: governor.merges(),
                takes_oldest_first: governor.takes_oldest_first(),
            })];
            let mut asked = line(&Hello::of(kernel));
            for (event, view) in events.iter().zip((0..).step_by(40).map(view)) {
                let mut decisions = Vec::new();
                governor.on_event(event, &view, &mut decisions);
                let decided: Vec<Decided> = decisions.iter().map(|&decision| decision.into()).collect();
                let checked = |(decided, decision): (&Decided, &Decision)| {
                    // No host sends these events so, and a timer may have passed.
                    assert_eq!(decided.checked(event, SimTime::ZERO).as_ref(), Ok(decision), "{spec}");
                };
                decided.iter().zip(&decisions).for_each(checked);
                expected.push(line(&decided));
                asked += &line(&Asked::of(event, &view));
            }
            let mut answered = Vec::new();
            serve(&mut *spec.governor(), asked.as_bytes(), &mut answered).unwrap();
            assert_eq!(String::from_utf8(answered).unwrap(), expected.concat(), "{spec}");
            said += &expected.concat();
        }
        for kind in ["issue", "trim_free", "wake_at", "drop_freed", "\"takes_oldest_first\":true"] {
            assert!(said.contains(kind), "no policy says {kind}");
        }
    }

    #[test]
    fn decisions_without_sense_are_refused_and_unknown_words_too() {
        let commit = PolicyEvent::Committed { freed_units: 1 };
        let now = SimTime(5);
        for (text, event, words) in [
            (r#"{"type":"drop_freed"}"#, PolicyEvent::Woken, "answer to a commit"),
            (r#"{"type":"issue","ranges_max":0}"#, commit, "ranges_max from 1"),
            (r#"{"type":"issue","units_min":5,"units_max":4}"#, commit, "not below units_min"),
            (r#"{"type":"wake_at","at_ns":5}"#, commit, "after the present, 5 ns"),
        ] {
            let decided: Decided = serde_json::from_str(text).unwrap();
            let refused = decided.checked(&event, now).unwrap_err();
            assert!(refused.contains(words), "{text}: {refused}");
        }
        for text in [r#"{"type":"issue","units":4}"#, r#"{"type":"trim"}"#, r#"{"type":"wake_at"}"#, "7"] {
            assert!(serde_json::from_str::<Decided>(text).is_err(), "{text}");
        }
        let issue: Decided = serde_json::from_str(r#"{"type":"issue"}"#).unwrap();
        assert_eq!(issue.checked(&commit, now), Ok(Decision::Issue(Shape::NEXT)));
    }
}
