//! The texts of `status`, `explain`, `history`, `pause` and `config check`, from what the daemon answered.

use std::path::Path;

use serde_json::Value;
use trimwise::units::Bytes;
use trimwise_linux::daemon::config::{Config, Manage};

use super::{bold, folded, laid_out, plain};
use crate::figures::NONE;

/// All file systems: a table of figures, and below it why each does what it does.
pub fn status(data: &Value) -> String {
    let empty = Vec::new();
    let file_systems = data["file_systems"].as_array().unwrap_or(&empty);
    let header = ["mount", "policy", "used", "trend", "waiting", "left", "trimmed", "slices", "last"];
    let rows: Vec<Vec<String>> = file_systems.iter().map(row).collect();
    let mut text =
        if rows.is_empty() { "No file system is managed.\n".to_owned() } else { laid_out(&header, &rows) };
    text.push('\n');
    for one in file_systems {
        let why = [&one["problem"], &one["status"]["why"]].into_iter().find(|why| why.is_string());
        let why = why.map_or_else(|| "It was only just found.".to_owned(), word);
        let next = &one["status"]["next"];
        let next = if next.is_string() { format!(" Next: {}", word(next)) } else { String::new() };
        text += &folded(&format!("{}: {why}{next}", word(&one["mount_point"])), 0);
        if one["option_before"].is_string() {
            let (option, before) = (word(&one["option"]), word(&one["option_before"]));
            text += &folded(
                &format!(
                    "! Its mount option is {option} now: trimwised changed it from {before}, and puts it back."
                ),
                2,
            );
        }
    }
    let skipped = data["skipped"].as_array().unwrap_or(&empty);
    for one in skipped {
        text += &folded(&format!("{}: not managed: {}.", word(&one["mount_point"]), word(&one["why"])), 0);
    }
    if let Some(problem) = data["config_problem"].as_str() {
        text += &folded("! The configuration is kept as it was, since the new one is broken:", 0);
        for line in problem.lines() {
            text += &folded(&word(&line.into()), 2);
        }
    }
    for problem in ["state_problem", "mounts_problem", "history_problem", "metrics_problem"] {
        if data[problem].is_string() {
            text += &folded(&format!("! {}", word(&data[problem])), 0);
        }
    }
    if data["dry_run"] == true {
        text += "Dry run: nothing is changed.\n";
    }
    text
}

fn row(one: &Value) -> Vec<String> {
    let status = &one["status"];
    if status.is_null() {
        let mut row = vec![NONE.to_owned(); 9];
        row[0] = word(&one["mount_point"]);
        return row;
    }
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let percent = number(&status["used_bytes"]).saturating_mul(100) / number(&status["total_bytes"]).max(1);
    let size = |value: &Value| Bytes(number(value)).to_string();
    // An estimate is marked as one.
    let estimated = |value: &Value| {
        let mark = if status["mapped"] == true { "" } else { "~" };
        format!("{mark}{}", size(value))
    };
    let last = status["last"]["ago_ns"].as_u64().map_or(NONE.to_owned(), |ns| ago(ns / 1_000_000_000));
    vec![
        word(&one["mount_point"]),
        word(&status["policy"]),
        format!("{percent} %"),
        word(&status["trend"]),
        estimated(&status["waiting_bytes"]),
        estimated(&status["left_bytes"]),
        size(&status["totals"]["trimmed_bytes"]),
        number(&status["totals"]["slices"]).to_string(),
        last,
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

/// A word of an answer.
fn word(value: &Value) -> String {
    plain(value.as_str().unwrap_or(NONE))
}

/// Sentences.
pub fn explain(data: &Value) -> String {
    let sentences = data["sentences"].as_array().cloned().unwrap_or_default();
    let told: String = sentences.iter().map(|sentence| folded(&word(sentence), 2)).collect();
    format!("{}\n{told}", bold(&word(&data["mount_point"])))
}

/// One line an entry.
pub fn history(data: &Value) -> String {
    let entries = data["entries"].as_array().cloned().unwrap_or_default();
    if entries.is_empty() {
        return "Nothing has happened there yet.\n".to_owned();
    }
    let line = |entry: &Value| {
        // Up to the year 9999, which is as far as it can be written.
        let at = u64::try_from(entry["at_ms"].as_i64().unwrap_or(0)).unwrap_or(0).min(253_402_300_799_000);
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(at);
        let at = humantime::format_rfc3339_seconds(at);
        folded(&format!("{at} {}: {}", word(&entry["kind"]), word(&entry["text"])), 0)
    };
    entries.iter().map(line).collect()
}

/// What was paused or resumed.
pub fn points(what: &str, data: &Value) -> String {
    let points: Vec<String> = data["mount_points"].as_array().into_iter().flatten().map(word).collect();
    if points.is_empty() {
        format!("nothing was {what}\n")
    } else {
        format!("{what}: {}\n", points.join(", "))
    }
}

/// What a sound configuration says.
pub fn config(file: &Path, config: &Config, notes: &[String]) -> String {
    let manage = match config.manage {
        Manage::All => "all file systems that can be trimmed",
        Manage::Listed => "listed file systems only",
    };
    let mut text = format!("{}: sound. Manages {manage}, with {}", file.display(), config.default.policy);
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
            let text = status(&data);
            assert!(text.contains("/m\u{fffd}[2J") && !text.contains(odd), "{text:?}");
        }
        assert_eq!(super::plain("/home/Zoë/日本 x"), "/home/Zoë/日本 x");
    }

    #[test]
    fn times_are_told_in_one_unit() {
        assert_eq!(
            [ago(5), ago(300), ago(9_000), ago(800_000)],
            ["5 s ago", "5 min ago", "2 h ago", "9 d ago"]
        );
    }
}
