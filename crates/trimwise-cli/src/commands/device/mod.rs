//! `trimwise device`: modelled drives as block devices, in real time.
//!
//! Each device is served by its own process. `attach` starts it in the background by running this program again with
//! the same arguments, and waits until it says that the device is ready.

pub mod arguments;
pub mod table;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use serde::Serialize;
use trimwise::ssd::SsdConfig;
use trimwise::units::Bytes;
use trimwise_device::EmulatedDrive;
use trimwise_device::nbd::Address;
use trimwise_device::registry::{self, Front, Record, Registry, RegistryError, State, Status};
use trimwise_device::server::{self, Description, ServeError, Stops};
use trimwise_lab::failure::Failure;
use trimwise_linux::sparse_store::SparseStore;

use crate::commands::device::arguments::{
    AttachArguments, DetachArguments, DeviceArguments, DeviceCommand, DriveArguments, ListArguments,
    ServeArguments,
};
use crate::interrupt;
use crate::output::{self, Destinations};
use trimwise_study::input::profile;

/// How long a server may take until its device is ready.
const START_MAX: Duration = Duration::from_secs(60);

/// Devices as `--json` writes them.
#[derive(Debug, Serialize)]
struct Devices<'a> {
    /// The version of trimwise.
    trimwise: &'static str,
    devices: &'a [Shown],
}

/// A device and its state.
#[derive(Debug, Serialize)]
pub struct Shown {
    #[serde(flatten)]
    pub record: Record,
    /// `serving`, `detached`, `silent` (its server does not answer) or `dead` (its server was killed).
    pub state: &'static str,
    /// What still uses the remains of a dead server, so that they are not removed.
    pub in_use: Option<String>,
    /// What it served; `None` if unknown.
    pub status: Option<Status>,
}

impl Shown {
    /// Its node or address.
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

/// Runs the command and returns what to print.
pub fn run(arguments: &DeviceArguments) -> Result<String, Failure> {
    let state_dir = arguments.state_dir.clone().unwrap_or_else(registry::usual_place);
    if let Some(given) = &arguments.state_dir {
        check_folder(given)?;
    }
    let registry = Registry::at(absolute("state-dir", &state_dir)?);
    match &arguments.command {
        DeviceCommand::Attach(attach) if attach.foreground || attach.drive.announced => {
            attach_here(&registry, attach)
        }
        DeviceCommand::Attach(attach) => {
            // This process reports errors in the arguments.
            drive_config(&attach.drive)?;
            in_background()
                .and_then(|record| output::print_always(first_line(&record)))
                .map(|()| String::new())
        }
        DeviceCommand::Serve(serve) if serve.background && !serve.drive.announced => {
            drive_config(&serve.drive)?;
            in_background()
                .and_then(|record| output::print_always(first_line(&record)))
                .map(|()| String::new())
        }
        DeviceCommand::Serve(serve) => serve_here(&registry, serve),
        DeviceCommand::Detach(detach) => detach_devices(&registry, detach),
        DeviceCommand::List(arguments) => list(&registry, arguments),
    }
}

/// What a script reads: the node, or the addresses.
fn first_line(record: &Record) -> String {
    match &record.front {
        Front::Loop { device } => device.as_ref().map_or(String::new(), |d| format!("{}\n", d.display())),
        Front::Nbd { addresses } => addresses.iter().map(|address| format!("{address}\n")).collect(),
    }
}

/// Rejects a folder of devices that is none; one that does not exist is created with the first device.
fn check_folder(given: &Path) -> Result<(), Failure> {
    let refused = |why: String| Err(Failure::usage(format!("--state-dir {}: {why}", given.display())));
    match std::fs::metadata(given) {
        Ok(found) if !found.is_dir() => refused("is not a directory".to_owned()),
        Err(error) if error.kind() != ErrorKind::NotFound => refused(error.to_string()),
        _ => Ok(()),
    }
}

fn absolute(option: &str, path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|e| Failure::usage(format!("--{option} {}: {e}", path.display())))
}

/// Returns the drive as requested, and the name of its profile.
fn drive_config(arguments: &DriveArguments) -> Result<(SsdConfig, trimwise::ssd::Faults, String), Failure> {
    let profile = profile(&arguments.profile, "profile")?;
    let whole = Bytes(profile.config.capacity_bytes);
    let size = arguments.size.unwrap_or(whole);
    if size > whole {
        return Err(Failure::usage(format!(
            "--size {size}: the drive of profile {} has only {whole}; expected at most that",
            profile.name
        )));
    }
    let config = profile
        .config
        .shrunk(size.0)
        .map_err(|e| Failure::usage(format!("--size {size}: no such drive: {e}")))?;
    Ok((config, profile.faults, profile.name))
}

/// A drive with its bytes; if it ends up unused, a backing file created for it is removed.
struct Made {
    drive: Arc<EmulatedDrive>,
    description: Description,
    backing_made: Option<PathBuf>,
}

fn make(arguments: &DriveArguments) -> Result<Made, Failure> {
    let (config, faults, name) = drive_config(arguments)?;
    let size = Bytes(config.capacity_bytes / trimwise::units::UNIT_BYTES * trimwise::units::UNIT_BYTES);
    let backing = arguments.backing.as_deref().map(|path| absolute("backing", path)).transpose()?;
    let backing_made = backing.clone().filter(|path| !path.exists());
    let store = match &backing {
        None => SparseStore::in_memory(size)
            .map_err(|e| Failure::run(format!("no memory for the data of the drive: {e}")))?,
        Some(path) => SparseStore::in_file_alone(path, size)
            .map_err(|e| Failure::usage(format!("--backing {}: {e}", path.display())))?,
    };
    let drive =
        EmulatedDrive::new(&config, faults, arguments.seed, store, arguments.time_scale).map_err(|e| {
            if let Some(path) = &backing_made {
                drop(std::fs::remove_file(path));
            }
            Failure::usage(e)
        })?;
    let description = Description {
        name: arguments.name.clone(),
        profile: name,
        seed: arguments.seed,
        scale: arguments.time_scale,
        backing,
    };
    Ok(Made { drive: Arc::new(drive), description, backing_made })
}

/// The flag that Ctrl-C and SIGTERM raise, higher each time.
fn stops() -> Result<Stops, Failure> {
    let stops = Stops::default();
    let raised = Arc::clone(&stops);
    interrupt::on_signal(move || {
        raised.fetch_add(1, Ordering::SeqCst);
    })?;
    Ok(stops)
}

/// Says that the device is ready. In the background that is the last output.
fn announce(record: &Record, announced: bool) {
    if !announced {
        // A reader that has gone away does not end the device.
        drop(output::print_always(first_line(record)));
        return;
    }
    let mut out = std::io::stdout().lock();
    drop(serde_json::to_writer(&mut out, record));
    drop(writeln!(out).and_then(|()| out.flush()));
    drop(out);
    trimwise_device::server::leave_terminal();
}

fn attach_here(registry: &Registry, arguments: &AttachArguments) -> Result<String, Failure> {
    let stops = stops()?;
    let made = make(&arguments.drive)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.threads.map_or(cores.min(4), usize::from);
    let announced = arguments.drive.announced;
    let mut is_ready = false;
    let ready = |record: &Record| {
        is_ready = true;
        announce(record, announced);
    };
    let notice = |text: &str| eprintln!("{text}");
    let result = server::attach(registry, &made.description, &made.drive, threads, &stops, ready, notice);
    ended(result, is_ready, &made, announced)
}

fn serve_here(registry: &Registry, arguments: &ServeArguments) -> Result<String, Failure> {
    let addresses = arguments.nbd.iter().map(|address| match address {
        Address::Unix(path) => absolute("nbd", path).map(Address::Unix),
        Address::Tcp(at) => Ok(Address::Tcp(*at)),
    });
    let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
    let stops = stops()?;
    let made = make(&arguments.drive)?;
    let announced = arguments.drive.announced;
    let mut is_ready = false;
    let ready = |record: &Record| {
        is_ready = true;
        announce(record, announced);
    };
    let result = server::serve(registry, &made.description, &made.drive, &addresses, &stops, ready);
    ended(result, is_ready, &made, announced)
}

fn ended(
    result: Result<(Record, Status), ServeError>,
    was_ready: bool,
    made: &Made,
    announced: bool,
) -> Result<String, Failure> {
    if let Some(path) = made.backing_made.as_ref().filter(|_| !was_ready) {
        drop(std::fs::remove_file(path));
    }
    let (record, status) = result.map_err(|error| match error {
        ServeError::Registry(error) => refused(error),
        ServeError::Listen(error) => Failure::usage(format!("--nbd {error}")),
        ServeError::Attach(_) | ServeError::Cut { .. } => Failure::run(error),
    })?;
    let shown = Shown::ended((record, Some(status)));
    Ok(if announced { String::new() } else { table::render(&[shown]) })
}

/// What the user can correct is a usage error.
fn refused(error: RegistryError) -> Failure {
    match error {
        RegistryError::Io(_) | RegistryError::Lingers { .. } | RegistryError::InUse { .. } => {
            Failure::run(error)
        }
        _ => Failure::usage(error),
    }
}

/// Runs this command in the background and returns what it serves.
fn in_background() -> Result<Record, Failure> {
    let cannot = |e: std::io::Error| Failure::run(format!("cannot start a server in the background: {e}"));
    let mut child = Command::new(std::env::current_exe().map_err(cannot)?)
        .args(std::env::args_os().skip(1))
        .arg("--announced")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let (sender, receiver) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = BufReader::new(stdout).read_line(&mut line);
            // If the parent no longer waits, it has ended the server.
            drop(sender.send(read.map(|_| line)));
        });
    }
    let Ok(line) = receiver.recv_timeout(START_MAX) else {
        drop(child.kill());
        drop(child.wait());
        return Err(Failure::run(format!("the server did not start within {} s", START_MAX.as_secs())));
    };
    if let Ok(record) = serde_json::from_str(&line.map_err(cannot)?) {
        return Ok(record);
    }
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        drop(stderr.read_to_string(&mut said));
    }
    let status = child.wait().map_err(cannot)?;
    let said = said.trim().trim_start_matches("error: ").to_owned();
    Err(match status.code() {
        Some(2) => Failure::Usage(said),
        _ if said.is_empty() => Failure::run(format!("the server exited at once: {status}")),
        _ => Failure::Run(said),
    })
}

fn detach_devices(registry: &Registry, arguments: &DetachArguments) -> Result<String, Failure> {
    let destinations = Destinations::check_json(&arguments.json)?;
    let given = if arguments.all {
        registry.list().map_err(refused)?.into_iter().map(|(record, _)| record.name).collect()
    } else {
        arguments.devices.clone()
    };
    let mut shown = Vec::new();
    let mut failures = Vec::new();
    for device in &given {
        match registry.detach(device) {
            Ok(ended) => shown.push(Shown::ended(ended)),
            Err(error) => failures.push(refused(error)),
        }
    }
    let text = show(&destinations, &shown)?;
    let Some(first) = failures.first().cloned() else { return Ok(text) };
    // Report what was done even if it is not all.
    output::print(if shown.is_empty() { "" } else { &text })?;
    for failure in &failures[1..] {
        eprintln!("error: {failure}");
    }
    Err(first)
}

fn list(registry: &Registry, arguments: &ListArguments) -> Result<String, Failure> {
    let destinations = Destinations::check_json(&arguments.json)?;
    let shown = registry.list().map_err(refused)?.into_iter().map(|(record, state)| match state {
        State::Serving(status) => Shown { record, state: "serving", in_use: None, status: Some(status) },
        State::Silent => Shown { record, state: "silent", in_use: None, status: None },
        State::Dead { in_use } => Shown { record, state: "dead", in_use: Some(in_use), status: None },
    });
    show(&destinations, &shown.collect::<Vec<_>>())
}

fn show(destinations: &Destinations, devices: &[Shown]) -> Result<String, Failure> {
    let document = Devices { trimwise: trimwise::VERSION, devices };
    destinations.deliver(&document, || table::render(devices))
}
