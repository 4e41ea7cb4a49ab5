//! The steps of a VM start or a live migration, as observed through the API and the console.

use std::fmt;
use std::time::{Duration, Instant};

/// A step of a VM start, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HandOff {
    /// The user's request was accepted and stored.
    Accepted,
    /// virt-controller created the VMI.
    InstanceCreated,
    /// virt-controller created the launcher Pod.
    PodCreated,
    /// The scheduler chose a node.
    PodScheduled,
    /// The node runs virt-launcher.
    LauncherRunning,
    /// virt-controller handed the VMI over to virt-handler.
    HandedOver,
    /// virt-launcher started QEMU through libvirt.
    GuestStarted,
    /// The first console line written by a program in the guest.
    UserSpace,
    /// The guest has finished booting.
    GuestUp,
}

/// A kind of steps, each with its line of output.
pub trait Step: Copy + Ord {
    fn label(self) -> &'static str;
}

impl Step for HandOff {
    fn label(self) -> &'static str {
        match self {
            Self::Accepted => "user          → API server       object admitted and stored",
            Self::InstanceCreated => "API server    → virt-controller  instance created",
            Self::PodCreated => "virt-controller                  launcher Pod created",
            Self::PodScheduled => "scheduler     → node             Pod bound",
            Self::LauncherRunning => "Pod runner    → virt-launcher    launcher running",
            Self::HandedOver => "virt-controller → virt-handler   instance handed over",
            Self::GuestStarted => "virt-launcher → libvirt → QEMU   guest started",
            Self::UserSpace => "QEMU          → guest            first line of user space",
            Self::GuestUp => "guest                            boot finished",
        }
    }
}

/// A step of a live migration, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoveStep {
    /// The migration was admitted and stored.
    Accepted,
    /// virt-controller queued it.
    Pending,
    /// virt-controller created the target Pod.
    TargetCreated,
    /// The scheduler chose the target node.
    TargetScheduled,
    /// The target node runs a second virt-launcher.
    TargetRunning,
    /// virt-controller handed the migration to both nodes.
    HandedOff,
    /// The target's virt-handler is listening.
    TargetReady,
    /// The source's virt-handler has told its launcher to send.
    Sending,
    /// The guest runs on the target.
    Arrived,
    /// The target's virt-handler owns the VMI.
    Owned,
    /// virt-controller completed the migration.
    Succeeded,
}

impl Step for MoveStep {
    fn label(self) -> &'static str {
        match self {
            Self::Accepted => "user            → API server       migration admitted and stored",
            Self::Pending => "API server      → virt-controller  queued",
            Self::TargetCreated => "virt-controller                    target Pod created",
            Self::TargetScheduled => "scheduler       → target node      target Pod bound",
            Self::TargetRunning => "Pod runner      → virt-launcher    second launcher running",
            Self::HandedOff => "virt-controller → both handlers    migration handed off",
            Self::TargetReady => "target handler  → source handler   target listens",
            Self::Sending => "source handler  → virt-launcher    memory is sent",
            Self::Arrived => "source QEMU     → target QEMU      guest runs on the target",
            Self::Owned => "source handler  → target handler   instance belongs to the target",
            Self::Succeeded => "target handler  → virt-controller  migration closed",
        }
    }
}

/// When each step was observed, relative to the request.
#[derive(Clone, Debug)]
pub struct Timeline<S = HandOff> {
    start: Instant,
    seen: Vec<(S, Duration)>,
}

impl<S: Step> Timeline<S> {
    pub fn starting_now() -> Self {
        Self { start: Instant::now(), seen: Vec::new() }
    }

    /// Records a step when it is first observed.
    pub fn mark(&mut self, hand_off: S) {
        self.mark_at(hand_off, self.start.elapsed());
    }

    fn mark_at(&mut self, hand_off: S, at: Duration) {
        if !self.has(hand_off) {
            self.seen.push((hand_off, at));
        }
    }

    pub fn has(&self, hand_off: S) -> bool {
        self.seen.iter().any(|(seen, _)| *seen == hand_off)
    }

    /// Time from the request to a step.
    pub fn until(&self, hand_off: S) -> Option<Duration> {
        self.seen.iter().find(|(seen, _)| *seen == hand_off).map(|(_, at)| *at)
    }
}

impl<S: Step> fmt::Display for Timeline<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Steps may be observed out of order, since they come from different watches: the order of the pipeline is
        // authoritative, and a step cannot be later than one that follows from it.
        let mut ordered = self.seen.clone();
        ordered.sort_by_key(|(hand_off, _)| *hand_off);
        let mut latest = Duration::MAX;
        for (_, at) in ordered.iter_mut().rev() {
            latest = latest.min(*at);
            *at = latest;
        }
        let mut before = Duration::ZERO;
        for (hand_off, at) in ordered {
            writeln!(f, "{:8.3}s  +{:7.3}s  {}", at.as_secs_f64(), (at - before).as_secs_f64(), hand_off.label())?;
            before = at;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(marks: &[(HandOff, u64)]) -> Timeline {
        let mut timeline = Timeline::starting_now();
        for (hand_off, millis) in marks {
            timeline.mark_at(*hand_off, Duration::from_millis(*millis));
        }
        timeline
    }

    #[test]
    fn the_first_sight_of_a_hand_off_counts() {
        let timeline = timeline(&[(HandOff::Accepted, 5), (HandOff::Accepted, 50)]);
        assert_eq!(timeline.until(HandOff::Accepted), Some(Duration::from_millis(5)));
    }

    #[test]
    fn durations_are_never_negative_when_watches_report_out_of_order() {
        let text = timeline(&[(HandOff::PodCreated, 30), (HandOff::InstanceCreated, 40)]).to_string();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].contains("instance created") && lines[0].contains("+  0.030s"), "{text}");
        assert!(lines[1].contains("Pod created") && lines[1].contains("+  0.000s"), "{text}");
    }
}
