//! 16: a VMI is Ready only while it is Running, and its launcher's readiness gate is open exactly while it is not
//! paused.

use api::conditions;
use virt_controller::Stores;

use super::support::{cached_vmi, ensure, name, pass_of, phase, pods_of, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::controllers;
use crate::actors::{is_launcher, phase_of};
use crate::kinds::uid;
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

/// The gate on launcher Pods.
const UNPAUSED: &str = "kubevirt.io/virtual-machine-unpaused";

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "ready"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Some((Some(was), is)) = vmi_change(change) else { return Ok(()) };
        let became = is.has_condition(conditions::READY) && !was.has_condition(conditions::READY);
        let Some(pass) = pass_of(scene, change, controllers::VMI).filter(|_| became) else { return Ok(()) };
        // The guest may have ended between read and write; the next pass corrects that.
        ensure(cached_vmi(scene, pass).is_some_and(|vmi| vmi.is_running()), || {
            format!("instance {} became Ready in phase {}", name(is), phase(is))
        })
    }

    fn rest(&mut self, scene: &Scene<'_>, _: &Stores) -> Verdict {
        for vmi in scene.server.tables.vmis.all() {
            ensure(vmi.is_running() || !vmi.has_condition(conditions::READY), || {
                format!("instance {} is Ready in phase {}", name(vmi), phase(vmi))
            })?;
            let running = pods_of(scene.server, uid(&vmi.metadata)).filter(|pod| is_launcher(pod) && phase_of(pod) == "Running");
            for pod in running.filter(|_| vmi.is_running()) {
                let gates = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
                let open = gates.filter(|condition| condition.type_ == UNPAUSED).any(|condition| condition.status == "True");
                let paused = vmi.has_condition(conditions::PAUSED);
                ensure(open != paused, || format!("instance {}: paused is {paused}, the gate's openness {open}", name(vmi)))?;
            }
        }
        Ok(())
    }
}
