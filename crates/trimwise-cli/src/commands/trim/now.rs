//! `trimwise trim MOUNT --now`: a trim by the daemon; with `--wait`, returns when it is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use trimwise::units::{Bytes, SimDuration};
use trimwise_lab::failure::Failure;
use trimwise_linux::daemon::control::{Client, Request};

use crate::commands::daemon::{ask, failed, normal};
use crate::commands::trim::arguments::TrimArguments;
use crate::figures;
use crate::output::{self, Destinations};
use crate::progress::Progress;
use crate::table::folded;
use trimwise_study::caller::OnInterrupt;
use trimwise_study::command_text::CommandText;
use trimwise_study::input::expect_mount;

/// Interval at which the daemon is asked for its progress.
const ASKED_EVERY: Duration = Duration::from_millis(250);

/// Runs the command and returns what to print.
pub fn run(
    arguments: &TrimArguments,
    on_signal: impl FnOnce(OnInterrupt) -> Result<Arc<AtomicBool>, Failure>,
) -> Result<String, Failure> {
    expect_mount(&arguments.mount)?;
    let mount = normal(&arguments.mount)?;
    let shown = mount.display().to_string();
    let request = Request::Trim { mount };
    if arguments.wait {
        return wait(arguments, &shown, &request, on_signal);
    }
    ask(&arguments.run, &request, &arguments.json, |data| {
        let known = Bytes(number(&data["waiting_bytes"]));
        let but = if data["dry_run"] == true { " (dry run: it sends nothing)" } else { "" };
        let mut explain = CommandText::new("explain");
        explain.argument(&shown);
        let explain = explain.into_text();
        folded(
            &format!(
                "{shown}: trimwised scans all free space and trims what is untrimmed, slice by slice: {known} as \
                 far as it knows now{but}; `{explain}` shows its progress"
            ),
            0,
        )
    })
}

/// How the waiting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    /// All that was free is trimmed.
    Done,
    /// A slice or a scan failed. The daemon may try again.
    Failed,
    /// The trim was paused.
    Paused,
    /// The daemon no longer manages it.
    Gone,
    /// The daemon started over there, and has forgotten the request.
    BegunAnew,
    /// The user stopped waiting.
    Interrupted,
}

/// What `--wait --json` writes.
#[derive(Debug, Serialize)]
struct Waited<'a> {
    trimwise: &'static str,
    mount_point: &'a str,
    outcome: Outcome,
    /// The reason, unless it is done.
    why: Option<String>,
    took_ns: SimDuration,
    /// Bytes trimmed by the daemon since the request.
    trimmed_bytes: u64,
    slices: u64,
    slices_failed: u64,
    /// Bytes still waiting at the end, as far as the daemon knew.
    waiting_bytes: u64,
}

fn wait(
    arguments: &TrimArguments,
    mount: &str,
    request: &Request,
    on_signal: impl FnOnce(OnInterrupt) -> Result<Arc<AtomicBool>, Failure>,
) -> Result<String, Failure> {
    let destinations = Destinations::check_json(&arguments.json)?;
    let mut client = Client::connect(&arguments.run).map_err(failed)?;
    let before = client.ask(&Request::Status).map_err(failed)?;
    if before["dry_run"] == true {
        return Err(Failure::usage(
            "--wait: trimwised runs with --dry-run and sends nothing; use --now alone",
        ));
    }
    let mut last = status_of(&before, mount).cloned().unwrap_or_default();
    let before = last["totals"].clone();
    let stop = on_signal(OnInterrupt::StopWaiting)?;
    client.ask(request).map_err(failed)?;
    let since = Instant::now();
    let progress = Progress::of(1, "file systems");
    let ended = loop {
        let data = match client.ask(&Request::Status) {
            Ok(data) => data,
            Err(error) => break Err(failed(error)),
        };
        let status = status_of(&data, mount);
        let ended = how_it_ended(status);
        if !matches!(ended, Some((Outcome::Gone | Outcome::BegunAnew, _))) {
            last = status.cloned().unwrap_or_default();
        }
        match ended {
            Some(ended) => break Ok(ended),
            None if stop.load(Ordering::SeqCst) => {
                break Ok((Outcome::Interrupted, Some("trimwised goes on".to_owned())));
            }
            None => show(&progress, &last, &before),
        }
        std::thread::sleep(ASKED_EVERY);
    };
    progress.finish();
    let (outcome, why) = ended?;
    let waited = Waited {
        trimwise: trimwise::VERSION,
        mount_point: mount,
        outcome,
        why,
        took_ns: SimDuration::from_nanos(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)),
        trimmed_bytes: grown(&last, &before, "trimmed_bytes"),
        slices: grown(&last, &before, "slices"),
        slices_failed: grown(&last, &before, "slices_failed"),
        waiting_bytes: number(&last["waiting_bytes"]),
    };
    let text = destinations.deliver(&waited, || words(&waited))?;
    let failure = match waited {
        Waited { outcome: Outcome::Done, .. } => return Ok(text),
        Waited { outcome: Outcome::Interrupted, .. } => Failure::Interrupted,
        Waited { why, .. } => Failure::run(format!("{mount}: {}", why.unwrap_or_default())),
    };
    // Report what was done even if it is not all.
    output::print(&text).and(Err(failure))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Finds the status of one file system: `None` if it is not managed, null if it has not been looked at yet.
fn status_of<'a>(data: &'a Value, mount: &str) -> Option<&'a Value> {
    let all = data["file_systems"].as_array()?;
    all.iter().find(|one| one["mount_point"] == mount).map(|one| &one["status"])
}

/// Returns how it ended, and the reason if it is not done; `None` while it goes on.
fn how_it_ended(status: Option<&Value>) -> Option<(Outcome, Option<String>)> {
    let because = |outcome, why: &str| Some((outcome, Some(why.to_owned())));
    let Some(status) = status else {
        return because(Outcome::Gone, "it was unmounted, or is no longer managed");
    };
    match (status["asked"].as_str(), status["reason"]["code"].as_str()) {
        (Some("done"), _) => Some((Outcome::Done, None)),
        (Some("called-off"), _) => because(Outcome::Paused, "it was paused"),
        (Some("under-way"), Some("failed" | "stuck" | "refused")) => {
            because(Outcome::Failed, status["why"].as_str().unwrap_or_default())
        }
        (Some("under-way"), _) => None,
        _ => because(
            Outcome::BegunAnew,
            "trimwised started over there, because the policy or the size changed, and forgot the request; ask again",
        ),
    }
}

fn show(progress: &Progress, status: &Value, before: &Value) {
    let (trimmed, waiting) = (grown(status, before, "trimmed_bytes"), number(&status["waiting_bytes"]));
    match status["round_permille"].as_u64() {
        // What is waiting is known for one window only.
        Some(permille) => progress.update(0, permille, 1000),
        None => progress.update(0, trimmed, trimmed.saturating_add(waiting)),
    }
    progress.say(format!("{} trimmed, {} waiting", Bytes(trimmed), Bytes(waiting)));
}

/// Returns how much a sum has grown since the request.
fn grown(status: &Value, before: &Value, name: &str) -> u64 {
    number(&status["totals"][name]).saturating_sub(number(&before[name]))
}

fn words(waited: &Waited<'_>) -> String {
    let failed = match waited.slices_failed {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    let rest = match waited.outcome {
        Outcome::Done => String::new(),
        _ => format!("; {} still waiting", Bytes(waited.waiting_bytes)),
    };
    let (trimmed, took) = (Bytes(waited.trimmed_bytes), figures::time(waited.took_ns.as_secs_f64()));
    folded(
        &format!(
            "{}: {trimmed} trimmed in {took} (slices: {}{failed}){rest}",
            waited.mount_point, waited.slices
        ),
        0,
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        assert_eq!(ended(json!({"asked": "called-off"})), Some(Outcome::Paused));
        assert_eq!(ended(json!({"asked": "never"})), Some(Outcome::BegunAnew));
        assert_eq!(ended(Value::Null), Some(Outcome::BegunAnew));
        assert_eq!(how_it_ended(None).map(|(outcome, _)| outcome), Some(Outcome::Gone));
    }
}
