//! The virtual hardware: memory, machine, threads, launch security.

use super::Empty;
use super::clock::Clock;
use super::cpu::CPU;
use super::devices::Devices;
use super::features::Features;
use super::firmware::{Chassis, Firmware};
use crate::kind::null_as_empty;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The virtual hardware.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DomainSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chassis: Option<Chassis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CPU>,
    pub devices: Devices,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<Features>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<Firmware>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_threads: Option<DiskIOThreads>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_threads_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_security: Option<LaunchSecurity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reboot_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
}

/// The pool of threads that serve disks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DiskIOThreads {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supplemental_pool_thread_count: Option<u32>,
}

/// Confidential computing; exactly one technology is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LaunchSecurity {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sev: Option<SEV>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snp: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tdx: Option<Empty>,
}

/// AMD's encrypted virtualization.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SEV {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attestation: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dh_cert: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<SEVPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// What AMD's firmware enforces for the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SEVPolicy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted_state: Option<bool>,
}

/// The machine type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Machine {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
}

/// The guest's memory and what backs it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Memory {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugepages: Option<Hugepages>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_guest: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_overhead: Option<ReservedOverhead>,
}

/// Huge pages as backing of the guest's memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Hugepages {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_size: Option<String>,
}

/// Memory set aside on top of the computed overhead.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ReservedOverhead {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_overhead: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_lock: Option<String>,
}

/// Compute resources the instance asks the cluster for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceRequirements {
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub limits: BTreeMap<String, Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overcommit_guest_overhead: Option<bool>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub requests: BTreeMap<String, Quantity>,
}
