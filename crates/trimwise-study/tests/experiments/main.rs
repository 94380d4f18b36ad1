//! Checks that the model still makes the figures that are kept in files.

use trimwise_linux::pool;
use trimwise_study::conclusion::class::{self, Run};

/// Checks a sample. `CLASSES=full` checks all figures, `CLASSES=sata-generic,ufs` those whose lines
/// begin so. To write `classes.txt` anew:
/// `CLASSES=write cargo test --release -p trimwise-study --test experiments`.
#[test]
fn the_figures_of_the_classes_are_the_models_own() {
    let asked = std::env::var("CLASSES").unwrap_or_default();
    let is_asked = |run: &Run| match &*asked {
        "full" | "write" => true,
        "" => run.profile == "ufs21-64gb" && run.rep == 0,
        names => names.split(',').any(|name| run.name().starts_with(name)),
    };
    let runs: Vec<Run> = class::runs().filter(is_asked).collect();
    let jobs = pool::default_jobs(trimwise::units::Bytes::gib(1));
    let made = pool::run_ordered(jobs, runs.len(), |index| {
        class::run(runs[index]).inspect(|line| eprintln!("{line}"))
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
    if asked == "write" {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/conclusion/classes.txt");
        std::fs::write(file, made.join("\n") + "\n").unwrap();
        return;
    }
    let known: Vec<&str> = class::RUNS.lines().collect();
    assert!(
        !made.is_empty() && (asked != "full" || known.len() == made.len()),
        "{} of {}",
        made.len(),
        known.len()
    );
    for line in &made {
        assert!(known.contains(&&**line), "{line} is not in classes.txt: make it again with CLASSES=write");
    }
}
