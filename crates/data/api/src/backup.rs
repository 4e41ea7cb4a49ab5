//! The group `backup.kubevirt.io`: copies of a running virtual machine's disks.

use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::{Deserialize, Serialize};

use crate::kind::{null_as_empty, open_enum, resource};

/// The group of this module's kinds.
pub const GROUP: &str = "backup.kubevirt.io";

resource! {
    /// One backup of a virtual machine's disks.
    VirtualMachineBackup, "backup.kubevirt.io" / "v1alpha1" / "virtualmachinebackups",
    spec: VirtualMachineBackupSpec, status: VirtualMachineBackupStatus
}

/// What to back up and where to. It does not change after creation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineBackupSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force_full_backup: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<BackupMode>,
    /// The claim that takes the pushed data, or the scratch space of a pulled backup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc_name: Option<String>,
    /// Whether to leave out the freezing of the guest's file systems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_quiesce: Option<bool>,
    /// A virtual machine, or a tracker of one.
    pub source: TypedLocalObjectReference,
    /// The secret whose token readers of a pulled backup show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<String>,
    /// How long a pulled backup can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_duration: Option<String>,
}

open_enum! {
    /// Who moves the data.
    BackupMode {
        /// The system writes it into a claim.
        Push,
        /// A client reads it from an endpoint.
        Pull,
    }
}

/// How far a backup got and what it holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineBackupStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_name: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub conditions: Vec<Condition>,
    /// The authority to verify the endpoints by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_cert: Option<String>,
    #[serde(rename = "exportUID", skip_serializing_if = "Option::is_none")]
    pub export_uid: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub included_volumes: Vec<BackupIncludedVolume>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<BackupType>,
}

open_enum! {
    /// How much a backup holds.
    BackupType {
        /// All data.
        Full,
        /// What changed since the last checkpoint.
        Incremental,
    }
}

/// A volume in a backup or checkpoint, and where a pulled one is read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BackupIncludedVolume {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map_endpoint: Option<String>,
    pub volume_name: String,
}

resource! {
    /// Remembers the last checkpoint of a virtual machine, so that the next backup copies only what changed since.
    VirtualMachineBackupTracker, "backup.kubevirt.io" / "v1alpha1" / "virtualmachinebackuptrackers",
    spec: VirtualMachineBackupTrackerSpec, status: VirtualMachineBackupTrackerStatus
}

/// Whose backups are tracked. It does not change after creation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineBackupTrackerSpec {
    pub source: TypedLocalObjectReference,
}

/// The checkpoint that the next backup starts from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineBackupTrackerStatus {
    /// Whether the guest was restarted, so that the checkpoint must be made known to it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_redefinition_required: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_checkpoint: Option<BackupCheckpoint>,
}

/// A point in time from which changed blocks are known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BackupCheckpoint {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub volumes: Vec<BackupIncludedVolume>,
}
