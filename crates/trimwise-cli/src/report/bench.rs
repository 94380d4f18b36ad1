//! The report of `bench`.

use crate::bench::BenchReport;
use crate::failure::Failure;

/// The whole file.
pub fn html(_report: &BenchReport) -> Result<String, Failure> {
    Ok(String::new())
}
