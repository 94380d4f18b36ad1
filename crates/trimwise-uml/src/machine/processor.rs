//! Keeps each run on a processor of its own.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processor that a run keeps to; concurrent runs use different ones, even those of other commands.
pub(super) struct Turn {
    before: Option<CpuSet>,
    /// A socket whose unique name marks the processor as taken. The host releases it when this process ends.
    _taken: Option<UnixDatagram>,
}

impl Turn {
    /// Number of runs per processor that are told apart; further ones take any processor.
    const RUNS_MAX: usize = 64;

    /// Binds this thread, and the processes that it starts, to the processor with the fewest runs.
    pub(super) fn take(name: &str) -> Self {
        let before = sched_getaffinity(None).ok();
        let allowed = || (0..CpuSet::MAX_CPU).filter(|&cpu| before.is_some_and(|set| set.is_set(cpu)));
        let take = |(run, cpu)| {
            let address = SocketAddr::from_abstract_name(format!("{name}-{cpu}-{run}")).ok()?;
            Some((cpu, UnixDatagram::bind_addr(&address).ok()?))
        };
        let mut runs = (0..Self::RUNS_MAX).flat_map(|run| allowed().map(move |cpu| (run, cpu)));
        let taken = runs.find_map(take);
        if let Some((cpu, _)) = taken {
            let mut one = CpuSet::new();
            one.set(cpu);
            // If the host forbids it, the run is only slower.
            let _ = sched_setaffinity(None, &one);
        }
        Self { before, _taken: taken.map(|(_, socket)| socket) }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = sched_setaffinity(None, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;

    /// Regression test: runs of two commands kept to one processor, while another was idle.
    #[test]
    fn regression_runs_of_two_commands_have_different_processors() {
        const HOLD: &str = "TRIMWISE_TEST_HOLD";
        if let Ok(name) = std::env::var(HOLD) {
            // The other command: takes a processor, and keeps it until it is killed.
            let _turn = Turn::take(&name);
            println!("cpu {}", allowed()[0]);
            std::thread::sleep(Duration::from_secs(3600));
        }
        if allowed().len() < 2 {
            return; // with one processor there is no choice
        }
        let name = format!("trimwise-test-{}", std::process::id());
        let test = "machine::processor::tests::regression_runs_of_two_commands_have_different_processors";
        let mut other = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(HOLD, &name)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = io::BufRead::lines(io::BufReader::new(other.stdout.take().unwrap()));
        let theirs = lines.find_map(|line| line.unwrap().split("cpu ").nth(1).map(str::to_owned));
        let turn = Turn::take(&name);
        let ours = allowed();
        drop(turn);
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(ours.len(), 1);
        assert_ne!(theirs, Some(ours[0].to_string()));
        assert!(allowed().len() > 1, "the thread has its processors back");
    }

    fn allowed() -> Vec<usize> {
        let set = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
    }
}
