//! One connection: the negotiation at its start, and the requests.

use std::io::{self, BufReader, Read, Write};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use trimwise::units::{Bytes, SECTOR_BYTES, UNIT_BYTES};

use super::Shared;
use super::protocol::{
    Command, DATA_BYTES_MAX, FIXED_NEWSTYLE, MAGIC, NO_ZEROES, OPTION_HEAD_BYTES, OPTION_MAGIC, OptionAnswer,
    OptionHead, OptionKind, REPLY_BYTES, REQUEST_BYTES, Request, Wanted, option_answer, reply,
};
use super::socket::Stream;
use crate::{Completions, EmulatedDrive, RequestError};

/// Maximum data waiting to be sent on one connection; beyond it no further request is read.
const WAITING_BYTES_MAX: usize = 32 << 20;

pub(super) fn serve(shared: &Shared, stream: &Arc<Stream>) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(256 << 10, &**stream);
    if !negotiate(shared, &mut reader, stream)? {
        return Ok(());
    }
    stream.wait_for_ever()?;
    transmit(shared, &mut reader, stream)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn negotiate(shared: &Shared, reader: &mut impl Read, mut stream: &Stream) -> io::Result<bool> {
    const BLOCK_SIZE: u16 = 3;
    let mut hello = Vec::from(MAGIC.to_be_bytes());
    hello.extend(OPTION_MAGIC.to_be_bytes());
    hello.extend((FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    stream.write_all(&hello)?;
    let mut flags = [0; 4];
    reader.read_exact(&mut flags)?;
    let flags = u32::from_be_bytes(flags);
    if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
        return Ok(false);
    }
    let mut export = Vec::from(shared.drive.size().0.to_be_bytes());
    export.extend(shared.flags().to_be_bytes());
    loop {
        let mut head = [0; OPTION_HEAD_BYTES];
        reader.read_exact(&mut head)?;
        let option = OptionHead::parse(&head).map_err(invalid)?;
        let mut data = vec![0; option.data_bytes as usize];
        reader.read_exact(&mut data)?;
        let mut answer =
            |answer: OptionAnswer, data: &[u8]| stream.write_all(&option_answer(option.number, answer, data));
        match option.kind {
            OptionKind::ExportName => {
                if !shared.knows(&data) {
                    return Ok(false);
                }
                if flags & u32::from(NO_ZEROES) == 0 {
                    export.extend([0; 124]);
                }
                return stream.write_all(&export).map(|()| true);
            }
            OptionKind::Abort => return answer(OptionAnswer::Ack, &[]).map(|()| false),
            OptionKind::List if !data.is_empty() => {
                answer(OptionAnswer::Invalid, b"a list request takes no data")?
            }
            OptionKind::List => {
                let mut name = Vec::from((shared.export.len() as u32).to_be_bytes());
                name.extend(shared.export.as_bytes());
                answer(OptionAnswer::Server, &name)?;
                answer(OptionAnswer::Ack, &[])?;
            }
            OptionKind::Info | OptionKind::Go => {
                let Some(wanted) = Wanted::parse(&data) else {
                    answer(OptionAnswer::Invalid, b"inconsistent lengths")?;
                    continue;
                };
                if !shared.knows(wanted.export) {
                    answer(OptionAnswer::Unknown, format!("expected {}", shared.export).as_bytes())?;
                    continue;
                }
                let mut about = Vec::from(0_u16.to_be_bytes());
                about.extend(&export);
                answer(OptionAnswer::Info, &about)?;
                // A client that does not ask for block sizes must keep to 512 bytes anyway, since disks have that size.
                let mut sizes = Vec::from(BLOCK_SIZE.to_be_bytes());
                for bytes in [SECTOR_BYTES as u32, UNIT_BYTES as u32, DATA_BYTES_MAX] {
                    sizes.extend(bytes.to_be_bytes());
                }
                answer(OptionAnswer::Info, &sizes)?;
                answer(OptionAnswer::Ack, &[])?;
                if option.kind == OptionKind::Go {
                    return Ok(true);
                }
            }
            OptionKind::Other => answer(OptionAnswer::Unsupported, &[])?,
        }
    }
}

#[derive(Debug)]
struct Replies {
    stream: Arc<Stream>,
    sending: Mutex<()>,
    waiting_bytes: Mutex<usize>,
    fewer: Condvar,
}

impl Replies {
    fn reserve(&self, bytes: usize) {
        let mut waiting = self.waiting_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        while *waiting > 0 && *waiting + bytes > WAITING_BYTES_MAX {
            waiting = self.fewer.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        *waiting += bytes;
    }

    fn send(&self, bytes: &[u8], reserved_bytes: usize) {
        let sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        if (&*self.stream).write_all(bytes).is_err() {
            self.stream.shut_down();
        }
        drop(sending);
        *self.waiting_bytes.lock().unwrap_or_else(PoisonError::into_inner) -= reserved_bytes;
        self.fewer.notify_one();
    }
}

/// Added to the data of a reply when its cost is counted, so that the number of replies is bounded too.
const REPLY_OVERHEAD_BYTES: usize = 4096;

fn transmit(shared: &Shared, reader: &mut impl Read, stream: &Arc<Stream>) -> io::Result<()> {
    let replies = Arc::new(Replies {
        stream: Arc::clone(stream),
        sending: Mutex::new(()),
        waiting_bytes: Mutex::new(0),
        fewer: Condvar::new(),
    });
    let completions = Completions::new()?;
    let mut data = Vec::new();
    // The buffer for a reply with its data, reused by replies that need not wait.
    let mut buffer = Vec::new();
    loop {
        let mut head = [0; REQUEST_BYTES];
        match reader.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        let request = Request::parse(&head).map_err(invalid)?;
        let length = request.length_bytes as usize;
        let mut given: &[u8] = &[];
        match request.command {
            Command::Disconnect => return Ok(()),
            Command::Write => {
                if data.len() < length {
                    data.resize(length, 0);
                }
                reader.read_exact(&mut data[..length])?;
                given = &data[..length];
            }
            _ => {}
        }
        let reads = request.command == Command::Read && length <= DATA_BYTES_MAX as usize;
        let reserved = if reads { length + REPLY_OVERHEAD_BYTES } else { REPLY_OVERHEAD_BYTES };
        replies.reserve(reserved);
        buffer.clear();
        buffer.resize(if reads { REPLY_BYTES + length } else { REPLY_BYTES }, 0);
        let result = perform(&shared.drive, &request, given, &mut buffer[REPLY_BYTES..]);
        let errno = result.as_ref().err().copied().unwrap_or(0);
        buffer[..REPLY_BYTES].copy_from_slice(&reply(errno, request.cookie));
        match result {
            Ok(due) if !Completions::is_due(due) => {
                let (replies, bytes) = (Arc::clone(&replies), std::mem::take(&mut buffer));
                completions.at(due, move || replies.send(&bytes, reserved));
            }
            Ok(_) => replies.send(&buffer, reserved),
            Err(_) => replies.send(&buffer[..REPLY_BYTES], reserved),
        }
    }
}

/// Carries out a request. Returns the instant of its completion, or the error number.
fn perform(
    drive: &EmulatedDrive,
    request: &Request,
    given: &[u8],
    wanted: &mut [u8],
) -> Result<Instant, i32> {
    use rustix::io::Errno;
    let refuse = |errno: Errno| Err(errno.raw_os_error());
    if request.unknown_flags {
        return refuse(Errno::INVAL);
    }
    let (offset, length) = (request.offset_bytes, Bytes(request.length_bytes.into()));
    let beyond = offset.checked_add(length.0).is_none_or(|end| end > drive.size().0);
    if beyond && matches!(request.command, Command::Write | Command::WriteZeroes { .. }) {
        // The protocol asks for this error: beyond the end there is no space.
        return refuse(Errno::NOSPC);
    }
    let done = match request.command {
        Command::Read if request.length_bytes > DATA_BYTES_MAX => return refuse(Errno::INVAL),
        Command::Read => drive.read(offset, wanted),
        Command::Write => drive.write(offset, given),
        Command::Flush => drive.flush(),
        Command::Trim => drive.discard(offset, length, false),
        Command::WriteZeroes { may_unmap } => drive.write_zeroes(offset, length, may_unmap),
        Command::Disconnect | Command::Other(_) => return refuse(Errno::INVAL),
    };
    let number = |error: RequestError| error.errno();
    let changes = !matches!(request.command, Command::Read | Command::Flush);
    if request.fua && changes && drive.limits().volatile_cache {
        let done = done.map_err(number)?;
        return Ok(done.max(drive.flush().map_err(number)?));
    }
    done.map_err(number)
}
