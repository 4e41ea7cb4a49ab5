//! Changes of a running instance, and what travels to the Pod and to the node agent.

use api::{annotations, conditions, labels};

use super::super::{Settings, decide};
use super::*;

fn raised(w: &World, type_: &str) -> bool {
    written(w, &decide(w)).unwrap_or_else(|| (*w.vmi).clone()).has_condition(type_)
}

fn running(spec: Value, status: Value) -> World {
    let mut value = serde_json::to_value(vmi("Running")).unwrap();
    machinery::patch::merge(&mut value, &json!({"spec": spec, "status": status}));
    world(serde_json::from_value(value).unwrap(), vec![pod("ready")])
}

#[test]
fn another_number_of_cpus_asks_for_a_migration() {
    let cpu = |sockets: u32, max: u32| json!({"domain": {"cpu": {"cores": 2, "sockets": sockets, "threads": 1, "maxSockets": max}}});
    let now = json!({"currentCPUTopology": {"cores": 2, "sockets": 1, "threads": 1}});
    for (spec, status, expected) in [
        (cpu(2, 4), now.clone(), true),
        (cpu(1, 4), now.clone(), false),
        (cpu(2, 0), now.clone(), false),
        (cpu(2, 4), json!({}), false),
        (json!({"domain": {"cpu": {"sockets": 2, "maxSockets": 4}}}), now, false),
    ] {
        assert_eq!(raised(&running(spec.clone(), status), conditions::HOT_VCPU_CHANGE), expected, "{spec}");
    }
}

#[test]
fn another_size_of_memory_asks_for_a_migration_and_notes_the_overhead() {
    let memory = |guest: &str| json!({"domain": {"memory": {"guest": guest, "maxGuest": "8Gi"}}});
    let requested = json!({"memory": {"guestRequested": "1Gi"}});
    let mut w = running(memory("2Gi"), requested.clone());
    Arc::make_mut(&mut w.config).configuration.additional_guest_memory_overhead_ratio = Some("1.5".into());
    let new = written(&w, &decide(&w)).unwrap();
    assert!(new.has_condition(conditions::HOT_MEMORY_CHANGE));
    assert_eq!(new.metadata.labels.unwrap()[labels::MEMORY_HOTPLUG_OVERHEAD_RATIO], "1.5");
    assert!(!raised(&running(memory("1024Mi"), requested), conditions::HOT_MEMORY_CHANGE), "the same amount");
    assert!(!raised(&running(memory("2Gi"), json!({})), conditions::HOT_MEMORY_CHANGE), "nobody knows the present one");
}

#[test]
fn a_failed_change_of_memory_is_not_raised_anew() {
    let failed = json!({"type": "HotMemoryChange", "status": "False", "reason": "Memory Hotplug Failed"});
    let status = json!({"memory": {"guestRequested": "1Gi"}, "conditions": [failed]});
    let w = running(json!({"domain": {"memory": {"guest": "2Gi", "maxGuest": "8Gi"}}}), status);
    assert!(!raised(&w, conditions::HOT_MEMORY_CHANGE));
}

#[test]
fn replaced_volumes_ask_for_a_migration() {
    let volumes = |claim: &str| json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]});
    let migrated = json!({"migratedVolumes": [{"volumeName": "v", "sourcePVCInfo": {"claimName": "old"},
                                               "destinationPVCInfo": {"claimName": "new"}}]});
    assert!(raised(&running(volumes("new"), migrated.clone()), conditions::VOLUMES_CHANGE));
    assert!(!raised(&running(volumes("old"), migrated), conditions::VOLUMES_CHANGE), "not yet replaced");
    assert!(!raised(&running(volumes("new"), json!({})), conditions::VOLUMES_CHANGE));
}

fn patched(w: &World) -> Option<Pod> {
    decide(w).into_iter().find_map(|action| match action {
        Action::Patch { kind: Kind::Pod, patch: Patch::Json(patch), .. } => {
            let mut value = serde_json::to_value(&*w.pods[0]).unwrap();
            machinery::patch::apply(&mut value, &patch).unwrap();
            Some(serde_json::from_value(value).unwrap())
        }
        _ => None,
    })
}

#[test]
fn configured_keys_follow_onto_the_pod_and_off_it() {
    let mut w = running(json!({}), json!({}));
    let settings = Settings {
        follow_labels: vec!["team".into(), "*".into()],
        follow_annotations: vec!["cost.example/*".into()],
        ..Settings::default()
    };
    w.settings = Arc::new(settings);
    let vmi = Arc::make_mut(&mut w.vmi);
    vmi.metadata.labels.get_or_insert_default().extend([("team".into(), "red".into()), ("other".into(), "x".into())]);
    vmi.metadata.annotations.get_or_insert_default().insert("cost.example/centre".into(), "7".into());
    let pod = patched(&w).unwrap();
    let labels = pod.metadata.labels.clone().unwrap();
    assert_eq!(
        (labels.get("team").map(String::as_str), labels.get("other")),
        (Some("red"), None),
        "a bare star is nothing"
    );
    assert_eq!(pod.metadata.annotations.clone().unwrap()["cost.example/centre"], "7");
    let vmi = Arc::make_mut(&mut w.vmi);
    vmi.metadata.labels.get_or_insert_default().remove("team");
    vmi.metadata.annotations.get_or_insert_default().remove("cost.example/centre");
    w.pods = vec![Arc::new(pod)];
    let pod = patched(&w).unwrap();
    assert!(!pod.metadata.labels.unwrap().contains_key("team"));
    assert!(!pod.metadata.annotations.unwrap().contains_key("cost.example/centre"));
}

#[test]
fn backups_freeze_the_guest_unless_instance_or_installation_say_otherwise() {
    let hooks = |own: Option<&str>, general: Option<&str>| -> usize {
        let mut w = running(json!({}), json!({}));
        let key = annotations::SKIP_BACKUP_HOOKS.to_owned();
        let config = Arc::make_mut(&mut w.config);
        config.annotations.extend(general.map(|value| (key.clone(), value.to_owned())));
        let vmi = Arc::make_mut(&mut w.vmi);
        vmi.metadata.annotations.get_or_insert_default().extend(own.map(|value| (key, value.to_owned())));
        let pod = patched(&w).unwrap_or_else(|| (*w.pods[0]).clone());
        pod.metadata.annotations.unwrap().keys().filter(|key| key.contains("velero")).count()
    };
    assert_eq!(hooks(None, None), 5);
    assert_eq!(hooks(Some("true"), None), 0);
    assert_eq!(hooks(None, Some("true")), 0);
    assert_eq!(hooks(Some("false"), Some("true")), 5, "the instance's own word counts");
}

#[test]
fn a_guest_with_a_socket_gets_its_address_at_the_hand_over() {
    let mut w = World { vsock_cid: Some(77), ..world(vmi("Scheduling"), vec![pod("ready")]) };
    let cid = |w: &World| written(w, &decide(w)).unwrap().status.unwrap().vsock_cid;
    assert_eq!(cid(&w), None, "nobody asked for one");
    Arc::make_mut(&mut w.vmi).spec.domain.devices.autoattach_vsock = Some(true);
    assert_eq!(cid(&w), Some(77));
    Arc::make_mut(&mut w.vmi).status_mut().vsock_cid = Some(5);
    assert_eq!(cid(&w), Some(5), "it keeps the one it has");
}

#[test]
fn the_pod_learns_its_node_with_the_hand_over() {
    let w = world(vmi("Scheduling"), vec![pod("running")]);
    let actions = decide(&w);
    let kinds: Vec<String> = actions.iter().map(ToString::to_string).collect();
    assert_eq!(kinds.len(), 3, "{kinds:#?}");
    assert!(matches!(actions.last(), Some(Action::Replace(Object::Vmi(_)))), "the hand-over comes last");
    assert_eq!(patched(&w).unwrap().metadata.labels.unwrap()[labels::NODE_NAME], "n1");
}

#[test]
fn the_node_of_a_pod_alone_is_not_written_before_the_hand_over() {
    let w = world(vmi("Scheduling"), vec![pod("new")]);
    let seen = written(&w, &decide(&w)).unwrap();
    let w = world(seen, vec![pod("creating")]);
    assert_eq!(decide(&w), []);
}
