//! Debian's stock kernels in qemu: does TRIM reach the disk through real stacks, and do `doctor` and `trim` say so?
//!
//! The disks are raw files of this host, in which a discard makes a hole. Their size on this host is therefore the
//! truth that nothing in the guest can bend. `stacks.toml` holds the stacks. Needs qemu, mmdebstrap and root; no KVM.

mod machine;
mod stacks;
mod table;
mod thin;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use trimwise_testing::{program, scratch, skipped};

use machine::{Guest, Machine};
use stacks::{Claim, Expected, Measured, Reach, Stack};

/// The kernels, as `scripts/build-stock-guest` names them.
const KERNELS: [&str; 2] = ["6.1", "6.12"];

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The folder with the guest's root file system and kernels, made at the first call; `None` skips the test.
fn guest() -> Option<PathBuf> {
    for needed in ["qemu-system-x86_64", "qemu-img", "mmdebstrap", "busybox", "cpio", "mkfs.ext4", "strip"] {
        program(needed)?;
    }
    let made = Command::new(repository().join("scripts/build-stock-guest")).output().unwrap();
    if !made.status.success() {
        skipped(&format!("scripts/build-stock-guest: {}", String::from_utf8_lossy(&made.stderr)));
        return None;
    }
    Some(String::from_utf8(made.stdout).unwrap().trim().into())
}

/// Takes the stacks through guests of one kernel. What hangs while it is built, as LVM's first synchronisation of an array
/// with integrity does now and then, is taken through another guest once.
fn measure(made: &Path, kernel: &'static str, stacks: &[Stack]) -> Vec<Measured> {
    let stacks: Vec<Stack> = stacks.iter().filter(|stack| stack.is_on(kernel)).cloned().collect();
    let mut measured = measure_once(made, kernel, &stacks);
    let hung: Vec<usize> = (0..stacks.len()).filter(|&at| measured[at].has_hung).collect();
    let again: Vec<Stack> = hung.iter().map(|&at| stacks[at].clone()).collect();
    for (at, one) in hung.into_iter().zip(measure_once(made, kernel, &again)) {
        eprintln!("{kernel} {}: hung, and was measured again", one.name);
        measured[at] = one;
    }
    measured
}

/// Says how a stack is, with `--nocapture`, in a run of minutes.
fn tell(stack: &Stack, measured: &Measured) {
    let told = stacks::differences(stack, &[measured]);
    let told = if told.is_empty() { "as expected".to_owned() } else { told.join("\n  ") };
    eprintln!("{} {}: {told}", measured.kernel, stack.name);
}

/// A guest that dies takes one stack with it: the next goes on after it.
fn measure_once(made: &Path, kernel: &'static str, stacks: &[Stack]) -> Vec<Measured> {
    let mut measured = Vec::new();
    while measured.len() < stacks.len() {
        let folder = scratch();
        let guest = Guest::prepare(made, kernel, folder.path(), &stacks[measured.len()..]);
        let before = measured.len();
        let ended =
            Machine::start(&guest).and_then(|machine| machine.take_stacks(&guest, &mut measured, tell));
        if let Err(why) = ended {
            measured.push(Measured::failed(&stacks[measured.len()].name, kernel, why));
        } else {
            assert!(measured.len() > before, "a guest took no stack");
        }
    }
    measured
}

/// Each stack on each kernel: what the disks' images say, what doctor, trim, verify and the daemon say of it, and what
/// the remedy does. `STACKS=write` writes docs/stacks.md; `STACK=NAME,NAME...` takes only these, and leaves the page alone.
/// `STACK_LOGS=DIR` keeps what each stack left.
#[test]
fn stacks_are_as_the_page_says() {
    let Some(made) = guest() else { return };
    let mut stacks = stacks::read(include_str!("stacks.toml")).unwrap();
    let only = std::env::var("STACK").ok();
    if let Some(only) = &only {
        let unknown = only.split(',').find(|&name| stacks.iter().all(|stack| stack.name != name));
        assert_eq!(unknown, None, "no stack is called so");
        stacks.retain(|stack| only.split(',').any(|name| name == stack.name));
    }
    let mode = std::env::var("STACKS").unwrap_or_default();
    let measured = std::thread::scope(|scope| {
        let runs = KERNELS.map(|kernel| scope.spawn(|| measure(&made, kernel, &stacks)));
        runs.map(|run| run.join().unwrap()).concat()
    });
    let page = table::page(&stacks, &measured);
    let place = repository().join("docs/stacks.md");
    let is_whole = only.is_none();
    match &*mode {
        "write" if is_whole => std::fs::write(&place, &page).unwrap(),
        _ if !is_whole => println!("{page}"),
        _ => {}
    }
    let wrong: Vec<String> =
        stacks.iter().flat_map(|stack| stacks::differences(stack, &stacks::of(stack, &measured))).collect();
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    if is_whole {
        let written = std::fs::read_to_string(&place).unwrap_or_default();
        assert!(
            written == page,
            "docs/stacks.md is not what was measured; STACKS=write scripts/test-tier stock"
        );
    }
}

/// Takes a guest's stacks; what fails is told, and missing afterwards.
fn measure_guest(guest: &Guest) {
    let mut measured = Vec::new();
    let tell = |stack: &Stack, measured: &Measured| {
        eprintln!("{}: {}", stack.name, measured.failure.as_deref().unwrap_or("done"));
    };
    let ended = Machine::start(guest).and_then(|machine| machine.take_stacks(guest, &mut measured, tell));
    if let Err(why) = ended {
        eprintln!("{why}");
    }
}

fn stack(name: &str) -> Stack {
    let all = stacks::read(include_str!("stacks.toml")).unwrap();
    all.into_iter().find(|stack| stack.name == name).unwrap()
}

/// A stack that cannot be built and one that kills its guest fail by themselves, and the next is still judged: what it
/// is wrongly expected to be is told, whatever it is.
#[test]
fn planted_faults_are_found() {
    let Some(made) = guest() else { return };
    let broken = |name: &str, setup: &str| {
        let (name, setup, disks) = (name.to_owned(), setup.to_owned(), Vec::new());
        Stack { name, setup, disks, ..stack("nvme") }
    };
    let all = [
        broken("unbuildable", "modprobe no-such-module"),
        broken("deadly", "echo c >/proc/sysrq-trigger"),
        stack("nvme"),
    ];
    let measured = measure(&made, "6.12", &all);
    let of_each: Vec<String> = all
        .iter()
        .map(|stack| stacks::differences(stack, &stacks::of(stack, &measured)).join("\n").to_lowercase())
        .collect();
    assert!(
        of_each[0].contains("its script ended with 1") && of_each[0].contains("no-such-module"),
        "{of_each:?}"
    );
    let panic = "kernel panic - not syncing: sysrq triggered crash";
    assert!(of_each[1].contains("the guest ended") && of_each[1].contains(panic), "{of_each:?}");
    assert_eq!(of_each[2], "");

    let nvme = &measured[2];
    let told = |change: fn(&mut Stack), bend: fn(&mut Measured)| {
        let (mut stack, mut measured) = (stack("nvme"), nvme.clone());
        change(&mut stack);
        bend(&mut measured);
        stacks::differences(&stack, &[&measured]).join("\n")
    };
    let reach = told(|stack| stack.reach = Expected::Everywhere(Reach::None), |_| ());
    assert!(reach.contains("fstrim reached all disks; expected none"), "{reach}");
    assert!(reach.contains("doctor says passes=Some(true)"), "{reach}");
    let today = told(|stack| stack.today = Some("is not wrong at all".to_owned()), |_| ());
    assert!(today.contains("`today` must go"), "{today}");
    let says = told(|stack| stack.says = vec!["no such words".to_owned()], |_| ());
    assert!(says.contains("nobody says 'no such words'"), "{says}");
    // Had nothing arrived, each of the three would be found to claim it.
    let in_vain = |bend: fn(&mut Measured)| {
        let mut bent = nvme.clone();
        (bent.reach, bent.trim_reach, bent.daemon_reach) =
            (Some(Reach::None), Some(Reach::None), Some(Reach::None));
        bent.blamed = vec!["nvme0n1".to_owned()];
        bend(&mut bent);
        let stack = Stack { reach: Expected::Everywhere(Reach::None), ..stack("nvme") };
        let found = stacks::differences(&stack, &[&bent]);
        found.iter().filter(|one| one.contains("not all disks were reached, but: ")).count()
    };
    let quiet = |bent: &mut Measured| {
        (bent.trim, bent.verify, bent.daemon) = Default::default();
        bent.trim.code = "1".to_owned();
    };
    assert_eq!(in_vain(quiet), 0);
    assert_eq!(
        in_vain(|bent| (bent.verify, bent.daemon) = Default::default()),
        2,
        "its claim, and its exit code"
    );
    assert_eq!(in_vain(|bent| (bent.trim, bent.daemon) = (trim_failed(), Default::default())), 1);
    assert_eq!(in_vain(|bent| (bent.trim, bent.verify) = (trim_failed(), Default::default())), 1);
    // A daemon that does nothing is found too.
    let idle = told(|_| (), |bent| bent.daemon_reach = Some(Reach::None));
    assert!(idle.contains("the daemon reached none disks"), "{idle}");
}

fn trim_failed() -> Claim {
    Claim { code: "1".to_owned(), ..Claim::default() }
}

/// A guest that never answers, and one that ends by itself, end with the reason and the end of the console.
#[test]
fn guests_that_hang_or_end_say_why() {
    let Some(made) = guest() else { return };
    for (init, why, console) in [
        (
            "echo it will hang >/dev/ttyS0; echo ready 0 >/dev/ttyS1; sleep 100000",
            "no word from the guest for 5s",
            "it will hang",
        ),
        ("exit 0", "the guest ended", "stock-init: ends"),
    ] {
        let folder = scratch();
        let guest = Guest::prepare(&made, "6.12", folder.path(), &[]).with_init(init);
        let machine = Machine::start(&guest).unwrap();
        let told = machine
            .silent_for(Duration::from_secs(5))
            .take_stacks(&guest, &mut Vec::new(), tell)
            .unwrap_err();
        assert!(told.contains(why) && told.contains(console), "{told}");
    }
}
