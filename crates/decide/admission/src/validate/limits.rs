//! Values that are admitted by KubeVirt, but no guest could run with.
//!
//! KubeVirt admits these values; the Pod, libvirt or QEMU reject them later, where the user no longer looks. They are
//! rejected here as unsupported by this build, so that the verdict on validity stays the same as KubeVirt's.

use api::v1::{Disk, NetworkSource, PodNetwork, VirtualMachineInstanceSpec, Volume, VolumeSource};
use ipnet::{Ipv4Net, Ipv6Net};
use machinery::field::Path;
use machinery::names::{check_dns1123_label, check_label_value, check_qualified_name};
use machinery::quantity::Quantity;
use uuid::Uuid;

use super::findings::{Findings, given};
use super::parsed;

const LEAST_GUEST_MEMORY: i64 = 1 << 20;

/// The maximum number of CPUs of machine types. A guest with more fits no node, and says so; a larger maximum for
/// hotplug, which may come from the defaults, is not rejected.
const MOST_CPUS: u64 = 512;
/// The maximum number of CPU slots, including empty ones.
const MOST_PLACES: u64 = 4096;

/// QEMU stores a boot order in a signed 32-bit number; libvirt passes it on unchanged.
const LAST_IN_BOOT_ORDER: u64 = i32::MAX as u64;

pub(super) fn check(found: &mut Findings, field: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    let domain = field.child("domain");
    let devices = domain.child("devices");
    compute(found, &domain, spec);
    firmware(found, &domain, spec);
    pod(found, field, spec);
    let disks = devices.child("disks");
    for (index, disk) in spec.domain.devices.disks.iter().enumerate() {
        boot_order(found, &disks.index(index), disk.boot_order);
        if disk.is_cdrom() && !spec.volumes.iter().any(|volume| volume.name == disk.name) {
            found.unsupported(&disks.index(index), "an empty CD-ROM drive is");
        }
    }
    let interfaces = devices.child("interfaces");
    for (index, interface) in spec.domain.devices.interfaces.iter().enumerate() {
        boot_order(found, &interfaces.index(index), interface.boot_order);
        if let Some(mac) = given(&interface.mac_address).filter(|mac| !mac.contains([':', '-'])) {
            found.invalid(&interfaces.index(index).child("macAddress"), mac, "separate the six octets by : or -");
        }
    }
    let networks = field.child("networks");
    for (index, network) in spec.networks.iter().enumerate() {
        if let NetworkSource::Pod(pod) = network.source() {
            guest_networks(found, &networks.index(index).child("pod"), pod);
        }
    }
    volumes(found, &field.child("volumes"), &spec.volumes, &spec.domain.devices.disks);
}

fn compute(found: &mut Findings, domain: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    let guest = spec.domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    if let Some(guest) = guest.filter(|guest| parsed(guest).value() < LEAST_GUEST_MEMORY) {
        let detail = "must be at least 1Mi; a unit may be missing";
        found.invalid(&domain.child("memory.guest"), guest.0.as_str(), detail);
    }
    if let Some(cpu) = &spec.domain.cpu {
        let count = |sockets: Option<u32>| {
            let parts = [sockets, cpu.cores, cpu.threads].map(|part| u64::from(part.unwrap_or(0)).max(1));
            parts.into_iter().fold(1, u64::saturating_mul)
        };
        if count(cpu.sockets) <= MOST_CPUS && count(cpu.max_sockets) > MOST_PLACES {
            let detail = format_args!("with cores and threads it makes room for more than {MOST_PLACES} CPUs");
            found.invalid(&domain.child("cpu.maxSockets"), cpu.max_sockets.unwrap_or(0), detail);
        }
    }
}

fn firmware(found: &mut Findings, domain: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    let Some(firmware) = &spec.domain.firmware else { return };
    if let Some(uuid) = given(&firmware.uuid).filter(|uuid| Uuid::parse_str(uuid).is_err()) {
        let detail = "must be a UUID such as 5d307ca9-b3ef-428c-8861-06e72d69f223";
        found.invalid(&domain.child("firmware.uuid"), uuid, detail);
    }
    let Some(boot) = &firmware.kernel_boot else { return };
    let kernel = boot.container.as_ref().is_none_or(|container| given(&container.kernel_path).is_some());
    if let Some(args) = given(&boot.kernel_args).filter(|_| !kernel) {
        let detail = "kernel arguments cannot be given without a kernel: set container.kernelPath";
        found.invalid(&domain.child("firmware.kernelBoot.kernelArgs"), args, detail);
    }
}

/// What the API server would reject the launcher Pod for.
fn pod(found: &mut Findings, field: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    let selector = field.child("nodeSelector");
    for (key, value) in &spec.node_selector {
        found.name(&selector.key(key), key, &check_qualified_name(key));
        found.name(&selector.key(key), value, &check_label_value(value));
    }
    if let Some(seconds) = spec.termination_grace_period_seconds.filter(|seconds| *seconds < 0) {
        let at = field.child("terminationGracePeriodSeconds");
        found.invalid(&at, seconds, "must be greater than or equal to 0");
    }
}

fn boot_order(found: &mut Findings, device: &Path<'_>, order: Option<u64>) {
    if let Some(order) = order.filter(|order| *order > LAST_IN_BOOT_ORDER) {
        found.invalid(&device.child("bootOrder"), order, format_args!("must be at most {LAST_IN_BOOT_ORDER}"));
    }
}

/// The networks between Pod and guest must have room for both addresses.
fn guest_networks(found: &mut Findings, field: &Path<'_>, pod: &PodNetwork) {
    let v4 = |text: &&str| !text.parse::<Ipv4Net>().is_ok_and(|net| net.prefix_len() <= 30);
    let v6 = |text: &&str| !text.parse::<Ipv6Net>().is_ok_and(|net| net.prefix_len() <= 126);
    if let Some(text) = given(&pod.vm_network_cidr).filter(v4) {
        let detail = "must be an IPv4 network of at least four addresses such as 10.0.2.0/24";
        found.invalid(&field.child("vmNetworkCIDR"), text, detail);
    }
    if let Some(text) = given(&pod.vm_ipv6_network_cidr).filter(v6) {
        let detail = "must be an IPv6 network of at least four addresses such as fd10:0:2::/120";
        found.invalid(&field.child("vmIPv6NetworkCIDR"), text, detail);
    }
}

fn volumes(found: &mut Findings, field: &Path<'_>, volumes: &[Volume], disks: &[Disk]) {
    for (index, volume) in volumes.iter().enumerate() {
        let field = field.index(index);
        // A volume's container is named after it. The name of a disk is checked with the disk.
        if !disks.iter().any(|disk| disk.name == volume.name) {
            found.name(&field.child("name"), &volume.name, &check_dns1123_label(&volume.name));
        }
        for source in volume.sources() {
            volume_source(found, &field, source);
        }
    }
    let has_data = |volume: &Volume| volume.sources().any(|source| matches!(source, VolumeSource::CloudInitNoCloud(_)));
    let with_data = volumes.iter().enumerate().filter(|(_, volume)| has_data(volume));
    for (index, _) in with_data.skip(1) {
        // The guest reads one set of cloud-init data; a second volume would be redundant.
        found.unsupported(&field.index(index), "a second volume of cloud-init data is");
    }
}
fn volume_source(found: &mut Findings, field: &Path<'_>, source: VolumeSource<'_>) {
    match source {
        VolumeSource::ContainerDisk(source) if source.image.is_empty() => {
            found.required(&field.child("containerDisk.image"), "the image that holds the disk has to be named");
        }
        VolumeSource::EmptyDisk(source) if parsed(&source.capacity) <= Quantity::ZERO => {
            found.invalid(&field.child("emptyDisk.capacity"), source.capacity.0.as_str(), "must be greater than 0");
        }
        VolumeSource::CloudInitConfigDrive(_)
        | VolumeSource::CloudInitNoCloud(_)
        | VolumeSource::ConfigMap(_)
        | VolumeSource::ContainerDisk(_)
        | VolumeSource::ContainerPath(_)
        | VolumeSource::DataVolume(_)
        | VolumeSource::DownwardApi(_)
        | VolumeSource::DownwardMetrics
        | VolumeSource::EmptyDisk(_)
        | VolumeSource::Ephemeral(_)
        | VolumeSource::HostDisk(_)
        | VolumeSource::MemoryDump(_)
        | VolumeSource::PersistentVolumeClaim(_)
        | VolumeSource::Secret(_)
        | VolumeSource::ServiceAccount(_)
        | VolumeSource::Sysprep(_)
        | VolumeSource::Unset => {}
    }
}
