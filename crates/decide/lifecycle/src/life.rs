//! The launcher's own way, from the moment it serves requests to its exit.
//!
//! ```text
//!  Waiting ──► Guarding ───────────────────────────────────────► Final ──► exit
//!     │ nobody    │ the Pod is stopped                             ▲          virt-handler deletes the domain,
//!     │ came:     ▼                                     it ends    │          or the time is over
//!     │ fail    Marked: virt-handler shuts it down ────────────────┤
//!     │           │ the grace period is over                       │
//!     │           ▼                                                │
//!     │         Ending: kills it ──► Checking: libvirt notices ────┘
//!     │ the Pod is stopped
//!     └─► Stopping: kills what was about to start ──► exit
//! ```
//!
//! The exit says whether the *launcher* did its work, not how the guest ended: that is in the state, which virt-handler
//! reads while the launcher waits for it.

use std::time::Duration;

use launcher_contract::types::{DomainReason, LauncherState};
use transfer::Domain;

/// How long the final state is kept for virt-handler to read.
const FINAL_WAIT: Duration = Duration::from_secs(15);
/// How long the source launcher waits to be released after the guest has migrated.
const HANDED_OVER_WAIT: Duration = Duration::from_secs(600);
/// How long libvirt may take to notice that QEMU is gone.
const SEEN_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Until somebody asks for a guest.
    pub first: Duration,
    /// From the signal that stops the Pod until the guest is ended.
    pub grace: Duration,
}

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// QEMU has run the guest here, or the domain was deleted.
    Started,
    /// [`has_ended`]
    Ended,
    /// The domain was deleted on request.
    Deleted,
    /// The Pod is being stopped.
    StopAsked,
    /// [`Order::EndGuest`] was carried out, as far as that was possible.
    Killed,
    /// The time of [`Life::wakes_at`] has come.
    Tick,
}

/// What the launcher knows at that moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub domain: Option<Domain>,
    /// [`transfer::awaits_guest`]
    pub awaits_guest: bool,
}

impl Seen {
    pub fn of(state: &LauncherState) -> Seen {
        let domain = state.domain.as_ref().map(|domain| (domain.status, domain.reason));
        Seen { domain, awaits_guest: transfer::awaits_guest(state.migration.as_ref()) }
    }
}

/// What the launcher does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The guest runs: guard it.
    Guard,
    /// Mark the guest for shutdown: virt-handler shuts it down.
    Mark,
    /// Kill QEMU, unless the guest is down. Answered by [`Event::Killed`]. `overdue`: it had its grace period.
    EndGuest {
        overdue: bool,
    },
    /// Keep the final state in a file from now on, for a virt-handler that is away.
    KeepState,
    Exit(Exit),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The launcher's work is done, because of this.
    Done(&'static str),
    /// Nobody asked for a guest in time.
    NobodyCame,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// `None`: a migration's target waits as long as it takes.
    Waiting {
        until: Option<Duration>,
    },
    Stopping,
    Guarding,
    Marked {
        until: Duration,
    },
    Ending,
    Checking {
        until: Duration,
    },
    Final {
        until: Duration,
        moved: bool,
    },
    Over,
}

/// See the module documentation. Times count from its beginning.
#[derive(Debug, Clone)]
pub struct Life {
    grace: Duration,
    step: Step,
}

impl Life {
    pub fn new(limits: Limits) -> Life {
        Life { grace: limits.grace, step: Step::Waiting { until: Some(limits.first) } }
    }

    /// Whether the next step depends on this. The launcher does not listen to what matters no more, or not yet.
    pub fn heeds(&self, event: Event) -> bool {
        match event {
            Event::Started => matches!(self.step, Step::Waiting { .. }),
            Event::Ended => {
                matches!(self.step, Step::Guarding | Step::Marked { .. } | Step::Ending | Step::Checking { .. })
            }
            Event::Deleted => matches!(self.step, Step::Waiting { .. } | Step::Final { .. }),
            Event::StopAsked => {
                matches!(self.step, Step::Waiting { .. } | Step::Guarding | Step::Final { moved: true, .. })
            }
            Event::Killed => matches!(self.step, Step::Stopping | Step::Ending),
            Event::Tick => self.wakes_at().is_some(),
        }
    }

    pub fn wakes_at(&self) -> Option<Duration> {
        match self.step {
            Step::Waiting { until } => until,
            Step::Marked { until } | Step::Checking { until } | Step::Final { until, .. } => Some(until),
            Step::Stopping | Step::Guarding | Step::Ending | Step::Over => None,
        }
    }

    /// Whether the guest has ended here, and the launcher only waits for its release.
    pub fn is_final(&self) -> bool {
        matches!(self.step, Step::Final { .. })
    }

    /// Handles one event and returns what to do.
    pub fn on(&mut self, event: Event, seen: Seen, now: Duration) -> Vec<Order> {
        if !self.heeds(event) || (event == Event::Tick && self.wakes_at().is_some_and(|at| now < at)) {
            return Vec::new();
        }
        let (next, order) = match (self.step, event) {
            (Step::Waiting { .. }, Event::Started) => (Step::Guarding, Some(Order::Guard)),
            (Step::Waiting { .. }, Event::Deleted) => exit(Exit::Done("deleted before it had a guest")),
            (Step::Waiting { .. }, Event::StopAsked) => (Step::Stopping, Some(Order::EndGuest { overdue: false })),
            (Step::Waiting { .. }, Event::Tick) if seen.awaits_guest => (Step::Waiting { until: None }, None),
            (Step::Waiting { .. }, Event::Tick) => exit(Exit::NobodyCame),
            (Step::Stopping, Event::Killed) => exit(Exit::Done("stopped before it had a guest")),
            (Step::Guarding, Event::StopAsked) => {
                (Step::Marked { until: now.saturating_add(self.grace) }, Some(Order::Mark))
            }
            (Step::Marked { .. }, Event::Tick) => (Step::Ending, Some(Order::EndGuest { overdue: true })),
            (Step::Ending, Event::Killed) => (Step::Checking { until: now + SEEN_WITHIN }, None),
            (_, Event::Ended) | (Step::Checking { .. }, Event::Tick) => (last_step(seen, now), Some(Order::KeepState)),
            (Step::Final { .. }, Event::Deleted | Event::StopAsked | Event::Tick) => exit(Exit::Done("done")),
            (same, _) => (same, None),
        };
        self.step = next;
        order.into_iter().collect()
    }
}

fn exit(exit: Exit) -> (Step, Option<Order>) {
    (Step::Over, Some(Order::Exit(exit)))
}

/// After a migration the guest has not ended: the launcher stays until the target node has taken it over.
fn last_step(seen: Seen, now: Duration) -> Step {
    let moved = seen.domain.is_some_and(|(_, reason)| reason == DomainReason::Migrated);
    Step::Final { until: now + if moved { HANDED_OVER_WAIT } else { FINAL_WAIT }, moved }
}

/// Whether nothing of a guest that was started is left here.
pub fn has_ended(state: &LauncherState) -> bool {
    state.domain.as_ref().is_none_or(|domain| domain.is_down())
}
