//! Is TRIM on here, and does it reach the drive?

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use trimwise::failure::{Failure, Mistake};
use trimwise_linux::doctor::{self, DoctorError, Report};
use trimwise_linux::host_root::HostRoot;

use crate::conclusion::{self, Conclusion};
use crate::daemon::absolute;
use crate::input::expect_mount;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorRequest {
    /// Mount point of the only file system to examine; `None`: all.
    pub mount: Option<PathBuf>,
    /// Root of the host; `None`: `/`.
    pub host_root: Option<PathBuf>,
    /// The folder of the daemon's sockets.
    pub run: PathBuf,
}

#[derive(Debug, Serialize)]
pub struct DoctorReport {
    pub trimwise: &'static str,
    /// Number of problems found.
    pub wrong: usize,
    #[serde(flatten)]
    pub report: Report,
    /// One for each file system, in the report's order.
    pub conclusions: Vec<Conclusion>,
}

impl DoctorReport {
    /// Returns the failure that counts the problems. Without problems, returns the failure that names unchecked mounts
    /// if they matter ([`Report::is_unchecked`]). A sound host with one mount that cannot be checked, such as a stick
    /// with NTFS, has no failure.
    pub fn failure(&self) -> Option<Failure> {
        let unchecked = &self.report.not_checked;
        let things = match self.wrong {
            0 if !self.report.is_unchecked => return None,
            0 if !unchecked.is_empty() => {
                let places: Vec<&str> = unchecked.iter().take(3).map(|finding| &*finding.place).collect();
                let more = if unchecked.len() > 3 { ", ..." } else { "" };
                return Some(Failure::Unchecked(format!("not checked: {}{more}", places.join(", "))));
            }
            0 => return Some(Failure::Unchecked("no file system on a block device is mounted".to_owned())),
            1 => "1 thing is".to_owned(),
            wrong => format!("{wrong} things are"),
        };
        Some(Failure::run(format!("{things} wrong")))
    }
}

/// Examines a host; nothing is sent to its drives.
///
/// # Errors
///
/// A [`Failure`] if the mount or the host's root does not exist. Problems are in the [answer](DoctorReport::failure).
pub fn run(request: &DoctorRequest) -> Result<DoctorReport, Failure> {
    request.mount.as_deref().map_or(Ok(()), |mount| expect_mount("mount", mount))?;
    let root = request.host_root.clone().map_or_else(HostRoot::default, HostRoot::new);
    // In a container, paths are the host's.
    let only = request.mount.as_deref().map(|mount| match request.host_root {
        Some(_) => Ok(mount.to_owned()),
        None => absolute(mount),
    });
    let report = doctor::examine(&root, &request.run, only.transpose()?.as_deref());
    let report = report.map_err(|error| match error {
        DoctorError::NoMount { .. } => Mistake::that(error.to_string()).fail(),
        DoctorError::Mounts(_) => match &request.host_root {
            Some(given) => Mistake::of("host_root", given.display())
                .because(error.to_string())
                .expected("the folder at which the host's / is mounted")
                .fail(),
            None => Failure::run(error),
        },
    })?;
    let conclusions = report.file_systems.iter().map(conclusion::of_diagnosis).collect();
    Ok(DoctorReport { trimwise: trimwise::VERSION, wrong: report.wrong(), report, conclusions })
}
