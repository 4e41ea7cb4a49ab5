//! The Pod runner's decisions about one Pod on its node, including the status it reports: [`decide`] of a [`PodView`].
//! The shim's decisions about the Pod's containers: [`outlook`].

pub mod claims;
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

/// The input of the decision.
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
    /// A live read found no object with this UID.
    Gone,
}

/// Something the Pod needs is missing or invalid; it starts when that is fixed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    pub reason: &'static str,
    pub message: String,
}

pub const CONFIG_ERROR: &str = "CreateContainerConfigError";
pub const PULL_ERROR: &str = "ErrImagePull";
pub const PULL_BACK_OFF: &str = "ImagePullBackOff";
pub const NEVER_PULL: &str = "ErrImageNeverPull";
/// A volume that cannot be mounted, as an event's reason.
pub const FAILED_MOUNT: &str = "FailedMount";
/// A volume that somebody else uses, as an event's reason.
pub const FAILED_ATTACH: &str = "FailedAttachVolume";

/// A container that has not been started.
pub(crate) const CREATING: &str = "ContainerCreating";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    pub blocked: Blocked,
    /// The number of consecutive occurrences.
    pub attempts: u32,
    /// The time of the last occurrence.
    pub met_at: Timestamp,
    /// The missing object exists by now.
    pub mended: bool,
}

impl Obstacle {
    /// The delay before a failed start is retried.
    const RETRY: SignedDuration = SignedDuration::from_secs(5);
    /// The back-off after a failed pull, which doubles with each further one, like the kubelet's.
    const PULL_RETRY: SignedDuration = SignedDuration::from_secs(10);
    const LONGEST_PULL_RETRY: SignedDuration = SignedDuration::from_secs(300);
    /// How long a pull error is shown before the back-off that follows it.
    const PULL_ERROR_SHOWN: SignedDuration = SignedDuration::from_secs(5);

    /// Whoever waits for a volume should have it soon after it can.
    const VOLUME_RETRY: SignedDuration = SignedDuration::from_millis(125);
    const LONGEST_VOLUME_RETRY: SignedDuration = SignedDuration::from_secs(1);

    /// The reason of the last failure, or that of the back-off that follows it. A Pod that waits for a volume is being
    /// created, as with the kubelet; its events have the reason.
    pub fn reason(&self, now: Timestamp) -> &'static str {
        if self.is_volume() {
            return CREATING;
        }
        let pauses = now.duration_since(self.met_at) >= Self::PULL_ERROR_SHOWN;
        if self.is_pull() && pauses { PULL_BACK_OFF } else { self.blocked.reason }
    }

    /// The time until the next attempt; `None` if it is due.
    pub fn left(&self, now: Timestamp) -> Option<SignedDuration> {
        let doublings = self.attempts.saturating_sub(1).min(5);
        let pull = Self::LONGEST_PULL_RETRY.min(Self::PULL_RETRY * (1 << doublings));
        let volume = Self::LONGEST_VOLUME_RETRY.min(Self::VOLUME_RETRY * (1 << doublings));
        let pause = match (self.is_pull(), self.is_volume()) {
            (true, _) => pull,
            (_, true) => volume,
            (false, false) => Self::RETRY,
        };
        let left = pause - now.duration_since(self.met_at);
        Some(left).filter(|left| !self.mended && *left > SignedDuration::ZERO)
    }

    /// The reason of the event about it.
    pub fn event(&self) -> &'static str {
        if self.is_volume() { self.blocked.reason } else { "Failed" }
    }

    /// Whether the Pod waits for a volume.
    fn is_volume(&self) -> bool {
        [FAILED_MOUNT, FAILED_ATTACH].contains(&self.blocked.reason)
    }

    /// Whether the Pod waits for an image.
    pub fn is_pull(&self) -> bool {
        self.blocked.reason == PULL_ERROR
    }
}

/// Every effect that the runner can have on a Pod.
#[derive(Clone, Debug, PartialEq)]
pub enum PodAction {
    /// Prepare volumes and network and start the shim; continues where an earlier attempt ended.
    Start,
    /// Ask the containers to stop.
    Stop { because: &'static str },
    /// Kill the containers.
    Kill { because: &'static str },
    /// Release network, cgroups, mounts and IP address; records and logs stay.
    Release,
    /// Remove records and logs.
    Purge,
    /// Write the Pod's status, which has changed.
    ReportStatus(Box<PodStatus>),
    /// Remove the object: everything it stood for is gone.
    Delete,
    /// Requeue after this time even if nothing happens.
    Wake(Duration),
}
