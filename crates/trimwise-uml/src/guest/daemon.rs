use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::Failed;
use crate::job::{DAEMON, DAEMON_FOLDER as FOLDER};

pub struct Daemon(Child);

impl Daemon {
    pub fn start(config: &str) -> Result<Self, Failed> {
        let folder = Path::new(FOLDER);
        let file = |name: &str| folder.join(name);
        let io = |e: std::io::Error| format!("{FOLDER}: {e}");
        fs::create_dir_all(folder).map_err(io)?;
        fs::write(file("config.toml"), config).map_err(io)?;
        let said = fs::File::create(file("said")).map_err(io)?;
        let child = Command::new(DAEMON)
            .arg("--config")
            .arg(file("config.toml"))
            .arg("--state")
            .arg(file("state"))
            .arg("--run")
            .arg(file("run"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .map_err(|e| format!("the daemon cannot be started: {e}"))?;
        Ok(Self(child))
    }

    /// Ends the daemon as a service manager would. Returns its output.
    pub fn stop(self) -> Result<String, Failed> {
        let (status, said) = self.end(Signal::TERM)?;
        if status.success() { Ok(said) } else { Err(format!("the daemon: {status}: {said}").into()) }
    }

    /// Kills the daemon without warning. Fails if it had already ended.
    pub fn kill(self) -> Result<String, Failed> {
        let (status, said) = self.end(Signal::KILL)?;
        let is_killed = status.signal() == Some(Signal::KILL.as_raw());
        if is_killed {
            Ok(said)
        } else {
            Err(format!("the daemon had ended before: {status}: {said}").into())
        }
    }

    fn end(mut self, signal: Signal) -> Result<(ExitStatus, String), Failed> {
        kill_process(Pid::from_child(&self.0), signal)?;
        let status = self.0.wait()?;
        Ok((status, fs::read_to_string(Path::new(FOLDER).join("said"))?))
    }
}
