//! Log files: lines appended, rotated when large, compressed, and removed when old.
//!
//! Lines are appended to several logs, in bursts, and made durable only now and then (journald: every five minutes;
//! rsyslog: never). A log of its size is rotated as logrotate does it: `log.N` becomes `log.N+1`, the log `log.1`, and
//! the last is removed; the one before is compressed into a new file (`delaycompress`) and removed itself.

use super::parameters::{Parameter, parameters};
use super::{Place, Workload};
use crate::files::{FileError, Files, OpenMode};
use crate::units::Bytes;

pub const ABOUT: &str = "Log files: lines appended, rotated, compressed and removed.";

parameters! {
    pub struct Parameters {
        total: size(Bytes::gib(3), Bytes::kib(64), Bytes::gib(1024), "bytes appended", "assumed").scaled(),
        logs: count(10, 1, 10_000, "log files", "assumed"),
        burst: size(Bytes::kib(8), Bytes(1), Bytes::mib(1), "bytes appended at a time", "assumed"),
        rotate: size(Bytes::mib(16), Bytes::kib(4), Bytes::gib(64), "size of a full log", "assumed").shrinks(),
        keep: count(5, 2, 1_000, "rotated logs that are kept", "assumed; Debian's logrotate.conf: 4"),
        ratio: percent(10, "size of a compressed log", "assumed"),
        sync: count(2_000, 1, 1_000_000_000, "appends between two fsyncs", "assumed"),
    }
}

impl Workload for Parameters {
    fn operations(&self) -> u64 {
        self.total.0.div_ceil(self.burst.0)
    }

    fn needed(&self) -> Bytes {
        let rotated = self.rotate.0 * self.keep / 100 * self.ratio.max(1);
        Bytes(self.logs * (3 * self.rotate.0 + rotated) + Bytes::mib(4).0)
    }
}

pub async fn run<F: Files>(at: &Place<'_, F, Parameters>) -> Result<(), FileError> {
    let (stage, p) = (at.stage, at.parameters);
    let mut logs = Vec::new();
    for number in 0..p.logs {
        logs.push((stage.create(&at.path(&format!("log{number}")), 0).await?, 0, 0));
    }
    let count = logs.len() as u64;
    for append in 1..=p.total.0.div_ceil(p.burst.0) {
        stage.operation().await;
        let number = stage.below(count);
        let (file, bytes, rotated) = &mut logs[number as usize];
        stage.write(file, p.burst.0).await?;
        *bytes += p.burst.0;
        if append % p.sync == 0 {
            stage.fsync(file).await?;
        }
        if *bytes >= p.rotate.0 {
            let path = at.path(&format!("log{number}"));
            rotate(at, &path, *rotated).await?;
            let new = stage.open(&path, OpenMode::Create).await?;
            stage.close(std::mem::replace(file, new)).await?;
            (*bytes, *rotated) = (0, (*rotated + 1).min(p.keep));
        }
    }
    for (file, ..) in logs {
        stage.close(file).await?;
    }
    Ok(())
}

/// Rotates a log that has `rotated` older ones. All but the newest of these are compressed.
async fn rotate<F: Files>(at: &Place<'_, F, Parameters>, path: &str, rotated: u64) -> Result<(), FileError> {
    let stage = at.stage;
    let name = |age: u64| if age < 2 { format!("{path}.{age}") } else { format!("{path}.{age}.gz") };
    for age in (1..=rotated).rev() {
        if age >= at.parameters.keep {
            stage.unlink(&name(age)).await?;
        } else if age == 1 {
            let bytes = stage.read_whole(&name(1), 64 << 10).await?;
            let packed = stage.create(&name(2), bytes / 100 * at.parameters.ratio.max(1)).await?;
            stage.close(packed).await?;
            stage.unlink(&name(1)).await?;
        } else {
            stage.rename(&name(age), &name(age + 1)).await?;
        }
    }
    stage.rename(path, &name(1)).await
}
