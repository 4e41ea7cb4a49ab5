//! 44: a guest's persistent state is in one PVC with its label, except during a hand-over, when the target's PVC
//! already has the label and the source's is not deleted yet. After the first there is always one. Nobody deletes the
//! PVC that the guest wrote to last, or starts the guest with another; in the settled state the guest has that PVC and
//! no other.

use api::labels::{MIGRATION_NAME, PERSISTENT_STATE_FOR};
use informer::Key;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use machinery::meta::{is_deleting, label};
use virt_controller::Stores;

use super::support::ensure;
use super::{Invariant, Scene, Verdict};
use crate::kinds::{Object, uid};
use crate::server::{Change, Server};

#[derive(Default)]
pub(crate) struct Rule;

/// The VMI that the PVC is labeled with, unless the PVC is being deleted.
fn named(claim: &PersistentVolumeClaim) -> Option<Key> {
    let name = label(&claim.metadata, PERSISTENT_STATE_FOR).filter(|_| !is_deleting(&claim.metadata))?;
    Some(Key::new(claim.metadata.namespace.clone().unwrap_or_default(), name))
}

fn of<'a>(server: &'a Server, guest: &'a Key) -> impl Iterator<Item = &'a PersistentVolumeClaim> {
    server.tables.claims.all().map(AsRef::as_ref).filter(move |claim| named(claim).as_ref() == Some(guest))
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "state_claims"
    }

    fn guests(&mut self, scene: &Scene<'_>) -> Verdict {
        let forgotten = &scene.guests.kept.forgotten;
        forgotten.as_ref().map_or(Ok(()), |guest| Err(format!("{guest} was started without its persistent state")))
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Object::Claim(claim) = &change.last else { return Ok(()) };
        if !change.by.is_controller() {
            return Ok(());
        }
        let was = match &change.was {
            Some(Object::Claim(was)) => named(was),
            _ => None,
        };
        let is = named(claim).filter(|_| change.is.is_some());
        if let Some(guest) = was.as_ref().filter(|guest| is.as_ref() != Some(*guest)) {
            let left = of(scene.server, guest).count();
            ensure(left > 0, || format!("{guest} has no PVC for its state left"))?;
        }
        if let Some(guest) = is.as_ref().filter(|guest| was.as_ref() != Some(*guest)) {
            let all = of(scene.server, guest).count();
            let handed_over = all == 2 && change.was.is_some();
            ensure(all == 1 || handed_over, || format!("{guest} has {all} PVCs for its state"))?;
        }
        let gone = change.is.is_none() || is_deleting(&claim.metadata);
        let kept = scene.guests.kept.guest_of(uid(&claim.metadata)).filter(|_| gone);
        kept.map_or(Ok(()), |guest| Err(format!("{} deleted the state of {guest}", change.by.name())))
    }

    fn rest(&mut self, scene: &Scene<'_>, _: &Stores) -> Verdict {
        let tables = &scene.server.tables;
        for claim in tables.claims.all() {
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            if let Some(guest) = named(claim) {
                let all = of(scene.server, &guest).count();
                ensure(all == 1, || format!("{guest} has {all} PVCs for its state in the settled state"))?;
            }
            if let Some(guest) = scene.guests.kept.guest_of(uid(&claim.metadata)) {
                let own = named(claim).map(|key| key.to_string());
                ensure(own.as_deref() == Some(guest), || {
                    format!("the state of {guest} is in PVC {name}, which is not labeled as its own")
                })?;
            }
            let migration = label(&claim.metadata, MIGRATION_NAME);
            let at = |name: &str| Key::new(claim.metadata.namespace.clone().unwrap_or_default(), name);
            let over = migration.is_some_and(|name| tables.migrations.get(&at(name)).is_none_or(|found| found.is_final()));
            ensure(!over, || format!("PVC {name} of the ended migration {migration:?} is left"))?;
        }
        Ok(())
    }
}
