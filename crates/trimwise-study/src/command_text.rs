//! The command that repeats a result, as a user would type it.

use std::fmt::Display;
use std::path::Path;

pub(crate) use trimwise_linux::text::quoted;
use trimwise_linux::text::quoted_path;

/// A command line under construction. Words are quoted for a POSIX shell where necessary.
#[derive(Clone, Debug)]
pub struct CommandText(String);

impl CommandText {
    pub fn new(subcommand: &str) -> Self {
        Self(format!("trimwise {subcommand}"))
    }

    pub fn argument(&mut self, word: impl Display) {
        self.0.push(' ');
        self.0.push_str(&quoted(&word.to_string()));
    }

    /// Adds a path, which need not be UTF-8.
    pub fn path(&mut self, path: &Path) {
        self.0.push(' ');
        self.0.push_str(&quoted_path(path));
    }

    pub fn option(&mut self, option: &str, value: impl Display) {
        self.argument(option);
        self.argument(value);
    }

    pub fn into_text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        let mut c = CommandText::new("compare");
        c.option("--workload", "my $HOME's.pmrc");
        c.option("--policy", "set:40:90+lazy");
        c.argument("");
        assert_eq!(
            c.into_text(),
            r"trimwise compare --workload 'my $HOME'\''s.pmrc' --policy set:40:90+lazy ''"
        );
    }
}
