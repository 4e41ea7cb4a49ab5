//! The evacuation controller: creates migrations for guests that have to leave their node.
//!
//! Guests are evacuated because of an eviction, which marks the VMI ([`crate::eviction`]), or all at once because of a
//! taint on their node. Each gets one migration; the migration controller decides when there is room to start it. If it
//! fails, the mark stays and another migration follows, which the migration controller delays with exponential
//! back-off. A migration ends before it starts if the evacuation has been canceled meanwhile ([`is_called_off`]).
//!
//! A migration's name is derived from the VMI's UID and the last finished migration of that VMI. A second attempt to
//! create it from a stale cache therefore collides with the first.

use std::sync::Arc;

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstanceMigrationPhase as Phase;
use api::v1::{MigrationPriority, VirtualMachineInstance, VirtualMachineInstanceMigration as Migration};
use api::{annotations, conditions, events};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::effect::{Effect, Report, reference};
pub use crate::guest::Guest;
use crate::{Note, eviction, flight, meta};

#[cfg(test)]
mod tests;

/// The prefix of these migrations' names.
const PREFIX: &str = "kubevirt-evacuation";

/// The input of the decision about one node.
#[derive(Clone, Debug)]
pub struct World {
    pub name: String,
    pub node: Option<Arc<Node>>,
    /// Every VMI that was handed over to the node.
    pub guests: Vec<Guest>,
    pub config: Arc<ClusterConfig>,
    /// Migrations that we created for this node are not in the cache yet.
    pub behind: bool,
    pub now: Time,
}

/// Every effect this controller can have.
pub type Action = Effect;

/// Decides which guests of the node get a migration now.
pub fn decide(w: &World) -> Vec<Action> {
    if w.behind {
        return vec![]; // their creation events requeue us
    }
    let all = w.node.as_deref().is_some_and(|node| is_drained(node, &w.config));
    let asked = w.guests.iter().filter(|guest| all || was_asked(guest, &w.name, &w.now));
    asked.filter(|guest| can_move(guest, &w.config)).map(|guest| create(w, guest)).collect()
}

/// Whether a migration evacuates a node that the guest no longer has to leave: the VMI has lost its mark (`virtctl
/// evacuate-cancel`, `ferrovirt uncordon`), or the node's taint is gone.
pub fn is_called_off(
    migration: &Migration,
    vmi: &VirtualMachineInstance,
    node: Option<&Node>,
    config: &ClusterConfig,
) -> bool {
    let from = meta::annotation(&migration.metadata, annotations::EVACUATION_MIGRATION);
    let Some(from) = from.filter(|from| !from.is_empty()) else { return false };
    !is_marked(vmi, from) && !node.is_some_and(|node| is_drained(node, config))
}

/// Whether a migration was created to drain this node and has not been handed to the nodes, so that deleting it leaves
/// the guest where it is.
pub fn can_be_called_off(migration: &Migration, node: &str) -> bool {
    let early = matches!(migration.phase(), None | Some(Phase::Pending | Phase::Scheduling | Phase::Scheduled));
    early && meta::annotation(&migration.metadata, annotations::EVACUATION_MIGRATION) == Some(node)
}

fn is_marked(vmi: &VirtualMachineInstance, node: &str) -> bool {
    vmi.status.as_ref().and_then(|status| status.evacuation_node_name.as_deref()) == Some(node)
}

/// The legacy way to drain a node: a taint named in the cluster configuration.
fn is_drained(node: &Node, config: &ClusterConfig) -> bool {
    let key = config.migrations().node_drain_taint_key.unwrap_or_default();
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    !key.is_empty() && taints.into_iter().any(|taint| taint.key == key && taint.effect == "NoSchedule")
}

/// An eviction has marked the VMI, and it has not moved since.
fn was_asked(guest: &Guest, node: &str, now: &Time) -> bool {
    let Some(status) = &guest.vmi.status else { return false };
    is_marked(&guest.vmi, node) && status.node_name.as_deref() == Some(node) && !flight::is_migrating(&guest.vmi, now)
}

fn can_move(guest: &Guest, config: &ClusterConfig) -> bool {
    let vmi = &guest.vmi;
    let strategy = eviction::strategy(vmi, config);
    !vmi.is_final()
        && !vmi.is_marked_for_deletion()
        && matches!(strategy, "LiveMigrate" | "LiveMigrateIfPossible")
        && vmi.has_condition(conditions::LIVE_MIGRATABLE)
        && guest.unfinished().next().is_none()
        && guest.active_pods() <= 1
}

fn create(w: &World, guest: &Guest) -> Action {
    let vmi = &guest.vmi;
    let descheduled = meta::annotation(&vmi.metadata, annotations::EVICTION_SOURCE)
        == Some(annotations::eviction_source::DESCHEDULER);
    let priority = if descheduled { MigrationPriority::SystemMaintenance } else { MigrationPriority::SystemCritical };
    let migration = guest.next_migration(PREFIX, (annotations::EVACUATION_MIGRATION, &w.name), priority);
    let message = format!("Created migration {} to evacuate node {}", meta::name(&migration.metadata), w.name);
    Action::Migrate(Box::new(migration)).tell(Report {
        about: reference::<VirtualMachineInstance>(&vmi.metadata),
        done: Note::normal(events::SUCCESSFUL_CREATE, message),
        failed: events::FAILED_CREATE,
        doing: "create a migration to evacuate the node".into(),
        go_on: false,
    })
}
