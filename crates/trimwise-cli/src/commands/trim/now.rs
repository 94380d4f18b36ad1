//! `trimwise trim MOUNT --now`: has the daemon trim; with `--wait`, returns when it is done.

use std::path::Path;

use trimwise::failure::Failure;
use trimwise::live::Sent;
use trimwise::units::Bytes;
use trimwise_linux::daemon::DEFAULT_RUN;
use trimwise_study::caller::Caller;
use trimwise_study::command_text::CommandText;
use trimwise_study::trim::now::{Outcome, Waited, start, wait};

use crate::commands::trim::arguments::TrimArguments;
use crate::figures;
use crate::output::{self, Destinations};
use crate::table::folded;

pub fn run(arguments: &TrimArguments, caller: &dyn Caller) -> Result<String, Failure> {
    let destinations = Destinations::check_json(&arguments.json)?;
    if arguments.wait {
        let waited = wait(&arguments.mount, &arguments.run, caller)?;
        let text = destinations.deliver(&waited, || words(&waited))?;
        return output::concluded(text, waited.failure());
    }
    let (data, mount) = start(&arguments.mount, &arguments.run)?;
    destinations.deliver(&data, || {
        let known = data["waiting_bytes"].as_u64().map(Bytes);
        let known = known.map_or(String::new(), |known| format!(": {known} as far as it knows now"));
        let but = if data["dry_run"] == true { " (dry run: it sends nothing)" } else { "" };
        let mut explain = CommandText::new("explain");
        explain.argument(&mount);
        if arguments.run != Path::new(DEFAULT_RUN) {
            explain.option("--run", arguments.run.display());
        }
        let explain = explain.into_text();
        folded(
            &format!(
                "{mount}: trimwised scans all free space and trims what is untrimmed, slice by \
                 slice{known}{but}; `{explain}` shows its progress"
            ),
            0,
        )
    })
}

fn words(waited: &Waited) -> String {
    let failed = match waited.slices_failed {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    let rest = match waited.outcome {
        Outcome::Done => String::new(),
        _ => match waited.waiting_bytes.known() {
            Some(waiting) => format!("; {waiting} still waiting"),
            None => "; how much still waits is unknown".to_owned(),
        },
    };
    // Worded like the verdict of a trim without the daemon.
    let done = match waited.on_virtual_disk {
        true => "accepted by a virtual disk (whether its host frees the space cannot be seen from here)",
        false => "trimmed",
    };
    let sent = Sent { taken: Bytes(waited.trimmed_bytes), unverified: Bytes(waited.unverified_bytes) };
    let (sent, took) = (sent.words(done), figures::time(waited.took_ns.as_secs_f64()));
    folded(&format!("{}: {sent} in {took} (slices: {}{failed}){rest}", waited.mount_point, waited.slices), 0)
}
