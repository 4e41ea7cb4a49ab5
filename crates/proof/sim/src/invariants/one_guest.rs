//! 38: a guest runs in one place. Two guests never run with the same disks, and no controller ends a running one: it
//! neither deletes the Pod with the guest nor fails the VMI or the migration that the guest has moved with, whatever it
//! knows about the transfer. At rest guests run exactly where the API says.

use std::collections::BTreeSet;

use api::labels;
use api::v1::VirtualMachineInstanceMigrationPhase as Phase;
use machinery::meta::{controller_of, is_deleting, label};
use virt_controller::Stores;

use super::support::{ensure, name, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::actors::{is_launcher, is_target, node_of};
use crate::kinds::{Object, uid};
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "one_guest"
    }

    fn guests(&mut self, scene: &Scene<'_>) -> Verdict {
        let mut names = BTreeSet::new();
        let twice = scene.guests.all().find(|guest| !names.insert(&guest.name));
        twice.map_or(Ok(()), |guest| Err(format!("the guest of {} runs in two places", guest.name)))
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        if !change.by.is_controller() {
            return Ok(());
        }
        match &change.last {
            Object::Pod(_) => pod_deleted(scene, change),
            Object::Vmi(_) => instance_ended(scene, change),
            Object::Migration(_) => migration_ended(scene, change),
            _ => Ok(()),
        }
    }

    fn rest(&mut self, scene: &Scene<'_>, _: &Stores) -> Verdict {
        for vmi in scene.server.tables.vmis.all() {
            let pods: Vec<&str> = scene.guests.of(uid(&vmi.metadata)).collect();
            let on = |pod: &&str| {
                let found = scene.server.tables.pods.all().find(|found| uid(&found.metadata) == *pod);
                found.and_then(|pod| node_of(pod).map(str::to_owned))
            };
            let places: Vec<_> = pods.iter().map(on).collect();
            let wanted = match vmi.is_running() {
                true => vec![vmi.status.as_ref().and_then(|status| status.node_name.clone())],
                false => vec![],
            };
            ensure(places == wanted, || format!("the guest of {} is on {places:?}, not on {wanted:?}", name(vmi)))?;
        }
        Ok(())
    }
}

fn pod_deleted(scene: &Scene<'_>, change: &Change) -> Verdict {
    let (Object::Pod(pod), Some(Object::Pod(was))) = (&change.last, &change.was) else { return Ok(()) };
    if is_deleting(&was.metadata) || !is_deleting(&pod.metadata) || !is_launcher(pod) {
        return Ok(());
    }
    let Some(guest) = scene.guests.in_pod(uid(&pod.metadata)) else { return Ok(()) };
    let vmi = scene.server.tables.vmis.all().find(|vmi| uid(&vmi.metadata) == guest.vmi);
    let wanted = vmi.is_some_and(|vmi| !is_deleting(&vmi.metadata) && !vmi.is_final());
    ensure(!wanted, || format!("{} deleted the Pod in which the guest of {} runs", change.by.name(), guest.name))
}

fn instance_ended(scene: &Scene<'_>, change: &Change) -> Verdict {
    let Some((Some(was), is)) = vmi_change(change) else { return Ok(()) };
    let ended = is.is_final() && !was.is_final();
    let runs = scene.guests.of(uid(&is.metadata)).next().is_some();
    ensure(!ended || !runs, || format!("{} gave instance {} up while its guest runs", change.by.name(), name(is)))
}

fn migration_ended(scene: &Scene<'_>, change: &Change) -> Verdict {
    let (Object::Migration(is), Some(Object::Migration(was))) = (&change.last, &change.was) else { return Ok(()) };
    if was.phase() == is.phase() {
        return Ok(());
    }
    let own = uid(&is.metadata);
    let mut targets = scene.server.tables.pods.all().filter(|pod| is_target(pod));
    let target = targets.find(|pod| label(&pod.metadata, labels::MIGRATION_JOB_UID) == Some(own));
    let there = target.is_some_and(|pod| scene.guests.in_pod(uid(&pod.metadata)).is_some());
    match is.phase() {
        Some(Phase::Failed) => {
            ensure(!there, || format!("migration {} was failed while the guest runs in its target", change.last.key().name))
        }
        Some(Phase::Succeeded) => {
            let guest = target.and_then(|pod| controller_of(&pod.metadata)).map(|owner| owner.uid.clone());
            let elsewhere = guest.is_some_and(|vmi| scene.guests.of(&vmi).next().is_some());
            ensure(there || !elsewhere, || format!("migration {} succeeded, and the guest is elsewhere", change.last.key().name))
        }
        _ => Ok(()),
    }
}
