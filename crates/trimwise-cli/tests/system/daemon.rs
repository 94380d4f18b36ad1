//! The commands that talk to a running daemon, as a user meets them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use trimwise_testing::daemon::{Daemon, table};
use trimwise_testing::loops::{Loop, can_run, sh};
use trimwise_testing::{in_time, trimwised};

use crate::common::{command_in, refused, said, text, trimwise};

const MIB: u64 = 1 << 20;
const NOBODY: u32 = 65_534;

#[test]
fn a_user_sees_what_the_daemon_does_pauses_it_and_lets_it_trim() {
    let Some(program) = trimwised().filter(|_| can_run(&["mkfs.xfs"])) else { return };
    let disk = Loop::xfs(400 * MIB);
    let before = disk.discards().1; // from earlier uses of the loop device
    let mut daemon = Daemon::started(program.to_str().unwrap(), &table(&disk.point, "policy = \"lazy\""));
    let (run, point) = (daemon.run().to_str().unwrap().to_owned(), disk.point.to_str().unwrap());
    let talk = |arguments: &[&str]| trimwise(&[arguments, &["--run", &run]].concat());
    daemon.wait_until(&disk.point, "looked at", |status| status["mapped"] == true);
    said(&talk(&["status"]), &["mount", "waiting", "lazy", "left"]);
    said(
        &talk(&["explain", point]),
        &["Policy: lazy.", "What would change that: ", "Untrimmed free space: "],
    );
    assert_eq!(disk.discards().1, before, "lazy leaves what was free before");

    let data_of = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_slice(&talk(&[arguments, &["--json", "-"]].concat()).stdout).unwrap()
    };
    assert_eq!(
        data_of(&["pause", &format!("{point}/")]),
        serde_json::json!({"schema": 1, "mount_points": [point], "still_trimming": [], "not_saved": null})
    );
    said(&talk(&["pause", point]), &["paused: "]);
    said(&talk(&["explain", point]), &["Paused by `trimwise pause`."]);
    refused(1, &talk(&["trim", point, "--now"]), &["it is paused"]);
    said(&talk(&["resume"]), &["resumed: "]);
    let free = data_of(&["trim", point, "--now"]);
    assert!(free["waiting_bytes"].as_u64() > Some(200 * MIB) && free["mount_point"] == point, "{free}");
    said(&talk(&["trim", point, "--now"]), &["trimwised", "untrimmed,", "explain"]);
    daemon.wait_until_trimmed(&disk.point);
    assert!(disk.discards().1 - before > 200 * MIB);
    waiting_ends_with_the_trim(&daemon, &disk, &data_of);
    let json = talk(&["status", "--json", "-"]);
    let data: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&data["file_systems"][0]["mount_point"], &data["config_problem"]),
        (&point.into(), &serde_json::Value::Null)
    );
    said(
        &talk(&["history", point, "--limit", "100"]),
        &["found: Managed with the policy lazy.", "paused: Paused by a user."],
    );
    let past = data_of(&["history", point]);
    assert_eq!((&past["mount_point"], &past["entries"][0]["kind"]), (&point.into(), &"found".into()));
    for command in
        [&["explain", "/proc"][..], &["history", "/proc"], &["pause", "/proc"], &["trim", "/proc", "--now"]]
    {
        refused(2, &talk(command), &["/proc: no file system that can be trimmed is mounted there"]);
    }
    daemon.end();
    refused(1, &talk(&["status"]), &["trimwised is not listening"]);
}

/// When `--wait` returns, everything was sent: no further check of the daemon is needed.
fn waiting_ends_with_the_trim(daemon: &Daemon, disk: &Loop, data_of: &dyn Fn(&[&str]) -> serde_json::Value) {
    let (point, sent) = (disk.point.to_str().unwrap(), disk.discards().1);
    let waited = data_of(&["trim", point, "--now", "--wait"]);
    let figure = |name: &str| waited[name].as_u64().unwrap();
    assert_eq!((&waited["outcome"], &waited["mount_point"]), (&"done".into(), &point.into()), "{waited}");
    // Without the tracepoint of failed requests, nothing that XFS sends can be verified.
    let sent_bytes = figure("trimmed_bytes") + figure("unverified_bytes");
    assert!(sent_bytes > 200 * MIB && figure("slices") > 0, "{waited}");
    assert_eq!((figure("slices_failed"), figure("waiting_bytes")), (0, 0), "{waited}");
    assert!(disk.discards().1 - sent > 200 * MIB, "{waited}");
    assert_eq!(daemon.status(&disk.point)["asked"], "done");
}

/// Uses a device with discards so small that the trim takes far longer than the test takes to end the waiting.
#[test]
fn the_end_of_waiting_has_its_reason() {
    let Some(program) = trimwised().filter(|_| can_run(&["mkfs.xfs", "xfs_io"])) else { return };
    let mut disk = Loop::xfs(8 << 30);
    disk.limit_discards(4096);
    let config = table(&disk.point, "policy = \"off\"");
    let mut daemon = Daemon::started(program.to_str().unwrap(), &config);
    let path = disk.point.clone();
    let point = path.to_str().unwrap().to_owned();
    let run = daemon.run();
    let talk =
        |arguments: &[&str]| said(&trimwise(&[arguments, &["--run", run.to_str().unwrap()]].concat()), &[]);
    let wait = |before: &mut dyn FnMut(), then: &mut dyn FnMut(&Child)| {
        daemon.wait_until(&path, "seen", serde_json::Value::is_object);
        // A pending request is called off.
        talk(&["pause", &point]);
        talk(&["resume", &point]);
        before();
        let mut command = Command::new(env!("CARGO_BIN_EXE_trimwise"));
        command.args(["trim", &point, "--now", "--wait", "--json", "-", "--run"]).arg(&run);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        daemon.wait_until(&path, "asked", |status| status["asked"] == "under-way");
        then(&child);
        let output = child.wait_with_output().unwrap();
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (output, told["outcome"].as_str().unwrap().to_owned())
    };

    let (output, outcome) =
        wait(&mut || (), &mut |child| drop(sh("kill", &["-s", "INT", &child.id().to_string()])));
    refused(130, &output, &["no longer waiting; trimwised continues"]);
    assert_eq!(outcome, "interrupted");
    assert_eq!(daemon.status(&path)["asked"], "under-way", "the trim goes on");

    let (output, outcome) = wait(&mut || (), &mut |_| talk(&["pause", &point]));
    refused(1, &output, &["it was paused"]);
    assert_eq!(outcome, "paused");

    let (output, outcome) = wait(&mut || (), &mut |_| drop(sh("umount", &["--lazy", &point])));
    disk.was_unmounted();
    refused(1, &output, &["it was unmounted"]);
    assert_eq!(outcome, "gone");

    disk.mount();
    let (output, outcome) = wait(
        &mut || {
            sh("xfs_io", &["-x", "-c", "shutdown", &point]);
        },
        &mut |_| (),
    );
    refused(1, &output, &["it will be tried again in"]);
    assert_eq!(outcome, "failed");
    daemon.end();

    disk.remount();
    daemon.arguments = vec!["--dry-run"];
    daemon.start();
    daemon.wait_until(&disk.point, "seen", serde_json::Value::is_object);
    let run = daemon.run();
    let dry = trimwise(&["trim", &point, "--now", "--wait", "--run", run.to_str().unwrap()]);
    refused(2, &dry, &["--dry-run and sends nothing; use --now alone"]);
    daemon.end();
}

#[test]
fn others_than_root_read_the_status_only_if_they_may_and_command_nothing() {
    let Some(program) = trimwised().filter(|_| can_run(&[])) else { return };
    // A place that the user nobody can reach, with the program in it.
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let client = folder.path().join("trimwise");
    fs::copy(env!("CARGO_BIN_EXE_trimwise"), &client).unwrap();
    fs::copy(&program, folder.path().join("trimwised")).unwrap();
    let mut daemon = Daemon::started(program.to_str().unwrap(), "");
    let run = daemon.run();
    fs::set_permissions(run.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new(&client);
        command
            .args(arguments)
            .args(["--run".as_ref(), run.as_os_str()])
            .uid(NOBODY)
            .gid(NOBODY)
            .current_dir("/");
        command.stdin(Stdio::null()).output().unwrap()
    };
    refused(1, &as_nobody(&["status"]), &["only root and the group"]);
    let by_nobody = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(folder.path().join("trimwised"))
        .args(["--config", "/etc/trimwise.toml", "--run", "/nonexistent"])
        .output();
    refused(1, &by_nobody.unwrap(), &["CAP_SYS_ADMIN is missing"]);
    daemon.end();
    daemon.configure("status = \"all\"\n");
    daemon.start();
    said(&as_nobody(&["status"]), &["No file system is managed."]);
    // One user cannot keep the others out.
    let connect = |_| UnixStream::connect(daemon.run().join("status.sock")).unwrap();
    let idle: Vec<UnixStream> = (0..60).map(connect).collect();
    said(&as_nobody(&["status"]), &["No file system is managed."]);
    drop(idle);
    refused(1, &as_nobody(&["pause", "--all"]), &["only root and the configured group may send commands"]);
    for file in ["lock", "history.db"] {
        if let Ok(found) = fs::metadata(daemon.state(file)) {
            assert_eq!(found.permissions().mode() & 0o077, 0, "{file}");
        }
    }
    assert_eq!(fs::metadata(daemon.state("")).unwrap().permissions().mode() & 0o777, 0o700);
    daemon.end();
}

/// Prometheus itself reads the metrics and tries the alerts, and the fleet knows the daemon's status.
#[test]
fn many_hosts_are_watched_with_prometheus_and_the_fleet_command() {
    let Some(program) = trimwised().filter(|_| can_run(&["mkfs.ext4", "promtool"])) else { return };
    let disk = Loop::ext4(64 * MIB);
    let folder = tempfile::tempdir().unwrap();
    let metrics = folder.path().join("trimwise.prom");
    let config = format!("metrics-file = \"{}\"\n{}", metrics.display(), table(&disk.point, ""));
    let daemon = Daemon::started(program.to_str().unwrap(), &config);
    daemon.wait_until_trimmed(&disk.point);
    while !metrics.exists() {
        std::thread::sleep(Duration::from_millis(50));
    }
    let promtool = |words: &[&str], input: Stdio| {
        let packaging = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");
        let output =
            Command::new("promtool").args(words).stdin(input).current_dir(packaging).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}{}", text(&output.stdout), text(&output.stderr));
    };
    promtool(&["check", "metrics"], fs::File::open(&metrics).unwrap().into());
    promtool(&["check", "rules", "prometheus-alerts.yaml"], Stdio::null());
    promtool(&["test", "rules", "prometheus-alerts-test.yaml"], Stdio::null());

    let status = folder.path().join("here.json");
    let run = daemon.run();
    said(&trimwise(&["status", "--run", run.to_str().unwrap(), "--json", status.to_str().unwrap()]), &[]);
    let fleet = trimwise(&["fleet", status.to_str().unwrap()]);
    said(&fleet, &["1 host with 1 managed file system", "All follow judicious.", "here "]);
}

/// Until the first map, which comes with the first sweep, nobody knows what XFS has untrimmed, nor what btrfs has that
/// the kernel trims.
#[test]
fn regression_untrimmed_space_that_nobody_has_read_is_shown_as_unknown() {
    let programs = ["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"];
    let Some(program) = trimwised().filter(|_| can_run(&programs)) else { return };
    let [ext4, xfs] = [Loop::ext4(400 * MIB), Loop::xfs(400 * MIB)];
    let btrfs = Loop::new(400 * MIB, &["mkfs.btrfs", "-q", "-K"]);
    // Online discard of a loop device, whether it is a default or not.
    sh("mount", &["-o", "remount,discard=async", btrfs.point.to_str().unwrap()]);
    let folder = tempfile::tempdir().unwrap();
    let metrics = folder.path().join("m.prom");
    let config = format!(
        "metrics-file = {metrics:?}\n{}\n[mount.{:?}]\npolicy = \"batch:1d\"\n[mount.{:?}]\n",
        table(&ext4.point, ""),
        xfs.point,
        btrfs.point
    );
    let mut daemon = Daemon::started(program.to_str().unwrap(), &config);
    let run = daemon.run().to_str().unwrap().to_owned();
    let talk = |arguments: &[&str]| text(&trimwise(&[arguments, &["--run", &run]].concat()).stdout);
    daemon.wait_until(&ext4.point, "read", |status| status["mapped"] == true);
    for disk in [&xfs, &btrfs] {
        let status = daemon.wait_until(&disk.point, "seen", serde_json::Value::is_object);
        let bytes = (&status["waiting_bytes"], &status["left_bytes"]);
        assert_eq!(bytes, (&serde_json::Value::Null, &serde_json::Value::Null), "{status:#}");
        let shown = talk(&["status", disk.point.to_str().unwrap()]);
        assert!(shown.contains("  unknown  unknown  ") && !shown.contains("~0 B"), "{shown}");
        let explained = talk(&["explain", disk.point.to_str().unwrap()]);
        assert!(explained.contains("It is not known how much"), "{explained}");
    }
    let host = folder.path().join("host.json");
    talk(&["status", "--json", host.to_str().unwrap()]);
    let fleet = text(&trimwise(&["fleet", host.to_str().unwrap()]).stdout);
    // The folder's name is long, so the table is in two parts.
    let row = |disk: &Loop| {
        let parts = fleet.lines().filter(|line| line.contains(&format!("{}  ", disk.point.display())));
        parts.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
    };
    assert!(row(&xfs).contains(" unknown ") && row(&xfs).contains(" - "), "{fleet}");
    assert!(row(&btrfs).contains(" online ") && row(&btrfs).contains(" - "), "{fleet}");
    assert!(!row(&ext4).contains(" unknown ") && !row(&ext4).contains(" - "), "{fleet}");
    let metrics = in_time(|| match fs::read_to_string(&metrics) {
        Ok(text) if text.contains("trimwise_untrimmed_unknown_mounts 2\n") => Ok(text),
        other => Err(format!("{other:?}")),
    });
    let series =
        metrics.lines().filter(|line| line.starts_with("trimwise_waiting_bytes{")).collect::<Vec<_>>();
    assert!(matches!(series[..], [one] if one.contains("fstype=\"ext4\"")), "{series:?}");
    daemon.end();
}

/// It said "nothing trims it today" of what the daemon had just trimmed: the folder was looked for below `/`, and
/// without `--run` no daemon was found.
#[test]
fn regression_conclusions_know_a_daemon_whose_run_folder_is_elsewhere() {
    let Some(program) = trimwised().filter(|_| can_run(&["mkfs.ext4"])) else { return };
    let disk = Loop::ext4(400 * MIB);
    let point = disk.point.to_str().unwrap();
    let mut daemon = Daemon::started(program.to_str().unwrap(), &table(&disk.point, ""));
    daemon.wait_until_trimmed(&disk.point);
    let run = daemon.run();
    let folder = run.parent().unwrap();
    let in_folder = |line: &str| command_in(folder, line).output().unwrap();
    for line in [
        format!("doctor {point} --run run"),
        format!("doctor {point} --run ../{}/run", folder.file_name().unwrap().to_str().unwrap()),
        format!("doctor {point} --run {}", run.display()),
        format!("doctor {point}"),
    ] {
        let output = in_folder(&format!("{line} --json -"));
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let one = &found["file_systems"][0]["at_intervals"][0];
        assert_eq!(
            (&one["name"], &one["policy"]),
            (&"trimwised".into(), &"trimwised".into()),
            "{line}: {found:#}"
        );
        let shown = text(&in_folder(&line).stdout);
        assert!(!shown.contains("nothing trims it"), "{line}: {shown}");
    }
    for command in ["status", "explain"] {
        let output = in_folder(&format!("{command} {point} --run run --json -"));
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(found["conclusion"]["today"], "trimwised", "{found:#}");
    }
    let shown = text(&in_folder(&format!("status {point} --run run")).stdout);
    assert!(!shown.contains("nothing trims it"), "{shown}");
    refused(1, &in_folder(&format!("explain {point}")), &["elsewhere", run.to_str().unwrap()]);
    // The conclusion is in the JSON of these, but no news in their text.
    for line in [format!("explain {point} --run run"), format!("trim {point} --dry-run")] {
        let found: serde_json::Value =
            serde_json::from_slice(&in_folder(&format!("{line} --json -")).stdout).unwrap();
        let head = found["conclusion"]["head"][0].as_str().unwrap();
        let shown = text(&in_folder(&line).stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!shown.is_empty() && !shown.contains(head), "{line}: {shown}");
        assert_eq!(
            shown.contains(&format!("`trimwise advise --here {point}`")),
            line.starts_with("explain"),
            "{shown}"
        );
    }
    daemon.end();
}
