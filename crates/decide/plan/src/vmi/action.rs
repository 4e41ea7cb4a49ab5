use std::fmt;
use std::time::Duration;

use api::reasons;
use api::v1::VirtualMachineInstance;
use json_patch::Patch;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodCondition};

use crate::guard::paths;
use crate::{Note, meta, pods};

/// Every effect this controller can have.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Replaces the instance, guarded by its resource version. Only while the controller owns it.
    UpdateVmi(Box<VirtualMachineInstance>),
    /// Patches the instance, guarded by tests. While the node agent owns it.
    PatchVmi(Patch),
    /// Creates a Pod. One of this name with the same controller is success.
    CreatePod { pod: Box<Pod>, because: &'static str },
    /// Deletes a Pod if it still has this UID; `at_once` leaves it no grace. A failure shows as `on_failure`.
    DeletePod { name: String, uid: String, at_once: bool, because: &'static str, on_failure: &'static str },
    /// Patches labels and annotations of a Pod.
    PatchPod { name: String, patch: Patch },
    /// Sets one condition in a Pod's status, leaving those of others alone.
    SetPodCondition { name: String, uid: String, condition: Box<PodCondition> },
    /// Creates the claim for the guest's state. One of this name with the same controller is success.
    CreateClaim { claim: Box<PersistentVolumeClaim>, because: &'static str },
    /// Deletes a claim if it still has this UID.
    DeleteClaim { name: String, uid: String, because: &'static str },
    /// Patches labels of a claim.
    PatchClaim { name: String, patch: Patch },
    /// Reads the instance's Pods live, those of this sort. If there are none, `then` follows; otherwise the cache is
    /// behind, and the key is looked at again shortly.
    ConfirmNoPods { sort: Sort, then: Vec<Action> },
    /// Reads the claims with this instance's state live, by their label. If there are none, `then` follows; otherwise
    /// the cache is behind, and the key is looked at again shortly.
    ConfirmNoStateClaim { then: Vec<Action> },
    /// Reads the namespace's migrations live. If the one with this UID is gone, `then` follows; otherwise the cache is behind.
    ConfirmNoMigration { uid: String, then: Vec<Action> },
    /// Reads the instance live. If it is as the cache has it, `then` follows; otherwise the cache is behind.
    ConfirmCurrent { then: Vec<Action> },
    /// Publishes an event on the instance.
    Note(Note),
    /// Another look after this time.
    RequeueAfter(Duration),
}

/// Which of an instance's Pods count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Every one.
    All,
    /// Those that run a guest or may do so, on this node if one is named.
    Launchers { node: Option<String> },
}

impl Sort {
    /// Whether this Pod of the instance counts.
    pub fn includes(&self, pod: &Pod) -> bool {
        match self {
            Self::All => true,
            Self::Launchers { node } => {
                !pods::is_temporary(pod) && (node.is_none() || pods::node_name(pod) == node.as_deref())
            }
        }
    }
}

impl Action {
    /// The reason under which a failure of this action is shown on the instance. Failures of the others are only
    /// retried: they are writes to the very object that would have to show it.
    pub fn failure_reason(&self) -> Option<&'static str> {
        match self {
            Self::CreatePod { .. } => Some(reasons::FAILED_CREATE),
            Self::DeletePod { on_failure, .. } => Some(on_failure),
            Self::PatchPod { .. } | Self::SetPodCondition { .. } => Some(reasons::FAILED_POD_PATCH),
            Self::CreateClaim { .. } | Self::DeleteClaim { .. } | Self::PatchClaim { .. } => {
                Some(reasons::FAILED_BACKEND_STORAGE_CREATE)
            }
            Self::UpdateVmi(_) | Self::PatchVmi(_) => None,
            Self::ConfirmNoPods { .. } | Self::ConfirmNoStateClaim { .. } => None,
            Self::ConfirmNoMigration { .. } | Self::ConfirmCurrent { .. } => None,
            Self::Note(_) | Self::RequeueAfter(_) => None,
        }
    }
}

/// For logs: what is done to which object, and never what is in it.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UpdateVmi(vmi) => write!(f, "update the instance, phase {}", phase(vmi)),
            Self::PatchVmi(patch) => write!(f, "patch the instance: {}", paths(patch)),
            Self::CreatePod { pod, because } => write!(f, "create Pod {}: {because}", meta::name(&pod.metadata)),
            Self::DeletePod { name, because, .. } => write!(f, "delete Pod {name}: {because}"),
            Self::PatchPod { name, patch } => write!(f, "patch Pod {name}: {}", paths(patch)),
            Self::SetPodCondition { name, condition, .. } => {
                write!(f, "set {}={} on Pod {name}", condition.type_, condition.status)
            }
            Self::CreateClaim { claim, because } => {
                write!(f, "create PersistentVolumeClaim {}: {because}", meta::name(&claim.metadata))
            }
            Self::DeleteClaim { name, because, .. } => write!(f, "delete PersistentVolumeClaim {name}: {because}"),
            Self::PatchClaim { name, patch } => write!(f, "patch PersistentVolumeClaim {name}: {}", paths(patch)),
            Self::ConfirmNoPods { then, .. } => confirmed(f, "if no Pod is left:", then),
            Self::ConfirmNoMigration { uid, then } => confirmed(f, &format!("if migration {uid} is gone:"), then),
            Self::ConfirmCurrent { then } => confirmed(f, "if the instance is as the cache has it:", then),
            Self::ConfirmNoStateClaim { then } => confirmed(f, "if no claim keeps the guest's state:", then),
            Self::Note(note) => write!(f, "event {}", note.reason),
            Self::RequeueAfter(delay) => write!(f, "look again after {delay:?}"),
        }
    }
}

fn confirmed(f: &mut fmt::Formatter<'_>, when: &str, then: &[Action]) -> fmt::Result {
    f.write_str(when)?;
    then.iter().try_for_each(|action| write!(f, " {action};"))
}

fn phase(vmi: &VirtualMachineInstance) -> &str {
    vmi.phase().map_or("unset", |phase| phase.as_str())
}
