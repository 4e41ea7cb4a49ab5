//! The group `snapshot.kubevirt.io`: snapshots of virtual machines and their restores.

mod content;
mod restore;

pub use content::*;
pub use restore::*;

use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::kind::{null_as_empty, open_enum, resource};
use crate::v1::Condition;

/// The group of this module's kinds.
pub const GROUP: &str = "snapshot.kubevirt.io";

resource! {
    /// A request to keep a virtual machine's state, and how far it got.
    VirtualMachineSnapshot, "snapshot.kubevirt.io" / "v1beta1" / "virtualmachinesnapshots",
    spec: VirtualMachineSnapshotSpec, status: VirtualMachineSnapshotStatus
}

/// What to keep, and how long to try.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineSnapshotSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// How long the snapshot may take before it counts as failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_deadline: Option<String>,
    pub source: TypedLocalObjectReference,
}

open_enum! {
    /// What happens to the content when its snapshot is deleted.
    DeletionPolicy {
        /// It is deleted too.
        Delete,
        /// It stays.
        Retain,
    }
}

/// How far a snapshot got and under which circumstances it was taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineSnapshotStatus {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SnapshotError>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub indications: Vec<Indication>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<VirtualMachineSnapshotPhase>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_volumes: Option<SnapshotVolumesLists>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub source_indications: Vec<SourceIndication>,
    #[serde(rename = "sourceUID", skip_serializing_if = "Option::is_none")]
    pub source_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_snapshot_content_name: Option<String>,
}

open_enum! {
    /// Where a snapshot stands.
    VirtualMachineSnapshotPhase {
        /// Volumes are being snapshotted.
        InProgress,
        /// The content is complete.
        Succeeded,
        /// It did not succeed in time.
        Failed,
        /// It is being deleted.
        Deleting,
        /// The state is unknown.
        Unknown,
    }
}

open_enum! {
    /// A circumstance under which a snapshot was taken, which says how consistent it is.
    Indication {
        /// The guest was running.
        Online,
        /// No agent could freeze the guest's file systems.
        NoGuestAgent,
        /// An agent froze the guest's file systems.
        GuestAgent,
        /// The file systems were thawed before the snapshots were complete.
        QuiesceTimeout,
        /// The guest was paused.
        Paused,
        /// Some volumes were left out.
        PartialSnapshot,
    }
}

/// A circumstance of the source, in a word and in a sentence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SourceIndication {
    pub indication: Indication,
    pub message: String,
}

/// The last error, until it is resolved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SnapshotError {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}

/// Volumes that a snapshot has and those it leaves out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SnapshotVolumesLists {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub excluded_volumes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub included_volumes: Vec<String>,
}
