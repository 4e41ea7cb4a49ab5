//! libvirt's domain XML: one type per element, named after it, with fields in libvirt's order.
//!
//! Only what the conversion produces is defined. Attributes start with `@`, as quick-xml requires.

use serde::Serialize;

use crate::error::Error;
use crate::facts::Location;

/// The channel on which the QEMU guest agent listens.
pub(crate) const GUEST_AGENT_CHANNEL: &str = "org.qemu.guest_agent.0";

/// An element without content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Empty {}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename = "domain")]
pub struct Domain {
    #[serde(rename = "@type")]
    pub type_: &'static str,
    pub name: String,
    pub uuid: String,
    pub memory: Bytes,
    pub vcpu: Vcpu,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<Vcpus>,
    pub sysinfo: Sysinfo,
    pub os: Os,
    pub features: Features,
    pub cpu: Cpu,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    pub on_poweroff: &'static str,
    pub on_reboot: &'static str,
    pub on_crash: &'static str,
    pub devices: Devices,
    #[serde(rename = "qemu:commandline", skip_serializing_if = "Option::is_none")]
    pub commandline: Option<Commandline>,
}

impl Domain {
    /// The document, indented. Characters that XML cannot represent are an error: libvirt would only report the
    /// position, not the field they came from.
    pub fn to_xml(&self) -> Result<String, Error> {
        document(self)
    }
}

pub(crate) fn document(element: &impl Serialize) -> Result<String, Error> {
    let mut out = String::new();
    let mut serializer = quick_xml::se::Serializer::new(&mut out);
    serializer.indent(' ', 2);
    element.serialize(serializer).map_err(|error| Error::Xml(error.to_string()))?;
    let carries = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
    if let Some(bad) = out.chars().find(|&c| !carries(c)) {
        return Err(Error::Xml(format!("it contains the character {bad:?}; remove it from the VMI")));
    }
    out.push('\n');
    Ok(out)
}

/// The XML namespace of QEMU-specific elements.
pub const QEMU_NAMESPACE: &str = "http://libvirt.org/schemas/domain/qemu/1.0";

/// Additional arguments for QEMU's command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Commandline {
    #[serde(rename = "@xmlns:qemu")]
    namespace: &'static str,
    #[serde(rename = "qemu:arg")]
    pub arg: Vec<Argument>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Argument {
    #[serde(rename = "@value")]
    pub value: String,
}

impl Commandline {
    pub fn new(words: impl IntoIterator<Item = String>) -> Commandline {
        let arg = words.into_iter().map(|value| Argument { value }).collect();
        Commandline { namespace: QEMU_NAMESPACE, arg }
    }
}

/// An amount of memory in bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bytes {
    #[serde(rename = "@unit")]
    unit: &'static str,
    #[serde(rename = "$text")]
    pub value: u64,
}

impl From<u64> for Bytes {
    fn from(value: u64) -> Self {
        Bytes { unit: "b", value }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Vcpu {
    #[serde(rename = "@placement")]
    pub placement: &'static str,
    #[serde(rename = "$text")]
    pub count: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Vcpus {
    pub vcpu: Vec<VcpuState>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VcpuState {
    #[serde(rename = "@id")]
    pub id: u32,
    #[serde(rename = "@enabled")]
    pub enabled: &'static str,
    #[serde(rename = "@hotpluggable")]
    pub hotpluggable: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sysinfo {
    #[serde(rename = "@type")]
    pub type_: &'static str,
    pub system: Entries,
    #[serde(skip_serializing_if = "Entries::is_empty")]
    pub chassis: Entries,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Entries {
    pub entry: Vec<Entry>,
}

impl Entries {
    /// Adds the entry unless it has no value: libvirt rejects empty ones.
    pub(crate) fn add(&mut self, name: &'static str, value: Option<&str>) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.entry.push(Entry { name, value: value.to_owned() });
        }
    }

    fn is_empty(&self) -> bool {
        self.entry.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    #[serde(rename = "@name")]
    pub name: &'static str,
    #[serde(rename = "$text")]
    pub value: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Os {
    #[serde(rename = "type")]
    pub type_: OsType,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initrd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cmdline: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootmenu: Option<BootMenu>,
    pub smbios: Mode,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bios: Option<Bios>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OsType {
    #[serde(rename = "@arch")]
    pub arch: &'static str,
    #[serde(rename = "@machine")]
    pub machine: String,
    #[serde(rename = "$text")]
    pub os: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BootMenu {
    #[serde(rename = "@enable")]
    pub enable: &'static str,
    #[serde(rename = "@timeout")]
    pub timeout: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mode {
    #[serde(rename = "@mode")]
    pub mode: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bios {
    #[serde(rename = "@useserial")]
    pub useserial: &'static str,
}

/// A feature with an attribute `state`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OnOff {
    #[serde(rename = "@state")]
    pub state: &'static str,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Features {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acpi: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apic: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smm: Option<OnOff>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vmport: Option<OnOff>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cpu {
    #[serde(rename = "@mode")]
    pub mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    pub topology: Topology,
    pub feature: Vec<CpuFeature>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Topology {
    #[serde(rename = "@sockets")]
    pub sockets: u32,
    #[serde(rename = "@cores")]
    pub cores: u32,
    #[serde(rename = "@threads")]
    pub threads: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CpuFeature {
    #[serde(rename = "@policy")]
    pub policy: String,
    #[serde(rename = "@name")]
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Clock {
    #[serde(rename = "@offset")]
    pub offset: &'static str,
    #[serde(rename = "@adjustment", skip_serializing_if = "Option::is_none")]
    pub adjustment: Option<String>,
    #[serde(rename = "@timezone", skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    pub timer: Vec<Timer>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Timer {
    #[serde(rename = "@name")]
    pub name: &'static str,
    #[serde(rename = "@track", skip_serializing_if = "Option::is_none")]
    pub track: Option<String>,
    #[serde(rename = "@tickpolicy", skip_serializing_if = "Option::is_none")]
    pub tickpolicy: Option<String>,
    #[serde(rename = "@present")]
    pub present: &'static str,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Devices {
    pub disk: Vec<Disk>,
    pub controller: Vec<Controller>,
    pub interface: Vec<Interface>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<Serial>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console: Option<Console>,
    pub channel: Vec<Channel>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graphics: Option<Graphics>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub video: Option<Video>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memballoon: Option<MemBalloon>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rng: Option<Rng>,
    pub panic: Vec<Panic>,
}

/// The device through which the guest's kernel reports a panic.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Panic {
    #[serde(rename = "@model")]
    pub model: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename = "disk")]
pub struct Disk {
    #[serde(rename = "@type")]
    pub type_: &'static str,
    #[serde(rename = "@device")]
    pub device: &'static str,
    #[serde(rename = "@model", skip_serializing_if = "Option::is_none")]
    pub model: Option<&'static str>,
    pub driver: DiskDriver,
    /// `None` for a drive without a medium.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<DiskSource>,
    #[serde(rename = "backingStore", skip_serializing_if = "Option::is_none")]
    pub backing_store: Option<BackingStore>,
    pub target: DiskTarget,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readonly: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shareable: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot: Option<Boot>,
    pub alias: Alias,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<DriveAddress>,
}

impl Disk {
    /// The element alone, to plug it into a running domain.
    pub fn to_xml(&self) -> Result<String, Error> {
        document(self)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiskDriver {
    #[serde(rename = "@name")]
    pub name: &'static str,
    #[serde(rename = "@type")]
    pub type_: &'static str,
    #[serde(rename = "@cache")]
    pub cache: String,
    #[serde(rename = "@error_policy")]
    pub error_policy: String,
    #[serde(rename = "@io", skip_serializing_if = "Option::is_none")]
    pub io: Option<String>,
    #[serde(rename = "@discard", skip_serializing_if = "Option::is_none")]
    pub discard: Option<&'static str>,
}

/// A file or a block device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiskSource {
    #[serde(rename = "@file", skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(rename = "@dev", skip_serializing_if = "Option::is_none")]
    pub dev: Option<String>,
}

impl From<&Location> for DiskSource {
    fn from(location: &Location) -> Self {
        match location {
            Location::File(path) => DiskSource { file: Some(path.clone()), dev: None },
            Location::Device(path) => DiskSource { file: None, dev: Some(path.clone()) },
        }
    }
}

/// The backing image. An empty element ends the chain: libvirt then trusts it instead of the image's header.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct BackingStore {
    #[serde(rename = "@type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<DiskSource>,
    #[serde(rename = "backingStore", skip_serializing_if = "Option::is_none")]
    pub backing_store: Option<Empty>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Format {
    #[serde(rename = "@type")]
    pub type_: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiskTarget {
    #[serde(rename = "@dev")]
    pub dev: String,
    #[serde(rename = "@bus")]
    pub bus: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Boot {
    #[serde(rename = "@order")]
    pub order: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alias {
    #[serde(rename = "@name")]
    pub name: String,
}

impl Alias {
    /// libvirt keeps aliases that start with `ua-` as they are.
    pub(crate) fn user(name: &str) -> Self {
        Alias { name: format!("ua-{name}") }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DriveAddress {
    #[serde(rename = "@type")]
    pub type_: &'static str,
    #[serde(rename = "@controller")]
    pub controller: u32,
    #[serde(rename = "@bus")]
    pub bus: u32,
    #[serde(rename = "@target")]
    pub target: u32,
    #[serde(rename = "@unit")]
    pub unit: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Controller {
    #[serde(rename = "@type")]
    pub type_: &'static str,
    #[serde(rename = "@index")]
    pub index: u32,
    #[serde(rename = "@model")]
    pub model: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Interface {
    #[serde(rename = "@type")]
    pub type_: &'static str,
    pub mac: Mac,
    pub target: InterfaceTarget,
    pub model: Model,
    pub mtu: Mtu,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<OnOff>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot: Option<Boot>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rom: Option<Rom>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acpi: Option<AcpiIndex>,
    pub alias: Alias,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mac {
    #[serde(rename = "@address")]
    pub address: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InterfaceTarget {
    #[serde(rename = "@dev")]
    pub dev: String,
    /// `no`: the tap already exists and stays when the domain is destroyed.
    #[serde(rename = "@managed")]
    pub managed: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Model {
    #[serde(rename = "@type")]
    pub type_: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mtu {
    #[serde(rename = "@size")]
    pub size: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rom {
    #[serde(rename = "@enabled")]
    pub enabled: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AcpiIndex {
    #[serde(rename = "@index")]
    pub index: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Serial {
    #[serde(rename = "@type")]
    pub type_: &'static str,
    pub source: SocketSource,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<Log>,
    pub target: SerialTarget,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SocketSource {
    #[serde(rename = "@mode")]
    pub mode: &'static str,
    #[serde(rename = "@path")]
    pub path: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Log {
    #[serde(rename = "@file")]
    pub file: String,
    #[serde(rename = "@append")]
    pub append: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SerialTarget {
    #[serde(rename = "@port")]
    pub port: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Console {
    #[serde(rename = "@type")]
    pub type_: &'static str,
    pub source: SocketSource,
    pub target: ConsoleTarget,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConsoleTarget {
    #[serde(rename = "@type")]
    pub type_: &'static str,
    #[serde(rename = "@port")]
    pub port: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Channel {
    #[serde(rename = "@type")]
    pub type_: &'static str,
    pub target: ChannelTarget,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChannelTarget {
    #[serde(rename = "@type")]
    pub type_: &'static str,
    #[serde(rename = "@name")]
    pub name: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Graphics {
    #[serde(rename = "@type")]
    pub type_: &'static str,
    pub listen: Listen,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Listen {
    #[serde(rename = "@type")]
    pub type_: &'static str,
    #[serde(rename = "@socket")]
    pub socket: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Video {
    pub model: VideoModel,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VideoModel {
    #[serde(rename = "@type")]
    pub type_: &'static str,
    #[serde(rename = "@vram")]
    pub vram: u32,
    #[serde(rename = "@heads")]
    pub heads: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemBalloon {
    #[serde(rename = "@model")]
    pub model: &'static str,
    #[serde(rename = "@freePageReporting", skip_serializing_if = "Option::is_none")]
    pub free_page_reporting: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<Stats>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stats {
    #[serde(rename = "@period")]
    pub period: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rng {
    #[serde(rename = "@model")]
    pub model: &'static str,
    pub backend: RngBackend,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RngBackend {
    #[serde(rename = "@model")]
    pub model: &'static str,
    #[serde(rename = "$text")]
    pub path: &'static str,
}
