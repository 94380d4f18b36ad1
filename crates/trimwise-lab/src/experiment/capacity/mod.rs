//! Does a trimmed drive slow down when it is nearly full, and how much space should one leave free?
//!
//! "SSDs, TRIM, and Available Disk Space" (overclockers.com, 2010) filled an OCZ Vertex to 62.9 and to 87.3 %, trimmed
//! what was free, and timed a sequential write: 190.5 and 194 MB/s, no difference. Its readers doubted that this was
//! all there is to say: what of random writes, of a drive without TRIM, of space that is left unpartitioned, of collection
//! while the drive is idle, of the last tenth of the capacity, of a drive with another mapping? Each of these is a
//! *history* here: what is done to a new drive, and what is measured at its end.
//!
//! The source's own runs are made on the whole drive. Random overwrites until nothing changes any more would take too
//! long there; they are made on a drive with blocks of fewer pages (`lab::small`), which keeps all ratios.

mod claims;
mod history;
mod lab;
mod plots;

pub use claims::evaluate;
pub use history::{History, Measured, histories, run};

/// Its name on the command line.
pub const NAME: &str = "capacity";

/// The question it answers.
pub const QUESTION: &str = "How does free space bear on the speed of a drive, with and without TRIM?";

/// Repetitions. Only the places of random writes differ.
pub const REPS: u32 = 1;

/// The source's drive, its block mapping as sold with firmware 1.5.
const STATIC: &str = "vertex-60gb";

/// A page-mapped drive of the same flash.
const PAGE: &str = "page-60gb-2009";

/// The drives that are compared. A compressing one joins by its name.
pub const DEVICES: [&str; 2] = [STATIC, PAGE];

/// The Vertex's firmware: without TRIM and collection at idle, with one of them, with both.
const FIRMWARES: [&str; 4] = ["1.3", "1.4", "1.41", "1.5"];

/// How a drive is called in a plot.
fn label(device: &str) -> &str {
    match device {
        STATIC => "block mapping",
        PAGE => "page mapping",
        other => other,
    }
}
