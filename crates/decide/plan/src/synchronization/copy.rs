//! Copies state from one side of a decentralized migration to the other.

use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigrationState as State, VirtualMachineInstanceStatus};

use super::world::{Peer, is_handed_off, state_of};

/// Copies the sender's published state to the receiver.
pub(super) fn from_sender(new: &mut VirtualMachineInstanceStatus, peer: &Peer, address: &str) {
    let Some((theirs, state)) = told(peer) else { return };
    let Some(own) = new.migration_state.as_mut().filter(|own| !own.is_over()) else { return };
    own.source_state.clone_from(&state.source_state);
    if let Some(source) = &mut own.source_state {
        source.sync_address = Some(address.to_owned());
    }
    if is_handed_off(own) {
        own.start_timestamp = own.start_timestamp.take().or_else(|| state.start_timestamp.clone());
        own.mode = state.mode.clone().or_else(|| own.mode.take());
        own.abort_status = state.abort_status.clone().or_else(|| own.abort_status.take());
    }
    // A guest that has arrived is not taken back.
    if state.failed == Some(true) && own.end_timestamp.is_none() {
        take_failure(own, state);
    }
    with(new, theirs);
}

/// Copies the receiver's published state to the sender.
pub(super) fn from_receiver(new: &mut VirtualMachineInstanceStatus, peer: &Peer, address: &str) {
    let Some((theirs, state)) = told(peer) else { return };
    let Some(own) = new.migration_state.as_mut().filter(|own| !own.is_over()) else { return };
    own.target_state.clone_from(&state.target_state);
    if let Some(target) = &mut own.target_state {
        target.sync_address = Some(address.to_owned());
    }
    // The fields that the sender's virt-handler acts on, once this side has published everything and the other one is
    // ready.
    if own.migration_uid.is_some() && is_handed_off(state) {
        own.target_node.clone_from(&state.target_node);
        own.target_pod.clone_from(&state.target_pod);
        own.target_node_address.clone_from(&state.target_node_address);
        own.target_direct_migration_node_ports.clone_from(&state.target_direct_migration_node_ports);
        own.target_cpu_set.clone_from(&state.target_cpu_set);
        own.target_node_topology.clone_from(&state.target_node_topology);
        own.target_node_domain_detected = state.target_node_domain_detected;
        own.target_node_domain_ready_timestamp.clone_from(&state.target_node_domain_ready_timestamp);
        if state.failed == Some(true) {
            take_failure(own, state);
        } else if state.end_timestamp.is_some() {
            own.start_timestamp = own.start_timestamp.take().or_else(|| state.start_timestamp.clone());
            own.end_timestamp.clone_from(&state.end_timestamp);
            // A VMI that has ended since will not report completion itself.
            own.completed = state.completed.or(theirs.is_final().then_some(true));
        }
    }
    with(new, theirs);
}

/// The other side's VMI, and its state of that side's migration.
fn told(peer: &Peer) -> Option<(&VirtualMachineInstance, &State)> {
    let vmi = peer.vmi.as_deref()?;
    Some((vmi, state_of(vmi, &peer.migration)?))
}

fn take_failure(own: &mut State, theirs: &State) {
    own.failed = Some(true);
    own.completed = theirs.completed;
    own.start_timestamp = own.start_timestamp.take().or_else(|| theirs.start_timestamp.clone());
    own.end_timestamp.clone_from(&theirs.end_timestamp);
    own.failure_reason = own.failure_reason.take().or_else(|| theirs.failure_reason.clone());
    own.abort_status = theirs.abort_status.clone().or_else(|| own.abort_status.take());
}

/// The migration method and the migrated volumes: either side may know what the other one does not.
fn with(new: &mut VirtualMachineInstanceStatus, theirs: &VirtualMachineInstance) {
    let Some(status) = &theirs.status else { return };
    new.migration_method = new.migration_method.take().or_else(|| status.migration_method.clone());
    new.migration_transport = new.migration_transport.take().or_else(|| status.migration_transport.clone());
    for volume in &status.migrated_volumes {
        if !new.migrated_volumes.iter().any(|known| known.volume_name == volume.volume_name) {
            new.migrated_volumes.push(volume.clone());
        }
    }
}
