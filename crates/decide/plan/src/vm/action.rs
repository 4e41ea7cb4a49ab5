use std::fmt;
use std::time::Duration;

use api::reasons;
use api::v1::{VirtualMachine, VirtualMachineInstance};
use json_patch::Patch;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::guard::paths;
use crate::{Note, meta};

/// Every effect this controller can have.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Patches metadata or spec of the virtual machine, guarded by tests.
    PatchVm(Patch),
    /// Replaces the virtual machine's status, guarded by its resource version.
    UpdateStatus(Box<VirtualMachine>),
    /// Makes the ownerless instance of our name ours, if it still has this UID and if a live look shows that the
    /// virtual machine still exists and is not being deleted.
    AdoptVmi { name: String, uid: String, owner: OwnerReference },
    /// Keeps the spec that an instance is started from. One of this name is success: the name says what it holds.
    CreateRevision(Box<ControllerRevision>),
    /// Drops the spec of an earlier start.
    DeleteRevision { name: String, uid: String },
    /// Creates the instance. One of this name that we control is success.
    CreateVmi { vmi: Box<VirtualMachineInstance>, because: &'static str },
    /// Deletes the instance if it still has this UID.
    DeleteVmi { name: String, uid: String, because: &'static str },
    /// Patches the instance's metadata, guarded by tests.
    PatchVmi { name: String, patch: Patch },
    /// Publishes an event on the virtual machine.
    Note(Note),
    /// Another look after this time.
    RequeueAfter(Duration),
}

impl Action {
    /// The reason under which a failure of this action is shown on the virtual machine.
    pub fn failure_reason(&self) -> Option<&'static str> {
        match self {
            Self::AdoptVmi { .. } | Self::CreateRevision(_) | Self::CreateVmi { .. } => Some(reasons::FAILED_CREATE),
            Self::DeleteVmi { .. } | Self::DeleteRevision { .. } => Some(reasons::FAILED_DELETE),
            Self::PatchVm(_) | Self::UpdateStatus(_) | Self::PatchVmi { .. } => None,
            Self::Note(_) | Self::RequeueAfter(_) => None,
        }
    }
}

/// For logs: what is done to which object, and never what is in it.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PatchVm(patch) => write!(f, "patch the virtual machine: {}", paths(patch)),
            Self::UpdateStatus(vm) => {
                let word = vm.status.as_ref().and_then(|status| status.printable_status.as_ref());
                write!(f, "update the status: {}", word.map_or("", |word| word.as_str()))
            }
            Self::AdoptVmi { name, .. } => write!(f, "adopt instance {name}"),
            Self::CreateRevision(revision) => write!(f, "create revision {}", meta::name(&revision.metadata)),
            Self::DeleteRevision { name, .. } => write!(f, "delete revision {name}"),
            Self::CreateVmi { vmi, because } => write!(f, "create instance {}: {because}", meta::name(&vmi.metadata)),
            Self::DeleteVmi { name, because, .. } => write!(f, "delete instance {name}: {because}"),
            Self::PatchVmi { name, patch } => write!(f, "patch instance {name}: {}", paths(patch)),
            Self::Note(note) => write!(f, "event {}", note.reason),
            Self::RequeueAfter(delay) => write!(f, "look again after {delay:?}"),
        }
    }
}
