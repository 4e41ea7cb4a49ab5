//! Preferences.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

use crate::kind::{null_as_empty, open_enum, resource};
use crate::v1::{
    BlockSize, CPUFeature, ClockOffsetUTC, EFI, Empty, FeatureAPIC, FeatureHyperv, FeatureKVM, FeatureState,
    LaunchSecurity, TPMDevice, Timer, VGPUOptions,
};

resource! {
    /// What suits a guest, for virtual machines of one namespace.
    VirtualMachinePreference, "instancetype.kubevirt.io" / "v1beta1" / "virtualmachinepreferences",
    spec: VirtualMachinePreferenceSpec
}

resource! {
    /// What suits a guest, for virtual machines of all namespaces.
    VirtualMachineClusterPreference, cluster "instancetype.kubevirt.io" / "v1beta1" / "virtualmachineclusterpreferences",
    spec: VirtualMachinePreferenceSpec
}

/// What suits a guest. A value of the virtual machine's own always wins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualMachinePreferenceSpec {
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_empty")]
    pub annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockPreferences>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CPUPreferences>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<DevicePreferences>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<FeaturePreferences>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<FirmwarePreferences>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachinePreferences>,
    /// The ratio of the topology `spread`; `spreadOptions` supersedes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefer_spread_socket_to_core_ratio: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_architecture: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_launch_security: Option<LaunchSecurity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_subdomain: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_termination_grace_period_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requirements: Option<PreferenceRequirements>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<VolumePreferences>,
}

/// Preferred clock and timers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClockPreferences {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_clock_offset: Option<ClockOffset>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_timer: Option<Timer>,
}

/// What the guest's clock starts from; one member is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClockOffset {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utc: Option<ClockOffsetUTC>,
}

/// How an instance type's virtual CPUs are laid out, and features they should have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CPUPreferences {
    #[serde(
        rename = "preferredCPUFeatures",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_as_empty"
    )]
    pub preferred_cpu_features: Vec<CPUFeature>,
    #[serde(rename = "preferredCPUTopology", skip_serializing_if = "Option::is_none")]
    pub preferred_cpu_topology: Option<PreferredCPUTopology>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread_options: Option<SpreadOptions>,
}

open_enum! {
    /// How virtual CPUs are laid out. Names that begin with `prefer` are older spellings of the same.
    PreferredCPUTopology {
        /// Each virtual CPU is a socket.
        Sockets = "sockets",
        /// All virtual CPUs are cores of one socket.
        Cores = "cores",
        /// All virtual CPUs are threads of one core.
        Threads = "threads",
        /// Virtual CPUs are divided among sockets, cores and threads.
        Spread = "spread",
        /// The virtual machine may choose; sockets if it does not.
        Any = "any",
        /// Like `sockets`.
        PreferSockets = "preferSockets",
        /// Like `cores`.
        PreferCores = "preferCores",
        /// Like `threads`.
        PreferThreads = "preferThreads",
        /// Like `spread`.
        PreferSpread = "preferSpread",
        /// Like `any`.
        PreferAny = "preferAny",
    }
}

impl PreferredCPUTopology {
    /// The same topology under its present name.
    pub fn canonical(self) -> Self {
        match self {
            Self::PreferSockets => Self::Sockets,
            Self::PreferCores => Self::Cores,
            Self::PreferThreads => Self::Threads,
            Self::PreferSpread => Self::Spread,
            Self::PreferAny => Self::Any,
            present => present,
        }
    }
}

/// How the topology `spread` divides virtual CPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SpreadOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub across: Option<SpreadAcross>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<u32>,
}

open_enum! {
    /// What the topology `spread` divides virtual CPUs among.
    SpreadAcross {
        /// Sockets, cores and threads.
        SocketsCoresThreads,
        /// Sockets and cores.
        SocketsCores,
        /// Cores and threads.
        CoresThreads,
    }
}

/// Preferred models, buses and options of devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DevicePreferences {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_autoattach_graphics_device: Option<bool>,
    /// Whether to add an input device when the virtual machine has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_autoattach_input_device: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_autoattach_mem_balloon: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_autoattach_pod_interface: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_autoattach_serial_console: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_block_multi_queue: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_cdrom_bus: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_disable_hotplug: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_disk_block_size: Option<BlockSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_disk_bus: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_disk_cache: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_disk_dedicated_io_thread: Option<bool>,
    #[serde(rename = "preferredDiskIO", skip_serializing_if = "Option::is_none")]
    pub preferred_disk_io: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_input_bus: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_input_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_interface_masquerade: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_interface_model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_lun_bus: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_network_interface_multi_queue: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_panic_device_model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_rng: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_sound_model: Option<String>,
    #[serde(rename = "preferredTPM", skip_serializing_if = "Option::is_none")]
    pub preferred_tpm: Option<TPMDevice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_use_virtio_transitional: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_video_type: Option<String>,
    #[serde(rename = "preferredVirtualGPUOptions", skip_serializing_if = "Option::is_none")]
    pub preferred_virtual_gpu_options: Option<VGPUOptions>,
}

/// Preferred features of platform and hypervisor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FeaturePreferences {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_acpi: Option<FeatureState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_apic: Option<FeatureAPIC>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_hyperv: Option<FeatureHyperv>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_kvm: Option<FeatureKVM>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_pvspinlock: Option<FeatureState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_smm: Option<FeatureState>,
}

/// Preferred firmware.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FirmwarePreferences {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_efi: Option<EFI>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_use_bios: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_use_bios_serial: Option<bool>,
    /// Superseded by `preferredEfi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_use_efi: Option<bool>,
    /// Superseded by `preferredEfi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_use_secure_boot: Option<bool>,
}

/// Preferred machine type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachinePreferences {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_machine_type: Option<String>,
}

/// Preferred storage for volumes made with the virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumePreferences {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_storage_class_name: Option<String>,
}

/// The least a guest needs. Virtual machines that offer less are refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PreferenceRequirements {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CPUPreferenceRequirement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryPreferenceRequirement>,
}

/// The least number of virtual CPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CPUPreferenceRequirement {
    pub guest: u32,
}

/// The least amount of memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MemoryPreferenceRequirement {
    pub guest: Quantity,
}
