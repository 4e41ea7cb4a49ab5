//! The two node agents of a migration: one prepares and takes over, the other sends.
//!
//! Where the guest really is, is known here alone: a journey begins when the source sends, and at one moment the guest is
//! no longer there but at the target. What the agents write about it comes later, or never.

use std::time::Duration;

use api::v1::{
    MigrationAbortStatus, MigrationMode, VirtualMachineInstance, VirtualMachineInstanceMigrationState as State,
    VirtualMachineInstancePhase as Phase,
};
use api::{annotations, labels};
use informer::Key;
use k8s_openapi::api::core::v1::Pod;
use machinery::meta::{is_deleting, label};
use virt_controller::api::Part;

use super::node_agent::set_phase;
use super::{has_ended, launchers_of, node_of, phase_of};
use crate::engine::{Actor, Sim};
use crate::hub::lock;
use crate::kinds::{Object, uid};
use crate::script::{Fault, JourneyFate};
use crate::server::Writer;

/// A guest on its way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Journey {
    fate: Option<JourneyFate>,
    /// The guest is at the target now, whatever the API says.
    arrived: bool,
    /// The transfer broke off, and the guest stayed.
    broken: bool,
}

impl Sim {
    /// Looks after a migration of the instance: one step of either side. Says whether the usual care is to be left out.
    pub(super) fn escort(&mut self, vmi: &VirtualMachineInstance) -> bool {
        let Some(state) = vmi.status.as_ref().and_then(|status| status.migration_state.clone()) else { return false };
        let Some(migration) = state.migration_uid.clone().filter(|_| state.target_node.is_some()) else { return false };
        let journey = self.journey(&migration);
        let target = self.pod_named(vmi, state.target_pod.as_deref());
        let target_lives = target.as_ref().is_some_and(|pod| !has_ended(pod) && phase_of(pod) == "Running");
        let over = state.failed == Some(true) || state.completed == Some(true);
        if over {
            self.clean_up(vmi, &state, target.as_ref());
            return false;
        }
        let mut new = vmi.clone();
        let on_target = state.target_node.as_deref().is_some_and(|node| self.answers(node)) && target_lives;
        let now = lock(&self.hub).server.time();
        let status = new.status_mut();
        let next = status.migration_state.get_or_insert_default();
        let on_source = vmi.status.as_ref().and_then(|s| s.node_name.as_deref()).is_some_and(|node| self.answers(node));
        if journey.arrived {
            if !on_target {
                return target_lives || !on_source; // nobody can tell yet; if the Pod is gone, the guest is
            }
            if next.end_timestamp.is_none() {
                next.target_node_domain_detected = Some(true);
                next.target_node_domain_ready_timestamp = Some(now.clone());
                next.start_timestamp.get_or_insert_with(|| now.clone());
                next.end_timestamp = Some(now);
                let node = state.target_node.clone();
                status.evacuation_node_name = None;
                status.launcher_container_image_version = None;
                status.node_name = node.clone();
                let labels = new.metadata.labels.get_or_insert_default();
                labels.insert(labels::NODE_NAME.to_owned(), node.unwrap_or_default());
                if let Some(notes) = &mut new.metadata.annotations {
                    notes.remove(annotations::EVICTION_SOURCE);
                }
            } else {
                next.completed = Some(true);
            }
        } else if journey.broken || (next.start_timestamp.is_some() && target.as_ref().is_none_or(|pod| has_ended(pod)))
        {
            if !on_source {
                return false;
            }
            fail(next, &now, "the transfer broke off");
        } else if next.abort_requested == Some(true) && on_source {
            next.abort_status = Some(MigrationAbortStatus::Succeeded);
            fail(next, &now, "the transfer was given up");
        } else if next.target_node_address.is_none() && on_target {
            next.target_node_address = Some("10.0.0.2".to_owned());
        } else if next.target_node_address.is_some() && next.start_timestamp.is_none() && on_source && target_lives {
            next.start_timestamp = Some(now);
            next.mode = Some(MigrationMode::PreCopy);
            self.depart(vmi, &migration);
        } else {
            return false;
        }
        self.write_and_return(new);
        false
    }

    fn write_and_return(&mut self, new: VirtualMachineInstance) {
        let stored = lock(&self.hub).server.update(Writer::NodeAgent, Part::Object, new);
        let stored = Object::Vmi(stored.expect("written right after it was read"));
        let after = self.some_ms(20, 2_000);
        self.act_after(after, Actor::NodeAgent, &stored);
    }

    /// The state of a journey, which is drawn when a node first hears of it.
    fn journey(&mut self, migration: &str) -> Journey {
        if let Some(known) = self.world.journeys.get(migration) {
            return *known;
        }
        let number = self.world.journeys.len() as u64;
        let fate = self.script.faults.iter().find_map(|fault| match fault {
            Fault::Journey { nth, fate } if *nth == number => Some(*fate),
            _ => None,
        });
        let journey = Journey { fate, ..Journey::default() };
        self.world.journeys.insert(migration.to_owned(), journey);
        journey
    }

    fn depart(&mut self, vmi: &VirtualMachineInstance, migration: &str) {
        let object = Object::Vmi(vmi.clone().into());
        let after = match self.world.journeys.get(migration).and_then(|journey| journey.fate) {
            Some(JourneyFate::Breaks(after) | JourneyFate::Slow(after) | JourneyFate::TargetDies(after)) => after,
            Some(JourneyFate::SourceDies) | None => self.some_ms(500, 20_000),
        };
        self.act_after(after, Actor::Arrives, &object);
    }

    /// The moment in which the guest changes sides, unless something is in the way.
    pub(super) fn arrive(&mut self, key: &Key, vmi_uid: &str) {
        let Some(vmi) = self.live::<VirtualMachineInstance>(key, vmi_uid).filter(|vmi| vmi.is_running()) else {
            return;
        };
        let Some(state) = vmi.status.as_ref().and_then(|status| status.migration_state.clone()) else { return };
        let Some(migration) = state.migration_uid.clone() else { return };
        let Some(mut journey) = self.world.journeys.get(&migration).copied() else { return };
        if journey.arrived || journey.broken || state.failed == Some(true) || state.completed == Some(true) {
            return;
        }
        let (source, target) =
            (self.pod_named(&vmi, state.source_pod.as_deref()), self.pod_named(&vmi, state.target_pod.as_deref()));
        let runs = |pod: &Option<Pod>| {
            pod.as_ref().is_some_and(|pod| phase_of(pod) == "Running" && !is_deleting(&pod.metadata))
        };
        let breaks = matches!(journey.fate, Some(JourneyFate::Breaks(_) | JourneyFate::TargetDies(_)));
        let reachable = [&state.source_node, &state.target_node]
            .iter()
            .all(|node| node.as_deref().is_some_and(|node| self.answers(node)));
        journey.broken = breaks || !runs(&source) || !runs(&target) || !reachable || is_deleting(&vmi.metadata);
        journey.arrived = !journey.broken;
        self.world.journeys.insert(migration, journey);
        if let (Some(JourneyFate::TargetDies(_)), Some(target)) = (journey.fate, &target) {
            self.act_after(Duration::from_millis(1), Actor::KubeletKill, &Object::Pod(target.clone().into()));
        }
        if let Some(source) = source.filter(|_| journey.arrived) {
            let source = Object::Pod(source.into());
            // The launcher without a guest ends by itself; one that dies is taken away with its Pod before anybody tells.
            if journey.fate == Some(JourneyFate::SourceDies) {
                self.act_after(Duration::from_millis(1), Actor::KubeletKill, &source);
                self.act_after(Duration::from_millis(2), Actor::KubeletEvict, &source);
            } else {
                let after = self.some_ms(10, 3_000);
                self.act_after(after, Actor::KubeletReap, &source);
            }
        }
        let after = self.some_ms(10, 6_000);
        self.act_after(after, Actor::NodeAgent, &Object::Vmi(vmi));
    }

    /// The target's node lets go of a migration that is over.
    fn clean_up(&mut self, vmi: &VirtualMachineInstance, state: &State, target: Option<&Pod>) {
        let node = label(&vmi.metadata, labels::MIGRATION_TARGET_NODE_NAME).filter(|node| self.answers(node));
        if node.is_none() || node != state.target_node.as_deref() {
            return;
        }
        if let Some(pod) = target.filter(|pod| state.failed == Some(true) && !has_ended(pod)) {
            let after = self.some_ms(10, 3_000);
            self.act_after(after, Actor::KubeletReap, &Object::Pod(pod.clone().into()));
        }
        let mut new = vmi.clone();
        if let Some(labels) = &mut new.metadata.labels {
            labels.remove(labels::MIGRATION_TARGET_NODE_NAME);
        }
        let stored = lock(&self.hub).server.update(Writer::NodeAgent, Part::Object, new);
        stored.expect("written right after it was read");
    }

    /// Whether the guest has left the Pod it was said to be in, and lives where it went.
    pub(super) fn lives_elsewhere(&self, vmi: &VirtualMachineInstance) -> bool {
        let Some(state) = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref()) else { return false };
        let journey = state.migration_uid.as_ref().and_then(|uid| self.world.journeys.get(uid));
        let target = self.pod_named(vmi, state.target_pod.as_deref());
        journey.is_some_and(|journey| journey.arrived) && target.is_some_and(|pod| !has_ended(&pod))
    }

    fn pod_named(&self, vmi: &VirtualMachineInstance, name: Option<&str>) -> Option<Pod> {
        let hub = lock(&self.hub);
        let own = uid(&vmi.metadata);
        let found = launchers_of(&hub.server, own).find(|pod| pod.metadata.name.as_deref() == name);
        found.filter(|pod| node_of(pod).is_some()).map(|pod| (**pod).clone())
    }

    /// The guest died where it had gone to, before its node could say that it was there.
    pub(super) fn lost_on_arrival(&mut self, vmi: &VirtualMachineInstance) {
        let mut new = vmi.clone();
        let mut hub = lock(&self.hub);
        let now = hub.server.time();
        if let Some(state) = &mut new.status_mut().migration_state {
            fail(state, &now, "the guest died on arrival");
        }
        set_phase(&mut new, Phase::Failed, now);
        hub.server.update(Writer::NodeAgent, Part::Object, new).expect("written right after it was read");
    }
}

fn fail(state: &mut State, now: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time, why: &str) {
    state.failed = Some(true);
    state.completed = Some(true);
    state.end_timestamp = Some(now.clone());
    state.failure_reason = Some(why.to_owned());
}
