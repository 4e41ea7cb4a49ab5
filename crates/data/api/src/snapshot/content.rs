//! VirtualMachineSnapshotContent.

use k8s_openapi::api::core::v1::PersistentVolumeClaimSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Serialize};

use super::SnapshotError;
use crate::kind::{null_as_empty, resource};
use crate::v1::{VirtualMachineSpec, VirtualMachineStatus};

resource! {
    /// What a snapshot kept: a copy of the virtual machine and the snapshots of its volumes.
    VirtualMachineSnapshotContent, "snapshot.kubevirt.io" / "v1beta1" / "virtualmachinesnapshotcontents",
    spec: VirtualMachineSnapshotContentSpec, status: VirtualMachineSnapshotContentStatus
}

/// The copy and its volumes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineSnapshotContentSpec {
    pub source: SourceSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_snapshot_name: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub volume_backups: Vec<VolumeBackup>,
}

/// A copy of what was snapshotted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SourceSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine: Option<SnapshotVirtualMachine>,
}

/// The virtual machine as it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SnapshotVirtualMachine {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ObjectMeta>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<VirtualMachineSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<VirtualMachineStatus>,
}

/// A claim as it was, and the snapshot of its volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeBackup {
    pub persistent_volume_claim: SnapshotPersistentVolumeClaim,
    pub volume_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_name: Option<String>,
}

/// A claim's metadata and specification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SnapshotPersistentVolumeClaim {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ObjectMeta>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<PersistentVolumeClaimSpec>,
}

/// How far the volumes' snapshots got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineSnapshotContentStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SnapshotError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub volume_snapshot_status: Vec<ContentVolumeSnapshotStatus>,
}

/// How far one volume's snapshot got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContentVolumeSnapshotStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SnapshotError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    pub volume_snapshot_name: String,
}
