//! One row of the table at a time, and each row against those after it.

use api::conditions::{PAUSED, POD_SCHEDULED, SYNCHRONIZED};
use api::v1::VirtualMachinePrintableStatus as Printable;
use std::time::Duration;

use super::*;
use crate::vm::printable;

fn word(w: &World) -> Printable {
    printable::status(w, &w.vm, &w.vm.run_strategy().unwrap())
}

fn condition(type_: &str, status: &str, reason: &str) -> Value {
    json!({"status": {"conditions": [{"type": type_, "status": status, "reason": reason}]}})
}

/// Something that makes a row true, and leaves those before it false.
struct Row {
    expected: Printable,
    makes: fn(&mut World),
}

fn set_vm(w: &mut World, change: Value) {
    w.vm = Arc::new(with((*w.vm).clone(), change));
}

fn set_vmi(w: &mut World, phase: &str, change: Value) {
    let mut changed = with(vmi(phase), change);
    changed.metadata.annotations = None;
    w.vmi = Some(Arc::new(changed));
}

fn use_disk(w: &mut World, volume: Value) {
    set_vm(w, json!({"spec": {"template": {"spec": {"volumes": [volume]}}}}));
}

fn import(w: &mut World, status: Value) {
    use_disk(w, json!({"name": "d", "dataVolume": {"name": "d"}}));
    w.claims.data_volumes.insert("d".into(), data_volume("d", status));
}

/// In the order of the table. Rows about the instance start from one that says nothing else.
fn rows() -> Vec<Row> {
    let row = |expected, makes: fn(&mut World)| Row { expected, makes };
    vec![
        row(Printable::Terminating, |w| set_vm(w, json!({"metadata": {"deletionTimestamp": time(1)}}))),
        row(Printable::Stopping, |w| set_vmi(w, "Running", json!({"metadata": {"deletionTimestamp": time(1)}}))),
        row(Printable::Stopping, |w| {
            set_vmi(w, "Running", json!({}));
            w.expects_instance = Some(Duration::from_secs(9));
        }),
        row(Printable::Migrating, |w| {
            set_vmi(w, "Running", json!({"status": {"migrationState": {"startTimestamp": time(1)}}}));
        }),
        row(Printable::Paused, |w| set_vmi(w, "Running", condition(PAUSED, "True", "PausedByUser"))),
        row(Printable::Running, |w| set_vmi(w, "Running", json!({}))),
        row(Printable::ErrorPvcNotFound, |w| {
            set_vmi(w, "Pending", condition(SYNCHRONIZED, "False", "FailedPvcNotFound"));
        }),
        row(Printable::DataVolumeError, |w| import(w, json!({"phase": "Failed"}))),
        row(Printable::DataVolumeError, |w| {
            let stopped = json!([{"type": "Running", "status": "False", "reason": "ImagePullFailed"}]);
            import(w, json!({"phase": "ImportInProgress", "conditions": stopped}));
        }),
        row(Printable::ErrorUnschedulable, |w| {
            set_vmi(w, "Scheduling", condition(POD_SCHEDULED, "False", "Unschedulable"));
        }),
        row(Printable::Provisioning, |w| import(w, json!({"phase": "ImportInProgress"}))),
        row(Printable::Provisioning, |w| {
            let bound = json!([{"type": "Bound", "status": "True"}]);
            import(w, json!({"phase": "WaitForFirstConsumer", "conditions": bound}));
        }),
        row(Printable::WaitingForVolumeBinding, |w| {
            use_disk(w, json!({"name": "d", "persistentVolumeClaim": {"claimName": "d"}}));
            w.claims.claims.insert("d".into(), claim("d", "Pending"));
        }),
        row(Printable::ErrImagePull, |w| {
            set_vmi(w, "Scheduling", condition(SYNCHRONIZED, "False", "ErrImagePull"));
        }),
        row(Printable::ImagePullBackOff, |w| {
            set_vmi(w, "Scheduling", condition(SYNCHRONIZED, "False", "ImagePullBackOff"));
        }),
        row(Printable::Starting, |w| set_vmi(w, "Scheduled", json!({}))),
        row(Printable::Starting, |w| {
            w.vmi = None;
            w.expects_instance = Some(Duration::from_secs(9));
        }),
        row(Printable::CrashLoopBackOff, |w| {
            w.vmi = None;
            let failure = json!({"consecutiveFailCount": 1, "lastFailedVMIUID": "x", "retryAfterTimestamp": time(500)});
            set_vm(w, json!({"status": {"startFailure": failure}}));
        }),
        row(Printable::Stopped, |w| {
            set_vmi(
                w,
                "Succeeded",
                json!({"status": {"phaseTransitionTimestamps":
            [{"phase": "Running", "phaseTransitionTimestamp": time(1)}]}}),
            )
        }),
        row(Printable::WaitingForReceiver, |w| {
            set_vm(w, json!({"spec": {"runStrategy": "WaitAsReceiver"}}));
            let receiver = json!({"metadata": {"annotations": {"kubevirt.io/create-migration-target": "true"}}});
            w.vmi = Some(Arc::new(with(vmi("WaitingForSync"), receiver)));
        }),
        row(Printable::WaitingForReceiver, |w| {
            set_vm(w, json!({"spec": {"runStrategy": "Manual"}}));
            w.vmi = Some(Arc::new(vmi("WaitingForSync")));
        }),
        row(Printable::Unknown, |w| set_vmi(w, "Unknown", json!({}))),
    ]
}

#[test]
fn each_row_holds() {
    for (index, row) in rows().into_iter().enumerate() {
        let mut w = world(vm("Always"), None);
        (row.makes)(&mut w);
        assert_eq!(word(&w), row.expected, "row {index}");
    }
}

#[test]
fn of_two_rows_that_hold_the_first_wins() {
    let all = rows();
    for (first, earlier) in all.iter().enumerate() {
        for later in &all[first..] {
            let mut w = world(vm("Always"), None);
            (later.makes)(&mut w);
            // What two rows cannot both have is the earlier one's.
            w.expects_instance = None;
            set_vm(&mut w, json!({"spec": {"runStrategy": "Always"}}));
            (earlier.makes)(&mut w);
            assert_eq!(word(&w), earlier.expected, "against {:?}", later.expected);
        }
    }
}

#[test]
fn a_claim_is_waited_for_only_by_a_machine_on_its_way_up() {
    let bind = |strategy: &str, requests: Value, vmi: Option<&str>| {
        let mut w = world(with_requests(vm(strategy), requests), vmi.map(super::vmi));
        use_disk(&mut w, json!({"name": "d", "persistentVolumeClaim": {"claimName": "d"}}));
        w.claims.claims.insert("d".into(), claim("d", "Pending"));
        word(&w) == Printable::WaitingForVolumeBinding
    };
    let (start, stop) = (json!([{"action": "Start"}]), json!([{"action": "Stop", "uid": "vmi-uid"}]));
    let rows = [
        ("Always", json!([]), None, true),
        ("Halted", json!([]), None, false),
        ("Manual", json!([]), None, false),
        ("Manual", start.clone(), None, true),
        ("Manual", json!([]), Some("Pending"), true),
        ("Manual", stop, Some("Pending"), false),
        ("RerunOnFailure", json!([]), None, true),
        ("RerunOnFailure", json!([]), Some("Succeeded"), false),
        ("Once", json!([]), None, true),
        ("Once", json!([]), Some("Pending"), false),
        ("WaitAsReceiver", json!([]), None, false),
    ];
    for (strategy, requests, vmi, waits) in rows {
        assert_eq!(bind(strategy, requests.clone(), vmi), waits, "{strategy} {requests} {vmi:?}");
    }
}
