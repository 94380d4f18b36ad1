use std::fmt;
use std::str::FromStr;

use trimwise::units::{Lpn, Percent, UnitRange};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub start: Percent,
    /// With `start`, at most the whole.
    pub length: Percent,
}

impl Part {
    pub const ALL: Self = Self { start: Percent::ZERO, length: Percent::ALL };

    /// Returns the units of this part of `whole`. Adjacent parts share no unit and leave none out.
    pub fn of(self, whole: UnitRange) -> UnitRange {
        let start = self.start.of(whole.units);
        let end = self.start.plus(self.length).of(whole.units);
        UnitRange::new(Lpn(whole.start.0 + start), end - start)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.start, self.length)
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = |text: &str| text.parse::<Percent>().ok();
        let parts = text.split_once(':').and_then(|(s, l)| share(s).zip(share(l)));
        match parts {
            Some((start, length)) if length > Percent::ZERO && length <= start.rest() => {
                Ok(Self { start, length })
            }
            _ => Err(format!(
                "'{text}' is not a part: expected START_PCT:LEN_PCT, such as 0:50 or 87.5:12.5, together at most 100"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_meet_share_no_unit_and_leave_none_out() {
        let whole = UnitRange::new(Lpn(7), 1_000_003);
        let mut end = whole.start;
        for i in 0..8 {
            let part = Part { start: Percent::hundredths(i * 1250), length: Percent::hundredths(1250) };
            assert_eq!(part.of(whole).start, end);
            end = part.of(whole).end();
        }
        assert_eq!(end, whole.end());
        assert_eq!("87.5:12.5".parse::<Part>().unwrap().to_string(), "87.5:12.5");
        assert!("87.5:12.6".parse::<Part>().is_err() && "5".parse::<Part>().is_err());
    }
}
