//! `trimwise kernel` with a fake compiler and a fake `make`, so that each way in which a build can end is tested within
//! seconds.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use trimwise_testing::skipped;

/// A machine on which only the shell is real: programs, a home, a kernel's source of version 6.6.30, a cache.
struct Machine(TempDir);

/// Copies its configuration, "compiles", and does what `$HOME/compile` says.
const MAKE: &str = r#"#!/bin/sh
for word; do case $word in O=*) out=${word#O=};; LOCALVERSION=*) added=${word#*=};; esac; done
cd "$2"
case "$*" in
*allnoconfig*) cp "$KCONFIG_ALLCONFIG" "$out/.config"; . "$HOME/configure";;
*) echo "make" >>"$HOME/calls"; echo "  CC      init/main.o"; . "$HOME/compile"; echo kernel >"$out/linux"; chmod +x "$out/linux";;
esac
"#;

const GCC: &str = r#"#!/bin/sh
[ "$1" = --version ] && echo "gcc (Pretended) 12" && exit
while [ "$1" != -o ]; do shift; done
echo library >"$2"
"#;

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        for folder in ["bin", "home", "linux-6.6.30"] {
            fs::create_dir(machine.path(folder)).unwrap();
        }
        for (name, text) in [
            ("make", MAKE),
            ("gcc", GCC),
            ("flex", "#!/bin/sh\n"),
            ("bison", "#!/bin/sh\n"),
            ("bc", "#!/bin/sh\n"),
        ] {
            let path = machine.path("bin").join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        // If the machine has no xz, a dummy that is never called.
        fs::copy(machine.path("bin/bc"), machine.path("bin/xz")).unwrap();
        fs::write(machine.path("linux-6.6.30/Makefile"), "VERSION = 6\nPATCHLEVEL = 6\nSUBLEVEL = 30\n")
            .unwrap();
        machine.write("configure", "");
        machine.write("compile", "");
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path("home").join(name), text).unwrap();
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trimwise-lab"));
        command
            .args(line.split_whitespace())
            .current_dir(self.0.path())
            .env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display()))
            .env("HOME", self.path("home"))
            .env("TRIMWISE_KERNELS", self.path("cache"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Runs, expects this exit code, and returns standard error.
    #[track_caller]
    fn fails(&self, line: &str, code: i32) -> String {
        let output = self.run(line);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{line}: {message}");
        message
    }

    /// Runs, and returns the JSON that it prints.
    #[track_caller]
    fn json(&self, line: &str) -> Value {
        let output = self.run(&format!("{line} --json -"));
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// How often a kernel was compiled.
    fn calls(&self) -> usize {
        fs::read_to_string(self.path("home/calls")).map_or(0, |text| text.lines().count())
    }

    /// Lists the cache, including hidden entries.
    fn cached(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("cache")).into_iter().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Starts a build that runs until it is stopped; returns it and a process that its `make` has started.
    fn endless(&self, line: &str) -> (Child, u32) {
        self.write(
            "compile",
            "echo cut >\"$out/cut.o\"; sleep 1000 & echo $! >\"$HOME/sleeper.new\"; mv \"$HOME/sleeper.new\" \"$HOME/sleeper\"; \
                               while :; do echo '  CC      a.o'; sleep 0.1; done",
        );
        let child = self.command(line).spawn().unwrap();
        until(|| self.path("home/sleeper").exists());
        let sleeper = fs::read_to_string(self.path("home/sleeper")).unwrap();
        (child, sleeper.trim().parse().unwrap())
    }
}

const BUILD: &str = "kernel build --version 6.6 --source linux-6.6.30";

#[track_caller]
fn until(holds: impl Fn() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_secs(300), "it did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(process: u32, name: &str) {
    assert!(
        Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status().unwrap().success()
    );
}

/// Whether the process exists and has not ended.
fn is_alive(process: u32) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_kernel_is_built_once_and_found_from_then_on() {
    let machine = Machine::new();
    let first = machine.json(BUILD);
    let kernel = &first["kernels"][0];
    assert_eq!((kernel["state"].as_str(), kernel["release"].as_str()), (Some("new"), Some("6.6.30")));
    assert_eq!(kernel["compiler"], "gcc (Pretended) 12");
    let linux = Path::new(kernel["linux"].as_str().unwrap());
    assert_eq!(fs::read_to_string(linux).unwrap(), "kernel\n");
    for file in ["config", "image.json", "preload.so", "build.log"] {
        assert!(linux.with_file_name(file).exists(), "{file}");
    }
    assert_eq!(machine.cached().len(), 1, "{:?}", machine.cached());

    assert_eq!(machine.json(BUILD)["kernels"][0]["state"], "built");
    assert_eq!(machine.calls(), 1);
    let list = machine.json("kernel list");
    let states: Vec<_> =
        list["kernels"].as_array().unwrap().iter().map(|k| (&k["version"], &k["state"])).collect();
    assert_eq!(format!("{states:?}").matches("\"not_built\"").count(), 4, "{states:?}");
    assert!(states.iter().any(|(version, state)| *version == "6.6" && *state == "built"), "{states:?}");

    // Rebuilt if forced, or from another source.
    assert_eq!(machine.json(&format!("{BUILD} --force"))["kernels"][0]["state"], "new");
    fs::rename(machine.path("linux-6.6.30"), machine.path("other")).unwrap();
    let other = machine.json("kernel build --version 6.6 --source other");
    assert!(other["kernels"][0]["source"].as_str().unwrap().contains("/other (tree "), "{other}");
    assert_eq!((machine.calls(), machine.cached().len()), (3, 1));
    fs::write(machine.path("other/README"), "changed").unwrap();
    assert_eq!(machine.json("kernel build --version 6.6 --source other")["kernels"][0]["state"], "new");
    assert_eq!(machine.json("kernel build --version 6.6 --source other")["kernels"][0]["state"], "built");

    assert!(machine.run("kernel remove 6.6").status.success());
    assert_eq!(machine.cached(), [""; 0]);
    machine.fails("kernel remove 6.6", 2);
}

#[test]
fn a_new_image_takes_the_place_of_those_that_another_recipe_made() {
    let machine = Machine::new();
    let image = |folder: &str, version: &str, recipe: &str| {
        let folder = machine.path("cache").join(folder);
        fs::create_dir_all(&folder).unwrap();
        let text = serde_json::json!({
            "version": version, "release": "6.6.1", "source": "a tree", "compiler": "gcc", "recipe": recipe,
        });
        fs::write(folder.join("image.json"), text.to_string()).unwrap();
        fs::write(folder.join("linux"), vec![1; 1 << 20]).unwrap();
        fs::set_permissions(folder.join("linux"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.join("preload.so"), "library").unwrap();
    };
    image("6.6-0123456789ab", "6.6", "0123456789ab");
    image("6.6-ba9876543210", "6.6", "ba9876543210");
    // Another version; a name or a description that is not ours; a link to a kernel kept elsewhere.
    image("6.60-0123456789ab", "6.60", "0123456789ab");
    image("6.6-mine", "6.6", "mine");
    image("6.6-aaaaaaaaaaab", "6.6", "0123456789ab");
    image("../elsewhere", "6.6", "aaaaaaaaaaaa");
    std::os::unix::fs::symlink("../elsewhere", machine.path("cache/6.6-aaaaaaaaaaaa")).unwrap();
    fs::create_dir(machine.path("cache/6.6-notes")).unwrap();
    let before = machine.cached();

    machine.write("compile", "exit 3");
    machine.fails(BUILD, 1);
    assert!(before.iter().all(|name| machine.cached().contains(name)), "a build that fails removes nothing");

    machine.write("compile", "");
    let output = machine.run(BUILD);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{message}");
    assert!(message.contains("removed outdated images of 6.6: 2.0 MiB freed"), "{message}");
    let left = machine.cached();
    let gone: Vec<_> = before.iter().filter(|name| !left.contains(name)).collect();
    assert_eq!(gone, ["6.6-0123456789ab", "6.6-ba9876543210"]);
    assert_eq!(left.len(), before.len() - 1, "{left:?}");
    assert!(machine.path("elsewhere/linux").exists());

    // Once they are gone there is nothing to report.
    let again = machine.run(&format!("{BUILD} --force"));
    assert_eq!(String::from_utf8(again.stderr).unwrap(), "");
}

#[test]
fn the_tables_fit_a_hundred_columns() {
    let machine = Machine::new();
    machine.json(BUILD);
    for line in ["kernel list", BUILD] {
        let text = String::from_utf8(machine.run(line).stdout).unwrap();
        assert!(text.contains("6.6.30") && text.lines().all(|l| l.chars().count() <= 100), "{text}");
    }
}

#[test]
fn a_build_that_fails_leaves_its_log_and_what_was_there() {
    let machine = Machine::new();
    machine.write("compile", "echo 'main.c:1: error: no'; exit 3");
    let message = machine.fails(BUILD, 1);
    let cached = machine.cached();
    assert!(cached.len() == 1 && cached[0].ends_with(".log"), "{cached:?}");
    assert!(message.contains("main.c:1: error: no") && message.contains(&cached[0]), "{message}");
    assert!(fs::read_to_string(machine.path("cache").join(&cached[0])).unwrap().contains("error: no"));

    // The next build replaces the log; its image stays if one more build fails.
    machine.write("compile", "");
    machine.json(BUILD);
    machine.write("compile", "exit 3");
    machine.fails(&format!("{BUILD} --force"), 1);
    assert_eq!(machine.json(BUILD)["kernels"][0]["state"], "built");
}

#[test]
fn an_option_that_the_kernel_does_not_take_is_named() {
    let machine = Machine::new();
    machine.write("configure", "sed -i /CONFIG_F2FS_FS/d \"$out/.config\"");
    let message = machine.fails(BUILD, 1);
    assert!(message.contains("CONFIG_F2FS_FS=y did not take effect"), "{message}");
    assert_eq!(machine.calls(), 0);
}

#[test]
fn two_builds_at_once_are_one() {
    let machine = Machine::new();
    machine.write("compile", "sleep 1");
    let builds = [(); 3].map(|()| machine.command(&format!("{BUILD} --json -")).spawn().unwrap());
    let mut states: Vec<String> = builds
        .map(|build| build.wait_with_output().unwrap())
        .iter()
        .map(|output| {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            report["kernels"][0]["state"].to_string()
        })
        .collect();
    states.sort();
    assert_eq!(states, ["\"built\"", "\"built\"", "\"new\""]);
    assert_eq!((machine.calls(), machine.cached().len()), (1, 1), "{:?}", machine.cached());
}

#[test]
fn an_interrupted_build_ends_all_that_it_has_started() {
    let machine = Machine::new();
    let (build, sleeper) = machine.endless(BUILD);
    signal(build.id(), "INT");
    let output = build.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    until(|| !is_alive(sleeper));
    assert!(machine.cached().iter().all(|name| name.ends_with(".log")), "{:?}", machine.cached());
}

#[test]
fn what_a_killed_build_leaves_goes_with_the_next_one() {
    let machine = Machine::new();
    let (mut build, sleeper) = machine.endless(BUILD);
    signal(build.id(), "KILL");
    assert_eq!(build.wait().unwrap().signal(), Some(9));
    assert!(machine.cached().iter().any(|name| name.starts_with(".building-")), "{:?}", machine.cached());
    if is_alive(sleeper) {
        signal(sleeper, "KILL"); // `make` ends when its output is closed; a silent program does not
    }
    machine.write("compile", "");
    machine.json(BUILD);
    assert_eq!(machine.cached().len(), 1, "{:?}", machine.cached());
}

#[test]
fn what_cannot_be_built_is_refused_with_what_can() {
    let machine = Machine::new();
    let expect = |line: &str, code, words: &[&str]| {
        let message = machine.fails(line, code);
        assert!(words.iter().all(|word| message.contains(word)), "{line}: {message}");
        assert_eq!(machine.calls(), 0);
        assert!(machine.cached().iter().all(|name| name.ends_with(".log")), "{:?}", machine.cached());
    };
    expect("kernel build --version 4.4", 2, &["4.4", "5.10, 6.1, 6.12, 7.3", "--source"]);
    expect("kernel build --version 6.1 4.4", 2, &["4.4"]);
    expect("kernel build --version ../x", 2, &["'../x'"]);
    expect("kernel build --version 6.6 6.1 --source linux-6.6.30", 2, &["expected one"]);
    expect("kernel build --source linux-6.6.30", 2, &["--version"]);
    expect("kernel build --version 6.6 --jobs 0", 2, &["from 1 to 1024"]);
    expect("kernel build --version 6.60 --source linux-6.6.30", 2, &["source of 6.6.30, not of 6.60"]);
    expect("kernel build --version 6.6 --source nowhere", 2, &["--source nowhere"]);
    expect("kernel build --version 6.6 --source home", 2, &["expected a kernel's source"]);
    expect("kernel build --version 6.6 --source home/compile", 2, &["home/compile: tar cannot unpack it"]);
    expect("kernel build --version 6.6 --source /dev/null", 2, &["/dev/null: is not a regular file"]);
    fs::write(machine.path("old.json"), "{}").unwrap();
    for line in ["kernel list", BUILD] {
        let output = machine.command(line).env("TRIMWISE_KERNELS", "old.json").output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(2) && message.contains("old.json, is not a directory"),
            "{message}"
        );
    }
    fs::write(machine.path("linux-6.6.30/.config"), "").unwrap();
    expect(BUILD, 2, &[".config", "clean tree"]);
    fs::remove_file(machine.path("linux-6.6.30/.config")).unwrap();
    fs::remove_file(machine.path("bin/flex")).unwrap();
    let output = machine.command(BUILD).env("PATH", machine.path("bin")).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && message.contains("flex, tar"), "{message}");
}

/// A machine with a file `fs/a.c` of five lines, and patch sets that change its last.
fn with_sets() -> Option<Machine> {
    if !Command::new("patch").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success()) {
        skipped("`patch` is not installed");
        return None;
    }
    let machine = Machine::new();
    fs::create_dir(machine.path("linux-6.6.30/fs")).unwrap();
    for (file, text) in [("a.c", A), ("b.c", "other\n")] {
        fs::write(machine.path("linux-6.6.30/fs").join(file), text).unwrap();
    }
    machine.write(
        "compile",
        "cp fs/a.c \"$out/saw\"; cat fs/new.c >>\"$out/saw\"; echo \"$added\" >>\"$out/saw\"; true",
    );
    machine.set("one", &diff("five", "5"));
    machine.set("two", "--- /dev/null\n+++ b/fs/new.c\n@@ -0,0 +1 @@\n+new\n");
    Some(machine)
}

const A: &str = "one\ntwo\nthree\nfour\nfive\n";

fn diff(from: &str, to: &str) -> String {
    format!("--- a/fs/a.c\n+++ b/fs/a.c\n@@ -4,2 +4,2 @@\n four\n-{from}\n+{to}\n")
}

impl Machine {
    /// Writes a set of one patch.
    fn set(&self, name: &str, patch: &str) {
        fs::create_dir_all(self.path(name)).unwrap();
        fs::write(self.path(name).join("series"), "the.patch\n").unwrap();
        fs::write(self.path(name).join("the.patch"), patch).unwrap();
    }

    /// Builds with these sets, and returns the state and what the compiler saw.
    #[track_caller]
    fn build_with(&self, sets: &str) -> (String, String) {
        let report = self.json(&format!("{BUILD} --with {sets}"));
        (report["kernels"][0]["state"].as_str().unwrap().to_owned(), self.kept("objects-plain/saw").unwrap())
    }

    /// Reads a file of the kept source or of its objects.
    fn kept(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path("cache/.kept-6.6").join(name)).ok()
    }
}

#[test]
fn a_changed_patch_compiles_only_what_it_changes() {
    let Some(machine) = with_sets() else { return };
    let (state, saw) = machine.build_with("one two");
    assert_eq!((state.as_str(), saw.as_str()), ("new", "one\ntwo\nthree\nfour\n5\nnew\n+one+two\n"));
    let list = machine.json("kernel list");
    let built = list["kernels"].as_array().unwrap().iter().find(|k| k["state"] == "built").unwrap();
    assert_eq!((&built["version"], &built["release"]), (&"6.6+one+two".into(), &"6.6.30+one+two".into()));
    assert_eq!((&built["patches"][1]["name"], &list["kept"][0]["version"]), (&"two".into(), &"6.6".into()));
    assert_eq!(
        fs::read_to_string(machine.path("linux-6.6.30/fs/a.c")).unwrap(),
        A,
        "the given tree is only read"
    );
    assert_eq!(machine.build_with("one two").0, "built");

    let time = |file: &str| {
        fs::metadata(machine.path("cache/.kept-6.6/source/fs").join(file)).unwrap().modified().unwrap()
    };
    let before = [time("a.c"), time("b.c"), time("new.c")];
    machine.set("one", &diff("five", "V"));
    let message = machine.fails("kernel run 6.6+one+two:ext4 -- true", 2);
    let command = format!(
        "to build it again: trimwise kernel build --version 6.6 --with {} --with {}",
        machine.path("one").display(),
        machine.path("two").display()
    );
    assert!(message.contains("6.6+one+two is outdated") && message.contains(&command), "{message}");
    assert!(machine.json("kernel list")["kernels"].to_string().contains("\"outdated\""));
    assert_eq!(machine.build_with("one two").1, "one\ntwo\nthree\nfour\nV\nnew\n+one+two\n");
    let after = [time("a.c"), time("b.c"), time("new.c")];
    assert_eq!([0, 1, 2].map(|i| before[i] == after[i]), [false, true, true]);
    let images = machine.cached().into_iter().filter(|name| name.starts_with("6.6+one+two-"));
    assert_eq!(images.count(), 1);

    // Fewer patches: what they changed is again as it came.
    assert_eq!(machine.build_with("two").1, format!("{A}new\n+two\n"));
    assert_eq!(machine.build_with("one").1, "one\ntwo\nthree\nfour\nV\n+one\n");
    assert_eq!(machine.calls(), 4);

    // The same patches elsewhere are the same kernel, which from then on follows that folder. One that is gone cannot
    // differ.
    fs::create_dir(machine.path("moved")).unwrap();
    fs::rename(machine.path("one"), machine.path("moved/one")).unwrap();
    let refused = machine.fails("kernel run 6.6+one:ext4 --image none -- true", 2);
    assert!(refused.contains("--image none: No such file"), "the kernel can be used: {refused}");
    assert_eq!(machine.build_with("moved/one").0, "built");
    machine.set("moved/one", &diff("five", "VI"));
    assert!(machine.json("kernel list")["kernels"].to_string().contains("\"outdated\""));

    // A plain kernel is compiled from the source as it came, and takes the objects that are there.
    assert!(machine.run(BUILD).status.success());
    assert_eq!(machine.kept("objects-plain/saw").unwrap(), format!("{A}\n"));
    fs::write(machine.path("linux-6.6.30/fs/a.c"), "another").unwrap();
    assert_eq!(machine.json(BUILD)["kernels"][0]["state"], "new");
    assert_eq!(
        machine.kept("objects-plain/saw").unwrap(),
        format!("{A}\n"),
        "the kept source is another one"
    );

    assert!(machine.run("kernel remove --source 6.6").status.success());
    assert!(machine.cached().iter().all(|name| name.starts_with("6.6")), "{:?}", machine.cached());
    assert!(machine.fails("kernel remove --source 6.6", 2).contains("no source of 6.6 is kept"));
}

#[test]
fn a_patch_that_does_not_apply_changes_nothing() {
    let Some(machine) = with_sets() else { return };
    machine.set("bad", &format!("{}{}", diff("5", "6"), "@@ -1,2 +1,2 @@\n uno\n-two\n+2\n"));
    let message = machine.fails(&format!("{BUILD} --with one bad"), 2);
    let words = ["bad: the.patch does not apply to Linux 6.6.30", "fs/a.c: Hunk #2 FAILED at 1"];
    assert!(words.iter().all(|word| message.contains(word)), "{message}");
    assert_eq!(machine.kept("source/fs/a.c").unwrap(), A);
    assert_eq!(machine.calls(), 0);
    machine.set("bad", &diff("five", "6").replace("fs/a.c", "fs/none.c"));
    assert!(machine.fails(&format!("{BUILD} --with one bad"), 2).contains("fs/none.c: is not there"));
    assert_eq!(machine.build_with("one two").1, "one\ntwo\nthree\nfour\n5\nnew\n+one+two\n");

    // Refused before anything is done.
    let refused = |line: &str, word: &str| {
        let message = machine.fails(&format!("{BUILD} {line}"), 2);
        assert!(message.contains(word), "{line}: {message}");
    };
    machine.set("bad", &diff("five", "6").replace("b/fs/a.c", "b/../../x"));
    refused("--with bad", "the.patch: line 2: 'b/../../x'");
    machine.set("bad", &diff("five", "6").replace("a/fs/a.c", "/etc/passwd"));
    refused("--with bad", "'/etc/passwd'");
    fs::remove_file(machine.path("bad/series")).unwrap();
    refused("--with bad", "series");
    refused("--variant kasna", "expected kasan, dm");
    let message = machine.fails("kernel run 6.6+one+kasan:ext4 -- true", 2);
    assert!(message.contains("kernel build --version 6.6 --with DIR/one --variant kasan"), "{message}");
    assert_eq!(machine.calls(), 1);

    // Links lead out of the tree.
    std::os::unix::fs::symlink("/etc", machine.path("linux-6.6.30/out")).unwrap();
    machine.set("bad", &diff("five", "6").replace("fs/a.c", "out/passwd"));
    refused("--with bad", "out/passwd: a part of the path is not a folder");
}

#[test]
fn an_image_that_cannot_be_the_disk_is_refused_before_anything_boots() {
    let machine = Machine::new();
    assert!(machine.run(BUILD).status.success());
    let image = |name: &str, bytes: u64| {
        File::create(machine.path(name)).unwrap().set_len(bytes).unwrap();
    };
    for (name, bytes) in [("empty", 0), ("odd", 4097), ("blank", 1 << 20), ("large", (8 << 30) + 512)] {
        image(name, bytes);
    }
    let mut xfs = vec![0; 1 << 20];
    xfs[..4].copy_from_slice(b"XFSB");
    fs::write(machine.path("xfs"), xfs).unwrap();
    let refused = |options: &str, words: &str| {
        let message = machine.fails(&format!("kernel run 6.6:ext4 {options} -- true"), 2);
        assert!(message.contains(words), "{options}: {message}");
    };
    refused("--image none", "--image none: No such file");
    refused("--image bin", "is a directory");
    refused("--image /dev/null", "is not a regular file");
    refused("--image empty", "is empty");
    refused("--image odd", "4097 bytes, which is not a multiple of the drive's sector size, 512 bytes");
    refused("--image large", "expected a larger --device or a smaller image");
    refused("--image blank", "holds no ext4");
    refused("--image xfs", "holds xfs and not ext4");
    refused("--image blank --aged 50", "cannot be used with");
    refused("--disk none", "--disk none: neither a built-in name");
}

#[test]
fn after_an_interrupted_or_killed_build_the_next_one_succeeds_and_trusts_no_object_of_it() {
    let Some(machine) = with_sets() else { return };
    let compile = fs::read_to_string(machine.path("home/compile")).unwrap();
    machine.build_with("one");
    fs::write(machine.path("cache/.kept-6.6/objects-plain/old.o"), "whole").unwrap();
    for name in ["INT", "KILL"] {
        machine.set("one", &diff("five", name));
        let _ = fs::remove_file(machine.path("home/sleeper"));
        let (mut build, sleeper) = machine.endless(&format!("{BUILD} --with one"));
        signal(build.id(), name);
        build.wait().unwrap();
        if is_alive(sleeper) {
            signal(sleeper, "KILL");
        }
        assert_eq!(machine.kept("objects-plain/cut.o").as_deref(), Some("cut\n"));
        machine.write("compile", &compile);
        assert_eq!(machine.build_with("one").1, format!("one\ntwo\nthree\nfour\n{name}\n+one\n"));
        assert_eq!(machine.kept("objects-plain/cut.o"), None);
        assert_eq!(machine.kept("objects-plain/old.o").as_deref(), Some("whole"));
        assert!(!machine.cached().iter().any(|name| name.starts_with(".building")), "{:?}", machine.cached());
    }

    // A compiler's error is an end like any other: what was compiled stays.
    machine.set("one", &diff("five", "bad"));
    machine.write("compile", "echo whole >\"$out/new.o\"; exit 2");
    machine.fails(&format!("{BUILD} --with one"), 1);
    machine.write("compile", &compile);
    machine.build_with("one");
    assert_eq!(machine.kept("objects-plain/new.o").as_deref(), Some("whole\n"));
}
