//! Claims and snapshots from their creation to their end.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use test_support::eventually;
use tokio_util::sync::CancellationToken;

use crate::lab::Lab;

const DATA: &[u8] = b"what a guest has written";

fn write(lab: &Lab, volume: &volumeplan::Volume) {
    let file = File::options().write(true).open(lab.engine.content(volume)).unwrap();
    file.write_all_at(DATA, 4096).unwrap();
    file.sync_all().unwrap();
}

fn holds_data(lab: &Lab, volume: &volumeplan::Volume) -> bool {
    let mut read = vec![0; DATA.len()];
    File::open(lab.engine.content(volume)).unwrap().read_exact_at(&mut read, 4096).unwrap();
    read == DATA
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_bound_copied_grown_and_removed() {
    let lab = Lab::start().await;
    // The default class, and a directory.
    lab.claim("files", "", json!({"storageClassName": null, "volumeMode": "Filesystem"})).await;
    let files = lab.bound("files").await;
    assert!(lab.engine.content(&files).is_dir());
    lab.claim("disk", "now", json!({})).await;
    let disk = lab.bound("disk").await;
    write(&lab, &disk);
    assert_eq!(
        lab.told("disk", "ProvisioningSucceeded").await,
        format!("Successfully provisioned volume {}", disk.name)
    );

    lab.snapshot("snap", "disk").await;
    let snapshot = lab.ready("snap").await;
    let status = snapshot.status.unwrap();
    assert_eq!(status.restore_size.unwrap().0, "8Mi");
    assert!(status.creation_time.is_some() && status.error.is_none());
    lab.claim("clone", "now", json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "disk"}})).await;
    let source = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "snap"});
    let larger = json!({"requests": {"storage": "16Mi"}});
    lab.claim("restored", "now", json!({"dataSourceRef": source, "resources": larger})).await;
    for name in ["clone", "restored"] {
        let copy = lab.bound(name).await;
        assert!(holds_data(&lab, &copy), "{name}");
        assert_ne!(copy.id, disk.id);
    }

    lab.change("disk", json!({"spec": {"resources": {"requests": {"storage": "32Mi"}}}})).await.unwrap();
    eventually("the claim to have its new size", || async {
        let claim = lab.claims().get("disk").await.unwrap();
        let status = claim.status?;
        (status.capacity?.get("storage")?.0 == "32Mi" && status.conditions.unwrap_or_default().is_empty()).then_some(())
    })
    .await;
    assert_eq!(std::fs::metadata(lab.engine.content(&disk)).unwrap().len(), 32 << 20);
    assert!(holds_data(&lab, &disk));
    let smaller = lab.change("disk", json!({"spec": {"resources": {"requests": {"storage": "8Mi"}}}})).await;
    let refusal = smaller.unwrap_err().to_string();
    assert!(refusal.contains("field can not be less than status.capacity"), "{refusal}");

    lab.snapshots().delete("snap", &DeleteParams::default()).await.unwrap();
    for name in ["files", "disk", "clone", "restored"] {
        lab.delete_claim(name).await;
    }
    lab.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_waits_for_its_pod_and_stays_while_it_runs() {
    let lab = Lab::start().await;
    let stop = CancellationToken::new();
    let scheduler = lab.schedule(&stop).await;
    lab.claim("later", "later", json!({})).await;
    assert_eq!(
        lab.told("later", "WaitForFirstConsumer").await,
        "waiting for first consumer to be created before binding"
    );
    lab.pod("early", "missing").await;
    eventually("the Pod to say what is missing", || async {
        let pod = lab.pods().get("early").await.unwrap();
        let condition = pod.status?.conditions?.into_iter().find(|condition| condition.type_ == "PodScheduled")?;
        (condition.message? == "no nodes available to schedule pods").then_some(())
    })
    .await;
    lab.node("n1").await;
    eventually("the Pod to say what is missing", || async {
        let pod = lab.pods().get("early").await.unwrap();
        let condition = pod.status?.conditions?.into_iter().find(|condition| condition.type_ == "PodScheduled")?;
        (condition.message? == "0/1 nodes are available: persistentvolumeclaim \"missing\" not found.").then_some(())
    })
    .await;
    lab.pod("p", "later").await;
    lab.bound("later").await;
    eventually("the Pod to be placed", || async { lab.pods().get("p").await.unwrap().spec?.node_name }).await;
    let claim = lab.claims().get("later").await.unwrap();
    assert_eq!(claim.metadata.annotations.unwrap()["volume.kubernetes.io/selected-node"], "n1");

    lab.delete_claim("later").await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert!(lab.claims().get("later").await.unwrap().metadata.deletion_timestamp.is_some(), "a Pod uses it");
    let ended = json!({"status": {"phase": "Succeeded"}});
    lab.pods().patch_status("p", &PatchParams::default(), &Patch::Merge(ended)).await.unwrap();
    lab.gone("later").await;
    lab.nothing_left().await;
    stop.cancel();
    scheduler.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_had_is_explained_and_tried_again() {
    let lab = Lab::start().await;
    lab.claim("huge", "now", json!({"resources": {"requests": {"storage": "900Ti"}}})).await;
    let why = lab.told("huge", "ProvisioningFailed").await;
    assert!(why.starts_with("failed to provision volume with StorageClass \"now\": the volume needs"), "{why}");
    lab.delete_claim("huge").await;
    lab.gone("huge").await;

    lab.claim("copy", "now", json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "late"}})).await;
    assert!(lab.told("copy", "ProvisioningFailed").await.contains("persistentvolumeclaims \"late\" not found"));
    lab.snapshot("early", "late").await;
    assert!(
        lab.told("early", "SnapshotContentCreationFailed").await.contains("persistentvolumeclaims \"late\" not found")
    );
    lab.claim("late", "now", json!({})).await;
    lab.bound("copy").await;
    lab.ready("early").await;

    // A claim that is not bound does not grow, nor one whose class does not allow it.
    lab.claim("none", "", json!({})).await;
    let grow = json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}});
    let refusal = lab.change("none", grow.clone()).await.unwrap_err().to_string();
    assert!(refusal.contains("spec is immutable after creation"), "{refusal}");
    let fixed = json!({"allowVolumeExpansion": false});
    let classes: kube::Api<k8s_openapi::api::storage::v1::StorageClass> = kube::Api::all(lab.admin.clone());
    classes.patch("now", &PatchParams::default(), &Patch::Merge(fixed)).await.unwrap();
    let refusal = lab.change("late", grow).await.unwrap_err().to_string();
    assert!(refusal.contains("only dynamically provisioned pvc can be resized"), "{refusal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_volume_is_released_with_its_content() {
    let lab = Lab::start().await;
    lab.claim("c", "kept", json!({})).await;
    let volume = lab.bound("c").await;
    write(&lab, &volume);
    lab.delete_claim("c").await;
    lab.gone("c").await;
    let name = volume.name.clone();
    eventually("the volume to be released", || async {
        let found = lab.volumes().get(&name).await.unwrap();
        (claims::volume_phase(&found) == claims::Phase::Released).then_some(())
    })
    .await;
    assert!(holds_data(&lab, &volume));
    // Taken over by hand.
    let free = json!({"spec": {"claimRef": null}});
    lab.volumes().patch(&name, &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
    lab.claim("again", "kept", json!({"volumeName": name})).await;
    assert_eq!(lab.bound("again").await.id, volume.id);
}
