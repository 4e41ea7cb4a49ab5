//! Everything the controllers read live or write, as one small trait.
//!
//! Production talks to an API server through [`KubeApi`]; a simulation answers from memory. What the controllers know from
//! watches is not asked for here: see [`Stores`](crate::Stores).

use std::fmt::Debug;

use informer::{EventType, Recorder};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::api::{DeleteParams, GetParams, ListParams, PatchParams, PostParams, Preconditions};
use kube::core::{ObjectList, Request};
use kube::{Client, Error, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A kind the controllers deal with, in a namespace or not.
pub trait Kind:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

/// Which part of an object a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The object; without its status, if that is a subresource.
    Object,
    Status,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
    /// Lists of Kubernetes' own kinds are merged by their keys.
    Strategic(Value),
}

/// The API of a cluster. Namespaces are empty for kinds that are not in one, and in `list` for all of them.
///
/// Errors are those of the client: what the server answered is in [`kube::Error::Api`].
pub trait Api: Clone + Send + Sync + 'static {
    /// Nothing if the object does not exist.
    fn get<K: Kind>(&self, namespace: &str, name: &str) -> impl Future<Output = Result<Option<K>, Error>> + Send;

    /// `labels` is a selector in the API's string form; an empty one selects all.
    fn list<K: Kind>(&self, namespace: &str, labels: &str) -> impl Future<Output = Result<Vec<K>, Error>> + Send;

    /// Returns what is stored.
    fn create<K: Kind>(&self, namespace: &str, object: &K) -> impl Future<Output = Result<K, Error>> + Send;

    /// Deletes the object if it has this UID. One of the name with another UID is a conflict. Dependents go later.
    fn delete<K: Kind>(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        grace_seconds: Option<u32>,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Replaces the object of that name. The resource version in it, if there is one, must be the stored one.
    fn replace<K: Kind>(
        &self,
        namespace: &str,
        part: Part,
        object: &K,
    ) -> impl Future<Output = Result<K, Error>> + Send;

    /// Returns what is stored.
    fn patch<K: Kind>(
        &self,
        namespace: &str,
        name: &str,
        part: Part,
        patch: &Patch,
    ) -> impl Future<Output = Result<K, Error>> + Send;

    /// Asks the Pod of this UID to leave its node, for which others are asked. One of the name with another UID is a conflict.
    fn evict(&self, namespace: &str, name: &str, uid: &str) -> impl Future<Output = Result<(), Error>> + Send;

    /// Asks whether somebody may do something. The answer is in the status.
    fn review(&self, review: &SubjectAccessReview) -> impl Future<Output = Result<SubjectAccessReview, Error>> + Send {
        self.create("", review)
    }
}

/// The API of a real server.
#[derive(Clone)]
pub struct KubeApi {
    client: Client,
}

impl KubeApi {
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

fn at<K: Kind>(namespace: &str) -> Request {
    Request::new(K::url_path(&(), Some(namespace).filter(|namespace| !namespace.is_empty())))
}

fn body<K: Kind>(object: &K) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(object).map_err(Error::SerdeError)
}

impl Api for KubeApi {
    async fn get<K: Kind>(&self, namespace: &str, name: &str) -> Result<Option<K>, Error> {
        let request = at::<K>(namespace).get(name, &GetParams::default()).map_err(Error::BuildRequest)?;
        match self.client.request(request).await {
            Ok(object) => Ok(Some(object)),
            Err(Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn list<K: Kind>(&self, namespace: &str, labels: &str) -> Result<Vec<K>, Error> {
        let params = ListParams::default().labels(labels);
        let request = at::<K>(namespace).list(&params).map_err(Error::BuildRequest)?;
        Ok(self.client.request::<ObjectList<K>>(request).await?.items)
    }

    async fn create<K: Kind>(&self, namespace: &str, object: &K) -> Result<K, Error> {
        let request = at::<K>(namespace).create(&PostParams::default(), body(object)?).map_err(Error::BuildRequest)?;
        self.client.request(request).await
    }

    async fn delete<K: Kind>(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        grace_seconds: Option<u32>,
    ) -> Result<(), Error> {
        let params = DeleteParams {
            grace_period_seconds: grace_seconds,
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            ..DeleteParams::default()
        };
        let request = at::<K>(namespace).delete(name, &params).map_err(Error::BuildRequest)?;
        // The answer is the object on its way out or a status; neither is news.
        self.client.request_text(request).await.map(drop)
    }

    async fn replace<K: Kind>(&self, namespace: &str, part: Part, object: &K) -> Result<K, Error> {
        let (name, body) = (object.meta().name.clone().unwrap_or_default(), body(object)?);
        let (at, params) = (at::<K>(namespace), PostParams::default());
        let request = match part {
            Part::Object => at.replace(&name, &params, body),
            Part::Status => at.replace_subresource("status", &name, &params, body),
        };
        self.client.request(request.map_err(Error::BuildRequest)?).await
    }

    async fn evict(&self, namespace: &str, name: &str, uid: &str) -> Result<(), Error> {
        // Not by way of the client's own method: it sends the options under a name that servers do not know.
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        });
        let body = serde_json::to_vec(&eviction).map_err(Error::SerdeError)?;
        let request = at::<Pod>(namespace).create_subresource("eviction", name, &PostParams::default(), body);
        let request = request.map_err(Error::BuildRequest)?;
        self.client.request_text(request).await.map(drop)
    }

    async fn patch<K: Kind>(&self, namespace: &str, name: &str, part: Part, patch: &Patch) -> Result<K, Error> {
        let patch: kube::api::Patch<Value> = match patch {
            Patch::Json(patch) => kube::api::Patch::Json(patch.clone()),
            Patch::Merge(patch) => kube::api::Patch::Merge(patch.clone()),
            Patch::Strategic(patch) => kube::api::Patch::Strategic(patch.clone()),
        };
        let (at, params) = (at::<K>(namespace), PatchParams::default());
        let request = match part {
            Part::Object => at.patch(name, &params, &patch),
            Part::Status => at.patch_subresource("status", name, &params, &patch),
        };
        self.client.request(request.map_err(Error::BuildRequest)?).await
    }
}

/// Where events for people go.
pub trait Notes: Send + Sync + 'static {
    /// Never waits. `component` is what users see as the source.
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
