//! The spec an instance was started from, kept as a ControllerRevision, and what it says about changes since.

use api::annotations;
use api::v1::{VirtualMachine, VirtualMachineInstance, VirtualMachineSpec};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::json;

use super::action::Action;
use super::world::World;
use crate::guard::Guarded;
use crate::meta;

/// The prefix of every start revision's name; UID and generation follow.
const PREFIX: &str = "revision-start-vm-";

pub(super) fn name(vm: &VirtualMachine) -> String {
    format!("{PREFIX}{}-{}", meta::uid(&vm.metadata), generation(vm))
}

pub(super) fn generation(vm: &VirtualMachine) -> i64 {
    vm.metadata.generation.unwrap_or(0)
}

/// Keeps the current spec, unless it is kept, and drops those of earlier starts.
pub(super) fn keep(w: &World) -> Vec<Action> {
    let name = name(&w.vm);
    let mut actions = vec![];
    if !w.revisions.iter().any(|revision| meta::name(&revision.metadata) == name) {
        actions.push(Action::CreateRevision(Box::new(revision(&w.vm, &name))));
    }
    for old in &w.revisions {
        let old_name = meta::name(&old.metadata);
        if old_name.starts_with(PREFIX) && old_name != name {
            let uid = meta::uid(&old.metadata).to_owned();
            actions.push(Action::DeleteRevision { name: old_name.to_owned(), uid });
        }
    }
    actions
}

fn revision(vm: &VirtualMachine, name: &str) -> ControllerRevision {
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: vm.metadata.namespace.clone(),
            owner_references: meta::controller_ref(vm).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(json!({ "spec": vm.spec }))),
        revision: generation(vm),
    }
}

/// The spec the instance was started from, if it is still kept and readable.
fn started_from(w: &World, vmi: &VirtualMachineInstance) -> Option<VirtualMachineSpec> {
    let name = vmi.status.as_ref()?.virtual_machine_revision_name.as_deref()?;
    let revision = w.revisions.iter().find(|revision| meta::name(&revision.metadata) == name)?;
    let spec = revision.data.as_ref()?.0.get("spec")?.clone();
    serde_json::from_value(spec).ok()
}

/// The generation of the virtual machine that the instance reflects. Old instances only have it in a name.
pub(super) fn observed_generation(vmi: &VirtualMachineInstance) -> Option<i64> {
    if let Some(noted) = meta::annotation(&vmi.metadata, annotations::VM_GENERATION) {
        return noted.parse().ok();
    }
    let name = vmi.status.as_ref()?.virtual_machine_revision_name.as_deref()?;
    name.rsplit('-').next()?.parse().ok()
}

/// A change outside the template leaves the instance up to date; its note of the generation follows.
pub(super) fn bump(w: &World) -> Option<Action> {
    let vmi = w.instance().filter(|vmi| !vmi.is_marked_for_deletion() && !vmi.is_final())?;
    let current = generation(&w.vm).to_string();
    let noted = meta::annotation(&vmi.metadata, annotations::VM_GENERATION);
    if noted == Some(&current) || started_from(w, vmi)?.template != w.vm.spec.template {
        return None;
    }
    let mut annotations = vmi.metadata.annotations.clone().unwrap_or_default();
    annotations.insert(annotations::VM_GENERATION.to_owned(), current);
    let patch = Guarded::new(&vmi.metadata).annotations(&annotations).build()?;
    Some(Action::PatchVmi { name: meta::name(&vmi.metadata).to_owned(), patch })
}

/// Whether the instance lacks a change of the template that only a restart can bring.
pub(super) fn restart_required(w: &World) -> bool {
    let Some(vmi) = w.instance().filter(|vmi| !vmi.is_marked_for_deletion() && !vmi.is_final()) else { return false };
    let Some(mut started) = started_from(w, vmi) else { return false };
    let firmware_uuid = |firmware: &Option<api::v1::Firmware>| firmware.as_ref().and_then(|f| f.uuid.clone());
    let wanted = firmware_uuid(&w.vm.spec.template.spec.domain.firmware);
    if wanted.is_some() && firmware_uuid(&vmi.spec.domain.firmware) == wanted {
        // Written into the template after the start; the instance has had it all along.
        started.template.spec.domain.firmware.get_or_insert_default().uuid = wanted;
    }
    started.template.spec != w.vm.spec.template.spec
}
