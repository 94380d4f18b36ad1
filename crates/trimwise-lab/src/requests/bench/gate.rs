//! Conditions and a saved result for `bench`.

use std::borrow::Cow;
use std::path::Path;

use trimwise::compare::statistics::Sample;
use trimwise::failure::Failure;
use trimwise::units::Bytes;
use trimwise_study::gate::{
    Condition, Gate, Judged, Measured, Terms, Then, Unit, expect_alike, judged, read, version_note,
};

use super::{BenchReport, BenchRequest};
use crate::bench::{Measured as Transfer, Test};

/// A figure of a kind of transfer, whether its changes are shown, and how it is read.
type Figure = (&'static str, Unit, bool, fn(&Transfer) -> Option<f64>);

const SECONDS: f64 = 1e-9;

const FIGURES: [Figure; 9] = [
    ("throughput_mb_per_s", Unit::Number, true, |m| m.throughput_mb_per_s),
    ("throughput_min_mb_per_s", Unit::Number, false, |m| m.throughput_min_mb_per_s),
    ("throughput_max_mb_per_s", Unit::Number, false, |m| m.throughput_max_mb_per_s),
    ("iops", Unit::Number, false, |m| m.iops),
    ("elapsed", Unit::Seconds, false, |m| Some(m.elapsed_ns as f64 * SECONDS)),
    ("p50", Unit::Seconds, false, |m| Some(m.latency.as_ref()?.p50_ns as f64 * SECONDS)),
    ("p99", Unit::Seconds, false, |m| Some(m.latency.as_ref()?.p99_ns as f64 * SECONDS)),
    ("p99.9", Unit::Seconds, true, |m| Some(m.latency.as_ref()?.p999_ns as f64 * SECONDS)),
    ("max", Unit::Seconds, false, |m| Some(m.latency.as_ref()?.max_ns as f64 * SECONDS)),
];

const WRITE_AMPLIFICATION: &str = "write_amplification";

fn terms(subjects: Vec<String>) -> Terms {
    let figures = FIGURES.iter().map(|(name, unit, ..)| (Cow::from(*name), *unit));
    Terms {
        kind: "tests",
        subjects,
        figures: figures.chain([(WRITE_AMPLIFICATION.into(), Unit::Number)]).collect(),
        usual: Some(FIGURES[0].0),
    }
}

/// Returns the figures of tests. A test with several kinds of transfers has one subject for each: `mixed:70 read`.
fn measured(report: &BenchReport) -> Vec<Measured> {
    let results = &report.results;
    let mut all = Vec::new();
    for (at, test) in results.tests.iter().enumerate() {
        let earlier = results.tests[..at].iter().filter(|earlier| earlier.test == test.test).count();
        let place = if earlier == 0 { String::new() } else { format!("run {}", earlier + 1) };
        let mut add =
            |subject: String, (figure, unit, is_tracked): (&'static str, Unit, bool), value: Option<f64>| {
                // A model has no noise.
                let sample = value.and_then(|value| Sample::new(vec![value], results.device.is_model));
                let place = place.clone();
                all.extend(sample.map(|sample| Measured {
                    place,
                    subject,
                    figure: figure.into(),
                    unit,
                    sample,
                    is_tracked,
                }));
            };
        for transfer in &test.measured {
            let subject = match &test.measured[..] {
                [_] => test.test.clone(),
                _ => format!("{} {}", test.test, transfer.what),
            };
            for (name, unit, is_tracked, of) in FIGURES {
                add(subject.clone(), (name, unit, is_tracked), of(transfer));
            }
        }
        let amplification = test.device.as_ref().and_then(|device| device.write_amplification);
        add(test.test.clone(), (WRITE_AMPLIFICATION, Unit::Number, true), amplification);
    }
    all
}

/// Spells out the parameters of a test, which is the first word.
fn spelled_out(name: &str) -> String {
    let (test, rest) = name.split_once(' ').map_or((name, ""), |(test, rest)| (test, rest.trim()));
    match test.parse::<Test>() {
        Ok(test) if rest.is_empty() => test.to_string(),
        Ok(test) => format!("{test} {rest}"),
        Err(_) => name.to_owned(),
    }
}

#[derive(Debug, Default)]
pub struct BenchGate<'a> {
    conditions: Vec<Condition>,
    then: Option<(&'a Path, Box<BenchReport>)>,
}

impl<'a> BenchGate<'a> {
    /// Reads the saved result, and rejects conditions that cannot be judged.
    pub fn open(
        conditions: &[Condition],
        baseline: Option<&'a Path>,
        request: &BenchRequest,
    ) -> Result<Self, Failure> {
        let then = match baseline {
            Some(path) => Some((path, Box::new(read(path, "bench", &["tests", "device"])?))),
            None => None,
        };
        // Kinds of transfers are known after the run only.
        let test = |name: &str| spelled_out(name.split(' ').next().unwrap_or_default());
        let tests = request.tests.iter().map(|test| spelled_out(test)).collect();
        let placeholder = then.as_ref().map(|_| Then::default());
        let of_tests = conditions.iter().map(|condition| condition.renamed(test)).collect();
        Gate { conditions: of_tests, then: placeholder }.check(&terms(tests))?;
        Ok(Self {
            conditions: conditions.iter().map(|condition| condition.renamed(spelled_out)).collect(),
            then,
        })
    }

    /// Judges the results of tests.
    pub fn judge(&self, report: &BenchReport) -> Judged {
        judged(&self.conditions, self.then(report), &measured(report), &terms(Vec::new()))
    }

    fn then(&self, report: &BenchReport) -> Result<Option<Then>, Failure> {
        let Some((path, then)) = &self.then else { return Ok(None) };
        let (own, now) = (&then.settings, &report.settings);
        let (before, after) = (&then.results.device, &report.results.device);
        let region = |start: f64, length: f64| format!("{start}:{length} %");
        expect_alike(
            path,
            &[
                ("drive", &before.name, &after.name),
                ("size", &Bytes(before.size_bytes), &Bytes(after.size_bytes)),
                ("kind of data", &own.content, &now.content),
                (
                    "region",
                    &region(own.region_start_percent, own.region_length_percent),
                    &region(now.region_start_percent, now.region_length_percent),
                ),
                // A drive's speed depends on what was done to it before.
                ("list of tests", &own.tests.join(" "), &now.tests.join(" ")),
            ],
        )?;
        Ok(Some(Then {
            file: path.display().to_string(),
            trimwise: then.trimwise.to_string(),
            measured: measured(then),
            notes: version_note(&then.trimwise),
        }))
    }
}
