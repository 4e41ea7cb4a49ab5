use std::sync::Arc;
use std::time::Duration;

use api::config::ClusterConfig;
use api::migrations::MigrationPolicy;
use api::v1::{
    VirtualMachineInstance, VirtualMachineInstanceMigration as Migration, VirtualMachineInstanceMigrationState as State,
};
use api::{annotations, finalizers};
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolumeClaim, Pod, ResourceQuota};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::decentralized;
use super::kinds::{self, Kind};
use super::slots::Slots;
use crate::claims::Claims;
use crate::vmi::Settings;
use crate::{SyncError, evacuation, meta, pods};

/// The input of the decision.
#[derive(Clone, Debug)]
pub struct World {
    pub migration: Arc<Migration>,
    pub vmi: Option<Arc<VirtualMachineInstance>>,
    /// Every Pod the VMI controls.
    pub pods: Vec<Arc<Pod>>,
    /// Every Pod that those Pods control.
    pub helpers: Vec<Arc<Pod>>,
    /// Every migration that names the VMI, including this one.
    pub siblings: Vec<Arc<Migration>>,
    pub slots: Slots,
    pub policies: Vec<Arc<MigrationPolicy>>,
    pub nodes: Vec<Arc<Node>>,
    /// The claims and DataVolumes that the VMI names.
    pub claims: Claims,
    /// The claims with the guest's persistent state: the VMI's, and the one prepared for this migration.
    pub state_claims: Vec<Arc<PersistentVolumeClaim>>,
    pub namespace: Option<Arc<Namespace>>,
    pub quotas: Vec<Arc<ResourceQuota>>,
    /// The addresses of this cluster for decentralized migrations.
    pub synchronization_addresses: Vec<String>,
    pub config: Arc<ClusterConfig>,
    pub settings: Arc<Settings>,
    /// This process has handed off the migration, whether or not the cache shows it.
    pub handed_off: bool,
    /// Pods or claims that we created or deleted are not in the caches yet; after this time we stop waiting for them.
    pub behind: Option<Duration>,
    /// Our own write to the migration is not in the cache yet; after this time we stop waiting for it.
    pub unseen: Option<Duration>,
    /// The error of the attempt that has just failed.
    pub failed: Option<SyncError>,
    /// The current time in whole seconds, the API's resolution.
    pub now: Time,
}

impl World {
    /// A world with a migration and its VMI only.
    pub fn new(
        migration: Arc<Migration>,
        vmi: Option<Arc<VirtualMachineInstance>>,
        config: Arc<ClusterConfig>,
        now: Time,
    ) -> Self {
        Self {
            siblings: vec![migration.clone()],
            migration,
            vmi,
            pods: vec![],
            helpers: vec![],
            slots: Slots::default(),
            policies: vec![],
            nodes: vec![],
            claims: Claims::default(),
            state_claims: vec![],
            namespace: None,
            quotas: vec![],
            synchronization_addresses: vec![],
            config,
            settings: Arc::default(),
            handed_off: false,
            behind: None,
            unseen: None,
            failed: None,
            now,
        }
    }

    pub(super) fn kind(&self) -> Kind {
        kinds::kind(&self.migration)
    }

    /// Whether the target Pod of this migration is created in this cluster.
    pub(super) fn makes_target(&self) -> bool {
        self.kind() != Kind::Sends
    }

    pub(super) fn uid(&self) -> &str {
        meta::uid(&self.migration.metadata)
    }

    pub(super) fn is_deleting(&self) -> bool {
        meta::is_deleting(&self.migration.metadata)
    }

    /// The target Pod: the oldest of those created for this migration.
    pub fn target(&self) -> Option<&Pod> {
        let ours = self.pods.iter().map(AsRef::as_ref).filter(|pod| is_target(pod, self.uid()));
        ours.min_by_key(|pod| (pod.metadata.creation_timestamp.clone(), pod.metadata.name.clone()))
    }

    /// The source Pod: on the VMI's node, the newest if there are several.
    pub fn source(&self) -> Option<&Pod> {
        self.source_of(self.vmi.as_ref()?)
    }

    /// The source Pod of a migration that is not handed off. Its target can be a newer Pod on the same node: if the source
    /// has ended, nothing keeps the scheduler from that.
    pub(super) fn origin(&self) -> Option<&Pod> {
        let theirs = |pod: &Pod| !is_target(pod, self.uid());
        self.newest_on_its_node(self.vmi.as_ref()?, theirs)
    }

    /// The source Pod according to a version of the VMI that is newer than the cached one.
    pub(super) fn source_of(&self, vmi: &VirtualMachineInstance) -> Option<&Pod> {
        self.newest_on_its_node(vmi, |_| true)
    }

    fn newest_on_its_node(&self, vmi: &VirtualMachineInstance, counts: impl Fn(&Pod) -> bool) -> Option<&Pod> {
        let node = vmi.status.as_ref()?.node_name.as_deref();
        let on_node = |pod: &&Pod| node.is_none_or(|node| node.is_empty()) || pods::node_name(pod) == node;
        let all = self.pods.iter().map(AsRef::as_ref).filter(|pod| !pods::is_temporary(pod) && counts(pod));
        all.filter(on_node).max_by_key(|pod| (pod.metadata.creation_timestamp.clone(), pod.metadata.name.clone()))
    }

    /// Namespace and name of the source Pod. For a receiver, it is a Pod of the sender's VMI.
    pub fn source_pod(&self) -> Option<(String, String)> {
        if self.kind() == Kind::Receives {
            let source = decentralized::source_of(self.vmi.as_deref()?)?;
            return Some((source.domain_namespace.clone()?, source.pod.clone()?));
        }
        let name = self.source()?.metadata.name.clone()?;
        Some((meta::namespace(&self.migration.metadata).to_owned(), name))
    }

    /// The attachment Pod that brings hot-plugged volumes to the target.
    pub(super) fn attachment(&self) -> Option<&Pod> {
        let target = meta::uid(&self.target()?.metadata);
        let helpers = self.helpers.iter().map(AsRef::as_ref);
        let mut ours = helpers
            .filter(|pod| meta::is_controlled_by(&pod.metadata, target) && !pods::is_temporary(pod))
            .collect::<Vec<&Pod>>();
        ours.sort_by_key(|pod| (pod.metadata.creation_timestamp.clone(), pod.metadata.name.clone()));
        ours.first().copied()
    }

    pub(super) fn state(&self) -> Option<&State> {
        self.vmi.as_ref()?.status.as_ref()?.migration_state.as_ref()
    }

    /// The VMI's migration state, if it is about this migration.
    pub(super) fn own_state(&self) -> Option<&State> {
        self.state().filter(|state| kinds::owns(&self.migration, Some(state)))
    }

    /// Whether the migration is handed off: according to the cache, or because this process did it.
    pub(super) fn is_handed_off(&self) -> bool {
        self.handed_off || self.own_state().is_some_and(|state| is_set(&state.target_node))
    }

    /// Another unfinished migration that owns the VMI, or shows itself on it as a side of a decentralized migration. A
    /// local migration only respects the former: a sender may wait for its other side indefinitely, and must not block
    /// a node drain meanwhile.
    pub(super) fn rival(&self) -> Option<&Migration> {
        let state = self.state()?;
        let between = self.kind() != Kind::Local;
        let source = state.source_state.as_ref().filter(|_| between);
        let target = state.target_state.as_ref().filter(|_| between);
        let shown = [
            state.migration_uid.as_deref(),
            source.and_then(|source| source.migration_uid.as_deref()),
            target.and_then(|target| target.migration_uid.as_deref()),
        ];
        let shown = |uid: &str| !uid.is_empty() && uid != self.uid() && shown.contains(&Some(uid));
        let named = self.siblings.iter().find(|sibling| shown(meta::uid(&sibling.metadata)) && !sibling.is_final());
        named.map(AsRef::as_ref)
    }

    /// A side of a decentralized migration that has ended, and whose outcome the other side has yet to read from the VMI.
    /// Another migration that took over the VMI's state would leave the other side waiting for ever.
    pub(super) fn unread(&self) -> Option<&Migration> {
        let owner = self.state()?.migration_uid.as_deref()?;
        let unread = |sibling: &&Migration| {
            meta::uid(&sibling.metadata) == owner
                && kinds::kind(sibling) != Kind::Local
                && sibling.is_final()
                && meta::has_finalizer(&sibling.metadata, finalizers::MIGRATION_SYNCHRONIZATION)
        };
        self.siblings.iter().map(AsRef::as_ref).find(unread)
    }

    /// Whether its evacuation was canceled, judging by this version of the VMI.
    pub(super) fn is_called_off(&self, vmi: &VirtualMachineInstance) -> bool {
        let from = self.evacuated_node();
        let node = self.nodes.iter().find(|node| Some(meta::name(&node.metadata)) == from);
        evacuation::is_called_off(&self.migration, vmi, node.map(AsRef::as_ref), &self.config)
    }

    /// The node that the migration was created to evacuate.
    pub(super) fn evacuated_node(&self) -> Option<&str> {
        meta::annotation(&self.migration.metadata, annotations::EVACUATION_MIGRATION)
    }

    /// The input for rendering Pods.
    pub(super) fn context(&self, backend_claim: Option<&str>) -> render::Context {
        let claims = self.claims.claims.values().chain(&self.state_claims);
        self.settings.context(self.namespace.as_deref(), &self.quotas, claims, backend_claim)
    }
}

/// Whether a Pod is a target of the migration with this UID.
pub fn is_target(pod: &Pod, migration_uid: &str) -> bool {
    let label = |key| machinery::meta::label(&pod.metadata, key);
    label(api::labels::APP) == Some(api::labels::app::LAUNCHER)
        && !migration_uid.is_empty()
        && label(api::labels::MIGRATION_JOB_UID) == Some(migration_uid)
}

pub(super) fn is_set(text: &Option<String>) -> bool {
    text.as_deref().is_some_and(|text| !text.is_empty())
}
