//! The objects by which clients find the importer, and a profile for each storage class.

use api::cdi::{CDI, StorageProfile};
use imports::installation as wanted;
use informer::{Change, Key, Requeue, WorkQueue, run_workers};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, Resource};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::stores::Stores;

/// Keeps the objects as they should be.
pub(crate) async fn run(client: kube::Client, stores: Stores, url: String, shutdown: CancellationToken) {
    let queue: WorkQueue<Key> = WorkQueue::new("storageprofiles");
    let wake = queue.clone();
    stores.classes.subscribe(move |change: &Change<StorageClass>| {
        wake.add(Key::of(change.object().as_ref()));
        wake.add(Key::default());
    });
    let wake = queue.clone();
    stores.profiles.subscribe(move |change: &Change<StorageProfile>| wake.add(Key::of(change.object().as_ref())));
    // An empty name stands for the installation itself.
    queue.add(Key::default());
    run_workers(queue, 1, shutdown, move |key: Key| {
        let (client, stores, url) = (client.clone(), stores.clone(), url.clone());
        async move {
            if key.name.is_empty() {
                settle(&client, &stores, url).await
            } else {
                profile(&client, &stores, &key).await
            }
        }
    })
    .await;
}

async fn settle(client: &kube::Client, stores: &Stores, url: String) -> Result<Requeue, Error> {
    let scratch = stores.classes.all().iter().find(|class| class.provisioner == imports::DRIVER).cloned();
    let scratch = scratch.and_then(|class| class.metadata.name.clone());
    let status = wanted::config_status(Some(url), scratch);
    ensure(client, &wanted::config(), json!(status)).await?;
    let installation = wanted::installation();
    ensure::<CDI>(client, &installation, json!(installation.status)).await?;
    Ok(Requeue::No)
}

async fn profile(client: &kube::Client, stores: &Stores, key: &Key) -> Result<Requeue, Error> {
    let profiles: Api<StorageProfile> = Api::all(client.clone());
    let (Some(class), found) = (stores.classes.get(key), stores.profiles.get(key)) else {
        if stores.profiles.get(key).is_some() {
            let gone = profiles.delete(&key.name, &DeleteParams::default()).await;
            let gone = gone.map(drop).map_err(Error::api(format!("delete StorageProfile {key}")));
            if gone.as_ref().is_err_and(|error| !error.is_gone()) {
                return gone.map(|()| Requeue::No);
            }
        }
        return Ok(Requeue::No);
    };
    let own = wanted::profile(&class);
    let status = wanted::profile_status(found.as_deref().unwrap_or(&own), &class);
    if found.as_ref().and_then(|found| found.status.as_ref()) != Some(&status) {
        ensure(client, &own, json!(status)).await?;
    }
    Ok(Requeue::No)
}

/// Makes an object if it is missing, and writes its status.
async fn ensure<K>(client: &kube::Client, object: &K, status: Value) -> Result<(), Error>
where
    K: Resource<Scope = k8s_openapi::ClusterResourceScope>
        + Metadata<Ty = ObjectMeta>
        + kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let name = Metadata::metadata(object).name.clone().unwrap_or_default();
    let objects: Api<K> = Api::all(client.clone());
    let fresh = objects.create(&PostParams::default(), object).await;
    match fresh.map(drop).map_err(Error::api(format!("create {} {name}", K::KIND))) {
        Err(error) if !error.exists() => return Err(error),
        _ => {}
    }
    let change = Patch::Merge(json!({ "status": status }));
    let written = objects.patch_status(&name, &PatchParams::default(), &change).await;
    written.map(drop).map_err(Error::api(format!("write the status of {} {name}", K::KIND)))
}
