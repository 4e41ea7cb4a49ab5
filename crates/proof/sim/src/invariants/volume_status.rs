//! 20: after the hand-over every volume of the spec has exactly one entry in the volume status, sorted by name.


use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;

use super::support::{ensure, is_handed_over, name, pass_of, pods_of, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::controllers;
use crate::actors::{is_attachment, phase_of};
use crate::kinds::uid;
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
                let kept = is_kept(scene, vmi, entry);
                !known && !kept && !entry.starts_with(api::labels::PERSISTENT_STATE_FOR)
            });
            if let Some(entry) = stale {
                return Err(format!("instance {}: volume {entry} left the spec, but not the status", name(vmi)));
            }
        }
        Ok(())
    }
}

/// Whether the guest does not let the disk go, or its Pod also brings another disk that the guest has, which left the spec,
/// too, or which no other Pod brings.
fn is_kept(scene: &Scene<'_>, instance: &VirtualMachineInstance, volume: &str) -> bool {
    let (disks, vmi) = (&scene.guests.disks, uid(&instance.metadata));
    let launchers = pods_of(scene.server, vmi).flat_map(|launcher| pods_of(scene.server, uid(&launcher.metadata)));
    let pods: Vec<_> = launchers.filter(|pod| is_attachment(pod) && phase_of(pod) == "Running").collect();
    let only = |name: &str| pods.iter().filter(|pod| brings(pod, name)).count() == 1;
    let leaves = |name: &str| instance.spec.volumes.iter().all(|volume| volume.name != name);
    let needs = |name: &str| leaves(name) || only(name);
    let needed = |pod: &Pod| disks.all_open().any(|(of, name, _)| of == vmi && brings(pod, name) && needs(name));
    disks.has_open(vmi, volume) || pods.iter().any(|pod| brings(pod, volume) && needed(pod))
}

fn brings(pod: &Pod, volume: &str) -> bool {
    pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).any(|own| own.name == volume)
}
