use api::annotations::MIGRATION_SOURCE_GONE;
use api::conditions::{self, DECENTRALIZED_LIVE_MIGRATION_FAILURE};
use api::finalizers::MIGRATION_SYNCHRONIZATION;
use api::reasons::DECENTRALIZED_NOT_LIVE_MIGRATABLE;
use api::v1::VirtualMachineInstanceMigrationPhase as Phase;
use api::v1::{
    Condition, ConditionStatus, VirtualMachineInstance, VirtualMachineInstanceMigration as Migration,
    VirtualMachineInstanceMigrationState as State,
};

use super::action::{Action, Look};
use super::copy;
use super::world::{Peer, World, exchange, is_handed_off, state_of};
use crate::effect::Why;
use crate::guard::Guarded;
use crate::meta;
use crate::migration::{Kind, address, kind};
use crate::object::Kind as Of;

/// The other side, as far as it is known.
enum Other<'a> {
    Found(&'a Peer),
    /// It was known, and its migration no longer exists.
    Gone,
    /// It does not exist yet, or something is misconfigured: the message to report.
    Missing(String),
}

/// Decides what to do about one decentralized migration.
pub fn decide(w: &World) -> Vec<Action> {
    if kind(&w.migration) == Kind::Local {
        return vec![];
    }
    let ended = w.migration.is_final() || (meta::is_deleting(&w.migration.metadata) && w.vmi.is_none());
    // The guest of a sender that failed just as it was handed off is on its way: the outcome is still to be read.
    let leaving = w.vmi.as_deref().is_some_and(|vmi| awaits_outcome(vmi, &w.migration));
    // A peer that relies on this migration has to see how it ended.
    let read = || w.peers.iter().any(|peer| relies_on(peer, w.uid()));
    let mut actions: Vec<Action> = finalizer(w, !ended || leaving || read()).into_iter().collect();
    let Some(vmi) = w.vmi.as_deref() else { return actions };
    if ended && !leaving {
        let mut new = vmi.clone();
        if !is_anothers(w, vmi) {
            tell(w, &mut new, None);
        }
        actions.extend(patch(vmi, &new, "the migration has ended"));
        return actions;
    }
    let other = other(w);
    let mut new = vmi.clone();
    fetch(w, &other, &mut new);
    // Only the migration shown on the VMI writes to it: two that contradict each other would never converge.
    if w.state().is_some() {
        tell(w, &mut new, complaint(w, &other));
    }
    let write = patch(vmi, &new, "the state of the migration's other side has changed");
    let give_up = w.state().filter(|state| !state.is_over()).and_then(|_| lost(&other)).map(|because| {
        let why = Why { because: because.into(), on_failure: None };
        Action::delete(Of::Migration, &w.migration.metadata, why)
    });
    let live = !ended && !meta::is_deleting(&w.migration.metadata);
    let then: Vec<Action> = write.into_iter().chain(give_up.filter(|_| live)).collect();
    if !then.is_empty() {
        actions.push(Action::confirm(Look::CurrentMigrations, then));
    }
    actions
}

/// Whether the VMI shows another decentralized migration.
fn is_anothers(w: &World, vmi: &VirtualMachineInstance) -> bool {
    let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    let source = state.and_then(|state| state.source_state.as_ref()?.migration_uid.as_deref());
    let target = state.and_then(|state| state.target_state.as_ref()?.migration_uid.as_deref());
    let own = if w.sends() { source } else { target };
    (source.is_some() || target.is_some()) && own != Some(w.uid())
}

/// Whether the VMI of a sender shows that the guest was handed off, and not yet how that ended.
fn awaits_outcome(vmi: &VirtualMachineInstance, migration: &Migration) -> bool {
    let state = state_of(vmi, migration).filter(|_| kind(migration) == Kind::Sends && !vmi.is_final());
    state.is_some_and(|state| is_handed_off(state) && !state.is_over())
}

/// Whether the other side has met the migration with this UID, and has yet to see how it ends.
fn relies_on(peer: &Peer, uid: &str) -> bool {
    let awaits = |vmi: &VirtualMachineInstance| !peer.migration.is_final() || awaits_outcome(vmi, &peer.migration);
    if !peer.vmi.as_deref().is_some_and(awaits) {
        return false;
    }
    let state = peer.vmi.as_deref().and_then(|vmi| state_of(vmi, &peer.migration)).filter(|state| !state.is_over());
    let met = |state: &State| match kind(&peer.migration) {
        Kind::Sends => state.target_state.as_ref().and_then(|target| target.migration_uid.clone()),
        _ => state.source_state.as_ref().and_then(|source| source.migration_uid.clone()),
    };
    state.and_then(met).as_deref() == Some(uid)
}

/// Holds the migration until its peer has seen how it ended.
fn finalizer(w: &World, wanted: bool) -> Option<Action> {
    let mut new = w.migration.metadata.clone();
    match wanted {
        // Finalizers cannot be added to an object that is being deleted.
        true if meta::is_deleting(&new) => {}
        true => drop(meta::add_finalizer(&mut new, MIGRATION_SYNCHRONIZATION)),
        false => drop(meta::remove_finalizer(&mut new, MIGRATION_SYNCHRONIZATION)),
    }
    let patch = Guarded::new(&w.migration.metadata).finalizers(&new).build()?;
    Some(Action::patch(Of::Migration, meta::name(&w.migration.metadata), patch, Why::default()))
}

fn other(w: &World) -> Other<'_> {
    let known = w.state().and_then(|state| match w.sends() {
        true => state.target_state.as_ref()?.migration_uid.as_deref(),
        false => state.source_state.as_ref()?.migration_uid.as_deref(),
    });
    if let Some(uid) = known {
        return w
            .peers
            .iter()
            .find(|peer| meta::uid(&peer.migration.metadata) == uid)
            .map_or(Other::Gone, Other::Found);
    }
    let id = exchange(&w.migration).unwrap_or_default();
    let own = meta::namespace(&w.migration.metadata);
    let live = w.peers.iter().filter(|peer| !peer.migration.is_final() && !meta::is_deleting(&peer.migration.metadata));
    if let Some(send) = &w.migration.spec.send_to {
        let at = |peer: &&Peer| address(meta::namespace(&peer.migration.metadata)) == send.connect_url;
        let form = address("NAMESPACE");
        if !send.connect_url.starts_with(address("").as_str()) {
            return Other::Missing(format!(
                "spec.sendTo.connectURL {:?} is not an address in this cluster, and migration to other clusters is not supported: use \
                 {form:?} with the receiver's namespace, as status.synchronizationAddresses of the receiving migration says",
                send.connect_url
            ));
        }
        let receivers: Vec<&Peer> = live.filter(at).collect();
        return one(receivers, || {
            format!("found no migration with spec.receive.migrationID {id:?} at {:?}", send.connect_url)
        });
    }
    let here = |peer: &&Peer| {
        let to = peer.migration.spec.send_to.as_ref().map(|send| send.connect_url.as_str());
        to == Some(address(own).as_str())
    };
    one(live.filter(here).collect(), || {
        format!("found no migration with spec.sendTo.migrationID {id:?} and spec.sendTo.connectURL {:?}", address(own))
    })
}

fn one(found: Vec<&Peer>, none: impl FnOnce() -> String) -> Other<'_> {
    match found.as_slice() {
        [] => Other::Missing(none()),
        [peer] => Other::Found(peer),
        several => {
            let name = |peer: &&Peer| {
                let meta = &peer.migration.metadata;
                format!("{}/{}", meta::namespace(meta), meta::name(meta))
            };
            let names: Vec<String> = several.iter().map(name).collect();
            Other::Missing(format!(
                "several migrations of the other side have the same migrationID: {}; delete all but one",
                names.join(", ")
            ))
        }
    }
}

/// The problem with the other side to report to users.
fn complaint(w: &World, other: &Other<'_>) -> Option<String> {
    match other {
        Other::Missing(why) => Some(why.clone()),
        Other::Gone => None, // the migration is being aborted
        Other::Found(peer) if peer.vmi.is_none() && !peer.migration.is_final() => {
            let (meta, name) = (&peer.migration.metadata, peer.migration.spec.vmi_name.as_deref().unwrap_or_default());
            Some(format!("the other side's instance {}/{name} does not exist", meta::namespace(meta)))
        }
        Other::Found(peer) if w.sends() => {
            let vmi = peer.vmi.as_deref()?;
            let known = w.state().is_some_and(|state| state.target_node.is_some());
            (!vmi.receives() && !known).then(|| {
                let name = meta::name(&vmi.metadata);
                format!(
                    "VMI {name} of the other side already runs a guest; receive into a VM with runStrategy WaitAsReceiver"
                )
            })
        }
        Other::Found(_) => None,
    }
}

/// Why the migration must be aborted, if the other side was.
fn lost(other: &Other<'_>) -> Option<String> {
    let peer = match other {
        Other::Gone => return Some("the other side's migration is gone".to_owned()),
        Other::Missing(_) => return None,
        Other::Found(peer) => peer,
    };
    let name = meta::name(&peer.migration.metadata);
    match peer.migration.phase() {
        Some(Phase::Failed) => Some(format!("migration {name} of the other side has failed")),
        _ if meta::is_deleting(&peer.migration.metadata) && !peer.migration.is_final() => {
            Some(format!("migration {name} of the other side was deleted"))
        }
        _ => None,
    }
}

/// Copies the other side's state, or derives it from the other side's absence.
fn fetch(w: &World, other: &Other<'_>, new: &mut VirtualMachineInstance) {
    let Some(state) = w.state().filter(|state| !state.is_over()) else { return };
    if let Other::Found(peer) = other {
        let status = new.status_mut();
        match &w.migration.spec.send_to {
            // One that is being deleted must not start any more.
            Some(_) if meta::is_deleting(&w.migration.metadata) && !is_handed_off(state) => {}
            Some(send) => copy::from_receiver(status, peer, &send.connect_url),
            None => copy::from_sender(status, peer, &address(meta::namespace(&peer.migration.metadata))),
        }
    }
    if new.status_mut().migration_state.as_ref().is_some_and(State::is_over) || !is_handed_off(state) {
        return;
    }
    if w.sends() {
        receiver_is_gone(w, state, other, new);
    } else if sender_is_gone(state, other) {
        let marks = new.metadata.annotations.get_or_insert_default();
        marks.insert(MIGRATION_SOURCE_GONE.to_owned(), w.uid().to_owned());
    }
}

/// The sender's VMI has ended, is not the expected one, or virt-handler reports that its launcher is gone.
fn sender_is_gone(state: &State, other: &Other<'_>) -> bool {
    if state.end_timestamp.is_some() {
        return false;
    }
    let Other::Found(peer) = other else { return true };
    let known = state.source_state.as_ref().and_then(|source| source.virtual_machine_instance_uid.as_deref());
    let Some(vmi) = peer.vmi.as_deref().filter(|vmi| Some(meta::uid(&vmi.metadata)) == known) else { return true };
    let gone = meta::annotation(&vmi.metadata, MIGRATION_SOURCE_GONE);
    let failed = peer.migration.phase() == Some(&Phase::Failed);
    vmi.is_final() || failed || gone == Some(meta::uid(&peer.migration.metadata))
}

/// A VMI is removed only after its Pods, so no guest can be left. If the guest had arrived, its end was that VMI's own.
fn receiver_is_gone(w: &World, state: &State, other: &Other<'_>, new: &mut VirtualMachineInstance) {
    let known = state.target_state.as_ref().and_then(|target| target.virtual_machine_instance_uid.as_deref());
    let there = match other {
        Other::Found(peer) => peer.vmi.as_deref().is_some_and(|vmi| Some(meta::uid(&vmi.metadata)) == known),
        // Its VMI cannot be looked up without it; the migration controller has the sender's virt-handler report the
        // outcome.
        Other::Gone | Other::Missing(_) => true,
    };
    let Some(own) = new.status_mut().migration_state.as_mut().filter(|_| !there) else { return };
    own.completed = Some(true);
    own.start_timestamp.get_or_insert_with(|| w.now.clone());
    own.end_timestamp.get_or_insert_with(|| w.now.clone());
    let succeeded = matches!(other, Other::Found(peer) if peer.migration.phase() == Some(&Phase::Succeeded));
    if state.end_timestamp.is_none() && !succeeded {
        own.failed = Some(true);
        own.failure_reason.get_or_insert_with(|| "the receiving instance is gone".to_owned());
    }
}

/// Maintains the condition that says what the migration waits for.
fn tell(w: &World, vmi: &mut VirtualMachineInstance, complaint: Option<String>) {
    let type_ = DECENTRALIZED_LIVE_MIGRATION_FAILURE;
    let list = &mut vmi.status_mut().conditions;
    let Some(message) = complaint else {
        conditions::remove(list, type_);
        return;
    };
    let reason = DECENTRALIZED_NOT_LIVE_MIGRATABLE;
    match list.iter_mut().find(|old| old.type_ == type_) {
        Some(old) => old.message = Some(message),
        None => list.push(Condition::new(type_, ConditionStatus::True, reason, message, w.now.clone())),
    }
}

fn patch(old: &VirtualMachineInstance, new: &VirtualMachineInstance, because: &'static str) -> Option<Action> {
    let (before, after) = (old.status.as_ref()?, new.status.as_ref()?);
    let marks = new.metadata.annotations.clone().unwrap_or_default();
    let patch = Guarded::new(&old.metadata)
        .whole(&["status", "migrationState"], &before.migration_state, &after.migration_state)
        .whole(&["status", "conditions"], &before.conditions, &after.conditions)
        .whole(&["status", "migratedVolumes"], &before.migrated_volumes, &after.migrated_volumes)
        .field(&["status", "migrationMethod"], &before.migration_method, &after.migration_method)
        .field(&["status", "migrationTransport"], &before.migration_transport, &after.migration_transport)
        .annotations(&marks)
        .build();
    patch.map(|patch| Action::patch_at(Of::Vmi, &old.metadata, patch, because))
}
