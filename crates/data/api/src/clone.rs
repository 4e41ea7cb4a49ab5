//! The group `clone.kubevirt.io`: copies of virtual machines.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::kind::{null_as_empty, open_enum, resource};
use crate::v1::Condition;

/// The group of this module's kinds.
pub const GROUP: &str = "clone.kubevirt.io";

resource! {
    /// A request to copy a virtual machine, from itself or from a snapshot of it.
    VirtualMachineClone, "clone.kubevirt.io" / "v1beta1" / "virtualmachineclones",
    spec: VirtualMachineCloneSpec, status: VirtualMachineCloneStatus
}

/// What to copy and what the copy gets of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineCloneSpec {
    /// Patterns of annotations that go along; a leading `!` excludes.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub annotation_filters: Vec<String>,
    /// Patterns of labels that go along; a leading `!` excludes.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub label_filters: Vec<String>,
    /// MAC addresses of the copy, by interface.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub new_mac_addresses: BTreeMap<String, String>,
    #[serde(rename = "newSMBiosSerial", skip_serializing_if = "Option::is_none")]
    pub new_smbios_serial: Option<String>,
    /// JSON patches to apply to the copy.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub patches: Vec<String>,
    pub source: TypedLocalObjectReference,
    /// The copy; without it a name is derived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<TypedLocalObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<VirtualMachineCloneTemplateFilters>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_name_policy: Option<VolumeNamePolicy>,
}

/// Which labels and annotations of the instance template go along.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineCloneTemplateFilters {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub annotation_filters: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub label_filters: Vec<String>,
}

open_enum! {
    /// How the volumes of a copy are named.
    VolumeNamePolicy {
        /// Each name is new.
        RandomizeNames,
        /// The copy's name is put before the source's volume name.
        PrefixTargetName,
    }
}

/// How far a clone got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineCloneStatus {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<VirtualMachineClonePhase>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_name: Option<String>,
}

open_enum! {
    /// Where a clone stands.
    VirtualMachineClonePhase {
        /// The source is being snapshotted.
        SnapshotInProgress,
        /// The copy is being made.
        CreatingTargetVM,
        /// The snapshot is being restored into the copy.
        RestoreInProgress,
        /// The copy exists.
        Succeeded,
        /// The copy cannot be made.
        Failed,
        /// The state is unknown.
        Unknown,
    }
}
