//! Decentralized migrations, between two VMIs: one sends its guest, the other one, in another namespace or with another
//! name, receives it.
//!
//! Each side has a migration object of its own, and each VMI reports its side in `status.migrationState`: the sender
//! writes `sourceState`, the receiver `targetState`. [`synchronization`](crate::synchronization) copies them to the
//! other side. `migrationUid` holds the UID of the VMI's own migration, and virt-handler does nothing before it is set:
//! the sender sets it when both sides know each other, the receiver with its hand-off.

use std::collections::BTreeMap;

use api::v1::VirtualMachineInstanceMigrationSourceState as SourceState;
use api::v1::VirtualMachineInstanceMigrationTargetState as TargetState;
use api::v1::{
    Between, VirtualMachineInstance, VirtualMachineInstanceMigration as Migration,
    VirtualMachineInstanceMigrationState as State,
};
use api::{annotations, labels, reasons};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;

use super::action::patch_vmi;
use super::kinds::{self, Kind};
use super::side::Side;
use super::sync::{Sync, Waiting};
use super::world::World;
use super::{policy, start};
use crate::guard::Guarded;
use crate::{meta, pods};

/// The address of the receivers in a namespace. Other clusters cannot be reached, so an address names a namespace of
/// this cluster, and nobody in a third namespace can interpose a receiver.
pub fn address(namespace: &str) -> String {
    format!("this-cluster/{namespace}")
}

pub(super) fn source_of(vmi: &VirtualMachineInstance) -> Option<&SourceState> {
    vmi.status.as_ref()?.migration_state.as_ref()?.source_state.as_ref()
}

/// The source node of a migration. A receiver's VMI has none before the guest arrives.
pub fn source_node<'a>(migration: &Migration, vmi: &'a VirtualMachineInstance) -> Option<&'a str> {
    let node = match kinds::kind(migration) {
        Kind::Receives => source_of(vmi)?.node.as_deref(),
        Kind::Local | Kind::Sends => vmi.status.as_ref()?.node_name.as_deref(),
    };
    node.filter(|node| !node.is_empty())
}

/// Whether the receiver has taken over the guest. From now on the guest's fate is the VMI's own; ending the attempt
/// would leave a running VMI that belongs to nobody.
pub(super) fn has_received(w: &World) -> bool {
    let taken = |state: &State| state.end_timestamp.is_some() && state.failed != Some(true);
    w.kind() == Kind::Receives && w.own_state().is_some_and(taken)
}

/// Whether the VMI shows this migration as its side of a decentralized migration.
pub(super) fn is_introduced(w: &World) -> bool {
    w.vmi.as_deref().is_some_and(|vmi| is_introduced_to(w, vmi))
}

pub(super) fn is_introduced_to(w: &World, vmi: &VirtualMachineInstance) -> bool {
    let Some(state) = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref()) else { return false };
    let own = match w.kind() {
        Kind::Sends => state.source_state.as_ref().and_then(|source| source.migration_uid.as_deref()),
        Kind::Receives => state.target_state.as_ref().and_then(|target| target.migration_uid.as_deref()),
        Kind::Local => None,
    };
    let free = state.migration_uid.as_deref().is_none_or(|owner| owner.is_empty() || owner == w.uid());
    own == Some(w.uid()) && free
}

/// Whether the instance waits for a guest, and has none of its own.
pub(super) fn is_receiver(vmi: &VirtualMachineInstance) -> bool {
    vmi.receives() && !vmi.is_running()
}

pub(super) fn has_a_guest() -> Waiting {
    let message = "VMI already runs a guest; receive into a VM with runStrategy WaitAsReceiver";
    Waiting::new(reasons::INSTANCE_NOT_RECEIVING, message)
}

/// Whether another migration has sent the guest elsewhere. The VMI's migration state is all that keeps the guest from
/// being started here again.
pub(super) fn has_sent(migration: &Migration, vmi: &VirtualMachineInstance) -> bool {
    let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    state.is_some_and(|state| {
        let gone = state.completed == Some(true) && state.failed != Some(true);
        gone && state.between() == Some(Between::Sends) && !kinds::owns(migration, Some(state))
    })
}

/// Blocks sending a guest that is about to migrate to another node: only one migration at a time.
fn moves_first(w: &World) -> Option<Sync> {
    let local = |other: &&Migration| kinds::kind(other) == Kind::Local && kinds::is_running(other);
    let other = w.siblings.iter().map(AsRef::as_ref).find(local)?;
    let message = format!("migration {} moves the guest to another node first", meta::name(&other.metadata));
    let wait = Sync::waiting(reasons::OTHER_MIGRATION_ACTIVE, message);
    Some(wait.again(start::patience(w), kinds::spec_priority(&w.migration)))
}

/// Shows the migration on its VMI, replacing the state of an earlier one. Then it waits for the other side to show
/// itself.
pub(super) fn introduce(w: &World, vmi: &VirtualMachineInstance) -> Sync {
    let message = match w.kind() {
        Kind::Sends => "the receiver has not connected yet",
        _ => "waiting for the sender to report the source node and Pod",
    };
    let waiting = Sync::waiting(reasons::WAITING_FOR_OTHER_SIDE, message);
    if w.kind() == Kind::Receives && !is_receiver(vmi) {
        return Sync { waiting: Some(has_a_guest()), ..Sync::default() };
    }
    if is_introduced(w) || w.is_deleting() || has_sent(&w.migration, vmi) {
        return waiting;
    }
    if let Some(wait) = moves_first(w) {
        return wait;
    }
    let (name, namespace) = (meta::name(&vmi.metadata).to_owned(), meta::namespace(&vmi.metadata).to_owned());
    let (instance, own) = (Some(meta::uid(&vmi.metadata).to_owned()), Some(w.uid().to_owned()));
    let (mut source_state, mut target_state) = (None, TargetState::default());
    if let Some(send) = &w.migration.spec.send_to {
        source_state = Some(SourceState {
            migration_uid: own,
            virtual_machine_instance_uid: instance,
            domain_name: Some(name),
            domain_namespace: Some(namespace),
            ..SourceState::default()
        });
        target_state.sync_address = Some(send.connect_url.clone());
    } else {
        target_state = TargetState {
            migration_uid: own,
            virtual_machine_instance_uid: instance,
            domain_name: Some(name),
            domain_namespace: Some(namespace),
            ..TargetState::default()
        };
    }
    let old = w.state().cloned();
    let new = State { source_state, target_state: Some(target_state), ..State::default() };
    let patch = Guarded::new(&vmi.metadata).whole(&["status", "migrationState"], &old, &Some(new)).build();
    let because = "the other side needs this instance's name and UID";
    Sync { actions: patch.map(|patch| patch_vmi(vmi, patch, because)).into_iter().collect(), ..waiting }
}

/// The sender publishes what a receiver needs to prepare; from now on its node may send.
pub(super) fn publish(w: &World, vmi: &VirtualMachineInstance) -> Sync {
    let waiting = Sync::waiting(reasons::WAITING_FOR_OTHER_SIDE, "the receiver prepares a Pod for the guest");
    if w.own_state().is_some() || !vmi.is_running() {
        return waiting;
    }
    if !is_introduced(w) {
        return introduce(w, vmi); // the guest has moved to another node since
    }
    if let Some(wait) = moves_first(w) {
        return wait;
    }
    let (Some(old), Some(pod)) = (w.state(), w.source().filter(|pod| !pods::is_down(pod))) else {
        // Nothing wakes the migration when the cache has the Pod, which is not one of its own.
        let waiting = Sync::waiting(reasons::WAITING_FOR_OTHER_SIDE, "source Pod not found yet");
        return waiting.again(start::patience(w), kinds::spec_priority(&w.migration));
    };
    let node = vmi.status.as_ref().and_then(|status| status.node_name.as_deref());
    let known = w.nodes.iter().find(|known| Some(meta::name(&known.metadata)) == node);
    let labels = known.and_then(|node| node.metadata.labels.clone()).unwrap_or_default();
    let namespace = w.namespace.as_ref().and_then(|namespace| namespace.metadata.labels.clone()).unwrap_or_default();
    let own = vmi.metadata.labels.clone().unwrap_or_default();
    let policy = policy::best(w.policies.iter().map(AsRef::as_ref), &own, &namespace);
    let mut new = old.clone();
    new.migration_uid = Some(w.uid().to_owned());
    Side::running(vmi, pod).set_source(&mut new);
    new.migration_policy_name = policy.map(|policy| meta::name(&policy.metadata).to_owned());
    new.migration_configuration = Some(policy::overlay(&w.config.migrations(), policy));
    let source = new.source_state.get_or_insert_default();
    source.node = new.source_node.clone();
    source.pod = new.source_pod.clone();
    source.selinux_context = vmi.status.as_ref().and_then(|status| status.selinux_context.clone());
    source.node_selectors = about_cpu(labels);
    let (old, new) = (Some(old.clone()), Some(new));
    let patch = Guarded::new(&vmi.metadata).whole(&["status", "migrationState"], &old, &new).build();
    let because = "the receiver needs the guest's node and Pod";
    Sync { actions: patch.map(|patch| patch_vmi(vmi, patch, because)).into_iter().collect(), ..waiting }
}

/// The labels that the receiver's node must have in common with this one.
fn about_cpu(labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let prefixes =
        [labels::HOST_MODEL_CPU_PREFIX, labels::HOST_MODEL_REQUIRED_FEATURES_PREFIX, labels::CPU_VENDOR_PREFIX];
    labels.into_iter().filter(|(label, _)| prefixes.iter().any(|prefix| label.starts_with(prefix))).collect()
}

/// The migration state for the receiver's hand-off: what the sender has published, and the Pod that is ready.
pub(super) fn handed_off(w: &World, vmi: &VirtualMachineInstance, target: &Pod) -> Option<State> {
    let old = vmi.status.as_ref()?.migration_state.as_ref()?;
    if old.completed == Some(true) || old.failed == Some(true) {
        return None; // the sender has given up in the meantime
    }
    let source = Side::published(old.source_state.as_ref()?)?;
    let namespace = w.namespace.as_ref().and_then(|namespace| namespace.metadata.labels.clone()).unwrap_or_default();
    let own = vmi.metadata.labels.clone().unwrap_or_default();
    let policy = policy::best(w.policies.iter().map(AsRef::as_ref), &own, &namespace);
    let overhead = meta::annotation(&target.metadata, annotations::MEMORY_OVERHEAD_BYTES);
    let mut new = State {
        migration_uid: Some(w.uid().to_owned()),
        target_memory_overhead: overhead.map(|bytes| Wire(bytes.to_owned())),
        migration_policy_name: policy.map(|policy| meta::name(&policy.metadata).to_owned()),
        migration_configuration: Some(policy::overlay(&w.config.migrations(), policy)),
        ..old.clone()
    };
    source.set_source(&mut new);
    Side::receiving(target).set_target(&mut new);
    let side = new.target_state.get_or_insert_default();
    side.node = new.target_node.clone();
    side.pod = new.target_pod.clone();
    Some(new)
}
