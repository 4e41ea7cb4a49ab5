//! The life of a machine: made, started, stopped, started anew, gone.

use anyhow::{Context, Result, ensure};
use api::v1::{VirtualMachine, VirtualMachineInstance};
use api::{conditions, finalizers, reasons};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PropagationPolicy};
use serde_json::json;

use crate::agent::Census;
use crate::env::{Env, Shown, vm};

const NO_INSTANCE: Shown =
    Shown { type_: conditions::READY, status: "False", reason: reasons::VMI_NOT_EXISTS, says: "has no instance" };

pub(super) async fn a_halted_machine_waits_for_its_user(env: Env) -> Result<()> {
    env.create_vm(vm("vm", "Halted", json!({}))).await?;
    env.wait_printable("vm", "Stopped").await?;
    let vm = env.wait_shown("vm", &NO_INSTANCE).await?;
    ensure!(vm.status.as_ref().is_some_and(|status| status.created.is_none()), "nothing was started: {vm:?}");
    ensure!(env.api::<VirtualMachineInstance>().get_opt("vm").await?.is_none(), "there is an instance");
    env.delete_vm("vm").await
}

pub(super) async fn a_machine_starts_when_asked(env: Env) -> Result<()> {
    env.create_vm(vm("vm", "Manual", json!({}))).await?;
    env.wait_shown("vm", &NO_INSTANCE).await?;
    env.request("vm", json!([{"action": "Start"}])).await?;
    let vm = env.wait_printable("vm", "Running").await?;
    ensure!(vm.status.as_ref().is_some_and(|status| status.created == Some(true)), "{vm:?}");
    let vm = env.wait_ready("vm").await?;
    ensure!(vm.status.as_ref().is_some_and(|status| status.state_change_requests.is_empty()), "the request is done");
    let vmi: VirtualMachineInstance = env.api().get("vm").await?;
    let node = vmi.status.as_ref().and_then(|status| status.node_name.as_deref());
    ensure!(node.is_some_and(|node| node.starts_with("node-")), "{vmi:?}");
    let pods = env.api::<Pod>().list(&ListParams::default()).await?.items;
    let names: Vec<_> = pods.into_iter().filter_map(|pod| pod.metadata.name).collect();
    let derived = machinery::names::launcher_pod_name("vm", vmi.metadata.uid.as_deref().unwrap_or_default());
    ensure!(names == [derived], "one Pod, with the name that follows from the instance: {names:?}");
    for kind in ["VirtualMachine", "VirtualMachineInstance"] {
        env.wait_event(kind, reasons::SUCCESSFUL_CREATE).await?;
    }
    env.delete_vm("vm").await?;
    for kind in ["VirtualMachine", "VirtualMachineInstance"] {
        env.wait_event(kind, reasons::SUCCESSFUL_DELETE).await?;
    }
    Ok(())
}

pub(super) async fn a_machine_stops_when_asked(env: Env) -> Result<()> {
    let uid = running(&env, "Manual").await?.metadata.uid;
    env.request("vm", json!([{"action": "Stop", "uid": "of-another-instance"}])).await?;
    env.wait("vm", "the foreign request is dropped", |vm: &VirtualMachine| {
        vm.status.as_ref().is_some_and(|status| status.state_change_requests.is_empty())
    })
    .await?;
    ensure!(env.api::<VirtualMachineInstance>().get("vm").await?.metadata.uid == uid, "it runs on");
    env.request("vm", json!([{"action": "Stop", "uid": uid}])).await?;
    env.wait_gone::<VirtualMachineInstance>("vm").await?;
    env.wait_printable("vm", "Stopped").await?;
    env.wait_shown("vm", &NO_INSTANCE).await?;
    env.wait_none::<Pod>().await?;
    env.delete_vm("vm").await
}

pub(super) async fn a_restart_makes_one_new_instance(env: Env) -> Result<()> {
    let census = Census::start(&env.admin(), &env.namespace).await;
    let uid = running(&env, "Always").await?.metadata.uid;
    let changed = json!({"spec": {"template": {"metadata": {"labels": {"changed": "since"}}}}});
    env.patch::<VirtualMachine>("vm", changed).await?;
    env.request("vm", json!([{"action": "Stop", "uid": uid}, {"action": "Start"}])).await?;
    env.wait_vmi("vm", "a new instance runs", |vmi| vmi.metadata.uid != uid && vmi.is_running()).await?;
    env.wait_ready("vm").await?;
    ensure!(census.count() == (2, 2), "instances and Pods ever: {:?}", census.count());
    env.wait_count::<ControllerRevision>(1).await.context("the spec of the first start is dropped")?;
    env.delete_vm("vm").await
}

pub(super) async fn a_deleted_machine_takes_everything_along(env: Env) -> Result<()> {
    running(&env, "Always").await?;
    env.delete_vm("vm").await
}

pub(super) async fn an_orphaned_instance_runs_on(env: Env) -> Result<()> {
    let uid = running(&env, "Always").await?.metadata.uid;
    let orphan = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    env.delete::<VirtualMachine>("vm", &orphan).await?;
    env.wait_gone::<VirtualMachine>("vm").await?;
    let alone = |vmi: &VirtualMachineInstance| vmi.metadata.owner_references.iter().flatten().next().is_none();
    let vmi = env.wait_vmi("vm", "it is nobody's", alone).await?;
    ensure!(vmi.metadata.uid == uid && vmi.is_running() && !vmi.is_marked_for_deletion(), "it runs on: {vmi:?}");
    env.delete::<VirtualMachineInstance>("vm", &DeleteParams::default()).await?;
    env.wait_gone::<VirtualMachineInstance>("vm").await?;
    // Whoever asks Kubernetes to keep what a machine owns keeps the record of its start as well.
    let kept = env.api::<ControllerRevision>().list(&ListParams::default()).await?.items;
    let name = kept.iter().filter_map(|revision| revision.metadata.name.as_deref()).collect::<Vec<_>>();
    ensure!(matches!(name.as_slice(), [one] if one.starts_with("revision-start-vm-")), "{name:?}");
    env.delete::<ControllerRevision>(name[0], &DeleteParams::default()).await?;
    env.nothing_is_left().await
}

pub(super) async fn a_guest_whose_pod_was_taken_away_is_replaced(env: Env) -> Result<()> {
    let census = Census::start(&env.admin(), &env.namespace).await;
    let first = running(&env, "Always").await?;
    let uid = first.metadata.uid.as_deref().context("an instance has a UID")?;
    let pod = machinery::names::launcher_pod_name("vm", uid);
    env.delete::<Pod>(&pod, &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }).await?;
    env.wait_vmi("vm", "a new one runs", |vmi| vmi.metadata.uid != first.metadata.uid && vmi.is_running()).await?;
    ensure!(census.count() == (2, 2), "instances and Pods ever: {:?}", census.count());
    env.delete_vm("vm").await
}

/// A machine that runs, and its instance.
pub(super) async fn running(env: &Env, strategy: &str) -> Result<VirtualMachineInstance> {
    env.create_vm(vm("vm", strategy, json!({}))).await?;
    if strategy == "Manual" {
        env.request("vm", json!([{"action": "Start"}])).await?;
    }
    env.wait_ready("vm").await?;
    let vmi: VirtualMachineInstance = env.api().get("vm").await?;
    let held = vmi.metadata.finalizers.iter().flatten().any(|held| held == finalizers::VIRTUAL_MACHINE_INSTANCE);
    ensure!(held, "an instance does not go without its guest: {vmi:?}");
    Ok(vmi)
}
