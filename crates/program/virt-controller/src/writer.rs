//! All API requests of the controllers: checks that they are declared, counts the writes and adds the object to errors.

use std::collections::HashMap;
use std::sync::Arc;

use informer::Key;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::rights::{Right, Verb};
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

/// The requests of one controller. It writes on behalf of one key, the object being reconciled; written objects are in
/// the key's namespace.
#[derive(Clone)]
pub(crate) struct Writer {
    /// For [`Self::api`] alone.
    unchecked: Arc<dyn Api>,
    pub(crate) writes: Arc<WriteCounter>,
    /// The controller.
    name: &'static str,
    declared: Arc<[Right]>,
}

impl Writer {
    pub(crate) fn new(
        api: Arc<dyn Api>,
        writes: Arc<WriteCounter>,
        name: &'static str,
        declared: impl Iterator<Item = &'static Right>,
    ) -> Self {
        Self { unchecked: api, writes, name, declared: declared.copied().collect() }
    }

    /// The API, for a request that needs this right.
    ///
    /// On a cluster RBAC rejects what no controller declares. The simulator and the tests cover more cases than any
    /// cluster but have no RBAC, so this checks it for them, and for each controller by itself.
    fn api(&self, needed: Right) -> &dyn Api {
        debug_assert!(
            self.declared.iter().any(|right| right.covers(&needed)),
            "{} does not declare: {}",
            self.name,
            needed.grants().map(|grant| grant.to_string()).collect::<Vec<_>>().join(", ")
        );
        self.unchecked.as_ref()
    }

    /// Live read. Returns `None` if the object does not exist.
    pub(crate) async fn get<K: Typed>(&self, namespace: &str, name: &str) -> Result<Option<K>, Error> {
        Ok(self.get_object(K::OF, &Key::new(namespace, name)).await?.and_then(K::from_object))
    }

    pub(crate) async fn get_object(&self, kind: Kind, at: &Key) -> Result<Option<Object>, Error> {
        let found = self.api(on(kind, Part::Object, &[Verb::Get])).get(kind, at).await;
        found.map_err(|error| failed("read", kind, &at.name, Request::Plain, error))
    }

    /// Live list of the objects with these labels.
    pub(crate) async fn list<K: Typed>(&self, namespace: &str, labels: &str) -> Result<Vec<K>, Error> {
        Ok(self.list_objects(K::OF, namespace, labels).await?.into_iter().filter_map(K::from_object).collect())
    }

    pub(crate) async fn list_objects(&self, kind: Kind, namespace: &str, labels: &str) -> Result<Vec<Object>, Error> {
        let found = self.api(on(kind, Part::Object, &[Verb::List])).list(kind, namespace, labels).await;
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
        let api = self.api(on(kind, Part::Object, &[Verb::Create]));
        self.writes.count(key);
        match api.create(&key.namespace, object).await {
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
        let api = self.api(on(kind, Part::Object, &[Verb::Delete]));
        self.writes.count(key);
        match api.delete(kind, &Key::new(&key.namespace, name), uid, grace_seconds).await {
            Ok(()) => Ok(Done::Now),
            // If the name has been reused, the UID does not match, which is a conflict.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(Done::Before),
            Err(error) => Err(failed("delete", kind, name, Request::Plain, error)),
        }
    }

    /// Replaces a previously read object, or its status.
    pub(crate) async fn replace(&self, key: &Key, part: Part, object: &Object) -> Result<ObjectMeta, Error> {
        let api = self.api(on(object.kind(), part, &[Verb::Update]));
        self.writes.count(key);
        let verb = match part {
            Part::Object => "update",
            Part::Status => "update the status of",
        };
        let replaced = api.replace(&key.namespace, part, object).await;
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
        let api = self.api(on(kind, part, &[Verb::Patch]));
        self.writes.count(key);
        let verb = match part {
            Part::Object => "patch",
            Part::Status => "patch the status of",
        };
        let patched = api.patch(kind, &Key::new(&key.namespace, name), part, patch).await;
        patched.map_err(|error| failed(verb, kind, name, Request::Guarded, error))
    }

    /// Evicts the Pod with this UID, or finds it gone. An eviction answered with a live migration counts as done.
    pub(crate) async fn evict(&self, pod: &Key, uid: &str) -> Result<Done, Error> {
        let api = self.api(Right::on::<Pod>(&[Verb::Create]).of("eviction"));
        self.writes.count(pod);
        match api.evict(pod, uid).await {
            Ok(()) => Ok(Done::Now),
            Err(kube::Error::Api(status)) if plan::eviction::leaves_instead(status.code, &status.message) => {
                Ok(Done::Now)
            }
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(Done::Before),
            Err(error) => Err(failed("evict", Kind::Pod, &pod.name, Request::Plain, error)),
        }
    }

    /// Whether the authorizer allows what the review asks. The review is not stored, so it does not count as a write.
    pub(crate) async fn is_allowed(&self, review: &SubjectAccessReview) -> Result<bool, kube::Error> {
        let answer = self.api(Right::on::<SubjectAccessReview>(&[Verb::Create])).review(review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}

/// The right to a part of the objects of a kind.
fn on(kind: Kind, part: Part, verbs: &'static [Verb]) -> Right {
    let object = Right::named(kind.group(), kind.resource(), verbs);
    match part {
        Part::Object => object,
        Part::Status => object.of("status"),
    }
}

fn failed(verb: &str, kind: Kind, name: &str, request: Request, error: kube::Error) -> Error {
    Error::api(format!("{verb} {kind} {name}"), request, error)
}

#[cfg(test)]
mod tests {
    use kube::Client;
    use kube::client::Body;

    use super::*;
    use crate::api::KubeApi;

    /// A writer that declares one write and one live read.
    fn writer() -> Writer {
        const DECLARED: &[Right] = &[Right::on_status::<Pod>(&[Verb::Patch]), Right::on::<Pod>(&[Verb::Get])];
        let service = tower::service_fn(|_: http::Request<Body>| async {
            Ok::<_, tower::BoxError>(http::Response::new(Body::from(b"{}".to_vec())))
        });
        let api = KubeApi::new(Client::new(service, "default"));
        Writer::new(Arc::new(api), Arc::default(), "the controller", DECLARED.iter())
    }

    async fn patch(part: Part) -> Result<ObjectMeta, Error> {
        let patch = Patch::Merge(serde_json::json!({}));
        writer().patch(&Key::new("ns", "vmi"), Kind::Pod, "pod", part, &patch).await
    }

    #[tokio::test]
    async fn declared_requests_are_sent() {
        patch(Part::Status).await.unwrap();
        writer().get::<Pod>("ns", "pod").await.unwrap();
    }

    #[tokio::test]
    #[should_panic(expected = "the controller does not declare: patch pods")]
    async fn an_undeclared_write_is_noticed() {
        drop(patch(Part::Object).await);
    }

    #[tokio::test]
    #[should_panic(expected = "the controller does not declare: list pods")]
    async fn an_undeclared_live_read_is_noticed() {
        drop(writer().list::<Pod>("ns", "").await);
    }
}
