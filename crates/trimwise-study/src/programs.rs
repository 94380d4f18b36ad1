//! Programs of this computer as workloads of the command line.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use trimwise::failure::{Failure, Mistake};

/// Marks a workload as a program.
pub const PREFIX: &str = "cmd:";
pub const SYNTAX: &str = "cmd:'[SETUP ;; ]PROGRAM ARGUMENTS'";
/// The word between the setup and the measured program.
const THEN: &str = ";;";

/// A program with its arguments, and one that prepares for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    pub setup: Vec<String>,
    pub run: Vec<String>,
}

impl Programs {
    /// Parses `[SETUP ;; ]PROGRAM ARGUMENTS`.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let of = Mistake::of("workload", format!("{PREFIX}{text}"));
        let fail = |what: &str| of.clone().because(what).expected(SYNTAX).fail();
        let words = words(text).map_err(fail)?;
        let mut parts = words.split(|word| word == THEN).map(<[String]>::to_vec);
        let (setup, run) = match (parts.next(), parts.next(), parts.next()) {
            (Some(run), None, _) => (Vec::new(), run),
            (Some(setup), Some(run), None) if !setup.is_empty() => (setup, run),
            _ => return Err(fail("';;' may occur only once, between two programs")),
        };
        if run.is_empty() {
            return Err(fail("names no program"));
        }
        Ok(Self { setup, run })
    }

    /// Rejects missing programs. A name is looked up in `folders`, as in `$PATH`. With a setup, the path of the
    /// measured program may be missing, since the setup may create it.
    pub fn check(&self, folders: &OsStr) -> Result<(), String> {
        for (command, may_be_made) in [(&self.setup, false), (&self.run, !self.setup.is_empty())] {
            let Some(program) = command.first() else { continue };
            let is_path = program.contains('/');
            let is_found = match is_path {
                true => may_be_made || is_program(Path::new(program)),
                false => std::env::split_paths(folders).any(|folder| is_program(&folder.join(program))),
            };
            if !is_found {
                let place = if is_path { "" } else { " in the folders of PATH" };
                return Err(format!("{program}: no such program{place}"));
            }
        }
        Ok(())
    }

    /// Resolves both programs for a run on this computer or in a guest.
    pub fn found(&self, is_in_guest: bool) -> Result<Self, Failure> {
        let found = |command: &Vec<String>| if is_in_guest { in_guest(command) } else { absolute(command) };
        Ok(Self { setup: found(&self.setup)?, run: found(&self.run)? })
    }
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Splits text into words at blanks, as a shell does: `'...'` is literal, in `"..."` and elsewhere a backslash makes
/// the next character literal. Nothing is expanded.
fn words(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut rest = text.chars();
    while let Some(next) = rest.next() {
        match (quote, next) {
            (None, ' ' | '\t' | '\n') => words.extend(word.take()),
            (None, '\'' | '"') => {
                quote = Some(next);
                word.get_or_insert_default();
            }
            (Some(open), _) if open == next => quote = None,
            (None | Some('"'), '\\') => {
                word.get_or_insert_default().push(rest.next().ok_or("ends with a backslash")?);
            }
            _ => word.get_or_insert_default().push(next),
        }
    }
    if quote.is_some() {
        return Err("a quotation mark is not closed");
    }
    words.extend(word);
    Ok(words)
}

/// Makes a path absolute, so that it is valid in another working directory.
fn absolute(given: &[String]) -> Result<Vec<String>, Failure> {
    let mut command = given.to_vec();
    if let Some(program) = command.first_mut().filter(|program| program.contains('/')) {
        let path =
            std::path::absolute(&*program).map_err(|e| Mistake::that(format!("{program}: {e}")).fail())?;
        *program = path.display().to_string();
    }
    Ok(command)
}

/// Makes a path one of this computer's, whatever the guest's working directory.
pub fn in_guest(given: &[String]) -> Result<Vec<String>, Failure> {
    let command = absolute(given)?;
    match command.first() {
        Some(program) if Path::new(program).starts_with("/tmp") => {
            let why = format!("{program}: is below /tmp, but a guest has a /tmp of its own");
            Err(Mistake::that(why).expected("a program elsewhere").fail())
        }
        _ => Ok(command),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_shell_does() {
        for (text, expected) in [
            ("fio --rw=read", &["fio", "--rw=read"][..]),
            (r#" a 'b  c'd "e\"f" g\ h '' "#, &["a", "b  cd", "e\"f", "g h", ""]),
            (r"'a\b'", &[r"a\b"]),
        ] {
            assert_eq!(words(text).unwrap(), expected, "{text}");
        }
        assert!(words("a 'b").is_err() && words("a\\").is_err());
    }

    #[test]
    fn a_setup_stands_before_two_semicolons() {
        let strings = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let parse = |text| Programs::parse(text).map_err(|e| e.to_string());
        assert_eq!(parse("a b"), Ok(Programs { setup: vec![], run: strings(&["a", "b"]) }));
        assert_eq!(
            parse("a ;; b 'c;;d'"),
            Ok(Programs { setup: strings(&["a"]), run: strings(&["b", "c;;d"]) })
        );
        for (text, expected) in [
            ("", "names no program"),
            ("a ;;", "no program"),
            (";; a", "may occur only once"),
            ("a ;; b ;; c", "once"),
        ] {
            assert!(parse(text).unwrap_err().contains(expected), "{text}");
        }
        let found = parse("/tmp/a").unwrap().found(true).unwrap_err();
        assert!(found.to_string().contains("/tmp of its own"), "{found}");
        let check = |text| parse(text).unwrap().check(OsStr::new("/no/such:/usr/bin:/bin"));
        for (text, expected) in [
            ("sh", Ok(())),
            ("/bin/sh ;; /what/the/setup/makes", Ok(())),
            ("nosuch", Err("nosuch: no such program in the folders of PATH")),
            ("sh ;; nosuch", Err("nosuch: no such program in the folders of PATH")),
            ("/no/such/program", Err("/no/such/program: no such program")),
            ("/etc/passwd", Err("/etc/passwd: no such program")),
        ] {
            assert_eq!(check(text), expected.map_err(str::to_owned), "{text}");
        }
        let here = std::env::current_dir().unwrap().join("b/c").display().to_string();
        assert_eq!(parse("b/c d").unwrap().found(false).unwrap().run, strings(&[&here, "d"]));
    }
}
