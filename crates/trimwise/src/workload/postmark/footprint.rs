//! What a run needs of a file system, known before it begins.
//!
//! The sequence of operations does not depend on the file system, so going through it without doing it tells exactly
//! how much room it takes. A run on a real directory is refused by this before it has made anything.

use super::config::PostmarkConfig;
use super::script::{Phase, Script, Step};
use crate::units::Bytes;

/// What a run needs of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// The most that its files occupy at one time, each rounded up to blocks of 4 KiB.
    pub bytes_max: Bytes,
    /// The most files that exist at one time.
    pub files_max: u64,
    /// How many names it uses: files are called 1 to this.
    pub names: u64,
}

/// What the pool of files needs at least, known at once and without a draw.
pub fn footprint_min(config: &PostmarkConfig) -> Footprint {
    let files = u64::from(config.number);
    let units = Bytes(config.size_low.into()).units_ceil();
    Footprint { bytes_max: Bytes::from_units(files * units), files_max: files, names: files }
}

/// What a run of `config` will need: exact, because the sequence of operations is. It is gone through once, which
/// takes milliseconds for 100,000 transactions, and seconds for files of a gigabyte or a billion transactions.
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
            // From here on files only go.
            Step::EndOf(Phase::Transactions) => break,
            Step::Read { .. } | Step::EndOf(_) => {}
        }
        most.bytes_max = most.bytes_max.max(Bytes::from_units(units));
        most.files_max = most.files_max.max(script.counts().created - script.counts().deleted);
    }
    most.names = script.counts().created;
    most
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

    /// Sizes told by the steps themselves, followed file by file.
    #[test]
    fn steps_tell_the_sizes_of_their_files() {
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
