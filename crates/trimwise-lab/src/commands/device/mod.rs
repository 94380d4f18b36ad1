//! `trimwise device`: modelled drives as block devices, in real time.
//!
//! Each device is served by its own process. To serve in the background, `attach` runs this program again with the same
//! arguments and waits until it says that the device is ready.

pub mod arguments;
pub mod table;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::requests::device::{self, Devices, Shown};
use trimwise::failure::Failure;
use trimwise_device::registry::{Front, Record, Registry};
use trimwise_device::server::Stops;

use crate::commands::device::arguments::{
    AttachArguments, DetachArguments, DeviceArguments, DeviceCommand, DriveArguments, ServeArguments,
};
use trimwise_cli::interrupt;
use trimwise_cli::output::{self, Destinations};

/// How long to wait for a server's device to be ready.
const START_MAX: Duration = Duration::from_secs(60);

pub fn run(arguments: &DeviceArguments) -> Result<String, Failure> {
    let registry = device::registry(arguments.state_dir.as_deref())?;
    match &arguments.command {
        DeviceCommand::Attach(attach) if attach.foreground || attach.drive.announced => {
            attach_here(&registry, attach)
        }
        DeviceCommand::Attach(attach) => in_background(&attach.drive),
        DeviceCommand::Serve(serve) if serve.background && !serve.drive.announced => {
            in_background(&serve.drive)
        }
        DeviceCommand::Serve(serve) => serve_here(&registry, serve),
        DeviceCommand::Detach(detach) => detach_devices(&registry, detach),
        DeviceCommand::List(arguments) => {
            let destinations = Destinations::check_forms(&arguments.json, &arguments.tables)?;
            show(&destinations, &device::list(&registry)?)
        }
    }
}

/// Returns what scripts read: the node, or the addresses.
fn first_line(record: &Record) -> String {
    match &record.front {
        Front::Loop { device } => device.as_ref().map_or(String::new(), |d| format!("{}\n", d.display())),
        Front::Nbd { addresses } => addresses.iter().map(|address| format!("{address}\n")).collect(),
    }
}

/// Returns a counter that Ctrl-C and SIGTERM increase.
fn stops() -> Result<Stops, Failure> {
    let stops = Stops::default();
    let raised = Arc::clone(&stops);
    interrupt::on_signal(move || {
        raised.fetch_add(1, Ordering::SeqCst);
    })?;
    Ok(stops)
}

/// Says that the device is ready. In the background, this is the last output.
fn announce(record: &Record, announced: bool) {
    if !announced {
        // The device stays even if the reader is gone.
        drop(output::print_always(first_line(record)));
        return;
    }
    tell(Ok(record));
    trimwise_device::server::leave_terminal();
}

/// Tells the process that waits for this server how it began.
fn tell(begun: Result<&Record, &Failure>) {
    let mut out = std::io::stdout().lock();
    drop(serde_json::to_writer(&mut out, &begun));
    drop(writeln!(out).and_then(|()| out.flush()));
}

fn attach_here(registry: &Registry, arguments: &AttachArguments) -> Result<String, Failure> {
    let (stops, announced) = (stops()?, arguments.drive.announced);
    let ready = |record: &Record| announce(record, announced);
    let notice = |text: &str| eprintln!("{text}");
    let drive = arguments.drive.request();
    ended(device::attach(registry, &drive, arguments.threads, &stops, ready, notice), announced)
}

fn serve_here(registry: &Registry, arguments: &ServeArguments) -> Result<String, Failure> {
    let (stops, announced) = (stops()?, arguments.drive.announced);
    let ready = |record: &Record| announce(record, announced);
    ended(device::serve(registry, &arguments.drive.request(), &arguments.nbd, &stops, ready), announced)
}

/// Formats a device that has ended; in the background, only its errors are told.
fn ended(shown: Result<Shown, Failure>, announced: bool) -> Result<String, Failure> {
    if announced {
        return shown.inspect_err(|failure| tell(Err(failure))).map(|_| String::new());
    }
    Ok(table::render(&[shown?]))
}

/// Runs this command in the background and prints what its server announces.
fn in_background(drive: &DriveArguments) -> Result<String, Failure> {
    // Check the arguments here, where errors can be reported.
    device::check(&drive.request())?;
    output::print_always(first_line(&served_in_background()?)).map(|()| String::new())
}

fn served_in_background() -> Result<Record, Failure> {
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
            // If the parent has stopped waiting, it has already killed the server.
            drop(sender.send(read.map(|_| line)));
        });
    }
    let Ok(line) = receiver.recv_timeout(START_MAX) else {
        drop(child.kill());
        drop(child.wait());
        return Err(Failure::run(format!("the server did not start within {} s", START_MAX.as_secs())));
    };
    match serde_json::from_str::<Result<Record, Failure>>(&line.map_err(cannot)?) {
        Ok(Ok(record)) => return Ok(record),
        Ok(Err(failure)) => {
            child.wait().map_err(cannot)?;
            return Err(failure);
        }
        Err(_) => {}
    }
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        drop(stderr.read_to_string(&mut said));
    }
    let status = child.wait().map_err(cannot)?;
    let said = if said.is_empty() { said } else { format!(": {}", said.trim()) };
    Err(Failure::run(format!("the server exited at once ({status}){said}")))
}

fn detach_devices(registry: &Registry, arguments: &DetachArguments) -> Result<String, Failure> {
    let destinations = Destinations::check_json(&arguments.json)?;
    let given = (!arguments.all).then_some(&*arguments.devices);
    let (devices, failures) = device::detach(registry, given)?;
    let text = show(&destinations, &devices)?;
    let Some(first) = failures.first().cloned() else { return Ok(text) };
    // Some devices may have been detached even if others failed; report them first.
    output::print(if devices.devices.is_empty() { "" } else { &text })?;
    for failure in &failures[1..] {
        eprintln!("error: {failure}");
    }
    Err(first)
}

fn show(destinations: &Destinations, devices: &Devices) -> Result<String, Failure> {
    destinations.deliver(devices, || table::render(&devices.devices))
}
