//! 1, 2: in the lifetime of a VMI (one UID) exactly one launcher Pod is created, so there is never more than one that
//! has not ended. Pods that only make storage bind do not count, nor do migration targets (see `one_target.rs`).
//!
//! There are two exceptions. First, a controller may crash after it has created the Pod and before it has updated the
//! VMI, and the Pod is gone before the next controller looks. Then nobody can know of it, and no guest was ever started
//! in it, since that requires a VMI that was handed over.
//!
//! Second, a request of a former leader may arrive after the VMI, and the Pod of that name, are gone: a Pod is not
//! rejected because its owner does not exist. It belongs to nobody: no VMI has its owner's UID any more, none ever
//! names it, and virt-handler only talks to launchers that a VMI names. So no guest starts in it, and the garbage
//! collector deletes it, which releases its volumes.

use std::collections::{BTreeMap, BTreeSet};

use api::v1::VirtualMachineInstance;
use informer::Key;
use machinery::meta::controller_of;
use virt_controller::Stores;

use super::support::{ensure, name as vmi_name, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::actors::{is_launcher, is_target};
use crate::kinds::Object;
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule {
    /// Name and UID of the launcher, by the VMI's UID.
    launchers: BTreeMap<String, (String, String)>,
    /// The UIDs of Pods created after their VMI was gone.
    late: BTreeSet<String>,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "one_launcher"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        if let Some((_, vmi)) = vmi_change(change) {
            let named = vmi.status.iter().flat_map(|status| status.active_pods.keys());
            let late = named.into_iter().find(|pod| self.late.contains(*pod));
            return ensure(late.is_none(), || format!("instance {} names the Pod of a dead one", vmi_name(vmi)));
        }
        let (Object::Pod(pod), None) = (&change.last, &change.was) else { return Ok(()) };
        let Some(owner) = controller_of(&pod.metadata).filter(|_| is_launcher(pod)) else { return Ok(()) };
        if !scene.server.exists(&owner.uid) {
            self.late.insert(change.last.uid().to_owned());
            return Ok(());
        }
        if is_target(pod) {
            return Ok(());
        }
        let name = change.last.key().name;
        let earlier = self.launchers.insert(owner.uid.clone(), (name.clone(), change.last.uid().to_owned()));
        let Some((first, uid)) = earlier else { return Ok(()) };
        let key = Key::new(change.last.key().namespace, &owner.name);
        let unknown = scene.server.tables.vmis.get(&key).is_some_and(|vmi| never_knew(vmi, &uid));
        ensure(unknown && !scene.server.exists(&uid), || {
            format!("instance {} has launcher {first} and now {name} as well", owner.name)
        })
    }

    fn guests(&mut self, scene: &Scene<'_>) -> Verdict {
        let late = self.late.iter().find_map(|pod| scene.guests.in_pod(pod));
        late.map_or(Ok(()), |guest| Err(format!("the guest of {} runs in the Pod of a dead instance", guest.name)))
    }

    fn rest(&mut self, scene: &Scene<'_>, _: &Stores) -> Verdict {
        let left = self.late.iter().find(|pod| scene.server.exists(pod));
        left.map_or(Ok(()), |pod| Err(format!("Pod {pod} of a dead instance is still there")))
    }
}

/// The VMI does not show that there ever was such a Pod.
fn never_knew(vmi: &VirtualMachineInstance, pod: &str) -> bool {
    vmi.is_unprocessed() && vmi.status.as_ref().is_none_or(|status| !status.active_pods.contains_key(pod))
}
