use std::sync::Arc;

use api::v1::{
    VirtualMachineInstance, VirtualMachineInstanceMigration as Migration, VirtualMachineInstanceMigrationState as State,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::meta;
use crate::migration::{Kind, kind};

/// A migration of the other side, and the VMI that it names.
#[derive(Clone, Debug)]
pub struct Peer {
    pub migration: Arc<Migration>,
    pub vmi: Option<Arc<VirtualMachineInstance>>,
}

/// The input of the decision.
#[derive(Clone, Debug)]
pub struct World {
    pub migration: Arc<Migration>,
    pub vmi: Option<Arc<VirtualMachineInstance>>,
    /// Every migration of the other side with the same ID, finished or not.
    pub peers: Vec<Peer>,
    /// The current time in whole seconds, the API's resolution.
    pub now: Time,
}

/// The ID under which the two sides of a decentralized migration find each other.
pub fn exchange(migration: &Migration) -> Option<&str> {
    match kind(migration) {
        Kind::Sends => migration.spec.send_to.as_ref().map(|send| send.migration_id.as_str()),
        Kind::Receives => migration.spec.receive.as_ref().map(|receive| receive.migration_id.as_str()),
        Kind::Local => None,
    }
}

impl World {
    pub(super) fn uid(&self) -> &str {
        meta::uid(&self.migration.metadata)
    }

    pub(super) fn sends(&self) -> bool {
        kind(&self.migration) == Kind::Sends
    }

    /// The migration state of our own VMI, if it is about this migration.
    pub(super) fn state(&self) -> Option<&State> {
        state_of(self.vmi.as_deref()?, &self.migration)
    }
}

/// The state of a VMI's side of a decentralized migration.
pub(super) fn state_of<'a>(vmi: &'a VirtualMachineInstance, migration: &Migration) -> Option<&'a State> {
    let state = vmi.status.as_ref()?.migration_state.as_ref()?;
    let uid = Some(meta::uid(&migration.metadata));
    let own = match kind(migration) {
        Kind::Sends => state.source_state.as_ref()?.migration_uid.as_deref(),
        Kind::Receives => state.target_state.as_ref()?.migration_uid.as_deref(),
        Kind::Local => None,
    };
    let free = state.migration_uid.as_deref().is_none_or(|owner| owner.is_empty() || Some(owner) == uid);
    (own == uid && free).then_some(state)
}

/// Whether this side is handed off.
pub(super) fn is_handed_off(state: &State) -> bool {
    state.migration_uid.is_some() && state.target_node.is_some()
}
