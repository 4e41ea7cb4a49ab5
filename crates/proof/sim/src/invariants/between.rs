//! 36, 38, 39, 41, 42 between VMIs: a guest that moves to another VMI runs in one place at a time. The sender's VMI
//! reports failure only if the guest does not run at the receiver, and success only if it does not run at the sender.
//! The receiver's VMI reports failure only if no guest has arrived, and does not fail before. A VM whose guest runs at
//! a receiver is started again only by a user. In the settled state both migrations ended with the same outcome, or
//! report what they wait for.

use std::collections::BTreeMap;

use api::finalizers;
use api::labels;
use api::v1::{
    Between, StateChangeRequestAction, VirtualMachineInstance, VirtualMachineInstanceMigrationPhase as MigrationPhase,
    VirtualMachineInstancePhase as Phase,
};
use informer::Key;
use machinery::meta::{controller_of, has_finalizer, is_deleting, label};
use plan::migration::{Kind, kind};
use plan::synchronization::exchange;
use virt_controller::Stores;

use super::strategies::head;
use super::support::{cached_vm, ensure, has_sent, is_receiver, migration_state, name, new_vmi, pass_of, sender_node, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::controllers;
use crate::actors::{is_target, node_of};
use crate::kinds::{Object, key, uid};
use crate::server::{Change, Writer};

#[derive(Default)]
pub(crate) struct Rule {
    /// The receiver's migration, by the sender's migration that it is paired with.
    met: BTreeMap<String, String>,
    /// The final phase of migrations between VMIs.
    ended: BTreeMap<String, MigrationPhase>,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "between"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        if let Some(vmi) = new_vmi(change) {
            return started_again(scene, change, vmi);
        }
        if let Some((Some(was), is)) = vmi_change(change) {
            self.meet(is);
            return told(scene, was, is);
        }
        match (&change.last, &change.was) {
            (Object::Migration(is), Some(Object::Migration(was))) if was.phase() != is.phase() && is.is_final() => {
                let end = is.phase().cloned().unwrap_or_default();
                if kind(is) != Kind::Local {
                    self.ended.insert(uid(&is.metadata).to_owned(), end.clone());
                }
                if kind(is) == Kind::Sends { sent(scene, is, &end) } else { Ok(()) }
            }
            (Object::Pod(pod), Some(Object::Pod(was))) if node_of(pod).is_some() && node_of(was).is_none() => {
                let owner = controller_of(&pod.metadata).filter(|_| is_target(pod)).map(|owner| owner.uid.clone());
                let vmi = scene.server.tables.vmis.all().find(|vmi| owner.is_some() && vmi.metadata.uid == owner);
                let from = vmi.filter(|vmi| is_receiver(vmi)).and_then(|vmi| sender_node(vmi));
                ensure(from.is_none() || from != node_of(pod), || {
                    format!("target {:?} was bound to the sender's node", pod.metadata.name)
                })
            }
            _ => Ok(()),
        }
    }

    fn rest(&mut self, scene: &Scene<'_>, _: &Stores) -> Verdict {
        for (sender, receiver) in &self.met {
            let (one, other) = (self.ended.get(sender), self.ended.get(receiver));
            // A guest that has arrived may end before the receiver's migration does; that migration then fails.
            let worse = other == Some(&MigrationPhase::Failed);
            ensure(one.is_none() || other.is_none() || one == other || worse, || {
                format!("migration {sender} ended as {one:?}, but {receiver} on the other side as {other:?}")
            })?;
        }
        let tables = &scene.server.tables;
        for migration in tables.migrations.all().filter(|migration| kind(migration) != Kind::Local) {
            let title = key(&migration.metadata);
            let held = [finalizers::MIGRATION, finalizers::MIGRATION_SYNCHRONIZATION];
            let held = held.iter().find(|finalizer| has_finalizer(&migration.metadata, finalizer));
            ensure(held.is_none() || !migration.is_final(), || format!("{title} has ended but still has finalizer {held:?}"))?;
            ensure(!is_deleting(&migration.metadata), || format!("the deletion of {title} does not finish"))?;
        }
        for vmi in tables.vmis.all().filter(|vmi| is_receiver(vmi)) {
            let waits = matches!(vmi.phase(), Some(Phase::WaitingForSync)) || vmi.is_final();
            ensure(waits, || format!("VMI {} neither waits for its guest nor runs it: phase {:?}", name(vmi), vmi.phase()))?;
        }
        waits_for_nothing(scene)
    }
}

impl Rule {
    fn meet(&mut self, vmi: &VirtualMachineInstance) {
        // Before the hand-off, a receiver may be paired with another sender.
        let Some(state) = migration_state(vmi).filter(|state| {
            state.migration_uid.is_some() && state.target_node.is_some() && state.between() == Some(Between::Receives)
        }) else {
            return;
        };
        let source = state.source_state.as_ref().and_then(|source| source.migration_uid.clone());
        let target = state.target_state.as_ref().and_then(|target| target.migration_uid.clone());
        if let (Some(source), Some(target)) = (source, target) {
            self.met.insert(source, target);
        }
    }
}

/// What a VMI reports about its side is true.
fn told(scene: &Scene<'_>, was: &VirtualMachineInstance, is: &VirtualMachineInstance) -> Verdict {
    let fails = is.phase() == Some(&Phase::Failed) && was.phase() != is.phase();
    ensure(!fails || !is_receiver(was) || was.is_running() || is_deleting(&was.metadata), || {
        format!("VMI {} failed while it waited for a guest", name(is))
    })?;
    let (before, Some(after)) = (migration_state(was), migration_state(is)) else { return Ok(()) };
    let same = before.is_some_and(|before| before.migration_uid == after.migration_uid);
    let failed = after.failed == Some(true) && !(same && before.is_some_and(|before| before.failed == Some(true)));
    let source = after.source_state.as_ref().and_then(|source| source.migration_uid.as_deref()).unwrap_or_default();
    let at_receiver = scene.guests.came_by(source);
    match after.between() {
        Some(Between::Sends) => {
            ensure(!failed || at_receiver.is_none(), || {
                format!("VMI {} reports a failed migration, but its guest runs at the receiver", name(is))
            })?;
            let left = after.end_timestamp.is_some() && after.failed != Some(true);
            let left_before = same && before.is_some_and(|b| b.end_timestamp.is_some() && b.failed != Some(true));
            let here = scene.guests.of(uid(&is.metadata)).next().is_some();
            ensure(!left || left_before || !here, || {
                format!("VMI {} reports a completed migration, but its guest still runs there", name(is))
            })?;
            let ends = is.phase() == Some(&Phase::Succeeded) && was.phase() != is.phase() && has_sent(is);
            ensure(!ends || !here, || format!("VMI {} has ended, but its guest still runs there", name(is)))
        }
        Some(Between::Receives) => {
            let here = at_receiver.is_some_and(|guest| guest.vmi == uid(&is.metadata));
            let had = was.is_running() && after.end_timestamp.is_some();
            ensure(!failed || !had, || format!("VMI {} reports a failed migration, but its guest had arrived", name(is)))?;
            ensure(!failed || !here, || format!("VMI {} reports a failed migration, but its guest runs there", name(is)))
        }
        None => Ok(()),
    }
}

/// A VM whose guest runs at a receiver is not started again unless a user has changed or started it since.
fn started_again(scene: &Scene<'_>, change: &Change, vmi: &VirtualMachineInstance) -> Verdict {
    if pass_of(scene, change, controllers::VM).is_none() || is_receiver(vmi) {
        return Ok(());
    }
    let asked = pass_of(scene, change, controllers::VM).and_then(|pass| cached_vm(scene, pass)).is_some_and(|vm| {
        head(&vm).is_some_and(|request| request.action == StateChangeRequestAction::Start)
    });
    if asked {
        return Ok(());
    }
    let machine = Key::of(vmi);
    let own = machine.to_string();
    let stays = scene.guests.all().flat_map(|guest| &guest.earlier).filter(|stay| stay.name == own);
    for stay in stays {
        let since = &scene.server.log[stay.left..];
        let wanted = since.iter().any(|change| {
            let about = matches!(change.last, Object::Vm(_) | Object::Vmi(_)) && change.last.key() == machine;
            // The first restart was checked already; its guest may have ended since.
            let again = matches!(change.last, Object::Vmi(_)) && change.was.is_none() && change.last.uid() != uid(&vmi.metadata);
            about && (change.by == Writer::User || again)
        });
        ensure(wanted, || format!("VM {own} was started again, but its guest runs at the receiver"))?;
    }
    Ok(())
}

/// The sender's migration ends with the outcome that matches where the guest runs.
fn sent(scene: &Scene<'_>, migration: &api::v1::VirtualMachineInstanceMigration, end: &MigrationPhase) -> Verdict {
    let title = key(&migration.metadata);
    let there = scene.guests.came_by(uid(&migration.metadata)).is_some();
    match end {
        MigrationPhase::Failed => ensure(!there, || format!("{title} failed, but the guest runs at the receiver")),
        _ => {
            let vmi = Key::new(&title.namespace, migration.spec.vmi_name.clone().unwrap_or_default());
            let vmi = scene.server.tables.vmis.get(&vmi);
            let here = vmi.is_some_and(|vmi| scene.guests.of(uid(&vmi.metadata)).next().is_some());
            ensure(!here, || format!("{title} succeeded, but the guest runs at the sender"))
        }
    }
}

/// No sender and receiver that match wait for each other, and no target Pod waits without a sender.
fn waits_for_nothing(scene: &Scene<'_>) -> Verdict {
    let tables = &scene.server.tables;
    let going = || tables.migrations.all().filter(|m| !m.is_final() && !is_deleting(&m.metadata));
    let instance = |migration: &api::v1::VirtualMachineInstanceMigration| {
        let namespace = migration.metadata.namespace.clone().unwrap_or_default();
        tables.vmis.get(&Key::new(namespace, migration.spec.vmi_name.clone().unwrap_or_default()))
    };
    for sender in going().filter(|migration| kind(migration) == Kind::Sends) {
        let url = sender.spec.send_to.as_ref().map(|send| send.connect_url.as_str());
        let others = going().filter(|other| {
            let at = plan::migration::address(other.metadata.namespace.as_deref().unwrap_or_default());
            kind(other) == Kind::Receives && exchange(other) == exchange(sender) && url == Some(at.as_str())
        });
        let others: Vec<_> = others.collect();
        let rivals = going().filter(|other| kind(other) == Kind::Sends && exchange(other) == exchange(sender)).count();
        let [receiver] = others.as_slice() else { continue };
        let runs = instance(sender).is_some_and(|vmi| vmi.is_running());
        let waits = instance(receiver).is_some_and(|vmi| is_receiver(vmi));
        ensure(!(rivals == 1 && runs && waits), || {
            let (one, other) = (key(&sender.metadata), key(&receiver.metadata));
            format!("{one} ({:?}) and {other} ({:?}) wait for each other", sender.phase(), receiver.phase())
        })?;
    }
    let stuck = tables.pods.all().find(|pod| {
        let of = label(&pod.metadata, labels::MIGRATION_JOB_UID).filter(|_| is_target(pod));
        of.is_some_and(|of| self::ended_badly(scene, of)) && !crate::actors::has_ended(pod)
    });
    stuck.map_or(Ok(()), |pod| Err(format!("target {:?} waits for a guest, but its migration has ended", pod.metadata.name)))
}

fn ended_badly(scene: &Scene<'_>, migration: &str) -> bool {
    let found = scene.server.tables.migrations.all().find(|found| uid(&found.metadata) == migration);
    let empty = scene.server.tables.pods.all().any(|pod| {
        label(&pod.metadata, labels::MIGRATION_JOB_UID) == Some(migration)
            && scene.guests.in_pod(uid(&pod.metadata)).is_none()
    });
    empty && found.is_none_or(|found| found.is_final())
}
