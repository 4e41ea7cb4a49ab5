//! The connection between the controllers and the server: every request stops at two gates, where the engine decides
//! what happens.
//!
//! ```text
//! controller ──► sent ──►│ gate │──► the server acts ──►│ gate │──► answer ──► controller goes on
//!                          refused, delayed,              delayed, lost,
//!                          or its sender dies             or its receiver dies
//! ```
//!
//! Nothing here relies on wakers. The engine polls one pass at a time; a gate is open while there is a permit for it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use informer::Key;
use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewStatus};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Status};
use machinery::status;
use parking_lot::{Mutex, MutexGuard};
use plan::object::{Kind as ApiKind, Object as ApiObject, Typed};
use plan::with_kind;
use virt_controller::Notes;
use virt_controller::api::{Answer as Reply, Api, Part, Patch};

use crate::actors::{ask_to_leave, is_target};
use crate::kinds::{AnyKind, Kind, key};
use crate::plant::Plant;
use crate::server::{Answer, Propagation, Server, Writer, about};

/// A request's content.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Get,
    List,
    Create,
    Delete { uid: String },
    Evict,
    Replace,
    Patch(Patch),
}

/// A request in flight.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// `None` for kinds that the cluster does not have.
    pub kind: Option<Kind>,
    pub key: Key,
    pub op: Op,
}

impl Request {
    pub(crate) fn writes(&self) -> bool {
        !matches!(self.op, Op::Get | Op::List)
    }

    /// Whether it fails if the object has changed.
    pub(crate) fn is_guarded(&self) -> bool {
        matches!(self.op, Op::Replace | Op::Patch(_))
    }
}

/// Lets a request pass one gate.
#[derive(Clone, Debug)]
pub(crate) enum Permit {
    /// First gate: the server processes the request.
    Serve,
    /// First gate: the server answers with this error instead.
    Refuse(Box<Status>),
    /// Second gate: the response arrives.
    Answer,
    /// Second gate: the connection breaks.
    Lose,
}

/// State shared by engine, server and controllers.
pub(crate) struct Hub {
    pub(crate) server: Server,
    /// The pass being polled.
    pub(crate) pass: Writer,
    pub(crate) permit: Option<Permit>,
    /// The request that the pass being polled has just sent.
    pub(crate) sent: Option<Request>,
    /// The server's response to the pass being polled.
    pub(crate) answered: Option<Result<(), u16>>,
    /// The server's real response, if a planted bug has changed it.
    pub(crate) meant: Option<Result<(), u16>>,
    pub(crate) plant: Option<Plant>,
    /// What the process of the polled pass has seen of each kind, for planted bugs that answer from caches.
    pub(crate) seen: Vec<usize>,
    pub(crate) drawn: u64,
}

impl Hub {
    /// Admission, such as quotas.
    fn admit<K: AnyKind>(&self, object: &K) -> Answer<()> {
        let target = (object as &dyn std::any::Any).downcast_ref::<Pod>().filter(|pod| is_target(pod));
        match (target, self.server.target_ban) {
            (Some(pod), Some(why)) => {
                Err(crate::server::about::<Pod>(&key(&pod.metadata), |about| status::forbidden(about, why)))
            }
            _ => Ok(()),
        }
    }

    /// The judge gets the server's real response, whatever a planted bug made of it.
    fn note_answer(&mut self, answer: Result<(), u16>) {
        self.answered = Some(self.meant.take().unwrap_or(answer));
    }
}

pub(crate) type SharedHub = Arc<Mutex<Hub>>;

/// A poisoned lock means a panic that the engine reports anyway.
pub(crate) fn lock(hub: &Mutex<Hub>) -> MutexGuard<'_, Hub> {
    hub.lock()
}

/// The API implementation for simulated controllers.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) hub: SharedHub,
}

fn refused(status: Status) -> kube::Error {
    let status = kube::core::Status {
        code: machinery::status::code(&status),
        message: status.message.unwrap_or_default(),
        reason: status.reason.unwrap_or_default(),
        ..kube::core::Status::default()
    };
    kube::Error::Api(Box::new(status))
}

impl Client {
    async fn gate(&self, mut request: Option<Request>) -> Permit {
        poll_fn(|_| {
            let mut hub = lock(&self.hub);
            if let Some(permit) = hub.permit.take() {
                return Poll::Ready(permit);
            }
            if let Some(request) = request.take() {
                hub.sent = Some(request);
            }
            Poll::Pending
        })
        .await
    }

    async fn call<T>(
        &self,
        request: Request,
        act: impl FnOnce(&mut Hub) -> Answer<T> + Send,
    ) -> Result<T, kube::Error> {
        let answer = match self.gate(Some(request)).await {
            Permit::Refuse(status) => Err(status),
            _ => act(&mut lock(&self.hub)),
        };
        let code = answer.as_ref().map(drop).map_err(|status| status::code(status));
        lock(&self.hub).note_answer(code);
        match self.gate(None).await {
            Permit::Lose => Err(refused(status::internal("the connection was lost"))),
            _ => answer.map_err(|status| refused(*status)),
        }
    }
}

fn request<K: AnyKind>(key: Key, op: Op) -> Request {
    Request { kind: Kind::of::<K>(), key, op }
}

/// The requests for objects of one type.
impl Client {
    async fn get_typed<K: AnyKind>(&self, key: &Key) -> Result<Option<K>, kube::Error> {
        let key = key.clone();
        let sent = request::<K>(key.clone(), Op::Get);
        self.call(sent, move |hub| {
            if let Some(cached) = hub.plant_cached::<K>() {
                let found = cached.into_iter().find(|object| crate::kinds::key(object.meta()) == key);
                if found.is_some() || hub.plant == Some(Plant::ActOnAbsence) {
                    return Ok(found.map(|object| (*object).clone()));
                }
            }
            if let Some(answer) = hub.plant_answer(&key) {
                return Ok(answer);
            }
            Ok(hub.server.lookup::<K>(&key).map(|object| (*object).clone()))
        })
        .await
    }

    async fn list_typed<K: AnyKind>(&self, namespace: &str, labels: &str) -> Result<Vec<K>, kube::Error> {
        let sent = request::<K>(Key::new(namespace, labels), Op::List);
        let (namespace, labels) = (namespace.to_owned(), labels.to_owned());
        self.call(sent, move |hub| {
            let found = match hub.plant_cached::<K>() {
                Some(cached) => crate::server::select(cached.iter(), &namespace, &labels)?,
                None => hub.server.list::<K>(&namespace, &labels)?,
            };
            Ok(found.iter().map(|object| (**object).clone()).collect())
        })
        .await
    }

    async fn create_typed<K: AnyKind>(&self, namespace: &str, mut object: K) -> Result<Arc<K>, kube::Error> {
        if !namespace.is_empty() {
            object.meta_mut().namespace = Some(namespace.to_owned());
        }
        let sent = request::<K>(key(object.meta()), Op::Create);
        self.call(sent, move |hub| {
            hub.plant_name(&mut object);
            let by = hub.pass;
            hub.admit(&object)?;
            let stored = hub.server.create(by, object);
            hub.plant_swap(&stored);
            hub.plant_start(stored)
        })
        .await
    }

    async fn delete_typed<K: AnyKind>(
        &self,
        key: &Key,
        uid: &str,
        grace_seconds: Option<u32>,
    ) -> Result<(), kube::Error> {
        let key = key.clone();
        let sent = request::<K>(key.clone(), Op::Delete { uid: uid.to_owned() });
        let uid = uid.to_owned();
        self.call(sent, move |hub| {
            let by = hub.pass;
            let grace = grace_seconds.map(i64::from);
            hub.server.delete::<K>(by, &key, Some(&uid), grace, Propagation::Background)
        })
        .await
    }

    async fn replace_typed<K: AnyKind>(
        &self,
        namespace: &str,
        part: Part,
        mut object: K,
    ) -> Result<Arc<K>, kube::Error> {
        if !namespace.is_empty() {
            object.meta_mut().namespace = Some(namespace.to_owned());
        }
        let sent = request::<K>(key(object.meta()), Op::Replace);
        self.call(sent, move |hub| {
            let (by, copy) = (hub.pass, hub.plant.map(|_| Arc::new(object.clone())));
            let stored = hub.server.update(by, part, object);
            hub.plant_conflict(stored, copy)
        })
        .await
    }

    async fn patch_typed<K: AnyKind>(&self, key: &Key, part: Part, patch: &Patch) -> Result<Arc<K>, kube::Error> {
        let key = key.clone();
        let sent = request::<K>(key.clone(), Op::Patch(patch.clone()));
        let patch = patch.clone();
        self.call(sent, move |hub| {
            let by = hub.pass;
            let patch = hub.plant_end(hub.plant_guards(patch));
            hub.plant_abort(&key, &patch);
            let copy = hub.plant.and_then(|_| hub.server.lookup::<K>(&key));
            if hub.plant_label::<K>() {
                return hub.server.lookup::<K>(&key).ok_or_else(|| about::<K>(&key, status::not_found));
            }
            let stored = hub.server.patch::<K>(by, &key, part, &patch);
            let stored = hub.plant_hand_off(&patch, stored);
            hub.plant_conflict(stored, copy)
        })
        .await
    }
}

/// Converts the object to the type of its kind.
fn typed<K: AnyKind>(object: &ApiObject) -> Result<K, kube::Error> {
    K::from_object(object.clone()).ok_or_else(|| refused(status::internal("the object is of another kind")))
}

impl Api for Client {
    fn get<'a>(&'a self, kind: ApiKind, at: &'a Key) -> Reply<'a, Option<ApiObject>> {
        with_kind!(kind, K => Box::pin(async move { Ok(self.get_typed::<K>(at).await?.map(Typed::into_object)) }))
    }

    fn list<'a>(&'a self, kind: ApiKind, namespace: &'a str, labels: &'a str) -> Reply<'a, Vec<ApiObject>> {
        with_kind!(kind, K => Box::pin(async move {
            Ok(self.list_typed::<K>(namespace, labels).await?.into_iter().map(Typed::into_object).collect())
        }))
    }

    fn create<'a>(&'a self, namespace: &'a str, object: &'a ApiObject) -> Reply<'a, ObjectMeta> {
        with_kind!(object.kind(), K => Box::pin(async move {
            Ok(self.create_typed::<K>(namespace, typed(object)?).await?.metadata.clone())
        }))
    }

    fn delete<'a>(&'a self, kind: ApiKind, at: &'a Key, uid: &'a str, grace_seconds: Option<u32>) -> Reply<'a, ()> {
        with_kind!(kind, K => Box::pin(self.delete_typed::<K>(at, uid, grace_seconds)))
    }

    fn replace<'a>(&'a self, namespace: &'a str, part: Part, object: &'a ApiObject) -> Reply<'a, ObjectMeta> {
        with_kind!(object.kind(), K => Box::pin(async move {
            Ok(self.replace_typed::<K>(namespace, part, typed(object)?).await?.metadata.clone())
        }))
    }

    fn patch<'a>(&'a self, kind: ApiKind, at: &'a Key, part: Part, patch: &'a Patch) -> Reply<'a, ObjectMeta> {
        with_kind!(kind, K => Box::pin(async move { Ok(self.patch_typed::<K>(at, part, patch).await?.metadata.clone()) }))
    }

    fn evict<'a>(&'a self, pod: &'a Key, uid: &'a str) -> Reply<'a, ()> {
        let sent = request::<Pod>(pod.clone(), Op::Evict);
        Box::pin(self.call(sent, move |hub| ask_to_leave(&mut hub.server, pod, uid, false)))
    }

    /// Everything is allowed.
    fn review<'a>(&'a self, review: &'a SubjectAccessReview) -> Reply<'a, SubjectAccessReview> {
        let mut review = review.clone();
        let sent = Request { kind: None, key: Key::default(), op: Op::Get };
        Box::pin(self.call(sent, move |_| {
            review.status = Some(SubjectAccessReviewStatus { allowed: true, ..SubjectAccessReviewStatus::default() });
            Ok(review)
        }))
    }
}

/// Discards events.
pub(crate) struct Silence;

impl Notes for Silence {
    fn publish(&self, _: &'static str, _: ObjectReference, _: informer::EventType, _: &str, _: String) {}
}
