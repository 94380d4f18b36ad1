//! The messages of the NBD protocol: fixed newstyle negotiation, simple replies. Numbers and rules are from
//! doc/proto.md of the project `nbd`. Pure functions from bytes to meaning.

use thiserror::Error;

/// The first eight bytes that a server sends.
pub const MAGIC: u64 = 0x4e42_444d_4147_4943;
/// The start of an option, from both sides.
pub(crate) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;

/// Handshake flag of both sides: fixed newstyle.
pub(crate) const FIXED_NEWSTYLE: u16 = 1;
/// Handshake flag: no 124 zeros after an export's name.
pub(crate) const NO_ZEROES: u16 = 2;

/// Length of an option's head.
pub const OPTION_HEAD_BYTES: usize = 16;
/// Length of a request without its data.
pub const REQUEST_BYTES: usize = 28;
pub(crate) const REPLY_BYTES: usize = 16;
/// Longest data of an option that is read; a name has at most 4,096 bytes.
pub const OPTION_BYTES_MAX: u32 = 8192;
/// Longest read or write; larger ones are refused.
pub const DATA_BYTES_MAX: u32 = 32 << 20;

#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ProtocolError {
    /// A magic number is missing, so the client does not speak NBD.
    #[error("not an NBD client: found {0:#x} instead of a magic number")]
    Magic(u64),
    #[error("{0} bytes of data; expected fewer")]
    TooLong(u32),
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// NBD_OPT_EXPORT_NAME: use this export at once; there is no answer if it does not exist.
    ExportName,
    /// NBD_OPT_ABORT.
    Abort,
    /// NBD_OPT_LIST.
    List,
    /// NBD_OPT_INFO.
    Info,
    /// NBD_OPT_GO: describe this export, then use it.
    Go,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHead {
    /// The option's number, which the reply repeats.
    pub number: u32,
    pub kind: OptionKind,
    pub data_bytes: u32,
}

impl OptionHead {
    pub fn parse(bytes: &[u8; OPTION_HEAD_BYTES]) -> Result<Self, ProtocolError> {
        let magic = u64_at(bytes, 0).unwrap_or_default();
        if magic != OPTION_MAGIC {
            return Err(ProtocolError::Magic(magic));
        }
        let number = u32_at(bytes, 8).unwrap_or_default();
        let data_bytes = u32_at(bytes, 12).unwrap_or_default();
        if data_bytes > OPTION_BYTES_MAX {
            return Err(ProtocolError::TooLong(data_bytes));
        }
        let kind = match number {
            1 => OptionKind::ExportName,
            2 => OptionKind::Abort,
            3 => OptionKind::List,
            6 => OptionKind::Info,
            7 => OptionKind::Go,
            _ => OptionKind::Other,
        };
        Ok(Self { number, kind, data_bytes })
    }
}

/// The data of NBD_OPT_INFO and NBD_OPT_GO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    pub export: &'a [u8],
    /// Requested information: numbers of NBD_INFO.
    pub information: Vec<u16>,
}

impl<'a> Wanted<'a> {
    /// Parses the data; returns `None` if the lengths do not agree.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let name_bytes = usize::try_from(u32_at(data, 0)?).ok()?;
        let end = name_bytes.checked_add(4)?;
        let export = data.get(4..end)?;
        let count = usize::from(u16_at(data, end)?);
        let numbers = data.get(end + 2..)?;
        if numbers.len() != count * 2 {
            return None;
        }
        let information = numbers.as_chunks().0.iter().map(|&two| u16::from_be_bytes(two)).collect();
        Some(Self { export, information })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum OptionAnswer {
    /// NBD_REP_ACK.
    Ack = 1,
    /// NBD_REP_SERVER: name of an export.
    Server = 2,
    /// NBD_REP_INFO: information about an export.
    Info = 3,
    /// NBD_REP_ERR_UNSUP: the option is unknown.
    Unsupported = (1 << 31) + 1,
    /// NBD_REP_ERR_INVALID: the option's data are invalid.
    Invalid = (1 << 31) + 3,
    /// NBD_REP_ERR_UNKNOWN: the export does not exist.
    Unknown = (1 << 31) + 6,
}

pub fn option_answer(option: u32, answer: OptionAnswer, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(20 + data.len());
    bytes.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    bytes.extend(option.to_be_bytes());
    bytes.extend((answer as u32).to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

pub(crate) mod export_flags {
    pub(crate) const HAS_FLAGS: u16 = 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// Every connection sees the data that another has written and flushed.
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Read,
    /// Write; the data follow.
    Write,
    /// End the connection; there is no reply.
    Disconnect,
    /// Make all completed writes survive a power loss.
    Flush,
    Trim,
    WriteZeroes {
        /// True if the drive may trim the range for it.
        may_unmap: bool,
    },
    Other(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub command: Command,
    /// True if the data must survive a power loss once the request is complete (FUA).
    pub fua: bool,
    pub unknown_flags: bool,
    /// The client's identifier for the request.
    pub cookie: u64,
    pub offset_bytes: u64,
    pub length_bytes: u32,
}

impl Request {
    /// Parses the head of a request. Its data must not be too long to skip.
    pub fn parse(bytes: &[u8; REQUEST_BYTES]) -> Result<Self, ProtocolError> {
        const FUA: u16 = 1;
        const NO_HOLE: u16 = 2;
        let magic = u32_at(bytes, 0).unwrap_or_default();
        if magic != REQUEST_MAGIC {
            return Err(ProtocolError::Magic(magic.into()));
        }
        let flags = u16_at(bytes, 4).unwrap_or_default();
        let number = u16_at(bytes, 6).unwrap_or_default();
        let length_bytes = u32_at(bytes, 24).unwrap_or_default();
        let command = match number {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            6 => Command::WriteZeroes { may_unmap: flags & NO_HOLE == 0 },
            other => Command::Other(other),
        };
        if command == Command::Write && length_bytes > DATA_BYTES_MAX {
            return Err(ProtocolError::TooLong(length_bytes));
        }
        let known = if matches!(command, Command::WriteZeroes { .. }) { FUA | NO_HOLE } else { FUA };
        Ok(Self {
            command,
            fua: flags & FUA != 0,
            unknown_flags: flags & !known != 0,
            cookie: u64_at(bytes, 8).unwrap_or_default(),
            offset_bytes: u64_at(bytes, 16).unwrap_or_default(),
            length_bytes,
        })
    }
}

/// Encodes the head of a reply to a request. `errno` is Linux's number; 0 means success.
pub(crate) fn reply(errno: i32, cookie: u64) -> [u8; REPLY_BYTES] {
    // NBD knows only these numbers, which are Linux's.
    const KNOWN: [i32; 8] = [0, 1, 5, 12, 22, 28, 75, 95];
    const EIO: i32 = 5;
    let errno = if KNOWN.contains(&errno) { errno } else { EIO };
    let mut bytes = [0; REPLY_BYTES];
    bytes[0..4].copy_from_slice(&REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&errno.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(flags: u16, number: u16, length: u32) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&number.to_be_bytes());
        bytes[8..16].copy_from_slice(&7_u64.to_be_bytes());
        bytes[16..24].copy_from_slice(&(1_u64 << 40).to_be_bytes());
        bytes[24..28].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    #[test]
    fn requests_are_read_as_they_are_written() {
        let read = Request::parse(&request(1, 0, 4096)).unwrap();
        let expected = Request {
            command: Command::Read,
            fua: true,
            unknown_flags: false,
            cookie: 7,
            offset_bytes: 1 << 40,
            length_bytes: 4096,
        };
        assert_eq!(read, expected);
        let command = |flags, number| Request::parse(&request(flags, number, 1)).unwrap().command;
        assert_eq!(command(0, 6), Command::WriteZeroes { may_unmap: true });
        assert_eq!(command(2, 6), Command::WriteZeroes { may_unmap: false });
        assert_eq!(command(0, 7), Command::Other(7));
        assert!(Request::parse(&request(2, 1, 1)).unwrap().unknown_flags, "NO_HOLE is for zeros only");
        assert!(Request::parse(&request(16, 6, 1)).unwrap().unknown_flags, "FAST_ZERO was not offered");
        let long = DATA_BYTES_MAX + 1;
        assert_eq!(Request::parse(&request(0, 1, long)), Err(ProtocolError::TooLong(long)));
        assert!(Request::parse(&request(0, 4, u32::MAX)).is_ok(), "a TRIM has no data");
        assert_eq!(Request::parse(&[0; REQUEST_BYTES]), Err(ProtocolError::Magic(0)));
    }

    #[test]
    fn what_is_wanted_of_an_export_has_lengths_that_agree() {
        let data = [0, 0, 0, 2, b'h', b'i', 0, 1, 0, 3];
        assert_eq!(Wanted::parse(&data), Some(Wanted { export: b"hi", information: vec![3] }));
        for length in 0..data.len() {
            assert_eq!(Wanted::parse(&data[..length]), None, "cut at {length}");
        }
        assert_eq!(Wanted::parse(&[&data[..], &[0]].concat()), None);
        assert_eq!(Wanted::parse(&[0xFF; 10]), None);
    }

    #[test]
    fn errors_that_nbd_does_not_know_are_told_as_eio() {
        assert_eq!(reply(28, 1)[4..8], 28_i32.to_be_bytes());
        assert_eq!(reply(17, 1)[4..8], 5_i32.to_be_bytes());
    }
}
