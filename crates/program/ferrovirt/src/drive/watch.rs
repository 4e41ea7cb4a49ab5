//! Following one VM start through the API, to time its hand-offs.

use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use api::v1::VirtualMachineInstance;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::task::JoinHandle;

use super::timeline::{HandOff, Timeline};

/// Marks the hand-offs of the VM `name` as they are seen; abort the handle when the guest is up.
pub async fn watch_start(client: kube::Client, name: &str, timeline: Arc<Mutex<Timeline>>) -> Result<JoinHandle<()>> {
    let vmis: Api<VirtualMachineInstance> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client);
    // The first answers are awaited here, so that nothing between this call and the VM's creation is missed.
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

fn mark(timeline: &Mutex<Timeline>, hand_off: HandOff) {
    timeline.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).mark(hand_off);
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
