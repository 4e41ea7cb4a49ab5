//! The effective cluster configuration: built-in defaults, overlaid by the KubeVirt object.

mod defaults;
mod in_force;

pub use defaults::stall_detector;
pub use in_force::in_force;

use std::borrow::Borrow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::gates;
use crate::v1::{
    ArchSpecificConfiguration, DeveloperConfiguration, InterfaceBindingPlugin, KubeVirt, KubeVirtConfiguration,
    LiveUpdateConfiguration, MigrationConfiguration, NetworkConfiguration, PciHostDevice, PermittedHostDevices,
    ResourceRequirementsWithoutClaims, SMBiosConfiguration,
};

/// The default namespace of the installation.
pub const DEFAULT_INSTALL_NAMESPACE: &str = "kubevirt";

/// The cluster's configuration, complete with defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterConfig {
    /// Defaults overlaid by the KubeVirt object's `spec.configuration`.
    pub configuration: KubeVirtConfiguration,
    /// The default architecture of instances.
    pub default_architecture: String,
    /// The image of launcher Pods.
    pub launcher_image: String,
    /// The namespace the components run in.
    pub install_namespace: String,
    /// Annotations of the KubeVirt object, some of which are switches.
    pub annotations: BTreeMap<String, String>,
}

/// An invalid configuration; the last valid one stays in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// An invalid value of a field.
    #[error("{field} is {value:?}: {remedy}")]
    Invalid { field: &'static str, value: String, remedy: &'static str },
    /// The overlay cannot be decoded, which is only possible for a stored object if the schema was bypassed.
    #[error("spec.configuration does not decode: {0}")]
    Undecodable(String),
}

impl Default for ClusterConfig {
    fn default() -> Self {
        ClusterConfig {
            configuration: defaults::configuration(),
            default_architecture: "amd64".to_owned(),
            launcher_image: concat!("ferrovirt/virt-launcher:v", env!("CARGO_PKG_VERSION")).to_owned(),
            install_namespace: DEFAULT_INSTALL_NAMESPACE.to_owned(),
            annotations: BTreeMap::new(),
        }
    }
}

impl ClusterConfig {
    /// The configuration of a cluster with these KubeVirt objects: `self`, overlaid by the one [`in_force`].
    pub fn effective<K: Borrow<KubeVirt>>(
        &self,
        objects: impl IntoIterator<Item = K>,
        namespace: Option<&str>,
    ) -> Result<Self, ConfigError> {
        in_force(objects, namespace).map_or_else(|| Ok(self.clone()), |object| self.overlaid(object.borrow()))
    }

    /// The defaults overlaid by one KubeVirt object. The caller sets the launcher's image.
    pub fn from_kubevirt(kubevirt: &KubeVirt) -> Result<Self, ConfigError> {
        Self::default().overlaid(kubevirt)
    }

    /// This configuration, overlaid by one KubeVirt object. The launcher's image stays.
    fn overlaid(&self, kubevirt: &KubeVirt) -> Result<Self, ConfigError> {
        let undecodable = |e: serde_json::Error| ConfigError::Undecodable(e.to_string());
        let mut config = self.clone();
        if let Some(overlay) = &kubevirt.spec.configuration {
            let mut merged = serde_json::to_value(&config.configuration).map_err(undecodable)?;
            let overlay = serde_json::to_value(overlay).map_err(undecodable)?;
            machinery::patch::merge(&mut merged, &overlay);
            config.configuration = serde_json::from_value(merged).map_err(undecodable)?;
        }
        if let Some(arch) = kubevirt.status.as_ref().and_then(|status| status.default_architecture.as_deref()) {
            config.default_architecture = arch.to_owned();
        }
        if let Some(namespace) = &kubevirt.metadata.namespace {
            config.install_namespace = namespace.clone();
        }
        config.annotations = kubevirt.metadata.annotations.clone().unwrap_or_default();
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let refuse =
            |field, value: &dyn ToString, remedy| Err(ConfigError::Invalid { field, value: value.to_string(), remedy });
        if !["Always", "IfNotPresent", "Never"].contains(&self.image_pull_policy()) {
            let remedy = "use Always, IfNotPresent or Never";
            return refuse("spec.configuration.imagePullPolicy", &self.image_pull_policy(), remedy);
        }
        if self.memory_overcommit() <= 0 {
            let field = "spec.configuration.developerConfiguration.memoryOvercommit";
            return refuse(field, &self.memory_overcommit(), "use a percentage above 0");
        }
        if self.cpu_allocation_ratio() <= 0 {
            let field = "spec.configuration.developerConfiguration.cpuAllocationRatio";
            return refuse(field, &self.cpu_allocation_ratio(), "use a number above 0");
        }
        if !["bridge", "masquerade", "slirp"].contains(&self.default_network_interface()) {
            let field = "spec.configuration.network.defaultNetworkInterface";
            return refuse(field, &self.default_network_interface(), "use bridge or masquerade");
        }
        let tolerance = self.pvc_tolerate_less_space_up_to_percent();
        if !(0..=100).contains(&tolerance) {
            let field = "spec.configuration.developerConfiguration.pvcTolerateLessSpaceUpToPercent";
            return refuse(field, &tolerance, "use a percentage from 0 to 100");
        }
        if let Some(ratio) = &self.configuration.additional_guest_memory_overhead_ratio
            && !ratio.parse::<f64>().is_ok_and(|ratio| ratio >= 1.0)
        {
            let field = "spec.configuration.additionalGuestMemoryOverheadRatio";
            return refuse(field, ratio, "use a number of at least 1.0");
        }
        self.check_quantities()
    }

    fn check_quantities(&self) -> Result<(), ConfigError> {
        let quantities = [
            ("spec.configuration.cpuRequest", self.configuration.cpu_request.as_ref()),
            ("spec.configuration.liveUpdateConfiguration.maxGuest", self.max_guest_memory()),
            (
                "spec.configuration.developerConfiguration.diskVerification.memoryLimit",
                self.developer().and_then(|d| d.disk_verification.as_ref()).map(|v| &v.memory_limit),
            ),
            (
                "spec.configuration.migrations.bandwidthPerMigration",
                self.configuration.migrations.as_ref().and_then(|m| m.bandwidth_per_migration.as_ref()),
            ),
        ];
        let readable = |quantity: &Quantity| quantity.0.parse::<machinery::quantity::Quantity>().is_ok();
        match quantities.into_iter().find(|(_, quantity)| quantity.is_some_and(|quantity| !readable(quantity))) {
            Some((field, quantity)) => Err(ConfigError::Invalid {
                field,
                value: quantity.map(|quantity| quantity.0.clone()).unwrap_or_default(),
                remedy: "use a number with an optional suffix, such as 500m or 2Gi",
            }),
            None => Ok(()),
        }
    }

    fn developer(&self) -> Option<&DeveloperConfiguration> {
        self.configuration.developer_configuration.as_ref()
    }

    fn network(&self) -> Option<&NetworkConfiguration> {
        self.configuration.network.as_ref()
    }

    fn live_update(&self) -> Option<&LiveUpdateConfiguration> {
        self.configuration.live_update_configuration.as_ref()
    }

    fn architecture(&self, arch: &str) -> Option<&ArchSpecificConfiguration> {
        let all = self.configuration.architecture_configuration.as_ref()?;
        match arch {
            "arm64" => all.arm64.as_ref(),
            "s390x" => all.s390x.as_ref(),
            // Other names are rejected elsewhere; until then they count as the most common one.
            _ => all.amd64.as_ref(),
        }
    }

    /// Whether the feature gate is enabled.
    pub fn feature_gate(&self, name: &str) -> bool {
        match self.developer() {
            Some(developer) => gates::is_enabled(name, &developer.feature_gates, &developer.disabled_feature_gates),
            None => gates::is_enabled(name, &[], &[]),
        }
    }

    /// The requested feature gates, whether or not they have an effect.
    pub fn requested_gates(&self) -> &[String] {
        self.developer().map(|d| d.feature_gates.as_slice()).unwrap_or_default()
    }

    /// Whether guests may run without hardware virtualization.
    pub fn use_emulation(&self) -> bool {
        self.developer().and_then(|d| d.use_emulation).unwrap_or(false)
    }

    /// The ratio of guest memory to requested memory, in percent.
    pub fn memory_overcommit(&self) -> i64 {
        self.developer().and_then(|d| d.memory_overcommit).unwrap_or(100)
    }

    /// The number of vCPUs per requested CPU.
    pub fn cpu_allocation_ratio(&self) -> i64 {
        self.developer().and_then(|d| d.cpu_allocation_ratio).unwrap_or(10)
    }

    /// By how much a claim's file system may be smaller than requested.
    pub fn pvc_tolerate_less_space_up_to_percent(&self) -> i64 {
        self.developer().and_then(|d| d.pvc_tolerate_less_space_up_to_percent).unwrap_or(10)
    }

    /// Labels a node must have for launcher Pods, besides those of the instance.
    pub fn node_selectors(&self) -> BTreeMap<String, String> {
        self.developer().map(|d| d.node_selectors.clone()).unwrap_or_default()
    }

    /// The memory limit for verifying a container disk's image.
    pub fn disk_verification_memory_limit(&self) -> Quantity {
        let limit = self.developer().and_then(|d| d.disk_verification.as_ref());
        limit.map_or_else(|| Quantity("2000Mi".to_owned()), |v| v.memory_limit.clone())
    }

    /// The log verbosity of launchers.
    pub fn launcher_log_verbosity(&self) -> u64 {
        self.developer().and_then(|d| d.log_verbosity.as_ref()?.virt_launcher).unwrap_or(2)
    }

    /// The binding of the default interface.
    pub fn default_network_interface(&self) -> &str {
        self.network().and_then(|n| n.default_network_interface.as_deref()).unwrap_or("bridge")
    }

    /// Whether the bridge binding is permitted on the Pod network.
    pub fn permit_bridge_on_pod_network(&self) -> bool {
        self.network().and_then(|n| n.permit_bridge_interface_on_pod_network).unwrap_or(true)
    }

    /// The image pull policy of launcher Pods.
    pub fn image_pull_policy(&self) -> &str {
        self.configuration.image_pull_policy.as_deref().filter(|p| !p.is_empty()).unwrap_or("IfNotPresent")
    }

    /// The default eviction strategy of instances.
    pub fn eviction_strategy(&self) -> &str {
        self.configuration.eviction_strategy.as_deref().unwrap_or("None")
    }

    /// Whether serial consoles are not logged by default.
    pub fn serial_console_log_disabled(&self) -> bool {
        self.configuration.virtual_machine_options.as_ref().is_some_and(|o| o.disable_serial_console_log.is_some())
    }

    /// Whether free page reporting is disabled.
    pub fn free_page_reporting_disabled(&self) -> bool {
        self.configuration.virtual_machine_options.as_ref().is_some_and(|o| o.disable_free_page_reporting.is_some())
    }

    /// The default architecture of instances.
    pub fn default_architecture(&self) -> &str {
        &self.default_architecture
    }

    /// The default machine type of instances of this architecture.
    ///
    /// The deprecated field outside `architectureConfiguration` wins for every architecture, as do those of the next
    /// two.
    pub fn machine_type(&self, arch: &str) -> &str {
        let general = self.configuration.machine_type.as_deref().filter(|machine| !machine.is_empty());
        general.or_else(|| self.architecture(arch)?.machine_type.as_deref()).unwrap_or_default()
    }

    /// Patterns of the machine types that are permitted for this architecture.
    pub fn emulated_machines(&self, arch: &str) -> Vec<String> {
        match self.configuration.emulated_machines.as_slice() {
            [] => self.architecture(arch).map(|a| a.emulated_machines.clone()).unwrap_or_default(),
            general => general.to_vec(),
        }
    }

    /// The path of the EFI firmware for this architecture inside the launcher.
    pub fn ovmf_path(&self, arch: &str) -> &str {
        let general = self.configuration.ovmf_path.as_deref().filter(|path| !path.is_empty());
        general.or_else(|| self.architecture(arch)?.ovmf_path.as_deref()).unwrap_or_default()
    }

    /// The default CPU model of instances.
    pub fn cpu_model(&self) -> &str {
        self.configuration.cpu_model.as_deref().filter(|m| !m.is_empty()).unwrap_or("host-model")
    }

    /// The default CPU request of launcher Pods.
    pub fn cpu_request(&self) -> Quantity {
        self.configuration.cpu_request.clone().unwrap_or_else(|| Quantity("100m".to_owned()))
    }

    /// How changes to a running virtual machine's template are applied to its instance: `LiveUpdate` or `Stage`.
    pub fn vm_rollout_strategy(&self) -> &str {
        self.configuration.vm_rollout_strategy.as_deref().unwrap_or("LiveUpdate")
    }

    /// Whether changes to a virtual machine's template are applied to its running instance.
    pub fn is_live_update(&self) -> bool {
        self.vm_rollout_strategy() == "LiveUpdate"
    }

    /// The ratio of an instance's maximum size to its initial size.
    pub fn max_hotplug_ratio(&self) -> u32 {
        self.live_update().and_then(|l| l.max_hotplug_ratio).filter(|&ratio| ratio > 0).unwrap_or(4)
    }

    /// The maximum number of sockets of an instance, if configured.
    pub fn max_cpu_sockets(&self) -> Option<u32> {
        self.live_update().and_then(|l| l.max_cpu_sockets)
    }

    /// The maximum memory of an instance, if configured.
    pub fn max_guest_memory(&self) -> Option<&Quantity> {
        self.live_update().and_then(|l| l.max_guest.as_ref())
    }

    /// PCI devices of nodes that guests may request.
    pub fn permitted_pci_devices(&self) -> &[PciHostDevice] {
        self.configuration.permitted_host_devices.as_ref().map(|p| p.pci_host_devices.as_slice()).unwrap_or_default()
    }

    /// The socket of the quote generation service (TDX attestation) on nodes.
    pub fn qgs_socket_path(&self) -> &str {
        let computing = self.configuration.confidential_compute.as_ref();
        let attestation = computing.and_then(|computing| computing.tdx.as_ref()?.attestation.as_ref());
        let path = attestation.and_then(|attestation| attestation.qgs_socket_path.as_deref());
        path.filter(|path| !path.is_empty()).unwrap_or("/var/run/tdx-qgs/qgs.socket")
    }

    /// The factor on the computed memory overhead of launcher Pods, if one is configured.
    pub fn additional_guest_memory_overhead_ratio(&self) -> Option<f64> {
        self.configuration.additional_guest_memory_overhead_ratio.as_ref()?.parse().ok()
    }

    /// The runtime class of launcher Pods.
    pub fn default_runtime_class(&self) -> Option<&str> {
        self.configuration.default_runtime_class.as_deref().filter(|class| !class.is_empty())
    }

    /// The SELinux type of launcher Pods.
    pub fn selinux_launcher_type(&self) -> Option<&str> {
        self.configuration.selinux_launcher_type.as_deref().filter(|label| !label.is_empty())
    }

    /// SMBIOS information for guests.
    pub fn smbios(&self) -> SMBiosConfiguration {
        self.configuration.smbios.clone().unwrap_or_default()
    }

    /// Seconds between balloon statistics; 0 disables them.
    pub fn mem_balloon_stats_period(&self) -> u32 {
        self.configuration.mem_balloon_stats_period.unwrap_or(10)
    }

    /// Limits and options of live migration.
    ///
    /// Allowing post-copy means accepting that the workload may be disrupted, unless configured otherwise.
    pub fn migrations(&self) -> MigrationConfiguration {
        let mut migrations = self.configuration.migrations.clone().unwrap_or_default();
        let post_copy = migrations.allow_post_copy.unwrap_or(false);
        migrations.allow_workload_disruption.get_or_insert(post_copy);
        migrations.match_selinux_level_on_migration.get_or_insert(true);
        migrations
    }

    /// Devices of nodes that guests may request. Without such a list none are permitted.
    pub fn permitted_host_devices(&self) -> Option<&PermittedHostDevices> {
        self.configuration.permitted_host_devices.as_ref()
    }

    /// Whether guests may use SCSI persistent reservations.
    pub fn persistent_reservation(&self) -> bool {
        self.configuration.persistent_reservation_configuration.as_ref().is_some_and(|p| p.enabled == Some(true))
    }

    /// Whether TDX guests must be capable of attestation.
    pub fn tdx_attestation_enforced(&self) -> bool {
        let computing = self.configuration.confidential_compute.as_ref();
        let attestation = computing.and_then(|computing| computing.tdx.as_ref()?.attestation.as_ref());
        attestation.is_some_and(|attestation| attestation.enforced == Some(true))
    }

    /// Bytes of a file system that stay free when a disk image is created on it.
    pub fn minimum_reserve_pvc_bytes(&self) -> i64 {
        let bytes = self.developer().and_then(|d| d.minimum_reserve_pvc_bytes);
        bytes.and_then(|bytes| bytes.try_into().ok()).unwrap_or(131_072)
    }

    /// The TSC frequency in Hz that every node is assumed to offer, if configured.
    pub fn minimum_cluster_tsc_frequency(&self) -> Option<i64> {
        self.developer().and_then(|d| d.minimum_cluster_tsc_frequency)
    }

    /// Patterns of supported guest agent versions.
    pub fn supported_guest_agent_versions(&self) -> &[String] {
        &self.configuration.supported_guest_agent_versions
    }

    /// CPU models that are not offered to guests.
    pub fn obsolete_cpu_models(&self) -> impl Iterator<Item = &str> {
        let models = &self.configuration.obsolete_cpu_models;
        models.iter().filter(|(_, obsolete)| **obsolete).map(|(model, _)| model.as_str())
    }

    /// Network binding plugins by name.
    pub fn network_bindings(&self) -> impl Iterator<Item = (&str, &InterfaceBindingPlugin)> {
        let bindings = self.network().map(|network| &network.binding);
        bindings.into_iter().flatten().map(|(name, plugin)| (name.as_str(), plugin))
    }

    /// Requests and limits of a kind of auxiliary container, if configured.
    pub fn support_container_resources(&self, container: &str) -> Option<&ResourceRequirementsWithoutClaims> {
        let all = self.configuration.support_container_resources.iter();
        all.filter(|entry| entry.type_ == container).map(|entry| &entry.resources).next()
    }

    /// How the VM controller handles an instance type: a pinned `reference`, or the expanded spec.
    pub fn instancetype_reference_policy(&self) -> &str {
        let policy = self.configuration.instancetype.as_ref().and_then(|i| i.reference_policy.as_deref());
        policy.unwrap_or("reference")
    }

    /// The storage class for guests' persistent state, if configured.
    pub fn vm_state_storage_class(&self) -> Option<&str> {
        self.configuration.vm_state_storage_class.as_deref().filter(|class| !class.is_empty())
    }

    /// The hypervisor, which can only be configured with a feature gate.
    pub fn hypervisor(&self) -> &str {
        let chosen = self.configuration.hypervisors.first().and_then(|hypervisor| hypervisor.name.as_deref());
        chosen.filter(|_| self.feature_gate("ConfigurableHypervisor")).unwrap_or("kvm")
    }
}
