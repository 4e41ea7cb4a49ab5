//! Target Pods of migrations that are gone.

use super::super::decide;
use super::*;

fn target(state: &str, node: Option<&str>) -> Pod {
    let mut pod = pod(state);
    pod.metadata.name = Some("stray".into());
    pod.metadata.uid = Some("stray-uid".into());
    pod.metadata.labels.get_or_insert_default().insert(api::labels::MIGRATION_JOB_UID.into(), "gone".into());
    pod.spec.as_mut().unwrap().node_name = node.map(str::to_owned);
    pod
}

fn during(state: Value) -> VirtualMachineInstance {
    let mut vmi = vmi("Running");
    vmi.status_mut().migration_state = Some(serde_json::from_value(state).unwrap());
    vmi
}

/// Whether the stray is deleted, which must be the last of two live looks' consequences.
fn removes(w: &World) -> bool {
    let actions = decide(w);
    assert!(
        !actions.iter().any(|action| matches!(action, Action::Delete { kind: Kind::Pod, .. })),
        "not without a look: {actions:?}"
    );
    let confirmed = actions.iter().find_map(|action| match action {
        Action::Confirm { look: Look::NoMigration { uid }, then } if uid == "gone" => Some(then.as_slice()),
        _ => None,
    });
    let Some([Action::Confirm { look: Look::Current, then }]) = confirmed else { return false };
    matches!(then.as_slice(), [Action::Delete { kind: Kind::Pod, name, grace_seconds: None, .. }, Action::Note(_)] if name == "stray")
}

#[test]
fn a_target_whose_migration_is_gone_is_removed_unless_the_guest_may_be_in_it() {
    let over = json!({"migrationUid": "other", "completed": true, "sourcePod": "older"});
    for (name, vmi, stray, expected) in [
        ("elsewhere", vmi("Running"), target("ready", Some("n2")), true),
        ("nowhere yet", vmi("Running"), target("new", None), true),
        ("after another migration", during(over), target("ready", Some("n2")), true),
        ("on the guest's node", vmi("Running"), target("ready", Some("n1")), false),
        ("ended", vmi("Running"), target("failed", Some("n2")), false),
        ("going", vmi("Running"), target("terminating", Some("n2")), false),
        ("no guest yet", vmi("Scheduled"), target("ready", Some("n2")), false),
        ("while a guest moves", during(json!({"migrationUid": "other"})), target("ready", Some("n2")), false),
        (
            "the guest has just left it",
            during(json!({"migrationUid": "other", "completed": true, "sourcePod": "stray"})),
            target("ready", Some("n2")),
            false,
        ),
    ] {
        let mut w = world(vmi, vec![pod("ready"), stray]);
        assert_eq!(removes(&w), expected, "{name}");
        let migration = json!({"metadata": {"name": "m", "namespace": "ns", "uid": "gone"}, "spec": {"vmiName": "vm"}});
        w.migrations = vec![Arc::new(serde_json::from_value(migration).unwrap())];
        assert!(!removes(&w), "{name}: its migration is there");
    }
}

/// It was requested by a process that no longer leads, and came when its migration was gone.
#[test]
fn a_receiver_does_not_wait_in_the_pod_of_a_migration_that_is_gone() {
    for (name, phase, stray, expected) in [
        ("it has just come", "WaitingForSync", target("new", None), true),
        ("it was taken for the Pod of the next guest", "Scheduling", target("ready", Some("n2")), true),
        ("it is handed over", "Scheduled", target("ready", Some("n1")), false),
        ("it goes", "Scheduling", target("terminating", Some("n2")), false),
    ] {
        let mut vmi = vmi(phase);
        let notes = vmi.metadata.annotations.get_or_insert_default();
        notes.insert(api::annotations::CREATE_MIGRATION_TARGET.into(), "true".into());
        assert_eq!(removes(&world(vmi, vec![stray])), expected, "{name}");
    }
}
