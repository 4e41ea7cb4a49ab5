use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::cdi::DataSource;
use api::config::ClusterConfig;
use api::instancetype::{VirtualMachineInstancetypeSpec, VirtualMachinePreferenceSpec};
use api::v1::{StateChangeRequestAction, VirtualMachine, VirtualMachineInstance, VirtualMachineStateChangeRequest};
use instancetype::Live;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::claims::Claims;
use crate::vmi::Settings;
use crate::{SyncError, flight, meta};

/// Namespace and name.
pub type Place = (String, String);

/// The input of the decision.
#[derive(Clone, Debug)]
pub struct World {
    pub vm: Arc<VirtualMachine>,
    /// The VMI of the same name, whoever controls it.
    pub vmi: Option<Arc<VirtualMachineInstance>>,
    /// The revisions that the VM controls, and those it names.
    pub revisions: Vec<Arc<ControllerRevision>>,
    /// The existing claims and DataVolumes named by its volumes and DataVolume templates.
    pub claims: Claims,
    /// The existing claims that its DataVolumes are cloned from.
    pub copied_claims: BTreeSet<Place>,
    /// The existing DataSources that its DataVolumes refer to, and those they point to.
    pub data_sources: BTreeMap<Place, Arc<DataSource>>,
    /// The instance type it names, if that exists.
    pub instancetype: Option<Live<VirtualMachineInstancetypeSpec>>,
    /// The preference it names, if that exists.
    pub preference: Option<Live<VirtualMachinePreferenceSpec>>,
    /// The labels of its namespace.
    pub namespace_labels: BTreeMap<String, String>,
    pub config: Arc<ClusterConfig>,
    /// Additional metadata that a running VMI takes over from the template.
    pub settings: Arc<Settings>,
    /// Our last write to the VM is not in the cache yet; after this time we stop waiting for it.
    pub behind: Option<Duration>,
    /// Expectation: the creation or deletion of the VMI is not in the cache yet; it expires after this time.
    pub expects_instance: Option<Duration>,
    /// Expectation: the creation of a DataVolume is not in the cache yet; it expires after this time.
    pub expects_data_volumes: Option<Duration>,
    /// The cluster is being drained: nothing is started, whatever the run strategy.
    pub hold_starts: bool,
    /// The error of the attempt that has just failed.
    pub failed: Option<SyncError>,
    /// The current time in whole seconds, the API's resolution.
    pub now: Time,
}

impl World {
    pub(super) fn namespace(&self) -> &str {
        self.vm.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The VMI, if the VM controls it.
    pub(super) fn instance(&self) -> Option<&VirtualMachineInstance> {
        self.vmi.as_deref().filter(|vmi| meta::is_controlled_by(&vmi.metadata, meta::uid(&self.vm.metadata)))
    }

    /// The VMI, if it is neither finished nor being deleted.
    pub(super) fn living_instance(&self) -> Option<&VirtualMachineInstance> {
        self.instance().filter(|vmi| !vmi.is_marked_for_deletion() && !vmi.is_final())
    }

    /// A VMI of the same name that another object controls.
    pub(super) fn foreign_instance(&self) -> Option<&VirtualMachineInstance> {
        let vmi = self.vmi.as_deref()?;
        meta::controller_of(&vmi.metadata).filter(|owner| owner.uid != meta::uid(&self.vm.metadata)).map(|_| vmi)
    }

    /// A VMI of the same name that nothing controls.
    pub(super) fn orphaned_instance(&self) -> Option<&VirtualMachineInstance> {
        self.vmi.as_deref().filter(|vmi| meta::controller_of(&vmi.metadata).is_none())
    }

    /// A VMI was created and is not in the cache yet.
    pub(super) fn expects_creation(&self) -> bool {
        self.expects_instance.is_some() && self.vmi.is_none()
    }

    /// The deletion of the VMI was requested and is not in the cache yet.
    pub(super) fn expects_deletion(&self) -> bool {
        self.expects_instance.is_some() && self.vmi.is_some()
    }

    /// Only the first request counts.
    pub(super) fn request(&self) -> Option<&VirtualMachineStateChangeRequest> {
        self.vm.status.as_ref()?.state_change_requests.first()
    }

    pub(super) fn start_requested(&self) -> bool {
        self.request().is_some_and(|request| request.action == StateChangeRequestAction::Start)
    }

    /// A stop request names the VMI it applies to; one for an earlier VMI has no effect.
    pub(super) fn stop_requested(&self, vmi: &VirtualMachineInstance) -> bool {
        self.request().is_some_and(|request| {
            request.action == StateChangeRequestAction::Stop && request.uid == vmi.metadata.uid && request.uid.is_some()
        })
    }

    /// The revision of this name.
    pub(super) fn revision(&self, name: &str) -> Option<&ControllerRevision> {
        self.revisions.iter().map(AsRef::as_ref).find(|revision| meta::name(&revision.metadata) == name)
    }

    pub(super) fn is_migrating(&self, vmi: &VirtualMachineInstance) -> bool {
        flight::is_migrating(vmi, &self.now)
    }
}
