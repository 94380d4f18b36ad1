//! Tables in pages say what made them. Those that other code made are named (`--nocapture`); that is no failure, as most
//! changes of the code change no result, but each must say it.

use std::fs;
use std::path::{Path, PathBuf};

use trimwise_lab::experiment::ALL;
use trimwise_lab::made::{self, BEGINNING, UNKNOWN};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Lines that say what made a table, with their page.
fn lines() -> Vec<(String, String)> {
    let pages = ALL.map(|e| format!("experiments/{}/README.md", e.name)).into_iter();
    let pages = pages.chain(["docs/model.md", "docs/tournament.md"].map(str::to_owned));
    let text = |page: String| Some((fs::read_to_string(root().join(&page)).ok()?, page));
    let of_page = |(text, page): (String, String)| {
        // A line is folded like other prose.
        let paragraphs = text.split("\n\n").map(|paragraph| paragraph.trim().replace('\n', " "));
        let made = paragraphs.filter(|paragraph| paragraph.starts_with(BEGINNING)).collect::<Vec<_>>();
        made.into_iter().map(move |line| (page.clone(), line))
    };
    pages.filter_map(text).flat_map(of_page).collect()
}

#[test]
fn tables_of_kernels_say_what_made_them() {
    let lines = lines();
    for experiment in ALL.into_iter().filter(|experiment| experiment.boots()) {
        // A day is on the page of the week.
        let page = format!("experiments/{}/README.md", experiment.name.replace("daemon-day", "daemon-week"));
        assert!(lines.iter().any(|(found, _)| *found == page), "{page}: no line begins with '{BEGINNING}'");
    }
    let code = made::code();
    for (page, line) in &lines {
        match made::stale(line, &code) {
            None => {
                assert!(line.starts_with(UNKNOWN), "{page}: not as `trimwise reproduce` writes it: {line}");
                println!("{page}: a table of unknown code");
            }
            Some(parts) if !parts.is_empty() => {
                println!("{page}: {} changed since a table was made", parts.join(", "));
            }
            Some(_) => {}
        }
    }
}
