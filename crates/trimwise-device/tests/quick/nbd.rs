//! Invalid NBD clients, sockets and names.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;

use trimwise_device::nbd::{Address, CONNECTIONS_MAX};
use trimwise_device::registry::Registry;
use trimwise_device::server::{self, Description, Stops};

use crate::common::{Served, emulated};

#[test]
fn invalid_clients_are_disconnected() {
    let served = Served::nbd("zero-cost", 64);
    let talk = |said: &[&[u8]]| {
        let mut stream = UnixStream::connect(served.socket()).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(300))).unwrap();
        for bytes in said {
            // The server may have closed the connection already.
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

    // Transmission: each is refused by its number, and the next is still processed.
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

/// Regression test: each connection can hold 64 MiB, and their number was not limited.
#[test]
fn regression_connections_beyond_the_limit_are_left_and_do_not_harm_the_others() {
    let served = Served::nbd("zero-cost", 64);
    let greeted = || {
        let mut stream = UnixStream::connect(served.socket()).unwrap();
        let is_greeted = stream.read_exact(&mut [0; 18]).is_ok();
        is_greeted.then_some(stream)
    };
    let mut held: Vec<_> = (0..CONNECTIONS_MAX).map(|_| greeted().unwrap()).collect();
    assert!(greeted().is_none() && greeted().is_none());
    held.pop();
    // Its thread ends some time after that.
    while greeted().is_none() {}
    // Option 2 ends it with an answer.
    let mut first = held.swap_remove(0);
    first.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x02\0\0\0\0").unwrap();
    let mut heard = Vec::new();
    first.read_to_end(&mut heard).unwrap();
    assert_eq!(heard[12..16], [0, 0, 0, 1]);
    drop(held);
    served.end();
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
    assert!(error.contains("exists and is not a socket; expected a path that is free"), "{error}");
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
fn a_name_belongs_to_one_device() {
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
    assert!(serve(&description).unwrap_err().to_string().contains("a device named zero-cost already exists"));
    for name in ["", ".", "..", "../x", "a/b", ".lock", "a b", &"x".repeat(49)] {
        description.name = Some(name.to_owned());
        let error = serve(&description).unwrap_err().to_string();
        assert!(error.contains("is not a device name; expected"), "{error}");
    }
    let error = served.registry.detach("nosuch").unwrap_err().to_string();
    assert_eq!(error, "nosuch: no emulated device here has this name or node; expected one of zero-cost");
    served.end();
}
