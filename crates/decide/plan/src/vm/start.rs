//! Making a virtual machine fit to start, and its instance.

use admission::firmware_uuid;
use api::v1::{Disk, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceStatus};
use api::{annotations, finalizers, reasons};
use json_patch::Patch;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::action::Action;
use super::revision;
use super::world::World;
use crate::guard::Guarded;
use crate::{Note, meta};

/// What every virtual machine gets once, in one write: finalizer, stamp, firmware UUID.
pub(super) fn prepare(w: &World) -> Option<Patch> {
    let vm = &w.vm;
    let mut new = vm.metadata.clone();
    meta::stamp(&mut new);
    meta::add_finalizer(&mut new, finalizers::VIRTUAL_MACHINE_CONTROLLER);
    let old_firmware = &vm.spec.template.spec.domain.firmware;
    let mut firmware = old_firmware.clone();
    if firmware.as_ref().and_then(|f| f.uuid.as_deref()).is_none_or(str::is_empty) {
        firmware.get_or_insert_default().uuid = Some(firmware_uuid(meta::name(&vm.metadata)));
    }
    let path = ["spec", "template", "spec", "domain", "firmware"];
    Guarded::new(&vm.metadata)
        .annotations(&new.annotations.clone().unwrap_or_default())
        .finalizers(&new)
        .whole(&path, old_firmware, &firmware)
        .build()
}

/// Keeps the spec and creates the instance from it.
pub(super) fn start(w: &World, paused: bool) -> Vec<Action> {
    let mut actions = revision::keep(w);
    let vmi = instance(&w.vm, paused);
    let message = format!(
        "Started the virtual machine by creating the new virtual machine instance {}",
        meta::name(&vmi.metadata)
    );
    actions.push(Action::CreateVmi { vmi: Box::new(vmi), because: "the run strategy asks for an instance" });
    actions.push(Action::Note(Note::normal(reasons::SUCCESSFUL_CREATE, message)));
    actions
}

fn instance(vm: &VirtualMachine, paused: bool) -> VirtualMachineInstance {
    let template = &vm.spec.template;
    let stamped = template.metadata.clone().unwrap_or_default();
    let mut annotations = stamped.annotations.unwrap_or_default();
    annotations.insert(annotations::VM_GENERATION.to_owned(), revision::generation(vm).to_string());
    let mut spec = template.spec.clone();
    if paused {
        spec.start_strategy = Some("Paused".to_owned());
    }
    let firmware = spec.domain.firmware.get_or_insert_default();
    if firmware.uuid.as_deref().unwrap_or_default().is_empty() {
        firmware.uuid = Some(firmware_uuid(meta::name(&vm.metadata)));
    }
    attach_loose_volumes(&mut spec);
    VirtualMachineInstance {
        metadata: ObjectMeta {
            name: vm.metadata.name.clone(),
            namespace: vm.metadata.namespace.clone(),
            labels: stamped.labels,
            annotations: Some(annotations),
            finalizers: Some(vec![finalizers::VIRTUAL_MACHINE_CONTROLLER.to_owned()]),
            owner_references: meta::controller_ref(vm).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec,
        status: Some(VirtualMachineInstanceStatus {
            virtual_machine_revision_name: Some(revision::name(vm)),
            ..VirtualMachineInstanceStatus::default()
        }),
    }
}

/// A volume that is neither disk nor file system becomes a disk.
fn attach_loose_volumes(spec: &mut api::v1::VirtualMachineInstanceSpec) {
    for volume in &spec.volumes {
        let devices = &mut spec.domain.devices;
        let used = devices.disks.iter().any(|disk| disk.name == volume.name)
            || devices.filesystems.iter().any(|filesystem| filesystem.name == volume.name);
        if !used {
            devices.disks.push(Disk { name: volume.name.clone(), ..Disk::default() });
        }
    }
}
