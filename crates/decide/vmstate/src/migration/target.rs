//! The target launcher of a migration.

use std::time::Duration;

use api::conditions::{HOT_MEMORY_CHANGE, HOT_VCPU_CHANGE, MIGRATION_REQUIRED, VOLUMES_CHANGE, remove};
use api::v1::VirtualMachineInstancePhase as Phase;
use api::v1::{MigrationMode, VirtualMachineInstance, VirtualMachineInstanceMigrationState};
use api::{annotations, labels};

use super::{Endpoint, Migration, MigrationPhase, SOURCE_GONE, annotation, fail, has_failed, label, state_of, uid_of};
use crate::action::{normal, requeue, warning};
use crate::launcher::{Verdict, since};
use crate::shutdown::{kill, resend_in};
use crate::status::{set_phase, time};
use crate::{Action, ActionKind, DomainState, LauncherState, Network, World, volumes};

/// Attempts to prepare before the migration fails.
const ATTEMPTS: u32 = 6;
/// Why a guest in post-copy is lost.
const ORPHANED: &str = "source was lost before the memory transfer completed";
const TORN: &str = "guest ended on the target before the memory transfer completed";
/// Why a guest resumes on the source, if it has not been stopped there yet.
const DIED: &str = "QEMU died at the target as the guest arrived";
/// If a guest is here and does not start, or does not get the rest of its memory, for this long after its source is
/// gone, it never will.
const NEVER_STARTS: Duration = Duration::from_secs(10);
/// A guest that ran here for longer has had effects that its copy on the source knows nothing of: it is not resumed
/// there.
const BARELY_RAN: Duration = Duration::from_secs(10);

pub(crate) fn decide(w: &World<'_>, vmi: &VirtualMachineInstance) -> Vec<Action> {
    let Some(state) = state_of(vmi) else { return Vec::new() };
    let owner = match vmi.receives() {
        // The label was set with the Pod, before the guest arrived.
        true => state.end_timestamp.is_some() && !has_failed(state),
        false => label(vmi, labels::NODE_NAME) == Some(w.node_name),
    };
    // A guest that has arrived is shut down gracefully by its owner, so this node takes ownership first.
    let stopped = vmi.is_marked_for_deletion() && !owner && !has_arrived(w, state);
    if has_failed(state) || vmi.is_final() || stopped {
        return give_up(w, vmi);
    }
    if owner {
        return finish(w, vmi, state);
    }
    match w.launcher.verdict(w.now) {
        Verdict::NotInitialised => vec![requeue(1, "the launcher is not ready yet")],
        Verdict::Silent => vec![requeue(1, "the launcher does not answer")],
        Verdict::Gone => report_failure(w, vmi, "the launcher of the migration's target is gone"),
        Verdict::Connected(launcher) => {
            let migration = launcher.migration.as_ref().filter(|migration| migration.uid == uid_of(state));
            match migration {
                None => prepare(w, vmi, state),
                Some(migration) => receive(w, vmi, state, launcher, migration),
            }
        }
    }
}

fn has_arrived(w: &World<'_>, state: &VirtualMachineInstanceMigrationState) -> bool {
    let Verdict::Connected(launcher) = w.launcher.verdict(w.now) else { return false };
    let migration = launcher.migration.as_ref().filter(|migration| migration.uid == uid_of(state));
    migration.is_some_and(|migration| migration.phase == MigrationPhase::Completed)
}

fn prepare(w: &World<'_>, vmi: &VirtualMachineInstance, state: &VirtualMachineInstanceMigrationState) -> Vec<Action> {
    if let Some(why) = cannot(w, &[ActionKind::ConfigureNetwork, ActionKind::PrepareTarget]) {
        return report_failure(w, vmi, &why);
    }
    if source_is_gone(vmi, state) {
        return report_failure(w, vmi, "the source of the migration is gone");
    }
    match w.network {
        Network::Pending => vec![Action::ConfigureNetwork],
        Network::Interrupted => {
            let why = "virt-handler restarted while it set up the network of the target Pod";
            report_failure(w, vmi, why)
        }
        Network::Finished(_) if let Some(waiting) = volumes::before_arrival(w, vmi) => match volumes::hopeless(w) {
            Some(why) => report_failure(w, vmi, why),
            None => waiting,
        },
        Network::Finished(_) => vec![Action::PrepareTarget { uid: uid_of(state).to_owned() }],
    }
}

fn cannot(w: &World<'_>, actions: &[ActionKind]) -> Option<String> {
    let failure = w.failure.filter(|failure| actions.contains(&failure.action))?;
    (failure.critical || failure.count >= ATTEMPTS).then(|| failure.message.clone())
}

fn source_is_gone(vmi: &VirtualMachineInstance, state: &VirtualMachineInstanceMigrationState) -> bool {
    annotation(vmi, SOURCE_GONE) == Some(uid_of(state))
}

fn receive(
    w: &World<'_>,
    vmi: &VirtualMachineInstance,
    state: &VirtualMachineInstanceMigrationState,
    launcher: &LauncherState,
    migration: &Migration,
) -> Vec<Action> {
    let orphaned = source_is_gone(vmi, state);
    match migration.phase {
        MigrationPhase::Completed if died_on_arrival(w, launcher, migration) => {
            return report_failure(w, vmi, DIED);
        }
        MigrationPhase::Completed => return take_over(w, vmi),
        MigrationPhase::Failed if was_torn(launcher, migration) => {
            return report_failure(w, vmi, if orphaned { ORPHANED } else { TORN });
        }
        MigrationPhase::Failed if died_on_arrival(w, launcher, migration) => return report_failure(w, vmi, DIED),
        // It arrived and has ended since: this launcher reports how.
        MigrationPhase::Failed if launcher.domain.is_some() => return take_over(w, vmi),
        MigrationPhase::Failed => return report_failure(w, vmi, "guest ended on arrival"),
        _ => {}
    }
    if orphaned {
        return nobody_sends(w, vmi, launcher);
    }
    let fetches = migration.phase == MigrationPhase::Transferring;
    let Some(here) = w.proxy.listening else {
        // A guest that runs here is not stopped because of a missing proxy that it may never need.
        return match cannot(w, &[ActionKind::OpenTargetProxy]).filter(|_| !fetches) {
            Some(why) => report_failure(w, vmi, &why),
            None => vec![Action::OpenTargetProxy],
        };
    };
    if fetches {
        return detected(w, vmi, here);
    }
    let mut actions = publish(vmi, here);
    actions.push(requeue(30, "the guest has not come yet"));
    actions
}

fn ended_by_itself(domain: &DomainState) -> bool {
    transfer::ended_by_itself((domain.status, domain.reason))
}

/// Whether QEMU ended, or was killed, while parts of the guest's memory were still on the source.
fn was_torn(launcher: &LauncherState, migration: &Migration) -> bool {
    migration.mode == Some(MigrationMode::PostCopy)
        && launcher.domain.as_ref().is_some_and(|domain| !ended_by_itself(domain))
}

/// Whether QEMU died right after it started the guest. The guest's arrival was not announced, and the source stops its
/// copy only after that: if it did not, the guest is still complete there.
fn died_on_arrival(w: &World<'_>, launcher: &LauncherState, migration: &Migration) -> bool {
    let Some(domain) = launcher.domain.as_ref().filter(|domain| domain.is_down()) else { return false };
    let noticed = w.launcher.state.map_or(w.now, |(_, at)| at);
    let ran = migration.ended_at.map(|arrived| since(arrived, noticed)).unwrap_or_default();
    let post_copy = migration.mode == Some(MigrationMode::PostCopy);
    !post_copy && !ended_by_itself(domain) && (migration.phase == MigrationPhase::Failed || ran <= BARELY_RAN)
}

/// Nothing is left to send or start the guest: either it is here, or it is lost.
fn nobody_sends(w: &World<'_>, vmi: &VirtualMachineInstance, launcher: &LauncherState) -> Vec<Action> {
    if launcher.domain.as_ref().is_none_or(|domain| domain.is_down()) {
        return report_failure(w, vmi, "source was lost before the guest arrived");
    }
    let unchanged = w.launcher.state.map(|(_, at)| since(at, w.now)).unwrap_or_default();
    match NEVER_STARTS.checked_sub(unchanged).filter(|left| !left.is_zero()) {
        Some(delay) => vec![Action::RequeueAfter { delay, because: "the guest may be about to run" }],
        None => kill(w, "source was lost before the memory transfer completed"),
    }
}

/// Publishes where the source node can connect.
fn publish(vmi: &VirtualMachineInstance, here: &Endpoint) -> Vec<Action> {
    let mut new = vmi.status.clone().unwrap_or_default();
    let Some(state) = new.migration_state.as_mut() else { return Vec::new() };
    let known = state.target_node_address.as_ref() == Some(&here.address)
        && state.target_direct_migration_node_ports == here.ports;
    if known {
        return Vec::new();
    }
    note_address(state, here);
    let message = format!("Migration Target is listening at {}, on ports: {}", here.address, ports(here));
    vec![Action::UpdateStatus(Box::new(new)), normal("PreparingTarget", message)]
}

fn note_address(state: &mut VirtualMachineInstanceMigrationState, here: &Endpoint) {
    state.target_node_address = Some(here.address.clone());
    state.target_direct_migration_node_ports = here.ports.clone();
    let side = state.target_state.get_or_insert_default();
    side.node_address = Some(here.address.clone());
    side.direct_migration_node_ports = here.ports.clone();
}

fn ports(here: &Endpoint) -> String {
    here.ports.keys().cloned().collect::<Vec<_>>().join(",")
}

/// Post-copy: the guest runs here while part of its memory is on the source. The proxy stays open, and is reopened
/// after a restart of virt-handler: if the connection breaks, the source reconnects.
fn detected(w: &World<'_>, vmi: &VirtualMachineInstance, here: &Endpoint) -> Vec<Action> {
    let mut new = vmi.status.clone().unwrap_or_default();
    let waiting = requeue(5, "the guest fetches the rest of its memory");
    let Some(state) = new.migration_state.as_mut() else { return vec![waiting] };
    note_arrival(state, w);
    note_address(state, here);
    if vmi.status.as_ref() == Some(&new) {
        return vec![waiting];
    }
    vec![Action::UpdateStatus(Box::new(new)), waiting]
}

fn note_arrival(state: &mut VirtualMachineInstanceMigrationState, w: &World<'_>) {
    let now = time(w.now);
    state.target_node_domain_detected = Some(true);
    let ready = state.target_node_domain_ready_timestamp.get_or_insert(now).clone();
    let side = state.target_state.get_or_insert_default();
    side.domain_detected = Some(true);
    side.domain_ready_timestamp.get_or_insert(ready);
}

/// The single write that takes over ownership of the guest.
fn take_over(w: &World<'_>, vmi: &VirtualMachineInstance) -> Vec<Action> {
    let mut new = vmi.clone();
    let names = new.metadata.labels.get_or_insert_default();
    names.insert(labels::NODE_NAME.to_owned(), w.node_name.to_owned());
    names.remove(labels::OUTDATED_LAUNCHER_IMAGE);
    if let Some(notes) = &mut new.metadata.annotations {
        notes.remove(annotations::EVICTION_SOURCE);
    }
    let status = new.status_mut();
    status.node_name = Some(w.node_name.to_owned());
    status.launcher_container_image_version = None;
    status.evacuation_node_name = None;
    status.migration_transport = Some("Unix".to_owned());
    remove(&mut status.conditions, MIGRATION_REQUIRED);
    if vmi.receives() {
        set_phase(status, &Phase::Running, w.now);
    }
    let mut overhead = None;
    if let Some(state) = &mut status.migration_state {
        note_arrival(state, w);
        let now = time(w.now);
        state.start_timestamp.get_or_insert_with(|| now.clone());
        state.end_timestamp.get_or_insert(now);
        overhead = state.target_memory_overhead.clone();
    }
    if let (Some(overhead), Some(memory)) = (overhead, &mut status.memory) {
        memory.memory_overhead = Some(overhead);
    }
    let message = format!("The VirtualMachineInstance migrated to node {}.", w.node_name);
    vec![Action::UpdateVmi(Box::new(new)), normal("Migrated", message)]
}

/// This node owns the guest: does the remaining work, and completes the migration.
fn finish(w: &World<'_>, vmi: &VirtualMachineInstance, state: &VirtualMachineInstanceMigrationState) -> Vec<Action> {
    let mut actions = Vec::new();
    let alive = match w.launcher.verdict(w.now) {
        Verdict::Connected(launcher) => launcher.domain.as_ref().is_some_and(|domain| !domain.is_down()),
        Verdict::Silent => return vec![requeue(1, "the launcher does not answer")],
        Verdict::NotInitialised | Verdict::Gone => false,
    };
    let tried = w.failure.is_some_and(|failure| match failure.action {
        ActionKind::FinalizeTarget => failure.count >= ATTEMPTS,
        // The launcher was already told in the pass whose write failed; only the write is retried.
        action => action == ActionKind::UpdateVmi,
    });
    if alive && !tried && !state.is_over() {
        actions.push(Action::FinalizeTarget { uid: uid_of(state).to_owned() });
    }
    let mut new = vmi.clone();
    let unplugged = [HOT_VCPU_CHANGE, HOT_MEMORY_CHANGE].into_iter().any(|change| vmi.has_condition(change));
    forget_changes(&mut new);
    if let Some(state) = &mut new.status_mut().migration_state {
        state.completed = Some(true);
    }
    actions.push(Action::UpdateVmi(Box::new(new)));
    if unplugged {
        let message = "added CPUs or memory were not hotplugged into the migrated guest; restart the VM to use them";
        actions.push(warning("HotplugFailed", message));
    }
    actions
}

/// Removes the conditions and annotations that the migration has fulfilled or left behind.
fn forget_changes(vmi: &mut VirtualMachineInstance) {
    if let Some(names) = &mut vmi.metadata.labels {
        for name in [labels::MIGRATION_TARGET_NODE_NAME, labels::VMI_POD_CPU_LIMITS, labels::VMI_POD_MEMORY_REQUESTS] {
            names.remove(name);
        }
    }
    if let Some(notes) = &mut vmi.metadata.annotations {
        notes.remove(annotations::CREATE_MIGRATION_TARGET);
        notes.remove(SOURCE_GONE);
    }
    let status = vmi.status_mut();
    status.migrated_volumes.clear();
    for change in [HOT_VCPU_CHANGE, HOT_MEMORY_CHANGE, VOLUMES_CHANGE] {
        remove(&mut status.conditions, change);
    }
}

/// Records that the migration has failed here. Only if nothing of the guest is, or can be, running here.
fn report_failure(w: &World<'_>, vmi: &VirtualMachineInstance, why: &str) -> Vec<Action> {
    let mut new = vmi.status.clone().unwrap_or_default();
    let Some(state) = new.migration_state.as_mut() else { return Vec::new() };
    fail(state, why, w.now);
    vec![
        Action::UpdateStatus(Box::new(new)),
        warning("Migrated", format!("Migration failed on the target node: {why}.")),
    ]
}

/// The migration has failed, or there is nothing left to migrate: stops what is here, then releases the VMI.
fn give_up(w: &World<'_>, vmi: &VirtualMachineInstance) -> Vec<Action> {
    let mut actions = Vec::new();
    if let Verdict::Connected(launcher) = w.launcher.verdict(w.now) {
        if launcher.domain.as_ref().is_some_and(|domain| !domain.is_down()) {
            return kill(w, "the migration that brought it has failed");
        }
        let waiting = "the launcher is about to end";
        match resend_in(w.sent.delete, w.now) {
            Some(delay) => actions.push(Action::RequeueAfter { delay, because: waiting }),
            None => actions.push(Action::Delete { because: "the migration to this node was canceled" }),
        }
    }
    if w.proxy.is_open() {
        actions.push(Action::CloseProxies);
    }
    let mut new = vmi.clone();
    if let Some(names) = &mut new.metadata.labels {
        names.remove(labels::MIGRATION_TARGET_NODE_NAME);
    }
    if let Some(notes) = &mut new.metadata.annotations {
        notes.remove(SOURCE_GONE);
    }
    actions.push(Action::UpdateVmi(Box::new(new)));
    actions
}
