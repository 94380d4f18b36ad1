//! Debian's stock kernels in qemu: does TRIM reach the disk through real stacks, and do `doctor` and `trim` say so?
//!
//! The disks are raw files of this host, in which a discard makes a hole. Their size on this host is therefore the
//! truth that nothing in the guest can bend. `stacks.toml` holds the stacks. Needs qemu, mmdebstrap and root; no KVM.

mod machine;
mod stacks;
mod table;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use trimwise_testing::{program, scratch, skipped};

use machine::{Guest, Machine};
use stacks::{Expected, Measured, Reach, Stack};

/// The kernels, as `scripts/build-stock-guest` names them.
const KERNELS: [&str; 2] = ["6.1", "6.12"];

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The folder with the guest's root file system and kernels, made at the first call; `None` skips the test.
fn guest() -> Option<PathBuf> {
    for needed in ["qemu-system-x86_64", "mmdebstrap", "busybox", "cpio", "mkfs.ext4", "strip"] {
        program(needed)?;
    }
    let made = Command::new(repository().join("scripts/build-stock-guest")).output().unwrap();
    if !made.status.success() {
        skipped(&format!("scripts/build-stock-guest: {}", String::from_utf8_lossy(&made.stderr)));
        return None;
    }
    Some(String::from_utf8(made.stdout).unwrap().trim().into())
}

/// Takes the stacks through guests of one kernel. A guest that dies takes one stack with it: the next goes on after it.
fn measure(made: &Path, kernel: &'static str, stacks: &[Stack]) -> Vec<Measured> {
    let stacks: Vec<Stack> = stacks.iter().filter(|stack| stack.is_on(kernel)).cloned().collect();
    let mut measured = Vec::new();
    while measured.len() < stacks.len() {
        let folder = scratch();
        let guest = Guest::prepare(made, kernel, folder.path(), &stacks[measured.len()..]);
        let before = measured.len();
        let ended = Machine::start(&guest).and_then(|machine| machine.take_stacks(&guest, &mut measured));
        if let Err(why) = ended {
            measured.push(Measured::failed(&stacks[measured.len()].name, kernel, why));
        } else {
            assert!(measured.len() > before, "a guest took no stack");
        }
    }
    measured
}

/// Each stack on each kernel: what the disks' images say, what doctor and trim say of it, and what the remedy does.
/// `STACKS=write` writes docs/stacks.md; `STACK=NAME,NAME...` takes only these, and leaves the page alone.
#[test]
fn stacks_are_as_the_page_says() {
    let Some(made) = guest() else { return };
    let mut stacks = stacks::read(include_str!("stacks.toml")).unwrap();
    let only = std::env::var("STACK").ok();
    if let Some(only) = &only {
        stacks.retain(|stack| only.split(',').any(|name| name == stack.name));
        assert!(!stacks.is_empty(), "no stack is called {only}");
    }
    let measured = std::thread::scope(|scope| {
        let runs = KERNELS.map(|kernel| scope.spawn(|| measure(&made, kernel, &stacks)));
        runs.map(|run| run.join().unwrap()).concat()
    });
    let page = table::page(&stacks, &measured);
    let place = repository().join("docs/stacks.md");
    match std::env::var("STACKS").as_deref() {
        _ if only.is_some() => println!("{page}"),
        Ok("write") => std::fs::write(&place, &page).unwrap(),
        _ => {}
    }
    let wrong: Vec<String> =
        stacks.iter().flat_map(|stack| stacks::differences(stack, &stacks::of(stack, &measured))).collect();
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    if only.is_none() {
        let written = std::fs::read_to_string(&place).unwrap_or_default();
        assert!(
            written == page,
            "docs/stacks.md is not what was measured; STACKS=write scripts/test-tier stock"
        );
    }
}

/// A wrong expectation is told, whatever it is.
#[test]
fn planted_wrong_expectations_are_found() {
    let Some(made) = guest() else { return };
    let all = stacks::read(include_str!("stacks.toml")).unwrap();
    let nvme: Vec<Stack> = all.into_iter().filter(|stack| stack.name == "nvme").collect();
    let measured = measure(&made, "6.12", &nvme).remove(0);
    assert_eq!(stacks::differences(&nvme[0], &[&measured]), Vec::<String>::new());
    let told = |change: fn(&mut Stack)| {
        let mut stack = nvme[0].clone();
        change(&mut stack);
        stacks::differences(&stack, &[&measured]).join("\n")
    };
    let reach = told(|stack| stack.reach = Expected::Everywhere(Reach::None));
    assert!(reach.contains("fstrim reached all disks; expected none"), "{reach}");
    let today = told(|stack| stack.today = Some("is not wrong at all".to_owned()));
    assert!(today.contains("`today` must go"), "{today}");
}

/// A guest that never answers, and one whose kernel stops, end with the reason and the end of the console.
#[test]
fn guests_that_hang_or_die_say_why() {
    let Some(made) = guest() else { return };
    for (init, why, console) in [
        (
            "echo ready 0 >/dev/ttyS1; echo it will hang >/dev/ttyS0; sleep 100000",
            "no word from the guest for 5s",
            "it will hang",
        ),
        (
            "echo c >/proc/sysrq-trigger",
            "the guest ended",
            "kernel panic - not syncing: sysrq triggered crash",
        ),
        ("exit 0", "the guest ended", "stock-init: ends"),
    ] {
        let folder = scratch();
        let guest = Guest::prepare(&made, "6.12", folder.path(), &[]).with_init(init);
        let machine = Machine::start(&guest).unwrap();
        let told =
            machine.silent_for(Duration::from_secs(5)).take_stacks(&guest, &mut Vec::new()).unwrap_err();
        assert!(told.contains(why) && told.to_lowercase().contains(console), "{told}");
    }
}
