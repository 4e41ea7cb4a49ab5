//! Migrations that cannot start yet, and say why.

use anyhow::{Context as _, Result, ensure};
use e2e::manifest::Manifest;
use ferrovirt::drive::LIMIT;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use libtest_mimic::Trial;
use serde_json::json;

use super::{
    begin, busy, cluster, command, configure, migrations, movable, set_cordon, slow_down, speed_up, wait_for,
    wait_for_condition,
};
use crate::trial;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("migration_without_a_node_to_go_to_says_so", no_node),
        trial("migration_refused_by_a_quota_goes_on_when_there_is_room", quota),
        trial("migration_waits_for_its_turn_under_limits", limits),
    ]
}

async fn no_node() -> Result<()> {
    let cluster = cluster().await?;
    let guest = movable(&cluster, &Manifest::vm("nowhere", "Always")).await?;
    begin(&cluster, &guest, "to-nowhere", json!({"addedNodeSelector": {"zone": "nowhere"}})).await?;
    wait_for(&cluster, "to-nowhere", &["Scheduling"]).await?;
    let said = wait_for_condition(&cluster, "to-nowhere", &["migrationWaiting"], "TargetPodUnschedulable").await?;
    ensure!(said.contains("nodes are available"), "the condition says: {said}");
    let told = command(&cluster, &["virtctl", "explain", "migration", "to-nowhere"]).await?;
    for word in ["waiting:", "since:", "to unblock:", "virtctl migrate-cancel nowhere", "Pod (target)"] {
        ensure!(told.contains(word), "the explanation has no `{word}`: {told}");
    }
    command(&cluster, &["virtctl", "migrate-cancel", "nowhere"]).await?;
    gone(&cluster, "to-nowhere").await?;
    super::alone(&guest).await?;
    guest.delete().await
}

async fn gone(cluster: &ferrovirt::drive::Embedded, name: &str) -> Result<()> {
    let api = migrations(cluster).await?;
    ferrovirt::drive::poll(&format!("the end of {name}"), LIMIT, || async {
        match api.get_opt(name).await.map_err(|err| err.to_string())? {
            None => Ok(()),
            Some(migration) => Err(format!("it is {}", super::phase(&migration))),
        }
    })
    .await
}

async fn quota() -> Result<()> {
    let cluster = cluster().await?;
    let client = cluster.client().await?;
    let guest = movable(&cluster, &Manifest::vm("squeezed", "Always")).await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let used = pods.list(&ListParams::default()).await?.items;
    let used = used.iter().filter(|pod| !["Succeeded", "Failed"].contains(&pod_phase(pod))).count();
    let quotas: Api<ResourceQuota> = Api::default_namespaced(client);
    let full = json!({"metadata": {"name": "full"}, "spec": {"hard": {"pods": used.to_string()}}});
    quotas.create(&PostParams::default(), &serde_json::from_value(full)?).await.context("cannot create a quota")?;
    begin(&cluster, &guest, "squeezed", json!({})).await?;
    let said = wait_for_condition(&cluster, "squeezed", &["migrationRejectedByResourceQuota"], "").await?;
    ensure!(said.contains("exceeded quota: full"), "the condition says: {said}");
    quotas.delete("full", &DeleteParams::default()).await.context("cannot delete the quota")?;
    wait_for(&cluster, "squeezed", &["Succeeded"]).await?;
    super::alone(&guest).await?;
    guest.delete().await
}

fn pod_phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Three guests leave one node that lets one go at a time.
async fn limits() -> Result<()> {
    let cluster = cluster().await?;
    configure(&cluster, json!({"parallelOutboundMigrationsPerNode": 1, "parallelMigrationsPerCluster": 2})).await?;
    let names = ["first", "second", "third"];
    set_cordon(&cluster, "n2", true).await?;
    let mut guests = vec![];
    for name in names {
        slow_down(&cluster, name).await?;
        guests.push(movable(&cluster, &busy(name)).await?);
    }
    set_cordon(&cluster, "n2", false).await?;
    begin(&cluster, &guests[0], "first", json!({})).await?;
    wait_for(&cluster, "first", &["Running"]).await?;
    for guest in &guests[1..] {
        begin(&cluster, guest, &guest.name, json!({})).await?;
        let said = wait_for_condition(&cluster, &guest.name, &["migrationWaiting"], "NodeLimitReached").await?;
        ensure!(said.contains("n1"), "the condition does not name the node: {said}");
    }
    let waiting = try_join_all(names[1..].iter().map(|name| wait_for(&cluster, name, &["Pending"]))).await;
    waiting.context("one went although it is not its turn")?;
    // The first has its settings already; the others are to take the quick way.
    for name in names {
        speed_up(&cluster, name).await?;
    }
    command(&cluster, &["virtctl", "migrate-cancel", "first"]).await?;
    gone(&cluster, "first").await?;
    for name in &names[1..] {
        wait_for(&cluster, name, &["Succeeded"]).await?;
    }
    for guest in &guests {
        super::alone(guest).await?;
        guest.delete().await?;
    }
    Ok(())
}
