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

use jiff::Timestamp;
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
    /// Why the last attempt to start it failed, and when to try again.
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
    pub retry_at: Timestamp,
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
