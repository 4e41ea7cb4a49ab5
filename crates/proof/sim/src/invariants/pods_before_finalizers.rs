//! 11: the finalizer of a VMI is removed only when none of its Pods exists.

use api::finalizers::VIRTUAL_MACHINE_INSTANCE;
use machinery::meta::has_finalizer;

use super::support::{name, pods_of, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::kinds::uid;
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "pods_before_finalizers"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Some((Some(was), is)) = vmi_change(change) else { return Ok(()) };
        let left = has_finalizer(&was.metadata, VIRTUAL_MACHINE_INSTANCE) && !has_finalizer(&is.metadata, VIRTUAL_MACHINE_INSTANCE);
        match pods_of(scene.server, uid(&is.metadata)).next().filter(|_| left) {
            Some(pod) => Err(format!(
                "the finalizer of instance {} left while Pod {} exists",
                name(is),
                pod.metadata.name.as_deref().unwrap_or_default()
            )),
            None => Ok(()),
        }
    }
}
