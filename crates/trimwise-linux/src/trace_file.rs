//! Block traces in files: plain, or compressed with zstd or gzip, which is recognised by the first bytes.
//!
//! Everything streams, so pipes and endless input work. A separate thread decompresses a few blocks ahead. The files
//! that blktrace writes for a device, one per processor, are one trace.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Cursor, Read, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Instant;

use flate2::bufread::MultiGzDecoder;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use trimwise::trace::Part;

use crate::files::{OTHER_SIDE_WAIT, give_name, unfinished_beside};

pub const STDIN: &str = "-";
const BUFFER_BYTES: usize = 1 << 17;
/// Bytes decompressed at a time: at most this many before a damaged place are lost.
const PIECE_BYTES: usize = 4096;
/// Interval at which the stop flag is checked while a pipe is silent.
const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Returns true if a trace can be read several times: it consists of regular files.
pub fn is_rereadable(path: &Path) -> bool {
    let is_file = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.is_file());
    path.as_os_str() != STDIN && files(path).is_ok_and(|files| files.iter().all(is_file))
}

/// Splits the name of a file that blktrace wrote for a processor (and that may have been compressed since) into the
/// device and the number of the processor.
fn processor(name: &str) -> Option<(&str, u32)> {
    let name = [".gz", ".zst"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
    let (device, number) = name.rsplit_once(".blktrace.")?;
    let number = number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())??;
    Some((device, number))
}

/// Returns the files that a path stands for. For blktrace's output that is every file in a folder, or of one device;
/// the device's name may be given as for `blkparse -i`, or with the number of any processor. Any other path stands for
/// itself.
pub fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let named = processor(name).map(|(device, _)| device);
    let is_folder = path.is_dir();
    if !is_folder && named.is_none() && path.exists() {
        return Ok(vec![path.to_owned()]);
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in fs::read_dir(if is_folder { path } else { parent }).into_iter().flatten() {
        let entry = entry?.path();
        let Some((device, number)) = entry.file_name().and_then(|name| name.to_str()).and_then(processor)
        else {
            continue;
        };
        if is_folder || device == named.unwrap_or(name) {
            found.push((device.to_owned(), number, entry));
        }
    }
    found.sort();
    // A file sorts before its compressed copy.
    found.dedup_by(|(device, number, _), (before, its, _)| (&*device, *number) == (&*before, *its));
    if found.is_empty() && is_folder {
        let what =
            "a folder without blktrace's files DEV.blktrace.N; expected a trace, or a folder with them";
        return Err(io::Error::new(io::ErrorKind::IsADirectory, what));
    }
    let found: Vec<PathBuf> = found.into_iter().map(|(.., path)| path).collect();
    Ok(if found.is_empty() { vec![path.to_owned()] } else { found })
}

/// Returns the names of missing per-processor files: their numbers begin at 0 and have no gap.
fn missing(files: &[PathBuf]) -> Vec<String> {
    let names = files.iter().filter_map(|path| processor(path.file_name()?.to_str()?));
    let (mut missing, mut expected) = (Vec::new(), ("", 0));
    for (device, number) in names {
        let next = if device == expected.0 { expected.1 } else { 0 };
        if number > next {
            missing.push(format!("{device}.blktrace.{next}"));
        }
        expected = (device, number.saturating_add(1));
    }
    missing
}

/// Trace file of an offline processor.
struct Missing;

impl Read for Missing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::new(io::ErrorKind::NotFound, "no such file, though a later processor has one"))
    }
}

/// A pipe whose reads end when `stop` is raised, even if the writer is silent, and fail if a named pipe has no writer.
struct Pipe {
    from: File,
    /// When a named pipe must have a writer; `None` once it has had one.
    writer_by: Option<Instant>,
    stop: Arc<AtomicBool>,
}

impl Read for Pipe {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(io::Error::other("interrupted"));
            }
            // A FIFO that nobody has opened for writing yet is neither readable nor at its end.
            match poll(&mut [PollFd::new(&self.from, PollFlags::IN)], Some(&POLL)) {
                Ok(0) if self.writer_by.is_some() => match self.from.read(out) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.writer_by = None,
                    Ok(0) if self.writer_by.is_none_or(|by| Instant::now() < by) => continue,
                    Ok(0) => {
                        let seconds = OTHER_SIDE_WAIT.as_secs();
                        let why = format!("no program has opened this pipe for writing within {seconds} s");
                        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
                    }
                    read => return read,
                },
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            match self.from.read(out) {
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                read => return read,
            }
        }
    }
}

/// Opens the files of a trace; `-` is standard input. Once `stop` is raised, reads of a pipe fail. A missing file among
/// those of blktrace fails when it is read.
pub fn open(path: &Path, stop: &Arc<AtomicBool>) -> io::Result<Vec<Part<'static>>> {
    let pipe = |from, writer_by| plain_bytes(Pipe { from, writer_by, stop: Arc::clone(stop) });
    if path.as_os_str() == STDIN {
        let stdin = io::stdin().as_fd().try_clone_to_owned()?;
        return Ok(vec![(STDIN.to_owned(), pipe(stdin.into(), None)?)]);
    }
    let open = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !fs::metadata(&path)?.file_type().is_fifo() {
            return Ok((name, plain_bytes(File::open(path)?)?));
        }
        let fifo = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        Ok((name, pipe(fifo, Some(Instant::now() + OTHER_SIDE_WAIT))?))
    };
    let files = files(path)?;
    let missing: Vec<_> =
        missing(&files).into_iter().map(|name| Ok((name, Box::new(Missing) as _))).collect();
    files.into_iter().map(open).chain(missing).collect()
}

/// Decompresses `input` if it begins like a compressed file.
pub(crate) fn plain_bytes(mut input: impl Read + Send + 'static) -> io::Result<Box<dyn Read>> {
    let mut head = Vec::with_capacity(ZSTD.len());
    (&mut input).take(ZSTD.len() as u64).read_to_end(&mut head)?;
    let (is_zstd, is_gzip) = (head == ZSTD, head.starts_with(&GZIP));
    let whole = Cursor::new(head).chain(input);
    Ok(match () {
        () if is_zstd => {
            let whole = BufReader::with_capacity(BUFFER_BYTES, whole);
            Box::new(Ahead::new(zstd::Decoder::with_buffer(whole)?)?)
        }
        () if is_gzip => {
            Box::new(Ahead::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER_BYTES, whole)))?)
        }
        () => Box::new(whole),
    })
}

/// Reads from a thread that is up to a few blocks ahead.
struct Ahead {
    blocks: Receiver<io::Result<Vec<u8>>>,
    /// Blocks that were read, to be filled again.
    spent: Sender<Vec<u8>>,
    block: Vec<u8>,
    at: usize,
    is_ended: bool,
}

impl Ahead {
    fn new(from: impl Read + Send + 'static) -> io::Result<Self> {
        const BLOCKS: usize = 3;
        let (filled, blocks) = sync_channel(BLOCKS);
        let (spent, empty) = channel();
        std::thread::Builder::new()
            .name("decompress".to_owned())
            .spawn(move || fill(from, &filled, &empty))?;
        Ok(Self { blocks, spent, block: Vec::new(), at: 0, is_ended: false })
    }
}

/// Fills blocks until the input ends or fails, or the reader is gone.
fn fill(mut from: impl Read, filled: &SyncSender<io::Result<Vec<u8>>>, empty: &Receiver<Vec<u8>>) {
    loop {
        let mut block = empty.try_recv().unwrap_or_default();
        block.resize(BUFFER_BYTES, 0);
        let mut length = 0;
        // A decoder that fails drops what it decoded in the same call.
        let end = loop {
            let until = block.len().min(length + PIECE_BYTES);
            match from.read(&mut block[length..until]) {
                Ok(0) => break Some(Ok(Vec::new())),
                Ok(read) => length += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Some(Err(error)),
            }
            if length == block.len() {
                break None;
            }
        };
        block.truncate(length);
        let is_gone = length > 0 && filled.send(Ok(block)).is_err();
        if let (false, Some(end)) = (is_gone, end) {
            // An empty block is the end.
            return drop(filled.send(end));
        }
        if is_gone {
            return;
        }
    }
}

impl Read for Ahead {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.at == self.block.len() && !self.is_ended {
            let failed = |_| io::Error::other("the thread that decompresses has failed");
            let next = self.blocks.recv().map_err(failed)?;
            let spent = std::mem::replace(&mut self.block, next?);
            (self.at, self.is_ended) = (0, self.block.is_empty());
            drop(self.spent.send(spent));
        }
        let read = out.len().min(self.block.len() - self.at);
        out[..read].copy_from_slice(&self.block[self.at..self.at + read]);
        self.at += read;
        Ok(read)
    }
}

/// A new trace file. Until it is finished it has a temporary name, and an existing file keeps its contents. It is
/// removed if it is never finished.
#[derive(Debug)]
pub struct NewTrace {
    path: PathBuf,
    /// Temporary name; `None` for a pipe or `/dev/null`, which is written in place.
    unfinished: Option<PathBuf>,
    replace: bool,
    out: Out,
}

enum Out {
    Plain(BufWriter<File>),
    /// Buffered, since the encoder is slow with single records.
    Zstd(BufWriter<zstd::Encoder<'static, BufWriter<File>>>),
}

impl std::fmt::Debug for Out {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Zstd(_) => "Zstd",
        })
    }
}

impl NewTrace {
    /// Creates a file, which must not exist unless `replace` is set. If the name ends in `.zst`, the file is
    /// compressed.
    pub fn create(path: &Path, replace: bool) -> io::Result<Self> {
        // Level 3 makes the file a tenth smaller, and takes three times as long.
        const LEVEL: i32 = 1;
        let found = fs::metadata(path).ok();
        if !replace && found.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let is_special = found.is_some_and(|found| !found.is_file());
        let unfinished = (!is_special).then(|| unfinished_beside(path));
        let name = unfinished.as_deref().unwrap_or(path);
        let file = OpenOptions::new().write(true).create_new(!is_special).open(name)?;
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let out = match path.extension().is_some_and(|ending| ending == "zst") {
            true => Out::Zstd(BufWriter::with_capacity(BUFFER_BYTES, zstd::Encoder::new(file, LEVEL)?)),
            false => Out::Plain(file),
        };
        Ok(Self { path: path.to_owned(), unfinished, replace, out })
    }

    /// Writes the remaining bytes and gives the file its final name.
    pub fn finish(mut self) -> io::Result<()> {
        let out = std::mem::replace(&mut self.out, Out::Plain(BufWriter::new(File::open("/dev/null")?)));
        match out {
            Out::Plain(mut file) => file.flush(),
            Out::Zstd(records) => {
                let encoder = records.into_inner().map_err(io::IntoInnerError::into_error)?;
                encoder.finish().and_then(|mut file| file.flush())
            }
        }?;
        if let Some(unfinished) = &self.unfinished {
            give_name(unfinished, &self.path, self.replace)?;
        }
        self.unfinished = None;
        Ok(())
    }
}

impl Write for NewTrace {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.out {
            Out::Plain(file) => file.write(bytes),
            Out::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            Out::Plain(file) => file.flush(),
            Out::Zstd(encoder) => encoder.flush(),
        }
    }
}

impl Drop for NewTrace {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            drop(fs::remove_file(unfinished));
        }
    }
}

#[cfg(test)]
mod tests {
    use trimwise::trace;

    use super::*;

    const TEXT: &str = "fio version 3 iolog\n0 a write 0 4096\n10 a trim 0 4096\n";

    fn count(bytes: &[u8]) -> Result<u64, String> {
        let input = plain_bytes(Cursor::new(bytes.to_vec())).map_err(|e| e.to_string())?;
        let mut source = trace::open(input, None).map_err(|e| e.to_string())?;
        let mut records = 0;
        while source.next().map_err(|e| e.to_string())?.is_some() {
            records += 1;
        }
        Ok(records)
    }

    #[test]
    fn a_compressed_trace_is_recognised_and_one_cut_off_is_an_error() {
        let zstd = zstd::encode_all(TEXT.as_bytes(), 1).unwrap();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(TEXT.as_bytes()).unwrap();
        let gzip = gzip.finish().unwrap();
        for bytes in [TEXT.as_bytes(), &zstd, &gzip, &[zstd.clone(), zstd_of("20 a read 0 512\n")].concat()] {
            assert!(count(bytes).unwrap() >= 2, "{bytes:02x?}");
        }
        for bytes in [&zstd[..zstd.len() - 5], &gzip[..gzip.len() - 12]] {
            assert!(count(bytes).unwrap_err().contains("cut off"));
        }
        assert!(count(&[&ZSTD[..], b"garbage"].concat()).is_err());
        assert_eq!(count(&[]).unwrap_err(), "byte 0: the trace is empty; expected a block trace");
    }

    #[test]
    fn regression_what_comes_before_a_damaged_place_is_read() {
        let mut state = 1u64;
        let line = |at| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            format!("{at} a write {} 4096\n", (state >> 40) * 4096)
        };
        let text = "fio version 3 iolog\n".to_owned() + &(0..6_000).map(line).collect::<String>();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text.as_bytes()).unwrap();
        let mut bytes = gzip.finish().unwrap();
        assert!(bytes.len() < BUFFER_BYTES);
        let middle = bytes.len() / 2;
        bytes[middle..middle + 64].fill(0xff);
        let error = count(&bytes).unwrap_err();
        let number = error.strip_prefix("line ").and_then(|rest| rest.split(':').next()?.parse::<u64>().ok());
        assert!(number.is_some_and(|number| number > 1_000), "{error}");
    }

    #[test]
    fn regression_a_pipe_without_a_writer_is_not_waited_for_when_told_to_stop() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let raised = Arc::clone(&stop);
        let opening = std::thread::spawn(move || open(&path, &raised).err().map(|error| error.to_string()));
        std::thread::sleep(std::time::Duration::from_millis(120));
        assert!(!opening.is_finished(), "it waits for a writer");
        stop.store(true, Ordering::Relaxed);
        assert_eq!(opening.join().unwrap().as_deref(), Some("interrupted"));
    }

    fn zstd_of(text: &str) -> Vec<u8> {
        zstd::encode_all(text.as_bytes(), 1).unwrap()
    }

    #[test]
    fn what_blktrace_left_is_one_trace_by_any_of_its_names() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "sda.blktrace.0",
            "sda.blktrace.10",
            "sda.blktrace.2",
            "sda.blktrace.2.gz",
            "sdb.blktrace.0.zst",
            "sda.txt",
            "sda.blktrace.x",
        ] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        let names = |path: &Path| -> Vec<String> {
            open(path, &Arc::default()).unwrap().into_iter().map(|(name, _)| name).collect()
        };
        // The last two are missing.
        let missing = ["sda.blktrace.1", "sda.blktrace.3"];
        let sda = ["sda.blktrace.0", "sda.blktrace.2", "sda.blktrace.10"];
        let all = [&sda[..], &missing].concat();
        assert_eq!(names(&dir.path().join("sda")), all);
        assert_eq!(names(&dir.path().join("sda.blktrace.2")), all);
        assert_eq!(names(dir.path()), [&sda[..], &["sdb.blktrace.0.zst"], &missing].concat());
        assert_eq!(names(&dir.path().join("sda.txt")), ["sda.txt"]);
        assert!(is_rereadable(dir.path()) && is_rereadable(&dir.path().join("sda")));
        let missing = open(&dir.path().join("sdc"), &Arc::default()).err().unwrap();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let empty = tempfile::tempdir().unwrap();
        let error = open(empty.path(), &Arc::default()).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        assert!(error.to_string().contains("DEV.blktrace.N"), "{error}");
    }

    #[test]
    fn a_new_trace_is_kept_only_when_it_is_finished() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.zst");
        let mut new = NewTrace::create(&path, false).unwrap();
        new.write_all(TEXT.as_bytes()).unwrap();
        new.finish().unwrap();
        assert_eq!(count(&fs::read(&path).unwrap()), Ok(2));
        assert!(is_rereadable(&path) && !is_rereadable(Path::new(STDIN)));
        assert_eq!(NewTrace::create(&path, false).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        drop(NewTrace::create(&path, true).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "the old one is kept, and nothing else");
        NewTrace::create(&path, true).unwrap().finish().unwrap();
        assert_eq!(
            count(&fs::read(&path).unwrap()).unwrap_err(),
            "byte 0: the trace is empty; expected a block trace"
        );
        drop(NewTrace::create(Path::new("/dev/null"), true).unwrap());
        assert!(Path::new("/dev/null").exists());
    }
}
