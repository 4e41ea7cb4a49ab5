//! How kinds read and write, and the questions they answer.

use std::fmt::Debug;

use api::conditions;
use api::v1::{
    BothRunningAndRunStrategy, Condition, ConditionStatus, RunStrategy, VirtualMachine, VirtualMachineInstance,
    VirtualMachineInstanceMigration, VirtualMachineInstancePhase,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::{List, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn vmi(status: Value) -> VirtualMachineInstance {
    serde_json::from_value(json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "domain": { "devices": {} } },
        "status": status,
    }))
    .expect("a well-formed instance")
}

fn at(second: i64) -> Time {
    Time(Timestamp::from_second(second).expect("a second within range"))
}

#[test]
fn kind_and_version_are_written_and_checked() {
    let written = serde_json::to_value(VirtualMachineInstance::default()).unwrap();
    assert_eq!(written["apiVersion"], "kubevirt.io/v1");
    assert_eq!(written["kind"], "VirtualMachineInstance");
    assert!(written.get("status").is_none());
    assert!(serde_json::from_value::<VirtualMachineInstance>(json!({ "spec": {} })).is_ok(), "as inside lists");
    let older = serde_json::from_value::<VirtualMachineInstance>(json!({ "apiVersion": "kubevirt.io/v1alpha3" }));
    assert!(older.is_ok(), "another served version");
    for wrong in [json!({ "kind": "VirtualMachine" }), json!({ "apiVersion": "kubevirt.io/v2" })] {
        let error = serde_json::from_value::<VirtualMachineInstance>(wrong).unwrap_err().to_string();
        assert!(error.contains("expected"), "{error}");
    }
    assert_eq!(VirtualMachineInstance::URL_PATH_SEGMENT, "virtualmachineinstances");
}

#[test]
fn lists_of_our_kinds_read_like_any_list() {
    let list: List<VirtualMachine> = serde_json::from_value(json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineList",
        "metadata": { "resourceVersion": "7" },
        "items": [{ "metadata": { "name": "a" } }, { "metadata": { "name": "b" } }],
    }))
    .unwrap();
    assert_eq!(list.items.len(), 2);
    assert_eq!(serde_json::to_value(&list).unwrap()["kind"], "VirtualMachineList");
}

#[test]
fn null_lists_and_maps_are_empty_and_values_of_the_future_survive() {
    let instance = vmi(json!({ "phase": "Hibernating", "conditions": null, "activePods": null }));
    let status = instance.status.clone().unwrap();
    assert!(status.conditions.is_empty() && status.active_pods.is_empty());
    assert_eq!(status.phase, Some(VirtualMachineInstancePhase::Other("Hibernating".into())));
    assert_eq!(serde_json::to_value(&instance).unwrap()["status"], json!({ "phase": "Hibernating" }));
}

#[test]
fn enumerations_keep_the_spelling_of_the_api_and_what_they_do_not_know() {
    use api::clone::VirtualMachineClonePhase as Clone;
    use api::export::ExportVolumeFormat as Format;
    use api::instancetype::PreferredCPUTopology as Topology;
    use api::v1::MigrationPriority as Priority;
    fn spelled<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T, text: &str) {
        assert_eq!(serde_json::to_value(&value).unwrap(), json!(text));
        assert_eq!(serde_json::from_value::<T>(json!(text)).unwrap(), value);
    }
    spelled(Clone::CreatingTargetVM, "CreatingTargetVM");
    spelled(Clone::Other("Teleporting".into()), "Teleporting");
    spelled(Format::ArchiveGz, "tar.gz");
    spelled(Format::Other("ArchiveGz".into()), "ArchiveGz");
    spelled(Topology::PreferSpread, "preferSpread");
    spelled(Topology::Other("Spread".into()), "Spread");
    spelled(Priority::SystemCritical, "system-critical");
    assert_eq!(Topology::PreferSpread.canonical(), Topology::Spread);
    assert_eq!(Topology::default().as_str(), "");
}

#[test]
fn foreign_kinds_read_what_controllers_look_at() {
    let volume: api::cdi::DataVolume = serde_json::from_value(json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": { "name": "disk", "namespace": "shop" },
        "spec": { "source": { "http": { "url": "http://images/disk" } }, "storage": {}, "neverHeardOf": 1 },
        "status": { "phase": "WaitForFirstConsumer", "conditions": [{ "type": "Bound", "status": "False" }] },
    }))
    .unwrap();
    let status = volume.status.unwrap();
    assert_eq!(status.phase, Some(api::cdi::DataVolumePhase::WaitForFirstConsumer));
    assert_eq!(status.conditions[0].type_, api::cdi::CONDITION_BOUND);
    let network: api::nad::NetworkAttachmentDefinition = serde_json::from_value(json!({
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": { "annotations": { "k8s.v1.cni.cncf.io/resourceName": "nic" } },
        "spec": { "config": "{}" },
    }))
    .unwrap();
    assert_eq!(network.metadata.annotations.unwrap()[api::nad::RESOURCE_NAME], "nic");
    assert_eq!(api::cdi::StorageProfile::URL_PATH_SEGMENT, "storageprofiles");
}

#[test]
fn phases_answer_questions() {
    let cases = [
        (json!({}), [false, true, false, false]),
        (json!({ "phase": "" }), [false, true, false, false]),
        (json!({ "phase": "Pending" }), [false, true, false, false]),
        (json!({ "phase": "Scheduling" }), [false, false, false, false]),
        (json!({ "phase": "Scheduled" }), [false, false, true, false]),
        (json!({ "phase": "Running" }), [false, false, false, true]),
        (json!({ "phase": "Succeeded" }), [true, false, false, false]),
        (json!({ "phase": "Failed" }), [true, false, false, false]),
    ];
    for (status, want) in cases {
        let instance = vmi(status.clone());
        let got = [instance.is_final(), instance.is_unprocessed(), instance.is_scheduled(), instance.is_running()];
        assert_eq!(got, want, "{status}");
    }
    assert_eq!(vmi(json!({})).domain_name(), "shop_web");
}

#[test]
fn a_migration_ends_in_one_of_two_phases() {
    let cases = [
        (json!(null), None, false),
        (json!({}), None, false),
        (json!({ "phase": "" }), None, false),
        (json!({ "phase": "Pending" }), Some("Pending"), false),
        (json!({ "phase": "Running" }), Some("Running"), false),
        (json!({ "phase": "Later" }), Some("Later"), false),
        (json!({ "phase": "Succeeded" }), Some("Succeeded"), true),
        (json!({ "phase": "Failed" }), Some("Failed"), true),
    ];
    for (status, phase, ended) in cases {
        let migration: VirtualMachineInstanceMigration =
            serde_json::from_value(json!({ "spec": {}, "status": status })).unwrap();
        assert_eq!((migration.phase().map(|phase| phase.as_str()), migration.is_final()), (phase, ended), "{status}");
    }
}

#[test]
fn the_run_strategy_comes_from_one_of_two_fields() {
    let cases = [
        (json!({}), Ok(RunStrategy::Halted)),
        (json!({ "running": true }), Ok(RunStrategy::Always)),
        (json!({ "running": false }), Ok(RunStrategy::Halted)),
        (json!({ "runStrategy": "RerunOnFailure" }), Ok(RunStrategy::RerunOnFailure)),
        (json!({ "running": true, "runStrategy": "Always" }), Err(BothRunningAndRunStrategy)),
    ];
    for (spec, want) in cases {
        let vm: VirtualMachine = serde_json::from_value(json!({ "spec": spec })).unwrap();
        assert_eq!(vm.run_strategy(), want, "{spec}");
    }
}

#[test]
fn a_condition_gives_way_only_to_a_new_status_or_reason() {
    let condition = |status, reason: &str, message: &str, second| {
        Condition::new(conditions::READY, status, reason, message, at(second))
    };
    let mut list = Vec::new();
    assert!(conditions::set(&mut list, condition(ConditionStatus::False, "A", "one", 1)));
    assert!(!conditions::set(&mut list, condition(ConditionStatus::False, "A", "two", 2)), "a new message alone");
    assert_eq!(list[0].message(), "one");
    assert!(conditions::set(&mut list, condition(ConditionStatus::False, "B", "three", 3)), "a new reason");
    assert_eq!(list[0].last_transition_time, Some(at(1)), "the status has not changed since");
    assert!(conditions::set(&mut list, condition(ConditionStatus::True, "B", "", 4)), "a new status");
    assert_eq!(list[0].last_transition_time, Some(at(4)));
    assert!(conditions::is_true(&list, conditions::READY) && !conditions::is_false(&list, conditions::READY));
    assert!(conditions::remove(&mut list, conditions::READY));
    assert!(!conditions::remove(&mut list, conditions::READY));
}

#[test]
fn lists_of_conditions_are_the_same_whatever_their_order_words_and_times() {
    let make = |type_: &str, reason: &str, second| {
        Condition::new(type_, ConditionStatus::True, reason, format!("{second}"), at(second))
    };
    let a = [make("A", "x", 1), make("B", "", 1)];
    assert!(conditions::same(&a, &[make("B", "", 2), make("A", "x", 3)]));
    assert!(!conditions::same(&a, &[make("B", "", 2), make("A", "y", 3)]));
    assert!(!conditions::same(&a, &a[..1]));
}
