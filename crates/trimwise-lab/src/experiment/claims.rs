//! Claims as data: the source's statement, its basis, its role here, and whether it holds.
//!
//! An experiment measures and names its `Figures`. Its claims are in `experiments/NAME/claims.toml`, next to its
//! README; `experiments/README.md` describes the file. Only this module judges claims.
//!
//! A condition compares terms: `0.34 <= min(lazy / commit) <= 0.46`. A term consists of numbers (`5%` is 0.05), names
//! of figures, `+ - * /` with blanks around them, brackets, and the functions of `Reader::call`. Figures are lists. An
//! operation on a list applies to each of its elements, and a comparison must hold for each; a single number combines
//! with any list. `published` is the claim's own published figure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Experiment;
use super::result::{Basis, Claim, ExperimentResult, Figure, Role, Rows};
use crate::guests::RealKernel;
use crate::made::MadeBy;

#[derive(Clone, Debug, Default)]
pub(super) struct Figures(BTreeMap<String, Vec<f64>>);

impl Figures {
    /// Names a figure. An empty list does not count as a figure: claims about it are left out. A value that was not
    /// found is NaN, for which no condition holds.
    pub fn set(&mut self, name: impl Into<String>, values: impl IntoIterator<Item = f64>) {
        let values: Vec<f64> = values.into_iter().collect();
        if !values.is_empty() {
            self.0.insert(name.into(), values);
        }
    }

    pub fn push(&mut self, name: impl Into<String>, values: impl IntoIterator<Item = f64>) {
        let mut values = values.into_iter().peekable();
        if values.peek().is_some() {
            self.0.entry(name.into()).or_default().extend(values);
        }
    }
}

impl Experiment {
    /// Judges all claims.
    ///
    /// # Panics
    /// If the built-in file of claims is wrong.
    pub(super) fn judge(
        &self,
        figures: &Figures,
        rows: &impl Serialize,
        reps: u32,
        seed: u64,
    ) -> ExperimentResult {
        self.judge_on(None, figures, rows, reps, seed)
    }

    /// Judges all claims on a real kernel's figures. Some claims have another role there, and some are made only there.
    ///
    /// # Panics
    /// If the built-in file of claims is wrong.
    pub(super) fn judge_on(
        &self,
        kernel: impl Into<Option<RealKernel>>,
        figures: &Figures,
        rows: &impl Serialize,
        reps: u32,
        seed: u64,
    ) -> ExperimentResult {
        let kernel = kernel.into();
        let Self { name, question, claims, .. } = *self;
        let mut document: Document =
            toml::from_str(claims).unwrap_or_else(|e| panic!("claims of {name}: {e}"));
        document.claim.retain_mut(|entry| entry.is_made_on(kernel.is_some()));
        let (claims, untried, finding) = document.judge(figures);
        let finding = match &kernel {
            None => finding,
            Some(RealKernel { release, file_system, .. }) => {
                format!("On the {file_system} of Linux {release}, where computing takes no time: {finding}")
            }
        };
        ExperimentResult {
            experiment: name.to_owned(),
            question: question.to_owned(),
            source: document.source,
            finding,
            made_by: if self.boots() {
                MadeBy::kernels(Vec::new(), seed)
            } else {
                MadeBy::on(kernel.as_ref(), seed)
            },
            kernel,
            trimwise: trimwise::VERSION.to_owned(),
            seed,
            reps,
            rows: Rows::of(rows),
            tables: Vec::new(),
            claims,
            untried,
            command: String::new(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    source: String,
    basis: Option<Basis>,
    role: Option<Role>,
    because: Option<String>,
    /// Sentences. A sentence about a figure that was not measured is left out.
    #[serde(default)]
    finding: Vec<String>,
    #[serde(default)]
    define: BTreeMap<String, String>,
    claim: Vec<Entry>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    basis: Option<Basis>,
    role: Option<Role>,
    because: Option<String>,
    /// Role on a real kernel, if it differs. Then `because` applies only to the model.
    role_on_kernel: Option<Role>,
    #[serde(default)]
    kernel_only: bool,
    text: String,
    /// A number, several, or words, in which terms in braces are replaced as in `measured`.
    published: Option<Figure>,
    holds: Vec<String>,
    /// Text with terms in braces: `{lazy / commit:.2} of it`. If the text is a single term, the value stays a number.
    measured: String,
    /// The claim is made once for each of these values, which replace `$`.
    #[serde(default)]
    each: Vec<String>,
}

impl Entry {
    /// Returns true if the claim is made on that host, and sets its role there.
    fn is_made_on(&mut self, is_kernel: bool) -> bool {
        if let Some(role) = self.role_on_kernel.filter(|_| is_kernel) {
            self.role = Some(role);
        }
        is_kernel || !self.kernel_only
    }

    fn expanded(&self) -> Vec<Self> {
        let of = |word: &String| {
            let put = |text: &String| text.replace('$', word);
            Self {
                id: put(&self.id),
                text: put(&self.text),
                because: self.because.as_ref().map(put),
                published: self.published.as_ref().map(|figure| match figure {
                    Figure::Text(text) => Figure::Text(put(text)),
                    number => number.clone(),
                }),
                holds: self.holds.iter().map(put).collect(),
                measured: put(&self.measured),
                ..self.clone()
            }
        };
        if self.each.is_empty() { vec![self.clone()] } else { self.each.iter().map(of).collect() }
    }
}

impl Document {
    /// Returns the claims, the identifiers of those that were not tried, and the finding.
    fn judge(&self, figures: &Figures) -> (Vec<Claim>, Vec<String>, String) {
        let entries: Vec<Entry> = self.claim.iter().flat_map(Entry::expanded).collect();
        let scope = Scope { figures, define: &self.define, published: &None };
        let judge = |entry: &Entry| {
            let published = entry.published.as_ref().map(|figure| match figure {
                Figure::Text(template) => scope.figure(template),
                number => number.clone(),
            });
            Scope { published: &published, ..scope }.judge(entry, self)
        };
        let claims: Vec<Claim> = entries.iter().filter_map(judge).collect();
        let is_tried = |entry: &&Entry| claims.iter().any(|claim| claim.id == entry.id);
        let untried: Vec<String> =
            entries.iter().filter(|entry| !is_tried(entry)).map(|entry| entry.id.clone()).collect();
        let all = entries.len();
        let partial = (!untried.is_empty()).then(|| format!("Not tried: {} of {all} claims.", untried.len()));
        let said = self.finding.iter().filter_map(|sentence| scope.text(sentence).0);
        let finding: Vec<String> = said.chain([summary(&claims)]).chain(partial).collect();
        (claims, untried, finding.join(" "))
    }
}

/// Summarises how many claims are met, by role, and names the others: `Checks met 1 of 2; fitted 3 of 3.`
pub fn summary(claims: &[Claim]) -> String {
    let of_role = |(role, name): (Role, &str)| {
        let of: Vec<bool> = claims.iter().filter(|claim| claim.role == role).map(|claim| claim.met).collect();
        let met = of.iter().filter(|met| **met).count();
        match (of.len(), role) {
            (0, Role::Check) => Some("No checks".to_owned()),
            (0, _) => None,
            (all, _) => Some(format!("{name} {met} of {all}")),
        }
    };
    let roles = [(Role::Check, "Checks met"), (Role::Fitted, "fitted"), (Role::BuiltIn, "built-in")];
    let counts: Vec<String> = roles.into_iter().filter_map(of_role).collect();
    let open: Vec<&str> = claims.iter().filter(|claim| !claim.met).map(|claim| claim.id.as_str()).collect();
    let counts = counts.join("; ");
    let only: Vec<String> =
        claims.iter().filter(|claim| claim.is_met_by_tolerance()).map(tolerated).collect();
    let only = if only.is_empty() {
        String::new()
    } else {
        format!(" Met only within a tolerance: {}.", only.join(", "))
    };
    match open.len() {
        0 => format!("{counts}.{only}"),
        _ => format!("{counts}.{only} Not met: {}; the experiment's README says why.", open.join(", ")),
    }
}

/// Describes a claim that is met only by its tolerance, with its deviation.
fn tolerated(claim: &Claim) -> String {
    let off: Vec<String> = claim.deviations().iter().map(|off| format!("{:+.0} %", off * 100.0)).collect();
    let off = off.join(" and ").replace('-', "\u{2212}");
    format!("{} ({off} from the published figure)", claim.id)
}

#[derive(Debug, PartialEq)]
enum Gap {
    Missing,
    Wrong(String),
}

type Values = Result<Vec<f64>, Gap>;

#[derive(Clone, Copy)]
struct Scope<'a> {
    figures: &'a Figures,
    define: &'a BTreeMap<String, String>,
    published: &'a Option<Figure>,
}

impl Scope<'_> {
    /// Judges a claim; `None` if one of its figures was not measured.
    fn judge(&self, entry: &Entry, document: &Document) -> Option<Claim> {
        let basis = entry.basis.or(document.basis).expect("every claim has a basis");
        let role = entry.role.or(document.role).expect("every claim has a role");
        let because = entry.because.as_ref().or(document.because.as_ref());
        let because = because.filter(|_| role != Role::Check).cloned();
        debug_assert_eq!(because.is_none(), role == Role::Check, "{}", entry.id);
        let (mut met, mut failed) = (true, String::new());
        for condition in &entry.holds {
            let held = known(Reader::new(*self, condition).condition(), condition)?;
            let count = held.iter().filter(|held| **held).count();
            met &= count == held.len();
            if count < held.len() && held.len() > 1 {
                failed = format!(" (holds for {count} of {})", held.len());
            }
        }
        let mut measured = self.figure(&entry.measured);
        if let Figure::Text(text) = &mut measured {
            text.push_str(&failed);
        }
        Some(Claim {
            id: entry.id.clone(),
            text: entry.text.clone(),
            basis,
            role,
            because,
            met,
            published: self.published.clone().unwrap_or(Figure::Text("no figure".to_owned())),
            measured,
            limits: self.limits(entry),
        })
    }

    /// Returns the limits that the conditions set to the measured figure, if it is a single one: from comparisons with
    /// a number, or of its distance from the published figure.
    fn limits(self, entry: &Entry) -> Option<[Option<f64>; 2]> {
        let measured = entry.measured.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'))?;
        let value = |text: &str| match self.term(text).as_deref() {
            Ok([one]) => Some(*one),
            _ => None,
        };
        value(measured)?;
        let (mut low, mut high): (Option<f64>, Option<f64>) = (None, None);
        for condition in &entry.holds {
            let words: Vec<&str> = condition.split(' ').collect();
            let is_operator = |word: &&str| ["<", "<=", ">", ">="].contains(word);
            let parts: Vec<String> = words.split(is_operator).map(|part| part.join(" ")).collect();
            let operators: Vec<&str> = words.iter().copied().filter(|word| is_operator(word)).collect();
            for (sides, operator) in parts.windows(2).zip(operators) {
                let rises = operator.starts_with('<');
                let distance = format!("off({measured}, published)");
                if sides[0] == distance && rises {
                    let (share, published) = (value(&sides[1])?, value("published")?);
                    (low, high) = (Some(published * (1.0 - share)), Some(published * (1.0 + share)));
                } else if sides[0] == measured {
                    *(if rises { &mut high } else { &mut low }) = value(&sides[1]);
                } else if sides[1] == measured {
                    *(if rises { &mut low } else { &mut high }) = value(&sides[0]);
                }
            }
        }
        (low.is_some() || high.is_some()).then_some([low, high])
    }

    fn term(self, text: &str) -> Values {
        let mut reader = Reader::new(self, text);
        let values = reader.sum()?;
        reader.end()?;
        Ok(values)
    }

    fn figure(&self, template: &str) -> Figure {
        let alone = template.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let values = alone
            .filter(|term| !term.contains('{') && precision(term).0 == *term)
            .map(|term| known(self.term(term), term));
        match values.flatten().as_deref() {
            Some([one]) => Figure::Number(*one),
            Some(all) => Figure::Numbers(all.to_vec()),
            None => Figure::Text(self.text(template).1),
        }
    }

    /// Fills in a template. Returns it complete, if possible, and with words in place of figures that were not
    /// measured.
    fn text(&self, template: &str) -> (Option<String>, String) {
        let (mut text, mut complete, mut rest) = (String::new(), true, template);
        while let Some((before, (term, after))) =
            rest.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
        {
            let (term, sign, decimals) = precision(term);
            let shown = known(self.term(term), term).map(|values| {
                let show = |v: &f64| match (v.is_nan(), sign) {
                    (true, _) => "unknown".to_owned(),
                    (_, true) => format!("{v:+.decimals$}"),
                    (_, false) => format!("{v:.decimals$}"),
                };
                values.iter().map(show).collect::<Vec<_>>().join(", ")
            });
            complete &= shown.is_some();
            text += before;
            text += shown.as_deref().unwrap_or("none");
            rest = after;
        }
        text += rest;
        (complete.then(|| text.clone()), text)
    }
}

fn known<T>(value: Result<T, Gap>, text: &str) -> Option<T> {
    match value {
        Ok(value) => Some(value),
        Err(Gap::Missing) => None,
        Err(Gap::Wrong(why)) => panic!("claims: {text}: {why}"),
    }
}

/// Splits a term from its format, as in `x:+.1`: whether the sign is always shown, and the number of decimals.
fn precision(term: &str) -> (&str, bool, usize) {
    let parsed =
        term.rsplit_once(":.").map(|parts| (parts, false)).or(term.rsplit_once(":+.").map(|p| (p, true)));
    match parsed.and_then(|((term, decimals), sign)| Some((term, sign, decimals.parse().ok()?))) {
        Some(parsed) => parsed,
        None => (term, false, 2),
    }
}

fn least(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }
}

/// Combines two lists element by element; a single number combines with each.
fn paired<T>(a: &[f64], b: &[f64], of: impl Fn(f64, f64) -> T) -> Result<Vec<T>, Gap> {
    let count = a.len().max(b.len());
    if [a, b].iter().any(|list| list.len() != 1 && list.len() != count) {
        return Err(Gap::Missing);
    }
    Ok((0..count).map(|i| of(a[i.min(a.len() - 1)], b[i.min(b.len() - 1)])).collect())
}

struct Reader<'a> {
    scope: Scope<'a>,
    words: Vec<String>,
    at: usize,
}

impl<'a> Reader<'a> {
    fn new(scope: Scope<'a>, text: &str) -> Self {
        let apart = text.replace('(', " ( ").replace(')', " ) ").replace(',', " , ");
        Self { scope, words: apart.split_whitespace().map(str::to_owned).collect(), at: 0 }
    }

    fn next_if(&mut self, words: &[&str]) -> Option<String> {
        let word = self.words.get(self.at).filter(|word| words.contains(&word.as_str()))?.clone();
        self.at += 1;
        Some(word)
    }

    fn end(&self) -> Result<(), Gap> {
        self.words.get(self.at).map_or(Ok(()), |word| Err(Gap::Wrong(format!("unexpected '{word}'"))))
    }

    fn condition(&mut self) -> Result<Vec<bool>, Gap> {
        let mut left = self.sum()?;
        let mut held: Vec<f64> = vec![1.0];
        let mut compared = false;
        while let Some(operator) = self.next_if(&["<", "<=", ">", ">=", "=="]) {
            let right = self.sum()?;
            let holds = paired(&left, &right, |a, b| {
                f64::from(u8::from(match operator.as_str() {
                    "<" => a < b,
                    "<=" => a <= b,
                    ">" => a > b,
                    ">=" => a >= b,
                    _ => a == b,
                }))
            })?;
            held = paired(&held, &holds, |a, b| a * b)?;
            (left, compared) = (right, true);
        }
        self.end()?;
        if !compared {
            return Err(Gap::Wrong("nothing is compared".to_owned()));
        }
        Ok(held.into_iter().map(|held| held > 0.0).collect())
    }

    fn sum(&mut self) -> Values {
        let mut sum = self.product()?;
        while let Some(operator) = self.next_if(&["+", "-"]) {
            let sign = if operator == "+" { 1.0 } else { -1.0 };
            sum = paired(&sum, &self.product()?, |a, b| a + sign * b)?;
        }
        Ok(sum)
    }

    fn product(&mut self) -> Values {
        let mut product = self.atom()?;
        while let Some(operator) = self.next_if(&["*", "/"]) {
            let times = operator == "*";
            product = paired(&product, &self.atom()?, |a, b| if times { a * b } else { a / b })?;
        }
        Ok(product)
    }

    fn atom(&mut self) -> Values {
        let Some(word) = self.words.get(self.at).cloned() else {
            return Err(Gap::Wrong("it ends too early".to_owned()));
        };
        self.at += 1;
        if word == "(" {
            let inner = self.sum()?;
            return self
                .next_if(&[")"])
                .map(|_| inner)
                .ok_or(Gap::Wrong("a bracket is not closed".to_owned()));
        }
        if self.next_if(&["("]).is_some() {
            let mut arguments = vec![self.sum()?];
            while self.next_if(&[","]).is_some() {
                arguments.push(self.sum()?);
            }
            let value = Self::call(&word, &arguments)?;
            return self
                .next_if(&[")"])
                .map(|_| value)
                .ok_or(Gap::Wrong("a bracket is not closed".to_owned()));
        }
        let (digits, unit) = word.strip_suffix('%').map_or((word.as_str(), 1.0), |digits| (digits, 0.01));
        if let Ok(number) = digits.parse::<f64>() {
            return Ok(vec![number * unit]);
        }
        match (self.scope.figures.0.get(&word), self.scope.define.get(&word), self.scope.published) {
            (_, _, Some(Figure::Number(number))) if word == "published" => Ok(vec![*number]),
            (_, _, Some(Figure::Numbers(numbers))) if word == "published" => Ok(numbers.clone()),
            (Some(values), ..) => Ok(values.clone()),
            (None, Some(term), _) => self.scope.term(term),
            (None, None, _) => Err(Gap::Missing),
        }
    }

    /// Calls a function. `list(a, b)` joins; `min` and `max` work on one list, or element by element on two; `steps`
    /// returns the differences of neighbours; `off(a, b)` is the relative distance of a from b, zero if both are 0.
    fn call(name: &str, arguments: &[Vec<f64>]) -> Values {
        let value = match (name, arguments) {
            ("list", all) => all.concat(),
            ("min", [list]) => vec![list.iter().copied().fold(f64::INFINITY, least)],
            ("max", [list]) => vec![-list.iter().map(|value| -value).fold(f64::INFINITY, least)],
            ("min", [a, b]) => paired(a, b, least)?,
            ("max", [a, b]) => paired(a, b, |a, b| -least(-a, -b))?,
            ("mean", [list]) => vec![list.iter().sum::<f64>() / list.len() as f64],
            ("abs", [list]) => list.iter().map(|value| value.abs()).collect(),
            ("steps", [list]) => list.windows(2).map(|pair| pair[1] - pair[0]).collect(),
            ("off", [a, b]) => paired(a, b, |a, b| if a == b { 0.0 } else { (a / b - 1.0).abs() })?,
            _ => {
                let what = format!("unknown function '{name}' of {} arguments", arguments.len());
                return Err(Gap::Wrong(what));
            }
        };
        if value.is_empty() { Err(Gap::Missing) } else { Ok(value) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Figures {
        let mut figures = Figures::default();
        figures.set("commit", [8.0, 4.0, 2.0]);
        figures.set("lazy+reuse", [2.0, 2.0, 3.0]);
        figures.set("set:40:90", Some(0.5));
        figures.set("nothing", None);
        figures
    }

    fn judged(entry: &str) -> Option<Claim> {
        let head = "source = 's'\ndefine.ratio = 'lazy+reuse / commit'\n[[claim]]\nid = 'a'\ntext = 't'\nbasis = 'drawn'\n\
                    role = 'check'\n";
        let document: Document = toml::from_str(&format!("{head}{entry}")).unwrap();
        document.judge(&figures()).0.pop()
    }

    #[test]
    fn conditions_are_computed_element_by_element() {
        for (condition, met) in [
            ("commit > 1", true),
            ("commit > 2", false),
            ("2 <= commit <= 8", true),
            ("3 <= commit <= 8", false),
            ("2 <= commit <= 7", false),
            ("lazy+reuse < commit", false),
            ("min(ratio) == 25%", true),
            ("max(commit) / (min(commit) + 2) * 2 - 1 == 3", true),
            ("steps(commit) < 0", true),
            ("off(set:40:90, published) <= 10%", true),
            ("off(0, 0) == 0", true),
            ("off(1, 0) <= 1", false),
            ("max(commit, 3) == list(8, 4, 3)", true),
            ("abs(0 - mean(commit)) >= 4.6", true),
            ("max(list(1, 0 / 0)) > 0", false),
        ] {
            let claim = judged(&format!("published = 0.54\nholds = ['{condition}']\nmeasured = '{{ratio}}'"));
            assert_eq!(claim.unwrap().met, met, "{condition}");
        }
    }

    #[test]
    fn a_published_figure_may_be_one_of_the_experiment() {
        let claim =
            judged("published = '{set:40:90}'\nholds = ['off(max(ratio), published) <= 0']\nmeasured = ''");
        assert_eq!(claim.unwrap().published, Figure::Number(0.5));
        let claim =
            judged("published = '{nothing}'\nholds = ['off(max(ratio), published) <= 1']\nmeasured = ''");
        assert!(claim.is_none(), "it is not in the register");
        let entry = "each = ['set:40:90']\npublished = '{$}'\nholds = ['max(commit) / 16 == published']\nmeasured = ''";
        assert!(judged(entry).unwrap().met);
    }

    #[test]
    fn measured_is_a_number_or_words_and_says_for_how_many_it_holds() {
        let measured = |template: &str| {
            judged(&format!("holds = ['lazy+reuse < commit']\nmeasured = '{template}'")).unwrap().measured
        };
        assert_eq!(measured("{set:40:90}"), Figure::Number(0.5));
        assert_eq!(measured("{commit}"), Figure::Numbers(vec![8.0, 4.0, 2.0]));
        let text = "at most 8.00 s, +50.0 %, none (holds for 2 of 3)".to_owned();
        assert_eq!(
            measured("at most {max(commit)} s, {100 * set:40:90:+.1} %, {nothing}"),
            Figure::Text(text)
        );
    }

    #[test]
    fn limits_are_those_of_the_measured_figure_and_a_distant_one_is_met_only_by_them() {
        let claim = |holds: &str| {
            let entry = format!("published = 5.0\nholds = ['{holds}']\nmeasured = '{{set:40:90}}'");
            judged(&entry).unwrap()
        };
        for (holds, limits) in [
            ("set:40:90 <= 7", Some([None, Some(7.0)])),
            ("0.2 <= set:40:90 < 7", Some([Some(0.2), Some(7.0)])),
            ("7 > set:40:90", Some([None, Some(7.0)])),
            ("off(set:40:90, published) <= 95%", Some([Some(0.25), Some(9.75)])),
            ("commit > 1", None),
        ] {
            let claim = claim(holds);
            let near =
                |a: Option<f64>, b: Option<f64>| a.zip(b).map_or(a == b, |(a, b)| (a - b).abs() < 1e-9);
            let is_same = match (claim.limits, limits) {
                (Some(found), Some(limits)) => near(found[0], limits[0]) && near(found[1], limits[1]),
                (found, limits) => found == limits,
            };
            assert!(is_same && claim.met, "{holds}: {:?}", claim.limits);
            assert!(claim.is_met_by_tolerance(), "a tenth of the published figure");
            let said = summary(&[claim]);
            assert_eq!(
                said,
                "Checks met 1 of 1. Met only within a tolerance: a (\u{2212}90 % from the published figure)."
            );
        }
        let exact = judged("published = 0.51\nholds = ['set:40:90 <= 7']\nmeasured = '{set:40:90}'").unwrap();
        assert!(!exact.is_met_by_tolerance() && !exact.deviations().is_empty());
    }

    #[test]
    fn what_was_not_measured_is_left_out_and_each_makes_several() {
        assert!(judged("holds = ['commit > 1', 'nothing > 1']\nmeasured = ''").is_none());
        assert!(judged("holds = ['commit > list(1, 2)']\nmeasured = ''").is_none(), "of other runs");
        let last = judged("each = ['8', '9']\nholds = ['max(commit) >= $']\nmeasured = '$'").unwrap();
        assert_eq!((last.met, last.measured), (false, Figure::Text("9".to_owned())));
    }

    #[test]
    fn a_summary_counts_each_role_by_itself() {
        let claim = |role, met| Claim { role, met, ..judged("holds = ['1 > 0']\nmeasured = ''").unwrap() };
        let checks = [claim(Role::Check, true), claim(Role::Check, false)];
        let others = [claim(Role::Fitted, true), claim(Role::Fitted, true), claim(Role::BuiltIn, true)];
        assert_eq!(
            summary(&[&checks[..], &others].concat()),
            "Checks met 1 of 2; fitted 2 of 2; built-in 1 of 1. Not met: a; the experiment's README says why."
        );
        assert_eq!(summary(&others[2..]), "No checks; built-in 1 of 1.");
    }

    #[test]
    fn what_is_wrong_is_told_from_what_is_missing() {
        let (figures, define) = (figures(), BTreeMap::new());
        let scope = Scope { figures: &figures, define: &define, published: &None };
        for wrong in
            ["commit", "commit > ", "(commit > 1", "most(commit) > 1", "commit > 1 2", "min(commit > 1"]
        {
            let found = Reader::new(scope, wrong).condition();
            assert!(matches!(found, Err(Gap::Wrong(_))), "{wrong}: {found:?}");
        }
        assert_eq!(Reader::new(scope, "nothing > 1").condition(), Err(Gap::Missing));
    }
}
