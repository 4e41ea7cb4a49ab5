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

/// Everything the decision may see.
#[derive(Clone, Debug)]
pub struct World {
    pub vm: Arc<VirtualMachine>,
    /// The instance of the same name, whoever controls it.
    pub vmi: Option<Arc<VirtualMachineInstance>>,
    /// The revisions that the virtual machine controls, and those it names.
    pub revisions: Vec<Arc<ControllerRevision>>,
    /// The claims and DataVolumes that its volumes and its templates of DataVolumes name, as far as they exist.
    pub claims: Claims,
    /// The claims its DataVolumes are copied from, as far as they exist.
    pub copied_claims: BTreeSet<Place>,
    /// The DataSources its DataVolumes are made from, and those they point to, as far as they exist.
    pub data_sources: BTreeMap<Place, Arc<DataSource>>,
    /// The instance type it names, if that exists.
    pub instancetype: Option<Live<VirtualMachineInstancetypeSpec>>,
    /// The preference it names, if that exists.
    pub preference: Option<Live<VirtualMachinePreferenceSpec>>,
    /// The labels of its namespace.
    pub namespace_labels: BTreeMap<String, String>,
    pub config: Arc<ClusterConfig>,
    /// Which metadata a running instance takes over from the template, besides the usual.
    pub settings: Arc<Settings>,
    /// Our last write to the virtual machine is not in the cache yet; it will be within this time, or never.
    pub behind: Option<Duration>,
    /// The creation or deletion of the instance is not in the cache yet; it will be within this time, or never.
    pub expects_instance: Option<Duration>,
    /// The creation of a DataVolume is not in the cache yet; it will be within this time, or never.
    pub expects_data_volumes: Option<Duration>,
    /// The cluster is being emptied: nothing is started, whatever the run strategy.
    pub hold_starts: bool,
    /// The attempt made a moment ago failed.
    pub failed: Option<SyncError>,
    /// Whole seconds, as the API keeps them.
    pub now: Time,
}

impl World {
    pub(super) fn namespace(&self) -> &str {
        self.vm.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The instance, if the virtual machine controls it.
    pub(super) fn instance(&self) -> Option<&VirtualMachineInstance> {
        self.vmi.as_deref().filter(|vmi| meta::is_controlled_by(&vmi.metadata, meta::uid(&self.vm.metadata)))
    }

    /// The instance, if it is neither ended nor about to.
    pub(super) fn living_instance(&self) -> Option<&VirtualMachineInstance> {
        self.instance().filter(|vmi| !vmi.is_marked_for_deletion() && !vmi.is_final())
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

    /// An instance was created and does not show yet.
    pub(super) fn expects_creation(&self) -> bool {
        self.expects_instance.is_some() && self.vmi.is_none()
    }

    /// The instance's deletion was asked for and does not show yet.
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

    /// A stop names the instance it means; one for an earlier instance has no effect.
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
