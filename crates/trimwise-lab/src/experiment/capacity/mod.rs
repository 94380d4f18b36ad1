//! Does a trimmed drive slow down when it is nearly full, and how much space should one leave free?
//!
//! "SSDs, TRIM, and Available Disk Space" (overclockers.com, 2010) filled an OCZ Vertex to 62.9 and to 87.3 %, trimmed
//! the free space, and timed a sequential write: 190.5 and 194 MB/s, no difference. Its readers doubted that this was
//! the whole story: what about random writes, a drive without TRIM, unpartitioned space, idle-time collection, the last
//! tenth of the capacity, a drive with another mapping? Each of these is a *history* here: work on a new drive, and a
//! measurement at the end.
//!
//! The source's own runs use the whole drive. Random overwrites until nothing changes any more would take too long
//! there; they use a drive with blocks of fewer pages (`lab::small`), which keeps all ratios.

mod claims;
mod history;
mod lab;
mod plots;

pub use claims::evaluate;
pub use history::{History, Measured, histories, run};

use super::{Experiment, Host};

/// The experiment. Repetitions differ only in the places of random writes, so one run of a history stands for all.
pub static EXPERIMENT: Experiment = Experiment {
    name: "capacity",
    question: "How does free space affect the speed of a drive, with and without TRIM?",
    reps: 1,
    claims: include_str!("../../../../../experiments/capacity/claims.toml"),
    host: Host::Model,
    run: |request| {
        let histories = histories();
        let runs = request.repeat(&DEVICES, &histories, |history, rep| {
            run(history, request.seed.wrapping_add(rep.into()))
        })?;
        let measured = Measured::new(histories.into_iter().zip(runs));
        Ok(evaluate(&measured, request.reps, request.seed))
    },
};

/// The source's drive, with its block mapping as sold with firmware 1.5.
const STATIC: &str = "vertex-60gb";

/// A page-mapped drive of the same flash.
const PAGE: &str = "page-60gb-2009";

/// The drives to compare. A compressing drive can be added by name.
pub const DEVICES: [&str; 2] = [STATIC, PAGE];

/// The Vertex's firmware without TRIM and idle-time collection, with one of them, and with both.
const FIRMWARES: [&str; 4] = ["1.3", "1.4", "1.41", "1.5"];

fn label(device: &str) -> &str {
    match device {
        STATIC => "block mapping",
        PAGE => "page mapping",
        other => other,
    }
}
