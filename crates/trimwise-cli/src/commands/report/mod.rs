//! `trimwise report`: makes the report of one saved JSON document, or of two side by side.

pub mod documents;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use clap::Args;
use trimwise::failure::{Failure, Mistake, argument};

use crate::arguments::OutputArguments;
use crate::commands::{advise, compare, sweep};
use crate::laboratory;
use crate::output::Destinations;
use documents::{Document, ReadOfLaboratory};

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise compare --json a.json\n  \
    trimwise report a.json --out a.html\n  \
    trimwise compare --linux 5.10 --json b.json\n  \
    trimwise report a.json b.json --out both.html\n\n\
    Two documents must come from the same command, not `advise` or `tournament`, and have something\n\
    in common: a policy on a device, an experiment, a test, or a case of a grid.")]
pub struct ReportArguments {
    /// Saved JSON of `compare`, `advise`, `reproduce`, `bench`, `sweep` or `tournament`; a second one is shown next to the first
    #[arg(value_name = "FILE.json", required = true, num_args = 1..=2)]
    pub documents: Vec<PathBuf>,

    /// The report: one HTML file, nothing else needed
    #[arg(long, short = 'o', value_name = "FILE.html")]
    pub out: PathBuf,

    /// Replace the file of --out if it exists
    #[arg(long, short = 'f')]
    pub force: bool,
}

/// Runs the command. Hands over to the laboratory if one of its commands wrote a document.
pub fn run(arguments: &ReportArguments) -> Result<String, Failure> {
    run_with(arguments, &|kind, _, file| {
        Err(laboratory::hand_over(&format!("{file}: a document of `trimwise {}`", kind.command())))
    })
}

/// Runs the command with a reader for documents of the laboratory.
pub fn run_with(arguments: &ReportArguments, of_laboratory: &ReadOfLaboratory) -> Result<String, Failure> {
    let output = OutputArguments { force: arguments.force, ..OutputArguments::default() };
    let destinations = Destinations::check(&output)?;
    destinations.check_another("out", &arguments.out)?;
    let place = |path: &Path| path.canonicalize().ok();
    let out = place(&arguments.out);
    if out.is_some() && arguments.documents.iter().any(|document| place(document) == out) {
        let why = format!("{} is one of the documents to read", arguments.out.display());
        return Err(Mistake::on("out").because(why).expected("another file").fail());
    }
    let read = arguments
        .documents
        .iter()
        .map(|path| Ok((path.display().to_string(), Document::read(path, of_laboratory)?)));
    let read: Vec<(String, Document)> = read.collect::<Result<_, Failure>>()?;
    let html = html(&read)?;
    destinations.write_result("--out", &arguments.out, &html)?;
    Ok(format!("Report: {}\n", arguments.out.display()))
}

/// Returns the report of one or two documents. Each comes with its file's name.
pub fn html(read: &[(String, Document)]) -> Result<String, Failure> {
    match read {
        [(_, one)] => match one {
            Document::Compare(comparison) => compare::report::html(comparison),
            Document::Sweep(summary) => sweep::report::html(summary),
            Document::Advise(advice) => advise::report::html(advice),
            Document::Laboratory(document) => document.html(),
        },
        [(a, one), (b, other)] => match (one, other) {
            (Document::Compare(one), Document::Compare(other)) => {
                compare::report::pair([(a, one), (b, other)])
            }
            (Document::Sweep(one), Document::Sweep(other)) => sweep::report::pair([(a, one), (b, other)]),
            (Document::Laboratory(one), Document::Laboratory(other)) => {
                let files = [a.as_str(), b.as_str()];
                one.pair(files, &**other)
                    .unwrap_or_else(|| Err(unlike([(a, one.command()), (b, other.command())])))
            }
            _ => Err(unlike([(a, one.command()), (b, other.command())])),
        },
        _ => Err(Mistake::on(argument("documents")).expected("one or two").fail()),
    }
}

/// Returns the error for two documents that cannot be shown side by side.
fn unlike([(a, one), (b, other)]: [(&str, &str); 2]) -> Failure {
    if one == other {
        let expected = "one of them, or two documents of compare, reproduce, bench or sweep";
        return Mistake::that(format!("{a} and {b} are both from `{one}`")).expected(expected).fail();
    }
    let why = format!("{a} is from `{one}`, {b} from `{other}`");
    Mistake::that(why).expected("two documents from the same command").fail()
}
