//! What becomes of a claim, a volume and a snapshot, one case after the other.

use super::*;

fn phase(cluster: &Cluster, kind: Kind, name: &str) -> String {
    cluster.at(kind, name, "status.phase").as_str().unwrap_or("gone").to_owned()
}

#[test]
fn a_claim_gets_a_volume_of_its_class_and_both_name_each_other() {
    let mut cluster = Cluster::new();
    cluster.claim("c", "now", json!({"volumeMode": "Block"}));
    assert!(cluster.settle());
    assert_eq!(phase(&cluster, Kind::Claim, "c"), "Bound");
    assert_eq!(phase(&cluster, Kind::Volume, "pvc-u1"), "Bound");
    let claim = cluster.objects.get(Kind::Claim, "c").unwrap();
    assert_eq!(claim["spec"]["volumeName"], "pvc-u1");
    assert_eq!(claim["status"]["capacity"]["storage"], "1Gi");
    assert_eq!(claim["metadata"]["finalizers"], json!([crate::CLAIM_FINALIZER]), "nothing is in the making any more");
    let volume = &cluster.objects.get(Kind::Volume, "pvc-u1").unwrap()["spec"];
    assert_eq!(volume["csi"], json!({"driver": "csi.ferrovirt.io", "volumeHandle": "h-pvc-u1"}));
    assert_eq!((&volume["volumeMode"], &volume["claimRef"]["uid"]), (&json!("Block"), &json!("u1")));
    assert_eq!(
        (&volume["storageClassName"], &volume["persistentVolumeReclaimPolicy"]),
        (&json!("now"), &json!("Delete"))
    );
    assert_eq!(cluster.said("ProvisioningSucceeded"), None, "that is told by whoever asks the engine");
    assert_eq!(cluster.said("Provisioning"), Some("External provisioner is provisioning volume for claim \"a/c\""));
}

#[test]
fn a_claim_that_waits_says_for_what() {
    for (class, spec, reason, message) in [
        ("later", json!({}), "WaitForFirstConsumer", "waiting for first consumer to be created before binding"),
        ("nowhere", json!({}), "ProvisioningFailed", "storageclass.storage.k8s.io \"nowhere\" not found"),
        ("", json!({}), "FailedBinding", "no persistent volumes available for this claim and no storage class is set"),
        ("now", json!({"volumeName": "v"}), "FailedBinding", "volume \"v\" requested by the claim does not exist yet"),
        (
            "now",
            json!({"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "x"}}),
            "ProvisioningFailed",
            "failed to provision volume with StorageClass \"now\": error getting handle for DataSource Type \
             PersistentVolumeClaim by Name x: error getting PVC x (namespace \"a\") from api server: \
             persistentvolumeclaims \"x\" not found",
        ),
        (
            "now",
            json!({"dataSourceRef": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "x"}}),
            "ProvisioningFailed",
            "failed to provision volume with StorageClass \"now\": error getting handle for DataSource Type VolumeSnapshot \
             by Name x: error getting snapshot x from api server: volumesnapshots.snapshot.storage.k8s.io \"x\" not found",
        ),
        (
            "now",
            json!({"dataSourceRef": {"apiGroup": "x.io", "kind": "Populator", "name": "x"}}),
            "ExternalProvisioning",
            "waiting for a volume populator to fill a volume from Populator x",
        ),
        (
            "foreign",
            json!({}),
            "ExternalProvisioning",
            "Waiting for a volume to be created either by the external provisioner 'other.io' or manually by the system \
             administrator. If volume creation is delayed, please verify that the provisioner is running and correctly \
             registered.",
        ),
    ] {
        let mut cluster = Cluster::new();
        cluster.claim("c", class, spec);
        assert!(cluster.settle());
        assert_eq!(cluster.said(reason), Some(message));
        assert_eq!(phase(&cluster, Kind::Claim, "c"), "Pending");
        assert!(cluster.volumes.is_empty());
    }
}

#[test]
fn a_claim_waits_for_its_first_pod_and_then_for_its_node() {
    let mut cluster = Cluster::new();
    cluster.claim("c", "later", json!({}));
    cluster.pod("p", "c", None);
    assert!(cluster.settle());
    assert_eq!(cluster.said("WaitForPodScheduled"), Some("waiting for pod p to be scheduled"));
    cluster.pod("q", "c", None);
    assert!(cluster.settle());
    assert_eq!(cluster.said("WaitForPodScheduled"), Some("waiting for pods p,q to be scheduled"));
    cluster.change(Kind::Claim, "c", &json!({"metadata": {"annotations": {claim::SELECTED_NODE: "gone"}}}));
    assert!(cluster.settle());
    assert_eq!(cluster.said("ProvisioningFailed"), Some("node \"gone\" does not exist; the Pod is scheduled again"));
    assert!(cluster.at(Kind::Claim, "c", "metadata.annotations")[claim::SELECTED_NODE].is_null());
    cluster.select("c");
    assert!(cluster.settle());
    assert_eq!(phase(&cluster, Kind::Claim, "c"), "Bound");
}

#[test]
fn a_claim_without_a_class_gets_the_default_one_when_there_is_one() {
    let mut cluster = Cluster::new();
    let default = cluster.objects.classes.remove(0);
    cluster.claim("c", "", json!({"storageClassName": null}));
    cluster.claim("none", "", json!({}));
    assert!(cluster.settle());
    cluster.objects.classes.push(default);
    assert!(cluster.settle());
    assert_eq!(cluster.at(Kind::Claim, "c", "spec.storageClassName"), "now");
    assert_eq!(phase(&cluster, Kind::Claim, "c"), "Bound");
    assert_eq!(phase(&cluster, Kind::Claim, "none"), "Pending", "an empty class is a choice");
}

#[test]
fn the_smallest_free_volume_that_fits_is_taken() {
    // Volumes with their size and what is different about them; the one that a claim of 2Gi without a class gets.
    let claimed = json!({"claimRef": {"namespace": NAMESPACE, "name": "other"}});
    let meant = json!({"claimRef": {"namespace": NAMESPACE, "name": "c"}});
    type Volumes<'a> = Vec<(&'a str, &'a str, Value)>;
    let table: Vec<(&str, Volumes<'_>, Value, Option<&str>)> = vec![
        ("none", vec![], json!({}), None),
        ("the smaller one", vec![("v1", "9Gi", json!({})), ("v2", "3Gi", json!({}))], json!({}), Some("v2")),
        ("the first by name", vec![("v2", "3Gi", json!({})), ("v1", "3Gi", json!({}))], json!({}), Some("v1")),
        ("too small", vec![("v1", "1Gi", json!({}))], json!({}), None),
        ("another class", vec![("v1", "3Gi", json!({"storageClassName": "now"}))], json!({}), None),
        ("another mode", vec![("v1", "3Gi", json!({"volumeMode": "Block"}))], json!({}), None),
        ("an access mode is missing", vec![("v1", "3Gi", json!({}))], json!({"accessModes": ["ReadWriteMany"]}), None),
        ("claimed", vec![("v1", "3Gi", claimed)], json!({}), None),
        ("meant for it", vec![("v1", "3Gi", json!({})), ("v2", "9Gi", meant)], json!({}), Some("v2")),
        ("not selected", vec![("v1", "3Gi", json!({}))], json!({"selector": {"matchLabels": {"kind": "fast"}}}), None),
    ];
    for (name, volumes, change, expected) in table {
        let mut cluster = Cluster::new();
        for (volume, size, spec) in volumes {
            cluster.static_volume(volume, size, spec);
        }
        assert!(cluster.settle());
        let mut spec = json!({"resources": {"requests": {"storage": "2Gi"}}});
        machinery::patch::merge(&mut spec, &change);
        cluster.claim("c", "", spec);
        assert!(cluster.settle());
        assert_eq!(cluster.at(Kind::Claim, "c", "spec.volumeName").as_str(), expected, "{name}");
        let phase = phase(&cluster, Kind::Claim, "c");
        assert_eq!(phase, if expected.is_some() { "Bound" } else { "Pending" }, "{name}");
    }
}

#[test]
fn a_volume_that_a_claim_names_has_to_fit_and_to_be_free() {
    for (spec, reason, message) in [
        (
            json!({"capacity": {"storage": "1Mi"}}),
            "VolumeMismatch",
            "Cannot bind to requested volume \"v\": requested PV is too small",
        ),
        (
            json!({"volumeMode": "Block"}),
            "VolumeMismatch",
            "Cannot bind to requested volume \"v\": incompatible volumeMode",
        ),
        (
            json!({"storageClassName": "x"}),
            "VolumeMismatch",
            "Cannot bind to requested volume \"v\": storageClassName does not match",
        ),
        (
            json!({"accessModes": ["ReadOnlyMany"]}),
            "VolumeMismatch",
            "Cannot bind to requested volume \"v\": incompatible accessMode",
        ),
        (
            json!({"claimRef": {"namespace": NAMESPACE, "name": "other"}}),
            "FailedBinding",
            "volume \"v\" already bound to a different claim.",
        ),
    ] {
        let mut cluster = Cluster::new();
        cluster.static_volume("v", "3Gi", spec);
        cluster.claim("c", "", json!({"volumeName": "v"}));
        assert!(cluster.settle());
        assert_eq!(cluster.said(reason), Some(message));
        assert_eq!(phase(&cluster, Kind::Claim, "c"), "Pending");
    }
    let mut cluster = Cluster::new();
    cluster.static_volume("v", "3Gi", json!({}));
    cluster.claim("c", "", json!({"volumeName": "v"}));
    assert!(cluster.settle());
    assert_eq!(phase(&cluster, Kind::Claim, "c"), "Bound");
    let annotations = cluster.at(Kind::Claim, "c", "metadata.annotations");
    assert!(annotations["pv.kubernetes.io/bound-by-controller"].is_null(), "the user has chosen it");
}

#[test]
fn a_claim_in_use_stays_and_its_volume_with_it() {
    let mut cluster = Cluster::new();
    cluster.claim("c", "now", json!({}));
    assert!(cluster.settle());
    cluster.pod("p", "c", Some("n1"));
    cluster.delete(Kind::Claim, "c");
    assert!(cluster.settle());
    assert_eq!(phase(&cluster, Kind::Claim, "c"), "Bound");
    assert!(cluster.volumes.contains_key("h-pvc-u1"));
    // The Pod has ended, and its node has not unmounted the volume yet.
    cluster.objects.pods.get_mut("p").unwrap()["status"] = json!({"phase": "Succeeded"});
    cluster.in_use.push("h-pvc-u1".to_owned());
    assert!(cluster.settle());
    assert_eq!(phase(&cluster, Kind::Claim, "c"), "gone");
    assert_eq!(phase(&cluster, Kind::Volume, "pvc-u1"), "Released");
    assert!(cluster.volumes.contains_key("h-pvc-u1"));
    cluster.in_use.clear();
    assert!(cluster.settle());
    assert_eq!(phase(&cluster, Kind::Volume, "pvc-u1"), "gone");
    assert!(cluster.volumes.is_empty());
}

#[test]
fn what_happens_to_a_released_volume_is_its_policy() {
    let mut cluster = Cluster::new();
    cluster.claim("c", "kept", json!({}));
    assert!(cluster.settle());
    cluster.delete(Kind::Claim, "c");
    assert!(cluster.settle());
    assert_eq!(phase(&cluster, Kind::Volume, "pvc-u1"), "Released");
    // It is not given to the next claim of that name.
    cluster.claim("c", "kept", json!({}));
    assert!(cluster.settle());
    assert_eq!(cluster.at(Kind::Claim, "c", "spec.volumeName"), "pvc-u3");
    // Whoever wants the data takes the reference away.
    cluster.change(Kind::Volume, "pvc-u1", &json!({"spec": {"claimRef": null}}));
    assert!(cluster.settle());
    assert_eq!(phase(&cluster, Kind::Volume, "pvc-u1"), "Available");
    cluster.claim("d", "kept", json!({"volumeName": "pvc-u1"}));
    assert!(cluster.settle());
    assert_eq!(phase(&cluster, Kind::Claim, "d"), "Bound");
    cluster.delete(Kind::Claim, "d");
    cluster.delete(Kind::Volume, "pvc-u1");
    assert!(cluster.settle());
    assert_eq!(phase(&cluster, Kind::Volume, "pvc-u1"), "gone");
    assert!(cluster.volumes.contains_key("h-pvc-u1"), "the object goes, what it kept stays");

    for (policy, expected) in [("Retain", "Released"), ("Delete", "Failed"), ("Recycle", "Failed")] {
        let mut cluster = Cluster::new();
        cluster.static_volume("v", "3Gi", json!({"persistentVolumeReclaimPolicy": policy}));
        cluster.claim("c", "", json!({"volumeName": "v"}));
        assert!(cluster.settle());
        cluster.delete(Kind::Claim, "c");
        assert!(cluster.settle());
        assert_eq!(phase(&cluster, Kind::Volume, "v"), expected, "{policy}");
        assert_eq!(cluster.said("VolumeFailedDelete").is_some(), expected == "Failed");
    }
}

#[test]
fn a_volume_deleted_by_hand_stays_while_it_is_bound_and_takes_its_content_along() {
    let mut cluster = Cluster::new();
    cluster.claim("c", "now", json!({}));
    assert!(cluster.settle());
    cluster.delete(Kind::Volume, "pvc-u1");
    assert!(cluster.settle());
    assert_eq!(phase(&cluster, Kind::Volume, "pvc-u1"), "Bound");
    cluster.delete(Kind::Claim, "c");
    assert!(cluster.settle());
    assert_eq!(phase(&cluster, Kind::Volume, "pvc-u1"), "gone");
    assert!(cluster.volumes.is_empty());
}

#[test]
fn a_claim_that_loses_its_volume_says_so() {
    let mut cluster = Cluster::new();
    cluster.static_volume("v", "3Gi", json!({}));
    cluster.claim("c", "", json!({}));
    assert!(cluster.settle());
    cluster.objects.objects.remove(&(Kind::Volume, "v".to_owned()));
    assert!(cluster.settle());
    assert_eq!(phase(&cluster, Kind::Claim, "c"), "Lost");
    let lost = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
    assert_eq!(cluster.said("ClaimLost"), Some(lost));
}

/// What the cache shows while its watch of this one object is late.
fn without(cluster: &Cluster, kind: Kind, name: &str) -> Objects {
    let mut cache = cluster.objects.clone();
    cache.objects.remove(&(kind, name.to_owned())).unwrap();
    cache
}

#[test]
fn a_volume_that_the_cache_does_not_show_yet_is_neither_lost_nor_removed() {
    let mut cluster = Cluster::new();
    cluster.claim("c", "now", json!({}));
    assert!(cluster.settle());
    let late = without(&cluster, Kind::Volume, "pvc-u1");
    assert_eq!(cluster.pass(&late, Kind::Claim, "c", usize::MAX), Pass::Again);
    assert_eq!(phase(&cluster, Kind::Claim, "c"), "Bound");

    // Provisioned and not bound yet; then the claim is deleted.
    let mut cluster = Cluster::new();
    cluster.claim("c", "now", json!({}));
    while cluster.objects.get(Kind::Volume, "pvc-u1").is_none() {
        let cache = cluster.objects.clone();
        assert_eq!(cluster.pass(&cache, Kind::Claim, "c", usize::MAX), Pass::Done);
    }
    cluster.delete(Kind::Claim, "c");
    let late = without(&cluster, Kind::Volume, "pvc-u1");
    assert_eq!(cluster.pass(&late, Kind::Claim, "c", usize::MAX), Pass::Again);
    assert!(cluster.volumes.contains_key("h-pvc-u1"), "its PersistentVolume is reclaimed, and the content with it");
    assert!(cluster.settle());
    assert!(cluster.volumes.is_empty() && cluster.keys().is_empty(), "{:?}", cluster.keys());
}

#[test]
fn nothing_is_released_or_removed_for_an_owner_that_the_cache_does_not_show_yet() {
    let mut cluster = Cluster::new();
    cluster.claim("c", "now", json!({}));
    cluster.snapshot("s", "c");
    assert!(cluster.settle());
    let late = without(&cluster, Kind::Claim, "c");
    assert_eq!(cluster.pass(&late, Kind::Volume, "pvc-u1", usize::MAX), Pass::Again);
    assert_eq!(phase(&cluster, Kind::Volume, "pvc-u1"), "Bound");
    // Marked as released by hand, or by an earlier version: the content stays all the same.
    cluster.change(Kind::Volume, "pvc-u1", &json!({"status": {"phase": "Released"}}));
    cluster.delete(Kind::Volume, "pvc-u1");
    let late = without(&cluster, Kind::Claim, "c");
    assert_eq!(cluster.pass(&late, Kind::Volume, "pvc-u1", usize::MAX), Pass::Again);
    assert!(cluster.volumes.contains_key("h-pvc-u1"));

    let content = "snapcontent-u2";
    let late = without(&cluster, Kind::Snapshot, "s");
    assert_eq!(cluster.pass(&late, Kind::Content, content, usize::MAX), Pass::Again);
    assert!(cluster.at(Kind::Content, content, "metadata.deletionTimestamp").is_null());
    cluster.delete(Kind::Content, content);
    let late = without(&cluster, Kind::Snapshot, "s");
    assert_eq!(cluster.pass(&late, Kind::Content, content, usize::MAX), Pass::Again);
    assert_eq!(cluster.snapshots.len(), 1);
}

#[test]
fn an_unfinished_volume_goes_with_its_claim() {
    let mut cluster = Cluster::new();
    cluster.claim("c", "now", json!({}));
    // Until the engine has made the volume; then the process is killed before it writes the PersistentVolume.
    let cache = cluster.objects.clone();
    cluster.pass(&cache, Kind::Claim, "c", usize::MAX);
    assert!(cluster.objects.decide(Kind::Claim, "c").iter().any(|action| matches!(action, Action::Provision(_))));
    cluster.volumes.insert("h-pvc-u1".to_owned(), 1 << 30);
    cluster.delete(Kind::Claim, "c");
    assert!(cluster.settle());
    assert_eq!(phase(&cluster, Kind::Claim, "c"), "gone");
    assert!(cluster.volumes.is_empty());
}

#[test]
fn a_claim_grows_and_says_how_far_it_got() {
    let mut cluster = Cluster::new();
    cluster.claim("c", "now", json!({}));
    assert!(cluster.settle());
    cluster.change(Kind::Claim, "c", &json!({"spec": {"resources": {"requests": {"storage": "5Gi"}}}}));
    let cache = cluster.objects.clone();
    cluster.pass(&cache, Kind::Claim, "c", usize::MAX);
    assert_eq!(cluster.at(Kind::Claim, "c", "status.conditions")[0]["type"], "Resizing");
    let claim = cluster.objects.typed::<PersistentVolumeClaim>(Kind::Claim, "c").unwrap();
    for action in crate::growth_failed(&claim, "the pool is full", now()) {
        cluster.carry_out(action);
    }
    let conditions = cluster.at(Kind::Claim, "c", "status.conditions");
    assert_eq!(conditions[1]["message"], "the pool is full");
    let claim = cluster.objects.typed::<PersistentVolumeClaim>(Kind::Claim, "c").unwrap();
    let again = crate::growth_failed(&claim, "the pool is full", now());
    assert!(matches!(again.as_slice(), [Action::Tell(_)]), "it is written once: {again:?}");
    assert_eq!(
        cluster.said("VolumeResizeFailed"),
        Some("resize volume \"pvc-u1\" by resizer \"csi.ferrovirt.io\" failed: the pool is full")
    );
    assert!(cluster.settle());
    assert_eq!(cluster.at(Kind::Claim, "c", "status.capacity.storage"), "5Gi");
    assert_eq!(cluster.at(Kind::Volume, "pvc-u1", "spec.capacity.storage"), "5Gi");
    assert_eq!(cluster.at(Kind::Claim, "c", "status.conditions"), json!([]));
    assert_eq!(cluster.volumes["h-pvc-u1"], 5 << 30);

    cluster.static_volume("v", "3Gi", json!({}));
    cluster.claim("s", "", json!({"volumeName": "v"}));
    assert!(cluster.settle());
    cluster.change(Kind::Claim, "s", &json!({"spec": {"resources": {"requests": {"storage": "5Gi"}}}}));
    assert!(cluster.settle());
    assert_eq!(cluster.said("ExternalExpanding"), Some("waiting for an external controller to expand this PVC"));
}

#[test]
fn a_claim_is_filled_from_another_one_or_from_a_snapshot() {
    let mut cluster = Cluster::new();
    cluster.claim("c", "now", json!({}));
    assert!(cluster.settle());
    let of_claim = json!({"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "c"}});
    let of_snapshot =
        json!({"dataSourceRef": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"}});
    cluster.claim("clone", "now", of_claim.clone());
    cluster.snapshot("s", "c");
    cluster.claim("restored", "now", of_snapshot.clone());
    assert!(cluster.settle());
    for name in ["clone", "restored"] {
        assert_eq!(phase(&cluster, Kind::Claim, name), "Bound", "{name}");
    }
    let status = cluster.at(Kind::Snapshot, "s", "status");
    assert_eq!((&status["readyToUse"], &status["restoreSize"]), (&json!(true), &json!("1Gi")));
    assert!(cluster.said("SnapshotReady").is_some());
    let finalizers = cluster.at(Kind::Claim, "c", "metadata.finalizers");
    assert_eq!(finalizers, json!([crate::CLAIM_FINALIZER]), "the source may go");

    for (spec, why) in [
        (of_claim.clone(), "requested 536870912 but source is 1073741824"),
        (of_snapshot.clone(), "requested volume size 536870912 is less than the size 1073741824"),
    ] {
        let mut spec = spec;
        spec["resources"] = json!({"requests": {"storage": "512Mi"}});
        cluster.claim("small", "now", spec);
        assert!(cluster.settle());
        let said = cluster.said("ProvisioningFailed").unwrap().to_owned();
        assert!(said.contains(why), "{said}");
        cluster.delete(Kind::Claim, "small");
        assert!(cluster.settle());
    }
    for source in [of_claim, of_snapshot] {
        let mut spec = source;
        spec["volumeMode"] = json!("Block");
        cluster.claim("block", "now", spec);
        assert!(cluster.settle());
        let said = cluster.said("ProvisioningFailed").unwrap().to_owned();
        assert!(said.contains("modifies the mode of the source volume from Filesystem to Block"), "{said}");
        cluster.delete(Kind::Claim, "block");
        assert!(cluster.settle());
    }
}

#[test]
fn a_snapshot_outlives_its_source_and_goes_with_its_content() {
    let mut cluster = Cluster::new();
    cluster.claim("c", "now", json!({}));
    assert!(cluster.settle());
    cluster.snapshot("s", "c");
    assert!(cluster.settle());
    cluster.delete(Kind::Claim, "c");
    assert!(cluster.settle());
    assert_eq!((cluster.volumes.len(), cluster.snapshots.len()), (0, 1));
    cluster.delete(Kind::Content, "snapcontent-u3");
    assert!(cluster.settle());
    assert_eq!(cluster.snapshots.len(), 1, "the VolumeSnapshot holds its content");
    cluster.delete(Kind::Snapshot, "s");
    assert!(cluster.settle());
    assert_eq!(cluster.snapshots.len(), 0);
    assert!(
        cluster.keys().iter().all(|(kind, _)| *kind == Kind::Volume || *kind == Kind::Claim),
        "{:?}",
        cluster.keys()
    );
}

#[test]
fn a_snapshot_that_cannot_be_taken_says_why() {
    let mut cluster = Cluster::new();
    cluster.snapshot("s", "c");
    assert!(cluster.settle());
    let said = |cluster: &Cluster| cluster.at(Kind::Snapshot, "s", "status.error.message").as_str().unwrap().to_owned();
    assert!(said(&cluster).contains("persistentvolumeclaims \"c\" not found"), "{}", said(&cluster));
    cluster.claim("c", "later", json!({}));
    assert!(cluster.settle());
    assert!(said(&cluster).contains("the PVC c is not yet bound to a PV"), "{}", said(&cluster));
    cluster.select("c");
    cluster.objects.snapshot_classes.clear();
    assert!(cluster.settle());
    assert!(said(&cluster).contains("cannot find default snapshot class"), "{}", said(&cluster));
    cluster.objects.snapshot_classes = Cluster::new().objects.snapshot_classes;
    assert!(cluster.settle());
    assert_eq!(cluster.at(Kind::Snapshot, "s", "status.readyToUse"), true);
    assert!(cluster.at(Kind::Snapshot, "s", "status.error").is_null(), "it is over");
    assert_eq!(cluster.at(Kind::Snapshot, "s", "spec.volumeSnapshotClassName"), "s");
}

#[test]
fn content_that_is_kept_is_bound_to_the_snapshot_that_it_names() {
    let mut cluster = Cluster::new();
    cluster.snapshots.insert("old".to_owned(), 1 << 30);
    cluster.create(
        Kind::Content,
        json!({"metadata": {"name": "k"}, "spec": {
            "deletionPolicy": "Retain", "driver": crate::DRIVER, "source": {"snapshotHandle": "old"},
            "volumeSnapshotRef": {"namespace": NAMESPACE, "name": "s"},
        }}),
    );
    let named =
        |name: &str| json!({"metadata": {"name": name}, "spec": {"source": {"volumeSnapshotContentName": "k"}}});
    cluster.create(Kind::Snapshot, named("t"));
    cluster.create(Kind::Snapshot, named("s"));
    assert!(cluster.settle());
    assert_eq!(cluster.at(Kind::Snapshot, "s", "status.readyToUse"), true);
    let misbound = "VolumeSnapshotContent [k] is bound to a different snapshot";
    assert_eq!(cluster.at(Kind::Snapshot, "t", "status.error.message"), misbound);
    cluster.delete(Kind::Snapshot, "s");
    cluster.delete(Kind::Content, "k");
    assert!(cluster.settle());
    assert!(cluster.objects.get(Kind::Content, "k").is_none());
    assert!(cluster.snapshots.contains_key("old"), "it is kept in the storage");
}
