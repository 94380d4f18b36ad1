//! A trim by the daemon, with or without waiting for it.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use trimwise::failure::{Failure, Mistake, key};
use trimwise::live::Untrimmed;
use trimwise::units::{Bytes, SimDuration};
use trimwise::words;
use trimwise_linux::code::Code;
use trimwise_linux::daemon::control::{Client, Request};
use trimwise_linux::trim::Target;

use crate::caller::{Caller, OnInterrupt, Progress};
use crate::daemon::{UntrimmedOf, ask, failed, normal};
use crate::input::expect_mount;

/// Interval between progress requests to the daemon.
const ASKED_EVERY: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All free space is trimmed.
    Done,
    /// A slice or a scan failed. The daemon may try again.
    Failed,
    Paused,
    /// The daemon no longer manages the file system.
    Gone,
    /// The daemon started over there, and has forgotten the request.
    BegunAnew,
    Interrupted,
}

impl Outcome {
    /// Returns the code of what is wrong or unknown after a trim that ended so.
    fn code(self, is_unverified: bool, is_virtual: bool) -> Option<Code> {
        match self {
            Self::Failed => Some(Code::TrimFailed),
            Self::Paused | Self::Gone | Self::BegunAnew => Some(Code::TrimLeft),
            Self::Done if is_unverified => Some(Code::TrimUnverified),
            Self::Done if is_virtual => Some(Code::TrimOnVirtualDisk),
            Self::Done | Self::Interrupted => None,
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Waited {
    pub trimwise: &'static str,
    pub mount_point: String,
    pub outcome: Outcome,
    /// Code of what is wrong or unknown.
    pub code: Option<Code>,
    /// The reason, unless the trim is done.
    pub why: Option<String>,
    pub took_ns: SimDuration,
    /// Bytes trimmed by the daemon since the request.
    pub trimmed_bytes: u64,
    /// Bytes sent since the request where failed discards would not have shown.
    pub unverified_bytes: u64,
    /// A hypervisor provides a disk below: it may have accepted the bytes, and its host ignored them.
    pub on_virtual_disk: bool,
    pub slices: u64,
    pub slices_failed: u64,
    /// Bytes still waiting at the end; `null` if the daemon did not know.
    pub waiting_bytes: Untrimmed,
}

impl Waited {
    /// Why the trim is not done, if it is not.
    pub fn failure(&self) -> Option<Failure> {
        match self.outcome {
            Outcome::Done => None,
            Outcome::Interrupted => Some(Failure::Interrupted),
            _ => {
                let why = self.why.as_deref().unwrap_or_default();
                Some(Failure::run(format!("{}: {why}", self.mount_point)))
            }
        }
    }
}

/// Asks the daemon whose sockets are in the folder `run` to trim a file system. Returns its answer, and the mount point
/// as the daemon names it.
pub fn start(mount: &Path, run: &Path) -> Result<(Value, String), Failure> {
    let (request, mount_point) = request(mount)?;
    Ok((ask(run, &request)?, mount_point))
}

fn request(mount: &Path) -> Result<(Request, String), Failure> {
    expect_mount("mount", mount)?;
    let mount = normal(mount)?;
    let shown = mount.display().to_string();
    Ok((Request::Trim { mount }, shown))
}

/// Starts a trim, and waits until everything that was free is trimmed. A stop ends the waiting, not the trim.
///
/// # Errors
///
/// A [`Failure`] if the daemon cannot be reached, refuses, or sends nothing. A trim that ends otherwise is in the
/// [answer](Waited::failure).
pub fn wait(mount: &Path, run: &Path, caller: &dyn Caller) -> Result<Waited, Failure> {
    let (request, mount_point) = request(mount)?;
    let mut client = Client::connect(run).map_err(failed)?;
    let before = client.ask(&Request::Status).map_err(failed)?;
    if before["dry_run"] == true {
        let why = words!["trimwised runs with --dry-run and sends nothing; use ", key("now"), " alone"];
        return Err(Mistake::on("wait").because(why).fail());
    }
    let mut last = status_of(&before, &mount_point).cloned().unwrap_or_default();
    let before = last["totals"].clone();
    let stop = caller.stop(OnInterrupt::StopWaiting)?;
    client.ask(&request).map_err(failed)?;
    let since = Instant::now();
    let progress = caller.progress(1, "file systems");
    let ended = loop {
        let data = match client.ask(&Request::Status) {
            Ok(data) => data,
            Err(error) => break Err(failed(error)),
        };
        let status = status_of(&data, &mount_point);
        let ended = how_it_ended(status);
        if !matches!(ended, Some((Outcome::Gone | Outcome::BegunAnew, _))) {
            last = status.cloned().unwrap_or_default();
        }
        match ended {
            Some(ended) => break Ok(ended),
            None if stop.load(Ordering::SeqCst) => {
                break Ok((Outcome::Interrupted, Some("trimwised continues".to_owned())));
            }
            None => show(&*progress, &last, &before),
        }
        std::thread::sleep(ASKED_EVERY);
    };
    progress.finish();
    let (outcome, why) = ended?;
    let unverified_bytes = grown(&last, &before, "unverified_bytes");
    let on_virtual_disk = Target::of(mount).is_ok_and(|target| target.is_virtual);
    Ok(Waited {
        trimwise: trimwise::VERSION,
        mount_point,
        outcome,
        code: outcome.code(unverified_bytes > 0, on_virtual_disk),
        why,
        took_ns: SimDuration::from_nanos(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)),
        trimmed_bytes: grown(&last, &before, "trimmed_bytes"),
        unverified_bytes,
        on_virtual_disk,
        slices: grown(&last, &before, "slices"),
        slices_failed: grown(&last, &before, "slices_failed"),
        waiting_bytes: UntrimmedOf::status(&last).waiting,
    })
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Finds the status of one file system: `None` if it is not managed, null if the daemon has not looked at it yet.
fn status_of<'a>(data: &'a Value, mount: &str) -> Option<&'a Value> {
    let all = data["file_systems"].as_array()?;
    all.iter().find(|one| one["mount_point"] == mount).map(|one| &one["status"])
}

/// Returns the outcome, and the reason if the trim is not done; `None` while it goes on.
fn how_it_ended(status: Option<&Value>) -> Option<(Outcome, Option<String>)> {
    let because = |outcome, why: &str| Some((outcome, Some(why.to_owned())));
    let Some(status) = status else {
        return because(Outcome::Gone, "it was unmounted, or is no longer managed");
    };
    match (status["asked"].as_str(), status["reason"]["code"].as_str()) {
        (Some("done"), _) => Some((Outcome::Done, None)),
        (Some("called-off"), _) => because(Outcome::Paused, "it was paused"),
        // It is being tried again now.
        (Some("under-way"), Some("failed")) if status["reason"]["again_in_ns"] == 0 => None,
        (Some("under-way"), Some("failed" | "stuck" | "refused")) => {
            because(Outcome::Failed, status["why"].as_str().unwrap_or_default())
        }
        (Some("under-way"), _) => None,
        // The daemon has the request, but has not looked at the file system yet.
        _ if status.is_null() => None,
        _ => because(
            Outcome::BegunAnew,
            "trimwised started over there, because the policy or the size changed, and forgot the request; ask again",
        ),
    }
}

fn show(progress: &dyn Progress, status: &Value, before: &Value) {
    let sent = ["trimmed_bytes", "unverified_bytes"].map(|key| grown(status, before, key));
    let (trimmed, waiting) = (sent[0].saturating_add(sent[1]), UntrimmedOf::status(status).waiting);
    match status["round_permille"].as_u64() {
        // The number of waiting bytes is known for one window only.
        Some(permille) => progress.update(0, permille, 1000),
        None => {
            if let Some(waiting) = waiting.known() {
                progress.update(0, trimmed, trimmed.saturating_add(waiting.0));
            }
        }
    }
    let waiting = waiting.known().map_or(String::new(), |waiting| format!(", {waiting} waiting"));
    progress.say(format!("{} trimmed{waiting}", Bytes(trimmed)));
}

/// Returns how much a sum has grown since the request.
fn grown(status: &Value, before: &Value, name: &str) -> u64 {
    number(&status["totals"][name]).saturating_sub(number(&before[name]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_trim_by_the_daemon_has_the_code_of_how_it_ended() {
        use Outcome::{BegunAnew, Done, Failed, Gone, Interrupted, Paused};
        for (outcome, is_unverified, is_virtual, code) in [
            (Done, false, false, None),
            (Done, true, true, Some("trim.sent.unverified")),
            (Done, false, true, Some("trim.sent.on-virtual-disk")),
            (Failed, true, true, Some("trim.sent.failed")),
            (Paused, true, true, Some("trim.asked.left")),
            (Gone, false, false, Some("trim.asked.left")),
            (BegunAnew, false, false, Some("trim.asked.left")),
            (Interrupted, true, true, None),
        ] {
            let found = outcome.code(is_unverified, is_virtual).map(Code::as_str);
            assert_eq!(found, code, "{outcome:?}");
        }
    }

    #[test]
    fn waiting_ends_when_the_request_is_over_or_cannot_be_carried_out_now() {
        let ended = |status: Value| how_it_ended(Some(&status)).map(|(outcome, _)| outcome);
        assert_eq!(ended(json!({"asked": "under-way", "reason": {"code": "asked"}})), None);
        assert_eq!(ended(json!({"asked": "under-way", "reason": {"code": "looking"}})), None);
        assert_eq!(ended(json!({"asked": "done", "reason": {"code": "failed"}})), Some(Outcome::Done));
        for code in ["failed", "stuck", "refused"] {
            let status = json!({"asked": "under-way", "reason": {"code": code}, "why": "an error."});
            assert_eq!(how_it_ended(Some(&status)), Some((Outcome::Failed, Some("an error.".to_owned()))));
        }
        let failed = |again_in_ns: u64| json!({"code": "failed", "again_in_ns": again_in_ns});
        assert_eq!(ended(json!({"asked": "under-way", "reason": failed(0)})), None, "tried again now");
        assert_eq!(ended(json!({"asked": "under-way", "reason": failed(1)})), Some(Outcome::Failed));
        assert_eq!(ended(json!({"asked": "called-off"})), Some(Outcome::Paused));
        assert_eq!(ended(json!({"asked": "never"})), Some(Outcome::BegunAnew));
        assert_eq!(ended(Value::Null), None, "not looked at yet");
        assert_eq!(how_it_ended(None).map(|(outcome, _)| outcome), Some(Outcome::Gone));
    }
}
