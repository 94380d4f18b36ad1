//! What tests on real kernels share.

use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use trimwise_testing::skipped;
use trimwise_uml::images::{self, KernelImage};
use trimwise_uml::job::FileSystem;

/// Returns the command.
pub fn reproduce(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimwise-lab"));
    command.arg("reproduce").args(arguments.split_whitespace());
    command
}

/// Finds a kernel of this version; `None` if none is built, which skips the test.
pub fn image(version: &str) -> Option<KernelImage> {
    images::find(version).map_err(|error| skipped(&error.to_string())).ok()
}

/// A folder with a drive of 1 GiB, `drive.toml`, for an ext4 on this kernel; `None` if it is not built, which skips the
/// test.
pub fn folder_with_drive(kernel: &str) -> Option<TempDir> {
    if let Err(why) = FileSystem::Ext4.check_mkfs() {
        skipped(&why);
        return None;
    }
    image(kernel)?;
    let folder = tempfile::tempdir().unwrap();
    let drive =
        include_str!("../../../../profiles/sata-small.toml").replace("= 8_589_934_592", "= 1_073_741_824");
    std::fs::write(folder.path().join("drive.toml"), drive).unwrap();
    Some(folder)
}

/// Makes another drive there from `drive.toml`, or changes that one: this setting replaced by that.
pub fn changed_drive(folder: &TempDir, name: &str, setting: &str, by: &str) {
    let drive = std::fs::read_to_string(folder.path().join("drive.toml")).unwrap();
    let changed = drive.replace(setting, by);
    assert_ne!(changed, drive);
    std::fs::write(folder.path().join(name), changed).unwrap();
}

/// Returns its standard error.
pub fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether a claim of a result is met.
pub fn is_met(result: &Value, id: &str) -> bool {
    let claims = result["claims"].as_array().unwrap();
    let claim = claims.iter().find(|claim| claim["id"] == id);
    claim.unwrap_or_else(|| panic!("no claim {id}"))["met"].as_bool().unwrap()
}

/// Whether everything runs, not just a sample.
pub fn is_full() -> bool {
    std::env::var("KERNELS").is_ok_and(|value| value == "full")
}

/// Asserts that without a built kernel the command is refused with all of these words.
pub fn refused(arguments: &str, words: &[&str]) {
    let empty = tempfile::tempdir().unwrap();
    let output = reproduce(arguments).env("TRIMWISE_KERNELS", empty.path()).output().unwrap();
    let message = error(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments}: {message}");
    assert!(words.iter().all(|word| message.contains(word)), "{arguments}: {message}");
    assert!(output.stdout.is_empty());
}
