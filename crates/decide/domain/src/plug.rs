//! Which disks of a running domain come, go, or get another medium, so that it has the volumes of its VMI.
//!
//! Only disks of plugged volumes are touched: those in the directory in which virt-handler makes them appear. What the
//! guest was started with stays. Reads libvirt's own text, so that nothing is assumed about what the domain has.

use std::collections::{BTreeMap, BTreeSet};

use api::v1::VirtualMachineInstance;
use serde::{Deserialize, Serialize};

use crate::claims;
use crate::convert::disk;
use crate::error::Error;
use crate::facts::HostFacts;
use crate::xml::{self, Alias, Empty};

/// A change to a running domain, as XML for libvirt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskChange {
    Attach {
        volume: String,
        xml: String,
    },
    Detach {
        volume: String,
        xml: String,
    },
    /// A drive gets another medium, or none.
    Medium {
        volume: String,
        xml: String,
    },
}

impl DiskChange {
    pub fn volume(&self) -> &str {
        match self {
            DiskChange::Attach { volume, .. }
            | DiskChange::Detach { volume, .. }
            | DiskChange::Medium { volume, .. } => volume,
        }
    }
}

/// The changes that make the domain with this XML have the volumes that are there. Disks leave first: their names and
/// addresses are free then. A disk that cannot be converted is an error beside the changes, and does not hold up others.
pub fn disk_changes(
    vmi: &VirtualMachineInstance,
    facts: &HostFacts,
    live: &str,
) -> Result<(Vec<DiskChange>, Vec<Error>), Error> {
    let live: Domain = quick_xml::de::from_str(live).map_err(|error| Error::Xml(error.to_string()))?;
    let live =
        Live { disks: live.devices.disk.into_iter().map(LiveDisk::from).collect(), plugged: &facts.paths.plugged };
    let targets = live.disks.iter().map(|disk| (disk.name.clone(), disk.target.clone()));
    let facts = HostFacts { targets: targets.collect(), ..facts.clone() };
    let mut units: BTreeSet<u32> = live.disks.iter().filter_map(|disk| disk.unit).collect();
    let (mut changes, mut errors) = (Vec::new(), Vec::new());
    let wanted = wanted(vmi, &facts);
    for known in live.disks.iter().filter(|disk| live.is_plugged(disk) && !disk.is_drive()) {
        if !wanted.contains_key(known.name.as_str()) {
            changes.push(DiskChange::Detach { volume: known.name.clone(), xml: known.identified()? });
        }
    }
    for drive in live.disks.iter().filter(|disk| disk.is_drive()) {
        match live.medium(drive, &wanted) {
            Ok(None) => {}
            Ok(Some(xml)) => changes.push(DiskChange::Medium { volume: drive.name.clone(), xml }),
            Err(error) => errors.push(error),
        }
    }
    for volume in wanted.keys().filter(|name| live.disks.iter().all(|disk| disk.name != **name)) {
        match attachment(vmi, &facts, volume, &mut units) {
            Ok(xml) => changes.push(DiskChange::Attach { volume: (*volume).to_owned(), xml }),
            Err(error) => errors.push(error),
        }
    }
    Ok((changes, errors))
}

/// The plugged volumes that are there and have a disk, with what is behind them.
fn wanted<'a>(vmi: &'a VirtualMachineInstance, facts: &HostFacts) -> BTreeMap<&'a str, xml::DiskSource> {
    let disks = &vmi.spec.domain.devices.disks;
    let plugged = vmi.spec.volumes.iter().filter(|volume| claims::is_plugged(vmi, volume));
    let present = plugged.filter_map(|volume| {
        let storage = facts.disks.get(&volume.name)?.storage.as_ref()?;
        disks.iter().find(|disk| disk.name == volume.name)?;
        Some((volume.name.as_str(), xml::DiskSource::from(&storage.location)))
    });
    present.collect()
}

fn attachment(
    vmi: &VirtualMachineInstance,
    facts: &HostFacts,
    volume: &str,
    units: &mut BTreeSet<u32>,
) -> Result<String, Error> {
    let mut new = disk(vmi, facts, volume)?;
    if new.device == "cdrom" || !matches!(new.target.bus, "scsi" | "virtio") {
        let field = format!("spec.domain.devices.disks[{volume}]");
        let detail = format!("a {} on {} cannot be plugged into a running guest", new.device, new.target.bus);
        return Err(Error::unsupported(field, detail));
    }
    if let Some(address) = &mut new.address {
        // The position in the list may be that of a disk that was plugged in before.
        address.unit = (0..).find(|unit| !units.contains(unit)).unwrap_or_default();
        units.insert(address.unit);
    }
    new.to_xml()
}

struct Live<'a> {
    disks: Vec<LiveDisk>,
    /// The directory of plugged volumes.
    plugged: &'a str,
}

impl Live<'_> {
    fn is_plugged(&self, disk: &LiveDisk) -> bool {
        let path = disk.path().and_then(|path| path.strip_prefix(self.plugged));
        path.is_some_and(|rest| rest.starts_with('/'))
    }

    /// The drive with the medium that it is to have, if that is another one. Media that the guest was started with stay.
    fn medium(&self, drive: &LiveDisk, wanted: &BTreeMap<&str, xml::DiskSource>) -> Result<Option<String>, Error> {
        let medium = wanted.get(drive.name.as_str());
        let path = medium.and_then(|source| source.file.as_deref().or(source.dev.as_deref()));
        let may_leave = drive.path().is_none() || self.is_plugged(drive);
        if path == drive.path() || !may_leave {
            return Ok(None);
        }
        let kind = medium.map_or("file", |source| if source.dev.is_some() { "block" } else { "file" });
        Medium {
            type_: kind,
            device: "cdrom",
            driver: MediumDriver { name: "qemu", type_: "raw" },
            source: medium.cloned(),
            target: drive.target(),
            readonly: drive.readonly.then_some(Empty {}),
            alias: Alias::user(&drive.name),
        }
        .to_xml()
        .map(Some)
    }
}

/// A drive of the running domain. What is left out stays as it is.
#[derive(Serialize)]
#[serde(rename = "disk")]
struct Medium {
    #[serde(rename = "@type")]
    type_: &'static str,
    #[serde(rename = "@device")]
    device: &'static str,
    driver: MediumDriver,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<xml::DiskSource>,
    target: Target,
    #[serde(skip_serializing_if = "Option::is_none")]
    readonly: Option<Empty>,
    alias: Alias,
}

impl Medium {
    fn to_xml(&self) -> Result<String, Error> {
        xml::document(self)
    }
}

#[derive(Serialize)]
struct MediumDriver {
    #[serde(rename = "@name")]
    name: &'static str,
    #[serde(rename = "@type")]
    type_: &'static str,
}

/// A disk as libvirt finds it: by its target.
#[derive(Serialize)]
#[serde(rename = "disk")]
struct Identified {
    #[serde(rename = "@type")]
    type_: String,
    #[serde(rename = "@device")]
    device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<Source>,
    target: Target,
}

/// A disk of the running domain.
struct LiveDisk {
    name: String,
    type_: String,
    device: String,
    source: Option<Source>,
    target: String,
    bus: String,
    readonly: bool,
    /// On the SCSI controller.
    unit: Option<u32>,
}

impl LiveDisk {
    fn path(&self) -> Option<&str> {
        let source = self.source.as_ref()?;
        source.file.as_deref().or(source.dev.as_deref())
    }

    fn is_drive(&self) -> bool {
        self.device == "cdrom"
    }

    fn target(&self) -> Target {
        Target { dev: self.target.clone(), bus: self.bus.clone() }
    }

    fn identified(&self) -> Result<String, Error> {
        let (type_, device) = (self.type_.clone(), self.device.clone());
        xml::document(&Identified { type_, device, source: self.source.clone(), target: self.target() })
    }
}

impl From<Disk> for LiveDisk {
    fn from(disk: Disk) -> LiveDisk {
        let alias = disk.alias.map(|alias| alias.name).unwrap_or_default();
        let target = disk.target.unwrap_or_default();
        let address = disk.address.filter(|address| address.type_ == "drive" && target.bus == "scsi");
        LiveDisk {
            name: alias.strip_prefix("ua-").map(str::to_owned).unwrap_or(alias),
            type_: disk.type_,
            device: disk.device,
            source: disk.source,
            unit: address.and_then(|address| address.unit),
            target: target.dev,
            bus: target.bus,
            readonly: disk.readonly.is_some(),
        }
    }
}

#[derive(Deserialize)]
struct Domain {
    #[serde(default)]
    devices: Devices,
}

#[derive(Default, Deserialize)]
struct Devices {
    #[serde(default)]
    disk: Vec<Disk>,
}

#[derive(Deserialize)]
struct Disk {
    #[serde(rename = "@type", default)]
    type_: String,
    #[serde(rename = "@device", default)]
    device: String,
    source: Option<Source>,
    target: Option<Target>,
    readonly: Option<Present>,
    alias: Option<Name>,
    address: Option<Address>,
}

#[derive(Deserialize)]
struct Present {}

#[derive(Deserialize)]
struct Name {
    #[serde(rename = "@name")]
    name: String,
}

#[derive(Clone, Serialize, Deserialize)]
struct Source {
    #[serde(rename = "@file", skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(rename = "@dev", skip_serializing_if = "Option::is_none")]
    dev: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
struct Target {
    #[serde(rename = "@dev", default)]
    dev: String,
    #[serde(rename = "@bus", default)]
    bus: String,
}

#[derive(Deserialize)]
struct Address {
    #[serde(rename = "@type", default)]
    type_: String,
    #[serde(rename = "@unit")]
    unit: Option<u32>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts::{DiskFacts, Location, Storage};

    /// A VMI with a system disk, an empty drive, and plugged volumes with a disk each, on the bus after the colon.
    fn vmi(plugged: &[&str]) -> VirtualMachineInstance {
        let mut volumes = vec![json!({"name": "root", "emptyDisk": {"capacity": "1Gi"}})];
        let mut disks = vec![
            json!({"name": "root", "disk": {"bus": "virtio"}}),
            json!({"name": "drive", "cdrom": {"bus": "sata"}}),
        ];
        for plugged in plugged {
            let (name, bus) = plugged.split_once(':').unwrap_or((plugged, "scsi"));
            let claim = json!({"claimName": name, "hotpluggable": true});
            volumes.push(json!({"name": name, "persistentVolumeClaim": claim}));
            if name != "drive" {
                disks.push(json!({"name": name, "disk": {"bus": bus}, "serial": name.to_uppercase()}));
            }
        }
        let spec = json!({"domain": {"devices": {"disks": disks}}, "volumes": volumes});
        serde_json::from_value(json!({"metadata": {"name": "vm", "uid": "u"}, "spec": spec})).unwrap()
    }

    fn facts(vmi: &VirtualMachineInstance, mounted: &[&str]) -> HostFacts {
        let mut facts = HostFacts::example(vmi);
        facts.disks.retain(|name, _| name == "root");
        for name in mounted {
            let location = Location::File(format!("/var/run/kubevirt/hotplug-disks/{name}.img"));
            let storage = Storage { location, readonly: false, preallocated: false, allocated: false };
            let known = DiskFacts { direct_io: true, backing: None, storage: Some(storage) };
            facts.disks.insert((*name).to_owned(), known);
        }
        facts
    }

    /// The live XML of a domain with the system disk, the drive and these plugged disks: name, target, unit.
    fn live(drive: &str, plugged: &[(&str, &str, u32)]) -> String {
        let plugged = plugged.iter().map(|(name, target, unit)| {
            format!(
                "<disk type='file' device='disk'><driver name='qemu' type='raw'/>\
                 <source file='/var/run/kubevirt/hotplug-disks/{name}.img' index='3'/><backingStore/>\
                 <target dev='{target}' bus='scsi'/><alias name='ua-{name}'/>\
                 <address type='drive' controller='0' bus='0' target='0' unit='{unit}'/></disk>"
            )
        });
        format!(
            "<domain type='qemu'><devices><disk type='file' device='disk'><source file='/root.qcow2'/>\
             <target dev='vda' bus='virtio'/><alias name='ua-root'/></disk>\
             <disk type='file' device='cdrom'>{drive}<target dev='sda' bus='sata'/><readonly/><alias name='ua-drive'/>\
             <address type='drive' controller='0' bus='0' target='0' unit='0'/></disk>{}</devices></domain>",
            plugged.collect::<String>()
        )
    }

    fn words(changes: &[DiskChange]) -> Vec<String> {
        let word = |change: &DiskChange| match change {
            DiskChange::Attach { volume, .. } => format!("attach {volume}"),
            DiskChange::Detach { volume, .. } => format!("detach {volume}"),
            DiskChange::Medium { volume, .. } => format!("medium {volume}"),
        };
        changes.iter().map(word).collect()
    }

    #[test]
    fn disks_follow_the_volumes_that_are_there() {
        let medium = "<source file='/var/run/kubevirt/hotplug-disks/drive.img'/>";
        let other = "<source file='/of-the-start.iso'/>";
        for (name, spec, mounted, drive, has, expected) in [
            ("nothing to do", &["a"][..], &["a"][..], "", &[("a", "sdb", 0)][..], &[][..]),
            ("a volume is there", &["a"], &["a"], "", &[], &["attach a"]),
            ("it is not there yet", &["a"], &[], "", &[], &[]),
            ("two at once", &["b", "a"], &["a", "b"], "", &[], &["attach a", "attach b"]),
            ("a second beside the first", &["a", "b"], &["a", "b"], "", &[("a", "sdb", 0)], &["attach b"]),
            ("one that left the spec", &[], &["a"], "", &[("a", "sdb", 0)], &["detach a"]),
            ("one that is no longer mounted", &["a"], &[], "", &[("a", "sdb", 0)], &["detach a"]),
            ("one leaves, one comes", &["b"], &["b"], "", &[("a", "sdb", 0)], &["detach a", "attach b"]),
            ("a medium comes", &["drive"], &["drive"], "", &[], &["medium drive"]),
            ("it is in already", &["drive"], &["drive"], medium, &[], &[]),
            ("it leaves", &[], &[], medium, &[], &["medium drive"]),
            ("one that the guest was started with stays", &[], &[], other, &[], &[]),
        ] {
            let vmi = vmi(spec);
            let (changes, errors) = disk_changes(&vmi, &facts(&vmi, mounted), &live(drive, has)).unwrap();
            assert_eq!(
                (words(&changes), errors),
                (expected.iter().map(ToString::to_string).collect(), vec![]),
                "{name}"
            );
        }
    }

    #[test]
    fn names_and_addresses_of_other_disks_are_not_touched() {
        let vmi = vmi(&["a", "b", "c", "d:virtio"]);
        let has = live("", &[("b", "sdc", 0), ("c", "sdb", 2)]);
        let (changes, _) = disk_changes(&vmi, &facts(&vmi, &["a", "b", "c", "d"]), &has).unwrap();
        let [DiskChange::Attach { xml: a, .. }, DiskChange::Attach { xml: d, .. }] = changes.as_slice() else {
            panic!("{changes:?}")
        };
        assert!(a.contains(r#"<target dev="sdd" bus="scsi"/>"#) && a.contains(r#"unit="1""#), "{a}");
        assert!(a.contains("<serial>A</serial>") && a.contains(r#"<alias name="ua-a"/>"#), "{a}");
        assert!(d.contains(r#"<target dev="vdb" bus="virtio"/>"#) && !d.contains("<address"), "{d}");
        let gone = disk_changes(&super::tests::vmi(&[]), &facts(&vmi, &[]), &has).unwrap().0;
        let DiskChange::Detach { xml, .. } = &gone[0] else { panic!("{gone:?}") };
        assert!(xml.contains(r#"<target dev="sdc" bus="scsi"/>"#), "{xml}");
        let path = r#"file="/var/run/kubevirt/hotplug-disks/b.img""#;
        assert!(xml.contains(path), "{xml}");
    }

    #[test]
    fn a_medium_is_changed_and_nothing_else_of_its_drive() {
        let vmi = vmi(&["drive"]);
        let changes = disk_changes(&vmi, &facts(&vmi, &["drive"]), &live("", &[])).unwrap().0;
        let [DiskChange::Medium { xml, .. }] = changes.as_slice() else { panic!("{changes:?}") };
        let expected = r#"<disk type="file" device="cdrom">
  <driver name="qemu" type="raw"/>
  <source file="/var/run/kubevirt/hotplug-disks/drive.img"/>
  <target dev="sda" bus="sata"/>
  <readonly/>
  <alias name="ua-drive"/>
</disk>
"#;
        assert_eq!(xml, expected);
    }

    #[test]
    fn a_disk_that_cannot_be_plugged_does_not_hold_up_others() {
        let vmi = vmi(&["a:sata", "b"]);
        let (changes, errors) = disk_changes(&vmi, &facts(&vmi, &["a", "b"]), &live("", &[])).unwrap();
        assert_eq!(words(&changes), ["attach b"]);
        assert!(errors[0].to_string().contains("a disk on sata cannot be plugged"), "{errors:?}");
    }
}
