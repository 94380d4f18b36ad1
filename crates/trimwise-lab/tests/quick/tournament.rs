//! A tournament gives the same bytes, whatever happens to the processes that play it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{command_in, contents, refused, said, text};

const HEAP: &str = "from trimwise import Decision, Policy\n\n\nclass Heap(Policy):\n    availability = 'reuse'\n\n    \
    def on_event(self, event, view):\n        print('not an answer')\n        \
    if view.pending_units > 0 and view.in_flight == 0:\n            return Decision.Issue()\n";

/// A program that answers the greeting, then by this arm of `case $line in`.
fn program(arm: &str) -> String {
    format!(
        "#!/bin/sh\nread -r hello\necho '{{\"protocol\":1}}'\nwhile read -r line; do\n\
         case $line in {arm} *) echo '[]';; esac\ndone\n"
    )
}

const EAGER: &str =
    r#"*'"committed"'*) echo '[{"type":"issue"},{"type":"wake_at","at_ns":900000000000000}]';;"#;

/// A folder with rules of six small cells.
fn rules(folder: &Path) {
    let drive = include_str!("../../../../profiles/sata-small.toml").replace("8_589_934_592", "536_870_912");
    fs::write(folder.join("small.toml"), drive).unwrap();
    fs::write(folder.join("small.pmrc"), "set number 20\nset transactions 50\nset size 1000 20000\nrun\n")
        .unwrap();
    fs::create_dir(folder.join("mine")).unwrap();
    let text = "devices = ['small.toml']\npolicies = ['off', 'lazy+reuse', 'ideal']\n\
                workloads = ['small.pmrc', 'append:64KiB:4MiB']\nutilizations_percent = [10, 20, 30]\nseeds = [1, 7]\n";
    fs::write(folder.join("mine/tournament.toml"), text).unwrap();
}

fn executable(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn play(folder: &Path, more: &str) -> Output {
    command_in(folder, &format!("tournament mine {more}")).output().unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)))
}

fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_ok();
    assert!(found || std::env::var_os("TRIMWISE_REQUIRE_ALL").is_none(), "python3 is missing");
    found
}

#[test]
fn jobs_and_kills_change_no_byte_and_a_changed_policy_plays_alone() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    rules(dir.path());
    executable(&at("mine/eager"), &program(EAGER));
    fs::write(at("mine/notes.txt"), "").unwrap();
    if has_python() {
        fs::write(at("mine/heap.py"), HEAP).unwrap();
    }
    let own = if has_python() { "eager, heap.py" } else { "eager" };
    let dry = play(dir.path(), "--dry-run");
    said(
        &dry,
        &[own, "1 device x 3 policies x 2 workloads x 3 utilizations x 2 seeds", "devices = ['small.toml']"],
    );
    assert!(!at("mine/results").exists(), "a dry run writes nothing");

    let one = play(dir.path(), "--out one --jobs 1 --json");
    let standings = json(&one);
    let two = play(dir.path(), "--out two --jobs 2 --json");
    assert_eq!(text(&one.stdout).replace("--out one", "--out two"), text(&two.stdout));
    assert!(contents(&at("one")) == contents(&at("two")), "two jobs give other results than one");
    assert!(text(&one.stderr).contains("notes.txt does not take part"), "{}", text(&one.stderr));
    let named = |key: &str| -> Vec<String> {
        standings[key]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["policy"].as_str().unwrap().to_owned())
            .collect()
    };
    let mut ranked = named("standings");
    ranked.sort();
    assert_eq!(ranked.join(", "), format!("{own}, lazy+reuse, off"));
    assert_eq!(named("bounds"), ["ideal"]);
    let off = standings["standings"].as_array().unwrap().iter().find(|row| row["policy"] == "off").unwrap();
    assert_eq!((&off["time"], &off["flash"]), (&1.0.into(), &1.0.into()));
    assert_eq!(standings["cases"].as_array().unwrap().len(), 6);
    assert_eq!(standings["disqualified"].as_array().unwrap().len(), 0);

    // Killed in the middle, then gone on with.
    let mut child = command_in(dir.path(), "tournament mine --jobs 2").stderr(Stdio::null()).spawn().unwrap();
    let begin = Instant::now();
    while !at("mine/results/built-in/_cells/00000/00000003").exists() {
        assert!(begin.elapsed() < Duration::from_secs(300), "no cell was finished");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let table = play(dir.path(), "");
    said(&table, &["rank", "trimwise tournament mine"]);
    let lines = text(&table.stdout);
    let (table, _) = lines.split_once("share the first place").unwrap_or((&lines, ""));
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{lines}");
    assert!(contents(&at("mine/results")) == contents(&at("one")), "after a kill there are other results");

    // Only what has changed plays again.
    let time = |name: &str| fs::metadata(at("mine/results").join(name)).unwrap().modified().unwrap();
    let before = time("built-in/_cells/00000/00000003");
    executable(&at("mine/eager"), &format!("{}# changed\n", program(EAGER)));
    let own = |name: &str| time(&format!("own/{name}/_cells/00000/00000003"));
    let (eager, heap) = (own("eager"), has_python().then(|| own("heap.py")));
    // What was written before keeps its time, unless it is written again.
    said(&play(dir.path(), "--max-silence 9"), &["eager", "trimwise tournament mine --max-silence 9"]);
    assert!(own("eager") > eager, "the changed policy did not play again");
    assert_eq!(has_python().then(|| own("heap.py")), heap, "another policy played again");
    assert_eq!(time("built-in/_cells/00000/00000003"), before, "trimwise's own policies played again");

    let saved = at("t.json");
    fs::write(&saved, &one.stdout).unwrap();
    said(&command_in(dir.path(), "report t.json --out t.html").output().unwrap(), &["t.html"]);
    let page = fs::read_to_string(at("t.html")).unwrap();
    assert!(page.contains("A tournament of TRIM policies") && page.contains("lazy+reuse"), "{page}");
}

#[test]
fn what_hangs_crashes_or_lies_is_out_and_the_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join("mine").join(name);
    rules(dir.path());
    let commit = r#"*'"committed"'*)"#;
    executable(&at("a-hang"), &program(&format!("{commit} sleep 1000;;")));
    executable(&at("b-crash"), &program(&format!("{commit} echo 'no idea' >&2; exit 3;;")));
    executable(&at("c-past"), &program(&format!("{commit} echo '[{{\"type\":\"wake_at\",\"at_ns\":1}}]';;")));
    executable(&at("d-reveal"), &program(&format!("{commit} echo '[{{\"type\":\"reveal\"}}]';;")));
    executable(&at("e-babble"), &program(&format!("{commit} echo 'trim all';;")));
    executable(&at("f-mute"), "#!/bin/sh\nexit 0\n");
    executable(&at("g-future"), "#!/bin/sh\necho '{\"protocol\":7}'\nread -r line\nread -r line\n");
    executable(&at("c-twice"), &program(&format!("{commit} printf '[]\\n[]\\n';;")));
    executable(&at("h-deaf"), "#!/bin/sh\nyes '[]'\n");
    // It trims in its first run alone.
    let moody = program(&format!("{commit} [ $first ] && echo '[{{\"type\":\"issue\"}}]' || echo '[]';;"));
    let remembers = "[ -e ../mood ] && first= || first=1\n: >../mood\nread -r hello\n";
    executable(&at("i-moody"), &moody.replace("read -r hello\n", remembers));
    executable(&at("z-good"), &program(EAGER));
    let output = play(dir.path(), "--max-silence 1 --jobs 1 --json");
    refused(
        1,
        &output,
        &[
            "disqualified: a-hang, b-crash, c-past, c-twice, d-reveal, e-babble, f-mute, g-future, h-deaf, i-moody",
        ],
    );
    let standings = json(&output);
    let reason = |policy: &str| -> String {
        let out = standings["disqualified"].as_array().unwrap().iter().find(|out| out["policy"] == policy);
        out.unwrap_or_else(|| panic!("{policy}: {standings}"))["reason"].as_str().unwrap().to_owned()
    };
    let event = r#"s of virtual time, on {"type":"committed","freed_units":"#;
    for (policy, words) in [
        ("a-hang", ["sata-small, small.pmrc, 10 % full, seed 1: at ", event, "no answer within 1 s"]),
        ("b-crash", ["", event, "ended (exit status: 3): no idea"]),
        ("c-past", ["", event, r#"decided {"type":"wake_at","at_ns":1}: expected a time after the present"#]),
        ("c-twice", ["", "s of virtual time, on ", "answered with more than one line"]),
        ("d-reveal", ["", event, "unknown variant `reveal`, expected one of `drop_freed`, "]),
        ("e-babble", ["", event, "answered trim all: expected ident"]),
        ("f-mute", ["", "at its start", "ended (exit status: 0)"]),
        ("g-future", ["", "at its start", "speaks version 7 of the protocol; expected 1"]),
        ("h-deaf", ["", "at its start", "answered []: invalid length 0"]),
        ("i-moody", ["", "", "a second run of the first cell gave a different result"]),
    ] {
        let reason = reason(policy);
        assert!(words.iter().all(|words| reason.contains(words)), "{policy}: {reason}");
    }
    // Not even the one that still computes, or waits, is left.
    let folder = at("").display().to_string();
    let of_process = |entry: std::io::Result<fs::DirEntry>| fs::read(entry.ok()?.path().join("cmdline")).ok();
    let left = fs::read_dir("/proc").unwrap().filter_map(of_process);
    let left: Vec<String> = left.map(|words| String::from_utf8_lossy(&words).replace('\0', " ")).collect();
    assert!(!left.iter().any(|words| words.contains(&folder)), "{left:?}");
    let ranked: Vec<&str> = standings["standings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["policy"].as_str().unwrap())
        .collect();
    assert!(ranked.len() == 3 && ranked.contains(&"z-good"), "{ranked:?}");
    // Of those that are out no data set is left, so nothing depends on how many ran at a time.
    assert!(!at("results/own/b-crash/part-00000.parquet").exists());
    if has_python() {
        fs::remove_dir_all(at("results")).unwrap();
        fs::read_dir(at(""))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_none())
            .for_each(|path| fs::remove_file(path).unwrap());
        for (name, text) in [
            ("raises.py", HEAP.replace("return Decision.Issue()", "return view.nothing")),
            ("two.py", HEAP.to_owned() + "\n\nclass Other(Heap):\n    pass\n"),
            ("word.py", HEAP.replace("return Decision.Issue()", "return ['trim all']")),
            ("seven.py", HEAP.replace("return Decision.Issue()", "return 7")),
            ("syntax.py", "class Heap(:\n".to_owned()),
            ("more.py", HEAP.replace("Decision, Policy\n", "Decision, Policy, compare\n")),
        ] {
            fs::write(at(name), text).unwrap();
        }
        let output = play(dir.path(), "--jobs 2");
        refused(1, &output, &["disqualified: more.py, raises.py, seven.py, syntax.py, two.py, word.py"]);
        let said = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            "more.py: sata-small, small.pmrc, 10 % full, seed 1: at its start: ended (exit status: 1): more.py, line 1, in \
             <module>: ImportError: trimwise.compare: a policy in a tournament has Decision, Event, Policy and View alone",
            "in on_event: AttributeError: 'View' object has no attribute 'nothing'",
            "TypeError: defines 2 policies (Heap, Other); expected one class that inherits from trimwise.Policy",
            "TypeError: on_event returned 7; expected None, a trimwise.Decision, or a list of them",
            "syntax.py, line 1: SyntaxError: ",
            "TypeError: on_event returned 'trim all'; expected None, a trimwise.Decision, or a list of them",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
}

#[test]
fn what_the_host_cannot_do_puts_no_policy_out() {
    let dir = tempfile::tempdir().unwrap();
    rules(dir.path());
    executable(&dir.path().join("mine/eager"), &program(EAGER));
    said(&play(dir.path(), ""), &["eager"]);
    // Where a result belongs is something that cannot be replaced by a file.
    let cells = dir.path().join("mine/results/own/eager/_cells/00000");
    fs::remove_dir_all(&cells).unwrap();
    std::os::unix::fs::symlink("/proc/self", &cells).unwrap();
    let output = play(dir.path(), "");
    refused(1, &output, &["mine/results/own/eager/_cells/00000"]);
    assert!(!text(&output.stderr).contains("disqualified") && output.stdout.is_empty());
}

#[test]
fn wrong_rules_and_what_a_policy_in_rust_needs_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    rules(dir.path());
    refused(
        2,
        &command_in(dir.path(), "tournament nowhere --dry-run").output().unwrap(),
        &["nowhere: No such file", "expected an existing folder, which may be empty"],
    );
    fs::create_dir(at("empty")).unwrap();
    let built_in = command_in(dir.path(), "tournament empty --dry-run").output().unwrap();
    said(&built_in, &["no own policy", "built-in rules\n  4 devices", "seeds = ["]);
    assert!(!at("nowhere").exists() && !at("empty/results").exists());
    let written = command_in(dir.path(), "tournament empty --dry-run --json --report page").output().unwrap();
    assert_eq!(json(&written)["rules"], "built-in rules");
    assert!(fs::read_to_string(at("page/index.html")).unwrap().contains("Policies in the folder: none."));
    std::os::unix::fs::symlink("nowhere", at("empty/tournament.toml")).unwrap();
    refused(
        2,
        &command_in(dir.path(), "tournament empty --dry-run").output().unwrap(),
        &["empty/tournament.toml: there is no such file"],
    );
    refused(
        2,
        &command_in(dir.path(), "tournament small.toml").output().unwrap(),
        &["small.toml: is a file"],
    );
    let toml = fs::read_to_string(at("mine/tournament.toml")).unwrap();
    for (wrong, words) in [
        (toml.replace("'off', ", ""), "mine/tournament.toml:2: policies: has no \"off\"; expected it"),
        (toml.replace("'off'", "'of'"), "mine/tournament.toml:2: policies: "),
        (
            toml.replace("'off'", "'off', 'trimwised'"),
            "mine/tournament.toml:2: policies: trimwised: the daemon works over hours; expected days = N with it",
        ),
        (toml.replace("small.pmrc", "nothing"), "mine/tournament.toml:3: workloads: nothing"),
    ] {
        fs::write(at("mine/tournament.toml"), wrong).unwrap();
        refused(2, &play(dir.path(), ""), &[words]);
    }
    fs::write(at("mine/tournament.toml"), &toml).unwrap();

    fs::write(at("mine/heap.rs"), "fn main() {}\n").unwrap();
    refused(2, &play(dir.path(), ""), &["heap.rs: needs --source CHECKOUT; expected a checkout"]);
    refused(2, &play(dir.path(), "--source nowhere"), &["--source nowhere: crates/trimwise: No such file"]);
    assert!(!at("mine/results").exists(), "nothing was played");
    // A compiler that only takes note of what it is given.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    fs::create_dir(at("bin")).unwrap();
    executable(
        &at("bin/cargo"),
        "#!/bin/sh\n[ \"$1\" = build ] || exit 0\ncp Cargo.toml Cargo.lock \"$TMPDIR\"\n\
         name=$(sed -n 's/^name = \"\\(.*\\)\"/\\1/p' Cargo.toml | head -n 1)\n\
         mkdir -p \"$CARGO_TARGET_DIR/release\"\ncp \"$TMPDIR/eager\" \"$CARGO_TARGET_DIR/release/$name\"\n",
    );
    executable(&at("eager"), &program(EAGER));
    let play = || {
        let mut command = command_in(dir.path(), &format!("tournament mine --source {}", root.display()));
        let path = format!("{}:{}", at("bin").display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("XDG_CACHE_HOME", at("cache")).output().unwrap()
    };
    said(&play(), &["heap.rs"]);
    // Another library makes another program of the same file.
    let plays_first = fs::read_to_string(at("mine/results/own/heap.rs/_sweep.json")).unwrap();
    executable(&at("eager"), &format!("{}# another library\n", program(EAGER)));
    said(&play(), &["heap.rs"]);
    assert_ne!(fs::read_to_string(at("mine/results/own/heap.rs/_sweep.json")).unwrap(), plays_first);
    let manifest = fs::read_to_string(at("Cargo.toml")).unwrap();
    let library = format!("trimwise = {{ path = \"{}\" }}", root.join("crates/trimwise").display());
    assert!(manifest.contains(&library) && manifest.contains("mine/heap.rs\""), "{manifest}");
    assert_eq!(fs::read(at("Cargo.lock")).unwrap(), fs::read(root.join("Cargo.lock")).unwrap());
    executable(
        &at("bin/cargo"),
        "#!/bin/sh\n[ \"$1\" = build ] || exit 0\necho 'error: expected item' >&2\nexit 101\n",
    );
    let output = play();
    refused(1, &output, &["disqualified: heap.rs"]);
    assert!(text(&output.stdout).contains("heap.rs: does not compile: error: expected item"));
}
