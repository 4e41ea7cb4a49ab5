//! Controllers that start: with caches that fill slowly, next to what another one has made, on what earlier versions left.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use api::cdi::DataVolume;
use api::v1::VirtualMachine;
use informer::{Clock, Key, Recorder};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::watcher;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use virt_controller::{ALL, Controllers, KubeApi, Settings, Stores};

use super::life::running;
use super::storage::with_template;
use crate::agent::Census;
use crate::env::{Env, vm};

pub(super) async fn caches_fill_where_lists_are_not_streamed(env: Env) -> Result<()> {
    running(&env, "Always").await?;
    let stop = CancellationToken::new();
    let stores = Stores::start(&env.cluster.client_without_streams().await, &stop);
    let synced = tokio::time::timeout(Duration::from_secs(60), stores.synced()).await;
    stop.cancel();
    ensure!(synced == Ok(true), "the caches did not fill");
    ensure!(stores.vms.get(&Key::new(&env.namespace, "vm")).is_some(), "the cache has what is there");
    env.delete_vm("vm").await
}

/// A second controller whose caches have the machine and nothing else. What it decides to make is there already.
pub(super) async fn a_controller_that_sees_too_little_makes_nothing_twice(env: Env) -> Result<()> {
    env.create_vm(vm("halted", "Halted", with_template(&json!({"blank": {}})))).await?;
    let volume: DataVolume = env.wait("disk", "it is made from its template", |_| true).await?;
    env.wait_event("VirtualMachine", api::events::SUCCESSFUL_DATA_VOLUME_CREATE).await?;
    look(&env, env.api().get("halted").await?).await;
    ensure!(env.api::<DataVolume>().get("disk").await?.metadata.uid == volume.metadata.uid, "the volume stays");
    let events = env.api::<Event>().list(&ListParams::default()).await?.items;
    let created = Some(api::events::SUCCESSFUL_DATA_VOLUME_CREATE);
    let told = events.iter().filter(|event| event.reason.as_deref() == created);
    let counts: Vec<i32> = told.filter_map(|event| event.count).collect();
    ensure!(matches!(counts.as_slice(), [count] if *count > 1), "the event is counted up: {counts:?}");
    env.delete::<VirtualMachine>("halted", &DeleteParams::default()).await?;

    running(&env, "Always").await?;
    let census = Census::start(&env.admin(), &env.namespace).await;
    let before = revisions(&env).await?;
    let as_it_was = VirtualMachine { status: None, ..env.api().get("vm").await? };
    look(&env, as_it_was).await;
    env.wait_ready("vm").await?;
    ensure!(revisions(&env).await? == before, "a revision was made anew");
    ensure!(census.count() == (1, 1), "instances and Pods ever: {:?}", census.count());
    env.delete_vm("vm").await
}

async fn revisions(env: &Env) -> Result<Vec<Option<String>>> {
    let all = env.api::<ControllerRevision>().list(&ListParams::default()).await?.items;
    Ok(all.into_iter().map(|revision| revision.metadata.uid).collect())
}

/// One pass over a machine by controllers that know of nothing else. What comes of it is up to the server.
async fn look(env: &Env, vm: VirtualMachine) {
    let key = Key::of(&vm);
    let (stores, mut feeds) = Stores::detached();
    feeds.vms.apply(watcher::Event::Apply(vm));
    let (client, stop) = (env.cluster.client().await, CancellationToken::new());
    let notes = Arc::new(Recorder::start(client.clone(), "virt-controller", "second", stop.clone()));
    let api = Arc::new(KubeApi::new(client));
    let controllers = Controllers::new(ALL, stores, api, notes, Clock::system(), Settings::default());
    let vms = controllers.named("vm").expect("machines have a controller");
    let _conflict = vms.reconcile(&key).await;
    tokio::time::sleep(Duration::from_secs(2)).await; // its events are on their way
    stop.cancel();
}

pub(super) async fn a_budget_of_an_earlier_version_is_removed(env: Env) -> Result<()> {
    let vmi = running(&env, "Always").await?;
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "kubevirt-disruption-budget-x", "ownerReferences": [{"apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance", "name": "vm", "uid": vmi.metadata.uid, "controller": true}]},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"of": "nobody"}}},
    }))?;
    env.api::<PodDisruptionBudget>().create(&PostParams::default(), &budget).await?;
    env.wait_gone::<PodDisruptionBudget>("kubevirt-disruption-budget-x").await?;
    env.wait_event("VirtualMachineInstance", api::events::SUCCESSFUL_DELETE).await?;
    env.delete_vm("vm").await
}
