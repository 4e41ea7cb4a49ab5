//! The group `migrations.kubevirt.io`: migration policies for groups of instances.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

use crate::kind::{null_as_empty, resource};
use crate::v1::{Empty, ExperimentalMigrationOptions};

/// The group of this module's kinds.
pub const GROUP: &str = "migrations.kubevirt.io";

resource! {
    /// Migration settings that replace those of the cluster for the instances it selects.
    MigrationPolicy, cluster "migrations.kubevirt.io" / "v1alpha1" / "migrationpolicies",
    spec: MigrationPolicySpec, status: Empty
}

/// Which instances a policy is for and what it changes; what it leaves unset stays as the cluster has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MigrationPolicySpec {
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experimental: Option<ExperimentalMigrationOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_downtime_ms: Option<u64>,
    /// A policy without selectors is for no instance; with empty ones it is for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selectors: Option<Selectors>,
}

/// Labels that an instance and its namespace must carry, all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Selectors {
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub namespace_selector: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub virtual_machine_instance_selector: BTreeMap<String, String>,
}
