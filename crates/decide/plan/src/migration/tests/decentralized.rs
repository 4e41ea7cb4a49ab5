//! The two sides of a migration between instances.

use super::*;
use crate::effect::Doubt as _;
use crate::migration::{Live, concerns, hand_off, needs_stored_instance, start, with_stored_instance};

fn sender(phase: &str) -> Migration {
    let mut migration = migration(phase);
    let to = json!({"migrationID": "x", "connectURL": "this-cluster/there"});
    migration.spec.send_to = Some(serde_json::from_value(to).expect("a receiver's address"));
    migration
}

fn receiver(phase: &str) -> Migration {
    let mut migration = migration(phase);
    migration.spec.receive = Some(serde_json::from_value(json!({"migrationID": "x"})).expect("an ID"));
    migration
}

/// An instance without a guest, as its VM makes it.
fn empty(phase: &str, state: Value) -> VirtualMachineInstance {
    let mut vmi = vmi(state);
    vmi.metadata
        .annotations
        .get_or_insert_default()
        .insert(api::annotations::CREATE_MIGRATION_TARGET.into(), "true".into());
    vmi.status_mut().phase = Some(phase.into());
    vmi.status_mut().node_name = (phase == "Scheduled").then(|| "n2".to_owned());
    vmi
}

fn receives(migration: Migration, vmi: VirtualMachineInstance, pods: Vec<Pod>) -> World {
    let mut w = world(migration, vmi, vec![]);
    w.pods = pods.into_iter().map(Arc::new).collect();
    w
}

fn told() -> Value {
    json!({"sourceState": {"migrationUID": "theirs", "node": "n1", "pod": "p", "domainNamespace": "here",
                           "syncAddress": "this-cluster/here"},
           "targetState": {"migrationUID": "uid-of-m"}})
}

fn state_of(vmi: VirtualMachineInstance) -> api::v1::VirtualMachineInstanceMigrationState {
    vmi.status.and_then(|status| status.migration_state).expect("a state")
}

#[test]
fn each_side_shows_itself_and_what_an_earlier_attempt_left_goes() {
    let earlier = json!({"migrationUid": "uid-of-old", "failed": true, "completed": true});
    let state = state_of(patched_vmi(&world(sender("Synchronizing"), vmi(earlier.clone()), vec![])).expect("a patch"));
    let source = state.source_state.expect("its own side");
    assert_eq!(source.migration_uid.as_deref(), Some("uid-of-m"));
    assert_eq!((source.domain_namespace.as_deref(), source.domain_name.as_deref()), (Some("ns"), Some("vm")));
    assert_eq!(state.target_state.and_then(|t| t.sync_address).as_deref(), Some("this-cluster/there"));
    assert_eq!((state.failed, state.migration_uid), (None, None), "the nodes see nothing yet");

    let w = receives(receiver("WaitingForSync"), empty("WaitingForSync", earlier), vec![]);
    let state = state_of(patched_vmi(&w).expect("a patch"));
    assert_eq!(state.target_state.and_then(|t| t.migration_uid).as_deref(), Some("uid-of-m"));
    let addresses = written(&decide(&w)).and_then(|m| m.status.clone()).map(|s| s.synchronization_addresses);
    assert_eq!(addresses, Some(vec!["this-cluster/ns".to_owned()]));
}

#[test]
fn a_side_goes_on_when_the_other_has_told_what_it_needs() {
    let known = |uid: &str| json!({"sourceState": {"migrationUID": "uid-of-m"}, "targetState": {"migrationUID": uid}});
    for (name, w, phase) in [
        ("a sender alone", world(sender("Synchronizing"), vmi(known("")), vec![]), "Synchronizing"),
        ("a sender with a receiver", world(sender("Synchronizing"), vmi(known("theirs")), vec![]), "Pending"),
        ("a sender that runs", world(sender("Pending"), vmi(known("theirs")), vec![]), "Scheduling"),
        (
            "a receiver that knows the Pod",
            receives(receiver("WaitingForSync"), empty("WaitingForSync", told()), vec![]),
            "Pending",
        ),
        (
            "a receiver with a Pod",
            receives(receiver("Pending"), empty("WaitingForSync", told()), vec![target("new")]),
            "Scheduling",
        ),
    ] {
        assert_eq!(phase_after(&w), phase, "{name}");
    }
}

#[test]
fn a_sender_publishes_where_its_guest_is() {
    let known = json!({"sourceState": {"migrationUID": "uid-of-m"}, "targetState": {"migrationUID": "theirs"}});
    let w = world(sender("Scheduling"), vmi(known), vec![]);
    let state = state_of(patched_vmi(&w).expect("a patch"));
    assert_eq!((state.migration_uid.as_deref(), state.source_node.as_deref()), (Some("uid-of-m"), Some("n1")));
    let source = state.source_state.clone().expect("its own side");
    assert_eq!((source.pod.as_deref(), source.node.as_deref()), (Some("source"), Some("n1")));
    assert_eq!(source.node_selectors.len(), 2, "what matters of the node's CPU");
    let mut ready = state;
    ready.target_node = Some("n2".into());
    ready.target_state.get_or_insert_default().pod = Some("p".into());
    let next = |phase: &str| phase_after(&world(sender(phase), vmi(json!(ready)), vec![]));
    assert_eq!((next("Scheduling"), next("Scheduled")), ("Scheduled".to_owned(), "PreparingTarget".to_owned()));
}

/// The launcher Pod of a guest does not wake its migrations, and the cache of a new leader may not have it yet.
#[test]
fn a_sender_that_does_not_know_its_pod_looks_again() {
    let known = json!({"sourceState": {"migrationUID": "uid-of-m"}, "targetState": {"migrationUID": "theirs"}});
    let mut w = world(sender("Scheduling"), vmi(known), vec![]);
    w.pods.clear();
    let actions = decide(&w);
    assert!(patched_vmi(&w).is_none(), "{actions:#?}");
    assert!(actions.iter().any(|action| matches!(action, Action::Own(Own::RequeueAfter { .. }))), "{actions:#?}");
}

/// The guest goes on elsewhere when its instance has ended: an instance that comes under the name knows nothing of it.
#[test]
fn each_side_notes_which_instance_it_is_about() {
    let known = json!({"sourceState": {"migrationUID": "uid-of-m"}, "targetState": {"migrationUID": "theirs"}});
    let own = vmi(known.clone());
    let noted = written(&decide(&world(sender("Synchronizing"), own.clone(), vec![]))).cloned().expect("a status");
    let mut another = own.clone();
    another.metadata.uid = Some("another".into());
    assert!(concerns(&noted, &own) && !concerns(&noted, &another));
    assert!(concerns(&sender("Pending"), &another), "nothing is noted yet");
    let waits = empty("WaitingForSync", told());
    let receives = receives(receiver("WaitingForSync"), waits.clone(), vec![]);
    let noted_there = written(&decide(&receives)).cloned().expect("a status");
    let mut another_there = waits.clone();
    another_there.metadata.uid = Some("another".into());
    assert!(concerns(&noted_there, &waits) && !concerns(&noted_there, &another_there));
    let mut local = migration("Pending");
    local.status.clone_from(&noted.status);
    assert!(concerns(&local, &another), "a guest that moves between nodes ends with its instance");
}

/// Nothing keeps a VMI without a Pod from going once it is deleted; a Pod that came then would belong to nobody.
#[test]
fn a_receiver_gets_a_pod_only_if_a_live_read_finds_its_instance() {
    let waits = || empty("WaitingForSync", told());
    let w = || receives(receiver("Pending"), waits(), vec![]);
    assert!(needs_stored_instance(&w()));
    let mut sent_from = source();
    sent_from.metadata.name = Some("p".into());
    let creates = |stored: VirtualMachineInstance| {
        let live = with_stored_instance(w(), Some(stored)).expect("the same instance");
        start(&live, Some(&sent_from)).iter().any(|action| matches!(action, Action::Own(Own::CreateTarget { .. })))
    };
    assert!(creates(waits()));
    let mut deleted = waits();
    deleted.metadata.deletion_timestamp = Some(time(90));
    assert!(!creates(deleted));
}

/// The sender reads on the receiver's VMI that its guest has arrived. A migration that began at once and replaced that
/// state would leave the sender waiting for ever.
#[test]
fn the_next_migration_waits_until_the_other_side_has_read_the_outcome() {
    let arrived = json!({"migrationUid": "uid-of-receive", "completed": true, "endTimestamp": time(50),
                         "sourceState": {"migrationUID": "theirs"}, "targetState": {"migrationUID": "uid-of-receive"}});
    for next in [migration("Pending"), sender("Synchronizing")] {
        let mut receive = receiver("Succeeded");
        receive.metadata.name = Some("receive".into());
        receive.metadata.uid = Some("uid-of-receive".into());
        receive.metadata.finalizers = Some(vec![api::finalizers::MIGRATION_SYNCHRONIZATION.into()]);
        let mut w = world(next, vmi(arrived.clone()), vec![]);
        w.siblings.push(Arc::new(receive.clone()));
        assert!(patched_vmi(&w).is_none());
        assert_eq!(waits_for(&w), "OtherMigrationActive");
        receive.metadata.finalizers = None;
        w.siblings = vec![w.migration.clone(), Arc::new(receive)];
        assert!(w.unread().is_none());
    }
}

/// Who sends may wait for a receiver for ever: nodes can be emptied meanwhile, and the guest is sent from where it is then.
#[test]
fn a_guest_moves_to_another_node_while_its_sender_waits() {
    let shown = json!({"sourceState": {"migrationUID": "uid-of-send"}, "targetState": {}});
    let mut send = sender("Synchronizing");
    send.metadata.name = Some("send".into());
    send.metadata.uid = Some("uid-of-send".into());
    let mut local = world(migration("Pending"), vmi(shown.clone()), vec![]);
    local.siblings.push(Arc::new(send.clone()));
    assert!(local.rival().is_none());
    let mut told = shown;
    told["migrationUid"] = json!("uid-of-send");
    let mut late = world(migration("Pending"), vmi(told), vec![]);
    late.siblings.push(Arc::new(send));
    assert!(late.rival().is_some(), "now the receiver relies on it");

    let mut w = world(sender("Synchronizing"), vmi(Value::Null), vec![]);
    let mut moving = migration("Scheduling");
    moving.metadata.uid = Some("uid-of-local".into());
    w.siblings.push(Arc::new(moving));
    assert!(patched_vmi(&w).is_none(), "it shows itself when the guest has moved");
    let waiting = condition_after(&w, api::conditions::MIGRATION_WAITING).expect("a condition");
    assert_eq!(waiting.reason(), api::reasons::OTHER_MIGRATION_ACTIVE);
    w.siblings.pop();
    assert!(patched_vmi(&w).is_some());
    let again = world(sender("Scheduling"), vmi(Value::Null), vec![]);
    assert!(patched_vmi(&again).is_some(), "the move has wiped it off the instance");
}

#[test]
fn of_two_exchanges_that_were_asked_for_at_once_the_second_fails() {
    let shown = json!({"sourceState": {"migrationUID": "uid-of-send"}, "targetState": {}});
    let mut first = sender("Synchronizing");
    first.metadata.uid = Some("uid-of-send".into());
    let mut w = world(sender("Synchronizing"), vmi(shown), vec![]);
    w.siblings.push(Arc::new(first));
    assert_eq!(phase_after(&w), "Failed");
    w.siblings.pop();
    assert_eq!(phase_after(&w), "Synchronizing");
}

#[test]
fn a_receiver_is_handed_off_once_its_pod_is_its_nodes() {
    let attempt = |phase: &str, state: Value| {
        let instance = empty(phase, state);
        let w = receives(receiver("Scheduled"), instance.clone(), vec![target("running")]);
        let migrations = vec![receiver("Scheduled")];
        let live = Live { vmi: Some(instance.clone()), target: Some(target("running")), migrations };
        let patch = hand_off(&w, &live).into_iter().find_map(|action| match action {
            Action::Own(Own::HandOff(patch)) => Some(patch),
            _ => None,
        });
        patch.map(|patch| applied(&instance, &patch))
    };
    assert!(attempt("WaitingForSync", told()).is_none() && attempt("Scheduling", told()).is_none());
    let mut given_up = told();
    given_up["failed"] = json!(true);
    given_up["completed"] = json!(true);
    assert!(attempt("Scheduled", given_up).is_none(), "its sender sends nothing any more");
    let mut elsewhere = empty("Scheduled", told());
    elsewhere.status_mut().node_name = Some("n3".into());
    let w = receives(receiver("Scheduled"), elsewhere.clone(), vec![target("running")]);
    let migrations = vec![receiver("Scheduled")];
    let live = Live { vmi: Some(elsewhere), target: Some(target("running")), migrations };
    let early = hand_off(&w, &live);
    assert!(
        !early.iter().any(|action| matches!(action, Action::Own(Own::HandOff(_)))),
        "an earlier Pod's node has it: {early:?}"
    );
    let state = state_of(attempt("Scheduled", told()).expect("a hand-off"));
    assert_eq!((state.migration_uid.as_deref(), state.source_pod.as_deref()), (Some("uid-of-m"), Some("p")));
    assert_eq!((state.target_node.as_deref(), state.target_pod.as_deref()), (Some("n2"), Some("target")));
    assert_eq!(state.source_state.and_then(|s| s.sync_address).as_deref(), Some("this-cluster/here"));
}

#[test]
fn what_failed_leaves_no_pod_and_begins_no_transfer() {
    let mut failed = told();
    failed["migrationUid"] = json!("uid-of-m");
    failed["targetNode"] = json!("n2");
    failed["failed"] = json!(true);
    failed["completed"] = json!(true);
    let w = receives(receiver("Failed"), empty("Scheduled", failed), vec![target("running")]);
    assert!(deletes_target(&w), "although the instance names its node");
    let published = json!({"migrationUid": "uid-of-m", "sourceState": {"migrationUID": "uid-of-m"},
                           "targetState": {"migrationUID": "theirs"}});
    let w = world(sender("Failed"), vmi(published), vec![]);
    assert_eq!(state_of(patched_vmi(&w).expect("a patch")).failed, Some(true));
}

/// What the receiver's instance says once its node has taken the guest.
fn taken() -> Value {
    let mut state = told();
    for (field, value) in [
        ("migrationUid", json!("uid-of-m")),
        ("targetNode", json!("n2")),
        ("targetPod", json!("target")),
        ("startTimestamp", json!(time(60))),
        ("endTimestamp", json!(time(80))),
    ] {
        state[field] = value;
    }
    state
}

#[test]
fn a_guest_that_has_come_is_not_taken_back() {
    for pods in [vec![target("failed")], vec![]] {
        let w = receives(receiver("Running"), empty("Running", taken()), pods.clone());
        assert_eq!(phase_after(&w), "Running", "its node has to finish");
        let w = receives(receiver("Failed"), empty("Running", taken()), pods);
        assert_eq!(patched_vmi(&w), None, "an instance that runs would wait for a guest for ever");
    }
}

#[test]
fn who_was_to_send_hears_the_end_although_its_instance_has_ended() {
    let mut begun = json!({"migrationUid": "uid-of-m", "startTimestamp": time(60), "targetNode": "n2",
                           "sourceState": {"migrationUID": "uid-of-m"}, "targetState": {"migrationUID": "theirs"}});
    let running = world(sender("Failed"), vmi(begun.take()), vec![]);
    let mut instance = (**running.vmi.as_ref().expect("an instance")).clone();
    assert_eq!(patched_vmi(&running), None, "its node ends what has begun");
    instance.status_mut().phase = Some("Succeeded".into());
    instance.metadata.deletion_timestamp = Some(time(90));
    let state = state_of(patched_vmi(&world(sender("Failed"), instance, vec![])).expect("a patch"));
    assert_eq!((state.failed, state.completed), (Some(true), Some(true)));
}

#[test]
fn no_pod_is_made_for_an_instance_with_a_guest_of_its_own() {
    let waits = |vmi: VirtualMachineInstance| {
        let actions = decide(&receives(receiver("Pending"), vmi, vec![]));
        let shown =
            written(&actions).and_then(|m| m.status.clone()).map(|status| status.conditions).unwrap_or_default();
        shown.iter().any(|condition| condition.reason() == "InstanceNotReceiving")
    };
    assert!(!waits(empty("WaitingForSync", told())));
    assert!(waits(vmi(told())), "it runs");
}

#[test]
fn a_sender_without_a_guest_says_so() {
    let w = world(sender("Pending"), empty("WaitingForSync", json!({})), vec![]);
    let shown = written(&decide(&w)).and_then(|m| m.status.clone()).map(|status| status.conditions).unwrap_or_default();
    assert!(shown.iter().any(|condition| condition.reason() == api::reasons::INSTANCE_NOT_RUNNING));
}

#[test]
fn two_sides_of_one_instance_do_not_take_it_from_each_other() {
    let mut w = receives(receiver("WaitingForSync"), empty("WaitingForSync", json!({})), vec![]);
    assert!(patched_vmi(&w).is_some(), "it shows itself");
    let mut other = sender("Synchronizing");
    (other.metadata.name, other.metadata.uid) = (Some("other".into()), Some("uid-of-other".into()));
    let shown =
        json!({"sourceState": {"migrationUID": "uid-of-other"}, "targetState": {"syncAddress": "this-cluster/x"}});
    w.vmi = Some(Arc::new(empty("WaitingForSync", shown)));
    w.siblings.push(Arc::new(other.clone()));
    assert_eq!(patched_vmi(&w), None);
    other.status.get_or_insert_default().phase = Some(Phase::Failed);
    w.siblings[1] = Arc::new(other);
    assert!(patched_vmi(&w).is_some(), "the other one has ended");
}

#[test]
fn an_instance_whose_guest_was_sent_keeps_saying_so() {
    let sent = json!({"migrationUid": "uid-of-first", "completed": true, "endTimestamp": time(80),
                      "sourceState": {"migrationUID": "uid-of-first"},
                      "targetState": {"migrationUID": "theirs", "syncAddress": "this-cluster/there"}});
    for (phase, migration) in [("Synchronizing", sender("Synchronizing")), ("Pending", migration("Pending"))] {
        let w = world(migration, vmi(sent.clone()), vec![]);
        assert_eq!(patched_vmi(&w), None, "{phase}");
        assert_eq!(phase_after(&w), "Failed", "{phase}: there is nothing left to move");
    }
}

#[test]
fn a_change_for_a_guest_that_has_left_holds_nothing_up() {
    let mut left = json!({"migrationUid": "uid-of-m", "completed": true, "endTimestamp": time(80), "startTimestamp": time(60),
                          "targetNode": "n2", "sourceState": {"migrationUID": "uid-of-m"},
                          "targetState": {"migrationUID": "theirs", "syncAddress": "this-cluster/there"}});
    let mut instance = vmi(left.take());
    let change = json!({"type": api::conditions::HOT_MEMORY_CHANGE, "status": "True"});
    instance.status_mut().conditions.push(serde_json::from_value(change).unwrap());
    assert_eq!(phase_after(&world(sender("Running"), instance, vec![])), "Succeeded");
}

/// Until the next Pod is handed over, a waiting VMI names the node of an earlier attempt's Pod. The guest is not there, even if
/// the next Pod is on the same node.
#[test]
fn a_target_goes_with_a_failed_attempt_although_an_earlier_one_was_on_its_node() {
    let none = || json!({"sourceState": {"migrationUID": "theirs"}, "targetState": {"migrationUID": "uid-of-m"}});
    for (name, phase, state, goes) in [
        ("never handed over", "WaitingForSync", none(), true),
        ("the Pod has just been seen", "Scheduling", none(), true),
        ("handed over without a guest", "Scheduled", none(), true),
        ("the guest is here", "Running", json!({"migrationUid": "uid-of-next"}), false),
    ] {
        let mut vmi = empty(phase, state);
        vmi.status_mut().node_name = Some("n2".into());
        let w = receives(receiver("Failed"), vmi, vec![target("running")]);
        let confirm = decide(&w).into_iter().find_map(|action| match action {
            Action::Confirm { look: look @ Look::GuestNotOn { .. }, then } => Some((look, then)),
            _ => None,
        });
        assert_eq!(confirm.is_some(), goes, "{name}");
        let Some((look, then)) = confirm else { continue };
        assert!(matches!(then.first(), Some(Action::Delete { kind: Of::Pod, name, .. }) if name == "target"), "{name}");
        let stored = |state: Value| {
            let mut vmi = empty("Scheduled", state);
            vmi.status_mut().node_name = Some("n2".into());
            vec![Object::Vmi(Box::new(vmi))]
        };
        assert!(look.holds(&w, &stored(none())), "{name}");
        assert!(!look.holds(&w, &stored(course("handed off"))), "{name}: the cache was late");
    }
}
