//! The order in which one thing rules out the next before there is a launcher Pod.

use api::v1::VirtualMachineInstanceMigration;
use api::{conditions, reasons};

use super::super::decide;
use super::*;
use crate::SyncError;

fn dv(name: &str) -> Value {
    json!({"name": name, "dataVolume": {"name": name}})
}

fn migration(phase: &str) -> VirtualMachineInstanceMigration {
    let value = json!({"metadata": {"name": "m", "namespace": "ns"}, "spec": {"vmiName": "vm"},
        "status": {"phase": phase}});
    serde_json::from_value(value).unwrap()
}

/// What is in the way, one more thing per row; the first that is in the way shows.
#[test]
fn each_obstacle_hides_those_behind_it() {
    let mut vmi = with_volume(vmi("Pending"), dv("data"));
    vmi.spec.domain.devices.tpm = Some(serde_json::from_value(json!({"persistent": true})).unwrap());
    vmi.spec.domain.devices.filesystems = serde_json::from_value(json!([{"name": "own", "virtiofs": {}}])).unwrap();
    let vmi = with_volume(vmi, json!({"name": "own", "containerPath": {"path": "/x"}}));
    let bare = World { migrations: vec![Arc::new(migration("Running"))], ..world(vmi, vec![]) };
    let with_volumes = with_claim(bare.clone(), "data", "Succeeded");
    let importing = with_claim(bare.clone(), "data", "ImportInProgress");
    let no_migration = World { migrations: vec![Arc::new(migration("Succeeded"))], ..with_volumes.clone() };
    let mut lost = claim("persistent-state-for-vm-x");
    lost.metadata.owner_references = None;
    lost.metadata.labels = Some([(api::labels::PERSISTENT_STATE_FOR.to_owned(), "vm".to_owned())].into());
    let with_state = World { state_claims: vec![Arc::new(lost.clone())], ..no_migration.clone() };
    lost.status.as_mut().unwrap().phase = Some("Lost".into());
    let with_lost = World { state_claims: vec![Arc::new(lost)], ..no_migration.clone() };
    for (name, w, reason) in [
        ("a claim that is not there", &bare, Some(reasons::FAILED_PVC_NOT_FOUND)),
        ("a claim that is being filled", &importing, None),
        ("a migration of the name's former owner", &with_volumes, Some(reasons::FAILED_CREATE)),
        ("no class to keep the guest's state", &no_migration, Some(reasons::FAILED_BACKEND_STORAGE_CREATE)),
        ("a lost claim with the guest's state", &with_lost, Some(reasons::FAILED_BACKEND_STORAGE_PROBE)),
        ("a directory the cluster does not share", &with_state, Some(reasons::CONTAINER_PATH_VOLUMES_DISABLED)),
    ] {
        let actions = decide(w);
        assert_eq!(created(&actions), Vec::<&Pod>::new(), "{name}");
        let new = written(w, &actions).expect(name);
        assert_eq!(new.phase(), Some(&Phase::Pending), "{name}");
        assert_eq!(new.condition(conditions::SYNCHRONIZED).map(|c| c.reason()), reason, "{name}");
        let again = World { vmi: Arc::new(new), ..w.clone() };
        assert_eq!(decide(&again), [], "{name}: said once");
    }
}

#[test]
fn a_wait_for_a_data_volume_shows_what_it_waits_for() {
    let w = with_claim(world(with_volume(vmi("Pending"), dv("data")), vec![]), "data", "ImportInProgress");
    let new = written(&w, &decide(&w)).unwrap();
    let seen = condition(&new, conditions::DATA_VOLUMES_READY);
    assert_eq!((seen.status.as_str(), seen.reason()), ("False", reasons::NOT_ALL_DVS_READY));
    assert!(seen.message().contains("DataVolume data is in phase ImportInProgress"), "{}", seen.message());
}

#[test]
fn a_missing_claim_shows_where_clients_look_for_it() {
    let vmi = with_volume(vmi("Pending"), json!({"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}));
    let w = world(vmi, vec![]);
    let actions = decide(&w);
    let [Action::Note(note), Action::Replace(Object::Vmi(_))] = actions.as_slice() else { panic!("{actions:#?}") };
    assert_eq!((note.warning, note.reason.as_str()), (false, reasons::FAILED_PVC_NOT_FOUND));
    let new = written(&w, &actions).unwrap();
    let seen = condition(&new, conditions::POD_SCHEDULED);
    assert_eq!((seen.status.as_str(), seen.reason()), ("False", reasons::UNSCHEDULABLE));
    assert!(seen.message().contains("PersistentVolumeClaim disk does not exist"), "{}", seen.message());

    let mut found = World { vmi: Arc::new(new), ..w };
    found.claims.claims.insert(
        "disk".into(),
        Arc::new({
            let mut claim = claim("disk");
            claim.metadata.owner_references = None;
            claim
        }),
    );
    assert_eq!(created(&decide(&found)).len(), 1, "it starts as soon as the claim is there");
    let made = World { pods: vec![Arc::new(pod("new"))], ..found };
    let new = written(&made, &decide(&made)).unwrap();
    assert_eq!(new.condition(conditions::SYNCHRONIZED), None);
    assert_eq!(new.condition(conditions::POD_SCHEDULED), None);
}

#[test]
fn an_orphaned_claim_is_an_import_that_failed() {
    let mut w = with_claim(world(with_volume(vmi("Pending"), dv("data")), vec![]), "data", "Succeeded");
    w.claims.data_volumes.clear();
    let new = written(&w, &decide(&w)).unwrap();
    assert_eq!(condition(&new, conditions::SYNCHRONIZED).reason(), reasons::FAILED_DATA_VOLUME_IMPORT);
}

#[test]
fn a_namespace_that_forbids_the_pod_is_named_as_the_cause() {
    let failed =
        Some(SyncError::new(reasons::FAILED_CREATE, "pods \"x\" is forbidden: violates PodSecurity \"baseline\""));
    let w = World { failed, ..world(vmi("Pending"), vec![]) };
    let new = written(&w, &decide(&w)).unwrap();
    assert!(condition(&new, conditions::SYNCHRONIZED).message().contains("privileged"));
}

#[test]
fn the_frequency_of_the_counter_comes_before_the_pod() {
    let mut precise = vmi("Pending");
    precise.spec.domain.cpu =
        Some(serde_json::from_value(json!({"features": [{"name": "invtsc", "policy": "require"}]})).unwrap());
    let w = World { lowest_tsc: Ok(2_000_000), ..world(precise.clone(), vec![]) };
    let actions = decide(&w);
    assert!(created(&actions).is_empty());
    let new = written(&w, &actions).unwrap();
    assert_eq!(new.status.as_ref().unwrap().topology_hints.as_ref().unwrap().tsc_frequency, Some(2_000_000));
    let w = world(new, vec![]);
    let pod = decide(&w);
    let selector = created(&pod)[0].spec.as_ref().unwrap().node_selector.clone().unwrap();
    assert!(selector.contains_key("scheduling.node.kubevirt.io/tsc-frequency-2000000"), "{selector:?}");

    let w = World { lowest_tsc: Err("minimumClusterTSCFrequency is 0".into()), ..world(precise, vec![]) };
    let actions = decide(&w);
    let new = written(&w, &actions).unwrap();
    let seen = condition(&new, conditions::SYNCHRONIZED);
    assert_eq!(seen.reason(), reasons::FAILED_GATHERING_CLUSTER_TOPOLOGY_HINTS);
    assert!(actions.iter().any(|a| matches!(a, Action::Note(note) if note.warning)));
}

#[test]
fn a_guest_that_only_may_move_starts_without_knowing_the_frequency() {
    let mut windows = vmi("Pending");
    windows.spec.domain.features =
        Some(serde_json::from_value(json!({"hyperv": {"reenlightenment": {"enabled": true}}})).unwrap());
    let w = World { lowest_tsc: Err("nobody tells".into()), ..world(windows.clone(), vec![]) };
    let new = written(&w, &decide(&w)).unwrap();
    assert_eq!(new.condition(conditions::SYNCHRONIZED), None, "it can start");
    assert_eq!(new.status.as_ref().unwrap().topology_hints.as_ref().unwrap().tsc_frequency, Some(0));
    windows.spec.architecture = Some("arm64".into());
    assert_eq!(created(&decide(&world(windows, vec![]))).len(), 1, "other architectures have no such counter");
}

#[test]
fn a_pod_that_this_process_made_and_that_vanished_is_not_made_again() {
    let w = World { launched: true, ..world(vmi("Pending"), vec![]) };
    let actions = decide(&w);
    assert!(created(&actions).is_empty() && confirms(&actions), "{actions:#?}");
    assert_eq!(phase_after(&w, &actions), Some(Phase::Failed));
}

#[test]
fn a_launcher_without_its_sharing_containers_is_named() {
    let mut sharing = vmi("Scheduling");
    sharing.spec.domain.devices.filesystems = serde_json::from_value(json!([{"name": "own", "virtiofs": {}}])).unwrap();
    let sharing = with_volume(sharing, json!({"name": "own", "containerPath": {"path": "/x"}}));
    let w = world(sharing, vec![pod("creating")]);
    let new = written(&w, &decide(&w)).unwrap();
    assert_eq!(condition(&new, conditions::SYNCHRONIZED).reason(), reasons::MISSING_VIRTIOFS_CONTAINERS);
}

#[test]
fn running_migrations_hold_a_start_and_others_do_not() {
    for (phase, sends, holds) in [
        ("", false, false),
        ("Pending", false, false),
        ("Scheduling", false, true),
        ("Scheduling", true, false),
        ("TargetReady", false, true),
        ("Running", true, true),
        ("Failed", false, false),
    ] {
        let mut migration = migration(phase);
        migration.spec.send_to = sends.then(Default::default);
        let w = World { migrations: vec![Arc::new(migration)], ..world(vmi("Pending"), vec![]) };
        assert_eq!(created(&decide(&w)).is_empty(), holds, "{phase}, sends {sends}");
    }
}

#[test]
fn networks_that_the_rules_of_today_refuse_hold_the_start() {
    let mut bridged = vmi("Pending");
    let interface = &mut bridged.spec.domain.devices.interfaces[0];
    *interface = serde_json::from_value(json!({"name": interface.name, "bridge": {}})).unwrap();
    let w = world(bridged, vec![]);
    assert_eq!(created(&decide(&w)).len(), 1);
    let mut strict = w.clone();
    Arc::make_mut(&mut strict.config)
        .configuration
        .network
        .get_or_insert_default()
        .permit_bridge_interface_on_pod_network = Some(false);
    let actions = decide(&strict);
    assert!(created(&actions).is_empty());
    let new = written(&strict, &actions).unwrap();
    let seen = condition(&new, conditions::SYNCHRONIZED);
    assert_eq!(seen.reason(), reasons::FAILED_CREATE_VALIDATION);
    assert!(seen.message().starts_with("spec.domain.devices.interfaces[0]"), "{}", seen.message());
}

#[test]
fn an_instance_from_before_this_process_is_looked_at_live_before_it_gets_a_launcher() {
    for inherited in [false, true] {
        let w = World { inherited, ..world(vmi("Pending"), vec![]) };
        let actions = decide(&w);
        let at_once = actions.iter().any(|action| matches!(action, Action::Create { object: Object::Pod(_), .. }));
        let confirmed = actions.iter().any(|action| match action {
            Action::Confirm { look: Look::Current, then } => {
                then.iter().any(|action| matches!(action, Action::Create { object: Object::Pod(_), .. }))
            }
            _ => false,
        });
        assert_eq!((at_once, confirmed), (!inherited, inherited), "{actions:#?}");
    }
}
