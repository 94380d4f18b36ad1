//! Runs on several threads, results in order.
//!
//! Each run is a pure function of its number, so the number of threads affects nothing but the time.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use trimwise::profile::Profile;
use trimwise::units::{Bytes, UNIT_BYTES};

/// Calls `run` for 0 to `count - 1` on up to `jobs` threads and returns the results in that order.
///
/// After a failure no further run starts; those already running finish. Numbers are dealt in order, so everything below
/// a failed number was started too, and the failure with the lowest number, which is returned, is the same for any
/// `jobs`.
pub fn run_ordered<T: Send, E: Send>(
    jobs: usize,
    count: usize,
    run: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    match run_finished(jobs, count, run) {
        (_, Some(failure)) => Err(failure),
        (results, None) => Ok(results),
    }
}

/// Like [`run_ordered`], but returns the finished results together with the failure, if there is one.
pub fn run_finished<T, E>(
    jobs: usize,
    count: usize,
    run: impl Fn(usize) -> Result<T, E> + Sync,
) -> (Vec<T>, Option<E>)
where
    T: Send,
    E: Send,
{
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let results: Vec<Mutex<Option<Result<T, E>>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = results.get(index) else { break };
            let result = run(index);
            if result.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            *slot.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs.clamp(1, count.max(1)) {
            // If the system refuses another thread, the existing ones do the work.
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    let (mut finished, mut failure) = (Vec::new(), None);
    // A slot can be empty only after a failure.
    for slot in results {
        match slot.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            Some(Ok(result)) => finished.push(result),
            Some(Err(error)) => failure = failure.or(Some(error)),
            None => {}
        }
    }
    (finished, failure)
}

pub fn memory_of_run(device: &Profile) -> Bytes {
    // Maps of the device and of the file system, with entries per unit, and caches.
    const BYTES_PER_UNIT: u64 = 12;
    const OVERHEAD: Bytes = Bytes::mib(200);
    Bytes(device.config.capacity_bytes / UNIT_BYTES * BYTES_PER_UNIT + OVERHEAD.0)
}

/// Number of parallel runs by default: one for each core, as long as they fit in memory.
pub fn default_jobs(bytes_per_run: Bytes) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    jobs_that_fit(cores, available_memory(Path::new("/")), bytes_per_run)
}

/// Checks that this much memory is available. The error says how much there is.
pub fn check_memory(needed: Bytes) -> Result<(), String> {
    fits_in(needed, available_memory(Path::new("/")))
}

fn fits_in(needed: Bytes, available: Option<Bytes>) -> Result<(), String> {
    match available {
        Some(available) if available < needed => {
            Err(format!("needs {needed} of this computer's memory, and {available} are available"))
        }
        _ => Ok(()),
    }
}

/// Returns how many runs fit into 70 % of the available memory, at least one: other programs need the rest.
fn jobs_that_fit(cores: usize, available: Option<Bytes>, bytes_per_run: Bytes) -> usize {
    let Some(available) = available else { return cores };
    let fit = available.0 / 100 * 70 / bytes_per_run.0.max(1);
    usize::try_from(fit).unwrap_or(cores).clamp(1, cores.max(1))
}

/// Returns the memory of the computer, or what the control groups of this process leave of it: containers and services
/// have such limits.
fn available_memory(root: &Path) -> Option<Bytes> {
    let of_computer = fs::read_to_string(root.join("proc/meminfo")).ok().and_then(|text| available(&text));
    of_computer.into_iter().chain(left_by_groups(root)).min()
}

fn available(meminfo: &str) -> Option<Bytes> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes::kib(kib))
}

/// Returns the memory that the limits of this process's control groups leave; `None` without limits.
fn left_by_groups(root: &Path) -> Option<Bytes> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let of_line = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (base, limit, used) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max", "memory.current"),
            "memory" => ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
            _ => return None,
        };
        let base = root.join(base);
        let group = base.join(path.trim_start_matches('/'));
        let up = group.ancestors().take_while(|group| group.starts_with(&base));
        up.filter_map(|group| left_by_group(group, limit, used)).min()
    };
    groups.lines().filter_map(of_line).min().map(Bytes)
}

fn left_by_group(group: &Path, limit: &str, used: &str) -> Option<u64> {
    let text = |name: &str| fs::read_to_string(group.join(name)).ok();
    // Without a limit the file says `max`.
    let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
    let stat = text("memory.stat").unwrap_or_default();
    // The kernel reclaims cached files before it runs out of memory.
    let cached = |line: &str| {
        let (name, bytes) = line.split_once(' ')?;
        ["active_file", "inactive_file"].contains(&name).then(|| bytes.parse::<u64>().ok()).flatten()
    };
    let cached: u64 = stat.lines().filter_map(cached).sum();
    Some(number(limit)?.saturating_sub(number(used)?.saturating_sub(cached)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn results_come_in_order_for_any_number_of_threads() {
        for jobs in [1, 2, 7, 100] {
            let results: Result<Vec<usize>, ()> = run_ordered(jobs, 20, |i| {
                std::thread::sleep(Duration::from_micros(((i * 7) % 5) as u64 * 200));
                Ok(i * i)
            });
            assert_eq!(results, Ok((0..20).map(|i| i * i).collect()));
        }
        assert_eq!(run_ordered(4, 0, |_| Err::<(), ()>(())), Ok(vec![]));
    }

    #[test]
    fn the_first_failure_in_order_is_reported_though_a_later_one_came_earlier() {
        for jobs in [1, 3] {
            let result: Result<Vec<()>, usize> = run_ordered(jobs, 9, |i| match i {
                1 => {
                    std::thread::sleep(Duration::from_millis(20));
                    Err(1)
                }
                2 => Err(2),
                _ => Ok(()),
            });
            assert_eq!(result, Err(1));
        }
    }

    #[test]
    fn finished_results_are_returned_along_with_a_failure() {
        let ran = run_finished(1, 9, |i| if i == 2 { Err("no") } else { Ok(i) });
        assert_eq!(ran, (vec![0, 1], Some("no")));
        assert_eq!(run_finished(3, 3, Ok::<_, ()>), (vec![0, 1, 2], None));
    }

    #[test]
    fn a_device_of_a_terabyte_takes_three_gigabytes() {
        let bytes = memory_of_run(&Profile::embedded("nvme-generic").unwrap());
        assert!((Bytes::gib(2)..Bytes::gib(4)).contains(&bytes), "{bytes}");
    }

    #[test]
    fn what_does_not_fit_at_all_is_refused_with_numbers() {
        assert_eq!(fits_in(Bytes::gib(1), None), Ok(()), "it is unknown");
        assert_eq!(fits_in(Bytes::gib(1), Some(Bytes::gib(1))), Ok(()));
        let error = fits_in(Bytes::gib(2), Some(Bytes::mib(1536))).unwrap_err();
        assert_eq!(error, "needs 2 GiB of this computer's memory, and 1.5 GiB are available");
    }

    #[test]
    fn no_more_runs_than_the_memory_holds() {
        let text = "MemTotal:       16000000 kB\nMemFree:  1 kB\nMemAvailable:    8388608 kB\n";
        assert_eq!(available(text), Some(Bytes::gib(8)));
        assert_eq!(available("MemFree: 1 kB\nMemAvailable: much\n"), None);
        let jobs = |gib| jobs_that_fit(16, Some(Bytes::gib(8)), Bytes::gib(gib));
        assert_eq!([jobs(0), jobs(1), jobs(2), jobs(3), jobs(100)], [16, 5, 2, 1, 1]);
        assert_eq!(jobs_that_fit(4, None, Bytes::gib(100)), 4);
    }

    #[test]
    fn a_control_group_s_limit_counts_like_less_memory() {
        let root = std::env::temp_dir().join(format!("trimwise-groups-{}", std::process::id()));
        let write = |name: &str, text: &str| {
            let file = root.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write("proc/meminfo", "MemAvailable: 8388608 kB\n");
        assert_eq!(available_memory(&root), Some(Bytes::gib(8)));
        write("proc/self/cgroup", "1:cpu:/\n0::/a/b\n");
        write("sys/fs/cgroup/a/b/memory.max", "max\n");
        write("sys/fs/cgroup/a/b/memory.current", "0\n");
        assert_eq!(available_memory(&root), Some(Bytes::gib(8)), "no limit");
        // That of a group above counts too; half of what it uses are cached files.
        let gib = |count: u64| (count << 30).to_string();
        write("sys/fs/cgroup/a/memory.max", &gib(4));
        write("sys/fs/cgroup/a/memory.current", &gib(2));
        write("sys/fs/cgroup/a/memory.stat", &format!("anon 5\ninactive_file {}\n", gib(1)));
        assert_eq!(available_memory(&root), Some(Bytes::gib(3)));
        write("proc/self/cgroup", "0::/\n4:memory:/box\n");
        write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", &gib(2));
        write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", &gib(1));
        assert_eq!(available_memory(&root), Some(Bytes::gib(1)));
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn nothing_is_begun_after_a_failure() {
        let begun = AtomicUsize::new(0);
        let result: Result<Vec<()>, ()> = run_ordered(1, 100, |i| {
            begun.fetch_add(1, Ordering::Relaxed);
            if i == 3 { Err(()) } else { Ok(()) }
        });
        assert_eq!(result, Err(()));
        assert_eq!(begun.into_inner(), 4);
    }
}
