//! Kernels that can be built by version alone, and the kernels that they represent.

use trimwise_linux::kernel_name::PACKAGED;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series {
    /// Such as `6.1`.
    pub version: &'static str,
    pub package: &'static str,
    /// Meaning of a result on this kernel for kernels in general.
    pub stands_for: &'static str,
    /// The suites that have it; the newest package of all of them is taken.
    pub(super) suites: &'static [&'static str],
    /// Lines that `make` prints for our configuration, as counted once; used only as the end of the progress bar.
    pub(super) make_lines: u64,
}

/// The kernels with a known source package, oldest first.
///
/// The versions represented come from fs/jbd2 and fs/ext4/mballoc.c: `ext4_process_freed_data` as the commit's callback
/// up to 5.14, `ext4_discard_work` since 5.15.
pub const CATALOGUE: [Series; 4] = [
    Series {
        version: PACKAGED[0],
        package: "linux-source-5.10",
        stands_for: "last long-term series in which ext4 discards inside the commit: all submitted together, and waited \
                     for at its end (4.4, which papers used, sent them one at a time)",
        suites: &["debian-security bullseye-security"],
        make_lines: 1202,
    },
    Series {
        version: PACKAGED[1],
        package: "linux-source-6.1",
        stands_for: "ext4 discards after the commit: one worker, one discard at a time",
        suites: &["debian bookworm", "debian-security bookworm-security"],
        make_lines: 1250,
    },
    Series {
        version: PACKAGED[2],
        package: "linux-source-6.12",
        stands_for: "like 6.1; Debian 13's kernel",
        suites: &["debian-security bookworm-security"],
        make_lines: 1380,
    },
    Series {
        version: PACKAGED[3],
        package: "linux-source-7.3",
        stands_for: "like 6.1; Debian 13's backports; its guests run by seccomp instead of ptrace",
        suites: &["debian trixie-backports"],
        make_lines: 1400,
    },
];

pub(super) fn series(version: &str) -> Option<&'static Series> {
    CATALOGUE.iter().find(|series| series.version == version)
}
