//! Guests that move between two nodes while somebody reaches them.

mod decentralized;
mod drains;
mod faults;
mod moves;
mod postcopy;
mod stage;
mod transfers;
mod waits;

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use api::migrations::MigrationPolicy;
use api::v1::{KubeVirt, VirtualMachineInstanceMigration, VirtualMachineInstanceMigrationState};
use drive::{Access, Guest, LIMIT, poll};
use e2e::cluster::Cluster;
use e2e::manifest::Manifest;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tokio::sync::MappedMutexGuard;

/// A migration under emulation, with both cores taken.
const MOVE_LIMIT: Duration = Duration::from_secs(180);

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = moves::trials();
    trials.extend(transfers::trials());
    trials.extend(postcopy::trials());
    trials.extend(waits::trials());
    trials.extend(faults::post_copy_trials());
    trials
}

/// Those in which guests leave a node or a machine, not one guest that all scenarios of `trials` move.
pub(crate) fn departures() -> Vec<Trial> {
    let mut trials = drains::trials();
    trials.extend(decentralized::trials());
    trials
}

/// Those in which somebody is killed. Post-copy is not among them: the setting of the machine that it needs is changed by one
/// scenario at a time.
pub(crate) fn struck() -> Vec<Trial> {
    faults::trials()
}

/// The cluster of these scenarios, as the one before has found it.
async fn cluster() -> Result<MappedMutexGuard<'static, Cluster>> {
    let cluster = crate::cluster("mig").await?;
    clean(&cluster).await?;
    Ok(cluster)
}

/// What a scenario that failed may have left to the next one.
async fn clean(cluster: &Access) -> Result<()> {
    let client = cluster.client().await?;
    for node in ["n1", "n2"] {
        set_cordon(cluster, node, false).await?;
    }
    let policies: Api<MigrationPolicy> = Api::all(client.clone());
    policies.delete_collection(&DeleteParams::default(), &ListParams::default()).await.context("deleting policies")?;
    let quotas: Api<k8s_openapi::api::core::v1::ResourceQuota> = Api::default_namespaced(client.clone());
    quotas.delete_collection(&DeleteParams::default(), &ListParams::default()).await.context("deleting quotas")?;
    configure(cluster, json!(null)).await?;
    stage::clear(cluster).await
}

/// Lets go of what the scenarios share.
pub(crate) fn take_away() {
    crate::runtime().block_on(stage::take_away());
}

/// Starts a guest and waits until its node says that it can be moved.
pub(crate) async fn movable(cluster: &Access, manifest: &Manifest) -> Result<Guest> {
    let guest = Guest::spawn(cluster, manifest.json()).await?;
    guest.wait_to_boot().await?;
    guest
        .wait_for_instance("to be movable", LIMIT, |instance| {
            let condition = instance.and_then(|instance| instance.condition("LiveMigratable"));
            match condition {
                Some(condition) if condition.is_true() => Ok(()),
                Some(condition) => Err(format!("{}: {}", condition.reason(), condition.message())),
                None => Err("virt-handler has not reported LiveMigratable yet".to_owned()),
            }
        })
        .await?;
    Ok(guest)
}

pub(crate) fn other(node: &str) -> &'static str {
    if node == "n1" { "n2" } else { "n1" }
}

/// Runs a command of ours and returns what it printed, errors last.
async fn command(cluster: &Access, args: &[&str]) -> Result<String> {
    let mut command = cluster.command(args);
    let output = tokio::task::spawn_blocking(move || command.output()).await?.context("cannot run ferrovirt")?;
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "ferrovirt {args:?} failed: {text}");
    Ok(text)
}

/// Moves a guest and waits until it has moved.
pub(crate) async fn migrate(cluster: &Access, guest: &Guest) -> Result<()> {
    let from = guest.node().await?;
    let told = command(cluster, &["virtctl", "migrate", &guest.name, "--wait"]).await?;
    ensure!(told.contains(&format!("the guest moved from {from} to {}", other(&from))), "it printed: {told}");
    ensure!(guest.node().await? == other(&from), "the instance is still on {from}");
    alone(guest).await
}

/// One QEMU is left of the guest.
pub(crate) async fn alone(guest: &Guest) -> Result<()> {
    poll("one QEMU", LIMIT, || async {
        match e2e::processes::qemus_of(&guest.name).len() {
            1 => Ok(()),
            count => Err(format!("{count} run")),
        }
    })
    .await
}

/// Asks for a migration, with a name of its own to follow it by.
pub(crate) async fn begin(cluster: &Access, guest: &Guest, name: &str, spec: Value) -> Result<()> {
    let mut spec = spec;
    spec["vmiName"] = json!(guest.name);
    let migration = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
    migrations(cluster).await?.create(&PostParams::default(), &migration).await.context("cannot create a migration")?;
    Ok(())
}

pub(crate) async fn migrations(cluster: &Access) -> Result<Api<VirtualMachineInstanceMigration>> {
    Ok(Api::default_namespaced(cluster.client().await?))
}

/// Waits for a phase of a migration; one that ends in another way fails at once.
pub(crate) async fn wait_for(cluster: &Access, name: &str, wanted: &[&str]) -> Result<VirtualMachineInstanceMigration> {
    let api = migrations(cluster).await?;
    let started = std::time::Instant::now();
    loop {
        let migration = api.get(name).await.with_context(|| format!("migration {name}"))?;
        let phase = phase(&migration);
        if wanted.contains(&phase.as_str()) {
            return Ok(migration);
        }
        let over = ["Succeeded", "Failed"].contains(&phase.as_str());
        if over || started.elapsed() > MOVE_LIMIT {
            bail!("migration {name} is {phase} and not {wanted:?}: {}", serde_json::to_string(&migration.status)?);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) fn phase(migration: &VirtualMachineInstanceMigration) -> String {
    let phase = migration.status.as_ref().and_then(|status| status.phase.as_ref());
    phase.map(ToString::to_string).unwrap_or_default()
}

/// Waits for a condition of a migration that holds, and returns its reason and message.
async fn wait_for_condition(cluster: &Access, name: &str, types: &[&str], reason: &str) -> Result<String> {
    let api = migrations(cluster).await?;
    poll(&format!("migration {name}: {reason}"), LIMIT, || async {
        let migration = api.get(name).await.map_err(|err| err.to_string())?;
        let conditions = migration.status.clone().map(|status| status.conditions).unwrap_or_default();
        let found = conditions.iter().find(|one| {
            types.contains(&one.type_.as_str()) && one.is_true() && (reason.is_empty() || one.reason() == reason)
        });
        found.map(|one| one.message().to_owned()).ok_or_else(|| format!("{} with {conditions:?}", phase(&migration)))
    })
    .await
}

/// What the nodes report about the latest migration of a guest.
async fn state(guest: &Guest) -> Result<VirtualMachineInstanceMigrationState> {
    let instance = guest.instance().await?.context("the instance is gone")?;
    instance.status.and_then(|status| status.migration_state).context("the instance never moved")
}

/// Settings of migrations in the KubeVirt object.
async fn configure(cluster: &Access, migrations: Value) -> Result<()> {
    let kubevirts: Api<KubeVirt> = Api::namespaced(cluster.client().await?, "kubevirt");
    let patch = Patch::Merge(json!({"spec": {"configuration": {"migrations": migrations}}}));
    kubevirts.patch("kubevirt", &PatchParams::default(), &patch).await.context("cannot configure migrations")?;
    Ok(())
}

/// A policy for guests with the label `app` of this value.
async fn policy(cluster: &Access, name: &str, app: &str, settings: Value) -> Result<()> {
    let mut spec = settings;
    spec["selectors"] = json!({"virtualMachineInstanceSelector": {"app": app}});
    let policies: Api<MigrationPolicy> = Api::all(cluster.client().await?);
    let policy = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
    policies.create(&PostParams::default(), &policy).await.context("cannot create a policy")?;
    Ok(())
}

/// Lets the migrations of a guest last until somebody ends them.
async fn slow_down(cluster: &Access, name: &str) -> Result<()> {
    policy(cluster, &format!("slow-{name}"), name, json!({"bandwidthPerMigration": "2Mi"})).await
}

async fn speed_up(cluster: &Access, name: &str) -> Result<()> {
    let policies: Api<MigrationPolicy> = Api::all(cluster.client().await?);
    policies.delete(&format!("slow-{name}"), &DeleteParams::default()).await.context("cannot delete a policy")?;
    Ok(())
}

pub(crate) async fn set_cordon(cluster: &Access, node: &str, cordoned: bool) -> Result<()> {
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(cluster.client().await?);
    let value = if cordoned { json!(true) } else { json!(null) };
    let patch = Patch::Merge(json!({"spec": {"unschedulable": value}}));
    nodes.patch(node, &PatchParams::default(), &patch).await.with_context(|| format!("node {node}"))?;
    Ok(())
}
