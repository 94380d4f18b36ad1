//! Debian's PostMark 1.53 and ours make the same calls: the same files in the same places and order, opened, written
//! and read in pieces of the same sizes. strace records the calls of Debian's.

use std::cell::RefCell;

use trimwise::files::{FileError, FileSystemSpace, Files, OpenMode};
use trimwise::units::{SimDuration, SimTime};
use trimwise::workload::postmark::{PostmarkConfig, run};
use trimwise_linux::{RealDirectory, block_on};
use trimwise_testing::{directory, open, program};

use crate::postmark::{Draws, EDGES, postmark, random_settings};

const RANDOM_CONFIGURATIONS: usize = 40;

/// A real directory that records its calls.
struct Recording {
    inner: RealDirectory,
    calls: RefCell<Vec<String>>,
}

impl Recording {
    fn note(&self, call: String) {
        self.calls.borrow_mut().push(call);
    }
}

impl Files for Recording {
    type File = <RealDirectory as Files>::File;

    fn now(&self) -> SimTime {
        self.inner.now()
    }
    async fn statfs(&self) -> Result<FileSystemSpace, FileError> {
        self.inner.statfs().await
    }
    async fn mkdir(&self, path: &str) -> Result<(), FileError> {
        self.inner.mkdir(path).await?;
        // The locations exist before postmark starts.
        if !["a", "b", "b/c", "d"].contains(&path) {
            self.note(format!("mkdir {path}"));
        }
        Ok(())
    }
    async fn rmdir(&self, path: &str) -> Result<(), FileError> {
        self.inner.rmdir(path).await?;
        if !["a", "b", "b/c", "d"].contains(&path) {
            self.note(format!("rmdir {path}"));
        }
        Ok(())
    }
    async fn open(&self, path: &str, mode: OpenMode) -> Result<Self::File, FileError> {
        self.note(format!("open {path} {mode:?}"));
        self.inner.open(path, mode).await
    }
    async fn write(&self, file: &mut Self::File, data: &[u8]) -> Result<(), FileError> {
        self.note(format!("write {}", data.len()));
        self.inner.write(file, data).await
    }
    async fn read(&self, file: &mut Self::File, buffer: &mut [u8]) -> Result<usize, FileError> {
        let got = self.inner.read(file, buffer).await?;
        self.note(format!("read {} = {got}", buffer.len()));
        Ok(got)
    }
    async fn seek(&self, file: &mut Self::File, offset: u64) -> Result<(), FileError> {
        self.inner.seek(file, offset).await
    }
    async fn punch(&self, file: &mut Self::File, offset: u64, bytes: u64) -> Result<(), FileError> {
        self.inner.punch(file, offset, bytes).await
    }
    async fn fsync(&self, file: &mut Self::File) -> Result<(), FileError> {
        self.note("fsync".to_owned());
        self.inner.fsync(file).await
    }
    async fn pwrite(&self, file: &mut Self::File, offset: u64, data: &[u8]) -> Result<(), FileError> {
        self.inner.pwrite(file, offset, data).await
    }
    async fn pread(&self, file: &mut Self::File, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        self.inner.pread(file, offset, buffer).await
    }
    async fn fdatasync(&self, file: &mut Self::File) -> Result<(), FileError> {
        self.inner.fdatasync(file).await
    }
    async fn drop_cached(&self, file: &mut Self::File) -> Result<(), FileError> {
        self.inner.drop_cached(file).await
    }
    async fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        self.inner.rename(from, to).await
    }
    async fn sleep(&self, duration: SimDuration) {
        self.inner.sleep(duration).await;
    }
    async fn close(&self, file: Self::File) -> Result<(), FileError> {
        self.note("close".to_owned());
        self.inner.close(file).await
    }
    async fn unlink(&self, path: &str) -> Result<(), FileError> {
        self.note(format!("unlink {path}"));
        self.inner.unlink(path).await
    }
    async fn sync(&self) -> Result<(), FileError> {
        self.note("sync".to_owned());
        self.inner.sync().await
    }
    async fn charge_user_copy(&self, bytes: u64) {
        self.inner.charge_user_copy(bytes).await;
    }
}

fn ours(config: &str) -> Vec<String> {
    let work = directory(false);
    let inner = open(&work);
    let config = inner.plan(&PostmarkConfig::parse(config, "calls").unwrap().runs[0].config).unwrap();
    let target = Recording { inner, calls: RefCell::default() };
    block_on(run(&target, &config, &mut |_| {})).unwrap().unwrap();
    target.calls.into_inner()
}

/// Returns the calls that strace saw between the first file or subdirectory and the end, in our notation.
fn theirs(trace: &str) -> Vec<String> {
    let mut calls = Vec::new();
    let mut descriptor = None;
    for line in trace.lines() {
        let Some((name, rest)) = line.split_once('(') else { continue };
        // strace pads short calls with blanks before the result.
        let Some((arguments, result)) = rest.rsplit_once(" = ") else { continue };
        let arguments = arguments.trim_end().trim_end_matches(')');
        let path = arguments.split('"').nth(1).unwrap_or_default();
        let first = arguments.split(',').next().unwrap_or_default().to_owned();
        let size = arguments.rsplit(", ").next().unwrap_or_default();
        let is_ours = descriptor.as_ref() == Some(&first);
        match name {
            "mkdir" | "rmdir" | "unlink" => calls.push(format!("{name} {path}")),
            "openat" if !path.starts_with('/') => {
                let mode = match arguments.rsplit("\", ").next().unwrap_or_default() {
                    "O_WRONLY|O_CREAT|O_TRUNC, 0666" => OpenMode::Create,
                    "O_RDWR|O_CREAT, 0644" => OpenMode::CreateKeep,
                    "O_RDONLY" => OpenMode::Read,
                    "O_WRONLY|O_CREAT|O_APPEND, 0666" | "O_RDWR|O_APPEND" => OpenMode::Append,
                    flags => panic!("postmark opens with {flags}"),
                };
                calls.push(format!("open {path} {mode:?}"));
                descriptor = Some(result.to_owned());
            }
            "write" if is_ours => calls.push(format!("write {size}")),
            "read" if is_ours => calls.push(format!("read {size} = {result}")),
            "close" if is_ours => {
                calls.push("close".to_owned());
                descriptor = None;
            }
            _ => {}
        }
    }
    calls
}

#[test]
fn postmark_and_ours_make_the_same_calls() {
    if program("postmark").is_none() || program("strace").is_none() {
        return;
    }
    let mut draws = Draws(2001);
    // The largest of the edges make too many calls for strace.
    let mut settings: Vec<String> = EDGES[..8].iter().map(|&edge| edge.to_owned()).collect();
    settings.extend((0..RANDOM_CONFIGURATIONS).map(|_| random_settings(&mut draws)));
    let mut compared = 0;
    for settings in &settings {
        // Millions of single-byte calls prove no more than thousands.
        let settings = settings.replace("read 1\n", "read 61\n").replace("write 1\n", "write 67\n");
        let config = format!("{settings}run\nquit\n");
        let trace = tempfile::NamedTempFile::new().unwrap();
        let output = trace.path().to_str().unwrap();
        let traced = "trace=mkdir,rmdir,unlink,openat,read,write,close,fsync,sync";
        postmark(&["strace", "-s", "0", "-e", traced, "-o", output, "postmark"], &config);
        let (theirs, ours) = (theirs(&std::fs::read_to_string(output).unwrap()), ours(&config));
        let differs = theirs.iter().zip(&ours).position(|(theirs, ours)| theirs != ours);
        if let Some(at) = differs {
            let around = at.saturating_sub(5)..at + 1;
            panic!("{config}\npostmark: {:?}\nours: {:?}", &theirs[around.clone()], &ours[around]);
        }
        assert_eq!(theirs.len(), ours.len(), "{config}");
        compared += theirs.len();
    }
    assert!(compared > 20_000, "only {compared} calls were seen");
}
