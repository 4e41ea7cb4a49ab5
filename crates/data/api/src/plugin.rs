//! The group `plugin.kubevirt.io`: third-party code that takes part in a virtual machine's lifecycle.

use serde::{Deserialize, Serialize};

use crate::kind::{null_as_empty, open_enum, resource};
use crate::v1::Empty;

/// The group of this module's kinds.
pub const GROUP: &str = "plugin.kubevirt.io";

resource! {
    /// A bundle of hooks and admission rules.
    Plugin, cluster "plugin.kubevirt.io" / "v1alpha1" / "plugins",
    spec: PluginSpec, status: Empty
}

/// When a plugin applies and what it consists of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PluginSpec {
    /// A CEL expression about the instance; hooks run where it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub domain_hooks: Vec<DomainHook>,
    /// The default failure strategy of hooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_strategy: Option<FailureStrategy>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub mutating_admission_policies: Vec<AdmissionReference>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub mutating_admission_webhooks: Vec<AdmissionReference>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub node_hooks: Vec<NodeHook>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub validating_admission_policies: Vec<AdmissionReference>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub validating_admission_webhooks: Vec<AdmissionReference>,
}

open_enum! {
    /// What a failing hook means for the instance.
    FailureStrategy {
        /// The instance fails.
        Fail,
        /// The instance continues without it.
        Ignore,
    }
}

/// A change to the domain before it starts; one of `cel` and `sidecar` is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DomainHook {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cel: Option<CELDomainHook>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_strategy: Option<FailureStrategy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<SidecarDomainHook>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

/// A change written as an expression.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CELDomainHook {
    pub expression: String,
}

/// A change made by a sidecar of the launcher.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SidecarDomainHook {
    pub socket_path: String,
}

/// A program on the node that is notified about steps in an instance's lifecycle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeHook {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_strategy: Option<FailureStrategy>,
    /// The steps it is notified about.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub permitted_hooks: Vec<String>,
    /// The socket it listens on.
    pub socket: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

/// An admission object of the cluster, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AdmissionReference {
    pub name: String,
}
