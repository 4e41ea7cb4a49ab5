//! The phase machine, row by row.

use super::*;

#[test]
fn each_phase_follows_from_the_one_before_and_from_nothing_less() {
    let none = || Value::Null;
    let table = [
        ("", none(), vec![], "Pending"),
        ("Pending", none(), vec![], "Pending"),
        ("Pending", none(), vec![target("new")], "Scheduling"),
        ("Scheduling", none(), vec![target("new")], "Scheduling"),
        ("Scheduling", none(), vec![target("running")], "Scheduled"),
        ("Scheduled", none(), vec![target("running")], "Scheduled"),
        ("Scheduled", course("handed off"), vec![target("running")], "PreparingTarget"),
        ("PreparingTarget", course("handed off"), vec![target("running")], "PreparingTarget"),
        ("PreparingTarget", course("listening"), vec![target("running")], "TargetReady"),
        ("PreparingTarget", course("sending"), vec![target("running")], "TargetReady"),
        ("TargetReady", course("listening"), vec![target("running")], "TargetReady"),
        ("TargetReady", course("sending"), vec![target("running")], "Running"),
        ("Running", course("sending"), vec![target("running")], "Running"),
        ("Running", course("ready"), vec![target("running")], "Running"),
        ("Running", course("completed"), vec![target("running")], "Succeeded"),
    ];
    for (from, state, pods, to) in table {
        let w = world(migration(from), vmi(state.clone()), pods);
        assert_eq!(phase_after(&w), to, "{from} with {state}");
    }
}

#[test]
fn a_phase_keeps_the_time_of_its_first_entry() {
    let w = world(migration("Scheduling"), vmi(Value::Null), vec![target("running")]);
    let actions = decide(&w);
    let status = written(&actions).unwrap().status.clone().unwrap();
    let times: Vec<_> =
        status.phase_transition_timestamps.iter().map(|t| t.phase_transition_timestamp.clone()).collect();
    assert_eq!(times, [Some(time(0)), Some(time(100))]);
}

#[test]
fn a_new_migration_fails_if_another_one_has_the_instance() {
    let state = json!({"migrationUid": "uid-of-other", "targetNode": "n2"});
    let mut w = world(migration(""), vmi(state), vec![]);
    w.siblings.push(Arc::new(named("other", "Running")));
    assert_eq!(phase_after(&w), "Failed");
    w.siblings.pop();
    w.siblings.push(Arc::new(named("other", "Succeeded")));
    assert_eq!(phase_after(&w), "Pending", "it has ended");
    w.siblings.pop();
    assert_eq!(phase_after(&w), "Pending", "it has vanished");
}

#[test]
fn the_guest_has_moved_only_with_all_that_was_to_come_with_it() {
    for (type_, status, expected) in [
        ("HotVCPUChange", "True", "Running"),
        ("HotVCPUChange", "False", "Running"),
        ("HotMemoryChange", "True", "Running"),
        ("HotMemoryChange", "False", "Succeeded"),
        ("MigrationRequired", "True", "Running"),
        ("MigrationRequired", "False", "Succeeded"),
    ] {
        let mut vmi = vmi(course("completed"));
        vmi.status_mut().conditions.push(serde_json::from_value(json!({"type": type_, "status": status})).unwrap());
        let w = world(migration("Running"), vmi, vec![target("running")]);
        assert_eq!(phase_after(&w), expected, "{type_}={status}");
        if expected == "Running" {
            assert_eq!(waits_for(&w), "GuestChangesPending");
        }
    }
}

/// The transfer began at 60. What was asked for later takes another migration, which would wait for this one to end.
#[test]
fn what_is_asked_for_while_the_guest_is_on_its_way_is_for_the_next_migration() {
    for (asked, expected) in [(59, "Running"), (60, "Running"), (61, "Succeeded")] {
        let mut vmi = vmi(course("completed"));
        let change = json!({"type": "HotMemoryChange", "status": "True", "lastTransitionTime": time(asked)});
        vmi.status_mut().conditions.push(serde_json::from_value(change).unwrap());
        assert_eq!(phase_after(&world(migration("Running"), vmi, vec![target("running")])), expected, "{asked}");
    }
}

#[test]
fn migrations_between_instances_wait_for_the_other_side() {
    for (spec, first) in [
        (json!({"vmiName": "vm", "receive": {"migrationID": "x"}}), "WaitingForSync"),
        (json!({"vmiName": "vm", "sendTo": {"migrationID": "x", "connectURL": "y"}}), "Synchronizing"),
    ] {
        let mut begun = migration("");
        begun.spec = serde_json::from_value(spec).unwrap();
        assert_eq!(phase_after(&world(begun.clone(), vmi(Value::Null), vec![])), first);
        begun.status = migration(first).status;
        let mut instance = vmi(Value::Null);
        if first == "WaitingForSync" {
            let notes = instance.metadata.annotations.get_or_insert_default();
            notes.insert(api::annotations::CREATE_MIGRATION_TARGET.to_owned(), "true".to_owned());
            instance.status_mut().phase = Some(first.into());
        }
        let w = world(begun, instance, vec![]);
        assert_eq!((phase_after(&w).as_str(), waits_for(&w).as_str()), (first, "WaitingForOtherSide"));
    }
}

#[test]
fn the_target_is_told_when_the_guest_runs_in_it() {
    let w = world(migration("Running"), vmi(course("ready")), vec![target("running")]);
    let actions = decide(&w);
    let patch = actions.iter().find_map(|a| match a {
        Action::Patch { kind: Of::Pod, name, patch: Patch::Json(patch), .. } if name == "target" => Some(patch),
        _ => None,
    });
    let told = applied(&target("running"), patch.unwrap());
    let at = &told.metadata.annotations.as_ref().unwrap()[api::annotations::MIGRATION_TARGET_READY_TIMESTAMP];
    assert_eq!(at, "2023-11-14 22:14:30 +0000 UTC");
    let w = world(migration("Running"), vmi(course("ready")), vec![told]);
    assert!(!decide(&w).iter().any(|a| matches!(a, Action::Patch { kind: Of::Pod, .. })), "once");
}

#[test]
fn a_pass_that_changes_nothing_writes_nothing() {
    let mut w = world(migration(""), vmi(Value::Null), vec![target("new")]);
    for _ in 0..4 {
        let actions = decide(&w);
        if let Some(migration) = written(&actions) {
            w.migration = Arc::new(migration.clone());
            w.siblings = vec![w.migration.clone()];
        }
    }
    let writes = decide(&w).into_iter().filter(|a| !matches!(a, Action::Own(Own::RequeueAfter { .. })));
    assert_eq!(writes.collect::<Vec<_>>(), []);
}

#[test]
fn an_unseen_write_of_ours_is_waited_for() {
    let mut w = world(migration("Pending"), vmi(Value::Null), vec![]);
    w.unseen = Some(std::time::Duration::from_secs(5));
    assert_eq!(decide(&w), []);
}
