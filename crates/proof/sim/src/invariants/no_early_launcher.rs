//! 3: no launcher Pod is created for a VMI that is being deleted or past Pending, nor while a volume it needs is not
//! ready, judged by what the pass had in its cache. (Open expectations are checked in `expectations.rs`.)

use api::cdi::{DataVolume, DataVolumePhase};
use api::v1::VirtualMachineInstance;
use informer::Key;
use machinery::meta::{controller_of, is_deleting};

use super::support::{cached_vmi, new_pod, pass_of, phase};
use super::{Invariant, Scene, Verdict};
use crate::controllers;
use crate::actors::{is_launcher, is_target};
use crate::engine::PassInfo;
use crate::kinds::{Kind, Object};
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "no_early_launcher"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Some(pod) = new_pod(change).filter(|pod| is_launcher(pod) && !is_target(pod)) else { return Ok(()) };
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let Some(pass) = pass_of(scene, change, controllers::VMI) else {
            return Err(format!("launcher {name} was created by {}", change.by.name()));
        };
        let Some(vmi) = cached_vmi(scene, pass) else { return Err(format!("launcher {name} for an unknown instance")) };
        if is_deleting(&vmi.metadata) {
            return Err(format!("launcher {name} for an instance that is being deleted"));
        }
        if !vmi.is_unprocessed() {
            return Err(format!("launcher {name} for an instance in phase {}", phase(&vmi)));
        }
        volumes_ready(scene, pass, &vmi)
    }
}

fn volumes_ready(scene: &Scene<'_>, pass: &PassInfo, vmi: &VirtualMachineInstance) -> Verdict {
    for volume in &vmi.spec.volumes {
        let source = volume.source();
        let Some(claim) = source.claim_name().filter(|_| source.is_claim() && !source.is_hotpluggable()) else {
            continue;
        };
        let key = Key::new(&pass.key.namespace, claim);
        let Some(found) = scene.cached(pass, Kind::Claim, &key) else {
            return Err(format!("launcher although claim {claim} is not there"));
        };
        let controlled = controller_of(found.meta()).is_some_and(|owner| owner.kind == "DataVolume");
        let ready = match scene.cached(pass, Kind::DataVolume, &key) {
            Some(Object::DataVolume(volume)) if controlled => is_filled(&volume),
            _ => !controlled,
        };
        if !ready {
            return Err(format!("launcher although DataVolume {claim} is not filled"));
        }
    }
    Ok(())
}

fn is_filled(volume: &DataVolume) -> bool {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_ref());
    matches!(phase, Some(DataVolumePhase::Succeeded | DataVolumePhase::PendingPopulation))
}
