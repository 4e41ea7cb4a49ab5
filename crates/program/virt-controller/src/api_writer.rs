//! Every write of the controllers goes through here: typed, counted, with errors that name the object.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use informer::Key;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

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

pub(crate) trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned
{
}
impl<K> Object for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned
{
}

#[derive(Clone)]
pub(crate) struct ApiWriter {
    client: Client,
    pub(crate) writes: Arc<WriteCounter>,
}

impl ApiWriter {
    pub(crate) fn new(client: Client, writes: Arc<WriteCounter>) -> Self {
        Self { client, writes }
    }

    fn api<K: Object>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Reads live. Nothing if the object does not exist.
    pub(crate) async fn get<K: Object>(&self, namespace: &str, name: &str) -> Result<Option<K>, Error> {
        let found = self.api::<K>(namespace).get_opt(name).await;
        found.map_err(|error| failed::<K>("read", name, Request::Plain, error))
    }

    /// Reads live all objects with these labels.
    pub(crate) async fn list<K: Object>(&self, namespace: &str, labels: &str) -> Result<Vec<K>, Error> {
        let params = kube::api::ListParams::default().labels(labels);
        let found = self.api::<K>(namespace).list(&params).await;
        Ok(found.map_err(|error| failed::<K>("list", labels, Request::Plain, error))?.items)
    }

    /// Creates an object, or finds that we have: one of its name that `owner` controls. Any other one is an error.
    pub(crate) async fn create<K: Object>(&self, key: &Key, object: &K, owner: &str) -> Result<Done, Error> {
        let name = object.meta().name.clone().unwrap_or_default();
        self.writes.count(key);
        match self.api::<K>(&key.namespace).create(&PostParams::default(), object).await {
            Ok(_) => Ok(Done::Now),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let found: Option<K> = self.get(&key.namespace, &name).await?;
                let ours = found.is_some_and(|found| machinery::meta::is_controlled_by(found.meta(), owner));
                if ours { Ok(Done::Before) } else { Err(Error::NameTaken { kind: kind::<K>(), name }) }
            }
            Err(error) => Err(failed::<K>("create", &name, Request::Plain, error)),
        }
    }

    /// Deletes the object with this UID, or finds it gone.
    pub(crate) async fn delete<K: Object>(
        &self,
        key: &Key,
        name: &str,
        uid: &str,
        grace: Option<u32>,
    ) -> Result<Done, Error> {
        let params = DeleteParams {
            grace_period_seconds: grace,
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            ..DeleteParams::default()
        };
        self.writes.count(key);
        match self.api::<K>(&key.namespace).delete(name, &params).await {
            Ok(_) => Ok(Done::Now),
            // With the name taken anew the UID does not match, which is a conflict.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(Done::Before),
            Err(error) => Err(failed::<K>("delete", name, Request::Plain, error)),
        }
    }

    /// Replaces the object read before. Returns what is stored now.
    pub(crate) async fn replace<K: Object>(&self, key: &Key, object: &K) -> Result<K, Error> {
        self.writes.count(key);
        let replaced = self.api::<K>(&key.namespace).replace(&key.name, &PostParams::default(), object).await;
        replaced.map_err(|error| failed::<K>("update", &key.name, Request::Guarded, error))
    }

    /// Replaces the status of the object read before. Returns what is stored now.
    pub(crate) async fn replace_status<K: Object>(&self, key: &Key, object: &K) -> Result<K, Error> {
        self.writes.count(key);
        let replaced = self.api::<K>(&key.namespace).replace_status(&key.name, &PostParams::default(), object).await;
        replaced.map_err(|error| failed::<K>("update the status of", &key.name, Request::Guarded, error))
    }

    /// Patches an object. Returns what is stored now.
    pub(crate) async fn patch<K: Object>(&self, key: &Key, name: &str, patch: json_patch::Patch) -> Result<K, Error> {
        self.writes.count(key);
        let patch = Patch::Json::<()>(patch);
        let patched = self.api::<K>(&key.namespace).patch(name, &PatchParams::default(), &patch).await;
        patched.map_err(|error| failed::<K>("patch", name, Request::Guarded, error))
    }

    /// Merges into an object; the UID in it is the guard.
    pub(crate) async fn merge<K: Object>(&self, key: &Key, name: &str, patch: Value) -> Result<K, Error> {
        self.writes.count(key);
        let merged = self.api::<K>(&key.namespace).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        merged.map_err(|error| failed::<K>("patch", name, Request::Guarded, error))
    }

    /// Merges into an object's status, list entries by their keys; the UID in it is the guard.
    pub(crate) async fn merge_status<K: Object>(&self, key: &Key, name: &str, patch: Value) -> Result<K, Error> {
        self.writes.count(key);
        let patch = Patch::Strategic(patch);
        let merged = self.api::<K>(&key.namespace).patch_status(name, &PatchParams::default(), &patch).await;
        merged.map_err(|error| failed::<K>("patch the status of", name, Request::Guarded, error))
    }
}

fn kind<K: Object>() -> &'static str {
    match K::kind(&()) {
        std::borrow::Cow::Borrowed(kind) => kind,
        std::borrow::Cow::Owned(_) => "object",
    }
}

fn failed<K: Object>(verb: &str, name: &str, request: Request, error: kube::Error) -> Error {
    Error::api(format!("{verb} {} {name}", K::kind(&())), request, error)
}
