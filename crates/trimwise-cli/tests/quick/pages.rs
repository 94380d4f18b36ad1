//! Pages of the repository that must agree with something else.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use trimwise_linux::daemon::control;

use crate::common::{has_python, text};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Each tier of `.ci/run` is a job of the public workflow, which runs the same scripts, lints and stacks, with the same
/// packages.
#[test]
fn the_public_workflow_runs_what_ci_runs() {
    let without_comments = |path: &str| -> String {
        let page = page(path);
        let lines = page.lines().filter(|line| !line.trim_start().starts_with('#'));
        lines.flat_map(|line| [line, "\n"]).collect()
    };
    let [ci, tier, workflow] =
        [".ci/run", "scripts/test-tier", ".github/workflows/ci.yml"].map(without_comments);
    let words = |text: &str| -> BTreeSet<String> { text.split_whitespace().map(str::to_owned).collect() };

    let known = tier.split("expected ").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let known = words(&known.replace([',', '\''], " ").replace(" or ", " "));
    let after = |text: &str, before: &str| -> BTreeSet<String> {
        let name = |rest: &str| rest.split(|c: char| !c.is_ascii_lowercase()).next().unwrap().to_owned();
        text.split(before).skip(1).map(name).filter(|name| !name.is_empty()).collect()
    };
    assert_eq!(after(&ci, "tier "), known, ".ci/run");
    assert_eq!(after(&workflow, "scripts/test-tier "), known, "the workflow");
    for tier in &known {
        assert!(workflow.contains(&format!("- part: {tier}\n")), "no job is called {tier}");
    }

    let scripts = |text: &str| -> BTreeSet<String> {
        let name = |rest: &str| {
            rest.split(|c: char| !(c.is_ascii_lowercase() || c == '-')).next().map(str::to_owned)
        };
        text.split("scripts/").skip(1).filter_map(name).collect()
    };
    assert_eq!(scripts(&workflow), scripts(&ci));
    for line in ci.lines().map(str::trim) {
        if ["cargo fmt", "cargo clippy", "cargo deny", "rustfmt"].iter().any(|begin| line.starts_with(begin))
            && !line.contains("--version")
        {
            let line = line.split(" # ").next().unwrap();
            assert!(workflow.contains(&format!("{line}\n")), "the workflow lacks: {line}");
        }
    }
    let stacks = |text: &str| {
        text.split("STACK=").nth(1).and_then(|rest| rest.split_whitespace().next()).map(str::to_owned)
    };
    assert_eq!(stacks(&workflow), stacks(&ci));

    let programs = ci.split("for program in ").nth(1).and_then(|rest| rest.split("; do").next()).unwrap();
    let mut packages: BTreeSet<String> = words(&programs.replace('\\', " "))
        .iter()
        .map(|program| program.rsplit(':').next().unwrap().to_owned())
        .collect();
    packages.insert("debian-archive-keyring".to_owned());
    let listed = workflow.split("PACKAGES: >-\n").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap();
    assert_eq!(words(listed), packages);
}

/// The numbers on the page of what is stable are those of the code.
#[test]
fn the_page_of_what_is_stable_has_the_numbers_of_the_code() {
    let stability = page("docs/stability.md");
    let known = page("crates/trimwised/src/known.rs");
    let known = known.split("const VERSION: u32 = ").nth(1).and_then(|rest| rest.split(';').next()).unwrap();
    let trace = trimwise::trace::format::MAGIC.trim_end();
    for expected in [
        format!("`schema`, now {} |", trimwise_study::SCHEMA),
        format!("`rule`, now {} |", trimwise::compare::judge::RULE),
        format!("`protocol`, now {} |", trimwise::policy::wire::PROTOCOL),
        format!("`version`, now {} |", control::VERSION),
        format!("`{trace}` |"),
        format!("`trimwised_known`, now {known} |"),
    ] {
        assert!(stability.contains(&expected), "docs/stability.md lacks: {expected}");
    }
}

/// The bill of materials names each library that is in the programs once, as Cargo.lock pins it, and the C libraries inside.
#[test]
fn the_bill_of_materials_is_what_cargo_lock_pins() {
    if !has_python() {
        return;
    }
    let printed = |arguments: &[&str]| {
        let script = repository().join("scripts/third-party-licences");
        let output = Command::new(script).args(arguments).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let bill = printed(&["--sbom"]);
    assert_eq!(printed(&["--sbom"]), bill);
    let bill: serde_json::Value = serde_json::from_str(&bill).unwrap();
    let lock = page("Cargo.lock");
    let (mut references, mut in_c) = (BTreeSet::from(["trimwise"]), Vec::new());
    for one in bill["components"].as_array().unwrap() {
        let [name, version, reference] = ["name", "version", "bom-ref"].map(|key| one[key].as_str().unwrap());
        assert!(references.insert(reference), "{reference} twice");
        if reference.starts_with("pkg:cargo/") {
            let hash = one["hashes"][0]["content"].as_str().unwrap();
            let pinned = format!(
                "name = \"{name}\"\nversion = \"{version}\"\n\
                 source = \"registry+https://github.com/rust-lang/crates.io-index\"\nchecksum = \"{hash}\"\n"
            );
            assert!(lock.contains(&pinned), "{pinned}");
        } else {
            in_c.push(name);
        }
    }
    assert_eq!(in_c, ["sqlite", "zstd"]);
    let of_the_text =
        printed(&[]).lines().filter(|line| line.contains(" (https://crates.io/crates/")).count();
    assert_eq!(references.len(), 1 + of_the_text + in_c.len());
    for has in ["pkg:cargo/serde_json@", "pkg:cargo/libsqlite3-sys@", "pkg:cargo/clap@"] {
        assert!(references.iter().any(|reference| reference.starts_with(has)), "{has}");
    }
    let in_tests_alone = |reference: &&str| reference.starts_with("pkg:cargo/proptest@");
    assert!(!references.iter().any(in_tests_alone), "proptest");
    let mut needed = BTreeSet::from(["trimwise"]);
    for entry in bill["dependencies"].as_array().unwrap() {
        needed.extend(entry["dependsOn"].as_array().unwrap().iter().map(|on| on.as_str().unwrap()));
    }
    assert_eq!(needed, references, "each is needed by another, and each that is needed is there");
}

/// Pictures are files of the repository, which everybody downloads.
#[test]
fn pictures_of_pages_are_small() {
    for (picture, bytes_max) in [("docs/book/live.webp", 60_000), ("docs/book/terminal.svg", 40_000)] {
        let bytes =
            std::fs::metadata(repository().join(picture)).unwrap_or_else(|e| panic!("{picture}: {e}")).len();
        assert!(bytes < bytes_max, "{picture} has {bytes} bytes");
    }
}

/// Dead links are found without a build: in a clone, and on the site.
#[test]
fn dead_links_are_named() {
    if !has_python() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let check = |folder: &Path| {
        let script = repository().join("scripts/check-links");
        let output = Command::new(script).arg(folder).stdin(Stdio::null()).output().unwrap();
        (output.status.code(), format!("{}{}", text(&output.stdout), text(&output.stderr)))
    };
    for (file, content) in [
        ("docs/book/SUMMARY.md", "- [A](a.md)\n<!-- site:\n- [M](site:reference/m.md)\n-->\n"),
        ("docs/book/a.md", "# A `--b` c\n\n## Twice\n\n## Twice\n"),
        ("docs/left-out.md", "# Left out\n"),
        ("notes/n.txt", "n"),
    ] {
        let path = dir.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let a = dir.path().join("docs/book/a.md");
    let heads = std::fs::read_to_string(&a).unwrap();
    let sound = "[1](#a---b-c) [2](a.md#twice-1) [3](../../notes/n.txt) [4](https://example.org/x) `[5](none)`\n\n\
                 ```\n[6](none)\n```\n<!-- site: [7](site:live.html) -->\n";
    std::fs::write(&a, format!("{heads}{sound}")).unwrap();
    let (code, said) = check(dir.path());
    assert_eq!((code, said.as_str()), (Some(0), "3 pages, 6 links: 0 wrong\n"));
    for (link, expected) in [
        ("[x](none.md)", "docs/book/a.md: none.md: no such file"),
        ("[x]: none.md", "docs/book/a.md: none.md: no such file"),
        ("![x](figures/f.svg)", "figures/f.svg: no such file"),
        ("<img alt='x' src=\"figures/f.svg\">", "figures/f.svg: no such file"),
        ("<a href='../../reference/m.html'>x</a>", "../../reference/m.html: no such file"),
        ("[x](../../../other/s.md)", "../../../other/s.md: leads out of the repository"),
        ("[x](/docs/book/a.md)", "/docs/book/a.md: leads out of the repository"),
        ("<!-- site: [x](../../live.html) -->", "../../live.html: no such file"),
        ("[x](#twice-2)", "#twice-2: no such heading"),
        ("[x](SUMMARY.md#none)", "SUMMARY.md#none: no such heading"),
        ("[x](site:live.html)", "site:live.html: dead in a clone: not within <!-- site: -->"),
        ("[x](../../notes)", "../../notes: dead on the site: a folder"),
        ("[x](../left-out.md)", "dead on the site: docs/book/SUMMARY.md has no docs/left-out.md"),
    ] {
        std::fs::write(&a, format!("{heads}{sound}{link}\n")).unwrap();
        let (code, said) = check(dir.path());
        assert_eq!((code, said.lines().count()), (Some(1), 2), "{link}: {said}");
        assert!(said.contains(expected), "'{expected}' for {link}\n{said}");
    }
}
