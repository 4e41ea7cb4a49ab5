//! All API writes of the controllers: counts them and adds the object to errors.

use std::collections::HashMap;
use std::sync::Arc;

use informer::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::{Mutex, MutexGuard};
use plan::object::{Kind, Object, Typed};

use crate::api::{Api, Part, Patch};
use crate::error::{Error, Request};

/// API writes by key of the VM (and VMI) they were made for. Events are not counted.
#[derive(Default)]
pub struct WriteCounter {
    counts: Mutex<HashMap<Key, u64>>,
}

impl WriteCounter {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, u64>> {
        self.counts.lock()
    }

    fn count(&self, key: &Key) {
        *self.lock().entry(key.clone()).or_insert(0) += 1;
    }

    /// Number of writes for this key since it was last forgotten.
    pub fn of(&self, key: &Key) -> u64 {
        self.lock().get(key).copied().unwrap_or(0)
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }
}

/// Outcome of an idempotent create or delete.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Now,
    Before,
}

/// Writes on behalf of one key, the object being reconciled. Written objects are in the key's namespace.
#[derive(Clone)]
pub(crate) struct Writer {
    api: Arc<dyn Api>,
    pub(crate) writes: Arc<WriteCounter>,
}

impl Writer {
    pub(crate) fn new(api: Arc<dyn Api>, writes: Arc<WriteCounter>) -> Self {
        Self { api, writes }
    }

    /// The API itself, for calls without a method here.
    pub(crate) fn api(&self) -> &dyn Api {
        self.api.as_ref()
    }

    /// Live read. Returns `None` if the object does not exist.
    pub(crate) async fn get<K: Typed>(&self, namespace: &str, name: &str) -> Result<Option<K>, Error> {
        Ok(self.get_object(K::OF, &Key::new(namespace, name)).await?.and_then(K::from_object))
    }

    pub(crate) async fn get_object(&self, kind: Kind, at: &Key) -> Result<Option<Object>, Error> {
        let found = self.api.get(kind, at).await;
        found.map_err(|error| failed("read", kind, &at.name, Request::Plain, error))
    }

    /// Live list of the objects with these labels.
    pub(crate) async fn list<K: Typed>(&self, namespace: &str, labels: &str) -> Result<Vec<K>, Error> {
        Ok(self.list_objects(K::OF, namespace, labels).await?.into_iter().filter_map(K::from_object).collect())
    }

    pub(crate) async fn list_objects(&self, kind: Kind, namespace: &str, labels: &str) -> Result<Vec<Object>, Error> {
        let found = self.api.list(kind, namespace, labels).await;
        found.map_err(|error| failed("list", kind, labels, Request::Plain, error))
    }

    /// Creates an object, or finds that an object of its name is already controlled by `owner`. Any other one is an
    /// error.
    pub(crate) async fn create(&self, key: &Key, object: &Object, owner: &str) -> Result<Done, Error> {
        self.create_unless(key, object, |found| machinery::meta::is_controlled_by(found.meta(), owner)).await
    }

    /// Creates an object, or finds an existing one for which `ours` holds. Any other one of its name is an error.
    pub(crate) async fn create_unless(
        &self,
        key: &Key,
        object: &Object,
        ours: impl Fn(&Object) -> bool,
    ) -> Result<Done, Error> {
        let (kind, at) = (object.kind(), Key::new(&key.namespace, object.name()));
        self.writes.count(key);
        match self.api.create(&key.namespace, object).await {
            Ok(_) => Ok(Done::Now),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let found = self.get_object(kind, &at).await?;
                let is_ours = found.is_some_and(|found| ours(&found));
                if is_ours { Ok(Done::Before) } else { Err(Error::NameTaken { kind: kind.name(), name: at.name }) }
            }
            Err(error) => Err(failed("create", kind, &at.name, Request::Plain, error)),
        }
    }

    /// Deletes the object with this UID, or finds it gone. The write is counted for `key`.
    pub(crate) async fn delete(
        &self,
        key: &Key,
        kind: Kind,
        name: &str,
        uid: &str,
        grace_seconds: Option<u32>,
    ) -> Result<Done, Error> {
        self.writes.count(key);
        match self.api.delete(kind, &Key::new(&key.namespace, name), uid, grace_seconds).await {
            Ok(()) => Ok(Done::Now),
            // If the name has been reused, the UID does not match, which is a conflict.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(Done::Before),
            Err(error) => Err(failed("delete", kind, name, Request::Plain, error)),
        }
    }

    /// Replaces a previously read object, or its status.
    pub(crate) async fn replace(&self, key: &Key, part: Part, object: &Object) -> Result<ObjectMeta, Error> {
        self.writes.count(key);
        let verb = match part {
            Part::Object => "update",
            Part::Status => "update the status of",
        };
        let replaced = self.api.replace(&key.namespace, part, object).await;
        replaced.map_err(|error| failed(verb, object.kind(), &key.name, Request::Guarded, error))
    }

    /// Patches an object in the key's namespace.
    pub(crate) async fn patch(
        &self,
        key: &Key,
        kind: Kind,
        name: &str,
        part: Part,
        patch: &Patch,
    ) -> Result<ObjectMeta, Error> {
        self.writes.count(key);
        let verb = match part {
            Part::Object => "patch",
            Part::Status => "patch the status of",
        };
        let patched = self.api.patch(kind, &Key::new(&key.namespace, name), part, patch).await;
        patched.map_err(|error| failed(verb, kind, name, Request::Guarded, error))
    }

    /// Evicts the Pod with this UID, or finds it gone. An eviction answered with a live migration counts as done.
    pub(crate) async fn evict(&self, pod: &Key, uid: &str) -> Result<Done, Error> {
        self.writes.count(pod);
        match self.api.evict(pod, uid).await {
            Ok(()) => Ok(Done::Now),
            Err(kube::Error::Api(status)) if plan::eviction::leaves_instead(status.code, &status.message) => {
                Ok(Done::Now)
            }
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(Done::Before),
            Err(error) => Err(failed("evict", Kind::Pod, &pod.name, Request::Plain, error)),
        }
    }
}

fn failed(verb: &str, kind: Kind, name: &str, request: Request, error: kube::Error) -> Error {
    Error::api(format!("{verb} {kind} {name}"), request, error)
}
