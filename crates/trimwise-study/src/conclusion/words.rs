//! The words of a conclusion: at most five lines of 80 columns.

use trimwise::compare::judge::{Found, Judgement, LIFE_PERCENT, LIFE_YEARS, TIME_PERCENT};
use trimwise::compare::means::Means;
use trimwise::compare::result::{Cell, Measure, Target};
use trimwise::compare::sensitivity::Sensitivity;
use trimwise::numbers::two_digits;
use trimwise::policy::{BatchConfig, PolicyId, PolicySpec, Trimmer};
use trimwise::units::{Bytes, Utilization};
use trimwise_linux::code::Code;
use trimwise_linux::doctor::{Aim, Diagnosis, Finding, Lender, Purpose};
use trimwise_linux::today::own_discard;

use super::steps::Steps;
use super::{Conclusion, Decision, Unsure, Worth, class, depends};
use crate::command_text::quoted;
use crate::compare::Comparison;
use crate::compare::here::Here;
use crate::defaults;

/// The model's file system.
const MODELLED: &str = "ext4";

pub(super) fn head(
    comparison: &Comparison,
    judged: &Judgement,
    sensitivity: Option<&Sensitivity>,
    steps: &Steps,
) -> Vec<String> {
    let Judgement { decision, today, policy, found } = judged;
    let here = comparison.here.as_ref();
    let measure = comparison.cells.first().map(Cell::measure).unwrap_or_default();
    let name = |policy: &PolicyId| match here {
        Some(here) => way_on(here.file_system(), policy),
        None => format!("`{policy}`"),
    };
    let base = today.as_ref().map_or_else(|| "what it does today".to_owned(), name);
    let chosen = policy.as_ref().map_or_else(String::new, name);
    let is_untrimmed = *today == Some(PolicyId::OFF);
    let by = by_model(here.is_some_and(|here| here.is_as_ext4(&comparison.settings.target)));
    let loan = here.and_then(Here::loan);
    let first = match (decision, here) {
        (Decision::Keep, Some(here)) => {
            format!("Keep {} as it is{by} ({}).", here.mount(), here.today_sentence())
        }
        (Decision::DoesNotMatter, Some(here)) if is_untrimmed => {
            let runs = match by {
                "" => "These runs show no cost of that, nor of trimming it",
                _ => "ext4's model shows no cost of that, nor of trimming",
            };
            format!("Nothing trims {} today. {runs}.", here.mount())
        }
        (Decision::DoesNotMatter, Some(here)) => format!(
            "It does not matter how {} is trimmed{by}. Keep it as it is ({}).",
            here.mount(),
            here.today_sentence()
        ),
        (Decision::Change, Some(here)) => {
            format!("Change {}: {chosen} instead of {base}{by}.", here.mount())
        }
        (Decision::Untrimmed, Some(here)) if let Some((aim, _)) = loan => {
            format!("Trim {}: nothing gives its {} back today. {chosen} does.", here.mount(), lent(aim))
        }
        (Decision::Untrimmed, Some(here)) => {
            format!("Nothing trims {} today. Trim it: {chosen} is enough{by}.", here.mount())
        }
        (Decision::CannotTell, Some(here)) if matches!(found, Found::Depends(_)) => format!(
            "It depends on the drive of {}. Keep it as it is for now ({}).",
            here.mount(),
            here.today_sentence()
        ),
        (Decision::CannotTell, Some(here)) => cannot_tell(here),
        (Decision::Keep, None) => format!("Keep {base}: nothing available on a host is better."),
        (Decision::DoesNotMatter, None) => {
            format!("It does not matter: nothing available on a host differs materially from {base}.")
        }
        (Decision::Change, None) => format!("Use {chosen} rather than {base}."),
        (Decision::Untrimmed, None) => {
            let way = policy.as_ref().map_or_else(String::new, way);
            let way = if way == chosen { way } else { format!("{chosen} ({way})") };
            match found.worth().and_then(|worth| worth.excess_bytes) {
                Some(_) => format!("Trim it: nothing else gives the space back. {way} does."),
                None if sensitivity.is_some() => format!("Trim it: {way} is enough."),
                None => format!("Trim it; it hardly matters how. {way} is enough."),
            }
        }
        (Decision::CannotTell, None) if matches!(found, Found::Depends(_)) => {
            "It depends on the drive, on numbers that are not known well enough.".to_owned()
        }
        (Decision::CannotTell, None) => "Cannot tell yet.".to_owned(),
    };
    let second = match found {
        Found::Shown(_, worth) if let (Decision::Untrimmed, Some((_, words))) = (decision, loan) => {
            format!("That decides here, whatever the drive gains: {words}. {}", cost_of(measure, worth))
        }
        Found::Shown(_, worth)
            if let (Decision::Untrimmed, Some([off, held])) = (decision, worth.excess_bytes) =>
        {
            let [off, held] = [off, held].map(|bytes| Bytes(bytes as u64));
            format!(
                "On average {held} stay held beyond what is used, and {off} without TRIM. {}",
                cost_of(measure, worth)
            )
        }
        Found::Shown(_, worth) if *decision == Decision::Untrimmed => {
            let less = worth.life_times.map_or(0.0, |times| (1.0 - 1.0 / times) * 100.0);
            let anyway = match worth.life_years {
                Some([before, _]) if before >= LIFE_YEARS => outlasts(worth),
                _ => String::new(),
            };
            format!(
                "It costs no noticeable {}, and {} less is written to the flash{anyway}.",
                measured(measure),
                percent(less)
            )
        }
        Found::Shown(_, worth) if *decision == Decision::Change => sentence(&gain(measure, worth)),
        Found::Shown(other, worth) => sentence(&format!("{} would {}", name(other), loss(measure, worth))),
        Found::NotBetter(other, worth) => {
            let most = worth.time_saved_percent_interval.map_or(0.0, |[low, high]| low.min(high));
            let more = shift(measure, most.min(0.0));
            sentence(&format!("nothing else is better; {} may need {more}{}", name(other), life(worth)))
        }
        Found::Alike(worth) => sentence(&alike(worth)),
        Found::Depends(_) => {
            sensitivity.map_or_else(String::new, |found| depends::turns(found, &base, &name))
        }
        Found::TodayDidNotRun => match here {
            Some(_) => "Its policy today is not among those that ran.".to_owned(),
            None => format!("`{}` did not run.", comparison.settings.baseline),
        },
        Found::NothingElse => format!("Of the policies that ran, only {base} is available on a host."),
        Found::BaselineIsNowhere => {
            format!("{base}, which the others are compared with, is not available on a host.")
        }
        Found::Wide(policy, worth) => {
            let range = match worth.time_saved_percent_interval {
                None => "one run of each gives no confidence interval".to_owned(),
                Some([low, high]) if low < 0.0 && high > 0.0 => {
                    format!("between {} more and {} less {}", percent(low), percent(high), measured(measure))
                }
                Some(_) => format!("perhaps {}{}", shift(measure, worth.time_saved_percent), any_life(worth)),
            };
            sentence(&format!("{}: {range}", name(policy)))
        }
    };
    let mut lines = vec![first, second];
    if found.worth().is_some() {
        let within = sensitivity.filter(|found| found.holds).and_then(depends::within).unwrap_or_default();
        lines.push(format!("{}.{within}", evidence(comparison)));
    }
    lines.push(match (steps.commands.is_empty(), steps.is_empty()) {
        (true, false) => "The rest is manual; see below.".to_owned(),
        (false, _) => {
            "The commands below touch this mount only; `advise --apply` carries them out.".to_owned()
        }
        (true, true)
            if *decision == Decision::DoesNotMatter
                && here.is_some()
                && is_untrimmed
                && ran_weekly(comparison) =>
        {
            "A weekly trim is one command: `systemctl enable --now fstrim.timer`, with systemd.".to_owned()
        }
        (true, true) => surer(comparison, judged, sensitivity),
    });
    lines
}

fn cost_of(measure: Measure, worth: &Worth) -> String {
    match worth.time_is_shown && worth.time_saved_percent < 0.0 {
        true => sentence(&format!("it would {}", loss(measure, worth))),
        false => format!("It costs no {} that is shown.", measured(measure)),
    }
}

fn ran_weekly(comparison: &Comparison) -> bool {
    comparison.cells.iter().any(|cell| cell.policy == "batch:1w".into())
}

/// What to say where nothing can be concluded from all of the runs.
pub(super) fn unsure(comparison: &Comparison, why: &Unsure) -> Vec<String> {
    let first = comparison.here.as_ref().map_or_else(|| "Cannot tell yet.".to_owned(), cannot_tell);
    match why {
        Unsure::Partial | Unsure::NoRuns => vec![
            first,
            "It was stopped or failed; too few runs finished for a conclusion.".to_owned(),
            "Run it again to the end (the command below).".to_owned(),
        ],
        Unsure::DrivesDiffer(found) => {
            let more = if found.len() > 3 { ", ..." } else { "" };
            vec![
                format!("It depends on the drive: {}{more}.", found[..found.len().min(3)].join(", ")),
                format!("{}.", evidence(comparison)),
                "Each drive has its own verdict below.".to_owned(),
            ]
        }
    }
}

/// The conclusion that holds on several drives: without the figures, which are those of the first.
pub(super) fn on_all(head: Vec<String>, drives: usize) -> Vec<String> {
    let is_kept = |line: &String| !line.starts_with("Not on a stock host: ");
    let mut lines: Vec<String> = head.into_iter().filter(is_kept).collect();
    if let Some(second) = lines.get_mut(1) {
        *second = format!("That holds on each of the {drives} drives; each has its figures below.");
    }
    lines
}

const LINES_MAX: usize = 5;

/// Inserts what a policy that no host can have as it is would gain over the chosen one, before the last line, as fully as
/// there is room for.
pub(super) fn add_beyond(
    lines: &mut Vec<String>,
    (policy, means): (&PolicyId, Means),
    measure: Measure,
    worth: &Worth,
) {
    let needs = means.words();
    let saved = worth.time_saved_percent;
    let (gain, interval) = match saved >= TIME_PERCENT {
        true => (format!("{} than that", shift(measure, saved)), interval(worth)),
        false => {
            let times = worth.life_times.unwrap_or(1.0);
            (format!("{} times the flash life of that", two_digits(times)), String::new())
        }
    };
    let forms = [
        format!("Not on a stock host: `{policy}` ({needs}) would bring {gain}{interval}."),
        format!("Not on a stock host: `{policy}` ({needs}) would bring {gain}."),
        format!("Not on a stock host: `{policy}` would bring {gain}."),
        format!("Not on a stock host: {needs} would bring {gain}."),
    ];
    let wrapped = |line: &String| line.chars().count().div_ceil(78);
    let room = LINES_MAX.saturating_sub(lines.iter().map(wrapped).sum());
    if let Some(line) = forms.into_iter().find(|line| wrapped(line) <= room) {
        lines.insert(lines.len().saturating_sub(1), line);
    }
}

/// The first line where nothing can be concluded.
pub(super) fn cannot_tell(here: &Here) -> String {
    if let Some((aim, _)) = here.loan() {
        let (mount, lent) = (here.mount(), lent(aim));
        return format!("Trim {mount}: nothing gives its {lent} back today. Which way is best is open.");
    }
    format!("Cannot tell yet. Keep {} as it is ({}).", here.mount(), here.today_sentence())
}

pub(super) const FREED_NOTHING: &str = "The workload freed no committed space, so there was nothing to trim.";
pub(super) const REMOVED_TOO_SOON: &str = "PostMark removed its files before they reached the drive (ext4 commits after 5 s), so nothing was freed there.";
pub(super) const MORE_TRANSACTIONS: &str =
    "Give it more transactions (`set transactions`), so that a run takes at least twice as long as that.";
pub(super) const RECORD_FREES: &str =
    "For that, record a trace with frees: `trimwise record` on a host, or `trimwise kernel run --trace`.";
pub(super) const FREE_SOMETHING: &str = "A file that is removed before it reaches the drive frees nothing there: run longer, or \
                                         choose work that removes older files (--workload).";

/// What TRIM would be worth where something stops it.
pub(super) fn if_it_passed(passed: &Conclusion) -> Vec<String> {
    let (second, rest) = match &passed.head[..] {
        [_, second, rest @ ..] => (second, rest),
        _ => return Vec::new(),
    };
    let what = match (passed.decision, &passed.policy) {
        (Decision::Change | Decision::Untrimmed, Some(policy)) => {
            format!("If it did, {} would help.", way(policy))
        }
        (Decision::DoesNotMatter | Decision::Keep, _) => "If it did, it would not help.".to_owned(),
        _ => "Whether it would help is not shown.".to_owned(),
    };
    let evidence = rest.iter().find(|line| line.starts_with("Evidence: "));
    [format!("{what} {second}")].into_iter().chain(evidence.cloned()).collect()
}

/// Notes that "no fault was found" would contradict.
const REMARKS: [Code; 3] = [Code::LimitTiny, Code::DriveTrimReported, Code::ScsiOtherMode];

/// Sums up the doctor's findings, and what the model says about the drive's class.
pub(super) fn of_diagnosis(
    one: &Diagnosis,
    class: Option<&Conclusion>,
    lost: Option<&Purpose>,
) -> Vec<String> {
    let point = one.mount_point.display();
    let quoted = quoted(&point.to_string());
    let today = one.today.sentence();
    let mut wrongs = one.findings.iter().filter(|finding| finding.wrong);
    if let (Some(doubt), None) = (one.doubt(), one.forbidden()) {
        let first = format!("Before anything trims {point}, see {}: this kernel may harm it.", doubt.place);
        return vec![first, doubt.mend.as_deref().map_or_else(String::new, sentence)];
    }
    let is_all = |finding: &Finding| finding.code == Code::NothingComesBack;
    if let (Some(lost), true) = (lost, wrongs.clone().all(is_all)) {
        return of_loan(one, lost);
    }
    if let Some(wrong) = one.forbidden().or(wrongs.next()) {
        let place = &wrong.place;
        let first = match one.passes {
            _ if wrong.code == Code::Failed => {
                format!("{point} failed (`{place}`): do not trim it before it has been checked.")
            }
            _ if wrong.code == Code::Ext4Errors => {
                format!("Do not trim {point} before it has been checked: ext4 has recorded errors in it.")
            }
            _ if wrong.code.forbids_trim() => format!("Do not trim {point} on this kernel; see {place}."),
            _ if wrong.code == Code::PoolNearlyFull => format!("The pool below {point} runs full ({today})."),
            _ if wrong.code == Code::ScsiOtherMode => format!("{place} may refuse TRIM of {point}."),
            Some(false) if let Some(loan) = reached_loan(one) => {
                let given = if one.today.is_trimmed() { "gives back" } else { "could give back" };
                format!("{point} {given} {}; its drive gets nothing: TRIM stops at {place}.", loan.words())
            }
            Some(false) => format!("TRIM of {point} does not reach its drive. It stops at {place}."),
            Some(true) if one.layers.iter().any(|layer| layer.name == wrong.place) => {
                format!("TRIM of {point} does not reach all of its drives; see {place}.")
            }
            _ if lost.is_some() => {
                let point = format!("Trim {point}: nothing gives its space back today, and");
                format!("{point} it is set up so that nothing trims it.")
            }
            _ => format!("{point} is set up so that nothing trims it."),
        };
        let shut_out = one.purposes.iter().find(|one| one.lender.is_some() && one.is_reached == Some(false));
        let shut_out = shut_out.map(|loan| format!("So nothing comes back of the {}.", loan.words()));
        let remedy = wrong.mend.as_ref().filter(|mend| !mend.is_empty());
        let remedy = remedy.map(|mend| match wrong.commands.is_empty() {
            true => format!("Remedy: {mend}."),
            false => format!("Remedy: {mend}. `trimwise doctor {quoted}` prints the commands."),
        });
        return [first].into_iter().chain(shut_out).chain(remedy).collect();
    }
    if one.is_host_s {
        return vec![format!("What trims {point} is up to this container's host, and was not checked.")];
    }
    if one.findings.iter().any(|finding| finding.code == Code::ReadOnly) {
        return vec![format!("{point} is mounted read-only: there is nothing to trim.")];
    }
    if let (Some(false), Some(loan)) = (one.passes, reached_loan(one)) {
        return vec![
            format!("{point} offers back what it frees ({today})."),
            format!("That is what TRIM is for here: {}. Its drive gets nothing of it.", loan.words()),
        ];
    }
    if let (Some(false), Some(stop)) = (one.passes, one.findings.iter().find(|finding| finding.nothing_helps))
    {
        return vec![format!("TRIM of {point} stops at {}: {}.", stop.place, stop.what)];
    }
    let reached = |one: &&Purpose| one.is_reached == Some(true);
    let sync = one.findings.iter().find(|finding| finding.code == Code::BtrfsSyncDiscard);
    if let Some(sync) = sync {
        return vec![
            format!(
                "Each commit of {point} waits for its discards ({today}). `discard=async` does not wait."
            ),
            sentence(&sync.what),
        ];
    }
    if class.is_none()
        && let Some(loan) = one.purposes.iter().filter(reached).find(|one| one.lender.is_some())
    {
        let coarse = one.findings.iter().any(|finding| finding.code == Code::GranularityTooCoarse);
        let except = if coarse { ", except small pieces; see above" } else { "" };
        let unseen = match loan.lender {
            Some(Lender::Outside) => " Whether it comes back there cannot be seen from here.",
            _ => "",
        };
        return vec![
            format!("{point} offers back what it frees ({today}){except}."),
            format!("That is what TRIM is for here: {}.{unseen}", loan.words()),
        ];
    }
    let Some((class, [_, found, ..])) = class.map(|class| (class, &class.head[..])) else {
        let passes = match one.passes {
            Some(true) => "TRIM passes",
            Some(false) => "TRIM does not pass",
            None => "Whether TRIM passes was not checked",
        };
        let has_remarks = one.findings.iter().any(|finding| REMARKS.contains(&finding.code));
        let fault = match one.passes {
            Some(_) if has_remarks => " See the remarks above.",
            Some(_) => " No fault was found.",
            None => "",
        };
        return vec![
            format!("{point}: {today}. {passes}.{fault}"),
            format!("Not compared with the alternatives yet: `trimwise advise --here {quoted}`."),
        ];
    };
    let by = by_model(one.fs_type != MODELLED);
    let first = match (class.decision, &class.policy) {
        (Decision::DoesNotMatter, Some(today)) if *today == PolicyId::OFF => {
            format!("Nothing trims {point} today; trimming it should cost nothing{by}.")
        }
        (Decision::DoesNotMatter, _) => format!("It should not matter how {point} is trimmed{by} ({today})."),
        (Decision::Change, Some(policy)) => {
            format!("No fault was found, but {} may be better for {point}{by} ({today}).", way(policy))
        }
        (Decision::Untrimmed, Some(policy)) => {
            let command = match policy.spec().and_then(PolicySpec::batch).map(BatchConfig::hours) {
                _ if one.today.is_spared() => " (its line in /etc/fstab forbids fstrim.timer)",
                Some(168) => " (with systemd: `systemctl enable --now fstrim.timer`)",
                _ => "",
            };
            format!("Nothing trims {point} today. Trim it: {} is enough{by}{command}.", way(policy))
        }
        (Decision::Keep, _) => format!("{point} is trimmed well, as far as is known{by} ({today})."),
        _ => format!("No fault was found. Whether another way is better for {point} is open ({today})."),
    };
    let file_system = match &*one.fs_type {
        "ext4" => format!("ext4 of Linux {}", class::LINUX),
        other => format!("ext4 for {other}"),
    };
    let begin = found.chars().next().map_or_else(String::new, |letter| letter.to_lowercase().collect());
    let found: String = begin.chars().chain(found.chars().skip(1)).collect();
    let full = Utilization::default();
    let is_harmless = class.decision == Decision::Untrimmed;
    let held = class.sensitivity.as_ref().filter(|found| found.holds && !is_harmless);
    // The line must stay short.
    let within: String = held
        .map_or_else(Vec::new, depends::tried)
        .iter()
        .take(1)
        .map(|part| format!(" Same advice with {part}."))
        .collect();
    // One command, which does no harm, needs no run first.
    let surer = match class.decision {
        Decision::Untrimmed => String::new(),
        _ if !within.is_empty() => String::new(),
        _ => format!(" To be surer: `trimwise compare --here {quoted}`."),
    };
    let mut lines = vec![
        first,
        format!(
            "On a model of such drives, not this one ({file_system}, {full} % full, office days), {found}{within}{surer}"
        ),
    ];
    if let Some(loan) = one.purposes.iter().filter(reached).find(|one| one.lender.is_some()) {
        lines.push(format!("That weighs the drive alone. Trimming also gives back {}.", loan.words()));
    }
    lines
}

/// What is lent, if a discard reaches the lender.
fn reached_loan(one: &Diagnosis) -> Option<&Purpose> {
    one.purposes.iter().find(|purpose| purpose.lender.is_some() && purpose.is_reached == Some(true))
}

/// Says that what was lent does not come back.
fn of_loan(one: &Diagnosis, lost: &Purpose) -> Vec<String> {
    let point = one.mount_point.display();
    let could = lost.could_free().map_or_else(String::new, |bytes| format!("; about {bytes} could be"));
    let mend = one.findings.iter().find(|finding| finding.code == Code::NothingComesBack);
    let mend = mend.and_then(|finding| finding.mend.as_ref()).map_or_else(String::new, |mend| sentence(mend));
    let unseen = match lost.lender {
        Some(Lender::Outside) => " How much it still holds cannot be seen from here.",
        _ => "",
    };
    let lines = [
        format!("Trim {point}: nothing gives its {} back today{could}.", lent(lost.aim)),
        format!("That decides here, whatever the drive gains: {}.{unseen}", lost.words()),
        mend,
    ];
    lines.into_iter().filter(|line| !line.is_empty()).collect()
}

/// The purpose that decides on a file system: what is lent, if nothing gives it back or there is nothing else.
pub(super) fn deciding(one: &Diagnosis, lost: Option<&Purpose>) -> Option<Aim> {
    let reached = |purpose: &&Purpose| purpose.is_reached == Some(true);
    let flash = one.purposes.iter().filter(reached).find(|one| one.aim == Aim::Flash);
    Some(lost.or(flash).or(one.purposes.iter().find(reached))?.aim)
}

fn lent(aim: Aim) -> &'static str {
    if aim == Aim::Memory { "memory" } else { "space" }
}

/// Says that a verdict on another file system is that of ext4's model.
fn by_model(is_other: bool) -> &'static str {
    if is_other { ", by ext4's model" } else { "" }
}

/// Names a policy as an owner of such a file system knows it.
fn way_on(file_system: &str, policy: &PolicyId) -> String {
    match file_system {
        _ if *policy == PolicyId::Named("async".into()) => way(&own_discard("btrfs")),
        "btrfs" if *policy == PolicyId::COMMIT => "mount option `discard=sync`".to_owned(),
        _ => way(policy),
    }
}

/// Names a policy as its owner knows it.
pub fn way(policy: &PolicyId) -> String {
    let Some(trimmer) = policy.known() else { return format!("`{policy}`") };
    match trimmer {
        Trimmer::Kernel(spec) if let Some(limit) = spec.limit() => {
            format!("{} with deletions limited (`{limit}`)", way(&spec.without_limit().into()))
        }
        Trimmer::Kernel(spec) if spec == PolicySpec::OFF => "no TRIM".to_owned(),
        Trimmer::Kernel(spec) if spec == PolicySpec::COMMIT => "mount option `discard`".to_owned(),
        Trimmer::Daemon(spec) if spec == PolicySpec::JUDICIOUS => "trimwised".to_owned(),
        Trimmer::Daemon(spec) => format!("trimwised with `{spec}`"),
        Trimmer::Block(_) => format!("`{policy}` below the file system"),
        Trimmer::Kernel(spec) => match spec.batch().map(BatchConfig::hours) {
            Some(1) => "fstrim every hour".to_owned(),
            Some(24) => "fstrim once a day".to_owned(),
            Some(168) => "fstrim once a week".to_owned(),
            Some(hours) if hours > 0 => format!("fstrim every {hours} h"),
            _ if spec.to_string() == "btrfs" => "mount option `discard=async`".to_owned(),
            _ => format!("`{policy}`"),
        },
    }
}

/// Capitalises the beginning of a sentence.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect::<String>() + ".")
}

fn percent(percent: f64) -> String {
    format!("{} %", two_digits(percent))
}

/// Waiting in a day.
fn waiting(seconds: f64) -> String {
    match seconds.abs() {
        s if s >= 5400.0 => format!("{} h", two_digits(s / 3600.0)),
        s if s >= 120.0 => format!("{} min", two_digits(s / 60.0)),
        s if s >= 0.1 => format!("{} s", two_digits(s)),
        _ => "less than 0.1 s".to_owned(),
    }
}

/// The measure in a word.
fn measured(measure: Measure) -> &'static str {
    match measure {
        Measure::Total => "time",
        Measure::Waiting => "waiting",
        _ => "latency",
    }
}

/// A difference in the measure, such as "5 % less time".
fn shift(measure: Measure, saved_percent: f64) -> String {
    let how = if saved_percent > 0.0 { "less" } else { "more" };
    format!("{} {how} {}", percent(saved_percent), measured(measure))
}

fn interval(worth: &Worth) -> String {
    let Some([low, high]) = worth.time_saved_percent_interval else { return String::new() };
    let (low, high) = if low.abs() <= high.abs() { (low, high) } else { (high, low) };
    let [low, high] = [low, high].map(|end| (end.signum(), two_digits(end)));
    if low == high || low.0 != high.0 {
        return String::new();
    }
    format!(" ({} to {} %)", low.1, high.1)
}

/// The share as it stands in brackets, which are not nested.
fn flat(share: &str) -> String {
    share.trim_end_matches(')').replace(" (", ", ")
}

fn gain(measure: Measure, worth: &Worth) -> String {
    let share = format!("{}{}", shift(measure, worth.time_saved_percent), interval(worth));
    let saved = match worth.waiting_saved_s_per_day {
        _ if !worth.time_is_shown => format!("no difference in {} is shown", measured(measure)),
        Some(s) if s > 0.0 => format!("it saves {} of waiting a day ({})", waiting(s), flat(&share)),
        Some(_) => "it costs no noticeable waiting".to_owned(),
        None if worth.time_saved_percent > TIME_PERCENT => format!("this work needs {share}"),
        None => format!("the {} is the same within {TIME_PERCENT} %", measured(measure)),
    };
    format!("{saved}{}", life(worth))
}

fn loss(measure: Measure, worth: &Worth) -> String {
    let share = format!("{}{}", shift(measure, worth.time_saved_percent), interval(worth));
    let cost = match worth.waiting_saved_s_per_day {
        _ if !worth.time_is_shown => format!("make no difference in {} that is shown", measured(measure)),
        Some(s) if s <= 0.0 => format!("cost {} of waiting a day ({})", waiting(s), flat(&share)),
        Some(s) => format!("save {} of waiting a day ({})", waiting(s), flat(&share)),
        None => format!("need {share}"),
    };
    format!("{cost}{}", life(worth))
}

fn years(years: f64) -> String {
    match years {
        years if years < 1.0 => format!("{} months", two_digits(years * 12.0)),
        years => format!("{} years", two_digits(years)),
    }
}

/// The gain or loss of the flash's life; empty if none is shown.
fn life(worth: &Worth) -> String {
    let is_long = worth.life_years.is_some_and(|[before, after]| before.min(after) >= LIFE_YEARS);
    if worth.life_is_shown || is_long { any_life(worth) } else { String::new() }
}

/// The gain or loss of the flash's life, shown or not; empty if there is none.
fn any_life(worth: &Worth) -> String {
    match (worth.life_years, worth.life_times) {
        (Some([before, after]), _) if before.min(after) >= LIFE_YEARS => outlasts(worth),
        (_, Some(times)) if (times - 1.0).abs() * 100.0 <= LIFE_PERCENT => String::new(),
        (Some([before, after]), _) => {
            format!("; the flash lasts {}, not {}{}", years(after), years(before), assumed(worth))
        }
        (None, Some(times)) if times > 1.0 => {
            format!("; the flash lasts {} times as long", two_digits(times))
        }
        (None, Some(times)) => format!("; the flash wears {} times as fast", two_digits(1.0 / times)),
        (None, None) => String::new(),
    }
}

fn outlasts(worth: &Worth) -> String {
    format!("; the flash outlasts {LIFE_YEARS} years anyway{}", assumed(worth))
}

/// Marks years that rest on assumed cycles.
fn assumed(worth: &Worth) -> &'static str {
    if worth.life_is_assumed { " (assumed)" } else { "" }
}

fn alike(worth: &Worth) -> String {
    let most = match worth.waiting_saved_s_per_day {
        Some(s) if s.abs() < 0.1 => format!("the choices differ by {} of waiting a day", waiting(s)),
        Some(s) => format!("the choices differ by {} of waiting a day at most", waiting(s)),
        None => format!("the choices differ by {} at most", percent(worth.time_saved_percent)),
    };
    format!("{most}{}", life(worth))
}

/// The evidence for the conclusion.
fn evidence(comparison: &Comparison) -> String {
    let settings = &comparison.settings;
    let over = match settings.days {
        Some(1) => " over a day".to_owned(),
        Some(days) => format!(" over {days} days"),
        None => String::new(),
    };
    let times = match settings.reps {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        reps => format!("{reps} times"),
    };
    let how = match (&settings.target, &comparison.here) {
        (Target::Directory(_), _) => format!("run {times} on this directory"),
        (Target::Kernel(_), here) => {
            let on = here.as_ref().map_or("a modelled drive", Here::evidence);
            let fs = settings
                .kernel
                .as_ref()
                .map_or(String::new(), |kernel| format!("{} of Linux {}", kernel.file_system, kernel.name));
            format!("run {times} on {} and {on}", if fs.is_empty() { "a real kernel" } else { &fs })
        }
        (Target::Model, Some(here)) => {
            // The line must stay short.
            let how = match here.file_system() == MODELLED {
                true => format!("simulated {times}"),
                false => format!("{times} as {MODELLED}"),
            };
            format!("{how} on {}", here.evidence())
        }
        (Target::Model, None) => format!("simulated {times} on the modelled drive"),
    };
    let is_without_timer = settings.days.is_none() && comparison.here.as_ref().is_some_and(Here::has_timer);
    let more = match &comparison.check {
        Some(check) if !check.compared.is_empty() => ", checked on a real kernel",
        _ if is_without_timer => ", its timer aside",
        _ => "",
    };
    format!("Evidence: `{}`{over}, {how}{more}", settings.workload)
}

/// What would make the conclusion more certain.
fn surer(comparison: &Comparison, judged: &Judgement, sensitivity: Option<&Sensitivity>) -> String {
    let settings = &comparison.settings;
    match (&judged.found, &comparison.here) {
        (Found::TodayDidNotRun, here) => {
            let today = here.as_ref().and_then(|here| here.today(settings.days.is_some()));
            let today = today.map_or("that one".to_owned(), |today| format!("`{today}`"));
            format!("Run `trimwise compare` with {today} among its --policy.")
        }
        (Found::BaselineIsNowhere, _) => {
            "Add `off` to --policy: the others are then compared with it.".to_owned()
        }
        (Found::NothingElse, _) => {
            "Leave --policy out, or add what is available on a host (--policy off, commit).".to_owned()
        }
        (Found::Depends(_), here) => depends::measure(sensitivity, here.as_ref()),
        (Found::Wide(..), _) => {
            format!("To be surer: more runs (--reps {}), or longer ones.", (settings.reps * 3).max(6))
        }
        (_, Some(_)) if settings.workload == defaults::WORKLOAD_HERE => {
            "To be surer: your own workload (--workload; see `trimwise workloads`).".to_owned()
        }
        // No kernel replays a trace.
        (_, Some(_)) if matches!(settings.target, Target::Kernel(_)) => {
            "To be surer: your own work as a fio job (--workload job:FILE.fio).".to_owned()
        }
        (_, Some(here)) => here.surer(),
        (_, None) if judged.decision.is_change() => {
            "For your own host, with the commands: `trimwise advise --here PATH`.".to_owned()
        }
        (_, None) => "For your own host: `trimwise advise --here PATH`.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Worth = Worth {
        waiting_saved_s_per_day: None,
        time_saved_percent: 0.0,
        time_saved_percent_interval: None,
        time_is_shown: true,
        life_times: None,
        life_is_shown: true,
        life_years: None,
        life_is_assumed: false,
        excess_bytes: None,
    };

    #[test]
    fn times_change_their_unit_where_the_number_would_grow_long() {
        for (seconds, text) in [
            (5400.0, "1.5 h"),
            (5399.0, "90 min"),
            (120.0, "2 min"),
            (119.0, "119 s"),
            (-119.0, "119 s"),
            (0.1, "0.10 s"),
            (0.09, "less than 0.1 s"),
        ] {
            assert_eq!(waiting(seconds), text, "{seconds}");
        }
        for (time, text) in [(0.5, "6 months"), (0.99, "12 months"), (1.0, "1 years"), (20.0, "20 years")] {
            assert_eq!(years(time), text, "{time}");
        }
    }

    #[test]
    fn a_policy_is_named_as_its_owner_knows_it() {
        for (policy, name) in [
            ("off", "no TRIM"),
            ("commit", "mount option `discard`"),
            ("trimwised", "trimwised"),
            ("trimwised:lazy", "trimwised with `lazy`"),
            ("batch:1d", "fstrim once a day"),
            ("batch:1w", "fstrim once a week"),
            ("batch:2h", "fstrim every 2 h"),
            ("batch:10m", "`batch:10m`"),
            ("btrfs", "mount option `discard=async`"),
            ("f2fs", "`f2fs`"),
            ("commit+rocksdb:64MiB/s", "mount option `discard` with deletions limited (`rocksdb:64MiB/s`)"),
        ] {
            assert_eq!(way(&policy.into()), name, "{policy}");
        }
        for (fs, policy, name) in [
            ("btrfs", "commit", "mount option `discard=sync`"),
            ("ext4", "commit", "mount option `discard`"),
            ("btrfs", "off", "no TRIM"),
        ] {
            assert_eq!(way_on(fs, &policy.into()), name, "{policy} on {fs}");
        }
        assert_eq!(way_on("btrfs", &crate::conclusion::async_discard()), "mount option `discard=async`");
    }

    #[test]
    fn an_interval_is_said_if_both_ends_are_on_one_side_and_differ() {
        for (ends, text) in [
            (Some([10.0, 20.0]), " (10 to 20 %)"),
            (Some([-20.0, -10.0]), " (10 to 20 %)"),
            (Some([-10.0, 20.0]), ""),
            (Some([10.01, 10.02]), ""),
            (None, ""),
        ] {
            assert_eq!(interval(&Worth { time_saved_percent_interval: ends, ..NOTHING }), text, "{ends:?}");
        }
    }

    #[test]
    fn what_the_flash_gains_or_loses_is_said_if_its_host_may_live_to_see_it() {
        for (times, years, text) in [
            (None, None, ""),
            (Some(1.049), None, ""),
            (Some(1.06), None, "; the flash lasts 1.1 times as long"),
            (Some(0.951), None, ""),
            (Some(0.5), None, "; the flash wears 2 times as fast"),
            (Some(2.0), Some([15.0, 30.0]), "; the flash outlasts 15 years anyway"),
            (Some(2.0), Some([14.0, 28.0]), "; the flash lasts 28 years, not 14 years"),
            (Some(0.5), Some([28.0, 14.0]), "; the flash lasts 14 years, not 28 years"),
            (Some(1.01), Some([10.0, 10.1]), ""),
        ] {
            let worth = Worth { life_times: times, life_years: years, ..NOTHING };
            assert_eq!(life(&worth), text, "{times:?} {years:?}");
        }
        let assumed =
            Worth { life_years: Some([14.0, 28.0]), life_times: Some(2.0), life_is_assumed: true, ..NOTHING };
        assert_eq!(life(&assumed), "; the flash lasts 28 years, not 14 years (assumed)");
    }

    #[test]
    fn gains_and_losses_are_said_in_the_measure_that_is_felt() {
        let of = |waiting, percent| Worth {
            waiting_saved_s_per_day: waiting,
            time_saved_percent: percent,
            ..NOTHING
        };
        for (measure, worth, text) in [
            (Measure::Waiting, of(Some(60.0), 30.0), "it saves 60 s of waiting a day (30 % less waiting)"),
            (Measure::Waiting, of(Some(0.0), 0.0), "it costs no noticeable waiting"),
            (Measure::Waiting, of(Some(-1.0), -1.0), "it costs no noticeable waiting"),
            (Measure::Total, of(None, 2.1), "this work needs 2.1 % less time"),
            (Measure::Total, of(None, 2.0), "the time is the same within 2 %"),
        ] {
            assert_eq!(gain(measure, &worth), text);
        }
        for (measure, worth, text) in [
            (Measure::Waiting, of(Some(-60.0), -30.0), "cost 60 s of waiting a day (30 % more waiting)"),
            (
                Measure::Waiting,
                of(Some(0.0), 0.0),
                "cost less than 0.1 s of waiting a day (0 % more waiting)",
            ),
            (Measure::Waiting, of(Some(60.0), 30.0), "save 60 s of waiting a day (30 % less waiting)"),
            (Measure::Total, of(None, -30.0), "need 30 % more time"),
        ] {
            assert_eq!(loss(measure, &worth), text);
        }
        assert_eq!(alike(&of(Some(3.0), 1.0)), "the choices differ by 3 s of waiting a day at most");
        assert_eq!(alike(&of(None, 1.0)), "the choices differ by 1 % at most");
    }

    /// A saving whose interval holds zero is none.
    #[test]
    fn regression_what_is_not_shown_is_not_said() {
        let worth = Worth {
            waiting_saved_s_per_day: Some(60.0),
            time_saved_percent: 30.0,
            life_times: Some(2.0),
            ..NOTHING
        };
        let hidden = Worth { time_is_shown: false, ..worth };
        let life = "; the flash lasts 2 times as long";
        assert_eq!(gain(Measure::Waiting, &hidden), format!("no difference in waiting is shown{life}"));
        assert_eq!(loss(Measure::Total, &hidden), format!("make no difference in time that is shown{life}"));
        let chance = Worth { life_is_shown: false, ..worth };
        assert_eq!(gain(Measure::Waiting, &chance), "it saves 60 s of waiting a day (30 % less waiting)");
    }

    #[test]
    fn what_no_stock_host_has_is_told_of_as_fully_as_five_lines_allow() {
        let policy: PolicyId = "dm-trim".into();
        let time =
            Worth { time_saved_percent: 25.0, time_saved_percent_interval: Some([20.0, 30.0]), ..NOTHING };
        let life = Worth { time_saved_percent: 1.9, life_times: Some(1.5), ..NOTHING };
        let begin = "Not on a stock host:";
        for (before, worth, line) in [
            (
                3,
                time,
                Some("`dm-trim` (the module dm-trim) would bring 25 % less time than that (20 to 30 %)."),
            ),
            (4, time, Some("`dm-trim` would bring 25 % less time than that.")),
            (5, time, None),
            (4, life, Some("`dm-trim` would bring 1.5 times the flash life of that.")),
        ] {
            let mut lines: Vec<String> = (0..before).map(|line| line.to_string()).collect();
            add_beyond(&mut lines, (&policy, Means::DmTrim), Measure::Total, &worth);
            let added = lines.iter().find(|line| line.starts_with(begin));
            assert_eq!(added.cloned(), line.map(|line| format!("{begin} {line}")), "after {before} lines");
            assert_eq!(lines.last(), Some(&(before - 1).to_string()), "it stands before the last line");
        }
    }
}
