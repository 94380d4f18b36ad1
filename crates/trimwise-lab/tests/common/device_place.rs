//! Runs `trimwise device` with a registry of its own.

#![allow(dead_code)] // each tier uses a part of this

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The registry of one test; nothing of it is left at its end.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Self {
        Self(tempfile::Builder::new().prefix("trimwise-device-").tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trimwise-lab"));
        command.arg("device").args(words).arg("--state-dir").arg(self.path("devices")).stdin(Stdio::null());
        command
    }

    pub fn device(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    pub fn ok(&self, words: &[&str]) -> String {
        let output = self.device(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {}: {said}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the error message of a command that must fail with this code.
    pub fn refused(&self, code: i32, words: &[&str]) -> String {
        let output = self.device(words);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("error: "), "{said}");
        said
    }

    /// Attaches a device and returns its node.
    pub fn attach(&self, words: &[&str]) -> String {
        let said = self.ok(&[&["attach"], words].concat());
        let node = said.trim().to_owned();
        assert!(node.starts_with("/dev/loop"), "{said}");
        node
    }

    pub fn list(&self) -> Vec<Value> {
        let list: Value = serde_json::from_str(&self.ok(&["list", "--json", "-"])).unwrap();
        list["devices"].as_array().unwrap().clone()
    }

    pub fn pid(&self) -> i64 {
        self.list()[0]["server_pid"].as_i64().unwrap()
    }

    /// Asserts that nothing created here is left.
    pub fn is_clean(&self) {
        let here = self.0.path().to_str().unwrap();
        let mounts = fs::read("/proc/self/mountinfo").unwrap();
        let mounts = String::from_utf8_lossy(&mounts); // other tests mount on names that are not UTF-8
        assert!(!mounts.contains(here), "a mount is left: {mounts}");
        for entry in fs::read_dir("/sys/block").unwrap() {
            let file = entry.unwrap().path().join("loop/backing_file");
            let backing = fs::read_to_string(&file).unwrap_or_default();
            assert!(!backing.contains(here), "{} is left over {backing}", file.display());
        }
        // A server that was cut off leaves the list before its folder is removed.
        waits("its folder is removed", || {
            let entries = fs::read_dir(self.path("devices")).into_iter().flatten();
            entries.into_iter().all(|entry| entry.unwrap().file_name() == ".lock")
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // If a test failed half way, unmount what is mounted there, then remove its devices.
        let mounted = self.path("mounted");
        if std::thread::panicking() {
            let _ = Command::new("umount").arg("-l").arg(&mounted).stderr(Stdio::null()).status();
            let _ = self.command(&["detach", "--all"]).output();
            for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
                let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
                let here = self.0.path().as_os_str().as_encoded_bytes();
                if words.windows(here.len()).any(|window| window == here) {
                    let pid = process.file_name().to_string_lossy().into_owned();
                    let _ = Command::new("kill").args(["-9", &pid]).status();
                }
            }
            let _ = self.command(&["list"]).output();
        }
    }
}

pub fn waits(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(300), "{what} within 300 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Runs a program that must succeed.
pub fn sh(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {}: {said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}
