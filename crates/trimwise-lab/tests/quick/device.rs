//! What `trimwise device` refuses.

use crate::common::{refused, trimwise};
use crate::device_place::Place;

#[test]
fn wrong_words_are_refused_before_anything_is_made() {
    let place = Place::new();
    for (words, expected) in [
        (&["attach", "--profile", "nosuch"][..], "--profile nosuch: neither a built-in name"),
        (&["attach", "--profile", "sata-small", "--size", "1TiB"], "has only 8 GiB; expected at most that"),
        (&["attach", "--profile", "sata-small", "--size", "4KiB"], "the drive cannot be scaled to that"),
        (&["attach", "--profile", "sata-small", "--name", "a/b"], "is not a device name; expected"),
        (&["serve", "--profile", "sata-small", "--nbd", "unix:/proc/x"], "unix:/proc/x: "),
        (&["detach", "nosuch"], "no emulated device here has this name or node"),
    ] {
        let said = place.refused(2, words);
        assert!(said.contains(expected), "{words:?}: {said}");
    }
    for words in [
        &["attach", "--time-scale", "0"][..],
        &["attach", "--size", "0"],
        &["serve", "--nbd", "/tmp/x"],
        &["serve"],
        &["detach"],
        &["detach", "x", "--all"],
    ] {
        assert_eq!(place.device(words).status.code(), Some(2), "{words:?}");
    }
    let long = format!("unix:{}", place.path(&"x".repeat(100)).display());
    let said = place.refused(2, &["serve", "--profile", "sata-small", "--size", "64MiB", "--nbd", &long]);
    assert!(said.contains("too long for the path of a socket; expected at most 107"), "{said}");
    place.is_clean();
}

#[test]
fn regression_a_folder_of_devices_that_is_a_file_is_wrong_input() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("old.json");
    std::fs::write(&file, "{}").unwrap();
    for (wrong, words) in [(file.clone(), "is not a directory"), (file.join("x"), "Not a directory")] {
        let output = trimwise(&["device", "--state-dir", wrong.to_str().unwrap(), "list"]);
        refused(2, &output, &["--state-dir ", words]);
    }
}
