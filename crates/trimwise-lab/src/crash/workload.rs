//! A random run: a small machine, a policy, and tasks that create, change, sync, rename and remove files.
//!
//! The device and the log are small, so that blocks are constantly freed, trimmed and reused, and the log wraps. A
//! permanent file, drawn anew for each run, takes up part of the device.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use trimwise::block::{BlockQueue, QueueConfig};
use trimwise::engine::{Budget, Sim};
use trimwise::files::{FileError, Files, OpenMode};
use trimwise::fs::host::{DiscardGeneration, HostConfig, Writeback};
use trimwise::fs::layout::{FormatOptions, Layout};
use trimwise::fs::witness::{Record, Witness};
use trimwise::fs::{Ext4, Volume};
use trimwise::policy::Policy;
use trimwise::ssd::{GeometryConfig, LinkKind, Ssd, SsdConfig, TrimConfig, TrimKind};
use trimwise::units::{Bytes, Lpn, SimDuration, UNIT_BYTES, UnitRange};

use super::{CrashError, below};

/// Space for 25 MiB of files besides 11 MiB of metadata and log.
const DRIVE: Bytes = Bytes::mib(40);
/// The smallest log with which the model runs: a transaction of 64 blocks fills a quarter of it.
const LOG: Bytes = Bytes::mib(1);
/// Operations of all tasks together in the first and the second mount.
const OPERATIONS: [u64; 2] = [200, 60];
/// More than a hundred times the events of a run; a host that exceeds it will never finish.
const EVENTS_MAX: Budget = Budget { at_an_instant: 1_000_000, in_all: 20_000_000 };
const WRITE_BYTES_MAX: u64 = 400_000;

#[derive(Clone, Copy, Debug)]
pub struct Machine {
    link: LinkKind,
    trim: TrimKind,
    trim_us: u64,
    generation: DiscardGeneration,
    memory: Bytes,
    /// True if new blocks count as unwritten until their data are on the device, instead of delaying the commit.
    converts: bool,
    narrow: bool,
    /// True if freed blocks are soon reused, while slow TRIMs are in the device together with everything else.
    pub(super) tight: bool,
    ballast_percent: u64,
    tasks: u64,
    files: u64,
    directories: u64,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} with {:?} TRIM of {} us, {}, {}, memory {}, {} % of the space taken, {} tasks, {} files, \
             {} directories",
            self.link,
            self.trim,
            self.trim_us,
            self.generation.kernels(),
            if self.converts { "unwritten extents" } else { "ordered data" },
            self.memory,
            self.ballast_percent,
            self.tasks,
            self.files,
            self.directories
        )
    }
}

impl Machine {
    pub(super) fn of_seed(seed: u64) -> Self {
        Self::draw(&mut Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    fn draw(rng: &mut impl Rng) -> Self {
        let kinds = [
            (LinkKind::Sata, TrimKind::AtaNonQueued),
            (LinkKind::Sata, TrimKind::AtaQueued),
            (LinkKind::Nvme, TrimKind::Nvme),
            (LinkKind::Ufs, TrimKind::Ufs),
        ];
        let tight = below(rng, 2) == 0;
        let (link, trim) =
            if tight { kinds[1 + below(rng, 3) as usize] } else { kinds[below(rng, 4) as usize] };
        let slow = [20_000, 50_000, 100_000, 200_000];
        let generations =
            [DiscardGeneration::CommitSerial, DiscardGeneration::CommitBatched, DiscardGeneration::Worker];
        Self {
            link,
            trim,
            trim_us: if tight { slow } else { [50, 1_000, 20_000, 200_000] }[below(rng, 4) as usize],
            generation: generations[below(rng, 3) as usize],
            memory: Bytes::mib([4, 16, 64][below(rng, 3) as usize]),
            narrow: below(rng, 2) == 0,
            converts: below(rng, 2) == 0,
            tight,
            ballast_percent: if tight { [97, 98, 98, 99] } else { [30, 85, 94, 97] }[below(rng, 4) as usize],
            tasks: 2 + below(rng, 4),
            files: [12, 30, 100][below(rng, 3) as usize],
            directories: 2 + below(rng, 5),
        }
    }

    fn drive(&self) -> SsdConfig {
        let mut config = SsdConfig {
            trim: TrimConfig {
                kind: self.trim,
                cost_per_command_ns: self.trim_us * 1_000,
                ..SsdConfig::default().trim
            },
            capacity_bytes: DRIVE.0,
            over_provisioning_percent: Some(25.into()),
            geometry: GeometryConfig::flat(1, 64, 8192),
            ..SsdConfig::default()
        };
        config.link.kind = self.link;
        config
    }

    fn host(&self) -> HostConfig {
        let plain = HostConfig::of_the_2010s();
        let queue = if self.narrow {
            QueueConfig {
                max_request: Bytes::kib(64),
                background_depth: 1,
                background_waiting_max: 2,
                ..plain.queue
            }
        } else {
            plain.queue
        };
        HostConfig {
            memory: self.memory,
            discard: self.generation,
            converts_unwritten: self.converts,
            queue,
            writeback: Writeback::AtTheLimit,
            ..plain
        }
    }
}

pub struct Run {
    pub machine: Machine,
    pub record: Record,
    pub layout: Layout,
}

/// Called after each mount of a run, before anything happens there.
pub(crate) type AfterMount = Rc<dyn Fn(&Ext4)>;

/// What a run happens on.
#[derive(Clone)]
pub(super) struct Setting {
    pub machine: Machine,
    pub drive: SsdConfig,
    pub host: HostConfig,
    pub events_max: Budget,
}

impl Setting {
    pub fn of(machine: Machine) -> Self {
        Self { machine, drive: machine.drive(), host: machine.host(), events_max: EVENTS_MAX }
    }
}

pub fn run(policy: &Policy, seed: u64, after_mount: AfterMount) -> Result<Run, CrashError> {
    run_on(policy, seed, &Setting::of(Machine::of_seed(seed)), after_mount)
}

pub(super) fn run_on(
    policy: &Policy,
    seed: u64,
    setting: &Setting,
    after_mount: AfterMount,
) -> Result<Run, CrashError> {
    let Setting { machine, host, .. } = *setting;
    let sim = Sim::new();
    sim.set_budget(setting.events_max);
    let ssd = Ssd::new(&setting.drive, seed).map_err(|e| CrashError::Machine(e.to_string()))?;
    let queue = BlockQueue::new(&sim, ssd, host.queue);
    let policy = policy.clone();
    let result = sim.run(async move {
        let options = FormatOptions { journal: Some(LOG), ..FormatOptions::default() };
        let mut volume =
            Volume::format(&queue, options).await.map_err(|e| CrashError::Machine(e.to_string()))?;
        let layout = volume.layout().clone();
        let witness = Witness::new(&volume);
        for (mount, operations) in OPERATIONS.into_iter().enumerate() {
            let fs = volume.mount_under(host, &policy, Some(Rc::clone(&witness))).await;
            after_mount(&fs);
            if mount == 0 {
                prepare(&fs, &machine).await.map_err(CrashError::Workload)?;
            }
            tasks(&fs, machine, operations, seed ^ mount as u64).await?;
            volume = fs.unmount().await;
        }
        Ok(Run { machine, record: witness.end(&queue), layout })
    });
    result?
}

async fn prepare(fs: &Ext4, machine: &Machine) -> Result<(), FileError> {
    let ballast_percent = machine.ballast_percent;
    for directory in 1..machine.directories {
        fs.mkdir(&format!("d{directory}")).await?;
    }
    let free = fs.statfs().await?.free.0;
    if ballast_percent > 0 {
        let mut file = fs.open("ballast", OpenMode::Create).await?;
        fs.write(&mut file, &vec![0; (free / 100 * ballast_percent) as usize]).await?;
        fs.close(file).await?;
    }
    fs.sync().await
}

async fn tasks(fs: &Ext4, machine: Machine, operations: u64, seed: u64) -> Result<(), CrashError> {
    let sim = fs.queue().sim().clone();
    let left = Rc::new(Cell::new(machine.tasks));
    let failed: Rc<Cell<Option<FileError>>> = Rc::default();
    for task in 0..machine.tasks {
        let (fs, left, failed) = (fs.clone(), Rc::clone(&left), Rc::clone(&failed));
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ (task + 1) << 32);
        sim.spawn(async move {
            for _ in 0..operations / machine.tasks {
                match step(&fs, &machine, &mut rng).await {
                    // Another task was faster, or there is no space. Both are fine.
                    Ok(()) | Err(FileError::NoSpace { .. } | FileError::NotFound { .. }) => {}
                    Err(FileError::Exists { .. } | FileError::Other { .. }) => {}
                    Err(error @ FileError::Interrupted) => failed.set(Some(error)),
                }
            }
            left.set(left.get() - 1);
        });
    }
    while left.get() > 0 {
        sim.sleep(SimDuration::from_millis(10)).await;
    }
    match failed.take() {
        Some(error) => Err(CrashError::Workload(error)),
        None => Ok(()),
    }
}

fn path_of(file: u64, directories: u64) -> String {
    match file % (directories + 1) {
        0 => format!("f{file}"),
        directory => format!("d{directory}/f{file}"),
    }
}

async fn step(fs: &Ext4, machine: &Machine, rng: &mut impl Rng) -> Result<(), FileError> {
    let path = path_of(below(rng, machine.files), machine.directories);
    let directory = format!("d{}", 1 + below(rng, machine.directories));
    // The smallest writes often end in the file's last block.
    let bytes_max = [WRITE_BYTES_MAX, 30_000, 1_000][below(rng, 3) as usize];
    let bytes = 1 + below(rng, bytes_max);
    let kind = below(rng, 120);
    match kind {
        0..20 => {
            // The file is created, or truncated and rewritten.
            let file = fs.open(&path, OpenMode::Create).await?;
            write_and_close(fs, rng, file, bytes).await
        }
        20..38 => {
            drop(fs.open(&path, OpenMode::CreateKeep).await?);
            let file = fs.open(&path, OpenMode::Append).await?;
            write_and_close(fs, rng, file, bytes).await
        }
        38..50 => {
            let mut file = fs.open(&path, OpenMode::CreateKeep).await?;
            fs.seek(&mut file, below(rng, 60) * UNIT_BYTES / 2).await?;
            write_and_close(fs, rng, file, bytes).await
        }
        50..68 => fs.unlink(&path).await,
        68..78 => {
            let mut file = fs.open(&path, OpenMode::Read).await?;
            fs.fsync(&mut file).await?;
            fs.close(file).await
        }
        78..81 => fs.sync().await,
        81..86 => fs.mkdir(&directory).await,
        86..90 => fs.rmdir(&directory).await,
        90..92 | 97..100 if machine.tight || kind < 92 => {
            let (at, units) = (below(rng, DRIVE.units_floor()), below(rng, DRIVE.units_floor()));
            let units_min = below(rng, 32);
            let (at, units, units_min) =
                if machine.tight { (0, u64::MAX, 0) } else { (at, units, units_min) };
            fs.trim_free(UnitRange::new(Lpn(at), units), units_min).await;
            Ok(())
        }
        92..94 => {
            let mut file = fs.open(&path, OpenMode::Read).await?;
            fs.read(&mut file, &mut vec![0; bytes as usize]).await?;
            fs.close(file).await
        }
        100..110 => fs.rename(&path, &path_of(below(rng, machine.files), machine.directories)).await,
        110..120 => {
            let mode = if below(rng, 2) == 0 { OpenMode::Direct } else { OpenMode::CreateKeep };
            // Direct writes must consist of whole blocks.
            let (grain, bytes) = match mode {
                OpenMode::Direct => (UNIT_BYTES, bytes.next_multiple_of(UNIT_BYTES)),
                _ => (UNIT_BYTES / 2, bytes),
            };
            let mut file = fs.open(&path, mode).await?;
            fs.pwrite(&mut file, below(rng, 60) * grain, &vec![0; bytes as usize]).await?;
            if below(rng, 2) == 0 {
                fs.fdatasync(&mut file).await?;
            }
            fs.close(file).await
        }
        _ => {
            // From shorter than a commit to longer than any policy waits (btrfs: 120 s).
            let ms =
                [1, 20, 200, 3_000, 40_000, 300_000][below(rng, if machine.tight { 5 } else { 6 }) as usize];
            fs.queue().sim().clone().sleep(SimDuration::from_millis(below(rng, ms) + 1)).await;
            Ok(())
        }
    }
}

/// Writes to an open file, perhaps syncs it, and closes it.
async fn write_and_close(
    fs: &Ext4,
    rng: &mut impl Rng,
    mut file: <Ext4 as Files>::File,
    bytes: u64,
) -> Result<(), FileError> {
    fs.write(&mut file, &vec![0; bytes as usize]).await?;
    match below(rng, 6) {
        0 => fs.fsync(&mut file).await?,
        1 => fs.fdatasync(&mut file).await?,
        _ => {}
    }
    fs.close(file).await
}
