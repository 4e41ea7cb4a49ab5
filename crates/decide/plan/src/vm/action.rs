use std::fmt;
use std::time::Duration;

use api::cdi::DataVolume;
use api::v1::{VirtualMachine, VirtualMachineInstance};
use api::{events, reasons};
use json_patch::Patch;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::guard::paths;
use crate::{Note, meta};

/// Every effect this controller can have.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Patches metadata or spec of the virtual machine, guarded by tests.
    PatchVm { patch: Patch, reason: &'static str },
    /// Replaces the virtual machine's status, guarded by its resource version.
    UpdateStatus(Box<VirtualMachine>),
    /// Makes the ownerless instance of our name ours, if it still has this UID and if a live look shows that the
    /// virtual machine still exists and is not being deleted.
    AdoptVmi { name: String, uid: String, owner: OwnerReference },
    /// The same for an ownerless DataVolume that a template names.
    AdoptDataVolume { name: String, uid: String, owner: OwnerReference },
    /// Keeps the spec that an instance is started from, or what an instance type or preference says. One of this name is
    /// success: the name says what it holds.
    CreateRevision(Box<ControllerRevision>),
    /// Drops a revision that is needed no more.
    DeleteRevision { name: String, uid: String },
    /// Asks live whether somebody may do something, and goes on with `then` only if so. Allowed is who may do all of one
    /// of the lists.
    Authorize { name: String, any_of: Vec<Vec<SubjectAccessReviewSpec>>, then: Vec<Action> },
    /// Creates a DataVolume. One of this name that we control is success. If its claim exists already, an importer too
    /// old to take claims over says so, which is no failure.
    CreateDataVolume { data_volume: Box<DataVolume>, claim_exists: bool },
    /// Creates the instance. One of this name that we control is success.
    CreateVmi { vmi: Box<VirtualMachineInstance>, because: &'static str },
    /// Deletes the instance if it still has this UID.
    DeleteVmi { name: String, uid: String, because: &'static str },
    /// Goes on with `then` only if a live look finds no instance of this name that we control.
    ConfirmNoInstance { name: String, then: Vec<Action> },
    /// Patches the instance, guarded by tests.
    PatchVmi { name: String, patch: Patch, reason: &'static str },
    /// Patches the metadata of a claim, guarded by tests.
    PatchClaim { name: String, patch: Patch },
    /// Publishes an event on the virtual machine.
    Note(Note),
    /// Another look after this time.
    RequeueAfter(Duration),
}

/// What a patch is for that keeps records and can only fail because somebody else was faster.
pub(super) const BOOKKEEPING: &str = "";

impl Action {
    /// The reason under which a failure of this action is shown on the virtual machine.
    pub fn failure_reason(&self) -> Option<&'static str> {
        match self {
            Self::AdoptVmi { .. } | Self::AdoptDataVolume { .. } | Self::CreateRevision(_) | Self::CreateVmi { .. } => {
                Some(reasons::FAILED_CREATE)
            }
            Self::Authorize { .. } => Some(events::UNAUTHORIZED_DATA_VOLUME_CREATE),
            Self::CreateDataVolume { .. } => Some(events::FAILED_DATA_VOLUME_CREATE),
            Self::DeleteVmi { .. } | Self::DeleteRevision { .. } => Some(reasons::FAILED_DELETE),
            Self::PatchVm { reason, .. } | Self::PatchVmi { reason, .. } => {
                Some(*reason).filter(|reason| *reason != BOOKKEEPING)
            }
            Self::PatchClaim { .. } => Some(reasons::MEMORY_DUMP_ERROR),
            Self::UpdateStatus(_) | Self::ConfirmNoInstance { .. } | Self::Note(_) | Self::RequeueAfter(_) => None,
        }
    }
}

/// For logs: what is done to which object, and never what is in it.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PatchVm { patch, .. } => write!(f, "patch the virtual machine: {}", paths(patch)),
            Self::UpdateStatus(vm) => {
                let word = vm.status.as_ref().and_then(|status| status.printable_status.as_ref());
                write!(f, "update the status: {}", word.map_or("", |word| word.as_str()))
            }
            Self::AdoptVmi { name, .. } => write!(f, "adopt instance {name}"),
            Self::AdoptDataVolume { name, .. } => write!(f, "adopt DataVolume {name}"),
            Self::CreateRevision(revision) => write!(f, "create revision {}", meta::name(&revision.metadata)),
            Self::DeleteRevision { name, .. } => write!(f, "delete revision {name}"),
            Self::Authorize { name, .. } => write!(f, "ask whether DataVolume {name} may be copied"),
            Self::CreateDataVolume { data_volume, .. } => {
                write!(f, "create DataVolume {}", meta::name(&data_volume.metadata))
            }
            Self::CreateVmi { vmi, because } => write!(f, "create instance {}: {because}", meta::name(&vmi.metadata)),
            Self::DeleteVmi { name, because, .. } => write!(f, "delete instance {name}: {because}"),
            Self::ConfirmNoInstance { name, .. } => write!(f, "look for instance {name} once more"),
            Self::PatchVmi { name, patch, .. } => write!(f, "patch instance {name}: {}", paths(patch)),
            Self::PatchClaim { name, patch } => write!(f, "patch claim {name}: {}", paths(patch)),
            Self::Note(note) => write!(f, "event {}", note.reason),
            Self::RequeueAfter(delay) => write!(f, "look again after {delay:?}"),
        }
    }
}
