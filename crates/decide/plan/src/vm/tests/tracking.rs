//! Whether changed blocks are recorded.

use super::*;

const OFF: &str = "IncrementalBackupFeatureGateDisabled";

fn tracked(gate: bool, selected: bool, own: Option<&str>, vmi: Option<Option<&str>>) -> World {
    let gates = if gate { json!(["IncrementalBackup"]) } else { json!([]) };
    let selectors = json!({"virtualMachineLabelSelector": {"matchLabels": {"backup": "yes"}},
                           "namespaceLabelSelector": {"matchLabels": {"backup": "all"}}});
    let labels = if selected { json!({"backup": "yes"}) } else { json!({}) };
    let state =
        |state: Option<&str>| state.map_or(json!({}), |state| json!({"changedBlockTracking": {"state": state}}));
    let vm = with(vm("Manual"), json!({"metadata": {"labels": labels}, "status": state(own)}));
    let vmi = vmi.map(|theirs| with(super::vmi("Running"), json!({"status": state(theirs)})));
    let settings =
        json!({"developerConfiguration": {"featureGates": gates}, "changedBlockTrackingLabelSelectors": selectors});
    World { config: config(settings), ..world(vm, vmi) }
}

fn state(w: &World) -> Option<String> {
    Some(status_after(w).status?.changed_block_tracking?.state.as_str().to_owned())
}

#[test]
fn each_state_follows_gate_choice_and_instance() {
    let rows = [
        // Gate, chosen, the machine's state, the instance's state if there is one, the outcome.
        (false, true, None, None, Some(OFF)),
        (false, false, None, None, None),
        (false, true, Some("Enabled"), Some(Some("Enabled")), Some("PendingRestart")),
        (false, true, Some("Enabled"), Some(None), Some(OFF)),
        (true, true, None, Some(None), Some("PendingRestart")),
        (true, true, Some(OFF), Some(None), Some("PendingRestart")),
        (true, true, Some("PendingRestart"), Some(Some("Initializing")), Some("Initializing")),
        (true, true, Some("Disabled"), Some(None), Some("PendingRestart")),
        (true, true, Some("Initializing"), Some(Some("Enabled")), Some("Enabled")),
        (true, true, Some("Enabled"), Some(Some("Initializing")), Some("Initializing")),
        (true, true, Some("Enabled"), None, Some("Enabled")),
        (true, true, Some("PendingRestart"), None, Some("Initializing")),
        (true, true, None, None, Some("Initializing")),
        (true, false, None, None, None),
        (true, false, Some("Disabled"), Some(Some("Enabled")), Some("Disabled")),
        (true, false, Some("Enabled"), None, Some("Disabled")),
        (true, false, Some("Enabled"), Some(Some("Enabled")), Some("PendingRestart")),
    ];
    for (gate, selected, own, vmi, expected) in rows {
        let w = tracked(gate, selected, own, vmi);
        assert_eq!(state(&w).as_deref(), expected, "{gate} {selected} {own:?} {vmi:?}");
    }
}

#[test]
fn a_namespace_can_choose_for_its_machines() {
    let mut w = tracked(true, false, None, None);
    w.namespace_labels = [("backup".to_owned(), "all".to_owned())].into();
    assert_eq!(state(&w).as_deref(), Some("Initializing"));
}

#[test]
fn a_new_instance_begins_where_the_cluster_wants_it() {
    let start = |gate, selected, own| {
        let w = tracked(gate, selected, own, None);
        let vm = with((*w.vm).clone(), json!({"spec": {"runStrategy": "Always"}}));
        let actions = decide(&World { vm: Arc::new(vm), ..w });
        let status = creates(&actions).unwrap().status.clone().unwrap();
        status.changed_block_tracking.map(|tracking| tracking.state.as_str().to_owned())
    };
    assert_eq!(start(true, true, None).as_deref(), Some("Initializing"));
    assert_eq!(start(true, false, Some("Enabled")).as_deref(), Some("Disabled"));
    assert_eq!(start(true, false, None), None);
    assert_eq!(start(false, true, None), None);
}
