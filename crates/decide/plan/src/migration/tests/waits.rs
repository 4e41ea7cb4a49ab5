//! Time limits, back-off, and what else is waited for.

use std::time::Duration;

use super::*;
use crate::SyncError;

fn annotated(phase: &str, key: &str, value: &str) -> Migration {
    let mut migration = migration(phase);
    migration.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
    migration
}

fn requeued(w: &World) -> Option<Duration> {
    decide(w).iter().find_map(|action| match action {
        Action::Own(Own::RequeueAfter { delay, .. }) => Some(*delay),
        _ => None,
    })
}

fn failure_reason(w: &World) -> String {
    let actions = decide(w);
    let state = written(&actions).and_then(|m| m.status.clone()?.migration_state);
    state.and_then(|state| state.failure_reason).unwrap_or_default()
}

#[test]
fn a_target_that_does_not_start_is_given_its_time_and_no_more() {
    let unschedulable = api::annotations::MIGRATION_UNSCHEDULABLE_POD_TIMEOUT;
    let pending = api::annotations::MIGRATION_PENDING_POD_TIMEOUT;
    // The Pod is made at 10.
    let table = [
        ("unschedulable", migration("Scheduling"), 309, false, "TargetPodUnschedulable"),
        ("unschedulable", migration("Scheduling"), 310, true, "migrationUnschedulablePodTimeoutSeconds"),
        ("unschedulable", annotated("Scheduling", unschedulable, "20"), 30, true, "within 20 seconds"),
        ("unschedulable", annotated("Scheduling", unschedulable, "nonsense"), 309, false, "TargetPodUnschedulable"),
        ("unschedulable", annotated("Scheduling", pending, "20"), 30, true, "migrationPendingPodTimeoutSeconds"),
        ("new", migration("Scheduling"), 909, false, "TargetPodPending"),
        ("new", migration("Scheduling"), 910, true, "migrationPendingPodTimeoutSeconds"),
        ("new", annotated("Scheduling", pending, "30"), 40, true, "within 30 seconds"),
        ("new", annotated("Scheduling", unschedulable, "30"), 900, false, "TargetPodPending"),
    ];
    for (state, migration, now, over, word) in table {
        let mut w = world(migration, vmi(Value::Null), vec![target(state)]);
        w.now = time(now);
        assert_eq!(deletes_target(&w), over, "{state} at {now}");
        assert_eq!(phase_after(&w), if over { "Failed" } else { "Scheduling" }, "{state} at {now}");
        let said = if over { failure_reason(&w) } else { waits_for(&w) };
        assert!(said.contains(word), "{state} at {now}: {said}");
        if !over {
            assert!(requeued(&w).is_some(), "{state} at {now}: the end of the time is noticed");
        }
    }
}

#[test]
fn the_timer_ends_just_when_the_time_does() {
    let mut w = world(migration("Scheduling"), vmi(Value::Null), vec![target("unschedulable")]);
    w.now = time(250);
    assert_eq!(requeued(&w), Some(Duration::from_secs(60)));
}

#[test]
fn no_node_for_the_target_is_an_event_once_with_the_schedulers_words() {
    let mut w = world(migration("Scheduling"), vmi(Value::Null), vec![target("unschedulable")]);
    let actions = decide(&w);
    assert!(notes(&actions).contains(&"migrationTargetPodUnschedulable".to_owned()), "{actions:?}");
    w.migration = Arc::new(written(&actions).unwrap().clone());
    assert!(condition_after(&w, "migrationWaiting").unwrap().message().contains("0/2 nodes are available"));
    assert_eq!(notes(&decide(&w)), Vec::<String>::new());
}

#[test]
fn a_guest_with_its_hosts_cpu_model_hears_that_no_other_node_has_it() {
    let mut vmi = vmi(Value::Null);
    vmi.spec.domain.cpu = Some(serde_json::from_value(json!({"model": "host-model"})).unwrap());
    let mut w = world(migration("Scheduling"), vmi, vec![target("unschedulable")]);
    let note = "vmi:NoSuitableNodesForHostModelMigration".to_owned();
    assert!(notes(&decide(&w)).contains(&note));
    let mut fitting = node("n2");
    let labels = fitting.metadata.labels.get_or_insert_default();
    labels.insert("cpu-model-migration.node.kubevirt.io/EPYC".into(), "true".into());
    w.nodes[1] = Arc::new(fitting);
    assert!(!notes(&decide(&w)).contains(&note));
}

#[test]
fn utility_volumes_hold_a_migration_up_for_a_while() {
    let mut guest = vmi(Value::Null);
    guest.spec.utility_volumes = serde_json::from_value(json!([{"name": "u", "claimName": "u"}])).unwrap();
    for (migration, now, expected) in [
        (migration("Pending"), 149, "Pending"),
        (migration("Pending"), 150, "Failed"),
        (annotated("Pending", api::annotations::MIGRATION_UTILITY_VOLUMES_TIMEOUT, "10"), 10, "Failed"),
    ] {
        let mut w = world(migration, guest.clone(), vec![]);
        w.now = time(now);
        assert_eq!(phase_after(&w), expected, "at {now}");
        assert!(!decide(&w).contains(&Action::Own(Own::Start)));
        if expected == "Pending" {
            assert_eq!(
                condition_after(&w, "migrationBlockedByUtilityVolumes").unwrap().reason(),
                "UtilityVolumesPresent"
            );
        }
    }
}

#[test]
fn a_backup_keeps_the_target_from_being_made_and_handed_off() {
    let mut guest = vmi(Value::Null);
    let backup = |done: bool| json!({"state": "Enabled", "backupStatus": {"backupName": "b", "completed": done}});
    guest.status_mut().changed_block_tracking = Some(serde_json::from_value(backup(false)).unwrap());
    let w = world(migration("Pending"), guest.clone(), vec![]);
    assert_eq!(condition_after(&w, "migrationBlockedByBackup").unwrap().reason(), "BackupInProgress");
    assert!(!settled(w).contains(&Action::Own(Own::Start)));
    let w = world(migration("Scheduled"), guest.clone(), vec![target("running")]);
    assert!(!settled(w).contains(&Action::Own(Own::ConfirmHandOff)));
    guest.status_mut().changed_block_tracking = Some(serde_json::from_value(backup(true)).unwrap());
    let w = world(migration("Pending"), guest, vec![]);
    assert_eq!(condition_after(&w, "migrationBlockedByBackup"), None);
}

/// What is done once the status says all it should.
fn settled(mut w: World) -> Vec<Action> {
    for _ in 0..3 {
        let actions = decide(&w);
        let Some(migration) = written(&actions) else { return actions };
        w.migration = Arc::new(migration.clone());
    }
    panic!("the status does not settle: {:?}", decide(&w));
}

fn automatic(name: &str, phase: &str, created: i64, failed_at: i64) -> Migration {
    let mut migration = named(name, phase);
    migration.metadata.creation_timestamp = Some(time(created));
    let key = api::annotations::EVACUATION_MIGRATION.to_owned();
    migration.metadata.annotations.get_or_insert_default().insert(key, "n1".into());
    if let Some(status) = &mut migration.status {
        status.phase_transition_timestamps[0].phase_transition_timestamp = Some(time(failed_at));
    }
    migration
}

#[test]
fn automatic_migrations_wait_twice_as_long_after_each_failure() {
    let failed = |n: i64| automatic(&format!("f{n}"), "Failed", n, n + 1);
    let succeeded = || automatic("ok", "Succeeded", 2, 3);
    let going = || deleted(automatic("going", "Failed", 3, 90));
    let called_off = || {
        let mut one = automatic("off", "Failed", 90, 91);
        let asked = json!([{"type": "migrationAbortRequested", "status": "True", "reason": "EvacuationCanceled"}]);
        one.status.as_mut().unwrap().conditions = serde_json::from_value(asked).unwrap();
        one
    };
    // The newest failure is at 91.
    let table: Vec<(&str, Vec<Migration>, i64, bool)> = vec![
        ("no failure", vec![], 100, false),
        ("one failure, before its time", vec![failed(90)], 110, true),
        ("one failure, in its time", vec![failed(90)], 111, false),
        ("two failures, before their time", vec![failed(80), failed(90)], 130, true),
        ("two failures, in their time", vec![failed(80), failed(90)], 131, false),
        ("three failures", vec![failed(70), failed(80), failed(90)], 170, true),
        ("one that failed in the second in which this one was made", vec![automatic("z", "Failed", 95, 95)], 114, true),
        ("a success in between", vec![failed(1), succeeded(), failed(90)], 111, false),
        ("one that is going does not count", vec![going(), failed(90)], 111, false),
        ("one that was called off does not count", vec![called_off()], 100, false),
    ];
    for (what, earlier, now, waits) in table {
        let own = automatic("m", "Pending", 95, 95);
        let mut w = world(own.clone(), vmi(Value::Null), vec![]);
        w.siblings = earlier.into_iter().chain([own]).map(Arc::new).collect();
        w.now = time(now);
        assert_eq!(waits_for(&w) == "MigrationBackoff", waits, "{what}");
        assert_eq!(notes(&decide(&w)).contains(&"vmi:MigrationBackoff".to_owned()), waits, "{what}");
        assert_eq!(settled(w).contains(&Action::Own(Own::Start)), !waits, "{what}");
    }
}

#[test]
fn nobody_elses_migrations_are_put_off() {
    let failed = automatic("f", "Failed", 90, 99);
    let mut ignoring = automatic("m", "Pending", 95, 95);
    let key = api::annotations::IGNORE_MIGRATION_BACKOFF.to_owned();
    ignoring.metadata.annotations.get_or_insert_default().insert(key, String::new());
    for (what, own) in [("a user's", migration("Pending")), ("one that ignores it", ignoring)] {
        let mut w = world(own.clone(), vmi(Value::Null), vec![]);
        w.siblings = vec![Arc::new(failed.clone()), Arc::new(own)];
        assert!(settled(w).contains(&Action::Own(Own::Start)), "{what}");
    }
}

#[test]
fn a_refusal_by_a_quota_shows_until_there_is_a_target() {
    let mut w = world(migration("Pending"), vmi(Value::Null), vec![]);
    w.failed = Some(SyncError::new("FailedCreate", "failed to create Pod x: exceeded quota: q, requested: pods=1"));
    let actions = decide(&w);
    let shown = condition_after(&w, "migrationRejectedByResourceQuota").unwrap();
    assert!(shown.message().contains("exceeded quota: q"));
    assert_eq!((phase_after(&w).as_str(), waits_for(&w).as_str()), ("Pending", ""));
    assert!(notes(&actions).contains(&"vmi:FailedCreate".to_owned()));
    w.migration = Arc::new(written(&actions).unwrap().clone());
    w.failed = None;
    assert!(condition_after(&w, "migrationRejectedByResourceQuota").is_some(), "nothing says that there is room");
    w.pods.push(Arc::new(target("new")));
    assert_eq!(phase_after(&w), "Scheduling");
    assert_eq!(condition_after(&w, "migrationRejectedByResourceQuota"), None);
}

#[test]
fn any_other_refusal_shows_as_what_is_waited_for() {
    let mut w = world(migration("Pending"), vmi(Value::Null), vec![]);
    w.failed = Some(SyncError::new("FailedCreate", "failed to create Pod x: violates PodSecurity"));
    assert_eq!(waits_for(&w), "FailedCreate");
    w.migration = Arc::new(written(&decide(&w)).unwrap().clone());
    assert_eq!(notes(&decide(&w)), Vec::<String>::new(), "one event is enough");
}

#[test]
fn between_hand_off_and_transfer_it_says_which_node_is_waited_for() {
    let w = world(migration("PreparingTarget"), vmi(course("handed off")), vec![target("running")]);
    assert_eq!(waits_for(&w), "TargetNodePreparing");
    assert!(condition_after(&w, "migrationWaiting").unwrap().message().contains("n2"));
    let w = world(migration("TargetReady"), vmi(course("listening")), vec![target("running")]);
    assert_eq!(waits_for(&w), "SourceNodeNotStarted");
    let w = world(migration("TargetReady"), vmi(course("sending")), vec![target("running")]);
    assert_eq!(waits_for(&w), "", "it waits no more");
}

#[test]
fn what_is_waited_for_stays_until_the_next_attempt_has_succeeded() {
    let mut w = world(migration("Pending"), vmi(Value::Null), vec![]);
    w.migration = Arc::new(written(&decide(&w)).unwrap().clone());
    w.failed = Some(SyncError::new("FailedCreate", "Pods are forbidden here"));
    w.migration = Arc::new(written(&decide(&w)).unwrap().clone());
    assert_eq!(waits_for(&w), "FailedCreate");
    w.failed = None;
    assert_eq!(decide(&w), [Action::Own(Own::Start)], "nothing is written before the next attempt");
    w.failed = Some(SyncError::new("FailedCreate", "Pods are forbidden here"));
    assert_eq!(decide(&w), [], "nor after it, if it fails alike");
    w.failed = None;
    w.pods.push(Arc::new(target("running")));
    assert_eq!(
        (phase_after(&w).as_str(), waits_for(&w).as_str()),
        ("Scheduling", ""),
        "one that succeeds ends the wait"
    );
}
