//! The verdict: what was judged, put into words with its evidence, and why it is so.

use crate::compare::judge::{
    Decision, Found, Judgement, LIFE_PERCENT, RULE, TIME_PERCENT, compared_wear, exceeds,
};
use crate::compare::result::{DeviceVerdict, Measure, Quantile, Verdict};
use crate::compare::statistics::{CONFIDENCE, Comparison, compare};
use crate::compare::summary::{DeviceSummary, PolicySummary, Summary};
use crate::compare::why::{Causes, Endurance, explain, factor, seconds};
use crate::units::{Bytes, UNIT_BYTES};

/// Why there is no verdict and no advice on runs in which there was nothing to trim.
pub const FREED_NOTHING: &str = "the workload freed nothing that was committed (ext4 commits after 5 s, or at an fsync), \
                                 so no policy had anything to trim";

/// Puts what was judged on each device into words. `None` without any device.
pub fn verdict(summary: &Summary, judged: &[Judgement]) -> Option<Verdict> {
    if !summary.devices.is_empty() && summary.frees_nothing() {
        return Some(no_verdict());
    }
    let per_device: Vec<DeviceVerdict> = summary
        .devices
        .iter()
        .zip(judged)
        .map(|(device, judged)| on_device(summary, device, judged))
        .collect();
    let first = per_device.first()?.clone();
    if per_device.len() == 1 {
        let DeviceVerdict { policy, speedup, low, high, text, why, .. } = first;
        return Some(Verdict { rule: RULE, policy, speedup, low, high, text, why, per_device });
    }
    let policy =
        first.policy.filter(|policy| per_device.iter().all(|one| one.policy.as_ref() == Some(policy)));
    let text = match &policy {
        Some(policy) => format!("The same on all {} devices: `{policy}`.", per_device.len()),
        None => "The devices differ, or do not all allow a verdict: see each.".to_owned(),
    };
    let (speedup, why) = (f64::NAN, String::new());
    Some(Verdict { rule: RULE, policy, speedup, low: speedup, high: speedup, text, why, per_device })
}

fn no_verdict() -> Verdict {
    let text = format!(
        "No verdict: {FREED_NOTHING}. Run longer, so that files reach the drive before they are removed, or choose work that \
         removes older files."
    );
    Verdict {
        rule: RULE,
        policy: None,
        speedup: 1.0,
        low: 1.0,
        high: 1.0,
        text,
        why: String::new(),
        per_device: Vec::new(),
    }
}

fn on_device(summary: &Summary, device: &DeviceSummary, judged: &Judgement) -> DeviceVerdict {
    let policy = judged.policy.clone().filter(|_| judged.decision != Decision::CannotTell);
    let base = judged.today.as_ref().and_then(|today| device.policy(today));
    let other =
        judged.found.policy().and_then(|policy| device.policy(policy)).or_else(|| alternative(device, base?));
    let chosen = judged.policy.as_ref().and_then(|policy| device.policy(policy));
    let compared = base.zip(other).map(|(base, other)| (base, other, compare(&base.time_s, &other.time_s)));
    let sentences = [
        speed_sentence(judged, compared.as_ref(), base, summary.measure),
        chosen.map_or_else(String::new, |chosen| bound_sentence(device, chosen)),
        compared.as_ref().map_or_else(String::new, |(base, other, _)| life_sentence(base, other)),
        unswept_sentence(device),
    ];
    let changed = compared.as_ref().filter(|_| judged.decision.is_change());
    let (speedup, low, high, significant) = changed
        .map_or((1.0, 1.0, 1.0, false), |(.., c)| (c.ratio, c.interval.low, c.interval.high, is_proven(c)));
    DeviceVerdict {
        device: device.device.to_string(),
        policy,
        speedup,
        low,
        high,
        significant,
        life_time: base.zip(chosen).and_then(|(base, chosen)| life_time(base, chosen)),
        endurance: chosen.and_then(Endurance::of),
        text: sentences.into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(" "),
        why: why(chosen, base, other),
    }
}

fn unswept_sentence(device: &DeviceSummary) -> String {
    let trimmed = |p: &PolicySummary| p.device_median_of(|d| d.trim_commands as f64).is_some_and(|n| n > 0.0);
    let why = |p: &PolicySummary| match (trimmed(p), p.policy.is_daemon()) {
        (true, _) => "the run is shorter than its interval",
        (false, true) => "nothing was trimmed during the run",
        (false, false) => "no sweep was due during the run",
    };
    let mut sentences = Vec::new();
    let unswept: Vec<(&PolicySummary, &str)> =
        device.policies.iter().filter(|p| p.unswept).map(|p| (p, why(p))).collect();
    for alike in unswept.chunk_by(|a, b| a.1 == b.1) {
        let names: Vec<String> = alike.iter().map(|(p, _)| format!("`{}`", p.policy)).collect();
        sentences.push(format!("No verdict on {}: {}.", names.join(" and "), alike[0].1));
    }
    sentences.join(" ")
}

/// Explains the difference that the sentence on speed states, and says what the drive endures.
fn why(
    chosen: Option<&PolicySummary>,
    base: Option<&PolicySummary>,
    other: Option<&PolicySummary>,
) -> String {
    let causes = |p: Option<&PolicySummary>| p.and_then(|p| Some((p.policy.clone(), Causes::of(p)?)));
    let mut text = causes(other)
        .zip(causes(base))
        .map_or_else(String::new, |(other, base)| explain((&other.0, &other.1), (&base.0, &base.1)));
    let chosen = chosen.or(base);
    if let Some((chosen, endurance)) = chosen.and_then(|chosen| Some((chosen, Endurance::of(chosen)?))) {
        let base = base.filter(|base| base.policy != chosen.policy);
        let base = base.and_then(|base| Some((base.policy, Endurance::of(base)?)));
        text += if text.is_empty() { "" } else { " " };
        text += &endurance.sentence(chosen.policy, base);
    }
    text
}

/// How many times as long the flash lasts under `policy` as under `base`; `None` if the device does not tell, or one of
/// them wrote nothing to it.
fn life_time(base: &PolicySummary, policy: &PolicySummary) -> Option<f64> {
    let times = compared_wear(base, policy)?.ratio;
    (times.is_finite() && times > 0.0).then_some(times)
}

/// The fastest of the policies that a host can have besides this one.
fn alternative<'s, 'a>(device: &'s DeviceSummary<'a>, base: &PolicySummary) -> Option<&'s PolicySummary<'a>> {
    let others = device.policies.iter().filter(|p| p.means.is_attainable() && !p.unswept);
    fastest(others.filter(|p| p.policy != base.policy))
}

fn fastest<'s, 'a: 's>(
    policies: impl Iterator<Item = &'s PolicySummary<'a>>,
) -> Option<&'s PolicySummary<'a>> {
    policies.min_by(|a, b| a.time_s.median().total_cmp(&b.time_s.median()))
}

/// Returns true if two policies differ in speed by a proven and noticeable amount.
fn is_proven(c: &Comparison) -> bool {
    c.significant && exceeds(c.ratio, TIME_PERCENT)
}

fn speed_sentence(
    judged: &Judgement,
    compared: Option<&(&PolicySummary, &PolicySummary, Comparison)>,
    base: Option<&PolicySummary>,
    measure: Measure,
) -> String {
    let today = judged.today.as_ref().map_or_else(String::new, |today| format!("`{today}`"));
    let Some((base, other, c)) = compared else {
        return match base {
            Some(base) if base.means.is_attainable() => format!(
                "`{}` took {}, and no other policy ran here that a host can have.",
                base.policy,
                seconds(base.time_s.median())
            ),
            Some(base) => format!("`{}` cannot be had ({}).", base.policy, base.means.words()),
            None => format!("No verdict: {today} did not run on this device."),
        };
    };
    let (what, with) = match measure {
        Measure::Total => ("run".to_owned(), ""),
        Measure::Waiting => ("waiting for operations".to_owned(), "with "),
        Measure::Fsync => ("fsync".to_owned(), "with "),
        Measure::Write => ("write".to_owned(), "with "),
        Measure::MeanLatency => ("mean request".to_owned(), "with "),
        Measure::Latency(Quantile::Max, operation) => (format!("slowest {}", operation.name()), "with "),
        Measure::Latency(quantile, operation) => {
            (format!("{} of {}", quantile.name(), operation.name()), "with ")
        }
    };
    let is = if measure == Measure::Total { "it is".to_owned() } else { format!("its {what} is") };
    let (base, other) = (base.policy, other.policy);
    let text = match judged.decision {
        Decision::Change if is_proven(c) && c.ratio > 1.0 => {
            format!(
                "Use `{other}`: {is} {} as fast as {with}`{base}` ({})",
                times(c.ratio),
                evidence(c, false)
            )
        }
        Decision::Change | Decision::Untrimmed => format!(
            "Use `{other}`, but not for its speed: compared with `{base}` it {} ({})",
            no_difference(c),
            evidence(c, false)
        ),
        Decision::Keep if is_proven(c) && c.ratio < 1.0 => format!(
            "Keep `{base}`: with `{other}` the {what} takes {} as long ({})",
            times(1.0 / c.ratio),
            evidence(c, true)
        ),
        Decision::Keep => format!("Keep `{base}`: `{other}` {} ({})", no_difference(c), evidence(c, true)),
        Decision::DoesNotMatter => {
            format!(
                "It does not matter: compared with `{base}`, `{other}` {} ({})",
                no_difference(c),
                evidence(c, true)
            )
        }
        Decision::CannotTell if matches!(judged.found, Found::Depends(_)) => format!(
            "It depends on the drive: at the likely values, compared with `{base}`, `{other}` {} ({}), but not in \
             all of their ranges",
            no_difference(c),
            evidence(c, c.ratio < 1.0)
        ),
        Decision::CannotTell => {
            format!(
                "No verdict: compared with `{base}`, `{other}` {} ({})",
                no_difference(c),
                evidence(c, true)
            )
        }
    };
    text + "."
}

/// Compares the chosen policy with the fastest of those that no host can have as it is.
fn bound_sentence(device: &DeviceSummary, chosen: &PolicySummary) -> String {
    let beyond = device.policies.iter().filter(|p| !p.means.is_attainable() && p.policy != chosen.policy);
    let Some(beyond) = fastest(beyond) else { return String::new() };
    let c = compare(&chosen.time_s, &beyond.time_s);
    let (name, needs) = (beyond.policy, beyond.means.words());
    if is_proven(&c) && c.ratio > 1.0 {
        return format!("`{name}` ({needs}) would be {} as fast as `{}`.", times(c.ratio), chosen.policy);
    }
    let how = if c.p.is_some() && c.ratio > 1.0 { "not significantly" } else { "no" };
    let how = if is_proven(&c) || c.ratio <= 1.0 { "no" } else { how };
    format!("`{name}` ({needs}) is {how} faster than `{}`.", chosen.policy)
}

fn no_difference(c: &Comparison) -> &'static str {
    match c.p {
        None if c.ratio == 1.0 => "makes no difference",
        _ if is_proven(c) && c.ratio > 1.0 => "is faster",
        _ if is_proven(c) => "is slower",
        None => "makes no difference that matters",
        Some(_) if c.interval.confidence < CONFIDENCE => {
            "shows no difference that so few repetitions could prove (~)"
        }
        Some(_) if c.significant => "shows a difference too small to matter",
        Some(_) => "shows no significant difference (~)",
    }
}

/// The evidence for a ratio. With `inverse`, the sentence is about durations, not speed.
fn evidence(c: &Comparison, inverse: bool) -> String {
    let Some(p) = c.p else {
        return if c.ratio == 1.0 {
            "the same to the nanosecond".to_string()
        } else {
            format!("exact: {:+.1} % in time", (1.0 / c.ratio - 1.0) * 100.0).replace('-', "\u{2212}")
        };
    };
    if c.interval.confidence <= 0.0 {
        return "one run of each".to_string();
    }
    let (low, high) = match inverse {
        true => (1.0 / c.interval.high, 1.0 / c.interval.low),
        false => (c.interval.low, c.interval.high),
    };
    format!(
        "{} % interval {} to {}, {}",
        (c.interval.confidence * 100.0).floor(),
        factor(low),
        factor(high),
        if p < 0.001 { "p < 0.001".to_string() } else { format!("p = {p:.3}") }
    )
}

/// Says how the life of the flash differs, by what was programmed into it.
fn life_sentence(base: &PolicySummary, other: &PolicySummary) -> String {
    let Some(wear) = compared_wear(base, other) else {
        return "Lifetime: unknown; a real directory does not show what is written to its flash.".to_owned();
    };
    let written = |p: &PolicySummary| p.device_median_of(|d| d.nand_units_written as f64).unwrap_or_default();
    let (before, after) = (written(base), written(other));
    if before == 0.0 && after == 0.0 {
        return "Lifetime: this run is too small to tell; none of its writes has reached the flash."
            .to_owned();
    }
    let bytes = |units: f64| Bytes((units * UNIT_BYTES as f64) as u64);
    let figures = format!(
        "{} written to the flash with `{}`, {} with `{}`",
        bytes(after),
        other.policy,
        bytes(before),
        base.policy
    );
    let effect = match life_time(base, other) {
        None if after < before => format!("`{}` does not wear the flash at all in this run", other.policy),
        None => format!("only `{}` wears the flash in this run", other.policy),
        Some(f) if !exceeds(f, LIFE_PERCENT) => "no difference that matters".to_owned(),
        Some(_) if !wear.significant => "no significant difference (~)".to_owned(),
        Some(f) if f > 1.0 => format!("the flash lasts {} as long with `{}`", times(f), other.policy),
        Some(f) => format!("the flash lasts only {} as long with `{}`", times(f), other.policy),
    };
    format!("Lifetime: {figures}: {effect}.")
}

fn times(f: f64) -> String {
    format!("{} times", factor(f))
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
pub(super) mod tests;
