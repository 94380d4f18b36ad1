use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use trimwise::live::LiveHost;

use super::Service;
use crate::frees::Watcher;
use crate::managed::Managed;
use crate::metrics::listen::Endpoint;
use trimwise_linux::ioctl::signals::Told;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// A request to stop: SIGTERM or SIGINT.
    pub end: Option<Told>,
    /// A request to reload: SIGHUP.
    pub hang_up: bool,
    pub mounts: bool,
    pub frees: bool,
    pub clients: bool,
    /// Something happened to the files that keep other daemons off.
    pub claims: bool,
}

impl Service {
    pub(super) fn wait(&mut self) -> io::Result<Events> {
        let now = Instant::now();
        let timeout = self.timeout(now);
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(1),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        let (ready, is_end, workers) = {
            let mut waits = vec![
                // The kernel signals a changed list by an exceptional condition (proc_pid_mounts(5)).
                PollFd::new(&self.mountinfo, PollFlags::PRI),
                PollFd::new(&self.end, PollFlags::IN),
                PollFd::new(&self.hang_up, PollFlags::IN),
            ];
            waits.extend(self.managed.values().filter_map(Managed::waits));
            let before_frees = waits.len();
            let watcher = self.watching.watcher.iter().flat_map(Watcher::waits);
            waits.extend(watcher.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            let before_clients = waits.len();
            waits.extend(self.server.iter().flat_map(|server| server.waits(now)));
            let before_workers = waits.len();
            waits.extend(self.looking.waits().chain(self.state.waits()).chain(self.lending.worker.waits()));
            let workers = before_workers..waits.len();
            waits.extend(self.metrics.iter().flat_map(Endpoint::waits));
            let before_claims = waits.len();
            waits.extend(self.claims.waits());
            match poll(&mut waits, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let is_ready = |wait: &PollFd<'_>| !wait.revents().is_empty();
            let events = Events {
                end: None,
                hang_up: is_ready(&waits[2]),
                mounts: waits[0].revents().contains(PollFlags::PRI),
                frees: waits[before_frees..before_clients].iter().any(is_ready),
                clients: waits[before_clients..before_workers].iter().any(is_ready),
                claims: waits[before_claims..].iter().any(is_ready),
            };
            (events, is_ready(&waits[1]), waits[workers].iter().map(is_ready).collect::<Vec<_>>())
        };
        let mut workers = workers.into_iter();
        self.looking.polled(&mut workers);
        self.state.polled(&mut workers);
        self.lending.worker.polled(&mut workers);
        // System calls that find nothing are most of what an idle daemon costs.
        Ok(Events {
            end: if is_end { told(&mut self.end) } else { None },
            hang_up: ready.hang_up && drained(&mut self.hang_up),
            ..ready
        })
    }

    /// Time until the next sample, or until a pause ends.
    fn timeout(&self, now: Instant) -> Duration {
        let left = self.sample_at().saturating_duration_since(now);
        let left =
            self.server.as_ref().and_then(|server| server.work_in(now)).map_or(left, |work| left.min(work));
        let left = self.watching.watcher.as_ref().map_or(left, |watcher| left.min(watcher.rest_left()));
        let due = self.looking.due_in(now).into_iter().chain(self.state.due_in(now));
        let left = due.fold(left, Duration::min);
        let now = self.time_of(now);
        let rests = self.managed.values().filter_map(|one| one.live.as_ref().and_then(LiveHost::next_at));
        rests.fold(left, |least, at| least.min(Duration::from_nanos(at.since(now).as_nanos())))
    }
}

/// Reads the first signal that a handler told of.
fn told(socket: &mut UnixStream) -> Option<Told> {
    let mut bytes = [0; Told::BYTES];
    socket.read_exact(&mut bytes).ok().map(|()| Told::read(bytes))
}

/// Reads all bytes that a signal handler wrote. Returns true if there were any.
fn drained(pipe: &mut UnixStream) -> bool {
    let mut buffer = [0; 64];
    let mut any = false;
    while matches!(pipe.read(&mut buffer), Ok(1..)) {
        any = true;
    }
    any
}
