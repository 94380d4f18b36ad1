//! How a program that somebody named ended, and what it said.

use std::borrow::Cow;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use serde::{Deserialize, Serialize, Serializer};

/// The end of a program: what it said, and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramEnd {
    /// Exit code of the program; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Signal that ended the program.
    pub signal: Option<i32>,
    /// Standard output of the program.
    pub output: Said,
    /// Standard error of the program.
    pub errors: Said,
    /// Number of processes that the program had left running; they were killed.
    pub killed_processes: u32,
}

impl ProgramEnd {
    /// Returns how the program failed; `None` if it succeeded.
    pub fn failure(&self) -> Option<String> {
        // As std writes it: `9 (SIGKILL)`.
        let named = |signal| ExitStatus::from_raw(signal).to_string().replacen("signal: ", "", 1);
        match (self.code, self.signal) {
            (Some(0), _) => None,
            (Some(code @ 129..=192), _) => {
                Some(format!("exit code {code}, by which a shell reports signal {}", named(code - 128)))
            }
            (Some(code), _) => Some(format!("exit code {code}")),
            (None, signal) => Some(format!("ended by signal {}", named(signal.unwrap_or(0)))),
        }
    }
}

/// Input or output of a program: bytes, usually text. In JSON a string; an array of bytes if it is not UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Written")]
pub struct Said(pub Vec<u8>);

impl Said {
    /// Converts the bytes to text, with a replacement for invalid UTF-8.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl Serialize for Said {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => self.0.serialize(serializer),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<Written> for Said {
    fn from(written: Written) -> Self {
        match written {
            Written::Text(text) => Self(text.into_bytes()),
            Written::Bytes(bytes) => Self(bytes),
        }
    }
}

/// Checks that a program succeeded.
///
/// # Errors
/// If it failed: a sentence with its exit status and its last lines of output.
pub fn expect_success(command: &[String], end: &ProgramEnd) -> Result<(), String> {
    const LINES: usize = 10;
    let Some(how) = end.failure() else { return Ok(()) };
    let said = [&end.errors, &end.output].map(Said::text);
    let said = said.iter().find(|text| !text.trim().is_empty()).map_or("", |text| text.trim_end());
    let lines: Vec<&str> = said.lines().collect();
    let last = lines[lines.len().saturating_sub(LINES)..].iter().map(|line| format!("\n  {line}"));
    Err(format!("{}: {how}{}", command.join(" "), last.collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_pass_through_json_whole() {
        for (bytes, json) in
            [(&b"text\n"[..], r#""text\n""#), (&[0xff, 0, 0x61], "[255,0,97]"), (b"", r#""""#)]
        {
            let said = Said(bytes.to_vec());
            assert_eq!(serde_json::to_string(&said).unwrap(), json);
            assert_eq!(serde_json::from_str::<Said>(json).unwrap(), said);
        }
    }

    #[test]
    fn a_failure_names_the_signal() {
        let failure = |code, signal| ProgramEnd { code, signal, ..ProgramEnd::default() }.failure();
        assert_eq!(failure(Some(0), None), None);
        assert_eq!(failure(Some(1), None).unwrap(), "exit code 1");
        assert_eq!(
            failure(Some(137), None).unwrap(),
            "exit code 137, by which a shell reports signal 9 (SIGKILL)"
        );
        assert_eq!(failure(Some(255), None).unwrap(), "exit code 255");
        assert_eq!(failure(None, Some(11)).unwrap(), "ended by signal 11 (SIGSEGV)");
    }

    #[test]
    fn a_program_that_failed_is_named_with_how_it_ended_and_its_last_lines() {
        let said = |text: &str| Said(text.as_bytes().to_vec());
        let ended = |code, signal, errors: &str| {
            let end =
                ProgramEnd { code, signal, output: said("out\n"), errors: said(errors), killed_processes: 0 };
            expect_success(&["make".to_owned(), "all".to_owned()], &end)
        };
        assert_eq!(ended(Some(0), None, "a warning"), Ok(()));
        assert_eq!(ended(Some(2), None, " \n").unwrap_err(), "make all: exit code 2\n  out");
        let lines: Vec<String> = (1..=12).map(|line| line.to_string()).collect();
        let expected = format!("make all: ended by signal 9 (SIGKILL)\n  {}", lines[2..].join("\n  "));
        assert_eq!(ended(None, Some(9), &lines.join("\n")).unwrap_err(), expected);
    }
}
