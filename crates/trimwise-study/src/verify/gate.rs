//! Conditions and a saved result for `verify`.

use std::path::Path;

use serde::Deserialize;
use trimwise::failure::{Failure, Mistake, Mistakes};
use trimwise::units::Bytes;

use super::{Modelled, VerifyReport, VerifyRequest, VerifySettings};
use crate::bench::Device;
use crate::bench::verify::Measured;
use crate::gate::{
    Condition, Gate, Judged, Terms, Then, expect_alike, judged, of_stages, read, version_note,
};
use crate::real_target::RealTarget;

/// What is needed of a saved result.
#[derive(Debug, Deserialize)]
struct Saved {
    trimwise: String,
    settings: SavedSettings,
    content: String,
    device: Device,
    evidence: SavedEvidence,
}

#[derive(Debug, Deserialize)]
struct SavedSettings {
    fault: Option<String>,
    region_start_percent: f64,
    region_length_percent: f64,
    torture_percent: u64,
    rest_s: u64,
}

#[derive(Debug, Deserialize)]
struct SavedEvidence {
    measured: Vec<Measured>,
}

#[derive(Debug, Default)]
pub struct VerifyGate<'a> {
    conditions: &'a [Condition],
    then: Option<(&'a Path, Saved)>,
}

impl<'a> VerifyGate<'a> {
    /// Reads the saved result, and rejects conditions that cannot be judged.
    ///
    /// # Errors
    ///
    /// If there is anything to judge and the target is a directory, whose speed is not measured; or a condition or the
    /// saved result is wrong.
    pub fn open(
        conditions: &'a [Condition],
        baseline: Option<&'a Path>,
        request: &VerifyRequest,
    ) -> Result<Self, Failure> {
        let field = if conditions.is_empty() { "baseline" } else { "fail_if" };
        if request.target.starts_with("dir:") && (baseline.is_some() || !conditions.is_empty()) {
            let why = format!("cannot be used with {}, where no speed is measured", request.target);
            return Err(Mistake::on(field).that_is(why).expected("a profile, file:PATH or dev:PATH").fail());
        }
        let mut mistakes = Mistakes::default();
        let saved =
            baseline.map(|path| Ok((path, read(path, "verify", &["evidence", "device", "judgement"])?)));
        let then = saved.and_then(|read| mistakes.keep(read).transpose()).transpose()?;
        let gate = Self { conditions, then };
        if gate.then.is_some() {
            // A real device tells its name and size when it is opened.
            let modelled = match RealTarget::parse(&request.target, request.size, request.destroy.as_ref()) {
                Ok(None) => mistakes.keep(Modelled::of(request))?,
                Ok(Some(_)) | Err(_) => None,
            };
            let drive = modelled.as_ref().map(|model| (&*model.name, model.config.capacity_bytes));
            let content = request.settings().content.to_string();
            mistakes.keep(gate.then(&request.shown(), &content, drive))?;
        }
        let then = baseline.map(|_| Then::default());
        mistakes.keep(Gate { conditions: conditions.to_vec(), then }.check(&Terms::of_verify()))?;
        mistakes.end()?;
        Ok(gate)
    }

    /// Judges the speeds of a drive.
    pub fn judge(&self, report: &VerifyReport) -> Judged {
        let found = &report.found;
        let now = of_stages(&found.evidence.measured, found.device.is_model);
        let drive = Some((&*found.device.name, found.device.size_bytes));
        let then = self.then(&report.settings, found.content, drive);
        judged(self.conditions, then, &now, &Terms::of_verify())
    }

    /// Rejects a saved result that cannot be compared with one of these settings. `drive` is the name and size of the
    /// drive, if they are known already.
    fn then(
        &self,
        now: &VerifySettings,
        content: &str,
        drive: Option<(&str, u64)>,
    ) -> Result<Option<Then>, Failure> {
        let Some((path, then)) = &self.then else { return Ok(None) };
        let own = &then.settings;
        let (name, size) = drive.unwrap_or((&then.device.name, then.device.size_bytes));
        let fault = |fault: Option<&str>| fault.unwrap_or("none").to_owned();
        let region = |start: f64, length: f64| format!("{start}:{length} %");
        expect_alike(
            path,
            &[
                ("drive", &then.device.name, &name),
                ("size", &Bytes(then.device.size_bytes), &Bytes(size)),
                ("planted fault", &fault(own.fault.as_deref()), &fault(now.fault)),
                ("kind of data", &then.content, &content),
                ("torture", &own.torture_percent, &now.torture_percent),
                ("rest", &own.rest_s, &now.rest_s),
                (
                    "region",
                    &region(own.region_start_percent, own.region_length_percent),
                    &region(now.region_start_percent, now.region_length_percent),
                ),
            ],
        )?;
        Ok(Some(Then {
            file: path.display().to_string(),
            trimwise: then.trimwise.clone(),
            measured: of_stages(&then.evidence.measured, then.device.is_model),
            notes: version_note(&then.trimwise),
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Verified, run};
    use super::*;
    use crate::caller::Silent;

    fn request(target: &str, more: &serde_json::Value) -> VerifyRequest {
        let mut request = json!({"target": target, "size": 256 << 20});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(request).unwrap()
    }

    fn conditions(texts: &[&str]) -> Vec<Condition> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn what_cannot_be_judged_is_refused_before_the_run_with_all_that_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        let own = request("sata-small", &json!({"seed": 2}));
        let Verified::Drive(report) = run(&own, &Silent::default()).unwrap() else { panic!("no drive") };
        std::fs::write(&path, crate::Versioned::of(&report).text().unwrap()).unwrap();
        let good = conditions(&["read_mb_per_s of trimmed < clean by 50 %", "write_mb_per_s of clean < 1"]);
        let judged = VerifyGate::open(&good, Some(&path), &own).unwrap().judge(&report);
        assert_eq!((judged.refused.len(), judged.conditions.len()), (0, 2), "{judged:?}");
        let since = judged.since.unwrap();
        assert!(since.compared > 0 && since.changes.is_empty(), "the same drive: {since:?}");

        let bad = conditions(&["trimmed < clean by 5 %", "read_mb_per_s of nosuch < 3"]);
        let other = request("vendor2", &json!({"rest_s": 7, "fault": "ignores-trim"}));
        let said = VerifyGate::open(&bad, Some(&path), &other).unwrap_err().to_string();
        for what in [
            "its drive is sata-small, and here it is vendor2",
            "its planted fault is none, and here it is ignores-trim",
            "and here it is 7; expected a result of the same rest",
            "names no figure; expected FIGURE of trimmed",
            "`nosuch` is not among the stages of this run",
        ] {
            assert!(said.contains(what), "{what}: {said}");
        }
        let directory = request("dir:/mnt", &json!({}));
        let said = VerifyGate::open(&[], Some(&path), &directory).unwrap_err().to_string();
        assert!(said.starts_with("--baseline cannot be used with dir:/mnt"), "{said}");
    }
}
