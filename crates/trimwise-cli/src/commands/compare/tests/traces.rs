//! Traces as workloads of `compare`.

use std::path::Path;

use trimwise::failure::Failure;

#[test]
fn a_trace_is_compared_on_a_modelled_drive() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let lines = (0..200).map(|i| format!("{} a write {} 4096\n", i * 100, i * 8192));
    let trims = (0..50).map(|i| format!("{} a trim {} 4096\n", 30_000 + i * 100, i * 8192));
    let text: String = lines.chain(trims).chain(["50000 a write 0 4096\n".to_owned()]).collect();
    std::fs::write(&path, format!("fio version 3 iolog\n{text}")).unwrap();
    let run = |options: &str, policies: &[&str]| {
        let workload = format!("trace:{}{options}", path.display());
        let words = ["-w", &workload, "--reps", "1", "--utilization", "1", "--details", "--policy"];
        compared(&[&words, policies].concat())
    };
    let text = run(":open", &["off", "commit", "lazy"]).unwrap();
    let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in ["write p99", "latency", "The trace has 50 discards", "latency: the mean of all reads"] {
        assert!(plain.contains(expected), "{expected}: {text}");
    }
    assert!(!text.contains("PostMark"), "{text}");
    assert!(run("", &["off"]).unwrap().contains("total"));
    let failure = run("", &["off", "--thin", "64KiB"]).unwrap_err().to_string();
    assert!(failure.contains("not below a trace (--workload trace:"), "{failure}");
    let failure = run(":device=4", &["off"]).unwrap_err();
    assert!(failure.to_string().contains("no requests to device 4"), "{failure}");
    for (workload, expected) in [
        ("trace:/no/such/trace".to_owned(), "--workload trace:/no/such/trace: "),
        (format!("trace:{}:foo=1:wrap", path.display()), "'foo=1' is not an option; expected open"),
    ] {
        let failure = compared(&["-w", &workload]).unwrap_err();
        assert!(matches!(&failure, Failure::Usage(m) if m.to_string().contains(expected)), "{failure:?}");
    }
}

/// The conclusion says once what such a trace can tell, and what the trace reads before writing is on the drive from
/// the start.
#[test]
fn a_trace_of_reads_and_writes_only_says_what_it_can_tell() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let line = |i: u64| {
        let (kind, at) = if i.is_multiple_of(2) { ("W", i * 4096) } else { ("R", 4_096_000_000 + i * 4096) };
        format!("0,{kind},{at},4096,{}\n", i * 100)
    };
    std::fs::write(&path, (0..400).map(line).collect::<String>()).unwrap();
    let workload = format!("trace:{}", path.display());
    let words = ["-w", &workload, "--reps", "1", "--utilization", "1", "--details", "--policy"];
    let text = compared(&[&words[..], &["off"]].concat()).unwrap();
    let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(plain.matches("reads and writes only").count(), 1, "{text}");
    assert!(plain.contains("It cannot say what TRIM is worth. For that, record a trace"), "{text}");
    assert!(plain.contains("800 KiB that the trace reads before writing was already on the drive"), "{text}");
    let failure = compared(&[&words[..], &["commit"]].concat()).unwrap_err();
    assert!(failure.to_string().contains("--policy off"), "{failure}");
    std::fs::write(&path, "0,R,0,0,1\n").unwrap();
    let failure = compared(&[&words[..], &["off"]].concat()).unwrap_err();
    assert!(
        matches!(&failure, Failure::Usage(m) if m.to_string().contains("1 are of no sectors")),
        "{failure:?}"
    );
}

#[test]
fn regression_a_trace_is_refused_without_its_recording_and_the_size_of_its_drive_is_told() {
    use trimwise::trace::format::Writer;
    use trimwise::trace::{Event, Header, Record, Request, RequestKind, TraceDevice};
    use trimwise::units::{Lba, SectorRange, SimTime};

    let dir = tempfile::tempdir().unwrap();
    let (whole, part) = (dir.path().join("whole"), dir.path().join("part"));
    let disk = TraceDevice { capacity_bytes: Some(1 << 30), ..TraceDevice::default() };
    let header = Header { devices: vec![disk], has_prelude: true, ..Header::default() };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    for i in 0..1001 {
        let sectors = SectorRange::new(Lba(i * 8), 8);
        let kind = RequestKind::Write;
        let request = Request { kind, sectors, sync: false, fua: false, meta: false, latency: None };
        let event = if i == 900 { Event::Begun } else { Event::Request(request) };
        writer.write(&Record { at: SimTime(i * 1000), device: 0, event }).unwrap();
    }
    let bytes = writer.finish().unwrap();
    std::fs::write(&whole, &bytes).unwrap();
    std::fs::write(&part, &bytes[..bytes.len() / 2]).unwrap();
    let of = |path: &Path| {
        compared(&["-w", &format!("trace:{}", path.display()), "--policy", "off", "--reps", "1", "--details"])
    };
    let text = of(&whole).unwrap();
    assert!(text.contains("recorded on a drive of 1 GiB, and sata-small has 8 GiB"), "{text}");
    let failure = of(&part).unwrap_err();
    assert!(
        matches!(&failure, Failure::Usage(m) if m.to_string().contains("the recording is missing")),
        "{failure:?}"
    );
}

fn compared(arguments: &[&str]) -> Result<String, Failure> {
    use clap::Parser as _;

    use crate::commands::{Command, CommandLine, compare};

    let words = ["trimwise", "compare"].iter().chain(arguments);
    let line = CommandLine::try_parse_from(words).unwrap_or_else(|e| panic!("{e}"));
    let Command::Compare(arguments) = line.command else { panic!("not compare") };
    compare::run(&arguments, &trimwise_study::caller::Silent::default())
}
