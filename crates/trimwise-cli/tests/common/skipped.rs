//! How a test says that it skips.

use std::io::Write as _;

/// Says so past the test harness, which would keep it to itself.
pub fn skipped(why: &str) {
    std::io::stderr().write_all(format!("SKIPPED: {why}\n").as_bytes()).unwrap();
}
