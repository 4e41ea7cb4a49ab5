//! 18: an attachment Pod is not deleted while a volume that left the spec is, or may be, mounted from it, unless the launcher
//! or the VMI is ending.

use api::v1::{VolumePhase, VolumeStatus};
use machinery::meta::{controller_of, is_deleting};

use super::support::{cached_vmi, name, pods_of};
use super::{Invariant, Scene, Verdict};
use crate::controllers;
use crate::actors::{claims_of, has_ended, is_attachment, is_launcher};
use crate::engine::PassInfo;
use crate::hub::{Op, Request};
use crate::kinds::{Kind, Object, uid};

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "unplug_waits"
    }

    fn request(&mut self, scene: &Scene<'_>, pass: &PassInfo, request: &Request) -> Verdict {
        if pass.controller != controllers::VMI || request.kind != Some(Kind::Pod) || !matches!(request.op, Op::Delete { .. }) {
            return Ok(());
        }
        let Some(Object::Pod(pod)) = scene.cached(pass, Kind::Pod, &request.key) else { return Ok(()) };
        let Some(vmi) = cached_vmi(scene, pass).filter(|vmi| !vmi.is_final() && !is_deleting(&vmi.metadata)) else { return Ok(()) };
        let launcher = pods_of(scene.server, uid(&vmi.metadata)).find(|pod| is_launcher(pod));
        let alive = launcher.is_some_and(|launcher| {
            !has_ended(launcher)
                && !is_deleting(&launcher.metadata)
                && controller_of(&pod.metadata).is_some_and(|owner| owner.uid == uid(&launcher.metadata))
        });
        if !is_attachment(&pod) || !alive {
            return Ok(());
        }
        let held: Vec<&str> = claims_of(&pod).collect();
        let entries = vmi.status.iter().flat_map(|status| &status.volume_status);
        let is_named = |entry: &VolumeStatus| {
            let uid = entry.hotplug_volume.as_ref().and_then(|plugged| plugged.attach_pod_uid.as_deref());
            uid.is_some_and(|uid| !uid.is_empty())
        };
        let mounted = entries.filter(|entry| match entry.phase {
            Some(VolumePhase::Ready | VolumePhase::MountedToPod) => true,
            // virt-handler may have mounted it, and writes so later.
            Some(VolumePhase::AttachedToNode) => is_named(entry),
            _ => false,
        });
        let leaving = mounted.filter(|entry| !vmi.spec.volumes.iter().any(|volume| volume.name == entry.name));
        for entry in leaving {
            let claim = entry.persistent_volume_claim_info.as_ref().and_then(|info| info.claim_name.as_deref());
            if claim.is_some_and(|claim| held.contains(&claim)) {
                return Err(format!("instance {}: volume {} is still mounted from {}", name(&vmi), entry.name, request.key));
            }
        }
        Ok(())
    }
}
