use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};

use super::{OURS, Objects, Scene, classes, of};
use crate::Action;

fn claim(spec: Value) -> Result<PersistentVolumeClaim, String> {
    let mut scene = Scene::with(spec);
    let decision = scene.pass();
    match decision.actions.into_iter().next() {
        Some(Action::CreateClaim(claim)) => Ok(*claim),
        _ => Err(scene.condition("Bound")),
    }
}

fn shape(claim: &PersistentVolumeClaim) -> String {
    let spec = json!(claim.spec);
    format!(
        "{} {} {} {}",
        spec["storageClassName"].as_str().unwrap_or("-"),
        spec["accessModes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
        spec["volumeMode"].as_str().unwrap_or("-"),
        spec["resources"]["requests"]["storage"].as_str().unwrap_or("-"),
    )
}

#[test]
fn what_storage_leaves_out_comes_from_the_profile_and_pvc_is_taken_as_it_is() {
    let storage = |storage: Value| json!({"source": {"blank": {}}, "storage": storage});
    let gib = json!({"requests": {"storage": "1Gi"}});
    for (spec, expected) in [
        (storage(json!({"resources": gib})), "local ReadWriteMany Filesystem 1132797625"),
        (storage(json!({"resources": gib, "volumeMode": "Block"})), "local ReadWriteMany Block 1073741824"),
        (
            storage(json!({"resources": gib, "accessModes": ["ReadWriteOnce"]})),
            "local ReadWriteOnce Filesystem 1132797625",
        ),
        (
            storage(json!({"resources": gib, "storageClassName": "other", "accessModes": ["ReadWriteOnce"]})),
            "other ReadWriteOnce - 1132797625",
        ),
        (
            json!({"source": {"blank": {}}, "pvc": {"accessModes": ["ReadWriteOnce"], "resources": gib}}),
            "- ReadWriteOnce - 1Gi",
        ),
    ] {
        assert_eq!(shape(&claim(spec.clone()).unwrap()), expected, "{spec}");
    }
    for (spec, word) in [
        (
            storage(json!({"resources": gib, "storageClassName": "other"})),
            "no accessMode specified in StorageProfile other",
        ),
        (storage(json!({"resources": gib, "storageClassName": "none"})), "no storageClass to choose profile"),
        (storage(json!({})), "missing storage size"),
        (storage(json!({"resources": {"requests": {"storage": "100Ki"}}})), "at least 1MiB"),
        (json!({"source": {"blank": {}}}), "datavolume one of {pvc, storage} field is required"),
    ] {
        let why = claim(spec.clone()).unwrap_err();
        assert!(why.starts_with("False ErrClaimNotValid: ") && why.contains(word), "{spec}: {why}");
    }
}

#[test]
fn a_claim_says_what_it_is_for() {
    let mut scene = Scene::new(json!({"http": {"url": "http://x"}}));
    let dv = scene.dv.as_mut().unwrap();
    dv.metadata.labels = Some([("team".to_owned(), "a".to_owned())].into());
    dv.metadata.annotations =
        Some([("own".to_owned(), "b".to_owned()), (api::cdi::POPULATED_FOR.to_owned(), "disk".to_owned())].into());
    scene.pass();
    let metadata = json!(scene.claim.unwrap().metadata);
    let owner = &metadata["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["uid"], &owner["controller"]),
        (&json!("DataVolume"), &json!("dv-1"), &json!(true))
    );
    assert_eq!(metadata["labels"]["team"], "a");
    assert_eq!(metadata["labels"]["app"], "containerized-data-importer");
    let annotations = &metadata["annotations"];
    assert_eq!(annotations["own"], "b");
    assert_eq!(annotations["cdi.kubevirt.io/createdForDataVolume"], "dv-1");
    assert_eq!(annotations["cdi.kubevirt.io/storage.contentType"], "kubevirt");
    assert_eq!(annotations["cdi.kubevirt.io/storage.pod.phase"], "Pending");
    assert_eq!(annotations["cdi.kubevirt.io/storage.populatedFor"], Value::Null, "not before it is true");
}

/// A scene with a source claim and a snapshot of it.
fn clone_scene(spec: Value) -> Scene {
    let mut scene = Scene::with(spec);
    let source = |name: &str, annotations: Value| -> PersistentVolumeClaim {
        of(json!({"metadata": {"namespace": "ns", "name": name, "annotations": annotations},
            "spec": {"storageClassName": "local", "volumeMode": "Block", "accessModes": ["ReadWriteMany"],
                     "resources": {"requests": {"storage": "3Gi"}}},
            "status": {"phase": "Bound", "capacity": {"storage": "4Gi"}}}))
    };
    let half = json!({"cdi.kubevirt.io/storage.pod.phase": "Running"});
    let archive = json!({"cdi.kubevirt.io/storage.contentType": "archive"});
    scene.objects = Objects {
        classes: classes(),
        claims: vec![source("golden", json!({})), source("half", half), source("archive", archive)],
        snapshots: vec![
            of(
                json!({"metadata": {"namespace": "ns", "name": "snap"}, "spec": {"source": {"persistentVolumeClaimName": "golden"}},
                "status": {"readyToUse": true, "restoreSize": "5Gi"}}),
            ),
            of(
                json!({"metadata": {"namespace": "ns", "name": "early"}, "spec": {"source": {"persistentVolumeClaimName": "golden"}}}),
            ),
        ],
        data_sources: vec![
            of(
                json!({"metadata": {"namespace": "ns", "name": "os"}, "spec": {"source": {"pvc": {"namespace": "ns", "name": "golden"}}}}),
            ),
            of(json!({"metadata": {"namespace": "ns", "name": "empty"}, "spec": {"source": {}}})),
        ],
        ..Objects::default()
    };
    scene
}

#[test]
fn a_clone_is_a_claim_with_a_data_source() {
    let pvc =
        |name: &str, storage: Value| json!({"source": {"pvc": {"namespace": "ns", "name": name}}, "storage": storage});
    let snapshot = |name: &str| json!({"source": {"snapshot": {"namespace": "ns", "name": name}}, "storage": {}});
    let source_ref = |name: &str| json!({"sourceRef": {"kind": "DataSource", "name": name}, "storage": {}});
    for (spec, expected, kind, name) in [
        (pvc("golden", json!({})), "local ReadWriteMany Block 4294967296", "PersistentVolumeClaim", "golden"),
        (
            pvc("golden", json!({"resources": {"requests": {"storage": "3Gi"}}})),
            "local ReadWriteMany Block 4294967296",
            "PersistentVolumeClaim",
            "golden",
        ),
        (
            pvc("golden", json!({"storageClassName": "local-immediate"})),
            "local-immediate ReadWriteMany Block 4294967296",
            "PersistentVolumeClaim",
            "golden",
        ),
        (
            pvc("golden", json!({"resources": {"requests": {"storage": "9Gi"}}})),
            "local ReadWriteMany Block 9663676416",
            "PersistentVolumeClaim",
            "golden",
        ),
        (snapshot("snap"), "local ReadWriteMany Block 5368709120", "VolumeSnapshot", "snap"),
        (source_ref("os"), "local ReadWriteMany Block 4294967296", "PersistentVolumeClaim", "golden"),
    ] {
        let mut scene = clone_scene(spec.clone());
        scene.pass();
        let claim = scene.claim.unwrap();
        assert_eq!(shape(&claim), expected, "{spec}");
        let spec = json!(claim.spec);
        assert_eq!((&spec["dataSource"]["kind"], &spec["dataSource"]["name"]), (&json!(kind), &json!(name)));
        assert_eq!((&spec["dataSourceRef"]["kind"], &spec["dataSourceRef"]["name"]), (&json!(kind), &json!(name)));
    }
    for (spec, reason, word) in [
        (pvc("gone", json!({})), "CloneWithoutSource", "The source pvc gone doesn't exist"),
        (pvc("half", json!({})), "ImportPVCNotReady", "not fully imported"),
        (pvc("archive", json!({})), "CloneValidationFailed", "contentType (archive) and target contentType (kubevirt)"),
        (pvc("golden", json!({"volumeMode": "Filesystem"})), "CloneValidationFailed", "volumeMode Block"),
        (
            pvc("golden", json!({"resources": {"requests": {"storage": "1Gi"}}})),
            "CloneValidationFailed",
            "smaller than the source",
        ),
        (snapshot("early"), "SnapshotNotReady", "not ready"),
        (snapshot("gone"), "CloneWithoutSource", "The source snapshot gone doesn't exist"),
        (source_ref("gone"), "CloneWithoutSource", "dataSource ns/gone"),
        (source_ref("empty"), "CloneWithoutSource", "names no claim"),
        (
            json!({"source": {"pvc": {"namespace": "other", "name": "golden"}}, "storage": {}}),
            "CloneValidationFailed",
            "namespace other",
        ),
    ] {
        let mut scene = clone_scene(spec.clone());
        let decision = scene.pass();
        let bound = scene.condition("Bound");
        assert!(
            scene.claim.is_none() && bound.starts_with(&format!("False {reason}: ")) && bound.contains(word),
            "{spec}: {bound}"
        );
        assert!(decision.again.is_some(), "the source may come");
    }
}

#[test]
fn a_clone_has_its_phases() {
    let mut scene = clone_scene(json!({"source": {"pvc": {"namespace": "ns", "name": "golden"}},
        "storage": {"storageClassName": "local-immediate"}}));
    scene.settle();
    assert_eq!(scene.phase(), "CSICloneInProgress");
    // The source may go while the storage copies.
    scene.objects.claims.clear();
    scene.bind(OURS).settle();
    assert_eq!((scene.phase().as_str(), scene.progress().as_str()), ("Succeeded", "100.0%"));
    assert_eq!(scene.condition("Running"), "False Completed: Clone Complete");
    assert_eq!(scene.transfer, None);
    let mut waits = clone_scene(json!({"source": {"snapshot": {"namespace": "ns", "name": "snap"}}, "storage": {}}));
    waits.settle();
    assert_eq!(waits.phase(), "WaitForFirstConsumer");
}
