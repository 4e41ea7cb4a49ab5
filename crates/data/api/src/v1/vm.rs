//! VirtualMachine and its status.

#![allow(clippy::disallowed_fields, reason = "derived code reads every member")]

use super::condition::VirtualMachineCondition;
use super::data_volume::DataVolumeTemplateSpec;
use super::disks::Disk;
use super::enums::{MemoryDumpPhase, RunStrategy, StateChangeRequestAction, VirtualMachinePrintableStatus};
use super::status::{ChangedBlockTrackingStatus, StorageMigratedVolumeInfo};
use super::vmi_spec::VirtualMachineInstanceSpec;
use super::volumes::{DataVolumeVolumeSource, PersistentVolumeClaimVolumeSource};
use crate::kind::{null_as_empty, resource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

resource! {
    /// A virtual machine as its owner keeps it: a template for the instance, and a strategy that says when to run it.
    VirtualMachine, "virtualmachines", spec: VirtualMachineSpec, status: VirtualMachineStatus
}

/// What the owner of a virtual machine wants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineSpec {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub data_volume_templates: Vec<DataVolumeTemplateSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instancetype: Option<InstancetypeMatcher>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preference: Option<PreferenceMatcher>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_strategy: Option<RunStrategy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<bool>,
    pub template: VirtualMachineInstanceTemplateSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_volumes_strategy: Option<String>,
}

/// Which instance type sizes the virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstancetypeMatcher {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume_failure_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_name: Option<String>,
}

/// Which preference fills the virtual machine's open choices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PreferenceMatcher {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume_failure_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_name: Option<String>,
}

/// The instance that a virtual machine starts: metadata to stamp on it and its specification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineInstanceTemplateSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ObjectMeta>,
    pub spec: VirtualMachineInstanceSpec,
}

/// What is known about a virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_block_tracking: Option<ChangedBlockTrackingStatus>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub conditions: Vec<VirtualMachineCondition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instancetype_ref: Option<InstancetypeStatusRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_dump_request: Option<VirtualMachineMemoryDumpRequest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preference_ref: Option<InstancetypeStatusRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub printable_status: Option<VirtualMachinePrintableStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_in_progress: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_strategy: Option<RunStrategy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_in_progress: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_failure: Option<VirtualMachineStartFailure>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub state_change_requests: Vec<VirtualMachineStateChangeRequest>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub volume_requests: Vec<VirtualMachineVolumeRequest>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub volume_snapshot_statuses: Vec<VolumeSnapshotStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_update_state: Option<VolumeUpdateState>,
}

/// The instance type or preference in force, with the revision it was pinned to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstancetypeStatusRef {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_revision_ref: Option<ControllerRevisionRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume_failure_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A ControllerRevision that holds a pinned instance type or preference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ControllerRevisionRef {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A request to dump the guest's memory, and how far it got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineMemoryDumpRequest {
    pub claim_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    pub phase: MemoryDumpPhase,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timestamp: Option<Time>,
}

/// The crash-loop back-off: how often starting failed and when it is tried again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineStartFailure {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consecutive_fail_count: Option<i64>,
    #[serde(rename = "lastFailedVMIUID", skip_serializing_if = "Option::is_none")]
    pub last_failed_vmi_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_timestamp: Option<Time>,
}

/// A start or stop asked for through a subresource and not yet carried out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineStateChangeRequest {
    pub action: StateChangeRequestAction,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub data: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// A volume to plug or unplug; exactly one member is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineVolumeRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_volume_options: Option<AddVolumeOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove_volume_options: Option<RemoveVolumeOptions>,
}

/// The volume to plug and the disk it becomes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AddVolumeOptions {
    pub disk: Disk,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub dry_run: Vec<String>,
    pub name: String,
    pub volume_source: HotplugVolumeSource,
}

/// What a plugged volume is made of; exactly one member is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HotplugVolumeSource {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_volume: Option<DataVolumeVolumeSource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
}

/// The volume to unplug.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RemoveVolumeOptions {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub dry_run: Vec<String>,
    pub name: String,
}

/// Whether a volume can be snapshotted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeSnapshotStatus {
    pub enabled: bool,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Where a change of volumes stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeUpdateState {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_migration_state: Option<VolumeMigrationState>,
}

/// Volumes being migrated because the template names new ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeMigrationState {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub migrated_volumes: Vec<StorageMigratedVolumeInfo>,
}

/// A virtual machine that says twice, and perhaps differently, when to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.running and spec.runStrategy are mutually exclusive; remove spec.running")]
pub struct BothRunningAndRunStrategy;

impl VirtualMachine {
    /// When the instance should exist, from whichever of the two fields is set; `Halted` if neither is.
    pub fn run_strategy(&self) -> Result<RunStrategy, BothRunningAndRunStrategy> {
        match (self.spec.running, &self.spec.run_strategy) {
            (Some(_), Some(_)) => Err(BothRunningAndRunStrategy),
            (Some(true), None) => Ok(RunStrategy::Always),
            (Some(false), None) | (None, None) => Ok(RunStrategy::Halted),
            (None, Some(strategy)) => Ok(strategy.clone()),
        }
    }

    /// Whether it is being deleted.
    pub fn is_marked_for_deletion(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// The condition of this type.
    pub fn condition(&self, type_: &str) -> Option<&VirtualMachineCondition> {
        crate::conditions::find(&self.status.as_ref()?.conditions, type_)
    }

    /// The status, made if it is missing.
    pub fn status_mut(&mut self) -> &mut VirtualMachineStatus {
        self.status.get_or_insert_default()
    }
}
