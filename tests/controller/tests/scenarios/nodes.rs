//! A node that is not heard of any more.

use anyhow::{Context, Result, ensure};
use api::v1::{VirtualMachine, VirtualMachineInstance, VirtualMachineInstancePhase as Phase};
use api::{annotations, labels, reasons};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::cluster::LONELY_NODE;
use crate::env::{Env, vm};

pub(super) async fn a_guest_on_a_lost_node_is_given_up_once_its_pod_has_ended(env: Env) -> Result<()> {
    let there = json!({"spec": {"template": {"spec": {
        "nodeSelector": {"lonely": "true"}, "tolerations": [{"key": "lonely", "operator": "Exists"}]}}}});
    env.create_vm(vm("vm", "Manual", there)).await?;
    env.request("vm", json!([{"action": "Start"}])).await?;
    let scheduled = |vmi: &VirtualMachineInstance| vmi.status.iter().any(|status| !status.active_pods.is_empty());
    let vmi = env.wait_vmi("vm", "its Pod is made", scheduled).await?;
    let pod = machinery::names::launcher_pod_name("vm", vmi.metadata.uid.as_deref().unwrap_or_default());
    let bound = |pod: &Pod| pod.spec.iter().any(|spec| spec.node_name.as_deref() == Some(LONELY_NODE));
    env.wait(&pod, "it is bound", bound).await?;
    set_pod(&env, &pod, "Running", json!({"running": {}})).await?;
    env.wait_vmi("vm", "it runs", VirtualMachineInstance::is_running).await?;

    // Silent, and the Pod seems to run: nobody knows, so nothing is done to the guest.
    let nodes: Api<Node> = Api::all(env.admin());
    let silent = json!({"metadata": {"annotations": {annotations::HEARTBEAT: "2020-01-01T00:00:00Z"}}});
    nodes.patch(LONELY_NODE, &PatchParams::default(), &Patch::Merge(silent)).await?;
    wait_unschedulable(&nodes).await?;
    ensure!(env.api::<VirtualMachineInstance>().get("vm").await?.is_running(), "the guest may run on");

    // The Pod has ended, and there is nobody to say so for the guest.
    set_pod(&env, &pod, "Failed", json!({"terminated": {"exitCode": 137}})).await?;
    let lost = |vmi: &VirtualMachineInstance| vmi.phase() == Some(&Phase::Failed);
    // Nodes are looked at when they change, and once a minute.
    let touched = json!({"metadata": {"annotations": {"touched": "true"}}});
    nodes.patch(LONELY_NODE, &PatchParams::default(), &Patch::Merge(touched)).await?;
    let vmi = env.wait_vmi("vm", "it is given up", lost).await?;
    let reason = vmi.status.as_ref().and_then(|status| status.reason.as_deref());
    ensure!(reason == Some(reasons::NODE_UNRESPONSIVE), "it says why: {vmi:?}");
    env.wait_event("VirtualMachineInstance", reasons::NODE_UNRESPONSIVE).await?;

    env.delete::<VirtualMachine>("vm", &DeleteParams::default()).await?;
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    // The garbage collector, or the collector of Pods: whichever comes first.
    match env.api::<Pod>().delete(&pod, &now).await {
        Err(kube::Error::Api(answer)) if answer.code == 404 => {}
        deleted => drop(deleted.context("the collector of Pods")?),
    }
    env.nothing_is_left().await
}

/// What a kubelet would say of the Pod.
async fn set_pod(env: &Env, pod: &str, phase: &str, state: serde_json::Value) -> Result<()> {
    let running = phase == "Running";
    let spec = env.api::<Pod>().get(pod).await?.spec.context("a Pod has a spec")?;
    let containers: Vec<_> = spec
        .containers
        .iter()
        .map(|container| {
            json!({"name": container.name, "image": "x", "imageID": "x", "restartCount": 0, "ready": running,
                   "state": state})
        })
        .collect();
    let status = json!({"status": {"phase": phase, "containerStatuses": containers}});
    env.api::<Pod>().patch_status(pod, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

async fn wait_unschedulable(nodes: &Api<Node>) -> Result<()> {
    for _ in 0..1200 {
        let node = nodes.get(LONELY_NODE).await?;
        if machinery::meta::label(&node.metadata, labels::SCHEDULABLE) == Some("false") {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    anyhow::bail!("the silent node still takes guests")
}
