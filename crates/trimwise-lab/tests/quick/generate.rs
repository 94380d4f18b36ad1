//! Man pages and completions.

use std::collections::BTreeSet;
use std::process::Command;

use crate::common::{refused, said, text, trimwise};

#[test]
fn every_command_in_the_help_has_a_man_page_with_its_options_and_examples() {
    let folder = tempfile::tempdir().unwrap();
    let man = folder.path().join("man1");
    said(&trimwise(&["generate", "man", man.to_str().unwrap()]), &["man pages in"]);
    let pages: BTreeSet<String> =
        man.read_dir().unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    let help = text(&trimwise(&["--help"]).stdout);
    let (_, groups) = help.split_once("This host:\n").unwrap();
    let (listed, _) = groups.split_once("Options:\n").unwrap();
    let commands: Vec<&str> = listed
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.len() > 20, "{commands:?}");
    for command in commands {
        assert!(pages.contains(&format!("trimwise-{command}.1")), "{command} has no page among {pages:?}");
    }
    assert!(
        pages.contains("trimwise-kernel-build.1") && !pages.contains("trimwise-guest-init.1"),
        "{pages:?}"
    );
    let compare = std::fs::read_to_string(man.join("trimwise-compare.1")).unwrap();
    // An example is a line of its own; prose is filled.
    for word in ["utilization", ".RS 10n\n.ti -8n\ntrimwise compare \\-\\-here /home\n.RE\n"] {
        assert!(compare.contains(word), "{word} is not in {compare}");
    }
    let notes = compare.split_once(".SH NOTES\n").unwrap().1;
    assert!(notes.starts_with(".ad l\n") && !notes.contains(".nf"), "{notes}");
}

#[test]
fn regression_what_stands_where_pages_go_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("file"), "").unwrap();
    let man = |place: &str| trimwise(&["generate", "man", place]);
    refused(2, &man(&at("file")), &["error: /", "/file: is a file; expected a directory"]);
    refused(2, &man(&at("file/man1")), &["a part of this path is a file; expected a directory"]);
    std::fs::create_dir_all(at("man1/trimwise-compare.1")).unwrap();
    refused(1, &man(&at("man1")), &["/man1/trimwise-compare.1: Is a directory"]);
}

#[test]
fn completions_offer_commands_and_the_names_of_devices_policies_and_experiments() {
    for shell in ["bash", "zsh", "fish"] {
        let output = trimwise(&["generate", "completions", shell]);
        let script = text(&output.stdout);
        for word in ["crashtest", "sata-small", "lazy+reuse", "postmark-vendors", "oltp"] {
            assert!(script.contains(word), "{shell} does not offer {word}");
        }
        assert!(!script.contains("guest-init"), "{shell} offers a hidden command");
    }
    refused(2, &trimwise(&["generate", "completions", "tcsh"]), &["tcsh", "bash, zsh, fish"]);
}

#[test]
fn bash_completes_what_was_begun() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("trimwise");
    std::fs::write(&script, trimwise(&["generate", "completions", "bash"]).stdout).unwrap();
    let offered = |option: &str, begun: &str| {
        let ask = ". \"$1\"; COMP_WORDS=(trimwise compare \"$2\" \"$3\"); COMP_CWORD=3; \
                   _trimwise trimwise \"$3\" \"$2\"; echo \"${COMPREPLY[@]}\"";
        let mut bash = Command::new("bash");
        let output = bash.args(["-c", ask, "-"]).arg(&script).args([option, begun]).output().unwrap();
        text(&output.stdout)
    };
    assert_eq!(offered("--device", "sata-sm"), "sata-small\n");
    assert!(offered("--policy", "la").contains("lazy+reuse"));
}
