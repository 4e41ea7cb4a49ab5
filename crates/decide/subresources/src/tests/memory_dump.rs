use api::config::ClusterConfig;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};

use super::{in_phase, merge, object, vm, vmi};
use crate::lifecycle::Step;
use crate::options::MemoryDumpOptions;
use crate::{DumpFacts, Refusal, dump_claim, dump_claim_bytes, dump_memory, remove_dump};

fn claim(over: Value) -> PersistentVolumeClaim {
    let base = json!({ "spec": {
        "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "resources": { "requests": { "storage": "1Gi" } },
    } });
    object(base, over)
}

fn running(over: Value) -> api::v1::VirtualMachineInstance {
    let mut base =
        json!({ "spec": { "domain": { "memory": { "guest": "512Mi" } } }, "status": { "phase": "Running" } });
    merge(&mut base, over);
    vmi(base)
}

fn with(request: Value) -> api::v1::VirtualMachine {
    vm(json!({ "status": { "created": true, "memoryDumpRequest": request } }))
}

fn refused(result: Result<Step, Refusal>) -> (u16, String) {
    let refusal = result.expect_err("it is refused");
    (refusal.code(), refusal.message().to_owned())
}

#[test]
fn a_dump_goes_to_the_claim_that_is_asked_for_or_that_of_the_last_one() {
    let asked = |claim: &str| MemoryDumpOptions { claim_name: claim.to_owned() };
    let (fresh, last) = (vm(json!({})), with(json!({ "claimName": "a", "phase": "Completed" })));
    assert_eq!(dump_claim(&fresh, &asked("a")).expect("a claim"), "a");
    assert_eq!(dump_claim(&last, &asked("")).expect("a claim"), "a");
    assert_eq!(dump_claim(&last, &asked("a")).expect("a claim"), "a");
    assert_eq!(dump_claim(&fresh, &asked("")).expect_err("no claim").code(), 400);
    assert_eq!(dump_claim(&last, &asked("b")).expect_err("another claim").code(), 409);
}

#[test]
fn a_claim_that_cannot_take_the_dump_is_refused() {
    let (config, good, vmi) = (ClusterConfig::default(), claim(json!({})), running(json!({})));
    let facts = DumpFacts { vmi: Some(&vmi), claim: Some(&good), overhead: None };
    let Step::VmStatus(patch) = dump_memory(&vm(json!({})), "c", facts, &config).expect("a step") else { panic!() };
    assert!(patch.to_string().contains("Associating"), "{patch}");
    let small = claim(json!({ "spec": { "resources": { "requests": { "storage": "612Mi" } } } }));
    let block = claim(json!({ "spec": { "volumeMode": "Block" } }));
    let readonly = claim(json!({ "spec": { "accessModes": ["ReadOnlyMany"] } }));
    let starting = in_phase("Scheduled");
    for (facts, code, words) in [
        (DumpFacts { vmi: None, ..facts }, 409, "not running"),
        (DumpFacts { vmi: Some(&starting), ..facts }, 409, "not running"),
        (DumpFacts { claim: None, ..facts }, 404, "\"c\" not found"),
        (DumpFacts { claim: Some(&small), ..facts }, 409, "a memory dump needs"),
        (DumpFacts { claim: Some(&block), ..facts }, 409, "volumeMode Block"),
        (DumpFacts { claim: Some(&readonly), ..facts }, 409, "read only"),
    ] {
        let (found, message) = refused(dump_memory(&vm(json!({})), "c", facts, &config));
        assert!(found == code && message.contains(words), "{found} {message}");
    }
    let busy = with(json!({ "claimName": "c", "phase": "InProgress" }));
    assert_eq!(refused(dump_memory(&busy, "c", facts, &config)).0, 409);
    let leaving = with(json!({ "claimName": "c", "phase": "Completed", "remove": true }));
    assert_eq!(refused(dump_memory(&leaving, "c", facts, &config)).0, 409);
    for phase in ["Completed", "Failed"] {
        let again = with(json!({ "claimName": "c", "phase": phase }));
        assert!(dump_memory(&again, "c", facts, &config).is_ok(), "after {phase}");
    }
}

#[test]
fn the_dump_needs_the_guests_memory_whichever_field_says_it() {
    let overhead =
        serde_json::from_value(json!({ "global": "0", "storageClass": { "slow": "0.5" } })).expect("settings");
    let requested = json!({ "spec": { "domain": { "resources": { "requests": { "memory": "1Gi" } } } } });
    let bytes = |over: Value, class: &str| dump_claim_bytes(&running(over), Some(&overhead), class);
    assert_eq!(bytes(json!({}), "fast"), 612 << 20);
    assert_eq!(bytes(requested, "fast"), 1124 << 20);
    assert_eq!(bytes(json!({}), "slow"), 1224 << 20);
    assert!(dump_claim_bytes(&running(json!({})), None, "") > 612 << 20, "the importer's default applies");
}

#[test]
fn a_claim_is_taken_away_once() {
    let config = ClusterConfig::default();
    assert_eq!(refused(remove_dump(&vm(json!({})), &config)).0, 409);
    let Step::VmStatus(patch) =
        remove_dump(&with(json!({ "claimName": "c", "phase": "Completed" })), &config).expect("a step")
    else {
        panic!()
    };
    assert!(patch.to_string().contains("Dissociating"), "{patch}");
    let leaving = with(json!({ "claimName": "c", "phase": "Dissociating", "remove": true }));
    assert_eq!(refused(remove_dump(&leaving, &config)).0, 409);
}
