//! Watches a VM start or a live migration through the API, to time its steps.

use std::sync::Arc;

use anyhow::{Context, Result};
use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration, VirtualMachineInstanceMigrationPhase as Phase};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::timeline::{HandOff, MoveStep, Step, Timeline};

/// Marks the steps of starting the VM `name` as they are observed; abort the handle when the guest is up.
pub async fn watch_start(client: kube::Client, name: &str, timeline: Arc<Mutex<Timeline>>) -> Result<JoinHandle<()>> {
    let vmis: Api<VirtualMachineInstance> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client);
    // Await the first responses here, so that nothing between this call and the VM's creation is missed.
    vmis.get_opt(name).await.context("cannot read instances")?;
    let by_name = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let launchers = watcher::Config::default().labels("kubevirt.io=virt-launcher");
    let instances = watcher(vmis, by_name).default_backoff().applied_objects();
    let launchers = watcher(pods, launchers).default_backoff().applied_objects();
    let name = name.to_owned();
    Ok(tokio::spawn(async move {
        let on_instance = each(instances, |instance| mark_instance(&timeline, &instance));
        let on_pod = each(launchers, |pod| mark_pod(&timeline, &pod, &name));
        futures::join!(on_instance, on_pod);
    }))
}

async fn each<T>(stream: impl Stream<Item = Result<T, watcher::Error>>, mut see: impl FnMut(T)) {
    futures::pin_mut!(stream);
    while let Some(item) = stream.next().await {
        if let Ok(object) = item {
            see(object);
        }
    }
}

/// Marks the steps of the migration of VMI `name` as they are observed; abort the handle when it is over. The VMI must
/// have no earlier migration.
pub async fn watch_move(
    client: kube::Client,
    name: &str,
    timeline: Arc<Mutex<Timeline<MoveStep>>>,
) -> Result<JoinHandle<()>> {
    let vmis: Api<VirtualMachineInstance> = Api::default_namespaced(client.clone());
    let migrations: Api<VirtualMachineInstanceMigration> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client);
    vmis.get_opt(name).await.context("cannot read instances")?;
    let by_name = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let of_instance = watcher::Config::default().labels(&format!("{}={name}", api::labels::VMI_NAME));
    let targets = watcher::Config::default().labels(api::labels::MIGRATION_JOB_UID);
    let instances = watcher(vmis, by_name).default_backoff().applied_objects();
    let migrations = watcher(migrations, of_instance).default_backoff().applied_objects();
    let targets = watcher(pods, targets).default_backoff().applied_objects();
    let name = name.to_owned();
    Ok(tokio::spawn(async move {
        let on_instance = each(instances, |instance| mark_moving_instance(&timeline, &instance));
        let on_migration = each(migrations, |migration| mark_migration(&timeline, &migration));
        let on_pod = each(targets, |pod| mark_target(&timeline, &pod, &name));
        futures::join!(on_instance, on_migration, on_pod);
    }))
}

fn mark_migration(timeline: &Mutex<Timeline<MoveStep>>, migration: &VirtualMachineInstanceMigration) {
    mark(timeline, MoveStep::Accepted);
    match migration.status.as_ref().and_then(|status| status.phase.as_ref()) {
        Some(Phase::Pending) => mark(timeline, MoveStep::Pending),
        Some(Phase::PreparingTarget) => mark(timeline, MoveStep::HandedOff),
        Some(Phase::TargetReady) => mark(timeline, MoveStep::TargetReady),
        Some(Phase::Running) => mark(timeline, MoveStep::Sending),
        Some(Phase::Succeeded) => mark(timeline, MoveStep::Succeeded),
        _ => {}
    }
}

fn mark_moving_instance(timeline: &Mutex<Timeline<MoveStep>>, instance: &VirtualMachineInstance) {
    let Some(status) = &instance.status else { return };
    let Some(state) = &status.migration_state else { return };
    mark(timeline, MoveStep::HandedOff);
    if state.target_node_address.is_some() {
        mark(timeline, MoveStep::TargetReady);
    }
    if state.start_timestamp.is_some() {
        mark(timeline, MoveStep::Sending);
    }
    if state.target_node_domain_ready_timestamp.is_some() {
        mark(timeline, MoveStep::Arrived);
    }
    if state.target_node.is_some() && status.node_name == state.target_node {
        mark(timeline, MoveStep::Owned);
    }
}

fn mark_target(timeline: &Mutex<Timeline<MoveStep>>, pod: &Pod, name: &str) {
    let domain = pod.metadata.annotations.as_ref().and_then(|all| all.get(api::annotations::DOMAIN));
    if domain.map(String::as_str) != Some(name) {
        return;
    }
    mark(timeline, MoveStep::TargetCreated);
    if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
        mark(timeline, MoveStep::TargetScheduled);
    }
    if pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running") {
        mark(timeline, MoveStep::TargetRunning);
    }
}

fn mark<S: Step>(timeline: &Mutex<Timeline<S>>, hand_off: S) {
    timeline.lock().mark(hand_off);
}

fn mark_instance(timeline: &Mutex<Timeline>, instance: &VirtualMachineInstance) {
    mark(timeline, HandOff::InstanceCreated);
    let phase = instance.status.as_ref().and_then(|status| status.phase.as_ref()).map(ToString::to_string);
    match phase.as_deref() {
        Some("Scheduled") => mark(timeline, HandOff::HandedOver),
        Some("Running") => {
            mark(timeline, HandOff::HandedOver);
            mark(timeline, HandOff::GuestStarted);
        }
        _ => {}
    }
}

fn mark_pod(timeline: &Mutex<Timeline>, pod: &Pod, name: &str) {
    let domain = pod.metadata.annotations.as_ref().and_then(|all| all.get(api::annotations::DOMAIN));
    if domain.map(String::as_str) != Some(name) {
        return;
    }
    mark(timeline, HandOff::PodCreated);
    if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
        mark(timeline, HandOff::PodScheduled);
    }
    if pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running") {
        mark(timeline, HandOff::LauncherRunning);
    }
}
