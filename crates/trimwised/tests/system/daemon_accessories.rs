//! Failures of the daemon's other parts: metrics, history, state. It still trims, reports the problem, and recovers
//! when it can.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;

use crate::TRIMWISED;
use crate::daemon_hangs::{problem, wait_until, with_state_on};
use trimwise_linux::daemon::control::Request;
use trimwise_testing::daemon::{Daemon, table};
use trimwise_testing::loops::{Loop, can_run};

const MIB: u64 = 1 << 20;

/// A loopback address derived from the process id, with a port that is never assigned, so that it is unique.
fn own_address(port: u16) -> String {
    let [_, a, b, c] = std::process::id().to_be_bytes();
    format!("127.{}.{b}.{c}:{port}", a | 0x80)
}

#[test]
fn regression_failing_metrics_and_history_are_reported_and_retried() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(64 * MIB);
    let address = own_address(9201);
    let taken = TcpListener::bind(&address).unwrap();
    let mut daemon = Daemon::prepared(TRIMWISED, "");
    let folder = daemon.run().with_file_name("not there");
    daemon.configure(&format!(
        "metrics-listen = \"{address}\"\nmetrics-socket = \"{0}/metrics.sock\"\nmetrics-file = \"{0}/x.prom\"\n{1}",
        folder.display(),
        table(&disk.point, "")
    ));
    fs::create_dir(daemon.state("")).unwrap();
    // It is a link, and every name to which it could be moved is taken.
    std::os::unix::fs::symlink("/nonexistent/x", daemon.state("history.db")).unwrap();
    let aside = |n: u32| format!("history.db.aside{}", if n == 0 { String::new() } else { format!("-{n}") });
    (0..100).for_each(|n| fs::write(daemon.state(&aside(n)), "").unwrap());
    daemon.start();
    daemon.wait_until_trimmed(&disk.point);
    let past = daemon.ask(&Request::History { mount: disk.point.clone(), limit: 9 });
    assert!(past.to_string().contains("found"), "from memory: {past}");
    wait_until(
        "told",
        || (),
        || {
            let metrics = problem(&daemon, "metrics_problem");
            let all = ["metrics-listen", "metrics-socket", "metrics-file"];
            all.iter().all(|key| metrics.contains(key))
                && problem(&daemon, "history_problem").contains("history.db")
        },
    );
    let log = daemon.wait_until_said("metrics-file");
    assert_eq!(["metrics-listen", "metrics-socket"].map(|key| log.matches(key).count()), [1, 1], "{log}");

    drop(taken);
    fs::create_dir(&folder).unwrap();
    fs::remove_file(daemon.state("history.db")).unwrap();
    wait_until(
        "mended",
        || (),
        || {
            daemon.ask(&Request::History { mount: disk.point.clone(), limit: 9 });
            problem(&daemon, "metrics_problem").is_empty() && problem(&daemon, "history_problem").is_empty()
        },
    );
    assert!(fs::read_to_string(folder.join("x.prom")).unwrap().contains("trimwise_uptime_seconds"));
    assert!(TcpStream::connect(&address).is_ok() && UnixStream::connect(folder.join("metrics.sock")).is_ok());
    daemon.end();
    assert!(!folder.join("metrics.sock").exists());
}

#[test]
fn regression_a_full_state_disk_is_reported_and_written_when_there_is_room() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let (disk, full) = (Loop::ext4(64 * MIB), Loop::ext4(16 * MIB));
    let filler = full.point.join("filler");
    fs::create_dir(&filler).unwrap();
    // To the last block, including those that ext4 reserves.
    for bytes in [4 << 20, 64 << 10, 1] {
        let mut files = (0..).map(|i| filler.join(format!("{bytes} {i}")));
        while fs::write(files.next().unwrap(), vec![1; bytes]).is_ok() {
            full.sync();
        }
    }
    let mut daemon = with_state_on(&full, &table(&disk.point, ""));
    daemon.start();
    daemon.wait_until_trimmed(&disk.point);
    let said = daemon.ask(&Request::Pause { mount: None, all: true })["not_saved"].to_string();
    assert!(said.contains("the next daemon will not know"), "{said}");
    assert!(
        problem(&daemon, "state_problem").contains("No space left"),
        "{}",
        problem(&daemon, "state_problem")
    );
    fs::remove_dir_all(&filler).unwrap();
    wait_until("mended", || (), || problem(&daemon, "state_problem").is_empty());
    let paused = || fs::read_to_string(full.point.join("state/paused.json")).unwrap_or_default();
    wait_until("saved", || (), || paused().contains(disk.point.to_str().unwrap()));
    daemon.end();
}

#[test]
fn regression_half_requests_lock_nobody_out_of_the_metrics() {
    if !can_run(&[]) {
        return;
    }
    let address = own_address(9202);
    let mut daemon = Daemon::prepared(TRIMWISED, "");
    let socket = daemon.run().join("metrics.sock");
    daemon.configure(&format!("metrics-listen = \"{address}\"\nmetrics-socket = \"{}\"\n", socket.display()));
    daemon.start();
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let mut half = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
        half.push(stream);
    }
    let whole = "GET /metrics HTTP/1.1\r\n\r\n";
    let mut by_address = TcpStream::connect(&address).unwrap();
    let mut by_socket = UnixStream::connect(&socket).unwrap();
    let (mut one, mut other) = (String::new(), String::new());
    by_address.write_all(whole.as_bytes()).unwrap();
    by_address.read_to_string(&mut one).unwrap();
    by_socket.write_all(whole.as_bytes()).unwrap();
    by_socket.read_to_string(&mut other).unwrap();
    assert!(one.contains("trimwise_build_info{version=") && other.contains("trimwise_build_info{version="));
    // A new group or path takes effect at once; a worker removes the old socket, since its folder may hang.
    daemon.configure(&format!("metrics-socket = \"{}.other\"\n", socket.display()));
    daemon.ask(&Request::Reload);
    assert!(UnixStream::connect(socket.with_extension("sock.other")).is_ok());
    wait_until("removed", || (), || !socket.exists());
    daemon.end();
}
