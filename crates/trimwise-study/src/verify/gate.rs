//! Conditions and a saved result for `verify`.

use std::path::Path;

use serde::Deserialize;
use trimwise::failure::{Failure, Mistake};
use trimwise::units::Bytes;

use super::{VerifyReport, VerifyRequest};
use crate::bench::Device;
use crate::bench::verify::Measured;
use crate::gate::{
    Condition, Gate, Judged, Terms, Then, expect_alike, judged, of_stages, read, version_note,
};

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
        let then = match baseline {
            Some(path) => Some((path, read(path, "verify", &["evidence", "device", "judgement"])?)),
            None => None,
        };
        let gate = Self { conditions, then };
        let then = gate.then.as_ref().map(|_| Then::default());
        Gate { conditions: conditions.to_vec(), then }.check(&Terms::of_verify())?;
        Ok(gate)
    }

    /// Judges the speeds of a drive.
    pub fn judge(&self, report: &VerifyReport) -> Judged {
        let found = &report.found;
        let now = of_stages(&found.evidence.measured, found.device.is_model);
        judged(self.conditions, self.then(report), &now, &Terms::of_verify())
    }

    fn then(&self, report: &VerifyReport) -> Result<Option<Then>, Failure> {
        let Some((path, then)) = &self.then else { return Ok(None) };
        let found = &report.found;
        let (own, now) = (&then.settings, &report.settings);
        let fault = |fault: Option<&str>| fault.unwrap_or("none").to_owned();
        let region = |start: f64, length: f64| format!("{start}:{length} %");
        expect_alike(
            path,
            &[
                ("drive", &then.device.name, &found.device.name),
                ("size", &Bytes(then.device.size_bytes), &Bytes(found.device.size_bytes)),
                ("planted fault", &fault(own.fault.as_deref()), &fault(now.fault)),
                ("kind of data", &then.content, &found.content),
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
