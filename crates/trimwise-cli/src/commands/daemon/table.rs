//! The texts of `status`, `explain`, `history`, `pause` and `config check`, from the daemon's replies.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize as _;
use serde_json::Value;
use trimwise::live::Untrimmed;
use trimwise::units::Bytes;
use trimwise_linux::code::Entry;
use trimwise_linux::daemon::config::{Config, Manage};
use trimwise_study::command_text::CommandText;
use trimwise_study::conclusion::Conclusion;
use trimwise_study::daemon::UntrimmedOf;
use trimwise_study::findings::Findings;

use crate::conclusion;
use crate::figures::NONE;
use crate::table::{bold, described, export, folded, laid_out, plain};

/// Which file systems `status` shows.
#[derive(Clone, Copy, Debug)]
pub enum Show<'a> {
    /// All of them; if there are many, similar ones are grouped.
    Groups,
    /// Each on its own line.
    Each,
    /// Only the one mounted here.
    One(&'a Path),
}

/// Up to this many file systems are shown one by one, similar or not.
const MANY: usize = 16;

/// Renders a table of figures, and below it the reasons for what is done on each file system.
pub fn status(data: &Value, show: Show<'_>) -> String {
    let all: Vec<&Value> = data["file_systems"].as_array().into_iter().flatten().collect();
    let skipped: Vec<&Value> = data["skipped"].as_array().into_iter().flatten().collect();
    let is_shown = |one: &&Value| match show {
        Show::One(mount) => one["mount_point"].as_str().map(Path::new) == Some(mount),
        Show::Groups | Show::Each => true,
    };
    let file_systems: Vec<&Value> = all.into_iter().filter(is_shown).collect();
    let skipped: Vec<&Value> = skipped.into_iter().filter(is_shown).collect();
    let groups = alike(&file_systems, show, |one| {
        let status = &one["status"];
        let of_status = ["policy", "trend", "online", "paused"].map(|key| status[key].to_string());
        let reason = status["reason"]["code"].to_string();
        // The sum of a known and an unknown number would be unknown.
        let is_known = UntrimmedOf::status(status).waiting.known().is_some().to_string();
        [of_status.concat(), is_known, reason, one["problem"].to_string(), one["option_before"].to_string()]
            .join("\n")
    });
    let header = ["mount", "policy", "used", "trend", "waiting", "left", "trimmed", "slices", "last"];
    let rows: Vec<Vec<String>> = groups.iter().map(|group| row(group)).collect();
    let mut text = match show {
        _ if !rows.is_empty() => laid_out(&header, &rows),
        Show::One(mount) if skipped.is_empty() => {
            format!(
                "{}: no file system that can be trimmed is mounted there.\n",
                plain(&mount.display().to_string())
            )
        }
        _ => "No file system is managed.\n".to_owned(),
    };
    text.push('\n');
    for group in &groups {
        let one = group[0];
        let why = [&one["problem"], &one["status"]["why"]].into_iter().find(|why| why.is_string());
        let why = why.map_or_else(|| "It was found only a moment ago.".to_owned(), word);
        let next = &one["status"]["next"];
        let next = if next.is_string() { format!(" Next: {}", word(next)) } else { String::new() };
        text += &folded(&format!("{}: {why}{next}", names(group)), 0);
        if one["status"]["lent"].is_string() {
            text += &folded(&word(&one["status"]["lent"]), 2);
        }
        if one["option_before"].is_string() {
            let (option, before) = (word(&one["option"]), word(&one["option_before"]));
            text += &folded(
                &format!(
                    "! Its mount option is {option} now: trimwised changed it from {before} and will restore it."
                ),
                2,
            );
        }
    }
    for group in alike(&skipped, show, |one| one["why"].to_string()) {
        text += &folded(&format!("{}: not managed: {}.", names(&group), word(&group[0]["why"])), 0);
    }
    if let Some(problem) = data["config_problem"].as_str() {
        text += &folded("! The old configuration stays in effect, since the new one has errors:", 0);
        for line in problem.lines() {
            text += &folded(&word(&line.into()), 2);
        }
    }
    let problems = ["state", "mounts", "limits", "history", "metrics", "taken"];
    for problem in problems.map(|of| format!("{of}_problem")) {
        let problem = problem.as_str();
        if data[problem].is_string() {
            text += &folded(&format!("! {}", word(&data[problem])), 0);
        }
    }
    if data["dry_run"] == true {
        text += "Dry run: nothing is changed.\n";
    }
    text + &concluded(data)
}

/// Groups file systems with the same key, in order of appearance. Up to [`MANY`] are not grouped.
fn alike<'a>(all: &[&'a Value], show: Show<'_>, key: impl Fn(&Value) -> String) -> Vec<Vec<&'a Value>> {
    if all.len() <= MANY || !matches!(show, Show::Groups) {
        return all.iter().map(|one| vec![*one]).collect();
    }
    let mut groups: Vec<Vec<&Value>> = Vec::new();
    let mut places = BTreeMap::new();
    for &one in all {
        let place = *places.entry(key(one)).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push(one);
    }
    groups
}

/// Names the first of a group, and says how many more there are.
fn names(group: &[&Value]) -> String {
    let first = word(&group[0]["mount_point"]);
    match group.len() {
        1 => first,
        n => format!("{first} and {} more (--all shows each; this is the first)", n - 1),
    }
}

/// Returns the figures of a group: sums, the range of use, and the time since the most recent slice.
fn row(group: &[&Value]) -> Vec<String> {
    let first = &group[0]["status"];
    let name = match group.len() {
        1 => word(&group[0]["mount_point"]),
        n => format!("{} + {}", word(&group[0]["mount_point"]), n - 1),
    };
    if first.is_null() {
        let mut row = vec![NONE.to_owned(); 9];
        row[0] = name;
        return row;
    }
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let all = || group.iter().map(|one| &one["status"]);
    let percent =
        |one: &Value| number(&one["used_bytes"]).saturating_mul(100) / number(&one["total_bytes"]).max(1);
    let (least, most) =
        (all().map(percent).min().unwrap_or_default(), all().map(percent).max().unwrap_or_default());
    let used = if least == most { format!("{least} %") } else { format!("{least} to {most} %") };
    let sum = |of: fn(&Value) -> &Value| all().map(|one| number(of(one))).fold(0, u64::saturating_add);
    // Marks an estimate.
    let mark = if all().all(|one| one["mapped"] == true) { "" } else { "~" };
    let estimated =
        |of: fn(UntrimmedOf) -> Untrimmed| match all().map(|one| of(UntrimmedOf::status(one))).sum() {
            Untrimmed::Known(bytes) => format!("{mark}{bytes}"),
            unknown @ Untrimmed::Unknown => unknown.to_string(),
        };
    let last = all().filter_map(|one| one["last"]["ago_ns"].as_u64()).min();
    vec![
        name,
        word(&first["policy"]),
        used,
        word(&first["trend"]),
        estimated(|one| one.waiting),
        estimated(|one| one.left),
        // A question mark means that some of it is unverified.
        match sum(|one| &one["totals"]["unverified_bytes"]) {
            0 => Bytes(sum(|one| &one["totals"]["trimmed_bytes"])).to_string(),
            sent => format!("{}?", Bytes(sum(|one| &one["totals"]["trimmed_bytes"]).saturating_add(sent))),
        },
        sum(|one| &one["totals"]["slices"]).to_string(),
        last.map_or(NONE.to_owned(), |ns| ago(ns / 1_000_000_000)),
    ]
}

fn ago(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7_200 => format!("{} min ago", seconds / 60),
        7_200..172_800 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

fn word(value: &Value) -> String {
    plain(value.as_str().unwrap_or(NONE))
}

pub fn explain(data: &Value) -> String {
    let sentences = data["sentences"].as_array().cloned().unwrap_or_default();
    let told: String = sentences.iter().map(|sentence| folded(&word(sentence), 2)).collect();
    let mount = data["mount_point"].as_str().unwrap_or_default();
    let [doctor, advise] = [("doctor", None), ("advise", Some("--here"))].map(|(command, option)| {
        let mut command = CommandText::new(command);
        option.into_iter().for_each(|option| command.argument(option));
        command.argument(mount);
        command.into_text()
    });
    let more = format!("Does TRIM arrive? `{doctor}`. Is another way better? `{advise}`.");
    format!("{}\n{told}{}", bold(&word(&data["mount_point"])), folded(&plain(&more), 0))
}

pub fn code(entry: &Entry) -> String {
    let Entry { code, severity, meaning, remedy, found_by, page, .. } = entry;
    let parts = [
        (*meaning).to_owned(),
        format!("What to do: {remedy}"),
        format!("How it is found: {found_by}"),
        format!("More: {page}"),
    ];
    let parts: String = parts.iter().map(|part| folded(part, 2)).collect();
    format!("{} ({})\n{parts}", bold(code), severity.word())
}

pub fn codes(all: &Findings) -> String {
    let entries: Vec<_> = all.findings.iter().map(|entry| (entry.code, entry.meaning)).collect();
    let rows = entries.iter().map(|(code, meaning)| [*code, *meaning].map(str::to_owned));
    export::keep("", &["code", "meaning"], rows, &[]);
    described(&entries, 0) + "`trimwise explain CODE` says how each is found and what to do.\n"
}

/// Renders the conclusion, if the reply is about one file system.
fn concluded(data: &Value) -> String {
    let conclusion = Conclusion::deserialize(&data["conclusion"]);
    conclusion.map_or_else(|_| String::new(), |one| format!("\n{}", conclusion::text(&one)))
}

/// Formats one line for each entry.
pub fn history(data: &Value) -> String {
    let entries = data["entries"].as_array().cloned().unwrap_or_default();
    if entries.is_empty() {
        return "Nothing has happened there yet.\n".to_owned();
    }
    let row = |entry: &Value| {
        // The format has no years after 9999.
        let at = u64::try_from(entry["at_ms"].as_i64().unwrap_or(0)).unwrap_or(0).min(253_402_300_799_000);
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(at);
        let at = humantime::format_rfc3339_seconds(at).to_string();
        [at, word(&entry["kind"]), word(&entry["text"])]
    };
    let rows: Vec<[String; 3]> = entries.iter().map(row).collect();
    export::keep("", &["at", "kind", "what"], &rows, &[]);
    rows.iter().map(|[at, kind, what]| folded(&format!("{at} {kind}: {what}"), 0)).collect()
}

/// Lists the mount points that were paused or resumed.
pub fn points(what: &str, data: &Value) -> String {
    let points: Vec<String> = data["mount_points"].as_array().into_iter().flatten().map(word).collect();
    if points.is_empty() {
        format!("nothing was {what}\n")
    } else {
        let still: Vec<String> = data["still_trimming"].as_array().into_iter().flatten().map(word).collect();
        let still = if still.is_empty() {
            String::new()
        } else {
            let still = still.join(", ");
            format!("- a slice is still in progress, and ends by itself: {still}. No other one begins.\n")
        };
        format!("{what}: {}\n{still}", points.join(", "))
    }
}

pub fn config(file: &Path, config: &Config, notes: &[String]) -> String {
    let manage = match config.manage {
        Manage::All => "all file systems that can be trimmed",
        Manage::Listed => "listed file systems only",
    };
    let mut text = format!("{}: valid. Manages {manage}, with {}", file.display(), config.default.policy);
    for (point, treatment) in &config.mounts {
        text += &format!("; {} with {}", plain(&point.display().to_string()), treatment.policy);
    }
    let notes: String = notes.iter().map(|note| folded(&format!("- {note}."), 2)).collect();
    folded(&(text + "."), 0) + &notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_name_cannot_command_a_terminal() {
        for odd in ['\u{1b}', '\u{202e}', '\u{2028}', '\u{9b}', '\u{2066}', '\u{feff}', '\u{e0041}'] {
            let data =
                serde_json::json!({"file_systems": [{"mount_point": format!("/m{odd}[2J"), "status": null}]});
            let text = status(&data, Show::Groups);
            assert!(text.contains("/m\u{fffd}[2J") && !text.contains(odd), "{text:?}");
        }
        assert_eq!(super::plain("/home/Zoë/日本 x"), "/home/Zoë/日本 x");
    }

    #[test]
    fn many_that_are_alike_are_shown_as_one_unless_each_is_asked_for() {
        let one = |i: u64, code: &str| {
            serde_json::json!({"mount_point": format!("/m{i}"), "problem": null, "status": {
                "policy": "judicious", "trend": "steady", "reason": {"code": code}, "mapped": true, "why": "It rests.",
                "used_bytes": i, "total_bytes": 1000, "waiting_bytes": 1 << 20, "left_bytes": 0,
                "totals": {"slices": 2, "trimmed_bytes": 1 << 20}, "last": {"ago_ns": i * 1_000_000_000}}})
        };
        let skipped: Vec<Value> = (0..100)
            .map(|i| serde_json::json!({"mount_point": format!("/s{i}"), "why": "mounted read-only"}))
            .collect();
        let mut all: Vec<Value> = (1..=400).map(|i| one(i, "policy")).collect();
        all.push(one(401, "failed"));
        let data = serde_json::json!({"file_systems": all, "skipped": skipped});
        let text = status(&data, Show::Groups);
        assert!(text.lines().count() < 15, "{text}");
        for words in
            ["/m1 + 399", "0 to 40 %", "400 MiB", "800", "1 s ago", "/m1 and 399 more", "/s0 and 99 more"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(text.contains("/m401: It rests."), "{text}");
        assert!(status(&data, Show::Each).contains("/m77: It rests."));
        let text = status(&data, Show::One(Path::new("/m77")));
        assert!(text.contains("/m77: It rests.") && !text.contains("/m78"), "{text}");
        let text = status(&data, Show::One(Path::new("/s7")));
        assert!(text.contains("/s7: not managed: mounted read-only.") && !text.contains("/s8"), "{text}");
    }

    /// It said "~0 B", and would have added up known and unknown.
    #[test]
    fn regression_untrimmed_space_that_nobody_has_read_is_unknown() {
        let one = |i: usize, bytes: Value, mapped: bool| {
            serde_json::json!({"mount_point": format!("/m{i}"), "problem": null, "status": {
                "policy": "batch:1d", "trend": "steady", "reason": {"code": "policy"}, "mapped": mapped,
                "why": "It rests.", "used_bytes": i, "total_bytes": 1000, "waiting_bytes": bytes, "left_bytes": bytes,
                "totals": {"slices": 0, "trimmed_bytes": 0}, "last": null}})
        };
        let row = |file_systems: Vec<Value>, name: &str| {
            let text = status(&serde_json::json!({ "file_systems": file_systems }), Show::Groups);
            let row = text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
            row.split("  ")
                .filter(|word| !word.is_empty())
                .map(|word| word.trim().to_owned())
                .collect::<Vec<_>>()
        };
        for (bytes, mapped, shown) in [
            (Value::Null, false, "unknown"),
            (0.into(), false, "unknown"), // as earlier daemons wrote it
            (0.into(), true, "0 B"),
            (4096.into(), false, "~4 KiB"),
        ] {
            assert_eq!(row(vec![one(1, bytes, mapped)], "/m1")[4..6], [shown, shown]);
        }
        let known = (0..20).map(|i| one(i, 4096.into(), true));
        let all: Vec<Value> = known.chain((20..40).map(|i| one(i, Value::Null, true))).collect();
        assert_eq!(row(all.clone(), "/m0 + 19")[4..6], ["80 KiB", "80 KiB"]);
        assert_eq!(row(all, "/m20 + 19")[4..6], ["unknown", "unknown"]);
    }

    #[test]
    fn times_are_told_in_one_unit() {
        assert_eq!(
            [ago(5), ago(300), ago(9_000), ago(800_000)],
            ["5 s ago", "5 min ago", "2 h ago", "9 d ago"]
        );
    }
}
