//! Stall detection: whether QEMU's iterations still converge, and the best moment to force the switch-over.
//!
//! Each iteration leaves some memory that was dirtied meanwhile. As long as that amount falls below that of a window
//! ago, by a margin, the transfer converges. When it does not, the guest is switched over at a moment when little is
//! left: close to the smallest amount seen so far, with decreasing patience.

use std::collections::VecDeque;
use std::time::Duration;

use launcher_contract::migration::{MigrationMode, MigrationOptions, StallOptions};

use crate::monitor::{ANY_DOWNTIME_MS, DEFAULT_MAX_DOWNTIME_MS, Order, Sample};

#[derive(Debug, Clone)]
pub(crate) struct Stall {
    options: StallOptions,
    post_copy: bool,
    disruption: bool,
    max_downtime: Duration,
    acceptable: Option<Duration>,
    /// Iterations inside the window: time and remaining bytes.
    recent: VecDeque<(Duration, u64)>,
    /// The least remaining bytes of an iteration older than the window.
    older: Option<u64>,
    stalled: Option<Stalled>,
    iteration: u64,
    bandwidth: Option<f64>,
    /// The deadline of a forced switch-over.
    deadline: Option<Duration>,
}

#[derive(Debug, Clone)]
struct Stalled {
    best: u64,
    least_since: u64,
    patience: Duration,
    until: Duration,
}

impl Stall {
    pub(crate) fn new(options: StallOptions, all: &MigrationOptions, acceptable: Option<Duration>) -> Stall {
        let max_downtime = match all.max_downtime_ms {
            0 => DEFAULT_MAX_DOWNTIME_MS,
            given => given,
        };
        Stall {
            options,
            post_copy: all.allow_post_copy,
            disruption: all.allow_workload_disruption,
            max_downtime: Duration::from_millis(max_downtime),
            acceptable,
            recent: VecDeque::new(),
            older: None,
            stalled: None,
            iteration: 0,
            bandwidth: None,
            deadline: None,
        }
    }

    pub(crate) fn judge(&mut self, sample: Sample, mode: MigrationMode) -> Option<Order> {
        if sample.bandwidth > 0 {
            let (alpha, new) = (self.options.ewma_alpha.clamp(0.0, 1.0), sample.bandwidth as f64);
            self.bandwidth = Some(self.bandwidth.map_or(new, |old| alpha * new + (1.0 - alpha) * old));
        }
        if let Some(order) = self.timed_out(sample, mode) {
            return Some(order);
        }
        if sample.iteration == self.iteration {
            return None;
        }
        self.iteration = sample.iteration;
        self.record(sample);
        self.act(sample)
    }

    fn record(&mut self, sample: Sample) {
        let window = Duration::from_secs(self.options.window_seconds);
        while let Some(&(at, left)) = self.recent.front()
            && sample.elapsed.saturating_sub(at) > window
        {
            self.older = Some(self.older.map_or(left, |older| older.min(left)));
            self.recent.pop_front();
        }
        let margin = 1.0 - self.options.margin_percent as f64 / 100.0;
        let stalls = self.older.is_some_and(|older| sample.remaining as f64 >= older as f64 * margin);
        match (&mut self.stalled, stalls) {
            (None, true) => {
                let least = self.recent.iter().map(|(_, left)| *left).chain(self.older).min();
                self.stalled = Some(Stalled {
                    best: least.unwrap_or(sample.remaining),
                    least_since: sample.remaining,
                    patience: window,
                    until: sample.elapsed + window,
                });
            }
            (Some(stalled), true) => stalled.look(sample, self.options.patience_decay),
            (_, false) => self.stalled = None,
        }
        let falls = self.recent.back().is_none_or(|(_, last)| sample.remaining < *last);
        if falls && self.older.is_none_or(|older| sample.remaining <= older) {
            self.recent.push_back((sample.elapsed, sample.remaining));
        }
    }

    fn act(&mut self, sample: Sample) -> Option<Order> {
        let best = self.stalled.as_ref()?.best;
        let near = best as f64 * (1.0 + self.options.margin_percent as f64 / 100.0);
        if self.options.search_minima && sample.remaining as f64 > near {
            return None; // a better moment will come
        }
        let estimate = self.estimate(sample)?;
        if self.budget().is_some_and(|budget| estimate > budget.saturating_sub(sample.elapsed)) {
            return None;
        }
        if self.disruption && self.post_copy {
            return Some(Order::PostCopy);
        }
        // Ordered again in each iteration until it happens; its timeout runs from the first order on.
        let deadline = sample.elapsed + Duration::from_secs(self.options.switchover_seconds);
        if self.disruption {
            self.deadline.get_or_insert(deadline);
            return Some(Order::MaxDowntime(ANY_DOWNTIME_MS));
        }
        if estimate <= self.max_downtime.mul_f64(self.options.precopy_factor.max(1.0)) {
            self.deadline.get_or_insert(deadline);
            return Some(Order::MaxDowntime(milliseconds(self.max_downtime)));
        }
        let because = format!(
            "migration does not converge: {} MiB left per iteration (estimated downtime {} ms)",
            best >> 20,
            estimate.as_millis()
        );
        Some(Order::Abort { because })
    }

    fn timed_out(&mut self, sample: Sample, mode: MigrationMode) -> Option<Order> {
        let limit = match mode {
            MigrationMode::Paused => self.acceptable,
            _ => self.deadline.or(self.acceptable),
        };
        let limit = limit.filter(|limit| sample.elapsed > *limit)?;
        let give_up = || Order::Abort { because: format!("migration did not complete within {} s", limit.as_secs()) };
        let left = self.budget().map_or(Duration::MAX, |budget| budget.saturating_sub(sample.elapsed));
        let completable = self.estimate(sample).is_some_and(|estimate| estimate <= left);
        if mode == MigrationMode::Paused || !completable || !self.disruption || self.deadline.is_some() {
            return Some(give_up());
        }
        if self.post_copy {
            return Some(Order::PostCopy);
        }
        self.deadline = Some(sample.elapsed + Duration::from_secs(self.options.switchover_seconds));
        Some(Order::MaxDowntime(ANY_DOWNTIME_MS))
    }

    fn budget(&self) -> Option<Duration> {
        self.acceptable.map(|acceptable| acceptable.mul_f64(self.options.completion_factor.clamp(1.0, 1000.0)))
    }

    /// How long the rest would take if nothing more changed; `None` if the bandwidth is unknown.
    fn estimate(&self, sample: Sample) -> Option<Duration> {
        let bandwidth = self.bandwidth.filter(|bandwidth| *bandwidth >= 1.0)?;
        Duration::try_from_secs_f64(sample.remaining as f64 / bandwidth).ok()
    }
}

impl Stalled {
    fn look(&mut self, sample: Sample, decay: f64) {
        self.least_since = self.least_since.min(sample.remaining);
        if sample.elapsed < self.until {
            return;
        }
        self.best = self.least_since;
        self.patience = self.patience.mul_f64(decay.clamp(0.0, 1.0));
        self.until = sample.elapsed + self.patience;
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn stall(change: impl FnOnce(&mut MigrationOptions), acceptable: Option<u64>) -> Stall {
        let mut options = MigrationOptions { max_downtime_ms: 500, ..Default::default() };
        change(&mut options);
        Stall::new(StallOptions::default(), &options, acceptable.map(Duration::from_secs))
    }

    /// One round every five seconds that leaves what `left` says, at 100 MiB/s.
    fn run(stall: &mut Stall, left: impl Fn(u64) -> u64, rounds: u64) -> Option<(u64, Order)> {
        (1..=rounds).find_map(|round| {
            let sample = Sample {
                elapsed: Duration::from_secs(5 * round),
                remaining: left(round),
                iteration: round,
                bandwidth: 100 * MIB,
            };
            stall.judge(sample, MigrationMode::PreCopy).map(|order| (5 * round, order))
        })
    }

    #[test]
    fn rounds_that_leave_less_and_less_are_left_alone() {
        let mut stall = stall(|_| {}, None);
        assert_eq!(run(&mut stall, |round| (10_000 - 90 * round) * MIB, 100), None);
    }

    #[test]
    fn a_small_rest_that_does_not_shrink_is_sent_with_the_downtime_that_is_allowed() {
        let mut stall = stall(|_| {}, None);
        let (at, order) = run(&mut stall, |_| 60 * MIB, 100).unwrap();
        assert_eq!(order, Order::MaxDowntime(500));
        assert!((41..=60).contains(&at), "{at}");
    }

    #[test]
    fn a_large_rest_is_given_up_or_switched_over_as_allowed() {
        let mut strict = stall(|_| {}, None);
        assert!(matches!(run(&mut strict, |_| 600 * MIB, 100), Some((_, Order::Abort { .. }))));
        let mut pausing = stall(|options| options.allow_workload_disruption = true, None);
        assert_eq!(run(&mut pausing, |_| 600 * MIB, 100).unwrap().1, Order::MaxDowntime(ANY_DOWNTIME_MS));
        let mut post_copy =
            stall(|options| (options.allow_workload_disruption, options.allow_post_copy) = (true, true), None);
        assert_eq!(run(&mut post_copy, |_| 600 * MIB, 100).unwrap().1, Order::PostCopy);
    }

    #[test]
    fn a_guest_that_swings_is_caught_when_little_is_left() {
        let mut stall = stall(|_| {}, None);
        let left = |round: u64| if round.is_multiple_of(4) { 50 * MIB } else { 900 * MIB };
        let (at, order) = run(&mut stall, left, 200).unwrap();
        assert_eq!((order, at % 20), (Order::MaxDowntime(500), 0));
    }

    #[test]
    fn a_forced_switch_over_that_does_not_come_is_given_up_after_a_minute() {
        let mut stall = stall(|_| {}, None);
        let (at, _) = run(&mut stall, |_| 60 * MIB, 100).unwrap();
        let late = Sample { elapsed: Duration::from_secs(at + 61), remaining: MIB, iteration: 0, bandwidth: 0 };
        assert!(matches!(stall.judge(late, MigrationMode::PreCopy), Some(Order::Abort { .. })));
    }

    proptest! {
        #[test]
        fn whatever_qemu_says_an_overdue_transfer_ends(
            lefts in prop::collection::vec(0..10_000u64, 1..60), disruption: bool, post_copy: bool,
        ) {
            let mut stall = stall(
                |options| (options.allow_workload_disruption, options.allow_post_copy) = (disruption, post_copy),
                Some(100),
            );
            let mut ended = false;
            for second in 1..2000u64 {
                let remaining = lefts[(second as usize / 3) % lefts.len()] * MIB;
                let sample = Sample {
                    elapsed: Duration::from_secs(second), remaining, iteration: second / 3, bandwidth: 50 * MIB,
                };
                if matches!(stall.judge(sample, MigrationMode::PreCopy), Some(Order::Abort { .. } | Order::PostCopy)) {
                    ended = true;
                    break;
                }
            }
            prop_assert!(ended);
        }
    }
}
