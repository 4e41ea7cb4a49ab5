//! 35: when a target Pod is created, the migrations that run or have a target do not exceed the limits of the cluster
//! and of the source node. Counted from stored objects, not from the controller's caches.

use api::labels;
use api::v1::VirtualMachineInstance;
use api::v1::VirtualMachineInstanceMigration as Migration;
use machinery::meta::label;
use plan::migration::{Kind as Migrates, kind, owns};

use super::support::{ensure, instance_key, new_pod, sender_node};
use super::{Invariant, Scene, Verdict};
use crate::actors::is_target;
use crate::server::{Change, Server};

/// The limits of the simulated cluster.
pub(super) struct Limits {
    pub(super) cluster: usize,
    pub(super) outbound: usize,
}

impl Limits {
    pub(super) fn of(server: &Server) -> Self {
        let set = server.tables.kubevirts.all().find_map(|kubevirt| kubevirt.spec.configuration.as_ref()?.migrations.clone());
        let set = set.unwrap_or_default();
        let number = |limit: Option<u32>| limit.unwrap_or_default() as usize;
        Self {
            cluster: number(set.parallel_migrations_per_cluster),
            outbound: number(set.parallel_outbound_migrations_per_node),
        }
    }
}

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "limits"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Some(pod) = new_pod(change).filter(|pod| is_target(pod)) else { return Ok(()) };
        let server = scene.server;
        let running: Vec<&Migration> =
            server.tables.migrations.all().map(AsRef::as_ref).filter(|migration| takes_room(server, migration)).collect();
        let Limits { cluster, outbound } = Limits::of(server);
        ensure(running.len() <= cluster, || format!("{} migrations run at once, the limit is {cluster}", running.len()))?;
        let of = label(&pod.metadata, labels::MIGRATION_JOB_UID);
        let own = server.tables.migrations.all().find(|migration| migration.metadata.uid.as_deref() == of);
        let Some(node) = own.and_then(|own| leaves(server, own)) else { return Ok(()) };
        let leaving = running.iter().filter(|other| leaves(server, other) == Some(node)).count();
        ensure(leaving <= outbound, || format!("{leaving} guests leave {node} at once, the limit is {outbound}"))
    }
}

pub(super) fn takes_room(server: &Server, migration: &Migration) -> bool {
    let uid = migration.metadata.uid.as_deref();
    let has_target =
        server.tables.pods.all().any(|pod| is_target(pod) && label(&pod.metadata, labels::MIGRATION_JOB_UID) == uid);
    // A sending migration shares the slot of the receiving one, which creates the target.
    let sends = kind(migration) == Migrates::Sends;
    !sends && !migration.is_final() && (plan::migration::is_running(migration) || has_target)
}

pub(super) fn guest<'a>(server: &'a Server, migration: &Migration) -> Option<&'a VirtualMachineInstance> {
    server.tables.vmis.get(&instance_key(migration)?).map(AsRef::as_ref)
}

/// The node that a migration's guest leaves: the source node, also after the guest has arrived.
pub(super) fn leaves<'a>(server: &'a Server, migration: &Migration) -> Option<&'a str> {
    let vmi = guest(server, migration)?;
    if kind(migration) == Migrates::Receives {
        return sender_node(vmi);
    }
    let state = vmi.status.as_ref()?.migration_state.as_ref().filter(|state| owns(migration, Some(state)));
    state.and_then(|state| state.source_node.as_deref()).or_else(|| node_of(vmi))
}

pub(super) fn node_of(vmi: &VirtualMachineInstance) -> Option<&str> {
    vmi.status.as_ref()?.node_name.as_deref()
}
