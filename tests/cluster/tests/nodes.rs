//! What happens to nodes.

use anyhow::{Result, ensure};
use test_cluster::Cluster;

use crate::{Body, eventually};

pub(crate) const TRIALS: &[(&str, Body)] =
    &[("pods_outlive_a_restart_of_the_kubelet", pods_outlive_a_restart_of_the_kubelet)];

/// Until a node counts as lost takes the better part of a minute: these run in `make nightly`.
pub(crate) const LOST: &[(&str, Body)] = &[
    ("the_power_of_a_node_fails_and_comes_back", the_power_of_a_node_fails_and_comes_back),
    ("a_node_that_is_cut_off_comes_back_as_it_was", a_node_that_is_cut_off_comes_back_as_it_was),
];

const READY: &str = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;

fn ready(cluster: &Cluster, status: &str) -> Result<()> {
    eventually(&format!("condition Ready of n3 is {status}"), || {
        let found = cluster.kubectl(&["get", "node", "n3", "-o", READY])?;
        ensure!(found == status, "it is {found}");
        Ok(())
    })
}

fn boot_id(cluster: &Cluster) -> Result<String> {
    cluster.kubectl(&["get", "node", "n3", "-o", "jsonpath={.status.nodeInfo.bootID}"])
}

/// A Pod on n3 that stays; its container's ID.
fn container(cluster: &Cluster) -> Result<String> {
    let pod = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stays"}, "spec": {"nodeName": "n3",
      "terminationGracePeriodSeconds": 1,
      "containers": [{"name": "c", "image": "registry.local/busybox:1", "command": ["sleep", "1000000"]}]}}"#;
    cluster.apply(pod)?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/stays", "--timeout=120s"])?;
    cluster.kubectl(&["get", "pod", "stays", "-o", "jsonpath={.status.containerStatuses[0].containerID}"])
}

fn pods_outlive_a_restart_of_the_kubelet(cluster: &mut Cluster) -> Result<()> {
    let before = container(cluster)?;
    let kubelet = |cluster: &Cluster| -> Result<String> {
        let output = cluster.in_node(3, "pidof")?.arg("kubelet").output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let old = kubelet(cluster)?;
    cluster.restart_kubelet(3)?;
    eventually("another kubelet runs", || {
        let new = kubelet(cluster)?;
        ensure!(!new.is_empty() && new != old, "the kubelet is process {new:?}, it was {old}");
        Ok(())
    })?;
    // The new kubelet serves the Pod that the old one started.
    eventually("the Pod can be entered", || cluster.kubectl(&["exec", "stays", "--", "true"]).map(drop))?;
    ensure!(container(cluster)? == before, "the container was started anew");
    Ok(())
}

fn the_power_of_a_node_fails_and_comes_back(cluster: &mut Cluster) -> Result<()> {
    let (boot, before) = (boot_id(cluster)?, container(cluster)?);
    cluster.node_down(3)?;
    ensure!(cluster.in_node(3, "true").is_err(), "a node without power runs programs");
    ready(cluster, "Unknown")?;
    cluster.node_up(3)?;
    ready(cluster, "True")?;
    ensure!(boot_id(cluster)? != boot, "the node did not boot anew");
    eventually("the Pod runs again, in a new container", || {
        let now = container(cluster)?;
        ensure!(now != before, "it is the same");
        cluster.kubectl(&["exec", "stays", "--", "true"]).map(drop)
    })?;
    cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"]).map(drop)
}

fn a_node_that_is_cut_off_comes_back_as_it_was(cluster: &mut Cluster) -> Result<()> {
    let (boot, before) = (boot_id(cluster)?, container(cluster)?);
    cluster.cut(3)?;
    ready(cluster, "Unknown")?;
    cluster.join(3)?;
    ready(cluster, "True")?;
    ensure!(boot_id(cluster)? == boot, "the node booted anew");
    ensure!(container(cluster)? == before, "the Pod's container is another");
    Ok(())
}
