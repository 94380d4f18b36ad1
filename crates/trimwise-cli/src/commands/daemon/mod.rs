//! The commands that talk to a running `trimwised`, and `config check`.

pub mod arguments;
pub mod table;

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use trimwise_lab::failure::Failure;
use trimwise_linux::daemon::config::{Config, group_number};
use trimwise_linux::daemon::control::{Client, ClientError, Request};
use trimwise_linux::host_root::HostRoot;

use crate::arguments::JsonArguments;
use crate::commands::daemon::arguments::{
    ConfigCheckArguments, ConfigCommand, ExplainArguments, HistoryArguments, PauseArguments, StatusArguments,
};
use crate::commands::daemon::table as text;
use crate::output::Destinations;

/// Only a wrong request is a usage error; a daemon that cannot be reached is a failed run.
pub fn failed(error: ClientError) -> Failure {
    match error {
        ClientError::BadRequest(_) => Failure::usage(error),
        _ => Failure::run(error),
    }
}

/// Returns a mount point as the kernel writes it: absolute, without links or a trailing slash. A path that does not
/// exist is accepted: it may be known to a daemon elsewhere or from the past.
pub fn normal(mount: &Path) -> Result<PathBuf, Failure> {
    let refused = |why: &dyn std::fmt::Display| Failure::usage(format!("{}: {why}", mount.display()));
    let absolute = mount.canonicalize().or_else(|_| std::path::absolute(mount)).map_err(|e| refused(&e))?;
    if absolute.to_str().is_none() {
        return Err(refused(&"expected a mount point whose name is UTF-8"));
    }
    Ok(absolute.components().collect())
}

/// Sends a request and returns the data, as JSON or as the text made of it.
pub fn ask(
    run: &Path,
    request: &Request,
    json: &JsonArguments,
    render: impl FnOnce(&Value) -> String,
) -> Result<String, Failure> {
    let destinations = Destinations::check_json(json)?;
    let data = Client::connect(run).and_then(|mut client| client.ask(request)).map_err(failed)?;
    destinations.deliver(&data, || render(&data))
}

/// `trimwise status`.
pub fn status(arguments: &StatusArguments) -> Result<String, Failure> {
    let mount = arguments.mount.as_deref().map(normal).transpose()?;
    let show = match &mount {
        Some(mount) => text::Show::One(mount),
        None if arguments.all => text::Show::Each,
        None => text::Show::Groups,
    };
    if !arguments.watch {
        return ask(&arguments.run.run, &Request::Status, &arguments.json, |data| text::status(data, show));
    }
    if !std::io::stdout().is_terminal() {
        return Err(Failure::usage("--watch needs a terminal; in a pipe, leave it out or use `--json -`"));
    }
    let mut client = Client::connect(&arguments.run.run).map_err(failed)?;
    loop {
        let text = match client.ask(&Request::Status) {
            Ok(data) => text::status(&data, show),
            // The daemon may only be restarting.
            Err(error) => {
                if let Ok(next) = Client::connect(&arguments.run.run) {
                    client = next;
                }
                format!("{error}\nWaiting for trimwised.\n")
            }
        };
        // Move the cursor home, and clear what is below the text.
        let shown = text.replace('\n', "\u{1b}[K\n");
        let mut out = std::io::stdout().lock();
        let written = write!(out, "\u{1b}[H{shown}\u{1b}[J").and_then(|()| out.flush());
        if written.is_err() {
            return Ok(String::new());
        }
        drop(out);
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// `trimwise explain MOUNT`.
pub fn explain(arguments: &ExplainArguments) -> Result<String, Failure> {
    let request = Request::Explain { mount: normal(&arguments.mount)? };
    ask(&arguments.run.run, &request, &arguments.json, text::explain)
}

/// `trimwise history MOUNT`.
pub fn history(arguments: &HistoryArguments) -> Result<String, Failure> {
    let request = Request::History { mount: normal(&arguments.mount)?, limit: arguments.limit };
    ask(&arguments.run.run, &request, &arguments.json, text::history)
}

/// `trimwise pause` and `trimwise resume`.
pub fn pause(arguments: &PauseArguments, paused: bool) -> Result<String, Failure> {
    let mount = arguments.mount.as_deref().map(normal).transpose()?;
    if paused && mount.is_none() && !arguments.all {
        return Err(Failure::usage("pause needs a MOUNT, or `--all` to pause all file systems"));
    }
    let all = arguments.all;
    let request = if paused { Request::Pause { mount, all } } else { Request::Resume { mount } };
    let word = if paused { "paused" } else { "resumed" };
    let mut not_saved = None;
    let text = ask(&arguments.run.run, &request, &arguments.json, |data| {
        not_saved = data["not_saved"].as_str().map(str::to_owned);
        text::points(word, data)
    })?;
    match not_saved {
        Some(why) => Err(Failure::run(format!("{word}, but only until trimwised ends: {why}"))),
        None => Ok(text),
    }
}

/// What `config check --json` writes.
#[derive(Serialize)]
struct Checked {
    trimwise: &'static str,
    file: PathBuf,
    errors: Vec<CheckedError>,
    /// Accepted settings that will not work on this host.
    notes: Vec<String>,
}

#[derive(Serialize)]
struct CheckedError {
    file: PathBuf,
    line: usize,
    key: String,
    message: String,
}

/// `trimwise config check`.
pub fn config(command: &ConfigCommand) -> Result<String, Failure> {
    let ConfigCommand::Check(ConfigCheckArguments { file, json }) = command;
    let destinations = Destinations::check_json(json)?;
    let result = Config::load(file);
    let errors = result.as_ref().err().map_or(&[][..], |errors| &errors.0);
    let told = |error: &trimwise_linux::daemon::config::ConfigError| CheckedError {
        file: error.file.clone(),
        line: error.line,
        key: error.key.clone(),
        message: error.message.clone(),
    };
    let errors = errors.iter().map(told).collect();
    let mut notes: Vec<String> = result.iter().flat_map(notes_on).collect();
    if result.is_ok() && !file.exists() {
        notes.push(format!("{}: no such file; what its drop-ins do not set has its default", file.display()));
    }
    let checked = Checked { trimwise: trimwise::VERSION, file: file.clone(), errors, notes };
    let text = destinations.deliver(&checked, || {
        result.as_ref().map_or(String::new(), |c| text::config(file, c, &checked.notes))
    })?;
    match result {
        Ok(_) => Ok(text),
        Err(errors) if errors.0.len() > 1 => {
            Err(Failure::usage(format!("{} things are wrong:\n{errors}", errors.0.len())))
        }
        Err(errors) => Err(Failure::usage(errors)),
    }
}

/// A configuration may be checked on another host than the one that it is for, so these are not errors.
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
