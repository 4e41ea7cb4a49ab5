//! What Pods leave on their nodes, and whether it goes with them.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};

use crate::cluster::Cluster;

/// The directory of a Pod.
pub const POD: &str = "a directory";
/// What virt-handler keeps of a launcher.
pub const RECORD: &str = "a record of virt-handler";
/// What is mounted below the directory of a Pod.
pub const MOUNT: &str = "a mount";

/// Entries of a folder whose names are UIDs of Pods.
pub(crate) fn below(what: &'static str, folder: &Path) -> Vec<(&'static str, String)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((what, entry.file_name().into_string().ok()?))).collect()
}

/// What there is on a node of Pods that are gone. virt-handler forgets a launcher as soon as that has ended; the rest may stay
/// until its Pod is deleted.
pub async fn of_gone_pods(cluster: &Cluster, node: &str) -> Result<Vec<String>> {
    // Before the Pods are listed: one that comes meanwhile is no trace.
    let traces: BTreeSet<_> = cluster.traces(node)?.into_iter().collect();
    let pods: Api<Pod> = Api::all(cluster.client().await?);
    let here = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = pods.list(&here).await.context("cannot list Pods")?.items;
    let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
    let known: BTreeSet<String> = pods.iter().map(uid).collect();
    let ended: BTreeSet<String> = pods.iter().filter(|pod| has_ended(pod)).map(uid).collect();
    let left = |(what, uid): &(&str, String)| !known.contains(uid) || (*what == RECORD && ended.contains(uid));
    Ok(traces.iter().filter(|trace| left(trace)).map(|(what, uid)| format!("{what} of Pod {uid} on {node}")).collect())
}

/// Whether no container of a Pod will ever run again.
pub fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
