use std::fmt;
use std::time::Duration;

use api::events;
use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration as Migration};
use json_patch::Patch;
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::ObjectReference;

use crate::{Note, meta};

/// Every effect this controller can have. Events about one go to the instance. The failure of one is no reason to leave the
/// rest undone: it is told, and what is left to do is looked at again after a while.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Creates a migration, unless the instance has one by now. One of this name for the same instance is success.
    Create { migration: Box<Migration>, about: Box<ObjectReference>, created: Note },
    /// Deletes a migration of ours that has nothing to bring any more.
    Abort { namespace: String, name: String, uid: String, about: Box<ObjectReference>, aborted: Note },
    /// Evicts the Pod that the guest is in. If the guest is moved instead, that is as good.
    Evict { namespace: String, pod: String, uid: String, about: Box<ObjectReference>, evicted: Note },
    /// Writes into the KubeVirt object's status how many guests are left to do.
    Count(Patch),
    /// Another look after this time.
    RequeueAfter(Duration),
}

impl Action {
    /// The event of a failure, and the object it is about.
    pub fn failure(&self, error: &str) -> Option<(ObjectReference, Note)> {
        let (about, reason, what) = match self {
            Self::Create { about, .. } => (about, events::FAILED_CREATE, "create a migration that updates the guest"),
            Self::Abort { about, .. } => (about, events::FAILED_CHANGE_ABORTION, "give up the migration"),
            Self::Evict { about, .. } => (about, events::FAILED_EVICT, "evict the launcher Pod to update the guest"),
            Self::Count(_) | Self::RequeueAfter(_) => return None,
        };
        Some((about.as_ref().clone(), Note::warning(reason, format!("Failed to {what}: {error}"))))
    }
}

/// What an event about the instance refers to.
pub(super) fn about(vmi: &VirtualMachineInstance) -> Box<ObjectReference> {
    Box::new(ObjectReference {
        api_version: Some(VirtualMachineInstance::API_VERSION.to_owned()),
        kind: Some(VirtualMachineInstance::KIND.to_owned()),
        namespace: vmi.metadata.namespace.clone(),
        name: vmi.metadata.name.clone(),
        uid: vmi.metadata.uid.clone(),
        ..ObjectReference::default()
    })
}

/// For logs.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { migration, .. } => {
                let vmi = migration.spec.vmi_name.as_deref().unwrap_or_default();
                write!(f, "create migration {} of instance {vmi}", meta::name(&migration.metadata))
            }
            Self::Abort { name, aborted, .. } => write!(f, "delete migration {name}: {}", aborted.message),
            Self::Evict { pod, evicted, .. } => write!(f, "evict Pod {pod}: {}", evicted.message),
            Self::Count(_) => write!(f, "count the outdated instances"),
            Self::RequeueAfter(delay) => write!(f, "look again after {delay:?}"),
        }
    }
}
