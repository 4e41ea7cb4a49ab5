//! The input of the conversion besides the VMI.

use std::collections::BTreeMap;

use api::v1::{SMBiosConfiguration, VirtualMachineInstance, VolumeSource};

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
    /// The device names that disks of the running guest have, by the disks' names.
    pub targets: BTreeMap<String, String>,
    pub interfaces: Vec<InterfaceFacts>,
}

/// Properties of the files behind a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskFacts {
    /// The file system supports `O_DIRECT`, so the host's page cache can be bypassed.
    pub direct_io: bool,
    /// The image under the overlay of a container disk or of an ephemeral disk.
    pub backing: Option<BackingImage>,
    /// Where the data is that outlives the guest: of claims and host disks.
    pub storage: Option<Storage>,
}

/// Data that outlives the guest. It is raw, whatever it looks like: a guest could write any header to its disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    pub location: Location,
    /// It cannot be written to.
    pub readonly: bool,
    /// All its space is allocated, and is to stay so.
    pub preallocated: bool,
    /// No write has to allocate space.
    pub allocated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    File(String),
    /// A block device.
    Device(String),
}

impl Location {
    pub fn path(&self) -> &str {
        match self {
            Location::File(path) | Location::Device(path) => path,
        }
    }

    /// libvirt's word for it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Location::File(_) => "file",
            Location::Device(_) => "block",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackingImage {
    pub location: Location,
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
            let image = volume.source().container_disk().map(|source| {
                let file = source.path.as_deref().unwrap_or("/disk/disk.img");
                let location = Location::File(format!("{}{file}", paths.image_volume(index)));
                BackingImage { location, format: ImageFormat::Qcow2 }
            });
            let location = paths.lasting(vmi, volume);
            let is_base = matches!(volume.source(), VolumeSource::Ephemeral(_));
            let base = location.clone().filter(|_| is_base);
            let base = base.map(|location| BackingImage { location, format: ImageFormat::Raw });
            let storage = location.filter(|_| !is_base).map(|location| Storage {
                readonly: false,
                preallocated: false,
                allocated: matches!(location, Location::Device(_)),
                location,
            });
            (volume.name.clone(), DiskFacts { direct_io: true, backing: image.or(base), storage })
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
            targets: BTreeMap::new(),
            interfaces: interfaces.collect(),
            paths,
        }
    }
}
