//! Nodes that run, become unresponsive, come back or are removed.

use std::time::Duration;

use api::{annotations, labels};
use informer::Key;
use k8s_openapi::api::core::v1::{Node, Pod, ResourceQuota};
use machinery::meta::is_deleting;
use virt_controller::api::Part;

use super::{build, kubelet, node_of};
use crate::engine::{Actor, Event, Sim};
use crate::hub::lock;
use crate::kinds::{Object, uid};
use crate::script::node_name;
use crate::server::{Propagation, Writer};

const HEARTBEAT: Duration = Duration::from_secs(100);

impl Sim {
    /// virt-handler sends a heartbeat, which makes the node schedulable again.
    pub(crate) fn heartbeat(&mut self, node: u8) {
        self.schedule(HEARTBEAT, Event::Heartbeat { node });
        let name = node_name(node);
        if !self.answers(&name) {
            return;
        }
        let mut hub = lock(&self.hub);
        let time = hub.server.time().0.to_string();
        let Some(node) = hub.server.lookup::<Node>(&Key::new("", &name)) else { return };
        let mut node = (*node).clone();
        node.metadata.annotations.get_or_insert_default().insert(annotations::HEARTBEAT.to_owned(), time);
        node.metadata.labels.get_or_insert_default().insert(labels::SCHEDULABLE.to_owned(), "true".to_owned());
        hub.server.update(Writer::NodeAgent, Part::Object, node).expect("written right after it was read");
    }

    pub(crate) fn silence_node(&mut self, node: u8) {
        let name = node_name(node);
        self.world.silent.insert(name.clone());
        for pod in self.pods_on(&name) {
            self.act_after(kubelet::EVICTED_AFTER, Actor::KubeletEvict, &pod);
        }
    }

    fn pods_on(&self, node: &str) -> Vec<Object> {
        let hub = lock(&self.hub);
        let here = hub.server.tables.pods.all().filter(|pod| node_of(pod) == Some(node));
        here.cloned().map(Object::Pod).collect()
    }

    /// The node responds again and catches up.
    pub(crate) fn return_node(&mut self, node: u8) {
        let name = node_name(node);
        if lock(&self.hub).server.lookup::<Node>(&Key::new("", &name)).is_none() {
            return; // removed meanwhile
        }
        self.timeline.line(self.now, "node", &format!("{name} answers again"));
        self.world.silent.remove(&name);
        for pod in self.pods_on(&name) {
            let after = self.some_ms(100, 3_000);
            let actor = if is_deleting(pod.meta()) { Actor::KubeletReap } else { Actor::Kubelet };
            self.act_after(after, actor, &pod);
        }
        let vmis: Vec<Object> = lock(&self.hub).server.tables.vmis.all().cloned().map(Object::Vmi).collect();
        for vmi in vmis {
            let after = self.some_ms(500, 5_000);
            self.act_after(after, Actor::NodeAgent, &vmi);
        }
        // What ended while the node was away.
        let ended: Vec<Object> = {
            let hub = lock(&self.hub);
            let tables = &hub.server.tables;
            let over = tables.vmis.all().filter(|vmi| vmi.is_final());
            over.flat_map(|vmi| super::launchers_of(&hub.server, uid(&vmi.metadata)))
                .cloned()
                .map(Object::Pod)
                .collect()
        };
        for pod in ended {
            let after = self.some_ms(500, 5_000);
            self.act_after(after, Actor::KubeletReap, &pod);
        }
        let after = self.some_ms(100, 2_000);
        self.schedule(after, Event::Heartbeat { node });
    }

    /// Target Pods are rejected from now on.
    pub(crate) fn refuse_targets(&mut self, quota: bool) {
        let server = &mut lock(&self.hub).server;
        server.target_ban = Some("violates PodSecurity \"restricted:latest\"");
        // Two faults may overlap, but there is only one quota.
        if quota && server.create(Writer::User, build::quota()).is_ok() {
            server.target_ban = Some("exceeded quota: targets, requested: pods=1, used: pods=1, limited: pods=1");
        }
    }

    pub(crate) fn allow_targets(&mut self) {
        let server = &mut lock(&self.hub).server;
        server.target_ban = None;
        let quota = Key::new(crate::script::NAMESPACE, "targets");
        // There is no quota if something else rejected them.
        let _ = server.delete::<ResourceQuota>(Writer::User, &quota, None, None, Propagation::Background);
    }

    /// Removes the node and its Pods.
    pub(crate) fn remove_node(&mut self, node: u8) {
        let name = node_name(node);
        let gone = Key::new("", &name);
        let mut hub = lock(&self.hub);
        // Two faults may remove the same node.
        if hub.server.delete::<Node>(Writer::Kubelet, &gone, None, None, Propagation::Background).is_err() {
            return;
        }
        drop(hub);
        debug_assert!(node < build::NODES);
        for pod in self.pods_on(&name) {
            let key = pod.key();
            let deleted = lock(&self.hub).server.delete::<Pod>(
                Writer::Kubelet,
                &key,
                Some(pod.uid()),
                Some(0),
                Propagation::Background,
            );
            deleted.expect("it was listed just now");
        }
    }
}
