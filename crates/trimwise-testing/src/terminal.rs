//! A terminal to run commands in.

use std::fs::File;
use std::io::Read as _;
use std::process::{Command, ExitStatus};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, OutputModes, Winsize, tcgetattr, tcsetattr, tcsetwinsize};

/// Runs a command whose output and errors go to a terminal of this many columns; returns what it shows.
pub fn run_in_terminal(mut command: Command, columns: u16) -> (ExitStatus, String) {
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&screen).and_then(|()| unlockpt(&screen)).unwrap();
    let name = ptsname(&screen, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = openat(CWD, &name, flags, Mode::empty()).unwrap();
    tcsetwinsize(&terminal, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let mut modes = tcgetattr(&terminal).unwrap();
    modes.output_modes.remove(OutputModes::OPOST); // lines end with \n alone
    tcsetattr(&terminal, OptionalActions::Now, &modes).unwrap();
    let mut child = command.stdout(terminal.try_clone().unwrap()).stderr(terminal).spawn().unwrap();
    drop(command); // and with it the last ends of the terminal in this process
    let mut shown = Vec::new();
    // Reading ends with EIO when nobody has the terminal open any more.
    let _ = File::from(screen).read_to_end(&mut shown);
    (child.wait().unwrap(), String::from_utf8(shown).unwrap())
}
