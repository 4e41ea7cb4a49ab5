//! A Pod's claims: whether it can be placed yet, and on which nodes its volumes can be used.

use std::sync::Arc;

use claims::{Phase, When, claim_phase, claims_of, reaches, volume_name, waits_for_consumer};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;

use crate::NodeView;

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// The cluster's claims, volumes and storage classes.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
    pub volumes: Vec<Arc<PersistentVolume>>,
    pub classes: Vec<Arc<StorageClass>>,
}

/// What a Pod's claims ask of a node.
#[derive(Default)]
pub(crate) struct Wants<'a> {
    /// Volumes that are bound already.
    bound: Vec<&'a PersistentVolume>,
    /// A bound claim has no volume.
    without_volume: bool,
    /// Claims that are bound once a node is chosen.
    waiting: Vec<(&'a PersistentVolumeClaim, &'a StorageClass)>,
    /// Claims that only one Pod may use, and claims that only one node may use.
    one_pod: Vec<&'a str>,
    one_node: Vec<&'a str>,
    volumes: &'a [Arc<PersistentVolume>],
}

impl Storage {
    fn claim(&self, namespace: Option<&str>, name: &str) -> Option<&PersistentVolumeClaim> {
        let of = |claim: &&PersistentVolumeClaim| {
            claim.metadata.namespace.as_deref() == namespace && claim.metadata.name.as_deref() == Some(name)
        };
        self.claims.iter().map(Arc::as_ref).find(of)
    }

    fn volume(&self, name: &str) -> Option<&PersistentVolume> {
        self.volumes.iter().map(Arc::as_ref).find(|volume| volume.metadata.name.as_deref() == Some(name))
    }

    fn class(&self, claim: &PersistentVolumeClaim) -> Option<&StorageClass> {
        let name = claims::class_of(claim)?;
        self.classes.iter().map(Arc::as_ref).find(|class| class.metadata.name.as_deref() == Some(name))
    }

    /// What a Pod's claims ask for, or why it cannot run anywhere.
    pub(crate) fn wants(&self, pod: &Pod) -> Result<Wants<'_>, String> {
        let mut wants = Wants { volumes: &self.volumes, ..Wants::default() };
        for name in claims_of(pod) {
            let claim = self.claim(pod.metadata.namespace.as_deref(), &name);
            let claim = claim.ok_or_else(|| format!("persistentvolumeclaim {name:?} not found"))?;
            if claim_phase(claim) == Phase::Lost {
                let volume = volume_name(claim).unwrap_or_default();
                return Err(format!(
                    "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
                ));
            }
            if claim.metadata.deletion_timestamp.is_some() {
                return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
            }
            self.add(&mut wants, claim)?;
        }
        Ok(wants)
    }

    fn add<'a>(&'a self, wants: &mut Wants<'a>, claim: &'a PersistentVolumeClaim) -> Result<(), String> {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let modes = claim.spec.iter().flat_map(|spec| spec.access_modes.iter().flatten());
        for mode in modes {
            match mode.as_str() {
                "ReadWriteOncePod" => wants.one_pod.push(name),
                "ReadWriteOnce" => wants.one_node.push(name),
                _ => {}
            }
        }
        let completed = claim.metadata.annotations.iter().flatten().any(|(key, _)| key == BIND_COMPLETED);
        match (volume_name(claim).filter(|_| completed), self.class(claim)) {
            (Some(volume), _) => match self.volume(volume) {
                Some(volume) => wants.bound.push(volume),
                None => wants.without_volume = true,
            },
            (None, Some(class)) if waits_for_consumer(class) => wants.waiting.push((claim, class)),
            (None, _) => return Err("pod has unbound immediate PersistentVolumeClaims".to_owned()),
        }
        Ok(())
    }
}

impl Wants<'_> {
    /// Whether a Pod of the node has a claim that only one Pod may use, wherever the other one is.
    pub(crate) fn taken(&self, pod: &Pod, view: &NodeView) -> Option<&'static str> {
        let shared =
            |other: &Arc<Pod>| other.metadata.namespace == pod.metadata.namespace && uses(other, &self.one_pod);
        let why = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";
        view.pods.iter().any(shared).then_some(why)
    }

    /// Why the Pod's volumes cannot be used on a node.
    pub(crate) fn objection(&self, view: &NodeView) -> Option<&'static str> {
        if self.without_volume {
            return Some("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)");
        }
        if !self.bound.iter().all(|volume| reaches(volume, &view.node)) {
            return Some("node(s) didn't match PersistentVolume's node affinity");
        }
        let can_be_bound = self.waiting.iter().all(|(claim, class)| self.can_be_bound(claim, class, view));
        (!can_be_bound).then_some("node(s) didn't find available persistent volumes to bind")
    }

    fn can_be_bound(&self, claim: &PersistentVolumeClaim, class: &StorageClass, view: &NodeView) -> bool {
        // Chosen before: its volume may be in the making there.
        if let Some(selected) = selected_node(claim) {
            return Some(selected) == view.node.metadata.name.as_deref();
        }
        class.provisioner != "kubernetes.io/no-provisioner"
            || claims::best(claim, self.volumes, When::On(&view.node)).is_some()
    }

    /// How many claims of the Pod are in use on a node, which would not be let in on another one.
    pub(crate) fn in_use_here(&self, pod: &Pod, view: &NodeView) -> usize {
        let here = |name: &&&str| {
            let uses_it = |other: &&Arc<Pod>| {
                other.metadata.namespace == pod.metadata.namespace && uses(other, std::slice::from_ref(*name))
            };
            view.pods.iter().any(|other| uses_it(&other))
        };
        self.one_node.iter().filter(here).count()
    }

    /// Claims that wait, and of them those that have no node yet.
    pub(crate) fn waiting(&self) -> (bool, Vec<String>) {
        let unselected = self.waiting.iter().filter(|(claim, _)| selected_node(claim).is_none());
        let names = unselected.filter_map(|(claim, _)| claim.metadata.name.clone()).collect();
        (!self.waiting.is_empty(), names)
    }
}

fn uses(pod: &Pod, names: &[&str]) -> bool {
    !names.is_empty() && claims_of(pod).iter().any(|claim| names.contains(&claim.as_str()))
}

fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.metadata.annotations.as_ref()?.get(claims::claim::SELECTED_NODE).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use serde_json::{Value, json};

    use super::*;
    use crate::{Placed, place};

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn node(name: &str, pods: Vec<Arc<Pod>>) -> NodeView {
        let node: Arc<Node> = read(json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {
                "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }));
        NodeView { node, pods }
    }

    fn pod(name: &str, claims: &[&str]) -> Arc<Pod> {
        let volumes: Vec<Value> =
            claims.iter().map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}})).collect();
        read(json!({"metadata": {"name": name, "namespace": "a"}, "spec": {"containers": [], "volumes": volumes}}))
    }

    fn claim(change: Value) -> Arc<PersistentVolumeClaim> {
        let mut claim = json!({
            "metadata": {"name": "c", "namespace": "a", "annotations": {}},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "later",
                     "resources": {"requests": {"storage": "1Gi"}}},
        });
        for (part, fields) in change.as_object().unwrap() {
            let own = claim.as_object_mut().unwrap().entry(part.clone()).or_insert_with(|| json!({}));
            own.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        }
        read(claim)
    }

    fn bound(change: Value) -> Arc<PersistentVolumeClaim> {
        let mut all = json!({
            "metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": "v"}, "status": {"phase": "Bound"},
        });
        for (part, fields) in change.as_object().unwrap() {
            all[part].as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        }
        claim(all)
    }

    fn only_on(node: &str, phase: &str) -> Arc<PersistentVolume> {
        read(json!({
            "metadata": {"name": "v"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "local-disks",
                "nodeAffinity": {"required": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]},
                ]}},
            },
            "status": {"phase": phase},
        }))
    }

    fn storage(claims: Vec<Arc<PersistentVolumeClaim>>, volumes: Vec<Arc<PersistentVolume>>) -> Storage {
        let class = |name: &str, provisioner: &str, mode: &str| {
            read(json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}))
        };
        let classes = vec![
            class("now", "p", "Immediate"),
            class("later", "p", "WaitForFirstConsumer"),
            class("local-disks", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
        ];
        Storage { claims, volumes, classes }
    }

    fn on(node: &str) -> Placed {
        Placed { node: node.to_owned(), waits: false, select: vec![] }
    }

    #[test]
    fn a_pod_waits_for_its_claims_and_goes_where_its_volumes_are() {
        let selected = |node: &str| json!({"metadata": {"annotations": {claims::claim::SELECTED_NODE: node}}});
        let all = |why: &str| Err(format!("0/2 nodes are available: {why}."));
        let table: Vec<(&str, Storage, Result<Placed, String>)> = vec![
            ("no such claim", storage(vec![], vec![]), all("persistentvolumeclaim \"c\" not found")),
            (
                "a claim of another namespace",
                storage(vec![claim(json!({"metadata": {"namespace": "b"}}))], vec![]),
                all("persistentvolumeclaim \"c\" not found"),
            ),
            (
                "on its way out",
                storage(vec![bound(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))], vec![]),
                all("persistentvolumeclaim \"c\" is being deleted"),
            ),
            (
                "lost",
                storage(vec![bound(json!({"status": {"phase": "Lost"}}))], vec![]),
                all("persistentvolumeclaim \"c\" bound to non-existent persistentvolume \"v\""),
            ),
            (
                "not bound at once",
                storage(vec![claim(json!({"spec": {"storageClassName": "now"}}))], vec![]),
                all("pod has unbound immediate PersistentVolumeClaims"),
            ),
            (
                "of no class",
                storage(vec![claim(json!({"spec": {"storageClassName": ""}}))], vec![]),
                all("pod has unbound immediate PersistentVolumeClaims"),
            ),
            (
                "waits for a consumer",
                storage(vec![claim(json!({}))], vec![]),
                Ok(Placed { node: "n1".into(), waits: true, select: vec!["c".into()] }),
            ),
            (
                "its node was chosen before",
                storage(vec![claim(selected("n2"))], vec![]),
                Ok(Placed { node: "n2".into(), waits: true, select: vec![] }),
            ),
            (
                "its node is gone",
                storage(vec![claim(selected("n9"))], vec![]),
                all("2 node(s) didn't find available persistent volumes to bind"),
            ),
            (
                "bound, anywhere",
                storage(vec![bound(json!({}))], vec![read(json!({"metadata": {"name": "v"}}))]),
                Ok(on("n1")),
            ),
            ("bound, there", storage(vec![bound(json!({}))], vec![only_on("n2", "Bound")]), Ok(on("n2"))),
            (
                "bound, nowhere",
                storage(vec![bound(json!({}))], vec![only_on("n9", "Bound")]),
                all("2 node(s) didn't match PersistentVolume's node affinity"),
            ),
            (
                "bound to nothing",
                storage(vec![bound(json!({}))], vec![]),
                all("2 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"),
            ),
            (
                "a free volume is there",
                storage(
                    vec![claim(json!({"spec": {"storageClassName": "local-disks"}}))],
                    vec![only_on("n2", "Available")],
                ),
                Ok(Placed { node: "n2".into(), waits: true, select: vec!["c".into()] }),
            ),
            (
                "no free volume is anywhere",
                storage(
                    vec![claim(json!({"spec": {"storageClassName": "local-disks"}}))],
                    vec![only_on("n2", "Released")],
                ),
                all("2 node(s) didn't find available persistent volumes to bind"),
            ),
        ];
        for (name, storage, expected) in table {
            let found = place(&pod("p", &["c"]), &[node("n1", vec![]), node("n2", vec![])], &storage);
            assert_eq!(found.map_err(|why| why.message), expected, "{name}");
        }
    }

    #[test]
    fn a_claim_in_use_draws_a_pod_to_its_node_and_a_claim_for_one_pod_keeps_it_away() {
        let volume = || vec![read(json!({"metadata": {"name": "v"}}))];
        let nodes = || [node("n1", vec![]), node("n2", vec![pod("first", &["c"])])];
        let found = place(&pod("p", &["c"]), &nodes(), &storage(vec![bound(json!({}))], volume()));
        assert_eq!(found.unwrap(), on("n2"), "although it is the fuller one");
        let other = place(&pod("p", &["c"]), &[node("n1", vec![])], &storage(vec![bound(json!({}))], volume()));
        assert_eq!(other.unwrap(), on("n1"), "it is a wish only");
        let shared = bound(json!({"spec": {"accessModes": ["ReadWriteMany"]}}));
        let found = place(&pod("p", &["c"]), &nodes(), &storage(vec![shared], volume()));
        assert_eq!(found.unwrap(), on("n1"));
        let single = || bound(json!({"spec": {"accessModes": ["ReadWriteOncePod"]}}));
        let found = place(&pod("p", &["c"]), &[nodes()[1].clone()], &storage(vec![single()], volume()));
        assert_eq!(
            found.unwrap_err().message,
            "0/1 nodes are available: 1 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod \
             access mode."
        );
        // Whichever node the other Pod is on.
        let found = place(&pod("p", &["c"]), &nodes(), &storage(vec![single()], volume()));
        assert!(found.unwrap_err().message.contains("2 node has pod using"));
    }
}
