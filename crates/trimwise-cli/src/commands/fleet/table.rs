//! The text of `fleet`.

use trimwise::live::Untrimmed;
use trimwise::units::Bytes;
use trimwise_study::fleet::{FileSystem, Finding, Fleet};

use crate::figures::{NONE, counted};
use crate::table::{bold, folded, laid_out, laid_out_with, plain};

/// Number of file systems shown without `--all`.
const SHOWN: usize = 20;
/// Most places that a line names.
const NAMED: usize = 6;

/// Renders the whole text, most urgent first.
pub fn fleet(fleet: &Fleet, all: bool) -> String {
    let mut text = String::new();
    let (stale, hosts) = fleet.stale();
    let versions: Vec<String> = fleet.versions.iter().map(|(v, n)| plain(&format!("{v} on {n}"))).collect();
    let versions = match &versions[..] {
        [] => String::new(),
        some => format!(" (trimwise {})", some.join(", ")),
    };
    let stale = match stale {
        Untrimmed::Known(bytes) => format!("{bytes} on {}", counted(hosts as u64, "host")),
        unknown @ Untrimmed::Unknown => unknown.to_string(),
    };
    let unknown = |is_online: bool| {
        let is_unknown = |one: &&FileSystem| one.stale_bytes == Untrimmed::Unknown && one.online == is_online;
        match fleet.file_systems.iter().filter(is_unknown).count() as u64 {
            0 => String::new(),
            n if is_online => {
                format!(" On {}, mounted with `discard`, it is unknown.", counted(n, "file system"))
            }
            n => format!(" On {}, trimwised has not read it yet.", counted(n, "file system")),
        }
    };
    let unknown = [unknown(true), unknown(false)].concat();
    text += &folded(
        &format!(
            "{} with {}{versions}. Stale space: {stale}.{unknown}",
            counted(fleet.hosts.len() as u64, "host"),
            counted(fleet.file_systems.len() as u64, "managed file system"),
        ),
        0,
    );
    findings(&mut text, "TRIM does not arrive, or is not honoured", &fleet.not_honoured);
    findings(&mut text, "Other problems", &fleet.trouble);
    codes(&mut text, fleet);
    if !fleet.file_systems.is_empty() {
        text += &format!("\n{}\n\n", bold("Stale space: free, but not trimmed"));
        text += &stale_table(&fleet.file_systems, all);
    }
    policies(&mut text, fleet);
    if !fleet.unusable.is_empty() {
        text += &format!("\n{}\n\n", bold("Unusable files"));
        for one in &fleet.unusable {
            text += &folded(&plain(&format!("{}: {}", one.file.display(), one.why)), 0);
        }
    }
    text
}

fn findings(text: &mut String, title: &str, findings: &[Finding]) {
    if findings.is_empty() {
        return;
    }
    *text += &format!("\n{}\n\n", bold(title));
    for Finding { host, place, what, code, from } in findings {
        let place = if place.is_empty() { String::new() } else { format!(" {place}") };
        let code = code.as_ref().map_or(String::new(), |code| format!(": {code}"));
        *text += &folded(&plain(&format!("{host}{place}: {what} ({from}{code}).")), 0);
    }
}

/// Renders how often each finding occurs.
fn codes(text: &mut String, fleet: &Fleet) {
    if fleet.codes.is_empty() {
        return;
    }
    let newer = format!("Unknown to trimwise {}; a newer version reported it.", fleet.trimwise);
    let meanings: Vec<String> =
        fleet.codes.values().map(|counted| folded(counted.meaning.unwrap_or(&newer), 2)).collect();
    let rows: Vec<Vec<String>> = fleet
        .codes
        .iter()
        .map(|(code, counted)| vec![plain(code), counted.findings.to_string(), counted.hosts.to_string()])
        .collect();
    *text += &format!("\n{}\n\n", bold("Findings by code"));
    *text += &laid_out_with(&["code", "findings", "hosts"], &rows, &meanings);
    *text += &folded("`trimwise explain CODE` says what to do.", 0);
}

fn stale_table(file_systems: &[FileSystem], all: bool) -> String {
    let mut by_stale: Vec<&FileSystem> = file_systems.iter().collect();
    // Stable: then by host and mount point.
    by_stale.sort_by_key(|one| (std::cmp::Reverse(one.stale_bytes.known()), one.online));
    let shown = if all { by_stale.len() } else { SHOWN.min(by_stale.len()) };
    let percent = |part: u64, of: u64| match of {
        0 => NONE.to_owned(),
        of => format!("{:.0} %", part as f64 / of as f64 * 100.0),
    };
    let rows: Vec<Vec<String>> = by_stale[..shown]
        .iter()
        .map(|one| {
            vec![
                plain(&format!("{} {}", one.host, one.mount_point)),
                plain(&one.fs_type),
                plain(&one.policy),
                Bytes(one.size_bytes).to_string(),
                percent(one.used_bytes, one.size_bytes),
                if one.online { "online".to_owned() } else { one.stale_bytes.to_string() },
                one.stale_bytes.known().map_or(NONE.to_owned(), |b| percent(b.0, one.size_bytes)),
                Bytes(one.trimmed_bytes).to_string(),
            ]
        })
        .collect();
    let mut text =
        laid_out(&["host, mount", "type", "policy", "size", "used", "stale", "of size", "trimmed"], &rows);
    if shown < by_stale.len() {
        text += &format!("{} more: --all\n", by_stale.len() - shown);
    }
    text
}

/// Says which policies differ from the usual one, and where.
fn policies(text: &mut String, fleet: &Fleet) {
    let Some(usual) = fleet.usual_policy() else { return };
    *text += &format!("\n{}\n\n", bold("Policies"));
    let all = fleet.file_systems.len();
    if fleet.policies.len() == 1 {
        *text += &folded(&plain(&format!("All follow {usual}.")), 0);
        return;
    }
    *text += &folded(&plain(&format!("{usual}: {} of {all} file systems.", fleet.policies[usual])), 0);
    for (policy, count) in fleet.policies.iter().filter(|(policy, _)| *policy != usual) {
        let follow = |one: &&FileSystem| one.policy == *policy;
        let mut places: Vec<String> = fleet
            .file_systems
            .iter()
            .filter(follow)
            .map(|one| format!("{} {}", one.host, one.mount_point))
            .collect();
        if places.len() > NAMED {
            let more = places.len() - NAMED;
            places.truncate(NAMED);
            places.push(format!("{more} more"));
        }
        *text += &folded(&plain(&format!("{policy}: {count}: {}.", places.join(", "))), 0);
    }
}
