//! The scheduler, the controllers of Kubernetes and the fake nodes at work together.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use control_plane::{ControlPlane, FakeNodes, Fate, NodeShape};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use crate::cluster;

const PATIENCE: Duration = Duration::from_secs(90);

/// A condition that a Pod may wait for.
const GATE: &str = "example.com/gate";

pub(crate) fn trials() -> Vec<Trial> {
    let run = || cluster::runtime().block_on(pods_live_and_die_on_fake_nodes());
    let run = move || run().map_err(|err: anyhow::Error| Failed::from(format!("{err:#}")));
    vec![Trial::test("pods_live_and_die_on_fake_nodes", run)]
}

async fn pods_live_and_die_on_fake_nodes() -> Result<()> {
    let plane = ControlPlane::start(cluster::programs()?).await?.with_scheduler()?.with_controller_manager()?;
    let client = plane.client()?;
    let nodes = FakeNodes::start(client.clone(), 2, &NodeShape::default()).await?;
    nodes.decide(|pod| match pod.name_any().as_str() {
        "fails" => Fate::End(1),
        "lacks" => Fate::NoImage,
        "waits" => Fate::Wait,
        _ => Fate::Run,
    });
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let owner = owner(client).await?;
    for name in ["runs", "fails", "lacks", "waits", "gated", "owned"] {
        pods.create(&PostParams::default(), &pod(name, &owner)).await?;
    }
    let phase = async |name: &str, phase: &str| {
        eventually(&plane, &format!("{name} {phase}"), async || {
            let pod = pods.get(name).await?;
            Ok(pod.status.and_then(|status| status.phase).as_deref() == Some(phase))
        })
        .await
    };
    phase("runs", "Running").await?;
    phase("fails", "Failed").await?;
    phase("gated", "Running").await?;
    eventually(&plane, "lacks says why", async || {
        let status = json!(pods.get("lacks").await?.status);
        Ok(status["containerStatuses"][0]["state"]["waiting"]["reason"] == "ErrImagePull")
    })
    .await?;
    let bound = pods.get("waits").await?.spec.and_then(|spec| spec.node_name);
    ensure!(bound.is_none_or(|node| nodes.names().contains(&node)), "a Pod is on an unknown node");
    phase("waits", "Pending").await?;

    ensure!(ready(&pods, "runs").await?, "a Pod without gates is not ready");
    ensure!(!ready(&pods, "gated").await?, "a Pod is ready before its gate is open");
    let open = json!({"status": {"conditions": [{"type": GATE, "status": "True"}]}});
    pods.patch_status("gated", &PatchParams::default(), &Patch::Strategic(open)).await?;
    eventually(&plane, "the gate opens", async || ready(&pods, "gated").await).await?;

    nodes.end("default", "runs", 0).await?;
    phase("runs", "Succeeded").await?;
    pods.delete("gated", &DeleteParams::default()).await?;
    eventually(&plane, "gated goes", async || Ok(pods.get_opt("gated").await?.is_none())).await?;
    let owners: Api<ConfigMap> = Api::namespaced(plane.client()?, "default");
    owners.delete("owner", &DeleteParams::background()).await?;
    eventually(&plane, "owned goes with its owner", async || Ok(pods.get_opt("owned").await?.is_none())).await
}

async fn ready(pods: &Api<Pod>, name: &str) -> Result<bool> {
    let status = json!(pods.get(name).await?.status);
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    Ok(conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True"))
}

async fn owner(client: Client) -> Result<ConfigMap> {
    let owner = serde_json::from_value(json!({"metadata": {"name": "owner"}}))?;
    Ok(Api::namespaced(client, "default").create(&PostParams::default(), &owner).await?)
}

fn pod(name: &str, owner: &ConfigMap) -> Pod {
    let gates = if name == "gated" { json!([{"conditionType": GATE}]) } else { Value::Null };
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}]);
    let owners = if name == "owned" { owner } else { Value::Null };
    let pod = json!({
        "metadata": {"name": name, "ownerReferences": owners},
        "spec": {
            "restartPolicy": "Never",
            "readinessGates": gates,
            "nodeSelector": {"kubevirt.io/schedulable": "true"},
            "containers": [{"name": "compute", "image": "none",
                "resources": {"limits": {"cpu": "1", "memory": "1Gi", "devices.kubevirt.io/kvm": "1"}}}],
        },
    });
    serde_json::from_value(pod).expect("a Pod is a Pod")
}

/// Waits until something holds.
async fn eventually(plane: &ControlPlane, what: &str, mut holds: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await? {
        plane.check()?;
        if Instant::now() > deadline {
            bail!("not after {} s: {what}", PATIENCE.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
