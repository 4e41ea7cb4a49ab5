use json_patch::PatchOperation;

use super::super::decide;
use super::*;

#[test]
fn an_instance_of_the_node_agent_is_patched_and_never_replaced() {
    for phase in ["Scheduled", "Running"] {
        for pods in [vec![], vec![pod("ready")], vec![pod("failed")]] {
            let w = world(vmi(phase), pods);
            let mut actions = decide(&w);
            if let [Action::Confirm { look: Look::NoPods(_), then }] = actions.as_slice() {
                actions = then.clone();
            }
            assert!(
                !actions.iter().any(|action| matches!(action, Action::Replace(Object::Vmi(_)))),
                "{phase}: {actions:#?}"
            );
            assert!(
                actions.iter().any(|action| matches!(action, Action::Patch { kind: Kind::Vmi, .. })),
                "{phase}: {actions:#?}"
            );
        }
    }
}

#[test]
fn a_patch_touches_only_fields_that_are_the_controllers_and_guards_each() {
    let allowed = [
        "/status/conditions",
        "/status/volumeStatus",
        "/status/interfaces",
        "/status/migrationState",
        "/status/activePods",
        "/status/phase",
        "/status/launcherContainerImageVersion",
        "/metadata/labels",
        "/metadata/finalizers",
    ];
    for pods in [vec![], vec![pod("ready")]] {
        let w = world(vmi("Running"), pods);
        let actions = decide(&w);
        let patch = find_patch(&actions).unwrap();
        let mut tested = vec![];
        for operation in &patch.0 {
            let path = operation.path().to_string();
            match operation {
                PatchOperation::Test(_) => tested.push(path),
                _ => {
                    assert!(allowed.contains(&path.as_str()), "{path}");
                    let by_version = tested.iter().any(|t| t == "/metadata/resourceVersion");
                    assert!(tested.contains(&path) || by_version, "{path} is not guarded");
                }
            }
        }
        assert!(tested.contains(&"/metadata/uid".to_owned()));
    }
}

fn find_patch(actions: &[Action]) -> Option<json_patch::Patch> {
    actions.iter().find_map(|action| match action {
        Action::Patch { kind: Kind::Vmi, patch: Patch::Json(patch), .. } => Some(patch.clone()),
        Action::Confirm { look: Look::NoPods(_), then } => find_patch(then),
        _ => None,
    })
}

#[test]
fn the_synchronized_condition_belongs_to_the_node_agent_after_the_hand_over() {
    let mut running = vmi("Running");
    let theirs = api::v1::Condition::new(
        api::conditions::SYNCHRONIZED,
        api::v1::ConditionStatus::False,
        "Theirs",
        "node agent's words",
        time(0),
    );
    running.status_mut().conditions.push(theirs.clone());
    let w = world(running, vec![pod("ready")]);
    let new = written(&w, &decide(&w)).unwrap();
    assert_eq!(new.condition(api::conditions::SYNCHRONIZED), Some(&theirs));
}

#[test]
fn the_reason_of_an_end_stays_with_the_phase() {
    let why = api::v1::Condition::new(
        api::conditions::SYNCHRONIZED,
        api::v1::ConditionStatus::False,
        "Synchronizing with the Domain failed.",
        "virt-launcher no longer responds",
        time(0),
    );
    let ended = |phase| {
        let mut vmi = vmi(phase);
        vmi.status_mut().conditions.push(why.clone());
        vmi
    };
    let failed = Some(crate::SyncError::new(api::reasons::FAILED_DELETE, "no"));
    for (name, w) in [
        ("with its Pod", world(ended("Failed"), vec![pod("failed")])),
        ("after its Pod", world(ended("Failed"), vec![])),
        ("while it is deleted", world(deleting(ended("Failed")), vec![pod("failed")])),
        ("when that fails", World { failed, ..world(deleting(ended("Failed")), vec![pod("failed")]) }),
        ("also after a good end", world(ended("Succeeded"), vec![])),
    ] {
        let new = written(&w, &decide(&w)).expect("there is something to write");
        assert_eq!(new.condition(api::conditions::SYNCHRONIZED), Some(&why), "{name}");
    }
}

#[test]
fn the_stamp_travels_with_the_next_update() {
    let mut fresh = vmi("Scheduling");
    fresh.metadata.annotations = None;
    let w = world(fresh, vec![pod("creating")]);
    let new = written(&w, &decide(&w)).unwrap();
    let annotations = new.metadata.annotations.unwrap();
    assert_eq!(annotations[api::annotations::STORAGE_OBSERVED_API_VERSION], "v1");
}

#[test]
fn the_active_pods_are_those_that_exist_with_their_nodes() {
    let w = world(vmi("Scheduling"), vec![pod("new")]);
    let new = written(&w, &decide(&w)).unwrap();
    assert_eq!(new.status.unwrap().active_pods, [("pod-uid".to_owned(), String::new())].into());
}
