//! `trimwise trace`: shows what is in a trace, or converts it.

pub mod arguments;

use trimwise::failure::Failure;
use trimwise::trace::{Header, Knows, LeftOut, TraceDevice, TraceInfo};
use trimwise::units::Bytes;
use trimwise_study::caller::Caller;
use trimwise_study::trace::{self, ConvertRequest, Info, NewTraceInfo};

use crate::commands::trace::arguments::{ConvertArguments, TraceCommand};
use crate::figures::{grouped, nanoseconds};
use crate::output::{self as results, Destinations};
use crate::table::{folded, laid_out, plain};

/// Most devices that are listed by name.
const DEVICES_SHOWN: usize = 10;

pub fn run(command: &TraceCommand, caller: &dyn Caller) -> Result<String, Failure> {
    match command {
        TraceCommand::Info(arguments) => {
            let destinations = Destinations::check_forms(&arguments.json, &arguments.tables)?;
            let info = trace::info(&arguments.trace, caller)?;
            let shown = destinations.deliver(&info, || text(&info))?;
            results::concluded(shown, info.failure)
        }
        TraceCommand::Convert(ConvertArguments { input, output, force }) => {
            let request = ConvertRequest { input: input.clone(), output: output.clone(), replace: *force };
            let NewTraceInfo { records, left_out, cut_off } = trace::convert_file(&request, caller)?;
            let partial = cut_off
                .map_or(String::new(), |why| format!("Partial, like the original: {}.\n", plain(&why)));
            let records = grouped(records);
            Ok(format!("{}: {records} records\n{}{partial}", output.display(), left_out_text(left_out)))
        }
    }
}

fn left_out_text(LeftOut { empty, other }: LeftOut) -> String {
    let counts = [
        (empty, "requests for no sectors were left out."),
        (other, "requests of other or unknown kinds were left out."),
    ];
    counts
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| folded(&format!("{} {what}", grouped(*n)), 0))
        .collect()
}

fn text(Info { trace, info, .. }: &Info) -> String {
    let Header { made_by, devices, file_system, kernel, has_prelude } = &info.header;
    let mut text = format!("{}: {}", plain(trace), plain(made_by));
    if let Some(kernel) = kernel {
        text += &format!(", Linux {}", plain(kernel));
    }
    text += &format!(", {} records over {}\n\n", grouped(info.records), nanoseconds(info.span_ns as f64));
    let time = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| nanoseconds(ns as f64));
    let rows: Vec<Vec<String>> = info
        .requests
        .iter()
        .map(|(kind, figures)| {
            let latency = info.latency.get(kind);
            let bytes = |bytes: u64| if kind == "flush" { "-".to_owned() } else { Bytes(bytes).to_string() };
            vec![
                kind.clone(),
                grouped(figures.count),
                bytes(figures.bytes),
                bytes(figures.bytes_min),
                bytes(figures.bytes / figures.count.max(1)),
                bytes(figures.bytes_max),
                grouped(figures.unaligned),
                time(latency.map(|latency| latency.p50_ns)),
                time(latency.map(|latency| latency.p99_ns)),
            ]
        })
        .collect();
    if !rows.is_empty() {
        let header = ["requests", "n", "bytes", "min", "mean", "max", "unaligned", "p50", "p99"];
        text += &(laid_out(&header, &rows) + "\n");
    }
    for (index, device) in devices.iter().enumerate().take(DEVICES_SHOWN) {
        let TraceDevice { name, capacity_bytes, model } = device;
        let requests = info.requests_by_device.get(index).copied().unwrap_or(0);
        text += &format!("Device {index}: {}, {} requests", plain(name), grouped(requests));
        let size = capacity_bytes.map(|bytes| format!(", {}", Bytes(bytes)));
        let model = model.as_ref().map(|model| format!(", {}", plain(model)));
        text += &(size.unwrap_or_default() + &model.unwrap_or_default() + "\n");
    }
    if devices.len() > DEVICES_SHOWN {
        text += &format!("... and {} more devices\n", grouped((devices.len() - DEVICES_SHOWN) as u64));
    }
    if let Some(fs) = file_system {
        let (size, free) = (Bytes(fs.size_bytes), Bytes(fs.free_bytes));
        text += &format!("File system: {} of {size}, {free} free when recording began\n", plain(&fs.kind));
    }
    if info.recording_is_missing {
        let note = format!(
            "The recording is missing: the trace ends within its prelude, after {} of the records that fill the drive. It \
             cannot be replayed.",
            grouped(info.prelude_records)
        );
        return text + &folded(&note, 0) + &ended(info);
    }
    if *has_prelude {
        text += &folded(
            &format!(
                "Prelude: {} records before the recording fill the drive; the figures here leave them out.",
                grouped(info.prelude_records)
            ),
            0,
        );
    }
    let at_least = if info.working_set_is_a_lower_bound { "more than " } else { "" };
    text += &folded(
        &format!(
            "Working set: {at_least}{} in units of 4 KiB; a drive of at least {} holds all addresses.",
            Bytes(info.working_set_bytes),
            Bytes(info.needed_bytes)
        ),
        0,
    );
    let freed = info.freed + info.allocated + info.committed;
    text += &folded(
        &match (freed, info.requests.contains_key("discard")) {
            (0, false) => Knows::Nothing.serves().to_owned(),
            (0, true) => Knows::Discards.serves().to_owned(),
            _ => format!(
                "From the file system: {} frees, {} allocations, {} commits.",
                grouped(info.freed),
                grouped(info.allocated),
                grouped(info.committed)
            ),
        },
        0,
    );
    text += &left_out_text(info.left_out);
    let counts = [
        (info.unknown_latencies, "requests without a completion."),
        (info.lost_events, "events were lost while it was recorded."),
        (info.pauses_over_an_hour, "pauses of more than an hour, which may be jumps of the clock."),
    ];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        text += &folded(&format!("{} {what}", grouped(count)), 0);
    }
    text + &ended(info)
}

/// Says whether the trace was complete.
fn ended(info: &TraceInfo) -> String {
    match &info.ended_early {
        None => "Complete: it was read to its end.\n".to_owned(),
        Some(why) => folded(&format!("Partial: {}.", plain(why)), 0),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use trimwise_study::caller::Silent;

    use super::*;
    use crate::commands::{Command, CommandLine};

    fn run_line(words: &[&str]) -> Result<String, Failure> {
        let words = ["trimwise", "trace"].iter().chain(words);
        let Command::Trace(arguments) =
            CommandLine::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).command
        else {
            panic!("not trace")
        };
        run(&arguments.command, &Silent::default())
    }

    #[test]
    fn a_trace_is_shown_converted_and_shown_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let log = path("log");
        std::fs::write(&log, "fio version 3 iolog\n0 /dev/sdz write 0 8192\n9 /dev/sdz trim 4096 4096\n")
            .unwrap();
        let text = run_line(&["info", &log]).unwrap();
        for expected in [
            "2 records over 9 \u{b5}s",
            "Device 0: /dev/sdz, 2 requests",
            "Working set: 8 KiB in units of 4 KiB",
            "Complete",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let converted = path("log.zst");
        assert!(run_line(&["convert", &log, &converted]).unwrap().contains("2 records"));
        let again = run_line(&["info", &converted]).unwrap();
        assert_eq!(again.split_once(": ").unwrap().1, text.split_once(": ").unwrap().1);
        let failure = run_line(&["convert", &log, &converted]).unwrap_err();
        assert!(matches!(&failure, Failure::Usage(m) if m.to_string().contains("exists")), "{failure:?}");
        std::fs::write(&log, "fio version 3 iolog\n0 a write 0 8192\n1 a fly\n").unwrap();
        let text = run_line(&["info", &log]).unwrap();
        assert!(text.contains("Partial: line 3: action 'fly'"), "{text}");
        let text = run_line(&["convert", &log, &path("new")]).unwrap();
        assert!(text.contains("1 records\nPartial, like the original: line 3: action 'fly'"), "{text}");
    }
}
