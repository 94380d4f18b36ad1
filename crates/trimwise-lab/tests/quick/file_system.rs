//! `--fs` without a kernel: what is said instead, and what no kernel would do.

use std::process::Output;

use crate::common::{command_in, refused, text};

/// Runs in an empty folder, with no kernel built.
fn without_kernels(line: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    command_in(folder.path(), line).env("TRIMWISE_KERNELS", folder.path().join("none")).output().unwrap()
}

#[test]
fn without_a_kernel_a_file_system_is_refused_with_what_the_model_can_say_and_the_command_that_gets_one() {
    for (fs, words) in [
        ("xfs", "not what XFS does differently"),
        ("btrfs", "not what btrfs does differently"),
        ("f2fs", "not what f2fs does differently"),
    ] {
        let begin = format!("--fs {fs}: ");
        let output = without_kernels(&format!("compare --fs {fs} --policy off"));
        // Where mkfs is missing too, that is said first.
        let expected = [
            "no kernel is built here",
            "(--fs ext4)",
            words,
            "`trimwise kernel build --version 6.12`, or without a compiler the package trimwise-kernels",
        ];
        refused(2, &output, &[&[begin.as_str()][..], &expected].concat());
        assert_eq!(text(&output.stderr).lines().count(), 1);
    }
    for (linux, build) in
        [("6.2", "6.1`"), ("6.9", "6.12`"), ("6.18", "7.3`"), ("7.9", "7.3`"), ("4.4", "5.10`")]
    {
        let output = without_kernels(&format!("compare --fs xfs --linux {linux}"));
        refused(2, &output, &[&format!("kernel build --version {build}")]);
    }
}

#[test]
fn a_sweep_asks_for_a_kernel_too_and_without_one_its_guests_have_no_limits() {
    let grid = "devices = ['sata-small']\npolicies = ['off']\nworkloads = ['append:64KiB:4MiB']\n";
    for (rest, options, expected) in [
        (
            "",
            "--fs xfs",
            &["--fs xfs: no kernel is built here", "the model's ext4", "kernel build --version 6.12`"][..],
        ),
        ("linux = '6.2'", "--fs btrfs", &["--fs btrfs: no kernel", "kernel build --version 6.1`"]),
        ("linux = 'new'", "--fs xfs", &["grid.toml:4: linux: 'new' is not a known Linux version"]),
        ("", "--fs zfs", &["'zfs' is not a file system that a guest can make"]),
        ("", "--max-wall 9", &["apply only to guests; expected --fs xfs, btrfs or f2fs"]),
        ("", "--fs ext4 --max-silence 9", &["apply only to guests"]),
        ("", "--fs xfs --max-wall 0", &["--max-wall"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("grid.toml"), format!("{grid}{rest}")).unwrap();
        let mut command = command_in(folder.path(), &format!("sweep grid.toml --out out {options}"));
        let output = command.env("TRIMWISE_KERNELS", folder.path().join("none")).output().unwrap();
        refused(2, &output, expected);
        assert!(!folder.path().join("out").exists());
    }
}

#[test]
fn a_file_system_goes_with_the_model_s_options_only() {
    for (line, words) in [
        (
            "compare --fs zfs",
            "'zfs' is not a file system that a guest can make; expected one of ext4, xfs, btrfs, f2fs",
        ),
        ("compare --fs xfs --target kernel:6.12:xfs", "--fs cannot be used with --target kernel:6.12:xfs"),
        ("compare --fs xfs --linux new", "--linux: "),
        ("compare --fs xfs --target dir:/tmp", "--fs cannot be used with --target dir:/tmp"),
        (
            "compare --fs xfs --check kernel:6.12:ext4",
            "--fs xfs: runs on a kernel, and --check checks the model",
        ),
    ] {
        refused(2, &without_kernels(line), &[words]);
    }
}

#[test]
fn what_no_kernel_does_is_told_at_once() {
    let line = "compare --target kernel:6.12:xfs --workload append --days 1 --policy off lazy judicious async batch:1d+steps \
                discard=async";
    let expected = [
        "'lazy' is not a policy of xfs on a real kernel; expected off (mount option nodiscard), commit",
        "'judicious' is not a policy of xfs",
        "'async' is not a policy of xfs",
        "'batch:1d+steps': limits on deletions are modelled above the model's file system only; expected batch:1d",
        "'discard=async' is not a policy of xfs",
        "--days cannot be used with --workload append: it times a single operation",
    ];
    refused(2, &without_kernels(line), &expected);
    let line = "compare --target kernel:6.12:btrfs --policy trimwised";
    refused(
        2,
        &without_kernels(line),
        &["--policy trimwised: the daemon works over hours; expected --days N"],
    );
}

#[test]
fn ext4_is_the_model() {
    let line = "compare --workload append:4KiB:1MiB --utilization 1 --reps 1 --policy off --json -";
    let [named, usual] = [format!("{line} --fs ext4"), line.to_owned()].map(|line| without_kernels(&line));
    assert!(named.status.success(), "{}", text(&named.stderr));
    assert_eq!(text(&named.stdout), text(&usual.stdout));
    let json: serde_json::Value = serde_json::from_slice(&named.stdout).unwrap();
    assert_eq!((&json["settings"]["file_system"], &json["settings"]["kernel"]), (&"ext4".into(), &().into()));
}

#[test]
fn a_damaged_kernel_is_told_instead_of_one_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("kernels/6.12-0123456789ab");
    std::fs::create_dir_all(&image).unwrap();
    std::fs::write(image.join("image.json"), "{").unwrap();
    let mut command = command_in(folder.path(), "compare --fs xfs");
    let output = command.env("TRIMWISE_KERNELS", folder.path().join("kernels")).output().unwrap();
    let command = "for XFS itself: `trimwise kernel remove 6.12 && trimwise kernel build --version 6.12`";
    refused(2, &output, &["--fs xfs: ", "6.12-0123456789ab", "image.json", command]);
}

#[test]
fn a_kernel_refuses_what_only_others_have() {
    for (line, words) in [
        ("compare --target kernel:6.1:ext4 --linux 5.10", "--linux"),
        ("compare --target kernel:6.1:ext4 --fill", "--fill"),
        ("compare --target kernel:6.1:ext4 --policy judicious", "expected off"),
        ("compare --target kernel:6.1:ext4:nodiscard", "--policy"),
        ("compare --target kernel:6.1:ext2", "ext4, xfs, btrfs, f2fs"),
        ("compare --days 7 --target kernel:6.1:ext4 --workload append", "it times a single operation"),
        ("compare --target kernel:6.12:ext4 --policy dm-trim", "kernel:6.12+dm-trim:ext4"),
    ] {
        refused(2, &without_kernels(line), &[words]);
    }
}

#[test]
fn a_check_refuses_what_is_no_check_of_the_model() {
    for (line, words) in [
        ("compare --check kernel:6.1:xfs", "kernel:VERSION:ext4"),
        ("compare --check kernel:6.1", "kernel:VERSION:ext4"),
        ("compare --check 6.1:ext4", "kernel:VERSION:ext4"),
        ("compare --check kernel:new:ext4", "kernel:VERSION:ext4"),
        ("compare --check kernel:6.1:ext4:discard", "--policy"),
        ("compare --check kernel:6.1:ext4 --target kernel:6.1:ext4", "--check cannot be used with --target"),
        ("compare --check kernel:6.1:ext4 --target dir:/mnt/x", "--check cannot be used with --target"),
        ("compare --check kernel:6.1:ext4 --policy lazy ideal", "this kernel has none of these"),
    ] {
        refused(2, &without_kernels(line), &[words]);
    }
}
