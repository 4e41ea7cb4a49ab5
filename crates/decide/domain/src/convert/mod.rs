//! The conversion, one module per part of the domain XML.

mod cpu;
mod devices;
mod disks;
mod emulation;
mod interfaces;
mod memory;
mod os;
mod platform;
mod refuse;

use api::v1::VirtualMachineInstance;
use uuid::Uuid;

pub use disks::disk;

use crate::error::Error;
use crate::facts::HostFacts;
use crate::paths::uid;
use crate::xml::Domain;

/// Converts `vmi` to a domain for a host with these facts.
pub fn convert(vmi: &VirtualMachineInstance, facts: &HostFacts) -> Result<Domain, Error> {
    refuse::unsupported(vmi)?;
    let type_ = match (facts.kvm_usable, facts.allow_emulation) {
        (true, _) => "kvm",
        (false, true) => "qemu",
        (false, false) => return Err(Error::KvmMissing),
    };
    let uuid = guest_uuid(vmi)?;
    let cpus = cpu::cpus(vmi, type_)?;
    let memory = memory::memory(vmi)?;
    Ok(Domain {
        type_,
        name: vmi.domain_name(),
        sysinfo: os::sysinfo(vmi, &uuid, &facts.smbios),
        uuid,
        vcpu: cpus.vcpu(),
        vcpus: cpus.states(),
        os: os::os(vmi, &facts.paths)?,
        features: platform::features(vmi),
        cpu: cpus.cpu(),
        memory: memory.into(),
        clock: platform::clock(vmi)?,
        on_poweroff: "destroy",
        on_reboot: platform::on_reboot(vmi)?,
        on_crash: "destroy",
        devices: devices::devices(vmi, facts, memory)?,
        commandline: emulation::commandline(type_, memory),
    })
}

/// The guest's UUID: the one in the spec, set by admission. An object that bypassed admission gets one derived from its
/// UID, so that converting it twice gives the same domain.
pub fn guest_uuid(vmi: &VirtualMachineInstance) -> Result<String, Error> {
    let given = vmi.spec.domain.firmware.as_ref().and_then(|firmware| firmware.uuid.as_deref());
    match given.filter(|uuid| !uuid.is_empty()) {
        Some(text) => {
            let uuid = Uuid::parse_str(text)
                .map_err(|error| Error::invalid("spec.domain.firmware.uuid", error.to_string()))?;
            Ok(uuid.to_string())
        }
        None => Ok(Uuid::new_v5(&Uuid::NAMESPACE_OID, uid(vmi).as_bytes()).to_string()),
    }
}

/// Whether the guest's virtio devices are transitional, for drivers older than virtio 1.0.
fn virtio_model(vmi: &VirtualMachineInstance) -> &'static str {
    match vmi.spec.domain.devices.use_virtio_transitional {
        Some(true) => "virtio-transitional",
        _ => "virtio-non-transitional",
    }
}

fn yes_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}
