//! Conditions and a saved result for `bench`.

use std::borrow::Cow;
use std::path::Path;

use trimwise::compare::statistics::Sample;
use trimwise::failure::{Failure, Mistake, Mistakes};
use trimwise::units::Bytes;
use trimwise_study::gate::{
    Condition, Gate, Judged, Measured, Terms, Then, Unit, expect_alike, judged, read, version_note,
};

use super::{BenchReport, BenchRequest, BenchSettings};
use crate::bench::{Findings, Measured as Transfer, RATIOS, Test};

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
    let ratios = RATIOS.iter().map(|(name, _)| (Cow::from(*name), Unit::Number));
    Terms {
        kind: "tests",
        subjects,
        figures: figures.chain([(WRITE_AMPLIFICATION.into(), Unit::Number)]).chain(ratios).collect(),
        of_several_runs: Vec::new(),
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
        add(test.test.clone(), (WRITE_AMPLIFICATION, Unit::Number, true), test.write_amplification());
        if let Findings::Reviewers(found) = &test.findings {
            for (name, of) in RATIOS {
                add(test.test.clone(), (name, Unit::Number, true), of(found));
            }
        }
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

/// Rejects a condition on all transfers of a test that has figures of each kind, or on a kind that it does not have.
fn expect_kind(condition: &Condition) -> Result<(), Failure> {
    let name = spelled_out(&condition.subject);
    let (test, kind) = name.split_once(' ').unwrap_or((&name, ""));
    let kinds = test.parse().map_or(&[][..], Test::kinds);
    let is_of_all = kind.is_empty() && condition.figure.as_deref() == Some(WRITE_AMPLIFICATION);
    if kinds.is_empty() || kinds.contains(&kind) || is_of_all {
        return Ok(());
    }
    // As written.
    let test = condition.subject.split(' ').next().unwrap_or_default();
    let names: Vec<String> = kinds.iter().map(|kind| format!("`{test} {kind}`")).collect();
    let expected = format!("one of {}, or {WRITE_AMPLIFICATION} of `{test}`", names.join(", "));
    let why = "each kind of transfer has figures of its own";
    Err(Mistake::of("fail_if", condition).because(why).expected(expected).fail())
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
        let mut mistakes = Mistakes::default();
        let saved = baseline.map(|path| Ok((path, Box::new(read(path, "bench", &["tests", "device"])?))));
        let then = saved.and_then(|read| mistakes.keep(read).transpose()).transpose()?;
        // Kinds of transfers are known after the run only.
        let test = |name: &str| spelled_out(name.split(' ').next().unwrap_or_default());
        let tests = request.tests.iter().map(|test| spelled_out(test)).collect();
        let placeholder = baseline.map(|_| Then::default());
        let of_tests = conditions.iter().map(|condition| condition.renamed(test)).collect();
        mistakes.keep(Gate { conditions: of_tests, then: placeholder }.check(&terms(tests)))?;
        for condition in conditions {
            mistakes.keep(expect_kind(condition))?;
        }
        let gate = Self {
            conditions: conditions.iter().map(|condition| condition.renamed(spelled_out)).collect(),
            then,
        };
        if let (Some(_), Some(tests)) = (&gate.then, mistakes.keep(request.parsed())?) {
            // A real device tells its name and size when it is opened.
            let model = match request.on.real() {
                Ok(None) => mistakes.keep(request.on.profile())?,
                Ok(Some(_)) | Err(_) => None,
            };
            let drive = model.as_ref().map(|model| (&*model.name, model.config.capacity_bytes));
            let settings = request.on.settings();
            mistakes.keep(gate.then(&BenchSettings::of(request, &tests, &settings), drive))?;
        }
        mistakes.end()?;
        Ok(gate)
    }

    /// Judges the results of tests.
    pub fn judge(&self, report: &BenchReport) -> Judged {
        let device = &report.results.device;
        let then = self.then(&report.settings, Some((&device.name, device.size_bytes)));
        judged(&self.conditions, then, &measured(report), &terms(Vec::new()))
    }

    /// Rejects a saved result that cannot be compared with one of these settings. `drive` is the name and size of the
    /// drive, if they are known already.
    fn then(&self, now: &BenchSettings, drive: Option<(&str, u64)>) -> Result<Option<Then>, Failure> {
        let Some((path, then)) = &self.then else { return Ok(None) };
        let (own, before) = (&then.settings, &then.results.device);
        let (name, size) = drive.unwrap_or((&before.name, before.size_bytes));
        let region = |start: f64, length: f64| format!("{start}:{length} %");
        expect_alike(
            path,
            &[
                ("drive", &before.name, &name),
                ("size", &Bytes(before.size_bytes), &Bytes(size)),
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

#[cfg(test)]
mod tests {
    use trimwise_study::Versioned;
    use trimwise_study::caller::Silent;

    use super::super::run;
    use super::*;

    fn request(target: &str, tests: &[&str]) -> BenchRequest {
        serde_json::from_value(serde_json::json!({"target": target, "tests": tests})).unwrap()
    }

    fn conditions(texts: &[&str]) -> Vec<Condition> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn regression_a_kind_of_transfer_is_asked_for_before_the_run() {
        let request = request("sata-small", &["mixed:70", "trim"]);
        let refused =
            |texts: &[&str]| BenchGate::open(&conditions(texts), None, &request).unwrap_err().to_string();
        let said = refused(&["mixed:70 < 100", "p99 of mixed wrote > 1 ms", "fill < 3"]);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), 3, "all at once: {said}");
        assert!(lines[0].contains("`fill` is not among the tests of this run"), "{said}");
        let hint = "expected one of `mixed:70 read`, `mixed:70 write`, or write_amplification of `mixed:70`";
        assert!(lines[1].starts_with("--fail-if mixed:70 < 100: ") && lines[1].ends_with(hint), "{said}");
        assert!(lines[2].contains("p99 of mixed wrote"), "{said}");
        let good = ["mixed:70 read < 100", "mixed write < 100", "write_amplification of mixed > 9"];
        assert!(BenchGate::open(&conditions(&good), None, &request).is_ok());
    }

    #[test]
    fn a_saved_result_of_another_drive_is_refused_before_the_run_with_all_that_differs() {
        let dir = tempfile::tempdir().unwrap();
        let saved = dir.path().join("a.json");
        let own = request("sata-small", &["trim"]);
        let report = run(&own, &Silent::default()).unwrap();
        std::fs::write(&saved, Versioned::of(&report).text().unwrap()).unwrap();
        assert!(BenchGate::open(&[], Some(&saved), &own).is_ok());
        let other = request("vendor2", &["trim", "fill"]);
        let said = BenchGate::open(&[], Some(&saved), &other).unwrap_err().to_string();
        for what in
            ["its drive is sata-small, and here it is vendor2", "its size is ", "its list of tests is trim"]
        {
            assert!(said.contains(what), "{what}: {said}");
        }
    }
}
