//! Absence is confirmed (the third of the design's decisions; part of 11 and 72): an instance is not failed because its
//! launcher is missing from a cache while the launcher exists and runs.

use api::v1::VirtualMachineInstancePhase as Phase;
use machinery::meta::is_deleting;

use super::support::{cached_pods_of, name, pass_of, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::controllers;
use crate::actors::{has_ended, is_launcher};
use crate::kinds::{Object, uid};
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "absence_is_confirmed"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Some((Some(was), is)) = vmi_change(change) else { return Ok(()) };
        let failed = is.phase() == Some(&Phase::Failed) && was.phase() != is.phase();
        let Some(pass) = pass_of(scene, change, controllers::VMI).filter(|_| failed) else { return Ok(()) };
        let owner = uid(&is.metadata);
        if is_deleting(&was.metadata) || !cached_pods_of(scene, pass, owner).is_empty() {
            return Ok(());
        }
        // What came later than the pass began may have come after its look.
        let before = &scene.server.log[..pass.begun];
        let existed = |pod: &str| before.iter().any(|change| change.last.uid() == pod && matches!(change.last, Object::Pod(_)));
        let pods = super::support::pods_of(scene.server, owner);
        let mut overlooked = pods.filter(|pod| is_launcher(pod) && !has_ended(pod) && !is_deleting(&pod.metadata));
        match overlooked.find(|pod| existed(uid(&pod.metadata))) {
            Some(pod) => Err(format!("instance {} was failed for want of a launcher, but {:?} runs", name(is), pod.metadata.name)),
            None => Ok(()),
        }
    }
}
