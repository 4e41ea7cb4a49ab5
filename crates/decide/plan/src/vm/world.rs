use std::sync::Arc;
use std::time::Duration;

use api::v1::{StateChangeRequestAction, VirtualMachine, VirtualMachineInstance, VirtualMachineStateChangeRequest};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{SyncError, meta};

/// Everything the decision may see.
#[derive(Clone, Debug)]
pub struct World {
    pub vm: Arc<VirtualMachine>,
    /// The instance of the same name, whoever controls it.
    pub vmi: Option<Arc<VirtualMachineInstance>>,
    /// The revisions that the virtual machine controls.
    pub revisions: Vec<Arc<ControllerRevision>>,
    /// Our last write to the virtual machine, or the creation or deletion of its instance, is not in the caches yet; it
    /// will be within this time, or never.
    pub behind: Option<Duration>,
    /// The cluster is being emptied: nothing is started, whatever the run strategy.
    pub hold_starts: bool,
    /// The attempt made a moment ago failed.
    pub failed: Option<SyncError>,
    /// Whole seconds, as the API keeps them.
    pub now: Time,
}

impl World {
    /// The instance, if the virtual machine controls it.
    pub(super) fn instance(&self) -> Option<&VirtualMachineInstance> {
        self.vmi.as_deref().filter(|vmi| meta::is_controlled_by(&vmi.metadata, meta::uid(&self.vm.metadata)))
    }

    /// An instance of our name that somebody else controls.
    pub(super) fn foreign_instance(&self) -> Option<&VirtualMachineInstance> {
        let vmi = self.vmi.as_deref()?;
        meta::controller_of(&vmi.metadata).filter(|owner| owner.uid != meta::uid(&self.vm.metadata)).map(|_| vmi)
    }

    /// An instance of our name that nobody controls.
    pub(super) fn orphaned_instance(&self) -> Option<&VirtualMachineInstance> {
        self.vmi.as_deref().filter(|vmi| meta::controller_of(&vmi.metadata).is_none())
    }

    /// Only the first request counts.
    pub(super) fn request(&self) -> Option<&VirtualMachineStateChangeRequest> {
        self.vm.status.as_ref()?.state_change_requests.first()
    }

    pub(super) fn start_requested(&self) -> bool {
        self.request().is_some_and(|request| request.action == StateChangeRequestAction::Start)
    }

    /// A stop names the instance it means; one for an earlier instance has no effect.
    pub(super) fn stop_requested(&self, vmi: &VirtualMachineInstance) -> bool {
        self.request().is_some_and(|request| {
            request.action == StateChangeRequestAction::Stop && request.uid == vmi.metadata.uid && request.uid.is_some()
        })
    }
}
