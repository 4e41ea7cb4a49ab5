//! Every write of the controllers goes through here: counted, with errors that name the object.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use informer::Key;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::api::{Api, Kind, Part, Patch};
use crate::error::{Error, Request};

/// Writes to the API by the key of the virtual machine (and instance) they were made for. Events are not counted.
#[derive(Default)]
pub struct WriteCounter {
    counts: Mutex<HashMap<Key, u64>>,
}

impl WriteCounter {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, u64>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, key: &Key) {
        *self.lock().entry(key.clone()).or_insert(0) += 1;
    }

    /// Writes made for this key since it was last forgotten.
    pub fn of(&self, key: &Key) -> u64 {
        self.lock().get(key).copied().unwrap_or(0)
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }
}

/// What came of a create or delete that may find its work done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Now,
    Before,
}

/// Writes in the name of one key: the object a controller works on. What is written is in the key's namespace.
#[derive(Clone)]
pub(crate) struct Writer<A> {
    api: A,
    pub(crate) writes: Arc<WriteCounter>,
}

impl<A: Api> Writer<A> {
    pub(crate) fn new(api: A, writes: Arc<WriteCounter>) -> Self {
        Self { api, writes }
    }

    /// The API itself, for what has no method here.
    pub(crate) fn api(&self) -> &A {
        &self.api
    }

    /// Reads live. Nothing if the object does not exist.
    pub(crate) async fn get<K: Kind>(&self, namespace: &str, name: &str) -> Result<Option<K>, Error> {
        let found = self.api.get(namespace, name).await;
        found.map_err(|error| failed::<K>("read", name, Request::Plain, error))
    }

    /// Reads live all objects with these labels.
    pub(crate) async fn list<K: Kind>(&self, namespace: &str, labels: &str) -> Result<Vec<K>, Error> {
        let found = self.api.list(namespace, labels).await;
        found.map_err(|error| failed::<K>("list", labels, Request::Plain, error))
    }

    /// Creates an object, or finds that we have: one of its name that `owner` controls. Any other one is an error.
    pub(crate) async fn create<K: Kind>(&self, key: &Key, object: &K, owner: &str) -> Result<Done, Error> {
        self.create_unless(key, object, |found| machinery::meta::is_controlled_by(found.meta(), owner)).await
    }

    /// Creates an object, or finds one of its name that is `ours`. Any other one is an error.
    pub(crate) async fn create_unless<K: Kind>(
        &self,
        key: &Key,
        object: &K,
        ours: impl Fn(&K) -> bool,
    ) -> Result<Done, Error> {
        let name = object.meta().name.clone().unwrap_or_default();
        self.writes.count(key);
        match self.api.create(&key.namespace, object).await {
            Ok(_) => Ok(Done::Now),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let found: Option<K> = self.get(&key.namespace, &name).await?;
                let is_ours = found.is_some_and(|found| ours(&found));
                if is_ours { Ok(Done::Before) } else { Err(Error::NameTaken { kind: kind::<K>(), name }) }
            }
            Err(error) => Err(failed::<K>("create", &name, Request::Plain, error)),
        }
    }

    /// Deletes the object with this UID, or finds it gone.
    pub(crate) async fn delete<K: Kind>(
        &self,
        key: &Key,
        name: &str,
        uid: &str,
        grace_seconds: Option<u32>,
    ) -> Result<Done, Error> {
        self.writes.count(key);
        match self.api.delete::<K>(&key.namespace, name, uid, grace_seconds).await {
            Ok(()) => Ok(Done::Now),
            // With the name taken anew the UID does not match, which is a conflict.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(Done::Before),
            Err(error) => Err(failed::<K>("delete", name, Request::Plain, error)),
        }
    }

    /// Replaces the object read before. Returns what is stored now.
    pub(crate) async fn replace<K: Kind>(&self, key: &Key, object: &K) -> Result<K, Error> {
        self.writes.count(key);
        let replaced = self.api.replace(&key.namespace, Part::Object, object).await;
        replaced.map_err(|error| failed::<K>("update", &key.name, Request::Guarded, error))
    }

    /// Replaces the status of the object read before. Returns what is stored now.
    pub(crate) async fn replace_status<K: Kind>(&self, key: &Key, object: &K) -> Result<K, Error> {
        self.writes.count(key);
        let replaced = self.api.replace(&key.namespace, Part::Status, object).await;
        replaced.map_err(|error| failed::<K>("update the status of", &key.name, Request::Guarded, error))
    }

    /// Patches an object. Returns what is stored now.
    pub(crate) async fn patch<K: Kind>(&self, key: &Key, name: &str, patch: json_patch::Patch) -> Result<K, Error> {
        self.write_patch(key, name, Part::Object, Patch::Json(patch)).await
    }

    /// Merges into an object; the UID in it is the guard.
    pub(crate) async fn merge<K: Kind>(&self, key: &Key, name: &str, patch: Value) -> Result<K, Error> {
        self.write_patch(key, name, Part::Object, Patch::Merge(patch)).await
    }

    /// Merges into an object of Kubernetes, list entries by their keys.
    pub(crate) async fn merge_strategic<K: Kind>(&self, key: &Key, name: &str, patch: Value) -> Result<K, Error> {
        self.write_patch(key, name, Part::Object, Patch::Strategic(patch)).await
    }

    /// Merges into an object's status, list entries by their keys; the UID in it is the guard.
    pub(crate) async fn merge_status<K: Kind>(&self, key: &Key, name: &str, patch: Value) -> Result<K, Error> {
        self.write_patch(key, name, Part::Status, Patch::Strategic(patch)).await
    }

    /// Patches an object's status. Returns what is stored now.
    pub(crate) async fn patch_status<K: Kind>(
        &self,
        key: &Key,
        name: &str,
        patch: json_patch::Patch,
    ) -> Result<K, Error> {
        self.write_patch(key, name, Part::Status, Patch::Json(patch)).await
    }

    /// Asks the Pod with this UID to leave, or finds it gone. If its guest is moved instead, that is done, too.
    pub(crate) async fn evict(&self, pod: &Key, uid: &str) -> Result<Done, Error> {
        self.writes.count(pod);
        match self.api.evict(&pod.namespace, &pod.name, uid).await {
            Ok(()) => Ok(Done::Now),
            Err(kube::Error::Api(status)) if plan::eviction::leaves_instead(status.code, &status.message) => {
                Ok(Done::Now)
            }
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(Done::Before),
            Err(error) => Err(failed::<Pod>("evict", &pod.name, Request::Plain, error)),
        }
    }

    async fn write_patch<K: Kind>(&self, key: &Key, name: &str, part: Part, patch: Patch) -> Result<K, Error> {
        self.writes.count(key);
        let patched = self.api.patch(&key.namespace, name, part, &patch).await;
        let verb = match part {
            Part::Object => "patch",
            Part::Status => "patch the status of",
        };
        patched.map_err(|error| failed::<K>(verb, name, Request::Guarded, error))
    }
}

fn kind<K: Kind>() -> &'static str {
    match K::kind(&()) {
        std::borrow::Cow::Borrowed(kind) => kind,
        std::borrow::Cow::Owned(_) => "object",
    }
}

fn failed<K: Kind>(verb: &str, name: &str, request: Request, error: kube::Error) -> Error {
    Error::api(format!("{verb} {} {name}", K::kind(&())), request, error)
}
