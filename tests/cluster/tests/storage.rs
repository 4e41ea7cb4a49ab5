//! Our CSI driver with Kubernetes' own provisioner, snapshotter and resizer, deployed by the documents of `docs/storage.md`.
//!
//! These run when they are asked for: `make kube-test ARGS="--lane storage"`. They are one story, in this order.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use oci_image::{Entry, Run, Tree};
use serde_json::json;
use test_cluster::{Cluster, document, images};

use crate::{Body, eventually};

pub(crate) const TRIALS: &[(&str, Body)] = &[
    ("storage::the_driver_is_deployed_as_documented", the_driver_is_deployed_as_documented),
    ("storage::claims_become_volumes_of_pods", claims_become_volumes_of_pods),
    ("storage::volumes_grow_while_pods_use_them", volumes_grow_while_pods_use_them),
    ("storage::snapshots_are_restored_and_volumes_cloned", snapshots_are_restored_and_volumes_cloned),
    ("storage::what_is_deleted_is_gone_from_the_pool", what_is_deleted_is_gone_from_the_pool),
];

const DOCUMENT: &str = include_str!("../../../docs/storage.md");
const SECTION: &str = "Run it on Kubernetes";
const SIDECARS: [&str; 4] = ["csi-provisioner", "csi-snapshotter", "csi-resizer", "snapshot-controller"];
const REGISTRY: &str = "registry.k8s.io/sig-storage/";
const POOL: &str = "var/lib/ferrovirt-pool";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The program's image, as a build of the tests leaves it.
fn program() -> Result<PathBuf> {
    let archive = workspace().join("build/images-dev/ferrovirt.tar");
    ensure!(archive.exists(), "{} is not there; `make kube-test ARGS=\"--lane storage\"` makes it", archive.display());
    Ok(archive)
}

fn sidecars(cluster: &Cluster, folder: &Path) -> Result<()> {
    let programs =
        peers::build_or_skip("csi-sidecars", "the CSI driver with its sidecars").map_err(anyhow::Error::msg)?;
    let programs = programs.context("the sidecars cannot be built here")?;
    for name in SIDECARS {
        let mut tree = Tree::default();
        tree.insert(name, Entry::file(programs.join(name), 0o755))?;
        let run = Run { entrypoint: vec![format!("/{name}")], ..Run::default() };
        cluster.import(&images::write(folder, name, &tree, run)?)?;
    }
    Ok(())
}

/// The documents, with images of this cluster.
fn documents() -> Result<String> {
    let manifests = document::manifests(DOCUMENT, SECTION)?;
    let local = |line: &str| match line.split_once(REGISTRY) {
        Some((before, image)) => {
            let name = image.split_once(':').map_or(image, |(name, _)| name);
            format!("{before}registry.local/{name}:1")
        }
        None => line.to_owned(),
    };
    Ok(manifests.lines().map(local).collect::<Vec<_>>().join("\n"))
}

fn the_driver_is_deployed_as_documented(cluster: &mut Cluster) -> Result<()> {
    let folder = tempfile::tempdir()?;
    sidecars(cluster, folder.path())?;
    cluster.import(&program()?)?;
    cluster.apply(include_str!("snapshots.yaml"))?;
    let established = ["wait", "--for=condition=Established", "crd/volumesnapshotclasses.snapshot.storage.k8s.io"];
    cluster.kubectl(&established)?;
    cluster.apply(&documents()?)?;
    for workload in ["daemonset/csi", "deployment/snapshot-controller"] {
        let status = ["-n", "ferrovirt-storage", "rollout", "status", workload, "--timeout=120s"];
        cluster.kubectl(&status)?;
    }
    eventually("every node has the driver", || {
        let nodes = cluster.kubectl(&["get", "csinodes", "-o", "jsonpath={.items[*].spec.drivers[*].nodeID}"])?;
        ensure!(nodes == "n1 n2 n3", "the driver is on {nodes:?}");
        Ok(())
    })?;
    eventually("every node tells how much room it has", || {
        let found = cluster.kubectl(&["get", "csistoragecapacities", "-A", "--no-headers"])?;
        ensure!(found.lines().count() == 3, "there are these:\n{found}");
        Ok(())
    })
}

/// A claim of 64 MiB; of 96 where it is made from another claim or a snapshot, `KIND/NAME`, which have grown.
fn claim(cluster: &Cluster, name: &str, mode: &str, from: Option<&str>) -> Result<()> {
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"], "volumeMode": mode, "storageClassName": "local",
        "resources": {"requests": {"storage": if from.is_some() { "96Mi" } else { "64Mi" }}},
    });
    if let Some((kind, name)) = from.and_then(|from| from.split_once('/')) {
        let group = (kind == "VolumeSnapshot").then_some("snapshot.storage.k8s.io");
        spec["dataSource"] = json!({"apiGroup": group, "kind": kind, "name": name});
    }
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec});
    cluster.apply(&claim.to_string()).map(drop)
}

/// A Pod of user 107 that has both claims of a name, and waits.
fn pod(cluster: &Cluster, name: &str, node: &str) -> Result<()> {
    let volume = |kind: &str| json!({"name": kind, "persistentVolumeClaim": {"claimName": format!("{name}-{kind}")}});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsUser": 107, "runAsGroup": 107, "fsGroup": 107},
            "containers": [{
                "name": "c", "image": images::BUSYBOX, "command": ["sleep", "1000000"],
                "volumeMounts": [{"name": "files", "mountPath": "/files"}],
                "volumeDevices": [{"name": "disk", "devicePath": "/dev/disk"}],
            }],
            "volumes": [volume("files"), volume("disk")],
        },
    });
    cluster.apply(&pod.to_string())?;
    let ready = ["wait", "--for=condition=Ready", &format!("pod/{name}"), "--timeout=180s"];
    let waited = cluster.kubectl(&ready);
    waited.map(drop).with_context(|| cluster.kubectl(&["describe", "pod,pvc"]).unwrap_or_default())
}

fn sh(cluster: &Cluster, pod: &str, script: &str) -> Result<String> {
    Ok(cluster.kubectl(&["exec", pod, "--", "sh", "-c", script])?.trim().to_owned())
}

/// What the Pod finds in both of its volumes.
const READ: &str = "cat /files/text; head -c 5 /dev/disk";

fn claims_become_volumes_of_pods(cluster: &mut Cluster) -> Result<()> {
    claim(cluster, "first-files", "Filesystem", None)?;
    claim(cluster, "first-disk", "Block", None)?;
    pod(cluster, "first", "n2")?;
    let script = "echo files > /files/text && printf disk. | dd of=/dev/disk conv=fsync 2> /dev/null && sync";
    sh(cluster, "first", script)?;
    let found = sh(cluster, "first", READ)?;
    ensure!(found == "files\ndisk.", "the Pod reads {found:?}");
    let pool = cluster.disk(2).join(POOL).join("volumes");
    let volumes = std::fs::read_dir(&pool).with_context(|| format!("cannot list {}", pool.display()))?.count();
    ensure!(volumes == 2, "the node's pool has {volumes} volumes");
    Ok(())
}

fn volumes_grow_while_pods_use_them(cluster: &mut Cluster) -> Result<()> {
    let larger = r#"{"spec": {"resources": {"requests": {"storage": "96Mi"}}}}"#;
    for claim in ["first-disk", "first-files"] {
        cluster.kubectl(&["patch", "pvc", claim, "-p", larger])?;
    }
    eventually("the device has grown", || {
        let size = sh(cluster, "first", "blockdev --getsize64 /dev/disk")?;
        ensure!(size == (96 << 20).to_string(), "it has {size} bytes");
        Ok(())
    })?;
    for claim in ["first-disk", "first-files"] {
        eventually("the claim has grown", || {
            let size = cluster.kubectl(&["get", "pvc", claim, "-o", "jsonpath={.status.capacity.storage}"])?;
            ensure!(size == "96Mi", "{claim} has {size}");
            Ok(())
        })?;
    }
    Ok(())
}

fn snapshots_are_restored_and_volumes_cloned(cluster: &mut Cluster) -> Result<()> {
    for kind in ["files", "disk"] {
        let snapshot = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": kind},
            "spec": {"volumeSnapshotClassName": "local", "source": {"persistentVolumeClaimName": format!("first-{kind}")}}});
        cluster.apply(&snapshot.to_string())?;
        let ready = "--for=jsonpath={.status.readyToUse}=true";
        cluster.kubectl(&["wait", ready, &format!("volumesnapshot/{kind}"), "--timeout=120s"])?;
    }
    // What is written afterwards is in the clones and not in what is restored.
    sh(cluster, "first", "echo later > /files/text && printf later | dd of=/dev/disk conv=fsync 2> /dev/null && sync")?;
    for (name, from) in [("restored", "VolumeSnapshot/"), ("cloned", "PersistentVolumeClaim/first-")] {
        for (kind, mode) in [("files", "Filesystem"), ("disk", "Block")] {
            claim(cluster, &format!("{name}-{kind}"), mode, Some(&format!("{from}{kind}")))?;
        }
    }
    pod(cluster, "restored", "n2")?;
    let found = sh(cluster, "restored", READ)?;
    ensure!(found == "files\ndisk.", "the restored volumes have {found:?}");
    pod(cluster, "cloned", "n2")?;
    let found = sh(cluster, "cloned", READ)?;
    ensure!(found == "later\nlater", "the clones have {found:?}");
    Ok(())
}

fn what_is_deleted_is_gone_from_the_pool(cluster: &mut Cluster) -> Result<()> {
    cluster.kubectl(&["delete", "pod", "first", "restored", "cloned", "--timeout=120s"])?;
    cluster.kubectl(&["delete", "volumesnapshot", "--all", "--timeout=120s"])?;
    cluster.kubectl(&["delete", "pvc", "--all", "--timeout=120s"])?;
    let pool = cluster.disk(2).join(POOL);
    eventually("the pool is empty", || {
        for folder in ["volumes", "snapshots", "work"] {
            let left = std::fs::read_dir(pool.join(folder))?.count();
            ensure!(left == 0, "{folder} has {left} entries");
        }
        let volumes = cluster.kubectl(&["get", "pv,volumesnapshotcontent", "-o", "name"])?;
        ensure!(volumes.trim().is_empty(), "there are still {volumes}");
        Ok(())
    })?;
    cluster.kubectl(&["delete", "namespace", "ferrovirt-storage", "--timeout=120s"]).map(drop)
}
