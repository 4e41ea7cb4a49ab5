//! Volumes that are taken over or copied, and the claims in which a guest keeps its own state.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use api::cdi::DataVolume;
use api::v1::{VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration as Migration};
use api::v1::{VirtualMachineInstanceMigrationPhase as Phase, VirtualMachineInstancePhase as InstancePhase};
use api::{annotations, labels};
use control_plane::Fate;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use super::life::running;
use super::moves::{end_source, migrate, wait_phase};
use crate::agent::TRAVELS;
use crate::env::{Env, vm};

/// The storage class of claims in these tests.
const CLASS: &str = "state";

/// A machine whose disk is made from a template.
pub(super) fn with_template(source: &Value) -> Value {
    let template = json!({"metadata": {"name": "disk"}, "spec": {
        "source": source, "storage": {"resources": {"requests": {"storage": "64Mi"}}}}});
    let volume = json!({"name": "root", "dataVolume": {"name": "disk"}});
    json!({"spec": {"dataVolumeTemplates": [template], "template": {"spec": {"volumes": [volume]}}}})
}

pub(super) async fn a_data_volume_without_owner_is_taken_over(env: Env) -> Result<()> {
    let orphan: DataVolume = serde_json::from_value(json!({
        "metadata": {"name": "disk"},
        "spec": {"source": {"blank": {}}, "storage": {"resources": {"requests": {"storage": "64Mi"}}}},
    }))?;
    env.api::<DataVolume>().create(&PostParams::default(), &orphan).await?;
    let vm = env.create_vm(vm("vm", "Halted", with_template(&json!({"blank": {}})))).await?;
    let uid = vm.metadata.uid.unwrap_or_default();
    let owned = |dv: &DataVolume| machinery::meta::is_controlled_by(&dv.metadata, &uid);
    env.wait("disk", "it is the machine's", owned).await?;
    env.delete_vm("vm").await
}

pub(super) async fn a_volume_of_another_namespace_is_copied_with_permission_only(env: Env) -> Result<()> {
    let elsewhere = json!({"pvc": {"namespace": "default", "name": "golden"}});
    env.create_vm(vm("vm", "Halted", with_template(&elsewhere))).await?;
    env.wait_event("VirtualMachine", api::events::UNAUTHORIZED_DATA_VOLUME_CREATE).await?;
    ensure!(env.api::<DataVolume>().get_opt("disk").await?.is_none(), "nothing is copied");

    let name = &env.namespace;
    let role = json!({"metadata": {"name": name}, "rules": [
        {"apiGroups": [api::cdi::GROUP], "resources": ["datavolumes/source"], "verbs": ["create"]}]});
    let binding = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": name}]});
    let roles: Api<Role> = Api::namespaced(env.admin(), "default");
    roles.create(&PostParams::default(), &serde_json::from_value(role)?).await?;
    let bindings: Api<RoleBinding> = Api::namespaced(env.admin(), "default");
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    env.patch::<VirtualMachine>("vm", json!({"metadata": {"annotations": {"look": "again"}}})).await?;
    env.wait::<DataVolume>("disk", "it is copied", |_| true).await?;
    env.delete_vm("vm").await
}

pub(super) async fn a_plugged_volume_is_held_by_a_pod_of_its_own(env: Env) -> Result<()> {
    let launcher = running(&env, "Always").await?;
    make_class(&env).await?;
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
                 "resources": {"requests": {"storage": "1Gi"}}},
    }))?;
    env.api().create(&PostParams::default(), &claim).await?;
    bind(&env, "data").await?;
    let source = json!({"persistentVolumeClaim": {"claimName": "data", "hotpluggable": true}});
    let disk = json!({"name": "data", "disk": {"bus": "scsi"}});
    let add = json!({"name": "data", "disk": disk, "volumeSource": source});
    env.request_volumes("vm", json!([{ "addVolumeOptions": add }])).await?;
    let attached = |vmi: &VirtualMachineInstance| {
        let plugged = vmi.status.iter().flat_map(|status| &status.volume_status);
        plugged.filter_map(|volume| volume.hotplug_volume.as_ref()).any(|held| held.attach_pod_name.is_some())
    };
    let vmi = env.wait_vmi("vm", "a Pod holds the volume", attached).await?;
    ensure!(vmi.metadata.uid == launcher.metadata.uid, "the guest runs on: {vmi:?}");
    env.wait_count::<Pod>(2).await?;

    env.request_volumes("vm", json!([{"removeVolumeOptions": {"name": "data"}}])).await?;
    env.wait_count::<Pod>(1).await?;
    env.delete::<PersistentVolumeClaim>("data", &DeleteParams::default()).await?;
    env.delete_vm("vm").await?;
    remove_volumes(&env, &["data"]).await
}

pub(super) async fn a_guest_takes_its_state_along(env: Env) -> Result<()> {
    let before = with_state(&env, "Always").await?;
    migrate(&env, "move", "vm", json!({})).await?;
    let target = wait_claim(&env, &format!("{}=move", labels::MIGRATION_NAME)).await?;
    bind(&env, &target).await?;
    wait_phase(&env, "move", Phase::Succeeded).await?;
    let vmi: VirtualMachineInstance = env.api().get("vm").await?;
    end_source(&env, &vmi).await?;
    wait_deleted(&env, &before).await?;
    let own = wait_claim(&env, &format!("{}=vm", labels::PERSISTENT_STATE_FOR)).await?;
    ensure!(own == target, "the guest's state is where the guest is: {own}");
    env.delete_vm("vm").await?;
    remove_volumes(&env, &[&before, &target]).await
}

/// Both launchers vanish on the way. Which of the two claims has the guest's state is written in one of them.
pub(super) async fn a_job_looks_on_which_side_a_guest_was_last(env: Env) -> Result<()> {
    let before = with_state(&env, "Manual").await?;
    // A Job of an earlier migration of this name does not count.
    let foreign = json!({"metadata": {"name": "recover-move"}, "spec": {"suspend": true, "template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "x", "image": "x"}]}}}});
    env.api::<Job>().create(&PostParams::default(), &serde_json::from_value(foreign)?).await?;
    env.patch::<VirtualMachineInstance>("vm", json!({"metadata": {"annotations": {TRAVELS: "true"}}})).await?;
    migrate(&env, "move", "vm", json!({})).await?;
    let target = wait_claim(&env, &format!("{}=move", labels::MIGRATION_NAME)).await?;
    bind(&env, &target).await?;
    wait_phase(&env, "move", Phase::Running).await?;

    // What the Job says when the source has not let the guest go.
    env.decide(Fate::End(42));
    let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    for pod in env.api::<Pod>().list(&ListParams::default()).await?.items {
        env.delete::<Pod>(&pod.metadata.name.unwrap_or_default(), &at_once).await?;
    }
    env.wait_vmi("vm", "it is lost", |vmi| vmi.phase() == Some(&InstancePhase::Failed)).await?;
    wait_phase(&env, "move", Phase::Failed).await?;
    env.wait_gone::<PersistentVolumeClaim>(&target).await?;
    ensure!(env.api::<PersistentVolumeClaim>().get_opt(&before).await?.is_some(), "the guest's state is kept");
    env.decide(Fate::Run);
    env.delete::<VirtualMachine>("vm", &DeleteParams::default()).await?;
    env.wait_none::<Migration>().await?;
    env.nothing_is_left().await?;
    remove_volumes(&env, &[&before, &target]).await
}

/// Waits until a claim is deleted. Kubernetes keeps it as long as there is a Pod that names it, also one that has ended.
async fn wait_deleted(env: &Env, claim: &str) -> Result<()> {
    let claims = env.api::<PersistentVolumeClaim>();
    for _ in 0..600 {
        match claims.get_opt(claim).await? {
            Some(found) if found.metadata.deletion_timestamp.is_none() => {}
            _ => return Ok(()),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("PersistentVolumeClaim {claim} is not deleted within a minute")
}

/// The storage class that these tests share.
async fn make_class(env: &Env) -> Result<()> {
    let class: StorageClass = serde_json::from_value(json!({
        "metadata": {"name": CLASS, "annotations": {annotations::DEFAULT_VIRT_STORAGE_CLASS: "true"}},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "Immediate",
    }))?;
    match Api::<StorageClass>::all(env.admin()).create(&PostParams::default(), &class).await {
        Err(kube::Error::Api(answer)) if answer.code == 409 => {}
        made => drop(made?),
    }
    Ok(())
}

/// A machine that runs and keeps state; the name of its claim.
async fn with_state(env: &Env, strategy: &str) -> Result<String> {
    make_class(env).await?;
    let tpm = json!({"spec": {"template": {"spec": {"domain": {"devices": {"tpm": {"persistent": true}}}}}}});
    env.create_vm(vm("vm", strategy, tpm)).await?;
    if strategy == "Manual" {
        env.request("vm", json!([{"action": "Start"}])).await?;
    }
    let claim = wait_claim(env, &format!("{}=vm", labels::PERSISTENT_STATE_FOR)).await?;
    bind(env, &claim).await?;
    env.wait_ready("vm").await?;
    Ok(claim)
}

/// Waits for a claim with this label.
async fn wait_claim(env: &Env, selector: &str) -> Result<String> {
    for _ in 0..1200 {
        let found = env.api::<PersistentVolumeClaim>().list(&ListParams::default().labels(selector)).await?.items;
        if let Some(claim) = found.into_iter().find(|claim| claim.metadata.deletion_timestamp.is_none()) {
            return claim.metadata.name.context("a claim has a name");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("no claim with {selector}")
}

/// Gives a claim a volume of its own.
async fn bind(env: &Env, claim: &str) -> Result<()> {
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": format!("{claim}-of-{}", env.namespace)},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
                 "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/nowhere"},
                 "claimRef": {"namespace": env.namespace, "name": claim}},
    }))?;
    Api::<PersistentVolume>::all(env.admin()).create(&PostParams::default(), &volume).await?;
    let is_bound = |claim: &PersistentVolumeClaim| claim.status.iter().any(|s| s.phase.as_deref() == Some("Bound"));
    env.wait(claim, "it is bound", is_bound).await.map(drop)
}

async fn remove_volumes(env: &Env, claims: &[&str]) -> Result<()> {
    let volumes: Api<PersistentVolume> = Api::all(env.admin());
    for claim in claims {
        volumes.delete(&format!("{claim}-of-{}", env.namespace), &DeleteParams::default()).await?;
    }
    Ok(())
}
