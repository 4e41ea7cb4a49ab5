use std::time::Duration;

use api::{conditions, reasons};

use super::super::decide;
use super::*;
use crate::SyncError;

#[test]
fn a_pending_instance_gets_the_pod_named_after_its_uid_and_nothing_else_in_that_pass() {
    let w = world(vmi("Pending"), vec![]);
    let actions = decide(&w);
    let [Action::Create { object: Object::Pod(pod), .. }, Action::Note(note)] = actions.as_slice() else {
        panic!("{actions:#?}")
    };
    assert_eq!(pod.metadata.name, decided_name(&w), "the same world gives the same name");
    assert!(machinery::meta::is_controlled_by(&pod.metadata, "vmi-uid"));
    assert_eq!((note.warning, note.reason.as_str()), (false, reasons::SUCCESSFUL_CREATE));
}

fn decided_name(w: &World) -> Option<String> {
    decide(w).into_iter().find_map(|action| match action {
        Action::Create { object: Object::Pod(pod), .. } => pod.metadata.name,
        _ => None,
    })
}

#[test]
fn no_pod_is_made_when_one_may_exist_or_none_is_wanted() {
    let behind = World { behind: Some(Duration::from_secs(9)), ..world(vmi("Pending"), vec![]) };
    assert_eq!(decide(&behind), [Action::RequeueAfter(Duration::from_secs(9))], "our writes are not visible yet");
    for w in [
        world(deleting(vmi("Pending")), vec![]),
        world(vmi("Pending"), vec![pod("new")]),
        world(vmi("Scheduling"), vec![]),
        world(vmi("Running"), vec![]),
        world(vmi("Failed"), vec![]),
    ] {
        assert_eq!(decided_name(&w), None, "{:?}", w.vmi.phase());
    }
}

#[test]
fn a_failed_creation_shows_on_the_instance_and_stays_until_one_succeeds() {
    let failed = Some(SyncError::new(reasons::FAILED_CREATE, "exceeded quota"));
    let w = World { failed, ..world(vmi("Pending"), vec![]) };
    let actions = decide(&w);
    assert_eq!(decided_name(&w), None, "one attempt per pass");
    assert!(matches!(&actions[0], Action::Note(note) if note.warning && note.message == "exceeded quota"));
    let shown = written(&w, &actions).unwrap();
    let condition = shown.condition(conditions::SYNCHRONIZED).unwrap();
    assert_eq!((condition.reason(), condition.message()), (reasons::FAILED_CREATE, "exceeded quota"));

    let retry = world(shown.clone(), vec![]);
    assert_eq!(written(&retry, &decide(&retry)), None, "the next attempt does not claim success in advance");
    let w = world(shown, vec![gated("new")]);
    assert_eq!(written(&w, &decide(&w)).unwrap().condition(conditions::SYNCHRONIZED), None);
}

fn gated(state: &str) -> Pod {
    let mut pod = pod(state);
    pod.status.as_mut().unwrap().conditions = super::pod("ready").status.unwrap().conditions;
    pod
}

#[test]
fn an_instance_that_cannot_become_a_pod_says_so_once() {
    let mut odd = vmi("Pending");
    let memory = k8s_openapi::apimachinery::pkg::api::resource::Quantity("a lot".into());
    odd.spec.domain.resources.as_mut().unwrap().requests.insert("memory".into(), memory);
    let w = world(odd, vec![]);
    let actions = decide(&w);
    assert!(
        matches!(&actions[0], Action::Note(note) if note.warning && note.message.contains("a lot")),
        "{actions:#?}"
    );
    let shown = written(&w, &actions).unwrap();
    assert_eq!(decide(&world(shown, vec![])), [], "the same refusal is not written twice");
}

#[test]
fn deletion_takes_every_pod_once_and_an_ended_one_at_once() {
    let deletes = |state: &str| -> Vec<bool> {
        let actions = decide(&world(deleting(vmi("Running")), vec![pod(state)]));
        let at_once = |action: &Action| match action {
            Action::Delete { kind: Kind::Pod, uid, grace_seconds, .. } => {
                assert_eq!(uid, "pod-uid");
                Some(*grace_seconds == Some(0))
            }
            _ => None,
        };
        actions.iter().filter_map(at_once).collect()
    };
    assert_eq!(deletes("ready"), [false]);
    assert_eq!(deletes("succeeded"), [false]);
    assert_eq!(deletes("terminating"), Vec::<bool>::new());
    let mut ended = pod("terminating");
    ended.status.as_mut().unwrap().phase = Some("Failed".into());
    let actions = decide(&world(deleting(vmi("Running")), vec![ended]));
    assert!(matches!(&actions[0], Action::Delete { kind: Kind::Pod, grace_seconds: Some(0), .. }), "{actions:#?}");
}

#[test]
fn an_ended_instance_keeps_its_pod() {
    let w = world(vmi("Failed"), vec![pod("failed")]);
    assert!(!decide(&w).iter().any(|action| matches!(action, Action::Delete { kind: Kind::Pod, .. })));
}

#[test]
fn the_pause_gate_follows_the_guest() {
    let gate = |paused: bool, state: &str| -> Option<(String, String)> {
        let mut vmi = vmi("Running");
        if paused {
            let paused = api::v1::Condition::new(
                conditions::PAUSED,
                api::v1::ConditionStatus::True,
                reasons::PAUSED_BY_USER,
                "",
                time(0),
            );
            conditions::set(&mut vmi.status_mut().conditions, paused);
        }
        decide(&world(vmi, vec![pod(state)])).into_iter().find_map(|action| match action {
            Action::Patch { kind: Kind::Pod, part: Part::Status, patch: Patch::Strategic(patch), .. } => {
                let condition = set_condition(&patch);
                Some((condition.status, condition.reason.unwrap()))
            }
            _ => None,
        })
    };
    let set = |status: &str, reason: &str| Some((status.to_owned(), reason.to_owned()));
    assert_eq!(gate(false, "running"), set("True", reasons::NOT_PAUSED), "the first write");
    assert_eq!(gate(false, "ready"), None);
    assert_eq!(gate(true, "ready"), set("False", reasons::PAUSED));
    assert_eq!(gate(true, "running"), None, "a gate that was never opened need not be closed");
    assert_eq!(gate(false, "failed"), None);
}

#[test]
fn labels_and_annotations_follow_the_instance_onto_its_pod_and_off_again() {
    let evict = "descheduler.alpha.kubernetes.io/evict";
    let mut marked = vmi("Running");
    marked.metadata.annotations.get_or_insert_default().insert(evict.into(), "true".into());
    marked.status_mut().evacuation_node_name = Some("n1".into());
    let patched = |vmi: VirtualMachineInstance, pod: &Pod| -> Option<Pod> {
        decide(&world(vmi, vec![pod.clone()])).into_iter().find_map(|action| match action {
            Action::Patch { kind: Kind::Pod, patch: Patch::Json(patch), .. } => {
                let mut value = serde_json::to_value(pod).unwrap();
                machinery::patch::apply(&mut value, &patch).unwrap();
                Some(serde_json::from_value(value).unwrap())
            }
            _ => None,
        })
    };
    let on = patched(marked, &pod("ready")).unwrap();
    let annotations = on.metadata.annotations.clone().unwrap();
    assert_eq!(annotations[evict], "true");
    assert_eq!(annotations[api::annotations::DESCHEDULER_EVICTION_IN_PROGRESS], "true");
    assert_eq!(on.metadata.labels.clone().unwrap()[api::labels::NODE_NAME], "n1");
    let off = patched(vmi("Running"), &on).unwrap();
    let annotations = off.metadata.annotations.clone().unwrap();
    assert!(!annotations.contains_key(evict));
    assert!(!annotations.contains_key(api::annotations::DESCHEDULER_EVICTION_IN_PROGRESS));
    assert_eq!(patched(vmi("Running"), &off), None);
}

#[test]
fn an_outdated_launcher_is_marked() {
    let w = World {
        config: Arc::new(ClusterConfig { launcher_image: "launcher:2".into(), ..ClusterConfig::default() }),
        ..world(vmi("Running"), vec![pod("ready")])
    };
    let new = written(&w, &decide(&w)).unwrap();
    assert!(new.metadata.labels.unwrap().contains_key(api::labels::OUTDATED_LAUNCHER_IMAGE));
    assert_eq!(new.status.unwrap().launcher_container_image_version.as_deref(), Some("launcher:1"));
}
