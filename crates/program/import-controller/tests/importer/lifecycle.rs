//! What is waited for, killed and deleted.

use std::time::Duration;

use futures::FutureExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use test_support::eventually_within;

use crate::Test;
use crate::cluster::{Cluster, MIB, PATIENCE, disk_image};
use crate::server::Images;

pub(crate) const TESTS: &[Test] = &[
    ("an_importer_that_is_killed_leaves_nothing_and_the_next_begins_anew", || killed().boxed_local()),
    ("a_data_volume_that_is_deleted_gives_its_volume_back", || deleted().boxed_local()),
    ("a_claim_that_waits_is_filled_when_it_has_a_consumer", || first_consumer().boxed_local()),
];

/// Processes whose parent is, or was, this one: their command lines.
fn workers(of: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let fields: Vec<&str> =
            stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
        // A zombie is no process any more.
        if fields.get(1) == Some(&of.to_string().as_str()) && fields[0] != "Z" {
            found.push(pid);
            found.extend(workers(pid));
        }
    }
    found
}

async fn killed() {
    let mut cluster = Cluster::without_importer().await;
    let images = Images::default();
    let content = disk_image(&cluster.path("disk.raw"), 8 * MIB);
    images.put("/slow/disk", content.clone());
    let url = images.serve().await;
    let mut importer = cluster.spawn_importer();
    cluster.data_volume("disk", json!({"http": {"url": format!("{url}/slow/disk")}}), json!({})).await;
    let moves = |status: &api::cdi::DataVolumeStatus| {
        status.progress.as_deref().and_then(|text| text.strip_suffix('%')?.parse::<f64>().ok()).is_some_and(|p| p > 0.5)
    };
    let status = cluster.wait("disk", "it moves", moves).await;
    assert_eq!(status.phase.as_ref().map(|phase| phase.as_str()), Some("ImportInProgress"));
    let working = workers(importer.pid());
    assert!(!working.is_empty());
    importer.kill();
    eventually_within(Duration::from_secs(20), "its workers are gone", async || {
        working
            .iter()
            .all(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z ")))
    })
    .await;
    assert!(cluster.is_held("disk").await, "half a disk is given to nobody");
    images.speed_up("/slow/disk");
    cluster.start_importer().await;
    let status = cluster.phase("disk", "Succeeded").await;
    assert_eq!(status.restart_count, Some(1));
    assert!(std::fs::read(cluster.disk("disk").await).unwrap().starts_with(&content));
    assert!(!cluster.is_held("disk").await);
    cluster.stop_importer().await;
    // What is filled is not filled again.
    let asked = images.requests.load(std::sync::atomic::Ordering::Relaxed);
    cluster.start_importer().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(images.requests.load(std::sync::atomic::Ordering::Relaxed), asked);
}

async fn deleted() {
    let cluster = Cluster::start().await;
    let images = Images::default();
    images.put("/slow/disk", disk_image(&cluster.path("disk.raw"), 8 * MIB));
    let url = images.serve().await;
    cluster.data_volume("disk", json!({"http": {"url": format!("{url}/slow/disk")}}), json!({})).await;
    cluster.phase("disk", "ImportInProgress").await;
    let handle = cluster.handle("disk").await;
    assert!(cluster.is_held("disk").await);
    cluster.data_volumes().delete("disk", &DeleteParams::default()).await.unwrap();
    eventually_within(PATIENCE, "the claim is gone", async || {
        cluster.claims().get_opt("disk").await.unwrap().is_none()
    })
    .await;
    eventually_within(PATIENCE, "the volume is gone", async || cluster.engine.volume(&handle).is_err()).await;
}

async fn first_consumer() {
    let cluster = Cluster::start().await;
    let images = Images::default();
    let content = disk_image(&cluster.path("disk.raw"), 2 * MIB);
    images.put("/disk", content.clone());
    let url = images.serve().await;
    let source = json!({"http": {"url": format!("{url}/disk")}});
    cluster.data_volume("disk", source.clone(), json!({"storageClassName": "local"})).await;
    cluster.phase("disk", "WaitForFirstConsumer").await;
    // What the scheduler does for a Pod.
    let chosen = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}});
    cluster.claims().patch("disk", &PatchParams::default(), &Patch::Merge(chosen)).await.unwrap();
    cluster.phase("disk", "Succeeded").await;
    assert!(std::fs::read(cluster.disk("disk").await).unwrap().starts_with(&content));
    // One that is not to wait.
    let spec = json!({"source": source, "storage": {"storageClassName": "local", "resources": {"requests": {"storage": "64Mi"}}}});
    let annotations = json!({"cdi.kubevirt.io/storage.bind.immediate.requested": ""});
    let metadata = json!({"namespace": "default", "name": "now", "annotations": annotations});
    cluster.create::<api::cdi::DataVolume>(json!({"metadata": metadata, "spec": spec})).await;
    cluster.phase("now", "Succeeded").await;
}
