//! A guest's messages to its host while it runs: the output of its programs as it comes, and the report of each step
//! once it is over.
//!
//! It goes through a console of its own ([`NODE`]), which the kernel's process writes to a file in this computer's
//! memory. Such a write takes no virtual time and never waits, so a guest cannot notice how fast its host reads, and
//! the output outlives the guest, whatever ends it. Neither a full disk of the host nor anything that programs mount
//! gets in the way.
//!
//! The data come in frames: a kind (one byte), a length (32 bits, little-endian), and that many bytes.

use std::fs::File;
use std::io::{self, Write};

use rustix::fs::{Mode, OFlags};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use serde::{Deserialize, Serialize};

use crate::job::{Outcome, Said, StepReport};

/// The console in the guest. It is the last of UML's consoles, which programs leave alone.
const NODE: &str = "/dev/tty15";
/// Option of the kernel's command line for that console. It has no input. Its output is the standard input of the
/// kernel's process, which needs none.
pub(crate) const CONSOLE_OPTION: &str = "con15=null,fd:0";
/// Maximum bytes of a frame.
pub(crate) const FRAME_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of a program's output, and of its error output: they are in this computer's memory, and in the result.
pub(crate) const OUTPUT_BYTES_MAX: usize = 16 << 20;
const HEADER_BYTES: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Output,
    Errors,
}

impl Stream {
    pub fn name(self) -> &'static str {
        match self {
            Self::Output => "standard output",
            Self::Errors => "standard error",
        }
    }
}

/// Receives each piece of a program's output.
pub type Says<'a> = dyn FnMut(Stream, &[u8]) + 'a;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Program(Stream),
    /// A piece of a [`Told`] in JSON.
    Piece,
    /// No bytes: a [`Told`] is complete.
    Whole,
}

impl Kind {
    const ALL: [(u8, Self); 4] = [
        (b'o', Self::Program(Stream::Output)),
        (b'e', Self::Program(Stream::Errors)),
        (b'p', Self::Piece),
        (b'w', Self::Whole),
    ];

    fn byte(self) -> u8 {
        Self::ALL.into_iter().find(|(_, kind)| *kind == self).map_or(0, |(byte, _)| byte)
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Told {
    Step(StepReport),
    /// All steps are over; nothing follows.
    End(End),
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct End {
    /// Numbers of the marks, for each disk.
    pub(crate) marks: Vec<Vec<usize>>,
    /// Words added to the kernel's command line that the kernel does not know. If there are any, no step was done.
    pub(crate) unknown_words: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Teller(File);

impl Teller {
    pub(crate) fn open() -> io::Result<Self> {
        // This must not become the terminal of this process, which would then receive its signals.
        let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
        let node = rustix::fs::open(NODE, flags, Mode::empty())?;
        let mut attributes = tcgetattr(&node)?;
        attributes.make_raw();
        tcsetattr(&node, OptionalActions::Now, &attributes)?;
        Ok(Self(node.into()))
    }

    /// Passes on a program's output: at most [`FRAME_BYTES_MAX`] bytes.
    pub(crate) fn pass_on(&self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        self.send(Kind::Program(stream), bytes)
    }

    /// Sends a part of the report, piece by piece: it can be large compared with the guest's memory.
    pub(crate) fn tell(&self, told: &Told) -> io::Result<()> {
        let mut pieces = io::BufWriter::with_capacity(FRAME_BYTES_MAX, Pieces(self));
        serde_json::to_writer(&mut pieces, told)?;
        pieces.flush()?;
        self.send(Kind::Whole, &[])
    }

    fn send(&self, kind: Kind, bytes: &[u8]) -> io::Result<()> {
        let mut frame = Vec::with_capacity(HEADER_BYTES + bytes.len());
        frame.push(kind.byte());
        frame.extend((bytes.len() as u32).to_le_bytes());
        frame.extend(bytes);
        (&self.0).write_all(&frame)
    }
}

struct Pieces<'a>(&'a Teller);

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = &bytes[..bytes.len().min(FRAME_BYTES_MAX)];
        self.0.send(Kind::Piece, piece).map(|()| piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The host's side. Programs in the guest can write to its console too, so nothing that it receives is trusted.
#[derive(Debug, Default)]
pub(crate) struct Listener {
    /// Bytes after the last complete frame.
    rest: Vec<u8>,
    piece: Vec<u8>,
    /// Output of programs since the last step's end.
    output: Said,
    errors: Said,
    /// Reports of the completed steps; those of programs include their output.
    pub(crate) steps: Vec<StepReport>,
    /// The end of the report, once the guest has sent it.
    pub(crate) end: Option<End>,
}

impl Listener {
    /// Takes the bytes received since the last call, and calls `says` with each piece of a program's output.
    pub(crate) fn hear(&mut self, bytes: &[u8], says: &mut Says<'_>) -> io::Result<()> {
        self.rest.extend(bytes);
        let mut rest = std::mem::take(&mut self.rest);
        let mut at = 0;
        while let Some((kind, length)) = header(&rest[at..])?
            && let Some(frame) = rest.get(at + HEADER_BYTES..at + HEADER_BYTES + length)
        {
            self.take(kind, frame, says)?;
            at += HEADER_BYTES + length;
        }
        rest.drain(..at);
        self.rest = rest;
        Ok(())
    }

    /// Returns an error if the last frame is incomplete, which no guest that ends by itself leaves.
    pub(crate) fn expect_whole(&self) -> io::Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(disturbed()) }
    }

    /// Takes the bytes of an incomplete last frame, if it is a program's: the guest broke off while sending it.
    pub(crate) fn hear_no_more(&mut self, says: &mut Says<'_>) {
        let rest = std::mem::take(&mut self.rest);
        if let Ok(Some((kind @ Kind::Program(_), _))) = header(&rest) {
            // Output beyond the maximum is of no use.
            let _ = self.take(kind, &rest[HEADER_BYTES..], says);
        }
    }

    fn take(&mut self, kind: Kind, bytes: &[u8], says: &mut Says<'_>) -> io::Result<()> {
        match kind {
            Kind::Program(stream) => {
                let said = match stream {
                    Stream::Output => &mut self.output.0,
                    Stream::Errors => &mut self.errors.0,
                };
                if said.len() + bytes.len() > OUTPUT_BYTES_MAX {
                    return Err(damaged(&format!("{} of a program is too long", stream.name())));
                }
                said.extend(bytes);
                says(stream, bytes);
            }
            Kind::Piece => self.piece.extend(bytes),
            Kind::Whole => match serde_json::from_slice(&std::mem::take(&mut self.piece))? {
                Told::Step(mut report) => {
                    let [output, errors] = [&mut self.output, &mut self.errors].map(std::mem::take);
                    if let Outcome::Program(end) = &mut report.outcome {
                        (end.output, end.errors) = (output, errors);
                    }
                    self.steps.push(report);
                }
                Told::End(end) => self.end = Some(end),
            },
        }
        Ok(())
    }
}

/// Returns the kind and the length of the frame that begins here; `None` if its header is incomplete.
fn header(bytes: &[u8]) -> io::Result<Option<(Kind, usize)>> {
    let Some((&[kind, ref length @ ..], _)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*length) as usize;
    match Kind::ALL.into_iter().find(|(byte, _)| *byte == kind) {
        Some((_, kind)) if length <= FRAME_BYTES_MAX => Ok(Some((kind, length))),
        _ => Err(disturbed()),
    }
}

fn disturbed() -> io::Error {
    damaged("a program wrote to it, and the guest reports through it")
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{NODE} of the guest: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::ProgramEnd;

    fn frame(kind: u8, bytes: &[u8]) -> Vec<u8> {
        [&[kind][..], &(bytes.len() as u32).to_le_bytes(), bytes].concat()
    }

    /// Reads what was told in pieces of `size` bytes.
    fn heard(told: &[u8], size: usize) -> (Listener, Vec<(Stream, u8)>) {
        let (mut listener, mut said) = (Listener::default(), Vec::new());
        let mut says = |stream, bytes: &[u8]| said.extend(bytes.iter().map(|&byte| (stream, byte)));
        for piece in told.chunks(size) {
            listener.hear(piece, &mut says).unwrap();
        }
        listener.hear_no_more(&mut says);
        (listener, said)
    }

    #[test]
    fn what_is_told_is_heard_in_order_however_it_is_cut() {
        let end = ProgramEnd::default();
        let step = Told::Step(StepReport { begin_ns: 1, end_ns: 2, outcome: Outcome::Program(end) });
        let json = serde_json::to_vec(&step).unwrap();
        let told = [
            frame(b'o', b"one"),
            frame(b'e', b"\xff"),
            frame(b'o', b"two"),
            frame(b'p', &json[..9]),
            frame(b'p', &json[9..]),
            frame(b'w', b""),
            frame(b'o', b"last words"),
        ];
        let told = told.concat();
        for size in [1, 2, 7, told.len()] {
            // The last frame is incomplete.
            let (listener, said) = heard(&told[..told.len() - 2], size);
            let text: Vec<u8> = said.iter().map(|&(_, byte)| byte).collect();
            assert_eq!(text, b"one\xfftwolast wor");
            assert_eq!(said[3], (Stream::Errors, 0xff));
            let [StepReport { outcome: Outcome::Program(end), .. }] = &*listener.steps else {
                panic!("{listener:?}")
            };
            assert_eq!((&*end.output.0, &*end.errors.0), (&b"onetwo"[..], &b"\xff"[..]));
            assert!(listener.end.is_none());
            assert!(listener.expect_whole().is_ok(), "the rest was heard");
        }
    }

    #[test]
    fn a_frame_is_its_kind_its_length_and_its_bytes() {
        let mut file = tempfile::tempfile().unwrap();
        let teller = Teller(file.try_clone().unwrap());
        teller.pass_on(Stream::Output, b"hi").unwrap();
        teller.pass_on(Stream::Errors, &[7; 258]).unwrap();
        let end = End { marks: vec![vec![1, 2], vec![]], unknown_words: vec!["x".to_owned()] };
        teller.tell(&Told::End(end)).unwrap();
        let mut told = Vec::new();
        std::io::Seek::rewind(&mut file).unwrap();
        std::io::Read::read_to_end(&mut file, &mut told).unwrap();
        let json = br#"{"end":{"marks":[[1,2],[]],"unknown_words":["x"]}}"#;
        let expected =
            [b"o\x02\0\0\0hi", &b"e\x02\x01\0\0"[..], &[7; 258], b"p\x32\0\0\0", json, b"w\0\0\0\0"].concat();
        assert_eq!(String::from_utf8_lossy(&told), String::from_utf8_lossy(&expected));
        let (listener, said) = heard(&told, told.len());
        assert_eq!(said.len(), 2 + 258, "bytes of a program");
        let end = listener.end.expect("the end");
        assert_eq!((end.marks, end.unknown_words), (vec![vec![1, 2], vec![]], vec!["x".to_owned()]));
    }

    #[test]
    fn a_long_report_is_told_in_frames_of_at_most_64_kib() {
        let mut file = tempfile::tempfile().unwrap();
        let word = "y".repeat(200_000);
        let end = End { marks: Vec::new(), unknown_words: vec![word.clone()] };
        Teller(file.try_clone().unwrap()).tell(&Told::End(end)).unwrap();
        let mut told = Vec::new();
        std::io::Seek::rewind(&mut file).unwrap();
        std::io::Read::read_to_end(&mut file, &mut told).unwrap();
        let (mut at, mut lengths) = (0, Vec::new());
        while let Some((_, length)) = header(&told[at..]).unwrap() {
            lengths.push(length);
            at += 5 + length;
        }
        assert_eq!(at, told.len(), "bytes of the frames: {lengths:?}");
        assert!(lengths.iter().all(|&length| length <= 65_536), "{lengths:?}");
        assert_eq!(heard(&told, 1000).0.end.map(|end| end.unknown_words), Some(vec![word]));
    }

    #[test]
    fn only_whole_frames_end_a_report() {
        for (told, is_whole) in
            [(&b""[..], true), (b"o\0\0\0\0", true), (b"o\x02\0\0\0h", false), (b"o", false)]
        {
            let mut listener = Listener::default();
            listener.hear(told, &mut |_, _| ()).unwrap();
            assert_eq!(listener.expect_whole().is_ok(), is_whole, "{told:?}");
        }
        // Of an incomplete frame that is no program's nothing is heard.
        let (_, said) = heard(b"p\x09\0\0\0abc", 100);
        assert_eq!(said, [], "a piece of a report");
    }

    #[test]
    fn what_no_guest_tells_is_an_error() {
        let long = (FRAME_BYTES_MAX as u32 + 1).to_le_bytes();
        let too_long = [&b"o"[..], &long].concat();
        for told in
            [&b"hello"[..], &too_long, &frame(b'w', b""), &[frame(b'p', b"{}"), frame(b'w', b"")].concat()]
        {
            assert!(Listener::default().hear(told, &mut |_, _| ()).is_err(), "{told:?}");
        }
        let mut listener = Listener::default();
        let piece = frame(b'e', &vec![0; FRAME_BYTES_MAX]);
        let pieces = OUTPUT_BYTES_MAX / FRAME_BYTES_MAX;
        (0..pieces).for_each(|_| listener.hear(&piece, &mut |_, _| ()).unwrap());
        let error = listener.hear(&piece, &mut |_, _| ()).unwrap_err();
        assert!(error.to_string().contains("standard error of a program is too long"), "{error}");
    }
}
