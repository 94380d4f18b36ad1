//! Maps a mounted device to the disks below it, through partitions and the device mapper's linear mappings.
//!
//! A partition is a piece of its disk. A device-mapper device is defined by its table. Only tables of `linear` targets
//! (LVM's ordinary volumes) are followed, since only there does each byte lie at one place of one device below.

use std::process::{Command, Stdio};

use thiserror::Error;
use trimwise::units::SECTOR_BYTES;

use crate::block_device::{BlockDevice, BlockDeviceError, LAYERS_MAX};
use crate::ioctl::child::die_with_parent;

/// A line of a device-mapper table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First sector on the upper device.
    pub start: u64,
    pub sectors: u64,
    /// Major and minor number of the device below.
    pub below: (u32, u32),
    /// First sector on the device below.
    pub offset: u64,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TableError {
    #[error("its mapping is of type '{0}'")]
    Kind(String),
    #[error(
        "line {line} of its table, '{text}', is not a linear mapping; expected START SECTORS linear MAJOR:MINOR OFFSET"
    )]
    Line { line: usize, text: String },
    #[error("its table cannot be read: {0}")]
    NoTable(String),
}

#[derive(Debug)]
pub enum Below {
    Nothing,
    /// The disk of a partition, and the byte at which the partition starts.
    Disk(Box<BlockDevice>, u64),
    Linear(Vec<Piece>),
    /// Something that cannot be followed.
    Opaque(TableError),
}

/// Finds the layer directly below `device`.
pub fn below(device: &BlockDevice) -> Below {
    if let Some(Ok(disk)) = device.sysfs.disk().map(BlockDevice::of) {
        return Below::Disk(Box::new(disk), device.start.0);
    }
    if device.sysfs.has("md") {
        return Below::Opaque(TableError::Kind("Linux RAID".to_owned()));
    }
    let Some(name) = device.sysfs.text("dm/name") else { return Below::Nothing };
    match table(&name).and_then(|text| parse_table(&text)) {
        Ok(pieces) => Below::Linear(pieces),
        Err(error) => Below::Opaque(error),
    }
}

pub(crate) fn table(name: &str) -> Result<String, TableError> {
    dmsetup("table", name)
}

/// Returns what `dmsetup VERB NAME` prints.
pub(crate) fn dmsetup(verb: &str, name: &str) -> Result<String, TableError> {
    let mut command = Command::new("dmsetup");
    command.args([verb, name]).stdin(Stdio::null());
    // One that hangs must not outlive a worker that was given up.
    die_with_parent(&mut command);
    let output = command.output().map_err(|error| TableError::NoTable(format!("dmsetup: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(TableError::NoTable(format!("dmsetup: {}", said.lines().next().unwrap_or("failed"))));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Parses the output of `dmsetup table NAME`. An error names the type of the first line that is not linear.
pub fn parse_table(text: &str) -> Result<Vec<Piece>, TableError> {
    let mut pieces = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let wrong = || TableError::Line { line: index + 1, text: line.chars().take(200).collect() };
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |n: usize| fields.get(n).and_then(|field| field.parse::<u64>().ok());
        let (start, sectors) = number(0).zip(number(1)).ok_or_else(wrong)?;
        match fields.get(2) {
            Some(&"linear") => {}
            Some(kind) => return Err(TableError::Kind((*kind).chars().take(40).collect())),
            None => return Err(wrong()),
        }
        let pair = fields.get(3).and_then(|pair| pair.split_once(':'));
        let numbers = pair.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        let (below, offset) = numbers.zip(number(4)).ok_or_else(wrong)?;
        let ends = [start.checked_add(sectors), offset.checked_add(sectors)];
        if ends.iter().any(|end| end.and_then(|end| end.checked_mul(SECTOR_BYTES)).is_none()) {
            return Err(wrong());
        }
        pieces.push(Piece { start, sectors, below, offset });
    }
    if pieces.is_empty() {
        return Err(TableError::NoTable("it is empty".to_owned()));
    }
    Ok(pieces)
}

/// Maps `bytes` bytes at `offset` through `pieces` to a device and an offset there. Returns `None` if no one piece
/// contains them.
pub fn through(pieces: &[Piece], offset: u64, bytes: u64) -> Option<((u32, u32), u64)> {
    let end = offset.checked_add(bytes)?;
    let inside = |piece: &&Piece| {
        let start = piece.start * SECTOR_BYTES;
        offset >= start && end <= start + piece.sectors * SECTOR_BYTES
    };
    let piece = pieces.iter().find(inside)?;
    Some((piece.below, offset - piece.start * SECTOR_BYTES + piece.offset * SECTOR_BYTES))
}

/// A device with all layers below it.
#[derive(Debug)]
pub struct Stack {
    devices: Vec<(BlockDevice, Below)>,
}

impl Stack {
    /// Examines `top` and everything below it.
    pub fn of(top: &BlockDevice) -> Result<Self, BlockDeviceError> {
        let mut devices = vec![(top.clone(), below(top))];
        let mut index = 0;
        while let Some((_, below_it)) = devices.get(index) {
            let next: Vec<BlockDevice> = match below_it {
                Below::Nothing | Below::Opaque(_) => Vec::new(),
                Below::Disk(disk, _) => vec![(**disk).clone()],
                Below::Linear(pieces) => pieces
                    .iter()
                    .map(|piece| BlockDevice::of_numbers(piece.below))
                    .collect::<Result<_, _>>()?,
            };
            for device in next {
                if !devices.iter().any(|(known, _)| known.numbers == device.numbers) {
                    let below_it = below(&device);
                    devices.push((device, below_it));
                }
            }
            index += 1;
        }
        Ok(Self { devices })
    }

    /// Iterates over the lowest known devices: disks, and devices that cannot be followed further, with the reason.
    pub(crate) fn lowest(&self) -> impl Iterator<Item = (&BlockDevice, Option<&TableError>)> {
        self.devices.iter().filter_map(|(device, below)| match below {
            Below::Nothing => Some((device, None)),
            Below::Opaque(error) => Some((device, Some(error))),
            Below::Disk(..) | Below::Linear(_) => None,
        })
    }

    /// Maps `bytes` bytes at `offset` of the top device to one of the lowest. Returns `None` if they are not contiguous
    /// there.
    pub fn place(&self, offset: u64, bytes: u64) -> Option<((u32, u32), u64)> {
        let mut at = (self.devices.first()?.0.numbers, offset);
        for _ in 0..LAYERS_MAX {
            let (device, below) = self.devices.iter().find(|(device, _)| device.numbers == at.0)?;
            at = match below {
                Below::Nothing | Below::Opaque(_) => return Some(at),
                Below::Disk(disk, start) => {
                    (at.1.checked_add(bytes)? <= device.size.0).then_some(())?;
                    (disk.numbers, at.1.checked_add(*start)?)
                }
                Below::Linear(pieces) => through(pieces, at.1, bytes)?,
            };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_tables_are_followed_piece_by_piece() {
        let pieces = parse_table("0 2048 linear 8:1 2048\n2048 1000 linear 8:17 384\n").unwrap();
        assert_eq!(pieces[1], Piece { start: 2048, sectors: 1000, below: (8, 17), offset: 384 });
        assert_eq!(through(&pieces, 4096, 4096), Some(((8, 1), 2048 * 512 + 4096)));
        assert_eq!(through(&pieces, 2048 * 512, 4096), Some(((8, 17), 384 * 512)));
        assert_eq!(through(&pieces, 2047 * 512, 4096), None, "in two pieces");
        assert_eq!(through(&pieces, 3048 * 512, 512), None, "after the end");
        assert_eq!(through(&pieces, u64::MAX, 512), None);
    }

    #[test]
    fn other_tables_are_named() {
        let said = |text: &str| parse_table(text).unwrap_err().to_string();
        assert_eq!(
            said("0 409600 crypt aes-xts-plain64 :64:logon:x 0 8:2 32768"),
            "its mapping is of type 'crypt'"
        );
        assert_eq!(said(""), "its table cannot be read: it is empty");
        for text in [
            "0",
            "x 1 linear 8:1 0",
            "0 1 linear 8 0",
            "0 1 linear 8:1",
            "0 18446744073709551615 linear 8:1 1",
        ] {
            assert!(
                said(text).starts_with(&format!("line 1 of its table, '{text}', is not a linear")),
                "{text}"
            );
        }
    }
}
