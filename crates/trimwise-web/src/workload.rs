//! The workloads of a scene: endless, with a given rate, and the same under every policy.
//!
//! What they do depends on the seed and on the time at which an operation is due, never on how long another one took.
//! So they count the space that they use themselves: what a file system reports as free depends on the policy.

use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use trimwise::files::{FileError, Files, OpenMode};
use trimwise::units::SimDuration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Share in use before files are deleted down to the wanted fullness, so that every drive has been full once.
const FILLED_PERCENT: u64 = 97;

/// Share of the file system that the database's table takes.
const TABLE_PERCENT: u64 = 15;

/// Bytes that the database overwrites at a time.
const TABLE_PAGE: u64 = 16 * KIB;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Files of 16 KiB to 1 MiB, each made durable. Random old ones are deleted for them.
    Files,
    /// Like `Files`, with 4 to 16 MiB.
    Media,
    /// Random pages of a table are overwritten, after a durable record in a log. Old logs are deleted.
    Database,
    /// Like `Files`, while the fullness falls by 30 points and rises again every 40 s.
    Swing,
}

impl Workload {
    /// All workloads, each with the page's text about it.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Files, "small files: 16 KiB to 1 MiB, each fsynced; old ones deleted"),
        (Self::Media, "large files: 4 to 16 MiB, each fsynced; old ones deleted"),
        (Self::Database, "database: random 16 KiB pages overwritten, fsynced log, old logs deleted"),
        (Self::Swing, "tides: small files, fullness down 30 points and back every 40 s"),
    ];

    fn wanted_percent(self, fullness_percent: u64, at: SimDuration) -> u64 {
        const PERIOD_NS: u64 = 40_000_000_000;
        const SWING_PERCENT: u64 = 30;
        if self != Self::Swing {
            return fullness_percent;
        }
        let phase = at.as_nanos() % PERIOD_NS;
        let down = SWING_PERCENT * phase.min(PERIOD_NS - phase) / (PERIOD_NS / 2);
        fullness_percent.saturating_sub(down).max(5)
    }
}

/// Receives each operation when it has completed.
pub trait Observer {
    /// Progress of [`Town::settle`].
    fn settled(&self, percent: u64);
    fn began(&self);

    /// An operation took `latency`; `used_bytes` of the file system are now in use.
    fn ended(&self, operation: Call, latency: SimDuration, used_bytes: u64);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A file of this number and length was made durable.
    Create(u64, u64),
    Delete(u64),
    /// A page at this offset was written and its log record made durable.
    Overwrite(u64),
}

pub struct Town<'a, F: Files> {
    fs: &'a F,
    workload: Workload,
    draw: Xoshiro256PlusPlus,
    present: Vec<(u64, u64)>,
    created: u64,
    used_bytes: u64,
    total_bytes: u64,
    data: Vec<u8>,
}

impl<'a, F: Files> Town<'a, F> {
    pub async fn new(fs: &'a F, workload: Workload, seed: u64) -> Result<Self, FileError> {
        let total_bytes = fs.statfs().await?.free.0;
        let draw = Xoshiro256PlusPlus::seed_from_u64(seed);
        let data = vec![0; MIB as usize];
        Ok(Self { fs, workload, draw, present: Vec::new(), created: 0, used_bytes: 0, total_bytes, data })
    }

    fn below(&mut self, n: u64) -> u64 {
        // Multiply and shift: the bias is below 2^-32.
        ((u128::from(self.draw.next_u64()) * u128::from(n)) >> 64) as u64
    }

    fn size(&mut self) -> u64 {
        match self.workload {
            Workload::Media => (4 + self.below(13)) * MIB,
            // Small files are more frequent: the bounds are powers of two.
            Workload::Files | Workload::Swing | Workload::Database => {
                let most = (32 * KIB) << self.below(6);
                most / 2 + self.below(most / 8 / KIB) * 4 * KIB
            }
        }
    }

    fn room(&self, percent: u64) -> u64 {
        self.total_bytes / 100 * percent
    }

    pub async fn settle(&mut self, fullness_percent: u64, observer: &impl Observer) -> Result<(), FileError> {
        const FILLING_PERCENT: u64 = 90;
        loop {
            let bytes = self.size();
            if self.used_bytes + bytes > self.room(FILLED_PERCENT) {
                break;
            }
            self.create(bytes, false).await?;
            observer.settled(FILLING_PERCENT * self.used_bytes / self.room(FILLED_PERCENT).max(1));
        }
        let table_percent = if self.workload == Workload::Database { TABLE_PERCENT } else { 0 };
        let kept = self.room(fullness_percent.saturating_sub(table_percent));
        while self.used_bytes > kept && !self.present.is_empty() {
            self.delete_one().await?;
        }
        self.fs.sync().await?;
        observer.settled(FILLING_PERCENT + 5);
        if table_percent > 0 {
            let mut table = self.fs.open("table", OpenMode::Create).await?;
            for _ in 0..self.table_bytes() / MIB {
                self.fs.write(&mut table, &self.data).await?;
            }
            self.fs.fsync(&mut table).await?;
            self.fs.close(table).await?;
            self.used_bytes += self.table_bytes();
        }
        Ok(())
    }

    fn table_bytes(&self) -> u64 {
        self.room(TABLE_PERCENT) / MIB * MIB
    }

    async fn create(&mut self, bytes: u64, is_durable: bool) -> Result<u64, FileError> {
        let number = self.created;
        self.created += 1;
        let mut file = self.fs.open(&format!("f{number}"), OpenMode::Create).await?;
        let mut left = bytes;
        while left > 0 {
            let piece = left.min(MIB);
            self.fs.write(&mut file, &self.data[..piece as usize]).await?;
            left -= piece;
        }
        if is_durable {
            self.fs.fsync(&mut file).await?;
        }
        self.fs.close(file).await?;
        self.present.push((number, bytes));
        self.used_bytes += bytes.next_multiple_of(4 * KIB);
        Ok(number)
    }

    async fn delete_one(&mut self) -> Result<u64, FileError> {
        let drawn = self.below(self.present.len() as u64) as usize;
        let (number, bytes) = self.present.swap_remove(drawn);
        self.fs.unlink(&format!("f{number}")).await?;
        self.used_bytes -= bytes.next_multiple_of(4 * KIB);
        Ok(number)
    }

    /// Runs forever: writes `rate_bytes_per_s` as long as the drive keeps up.
    pub async fn run(
        mut self,
        fullness_percent: u64,
        rate_bytes_per_s: u64,
        observer: &impl Observer,
    ) -> Result<(), FileError> {
        let begin = self.fs.now();
        let mut due = SimDuration::ZERO;
        let mut database = match self.workload {
            Workload::Database => Some(Database::open(self.fs).await?),
            _ => None,
        };
        loop {
            let ahead = (begin + due).since(self.fs.now());
            if ahead > SimDuration::ZERO {
                self.fs.sleep(ahead).await;
            }
            let started = self.fs.now();
            observer.began();
            let written_bytes = if let Some(database) = &mut database {
                let offset = self.below(self.table_bytes() / TABLE_PAGE) * TABLE_PAGE;
                database.overwrite(self.fs, &self.data, offset).await?;
                observer.ended(Call::Overwrite(offset), self.fs.now().since(started), self.used_bytes);
                2 * TABLE_PAGE
            } else {
                let bytes = self.size();
                let room = self.room(self.workload.wanted_percent(fullness_percent, due));
                while self.used_bytes + bytes > room && !self.present.is_empty() {
                    let started = self.fs.now();
                    observer.began();
                    let number = self.delete_one().await?;
                    observer.ended(Call::Delete(number), self.fs.now().since(started), self.used_bytes);
                }
                let started = self.fs.now();
                observer.began();
                let number = self.create(bytes, true).await?;
                observer.ended(Call::Create(number, bytes), self.fs.now().since(started), self.used_bytes);
                bytes
            };
            due += SimDuration::from_nanos(written_bytes * 1_000_000_000 / rate_bytes_per_s.max(1));
        }
    }
}

struct Database<F: Files> {
    table: F::File,
    log: F::File,
    log_number: u64,
    logged_bytes: u64,
}

impl<F: Files> Database<F> {
    const LOG: u64 = 8 * MIB;
    const LOGS: u64 = 3;

    async fn open(fs: &F) -> Result<Self, FileError> {
        let table = fs.open("table", OpenMode::CreateKeep).await?;
        let log = fs.open("log0", OpenMode::Create).await?;
        Ok(Self { table, log, log_number: 0, logged_bytes: 0 })
    }

    async fn overwrite(&mut self, fs: &F, data: &[u8], offset: u64) -> Result<(), FileError> {
        let page = &data[..TABLE_PAGE as usize];
        if self.logged_bytes >= Self::LOG {
            self.log_number += 1;
            self.logged_bytes = 0;
            let next = fs.open(&format!("log{}", self.log_number), OpenMode::Create).await?;
            fs.close(std::mem::replace(&mut self.log, next)).await?;
            if let Some(oldest) = self.log_number.checked_sub(Self::LOGS) {
                fs.unlink(&format!("log{oldest}")).await?;
            }
        }
        fs.write(&mut self.log, page).await?;
        self.logged_bytes += TABLE_PAGE;
        fs.fsync(&mut self.log).await?;
        fs.pwrite(&mut self.table, offset, page).await
    }
}
