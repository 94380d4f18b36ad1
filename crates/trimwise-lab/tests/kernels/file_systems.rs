//! `compare`, `advise` and `sweep` with `--fs` and `--here`: each file system answers for itself, on a kernel that is built.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use trimwise_testing::loops::{Loop, can_run};
use trimwise_uml::job::FileSystem;

use crate::common::{command, command_in, refused, text};
use crate::guest_daemon::kernel;
use crate::reproduction::is_full;

/// A folder with a drive of 512 MiB and a small workload, if there are kernels, programs and the daemon.
fn folder(file_system: FileSystem) -> Option<TempDir> {
    kernel(file_system)?;
    let folder = tempfile::tempdir().unwrap();
    let drive = include_str!("../../../../profiles/sata-small.toml").replace("8_589_934_592", "536_870_912");
    fs::write(folder.path().join("drive.toml"), drive).unwrap();
    let mail = "set number 100\nset transactions 300\nset size 1000 50000\nset buffering false\nrun\n";
    fs::write(folder.path().join("mail.pmrc"), mail).unwrap();
    Some(folder)
}

/// The policies that a stock kernel has there.
fn policies(file_system: FileSystem) -> &'static [&'static str] {
    match file_system {
        FileSystem::Btrfs => &["off", "commit", "async", "batch:1d", "batch:1w"],
        _ => &["off", "commit", "batch:1d", "batch:1w"],
    }
}

fn a_day_is_the_same_twice(file_system: FileSystem) {
    let Some(folder) = folder(file_system) else { return };
    let name = file_system.name();
    // 6.2 is closest to 6.1, which these tests need.
    let line = format!(
        "compare --fs {name} --linux 6.2 --device drive.toml --workload mail.pmrc --utilization 50 --memory 128 --days 1 \
         --reps 1 --json -"
    );
    let run = |options: &str| {
        let output = command_in(folder.path(), &format!("{line} {options}")).output().unwrap();
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let first = run("");
    assert_eq!(first, run("--jobs 1"), "{name}");
    let json: Value = serde_json::from_str(&first).unwrap();
    let (settings, cells) = (&json["settings"], json["cells"].as_array().unwrap());
    assert_eq!(
        (&settings["file_system"], &settings["target"]),
        (&name.into(), &format!("kernel:6.1:{name}").into())
    );
    assert!(settings["kernel"]["release"].as_str().unwrap().starts_with("6.1."), "{settings}");
    assert!(
        settings["command"].as_str().unwrap().contains(&format!("--target kernel:6.1:{name} ")),
        "{settings}"
    );
    let ran: Vec<&str> = cells.iter().map(|cell| cell["policy"].as_str().unwrap()).collect();
    assert_eq!(ran, policies(file_system));
    for cell in cells {
        let (days, device) = (&cell["days"], &cell["device_stats"]);
        assert!(days["elapsed_ns"].as_u64().unwrap() >= 86_400_000_000_000, "{days}");
        assert_eq!(days["operations"], cells[0]["days"]["operations"]);
        assert!(cell["duration_ns"].as_u64().unwrap() < 60_000_000_000, "waiting only: {days}");
        let sent = device["trim_commands"].as_u64().unwrap();
        let (sweeps, slices) = (days["sweeps"].as_u64().unwrap(), days["slices"].as_u64().unwrap());
        match cell["policy"].as_str().unwrap() {
            "off" => assert_eq!((sent, sweeps, slices), (0, 0, 0)),
            "batch:1d" | "batch:1w" => assert!(sweeps == 1 && slices == 0 && sent > 0, "{days} {device}"),
            _ => assert!(sent > 0 && (sweeps, slices) == (0, 0), "{days} {device}"),
        }
    }
}

test_on!(a_day_is_the_same_twice: xfs btrfs f2fs);

/// It looks at the file system each second, which takes a guest some two minutes a day: only with `KERNELS=full`.
#[test]
fn trimwised_runs_over_days_on_a_real_file_system() {
    if !is_full() {
        return;
    }
    let Some(folder) = folder(FileSystem::Xfs) else { return };
    let line = "compare --fs xfs --linux 6.1 --device drive.toml --workload mail.pmrc --utilization 50 --memory 128 --days 1 \
                --reps 1 --policy off trimwised --json -";
    let output = command_in(folder.path(), line).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let days = &json["cells"][1]["days"];
    let [sweeps, slices, maps] = ["sweeps", "slices", "maps"].map(|key| days[key].as_u64().unwrap());
    assert!(sweeps == 0 && slices > 0 && maps > 0, "{days}");
    assert_eq!(json["cells"][1]["policy"], "trimwised");
}

#[test]
fn here_on_a_mount_of_another_file_system_is_answered_by_that_one() {
    for file_system in [FileSystem::Xfs, FileSystem::Btrfs, FileSystem::F2fs] {
        let Some(folder) = folder(file_system) else { return };
        if !can_run(&[file_system.mkfs().0]) {
            return;
        }
        let name = file_system.name();
        // Many hosts cannot mount f2fs; a guest's kernel can.
        let known = fs::read_to_string("/proc/filesystems").unwrap();
        if file_system == FileSystem::F2fs && !known.contains(name) {
            continue;
        }
        let quiet = if file_system == FileSystem::F2fs { "-f" } else { "-qf" };
        let disk = Loop::new(512 << 20, &[file_system.mkfs().0, quiet]);
        let run = |kernels: Option<&str>, options: &[&str]| {
            let point = disk.point.to_str().unwrap();
            let mut command =
                command(&["compare", "--here", point, "--device", "drive.toml", "--workload", "mail.pmrc"]);
            command
                .args(["--reps", "1", "--days", "1", "--memory", "128", "--policy", "off", "discard"])
                .args(options);
            kernels.map(|folder| command.env("TRIMWISE_KERNELS", folder));
            command.current_dir(folder.path()).output().unwrap()
        };
        let own = run(None, &["--linux", "6.2", "--json", "-"]);
        assert!(own.status.success(), "{name}: {}", text(&own.stderr));
        let json: Value = serde_json::from_slice(&own.stdout).unwrap();
        assert_eq!(json["settings"]["target"], format!("kernel:6.1:{name}"));
        let (here, cells) = (&json["here"], json["cells"].as_array().unwrap());
        assert_eq!(here["file_system"], name);
        assert!(here["lines"][1].as_str().unwrap().contains("itself, that of Linux 6.1."), "{here}");
        assert!(cells[1]["device_stats"]["trim_commands"].as_u64().unwrap() > 0);

        let modelled = run(Some("none"), &["--json", "-"]);
        let said = text(&modelled.stderr);
        assert!(modelled.status.success(), "{said}");
        for words in
            ["no kernel is built here, so the model's ext4 answers", "`trimwise kernel build --version "]
        {
            assert!(said.contains(words), "{name}: {said}");
        }
        let json: Value = serde_json::from_slice(&modelled.stdout).unwrap();
        assert_eq!(
            (&json["settings"]["target"], &json["settings"]["file_system"]),
            (&"model".into(), &"ext4".into())
        );
    }
}

/// Counts the finished runs of unfinished commands in a cache.
fn kept(cache: &Path) -> usize {
    let folders = fs::read_dir(cache.join("trimwise/runs")).into_iter().flatten().flatten();
    let names = folders.flat_map(|entry| fs::read_dir(entry.path()).into_iter().flatten().flatten());
    names.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.')).count()
}

/// `advise` about a day of a small workload, with a cache of its own for what an unfinished command leaves.
fn advise(folder: &Path, cache: &str, file_system: FileSystem) -> Command {
    let kernels = kernel(file_system).unwrap().directory;
    let line = format!(
        "advise --fs {} --linux 6.1 --device drive.toml --workload mail.pmrc --utilization 50 --memory 128 --days 1 \
         --reps 3 --budget 1 --json -",
        file_system.name()
    );
    let mut command = command_in(folder, &line);
    command.env("TRIMWISE_KERNELS", kernels.parent().unwrap()).env("XDG_CACHE_HOME", folder.join(cache));
    command
}

#[test]
fn advise_asks_the_file_system_itself_and_goes_on_where_it_was_killed() {
    let Some(folder) = folder(FileSystem::Btrfs) else { return };
    let whole = advise(folder.path(), "whole", FileSystem::Btrfs).output().unwrap();
    let said = text(&whole.stderr);
    assert!(whole.status.success(), "{said}");
    assert!(said.contains("on btrfs of Linux 6.1, ") && !said.contains("goes on where"), "{said}");
    let json: Value = serde_json::from_slice(&whole.stdout).unwrap();
    assert_eq!((&json["settings"]["file_system"], &json["partial"]), (&"btrfs".into(), &false.into()));
    let compared =
        |key: &str| json["comparison"]["summary"].as_array().unwrap().iter().any(|row| row["policy"] == key);
    assert!(compared("off") && compared("commit") && compared("async"), "{json}");
    assert_eq!(json["comparison"]["settings"]["reps"], 3);
    assert!(json["settings"]["command"].as_str().unwrap().contains("advise --workload mail.pmrc"), "{json}");
    // A day of trimwised takes longer than a minute has room for.
    let left_out = json["search"]["left_out"].as_array().unwrap();
    assert!(left_out.iter().any(|left| left["policy"] == "trimwised"), "{left_out:?}");

    let mut command = advise(folder.path(), "killed", FileSystem::Btrfs);
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let kept = || kept(&folder.path().join("killed"));
    while kept() < 2 && running.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(20));
    }
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(kept() >= 2);
    let rest = advise(folder.path(), "killed", FileSystem::Btrfs).output().unwrap();
    assert!(
        text(&rest.stderr).contains("continuing where an earlier command stopped"),
        "{}",
        text(&rest.stderr)
    );
    assert_eq!(text(&rest.stdout), text(&whole.stdout));
    assert_eq!(kept(), 0, "nothing stays of a command that is done");
}

#[test]
fn what_ran_before_a_guest_was_killed_is_kept_and_gives_the_same_answer() {
    let Some(folder) = folder(FileSystem::Btrfs) else { return };
    let kernels = kernel(FileSystem::Btrfs).unwrap().directory;
    let compare = |cache: &str| {
        let line = "compare --fs btrfs --linux 6.1 --device drive.toml --workload mail.pmrc --utilization 30 --memory 128 \
                    --days 1 --policy off discard --reps 2 --jobs 1 --postmark --details";
        let mut command = command_in(folder.path(), line);
        command.env("TRIMWISE_KERNELS", kernels.parent().unwrap());
        command.env("XDG_CACHE_HOME", folder.path().join(cache));
        command
    };
    let whole = compare("whole").output().unwrap();
    let said = text(&whole.stdout);
    assert!(whole.status.success(), "{}", text(&whole.stderr));
    // The verdict is about what a cell's JSON does not have, too.
    assert!(said.contains("the flash lasts") && said.contains("megabytes written ("), "{said}");

    let cache = folder.path().join("killed");
    let running = compare("killed").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while kept(&cache) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_a_guest_of(running.id());
    let output = running.wait_with_output().unwrap();
    let cause = "the kernel stopped unexpectedly (signal: 9 (SIGKILL)";
    refused(1, &output, &["finished run", "kept for a month", "sata-small under ", ", repetition ", cause]);
    assert!(text(&output.stdout).contains("Partial: some runs are missing"), "{}", text(&output.stdout));
    assert!(kept(&cache) > 0);
    let rest = compare("killed").output().unwrap();
    assert!(
        text(&rest.stderr).contains("continuing where an earlier command stopped"),
        "{}",
        text(&rest.stderr)
    );
    assert_eq!(text(&rest.stdout), said);
    assert_eq!(kept(&cache), 0);
}

/// Ends a guest of this command, as the kernel does when memory runs out.
fn kill_a_guest_of(command: u32) {
    let guest = loop {
        match &guests_of(command)[..] {
            [] => std::thread::sleep(Duration::from_millis(1)),
            [guest, ..] => break guest.clone(),
        }
    };
    assert!(Command::new("kill").args(["-KILL", &guest]).status().unwrap().success());
}

/// The guests of a command: its only child is the laboratory's program, whose children they are.
fn guests_of(command: u32) -> Vec<String> {
    let parent_of = |process: &str| -> Option<String> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The program's name may have spaces.
        stat.rsplit(") ").next()?.split(' ').nth(1).map(String::from)
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let names = processes.filter_map(|entry| entry.file_name().into_string().ok());
    let is_guest = |process: &String| {
        let grandparent = parent_of(process).and_then(|parent| parent_of(&parent));
        grandparent.is_some_and(|grandparent| grandparent == command.to_string())
    };
    names.filter(is_guest).collect()
}

#[test]
fn a_sweep_on_a_file_system_itself_goes_on_after_its_guests_were_killed() {
    let Some(folder) = folder(FileSystem::Btrfs) else { return };
    let grid = |name: &str, rest: &str| {
        let text = format!("devices = ['drive.toml']\nlinux = '6.2'\nmemory_mib = 128\n{rest}");
        fs::write(folder.path().join(name), text).unwrap();
    };
    let sweep = |line: &str| command_in(folder.path(), &format!("sweep {line} --fs btrfs"));
    let policies = "policies = ['off', 'discard', 'discard=async', 'batch:10s']\n";
    grid("grid.toml", &format!("{policies}workloads = ['mail.pmrc']\nutilizations_percent = [30]\n"));
    let whole = sweep("grid.toml --out whole --json whole.json").output().unwrap();
    assert!(whole.status.success(), "{}", text(&whole.stderr));
    let json: Value = serde_json::from_slice(&fs::read(folder.path().join("whole.json")).unwrap()).unwrap();
    let rows = json["cases"][0]["rows"].as_array().unwrap();
    let ran: Vec<&str> = rows.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(ran, ["off", "commit", "async", "batch:10s"]);
    assert_eq!((&json["run_cells"], &json["missing_cells"]), (&4.into(), &0.into()));
    let description = fs::read_to_string(folder.path().join("whole/_sweep.json")).unwrap();
    assert!(description.contains("\"btrfs\"") && description.contains("\"6.1."), "{description}");

    let mut command = sweep("grid.toml --out killed --jobs 1");
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    kill_a_guest_of(running.id());
    let output = running.wait_with_output().unwrap();
    refused(1, &output, &["1 of 4 cells failed"]);
    let said = text(&output.stdout);
    for words in ["4 run now", "cell 0 failed: the kernel stopped", "SIGKILL"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let noted = text(&output.stderr);
    assert!(noted.contains("1 guest did not end by itself: the same command runs it again"), "{noted}");
    let rest = sweep("grid.toml --out killed").output().unwrap();
    assert!(text(&rest.stdout).contains("1 run now, 3 finished before"), "{}", text(&rest.stdout));
    let part = |name: &str| fs::read(folder.path().join(name).join("part-00000.parquet")).unwrap();
    assert!(part("whole") == part("killed"), "after a kill there are other bytes");

    // What no kernel does, and a guest that no computer has the memory for.
    let mail = "workloads = ['mail.pmrc']\n";
    fs::write(folder.path().join("log"), "fio version 3 iolog\n0 a write 0 4096\n").unwrap();
    for (rest, expected) in [
        (
            format!("policies = ['off',\n'ideal']\n{mail}"),
            &["grid.toml:5: policies: 'ideal' is not a policy of btrfs on a real kernel", "discard=async"][..],
        ),
        (
            format!("policies = ['off', 'async', 'discard=async']\n{mail}"),
            &["policies: 'async' is given twice"],
        ),
        (
            format!("policies = ['trimwised']\n{mail}"),
            &["grid.toml:4: policies: trimwised: the daemon works over hours"],
        ),
        ("policies = ['off']\nworkloads = ['trace:log']".to_owned(), &["grid.toml:5: workloads: trace:log"]),
        (
            "policies = ['off']\nworkloads = ['cmd:true']".to_owned(),
            &["grid.toml:5: workloads: cmd:true: is a program of this computer"],
        ),
        (
            format!("policies = ['off']\n{mail}days = 1\nutilizations_percent = [101]"),
            &["grid.toml:7: utilizations_percent: 101"],
        ),
    ] {
        grid("grid.toml", &rest);
        refused(2, &sweep("grid.toml --out refused").output().unwrap(), expected);
    }
    let large = "devices = ['drive.toml']\npolicies = ['off']\nmemory_mib = 1000000\nlinux = '6.2'\n";
    fs::write(folder.path().join("grid.toml"), format!("{large}{mail}")).unwrap();
    let output = sweep("grid.toml --out refused").output().unwrap();
    refused(2, &output, &["grid.toml:3: memory_mib: 1000000: a guest with a model of sata-small needs 97"]);
    assert!(!folder.path().join("refused").exists());
}
