//! `trimwised` as a command: its arguments, and the roles of its own processes.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::metrics::listen;
use crate::service::{Options, PATIENCE, ServiceError, run};
use crate::speak::{Speaking, say};
use crate::{Places, helper, look, sense, speak, worker, write};
use trimwise_linux::host_root::HostRoot;

/// `--config=FILE` is `--config FILE`.
fn split_at_equals(argument: OsString) -> Vec<OsString> {
    let bytes = argument.as_bytes();
    match bytes.iter().position(|&byte| byte == b'=').filter(|_| bytes.starts_with(b"--")) {
        Some(at) => [&bytes[..at], &bytes[at + 1..]].map(|part| OsStr::from_bytes(part).to_owned()).into(),
        None => vec![argument],
    }
}

const HELP: &str = "\
trimwised: decides when and what to trim on each mounted file system, in place of fstrim.timer and
`discard`

Usage: trimwised [OPTIONS]

Options:
  --config FILE      configuration file; drop-ins are in FILE.d [default: /etc/trimwise.toml]
  --state DIR        state kept across restarts [default: /var/lib/trimwise]
  --run DIR          sockets [default: /run/trimwise]
  --host-root DIR    where the host's / is mounted, in a container [default: /]
  --dry-run          look and decide, but change nothing; `trimwise history` lists what would be done
  --once             trim everything untrimmed on each managed file system, in slices, and exit
  --foreground       stay in the foreground, which it always does; accepted for service managers
  --help, --version
A value may also follow an equals sign: --config=FILE.

SIGHUP reloads the configuration; an invalid one changes nothing. SIGTERM stops it and restores mount
options.
Exit codes: 0 success, 1 failure, 2 wrong arguments or configuration.
";

/// Runs one of the daemon's processes; `None` if the argument does not name one.
fn as_process(role: &str) -> Option<io::Result<()>> {
    Some(match role {
        helper::COMMAND => helper::main(),
        listen::COMMAND => listen::main(),
        look::COMMAND => {
            let mut looker = look::Looker::default();
            worker::serve(|ask| looker.answer(ask))
        }
        sense::COMMAND => {
            let mut sampler = sense::Sampler::default();
            worker::serve(|ask| sampler.answer(ask))
        }
        speak::COMMAND => speak::serve(),
        write::COMMAND => worker::serve(write::answer),
        _ => return None,
    })
}

/// Runs the daemon, or one of its processes, with the arguments after the program's name.
///
/// The program must call this function again when started with the argument that names such a process, such as
/// [`helper::COMMAND`].
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter().flat_map(split_at_equals).peekable();
    let role = arguments.peek().and_then(|first| first.to_str());
    if let Some(done) = role.and_then(as_process) {
        return done.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let mut places = Places::default();
    let (mut dry_run, mut once, mut patience) = (false, false, PATIENCE);
    while let Some(argument) = arguments.next() {
        let name = argument.to_string_lossy().into_owned();
        let mut path = || arguments.next().map(PathBuf::from).ok_or_else(|| format!("{name} needs a path"));
        let taken = match name.as_str() {
            "--config" => path().map(|path| places.config = path),
            "--state" => path().map(|path| places.state = path),
            "--run" => path().map(|path| places.run = path),
            "--host-root" => path().map(|path| places.host = HostRoot::new(path)),
            "--dry-run" => {
                dry_run = true;
                Ok(())
            }
            "--once" => {
                once = true;
                Ok(())
            }
            "--foreground" => Ok(()),
            // For tests only: a shorter patience.
            "--helper-patience-s" => {
                let seconds = arguments.next().and_then(|text| text.to_str()?.parse().ok());
                seconds
                    .map(|seconds| patience = Duration::from_secs(seconds))
                    .ok_or_else(|| format!("{name} needs seconds"))
            }
            "--help" | "-h" => {
                print!("{HELP}");
                return ExitCode::SUCCESS;
            }
            "--version" | "-V" => {
                println!("trimwised {}", trimwise::VERSION);
                return ExitCode::SUCCESS;
            }
            _ => Err(format!("unknown argument '{name}'; `trimwised --help` lists them")),
        };
        if let Err(message) = taken {
            eprintln!("error: {message}");
            return ExitCode::from(2);
        }
    }
    // Not by name: the program may be replaced while it runs.
    let options = Options { places, dry_run, once, program: "/proc/self/exe".into(), patience };
    let _speaking = Speaking::begin(&options.program);
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(3, &format!("error: {error}"));
            let usage = matches!(error, ServiceError::Config(_));
            ExitCode::from(if usage { 2 } else { 1 })
        }
    }
}
