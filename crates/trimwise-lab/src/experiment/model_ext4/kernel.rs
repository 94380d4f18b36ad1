//! The runs on the kernel.

use trimwise::units::{Bytes, UNIT_BYTES};
use trimwise_uml::images::KernelImage;
use trimwise_uml::job::{FileSystem, Outcome, Step};

use super::log::{Places, Traffic};
use super::{CAPACITY, Case, DEVICE, GUEST_MEMORY, GuestFacts, KERNEL, Pair, SETTLE, SHAPES, Side, cases};
use crate::experiment::Request;
use crate::experiment::result::ExperimentResult;
use crate::guests::{self, Ran};
use trimwise::failure::{Failure, Mistake};

/// Memory of this computer that one run takes: guest, model, and the guest's data.
const MEMORY_OF_RUN: Bytes = Bytes::mib(2_500);
const VMSTAT: &str = "/proc/vmstat";
const MEMINFO: &str = "/proc/meminfo";
/// jbd2's report of the number of committed transactions.
const JOURNAL_INFO: &str = "/proc/fs/jbd2/*/info";

/// Returns the kernel and the cases that `--only` names; all by default.
pub(super) fn choice(only: &[String]) -> Result<(KernelImage, Vec<Case>), Failure> {
    let names = SHAPES.map(|shape| shape.name);
    if let Some(part) = only.iter().find(|part| !names.contains(&part.as_str())) {
        return Err(Mistake::of("only", part).expected(format!("one of {}", names.join(", "))).fail());
    }
    let mut cases = cases();
    cases.retain(|case| only.is_empty() || only.iter().any(|part| part == case.shape.name));
    let target = format!("{KERNEL}:ext4").parse().expect("it is written here");
    Ok((guests::image(&target)?, cases))
}

pub(super) fn run(request: &Request) -> Result<ExperimentResult, Failure> {
    let (image, cases) = choice(&request.only)?;
    let pairs = request.boot(MEMORY_OF_RUN, &cases, |case| {
        let (guest, kernel) = run_kernel(request, &image, case)?;
        let model = super::run_model(case, guest, request.seed).map_err(Failure::run)?;
        Ok(Pair { shape: case.shape.name, policy: case.policy().to_string(), guest, kernel, model })
    })?;
    Ok(super::evaluate(&pairs, request.seed).made_on([&image]))
}

fn run_kernel(request: &Request, image: &KernelImage, case: Case) -> Result<(GuestFacts, Side), Failure> {
    let guest = guests::guest(image, GUEST_MEMORY, &request.bounds)?;
    let file_system = FileSystem::Ext4;
    let options = if case.discard { "discard" } else { "nodiscard" }.to_owned();
    let settle = || Step::Sleep { ns: SETTLE.as_nanos() };
    let read = |path: &str| Step::Read { path: path.to_owned() };
    let steps = vec![
        Step::Mkfs { file_system, options: Vec::new() },
        Step::Mount { file_system, options },
        settle(),
        read(VMSTAT),
        read(MEMINFO),
        read(JOURNAL_INFO),
        Step::Postmark { config: case.shape.config.to_owned(), rep: 0 },
        settle(),
        read(JOURNAL_INFO),
        Step::Metadata,
        Step::Extents { file: String::new() },
    ];
    let [vmstat, meminfo, before, work, settled, after, metadata, directory] = [3, 4, 5, 6, 7, 8, 9, 10];
    let ran = Ran::new(&guest, DEVICE, CAPACITY, request.seed, steps)?;

    let duration_ns = ran.outcome(work, |outcome| match outcome {
        Outcome::Cell(cell, _) => Some(cell.duration_ns),
        _ => None,
    })?;
    let commits = commits(ran.text(after)?)?
        .checked_sub(commits(ran.text(before)?)?)
        .ok_or_else(|| Failure::run("the guest's count of commits fell"))?;
    let places = Places::in_guest(&ran, metadata, ran.extents(directory)?)?;
    let (vmstat, meminfo) = (ran.text(vmstat)?, ran.text(meminfo)?);
    let kib = field(meminfo, "Active(file):")? + field(meminfo, "Inactive(file):")?;
    let facts = GuestFacts {
        background_pages: field(vmstat, "nr_dirty_background_threshold")?,
        dirty_pages: field(vmstat, "nr_dirty_threshold")?,
        cached_pages: kib * 1024 / UNIT_BYTES,
        journal_blocks: places.journal_blocks(),
    };
    let traffic = Traffic::in_guest(ran.requests(work, settled), &places);
    Ok((facts, Side { duration_ns, commits, traffic }))
}

/// Reads a line `NAME NUMBER` of /proc/vmstat, or `NAME NUMBER kB` of /proc/meminfo.
fn field(text: &str, name: &str) -> Result<u64, Failure> {
    let number = |line: &str| line.strip_prefix(name)?.trim_end_matches(" kB").trim().parse().ok();
    let found = text.lines().find_map(number);
    found.ok_or_else(|| Failure::run(format!("the guest's {VMSTAT} or {MEMINFO} has no number {name}")))
}

/// Reads the first number of jbd2's info: `12 transactions (3 requested), each up to 1024 blocks`.
fn commits(info: &str) -> Result<u64, Failure> {
    let number = info.split_whitespace().next().and_then(|word| word.parse().ok());
    number.ok_or_else(|| {
        Failure::run(format!("the guest's {JOURNAL_INFO} does not begin with a number: {info}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_what_the_kernel_says() {
        let vmstat = "nr_dirty 3\nnr_dirty_threshold 8000\nnr_dirty_background_threshold 4000\n";
        assert_eq!(field(vmstat, "nr_dirty_threshold").unwrap(), 8000);
        assert!(field(vmstat, "nr_dirt").is_err());
        assert_eq!(commits("12 transactions (3 requested), each up to 1024 blocks\n").unwrap(), 12);
        assert!(commits("none").is_err());
    }

    #[test]
    fn what_there_is_not_is_refused() {
        let refused = choice(&["tiny".to_owned()]);
        assert!(matches!(refused, Err(Failure::Usage(m)) if m.to_string().contains("small, large, mixed")));
    }
}
