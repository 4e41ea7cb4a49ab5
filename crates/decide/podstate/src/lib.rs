//! What the Pod runner does about one Pod of its node, and the status it reports: [`decide`] of a [`PodView`]. What the
//! Pod's shim does about its containers: [`outlook`].

mod decide;
mod outlook;
mod record;
mod spec;
mod status;
mod unsupported;

#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodStatus};

pub use decide::decide;
pub use outlook::{Outlook, outlook};
pub use record::{ContainerRecord, Exit, ExitReason, Observed, Process, RestartPolicy, ShimState, Stage};
pub use spec::{containers, limit, qos_class, request, restart_policy};
pub use unsupported::{Unsupported, check};

/// Everything the decision may see.
#[derive(Clone, Debug)]
pub struct PodView<'a> {
    pub pod: Presence<'a>,
    /// The Pod's state on this machine.
    pub disk: Option<&'a Observed>,
    /// Why the last attempt to start it failed.
    pub blocked: Option<&'a Obstacle>,
    pub node_address: Ipv4Addr,
    pub now: Timestamp,
}

/// The Pod's object.
#[derive(Clone, Copy, Debug)]
pub enum Presence<'a> {
    Known(&'a Pod),
    /// The API server said, asked directly, that there is no object of this UID.
    Gone,
}

/// Something the Pod needs is missing or wrong; it starts when that is mended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    pub reason: &'static str,
    pub message: String,
}

pub const CONFIG_ERROR: &str = "CreateContainerConfigError";
pub const PULL_ERROR: &str = "ErrImagePull";
pub const PULL_BACK_OFF: &str = "ImagePullBackOff";
pub const NEVER_PULL: &str = "ErrImageNeverPull";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    pub blocked: Blocked,
    /// How often it was met in a row.
    pub attempts: u32,
    /// When it was met last.
    pub met_at: Timestamp,
    /// What was missing is there by now.
    pub mended: bool,
}

impl Obstacle {
    /// How soon a Pod that could not start is tried again.
    const RETRY: SignedDuration = SignedDuration::from_secs(5);
    /// The pause after a failed pull, which doubles with each further one, as the kubelet's does.
    const PULL_RETRY: SignedDuration = SignedDuration::from_secs(10);
    const LONGEST_PULL_RETRY: SignedDuration = SignedDuration::from_secs(300);
    /// For how long a failed pull is shown before the pause that follows it.
    const PULL_ERROR_SHOWN: SignedDuration = SignedDuration::from_secs(5);

    /// Why the last attempt failed, or that the next one is held back for it.
    pub fn reason(&self, now: Timestamp) -> &'static str {
        let pauses = now.duration_since(self.met_at) >= Self::PULL_ERROR_SHOWN;
        if self.is_pull() && pauses { PULL_BACK_OFF } else { self.blocked.reason }
    }

    /// How long to wait yet before the next attempt; none if it is due.
    pub fn left(&self, now: Timestamp) -> Option<SignedDuration> {
        let doublings = self.attempts.saturating_sub(1).min(5);
        let pull = Self::LONGEST_PULL_RETRY.min(Self::PULL_RETRY * (1 << doublings));
        let pause = if self.is_pull() { pull } else { Self::RETRY };
        let left = pause - now.duration_since(self.met_at);
        Some(left).filter(|left| !self.mended && *left > SignedDuration::ZERO)
    }

    /// Whether an image is waited for.
    pub fn is_pull(&self) -> bool {
        self.blocked.reason == PULL_ERROR
    }
}

/// Every effect that the runner can have on a Pod.
#[derive(Clone, Debug, PartialEq)]
pub enum PodAction {
    /// Prepare volumes and network and start the shim; goes on where an earlier attempt ended.
    Start,
    /// Ask the containers to end.
    Stop { because: &'static str },
    /// Kill the containers.
    Kill { because: &'static str },
    /// Free network, groups, mounts and address; records and logs stay.
    Release,
    /// Remove records and logs.
    Purge,
    /// Write the Pod's status; it differs from the one there.
    ReportStatus(Box<PodStatus>),
    /// Delete the object for good: everything it stood for is gone.
    Delete,
    /// Look again after this time even if nothing happens.
    Wake(Duration),
}
