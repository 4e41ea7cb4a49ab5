//! What is written into the status besides the phase.

use api::v1::VirtualMachineInstance;
use api::v1::VirtualMachineInstancePhase as Phase;
use serde_json::{Value, json};
use vmstate::{
    Action, DomainDisk, DomainInterface, DomainReason, DomainState, DomainStatus, DomainType, GuestAgent,
    GuestInterface,
};

use crate::support::{Scene, domain, running, settled, vmi, with};

fn full_domain() -> DomainState {
    DomainState {
        os_machine: "pc-q35-7.2".to_string(),
        memory_bytes: 256 << 20,
        interfaces: vec![DomainInterface {
            alias: "default".to_string(),
            mac: "02:00:00:aa:bb:01".to_string(),
            ..DomainInterface::default()
        }],
        disks: vec![DomainDisk {
            alias: "root".into(),
            target: "vda".into(),
            source: "/disk".into(),
            ..DomainDisk::default()
        }],
        ..running()
    }
}

fn guest(ips: &[&str]) -> GuestAgent {
    let interface = GuestInterface {
        name: "eth0".to_string(),
        mac: "02:00:00:AA:BB:01".to_string(),
        ips: ips.iter().map(ToString::to_string).collect(),
    };
    GuestAgent { interfaces: vec![interface], ..GuestAgent::default() }
}

fn stored_status(scene: &Scene) -> Value {
    serde_json::to_value(scene.stored().unwrap().status.unwrap()).unwrap()
}

#[test]
fn a_running_guest_that_does_not_say_its_pci_layout_gets_it_back() {
    let stripped = || {
        let mut vmi = settled(Scene::new(vmi(Phase::Running), full_domain())).vmi.unwrap();
        vmi.metadata.annotations = None;
        vmi
    };
    let actions = Scene::new(stripped(), full_domain()).decide();
    let [Action::UpdateVmi(new)] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!(new.metadata.annotations.as_ref().unwrap()["kubevirt.io/pci-topology-version"], "v3");
    assert_eq!(Scene::new((**new).clone(), full_domain()).decide(), []);
    let without_express = DomainState { os_machine: "pc-i440fx-7.2".to_string(), ..full_domain() };
    let other = settled(Scene::new(stripped(), without_express));
    assert_eq!(other.decide(), [], "its machine has no such layout");
}

#[test]
fn the_launchers_label_is_shown_once_it_is_known() {
    let scene = Scene::new(vmi(Phase::Running), full_domain());
    assert_eq!(stored_status(&scene)["selinuxContext"], Value::Null);
    let label = "system_u:system_r:container_t:s0:c1,c2";
    let scene = scene.but(|scene| scene.selinux = Some(label.to_string()));
    assert_eq!(stored_status(&scene)["selinuxContext"], label);
}

#[test]
fn the_domain_fills_machine_memory_interfaces_and_volume_targets() {
    let volumes = json!([{"name": "root", "target": ""}, {"name": "cloudinit", "target": "vdb"}]);
    let scene = Scene::new(with(vmi(Phase::Running), json!({"volumeStatus": volumes})), full_domain());
    let status = stored_status(&scene);
    assert_eq!(status["machine"], json!({"type": "pc-q35-7.2"}));
    assert_eq!(status["memory"], json!({"guestCurrent": "256Mi"}));
    assert_eq!(
        status["volumeStatus"],
        json!([{"name": "cloudinit", "target": ""}, {"name": "root", "target": "vda"}]),
        "sorted, and a volume without a disk has no target"
    );
    assert_eq!(
        status["interfaces"],
        json!([{
            "name": "default", "mac": "02:00:00:aa:bb:01", "infoSource": "domain", "queueCount": 1, "linkState": "up",
            "ipAddress": "10.244.1.7", "ipAddresses": ["10.244.1.7"],
        }])
    );
    assert_eq!(settled(scene).decide(), [], "once stored it is quiet");
}

#[test]
fn pod_addresses_win_as_long_as_the_guest_has_one_of_their_family() {
    for (name, ips, expected) in [
        ("both have IPv4", vec!["10.0.2.2", "fe80::1"], vec!["10.244.1.7"]),
        ("the guest adds IPv6", vec!["10.0.2.2", "fd10:0:2::2"], vec!["10.244.1.7", "fd10:0:2::2"]),
        ("the guest has none yet", vec![], vec![]),
        ("a link-local address behind NAT is of no use", vec!["169.254.1.1", "fe80::1"], vec![]),
    ] {
        let scene = Scene::new(vmi(Phase::Running), full_domain())
            .but(|s| s.state.as_mut().unwrap().guest_agent = Some(guest(&ips)));
        let interface = stored_status(&scene)["interfaces"][0].clone();
        let found: Vec<String> =
            serde_json::from_value(interface.get("ipAddresses").cloned().unwrap_or(json!([]))).unwrap();
        assert_eq!(found, expected, "{name}");
        assert_eq!(interface["infoSource"], "domain, guest-agent", "{name}");
        assert_eq!(interface["interfaceName"], "eth0", "{name}");
    }
}

#[test]
fn interfaces_only_the_guest_knows_are_appended_up_to_ten() {
    let mut agent = guest(&["10.0.2.2"]);
    agent.interfaces.extend((0..50).map(|n| GuestInterface {
        name: format!("docker{n}"),
        mac: format!("02:42:00:00:00:{n:02x}"),
        ips: vec!["172.17.0.1".to_string()],
    }));
    let scene =
        Scene::new(vmi(Phase::Running), full_domain()).but(|s| s.state.as_mut().unwrap().guest_agent = Some(agent));
    let status = stored_status(&scene);
    let interfaces = status["interfaces"].as_array().unwrap();
    assert_eq!(interfaces.len(), 11);
    assert_eq!(interfaces[1]["infoSource"], "guest-agent");
    assert_eq!(interfaces[1].get("name"), None);
}

#[test]
fn the_primary_network_stays_first_and_what_the_controller_wrote_stays() {
    let previous = json!([
        {"name": "blue", "infoSource": "multus-status", "podInterfaceName": "pod123"},
        {"name": "default", "podInterfaceName": "eth0", "infoSource": "domain, multus-status"},
    ]);
    let vmi = with(vmi(Phase::Running), json!({"interfaces": previous}));
    let status = stored_status(&Scene::new(vmi.clone(), full_domain()));
    assert_eq!(status["interfaces"][0]["name"], "default");
    assert_eq!(status["interfaces"][0]["infoSource"], "domain, multus-status");
    assert_eq!(status["interfaces"][0]["podInterfaceName"], "eth0");
    assert_eq!(
        status["interfaces"][1],
        json!({"name": "blue", "infoSource": "multus-status", "podInterfaceName": "pod123"})
    );
    let without = DomainState { interfaces: vec![], ..full_domain() };
    let status = stored_status(&Scene::new(vmi, without));
    assert_eq!(status["interfaces"][0]["name"], "default", "a placeholder");
}

#[test]
fn everybody_who_knows_of_a_second_network_adds_to_its_entry() {
    let blue = DomainInterface {
        alias: "blue".into(),
        mac: "02:00:00:00:00:ab".into(),
        queues: 1,
        link_state: "up".into(),
        ..DomainInterface::default()
    };
    let mut domain = full_domain();
    domain.interfaces.push(blue);
    let mut agent = guest(&["10.0.2.2"]);
    let (name, mac) = ("eth1".to_string(), "02:00:00:00:00:AB".to_string());
    let ips = vec!["10.79.0.1".to_string(), "fe80::1".to_string()];
    agent.interfaces.push(GuestInterface { name, mac, ips });
    let previous = json!([
        {"name": "default", "podInterfaceName": "eth0"},
        {"name": "blue", "infoSource": "multus-status", "podInterfaceName": "pod16477688c0e"},
    ]);
    let scene = Scene::new(with(vmi(Phase::Running), json!({"interfaces": previous})), domain)
        .but(|s| s.state.as_mut().unwrap().guest_agent = Some(agent));
    let expected = json!({
        "name": "blue", "mac": "02:00:00:00:00:ab", "interfaceName": "eth1", "podInterfaceName": "pod16477688c0e",
        "infoSource": "domain, guest-agent, multus-status", "queueCount": 1, "linkState": "up",
        "ipAddress": "10.79.0.1", "ipAddresses": ["10.79.0.1", "fe80::1"],
    });
    assert_eq!(
        stored_status(&scene)["interfaces"][1],
        expected,
        "link-local addresses are of use where nothing is masqueraded"
    );
    assert_eq!(settled(scene).decide(), []);
}

#[test]
fn the_guests_operating_system_is_copied_and_kept() {
    let os: api::v1::VirtualMachineInstanceGuestOSInfo =
        serde_json::from_value(json!({"name": "Debian GNU/Linux", "id": "debian"})).unwrap();
    let scene = Scene::new(vmi(Phase::Running), running()).but(|s| {
        s.state.as_mut().unwrap().guest_agent = Some(GuestAgent { os: Some(os.clone()), ..GuestAgent::default() })
    });
    let told = settled(scene);
    assert_eq!(told.vmi.as_ref().unwrap().status.as_ref().unwrap().guest_os_info, Some(os));
    assert_eq!(told.but(|s| s.state.as_mut().unwrap().guest_agent = None).decide(), []);
}

fn condition(vmi: &VirtualMachineInstance, type_: &str) -> Option<(String, String)> {
    vmi.condition(type_).map(|c| (c.status.to_string(), c.reason().to_string()))
}

fn pair(status: &str, reason: &str) -> Option<(String, String)> {
    Some((status.to_string(), reason.to_string()))
}

#[test]
fn paused_tells_the_first_reason_until_the_guest_goes_on() {
    let paused = |reason| domain(DomainStatus::Paused, reason);
    let scene = settled(Scene::new(vmi(Phase::Running), paused(DomainReason::PausedUser)));
    let stored = scene.vmi.clone().unwrap();
    assert_eq!(condition(&stored, "Paused"), pair("True", "PausedByUser"));
    let other = scene.clone().but(|s| s.state.as_mut().unwrap().domain = Some(paused(DomainReason::PausedIOError)));
    assert_eq!(condition(&settled(other).vmi.unwrap(), "Paused"), pair("True", "PausedByUser"));
    let resumed = scene.but(|s| s.state.as_mut().unwrap().domain = Some(running()));
    assert_eq!(condition(&settled(resumed).vmi.unwrap(), "Paused"), None);
    let io = settled(Scene::new(vmi(Phase::Running), paused(DomainReason::PausedIOError)));
    assert_eq!(condition(&io.vmi.unwrap(), "Paused"), pair("True", "PausedIOError"));
    let starting = settled(Scene::new(vmi(Phase::Running), paused(DomainReason::PausedStartingUp)));
    assert_eq!(condition(&starting.vmi.unwrap(), "Paused"), None);
}

#[test]
fn the_agents_connection_shows_while_it_lasts() {
    let connected = DomainState { agent_connected: true, ..running() };
    let scene = settled(Scene::new(vmi(Phase::Running), connected));
    assert_eq!(condition(scene.vmi.as_ref().unwrap(), "AgentConnected"), pair("True", ""));
    let lost = settled(scene.but(|s| s.state.as_mut().unwrap().domain = Some(running())));
    assert_eq!(condition(&lost.vmi.unwrap(), "AgentConnected"), None);
}

#[test]
fn an_emulated_guest_says_why_it_is_slow() {
    let emulated = DomainState { domain_type: DomainType::Qemu, ..running() };
    let scene = Scene::new(vmi(Phase::Running), emulated).but(|s| s.kvm = Err("a vCPU does not run".to_string()));
    let scene = settled(scene);
    let stored = scene.vmi.clone().unwrap();
    assert_eq!(condition(&stored, "SoftwareEmulation"), pair("True", "HardwareVirtualizationUnavailable"));
    assert_eq!(stored.condition("SoftwareEmulation").unwrap().message(), "a vCPU does not run");
    assert_eq!(scene.but(|s| s.kvm = Ok(())).decide(), [], "it still holds for the running guest");
    let on_kvm = settled(Scene::new(stored, running()));
    assert_eq!(condition(&on_kvm.vmi.unwrap(), "SoftwareEmulation"), None);
}
