//! Parameters of another simulator's file. Each is used, known to have no counterpart, or reported as unknown.

use std::borrow::Cow;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use roxmltree::{Document, Node};
use trimwise::failure::{Failure, Mistake, Mistakes};

use super::Unused;

/// Gives each closing tag the name of the tag that it closes: MQSim reads its files with rapidxml, which does not
/// compare them. Other mistakes are left for the parser.
pub(super) fn with_matching_tags(text: &str) -> Cow<'_, str> {
    if Document::parse(text).is_ok() {
        return text.into();
    }
    let (mut done, mut rest, mut open) = (String::new(), text, Vec::new());
    while let Some(at) = rest.find('<') {
        done += &rest[..at];
        rest = &rest[at..];
        let skipped = [("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>"), ("<!", ">")];
        let end = skipped.iter().find(|(begins, _)| rest.starts_with(begins)).map_or(">", |(_, end)| end);
        let Some(end) = rest.find(end).map(|at| at + end.len()) else { break };
        let tag = &rest[..end];
        rest = &rest[end..];
        if tag.starts_with("</") {
            let own = tag[2..tag.len() - 1].trim();
            done += &format!("</{}>", open.pop().unwrap_or(own));
            continue;
        }
        if end_of_name(tag) > 1 && !tag.ends_with("/>") {
            open.push(&tag[1..end_of_name(tag)]);
        }
        done += tag;
    }
    (done + rest).into()
}

/// Returns the length of `<name`; 1 for what is no opening tag.
fn end_of_name(tag: &str) -> usize {
    let is_of_name = |c: char| c.is_alphanumeric() || "_-.:".contains(c);
    tag[1..].find(|c| !is_of_name(c)).map_or(tag.len(), |end| end + 1)
}

/// Parses the text of an XML file of this name. The error is one line.
pub(super) fn parsed<'a>(text: &'a str, file: &str) -> Result<Document<'a>, Failure> {
    Document::parse(text.trim_start_matches('\u{feff}')).map_err(|error| {
        let error = error.to_string().replace(char::is_control, "\u{fffd}");
        Mistake::of("import", file).because(format!("as XML: {error}")).fail()
    })
}

#[derive(Debug)]
pub(super) struct Parameter {
    pub name: String,
    pub value: String,
    pub line: usize,
}

impl Parameter {
    /// Makes a parameter of an XML element with text.
    pub fn of(element: Node) -> Self {
        Self {
            name: element.tag_name().name().to_owned(),
            value: element.text().unwrap_or_default().trim().to_owned(),
            line: element.document().text_pos_at(element.range().start).row as usize,
        }
    }
}

/// The parameters of a file, and the mistakes in them.
#[derive(Debug)]
pub(super) struct Foreign<'a> {
    file: &'a str,
    parameters: Vec<(Parameter, bool)>,
    /// Parameters that the file lacks, so that the simulator's default applies.
    pub missing: Vec<String>,
    problems: Mistakes,
}

impl<'a> Foreign<'a> {
    pub fn new(file: &'a str, parameters: Vec<Parameter>) -> Self {
        let parameters = parameters.into_iter().map(|parameter| (parameter, false)).collect();
        Self { file, parameters, missing: Vec::new(), problems: Mistakes::default() }
    }

    /// Returns a parameter's text. The last of several counts, as in all three simulators.
    fn text(&mut self, name: &str) -> Option<(usize, String)> {
        let mut found = None;
        for (parameter, used) in self.parameters.iter_mut().filter(|(parameter, _)| parameter.name == name) {
            *used = true;
            found = Some((parameter.line, parameter.value.clone()));
        }
        found
    }

    pub fn has(&self, name: &str) -> bool {
        self.parameters.iter().any(|(parameter, _)| parameter.name == name)
    }

    /// Returns a required text.
    pub fn string(&mut self, name: &str) -> String {
        let found = self.text(name);
        if found.is_none() {
            self.missing(name);
        }
        found.map(|(_, text)| text.escape_default().to_string()).unwrap_or_default()
    }

    pub fn wrong(&mut self, line: usize, name: &str, value: &str, expected: impl Display) {
        let why = format!("{name}: '{}' is not accepted", value.escape_default());
        self.problems.0.push(Mistake::that(why).expected(expected.to_string()).at(self.file, Some(line)));
    }

    fn missing(&mut self, name: &str) {
        self.problems.0.push(Mistake::that(format!("{name} is missing")).at(self.file, None));
    }

    /// Returns a number. On a mistake it is the least one; [`Self::finish`] reports the mistake.
    pub fn number<T: FromStr + Display + Copy + PartialOrd>(
        &mut self,
        name: &str,
        accepted: RangeInclusive<T>,
    ) -> T {
        let found = self.number_if(name, accepted.clone());
        found.unwrap_or_else(|| {
            if !self.has(name) {
                self.missing(name);
            }
            *accepted.start()
        })
    }

    /// Returns a number, or the simulator's default if it is missing.
    pub fn number_or<T: FromStr + Display + Copy + PartialOrd>(
        &mut self,
        name: &str,
        usual: T,
        accepted: RangeInclusive<T>,
    ) -> T {
        if !self.has(name) {
            self.missing.push(name.to_owned());
        }
        self.number_if(name, accepted).unwrap_or(usual)
    }

    /// Returns an optional number.
    pub fn number_if<T: FromStr + Display + Copy + PartialOrd>(
        &mut self,
        name: &str,
        accepted: RangeInclusive<T>,
    ) -> Option<T> {
        let (line, text) = self.text(name)?;
        let found = text.parse().ok().filter(|number| accepted.contains(number));
        if found.is_none() {
            self.wrong(
                line,
                name,
                &text,
                format!("a number from {} to {}", accepted.start(), accepted.end()),
            );
        }
        found
    }

    /// Returns the meaning of a word. If it is missing or wrong, that of the first word.
    pub fn word<T: Copy>(&mut self, name: &str, words: &[(&str, T)]) -> T {
        if !self.has(name) {
            self.missing(name);
        }
        self.word_if(name, words).unwrap_or(words[0].1)
    }

    /// Returns the meaning of a word, or the simulator's default if it is missing.
    pub fn word_or<T: Copy>(&mut self, name: &str, usual: T, words: &[(&str, T)]) -> T {
        if !self.has(name) {
            self.missing.push(name.to_owned());
        }
        self.word_if(name, words).unwrap_or(usual)
    }

    fn word_if<T: Copy>(&mut self, name: &str, words: &[(&str, T)]) -> Option<T> {
        let (line, text) = self.text(name)?;
        let found = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(&text));
        if found.is_none() {
            let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.wrong(line, name, &text, all.join(", "));
        }
        found.map(|(_, meaning)| *meaning)
    }

    /// Returns the product of the factors whose letters occur in a parameter, which may be missing.
    pub fn letters(&mut self, name: &str, factors: &[(char, u64)]) -> u64 {
        let Some((line, text)) = self.text(name) else { return 1 };
        let text = text.to_ascii_uppercase();
        if let Some(other) = text.chars().find(|c| !factors.iter().any(|(letter, _)| letter == c)) {
            let all: String = factors.iter().map(|(letter, _)| letter).collect();
            self.wrong(line, name, &other.to_string(), format!("letters of {all}"));
        }
        factors.iter().filter(|(letter, _)| text.contains(*letter)).map(|(_, factor)| factor).product()
    }

    /// Ends the reading; the error lists every mistake. `known` has parameters without a counterpart and the reason. A
    /// name that ends in `*` covers all parameters that begin like it.
    pub fn finish(mut self, known: &[(&str, &'static str)]) -> Result<Vec<Unused>, Failure> {
        self.problems.end()?;
        let because = |name: &str| {
            let is_meant = |known: &str| match known.strip_suffix('*') {
                Some(beginning) => name.starts_with(beginning),
                None => name == known,
            };
            known.iter().find(|(known, _)| is_meant(known)).map_or("not known here", |(_, because)| because)
        };
        let unused = self.parameters.into_iter().filter(|(_, used)| !used);
        Ok(unused
            .map(|(Parameter { name, value, .. }, _)| Unused {
                because: because(&name),
                parameter: name,
                value,
            })
            .collect())
    }
}
