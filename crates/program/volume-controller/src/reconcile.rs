//! Observe, decide, act.

use std::sync::Arc;

use claims::{Action, DataSource, claim, claim_of, data_source, snapshot, volume, volume_name};
use informer::{Key, Requeue};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::act::{Context, act};
use crate::error::Error;
use crate::stores::{CLAIM, Item, Stores};

pub(crate) async fn reconcile(context: &Context, item: &Item) -> Result<Requeue, Error> {
    let actions = decide(&context.stores, item, Timestamp::now());
    tracing::debug!(%item, ?actions);
    act(context, actions).await
}

/// What is to be done about an object; nothing if it is gone.
fn decide(stores: &Stores, item: &Item, now: Timestamp) -> Vec<Action> {
    match item {
        Item::Claim(key) => stores.claims.get(key).map(|claim| claim_actions(stores, key, &claim, now)),
        Item::Volume(name) => volume_actions(stores, name, now),
        Item::Snapshot(key) => snapshot_actions(stores, key, now),
        Item::Content(name) => content_actions(stores, name),
    }
    .unwrap_or_default()
}

fn claim_actions(stores: &Stores, key: &Key, claim: &Arc<PersistentVolumeClaim>, now: Timestamp) -> Vec<Action> {
    let (mut source_claim, mut source_snapshot, mut source_content) = (None, None, None);
    match data_source(claim) {
        Some(DataSource::Claim(name)) => source_claim = stores.claims.get(&Key::new(&key.namespace, name)),
        Some(DataSource::Snapshot(name)) => {
            source_snapshot = stores.snapshots.get(&Key::new(&key.namespace, name));
            let content = source_snapshot.as_deref().map(snapshot::content_name);
            source_content = content.and_then(|name| stores.contents.get(&Key::new("", name)));
        }
        Some(DataSource::Other(_)) | None => {}
    }
    let selected = claim.metadata.annotations.as_ref().and_then(|all| all.get(claim::SELECTED_NODE));
    let node = selected.and_then(|name| stores.nodes.get(&Key::new("", name)));
    claim::decide(&claim::World {
        claim,
        classes: &stores.classes.all(),
        volumes: &stores.volumes.all(),
        pods: &stores.pods.by_index(CLAIM, &key.to_string()),
        node: node.as_deref(),
        source: claim::Source {
            claim: source_claim.as_deref(),
            snapshot: source_snapshot.as_deref(),
            content: source_content.as_deref(),
        },
        now,
    })
}

fn volume_actions(stores: &Stores, name: &str, now: Timestamp) -> Option<Vec<Action>> {
    let volume = stores.volumes.get(&Key::new("", name))?;
    let claim = claim_of(&volume).and_then(|(namespace, name, _)| stores.claims.get(&Key::new(namespace, name)));
    Some(volume::decide(&volume::World { volume: &volume, claim: claim.as_deref(), now }))
}

fn snapshot_actions(stores: &Stores, key: &Key, now: Timestamp) -> Option<Vec<Action>> {
    let snapshot = stores.snapshots.get(key)?;
    let content = stores.contents.get(&Key::new("", snapshot::content_name(&snapshot)));
    let claim = snapshot::source_claim(&snapshot).and_then(|name| stores.claims.get(&Key::new(&key.namespace, name)));
    let volume = claim.as_deref().and_then(volume_name).and_then(|name| stores.volumes.get(&Key::new("", name)));
    Some(snapshot::decide(&snapshot::World {
        snapshot: &snapshot,
        content: content.as_deref(),
        claims: &stores.claims.in_namespace(&key.namespace),
        volume: volume.as_deref(),
        snapshots: &stores.snapshots.in_namespace(&key.namespace),
        classes: &stores.snapshot_classes.all(),
        now,
    }))
}

fn content_actions(stores: &Stores, name: &str) -> Option<Vec<Action>> {
    let content = stores.contents.get(&Key::new("", name))?;
    let reference = &content.spec.volume_snapshot_ref;
    let key = reference.namespace.as_ref().zip(reference.name.as_ref());
    let snapshot = key.and_then(|(namespace, name)| stores.snapshots.get(&Key::new(namespace, name)));
    Some(snapshot::decide_content(&snapshot::ContentWorld { content: &content, snapshot: snapshot.as_deref() }))
}
