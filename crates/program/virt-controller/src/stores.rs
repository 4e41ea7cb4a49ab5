//! One watch per kind, shared by all controllers.

use api::cdi::{CDI, CDIConfig, DataSource, DataVolume, StorageProfile};
use api::instancetype::{
    VirtualMachineClusterInstancetype, VirtualMachineClusterPreference, VirtualMachineInstancetype,
    VirtualMachinePreference,
};
use api::migrations::MigrationPolicy;
use api::v1::{KubeVirt, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration, Volume};
use informer::{Informer, Ingest, Store};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolumeClaim, Pod, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use machinery::meta::controller_of;
use machinery::rights::Right;
use tokio_util::sync::CancellationToken;

use crate::prune;

/// Index: objects by the UID of their controller owner.
pub const BY_CONTROLLER: &str = "controller";
/// Index: Pods by the UID of the VMI they were created for, whoever controls them.
pub const BY_CREATOR: &str = "created-by";
/// Index: VMIs by the node they were handed to, Pods by the node they are bound to.
pub const BY_NODE: &str = "node";
/// Index: VMs and VMIs by `namespace/name` of the DataVolumes they use.
pub const BY_DATA_VOLUME: &str = "dv";
/// Index: VMs and VMIs by `namespace/name` of the claims they reference directly.
pub const BY_CLAIM: &str = "pvc";
/// Index: backend-storage claims by `namespace/name` of the VMI, one entry per claim.
pub const BY_STATE: &str = "state";
/// Index: VMIs by their vsock CID.
pub const BY_VSOCK: &str = "vsock";
/// Index: migrations by `namespace/name` of their VMI.
pub const BY_INSTANCE: &str = "vmi";
/// Index: migrations by UID.
pub const BY_UID: &str = "uid";
/// Index: Pods by the UID of the migration they serve, claims by `namespace/name` of the migration they were prepared
/// for.
pub const BY_MIGRATION: &str = "migration";
/// Index: migrations between two VMIs by the ID that both sides share.
pub const BY_EXCHANGE: &str = "exchange";
/// Index: unfinished migrations, all under [`UNFINISHED`].
pub const BY_PROGRESS: &str = "progress";
pub const UNFINISHED: &str = "unfinished";
/// Index: VMIs that the workload updater must consider, all under [`PENDING_UPDATE`].
pub const BY_UPDATE: &str = "update";
pub const PENDING_UPDATE: &str = "pending";

/// Generates the caches, their feeds and the operations on all of them from one table.
macro_rules! stores {
    ($($(#[$doc:meta])* $field:ident: $kind:ty = $informer:expr;)*) => {
        /// All caches of the controllers.
        #[derive(Clone)]
        pub struct Stores {
            $($(#[$doc])* pub $field: Store<$kind>,)*
        }

        /// The write ends of detached caches, for a caller that stands in for the API server.
        pub struct Feeds {
            $(pub $field: Ingest<$kind>,)*
        }

        impl Stores {
            /// Starts all watches; they stop with `stop`.
            pub fn start(client: &Client, stop: &CancellationToken) -> Self {
                Self { $($field: $informer.streaming_lists().start(Api::all(client.clone()), stop.clone()),)* }
            }

            /// Caches without watches.
            pub fn detached() -> (Self, Feeds) {
                $(let $field = $informer.detached();)*
                (Self { $($field: $field.0,)* }, Feeds { $($field: $field.1,)* })
            }

            /// Caches without watches that keep objects unpacked, for simulations: they are short of time rather than
            /// memory.
            pub fn detached_whole() -> (Self, Feeds) {
                $(let $field = $informer.whole().detached();)*
                (Self { $($field: $field.0,)* }, Feeds { $($field: $field.1,)* })
            }

            /// The rights needed for all watches.
            pub fn rights() -> Vec<Right> {
                vec![$(Right::watch::<$kind>(),)*]
            }

            /// The number of objects in each cache.
            pub fn sizes(&self) -> Vec<(&'static str, usize)> {
                vec![$((stringify!($field), self.$field.len()),)*]
            }

            /// Waits until every cache has synced. Returns false if the watches were stopped first.
            pub async fn synced(&self) -> bool {
                true $(&& self.$field.synced().await)*
            }
        }
    };
}

stores! {
    vms: VirtualMachine = Informer::new()
        .packed()
        .index(BY_DATA_VOLUME, |vm: &VirtualMachine| data_volumes(&vm.metadata, template_volumes(vm)))
        .index(BY_CLAIM, |vm: &VirtualMachine| claims(&vm.metadata, template_volumes(vm)));
    vmis: VirtualMachineInstance = Informer::new()
        .packed()
        .index(BY_NODE, |vmi: &VirtualMachineInstance| node_of(vmi))
        .index(BY_VSOCK, |vmi: &VirtualMachineInstance| vsock_cid(vmi))
        .index(BY_UPDATE, |vmi: &VirtualMachineInstance| pending_update(vmi))
        .index(BY_DATA_VOLUME, |vmi: &VirtualMachineInstance| data_volumes(&vmi.metadata, &vmi.spec.volumes))
        .index(BY_CLAIM, |vmi: &VirtualMachineInstance| plugged_claims(vmi));
    /// Launcher Pods and their helpers, selected by label; other Pods are not cached.
    pods: Pod = Informer::new()
        .labels(api::labels::APP)
        .prune(prune::pod)
        .packed()
        .index(BY_CONTROLLER, |pod: &Pod| controller(&pod.metadata))
        .index(BY_CREATOR, |pod: &Pod| label(&pod.metadata, api::labels::CREATED_BY))
        .index(BY_MIGRATION, |pod: &Pod| label(&pod.metadata, api::labels::MIGRATION_JOB_UID))
        .index(BY_NODE, |pod: &Pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect());
    revisions: ControllerRevision = Informer::new()
        .packed()
        .index(BY_CONTROLLER, |revision: &ControllerRevision| controller(&revision.metadata));
    kubevirts: KubeVirt = Informer::new();
    migrations: VirtualMachineInstanceMigration = Informer::new()
        .index(BY_INSTANCE, |migration: &VirtualMachineInstanceMigration| instance_of(migration))
        .index(BY_UID, |migration: &VirtualMachineInstanceMigration| migration.metadata.uid.iter().cloned().collect())
        .index(BY_EXCHANGE, |migration: &VirtualMachineInstanceMigration| exchange_of(migration))
        .index(BY_PROGRESS, |migration: &VirtualMachineInstanceMigration| progress(migration));
    claims: PersistentVolumeClaim = Informer::new()
        .packed()
        .index(BY_CONTROLLER, |claim: &PersistentVolumeClaim| controller(&claim.metadata))
        .index(BY_STATE, |claim: &PersistentVolumeClaim| guest_of(&claim.metadata))
        .index(BY_MIGRATION, |claim: &PersistentVolumeClaim| migration_of(&claim.metadata));
    policies: MigrationPolicy = Informer::new();
    /// Only leftovers of earlier versions matter; the server need not serve the kind.
    budgets: PodDisruptionBudget = Informer::new().optional();
    storage_classes: StorageClass = Informer::new();
    namespaces: Namespace = Informer::new();
    quotas: ResourceQuota = Informer::new();
    nodes: Node = Informer::new().prune(prune::node);
    instancetypes: VirtualMachineInstancetype = Informer::new();
    cluster_instancetypes: VirtualMachineClusterInstancetype = Informer::new();
    preferences: VirtualMachinePreference = Informer::new();
    cluster_preferences: VirtualMachineClusterPreference = Informer::new();
    data_volumes: DataVolume = Informer::new()
        .optional()
        .packed()
        .index(BY_CONTROLLER, |volume: &DataVolume| controller(&volume.metadata));
    data_sources: DataSource = Informer::new().optional();
    storage_profiles: StorageProfile = Informer::new().optional();
    cdis: CDI = Informer::new().optional();
    cdi_configs: CDIConfig = Informer::new().optional();
}

fn controller(meta: &ObjectMeta) -> Vec<String> {
    controller_of(meta).map(|owner| owner.uid.clone()).into_iter().collect()
}

fn label(meta: &ObjectMeta, name: &str) -> Vec<String> {
    meta.labels.iter().filter_map(|labels| labels.get(name).cloned()).collect()
}

fn beside(meta: &ObjectMeta, name: &str) -> String {
    format!("{}/{name}", meta.namespace.as_deref().unwrap_or_default())
}

fn template_volumes(vm: &VirtualMachine) -> &[Volume] {
    &vm.spec.template.spec.volumes
}

fn data_volumes(meta: &ObjectMeta, volumes: &[Volume]) -> Vec<String> {
    let sources = volumes.iter().filter_map(|volume| volume.source().data_volume());
    sources.map(|source| beside(meta, &source.name)).collect()
}

fn claims(meta: &ObjectMeta, volumes: &[Volume]) -> Vec<String> {
    let sources = volumes.iter().filter_map(|volume| volume.source().persistent_volume_claim());
    sources.map(|source| beside(meta, &source.claim_name)).collect()
}

/// Besides the claims of its disks, those of its memory dumps and utility volumes: their creation must trigger the VMI
/// too.
fn plugged_claims(vmi: &VirtualMachineInstance) -> Vec<String> {
    let dumps = vmi.spec.volumes.iter().filter(|volume| volume.is_memory_dump());
    let dumps = dumps.filter_map(|volume| volume.source().claim_name());
    let utility = vmi.spec.utility_volumes.iter().map(|volume| volume.claim_name.as_str());
    let more = dumps.chain(utility).map(|name| beside(&vmi.metadata, name));
    claims(&vmi.metadata, &vmi.spec.volumes).into_iter().chain(more).collect()
}

fn node_of(vmi: &VirtualMachineInstance) -> Vec<String> {
    let name = vmi.status.as_ref().and_then(|status| status.node_name.clone());
    name.into_iter().filter(|name| !name.is_empty()).collect()
}

/// The [`BY_STATE`] index key of a VMI.
pub(crate) fn state_of(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

fn guest_of(meta: &ObjectMeta) -> Vec<String> {
    let names = label(meta, api::labels::PERSISTENT_STATE_FOR);
    names.iter().map(|name| state_of(meta.namespace.as_deref().unwrap_or_default(), name)).collect()
}

fn migration_of(meta: &ObjectMeta) -> Vec<String> {
    label(meta, api::labels::MIGRATION_NAME).iter().map(|name| beside(meta, name)).collect()
}

fn vsock_cid(vmi: &VirtualMachineInstance) -> Vec<String> {
    let cid = vmi.status.as_ref().and_then(|status| status.vsock_cid);
    cid.iter().map(ToString::to_string).collect()
}

fn pending_update(vmi: &VirtualMachineInstance) -> Vec<String> {
    plan::workload::is_pending(vmi).then(|| PENDING_UPDATE.to_owned()).into_iter().collect()
}

fn instance_of(migration: &VirtualMachineInstanceMigration) -> Vec<String> {
    migration.spec.vmi_name.iter().map(|name| beside(&migration.metadata, name)).collect()
}

fn exchange_of(migration: &VirtualMachineInstanceMigration) -> Vec<String> {
    plan::synchronization::exchange(migration).map(str::to_owned).into_iter().collect()
}

fn progress(migration: &VirtualMachineInstanceMigration) -> Vec<String> {
    if migration.is_final() { vec![] } else { vec![UNFINISHED.to_owned()] }
}
