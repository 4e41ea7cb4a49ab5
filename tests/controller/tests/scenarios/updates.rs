//! Guests on launchers of a version before.

use std::time::Duration;

use anyhow::{Result, ensure};
use api::config::DEFAULT_INSTALL_NAMESPACE;
use api::v1::{KubeVirt, MigrationPriority, VirtualMachineInstance, VirtualMachineInstanceMigration as Migration};
use api::{annotations, events};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::env::{Env, vm};

/// Longer than the updater waits before it looks.
const LOOKED: Duration = Duration::from_secs(12);

pub(super) async fn a_guest_on_an_outdated_launcher_is_moved_or_evicted(env: Env) -> Result<()> {
    // No other node will do, so a migration waits for as long as the test likes.
    let here = json!({"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "node-1"}}}}});
    env.create_vm(vm("vm", "Always", here)).await?;
    let vmi = env.wait_vmi("vm", "it runs", VirtualMachineInstance::is_running).await?;
    make_outdated(&env, &vmi).await?;

    // The installation is being updated itself.
    let installation = Env { cluster: env.cluster.clone(), namespace: DEFAULT_INSTALL_NAMESPACE.to_owned() };
    install(&installation).await?;
    choose(&installation, json!(["LiveMigrate", "Evict"])).await?;
    say(&installation, json!({"phase": "Deployed", "targetDeploymentID": "2", "observedDeploymentID": "1"})).await?;
    tokio::time::sleep(LOOKED).await;
    ensure!(migrations(&env).await?.is_empty(), "nothing happens while it is not what it shall be");

    say(&installation, json!({"observedDeploymentID": "2"})).await?;
    let migration = wait_migration(&env).await?;
    let marked = migration.metadata.annotations.as_ref();
    ensure!(marked.is_some_and(|all| all.contains_key(annotations::WORKLOAD_UPDATE_MIGRATION)), "{migration:?}");
    ensure!(migration.spec.priority == Some(MigrationPriority::SystemCritical), "{migration:?}");
    env.wait_event("VirtualMachineInstance", events::SUCCESSFUL_CREATE).await?;
    let counted = |kubevirt: &KubeVirt| {
        kubevirt.status.as_ref().and_then(|status| status.outdated_virtual_machine_instance_workloads) == Some(1)
    };
    installation.wait("kubevirt", "one guest is counted", counted).await?;

    // It cannot get anywhere. It is made to start anew instead.
    choose(&installation, json!(["Evict"])).await?;
    for migration in migrations(&env).await? {
        env.delete::<Migration>(&migration.metadata.name.unwrap_or_default(), &DeleteParams::default()).await?;
    }
    env.wait_none::<Migration>().await?;
    let before = vmi.metadata.uid.clone();
    let anew = |vmi: &VirtualMachineInstance| vmi.metadata.uid != before && vmi.is_running();
    env.wait_vmi("vm", "it runs anew", anew).await?;
    env.wait_event("VirtualMachineInstance", events::SUCCESSFUL_EVICT).await?;
    installation.delete::<KubeVirt>("kubevirt", &DeleteParams::default()).await?;
    env.delete_vm("vm").await
}

/// Gives its Pod an image that is not the controller's.
async fn make_outdated(env: &Env, vmi: &VirtualMachineInstance) -> Result<()> {
    let pod = machinery::names::launcher_pod_name("vm", vmi.metadata.uid.as_deref().unwrap_or_default());
    let old = Patch::Strategic(json!({"spec": {"containers": [{"name": "compute", "image": "launcher:0"}]}}));
    env.api::<Pod>().patch(&pod, &PatchParams::default(), &old).await?;
    let noticed = |vmi: &VirtualMachineInstance| {
        machinery::meta::label(&vmi.metadata, api::labels::OUTDATED_LAUNCHER_IMAGE).is_some()
    };
    env.wait_vmi("vm", "its launcher is outdated", noticed).await.map(drop)
}

async fn install(env: &Env) -> Result<()> {
    let kubevirt: KubeVirt = serde_json::from_value(json!({"metadata": {"name": "kubevirt"}, "spec": {}}))?;
    env.api::<KubeVirt>().create(&PostParams::default(), &kubevirt).await?;
    Ok(())
}

async fn choose(env: &Env, methods: Value) -> Result<()> {
    let strategy = json!({"workloadUpdateMethods": methods, "batchEvictionInterval": "1s"});
    env.patch::<KubeVirt>("kubevirt", json!({"spec": {"workloadUpdateStrategy": strategy}})).await.map(drop)
}

async fn say(env: &Env, status: Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "status": status }));
    env.api::<KubeVirt>().patch_status("kubevirt", &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn migrations(env: &Env) -> Result<Vec<Migration>> {
    let api: Api<Migration> = env.api();
    Ok(api.list(&ListParams::default()).await?.items)
}

async fn wait_migration(env: &Env) -> Result<Migration> {
    for _ in 0..600 {
        if let Some(migration) = migrations(env).await?.into_iter().next() {
            return Ok(migration);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("no migration is made")
}
