//! A file system as an application with limited deletions uses it ([`Limit`]).
//!
//! To remove a file, the application renames it to `NUMBER.trash` in the root directory, where a task of its own removes
//! it piece by piece. So the call returns soon, the file's space is free only when the task has come to it, and a crash
//! leaves the trash. Files that a rename or an open replaces go at once, as in the applications.
//!
//! Where a write finds no room while there is trash, the task goes on without pauses, and the write is tried again after
//! each piece. This is assumed: RocksDB fails, and looks every 5 s whether it can go on
//! (`SstFileManagerImpl::ClearError`); Pebble hurries 16 GiB earlier. The space in use stands for the size of a database
//! (`max_trash_db_ratio`).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use crate::engine::{Event, Sim};
use crate::files::{FileError, FileSystemSpace, Files, OpenMode};
use crate::fs::{Ext4, OpenFile};
use crate::policy::{Limit, Pace, Waiting};
use crate::units::{Bytes, SimDuration, SimTime};

/// Pebble computes its rate anew at least this often.
const LOOK_AGAIN: SimDuration = SimDuration::from_secs(10);

/// What became of the files that were removed under a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletionFigures {
    /// Bytes of files that had to wait.
    pub delayed_bytes: u64,
    /// Bytes of files that were removed at once, since too much waited.
    pub at_once_bytes: u64,
    pub waiting_bytes_max: u64,
    /// Bytes that still waited when the workload ended.
    pub waiting_bytes_end: u64,
    /// The longest time from the removal of a file until its last piece was gone.
    pub longest_ns: u64,
}

#[derive(Clone)]
pub struct Limited(Rc<Inner>);

struct Inner {
    fs: Ext4,
    trash: Option<Trash>,
}

struct Trash {
    limit: Limit,
    state: RefCell<State>,
    /// A file has come, a writer lacks room, or the run ends.
    called: Event,
    /// A piece is gone, or the task has ended.
    gone: Event,
}

struct State {
    pace: Pace,
    queue: VecDeque<Removed>,
    bytes: u64,
    /// Number of the last name given.
    name: u64,
    writers_without_room: u32,
    is_ending: bool,
    has_ended: bool,
    failed: Option<FileError>,
    figures: DeletionFigures,
}

struct Removed {
    path: String,
    left: Bytes,
    at: SimTime,
}

enum Next {
    Wait(Option<SimTime>),
    /// Cuts this much off a file of this length, or removes it.
    Go(String, Bytes, Option<Bytes>),
    End,
}

impl Limited {
    /// Without a limit, every call goes to the file system as it is.
    pub fn start(fs: &Ext4, limit: Option<Limit>) -> Self {
        let sim = fs.queue().sim();
        let trash = limit.map(|limit| Trash {
            limit,
            state: RefCell::new(State {
                pace: Pace::new(limit, sim.now()),
                queue: VecDeque::new(),
                bytes: 0,
                name: 0,
                writers_without_room: 0,
                is_ending: false,
                has_ended: false,
                failed: None,
                figures: DeletionFigures::default(),
            }),
            called: Event::new(sim),
            gone: Event::new(sim),
        });
        let this = Self(Rc::new(Inner { fs: fs.clone(), trash }));
        if limit.is_some() {
            let task = this.clone();
            sim.spawn(async move { task.empty_trash().await });
        }
        this
    }

    pub fn sim(&self) -> &Sim {
        self.0.fs.queue().sim()
    }

    /// Ends the task. What waits stays there, or goes at once, as the limit says; neither counts. Returns the figures;
    /// `None` without a limit.
    ///
    /// # Errors
    /// The first failure of the task.
    pub async fn stop(&self) -> Result<Option<DeletionFigures>, FileError> {
        let Some(trash) = &self.0.trash else { return Ok(None) };
        let figures = {
            let state = &mut *trash.state.borrow_mut();
            state.is_ending = true;
            DeletionFigures { waiting_bytes_end: state.bytes, ..state.figures }
        };
        trash.called.notify_all();
        while !trash.state.borrow().has_ended {
            trash.gone.wait().await;
        }
        trash.state.borrow_mut().failed.take().map_or(Ok(Some(figures)), Err)
    }

    async fn empty_trash(&self) {
        let Inner { fs, trash: Some(trash) } = &*self.0 else { return };
        let sim = fs.queue().sim();
        let mut was_empty = true;
        loop {
            let now = sim.now();
            match trash.next(now, fs.bytes_free(), &mut was_empty) {
                Next::Wait(None) => trash.called.wait().await,
                Next::Wait(Some(until)) => {
                    trash.called.wait_until(until).await;
                }
                Next::Go(path, left, cut) => {
                    let done = remove(fs, &path, left, cut, trash.limit.syncs()).await;
                    trash.has_gone(sim.now(), cut, done);
                }
                Next::End => break,
            }
        }
        trash.state.borrow_mut().has_ended = true;
        trash.gone.notify_all();
    }

    /// Returns true after a piece of the trash is gone that another try may find in its place, and false if the error
    /// is another, or there is no trash.
    async fn has_made_room<T>(&self, done: &Result<T, FileError>) -> bool {
        let Some(trash) = &self.0.trash else { return false };
        let is_full = matches!(done, Err(FileError::NoSpace { .. }));
        if !is_full || trash.state.borrow().bytes == 0 {
            return false;
        }
        trash.state.borrow_mut().writers_without_room += 1;
        trash.called.notify_all();
        trash.gone.wait().await;
        trash.state.borrow_mut().writers_without_room -= 1;
        true
    }
}

/// Removes a file, or cuts this much off its end.
async fn remove(
    fs: &Ext4,
    path: &str,
    left: Bytes,
    cut: Option<Bytes>,
    syncs: bool,
) -> Result<(), FileError> {
    let Some(cut) = cut else {
        fs.unlink(path).await?;
        if syncs {
            fs.sync_names().await;
        }
        return Ok(());
    };
    let mut file = fs.open(path, OpenMode::CreateKeep).await?;
    fs.shorten(&file, left.0 - cut.0).await;
    if syncs {
        fs.fsync(&mut file).await?;
    }
    fs.close(file).await
}

impl Trash {
    fn next(&self, now: SimTime, free: Bytes, was_empty: &mut bool) -> Next {
        let state = &mut *self.state.borrow_mut();
        let goes_on = self.limit.empties_at_the_end() && !state.queue.is_empty();
        if state.is_ending && !goes_on {
            return Next::End;
        }
        let Some(first) = state.queue.front() else {
            *was_empty = true;
            return Next::Wait(None);
        };
        if std::mem::take(was_empty) {
            state.pace.resumes(now);
        }
        let due = state.pace.due(now, Waiting { files: state.queue.len(), bytes: state.bytes, free });
        let is_urgent = state.is_ending || state.writers_without_room > 0;
        if let Some(due) = due.filter(|due| *due > now && !is_urgent) {
            return Next::Wait(Some(due.min(now + LOOK_AGAIN)));
        }
        let cut = self.limit.piece(first.left);
        state.pace.goes(cut.unwrap_or(first.left).0);
        Next::Go(first.path.clone(), first.left, cut)
    }

    fn has_gone(&self, now: SimTime, cut: Option<Bytes>, done: Result<(), FileError>) {
        let state = &mut *self.state.borrow_mut();
        state.pace.gone(now);
        let Some(first) = state.queue.front_mut() else { return };
        // What cannot be removed is left alone, as RocksDB does.
        let piece = cut.filter(|_| done.is_ok()).unwrap_or(first.left);
        first.left = Bytes(first.left.0 - piece.0);
        state.bytes -= piece.0;
        if cut.is_none() || done.is_err() {
            let took = now.since(first.at).as_nanos();
            state.figures.longest_ns = state.figures.longest_ns.max(took);
            state.queue.pop_front();
        }
        if let Err(error) = done {
            state.failed.get_or_insert(error);
        }
        self.gone.notify_all();
    }

    fn next_name(&self) -> String {
        let state = &mut *self.state.borrow_mut();
        state.name += 1;
        format!("{}.trash", state.name)
    }

    fn comes(&self, now: SimTime, path: String, bytes: Bytes) {
        let state = &mut *self.state.borrow_mut();
        state.pace.comes(now, bytes.0);
        state.queue.push_back(Removed { path, left: bytes, at: now });
        state.bytes += bytes.0;
        state.figures.delayed_bytes += bytes.0;
        state.figures.waiting_bytes_max = state.figures.waiting_bytes_max.max(state.bytes);
        self.called.notify_all();
    }
}

impl Files for Limited {
    type File = OpenFile;

    fn now(&self) -> SimTime {
        self.0.fs.now()
    }

    async fn statfs(&self) -> Result<FileSystemSpace, FileError> {
        self.0.fs.statfs().await
    }

    async fn mkdir(&self, path: &str) -> Result<(), FileError> {
        self.0.fs.mkdir(path).await
    }

    async fn rmdir(&self, path: &str) -> Result<(), FileError> {
        self.0.fs.rmdir(path).await
    }

    async fn open(&self, path: &str, mode: OpenMode) -> Result<OpenFile, FileError> {
        loop {
            let done = self.0.fs.open(path, mode).await;
            if !self.has_made_room(&done).await {
                return done;
            }
        }
    }

    async fn write(&self, file: &mut OpenFile, data: &[u8]) -> Result<(), FileError> {
        loop {
            let done = self.0.fs.write(file, data).await;
            if !self.has_made_room(&done).await {
                return done;
            }
        }
    }

    async fn read(&self, file: &mut OpenFile, buffer: &mut [u8]) -> Result<usize, FileError> {
        self.0.fs.read(file, buffer).await
    }

    async fn seek(&self, file: &mut OpenFile, offset: u64) -> Result<(), FileError> {
        self.0.fs.seek(file, offset).await
    }

    async fn pwrite(&self, file: &mut OpenFile, offset: u64, data: &[u8]) -> Result<(), FileError> {
        loop {
            let done = self.0.fs.pwrite(file, offset, data).await;
            if !self.has_made_room(&done).await {
                return done;
            }
        }
    }

    async fn pread(&self, file: &mut OpenFile, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        self.0.fs.pread(file, offset, buffer).await
    }

    async fn punch(&self, file: &mut OpenFile, offset: u64, bytes: u64) -> Result<(), FileError> {
        self.0.fs.punch(file, offset, bytes).await
    }

    async fn fsync(&self, file: &mut OpenFile) -> Result<(), FileError> {
        self.0.fs.fsync(file).await
    }

    async fn fdatasync(&self, file: &mut OpenFile) -> Result<(), FileError> {
        self.0.fs.fdatasync(file).await
    }

    async fn drop_cached(&self, file: &mut OpenFile) -> Result<(), FileError> {
        self.0.fs.drop_cached(file).await
    }

    async fn close(&self, file: OpenFile) -> Result<(), FileError> {
        self.0.fs.close(file).await
    }

    async fn unlink(&self, path: &str) -> Result<(), FileError> {
        let Inner { fs, trash } = &*self.0;
        let (Some(trash), Some(bytes)) = (trash, fs.length(path)) else { return fs.unlink(path).await };
        let space = fs.statfs().await?;
        let waiting = Bytes(trash.state.borrow().bytes);
        let name = trash.next_name();
        let is_at_once = trash.limit.is_at_once(waiting, Bytes(space.total.0.saturating_sub(space.free.0)));
        // A name for the trash may lack a block.
        if is_at_once || fs.rename(path, &name).await.is_err() {
            fs.unlink(path).await?;
            trash.state.borrow_mut().figures.at_once_bytes += bytes.0;
        } else {
            trash.comes(fs.now(), name, bytes);
        }
        Ok(())
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        self.0.fs.rename(from, to).await
    }

    async fn sync(&self) -> Result<(), FileError> {
        self.0.fs.sync().await
    }

    async fn drop_caches(&self) -> Result<(), FileError> {
        self.0.fs.drop_caches().await
    }

    async fn sleep(&self, duration: SimDuration) {
        self.0.fs.sleep(duration).await;
    }

    async fn charge_user_copy(&self, bytes: u64) {
        self.0.fs.charge_user_copy(bytes).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::block::BlockQueue;
    use crate::fs::Volume;
    use crate::fs::host::HostConfig;
    use crate::fs::layout::FormatOptions;
    use crate::policy::{LinuxVersion, PolicySpec};
    use crate::ssd::{Ssd, SsdConfig, TrimConfig, TrimKind};

    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;
    const TRIM_OF_A_GIB: SimDuration = SimDuration::from_millis(262);

    /// Runs a test on a drive of 8 GiB whose TRIM costs 1 us for each unit, and holds up everything else.
    fn with_dear_trim<F: Future<Output = ()> + 'static>(
        policy: &str,
        test: impl FnOnce(Ext4, Limited) -> F + 'static,
    ) {
        let sim = Sim::new();
        let policy: PolicySpec = policy.parse().unwrap();
        let trim = TrimConfig {
            kind: TrimKind::AtaNonQueued,
            cost_per_mapped_unit_ns: 1_000,
            ..SsdConfig::default().trim
        };
        let ssd = Ssd::new(&SsdConfig { trim, ..SsdConfig::default() }, 1).unwrap();
        let host = HostConfig::of(LinuxVersion::TODAY, Bytes::gib(1));
        let queue = BlockQueue::new(&sim, ssd, host.queue);
        sim.run(async move {
            let volume = Volume::format(&queue, FormatOptions::TODAY).await.unwrap();
            let fs = volume.mount(host, policy.governor()).await;
            let limited = Limited::start(&fs, policy.limit());
            test(fs, limited).await;
        })
        .unwrap();
    }

    async fn create(fs: &Limited, path: &str, bytes: u64) {
        let mut file = fs.open(path, OpenMode::Create).await.unwrap();
        let data = vec![1; MIB as usize];
        for _ in 0..bytes / MIB {
            fs.write(&mut file, &data).await.unwrap();
        }
        fs.fsync(&mut file).await.unwrap();
        fs.close(file).await.unwrap();
    }

    fn free(fs: &Ext4) -> u64 {
        fs.bytes_free().0
    }

    #[derive(Debug)]
    struct Seen {
        read_max: SimDuration,
        /// Until all space was free again.
        took: SimDuration,
        /// Free space by second, in MiB, since the removal.
        freed_mib: Vec<u64>,
        figures: Option<DeletionFigures>,
    }

    /// Removes a file of 4 GiB while another one is read every 5 ms, for 70 s.
    fn removal(policy: &str) -> Seen {
        let seen = Rc::new(RefCell::new(None));
        let result = Rc::clone(&seen);
        with_dear_trim(policy, |fs, limited| async move {
            create(&limited, "read", 64 * MIB).await;
            create(&limited, "large", 4 * GIB).await;
            let (begin, before) = (fs.now(), free(&fs));
            limited.unlink("large").await.unwrap();
            assert!(limited.open("large", OpenMode::Read).await.is_err(), "its name is gone");
            let mut file = limited.open("read", OpenMode::Direct).await.unwrap();
            let (mut read_max, mut took, mut freed_mib) = (SimDuration::ZERO, None, Vec::new());
            for i in 0..14_000u64 {
                let started = fs.now();
                fs.pread(&mut file, i * 37 % 16_384 * 4096, &mut [0; 4096]).await.unwrap();
                read_max = read_max.max(fs.now().since(started));
                let freed = (free(&fs) - before) / MIB;
                if freed >= 4096 && took.is_none() {
                    took = Some(fs.now().since(begin));
                }
                if fs.now().since(begin) >= SimDuration::from_secs(freed_mib.len() as u64) {
                    freed_mib.push(freed);
                }
                fs.sleep(SimDuration::from_millis(5)).await;
            }
            fs.close(file).await.unwrap();
            let figures = limited.stop().await.unwrap();
            fs.audit().unwrap();
            let took = took.expect("all of it is free");
            *result.borrow_mut() = Some(Seen { read_max, took, freed_mib, figures });
        });
        seen.take().unwrap()
    }

    /// 64 MiB/s in chunks of 64 MiB: chunk k of 64 goes k seconds after the removal, so the last one after 63 s.
    #[test]
    fn a_large_file_goes_at_the_rate_and_its_trims_hold_reads_up_by_a_chunk_only() {
        // Linux 4.13 to 5.14 send all TRIMs of a commit together, later ones one after the other.
        let chunk = SimDuration::from_nanos(TRIM_OF_A_GIB.as_nanos() / 16);
        let at_once = removal("together");
        assert!(at_once.read_max > chunk * 7, "{at_once:?}");
        assert!(at_once.took < SimDuration::from_secs(1), "{at_once:?}");
        assert_eq!(at_once.figures, None);
        let one_by_one = removal("commit");
        assert!(one_by_one.read_max > chunk && one_by_one.read_max < chunk * 3, "{one_by_one:?}");

        let slowly = removal("together+rocksdb:64MiB/s");
        assert!(slowly.read_max >= chunk / 2 && slowly.read_max < chunk * 3 / 2, "{slowly:?}");
        let (least, most) = (SimDuration::from_secs(63), SimDuration::from_millis(63_100));
        assert!(slowly.took >= least && slowly.took < most, "{slowly:?}");
        for (second, freed) in slowly.freed_mib.iter().enumerate().take(64).skip(1) {
            let chunks = freed.div_ceil(64);
            assert!(chunks.abs_diff(second as u64) <= 1, "{freed} MiB after {second} s");
        }
        let figures = slowly.figures.unwrap();
        assert_eq!((figures.delayed_bytes, figures.waiting_bytes_max), (4 * GIB, 4 * GIB));
        assert_eq!((figures.at_once_bytes, figures.waiting_bytes_end), (0, 0));
        assert!((63_000..63_100).contains(&(figures.longest_ns / 1_000_000)), "{figures:?}");
    }

    #[test]
    fn without_an_fsync_a_commit_gathers_the_steps_of_five_seconds() {
        // 32 steps with 31 pauses of a second between them.
        let steps = removal("together+steps:128MiB:1s");
        let took_ms = steps.took.as_nanos() / 1_000_000;
        assert!((31_000..32_000).contains(&took_ms), "{steps:?}");
        let step = SimDuration::from_nanos(TRIM_OF_A_GIB.as_nanos() / 8);
        assert!(steps.read_max > step * 2 && steps.read_max < step * 5, "{steps:?}");
        // Pebble never cuts a file, so one file is as bad as without a limit.
        let whole = removal("together+pebble:64MiB/s:1MiB");
        assert!(whole.read_max > step * 7 / 2 && whole.took < SimDuration::from_secs(1), "{whole:?}");
    }

    /// 2.5 GiB in use: a quarter may wait.
    #[test]
    fn rocksdb_removes_at_once_what_would_make_too_much_wait() {
        with_dear_trim("commit+rocksdb:1MiB/s", |fs, limited| async move {
            for i in 0..10 {
                create(&limited, &format!("f{i}"), 256 * MIB).await;
            }
            let before = free(&fs);
            for i in 0..4 {
                limited.unlink(&format!("f{i}")).await.unwrap();
            }
            // The first chunk of the first file goes at once.
            let figures = limited.stop().await.unwrap().unwrap();
            assert_eq!((figures.delayed_bytes, figures.at_once_bytes), (768 * MIB, 256 * MIB));
            assert!(figures.waiting_bytes_end >= (768 - 64) * MIB, "{figures:?}");
            assert!(free(&fs) - before >= 256 * MIB && free(&fs) - before <= (256 + 64) * MIB);
            assert_eq!(fs.length("3.trash"), Some(Bytes(256 * MIB)), "the rest stays");
            assert_eq!(limited.unlink("none").await, Err(FileError::NotFound { path: "none".into() }));
        });
    }

    #[test]
    fn a_writer_without_room_gets_that_of_the_trash_and_pebble_empties_it_at_the_end() {
        with_dear_trim("commit+rocksdb:1MiB/s", |fs, limited| async move {
            create(&limited, "kept", 3 * GIB).await;
            create(&limited, "removed", GIB).await;
            limited.unlink("removed").await.unwrap();
            let room = free(&fs);
            let begin = fs.now();
            create(&limited, "new", room + 512 * MIB).await;
            let took = fs.now().since(begin);
            assert!(took < SimDuration::from_secs(60), "512 MiB at 1 MiB/s would take 512 s: {took:?}");
            let figures = limited.stop().await.unwrap().unwrap();
            let left = figures.waiting_bytes_end;
            assert!(left > 0 && left <= 512 * MIB, "it goes on slowly when there is room: {left}");
        });
        with_dear_trim("commit+rocksdb:1MiB/s", |fs, limited| async move {
            create(&limited, "removed", 256 * MIB).await;
            create(&limited, "kept", 2 * GIB).await;
            limited.unlink("removed").await.unwrap();
            let room = free(&fs);
            let mut file = limited.open("new", OpenMode::Create).await.unwrap();
            let data = vec![1; 64 * MIB as usize];
            let mut written = 0;
            let error = loop {
                match limited.write(&mut file, &data).await {
                    Ok(()) => written += data.len() as u64,
                    Err(error) => break error,
                }
            };
            assert_eq!(error, FileError::NoSpace { path: "new".into() });
            assert!(written >= room + (256 - 64) * MIB, "{written} {room}");
        });
        with_dear_trim("commit+pebble:1MiB/s:1MiB", |fs, limited| async move {
            let ended = Rc::new(Cell::new(0));
            for i in 0..4 {
                create(&limited, &format!("f{i}"), 16 * MIB).await;
            }
            let before = free(&fs);
            for i in 0..4 {
                limited.unlink(&format!("f{i}")).await.unwrap();
            }
            fs.sleep(SimDuration::from_secs(20)).await;
            // The first at once, the second after 16 s.
            assert_eq!((free(&fs) - before) / MIB, 32);
            let begin = fs.now();
            let figures = limited.stop().await.unwrap().unwrap();
            ended.set(fs.now().since(begin).as_nanos());
            assert_eq!(figures.waiting_bytes_end, 32 * MIB);
            assert_eq!((free(&fs) - before) / MIB, 64);
            assert!(ended.get() < 1_000_000_000);
        });
    }
}
