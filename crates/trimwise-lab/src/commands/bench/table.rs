//! The text of `bench`.

use crate::bench::{Findings, Measured, RATIOS, Reviewed, Settled, Steady, TestResult};
use trimwise::units::Bytes;
use trimwise::workload::latency::LatencySummary;

use crate::commands::bench::BenchReport;
use trimwise_cli::figures::{NONE, nanoseconds, significant, thousands};
use trimwise_cli::table::plot::{Block, is_tabled, of_plot, text as text_of};
use trimwise_cli::table::{bold, folded, laid_out};

/// Headings of the table of transfers.
pub const HEADER: [&str; 9] = ["test", "", "MB/s", "least-most", "IOPS", "p50", "p99.9", "written", "WA"];

pub fn render(report: &BenchReport) -> String {
    let results = &report.results;
    let mut text = format!("{}\n", bold(&heading(report)));
    text += &folded(&said(report), 0);
    text.push('\n');
    let rows: Vec<Vec<String>> = results.tests.iter().flat_map(rows).collect();
    if !rows.is_empty() {
        text += &laid_out(&HEADER, &rows);
        text.push('\n');
    }
    for test in &results.tests {
        for block in blocks(test) {
            text += &text_of(&block, &format!("{}: ", test.test));
        }
    }
    let of_device = results.notes.iter().map(|note| format!("{note}."));
    let notes: Vec<String> = of_device.chain(results.tests.iter().flat_map(notes)).collect();
    notes.iter().for_each(|note| text += &folded(note, 0));
    if !notes.is_empty() {
        text.push('\n');
    }
    if let Some(partial) = partial(report) {
        text += &format!("{}\n\n", bold(folded(&partial, 0).trim_end()));
    }
    text + &format!("trimwise {}; repeat with:\n  {}\n", report.trimwise, report.settings.command)
}

pub fn heading(report: &BenchReport) -> String {
    let device = &report.results.device;
    let kind = if device.is_model { "in the model" } else { "a real device or file" };
    format!("{}, {}, {kind}", device.name, Bytes(device.size_bytes))
}

pub fn said(report: &BenchReport) -> String {
    let settings = &report.settings;
    let mut text = format!("Data: {}; seed {}", settings.content, settings.seed);
    if settings.region_length_percent < 100.0 {
        text += &format!(
            "; tested: {} % of the device, starting at {} %",
            settings.region_length_percent, settings.region_start_percent
        );
    }
    if settings.scale < 1.0 {
        text += &format!("; scale {}", significant(settings.scale));
    }
    text + "."
}

/// Sums up how the device did in a few sentences; empty if no test finished.
pub fn verdict(report: &BenchReport) -> String {
    let mut sentences = Vec::new();
    let tests = || report.results.tests.iter();
    let rates =
        tests().flat_map(|test| &test.measured).filter_map(|m| Some((m.throughput_mb_per_s?, &m.what)));
    // The rates of several tests do not fit into a sentence; the table has them.
    if let [(rate, what)] = rates.collect::<Vec<_>>()[..] {
        sentences.push(format!("Throughput is {} MB/s ({what}).", significant(rate)));
    }
    for (test, m) in tests().flat_map(|test| test.measured.iter().map(move |m| (test, m))) {
        if m.throughput_mb_per_s.is_none() {
            sentences.push(format!("`{}` took {}.", test.test, nanoseconds(m.elapsed_ns as f64)));
        }
    }
    let amplified = tests().filter_map(|test| Some((test.write_amplification()?, &test.test)));
    if let Some((wa, test)) = amplified.max_by(|a, b| a.0.total_cmp(&b.0)) {
        sentences.push(if wa < 1.005 {
            "No write amplification.".to_owned()
        } else {
            format!("The highest write amplification is {wa:.2} (`{test}`).")
        });
    }
    for test in tests() {
        match &test.findings {
            Findings::Steady(steady) if steady.reached => {
                sentences.push(format!(
                    "`{}`: {} IOPS in steady state.",
                    test.test,
                    significant(steady.iops)
                ));
            }
            Findings::Steady(steady) => {
                sentences.push(format!("`{}`: not steady after {} rounds.", test.test, steady.rounds));
            }
            Findings::TrimLatency(times) => {
                let slowest = times.iter().max_by_key(|time| time.latency.max_ns);
                sentences.extend(slowest.map(|time| {
                    let load = if time.loaded { " under load" } else { "" };
                    let took = nanoseconds(time.latency.max_ns as f64);
                    format!(
                        "`{}`: the slowest TRIM, of {}{load}, took {took}.",
                        test.test,
                        Bytes(time.range_bytes)
                    )
                }));
            }
            Findings::Settling(settled) => {
                let open = settled.iter().filter(|s| s.settled_after_ns.is_none()).count();
                let longest = settled.iter().filter_map(|s| s.settled_after_ns).max();
                sentences.push(match (open, longest) {
                    (0, Some(0)) => {
                        format!("`{}`: throughput is at its final level right after a TRIM.", test.test)
                    }
                    (0, longest) => {
                        let after = nanoseconds(longest.unwrap_or_default() as f64);
                        format!("`{}`: throughput settles within {after} of a TRIM.", test.test)
                    }
                    _ => format!(
                        "`{}`: throughput does not settle after {open} of {} TRIMs.",
                        test.test,
                        settled.len()
                    ),
                });
            }
            Findings::Reviewers(found) => {
                let ratios = RATIOS.iter().filter_map(|(name, of)| {
                    let name = name.strip_suffix("_over_clean").unwrap_or(name).replace("_trim", "_TRIM");
                    Some(format!("{} {:.2}", name.replace('_', " "), of(found)?))
                });
                let ratios: Vec<String> = ratios.collect();
                sentences.push(format!("`{}`: over clean writes, {}.", test.test, ratios.join(", ")));
            }
            Findings::None => {}
        }
    }
    sentences.join(" ")
}

/// Says what is missing and why; `None` if the tests are complete.
pub fn partial(report: &BenchReport) -> Option<String> {
    let broken = report.results.broken.as_ref()?;
    let (done, all) = (report.results.tests.len(), report.settings.tests.len());
    Some(format!(
        "Partial: {done} of {all} tests finished. {} ended with: {}. By then it had written {} and trimmed {}.",
        broken.test,
        broken.why,
        Bytes(broken.did.bytes_written),
        Bytes(broken.did.bytes_trimmed)
    ))
}

/// Returns a row for each kind of transfer in a test; the first row also has what applies to the whole test.
pub fn rows(test: &TestResult) -> Vec<Vec<String>> {
    // The title of the ratios has all of a long name.
    let name = match &test.findings {
        Findings::Reviewers(_) => test.test.split(':').next().unwrap_or_default(),
        _ => &test.test,
    };
    let of_steps = test.measured.len() > 1 && test.measured.iter().any(|m| m.write_amplification.is_some());
    let amplified = |wa: Option<f64>| wa.map_or(NONE.to_string(), |wa| format!("{wa:.2}"));
    let row = |i: usize, measured: Option<&Measured>| {
        let of_test = |text: String| if i == 0 { text } else { String::new() };
        let figure =
            |of: fn(&Measured) -> Option<f64>| measured.and_then(of).map_or(NONE.to_string(), significant);
        let latency = |of: fn(&LatencySummary) -> u64| {
            let latency = measured.and_then(|m| m.latency.as_ref());
            latency.map_or(NONE.to_string(), |l| nanoseconds(of(l) as f64))
        };
        let spread = measured.and_then(|m| m.throughput_min_mb_per_s.zip(m.throughput_max_mb_per_s));
        let whole = |f: f64| if f >= 99.95 { thousands(f.round()) } else { format!("{f:.1}") };
        vec![
            of_test(name.to_owned()),
            measured.map_or(String::new(), |m| m.what.clone()),
            figure(|m| m.throughput_mb_per_s),
            spread.map_or(NONE.to_string(), |(least, most)| format!("{}-{}", whole(least), whole(most))),
            figure(|m| m.iops),
            latency(|l| l.p50_ns),
            latency(|l| l.p999_ns),
            of_test(Bytes(test.did.bytes_written).to_string()),
            match measured {
                Some(m) if of_steps => amplified(m.write_amplification),
                _ => of_test(amplified(test.write_amplification())),
            },
        ]
    };
    if test.measured.is_empty() {
        // The findings are shown below the table; this row shows how much was written.
        return vec![row(0, None)];
    }
    test.measured.iter().enumerate().map(|(i, m)| row(i, Some(m))).collect()
}

/// Returns a test's results other than transfers, and its plots that are short enough for the terminal, as tables.
pub fn blocks(test: &TestResult) -> Vec<Block> {
    let mut blocks = match &test.findings {
        Findings::Settling(settled) => vec![settling(settled)],
        Findings::Reviewers(found) => vec![over_clean(found)],
        _ => Vec::new(),
    };
    blocks.extend(test.plots.iter().filter(|plot| is_tabled(plot)).flat_map(of_plot));
    blocks
}

fn over_clean(found: &Reviewed) -> Block {
    let rows =
        RATIOS.iter().filter_map(|(name, of)| Some(vec![name.to_string(), format!("{:.3}", of(found)?)]));
    Block {
        title: format!(
            "filled to {} %, trimmed: {}, rest {}",
            found.fill_percent,
            found.trimmed,
            nanoseconds(found.rest_s * 1e9)
        ),
        header: ["sequential writes", "ratio"].map(str::to_string).to_vec(),
        rows: rows.collect(),
    }
}

fn settling(settled: &[Settled]) -> Block {
    let header = ["range", "written before", "TRIM took", "first MB/s", "final MB/s", "settled after"];
    let row = |s: &Settled| {
        vec![
            format!("{} %", s.range_percent),
            if s.written_before_bytes == 0 {
                "nothing".to_string()
            } else {
                Bytes(s.written_before_bytes).to_string()
            },
            nanoseconds(s.trim_ns as f64),
            significant(s.first_mb_per_s),
            significant(s.final_mb_per_s),
            match s.settled_after_ns {
                Some(0) => "at once".to_string(),
                Some(ns) => nanoseconds(ns as f64),
                None => "not settled".to_string(),
            },
        ]
    };
    Block {
        title: "when throughput stays within 10 % of its final level".to_string(),
        header: header.map(str::to_string).to_vec(),
        rows: settled.iter().map(row).collect(),
    }
}

/// Returns notes on how to read a test's figures, and the result of a search for the steady state.
pub fn notes(test: &TestResult) -> Vec<String> {
    let found = match &test.findings {
        Findings::Steady(steady) => Some(steady_state(steady)),
        _ => None,
    };
    found.iter().chain(&test.notes).map(|note| format!("{}: {note}.", test.test)).collect()
}

fn steady_state(steady: &Steady) -> String {
    let Steady { rounds, iops, excursion_percent, slope_percent, .. } = steady;
    let reached = if steady.reached { "steady" } else { "not steady" };
    format!(
        "{reached} after {rounds} rounds: {} IOPS over the last five; highest and lowest differ by \
         {excursion_percent:.1} % of the mean (limit 20 %), the slope is {slope_percent:.1} % (limit 10 %)",
        significant(*iops)
    )
}

#[cfg(test)]
mod tests {
    use crate::bench::Test;
    use clap::Parser;

    use super::*;
    use crate::commands::bench::tests::bench_results;
    use crate::commands::{Command, CommandLine};

    fn text_of(line: &str) -> String {
        let words = ["trimwise", "bench"].into_iter().chain(line.split_whitespace());
        let Command::Bench(arguments) = CommandLine::try_parse_from(words).unwrap().command else {
            panic!("not bench")
        };
        let tests: Vec<Test> = arguments.tests.iter().map(|t| t.parse().unwrap()).collect();
        let results = bench_results(&arguments.target, &tests);
        let text = render(&arguments.request().report(results).unwrap());
        for line in text.lines().filter(|line| !line.starts_with("  trimwise")) {
            assert!(line.chars().count() <= 100, "{line}");
        }
        text
    }

    #[test]
    fn tests_are_rows_and_what_they_find_stands_below() {
        insta::assert_snapshot!(text_of(
            "sata-small fill:87.3 randwrite hdtach:reads:full atto settling steady reviewers:80"
        ));
    }

    #[test]
    fn a_partial_table_says_so() {
        insta::assert_snapshot!(text_of("vendor6 fill torture:60 trim --region 50:25"));
    }

    #[test]
    fn long_tests_fit_too() {
        text_of("sata-small seqwrite:4096000000:62.91 mixed:70:65536:604800 hdtach:writes:full");
    }
}
