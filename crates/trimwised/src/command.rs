//! `trimwised` as a command: its arguments, and the roles of its own processes.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, Parser};

use crate::metrics::listen;
use crate::service::{Options, PATIENCE, ServiceError, run};
use crate::speak::{Speaking, say};
use crate::{Places, helper, lenders, look, sense, speak, worker, write};
use trimwise_linux::daemon::config::{Config, DEFAULT_FILE};
use trimwise_linux::host_root::HostRoot;
use trimwise_linux::ioctl::signals;

/// Decides when and what to trim on each mounted file system, in place of fstrim.timer and `discard`
#[derive(Parser)]
#[command(
    name = "trimwised",
    version = trimwise::VERSION,
    no_binary_name = true,
    args_override_self = true,
    after_help = "SIGHUP reloads the configuration; an invalid one changes nothing. SIGTERM stops it and restores \
                  mount options.\n\
                  Exit codes: 0 success, 1 failure, 2 wrong arguments or configuration."
)]
struct Arguments {
    /// Configuration file; drop-ins are in FILE.d
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    config: PathBuf,
    /// State kept across restarts
    #[arg(long, value_name = "DIR", default_value = "/var/lib/trimwise")]
    state: PathBuf,
    /// Sockets
    #[arg(long, value_name = "DIR", default_value = trimwise_linux::daemon::DEFAULT_RUN)]
    run: PathBuf,
    /// Where the host's / is mounted, in a container
    #[arg(long, value_name = "DIR", default_value = "/")]
    host_root: PathBuf,
    /// Look and decide, but change nothing; `trimwise history` lists what would be done
    #[arg(long)]
    dry_run: bool,
    /// Trim everything untrimmed on each managed file system, in slices, and exit
    #[arg(long)]
    once: bool,
    /// Check the configuration, and exit with 2 if it is invalid
    #[arg(long)]
    check_config: bool,
    /// Stay in the foreground, which it always does; accepted for service managers
    #[arg(long = "foreground")]
    _foreground: bool,
    /// Patience with a helper, shorter for tests
    #[arg(long, value_name = "SECONDS", hide = true, default_value_t = PATIENCE.as_secs())]
    helper_patience_s: u64,
}

/// The daemon's arguments, for its man page.
pub fn definition() -> clap::Command {
    Arguments::command()
}

/// Runs one of the daemon's processes; `None` if the argument does not name one.
fn as_process(role: &str) -> Option<io::Result<()>> {
    Some(match role {
        helper::COMMAND => helper::main(),
        lenders::COMMAND => worker::serve(lenders::answer),
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
    signals::reset();
    let mut arguments = arguments.into_iter().peekable();
    let role = arguments.peek().and_then(|first| first.to_str());
    if let Some(done) = role.and_then(as_process) {
        return done.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let arguments = Arguments::parse_from(arguments);
    // The program's processes run in `/`, and so does the daemon: another folder would keep its file system from being
    // unmounted. An empty path stays as it is, and its use fails.
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    let places = Places {
        config: absolute(arguments.config),
        state: absolute(arguments.state),
        run: absolute(arguments.run),
        host: HostRoot::new(absolute(arguments.host_root)),
    };
    if let Some(why) = places.unfit() {
        say(3, &format!("error: {why}"));
        return ExitCode::from(2);
    }
    if let Err(error) = std::env::set_current_dir("/") {
        say(3, &format!("error: /: {error}"));
        return ExitCode::FAILURE;
    }
    if arguments.check_config {
        return match Config::load(&places.config) {
            Ok(_) => ExitCode::SUCCESS,
            Err(errors) => {
                say(3, &format!("error: {errors}"));
                ExitCode::from(2)
            }
        };
    }
    let options = Options {
        places,
        dry_run: arguments.dry_run,
        once: arguments.once,
        // Not by name: the program may be replaced while it runs.
        program: "/proc/self/exe".into(),
        patience: Duration::from_secs(arguments.helper_patience_s),
    };
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
