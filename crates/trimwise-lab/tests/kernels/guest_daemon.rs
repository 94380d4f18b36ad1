//! Jobs of guests with `trimwised` in them, written step by step; results are read by step name.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::Value;
use trimwise::profile::Profile;
use trimwise::units::Bytes;
use trimwise_linux::sparse_store::SparseStore;
use trimwise_testing::{skipped, trimwised};
use trimwise_uml::cell::new_disk;
use trimwise_uml::disk::{Fault, Mark, TraceEntry};
use trimwise_uml::images::KernelImage;
use trimwise_uml::job::{
    BootOptions, DAEMON, DAEMON_FOLDER, FileSystem, Guest, Job, MOUNT_POINT, Outcome, ProgramEnd, Said, Step,
    StepReport,
};
use trimwise_uml::machine::Limits;

use crate::reproduction::image;

/// Its TRIM is not queued and takes 12 ms a command, so that most of a slice's time lies within a discard.
const DRIVE: &str = "sata-60gb-2011";
const CAPACITY: Bytes = Bytes::gib(1);

/// Returns the kernel, if everything is there that a guest and the checks afterwards need.
pub fn kernel(file_system: FileSystem) -> Option<KernelImage> {
    let why = file_system.check_mkfs().err();
    why.map_or(Some(()), |why| {
        skipped(&why);
        None
    })?;
    trimwised()?;
    image("6.1")
}

/// Configures a daemon that checks every second, only the file system under test.
pub fn config(settings: &str) -> String {
    format!(
        "manage = \"listed\"\ntracepoints = false\nlook-every-s = 1\n[mount.\"{MOUNT_POINT}\"]\n{settings}\n"
    )
}

/// A job, and the faults planned for its run.
pub struct Script {
    file_system: FileSystem,
    steps: Vec<Step>,
    names: BTreeMap<String, usize>,
    faults: Vec<(Range<usize>, Fault)>,
}

impl Script {
    /// Starts with a mounted file system that has files with known contents.
    pub fn new(file_system: FileSystem, mkfs: &[&str], before_mount: &str) -> Self {
        let mut script = Self { file_system, steps: Vec::new(), names: BTreeMap::new(), faults: Vec::new() };
        script.then(Step::Mkfs { file_system, options: mkfs.iter().map(|&word| word.to_owned()).collect() });
        // 2027: distinct from the times that a test sets the clock to.
        script.shell("", &format!("date -s @1800000000; {before_mount}"));
        script.mount();
        script.shell("", "for i in 1 2 3 4; do seq $i $i$((i * 100000)) > kept$i; done");
        script.then(Step::Sync);
        script.looks_as_it_does("before");
        script
    }

    pub fn then(&mut self, step: Step) {
        self.steps.push(step);
    }

    pub fn named(&mut self, name: &str, step: Step) {
        self.names.insert(name.to_owned(), self.steps.len());
        self.then(step);
    }

    pub fn mount(&mut self) {
        self.then(Step::Mount { file_system: self.file_system, options: String::new() });
    }

    pub fn sleep_s(&mut self, s: u64) {
        self.then(Step::Sleep { ns: s * 1_000_000_000 });
    }

    pub fn program(&mut self, name: &str, words: &[&str]) {
        let command = words.iter().map(|&word| word.to_owned()).collect();
        self.named(name, Step::Program { command, input: Said::default() });
    }

    pub fn shell(&mut self, name: &str, script: &str) {
        self.program(name, &["sh", "-c", script]);
    }

    /// Runs this program with these arguments.
    pub fn trimwise(&mut self, name: &str, words: &[&str]) {
        let run = format!("{DAEMON_FOLDER}/run");
        let words = [&["/proc/self/exe"], words, &["--run", &run, "--json", "-"]].concat();
        self.program(name, &words);
    }

    pub fn status(&mut self, name: &str) {
        self.trimwise(name, &["status"]);
    }

    pub fn history(&mut self, name: &str) {
        self.trimwise(name, &["history", MOUNT_POINT, "--limit", "100000"]);
    }

    pub fn daemon(&mut self, settings: &str) {
        self.then(Step::Daemon { config: config(settings) });
    }

    /// Runs another daemon next to the running one: with its configuration and its folders.
    pub fn second_daemon(&mut self, name: &str) {
        let [config, state, run] =
            ["config.toml", "state", "run"].map(|file| format!("{DAEMON_FOLDER}/{file}"));
        let words = [DAEMON, "--config", &config, "--state", &state, "--run", &run];
        self.program(name, &words);
    }

    /// Creates a file, and removes it after the daemon has seen it: `bytes` become free to trim.
    pub fn free(&mut self, bytes: Bytes) {
        let file = "gone".to_owned();
        self.then(Step::Append { file: file.clone(), bytes: bytes.0 });
        self.sleep_s(5);
        self.then(Step::Remove { file });
        self.then(Step::Sync); // btrfs reports free space when it commits
        self.sleep_s(5);
    }

    /// Frees 48 pieces of 256 KiB, as many discards, between pieces that stay until the next time.
    pub fn free_in_pieces(&mut self) {
        let file = "gone".to_owned();
        let (extents, extent_bytes) = (48, 256 << 10);
        self.then(Step::Scatter { file: file.clone(), extents, extent_bytes, keeps_gaps: true });
        self.then(Step::Remove { file });
    }

    /// Applies a fault to the drive during the steps that `act` writes.
    pub fn during(&mut self, fault: Fault, act: impl FnOnce(&mut Self)) {
        // The first mark precedes the first step.
        let first = self.steps.len() + 1;
        act(self);
        self.faults.push((first..self.steps.len() + 1, fault));
    }

    fn looks_as_it_does(&mut self, when: &str) {
        self.shell(&format!("sums {when}"), "sha256sum kept*");
        self.named(&format!("mounts {when}"), Step::Read { path: "/proc/self/mountinfo".to_owned() });
    }

    /// Runs it, and checks the state after its last step. Asserts what must hold after any trouble: no process of the
    /// daemon is left, the mount options are as before, the files read from the drive have their bytes, and the checker
    /// finds nothing.
    #[track_caller]
    pub fn run(mut self, kernel: &KernelImage, seed: u64) -> Done {
        let fs = self.file_system;
        self.shell("processes", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '");
        self.looks_as_it_does("after");
        self.then(Step::Unmount);
        self.mount(); // so that files are read from the drive
        self.shell("sums read", "sha256sum kept*");
        self.then(Step::Unmount);

        let mut profile = Profile::embedded(DRIVE).unwrap();
        profile.config = profile.config.shrunk(CAPACITY.0).unwrap();
        let disk = new_disk(&profile, seed, true).unwrap().with_faults(self.faults);
        let guest = Guest {
            linux: kernel.linux.clone(),
            preload: kernel.preload.clone(),
            seccomp: kernel.has_seccomp(),
            init: env!("CARGO_BIN_EXE_trimwise-lab").into(),
            daemon: trimwised(),
            boot: BootOptions::default(),
            memory: Bytes::mib(256),
            limits: Limits::default(),
            interrupted: Arc::new(AtomicBool::new(false)),
        };
        let mut disks = [disk];
        let report =
            guest.run(&Job { steps: self.steps }, &mut disks).unwrap_or_else(|e| panic!("{fs:?}: {e}"));
        let [disk] = disks;
        let (port, store, trace, marks) = disk.into_parts();
        port.drive().ssd().audit().unwrap();
        let done = Done { steps: report.steps, names: self.names, trace, marks };

        let sums = done.output("sums before");
        assert_eq!(sums.lines().count(), 4, "{sums}");
        assert_eq!(done.output("sums after"), sums, "{fs:?}");
        assert_eq!(done.output("sums read"), sums, "{fs:?}: from the drive");
        let options = ["mounts before", "mounts after"].map(|name| done.mount_options(name));
        assert_eq!(options[0], options[1], "{fs:?}");
        let processes = done.output("processes");
        assert!(processes.contains("guest-init"), "{processes}");
        for one in [DAEMON, "/proc/self/exe"] {
            assert!(!processes.split(' ').any(|word| word == one), "{fs:?}: {one} is stuck: {processes}");
        }
        check(fs, &store);
        done
    }
}

/// Runs the checker of the file system on the drive's bytes: it must find nothing.
#[track_caller]
fn check(file_system: FileSystem, store: &SparseStore) {
    let image = format!("/proc/{}/fd/{}", std::process::id(), store.file().as_raw_fd());
    let words: &[&str] = match file_system {
        FileSystem::Ext4 => &["e2fsck", "-fn"],
        FileSystem::Xfs => &["xfs_repair", "-n", "-f"],
        FileSystem::Btrfs => &["btrfs", "check"],
        FileSystem::F2fs => &["fsck.f2fs", "--dry-run"],
    };
    let mut command = Command::new(words[0]);
    // The superuser's directories, which an ordinary search path may lack.
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = command.args(&words[1..]).arg(&image).env("PATH", path).output();
    let output = output.unwrap_or_else(|e| panic!("{}: {e}", words[0]));
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{file_system:?}: {}: {said}", output.status);
}

/// A job that was run.
pub struct Done {
    pub steps: Vec<StepReport>,
    names: BTreeMap<String, usize>,
    pub trace: Vec<TraceEntry>,
    pub marks: Vec<Mark>,
}

impl Done {
    #[track_caller]
    pub fn step(&self, name: &str) -> &StepReport {
        &self.steps[self.names[name]]
    }

    #[track_caller]
    pub fn program(&self, name: &str) -> &ProgramEnd {
        match &self.step(name).outcome {
            Outcome::Program(end) => end,
            other => panic!("{name}: {other:?}"),
        }
    }

    /// Returns the output of a program that succeeded.
    #[track_caller]
    pub fn output(&self, name: &str) -> &str {
        let end = self.program(name);
        assert_eq!(end.code, Some(0), "{name}: {end:?}");
        std::str::from_utf8(&end.output.0).unwrap()
    }

    #[track_caller]
    pub fn text(&self, name: &str) -> &str {
        match &self.step(name).outcome {
            Outcome::Text(text) => text,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[track_caller]
    pub fn json(&self, name: &str) -> Value {
        serde_json::from_str(self.output(name)).unwrap()
    }

    /// The status of the file system under test; null if it is not managed.
    #[track_caller]
    pub fn status(&self, name: &str) -> Value {
        let all = self.json(name);
        let found =
            all["file_systems"].as_array().unwrap().iter().find(|one| one["mount_point"] == MOUNT_POINT);
        found.map_or(Value::Null, |one| one["status"].clone())
    }

    /// Returns the bytes of discards that the drive had carried out when a step began.
    #[track_caller]
    pub fn discarded_before(&self, name: &str) -> u64 {
        // The mark after the previous step.
        self.marks[self.names[name]].counts.discarded_bytes
    }

    /// Returns the options of mount and file system, as the kernel shows them.
    #[track_caller]
    pub fn mount_options(&self, name: &str) -> String {
        let line = self.text(name).lines().rfind(|line| line.split(' ').nth(4) == Some(MOUNT_POINT)).unwrap();
        // Without the mount's own number, which changes when it is mounted again.
        line.split(' ').skip(2).collect::<Vec<_>>().join(" ")
    }
}
