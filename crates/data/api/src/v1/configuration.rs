//! The cluster-wide configuration inside KubeVirt.

use super::Empty;
use super::migration::MigrationConfiguration;
use crate::kind::null_as_empty;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Cluster-wide configuration of virtual machines and of the components that run them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeVirtConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additional_guest_memory_overhead_ratio: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_configuration: Option<ReloadableComponentConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture_configuration: Option<ArchConfiguration>,
    #[serde(rename = "autoCPULimitNamespaceLabelSelector", skip_serializing_if = "Option::is_none")]
    pub auto_cpu_limit_namespace_label_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_block_tracking_label_selectors: Option<ChangedBlockTrackingSelectors>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub common_instancetypes_deployment: Option<CommonInstancetypesDeployment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidential_compute: Option<ConfidentialComputeConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_configuration: Option<ReloadableComponentConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_request: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_runtime_class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub developer_configuration: Option<DeveloperConfiguration>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub emulated_machines: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction_strategy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handler_configuration: Option<ReloadableComponentConfiguration>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub hypervisors: Vec<HypervisorConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instancetype: Option<InstancetypeConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ksm_configuration: Option<KSMConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_update_configuration: Option<LiveUpdateConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mediated_devices_configuration: Option<MediatedDevicesConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_balloon_stats_period: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migrations: Option<MigrationConfiguration>,
    #[serde(rename = "minCPUModel", skip_serializing_if = "Option::is_none")]
    pub min_cpu_model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkConfiguration>,
    #[serde(
        rename = "obsoleteCPUModels",
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "null_as_empty"
    )]
    pub obsolete_cpu_models: BTreeMap<String, bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ovmf_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permitted_host_devices: Option<PermittedHostDevices>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_reservation_configuration: Option<PersistentReservationConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_aggregation_strategy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp_configuration: Option<SeccompConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selinux_launcher_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smbios: Option<SMBiosConfiguration>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub support_container_resources: Vec<SupportContainerResources>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub supported_guest_agent_versions: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_configuration: Option<TLSConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_template_deployment: Option<VirtTemplateDeployment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_instances_per_node: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_options: Option<VirtualMachineOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_rollout_strategy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_state_storage_class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_configuration: Option<ReloadableComponentConfiguration>,
}

/// Settings that a component takes over without a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ReloadableComponentConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest_client: Option<RESTClientConfiguration>,
}

/// How a component talks to the API server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RESTClientConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limiter: Option<RateLimiter>,
}

/// Which limiter holds back API requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RateLimiter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_bucket_rate_limiter: Option<TokenBucketRateLimiter>,
}

/// A limiter with a steady rate and a burst.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TokenBucketRateLimiter {
    pub burst: i64,
    pub qps: f64,
}

/// Settings per CPU architecture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ArchConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amd64: Option<ArchSpecificConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arm64: Option<ArchSpecificConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_architecture: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ppc64le: Option<ArchSpecificConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s390x: Option<ArchSpecificConfiguration>,
}

/// Settings of one CPU architecture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ArchSpecificConfiguration {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub emulated_machines: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ovmf_path: Option<String>,
}

/// For which virtual machines changed blocks are tracked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ChangedBlockTrackingSelectors {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_label_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_label_selector: Option<LabelSelector>,
}

/// Whether the common instance types are installed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CommonInstancetypesDeployment {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// Cluster-wide settings of confidential computing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ConfidentialComputeConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tdx: Option<TDXConfiguration>,
}

/// Settings of Intel's trust domains.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TDXConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attestation: Option<TDXAttestationConfiguration>,
}

/// How trust domains are attested.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TDXAttestationConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforced: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qgs_socket_path: Option<String>,
}

/// Settings for development, feature gates and overcommitment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeveloperConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_profiler: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_allocation_ratio: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub disabled_feature_gates: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_verification: Option<DiskVerification>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub feature_gates: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_verbosity: Option<LogVerbosity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_overcommit: Option<i64>,
    #[serde(rename = "minimumClusterTSCFrequency", skip_serializing_if = "Option::is_none")]
    pub minimum_cluster_tsc_frequency: Option<i64>,
    #[serde(rename = "minimumReservePVCBytes", skip_serializing_if = "Option::is_none")]
    pub minimum_reserve_pvc_bytes: Option<u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub node_selectors: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc_tolerate_less_space_up_to_percent: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_emulation: Option<bool>,
}

/// Limits of the check a container disk's image passes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DiskVerification {
    pub memory_limit: Quantity,
}

/// How much each component logs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LogVerbosity {
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub node_verbosity: BTreeMap<String, u64>,
    #[serde(rename = "virtAPI", skip_serializing_if = "Option::is_none")]
    pub virt_api: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_controller: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_handler: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_launcher: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_operator: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_synchronization_controller: Option<u64>,
}

/// A hypervisor the cluster may use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HypervisorConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// How virtual machines refer to instance types.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstancetypeConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference_policy: Option<String>,
}

/// On which nodes the kernel merges equal pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KSMConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_label_selector: Option<LabelSelector>,
}

/// How far running instances may grow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LiveUpdateConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpu_sockets: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_guest: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hotplug_ratio: Option<u32>,
}

/// Which mediated devices the nodes create.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MediatedDevicesConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub mediated_device_types: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub mediated_devices_types: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub node_mediated_device_types: Vec<NodeMediatedDeviceTypesConfig>,
}

/// Which mediated devices the selected nodes create.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeMediatedDeviceTypesConfig {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub mediated_device_types: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub mediated_devices_types: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub node_selector: BTreeMap<String, String>,
}

/// Cluster-wide network settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NetworkConfiguration {
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub binding: BTreeMap<String, InterfaceBindingPlugin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_network_interface: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permit_bridge_interface_on_pod_network: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permit_slirp_interface: Option<bool>,
}

/// A registered network binding plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InterfaceBindingPlugin {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_resource_overhead: Option<ResourceRequirementsWithoutClaims>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_attachment_type: Option<String>,
    #[serde(rename = "downwardAPI", skip_serializing_if = "Option::is_none")]
    pub downward_api: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<InterfaceBindingMigration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_attachment_definition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sidecar_image: Option<String>,
}

/// Compute resources of a component.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceRequirementsWithoutClaims {
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub limits: BTreeMap<String, Quantity>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub requests: BTreeMap<String, Quantity>,
}

/// Whether and how a binding plugin survives a migration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InterfaceBindingMigration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
}

/// Devices of the nodes that guests may get.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PermittedHostDevices {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub mediated_devices: Vec<MediatedHostDevice>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub pci_host_devices: Vec<PciHostDevice>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub usb: Vec<USBHostDevice>,
}

/// A permitted mediated device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MediatedHostDevice {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_resource_provider: Option<bool>,
    pub mdev_name_selector: String,
    pub resource_name: String,
}

/// A permitted PCI device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PciHostDevice {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_resource_provider: Option<bool>,
    pub pci_vendor_selector: String,
    pub resource_name: String,
}

/// A permitted set of USB devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct USBHostDevice {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_resource_provider: Option<bool>,
    pub resource_name: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub selectors: Vec<USBSelector>,
}

/// A USB device by vendor and product.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct USBSelector {
    pub product: String,
    pub vendor: String,
}

/// Whether SCSI persistent reservations may be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PersistentReservationConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// Which system calls launchers may make.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SeccompConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_instance_profile: Option<VirtualMachineInstanceProfile>,
}

/// The seccomp profile of launchers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineInstanceProfile {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_profile: Option<CustomProfile>,
}

/// A seccomp profile by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CustomProfile {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub localhost_profile: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_default_profile: Option<bool>,
}

/// What guests read about their system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SMBiosConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manufacturer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Compute resources of one kind of helper container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SupportContainerResources {
    pub resources: ResourceRequirementsWithoutClaims,
    #[serde(rename = "type")]
    pub type_: String,
}

/// TLS versions and ciphers of the components.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TLSConfiguration {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub ciphers: Vec<String>,
    #[serde(rename = "minTLSVersion", skip_serializing_if = "Option::is_none")]
    pub min_tls_version: Option<String>,
}

/// Whether the template component is installed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtTemplateDeployment {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// Cluster-wide choices about every virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachineOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_free_page_reporting: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_serial_console_log: Option<Empty>,
}
