//! Talking to the daemon: it stays within reach whatever is asked of it.

#[path = "common/daemon.rs"]
mod daemon;
#[path = "common/loops.rs"]
mod loops;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;

use daemon::{Daemon, table};
use loops::{Loop, can_run};
use trimwise_host::daemon::control::{Client, Request};

const MIB: u64 = 1 << 20;

fn started(config: &str) -> Daemon {
    Daemon::started(env!("CARGO_BIN_EXE_trimwised"), config)
}

fn reload(daemon: &Daemon) -> String {
    Client::connect(&daemon.run()).unwrap().ask(&Request::Reload).unwrap_err().to_string()
}

#[test]
fn a_configuration_whose_sockets_cannot_be_had_changes_nothing() {
    if !can_run(&[]) {
        return;
    }
    let mut daemon = started("status = \"group\"\n");
    // The new socket comes into its place from here.
    let beside = daemon.run().join("control.sock.new");
    fs::create_dir_all(beside.join("in the way")).unwrap();
    daemon.configure("status = \"all\"\n");
    let why = reload(&daemon);
    assert!(why.contains("control.sock"), "{why}");
    assert!(!daemon.run().join("status.sock").exists());
    fs::remove_dir_all(&beside).unwrap();

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    daemon.configure(&format!("status = \"all\"\nmetrics-listen = \"{address}\"\n"));
    let why = reload(&daemon);
    assert!(why.contains("metrics-listen"), "{why}");
    assert!(!daemon.run().join("status.sock").exists(), "nothing of it is in effect");
    assert!(daemon.ask(&Request::Status)["config_problem"].to_string().contains("metrics-listen"));

    drop(taken);
    // A process that another test starts may have the socket until it is another program.
    let is_read = || Client::connect(&daemon.run()).unwrap().ask(&Request::Reload).is_ok();
    assert!((0..100).any(|_| is_read() || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        false
    }));
    assert!(daemon.run().join("status.sock").exists() && !beside.exists());
    assert!(daemon.ask(&Request::Status)["config_problem"].is_null());
    daemon.configure("status = \"group\"\n");
    daemon.ask(&Request::Reload);
    assert!(!daemon.run().join("status.sock").exists());
    daemon.ask(&Request::Status);
    daemon.end();
}

#[test]
fn a_thousand_requests_at_once_are_answered_in_turn_and_others_beside_them() {
    if !can_run(&[]) {
        return;
    }
    const REQUESTS: usize = 1_000;
    let mut daemon = started("");
    let mut many = UnixStream::connect(daemon.run().join("control.sock")).unwrap();
    let lines = Request::Status.line().repeat(REQUESTS);
    let mut answers = BufReader::new(many.try_clone().unwrap());
    let writer = std::thread::spawn(move || many.write_all(lines.as_bytes()).map(|()| many));
    daemon.ask(&Request::Status); // nobody reads the others yet
    let mut line = String::new();
    for i in 0..REQUESTS {
        line.clear();
        answers.read_line(&mut line).unwrap();
        assert!(line.contains("file_systems"), "{i}: {line}");
    }
    drop(writer.join().unwrap().unwrap());
    daemon.end();
}

#[test]
fn a_pause_outlives_another_configuration() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(64 * MIB);
    let mut daemon = started(&table(&disk.point, ""));
    daemon.wait_until(&disk.point, "managed", |status| status["policy"] == "judicious");
    daemon.ask(&Request::Pause { mount: Some(disk.point.clone()) });
    daemon.configure(&table(&disk.point, "policy = \"off\""));
    daemon.ask(&Request::Reload);
    let is_paused = |status: &serde_json::Value| status["reason"]["code"] == "paused";
    daemon.wait_until(&disk.point, "paused anew", |status| status["policy"] == "off" && is_paused(status));
    daemon.ask(&Request::Resume { mount: None });
    daemon.wait_until(&disk.point, "resumed", |status| !status.is_null() && !is_paused(status));
    // The next pause is news again.
    let told = || {
        let history = daemon.ask(&Request::History { mount: disk.point.clone(), limit: 100 });
        history["entries"].as_array().unwrap().iter().filter(|event| event["kind"] == "paused").count()
    };
    let before = told();
    daemon.ask(&Request::Pause { mount: None });
    daemon.wait_until(&disk.point, "told", |_| told() == before + 1);
    daemon.end();
}
