//! Detects the format of a trace.

use std::fmt;
use std::io::{BufRead, Chain, Cursor, ErrorKind};
use std::str::FromStr;

use super::blktrace::{self, Binary, Blkparse, Matched, is_blkparse};
use super::fio::{self, Iolog};
use super::format::{self, Reader};
use super::input::{Imported, malformed};
use super::oracle::Oracle;
use super::rows::{Alibaba, Mqsim, Msr, Rows, Tencent};
use super::{Source, TraceError};

/// A format of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// trimwise's own format.
    Own,
    /// The text of blkparse.
    Blkparse,
    /// The binary records of blktrace.
    Blktrace,
    /// The iolog of fio.
    Fio,
    /// Traces of MSR Cambridge.
    Msr,
    /// Traces of Alibaba's block storage.
    Alibaba,
    /// Traces of Tencent's block storage.
    Tencent,
    /// The ASCII format of MQSim.
    Mqsim,
    /// The oracleGeneral format of libCacheSim.
    OracleGeneral,
}

impl Format {
    /// Every format with its name and description.
    pub const ALL: [(Self, &str, &str); 9] = [
        (Self::Own, "trimwise", "trimwise's own, as `trimwise record` writes it"),
        (Self::Blkparse, "blkparse", "the text of blkparse, in its default format"),
        (Self::Blktrace, "blktrace", "binary records, as `blktrace -o -` and `blkparse -d` write them"),
        (Self::Fio, "fio", "fio's iolog, version 2 or 3"),
        (Self::Msr, "msr", "MSR Cambridge"),
        (Self::Alibaba, "alibaba", "Alibaba block traces"),
        (Self::Tencent, "tencent", "Tencent block storage; not recognised automatically"),
        (Self::Mqsim, "mqsim", "MQSim's ASCII format; not recognised automatically"),
        (Self::OracleGeneral, "oraclegeneral", "libCacheSim's binary format; not recognised automatically"),
    ];

    fn names() -> String {
        Self::ALL.map(|(_, name, _)| name).join(", ")
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.into_iter().find(|(format, ..)| format == self).map(|(_, name, _)| name);
        f.write_str(name.unwrap_or_default())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|(_, name, _)| *name == text).map(|(format, ..)| format);
        found.ok_or_else(|| format!("unknown trace format '{text}'; expected one of {}", Self::names()))
    }
}

/// Number of bytes that are read to detect the format: more than one line of text.
const HEAD_BYTES: usize = 4096;

/// Opens a trace. Without a format, its first bytes must show which one it has.
///
/// # Errors
/// [`TraceError`] if it is empty, has no such format, or cannot be read.
pub fn open<'a>(
    mut input: impl BufRead + 'a,
    format: Option<Format>,
) -> Result<Box<dyn Source + 'a>, TraceError> {
    let head = head(&mut input)?;
    if head.is_empty() {
        return Err(malformed("byte 0", "the trace is empty", "a block trace"));
    }
    let format = match format.or_else(|| recognise(&head)) {
        Some(format) => format,
        None => {
            let expected = format!(
                "one of {}; if it is one of those, put its name in front of the file's, as in msr:FILE",
                Format::names()
            );
            return Err(malformed("line 1", "its first line shows no known format", &expected));
        }
    };
    let input: Chain<Cursor<Vec<u8>>, _> = std::io::Read::chain(Cursor::new(head), input);
    Ok(match format {
        Format::Own => Box::new(Reader::new(input)?),
        Format::Blkparse => Box::new(Matched::new(Blkparse::new(input))),
        Format::Blktrace => Box::new(Matched::new(Binary::new(input))),
        Format::Fio => Box::new(Imported::new(Iolog::new(input))),
        Format::Msr => Box::new(Imported::new(Rows::<_, Msr>::new(input))),
        Format::Alibaba => Box::new(Imported::new(Rows::<_, Alibaba>::new(input))),
        Format::Tencent => Box::new(Imported::new(Rows::<_, Tencent>::new(input))),
        Format::Mqsim => Box::new(Imported::new(Rows::<_, Mqsim>::new(input))),
        Format::OracleGeneral => Box::new(Imported::new(Oracle::new(input))),
    })
}

/// Reads up to the end of the first line, so that nothing waits for more of a trace that is still being written.
fn head(input: &mut impl BufRead) -> Result<Vec<u8>, TraceError> {
    let mut head = Vec::new();
    while head.len() < HEAD_BYTES && !head.contains(&b'\n') {
        let more = match input.fill_buf() {
            Ok(more) => more,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(source) => return Err(TraceError::Io { place: "byte 0".to_owned(), source }),
        };
        let taken = more.len().min(HEAD_BYTES - head.len());
        if taken == 0 {
            break;
        }
        head.extend_from_slice(&more[..taken]);
        input.consume(taken);
    }
    Ok(head)
}

fn recognise(head: &[u8]) -> Option<Format> {
    if head.starts_with(format::MAGIC_ANY.as_bytes()) {
        return Some(Format::Own);
    }
    if [blktrace::MAGIC.to_le_bytes(), blktrace::MAGIC.to_be_bytes()]
        .iter()
        .any(|magic| head.starts_with(magic))
    {
        return Some(Format::Blktrace);
    }
    let line = head.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?.trim_end();
    let columns: Vec<&str> = line.split(',').map(str::trim).collect();
    match columns[..] {
        _ if line.starts_with(fio::MAGIC) => Some(Format::Fio),
        _ if is_blkparse(line) => Some(Format::Blkparse),
        [_, _, _, kind, _, _, _] if ["Read", "Write", "Type"].contains(&kind) => Some(Format::Msr),
        [_, kind, _, _, _] if ["R", "W", "opcode"].contains(&kind) => Some(Format::Alibaba),
        _ => None,
    }
}
