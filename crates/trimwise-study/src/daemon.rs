//! Requests to the daemon `trimwised` over its socket, and checks of its configuration.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use trimwise::failure::{Failure, Mistake, Mistakes, argument};
use trimwise::live::Untrimmed;
use trimwise::spelling::Accepted;
use trimwise::units::Bytes;
use trimwise_linux::code::CODES;
use trimwise_linux::daemon::config::{Config, ConfigError, ConfigErrors, group_number};
use trimwise_linux::daemon::control::{Client, ClientError, Request};
use trimwise_linux::host_root::HostRoot;
use trimwise_linux::mount::{Mount, mounts};

use crate::conclusion;

/// Only a wrong request is a usage error; an unreachable daemon is a failed run.
pub fn failed(error: ClientError) -> Failure {
    match error {
        ClientError::BadRequest(_) => Mistake::that(error.to_string()).fail(),
        _ => Failure::run(error),
    }
}

fn of(mount: &Path) -> Mistake {
    Mistake::of(argument("mount"), mount.display())
}

/// Returns a mount point as the kernel writes it: absolute, without links or a trailing slash. The path need not exist:
/// a daemon elsewhere may know it, or it may be from the past.
pub fn absolute(mount: &Path) -> Result<PathBuf, Failure> {
    let absolute = mount.canonicalize().or_else(|_| std::path::absolute(mount));
    let absolute = absolute.map_err(|error| of(mount).because(error.to_string()).fail())?;
    Ok(absolute.components().collect())
}

/// Returns a mount point as [`absolute`] does, for a request to the daemon. It must be UTF-8.
pub fn normal(mount: &Path) -> Result<PathBuf, Failure> {
    let absolute = absolute(mount)?;
    if absolute.to_str().is_none() {
        return Err(of(mount).expected("a mount point whose name is UTF-8").fail());
    }
    Ok(absolute)
}

/// Sends a request to the daemon whose sockets are in the folder `run`.
pub fn ask(run: &Path, request: &Request) -> Result<Value, Failure> {
    Client::connect(run).and_then(|mut client| client.ask(request)).map_err(failed)
}

/// Explains the decisions about one file system, as [`ask_about`] does. `subject` is as the user wrote it.
///
/// # Errors
///
/// If nothing is mounted there and no daemon answers, the failure says both: the name may be the mistake.
pub fn explain(run: &Path, subject: &Path, mount: &Path) -> Result<Value, Failure> {
    if let Err(error @ ClientError::None { .. }) = Client::connect(run) {
        let mounts = mounts(&HostRoot::default()).unwrap_or_default();
        if !mounts.iter().any(|one| one.mount_point == mount) {
            let (unknown, is_elsewhere) = (no_such(subject, &mounts), !error.elsewhere().is_empty());
            let silent = Mistake::that(error.to_string());
            // A daemon that runs elsewhere does not know it either.
            let all = if is_elsewhere { vec![unknown] } else { vec![unknown, silent] };
            return Err(Failure::Usage(Mistakes(all)));
        }
    }
    ask_about(run, &Request::Explain { mount: mount.to_owned() }, mount)
}

/// Says what could be explained in place of a name that is neither a mount nor a code.
fn no_such(subject: &Path, mounts: &[Mount]) -> Mistake {
    const NAMED: usize = 8;
    let mut points: Vec<String> = Vec::new();
    for mount in mounts.iter().filter(|mount| mount.has_device()) {
        let point = mount.mount_point.display().to_string();
        if !points.contains(&point) {
            points.push(point);
        }
    }
    let some = points.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if points.len() > NAMED { ", ..." } else { "" };
    let mounted =
        if points.is_empty() { "a mount point".to_owned() } else { format!("a mount point ({some}{more})") };
    let all = format!("{mounted} or a finding's code (`trimwise explain --list`)");
    let written = subject.display().to_string();
    let names = points.iter().map(String::as_str).chain(CODES.iter().map(|entry| entry.code));
    of(subject)
        .because("no file system is mounted there, and no finding has this code")
        .expected(Accepted::instead_of(&written, names, all))
}

/// Sends a request about one file system, and adds a [`Conclusion`](crate::conclusion::Conclusion) to the answer.
pub fn ask_about(run: &Path, request: &Request, mount: &Path) -> Result<Value, Failure> {
    let mut answer = ask(run, request)?;
    let conclusion = conclusion::of_mount(run, mount).and_then(|one| serde_json::to_value(one).ok());
    if let (Some(answer), Some(conclusion)) = (answer.as_object_mut(), conclusion) {
        answer.insert("conclusion".to_owned(), conclusion);
    }
    Ok(answer)
}

/// Untrimmed space in the status of one file system, of any version of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UntrimmedOf {
    pub waiting: Untrimmed,
    pub left: Untrimmed,
}

impl UntrimmedOf {
    /// Takes what a status says. `mapped` and `slices` are not in every status.
    pub(crate) fn written(
        waiting: Untrimmed,
        left: Untrimmed,
        mapped: Option<bool>,
        slices: Option<u64>,
    ) -> Self {
        const NONE: Untrimmed = Untrimmed::Known(Bytes(0));
        // Earlier daemons wrote 0 for unknown. Without a map or a slice nothing can have shown that it is 0.
        let nobody_knows = mapped == Some(false) && slices == Some(0);
        match (waiting, left) {
            (NONE, NONE) if nobody_knows => Self { waiting: Untrimmed::Unknown, left: Untrimmed::Unknown },
            _ => Self { waiting, left },
        }
    }

    /// Reads it from a file system's `status`. What is no number is unknown.
    pub fn status(status: &Value) -> Self {
        let bytes = |key: &str| {
            status[key].as_u64().map_or(Untrimmed::Unknown, |bytes| Untrimmed::Known(Bytes(bytes)))
        };
        let (mapped, slices) = (status["mapped"].as_bool(), status["totals"]["slices"].as_u64());
        Self::written(bytes("waiting_bytes"), bytes("left_bytes"), mapped, slices)
    }
}

#[derive(Debug, Serialize)]
pub struct Checked {
    pub trimwise: &'static str,
    pub file: PathBuf,
    /// Mistakes in the file and its drop-ins.
    pub errors: Vec<CheckedError>,
    /// Accepted settings that will not work on this host.
    pub notes: Vec<String>,
    #[serde(skip)]
    pub config: Result<Config, Failure>,
}

#[derive(Debug, Serialize)]
pub struct CheckedError {
    pub file: PathBuf,
    /// Counted from 1.
    pub line: usize,
    pub key: String,
    pub message: String,
}

pub fn check_config(file: &Path) -> Checked {
    let result = Config::load(file);
    let errors = result.as_ref().err().map_or(&[][..], |errors| &errors.0);
    let told = |error: &ConfigError| CheckedError {
        file: error.file.clone(),
        line: error.line,
        key: error.key.clone(),
        message: error.message.clone(),
    };
    let errors = errors.iter().map(told).collect();
    let mut notes: Vec<String> = result.iter().flat_map(notes_on).collect();
    if result.is_ok() && !file.exists() {
        notes.push(format!(
            "{}: no such file; whatever its drop-ins do not set has its default",
            file.display()
        ));
    }
    let config = result.map_err(|errors| match errors.0.len() {
        0 | 1 => Failure::Usage(mistakes(&errors)),
        many => Mistake::that(format!("{many} things are wrong:")).with(mistakes(&errors)).fail(),
    });
    Checked { trimwise: trimwise::VERSION, file: file.to_owned(), errors, notes, config }
}

fn mistakes(errors: &ConfigErrors) -> Mistakes {
    let of = |error: &ConfigError| {
        let ConfigError { file, line, key, message } = error;
        let why = if key.is_empty() { message.clone() } else { format!("{key}: {message}") };
        Mistake::that(why).at(file.display().to_string(), Some(*line).filter(|line| *line > 0))
    };
    Mistakes(errors.0.iter().map(of).collect())
}

/// Not errors: the configuration may be for another host.
fn notes_on(config: &Config) -> Vec<String> {
    let unknown = config.group.as_ref().filter(|name| group_number(&HostRoot::default(), name).is_none());
    let group = unknown.map(|name| {
        format!("group = \"{name}\": no such group on this host; trimwised would reject this here")
    });
    let places = [("metrics-file", &config.metrics_file), ("metrics-socket", &config.metrics_socket)];
    let metrics = places.into_iter().filter_map(|(key, place)| {
        let place = place.as_ref()?;
        let nowhere = place.is_dir() || !place.parent().is_some_and(Path::is_dir);
        nowhere.then(|| format!("{key} = \"{}\": no file can be written there on this host", place.display()))
    });
    group.into_iter().chain(metrics).collect()
}
