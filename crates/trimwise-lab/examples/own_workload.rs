//! A workload of your own: a log that is rotated, under two policies on the model.
//!
//! `cargo run --release -p trimwise-lab --example own_workload`

use std::error::Error;
use std::sync::Arc;

use trimwise::compare::cell::{CellSpec, run_cell};
use trimwise::files::{FileError, Files, OpenMode};
use trimwise::fs::Ext4;
use trimwise::policy::PolicySpec;
use trimwise::profile::Profile;
use trimwise::units::Bytes;
use trimwise::workload::own::{OwnFigures, OwnRun, OwnWorkload};

/// Appends records, each followed by an fsync, to logs of 4 MiB, and keeps the last eight logs.
#[derive(Debug)]
struct RotatedLog {
    logs: u64,
}

/// The workload itself: it runs on anything with files.
async fn rotate<F: Files>(fs: &F, logs: u64) -> Result<OwnFigures, FileError> {
    static RECORD: [u8; 64 << 10] = [0; 64 << 10];
    let mut slowest_ns = 0;
    for log in 0..logs {
        let mut file = fs.open(&format!("log.{log}"), OpenMode::Create).await?;
        for _ in 0..64 {
            let begin = fs.now();
            fs.write(&mut file, &RECORD).await?;
            fs.fsync(&mut file).await?;
            slowest_ns = slowest_ns.max(fs.now().since(begin).as_nanos());
        }
        fs.close(file).await?;
        if log >= 8 {
            fs.unlink(&format!("log.{}", log - 8)).await?;
        }
    }
    Ok(OwnFigures::from([("append_max_ns".to_owned(), slowest_ns as f64)]))
}

impl OwnWorkload for RotatedLog {
    fn run<'a>(&'a self, fs: &'a Ext4, _seed: u64) -> OwnRun<'a> {
        Box::pin(rotate(fs, self.logs))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut drive = Profile::embedded("sata-small").ok_or("no such profile")?;
    drive.config.capacity_bytes = Bytes::gib(1).0;
    for policy in [PolicySpec::OFF, PolicySpec::COMMIT] {
        let spec = CellSpec::new(drive.clone(), policy, Arc::new(RotatedLog { logs: 300 }));
        let cell = run_cell(&spec, Box::new(|_| ()))?;
        println!("{}: {} ms, {:?}", cell.policy, cell.duration_ns / 1_000_000, cell.workload);
    }
    Ok(())
}
