//! A part of a drive that stands for the whole: `--scale 1/16`.
//!
//! Capacity, superblocks, SLC cache and caches shrink together ([`SsdConfig::in_proportion`]), and with them the times
//! and amounts of tests. So as large a share of the drive is written in a sixteenth of the time, and rates, latencies and
//! ratios are those of the whole drive.

use std::fmt;
use std::str::FromStr;

use trimwise::ssd::{ConfigError, SsdConfig};
use trimwise::units::{Bytes, SimDuration};

/// The smallest scale that is accepted is one in this many.
const ONE_IN_MOST: u64 = 4096;
/// Amounts this close to their share, in percent of it, count as to scale.
const NEAR_PERCENT: f64 = 10.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    part: u64,
    whole: u64,
}

impl Scale {
    pub const FULL: Self = Self { part: 1, whole: 1 };

    pub fn value(self) -> f64 {
        self.part as f64 / self.whole as f64
    }

    /// Returns this part of an amount: at least 1, unless there is nothing.
    pub fn of(self, amount: u64) -> u64 {
        let part = u128::from(amount) * u128::from(self.part) / u128::from(self.whole);
        (part as u64).max(amount.min(1))
    }

    pub fn time(self, time: SimDuration) -> SimDuration {
        SimDuration::from_nanos(self.of(time.as_nanos()))
    }

    /// Returns the drive at this scale.
    ///
    /// # Errors
    /// If no drive of that size can resemble this one.
    pub fn drive(self, config: &SsdConfig) -> Result<SsdConfig, ConfigError> {
        config.in_proportion(self.of(config.capacity_bytes))
    }

    /// Lists the settings of a drive at this scale that are not to scale.
    pub fn exceptions(self, whole: &SsdConfig, small: &SsdConfig) -> Vec<String> {
        let superblock = |c: &SsdConfig| {
            let g = &c.geometry;
            u64::from(g.superblock_planes) * u64::from(g.pages_per_block) * u64::from(g.page_bytes)
        };
        let of_map = |c: &SsdConfig| c.mapping.map_cache().map_or(0, |cache| cache.bytes);
        // A superblock in SLC mode has a whole number of pages.
        let of_slc = |c: &SsdConfig, superblocks: u64| match &c.slc {
            Some(slc) => {
                let pages = c.geometry.pages_per_block;
                superblocks * superblock(c) / u64::from(pages) * u64::from(pages / slc.bits_per_cell)
            }
            None => 0,
        };
        let of_static =
            |c: &SsdConfig| of_slc(c, c.slc.as_ref().map_or(0, |slc| slc.static_superblocks.into()));
        let of_dynamic = |c: &SsdConfig| of_slc(c, c.capacity_bytes / superblock(c));
        let amounts = |c: &SsdConfig| {
            [
                ("a superblock", superblock(c)),
                ("the write cache", c.cache.bytes),
                ("the cache of the map", of_map(c)),
                ("the static SLC cache", of_static(c)),
                ("flash in SLC mode", of_dynamic(c)),
                (
                    "the free superblocks that collection keeps",
                    u64::from(c.gc.free_superblocks_min) * superblock(c),
                ),
                (
                    "the free superblocks of an idle drive",
                    u64::from(c.gc.idle_free_superblocks) * superblock(c),
                ),
            ]
        };
        let not_to_scale =
            amounts(whole).into_iter().zip(amounts(small)).filter_map(|((what, of), (_, is))| {
                let wanted = self.value() * of as f64;
                let is_near = (is as f64 - wanted).abs() <= wanted * NEAR_PERCENT / 100.0;
                (!is_near).then(|| format!("{what}: {} instead of {}", Bytes(is), Bytes(wanted as u64)))
            });
        not_to_scale.collect()
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.whole {
            1 => write!(f, "{}", self.part),
            whole => write!(f, "{}/{whole}", self.part),
        }
    }
}

impl FromStr for Scale {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            let is_short = (1..=9).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
            text.parse::<u64>().ok().filter(|_| is_short)
        };
        let read = match (text.split_once('/'), text.split_once('.')) {
            (Some((part, whole)), _) => number(part).zip(number(whole)),
            (None, Some((digits, decimals))) => number(digits).zip(number(decimals)).map(|(digits, part)| {
                let whole = 10u64.pow(decimals.len() as u32);
                (digits * whole + part, whole)
            }),
            (None, None) => number(text).map(|whole| (whole, 1)),
        };
        match read {
            Some((part, whole))
                if (1..=whole).contains(&part) && whole <= part.saturating_mul(ONE_IN_MOST) =>
            {
                let divisor = (1..=part).rev().find(|d| part % d == 0 && whole % d == 0).unwrap_or(1);
                Ok(Self { part: part / divisor, whole: whole / divisor })
            }
            _ => Err(format!(
                "'{text}' is not a scale: expected a share from 1/{ONE_IN_MOST} to 1, such as 1/16 or 0.25"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use trimwise::profile::Profile;

    use super::*;

    #[test]
    fn a_scale_is_a_share_and_is_written_as_a_fraction() {
        for (text, shown) in
            [("1/16", "1/16"), ("2/32", "1/16"), ("0.0625", "1/16"), ("1", "1"), ("0.75", "3/4")]
        {
            assert_eq!(text.parse::<Scale>().unwrap().to_string(), shown, "{text}");
        }
        for text in
            ["0", "3", "0/4", "1/0", "17/16", "-1/2", "1/4097", "0.0001", ".5", "1/", "half", "1/2/3", ""]
        {
            let error = text.parse::<Scale>().unwrap_err();
            assert!(
                error.starts_with(&format!("'{text}' is not a scale: expected a share from 1/4096 to 1"))
            );
        }
        let scale: Scale = "1/16".parse().unwrap();
        assert_eq!((scale.of(160), scale.of(3), scale.of(0)), (10, 1, 0));
        assert_eq!(scale.time(SimDuration::from_secs(32)), SimDuration::from_secs(2));
    }

    #[test]
    fn what_is_not_to_scale_is_named_with_what_it_would_be() {
        let whole = Profile::embedded("nvme-generic").unwrap().config;
        let exceptions = |text: &str| {
            let scale: Scale = text.parse().unwrap();
            scale.exceptions(&whole, &scale.drive(&whole).unwrap())
        };
        assert!(exceptions("1/4").is_empty(), "{:?}", exceptions("1/4"));
        // A block has at least four pages, so there are fewer superblocks; the cache holds two pages of each die.
        let few = exceptions("1/1024");
        assert!(few.iter().any(|e| e == "a superblock: 4 MiB instead of 512 KiB"), "{few:?}");
        assert!(
            few.iter().any(|e| e.starts_with("the write cache: ") && e.ends_with("instead of 64 KiB")),
            "{few:?}"
        );
    }
}
