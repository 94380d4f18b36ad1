//! Shared by the papers' experiments: their policies on a real ext4, next to the model of that guest.
//!
//! A patched kernel has all of the policies, with discards inside the commit, one at a time, as the papers' kernels
//! had. A stock kernel has `off` and its own `commit`. The guest's processor takes no time, so the model's takes none
//! either.

use trimwise::compare::result::Target;
use trimwise::compare::watch::Issue;
use trimwise::fs::host::HostConfig;
use trimwise::policy::{PolicySpec, Trimmer};
use trimwise::units::{Bytes, SimDuration};
use trimwise::words;
use trimwise_uml::cell::{KernelPolicy, KernelTarget};
use trimwise_uml::disk::{Disk, TraceEntry, Traced};
use trimwise_uml::images::KernelImage;
use trimwise_uml::job::{FileSystem, Step};

use super::Request;
use crate::guests::{self, Ran, RealKernel};
use trimwise::failure::{Failure, Mistake, key, set};

/// A kernel that has the papers' policies.
pub(super) const KERNEL: &str = "6.12+ext4-trim:ext4";

#[derive(Clone, Debug)]
pub(super) struct Policy {
    /// Name in figures and claims; the papers call `commit` traditional.
    pub name: String,
    pub kernel: KernelPolicy,
    pub model: PolicySpec,
}

pub(super) struct RealExt4 {
    pub image: KernelImage,
    pub target: KernelTarget,
    pub memory: Bytes,
    pub host: HostConfig,
}

impl RealExt4 {
    /// Finds the kernel of a target, for guests with this much memory.
    pub fn new(target: &KernelTarget, memory: Bytes) -> Result<Self, Failure> {
        if target.file_system != FileSystem::Ext4 {
            let of = Mistake::of("on", Target::from(target)).because("the experiment is about ext4");
            return Err(of.expected("kernel:VERSION:ext4").fail());
        }
        let linux = target.kernel.version().parse::<trimwise::policy::LinuxVersion>();
        let linux = linux.map_err(|e| Mistake::that(e.to_string()).fail())?;
        Ok(Self {
            image: guests::image(target)?,
            target: target.clone(),
            memory,
            host: HostConfig::in_guest(linux, memory),
        })
    }

    /// Returns the experiment's policies that a target's kernel has.
    pub fn policies_of(target: &KernelTarget, names: &[&str]) -> Vec<Policy> {
        let policy = |name: &&str| {
            let mut model: PolicySpec = name.parse().ok()?;
            if target.has_ext4_trim() && model.without_gate() == PolicySpec::COMMIT {
                model = PolicySpec::SERIAL.behind(model.gate());
            }
            let kernel = KernelPolicy::of(Trimmer::Kernel(model), target).ok()?;
            Some(Policy { name: (*name).to_owned(), kernel, model })
        };
        names.iter().filter_map(policy).collect()
    }

    pub fn named(&self) -> Result<RealKernel, Failure> {
        guests::real_kernel(&self.image, &self.target)
    }

    pub fn mount(&self, policy: KernelPolicy) -> Step {
        Step::Mount { file_system: FileSystem::Ext4, options: policy.mount_options(&self.target) }
    }

    pub fn run(&self, request: &Request, disk: Disk, steps: Vec<Step>) -> Result<Ran, Failure> {
        Ran::on(&guests::guest(&self.image, self.memory, &request.bounds)?, disk, steps)
    }
}

/// Returns the step that makes an ext4, with which the papers' experiments begin.
pub(super) fn mkfs() -> Step {
    Step::Mkfs { file_system: FileSystem::Ext4, options: Vec::new() }
}

/// Selects the parts that `--only` names; all by default.
pub(super) fn chosen<T: Clone>(
    all: &[T],
    name: impl Fn(&T) -> String,
    only: &[String],
    what: &str,
) -> Result<Vec<T>, Failure> {
    let names: Vec<String> = all.iter().map(&name).collect();
    if let Some(part) = only.iter().find(|part| !names.contains(part)) {
        return Err(Mistake::of("only", part).expected(format!("{what}: {}", names.join(", "))).fail());
    }
    Ok(all.iter().filter(|one| only.is_empty() || only.contains(&name(one))).cloned().collect())
}

/// Rejects a choice of parts: in the model the whole experiment takes seconds.
pub(super) fn whole_in_model(only: &[String]) -> Result<(), Failure> {
    match only.first() {
        None => Ok(()),
        Some(part) => {
            let of = Mistake::of("only", part).because("the model runs all of it in seconds");
            Err(of.expected(words!["no ", key("only"), ", or ", set("on", "kernel")]).fail())
        }
    }
}

/// Returns how discards were issued, from the kernel's requests since the removal of the file.
pub(super) fn issue(requests: &[TraceEntry]) -> Issue {
    let discards = || requests.iter().filter(|request| request.kind == Traced::Discard);
    let (Some(first), Some(acknowledged)) = (discards().next(), discards().map(|d| d.done_ns).max()) else {
        return Issue::default();
    };
    // As in the model, the time counts from the last flush before the first TRIM, which made the removal durable.
    let flushes = requests.iter().filter(|r| r.kind == Traced::Flush && r.done_ns <= first.at_ns);
    let durable = flushes.map(|flush| flush.done_ns).max().unwrap_or(first.at_ns);
    Issue { commands: discards().count() as u64, time: SimDuration(acknowledged - durable) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(version: &str) -> KernelTarget {
        KernelTarget {
            kernel: version.parse().unwrap(),
            file_system: FileSystem::Ext4,
            options: String::new(),
        }
    }

    #[test]
    fn what_the_papers_call_traditional_is_in_the_commit_one_by_one_where_the_kernel_has_that() {
        let names = |version: &str| -> Vec<(String, String, String)> {
            let names = ["off", "commit", "lazy", "set:40:80", "judicious"];
            let policies = RealExt4::policies_of(&target(version), &names).into_iter();
            policies.map(|p| (p.name, p.kernel.to_string(), p.model.to_string())).collect()
        };
        let same = |name: &str| (name.to_owned(), name.to_owned(), name.to_owned());
        let serial = |name: &str, own: &str| (name.to_owned(), own.to_owned(), own.to_owned());
        assert_eq!(
            names("6.12+ext4-trim"),
            [same("off"), serial("commit", "serial"), same("lazy"), serial("set:40:80", "set:40:80+serial")]
        );
        assert_eq!(names("6.12"), [same("off"), same("commit")]);
    }

    fn entry(kind: Traced, at_ns: u64, done_ns: u64) -> TraceEntry {
        TraceEntry { at_ns, done_ns, kind, offset_bytes: 0, length_bytes: 4096, is_trim: false }
    }

    #[test]
    fn discards_are_timed_from_the_end_of_their_commit() {
        assert_eq!(issue(&[entry(Traced::Flush, 0, 5)]), Issue::default());
        let requests = [
            entry(Traced::Flush, 0, 5),
            entry(Traced::Write, 5, 6),
            entry(Traced::Flush, 6, 10),
            entry(Traced::Discard, 12, 40),
            entry(Traced::Discard, 13, 30),
            entry(Traced::Flush, 14, 60),
        ];
        assert_eq!(issue(&requests), Issue { commands: 2, time: SimDuration(30) });
    }

    #[test]
    fn an_unknown_part_names_the_known_ones() {
        let only = |part: &str| chosen(&[10, 20], ToString::to_string, &[part.to_owned()], "a utilization");
        assert_eq!(only("20").ok(), Some(vec![20]));
        assert!(
            matches!(only("30"), Err(Failure::Usage(m)) if m.to_string().contains("a utilization: 10, 20"))
        );
    }
}
