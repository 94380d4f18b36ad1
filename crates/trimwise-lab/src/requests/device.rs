//! Modelled drives as block devices, in real time. The process that attaches a drive also serves it.

use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use trimwise::failure::{Failure, Mistake};
use trimwise::ssd::SsdConfig;
use trimwise::units::Bytes;
use trimwise_device::nbd::Address;
use trimwise_device::registry::{self, Front, Record, Registry, RegistryError, State, Status};
use trimwise_device::server::{self, Description, ServeError, Stops};
use trimwise_device::{EmulatedDrive, TimeScale};
use trimwise_linux::sparse_store::SparseStore;

use trimwise_study::check::within;
use trimwise_study::input::profile;
use trimwise_study::{as_text, defaults};

/// Accepted numbers of threads that serve a drive.
pub const THREADS: RangeInclusive<u16> = 1..=64;

/// A request for a drive to emulate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DriveRequest {
    /// The profile, a name or a file.
    pub profile: String,
    /// `None` means the size in the profile.
    pub size: Option<Bytes>,
    /// Factor by which everything takes longer than in the model.
    #[serde(with = "as_text", default)]
    pub time_scale: TimeScale,
    /// Seed of the drive's random numbers.
    #[serde(default = "defaults::seed")]
    pub seed: u64,
    /// The file that keeps the data; `None` means memory.
    pub backing: Option<PathBuf>,
    /// `None` means the profile's name, with a number if that is taken.
    pub name: Option<String>,
}

/// The result; the order of the keys is part of the format.
#[derive(Debug, Serialize)]
pub struct Devices {
    pub trimwise: &'static str,
    pub devices: Vec<Shown>,
}

#[derive(Debug, Serialize)]
pub struct Shown {
    /// The device as registered.
    #[serde(flatten)]
    pub record: Record,
    /// `serving`, `detached`, `silent` (its server does not answer) or `dead` (its server was killed).
    pub state: &'static str,
    /// What still uses the device of a killed server, so that it cannot be removed.
    pub in_use: Option<String>,
    /// The requests that it served; `None` if unknown.
    pub status: Option<Status>,
}

impl Shown {
    /// Returns the device's node or address.
    pub fn place(&self) -> String {
        match &self.record.front {
            Front::Loop { device } => device.as_ref().map_or("-".to_owned(), |d| d.display().to_string()),
            Front::Nbd { addresses } => addresses.join(" "),
        }
    }

    fn ended((record, status): (Record, Option<Status>)) -> Self {
        let state = if status.is_some() { "detached" } else { "dead" };
        Self { record, state, in_use: None, status }
    }
}

impl Devices {
    fn of(devices: Vec<Shown>) -> Self {
        Self { trimwise: trimwise::VERSION, devices }
    }
}

/// Opens the registry of this host's devices in a folder, or in the default one. A missing folder is created with the
/// first device.
pub fn registry(given: Option<&Path>) -> Result<Registry, Failure> {
    if let Some(given) = given {
        check_folder(given)?;
    }
    let folder = given.map_or_else(registry::usual_place, Path::to_owned);
    Ok(Registry::at(absolute("state_dir", &folder)?))
}

fn check_folder(given: &Path) -> Result<(), Failure> {
    let refused = |why: String| Err(Mistake::of("state_dir", given.display()).because(why).fail());
    match std::fs::metadata(given) {
        Ok(found) if !found.is_dir() => refused("is not a directory".to_owned()),
        Err(error) if error.kind() != ErrorKind::NotFound => refused(error.to_string()),
        _ => Ok(()),
    }
}

fn absolute(key: &'static str, path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|e| Mistake::of(key, path.display()).because(e.to_string()).fail())
}

/// Rejects a drive that cannot be made; the error says why.
pub fn check(drive: &DriveRequest) -> Result<(), Failure> {
    drive_config(drive).map(drop)
}

/// Returns the requested drive, and the name of its profile.
fn drive_config(request: &DriveRequest) -> Result<(SsdConfig, trimwise::ssd::Faults, String), Failure> {
    let profile = profile(&request.profile, "profile")?;
    let whole = Bytes(profile.config.capacity_bytes);
    let size = request.size.unwrap_or(whole);
    if size > whole {
        let why = format!("the drive of profile {} has only {whole}", profile.name);
        return Err(Mistake::of("size", size).because(why).expected("at most that").fail());
    }
    let config = profile.config.shrunk(size.0).map_err(|e| {
        Mistake::of("size", size).because(format!("the drive cannot be scaled to that: {e}")).fail()
    })?;
    Ok((config, profile.faults, profile.name))
}

/// A drive and its data. If the drive is never used, a backing file created for it is removed.
struct Made {
    drive: Arc<EmulatedDrive>,
    description: Description,
    backing_made: Option<PathBuf>,
}

fn make(request: &DriveRequest) -> Result<Made, Failure> {
    let (config, faults, name) = drive_config(request)?;
    let size = Bytes(config.capacity_bytes / trimwise::units::UNIT_BYTES * trimwise::units::UNIT_BYTES);
    let backing = request.backing.as_deref().map(|path| absolute("backing", path)).transpose()?;
    let backing_made = backing.clone().filter(|path| !path.exists());
    let store = match &backing {
        None => SparseStore::in_memory(size)
            .map_err(|e| Failure::run(format!("not enough memory for the data of the drive: {e}")))?,
        Some(path) => SparseStore::in_file_alone(path, size)
            .map_err(|e| Mistake::of("backing", path.display()).because(e.to_string()).fail())?,
    };
    let drive =
        EmulatedDrive::new(&config, faults, request.seed, store, request.time_scale).map_err(|e| {
            if let Some(path) = &backing_made {
                drop(std::fs::remove_file(path));
            }
            Mistake::that(e.to_string()).fail()
        })?;
    let description = Description {
        name: request.name.clone(),
        profile: name,
        seed: request.seed,
        scale: request.time_scale,
        backing,
    };
    Ok(Made { drive: Arc::new(drive), description, backing_made })
}

/// Attaches a drive as a block device of this host and serves it, on `threads` threads, until told to stop. Calls
/// `ready` once the device exists, and `notice` with what happens meanwhile.
pub fn attach(
    registry: &Registry,
    request: &DriveRequest,
    threads: Option<u16>,
    stops: &Stops,
    ready: impl FnMut(&Record),
    notice: impl Fn(&str),
) -> Result<Shown, Failure> {
    within("threads", threads, &THREADS)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.map_or(cores.min(4), usize::from);
    served(request, ready, |made, ready| {
        server::attach(registry, &made.description, &made.drive, threads, stops, ready, notice)
    })
}

/// Serves a drive over NBD until told to stop.
pub fn serve(
    registry: &Registry,
    request: &DriveRequest,
    addresses: &[Address],
    stops: &Stops,
    ready: impl FnMut(&Record),
) -> Result<Shown, Failure> {
    let addresses = addresses.iter().map(|address| match address {
        Address::Unix(path) => absolute("nbd", path).map(Address::Unix),
        Address::Tcp(at) => Ok(Address::Tcp(*at)),
    });
    let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
    served(request, ready, |made, ready| {
        server::serve(registry, &made.description, &made.drive, &addresses, stops, ready)
    })
}

/// Makes a drive and serves it. If it never becomes ready, a backing file created for it is removed.
fn served(
    request: &DriveRequest,
    mut ready: impl FnMut(&Record),
    serve: impl FnOnce(&Made, &mut dyn FnMut(&Record)) -> Result<(Record, Status), ServeError>,
) -> Result<Shown, Failure> {
    let made = make(request)?;
    let mut was_ready = false;
    let result = serve(&made, &mut |record| {
        was_ready = true;
        ready(record);
    });
    if let Some(path) = made.backing_made.as_ref().filter(|_| !was_ready) {
        drop(std::fs::remove_file(path));
    }
    let ended = result.map_err(|error| match error {
        ServeError::Registry(error) => refused(error),
        ServeError::Listen(error) => Mistake::on("nbd").that_is(error.to_string()).fail(),
        ServeError::Attach(_) | ServeError::Cut { .. } => Failure::run(error),
    })?;
    Ok(Shown::ended((ended.0, Some(ended.1))))
}

/// Turns errors that the user can correct into usage errors.
fn refused(error: RegistryError) -> Failure {
    match error {
        RegistryError::Io(_) | RegistryError::Lingers { .. } | RegistryError::InUse { .. } => {
            Failure::run(error)
        }
        _ => error.mistake().fail(),
    }
}

/// Stops devices given by name or node; `None` means all. Also returns a failure for each that could not be stopped.
pub fn detach(registry: &Registry, devices: Option<&[String]>) -> Result<(Devices, Vec<Failure>), Failure> {
    let given = match devices {
        Some(devices) => devices.to_vec(),
        None => registry.list().map_err(refused)?.into_iter().map(|(record, _)| record.name).collect(),
    };
    let (mut shown, mut failures) = (Vec::new(), Vec::new());
    for device in &given {
        match registry.detach(device) {
            Ok(ended) => shown.push(Shown::ended(ended)),
            Err(error) => failures.push(refused(error)),
        }
    }
    Ok((Devices::of(shown), failures))
}

/// Lists the devices, and cleans up after killed servers.
pub fn list(registry: &Registry) -> Result<Devices, Failure> {
    let shown = registry.list().map_err(refused)?.into_iter().map(|(record, state)| match state {
        State::Serving(status) => Shown { record, state: "serving", in_use: None, status: Some(status) },
        State::Silent => Shown { record, state: "silent", in_use: None, status: None },
        State::Dead { in_use } => Shown { record, state: "dead", in_use: Some(in_use), status: None },
    });
    Ok(Devices::of(shown.collect()))
}
