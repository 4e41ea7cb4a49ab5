//! 51: an eviction never deletes the launcher Pod of a guest that its eviction strategy live-migrates, or that an
//! external controller handles; it sets `evacuationNodeName` of the VMI to the guest's node. A dry run changes nothing.

use api::conditions;
use api::v1::VirtualMachineInstance;
use machinery::meta::{controller_of, is_deleting};

use super::support::{ensure, name, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::actors::{has_ended, is_launcher};
use crate::kinds::Object;
use crate::server::{Change, Server, Writer};

#[derive(Default)]
pub(crate) struct Rule;

/// The eviction strategy of the VMI, or the cluster's.
pub(super) fn strategy(server: &Server, vmi: &VirtualMachineInstance) -> String {
    let own = vmi.spec.eviction_strategy.clone();
    let of_cluster = || server.tables.kubevirts.all().find_map(|kv| kv.spec.configuration.as_ref()?.eviction_strategy.clone());
    own.or_else(of_cluster).unwrap_or_default()
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "evictions"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        ensure(change.by != Writer::DryRun, || format!("a dry run of an eviction changed {}", change.last.title()))?;
        if change.by != Writer::Eviction {
            return Ok(());
        }
        if let Some((_, vmi)) = vmi_change(change) {
            let status = vmi.status.clone().unwrap_or_default();
            return ensure(status.evacuation_node_name == status.node_name, || {
                format!("VMI {} was marked for evacuation from {:?}, which is not its node", name(vmi), status.evacuation_node_name)
            });
        }
        let (Object::Pod(pod), Some(Object::Pod(was))) = (&change.last, &change.was) else { return Ok(()) };
        if !is_launcher(pod) || has_ended(was) || is_deleting(&was.metadata) {
            return Ok(());
        }
        let guest = controller_of(&pod.metadata).map(|owner| owner.uid.clone());
        let Some(vmi) = scene.server.tables.vmis.all().find(|vmi| vmi.metadata.uid == guest) else {
            return Err(format!("Pod {} was evicted, but its VMI does not exist", change.last.key().name));
        };
        let moves = match strategy(scene.server, vmi).as_str() {
            "LiveMigrate" | "External" => true,
            "LiveMigrateIfPossible" => vmi.has_condition(conditions::LIVE_MIGRATABLE),
            _ => false,
        };
        ensure(!moves, || format!("the Pod of VMI {} was evicted instead of migrated", name(vmi)))
    }
}
