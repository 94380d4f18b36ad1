//! What is seen each second: a few short reads, and no file of the mount opened.

use std::path::Path;

use rustix::fs::statvfs;
use rustix::io::Errno;
use trimwise::live::Sample;
use trimwise::units::{Bytes, SimDuration};

use crate::block_device::{BlockDevice, parse_requests, parse_stat};
use crate::mount::Mount;

/// What all devices of a file system count together, and its space.
///
/// # Errors
/// If the mount or a device is gone.
pub fn sample(
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
    for device in devices {
        let text = std::fs::read_to_string(device.sysfs.join("stat")).map_err(|_| Errno::NODEV)?;
        let (done, milliseconds) = parse_requests(&text).ok_or(Errno::NODEV)?;
        sample.requests_done = sample.requests_done.saturating_add(done);
        sample.requests_time += SimDuration::from_millis(milliseconds);
        sample.in_flight += parse_stat(&text).map_or(0, |stat| stat.in_flight);
    }
    Ok(sample)
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
