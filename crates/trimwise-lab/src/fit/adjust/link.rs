//! Keeps the link at least as fast as any transfer seen over it.

use trimwise::profile::SettingValue;

use super::super::probe::Held;
use super::{Adjusting, Fit};

impl Adjusting<'_> {
    pub(super) fn raise_link(&mut self, bytes_per_s: f64, how: &'static str) {
        let setting = "link.bytes_per_s";
        // Round as `Adjusting::rate` does.
        let least = bytes_per_s.min(1e12) as u64;
        if self.config.link.bytes_per_s < least {
            self.config.link.bytes_per_s = least;
            self.fits.retain(|fit| fit.setting != setting);
            let value = SettingValue::Whole(least);
            self.fits.push(Fit { setting, value, interval: None, samples: 1, how });
        }
    }

    /// Makes the link as fast as the held-back tests, and returns the tests that were faster.
    pub fn raise_link_to(&mut self, held: &[Held]) -> Vec<&'static str> {
        let mut used = Vec::new();
        for test in held {
            let fastest = test.bytes_per_s.unwrap_or(0.0);
            if fastest > self.config.link.bytes_per_s as f64 {
                self.raise_link(fastest.ceil(), "a test that was to be held back, at least; ");
                self.notes.push(format!(
                    "{}: faster than everything else, so the link was fitted to it",
                    test.test
                ));
                used.push(test.test);
            }
        }
        used
    }
}
