//! A daemon for one test: its files are in a temporary folder, and it manages only the file systems that the test
//! lists.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use trimwise_linux::daemon::control::{Client, Request};

/// Longer than anything takes on a busy machine; only a failed test waits this long.
const PATIENCE: Duration = Duration::from_secs(300);

pub struct Daemon {
    program: PathBuf,
    folder: tempfile::TempDir,
    child: Option<Child>,
    /// Arguments besides its paths.
    pub arguments: Vec<&'static str>,
}

impl Daemon {
    /// Prepares a daemon without starting it.
    pub fn prepared(program: &str, config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let daemon = Self { program: program.into(), folder, child: None, arguments: Vec::new() };
        daemon.configure(config);
        daemon
    }

    pub fn started(program: &str, config: &str) -> Self {
        let mut daemon = Self::prepared(program, config);
        daemon.start();
        daemon
    }

    pub fn configure(&self, config: &str) {
        fs::write(self.folder.path().join("trimwise.toml"), format!("manage = \"listed\"\n{config}"))
            .unwrap();
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let at = |name: &str| self.folder.path().join(name);
        let mut command = Command::new(&self.program);
        command.args(["--config".as_ref(), at("trimwise.toml").as_os_str()]);
        command.args(["--state".as_ref(), at("state").as_os_str(), "--run".as_ref(), self.run().as_os_str()]);
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs the daemon until it exits, and returns its output.
    pub fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub fn start(&mut self) {
        self.start_in(&[]);
    }

    /// Starts the daemon through another program, which execs it.
    pub fn start_in(&mut self, by: &[&str]) {
        let log = fs::File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let direct = self.command(&self.arguments);
        let mut command = match by {
            [] => direct,
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(direct.get_program()).args(direct.get_args()).stdin(Stdio::null());
                command
            }
        };
        self.child = Some(command.stderr(log).spawn().unwrap());
        let deadline = Instant::now() + PATIENCE;
        // Its sockets exist before it has restored the changes of a killed daemon; it answers after that.
        while Client::connect(&self.run()).and_then(|mut client| client.ask(&Request::Status)).is_err() {
            assert!(Instant::now() < deadline, "the daemon does not begin: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn run(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    pub fn state(&self, name: &str) -> PathBuf {
        self.folder.path().join("state").join(name)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    #[track_caller]
    pub fn wait_until_said(&self, words: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let log = self.log();
            if log.contains(words) {
                return log;
            }
            assert!(Instant::now() < deadline, "never said {words}: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn process(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub fn ask(&self, request: &Request) -> Value {
        Client::connect(&self.run()).and_then(|mut client| client.ask(request)).unwrap()
    }

    /// Returns the status of one file system; null if it is not managed or not yet examined.
    pub fn status(&self, point: &Path) -> Value {
        let data = self.ask(&Request::Status);
        let all = data["file_systems"].as_array().unwrap();
        all.iter()
            .find(|one| one["mount_point"] == point.to_str().unwrap())
            .map_or(Value::Null, |one| one["status"].clone())
    }

    /// Waits until the status is as wanted.
    #[track_caller]
    pub fn wait_until(&self, point: &Path, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status(point);
            if wanted(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "never {what}: {status:#}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until all space that was free is trimmed.
    #[track_caller]
    pub fn wait_until_trimmed(&self, point: &Path) -> Value {
        self.wait_until(point, "trimmed", |status| {
            status["mapped"] == true
                && status["waiting_bytes"] == 0
                && status["totals"]["slices"].as_u64() > Some(0)
        })
    }

    pub fn signal(&self, name: &str) {
        let pid = self.process().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Ends the daemon as a service manager would.
    #[track_caller]
    pub fn end(&mut self) {
        self.signal("TERM");
        let status = self.child.take().unwrap().wait().unwrap();
        assert!(status.success(), "{status}: {}", self.log());
    }

    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns a mount's table for the configuration file.
pub fn table(point: &Path, settings: &str) -> String {
    format!(
        "tracepoints = false\nlook-every-s = 1\npressure-max = 101\n[mount.\"{}\"]\n{settings}\n",
        point.display()
    )
}

/// Returns a mount's options, as the kernel shows them.
pub fn options(point: &Path) -> String {
    let text = fs::read("/proc/self/mountinfo").unwrap();
    let text = String::from_utf8_lossy(&text); // other tests mount on names that are not UTF-8
    let line = text.lines().rfind(|line| line.split(' ').nth(4) == point.to_str()).expect("mounted");
    let mut fields = line.split(' ');
    let of_mount = fields.nth(5).unwrap().to_owned();
    format!("{of_mount} {}", line.rsplit(' ').next().unwrap())
}
