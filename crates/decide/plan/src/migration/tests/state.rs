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
        Action::Create { object: Object::Claim(claim), .. } => Some(*claim),
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
    assert!(start(&w, Some(&source())).iter().any(|a| matches!(a, Action::Own(Own::CreateTarget { .. }))));
}

#[test]
fn on_arrival_the_targets_claim_becomes_the_guests_before_the_old_one_goes() {
    let w = apart("Running", course("ready"), vec![target("running")]);
    let actions = decide(&w);
    let of_claims: Vec<&Action> = actions
        .iter()
        .filter(|a| matches!(a, Action::Patch { kind: Of::Claim, .. } | Action::Delete { kind: Of::Claim, .. }))
        .collect();
    let [
        Action::Patch { kind: Of::Claim, name, patch: Patch::Json(patch), .. },
        Action::Delete { kind: Of::Claim, name: old, .. },
    ] = of_claims.as_slice()
    else {
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
            Action::Delete { kind: Of::Claim, name, .. } => Some(name),
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
    assert!(actions.iter().any(|a| matches!(a, Action::Own(Own::Recover { .. }))), "{actions:?}");
    assert_eq!((phase_after(&w).as_str(), waits_for(&w).as_str()), ("Running", "Recovering"));
    let made = recover(&w, None, "gone");
    let Some(Action::Create { object: Object::Job(job), .. }) = made.first() else { panic!("{made:?}") };
    assert_eq!(job.metadata.name.as_deref(), Some("recover-m"));
    let spec = job.spec.as_ref().unwrap();
    assert_eq!((spec.backoff_limit, spec.active_deadline_seconds), (Some(0), Some(30)));
}

fn job(condition: Value) -> Job {
    serde_json::from_value(
        json!({"metadata": {"name": "recover-m", "uid": "j", "ownerReferences": [{"apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachineInstanceMigration", "name": "m", "uid": "uid-of-m", "controller": true}]},
            "status": {"conditions": [condition]}}),
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
            Action::Delete { kind: Of::Claim, name, .. } => Some(name.clone()),
            Action::Delete { kind: Of::Job, .. } => Some("the Job".to_owned()),
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

/// The same, after the target's claim has become the guest's.
fn handed_over(phase: &str, state: Value, pods: Vec<Pod>) -> World {
    let mut w = apart(phase, state, pods);
    w.state_claims = vec![claim("copy", "ReadWriteOnce", json!({api::labels::PERSISTENT_STATE_FOR: "vm"}))];
    w
}

#[test]
fn a_migration_succeeds_when_the_claims_have_followed_the_guest_and_not_before() {
    let pods = || vec![target("running")];
    assert_eq!(phase_after(&apart("Running", course("completed"), pods())), "Running");
    assert_eq!(phase_after(&handed_over("Running", course("completed"), pods())), "Succeeded");
}

#[test]
fn a_claim_that_the_cache_does_not_show_is_waited_for() {
    let mut w = apart("Running", course("completed"), vec![target("running")]);
    w.state_claims.pop();
    let actions = decide(&w);
    assert!(
        !actions
            .iter()
            .any(|a| matches!(a, Action::Patch { kind: Of::Pod, .. } | Action::Delete { kind: Of::Claim, .. })),
        "{actions:?}"
    );
    assert_eq!(phase_after(&w), "Running");
    // Nor does it mean that there is none: the guest's state may be in it.
    let mut w = apart("Running", course("sending"), vec![target("failed")]);
    w.state_claims.pop();
    assert!(decide(&w).iter().any(|a| matches!(a, Action::Own(Own::Recover { .. }))));
}

#[test]
fn a_guest_that_ends_after_its_claim_has_followed_it_had_arrived() {
    let w = handed_over("Running", course("ready"), vec![target("failed")]);
    let actions = decide(&w);
    assert!(
        !actions.iter().any(|a| matches!(a, Action::Own(Own::Recover { .. }) | Action::Delete { kind: Of::Claim, .. })),
        "{actions:?}"
    );
    assert_eq!(phase_after(&w), "Succeeded");
}

#[test]
fn a_claim_that_was_made_just_before_the_end_goes_when_it_shows() {
    let actions = decide(&apart("Failed", Value::Null, vec![]));
    let doomed = |action: &Action| matches!(action, Action::Delete { kind: Of::Claim, name, .. } if name == "copy");
    let found = actions.iter().any(|action| match action {
        Action::Confirm { look: Look::NoTarget, then } => then.iter().any(doomed),
        action => doomed(action),
    });
    assert!(found, "{actions:?}");
}

#[test]
fn before_the_hand_off_the_guests_pod_tells_which_claim_it_keeps_its_state_in() {
    let mut w = apart("Pending", Value::Null, vec![]);
    let mut home = source();
    home.spec.get_or_insert_default().volumes = Some(
        serde_json::from_value(json!([{"name": "vm-state", "persistentVolumeClaim": {"claimName": "newer"}}])).unwrap(),
    );
    w.pods = vec![Arc::new(home)];
    let actions = decide(&w);
    let state = written(&actions).unwrap().status.clone().unwrap().migration_state.unwrap();
    assert_eq!(state.source_persistent_state_pvc_name.as_deref(), Some("newer"));
}

#[test]
fn an_instance_that_has_lost_the_state_of_its_migration_is_no_reason_to_throw_claims_away() {
    let actions = decide(&apart("Running", Value::Null, vec![target("running")]));
    let [Action::Confirm { look: Look::SameState, then }] = actions.as_slice() else { panic!("{actions:?}") };
    assert!(then.iter().any(|a| matches!(a, Action::Own(Own::Recover { .. }))), "{then:?}");
}

#[test]
fn a_job_of_an_earlier_migration_of_this_name_has_not_looked_for_this_one() {
    let w = apart("Running", course("sending"), vec![target("failed")]);
    let mut old = job(json!({"type": "Complete", "status": "True"}));
    old.metadata.owner_references.as_mut().unwrap()[0].uid = "uid-of-another".to_owned();
    let actions = recover(&w, Some(&old), "gone");
    assert!(
        matches!(actions.as_slice(), [Action::Delete { kind: Of::Job, .. }, Action::Own(Own::RequeueAfter { .. })]),
        "{actions:?}"
    );
}

/// A Job would find that the guest has left its claim, and take that for the work of a migration that had only waited.
#[test]
fn a_migration_that_the_nodes_never_had_asks_no_job() {
    let mut w = apart("Pending", Value::Null, vec![]);
    Arc::make_mut(w.vmi.as_mut().unwrap()).status_mut().phase = Some("Failed".into());
    let actions = decide(&w);
    let [Action::Confirm { look: Look::SameState, then }] = actions.as_slice() else { panic!("{actions:?}") };
    assert!(!then.iter().any(|a| matches!(a, Action::Own(Own::Recover { .. }))), "{then:?}");
    assert_eq!(
        written(&actions).and_then(|m| m.status.clone()?.phase).map(|p| p.as_str().to_owned()).as_deref(),
        Some("Failed")
    );
}

#[test]
fn no_claim_is_made_before_it_is_known_whether_both_nodes_can_use_the_guests() {
    let mut w = world(migration("Pending"), keeping(Value::Null), vec![]);
    w.state_claims = vec![own("ReadWriteOnce")];
    Arc::make_mut(&mut w.state_claims[0]).status = None;
    assert_eq!(made(&w), None);
}

#[test]
fn a_target_on_the_node_of_its_ended_source_does_not_hide_the_sources_claim() {
    let mut there = target("running");
    let spec = there.spec.as_mut().unwrap();
    spec.node_name = Some("n1".to_owned());
    let mounted = json!([{"name": render::STATE_VOLUME, "persistentVolumeClaim": {"claimName": "copy"}}]);
    spec.volumes = serde_json::from_value(mounted).unwrap();
    let mut w = apart("Scheduling", Value::Null, vec![there]);
    let mut ended = (*w.vmi.take().unwrap()).clone();
    ended.status_mut().phase = Some("Succeeded".into());
    w.vmi = Some(Arc::new(ended));
    w.pods.retain(|pod| pod.metadata.name.as_deref() != Some("source"));
    let effects = decide(&w);
    let [Action::Confirm { look: Look::SameState, then }] = effects.as_slice() else { panic!("{effects:?}") };
    let doomed = |effect: &Action| matches!(effect, Action::Delete { kind: Of::Claim, name, .. } if name == "copy");
    assert!(then.iter().any(doomed), "the target's claim is left: {then:?}");
}
