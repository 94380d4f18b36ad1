//! The kernel's tracepoints, read through a separate trace instance (Documentation/trace/ftrace.rst, "Instances").
//!
//! An instance has its own buffers and events, which no other program uses. Records are read as the kernel wrote them,
//! a page at a time. If they are not read in time, the kernel overwrites the oldest and counts them.
//! [`format`](mod@format) parses pages and records, and is pure.

pub mod format;

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use self::format::{EventFormat, PageFormat, Tracepoint};

pub const TRACING: &str = "/sys/kernel/tracing";

#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    #[error("{0}: tracefs is not mounted there, or cannot be read")]
    NotMounted(String),
    #[error("events/header_page: cannot be parsed")]
    Header,
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
}

/// A trace instance. It is removed on drop; drop the files of [`Instance::pipes`] first.
#[derive(Debug)]
pub struct Instance {
    folder: PathBuf,
    page: PageFormat,
}

fn cannot(path: &Path) -> impl FnOnce(io::Error) -> InstanceError {
    let path = path.display().to_string();
    move |source| InstanceError::Io { path, source }
}

/// Reads `events/header_page`, which must be read in one call of read(2) (`show_header` in
/// kernel/trace/trace_events.c).
fn read_at_once(path: &Path) -> Result<String, InstanceError> {
    let mut buffer = [0; 4096];
    let n = File::open(path).and_then(|mut file| file.read(&mut buffer)).map_err(cannot(path))?;
    Ok(String::from_utf8_lossy(&buffer[..n]).into_owned())
}

impl Instance {
    /// Creates an instance below `tracing`. Replaces one of that name that a killed process left, or else takes it
    /// over.
    pub fn create(tracing: &Path, name: &str) -> Result<Self, InstanceError> {
        let page = tracing.join("events/header_page");
        if !page.exists() {
            return Err(InstanceError::NotMounted(tracing.display().to_string()));
        }
        let page = PageFormat::parse(&read_at_once(&page)?).ok_or(InstanceError::Header)?;
        let folder = tracing.join("instances").join(name);
        drop(fs::remove_dir(&folder));
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(cannot(&folder)(error)),
            _ => Ok(Self { folder, page }),
        }
    }

    pub fn page(&self) -> PageFormat {
        self.page
    }

    pub fn write(&self, file: impl AsRef<Path>, text: &str) -> Result<(), InstanceError> {
        let path = self.folder.join(file);
        fs::write(&path, text).map_err(cannot(&path))
    }

    /// Checks that one of the instance's files, such as `tracing_on`, says 1. The error is a sentence that names what
    /// was turned off.
    pub fn expect_on(&self, file: impl AsRef<Path>) -> Result<(), String> {
        let path = self.folder.join(file);
        let is_on = fs::read_to_string(&path).is_ok_and(|text| text.trim() == "1");
        if is_on { Ok(()) } else { Err(format!("{}: was turned off", path.display())) }
    }

    /// Enables the tracepoints that report failed discards. Returns their layouts; none if this kernel cannot report all
    /// (before Linux 5.18).
    pub fn report_failed_discards(&self) -> Result<Vec<(Tracepoint, EventFormat)>, InstanceError> {
        let find = |point| Some((point, self.find(point)?));
        let found = [Tracepoint::Error, Tracepoint::BioComplete].map(find);
        let Some(found) = found.into_iter().collect::<Option<Vec<_>>>() else { return Ok(Vec::new()) };
        for &(point, _) in &found {
            // Only discards have a D among their letters (blk_fill_rwbs()).
            self.write(Self::event(point, "filter"), "error != 0 && rwbs ~ \"*D*\"")?;
            self.write(Self::event(point, "enable"), "1")?;
        }
        Ok(found)
    }

    pub fn event(point: Tracepoint, file: &str) -> PathBuf {
        Path::new("events").join(point.path()).join(file)
    }

    /// Returns the layout of a tracepoint's records; `None` if this kernel has no such tracepoint, or not until a
    /// module is loaded.
    pub fn find(&self, point: Tracepoint) -> Option<EventFormat> {
        let text = fs::read_to_string(self.folder.join(Self::event(point, "format"))).ok()?;
        point.parse(&text)
    }

    fn processors(&self) -> Result<Vec<PathBuf>, InstanceError> {
        let folder = self.folder.join("per_cpu");
        let entries = fs::read_dir(&folder).map_err(cannot(&folder))?;
        Ok(entries.flatten().map(|entry| entry.path()).collect())
    }

    /// Gives each processor a buffer: an equal share of `total_kib`, from `least_kib` to `most_kib`. Returns the size
    /// of one buffer in KiB.
    pub fn set_buffers(
        &self,
        total_kib: usize,
        least_kib: usize,
        most_kib: usize,
    ) -> Result<usize, InstanceError> {
        let size = (total_kib / self.processors()?.len().max(1)).clamp(least_kib, most_kib);
        self.write("buffer_size_kb", &size.to_string())?;
        Ok(size)
    }

    /// Opens the raw buffers, one per processor. Reading them never waits.
    pub fn pipes(&self) -> Result<Vec<File>, InstanceError> {
        let mut options = File::options();
        options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let open = |folder: PathBuf| {
            let path = folder.join("trace_pipe_raw");
            options.open(&path).map_err(cannot(&path))
        };
        self.processors()?.into_iter().map(open).collect()
    }

    /// Returns the number of records lost so far, according to the kernel: those overwritten before they were read, and
    /// those for which there was no room.
    pub fn lost(&self) -> u64 {
        let texts = self.processors().unwrap_or_default();
        let texts = texts.iter().filter_map(|folder| fs::read_to_string(folder.join("stats")).ok());
        texts.map(|text| lost_in(&text)).sum()
    }
}

/// Removes the instances named `prefix` and the number of a process that is gone.
pub(crate) fn remove_left_behind(tracing: &Path, prefix: &str) {
    remove_unused(tracing, prefix, |process| !Path::new("/proc").join(process).exists());
}

/// Removes the instances whose names begin with `prefix` and go on with what `is_unused` accepts, unless one is read.
pub fn remove_unused(tracing: &Path, prefix: &str, is_unused: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(tracing.join("instances")).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().and_then(|name| name.strip_prefix(prefix)).is_some_and(&is_unused) {
            drop(fs::remove_dir(entry.path()));
        }
    }
}

/// Sums the lost records in the text of `per_cpu/cpuN/stats`.
pub fn lost_in(stats: &str) -> u64 {
    let lost = |line: &str| {
        let (name, number) = line.split_once(": ")?;
        let is_lost = ["overrun", "commit overrun", "dropped events"].contains(&name);
        number.trim().parse::<u64>().ok().filter(|_| is_lost)
    };
    stats.lines().filter_map(lost).sum()
}

impl Drop for Instance {
    fn drop(&mut self) {
        if fs::remove_dir(&self.folder).is_err() {
            // The instance is in use, so at least stop recording.
            drop(self.write("events/enable", "0"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_records_are_summed() {
        let text = "entries: 12\noverrun: 3\ncommit overrun: 1\nbytes: 5480\noldest event ts:  5.2\nnow ts: 7.1\n\
                    dropped events: 20\nread events: 7\n";
        assert_eq!(lost_in(text), 24);
        assert_eq!(lost_in("overrun: many\n"), 0);
    }
}
