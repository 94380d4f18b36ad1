//! The helper performs one task on one mount at a time, in its own process.
//!
//! The helper reads a line of JSON from standard input, performs the task and writes its answer to standard output, until
//! its input ends. A map is a line `START END` for each free extent; every answer ends with one line of JSON. The helper is
//! killed with the daemon, but a discard in flight still completes.

use std::io::{self, BufRead as _, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use trimwise::live::{Failed, SPANS_MAX, Slice, nearly};
use trimwise::units::{Bytes, Span};

use crate::journal::session_of;
use crate::process::{Process, line};
use trimwise_linux::block_device::BlockDeviceError;
use trimwise_linux::free_space::Listed;
use trimwise_linux::layout::Kind;
use trimwise_linux::mount::mount_of_open;
use trimwise_linux::path_error::PathError;
use trimwise_linux::remount;
use trimwise_linux::trim::{Accounts, Meaning, Settled, Target, TrimError, hanging_words};

pub(crate) const COMMAND: &str = "helper";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Task {
    Probe,
    Look {
        min_extent: u64,
        from: u64,
        most: usize,
    },
    /// List the address ranges that FITRIM accepts, for file systems without a list of free extents.
    Walk,
    Trim {
        /// Start and end of each range, in bytes.
        ranges: Vec<(u64, u64)>,
        min_extent: u64,
        /// Concurrent calls of FITRIM.
        lanes: u32,
        /// Bytes expected to be sent; 0 if unknown.
        expected: u64,
        /// True if discards of the last slice may be in flight. The helper then waits for them before it sends any.
        wait: bool,
        /// True if discards of this file system failed before.
        failed_before: bool,
    },
    Toggle {
        /// The option to set: `discard`, `nodiscard`, `discard=async`.
        option: String,
        /// The file system's other options before the daemon changed this one, to be compared with those afterwards.
        before: Option<Vec<String>>,
        /// The mounting that is meant. It may have been mounted anew since.
        session: Option<u64>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The mount point, as this process sees it.
    pub path: PathBuf,
    /// Major and minor number of the mount in mountinfo. If another file system is mounted there by now, nothing is
    /// done.
    pub numbers: (u32, u32),
    pub task: Task,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    pub block: u64,
    /// Size of a group, in bytes; 0 if it has no groups.
    pub group: u64,
    /// Start of the first group, in bytes.
    pub first_group: u64,
    pub total: u64,
    /// True if the file system can list its free space.
    pub maps: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Answer {
    Probed(Probed),
    Looked {
        extents: u64,
        /// Start of the list: the requested address, or a little after it.
        from: u64,
        /// End of the list: the file system's end if everything after `from` is listed.
        upto: u64,
    },
    Trimmed {
        /// Duration of FITRIM, and on XFS of the discards after it, up to the last one counted.
        took_ns: u64,
        /// Known results of the discards. The daemon adds the failed requests.
        accounts: Accounts,
        /// Why ext4 could not be made to send again what failed before, if so.
        still_believed: Option<String>,
    },
    Toggled {
        /// Changes of other options that the kernel made with it and that were undone, in words.
        undone: Vec<String>,
        /// Other options that differ from `before`, in words.
        differing: Vec<String>,
    },
    /// Discards failed or are still in flight, so the result is unknown.
    Device {
        message: String,
        /// True if the discards are still in flight.
        in_flight: bool,
    },
    /// The task failed, but may succeed later.
    Again {
        message: String,
    },
    /// The task can never succeed on this mount.
    Never {
        message: String,
    },
    /// The mount is gone or was replaced.
    Gone,
}

impl Task {
    /// Returns the task of trimming a slice.
    pub(crate) fn trim(slice: &Slice, min_extent: u64, maps: bool, wait: bool, failed_before: bool) -> Self {
        Self::Trim {
            ranges: numbers(&slice.ranges),
            min_extent,
            // The end of one call makes ext4 skip in the others what it has trimmed.
            lanes: if failed_before { 1 } else { slice.lanes },
            expected: if maps { slice.bytes.0 } else { 0 },
            wait,
            failed_before,
        }
    }
}

impl Answer {
    pub fn failed(&self) -> Option<Failed> {
        match self {
            Self::Device { message, .. } => Some(Failed::Device(message.clone())),
            Self::Again { message } => Some(Failed::Again(message.clone())),
            Self::Never { message } => Some(Failed::Never(message.clone())),
            Self::Gone => Some(Failed::Again("the file system was unmounted".to_owned())),
            _ => None,
        }
    }
}

/// Starts a helper and sends it a task. The helper's only output is its answers.
pub fn start(program: &Path, request: &Request) -> io::Result<Process> {
    Process::ask(program, COMMAND, request)
}

/// Returns true if a helper's output ends with an answer: an object after the lines of a map.
pub(crate) fn is_answer(output: &[u8]) -> bool {
    let lines = output.strip_suffix(b"\n");
    lines.is_some_and(|lines| {
        lines.rsplit(|&byte| byte == b'\n').next().is_some_and(|last| last.starts_with(b"{"))
    })
}

/// Size limit of a helper's answer, in bytes: the largest map, with a margin.
const ANSWER_MAX: usize = 4 << 20;

/// Reads a helper's output. Returns true once its answer is complete, or the helper has ended.
pub fn hear(helper: &mut Process) -> bool {
    helper.flush();
    helper.receive(ANSWER_MAX) || is_answer(helper.received())
}

/// Parses a helper's output: free extents and the answer. Returns `None` if the answer is missing or malformed.
pub fn parse_answer(output: &[u8]) -> Option<(Vec<Span>, Answer)> {
    let text = std::str::from_utf8(output).ok()?.strip_suffix('\n')?;
    let (extents, last) = text.rsplit_once('\n').unwrap_or(("", text));
    let answer = serde_json::from_str(last).ok()?;
    let mut spans: Vec<Span> = Vec::new();
    for line in extents.lines() {
        let (start, end) = line.split_once(' ')?;
        let span = Span { start: start.parse().ok()?, end: end.parse().ok()? };
        if span.start >= span.end || spans.last().is_some_and(|last| span.start < last.end) {
            return None;
        }
        spans.push(span);
    }
    Some((spans, answer))
}

pub(crate) fn main() -> io::Result<()> {
    let (mut input, mut out) = (io::stdin().lock(), BufWriter::new(io::stdout().lock()));
    let mut task = String::new();
    while input.read_line(&mut task)? > 0 {
        let request: Request = serde_json::from_str(&task)?;
        let answer = perform(&request, &mut out).unwrap_or_else(|error| refused(&error));
        out.write_all(&line(&answer)?)?;
        out.flush()?;
        task.clear();
    }
    Ok(())
}

fn perform(request: &Request, out: &mut impl Write) -> Result<Answer, TrimError> {
    let target = Target::of(&request.path)?;
    if target.mount.numbers != request.numbers {
        return Ok(Answer::Gone);
    }
    match &request.task {
        Task::Probe => Ok(Answer::Probed(probe(&target)?)),
        Task::Look { min_extent, from, most } => {
            Ok(answer_with(out, &target.free_spans(Bytes(*min_extent), *from, *most)?))
        }
        Task::Walk => Ok(answer_with(out, &target.ranges(SPANS_MAX)?)),
        Task::Trim { ranges, min_extent, lanes, expected, wait, failed_before } => {
            if *wait && let Some(hang) = hanging(target.settle(Some(Bytes(u64::MAX)))?) {
                return Ok(hang);
            }
            let begun = Instant::now();
            let before = target.before()?;
            let least = target.least_extent(Bytes(*min_extent))?;
            let (answered, still_believed) = trim(&target, ranges, least, *lanes, *failed_before)?;
            let of_fitrim = begun.elapsed();
            let of_map = Some(Bytes(*expected)).filter(|expected| expected.0 > 0);
            let settled = target.settle(before.enough(of_map))?;
            if let Some(hang) = hanging(settled) {
                return Ok(hang);
            }
            let took = of_fitrim + settled.took;
            let accounts = target.accounts(&before, Bytes(answered), None)?;
            let is_doubted = *failed_before && still_believed.is_none();
            let sent = of_map.and_then(|of_map| least_sent(target.kind, of_map, *failed_before, is_doubted));
            let accounts = Accounts { sent, failed_before: *failed_before, ..accounts };
            let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            Ok(Answer::Trimmed { took_ns, accounts, still_believed })
        }
        Task::Toggle { option, before, session } => {
            Ok(match toggle(&target, option, before.as_deref(), *session)? {
                Ok(toggled) => toggled,
                Err(error) => {
                    let message = format!("remounting with {option}: {error}");
                    if remount::is_for_good(&error) {
                        Answer::Never { message }
                    } else {
                        Answer::Again { message }
                    }
                }
            })
        }
    }
}

fn toggle(
    target: &Target,
    option: &str,
    before: Option<&[String]>,
    session: Option<u64>,
) -> Result<io::Result<Answer>, TrimError> {
    let point = target.open()?;
    // From here on it cannot be unmounted.
    let now = session_of(&mount_of_open(&point)?);
    if now.is_some() && session.is_some() && now != session {
        return Ok(Err(Errno::STALE.into()));
    }
    let undone = match remount::set(&point, target.kind, option) {
        Ok(undone) => undone,
        Err(error) => return Ok(Err(error)),
    };
    let now = remount::others(&mount_of_open(&point)?);
    let differing = before.map_or(Vec::new(), |before| remount::differences(before, &now));
    Ok(Ok(Answer::Toggled { undone, differing }))
}

/// Returns how much of what the map shows must have been sent. Ext4 leaves out groups that it has trimmed, unless it was
/// made to doubt them; then, what is missing may have come into use since the map.
fn least_sent(kind: Kind, of_map: Bytes, failed_before: bool, is_doubted: bool) -> Option<Bytes> {
    match kind {
        Kind::Ext4 if !failed_before => None,
        Kind::Ext4 if is_doubted => Some(nearly(of_map)),
        _ => Some(of_map),
    }
}

/// Trims ranges, several groups at once; returns the sum of FITRIM's return values, and why ext4 still believes what
/// failed before to be trimmed, if it does. Calls in the same group would wait for each other: both ext4 and XFS lock it.
fn trim(
    target: &Target,
    ranges: &[(u64, u64)],
    least: Bytes,
    lanes: u32,
    failed_before: bool,
) -> Result<(u64, Option<String>), TrimError> {
    let spans = ranges.iter().map(|&(start, end)| Span { start, end });
    let calls: Vec<Span> =
        spans.flat_map(|span| if lanes > 1 { target.slices(span, 1) } else { vec![span] }).collect();
    let next = AtomicUsize::new(0);
    let in_turn = || -> Result<_, TrimError> {
        let (mut answered, mut still_believed) = (0u64, None);
        while let Some(&call) = calls.get(next.fetch_add(1, Ordering::Relaxed)) {
            if failed_before {
                still_believed = still_believed.or(target.doubt_trimmed_groups().err());
            }
            answered = answered.saturating_add(target.trim_slice(call, least)?.0);
        }
        Ok((answered, still_believed.map(|error| error.to_string())))
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..lanes).map(|_| scope.spawn(in_turn)).collect();
        let (mut sum, mut still_believed) = in_turn()?;
        for other in others {
            let (answered, why) = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            sum = sum.saturating_add(answered);
            still_believed = still_believed.or(why);
        }
        Ok((sum, still_believed))
    })
}

/// Returns the answer if discards are not done. Nothing of the slice counts as trimmed then, since it is unknown which
/// of them completed.
fn hanging(settled: Settled) -> Option<Answer> {
    (settled.in_flight > 0)
        .then(|| Answer::Device { message: hanging_words(settled.in_flight), in_flight: true })
}

fn answer_with(out: &mut impl Write, listed: &Listed) -> Answer {
    for span in &listed.free {
        // If the output is closed, writing the answer reports it.
        drop(writeln!(out, "{} {}", span.start, span.end));
    }
    Answer::Looked { extents: listed.free.len() as u64, from: listed.from, upto: listed.upto }
}

fn probe(target: &Target) -> Result<Probed, TrimError> {
    let layout = target.layout.as_ref();
    let has_maps = matches!(target.kind, Kind::Ext4 | Kind::Xfs) && layout.is_some();
    let maps = match target.free_spans(Bytes(0), 0, 0) {
        _ if !has_maps => false,
        // A file system without a map may be trimmed, but not a damaged one.
        Err(error) if error.means() == Some(Meaning::Damaged) => return Err(error),
        listed => listed.is_ok(),
    };
    Ok(Probed {
        block: layout.map_or(4096, |layout| layout.block.0),
        group: layout.map_or(0, |layout| layout.group.0),
        first_group: layout.map_or(0, |layout| layout.first_group.0),
        total: layout
            .map_or_else(|| target.devices.iter().map(|device| device.size.0).sum(), |layout| layout.end.0),
        maps,
    })
}

fn refused(error: &TrimError) -> Answer {
    // The daemon names the mount itself.
    let message = error.what();
    match error {
        TrimError::Gone { .. } | TrimError::Mount(_) | TrimError::NotAMountPoint { .. } => Answer::Gone,
        TrimError::NoDiscard { .. } => Answer::Never { message },
        TrimError::Call { means, .. } => match means {
            _ if means.is_for_good() => Answer::Never { message },
            Meaning::DeviceFailed | Meaning::DeviceGone => Answer::Device { message, in_flight: false },
            _ => Answer::Again { message },
        },
        TrimError::Open(PathError { source, .. })
            if source.raw_os_error() == Some(Errno::NOENT.raw_os_error()) =>
        {
            Answer::Gone
        }
        TrimError::Device(BlockDeviceError::None { .. }) => Answer::Never { message },
        _ => Answer::Again { message },
    }
}

pub(crate) fn numbers(spans: &[Span]) -> Vec<(u64, u64)> {
    spans.iter().map(|span| (span.start, span.end)).collect()
}

#[cfg(test)]
mod tests {
    use trimwise_linux::trim::Verdict;

    use super::*;

    #[test]
    fn an_answer_is_whole_with_its_last_line() {
        let output = b"0 4096\n8192 16384\n{\"is\":\"gone\"}\n";
        let whole: Vec<_> = (0..=output.len()).filter(|&read| is_answer(&output[..read])).collect();
        assert_eq!(whole, [output.len()]);
    }

    #[test]
    fn ext4_owes_what_the_map_shows_only_after_a_failure() {
        let map = Bytes(8000);
        for (kind, failed_before, is_doubted, expected) in [
            // Groups that it has trimmed are left out.
            (Kind::Ext4, false, false, None),
            // It was told to send them, and some of it may be in use by now.
            (Kind::Ext4, true, true, Some(Bytes(7000))),
            // It could not be told.
            (Kind::Ext4, true, false, Some(map)),
            (Kind::Xfs, false, false, Some(map)),
            (Kind::Xfs, true, true, Some(map)),
        ] {
            let found = least_sent(kind, map, failed_before, is_doubted);
            assert_eq!(found, expected, "{kind:?}, failed before {failed_before}, doubted {is_doubted}");
        }
    }

    /// Groups that ext4 has trimmed answer 0, where nothing reports failures.
    #[test]
    fn what_ext4_skips_is_unverified_only_after_a_failure() {
        let accounts = Accounts {
            sent: None,
            answered: Bytes(0),
            counted: Some(Bytes(0)),
            failed: None,
            online: false,
            stops: false,
            failed_before: false,
        };
        for (failed_before, is_doubted, answered, expected) in [
            (false, false, 0, Verdict::Taken(Bytes(0))),
            (false, false, 7999, Verdict::Taken(Bytes(7999))),
            (true, false, 0, Verdict::Unverified(Bytes(0))),
            (true, false, 7999, Verdict::Unverified(Bytes(7999))),
            (true, true, 6999, Verdict::Unverified(Bytes(6999))),
            (true, true, 7000, Verdict::Taken(Bytes(7000))),
        ] {
            let sent = least_sent(Kind::Ext4, Bytes(8000), failed_before, is_doubted);
            let (answered, counted) = (Bytes(answered), Some(Bytes(answered)));
            for failed in [None, Some(0)] {
                let accounts = Accounts { sent, answered, counted, failed, failed_before, ..accounts };
                assert_eq!(accounts.verdict(Kind::Ext4), expected, "{accounts:?}");
            }
        }
    }

    #[test]
    fn after_a_failure_one_call_follows_the_other() {
        let slice = Slice { ranges: vec![Span { start: 1, end: 9 }], bytes: Bytes(8), extents: 1, lanes: 4 };
        for (maps, failed_before, expected, lanes) in
            [(true, false, 8, 4), (false, false, 0, 4), (true, true, 8, 1)]
        {
            let task = Task::trim(&slice, 5, maps, false, failed_before);
            let ranges = vec![(1, 9)];
            let wait = false;
            assert_eq!(task, Task::Trim { ranges, min_extent: 5, lanes, expected, wait, failed_before });
        }
    }

    #[test]
    fn an_answer_has_its_extents_before_it() {
        let looked = b"0 4096\n8192 16384\n{\"is\":\"looked\",\"extents\":2,\"from\":0,\"upto\":99999}\n";
        let (spans, answer) = parse_answer(looked).unwrap();
        assert_eq!(numbers(&spans), [(0, 4096), (8192, 16_384)]);
        assert_eq!(answer, Answer::Looked { extents: 2, from: 0, upto: 99_999 });
        assert_eq!(parse_answer(b"{\"is\":\"gone\"}\n"), Some((Vec::new(), Answer::Gone)));
        for half in
            [&b""[..], b"0 40", b"0 4096\n", b"5 4\n{\"is\":\"gone\"}\n", b"0 9\n3 12\n{\"is\":\"gone\"}\n"]
        {
            assert_eq!(parse_answer(half), None, "{}", String::from_utf8_lossy(half));
        }
    }
}
