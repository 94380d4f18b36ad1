//! `published`: the register of measurements (`profiles/measured`) next to the model, entry by entry.
//!
//! `place` says which figure of the model an entry has next to it, or why it has none; `runs` measures the figures.
//! What an entry is worth (a check, fitted) is in the claims.

pub mod place;
mod runs;

use std::collections::BTreeMap;

use serde::Serialize;
use trimwise::drives::measured::{self, Class, Comparable, Measurement, Unit, What};
use trimwise::failure::Failure;
use trimwise::numbers::{change, significant, time};
use trimwise::profile::Profile;
use trimwise::units::Bytes;

use super::claims::Figures;
use super::result::{Claim, ExperimentResult, Role};
use super::{Experiment, Host, Request};
use crate::plot::Table;
use place::Why;
pub use runs::Run;

/// The experiment; only what is drawn at random differs between repetitions, so there is one.
pub static EXPERIMENT: Experiment = Experiment {
    name: "published",
    question: "How close is the model to what others measured of real drives?",
    reps: 1,
    claims: include_str!("../../../../../experiments/published/claims.toml"),
    host: Host::Model,
    run,
};

/// A map of 16 GiB, the largest drive that is run.
const MEMORY: Bytes = Bytes::mib(512);

fn run(request: &Request) -> Result<ExperimentResult, Failure> {
    let runs = runs();
    let figures = request.spread_in(MEMORY, runs.len(), 1, |i, step| {
        runs[i].figures(request.seed).inspect(|_| step()).map_err(Failure::run)
    })?;
    Ok(evaluate(figures.concat(), request.seed))
}

/// Share of a published effect below which the model counts as having none.
const EFFECT_MIN: f64 = 0.01;

/// Drives that have a profile made of public specifications.
fn profiles() -> Vec<Profile> {
    Profile::published().expect("the profiles are built in")
}

pub fn runs() -> Vec<Run> {
    runs::all(&measured::all(), profiles())
}

/// An entry of the register, or a variant of the drive, next to the model.
#[derive(Clone, Debug, Serialize)]
struct Row {
    figure: String,
    drive: String,
    note: &'static str,
    what: What,
    class: Class,
    published: f64,
    unit: Unit,
    model: f64,
    /// The model has the effect, in the published direction.
    right_sign: bool,
    /// False for variants of the drive, of which the first counts for the entry.
    counts: bool,
}

/// Entries without a counterpart.
#[derive(Clone, Debug, Serialize)]
struct Excused {
    what: What,
    why: Why,
    entries: usize,
}

#[derive(Clone, Debug, Serialize)]
struct Rows {
    entries: usize,
    compared: Vec<Row>,
    excused: Vec<Excused>,
}

/// Returns the figure of an entry in its unit; of a range the middle, of a rate the time of one.
fn published(one: &Measurement, all: &[Measurement]) -> (f64, Unit) {
    let [low, high] = Comparable::TrimCommand.of(one, all).unwrap_or_else(|| one.ends());
    let unit = if one.what == What::DiscardRate { Unit::Seconds } else { one.what.unit() };
    (f64::midpoint(low, high), unit)
}

impl Rows {
    /// Places every entry. Those whose runs are not among `figures` are left out.
    fn of(register: &[Measurement], model: &BTreeMap<String, f64>) -> Self {
        let drives: Vec<String> = profiles().into_iter().map(|profile| profile.name).collect();
        let mut rows = Self { entries: register.len(), compared: Vec::new(), excused: Vec::new() };
        for one in register {
            let counterparts = match place::counterparts(one, &drives) {
                Ok(counterparts) => counterparts,
                Err(why) => {
                    match rows.excused.iter_mut().find(|e| (e.what, e.why) == (one.what, why)) {
                        Some(excused) => excused.entries += 1,
                        None => rows.excused.push(Excused { what: one.what, why, entries: 1 }),
                    }
                    continue;
                }
            };
            let (published, unit) = published(one, register);
            // A rest is compared with the dirty drive.
            let dirty = |m: &&Measurement| m.drive == one.drive && m.what == What::DirtyOverClean;
            let slug = place::slug(&one.drive);
            let neutral = match one.what {
                What::AfterRestOverClean => [
                    register.iter().find(dirty).map_or(1.0, |dirty| dirty.value),
                    model.get(&format!("dirty-{slug}")).copied().unwrap_or(1.0),
                ],
                _ if unit == Unit::Ratio => [1.0; 2],
                _ => [0.0; 2],
            };
            for (i, (figure, note)) in counterparts.into_iter().enumerate() {
                let Some(&model) = model.get(&figure) else { continue };
                rows.compared.push(Row {
                    drive: one.drive.clone(),
                    note,
                    what: one.what,
                    class: one.class(),
                    published,
                    unit,
                    model,
                    right_sign: (model - neutral[1]) / (published - neutral[0]) > EFFECT_MIN,
                    counts: i == 0,
                    figure,
                });
            }
        }
        rows.excused.sort_by_key(|e| (What::ALL.iter().position(|what| *what == e.what), e.why as usize));
        rows
    }
}

/// Judges the claims on these figures of the model.
pub fn evaluate(model: Vec<(String, f64)>, seed: u64) -> ExperimentResult {
    let model: BTreeMap<String, f64> = model.into_iter().collect();
    let rows = Rows::of(&measured::all(), &model);
    let mut figures = Figures::default();
    for row in &rows.compared {
        figures.set(format!("register.{}", row.figure), [row.published]);
        figures.set(row.figure.clone(), [row.model]);
    }
    let entries = rows.compared.iter().filter(|row| row.counts);
    figures.set("signs", entries.map(|row| f64::from(u8::from(row.right_sign))));
    let mut result = EXPERIMENT.judge(&figures, &rows, 1, seed);
    let judged = Judged { rows: &rows, claims: &result.claims };
    let (head, tables) = (judged.head(), judged.tables());
    result.finding = format!("{head} {}", result.finding);
    result.tables = tables;
    result
}

/// Rows with the claims about them.
struct Judged<'a> {
    rows: &'a Rows,
    claims: &'a [Claim],
}

/// How many of some entries are near what was published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    all: usize,
    near: usize,
    right_sign: usize,
}

impl Judged<'_> {
    fn claim(&self, row: &Row) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.id.strip_prefix("published-") == Some(&row.figure))
    }

    fn count(&self, is_it: impl Fn(&Row, Role) -> bool) -> Count {
        let mut count = Count::default();
        for row in self.rows.compared.iter().filter(|row| row.counts) {
            let Some(claim) = self.claim(row).filter(|claim| is_it(row, claim.role)) else { continue };
            count.all += 1;
            count.near += usize::from(claim.met);
            count.right_sign += usize::from(row.right_sign);
        }
        count
    }

    fn head(&self) -> String {
        let checks = self.count(|_, role| role == Role::Check);
        let fitted = self.count(|_, role| role == Role::Fitted);
        let of_class = |class: Class| {
            let count = self.count(|row, role| role == Role::Check && row.class == class);
            (count.all > 0).then(|| format!("{} {} of {}", class.name(), count.near, count.all))
        };
        let by_class: Vec<String> = Class::ALL.into_iter().filter_map(of_class).collect();
        let share = if checks.all == 0 { 0.0 } else { 100.0 * checks.near as f64 / checks.all as f64 };
        format!(
            "Of {} checks {} are within 25 % ({share:.0} %; 70 % was the aim), and {} have the published sign. By \
             class: {}. Of {} fitted entries {} are within 25 %. {} of {} entries have no counterpart.",
            checks.all,
            checks.near,
            checks.right_sign,
            by_class.join("; "),
            fitted.all,
            fitted.near,
            self.rows.excused.iter().map(|excused| excused.entries).sum::<usize>(),
            self.rows.entries,
        )
    }

    fn tables(&self) -> Vec<Table> {
        let of_kind = |what: What| {
            // A rate is shown as the time of one.
            let kind = |row: &Row| if row.what == What::DiscardRate { What::TrimLatency } else { row.what };
            let rows = self.rows.compared.iter().filter(|row| kind(row) == what);
            let rows: Vec<[String; 6]> = rows.map(|row| self.line(row)).collect();
            let header = ["", "role", "published", "model", "off by", "within 25 %"];
            (!rows.is_empty()).then(|| Table::new(what.words(), header, rows))
        };
        let classes = Class::ALL.into_iter().filter_map(|class| {
            let checks = self.count(|row, role| row.class == class && role == Role::Check);
            let fitted = self.count(|row, role| row.class == class && role == Role::Fitted);
            let figures = [checks.all, checks.near, checks.right_sign, fitted.all, fitted.near];
            let [a, b, c, d, e] = figures.map(|n| n.to_string());
            (checks.all + fitted.all > 0).then(|| [class.name().to_owned(), a, b, c, d, e])
        });
        let by_class = Table::new(
            "Entries by class",
            ["", "checks", "within 25 %", "published sign", "fitted", "fitted within 25 %"],
            classes.collect(),
        );
        let excused = self
            .rows
            .excused
            .iter()
            .map(|e| [e.what.words().to_owned(), e.why.words().to_owned(), e.entries.to_string()]);
        let excused = Table::new("Entries without a counterpart", ["", "why", "entries"], excused.collect());
        What::ALL.into_iter().filter_map(of_kind).chain([by_class, excused]).collect()
    }

    fn line(&self, row: &Row) -> [String; 6] {
        let figure = |value: f64| match row.unit {
            Unit::Seconds if value > 0.0 => time(value),
            Unit::SecondsPerGib => format!("{}/GiB", time(value)),
            _ => significant(value),
        };
        let drive =
            if row.note.is_empty() { row.drive.clone() } else { format!("{}: {}", row.drive, row.note) };
        let claim = self.claim(row);
        let near = |claim: &Claim| if claim.met { "yes" } else { "no" };
        [
            drive,
            claim.map_or("", |claim| claim.role.words()).to_owned(),
            figure(row.published),
            figure(row.model),
            change(row.model / row.published - 1.0),
            claim.map_or("", near).to_owned(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The model's figures, if each were this many times what was published.
    fn fabricated(times: f64) -> Vec<(String, f64)> {
        let register = measured::all();
        let drives: Vec<String> = profiles().into_iter().map(|profile| profile.name).collect();
        let figures = register.iter().flat_map(|one| {
            let (value, _) = published(one, &register);
            let all = place::counterparts(one, &drives).unwrap_or_default();
            all.into_iter().map(move |(figure, _)| (figure, times * value))
        });
        figures.collect()
    }

    #[test]
    fn every_entry_has_a_counterpart_or_a_reason() {
        let rows = Rows::of(&measured::all(), &fabricated(1.0).into_iter().collect());
        let compared = rows.compared.iter().filter(|row| row.counts).count();
        assert_eq!((rows.entries, compared, rows.compared.len()), (193, 31, 36));
        let of = |why: Why| rows.excused.iter().filter(|e| e.why == why).map(|e| e.entries).sum::<usize>();
        let expected = [
            (Why::Bound, 9),
            (Why::Unnamed, 21),
            (Why::NoProfile, 25),
            (Why::Given, 88),
            (Why::Host, 10),
            (Why::Secure, 2),
            (Why::Ranges, 3),
            (Why::NotSaid, 3),
            (Why::NoFlash, 1),
        ];
        assert_eq!(Why::ALL.map(|why| (why, of(why))), expected);
        assert_eq!(compared + expected.iter().map(|(_, count)| count).sum::<usize>(), rows.entries);
    }

    #[test]
    fn a_range_counts_with_its_middle_and_a_rate_with_the_time_of_one() {
        let of: BTreeMap<String, f64> = fabricated(1.0).into_iter().collect();
        assert_eq!((of["wa-trims"], of["trim-fio-396"]), (0.55, 1.0 / 5613.0));
        assert_eq!(of["trim-aws-i3"], f64::midpoint(1.0 / 7550.0, 1.0 / 5490.0));
        assert_eq!((of["whole-p4510"], of["whole-p4510-full"]), (0.004_957, 0.004_842));
        assert_eq!((of["spare-iodrive-100"], of["spare-iodrive-150"]), (2.635, 1.731));
    }

    #[test]
    fn a_drive_is_as_full_as_the_register_says() {
        let full = |drive: &str| {
            runs().into_iter().find_map(|run| match run {
                Run::Writes(profile, full) if profile.name == drive => Some(full),
                _ => None,
            })
        };
        assert_eq!(["Samsung 970 EVO 2TB", "Crucial P1 1TB"].map(full), [Some(100), Some(80)]);
    }

    #[test]
    fn rates_and_latencies_share_a_table_in_seconds() {
        let result = evaluate(fabricated(1.1), 1);
        let table = result.tables.iter().find(|table| table.title == "Time of a TRIM").unwrap();
        let row = table.rows.iter().find(|row| row[0].contains("fio issue 396")).unwrap();
        assert_eq!(row[1..], ["fitted", "178.2 µs", "196.0 µs", "+10.0 %", "yes"]);
        assert!(!result.tables.iter().any(|table| table.title == What::DiscardRate.words()));
        let classes = result.tables.iter().find(|table| table.title == "Entries by class").unwrap();
        assert_eq!(classes.rows[0], ["NVMe, DRAM", "10", "10", "10", "0", "0"]);
        let excused = result.tables.last().unwrap();
        assert_eq!(excused.rows[0], ["Time of a TRIM", "the drive is not named", "2"]);
    }

    #[test]
    fn each_entry_has_one_claim_with_the_figure_of_the_register() {
        let figures = fabricated(1.0);
        let result = evaluate(figures.clone(), 1);
        assert_eq!((result.claims.len(), &result.untried), (figures.len() + 1, &Vec::new()));
        assert!(result.claims.iter().all(|claim| claim.met), "{}", result.finding);
        for (figure, published) in figures {
            let of_it: Vec<&Claim> =
                result.claims.iter().filter(|claim| claim.id == format!("published-{figure}")).collect();
            let [claim] = of_it[..] else { panic!("{figure}: {of_it:?}") };
            assert_eq!(claim.published, super::super::result::Figure::Number(published), "{figure}");
        }
    }

    #[test]
    fn a_figure_a_quarter_off_is_near_and_one_beyond_is_not() {
        let met = |times: f64| {
            let result = evaluate(fabricated(times), 1);
            let of_entries = result.claims.into_iter().filter(|claim| claim.id != "published-sign");
            of_entries.filter(|claim| claim.met).count()
        };
        assert_eq!([1.24, 1.26, 0.76, 0.74].map(met), [36, 0, 36, 0]);
    }

    #[test]
    fn the_head_counts_checks_by_class_and_names_what_has_another_sign() {
        let mut figures = fabricated(1.0);
        for (figure, model) in &mut figures {
            match figure.as_str() {
                "stall-rc100" => *model *= 0.009,
                // Faster when dirty, so that a rest makes it slower.
                "dirty-crucial-p1-1tb" => *model = 1.5,
                // A variant does not count.
                "spare-intel-710-random" => *model = 0.5,
                _ => {}
            }
        }
        let result = evaluate(figures, 1);
        let head = "Of 25 checks 23 are within 25 % (92 %; 70 % was the aim), and 22 have the published sign. By class: \
                    NVMe, DRAM 9 of 10; NVMe, HMB 0 of 1; NVMe, map? 6 of 6; SATA 5 of 5; unknown 3 of 3. Of 6 fitted \
                    entries 6 are within 25 %. 162 of 193 entries have no counterpart.";
        assert!(result.finding.starts_with(head), "{}", result.finding);
        let sign = result.claims.iter().find(|claim| claim.id == "published-sign").unwrap();
        assert!(!sign.met, "{sign:?}");
    }
}
