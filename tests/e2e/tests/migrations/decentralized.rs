//! Guests that leave for another instance, in another namespace.

use anyhow::{Context as _, Result, ensure};
use api::v1::{VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration as Migration};
use drive::{Access, Console, LIMIT, poll};
use e2e::manifest::Manifest;
use e2e::processes::find;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use super::stage::count;
use super::{MOVE_LIMIT, cluster, command, movable, other, phase, slow_down, speed_up};
use crate::trial;

/// Where the receiver is.
const THERE: &str = "team-b";

pub(super) fn trials() -> Vec<Trial> {
    vec![trial("migration_to_another_namespace_goes_on_counting_there_after_an_attempt_that_was_given_up", sends)]
}

/// The same guest in both namespaces: what differs is who has it.
fn manifest(name: &str, strategy: &str) -> Manifest {
    Manifest::vm(name, strategy).memory("128Mi").user_data("#cloud-config\n").empty_disk("16Mi")
}

async fn sends() -> Result<()> {
    let cluster = cluster().await?;
    let mut here = movable(&cluster, &manifest("here", "Always")).await?;
    let from = here.node().await?;
    receiver(&cluster).await?;

    // Deleting one side while the guest is migrating gives both up, and the guest stays.
    slow_down(&cluster, "here").await?;
    let before = count(&cluster, &mut here).await?;
    receive(&cluster, "in-1", "first").await?;
    let told = blocked(&cluster, THERE, "in-1").await?;
    ensure!(told.contains("spec.sendTo.migrationID \"first\""), "the receiver waits for something else: {told}");
    let explained = command(&cluster, &["virtctl", "explain", "migration", "in-1", "--namespace", THERE]).await?;
    ensure!(explained.contains("found no migration with spec.sendTo.migrationID"), "{explained}");
    send(&cluster, "out-1", "first").await?;
    wait(&cluster, "default", "out-1", "Running").await?;
    wait(&cluster, THERE, "in-1", "Running").await?;
    qemus(1, 1).await?;
    migrations(&cluster, THERE).await?.delete("in-1", &DeleteParams::default()).await.context("cannot delete in-1")?;
    gone(&cluster, THERE, "in-1").await?;
    gone(&cluster, "default", "out-1").await?;
    wait_for_instance(&cluster, "WaitingForSync").await?;
    here.wait_for_phase("Running", LIMIT).await?;
    ensure!(here.node().await? == from, "the guest was to stay on {from}");
    qemus(1, 0).await?;
    let after = count(&cluster, &mut here).await?;
    ensure!(after >= before, "here counts {after} after {before}: it was started again");
    speed_up(&cluster, "here").await?;

    // The second attempt goes through, with the same receiver.
    receive(&cluster, "in-2", "second").await?;
    send(&cluster, "out-2", "second").await?;
    wait(&cluster, THERE, "in-2", "Succeeded").await?;
    gone(&cluster, "default", "out-2").await?; // with its instance, which a halted VM does not have
    let there = wait_for_instance(&cluster, "Running").await?;
    let node = there.status.and_then(|status| status.node_name).unwrap_or_default();
    ensure!(node == other(&from), "the guest came to {node}");
    let console = Console::attach(&cluster, THERE, "there", None)?;
    let now = ticks(&console).await?;
    ensure!(now >= after, "there counts {now} after {after}: it was started anew");
    qemus(0, 1).await?;
    wait_for_strategy(&cluster, "default", "here", "Halted").await?;
    wait_for_strategy(&cluster, THERE, "there", "Always").await?;
    here.wait_for_status("Stopped", LIMIT).await?;
    drop(console);

    vms(&cluster, THERE).await?.delete("there", &DeleteParams::default()).await.context("cannot delete there")?;
    here.delete().await?;
    poll("the end of both", LIMIT, || async {
        match instances(&cluster).await.map_err(|err| err.to_string())?.get_opt("there").await {
            Ok(None) => Ok(()),
            other => Err(format!("{:?}", other.map(|_| "it is there"))),
        }
    })
    .await?;
    qemus(0, 0).await
}

async fn vms(cluster: &Access, namespace: &str) -> Result<Api<VirtualMachine>> {
    Ok(Api::namespaced(cluster.client().await?, namespace))
}

async fn instances(cluster: &Access) -> Result<Api<VirtualMachineInstance>> {
    Ok(Api::namespaced(cluster.client().await?, THERE))
}

async fn migrations(cluster: &Access, namespace: &str) -> Result<Api<Migration>> {
    Ok(Api::namespaced(cluster.client().await?, namespace))
}

/// A VM that waits for a guest, in a namespace of its own.
async fn receiver(cluster: &Access) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(cluster.client().await?);
    if namespaces.get_opt(THERE).await?.is_none() {
        let namespace = serde_json::from_value(json!({"metadata": {"name": THERE}}))?;
        namespaces.create(&PostParams::default(), &namespace).await.context("cannot create a namespace")?;
    }
    let mut vm = manifest("there", "WaitAsReceiver").json().clone();
    vm["metadata"]["annotations"] = json!({"kubevirt.io/restore-run-strategy": "Always"});
    let vm = serde_json::from_value(vm)?;
    vms(cluster, THERE).await?.create(&PostParams::default(), &vm).await.context("cannot create the receiver")?;
    wait_for_instance(cluster, "WaitingForSync").await.map(drop)
}

async fn receive(cluster: &Access, name: &str, id: &str) -> Result<()> {
    create(cluster, THERE, name, json!({"vmiName": "there", "receive": {"migrationID": id}})).await
}

async fn send(cluster: &Access, name: &str, id: &str) -> Result<()> {
    let to = json!({"migrationID": id, "connectURL": format!("this-cluster/{THERE}")});
    create(cluster, "default", name, json!({"vmiName": "here", "sendTo": to})).await
}

async fn create(cluster: &Access, namespace: &str, name: &str, spec: Value) -> Result<()> {
    let migration = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
    let api = migrations(cluster, namespace).await?;
    api.create(&PostParams::default(), &migration).await.with_context(|| format!("cannot create {name}"))?;
    Ok(())
}

async fn wait(cluster: &Access, namespace: &str, name: &str, wanted: &str) -> Result<()> {
    let api = migrations(cluster, namespace).await?;
    poll(&format!("{name} to be {wanted}"), MOVE_LIMIT, || async {
        let found = api.get(name).await.map_err(|err| err.to_string())?;
        let told = || serde_json::to_string(&found.status).unwrap_or_default();
        if phase(&found) == wanted { Ok(()) } else { Err(format!("it is {}: {}", phase(&found), told())) }
    })
    .await
}

async fn gone(cluster: &Access, namespace: &str, name: &str) -> Result<()> {
    let api = migrations(cluster, namespace).await?;
    poll(&format!("the end of {name}"), MOVE_LIMIT, || async {
        match api.get_opt(name).await.map_err(|err| err.to_string())? {
            None => Ok(()),
            Some(found) => Err(serde_json::to_string(&found).unwrap_or_default()),
        }
    })
    .await
}

/// What keeps a migration from finding its other side.
async fn blocked(cluster: &Access, namespace: &str, name: &str) -> Result<String> {
    let api = migrations(cluster, namespace).await?;
    poll(&format!("what {name} waits for"), LIMIT, || async {
        let found = api.get(name).await.map_err(|err| err.to_string())?;
        let all = found.status.map(|status| status.conditions).unwrap_or_default();
        let condition = all.iter().find(|one| one.type_ == "decentralizedMigrationBlocked");
        condition.map(|one| one.message().to_owned()).ok_or_else(|| format!("{all:?}"))
    })
    .await
}

async fn wait_for_instance(cluster: &Access, wanted: &str) -> Result<VirtualMachineInstance> {
    let api = instances(cluster).await?;
    poll(&format!("the receiver to be {wanted}"), LIMIT, || async {
        let found = api.get("there").await.map_err(|err| err.to_string())?;
        let phase = found.phase().map(ToString::to_string).unwrap_or_default();
        if phase == wanted { Ok(found) } else { Err(format!("it is {phase}")) }
    })
    .await
}

async fn wait_for_strategy(cluster: &Access, namespace: &str, name: &str, wanted: &str) -> Result<()> {
    let api = vms(cluster, namespace).await?;
    poll(&format!("{name} to be {wanted}"), LIMIT, || async {
        let found = api.get(name).await.map_err(|err| err.to_string())?.spec.run_strategy;
        let found = found.map(|strategy| strategy.to_string()).unwrap_or_default();
        if found == wanted { Ok(()) } else { Err(format!("it is {found}")) }
    })
    .await
}

/// How many QEMUs run here and there.
async fn qemus(here: usize, there: usize) -> Result<()> {
    poll("the right QEMUs", LIMIT, || async {
        let of = |name: &str| find("qemu-system-x86", &format!("guest={name},")).len();
        let found = (of("default_here"), of(&format!("{THERE}_there")));
        if found == (here, there) { Ok(()) } else { Err(format!("{found:?} run")) }
    })
    .await
}

/// The newest number that the guest shows.
async fn ticks(console: &Console) -> Result<u64> {
    let end = console.wait_for("tick ", 0, LIMIT).await?;
    console.wait_for("\n", end, LIMIT).await?;
    let text = console.text();
    let number = text.get(end..).and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()).unwrap_or_default();
    number.parse().with_context(|| format!("no number after `tick `: {text}"))
}
