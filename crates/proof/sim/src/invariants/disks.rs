//! 18, 19 and 20 in truth, where storage is simulated in detail: whatever the status says, as long as a guest has a disk
//! open, no controller takes the Pod away that brings it, or declares it detached; its volume exists, is mounted on the
//! guest's node, and no other guest has it. In the settled state the status tells what guests have, and nothing is
//! mounted for nobody.

use machinery::meta::{controller_of, is_deleting};
use api::v1::VolumePhase;
use k8s_openapi::api::core::v1::Pod;
use virt_controller::Stores;

use super::support::{ensure, name, pods_of, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::actors::{has_ended, is_attachment, phase_of};
use crate::kinds::{Object, uid};
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "disks"
    }

    fn guests(&mut self, scene: &Scene<'_>) -> Verdict {
        let disks = &scene.guests.disks;
        for (vmi, volume, open) in disks.all_open().filter(|(vmi, ..)| !ends(scene, vmi)) {
            ensure(disks.exists(&open.claim), || format!("volume {volume} of {vmi} was deleted, and the guest uses it"))?;
            ensure(disks.is_on(&open.claim, &open.node), || {
                format!("volume {volume} of {vmi} was unmounted on {}, and the guest uses it", open.node)
            })?;
            let second = disks.all_open().find(|(other, _, theirs)| *other != vmi && theirs.claim == open.claim);
            ensure(second.is_none(), || format!("two guests use volume {volume} of {vmi}"))?;
        }
        Ok(())
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        if !change.by.is_controller() {
            return Ok(());
        }
        match &change.last {
            Object::Pod(pod) => pod_deleted(scene, change, pod),
            Object::Vmi(_) => declared(scene, change),
            _ => Ok(()),
        }
    }

    fn rest(&mut self, scene: &Scene<'_>, _: &Stores) -> Verdict {
        let tables = &scene.server.tables;
        let disks = &scene.guests.disks;
        for vmi in tables.vmis.all().filter(|vmi| vmi.is_running() && disks.all_open().next().is_some()) {
            for entry in vmi.status.iter().flat_map(|status| &status.volume_status) {
                let ready = entry.phase == Some(VolumePhase::Ready) && entry.hotplug_volume.is_some();
                let open = disks.has_open(uid(&vmi.metadata), &entry.name);
                ensure(!ready || open, || format!("{}: volume {} is Ready, and the guest does not have it", name(vmi), entry.name))?;
            }
        }
        for (pod, claim) in disks.users() {
            let alive = tables.pods.all().any(|known| uid(&known.metadata) == pod && !has_ended(known));
            ensure(alive, || format!("{claim} is still mounted for Pod {pod}, which is gone"))?;
        }
        Ok(())
    }
}

/// Whether the guest ends with its launcher, which is being deleted: its node stops it first.
fn ends(scene: &Scene<'_>, vmi: &str) -> bool {
    let mut pods = scene.server.tables.pods.all();
    scene.guests.of(vmi).any(|own| pods.any(|pod| uid(&pod.metadata) == own && is_deleting(&pod.metadata)))
}

fn carries(pod: &Pod, volume: &str) -> bool {
    pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).any(|own| own.name == volume)
}

fn pod_deleted(scene: &Scene<'_>, change: &Change, pod: &Pod) -> Verdict {
    let was_going = change.was.as_ref().is_some_and(|was| is_deleting(was.meta()));
    if change.was.is_none() || was_going || !is_deleting(&pod.metadata) || !is_attachment(pod) {
        return Ok(());
    }
    let Some(launcher) = controller_of(&pod.metadata).map(|owner| owner.uid.as_str()) else { return Ok(()) };
    let Some(guest) = scene.guests.in_pod(launcher) else { return Ok(()) };
    let tables = &scene.server.tables;
    let vmi = tables.vmis.all().find(|vmi| uid(&vmi.metadata) == guest.vmi);
    let ending = vmi.is_none_or(|vmi| vmi.is_final() || is_deleting(&vmi.metadata));
    if ending || ends(scene, &guest.vmi) {
        return Ok(());
    }
    let brings = |other: &Pod, volume: &str| {
        let runs = phase_of(other) == "Running" && !is_deleting(&other.metadata);
        uid(&other.metadata) != uid(&pod.metadata) && is_attachment(other) && runs && carries(other, volume)
    };
    let open = scene.guests.disks.all_open().filter(|(vmi, volume, _)| *vmi == guest.vmi && carries(pod, volume));
    for (_, volume, _) in open {
        let another = pods_of(scene.server, launcher).any(|other| brings(other, volume));
        ensure(another, || {
            format!("{:?} was deleted while the guest of {} has {volume} from it", pod.metadata.name, guest.name)
        })?;
    }
    Ok(())
}

/// A detach is declared by a phase that says so, or by the entry that goes.
fn declared(scene: &Scene<'_>, change: &Change) -> Verdict {
    let Some((Some(was), is)) = vmi_change(change) else { return Ok(()) };
    if is.is_final() || change.is.is_none() || ends(scene, uid(&is.metadata)) {
        return Ok(());
    }
    let entries = |vmi: &api::v1::VirtualMachineInstance| vmi.status.iter().flat_map(|status| status.volume_status.clone()).collect::<Vec<_>>();
    let after = entries(is);
    for entry in entries(was).iter().filter(|entry| entry.hotplug_volume.is_some()) {
        if !scene.guests.disks.has_open(uid(&is.metadata), &entry.name) {
            continue;
        }
        let now = after.iter().find(|now| now.name == entry.name);
        let source = now.and_then(|now| now.hotplug_volume.as_ref()?.attach_pod_uid.as_deref());
        let now = now.and_then(|now| now.phase.clone());
        let held = match now {
            Some(VolumePhase::Ready | VolumePhase::MountedToPod) => true,
            // virt-handler may have given it to the guest, and writes so later.
            Some(VolumePhase::AttachedToNode) => source.is_some_and(|uid| !uid.is_empty()),
            _ => false,
        };
        ensure(held, || {
            format!("instance {}: volume {} is declared {now:?} while the guest has it", name(is), entry.name)
        })?;
    }
    Ok(())
}
