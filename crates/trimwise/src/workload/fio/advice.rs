//! How to make a job file fit in the free space.

use std::collections::BTreeSet;

use super::layout::{Plan, laid_out};
use super::text::split_overrides;
use super::{JobFile, Size, options, values};
use crate::units::Bytes;

impl JobFile {
    /// Describes what makes the files fit in `free`, for the end of a sentence. `argument` is what follows `job:`.
    pub fn smaller(&self, argument: &str, free: Bytes) -> String {
        let has_filesize = |plan: &Plan| plan.file_size.is_some();
        let mut offsets = Vec::new();
        if self.plans.iter().any(|plan| plan.offset != Size::Bytes(0)) {
            offsets.push(("offset", 0));
        }
        if self.plans.iter().any(|plan| plan.increment != Size::Bytes(0)) {
            offsets.push(("offset_increment", 0));
        }
        // Files that several processes share are counted once.
        let files: BTreeSet<&str> = self.plans.iter().flat_map(Plan::paths).collect();
        let per_file = self.plans.iter().map(|plan| if has_filesize(plan) { 1 } else { plan.names.len() });
        let processes = files.len() / per_file.min().unwrap_or(1).max(1);
        let power = free.0.checked_div(processes as u64).and_then(u64::checked_ilog2);
        let bytes = power.map_or(0, |power| 1 << power);
        let mut sizes = Vec::new();
        if !self.plans.iter().all(has_filesize) {
            sizes.push(("size", bytes));
        }
        if self.plans.iter().any(has_filesize) {
            sizes.push(("filesize", bytes));
        }
        let both = [&sizes[..], &offsets[..]].concat();
        let fits = |changes: &&[(&str, u64)]| {
            let plans: Vec<Plan> = self.plans.iter().map(|plan| plan.with(changes)).collect();
            let jobs = laid_out(&plans, None);
            jobs.is_ok_and(|jobs| Self { jobs, plans, ..self.clone() }.needed() <= free)
        };
        let Some(changes) = [&offsets[..], &sizes, &both].into_iter().find(fits) else {
            return "fewer processes or smaller blocks".to_owned();
        };
        let (file, overrides) = split_overrides(argument);
        let mut example = file.to_owned();
        for (name, value) in overrides {
            let is_replaced = |known: &str| changes.iter().any(|(change, _)| *change == known);
            match options::find(&name) {
                Some((known, _)) if is_replaced(known) => {}
                _ if value.is_empty() => example += &format!(":{name}"),
                _ => example += &format!(":{name}={value}"),
            }
        }
        for (name, bytes) in changes {
            example += &format!(":{name}={}", values::written(*bytes));
        }
        let names: Vec<String> = changes.iter().map(|(name, _)| format!("{name}=")).collect();
        format!("smaller files: {} after the file's name, as in job:{example}", names.join(" and "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_for_smaller_files_fits_and_replaces_what_was_given() {
        let free = Bytes::mib(100);
        for (text, argument, advice) in [
            ("[a]\nnumjobs=8", "F:size=1g", "F:size=8m"),
            ("[a]\nsize=1g\n[b]\nsize=2g", "F:bs=8k:time_based", "F:bs=8k:time_based:size=32m"),
            ("[a]\nsize=16m\noffset=60g", "F:size=8m", "F:size=8m:offset=0"),
            ("[a]\nsize=200m\noffset=10m", "F", "F:size=64m"),
            ("[a]\nsize=200m\noffset=60g", "F:rw=read", "F:rw=read:size=64m:offset=0"),
            ("[a]\nsize=8m\nnumjobs=4\noffset_increment=1g", "F", "F:offset_increment=0"),
            ("[a]\nfilesize=1g\nnrfiles=10", "F:nr_files=2", "F:nr_files=2:filesize=32m"),
            ("[a]\nsize=1g\nfilename=x\nnumjobs=100", "F", "F:size=64m"),
        ] {
            let read = |argument: &str| JobFile::read(text, &split_overrides(argument).1, &()).unwrap();
            let given = read(argument);
            assert!(given.needed() > free, "{text}");
            let shown = given.smaller(argument, free);
            assert!(shown.ends_with(&format!(", as in job:{advice}")), "{text}: {shown}");
            assert!(read(advice).needed() <= free, "{text}: {advice}");
        }
        let many = JobFile::parse("[a]\nsize=1g\nbs=4m\nnumjobs=100").unwrap();
        assert_eq!(many.smaller("F", free), "fewer processes or smaller blocks");
    }
}
