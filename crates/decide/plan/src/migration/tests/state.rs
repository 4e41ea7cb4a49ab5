//! The guest's own state: its claim on either side, and who finds out how it ended.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::*;
use crate::migration::{recover, start};

fn keeping(state: Value) -> VirtualMachineInstance {
    let mut guest = vmi(state);
    guest.spec.domain.devices.tpm = Some(serde_json::from_value(json!({"persistent": true})).unwrap());
    guest.status_mut().volume_status =
        serde_json::from_value(json!([{"name": "persistent-state-for-this-vm", "target": "",
        "persistentVolumeClaimInfo": {"claimName": "state"}}]))
        .unwrap();
    guest
}

fn claim(name: &str, mode: &str, labels: Value) -> Arc<PersistentVolumeClaim> {
    let object = json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("uid-of-{name}"), "labels": labels,
            "resourceVersion": "4"},
        "spec": {"accessModes": [mode], "volumeName": "pv", "storageClassName": "c"},
        "status": {"phase": "Bound", "accessModes": [mode]}});
    Arc::new(serde_json::from_value(object).unwrap())
}

fn own(mode: &str) -> Arc<PersistentVolumeClaim> {
    claim("state", mode, json!({api::labels::PERSISTENT_STATE_FOR: "vm"}))
}

fn made(w: &World) -> Option<PersistentVolumeClaim> {
    start(w, Some(&source())).into_iter().find_map(|action| match action {
        Action::CreateClaim { claim, .. } => Some(*claim),
        _ => None,
    })
}

/// A migration whose target has a claim of its own, in some phase.
fn apart(phase: &str, state: Value, pods: Vec<Pod>) -> World {
    let mut begun = migration(phase);
    let names = json!({"sourcePersistentStatePVCName": "state", "targetPersistentStatePVCName": "copy"});
    begun.status.get_or_insert_default().migration_state = Some(serde_json::from_value(names).unwrap());
    let mut w = world(begun, keeping(state), pods);
    w.state_claims =
        vec![own("ReadWriteOnce"), claim("copy", "ReadWriteOnce", json!({api::labels::MIGRATION_NAME: "m"}))];
    w
}

#[test]
fn a_claim_that_both_nodes_can_use_serves_both() {
    let mut w = world(migration("Pending"), keeping(Value::Null), vec![]);
    w.state_claims = vec![own("ReadWriteMany")];
    assert_eq!(made(&w), None);
    let actions = decide(&w);
    let state = written(&actions).unwrap().status.clone().unwrap().migration_state.unwrap();
    assert_eq!(state.source_persistent_state_pvc_name.as_deref(), Some("state"));
    assert_eq!(state.target_persistent_state_pvc_name.as_deref(), Some("state"));
}

#[test]
fn otherwise_the_target_gets_one_like_it_before_its_pod() {
    let mut w = world(migration("Pending"), keeping(Value::Null), vec![]);
    w.state_claims = vec![own("ReadWriteOnce")];
    let actions = decide(&w);
    w.migration = Arc::new(written(&actions).unwrap().clone());
    let copy = made(&w).unwrap();
    let labels = copy.metadata.labels.clone().unwrap();
    assert_eq!(labels.get(api::labels::MIGRATION_NAME).map(String::as_str), Some("m"));
    assert_eq!(labels.get(api::labels::PERSISTENT_STATE_FOR), None, "the guest has one claim at a time");
    assert_eq!(copy.spec.as_ref().unwrap().volume_name, None);
    let noted = w.migration.status.as_ref().unwrap().migration_state.as_ref().unwrap();
    assert_eq!(noted.target_persistent_state_pvc_name, copy.metadata.name, "the names are written down first");
    w.state_claims.push(Arc::new(copy));
    assert!(start(&w, Some(&source())).iter().any(|a| matches!(a, Action::CreateTarget { .. })));
}

#[test]
fn on_arrival_the_targets_claim_becomes_the_guests_before_the_old_one_goes() {
    let w = apart("Running", course("ready"), vec![target("running")]);
    let actions = decide(&w);
    let of_claims: Vec<&Action> =
        actions.iter().filter(|a| matches!(a, Action::PatchClaim { .. } | Action::DeleteClaim { .. })).collect();
    let [Action::PatchClaim { name, patch, .. }, Action::DeleteClaim { name: old, .. }] = of_claims.as_slice() else {
        panic!("{of_claims:?}")
    };
    assert_eq!((name.as_str(), old.as_str()), ("copy", "state"));
    let labels = applied(&*w.state_claims[1], patch).metadata.labels.unwrap();
    assert_eq!(labels.get(api::labels::PERSISTENT_STATE_FOR).map(String::as_str), Some("vm"));
    assert_eq!(labels.get(api::labels::MIGRATION_NAME), None);
}

#[test]
fn on_failure_the_targets_claim_goes_and_the_guests_stays() {
    let w = apart("Running", course("failed"), vec![target("running")]);
    let doomed: Vec<String> = decide(&w)
        .into_iter()
        .filter_map(|action| match action {
            Action::DeleteClaim { name, .. } => Some(name),
            _ => None,
        })
        .collect();
    assert_eq!(doomed, ["copy"]);
    assert_eq!(phase_after(&w), "Failed");
}

#[test]
fn with_a_claim_on_each_side_a_vanished_pod_is_not_the_end_until_a_job_has_looked() {
    let w = apart("Running", course("sending"), vec![target("failed")]);
    let actions = decide(&w);
    assert!(actions.iter().any(|a| matches!(a, Action::Recover { .. })), "{actions:?}");
    assert_eq!((phase_after(&w).as_str(), waits_for(&w).as_str()), ("Running", "Recovering"));
    let made = recover(&w, None, "gone");
    let Some(Action::CreateJob(job)) = made.first() else { panic!("{made:?}") };
    assert_eq!(job.metadata.name.as_deref(), Some("recover-m"));
    let spec = job.spec.as_ref().unwrap();
    assert_eq!((spec.backoff_limit, spec.active_deadline_seconds), (Some(0), Some(30)));
}

fn job(condition: Value) -> Job {
    serde_json::from_value(
        json!({"metadata": {"name": "recover-m", "uid": "j"}, "status": {"conditions": [condition]}}),
    )
    .unwrap()
}

#[test]
fn the_job_decides_which_claim_survives() {
    let w = apart("Running", course("sending"), vec![target("failed")]);
    let end = |condition: Value| {
        let actions = recover(&w, Some(&job(condition)), "gone");
        let phase = written(&actions).and_then(|m| m.status.clone()?.phase).map(|phase| phase.as_str().to_owned());
        let doomed = actions.iter().find_map(|a| match a {
            Action::DeleteClaim { name, .. } => Some(name.clone()),
            Action::DeleteJob { .. } => Some("the Job".to_owned()),
            _ => None,
        });
        (phase, doomed)
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(end(json!({"type": "Complete", "status": "True"})), (some("Succeeded"), some("state")));
    let stayed = json!({"type": "Failed", "status": "True", "reason": "PodFailurePolicy"});
    assert_eq!(end(stayed), (some("Failed"), some("copy")));
    let unclear = json!({"type": "Failed", "status": "True", "reason": "DeadlineExceeded"});
    assert_eq!(end(unclear), (None, some("the Job")));
    assert_eq!(end(json!({"type": "Complete", "status": "False"})), (None, None));
}
