//! The daemon's sockets: it stays responsive whatever is requested.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::TRIMWISED;
use trimwise_linux::daemon::control::{Client, Request};
use trimwise_linux::doctor::examine;
use trimwise_linux::host_root::HostRoot;
use trimwise_testing::daemon::{Daemon, table};
use trimwise_testing::loops::{Loop, can_run, sh};
use trimwise_testing::skipped;

const MIB: u64 = 1 << 20;

fn started(config: &str) -> Daemon {
    Daemon::started(TRIMWISED, config)
}

fn reload(daemon: &Daemon) -> String {
    Client::connect(&daemon.run()).unwrap().ask(&Request::Reload).unwrap_err().to_string()
}

#[test]
fn a_configuration_whose_sockets_cannot_be_opened_changes_nothing() {
    if !can_run(&[]) {
        return;
    }
    let mut daemon = started("status = \"group\"\n");
    // The new socket is created here before it is moved into place.
    let temporary = daemon.run().join("control.sock.new");
    fs::create_dir_all(temporary.join("in the way")).unwrap();
    daemon.configure("status = \"all\"\n");
    let why = reload(&daemon);
    assert!(why.contains("control.sock"), "{why}");
    assert!(!daemon.run().join("status.sock").exists());
    fs::remove_dir_all(&temporary).unwrap();

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    daemon.configure(&format!("status = \"all\"\nmetrics-listen = \"{address}\"\n"));
    let why = reload(&daemon);
    assert!(why.contains("metrics-listen"), "{why}");
    assert!(!daemon.run().join("status.sock").exists(), "nothing of it is in effect");
    assert!(daemon.ask(&Request::Status)["config_problem"].to_string().contains("metrics-listen"));

    drop(taken);
    // A child of another test may hold the socket until it execs.
    let is_read = || Client::connect(&daemon.run()).unwrap().ask(&Request::Reload).is_ok();
    assert!((0..100).any(|_| is_read() || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        false
    }));
    assert!(daemon.run().join("status.sock").exists() && !temporary.exists());
    assert!(daemon.ask(&Request::Status)["config_problem"].is_null());
    daemon.configure("status = \"group\"\n");
    daemon.ask(&Request::Reload);
    assert!(!daemon.run().join("status.sock").exists());
    daemon.ask(&Request::Status);
    daemon.end();
}

#[test]
fn a_thousand_requests_at_once_do_not_block_other_clients() {
    if !can_run(&[]) {
        return;
    }
    const REQUESTS: usize = 1_000;
    let mut daemon = started("");
    let mut many = UnixStream::connect(daemon.run().join("control.sock")).unwrap();
    let lines = Request::Status.line().repeat(REQUESTS);
    let mut answers = BufReader::new(many.try_clone().unwrap());
    let writer = std::thread::spawn(move || many.write_all(lines.as_bytes()).map(|()| many));
    daemon.ask(&Request::Status); // the other responses are still unread
    let mut line = String::new();
    for i in 0..REQUESTS {
        line.clear();
        answers.read_line(&mut line).unwrap();
        assert!(line.contains("file_systems"), "{i}: {line}");
    }
    drop(writer.join().unwrap().unwrap());
    daemon.end();
}

/// Parses Prometheus text, and checks that each sample belongs to a family with help and type.
fn samples(text: &str) -> Vec<(String, f64)> {
    let mut family = "";
    let mut samples = Vec::new();
    for line in text.lines() {
        if let Some(words) = line.strip_prefix("# HELP ") {
            family = words.split(' ').next().unwrap();
        } else if let Some(words) = line.strip_prefix("# TYPE ") {
            let (name, kind) = words.split_once(' ').unwrap();
            assert!(name == family && ["counter", "gauge"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert_eq!(name.split('{').next().unwrap(), family, "{line}");
            samples.push((name.to_owned(), value.parse().unwrap()));
        }
    }
    samples
}

#[test]
fn metrics_are_served_on_loopback_and_written_to_a_file() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(64 * MIB);
    // A loopback address derived from the process id, with a port that is never assigned, so that it is unique.
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let address = format!("127.{}.{b}.{c}:9108", a | 0x80);
    let mut daemon = Daemon::prepared(TRIMWISED, "");
    let file = daemon.run().with_file_name("trimwise.prom");
    let metrics = format!("metrics-listen = \"{address}\"\nmetrics-file = \"{}\"\n", file.display());
    daemon.configure(&(metrics.clone() + &table(&disk.point, "")));
    daemon.start();
    daemon.wait_until_trimmed(&disk.point);
    let get = |path: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    };
    let of = |samples: &[(String, f64)], name: &str| {
        let found = samples.iter().find(|(found, _)| found == name);
        found.unwrap_or_else(|| panic!("{name} is not among {samples:?}")).1
    };
    let node = disk.node();
    let label =
        format!("{{mountpoint=\"{}\",device=\"{}\",fstype=\"ext4\"}}", disk.point.display(), node.display());
    let (status, served) = get("/metrics");
    assert_eq!(status, "HTTP/1.1 200 OK");
    let served = samples(&served);
    assert!(of(&served, &format!("trimwise_trimmed_bytes_total{label}")) > 30e6);
    assert_eq!(
        of(&served, &format!("trimwise_size_bytes{label}")),
        daemon.status(&disk.point)["total_bytes"].as_f64().unwrap()
    );
    for name in ["trimwise_config_broken", "trimwise_history_broken", &format!("trimwise_trouble{label}")] {
        assert_eq!(of(&served, name), 0.0, "{name}");
    }
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    for name in ["trimwise_last_trim_timestamp_seconds", "trimwise_last_look_timestamp_seconds"] {
        let at = of(&served, &format!("{name}{label}"));
        assert!((now - 300.0..=now).contains(&at), "{name}: {at} {now}");
    }
    assert_eq!(of(&served, &format!("trimwise_build_info{{version=\"{}\"}}", trimwise::VERSION)), 1.0);
    assert!(of(&served, "trimwise_uptime_seconds") < 300.0);
    assert!(get("/").0.contains("404"));

    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(300);
    let written = loop {
        match std::fs::read_to_string(&file) {
            Ok(text) => break samples(&text),
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}: {}", daemon.log()),
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    let names = |samples: &[(String, f64)]| samples.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let is_lasting = |name: &String| !name.contains("request_seconds"); // only if there was any
    let lasting =
        |samples: &[(String, f64)]| names(samples).into_iter().filter(is_lasting).collect::<Vec<_>>();
    assert_eq!(lasting(&written), lasting(&served));

    daemon.configure(&format!("{metrics}policy = \"nonsense\"\n"));
    reload(&daemon);
    assert_eq!(of(&samples(&get("/metrics").1), "trimwise_config_broken"), 1.0);
    daemon.end();
}

#[test]
fn another_pace_keeps_the_counters() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(64 * MIB);
    let mut daemon = started(&table(&disk.point, ""));
    let before = daemon.wait_until_trimmed(&disk.point);
    daemon.configure(&table(&disk.point, "slice-ms = 7\nuntrimmed-max = 5"));
    daemon.ask(&Request::Reload);
    let after = daemon.status(&disk.point);
    let trimmed = |status: &serde_json::Value| status["totals"]["trimmed_bytes"].as_u64();
    assert!(trimmed(&after) >= trimmed(&before) && trimmed(&before) > Some(0), "{after:#}");
    let explained = daemon.ask(&Request::Explain { mount: disk.point.clone() }).to_string();
    assert!(explained.contains("A slice should take at most 7 ms"), "{explained}");
    daemon.end();
}

#[test]
fn the_doctor_asks_the_daemon_what_it_trims() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let (disk, other) = (Loop::ext4(64 * MIB), Loop::ext4(64 * MIB));
    // Daemons of tests that run beside this one trim their own mounts.
    let trimmers = examine(&HostRoot::default(), Path::new("/nonexistent"), None).unwrap().trimmers;
    if trimmers.iter().any(|name| !name.starts_with("trimwised")) {
        return skipped("something else trims this host at intervals, which the doctor tells of");
    }
    let mut daemon = started(&table(&disk.point, ""));
    daemon.wait_until(&disk.point, "managed", |status| !status.is_null());
    let found = |daemon: &Daemon, disk: &Loop, wrong: bool| {
        let report = examine(&HostRoot::default(), &daemon.run(), Some(&disk.point)).unwrap();
        let findings = report.file_systems[0].findings.iter();
        findings.filter(|one| one.wrong == wrong).map(|one| one.what.clone()).collect::<String>()
    };
    let said_of = |daemon: &Daemon, disk: &Loop| found(daemon, disk, true);
    assert_eq!(said_of(&daemon, &disk), "");
    let unlisted = "trimwised: the configuration manages only listed file systems";
    assert!(said_of(&daemon, &other).contains(unlisted), "{}", said_of(&daemon, &other));
    daemon.ask(&Request::Pause { mount: None, all: true });
    assert!(said_of(&daemon, &disk).contains("trimwised: it is paused there"));
    daemon.kill();
    assert!(daemon.run().join("control.sock").exists());
    assert_eq!(said_of(&daemon, &disk), "");
    assert!(found(&daemon, &disk, false).contains("nothing gives back the space"));
}

#[test]
fn the_daemon_goes_on_without_a_reader_of_its_log() {
    if !can_run(&[]) {
        return;
    }
    let mut daemon = Daemon::prepared(TRIMWISED, "");
    let (theirs, ours) = std::io::pipe().unwrap();
    let mut child = daemon.command(&[]).stderr(ours).spawn().unwrap();
    drop(theirs);
    let answers =
        || Client::connect(&daemon.run()).and_then(|mut client| client.ask(&Request::Status)).is_ok();
    for _ in 0..3_000 {
        if answers() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(answers());
    daemon.ask(&Request::Reload);
    let still = answers() && child.try_wait().unwrap().is_none();
    sh("kill", &[&child.id().to_string()]);
    assert!(still);
    assert!(child.wait().unwrap().success());
    assert!(!daemon.run().join("control.sock").exists(), "it ended in order");
    daemon.start();
    daemon.end();
}

#[test]
fn a_pause_outlives_the_daemon() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(64 * MIB);
    let mut daemon = Daemon::prepared(TRIMWISED, &table(&disk.point, ""));
    let before = disk.discards().1;
    daemon.start();
    daemon.ask(&Request::Pause { mount: None, all: true });
    for kill in [true, false] {
        if kill {
            daemon.kill();
        } else {
            daemon.end();
        }
        daemon.start();
        daemon.wait_until(&disk.point, "paused", |status| status["paused"] == true);
    }
    daemon.ask(&Request::Resume { mount: None });
    daemon.end();
    daemon.start();
    daemon.wait_until_trimmed(&disk.point);
    assert!(disk.discards().1 > before);
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
    daemon.ask(&Request::Pause { mount: Some(disk.point.clone()), all: false });
    daemon.configure(&table(&disk.point, "policy = \"off\""));
    daemon.ask(&Request::Reload);
    let is_paused = |status: &serde_json::Value| status["reason"]["code"] == "paused";
    daemon.wait_until(&disk.point, "paused anew", |status| status["policy"] == "off" && is_paused(status));
    daemon.ask(&Request::Resume { mount: None });
    daemon.wait_until(&disk.point, "resumed", |status| !status.is_null() && !is_paused(status));
    // The next pause is recorded again.
    let told = || {
        let history = daemon.ask(&Request::History { mount: disk.point.clone(), limit: 100 });
        history["entries"].as_array().unwrap().iter().filter(|event| event["kind"] == "paused").count()
    };
    let before = told();
    daemon.ask(&Request::Pause { mount: None, all: true });
    daemon.wait_until(&disk.point, "told", |_| told() == before + 1);
    daemon.end();
}

#[test]
fn regression_a_pause_that_cannot_be_saved_says_so() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let disk = Loop::ext4(64 * MIB);
    let mut daemon = started(&table(&disk.point, ""));
    daemon.wait_until(&disk.point, "managed", |status| !status.is_null());
    let pause = |all: bool| {
        let mount = (!all).then(|| disk.point.clone());
        daemon.ask(&Request::Pause { mount, all })["not_saved"].clone()
    };
    assert!(pause(true).is_null());
    // Make writing it fail.
    fs::create_dir_all(daemon.state("paused.json.new").join("in the way")).unwrap();
    let said = pause(false).to_string();
    assert!(said.contains("paused.json") && said.contains("the next daemon will not know"), "{said}");
    daemon.end();
}

#[test]
fn regression_log_lines_have_priorities_in_the_journal() {
    if !can_run(&[]) {
        return;
    }
    let mut daemon = Daemon::prepared(TRIMWISED, "");
    daemon.start_in(&["env", "JOURNAL_STREAM=8:1"]);
    daemon.configure("policy = \"never\"\n");
    reload(&daemon);
    let log = daemon.wait_until_said("<4>the configuration is kept as it was");
    assert!(log.contains("<6>trimwised "), "{log}");
    daemon.end();
    let output = daemon.command(&[]).env("JOURNAL_STREAM", "8:1").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("<3>error: ") && output.status.code() == Some(2), "{said}");
}

/// Starts the daemon as System V init and similar do.
#[test]
fn the_script_for_other_init_systems_starts_reloads_and_stops_it() {
    if !can_run(&[]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("trimwise.toml");
    fs::write(&config, "manage = \"listed\"\n").unwrap();
    let call = |word: &str| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/trimwised.init");
        let mut command = std::process::Command::new("sh");
        command.args([script, word]).env("TRIMWISED", TRIMWISED);
        command.env("STATE", folder.path().join("state")).env("RUN", folder.path().join("run"));
        command.env("ARGUMENTS", format!("--config {}", config.display()));
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(call("status").0, Some(3));
    assert_eq!(call("start"), (Some(0), String::new()));
    assert!(call("start").1.contains("is running"), "once");
    assert_eq!((call("reload").0, call("status").0), (Some(0), Some(0)));
    let ask =
        || Client::connect(&folder.path().join("run")).and_then(|mut client| client.ask(&Request::Status));
    assert!(ask().is_ok());
    // A broken configuration ends no daemon that runs well.
    fs::write(&config, "policy = \"x\"\n").unwrap();
    let process = || fs::read_to_string(folder.path().join("state/lock")).unwrap();
    let before = process();
    assert_eq!((call("reload").0, call("restart").0, call("force-reload").0), (Some(1), Some(1), Some(1)));
    assert!(ask().is_ok() && process() == before);
    let cwd = fs::read_link(format!("/proc/{}/cwd", before.trim())).unwrap();
    assert_eq!(cwd, Path::new("/"), "another folder could not be unmounted");
    fs::write(&config, "manage = \"listed\"\n").unwrap();
    assert_eq!((call("reload").0, call("restart").0), (Some(0), Some(0)));
    assert!(ask().is_ok() && process() != before);
    assert_eq!((call("stop").0, call("status").0), (Some(0), Some(3)));
    assert!(ask().is_err());
    assert_eq!(call("stop").0, Some(0), "it has ended already");
    assert_eq!(call("reload").0, Some(7), "not running");
}

/// The lock in the state folder is empty then.
#[test]
fn regression_the_script_finds_a_daemon_whose_state_folder_is_on_a_full_disk() {
    if !can_run(&[]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(at("state")).unwrap();
    sh("mount", &["-t", "tmpfs", "-o", "size=64k,mode=700", "full", &at("state")]);
    let fill = fs::write(at("state/fill"), [0; 128 << 10]);
    fs::write(at("trimwise.toml"), "manage = \"listed\"\n").unwrap();
    let call = |word: &str| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/trimwised.init");
        let mut command = std::process::Command::new("sh");
        command.args([script, word]).env("TRIMWISED", TRIMWISED);
        command.env("STATE", at("state")).env("RUN", at("run"));
        command.env("ARGUMENTS", format!("--config {}", at("trimwise.toml")));
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let started = call("start");
    let lock = fs::read_to_string(at("state/lock"));
    let process = fs::read_to_string(at("run/run.lock")).unwrap_or_default();
    let told = call("status");
    let again = call("start");
    let stopped = [call("stop").0, call("status").0];
    sh("umount", &[&at("state")]);
    assert!(fill.is_err(), "the disk is full");
    assert_eq!((started, lock.unwrap().as_str()), ((Some(0), String::new()), ""));
    let running = format!("trimwised is running (process {})\n", process.trim());
    assert_eq!((told, again), ((Some(0), running.clone()), (Some(0), running)));
    assert_eq!(stopped, [Some(0), Some(3)]);
}

#[test]
fn regression_a_daemon_that_was_started_with_sigterm_blocked_ends_by_it() {
    if !can_run(&["env"]) {
        return;
    }
    let mut daemon = Daemon::prepared(TRIMWISED, "");
    daemon.start_in(&["env", "--block-signal=TERM", "--ignore-signal=CHLD"]);
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.process())).unwrap();
    let blocked = status.lines().find(|line| line.starts_with("SigBlk")).unwrap();
    assert_eq!(blocked, "SigBlk:\t0000000000000000");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & (1 << 16), 0, "SIGCHLD: {ignored}");
    daemon.end();
}

#[test]
fn relative_folders_lie_where_the_daemon_was_started() {
    if !can_run(&[]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("c.toml"), "manage = \"listed\"\n").unwrap();
    let arguments = ["--config", "c.toml", "--state", "st", "--run", "rn", "--dry-run", "--once"];
    let mut command = std::process::Command::new(TRIMWISED);
    let output = command.args(arguments).current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(folder.path().join("st/lock").exists() && folder.path().join("rn").is_dir());
    assert!(!Path::new("/st").exists() && !Path::new("/rn").exists());
}
