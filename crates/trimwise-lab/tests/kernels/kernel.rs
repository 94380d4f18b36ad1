//! A real kernel.

use std::fs;
use std::process::{Command, Stdio};

use trimwise_testing::skipped;

use crate::reproduction::image;

/// `.ci/run` builds or finds the kernel.
#[test]
fn the_real_kernel_says_its_version_and_gets_the_same_randomness_each_time() {
    let Some(image) = image("6.1") else { return };
    let said = Command::new(&image.linux).arg("--version").stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8(said.stdout).unwrap().trim(), image.release);
    assert!(image.release.starts_with("6.1."), "{}", image.release);
    let config = fs::read_to_string(image.directory.join("config")).unwrap();
    for option in ["CONFIG_UML_TIME_TRAVEL_SUPPORT=y", "CONFIG_EXT4_FS=y", "CONFIG_VIRTIO_UML=y"] {
        assert!(config.lines().any(|line| line == option), "{option}");
    }
    let code = r#"
#include <stdio.h>
#include <sys/random.h>
int main(void) { unsigned char b[4]; getrandom(b, 4, 0); printf("%02x%02x%02x%02x", b[0], b[1], b[2], b[3]); }
"#;
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("draw.c"), code).unwrap();
    let gcc = Command::new("gcc").args(["-o", "draw", "draw.c"]).current_dir(dir.path()).status();
    if !gcc.is_ok_and(|status| status.success()) {
        return skipped("`gcc` is not installed");
    }
    let drawn = Command::new(dir.path().join("draw")).env("LD_PRELOAD", &image.preload).output().unwrap();
    assert_eq!(String::from_utf8(drawn.stdout).unwrap(), "42424242");
}
