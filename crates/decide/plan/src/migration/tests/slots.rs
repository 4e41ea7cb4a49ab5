//! What other migrations take of the limits.

use super::*;
use crate::migration::{Census, Entry, Inherited, Slots, occupants, slots};

/// Another migration, of a guest on this node.
fn entry(name: &str, phase: &str, node: &str) -> Entry {
    let mut vmi = vmi(Value::Null);
    vmi.status_mut().node_name = Some(node.to_owned());
    Entry { migration: Arc::new(named(name, phase)), vmi: Some(Arc::new(vmi)), pods: vec![], started: false }
}

fn changed(mut entry: Entry, change: impl FnOnce(&mut Migration)) -> Entry {
    change(Arc::make_mut(&mut entry.migration));
    entry
}

/// The same, which shows that it waits for this.
fn waiting(entry: Entry, reason: &str) -> Entry {
    let condition = json!([{"type": "migrationWaiting", "status": "True", "reason": reason}]);
    changed(entry, |m| m.status.get_or_insert_default().conditions = serde_json::from_value(condition).unwrap())
}

fn urgent(entry: Entry) -> Entry {
    changed(entry, |m| m.spec.priority = Some("system-critical".into()))
}

fn sends(entry: Entry) -> Entry {
    let send = json!({"migrationID": "x", "connectURL": "y"});
    changed(entry, |m| m.spec.send_to = Some(serde_json::from_value(send).unwrap()))
}

fn with_target(mut entry: Entry, of: &str) -> Entry {
    let labels = json!({api::labels::APP: "virt-launcher", api::labels::MIGRATION_JOB_UID: format!("uid-of-{of}")});
    entry.pods.push(Arc::new(pod("theirs", None, "new", labels)));
    entry
}

fn came_from(mut entry: Entry, node: &str) -> Entry {
    let mut vmi = (**entry.vmi.as_ref().unwrap()).clone();
    vmi.status_mut().migration_state = Some(serde_json::from_value(json!({"sourceNode": node})).unwrap());
    entry.vmi = Some(Arc::new(vmi));
    entry
}

fn counted(unfinished: Vec<Entry>, inherited: Vec<Inherited>) -> [usize; 4] {
    let own = migration("Pending");
    let Slots { cluster, outbound, ahead, ahead_here, .. } = slots(&own, Some("n1"), &Census { unfinished, inherited });
    [cluster, outbound, ahead, ahead_here]
}

#[test]
fn every_kind_of_other_counts_for_what_it_takes() {
    let other = |phase| entry("a", phase, "n1");
    let far = |phase| entry("a", phase, "n3");
    // Of the same age and urgency, the smaller UID comes first: that of `a` before that of `m`.
    let table: Vec<(&str, Entry, [usize; 4])> = vec![
        ("itself", entry("m", "Running", "n1"), [0, 0, 0, 0]),
        ("one that has only been asked for", other(""), [0, 0, 0, 0]),
        ("one that waits, and does not say for what", other("Pending"), [0, 0, 0, 0]),
        ("one that runs here", other("Running"), [1, 1, 0, 0]),
        ("one that runs elsewhere", far("Running"), [1, 0, 0, 0]),
        ("one whose guest has left this node a moment ago", came_from(far("Running"), "n1"), [1, 1, 0, 0]),
        ("one whose instance nobody knows", Entry { vmi: None, ..other("Running") }, [1, 0, 0, 0]),
        ("one with a target", with_target(other("Pending"), "a"), [1, 1, 0, 0]),
        ("one with the target of another", with_target(other("Pending"), "b"), [0, 0, 0, 0]),
        ("one that this process has started", Entry { started: true, ..other("Pending") }, [1, 1, 0, 0]),
        ("a sender that runs", sends(other("Running")), [0, 0, 0, 0]),
        ("one that waits for the cluster", waiting(other("Pending"), "ClusterLimitReached"), [0, 0, 1, 0]),
        ("one that waits for this node", waiting(other("Pending"), "NodeLimitReached"), [0, 0, 0, 1]),
        ("one that waits for another node", waiting(far("Pending"), "NodeLimitReached"), [0, 0, 0, 0]),
        ("one that waits for something else", waiting(other("Pending"), "OtherPodActive"), [0, 0, 0, 0]),
        ("a later one", waiting(entry("z", "Pending", "n1"), "ClusterLimitReached"), [0, 0, 0, 0]),
        ("a later, more urgent one", urgent(waiting(entry("z", "Pending", "n1"), "ClusterLimitReached")), [0, 0, 1, 0]),
    ];
    for (what, other, expected) in table {
        assert_eq!(counted(vec![other], vec![]), expected, "{what}");
    }
}

#[test]
fn an_attempt_is_told_from_what_has_a_target() {
    let started = |entry| Entry { started: true, ..entry };
    let attempts = |other: Entry| {
        let all = slots(&migration("Pending"), Some("n1"), &Census { unfinished: vec![other], inherited: vec![] });
        [all.attempts, all.attempts_here]
    };
    assert_eq!(attempts(started(entry("a", "Pending", "n1"))), [1, 1]);
    assert_eq!(attempts(started(entry("a", "Pending", "n3"))), [1, 0]);
    assert_eq!(attempts(started(entry("a", "Running", "n1"))), [0, 0]);
    assert_eq!(attempts(started(with_target(entry("a", "Pending", "n1"), "a"))), [0, 0]);
    assert_eq!(attempts(entry("a", "Pending", "n1")), [0, 0]);
}

#[test]
fn without_a_node_nobody_leaves_it() {
    let census = Census { unfinished: vec![entry("a", "Running", "n1")], inherited: vec![] };
    assert_eq!(slots(&migration("Pending"), None, &census), Slots { cluster: 1, ..Slots::default() });
}

#[test]
fn what_was_started_before_this_process_counts_once_whether_the_cache_shows_it_or_not() {
    let left = |is_cached| {
        let Entry { migration, vmi, .. } = entry("a", "Scheduling", "n1");
        vec![Inherited { migration: (*migration).clone(), vmi, is_cached }]
    };
    assert_eq!(counted(vec![], left(false)), [1, 1, 0, 0], "the cache does not show it");
    assert_eq!(counted(vec![entry("a", "Pending", "n1")], left(true)), [1, 1, 0, 0], "it shows it without its target");
    assert_eq!(counted(vec![entry("a", "Scheduling", "n1")], left(true)), [1, 1, 0, 0]);
    assert_eq!(counted(vec![], left(true)), [0, 0, 0, 0], "it shows that it has ended");
}

#[test]
fn of_what_is_stored_only_what_has_room_is_inherited() {
    let stored = ["", "Pending", "Scheduling", "Running", "Succeeded", "Failed"].map(|phase| named(phase, phase));
    let of = |name: &str| json!({api::labels::APP: "virt-launcher", api::labels::MIGRATION_JOB_UID: format!("uid-of-{name}")});
    let names = |pods: &[Pod]| -> Vec<String> {
        occupants(stored.to_vec(), pods).into_iter().filter_map(|migration| migration.metadata.name).collect()
    };
    assert_eq!(names(&[]), ["Scheduling", "Running"]);
    let pods = ["Pending", "Failed"].map(|name| pod(name, None, "new", of(name)));
    assert_eq!(names(&pods), ["Pending", "Scheduling", "Running"], "a target takes room, unless all is over");
}
