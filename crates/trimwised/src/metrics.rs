//! Prometheus metrics: the text format 0.0.4, which is written as a file or served ([`listen`]). The crate
//! `prometheus-client` writes OpenMetrics instead, where a counter's type has another name than its samples.

pub mod listen;

use std::fmt::Write as _;
use std::path::Path;

use trimwise::live::{Level, Status, Untrimmed};
use trimwise_linux::code::Code;

#[derive(Clone)]
pub struct Seen<'a> {
    pub mount: &'a Path,
    pub device: &'a str,
    pub fs_type: &'a str,
    pub status: Option<Status>,
    pub has_problem: bool,
    pub trimmed_at_s: Option<u64>,
    /// Time of the last map of free space, in seconds since 1970.
    pub looked_at_s: Option<u64>,
    /// Codes of what is wrong with it.
    pub codes: Vec<Code>,
}

#[derive(Clone, Debug)]
pub struct Whole {
    pub uptime_s: u64,
    /// True if the configuration on disk is invalid and the previous one in use.
    pub is_config_broken: bool,
    pub is_history_broken: bool,
    pub is_state_broken: bool,
    /// Log lines dropped because they were not read in time.
    pub log_lines_dropped: u64,
    /// Codes of what is wrong with the daemon itself.
    pub codes: Vec<Code>,
}

const BUILD_INFO: (&str, &str) = ("build_info", "The version, as a label.");

/// Returns the first line of every [`render`]ed text, which identifies a metrics file as ours.
pub fn first_line() -> String {
    format!("# HELP trimwise_{} {}", BUILD_INFO.0, BUILD_INFO.1)
}

pub fn render<'a>(whole: &Whole, seen: impl Iterator<Item = Seen<'a>>) -> String {
    type Of = fn(&Status) -> u64;
    let metrics: [(&str, &str, &str, Of); 18] = [
        ("used_bytes", "gauge", "Bytes in use.", |s| s.used_bytes.0),
        ("size_bytes", "gauge", "Bytes of the file system.", |s| s.total_bytes.0),
        ("bound_bytes", "gauge", "The most untrimmed free space that judicious allows, in bytes.", |s| {
            s.bound_bytes.0
        }),
        (
            "purpose_space",
            "gauge",
            "Whether trims give lent space back, rather than serve the drive alone.",
            |s| u64::from(s.purpose == "space"),
        ),
        ("online", "gauge", "Whether the kernel's online discard is on.", |s| u64::from(s.online)),
        ("paused", "gauge", "Whether trimming is paused.", |s| u64::from(s.paused)),
        ("slices_total", "counter", "Slices that ended.", |s| s.totals.slices),
        ("slices_failed_total", "counter", "Slices that failed.", |s| s.totals.slices_failed),
        ("slices_over_total", "counter", "Slices that took longer than their target.", |s| {
            s.totals.slices_over
        }),
        ("trimmed_bytes_total", "counter", "Free space that the device took in slices.", |s| {
            s.totals.trimmed_bytes
        }),
        (
            "unverified_bytes_total",
            "counter",
            "Free space sent where failed discards cannot be noticed.",
            |s| s.totals.unverified_bytes,
        ),
        ("counted_bytes_total", "counter", "Discards that the device counted during slices.", |s| {
            s.totals.counted_bytes
        }),
        ("freed_bytes_total", "counter", "Space observed to be freed.", |s| s.totals.freed_bytes),
        ("reused_bytes_total", "counter", "Space reused before its trim.", |s| s.totals.reused_bytes),
        ("looks_total", "counter", "Maps of free space that were read.", |s| s.totals.looks),
        ("told_freed_bytes_total", "counter", "Space freed according to tracepoints.", |s| {
            s.totals.told_freed_bytes
        }),
        ("frees_lost_total", "counter", "Frees that tracepoints lost.", |s| s.totals.frees_lost),
        ("slice_max_bytes", "gauge", "The largest size of the next slice, in bytes.", |s| {
            s.slice_bytes_max.0
        }),
    ];
    let mut text = String::new();
    // Writing to a string cannot fail.
    let head = |text: &mut String, name: &str, kind: &str, help: &str| {
        let _ = writeln!(text, "# HELP trimwise_{name} {help}\n# TYPE trimwise_{name} {kind}");
    };
    head(&mut text, BUILD_INFO.0, "gauge", BUILD_INFO.1);
    let _ = writeln!(text, "trimwise_build_info{{version=\"{}\"}} 1", label(trimwise::VERSION));
    for (name, kind, help, value) in [
        ("uptime_seconds", "gauge", "Time since the daemon started.", whole.uptime_s),
        (
            "config_broken",
            "gauge",
            "Whether the configuration is broken, so that the last good one is in use.",
            u64::from(whole.is_config_broken),
        ),
        (
            "history_broken",
            "gauge",
            "Whether the history cannot be written.",
            u64::from(whole.is_history_broken),
        ),
        (
            "state_broken",
            "gauge",
            "Whether the state files cannot be read or written.",
            u64::from(whole.is_state_broken),
        ),
        (
            "log_lines_dropped_total",
            "counter",
            "Log lines dropped because they were not read.",
            whole.log_lines_dropped,
        ),
    ] {
        head(&mut text, name, kind, help);
        let _ = writeln!(text, "trimwise_{name} {value}");
    }
    let all: Vec<(String, Seen<'_>)> = seen.map(|one| (labels(&one), one)).collect();
    head(
        &mut text,
        "trouble",
        "gauge",
        "Whether trimming fails, is stuck or is refused: `trimwise status` says why.",
    );
    for (labels, one) in &all {
        let trouble = one.has_problem || one.status.as_ref().is_some_and(|status| status.reason.is_trouble());
        let _ = writeln!(text, "trimwise_trouble{{{labels}}} {}", u64::from(trouble));
    }
    head(&mut text, "finding", "gauge", "Problems by their codes; `trimwise explain CODE` says what to do.");
    for code in &whole.codes {
        let _ = writeln!(text, "trimwise_finding{{code=\"{code}\"}} 1");
    }
    for (labels, one) in &all {
        for code in &one.codes {
            let _ = writeln!(text, "trimwise_finding{{{labels},code=\"{code}\"}} 1");
        }
    }
    type At = fn(&Seen<'_>) -> Option<u64>;
    let times: [(&str, &str, At); 2] = [
        ("last_trim_timestamp_seconds", "Time at which the last slice ended.", |one| one.trimmed_at_s),
        ("last_look_timestamp_seconds", "Time at which the map of free space was last read.", |one| {
            one.looked_at_s
        }),
    ];
    for (name, help, at) in times {
        head(&mut text, name, "gauge", help);
        for (labels, at) in all.iter().filter_map(|(labels, one)| Some((labels, at(one)?))) {
            let _ = writeln!(text, "trimwise_{name}{{{labels}}} {at}");
        }
    }
    let file_systems = || all.iter().filter_map(|(labels, one)| Some((labels, one.status.as_ref()?)));
    for (name, kind, help, value) in metrics {
        head(&mut text, name, kind, help);
        for (labels, status) in file_systems() {
            let _ = writeln!(text, "trimwise_{name}{{{labels}}} {}", value(status));
        }
    }
    type OfUntrimmed = fn(&Status) -> Untrimmed;
    let untrimmed: [(&str, &str, &str, OfUntrimmed); 2] = [
        (
            "waiting_bytes",
            "gauge",
            "Free space waiting to be trimmed, in bytes; absent while unknown.",
            |s| s.waiting_bytes,
        ),
        (
            "left_bytes",
            "gauge",
            "Free space left untrimmed by the policy, or sent and not known to be trimmed, in bytes; absent while unknown.",
            |s| s.left_bytes,
        ),
    ];
    for (name, kind, help, of) in untrimmed {
        head(&mut text, name, kind, help);
        for (labels, bytes) in
            file_systems().filter_map(|(labels, status)| Some((labels, of(status).known()?)))
        {
            let _ = writeln!(text, "trimwise_{name}{{{labels}}} {}", bytes.0);
        }
    }
    type OfLender = fn(&Status) -> Option<u64>;
    fn level(status: &Status) -> Option<Level> {
        status.lender.as_ref()?.level
    }
    let of_lenders: [(&str, &str, &str, OfLender); 7] = [
        (
            "lender_used_bytes",
            "gauge",
            "Bytes in use of the pool that lends the space; absent while unknown.",
            |s| Some(level(s)?.used_bytes.0),
        ),
        (
            "lender_size_bytes",
            "gauge",
            "Bytes of the pool that lends the space; absent while unknown.",
            |s| Some(level(s)?.size_bytes.0),
        ),
        (
            "lender_metadata_percent",
            "gauge",
            "Space for the metadata of that pool in use, in percent; absent while unknown.",
            |s| level(s)?.metadata_percent,
        ),
        (
            "lender_low",
            "gauge",
            "Whether that pool is so full that all free space goes back at once; absent while unknown.",
            |s| Some(u64::from(level(s)?.is_low)),
        ),
        ("lender_stopped", "gauge", "Whether that pool takes no more writes; absent while unknown.", |s| {
            Some(u64::from(level(s)?.is_stopped))
        }),
        (
            "held_bytes",
            "gauge",
            "Bytes that the lender holds for the file system; absent while unknown.",
            |s| Some(s.lender.as_ref()?.held_bytes?.0),
        ),
        (
            "held_beyond_use_bytes",
            "gauge",
            "Bytes that the lender holds beyond those in use, at most; absent while unknown.",
            |s| Some(s.held_beyond_use_bytes?.0),
        ),
    ];
    for (name, kind, help, of) in of_lenders {
        head(&mut text, name, kind, help);
        for (labels, value) in file_systems().filter_map(|(labels, status)| Some((labels, of(status)?))) {
            let _ = writeln!(text, "trimwise_{name}{{{labels}}} {value}");
        }
    }
    let is_known = |status: &Status| (status.waiting_bytes + status.left_bytes).known().is_some();
    let known = file_systems().filter(|(_, status)| is_known(status)).count();
    let [name, kind, help] = [
        "untrimmed_unknown_mounts",
        "gauge",
        "Mounts of which nobody knows how much free space is untrimmed.",
    ];
    head(&mut text, name, kind, help);
    let _ = writeln!(text, "trimwise_untrimmed_unknown_mounts {}", all.len() - known);
    head(&mut text, "request_seconds", "gauge", "Mean time of a request to the device.");
    for (labels, status) in file_systems() {
        for (slices, time) in [("no", status.latency_untouched_ns), ("yes", status.latency_touched_ns)] {
            if let Some(time) = time {
                let time = time.as_secs_f64();
                let _ = writeln!(
                    text,
                    "trimwise_request_seconds{{{labels},beside_slices=\"{slices}\"}} {time:.6}"
                );
            }
        }
    }
    text
}

fn labels(one: &Seen<'_>) -> String {
    let mount = label(&one.mount.display().to_string());
    format!("mountpoint=\"{mount}\",device=\"{}\",fstype=\"{}\"", label(one.device), label(one.fs_type))
}

/// Escapes a label's value: backslash, quote and newline.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use trimwise::live::{Cut, Facts, Lender, Lent, LiveHost, Sample, Settings};
    use trimwise::policy::PolicySpec;
    use trimwise::units::{Bytes, SimTime};

    use super::*;

    /// Returns the names of our metrics in a text.
    fn names(text: &str) -> BTreeSet<&str> {
        let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
        text.match_indices("trimwise_")
            .map(|(start, _)| text[start..].split(|c| !is_name(c)).next().unwrap_or_default())
            .collect()
    }

    /// A sound file system in this state.
    fn seen_as(mount: &'static str, live: &LiveHost) -> Seen<'static> {
        Seen {
            mount: Path::new(mount),
            device: "/dev/sda",
            fs_type: "xfs",
            status: Some(live.status()),
            has_problem: false,
            trimmed_at_s: None,
            looked_at_s: None,
            codes: Vec::new(),
        }
    }

    #[test]
    fn the_dashboard_and_the_alerts_use_only_metrics_that_there_are() {
        let whole = Whole {
            uptime_s: 0,
            is_config_broken: false,
            is_history_broken: false,
            is_state_broken: false,
            log_lines_dropped: 0,
            codes: Vec::new(),
        };
        let text = render(&whole, [].into_iter());
        assert_eq!(text.lines().next(), Some(first_line().as_str()));
        let there: BTreeSet<&str> = names(&text);
        assert!(there.len() > 20, "{there:?}");
        for used in [
            include_str!("../../../packaging/grafana-dashboard.json"),
            include_str!("../../../packaging/prometheus-alerts.yaml"),
        ] {
            let used = names(used);
            assert!(used.len() > 5, "{used:?}");
            assert_eq!(used.difference(&there).collect::<Vec<_>>(), Vec::<&&str>::new());
        }
    }

    #[test]
    fn each_finding_has_a_series_with_its_code() {
        let whole = Whole {
            uptime_s: 0,
            is_config_broken: true,
            is_history_broken: false,
            is_state_broken: false,
            log_lines_dropped: 0,
            codes: vec![Code::DaemonConfig],
        };
        let seen = Seen {
            mount: Path::new("/srv"),
            device: "/dev/sda",
            fs_type: "ext4",
            status: None,
            has_problem: true,
            trimmed_at_s: None,
            looked_at_s: None,
            codes: vec![Code::DaemonMount],
        };
        let text = render(&whole, [seen].into_iter());
        let found: Vec<_> = text.lines().filter(|line| line.starts_with("trimwise_finding")).collect();
        let of_mount =
            "mountpoint=\"/srv\",device=\"/dev/sda\",fstype=\"ext4\",code=\"daemon.mount.problem\"";
        assert_eq!(
            found,
            [
                "trimwise_finding{code=\"daemon.config.broken\"} 1",
                &format!("trimwise_finding{{{of_mount}}} 1")
            ]
        );
    }

    #[test]
    fn a_lender_of_which_nothing_is_known_has_no_series() {
        let whole = Whole {
            uptime_s: 0,
            is_config_broken: false,
            is_history_broken: false,
            is_state_broken: false,
            log_lines_dropped: 0,
            codes: Vec::new(),
        };
        let level = Level {
            used_bytes: Bytes(80),
            size_bytes: Bytes(100),
            metadata_percent: Some(7),
            is_low: true,
            is_stopped: false,
        };
        let known = Lender { level: Some(level), held_bytes: Some(Bytes(3 << 20)), ..Lender::default() };
        let seen = |mount: &'static str, lender: Option<Lender>| {
            let total = Bytes::gib(1);
            let (toggles, online_is_good) = (false, false);
            let facts =
                Facts { total, cut: Cut::Nowhere, maps: true, toggles, spans_max: 16, online_is_good };
            let lent = lender.as_ref().map(|_| Lent::default());
            let settings = Settings { lent, ..Settings::default() };
            let mut live = LiveHost::new(PolicySpec::JUDICIOUS, facts, settings, SimTime::ZERO);
            let sample = Sample { total, used: Bytes::mib(1), ..Sample::default() };
            live.sample(SimTime::ZERO, sample, &mut Vec::new());
            live.see_lender(lender);
            seen_as(mount, &live)
        };
        let all =
            [seen("/known", Some(known)), seen("/unknown", Some(Lender::default())), seen("/flash", None)];
        let text = render(&whole, all.into_iter());
        let is_of_lender = |line: &&str| {
            ["trimwise_lender_", "trimwise_held_", "trimwise_purpose_"]
                .iter()
                .any(|name| line.starts_with(name))
        };
        let found: Vec<String> = text
            .lines()
            .filter(is_of_lender)
            .map(|line| line.replace(",device=\"/dev/sda\",fstype=\"xfs\"", "").replace("mountpoint=", ""))
            .collect();
        assert_eq!(
            found,
            [
                "trimwise_purpose_space{\"/known\"} 1",
                "trimwise_purpose_space{\"/unknown\"} 1",
                "trimwise_purpose_space{\"/flash\"} 0",
                "trimwise_lender_used_bytes{\"/known\"} 80",
                "trimwise_lender_size_bytes{\"/known\"} 100",
                "trimwise_lender_metadata_percent{\"/known\"} 7",
                "trimwise_lender_low{\"/known\"} 1",
                "trimwise_lender_stopped{\"/known\"} 0",
                "trimwise_held_bytes{\"/known\"} 3145728",
                "trimwise_held_beyond_use_bytes{\"/known\"} 2097152",
            ]
        );
    }

    /// They had the series 0 while no map had been read.
    #[test]
    fn regression_untrimmed_space_that_nobody_has_read_has_no_series() {
        let whole = Whole {
            uptime_s: 0,
            is_config_broken: false,
            is_history_broken: false,
            is_state_broken: false,
            log_lines_dropped: 0,
            codes: Vec::new(),
        };
        // `off` reads no map. Without maps all that is free at the start counts.
        let seen = |mount: &'static str, maps: bool| {
            let total = Bytes::gib(1);
            let (toggles, online_is_good) = (false, false);
            let facts = Facts { total, cut: Cut::Nowhere, maps, toggles, spans_max: 16, online_is_good };
            let mut live = LiveHost::new(PolicySpec::OFF, facts, Settings::default(), SimTime::ZERO);
            live.sample(SimTime::ZERO, Sample { total, ..Sample::default() }, &mut Vec::new());
            seen_as(mount, &live)
        };
        let text = render(&whole, [seen("/read", false), seen("/unread", true)].into_iter());
        let names = ["trimwise_waiting_bytes", "trimwise_left_bytes", "trimwise_untrimmed_unknown_mounts"];
        let found: Vec<_> =
            text.lines().filter(|line| names.iter().any(|name| line.starts_with(name))).collect();
        let labels = "{mountpoint=\"/read\",device=\"/dev/sda\",fstype=\"xfs\"}";
        assert_eq!(
            found,
            [
                &format!("trimwise_waiting_bytes{labels} 0"),
                &format!("trimwise_left_bytes{labels} 1073741824"),
                "trimwise_untrimmed_unknown_mounts 1"
            ]
        );
    }
}
