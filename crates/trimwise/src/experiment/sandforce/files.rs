//! The reader's question.
use crate::ssd::{Faults, SsdConfig};
#[derive(Clone, Debug)]
pub struct FilesSetting {}
impl FilesSetting {
    pub fn of(_ssd: &SsdConfig, _faults: Faults) -> Self {
        Self {}
    }
}
