use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::cdi::{FilesystemOverhead, StorageProfile};
use api::config::ClusterConfig;
use api::labels;
use api::v1::VirtualMachineInstancePhase as Phase;
use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration, VirtualMachineInstanceMigrationState};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod, ResourceQuota};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::claims::Claims;
use crate::{SyncError, flight, meta, pods};

/// The VM that owns a VMI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The VMI has no owner.
    Nobody,
    Alive,
    /// The VM with the owner's UID no longer exists.
    Gone,
}

/// Storage of the cluster. Only looked up for VMIs that use claims.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    pub classes: Vec<Arc<StorageClass>>,
    /// The importer's profile of each storage class, keyed by the class's name.
    pub profiles: BTreeMap<String, Arc<StorageProfile>>,
    /// The file system overhead, if the importer reports it.
    pub overhead: Option<FilesystemOverhead>,
}

/// Process settings for launchers, beyond the cluster configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    pub launcher: render::LauncherSettings,
    /// Labels of VMIs that are synced to their Pods, besides the usual ones. A trailing `*` matches any suffix.
    pub follow_labels: Vec<String>,
    /// Annotations, likewise.
    pub follow_annotations: Vec<String>,
}

impl Settings {
    /// The input for rendering Pods of a guest.
    pub(crate) fn context<'a>(
        &self,
        namespace: Option<&Namespace>,
        quotas: &[Arc<ResourceQuota>],
        claims: impl Iterator<Item = &'a Arc<PersistentVolumeClaim>>,
        backend_claim: Option<&str>,
    ) -> render::Context {
        let base = render::Context {
            backend_claim: backend_claim.map(str::to_owned),
            launcher: self.launcher.clone(),
            ..render::Context::default()
        };
        let with_namespace = base.with_namespace(namespace, quotas.iter().map(AsRef::as_ref));
        claims.fold(with_namespace, |context, claim| context.with_claim(claim))
    }
}

/// The input of the decision.
#[derive(Clone, Debug)]
pub struct World {
    pub vmi: Arc<VirtualMachineInstance>,
    /// Every Pod the VMI controls, by UID of the owner.
    pub pods: Vec<Arc<Pod>>,
    /// Every Pod that those Pods control: attachment Pods and trigger Pods.
    pub helpers: Vec<Arc<Pod>>,
    pub owner: Owner,
    /// The claims and DataVolumes that the VMI names.
    pub claims: Claims,
    /// The claims with the guest's persistent state: found by their label, or by the name that older versions gave
    /// them.
    pub state_claims: Vec<Arc<PersistentVolumeClaim>>,
    pub storage: Storage,
    /// Every migration that names the VMI.
    pub migrations: Vec<Arc<VirtualMachineInstanceMigration>>,
    pub namespace: Option<Arc<Namespace>>,
    pub quotas: Vec<Arc<ResourceQuota>>,
    /// The lowest TSC frequency of the nodes, or why it is not known.
    pub lowest_tsc: Result<i64, String>,
    /// A free VSOCK CID for the guest. See [`super::vsock_cid`].
    pub vsock_cid: Option<u32>,
    pub config: Arc<ClusterConfig>,
    pub settings: Arc<Settings>,
    /// This process has already created the launcher Pod of this UID.
    pub launched: bool,
    /// The VMI is older than this process: another one may have created its launcher Pod, and may have recorded that in
    /// a write that is not in the cache yet.
    pub inherited: bool,
    /// Our own writes are not in the caches yet; after this time we stop waiting for them.
    pub behind: Option<Duration>,
    /// The error of the attempt that has just failed.
    pub failed: Option<SyncError>,
    /// The current time in whole seconds, the API's resolution.
    pub now: Time,
}

impl World {
    /// A world with a VMI and nothing else.
    pub fn new(vmi: Arc<VirtualMachineInstance>, config: Arc<ClusterConfig>, now: Time) -> Self {
        Self {
            vmi,
            pods: vec![],
            helpers: vec![],
            owner: Owner::Nobody,
            claims: Claims::default(),
            state_claims: vec![],
            storage: Storage::default(),
            migrations: vec![],
            namespace: None,
            quotas: vec![],
            lowest_tsc: Ok(0),
            vsock_cid: None,
            config,
            settings: Arc::default(),
            launched: false,
            inherited: false,
            behind: None,
            failed: None,
            now,
        }
    }

    /// The Pod that runs or will run the guest: on the VMI's node if it has one, the newest if there are several. It
    /// may be a temporary one.
    pub(super) fn current_pod(&self) -> Option<&Pod> {
        pods::current(&self.pods, self.node())
    }

    /// The current Pod, if it is one that runs a guest.
    pub(super) fn launcher_pod(&self) -> Option<&Pod> {
        self.current_pod().filter(|pod| !pods::is_temporary(pod))
    }

    /// The Pods that `pod` controls.
    pub(super) fn helpers_of(&self, pod: &Pod) -> impl Iterator<Item = &Pod> {
        let uid = meta::uid(&pod.metadata).to_owned();
        self.helpers.iter().map(AsRef::as_ref).filter(move |helper| meta::is_controlled_by(&helper.metadata, &uid))
    }

    /// The node the VMI was handed over to. Before the hand-over the field may hold a stale name from an earlier
    /// attempt to receive the guest.
    pub(super) fn node(&self) -> Option<&str> {
        let handed_over =
            !matches!(self.vmi.phase(), None | Some(Phase::Pending | Phase::Scheduling | Phase::WaitingForSync));
        let name = self.vmi.status.as_ref().and_then(|status| status.node_name.as_deref());
        name.filter(|name| handed_over && !name.is_empty())
    }

    /// Whether a migration has chosen a node to receive the guest.
    pub(super) fn has_target_node(&self) -> bool {
        let label = machinery::meta::label(&self.vmi.metadata, labels::MIGRATION_TARGET_NODE_NAME);
        label.is_some_and(|node| !node.is_empty())
    }

    pub(super) fn migration_state(&self) -> Option<&VirtualMachineInstanceMigrationState> {
        self.vmi.status.as_ref()?.migration_state.as_ref()
    }

    /// Whether the guest is migrating to another node right now.
    pub(super) fn is_migrating(&self) -> bool {
        flight::is_migrating(&self.vmi, &self.now)
    }

    /// Whether the VMI already shows this failure, so that it needs no second event.
    pub(super) fn shows(&self, error: &SyncError) -> bool {
        let shown = self.vmi.condition(api::conditions::SYNCHRONIZED);
        shown.is_some_and(|condition| condition.is_false() && condition.reason() == error.reason)
    }

    /// The input for rendering Pods.
    pub(super) fn context(&self, backend_claim: Option<&str>) -> render::Context {
        let claims = self.claims.claims.values().chain(&self.state_claims);
        self.settings.context(self.namespace.as_deref(), &self.quotas, claims, backend_claim)
    }
}
