//! The hand-offs of one VM start, or of one live migration, as a watcher of the API and of the console sees them.

use std::fmt;
use std::time::{Duration, Instant};

/// A hand-off, in the order in which a VM goes through them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HandOff {
    /// The user's request was accepted and stored.
    Accepted,
    /// virt-controller made the instance.
    InstanceCreated,
    /// virt-controller made the launcher Pod.
    PodCreated,
    /// The scheduler chose a node.
    PodScheduled,
    /// The node runs virt-launcher.
    LauncherRunning,
    /// virt-controller handed the instance over to virt-handler.
    HandedOver,
    /// virt-launcher started QEMU through libvirt.
    GuestStarted,
    /// The first line that a program in the guest wrote to the console.
    UserSpace,
    /// The guest has finished booting.
    GuestUp,
}

/// A kind of hand-offs, each with the line it is shown as.
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

/// A hand-off of a live migration, in the order in which a guest goes through them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoveStep {
    /// The migration was admitted and stored.
    Accepted,
    /// virt-controller queued it.
    Pending,
    /// virt-controller made the target Pod.
    TargetCreated,
    /// The scheduler chose the target node.
    TargetScheduled,
    /// The target node runs a second virt-launcher.
    TargetRunning,
    /// virt-controller gave the migration to both nodes.
    HandedOff,
    /// The target's virt-handler listens.
    TargetReady,
    /// The source's virt-handler has its launcher send.
    Sending,
    /// The guest runs on the target.
    Arrived,
    /// The target's virt-handler owns the instance.
    Owned,
    /// virt-controller closed the migration.
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

/// When each hand-off was seen, counted from the request.
#[derive(Clone, Debug)]
pub struct Timeline<S = HandOff> {
    start: Instant,
    seen: Vec<(S, Duration)>,
}

impl<S: Step> Timeline<S> {
    pub fn starting_now() -> Self {
        Self { start: Instant::now(), seen: Vec::new() }
    }

    /// Notes a hand-off at its first sight; later sights of the same one change nothing.
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

    /// Time from the request to a hand-off.
    pub fn until(&self, hand_off: S) -> Option<Duration> {
        self.seen.iter().find(|(seen, _)| *seen == hand_off).map(|(_, at)| *at)
    }
}

impl<S: Step> fmt::Display for Timeline<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A watcher may hear of two hand-offs in the wrong order (they come from different watches): the pipeline's
        // order is the truth, and a hand-off cannot be later than one that follows from it.
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
