//! 48: free slots go to the waiting migrations of the highest priority: no target Pod is created while the cluster's
//! free slots are needed by migrations of higher priority that wait only for a slot and could start.

use api::labels;
use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration as Migration};
use machinery::meta::{is_deleting, label};
use plan::migration::{Kind as Migrates, kind, spec_priority, waits_for_room};

use super::limits::{Limits, guest, leaves, node_of, takes_room};
use super::support::{ensure, new_pod, pass_of, sender_node};
use super::{Invariant, Scene, Verdict};
use crate::controllers;
use crate::actors::is_target;
use crate::kinds::{Kind, Object};
use crate::server::{Change, Server};

#[derive(Default)]
pub(crate) struct Rule;

/// Whether its guest runs, and its node is below the outbound limit.
fn could_start(server: &Server, migration: &Migration, limits: &Limits) -> bool {
    let receives = kind(migration) == Migrates::Receives;
    let guest_of = |vmi: &&VirtualMachineInstance| (vmi.is_running() || receives) && !is_deleting(&vmi.metadata);
    let Some(vmi) = guest(server, migration).filter(guest_of) else { return false };
    let node = if receives { sender_node(vmi) } else { node_of(vmi) };
    // As the controller counts: with those that have just arrived on the node.
    let counts = |other: &Migration| {
        let at = guest(server, other).and_then(node_of);
        at == node || leaves(server, other) == node
    };
    let leaving = server.tables.migrations.all().filter(|other| takes_room(server, other) && counts(other)).count();
    leaving < limits.outbound && !is_deleting(&migration.metadata)
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "priorities"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Some(pod) = new_pod(change).filter(|pod| is_target(pod)) else { return Ok(()) };
        let Some(pass) = pass_of(scene, change, controllers::MIGRATION) else { return Ok(()) };
        let server = scene.server;
        let of = label(&pod.metadata, labels::MIGRATION_JOB_UID);
        let all = || server.tables.migrations.all();
        let Some(own) = all().find(|m| m.metadata.uid.as_deref() == of) else { return Ok(()) };
        let limits = Limits::of(server);
        let running = all().filter(|other| takes_room(server, other)).count();
        let urgent: Vec<_> = all()
            .filter(|other| spec_priority(other) > spec_priority(own) && waits_for_room(other))
            .filter(|other| !takes_room(server, other) && could_start(server, other, &limits))
            .collect();
        if urgent.is_empty() || running + urgent.len() <= limits.cluster {
            return Ok(());
        }
        // Only those that are in the controller's cache.
        let known = urgent.iter().filter(|other| {
            let cached = scene.cached(pass, Kind::Migration, &informer::Key::of(other.as_ref()));
            matches!(cached, Some(Object::Migration(cached)) if waits_for_room(&cached))
        });
        let known = known.count();
        ensure(running + known <= limits.cluster, || {
            format!("migration {} got a slot before {known} of higher priority", own.metadata.name.as_deref().unwrap_or_default())
        })
    }
}
