//! Block devices given where none is expected, and narrow terminals.

use std::process::Stdio;

use trimwise_testing::loops::{Loop, can_run};
use trimwise_testing::program;

use crate::common::{command, refused, text, trimwise};

#[test]
fn a_block_device_is_refused_with_what_would_do() {
    if !can_run(&[]) {
        return;
    }
    let disk = Loop::blank(16 << 20);
    let before = disk.discards();
    let node = disk.node();
    let node = node.to_str().unwrap();
    let mount = format!("{node}: a block device; expected a mount point of it");
    let ask = format!("`findmnt {node}` shows");
    let of_directory = format!("dir:{node}");
    for line in [&["trim", node][..], &["trim", node, "--now"], &["doctor", node], &["verify", &of_directory]]
    {
        refused(2, &trimwise(line), &[&mount, &ask]);
    }
    let taken = format!("take the device itself as dev:{node}");
    for line in [&["bench", node, "fill"][..], &["verify", node]] {
        refused(2, &trimwise(line), &[&format!("{node}: a block device, not a profile"), &taken]);
    }
    refused(2, &trimwise(&["devices", node]), &["a block device, not a profile"]);
    refused(2, &trimwise(&["compare", "--target", &of_directory]), &[node, "not a directory"]);
    assert_eq!(disk.discards(), before, "and none of them sends anything");
}

#[test]
fn no_line_is_wider_than_a_terminal_of_80_columns() {
    if program("script").is_none() || program("stty").is_none() {
        return;
    }
    for line in ["policies", "devices", "devices sata-small", "reproduce --list", "kernel list"] {
        let mut script = std::process::Command::new("script");
        let shown = format!("stty cols 80 rows 24; {} {line}", command(&[]).get_program().display());
        script.args(["-qec", &shown, "/dev/null"]).env("NO_COLOR", "1").stdin(Stdio::null());
        let output = script.output().unwrap();
        let said = text(&output.stdout);
        assert!(output.status.success() && said.lines().count() > 1, "{line}: {said}");
        let wide: Vec<&str> = said.lines().filter(|line| line.trim_end().chars().count() > 80).collect();
        assert!(wide.is_empty(), "{line}: {wide:#?}");
    }
}
