//! The group `instancetype.kubevirt.io`: sizes and preferences that virtual machines share.
//!
//! An instance type takes precedence and conflicts with fields that a virtual machine sets itself; a preference only
//! sets what it leaves open.

mod preference;

pub use preference::*;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

use crate::kind::{null_as_empty, resource};
use crate::v1::{DiskIOThreads, GPU, HostDevice, Hugepages, LaunchSecurity, NUMA, Realtime};

/// The group of this module's kinds.
pub const GROUP: &str = "instancetype.kubevirt.io";

resource! {
    /// A size for virtual machines of one namespace.
    VirtualMachineInstancetype, "instancetype.kubevirt.io" / "v1beta1" / "virtualmachineinstancetypes",
    spec: VirtualMachineInstancetypeSpec
}

resource! {
    /// A size for virtual machines of all namespaces.
    VirtualMachineClusterInstancetype, cluster "instancetype.kubevirt.io" / "v1beta1" / "virtualmachineclusterinstancetypes",
    spec: VirtualMachineInstancetypeSpec
}

/// What a size decides. A virtual machine that uses it leaves these fields out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineInstancetypeSpec {
    /// Annotations for the instance.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub annotations: BTreeMap<String, String>,
    pub cpu: CPUInstancetype,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub gpus: Vec<GPU>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub host_devices: Vec<HostDevice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_threads: Option<DiskIOThreads>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_threads_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_security: Option<LaunchSecurity>,
    pub memory: MemoryInstancetype,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub node_selector: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
}

/// Virtual CPUs of a size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CPUInstancetype {
    #[serde(rename = "dedicatedCPUPlacement", skip_serializing_if = "Option::is_none")]
    pub dedicated_cpu_placement: Option<bool>,
    /// How many virtual CPUs the guest has.
    pub guest: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolate_emulator_thread: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_sockets: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<NUMA>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realtime: Option<Realtime>,
}

/// Memory of a size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MemoryInstancetype {
    /// How much memory the guest has.
    pub guest: Quantity,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugepages: Option<Hugepages>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_guest: Option<Quantity>,
    /// By how many percent the Pod's memory request stays below the guest's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overcommit_percent: Option<i64>,
}
