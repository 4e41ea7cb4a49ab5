//! Guests that move, as far as controllers, scheduler and API server are concerned; the nodes only pretend.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::v1::VirtualMachineInstanceMigration as Migration;
use api::v1::{VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigrationPhase as Phase};
use api::{annotations, conditions, finalizers, labels, reasons};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::api::{DeleteParams, EvictParams, ListParams, PostParams};
use serde_json::{Value, json};

use super::life::running;
use crate::agent::TRAVELS;
use crate::env::{Env, vm};

/// A migration as admission leaves it, which not every server has.
pub(super) async fn migrate(env: &Env, name: &str, vmi: &str, more: Value) -> Result<()> {
    let mut migration = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name, "labels": {labels::VMI_NAME: vmi}, "finalizers": [finalizers::MIGRATION]},
        "spec": {"vmiName": vmi},
    });
    machinery::patch::merge(&mut migration, &more);
    let migration: Migration = serde_json::from_value(migration)?;
    env.api().create(&PostParams::default(), &migration).await.context("the migration is refused")?;
    Ok(())
}

fn phase(migration: &Migration) -> Option<&Phase> {
    migration.status.as_ref()?.phase.as_ref()
}

pub(super) async fn wait_phase(env: &Env, name: &str, wanted: Phase) -> Result<Migration> {
    env.wait(name, wanted.as_str(), |migration| phase(migration) == Some(&wanted)).await
}

/// Waits until a migration shows a condition with this reason and these words.
async fn wait_shown(env: &Env, name: &str, type_: &str, reason: &str, says: &str) -> Result<Migration> {
    env.wait(name, &format!("shows {type_} {reason}"), |migration: &Migration| {
        let mut shown = migration.status.iter().flat_map(|status| &status.conditions);
        shown.any(|c| c.type_ == type_ && c.reason() == reason && c.message().contains(says))
    })
    .await
}

fn node(vmi: &VirtualMachineInstance) -> Option<&str> {
    vmi.status.as_ref()?.node_name.as_deref()
}

async fn pods(env: &Env) -> Result<Vec<Pod>> {
    Ok(env.api::<Pod>().list(&ListParams::default()).await?.items)
}

/// The launcher that the guest has left ends, as launchers do.
pub(super) async fn end_source(env: &Env, vmi: &VirtualMachineInstance) -> Result<()> {
    let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    let pod = state.and_then(|state| state.source_pod.as_deref()).context("a moved guest tells where from")?;
    env.cluster.end_pod(&env.namespace, pod).await
}

pub(super) async fn a_guest_moves_and_nothing_of_it_stays_behind(env: Env) -> Result<()> {
    let before = running(&env, "Always").await?;
    migrate(&env, "move", "vm", json!({})).await?;
    let migration = wait_phase(&env, "move", Phase::Succeeded).await?;
    let reached: Vec<&str> = migration
        .status
        .iter()
        .flat_map(|status| &status.phase_transition_timestamps)
        .filter_map(|transition| transition.phase.as_ref().map(Phase::as_str))
        .collect();
    let all = ["Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running", "Succeeded"];
    ensure!(reached.iter().all(|phase| all.contains(phase)), "phases: {reached:?}");
    ensure!(reached.is_sorted_by_key(|phase| all.iter().position(|known| known == phase)), "phases: {reached:?}");

    let vmi = env.wait_vmi("vm", "it is at the other node", |vmi| node(vmi) != node(&before)).await?;
    ensure!(vmi.metadata.uid == before.metadata.uid && vmi.is_running(), "it is the same guest: {vmi:?}");
    end_source(&env, &vmi).await?;
    env.wait::<Migration>("move", "nothing holds it", |m| m.metadata.finalizers.iter().flatten().next().is_none())
        .await?;
    let vmi = env.wait_vmi("vm", "it is ready there", |vmi| {
        vmi.condition(conditions::READY).is_some_and(|ready| ready.is_true())
    });
    let label = vmi.await?.metadata.labels.unwrap_or_default();
    ensure!(!label.contains_key(labels::MIGRATION_TARGET_NODE_NAME), "nobody waits for it any more: {label:?}");
    env.wait_event("VirtualMachineInstanceMigration", "SuccessfulMigration").await?;
    env.delete_vm("vm").await
}

/// Somebody wants the guest's Pod to go. Where there is no front end, what it would have written is written here.
async fn evict(env: &Env, vmi: &VirtualMachineInstance) -> Result<()> {
    if !env.cluster.server.admits() {
        let leave = json!({"status": {"evacuationNodeName": node(vmi)}});
        env.patch::<VirtualMachineInstance>("vm", leave).await?;
        return Ok(());
    }
    let pod = machinery::names::launcher_pod_name("vm", vmi.metadata.uid.as_deref().unwrap_or_default());
    // The client asks again for as long as it is refused; the first time is enough.
    let pods = env.api::<Pod>();
    let params = EvictParams::default();
    match tokio::time::timeout(Duration::from_secs(3), pods.evict(&pod, &params)).await {
        Ok(Ok(answer)) => anyhow::bail!("the Pod of a guest that has to be moved is not evicted: {answer:?}"),
        Ok(Err(kube::Error::Api(answer))) if answer.code == 429 => Ok(()),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Ok(()),
    }
}

pub(super) async fn a_guest_that_has_to_leave_its_node_is_moved(env: Env) -> Result<()> {
    let stays = json!({"spec": {"template": {"spec": {"evictionStrategy": "LiveMigrate"}}}});
    env.create_vm(vm("vm", "Always", stays)).await?;
    env.wait_ready("vm").await?;
    let before = env.wait_vmi("vm", "it runs", VirtualMachineInstance::is_running).await?;
    evict(&env, &before).await?;
    let there = |vmi: &VirtualMachineInstance| node(vmi) != node(&before);
    let vmi = env.wait_vmi("vm", "it is at the other node", there).await?;
    ensure!(vmi.status.iter().all(|status| status.evacuation_node_name.is_none()), "it may stay there: {vmi:?}");
    let made = env.api::<Migration>().list(&ListParams::default()).await?.items;
    ensure!(made.len() == 1, "one migration moves it: {made:?}");
    let for_node = made[0].metadata.annotations.as_ref().and_then(|notes| notes.get(annotations::EVACUATION_MIGRATION));
    ensure!(for_node.map(String::as_str) == node(&before), "it says which node is emptied: {:?}", made[0]);
    end_source(&env, &vmi).await?;
    env.delete_vm("vm").await
}

pub(super) async fn a_move_that_fits_nowhere_says_so_and_gives_up(env: Env) -> Result<()> {
    let before = running(&env, "Always").await?;
    let more = json!({
        "metadata": {"annotations": {annotations::MIGRATION_UNSCHEDULABLE_POD_TIMEOUT: "3"}},
        "spec": {"addedNodeSelector": {"no": "node"}},
    });
    migrate(&env, "nowhere", "vm", more).await?;
    let says = "nodes are available";
    wait_shown(&env, "nowhere", conditions::MIGRATION_WAITING, reasons::TARGET_POD_UNSCHEDULABLE, says).await?;
    wait_phase(&env, "nowhere", Phase::Failed).await?;
    let vmi: VirtualMachineInstance = env.api().get("vm").await?;
    ensure!(vmi.is_running() && node(&vmi) == node(&before), "the guest stays where it is: {vmi:?}");
    env.wait_event("VirtualMachineInstanceMigration", "FailedMigration").await?;
    migrate(&env, "somewhere", "vm", json!({})).await?;
    wait_phase(&env, "somewhere", Phase::Succeeded).await?;
    env.delete_vm("vm").await
}

pub(super) async fn a_move_beyond_the_quota_waits_for_room(env: Env) -> Result<()> {
    running(&env, "Always").await?;
    let quota = json!({"metadata": {"name": "room"}, "spec": {"hard": {"pods": "1"}}});
    let quota: ResourceQuota = serde_json::from_value(quota)?;
    env.api().create(&PostParams::default(), &quota).await?;
    let counted = |quota: &ResourceQuota| {
        let used = quota.status.as_ref().and_then(|status| status.used.as_ref()?.get("pods").cloned());
        used.is_some_and(|pods| pods.0 == "1")
    };
    env.wait("room", "it counts the Pod", counted).await?;
    migrate(&env, "move", "vm", json!({})).await?;
    let type_ = conditions::MIGRATION_REJECTED_BY_RESOURCE_QUOTA;
    let waiting = env.wait::<Migration>("move", "shows the quota", |migration| {
        migration.status.iter().flat_map(|status| &status.conditions).any(|shown| shown.type_ == type_)
    });
    let waiting = waiting.await?;
    ensure!(phase(&waiting) == Some(&Phase::Pending), "it waits: {waiting:?}");
    ensure!(pods(&env).await?.len() == 1, "there is no second Pod");
    env.patch::<ResourceQuota>("room", json!({"spec": {"hard": {"pods": "2"}}})).await?;
    let migration = wait_phase(&env, "move", Phase::Succeeded).await?;
    let shown = migration.status.iter().flat_map(|status| &status.conditions).any(|shown| shown.type_ == type_);
    ensure!(!shown, "the quota is no matter any more: {migration:?}");
    env.delete_vm("vm").await
}

pub(super) async fn a_move_is_given_up_on_its_way(env: Env) -> Result<()> {
    let before = running(&env, "Always").await?;
    env.patch::<VirtualMachineInstance>("vm", json!({"metadata": {"annotations": {TRAVELS: "true"}}})).await?;
    migrate(&env, "move", "vm", json!({})).await?;
    wait_phase(&env, "move", Phase::Running).await?;
    env.delete::<Migration>("move", &DeleteParams::default()).await?;
    env.wait_gone::<Migration>("move").await?;
    let state = |vmi: &VirtualMachineInstance| vmi.status.as_ref().and_then(|status| status.migration_state.clone());
    let vmi: VirtualMachineInstance = env.api().get("vm").await?;
    let state = state(&vmi).context("the instance tells how it went")?;
    ensure!(state.failed == Some(true) && state.abort_requested == Some(true), "{state:?}");
    ensure!(vmi.is_running() && node(&vmi) == node(&before), "the guest stays where it is: {vmi:?}");
    env.delete_vm("vm").await
}

pub(super) async fn a_guest_becomes_another_machines(env: Env) -> Result<()> {
    let sender = running(&env, "Always").await?;
    let waits = json!({"metadata": {"annotations": {"kubevirt.io/restore-run-strategy": "Always"}}});
    env.create_vm(vm("there", "WaitAsReceiver", waits)).await?;
    env.wait_vmi("there", "it waits for its guest", |vmi| vmi.phase().is_some_and(|p| p.as_str() == "WaitingForSync"))
        .await?;
    let id = "vm-to-there";
    let to = format!("this-cluster/{}", env.namespace);
    migrate(&env, "in", "there", json!({"spec": {"receive": {"migrationID": id}}})).await?;
    let blocked = conditions::DECENTRALIZED_MIGRATION_BLOCKED;
    let waits = env.wait::<Migration>("in", "waits for the sender", |migration| {
        migration.status.iter().flat_map(|status| &status.conditions).any(|shown| shown.type_ == blocked)
    });
    ensure!(phase(&waits.await?) == Some(&Phase::WaitingForSync), "the receiver waits");
    migrate(&env, "out", "vm", json!({"spec": {"sendTo": {"migrationID": id, "connectURL": to}}})).await?;
    wait_phase(&env, "in", Phase::Succeeded).await?;
    let got = env.wait_vmi("there", "it has the guest", VirtualMachineInstance::is_running).await?;
    ensure!(node(&got).is_some() && node(&got) != node(&sender), "it is at the other node: {got:?}");
    let note = machinery::meta::annotation(&got.metadata, annotations::CREATE_MIGRATION_TARGET);
    ensure!(note.is_none(), "it waits for no guest any more: {got:?}");
    let strategy =
        |vm: &VirtualMachine, wanted: &str| vm.run_strategy().is_ok_and(|strategy| strategy.as_str() == wanted);
    env.wait("there", "it keeps its guest", |vm| strategy(vm, "Always")).await?;
    env.wait("vm", "it starts no other guest", |vm| strategy(vm, "Halted")).await?;
    env.wait_gone::<VirtualMachineInstance>("vm").await?;
    env.delete::<VirtualMachine>("vm", &DeleteParams::default()).await?;
    env.delete_vm("there").await
}
