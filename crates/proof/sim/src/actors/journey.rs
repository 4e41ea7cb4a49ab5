//! Guests between two nodes: how their memory is sent, and when they switch over.
//!
//! Memory is sent in rounds; what the guest dirties during one is sent in the next. Rounds get shorter if the guest
//! dirties memory slower than it is sent. When the last round fits into the allowed downtime, the guest switches over.
//! A guest that exceeds its time budget stays, unless post-copy is allowed: then it switches over at once and its
//! memory follows. All guests that leave a node share its link.

use std::time::Duration;

use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigrationState as State};
use informer::Key;
use k8s_openapi::api::core::v1::Pod;
use machinery::meta::is_deleting;
use machinery::quantity::Quantity;

use super::{phase_of, state};
use crate::engine::{Actor, Sim};
use crate::hub::lock;
use crate::kinds::{Object, uid};
use crate::script::{Fault, JourneyFate};

/// Bandwidth of a node, in MiB per second.
const LINK: u64 = 64;
/// Default dirty rate of a guest, in MiB per second.
const IDLE: u64 = 4;
/// Maximum downtime of a guest, in milliseconds.
const PAUSE: u64 = 300;
/// Minimum length of a round, in milliseconds.
const ROUND: u64 = 250;

/// The true state of a migrating guest. The virt-handlers report it later, or never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Preparing,
    /// It runs at the source while its memory is sent.
    Copying,
    /// It runs at the target and its memory follows (post-copy).
    Following,
    Arrived,
    /// The transfer failed for this reason, and the guest stayed.
    Broken(&'static str),
    /// The transfer failed when the guest was on both sides.
    Lost,
}

/// A migrating guest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journey {
    number: u64,
    fate: Option<JourneyFate>,
    /// Dirty rate of the guest, in MiB per second.
    writes: u64,
    pub(super) stage: Stage,
    /// The instance's UID.
    vmi: String,
    /// The receiving VMI, if it is another one.
    pub(super) receiver: Option<Object>,
    source_node: String,
    source_pod: String,
    target_pod: String,
    begun: Duration,
    round_begun: Duration,
}

impl Journey {
    fn is_sending(&self) -> bool {
        matches!(self.stage, Stage::Copying | Stage::Following)
    }
}

/// In MiB.
fn memory(vmi: &VirtualMachineInstance) -> u64 {
    let guest = vmi.spec.domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    let bytes = guest.and_then(|guest| Quantity::try_from(guest).ok()).map_or(0, |guest| guest.value());
    u64::try_from(bytes).unwrap_or(0) >> 20
}

/// The time budget of the transfer.
fn budget(vmi: &VirtualMachineInstance, state: &State) -> Duration {
    let per_gib = state.migration_configuration.as_ref().and_then(|settings| settings.completion_timeout_per_gib);
    Duration::from_secs(memory(vmi).div_ceil(1024) * u64::try_from(per_gib.unwrap_or(150)).unwrap_or(0))
}

fn state_of(vmi: &VirtualMachineInstance) -> Option<&State> {
    vmi.status.as_ref()?.migration_state.as_ref()
}

impl Sim {
    /// The journey of a migration; its fate is drawn when a node first sees it.
    pub(super) fn journey(&mut self, migration: &str) -> &mut Journey {
        let number = self.world.journeys.len() as u64;
        let script = &self.script;
        self.world.journeys.entry(migration.to_owned()).or_insert_with(|| {
            let fates = script.faults.iter().filter_map(|fault| match fault {
                Fault::Journey { nth, fate } if *nth == number => Some(*fate),
                _ => None,
            });
            let (busy, others): (Vec<_>, Vec<_>) = fates.partition(|fate| matches!(fate, JourneyFate::Busy(_)));
            let writes = if let Some(JourneyFate::Busy(rate)) = busy.first() { *rate } else { IDLE };
            Journey { number, fate: others.first().copied(), writes, ..Journey::default() }
        })
    }

    /// The source starts to send.
    pub(super) fn depart(&mut self, vmi: &VirtualMachineInstance, migration: &str, pods: [&Pod; 2]) {
        self.depart_to(vmi, migration, pods, None);
    }

    /// The same, possibly to another VMI.
    pub(super) fn depart_to(
        &mut self,
        vmi: &VirtualMachineInstance,
        migration: &str,
        pods: [&Pod; 2],
        receiver: Option<Object>,
    ) {
        let now = self.now;
        let journey = self.journey(migration);
        journey.receiver = receiver;
        journey.stage = Stage::Copying;
        journey.vmi = uid(&vmi.metadata).to_owned();
        journey.source_node = super::node_of(pods[0]).unwrap_or_default().to_owned();
        [journey.source_pod, journey.target_pod] = pods.map(|pod| uid(&pod.metadata).to_owned());
        journey.begun = now;
        let (number, fate) = (journey.number, journey.fate);
        if let Some(JourneyFate::Breaks(after) | JourneyFate::TargetDies(after)) = fate {
            self.act_after(after, Actor::Severs { journey: number }, &Object::Vmi(vmi.clone().into()));
        }
        self.begin_round(vmi, migration, memory(vmi));
    }

    /// Sends this many MiB, as fast as the shared link allows.
    fn begin_round(&mut self, vmi: &VirtualMachineInstance, migration: &str, mib: u64) {
        let now = self.now;
        let journey = self.journey(migration);
        journey.round_begun = now;
        let (number, node) = (journey.number, journey.source_node.clone());
        let takes = Duration::from_millis((mib * 1000 / self.share(&node)).max(ROUND));
        self.act_after(takes, Actor::Sends { journey: number }, &Object::Vmi(vmi.clone().into()));
    }

    /// A guest's share of the link.
    fn share(&self, node: &str) -> u64 {
        let leaving = self.world.journeys.values().filter(|other| other.is_sending() && other.source_node == node);
        (LINK / (leaving.count() as u64).max(1)).max(1)
    }

    fn journey_numbered(&self, number: u64) -> Option<(String, Journey)> {
        let mut all = self.world.journeys.iter();
        let found = all.find(|(_, journey)| journey.number == number && journey.is_sending());
        found.map(|(migration, journey)| (migration.clone(), journey.clone()))
    }

    /// The end of a round.
    pub(super) fn send_memory(&mut self, key: &Key, vmi_uid: &str, number: u64) {
        let Some((migration, journey)) = self.journey_numbered(number) else { return };
        let Some(vmi) = self.live::<VirtualMachineInstance>(key, vmi_uid).filter(|vmi| vmi.is_running()) else {
            return self.break_off(&migration, "the guest ended");
        };
        let Some(state) = state_of(&vmi).filter(|state| state.migration_uid.as_ref() == Some(&migration)).cloned()
        else {
            return self.break_off(&migration, "the instance was given to another migration");
        };
        if state.failed == Some(true) && journey.stage == Stage::Copying {
            return self.break_off(&migration, "the migration was given up");
        }
        if !self.is_passable(&vmi, &journey) {
            return self.break_off(&migration, "the transfer broke off");
        }
        if journey.stage == Stage::Following {
            return self.arrive(&vmi, &migration);
        }
        let (share, took) = (self.share(&journey.source_node), self.now - journey.round_begun);
        let written = (journey.writes * took.as_millis() as u64 / 1000).min(memory(&vmi));
        let post_copy = state.migration_configuration.as_ref().and_then(|settings| settings.allow_post_copy);
        if written <= share * PAUSE / 1000 {
            self.arrive(&vmi, &migration);
        } else if self.now - journey.begun <= budget(&vmi, &state) {
            self.begin_round(&vmi, &migration, written);
        } else if post_copy == Some(true) {
            self.journey(&migration).stage = Stage::Following;
            self.move_guest(&migration, &journey);
            self.begin_round(&vmi, &migration, written);
            let after = self.some_ms(10, 1_000);
            self.act_after(after, Actor::NodeAgent, &Object::Vmi(vmi));
        } else {
            self.break_off(&migration, "the guest writes to its memory faster than it can be sent");
        }
    }

    /// Whether both sides run and reach each other.
    fn is_passable(&self, vmi: &VirtualMachineInstance, journey: &Journey) -> bool {
        let runs = |uid: &str| {
            let pod = self.pod_with(uid);
            pod.is_some_and(|pod| {
                let node = super::node_of(&pod).is_some_and(|node| self.answers(node));
                node && phase_of(&pod) == "Running" && !is_deleting(&pod.metadata)
            })
        };
        runs(&journey.source_pod)
            && runs(&journey.target_pod)
            && !is_deleting(&vmi.metadata)
            && journey.receiver.as_ref().is_none_or(|receiver| self.takes_guests(receiver))
    }

    fn pod_with(&self, wanted: &str) -> Option<std::sync::Arc<Pod>> {
        let hub = lock(&self.hub);
        hub.server.tables.pods.all().find(|pod| uid(&pod.metadata) == wanted).cloned()
    }

    fn move_guest(&mut self, migration: &str, journey: &Journey) {
        let hub = self.hub.clone();
        let server = &lock(&hub).server;
        match &journey.receiver {
            None => {
                let pods = [&journey.source_pod, &journey.target_pod];
                let claims = pods.map(|pod| state::claim_of_pod(server, pod));
                self.judge.guests.moves(&journey.vmi, &journey.target_pod);
                if let (Some(guest), [Some(from), Some(to)]) =
                    (self.judge.guests.in_pod(&journey.target_pod).cloned(), claims)
                {
                    self.judge.guests.kept.moves(&guest.name, from, to);
                }
            }
            Some(receiver) => {
                let to = (receiver.uid(), receiver.key().to_string());
                let left = (migration, server.log.len());
                self.judge.guests.passes(&journey.vmi, &journey.target_pod, to, left);
            }
        }
        self.judge.guest_changed(server);
    }

    /// All of the guest is at the target.
    fn arrive(&mut self, vmi: &VirtualMachineInstance, migration: &str) {
        let journey = self.journey(migration);
        let was = std::mem::replace(&mut journey.stage, Stage::Arrived);
        let journey = journey.clone();
        if was == Stage::Copying {
            self.move_guest(migration, &journey);
        }
        let source = self.pod_named(vmi, state_of(vmi).and_then(|state| state.source_pod.as_deref()));
        if let Some(source) = source.map(|pod| Object::Pod(pod.into())) {
            // A launcher without a guest exits by itself; one that dies is removed with its Pod before anybody reports.
            if matches!(journey.fate, Some(JourneyFate::SourceDies | JourneyFate::BothDie)) {
                self.act_after(Duration::from_millis(1), Actor::KubeletKill, &source);
                self.act_after(Duration::from_millis(2), Actor::KubeletEvict, &source);
            } else {
                let after = self.some_ms(10, 3_000);
                self.act_after(after, Actor::KubeletReap, &source);
            }
        }
        if let Some(target) = self.pod_with(&journey.target_pod).filter(|_| journey.fate == Some(JourneyFate::BothDie))
        {
            self.act_after(Duration::from_millis(1), Actor::KubeletKill, &Object::Pod(target));
        }
        let after = self.some_ms(10, 6_000);
        let teller = journey.receiver.unwrap_or_else(|| Object::Vmi(vmi.clone().into()));
        self.act_after(after, Actor::NodeAgent, &teller);
    }

    /// The transfer ends prematurely.
    pub(super) fn break_off(&mut self, migration: &str, why: &'static str) {
        let journey = self.journey(migration);
        journey.stage = if journey.stage == Stage::Following { Stage::Lost } else { Stage::Broken(why) };
        let journey = journey.clone();
        if journey.stage == Stage::Lost {
            self.judge.guests.ends(&journey.vmi);
            self.judge.guests.ends_in(&journey.target_pod);
        }
        if let Some(receiver) = &journey.receiver {
            let after = self.some_ms(10, 3_000);
            self.act_after(after, Actor::NodeAgent, receiver);
        }
        let (vmi, target) = {
            let hub = lock(&self.hub);
            let tables = &hub.server.tables;
            let vmi = tables.vmis.all().find(|vmi| uid(&vmi.metadata) == journey.vmi).cloned();
            (vmi, tables.pods.all().find(|pod| uid(&pod.metadata) == journey.target_pod).cloned())
        };
        // A launcher that waits for a guest exits when nobody sends one any more.
        if let Some(target) = target {
            let after = self.some_ms(500, 5_000);
            self.act_after(after, Actor::KubeletReap, &Object::Pod(target));
        }
        if let Some(vmi) = vmi {
            let after = self.some_ms(10, 3_000);
            self.act_after(after, Actor::NodeAgent, &Object::Vmi(vmi));
        }
    }

    /// A fault ends the transfer.
    pub(super) fn sever(&mut self, number: u64) {
        let Some((migration, journey)) = self.journey_numbered(number) else { return };
        self.break_off(&migration, "the transfer broke off");
        let target = {
            let hub = lock(&self.hub);
            hub.server.tables.pods.all().find(|pod| uid(&pod.metadata) == journey.target_pod).cloned()
        };
        if let (Some(JourneyFate::TargetDies(_)), Some(target)) = (journey.fate, target) {
            self.act_after(Duration::from_millis(1), Actor::KubeletKill, &Object::Pod(target));
        }
    }

    /// When a side is gone, its part of the guest is lost.
    pub(super) fn end_of_side(&mut self, pod: &str) {
        let touched = |journey: &Journey| {
            journey.is_sending() && [&journey.source_pod, &journey.target_pod].iter().any(|side| *side == pod)
        };
        let found = self.world.journeys.iter().find(|(_, journey)| touched(journey));
        if let Some(migration) = found.map(|(migration, _)| migration.clone()) {
            self.break_off(&migration, "one side ended");
        }
    }
}
