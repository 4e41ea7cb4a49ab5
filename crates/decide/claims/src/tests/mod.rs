//! A small cluster on which the decisions are carried out: tables of single steps, and a model with late caches, crashes
//! and competing controllers.

mod model;
mod steps;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::volumesnapshot::{VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::action::{Action, Content, Kind, Note, Part, Seen};
use crate::{claim, complete, data_source, grown, snapshot, users, volume, volume_name};

const NAMESPACE: &str = "a";

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn read<T: DeserializeOwned>(value: &Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value.clone()).unwrap_or_else(|err| panic!("{err}: {value}")))
}

/// What the API server holds.
#[derive(Clone, Debug, Default, PartialEq)]
struct Objects {
    objects: BTreeMap<(Kind, String), Value>,
    pods: BTreeMap<String, Value>,
    classes: Vec<Value>,
    snapshot_classes: Vec<Value>,
}

/// The API server, the storage and what was told.
#[derive(Clone, Debug, Default)]
struct Cluster {
    objects: Objects,
    version: u64,
    uids: u64,
    /// Volumes of the storage by handle, with their sizes.
    volumes: BTreeMap<String, i64>,
    snapshots: BTreeMap<String, i64>,
    /// Handles that Pods have mounted.
    in_use: Vec<String>,
    notes: Vec<Note>,
}

/// Whether a pass went through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Done,
    /// The cache was late, or somebody else wrote first.
    Again,
    Failed,
}

impl Objects {
    fn all<T: DeserializeOwned>(&self, kind: Kind) -> Vec<Arc<T>> {
        self.objects.iter().filter(|((of, _), _)| *of == kind).map(|(_, value)| read(value)).collect()
    }

    fn get(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.objects.get(&(kind, name.to_owned()))
    }

    fn typed<T: DeserializeOwned>(&self, kind: Kind, name: &str) -> Option<Arc<T>> {
        self.get(kind, name).map(read)
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        self.pods.values().map(read).collect()
    }

    fn decide(&self, kind: Kind, name: &str) -> Vec<Action> {
        match kind {
            Kind::Claim => self.decide_claim(name),
            Kind::Volume => {
                let Some(volume) = self.typed::<PersistentVolume>(kind, name) else { return vec![] };
                let claim = crate::claim_of(&volume).and_then(|(_, name, _)| self.typed(Kind::Claim, name));
                volume::decide(&volume::World { volume: &volume, claim: claim.as_deref(), now: now() })
            }
            Kind::Snapshot => self.decide_snapshot(name),
            Kind::Content => {
                let Some(content) = self.typed::<VolumeSnapshotContent>(kind, name) else { return vec![] };
                let of = content.spec.volume_snapshot_ref.name.clone().unwrap_or_default();
                let snapshot = self.typed(Kind::Snapshot, &of);
                snapshot::decide_content(&snapshot::ContentWorld { content: &content, snapshot: snapshot.as_deref() })
            }
        }
    }

    fn decide_claim(&self, name: &str) -> Vec<Action> {
        let Some(found) = self.typed::<PersistentVolumeClaim>(Kind::Claim, name) else { return vec![] };
        let (mut source, mut of, mut content) = (None, None, None);
        match data_source(&found) {
            Some(crate::DataSource::Claim(name)) => source = self.typed::<PersistentVolumeClaim>(Kind::Claim, name),
            Some(crate::DataSource::Snapshot(name)) => {
                of = self.typed::<VolumeSnapshot>(Kind::Snapshot, name);
                content = of.as_ref().and_then(|of| self.typed(Kind::Content, &snapshot::content_name(of)));
            }
            _ => {}
        }
        let classes: Vec<Arc<StorageClass>> = self.classes.iter().map(read).collect();
        let node = json!({"metadata": {"name": "n1"}});
        let node: Arc<k8s_openapi::api::core::v1::Node> = read(&node);
        let selected = found.metadata.annotations.as_ref().and_then(|all| all.get(claim::SELECTED_NODE));
        claim::decide(&claim::World {
            claim: &found,
            classes: &classes,
            volumes: &self.all(Kind::Volume),
            pods: &self.pods(),
            node: selected.filter(|name| *name == "n1").map(|_| node.as_ref()),
            source: claim::Source { claim: source.as_deref(), snapshot: of.as_deref(), content: content.as_deref() },
            now: now(),
        })
    }

    fn decide_snapshot(&self, name: &str) -> Vec<Action> {
        let Some(found) = self.typed::<VolumeSnapshot>(Kind::Snapshot, name) else { return vec![] };
        let claims = self.all::<PersistentVolumeClaim>(Kind::Claim);
        let source = snapshot::source_claim(&found);
        let claim = claims.iter().find(|claim| claim.metadata.name.as_deref() == source);
        let volume = claim.and_then(|claim| volume_name(claim)).and_then(|name| self.typed(Kind::Volume, name));
        let classes: Vec<Arc<VolumeSnapshotClass>> = self.snapshot_classes.iter().map(read).collect();
        let content = self.typed(Kind::Content, &snapshot::content_name(&found));
        snapshot::decide(&snapshot::World {
            snapshot: &found,
            content: content.as_deref(),
            claims: &claims,
            volume: volume.as_deref(),
            snapshots: &self.all(Kind::Snapshot),
            classes: &classes,
            now: now(),
        })
    }
}

impl Cluster {
    /// With the classes that every test knows.
    fn new() -> Self {
        let class = |name: &str, mode: &str, provisioner: &str, policy: &str, annotations: Value| {
            json!({
                "metadata": {"name": name, "annotations": annotations}, "provisioner": provisioner,
                "volumeBindingMode": mode, "reclaimPolicy": policy, "allowVolumeExpansion": true,
            })
        };
        let default = json!({crate::DEFAULT_CLASS: "true"});
        let objects = Objects {
            classes: vec![
                class("now", "Immediate", crate::DRIVER, "Delete", default),
                class("later", "WaitForFirstConsumer", crate::DRIVER, "Delete", json!({})),
                class("kept", "Immediate", crate::DRIVER, "Retain", json!({})),
                class("foreign", "Immediate", "other.io", "Delete", json!({})),
                class("disks", "WaitForFirstConsumer", "kubernetes.io/no-provisioner", "Retain", json!({})),
            ],
            snapshot_classes: vec![json!({
                "metadata": {"name": "s", "annotations": {"snapshot.storage.kubernetes.io/is-default-class": "true"}},
                "driver": crate::DRIVER, "deletionPolicy": "Delete",
            })],
            ..Objects::default()
        };
        Self { objects, ..Self::default() }
    }

    fn create(&mut self, kind: Kind, mut object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.uids += 1;
        self.version += 1;
        object["metadata"]["uid"] = json!(format!("u{}", self.uids));
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if matches!(kind, Kind::Claim | Kind::Snapshot) {
            object["metadata"]["namespace"] = json!(NAMESPACE);
        }
        // As the API server does.
        let protection = match kind {
            Kind::Claim => Some(crate::CLAIM_FINALIZER),
            Kind::Volume => Some(crate::VOLUME_FINALIZER),
            Kind::Snapshot | Kind::Content => None,
        };
        if let Some(protection) = protection {
            let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            finalizers.push(json!(protection));
            object["metadata"]["finalizers"] = json!(finalizers);
        }
        self.objects.objects.insert((kind, name), object);
    }

    fn claim(&mut self, name: &str, class: &str, spec: Value) {
        let mut claim = json!({
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": class, "volumeMode": "Filesystem",
            },
            "status": {"phase": "Pending"},
        });
        machinery::patch::merge(&mut claim["spec"], &spec);
        self.create(Kind::Claim, claim);
    }

    fn static_volume(&mut self, name: &str, size: &str, spec: Value) {
        let mut volume = json!({
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, "volumeMode": "Filesystem",
                "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/x"},
            },
            "status": {"phase": "Pending"},
        });
        machinery::patch::merge(&mut volume["spec"], &spec);
        self.create(Kind::Volume, volume);
    }

    fn snapshot(&mut self, name: &str, claim: &str) {
        self.create(
            Kind::Snapshot,
            json!({"metadata": {"name": name}, "spec": {"source": {"persistentVolumeClaimName": claim}}}),
        );
    }

    fn pod(&mut self, name: &str, claim: &str, node: Option<&str>) {
        let pod = json!({
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"nodeName": node, "containers": [],
                     "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]},
        });
        self.objects.pods.insert(name.to_owned(), pod);
    }

    fn select(&mut self, claim: &str) {
        self.change(Kind::Claim, claim, &json!({"metadata": {"annotations": {claim::SELECTED_NODE: "n1"}}}));
    }

    /// A write by somebody else.
    fn change(&mut self, kind: Kind, name: &str, patch: &Value) {
        self.version += 1;
        let Some(object) = self.objects.objects.get_mut(&(kind, name.to_owned())) else { return };
        machinery::patch::merge(object, patch);
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.drop_released(kind, name);
    }

    fn delete(&mut self, kind: Kind, name: &str) {
        self.change(kind, name, &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    }

    fn drop_released(&mut self, kind: Kind, name: &str) {
        let key = (kind, name.to_owned());
        let Some(object) = self.objects.objects.get(&key) else { return };
        let metadata = &object["metadata"];
        let held = metadata["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        if !metadata["deletionTimestamp"].is_null() && !held {
            self.objects.objects.remove(&key);
        }
    }

    fn current(&self, seen: &Seen) -> Option<&Value> {
        let found = self.objects.get(seen.kind, &seen.name)?;
        (found["metadata"]["uid"] == seen.uid.as_str()).then_some(found)
    }

    /// One pass over an object, decided on what `cache` shows. `crash` ends it after so many actions.
    fn pass(&mut self, cache: &Objects, kind: Kind, name: &str, crash: usize) -> Pass {
        for action in cache.decide(kind, name).into_iter().take(crash) {
            match self.carry_out(action) {
                Pass::Done => {}
                other => return other,
            }
        }
        Pass::Done
    }

    fn carry_out(&mut self, action: Action) -> Pass {
        match action {
            Action::Patch { object, part, patch } => return self.patch(&object, part, &patch),
            Action::CreateVolume(volume) => {
                let value = serde_json::to_value(*volume).unwrap();
                return self.create_new(Kind::Volume, value);
            }
            Action::CreateContent(content) => {
                let value = serde_json::to_value(*content).unwrap();
                return self.create_new(Kind::Content, value);
            }
            Action::Delete(seen) => {
                let version = self.current(&seen).map(|object| object["metadata"]["resourceVersion"].clone());
                match version {
                    None => return Pass::Done,
                    Some(version) if version != seen.version.as_str() => return Pass::Again,
                    Some(_) => self.delete(seen.kind, &seen.name),
                }
            }
            Action::ConfirmGone { kind, name, uid, .. } => {
                let there = self.objects.get(kind, &name);
                if there.is_some_and(|object| object["metadata"]["uid"] == uid.as_str()) {
                    return Pass::Again;
                }
            }
            Action::ConfirmUnused(seen) => {
                let Some(claim) = self.objects.typed::<PersistentVolumeClaim>(Kind::Claim, &seen.name) else {
                    return Pass::Again;
                };
                if !users(&claim, &self.objects.pods()).is_empty() {
                    return Pass::Again;
                }
            }
            Action::ConfirmNoVolume { name } => {
                if self.objects.get(Kind::Volume, &name).is_some() {
                    return Pass::Again;
                }
            }
            Action::ConfirmUnnamed { volume } => {
                let claims = self.objects.all::<PersistentVolumeClaim>(Kind::Claim);
                if claims.iter().any(|claim| crate::names_for_good(claim, &volume)) {
                    return Pass::Again;
                }
            }
            Action::Provision(request) => {
                let handle = format!("h-{}", request.name);
                let missing = match &request.source {
                    Some(Content::Volume(handle)) => !self.volumes.contains_key(handle),
                    Some(Content::Snapshot(handle)) => !self.snapshots.contains_key(handle),
                    None => false,
                };
                if missing && !self.volumes.contains_key(&handle) {
                    return Pass::Failed;
                }
                let size = *self.volumes.entry(handle.clone()).or_insert(request.required);
                let volume = complete(&request, &handle, size.unsigned_abs());
                return self.create_new(Kind::Volume, serde_json::to_value(volume).unwrap());
            }
            Action::Unprovision { name } => return self.remove(&format!("h-{name}")),
            Action::Remove { handle } => return self.remove(&handle),
            Action::Grow { volume, handle, bytes, .. } => {
                let Some(size) = self.volumes.get_mut(&handle) else { return Pass::Failed };
                *size = bytes.max(*size);
                let capacity = size.unsigned_abs();
                return self.carry_out(grown(&volume, capacity));
            }
            Action::TakeSnapshot { content, name, source } => {
                let handle = format!("h-{name}");
                let Some(size) = self.snapshots.get(&handle).or_else(|| self.volumes.get(&source)).copied() else {
                    return Pass::Failed;
                };
                self.snapshots.insert(handle.clone(), size);
                return self.carry_out(snapshot::taken(&content, &handle, 1_000, size.unsigned_abs()));
            }
            Action::InspectSnapshot { content, handle } => {
                let Some(size) = self.snapshots.get(&handle).copied() else { return Pass::Failed };
                return self.carry_out(snapshot::taken(&content, &handle, 1_000, size.unsigned_abs()));
            }
            Action::RemoveSnapshot { handle, .. } => drop(self.snapshots.remove(&handle)),
            Action::UntakeSnapshot { name } => drop(self.snapshots.remove(&format!("h-{name}"))),
            Action::Tell(note) => self.notes.push(note),
        }
        Pass::Done
    }

    /// The engine refuses to delete what is in use.
    fn remove(&mut self, handle: &str) -> Pass {
        if self.in_use.iter().any(|used| used == handle) {
            return Pass::Failed;
        }
        self.volumes.remove(handle);
        Pass::Done
    }

    fn create_new(&mut self, kind: Kind, object: Value) -> Pass {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if self.objects.get(kind, &name).is_none() {
            self.create(kind, object);
        }
        Pass::Done
    }

    fn patch(&mut self, seen: &Seen, part: Part, patch: &Value) -> Pass {
        let Some(current) = self.current(seen) else { return Pass::Again };
        if current["metadata"]["resourceVersion"] != seen.version.as_str() {
            return Pass::Again;
        }
        if part == Part::Status {
            assert!(patch.as_object().unwrap().keys().all(|key| key == "status"), "only the status: {patch}");
        } else {
            assert!(patch.get("status").is_none(), "the status has its own path: {patch}");
        }
        self.change(seen.kind, &seen.name, patch);
        Pass::Done
    }

    fn keys(&self) -> Vec<(Kind, String)> {
        self.objects.objects.keys().cloned().collect()
    }

    /// Passes over everything until nothing changes; returns whether that happened.
    fn settle(&mut self) -> bool {
        for _ in 0..60 {
            let before = (self.objects.clone(), self.volumes.clone(), self.snapshots.clone());
            for (kind, name) in self.keys() {
                let cache = self.objects.clone();
                self.pass(&cache, kind, &name, usize::MAX);
            }
            if before == (self.objects.clone(), self.volumes.clone(), self.snapshots.clone()) {
                return true;
            }
        }
        false
    }

    fn said(&self, reason: &str) -> Option<&str> {
        self.notes.iter().rev().find(|note| note.reason == reason).map(|note| note.message.as_str())
    }

    fn at(&self, kind: Kind, name: &str, path: &str) -> Value {
        let Some(object) = self.objects.get(kind, name) else { return Value::Null };
        path.split('.').fold(object, |value, step| &value[step]).clone()
    }
}
