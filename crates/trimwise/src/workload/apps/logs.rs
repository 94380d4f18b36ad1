//! Log files: lines appended, rotated when large, compressed, and removed when old.
//!
//! Lines are appended to several logs, in bursts, and made durable only now and then (journald: every five minutes;
//! rsyslog: never). A log of its size is rotated as logrotate does it: `log.N` becomes `log.N+1`, the log `log.1`, and
//! the last is removed; the one before is compressed into a new file (`delaycompress`) and removed itself.

use super::parameters::{Parameter, Spec};
use super::{Place, Values};
use crate::units::Bytes;
use crate::files::{FileError, Files, OpenMode};

pub const SPEC: Spec = Spec {
    name: "logs",
    about: "Log files: lines appended, rotated, compressed and removed.",
    parameters: &[
        Parameter::size("total", Bytes::gib(3), Bytes::kib(64), Bytes::gib(1024), "bytes appended", "assumed").scaled(),
        Parameter::count("logs", 10, 1, 10_000, "log files", "assumed"),
        Parameter::size("burst", Bytes::kib(8), Bytes(1), Bytes::mib(1), "bytes appended at a time", "assumed"),
        Parameter::size("rotate", Bytes::mib(16), Bytes::kib(4), Bytes::gib(64), "size of a full log", "assumed"),
        Parameter::count("keep", 5, 2, 1_000, "rotated logs that are kept", "assumed; logrotate.conf of Debian: 4"),
        Parameter::percent("ratio", 10, "size of a compressed log", "assumed"),
        Parameter::count("sync", 2_000, 1, 1_000_000_000, "appends between two fsyncs", "assumed"),
    ],
};

pub fn operations(values: &Values) -> u64 {
    values.get("total").div_ceil(values.get("burst"))
}

pub fn tasks(_: &Values) -> u32 {
    1
}

pub fn needed(values: &Values) -> u64 {
    let rotated = values.get("rotate") * values.get("keep") / 100 * values.get("ratio").max(1);
    values.get("logs") * (3 * values.get("rotate") + rotated) + Bytes::mib(4).0
}

pub async fn run<F: Files>(at: &Place<'_, F>) -> Result<(), FileError> {
    let (stage, get) = (at.stage, |name| at.values.get(name));
    let mut logs = Vec::new();
    for number in 0..get("logs") {
        logs.push((stage.create(&at.path(&format!("log{number}")), 0).await?, 0, 0));
    }
    let count = logs.len() as u64;
    for append in 1..=get("total").div_ceil(get("burst")) {
        stage.operation().await;
        let number = stage.below(count);
        let (file, bytes, rotated) = &mut logs[number as usize];
        stage.write(file, get("burst")).await?;
        *bytes += get("burst");
        if append % get("sync") == 0 {
            stage.fsync(file).await?;
        }
        if *bytes >= get("rotate") {
            let path = at.path(&format!("log{number}"));
            rotate(at, &path, *rotated).await?;
            let new = stage.open(&path, OpenMode::Create).await?;
            stage.close(std::mem::replace(file, new)).await?;
            (*bytes, *rotated) = (0, (*rotated + 1).min(get("keep")));
        }
    }
    for (file, ..) in logs {
        stage.close(file).await?;
    }
    Ok(())
}

/// Rotates a log of which `rotated` older ones exist; all but the newest of these are compressed.
async fn rotate<F: Files>(at: &Place<'_, F>, path: &str, rotated: u64) -> Result<(), FileError> {
    let stage = at.stage;
    let name = |age: u64| if age < 2 { format!("{path}.{age}") } else { format!("{path}.{age}.gz") };
    for age in (1..=rotated).rev() {
        if age >= at.values.get("keep") {
            stage.unlink(&name(age)).await?;
        } else if age == 1 {
            let bytes = stage.read_whole(&name(1), 64 << 10).await?;
            let packed = stage.create(&name(2), bytes / 100 * at.values.get("ratio").max(1)).await?;
            stage.close(packed).await?;
            stage.unlink(&name(1)).await?;
        } else {
            stage.rename(&name(age), &name(age + 1)).await?;
        }
    }
    stage.rename(path, &name(1)).await
}
