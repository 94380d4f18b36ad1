//! The commands that talk to the daemon, without a daemon; `config check` and `doctor`.

use std::fs;

use trimwise_testing::fake_host::{GIB, Host};

use crate::common::{refused, said, text, trimwise};

#[test]
fn without_a_daemon_it_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().to_str().unwrap();
    for arguments in
        [&["status"][..], &["explain", "/"], &["history", "/"], &["pause", "--all"], &["resume", "/"]]
    {
        let output = trimwise(&[arguments, &["--run", run]].concat());
        refused(1, &output, &["control.sock: trimwised is not listening", "to start it: `"]);
    }
    refused(1, &trimwise(&["trim", "/", "--now", "--run", run]), &["trimwised is not listening"]);
    // A bare `pause` does not pause everything.
    refused(2, &trimwise(&["pause", "--run", run]), &["pause needs a MOUNT, or --all to pause all"]);
    refused(2, &trimwise(&["trim", "/", "--now", "--dry-run"]), &["cannot be used with"]);
    refused(2, &trimwise(&["trim", "/", "--wait"]), &["required arguments", "--now"]);
    refused(1, &trimwise(&["trim", "/", "--now", "--wait", "--run", run]), &["trimwised is not listening"]);
}

#[test]
fn regression_explain_says_that_nothing_has_this_name_before_that_nobody_listens() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().to_str().unwrap();
    let output = trimwise(&["explain", "NOPE", "--run", run]);
    let whole =
        ["NOPE: no file system is mounted there, and no finding has this code", "`trimwise explain --list`"];
    refused(2, &output, &whole);
    // Unless a daemon listens elsewhere on this host, which would not know it either.
    let text = text(&output.stderr);
    assert!(text.contains("trimwised is not listening") || text.lines().count() == 1, "{text}");
    assert!(text.starts_with("error: NOPE: "), "{text}");
}

#[test]
fn a_configuration_is_checked_and_all_that_is_wrong_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trimwise.toml");
    let path = file.to_str().unwrap();
    refused(2, &trimwise(&["config", "check", path]), &["trimwise.toml: No such file"]);
    fs::write(&file, "").unwrap();
    said(
        &trimwise(&["config", "check", path]),
        &["valid. Manages all file systems that can be trimmed, with judicious"],
    );
    fs::write(&file, "group = \"nobody-is-in-this\"\n").unwrap();
    said(&trimwise(&["config", "check", path]), &["valid.", "no such group on this host"]);
    fs::write(&file, "policy = \"ideal\"\n[mount.\"/home\"]\nslice = 3\n").unwrap();
    fs::create_dir(folder.path().join("trimwise.toml.d")).unwrap();
    fs::write(folder.path().join("trimwise.toml.d/a.toml"), "group = 7\n").unwrap();
    let output = trimwise(&["config", "check", path]);
    refused(
        2,
        &output,
        &[
            "error: 3 things are wrong:\n",
            "trimwise.toml:1: policy:",
            "trimwise.toml:3: mount.\"/home\".slice:",
            "a.toml:1: group: 7",
        ],
    );
    let json = trimwise(&["config", "check", path, "--json", "-"]);
    let data: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((data["errors"].as_array().unwrap().len(), &data["errors"][0]["line"]), (3, &1.into()));
}

#[test]
fn a_finding_is_explained_without_a_daemon() {
    let luks = trimwise(&["explain", "layer.luks.discards-off"]);
    said(
        &luks,
        &[
            "layer.luks.discards-off (a problem)\n",
            "A LUKS volume drops TRIM",
            "What to do: If you accept that",
            "How it is found: The mapping accepts no TRIM",
            "More: docs/guide.md#is-trim-on-and-does-it-arrive-doctor\n",
        ],
    );
    let json = trimwise(&["explain", "layer.luks.discards-off", "--json", "-"]);
    let data: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&data["code"], &data["severity"]), (&"layer.luks.discards-off".into(), &"problem".into()));
    refused(
        2,
        &trimwise(&["explain", "layer.luks.discard-off"]),
        &["unknown code 'layer.luks.discard-off'", "did you mean `layer.luks.discards-off`?", "--list"],
    );
    refused(2, &trimwise(&["explain", "layer.quantum.no-trim"]), &["a newer trimwise may know more"]);
    refused(2, &trimwise(&["explain"]), &["MOUNT|CODE"]);
    refused(2, &trimwise(&["explain", "/", "--list"]), &["cannot be used with"]);
    let list = trimwise(&["explain", "--list"]);
    said(&list, &["layer.luks.discards-off ", "verify.trim.not-sent "]);
    assert!(text(&list.stdout).lines().all(|line| line.chars().count() <= 100));
    let json = trimwise(&["explain", "--list", "--json", "-"]);
    let data: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(data["findings"].as_array().unwrap().iter().any(|one| one["code"] == "mount.timer.masked"));
}

#[test]
fn the_doctor_says_what_is_wrong_with_exit_code_1() {
    let host = tempfile::tempdir().unwrap();
    let file = |path: &str, text: &str| {
        let path = host.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    file("proc/1/mountinfo", "22 1 8:16 / /media rw - ext4 /dev/sdb rw\n");
    file("sys/devices/usb1/host1/block/sdb/dev", "8:16");
    file("sys/devices/usb1/host1/block/sdb/queue/discard_max_bytes", "0");
    fs::create_dir_all(host.path().join("sys/dev/block")).unwrap();
    std::os::unix::fs::symlink("../../devices/usb1/host1/block/sdb", host.path().join("sys/dev/block/8:16"))
        .unwrap();
    let root = host.path().to_str().unwrap();
    let output = trimwise(&["doctor", "--host-root", root]);
    refused(1, &output, &["error: 1 thing is wrong"]);
    let shown = text(&output.stdout);
    for words in [
        "/media: ext4 on /dev/sdb, nodiscard: TRIM does not pass",
        "the USB adapter of sdb",
        "[disk.usb.adapter-no-trim]\n",
        "remedy: ",
        "`trimwise explain CODE` explains a code in brackets.\n",
    ] {
        assert!(shown.contains(words), "'{words}' is not in: {shown}");
    }
    let json = trimwise(&["doctor", "/media", "--host-root", root, "--json", "-"]);
    let data: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (json.status.code(), &data["wrong"], &data["file_systems"][0]["passes"]),
        (Some(1), &1.into(), &false.into())
    );
    assert_eq!(data["file_systems"][0]["findings"][0]["code"], "disk.usb.adapter-no-trim");
    let empty = host.path().join("sys").display().to_string();
    for wrong in ["/nope", "/dev/null", &empty] {
        let words = format!("--host-root {wrong}: {}/proc/1/mountinfo", wrong);
        refused(2, &trimwise(&["doctor", "--host-root", wrong]), &[&words, "expected the folder"]);
    }
    refused(
        2,
        &trimwise(&["doctor", "/srv", "--host-root", root]),
        &["/srv: no file system", "such as /media"],
    );
}

/// It offered `verify dir:PATH` also where that refuses: on btrfs, and above dm-crypt.
#[test]
fn regression_the_doctor_offers_verify_only_where_it_works() {
    const OFFERED: &str = "whether TRIMs reach the disk (`trimwise verify dir:/srv`).";
    const NOT: &str = "`trimwise verify` cannot see that below any of these";
    for (fs_type, is_encrypted, words) in
        [("ext4", false, OFFERED), ("xfs", false, OFFERED), ("btrfs", false, NOT), ("ext4", true, NOT)]
    {
        let device = if is_encrypted { "253:0" } else { "8:0" };
        let host = Host::new(&format!("22 1 {device} / /srv rw - {fs_type} /dev/sda rw,discard\n"));
        host.device("pci0/host0/target0/block/sda", "8:0", GIB);
        if is_encrypted {
            host.device("virtual/block/dm-0", "253:0", GIB);
            host.file("sys/devices/virtual/block/dm-0/dm/uuid", "CRYPT-LUKS2-00-srv");
            host.file("sys/devices/virtual/block/dm-0/dm/name", "srv");
            host.slave("virtual/block/dm-0", "pci0/host0/target0/block/sda");
        }
        let output = trimwise(&["doctor", "--host-root", host.0.path().to_str().unwrap()]);
        let shown = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains(words), "{fs_type}, encrypted: {is_encrypted}: {shown}");
        assert_eq!(shown.contains("dir:"), words == OFFERED, "{shown}");
    }
}
