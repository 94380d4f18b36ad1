//! Jobs on a smaller drive.

use super::layout::Plan;
use super::{Job, JobFile, Size};
use crate::units::{Bytes, SimDuration};

const TRANSFERRED_MIN: Bytes = Bytes::gib(1);
const BLOCKS_MIN: u64 = 64;
/// Minimum time of a scaled job that runs for a time: a dozen of ext4's commits.
const RUNTIME_MIN: SimDuration = SimDuration::from_secs(60);

impl JobFile {
    /// Returns the jobs for a drive of `factor` times the size, from 0 to 1: smaller files, fewer bytes, and less time
    /// for jobs that run for a time. Blocks, rates and the number of files stay.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        let plans = self.plans.iter().map(|plan| plan.scaled(factor)).collect();
        let jobs = self.jobs.iter().map(|job| job.scaled(factor)).collect();
        Self { jobs, plans, ..self.clone() }
    }

    /// Returns the smallest factor at which the jobs still show what they show in full; at most 1.
    pub fn scale_min(&self) -> f64 {
        let part = |least: u64, of: u64| least as f64 / of.max(1) as f64;
        let transferred =
            self.jobs.iter().map(|job| job.size.saturating_mul(job.loops)).fold(0, u64::saturating_add);
        let is_timed = |job: &&Job| job.runtime.is_some();
        let timed = self.jobs.iter().filter(is_timed);
        let timed = timed.filter_map(|job| Some(part(RUNTIME_MIN.as_nanos(), job.runtime?.as_nanos())));
        let files =
            self.jobs.iter().flat_map(|job| job.files.iter().map(|file| (job.block_max(), file.bytes)));
        let files = files.map(|(block, bytes)| part(block * BLOCKS_MIN, bytes));
        let bytes = if self.jobs.iter().all(|job| job.time_based) { 0 } else { TRANSFERRED_MIN.0 };
        timed.chain(files).fold(part(bytes, transferred), f64::max).min(1.0)
    }
}

/// Returns a number of bytes times `factor`, in whole blocks and at least one.
fn part_of(bytes: u64, factor: f64, block: u64) -> u64 {
    ((bytes as f64 * factor) as u64 / block * block).clamp(block.min(bytes), bytes)
}

impl Plan {
    fn scaled(&self, factor: f64) -> Self {
        let block = self.job.block_max();
        let of = |size| match size {
            Size::Bytes(bytes) => Size::Bytes(part_of(bytes, factor, block)),
            percent => percent,
        };
        let mut plan = self.clone();
        plan.job = self.job.scaled(factor);
        plan.size = self.size.map(of);
        plan.file_size =
            self.file_size.map(|(from, to)| (part_of(from, factor, block), part_of(to, factor, block)));
        (plan.offset, plan.increment) = (of(self.offset), of(self.increment));
        plan
    }
}

impl Job {
    fn block_max(&self) -> u64 {
        let used = self.sizes.ranges.iter().zip(self.directions).filter(|(_, used)| *used);
        used.map(|((_, to), _)| *to).max().unwrap_or(1)
    }

    fn scaled(&self, factor: f64) -> Self {
        let block = self.block_max();
        let of = |bytes: u64| part_of(bytes, factor, block);
        let time = |time: SimDuration| SimDuration((time.as_nanos() as f64 * factor) as u64);
        let mut job = self.clone();
        for file in &mut job.files {
            let end = of(file.offset) + of(file.bytes);
            (file.offset, file.bytes, file.length) =
                (of(file.offset), of(file.bytes), of(file.length).max(end));
        }
        job.size = of(self.size).min(job.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add));
        (job.io_size, job.operations_max) = (self.io_size.map(of), self.operations_max);
        (job.runtime, job.ramp, job.starts_after) =
            (self.runtime.map(time), time(self.ramp), time(self.starts_after));
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> JobFile {
        JobFile::parse(text).unwrap()
    }

    #[test]
    fn files_bytes_and_times_shrink_and_blocks_stay() {
        let whole = parsed(
            "[a]\nrw=randwrite\nsize=8g\nbs=64k\nnrfiles=2\n[b]\nrw=read\nsize=4g\ntime_based\nruntime=300\n",
        );
        let small = whole.scaled(0.25);
        let brief = |file: &JobFile| -> Vec<_> {
            file.jobs
                .iter()
                .map(|job| (job.size >> 20, job.files.len(), job.block_max(), job.runtime))
                .collect()
        };
        let minutes = |n: u64| Some(SimDuration::from_secs(60 * n));
        assert_eq!(brief(&whole), [(8192, 2, 65_536, None), (4096, 1, 4096, minutes(5))]);
        assert_eq!(
            brief(&small),
            [(2048, 2, 65_536, None), (1024, 1, 4096, Some(SimDuration::from_secs(75)))]
        );
        assert_eq!(small.needed().0 * 4, whole.needed().0);
    }

    #[test]
    fn small_files_few_bytes_and_short_times_are_kept() {
        let least = |text: &str| parsed(&format!("[a]\nrw=randwrite\n{text}")).scale_min();
        assert_eq!(least("size=8g"), 0.125);
        assert_eq!(least("size=512m"), 1.0);
        assert_eq!(least("size=8g\nruntime=120"), 0.5);
        assert_eq!(least("size=8g\ntime_based\nruntime=600"), 0.1);
        assert_eq!(least("size=8g\nnrfiles=10000\nbs=64k"), 1.0);
        // Files smaller than a block stay as they are.
        let tiny = parsed("[a]\nrw=write\nfilesize=1k\nnrfiles=8\nbs=512").scaled(0.001);
        assert_eq!(tiny.jobs[0].files[0].bytes, 512);
    }
}
