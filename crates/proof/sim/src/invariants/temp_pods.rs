//! 4: a Pod that only makes storage bind never moves its VMI to Scheduling, and is never mistaken for the launcher.

use std::collections::BTreeSet;

use api::v1::VirtualMachineInstancePhase as Phase;
use machinery::meta::controller_of;

use super::support::{ensure, name, new_pod, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::actors::is_launcher;
use crate::kinds::uid;
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule {
    /// VMIs that have had a launcher.
    launched: BTreeSet<String>,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "temp_pods"
    }

    fn change(&mut self, _: &Scene<'_>, change: &Change) -> Verdict {
        if let Some(pod) = new_pod(change).filter(|pod| is_launcher(pod))
            && let Some(owner) = controller_of(&pod.metadata)
        {
            self.launched.insert(owner.uid.clone());
        }
        let Some((_, vmi)) = vmi_change(change) else { return Ok(()) };
        let image = vmi.status.as_ref().and_then(|status| status.launcher_container_image_version.as_deref());
        let claims_launcher =
            matches!(vmi.phase(), Some(Phase::Scheduling | Phase::Scheduled | Phase::Running)) || image.is_some_and(|image| !image.is_empty());
        ensure(!claims_launcher || self.launched.contains(uid(&vmi.metadata)), || {
            format!("instance {} acts as if it had a launcher, but never had one", name(vmi))
        })
    }
}
