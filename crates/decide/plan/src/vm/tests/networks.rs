use super::*;

fn pod() -> (Value, Value) {
    (json!({"name": "default", "masquerade": {}}), json!({"name": "default", "pod": {}}))
}

fn nic(name: &str, state: Option<&str>) -> (Value, Value) {
    let interface = match state {
        Some(state) => json!({"name": name, "bridge": {}, "state": state}),
        None => json!({"name": name, "bridge": {}}),
    };
    (interface, json!({"name": name, "multus": {"networkName": name}}))
}

fn nets(all: &[(Value, Value)]) -> Value {
    let interfaces: Vec<_> = all.iter().map(|(interface, _)| interface.clone()).collect();
    let networks: Vec<_> = all.iter().map(|(_, network)| network.clone()).collect();
    json!({"domain": {"devices": {"interfaces": interfaces}}, "networks": networks})
}

fn between(template: &[(Value, Value)], guest: Option<&[(Value, Value)]>, reported: &[&str]) -> World {
    let vm = with(vm("Manual"), json!({"spec": {"template": {"spec": nets(template)}}}));
    let seen: Vec<_> = reported.iter().map(|name| json!({"name": name})).collect();
    let vmi = guest.map(|guest| with(vmi("Running"), json!({"spec": nets(guest), "status": {"interfaces": seen}})));
    world(vm, vmi)
}

fn names(spec: &api::v1::VirtualMachineInstanceSpec) -> (Vec<String>, Vec<String>) {
    let interfaces = spec.domain.devices.interfaces.iter().map(|interface| interface.name.clone()).collect();
    (interfaces, spec.networks.iter().map(|network| network.name.clone()).collect())
}

#[test]
fn a_new_interface_that_can_be_plugged_is_plugged() {
    let w = between(&[pod(), nic("blue", None)], Some(&[pod()]), &[]);
    let (interfaces, networks) = names(&instance_after(&w).unwrap().spec);
    assert_eq!((interfaces, networks), (vec!["default".into(), "blue".into()], vec!["default".into(), "blue".into()]));
    let other = (json!({"name": "x", "masquerade": {}}), json!({"name": "x", "multus": {"networkName": "x"}}));
    assert!(instance_after(&between(&[pod(), other], Some(&[pod()]), &[])).is_none(), "this binding cannot be plugged");
    assert!(instance_after(&between(&[pod(), nic("blue", Some("absent"))], Some(&[pod()]), &["blue"])).is_none());
}

#[test]
fn a_state_follows_the_template_until_the_interface_is_on_its_way_out() {
    let state = |w: &World| instance_after(w).map(|vmi| vmi.spec.domain.devices.interfaces[0].state.clone());
    let down = between(&[nic("blue", Some("down"))], Some(&[nic("blue", None)]), &["blue"]);
    assert_eq!(state(&down), Some(Some("down".into())));
    let up = between(&[nic("blue", None)], Some(&[nic("blue", Some("down"))]), &["blue"]);
    assert_eq!(state(&up), Some(None));
    let leaving = between(&[nic("blue", None)], Some(&[nic("blue", Some("absent"))]), &["blue"]);
    assert_eq!(state(&leaving), None);
    let mut ordinal = between(&[nic("blue", Some("absent"))], Some(&[nic("blue", None)]), &["blue"]);
    let named = json!({"status": {"interfaces": [{"name": "blue", "podInterfaceName": "net1"}]}});
    ordinal.vmi = Some(Arc::new(with((**ordinal.vmi.as_ref().unwrap()).clone(), named)));
    assert_eq!(state(&ordinal), None, "names by order would shift");
}

#[test]
fn an_interface_leaves_guest_and_template_when_nobody_sees_it_any_more() {
    let absent = nic("blue", Some("absent"));
    let seen = between(&[pod(), absent.clone()], Some(&[pod(), absent.clone()]), &["default", "blue"]);
    assert!(instance_after(&seen).is_none() && machine_after(&seen).is_none());
    let unseen = between(&[pod(), absent.clone()], Some(&[pod(), absent.clone()]), &["default"]);
    assert_eq!(names(&instance_after(&unseen).unwrap().spec).0, ["default"]);
    assert_eq!(names(&machine_after(&unseen).unwrap().spec.template.spec).1, ["default"], "in the same pass");
    let stopped = between(&[pod(), absent.clone()], None, &[]);
    assert_eq!(names(&machine_after(&stopped).unwrap().spec.template.spec).0, ["default"]);
    let mut going = between(&[pod(), absent], Some(&[pod()]), &["default"]);
    Arc::make_mut(going.vmi.as_mut().unwrap()).metadata.deletion_timestamp = Some(time(1));
    assert!(machine_after(&going).is_none(), "the template waits for the instance to go");
}
