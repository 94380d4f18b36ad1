//! What `trimwise trim` refuses.

use crate::trim_command::{refused, trim};

#[test]
fn wrong_arguments_are_refused() {
    refused(2, &trim(&[]), &["MOUNT"]);
    for size in ["12XB", "-1", "1.5", "", "16EiB", "many"] {
        let option = format!("--min-extent={size}");
        refused(2, &trim(&["/", &option]), &["--min-extent", &format!("'{size}'"), "64KiB", "64kB"]);
    }
    refused(2, &trim(&["/", "--length", "0"]), &["--length", "above 0"]);
    refused(2, &trim(&["/", "--slice", "0KiB"]), &["--slice", "above 0"]);
    refused(2, &trim(&["/", "--groups", "0"]), &["--groups", "'0'", "from 1"]);
    refused(2, &trim(&["/", "--groups", "1", "--slice", "1GiB"]), &["cannot be used with"]);
    refused(2, &trim(&["/", "--dry-run", "--pause", "5"]), &["cannot be used with"]);
    refused(2, &trim(&["/", "--pause", "1s"]), &["--pause", "'1s'", "whole number"]);
}

#[test]
fn what_is_no_file_system_on_a_device_is_refused() {
    refused(2, &trim(&["/proc", "--dry-run"]), &["/proc: proc is not on a block device"]);
    refused(2, &trim(&["/proc/self", "--dry-run"]), &["not a mount point", "mounted on /proc"]);
    refused(2, &trim(&["/no/such/place", "--dry-run"]), &["/no/such/place"]);
}
