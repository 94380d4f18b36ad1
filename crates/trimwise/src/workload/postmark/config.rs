//! Parses PostMark's configuration files.
//!
//! A file holds one command per line, as `postmark FILE` reads it: `set ...` changes a parameter, `run` runs the
//! benchmark with the current settings, `quit` ends the file. One rule covers everything unusual: **a file that both
//! programs accept gives the same runs**. PostMark reports or ignores a line that it cannot read, and continues with
//! the previous settings. Here such a line is an error, so that no other benchmark is measured than the one written. In
//! particular:
//!
//! - PostMark reads `set size 1e3` as 1, `set number 5x` as 5 and `set bias read abc` as 0: errors here.
//! - PostMark drops the last character of the file if it is not a newline, and reads `set number 500` as 50: an error
//!   here where it would change a run. End the last line with a newline.
//! - Blank lines and lines that begin with `#` or `;` are skipped (PostMark prints `Eh?` and continues). Blanks at the
//!   end of a line are ignored, so files with CRLF line ends can be read.
//! - `set size L H` with H below L silently makes every file L bytes long, in both programs.
//! - Fewer than 10 transactions kill PostMark by a division by zero; here they run.
//! - `load` and `!command` would reach outside the file: errors here. `show` and `help` print something in PostMark and
//!   are accepted without effect, as are the file names in `run FILE` and `show FILE`.
//! - A file without `run` leaves PostMark waiting at its prompt; here its final settings are run once.

use thiserror::Error;

use crate::failure::Mistake;

/// The largest value of PostMark's numbers, which are C `int`s.
const INT_MAX: u32 = i32::MAX as u32;
/// The largest number that PostMark can double in a C `int`, as it does with `number` and `size`.
const HALF_INT_MAX: u32 = INT_MAX / 2;

/// Form of PostMark's report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReportFormat {
    /// Some twenty lines for a reader.
    #[default]
    Verbose,
    /// One line of thirteen fields.
    Terse,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Path of the directory, as written in the file or as [`Layout`](super::layout) needs it.
    pub path: String,
    /// How often the location is chosen, relative to the others; at least 1.
    pub weight: u32,
}

/// The settings of one run. The default is PostMark's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostmarkConfig {
    /// Files created before the transactions (500).
    pub number: u32,
    pub transactions: u32,
    /// Smallest size of a new file in bytes (500).
    pub size_low: u32,
    /// A new file is smaller than this, in bytes, or of `size_low` if they are the same; none grows beyond it
    /// (10,000).
    pub size_high: u32,
    pub seed: u32,
    /// Locations of new files; none means the current directory, which is the root of the target.
    pub locations: Vec<Location>,
    /// Number of subdirectories `s0`, `s1`... of each location; with 0 or 1, files go straight into it (0).
    pub subdirectories: u32,
    /// Bytes of each read (512).
    pub read_block: u32,
    /// Bytes of each write (512).
    pub write_block: u32,
    /// Use C's buffered I/O (`fread`, `fwrite`) rather than system calls (true).
    pub buffering: bool,
    /// Number of transactions in ten that read rather than append; with `None` (-1 in the file) they do neither (5).
    pub bias_read: Option<u8>,
    /// Number of transactions in ten that create rather than delete; with `None` they do neither (5).
    pub bias_create: Option<u8>,
    pub report: ReportFormat,
}

impl Default for PostmarkConfig {
    fn default() -> Self {
        Self {
            number: 500,
            transactions: 500,
            size_low: 500,
            size_high: 10_000,
            seed: 42,
            locations: Vec::new(),
            subdirectories: 0,
            read_block: 512,
            write_block: 512,
            buffering: true,
            bias_read: Some(5),
            bias_create: Some(5),
            report: ReportFormat::Verbose,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedRun {
    /// The line of its `run`; `None` if the file has no `run` and its final settings apply.
    pub line: Option<usize>,
    pub config: PostmarkConfig,
    /// The lines that set its locations, in order.
    pub location_lines: Vec<usize>,
}

impl PlannedRun {
    /// Returns the line that set a location, for messages about it.
    pub fn line_of_location(&self, path: &str) -> Option<usize> {
        let index = self.config.locations.iter().position(|location| location.path == path)?;
        self.location_lines.get(index).copied()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedConfig {
    pub runs: Vec<PlannedRun>,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{file}:{line}: {field}: '{}' is not accepted; expected {expected}", shown(.value))]
pub struct ConfigError {
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The command, such as `set size`; `command` if that itself is unknown.
    pub field: &'static str,
    pub value: String,
    pub expected: &'static str,
}

impl ConfigError {
    /// Returns it as what is wrong with a request that names the file.
    pub fn mistake(&self) -> Mistake {
        let why = format!("{}: '{}' is not accepted", self.field, shown(&self.value));
        Mistake::that(why).expected(self.expected).at(&self.file, Some(self.line))
    }
}

/// Returns the value without control characters, and short enough for a message.
fn shown(value: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 60;
    let mut text: String =
        value.chars().take(SHOWN_CHARS_MAX).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if value.chars().nth(SHOWN_CHARS_MAX).is_some() {
        text.push_str("...");
    }
    text
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Size,
    Number,
    Seed,
    Transactions,
    Location,
    Subdirectories,
    Read,
    Write,
    Buffering,
    BiasRead,
    BiasCreate,
    Report,
    Run,
    Load,
    Show,
    Help,
    Quit,
}

/// Every command as it must appear at the beginning of a line, in PostMark's order.
const COMMANDS: [(&str, Command); 17] = [
    ("set size", Command::Size),
    ("set number", Command::Number),
    ("set seed", Command::Seed),
    ("set transactions", Command::Transactions),
    ("set location", Command::Location),
    ("set subdirectories", Command::Subdirectories),
    ("set read", Command::Read),
    ("set write", Command::Write),
    ("set buffering", Command::Buffering),
    ("set bias read", Command::BiasRead),
    ("set bias create", Command::BiasCreate),
    ("set report", Command::Report),
    ("run", Command::Run),
    ("load", Command::Load),
    ("show", Command::Show),
    ("help", Command::Help),
    ("quit", Command::Quit),
];

const KNOWN_COMMANDS: &str = "one of: set size, number, seed, transactions, location, subdirectories, read, write, \
     buffering, bias read, bias create, report; run; show; help; quit (at the start of the line, words separated by \
     one space)";

const WHOLE_NUMBER: &str = "a whole number above 0 (at most 2147483647)";
const WHOLE_NUMBER_HALF: &str = "a whole number above 0 (at most 1073741823)";
const BIAS: &str = "a whole number from 0 to 10, or -1 for neither";
const LAST_NEWLINE: &str =
    "a newline at the end of the file (without it PostMark drops the last character of this line)";

/// Reason for rejecting a value, before the line is known: the part to show, and the accepted values.
type Refusal = (String, &'static str);

impl PostmarkConfig {
    /// Formats a configuration file that requests one run with these settings.
    pub fn to_text(&self) -> String {
        let bias = |bias: Option<u8>| bias.map_or(-1, i32::from);
        let mut text = format!(
            "set number {}\nset transactions {}\nset size {} {}\nset seed {}\nset read {}\n\
             set write {}\nset buffering {}\nset bias read {}\nset bias create {}\nset report {}\n",
            self.number,
            self.transactions,
            self.size_low,
            self.size_high,
            self.seed,
            self.read_block,
            self.write_block,
            self.buffering,
            bias(self.bias_read),
            bias(self.bias_create),
            match self.report {
                ReportFormat::Verbose => "verbose",
                ReportFormat::Terse => "terse",
            },
        );
        // The default cannot be written.
        if self.subdirectories > 0 {
            text += &format!("set subdirectories {}\n", self.subdirectories);
        }
        for location in &self.locations {
            text += &format!("set location +{} {}\n", location.path, location.weight);
        }
        text + "run\n"
    }

    /// Parses the text of a configuration file; `file_name` is for messages only.
    ///
    /// # Errors
    /// The first line that is not accepted, with the accepted values.
    pub fn parse(text: &str, file_name: &str) -> Result<ParsedConfig, ConfigError> {
        let mut config = Self::default();
        let mut location_lines = Vec::new();
        let mut runs = Vec::new();
        for (index, raw) in text.split_inclusive('\n').enumerate() {
            let line = raw.trim_end();
            let error = |field, (value, expected): Refusal| ConfigError {
                file: file_name.to_owned(),
                line: index + 1,
                field,
                value,
                expected,
            };
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            let Some((field, command, value)) = split_command(line) else {
                return Err(error("command", (line.to_owned(), KNOWN_COMMANDS)));
            };
            let loses_a_character = line.len() == raw.len();
            let harmless = matches!(command, Command::Show | Command::Help | Command::Quit);
            if loses_a_character && !harmless {
                return Err(error(field, (value.trim().to_owned(), LAST_NEWLINE)));
            }
            match command {
                Command::Run => runs.push(PlannedRun {
                    line: Some(index + 1),
                    config: config.clone(),
                    location_lines: location_lines.clone(),
                }),
                Command::Quit => break,
                Command::Show | Command::Help => {}
                Command::Location => match config.set_location(value).map_err(|r| error(field, r))? {
                    LocationChange::Only => location_lines = vec![index + 1],
                    LocationChange::Added => location_lines.push(index + 1),
                    LocationChange::Removed(which) => {
                        location_lines.remove(which);
                    }
                },
                _ => config.set(command, value).map_err(|refusal| error(field, refusal))?,
            }
        }
        if runs.is_empty() {
            runs.push(PlannedRun { line: None, config, location_lines });
        }
        Ok(ParsedConfig { runs })
    }

    fn set(&mut self, command: Command, value: &str) -> Result<(), Refusal> {
        match command {
            Command::Size => (self.size_low, self.size_high) = size(value)?,
            Command::Number => self.number = whole(value, HALF_INT_MAX)?,
            Command::Seed => self.seed = whole(value, INT_MAX)?,
            Command::Transactions => self.transactions = whole(value, INT_MAX)?,
            Command::Location => {
                self.set_location(value)?;
            }
            Command::Subdirectories => self.subdirectories = whole(value, INT_MAX)?,
            Command::Read => self.read_block = whole(value, INT_MAX)?,
            Command::Write => self.write_block = whole(value, INT_MAX)?,
            Command::Buffering => self.buffering = one_of(value, "true or false", ["true", "false"])? == 0,
            Command::BiasRead => self.bias_read = bias(value)?,
            Command::BiasCreate => self.bias_create = bias(value)?,
            Command::Report => {
                self.report = match one_of(value, "verbose or terse", ["verbose", "terse"])? {
                    0 => ReportFormat::Verbose,
                    _ => ReportFormat::Terse,
                }
            }
            Command::Load => {
                return Err((
                    value.trim().to_owned(),
                    "the settings themselves (a file cannot load another)",
                ));
            }
            Command::Run | Command::Show | Command::Help | Command::Quit => {}
        }
        Ok(())
    }

    /// Changes the list of locations: `P [W]` replaces it, `+P [W]` adds to it, `-P` removes from it.
    fn set_location(&mut self, value: &str) -> Result<LocationChange, Refusal> {
        const EXPECTED: &str =
            "PATH [WEIGHT], +PATH [WEIGHT] or -PATH, separated by one space, the weight above 0";
        let refuse = |expected| (value.trim().to_owned(), expected);
        if let Some(path) = value.strip_prefix('-') {
            let index = self.locations.iter().position(|location| location.path == path);
            let index = index.ok_or_else(|| refuse("the path of a location that is set"))?;
            self.locations.remove(index);
            return Ok(LocationChange::Removed(index));
        }
        let (adds, rest) = match value.strip_prefix('+') {
            Some(rest) => (true, rest),
            None => (false, value),
        };
        let (path, weight) = match rest.rsplit_once(' ') {
            Some((path, weight)) => (path, whole(weight, INT_MAX).map_err(|_| refuse(EXPECTED))?),
            None => (rest, 1),
        };
        if path.is_empty() || path.trim() != path || path.chars().any(char::is_control) {
            return Err(refuse(EXPECTED));
        }
        if !adds {
            self.locations.clear();
        }
        self.locations.push(Location { path: path.to_owned(), weight });
        let total: u64 = self.locations.iter().map(|location| u64::from(location.weight)).sum();
        if total > u64::from(INT_MAX) {
            return Err(refuse("a total weight of at most 2147483647"));
        }
        Ok(if adds { LocationChange::Added } else { LocationChange::Only })
    }
}

#[derive(Clone, Copy, Debug)]
enum LocationChange {
    Only,
    Added,
    Removed(usize),
}

/// Splits off the command at the beginning of `line`. Returns it with the text after it and one blank.
fn split_command(line: &str) -> Option<(&'static str, Command, &str)> {
    COMMANDS.iter().find_map(|&(name, command)| {
        let rest = line.strip_prefix(name)?;
        let value = match rest.chars().next() {
            None => "",
            Some(' ' | '\t') => &rest[1..],
            Some(_) => return None,
        };
        Some((name, command, value))
    })
}

fn whole(value: &str, max: u32) -> Result<u32, Refusal> {
    let expected = if max == INT_MAX { WHOLE_NUMBER } else { WHOLE_NUMBER_HALF };
    match value.trim().parse() {
        Ok(n) if (1..=max).contains(&n) => Ok(n),
        _ => Err((value.trim().to_owned(), expected)),
    }
}

fn size(value: &str) -> Result<(u32, u32), Refusal> {
    let refuse = || (value.trim().to_owned(), "LOW [HIGH] in bytes, LOW a whole number from 1 to 1073741823");
    let mut words = value.split_whitespace();
    let low = whole(words.next().unwrap_or_default(), HALF_INT_MAX).map_err(|_| refuse())?;
    let high = match words.next() {
        Some(word) => word.parse().ok().filter(|&high| high <= HALF_INT_MAX).ok_or_else(refuse)?,
        None => low,
    };
    if words.next().is_some() {
        return Err(refuse());
    }
    Ok((low, high.max(low)))
}

fn bias(value: &str) -> Result<Option<u8>, Refusal> {
    match value.trim().parse() {
        Ok(-1) => Ok(None),
        Ok(n @ 0..=10) => Ok(Some(n as u8)),
        Ok(i32::MIN..=i32::MAX) | Err(_) => Err((value.trim().to_owned(), BIAS)),
    }
}

/// Returns the index of the value among the `words`.
fn one_of(value: &str, expected: &'static str, words: [&str; 2]) -> Result<usize, Refusal> {
    let value = value.trim();
    words.iter().position(|&word| word == value).ok_or_else(|| (value.to_owned(), expected))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn only(text: &str) -> PostmarkConfig {
        let mut parsed = PostmarkConfig::parse(text, "t").unwrap();
        assert_eq!(parsed.runs.len(), 1);
        parsed.runs.remove(0).config
    }

    fn error(text: &str) -> String {
        PostmarkConfig::parse(text, "jobs.pmrc").unwrap_err().to_string()
    }

    #[test]
    fn every_parameter_is_read() {
        let text = "set size 1000 200000\nset number 50000\nset seed 7\nset transactions 60000\n\
             set subdirectories 3\nset read 4096\nset write 8192\nset buffering false\nset bias read -1\n\
             set bias create 10\nset report terse\nset location /mnt/a 2\nset location +b\nrun\nquit\n";
        let expected = PostmarkConfig {
            number: 50_000,
            transactions: 60_000,
            size_low: 1000,
            size_high: 200_000,
            seed: 7,
            locations: vec![
                Location { path: "/mnt/a".to_owned(), weight: 2 },
                Location { path: "b".to_owned(), weight: 1 },
            ],
            subdirectories: 3,
            read_block: 4096,
            write_block: 8192,
            buffering: false,
            bias_read: None,
            bias_create: Some(10),
            report: ReportFormat::Terse,
        };
        assert_eq!(only(text), expected);
        assert_eq!(only(&expected.to_text()), expected, "printed as parsed");
        assert_eq!(only(&PostmarkConfig::default().to_text()), PostmarkConfig::default());
    }

    #[test]
    fn an_empty_file_is_one_run_of_the_defaults() {
        let parsed = PostmarkConfig::parse("", "t").unwrap();
        assert_eq!(
            parsed.runs,
            [PlannedRun { line: None, config: PostmarkConfig::default(), location_lines: vec![] }]
        );
        assert_eq!(only("# a comment\n\n; another\n"), PostmarkConfig::default());
    }

    #[test]
    fn each_run_has_what_was_set_by_then() {
        let text = "set number 5\nrun\nset number 6\nset seed 1\nrun results.txt\nset number 7\n";
        let runs = PostmarkConfig::parse(text, "t").unwrap().runs;
        let seen: Vec<_> = runs.iter().map(|r| (r.line, r.config.number, r.config.seed)).collect();
        assert_eq!(seen, [(Some(2), 5, 42), (Some(5), 6, 1)]);
        assert_eq!(PostmarkConfig::parse("run\nquit\nset nonsense\n", "t").unwrap().runs.len(), 1);
    }

    #[test]
    fn sizes_follow_postmarks_rule() {
        let sizes = |text| {
            let c = only(text);
            (c.size_low, c.size_high)
        };
        assert_eq!(sizes("set size 100 900\n"), (100, 900));
        assert_eq!(sizes("set size 100\n"), (100, 100));
        assert_eq!(sizes("set size 100 50\n"), (100, 100));
        assert_eq!(sizes("set size  100\t900 \r\n"), (100, 900));
    }

    #[test]
    fn locations_are_replaced_added_and_removed() {
        let paths = |text| {
            let locations = only(text).locations;
            locations.into_iter().map(|l| format!("{}={}", l.path, l.weight)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(paths("set location a 3\nset location +b\nset location +a 2\n"), "a=3 b=1 a=2");
        assert_eq!(
            paths("set location a 3\nset location +b\nset location +a 2\nset location -a\n"),
            "b=1 a=2"
        );
        assert_eq!(paths("set location +b\nset location c 4\n"), "c=4");
        assert_eq!(paths("set location a b 2\n"), "a b=2");
        assert_eq!(paths("set location a\nset location -a\n"), "");
    }

    #[test]
    fn each_location_keeps_its_line() {
        let text =
            "set location x\nset location a\nset location +b\n\nset location +c\nset location -b\nrun\n";
        let run = PostmarkConfig::parse(text, "t").unwrap().runs.remove(0);
        assert_eq!(run.location_lines, [2, 5]);
        assert_eq!((run.line_of_location("c"), run.line_of_location("b")), (Some(5), None));
    }

    #[test]
    fn errors_name_file_line_field_value_and_what_is_accepted() {
        assert_eq!(
            error("set number 5\n\nset transactions abc\n"),
            "jobs.pmrc:3: set transactions: 'abc' is not accepted; \
             expected a whole number above 0 (at most 2147483647)"
        );
        assert_eq!(
            error("set bias read 11\n"),
            "jobs.pmrc:1: set bias read: '11' is not accepted; \
             expected a whole number from 0 to 10, or -1 for neither"
        );
        assert_eq!(
            error("set buffering TRUE\n"),
            "jobs.pmrc:1: set buffering: 'TRUE' is not accepted; expected true or false"
        );
        assert_eq!(
            error("run\nset number 500"),
            "jobs.pmrc:2: set number: '500' is not accepted; expected a newline at the end of the file \
             (without it PostMark drops the last character of this line)"
        );
        assert!(error("set method x\n").starts_with("jobs.pmrc:1: command: 'set method x' is not accepted"));
    }

    #[test]
    fn a_line_that_postmark_would_misread_or_skip_is_an_error() {
        for text in [
            "set size 1e3\n",
            "set size 5 6 7\n",
            "set size 5 x\n",
            "set size 1073741824\n",
            "set number 5x\n",
            "set number 0\n",
            "set number\n",
            "set number 5 6\n",
            "set seed 4294967295\n",
            "set bias create 3.7\n",
            "set bias create abc\n",
            "set report ver\n",
            "set location\n",
            "set location a x\n",
            "set location a 0\n",
            "set location  a\n",
            "set location -a\n",
            "set location a 2147483647\nset location +b\n",
            "set subdirectories 0\n",
            " set size 5\n",
            "set  size 5\n",
            "set sizes 5\n",
            "SET size 5\n",
            "runx\n",
            "exit\n",
            "run",
            "load other\n",
            "!true\n",
        ] {
            assert!(PostmarkConfig::parse(text, "t").is_err(), "{text:?} was accepted");
        }
        // The character that PostMark drops here does not matter.
        assert!(PostmarkConfig::parse("run\nquit", "t").is_ok());
        assert!(PostmarkConfig::parse("set number 500 ", "t").is_ok());
    }

    proptest! {
        #[test]
        fn no_text_panics_the_parser(text in "(?s).{0,300}") {
            let _ = PostmarkConfig::parse(&text, "t");
        }

        #[test]
        fn no_value_panics_the_parser(which in 0..COMMANDS.len(), value in "[ +\\-0-9a-z\u{e9}\t]{0,24}") {
            if let Ok(parsed) = PostmarkConfig::parse(&format!("{} {value}\nrun\n", COMMANDS[which].0), "t") {
                let config = &parsed.runs[0].config;
                prop_assert!(config.size_low >= 1 && config.size_low <= config.size_high);
                prop_assert!(config.locations.iter().all(|l| l.weight >= 1 && !l.path.is_empty()));
            }
        }
    }
}
