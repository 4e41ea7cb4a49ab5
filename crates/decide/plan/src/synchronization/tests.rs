use std::sync::Arc;

use api::v1::{
    VirtualMachineInstance, VirtualMachineInstanceMigration as Migration, VirtualMachineInstanceMigrationState as State,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::*;
use crate::effect::Patch;
use crate::object::Kind;

const CONDITION: &str = api::conditions::DECENTRALIZED_LIVE_MIGRATION_FAILURE;

fn time(seconds: i64) -> Time {
    Time(jiff::Timestamp::from_second(1_700_000_000 + seconds).expect("a time"))
}

fn merged(mut base: Value, over: &Value) -> Value {
    json_patch::merge(&mut base, over);
    base
}

fn migration(side: &str, over: Value) -> Migration {
    let spec = match side {
        "here" => json!({"vmiName": "vm", "sendTo": {"migrationID": "x", "connectURL": "this-cluster/there"}}),
        _ => json!({"vmiName": "vm", "receive": {"migrationID": "x"}}),
    };
    let base = json!({
        "metadata": {"name": format!("m-{side}"), "namespace": side, "uid": format!("m-{side}"), "resourceVersion": "1",
                     "finalizers": [api::finalizers::MIGRATION, api::finalizers::MIGRATION_SYNCHRONIZATION]},
        "spec": spec, "status": {"phase": "Running"},
    });
    serde_json::from_value(merged(base, &over)).expect("a migration")
}

fn vmi(side: &str, state: Value) -> VirtualMachineInstance {
    let mut base = json!({
        "metadata": {"name": "vm", "namespace": side, "uid": format!("vmi-{side}"), "resourceVersion": "7"},
        "spec": {"domain": {"devices": {}}},
        "status": {"phase": "Running", "migrationMethod": "BlockMigration", "migrationState": state},
    });
    if side == "there" {
        base["status"] = json!({"phase": "Scheduled", "migrationState": state});
        base["metadata"]["annotations"] = json!({api::annotations::CREATE_MIGRATION_TARGET: "true"});
    }
    serde_json::from_value(base).expect("an instance")
}

/// The sender's word when its side is known, and whatever is laid over it.
fn sent(over: Value) -> Value {
    let state = json!({
        "migrationUid": "m-here", "sourceNode": "n1", "sourcePod": "p1",
        "sourceState": {"migrationUID": "m-here", "virtualMachineInstanceUID": "vmi-here", "node": "n1", "pod": "p1"},
        "targetState": {"migrationUID": "m-there", "virtualMachineInstanceUID": "vmi-there",
                        "syncAddress": "this-cluster/there"},
    });
    merged(state, &over)
}

fn received(over: Value) -> Value {
    let state = json!({
        "migrationUid": "m-there", "sourceNode": "n1", "sourcePod": "p1", "targetNode": "n2", "targetPod": "p2",
        "sourceState": {"migrationUID": "m-here", "virtualMachineInstanceUID": "vmi-here", "node": "n1", "pod": "p1",
                        "syncAddress": "this-cluster/here"},
        "targetState": {"migrationUID": "m-there", "virtualMachineInstanceUID": "vmi-there", "node": "n2", "pod": "p2"},
    });
    merged(state, &over)
}

fn handed_off() -> Value {
    sent(json!({"targetNode": "n2", "targetPod": "p2", "targetState": {"node": "n2", "pod": "p2"}}))
}

fn world(own: Migration, instance: Option<VirtualMachineInstance>, peers: Vec<Peer>) -> World {
    World { migration: Arc::new(own), vmi: instance.map(Arc::new), peers, now: time(100) }
}

fn peer(migration: Migration, instance: Option<VirtualMachineInstance>) -> Peer {
    Peer { migration: Arc::new(migration), vmi: instance.map(Arc::new) }
}

/// The sender's world, and the receiver's, from what the two instances say.
fn both(here: Value, there: Value) -> [World; 2] {
    let (m, n) = (migration("here", json!({})), migration("there", json!({})));
    let (v, u) = (vmi("here", here), vmi("there", there));
    [
        world(m.clone(), Some(v.clone()), vec![peer(n.clone(), Some(u.clone()))]),
        world(n, Some(u), vec![peer(m, Some(v))]),
    ]
}

fn flat(actions: Vec<Action>) -> Vec<Action> {
    actions
        .into_iter()
        .flat_map(|action| match action {
            Action::Confirm { then, .. } => then,
            other => vec![other],
        })
        .collect()
}

/// The instance after the pass.
fn after(w: &World) -> VirtualMachineInstance {
    let mut value = serde_json::to_value(w.vmi.as_deref().expect("an instance")).expect("JSON");
    for action in decide(w) {
        assert!(!matches!(action, Action::Patch { kind: Kind::Vmi, .. }), "what is copied is confirmed first");
    }
    for action in flat(decide(w)) {
        if let Action::Patch { kind: Kind::Vmi, patch: Patch::Json(patch), .. } = action {
            machinery::patch::apply(&mut value, &patch).expect("the patch applies");
        }
    }
    serde_json::from_value(value).expect("an instance")
}

fn state_after(w: &World) -> State {
    after(w).status.and_then(|status| status.migration_state).expect("a state")
}

fn gives_up(w: &World) -> bool {
    flat(decide(w)).iter().any(|action| matches!(action, Action::Delete { .. }))
}

fn complaint(w: &World) -> Option<String> {
    after(w).condition(CONDITION).map(|condition| condition.message().to_owned())
}

#[test]
fn the_sides_learn_of_each_other_and_come_to_rest() {
    let here = json!({"sourceState": {"migrationUID": "m-here"}, "targetState": {"syncAddress": "this-cluster/there"}});
    let there = json!({"targetState": {"migrationUID": "m-there"}});
    let [sender, receiver] = both(here, there);
    let (own, theirs) = (state_after(&sender), state_after(&receiver));
    let target = own.target_state.clone().expect("a target");
    assert_eq!(target.migration_uid.as_deref(), Some("m-there"));
    assert_eq!(target.sync_address.as_deref(), Some("this-cluster/there"));
    let source = theirs.source_state.clone().expect("a source");
    assert_eq!(source.migration_uid.as_deref(), Some("m-here"));
    assert_eq!(source.sync_address.as_deref(), Some("this-cluster/here"));
    let [sender, receiver] = both(json!(own), json!(theirs));
    assert_eq!((flat(decide(&sender)), decide(&receiver).len()), (vec![], 1), "the method of the move is left to tell");
    assert_eq!(after(&receiver).status.and_then(|s| s.migration_method).as_deref(), Some("BlockMigration"));
}

#[test]
fn each_field_goes_one_way() {
    let ready = json!({"targetNodeAddress": "10.0.0.2", "targetDirectMigrationNodePorts": {"4000": 0},
                       "targetState": {"nodeAddress": "10.0.0.2"}});
    let [sender, _] = both(sent(json!({})), received(ready));
    let state = state_after(&sender);
    assert_eq!((state.target_node.as_deref(), state.target_node_address.as_deref()), (Some("n2"), Some("10.0.0.2")));
    assert_eq!(state.target_direct_migration_node_ports.len(), 1);
    assert_eq!(state.migration_uid.as_deref(), Some("m-here"), "each side goes by its own migration");

    let [_, receiver] = both(sent(json!({"startTimestamp": time(5), "mode": "PreCopy"})), received(json!({})));
    assert_eq!(state_after(&receiver).start_timestamp, Some(time(5)));

    let arrived = json!({"startTimestamp": time(5), "endTimestamp": time(9)});
    let [sender, _] = both(handed_off(), received(arrived.clone()));
    assert_eq!((state_after(&sender).end_timestamp, state_after(&sender).completed), (Some(time(9)), None));
    let [sender, _] = both(handed_off(), received(merged(arrived, &json!({"completed": true}))));
    assert_eq!(state_after(&sender).completed, Some(true));
    let [mut sender, _] = both(handed_off(), received(json!({"endTimestamp": time(9)})));
    let mut ended = (**sender.peers[0].vmi.as_ref().expect("an instance")).clone();
    ended.status_mut().phase = Some("Failed".into());
    sender.peers[0].vmi = Some(Arc::new(ended));
    assert_eq!((state_after(&sender).completed, state_after(&sender).failed), (Some(true), None), "it was there");
}

#[test]
fn a_node_gets_no_target_before_its_side_has_told_everything() {
    let early = sent(json!({"migrationUid": null}));
    let [sender, _] = both(early, received(json!({})));
    assert_eq!(state_after(&sender).target_node, None);
}

#[test]
fn a_failure_is_told_to_the_other_side_unless_the_guest_has_arrived() {
    let failed = json!({"failed": true, "completed": true, "endTimestamp": time(9), "failureReason": "cut",
                        "abortStatus": "Succeeded"});
    let [_, receiver] = both(sent(failed.clone()), received(json!({})));
    let state = state_after(&receiver);
    assert_eq!((state.failed, state.completed, state.failure_reason.as_deref()), (Some(true), Some(true), Some("cut")));
    assert!(state.abort_status.is_some());
    let [sender, _] = both(handed_off(), received(failed.clone()));
    assert_eq!(state_after(&sender).failed, Some(true));
    let [_, receiver] = both(sent(failed), received(json!({"endTimestamp": time(8)})));
    assert_eq!(state_after(&receiver).failed, None, "it runs there");
}

#[test]
fn nothing_is_written_after_the_end_or_for_others() {
    let done = json!({"endTimestamp": time(9), "completed": true});
    let late = json!({"endTimestamp": time(9), "completed": true, "failed": true});
    let [sender, _] = both(merged(handed_off(), &done), received(late));
    assert_eq!(flat(decide(&sender)), vec![]);
    let [sender, _] = both(sent(json!({"migrationUid": "another"})), received(json!({})));
    assert_eq!(flat(decide(&sender)), vec![]);
    let [mut sender, _] = both(sent(json!({})), received(json!({})));
    sender.migration = Arc::new(migration("here", json!({"status": {"phase": "Failed"}})));
    assert!(!flat(decide(&sender)).iter().any(|action| matches!(action, Action::Patch { kind: Kind::Vmi, .. })));
}

#[test]
fn either_side_gives_up_with_the_other() {
    let deleted = json!({"metadata": {"deletionTimestamp": time(50)}});
    for over in [deleted, json!({"status": {"phase": "Failed"}})] {
        let [mut sender, mut receiver] = both(handed_off(), received(json!({})));
        assert!(!gives_up(&sender) && !gives_up(&receiver));
        sender.peers[0].migration = Arc::new(migration("there", over.clone()));
        receiver.peers[0].migration = Arc::new(migration("here", over));
        assert!(gives_up(&sender) && gives_up(&receiver));
    }
    let [mut sender, _] = both(handed_off(), received(json!({})));
    sender.peers.clear();
    assert!(gives_up(&sender), "the other migration has disappeared");
    let [mut sender, _] = both(handed_off(), received(json!({})));
    sender.peers[0].migration = Arc::new(migration("there", json!({"status": {"phase": "Succeeded"}})));
    assert!(!gives_up(&sender), "what has succeeded is no reason");
}

#[test]
fn a_receiver_hears_that_its_sender_cannot_tell_any_more() {
    let gone = |w: &World| {
        let marks = after(w).metadata.annotations.unwrap_or_default();
        marks.get(api::annotations::MIGRATION_SOURCE_GONE).cloned()
    };
    let [_, receiver] = both(handed_off(), received(json!({})));
    assert_eq!(gone(&receiver), None);
    for breaks in [0, 1, 2, 3] {
        let [_, mut receiver] = both(handed_off(), received(json!({})));
        let peer = &mut receiver.peers[0];
        let mut vmi = (**peer.vmi.as_ref().expect("an instance")).clone();
        match breaks {
            0 => peer.vmi = None,
            1 => {
                vmi.metadata.uid = Some("another".into());
                peer.vmi = Some(Arc::new(vmi));
            }
            2 => {
                vmi.status_mut().phase = Some("Failed".into());
                peer.vmi = Some(Arc::new(vmi));
            }
            _ => {
                let key = api::annotations::MIGRATION_SOURCE_GONE.to_owned();
                vmi.metadata.annotations.get_or_insert_default().insert(key, "m-here".into());
                peer.vmi = Some(Arc::new(vmi));
            }
        }
        assert_eq!(gone(&receiver).as_deref(), Some("m-there"), "{breaks}");
        assert_eq!(state_after(&receiver).failed, None, "its node has the word");
    }
    let [mut sender, _] = both(handed_off(), received(json!({})));
    sender.peers[0].vmi = None;
    assert_eq!(state_after(&sender).failed, Some(true), "an instance that is gone has no guest");
    // One that had it, and is gone since, ended it itself.
    let [mut sender, _] = both(merged(handed_off(), &json!({"endTimestamp": time(9)})), received(json!({})));
    sender.peers[0].vmi = None;
    assert_eq!((state_after(&sender).failed, state_after(&sender).completed), (None, Some(true)));
    let [mut sender, _] = both(handed_off(), received(json!({})));
    let succeeded = migration("there", json!({"status": {"phase": "Succeeded"}}));
    sender.peers[0] = peer(succeeded, None);
    let state = state_after(&sender);
    assert_eq!((state.failed, state.completed, state.end_timestamp), (None, Some(true), Some(time(100))));
}

#[test]
fn what_is_waited_for_is_said() {
    let fresh =
        json!({"sourceState": {"migrationUID": "m-here"}, "targetState": {"syncAddress": "this-cluster/there"}});
    let [mut sender, mut receiver] = both(fresh.clone(), json!({"targetState": {"migrationUID": "m-there"}}));
    assert_eq!((complaint(&sender), complaint(&receiver)), (None, None));
    let second = peer(migration("there", json!({"metadata": {"name": "again", "uid": "again"}})), None);
    sender.peers.push(second);
    assert!(complaint(&sender).expect("a word").contains("there/m-there, there/again"));
    sender.peers.clear();
    receiver.peers.clear();
    assert!(complaint(&sender).expect("a word").contains("spec.receive.migrationID \"x\""));
    assert!(complaint(&receiver).expect("a word").contains("spec.sendTo.migrationID \"x\""));
    let elsewhere = json!({"spec": {"sendTo": {"connectURL": "10.0.0.1:9185"}}});
    let [mut sender, _] = both(fresh.clone(), json!({"targetState": {"migrationUID": "m-there"}}));
    sender.migration = Arc::new(migration("here", elsewhere));
    assert!(complaint(&sender).expect("a word").contains("not an address in this cluster"));
    let third = json!({"metadata": {"namespace": "third", "uid": "third"}});
    let [mut sender, _] = both(fresh, json!({"targetState": {"migrationUID": "m-there"}}));
    sender.peers[0].migration = Arc::new(migration("there", third));
    assert!(complaint(&sender).is_some(), "a receiver in a third namespace is none");
}

#[test]
fn only_the_migration_that_the_instance_shows_speaks_on_it() {
    let fresh = json!({"targetState": {"migrationUID": "m-there"}});
    let [_, mut waiting] = both(json!({}), fresh.clone());
    waiting.peers.clear();
    assert!(complaint(&waiting).is_some());
    let complaining = after(&waiting);
    // An earlier one of the same instance has ended, and one that is later has not begun.
    for (name, phase) in [("earlier", "Failed"), ("later", "WaitingForSync")] {
        let over = json!({"metadata": {"name": name, "uid": name}, "status": {"phase": phase}});
        let other = world(migration("there", over), Some(complaining.clone()), vec![]);
        assert_eq!(after(&other), complaining, "{name}");
    }
    // What the instance has received before speaks no more when it sends.
    let sending = json!({"sourceState": {"migrationUID": "later"}, "targetState": {"syncAddress": "this-cluster/x"}});
    let mut sender = complaining.clone();
    sender.status_mut().migration_state = serde_json::from_value(sending).expect("a state");
    let over = json!({"status": {"phase": "Succeeded"}});
    let received = world(migration("there", over), Some(sender.clone()), vec![]);
    assert_eq!(after(&received), sender);
    let over = json!({"status": {"phase": "Failed"}});
    let ended = world(migration("there", over), Some(complaining), vec![]);
    let takes_back = decide(&ended).iter().any(|action| matches!(action, Action::Patch { kind: Kind::Vmi, .. }));
    assert!(takes_back, "its own end takes its words back");
}

#[test]
fn a_migration_is_held_until_the_other_side_has_read_its_end() {
    let drops =
        |w: &World| decide(w).iter().any(|action| matches!(action, Action::Patch { kind: Kind::Migration, .. }));
    let succeeded = migration("there", json!({"status": {"phase": "Succeeded"}}));
    let done = json!({"endTimestamp": time(9), "completed": true});
    let [_, mut receiver] = both(handed_off(), received(done.clone()));
    receiver.migration = Arc::new(succeeded.clone());
    assert!(!drops(&receiver), "the sender has not read it");
    let [_, mut receiver] = both(merged(handed_off(), &done), received(done));
    receiver.migration = Arc::new(succeeded);
    assert!(drops(&receiver));
    let [mut sender, _] = both(sent(json!({})), received(json!({})));
    sender.migration = Arc::new(migration("here", json!({"metadata": {"finalizers": null}})));
    assert!(drops(&sender), "a live one gets it");
}

#[test]
fn a_sender_that_is_being_deleted_is_not_handed_off_any_more() {
    let [mut sender, _] = both(sent(json!({})), received(json!({})));
    assert_eq!(state_after(&sender).target_node.as_deref(), Some("n2"));
    sender.migration = Arc::new(migration("here", json!({"metadata": {"deletionTimestamp": time(50)}})));
    assert_eq!(state_after(&sender).target_node, None);
    let arrived = received(json!({"endTimestamp": time(9), "completed": true}));
    let [mut sender, _] = both(handed_off(), arrived);
    sender.migration = Arc::new(migration("here", json!({"metadata": {"deletionTimestamp": time(50)}})));
    assert!(state_after(&sender).is_over(), "what has been handed off takes its course");
}

#[test]
fn a_sender_that_failed_as_it_was_handed_off_still_reads_what_became_of_the_guest() {
    let failed = json!({"metadata": {"deletionTimestamp": time(50)}, "status": {"phase": "Failed"}});
    let drops =
        |w: &World| decide(w).iter().any(|action| matches!(action, Action::Patch { kind: Kind::Migration, .. }));
    let arrived = json!({"endTimestamp": time(9), "completed": true});
    let [mut sender, mut receiver] = both(handed_off(), received(arrived.clone()));
    sender.migration = Arc::new(migration("here", failed.clone()));
    receiver.peers[0].migration = sender.migration.clone();
    receiver.migration = Arc::new(migration("there", json!({"status": {"phase": "Succeeded"}})));
    assert!(!drops(&sender) && !drops(&receiver), "neither goes before the outcome is read");
    assert!(state_after(&sender).is_over());
    let [mut sender, mut receiver] = both(merged(handed_off(), &arrived), received(arrived));
    sender.migration = Arc::new(migration("here", failed));
    receiver.peers[0].migration = sender.migration.clone();
    receiver.migration = Arc::new(migration("there", json!({"status": {"phase": "Succeeded"}})));
    assert!(drops(&sender) && drops(&receiver));
}
