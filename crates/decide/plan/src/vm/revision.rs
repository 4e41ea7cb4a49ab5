//! The spec a VMI was started from, stored as a ControllerRevision to detect later changes.

use api::annotations;
use api::v1::{InstancetypeStatusRef, VirtualMachine, VirtualMachineInstance, VirtualMachineSpec};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde::Deserialize;
use serde_json::json;

use super::action::{Action, drop_revision, keep_revision};
use super::wanted::recorded_revision;
use super::world::World;
use crate::meta;

/// The prefix of every start revision's name; UID and generation follow.
const PREFIX: &str = "revision-start-vm-";

pub(super) fn name(vm: &VirtualMachine) -> String {
    format!("{PREFIX}{}-{}", meta::uid(&vm.metadata), generation(vm))
}

pub(super) fn generation(vm: &VirtualMachine) -> i64 {
    vm.metadata.generation.unwrap_or(0)
}

/// Stores the current spec, unless it is stored already.
pub(super) fn keep(w: &World) -> Option<Action> {
    let name = name(&w.vm);
    w.revision(&name).is_none().then(|| keep_revision(revision(&w.vm, &name)))
}

/// Deletes the specs of earlier starts, once a VMI of a later start is in the cache. Not earlier: the VMI might turn
/// out to exist already, started from one of them. Generations only grow, so even if the VMI has been replaced
/// meanwhile, the revision of its successor is not deleted.
pub(super) fn drop_earlier(w: &World, vmi: &VirtualMachineInstance) -> Vec<Action> {
    let name = vmi.status.as_ref().and_then(|status| status.virtual_machine_revision_name.as_deref());
    let Some(current) = name.and_then(|name| w.revision(name)) else { return vec![] };
    let earlier = w.revisions.iter().filter(|revision| {
        meta::name(&revision.metadata).starts_with(PREFIX)
            && meta::is_controlled_by(&revision.metadata, meta::uid(&w.vm.metadata))
            && revision.revision < current.revision
    });
    earlier.map(|revision| drop_revision(revision)).collect()
}

fn revision(vm: &VirtualMachine, name: &str) -> ControllerRevision {
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: vm.metadata.namespace.clone(),
            owner_references: meta::controller_ref(vm).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(json!({ "spec": pinned(vm) }))),
        revision: generation(vm),
    }
}

/// The spec with the effective revisions of instance type and preference.
fn pinned(vm: &VirtualMachine) -> VirtualMachineSpec {
    let mut spec = vm.spec.clone();
    let status = vm.status.as_ref();
    let name = |one: Option<&InstancetypeStatusRef>| one.and_then(recorded_revision).map(str::to_owned);
    if let Some(matcher) = &mut spec.instancetype {
        let recorded = name(status.and_then(|status| status.instancetype_ref.as_ref()));
        matcher.revision_name = recorded.or(matcher.revision_name.take());
    }
    if let Some(matcher) = &mut spec.preference {
        let recorded = name(status.and_then(|status| status.preference_ref.as_ref()));
        matcher.revision_name = recorded.or(matcher.revision_name.take());
    }
    spec
}

/// The spec the VMI was started from, if it is still stored and readable.
pub(super) fn started_from(w: &World, vmi: &VirtualMachineInstance) -> Option<VirtualMachineSpec> {
    let name = vmi.status.as_ref()?.virtual_machine_revision_name.as_deref()?;
    let spec = w.revision(name)?.data.as_ref()?.0.get("spec")?;
    VirtualMachineSpec::deserialize(spec).ok()
}

/// The generation of the VM that the VMI reflects. Old VMIs only have it in a name.
pub(super) fn observed_generation(vmi: &VirtualMachineInstance) -> Option<i64> {
    if let Some(noted) = meta::annotation(&vmi.metadata, annotations::VM_GENERATION) {
        return noted.parse().ok();
    }
    let name = vmi.status.as_ref()?.virtual_machine_revision_name.as_deref()?;
    name.rsplit('-').next()?.parse().ok()
}

/// A change outside the template leaves the VMI up to date; only its recorded generation is updated.
pub(super) fn bump(w: &World, started: &VirtualMachineSpec, vmi: &mut VirtualMachineInstance) {
    if started.template == w.vm.spec.template {
        let noted = vmi.metadata.annotations.get_or_insert_default();
        noted.insert(annotations::VM_GENERATION.to_owned(), generation(&w.vm).to_string());
    }
}
