//! What is looked at once more under the lock for starts.

use machinery::names::NodeName;

use super::*;
use crate::migration::confirm::{has_left, has_target_among, says_the_same};
use crate::migration::{
    Live, Slots, hand_off, needs_stored_instance, start, with_stored_instance, with_stored_migration,
};

fn pending() -> World {
    world(migration("Pending"), vmi(Value::Null), vec![])
}

#[test]
fn a_start_goes_by_the_migration_that_is_stored_if_it_is_the_same() {
    let going = with_stored_migration(pending(), Some(deleted(migration("Pending")))).unwrap();
    assert!(
        !start(&going, Some(&source())).iter().any(|action| matches!(action, Action::Own(Own::CreateTarget { .. })))
    );
    assert!(with_stored_migration(pending(), None).is_none(), "it is gone");
    let mut another = migration("Pending");
    another.metadata.uid = Some("uid-of-another".to_owned());
    assert!(with_stored_migration(pending(), Some(another)).is_none(), "its name was used again");
}

#[test]
fn only_who_empties_a_node_looks_for_the_instance_too() {
    assert!(!needs_stored_instance(&pending()));
    let mut w = pending();
    let key = api::annotations::EVACUATION_MIGRATION.to_owned();
    Arc::make_mut(&mut w.migration).metadata.annotations.get_or_insert_default().insert(key, "n1".into());
    assert!(needs_stored_instance(&w));
    let mut moved = vmi(Value::Null);
    moved.status_mut().node_name = Some("n2".into());
    let seen = with_stored_instance(w.clone(), Some(moved.clone())).unwrap();
    assert_eq!(seen.vmi.as_deref(), Some(&moved));
    assert!(with_stored_instance(w.clone(), None).is_none());
    moved.metadata.uid = Some("another".into());
    assert!(with_stored_instance(w.clone(), Some(moved)).is_none());
    assert!(with_stored_instance(World { vmi: None, ..w }, Some(vmi(Value::Null))).is_none());
}

#[test]
fn a_live_look_agrees_with_the_cache_or_does_not() {
    let w = world(migration("Running"), vmi(course("sending")), vec![]);
    assert!(says_the_same(&w, Some(&vmi(course("sending")))));
    assert!(!says_the_same(&w, Some(&vmi(course("ready")))));
    assert!(!says_the_same(&w, None));
    assert!(says_the_same(&pending(), None), "neither says anything");
    let (here, elsewhere) = (NodeName::new("n1"), NodeName::new("n2"));
    let w = world(migration("Failed"), vmi(Value::Null), vec![]);
    assert!(!has_left(&w, Some(&vmi(Value::Null)), &here));
    assert!(has_left(&w, Some(&vmi(Value::Null)), &elsewhere) && has_left(&w, None, &here));
}

#[test]
fn a_target_is_one_of_this_migration_and_this_instance() {
    let of = |migration: &str, instance: &str| {
        let labels = json!({api::labels::APP: "virt-launcher", api::labels::MIGRATION_JOB_UID: migration,
                            api::labels::CREATED_BY: instance});
        [pod("target", None, "new", labels)]
    };
    let table = [("uid-of-m", "vmi-uid", true), ("uid-of-m", "older", false), ("uid-of-another", "vmi-uid", false)];
    for (migration, instance, expected) in table {
        assert_eq!(has_target_among(&pending(), of(migration, instance).iter()), expected, "{migration} {instance}");
    }
    assert!(!has_target_among(&pending(), [source()].iter()));
}

fn evacuation(phase: &str) -> Migration {
    let mut migration = migration(phase);
    let notes = migration.metadata.annotations.get_or_insert_default();
    notes.insert(api::annotations::EVACUATION_MIGRATION.to_owned(), "n1".to_owned());
    migration
}

fn marked(node: Option<&str>) -> VirtualMachineInstance {
    let mut vmi = vmi(Value::Null);
    vmi.status_mut().evacuation_node_name = node.map(str::to_owned);
    vmi
}

fn tainted(mut node: Node) -> Node {
    let taints = json!([{"key": "kubevirt.io/drain", "effect": "NoSchedule"}]);
    node.spec.get_or_insert_default().taints = serde_json::from_value(taints).unwrap();
    node
}

/// It has ended, and says why; and nothing else is done.
fn assert_called_off(actions: &[Action]) {
    let status = written(actions).unwrap_or_else(|| panic!("{actions:?}")).status.as_ref().unwrap();
    assert_eq!(status.phase, Some(Phase::Failed));
    let why = status.migration_state.as_ref().unwrap().failure_reason.as_deref().unwrap();
    assert_eq!(why, "the evacuation of node n1 was canceled: the instance is no longer marked to leave it");
    let asked = api::conditions::find(&status.conditions, "migrationAbortRequested").unwrap();
    assert_eq!((asked.reason(), asked.message()), ("EvacuationCanceled", why));
    assert!(matches!(actions, [Action::ReplaceStatus(_), Action::Note(_)]), "{actions:?}");
}

#[test]
fn an_evacuation_that_was_called_off_ends_instead_of_starting() {
    // As the cache has it, the guest is still marked: the start goes by what is stored.
    let at_start = |stored: VirtualMachineInstance, nodes: [Node; 2]| {
        let w =
            World { nodes: nodes.map(Arc::new).to_vec(), ..world(evacuation("Pending"), marked(Some("n1")), vec![]) };
        start(&with_stored_instance(w, Some(stored)).unwrap(), Some(&source()))
    };
    let creates =
        |actions: &[Action]| actions.iter().any(|action| matches!(action, Action::Own(Own::CreateTarget { .. })));
    let nodes = || [node("n1"), node("n2")];
    assert!(creates(&at_start(marked(Some("n1")), nodes())), "an eviction has marked it");
    assert!(creates(&at_start(marked(None), [tainted(node("n1")), node("n2")])), "its node has the drain taint");
    assert_called_off(&at_start(marked(None), nodes()));
    assert_called_off(&at_start(marked(Some("")), nodes()));
    assert_called_off(&at_start(marked(Some("n2")), [node("n1"), tainted(node("n2"))]));
    let mut a_users = world(migration("Pending"), marked(None), vec![]);
    a_users.nodes = nodes().map(Arc::new).to_vec();
    assert!(creates(&start(&a_users, Some(&source()))), "a user's own migration needs no mark");
}

/// The quota had kept its target from being made, and does no more.
#[test]
fn an_evacuation_that_was_called_off_waits_for_nothing() {
    let mut refused = evacuation("Pending");
    let shown = json!([{"type": "migrationRejectedByResourceQuota", "status": "True"},
                       {"type": "migrationWaiting", "status": "True", "reason": "FailedCreate"}]);
    refused.status.as_mut().unwrap().conditions = serde_json::from_value(shown).unwrap();
    let actions = start(&world(refused, marked(None), vec![]), Some(&source()));
    assert_called_off(&actions);
    let status = written(&actions).unwrap().status.as_ref().unwrap();
    let types: Vec<&str> = status.conditions.iter().map(|condition| condition.type_.as_str()).collect();
    assert_eq!(types, ["migrationAbortRequested"]);
}

/// Another instance may have got the name, one that never runs.
#[test]
fn an_evacuation_that_was_called_off_ends_whatever_it_would_wait_for() {
    let mut waiting = marked(None);
    waiting.status_mut().phase = Some("WaitingForSync".into());
    waiting.status_mut().node_name = None;
    for (slots, vmi) in [(Slots::default(), waiting), (Slots { cluster: 99, ..Slots::default() }, marked(None))] {
        let w = World { slots, ..world(evacuation("Pending"), vmi, vec![]) };
        let mut first = decide(&w);
        if let Some(reported) = written(&first) {
            first = decide(&World { migration: Arc::new(reported.clone()), ..w.clone() });
        }
        assert!(first.contains(&Action::Own(Own::Start)), "the stored instance decides: {first:?}");
        assert_called_off(&start(&w, None));
        let vmi = Some(Arc::new(VirtualMachineInstance {
            status: marked(Some("n1")).status,
            ..(**w.vmi.as_ref().unwrap()).clone()
        }));
        let still_marked = World { vmi, slots: Slots { cluster: 99, ..Slots::default() }, ..w };
        assert!(written(&start(&still_marked, None)).is_none(), "the cache was stale");
    }
}

#[test]
fn an_evacuation_that_was_called_off_is_not_handed_off() {
    let w = world(evacuation("Scheduled"), marked(Some("n1")), vec![target("running")]);
    let live =
        |vmi| Live { vmi: Some(vmi), target: Some(target("running")), migrations: vec![evacuation("Scheduled")] };
    let hands_off = |actions: &[Action]| actions.iter().any(|action| matches!(action, Action::Own(Own::HandOff(_))));
    assert!(hands_off(&hand_off(&w, &live(marked(Some("n1"))))));
    assert_called_off(&hand_off(&w, &live(marked(None))));
    let mut handed = vmi(course("handed off"));
    handed.status_mut().evacuation_node_name = None;
    let actions = hand_off(&w, &live(handed));
    assert!(written(&actions).is_none(), "the nodes have it: it goes on. {actions:?}");
    let mut moved = marked(None);
    moved.status_mut().node_name = Some("n2".into());
    let actions = hand_off(&w, &live(moved));
    assert!(written(&actions).is_none(), "that it is not needed is told by another sentence. {actions:?}");
}
