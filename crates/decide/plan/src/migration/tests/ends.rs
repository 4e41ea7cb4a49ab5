//! The decision list: what ends a migration, and in which order that is asked.

use super::*;

/// A row: its number in the list, what is the case, and whether the migration fails.
struct Row {
    number: u8,
    what: &'static str,
    world: World,
    fails: bool,
}

fn row(number: u8, what: &'static str, world: World, fails: bool) -> Row {
    Row { number, what, world, fails }
}

fn ended(phase: &str) -> VirtualMachineInstance {
    let mut vmi = vmi(Value::Null);
    vmi.status_mut().phase = Some(phase.into());
    vmi
}

/// One that is to empty this node.
fn evacuation(phase: &str, node: &str) -> Migration {
    let mut migration = migration(phase);
    let notes = migration.metadata.annotations.get_or_insert_default();
    notes.insert(api::annotations::EVACUATION_MIGRATION.to_owned(), node.to_owned());
    migration
}

fn rows() -> Vec<Row> {
    let other = json!({"migrationUid": "uid-of-other", "targetNode": "n2"});
    let mut rows = vec![
        row(2, "the instance has failed", world(migration("Pending"), ended("Failed"), vec![]), true),
        row(
            2,
            "the instance has succeeded",
            world(migration("Scheduling"), ended("Succeeded"), vec![target("new")]),
            true,
        ),
        row(3, "deleted while unset", world(deleted(migration("")), vmi(Value::Null), vec![]), true),
        row(
            3,
            "deleted while Pending",
            world(deleted(migration("Pending")), vmi(Value::Null), vec![target("new")]),
            true,
        ),
        row(
            3,
            "deleted while Scheduled",
            world(deleted(migration("Scheduled")), vmi(Value::Null), vec![target("running")]),
            true,
        ),
        row(
            3,
            "deleted after the hand-off",
            world(deleted(migration("Scheduled")), vmi(course("handed off")), vec![target("running")]),
            false,
        ),
        row(3, "the guest has left its node", world(evacuation("Pending", "n0"), vmi(Value::Null), vec![]), true),
        row(
            3,
            "the guest has left its node meanwhile",
            world(evacuation("Scheduled", "n0"), vmi(Value::Null), vec![target("running")]),
            true,
        ),
        row(3, "the guest is still there", world(evacuation("Pending", "n1"), vmi(Value::Null), vec![]), false),
        row(
            3,
            "it takes the guest away itself",
            world(evacuation("Running", "n0"), vmi(course("sending")), vec![target("running")]),
            false,
        ),
        row(4, "the target has failed", world(migration("Scheduling"), vmi(Value::Null), vec![target("failed")]), true),
        row(
            4,
            "the target has ended while sending",
            world(migration("Running"), vmi(course("sending")), vec![target("succeeded")]),
            true,
        ),
        row(5, "the target is gone", world(migration("Scheduling"), vmi(Value::Null), vec![]), true),
        row(5, "no target was made yet", world(migration("Pending"), vmi(Value::Null), vec![]), false),
        row(
            6,
            "the instance lost the state",
            world(migration("Running"), vmi(Value::Null), vec![target("running")]),
            true,
        ),
        row(6, "it is not there yet", world(migration("Scheduled"), vmi(Value::Null), vec![target("running")]), false),
        row(
            7,
            "another one has the instance",
            world(migration("TargetReady"), vmi(other), vec![target("running")]),
            true,
        ),
        row(8, "the nodes say so", world(migration("Running"), vmi(course("failed")), vec![target("running")]), true),
        row(
            9,
            "deleted while the nodes prepare",
            world(deleted(migration("PreparingTarget")), vmi(course("handed off")), vec![target("running")]),
            false,
        ),
        row(11, "all is well", world(migration("Running"), vmi(course("sending")), vec![target("running")]), false),
    ];
    let mut stale = world(deleted(migration("Scheduled")), vmi(Value::Null), vec![target("running")]);
    stale.handed_off = true;
    rows.push(row(3, "deleted after a hand-off that the cache does not show", stale, false));
    rows
}

#[test]
fn every_row_of_the_list_ends_the_migration_or_does_not() {
    for Row { number, what, world, fails } in rows() {
        let actions = decide(&world);
        let after = written(&actions).unwrap_or(&world.migration);
        assert_eq!(is_failed(after), fails, "{number}: {what}: {actions:?}");
        let told = notes(&actions).contains(&"FailedMigration".to_owned());
        assert_eq!(told, fails, "{number}: {what}: an event goes with it");
        let why = after.status.as_ref().and_then(|status| status.migration_state.as_ref()?.failure_reason.clone());
        assert_eq!(why.is_some(), fails, "{number}: {what}: it says why");
    }
}

#[test]
fn a_deleted_migration_says_that_it_is_to_be_given_up() {
    for Row { what, world, .. } in rows() {
        let asked = condition_after(&world, api::conditions::MIGRATION_ABORT_REQUESTED).is_some();
        assert_eq!(asked, world.migration.metadata.deletion_timestamp.is_some(), "{what}");
    }
}

#[test]
fn a_missing_target_is_looked_for_live_before_it_ends_anything() {
    let actions = decide(&world(migration("Scheduling"), vmi(Value::Null), vec![]));
    assert!(matches!(actions.as_slice(), [Action::Confirm { look: Look::NoTarget, .. }]), "{actions:?}");
}

#[test]
fn the_finalizer_goes_in_a_final_phase_and_the_course_is_kept() {
    for phase in ["Succeeded", "Failed"] {
        let stage = if phase == "Failed" { "failed" } else { "completed" };
        let w = world(migration(phase), vmi(course(stage)), vec![target("succeeded")]);
        let actions = decide(&w);
        let stored = written(&actions).unwrap();
        assert_eq!(serde_json::to_value(&stored.status.as_ref().unwrap().migration_state).unwrap(), course(stage));
        let patch = actions.iter().find_map(|a| match a {
            Action::Patch { kind: Of::Migration, patch: Patch::Json(patch), .. } => Some(patch),
            _ => None,
        });
        assert_eq!(applied(&*w.migration, patch.unwrap()).metadata.finalizers, None);
        assert!(actions.contains(&Action::Own(Own::WakePending)), "{phase}");
    }
    for phase in ["", "Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running"] {
        let w = world(migration(phase), vmi(course("sending")), vec![target("running")]);
        assert!(!decide(&w).iter().any(|a| matches!(a, Action::Patch { kind: Of::Migration, .. })), "{phase}");
    }
}

#[test]
fn nothing_follows_an_end() {
    for phase in ["Succeeded", "Failed"] {
        for stage in ["handed off", "sending", "completed", "failed"] {
            let w = world(deleted(migration(phase)), vmi(course(stage)), vec![target("running")]);
            assert_eq!(phase_after(&w), phase, "{stage}");
        }
    }
}

#[test]
fn without_its_instance_a_migration_is_deleted_and_let_go() {
    let mut w = world(migration("Pending"), vmi(Value::Null), vec![]);
    w.vmi = None;
    let actions = decide(&w);
    let [Action::Confirm { look: Look::NoVmi, then }] = actions.as_slice() else { panic!("{actions:?}") };
    assert!(matches!(then.as_slice(), [Action::Delete { kind: Of::Migration, name, .. }] if name == "m"), "{then:?}");
    w.migration = Arc::new(deleted(migration("Pending")));
    let actions = decide(&w);
    let [Action::Confirm { look: Look::NoVmi, then }] = actions.as_slice() else { panic!("{actions:?}") };
    let [Action::Patch { kind: Of::Migration, patch: Patch::Json(patch), .. }] = then.as_slice() else {
        panic!("{then:?}")
    };
    assert_eq!(applied(&*w.migration, patch).metadata.finalizers, None);
}

#[test]
fn a_target_is_deleted_before_the_hand_off_only_while_nobody_can_have_it() {
    let table = [
        ("Pending", Value::Null, false, true),
        ("Scheduling", Value::Null, false, true),
        ("Scheduled", Value::Null, false, true),
        ("Scheduled", Value::Null, true, false),
        ("Scheduled", course("handed off"), false, false),
        ("PreparingTarget", course("handed off"), false, false),
        ("TargetReady", course("listening"), false, false),
        ("Running", course("sending"), false, false),
    ];
    for (phase, state, handed_off, expected) in table {
        let mut w = world(deleted(migration(phase)), vmi(state), vec![target("running")]);
        w.handed_off = handed_off;
        assert_eq!(deletes_target(&w), expected, "{phase}, known to be handed off: {handed_off}");
    }
}

#[test]
fn after_a_failure_the_target_goes_only_if_the_guest_is_found_elsewhere() {
    let w = world(migration("Failed"), vmi(course("failed")), vec![target("running")]);
    let actions = decide(&w);
    let confirm = actions.iter().find_map(|a| match a {
        Action::Confirm { look: Look::GuestNotOn { node }, then } => Some((node.as_str(), then)),
        _ => None,
    });
    let (node, then) = confirm.expect("the guest is looked for");
    assert_eq!(node, "n2");
    assert!(matches!(then.first(), Some(Action::Delete { kind: Of::Pod, name, .. }) if name == "target"));
    let mut moved = vmi(course("failed"));
    moved.status_mut().node_name = Some("n2".into());
    let w = world(migration("Failed"), moved, vec![target("running")]);
    assert!(!decide(&w).iter().any(|a| matches!(a, Action::Confirm { look: Look::GuestNotOn { .. }, .. })));
}

#[test]
fn what_only_we_know_to_have_failed_is_marked_on_the_instance() {
    let w = world(migration("Failed"), vmi(course("listening")), vec![]);
    let marked = patched_vmi(&w).unwrap().status.unwrap().migration_state.unwrap();
    assert_eq!((marked.failed, marked.completed), (Some(true), Some(true)));
    assert_eq!((marked.start_timestamp, marked.end_timestamp), (Some(time(100)), Some(time(100))));
    let others = json!({"migrationUid": "uid-of-other", "targetNode": "n3"});
    assert_eq!(patched_vmi(&world(migration("Failed"), vmi(others), vec![])), None, "another's state is not ours");
    assert_eq!(patched_vmi(&world(migration("Failed"), vmi(course("completed")), vec![])), None);
}

#[test]
fn why_it_failed_is_not_forgotten_when_the_nodes_never_said_it() {
    let mut failed = migration("Failed");
    let known = json!({"failed": true, "failureReason": "the instance has ended"});
    failed.status.get_or_insert_default().migration_state = serde_json::from_value(known).unwrap();
    let actions = decide(&world(failed.clone(), vmi(course("listening")), vec![]));
    let kept = written(&actions).unwrap_or(&failed).status.clone().unwrap().migration_state.unwrap();
    assert_eq!(kept.failure_reason.as_deref(), Some("the instance has ended"));
}

#[test]
fn only_the_five_youngest_ends_are_kept() {
    let mut all: Vec<Migration> = (0..8).map(|n| named(&format!("m{n}"), "Failed")).collect();
    for (n, migration) in all.iter_mut().enumerate() {
        migration.metadata.creation_timestamp = Some(time(n as i64));
    }
    all[0].status.as_mut().unwrap().migration_state = Some(serde_json::from_value(course("failed")).unwrap());
    let mut w = world(all[7].clone(), vmi(Value::Null), vec![target("failed")]);
    w.siblings = all.into_iter().map(Arc::new).collect();
    let actions = decide(&w);
    let mut gone: Vec<String> = actions
        .iter()
        .filter_map(|a| match a {
            Action::Delete { kind: Of::Migration, name, .. } => Some(name.clone()),
            _ => None,
        })
        .collect();
    gone.sort();
    assert_eq!(gone, ["m0", "m1", "m2"]);
    assert!(deletes_target(&w), "the Pod that the oldest never filled");
    w.pods.retain(|pod| pod.metadata.name.as_deref() != Some("target"));
    assert!(!deletes_target(&w));
    w.behind = Some(std::time::Duration::from_secs(1));
    let again = decide(&w)
        .iter()
        .any(|a| matches!(a, Action::Delete { kind: Of::Pod, .. } | Action::Delete { kind: Of::Migration, .. }));
    assert!(!again, "what has gone already may still be in the cache");
}

#[test]
fn a_failed_migration_is_let_go_after_a_live_look_for_its_target() {
    let lets_go =
        |actions: &[Action]| actions.iter().any(|action| matches!(action, Action::Patch { kind: Of::Migration, .. }));
    // What the cache shows of the target → whether its absence is confirmed first.
    for (phase, shown, looks) in [("Failed", None, true), ("Failed", Some("failed"), false), ("Succeeded", None, false)]
    {
        let w = world(deleted(migration(phase)), vmi(Value::Null), shown.map(target).into_iter().collect());
        let actions = decide(&w);
        let confirmed = actions
            .iter()
            .any(|action| matches!(action, Action::Confirm { look: Look::NoTarget, then } if lets_go(then)));
        assert_eq!((lets_go(&actions), confirmed), (!looks, looks), "{phase}, target {shown:?}: {actions:#?}");
    }
}

/// A process that has just begun may have a cache from before the hand-off.
#[test]
fn what_rests_on_the_nodes_not_having_it_is_decided_after_a_live_look() {
    let other = json!({"migrationUid": "uid-of-another", "targetNode": "n2", "completed": true});
    let rows = [
        ("deleted before the hand-off", deleted(migration("Scheduled")), Value::Null, true),
        ("the state is lost", migration("Running"), Value::Null, true),
        ("the state is another's", migration("Running"), other, true),
        ("the nodes have it", migration("Running"), course("sending"), false),
        ("the nodes say that it failed", migration("Running"), course("failed"), false),
    ];
    for (what, migration, state, looks) in rows {
        let actions = decide(&world(migration, vmi(state), vec![target("running")]));
        let confirmed = matches!(actions.as_slice(), [Action::Confirm { look: Look::SameState, then }] if written(then).is_some_and(is_failed));
        assert_eq!(confirmed, looks, "{what}: {actions:#?}");
    }
}

#[test]
fn the_course_is_not_taken_back_by_an_older_one() {
    for stage in ["handed off", "sending", "ready"] {
        let mut ended = migration("Succeeded");
        ended.metadata.finalizers = None;
        ended.status.as_mut().unwrap().migration_state = serde_json::from_value(course("completed")).unwrap();
        let w = world(ended, vmi(course(stage)), vec![]);
        assert!(written(&decide(&w)).is_none(), "{stage}");
    }
}

/// The receiver may wait for the room that the target takes; the sender waits for the receiver, and the target for the sender.
#[test]
fn a_target_that_was_made_beside_an_exchange_makes_way_for_it() {
    let mut send = named("send", "Scheduling");
    send.spec.send_to = Some(serde_json::from_value(json!({"migrationID": "x", "connectURL": "y"})).unwrap());
    let mut ended = send.clone();
    ended.status.as_mut().unwrap().phase = Some(Phase::Failed);
    let other = named("send", "Scheduling");
    let sent = || vmi(json!({"migrationUid": "uid-of-send", "sourceState": {"migrationUID": "uid-of-send"}}));
    let shown = || vmi(json!({"sourceState": {"migrationUID": "uid-of-send"}}));
    let table = [
        ("it is being sent", "Scheduling", sent(), Some("running"), &send, true),
        ("its target is up", "Scheduled", sent(), Some("running"), &send, true),
        ("its target has just been made", "Pending", sent(), Some("new"), &send, true),
        ("it has no target yet, and waits", "Pending", sent(), None, &send, false),
        ("the sender waits for its other side", "Scheduling", shown(), Some("running"), &send, false),
        ("the sender has given up", "Scheduling", sent(), Some("running"), &ended, false),
        ("another migration between nodes has it", "Scheduling", sent(), Some("running"), &other, false),
    ];
    for (what, phase, vmi, pod, rival, fails) in table {
        let mut w = world(migration(phase), vmi, pod.map(target).into_iter().collect());
        w.siblings.push(Arc::new(rival.clone()));
        assert_eq!(phase_after(&w) == "Failed", fails, "{what}: {:?}", decide(&w));
        if fails {
            let actions = decide(&w);
            assert!(
                matches!(actions.as_slice(), [Action::Confirm { look: Look::SameState, .. }]),
                "{what}: by the nodes' word, {actions:?}"
            );
        } else if what.ends_with("waits") {
            assert_eq!(waits_for(&w), "OtherMigrationActive", "{what}");
        }
    }
}
