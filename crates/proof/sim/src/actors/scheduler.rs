//! The scheduler: finds a node for a Pod, or reports why there is none.

use std::time::Duration;

use informer::Key;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use machinery::meta::{controller_of, is_deleting, label};

use super::{claims_of, has_ended, node_of, storage};
use crate::engine::{Actor, Sim};
use crate::hub::lock;
use crate::kinds::{Object, uid};
use crate::script::PodFate;
use crate::server::{Server, Verb, Writer};

const RETRY: Duration = Duration::from_secs(15);

impl Sim {
    pub(super) fn bind(&mut self, key: &Key, pod_uid: &str) {
        let Some(pod) = self.live::<Pod>(key, pod_uid) else { return };
        if node_of(&pod).is_some() || is_deleting(&pod.metadata) || has_ended(&pod) {
            return;
        }
        if let Some(PodFate::Unschedulable(wait)) = self.world.pod_fates.get(pod_uid).copied() {
            self.world.pod_fates.remove(pod_uid);
            return self.refuse_pod(&pod, "0/3 nodes are available: 3 Insufficient memory.", wait);
        }
        let placed = self.place(&pod);
        let node = match placed {
            Ok(node) => node,
            Err(why) => return self.refuse_pod(&pod, &why, RETRY),
        };
        let mut pod = (*pod).clone();
        pod.spec.get_or_insert_default().node_name = Some(node);
        set_scheduled(&mut pod, "True", None);
        lock(&self.hub).server.write_whole(Writer::Scheduler, Verb::Update, pod);
    }

    fn place(&mut self, pod: &Pod) -> Result<String, String> {
        let hub = self.hub.clone();
        let server = &lock(&hub).server;
        for claim in claims_of(pod) {
            let key = Key::new(pod.metadata.namespace.clone().unwrap_or_default(), claim);
            let Some(found) = server.tables.claims.get(&key) else {
                return Err(format!("persistentvolumeclaim {claim:?} not found"));
            };
            if self.script.storage {
                storage::schedulable(found)?;
            }
        }
        if let Some(node) = beside(server, pod) {
            return Ok(node);
        }
        let ready = |label_value: Option<&str>| label_value == Some("true");
        let nodes: Vec<&str> = server
            .tables
            .nodes
            .all()
            .filter(|node| ready(label(&node.metadata, api::labels::SCHEDULABLE)))
            .filter_map(|node| node.metadata.name.as_deref())
            .filter(|node| !keeps_away(server, pod, node))
            .collect();
        let luck = self.rng.at("place", server.log.len() as u64) as usize;
        let node = nodes
            .get(luck % nodes.len().max(1))
            .ok_or("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.")?;
        Ok((*node).to_owned())
    }

    fn refuse_pod(&mut self, pod: &Pod, why: &str, retry: Duration) {
        let mut refused = pod.clone();
        if set_scheduled(&mut refused, "False", Some(why)) {
            lock(&self.hub).server.write_whole(Writer::Scheduler, Verb::PatchStatus, refused);
        }
        let event = crate::engine::Event::Act {
            actor: Actor::Scheduler,
            key: Key::of(pod),
            uid: uid(&pod.metadata).to_owned(),
        };
        self.schedule(retry, event);
    }

    /// A Pod that uses a claim was bound: binding modes that wait for the first consumer proceed.
    pub(super) fn notice_consumer(&mut self, pod: &Pod) {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let waiting: Vec<Object> = {
            let hub = lock(&self.hub);
            let tables = &hub.server.tables;
            let volumes =
                claims_of(pod).filter_map(|claim| tables.data_volumes.get(&Key::new(namespace.clone(), claim)));
            volumes.cloned().map(Object::DataVolume).collect()
        };
        for volume in waiting {
            let after = self.some_ms(200, 3_000);
            self.act_after(after, Actor::Cdi, &volume);
        }
        self.notice_state_claims(pod);
    }
}

/// A migration target avoids nodes with another Pod of its guest.
fn keeps_away(server: &Server, pod: &Pod, node: &str) -> bool {
    let guest = label(&pod.metadata, api::labels::CREATED_BY);
    let is_target = label(&pod.metadata, api::labels::MIGRATION_JOB_UID).is_some();
    let beside = |other: &Pod| {
        label(&other.metadata, api::labels::CREATED_BY) == guest && node_of(other) == Some(node) && !has_ended(other)
    };
    is_target && (avoids(pod, node) || server.tables.pods.all().any(|other| beside(other)))
}

/// Whether its affinity excludes the node.
fn avoids(pod: &Pod, node: &str) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let terms = required.iter().flat_map(|required| &required.node_selector_terms);
    terms.flat_map(|term| term.match_expressions.iter().flatten()).any(|wanted| {
        let named = wanted.values.iter().flatten().any(|value| value == node);
        wanted.key == "kubernetes.io/hostname" && wanted.operator == "NotIn" && named
    })
}

/// Helpers of a launcher Pod run on its node.
fn beside(server: &Server, pod: &Pod) -> Option<String> {
    let owner = controller_of(&pod.metadata).filter(|owner| owner.kind == "Pod")?;
    let key = Key::new(pod.metadata.namespace.clone().unwrap_or_default(), &owner.name);
    let launcher = server.tables.pods.get(&key)?;
    node_of(launcher).map(str::to_owned)
}

/// Sets the condition `PodScheduled`. Returns whether it changed.
fn set_scheduled(pod: &mut Pod, status: &str, why: Option<&str>) -> bool {
    let conditions = pod.status.get_or_insert_default().conditions.get_or_insert_default();
    let known = conditions.iter().position(|condition| condition.type_ == "PodScheduled");
    let new = PodCondition {
        type_: "PodScheduled".to_owned(),
        status: status.to_owned(),
        reason: why.map(|_| "Unschedulable".to_owned()),
        message: why.map(str::to_owned),
        ..PodCondition::default()
    };
    match known {
        Some(at) if conditions[at] == new => return false,
        Some(at) => conditions[at] = new,
        None => conditions.push(new),
    }
    true
}
