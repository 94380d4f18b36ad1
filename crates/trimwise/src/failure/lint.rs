//! Rejects code that parses the text of an error: what it looks for should be data in the error.

use std::fs;
use std::path::{Path, PathBuf};

/// Methods that parse or rewrite a text.
const TAKEN_APART_BY: [&str; 14] = [
    "contains",
    "ends_with",
    "replace",
    "replacen",
    "rsplit",
    "rsplit_once",
    "split",
    "split_once",
    "splitn",
    "starts_with",
    "strip_prefix",
    "strip_suffix",
    "trim_end_matches",
    "trim_start_matches",
];

/// Names of variables, fields and methods that hold the text of an error, a note or a finding.
const TEXTS: [&str; 9] =
    ["error", "failure", "finding", "message", "mistake", "note", "reason", "refusal", "why"];

/// Exceptions: the file, the receiver, and why it may parse a text (another program's error, or no data for it yet).
const EXCEPT: [(&str, &str, &str); 2] = [
    ("trimwise-lab/src/crash/kernel/soak.rs", "error", "an errno in a guest's log"),
    ("requests/tournament/process.rs", "text", "words of serde_json, which has no data and names Rust types"),
];

/// Returns the receiver of a call, which ends before `end`: `error.to_string()`, `self.message`.
fn receiver(code: &str, end: usize) -> &str {
    let (mut depth, mut start) = (0_usize, end);
    for (at, letter) in code[..end].char_indices().rev() {
        match letter {
            ')' | ']' => depth += 1,
            '(' | '[' if depth > 0 => depth -= 1,
            _ if depth > 0 || letter.is_alphanumeric() || "._:".contains(letter) => {}
            _ => break,
        }
        start = at;
    }
    &code[start..end]
}

/// Returns true if the receiver is the text of an error: its name is in [`TEXTS`], or it is `e.to_string()`.
fn is_text(receiver: &str) -> bool {
    let last = receiver.strip_suffix(".to_string()").map(|of| (of, true)).unwrap_or((receiver, false));
    let (of, is_made) = last;
    let name = of.trim_end_matches("()").rsplit(['.', ':']).next().unwrap_or_default();
    TEXTS.contains(&name) || is_made && matches!(name, "e" | "err")
}

/// Returns the code before the tests without comments, one chain of calls at a time, each with its line number.
fn chains(source: &str) -> Vec<(usize, String)> {
    let mut chains: Vec<(usize, String)> = Vec::new();
    for (number, line) in source.lines().enumerate().take_while(|(_, line)| *line != "#[cfg(test)]") {
        let code = line.trim();
        match chains.last_mut() {
            _ if code.starts_with("//") => {}
            Some((_, chain)) if code.starts_with('.') => chain.push_str(code),
            _ => chains.push((number + 1, code.to_owned())),
        }
    }
    chains
}

/// Returns the lines that parse the text of an error, each with the receiver.
fn found(source: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    // Variables that hold the text of an error under another name.
    let mut held: Vec<String> = Vec::new();
    for (line, code) in chains(source) {
        if code.starts_with("fn ") || code.contains(" fn ") {
            held.clear();
        }
        let binding = code.strip_prefix("let ").and_then(|rest| rest.strip_suffix(';')?.split_once(" = "));
        if let Some((name, value)) = binding {
            held.retain(|one| one != name);
            if value.ends_with(".to_string()") && is_text(value) {
                held.push(name.to_owned());
            }
        }
        for method in TAKEN_APART_BY {
            for (at, call) in code.match_indices(&format!(".{method}(")) {
                let receiver = receiver(&code, at);
                // Removing control characters does not depend on the meaning of a text.
                let is_text = is_text(receiver) || held.iter().any(|name| name == receiver);
                if is_text && !code[at + call.len()..].starts_with("char::is_control") {
                    found.push((line, receiver.to_owned()));
                }
            }
        }
    }
    found
}

fn sources(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, all);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") && name != "lint.rs" {
            all.push(path);
        }
    }
}

#[test]
fn nobody_takes_the_text_of_an_error_apart() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        let source = entry.unwrap().path().join("src");
        // Only tests use that crate.
        if source.is_dir() && !source.ends_with("trimwise-testing/src") {
            sources(&source, &mut files);
        }
    }
    sources(&root.join("python/src"), &mut files);
    assert!(files.len() > 300, "only {} files were found below {}", files.len(), root.display());
    let mut wrong = Vec::new();
    for file in files {
        let shown = file.display().to_string();
        for (line, receiver) in found(&fs::read_to_string(&file).unwrap()) {
            if !EXCEPT.iter().any(|(end, of, _)| shown.ends_with(end) && receiver == *of) {
                wrong.push(format!(
                    "{shown}:{line}: parses the text of `{receiver}`; give the error a field or a variant \
                     (`trimwise::failure::Mistake` for a wrong request), and match that"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_takes_a_text_apart_is_found_where_it_is_and_nothing_else() {
    let planted = "fn a() {\n    let why = error\n        .to_string()\n        .replace(\"a\", \"b\");\n    \
                   if self.message.split(';').count() > 1 || e.to_string().contains(\"x\") {}\n    \
                   failure.strip_prefix(\"--out \");\n}\n\
                   fn b() {\n    let text = error.to_string();\n    let what = text.strip_suffix(\"!\");\n}\n\
                   fn c(text: &str) {\n    text.starts_with('x');\n}\n";
    let receivers: Vec<(usize, String)> = found(planted);
    let receivers: Vec<(usize, &str)> = receivers.iter().map(|(line, of)| (*line, &**of)).collect();
    assert_eq!(
        receivers,
        [(2, "error.to_string()"), (5, "e.to_string()"), (5, "self.message"), (6, "failure"), (10, "text")]
    );
    for fine in [
        "path.to_string().replace('/', \"_\");",
        "errors.contains(&error);",
        "// error.to_string().split(':')",
        "text.split(\"error\");",
        "#[cfg(test)]\nmod tests { fn a() { error.contains(\"x\"); } }",
        "error.to_string().replace(char::is_control, \" \");",
        "note(text).contains('a');",
    ] {
        assert_eq!(found(fine), [], "{fine}");
    }
}
