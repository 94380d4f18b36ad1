//! Mount options that are put back as they were: by helpers, for which the loop does not wait.

use std::io::{self, Read as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout};
use std::time::{Duration, Instant};

use super::{Service, log};
use crate::daemon::discover::{self, is_covered};
use crate::daemon::helper::{self, Answer, Request, Task};
use crate::daemon::journal::{Change, is_of};
use crate::mount::{Mount, parse_mountinfo};

/// A helper that takes longer is given up. Remounting writes out what waits to be written, which may be much.
const PATIENCE: Duration = Duration::from_secs(120);
/// At the beginning and at the end nothing waits longer than this, so that a service manager does not lose patience either.
/// What was not put back by then is by the next daemon.
const WAIT_MAX: Duration = Duration::from_secs(15);

/// A mount option that is being put back.
pub struct Restoring {
    change: Change,
    /// Through which mount.
    point: PathBuf,
    child: Child,
    out: ChildStdout,
    begun: Instant,
}

impl Restoring {
    /// Whether it is one of this file system.
    pub fn is_of(&self, numbers: (u32, u32)) -> bool {
        self.change.numbers == numbers
    }

    /// What the helper answered; `None` as long as it has not ended.
    fn answer(&mut self) -> Option<Answer> {
        let again = |message: String| Some(Answer::Again { message });
        match self.child.try_wait() {
            Ok(Some(status)) => {
                let mut output = Vec::new();
                drop(self.out.read_to_end(&mut output)); // its only writer has ended
                let answer = helper::parse_answer(&output).map(|(_, answer)| answer);
                answer.or_else(|| again(format!("the helper ended with {status}")))
            }
            Ok(None) if self.begun.elapsed() < PATIENCE => None,
            Ok(None) => {
                drop(self.child.kill());
                again(format!("the helper did not end in {} s", PATIENCE.as_secs()))
            }
            Err(error) => again(error.to_string()),
        }
    }
}

impl Service {
    /// Begins to put back the options of all file systems that are mounted, and not managed.
    pub(super) fn restore_unmanaged(&mut self, mounts: &[Mount]) {
        if self.options.dry_run {
            return;
        }
        for change in self.journal.changes().to_vec() {
            let mut of_it = mounts.iter().filter(|mount| is_of(&change, mount)).peekable();
            if of_it.peek().is_none() {
                self.journal.restored(&change);
            } else if !self.managed.contains_key(&change.numbers)
                && !self.is_restoring(change.numbers)
                && !self.unrestorable.contains(&change)
            {
                // One that lies below another is not reached by its path: then another time.
                if let Some(mount) = of_it.find(|mount| !is_covered(mount, mounts)) {
                    self.restore(change, mount);
                }
            }
        }
    }

    /// Whether an option of this file system is being put back; until that is done it is not managed.
    pub(super) fn is_restoring(&self, numbers: (u32, u32)) -> bool {
        self.restoring.iter().any(|one| one.is_of(numbers))
    }

    fn restore(&mut self, change: Change, mount: &Mount) {
        let request = Request {
            path: self.options.places.host.path(&mount.mount_point),
            numbers: change.numbers,
            task: Task::Toggle { option: change.was.clone() },
        };
        let point = mount.mount_point.clone();
        let started = helper::start(&self.options.program, &request).and_then(|mut child| {
            let out = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
            Ok((child, out))
        });
        match started {
            Ok((child, out)) => {
                self.restoring.push(Restoring { change, point, child, out, begun: Instant::now() });
            }
            Err(error) => log(&format!("{}: the helper cannot be started: {error}", point.display())),
        }
    }

    /// Takes the answers of helpers that have ended.
    pub(super) fn hear_restored(&mut self) {
        let mut going_on = Vec::new();
        for mut one in std::mem::take(&mut self.restoring) {
            match one.answer() {
                None => going_on.push(one),
                Some(Answer::Toggled) => {
                    let text = format!("Remounted with {}, as it was.", one.change.was);
                    self.history.add(&one.point, "online", text, 0);
                    self.journal.restored(&one.change);
                    self.next_discover = Instant::now(); // it may be managed again
                }
                Some(other) => {
                    let why =
                        other.failed().map_or_else(|| format!("{other:?}"), |failed| failed.to_string());
                    let text = format!("{} could not be put back: {why}", one.change.was);
                    log(&format!("{}: {text}", one.point.display()));
                    self.history.add(&one.point, "failed", format!("{text}."), 0);
                    self.unrestorable.push(one.change); // at the end it is tried once more
                }
            }
        }
        self.restoring = going_on;
    }

    /// Puts back what is not managed, and waits for it, but not for ever.
    pub(super) fn restore_and_wait(&mut self) {
        self.unrestorable.clear();
        let text = std::fs::read(discover::mountinfo(&self.options.places)).unwrap_or_default();
        self.restore_unmanaged(&parse_mountinfo(&text));
        let begun = Instant::now();
        while !self.restoring.is_empty() && begun.elapsed() < WAIT_MAX {
            std::thread::sleep(Duration::from_millis(5));
            self.hear_restored();
        }
        for one in &self.restoring {
            log(&format!(
                "{}: {} could not be put back in {} s; the next daemon tries again",
                one.point.display(),
                one.change.was,
                WAIT_MAX.as_secs()
            ));
        }
    }
}
