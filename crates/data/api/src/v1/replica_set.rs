//! VirtualMachineInstanceReplicaSet.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};

use super::{Condition, VirtualMachineInstanceTemplateSpec};
use crate::kind::{null_as_empty, resource};

resource! {
    /// A number of interchangeable instances made from one template.
    VirtualMachineInstanceReplicaSet, "virtualmachineinstancereplicasets",
    spec: VirtualMachineInstanceReplicaSetSpec, status: VirtualMachineInstanceReplicaSetStatus
}

/// How many instances of which template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineInstanceReplicaSetSpec {
    /// Whether the number of instances is left as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    pub selector: LabelSelector,
    pub template: VirtualMachineInstanceTemplateSpec,
}

/// How many instances there are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineInstanceReplicaSetStatus {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub conditions: Vec<Condition>,
    /// The selector as a string, for autoscalers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
}
