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

use std::io::BufRead;

use super::input::{Lines, Names, Parser, Wrong, field, malformed, nanos, plain, sectors_of_bytes};
use super::{Request, RequestKind, TraceError};
use crate::units::{Lba, SectorRange};

pub(super) const MAGIC: &str = "fio version ";

#[derive(Debug)]
pub(super) struct Iolog<R> {
    lines: Lines<R>,
    /// 0 until the first line was read.
    version: u8,
    waited_ns: u64,
}

impl<R: BufRead> Iolog<R> {
    pub fn new(input: R) -> Self {
        Self { lines: Lines::new(input), version: 0, waited_ns: 0 }
    }

    fn read_version(&mut self) -> Result<(), TraceError> {
        let line = self.lines.next()?.unwrap_or_default();
        self.version = match line {
            "fio version 2 iolog" => 2,
            "fio version 3 iolog" => 3,
            other => {
                let expected = "'fio version 2 iolog' or 'fio version 3 iolog'";
                return Err(malformed("line 1", format!("'{other}'"), expected));
            }
        };
        Ok(())
    }
}

enum Line<'a> {
    Nothing,
    Wait(u64),
    Request(u64, &'a str, Request),
}

fn parse(line: &str, version: u8, waited_ns: u64) -> Result<Line<'_>, Wrong> {
    const ACTIONS: &str = "add, open, close, read, write, trim, sync, datasync or (version 2) wait";
    let mut words = line.split_whitespace();
    let at = match version {
        2 => waited_ns,
        _ => nanos(field(words.next(), "a time in microseconds")?, 1_000)?,
    };
    let (file, action) = (words.next(), words.next());
    let (Some(file), Some(action)) = (file, action) else {
        return Err(Wrong(format!("'{line}'"), "a file and an action"));
    };
    let kind = match action {
        "add" | "open" | "close" => return Ok(Line::Nothing),
        "wait" if version == 2 => {
            return Ok(Line::Wait(nanos(field(words.next(), "microseconds to wait")?, 1_000)?));
        }
        "read" => RequestKind::Read,
        "write" => RequestKind::Write,
        "trim" => RequestKind::Discard,
        "sync" | "datasync" | "syncfs" => {
            let flush = plain(RequestKind::Flush, SectorRange::new(Lba(0), 0));
            return Ok(Line::Request(at, file, flush));
        }
        other => return Err(Wrong(format!("action '{other}'"), ACTIONS)),
    };
    let offset = field(words.next(), "an offset in bytes")?;
    let range = sectors_of_bytes(kind, offset, field(words.next(), "a length in bytes")?)?;
    if let Some(more) = words.next() {
        return Err(Wrong(format!("'{more}' after the length"), "the end of the line"));
    }
    Ok(if range.sectors == 0 { Line::Nothing } else { Line::Request(at, file, plain(kind, range)) })
}

impl<R: BufRead> Parser for Iolog<R> {
    type Item = (u32, Request);
    const MADE_BY: &'static str = "fio";

    fn parse(&mut self, names: &mut Names) -> Result<Option<(u64, Self::Item)>, TraceError> {
        if self.version == 0 {
            self.read_version()?;
        }
        loop {
            let Some(line) = self.lines.next()? else { return Ok(None) };
            if line.is_empty() {
                continue;
            }
            let parsed = parse(line, self.version, self.waited_ns).and_then(|line| {
                Ok(match line {
                    Line::Request(at, file, request) => (0, Some((at, (names.index(file)?, request)))),
                    Line::Wait(ns) => (ns, None),
                    Line::Nothing => (0, None),
                })
            });
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
