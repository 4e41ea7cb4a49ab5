//! The input of the conversion besides the VMI.

use std::collections::BTreeMap;

use api::v1::{SMBiosConfiguration, VirtualMachineInstance};

use crate::paths::Paths;

/// Facts about host, cluster and prepared devices, as plain values.
#[derive(Debug, Clone, PartialEq)]
pub struct HostFacts {
    /// KVM can run a vCPU here.
    pub kvm_usable: bool,
    /// Without KVM the guest may run under TCG.
    pub allow_emulation: bool,
    pub smbios: SMBiosConfiguration,
    /// Seconds between two balloon statistics reports; 0 disables them.
    pub mem_balloon_stats_period: u32,
    pub serial_console_log_disabled: bool,
    pub free_page_reporting_disabled: bool,
    pub paths: Paths,
    /// By volume name.
    pub disks: BTreeMap<String, DiskFacts>,
    pub interfaces: Vec<InterfaceFacts>,
}

/// Properties of the files behind a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskFacts {
    /// The file system supports `O_DIRECT`, so the host's page cache can be bypassed.
    pub direct_io: bool,
    /// The backing image of a container disk's overlay.
    pub backing: Option<BackingImage>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackingImage {
    pub path: String,
    pub format: ImageFormat,
}

/// The supported disk image formats. Others are rejected when the image is inspected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFormat {
    Raw,
    Qcow2,
}

impl ImageFormat {
    pub fn as_str(self) -> &'static str {
        match self {
            ImageFormat::Raw => "raw",
            ImageFormat::Qcow2 => "qcow2",
        }
    }
}

/// The host's end of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceFacts {
    /// The interface's name in the VMI.
    pub name: String,
    pub tap: String,
    pub mac: String,
    pub mtu: u32,
}

impl HostFacts {
    /// Plausible facts for `vmi`, to render a domain without a host.
    pub fn example(vmi: &VirtualMachineInstance) -> HostFacts {
        let paths = Paths::default();
        let disks = vmi.spec.volumes.iter().enumerate().map(|(index, volume)| {
            let backing = volume.source().container_disk().map(|source| {
                let file = source.path.as_deref().unwrap_or("/disk/disk.img");
                BackingImage { path: format!("{}{file}", paths.image_volume(index)), format: ImageFormat::Qcow2 }
            });
            (volume.name.clone(), DiskFacts { direct_io: true, backing })
        });
        let interfaces = vmi.spec.domain.devices.interfaces.iter().enumerate().map(|(index, interface)| {
            let mac = interface.mac_address.clone().unwrap_or_else(|| format!("02:00:00:00:01:{index:02x}"));
            InterfaceFacts { name: interface.name.clone(), tap: format!("tap{index}"), mac, mtu: 1450 }
        });
        HostFacts {
            kvm_usable: true,
            allow_emulation: true,
            smbios: SMBiosConfiguration {
                family: Some("KubeVirt".into()),
                manufacturer: Some("KubeVirt".into()),
                product: Some("None".into()),
                ..Default::default()
            },
            mem_balloon_stats_period: 10,
            serial_console_log_disabled: true,
            free_page_reporting_disabled: false,
            disks: disks.collect(),
            interfaces: interfaces.collect(),
            paths,
        }
    }
}
