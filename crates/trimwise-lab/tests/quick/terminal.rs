//! What the command shows on terminals of different widths.

use std::fs;
use std::path::Path;

use trimwise::profile::Profile;
use trimwise_lab::experiment;
use trimwise_testing::terminal::run_in_terminal;

use crate::common::command_in;

/// Columns of terminals: unreasonable ones, the usual one, and what results are laid out for.
const WIDTHS: [u16; 6] = [5, 20, 40, 80, 100, 200];

/// Runs the command in a folder and returns what a terminal of this width shows.
#[track_caller]
fn shown(folder: &Path, line: &str, columns: u16) -> String {
    let mut command = command_in(folder, line);
    command.env("TERM", "dumb").env("HOME", folder).env("XDG_CACHE_HOME", folder);
    let (status, shown) = run_in_terminal(command, columns);
    assert!(matches!(status.code(), Some(0..=2)), "{line} at {columns}: {status}: {shown}");
    assert!(!shown.contains('\u{1b}') && !shown.contains("panicked"), "{line} at {columns}: {shown}");
    shown
}

/// Writes a block trace, a daemon's configuration, and what three hosts report.
fn files(folder: &Path) {
    fs::write(
        folder.join("log"),
        "fio version 3 iolog\n0 /dev/sdz write 0 8192\n9 /dev/sdz trim 4096 4096\n",
    )
    .unwrap();
    fs::write(folder.join("trimwise.toml"), "policy = \"idael\"\nslice-sm = 5\n").unwrap();
    fs::create_dir(folder.join("fleet")).unwrap();
    for host in ["web1.example.com", "db1", "db2"] {
        let file_system = |mount: &str, policy: &str| {
            serde_json::json!({
                "mount_point": mount, "fs_type": "ext4", "devices": ["sda"], "problem": null,
                "status": {
                    "policy": policy, "used_bytes": 50_u64 << 30, "total_bytes": 100_u64 << 30,
                    "waiting_bytes": 12_u64 << 30, "left_bytes": 1_u64 << 30, "online": false, "trouble": false,
                    "why": "It is idle.", "totals": { "trimmed_bytes": 7_u64 << 30, "counted_bytes": 7_u64 << 30 },
                },
            })
        };
        let status = serde_json::json!({
            "schema": 1, "trimwise": "0.1.0", "uptime_ns": 1, "dry_run": false, "config_problem": null,
            "state_problem": null, "history_problem": null, "mounts_problem": null, "limits_problem": null,
            "metrics_problem": null,
            "file_systems": [file_system("/", "judicious"), file_system("/srv", "set:40:90+lazy+reuse")],
        });
        fs::write(folder.join(format!("fleet/{host}.json")), status.to_string()).unwrap();
    }
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    files(dir.path());
    let lines = [
        "devices",
        "devices vertex-60gb@1.41",
        "policies",
        "workloads",
        "reproduce --list",
        "kernel list",
        "fleet fleet",
        "trace info log",
        "doctor",
        "selftest --ops 200",
        "crashtest --policy commit set:40:90+lazy+reuse --cuts 2",
        "bench sata-small seqread:16MiB",
        "compare --device sata-smal",
        "config check trimwise.toml",
        "device list --state-dir .",
        "status --run .",
    ];
    // This one takes a second.
    let compare = ["compare --workload append:64KiB:1MiB --reps 1"];
    // The line of the usage is never folded.
    let help = ["--help", "trim --help"];
    for (lines, widths) in [(&lines[..], &WIDTHS[..]), (&compare, &[20, 80]), (&help, &[40, 80, 100, 200])] {
        for (line, &columns) in
            lines.iter().flat_map(|line| widths.iter().map(move |columns| (line, columns)))
        {
            let shown = shown(dir.path(), line, columns);
            assert!(!shown.is_empty(), "{line} at {columns}");
            for one in shown.lines() {
                // A word is never cut, and a command can be copied.
                let longest = one.split(' ').map(|word| word.chars().count()).max().unwrap_or(0);
                let width = usize::from(columns.max(20));
                let is_command =
                    one.starts_with("  trimwise ") || line.starts_with("compare ") && one.starts_with("    ");
                let is_whole = longest + 4 > width || is_command;
                assert!(one.chars().count() <= width || is_whole, "{line} at {columns}: '{one}'\n{shown}");
            }
        }
    }
}

/// At 80 columns `devices` showed `sata-generic` above "An NVMe drive of today": names wrapped, descriptions did not.
#[test]
fn regression_a_name_stays_with_its_description() {
    let dir = tempfile::tempdir().unwrap();
    let profiles = Profile::embedded_names().map(|name| (name, Profile::embedded(name).unwrap().description));
    let experiments = experiment::ALL.iter().map(|e| (e.name, e.question.to_owned()));
    for (line, entries) in
        [("devices", profiles.collect::<Vec<_>>()), ("reproduce --list", experiments.collect())]
    {
        for columns in WIDTHS {
            let shown = shown(dir.path(), line, columns);
            // An entry reaches from its name to the next.
            let names: Vec<&str> = entries.iter().map(|(name, _)| *name).collect();
            let begins =
                |line: &str| names.iter().copied().find(|name| line.split([' ', ':']).next() == Some(name));
            let mut found: Vec<(&str, String)> = Vec::new();
            for line in shown.lines().take_while(|line| !line.starts_with("OP: ")) {
                match (begins(line), found.last_mut()) {
                    (Some(name), _) => found.push((name, line.to_owned())),
                    (None, Some((_, text))) => *text += &format!(" {line}"),
                    (None, None) => {}
                }
            }
            assert_eq!(found.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names, "{columns}: {shown}");
            for ((name, text), (_, description)) in found.iter().zip(&entries) {
                let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(words(text).contains(&words(description)), "{name} at {columns}: {text}");
            }
        }
    }
}
