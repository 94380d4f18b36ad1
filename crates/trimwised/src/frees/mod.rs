//! Frees as they happen, through the kernel's tracepoints.
//!
//! A [`Watcher`] has its own trace instance (Documentation/trace/ftrace.rst, "Instances") with its own buffers and
//! events. In it, the tracepoints for frees of ext4 and XFS are enabled, filtered to the managed file systems. Records
//! are read as the kernel wrote them, a page at a time, each second and whenever a buffer is half full. If they are not
//! read in time, the kernel overwrites the oldest and counts them. The block layer's tracepoint for failed requests is
//! enabled too, for discards: XFS ignores their result.
//!
//! Without tracefs, or without permission to use it, there is no watcher, and frees are only found from maps.

pub mod format;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use self::format::{EventFormat, Freed, PageFormat, Tracepoint, filter};
use trimwise_linux::layout::Kind;

/// Where tracefs is mounted.
pub const TRACING: &str = "/sys/kernel/tracing";
/// Kernel memory for records, for all processors together, and the limits for one. A record of ext4 has 52 bytes, so
/// 256 KiB hold 5,000 frees, which is what removing a badly fragmented file produces in 30 ms.
const BUFFERS_KIB: usize = 8 << 10;
const BUFFER_KIB_MAX: usize = 256;
const BUFFER_KIB_MIN: usize = 64;
/// Kernels before 6.2 wake a reader for each record, not for a half full buffer, so polling resumes only after this
/// pause.
const REST: Duration = Duration::from_millis(10);

/// What was traced since the last call.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// Frees, by device.
    pub freed: BTreeMap<(u32, u32), Vec<Freed>>,
    /// Number of records lost, of any device.
    pub lost: u64,
    /// Disks on which discards failed.
    pub failed: BTreeSet<(u32, u32)>,
}

/// A trace instance that reports frees. It is removed on drop.
pub(crate) struct Watcher {
    instance: PathBuf,
    page: PageFormat,
    events: BTreeMap<Tracepoint, EventFormat>,
    /// Raw buffers, one per processor.
    pipes: Vec<File>,
    buffer: Vec<u8>,
    /// Pages of one processor's buffer: the most read at a time, so that a flood of frees cannot block the loop.
    pages: usize,
    watched: BTreeMap<(u32, u32), Kind>,
    /// When something was last read.
    heard_at: Option<Instant>,
}

/// Describes an error on a file, without a full stop.
fn cannot(path: &Path) -> impl FnOnce(io::Error) -> String {
    let path = path.display().to_string();
    move |error| format!("{path}: {error}")
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(cannot(path))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(cannot(path))
}

/// Reads `events/header_page`, which must be read in one call of read(2) (`show_header` in
/// kernel/trace/trace_events.c).
fn read_at_once(path: &Path) -> Result<String, String> {
    let mut buffer = [0; 4096];
    let n = File::open(path).and_then(|mut file| file.read(&mut buffer)).map_err(cannot(path))?;
    Ok(String::from_utf8_lossy(&buffer[..n]).into_owned())
}

impl Watcher {
    /// Creates an instance below `tracing`. `state` is device and inode of the daemon's state folder, which only one
    /// daemon has. The instance is named after it, so that the one of a killed daemon is found again.
    ///
    /// # Errors
    /// A description of why it cannot be created.
    pub fn open(tracing: &Path, (device, inode): (u64, u64)) -> Result<Self, String> {
        let page = tracing.join("events/header_page");
        if !page.exists() {
            return Err(format!("{}: tracefs is not mounted there, or cannot be read", tracing.display()));
        }
        let page = PageFormat::parse(&read_at_once(&page)?).ok_or("events/header_page: cannot be parsed")?;
        let name = format!("trimwised-{device:x}-{inode:x}");
        let instance = tracing.join("instances").join(name);
        // Remove what a killed daemon left; if that fails, reuse it.
        drop(fs::remove_dir(&instance));
        match fs::create_dir(&instance) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(cannot(&instance)(error));
            }
            _ => {}
        }
        let mut made = Self {
            instance,
            page,
            events: BTreeMap::new(),
            pipes: Vec::new(),
            buffer: vec![0; page.size],
            pages: 0,
            watched: BTreeMap::new(),
            heard_at: None,
        };
        made.prepare()?; // on failure, dropping it removes the instance
        Ok(made)
    }

    fn prepare(&mut self) -> Result<(), String> {
        let cpus: Vec<PathBuf> = fs::read_dir(self.instance.join("per_cpu"))
            .map_err(cannot(&self.instance))?
            .flatten()
            .map(|entry| entry.path().join("trace_pipe_raw"))
            .collect();
        let size = (BUFFERS_KIB / cpus.len().max(1)).clamp(BUFFER_KIB_MIN, BUFFER_KIB_MAX);
        self.pages = (size << 10).div_ceil(self.page.size);
        write(&self.instance.join("buffer_size_kb"), &size.to_string())?;
        for point in [Tracepoint::Ext4, Tracepoint::Xfs] {
            write_if_there(&self.event(point).join("enable"), "0")?;
            self.find(point);
        }
        if self.events.is_empty() {
            return Err("this kernel has no tracepoint for frees on ext4 or XFS".to_owned());
        }
        // Linux 5.18 and later. Only discards have a D among their letters (blk_fill_rwbs()).
        self.find(Tracepoint::Error);
        if self.events.contains_key(&Tracepoint::Error) {
            let event = self.event(Tracepoint::Error);
            write(&event.join("filter"), "rwbs ~ \"*D*\"")?;
            write(&event.join("enable"), "1")?;
        }
        for cpu in cpus {
            let mut options = File::options();
            options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
            self.pipes.push(options.open(&cpu).map_err(cannot(&cpu))?);
        }
        write(&self.instance.join("trace"), "")?; // drop old records
        write(&self.instance.join("tracing_on"), "1")
    }

    /// Looks for a tracepoint, which is missing until the file system's module is loaded.
    fn find(&mut self, point: Tracepoint) {
        if let Ok(text) = fs::read_to_string(self.event(point).join("format"))
            && let Some(format) = point.parse(&text)
        {
            self.events.insert(point, format);
        }
    }

    fn event(&self, point: Tracepoint) -> PathBuf {
        self.instance.join("events").join(point.path())
    }

    /// Watches these file systems, and no others.
    ///
    /// # Errors
    /// A description of what failed; it is then unknown which ones are watched.
    pub fn watch(&mut self, mut wanted: BTreeMap<(u32, u32), Kind>) -> Result<(), String> {
        for &kind in wanted.values() {
            match tracepoint(kind) {
                Some(point) if !self.events.contains_key(&point) => self.find(point),
                _ => {}
            }
        }
        wanted.retain(|_, kind| tracepoint(*kind).is_some_and(|point| self.events.contains_key(&point)));
        if wanted == self.watched {
            return Ok(());
        }
        for &point in self.events.keys() {
            let of_this = |all: &BTreeMap<(u32, u32), Kind>| -> Vec<(u32, u32)> {
                all.iter()
                    .filter(|(_, kind)| tracepoint(**kind) == Some(point))
                    .map(|(&device, _)| device)
                    .collect()
            };
            let (before, devices) = (of_this(&self.watched), of_this(&wanted));
            let event = self.event(point);
            if before != devices && !devices.is_empty() {
                write(&event.join("filter"), &filter(devices.iter().copied()))?;
            }
            if before.is_empty() != devices.is_empty() {
                write(&event.join("enable"), if devices.is_empty() { "0" } else { "1" })?;
            }
        }
        self.watched = wanted;
        Ok(())
    }

    /// Whether all frees of a file system are traced.
    pub(crate) fn is_watched(&self, device: (u32, u32)) -> bool {
        self.watched.contains_key(&device)
    }

    /// Checks that the instance is still enabled: an administrator may have turned it off.
    ///
    /// # Errors
    /// A description of what was turned off.
    pub fn check(&self) -> Result<(), String> {
        let mut files = vec![self.instance.join("tracing_on")];
        let used = |point: &&Tracepoint| self.watched.values().any(|&kind| tracepoint(kind) == Some(**point));
        files.extend(self.events.keys().filter(used).map(|&point| self.event(point).join("enable")));
        match files.iter().find(|file| !read(file).is_ok_and(|text| text.trim() == "1")) {
            Some(file) => Err(format!("{}: was turned off", file.display())),
            None => Ok(()),
        }
    }

    /// File descriptors to poll.
    pub fn waits(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let rests = self.rest_left() < Duration::MAX;
        self.pipes.iter().filter(move |_| !rests).map(|pipe| pipe.as_fd())
    }

    /// Time until polling resumes; [`Duration::MAX`] if it is active.
    pub(crate) fn rest_left(&self) -> Duration {
        let left = self.heard_at.and_then(|at| REST.checked_sub(at.elapsed()));
        left.filter(|left| !left.is_zero()).unwrap_or(Duration::MAX)
    }

    /// Reads what was freed since the last call.
    pub(crate) fn hear(&mut self) -> Heard {
        let mut heard = Heard::default();
        let mut any = false;
        for pipe in &mut self.pipes {
            for _ in 0..self.pages {
                // No more data, or the processor was removed.
                let Ok(n @ 1..) = pipe.read(&mut self.buffer) else { break };
                any = true;
                heard.lost += self.page.records(&self.buffer[..n], |record| {
                    let read =
                        |(point, event): (&Tracepoint, &EventFormat)| Some((*point, event.read(record)?));
                    match self.events.iter().find_map(read) {
                        Some((Tracepoint::Error, failed)) => drop(heard.failed.insert(failed.device)),
                        Some((_, freed)) => heard.freed.entry(freed.device).or_default().push(freed),
                        None => {}
                    }
                });
            }
        }
        if any {
            self.heard_at = Some(Instant::now());
        }
        heard
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.pipes.clear(); // an instance with open files cannot be removed
        if fs::remove_dir(&self.instance).is_err() {
            // It is in use: at least stop recording; the next daemon takes it over.
            self.events.keys().for_each(|&point| drop(write(&self.event(point).join("enable"), "0")));
        }
    }
}

/// The tracepoint for frees of a file system.
pub(crate) fn tracepoint(kind: Kind) -> Option<Tracepoint> {
    match kind {
        Kind::Ext4 => Some(Tracepoint::Ext4),
        Kind::Xfs => Some(Tracepoint::Xfs),
        Kind::Btrfs | Kind::Other => None,
    }
}

fn write_if_there(path: &Path, text: &str) -> Result<(), String> {
    if path.exists() { write(path, text) } else { Ok(()) }
}
