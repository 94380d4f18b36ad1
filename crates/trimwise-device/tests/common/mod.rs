//! Emulated drives that a test serves.

#![allow(dead_code)] // each tier uses a part of this

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use trimwise::block::PortCounts;
use trimwise::profile::Profile;
use trimwise::units::Bytes;
use trimwise_device::nbd::Address;
use trimwise_device::registry::{Front, Record, Registry, State, Status};
use trimwise_device::server::{self, Description, ServeError, Stops};
use trimwise_device::{EmulatedDrive, TimeScale};
use trimwise_linux::sparse_store::SparseStore;

/// A server in a thread of this process; dropping it ends the server.
pub struct Served {
    pub record: Record,
    pub registry: Registry,
    pub stops: Stops,
    thread: Option<JoinHandle<Result<(Record, Status), ServeError>>>,
    pub directory: tempfile::TempDir,
}

pub fn emulated(profile: &str, mib: u64) -> (Arc<EmulatedDrive>, Description) {
    let profile = Profile::embedded(profile).unwrap();
    let config = profile.config.shrunk(Bytes::mib(mib).0).unwrap();
    let store = SparseStore::in_memory(Bytes(config.capacity_bytes)).unwrap();
    // Ten times as fast as the drive: these tests are not about timing.
    let scale: TimeScale = "0.1".parse().unwrap();
    let drive = EmulatedDrive::new(&config, profile.faults, 1, store, scale).unwrap();
    let description = Description { name: None, profile: profile.name, seed: 1, scale, backing: None };
    (Arc::new(drive), description)
}

impl Served {
    pub fn new(
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

    pub fn attached(profile: &'static str, mib: u64) -> Self {
        Self::new(move |registry, _, stops, ready| {
            let (drive, description) = emulated(profile, mib);
            server::attach(registry, &description, &drive, 2, stops, |record| ready(record), |_| ())
        })
    }

    pub fn nbd(profile: &'static str, mib: u64) -> Self {
        Self::new(move |registry, directory, stops, ready| {
            let (drive, description) = emulated(profile, mib);
            let address = Address::Unix(directory.join("socket"));
            server::serve(registry, &description, &drive, &[address], stops, |record| ready(record))
        })
    }

    pub fn node(&self) -> PathBuf {
        match &self.record.front {
            Front::Loop { device } => device.clone().unwrap(),
            Front::Nbd { .. } => panic!("no block device"),
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
    }

    pub fn counts(&self) -> PortCounts {
        match &self.registry.list().unwrap()[..] {
            [(_, State::Serving(status))] => status.counts,
            other => panic!("{other:?}"),
        }
    }

    /// Ends the server, and checks that nothing is left behind.
    pub fn end(mut self) -> PortCounts {
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
        // If a test fails, end at once.
        self.stops.fetch_add(2, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
