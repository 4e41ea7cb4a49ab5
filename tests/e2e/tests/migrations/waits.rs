//! Migrations that cannot start yet, and say why.

use anyhow::{Context as _, Result, ensure};
use drive::{Access, Guest, LIMIT, poll};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, EvictParams, ListParams, PostParams};
use libtest_mimic::Trial;
use serde_json::json;

use super::stage::restless;
use super::{alone, begin, cluster, command, configure, migrations, policy, wait_for, wait_for_condition};
use crate::guests::the_only_qemu;
use crate::trial;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("migration_without_a_node_to_go_to_says_so_and_fails_in_time", no_node),
        trial("migration_refused_by_a_quota_goes_on_when_there_is_room", quota),
        trial("migration_of_an_evacuation_that_failed_is_put_off", put_off),
    ]
}

/// What `virtctl explain` says of a migration, which has to have these words.
async fn explained(cluster: &Access, name: &str, words: &[&str]) -> Result<()> {
    let told = command(cluster, &["virtctl", "explain", "migration", name]).await?;
    for word in words {
        ensure!(told.contains(word), "the explanation has no `{word}`: {told}");
    }
    Ok(())
}

async fn no_node() -> Result<()> {
    let cluster = cluster().await?;
    let guest = restless(&cluster).await?;
    let qemu = the_only_qemu(&guest.name)?;
    let nowhere = json!({"addedNodeSelector": {"zone": "nowhere"}});
    begin(&cluster, &guest, "to-nowhere", nowhere.clone()).await?;
    wait_for(&cluster, "to-nowhere", &["Scheduling"]).await?;
    let said = wait_for_condition(&cluster, "to-nowhere", &["migrationWaiting"], "TargetPodUnschedulable").await?;
    ensure!(said.contains("nodes are available"), "the condition says: {said}");
    let cancel = format!("virtctl migrate-cancel {}", guest.name);
    let words = ["waiting:", "nodes are available", "since:", "to unblock:", "make room", &cancel, "Pod (target)"];
    explained(&cluster, "to-nowhere", &words).await?;
    command(&cluster, &["virtctl", "migrate-cancel", &guest.name]).await?;
    gone(&cluster, "to-nowhere").await?;

    let hurried = json!({
        "metadata": {"name": "not-for-long", "annotations": {"kubevirt.io/migrationUnschedulablePodTimeoutSeconds": "3"}},
        "spec": {"vmiName": guest.name, "addedNodeSelector": nowhere["addedNodeSelector"]},
    });
    let api = migrations(&cluster).await?;
    api.create(&PostParams::default(), &serde_json::from_value(hurried)?).await.context("cannot create a migration")?;
    wait_for(&cluster, "not-for-long", &["Failed"]).await?;
    explained(&cluster, "not-for-long", &["the migration failed:", "within 3 seconds"]).await?;
    targets_gone(&cluster).await?;
    alone(&guest).await?;
    ensure!(the_only_qemu(&guest.name)? == qemu, "the guest is in another QEMU");
    Ok(())
}

/// No Pod waits for a guest any more.
async fn targets_gone(cluster: &Access) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(cluster.client().await?);
    poll("the target Pod's end", LIMIT, || async {
        let all = pods.list(&ListParams::default()).await.map_err(|err| err.to_string())?.items;
        let pending = all.iter().find(|pod| pod_phase(pod) == "Pending");
        pending.map_or(Ok(()), |pod| Err(format!("{} is there", pod.name_any())))
    })
    .await
}

pub(super) async fn gone(cluster: &Access, name: &str) -> Result<()> {
    let api = migrations(cluster).await?;
    poll(&format!("the end of {name}"), LIMIT, || async {
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
    let guest = restless(&cluster).await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let used = pods.list(&ListParams::default()).await?.items;
    let used = used.iter().filter(|pod| !["Succeeded", "Failed"].contains(&pod_phase(pod))).count();
    let quotas: Api<ResourceQuota> = Api::default_namespaced(client);
    let full = json!({"metadata": {"name": "full"}, "spec": {"hard": {"pods": used.to_string()}}});
    quotas.create(&PostParams::default(), &serde_json::from_value(full)?).await.context("cannot create a quota")?;
    for name in ["squeezed-out", "squeezed"] {
        begin(&cluster, &guest, name, json!({})).await?;
        let said = wait_for_condition(&cluster, name, &["migrationRejectedByResourceQuota"], "").await?;
        ensure!(said.contains("exceeded quota: full"), "the condition says: {said}");
        explained(&cluster, name, &["waiting:", "exceeded quota: full", "to unblock:", "raise the quota"]).await?;
        if name == "squeezed-out" {
            command(&cluster, &["virtctl", "migrate-cancel", &guest.name]).await?;
            gone(&cluster, name).await?;
        }
    }
    quotas.delete("full", &DeleteParams::default()).await.context("cannot delete the quota")?;
    wait_for(&cluster, "squeezed", &["Succeeded"]).await?;
    alone(&guest).await
}

fn pod_phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Asks for the eviction of a guest's Pod as a drain does, which is refused, and the guest is to move.
pub(super) async fn evict(cluster: &Access, guest: &Guest) -> Result<()> {
    let node = guest.node().await?;
    let mut config = kube::Config::from_custom_kubeconfig(
        kube::config::Kubeconfig::read_from(cluster.kubeconfig())?,
        &kube::config::KubeConfigOptions::default(),
    )
    .await?;
    // The refusal is the answer.
    config.default_retry = false;
    config.proxy_url = None;
    let pods: Api<Pod> = Api::default_namespaced(kube::Client::try_from(config)?);
    let here = ListParams::default().fields(&format!("spec.nodeName={node}")).labels("kubevirt.io=virt-launcher");
    let of_guest = |pod: &Pod| pod.annotations().get("kubevirt.io/domain") == Some(&guest.name);
    let running = |pod: &Pod| of_guest(pod) && pod_phase(pod) == "Running";
    let pod = pods.list(&here).await?.items.into_iter().find(running).context("the guest has no Pod")?;
    match pods.evict(&pod.name_any(), &EvictParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 429 => Ok(()),
        answer => anyhow::bail!("the eviction was answered with {answer:?}"),
    }
}

async fn put_off() -> Result<()> {
    let cluster = cluster().await?;
    let guest = restless(&cluster).await?;
    let hopeless = json!({"bandwidthPerMigration": "2Mi", "completionTimeoutPerGiB": 1});
    policy(&cluster, "hopeless", &guest.name, hopeless).await?;
    evict(&cluster, &guest).await?;
    let api = migrations(&cluster).await?;
    let waiting = poll("the second attempt", super::MOVE_LIMIT, || async {
        let all = api.list(&ListParams::default()).await.map_err(|err| err.to_string())?.items;
        // Those of this guest only: drains of other scenarios leave theirs, and beside one of these the first attempt
        // would pass for the second.
        let prefix = format!("kubevirt-evacuation-{}-", guest.name);
        let attempts: Vec<_> = all.iter().filter(|one| one.name_any().starts_with(&prefix)).collect();
        let in_phase = |phase: &str| attempts.iter().find(|one| super::phase(one) == phase);
        match (in_phase("Failed"), in_phase("Pending")) {
            (Some(_), Some(second)) => Ok(second.name_any()),
            _ => Err(format!("{:?}", attempts.iter().map(|one| super::phase(one)).collect::<Vec<_>>())),
        }
    })
    .await?;
    wait_for_condition(&cluster, &waiting, &["migrationWaiting"], "MigrationBackoff").await?;
    let words = ["waiting:", "earlier migrations failed", "to unblock:", "retried automatically"];
    explained(&cluster, &waiting, &words).await?;
    command(&cluster, &["virtctl", "evacuate-cancel", "vmi", &guest.name]).await?;
    command(&cluster, &["virtctl", "migrate-cancel", &guest.name]).await?;
    gone(&cluster, &waiting).await?;
    let marked = guest.instance().await?.and_then(|one| one.status).and_then(|status| status.evacuation_node_name);
    ensure!(marked.is_none(), "the guest is still to leave {marked:?}");
    configure(&cluster, json!(null)).await
}
