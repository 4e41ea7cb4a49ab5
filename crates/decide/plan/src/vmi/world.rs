use std::sync::Arc;
use std::time::Duration;

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::SyncError;

/// The virtual machine an instance was made by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It stands alone.
    Nobody,
    Alive,
    /// No virtual machine with the owner's UID exists any more.
    Gone,
}

/// Everything the decision may see.
#[derive(Clone, Debug)]
pub struct World {
    pub vmi: Arc<VirtualMachineInstance>,
    /// Every Pod the instance controls, by UID of the owner.
    pub pods: Vec<Arc<Pod>>,
    pub owner: Owner,
    pub config: Arc<ClusterConfig>,
    /// Our own writes are not in the caches yet; they will be within this time, or never.
    pub behind: Option<Duration>,
    /// The attempt made a moment ago failed.
    pub failed: Option<SyncError>,
    /// Whole seconds, as the API keeps them.
    pub now: Time,
}

impl World {
    /// The Pod that runs or will run the guest: on the instance's node if it has one, the youngest if there are several.
    pub(super) fn current_pod(&self) -> Option<&Pod> {
        let node = self.node();
        let on_node = |pod: &&Arc<Pod>| node.is_none() || crate::pods::node_name(pod) == node;
        let age = |pod: &&Arc<Pod>| (pod.metadata.creation_timestamp.clone(), pod.metadata.name.clone());
        self.pods.iter().filter(on_node).max_by_key(age).map(AsRef::as_ref)
    }

    /// The node the instance was handed to.
    pub(super) fn node(&self) -> Option<&str> {
        self.vmi.status.as_ref().and_then(|status| status.node_name.as_deref()).filter(|name| !name.is_empty())
    }

    /// Whether this failure is on the instance already, so that it needs no second event.
    pub(super) fn shows(&self, error: &SyncError) -> bool {
        let shown = self.vmi.condition(api::conditions::SYNCHRONIZED);
        shown.is_some_and(|condition| condition.is_false() && condition.reason() == error.reason)
    }
}
