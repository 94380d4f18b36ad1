//! The text of `reproduce verdicts-ext4 --explain`.

use crate::experiment::verdicts::explain::{Allocation, Commit, Difference, Explained, Freed, Half};
use trimwise::numbers::{counted, grouped, nanoseconds};
use trimwise::units::Bytes;
use trimwise_cli::table::{bold, folded, laid_out, titled};

/// Extents of one side that the text shows; all are in the JSON.
const SHOWN: usize = 12;

pub(super) fn text(explained: &Explained) -> String {
    let Explained { cell, release, kernel, model, difference, allocation, .. } = explained;
    let mut text = format!("{}\n\n", bold(format!("{cell}: Linux {release} and the model").as_str()));
    text += &side_by_side(kernel, model);
    text.push('\n');
    match difference {
        Some(difference) => text += &differs(difference, kernel, model),
        None => {
            let commits = counted(kernel.course.commits.len() as u64, "commit");
            text += &folded(&format!("The {commits} that freed anything freed the same extents."), 0);
        }
    }
    let from = |side: &str, of: &Option<Allocation>| match of {
        Some(of) => format!("{side}, {}", allocated(of)),
        None => format!("{side}, none"),
    };
    if allocation.is_none() {
        text += "All blocks of files were allocated alike.\n";
    }
    if let Some((alike, of_kernel, of_model)) = allocation {
        text += &folded(
            &format!(
                "The first {} are the same. Then comes: {}; {}.",
                counted(*alike, "allocation"),
                from("on Linux", of_kernel),
                from("in the model", of_model)
            ),
            0,
        );
    }
    text + &format!("\ntrimwise {}, seed {}\n", env!("CARGO_PKG_VERSION"), explained.seed)
}

/// What reached the drive while the workload ran, and what took the drive's time.
fn side_by_side(kernel: &Half, model: &Half) -> String {
    let time = |ns: u64| nanoseconds(ns as f64);
    let blocks = |blocks: u64| Bytes::from_units(blocks).to_string();
    let count = grouped;
    type Of<'a> = (&'a str, &'a dyn Fn(&Half) -> String);
    let rows: [Of<'_>; 18] = [
        ("duration", &|half| time(half.duration_ns)),
        ("reads", &|half| count(half.drive.read_commands)),
        ("read", &|half| blocks(half.traffic.read_blocks)),
        ("metadata read", &|half| blocks(half.traffic.metadata_read_blocks)),
        ("writes", &|half| count(half.drive.write_commands)),
        ("data written", &|half| blocks(half.traffic.data_blocks)),
        ("journal written", &|half| blocks(half.traffic.journal_blocks)),
        ("metadata written", &|half| blocks(half.traffic.metadata_blocks)),
        ("flushes", &|half| count(half.traffic.flushes)),
        ("TRIMs", &|half| count(half.traffic.discards)),
        ("trimmed", &|half| Bytes(half.traffic.discarded_bytes).to_string()),
        ("time for reads", &|half| time(half.drive.busy_ns.read)),
        ("time for writes", &|half| time(half.drive.busy_ns.program_host)),
        ("time for copies", &|half| time(half.drive.busy_ns.read_gc + half.drive.busy_ns.program_gc)),
        ("time for erases", &|half| time(half.drive.busy_ns.erase)),
        ("time for TRIMs", &|half| time(half.drive.busy_ns.trim)),
        ("commits that freed", &|half| count(half.course.commits.len() as u64)),
        ("extents freed by them", &|half| {
            count(half.course.commits.iter().map(|commit| commit.extents.len() as u64).sum())
        }),
    ];
    let rows = rows.map(|(name, of)| [name.to_owned(), of(kernel), of(model)]);
    titled("While the workload ran", &["", "Linux", "model"], &rows)
}

fn differs(difference: &Difference, kernel: &Half, model: &Half) -> String {
    let number = difference.commit as usize;
    let of = |half: &Half| -> String {
        match half.course.commits.get(number - 1) {
            Some(commit @ Commit { at_ns, extents, freed, .. }) => format!(
                "at {}, {} of {} (freed as {freed})",
                nanoseconds(*at_ns as f64),
                counted(extents.len() as u64, "extent"),
                counted(commit.blocks(), "block")
            ),
            None => "none".to_owned(),
        }
    };
    let before = match number {
        1 => "The first commit that frees anything differs already".to_owned(),
        _ => format!(
            "The first {} that free anything free the same, the next does not",
            counted(number as u64 - 1, "commit")
        ),
    };
    let head = folded(&format!("{before}. Linux: {}. Model: {}.", of(kernel), of(model)), 0);
    let sides = [("Only on Linux", &difference.only_kernel), ("Only in the model", &difference.only_model)];
    let lists = sides.map(|(title, freed)| only(title, freed));
    format!("{head}\n{}", lists.concat())
}

fn only(title: &str, freed: &[Freed]) -> String {
    let rows: Vec<[String; 3]> = freed
        .iter()
        .take(SHOWN)
        .map(|Freed { blocks, allocation }| {
            let from = allocation.as_ref().map_or("(no file)".to_owned(), allocated);
            [blocks.start.0.to_string(), blocks.units.to_string(), from]
        })
        .collect();
    let title = format!("{title}: {}", counted(freed.len() as u64, "extent"));
    if rows.is_empty() {
        return format!("{}\n\n", bold(&title));
    }
    let mut text =
        format!("{}\n\n{}", bold(&title), laid_out(&["from block", "blocks", "allocated as"], &rows));
    if freed.len() > SHOWN {
        text += &format!("and {} more, in the JSON\n", freed.len() - SHOWN);
    }
    text + "\n"
}

fn allocated(of: &Allocation) -> String {
    let Allocation { inode, page, goal, wanted, blocks, how, .. } = of;
    let how = if how.is_empty() { String::new() } else { format!(" ({how})") };
    let (goal, start, units) = (goal.0, blocks.start.0, blocks.units);
    format!(
        "{units} of {wanted} pages of file {inode} from page {page} on at block {start}, goal {goal}{how}"
    )
}
