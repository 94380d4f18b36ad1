//! The text of a kernel's trace (`/sys/kernel/tracing/trace`), as far as it is about ext4's blocks.

use trimwise::failure::Failure;
use trimwise::fs::alloc::GROUP_UNITS;
use trimwise::units::{Lpn, UnitRange};

use super::course::{Allocation, Kind, Seen};

pub(super) const TRACEPOINTS: [&str; 5] = [
    "ext4/ext4_allocate_blocks",
    "ext4/ext4_mballoc_alloc",
    "ext4/ext4_mballoc_prealloc",
    "ext4/ext4_mballoc_free",
    "jbd2/jbd2_commit_flushing",
];

/// Fails if the kernel has lost records, according to the text of `per_cpu/cpu*/stats`.
pub(super) fn check_complete(statistics: &str) -> Result<(), Failure> {
    match trimwise_linux::tracefs::lost_in(statistics) {
        0 => Ok(()),
        lost => Err(Failure::run(format!(
            "the workload is too long to compare: the guest's buffer of tracepoints lost {lost} records; give it fewer \
             files or transactions"
        ))),
    }
}

/// Parses a trace. Leaves out allocations for directories and extent trees.
pub(super) fn parse(text: &str) -> Result<Vec<Seen>, Failure> {
    let mut seen = Vec::new();
    let mut search = Search::default();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let wrong = || Failure::run(format!("a line of the guest's trace cannot be parsed: {line}"));
        let (at_ns, name, fields) = parts(line).ok_or_else(wrong)?;
        let kind = match name {
            "ext4_mballoc_alloc" | "ext4_mballoc_prealloc" => {
                search = fields.search().ok_or_else(wrong)?;
                continue;
            }
            "ext4_allocate_blocks" if !fields.is_data() => continue,
            "ext4_allocate_blocks" => Kind::Allocated(fields.allocation(at_ns, &search).ok_or_else(wrong)?),
            "ext4_mballoc_free" => Kind::Freed(fields.after("extent").and_then(place).ok_or_else(wrong)?),
            "jbd2_commit_flushing" => Kind::Closed,
            _ => return Err(wrong()),
        };
        seen.push(Seen { at_ns, kind });
    }
    Ok(seen)
}

/// What an allocation asked for, and how it was found.
#[derive(Default)]
struct Search {
    wanted: u64,
    how: String,
}

struct Fields<'a>(Vec<&'a str>);

/// Splits `task-pid [cpu] flags seconds: tracepoint: fields` into time, tracepoint and fields.
fn parts(line: &str) -> Option<(u64, &str, Fields<'_>)> {
    let (head, rest) = line.split_once(": ")?;
    let (name, fields) = rest.split_once(": ")?;
    let (seconds, micros) = head.split_whitespace().next_back()?.split_once('.')?;
    let at_ns = seconds.parse::<u64>().ok()? * 1_000_000_000 + micros.parse::<u64>().ok()? * 1_000;
    Some((at_ns, name, Fields(fields.split_whitespace().collect())))
}

impl<'a> Fields<'a> {
    fn after(&self, key: &str) -> Option<&'a str> {
        let at = self.0.iter().position(|word| *word == key)?;
        self.0.get(at + 1).copied()
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.after(key)?.parse().ok()
    }

    fn is_data(&self) -> bool {
        self.after("flags").is_some_and(|flags| flags.split('|').any(|flag| flag == "HINT_DATA"))
    }

    fn search(&self) -> Option<Search> {
        let how = match self.after("goal") {
            None => "kept".to_owned(),
            Some(goal) => {
                format!("search for {}, {}", place(goal)?.units, self.after("cr")?.trim_end_matches(','))
            }
        };
        Some(Search { wanted: place(self.after("orig")?)?.units, how })
    }

    fn allocation(&self, at_ns: u64, search: &Search) -> Option<Allocation> {
        Some(Allocation {
            at_ns,
            inode: self.number("ino")?.try_into().ok()?,
            page: self.number("lblk")?,
            goal: Lpn(self.number("goal")?),
            wanted: search.wanted,
            blocks: UnitRange::new(Lpn(self.number("block")?), self.number("len")?),
            how: search.how.clone(),
        })
    }
}

/// Parses `group/block/blocks` or `group/block/blocks@page`.
fn place(text: &str) -> Option<UnitRange> {
    let extent = text.split_once('@').map_or(text, |(extent, _)| extent);
    let numbers: Vec<u64> = extent.split('/').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    let [group, block, units] = *numbers else { return None };
    Some(UnitRange::new(Lpn(group * GROUP_UNITS + block), units))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of 6.12.117: a chunk of which the file takes five blocks, blocks of it for another, one of a directory.
    #[test]
    fn allocations_frees_and_commits_are_read_from_a_trace() {
        let text = "\
# tracer: nop
#
 kworker/u4:2-25 [000] ..... 1.564922: ext4_mballoc_alloc: dev 98,0 inode 13 orig 17/0/5@0 goal 17/0/512@0 result \
 17/512/512@0 blks 1 grps 1 cr CR_POWER2_ALIGNED flags HINT_DATA|HINT_GROUP_ALLOC tail 0 broken 0
 kworker/u4:2-25 [000] ..... 1.564923: ext4_allocate_blocks: dev 98,0 ino 13 flags HINT_DATA|DELALLOC_RESV len 5 \
 block 557568 lblk 0 goal 557056 lleft 0 lright 0 pleft 0 pright 0
 kworker/u4:2-25 [000] ..... 1.564924: ext4_mballoc_prealloc: dev 98,0 inode 14 orig 17/0/7@0 result 17/517/7@0
 kworker/u4:2-25 [000] ..... 1.564924: ext4_allocate_blocks: dev 98,0 ino 14 flags HINT_DATA|DELALLOC_RESV len 7 \
 block 557573 lblk 0 goal 557056 lleft 0 lright 0 pleft 0 pright 0
 init-1 [000] ..... 1.564925: ext4_mballoc_alloc: dev 98,0 inode 12 orig 0/0/1@0 goal 0/0/1@0 result 0/9000/1@0 blks \
 1 grps 1 cr CR_GOAL_LEN_FAST flags DELALLOC_RESV tail 0 broken 0
 init-1 [000] ..... 1.564925: ext4_allocate_blocks: dev 98,0 ino 12 flags  len 1 block 9000 lblk 0 goal 0 lleft 0 \
 lright 0 pleft 0 pright 0
 init-1 [000] ..... 2.000000: ext4_mballoc_free: dev 98,0 inode 13 extent 17/512/5
 jbd2/vda-8-30 [000] ..... 6.570123: jbd2_commit_flushing: dev 98,0 transaction 2 sync 0
";
        let seen = parse(text).unwrap();
        let allocated = |at_ns, inode, units, start, how: &str| {
            let (blocks, how) = (UnitRange::new(Lpn(start), units), how.to_owned());
            let goal = Lpn(557_056);
            Kind::Allocated(Allocation { at_ns, inode, page: 0, goal, wanted: units, blocks, how })
        };
        let expected = [
            (1_564_923_000, allocated(1_564_923_000, 13, 5, 557_568, "search for 512, CR_POWER2_ALIGNED")),
            (1_564_924_000, allocated(1_564_924_000, 14, 7, 557_573, "kept")),
            (2_000_000_000, Kind::Freed(UnitRange::new(Lpn(557_568), 5))),
            (6_570_123_000, Kind::Closed),
        ];
        assert_eq!(seen, expected.map(|(at_ns, kind)| Seen { at_ns, kind }));
    }

    #[test]
    fn what_cannot_be_parsed_and_what_was_lost_is_said() {
        let line = "init-1 [000] ..... 2.000000: ext4_mballoc_free: dev 98,0 inode 12 extent 17/x/512";
        assert!(parse(line).unwrap_err().to_string().contains(line));
        assert!(check_complete("overrun: 0\nread events: 4\n").is_ok());
        let lost = check_complete("overrun: 12\n").unwrap_err().to_string();
        assert!(lost.contains("lost 12 records") && lost.contains("fewer"), "{lost}");
    }
}
