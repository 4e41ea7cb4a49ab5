use serde_json::{Value, json};

use super::{in_phase, vm, vmi};
use crate::*;

fn code(result: Result<(), Refusal>) -> u16 {
    result.map_or_else(|refusal| refusal.code(), |()| 200)
}

fn running(over: Value) -> api::v1::VirtualMachineInstance {
    let mut base = json!({ "status": { "phase": "Running", "nodeName": "n1" } });
    super::merge(&mut base, over);
    vmi(base)
}

fn with_condition(type_: &str, status: &str) -> Value {
    json!({ "status": { "conditions": [{ "type": type_, "status": status }] } })
}

#[test]
fn pausing_needs_a_running_guest_that_is_not_paused_and_not_probed() {
    assert_eq!(code(pause(&running(json!({})))), 200);
    assert_eq!(code(pause(&in_phase("Scheduled"))), 409);
    assert_eq!(code(pause(&running(with_condition("Paused", "True")))), 409);
    // The condition's presence counts, not its status.
    assert_eq!(code(pause(&running(with_condition("Paused", "False")))), 409);
    let probed = json!({ "spec": { "livenessProbe": { "tcpSocket": { "port": 80 } } } });
    assert_eq!(code(pause(&running(probed))), 403);
    let pinged = json!({ "spec": { "livenessProbe": { "guestAgentPing": {} } } });
    assert_eq!(code(pause(&running(pinged))), 200);
}

#[test]
fn unpausing_needs_a_paused_guest_and_no_snapshot() {
    let paused = running(with_condition("Paused", "True"));
    assert_eq!(code(unpause(&paused, None)), 200);
    assert_eq!(code(unpause(&paused, Some(&vm(json!({}))))), 200);
    assert_eq!(code(unpause(&paused, Some(&vm(json!({ "status": { "snapshotInProgress": "s" } }))))), 409);
    assert_eq!(code(unpause(&running(json!({})), None)), 409);
    assert_eq!(code(unpause(&in_phase("Succeeded"), None)), 409);
}

#[test]
fn a_soft_reboot_needs_somebody_inside_who_listens() {
    let no_acpi = json!({ "spec": { "domain": { "features": { "acpi": { "enabled": false } } } } });
    let mut with_agent = no_acpi.clone();
    super::merge(&mut with_agent, with_condition("AgentConnected", "True"));
    assert_eq!(code(soft_reboot(&running(json!({})))), 200);
    assert_eq!(code(soft_reboot(&running(no_acpi))), 409);
    assert_eq!(code(soft_reboot(&running(with_agent))), 200);
    assert_eq!(code(soft_reboot(&running(with_condition("Paused", "True")))), 409);
    assert_eq!(code(soft_reboot(&running(with_condition("Paused", "False")))), 200);
    assert_eq!(code(soft_reboot(&in_phase("Scheduled"))), 409);
}

#[test]
fn the_console_needs_a_serial_line_and_a_running_guest() {
    let without = json!({ "spec": { "domain": { "devices": { "autoattachSerialConsole": false } } } });
    assert_eq!(code(console(&running(json!({})))), 200);
    assert_eq!(code(console(&running(without))), 400);
    assert_eq!(code(console(&in_phase("Failed"))), 409);
    assert_eq!(code(console(&in_phase("Scheduled"))), 400);
}

#[test]
fn the_display_needs_a_graphics_device_and_a_running_guest() {
    let without = json!({ "spec": { "domain": { "devices": { "autoattachGraphicsDevice": false } } } });
    assert_eq!(code(vnc(&running(json!({})))), 200);
    assert_eq!(code(vnc(&running(without))), 400);
    assert_eq!(code(vnc(&in_phase("Pending"))), 400);
}

#[test]
fn the_guest_agent_must_be_connected() {
    assert_eq!(code(guest_agent(&running(with_condition("AgentConnected", "True")))), 200);
    assert_eq!(code(guest_agent(&running(json!({})))), 409);
    assert_eq!(code(guest_agent(&in_phase("Failed"))), 409);
}

#[test]
fn only_scheduled_and_running_instances_have_a_node_to_ask() {
    assert_eq!(handler_node(&running(json!({}))), Ok("n1"));
    let scheduled = vmi(json!({ "status": { "phase": "Scheduled", "nodeName": "n2" } }));
    assert_eq!(handler_node(&scheduled), Ok("n2"));
    let refusal = handler_node(&in_phase("Pending")).expect_err("refused");
    assert_eq!(refusal.code(), 400);
    assert!(refusal.message().contains("Pending"), "{}", refusal.message());
    assert_eq!(handler_node(&in_phase("Running")).expect_err("refused").code(), 400);
}

#[test]
fn a_forwarded_port_leads_to_the_first_interface() {
    let at = |ip: &str| running(json!({ "status": { "interfaces": [{ "ipAddress": ip }] } }));
    assert_eq!(port_forward(&at("10.244.1.5"), "22"), Ok("10.244.1.5:22".parse().expect("an address")));
    assert_eq!(port_forward(&at("fd00::5"), "22"), Ok("[fd00::5]:22".parse().expect("an address")));
    let refused = |vmi, port| port_forward(&vmi, port).expect_err("refused").code();
    for port in ["0", "65536", "ssh", ""] {
        assert_eq!(refused(at("10.244.1.5"), port), 400, "{port:?}");
    }
    assert_eq!(refused(running(json!({})), "22"), 400);
    assert_eq!(refused(at(""), "22"), 400);
    let mut paused = json!({ "status": { "interfaces": [{ "ipAddress": "10.244.1.5" }] } });
    super::merge(&mut paused, with_condition("Paused", "True"));
    assert_eq!(refused(running(paused), "22"), 409);
}

#[test]
fn protocols_are_tcp_or_udp() {
    assert_eq!(Protocol::parse(None), Ok(Protocol::Tcp));
    assert_eq!(Protocol::parse(Some("tcp")), Ok(Protocol::Tcp));
    assert_eq!(Protocol::parse(Some("udp")), Ok(Protocol::Udp));
    assert_eq!(Protocol::parse(Some("sctp")).expect_err("refused").code(), 400);
}

#[test]
fn a_machines_instance_must_be_its_own() {
    let created = vm(json!({ "status": { "created": true } }));
    let owner = json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": "vm-uid" });
    let own = vmi(json!({ "metadata": { "ownerReferences": [owner] } }));
    assert_eq!(code(instance_of(&created, Some(&own))), 200);
    assert_eq!(code(instance_of(&created, Some(&vmi(json!({}))))), 500);
    assert_eq!(code(instance_of(&created, None)), 404);
    assert_eq!(code(instance_of(&vm(json!({})), Some(&own))), 409);
}

#[test]
fn a_failed_reset_of_a_guest_that_does_not_run_says_so() {
    let error = Refusal::internal("no domain");
    assert_eq!(reset_failure(&running(json!({})), error.clone()), error);
    let explained = reset_failure(&in_phase("Scheduled"), error);
    assert_eq!(explained.message(), "unable to reset VMI in phase \"Scheduled\": Internal error occurred: no domain");
    assert_eq!(explained.code(), 500);
}

#[test]
fn refusals_are_statuses_that_name_the_object() {
    let refusal = Refusal::conflict(Kind::VirtualMachineInstance, "vm", "VMI is not running");
    assert_eq!(
        serde_json::to_value(refusal.status()).expect("a Status encodes"),
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io \"vm\": VMI is not running",
            "reason": "Conflict",
            "details": { "name": "vm", "group": "kubevirt.io", "kind": "virtualmachineinstance" },
            "code": 409,
        })
    );
}
