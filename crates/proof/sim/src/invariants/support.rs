//! Helpers shared by invariants.

use std::sync::Arc;

use api::annotations::CREATE_MIGRATION_TARGET;
use api::v1::{
    Between, RunStrategy, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration as Migration,
    VirtualMachineInstanceMigrationState as State, VirtualMachineInstancePhase as Phase,
};
use informer::Key;
use k8s_openapi::api::core::v1::Pod;
use machinery::meta::{annotation, is_controlled_by};

use super::{Scene, Verdict};
use crate::engine::PassInfo;
use crate::kinds::{Kind, Object, uid};
use crate::server::{Change, Server};

/// A change of a VMI: before, after.
pub(super) fn vmi_change(
    change: &Change,
) -> Option<(Option<&Arc<VirtualMachineInstance>>, &Arc<VirtualMachineInstance>)> {
    let Object::Vmi(last) = &change.last else { return None };
    let was = match &change.was {
        Some(Object::Vmi(was)) => Some(was),
        _ => None,
    };
    Some((was, last))
}

/// A change of a VM: before, after.
pub(super) fn vm_change(change: &Change) -> Option<(Option<&Arc<VirtualMachine>>, &Arc<VirtualMachine>)> {
    let Object::Vm(last) = &change.last else { return None };
    let was = match &change.was {
        Some(Object::Vm(was)) => Some(was),
        _ => None,
    };
    Some((was, last))
}

/// The VMI of a migration.
pub(super) fn instance_key(migration: &Migration) -> Option<Key> {
    Some(Key::new(migration.metadata.namespace.clone()?, migration.spec.vmi_name.clone()?))
}

/// A newly created Pod.
pub(super) fn new_pod(change: &Change) -> Option<&Arc<Pod>> {
    match (&change.last, &change.was) {
        (Object::Pod(pod), None) => Some(pod),
        _ => None,
    }
}

/// A newly created VMI.
pub(super) fn new_vmi(change: &Change) -> Option<&Arc<VirtualMachineInstance>> {
    match (&change.last, &change.was) {
        (Object::Vmi(vmi), None) => Some(vmi),
        _ => None,
    }
}

/// The pass that made a change, if it was one of this controller.
pub(super) fn pass_of<'a>(scene: &'a Scene<'_>, change: &Change, controller: &str) -> Option<&'a PassInfo> {
    scene.pass(change.by).filter(|pass| pass.controller == controller)
}

/// The existing Pods controlled by the object with this UID.
pub(super) fn pods_of<'a>(server: &'a Server, owner: &'a str) -> impl Iterator<Item = &'a Arc<Pod>> {
    server.tables.pods.all().filter(move |pod| is_controlled_by(&pod.metadata, owner))
}

/// The cached Pods of a pass controlled by the object with this UID.
pub(super) fn cached_pods_of(scene: &Scene<'_>, pass: &PassInfo, owner: &str) -> Vec<Arc<Pod>> {
    let pods = scene.all_cached(pass, Kind::Pod).into_iter().filter_map(|object| match object {
        Object::Pod(pod) => Some(pod),
        _ => None,
    });
    pods.filter(|pod| is_controlled_by(&pod.metadata, owner)).collect()
}

/// The VMI of the pass, as cached.
pub(super) fn cached_vmi(scene: &Scene<'_>, pass: &PassInfo) -> Option<Arc<VirtualMachineInstance>> {
    match scene.cached(pass, Kind::Vmi, &pass.key)? {
        Object::Vmi(vmi) => Some(vmi),
        _ => None,
    }
}

/// The VM of the pass, as cached.
pub(super) fn cached_vm(scene: &Scene<'_>, pass: &PassInfo) -> Option<Arc<VirtualMachine>> {
    match scene.cached(pass, Kind::Vm, &pass.key)? {
        Object::Vm(vm) => Some(vm),
        _ => None,
    }
}

/// Whether virt-handler owns the VMI.
pub(super) fn is_handed_over(vmi: &VirtualMachineInstance) -> bool {
    matches!(vmi.phase(), Some(Phase::Scheduled | Phase::Running))
}

/// Whether the VMI waits for a guest of another one.
pub(super) fn is_receiver(vmi: &VirtualMachineInstance) -> bool {
    annotation(&vmi.metadata, CREATE_MIGRATION_TARGET) == Some("true")
}

pub(super) fn migration_state(vmi: &VirtualMachineInstance) -> Option<&State> {
    vmi.status.as_ref()?.migration_state.as_ref()
}

/// The node of the guest that a receiver is to get, as reported by its sender.
pub(super) fn sender_node(receiver: &VirtualMachineInstance) -> Option<&str> {
    migration_state(receiver)?.source_state.as_ref()?.node.as_deref()
}

/// Whether the VMI reports that its guest has moved to another VMI.
pub(super) fn has_sent(vmi: &VirtualMachineInstance) -> bool {
    let state = migration_state(vmi).filter(|state| state.between() == Some(Between::Sends));
    state.is_some_and(|state| state.completed == Some(true) && state.failed != Some(true))
}

pub(super) fn phase(vmi: &VirtualMachineInstance) -> &str {
    vmi.phase().map_or("unset", Phase::as_str)
}

pub(super) fn name(vmi: &VirtualMachineInstance) -> &str {
    vmi.metadata.name.as_deref().unwrap_or_default()
}

/// The VM that controls the VMI, if it exists.
pub(super) fn owner_vm<'a>(server: &'a Server, vmi: &VirtualMachineInstance) -> Option<&'a Arc<VirtualMachine>> {
    let owner = machinery::meta::controller_of(&vmi.metadata)?;
    server.tables.vms.all().find(|vm| uid(&vm.metadata) == owner.uid)
}

/// Whether a Job has found that the guest of a migration had left its source; `None` without a result.
pub(super) fn job_said(server: &Server, migration: &Migration) -> Option<bool> {
    let changes = server.stream(Kind::Job).iter().rev().map(|&at| &server.log[at].last);
    changes.filter(|job| is_controlled_by(job.meta(), uid(&migration.metadata))).find_map(|job| {
        let Object::Job(job) = job else { return None };
        let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().find_map(|condition| match (condition.type_.as_str(), condition.reason.as_deref()) {
            ("Complete", _) => Some(true),
            ("Failed", Some("PodFailurePolicy")) => Some(false),
            _ => None,
        })
    })
}

/// Fails with a sentence unless it holds.
pub(super) fn ensure(holds: bool, message: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(message()) }
}

/// The start revision of the virtual machine that the instance names. An adopted one names an earlier machine's, or none; and
/// about one that is told to wait for a guest and has one, nothing is done before that is settled.
pub(super) fn own_revision(vm: &VirtualMachine, vmi: &VirtualMachineInstance) -> Option<String> {
    if vm.run_strategy() == Ok(RunStrategy::WaitAsReceiver) {
        return None;
    }
    let named = vmi.status.as_ref()?.virtual_machine_revision_name.clone()?;
    named.starts_with(&format!("revision-start-vm-{}-", uid(&vm.metadata))).then_some(named)
}
