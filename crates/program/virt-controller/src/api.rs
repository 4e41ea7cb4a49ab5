//! The API calls of the controllers (live reads and writes) as one small trait.
//!
//! In production [`KubeApi`] talks to an API server; a simulation answers from memory. Cached reads do not go through
//! this trait: see [`Stores`](crate::Stores).
//!
//! The trait is object-safe and its object types are a closed set, so the controllers are compiled once for all
//! implementations.

use std::pin::Pin;

use informer::{EventType, Key, Recorder};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, GetParams, ListParams, PatchParams, PostParams, Preconditions};
use kube::core::{ObjectList, Request};
use kube::{Client, Error};
use plan::object::{Kind, Object, Typed};
use plan::with_kind;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use plan::effect::{Part, Patch};

/// A future that resolves to the server's response.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// The API of a cluster. The namespace is empty for cluster-scoped kinds; in `list`, empty means all namespaces.
///
/// Errors are those of the client; [`kube::Error::Api`] holds the server's response. Writes return the metadata of the
/// stored object.
pub trait Api: Send + Sync + 'static {
    /// Returns `None` if the object does not exist.
    fn get<'a>(&'a self, kind: Kind, at: &'a Key) -> Answer<'a, Option<Object>>;

    /// `labels` is a label selector in string form; an empty one matches everything.
    fn list<'a>(&'a self, kind: Kind, namespace: &'a str, labels: &'a str) -> Answer<'a, Vec<Object>>;

    fn create<'a>(&'a self, namespace: &'a str, object: &'a Object) -> Answer<'a, ObjectMeta>;

    /// Deletes the object if its UID matches; an object of the same name with another UID is a conflict. Dependents are
    /// garbage-collected later.
    fn delete<'a>(&'a self, kind: Kind, at: &'a Key, uid: &'a str, grace_seconds: Option<u32>) -> Answer<'a, ()>;

    /// Replaces the object of that name. Its resource version, if set, must match the stored one.
    fn replace<'a>(&'a self, namespace: &'a str, part: Part, object: &'a Object) -> Answer<'a, ObjectMeta>;

    fn patch<'a>(&'a self, kind: Kind, at: &'a Key, part: Part, patch: &'a Patch) -> Answer<'a, ObjectMeta>;

    /// Evicts the Pod if its UID matches, which admission may refuse. A Pod of the same name with another UID is a
    /// conflict.
    fn evict<'a>(&'a self, pod: &'a Key, uid: &'a str) -> Answer<'a, ()>;

    /// Creates a SubjectAccessReview; the result is in the status of the returned object.
    fn review<'a>(&'a self, review: &'a SubjectAccessReview) -> Answer<'a, SubjectAccessReview>;
}

/// [`Api`] backed by a real API server.
#[derive(Clone)]
pub struct KubeApi {
    client: Client,
}

/// The part of a write's response that is used.
#[derive(Deserialize)]
struct Stored {
    #[serde(default)]
    metadata: ObjectMeta,
}

impl KubeApi {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    async fn send<T: DeserializeOwned>(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, Error> {
        self.client.request(request.map_err(Error::BuildRequest)?).await
    }

    async fn write(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<ObjectMeta, Error> {
        self.send::<Stored>(request).await.map(|stored| stored.metadata)
    }

    async fn get_typed<K: Typed>(&self, at: &Key) -> Result<Option<Object>, Error> {
        match self.send::<K>(path(K::OF, &at.namespace).get(&at.name, &GetParams::default())).await {
            Ok(object) => Ok(Some(object.into_object())),
            Err(Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn list_typed<K: Typed>(&self, namespace: &str, labels: &str) -> Result<Vec<Object>, Error> {
        let params = ListParams::default().labels(labels);
        let found: ObjectList<K> = self.send(path(K::OF, namespace).list(&params)).await?;
        Ok(found.items.into_iter().map(Typed::into_object).collect())
    }
}

fn path(kind: Kind, namespace: &str) -> Request {
    let root = if kind.group().is_empty() { "api" } else { "apis" };
    let namespace = if namespace.is_empty() { String::new() } else { format!("namespaces/{namespace}/") };
    Request::new(format!("/{root}/{}/{namespace}{}", kind.api_version(), kind.resource()))
}

fn body(object: &Object) -> Result<Vec<u8>, Error> {
    object.to_json().map_err(Error::SerdeError)
}

impl Api for KubeApi {
    fn get<'a>(&'a self, kind: Kind, at: &'a Key) -> Answer<'a, Option<Object>> {
        with_kind!(kind, K => Box::pin(self.get_typed::<K>(at)))
    }

    fn list<'a>(&'a self, kind: Kind, namespace: &'a str, labels: &'a str) -> Answer<'a, Vec<Object>> {
        with_kind!(kind, K => Box::pin(self.list_typed::<K>(namespace, labels)))
    }

    fn create<'a>(&'a self, namespace: &'a str, object: &'a Object) -> Answer<'a, ObjectMeta> {
        Box::pin(async move {
            self.write(path(object.kind(), namespace).create(&PostParams::default(), body(object)?)).await
        })
    }

    fn delete<'a>(&'a self, kind: Kind, at: &'a Key, uid: &'a str, grace_seconds: Option<u32>) -> Answer<'a, ()> {
        let params = DeleteParams {
            grace_period_seconds: grace_seconds,
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            ..DeleteParams::default()
        };
        Box::pin(async move {
            let request = path(kind, &at.namespace).delete(&at.name, &params).map_err(Error::BuildRequest)?;
            // The response is the terminating object or a Status; neither is needed.
            self.client.request_text(request).await.map(drop)
        })
    }

    fn replace<'a>(&'a self, namespace: &'a str, part: Part, object: &'a Object) -> Answer<'a, ObjectMeta> {
        Box::pin(async move {
            let (path, params, body) = (path(object.kind(), namespace), PostParams::default(), body(object)?);
            self.write(match part {
                Part::Object => path.replace(object.name(), &params, body),
                Part::Status => path.replace_subresource("status", object.name(), &params, body),
            })
            .await
        })
    }

    fn patch<'a>(&'a self, kind: Kind, at: &'a Key, part: Part, patch: &'a Patch) -> Answer<'a, ObjectMeta> {
        let patch: kube::api::Patch<Value> = match patch {
            Patch::Json(patch) => kube::api::Patch::Json(patch.clone()),
            Patch::Merge(patch) => kube::api::Patch::Merge(patch.clone()),
            Patch::Strategic(patch) => kube::api::Patch::Strategic(patch.clone()),
        };
        Box::pin(async move {
            let (path, params) = (path(kind, &at.namespace), PatchParams::default());
            self.write(match part {
                Part::Object => path.patch(&at.name, &params, &patch),
                Part::Status => path.patch_subresource("status", &at.name, &params, &patch),
            })
            .await
        })
    }

    fn evict<'a>(&'a self, pod: &'a Key, uid: &'a str) -> Answer<'a, ()> {
        // The client's own evict method is not used: it sends the options under a field name that servers do not know.
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        });
        Box::pin(async move {
            let body = serde_json::to_vec(&eviction).map_err(Error::SerdeError)?;
            let pods = path(Kind::Pod, &pod.namespace);
            let request = pods.create_subresource("eviction", &pod.name, &PostParams::default(), body);
            self.client.request_text(request.map_err(Error::BuildRequest)?).await.map(drop)
        })
    }

    fn review<'a>(&'a self, review: &'a SubjectAccessReview) -> Answer<'a, SubjectAccessReview> {
        let reviews = Request::new(<SubjectAccessReview as kube::Resource>::url_path(&(), None));
        Box::pin(async move {
            let body = serde_json::to_vec(review).map_err(Error::SerdeError)?;
            self.send(reviews.create(&PostParams::default(), body)).await
        })
    }
}

/// Sink for Kubernetes events.
pub trait Notes: Send + Sync + 'static {
    /// Does not block. `component` is shown to users as the source.
    fn publish(&self, component: &'static str, about: ObjectReference, type_: EventType, reason: &str, message: String);
}

impl Notes for Recorder {
    fn publish(
        &self,
        component: &'static str,
        about: ObjectReference,
        type_: EventType,
        reason: &str,
        message: String,
    ) {
        self.of(component).publish(about, type_, reason, message);
    }
}
