//! Defaults of a virtual machine: its identity and its platform, nothing that a later default could improve on.

use api::config::ClusterConfig;
use api::v1::VirtualMachine;

use super::{FIRMWARE_NAMESPACE, PCI_TOPOLOGY, fill, firmware_uuid, has_pcie, platform};
use crate::Operation;

/// Fills in a virtual machine.
pub(crate) fn vm(vm: &mut VirtualMachine, operation: Operation, config: &ClusterConfig) {
    let create = operation == Operation::Create;
    let name = vm.metadata.name.clone().unwrap_or_default();
    let namespace = vm.metadata.namespace.clone().unwrap_or_default();
    let template = &mut vm.spec.template;
    // A name that is still to be generated identifies nobody; the controller fills the identity in later.
    if create && !name.is_empty() {
        let firmware = template.spec.domain.firmware.get_or_insert_default();
        fill(&mut firmware.uuid, firmware_uuid(&name));
        let seed = format!("{namespace}/{name}/serial");
        fill(&mut firmware.serial, uuid::Uuid::new_v5(&FIRMWARE_NAMESPACE, seed.as_bytes()).to_string());
    }
    platform(&mut template.spec, config);
    if create && has_pcie(&template.spec) {
        let annotations = template.metadata.get_or_insert_default().annotations.get_or_insert_default();
        let (key, value) = PCI_TOPOLOGY;
        annotations.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }
}
