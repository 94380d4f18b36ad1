//! stub
use crate::failure::Failure;
use trimwise::experiment::result::ExperimentResult;
/// stub
pub fn html(_: &[ExperimentResult], _: &str) -> Result<String, Failure> {
    Ok(String::new())
}
