//! Describes how a job file was understood, as text.

use std::collections::BTreeSet;
use std::fmt;

use super::layout::Plan;
use super::{Distribution, Durable, FileOrder, Job, JobFile, READ, Rate, Shape, Size, TRIM, WRITE};
use crate::numbers;
use crate::units::Bytes;

const DIRECTIONS: [&str; 3] = ["reads", "writes", "TRIMs"];

/// One line for each job of a file: its operations, files and end.
pub struct Description<'a>(&'a JobFile);

impl JobFile {
    pub fn description(&self) -> Description<'_> {
        Description(self)
    }
}

impl fmt::Display for Description<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filling: BTreeSet<&str> =
            self.0.plans.iter().filter(|plan| plan.fills_space()).flat_map(Plan::paths).collect();
        let mut jobs = self.0.jobs.iter().zip(&self.0.plans).peekable();
        while let Some((job, plan)) = jobs.next() {
            let mut copies = 1;
            while jobs.next_if(|(other, _)| other.name == job.name && other.copy > 0).is_some() {
                copies += 1;
            }
            writeln!(f, "{}", line(job, copies, &size(job, plan, filling.len())))?;
        }
        Ok(())
    }
}

/// Describes the size of a job's files. `filling` files divide the free space.
fn size(job: &Job, plan: &Plan, filling: usize) -> String {
    if !plan.fills_space() {
        return Bytes(job.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add)).to_string();
    }
    let own = plan.paths().collect::<BTreeSet<_>>().len();
    let part = if own < filling { format!("{own}/{filling} of ") } else { String::new() };
    match plan.size {
        Some(Size::Percent(percent)) if percent < 100 => format!("{percent} % of {part}the free space"),
        _ => format!("{part}the free space"),
    }
}

fn line(job: &Job, copies: usize, size: &str) -> String {
    let name: String = job.name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut words = vec![operations(job)];
    if copies > 1 {
        words.push(format!("{copies} processes"));
    }
    if job.depth > 1 {
        words.push(format!("{} at a time", job.depth));
    }
    words.push(if job.direct { "direct".to_owned() } else { "through the page cache".to_owned() });
    words.push(files(job, size));
    words.extend(durability(job));
    words.extend(pace(job));
    words.extend(end(job));
    if job.group > 0 {
        words.push("after the jobs before it".to_owned());
    }
    if let Some(other) = &job.waits_for {
        words.push(format!("after {other}"));
    }
    format!("{name}: {}", words.join("; "))
}

fn operations(job: &Job) -> String {
    let of = |i: usize| {
        let (from, to) = job.sizes.ranges[i];
        let size = match () {
            () if from == to => Bytes(from).to_string(),
            () => format!("{} to {}", Bytes(from), Bytes(to)),
        };
        format!("{} of {size}", DIRECTIONS[i])
    };
    let used: Vec<String> = [READ, WRITE, TRIM].into_iter().filter(|i| job.directions[*i]).map(of).collect();
    let mut text = if job.random { "random ".to_owned() } else { "sequential ".to_owned() };
    text += &used.join(" and ");
    if job.reads() && job.writes() {
        text += &format!(", {} % reads", job.read_percent);
    }
    match &job.distribution {
        _ if !job.random => {}
        Distribution::Uniform => {}
        Distribution::Skewed(Shape::Zipf { theta, .. }) => text += &format!(", zipf {theta}"),
        Distribution::Skewed(Shape::Pareto { h, .. }) => text += &format!(", pareto {h}"),
        Distribution::Skewed(Shape::Normal { .. }) => text += ", normally distributed",
        Distribution::Zoned(_) | Distribution::ZonedBytes(_) => text += ", by zones",
        Distribution::Sequence(..) => text += ", in a sequence of blocks",
    }
    if job.verify.is_some_and(|verify| verify.reads) && job.writes() {
        text += ", read again";
    }
    text
}

fn files(job: &Job, size: &str) -> String {
    match &job.files[..] {
        [file] => format!("{size} in {}", file.name),
        files => {
            let order = match job.service.order {
                FileOrder::RoundRobin => "in turn",
                FileOrder::Sequential => "one after another",
                FileOrder::Random | FileOrder::Skewed(_) => "at random",
            };
            format!("{size} in {} files {order}", files.len())
        }
    }
}

fn durability(job: &Job) -> Vec<String> {
    let every = |call: &str, every: u64| (every > 0).then(|| format!("{call} after {every} writes"));
    let mut words: Vec<String> =
        [every("fsync", job.fsync), every("fdatasync", job.fdatasync)].into_iter().flatten().collect();
    if job.durable != Durable::No {
        words.push("each write durable".to_owned());
    }
    if job.end_fsync {
        words.push("fsync at the end".to_owned());
    }
    words
}

fn pace(job: &Job) -> Vec<String> {
    let rate = |i: usize| match job.rate[i].filter(|_| job.directions[i])? {
        Rate::Bytes(bytes) => Some(format!("{}/s of {}", Bytes(bytes), DIRECTIONS[i])),
        Rate::Operations(operations) => Some(format!("{operations} {} a second", DIRECTIONS[i])),
    };
    let mut words: Vec<String> = [READ, WRITE, TRIM].into_iter().filter_map(rate).collect();
    if job.think.0 > 0 {
        words.push(format!(
            "pauses of {} after {} operations",
            numbers::time(job.think.as_secs_f64()),
            job.think_every
        ));
    }
    words
}

fn end(job: &Job) -> Vec<String> {
    let mut words = Vec::new();
    if job.starts_after.0 > 0 {
        words.push(format!("begins after {}", numbers::time(job.starts_after.as_secs_f64())));
    }
    match job.runtime {
        Some(runtime) if job.time_based => {
            words.push(format!("for {}", numbers::time(runtime.as_secs_f64())))
        }
        Some(runtime) => words.push(format!("for at most {}", numbers::time(runtime.as_secs_f64()))),
        None => {}
    }
    if let Some(bytes) = job.io_size {
        words.push(format!("until {} are done", Bytes(bytes)));
    }
    if job.loops > 1 && !job.time_based {
        words.push(format!("{} loops", job.loops));
    }
    let removals =
        [(job.unlinks_in_loops, "files removed between loops"), (job.unlinks, "files removed at the end")];
    words.extend(removals.iter().filter(|(happens, _)| *happens).map(|(_, what)| (*what).to_owned()));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_is_said_once_and_only_where_it_matters() {
        let said = |options: &str| {
            let text = format!("[a]\nsize=1m\nbs=4k\n{}\n", options.replace(' ', "\n"));
            JobFile::parse(&text).map_or_else(|e| e.to_string(), |file| file.description().to_string())
        };
        let cache = "through the page cache";
        let plain = "sequential writes of 4 KiB";
        #[rustfmt::skip]
        let rows = [
            ("rw=write", format!("{plain}; {cache}; 1 MiB in a.0.0")),
            ("rw=read bsrange=4k-16k direct=1", "sequential reads of 4 KiB to 16 KiB; direct; 1 MiB in a.0.0".to_owned()),
            ("rw=randrw rwmixread=70 bs=4k,8k", format!("random reads of 4 KiB and writes of 8 KiB, 70 % reads; {cache}; 1 MiB in a.0.0")),
            ("rw=randwrite random_distribution=zipf:1.2", format!("random writes of 4 KiB, zipf 1.2; {cache}; 1 MiB in a.0.0")),
            ("rw=randwrite random_distribution=pareto:0.3", format!("random writes of 4 KiB, pareto 0.3; {cache}; 1 MiB in a.0.0")),
            ("rw=randwrite random_distribution=normal:10", format!("random writes of 4 KiB, normally distributed; {cache}; 1 MiB in a.0.0")),
            ("rw=randwrite random_distribution=zoned:50/10:50/90", format!("random writes of 4 KiB, by zones; {cache}; 1 MiB in a.0.0")),
            ("rw=write numjobs=3", format!("{plain}; 3 processes; {cache}; 1 MiB in a.0.0")),
            ("rw=write ioengine=libaio iodepth=8 direct=1", format!("{plain}; 8 at a time; direct; 1 MiB in a.0.0")),
            ("rw=write nrfiles=4", format!("{plain}; {cache}; 1 MiB in 4 files in turn")),
            ("rw=write nrfiles=4 file_service_type=sequential", format!("{plain}; {cache}; 1 MiB in 4 files one after another")),
            ("rw=write nrfiles=4 file_service_type=random", format!("{plain}; {cache}; 1 MiB in 4 files at random")),
            ("rw=write fsync=5 end_fsync=1", format!("{plain}; {cache}; 1 MiB in a.0.0; fsync after 5 writes; fsync at the end")),
            ("rw=write fdatasync=2", format!("{plain}; {cache}; 1 MiB in a.0.0; fdatasync after 2 writes")),
            ("rw=write sync=1", format!("{plain}; {cache}; 1 MiB in a.0.0; each write durable")),
            ("rw=write rate=1m", format!("{plain}; {cache}; 1 MiB in a.0.0; 1 MiB/s of writes")),
            ("rw=write rate_iops=50", format!("{plain}; {cache}; 1 MiB in a.0.0; 50 writes a second")),
            ("rw=write thinktime=2ms thinktime_blocks=3", format!("{plain}; {cache}; 1 MiB in a.0.0; pauses of 2.000 ms after 3 operations")),
            ("rw=write runtime=60", format!("{plain}; {cache}; 1 MiB in a.0.0; for at most 60.00 s")),
            ("rw=write runtime=60 time_based loops=3", format!("{plain}; {cache}; 1 MiB in a.0.0; for 60.00 s")),
            ("rw=write startdelay=3 io_size=8m", format!("{plain}; {cache}; 1 MiB in a.0.0; begins after 3.000 s; until 8 MiB are done")),
            ("rw=write loops=3 unlink=1", format!("{plain}; {cache}; 1 MiB in a.0.0; 3 loops; files removed at the end")),
        ];
        let seen = rows.each_ref().map(|(options, _)| (*options, said(options)));
        let expected = rows.map(|(options, text)| (options, format!("a: {text}\n")));
        let wrong: Vec<_> = seen.iter().zip(&expected).filter(|(seen, expected)| seen != expected).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
