//! 36, 38, 41: a hand-off never replaces the state of a migration that has not ended, and names the guest's current Pod
//! as the source. After it, only the nodes may end the target Pod while the guest may run in it or still arrive.

use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigrationState as State};
use machinery::meta::{controller_of, is_deleting};

use super::support::{ensure, name, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::actors::is_target;
use crate::kinds::{Object, uid};
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

fn state(vmi: &VirtualMachineInstance) -> Option<&State> {
    vmi.status.as_ref()?.migration_state.as_ref()
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "handed_off"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        if let Some((Some(was), is)) = vmi_change(change) {
            return replaced(scene, was, is);
        }
        let (Object::Pod(pod), Some(Object::Pod(before))) = (&change.last, &change.was) else { return Ok(()) };
        let doomed = is_deleting(&pod.metadata) && !is_deleting(&before.metadata);
        if !doomed || !is_target(pod) || change.by.name() != "migration-controller" {
            return Ok(());
        }
        let guest = controller_of(&pod.metadata).map(|owner| owner.uid.clone());
        let Some(vmi) = scene.server.tables.vmis.all().find(|vmi| vmi.metadata.uid == guest) else { return Ok(()) };
        let going = state(vmi).is_some_and(|state| {
            state.target_pod == pod.metadata.name && state.failed != Some(true) && !vmi.is_final()
        });
        ensure(!going, || format!("target Pod {:?} was deleted after the hand-off", pod.metadata.name))
    }
}

fn replaced(scene: &Scene<'_>, was: &VirtualMachineInstance, is: &VirtualMachineInstance) -> Verdict {
    let Some(after) = state(is) else { return Ok(()) };
    let made = after.migration_uid.is_some() && after.migration_uid != state(was).and_then(|before| before.migration_uid.clone());
    ensure(!made || names_the_guests_pod(scene, is, after), || {
        format!("the guest of VMI {} does not run in the source Pod {:?}", name(is), after.source_pod)
    })?;
    let Some(before) = state(was) else { return Ok(()) };
    if before.migration_uid == after.migration_uid {
        return Ok(());
    }
    let owner = scene.server.tables.migrations.all().find(|migration| migration.metadata.uid == before.migration_uid);
    ensure(owner.is_none_or(|owner| owner.is_final()), || {
        format!("the migration state of VMI {} was replaced before its migration ended", name(is))
    })
}

/// Whether the source Pod is the guest's; true if the guest has ended and nobody has reported it yet.
fn names_the_guests_pod(scene: &Scene<'_>, vmi: &VirtualMachineInstance, state: &State) -> bool {
    let Some(home) = scene.guests.of(uid(&vmi.metadata)).next() else { return true };
    let named = scene.server.tables.pods.all().find(|pod| pod.metadata.name == state.source_pod);
    named.is_some_and(|pod| uid(&pod.metadata) == home)
}
