//! The two virt-handlers of a migration: one prepares and takes over, the other sends. Both report what they know of
//! the journey (`journey.rs`), which is less than the truth and later.

use api::v1::{
    MigrationAbortStatus, MigrationMode, VirtualMachineInstance, VirtualMachineInstanceMigrationState as State,
    VirtualMachineInstancePhase as Phase,
};
use api::{annotations, conditions, labels};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::meta::label;
use virt_controller::api::Part;

use super::journey::Stage;
use super::node_agent::set_phase;
use super::{has_ended, launchers_of, node_of, phase_of};
use crate::engine::{Actor, Sim};
use crate::hub::lock;
use crate::kinds::{Object, uid};
use crate::server::Writer;

impl Sim {
    /// Handles a migration of the VMI: one step of either side. Returns whether the usual handling is to be skipped.
    pub(super) fn escort(&mut self, vmi: &VirtualMachineInstance) -> bool {
        let Some(state) = vmi.status.as_ref().and_then(|status| status.migration_state.clone()) else { return false };
        let Some(migration) = state.migration_uid.clone().filter(|_| state.target_node.is_some()) else { return false };
        let stage = self.journey(&migration).stage;
        let target = self.pod_named(vmi, state.target_pod.as_deref());
        if state.failed == Some(true) || state.completed == Some(true) {
            self.clean_up(vmi, &state, target.as_ref());
            return false;
        }
        let target_lives = target.as_ref().is_some_and(|pod| !has_ended(pod) && phase_of(pod) == "Running");
        let on_target = state.target_node.as_deref().is_some_and(|node| self.answers(node)) && target_lives;
        let on_source = vmi.status.as_ref().and_then(|s| s.node_name.as_deref()).is_some_and(|node| self.answers(node));
        let mut new = vmi.clone();
        let now = lock(&self.hub).server.time();
        match stage {
            Stage::Arrived if !on_target => return target_lives || !on_source, // unknown; the guest ends with the Pod
            Stage::Arrived if state.end_timestamp.is_none() => take_over(&mut new, &now),
            Stage::Arrived => state_of(&mut new).completed = Some(true),
            Stage::Lost if on_source || on_target => {
                self.lose(vmi, "the transfer broke off when the guest was on both sides");
                return true;
            }
            Stage::Lost => return true,
            Stage::Broken(_) if !on_source => return false,
            Stage::Broken(why) => fail(state_of(&mut new), &now, why),
            Stage::Following if on_source && state.mode != Some(MigrationMode::PostCopy) => {
                state_of(&mut new).mode = Some(MigrationMode::PostCopy);
            }
            Stage::Following => return true,
            Stage::Preparing | Stage::Copying if state.abort_requested == Some(true) && on_source => {
                let next = state_of(&mut new);
                next.abort_status = Some(MigrationAbortStatus::Succeeded);
                fail(next, &now, "the transfer was given up");
                self.journey(&migration).stage = Stage::Broken("the transfer was given up");
            }
            Stage::Copying => return false,
            Stage::Preparing if state.target_node_address.is_none() && on_target => {
                state_of(&mut new).target_node_address = Some("10.0.0.2".to_owned());
            }
            Stage::Preparing if state.target_node_address.is_some() && on_source => {
                let source = self.pod_named(vmi, state.source_pod.as_deref()).filter(|pod| !has_ended(pod));
                let (Some(source), Some(target)) = (source, target.filter(|_| target_lives)) else { return false };
                let next = state_of(&mut new);
                next.start_timestamp = Some(now);
                next.mode = Some(MigrationMode::PreCopy);
                self.depart(vmi, &migration, [&source, &target]);
            }
            Stage::Preparing => return false,
        }
        self.write_and_return(new);
        false
    }

    pub(super) fn write_and_return(&mut self, new: VirtualMachineInstance) {
        let stored = lock(&self.hub).server.update(Writer::NodeAgent, Part::Object, new);
        let stored = Object::Vmi(stored.expect("written right after it was read"));
        let after = self.some_ms(20, 2_000);
        self.act_after(after, Actor::NodeAgent, &stored);
    }

    /// The target's node releases a finished migration.
    fn clean_up(&mut self, vmi: &VirtualMachineInstance, state: &State, target: Option<&Pod>) {
        let node = label(&vmi.metadata, labels::MIGRATION_TARGET_NODE_NAME).filter(|node| self.answers(node));
        if node.is_none() || node != state.target_node.as_deref() {
            return;
        }
        let failed = state.failed == Some(true);
        if let Some(pod) = target.filter(|pod| failed && !has_ended(pod)) {
            let after = self.some_ms(10, 3_000);
            self.act_after(after, Actor::KubeletReap, &Object::Pod(pod.clone().into()));
        }
        let mut new = vmi.clone();
        if let Some(labels) = &mut new.metadata.labels {
            labels.remove(labels::MIGRATION_TARGET_NODE_NAME);
        }
        if !failed {
            // The change that required the migration has been applied.
            new.status_mut().conditions.retain(|condition| condition.type_ != conditions::HOT_MEMORY_CHANGE);
        }
        let stored = lock(&self.hub).server.update(Writer::NodeAgent, Part::Object, new);
        stored.expect("written right after it was read");
    }

    /// Whether the guest has left its recorded Pod and runs elsewhere.
    pub(super) fn lives_elsewhere(&self, vmi: &VirtualMachineInstance) -> bool {
        let Some(state) = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref()) else { return false };
        let journey = state.migration_uid.as_ref().and_then(|uid| self.world.journeys.get(uid));
        let target = self.pod_named(vmi, state.target_pod.as_deref());
        journey.is_some_and(|journey| matches!(journey.stage, Stage::Arrived | Stage::Following))
            && target.is_some_and(|pod| !has_ended(&pod))
    }

    pub(super) fn pod_named(&self, vmi: &VirtualMachineInstance, name: Option<&str>) -> Option<Pod> {
        let hub = lock(&self.hub);
        let own = uid(&vmi.metadata);
        let found = launchers_of(&hub.server, own).find(|pod| pod.metadata.name.as_deref() == name);
        found.filter(|pod| node_of(pod).is_some()).map(|pod| (**pod).clone())
    }

    /// The guest died during the migration, or at the target before its node could report its arrival.
    pub(super) fn lose(&mut self, vmi: &VirtualMachineInstance, why: &str) {
        self.judge.guests.ends(uid(&vmi.metadata));
        let mut new = vmi.clone();
        let mut hub = lock(&self.hub);
        let now = hub.server.time();
        if let Some(state) = &mut new.status_mut().migration_state {
            fail(state, &now, why);
        }
        set_phase(&mut new, Phase::Failed, now);
        hub.server.update(Writer::NodeAgent, Part::Object, new).expect("written right after it was read");
    }
}

pub(super) fn state_of(vmi: &mut VirtualMachineInstance) -> &mut State {
    vmi.status_mut().migration_state.get_or_insert_default()
}

/// The target's node reports that the guest is there.
pub(super) fn take_over(vmi: &mut VirtualMachineInstance, now: &Time) {
    let status = vmi.status_mut();
    let state = status.migration_state.get_or_insert_default();
    state.target_node_domain_detected = Some(true);
    state.target_node_domain_ready_timestamp = Some(now.clone());
    state.start_timestamp.get_or_insert_with(|| now.clone());
    state.end_timestamp = Some(now.clone());
    let node = state.target_node.clone();
    status.evacuation_node_name = None;
    status.launcher_container_image_version = None;
    status.node_name.clone_from(&node);
    let labels = vmi.metadata.labels.get_or_insert_default();
    labels.insert(labels::NODE_NAME.to_owned(), node.unwrap_or_default());
    if let Some(notes) = &mut vmi.metadata.annotations {
        notes.remove(annotations::EVICTION_SOURCE);
    }
}

pub(super) fn fail(state: &mut State, now: &Time, why: &str) {
    state.fail();
    state.end_timestamp = Some(now.clone());
    state.failure_reason = Some(why.to_owned());
}
