//! Guests that go wrong: each ends in bounded time, with a plain error that has the guest's last lines, and leaves no
//! process and no folder behind.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use trimwise::block::Port;
use trimwise::ssd::{Ssd, SsdConfig};
use trimwise::units::{Bytes, SimTime};
use trimwise_linux::sparse_store::SparseStore;
use trimwise_testing::skipped;
use trimwise_uml::disk::Disk;
use trimwise_uml::images::KernelImage;
use trimwise_uml::job::{FileSystem, Guest, Job, JobError, Outcome, Step};
use trimwise_uml::machine::{Limits, Machine, MachineError};

use crate::reproduction::image;

fn port() -> Port {
    let config = SsdConfig { capacity_bytes: Bytes::gib(1).0, ..SsdConfig::default() };
    Port::new(Ssd::new(&config, 1).unwrap())
}

fn disk() -> Disk {
    let port = port();
    let store = SparseStore::in_memory(port.size()).unwrap();
    Disk::new(port, store, "test", false)
}

fn machine(kernel: &KernelImage, folder: &Path, init: &str) -> Machine {
    if let Some(init) = init.strip_prefix("#!") {
        let script = folder.join("init");
        fs::write(&script, format!("#!{init}")).unwrap();
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    } else {
        symlink(init, folder.join("init")).unwrap();
    }
    Machine {
        linux: kernel.linux.clone(),
        preload: Some(kernel.preload.clone()),
        memory: Bytes::mib(128),
        folder: folder.to_owned(),
        arguments: Vec::new(),
        limits: Limits::default(),
        interrupted: Arc::new(AtomicBool::new(false)),
    }
}

/// Processes that work in a folder.
fn processes_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    entries
        .filter(|process| fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder)))
        .collect()
}

#[test]
fn a_kernel_that_panics_says_so_in_its_last_lines() {
    let Some(kernel) = image("6.1") else { return };
    let folder = tempfile::tempdir().unwrap();
    let error = machine(&kernel, folder.path(), "/bin/true").run(&mut [disk()]).unwrap_err();
    let MachineError::BrokeOff { console, .. } = &error else { panic!("{error}") };
    assert!(console.contains("Attempted to kill init"), "{console}");
    assert_eq!(processes_in(folder.path()), [] as [PathBuf; 0]);
}

#[test]
fn a_guest_that_computes_for_ever_is_ended_when_it_was_silent_too_long() {
    let Some(kernel) = image("6.1") else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut machine = machine(&kernel, folder.path(), "#!/bin/sh\necho busy\nwhile :; do :; done\n");
    machine.limits.silence = Duration::from_secs(2);
    let error = machine.run(&mut [disk()]).unwrap_err();
    let MachineError::Silent { console, .. } = &error else { panic!("{error}") };
    assert!(console.contains("busy"), "{console}");
    assert_eq!(processes_in(folder.path()), [] as [PathBuf; 0]);
}

#[test]
fn a_guest_that_only_sleeps_comes_to_the_end_of_its_time() {
    let Some(kernel) = image("6.1") else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut machine = machine(&kernel, folder.path(), "#!/bin/sh\nwhile :; do sleep 1000; done\n");
    machine.limits.virtual_time = SimTime(3_600_000_000_000);
    let error = machine.run(&mut [disk()]).unwrap_err();
    assert!(
        matches!(&error, MachineError::TookTooLong { limit, .. } if limit == "3600 s of virtual time"),
        "{error}"
    );
    assert_eq!(processes_in(folder.path()), [] as [PathBuf; 0]);
}

#[test]
fn a_killed_guest_is_missed_and_an_interrupted_one_ends() {
    let Some(kernel) = image("6.1") else { return };
    for is_killed in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let machine = machine(&kernel, folder.path(), "#!/bin/sh\necho alive\nwhile :; do sleep 1; done\n");
        let outcome = std::thread::scope(|scope| {
            let run = scope.spawn(|| machine.run(&mut [disk()]));
            let console = folder.path().join("console");
            while !fs::read_to_string(&console).is_ok_and(|text| text.contains("alive")) && !run.is_finished()
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            if is_killed {
                for process in processes_in(folder.path()) {
                    let pid = process.file_name().unwrap().to_str().unwrap().to_owned();
                    Command::new("kill").args(["-9", &pid]).stderr(Stdio::null()).status().unwrap();
                }
            } else {
                machine.interrupted.store(true, Ordering::Relaxed);
            }
            run.join().unwrap()
        });
        match outcome.unwrap_err() {
            MachineError::BrokeOff { how, .. } if is_killed => assert!(how.contains("signal: 9"), "{how}"),
            MachineError::Interrupted if !is_killed => {}
            other => panic!("{other}"),
        }
        assert_eq!(processes_in(folder.path()), [] as [PathBuf; 0]);
    }
}

#[test]
fn a_folder_with_a_long_name_has_sockets_all_the_same() {
    let Some(kernel) = image("6.1") else { return };
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("d".repeat(200));
    fs::create_dir(&deep).unwrap();
    let error = machine(&kernel, &deep, "/bin/true").run(&mut [disk()]).unwrap_err();
    assert!(matches!(&error, MachineError::BrokeOff { console, .. } if console.contains("init")), "{error}");
}

#[test]
fn what_is_no_kernel_is_refused_plainly() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = folder.path().join("linux");
    fs::write(&kernel, "no program").unwrap();
    let machine = Machine {
        linux: kernel.clone(),
        preload: None,
        memory: Bytes::mib(128),
        folder: folder.path().to_owned(),
        arguments: Vec::new(),
        limits: Limits::default(),
        interrupted: Arc::new(AtomicBool::new(false)),
    };
    let error = machine.run(&mut [disk()]).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot start the kernel {}", kernel.display())), "{error}");
}

fn guest(kernel: &KernelImage) -> Guest {
    Guest {
        linux: kernel.linux.clone(),
        preload: Some(kernel.preload.clone()),
        init: env!("CARGO_BIN_EXE_trimwise").into(),
        daemon: None,
        memory: Bytes::mib(128),
        limits: Limits::default(),
        interrupted: Arc::new(AtomicBool::new(false)),
    }
}

/// mkfs, mount, and what comes then.
fn job(steps: impl IntoIterator<Item = Step>) -> Job {
    let file_system = FileSystem::Ext4;
    let begin =
        [Step::Mkfs { file_system, options: vec![] }, Step::Mount { file_system, options: String::new() }];
    Job { steps: begin.into_iter().chain(steps).collect() }
}

#[test]
fn a_step_that_fails_is_named_with_what_it_said() {
    let Some(kernel) = image("6.1") else { return };
    let file = "nothing".to_owned();
    let error = guest(&kernel).run(&job([Step::Remove { file }]), &mut [disk()]).unwrap_err();
    let JobError::Step { step, what } = &error else { panic!("{error}") };
    assert_eq!(step, "removing nothing");
    assert!(what.contains("No such file or directory"), "{what}");
}

#[test]
fn a_full_disk_of_the_host_is_named() {
    let Some(kernel) = image("6.1") else { return };
    let folder = tempfile::tempdir().unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(folder.path()).status();
    if !mounted.is_ok_and(|status| status.success()) {
        return skipped("mounting a tmpfs needs root");
    }
    let port = port();
    let store = SparseStore::in_file(&folder.path().join("drive"), port.size()).unwrap();
    let steps = [Step::Append { file: "large".to_owned(), bytes: Bytes::mib(4).0 }];
    let outcome = guest(&kernel).run(&job(steps), &mut [Disk::new(port, store, "test", false)]);
    let unmounted = Command::new("umount").arg("-l").arg(folder.path()).status().unwrap();
    assert!(unmounted.success());
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("a disk of the guest failed on this host: No space left on device"), "{error}");
}

/// Root is the host's own file system, read-only: what a guest removes is not there any more afterwards, unless it is
/// refused.
#[test]
fn a_guest_cannot_write_to_the_host() {
    let Some(kernel) = image("6.1") else { return };
    // Not below /tmp, where a clone may lie: the guest has one of its own.
    let folder = tempfile::Builder::new().tempdir_in("/var/tmp").unwrap();
    let precious = folder.path().join("precious");
    fs::write(&precious, "text").unwrap();
    let command = vec!["rm".to_owned(), "-f".to_owned(), precious.display().to_string()];
    let steps = [Step::Program { command, input: String::new() }];
    let report = guest(&kernel).run(&job(steps), &mut [disk()]).unwrap();
    let Some(Outcome::Program(end)) = report.steps.last().map(|step| &step.outcome) else {
        panic!("{report:?}")
    };
    assert!(end.code != Some(0) && end.errors.contains("Read-only file system"), "{end:?}");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "text");
}
