//! Transfers that are limited, do not keep up with the guest, stand still, or are given up.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use drive::{Access, Guest, LIMIT, poll};
use e2e::cluster::Cluster;
use e2e::kubernetes::Kubernetes;
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::{Api, DeleteParams, WatchEvent, WatchParams};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use virtctl::migration::Progress;

use super::postcopy::UserFaults;
use super::stage::{count, restless, went_on};
use super::{
    MOVE_LIMIT, alone, begin, cluster, command, configure, migrate, migrations, other, phase, policy, slow_down,
    speed_up, state, wait_for,
};
use crate::guests::the_only_qemu;
use crate::trial;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("migration_keeps_to_its_bandwidth_and_shows_its_progress", bandwidth),
        trial("migration_that_takes_too_long_fails_and_the_guest_stays", too_long),
        trial("migration_slows_a_guest_down_that_it_cannot_keep_up_with", auto_converge),
        trial("migration_that_may_disturb_its_guest_stops_it_for_the_rest", stopped_for_the_rest),
        trial("migration_with_post_copy_lets_the_guest_go_ahead", post_copy),
        trial("migration_takes_the_network_that_is_for_migrations", own_network),
        trial("migration_without_progress_fails_and_the_guest_stays", no_progress),
        trial("migration_given_up_in_any_phase_leaves_the_guest_where_it_was", given_up),
    ]
}

/// MiB per second: less than the guest changes.
const TOO_SLOW: &str = "12Mi";

/// The figures that the guest's node tells now.
async fn progress(cluster: &Access, guest: &Guest) -> Result<Progress> {
    let path = format!(
        "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/{}/migrationprogress",
        guest.name
    );
    let request = http::Request::get(path).body(vec![]).context("a request")?;
    cluster.client().await?.request(request).await.context("cannot read the progress")
}

async fn bandwidth() -> Result<()> {
    const LIMIT_MIB: u64 = 24;
    let cluster = cluster().await?;
    let mut guest = restless(&cluster).await?;
    let before = count(&cluster, &mut guest).await?;
    policy(&cluster, "narrow", &guest.name, json!({"bandwidthPerMigration": format!("{LIMIT_MIB}Mi")})).await?;
    let (from, started) = (guest.node().await?, Instant::now());
    let mut migrate = cluster.command(&["virtctl", "migrate", &guest.name, "--wait"]);
    let told = tokio::task::spawn_blocking(move || migrate.output());
    let mut samples: Vec<(Duration, u64)> = vec![];
    while !told.is_finished() {
        // Between two migrations there is nothing to tell.
        if let Ok(seen) = progress(&cluster, &guest).await
            && seen.data_remaining > 0
            && samples.last().is_none_or(|(_, sent)| seen.data_processed > *sent)
        {
            samples.push((started.elapsed(), seen.data_processed));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let output = told.await?.context("cannot run virtctl")?;
    let (line, lines) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "it failed: {line}{lines}");
    ensure!(line.contains(&format!("the guest moved from {from} to {}", other(&from))), "it printed: {line}");
    let words = ["Running: ", " MiB left of ", "sends ", "guest dirties ", "expected downtime ", "ETA "];
    let shown = lines.lines().find(|line| words.iter().all(|words| line.contains(words)));
    let shown = shown.with_context(|| format!("no line tells everything: {lines}"))?;
    println!("{shown}");
    // QEMU sends the last of it, while the guest stands still, as fast as it can.
    samples.pop();
    let [(first, already), .., (last, sent)] = samples.as_slice() else { bail!("seen too little: {samples:?}") };
    let (seconds, mib) = ((*last - *first).as_secs_f64(), (sent - already) as f64 / f64::from(1 << 20));
    println!("{mib:.0} MiB in {seconds:.1} s");
    ensure!(seconds > 1.0, "seen too little: {samples:?}");
    ensure!(mib / seconds < LIMIT_MIB as f64 * 1.25, "{mib:.0} MiB were sent in {seconds:.1} s: {samples:?}");
    went_on(&cluster, &mut guest, before).await
}

async fn too_long() -> Result<()> {
    let cluster = cluster().await?;
    let mut guest = restless(&cluster).await?;
    let (qemu, before) = (the_only_qemu(&guest.name)?, count(&cluster, &mut guest).await?);
    let limits = json!({"bandwidthPerMigration": TOO_SLOW, "completionTimeoutPerGiB": 5});
    policy(&cluster, "hurried", &guest.name, limits).await?;
    let told = command(&cluster, &["virtctl", "migrate", &guest.name, "--wait"]).await;
    let told = told.err().context("it succeeded")?.to_string();
    ensure!(told.contains("migration did not complete within 5 s"), "it said: {told}");
    let seen = state(&guest).await?;
    ensure!(seen.failed == Some(true) && seen.completed == Some(true), "{seen:?}");
    ensure!(seen.failure_reason.as_deref().is_some_and(|why| why.contains("within 5 s")), "{seen:?}");
    stayed(&cluster, &mut guest, &qemu, before).await
}

/// The guest goes on in the QEMU that it was in.
async fn stayed(cluster: &Access, guest: &mut Guest, qemu: &hostfs::process::ProcessId, before: u64) -> Result<()> {
    alone(guest).await?;
    ensure!(the_only_qemu(&guest.name)? == *qemu, "the guest is in another QEMU");
    went_on(cluster, guest, before).await
}

async fn auto_converge() -> Result<()> {
    let cluster = cluster().await?;
    let mut guest = restless(&cluster).await?;
    let before = count(&cluster, &mut guest).await?;
    let patient = json!({"bandwidthPerMigration": TOO_SLOW, "allowAutoConverge": true});
    policy(&cluster, "patient", &guest.name, patient).await?;
    begin(&cluster, &guest, "converges", json!({})).await?;
    let throttled = poll("the guest to be slowed down", MOVE_LIMIT, || async {
        match progress(&cluster, &guest).await.map_err(|err| format!("{err:#}"))? {
            seen if seen.throttle_percent > 0 => Ok(seen),
            seen => Err(seen.to_string()),
        }
    })
    .await?;
    println!("{throttled}");
    ensure!(throttled.to_string().contains("slowed down by"), "the line does not tell: {throttled}");
    // Whether it succeeds after that is a matter of the machine's speed; the guest is the same either way.
    give_up(&cluster, "converges").await?;
    alone(&guest).await?;
    went_on(&cluster, &mut guest, before).await
}

async fn stopped_for_the_rest() -> Result<()> {
    // The first pass takes longer than the limit, and the rest less than as long again.
    let disturbing =
        json!({"bandwidthPerMigration": "20Mi", "completionTimeoutPerGiB": 8, "allowWorkloadDisruption": true});
    moved_with(disturbing, "Paused").await
}

async fn post_copy() -> Result<()> {
    let _allowed = UserFaults::allow()?;
    let daring = json!({"bandwidthPerMigration": TOO_SLOW, "completionTimeoutPerGiB": 3, "allowPostCopy": true});
    moved_with(daring, "PostCopy").await
}

/// The guest moves although it does not converge, in this way, and runs at the target.
async fn moved_with(settings: Value, mode: &str) -> Result<()> {
    let cluster = cluster().await?;
    let mut guest = restless(&cluster).await?;
    let before = count(&cluster, &mut guest).await?;
    policy(&cluster, "disturbing", &guest.name, settings).await?;
    migrate(&cluster, &guest).await?;
    let seen = state(&guest).await?;
    ensure!(seen.mode.as_ref().map(ToString::to_string).as_deref() == Some(mode), "the mode is {:?}", seen.mode);
    guest
        .wait_for_instance("to run unpaused", LIMIT, |instance| match instance {
            Some(instance) if instance.has_condition("Paused") => Err("it is paused".to_owned()),
            Some(_) => Ok(()),
            None => Err("it is gone".to_owned()),
        })
        .await?;
    went_on(&cluster, &mut guest, before).await
}

/// The name of the network for migrations.
const NETWORK: &str = "migration";
/// Longer than all virt-handlers need to be replaced, one node after the other.
const ROLL_OUT: Duration = Duration::from_secs(300);

async fn own_network() -> Result<()> {
    let cluster = cluster().await?;
    let guest = restless(&cluster).await?;
    let addresses = match &*cluster {
        Cluster::Embedded(_) => "10.202.0.",
        Cluster::Kubernetes(kubernetes) => define_network(kubernetes)?,
    };
    let moved = async {
        configure(&cluster, json!({"network": NETWORK})).await?;
        joined(&cluster, true).await?;
        migrate(&cluster, &guest).await?;
        let address = state(&guest).await?.target_node_address;
        ensure!(address.as_deref().is_some_and(|it| it.starts_with(addresses)), "it went over {address:?}");
        Ok(())
    };
    let moved = moved.await;
    // The next scenario is not to meet virt-handlers that are being replaced.
    configure(&cluster, json!(null)).await?;
    moved.and(joined(&cluster, false).await)
}

/// A network of all nodes, and the first part of the addresses there. Each node gives out some of them: a definition in the
/// cluster alone would have the plugin give out the same ones everywhere, so this one is left to the nodes' own files.
fn define_network(kubernetes: &Kubernetes) -> Result<&'static str> {
    let cluster = kubernetes.cluster();
    for node in 1..=3 {
        let addresses = json!({
            "type": "host-local", "subnet": "10.81.0.0/24",
            "rangeStart": format!("10.81.0.{node}0"), "rangeEnd": format!("10.81.0.{node}9"),
        });
        let plugin =
            json!({"cniVersion": "1.0.0", "name": NETWORK, "type": "bridge", "bridge": "br1", "ipam": addresses});
        let folder = cluster.disk(node).join("etc/cni/multus/net.d");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let file = folder.join("migration.conf");
        std::fs::write(&file, plugin.to_string()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let definition = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": NETWORK, "namespace": "kubevirt"}});
    cluster.apply(&definition.to_string())?;
    Ok("10.81.0.")
}

/// Waits until all virt-handlers have joined that network, or left it. Embedded ones are always on it.
async fn joined(cluster: &Cluster, wanted: bool) -> Result<()> {
    if let Cluster::Embedded(_) = cluster {
        return Ok(());
    }
    let api: Api<DaemonSet> = Api::namespaced(cluster.client().await?, "kubevirt");
    poll("all virt-handlers to be replaced", ROLL_OUT, || async {
        let handlers = api.get("virt-handler").await.map_err(|err| err.to_string())?;
        let template = handlers.spec.map(|spec| spec.template.metadata.unwrap_or_default()).unwrap_or_default();
        let joins = template.annotations.unwrap_or_default().contains_key("k8s.v1.cni.cncf.io/networks");
        let status = handlers.status.unwrap_or_default();
        let all = status.desired_number_scheduled;
        let seen = status.observed_generation == handlers.metadata.generation;
        let replaced = [status.updated_number_scheduled, status.number_available] == [Some(all); 2];
        if joins == wanted && seen && replaced { Ok(()) } else { Err(format!("joins: {joins}, {status:?}")) }
    })
    .await
}

/// The target's QEMU is stopped, as a link that hangs would look to the source.
async fn no_progress() -> Result<()> {
    let cluster = cluster().await?;
    let mut guest = restless(&cluster).await?;
    let (qemu, before) = (the_only_qemu(&guest.name)?, count(&cluster, &mut guest).await?);
    configure(&cluster, json!({"progressTimeout": 5})).await?;
    slow_down(&cluster, &guest.name).await?;
    begin(&cluster, &guest, "stalls", json!({})).await?;
    wait_for(&cluster, "stalls", &["Running"]).await?;
    poll("the transfer to begin", LIMIT, || async {
        match progress(&cluster, &guest).await.map_err(|err| format!("{err:#}"))? {
            seen if seen.data_processed > 0 => Ok(()),
            seen => Err(seen.to_string()),
        }
    })
    .await?;
    let target = e2e::processes::qemus_of(&guest.name).into_iter().find(|one| *one != qemu);
    let target = target.context("no QEMU waits at the target")?;
    target.signal(hostfs::process::Signal::STOP).context("cannot stop a process")?;
    let failed = wait_for(&cluster, "stalls", &["Failed"]).await;
    // One that was killed meanwhile needs no waking.
    let _ = target.signal(hostfs::process::Signal::CONT);
    let why = failed?.status.and_then(|status| status.migration_state).and_then(|state| state.failure_reason);
    ensure!(why.as_deref().is_some_and(|why| why.contains("no progress for 5 s")), "it says {why:?}");
    stayed(&cluster, &mut guest, &qemu, before).await?;
    speed_up(&cluster, &guest.name).await
}

/// Gives a migration up and waits until it is gone.
async fn give_up(cluster: &Access, name: &str) -> Result<()> {
    let api = migrations(cluster).await?;
    api.delete(name, &DeleteParams::default()).await.context("cannot delete a migration")?;
    super::waits::gone(cluster, name).await
}

/// Deletes a migration as soon as it is seen in one of these phases, and tells in which one that was.
async fn give_up_when(cluster: &Access, guest: &Guest, name: &str, wanted: &[&str]) -> Result<String> {
    let api = migrations(cluster).await?;
    let only = WatchParams::default().fields(&format!("metadata.name={name}"));
    let mut events = Box::pin(api.watch(&only, "0").await.context("cannot watch migrations")?);
    begin(cluster, guest, name, json!({})).await?;
    let seen = tokio::time::timeout(MOVE_LIMIT, async {
        while let Some(event) = events.next().await {
            if let WatchEvent::Added(migration) | WatchEvent::Modified(migration) = event.context("watching")?
                && wanted.contains(&phase(&migration).as_str())
            {
                return Ok(phase(&migration));
            }
        }
        bail!("the watch ended")
    });
    let seen = seen.await.with_context(|| format!("migration {name} never was {wanted:?}"))??;
    give_up(cluster, name).await?;
    Ok(seen)
}

async fn given_up() -> Result<()> {
    let cluster = cluster().await?;
    let mut guest = restless(&cluster).await?;
    let (qemu, before) = (the_only_qemu(&guest.name)?, count(&cluster, &mut guest).await?);
    // Slow enough that none of them succeeds before it is given up.
    slow_down(&cluster, &guest.name).await?;
    // Those before and after them can be held up and are given up in other scenarios, too: waits for quota and for a node.
    for wanted in ["Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady"] {
        let name = format!("given-up-{}", wanted.to_lowercase());
        let later: Vec<&str> = PHASES.iter().skip_while(|phase| **phase != wanted).copied().collect();
        let seen = give_up_when(&cluster, &guest, &name, &later).await.context(wanted)?;
        println!("given up in {seen}");
        stayed(&cluster, &mut guest, &qemu, before).await.with_context(|| format!("given up in {seen}"))?;
    }
    begin(&cluster, &guest, "given-up", json!({})).await?;
    wait_for(&cluster, "given-up", &["Running"]).await?;
    command(&cluster, &["virtctl", "migrate-cancel", &guest.name]).await?;
    super::waits::gone(&cluster, "given-up").await?;
    let seen = state(&guest).await?;
    ensure!(seen.failed == Some(true), "the state does not tell: {seen:?}");
    ensure!(seen.abort_status.as_ref().map(ToString::to_string).as_deref() == Some("Succeeded"), "{seen:?}");
    ensure!(seen.failed == Some(true) && seen.completed != Some(true), "{seen:?}");
    stayed(&cluster, &mut guest, &qemu, before).await?;
    speed_up(&cluster, &guest.name).await?;
    migrate(&cluster, &guest).await.context("the next one")?;
    went_on(&cluster, &mut guest, before).await
}

/// In their order. One that is passed too quickly to be seen is as good as the next.
const PHASES: [&str; 6] = ["Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running"];
