use serde_json::{Value, json};

use super::{in_phase, object, vmi};
use crate::options::{EvacuateCancelOptions, MigrateOptions};
use crate::*;

#[test]
fn a_running_guest_is_moved_by_a_migration_named_after_the_request() {
    let selector = [("zone".to_owned(), "b".to_owned())].into();
    let options = MigrateOptions { added_node_selector: selector, ..MigrateOptions::default() };
    let migration = migrate("vm", &in_phase("Running"), &options).unwrap();
    assert_eq!(migration.metadata.generate_name.as_deref(), Some("kubevirt-migrate-vm-"));
    let spec = serde_json::to_value(&migration.spec).unwrap();
    assert_eq!(spec, json!({"vmiName": "vm", "addedNodeSelector": {"zone": "b"}}));
    for phase in ["Pending", "Scheduled", "Succeeded", "Failed"] {
        assert_eq!(migrate("vm", &in_phase(phase), &options).unwrap_err().code(), 409, "{phase}");
    }
}

fn cancel(status: Value, taints: Value, body: Option<&str>) -> Result<Option<Value>, u16> {
    let vmi = vmi(json!({ "status": status }));
    let node = object(json!({ "metadata": { "name": "n1" } }), json!({ "spec": { "taints": taints } }));
    let options = body.map(|node| EvacuateCancelOptions { evacuation_node_name: node.to_owned(), dry_run: vec![] });
    let config = api::config::ClusterConfig::default();
    let answer = cancel_evacuation(&vmi, Some(&node), &config, options.as_ref());
    answer.map(|patch| patch.map(|patch| json!(patch))).map_err(|refusal| refusal.code())
}

#[test]
fn an_evacuation_is_called_off_for_the_node_that_was_named() {
    let marked = json!({ "nodeName": "n1", "evacuationNodeName": "n1" });
    let patch = json!([
        { "op": "test", "path": "/status/evacuationNodeName", "value": "n1" },
        { "op": "remove", "path": "/status/evacuationNodeName" },
    ]);
    assert_eq!(cancel(marked.clone(), json!([]), Some("n1")), Ok(Some(patch)));
    assert_eq!(cancel(json!({ "nodeName": "n1" }), json!([]), None), Ok(None), "there is nothing to call off");
    assert_eq!(cancel(marked.clone(), json!([]), None), Err(400), "which one is not said");
    let drained = json!([{ "key": "kubevirt.io/drain", "effect": "NoSchedule" }]);
    assert_eq!(cancel(marked.clone(), drained.clone(), Some("n1")), Err(400), "it would be marked again");
    assert_eq!(cancel(json!({ "nodeName": "n1" }), drained, None), Err(400));
    let other = json!([{ "key": "kubevirt.io/drain", "effect": "NoExecute" }]);
    assert!(cancel(marked, other, Some("n1")).is_ok());
}

#[test]
fn an_evacuation_is_about_the_marked_node_or_the_present_one() {
    let of = |status: Value| evacuated_node(&vmi(json!({ "status": status }))).map(str::to_owned);
    assert_eq!(of(json!({ "nodeName": "n1", "evacuationNodeName": "n2" })).as_deref(), Some("n2"));
    assert_eq!(of(json!({ "nodeName": "n1", "evacuationNodeName": "" })).as_deref(), Some("n1"));
    assert_eq!(of(json!({})), None);
}
