//! Prepares a VM for its start, and creates its VMI.

use admission::firmware_uuid;
use api::config::ClusterConfig;
use api::v1::{
    Binding, Disk, Input, Interface, MemoryDumpPhase, Network, VirtualMachine, VirtualMachineInstance,
    VirtualMachineInstanceSpec, VirtualMachineInstanceStatus,
};
use api::{annotations, finalizers, reasons};
use instancetype::{Subject, apply_autoattach};
use json_patch::Patch;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::action::Action;
use super::strategy::Start;
use super::world::World;
use super::{changed_blocks, expand, memory_dump, revision};
use crate::effect::Why;
use crate::guard::Guarded;
use crate::{Note, SyncError, meta};

/// The name of the default interface and network.
const DEFAULT_NETWORK: &str = "default";
/// The name of the default pointing device.
const DEFAULT_INPUT: &str = "default-0";

/// What every VM gets once, in one write: finalizer, API version annotations, firmware UUID.
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

/// Stores the spec and creates the VMI from it.
pub(super) fn start(w: &World, how: Start) -> Result<Vec<Action>, SyncError> {
    let vmi = instance(w, how)?;
    let mut actions: Vec<Action> = revision::keep(w).into_iter().collect();
    let message = format!(
        "Started the virtual machine by creating the new virtual machine instance {}",
        meta::name(&vmi.metadata)
    );
    let why = Why::shown(reasons::FAILED_CREATE, "the run strategy asks for an instance");
    actions.push(Action::create(vmi, why));
    actions.push(Action::Note(Note::normal(reasons::SUCCESSFUL_CREATE, message)));
    Ok(actions)
}

fn instance(w: &World, how: Start) -> Result<VirtualMachineInstance, SyncError> {
    let vm = &w.vm;
    let stamped = vm.spec.template.metadata.clone().unwrap_or_default();
    let mut noted = stamped.annotations.unwrap_or_default();
    noted.insert(annotations::VM_GENERATION.to_owned(), revision::generation(vm).to_string());
    if how.as_receiver {
        noted.insert(annotations::CREATE_MIGRATION_TARGET.to_owned(), "true".to_owned());
    }
    let mut metadata = ObjectMeta {
        name: vm.metadata.name.clone(),
        namespace: vm.metadata.namespace.clone(),
        labels: stamped.labels,
        annotations: Some(noted),
        finalizers: Some(vec![finalizers::VIRTUAL_MACHINE_CONTROLLER.to_owned()]),
        owner_references: meta::controller_ref(vm.as_ref()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    let mut spec = vm.spec.template.spec.clone();
    complete(w, how, &mut spec);
    apply(w, &mut spec, &mut metadata)?;
    let status = VirtualMachineInstanceStatus {
        virtual_machine_revision_name: Some(revision::name(vm)),
        changed_block_tracking: changed_blocks::of_new_instance(w),
        ..VirtualMachineInstanceStatus::default()
    };
    Ok(VirtualMachineInstance { metadata, spec, status: Some(status) })
}

/// Fills in what the template leaves to the start.
fn complete(w: &World, how: Start, spec: &mut VirtualMachineInstanceSpec) {
    if how.paused {
        spec.start_strategy = Some("Paused".to_owned());
    }
    let request = w.vm.status.as_ref().and_then(|status| status.memory_dump_request.as_ref());
    if let Some(request) = request
        && !matches!(request.phase, MemoryDumpPhase::Associating | MemoryDumpPhase::InProgress)
    {
        memory_dump::take_out(spec, &request.claim_name); // the dump is made; the claim is not this guest's business
    }
    let firmware = spec.domain.firmware.get_or_insert_default();
    if firmware.uuid.as_deref().unwrap_or_default().is_empty() {
        firmware.uuid = Some(firmware_uuid(meta::name(&w.vm.metadata)));
    }
    attach_loose_volumes(spec);
}

/// Applies instance type and preference. Default devices are added first: the preference has more to say about them.
fn apply(w: &World, spec: &mut VirtualMachineInstanceSpec, metadata: &mut ObjectMeta) -> Result<(), SyncError> {
    let found = expand::find(w, &w.vm)?;
    if let Some(preference) = &found.preference {
        apply_autoattach(preference, spec);
    }
    let devices = &mut spec.domain.devices;
    if devices.autoattach_input_device == Some(true) && devices.inputs.is_empty() {
        devices.inputs.push(Input { name: DEFAULT_INPUT.to_owned(), ..Input::default() });
    }
    if found.instancetype.is_none() && found.preference.is_none() {
        return Ok(()); // admission adds the interface
    }
    attach_default_network(spec, &w.config);
    name_sources(&w.vm, metadata);
    found.apply("spec", spec, metadata)
}

/// Records on the VMI which instance type and preference it was created from.
fn name_sources(vm: &VirtualMachine, metadata: &mut ObjectMeta) {
    let noted = metadata.annotations.get_or_insert_default();
    if let Some(matcher) = &vm.spec.instancetype {
        let cluster = expand::is_cluster_wide(Subject::Instancetype, matcher.kind.as_deref());
        let key = if cluster { annotations::CLUSTER_INSTANCETYPE } else { annotations::INSTANCETYPE };
        noted.insert(key.to_owned(), matcher.name.clone().unwrap_or_default());
    }
    if let Some(matcher) = &vm.spec.preference {
        let cluster = expand::is_cluster_wide(Subject::Preference, matcher.kind.as_deref());
        let key = if cluster { annotations::CLUSTER_PREFERENCE } else { annotations::PREFERENCE };
        noted.insert(key.to_owned(), matcher.name.clone().unwrap_or_default());
    }
}

/// A guest without any network gets the Pod network, unless its owner opted out. Bindings that the cluster does not
/// permit are not added: admission then rejects the VMI with an explanation.
pub(super) fn attach_default_network(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    let devices = &mut spec.domain.devices;
    if devices.autoattach_pod_interface == Some(false) || !devices.interfaces.is_empty() || !spec.networks.is_empty() {
        return;
    }
    let mut interface = Interface { name: DEFAULT_NETWORK.to_owned(), ..Interface::default() };
    match config.default_network_interface() {
        "masquerade" => interface.bind(Binding::Masquerade),
        "bridge" if config.permit_bridge_on_pod_network() => interface.bind(Binding::Bridge),
        _ => return,
    }
    devices.interfaces.push(interface);
    spec.networks.push(Network::of_pod(DEFAULT_NETWORK));
}

/// A volume that is neither a disk nor a file system becomes a disk. Claims for memory dumps stay hidden from the
/// guest.
pub(super) fn attach_loose_volumes(spec: &mut VirtualMachineInstanceSpec) {
    for volume in spec.volumes.iter().filter(|volume| !volume.is_memory_dump()) {
        let devices = &mut spec.domain.devices;
        let used = devices.disks.iter().any(|disk| disk.name == volume.name)
            || devices.filesystems.iter().any(|filesystem| filesystem.name == volume.name);
        if !used {
            devices.disks.push(Disk { name: volume.name.clone(), ..Disk::default() });
        }
    }
}
