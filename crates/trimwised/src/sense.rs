//! What is seen each second: a few short reads, and no file of the mount opened.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use rustix::io::Errno;
use trimwise::live::Sample;
use trimwise::units::{Bytes, SimDuration};

use trimwise_linux::block_device::{BlockDevice, parse_requests, parse_stat};
use trimwise_linux::mount::Mount;

/// The counts of a file system's devices, kept open: to open such a file takes longer than to read it, and with many file
/// systems that is most of what the daemon costs. They are files of sysfs, none of the mount.
#[derive(Debug, Default)]
pub struct Senses {
    /// By the folder of the device.
    stats: Vec<(PathBuf, File)>,
}

impl Senses {
    /// What all devices of a file system count together, and its space.
    ///
    /// # Errors
    /// If the mount or a device is gone.
    pub fn sample(
        &mut self,
        path: &Path,
        mount: &Mount,
        devices: &[BlockDevice],
        pressure_permille: u64,
    ) -> Result<Sample, Errno> {
        let space = statvfs(path)?;
        let bytes = |blocks: u64| Bytes(blocks.saturating_mul(space.f_frsize));
        let mut sample = Sample {
            used: bytes(space.f_blocks.saturating_sub(space.f_bfree)),
            total: bytes(space.f_blocks),
            pressure_permille,
            online: mount.discard() != "nodiscard",
            ..Sample::default()
        };
        let counted = self.open(devices).and_then(|()| self.count(&mut sample));
        if counted.is_none() {
            // A device that comes back under its name has another file.
            self.stats.clear();
        }
        counted.map(|()| sample).ok_or(Errno::NODEV)
    }

    fn open(&mut self, devices: &[BlockDevice]) -> Option<()> {
        if !self.stats.iter().map(|(sysfs, _)| sysfs).eq(devices.iter().map(|device| &device.sysfs)) {
            let open = |device: &BlockDevice| {
                Some((device.sysfs.clone(), File::open(device.sysfs.join("stat")).ok()?))
            };
            self.stats = devices.iter().map(open).collect::<Option<_>>()?;
        }
        Some(())
    }

    fn count(&self, sample: &mut Sample) -> Option<()> {
        for (_, file) in &self.stats {
            // Seventeen numbers of at most 20 digits.
            let mut buffer = [0; 512];
            let read = file.read_at(&mut buffer, 0).ok()?;
            let text = std::str::from_utf8(buffer.get(..read)?).ok()?;
            let (done, milliseconds) = parse_requests(text)?;
            sample.requests_done = sample.requests_done.saturating_add(done);
            sample.requests_time += SimDuration::from_millis(milliseconds);
            sample.in_flight += parse_stat(text).map_or(0, |stat| stat.in_flight);
        }
        Some(())
    }
}

/// The share of the last 10 s in which some task waited for I/O, in thousandths, as `/proc/pressure/io` says it; 0 where
/// the kernel does not.
pub fn pressure(proc: &Path) -> u64 {
    parse_pressure(&std::fs::read_to_string(proc.join("pressure/io")).unwrap_or_default()).unwrap_or(0)
}

/// Reads `some avg10=1.25 avg60=...`.
pub fn parse_pressure(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let percent = line.split_ascii_whitespace().find_map(|field| field.strip_prefix("avg10="))?;
    let (whole, part) = percent.split_once('.').unwrap_or((percent, "0"));
    let tenths = part.get(..1)?.parse::<u64>().ok()?;
    Some(whole.parse::<u64>().ok()?.saturating_mul(10).saturating_add(tenths))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read_in_thousandths() {
        let text =
            "some avg10=12.34 avg60=1.00 avg300=0.00 total=1\nfull avg10=99.00 avg60=0 avg300=0 total=0\n";
        assert_eq!(parse_pressure(text), Some(123));
        assert_eq!(parse_pressure("some avg10=100.00"), Some(1000));
        for other in ["", "full avg10=1.00", "some avg10=x.1", "some avg10=1."] {
            assert_eq!(parse_pressure(other), None, "{other}");
        }
    }
}
