//! The two virt-handlers of a migration between VMIs: the sender's and the receiver's. Each writes only to its own VMI
//! and learns about the other one through what virt-controller copies.
//!
//! The journey (`journey.rs`) is identified by the UID of the sender's migration. The virt-handlers do not use what
//! they could not know: a sender whose launcher is gone asks, and a receiver answers.

use api::annotations::{CREATE_MIGRATION_TARGET, MIGRATION_SOURCE_GONE};
use api::labels;
use api::v1::{
    Between, MigrationAbortStatus, MigrationMode, VirtualMachineInstance,
    VirtualMachineInstanceMigrationState as State, VirtualMachineInstancePhase as Phase,
};
use informer::Key;
use k8s_openapi::api::core::v1::Pod;
use machinery::meta::{annotation, is_deleting, label};
use virt_controller::api::Part;

use super::journey::Stage;
use super::movers::{fail, state_of, take_over};
use super::node_agent::{Launcher, examine, set_phase};
use super::{has_ended, node_of, phase_of};
use crate::engine::{Actor, Sim};
use crate::hub::lock;
use crate::kinds::{Object, uid};
use crate::server::Writer;

/// Whether the VMI waits for a guest from another VMI: it never starts one itself.
pub(super) fn receives(vmi: &VirtualMachineInstance) -> bool {
    annotation(&vmi.metadata, CREATE_MIGRATION_TARGET) == Some("true")
}

/// Whether the VMI sends its guest to another one, or has sent it.
pub(super) fn sends(vmi: &VirtualMachineInstance) -> bool {
    state(vmi).is_some_and(|state| state.migration_uid.is_some() && state.between() == Some(Between::Sends))
}

fn state(vmi: &VirtualMachineInstance) -> Option<&State> {
    vmi.status.as_ref()?.migration_state.as_ref()
}

/// The sender's migration, as named by the receiving VMI.
fn sender(state: &State) -> Option<&str> {
    state.source_state.as_ref()?.migration_uid.as_deref()
}

impl Sim {
    /// One step of the sender's virt-handler. Returns whether the usual handling is to be skipped.
    pub(super) fn send_guest(&mut self, vmi: &VirtualMachineInstance) -> bool {
        let (Some(state), Some(node)) = (state(vmi).cloned(), label(&vmi.metadata, labels::NODE_NAME)) else {
            return false;
        };
        let Some(migration) = state.migration_uid.clone().filter(|_| self.answers(node)) else { return true };
        let launcher = self.launcher(uid(&vmi.metadata), node);
        let gone = matches!(launcher, Launcher::Absent | Launcher::Ended);
        if state.failed != Some(true) && state.end_timestamp.is_some() {
            self.let_go(vmi, &state, gone);
            return true;
        }
        if state.failed == Some(true) {
            return self.keep(vmi, &state, gone);
        }
        let stage = self.journey(&migration).stage;
        if gone {
            let may_be_there = state.start_timestamp.is_some() || stage != Stage::Preparing;
            if may_be_there {
                self.ask_receiver(vmi, &migration);
            }
            return may_be_there;
        }
        self.bring_forward(vmi, &state, &migration, stage)
    }

    /// The launcher exists, and the migration has not been declared over.
    fn bring_forward(&mut self, vmi: &VirtualMachineInstance, state: &State, migration: &str, stage: Stage) -> bool {
        let mut new = vmi.clone();
        let now = lock(&self.hub).server.time();
        match stage {
            Stage::Arrived => return true, // waiting for the receiver's report
            Stage::Lost => {
                self.lose(vmi, "the transfer broke off when the guest was on both sides");
                return true;
            }
            Stage::Broken(why) => fail(state_of(&mut new), &now, why),
            Stage::Following if state.mode != Some(MigrationMode::PostCopy) => {
                state_of(&mut new).mode = Some(MigrationMode::PostCopy);
            }
            Stage::Following => return true,
            Stage::Preparing | Stage::Copying if state.abort_requested == Some(true) => {
                let next = state_of(&mut new);
                next.abort_status = Some(MigrationAbortStatus::Succeeded);
                fail(next, &now, "the transfer was given up");
                self.break_off(migration, "the transfer was given up");
            }
            Stage::Copying => return false,
            Stage::Preparing if state.target_node_address.is_none() || is_deleting(&vmi.metadata) => return false,
            Stage::Preparing => {
                let next = state_of(&mut new);
                match self.both_ends(vmi, state) {
                    Some((source, target, receiver)) => {
                        next.start_timestamp = Some(now);
                        next.mode = Some(MigrationMode::PreCopy);
                        self.depart_to(vmi, migration, [&source, &target], Some(receiver));
                    }
                    None => {
                        fail(next, &now, "the receiver does not answer");
                        self.break_off(migration, "the receiver does not answer");
                    }
                }
            }
        }
        self.write_and_return(new);
        false
    }

    /// The Pods of both sides and the receiving VMI, if everything is ready for the guest to leave.
    fn both_ends(&self, vmi: &VirtualMachineInstance, state: &State) -> Option<(Pod, Pod, Object)> {
        let source = self.pod_named(vmi, state.source_pod.as_deref()).filter(|pod| !has_ended(pod))?;
        let there = state.target_state.as_ref()?.virtual_machine_instance_uid.clone();
        let receiver = {
            let hub = lock(&self.hub);
            hub.server.tables.vmis.all().find(|vmi| vmi.metadata.uid == there).cloned()?
        };
        let target = self.pod_named(&receiver, state.target_pod.as_deref())?;
        let up = phase_of(&target) == "Running" && !is_deleting(&target.metadata);
        let reached = node_of(&target).is_some_and(|node| self.answers(node));
        let receiver = Object::Vmi(receiver);
        (up && reached && self.takes_guests(&receiver)).then_some((source, target, receiver))
    }

    /// Whether the receiving VMI still accepts the guest.
    pub(super) fn takes_guests(&self, receiver: &Object) -> bool {
        let found = self.live::<VirtualMachineInstance>(&receiver.key(), receiver.uid());
        found.is_some_and(|vmi| {
            let open = state(&vmi).is_some_and(|state| !state.is_over() && state.end_timestamp.is_none());
            open && receives(&vmi) && vmi.is_scheduled() && !is_deleting(&vmi.metadata)
        })
    }

    /// The guest belongs to another VMI. What is left of it here ends, and then this VMI.
    fn let_go(&mut self, vmi: &VirtualMachineInstance, state: &State, gone: bool) {
        self.judge.guests.ends(uid(&vmi.metadata));
        if let Some(pod) = self.pod_named(vmi, state.source_pod.as_deref()).filter(|pod| !gone && !has_ended(pod)) {
            let after = self.some_ms(10, 1_000);
            return self.act_after(after, Actor::KubeletReap, &Object::Pod(pod.into()));
        }
        if gone && state.completed == Some(true) {
            self.set_guest_phase(vmi, Phase::Succeeded);
        }
    }

    /// It has failed: the guest continues here, if it is not lost. A launcher with a stopped guest trusts what it is
    /// told.
    fn keep(&mut self, vmi: &VirtualMachineInstance, state: &State, gone: bool) -> bool {
        let own = uid(&vmi.metadata);
        let stage = state.migration_uid.as_deref().map(|migration| self.journey(migration).stage);
        let here = self.judge.guests.of(own).next().is_some();
        let elsewhere = state.migration_uid.as_deref().and_then(|uid| self.judge.guests.came_by(uid)).is_some();
        let source = self.pod_named(vmi, state.source_pod.as_deref()).filter(|_| !gone && !here && elsewhere);
        if let (Some(Stage::Arrived), Some(source)) = (stage, source) {
            let server = &lock(&self.hub).server;
            self.judge.guests.starts(uid(&source.metadata), own, &Key::of(vmi).to_string());
            self.judge.guest_changed(server);
        }
        false
    }

    /// The launcher is gone and the guest may be at the receiver: asks, and waits for the answer.
    fn ask_receiver(&mut self, vmi: &VirtualMachineInstance, migration: &str) {
        if annotation(&vmi.metadata, MIGRATION_SOURCE_GONE) == Some(migration) {
            return;
        }
        let mut new = vmi.clone();
        let notes = new.metadata.annotations.get_or_insert_default();
        notes.insert(MIGRATION_SOURCE_GONE.to_owned(), migration.to_owned());
        self.write_own(new);
    }

    fn write_own(&mut self, new: VirtualMachineInstance) {
        let stored = lock(&self.hub).server.update(Writer::NodeAgent, Part::Object, new);
        stored.expect("written right after it was read");
    }

    /// One step of the receiver's virt-handler, once the migration was handed to it.
    pub(super) fn receive_guest(&mut self, vmi: &VirtualMachineInstance) {
        let Some(state) = state(vmi).cloned() else { return };
        let node = label(&vmi.metadata, labels::MIGRATION_TARGET_NODE_NAME).filter(|node| self.answers(node));
        let handed_off = state.migration_uid.is_some() && node.is_some() && node == state.target_node.as_deref();
        let Some(migration) = sender(&state).map(str::to_owned).filter(|_| handed_off) else { return };
        let pod = self.pod_named(vmi, state.target_pod.as_deref());
        let stage = self.journey(&migration).stage;
        let owner = state.end_timestamp.is_some() && state.failed != Some(true);
        let stopped = is_deleting(&vmi.metadata) && !owner && stage != Stage::Arrived;
        if state.failed == Some(true) || vmi.is_final() || stopped {
            return self.give_up(vmi, pod.as_ref(), &migration);
        }
        let mut new = vmi.clone();
        let now = lock(&self.hub).server.time();
        let up = pod.as_ref().is_some_and(|pod| !has_ended(pod));
        let source_gone = annotation(&vmi.metadata, MIGRATION_SOURCE_GONE) == state.migration_uid.as_deref();
        if owner {
            finish(&mut new);
        } else if !up {
            fail(state_of(&mut new), &now, "the launcher of the migration's target is gone");
        } else {
            match stage {
                Stage::Arrived => {
                    take_over(&mut new, &now);
                    examine(&mut new, &now);
                    set_phase(&mut new, Phase::Running, now);
                }
                Stage::Lost => fail(state_of(&mut new), &now, "guest ended on arrival"),
                Stage::Preparing | Stage::Broken(_) if source_gone => {
                    fail(state_of(&mut new), &now, "source was lost before the guest arrived");
                    self.journey(&migration).stage = Stage::Broken("the source is gone");
                }
                Stage::Preparing if state.target_node_address.is_none() => listen(state_of(&mut new)),
                _ => return,
            }
        }
        self.write_and_return(new);
    }

    /// Stops what is here, then lets the VMI go.
    fn give_up(&mut self, vmi: &VirtualMachineInstance, pod: Option<&Pod>, migration: &str) {
        let journey = self.journey(migration);
        if matches!(journey.stage, Stage::Copying | Stage::Following) {
            self.break_off(migration, "the receiver has ended");
        }
        if let Some(pod) = pod {
            self.judge.guests.ends_in(uid(&pod.metadata));
            let after = self.some_ms(10, 3_000);
            self.act_after(after, Actor::KubeletReap, &Object::Pod(pod.clone().into()));
        }
        let mut new = vmi.clone();
        if let Some(labels) = &mut new.metadata.labels {
            labels.remove(labels::MIGRATION_TARGET_NODE_NAME);
        }
        if let Some(notes) = &mut new.metadata.annotations {
            notes.remove(MIGRATION_SOURCE_GONE);
        }
        self.write_own(new);
    }
}

/// Publishes where the guest can be sent to.
fn listen(state: &mut State) {
    let address = Some("10.0.0.2".to_owned());
    let ports = [("49152".to_owned(), 0)];
    state.target_node_address.clone_from(&address);
    state.target_direct_migration_node_ports = ports.clone().into();
    let side = state.target_state.get_or_insert_default();
    side.node_address = address;
    side.direct_migration_node_ports = ports.into();
}

/// The guest belongs to this VMI, which is like any other from now on.
fn finish(vmi: &mut VirtualMachineInstance) {
    if let Some(labels) = &mut vmi.metadata.labels {
        labels.remove(labels::MIGRATION_TARGET_NODE_NAME);
    }
    if let Some(notes) = &mut vmi.metadata.annotations {
        notes.remove(CREATE_MIGRATION_TARGET);
        notes.remove(MIGRATION_SOURCE_GONE);
    }
    state_of(vmi).completed = Some(true);
}
