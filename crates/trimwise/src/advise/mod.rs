//! Advice on a policy and its settings: a search among those that a stock host can apply.
//!
//! Trying everything takes each candidate as many repetitions as the best one needs. Most are far off after one, and
//! many are the same: a gate whose watermarks the workload never crosses is `commit` or `off`. So the search
//!
//! 1. runs a coarse choice of candidates once, and the neighbours of the best of them ([`Search`]);
//! 2. counts those with identical runs as one;
//! 3. halves the field while it doubles the repetitions (successive halving: Jamieson and Talwalkar, AISTATS 2016).
//!
//! Repetitions differ by seed and by the phase of the commit timer, and all candidates get the same ones. So candidates
//! are compared in pairs, and what a repetition has in common cancels out.
//!
//! Whoever picks the best of many by noisy figures picks, in part, the luckiest ("winner's curse"). So the gain is not
//! that of the search: the winner and the usual choices run again, with a seed that the search did not use, and the
//! verdict on those runs is the advice.

mod outcome;
mod search;
mod shortlist;
mod space;

pub use outcome::{Cost, Difference, costs};
pub use search::{Job, Node, Observation, REPS_MAX, Rounds, Search};
pub use space::{Candidate, Gated, LeftOut, Place, Space};
