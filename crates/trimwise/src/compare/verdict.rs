//! The verdict: which policy to use, and why.
//!
//! On each device a policy is chosen by the rule of `choice`.
//!
//! Over several devices the policy with the best geometric mean of speedups wins: a ratio of 2 on one device
//! and of 1/2 on another is no gain.

use crate::compare::choice::{
    Choice, SPEED_INDIFFERENCE, WEAR_INDIFFERENCE, Wear, choose, fastest, proven, told_apart,
};
use crate::compare::result::{Cell, DeviceVerdict, Measure, Quantile, Verdict};
use crate::compare::statistics::{CONFIDENCE, Comparison, compare};
use crate::compare::summary::{DeviceSummary, PolicySummary, Summary};
use crate::compare::why::{Causes, Endurance, explain, factor, seconds};
use crate::numbers::thousands;
use crate::policy::PolicyId;

/// Chooses a policy from the cells of a comparison and explains why. `None` if there are no cells.
pub fn verdict(cells: &[Cell]) -> Option<Verdict> {
    of_summary(&Summary::of(cells))
}

/// Chooses as [`verdict`] does, from cells that are gathered already.
pub fn of_summary(summary: &Summary) -> Option<Verdict> {
    preferring(summary, &[&summary.baseline])
}

/// Chooses as [`of_summary`] does. Among policies that are not told apart from the best, the first of the preferred
/// ones wins.
pub fn preferring(summary: &Summary, preferred: &[&PolicyId]) -> Option<Verdict> {
    let baseline = &summary.baseline;
    if !summary.devices.is_empty() && summary.frees_nothing() {
        return Some(no_verdict());
    }
    let per_device: Vec<DeviceVerdict> = summary
        .devices
        .iter()
        .filter_map(|d| Some(device_verdict(d, baseline, &choose(d, preferred)?, summary.measure)))
        .collect();
    if per_device.len() > 1
        && let Some(overall) = overall(summary, &per_device)
    {
        return Some(Verdict { per_device, ..overall });
    }
    let first = of_device(per_device.first()?.clone());
    Some(Verdict { per_device, ..first })
}

fn of_device(device: DeviceVerdict) -> Verdict {
    let DeviceVerdict { policy, speedup, low, high, text, why, .. } = device.clone();
    Verdict { policy: Some(policy), speedup, low, high, text, why, per_device: vec![device] }
}

/// The verdict on one policy: why it, and not the others. `None` if it did not run on the only device.
pub fn on(summary: &Summary, policy: &PolicyId) -> Option<Verdict> {
    let [device] = &summary.devices[..] else { return None };
    let choice = Choice::of(device.policy(policy)?);
    Some(of_device(device_verdict(device, &summary.baseline, &choice, summary.measure)))
}

/// Why there is no verdict and no advice on runs in which there was nothing to trim.
pub const FREED_NOTHING: &str = "the workload freed nothing that was committed (ext4 commits after 5 s, or at an fsync), \
                                 so no policy had anything to trim";

fn no_verdict() -> Verdict {
    let text = format!(
        "No verdict: {FREED_NOTHING}. To compare policies, run one that removes or replaces files, or a longer one."
    );
    Verdict {
        policy: None,
        speedup: 1.0,
        low: 1.0,
        high: 1.0,
        text,
        why: String::new(),
        per_device: Vec::new(),
    }
}

fn unswept_sentence(device: &DeviceSummary) -> String {
    let of = |is_daemon: bool, why: &str| {
        let unswept = device.policies.iter().filter(|p| p.unswept && p.policy.is_daemon() == is_daemon);
        let unswept: Vec<String> = unswept.map(|p| format!("`{}`", p.policy)).collect();
        (!unswept.is_empty()).then(|| format!("No verdict on {}: {why}.", unswept.join(" and ")))
    };
    let sweeps = of(false, "no sweep was due during the run");
    sweeps.into_iter().chain(of(true, "nothing was trimmed during the run")).collect::<Vec<_>>().join(" ")
}

fn device_verdict(
    device: &DeviceSummary,
    baseline: &PolicyId,
    choice: &Choice<'_, '_>,
    measure: Measure,
) -> DeviceVerdict {
    let chosen = choice.chosen;
    let (speedup, low, high, significant) = match (&chosen.versus_baseline, chosen.policy == baseline) {
        (Some(c), _) => (c.ratio, c.interval.low, c.interval.high, proven(c)),
        _ => (1.0, 1.0, 1.0, false),
    };
    let life_time = device.policy(baseline).and_then(|b| life_time(device, b, chosen));
    let sentences = [
        speed_sentence(device, chosen, baseline, measure),
        choice.others(baseline),
        life_sentence(device, chosen, baseline),
        unswept_sentence(device),
    ];
    let text = sentences.into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(" ");
    DeviceVerdict {
        device: device.device.to_string(),
        policy: chosen.policy.clone(),
        speedup,
        low,
        high,
        significant,
        life_time,
        endurance: Endurance::of(chosen),
        text,
        why: why(device, chosen, baseline),
    }
}

/// Explains the difference that the sentence on speed states, and says what the drive endures.
fn why(device: &DeviceSummary, chosen: &PolicySummary, baseline: &PolicyId) -> String {
    let other = if chosen.policy == baseline { alternative(device, baseline) } else { Some(chosen) };
    let base = device.policy(baseline);
    let compared = other.and_then(|p| Some((p.policy, Causes::of(p)?))).zip(base.and_then(Causes::of));
    let mut text =
        compared.map_or_else(String::new, |((name, other), base)| explain((name, &other), (baseline, &base)));
    if let Some(endurance) = Endurance::of(chosen) {
        let base = base.filter(|base| base.policy != chosen.policy).and_then(Endurance::of);
        text += if text.is_empty() { "" } else { " " };
        text += &endurance.sentence(chosen.policy, base.map(|base| (baseline, base)));
    }
    text
}

/// How many times as long the flash lasts under `policy` as under `baseline`.
fn life_time(device: &DeviceSummary, baseline: &PolicySummary, policy: &PolicySummary) -> Option<f64> {
    let wear = Wear::of(device, &[baseline, policy]);
    let (before, after) = (wear.median(baseline)?, wear.median(policy)?);
    if before == after {
        return Some(1.0);
    }
    (before > 0.0 && after > 0.0).then(|| before / after)
}

/// The fastest of the other usable policies, for comparison with a recommended baseline.
fn alternative<'s, 'a>(device: &'s DeviceSummary<'a>, baseline: &PolicyId) -> Option<&'s PolicySummary<'a>> {
    fastest(device.policies.iter().filter(|p| !p.bound && !p.unswept && p.policy != baseline))
}

fn speed_sentence(
    device: &DeviceSummary,
    chosen: &PolicySummary,
    baseline: &PolicyId,
    measure: Measure,
) -> String {
    let name = chosen.policy;
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
    let mut text = if name == baseline {
        match alternative(device, baseline).and_then(|a| Some((a.policy, a.versus_baseline?))) {
            None if chosen.bound => format!("`{name}` is only a bound: no host can use it"),
            None => format!(
                "`{name}` took {}, and there is no other usable policy here to compare it with",
                seconds(chosen.time_s.median())
            ),
            Some((other, c)) => match support(&c, true) {
                Some(support) if proven(&c) || c.ratio < 1.0 => format!(
                    "Keep `{baseline}`: with `{other}` the {what} takes {} as long{support}",
                    times(1.0 / c.ratio)
                ),
                _ => format!("Keep `{baseline}`: `{other}` {} ({})", no_difference(&c), evidence(&c, true)),
            },
        }
    } else {
        match &chosen.versus_baseline {
            None => format!("Use `{name}`, the fastest; `{baseline}` did not run on this device"),
            Some(c) => match support(c, false) {
                Some(support) if c.ratio > 1.0 => {
                    format!("Use `{name}`: {is} {} as fast as {with}`{baseline}`{support}", times(c.ratio))
                }
                _ if proven(c) => format!(
                    "Use `{name}`, the fastest that a host can use, though it takes {} as long as `{baseline}` ({})",
                    times(1.0 / c.ratio),
                    evidence(c, true)
                ),
                _ => format!(
                    "Use `{name}`, but not for its speed: compared with `{baseline}` it {} ({})",
                    no_difference(c),
                    evidence(c, false)
                ),
            },
        }
    };
    let bound = fastest(device.policies.iter().filter(|p| p.bound && p.policy != name));
    if let Some(b) = bound {
        let c = compare(&chosen.time_s, &b.time_s);
        if proven(&c) && c.ratio > 1.0 {
            text += &format!("; the bound `{}` would be {} as fast as `{name}`", b.policy, times(c.ratio));
        } else {
            let how = if c.p.is_some() && c.ratio > 1.0 { "not significantly" } else { "no" };
            text += &format!("; the bound `{}` is {how} faster than `{name}`", b.policy);
        }
    }
    text + "."
}

fn no_difference(c: &Comparison) -> &'static str {
    match c.p {
        None => "makes no difference that matters",
        Some(_) if c.interval.confidence < CONFIDENCE => {
            "shows no difference that so few repetitions could prove (~)"
        }
        Some(_) if c.significant => "shows a difference too small to matter",
        Some(_) => "shows no significant difference (~)",
    }
}

/// The end of a sentence about a ratio; `None` if the two are not told apart.
fn support(c: &Comparison, inverse: bool) -> Option<String> {
    let evidence = evidence(c, inverse);
    if proven(c) {
        return Some(format!(" ({evidence})"));
    }
    let is_likely = told_apart(c, SPEED_INDIFFERENCE);
    is_likely.then(|| format!(", which so few repetitions cannot prove (~; {evidence})"))
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

fn life_sentence(device: &DeviceSummary, chosen: &PolicySummary, baseline: &PolicyId) -> String {
    // The subject is the policy that is not the baseline, whichever was chosen.
    let other = if chosen.policy == baseline { alternative(device, baseline) } else { Some(chosen) };
    let base = device.policy(baseline);
    let compared: Vec<&PolicySummary> = other.into_iter().chain(base).collect();
    let wear = Wear::of(device, if compared.len() == 2 { &compared } else { &[] });
    let what = wear.what();
    let Some(chosen_wear) = wear.median(chosen) else {
        return "Lifetime: unknown; a real directory does not show what its device erases.".to_string();
    };
    let (Some(other), Some(base)) = (other, base) else {
        return format!("Lifetime: {} {what}.", thousands(chosen_wear));
    };
    let (Some(before), Some(after)) = (wear.median(base), wear.median(other)) else {
        return format!("Lifetime: {} {what}.", thousands(chosen_wear));
    };
    if before == 0.0 && after == 0.0 {
        return "Lifetime: this run is too small to tell; none of its writes has reached the flash."
            .to_string();
    }
    let figures = format!(
        "{} {what} with `{}`, {} with `{baseline}`",
        thousands(after),
        other.policy,
        thousands(before)
    );
    let effect = match life_time(device, base, other) {
        None if after < before => format!("`{}` does not wear the flash at all in this run", other.policy),
        None => format!("only `{}` wears the flash in this run", other.policy),
        Some(f) if (f - 1.0).abs() <= WEAR_INDIFFERENCE => "no difference that matters".to_string(),
        Some(f) if f > 1.0 => format!(
            "{:.0} % fewer, so the flash lasts {} as long with `{}`",
            (1.0 - 1.0 / f) * 100.0,
            times(f),
            other.policy
        ),
        Some(f) => format!(
            "{:.0} % more, so the flash lasts only {} as long with `{}`",
            (1.0 / f - 1.0) * 100.0,
            times(f),
            other.policy
        ),
    };
    format!("Lifetime: {figures}: {effect}.")
}

/// The verdict over several devices; `None` if the baseline did not run on all of them.
fn overall(summary: &Summary, per_device: &[DeviceVerdict]) -> Option<Verdict> {
    let baseline = &summary.baseline;
    let devices = &summary.devices;
    devices.iter().all(|d| d.policy(baseline).is_some()).then_some(())?;
    let mut best = (baseline, Means { ratio: 1.0, low: 1.0, high: 1.0 });
    for p in devices[0].policies.iter().filter(|p| !p.bound && !p.unswept && p.policy != baseline) {
        let comparisons: Option<Vec<Comparison>> =
            devices.iter().map(|d| d.policy(p.policy).and_then(|p| p.versus_baseline)).collect();
        let Some(comparisons) = comparisons else { continue };
        let means = Means::of(&comparisons);
        let better_than_nothing = means.ratio > 1.0 + SPEED_INDIFFERENCE && means.low > 1.0;
        if better_than_nothing && means.ratio > best.1.ratio {
            best = (p.policy, means);
        }
    }
    let (policy, means) = best;
    let agreeing = per_device.iter().filter(|v| v.policy == *policy).count();
    let agreement = if agreeing == per_device.len() {
        "the choice on each of them".to_string()
    } else {
        format!("the choice on {agreeing} of them: look at each below")
    };
    let speed = if policy == baseline {
        format!(
            "Over all {} devices: keep `{baseline}`; no usable policy is faster on average ({agreement}).",
            devices.len()
        )
    } else {
        format!(
            "Over all {} devices: use `{policy}`, {} as fast as `{baseline}` (geometric mean, {} to {}; {agreement}).",
            devices.len(),
            times(means.ratio),
            factor(means.low),
            factor(means.high)
        )
    };
    let lives: Option<Vec<f64>> =
        devices.iter().map(|d| life_time(d, d.policy(baseline)?, d.policy(policy)?)).collect();
    let life = match lives {
        _ if policy == baseline => "Lifetime: unchanged.".to_string(),
        Some(lives) => format!("Lifetime: {} as long (geometric mean).", times(geometric_mean(&lives))),
        None => "Lifetime: see each device.".to_string(),
    };
    Some(Verdict {
        policy: Some(policy.clone()),
        speedup: means.ratio,
        low: means.low,
        high: means.high,
        text: format!("{speed} {life}"),
        why: overall_why(devices, policy, baseline),
        per_device: Vec::new(),
    })
}

/// Explains the difference with the sums over all devices; empty if the baseline is kept.
fn overall_why(devices: &[DeviceSummary], policy: &PolicyId, baseline: &PolicyId) -> String {
    let causes = Causes::sum(devices, policy).zip(Causes::sum(devices, baseline));
    causes.filter(|_| policy != baseline).map_or_else(String::new, |(of_policy, of_baseline)| {
        format!("Summed over the devices: {}", explain((policy, &of_policy), (baseline, &of_baseline)))
    })
}

/// Geometric means of ratios and of the ends of their intervals. The resulting interval may be too wide, never too
/// narrow.
struct Means {
    ratio: f64,
    low: f64,
    high: f64,
}

impl Means {
    fn of(comparisons: &[Comparison]) -> Self {
        let mean = |figure: fn(&Comparison) -> f64| {
            geometric_mean(&comparisons.iter().map(figure).collect::<Vec<_>>())
        };
        Self { ratio: mean(|c| c.ratio), low: mean(|c| c.interval.low), high: mean(|c| c.interval.high) }
    }
}

/// The geometric mean, by bisection with multiplications only: `ln` and `powf` may differ between platforms
/// in the last bit, and results are the same bytes on any machine.
fn geometric_mean(values: &[f64]) -> f64 {
    let usable = values.iter().all(|v| v.is_finite() && *v > 0.0);
    if values.is_empty() || !usable {
        return f64::NAN;
    }
    let mut low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let mut high = values.iter().copied().fold(0.0, f64::max);
    while low < high {
        let middle = low + (high - low) / 2.0;
        if middle <= low || middle >= high {
            break; // neighbours
        }
        // The product of all value / middle, in the given order, is 1 at the mean.
        let product = values.iter().fold(1.0, |product, v| product * (v / middle));
        if product > 1.0 { low = middle } else { high = middle }
    }
    high
}

fn times(f: f64) -> String {
    format!("{} times", factor(f))
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
pub(super) mod tests;
