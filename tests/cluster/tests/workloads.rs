//! Pods, Services, DNS, images, and the way to servers in Pods.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use oci_image::{Entry, Run, Tree};
use test_cluster::{Cluster, images};

use crate::{Body, eventually};

pub(crate) const TRIALS: &[(&str, Body)] = &[
    ("three_nodes_are_ready", three_nodes_are_ready),
    ("a_deployment_on_all_nodes_answers_by_the_name_of_its_service", a_service_answers_by_name),
    ("user_107_reads_an_image_volume", user_107_reads_an_image_volume),
    ("an_image_that_is_imported_later_runs", an_image_that_is_imported_later_runs),
    ("an_aggregated_server_can_know_its_callers", an_aggregated_server_can_know_its_callers),
    ("a_pod_has_a_second_network", a_pod_has_a_second_network),
];

const DISK: &str = "registry.local/disk:1";
const DISK_TEXT: &str = "the disk of a guest";

/// A containerdisk: `/disk` with one file, which 107 can read, and one beside it that it cannot.
pub(crate) fn disk_image(folder: &Path) -> Result<PathBuf> {
    let mut tree = Tree::default();
    let disk = Entry { mode: 0o440, ..Entry::text(DISK_TEXT) };
    tree.insert("disk/disk.img", disk.owned_by(107, 107))?;
    tree.insert("root-only", Entry { mode: 0o600, ..Entry::text("secret") })?;
    images::write(folder, "disk", &tree, Run::default())
}

fn three_nodes_are_ready(cluster: &mut Cluster) -> Result<()> {
    let nodes = cluster.kubectl(&["get", "nodes", "--no-headers"])?;
    let ready: Vec<&str> = nodes.lines().filter(|line| line.contains(" Ready ")).collect();
    ensure!(ready.len() == 3, "these are not three nodes that are Ready:\n{nodes}");
    ensure!(ready.iter().all(|line| line.contains("v1.36.3")), "the version is not as built:\n{nodes}");
    Ok(())
}

fn a_service_answers_by_name(cluster: &mut Cluster) -> Result<()> {
    cluster.apply(include_str!("web.yaml"))?;
    cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"])?;
    let nodes = cluster.kubectl(&["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.nodeName}"])?;
    let nodes: BTreeSet<&str> = nodes.split_whitespace().collect();
    ensure!(nodes == BTreeSet::from(["n1", "n2", "n3"]), "the Pods are on {nodes:?}");
    let mut answers = BTreeSet::new();
    eventually("each Pod answers at the Service's name", || {
        // Not by wget's own timeout: with one, Debian's static busybox crashes.
        let ask =
            ["exec", "deployment/web", "--", "timeout", "5", "wget", "-qO-", "http://web.default.svc.cluster.local/"];
        answers.insert(cluster.kubectl(&ask)?);
        ensure!(answers.len() == 3, "only {answers:?} have answered");
        Ok(())
    })
}

fn user_107_reads_an_image_volume(cluster: &mut Cluster) -> Result<()> {
    let digest = cluster.in_node(1, "ctr")?.args(["-n", "k8s.io", "images", "ls", "-q"]).output()?;
    let names = String::from_utf8_lossy(&digest.stdout).into_owned();
    let pinned = names.lines().find(|name| name.starts_with("registry.local/disk@sha256:")).unwrap_or_default();
    cluster.apply(&include_str!("image-volume.yaml").replace("PINNED", pinned).replace("DISK", DISK))?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/image-volume", "--timeout=120s"])?;
    for path in ["/tagged/disk/disk.img", "/pinned/disk/disk.img"] {
        let text = cluster.kubectl(&["exec", "image-volume", "--", "cat", path])?;
        ensure!(text == DISK_TEXT, "{path} has {text:?}");
    }
    let secret = cluster.kubectl(&["exec", "image-volume", "--", "cat", "/tagged/root-only"]);
    ensure!(format!("{:?}", secret.err()).contains("Permission denied"), "107 reads what only root may");
    let image =
        cluster.kubectl(&["get", "pod", "image-volume", "-o", "jsonpath={.status.containerStatuses[0].imageID}"])?;
    ensure!(image.starts_with("registry.local/busybox@sha256:"), "the status names the image {image:?}");
    cluster.kubectl(&["delete", "pod", "image-volume"]).map(drop)
}

fn an_image_that_is_imported_later_runs(cluster: &mut Cluster) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut tree = Tree::default();
    tree.insert("busybox", Entry::file("/usr/bin/busybox", 0o755))?;
    let run = Run { entrypoint: ["/busybox", "echo", "hello"].map(str::to_owned).to_vec(), ..Run::default() };
    cluster.import(&images::write(folder.path(), "later", &tree, run)?)?;
    cluster.kubectl(&["run", "later", "--image=registry.local/later:1", "--restart=Never"])?;
    let done = "--for=jsonpath={.status.phase}=Succeeded";
    cluster.kubectl(&["wait", done, "pod/later", "--timeout=120s"])?;
    let said = cluster.kubectl(&["logs", "later"])?;
    ensure!(said == "hello\n", "it said {said:?}");
    cluster.kubectl(&["delete", "pod", "later"]).map(drop)
}

/// What the API server publishes for aggregated servers, and that it routes to Pods: a Pod is reached from where it runs.
fn an_aggregated_server_can_know_its_callers(cluster: &mut Cluster) -> Result<()> {
    let published = ["-n", "kube-system", "get", "configmap", "extension-apiserver-authentication", "-o", "yaml"];
    let published = cluster.kubectl(&published)?;
    for word in ["requestheader-client-ca-file", "front-proxy-client", "X-Remote-User"] {
        ensure!(published.contains(word), "{word} is not published:\n{published}");
    }
    // Through the API server's own proxy, which dials the Pod as it dials a webhook.
    let pod = cluster.kubectl(&["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.name}"])?;
    let answer = cluster.kubectl(&["get", "--raw", &format!("/api/v1/namespaces/default/pods/{pod}:8080/proxy/")])?;
    ensure!(answer.trim() == pod, "the API server reached {answer:?} instead of {pod}");
    Ok(())
}

fn a_pod_has_a_second_network(cluster: &mut Cluster) -> Result<()> {
    cluster.apply(include_str!("second-network.yaml"))?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/second-a", "pod/second-b", "--timeout=120s"])?;
    // From one node to another.
    cluster.kubectl(&["exec", "second-a", "--", "ping", "-c", "2", "-W", "5", "10.79.0.2"])?;
    // Deleting takes Multus the other way.
    cluster.kubectl(&["delete", "pod", "second-a", "second-b", "--timeout=60s"]).map(drop)
}
