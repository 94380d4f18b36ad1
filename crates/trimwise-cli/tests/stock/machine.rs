//! A guest in qemu, and the conversation with it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Condvar, LazyLock, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use trimwise_testing::scratch;

use crate::stacks::{Doctor, Measured, Reach, Sizes, Stack};

/// Guests at the same time: each keeps one processor busy.
const GUESTS_MAX: usize = 2;
static GUESTS: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// The programs that guests run, without symbols, which are half of them. The daemon lies next to the command;
/// `scripts/test-tier` builds it.
static PROGRAMS: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = scratch();
    for name in NAMES {
        let program = Path::new(env!("CARGO_BIN_EXE_trimwise")).with_file_name(name);
        let stripped = Command::new("strip").arg("-o").arg(folder.path().join(name)).arg(&program).status();
        assert!(stripped.unwrap().success(), "strip {}", program.display());
    }
    folder
});
const NAMES: [&str; 2] = ["trimwise", "trimwised"];

/// Size of a disk: XFS asks for 300 MiB, the index of VDO for gigabytes. SD cards need a power of two; erasing one is
/// slow, as it is filled with ones.
fn disk_bytes(kind: &str) -> u64 {
    match kind {
        "sd" => 64 << 20,
        kind if kind.ends_with("+large") => 8 << 30,
        kind if kind.contains("+volume") => 1 << 30,
        _ => 512 << 20,
    }
}

/// A guest gives up on one stack after less than this (`guest-init`).
const SILENT_FOR: Duration = Duration::from_secs(450);

/// Enough to boot and find a hundred disks on a busy machine: thirty times what it takes on an idle one.
const BOOTS_FOR: Duration = Duration::from_secs(600);

/// What a guest is started with: a folder that it shares, and the images of its disks.
pub struct Guest {
    kernel: PathBuf,
    initrd: PathBuf,
    root: PathBuf,
    folder: PathBuf,
    pub name: &'static str,
    pub stacks: Vec<Stack>,
}

impl Guest {
    /// Lays out a guest in `folder`, which takes these stacks.
    pub fn prepare(made: &Path, kernel: &'static str, folder: &Path, stacks: &[Stack]) -> Self {
        let share = folder.join("share");
        fs::create_dir(&share).unwrap();
        fs::write(share.join("init"), include_str!("guest-init")).unwrap();
        fs::write(share.join("job"), include_str!("guest-job")).unwrap();
        let names: String = stacks.iter().map(|stack| stack.name.clone() + "\n").collect();
        fs::write(share.join("names"), names).unwrap();
        let disks: usize = stacks.iter().map(|stack| stack.disks.len()).sum();
        fs::write(share.join("disks"), disks.to_string()).unwrap();
        for name in NAMES {
            fs::hard_link(PROGRAMS.path().join(name), share.join(name)).unwrap();
        }
        for stack in stacks {
            let of_stack = share.join(&stack.name);
            fs::create_dir(&of_stack).unwrap();
            fs::write(of_stack.join("setup"), &stack.setup).unwrap();
            fs::write(of_stack.join("functions"), stack.functions()).unwrap();
            for (name, script) in [("script", &stack.script), ("fault", &stack.fault)] {
                if let Some(script) = script {
                    fs::write(of_stack.join(name), script).unwrap();
                }
            }
        }
        let guest = Self {
            kernel: made.join(format!("vmlinuz-{kernel}")),
            initrd: made.join(format!("initrd-{kernel}")),
            root: made.join("root.ext4"),
            folder: folder.to_owned(),
            name: kernel,
            stacks: stacks.to_vec(),
        };
        for stack in stacks {
            for (number, kind) in stack.disks.iter().enumerate() {
                if is_path(kind) {
                    continue;
                }
                let image = File::create(guest.image(&stack.name, number)).unwrap();
                image.set_len(disk_bytes(kind)).unwrap();
                image.write_all_at(format!("stock:{} {number}\n", stack.name).as_bytes(), 0).unwrap();
                if let Some(cluster) = cluster(kind) {
                    to_qcow2(&guest.image(&stack.name, number), cluster);
                }
            }
        }
        guest
    }

    /// Replaces what the guest does after its root file system is mounted.
    pub fn with_init(self, script: &str) -> Self {
        fs::write(self.share().join("init"), script).unwrap();
        self
    }

    pub fn share(&self) -> PathBuf {
        self.folder.join("share")
    }

    fn console(&self) -> PathBuf {
        self.folder.join("console")
    }

    pub fn image(&self, stack: &str, number: usize) -> PathBuf {
        self.folder.join(format!("{stack}-{number}.raw"))
    }

    /// Bytes that each disk of a stack takes up on this host.
    pub fn measure(&self, stack: &Stack) -> Vec<u64> {
        let disks = stack.disks.iter().enumerate().filter(|(_, kind)| !is_path(kind));
        disks
            .map(|(number, kind)| {
                let image = self.image(&stack.name, number);
                match kind.as_str() {
                    // The emulated card fills what it erases with ones.
                    "sd" => written(&image),
                    _ => fs::metadata(&image).unwrap().blocks() * 512,
                }
            })
            .collect()
    }

    fn arguments(&self) -> Vec<String> {
        let mut words = Words::default();
        for (option, value) in [
            ("-machine", "q35,accel=tcg"),
            // On one with AVX cryptsetup takes twice as long, and nothing less.
            ("-cpu", "Westmere"),
            ("-m", "1024"),
            ("-display", "none"),
            ("-nodefaults", ""),
            ("-no-user-config", ""),
            ("-no-reboot", ""),
            ("-device", "virtio-rng-pci"),
        ] {
            words.add(option, value);
        }
        words.add("-kernel", self.kernel.display());
        words.add("-initrd", self.initrd.display());
        // The check of the timer panics on a busy host. A panic ends the guest at once. Measures against attacks cost a
        // third of an emulated processor.
        words.add(
            "-append",
            "console=ttyS0 loglevel=5 panic=-1 mitigations=off raid=noautodetect no_timer_check",
        );
        words.add("-serial", format!("file:{}", self.console().display()));
        words.add("-serial", "stdio");
        let (share, root) = (self.share(), &self.root);
        words.add("-fsdev", format!("local,id=share,security_model=none,path={}", share.display()));
        words.add("-device", "virtio-9p-pci,fsdev=share,mount_tag=share");
        words.add("-drive", format!("file={},format=raw,if=none,id=root,snapshot=on", root.display()));
        words.add("-device", "virtio-blk-pci,drive=root");
        for stack in &self.stacks {
            for (number, kind) in stack.disks.iter().enumerate() {
                // A further path leads to the first disk.
                let of = if is_path(kind) { 0 } else { number };
                words.disk(&format!("{}-{number}", stack.name), kind, &self.image(&stack.name, of));
            }
        }
        words.list
    }
}

/// The cluster size of a disk that is a qcow2 image on this host: `virtio+qcow2-64K`, `virtio+volume-qcow2-64K`.
fn cluster(kind: &str) -> Option<&str> {
    kind.split_once("qcow2-").map(|(_, cluster)| cluster)
}

fn to_qcow2(image: &Path, cluster: &str) {
    let raw = image.with_extension("made");
    fs::rename(image, &raw).unwrap();
    let size = format!("cluster_size={cluster}");
    let made =
        Command::new("qemu-img").args(["convert", "-O", "qcow2", "-o", &size]).arg(&raw).arg(image).status();
    assert!(made.unwrap().success(), "qemu-img convert {}", raw.display());
    fs::remove_file(raw).unwrap();
}

fn is_path(kind: &str) -> bool {
    kind.starts_with("path")
}

/// Bytes in blocks that hold neither zeros nor ones only.
fn written(image: &Path) -> u64 {
    let file = File::open(image).unwrap();
    let (mut block, mut bytes) = ([0; 4096], 0);
    for at in (0..file.metadata().unwrap().len()).step_by(block.len()) {
        file.read_exact_at(&mut block, at).unwrap();
        if block != [0; 4096] && block != [0xff; 4096] {
            bytes += block.len() as u64;
        }
    }
    bytes
}

/// The words of a qemu command, with how many disks each controller has.
#[derive(Default)]
struct Words {
    list: Vec<String>,
    taken: BTreeMap<&'static str, usize>,
}

impl Words {
    fn add(&mut self, option: &str, value: impl ToString) {
        self.list.push(option.to_owned());
        let value = value.to_string();
        if !value.is_empty() {
            self.list.push(value);
        }
    }

    /// The next free place on a controller, which is added with its first disk.
    fn place(&mut self, controller: &'static str, device: &str) -> usize {
        let taken = self.taken.entry(controller).or_default();
        let place = *taken;
        *taken += 1;
        if place == 0 && !device.is_empty() {
            self.add("-device", device);
        }
        place
    }

    /// Adds a disk. A kind may be followed by properties of its device, and then by one of this host's:
    /// `scsi,rotation_rate=0`, `virtio+ignored` (this host ignores its discards), `nvme+large`, `virtio+volume`.
    fn disk(&mut self, id: &str, kind: &str, image: &Path) {
        let format = if cluster(kind).is_some() { "qcow2" } else { "raw" };
        let (kind, of_host) = kind.split_once('+').unwrap_or((kind, ""));
        let discard = if of_host == "ignored" { "ignore" } else { "unmap" };
        let (bus, properties) =
            kind.split_once(',').map_or((kind, String::new()), |(bus, rest)| (bus, format!(",{rest}")));
        self.add(
            "-drive",
            format!(
                "file={},format={format},if=none,id={id},discard={discard},file.locking=off,cache=unsafe",
                image.display()
            ),
        );
        let scsi = |bus: &str, place: usize| {
            // A disk that does not say how fast it turns is a hard disk for Linux.
            let rotation = if properties.contains("rotation_rate") { "" } else { ",rotation_rate=1" };
            format!("scsi-hd,bus={bus},scsi-id={place},drive={id}{rotation}{properties}")
        };
        let device = match bus {
            "nvme" => {
                let place = self.place("nvme", "nvme,id=nvme,serial=stock,max_ioqpairs=1");
                format!("nvme-ns,bus=nvme,nsid={},drive={id}{properties}", place + 1)
            }
            "virtio" => format!("virtio-blk-pci,drive={id}{properties}"),
            "ahci" => {
                let place = self.place("ahci", "");
                format!("ide-hd,bus=ide.{place},drive={id}{properties}")
            }
            "scsi" | "path" => scsi("vscsi.0", self.place("scsi", "virtio-scsi-pci,id=vscsi")),
            "sas" => scsi("sas.0", self.place("sas", "megasas,id=sas")),
            "usb" => {
                self.place("usb", "qemu-xhci,id=usb,p2=15,p3=15");
                format!("usb-storage,bus=usb.0,drive={id}{properties}")
            }
            "uas" => {
                self.place("usb", "qemu-xhci,id=usb,p2=15,p3=15");
                let place = self.place("uas", "");
                self.add("-device", format!("usb-uas,id=uas{place},bus=usb.0"));
                scsi(&format!("uas{place}.0"), 0)
            }
            "sd" => {
                self.place("sd", "sdhci-pci");
                format!("sd-card,drive={id}")
            }
            other => panic!("no disk is of the kind '{other}'"),
        };
        self.add("-device", device);
    }
}

/// A running guest.
pub struct Machine {
    child: Child,
    lines: Receiver<String>,
    silent_for: Duration,
}

impl Machine {
    /// Starts a guest, as soon as fewer than [`GUESTS_MAX`] run.
    pub fn start(guest: &Guest) -> Result<Self, String> {
        let mut running = GUESTS.0.lock().unwrap();
        while *running >= GUESTS_MAX {
            running = GUESTS.1.wait(running).unwrap();
        }
        let errors = File::create(guest.folder.join("qemu")).unwrap();
        let mut child = Command::new("nice")
            .arg("qemu-system-x86_64")
            .args(guest.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("qemu: {error}"))?;
        *running += 1;
        let said = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in said.split(b'\n').map_while(Result::ok) {
                if send.send(String::from_utf8_lossy(&line).trim().to_owned()).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, lines, silent_for: SILENT_FOR })
    }

    pub fn silent_for(mut self, limit: Duration) -> Self {
        self.silent_for = limit;
        self
    }

    fn answer(&mut self, word: &str) -> Result<(), String> {
        self.child
            .stdin
            .as_mut()
            .unwrap()
            .write_all(format!("{word}\n").as_bytes())
            .map_err(|error| format!("the guest's port: {error}"))
    }

    /// Listens until the guest has taken all its stacks. Appends what was measured, and tells `after_each`.
    ///
    /// # Errors
    /// If the guest ends before, or says nothing for too long: why, with the end of its console.
    pub fn take_stacks(
        mut self,
        guest: &Guest,
        measured: &mut Vec<Measured>,
        after_each: fn(&Stack, &Measured),
    ) -> Result<(), String> {
        let mut sizes = Sizes::default();
        let mut stacks = guest.stacks.iter();
        let mut stack = stacks.next();
        let mut limit = BOOTS_FOR;
        loop {
            let line = match self.lines.recv_timeout(limit) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(told(guest, &format!("no word from the guest for {limit:?}")));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(told(guest, "the guest ended")),
            };
            limit = self.silent_for;
            let words: Vec<&str> = line.split(' ').collect();
            let mut is_all = false;
            match (&words[..], stack) {
                (["ready", disks, ..], _) => {
                    let wanted = fs::read_to_string(guest.share().join("disks")).unwrap();
                    if *disks != wanted {
                        let found = fs::read_to_string(guest.share().join("found")).unwrap_or_default();
                        return Err(told(guest, &format!("{disks} of {wanted} disks were found:\n{found}")));
                    }
                }
                (["phase", name, phase, in_guest @ ..], Some(stack)) if *name == stack.name => {
                    let in_guest = in_guest.iter().filter_map(|bytes| bytes.parse().ok());
                    let disks = guest.measure(stack).into_iter();
                    sizes.add(phase, disks.chain(in_guest).collect());
                    is_all = sizes.reach(phase) == Some(Reach::All);
                }
                (["remedy", name], Some(stack)) if *name == stack.name => {
                    let folder = guest.share().join(name);
                    let doctor = Doctor::read(&folder.join("doctor.json"));
                    for (file, commands) in
                        [("remedy", doctor.commands()), ("loan", doctor.commands_of_loans())]
                    {
                        if !commands.is_empty() {
                            fs::write(folder.join(file), commands.join("\n")).unwrap();
                        }
                    }
                }
                (["end", name, status], Some(done)) if *name == done.name => {
                    let folder = guest.share().join(name);
                    let read = Measured::read(name, guest.name, &folder, status, &sizes);
                    after_each(done, &read);
                    if let Some(logs) = std::env::var_os("STACK_LOGS") {
                        let to = Path::new(&logs).join(format!("{name}-{}", guest.name));
                        fs::create_dir_all(&to).unwrap();
                        let copied = Command::new("cp").arg("-rT").arg(&folder).arg(&to).status().unwrap();
                        assert!(copied.success(), "{}", to.display());
                    }
                    measured.push(read);
                    sizes = Sizes::default();
                    stack = stacks.next();
                }
                (["bye"], None) => return self.answer("ok"),
                _ => return Err(told(guest, &format!("the guest said '{line}'"))),
            }
            self.answer(if is_all { "all" } else { "ok" })?;
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        *GUESTS.0.lock().unwrap() -= 1;
        GUESTS.1.notify_one();
    }
}

/// Adds what qemu said and the last lines of the console.
fn told(guest: &Guest, why: &str) -> String {
    let mut text = why.to_owned();
    let qemu = fs::read(guest.folder.join("qemu")).unwrap_or_default();
    let console = fs::read(guest.console()).unwrap_or_default();
    let console = String::from_utf8_lossy(&console);
    let lines: Vec<&str> = console.lines().collect();
    // A panic is followed by its stack, which is longer than what is shown.
    let panic = lines.iter().find(|line| line.contains("Kernel panic")).map_or("", |line| *line);
    let _ = write!(text, "\nqemu said: {}\n{panic}\nthe console's end:\n", String::from_utf8_lossy(&qemu));
    text + &lines[lines.len().saturating_sub(25)..].join("\n")
}
