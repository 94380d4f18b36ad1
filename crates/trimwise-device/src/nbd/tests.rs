//! The loop that accepts connections when there are no descriptors for them.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::socket::{Incoming, Listener, Stream};
use super::{LOOK_EVERY, Shared};
use crate::tests::drive;
use trimwise::ssd::Faults;

/// Time limit that no step reaches on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// The test runs itself again in its own process, to use up the descriptors there.
const ALONE: &str = "TRIMWISE_TEST_TAKES_DESCRIPTORS";

struct Counted {
    listener: Listener,
    woken: AtomicU64,
    refused: AtomicU64,
}

impl Incoming for Counted {
    fn wait(&self) -> bool {
        let is_ready = self.listener.wait();
        self.woken.fetch_add(u64::from(is_ready), Ordering::SeqCst);
        is_ready
    }

    fn accept(&self) -> io::Result<Stream> {
        self.listener.accept().inspect_err(|error| {
            let is_limit = error.raw_os_error() == Some(libc::EMFILE);
            self.refused.fetch_add(u64::from(is_limit), Ordering::SeqCst);
        })
    }
}

#[test]
fn regression_without_descriptors_it_rests_between_two_attempts_and_serves_when_there_are_some() {
    if std::env::var_os(ALONE).is_some() {
        return without_descriptors();
    }
    let test = "nbd::tests::regression_without_descriptors_it_rests_between_two_attempts_and_serves_when_there_are_some";
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn without_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let counted =
        Counted { listener: Listener::Unix(listener), woken: AtomicU64::new(0), refused: AtomicU64::new(0) };
    let shared = Arc::new(Shared {
        drive: Arc::new(drive(|_| (), Faults::default())),
        export: "drive".to_owned(),
        ended: AtomicBool::new(false),
        connections: Mutex::default(),
    });
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..limit }).unwrap();
    let mut taken: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!((1..64).contains(&taken.len()));

    std::thread::scope(|scope| {
        let begin = Instant::now();
        scope.spawn(|| shared.accept(&counted));
        // The client itself takes the last descriptor.
        taken.pop();
        let mut client = UnixStream::connect(&path).unwrap();
        while counted.refused.load(Ordering::SeqCst) < 5 {
            assert!(begin.elapsed() < PATIENCE, "the limit is never met");
            std::thread::sleep(LOOK_EVERY);
        }
        // A rest is never shorter than intended, however busy the machine is.
        let (woken, rests) =
            (counted.woken.load(Ordering::SeqCst), begin.elapsed().as_nanos() / LOOK_EVERY.as_nanos());
        taken.clear();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut greeting = [0; 8];
        let heard = client.read_exact(&mut greeting);
        shared.ended.store(true, Ordering::SeqCst);
        drop(client);
        heard.unwrap();
        assert_eq!(&greeting, b"NBDMAGIC");
        assert!(u128::from(woken) <= rests + 1, "woken {woken} times in {rests} rests");
    });
}
