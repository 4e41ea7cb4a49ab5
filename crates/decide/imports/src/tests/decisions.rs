use api::cdi::DataVolumePhase;
use serde_json::json;

use super::{OURS, Scene, failed, of};
use crate::words::keys;
use crate::{Action, Content, Transfer};

fn import() -> Scene {
    Scene::new(json!({"http": {"url": "http://images/disk.qcow2"}}))
}

fn tells(decision: &crate::Decision) -> Vec<String> {
    decision.notes.iter().map(|note| format!("{} {}", if note.warning { "W" } else { "N" }, note.reason)).collect()
}

#[test]
fn an_import_goes_from_a_claim_to_its_content() {
    let mut scene = import();
    let first = scene.pass();
    assert_eq!(scene.phase(), "Pending");
    assert_eq!(scene.condition("Bound"), "False NotFound: No PVC found");
    assert_eq!(scene.condition("Ready"), "False : ");
    assert_eq!(scene.progress(), "N/A");
    assert_eq!(tells(&first), ["N NotFound"]);
    scene.settle();
    assert_eq!(
        (scene.phase().as_str(), scene.condition("Bound").as_str()),
        ("Pending", "False Pending: PVC disk Pending")
    );

    scene.bind(OURS);
    scene.volume = None; // the claim's event came first
    scene.settle();
    assert_eq!(scene.phase(), "PVCBound");
    scene.bind(OURS).settle();
    assert_eq!((scene.phase().as_str(), scene.transfer.clone()), ("ImportScheduled", Some(Transfer::Queued)));
    assert_eq!(scene.condition("Bound"), "True Bound: PVC disk Bound");

    scene.is(Transfer::Running { progress: None }).settle();
    assert_eq!((scene.phase().as_str(), scene.progress().as_str()), ("ImportInProgress", "N/A"));
    assert_eq!(scene.condition("Running"), "True Pod is running: ");
    assert_eq!(scene.condition("Ready"), "False TransferRunning: ");
    scene.is(Transfer::Running { progress: Some(12.34) }).settle();
    assert_eq!(scene.progress(), "12.34%");

    scene.is(Transfer::Done { preallocated: true });
    let noted = scene.pass();
    assert_eq!(scene.note(keys::PHASE), "Succeeded");
    assert_eq!(scene.note(keys::PREALLOCATION_APPLIED), "true");
    assert_eq!(noted.status, None, "the claim comes first");
    let last = scene.pass();
    assert_eq!(
        last.actions,
        [Action::Stop { because: "the claim is filled" }],
        "the volume is given back before it is told"
    );
    assert_eq!((scene.phase().as_str(), scene.progress().as_str()), ("Succeeded", "100.0%"));
    assert_eq!(scene.condition("Ready"), "True : ");
    assert_eq!(scene.condition("Running"), "False Completed: Import Complete");
    assert_eq!(tells(&last), ["N ImportSucceeded"]);
    scene.settle();
}

#[test]
fn a_failed_import_is_tried_again_after_a_growing_pause() {
    let mut scene = import();
    scene.settle().bind(OURS).settle();
    scene.is(Transfer::Running { progress: Some(5.0) }).settle();
    let why = "Unable to connect to http data source: expected status code 200, got 404";
    scene.is(failed(why, false, scene.now));
    let told = scene.pass();
    assert_eq!(told.again.map(|again| again.as_secs()), Some(10));
    let told = scene.pass();
    assert_eq!(tells(&told), ["W Error"]);
    scene.settle();
    assert_eq!(scene.phase(), "ImportInProgress");
    assert_eq!(scene.condition("Running"), format!("False Error: {why}"));
    scene.now += 9;
    assert!(scene.decide().actions.is_empty());
    scene.now += 1;
    let again = scene.pass();
    assert!(again.actions.iter().any(|action| matches!(action, Action::Start(_))), "{again:?}");
    assert_eq!(scene.note(keys::RESTARTS), "1");
    scene.is(failed(why, false, scene.now)).settle();
    assert_eq!(scene.decide().again.map(|again| again.as_secs()), Some(20));
    let status = scene.dv.clone().unwrap().status.unwrap();
    assert_eq!(status.restart_count, Some(1));
}

#[test]
fn content_that_is_not_the_promised_one_ends_it() {
    let mut scene = import();
    scene.settle().bind(OURS).settle();
    scene.is(Transfer::Running { progress: None }).settle();
    scene.is(failed("checksum mismatch: expected sha256:00, got sha256:11", true, scene.now)).settle();
    assert_eq!(scene.phase(), "Failed");
    assert!(scene.condition("Running").starts_with("False ChecksumError: checksum mismatch"));
    assert_eq!(scene.transfer, None, "nobody will try again, so the volume is given back");
    scene.now += 1000;
    assert!(scene.settle().transfer.is_none());
}

#[test]
fn another_process_begins_anew_and_counts_it() {
    let mut scene = import();
    scene.settle().bind(OURS).settle();
    scene.is(Transfer::Running { progress: Some(50.0) }).settle();
    scene.transfer = None; // killed
    let decision = scene.pass();
    assert!(matches!(decision.actions.last(), Some(Action::Start(_))));
    assert_eq!(scene.note(keys::RESTARTS), "1");
    scene.settle();
    assert_eq!(scene.phase(), "ImportInProgress", "it is no step back");
}

#[test]
fn what_is_filled_is_not_filled_again() {
    let mut scene = import();
    scene.settle().bind(OURS).settle();
    scene.is(Transfer::Done { preallocated: false }).settle();
    assert_eq!(scene.phase(), "Succeeded");
    // Somebody edits the claim.
    scene.claim.as_mut().unwrap().metadata.annotations.as_mut().unwrap().remove(keys::PHASE);
    scene.settle();
    assert_eq!((scene.phase().as_str(), scene.transfer.clone()), ("Succeeded", None));
    // Somebody deletes it: upstream makes another one, but the status says so first.
    scene.claim = None;
    scene.volume = None;
    let first = scene.pass();
    assert!(first.actions.is_empty() && scene.phase() == "Pending", "{first:?}");
    let second = scene.pass();
    assert!(matches!(second.actions.as_slice(), [Action::CreateClaim(_)]));
}

#[test]
fn a_claim_waits_for_its_consumer_unless_it_is_told_not_to() {
    let spec = json!({"source": {"blank": {}}, "storage": {"resources": {"requests": {"storage": "1Gi"}}}});
    let mut scene = Scene::with(spec);
    scene.settle();
    assert_eq!(scene.phase(), "WaitForFirstConsumer");
    assert_eq!(scene.note(keys::SELECTED_NODE), "");
    scene.bind(OURS).settle();
    assert_eq!(scene.phase(), "ImportScheduled");

    let mut now = Scene::with(scene.dv.clone().map(|dv| json!(dv.spec)).unwrap());
    let immediate = [(api::cdi::IMMEDIATE_BINDING.to_owned(), String::new())].into();
    now.dv.as_mut().unwrap().metadata.annotations = Some(immediate);
    now.settle();
    assert_eq!((now.phase().as_str(), now.note(keys::SELECTED_NODE).as_str()), ("Pending", "n1"));
}

#[test]
fn an_upload_is_offered_taken_and_offered_again_if_it_fails() {
    let mut scene = Scene::new(json!({"upload": {}}));
    scene.settle().bind(OURS).settle();
    assert_eq!(scene.phase(), "UploadScheduled");
    scene.is(Transfer::Ready { failures: 0, last: None }).settle();
    assert_eq!((scene.phase().as_str(), scene.note(keys::READY).as_str()), ("UploadReady", "true"));
    scene.is(Transfer::Running { progress: None }).settle();
    assert_eq!(scene.phase(), "UploadReady");
    scene.is(Transfer::Ready { failures: 1, last: Some("Unable to process data: bad".to_owned()) }).settle();
    assert_eq!((scene.phase().as_str(), scene.note(keys::RESTARTS).as_str()), ("UploadReady", "1"));
    assert_eq!(scene.condition("Running"), "True Pod is running: Unable to process data: bad");
    scene.is(Transfer::Done { preallocated: false }).settle();
    assert_eq!((scene.phase().as_str(), scene.note(keys::READY).as_str()), ("Succeeded", "false"));
    assert_eq!(scene.condition("Running"), "False Completed: Upload Complete");
}

#[test]
fn a_claim_without_a_data_volume_takes_an_upload_if_it_asks_for_one() {
    let mut scene = Scene::new(json!({"upload": {}}));
    scene.dv = None;
    let claim = |annotations: serde_json::Value| {
        Some(of(json!({"metadata": {"namespace": "ns", "name": "disk", "uid": "c", "annotations": annotations},
            "spec": {"storageClassName": "local"}, "status": {"phase": "Pending"}})))
    };
    scene.claim = claim(json!({}));
    assert_eq!(scene.decide(), crate::Decision::default());
    scene.claim = claim(json!({keys::UPLOAD: "", api::cdi::IMMEDIATE_BINDING: "", api::cdi::CONTENT_TYPE: "archive"}));
    scene.settle();
    assert_eq!(scene.note(keys::SELECTED_NODE), "n1");
    scene.bind(OURS);
    let decision = scene.pass();
    let [Action::Start(task)] = decision.actions.as_slice() else { panic!("{decision:?}") };
    assert_eq!((task.volume.as_str(), &task.content, task.archive), ("vol-1", &Content::Upload, true));
    scene.is(Transfer::Done { preallocated: false }).settle();
    assert_eq!((scene.note(keys::PHASE).as_str(), scene.transfer.clone()), ("Succeeded", None));
    // Orphaned by its DataVolume, it asks for nothing any more.
    scene.claim = Some(of(
        json!({"metadata": {"namespace": "ns", "name": "disk", "uid": "c", "annotations": {keys::UPLOAD: ""},
        "ownerReferences": [{"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "name": "disk", "uid": "gone",
        "controller": true}]}, "status": {"phase": "Bound"}}),
    ));
    scene.is(Transfer::Queued);
    assert!(matches!(scene.decide().actions.as_slice(), [Action::Stop { .. }]));
}

#[test]
fn what_goes_gives_its_volume_back() {
    let mut running = import();
    running.settle().bind(OURS).settle();
    running.is(Transfer::Running { progress: None }).settle();
    let deleted = json!("2026-01-01T00:00:00Z");
    let stops = |scene: &Scene| matches!(scene.decide().actions.as_slice(), [Action::Stop { .. }]);
    let mut dv = running.clone();
    dv.dv.as_mut().unwrap().metadata.deletion_timestamp = Some(of(deleted.clone()));
    assert!(stops(&dv));
    let mut gone = running.clone();
    gone.dv = None;
    assert!(stops(&gone));
    let mut claim = running.clone();
    claim.claim.as_mut().unwrap().metadata.deletion_timestamp = Some(of(deleted));
    assert!(stops(&claim));
    let mut lost = running.clone();
    lost.claim.as_mut().unwrap().status = Some(of(json!({"phase": "Lost"})));
    assert!(matches!(lost.pass().actions.as_slice(), [Action::Stop { .. }]));
    assert_eq!((lost.phase().as_str(), lost.condition("Bound").as_str()), ("Failed", "False ClaimLost: Claim Lost"));
}

#[test]
fn a_volume_in_use_is_waited_for() {
    let mut scene = import();
    scene.settle().bind(OURS).settle();
    scene.is(Transfer::Waiting { why: "volume vol-1 is in use on node n1".to_owned() });
    let decision = scene.pass();
    assert!(decision.again.is_some());
    scene.settle();
    assert_eq!(scene.phase(), "ImportScheduled");
    assert_eq!(scene.condition("Running"), "False ImportTargetInUse: volume vol-1 is in use on node n1");
}

#[test]
fn what_this_importer_cannot_do_is_said_and_no_claim_is_made() {
    for (source, word) in [
        (json!({"s3": {"url": "s3://x"}}), "s3"),
        (json!({"gcs": {"url": "gs://x"}}), "gcs"),
        (json!({"imageio": {"url": "https://x", "diskId": "1"}}), "imageio"),
        (json!({"vddk": {}}), "vddk"),
        (json!({"registry": {"imageStream": "x"}}), "imageStream"),
        (json!({"registry": {"url": "docker://x", "pullMethod": "node"}}), "pullMethod"),
        (json!({"registry": {"url": "docker://x", "platform": {"architecture": "s390x"}}}), "platform"),
    ] {
        let mut scene = Scene::new(source);
        scene.settle();
        assert_eq!((scene.phase().as_str(), scene.claim.is_none()), ("Failed", true), "{word}");
        let running = scene.condition("Running");
        assert!(running.starts_with("False NotSupported: ") && running.contains(word), "{running}");
    }
    let mut stages = import();
    stages.dv.as_mut().unwrap().spec.checkpoints = vec![Default::default()];
    stages.settle();
    assert_eq!(stages.phase(), "Failed");
    // A volume of somebody else is not touched.
    let mut other = import();
    other.settle().bind("somebody.else").settle();
    assert_eq!((other.phase().as_str(), other.transfer.clone()), ("ImportScheduled", None));
    assert!(other.condition("Running").contains("not of the driver csi.ferrovirt.io"));
}

#[test]
fn a_claim_of_somebody_else_is_not_touched_and_one_of_nobody_can_be_adopted() {
    let claim = |annotations: serde_json::Value, owners: serde_json::Value| {
        Some(of(json!({"metadata": {"namespace": "ns", "name": "disk", "uid": "c", "annotations": annotations,
            "ownerReferences": owners}, "spec": {}, "status": {"phase": "Bound"}})))
    };
    let other = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x", "controller": true}]);
    let mut scene = import();
    scene.claim = claim(json!({}), json!([]));
    scene.settle();
    assert_eq!(scene.phase(), "Pending");
    assert!(scene.condition("Bound").starts_with("False ErrResourceExists"), "{}", scene.condition("Bound"));

    let adopts = [(api::cdi::ALLOW_CLAIM_ADOPTION.to_owned(), "true".to_owned())].into();
    scene.dv.as_mut().unwrap().metadata.annotations = Some(adopts);
    scene.settle();
    assert_eq!(scene.phase(), "Succeeded", "its content is taken as it is");
    assert_eq!(scene.transfer, None);

    let mut owned = import();
    owned.dv = scene.dv.clone().map(|mut dv| {
        dv.status = None;
        dv
    });
    owned.claim = claim(json!({}), other);
    owned.settle();
    assert_eq!(owned.phase(), "Pending");

    let mut populated = import();
    populated.claim = claim(json!({api::cdi::POPULATED_FOR: "disk"}), json!([]));
    populated.settle();
    assert_eq!(populated.phase(), "Succeeded");
}

#[test]
fn a_quota_and_a_bad_claim_are_told_in_the_condition() {
    let scene = import();
    let now = jiff::Timestamp::from_second(scene.now).unwrap();
    let status = crate::over_quota(scene.dv.as_ref().unwrap(), "exceeded quota: disks", now);
    assert_eq!(status.phase, Some(DataVolumePhase::Pending));
    let bound = &status.conditions[0];
    assert_eq!(
        (bound.reason.as_deref(), bound.message.as_deref()),
        (Some("ErrExceededQuota"), Some("exceeded quota: disks"))
    );

    let mut archive =
        Scene::with(json!({"contentType": "archive", "source": {"http": {"url": "http://x/a.tar"}}, "storage": {
        "volumeMode": "Block", "resources": {"requests": {"storage": "1Gi"}}}}));
    let told = archive.pass();
    assert!(archive.condition("Bound").contains("ErrClaimNotValid: ContentType Archive cannot have block volumeMode"));
    assert_eq!(tells(&told), ["W ErrClaimNotValid"]);
    let again = archive.pass();
    assert!(again.notes.is_empty() && again.status.is_none(), "it is told once");
}

#[test]
fn a_claim_is_reserved_until_it_is_filled() {
    let mut scene = import();
    scene.settle();
    assert!(crate::is_reserved(scene.claim.as_ref().unwrap()), "from its creation");
    scene.bind(OURS).settle();
    scene.is(Transfer::Running { progress: None }).settle();
    assert!(crate::is_reserved(scene.claim.as_ref().unwrap()));
    scene.is(Transfer::Done { preallocated: false }).settle();
    assert!(!crate::is_reserved(scene.claim.as_ref().unwrap()));
    let plain = of(json!({"metadata": {"name": "x"}}));
    assert!(!crate::is_reserved(&plain));
}

#[test]
fn a_holders_name_tells_its_claim() {
    let claim = of(json!({"metadata": {"namespace": "ns", "name": "disk", "uid": "u-1"}}));
    let holder = crate::holder(&claim).unwrap();
    assert_eq!(crate::claim_of_holder(&holder), Some(("ns", "disk", "u-1")));
    for other in ["", "somebody", "the import into claim x"] {
        assert_eq!(crate::claim_of_holder(other), None);
    }
}
