//! The group `pool.kubevirt.io`: pools of virtual machines that each keep their own state.

use k8s_openapi::api::core::v1::NodeSelectorRequirement;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};

use crate::kind::{null_as_empty, open_enum, resource};
use crate::v1::{Condition, Empty, VirtualMachineSpec};

/// The group of this module's kinds.
pub const GROUP: &str = "pool.kubevirt.io";

resource! {
    /// A number of virtual machines made from one template, each under its own numbered name.
    VirtualMachinePool, "pool.kubevirt.io" / "v1beta1" / "virtualmachinepools",
    spec: VirtualMachinePoolSpec, status: VirtualMachinePoolStatus
}

/// How many virtual machines of which template, and how their number and template may change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachinePoolSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autohealing: Option<VirtualMachinePoolAutohealingStrategy>,
    /// The maximum number of virtual machines that an update may make unavailable at a time, as a number or percentage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_generation: Option<VirtualMachinePoolNameGeneration>,
    /// Whether scaling and updates are paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_in_strategy: Option<VirtualMachinePoolScaleInStrategy>,
    pub selector: LabelSelector,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<VirtualMachinePoolUpdateStrategy>,
    pub virtual_machine_template: VirtualMachineTemplateSpec,
}

/// The template of a pool's virtual machines: metadata and specification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineTemplateSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ObjectMeta>,
    pub spec: VirtualMachineSpec,
}

/// Whether objects that the template refers to are numbered like the virtual machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachinePoolNameGeneration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_index_to_config_map_refs: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_index_to_secret_refs: Option<bool>,
}

/// When a virtual machine that fails to start is replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachinePoolAutohealingStrategy {
    /// How long starting must have failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_failing_to_start_duration: Option<String>,
    /// How often in a row starting must have failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_up_failure_threshold: Option<u32>,
}

/// How virtual machines are removed on scale-in; at most one member is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachinePoolScaleInStrategy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opportunistic: Option<VirtualMachinePoolOpportunisticScaleInStrategy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proactive: Option<VirtualMachinePoolProactiveScaleInStrategy>,
    /// Nothing is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmanaged: Option<Empty>,
}

/// Only virtual machines that are already stopped are removed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachinePoolOpportunisticScaleInStrategy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

/// Virtual machines are removed whether they run or not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachinePoolProactiveScaleInStrategy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selection_policy: Option<VirtualMachinePoolSelectionPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

open_enum! {
    /// Which state of a removed virtual machine is preserved.
    StatePreservation {
        /// Nothing: its volumes go with it.
        Disabled,
        /// Its volumes stay.
        Offline,
        /// Its volumes stay, and so does its memory.
        Online,
    }
}

/// How a new template reaches existing virtual machines; at most one member is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachinePoolUpdateStrategy {
    /// Virtual machines are updated, and run the new template from their next start on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opportunistic: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proactive: Option<VirtualMachinePoolProactiveUpdateStrategy>,
    /// Existing virtual machines keep their template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmanaged: Option<Empty>,
}

/// Virtual machines are updated and restarted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachinePoolProactiveUpdateStrategy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selection_policy: Option<VirtualMachinePoolSelectionPolicy>,
}

/// Which virtual machines come first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachinePoolSelectionPolicy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selectors: Option<VirtualMachinePoolSelectors>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort_policy: Option<VirtualMachinePoolSortPolicy>,
}

open_enum! {
    /// The order in which virtual machines are taken.
    VirtualMachinePoolSortPolicy {
        /// Lowest number first.
        AscendingOrder,
        /// Highest number first.
        DescendingOrder,
        /// Youngest first.
        Newest,
        /// Oldest first.
        Oldest,
        /// In no particular order.
        Random,
    }
}

/// Virtual machines to take before all others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachinePoolSelectors {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Requirements on the nodes that the virtual machines run on.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub node_selector_requirement_matcher: Vec<NodeSelectorRequirement>,
}

/// How many virtual machines there are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachinePoolStatus {
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
