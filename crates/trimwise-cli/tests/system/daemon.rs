//! The commands that talk to a running daemon, as a user meets them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use trimwise_testing::daemon::{Daemon, table};
use trimwise_testing::loops::{Loop, can_run};
use trimwise_testing::trimwised;

use crate::common::{refused, said, trimwise};

const MIB: u64 = 1 << 20;
const NOBODY: u32 = 65_534;

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
    assert_eq!(
        data_of(&["pause", &format!("{point}/")]),
        serde_json::json!({"schema": 1, "mount_points": [point], "not_saved": null})
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
    refused(1, &talk(&["status"]), &["no trimwised answers there"]);
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
    refused(
        1,
        &as_nobody(&["pause", "--all"]),
        &["only root and the group of the configuration may command"],
    );
    for file in ["lock", "history.db"] {
        if let Ok(found) = fs::metadata(daemon.state(file)) {
            assert_eq!(found.permissions().mode() & 0o077, 0, "{file}");
        }
    }
    assert_eq!(fs::metadata(daemon.state("")).unwrap().permissions().mode() & 0o777, 0o700);
    daemon.end();
}
