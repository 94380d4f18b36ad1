//! Guests that go wrong: each ends in bounded time, with a plain error that has the guest's last lines, and leaves no
//! process and no folder behind.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
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
use trimwise_uml::job::{BootOptions, FileSystem, Guest, Job, JobError, Outcome, Said, Step};
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
        preload: kernel.preload.clone(),
        seccomp: kernel.has_seccomp(),
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
    let error = machine(&kernel, folder.path(), "/bin/true").run(&mut [disk()], &mut |_| Ok(())).unwrap_err();
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
    let error = machine.run(&mut [disk()], &mut |_| Ok(())).unwrap_err();
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
    let error = machine.run(&mut [disk()], &mut |_| Ok(())).unwrap_err();
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
            let run = scope.spawn(|| machine.run(&mut [disk()], &mut |_| Ok(())));
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
    let error = machine(&kernel, &deep, "/bin/true").run(&mut [disk()], &mut |_| Ok(())).unwrap_err();
    assert!(matches!(&error, MachineError::BrokeOff { console, .. } if console.contains("init")), "{error}");
}

#[test]
fn what_is_no_kernel_is_refused_plainly() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = folder.path().join("linux");
    fs::write(&kernel, "no program").unwrap();
    let machine = Machine {
        linux: kernel.clone(),
        preload: PathBuf::new(),
        seccomp: false,
        memory: Bytes::mib(128),
        folder: folder.path().to_owned(),
        arguments: Vec::new(),
        limits: Limits::default(),
        interrupted: Arc::new(AtomicBool::new(false)),
    };
    let error = machine.run(&mut [disk()], &mut |_| Ok(())).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot start the kernel {}", kernel.display())), "{error}");
}

pub(crate) fn guest(kernel: &KernelImage) -> Guest {
    Guest {
        linux: kernel.linux.clone(),
        preload: kernel.preload.clone(),
        seccomp: kernel.has_seccomp(),
        init: env!("CARGO_BIN_EXE_trimwise-lab").into(),
        daemon: None,
        boot: BootOptions::default(),
        memory: Bytes::mib(128),
        limits: Limits::default(),
        interrupted: Arc::new(AtomicBool::new(false)),
    }
}

/// A job that makes and mounts a file system, and then runs `steps`.
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
    let JobError::Step { step, what, console } = &error else { panic!("{error}") };
    assert_eq!(step, "removing nothing");
    assert!(
        what.contains("No such file or directory") && console.contains("EXT4-fs (vda): mounted"),
        "{error}"
    );
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

/// A step that runs a shell script in the guest.
fn program(script: &str) -> Step {
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    Step::Program { command, input: Said::default() }
}

/// The guest's root is the host's own file system: what a guest may do there as its root, it must not do to the host.
#[test]
fn regression_a_guest_that_mounts_its_root_writable_cannot_write_to_the_host() {
    let Some(kernel) = image("6.1") else { return };
    // Not below /tmp, where a clone may lie: the guest has a /tmp of its own.
    let folder = tempfile::Builder::new().tempdir_in("/var/tmp").unwrap();
    let precious = folder.path().join("precious");
    fs::write(&precious, "text").unwrap();
    let before = fs::metadata(&precious).unwrap();
    let path = precious.display();
    let script = format!(
        "attack() {{ echo no >> $1; rm -f $1; mv $1 $1.b; chmod 777 $1; touch $1 $1.new; mkdir $1.d; ln -s a $1.l; \
         ln $1 $1.h; truncate -s 0 $1; }}; attack {path}; mount -o remount,rw / || exit 9; attack {path}; mkdir /tmp/h; \
         mount -t hostfs none /tmp/h -o / || exit 9; attack /tmp/h{path}; exit 0"
    );
    let report = guest(&kernel).run(&job([program(&script)]), &mut [disk()]).unwrap();
    let Some(Outcome::Program(end)) = report.steps.last().map(|step| &step.outcome) else {
        panic!("{report:?}")
    };
    assert_eq!(end.code, Some(0), "{}", end.errors.text());
    assert!(end.errors.text().contains("Read-only file system"), "{}", end.errors.text());
    assert_eq!(fs::read_to_string(&precious).unwrap(), "text");
    let after = fs::metadata(&precious).unwrap();
    assert_eq!((after.mode(), after.mtime_nsec()), (before.mode(), before.mtime_nsec()));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// The same for an ordinary user: the guest must not even write that user's own files. Needs a user namespace.
#[test]
fn regression_a_guest_of_an_ordinary_user_cannot_write_to_that_user_s_files() {
    let Some(kernel) = image("6.1") else { return };
    let folder = tempfile::Builder::new().tempdir_in("/var/tmp").unwrap();
    let at = |name: &str| folder.path().join(name);
    let cache = kernel.directory.file_name().unwrap();
    fs::create_dir_all(at("kernels").join(cache)).unwrap();
    for file in ["linux", "preload.so", "image.json"] {
        fs::copy(kernel.directory.join(file), at("kernels").join(cache).join(file)).unwrap();
    }
    fs::copy(env!("CARGO_BIN_EXE_trimwise-lab"), at("trimwise")).unwrap();
    fs::create_dir(at("home")).unwrap();
    fs::write(at("home/precious"), "text").unwrap();
    let nobody = Some(65534);
    for path in [folder.path().to_owned(), at("home"), at("home/precious")] {
        if std::os::unix::fs::chown(path, nobody, nobody).is_err() {
            return skipped("running as another user needs root");
        }
    }
    let script = format!(
        "mount -o remount,rw / || exit 9; cd {}; echo no > precious; rm precious; touch new; exit 0",
        at("home").display()
    );
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(at("trimwise"))
        .args(["kernel", "run", "6.1:ext4", "--memory", "128", "--", "sh", "-c", &script])
        .env("TRIMWISE_KERNELS", at("kernels"))
        .env("TMPDIR", folder.path())
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else { return skipped("setpriv is missing: apt-get install util-linux") };
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("a user namespace: ") {
        return skipped("users may make no user namespaces here");
    }
    assert!(output.status.success() && errors.contains("Read-only file system"), "{errors}");
    assert_eq!(fs::read_to_string(at("home/precious")).unwrap(), "text");
    assert_eq!(fs::read_dir(at("home")).unwrap().count(), 1);
}

/// If neither protection is available, as in many containers, nothing is started.
#[test]
fn a_guest_that_could_write_to_the_host_is_not_started() {
    if image("6.1").is_none() {
        return;
    }
    let script = "echo 0 > /proc/sys/user/max_user_namespaces || exit 77; \
                  exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin \"$0\" kernel run 6.1:ext4 -- true";
    let output = Command::new("unshare")
        .args(["-r", "sh", "-c", script, env!("CARGO_BIN_EXE_trimwise-lab")])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) || errors.starts_with("unshare: ") || errors.contains("setpriv: ") {
        return skipped("user namespaces cannot be made and taken away here");
    }
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains(
            "cannot start a guest that keeps to its own files and always runs the same (a user namespace: "
        ),
        "{errors}"
    );
}

/// A warning in a guest's log went unnoticed, and the command succeeded.
#[test]
fn regression_a_kernel_that_complains_fails_the_job() {
    let Some(kernel) = image("6.1") else { return };
    let fault = "BUG: KASAN: use-after-free in f+0x1/0x2";
    let steps = [program(&format!("dmesg -n 1; echo '{fault}' > /dev/kmsg"))];
    let error = guest(&kernel).run(&job(steps), &mut [disk()]).unwrap_err();
    let JobError::Complains { complaints } = &error else { panic!("{error}") };
    assert!(complaints.len() == 1 && complaints[0].ends_with(fault), "{complaints:?}");
}

/// Only the init sets marks, even if another program reads the serial number; faults placed after marks stay in place.
#[test]
fn regression_a_program_that_asks_for_the_serial_number_makes_no_mark() {
    let Some(kernel) = image("6.1") else { return };
    let ask = || job([program("cat /sys/block/vda/serial /sys/block/vda/serial"), Step::Sync]);
    let mut disks = [disk()];
    let report = guest(&kernel).run(&ask(), &mut disks).unwrap();
    let [disk_after] = disks;
    let (_, _, _, marks) = disk_after.into_parts();
    assert_eq!(marks.len(), 1 + report.steps.len());
    for (step, mark) in report.steps.iter().zip(&marks[1..]) {
        let boot = marks[1].at.0 - report.steps[0].end_ns;
        // Each reading of a clock takes 256 ns, and not every step's end has the same number of them.
        assert!(mark.at.0 + 1024 >= boot + step.end_ns, "{mark:?}");
    }
    let mut faulty = [disk().with_faults(vec![(9..10, trimwise_uml::disk::Fault::Gone)])];
    let error = guest(&kernel).run(&ask(), &mut faulty).unwrap_err().to_string();
    assert!(error.contains("a program asked for the serial number"), "{error}");
}

#[test]
fn a_mount_that_is_refused_has_the_kernel_s_reason() {
    if image("6.1").is_none() {
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_trimwise-lab"))
        .args(["kernel", "run", "6.1:ext4:bogus", "--memory", "128", "--", "true"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = crate::reproduction::error(&output);
    assert!(said.lines().next().unwrap().contains("Unknown parameter 'bogus'"), "{said}");
}
