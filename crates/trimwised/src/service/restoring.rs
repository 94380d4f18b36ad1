//! Restores changed mount options, through helpers for which the loop does not wait.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{HELPERS_MAX, Service};
use crate::discover::Whereabouts;
use crate::helper::{Answer, Request, Task};
use crate::journal::Change;
use crate::managed::{Doing, Job};
use crate::speak::warn;

/// Time to wait for restored options at start and stop, less than a service manager's timeout. The next daemon restores
/// the rest.
const WAIT_MAX: Duration = Duration::from_secs(15);

pub(crate) struct Restoring {
    change: Change,
    point: PathBuf,
    job: Job,
}

impl Service {
    /// Starts to restore the options of all mounted file systems that are not managed.
    pub(super) fn restore_unmanaged(&mut self, changed: Vec<(Change, Whereabouts)>) {
        if self.options.dry_run {
            return;
        }
        self.restoring_later.clear();
        for (change, whereabouts) in changed {
            if !self.journal.changes().contains(&change) {
                continue;
            }
            match whereabouts {
                Whereabouts::Gone => self.journal.restored(&change),
                // The option is restored when the mount is seen again, by the next daemon if need be.
                Whereabouts::Hidden => {}
                Whereabouts::At(_)
                    if self.managed.contains_key(&change.numbers)
                        || self.is_restoring(change.numbers)
                        || self.unrestorable.contains(&change) => {}
                // Another daemon that manages it now knows the old value too.
                Whereabouts::At(point) if self.why_refused(change.numbers, &point).is_some() => {}
                Whereabouts::At(_) if self.claims.is_settled(&change) => self.journal.restored(&change),
                Whereabouts::At(point) if self.helpers_at_work() < HELPERS_MAX => self.restore(change, point),
                Whereabouts::At(_) => drop(self.restoring_later.insert(change.numbers)),
            }
        }
    }

    /// Returns true if an option of this file system is being restored; until then it is not managed.
    pub(super) fn is_restoring(&self, numbers: (u32, u32)) -> bool {
        self.restoring_later.contains(&numbers)
            || self.restoring.iter().any(|one| one.change.numbers == numbers)
    }

    fn restore(&mut self, change: Change, point: PathBuf) {
        let request = Request {
            path: self.options.places.host.path(&point),
            numbers: change.numbers,
            task: Task::Toggle {
                option: change.was.clone(),
                before: change.others.clone(),
                session: change.session,
            },
        };
        let doing = Doing::Toggling { on: change.was != "nodiscard" };
        match Job::begin(&self.options.program, doing, request, &mut self.idle) {
            Ok(job) => self.restoring.push(Restoring { change, point, job }),
            Err(error) => {
                warn(&format!("{}: the helper cannot be started: {error}", point.display()));
                self.unrestorable.push(change); // retried on exit
            }
        }
    }

    pub(super) fn hear_restored(&mut self) {
        let before = std::mem::take(&mut self.restoring);
        let (begun, mut going_on) = (before.len(), Vec::new());
        for mut one in before {
            let answer = if one.job.hear(&mut self.left) {
                one.job.answer(&mut self.left, &mut self.idle).1
            } else if let Some(message) = one.job.give_up_behind(self.options.patience) {
                one.job.leave(&mut self.left);
                Answer::Again { message }
            } else {
                going_on.push(one);
                continue;
            };
            match answer {
                Answer::Toggled { differing, .. } => {
                    let was = &one.change.was;
                    let text = if !differing.is_empty() {
                        let text = format!(
                            "Remounted with {was}, but not all is as it was when the daemon first changed it: {}",
                            differing.join(", ")
                        );
                        warn(&format!("{}: {text}", one.point.display()));
                        text + "."
                    } else if one.change.others.is_some() {
                        format!("Remounted with {was}, as it was.")
                    } else {
                        format!("Remounted with {was}.") // nobody noted the others
                    };
                    self.history.add(&one.point, "online", text, 0);
                    self.journal.restored(&one.change);
                    self.claims.settle(&one.change);
                }
                other => {
                    let why =
                        other.failed().map_or_else(|| format!("{other:?}"), |failed| failed.to_string());
                    let text = format!("{} could not be put back: {why}", one.change.was);
                    warn(&format!("{}: {text}", one.point.display()));
                    self.history.add(&one.point, "failed", format!("{text}."), 0);
                    self.unrestorable.push(one.change); // retried on exit
                }
            }
        }
        if going_on.len() < begun {
            self.looking.discover_now(); // it may be managed again, or the next one restored
        }
        self.restoring = going_on;
    }

    /// Restores options of unmanaged file systems, and waits for a limited time.
    pub(super) fn restore_and_wait(&mut self) {
        self.unrestorable.clear();
        let begun = Instant::now();
        self.discover_and_wait();
        while !self.restoring.is_empty() && begun.elapsed() < WAIT_MAX {
            std::thread::sleep(Duration::from_millis(5));
            self.hear_restored();
            if self.helpers_at_work() < HELPERS_MAX && !self.restoring_later.is_empty() {
                self.discover_and_wait();
            }
        }
        for one in &self.restoring {
            warn(&format!(
                "{}: {} could not be put back in {} s; the next daemon tries again",
                one.point.display(),
                one.change.was,
                WAIT_MAX.as_secs()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::END_MAX;

    /// Returns the value of a key in the systemd unit.
    fn of_unit(key: &str) -> &'static str {
        let unit = include_str!("../../../../packaging/trimwised.service");
        unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).unwrap_or_default()
    }

    #[test]
    fn regression_the_unit_waits_longer_than_stopping_takes_and_a_broken_configuration_is_not_restarted() {
        let seconds = of_unit("TimeoutStopSec").parse().map(Duration::from_secs).unwrap();
        // Twice that, for disks that are slow to write the state files.
        assert!(seconds >= (WAIT_MAX + END_MAX) * 2, "{seconds:?}");
        assert_eq!(of_unit("RestartPreventExitStatus"), "2");
    }
}
