//! Carries actions out, one after the other. The first that fails, or finds that a cache was late, ends the pass.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::volumesnapshot::{VolumeSnapshot, VolumeSnapshotContent};
use claims::{Action, Kind, Note, Part, Provision, Seen, claim_of, snapshot, volume};
use informer::{EventType, Key, Recorder, Requeue};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use volumes::Engine;

use crate::error::Error;
use crate::storage::{self, blocking};
use crate::stores::Stores;

/// A cache that was late has caught up by then.
const CATCH_UP: Duration = Duration::from_secs(1);
/// An event that says the same as the one before is told again after this time, so that a wait stays explained.
const REPEAT: Duration = Duration::from_secs(600);
/// Beyond it, what was told is forgotten, at the cost of one more event each.
const REMEMBERED: usize = 4096;

/// The last message and its time, by the object's UID and the reason.
type Told = HashMap<(String, &'static str), (String, Instant)>;

pub(crate) struct Context {
    client: Client,
    engine: Arc<Engine>,
    pub(crate) stores: Stores,
    recorder: Recorder,
    /// What was told last, by object and reason.
    told: Mutex<Told>,
}

/// Whether the pass goes on.
enum Next {
    GoOn,
    Stop,
    Later,
}

pub(crate) async fn act(context: &Context, actions: Vec<Action>) -> Result<Requeue, Error> {
    for action in actions {
        match context.carry_out(action).await? {
            Next::GoOn => {}
            Next::Stop => return Ok(Requeue::No),
            Next::Later => return Ok(Requeue::After(CATCH_UP)),
        }
    }
    Ok(Requeue::No)
}

impl Context {
    pub(crate) fn new(client: Client, engine: Arc<Engine>, stores: Stores, recorder: Recorder) -> Self {
        Self { client, engine, stores, recorder, told: Mutex::default() }
    }

    async fn carry_out(&self, action: Action) -> Result<Next, Error> {
        match action {
            Action::Patch { object, part, patch } => self.patch(&object, part, patch).await,
            Action::CreateVolume(volume) => self.create_volume(&volume).await,
            Action::CreateContent(content) => self.create_content(&content).await,
            Action::Delete(object) => self.delete(&object).await,
            Action::ConfirmGone { kind, namespace, name, uid } => {
                self.confirm_gone(kind, &namespace, &name, &uid).await
            }
            Action::ConfirmUnused(claim) => self.confirm_unused(&claim).await,
            Action::ConfirmNoVolume { name } => self.confirm_no_volume(&name).await,
            Action::ConfirmUnnamed { volume } => self.confirm_unnamed(&volume).await,
            Action::Provision(request) => self.provision(*request).await,
            Action::Unprovision { name } => {
                let removed = self.ask(move |engine| storage::unprovision(engine, &name)).await?;
                removed.map(|()| Next::GoOn).map_err(|err| Error::engine("remove", "an unfinished volume", err))
            }
            Action::Remove { handle } => self.remove(handle).await,
            Action::Grow { claim, volume, handle, bytes } => self.grow(&claim, &volume, handle, bytes).await,
            Action::TakeSnapshot { content, name, source } => {
                let taken = self.ask(move |engine| storage::take_snapshot(engine, &name, &source)).await?;
                self.report_snapshot(&content, taken).await
            }
            Action::InspectSnapshot { content, handle } => {
                let found = self.ask(move |engine| storage::inspect_snapshot(engine, &handle)).await?;
                self.report_snapshot(&content, found).await
            }
            Action::RemoveSnapshot { content, handle } => self.remove_snapshot(&content, handle).await,
            Action::UntakeSnapshot { name } => {
                let removed = self.ask(move |engine| storage::untake_snapshot(engine, &name)).await?;
                removed.map(|()| Next::GoOn).map_err(|err| Error::engine("remove", "an unfinished snapshot", err))
            }
            Action::Tell(note) => {
                self.tell(note);
                Ok(Next::GoOn)
            }
        }
    }

    async fn ask<T: Send + 'static>(&self, work: impl FnOnce(&Engine) -> T + Send + 'static) -> Result<T, Error> {
        let engine = self.engine.clone();
        blocking(move || work(&engine)).await
    }

    fn tell(&self, note: Note) {
        let Note { about, from, warning, reason, message } = note;
        {
            let mut told = self.told.lock();
            if told.len() > REMEMBERED {
                told.clear();
            }
            let (key, now) = ((about.uid.clone(), reason), Instant::now());
            let known = told.get(&key).is_some_and(|(text, at)| *text == message && now.duration_since(*at) < REPEAT);
            if known {
                return;
            }
            told.insert(key, (message.clone(), now));
        }
        let type_ = if warning { EventType::Warning } else { EventType::Normal };
        self.recorder.of(from.component()).publish(reference(&about), type_, reason, message);
    }

    async fn patch(&self, seen: &Seen, part: Part, patch: Value) -> Result<Next, Error> {
        let client = self.client.clone();
        match seen.kind {
            Kind::Claim => {
                patch_one::<PersistentVolumeClaim>(Api::namespaced(client, &seen.namespace), seen, part, patch).await
            }
            Kind::Snapshot => {
                patch_one::<VolumeSnapshot>(Api::namespaced(client, &seen.namespace), seen, part, patch).await
            }
            Kind::Volume => patch_one::<PersistentVolume>(Api::all(client), seen, part, patch).await,
            Kind::Content => patch_one::<VolumeSnapshotContent>(Api::all(client), seen, part, patch).await,
        }
    }

    async fn delete(&self, seen: &Seen) -> Result<Next, Error> {
        let client = self.client.clone();
        match seen.kind {
            Kind::Claim => delete_one::<PersistentVolumeClaim>(Api::namespaced(client, &seen.namespace), seen).await,
            Kind::Snapshot => delete_one::<VolumeSnapshot>(Api::namespaced(client, &seen.namespace), seen).await,
            Kind::Volume => delete_one::<PersistentVolume>(Api::all(client), seen).await,
            Kind::Content => delete_one::<VolumeSnapshotContent>(Api::all(client), seen).await,
        }
    }

    async fn create_volume(&self, volume: &PersistentVolume) -> Result<Next, Error> {
        let name = volume.metadata.name.clone().unwrap_or_default();
        let object = format!("PersistentVolume {name}");
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        match volumes.create(&PostParams::default(), volume).await {
            Ok(_) => Ok(Next::GoOn),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let there = volumes.get_opt(&name).await.map_err(|err| Error::api("read", &object, err))?;
                match there {
                    Some(there) if claim_of(&there) == claim_of(volume) => Ok(Next::GoOn),
                    Some(_) => Err(Error::Taken { object }),
                    None => Ok(Next::Later),
                }
            }
            Err(err) => Err(Error::api("create", &object, err)),
        }
    }

    async fn create_content(&self, content: &VolumeSnapshotContent) -> Result<Next, Error> {
        let name = content.metadata.name.clone().unwrap_or_default();
        let object = format!("VolumeSnapshotContent {name}");
        let contents: Api<VolumeSnapshotContent> = Api::all(self.client.clone());
        match contents.create(&PostParams::default(), content).await {
            Ok(_) => Ok(Next::GoOn),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let there = contents.get_opt(&name).await.map_err(|err| Error::api("read", &object, err))?;
                let uid = |content: &VolumeSnapshotContent| content.spec.volume_snapshot_ref.uid.clone();
                match there {
                    Some(there) if uid(&there) == uid(content) => Ok(Next::GoOn),
                    Some(_) => Err(Error::Taken { object }),
                    None => Ok(Next::Later),
                }
            }
            Err(err) => Err(Error::api("create", &object, err)),
        }
    }

    async fn confirm_gone(&self, kind: Kind, namespace: &str, name: &str, uid: &str) -> Result<Next, Error> {
        let client = self.client.clone();
        let there = match kind {
            Kind::Claim => uid_of::<PersistentVolumeClaim>(Api::namespaced(client, namespace), name).await,
            Kind::Snapshot => uid_of::<VolumeSnapshot>(Api::namespaced(client, namespace), name).await,
            Kind::Volume => uid_of::<PersistentVolume>(Api::all(client), name).await,
            Kind::Content => uid_of::<VolumeSnapshotContent>(Api::all(client), name).await,
        };
        let there = there.map_err(|err| Error::api("read", format!("{kind:?} {namespace}/{name}"), err))?;
        Ok(if there.as_deref() == Some(uid) { Next::Later } else { Next::GoOn })
    }

    async fn confirm_unused(&self, seen: &Seen) -> Result<Next, Error> {
        let Some(claim) = self.stores.claims.get(&Key::new(&seen.namespace, &seen.name)) else { return Ok(Next::Stop) };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &seen.namespace);
        let all = pods.list(&ListParams::default()).await;
        let all =
            all.map_err(|err| Error::api("list", format!("the Pods of namespace {}", seen.namespace), err))?.items;
        Ok(if claims::users(&claim, &all).is_empty() { Next::GoOn } else { Next::Later })
    }

    async fn confirm_no_volume(&self, name: &str) -> Result<Next, Error> {
        let there = uid_of::<PersistentVolume>(Api::all(self.client.clone()), name).await;
        let there = there.map_err(|err| Error::api("read", format!("PersistentVolume {name}"), err))?;
        Ok(if there.is_some() { Next::Later } else { Next::GoOn })
    }

    async fn confirm_unnamed(&self, volume: &str) -> Result<Next, Error> {
        let claims: Api<PersistentVolumeClaim> = Api::all(self.client.clone());
        let all = claims.list(&ListParams::default()).await.map_err(|err| Error::api("list", "all claims", err))?.items;
        Ok(if all.iter().any(|claim| claims::names_for_good(claim, volume)) { Next::Later } else { Next::GoOn })
    }

    async fn provision(&self, request: Provision) -> Result<Next, Error> {
        let asked = request.clone();
        match self.ask(move |engine| storage::provision(engine, &asked)).await? {
            Ok(made) => {
                self.reserve(&request, made.id.to_string()).await?;
                let volume = claims::complete(&request, &made.id.to_string(), made.capacity);
                let next = self.create_volume(&volume).await?;
                self.tell(claims::provisioning_succeeded(&request));
                Ok(next)
            }
            Err(err) => {
                self.tell(claims::provisioning_failed(&request, &chain(&err)));
                Err(Error::engine("make", &request.name, err))
            }
        }
    }

    /// Holds the volume of a claim that an import is to fill, before anybody learns of it: no Pod may see it empty.
    async fn reserve(&self, request: &Provision, volume: String) -> Result<(), Error> {
        let key = Key::new(&request.claim.namespace, &request.claim.name);
        let claim = self.stores.claims.get(&key);
        let same = |claim: &Arc<PersistentVolumeClaim>| claim.metadata.uid.as_deref() == Some(&request.claim.uid);
        let claim = claim.filter(same).filter(|claim| imports::is_reserved(claim));
        let Some(holder) = claim.and_then(|claim| imports::holder(&claim)) else { return Ok(()) };
        let held = self.ask(move |engine| engine.hold(&volume, &holder).map(drop)).await?;
        held.map_err(|err| Error::engine("hold the volume for", &request.name, err))
    }

    async fn remove(&self, handle: String) -> Result<Next, Error> {
        let id = handle.clone();
        let Err(err) = self.ask(move |engine| engine.delete_volume(&id)).await? else { return Ok(Next::GoOn) };
        let of_it = |volume: &&Arc<PersistentVolume>| claims::handle(volume) == Some(handle.as_str());
        if let Some(volume) = self.stores.volumes.all().iter().find(of_it) {
            self.tell(volume::removal_failed(volume, &chain(&err)));
        }
        Err(Error::engine("remove volume", handle, err))
    }

    async fn grow(&self, claim: &Seen, volume: &Seen, handle: String, bytes: i64) -> Result<Next, Error> {
        let id = handle.clone();
        match self.ask(move |engine| storage::grow(engine, &id, bytes)).await? {
            Ok(capacity) => self.patch_action(claims::grown(volume, capacity)).await,
            Err(err) => {
                if let Some(claim) = self.stores.claims.get(&Key::new(&claim.namespace, &claim.name)) {
                    for action in claims::growth_failed(&claim, &chain(&err), Timestamp::now()) {
                        self.patch_action(action).await?;
                    }
                }
                Err(Error::engine("grow volume", handle, err))
            }
        }
    }

    async fn report_snapshot(
        &self,
        content: &Seen,
        found: volumes::Result<volumeplan::Snapshot>,
    ) -> Result<Next, Error> {
        match found {
            Ok(taken) => {
                let (id, size) = (taken.id.to_string(), taken.size);
                self.patch_action(snapshot::taken(content, &id, storage::created(&taken), size)).await
            }
            Err(err) => {
                if let Some(content) = self.stores.contents.get(&Key::new("", &content.name)) {
                    for action in snapshot::not_taken(&content, &chain(&err), Timestamp::now()) {
                        self.patch_action(action).await?;
                    }
                }
                Err(Error::engine("take the snapshot of", &content.name, err))
            }
        }
    }

    async fn remove_snapshot(&self, content: &Seen, handle: String) -> Result<Next, Error> {
        let id = handle.clone();
        let Err(err) = self.ask(move |engine| engine.delete_snapshot(&id)).await? else { return Ok(Next::GoOn) };
        self.tell(snapshot::not_removed(content, &chain(&err)));
        Err(Error::engine("remove snapshot", handle, err))
    }

    /// A write or an event that follows from what the engine said.
    async fn patch_action(&self, action: Action) -> Result<Next, Error> {
        match action {
            Action::Patch { object, part, patch } => self.patch(&object, part, patch).await,
            Action::Tell(note) => {
                self.tell(note);
                Ok(Next::GoOn)
            }
            other => {
                tracing::error!(?other, "the answer of the engine leads to a write or an event only");
                Ok(Next::Stop)
            }
        }
    }
}

/// An error with its causes, for an event.
fn chain(err: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(err), |err| err.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

async fn patch_one<K>(api: Api<K>, seen: &Seen, part: Part, mut patch: Value) -> Result<Next, Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    patch["metadata"]["uid"] = json!(seen.uid);
    patch["metadata"]["resourceVersion"] = json!(seen.version);
    let (params, merge) = (PatchParams::default(), Patch::Merge(&patch));
    let answer = match part {
        Part::Main => api.patch(&seen.name, &params, &merge).await,
        Part::Status => api.patch_status(&seen.name, &params, &merge).await,
    };
    match answer {
        Ok(_) => Ok(Next::GoOn),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Next::Stop), // gone
        Err(err) => Err(Error::api("write", told(seen), err)),
    }
}

async fn delete_one<K>(api: Api<K>, seen: &Seen) -> Result<Next, Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let preconditions = Preconditions { uid: Some(seen.uid.clone()), resource_version: Some(seen.version.clone()) };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match api.delete(&seen.name, &params).await {
        Ok(_) => Ok(Next::GoOn),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Next::GoOn),
        Err(err) => Err(Error::api("delete", told(seen), err)),
    }
}

async fn uid_of<K>(api: Api<K>, name: &str) -> Result<Option<String>, kube::Error>
where
    K: Clone + Debug + DeserializeOwned + kube::Resource,
{
    let found = api.get_opt(name).await?;
    Ok(found.and_then(|object| object.meta().uid.clone()))
}

fn told(seen: &Seen) -> String {
    match seen.namespace.as_str() {
        "" => format!("{:?} {}", seen.kind, seen.name),
        namespace => format!("{:?} {namespace}/{}", seen.kind, seen.name),
    }
}

fn reference(seen: &Seen) -> ObjectReference {
    let (api_version, kind) = match seen.kind {
        Kind::Claim => ("v1", "PersistentVolumeClaim"),
        Kind::Volume => ("v1", "PersistentVolume"),
        Kind::Snapshot => ("snapshot.storage.k8s.io/v1", "VolumeSnapshot"),
        Kind::Content => ("snapshot.storage.k8s.io/v1", "VolumeSnapshotContent"),
    };
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        namespace: Some(seen.namespace.clone()).filter(|namespace| !namespace.is_empty()),
        name: Some(seen.name.clone()),
        uid: Some(seen.uid.clone()),
        resource_version: Some(seen.version.clone()),
        field_path: None,
    }
}
