//! 20: after the hand-over every volume of the spec has exactly one entry in the volume status, sorted by name.


use super::support::{ensure, is_handed_over, name, pass_of, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::controllers;
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "volume_status"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Some((Some(was), is)) = vmi_change(change) else { return Ok(()) };
        let entries = |vmi: &api::v1::VirtualMachineInstance| vmi.status.as_ref().map(|status| status.volume_status.clone()).unwrap_or_default();
        if !is_handed_over(is) || entries(was) == entries(is) || pass_of(scene, change, controllers::VMI).is_none() {
            return Ok(());
        }
        let names: Vec<String> = entries(is).into_iter().map(|entry| entry.name).collect();
        ensure(names.is_sorted_by(|a, b| a < b), || format!("instance {}: volumes {names:?} are not in order", name(is)))
    }

    fn rest(&mut self, scene: &Scene<'_>, _: &virt_controller::Stores) -> Verdict {
        for vmi in scene.server.tables.vmis.all().filter(|vmi| vmi.is_running()) {
            let entries: Vec<&str> = vmi.status.iter().flat_map(|status| &status.volume_status).map(|entry| entry.name.as_str()).collect();
            let missing = vmi.spec.volumes.iter().find(|volume| !entries.contains(&volume.name.as_str()));
            if let Some(volume) = missing {
                return Err(format!("instance {}: volume {} has no status", name(vmi), volume.name));
            }
            // Backend storage has an entry, too.
            let stale = entries.iter().find(|entry| {
                let ours = vmi.spec.utility_volumes.iter().map(|volume| &volume.name);
                let known = vmi.spec.volumes.iter().map(|volume| &volume.name).chain(ours).any(|name| name == *entry);
                !known && !entry.starts_with(api::labels::PERSISTENT_STATE_FOR)
            });
            if let Some(entry) = stale {
                return Err(format!("instance {}: volume {entry} left the spec, but not the status", name(vmi)));
            }
        }
        Ok(())
    }
}
