//! Whether a transfer continues, needs help, or must be aborted.
//!
//! Takes a sample of QEMU's statistics and returns an order. The driver executes the order and reports its success.

use std::time::Duration;

use launcher_contract::migration::{MigrationMode, MigrationOptions};

use crate::stall::Stall;

/// Effectively unlimited: QEMU pauses the guest whatever is left.
pub(crate) const ANY_DOWNTIME_MS: u64 = 2_000_000;
/// QEMU's default.
const USUAL_DOWNTIME_MS: u64 = 300;
/// The initial limit. QEMU pauses a guest as soon as the rest can be sent within the limit, without waiting until less
/// is left: with a small guest that is always the case, and it would be paused for as long as the limit allows.
const FIRST_DOWNTIME_MS: u64 = 100;
/// The number of QEMU's iterations over the memory of a busier guest, after which it gets the usual downtime, and then
/// the maximum.
const FIRST_ROUNDS: u64 = 5;
const USUAL_ROUNDS: u64 = 10;
/// The cluster's default.
pub(crate) const DEFAULT_MAX_DOWNTIME_MS: u64 = 900;

/// QEMU's statistics at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    pub elapsed: Duration,
    /// Bytes of memory and disks that are still to be sent.
    pub remaining: u64,
    pub iteration: u64,
    /// Bytes per second.
    pub bandwidth: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    Abort {
        because: String,
    },
    PostCopy,
    /// Pause the guest, so that nothing more changes.
    Pause,
    /// Set the maximum downtime, in milliseconds.
    MaxDowntime(u64),
}

/// Whether QEMU can use post-copy on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostCopy {
    Possible,
    Impossible,
}

#[derive(Debug, Clone)]
pub struct Monitor {
    options: MigrationOptions,
    post_copy: PostCopy,
    mode: MigrationMode,
    /// The completion timeout; `None` for no limit.
    acceptable: Option<Duration>,
    previous: Option<u64>,
    last_progress: Duration,
    downtime_ms: u64,
    last_raise: Duration,
    stall: Option<Stall>,
}

/// The timeout for an amount of data, in whole gigabytes, rounded up.
fn budget(bytes: u64, seconds_per_gigabyte: u64) -> Option<Duration> {
    let seconds = bytes.div_ceil(1_000_000_000).max(1).saturating_mul(seconds_per_gigabyte);
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

impl Monitor {
    /// For a guest with this much memory and disk to transfer.
    pub fn new(options: MigrationOptions, bytes: u64, post_copy: PostCopy) -> Monitor {
        let acceptable = budget(bytes, options.completion_timeout_per_gib_seconds);
        let stall = options.stall_detector.clone().map(|stall| Stall::new(stall, &options, acceptable));
        Monitor {
            post_copy,
            mode: MigrationMode::PreCopy,
            acceptable,
            previous: None,
            last_progress: Duration::ZERO,
            downtime_ms: 0,
            last_raise: Duration::ZERO,
            stall,
            options,
        }
    }

    /// For the rest of a guest that already runs on the target.
    pub fn after_switch_over(options: MigrationOptions) -> Monitor {
        Monitor { mode: MigrationMode::PostCopy, ..Monitor::new(options, 0, PostCopy::Possible) }
    }

    /// The downtime to set before the transfer starts, if it differs from QEMU's default.
    pub fn first_downtime(&mut self) -> Option<u64> {
        if self.mode == MigrationMode::PostCopy {
            return None;
        }
        let limit = self.options.max_downtime_ms;
        let first = match (&self.options.downtime_tuning, &self.stall) {
            (Some(tuning), _) => tuning.initial_ms,
            (None, Some(_)) => limit.min(USUAL_DOWNTIME_MS),
            (None, None) => self.downtime_after(0),
        };
        self.downtime_ms = first;
        (first > 0).then_some(first)
    }

    /// The maximum downtime after so many iterations without a switch-over, if nothing else tunes it.
    fn downtime_after(&self, rounds: u64) -> u64 {
        let limit = match self.options.max_downtime_ms {
            0 => USUAL_DOWNTIME_MS,
            limit => limit,
        };
        match rounds {
            ..FIRST_ROUNDS => limit.min(FIRST_DOWNTIME_MS),
            FIRST_ROUNDS..USUAL_ROUNDS => limit.min(USUAL_DOWNTIME_MS),
            _ => limit,
        }
    }

    /// The last order was executed; the guest now migrates in this mode.
    pub fn switched(&mut self, mode: MigrationMode, elapsed: Duration) {
        self.mode = mode;
        if mode == MigrationMode::Paused {
            // At most everything has to be sent once more, without interference from the guest.
            self.acceptable = self.acceptable.map(|acceptable| acceptable * 2);
            self.last_progress = elapsed;
        }
    }

    pub fn judge(&mut self, sample: Sample) -> Option<Order> {
        if self.mode == MigrationMode::PostCopy {
            return None; // the guest is on the target; it cannot be aborted any more
        }
        if self.previous.is_none_or(|previous| sample.remaining < previous) {
            self.last_progress = sample.elapsed;
        }
        self.previous = Some(sample.remaining);
        if let Some(stall) = &mut self.stall {
            return stall.judge(sample, self.mode);
        }
        self.overdue(sample).or_else(|| self.raise_downtime(sample))
    }

    fn overdue(&self, sample: Sample) -> Option<Order> {
        let late = self.acceptable.filter(|acceptable| sample.elapsed > *acceptable);
        if late.is_some() && self.options.allow_workload_disruption && self.mode != MigrationMode::Paused {
            return Some(if self.options.allow_post_copy { Order::PostCopy } else { Order::Pause });
        }
        let silence = sample.elapsed.saturating_sub(self.last_progress);
        let patience = self.options.progress_timeout_seconds;
        if patience > 0 && silence > Duration::from_secs(patience) {
            let because = format!("no progress for {patience} s: target accepts no data");
            return Some(Order::Abort { because });
        }
        late.map(|limit| {
            let because = format!("migration did not complete within {} s; {}", limit.as_secs(), self.remedies());
            Order::Abort { because }
        })
    }

    /// The remedies that were not permitted or not tried.
    fn remedies(&self) -> String {
        let MigrationOptions { allow_auto_converge, allow_post_copy, allow_workload_disruption, .. } = self.options;
        let mut remedies = vec!["raise completionTimeoutPerGiB"];
        remedies.extend((!allow_auto_converge).then_some("allow auto-converge"));
        match self.post_copy {
            PostCopy::Possible => remedies.extend((!allow_post_copy).then_some("allow post-copy")),
            PostCopy::Impossible => {
                remedies.extend((!allow_workload_disruption).then_some("allow a pause of the guest"))
            }
        }
        let last = remedies.pop().unwrap_or_default();
        if remedies.is_empty() { last.to_owned() } else { format!("{} or {last}", remedies.join(", ")) }
    }

    fn raise_downtime(&mut self, sample: Sample) -> Option<Order> {
        let Some(tuning) = &self.options.downtime_tuning else {
            let allowed = self.downtime_after(sample.iteration);
            let more = self.downtime_ms > 0 && allowed > self.downtime_ms;
            self.downtime_ms = if more { allowed } else { self.downtime_ms };
            return more.then_some(Order::MaxDowntime(allowed));
        };
        let limit = match self.options.max_downtime_ms {
            0 => DEFAULT_MAX_DOWNTIME_MS,
            limit => limit,
        };
        let rested = sample.elapsed.saturating_sub(self.last_raise) >= Duration::from_secs(tuning.cooldown_seconds);
        if sample.iteration < tuning.start_after_iteration || !rested || self.downtime_ms >= limit {
            return None;
        }
        let step = limit.saturating_sub(tuning.initial_ms).div_ceil(u64::from(tuning.steps.max(1)));
        self.downtime_ms = (self.downtime_ms + step.max(1)).min(limit);
        self.last_raise = sample.elapsed;
        Some(Order::MaxDowntime(self.downtime_ms))
    }
}

#[cfg(test)]
mod tests {
    use launcher_contract::migration::DowntimeTuning;

    use super::*;

    const GB: u64 = 1_000_000_000;

    fn sample(seconds: u64, remaining: u64) -> Sample {
        Sample { elapsed: Duration::from_secs(seconds), remaining, iteration: 1, bandwidth: 1 }
    }

    fn monitor(change: impl FnOnce(&mut MigrationOptions)) -> Monitor {
        let mut options = MigrationOptions {
            progress_timeout_seconds: 30,
            completion_timeout_per_gib_seconds: 10,
            ..Default::default()
        };
        change(&mut options);
        Monitor::new(options, 3 * GB, PostCopy::Possible)
    }

    fn aborts(order: Option<Order>, word: &str) -> bool {
        matches!(order, Some(Order::Abort { because }) if because.contains(word))
    }

    #[test]
    fn the_budget_is_per_gigabyte_and_rounded_up() {
        for (bytes, per, expected) in
            [(1, 150, Some(150)), (GB, 150, Some(150)), (GB + 1, 150, Some(300)), (5 * GB, 0, None)]
        {
            assert_eq!(budget(bytes, per), expected.map(Duration::from_secs), "{bytes} at {per}");
        }
        assert!(budget(u64::MAX, u64::MAX).is_some());
    }

    #[test]
    fn a_transfer_that_takes_too_long_is_given_up() {
        let mut monitor = monitor(|_| {});
        assert_eq!(monitor.judge(sample(30, 100)), None);
        assert!(aborts(monitor.judge(sample(31, 99)), "within 30 s"));
    }

    #[test]
    fn only_what_would_help_on_this_node_is_suggested() {
        let late = |post_copy, change: fn(&mut MigrationOptions)| {
            let mut monitor = monitor(change);
            monitor.post_copy = post_copy;
            monitor.switched(MigrationMode::Paused, Duration::ZERO);
            monitor.judge(sample(61, 100))
        };
        for (post_copy, change, expected) in [
            (
                PostCopy::Possible,
                (|_| {}) as fn(&mut MigrationOptions),
                "PerGiB, allow auto-converge or allow post-copy",
            ),
            (PostCopy::Impossible, |_| {}, "PerGiB, allow auto-converge or allow a pause of the guest"),
            (PostCopy::Impossible, |o| o.allow_workload_disruption = true, "PerGiB or allow auto-converge"),
            (PostCopy::Possible, |o| o.allow_auto_converge = true, "PerGiB or allow post-copy"),
            (
                PostCopy::Impossible,
                |o| (o.allow_workload_disruption, o.allow_auto_converge) = (true, true),
                "within 60 s; raise completionTimeoutPerGiB",
            ),
        ] {
            let order = late(post_copy, change);
            assert!(
                matches!(&order, Some(Order::Abort { because }) if because.ends_with(expected)),
                "{order:?}, not {expected}"
            );
        }
    }

    #[test]
    fn without_a_limit_only_a_lack_of_progress_ends_it() {
        let mut monitor = monitor(|options| options.completion_timeout_per_gib_seconds = 0);
        assert_eq!(monitor.judge(sample(1000, 100)), None);
        assert_eq!(monitor.judge(sample(1029, 100)), None);
        assert_eq!(monitor.judge(sample(1030, 99)), None, "a byte is progress");
        assert_eq!(monitor.judge(sample(1060, 99)), None);
        assert!(aborts(monitor.judge(sample(1061, 99)), "no progress"));
        let mut patient = self::monitor(|options| {
            (options.completion_timeout_per_gib_seconds, options.progress_timeout_seconds) = (0, 0);
        });
        patient.judge(sample(0, 1));
        assert_eq!(patient.judge(sample(1_000_000, 1)), None);
    }

    #[test]
    fn a_guest_that_may_be_disturbed_is_switched_over_instead() {
        let mut monitor = monitor(|options| {
            (options.allow_workload_disruption, options.allow_post_copy) = (true, true);
        });
        monitor.judge(sample(0, 100));
        assert_eq!(monitor.judge(sample(31, 99)), Some(Order::PostCopy));
        monitor.switched(MigrationMode::PostCopy, Duration::from_secs(31));
        assert_eq!(monitor.judge(sample(100_000, 99)), None, "there is no way back from post-copy");
    }

    #[test]
    fn a_guest_that_was_stopped_gets_as_much_time_again_and_no_more() {
        let mut monitor = monitor(|options| options.allow_workload_disruption = true);
        monitor.judge(sample(0, 100));
        assert_eq!(monitor.judge(sample(31, 99)), Some(Order::Pause));
        assert_eq!(monitor.judge(sample(32, 98)), Some(Order::Pause), "again, until it has worked");
        monitor.switched(MigrationMode::Paused, Duration::from_secs(32));
        assert_eq!(monitor.judge(sample(60, 97)), None);
        assert!(aborts(monitor.judge(sample(61, 96)), "within 60 s"));
    }

    #[test]
    fn a_guest_that_changes_little_is_not_stopped_for_longer_than_it_needs() {
        for (limit, first, expected) in [
            (0, 100, &[(5, 300)][..]),
            (900, 100, &[(5, 300), (10, 900)][..]),
            (200, 100, &[(5, 200)][..]),
            (20, 20, &[][..]),
        ] {
            let mut monitor = monitor(|options| options.max_downtime_ms = limit);
            assert_eq!(monitor.first_downtime(), Some(first));
            let mut raised = Vec::new();
            for iteration in 0..20 {
                if let Some(Order::MaxDowntime(ms)) = monitor.judge(Sample { iteration, ..sample(1, 100) }) {
                    raised.push((iteration, ms));
                }
            }
            assert_eq!(raised, expected, "at most {limit}");
        }
    }

    #[test]
    fn the_downtime_grows_in_steps_up_to_its_limit() {
        let mut monitor = monitor(|options| {
            options.completion_timeout_per_gib_seconds = 0;
            (options.max_downtime_ms, options.progress_timeout_seconds) = (850, 0);
            options.downtime_tuning = Some(DowntimeTuning::default());
        });
        assert_eq!(monitor.first_downtime(), Some(150));
        let mut raised = Vec::new();
        for second in 0..200 {
            let iteration = second / 5;
            if let Some(Order::MaxDowntime(ms)) = monitor.judge(Sample { iteration, ..sample(second, 100) }) {
                raised.push((second, ms));
            }
        }
        let expected: Vec<_> = (1..=7).map(|step| (5 + 10 * step, 150 + 100 * step)).collect();
        assert_eq!(raised, expected);
    }
}
