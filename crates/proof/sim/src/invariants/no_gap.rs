//! 19: a volume that stays plugged in always has a running Pod that holds it: the successor runs before the last
//! predecessor is deleted.

use api::v1::VolumePhase;
use machinery::meta::is_deleting;

use super::support::{cached_vmi, name, pods_of};
use super::{Invariant, Scene, Verdict};
use crate::controllers;
use crate::actors::{claims_of, has_ended, is_attachment, is_launcher, phase_of};
use crate::engine::PassInfo;
use crate::hub::{Op, Request};
use crate::kinds::{Kind, Object, uid};

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "no_gap"
    }

    fn request(&mut self, scene: &Scene<'_>, pass: &PassInfo, request: &Request) -> Verdict {
        if pass.controller != controllers::VMI || request.kind != Some(Kind::Pod) || !matches!(request.op, Op::Delete { .. }) {
            return Ok(());
        }
        let Some(Object::Pod(pod)) = scene.cached(pass, Kind::Pod, &request.key).filter(|pod| matches!(pod, Object::Pod(pod) if is_attachment(pod) && phase_of(pod) == "Running")) else {
            return Ok(());
        };
        let Some(vmi) = cached_vmi(scene, pass).filter(|vmi| vmi.is_running() && !is_deleting(&vmi.metadata)) else { return Ok(()) };
        let Some(launcher) = pods_of(scene.server, uid(&vmi.metadata)).find(|pod| is_launcher(pod)) else { return Ok(()) };
        if has_ended(launcher) || is_deleting(&launcher.metadata) {
            return Ok(());
        }
        let others: Vec<_> = pods_of(scene.server, uid(&launcher.metadata))
            .filter(|other| is_attachment(other) && uid(&other.metadata) != uid(&pod.metadata))
            .filter(|other| phase_of(other) == "Running")
            .collect();
        let entries = vmi.status.iter().flat_map(|status| &status.volume_status);
        for entry in entries.filter(|entry| entry.phase == Some(VolumePhase::Ready) && entry.hotplug_volume.is_some()) {
            let stays = vmi.spec.volumes.iter().any(|volume| volume.name == entry.name);
            let claim = entry.persistent_volume_claim_info.as_ref().and_then(|info| info.claim_name.clone()).unwrap_or_default();
            let held_here = claims_of(&pod).any(|held| held == claim);
            let held_elsewhere = others.iter().any(|other| claims_of(other).any(|held| held == claim));
            if stays && held_here && !held_elsewhere {
                return Err(format!("instance {}: nothing else holds volume {} when {} goes", name(&vmi), entry.name, request.key));
            }
        }
        Ok(())
    }
}
