//! 35: when a target Pod is made, no more migrations run or have a target than may, in the cluster and from the guest's
//! node, going by what is stored and not by what the controller had seen.

use api::labels;
use api::v1::VirtualMachineInstance;
use api::v1::VirtualMachineInstanceMigration as Migration;
use informer::Key;
use machinery::meta::label;

use super::support::{ensure, new_pod};
use super::{Invariant, Scene, Verdict};
use crate::actors::is_target;
use crate::server::{Change, Server};

/// What the simulated cluster allows.
const CLUSTER: usize = 2;
const OUTBOUND: usize = 1;

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
        ensure(running.len() <= CLUSTER, || format!("{} migrations run at once, and {CLUSTER} may", running.len()))?;
        let of = label(&pod.metadata, labels::MIGRATION_JOB_UID);
        let own = server.tables.migrations.all().find(|migration| migration.metadata.uid.as_deref() == of);
        let Some(node) = own.and_then(|own| guest(server, own)).and_then(node_of) else { return Ok(()) };
        let leaving = running.iter().filter(|other| guest(server, other).and_then(node_of) == Some(node)).count();
        ensure(leaving <= OUTBOUND, || format!("{leaving} guests leave {node} at once, and {OUTBOUND} may"))
    }
}

fn takes_room(server: &Server, migration: &Migration) -> bool {
    let uid = migration.metadata.uid.as_deref();
    let has_target =
        server.tables.pods.all().any(|pod| is_target(pod) && label(&pod.metadata, labels::MIGRATION_JOB_UID) == uid);
    !plan::migration::is_final(migration) && (plan::migration::is_running(migration) || has_target)
}

fn guest<'a>(server: &'a Server, migration: &Migration) -> Option<&'a VirtualMachineInstance> {
    let key = Key::new(migration.metadata.namespace.clone()?, migration.spec.vmi_name.clone()?);
    server.tables.vmis.get(&key).map(AsRef::as_ref)
}

fn node_of(vmi: &VirtualMachineInstance) -> Option<&str> {
    vmi.status.as_ref()?.node_name.as_deref()
}
