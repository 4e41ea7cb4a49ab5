//! The parts of a live domain's XML that virt-handler reports.
//!
//! Unknown elements are skipped, so this must never be written back.

use serde::Deserialize;

use crate::error::Error;
use crate::xml::GUEST_AGENT_CHANNEL;

/// A domain as libvirt describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// `kvm` or `qemu`.
    pub type_: String,
    /// The machine type, resolved by libvirt to a versioned one.
    pub machine: String,
    pub acpi: bool,
    pub interfaces: Vec<ObservedInterface>,
    pub disks: Vec<ObservedDisk>,
    /// The guest agent has opened its end of the channel.
    pub agent_connected: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedInterface {
    /// The name in the VMI.
    pub name: String,
    pub mac: String,
    pub tap: String,
    pub queues: u32,
    pub link_up: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedDisk {
    /// The name in the VMI.
    pub name: String,
    pub target: String,
    /// The file or the device behind it.
    pub source: String,
    /// The guest can write to it, so the data exists only in this copy.
    pub writable: bool,
    /// Writes do not stay in a cache of this node.
    pub uncached: bool,
}

impl Observed {
    pub fn parse(xml: &str) -> Result<Observed, Error> {
        let domain: Domain = quick_xml::de::from_str(xml).map_err(|error| Error::Xml(error.to_string()))?;
        let interfaces = domain.devices.interface.into_iter().map(|interface| ObservedInterface {
            name: user_alias(interface.alias),
            mac: interface.mac.map(|mac| mac.address).unwrap_or_default(),
            tap: interface.target.map(|target| target.dev).unwrap_or_default(),
            queues: interface.driver.and_then(|driver| driver.queues).unwrap_or(1),
            link_up: interface.link.is_none_or(|link| link.state != "down"),
        });
        let disks = domain.devices.disk.into_iter().map(|disk| ObservedDisk {
            name: user_alias(disk.alias),
            target: disk.target.map(|target| target.dev).unwrap_or_default(),
            source: disk.source.and_then(|source| source.file.or(source.dev)).unwrap_or_default(),
            writable: disk.device != "cdrom" && disk.readonly.is_none(),
            uncached: disk.driver.is_some_and(|driver| matches!(driver.cache.as_deref(), Some("none" | "directsync"))),
        });
        Ok(Observed {
            type_: domain.type_,
            machine: domain.os.type_.machine,
            acpi: domain.features.is_some_and(|features| features.acpi.is_some()),
            interfaces: interfaces.collect(),
            disks: disks.collect(),
            agent_connected: domain.devices.channel.iter().any(Channel::is_connected_agent),
        })
    }
}

fn user_alias(alias: Option<Alias>) -> String {
    let name = alias.map(|alias| alias.name).unwrap_or_default();
    name.strip_prefix("ua-").map(str::to_owned).unwrap_or(name)
}

#[derive(Deserialize)]
struct Domain {
    #[serde(rename = "@type")]
    type_: String,
    os: Os,
    features: Option<Features>,
    #[serde(default)]
    devices: Devices,
}

#[derive(Deserialize)]
struct Os {
    #[serde(rename = "type")]
    type_: OsType,
}

#[derive(Deserialize)]
struct OsType {
    #[serde(rename = "@machine", default)]
    machine: String,
}

#[derive(Deserialize)]
struct Features {
    acpi: Option<Present>,
}

#[derive(Deserialize)]
struct Present {}

#[derive(Default, Deserialize)]
struct Devices {
    #[serde(default)]
    disk: Vec<Disk>,
    #[serde(default)]
    interface: Vec<Interface>,
    #[serde(default)]
    channel: Vec<Channel>,
}

#[derive(Deserialize)]
struct Channel {
    target: Option<ChannelTarget>,
}

#[derive(Deserialize)]
struct ChannelTarget {
    #[serde(rename = "@name")]
    name: Option<String>,
    #[serde(rename = "@state")]
    state: Option<String>,
}

impl Channel {
    fn is_connected_agent(&self) -> bool {
        self.target.as_ref().is_some_and(|target| {
            target.name.as_deref() == Some(GUEST_AGENT_CHANNEL) && target.state.as_deref() == Some("connected")
        })
    }
}

#[derive(Deserialize)]
struct Disk {
    #[serde(rename = "@device", default)]
    device: String,
    alias: Option<Alias>,
    target: Option<Target>,
    source: Option<DiskSource>,
    driver: Option<DiskDriver>,
    readonly: Option<Present>,
}

#[derive(Deserialize)]
struct DiskDriver {
    #[serde(rename = "@cache")]
    cache: Option<String>,
}

#[derive(Deserialize)]
struct DiskSource {
    #[serde(rename = "@file")]
    file: Option<String>,
    #[serde(rename = "@dev")]
    dev: Option<String>,
}

#[derive(Deserialize)]
struct Interface {
    alias: Option<Alias>,
    mac: Option<Mac>,
    target: Option<Target>,
    driver: Option<Driver>,
    link: Option<Link>,
}

#[derive(Deserialize)]
struct Alias {
    #[serde(rename = "@name")]
    name: String,
}

#[derive(Deserialize)]
struct Mac {
    #[serde(rename = "@address")]
    address: String,
}

#[derive(Deserialize)]
struct Target {
    #[serde(rename = "@dev", default)]
    dev: String,
}

#[derive(Deserialize)]
struct Driver {
    #[serde(rename = "@queues")]
    queues: Option<u32>,
}

#[derive(Deserialize)]
struct Link {
    #[serde(rename = "@state")]
    state: String,
}
