//! `trimwise replay`: replays a trace on a real file or device.

use clap::Args;
use trimwise::failure::Failure;
use trimwise::replay::{DeviceReplay, PreludeReplay};
use trimwise::units::Bytes;
use trimwise_study::caller::Caller;
use trimwise_study::replay::{self, Replay, ReplayRequest};

use crate::arguments::{JsonArguments, TableArguments, some_bytes, word};
use crate::commands::compare::table;
use crate::figures::{NONE, grouped, nanoseconds};
use crate::output::Destinations;
use crate::table::export::{self, Kind};
use crate::table::{folded, laid_out};

#[derive(Debug, Args)]
#[command(
    after_long_help = "Replays the requests of a trace on a real file or device, with its discards, and compares \
    their latencies with the recorded ones. Data that the trace reads before writing are written first. Everything that \
    the trace reads, writes or discards is destroyed there.\n\n\
    Examples:\n  \
    trimwise replay usr_0.zst file:/mnt/test/replay.img --size 20GiB\n  \
    trimwise replay 'sda.blktrace:open:wrap' dev:/dev/sdz --destroy SERIAL\n\n\
    In the model: trimwise compare --workload trace:FILE"
)]
pub struct ReplayArguments {
    /// The trace, with how it is replayed: open (at its recorded times), open=PERCENT, closed (as fast as its requests
    /// depend on each other; the default), depth=N (closed, where completions were not recorded), wrap or scale
    /// (addresses beyond the target), device=N or device=all
    #[arg(value_name = "[FORMAT:]FILE[:OPTION...]", value_parser = word)]
    pub trace: String,

    /// file:PATH or dev:PATH
    #[arg(value_name = "TARGET", value_parser = word)]
    pub target: String,

    /// Leave out the trace's discards
    #[arg(long)]
    pub no_discards: bool,

    /// Do not first write the data that the trace reads before writing: such reads find whatever is there
    #[arg(long)]
    pub no_fill: bool,

    /// With file:PATH, if the file does not exist or is empty: the size to make it; a file created here is removed at
    /// the end [default: 1GiB]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = some_bytes)]
    pub size: Option<Bytes>,

    /// Confirm that what WORD names may be destroyed; without this option the command says which WORD to give
    #[arg(long, value_name = "WORD")]
    pub destroy: Option<String>,

    #[command(flatten)]
    pub json: JsonArguments,

    #[command(flatten)]
    pub tables: TableArguments,
}

pub fn run(arguments: &ReplayArguments, caller: &dyn Caller) -> Result<String, Failure> {
    let ReplayArguments { trace, target, no_discards, no_fill, size, destroy, json, tables } = arguments;
    let destinations = Destinations::check_forms(json, tables)?;
    let request = ReplayRequest {
        trace: trace.clone(),
        target: target.clone(),
        no_discards: *no_discards,
        no_fill: *no_fill,
        size: *size,
        destroy: destroy.clone(),
    };
    let replay = replay::run(&request, caller)?;
    destinations.deliver(&replay, || text(&replay))
}

/// Formats the number of requests, and of discards if there are any.
fn counted(requests: u64, discards: u64) -> String {
    match discards {
        0 => format!("{} requests", grouped(requests)),
        _ => format!("{} requests and {} discards", grouped(requests), grouped(discards)),
    }
}

fn text(Replay { trace, target, discards, replay, notes, .. }: &Replay) -> String {
    let DeviceReplay { duration_ns, figures, discards_sent, unwritten_read_bytes, prelude, latency } = replay;
    let mut text = format!(
        "{trace} on {target}, {}: {} in {}, {} read, {} written\n\n",
        figures.pace,
        counted(figures.requests, *discards_sent),
        nanoseconds(*duration_ns as f64),
        Bytes(figures.read_bytes),
        Bytes(figures.written_bytes)
    );
    let time = |ns: Option<u64>| ns.map_or(NONE.to_owned(), |ns| nanoseconds(ns as f64));
    let rows: Vec<Vec<String>> = latency
        .iter()
        .map(|(kind, here)| {
            let recorded = figures.recorded_latency.get(kind);
            vec![
                kind.clone(),
                grouped(here.count),
                nanoseconds(here.p50_ns as f64),
                nanoseconds(here.p99_ns as f64),
                nanoseconds(here.p999_ns as f64),
                nanoseconds(here.max_ns as f64),
                time(recorded.map(|recorded| recorded.p50_ns)),
                time(recorded.map(|recorded| recorded.p99_ns)),
            ]
        })
        .collect();
    let header = ["latency", "n", "p50", "p99", "p99.9", "max", "recorded p50", "recorded p99"];
    text += &laid_out(&header, &rows);
    export::declare(|heading| match heading {
        "latency" => Kind::Text,
        "n" => Kind::Number(""),
        _ => Kind::Number("s"),
    });
    if let Some(PreludeReplay { requests, discards_sent, written_bytes }) = *prelude {
        let (prelude, written) = (counted(requests, discards_sent), Bytes(written_bytes));
        let note =
            format!("Before that, the trace's prelude: {prelude}, {written} written, not in these figures.");
        text += &folded(&note, 0);
    }
    if figures.written_before_bytes > 0 {
        let bytes = Bytes(figures.written_before_bytes);
        text +=
            &folded(&format!("Before that, {bytes} were written, because the trace reads them first."), 0);
    }
    if *unwritten_read_bytes > 0 && prelude.is_none() {
        let note = format!(
            "{} of the {} read had not been written by this replay. A file system answers reads of unwritten \
             space without asking the drive, and a drive without reading its flash, so read latencies may be too short.",
            Bytes(*unwritten_read_bytes),
            Bytes(figures.read_bytes)
        );
        text += &folded(&note, 0);
    }
    if figures.recorded_discards > 0 && !discards {
        text += &folded(&format!("{} discards were left out.", grouped(figures.recorded_discards)), 0);
    }
    if figures.cut_requests > 0 {
        text += &folded(&format!("{} requests were cut off at the end.", grouped(figures.cut_requests)), 0);
    }
    if figures.lost_events > 0 {
        text += &folded(&table::lost(figures.lost_events), 0);
    }
    text += &figures.cut_off.as_deref().map(|why| folded(&table::up_to(why), 0)).unwrap_or_default();
    notes.iter().for_each(|note| text += &folded(note, 0));
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use trimwise_study::caller::Silent;

    use super::*;
    use crate::commands::{Command, CommandLine};

    fn run_line(words: &[&str]) -> Result<String, Failure> {
        let words = ["trimwise", "replay"].iter().chain(words);
        match CommandLine::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).command {
            Command::Replay(arguments) => run(&arguments, &Silent::default()),
            _ => panic!("not replay"),
        }
    }

    #[test]
    fn a_trace_is_replayed_on_a_new_file_and_never_on_one_that_holds_something() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let log = path("log");
        let text = "fio version 3 iolog\n0 a write 0 8192\n9 a write 512 1024\n11 a sync 0 0\n20 a read 4096 4096\n\
                    30 a trim 0 4096\n";
        std::fs::write(&log, text).unwrap();
        let new = format!("file:{}", path("new"));
        let shown = run_line(&[&format!("{log}:open"), &new, "--size", "16MiB"]).unwrap();
        assert!(
            shown.contains("open: 4 requests and 1 discards") && shown.contains("9 KiB written"),
            "{shown}"
        );
        let full = path("full");
        std::fs::write(&full, vec![7; 1 << 20]).unwrap();
        for (words, expected) in [
            (vec![log.as_str(), &format!("file:{full}")], "--destroy"),
            (vec![&log, "sata-small"], "expected file:PATH or dev:PATH"),
            (vec!["/no/such/trace", &new], "/no/such/trace"),
        ] {
            let failure = run_line(&words).unwrap_err();
            assert!(matches!(&failure, Failure::Usage(m) if m.to_string().contains(expected)), "{failure:?}");
        }
        assert_eq!(std::fs::read(&full).unwrap(), vec![7; 1 << 20], "nothing was written");
    }
}
