use super::search::{Rounds, Search};
use super::space::{Place, Space};
use crate::policy::PolicySpec;
use crate::policy::Trimmer;

impl Space {
    pub fn search(&self) -> Search {
        Search::new(self.nodes(), Rounds::ADVICE)
    }

    /// Returns the policies worth fresh runs: the usual choices, the two best of the search, and the best interval of
    /// sweeps, each once. `off` comes first, as the baseline.
    pub fn shortlist(&self, search: &Search) -> Vec<Trimmer> {
        let finalists = search.finalists();
        let policy = |i: usize| self.applicable.get(i).map(|c| c.policy);
        let mut policies = [PolicySpec::OFF, PolicySpec::COMMIT].map(Trimmer::Kernel).to_vec();
        policies.extend(finalists.iter().take(2).filter_map(|&i| policy(i)));
        policies.extend(self.best_interval(search).and_then(policy));
        policies.extend(&self.usual);
        let mut list: Vec<Trimmer> = Vec::new();
        for policy in policies {
            if !list.contains(&policy) {
                list.push(policy);
            }
        }
        list
    }

    fn best_interval(&self, search: &Search) -> Option<usize> {
        let best = search.finalists().first().copied()?;
        let excess = |i: usize| search.excess(i, best).map_or(f64::INFINITY, |(excess, _)| excess);
        let is_batch = |i: &usize| matches!(self.applicable[*i].place, Place::Batch { .. });
        let ran = (0..self.applicable.len()).filter(is_batch).filter(|&i| !search.seen(i).is_empty());
        ran.min_by(|&a, &b| excess(a).total_cmp(&excess(b)))
    }
}
