//! Applications and fio jobs on real directories: the same calls as on the modelled file system, and nothing left.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trimwise::block::BlockQueue;
use trimwise::engine::Sim;
use trimwise::files::{FileError, FileSystemSpace, Files, OpenMode};
use trimwise::fs::Volume;
use trimwise::fs::host::{HostConfig, LinuxVersion};
use trimwise::fs::layout::FormatOptions;
use trimwise::policy::PolicySpec;
use trimwise::ssd::{Ssd, SsdConfig};
use trimwise::units::{Bytes, SimDuration, SimTime};
use trimwise::workload::program::{DIRECTORY, Program};
use trimwise::workload::stage::{Session, sum};
use trimwise_linux::{RealDirectory, block_on};
use trimwise_testing::{directory, open};

/// Each application, small and with one task, whose calls depend on no clock.
const SMALL: [&str; 8] = [
    "lsm:operations=5k,keys=2k,memtable=256KiB,table=256KiB,base=512KiB,threads=1",
    "segments:total=8MiB,segment=256KiB,keep=512KiB,partitions=3,delay=0",
    "oltp:transactions=300,data=2MiB,segment=256KiB,checkpoint=512KiB,keep=256KiB,sort=100,sorted=1MiB",
    "maildir:messages=30,deliveries=150,users=3",
    "unpack:packages=2,files=10,upgrades=4,layers=4,members=60,kept=2",
    "desktop:steps=200,cache=2MiB,update=256KiB",
    "logs:total=4MiB,logs=3,rotate=256KiB,keep=3",
    "vm:images=2,image=1MiB,writes=500,life=100",
];

const JOBS: &str = "[global]\nsize=1m\n[a]\nrw=randrw\nbsrange=4k-16k\nnrfiles=3\nfsync=7\nloops=2\n\
                    [t]\nstonewall\nrw=randtrimwrite\nbs=8k\nfilename=/dev/t\n\
                    [v]\nstonewall\nrw=write\nbssplit=4k/50:12k/50\nverify=md5\nsync=dsync\nend_fsync=1\n";

/// A file system that records the calls to it, with their results where these are the same everywhere.
struct Recording<F> {
    inner: F,
    calls: Rc<RefCell<Vec<String>>>,
}

impl<F> Recording<F> {
    fn note(&self, call: String) {
        self.calls.borrow_mut().push(call);
    }
}

impl<F: Files> Files for Recording<F> {
    type File = F::File;

    fn now(&self) -> SimTime {
        self.inner.now()
    }
    async fn statfs(&self) -> Result<FileSystemSpace, FileError> {
        self.inner.statfs().await
    }
    async fn mkdir(&self, path: &str) -> Result<(), FileError> {
        let result = self.inner.mkdir(path).await;
        self.note(format!("mkdir {path}: {result:?}"));
        result
    }
    async fn rmdir(&self, path: &str) -> Result<(), FileError> {
        let result = self.inner.rmdir(path).await;
        self.note(format!("rmdir {path}: {result:?}"));
        result
    }
    async fn open(&self, path: &str, mode: OpenMode) -> Result<F::File, FileError> {
        let result = self.inner.open(path, mode).await;
        self.note(format!("open {path} {mode:?}: {:?}", result.as_ref().err()));
        result
    }
    async fn write(&self, file: &mut F::File, data: &[u8]) -> Result<(), FileError> {
        self.note(format!("write {}", data.len()));
        self.inner.write(file, data).await
    }
    async fn read(&self, file: &mut F::File, buffer: &mut [u8]) -> Result<usize, FileError> {
        let read = self.inner.read(file, buffer).await?;
        self.note(format!("read {}: {read}", buffer.len()));
        Ok(read)
    }
    async fn seek(&self, file: &mut F::File, offset: u64) -> Result<(), FileError> {
        self.note(format!("seek {offset}"));
        self.inner.seek(file, offset).await
    }
    async fn pwrite(&self, file: &mut F::File, offset: u64, data: &[u8]) -> Result<(), FileError> {
        self.note(format!("pwrite {offset} {}", data.len()));
        self.inner.pwrite(file, offset, data).await
    }
    async fn pread(&self, file: &mut F::File, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        let read = self.inner.pread(file, offset, buffer).await?;
        self.note(format!("pread {offset} {}: {read}", buffer.len()));
        Ok(read)
    }
    async fn punch(&self, file: &mut F::File, offset: u64, bytes: u64) -> Result<(), FileError> {
        self.note(format!("punch {offset} {bytes}"));
        self.inner.punch(file, offset, bytes).await
    }
    async fn fsync(&self, file: &mut F::File) -> Result<(), FileError> {
        self.note("fsync".to_owned());
        self.inner.fsync(file).await
    }
    async fn fdatasync(&self, file: &mut F::File) -> Result<(), FileError> {
        self.note("fdatasync".to_owned());
        self.inner.fdatasync(file).await
    }
    async fn drop_cached(&self, file: &mut F::File) -> Result<(), FileError> {
        self.note("drop".to_owned());
        self.inner.drop_cached(file).await
    }
    async fn close(&self, file: F::File) -> Result<(), FileError> {
        self.note("close".to_owned());
        self.inner.close(file).await
    }
    async fn unlink(&self, path: &str) -> Result<(), FileError> {
        let result = self.inner.unlink(path).await;
        self.note(format!("unlink {path}: {result:?}"));
        result
    }
    async fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        let result = self.inner.rename(from, to).await;
        self.note(format!("rename {from} {to}: {result:?}"));
        result
    }
    async fn sync(&self) -> Result<(), FileError> {
        self.note("sync".to_owned());
        self.inner.sync().await
    }
    async fn sleep(&self, duration: SimDuration) {
        self.inner.sleep(duration).await;
    }
    async fn charge_user_copy(&self, bytes: u64) {
        self.inner.charge_user_copy(bytes).await;
    }
}

fn programs() -> Vec<(String, Program)> {
    let applications = SMALL.iter().map(|text| ((*text).to_owned(), Program::parse(text, "").unwrap()));
    applications.chain([("job:a.fio".to_owned(), Program::parse("job:a.fio", JOBS).unwrap())]).collect()
}

/// Runs the only task of a program and removes its files.
async fn run<F: Files>(fs: &F, program: &Program) {
    assert_eq!(program.tasks(), 1);
    let session = Session::new(program.clone(), 5);
    session.prepare(fs).await.unwrap();
    session.run_task(fs, 0).await.unwrap();
    session.remove(fs).await.unwrap();
}

fn calls_in_model(program: &Program) -> Vec<String> {
    let sim = Sim::new();
    let mut ssd = SsdConfig {
        capacity_bytes: Bytes::mib(128).0,
        over_provisioning_percent: Some(30.into()),
        ..SsdConfig::default()
    };
    ssd.geometry.pages_per_block = 32;
    let host = HostConfig::of(LinuxVersion::TODAY, Bytes::mib(256));
    let queue = BlockQueue::new(&sim, Ssd::new(&ssd, 1).unwrap(), host.queue);
    let (calls, program) = (Rc::new(RefCell::default()), program.clone());
    let sink = Rc::clone(&calls);
    sim.run(async move {
        let volume = Volume::format(&queue, FormatOptions::TODAY).await.unwrap();
        let inner = volume.mount(host, PolicySpec::COMMIT.governor()).await;
        run(&Recording { inner, calls: sink }, &program).await;
    })
    .unwrap();
    calls.take()
}

fn calls_on_directory(program: &Program) -> Vec<String> {
    let work = directory(false);
    let calls = Rc::new(RefCell::default());
    block_on(run(&Recording { inner: open(&work), calls: Rc::clone(&calls) }, program)).unwrap();
    assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0, "something is left");
    calls.take()
}

#[test]
fn a_directory_sees_the_calls_that_the_model_sees() {
    for (name, program) in programs() {
        let (model, real) = (calls_in_model(&program), calls_on_directory(&program));
        let first = model.iter().zip(&real).position(|(model, real)| model != real);
        let at = first.map(|at| (at, &model[at], &real[at]));
        assert!(model == real, "{name}: {} and {} calls, {at:?}", model.len(), real.len());
        assert!(model.len() > 100, "{name}");
    }
}

#[test]
fn tasks_are_threads_that_wait_for_each_other() {
    let work = directory(false);
    let lsm = SMALL[0].replace("threads=1", "threads=2,tasks=2");
    let jobs = format!(
        "{JOBS}[b]\nstonewall\nrw=read\nfilename=a.0.0\nioengine=io_uring\niodepth=3\nnumjobs=2\n\
         [c]\nstonewall\nrw=write\nsize=1m\nloops=3\nunlink_each_loop=1\nioengine=io_uring\niodepth=4\n"
    );
    for (argument, text, tasks) in [(lsm.as_str(), "", 4), ("job:b.fio", jobs.as_str(), 6)] {
        let program = Program::parse(argument, text).unwrap();
        let (ends, duration) = open(&work).run_program(&program, 5, &Arc::default()).unwrap();
        assert_eq!((ends.len(), duration.0 > 0), (tasks, true));
        let (done, _) = sum(ends);
        assert!(done.operations > 500 && done.read_bytes > 2 << 20, "{done:?}");
        assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0);
    }
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    let work = directory(false);
    let flag = Arc::new(AtomicBool::new(false));
    let program = Program::parse("lsm:operations=100M,memtable=256KiB,tasks=2", "").unwrap();
    let root = RealDirectory::open(work.path(), Arc::clone(&flag)).unwrap();
    let path = work.path().join(DIRECTORY).join("1/MANIFEST");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !path.exists() {
                std::thread::yield_now();
            }
            flag.store(true, Ordering::Relaxed);
        });
        assert_eq!(root.run_program(&program, 5, &flag).unwrap_err(), FileError::Interrupted);
    });
    assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0);
}

#[test]
fn an_occupied_or_too_small_directory_is_refused() {
    let work = directory(false);
    let check = |text: &str| open(&work).check_program(&Program::parse(text, "").unwrap());
    assert!(check("vm:image=1MiB").is_ok());
    assert!(check("vm:image=1024GiB,images=1000").is_err());
    std::fs::create_dir(work.path().join(DIRECTORY)).unwrap();
    assert!(check("vm:image=1MiB").is_err());
}
