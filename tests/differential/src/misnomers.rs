//! Fields that KubeVirt's causes name in a way that leads nowhere, or to another field. Ours name the field itself: whoever
//! gets the refusal has to find it in the object.

use crate::compare::pattern;
use crate::verdict::Cause;

/// One such name. Names are below the instance's spec, where KubeVirt says so at all. A name stands for all that begins
/// with it, and a `*` in it for any text.
pub struct Misnomer {
    /// What KubeVirt writes.
    pub theirs: &'static str,
    /// Part of the message, where KubeVirt writes the same about other things, and rightly.
    pub says: &'static str,
    /// The field that is meant.
    pub ours: &'static str,
    /// Whether KubeVirt does not tell which item of a list is meant, so that ours says more.
    pub vague: bool,
}

const fn name(theirs: &'static str, ours: &'static str) -> Misnomer {
    Misnomer { theirs, says: "", ours, vague: false }
}

const fn vague(theirs: &'static str, ours: &'static str) -> Misnomer {
    Misnomer { vague: true, ..name(theirs, ours) }
}

const fn when(says: &'static str, misnomer: Misnomer) -> Misnomer {
    Misnomer { says, ..misnomer }
}

/// All of them.
pub const MISNOMERS: &[Misnomer] = &[
    // Texts where a path is due, or nothing.
    vague("nameservers", "dnsConfig.nameservers"),
    vague("searchDomains", "dnsConfig.searches"),
    vague("options", "dnsConfig.options"),
    when("DHCPPrivateOptions", vague("", "domain.devices.interfaces[].dhcpOptions.privateOptions")),
    // Paths with a step too few, or one too many.
    name("GPUs", "domain.devices.gpus"),
    name("HostDevices", "domain.devices.hostDevices"),
    name("Sound", "domain.devices.sound"),
    name("video", "domain.devices.video"),
    name("launchSecurity", "domain.launchSecurity"),
    name("acpi", "domain.firmware.acpi"),
    name("nodeAffinity", "affinity.nodeAffinity"),
    vague("podA*.namespace", "affinity.podA*.namespaces"),
    name("podAffinity", "affinity.podAffinity"),
    name("podAntiAffinity", "affinity.podAntiAffinity"),
    vague("topologySpreadConstraints.labelSelector*", "topologySpreadConstraints[].labelSelector*"),
    name("domain.volumes[]", "volumes[]"),
    name("domain.features.hyperv.domain.features.hyperv", "domain.features.hyperv"),
    name("domain.devices.disks.domain.devices.disks.disk[].pciAddress", "domain.devices.disks[].disk.pciAddress"),
    when("IOThreads", name("domain.devices.disks.domain.devices.disks[]", "domain.devices.disks[].dedicatedIOThread")),
    name("domain.devices.disks.domain.devices.disks[]", "domain.devices.disks[]"),
    vague("domain.devices.disks.luns.reservation", "domain.devices.disks[].lun.reservation"),
    name("[].bootOrder", "domain.devices.interfaces[].bootOrder"),
    // Another field.
    name("domain.ioThreads.count", "domain.ioThreads.supplementalPoolThreadCount"),
    when("SecureBoot", name("domain", "domain.firmware.bootloader.efi.secureBoot")),
    when("pod network", name("interfaces", "networks")),
    when("networkName", name("networks[]", "networks[].multus.networkName")),
    when("DataVolume 'name'", name("volumes[].name", "volumes[].dataVolume.name")),
    name("volumes[].containerDisk", "volumes[].containerDisk.path"),
];

/// The specs of instances, where they are in objects.
const SPECS: [&str; 2] = ["spec.template.spec", "spec"];

/// Splits a field into the spec, with its dot, and what is below it.
fn split(field: &str) -> (String, &str) {
    let below = |spec: &&str| after(field, spec).map(|rest| (format!("{spec}."), rest.trim_start_matches('.')));
    SPECS.iter().find_map(below).unwrap_or((String::new(), field))
}

/// What comes after a name, if a path begins with it.
fn after<'p>(path: &'p str, name: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(name)?;
    (rest.is_empty() || rest.starts_with(['.', '['])).then_some(rest)
}

/// What the star of a name stands for in a path, and what comes after the name.
fn find<'p>(path: &'p str, name: &str) -> Option<(&'p str, &'p str)> {
    match name.split_once('*') {
        None if name.is_empty() => path.is_empty().then_some(("", "")),
        None => after(path, name).map(|rest| ("", rest)),
        Some((start, "")) => path.strip_prefix(start).map(|star| (star, "")),
        Some((start, end)) => {
            let path = path.strip_prefix(start)?;
            let mut ends = path.match_indices(end).filter_map(|(at, _)| Some((at, after(&path[at..], end)?)));
            ends.next().map(|(at, rest)| (&path[..at], rest))
        }
    }
}

/// KubeVirt's field by the name it should have, and which misnomer that corrects. `spec` is where the instance's spec is.
pub fn corrected(cause: &Cause, spec: &str) -> Option<(usize, String)> {
    let (_, path) = split(&cause.field);
    let shape = pattern(path);
    let mut misnomers = MISNOMERS.iter().enumerate();
    let (index, misnomer, star, rest) = misnomers.find_map(|(index, misnomer)| {
        let (star, rest) = find(&shape, misnomer.theirs)?;
        // A name that is only too short may also be given in full.
        let right = misnomer.ours.starts_with(misnomer.theirs) && find(&shape, misnomer.ours).is_some();
        (!right && cause.message.contains(misnomer.says)).then_some((index, misnomer, star, rest))
    })?;
    let mut steps = misnomer.ours.replace('*', star);
    if !misnomer.vague {
        steps.push_str(rest);
        let mut numbers = path.split('[').skip(1).filter_map(|step| step.split_once(']')).map(|(number, _)| number);
        while let (Some(hole), Some(number)) = (steps.find("[]"), numbers.next()) {
            steps.insert_str(hole + 1, number);
        }
    }
    Some((index, format!("{spec}{steps}")))
}

/// A field without what KubeVirt does not tell.
pub fn vaguely(field: &str) -> Option<String> {
    let (spec, path) = split(field);
    let shape = pattern(path);
    let vague = MISNOMERS.iter().filter(|misnomer| misnomer.vague);
    vague.into_iter().find_map(|misnomer| {
        let (star, _) = find(&shape, misnomer.ours)?;
        Some(format!("{spec}{}", misnomer.ours.replace('*', star)))
    })
}

#[cfg(test)]
mod tests {
    use super::{corrected, vaguely};
    use crate::verdict::Cause;

    fn field(field: &str, message: &str) -> String {
        let cause = Cause { type_: String::new(), field: field.to_owned(), message: message.to_owned() };
        corrected(&cause, "spec.").map_or_else(|| field.to_owned(), |(_, field)| field)
    }

    #[test]
    fn a_misnamed_field_gets_its_name_and_keeps_its_indexes() {
        assert_eq!(field("spec.domain.volumes[3].name", ""), "spec.volumes[3].name");
        assert_eq!(field("spec.networks[1]", "no networkName"), "spec.networks[1].multus.networkName");
        assert_eq!(field("spec.networks[1]", "something else"), "spec.networks[1]");
        assert_eq!(field("options", ""), "spec.dnsConfig.options");
        assert_eq!(vaguely("spec.dnsConfig.options[2].name").as_deref(), Some("spec.dnsConfig.options"));
        assert_eq!(vaguely("spec.dnsConfig.optionsX"), None);
        assert_eq!(field("spec[2].bootOrder", ""), "spec.domain.devices.interfaces[2].bootOrder");
        assert_eq!(field("spec.volumes[1].containerDisk.path", ""), "spec.volumes[1].containerDisk.path");
        assert_eq!(field("spec.podAffinity.x[0].namespace", ""), "spec.affinity.podAffinity.x[].namespaces");
        let terms = vaguely("spec.affinity.podAffinity.x[0].namespaces[3]");
        assert_eq!(terms.as_deref(), Some("spec.affinity.podAffinity.x[].namespaces"));
    }
}
