//! 17: no attachment Pod is created while another one of the same launcher is not running yet.

use machinery::meta::{controller_of, is_deleting};

use super::support::{cached_pods_of, new_pod, pass_of};
use super::{Invariant, Scene, Verdict};
use crate::controllers;
use crate::actors::{is_attachment, phase_of};
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "one_pending_attachment"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Some(pod) = new_pod(change).filter(|pod| is_attachment(pod)) else { return Ok(()) };
        let Some(pass) = pass_of(scene, change, controllers::VMI) else { return Ok(()) };
        let Some(launcher) = controller_of(&pod.metadata) else { return Ok(()) };
        let others = cached_pods_of(scene, pass, &launcher.uid);
        let pending = others.iter().find(|pod| is_attachment(pod) && !is_deleting(&pod.metadata) && phase_of(pod) == "Pending");
        match pending {
            Some(other) => Err(format!("a second attachment Pod although {:?} is pending", other.metadata.name)),
            None => Ok(()),
        }
    }
}
