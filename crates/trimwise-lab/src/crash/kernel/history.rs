//! The contents that each file may have at a cut, from the log of the operations.
//!
//! A file is one identity from its creation to its removal, whatever its names. Its operations come from one task, so
//! they have an order:
//!
//! - An operation must be in effect if it had ended when a successful fsync, fdatasync or syncfs of the file began, and
//!   that call returned before the cut.
//! - An operation that began later, but before the cut, may be there completely, in part, or not at all.
//! - An operation that began after the cut cannot be there.
//!
//! Besides the data, fsync promises that the file is found under the name that it had, even if it is new, and after a
//! rename before the fsync, under the new name. POSIX requires less. ext4, XFS and Btrfs keep this promise: see
//! docs/model.md, "Power cuts on real kernels".

use std::collections::BTreeMap;

use trimwise::workload::tagged::{Logged, Operation};

use super::expected::{Change, Expected};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Naming {
    Named(String),
    Moved(String),
    /// Unlinked, or another file took its name.
    Gone,
}

#[derive(Clone, Debug)]
struct At<T> {
    begin: usize,
    end: usize,
    /// True if the effect is unknown: a direct write that failed.
    uncertain: bool,
    what: T,
}

#[derive(Clone, Debug, Default)]
struct File {
    changes: Vec<At<Change>>,
    names: Vec<At<Naming>>,
    syncs: Vec<At<Sync>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    /// By fsync(2) or syncfs(2).
    All,
    Data,
}

#[derive(Debug, Default)]
pub(super) struct History {
    files: Vec<File>,
    syncs: Vec<At<Sync>>,
    /// Reads that returned wrong contents: the mark after each, and the error.
    pub(super) wrong_reads: Vec<(usize, super::Broken)>,
}

impl History {
    pub fn of(log: &[Logged]) -> Self {
        let mut history = Self::default();
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        let mut log: Vec<&Logged> = log.iter().collect();
        // Operations on one name come from one task, one after another.
        log.sort_by_key(|logged| logged.begin);
        for logged in log {
            history.add(logged, &mut names);
        }
        history
    }

    fn add<'a>(&mut self, logged: &'a Logged, names: &mut BTreeMap<&'a str, usize>) {
        let failed = logged.error.is_some();
        let at = |uncertain| At { begin: logged.begin, end: logged.end, uncertain, what: () };
        match &logged.operation {
            Operation::Create { path, truncates } if !failed => match names.get(path.as_str()) {
                Some(&file) if *truncates => {
                    self.files[file].changes.push(at(false).with(Change::Truncate { length: 0 }));
                }
                Some(_) => {}
                None => {
                    names.insert(path, self.files.len());
                    let named = at(false).with(Naming::Named(path.clone()));
                    self.files.push(File { names: vec![named], ..File::default() });
                }
            },
            Operation::Write { path, offset_bytes: Some(offset), length_bytes, direct } => {
                let Some(&file) = names.get(path.as_str()) else { return };
                // A failed operation has the length that it reported before. A direct write may have written more.
                let length = *length_bytes;
                let write = Change::Write { operation: logged.id, offset: *offset, length };
                if length > 0 {
                    self.files[file].changes.push(at(false).with(write));
                }
                if failed && *direct {
                    let write = Change::Write { operation: logged.id, offset: *offset, length: 1 << 20 };
                    self.files[file].changes.push(at(true).with(write));
                }
            }
            Operation::Truncate { path, length_bytes: length } if !failed => {
                self.change(names, path, at(false).with(Change::Truncate { length: *length }));
            }
            Operation::Punch { path, offset_bytes, length_bytes } => {
                let (offset, length) = (*offset_bytes, *length_bytes);
                self.change(names, path, at(failed).with(Change::Punch { offset, length }));
            }
            Operation::Fsync { path, data_only } if !failed => {
                if let Some(&file) = names.get(path.as_str()) {
                    let sync = if *data_only { Sync::Data } else { Sync::All };
                    self.files[file].syncs.push(at(false).with(sync));
                }
            }
            Operation::Sync if !failed => self.syncs.push(at(false).with(Sync::All)),
            Operation::Rename { from, to } if !failed && from != to => {
                let Some(file) = names.remove(from.as_str()) else { return };
                if let Some(replaced) = names.insert(to, file) {
                    self.files[replaced].names.push(at(false).with(Naming::Gone));
                }
                self.files[file].names.push(at(false).with(Naming::Moved(to.clone())));
            }
            Operation::Unlink { path } if !failed => {
                if let Some(file) = names.remove(path.as_str()) {
                    self.files[file].names.push(at(false).with(Naming::Gone));
                }
            }
            Operation::Read { path } if !failed => {
                if let Some(&file) = names.get(path.as_str()) {
                    let now = self.expected_of(&self.files[file], logged.end, Some(logged.begin));
                    let wrong = super::check::content(path, &now, &logged.found);
                    self.wrong_reads.extend(wrong.map(|wrong| (logged.end, wrong)));
                }
            }
            _ => {}
        }
    }

    fn change(&mut self, names: &BTreeMap<&str, usize>, path: &str, change: At<Change>) {
        if let Some(&file) = names.get(path) {
            self.files[file].changes.push(change);
        }
    }

    /// Returns the expectations of every file after a cut before the mark with this number. `synced` makes everything
    /// that ended before it durable.
    pub fn at(&self, now: usize, synced: Option<usize>) -> Vec<Expected> {
        self.files.iter().map(|file| self.expected_of(file, now, synced)).collect()
    }

    fn expected_of(&self, file: &File, now: usize, synced: Option<usize>) -> Expected {
        let returned = file.syncs.iter().chain(&self.syncs).filter(|sync| sync.end < now);
        let of_names = returned.clone().filter(|sync| sync.what == Sync::All);
        let promise = returned.map(|sync| sync.begin).max().max(synced);
        let promise_of_name = of_names.map(|sync| sync.begin).max().max(synced);
        let promised = |end: usize| promise.is_some_and(|at| end < at);
        let mut expected = Expected::default();
        for change in file.changes.iter().filter(|change| change.begin < now) {
            if promised(change.end) && !change.uncertain {
                expected.base.apply(change.what);
            } else {
                expected.optional.push(change.what);
            }
        }
        let mut may_be_gone = false;
        for naming in file.names.iter().filter(|naming| naming.begin < now) {
            let is_promised = promise_of_name.is_some_and(|at| naming.end < at);
            expected.promised |= promised(naming.end);
            match &naming.what {
                Naming::Named(name) | Naming::Moved(name) => {
                    if is_promised {
                        expected.names.clear();
                    }
                    expected.names.push(name.clone());
                }
                Naming::Gone => {
                    expected.is_gone |= is_promised;
                    may_be_gone = true;
                }
            }
        }
        expected.must_exist = expected.promised && !may_be_gone;
        expected
    }
}

impl At<()> {
    fn with<T>(self, what: T) -> At<T> {
        At { begin: self.begin, end: self.end, uncertain: self.uncertain, what }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use trimwise::workload::tagged::bytes::{attribute, written};

    use super::super::Broken;
    use super::super::expected::Content;
    use super::*;

    /// Creates, writes and syncs a file, overwrites a part, renames it, syncs, unlinks it and syncs. The operation with
    /// number n lies between the marks 2n - 2 and 2n - 1.
    pub(in crate::crash::kernel) fn log() -> Vec<Logged> {
        let (a, b) = (|| "a".to_owned(), || "b".to_owned());
        let write = |offset, length_bytes| Operation::Write {
            path: a(),
            offset_bytes: Some(offset),
            length_bytes,
            direct: false,
        };
        let operations = [
            Operation::Create { path: a(), truncates: false },
            write(0, 5000),
            Operation::Fsync { path: a(), data_only: true },
            write(1000, 100),
            Operation::Rename { from: a(), to: b() },
            Operation::Fsync { path: b(), data_only: false },
            Operation::Unlink { path: b() },
            Operation::Sync,
        ];
        let logged = |(index, operation)| Logged {
            id: index as u32 + 1,
            operation,
            begin: 2 * index,
            end: 2 * index + 1,
            error: None,
            found: Vec::new(),
        };
        operations.into_iter().enumerate().map(logged).collect()
    }

    #[test]
    fn a_data_sync_makes_no_rename_durable() {
        let mut log = log();
        let Operation::Fsync { data_only, .. } = &mut log[5].operation else { panic!("not a sync") };
        *data_only = true;
        let expected = History::of(&log).at(12, None);
        assert_eq!(expected[0].names, ["a", "b"]);
        assert!(expected[0].must_exist && expected[0].optional.is_empty(), "{expected:?}");
    }

    /// A direct write that failed may have written more than it reported, and no sync can promise which.
    #[test]
    fn a_sync_promises_nothing_about_what_failed() {
        let mut log = log();
        log.truncate(3);
        let failed = |id: u32, operation| Logged {
            id,
            operation,
            begin: 2 * id as usize - 2,
            end: 2 * id as usize - 1,
            error: Some("Input/output error".to_owned()),
            found: Vec::new(),
        };
        let (path, begun) = (|| "a".to_owned(), Some(8192));
        let write = Operation::Write { path: path(), offset_bytes: begun, length_bytes: 512, direct: true };
        log.push(failed(4, write));
        log.push(failed(5, Operation::Punch { path: path(), offset_bytes: 0, length_bytes: 4096 }));
        let sync = Operation::Fsync { path: path(), data_only: false };
        log.push(Logged { error: None, ..failed(6, sync) });
        let expected = History::of(&log).at(12, None);
        assert_eq!(expected[0].base.pieces, [(0, 5000, 2), (8192, 8704, 4)]);
        let more = Change::Write { operation: 4, offset: 8192, length: 1 << 20 };
        assert_eq!(expected[0].optional, [more, Change::Punch { offset: 0, length: 4096 }]);
    }

    #[test]
    fn content_follows_writes_truncations_and_holes() {
        let mut content = Content::default();
        content.apply(Change::Write { operation: 1, offset: 0, length: 100 });
        content.apply(Change::Write { operation: 2, offset: 40, length: 20 });
        content.apply(Change::Punch { offset: 90, length: 50 });
        assert_eq!(content.pieces, [(0, 40, 1), (40, 60, 2), (60, 90, 1)]);
        content.apply(Change::Truncate { length: 50 });
        content.apply(Change::Truncate { length: 80 });
        assert_eq!((content.length, content.pieces), (80, vec![(0, 40, 1), (40, 50, 2)]));
    }

    #[test]
    fn a_read_that_finds_something_else_is_reported() {
        let read = |bytes: Vec<u8>| {
            let mut log = log();
            log.truncate(2);
            let operation = Operation::Read { path: "a".to_owned() };
            log.push(Logged { id: 3, operation, begin: 4, end: 5, error: None, found: attribute(&bytes) });
            History::of(&log).wrong_reads
        };
        assert_eq!(read(written(2, 0, 5000)), []);
        let mut stale = written(2, 0, 5000);
        stale[16..32].fill(0);
        assert!(matches!(&read(stale)[..], [(5, Broken::WrongBytes { offset_bytes: 16, .. })]));
    }
}
