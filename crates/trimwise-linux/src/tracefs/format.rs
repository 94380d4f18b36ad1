//! The layout of trace records, from the kernel's `format` files.
//!
//! Records differ between kernel versions and architectures, so no layout is assumed. `format` is read for each event,
//! and `events/header_page` for the pages that contain them (Documentation/trace/events.rst and ring-buffer-map.rst).

use trimwise::units::Span;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    offset: usize,
    size: usize,
}

impl Field {
    /// Returns the value; `None` if the record is too short. Records are in native byte order.
    fn of(self, record: &[u8]) -> Option<u64> {
        let bytes = record.get(self.offset..self.offset.checked_add(self.size)?)?;
        Some(match self.size {
            1 => u64::from(bytes[0]),
            2 => u64::from(u16::from_ne_bytes(bytes.try_into().ok()?)),
            4 => u64::from(u32::from_ne_bytes(bytes.try_into().ok()?)),
            8 => u64::from_ne_bytes(bytes.try_into().ok()?),
            _ => return None,
        })
    }
}

/// Parses the field named `name` from a line such as `field:__u64 block; offset:24; size:8; signed:0;`.
fn field(text: &str, name: &str) -> Option<Field> {
    text.lines().filter_map(|line| line.trim().strip_prefix("field:")).find_map(|line| {
        let mut parts = line.split(';').map(str::trim);
        // An array is written `char rwbs[10]`.
        let declared = parts.next()?.rsplit([' ', '*']).next()?;
        if declared.split_once('[').map_or(declared, |(before, _)| before) != name {
            return None;
        }
        let number = |part: &str, key: &str| part.strip_prefix(key)?.parse::<usize>().ok();
        let field =
            Field { offset: number(parts.next()?, "offset:")?, size: number(parts.next()?, "size:")? };
        // Nothing exceeds a page of 64 KiB; the check also prevents overflow in sums.
        (field.offset <= 1 << 16 && field.size <= 1 << 16).then_some(field)
    })
}

/// The layout of a page of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFormat {
    time: Option<Field>,
    commit: Field,
    data: usize,
    pub size: usize,
}

/// `commit` is the length of the data, with flags above it (`RB_MISSED_EVENTS`, `RB_MISSED_STORED` in
/// kernel/trace/ring_buffer.c).
const COMMIT_MASK: u64 = (1 << 27) - 1;
const MISSED: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;
/// Kinds of special records; the kind of a data record is its length in words (`enum ring_buffer_type`).
const LONG: u32 = 0;
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Number of bits of `time_delta`, and of a time stamp, whose upper bits are those of the time before.
const DELTA_BITS: u32 = 27;
const STAMP_BITS: u32 = 59;

impl PageFormat {
    pub fn parse(text: &str) -> Option<Self> {
        let (commit, data) = (field(text, "commit")?, field(text, "data")?);
        let time = field(text, "timestamp");
        (data.size > 0).then_some(Self { time, commit, data: data.offset, size: data.offset + data.size })
    }

    /// Returns the time at which a page begins, in nanoseconds of the instance's clock; 0 if the kernel does not say.
    pub fn time(&self, page: &[u8]) -> u64 {
        self.time.and_then(|time| time.of(page)).unwrap_or(0)
    }

    /// Calls `found` with each record of a page and its time. Returns a lower bound on the records lost before it.
    pub fn records<'a>(&self, page: &'a [u8], mut found: impl FnMut(u64, &'a [u8])) -> u64 {
        let mut time = self.time(page);
        let commit = self.commit.of(page).unwrap_or(0);
        let length = (commit & COMMIT_MASK) as usize;
        let data = page.get(self.data..).unwrap_or_default();
        let (mut rest, behind) = data.split_at(length.min(data.len()));
        while let Some((step, record, behind)) = first_record(rest) {
            time = step.after(time);
            if let Some(record) = record {
                found(time, record);
            }
            rest = behind;
        }
        let stored = Field { offset: 0, size: size_of::<usize>() }.of(behind);
        match commit {
            _ if commit & MISSED == 0 => 0,
            _ if commit & MISSED_STORED != 0 => stored.unwrap_or(1).max(1),
            _ => 1,
        }
    }
}

enum Step {
    By(u64),
    To(u64),
}

impl Step {
    fn after(self, time: u64) -> u64 {
        let lower = (1 << STAMP_BITS) - 1;
        match self {
            Self::By(delta) => time.saturating_add(delta),
            Self::To(stamp) => (time & !lower) | (stamp & lower),
        }
    }
}

/// Time of a record, its data, if any, and the bytes that follow it.
type Split<'a> = (Step, Option<&'a [u8]>, &'a [u8]);

fn first_record(data: &[u8]) -> Option<Split<'_>> {
    let word = |at: usize| Some(u32::from_ne_bytes(data.get(at..at + 4)?.try_into().ok()?));
    let head = word(0)?;
    // The C bit field `type_len:5, time_delta:27` begins at the low end or the high end.
    let (kind, delta) = if cfg!(target_endian = "big") {
        (head >> DELTA_BITS, head & ((1 << DELTA_BITS) - 1))
    } else {
        (head & 31, head >> 5)
    };
    let (start, length, has_data): (usize, usize, bool) = match kind {
        PADDING if delta == 0 => return None, // end of this page
        PADDING => (4, word(4)? as usize, false),
        LONG => (8, (word(4)? as usize).checked_sub(4)?, true),
        TIME_EXTEND.. => (8, 0, false),
        words => (4, words as usize * 4, true),
    };
    let long = || Some((u64::from(word(4)?) << DELTA_BITS) + u64::from(delta));
    let step = match kind {
        TIME_EXTEND => Step::By(long()?),
        TIME_STAMP.. => Step::To(long()?),
        _ => Step::By(delta.into()),
    };
    let record = data.get(start..start.checked_add(length)?)?;
    let behind = data.get((start + length).next_multiple_of(4)..).unwrap_or_default();
    Some((step, has_data.then_some(record), behind))
}

/// The tracepoints that trimwise reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tracepoint {
    /// `ext4:ext4_free_blocks`: before the freeing transaction commits.
    Ext4,
    /// `xfs:xfs_free_extent`: within the freeing transaction.
    Xfs,
    /// `block:block_rq_error`: a request failed. The device is the whole disk, and positions are in sectors, as in all
    /// request tracepoints.
    Error,
    /// `block:block_bio_complete`: a bio ended on a device without requests of its own, such as one of device-mapper. The
    /// device is the one that the bio was sent to. Where the bio became a request, the request's events report it
    /// instead (`blk_update_request`).
    BioComplete,
    /// `block:block_rq_issue`: a request goes to the driver.
    Issue,
    /// `block:block_rq_complete`: a whole request, or its first sectors, completed.
    Complete,
    /// `block:block_rq_requeue`: the driver returns a request, and will receive it again.
    Requeue,
    /// `ext4:ext4_allocate_blocks`: blocks were allocated.
    Ext4Allocated,
    /// `jbd2:jbd2_commit_flushing`: later changes belong to the next transaction.
    JournalSwitched,
    /// `jbd2:jbd2_end_commit`: the transaction is durable.
    JournalCommitted,
    /// `xfs:xfs_alloc_vextent_finish` (Linux 6.3 and later): blocks were allocated.
    XfsAllocated,
    /// `xfs:xlog_iclog_callbacks_done`: the transactions in a log buffer are durable.
    XfsCommitted,
}

/// One record of a tracepoint. Fields that it does not have are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    /// Major and minor number of the device: the file system's, or the disk's for a request.
    pub device: (u32, u32),
    /// The allocation group that blocks are counted from; 0 on ext4.
    pub group: u64,
    /// The first block, or the first sector of a request.
    pub first: u64,
    /// Number of blocks or sectors.
    pub count: u64,
    /// Operation and flags of a request, as letters (`blk_fill_rwbs()`).
    pub letters: [u8; LETTERS],
    /// The error of a request or bio, negative as the kernel has it.
    pub error: i32,
}

/// Includes a zero at the end.
const LETTERS: usize = 10;

impl Traced {
    /// Returns the sectors of a request or bio.
    pub fn sectors(&self) -> Span {
        Span { start: self.first, end: self.first.saturating_add(self.count) }
    }

    /// Returns the span in bytes, given the file system's sizes of a block and a group and its end.
    pub fn span(&self, block: u64, group: u64, end: u64) -> Span {
        let start = self.group.saturating_mul(group).saturating_add(self.first.saturating_mul(block));
        let last = start.saturating_add(self.count.saturating_mul(block));
        Span { start: start.min(end), end: last.min(end) }
    }
}

/// The layout of a tracepoint's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventFormat {
    id: u64,
    kind: Field,
    device: Field,
    group: Option<Field>,
    range: Option<(Field, Field)>,
    letters: Option<Field>,
    error: Option<Field>,
}

impl Tracepoint {
    pub fn path(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4/ext4_free_blocks",
            Self::Xfs => "xfs/xfs_free_extent",
            Self::Error => "block/block_rq_error",
            Self::BioComplete => "block/block_bio_complete",
            Self::Issue => "block/block_rq_issue",
            Self::Complete => "block/block_rq_complete",
            Self::Requeue => "block/block_rq_requeue",
            Self::Ext4Allocated => "ext4/ext4_allocate_blocks",
            Self::JournalSwitched => "jbd2/jbd2_commit_flushing",
            Self::JournalCommitted => "jbd2/jbd2_end_commit",
            Self::XfsAllocated => "xfs/xfs_alloc_vextent_finish",
            Self::XfsCommitted => "xfs/xlog_iclog_callbacks_done",
        }
    }

    /// Returns true for the tracepoints that report failed discards, once enabled for them.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Error | Self::BioComplete)
    }

    /// Returns true if a layer above the disks refused a discard as unsupported (EOPNOTSUPP), as a target of device-mapper
    /// does that has no discards where another has.
    pub fn is_refusal(self, traced: &Traced) -> bool {
        const REFUSED: i32 = -95;
        self == Self::BioComplete && traced.error == REFUSED
    }

    pub fn parse(self, text: &str) -> Option<EventFormat> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok()?;
        let range = match self {
            Self::Ext4 => Some(["block", "count"]),
            Self::Ext4Allocated => Some(["block", "len"]),
            Self::Xfs | Self::XfsAllocated => Some(["agbno", "len"]),
            Self::Error | Self::BioComplete | Self::Issue | Self::Complete | Self::Requeue => {
                Some(["sector", "nr_sector"])
            }
            Self::JournalSwitched | Self::JournalCommitted | Self::XfsCommitted => None,
        };
        let group = matches!(self, Self::Xfs | Self::XfsAllocated).then_some("agno");
        let letters = matches!(self, Self::Issue | Self::Complete | Self::Requeue).then_some("rwbs");
        // Fails if the text lacks a field that the tracepoint must have.
        let of = |name: Option<&str>| name.map_or(Some(None), |name| field(text, name).map(Some));
        Some(EventFormat {
            id,
            kind: field(text, "common_type")?,
            device: field(text, "dev")?,
            group: of(group)?,
            range: of(range.map(|[first, _]| first))?.zip(of(range.map(|[_, count]| count))?),
            letters: of(letters)?,
            error: of(self.is_failure().then_some("error"))?,
        })
    }
}

impl EventFormat {
    /// Parses a record; returns `None` if it belongs to another event.
    pub fn read(&self, record: &[u8]) -> Option<Traced> {
        if self.kind.of(record)? != self.id {
            return None;
        }
        // The kernel's own device number: include/linux/kdev_t.h.
        let device = u32::try_from(self.device.of(record)?).ok()?;
        let mut letters = [0; LETTERS];
        if let Some(field) = self.letters {
            let size = field.size.min(LETTERS);
            letters[..size].copy_from_slice(record.get(field.offset..field.offset + size)?);
        }
        let number = |field: Option<Field>| field.map_or(Some(0), |field| field.of(record));
        Some(Traced {
            device: (device >> 20, device & ((1 << 20) - 1)),
            group: number(self.group)?,
            first: number(self.range.map(|(first, _)| first))?,
            count: number(self.range.map(|(_, count)| count))?,
            letters,
            error: (number(self.error)? as u32).cast_signed(),
        })
    }
}

/// Returns the text for a tracepoint's `filter` that selects these devices. If it would exceed a page (4096 bytes), no
/// filter is set.
pub fn filter(devices: impl Iterator<Item = (u32, u32)>) -> String {
    let terms: Vec<String> = devices
        .map(|(major, minor)| format!("dev == {}", (u64::from(major) << 20) | u64::from(minor)))
        .collect();
    let text = terms.join(" || ");
    if text.len() < 4096 { text } else { "0".to_owned() } // 0 removes a filter
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
        \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
    const COMMON: &str = "format:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";
    /// The format of `ext4:ext4_free_blocks` on Linux 6.18.
    const EXT4: &str = "\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:ino_t \
                        ino;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:__u64 block;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long count;\toffset:32;\tsize:8;\tsigned:0;\n";
    const XFS: &str = "\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:xfs_agnumber_t agno;\toffset:12;\tsize:4;\tsigned:0;\n\
        \tfield:xfs_agblock_t agbno;\toffset:16;\tsize:4;\tsigned:0;\n\
        \tfield:xfs_extlen_t len;\toffset:20;\tsize:4;\tsigned:0;\n";

    fn event(point: Tracepoint, id: u16, fields: &str) -> EventFormat {
        point.parse(&format!("name: some\nID: {id}\n{COMMON}{fields}\nprint fmt: \"block\"\n")).unwrap()
    }

    fn head(kind: u32, delta: u32) -> [u8; 4] {
        let word = if cfg!(target_endian = "big") { kind << 27 | delta } else { delta << 5 | kind };
        word.to_ne_bytes()
    }

    fn page(data: &[u8], flags: u64, behind: &[u8]) -> Vec<u8> {
        let mut page = 1_000_000u64.to_ne_bytes().to_vec();
        page.extend((data.len() as u64 | flags).to_ne_bytes());
        page.extend(data);
        page.extend(behind);
        page.resize(4096, 0);
        page
    }

    fn ext4_record(id: u16, block: u64, count: u64) -> Vec<u8> {
        let mut record = vec![0; 40];
        record[..2].copy_from_slice(&id.to_ne_bytes());
        record[8..12].copy_from_slice(&((7u32 << 20) | 3).to_ne_bytes());
        record[24..32].copy_from_slice(&block.to_ne_bytes());
        record[32..40].copy_from_slice(&count.to_ne_bytes());
        record
    }

    #[test]
    fn records_are_found_in_a_page_whatever_is_between_them() {
        let format = PageFormat::parse(PAGE).unwrap();
        assert_eq!(format.size, 4096);
        let ext4 = event(Tracepoint::Ext4, 1233, EXT4);
        let mut data = Vec::new();
        data.extend([head(10, 5).as_slice(), &ext4_record(1233, 1000, 8)].concat());
        data.extend([head(30, 9), 7u32.to_ne_bytes()].concat()); // the time went on
        data.extend([head(29, 1).as_slice(), &8u32.to_ne_bytes(), &[0; 4]].concat()); // a discarded record
        data.extend([head(0, 1).as_slice(), &44u32.to_ne_bytes(), &ext4_record(1233, 5, 1)].concat());
        data.extend([head(10, 5).as_slice(), &ext4_record(99, 7, 7)].concat()); // of another event
        data.extend([head(29, 0).as_slice(), &[255; 20]].concat()); // nothing from here on
        let mut found = Vec::new();
        let lost = format.records(&page(&data, 0, &[]), |at, record| {
            found.extend(ext4.read(record).map(|freed| (at, freed)));
        });
        let freed =
            |first, count| Traced { device: (7, 3), group: 0, first, count, letters: [0; LETTERS], error: 0 };
        assert_eq!(
            (lost, found),
            (0, vec![(1_000_005, freed(1000, 8)), (1_000_016 + (7 << 27), freed(5, 1))])
        );
        assert_eq!(freed(1000, 8).span(4096, 0, 1 << 40), Span { start: 4_096_000, end: 4_128_768 });
        assert_eq!(freed(u64::MAX, 8).span(4096, 0, 1 << 40), Span { start: 1 << 40, end: 1 << 40 });
    }

    #[test]
    fn records_lost_before_a_page_are_counted() {
        let format = PageFormat::parse(PAGE).unwrap();
        let lost = |flags: u64, behind: &[u8]| format.records(&page(&[], flags, behind), |_, _| panic!());
        assert_eq!(lost(0, &17u64.to_ne_bytes()), 0);
        assert_eq!(lost(MISSED | MISSED_STORED, &17usize.to_ne_bytes()), 17);
        assert_eq!(lost(MISSED, &17usize.to_ne_bytes()), 1);
    }

    #[test]
    fn xfs_counts_blocks_in_allocation_groups() {
        let xfs = event(Tracepoint::Xfs, 1674, XFS);
        let mut record = vec![0; 24];
        record[..2].copy_from_slice(&1674u16.to_ne_bytes());
        for (at, value) in [(8, (259u32 << 20) | 1), (12, 2), (16, 100), (20, 16)] {
            record[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        let freed = xfs.read(&record).unwrap();
        let letters = [0; LETTERS];
        assert_eq!(freed, Traced { device: (259, 1), group: 2, first: 100, count: 16, letters, error: 0 });
        assert_eq!(
            freed.span(4096, 1 << 20, 1 << 40),
            Span { start: (2 << 20) + 409_600, end: (2 << 20) + 475_136 }
        );
        assert_eq!(xfs.read(&record[..22]), None);
    }

    #[test]
    fn a_time_stamp_replaces_all_but_the_upper_bits() {
        let format = PageFormat::parse(PAGE).unwrap();
        let ext4 = ext4_record(1233, 1, 1);
        let data = [head(31, 3).as_slice(), &2u32.to_ne_bytes(), &head(10, 4), &ext4].concat();
        let mut page = page(&data, 0, &[]);
        page[..8].copy_from_slice(&((5u64 << 59) + 77).to_ne_bytes());
        let mut times = Vec::new();
        format.records(&page, |at, _| times.push(at));
        assert_eq!((format.time(&page), times), ((5 << 59) + 77, vec![(5 << 59) + (2 << 27) + 7]));
    }

    #[test]
    fn a_request_has_its_letters() {
        // Of Linux 6.18.
        let fields = "\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
            \tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\
            \tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;\n\
            \tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;\n\
            \tfield:__data_loc char[] cmd;\toffset:60;\tsize:4;\tsigned:0;\n";
        let issue = event(Tracepoint::Issue, 2104, fields);
        let mut record = vec![0; 64];
        record[..2].copy_from_slice(&2104u16.to_ne_bytes());
        record[16..24].copy_from_slice(&4096u64.to_ne_bytes());
        record[24..28].copy_from_slice(&8u32.to_ne_bytes());
        record[34..37].copy_from_slice(b"WSM");
        let read = issue.read(&record).unwrap();
        assert_eq!((read.first, read.count, &read.letters), (4096, 8, b"WSM\0\0\0\0\0\0\0"));
        assert_eq!(issue.read(&record[..40]), None);
        assert_eq!(Tracepoint::Issue.parse(&format!("ID: 3\n{COMMON}{EXT4}")), None);
    }

    #[test]
    fn a_format_that_lacks_a_field_is_rejected() {
        assert_eq!(PageFormat::parse(&PAGE.replace("commit", "length")), None);
        assert_eq!(PageFormat::parse(&PAGE.replace("4080", "many")), None);
        for missing in ["dev;", "block;", "count;", "common_type;"] {
            let text = format!("ID: 3\n{COMMON}{EXT4}").replace(missing, "other;");
            assert_eq!(Tracepoint::Ext4.parse(&text), None, "{missing}");
        }
        assert_eq!(Tracepoint::Xfs.parse(&format!("{COMMON}{XFS}")), None, "no ID");
    }

    #[test]
    fn a_filter_names_devices_until_it_is_too_long() {
        assert_eq!(filter([(7, 0), (259, 1)].into_iter()), "dev == 7340032 || dev == 271581185");
        assert_eq!(filter((0..1000).map(|minor| (7, minor))), "0");
    }
}
