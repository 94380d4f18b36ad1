//! The sequence of reviewers: write to a clean drive, wear it down, and write again: at once, after TRIM, after rest and
//! after an erase.
//!
//! Sources: the pages "TRIM Performance" of cdrlabs.com fill 80 % of a drive or all of it, write 4 KiB at random places
//! for 30 minutes, and measure at once, after half an hour of rest, and after a secure erase. AnandTech fills the drive,
//! writes 4 KiB at random all over it for 20 to 60 minutes at QD 32, and measures before and after a TRIM of everything.
//! The register (`profiles/measured/effects.toml`) has their figures under the names of [`Reviewed`].
//!
//! Their benchmarks write a file into free space, or over all of the drive. Here each measured write goes to the same
//! share of the region: behind the data, or at their beginning if they fill the drive. Between two of them the data stay,
//! but for a TRIM.

use std::fmt;
use std::str::FromStr;

use trimwise::block::{BlockDevice, BlockError, Operation};
use trimwise::units::{Bytes, Percent, SimDuration, UNIT_BYTES, UnitRange};

use super::load::{Action, Done, Order, Stream};
use super::result::Reviewed;
use super::settling::REST;
use super::spec::{DEPTH, Seconds};
use super::streams::{LARGE, throughput};
use super::{Bench, Findings, Found, Measured};

/// Share of the region that each measured write takes, as long as there is room behind the data.
const WRITE: Percent = Percent::whole(1);
const TORTURE: SimDuration = SimDuration::from_secs(30 * 60);

/// What the TRIM between the dirty write and the next one covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trimmed {
    All,
    /// All that the fill left free, as if the benchmark's file were deleted.
    Free,
    Nothing,
}

impl Trimmed {
    const WORDS: [(&str, Self); 3] = [("all", Self::All), ("free", Self::Free), ("none", Self::Nothing)];
}

impl fmt::Display for Trimmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::WORDS.iter().find(|(_, trimmed)| trimmed == self);
        f.write_str(word.map_or("", |(word, _)| word))
    }
}

impl FromStr for Trimmed {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::WORDS.iter().find(|(word, _)| *word == text).map(|(_, trimmed)| *trimmed).ok_or(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    pub fill: Percent,
    /// `None` for the default, which is limited in amount too.
    pub torture: Option<Seconds>,
    pub rest: Seconds,
    /// `None` for the default: what the fill left free, or all; nothing on a drive without TRIM.
    pub trimmed: Option<Trimmed>,
}

impl Sequence {
    /// The part of the region that is written when something is measured, by units.
    pub(super) fn written(&self, region: UnitRange) -> UnitRange {
        let filled = self.fill.of(region.units);
        match region.units - filled {
            0 => UnitRange::new(region.start, WRITE.of(region.units).max(1)),
            free => UnitRange::new(region.start.offset(filled), WRITE.of(region.units).clamp(1, free)),
        }
    }

    fn trimmed(&self, device: &impl BlockDevice) -> Trimmed {
        match self.trimmed {
            Some(trimmed) => trimmed,
            None if device.facts().trim.is_none() => Trimmed::Nothing,
            None if self.fill < Percent::ALL => Trimmed::Free,
            None => Trimmed::All,
        }
    }
}

impl<D: BlockDevice> Bench<'_, D> {
    pub(super) async fn reviewers(&mut self, sequence: Sequence) -> Result<Found, BlockError> {
        let Sequence { fill, torture, rest, .. } = sequence;
        let region = self.region;
        let filled = UnitRange::new(region.start, fill.of(region.units));
        let area = sequence.written(region);
        let trimmed = sequence.trimmed(self.device);
        let is_model = self.device.facts().is_model;
        let mut steps = Steps::default();

        self.phase(0.0, 0.05);
        self.renew().await?;
        let clean = self.step(&mut steps, "clean", area).await?;
        self.renew().await?;
        self.phase(0.05, 0.15);
        self.write_all(filled).await?;
        self.phase(0.2, 0.5);
        let twice = Bytes::from_units(filled.units.saturating_mul(2));
        let limit = self.limit(torture, TORTURE, twice);
        let writes = Stream::once(Action::Write, filled, Bytes(UNIT_BYTES), DEPTH);
        self.measured(&mut steps, "torture", Stream { order: Order::Random, limit, ..writes }).await?;
        self.phase(0.7, 0.05);
        let dirty = self.step(&mut steps, "dirty", area).await?;
        let after_trim = match trimmed {
            Trimmed::Nothing => None,
            Trimmed::All => Some(region),
            Trimmed::Free => Some(UnitRange::new(filled.end(), region.units - filled.units)),
        };
        let after_trim = match after_trim {
            None => None,
            Some(range) => {
                self.trim(range).await?;
                Some(self.step(&mut steps, "trimmed", area).await?)
            }
        };
        self.phase(0.75, 0.2);
        self.rest(rest).await?;
        let after_rest = self.step(&mut steps, "rested", area).await?;
        self.phase(0.95, 0.05);
        let after_erase = if is_model {
            self.renew().await?;
            Some(self.step(&mut steps, "erased", area).await?)
        } else {
            None
        };

        let over_clean = |rate: f64| rate / clean.max(f64::MIN_POSITIVE);
        let findings = Findings::Reviewers(Reviewed {
            fill_percent: fill.value(),
            trimmed: trimmed.to_string(),
            rest_s: self.settings.scale.time(SimDuration::from_secs(rest.into())).as_secs_f64(),
            dirty_over_clean: over_clean(dirty),
            after_trim_over_clean: after_trim.map(over_clean),
            after_rest_over_clean: over_clean(after_rest),
            after_erase_over_clean: after_erase.map(over_clean),
        });
        let notes = match (is_model, trimmed) {
            (false, _) => {
                vec!["a drive is erased with its vendor's tools only: clean means trimmed here".to_owned()]
            }
            (true, Trimmed::Nothing) if sequence.trimmed.is_none() => {
                vec!["the drive does not support TRIM: nothing is trimmed".to_owned()]
            }
            _ => Vec::new(),
        };
        let plots =
            if steps.lines.is_empty() { Vec::new() } else { vec![throughput("each write", steps.lines)] };
        Ok(Found { measured: steps.measured, findings, plots, notes })
    }

    /// Brings the drive into a clean state: an erase in the model, TRIM of the region and a rest on a real one.
    async fn renew(&mut self) -> Result<(), BlockError> {
        if self.device.facts().is_model {
            return self.erase().await.map(drop);
        }
        self.trim(self.region).await?;
        self.device.sleep(REST).await;
        Ok(())
    }

    async fn step(&mut self, steps: &mut Steps, what: &str, area: UnitRange) -> Result<f64, BlockError> {
        let done = self.measured(steps, what, Stream::once(Action::Write, area, LARGE, 1)).await?;
        Ok(done.mb_per_s())
    }

    /// Runs a stream of writes, and flushes, so that the next step does not pay for what the cache still holds.
    async fn measured(&mut self, steps: &mut Steps, what: &str, stream: Stream) -> Result<Done, BlockError> {
        let before = self.stats();
        let done = self.run_one(stream).await?;
        let amplification = self.amplification_since(before);
        self.device.perform(Operation::Flush).await?;
        let rates = done.intervals.rates(done.elapsed);
        let of_step =
            Measured::of(what, &done.writes, done.elapsed).spread(rates.iter().map(|&(_, rate)| rate));
        steps.measured.push(Measured { write_amplification: amplification, ..of_step });
        if rates.len() > 1 {
            steps.lines.push((what.to_owned(), rates));
        }
        Ok(done)
    }
}

#[derive(Default)]
struct Steps {
    measured: Vec<Measured>,
    lines: Vec<(String, Vec<(f64, f64)>)>,
}
