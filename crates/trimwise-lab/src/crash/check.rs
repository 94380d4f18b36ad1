//! Checks that must hold for a file system after any cut.

use std::collections::BTreeMap;

use trimwise::fs::witness::{InodeImage, Promise, Record, Removal, TRIMMED};
use trimwise::units::{Lpn, UnitRange};

use super::power::Platter;
use super::recovery::Recovered;
use super::violation::Broken;

/// Promises that the host had made by the time of the cut.
#[derive(Default)]
pub struct Told<'a> {
    /// By inode: the newest promise that is still in effect.
    pub promises: BTreeMap<u32, &'a Promise>,
    pub gone: Vec<&'a Removal>,
}

pub fn check(
    platter: &Platter<'_>,
    record: &Record,
    found: &Recovered<'_>,
    told: &Told<'_>,
    broken: &mut Vec<Broken>,
) {
    blocks_have_one_owner(found, broken);
    for (path, inode) in &found.files {
        if let Some(image) = found.inodes.get(inode) {
            file_holds_its_own(platter, record, path, image, broken);
        }
    }
    for promise in told.promises.values() {
        promise_is_kept(platter, record, found, promise, broken);
    }
    for removal in &told.gone {
        let inode = found.files.get(&*removal.path);
        let image = inode.and_then(|inode| found.inodes.get(inode));
        if image.is_some_and(|i| (i.inode, i.generation) == (removal.inode, removal.generation)) {
            broken.push(Broken::RemovedFileIsBack { path: removal.path.to_string() });
        }
    }
}

/// Checks that no block belongs to two inodes, and that every block of an inode is allocated: free and allocated space
/// do not overlap.
fn blocks_have_one_owner(found: &Recovered<'_>, broken: &mut Vec<Broken>) {
    let inodes = found.inodes.values();
    let of_inode = |inode: &&InodeImage| {
        let tree = inode.tree.iter().map(|&block| UnitRange::new(block, 1));
        inode.extents.iter().map(|e| e.blocks).chain(tree).map(|r| (r, inode.inode)).collect::<Vec<_>>()
    };
    let mut owned: Vec<(UnitRange, u32)> = inodes.flat_map(of_inode).collect();
    owned.sort_unstable();
    for pair in owned.windows(2) {
        let [(first, a), (second, b)] = [pair[0], pair[1]];
        if first.end() > second.start {
            broken.push(Broken::TwoOwners { block: second.start.0, inodes: [a, b] });
        }
    }
    let mut runs = found.allocated.iter().copied().peekable();
    for (range, inode) in owned {
        let mut at = range.start;
        while at < range.end() {
            while runs.next_if(|run| run.end() <= at).is_some() {}
            match runs.peek() {
                Some(run) if run.start <= at => at = run.end(),
                _ => {
                    broken.push(Broken::OwnedButFree { block: at.0, inode });
                    break;
                }
            }
        }
    }
}

/// Checks that every block of a file holds that file's page: neither nothing nor another file's page.
fn file_holds_its_own(
    platter: &Platter<'_>,
    record: &Record,
    path: &str,
    image: &InodeImage,
    broken: &mut Vec<Broken>,
) {
    for extent in &image.extents {
        for (page, Lpn(block)) in record.foreign_pages(image, extent, platter.units()) {
            let (path, held) = (path.to_owned(), platter.read(block));
            if held == TRIMMED {
                broken.push(Broken::Trimmed { path, page, block });
            } else {
                broken.push(Broken::NotItsOwn { path, page, block, found: record.describe(held) });
            }
        }
    }
}

/// Checks that a file whose `fsync` returned is there, complete, and at least as new as it was then.
fn promise_is_kept(
    platter: &Platter<'_>,
    record: &Record,
    found: &Recovered<'_>,
    promise: &Promise,
    broken: &mut Vec<Broken>,
) {
    let path = || promise.path.to_string();
    let inode = found.files.get(&*promise.path);
    let image = inode.and_then(|inode| found.inodes.get(inode));
    let is_it = |i: &&&InodeImage| (i.inode, i.generation) == (promise.inode, promise.generation);
    let Some(image) = image.filter(is_it) else {
        broken.push(Broken::SyncedFileMissing { path: path() });
        return;
    };
    let (promised_bytes, found_bytes) = (promise.size_bytes, image.size_bytes);
    if found_bytes < promised_bytes {
        broken.push(Broken::SyncedFileShort { path: path(), promised_bytes, found_bytes });
    }
    for (page, block) in record.broken_pages(promise, image, platter.units()) {
        broken.push(match block {
            None => Broken::SyncedPageMissing { path: path(), page },
            Some(Lpn(block)) => Broken::SyncedPageOld { path: path(), page, block },
        });
    }
}

#[cfg(test)]
mod tests {
    use trimwise::fs::witness::{Content, FileExtent, Page};
    use trimwise::units::{Lpn, UNIT_BYTES};

    use super::*;

    const INODE: u32 = 12;
    const GENERATION: u32 = 3;

    /// A file of two pages in blocks 10 and 11 with a tree block, 30. Both pages were synced.
    fn file() -> InodeImage {
        InodeImage {
            inode: INODE,
            generation: GENERATION,
            is_directory: false,
            size_bytes: 2 * UNIT_BYTES,
            extents: vec![FileExtent { page: 0, blocks: UnitRange::new(Lpn(10), 2) }],
            unwritten: Vec::new(),
            tree: vec![Lpn(30)],
        }
    }

    /// What is found broken where these inodes and allocated blocks are found.
    fn broken(inodes: &[InodeImage], allocated: &[UnitRange], versions: Vec<u64>) -> Vec<Broken> {
        let page = |page| Content::Page(Page { inode: INODE, generation: GENERATION, page, version: 5 });
        let mut record = Record::default();
        record.contents = vec![Content::Never, Content::Trimmed, Content::Unknown, page(0), page(1)];
        record.initial = vec![(10, 3), (11, 4)];
        let found = Recovered {
            inodes: inodes.iter().map(|image| (image.inode, image)).collect(),
            files: inodes.iter().map(|image| (format!("f{}", image.inode), image.inode)).collect(),
            allocated: allocated.to_vec(),
        };
        let size_bytes = versions.len() as u64 * UNIT_BYTES;
        let promise =
            Promise { path: "f12".into(), inode: INODE, generation: GENERATION, size_bytes, versions };
        let told = Told { promises: BTreeMap::from([(INODE, &promise)]), gone: Vec::new() };
        let mut broken = Vec::new();
        check(&Platter::new(&record, 100), &record, &found, &told, &mut broken);
        broken
    }

    fn all() -> [UnitRange; 1] {
        [UnitRange::new(Lpn(0), 100)]
    }

    fn path() -> String {
        "f12".to_owned()
    }

    #[test]
    fn a_file_as_it_was_synced_is_right() {
        assert_eq!(broken(&[file()], &all(), vec![5, 5]), []);
        assert_eq!(broken(&[file()], &all(), vec![5, 0]), [], "a hole that was filled since");
    }

    #[test]
    fn a_synced_file_must_be_there_as_long_and_as_new_as_it_was() {
        assert_eq!(broken(&[], &all(), vec![5, 5]), [Broken::SyncedFileMissing { path: path() }]);
        let other = InodeImage { generation: GENERATION + 1, extents: Vec::new(), ..file() };
        assert_eq!(broken(&[other], &all(), vec![5]), [Broken::SyncedFileMissing { path: path() }]);
        let (promised_bytes, found_bytes) = (2 * UNIT_BYTES, 2 * UNIT_BYTES - 1);
        let short = InodeImage { size_bytes: found_bytes, ..file() };
        let found = Broken::SyncedFileShort { path: path(), promised_bytes, found_bytes };
        assert_eq!(broken(&[short], &all(), vec![5, 5]), [found]);
        let old = Broken::SyncedPageOld { path: path(), page: 1, block: 11 };
        assert_eq!(broken(&[file()], &all(), vec![5, 6]), [old]);
    }

    #[test]
    fn a_synced_page_needs_a_written_block() {
        let missing = |page| Broken::SyncedPageMissing { path: path(), page };
        let first = vec![FileExtent { page: 0, blocks: UnitRange::new(Lpn(10), 1) }];
        let with_hole = InodeImage { extents: first, ..file() };
        assert_eq!(broken(&[with_hole], &all(), vec![5, 5]), [missing(1)]);
        let unwritten = InodeImage { unwritten: vec![(0, 1)], ..file() };
        assert_eq!(broken(&[unwritten], &all(), vec![5, 5]), [missing(0)]);
    }

    #[test]
    fn blocks_of_files_and_of_their_trees_belong_to_one_inode_and_are_allocated() {
        let tree = InodeImage { inode: 13, extents: Vec::new(), ..file() };
        assert_eq!(
            broken(&[file(), tree], &all(), vec![5, 5]),
            [Broken::TwoOwners { block: 30, inodes: [INODE, 13] }]
        );
        let free = |block| Broken::OwnedButFree { block, inode: INODE };
        let but = |block: u64| [UnitRange::new(Lpn(0), block), UnitRange::new(Lpn(block + 1), 99 - block)];
        for block in [10, 11, 30] {
            assert_eq!(broken(&[file()], &but(block), vec![5, 5]), [free(block)]);
        }
        assert_eq!(broken(&[file()], &but(12), vec![5, 5]), []);
    }
}
