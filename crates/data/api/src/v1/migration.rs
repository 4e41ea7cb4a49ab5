//! VirtualMachineInstanceMigration and the state of a migration.

use super::condition::VirtualMachineInstanceMigrationCondition;
use super::enums::{MigrationAbortStatus, MigrationMode, MigrationPriority, VirtualMachineInstanceMigrationPhase};
use crate::kind::{null_as_empty, resource};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The course of the latest live migration, as both nodes report it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationState {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort_requested: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort_status: Option<MigrationAbortStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_configuration: Option<MigrationConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_network_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_policy_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<MigrationMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_node: Option<String>,
    #[serde(rename = "sourcePersistentStatePVCName", skip_serializing_if = "Option::is_none")]
    pub source_persistent_state_pvc_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_pod: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_state: Option<VirtualMachineInstanceMigrationSourceState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timestamp: Option<Time>,
    #[serde(rename = "targetAttachmentPodUID", skip_serializing_if = "Option::is_none")]
    pub target_attachment_pod_uid: Option<String>,
    #[serde(rename = "targetCPUSet", skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub target_cpu_set: Vec<i64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub target_direct_migration_node_ports: BTreeMap<String, i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_memory_overhead: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_domain_detected: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_domain_ready_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_topology: Option<String>,
    #[serde(rename = "targetPersistentStatePVCName", skip_serializing_if = "Option::is_none")]
    pub target_persistent_state_pvc_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_pod: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_state: Option<VirtualMachineInstanceMigrationTargetState>,
}

/// On which side of a migration between two instances an instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// Its guest leaves for another instance.
    Sends,
    /// Its guest comes, or came, from another one.
    Receives,
}

impl VirtualMachineInstanceMigrationState {
    /// The side of the instance that carries this state, if the guest moves between two instances and both have spoken: the
    /// one whose address is known is the other one.
    pub fn between(&self) -> Option<Between> {
        let is_set = |address: &Option<String>| address.as_deref().is_some_and(|address| !address.is_empty());
        let (source, target) = (self.source_state.as_ref()?, self.target_state.as_ref()?);
        match (is_set(&source.sync_address), is_set(&target.sync_address)) {
            (false, true) => Some(Between::Sends),
            (true, false) => Some(Between::Receives),
            _ => None,
        }
    }

    /// Nothing about it changes any more.
    pub fn is_over(&self) -> bool {
        self.failed == Some(true) || self.completed == Some(true)
    }

    /// Marks it as failed. A migration that was aborted is not `completed`, unlike one that failed by itself.
    pub fn fail(&mut self) {
        self.failed = Some(true);
        let aborted = self.abort_status == Some(MigrationAbortStatus::Succeeded);
        self.completed = if aborted { None } else { Some(true) };
    }
}

/// Limits and choices of live migration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MigrationConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_auto_converge: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_post_copy: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_workload_disruption: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_per_migration: Option<Quantity>,
    #[serde(rename = "completionTimeoutPerGiB", skip_serializing_if = "Option::is_none")]
    pub completion_timeout_per_gib: Option<i64>,
    #[serde(rename = "disableTLS", skip_serializing_if = "Option::is_none")]
    pub disable_tls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experimental: Option<ExperimentalMigrationOptions>,
    #[serde(rename = "matchSELinuxLevelOnMigration", skip_serializing_if = "Option::is_none")]
    pub match_selinux_level_on_migration: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_downtime_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_drain_taint_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_migrations_per_cluster: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_outbound_migrations_per_node: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_timeout: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsafe_migration_override: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utility_volumes_timeout: Option<i64>,
}

/// Migration choices that may change or go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExperimentalMigrationOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downtime_tuning: Option<MigrationDowntimeTuning>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_detector: Option<MigrationStallDetector>,
}

/// How the permitted downtime grows while a migration does not converge.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MigrationDowntimeTuning {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cooldown_seconds: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_after_iteration: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<i32>,
}

/// When a migration counts as stalled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MigrationStallDetector {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_timeout_factor: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ewma_alpha: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience_window_decay_factor: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precopy_possible_factor: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search_local_minima: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_margin: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_progress_timeout: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switchover_timeout: Option<i64>,
}

/// A migration as seen from its source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationSourceState {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_namespace: Option<String>,
    #[serde(rename = "migrationUID", skip_serializing_if = "Option::is_none")]
    pub migration_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub node_selectors: BTreeMap<String, String>,
    #[serde(rename = "persistentStatePVCName", skip_serializing_if = "Option::is_none")]
    pub persistent_state_pvc_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selinux_context: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_address: Option<String>,
    #[serde(rename = "virtualMachineInstanceUID", skip_serializing_if = "Option::is_none")]
    pub virtual_machine_instance_uid: Option<String>,
}

/// A migration as seen from its target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationTargetState {
    #[serde(rename = "attachmentPodUID", skip_serializing_if = "Option::is_none")]
    pub attachment_pod_uid: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub cpu_set: Vec<i64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub direct_migration_node_ports: BTreeMap<String, i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_detected: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_ready_timestamp: Option<Time>,
    #[serde(rename = "migrationUID", skip_serializing_if = "Option::is_none")]
    pub migration_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_topology: Option<String>,
    #[serde(rename = "persistentStatePVCName", skip_serializing_if = "Option::is_none")]
    pub persistent_state_pvc_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selinux_context: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_address: Option<String>,
    #[serde(rename = "virtualMachineInstanceUID", skip_serializing_if = "Option::is_none")]
    pub virtual_machine_instance_uid: Option<String>,
}

resource! {
    /// The wish to move a running instance to another node.
    VirtualMachineInstanceMigration, "virtualmachineinstancemigrations",
    spec: VirtualMachineInstanceMigrationSpec, status: VirtualMachineInstanceMigrationStatus
}

impl VirtualMachineInstanceMigration {
    /// The phase, or `None` while it is unset.
    pub fn phase(&self) -> Option<&VirtualMachineInstanceMigrationPhase> {
        self.status.as_ref()?.phase.as_ref().filter(|phase| !phase.as_str().is_empty())
    }

    /// Whether the migration has ended.
    pub fn is_final(&self) -> bool {
        self.phase().is_some_and(VirtualMachineInstanceMigrationPhase::is_final)
    }
}

impl VirtualMachineInstanceMigrationPhase {
    /// Whether a migration in this phase has ended.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// Which instance to move, and where to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationSpec {
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub added_node_selector: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<MigrationPriority>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive: Option<VirtualMachineInstanceMigrationTarget>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_to: Option<VirtualMachineInstanceMigrationSource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vmi_name: Option<String>,
}

/// This side receives an instance from another cluster or namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationTarget {
    #[serde(rename = "migrationID")]
    pub migration_id: String,
}

/// This side sends its instance to another cluster or namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationSource {
    #[serde(rename = "connectURL")]
    pub connect_url: String,
    #[serde(rename = "migrationID")]
    pub migration_id: String,
}

/// What is known about a migration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationStatus {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub conditions: Vec<VirtualMachineInstanceMigrationCondition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_state: Option<VirtualMachineInstanceMigrationState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<VirtualMachineInstanceMigrationPhase>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub phase_transition_timestamps: Vec<VirtualMachineInstanceMigrationPhaseTransitionTimestamp>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub synchronization_addresses: Vec<String>,
}

/// When a migration first reached a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationPhaseTransitionTimestamp {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<VirtualMachineInstanceMigrationPhase>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase_transition_timestamp: Option<Time>,
}
