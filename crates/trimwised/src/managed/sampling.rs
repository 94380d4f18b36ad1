//! Handles the samples of a managed file system each second, and their absence.

use trimwise::live::{LiveHost, Sample};
use trimwise::policy::Served;
use trimwise::units::{Bytes, SimDuration};

use super::{Doing, Managed, Means};
use crate::helper::Task;
use crate::sense::{Seen, Sensed};
use crate::speak::warn;

/// Seconds in statvfs after which a path counts as hanging rather than slow.
const HANG_S: u64 = 2;

impl Managed {
    /// Starts a helper that reports the layout, if the layout is unknown and a helper can be started.
    pub fn probe(&mut self, means: &mut Means<'_>) {
        // Do not probe before it was sampled: that would hang too.
        if self.live.is_none()
            && self.sensed.is_some()
            && self.may_begin(means)
            && means.now >= self.probe_again
        {
            self.begin(Doing::Probing, Task::Probe, means);
        }
    }

    /// Handles a sample. `sensed` is `None` if nothing has changed.
    pub fn sampled(&mut self, sensed: Option<Sensed>, seen: &Seen, means: &mut Means<'_>) {
        let Some(sensed) = sensed.or(self.sensed.map(|(before, _)| before)) else { return };
        self.sensed = Some((sensed, seen.at_s));
        if std::mem::take(&mut self.hangs) {
            self.problem = None;
            if let Some(live) = self.live.as_mut().filter(|_| self.stuck.is_none()) {
                live.stick(None);
            }
            let text = "Its path responds again.".to_owned();
            means.history.add(&self.candidate.mount.mount_point, "released", text, 0);
        }
        if self.live.is_none() {
            return;
        }
        let sample = Sample {
            used: Bytes(sensed.used),
            total: Bytes(sensed.total),
            served: Served {
                requests: sensed.done,
                bytes: Bytes(sensed.moved),
                time: SimDuration::from_millis(sensed.took_ms),
                busy: SimDuration::from_millis(sensed.busy_ms),
            },
            in_flight: sensed.in_flight,
            pressure_permille: seen.pressure_permille,
            online: self.candidate.mount.discard() != "nodiscard",
        };
        if self.size.is_some_and(|size| size != sample.total) && self.job.is_none() {
            self.begin_anew();
            return;
        }
        self.size = Some(sample.total);
        if let Some(live) = &mut self.live {
            live.keep_at_most(means.spans_max);
        }
        self.feed(means, |live, now, orders| live.sample(now, sample, orders));
        self.tell(means);
    }

    /// Handles a statvfs that has not returned for this many seconds.
    pub fn hangs(&mut self, seconds: u64, means: &mut Means<'_>) {
        if seconds < HANG_S || std::mem::replace(&mut self.hangs, true) {
            return;
        }
        let point = &self.candidate.mount.mount_point;
        let text = "its path hangs: a query for its free space does not return";
        warn(&format!("{}: {text}", point.display()));
        means.history.add(point, "stuck", format!("{text}."), 0);
        self.problem = Some(text.to_owned());
        if let Some(live) = &mut self.live {
            live.stick(Some("Its path hangs: a query for its free space does not return".to_owned()));
        }
        self.feed(means, LiveHost::tick); // which reports it
    }
}
