//! Bytes from which one can tell which operation wrote them, and where in a file they belong.
//!
//! A file is a row of cells of 16 bytes. A cell holds the number of the operation that wrote it, its own number in the
//! file, and a hash of both, which also masks them: so each byte depends on the operation. Writes can begin and end
//! within a cell, which then has parts of two. Those bytes are reported as they are; a caller who knows the candidates
//! compares them ([`byte`]).

use serde::{Deserialize, Serialize};

use crate::content::mixed;

pub const CELL_BYTES: u64 = 16;
/// Maximum number of bytes in a row that are reported as they are. More of them are no mixture of cells, but garbage.
const RAW_BYTES_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Run {
    /// Zeros, this many.
    Zeros(u64),
    /// Whole cells of an operation: its number, and bytes.
    Of(u32, u64),
    /// Bytes that are neither.
    Raw(Vec<u8>),
    /// Too many such bytes to report; their number.
    Garbage(u64),
}

impl Run {
    pub fn length_bytes(&self) -> u64 {
        match self {
            Self::Zeros(bytes) | Self::Of(_, bytes) | Self::Garbage(bytes) => *bytes,
            Self::Raw(bytes) => bytes.len() as u64,
        }
    }
}

/// Returns the cell with this number in a file, as this operation writes it.
fn cell(operation: u32, number: u32) -> [u8; CELL_BYTES as usize] {
    let tag = u64::from(operation) << 32 | u64::from(number);
    // The hash keeps every cell from being zeros or looking like another.
    let hash = mixed(tag);
    (u128::from(hash) << 64 | u128::from(tag ^ hash)).to_le_bytes()
}

/// Returns the byte at an offset in a file, as this operation writes it.
pub fn byte(operation: u32, offset_bytes: u64) -> u8 {
    cell(operation, (offset_bytes / CELL_BYTES) as u32)[(offset_bytes % CELL_BYTES) as usize]
}

/// Returns the bytes that an operation writes at an offset in a file.
pub fn written(operation: u32, offset_bytes: u64, length_bytes: u64) -> Vec<u8> {
    let first = offset_bytes / CELL_BYTES;
    let last = (offset_bytes + length_bytes).div_ceil(CELL_BYTES);
    let mut bytes: Vec<u8> = (first..last).flat_map(|number| cell(operation, number as u32)).collect();
    bytes.drain(..(offset_bytes % CELL_BYTES) as usize);
    bytes.truncate(length_bytes as usize);
    bytes
}

/// Attributes each byte of a file to the operation that wrote it.
pub fn attribute(bytes: &[u8]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (number, found) in (0..).zip(bytes.chunks(CELL_BYTES as usize)) {
        let length = found.len() as u64;
        let operation = found.try_into().ok().map(|cell: [u8; CELL_BYTES as usize]| {
            let cell = u128::from_le_bytes(cell);
            (((cell >> 64) ^ cell) as u64 >> 32) as u32
        });
        let operation = operation.filter(|&operation| found == cell(operation, number));
        let is_zero = found.iter().all(|&byte| byte == 0);
        match (runs.last_mut(), operation) {
            (Some(Run::Zeros(bytes)), None) if is_zero => *bytes += length,
            (Some(Run::Of(last, bytes)), Some(operation)) if *last == operation => *bytes += length,
            (Some(Run::Raw(bytes)), None) if !is_zero => bytes.extend_from_slice(found),
            (_, Some(operation)) => runs.push(Run::Of(operation, length)),
            (_, None) if is_zero => runs.push(Run::Zeros(length)),
            (_, None) => runs.push(Run::Raw(found.to_vec())),
        }
    }
    for run in &mut runs {
        if let Run::Raw(bytes) = run
            && bytes.len() > RAW_BYTES_MAX
        {
            *run = Run::Garbage(bytes.len() as u64);
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_attributed_and_what_lies_elsewhere_is_not() {
        let mut file = vec![0; 100];
        file[20..90].copy_from_slice(&written(7, 20, 70));
        let raw = |range: std::ops::Range<usize>| Run::Raw(file[range].to_vec());
        let expected = [Run::Zeros(16), raw(16..32), Run::Of(7, 48), raw(80..96), Run::Zeros(4)];
        assert_eq!(attribute(&file), expected);
        assert!((20..90).all(|at| file[at as usize] == byte(7, at)));
        assert_ne!(byte(7, 32), byte(8, 32), "also the first byte of a cell tells them apart");
        let moved: Vec<u8> = file[32..].to_vec();
        assert!(matches!(attribute(&moved)[0], Run::Raw(_)), "the same bytes at another place");
        assert_eq!(attribute(&vec![0xdb; 9_000]), [Run::Garbage(9_000)]);
    }
}
