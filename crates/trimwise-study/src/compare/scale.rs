//! Scales drive, memory and work down together, so that a short run answers for a person's drive.
//!
//! A smaller drive with the same work would be busier. So the work shrinks with the drive, but only until its rare
//! events would be too few ([`Workload::scale_min`]). The drive shrinks until its superblocks would have to shrink too
//! ([`SsdConfig::intact_bytes`]). Both have the larger of the two scales, but no drive is above [`LARGEST`]. Work that
//! cannot shrink runs on the whole drive, within that limit.

use trimwise::numbers::two_digits;
use trimwise::ssd::SsdConfig;
use trimwise::units::Bytes;
use trimwise::workload::postmark::PostmarkConfig;

use super::workload::{Kind, Workload};
use crate::defaults;

/// The size to which a drive may shrink if the work allows it. The built-in default workload is meant for this size,
/// and grows with the drive: a mail spool that fits into a laptop's memory would ask nothing of its drive.
const SMALLEST: Bytes = Bytes::gib(16);

/// The largest drive that is modelled without `--full-size`: it takes seconds to age, and 1 GiB of memory.
const LARGEST: Bytes = Bytes::gib(256);

/// Shares this close to one are rounded to it.
const ROUNDING: f64 = 0.005;

/// The modelled part of a drive and its work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The modelled size.
    pub capacity: Bytes,
    /// The modelled size as a share of the drive's.
    pub drive: f64,
    /// The modelled work as a share of the whole.
    pub work: f64,
    /// The modelled work as a share of the named workload.
    of_named: f64,
    /// Why the work does not shrink.
    fixed: Option<&'static str>,
}

impl Scale {
    /// Chooses the scale of a drive of size `whole`, for which `profile` stands.
    pub fn of(whole: Bytes, profile: &SsdConfig, workload: &Workload, is_full_size: bool) -> Self {
        let grows = workload.argument == defaults::WORKLOAD_AT_ONCE;
        let (least, fixed) = match workload.scale_min() {
            Ok(_) if grows => (0.0, None),
            Ok(least) => (least, None),
            Err(why) => (1.0, Some(why)),
        };
        let most = whole.min(Bytes(profile.capacity_bytes));
        // Work that is short next to its drive depends on the size of superblocks; the default writes half of it.
        let smallest = if grows { SMALLEST } else { SMALLEST.max(Bytes(profile.intact_bytes())) };
        let wanted = Bytes((whole.0 as f64 * least) as u64).max(smallest).min(LARGEST);
        let capacity = if is_full_size { most } else { most.min(wanted) };
        let drive = rounded(capacity.0 as f64 / whole.0.max(1) as f64);
        let work = rounded(drive.max(least));
        let of_named = if grows { capacity.0 as f64 / SMALLEST.0 as f64 } else { work };
        Self { capacity, drive, work, of_named, fixed }
    }

    /// Says in a sentence or two what the figures stand for. `drive` describes the drive in words.
    pub fn stands_for(&self, memory: Option<Bytes>, is_over_days: bool, drive: &str) -> String {
        let Self { capacity, work, .. } = *self;
        if self.drive == 1.0 && work == 1.0 {
            return format!("Modelled whole: the figures are those of {drive}.");
        }
        let memory = memory.map_or(String::new(), |memory| format!(", {memory} memory"));
        let of = if is_over_days { "each day's work" } else { "the work" };
        let mut text =
            format!("Modelled at {}: {capacity} drive{memory}, {} of {of}", one_in(self.drive), part(work));
        if work > self.drive {
            text += &format!(" ({})", self.fixed.unwrap_or(TOO_FEW));
        }
        text += &match work {
            1.0 => format!("; times and bytes are those of {drive}."),
            part_of => format!("; times and bytes are {} of those of {drive}.", part(part_of)),
        };
        if work > self.drive {
            text += &format!(
                " For its size, the modelled drive has {} times as much to do.",
                two_digits(work / self.drive)
            );
        }
        text
    }
}

const TOO_FEW: &str = "less would show nothing";

impl Workload {
    /// Returns the smallest part of the workload that still shows what the whole shows, at most 1.
    ///
    /// # Errors
    ///
    /// Why the workload cannot be made smaller.
    pub fn scale_min(&self) -> Result<f64, &'static str> {
        match &self.kind {
            Kind::Postmark(run, _) => Ok(run.config.scale_min()),
            Kind::Program(program, _) => Ok(program.scale_min()),
            Kind::Timed(_) => Err("it times one operation"),
            Kind::Trace(_) => Err("a trace does not shrink"),
            Kind::Command(_) => Err("a program does not shrink"),
        }
    }

    /// Returns the part of the workload that runs at a scale.
    pub fn scaled(&self, scale: &Scale) -> Self {
        let factor = scale.of_named;
        let mut scaled = self.clone();
        scaled.scale = factor;
        match &mut scaled.kind {
            _ if factor == 1.0 => {}
            Kind::Postmark(run, text) => {
                run.config = run.config.scaled(factor);
                // A guest reads the text: the last setting before `run` counts.
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                let at = run.line.map_or(lines.len(), |line| line - 1).min(lines.len());
                let PostmarkConfig { number, transactions, .. } = run.config;
                lines.insert(at, format!("set number {number}\nset transactions {transactions}"));
                *text = lines.join("\n") + "\n";
                run.line = run.line.map(|line| line + 2);
            }
            Kind::Program(program, _) => *program = program.scaled(factor),
            Kind::Timed(_) | Kind::Trace(_) | Kind::Command(_) => {}
        }
        scaled
    }
}

fn rounded(share: f64) -> f64 {
    if (share - 1.0).abs() < ROUNDING { 1.0 } else { share }
}

/// A share as a fraction: `1/4`.
fn one_in(share: f64) -> String {
    if share < 1.0 { format!("1/{}", two_digits(1.0 / share)) } else { "full size".to_owned() }
}

/// A share in words, before "of".
fn part(share: f64) -> String {
    let words = [
        ("1", "all"),
        ("2", "half"),
        ("3", "a third"),
        ("4", "a quarter"),
        ("8", "an eighth"),
        ("16", "a sixteenth"),
    ];
    let one_in = two_digits(1.0 / share);
    let word = words.iter().find(|(n, _)| *n == one_in);
    word.map_or_else(|| format!("1/{one_in}"), |(_, word)| (*word).to_owned())
}

/// A drive's size as it is sold: `256 GB`.
pub(super) fn as_sold(size: Bytes) -> String {
    let gb = size.0 as f64 / 1e9;
    if gb >= 1000.0 { format!("{} TB", two_digits(gb / 1000.0)) } else { format!("{gb:.0} GB") }
}

#[cfg(test)]
mod tests {
    use trimwise::profile::Profile;
    use trimwise::workload::timed::Timed;

    use super::*;
    use crate::compare::CompareRequest;

    fn workload(argument: &str) -> Workload {
        Workload::of(&CompareRequest { workload: argument.to_owned(), ..CompareRequest::default() }).unwrap()
    }

    /// With superblocks of 128 MiB.
    fn profile(gib: u64) -> SsdConfig {
        let config = Profile::embedded("sata-generic").unwrap().config;
        SsdConfig { capacity_bytes: Bytes::gib(gib).0, ..config }
    }

    fn scale(gb: u64, argument: &str) -> Scale {
        Scale::of(Bytes(gb * 1_000_000_000), &profile(4096), &workload(argument), false)
    }

    #[test]
    fn work_and_drive_shrink_together_down_to_what_tells_something() {
        // A quarter of the default is the least, and no drive is above the largest.
        for (gb, argument, capacity_gib, drive, work) in [
            (16, "maildir", 14.9, 1.0, 1.0),
            (256, "maildir", 59.6, 0.25, 0.25),
            (256, "maildir:scale=100", 32.0, 0.1342, 0.1342),
            (64, "maildir", 32.0, 0.5369, 0.5369),
            (256, "default", 16.0, 0.0671, 0.0671),
            (2000, "maildir", 256.0, 0.1374, 0.25),
            (256, "append", 238.4, 1.0, 1.0),
            (1000, "append", 256.0, 0.2749, 1.0),
        ] {
            let scale = scale(gb, argument);
            assert!(
                (scale.capacity.0 as f64 / (1u64 << 30) as f64 - capacity_gib).abs() < 0.1,
                "{gb} {argument}: {scale:?}"
            );
            assert!(
                (scale.drive - drive).abs() < 1e-3 && (scale.work - work).abs() < 1e-3,
                "{gb} {argument}: {scale:?}"
            );
        }
        let half = Scale::of(Bytes::gib(1000), &profile(500), &workload("default"), true);
        assert_eq!(
            (half.capacity, half.drive, half.work),
            (Bytes::gib(500), 0.5, 0.5),
            "its profile is smaller"
        );
    }

    #[test]
    fn what_the_figures_stand_for_is_said_in_a_sentence() {
        let say = |gb, argument: &str, is_over_days| {
            scale(gb, argument).stands_for(Some(Bytes::gib(4)), is_over_days, &format!("your {gb} GB drive"))
        };
        assert_eq!(say(16, "maildir", false), "Modelled whole: the figures are those of your 16 GB drive.");
        assert_eq!(
            say(256, "desktop", true),
            "Modelled at 1/4: 59.6 GiB drive, 4 GiB memory, a quarter of each day's work; times and bytes are a quarter of \
             those of your 256 GB drive."
        );
        assert_eq!(
            say(2000, "maildir", false),
            "Modelled at 1/7.3: 256 GiB drive, 4 GiB memory, a quarter of the work (less would show nothing); times and \
             bytes are a quarter of those of your 2000 GB drive. For its size, the modelled drive has 1.8 times as much to do."
        );
        assert_eq!(
            say(1000, "append", false),
            "Modelled at 1/3.6: 256 GiB drive, 4 GiB memory, all of the work (it times one operation); times and bytes \
             are those of your 1000 GB drive. For its size, the modelled drive has 3.6 times as much to do."
        );
    }

    #[test]
    fn a_guest_reads_the_scaled_numbers_too() {
        // The default stays as it is on 16 GiB, and grows with the modelled drive.
        let scaled = |gb| workload("default").scaled(&scale(gb, "default"));
        let scaled = [scaled(256), scaled(4)];
        let configs = scaled.each_ref().map(|scaled| match &scaled.kind {
            Kind::Postmark(run, text) => (run, text),
            other => panic!("{other:?}"),
        });
        assert_eq!((configs[0].0.config.number, configs[0].0.config.transactions), (8_000, 80_000));
        let (run, text) = configs[1];
        let read = PostmarkConfig::parse(text, "scaled").unwrap().runs;
        assert_eq!((read[0].config.clone(), read[0].line), (run.config.clone(), run.line));
        assert_eq!((run.config.number, run.config.transactions), (1_863, 18_626));
        let timed: Timed = "append".parse().unwrap();
        assert!(
            matches!(workload("append").scaled(&scale(1000, "append")).kind, Kind::Timed(same) if same == timed)
        );
    }

    #[test]
    fn drives_have_the_size_that_they_are_sold_by() {
        let sizes = [256_060_514_304, 1_000_204_886_016, 3_840_755_982_336, 15_800_000_000]
            .map(|size| as_sold(Bytes(size)));
        assert_eq!(sizes, ["256 GB", "1 TB", "3.8 TB", "16 GB"]);
    }
}
