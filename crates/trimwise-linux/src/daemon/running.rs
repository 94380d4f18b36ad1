//! Daemons that run on a host, found by the locks that they hold.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::host_root::HostRoot;
use crate::text::quoted_path;

/// Name of the lock in a daemon's run folder.
pub const RUN_LOCK: &str = "run.lock";

/// A running `trimwised`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    pub process: u32,
    /// The folder of its sockets; `None` if this user may not see which it is.
    pub run: Option<PathBuf>,
}

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.run {
            Some(run) => write!(f, "trimwised --run {}", quoted_path(run)),
            None => write!(f, "trimwised (process {})", self.process),
        }
    }
}

/// Finds the daemons whose sockets are not in `run`.
pub fn running_elsewhere(root: &HostRoot, run: &Path) -> Vec<Running> {
    let here = std::fs::canonicalize(run).ok();
    let mut found = running(root);
    found.retain(|one| {
        let there = one.run.as_ref().map(|run| root.path(run));
        there.is_none_or(|there| {
            there != run && std::fs::canonicalize(there).ok().is_none_or(|it| Some(it) != here)
        })
    });
    found
}

fn running(root: &HostRoot) -> Vec<Running> {
    let locks = root.whole_text("/proc/locks").unwrap_or_default();
    // A line of a holder, not of one who waits: `1: FLOCK  ADVISORY  WRITE 4711 fe:00:5705753 0 EOF`.
    let holder = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [_, "FLOCK", _, "WRITE", process, ..] => process.parse::<u32>().ok(),
        _ => None,
    };
    let holders: BTreeSet<u32> = locks.lines().filter_map(holder).collect();
    let is_ours = |process: &u32| root.text(format!("/proc/{process}/comm")).as_deref() == Some("trimwised");
    holders
        .into_iter()
        .filter(is_ours)
        .map(|process| Running { process, run: run_of(root, process) })
        .collect()
}

fn run_of(root: &HostRoot, process: u32) -> Option<PathBuf> {
    let files = format!("/proc/{process}/fd");
    let open = root.names(&files).into_iter().filter_map(|name| root.link(format!("{files}/{name}")));
    let lock = open.into_iter().find(|file| file.file_name().is_some_and(|name| name == RUN_LOCK))?;
    lock.parent().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use trimwise_testing::fake_host::Host;

    use super::*;

    #[test]
    fn a_daemon_is_found_by_its_lock_and_the_folder_by_the_open_file() {
        let host = Host::new("");
        let locks = "1: FLOCK  ADVISORY  WRITE 41 fe:00:1 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 44 fe:00:1 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 42 fe:00:2 0 EOF\n3: FLOCK  ADVISORY  WRITE 43 fe:00:3 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 41 fe:00:4 0 EOF\n5: POSIX  ADVISORY  WRITE 45 fe:00:5 0 EOF\n";
        host.file("proc/locks", locks);
        for (process, name) in
            [(41, "trimwised"), (42, "cron"), (43, "trimwised"), (44, "trimwised"), (45, "trimwised")]
        {
            host.file(&format!("proc/{process}/comm"), &format!("{name}\n"));
        }
        for (file, target) in [("3", "/var/lib/x/lock"), ("4", "/srv/my run/run.lock"), ("5", "socket:[7]")] {
            let files = host.0.path().join("proc/41/fd");
            std::fs::create_dir_all(&files).unwrap();
            std::os::unix::fs::symlink(target, files.join(file)).unwrap();
        }
        let root = HostRoot::new(host.0.path());
        let elsewhere = |run: &str| running_elsewhere(&root, &root.path(run));
        let unseen = Running { process: 43, run: None };
        let seen = Running { process: 41, run: Some("/srv/my run".into()) };
        assert_eq!(elsewhere("/run/trimwise"), [seen.clone(), unseen.clone()]);
        assert_eq!(elsewhere("/srv/my run"), std::slice::from_ref(&unseen));
        assert_eq!(
            [seen.to_string(), unseen.to_string()],
            ["trimwised --run '/srv/my run'", "trimwised (process 43)"]
        );
    }
}
