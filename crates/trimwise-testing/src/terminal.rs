use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, ExitStatus};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, OutputModes, Winsize, tcgetattr, tcsetattr, tcsetwinsize};

/// Byte printed after the command's output; no command prints it itself.
const END: u8 = 0;

/// Runs a command whose output and errors go to a terminal of this many columns; returns the text that it shows.
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
    let mut child =
        command.stdout(terminal.try_clone().unwrap()).stderr(terminal.try_clone().unwrap()).spawn().unwrap();
    // Keep the terminal open here until all is read: once its last end is closed, Linux may report EIO before it has
    // handed out what was written (seen on 6.18: everything after the first 2,048 bytes was lost).
    let reader = std::thread::spawn(move || {
        let mut shown = Vec::new();
        let mut screen = BufReader::new(File::from(screen));
        screen.read_until(END, &mut shown).unwrap();
        assert_eq!(shown.pop(), Some(END), "the terminal was closed");
        shown
    });
    let status = child.wait().unwrap();
    File::from(terminal).write_all(&[END]).unwrap();
    (status, String::from_utf8(reader.join().unwrap()).unwrap())
}
