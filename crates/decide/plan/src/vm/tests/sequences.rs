//! Whole lives, step by step, and what they cost.

use api::v1::VirtualMachineInstancePhase as Phase;
use api::v1::VirtualMachinePrintableStatus as Printable;

use super::model::Cluster;
use super::*;

fn word(cluster: &Cluster) -> Printable {
    let status = cluster.vm.as_ref().and_then(|vm| vm.status.as_ref());
    status.and_then(|status| status.printable_status.clone()).unwrap_or_default()
}

fn set_phase(cluster: &mut Cluster, phase: &str) {
    cluster.claims.data_volumes.insert("root".into(), data_volume("root", json!({"phase": phase})));
}

#[test]
fn a_cold_start_with_a_data_volume() {
    let mut c = Cluster::new("Always");
    let disk = json!({"spec": {
        "dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": {"source": {"blank": {}}, "storage": {}}}],
        "template": {"spec": {"volumes": [{"name": "root", "dataVolume": {"name": "root"}}]}}}});
    c.vm = c.vm.map(|vm| with(vm, disk));

    assert!(c.pass(), "finalizer, stamp and firmware UUID");
    assert_eq!(c.writes, ["patch VM"]);
    assert!(c.pass(), "the DataVolume");
    assert_eq!(c.writes.split_off(1), ["create DataVolume"]);
    set_phase(&mut c, "ImportInProgress");
    c.settle();
    assert_eq!(word(&c), Printable::Provisioning);
    assert_eq!(c.writes.split_off(1), ["VM status"]);
    let ready = c.vm.as_ref().unwrap().condition(api::conditions::READY).unwrap().clone();
    assert!(ready.message().contains("DataVolume root is in phase ImportInProgress"), "{}", ready.message());

    set_phase(&mut c, "Succeeded");
    assert!(c.pass(), "revision and instance");
    assert_eq!(c.writes.split_off(1), ["create revision", "create VMI"]);
    c.settle();
    assert_eq!(word(&c), Printable::Starting);
    assert_eq!(c.writes.split_off(1), ["VM status"]);
    for phase in [Phase::Scheduling, Phase::Scheduled] {
        c.enter(phase);
        c.settle();
        assert_eq!(c.writes.split_off(1), [""; 0], "nothing new to tell");
    }
    c.enter(Phase::Running);
    c.settle();
    assert_eq!(word(&c), Printable::Running);
    assert_eq!(c.writes.split_off(1), ["VM status"]);
    let vmi = with(c.vmi.clone().unwrap(), json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    c.store_vmi(vmi);
    c.settle();
    let status = c.vm.as_ref().unwrap().status.clone().unwrap();
    assert_eq!((status.created, status.ready), (Some(true), Some(true)));
}

#[test]
fn a_cold_start_without_volumes_costs_five_writes() {
    let mut c = Cluster::new("Always");
    c.settle();
    c.enter(Phase::Scheduling);
    c.settle();
    c.enter(Phase::Scheduled);
    c.settle();
    c.enter(Phase::Running);
    c.settle();
    assert_eq!(c.writes, ["patch VM", "create revision", "create VMI", "VM status", "VM status"]);
}

#[test]
fn a_stop_by_request() {
    let mut c = Cluster::new("Manual");
    c.settle();
    let ask = |c: &mut Cluster, request: Value| {
        let vm = with_requests(c.vm.clone().unwrap(), request);
        c.store_vm(vm);
    };
    ask(&mut c, json!([{"action": "Start"}]));
    c.settle();
    c.enter(Phase::Running);
    c.settle();
    assert!(c.vm.as_ref().unwrap().status.as_ref().unwrap().state_change_requests.is_empty(), "the start is done");
    let uid = c.vmi.as_ref().unwrap().metadata.uid.clone();
    ask(&mut c, json!([{"action": "Stop", "uid": uid}]));
    c.writes.clear();
    c.settle();
    assert_eq!(c.writes, ["delete VMI", "VM status"]);
    assert_eq!(word(&c), Printable::Stopping);
    c.enter(Phase::Succeeded);
    c.writes.clear();
    c.settle();
    assert_eq!(c.writes, ["VM status", "patch VMI"], "the outcome is on record before the finalizer goes");
    c.advance_instance(1); // the instance controller lets go, too
    assert!(c.vmi.is_none());
    c.settle();
    assert_eq!(word(&c), Printable::Stopped);
    assert!(c.vm.as_ref().unwrap().status.as_ref().unwrap().state_change_requests.is_empty());
}

#[test]
fn a_restart_keeps_only_the_head_of_its_requests_in_force() {
    let mut c = Cluster::new("Always");
    c.settle();
    c.enter(Phase::Running);
    c.settle();
    let first = c.vmi.as_ref().unwrap().metadata.uid.clone();
    let restart = json!([{"action": "Stop", "uid": first}, {"action": "Start"}]);
    let vm = with_requests(c.vm.clone().unwrap(), restart);
    c.store_vm(vm);
    c.settle();
    let requests = |c: &Cluster| c.vm.as_ref().unwrap().status.as_ref().unwrap().state_change_requests.len();
    assert_eq!(requests(&c), 2, "the stop stands until its instance is gone");
    c.enter(Phase::Succeeded);
    c.settle();
    c.advance_instance(1);
    c.settle();
    let second = c.vmi.as_ref().unwrap().metadata.uid.clone();
    assert_ne!(first, second);
    assert_eq!(requests(&c), 0);
    let late = with_requests(c.vm.clone().unwrap(), json!([{"action": "Stop", "uid": first}]));
    c.store_vm(late);
    c.settle();
    assert_eq!(c.vmi.as_ref().unwrap().metadata.uid, second, "a second stop of an old instance does nothing");
    assert_eq!(requests(&c), 0);
}
