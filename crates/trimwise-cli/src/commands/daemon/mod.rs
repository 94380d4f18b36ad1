//! The commands that talk to a running `trimwised`, and `config check`.

pub mod arguments;
pub mod table;

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use trimwise::failure::{Failure, Mistake, argument, key};
use trimwise::words;
use trimwise_linux::code::is_code;
use trimwise_linux::daemon::control::{Client, Request};
use trimwise_study::daemon::{self, failed, normal};
use trimwise_study::findings::{self, Findings};

use crate::commands::daemon::arguments::{
    ConfigCheckArguments, ConfigCommand, ExplainArguments, HistoryArguments, PauseArguments, StatusArguments,
};
use crate::commands::daemon::table as text;
use crate::output::Destinations;

/// Sends a request and returns the reply, as JSON or as the text that `render` makes of it. If the reply is about one
/// file system, a conclusion for it is added.
fn ask(
    run: &Path,
    request: &Request,
    about: Option<&Path>,
    destinations: &Destinations,
    render: impl FnOnce(&Value) -> String,
) -> Result<String, Failure> {
    let data = match about {
        Some(mount) => daemon::ask_about(run, request, mount)?,
        None => daemon::ask(run, request)?,
    };
    destinations.deliver(&data, || render(&data))
}

pub fn status(arguments: &StatusArguments) -> Result<String, Failure> {
    let mount = arguments.mount.as_deref().map(normal).transpose()?;
    let show = match &mount {
        Some(mount) => text::Show::One(mount),
        None if arguments.all || arguments.tables.are_wanted() => text::Show::Each,
        None => text::Show::Groups,
    };
    if !arguments.watch {
        let destinations = Destinations::check_forms(&arguments.json, &arguments.tables)?;
        let (run, about) = (&arguments.run.run, mount.as_deref());
        return ask(run, &Request::Status, about, &destinations, |data| text::status(data, show));
    }
    if !std::io::stdout().is_terminal() {
        let why = "needs a terminal; in a pipe, leave it out or use `--json -`";
        return Err(Mistake::on("watch").that_is(why).fail());
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
        // Move the cursor to the top left, and clear everything below the text.
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

/// `trimwise explain`, for a mount or a finding's code.
pub fn explain(arguments: &ExplainArguments) -> Result<String, Failure> {
    let Some(subject) = &arguments.subject else {
        let destinations = Destinations::check_forms(&arguments.json, &arguments.tables)?;
        let all = Findings::all();
        return destinations.deliver(&all, || text::codes(&all));
    };
    if let Some(code) = subject.to_str().filter(|text| is_code(text)) {
        let destinations = Destinations::check_json(&arguments.json)?;
        let explained = findings::explain(code)?;
        return destinations.deliver(&explained, || text::code(explained.entry));
    }
    let mount = normal(subject)?;
    let destinations = Destinations::check_json(&arguments.json)?;
    let data = daemon::explain(&arguments.run.run, subject, &mount)?;
    destinations.deliver(&data, || text::explain(&data))
}

pub fn history(arguments: &HistoryArguments) -> Result<String, Failure> {
    let request = Request::History { mount: normal(&arguments.mount)?, limit: arguments.limit };
    let destinations = Destinations::check_forms(&arguments.json, &arguments.tables)?;
    ask(&arguments.run.run, &request, None, &destinations, text::history)
}

pub fn pause(arguments: &PauseArguments, paused: bool) -> Result<String, Failure> {
    let mount = arguments.mount.as_deref().map(normal).transpose()?;
    if paused && mount.is_none() && !arguments.all {
        let why =
            words!["pause needs a ", argument("mount"), ", or ", key("all"), " to pause all file systems"];
        return Err(Mistake::that(why).fail());
    }
    let all = arguments.all;
    let request = if paused { Request::Pause { mount, all } } else { Request::Resume { mount } };
    let word = if paused { "paused" } else { "resumed" };
    let mut not_saved = None;
    let destinations = Destinations::check_json(&arguments.json)?;
    let text = ask(&arguments.run.run, &request, None, &destinations, |data| {
        not_saved = data["not_saved"].as_str().map(str::to_owned);
        text::points(word, data)
    })?;
    match not_saved {
        Some(why) => Err(Failure::run(format!("{word}, but only until trimwised stops: {why}"))),
        None => Ok(text),
    }
}

pub fn config(command: &ConfigCommand) -> Result<String, Failure> {
    let ConfigCommand::Check(ConfigCheckArguments { file, json }) = command;
    let destinations = Destinations::check_json(json)?;
    let checked = daemon::check_config(file);
    let text = destinations.deliver(&checked, || {
        checked.config.as_ref().map_or(String::new(), |config| text::config(file, config, &checked.notes))
    })?;
    checked.config.map(|_| text)
}
