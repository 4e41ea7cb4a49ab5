//! 1, 2: in the life of an instance (one UID) one launcher Pod is created and no other; so there is never more than one
//! that has not ended. Pods that only make storage bind do not count, nor do those that a migration brings (see
//! `one_target.rs`).
//!
//! One case is left: a controller dies after it has made the Pod and before it could say so on the instance, and the Pod
//! is gone before the next one looks. Nobody can know of it then, and no guest was ever started in it, since that takes
//! an instance that was handed over.

use std::collections::BTreeMap;

use api::v1::VirtualMachineInstance;
use informer::Key;
use machinery::meta::controller_of;

use super::support::ensure;
use super::{Invariant, Scene, Verdict};
use crate::actors::{is_launcher, is_target};
use crate::kinds::Object;
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule {
    /// The launcher, its name and UID, by the instance's UID.
    launchers: BTreeMap<String, (String, String)>,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "one_launcher"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let (Object::Pod(pod), None) = (&change.last, &change.was) else { return Ok(()) };
        let Some(owner) = controller_of(&pod.metadata).filter(|_| is_launcher(pod) && !is_target(pod)) else { return Ok(()) };
        let name = change.last.key().name;
        let earlier = self.launchers.insert(owner.uid.clone(), (name.clone(), change.last.uid().to_owned()));
        let Some((first, uid)) = earlier else { return Ok(()) };
        let key = Key::new(change.last.key().namespace, &owner.name);
        let unknown = scene.server.tables.vmis.get(&key).is_some_and(|vmi| never_knew(vmi, &uid));
        ensure(unknown && !scene.server.exists(&uid), || {
            format!("instance {} has launcher {first} and now {name} as well", owner.name)
        })
    }
}

/// The instance does not show that there ever was such a Pod.
fn never_knew(vmi: &VirtualMachineInstance, pod: &str) -> bool {
    vmi.is_unprocessed() && vmi.status.as_ref().is_none_or(|status| !status.active_pods.contains_key(pod))
}
