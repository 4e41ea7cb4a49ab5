//! What the controller watches, and which objects a change concerns.

use std::fmt;
use std::sync::Arc;

use api::volumesnapshot::{VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent};
use claims::{DataSource, Phase, claim_of, claim_phase, claims_of, data_source, snapshot, volume_name};
use informer::{Change, Informer, Key, Store, WorkQueue};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

/// An object to look at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Item {
    Claim(Key),
    Volume(String),
    Snapshot(Key),
    Content(String),
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(key) => write!(f, "PersistentVolumeClaim {key}"),
            Self::Volume(name) => write!(f, "PersistentVolume {name}"),
            Self::Snapshot(key) => write!(f, "VolumeSnapshot {key}"),
            Self::Content(name) => write!(f, "VolumeSnapshotContent {name}"),
        }
    }
}

type Queue = WorkQueue<Item>;

/// Claims that have no volume yet, under [`YES`].
const UNBOUND: &str = "unbound";
const YES: &str = "yes";
/// Claims by the volume that they name.
const VOLUME: &str = "volume";
/// Claims by what they are filled from.
const SOURCE: &str = "source";
/// Pods by the claims that they name.
pub(crate) const CLAIM: &str = "claim";
/// Snapshots by the claim that they are taken of.
const TAKEN_OF: &str = "taken-of";

#[derive(Clone)]
pub(crate) struct Stores {
    pub(crate) claims: Store<PersistentVolumeClaim>,
    pub(crate) volumes: Store<PersistentVolume>,
    pub(crate) snapshots: Store<VolumeSnapshot>,
    pub(crate) contents: Store<VolumeSnapshotContent>,
    pub(crate) snapshot_classes: Store<VolumeSnapshotClass>,
    pub(crate) classes: Store<StorageClass>,
    pub(crate) pods: Store<Pod>,
    pub(crate) nodes: Store<Node>,
}

fn namespace(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> &str {
    metadata.namespace.as_deref().unwrap_or_default()
}

/// The index value of what a claim is filled from.
fn source(claim: &PersistentVolumeClaim) -> Option<String> {
    let namespace = namespace(&claim.metadata);
    match data_source(claim)? {
        DataSource::Claim(name) => Some(format!("claim/{namespace}/{name}")),
        DataSource::Snapshot(name) => Some(format!("snapshot/{namespace}/{name}")),
        DataSource::Other(_) => None,
    }
}

impl Stores {
    pub(crate) fn start(client: &Client, shutdown: &CancellationToken) -> Self {
        let stop = || shutdown.clone();
        let claims = Informer::new()
            .index(UNBOUND, |claim: &PersistentVolumeClaim| match claim_phase(claim) {
                Phase::Bound | Phase::Lost => vec![],
                _ => vec![YES.to_owned()],
            })
            .index(VOLUME, |claim: &PersistentVolumeClaim| volume_name(claim).map(str::to_owned).into_iter().collect())
            .index(SOURCE, |claim: &PersistentVolumeClaim| source(claim).into_iter().collect());
        let pods = Informer::new().index(CLAIM, |pod: &Pod| {
            claims_of(pod).into_iter().map(|claim| format!("{}/{claim}", namespace(&pod.metadata))).collect()
        });
        let snapshots = Informer::new().index(TAKEN_OF, |snapshot: &VolumeSnapshot| {
            let claim = snapshot::source_claim(snapshot);
            claim.map(|claim| format!("{}/{claim}", namespace(&snapshot.metadata))).into_iter().collect()
        });
        Self {
            claims: claims.start(Api::all(client.clone()), stop()),
            volumes: Informer::new().start(Api::all(client.clone()), stop()),
            snapshots: snapshots.start(Api::all(client.clone()), stop()),
            contents: Informer::new().start(Api::all(client.clone()), stop()),
            snapshot_classes: Informer::new().start(Api::all(client.clone()), stop()),
            classes: Informer::new().start(Api::all(client.clone()), stop()),
            pods: pods.start(Api::all(client.clone()), stop()),
            nodes: Informer::new().start(Api::all(client.clone()), stop()),
        }
    }

    /// Waits until all are complete; false at shutdown.
    pub(crate) async fn synced(&self) -> bool {
        self.claims.synced().await
            && self.volumes.synced().await
            && self.snapshots.synced().await
            && self.contents.synced().await
            && self.snapshot_classes.synced().await
            && self.classes.synced().await
            && self.pods.synced().await
            && self.nodes.synced().await
    }

    /// Turns changes into work.
    pub(crate) fn feed(&self, queue: &Queue) {
        let (stores, work) = (self.clone(), queue.clone());
        self.claims.subscribe(move |change| stores.claim_changed(change.object(), &work));
        let (stores, work) = (self.clone(), queue.clone());
        self.volumes.subscribe(move |change| stores.volume_changed(change.object(), &work));
        let (stores, work) = (self.clone(), queue.clone());
        self.snapshots.subscribe(move |change| stores.snapshot_changed(change.object(), &work));
        let work = queue.clone();
        self.contents.subscribe(move |change| content_changed(change.object(), &work));
        let (stores, work) = (self.clone(), queue.clone());
        self.classes.subscribe(move |_| stores.add_unbound(&work));
        let (stores, work) = (self.clone(), queue.clone());
        self.snapshot_classes.subscribe(move |_| stores.add_unready(&work));
        let work = queue.clone();
        self.pods.subscribe(move |change| pod_changed(change, &work));
        let (stores, work) = (self.clone(), queue.clone());
        self.nodes.subscribe(move |change| {
            if !matches!(change, Change::Updated { .. }) {
                stores.add_unbound(&work);
            }
        });
    }

    fn claim_changed(&self, claim: &Arc<PersistentVolumeClaim>, queue: &Queue) {
        let key = Key::of(claim.as_ref());
        for other in self.claims.keys_by_index(SOURCE, &format!("claim/{key}")) {
            queue.add(Item::Claim(other));
        }
        for snapshot in self.snapshots.keys_by_index(TAKEN_OF, &key.to_string()) {
            queue.add(Item::Snapshot(snapshot));
        }
        if let Some(DataSource::Snapshot(name)) = data_source(claim) {
            queue.add(Item::Snapshot(Key::new(key.namespace.clone(), name)));
        }
        if let Some(volume) = volume_name(claim) {
            queue.add(Item::Volume(volume.to_owned()));
        }
        // Its volumes need not be named by it yet, or any more.
        let uid = claim.metadata.uid.as_deref();
        let own =
            self.volumes.all().into_iter().filter(|volume| claim_of(volume).is_some_and(|(.., of)| Some(of) == uid));
        own.for_each(|volume| queue.add(Item::Volume(Key::of(volume.as_ref()).name)));
        queue.add(Item::Claim(key));
    }

    fn volume_changed(&self, volume: &Arc<PersistentVolume>, queue: &Queue) {
        let name = Key::of(volume.as_ref()).name;
        for claim in self.claims.keys_by_index(VOLUME, &name) {
            queue.add(Item::Claim(claim));
        }
        match claim_of(volume) {
            Some((namespace, claim, _)) => queue.add(Item::Claim(Key::new(namespace, claim))),
            None => self.add_unbound(queue),
        }
        queue.add(Item::Volume(name));
    }

    fn snapshot_changed(&self, snapshot: &Arc<VolumeSnapshot>, queue: &Queue) {
        let key = Key::of(snapshot.as_ref());
        for claim in self.claims.keys_by_index(SOURCE, &format!("snapshot/{key}")) {
            queue.add(Item::Claim(claim));
        }
        queue.add(Item::Content(snapshot::content_name(snapshot)));
        queue.add(Item::Snapshot(key));
    }

    fn add_unbound(&self, queue: &Queue) {
        self.claims.keys_by_index(UNBOUND, YES).into_iter().for_each(|key| queue.add(Item::Claim(key)));
    }

    fn add_unready(&self, queue: &Queue) {
        let unready = |snapshot: &Arc<VolumeSnapshot>| {
            snapshot.status.as_ref().is_none_or(|status| status.ready_to_use != Some(true))
        };
        let all = self.snapshots.all();
        all.iter().filter(|one| unready(one)).for_each(|one| queue.add(Item::Snapshot(Key::of(one.as_ref()))));
    }
}

fn content_changed(content: &Arc<VolumeSnapshotContent>, queue: &Queue) {
    let reference = &content.spec.volume_snapshot_ref;
    if let (Some(namespace), Some(name)) = (&reference.namespace, &reference.name) {
        queue.add(Item::Snapshot(Key::new(namespace, name)));
    }
    queue.add(Item::Content(Key::of(content.as_ref()).name));
}

fn pod_changed(change: &Change<Pod>, queue: &Queue) {
    let pod = change.object();
    for claim in claims_of(pod) {
        queue.add(Item::Claim(Key::new(namespace(&pod.metadata), claim)));
    }
}
