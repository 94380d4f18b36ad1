//! An emulated drive as a block device and over NBD, served by this process: it is a device as any other, and real clients
//! of NBD find what they expect. Tests on loop devices need root, and say so when they skip.

#[path = "common/conformance.rs"]
mod conformance;
#[path = "common/loops.rs"]
mod loops;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use conformance::keeps_what_it_is_told;
use loops::can_run;
use trimwise::block::PortCounts;
use trimwise::profile::Profile;
use trimwise::units::Bytes;
use trimwise_host::consent;
use trimwise_host::emulated::nbd::Address;
use trimwise_host::emulated::registry::{Front, Record, Registry, State, Status};
use trimwise_host::emulated::server::{self, Description, ServeError, Stops};
use trimwise_host::emulated::{EmulatedDrive, TimeScale};
use trimwise_host::raw_device::{Access, Options, RawDevice, Target};
use trimwise_host::sparse_store::SparseStore;

/// A server in a thread of this process; ended when it is dropped.
struct Served {
    record: Record,
    registry: Registry,
    stops: Stops,
    thread: Option<JoinHandle<Result<(Record, Status), ServeError>>>,
    directory: tempfile::TempDir,
}

fn emulated(profile: &str, mib: u64) -> (Arc<EmulatedDrive>, Description) {
    let profile = Profile::embedded(profile).unwrap();
    let config = profile.config.shrunk(Bytes::mib(mib).0).unwrap();
    let store = SparseStore::in_memory(Bytes(config.capacity_bytes)).unwrap();
    // Ten times as fast as the drive: these tests are not about time.
    let scale: TimeScale = "0.1".parse().unwrap();
    let drive = EmulatedDrive::new(&config, profile.faults, 1, store, scale).unwrap();
    let description = Description { name: None, profile: profile.name, seed: 1, scale, backing: None };
    (Arc::new(drive), description)
}

impl Served {
    fn new(
        serve: impl FnOnce(
            &Registry,
            &Path,
            &Stops,
            &mut dyn FnMut(&Record),
        ) -> Result<(Record, Status), ServeError>
        + Send
        + 'static,
    ) -> Self {
        let directory = tempfile::Builder::new().prefix("device-").tempdir().unwrap();
        let registry = Registry::at(directory.path().join("devices"));
        let stops = Stops::default();
        let (sender, receiver) = mpsc::channel();
        let (theirs, path, stop) = (registry.clone(), directory.path().to_owned(), Arc::clone(&stops));
        let thread = std::thread::spawn(move || {
            serve(&theirs, &path, &stop, &mut |record| sender.send(record.clone()).unwrap())
        });
        match receiver.recv() {
            Ok(record) => Self { record, registry, stops, thread: Some(thread), directory },
            Err(_) => panic!("{:?}", thread.join().unwrap()),
        }
    }

    fn attached(profile: &'static str, mib: u64) -> Self {
        Self::new(move |registry, _, stops, ready| {
            let (drive, description) = emulated(profile, mib);
            server::attach(registry, &description, &drive, 2, stops, |record| ready(record), |_| ())
        })
    }

    fn nbd(profile: &'static str, mib: u64) -> Self {
        Self::new(move |registry, directory, stops, ready| {
            let (drive, description) = emulated(profile, mib);
            let address = Address::Unix(directory.join("socket"));
            server::serve(registry, &description, &drive, &[address], stops, |record| ready(record))
        })
    }

    fn node(&self) -> PathBuf {
        match &self.record.front {
            Front::Loop { device } => device.clone().unwrap(),
            Front::Nbd { .. } => panic!("no block device"),
        }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
    }

    fn counts(&self) -> PortCounts {
        match &self.registry.list().unwrap()[..] {
            [(_, State::Serving(status))] => status.counts,
            other => panic!("{other:?}"),
        }
    }

    /// Ends it; nothing may be left.
    fn end(mut self) -> PortCounts {
        let (_, status) = self.registry.detach(&self.record.name).unwrap();
        let (_, last) = self.thread.take().unwrap().join().unwrap().unwrap();
        assert_eq!(status.unwrap(), last);
        assert_eq!(self.registry.list().unwrap(), []);
        let left = std::fs::read_dir(self.directory.path().join("devices")).unwrap().count();
        assert_eq!(left, 1, "nothing but the lock");
        last.counts
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Where a test fails: at once.
        self.stops.fetch_add(2, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

#[test]
fn an_attached_drive_is_a_device_as_any_other() {
    if !can_run(&[]) {
        return;
    }
    let served = Served::attached("sata-small", 64);
    let target = Target::Device(served.node());
    let consent = consent::check(&target, served.node().to_str()).unwrap();
    let device = RawDevice::open(Access::Write(consent), &Options::default()).unwrap();
    keeps_what_it_is_told(&device);
    drop(device);
    let counts = served.end();
    assert_eq!((counts.discards, counts.discarded_bytes), (2, 39 * 4096), "as they were sent");
}

/// What the kernel was asked for and what reached the drive are the same.
#[test]
fn counts_are_those_of_the_device() {
    if !can_run(&["blkdiscard", "dd"]) {
        return;
    }
    let served = Served::attached("zero-cost", 64);
    let node = served.node().display().to_string();
    let before = served.counts();
    let of = format!("of={node}");
    loops::sh(
        "dd",
        &["if=/dev/zero", &of, "bs=64k", "count=20", "oflag=direct", "conv=fsync", "status=none"],
    );
    loops::sh("blkdiscard", &["-o", "8192", "-l", "65536", &node]);
    loops::sh("blkdiscard", &["-z", "-o", "1048576", "-l", "65536", &node]);
    let counts = served.counts().since(before);
    assert_eq!(
        (counts.writes, counts.written_bytes),
        (21, 21 << 16),
        "zeros that must stay allocated among them"
    );
    assert_eq!((counts.discards, counts.discarded_bytes), (1, 1 << 16));
    assert!(counts.flushes >= 1);
    served.end();
}

#[test]
fn clients_of_nbd_find_what_they_expect() {
    for program in ["nbdinfo", "nbdcopy", "qemu-io"] {
        if !can_run(&[program]) {
            return;
        }
    }
    let served = Served::nbd("sata-small", 64);
    let info = loops::sh("nbdinfo", &["--json", &served.uri()]);
    for line in
        ["\"export-size\": 67108864", "\"can_trim\": true", "\"can_fua\": true", "\"can_multi_conn\": true"]
    {
        assert!(info.contains(line), "{line} in {info}");
    }
    let list = loops::sh("nbdinfo", &["--list", &served.uri()]);
    assert!(list.contains("export=\"sata-small\""), "{list}");

    let image = served.directory.path().join("image");
    let bytes: Vec<u8> =
        (0..48_u64 << 20).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
    std::fs::write(&image, &bytes).unwrap();
    let back = served.directory.path().join("back");
    // Several connections, many requests at once.
    loops::sh("nbdcopy", &["--connections=4", image.to_str().unwrap(), &served.uri()]);
    loops::sh("nbdcopy", &["--connections=4", &served.uri(), back.to_str().unwrap()]);
    assert!(std::fs::read(&back).unwrap()[..bytes.len()] == bytes, "what was copied came back");

    let drive = format!("nbd:unix:{}", served.socket().display());
    let commands = [
        "write -P 7 0 1M",
        "write -z 8k 8k",
        "read -P 0 8k 8k",
        "read -P 7 16k 4k",
        "discard 64k 64k",
        "read -P 0 64k 64k",
        "read -P 7 128k 4k",
        "write -f -P 9 1k 512",
        "read -P 9 1k 512",
        "flush",
        "aio_write -P 3 2M 64k",
        "aio_write -P 4 3M 64k",
        "aio_flush",
        "read -P 3 2M 64k",
        "read -P 4 3M 64k",
    ];
    let words: Vec<&str> = commands.iter().flat_map(|command| ["-c", command]).collect();
    let said = loops::sh("qemu-io", &[&["-f", "raw"], &words[..], &[&drive]].concat());
    assert!(!said.contains("verification failed"), "{said}");
    let counts = served.end();
    assert_eq!(counts.discards, 1);
    assert!(counts.flushes >= 2, "a forced write flushes: {counts:?}");
}

/// A client that says what it should not ends its own connection, and nobody else's.
#[test]
fn clients_that_speak_nonsense_are_left() {
    let served = Served::nbd("zero-cost", 64);
    let talk = |said: &[&[u8]]| {
        let mut stream = UnixStream::connect(served.socket()).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
        for bytes in said {
            // It may have been left already.
            drop(stream.write_all(bytes));
        }
        drop(stream.shutdown(std::net::Shutdown::Write));
        let mut heard = Vec::new();
        drop(stream.read_to_end(&mut heard));
        heard
    };
    let flags = [0, 0, 0, 3];
    let option = |number: u32, data: &[u8]| {
        [b"IHAVEOPT", &number.to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), data].concat()
    };
    assert_eq!(talk(&[&[0xFF; 4]]).len(), 18, "unknown flags");
    assert_eq!(talk(&[&flags, &[7; 64]]).len(), 18, "no option");
    assert_eq!(talk(&[&flags, &option(1, b"another")]).len(), 18, "no such export, and no way to say so");
    assert_eq!(talk(&[&flags, &option(1, b"")]).len(), 18 + 10);
    let answer = |number, data: &[u8]| talk(&[&flags, &option(number, data)])[18 + 12..18 + 16].to_vec();
    assert_eq!(answer(7, &[1]), [0x80, 0, 0, 3], "invalid");
    assert_eq!(answer(7, b"\0\0\0\x04nope\0\0"), [0x80, 0, 0, 6], "unknown");
    assert_eq!(answer(5, &[]), [0x80, 0, 0, 1], "no TLS");
    assert_eq!(answer(2, &[]), [0, 0, 0, 1], "abort");

    // Transmission: each is refused by its number, and the next is heard all the same.
    let request = |flags: u16, command: u16, offset: u64, length: u32| {
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(5_u64.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes
    };
    let enter = [&flags[..], &option(1, b"")].concat();
    let errno = |asked: Vec<u8>| {
        let heard = talk(&[&enter, &asked, &request(0, 0, 0, 512)]);
        let replies = &heard[28..];
        assert_eq!(replies.len(), 16 + 16 + 512, "two answers");
        let failed = u32::from_be_bytes(replies[4..8].try_into().unwrap());
        assert_eq!(replies[16 + 4..16 + 8], [0; 4], "the next is done");
        failed
    };
    let (invalid, no_space) = (22, 28);
    assert_eq!(errno(request(0, 0, 64 << 20, 512)), invalid);
    assert_eq!(errno(request(0, 0, u64::MAX, 512)), invalid);
    assert_eq!(errno(request(0, 0, 1, 512)), invalid);
    assert_eq!(errno(request(0, 0, 0, u32::MAX)), invalid);
    assert_eq!(errno([request(0, 1, 64 << 20, 512), vec![1; 512]].concat()), no_space);
    assert_eq!(errno(request(0, 6, 64 << 20, 512)), no_space);
    assert_eq!(errno(request(0, 4, 0, u32::MAX)), invalid);
    assert_eq!(errno(request(0x80, 3, 0, 0)), invalid);
    assert_eq!(errno(request(0, 99, 0, 0)), invalid);
    let too_long = talk(&[&enter, &request(0, 1, 0, 33 << 20)]);
    assert_eq!(too_long.len(), 28, "a write too long to read over");
    let counts = served.end();
    assert_eq!((counts.reads, counts.writes), (9, 0));
}

#[test]
fn a_socket_is_made_only_where_nothing_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::at(directory.path().join("devices"));
    let serve = |path: &Path| {
        let (drive, description) = emulated("zero-cost", 64);
        let stops = Stops::default();
        stops.store(1, Ordering::SeqCst);
        let served =
            server::serve(&registry, &description, &drive, &[Address::Unix(path.to_owned())], &stops, |_| ());
        assert_eq!(registry.list().unwrap(), [], "nothing is left");
        served.map(drop).map_err(|error| error.to_string())
    };
    let file = directory.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    let error = serve(&file).unwrap_err();
    assert!(error.contains("exists and is no socket; expected a path that is free"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");

    let long = directory.path().join("x".repeat(100));
    let error = serve(&long).unwrap_err();
    assert!(error.contains("too long for the path of a socket; expected at most 107"), "{error}");

    let socket = directory.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let error = serve(&socket).unwrap_err();
    assert!(error.contains("another server listens there"), "{error}");
    drop(listener);
    assert!(socket.exists(), "what a dead server leaves");
    serve(&socket).unwrap();
    assert!(!socket.exists());
}

#[test]
fn nobody_gets_another_s_name() {
    let served = Served::nbd("zero-cost", 64);
    let (drive, mut description) = emulated("zero-cost", 64);
    let stops = Stops::default();
    stops.store(1, Ordering::SeqCst);
    let serve = |description: &Description| {
        let address = Address::Tcp("127.0.0.1:0".parse().unwrap());
        server::serve(&served.registry, description, &drive, &[address], &stops, |_| ())
    };
    assert_eq!(serve(&description).unwrap().0.name, "zero-cost-2");
    description.name = Some("zero-cost".to_owned());
    assert!(serve(&description).unwrap_err().to_string().contains("a device named zero-cost already"));
    for name in ["", ".", "..", "../x", "a/b", ".lock", "a b", &"x".repeat(49)] {
        description.name = Some(name.to_owned());
        let error = serve(&description).unwrap_err().to_string();
        assert!(error.contains("is no name of a device; expected"), "{error}");
    }
    let error = served.registry.detach("nosuch").unwrap_err().to_string();
    assert_eq!(error, "nosuch: no emulated device here has this name or node; expected one of zero-cost");
    served.end();
}

/// Random reads, writes and trims, each read compared with what was written last.
#[test]
fn fio_finds_nothing_lost_or_mixed_over_nbd() {
    if !can_run(&["fio"]) {
        return;
    }
    let engines = Command::new("fio").arg("--enghelp").output().unwrap();
    if !String::from_utf8_lossy(&engines.stdout).contains("nbd") {
        let message = "SKIPPED: this fio has no engine for NBD\n";
        drop(std::io::stderr().write_all(message.as_bytes()));
        return;
    }
    let served = Served::nbd("nvme-generic", 256);
    let uri = format!("--uri={}", served.uri());
    let words = [
        "--name=verify",
        "--ioengine=nbd",
        &uri,
        "--rw=randwrite",
        "--bs=4k-64k",
        "--size=256M",
        "--io_size=256M",
        "--iodepth=32",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--randseed=7",
    ];
    loops::sh("fio", &words);
    let counts = served.end();
    assert!(counts.written_bytes >= 128 << 20 && counts.read_bytes == counts.written_bytes, "{counts:?}");
}
