//! The space and files that a run needs, known before it starts.
//!
//! The sequence of operations does not depend on the file system, so stepping through it without executing it shows
//! exactly how much space it takes. This check refuses a run on a real directory before it has created anything.

use super::config::PostmarkConfig;
use super::script::{Phase, Script, Step};
use crate::units::Bytes;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Maximum space of its files at one time, each rounded up to blocks of 4 KiB.
    pub bytes_max: Bytes,
    pub files_max: u64,
    /// Number of names used: files are named 1 to this.
    pub names: u64,
}

/// Computes the minimum needs of the pool of files, without drawing random numbers.
pub fn footprint_min(config: &PostmarkConfig) -> Footprint {
    let files = u64::from(config.number);
    let units = Bytes(config.size_low.into()).units_ceil();
    Footprint { bytes_max: Bytes::from_units(files * units), files_max: files, names: files }
}

/// Computes the exact needs of a run of `config`. Steps through the sequence of operations once, which takes
/// milliseconds for 100,000 transactions, and seconds for files of a gigabyte or a billion transactions.
pub fn footprint(config: &PostmarkConfig) -> Footprint {
    let mut script = Script::without_data(config);
    let (mut units, mut most) = (0u64, Footprint::default());
    let units_of = |bytes: u32| Bytes(bytes.into()).units_ceil();
    while let Some(step) = script.next() {
        match step {
            Step::Create { bytes, .. } => units += units_of(bytes),
            Step::Append { bytes, size_before, .. } => {
                units += units_of(size_before + bytes) - units_of(size_before);
            }
            Step::Delete { bytes, .. } => units -= units_of(bytes),
            // From here on files are only deleted.
            Step::EndOf(Phase::Transactions) => break,
            Step::Read { .. } | Step::EndOf(_) => {}
        }
        most.bytes_max = most.bytes_max.max(Bytes::from_units(units));
        most.files_max = most.files_max.max(script.counts().created - script.counts().deleted);
    }
    most.names = script.counts().created;
    most
}

/// Returns the number of creations, reads, appends and deletions of a run.
pub fn operations(config: &PostmarkConfig) -> u64 {
    let mut script = Script::without_data(config);
    let steps = std::iter::from_fn(|| script.next());
    steps.filter(|step| !matches!(step, Step::EndOf(_))).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_footprint_is_the_peak_in_whole_blocks() {
        let fixed = PostmarkConfig {
            number: 10,
            size_low: 5000,
            size_high: 5000,
            bias_create: Some(10),
            ..PostmarkConfig::default()
        };
        // Ten more files fit into the table, each of two blocks.
        let expected = Footprint { bytes_max: Bytes(20 * 8192), files_max: 20, names: 20 };
        assert_eq!(footprint(&fixed), expected);
        assert_eq!(
            footprint_min(&fixed),
            Footprint { bytes_max: Bytes(10 * 8192), files_max: 10, names: 10 }
        );
        let shrinking = PostmarkConfig { bias_create: Some(0), ..fixed };
        assert_eq!(footprint(&shrinking).bytes_max, Bytes(10 * 8192));
    }

    /// Follows the sizes in the steps file by file.
    #[test]
    fn steps_carry_the_sizes_of_their_files() {
        let config = PostmarkConfig { number: 20, transactions: 300, ..PostmarkConfig::default() };
        let mut sizes = std::collections::BTreeMap::new();
        let (mut units, mut units_max) = (0, 0);
        for step in Script::without_data(&config) {
            let (file, expected) = match step {
                Step::Create { file, bytes } => (file, sizes.insert(file.number, bytes).map(|_| 0)),
                Step::Append { file, bytes, size_before } => {
                    (file, sizes.insert(file.number, size_before + bytes).filter(|&b| b == size_before))
                }
                Step::Read { file, bytes } => {
                    (file, sizes.get(&file.number).copied().filter(|&b| b == bytes))
                }
                Step::Delete { file, bytes } => (file, sizes.remove(&file.number).filter(|&b| b == bytes)),
                Step::EndOf(_) => continue,
            };
            assert_eq!(expected.is_none(), matches!(step, Step::Create { .. }), "{step:?} of {file:?}");
            units = sizes.values().map(|&bytes| Bytes(bytes.into()).units_ceil()).sum();
            units_max = units_max.max(units);
        }
        assert_eq!(units, 0, "files are left");
        assert_eq!(footprint(&config).bytes_max, Bytes::from_units(units_max));
    }
}
