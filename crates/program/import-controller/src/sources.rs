//! DataSources: each says whether it can be used.

use api::cdi::{DataSource, DataVolume};
use imports::data_source::Update;
use informer::{Change, Key, Requeue, WorkQueue, run_workers};
use jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::stores::Stores;

/// Keeps the status of all DataSources up to date.
pub(crate) async fn run(client: kube::Client, stores: Stores, shutdown: CancellationToken) {
    let queue: WorkQueue<Key> = WorkQueue::new("datasources");
    feed(&stores, &queue);
    run_workers(queue, 1, shutdown, move |key: Key| {
        let (client, stores) = (client.clone(), stores.clone());
        async move { pass(&client, &stores, &key).await }
    })
    .await;
}

/// There are few DataSources: all are looked at when something that they may lead to changes.
fn feed(stores: &Stores, queue: &WorkQueue<Key>) {
    let all = || {
        let (sources, queue) = (stores.data_sources.clone(), queue.clone());
        move || sources.keys().into_iter().for_each(|key| queue.add(key))
    };
    let (wake, of_claims, of_snapshots) = (all(), all(), all());
    stores.data_sources.subscribe(move |_: &Change<DataSource>| wake());
    let wake = all();
    stores.data_volumes.subscribe(move |change: &Change<DataVolume>| {
        let phase = |dv: &DataVolume| dv.status.as_ref().and_then(|status| status.phase.clone());
        let same = match change {
            // Progress comes each second.
            Change::Updated { old, new } => phase(old) == phase(new),
            Change::Added(_) | Change::Deleted(_) => false,
        };
        if !same {
            wake();
        }
    });
    stores.claims.subscribe(move |change| {
        if !matches!(change, Change::Updated { .. }) {
            of_claims();
        }
    });
    stores.snapshots.subscribe(move |_| of_snapshots());
}

async fn pass(client: &kube::Client, stores: &Stores, key: &Key) -> Result<Requeue, Error> {
    let Some(found) = stores.data_sources.get(key).filter(|found| found.metadata.deletion_timestamp.is_none()) else {
        return Ok(Requeue::No);
    };
    let Update { status, labels } = imports::data_source::decide(&found, stores, Timestamp::now());
    let sources: Api<DataSource> = Api::namespaced(client.clone(), &key.namespace);
    let params = PatchParams::default();
    if !labels.is_empty() {
        let change = Patch::Merge(json!({"metadata": {"uid": found.metadata.uid, "labels": labels}}));
        sources.patch(&key.name, &params, &change).await.map_err(Error::api(format!("label DataSource {key}")))?;
    }
    if let Some(status) = status {
        let mut source = json!(status.source);
        if let Some(members) = source.as_object_mut() {
            for gone in ["pvc", "snapshot", "dataSource"] {
                members.entry(gone).or_insert(serde_json::Value::Null);
            }
        }
        let change = Patch::Merge(json!({
            "metadata": {"uid": found.metadata.uid},
            "status": {"conditions": status.conditions, "source": source},
        }));
        let written = sources.patch_status(&key.name, &params, &change).await;
        written.map_err(Error::api(format!("write the status of DataSource {key}")))?;
    }
    Ok(Requeue::No)
}
