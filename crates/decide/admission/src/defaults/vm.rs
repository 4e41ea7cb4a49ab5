//! Defaults of a VM: its identity and its platform, but nothing that a later default could improve on.

use api::annotations::{PCI_TOPOLOGY_VERSION, pci_topology};
use api::config::ClusterConfig;
use api::instancetype::VirtualMachinePreferenceSpec;
use api::v1::VirtualMachine;

use super::{FIRMWARE_NAMESPACE, fill, firmware_uuid, has_pcie, platform};
use crate::Operation;

/// Applies the parts of a preference that cannot wait until it is applied to the VMI: by then the platform's defaults
/// would be set, and the disks created.
pub(crate) fn preferred(vm: &mut VirtualMachine, preference: &VirtualMachinePreferenceSpec) {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let spec = &mut vm.spec.template.spec;
    if let Some(architecture) = given(&preference.preferred_architecture) {
        fill(&mut spec.architecture, architecture);
    }
    let machine = preference.machine.as_ref().and_then(|machine| given(&machine.preferred_machine_type));
    if let Some(machine) = machine {
        fill(&mut spec.domain.machine.get_or_insert_default().type_, machine);
    }
    let class = preference.volumes.as_ref().and_then(|volumes| given(&volumes.preferred_storage_class_name));
    if let Some(class) = class {
        for template in &mut vm.spec.data_volume_templates {
            let pvc = template.spec.pvc.as_mut().map(|pvc| &mut pvc.storage_class_name);
            let storage = template.spec.storage.as_mut().map(|storage| &mut storage.storage_class_name);
            // An empty class is a deliberate choice of none.
            for missing in pvc.into_iter().chain(storage).filter(|class| class.is_none()) {
                *missing = Some(class.clone());
            }
        }
    }
}

/// Applies defaults to a VM.
pub(crate) fn vm(vm: &mut VirtualMachine, operation: Operation, config: &ClusterConfig) {
    let create = operation == Operation::Create;
    let name = vm.metadata.name.clone().unwrap_or_default();
    let namespace = vm.metadata.namespace.clone().unwrap_or_default();
    let template = &mut vm.spec.template;
    // A name that is still to be generated cannot identify the guest; the controller sets the identity later.
    if create && !name.is_empty() {
        let firmware = template.spec.domain.firmware.get_or_insert_default();
        fill(&mut firmware.uuid, firmware_uuid(&name));
        let seed = format!("{namespace}/{name}/serial");
        fill(&mut firmware.serial, uuid::Uuid::new_v5(&FIRMWARE_NAMESPACE, seed.as_bytes()).to_string());
    }
    platform(&mut template.spec, config);
    if create && has_pcie(&template.spec) {
        let annotations = template.metadata.get_or_insert_default().annotations.get_or_insert_default();
        annotations.entry(PCI_TOPOLOGY_VERSION.to_owned()).or_insert_with(|| pci_topology::V3.to_owned());
    }
}
