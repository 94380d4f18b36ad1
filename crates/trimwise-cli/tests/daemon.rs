//! The commands that talk to the daemon, `config check` and `doctor`, as a user or a script meets them.

#[path = "../../trimwise-host/tests/common/daemon.rs"]
mod daemon;
#[path = "../../trimwise-host/tests/common/loops.rs"]
mod loops;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use daemon::{Daemon, table};
use loops::{Loop, can_run};

const MIB: u64 = 1 << 20;
const NOBODY: u32 = 65_534;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimwise"));
    command.args(arguments).env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

fn trimwise(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn said(output: &Output, words: &[&str]) {
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    words.iter().for_each(|words| assert!(said.contains(words), "'{words}' is not in: {said}"));
    assert!(said.lines().all(|line| line.chars().count() <= 100), "{said}");
}

#[track_caller]
fn refused(code: i32, output: &Output, words: &[&str]) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{message}{}", text(&output.stdout));
    words.iter().for_each(|words| assert!(message.contains(words), "'{words}' is not in: {message}"));
}

/// The daemon is built with all tests of the workspace; without it there is nothing to talk to.
fn trimwised() -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_BIN_EXE_trimwise")).with_file_name("trimwised");
    let found = program.is_file().then_some(program);
    if found.is_none() {
        let message =
            "SKIPPED: trimwised is not built, so no daemon is talked to; cargo test --workspace builds it\n";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), message.as_bytes());
    }
    found
}

#[test]
fn without_a_daemon_it_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().to_str().unwrap();
    for arguments in [&["status"][..], &["explain", "/"], &["history", "/"], &["pause"], &["resume", "/"]] {
        let output = trimwise(&[arguments, &["--run", run]].concat());
        refused(2, &output, &["control.sock: no trimwised answers there", "systemctl start trimwised"]);
    }
    refused(2, &trimwise(&["trim", "/", "--now", "--run", run]), &["no trimwised answers"]);
    refused(2, &trimwise(&["trim", "/", "--now", "--dry-run"]), &["cannot be used with"]);
}

#[test]
fn a_configuration_is_checked_and_all_that_is_wrong_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trimwise.toml");
    let path = file.to_str().unwrap();
    refused(2, &trimwise(&["config", "check", path]), &["trimwise.toml: No such file"]);
    fs::write(&file, "").unwrap();
    said(
        &trimwise(&["config", "check", path]),
        &["sound. Manages all file systems that can be trimmed, with judicious"],
    );
    fs::write(&file, "group = \"nobody-is-in-this\"\n").unwrap();
    said(&trimwise(&["config", "check", path]), &["sound.", "there is no such group on this host"]);
    fs::write(&file, "policy = \"ideal\"\n[mount.\"/home\"]\nslice = 3\n").unwrap();
    fs::create_dir(folder.path().join("trimwise.toml.d")).unwrap();
    fs::write(folder.path().join("trimwise.toml.d/a.toml"), "group = 7\n").unwrap();
    let output = trimwise(&["config", "check", path]);
    refused(
        2,
        &output,
        &[
            "error: 3 things are wrong:\n",
            "trimwise.toml:1: policy:",
            "trimwise.toml:3: mount.\"/home\".slice:",
            "a.toml:1: group: 7",
        ],
    );
    let json = trimwise(&["config", "check", path, "--json", "-"]);
    let data: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((data["errors"].as_array().unwrap().len(), &data["errors"][0]["line"]), (3, &1.into()));
}

#[test]
fn the_doctor_says_what_is_wrong_with_exit_code_1() {
    let host = tempfile::tempdir().unwrap();
    let file = |path: &str, text: &str| {
        let path = host.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    file("proc/1/mountinfo", "22 1 8:16 / /media rw - ext4 /dev/sdb rw\n");
    file("sys/devices/usb1/host1/block/sdb/dev", "8:16");
    file("sys/devices/usb1/host1/block/sdb/queue/discard_max_bytes", "0");
    fs::create_dir_all(host.path().join("sys/dev/block")).unwrap();
    std::os::unix::fs::symlink("../../devices/usb1/host1/block/sdb", host.path().join("sys/dev/block/8:16"))
        .unwrap();
    let root = host.path().to_str().unwrap();
    let output = trimwise(&["doctor", "--host-root", root]);
    refused(1, &output, &["error: 1 thing is wrong"]);
    let shown = text(&output.stdout);
    for words in
        ["/media: ext4 on /dev/sdb, nodiscard: TRIM does not pass", "the USB adapter of sdb", "mended by: "]
    {
        assert!(shown.contains(words), "'{words}' is not in: {shown}");
    }
    let json = trimwise(&["doctor", "/media", "--host-root", root, "--json", "-"]);
    let data: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (json.status.code(), &data["wrong"], &data["file_systems"][0]["passes"]),
        (Some(1), &1.into(), &false.into())
    );
    refused(
        2,
        &trimwise(&["doctor", "/srv", "--host-root", root]),
        &["/srv: no file system", "such as /media"],
    );
}

#[test]
fn a_user_sees_what_the_daemon_does_pauses_it_and_lets_it_trim() {
    let Some(program) = trimwised().filter(|_| can_run(&["mkfs.xfs"])) else { return };
    let disk = Loop::xfs(400 * MIB);
    let before = disk.discards().1; // of whoever had the loop device before
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
    assert_eq!(data_of(&["pause", &format!("{point}/")]), serde_json::json!({"mount_points": [point]}));
    said(&talk(&["pause", point]), &["paused: "]);
    said(&talk(&["explain", point]), &["Paused by `trimwise pause`."]);
    refused(1, &talk(&["trim", point, "--now"]), &["it is paused"]);
    said(&talk(&["resume"]), &["resumed: "]);
    let free = data_of(&["trim", point, "--now"]);
    assert!(free["waiting_bytes"].as_u64() > Some(200 * MIB) && free["mount_point"] == point, "{free}");
    said(&talk(&["trim", point, "--now"]), &["trimwised", "untrimmed,", "explain"]);
    daemon.wait_until_trimmed(&disk.point);
    assert!(disk.discards().1 - before > 200 * MIB);
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
    refused(2, &talk(&["status"]), &["no trimwised answers there"]);
}

#[test]
fn others_than_root_read_the_status_only_if_they_may_and_command_nothing() {
    let Some(program) = trimwised().filter(|_| can_run(&[])) else { return };
    // Where nobody can reach it, and the program with it.
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
    refused(2, &as_nobody(&["status"]), &["only root and the group"]);
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
    refused(1, &as_nobody(&["pause"]), &["only root and the group of the configuration may command"]);
    for file in ["lock", "history.db"] {
        if let Ok(found) = fs::metadata(daemon.state(file)) {
            assert_eq!(found.permissions().mode() & 0o077, 0, "{file}");
        }
    }
    assert_eq!(fs::metadata(daemon.state("")).unwrap().permissions().mode() & 0o777, 0o700);
    daemon.end();
}
