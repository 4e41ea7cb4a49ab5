//! From the request to the guest's first user-space line, beside what cannot be avoided: the start of a Pod and libvirt's
//! start of the same guest.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use drive::demo::bare_start;
use drive::timeline::{HandOff, Timeline};
use drive::{BOOT_LIMIT, FIRST_LINE, Guest, watch_start};
use e2e::kubernetes::Kubernetes;
use e2e::manifest::Manifest;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use parking_lot::Mutex;
use serde_json::json;

use super::within;
use crate::median;

/// In turns, so that a noisy minute hits all sides.
const ROUNDS: usize = 5;
const LIMIT: Duration = Duration::from_secs(120);

pub(crate) async fn measure(kubernetes: &Kubernetes, guest_dir: &Path) -> Result<()> {
    let (mut ours, mut pods, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    let mut last = None;
    for round in 0..ROUNDS {
        bare.push(bare_start(guest_dir).await?.total().as_secs_f64());
        pods.push(bare_pod(kubernetes, &format!("bare-{round}")).await?.as_secs_f64());
        let (took, timeline) = start(kubernetes, &format!("bench-{round}")).await?;
        ours.push(took.as_secs_f64());
        last = Some(timeline);
    }
    let (ours, pod, bare) = (median(ours), median(pods), median(bare));
    println!("\nstarts, medians of {ROUNDS}");
    println!("create → first user-space line     {ours:7.2} s");
    println!(
        "bare Pod {pod:.2} s + bare libvirt {bare:.2} s  {:6.2} s   ratio {:.2}   aim ≤ 1.15",
        pod + bare,
        ours / (pod + bare)
    );
    if let Some(timeline) = last {
        print!("the last of them:\n{timeline}");
    }
    Ok(())
}

async fn start(kubernetes: &Kubernetes, name: &str) -> Result<(Duration, Timeline)> {
    let timeline = Arc::new(Mutex::new(Timeline::starting_now()));
    let watching = watch_start(kubernetes.client().await?, name, timeline.clone()).await?;
    *timeline.lock() = Timeline::starting_now();
    let started = Instant::now();
    let guest = Guest::spawn(kubernetes, Manifest::vm(name, "Always").json()).await?;
    guest.console.wait_for(FIRST_LINE, 0, BOOT_LIMIT).await?;
    timeline.lock().mark(HandOff::UserSpace);
    let arrival = guest.console.arrival(FIRST_LINE).context("the first line has no arrival")?;
    guest.wait_to_boot().await?;
    guest.delete().await?;
    watching.abort();
    let timeline = timeline.lock().clone();
    Ok((arrival - started, timeline))
}

/// From the request to a container that runs, in a Pod with the volume that a guest has.
async fn bare_pod(kubernetes: &Kubernetes, name: &str) -> Result<Duration> {
    let pods: Api<Pod> = Api::default_namespaced(kubernetes.client().await?);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "sleeper", "image": test_cluster::images::BUSYBOX, "command": ["sleep", "infinity"],
                "volumeMounts": [{"name": "kernel", "mountPath": "/kernel", "readOnly": true}],
            }],
            "volumes": [{"name": "kernel", "image": {
                "reference": "ferrovirt.io/guest-kernel:latest", "pullPolicy": "IfNotPresent",
            }}],
        },
    }))?;
    let by_name = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut seen = watcher(pods.clone(), by_name).default_backoff().applied_objects().boxed();
    // The watch is there before the Pod.
    pods.get_opt(name).await.context("cannot read Pods")?;
    let started = Instant::now();
    pods.create(&PostParams::default(), &pod).await.context("cannot create a Pod")?;
    let took = within(LIMIT, &format!("Pod {name} runs"), async {
        while let Some(pod) = seen.next().await {
            if pod.is_ok_and(|pod| runs(&pod)) {
                return Ok(started.elapsed());
            }
        }
        bail!("the watch of Pod {name} ended")
    })
    .await?;
    pods.delete(name, &DeleteParams::default().grace_period(0)).await.context("cannot delete a Pod")?;
    kube::runtime::wait::await_condition(pods, name, gone).await.context("cannot wait for a Pod's end")?;
    Ok(took)
}

fn gone(pod: Option<&Pod>) -> bool {
    pod.is_none()
}

fn runs(pod: &Pod) -> bool {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    statuses.iter().any(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()))
}
