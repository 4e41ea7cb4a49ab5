use api::v1::{MemoryDumpPhase as Phase, VirtualMachineMemoryDumpRequest};

use super::*;

fn asked(request: Value) -> VirtualMachine {
    with(vm("Manual"), json!({"status": {"memoryDumpRequest": request}}))
}

fn request(phase: &str) -> Value {
    json!({"claimName": "dump", "phase": phase})
}

fn dump_volume() -> Value {
    json!({"name": "dump", "memoryDump": {"claimName": "dump", "hotpluggable": true}})
}

fn root() -> Value {
    json!({"name": "root", "containerDisk": {"image": "disk:1"}})
}

fn reporting(phase: &str) -> VirtualMachineInstance {
    let info =
        json!({"claimName": "dump", "startTimestamp": time(1), "endTimestamp": time(2), "targetFileName": "vm.dump"});
    let status =
        json!([{"name": "dump", "target": "", "phase": phase, "message": "disk full", "memoryDumpVolume": info}]);
    with(vmi("Running"), json!({"spec": {"volumes": [root(), dump_volume()]}, "status": {"volumeStatus": status}}))
}

fn plugged(vm: VirtualMachine) -> VirtualMachine {
    with(vm, json!({"spec": {"template": {"spec": {"volumes": [root(), dump_volume()]}}}}))
}

fn after(w: &World) -> Option<VirtualMachineMemoryDumpRequest> {
    status_after(w).status.unwrap().memory_dump_request
}

#[test]
fn the_claim_is_plugged_into_template_and_running_guest() {
    let w = world(asked(request("Associating")), Some(vmi("Running")));
    let in_guest = instance_after(&w).unwrap();
    assert_eq!(serde_json::to_value(in_guest.spec.volumes.last()).unwrap(), dump_volume());
    let in_template = machine_after(&w).unwrap();
    assert_eq!(serde_json::to_value(in_template.spec.template.spec.volumes.last()).unwrap(), dump_volume());
    let starting = world(asked(request("Associating")), Some(vmi("Scheduling")));
    assert!(machine_after(&starting).is_none(), "not before the guest runs");
    let shown = world(plugged(asked(request("Associating"))), Some(reporting("Ready")));
    assert_eq!(after(&shown).unwrap().phase, Phase::InProgress);
}

#[test]
fn a_dump_ends_as_the_node_reports() {
    let w = |phase| world(plugged(asked(request("InProgress"))), Some(reporting(phase)));
    let going = after(&w("MemoryDumpInProgress")).unwrap();
    assert_eq!((going.phase, going.start_timestamp), (Phase::InProgress, Some(time(1))));
    let done = after(&w("MemoryDumpCompleted")).unwrap();
    assert_eq!(
        (done.phase, done.file_name.as_deref(), done.end_timestamp),
        (Phase::Unmounting, Some("vm.dump"), Some(time(2)))
    );
    let failed = after(&w("MemoryDumpFailed")).unwrap();
    assert_eq!((failed.phase, failed.message.as_deref()), (Phase::Failed, Some("disk full")));
}

#[test]
fn the_claim_says_what_is_in_it_and_leaves_the_guest_but_not_the_template() {
    for (phase, file, words) in
        [("Unmounting", json!("vm.dump"), "vm.dump"), ("Failed", json!(null), "Memory dump failed")]
    {
        let request = json!({"claimName": "dump", "phase": phase, "fileName": file});
        let mut w = world(plugged(asked(request)), Some(reporting("MemoryDumpCompleted")));
        let (reason, message) = failure(&w).unwrap();
        assert_eq!(reason, "MemoryDumpError");
        assert!(message.contains("dump"), "{message}");
        w.claims.claims.insert("dump".into(), claim("dump", "Bound"));
        let actions = decide(&w);
        let noted = actions.iter().find_map(|action| match action {
            Action::Patch { kind: Kind::Claim, name, patch: Patch::Json(patch), .. } if name == "dump" => {
                Some(patched(&*claim("dump", "Bound"), patch))
            }
            _ => None,
        });
        assert_eq!(noted.unwrap().metadata.annotations.unwrap()["kubevirt.io/memory-dump"], words);
        assert_eq!(instance_after(&w).unwrap().spec.volumes.len(), 1);
        assert!(machine_after(&w).is_none());
    }
}

#[test]
fn a_request_is_complete_when_the_guest_has_let_go() {
    let unmounting = json!({"claimName": "dump", "phase": "Unmounting", "fileName": "vm.dump"});
    let held = world(plugged(asked(unmounting.clone())), Some(reporting("MemoryDumpCompleted")));
    assert_eq!(after(&held).unwrap().phase, Phase::Unmounting);
    let free = world(plugged(asked(unmounting.clone())), Some(vmi("Running")));
    assert_eq!(after(&free).unwrap().phase, Phase::Completed);
    assert_eq!(after(&world(plugged(asked(unmounting)), None)).unwrap().phase, Phase::Completed);
    let done = world(plugged(asked(request("Completed"))), Some(vmi("Running")));
    assert_eq!(after(&done).unwrap().phase, Phase::Completed, "and stays so");
}

#[test]
fn a_request_taken_back_takes_the_claim_out_of_everything() {
    for phase in ["Associating", "InProgress", "Unmounting", "Completed", "Failed"] {
        let request = json!({"claimName": "dump", "phase": phase, "remove": true});
        let w = world(plugged(asked(request)), Some(vmi("Scheduling")));
        assert_eq!(after(&w).unwrap().phase, Phase::Dissociating, "{phase}");
    }
    let gone = json!({"claimName": "dump", "phase": "Dissociating", "remove": true});
    let w = world(plugged(asked(gone.clone())), Some(reporting("MemoryDumpCompleted")));
    assert_eq!(machine_after(&w).unwrap().spec.template.spec.volumes.len(), 1);
    assert_eq!(instance_after(&w).unwrap().spec.volumes.len(), 1);
    assert_eq!(after(&world(asked(gone), Some(vmi("Running")))), None);
}

#[test]
fn the_next_guest_does_not_get_the_claim_of_a_dump_that_is_made() {
    let start = |phase: &str| {
        let mut w = world(plugged(asked(request(phase))), None);
        w.vm = Arc::new(with((*w.vm).clone(), json!({"spec": {"runStrategy": "Always"}})));
        creates(&decide(&w)).unwrap().spec.volumes.len()
    };
    assert_eq!(start("Completed"), 1);
    assert_eq!(start("InProgress"), 2);
}
