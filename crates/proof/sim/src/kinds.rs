//! The kinds of the simulated cluster and their API specifics.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::Arc;

use api::cdi::{CDI, CDIConfig, DataSource, DataVolume, StorageProfile};
use api::instancetype::{
    VirtualMachineClusterInstancetype, VirtualMachineClusterPreference, VirtualMachineInstancetype,
    VirtualMachinePreference,
};
use api::migrations::MigrationPolicy;
use api::v1::{
    KubeVirt, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration,
    VirtualMachineInstancePhase as Phase, VirtualMachineInstancePhaseTransitionTimestamp as PhaseTransition,
};
use informer::Key;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolumeClaim, Pod, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource as _;
use plan::object::Typed;

/// A type that the controllers write or read live.
pub(crate) trait AnyKind: kube::Resource<DynamicType = ()> + Typed {}

impl<K: kube::Resource<DynamicType = ()> + Typed> AnyKind for K {}

/// Takes an object apart, and together again.
pub(crate) struct Apart<K> {
    pub(crate) without_spec: fn(&K) -> K,
    pub(crate) copy_spec: fn(&mut K, &K),
}

/// API specifics of a kind.
pub(crate) trait Stored: PartialEq + Sized {
    /// Whether it has a status subresource.
    const STATUS_APART: bool = false;
    /// Copies the status of another object.
    fn copy_status(&mut self, _from: &Self) {}
    /// Whether the change does not increment the generation.
    fn same_generation(&self, _other: &Self) -> bool {
        true
    }
    /// How to leave the spec out of a patch that does not touch it: most of a large object is its spec.
    const SPEC_APART: Option<Apart<Self>> = None;
    /// Defaults set by admission on creation.
    fn begin(&mut self, _now: &Time) {}
}

macro_rules! status_apart {
    ($($type:ty),*) => {$(
        impl Stored for $type {
            const STATUS_APART: bool = true;
            fn copy_status(&mut self, from: &Self) {
                self.status.clone_from(&from.status);
            }
            fn same_generation(&self, other: &Self) -> bool {
                self.spec == other.spec
            }
        }
    )*};
}
macro_rules! plain {
    ($($type:ty),*) => {$(impl Stored for $type {})*};
}

status_apart!(
    VirtualMachine,
    KubeVirt,
    DataVolume,
    PersistentVolumeClaim,
    Node,
    Namespace,
    ResourceQuota,
    PodDisruptionBudget,
    Job
);
plain!(
    ControllerRevision,
    MigrationPolicy,
    StorageClass,
    VirtualMachineInstancetype,
    VirtualMachineClusterInstancetype,
    VirtualMachinePreference,
    VirtualMachineClusterPreference,
    DataSource,
    StorageProfile,
    CDI,
    CDIConfig
);

/// Spec and status share one endpoint, so changing either increments the generation.
impl Stored for VirtualMachineInstance {
    const SPEC_APART: Option<Apart<Self>> = Some(Apart {
        without_spec: |vmi| Self { metadata: vmi.metadata.clone(), status: vmi.status.clone(), ..Self::default() },
        copy_spec: |vmi, from| vmi.spec.clone_from(&from.spec),
    });

    fn same_generation(&self, other: &Self) -> bool {
        self.spec == other.spec && self.status == other.status
    }

    fn begin(&mut self, now: &Time) {
        machinery::meta::add_finalizer(&mut self.metadata, api::finalizers::VIRTUAL_MACHINE_INSTANCE);
        let status = self.status_mut();
        if status.phase.is_none() {
            status.phase = Some(Phase::Pending);
            status.phase_transition_timestamps =
                vec![PhaseTransition { phase: Some(Phase::Pending), phase_transition_timestamp: Some(now.clone()) }];
        }
    }
}

impl Stored for VirtualMachineInstanceMigration {
    const STATUS_APART: bool = true;

    fn copy_status(&mut self, from: &Self) {
        self.status.clone_from(&from.status);
    }

    fn same_generation(&self, other: &Self) -> bool {
        self.spec == other.spec
    }

    fn begin(&mut self, _now: &Time) {
        machinery::meta::add_finalizer(&mut self.metadata, api::finalizers::MIGRATION);
        let vmi = self.spec.vmi_name.clone().unwrap_or_default();
        self.metadata.labels.get_or_insert_default().insert(api::labels::VMI_NAME.to_owned(), vmi);
    }
}

impl Stored for Pod {
    const STATUS_APART: bool = true;
    const SPEC_APART: Option<Apart<Self>> = Some(Apart {
        without_spec: |pod| Self { metadata: pod.metadata.clone(), status: pod.status.clone(), spec: None },
        copy_spec: |pod, from| pod.spec.clone_from(&from.spec),
    });

    fn copy_status(&mut self, from: &Self) {
        self.status.clone_from(&from.status);
    }

    fn begin(&mut self, _now: &Time) {
        let status = self.status.get_or_insert_default();
        status.phase = Some("Pending".to_owned());
        // The exact class is up to the kubelet; nothing here requests dedicated CPUs.
        status.qos_class = Some("Burstable".to_owned());
    }
}

/// The objects of one kind, with its rules as values, for callers that know the type only as a parameter.
pub(crate) struct Table<K> {
    pub(crate) objects: BTreeMap<Key, Arc<K>>,
    pub(crate) wrap: fn(Arc<K>) -> Object,
    pub(crate) status_apart: bool,
    pub(crate) copy_status: fn(&mut K, &K),
    pub(crate) same: fn(&K, &K) -> bool,
    pub(crate) same_generation: fn(&K, &K) -> bool,
    pub(crate) begin: fn(&mut K, &Time),
    pub(crate) spec_apart: Option<Apart<K>>,
}

impl<K: Stored> Table<K> {
    fn new(wrap: fn(Arc<K>) -> Object) -> Self {
        Self {
            objects: BTreeMap::new(),
            wrap,
            status_apart: K::STATUS_APART,
            copy_status: K::copy_status,
            same: |a, b| a == b,
            same_generation: K::same_generation,
            begin: K::begin,
            spec_apart: K::SPEC_APART,
        }
    }
}

impl<K> Table<K> {
    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<K>> {
        self.objects.get(key)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }
}

macro_rules! kinds {
    ($($kind:ident $type:ty => $table:ident,)*) => {
        /// A kind of the cluster.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($kind,)* }

        impl Kind {
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];

            /// The kind of a type, if the cluster has it.
            pub(crate) fn of<K: 'static>() -> Option<Kind> {
                let wanted = TypeId::of::<K>();
                $(if wanted == TypeId::of::<$type>() { return Some(Kind::$kind); })*
                None
            }
        }

        /// An object of any kind at some point in time.
        #[derive(Clone, Debug)]
        pub(crate) enum Object { $($kind(Arc<$type>),)* }

        impl Object {
            pub(crate) fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind,)* }
            }

            pub(crate) fn meta(&self) -> &ObjectMeta {
                match self { $(Self::$kind(object) => &object.metadata,)* }
            }

            /// The object, if it has the requested type.
            pub(crate) fn downcast<K: 'static>(&self) -> Option<&Arc<K>> {
                match self { $(Self::$kind(object) => (object as &dyn Any).downcast_ref(),)* }
            }
        }

        /// All stored objects.
        pub(crate) struct Tables { $(pub $table: Table<$type>,)* }

        impl Default for Tables {
            fn default() -> Self {
                Self { $($table: Table::new(Object::$kind),)* }
            }
        }

        impl Tables {
            /// The table of a type, if it is a kind of the cluster.
            pub(crate) fn of<K: 'static>(&self) -> Option<&Table<K>> {
                $(if let Some(table) = (&self.$table as &dyn Any).downcast_ref() { return Some(table); })*
                None
            }

            pub(crate) fn of_mut<K: 'static>(&mut self) -> Option<&mut Table<K>> {
                // Checked first: otherwise a reference that is returned early stays borrowed.
                $(if (&self.$table as &dyn Any).is::<Table<K>>() {
                    return (&mut self.$table as &mut dyn Any).downcast_mut();
                })*
                None
            }

            /// All objects of a kind, sorted by name.
            pub(crate) fn objects(&self, kind: Kind) -> Vec<Object> {
                match kind { $(Kind::$kind => self.$table.all().cloned().map(Object::$kind).collect(),)* }
            }
        }
    };
}

kinds! {
    Vm VirtualMachine => vms,
    Vmi VirtualMachineInstance => vmis,
    Pod Pod => pods,
    Revision ControllerRevision => revisions,
    KubeVirt KubeVirt => kubevirts,
    Migration VirtualMachineInstanceMigration => migrations,
    Policy MigrationPolicy => policies,
    Budget PodDisruptionBudget => budgets,
    Claim PersistentVolumeClaim => claims,
    StorageClass StorageClass => storage_classes,
    Namespace Namespace => namespaces,
    Quota ResourceQuota => quotas,
    Node Node => nodes,
    Instancetype VirtualMachineInstancetype => instancetypes,
    ClusterInstancetype VirtualMachineClusterInstancetype => cluster_instancetypes,
    Preference VirtualMachinePreference => preferences,
    ClusterPreference VirtualMachineClusterPreference => cluster_preferences,
    DataVolume DataVolume => data_volumes,
    DataSource DataSource => data_sources,
    StorageProfile StorageProfile => storage_profiles,
    Cdi CDI => cdis,
    CdiConfig CDIConfig => cdi_configs,
    Job Job => jobs,
}

impl Kind {
    /// Whether the controllers watch it; other kinds are read live when needed.
    pub(crate) fn is_watched(self) -> bool {
        self != Kind::Job
    }
}

impl Object {
    pub(crate) fn key(&self) -> Key {
        key(self.meta())
    }

    pub(crate) fn is_at(&self, key: &Key) -> bool {
        let meta = self.meta();
        let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
        name.unwrap_or_default() == key.name && namespace.unwrap_or_default() == key.namespace
    }

    pub(crate) fn uid(&self) -> &str {
        uid(self.meta())
    }

    /// Kind and name, as a timeline prints them.
    pub(crate) fn title(&self) -> String {
        let kind = match self {
            Self::Vm(_) => "vm",
            Self::Vmi(_) => "vmi",
            Self::Pod(_) => "pod",
            Self::Revision(_) => "revision",
            Self::Migration(_) => "migration",
            Self::Claim(_) => "pvc",
            Self::DataVolume(_) => "dv",
            Self::Job(_) => "job",
            Self::Node(node) => return format!("node/{}", node.meta().name.as_deref().unwrap_or_default()),
            other => return format!("{:?}/{}", other.kind(), other.key().name),
        };
        let key = self.key();
        match key.namespace.as_str() {
            crate::script::NAMESPACE => format!("{kind}/{}", key.name),
            namespace => format!("{kind}/{namespace}/{}", key.name),
        }
    }
}

pub(crate) fn key(meta: &ObjectMeta) -> Key {
    Key::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

pub(crate) fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}
