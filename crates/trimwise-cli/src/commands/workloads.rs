//! `trimwise workloads`: the named workloads, with the source of each parameter's default.

use clap::Args;
use trimwise::failure::Failure;
use trimwise::units::Bytes;
use trimwise::workload::apps::parameters::Kind;
use trimwise_study::import;
use trimwise_study::jobs::Understood;
use trimwise_study::workloads::{Day, One, Workload, Workloads};

use crate::arguments::{JsonArguments, TableArguments, word};
use crate::output::{self, Destinations};
use crate::table::{bold, export, folded};

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise workloads\n  \
    trimwise compare --workload lsm:operations=1M,reads=95\n  \
    trimwise workloads oltp\n      \
    its parameters, and where their defaults come from\n  \
    trimwise workloads maildir:users=8+logs\n  \
    trimwise workloads job:mine.fio:size=1g\n      \
    what a fio job does here, and what is ignored\n  \
    trimwise workloads --import workload.xml > job.fio\n      \
    a workload of MQSim as a fio job, for --workload job:job.fio\n  \
    trimwise workloads --json - | jq '.workloads[].name'\n\n\
    What each of them does: docs/guide.md")]
pub struct WorkloadsArguments {
    /// Show this one, written as for compare --workload: named workloads with their parameters, or what is understood of
    /// a fio job, with the options that override its own
    #[arg(value_name = "WORKLOAD", value_parser = word, conflicts_with_all = ["import", "csv", "markdown"])]
    pub workload: Option<String>,

    /// Print a workload of MQSim (workload.xml) as a fio job
    #[arg(long, value_name = "FILE", value_parser = word, conflicts_with_all = ["json", "csv", "markdown", "force"])]
    pub import: Option<String>,

    #[command(flatten)]
    pub json: JsonArguments,

    #[command(flatten)]
    pub tables: TableArguments,
}

fn one(workload: &Workload) -> String {
    let mut text = folded(&format!("{}: {}", bold(workload.name), workload.about), 0);
    for parameter in &workload.parameters {
        let mark = if parameter.scales { "*" } else { "" };
        let default = parameter.shown(parameter.default);
        let unit = if parameter.kind == Kind::Percent { " %" } else { "" };
        let what = format!("{}{mark}={default}{unit}: {}", parameter.name, parameter.about);
        let source = match parameter.source {
            "-" => String::new(),
            source => format!(" [{source}]"),
        };
        text += &folded(&(what + &source), 4);
    }
    text
}

fn text(list: &Workloads) -> String {
    let mut text = String::new();
    let mut rows = Vec::new();
    for workload in &list.workloads {
        text += &one(workload);
        rows.extend(workload.parameters.iter().map(|parameter| {
            let unit = if parameter.kind == Kind::Percent { " %" } else { "" };
            [
                workload.name.to_owned(),
                parameter.name.into(),
                parameter.shown(parameter.default) + unit,
                parameter.about.into(),
                parameter.source.into(),
            ]
        }));
        text.push('\n');
    }
    let notes = "Written NAME[:KEY=VALUE,...], as in --workload lsm:operations=1M,value=4KiB; several side by \
                 side as in oltp+unpack:layers=20+logs. Besides these: PostMark (default, or FILE.pmrc), fio jobs (job:FILE.fio), append and fullwrite; see \
                 docs/guide.md.";
    text += &folded(notes, 0);
    text += &folded("\nDays, as in --days 7 --day office; the work of each hour is a share of all:", 0);
    export::keep("Parameters", &["workload", "parameter", "default", "meaning", "source"], rows, &[]);
    let days = list.days.iter().map(|day| [day.name, day.about, day.source].map(str::to_owned));
    export::keep("Days", &["day", "meaning", "source"], days, &[]);
    for Day { name, about, source, .. } in &list.days {
        let source = if *source == "-" { String::new() } else { format!(" [{source}]") };
        text += &folded(&format!("{}: {about}{source}", bold(name)), 4);
    }
    text
}

/// `None` for files that take all the space there is.
fn needs(tasks: u32, bytes: Option<u64>) -> String {
    let needed = bytes.map_or("what is free".to_owned(), |bytes| Bytes(bytes).to_string());
    let tasks = if tasks == 1 { "One task".to_owned() } else { format!("Up to {tasks} tasks at a time") };
    folded(&format!("{tasks}; the files take {needed}."), 0)
}

fn job_text(job: &Understood) -> String {
    let indent = |line: &str| 2 + line.len() - line.trim_start().len();
    let mut text: String = job.jobs.iter().map(|line| folded(line, indent(line))).collect();
    if !job.workload.starts_with(trimwise_study::programs::PREFIX) {
        text += &needs(job.tasks, job.needed_bytes);
    }
    for note in &job.notes {
        text += &folded(&format!("note: {note}"), 2);
    }
    text
}

pub fn run(arguments: &WorkloadsArguments) -> Result<String, Failure> {
    let WorkloadsArguments { workload, import, json, tables } = arguments;
    if let Some(file) = import {
        // This text is meant to be saved as a file, so its lines are not wrapped.
        return output::print_always(import::import_job(file)?).map(|()| String::new());
    }
    let destinations = Destinations::check_forms(json, tables)?;
    if let Some(job) = workload {
        if let Some(named) = One::named(job)? {
            let One { workload, .. } = &named;
            let needs = || needs(workload.tasks, Some(workload.needed_bytes));
            return destinations.deliver(&named, || one(workload) + &needs());
        }
        let understood = Understood::of(job)?;
        return destinations.deliver(&understood, || job_text(&understood));
    }
    let workloads = Workloads::all()?;
    destinations.deliver(&workloads, || text(&workloads))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_shown_alone_as_in_the_list_and_a_wrong_name_is_told_with_all() {
        let run = |workload: &str| {
            let workload = Some(workload.to_owned());
            run(&WorkloadsArguments {
                workload,
                import: None,
                json: JsonArguments::default(),
                tables: TableArguments::default(),
            })
        };
        let whole = text(&Workloads::all().unwrap());
        for Workload { name, needed_bytes, tasks, .. } in Workloads::all().unwrap().workloads {
            let (shown, needs) = (run(name).unwrap(), needs(tasks, Some(needed_bytes)));
            let alone = shown.strip_suffix(&needs).unwrap_or_else(|| panic!("{needs} is not in {shown}"));
            assert!(
                alone.starts_with(&format!("{name}: ")) && whole.contains(&format!("{alone}\n")),
                "{alone}"
            );
        }
        let refused = run("oltb").unwrap_err().to_string();
        let begin = "oltb: neither a built-in name nor a file; did you mean `oltp`? Expected a PostMark configuration, ";
        assert!(refused.starts_with(begin), "{refused}");
        assert!(refused.contains("append[:APPEND[:FILE]]") && refused.contains("job:FILE.fio"), "{refused}");
    }

    #[test]
    fn regression_every_workload_that_compare_takes_is_shown() {
        let shown = |workload: &str| job_text(&Understood::of(workload).unwrap());
        for (workload, words) in [
            (
                "default",
                &["PostMark: creates 8,000 files", "80,000 transactions", "One task; the files take "][..],
            ),
            ("append", &["makes a fragmented file of 1 GiB", "times the fsync", "the files take 9"]),
            ("fullwrite:64KiB:1MiB:nofsync", &["fills the file system", "the files take what is free"]),
            ("maildir:users=7", &["maildir: ", "    users=7 (default 20): mailboxes"]),
            ("maildir+logs", &["maildir: ", "    users=20: mailboxes", "logs: "]),
        ] {
            let text = shown(workload);
            for words in words {
                assert!(text.contains(words), "{workload}: {words}: {text}");
            }
        }
        let alone = |name: &str| Understood::of(name).unwrap().needed_bytes.unwrap();
        assert_eq!(alone("maildir+logs"), alone("maildir") + alone("logs"));
        let refused = Understood::of("maildir:users=0").unwrap_err().to_string();
        assert!(!refused.contains("--workload"), "there is no such option here: {refused}");
    }

    #[test]
    fn the_list_fits_and_has_every_workload() {
        let text = text(&Workloads::all().unwrap());
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        insta::assert_snapshot!(text);
    }
}
