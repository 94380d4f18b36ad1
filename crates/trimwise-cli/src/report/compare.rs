//! stub
use crate::{compare::Comparison, failure::Failure};
/// stub
pub fn html(_: &Comparison) -> Result<String, Failure> {
    Ok(String::new())
}
