//! fio's iolog, versions 2 and 3.
//!
//! The format is described in `HOWTO.rst` ("Trace file format") and `iolog.c` of github.com/axboe/fio. The first line
//! names the version. Version 2 has lines `FILE ACTION` and `FILE ACTION OFFSET LENGTH`, and `FILE wait MICROSECONDS`
//! between them, which is relative to the last wait; without any, all requests have the same time. (fio's code takes it
//! for milliseconds since its start; this follows the documentation.) Version 3 puts a time in microseconds in front of
//! each line, and has no wait. Actions are add, open and close, which do not reach a drive; read, write and trim, in
//! bytes; sync and datasync.
//!
//! `trim` is read like the others. fio itself dropped it when it replayed a log (axboe/fio#769), or stopped
//! (axboe/fio#771).

use super::input::{
    Input, Lines, Names, Parser, Wrong, field, malformed, nanos, plain, sectors_of_bytes, shown, words,
};
use super::{Request, RequestKind, TraceError};
use crate::units::{Lba, SectorRange};

pub(super) const MAGIC: &str = "fio version ";

#[derive(Debug)]
pub(super) struct Iolog<'a> {
    lines: Lines<'a>,
    /// 0 until the first line has been read.
    version: u8,
    waited_ns: u64,
}

impl<'a> Iolog<'a> {
    pub fn new(input: Input<'a>) -> Self {
        Self { lines: Lines::new(input), version: 0, waited_ns: 0 }
    }

    fn read_version(&mut self) -> Result<(), TraceError> {
        while self.version == 0 {
            self.version = match self.lines.next()?.unwrap_or(b"nothing") {
                b"fio version 2 iolog" => 2,
                b"fio version 3 iolog" => 3,
                line if is_comment(line) => 0,
                other => {
                    let (what, expected) = (shown(other), "'fio version 2 iolog' or 'fio version 3 iolog'");
                    return Err(malformed(&self.lines.place(), what, expected));
                }
            };
        }
        Ok(())
    }
}

fn is_comment(line: &[u8]) -> bool {
    line.is_empty() || line.starts_with(b"#")
}

enum Line<'a> {
    Nothing,
    Empty,
    Wait(u64),
    Request(u64, &'a [u8], Request),
}

/// fio appends the logs of all jobs that have the same `write_iolog` file, each with times of its own.
const ONE_LOG: &str = "the log of one job; csplit -z LOG '/^fio version/' '{*}' makes a file of each";

fn parse(line: &[u8], version: u8, waited_ns: u64) -> Result<Line<'_>, Wrong> {
    const ACTIONS: &str = "add, open, close, read, write, trim, sync, datasync or (version 2) wait";
    if line.starts_with(MAGIC.as_bytes()) {
        return Err(Wrong("a second log begins here".to_owned(), ONE_LOG));
    }
    let mut words = words(line);
    let at = match version {
        2 => waited_ns,
        _ => nanos(field(words.next(), "a time in microseconds")?, 1_000)?,
    };
    let (file, action) = (words.next(), words.next());
    let (Some(file), Some(action)) = (file, action) else {
        return Err(Wrong(shown(line), "a file and an action"));
    };
    let kind = match action {
        b"add" | b"open" | b"close" => return Ok(Line::Nothing),
        b"wait" if version == 2 => {
            return Ok(Line::Wait(nanos(field(words.next(), "microseconds to wait")?, 1_000)?));
        }
        b"read" => RequestKind::Read,
        b"write" => RequestKind::Write,
        b"trim" => RequestKind::Discard,
        b"sync" | b"datasync" | b"syncfs" => {
            let flush = plain(RequestKind::Flush, SectorRange::new(Lba(0), 0));
            return Ok(Line::Request(at, file, flush));
        }
        other => return Err(Wrong(format!("action {}", shown(other)), ACTIONS)),
    };
    let offset = field(words.next(), "an offset in bytes")?;
    let range = sectors_of_bytes(kind, offset, field(words.next(), "a length in bytes")?)?;
    if let Some(more) = words.next() {
        return Err(Wrong(format!("{} after the length", shown(more)), "the end of the line"));
    }
    Ok(if range.sectors == 0 { Line::Empty } else { Line::Request(at, file, plain(kind, range)) })
}

impl Parser for Iolog<'_> {
    type Item = (u32, Request);
    const MADE_BY: &'static str = "fio";

    fn parse(&mut self, names: &mut Names) -> Result<Option<(u64, Self::Item)>, TraceError> {
        if self.version == 0 {
            self.read_version()?;
        }
        loop {
            let Some(line) = self.lines.next()? else { return Ok(None) };
            if is_comment(line) {
                continue;
            }
            let parsed = parse(line, self.version, self.waited_ns).and_then(|line| {
                Ok(match line {
                    Line::Request(at, file, request) => (0, Some((at, (names.index(file)?, request)))),
                    Line::Wait(ns) => (ns, None),
                    Line::Nothing => (0, None),
                    Line::Empty => {
                        names.left_out.empty += 1;
                        (0, None)
                    }
                })
            });
            let parsed = parsed.map_err(|wrong| wrong.on(line));
            let (wait, item) = parsed.map_err(|wrong| wrong.at(&self.lines.place()))?;
            self.waited_ns = self.waited_ns.saturating_add(wait);
            if item.is_some() {
                return Ok(item);
            }
        }
    }

    fn place(&self) -> String {
        self.lines.place()
    }
}
