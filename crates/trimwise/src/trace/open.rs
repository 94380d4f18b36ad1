//! Detects the format of a trace.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use memchr::memchr;

use super::blktrace::{self, Binary, KERNEL_HEADING, Matched, Text, is_blkparse, is_kernel_text};
use super::fio::{self, Iolog};
use super::fixed::{Fixed, Oracle, Vscsi, no_vscsi};
use super::format::{self, Reader};
use super::input::{Imported, Input, billionths, failed, malformed, words};
use super::rows::{
    Alibaba, Biosnoop, CloudPhysics, DiskSim, Etw, Mqsim, Msr, Row, Rows, Spc, Systor, Tencent,
    is_banner_of_biosnoop, is_banner_of_xperf, is_heading_of_biosnoop,
};
use super::{Source, TraceError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Own,
    Blkparse,
    Blktrace,
    Tracepoints,
    Biosnoop,
    Fio,
    Msr,
    Systor,
    /// Storage Performance Council.
    Spc,
    Etw,
    /// CloudPhysics as text.
    CloudPhysics,
    /// CloudPhysics as VMware's binary records.
    Vscsi,
    Alibaba,
    Tencent,
    Mqsim,
    DiskSim,
    OracleGeneral,
}

impl Format {
    pub const ALL: [(Self, &str, &str); 17] = [
        (Self::Own, "trimwise", "trimwise's own, as `trimwise record` writes it"),
        (Self::Blkparse, "blkparse", "the text of blkparse, in its default format"),
        (Self::Blktrace, "blktrace", "binary records: a stream, or DEV.blktrace.N of each processor"),
        (Self::Tracepoints, "tracepoints", "block tracepoints as text: tracefs, trace-cmd, perf script"),
        (Self::Biosnoop, "biosnoop", "the text of biosnoop (bcc, libbpf-tools) or iosnoop (perf-tools)"),
        (Self::Fio, "fio", "fio's iolog, version 2 or 3"),
        (Self::Msr, "msr", "MSR Cambridge"),
        (Self::Systor, "systor", "SYSTOR '17 (Fujitsu's virtual desktops)"),
        (Self::Spc, "spc", "SPC: Financial and WebSearch of the UMass repository"),
        (Self::Etw, "etw", "Event Tracing for Windows, as xperf prints it"),
        (Self::CloudPhysics, "cloudphysics", "CloudPhysics as csv; sectors alone are not recognised"),
        (Self::Vscsi, "vscsi", "CloudPhysics as VMware's records, version 1 or 2"),
        (Self::Alibaba, "alibaba", "Alibaba block traces"),
        (Self::Tencent, "tencent", "Tencent block storage; not recognised automatically"),
        (Self::Mqsim, "mqsim", "MQSim's and SSDsim's ASCII format; not recognised automatically"),
        (Self::DiskSim, "disksim", "DiskSim's ASCII format; not recognised automatically"),
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

/// Number of bytes read to detect the format: more than one line of text, and the comments before it.
const HEAD_BYTES: usize = 4096;
const COMMENTS_BYTES: usize = 1 << 16;

/// A file of a trace: its name, for messages, and its bytes.
pub type Part<'a> = (String, Box<dyn Read + 'a>);

/// Opens a trace. Without a given format, its first bytes must show which one it has.
///
/// # Errors [`TraceError`] if it is empty, has no known format, or cannot be read.
pub fn open<'a>(input: impl Read + 'a, format: Option<Format>) -> Result<Box<dyn Source + 'a>, TraceError> {
    open_parts(vec![(String::new(), Box::new(input))], format)
}

/// Opens a trace of one or several files. Several are those of blktrace, one for each processor. If one of several
/// cannot even begin to be read, its error comes at the end of the others.
pub fn open_parts(parts: Vec<Part<'_>>, format: Option<Format>) -> Result<Box<dyn Source + '_>, TraceError> {
    let is_one = parts.len() == 1;
    let (mut inputs, mut unread) = (Vec::new(), None);
    for (name, part) in parts {
        let mut input = Input::new(part);
        // Of several files, those of processors that did nothing are empty.
        match read_head(&mut input) {
            Ok(()) => inputs.push((name, input)),
            Err(source) if is_one => return Err(failed(source, "byte 0".to_owned())),
            Err(source) => unread = unread.or(Some(failed(source, name))),
        }
    }
    let begun = inputs.iter().find(|(_, input)| !input.rest().is_empty());
    let Some((_, begun)) = begun else {
        return Err(unread.unwrap_or_else(|| malformed("byte 0", "the trace is empty", "a block trace")));
    };
    // Records of oracleGeneral may begin with any bytes.
    if format != Some(Format::OracleGeneral) {
        expect_none_of_others(begun.rest())?;
    }
    let format = match format {
        Some(format) => format,
        None => recognise(begun.rest())?,
    };
    if format == Format::Blktrace {
        return Ok(Box::new(Matched::new(Binary::new(inputs, unread))));
    }
    let (Some((_, mut input)), true) = (inputs.pop(), is_one) else {
        return Err(malformed(
            "byte 0",
            format!("several files of {format}"),
            "several files of blktrace only",
        ));
    };
    if format.is_text() && input.rest().starts_with(BYTE_ORDER_MARK) {
        input.consume(BYTE_ORDER_MARK.len());
    }
    Ok(match format {
        Format::Own => Box::new(Reader::of(input)?),
        Format::Blkparse => Box::new(Matched::new(Text::<false>::new(input))),
        Format::Blktrace => Box::new(Matched::new(Binary::new(vec![(String::new(), input)], None))),
        Format::Tracepoints => Box::new(Matched::new(Text::<true>::new(input))),
        Format::Fio => Box::new(Imported::new(Iolog::new(input))),
        Format::Biosnoop => rows::<Biosnoop>(input),
        Format::Msr => rows::<Msr>(input),
        Format::Systor => rows::<Systor>(input),
        Format::Spc => rows::<Spc>(input),
        Format::Etw => rows::<Etw>(input),
        Format::CloudPhysics => rows::<CloudPhysics>(input),
        Format::Alibaba => rows::<Alibaba>(input),
        Format::Tencent => rows::<Tencent>(input),
        Format::Mqsim => rows::<Mqsim>(input),
        Format::DiskSim => rows::<DiskSim>(input),
        Format::Vscsi => {
            let version = Vscsi::recognise(input.rest()).ok_or_else(no_vscsi)?;
            Box::new(Imported::new(Fixed::new(input, version)))
        }
        Format::OracleGeneral => Box::new(Imported::new(Fixed::new(input, Oracle))),
    })
}

fn rows<'a, F: Row + 'a>(input: Input<'a>) -> Box<dyn Source + 'a> {
    Box::new(Imported::new(Rows::<F>::new(input)))
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads up to the end of the first line with content, so that nothing waits for more of a trace that is still being
/// written.
fn read_head(input: &mut Input<'_>) -> io::Result<()> {
    let is_enough = |head: &[u8]| {
        let rest = behind_comments(head);
        rest.contains(&b'\n') || rest.len() >= HEAD_BYTES || head.len() >= COMMENTS_BYTES
    };
    while !is_enough(input.rest()) {
        if !input.more()? {
            break;
        }
    }
    Ok(())
}

/// Files that are no trace by themselves: their first bytes, what they are, and what to do.
const OTHERS: [(&[u8], &str, &str); 8] = [
    (b"\xfd7zXZ\0", "compressed with xz", "plain text, zstd or gzip: xz -dc FILE | trimwise trace info -"),
    (b"BZh", "compressed with bzip2", "plain text, zstd or gzip: bzip2 -dc FILE | trimwise trace info -"),
    (
        b"\x04\x22\x4d\x18",
        "compressed with lz4",
        "plain text, zstd or gzip: lz4 -dc FILE | trimwise trace info -",
    ),
    (b"PK\x03\x04", "a zip archive", "plain text, zstd or gzip: unzip -p FILE | trimwise trace info -"),
    (
        b"7z\xbc\xaf\x27\x1c",
        "a 7z archive",
        "plain text, zstd or gzip: 7z x -so FILE | trimwise trace info -",
    ),
    (b"\xff\xfe", "text in UTF-16", "UTF-8: iconv -f UTF-16 -t UTF-8 FILE | trimwise trace info -"),
    (b"\xfe\xff", "text in UTF-16", "UTF-8: iconv -f UTF-16 -t UTF-8 FILE | trimwise trace info -"),
    (b"<?xml", "XML", "a block trace"),
];

/// Returns the text after the lines that tell nothing about the format: empty ones, comments, and what some tools print
/// before their first line.
fn behind_comments(head: &[u8]) -> &[u8] {
    let mut rest = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head);
    while let Some(end) = memchr(b'\n', rest) {
        let line = rest[..end].trim_ascii();
        let is_comment = line.is_empty() || line.starts_with(b"#");
        if !is_comment && !is_banner_of_biosnoop(line) && !is_banner_of_xperf(line) {
            break;
        }
        rest = &rest[end + 1..];
    }
    rest
}

impl Format {
    fn is_text(self) -> bool {
        !matches!(self, Self::Own | Self::Blktrace | Self::Vscsi | Self::OracleGeneral)
    }
}

fn recognise(head: &[u8]) -> Result<Format, TraceError> {
    if head.starts_with(format::MAGIC_ANY.as_bytes()) {
        return Ok(Format::Own);
    }
    if [blktrace::MAGIC.to_le_bytes(), blktrace::MAGIC.to_be_bytes()]
        .iter()
        .any(|magic| head.starts_with(magic))
    {
        return Ok(Format::Blktrace);
    }
    let text = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head);
    // The heading of the kernel's text is a comment, too.
    let text = if text.starts_with(KERNEL_HEADING) { text } else { behind_comments(text) };
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    let columns: Vec<&[u8]> = line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).collect();
    let is_kind = |kind: &[u8]| matches!(kind, b"R" | b"W" | b"r" | b"w");
    let found = match columns[..] {
        _ if line.starts_with(fio::MAGIC.as_bytes()) => Format::Fio,
        _ if is_blkparse(line) => Format::Blkparse,
        _ if is_kernel_text(line) || is_trace_cmd(text) => Format::Tracepoints,
        _ if is_heading_of_biosnoop(line) => Format::Biosnoop,
        [b"BeginHeader"] | [b"DiskRead" | b"DiskWrite" | b"DiskFlush", _, _, ..] => Format::Etw,
        [b"version", b"time", b"op", b"size", b"lbn"] => Format::CloudPhysics,
        [_, _, _, b"Read" | b"Write" | b"Type", _, _, _] => Format::Msr,
        [b"Timestamp", b"Response", b"IOType", b"LUN", b"Offset", b"Size"] => Format::Systor,
        [at, _, kind, _, _, _] if at.contains(&b'.') && (is_kind(kind) || kind.is_empty()) => Format::Systor,
        [_, b"R" | b"W" | b"opcode", _, _, _] => Format::Alibaba,
        [b"ASU", b"LBA", ..] => Format::Spc,
        [_, _, _, kind, at, ..] if is_kind(kind) && billionths(at).is_some() => Format::Spc,
        _ if Vscsi::recognise(head).is_some() => Format::Vscsi,
        _ => {
            let before = &head[..head.len() - text.len()];
            return Err(unknown(line, 1 + before.iter().filter(|byte| **byte == b'\n').count()));
        }
    };
    Ok(found)
}

fn is_trace_cmd(text: &[u8]) -> bool {
    let mut lines = text.split(|byte| *byte == b'\n');
    lines.next().is_some_and(|line| line.starts_with(b"cpus=")) && lines.take(9).any(is_kernel_text)
}

fn expect_none_of_others(head: &[u8]) -> Result<(), TraceError> {
    if let Some((_, what, expected)) = OTHERS.iter().find(|(magic, ..)| head.starts_with(magic)) {
        return Err(malformed("byte 0", *what, expected));
    }
    if head.get(257..262) == Some(b"ustar") {
        let expected = "one of its files: tar -xOf ARCHIVE FILE | trimwise trace info -";
        return Err(malformed("byte 0", "a tar archive", expected));
    }
    Ok(())
}

fn unknown(line: &[u8], number: usize) -> TraceError {
    // Formats without a mark are guessed from the shape of a line.
    let numbers = |separator: fn(&u8) -> bool| {
        let fields = line.split(separator).filter(|field| !field.is_empty());
        fields.map(|field| field.trim_ascii().iter().all(u8::is_ascii_digit)).collect::<Vec<bool>>()
    };
    let is_disksim = || {
        let (at, others) = line.split_at(memchr(b' ', line).unwrap_or(line.len()));
        at.contains(&b'.') && billionths(at).is_some() && words(others).count() == 4
    };
    let hint = match () {
        () if is_disksim() => "; a time in milliseconds and four numbers may be disksim:FILE",
        () if numbers(u8::is_ascii_whitespace) == [true; 5] => "; five numbers may be mqsim:FILE",
        () if numbers(|byte| *byte == b',') == [true; 5] => "; five numbers may be tencent:FILE",
        () if numbers(|byte| *byte == b',') == [true] => "; a number alone may be cloudphysics:FILE",
        () => "",
    };
    let expected = format!(
        "one of {}; if it is one of those, put its name in front of the file's, as in msr:FILE{hint}",
        Format::names()
    );
    malformed(&format!("line {number}"), "it is the first line, and matches no known format", &expected)
}
