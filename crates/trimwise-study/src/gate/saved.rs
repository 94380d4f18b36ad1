//! Saved results, and whether another one can be compared with them.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;
use trimwise::compare::result::Target;
use trimwise::failure::{Failure, Mistake, Mistakes};
use trimwise_linux::files::read_input;

use super::{Then, of_cells};
use crate::SCHEMA;
use crate::compare::{Comparison, Settings};

/// Largest document accepted. A comparison of a thousand runs is 40 MB.
const BYTES_MAX: u64 = 1 << 30;

/// Reads what `command` wrote with `--json`; `keys` are those that tell it from other commands' results.
///
/// # Errors
///
/// If there is no such file, or it is something else.
pub fn read<T: DeserializeOwned>(path: &Path, command: &str, keys: &[&str]) -> Result<T, Failure> {
    let of = || Mistake::of("baseline", path.display());
    let refused =
        |why: String| of().because(why).expected(format!("what `{command}` wrote with --json")).fail();
    let bytes = read_input(path, BYTES_MAX).map_err(|e| refused(e.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| refused("is not UTF-8 text".to_owned()))?;
    // Some editors start a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    if text.trim().is_empty() {
        return Err(refused("is empty".to_owned()));
    }
    let value: Value = serde_json::from_str(text).map_err(|e| refused(format!("is not JSON: {e}")))?;
    if value.get("trimwise").is_none() {
        return Err(refused("was not written by trimwise".to_owned()));
    }
    if keys.iter().any(|key| value.get(key).is_none()) {
        return Err(refused("was written by another command".to_owned()));
    }
    if value["schema"] != SCHEMA {
        let why =
            format!("has schema {}, which trimwise {} does not read", value["schema"], trimwise::VERSION);
        return Err(of().because(why).expected(format!("schema {SCHEMA}")).fail());
    }
    serde_json::from_value(value).map_err(|e| refused(e.to_string()))
}

/// A setting of a saved result and of this run, in words.
pub type Alike<'a> = (&'static str, &'a dyn fmt::Display, &'a dyn fmt::Display);

/// Rejects a saved result whose settings differ from those of this run.
///
/// # Errors
///
/// The failure names all settings that differ, with both values.
pub fn expect_alike(path: &Path, settings: &[Alike<'_>]) -> Result<(), Failure> {
    Mistakes::of(settings.iter().map(|(what, then, now)| {
        let (then, now) = (then.to_string(), now.to_string());
        if then == now {
            return Ok(());
        }
        let why = format!("its {what} is {then}, and here it is {now}");
        let of = Mistake::of("baseline", path.display()).because(why);
        Err(of.expected(format!("a result of the same {what}")).fail())
    }))
}

/// Reads a result of `compare`.
///
/// # Errors
///
/// If it is something else, or has no runs.
pub fn compare_baseline(path: &Path) -> Result<Comparison, Failure> {
    let then: Comparison = read(path, "compare", &["cells", "verdict"])?;
    let refused = |why: String| Mistake::of("baseline", path.display()).because(why).fail();
    if then.cells.is_empty() {
        return Err(refused("it has no runs".to_owned()));
    }
    then.restored().map_err(refused)
}

impl Then {
    /// Rejects a saved comparison that differs in more than kernel, version, seed or repetitions. `devices` are those
    /// of this run.
    ///
    /// # Errors
    ///
    /// The failure names all that differs.
    pub fn of_comparison(
        path: &Path,
        then: &Comparison,
        now: &Settings,
        devices: &[&str],
    ) -> Result<Self, Failure> {
        let own = &then.settings;
        let or = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
        let percent = |settings: &Settings| or(settings.utilization.map(|u| format!("{u} %")));
        let days = |settings: &Settings| or(settings.days.map(|days| days.to_string()));
        let day = |settings: &Settings| or(settings.day.clone());
        let memory = |settings: &Settings| {
            or(settings.host_memory_bytes.map(|bytes| trimwise::units::Bytes(bytes).to_string()))
        };
        let file_system = |settings: &Settings| or(settings.file_system.as_deref().map(str::to_owned));
        let place = |settings: &Settings| match &settings.target {
            Target::Model => "the model",
            Target::Kernel(_) => "a kernel",
            Target::Directory(_) => "a directory",
        };
        // Before the run, the settings have the measure only if it follows from the request.
        let judge = if now.judge.is_empty() { &own.judge } else { &now.judge };
        let alike = expect_alike(
            path,
            &[
                ("target", &place(own), &place(now)),
                ("workload", &own.workload, &now.workload),
                ("utilization", &percent(own), &percent(now)),
                ("number of days", &days(own), &days(now)),
                ("day", &day(own), &day(now)),
                ("file system", &file_system(own), &file_system(now)),
                ("memory", &memory(own), &memory(now)),
                ("measure", &own.judge, judge),
            ],
        );
        let before: BTreeSet<&str> = then.cells.iter().map(|cell| &*cell.device).collect();
        // Before the run on a directory, its name in results is not known.
        let is_known = devices.is_empty() || devices.iter().any(|device| before.contains(device));
        let of_drive = match is_known {
            true => Ok(()),
            false => {
                let before: Vec<&str> = before.into_iter().collect();
                let (before, now) = (before.join(", "), devices.join(", "));
                let why = format!("it is of {before}, and this run of {now}");
                let of = Mistake::of("baseline", path.display()).because(why);
                Err(of.expected("a result of the same drive").fail())
            }
        };
        Mistakes::of([alike, of_drive])?;
        let kernel = |settings: &Settings| {
            let real = settings.kernel.as_ref().map(|kernel| kernel.title().to_string());
            or(real.or_else(|| settings.linux.as_ref().map(|linux| linux.version.clone())))
        };
        let mut notes = version_note(&then.trimwise);
        let (old, new) = (kernel(own), kernel(now));
        if old != new {
            notes.push(format!("it is of Linux {old}, and this run of Linux {new}"));
        }
        if then.partial {
            notes.push("it is partial: some of its runs are missing".to_owned());
        }
        Ok(Self {
            file: path.display().to_string(),
            trimwise: then.trimwise.to_string(),
            measured: of_cells(&then.cells),
            notes,
        })
    }
}

/// Says that another version saved a result, if so.
pub fn version_note(then: &str) -> Vec<String> {
    let now = trimwise::VERSION;
    let note = format!("trimwise {then} made it, and this is {now}: a change may come from the models");
    if then == now { Vec::new() } else { vec![note] }
}
