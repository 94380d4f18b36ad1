//! What is seen of a managed file system each second, and that nothing is.

use trimwise::live::{LiveHost, Sample};
use trimwise::units::{Bytes, SimDuration};

use super::{Doing, Managed, Means};
use crate::helper::Task;
use crate::sense::{Seen, Sensed};
use crate::speak::warn;

/// What takes so many seconds to tell its free space hangs, and is not only slow.
const HANG_S: u64 = 2;

impl Managed {
    /// Begins to find out how it is laid out, if that is not known and there is room for a helper.
    pub fn probe(&mut self, means: &mut Means<'_>) {
        // What cannot be sampled is not probed either: that would hang too.
        if self.live.is_none()
            && self.sensed.is_some()
            && self.may_begin(means)
            && means.now >= self.probe_again
        {
            self.begin(Doing::Probing, Task::Probe, means);
        }
    }

    /// It was sampled. `sensed` is `None` if it is as it was before.
    pub fn sampled(&mut self, sensed: Option<Sensed>, seen: &Seen, means: &mut Means<'_>) {
        let Some(sensed) = sensed.or(self.sensed.map(|(before, _)| before)) else { return };
        self.sensed = Some((sensed, seen.at_s));
        if std::mem::take(&mut self.hangs) {
            self.problem = None;
            if let Some(live) = self.live.as_mut().filter(|_| self.stuck.is_none()) {
                live.stick(None);
            }
            let text = "Its path answers again.".to_owned();
            means.history.add(&self.candidate.mount.mount_point, "released", text, 0);
        }
        if self.live.is_none() {
            return;
        }
        let sample = Sample {
            used: Bytes(sensed.used),
            total: Bytes(sensed.total),
            requests_done: sensed.done,
            requests_time: SimDuration::from_millis(sensed.took_ms),
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

    /// Whoever asks for its space has waited for so many seconds.
    pub fn hangs(&mut self, seconds: u64, means: &mut Means<'_>) {
        if seconds < HANG_S || std::mem::replace(&mut self.hangs, true) {
            return;
        }
        let point = &self.candidate.mount.mount_point;
        let text = "its path hangs: whoever asks for its free space gets no answer";
        warn(&format!("{}: {text}", point.display()));
        means.history.add(point, "stuck", format!("{text}."), 0);
        self.problem = Some(text.to_owned());
        if let Some(live) = &mut self.live {
            live.stick(Some("Its path hangs: whoever asks for its free space gets no answer".to_owned()));
        }
        self.feed(means, LiveHost::tick); // which says so
    }
}
