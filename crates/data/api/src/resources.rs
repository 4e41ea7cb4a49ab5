//! The table of our kinds: names, served versions, and printer columns.
//!
//! The CustomResourceDefinitions, the embedded API server, `get` and `explain` and the documentation all use it.

use std::cmp::Reverse;

use crate::{backup, clone, export, instancetype, migrations, plugin, pool, snapshot, v1};

/// The group of start, stop, console and the other subresources, which an API server of its own serves.
pub const SUBRESOURCES_GROUP: &str = "subresources.kubevirt.io";

/// A kind as the API serves it.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    pub group: &'static str,
    pub kind: &'static str,
    /// The name in paths and in RBAC rules.
    pub plural: &'static str,
    pub singular: &'static str,
    /// Aliases of the plural for users.
    pub short_names: &'static [&'static str],
    /// Collective names that include this kind, such as `all`.
    pub categories: &'static [&'static str],
    /// Whether the kind is namespaced rather than cluster-scoped.
    pub namespaced: bool,
    /// The served versions in the order of the definition. All have the same fields.
    pub versions: &'static [Version],
    /// Whether there is a status subresource.
    pub status: bool,
    /// The paths of the scale subresource, for kinds that have one.
    pub scale: Option<Scale>,
    /// The columns that `kubectl get` shows after the name.
    pub columns: &'static [Column],
    /// Fields besides `metadata.name` and `metadata.namespace` that support field selectors.
    pub selectable_fields: &'static [&'static str],
    /// The label that marks the CustomResourceDefinition as ours.
    pub label: &'static str,
}

/// A version a kind is served in.
#[derive(Debug, PartialEq, Eq)]
pub struct Version {
    pub name: &'static str,
    /// Whether this is the storage version. Each kind has exactly one.
    pub storage: bool,
    /// The warning that clients of a deprecated version get.
    pub deprecated: Option<&'static str>,
}

/// Paths the `scale` subresource reads and writes.
#[derive(Debug, PartialEq, Eq)]
pub struct Scale {
    pub spec_replicas: &'static str,
    pub status_replicas: &'static str,
    /// Where the controller writes its selector as a string.
    pub label_selector: &'static str,
}

/// A column of `kubectl get`.
#[derive(Debug, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    /// How the value is shown: `string`, `integer`, `boolean` or `date`.
    pub type_: &'static str,
    /// The JSON path of the value.
    pub path: &'static str,
    /// Whether the column is only shown in the wide view.
    pub wide: bool,
}

impl Resource {
    /// The version objects are stored in.
    pub fn storage_version(&self) -> &'static str {
        self.versions.iter().find(|version| version.storage).map_or("", |version| version.name)
    }

    /// The served version of this name.
    pub fn version(&self, name: &str) -> Option<&'static Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// The most mature served version, which clients use unless they ask for another one.
    pub fn preferred_version(&self) -> Option<&'static Version> {
        self.versions.iter().min_by_key(|version| Reverse(maturity(version.name)))
    }

    /// Whether an `apiVersion` names this group and a served version of this kind.
    pub fn serves(&self, api_version: &str) -> bool {
        let split = api_version.split_once('/');
        split.is_some_and(|(group, version)| group == self.group && self.version(version).is_some())
    }

    /// Group and storage version as `apiVersion` spells them.
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.storage_version())
    }

    /// The name of the definition, which is also the resource's full name in authorization.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }
}

/// Orders versions as Kubernetes prefers them: `v1` before `v1beta1` before `v1alpha3` before `v1alpha1`.
pub fn maturity(version: &str) -> (u8, u32, u32) {
    let number = |text: &str| text.parse().unwrap_or(0);
    let version = version.trim_start_matches('v');
    match (version.split_once("beta"), version.split_once("alpha")) {
        (Some((major, minor)), _) => (1, number(major), number(minor)),
        (None, Some((major, minor))) => (0, number(major), number(minor)),
        (None, None) => (2, number(version), 0),
    }
}

/// The resource of this kind.
pub fn of_kind(group: &str, kind: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.kind == kind && resource.group == group)
}

/// The resource with this plural name.
pub fn of_plural(group: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.plural == plural && resource.group == group)
}

/// Finds a resource by kind, plural, singular or short name, ignoring case.
pub fn of_any_name(name: &str) -> Option<&'static Resource> {
    let name = name.to_lowercase();
    let name = name.as_str();
    RESOURCES.iter().find(|resource| {
        [resource.plural, resource.singular].contains(&name)
            || resource.short_names.contains(&name)
            || resource.full_name() == name
    })
}

const fn column(name: &'static str, type_: &'static str, path: &'static str) -> Column {
    Column { name, type_, path, wide: false }
}

const fn wide(name: &'static str, type_: &'static str, path: &'static str) -> Column {
    Column { name, type_, path, wide: true }
}

const fn served(name: &'static str) -> Version {
    Version { name, storage: false, deprecated: None }
}

const fn stored(name: &'static str) -> Version {
    Version { name, storage: true, deprecated: None }
}

const AGE: Column = column("Age", "date", ".metadata.creationTimestamp");
const PHASE: Column = column("Phase", "string", ".status.phase");
const READY: Column = column("Ready", "string", ".status.conditions[?(@.type=='Ready')].status");
const SOURCE_KIND: Column = column("SourceKind", "string", ".spec.source.kind");
const SOURCE_NAME: Column = column("SourceName", "string", ".spec.source.name");
const READY_TO_USE: Column = column("ReadyToUse", "boolean", ".status.readyToUse");
const CREATION_TIME: Column = column("CreationTime", "date", ".status.creationTime");
const ERROR: Column = column("Error", "string", ".status.error.message");

/// The columns of replica sets.
const REPLICA_COLUMNS: &[Column] = &[
    column("Desired", "integer", ".spec.replicas"),
    column("Current", "integer", ".status.replicas"),
    column("Ready", "integer", ".status.readyReplicas"),
    AGE,
];

const SCALE: Scale = Scale {
    spec_replicas: ".spec.replicas",
    status_replicas: ".status.replicas",
    label_selector: ".status.labelSelector",
};

/// The versions of the core group. Manifests older than `v1` name `v1alpha3`.
const CORE: &[Version] = &[
    stored("v1"),
    Version {
        name: "v1alpha3",
        storage: false,
        deprecated: Some("kubevirt.io/v1alpha3 is now deprecated and will be removed in a future release."),
    },
];

/// Presets were never migrated: they are stored in the old version, and both versions are deprecated.
const PRESET: &[Version] = &[
    Version {
        name: "v1",
        storage: false,
        deprecated: Some("kubevirt.io/v1 VirtualMachineInstancePresets is now deprecated and will be removed in v2."),
    },
    Version {
        name: "v1alpha3",
        storage: true,
        deprecated: Some(
            "kubevirt.io/v1alpha3 VirtualMachineInstancePresets is now deprecated and will be removed in v2.",
        ),
    },
];

const EXPORT: &[Version] = &[
    Version {
        name: "v1beta1",
        storage: false,
        deprecated: Some(
            "export.kubevirt.io/v1beta1 VirtualMachineExport is now deprecated and will be removed in a future version.",
        ),
    },
    stored("v1"),
];

const ALPHA: &[Version] = &[stored("v1alpha1")];
const BETA: &[Version] = &[stored("v1beta1")];
const ALPHA_AND_BETA: &[Version] = &[served("v1alpha1"), stored("v1beta1")];

/// The label of definitions the operator installs, and of the operator's own.
const INSTALLED: &str = "kubevirt.io";
const OPERATOR: &str = "operator.kubevirt.io";

/// What most kinds are: in a namespace, in the category `all`, with a status subresource and without scale.
const NAMESPACED: Resource = Resource {
    group: v1::GROUP,
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    categories: &["all"],
    namespaced: true,
    versions: CORE,
    status: true,
    scale: None,
    columns: &[],
    selectable_fields: &[],
    label: INSTALLED,
};

/// Kinds of the whole cluster are in no category: `kubectl get all` asks about one namespace.
const CLUSTER: Resource = Resource { categories: &[], namespaced: false, status: false, ..NAMESPACED };

/// Every kind we serve.
pub static RESOURCES: &[Resource] = &[
    Resource {
        kind: "VirtualMachine",
        plural: "virtualmachines",
        singular: "virtualmachine",
        short_names: &["vm", "vms"],
        columns: &[AGE, column("Status", "string", ".status.printableStatus"), READY],
        ..NAMESPACED
    },
    // No status subresource: virt-controller and virt-handler write labels and status in one update.
    Resource {
        kind: "VirtualMachineInstance",
        plural: "virtualmachineinstances",
        singular: "virtualmachineinstance",
        short_names: &["vmi", "vmis"],
        status: false,
        columns: &[
            AGE,
            PHASE,
            column("IP", "string", ".status.interfaces[0].ipAddress"),
            column("NodeName", "string", ".status.nodeName"),
            READY,
            wide("Live-Migratable", "string", ".status.conditions[?(@.type=='LiveMigratable')].status"),
            wide("Paused", "string", ".status.conditions[?(@.type=='Paused')].status"),
        ],
        ..NAMESPACED
    },
    Resource {
        kind: "VirtualMachineInstanceMigration",
        plural: "virtualmachineinstancemigrations",
        singular: "virtualmachineinstancemigration",
        short_names: &["vmim", "vmims"],
        columns: &[PHASE, column("VMI", "string", ".spec.vmiName")],
        ..NAMESPACED
    },
    Resource {
        kind: "VirtualMachineInstancePreset",
        plural: "virtualmachineinstancepresets",
        singular: "virtualmachineinstancepreset",
        short_names: &["vmipreset", "vmipresets"],
        versions: PRESET,
        status: false,
        ..NAMESPACED
    },
    Resource {
        kind: "VirtualMachineInstanceReplicaSet",
        plural: "virtualmachineinstancereplicasets",
        singular: "virtualmachineinstancereplicaset",
        short_names: &["vmirs", "vmirss"],
        scale: Some(SCALE),
        columns: REPLICA_COLUMNS,
        ..NAMESPACED
    },
    Resource {
        kind: "KubeVirt",
        plural: "kubevirts",
        singular: "kubevirt",
        short_names: &["kv", "kvs"],
        columns: &[AGE, PHASE],
        label: OPERATOR,
        ..NAMESPACED
    },
    Resource {
        group: pool::GROUP,
        kind: "VirtualMachinePool",
        plural: "virtualmachinepools",
        singular: "virtualmachinepool",
        short_names: &["vmpool", "vmpools"],
        versions: ALPHA_AND_BETA,
        scale: Some(SCALE),
        columns: REPLICA_COLUMNS,
        ..NAMESPACED
    },
    Resource {
        group: snapshot::GROUP,
        kind: "VirtualMachineSnapshot",
        plural: "virtualmachinesnapshots",
        singular: "virtualmachinesnapshot",
        short_names: &["vmsnapshot", "vmsnapshots"],
        versions: ALPHA_AND_BETA,
        columns: &[SOURCE_KIND, SOURCE_NAME, PHASE, READY_TO_USE, CREATION_TIME, ERROR],
        ..NAMESPACED
    },
    Resource {
        group: snapshot::GROUP,
        kind: "VirtualMachineSnapshotContent",
        plural: "virtualmachinesnapshotcontents",
        singular: "virtualmachinesnapshotcontent",
        short_names: &["vmsnapshotcontent", "vmsnapshotcontents"],
        versions: ALPHA_AND_BETA,
        columns: &[READY_TO_USE, CREATION_TIME, ERROR],
        ..NAMESPACED
    },
    Resource {
        group: snapshot::GROUP,
        kind: "VirtualMachineRestore",
        plural: "virtualmachinerestores",
        singular: "virtualmachinerestore",
        short_names: &["vmrestore", "vmrestores"],
        versions: ALPHA_AND_BETA,
        columns: &[
            column("TargetKind", "string", ".spec.target.kind"),
            column("TargetName", "string", ".spec.target.name"),
            column("Complete", "boolean", ".status.complete"),
            column("RestoreTime", "date", ".status.restoreTime"),
        ],
        ..NAMESPACED
    },
    Resource {
        group: export::GROUP,
        kind: "VirtualMachineExport",
        plural: "virtualmachineexports",
        singular: "virtualmachineexport",
        short_names: &["vmexport", "vmexports"],
        versions: EXPORT,
        columns: &[SOURCE_KIND, SOURCE_NAME, PHASE],
        ..NAMESPACED
    },
    Resource {
        group: clone::GROUP,
        kind: "VirtualMachineClone",
        plural: "virtualmachineclones",
        singular: "virtualmachineclone",
        short_names: &["vmclone", "vmclones"],
        versions: ALPHA_AND_BETA,
        columns: &[
            PHASE,
            column("SourceVirtualMachine", "string", ".spec.source.name"),
            column("TargetVirtualMachine", "string", ".spec.target.name"),
        ],
        ..NAMESPACED
    },
    Resource {
        group: backup::GROUP,
        kind: "VirtualMachineBackup",
        plural: "virtualmachinebackups",
        singular: "virtualmachinebackup",
        short_names: &["vmbackup", "vmbackups"],
        versions: ALPHA,
        columns: &[
            SOURCE_KIND,
            SOURCE_NAME,
            column("Type", "string", ".status.type"),
            column("CheckpointName", "string", ".status.checkpointName"),
        ],
        ..NAMESPACED
    },
    Resource {
        group: backup::GROUP,
        kind: "VirtualMachineBackupTracker",
        plural: "virtualmachinebackuptrackers",
        singular: "virtualmachinebackuptracker",
        short_names: &["vmbackuptracker", "vmbackuptrackers"],
        versions: ALPHA,
        columns: &[
            SOURCE_KIND,
            SOURCE_NAME,
            column("LatestCheckpoint", "string", ".status.latestCheckpoint.name"),
            column("CheckpointTime", "date", ".status.latestCheckpoint.creationTime"),
        ],
        ..NAMESPACED
    },
    Resource {
        group: instancetype::GROUP,
        kind: "VirtualMachineInstancetype",
        plural: "virtualmachineinstancetypes",
        singular: "virtualmachineinstancetype",
        short_names: &["vminstancetype", "vminstancetypes", "vmf", "vmfs"],
        versions: BETA,
        status: false,
        ..NAMESPACED
    },
    Resource {
        group: instancetype::GROUP,
        kind: "VirtualMachineClusterInstancetype",
        plural: "virtualmachineclusterinstancetypes",
        singular: "virtualmachineclusterinstancetype",
        short_names: &["vmclusterinstancetype", "vmclusterinstancetypes", "vmcf", "vmcfs"],
        versions: BETA,
        ..CLUSTER
    },
    Resource {
        group: instancetype::GROUP,
        kind: "VirtualMachinePreference",
        plural: "virtualmachinepreferences",
        singular: "virtualmachinepreference",
        short_names: &["vmpref", "vmprefs", "vmp", "vmps"],
        versions: BETA,
        status: false,
        ..NAMESPACED
    },
    Resource {
        group: instancetype::GROUP,
        kind: "VirtualMachineClusterPreference",
        plural: "virtualmachineclusterpreferences",
        singular: "virtualmachineclusterpreference",
        short_names: &["vmcp", "vmcps"],
        versions: BETA,
        ..CLUSTER
    },
    Resource {
        group: migrations::GROUP,
        kind: "MigrationPolicy",
        plural: "migrationpolicies",
        singular: "migrationpolicy",
        versions: ALPHA,
        status: true,
        ..CLUSTER
    },
    Resource {
        group: plugin::GROUP,
        kind: "Plugin",
        plural: "plugins",
        singular: "plugin",
        versions: ALPHA,
        ..CLUSTER
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_mature_version_is_preferred() {
        let mut versions = ["v1alpha1", "v1beta1", "v2", "v1", "v1alpha3", "v1beta2", "v10"];
        versions.sort_by_key(|version| Reverse(maturity(version)));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha3", "v1alpha1"]);
        let version = |name| of_any_name(name).unwrap().preferred_version().unwrap().name;
        assert_eq!(version("vmipreset"), "v1", "although another one is stored");
        assert_eq!(version("vmpool"), "v1beta1");
    }
}
