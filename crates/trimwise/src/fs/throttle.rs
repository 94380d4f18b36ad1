//! Throttling of writers while much memory is dirty: Linux since 3.2 (`mm/page-writeback.c`, IO-less
//! `balance_dirty_pages`, 143dfe8611a6).
//!
//! Up to halfway between the background limit and the limit a writer runs free. Above that it is paced: each time that
//! it has dirtied some pages, it pauses for long enough that its rate comes to `dirty_ratelimit` times a ratio, which
//! is 1 at the *setpoint* (halfway again), up to 2 below it and 0 at the limit. `dirty_ratelimit` follows the write
//! rate of the drive and the dirtying rate of the writer, in steps of 200 ms. So the dirty memory stays near the
//! setpoint and does not reach the limit.
//!
//! The numbers below are the kernel's own, in its units: pages, ticks of 1/HZ, pages per second. There is one writer,
//! so Linux's state per task is kept once.

/// Assumed write rate of a drive until it is measured, in pages per second: 100 MB/s (`INIT_BW`).
const INITIAL_RATE: u64 = 100 << (20 - 12);
/// Pages that a new task dirties before its first check (`nr_dirtied_pause` after fork: 128 KiB).
const INITIAL_POLL: u64 = 32;
/// Minimum number of pages worth pausing for (`DIRTY_POLL_THRESH`: 128 KiB).
const POLL_PAGES: u64 = 32;
/// Pages between two checks of a writer while the limit is exceeded (32 KiB).
const POLL_EXCEEDED: u64 = 8;
/// Fractional bits of ratios (`RATELIMIT_CALC_SHIFT`).
const RATIO_SHIFT: u32 = 10;
/// Bits of a long, in `wb_update_dirty_ratelimit`.
const LONG_BITS: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub dirty: u64,
    pub writeback: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Go,
    Pause(u64),
    PauseAndLook(u64),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Throttle {
    hz: u64,
    background: u64,
    limit: u64,
    /// Pages dirtied and written since the mount, and as of the last update.
    dirtied: u64,
    written: u64,
    dirtied_stamp: u64,
    written_stamp: u64,
    updated_at: u64,
    write_bandwidth: u64,
    avg_write_bandwidth: u64,
    dirty_ratelimit: u64,
    balanced_ratelimit: u64,
    is_exceeded: bool,
    since_look: u64,
    poll: u64,
    /// Time up to which the writer has paid, by pausing, for the pages it dirtied (Linux: `dirty_paused_when`). In the
    /// future if it owes a pause.
    paused_at: Option<i64>,
}

impl Throttle {
    /// Starts with a writer and a drive that have not been measured. The limits are in pages.
    pub fn new(hz: u64, (background, limit): (u64, u64)) -> Self {
        Self {
            hz,
            background,
            limit,
            write_bandwidth: INITIAL_RATE,
            avg_write_bandwidth: INITIAL_RATE,
            dirty_ratelimit: INITIAL_RATE,
            balanced_ratelimit: INITIAL_RATE,
            poll: INITIAL_POLL,
            ..Self::default()
        }
    }

    pub(crate) fn set_limits(&mut self, (background, limit): (u64, u64)) {
        (self.background, self.limit) = (background, limit.max(1));
    }

    pub(crate) fn is_above_background(&self, dirty: u64) -> bool {
        dirty > self.background
    }

    /// Notes that the writer has dirtied pages. Returns true if it must be checked now.
    pub(crate) fn dirtied(&mut self, pages: u64) -> bool {
        self.dirtied += pages;
        self.since_look += pages;
        let poll = if self.is_exceeded { self.poll.min(POLL_EXCEEDED) } else { self.poll };
        self.since_look >= poll
    }

    /// Notes that a commit has dirtied pages of the drive's own inode: committed metadata.
    pub(crate) fn dirtied_by_commit(&mut self, pages: u64) {
        self.dirtied += pages;
    }

    pub fn wrote(&mut self, pages: u64) {
        self.written += pages;
    }

    /// Returns the interval between two updates of the measured rates: 200 ms.
    fn interval(&self) -> u64 {
        (self.hz / 5).max(1)
    }

    /// Notes that write-back of a file begins. Idle time does not count against the drive
    /// (`wb_bandwidth_estimate_start`).
    pub(crate) fn write_back_begins(&mut self, now: u64, is_idle: bool) {
        if is_idle && now > self.updated_at + self.interval() {
            self.stamp(now);
        }
    }

    /// Notes that pages of a file were handed to the drive (`do_writepages`).
    pub(crate) fn write_back_submitted(&mut self, now: u64) {
        if now > self.updated_at + self.interval() {
            let elapsed = (now - self.updated_at).max(1);
            self.update_bandwidth(elapsed);
            self.stamp(now);
        }
    }

    /// Returns the maximum number of pages of a file written in one turn (`writeback_chunk_size`): half a second's
    /// worth, at most an eighth of the limit, in steps of 4 MiB.
    pub(crate) fn chunk_pages(&self) -> u64 {
        const STEP: u64 = 1024;
        let pages = (self.avg_write_bandwidth / 2).min(self.limit / 8);
        (pages + STEP) / STEP * STEP
    }

    /// Returns the number of dirty pages up to which writers run free (`dirty_freerun_ceiling`).
    fn free_run(&self) -> u64 {
        (self.limit + self.background) / 2
    }

    /// Checks a writer that has dirtied its share (`balance_dirty_pages`).
    pub fn look(&mut self, now: u64, memory: Memory) -> Verdict {
        let dirty = memory.dirty + memory.writeback;
        if dirty <= self.free_run() {
            self.is_exceeded = false;
            self.paused_at = Some(now as i64);
            self.since_look = 0;
            let room = self.limit.saturating_sub(dirty);
            self.poll = if room > 0 { 1 << (room.ilog2() / 2) } else { 1 };
            return Verdict::Go;
        }
        self.is_exceeded = dirty > self.limit;
        let ratio = self.position_ratio(dirty);
        if now > self.updated_at + self.interval() {
            let elapsed = (now - self.updated_at).max(1);
            self.update_ratelimit(elapsed, dirty, ratio);
            self.update_bandwidth(elapsed);
            self.stamp(now);
        }
        let rate = (self.dirty_ratelimit * ratio) >> RATIO_SHIFT;
        let pause_max = self.pause_max(dirty);
        let (pause_min, poll) = self.pause_min(pause_max, rate);
        if rate == 0 {
            return self.pause(now as i64, pause_max, poll, Verdict::PauseAndLook);
        }
        let now = now as i64;
        let period = (self.hz * self.since_look / rate) as i64;
        let paid = self.paused_at.map_or(0, |at| now - at);
        let pause = period - paid;
        if pause < pause_min as i64 {
            // Think time of less than a second counts as having paused; more is forgotten.
            if pause < -(self.hz as i64) {
                self.paused_at = Some(now);
                self.since_look = 0;
            } else if period > 0 {
                self.paused_at = Some(self.paused_at.unwrap_or(0) + period);
                self.since_look = 0;
            } else if self.poll <= self.since_look {
                self.poll += self.since_look;
            }
            return Verdict::Go;
        }
        let over = (pause - pause_max as i64).max(0).min(pause_max as i64);
        self.pause(now + over, pause.min(pause_max as i64) as u64, poll, Verdict::Pause)
    }

    fn pause(&mut self, now: i64, ticks: u64, poll: u64, verdict: fn(u64) -> Verdict) -> Verdict {
        self.paused_at = Some(now + ticks as i64);
        self.since_look = 0;
        self.poll = poll;
        verdict(ticks)
    }

    fn stamp(&mut self, now: u64) {
        self.dirtied_stamp = self.dirtied;
        self.written_stamp = self.written;
        self.updated_at = now;
    }

    /// Returns the share of the rate that a writer gets, by where the dirty pages stand between free run and limit
    /// (`wb_position_ratio`, for the only drive that is written to).
    fn position_ratio(&self, dirty: u64) -> u64 {
        let setpoint = ((self.free_run() + self.limit) / 2) as i64;
        let (dirty, limit) = (dirty as i64, self.limit as i64);
        if dirty >= limit {
            return 0;
        }
        let x = ((setpoint - dirty) << RATIO_SHIFT) / ((limit - setpoint) | 1);
        let cubed = (((x * x) >> RATIO_SHIFT) * x) >> RATIO_SHIFT;
        let ratio = (cubed + (1 << RATIO_SHIFT)).clamp(0, 2 << RATIO_SHIFT) as u64;
        // The drive's own setpoint is the global one; its span is eight seconds' writes.
        let span = 8 * self.avg_write_bandwidth as i64;
        let intercept = setpoint + span;
        // The kernel feeds a drive with little to write, below half the limit: free run ends above that.
        if dirty < intercept - span / 4 {
            ratio * (intercept - dirty) as u64 / ((intercept - setpoint) | 1) as u64
        } else {
            ratio / 4
        }
    }

    /// Updates the measured write rate of the drive (`wb_update_write_bandwidth`).
    fn update_bandwidth(&mut self, elapsed: u64) {
        let period = (3 * self.hz).next_power_of_two();
        let pages = (self.written - self.written_stamp) * self.hz;
        let old = self.write_bandwidth;
        let mut average = self.avg_write_bandwidth;
        let new = if elapsed > period {
            average = pages / elapsed;
            average
        } else {
            let new = (pages + old * (period - elapsed)) / period;
            if average > old && old >= new {
                average -= (average - old) >> 3;
            }
            if average < old && old <= new {
                average += (old - average) >> 3;
            }
            new
        };
        self.write_bandwidth = new;
        self.avg_write_bandwidth = average.max(1);
    }

    /// Updates the rate of the writer (`wb_update_dirty_ratelimit`).
    fn update_ratelimit(&mut self, elapsed: u64, dirty: u64, ratio: u64) {
        let setpoint = (self.free_run() + self.limit) / 2;
        let old = self.dirty_ratelimit;
        let dirty_rate = (self.dirtied - self.dirtied_stamp) * self.hz / elapsed;
        let task_rate = ((old * ratio) >> RATIO_SHIFT) + 1;
        let balanced =
            (task_rate * self.avg_write_bandwidth / (dirty_rate | 1)).min(self.avg_write_bandwidth);
        // Change the rate only where all estimates agree.
        let mut step = if dirty < setpoint {
            self.balanced_ratelimit.min(balanced).min(task_rate).saturating_sub(old)
        } else {
            old.saturating_sub(self.balanced_ratelimit.max(balanced).max(task_rate))
        };
        let shift = old / (2 * step + 1);
        step = if shift < LONG_BITS { (step >> shift).div_ceil(8) } else { 0 };
        let new = if old < balanced { old + step } else { old.saturating_sub(step) };
        self.dirty_ratelimit = new.max(1);
        self.balanced_ratelimit = balanced;
    }

    /// Returns the longest pause (`wb_max_pause`): at most the time that the drive needs for the dirty pages, and at
    /// most 200 ms.
    fn pause_max(&self, dirty: u64) -> u64 {
        let share = (1 + self.hz / 8).next_power_of_two();
        let ticks = dirty / (1 + self.avg_write_bandwidth / share) + 1;
        ticks.min(self.interval())
    }

    /// Returns the shortest pause worth taking, and the number of pages that the writer can dirty before the next check
    /// (`wb_min_pause`).
    fn pause_min(&self, pause_max: u64, rate: u64) -> (u64, u64) {
        let hi = self.avg_write_bandwidth.ilog2();
        let lo = self.dirty_ratelimit.ilog2();
        let second = self.hz.next_power_of_two();
        let mut ticks = (self.hz / 100).max(1);
        if hi > lo {
            ticks += u64::from(hi - lo) * (10 * self.hz) / 1024;
        }
        ticks = ticks.min(1 + pause_max / 2);
        let mut pages = self.dirty_ratelimit * ticks / second;
        if pages < POLL_PAGES {
            ticks = pause_max;
            pages = self.dirty_ratelimit * ticks / second;
            if pages > POLL_PAGES {
                pages = POLL_PAGES;
                ticks = self.hz * POLL_PAGES / self.dirty_ratelimit;
            }
        }
        if self.hz * pages / (rate + 1) > pause_max {
            ticks = pause_max;
            pages = rate * ticks / second;
        }
        (if pages >= POLL_PAGES { 1 + ticks / 2 } else { ticks }, pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(dirty: u64) -> Memory {
        Memory { dirty, writeback: 0 }
    }

    #[test]
    fn up_to_halfway_between_the_limits_a_writer_runs_free() {
        let mut throttle = Throttle::new(100, (1000, 2000));
        assert!(!throttle.dirtied(INITIAL_POLL - 1));
        assert!(throttle.dirtied(1));
        assert_eq!(throttle.look(1, memory(1500)), Verdict::Go);
        // The less room, the sooner the next check: the square root of the 500 pages left.
        assert_eq!(throttle.poll, 16);
        throttle.dirtied(1000);
        assert!(matches!(throttle.look(1, memory(1700)), Verdict::Pause(_)));
        throttle.dirtied(1000);
        assert!(matches!(throttle.look(10, memory(2000)), Verdict::PauseAndLook(_)));
    }

    #[test]
    fn the_ratio_is_one_at_the_setpoint_and_falls_towards_the_limit() {
        let throttle = Throttle::new(100, (10_000, 20_000));
        let ratio = |dirty| throttle.position_ratio(dirty);
        // The kernel divides by an odd number (`| 1`): a unit is lost.
        assert_eq!(ratio(17_500), (1 << RATIO_SHIFT) - 1);
        assert!(ratio(15_000) > ratio(16_000) && ratio(16_000) > ratio(17_500));
        assert!(ratio(17_500) > ratio(19_000) && ratio(19_900) < ratio(17_500) / 8);
        assert_eq!(ratio(20_000), 0);
    }

    #[test]
    fn the_ratio_is_almost_two_where_a_writer_ceases_to_run_free() {
        let ratio = Throttle::new(100, (10_000, 20_000)).position_ratio(15_000);
        assert!((19..21).contains(&((ratio * 10) >> RATIO_SHIFT)), "{ratio}");
    }

    #[test]
    fn a_turn_is_half_a_second_of_writes_or_an_eighth_of_the_limit_in_whole_steps() {
        let chunk = |limit| Throttle::new(100, (limit / 2, limit)).chunk_pages();
        // 25,600 pages a second; a step of 1,024 is added before the rest is cut off.
        assert_eq!((chunk(1_000_000), chunk(40_000)), (13 * 1_024, 5 * 1_024));
    }

    /// 2,560 pages are ten ticks' worth at the first rate.
    #[test]
    fn the_time_since_the_last_check_counts_as_paused() {
        let after = |ticks| {
            let mut throttle = Throttle::new(100, (8_000, 16_000));
            assert_eq!(throttle.look(0, memory(1_000)), Verdict::Go);
            throttle.dirtied(2_560);
            throttle.look(ticks, memory(14_000))
        };
        assert_eq!((after(12), after(10)), (Verdict::Go, Verdict::Go));
        assert!(matches!(after(4), Verdict::Pause(6 | 7)), "{:?}", after(4));
    }

    #[test]
    fn what_is_beyond_the_longest_pause_is_owed_at_the_next_check() {
        let mut throttle = Throttle::new(100, (8_000, 16_000));
        throttle.dirtied(25_600);
        // As long as the drive needs for what is dirty: 14,000 / (25,600 / 16) and one.
        assert_eq!(throttle.look(1, memory(14_000)), Verdict::Pause(9));
        throttle.dirtied(1);
        assert_eq!(throttle.look(10, memory(14_000)), Verdict::Pause(9));
        throttle.dirtied(1);
        assert_eq!(throttle.look(19, memory(14_000)), Verdict::Go);
    }

    /// A writer that dirties `rate` pages a second, as it may, on a drive that writes `drive` pages a second, when its
    /// rate is next adjusted.
    fn adjusted(rate: u64, drive: u64, dirty: u64) -> u64 {
        let mut throttle = Throttle::new(100, (8_000, 16_000));
        throttle.dirty_ratelimit = rate;
        (throttle.write_bandwidth, throttle.avg_write_bandwidth) = (drive, drive);
        throttle.dirtied(rate * 21 / 100);
        throttle.look(21, memory(dirty));
        throttle.dirty_ratelimit
    }

    #[test]
    fn a_writer_s_rate_rises_below_the_setpoint_and_falls_above_it() {
        let (rises, falls) = (adjusted(1_000, 25_600, 13_000), adjusted(30_000, 10_000, 15_000));
        assert!((1_001..1_100).contains(&rises), "{rises}");
        assert!((27_000..30_000).contains(&falls), "{falls}");
        // Where only one of both holds, it stays as it is.
        assert_eq!((adjusted(1_000, 25_600, 15_900), adjusted(30_000, 10_000, 12_500)), (1_000, 30_000));
    }

    #[test]
    fn the_rate_of_a_drive_is_measured_and_its_idle_time_does_not_count() {
        for rate in [10_000, 51_200] {
            let mut throttle = Throttle::new(100, (8_000, 16_000));
            let write = |tick, throttle: &mut Throttle| {
                throttle.wrote(rate * 21 / 100);
                throttle.write_back_submitted(tick);
            };
            (1..=300).for_each(|turn| write(turn * 21, &mut throttle));
            let measured = throttle.avg_write_bandwidth;
            assert!(measured.abs_diff(rate) < rate / 20, "{measured} for {rate}");
            throttle.write_back_begins(20_000, true);
            write(20_021, &mut throttle);
            let measured = throttle.avg_write_bandwidth;
            assert!(measured.abs_diff(rate) < rate / 20, "{measured} for {rate} after a rest");
        }
    }

    /// A writer that dirties as much as it may, on a drive with a fixed write rate, settles at that rate.
    #[test]
    fn a_writer_comes_to_the_rate_of_the_drive_and_stays_near_the_setpoint() {
        const RATE: u64 = 10_000;
        let mut throttle = Throttle::new(100, (8_000, 16_000));
        let (mut dirty, mut wakes, mut dirtied) = (12_000_u64, 0, 0);
        for tick in 1..6_000_u64 {
            let wrote = (RATE / 100).min(dirty);
            dirty -= wrote;
            throttle.wrote(wrote);
            throttle.write_back_submitted(tick);
            while tick >= wakes {
                let is_due = throttle.dirtied(1);
                dirty += 1;
                dirtied += u64::from(tick > 3_000);
                if !is_due {
                    continue;
                }
                match throttle.look(tick, memory(dirty)) {
                    Verdict::Go => {}
                    Verdict::Pause(ticks) | Verdict::PauseAndLook(ticks) => wakes = tick + ticks,
                }
            }
        }
        let rate = dirtied as f64 / 30.0;
        assert!((rate / RATE as f64 - 1.0).abs() < 0.05, "{rate} pages a second");
        assert!((12_000..16_000).contains(&dirty), "{dirty} pages are dirty");
    }
}
