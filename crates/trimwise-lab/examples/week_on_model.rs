//! Days of the experiment `daemon-week` on the modelled ext4: the same requests on the same drive, to compare with what a
//! real kernel gave. Its policies are `never`, `discard` and the daemon.
//!
//! `cargo run --release -p trimwise-lab --example week_on_model [DAYS]`

use std::cell::RefCell;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;

use trimwise::compare::cell::{CellSpec, run_cell};
use trimwise::compare::days::DaysSpec;
use trimwise::compare::result::WorkloadFigures;
use trimwise::files::{FileError, Files, OpenMode};
use trimwise::fs::Ext4;
use trimwise::fs::host::HostConfig;
use trimwise::policy::Trimmer;
use trimwise::profile::Profile;
use trimwise::units::{Bytes, SimDuration};
use trimwise::workload::days::Days;
use trimwise::workload::own::{OwnFigures, OwnPreparation, OwnRun, OwnWorkload};
use trimwise::workload::week::{Access, Chore, Week};
use trimwise_lab::experiment::{WEEK_AGED as AGED, WEEK_CAPACITY as CAPACITY, WEEK_DEVICE as DEVICE};

/// Bytes that one call writes.
const PIECE: usize = 1 << 20;

#[derive(Debug)]
struct OnModel(Week);

async fn make(fs: &Ext4, path: &str, bytes: u64) -> Result<(), FileError> {
    let (mut file, piece) = (fs.open(path, OpenMode::Create).await?, vec![0; PIECE]);
    for at in (0..bytes).step_by(PIECE) {
        fs.write(&mut file, &piece[..PIECE.min((bytes - at) as usize)]).await?;
    }
    fs.close(file).await
}

async fn make_day(fs: &Ext4, week: &Week, day: u64, number: u64) -> Result<(), FileError> {
    if number == 0 {
        fs.mkdir(&format!("day{day}")).await?;
    }
    make(fs, &format!("day{day}/{number}"), week.file.0).await
}

async fn chore(fs: &Ext4, week: &Week, chore: Chore) -> Result<(), FileError> {
    match chore {
        Chore::Make { day, number } => make_day(fs, week, day, number).await,
        Chore::Remove { day } => {
            for number in 0..week.files_a_day {
                fs.unlink(&format!("day{day}/{number}")).await?;
            }
            fs.rmdir(&format!("day{day}")).await
        }
    }
}

async fn prepare(fs: &Ext4, week: &Week) -> Result<(), FileError> {
    make(fs, "database", week.database.0).await?;
    for number in 0..week.files_a_day {
        make_day(fs, week, 0, number).await?;
    }
    fs.sync().await
}

async fn run(fs: &Ext4, week: &Week) -> Result<OwnFigures, FileError> {
    let sim = fs.queue().sim().clone();
    let (begin, before) = (sim.now(), fs.queue().with_ssd(|ssd| *ssd.stats()));
    let failed = Rc::new(RefCell::new(None));
    let (chores_fs, chores_week, chores_failed) = (fs.clone(), week.clone(), Rc::clone(&failed));
    sim.clone().spawn(async move {
        for (at, one) in chores_week.chores() {
            chores_fs.queue().sim().sleep_until(begin + at).await;
            if let Err(error) = chore(&chores_fs, &chores_week, one).await {
                *chores_failed.borrow_mut() = Some(error);
            }
        }
    });
    let looks = Rc::new(RefCell::new(Vec::new()));
    let (looks_fs, looks_week, seen) = (fs.clone(), week.clone(), Rc::clone(&looks));
    sim.clone().spawn(async move {
        for at in looks_week.looks() {
            looks_fs.queue().sim().sleep_until(begin + at).await;
            seen.borrow_mut().push(looks_fs.stale_units());
        }
    });
    let mut write = fs.open("database", OpenMode::CreateKeep).await?;
    let mut read = fs.open("database", OpenMode::Direct).await?;
    let mut buffer = vec![0; week.access.0 as usize];
    let mut writes = Vec::new();
    for Access { at, offset, reads } in week.accesses() {
        sim.sleep_until(begin + at).await;
        if reads {
            fs.pread(&mut read, offset.0, &mut buffer).await?;
        } else {
            fs.pwrite(&mut write, offset.0, &buffer).await?;
            fs.fsync(&mut write).await?;
            writes.push(sim.now().since(begin + at).as_nanos());
        }
    }
    sim.sleep_until(begin + week.length() + SimDuration::from_secs(1)).await;
    fs.close(write).await?;
    fs.close(read).await?;
    failed.take().map_or(Ok(()), Err)?;
    writes.sort_unstable();
    let stats = fs.queue().with_ssd(|ssd| *ssd.stats()).since(&before);
    let looks = looks.take();
    let mib = |units: u64| Bytes::from_units(units).0 as f64 / Bytes::mib(1).0 as f64;
    let first_below = looks.iter().position(|&units| mib(units) < 410.0).unwrap_or(looks.len());
    Ok(OwnFigures::from(
        [
            ("write_p50_ms", writes[writes.len() / 2] as f64 / 1e6),
            ("write_p99_ms", writes[writes.len() * 99 / 100] as f64 / 1e6),
            ("write_max_ms", writes[writes.len() - 1] as f64 / 1e6),
            ("write_amplification", stats.write_amplification()),
            ("discards", stats.trim.commands as f64),
            ("trimmed_mib", mib(stats.trim.units_invalidated)),
            ("below_bound_minute", 10.0 * (first_below + 1) as f64),
            ("untrimmed_max_mib", mib(looks[first_below..].iter().copied().max().unwrap_or_default())),
            ("untrimmed_end_mib", mib(looks.last().copied().unwrap_or_default())),
        ]
        .map(|(name, figure)| (name.to_owned(), figure)),
    ))
}

impl OwnWorkload for OnModel {
    fn prepare<'a>(&'a self, fs: &'a Ext4, _seed: u64) -> OwnPreparation<'a> {
        Box::pin(prepare(fs, &self.0))
    }

    fn run<'a>(&'a self, fs: &'a Ext4, _seed: u64) -> OwnRun<'a> {
        Box::pin(run(fs, &self.0))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let days: u32 = std::env::args().nth(1).map_or(Ok(1), |days| days.parse())?;
    let mut drive = Profile::embedded(DEVICE).ok_or("no such profile")?;
    drive.config = drive.config.shrunk(CAPACITY.0)?;
    let week = Week { days: days.into(), ..Week::default() };
    for policy in ["off", "commit", "trimwised"] {
        let trimmer: Trimmer = policy.parse()?;
        let spec = CellSpec {
            host: HostConfig::in_guest("6.12".parse()?, Bytes::mib(256)),
            utilization: Some(AGED),
            days: Some(DaysSpec { days: Days::new(days, "flat".parse()?)?, trimmer, has_backlog: true }),
            ..CellSpec::new(drive.clone(), trimmer.policy(), Arc::new(OnModel(week.clone())))
        };
        let cell = run_cell(&spec, Box::new(|_| ()))?;
        let WorkloadFigures::Own(figures) = &cell.workload else { continue };
        println!("{policy}: {figures:#?} {:?}", cell.days);
    }
    Ok(())
}
