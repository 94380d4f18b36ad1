//! Frees as they happen, through the kernel's tracepoints.
//!
//! A [`Watcher`] has its own trace instance (Documentation/trace/ftrace.rst, "Instances") with its own buffers and
//! events. In it, the tracepoints for frees of ext4 and XFS are enabled, filtered to the managed file systems. Records
//! are read as the kernel wrote them, a page at a time, with each sample and whenever a buffer is half full. If they are not
//! read in time, the kernel overwrites the oldest and counts them. The block layer's tracepoints for failed requests and
//! bios are enabled too, for discards: XFS ignores their result.
//!
//! Without tracefs, or without permission to use it, there is no watcher, and frees are only found from maps.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use trimwise::units::Span;
use trimwise_linux::layout::Kind;
use trimwise_linux::tracefs::format::{EventFormat, Traced, Tracepoint, filter};
use trimwise_linux::tracefs::{Instance, InstanceError, remove_unused};

/// Kernel memory for records, for all processors together, and the limits for one processor. A record of ext4 has 52
/// bytes, so 256 KiB hold 5,000 frees, which is what removing a badly fragmented file produces in 30 ms.
const BUFFERS_KIB: usize = 8 << 10;
const BUFFER_KIB_MAX: usize = 256;
const BUFFER_KIB_MIN: usize = 64;
/// Kernels before 6.1, 6.0.10 and 5.10.156 wake a reader for each record, not for a half full buffer, so polling resumes
/// only after this pause.
const REST: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// Frees in traced order, by the file system's device.
    pub freed: BTreeMap<(u32, u32), Vec<Traced>>,
    pub lost: u64,
    /// Sectors of each device where discards failed, and devices that only refused some as unsupported.
    pub failed: BTreeMap<(u32, u32), Vec<Span>>,
    pub refused: BTreeSet<(u32, u32)>,
}

/// A trace instance that reports frees. It is removed on drop.
pub(crate) struct Watcher {
    events: BTreeMap<Tracepoint, EventFormat>,
    /// Raw buffers, one per processor. Declared before the instance, which cannot be removed while they are open.
    pipes: Vec<File>,
    instance: Instance,
    buffer: Vec<u8>,
    /// Pages of one processor's buffer: the most read at a time, so that a flood of frees cannot block the loop.
    pages: usize,
    watched: BTreeMap<(u32, u32), Kind>,
    heard_at: Option<Instant>,
}

impl Watcher {
    /// Creates an instance below `tracing`. `state` is device and inode of the daemon's state folder, which only one
    /// daemon has. The instance is named after it, so that the one of a killed daemon is found again. An error is a
    /// sentence that says why the instance cannot be created.
    pub fn open(tracing: &Path, (device, inode): (u64, u64)) -> Result<Self, String> {
        // Killed daemons left theirs. The kernel removes none that is read; one that stays under this name is reused.
        remove_unused(tracing, "trimwised-", |_| true);
        let name = format!("trimwised-{device:x}-{inode:x}");
        let instance = Instance::create(tracing, &name).map_err(text)?;
        let mut made = Self {
            events: BTreeMap::new(),
            pipes: Vec::new(),
            buffer: vec![0; instance.page().size],
            instance,
            pages: 0,
            watched: BTreeMap::new(),
            heard_at: None,
        };
        made.prepare()?; // on failure, dropping it removes the instance
        Ok(made)
    }

    fn prepare(&mut self) -> Result<(), String> {
        let size = self.instance.set_buffers(BUFFERS_KIB, BUFFER_KIB_MIN, BUFFER_KIB_MAX).map_err(text)?;
        self.pages = (size << 10).div_ceil(self.instance.page().size);
        self.instance.write("events/enable", "0").map_err(text)?;
        self.find(Tracepoint::Ext4);
        self.find(Tracepoint::Xfs);
        if self.events.is_empty() {
            return Err("this kernel has no tracepoint for frees on ext4 or XFS".to_owned());
        }
        self.events.extend(self.instance.report_failed_discards().map_err(text)?);
        self.pipes = self.instance.pipes().map_err(text)?;
        self.instance.write("trace", "").map_err(text)?; // drop old records
        self.instance.write("tracing_on", "1").map_err(text)
    }

    /// Enables a tracepoint, which is missing until the file system's module is loaded.
    fn find(&mut self, point: Tracepoint) {
        if let Some(format) = self.instance.find(point) {
            self.events.insert(point, format);
        }
    }

    fn set(&self, point: Tracepoint, file: &str, to: &str) -> Result<(), String> {
        self.instance.write(Instance::event(point, file), to).map_err(text)
    }

    /// Watches these file systems, and no others. After an error it is unknown which file systems are watched.
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
            if before != devices && !devices.is_empty() {
                self.set(point, "filter", &filter(devices.iter().copied()))?;
            }
            if before.is_empty() != devices.is_empty() {
                self.set(point, "enable", if devices.is_empty() { "0" } else { "1" })?;
            }
        }
        self.watched = wanted;
        Ok(())
    }

    pub(crate) fn reports_failures(&self) -> bool {
        self.events.contains_key(&Tracepoint::Error)
    }

    pub(crate) fn is_watched(&self, device: (u32, u32)) -> bool {
        self.watched.contains_key(&device)
    }

    /// Checks that the instance is still enabled: an administrator may have turned it off.
    pub fn check(&self) -> Result<(), String> {
        self.instance.expect_on("tracing_on")?;
        let used = |point: &&Tracepoint| {
            point.is_failure() || self.watched.values().any(|&kind| tracepoint(kind) == Some(**point))
        };
        let mut used = self.events.keys().filter(used);
        used.try_for_each(|&point| self.instance.expect_on(Instance::event(point, "enable")))
    }

    pub fn waits(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let rests = self.rest_left() < Duration::MAX;
        self.pipes.iter().filter(move |_| !rests).map(|pipe| pipe.as_fd())
    }

    pub(crate) fn rest_left(&self) -> Duration {
        let left = self.heard_at.and_then(|at| REST.checked_sub(at.elapsed()));
        left.filter(|left| !left.is_zero()).unwrap_or(Duration::MAX)
    }

    pub(crate) fn hear(&mut self) -> Heard {
        let mut heard = Heard::default();
        let page = self.instance.page();
        let mut any = false;
        for pipe in &mut self.pipes {
            for _ in 0..self.pages {
                // There is no more data, or the processor was removed.
                let Ok(n @ 1..) = pipe.read(&mut self.buffer) else { break };
                any = true;
                heard.lost += page.records(&self.buffer[..n], |_, record| {
                    let read =
                        |(point, event): (&Tracepoint, &EventFormat)| Some((*point, event.read(record)?));
                    match self.events.iter().find_map(read) {
                        Some((point, failed)) if point.is_failure() => {
                            if point.is_refusal(&failed) {
                                heard.refused.insert(failed.device);
                            } else {
                                heard.failed.entry(failed.device).or_default().push(failed.sectors());
                            }
                        }
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

pub(crate) fn tracepoint(kind: Kind) -> Option<Tracepoint> {
    match kind {
        Kind::Ext4 => Some(Tracepoint::Ext4),
        Kind::Xfs => Some(Tracepoint::Xfs),
        Kind::Btrfs | Kind::Other => None,
    }
}

fn text(error: InstanceError) -> String {
    error.to_string()
}
