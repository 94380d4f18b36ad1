//! `advise` next to an exhaustive search: on ten mixes of drive, workload and fullness, how much slower its choice is
//! than the best of all candidates, and how many of the runs it takes.
//!
//! All ten: `ADVISE=full cargo test --release -p trimwise-lab --test experiments advise:: -- --nocapture`; some of them, counted
//! from 0: `ADVISE=3,9`.
//!
//! The mixes were chosen before the search first ran on them, for variety: each kind of link and mapping, an SLC cache,
//! old and new drives, 40 to 85 % in use. They are small, because the exhaustive search is not.

use trimwise::advise::{Candidate, Job, Observation, REPS_MAX, Rounds, Search, Space};
use trimwise::compare::cell::{self, CellSpec, run_cell};
use trimwise::compare::judge::{Frame, judge};
use trimwise::compare::result::Cell;
use trimwise::compare::statistics::median;
use trimwise::compare::summary::Summary;
use trimwise::fs::host::HostConfig;
use trimwise::policy::{LinuxVersion, PolicyId, PolicySpec, Trimmer};
use trimwise::profile::Profile;
use trimwise::units::{Bytes, SimDuration, Utilization};
use trimwise::workload::postmark::PostmarkConfig;
use trimwise::workload::program::Program;
use trimwise_linux::pool;

/// The seed of the search and of the exhaustive one; the comparison has the next one, as in `trimwise advise`.
const SEED: u64 = 1;

/// A drive, its size in MiB, a workload, and how full.
type Mix = (&'static str, u64, &'static str, Utilization);

const MIXES: [Mix; 10] = [
    ("sata-small", 512, "postmark:500:10000:100000", Utilization::of(80)),
    ("ufs21-64gb", 512, "desktop:steps=3k,cache=32MiB", Utilization::of(70)),
    ("nvme-generic", 1024, "lsm:operations=200k,keys=60k", Utilization::of(60)),
    ("sata-500gb-slc", 1024, "unpack:packages=6,upgrades=40,layers=25,kept=2", Utilization::of(80)),
    (
        "nvme-500gb-dramless",
        1024,
        "oltp:transactions=9k,data=64MiB,checkpoint=16MiB,keep=16MiB",
        Utilization::of(50),
    ),
    ("sata-generic", 512, "maildir:messages=400,deliveries=5k", Utilization::of(85)),
    ("vendor2", 512, "postmark:300:7000:150000", Utilization::of(60)),
    ("vendor6", 512, "logs:total=400MiB,rotate=2MiB,keep=3", Utilization::of(70)),
    (
        "nvme-960gb-enterprise",
        1024,
        "segments:total=1GiB,partitions=4,segment=4MiB,keep=16MiB",
        Utilization::of(80),
    ),
    ("page-60gb-2009", 512, "maildir:messages=2k,deliveries=5k", Utilization::of(40)),
];

/// Those that the tier runs unless all are asked for.
const SAMPLED: [usize; 2] = [1, 5];

fn workload(text: &str) -> cell::Workload {
    match text.strip_prefix("postmark:").map(|numbers| numbers.split(':').map(|n| n.parse().unwrap())) {
        Some(mut numbers) => {
            let mut next = || -> u32 { numbers.next().unwrap() };
            let (number, transactions, size) = (next(), next(), next());
            PostmarkConfig {
                number,
                transactions,
                size_low: 1000,
                size_high: size,
                ..PostmarkConfig::default()
            }
            .into()
        }
        None => Program::parse(text, "").unwrap().into(),
    }
}

struct Bed {
    profile: Profile,
    workload: cell::Workload,
    utilization: Utilization,
}

impl Bed {
    fn of((drive, mib, text, used): Mix) -> Self {
        let mut profile = Profile::embedded(drive).unwrap();
        profile.config = profile.config.shrunk(Bytes::mib(mib).0).unwrap();
        Self { profile, workload: workload(text), utilization: used }
    }

    fn run(&self, policy: Trimmer, rep: u32, seed: u64) -> Cell {
        let spec = CellSpec {
            rep,
            seed,
            utilization: Some(self.utilization),
            // As small next to the drive as the command's defaults are.
            host: HostConfig::of(LinuxVersion::TODAY, Bytes(self.profile.config.capacity_bytes / 8)),
            ..CellSpec::new(self.profile.clone(), policy.spec(), self.workload.clone())
        };
        run_cell(&spec, Box::new(|_| ())).unwrap_or_else(|e| panic!("{}: {e}", self.profile.name))
    }

    fn all(&self, runs: &[(Trimmer, u32)], seed: u64) -> Vec<Cell> {
        let jobs = pool::default_jobs(pool::memory_of_run(&self.profile));
        let run = |i: usize| Ok::<_, ()>(self.run(runs[i].0, runs[i].1, seed));
        pool::run_ordered(jobs, runs.len(), run).unwrap()
    }

    fn search(&self, search: &mut Search, candidates: &[Candidate]) {
        let searched = search.run(|jobs, _| {
            let runs: Vec<_> = jobs.iter().map(|job| (candidates[job.candidate].policy, job.rep)).collect();
            let cells = self.all(&runs, SEED);
            (jobs.iter().copied().zip(cells.iter().map(Observation::of)).collect(), None::<()>)
        });
        searched.unwrap();
    }
}

/// What came of a mix.
struct Outcome {
    chosen: PolicyId,
    best: PolicyId,
    /// How much longer the chosen one takes than the best of the exhaustive search: its medians over all repetitions.
    loss_percent: f64,
    runs: usize,
    exhaustive_runs: usize,
}

fn compared(mix: Mix) -> Outcome {
    let bed = Bed::of(mix);
    let first = bed.run(Trimmer::Kernel(PolicySpec::OFF), 0, SEED);
    let space = Space::new(mix.3, SimDuration::from_nanos(first.duration_ns));
    let mut search = space.search();
    search.record(Job { candidate: 0, rep: 0 }, Observation::of(&first));
    bed.search(&mut search, &space.applicable);
    let node = trimwise::advise::Node { is_first: true, neighbours: Vec::new() };
    let mut changed = Search::new(vec![node; space.changed.len()], Rounds::BOUND);
    bed.search(&mut changed, &space.changed);
    // The bound, and the best of a changed kernel, are part of the comparison too.
    let shortlist = space.shortlist(&search);
    let each = |policy: &Trimmer| (0..REPS_MAX).map(|rep| (*policy, rep)).collect::<Vec<_>>();
    let cells = bed.all(&shortlist.iter().flat_map(each).collect::<Vec<_>>(), SEED + 1);
    let summary = Summary::of(&cells);
    let frame = Frame::of_study(summary.measure, None);
    let device = &summary.devices[0];
    let judged = judge(device, Some(&PolicyId::OFF), false, |p| p.means.is_attainable(), frame);
    let chosen = judged.policy.unwrap();
    let runs = search.total_runs() + changed.total_runs() + (shortlist.len() + 2) * REPS_MAX as usize;

    let policies: Vec<Trimmer> = space.applicable.iter().map(|c| c.policy).collect();
    let cells = bed.all(&policies.iter().flat_map(each).collect::<Vec<_>>(), SEED);
    let medians = cells.chunks(REPS_MAX as usize).map(|runs| {
        median(&runs.iter().map(|cell| Observation::of(cell).time_s).collect::<Vec<_>>()).unwrap()
    });
    let medians: Vec<(PolicyId, f64)> = policies.iter().map(|policy| (*policy).into()).zip(medians).collect();
    let (best, fastest) = medians.iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    let (_, time) = medians.iter().find(|(name, _)| *name == chosen).unwrap();
    Outcome {
        loss_percent: (time / fastest - 1.0) * 100.0,
        best: best.clone(),
        runs,
        exhaustive_runs: space.len() * REPS_MAX as usize,
        chosen,
    }
}

#[test]
fn the_advice_is_within_two_percent_of_the_best_of_all_with_a_quarter_of_the_runs() {
    let selected: Vec<usize> = match std::env::var("ADVISE") {
        Ok(all) if all == "full" => (0..MIXES.len()).collect(),
        Ok(some) => some.split(',').map(|i| i.parse().unwrap()).collect(),
        Err(_) => SAMPLED.to_vec(),
    };
    let mut failed = Vec::new();
    println!("| drive | workload | full | advised | best of all | loss | runs | share |");
    println!("|---|---|---|---|---|---|---|---|");
    for i in selected {
        let mix = MIXES[i];
        let Outcome { chosen, best, loss_percent, runs, exhaustive_runs } = compared(mix);
        let share = runs as f64 / exhaustive_runs as f64 * 100.0;
        let (drive, mib, workload, used) = mix;
        println!(
            "| {drive}, {mib} MiB | `{workload}` | {used} % | `{chosen}` | `{best}` | {loss_percent:.2} % | {runs} of \
             {exhaustive_runs} | {share:.1} % |"
        );
        if loss_percent > 2.0 || share > 25.0 {
            failed.push(i);
        }
    }
    assert!(failed.is_empty(), "mixes {failed:?}: see the table");
}
