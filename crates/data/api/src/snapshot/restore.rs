//! VirtualMachineRestore.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::kind::{null_as_empty, open_enum, resource};
use crate::v1::Condition;

resource! {
    /// A request to restore a virtual machine from a snapshot, or to create a new one from it.
    VirtualMachineRestore, "snapshot.kubevirt.io" / "v1beta1" / "virtualmachinerestores",
    spec: VirtualMachineRestoreSpec, status: VirtualMachineRestoreStatus
}

/// What to restore, from what, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineRestoreSpec {
    /// JSON patches to apply to a virtual machine that the restore makes.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub patches: Vec<String>,
    /// The virtual machine to bring back or to make.
    pub target: TypedLocalObjectReference,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_readiness_policy: Option<TargetReadinessPolicy>,
    pub virtual_machine_snapshot_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_ownership_policy: Option<VolumeOwnershipPolicy>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub volume_restore_overrides: Vec<VolumeRestoreOverride>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_restore_policy: Option<VolumeRestorePolicy>,
}

open_enum! {
    /// What a restore does when the virtual machine still runs.
    TargetReadinessPolicy {
        /// It is stopped.
        StopTarget,
        /// The restore waits a few minutes and then fails.
        WaitGracePeriod,
        /// The restore fails.
        FailImmediate,
        /// The restore waits.
        WaitEventually,
    }
}

open_enum! {
    /// Which claims a restore fills.
    VolumeRestorePolicy {
        /// New ones with new names.
        RandomizeNames,
        /// Those that are there, which are replaced.
        InPlace,
        /// New ones with the virtual machine's name before the old name.
        PrefixTargetName,
    }
}

open_enum! {
    /// Who owns restored claims.
    VolumeOwnershipPolicy {
        /// The virtual machine, and they are deleted with it.
        Vm,
        /// No owner.
        None,
    }
}

/// Names and metadata that one restored volume gets instead of those of its source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeRestoreOverride {
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_name: Option<String>,
}

/// How far a restore got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineRestoreStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub conditions: Vec<Condition>,
    /// DataVolumes that gave way to restored claims.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub deleted_data_volumes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_time: Option<Time>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub restores: Vec<VolumeRestore>,
}

/// A volume and the claim restored for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeRestore {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_volume_name: Option<String>,
    pub persistent_volume_claim: String,
    pub volume_name: String,
    pub volume_snapshot_name: String,
}
