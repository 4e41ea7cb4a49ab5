//! Applies changes of the VM to the running VMI, and values chosen for the VMI back to the template.
//!
//! Each step works on drafts of the VM and its VMI; at the end each draft that differs becomes one guarded patch,
//! however many steps contributed to it. A step that cannot continue stops those after it, and its reason becomes the
//! VM's condition `Failure`.
//!
//! Volumes are hot-plugged by patching the VMI and not through its subresources: those make the same patch with weaker
//! guards, and virt-api would have to be up for a guest to keep its disks.

mod compute;
mod metadata;
mod network;
mod placement;
mod volumes;

use std::time::Duration;

use api::reasons;
use api::v1::{VirtualMachine, VirtualMachineInstance, VirtualMachineSpec};
use json_patch::Patch;

use super::action::{Action, BOOKKEEPING, patch_vm, shown_as};
use super::decide::Plan;
use super::restart_required::{self, Restart};
use super::world::World;
use super::{memory_dump, revision};
use crate::guard::Guarded;
use crate::object::Kind;
use crate::{Note, SyncError, meta};

pub(super) use volumes::is_done;

/// How often to check a VMI whose migration delays a change.
const WHILE_MIGRATING: Duration = Duration::from_secs(5);

/// The drafts that the steps work on.
pub(super) struct Draft {
    pub(super) spec: VirtualMachineSpec,
    /// The VMI, unless it is being deleted.
    pub(super) vmi: Option<VirtualMachineInstance>,
    /// Annotations for claims.
    pub(super) claims: Vec<Action>,
    /// A change that requires a restart.
    pub(super) restart: Option<String>,
}

/// Why a step cannot continue.
pub(super) type Obstacle = String;

type Step = fn(&World, &mut Draft) -> Result<(), Obstacle>;

/// Run in every pass, in this order.
const ALWAYS: [(Step, &str); 6] = [
    (network::sync, reasons::HOT_PLUG_NETWORK_INTERFACE_ERROR),
    (volumes::requested, reasons::HOT_PLUG_VOLUME_ERROR),
    (volumes::declared, reasons::HOT_PLUG_VOLUME_ERROR),
    (memory_dump::carry_on, reasons::MEMORY_DUMP_ERROR),
    (metadata::to_instance, reasons::ANNOTATIONS_LABELS_CHANGE_ERROR),
    (metadata::to_template, reasons::ANNOTATIONS_LABELS_CHANGE_ERROR),
];

/// Run after those, if the cluster enables live updates and this guest needs no restart.
const LIVE: [(Step, &str); 4] = [
    (compute::cpu, reasons::HOT_PLUG_CPU_ERROR),
    (placement::affinity, reasons::AFFINITY_CHANGE_ERROR),
    (placement::tolerations, reasons::TOLERATIONS_CHANGE_ERROR),
    (compute::memory, reasons::HOT_PLUG_MEMORY_ERROR),
];

/// Adds the necessary changes to the plan.
pub(super) fn update(w: &World, plan: &mut Plan) {
    let mut draft = Draft { spec: w.vm.spec.clone(), vmi: w.living_instance().cloned(), claims: vec![], restart: None };
    if let Some(vmi) = &mut draft.vmi
        && let Some(started) = revision::started_from(w, vmi)
    {
        revision::bump(w, &started, vmi);
        plan.restart = restart_required::judge(w, vmi, &started);
        plan.actions.extend(revision::drop_earlier(w, vmi));
    }
    let begun = draft.vmi.clone();
    let mut reason = BOOKKEEPING;
    let mut stopped = run(w, &ALWAYS, &mut draft, begun.as_ref(), &mut reason);
    if stopped.is_none() && is_live(w, plan) {
        stopped = run(w, &LIVE, &mut draft, begun.as_ref(), &mut reason);
    }
    if let Some(message) = draft.restart.take() {
        plan.restart = Restart::Required(message);
    }
    plan.actions.append(&mut draft.claims);
    plan.actions.extend(patches(w, &draft, reason));
    if let Some(error) = stopped {
        fail(w, plan, error);
    }
}

/// Runs steps until one fails. `reason` becomes that of the first step that changes anything; `begun` is the VMI before all
/// steps.
fn run(
    w: &World,
    steps: &[(Step, &'static str)],
    draft: &mut Draft,
    begun: Option<&VirtualMachineInstance>,
    reason: &mut &'static str,
) -> Option<SyncError> {
    for (step, own) in steps {
        if let Err(obstacle) = step(w, draft) {
            return Some(SyncError::new(own, obstacle));
        }
        // Until then nothing has changed, so the beginning is what the draft was before this step.
        if *reason == BOOKKEEPING && (draft.spec != w.vm.spec || draft.vmi.as_ref() != begun) {
            *reason = own;
        }
    }
    None
}

/// A restart applies all changes at once; while one is required, no live update is made.
fn is_live(w: &World, plan: &Plan) -> bool {
    let said = || w.vm.condition(api::conditions::RESTART_REQUIRED).is_some_and(|condition| condition.is_true());
    let restart = match &plan.restart {
        Restart::Unknown => said(),
        Restart::No => false,
        Restart::Required(_) => true,
    };
    w.config.is_live_update() && !restart && w.living_instance().is_some()
}

fn fail(w: &World, plan: &mut Plan, error: SyncError) {
    if !super::decide::is_told(w, &error) {
        plan.actions.push(Action::Note(Note::warning(&error.reason, error.message.clone())));
    }
    if w.living_instance().is_some_and(|vmi| w.is_migrating(vmi)) {
        plan.actions.push(Action::RequeueAfter(WHILE_MIGRATING));
    }
    plan.error = Some(error);
}

/// The VMI first: a template that is ahead of it would look like a change to revert.
fn patches(w: &World, draft: &Draft, reason: &'static str) -> Vec<Action> {
    let vmi = w.living_instance().zip(draft.vmi.as_ref());
    let of_instance = vmi.and_then(|(old, new)| {
        let name = meta::name(&old.metadata);
        Some(Action::patch(Kind::Vmi, name, instance_patch(old, new)?, shown_as(reason)))
    });
    let of_machine = machine_patch(&w.vm, &draft.spec);
    let of_machine = of_machine.map(|patch| patch_vm(&w.vm, patch, reasons::FAILED_UPDATE_ERROR));
    of_instance.into_iter().chain(of_machine).collect()
}

fn instance_patch(old: &VirtualMachineInstance, new: &VirtualMachineInstance) -> Option<Patch> {
    let noted = new.metadata.annotations.clone().unwrap_or_default();
    let (old_spec, new_spec) = (&old.spec, &new.spec);
    let (old_domain, new_domain) = (&old_spec.domain, &new_spec.domain);
    let (old_devices, new_devices) = (&old_domain.devices, &new_domain.devices);
    Guarded::new(&old.metadata)
        .labels(&new.metadata)
        .annotations(&noted)
        .whole(&["spec", "networks"], &old_spec.networks, &new_spec.networks)
        .whole(&["spec", "domain", "devices", "interfaces"], &old_devices.interfaces, &new_devices.interfaces)
        .whole(&["spec", "volumes"], &old_spec.volumes, &new_spec.volumes)
        .whole(&["spec", "domain", "devices", "disks"], &old_devices.disks, &new_devices.disks)
        .whole(&["spec", "domain", "cpu"], &old_domain.cpu, &new_domain.cpu)
        .whole(&["spec", "domain", "memory"], &old_domain.memory, &new_domain.memory)
        .whole(&["spec", "domain", "resources"], &old_domain.resources, &new_domain.resources)
        .whole(&["spec", "nodeSelector"], &old_spec.node_selector, &new_spec.node_selector)
        .whole(&["spec", "affinity"], &old_spec.affinity, &new_spec.affinity)
        .whole(&["spec", "tolerations"], &old_spec.tolerations, &new_spec.tolerations)
        .build()
}

fn machine_patch(vm: &VirtualMachine, new: &VirtualMachineSpec) -> Option<Patch> {
    let (old, new) = (&vm.spec.template, &new.template);
    let (old_spec, new_spec) = (&old.spec, &new.spec);
    let (old_devices, new_devices) = (&old_spec.domain.devices, &new_spec.domain.devices);
    let path = |rest: &[&'static str]| [&["spec", "template"], rest].concat();
    Guarded::new(&vm.metadata)
        .whole(&path(&["metadata"]), &old.metadata, &new.metadata)
        .whole(&path(&["spec", "networks"]), &old_spec.networks, &new_spec.networks)
        .whole(&path(&["spec", "domain", "devices", "interfaces"]), &old_devices.interfaces, &new_devices.interfaces)
        .whole(&path(&["spec", "volumes"]), &old_spec.volumes, &new_spec.volumes)
        .whole(&path(&["spec", "domain", "devices", "disks"]), &old_devices.disks, &new_devices.disks)
        .build()
}
