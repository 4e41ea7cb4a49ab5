//! Volumes that come and go while the guest runs.

use super::*;

fn root() -> Value {
    json!({"name": "root", "containerDisk": {"image": "disk:1"}})
}

fn hot(claim: &str) -> Value {
    json!({"name": "hot", "persistentVolumeClaim": {"claimName": claim, "hotpluggable": true}})
}

fn spec(volumes: Value, disks: Value) -> Value {
    json!({"volumes": volumes, "domain": {"devices": {"disks": disks}}})
}

/// A running machine: its template and what its guest has.
fn running(template: Value, guest: Value) -> World {
    let vm = with(vm("Manual"), json!({"spec": {"template": {"spec": template}}}));
    world(vm, Some(with(vmi("Running"), json!({"spec": guest}))))
}

fn requested(request: Value) -> VirtualMachine {
    with(vm("Manual"), json!({"status": {"volumeRequests": [request]}}))
}

fn add() -> Value {
    json!({"addVolumeOptions": {"name": "hot", "disk": {"name": "ignored", "disk": {"bus": "scsi"}},
                                "volumeSource": {"persistentVolumeClaim": {"claimName": "a"}}}})
}

#[test]
fn a_request_to_plug_reaches_template_and_guest_and_is_dropped_when_it_shows() {
    let w = world(requested(add()), Some(vmi("Running")));
    let (guest, template) = (instance_after(&w).unwrap().spec, machine_after(&w).unwrap().spec.template.spec);
    for spec in [&guest, &template] {
        assert_eq!(serde_json::to_value(spec.volumes.last()).unwrap(), hot("a"), "it may go while the guest runs");
        assert_eq!(spec.domain.devices.disks.last().unwrap().name, "hot", "a disk is called like its volume");
    }
    assert_eq!(status_after(&w).status.unwrap().volume_requests.len(), 1);
    let shown = World { vm: Arc::new(machine_after(&w).unwrap()), vmi: instance_after(&w).map(Arc::new), ..w };
    assert_eq!(status_after(&shown).status.unwrap().volume_requests.len(), 0);
    let stopped = world(requested(add()), None);
    assert!(machine_after(&stopped).is_some(), "the next start brings it");
    let data_volume =
        json!({"addVolumeOptions": {"name": "dv", "disk": {}, "volumeSource": {"dataVolume": {"name": "dv"}}}});
    let after = machine_after(&world(requested(data_volume), None)).unwrap();
    let volume = after.spec.template.spec.volumes[1].source();
    assert!(volume.data_volume().is_some() && volume.is_hotpluggable(), "{volume:?}");
}

#[test]
fn a_request_to_unplug_reaches_both_and_is_dropped_when_it_shows() {
    let full = spec(json!([root(), hot("a")]), json!([{"name": "root", "disk": {}}, {"name": "hot", "disk": {}}]));
    let mut w = running(full.clone(), full);
    let remove = json!({"status": {"volumeRequests": [{"removeVolumeOptions": {"name": "hot"}}]}});
    w.vm = Arc::new(with((*w.vm).clone(), remove));
    let (guest, template) = (instance_after(&w).unwrap().spec, machine_after(&w).unwrap().spec.template.spec);
    for spec in [&guest, &template] {
        assert_eq!((spec.volumes.len(), spec.domain.devices.disks.len()), (1, 1));
    }
    let shown = World { vm: Arc::new(machine_after(&w).unwrap()), vmi: instance_after(&w).map(Arc::new), ..w };
    assert_eq!(status_after(&shown).status.unwrap().volume_requests.len(), 0);
}

#[test]
fn a_guest_on_its_way_out_is_left_alone() {
    let w = world(requested(add()), Some(deleting(vmi("Running"))));
    assert!(instance_after(&w).is_none());
    assert!(machine_after(&w).is_some());
}

#[test]
fn pluggable_volumes_of_the_template_become_the_running_guests() {
    let disk = |name: &str| json!({"name": name, "disk": {"bus": "scsi"}});
    let tray = |name: &str| json!({"name": name, "cdrom": {"bus": "sata"}});
    let plain = spec(json!([root()]), json!([disk("root")]));
    let full = |claim: &str| spec(json!([root(), hot(claim)]), json!([disk("root"), disk("hot")]));
    let disc = |claim: &str| spec(json!([root(), hot(claim)]), json!([disk("root"), tray("hot")]));
    let empty = spec(json!([root()]), json!([disk("root"), tray("hot")]));
    let rows = [
        ("nothing", plain.clone(), plain.clone(), None),
        ("plugged", full("a"), plain.clone(), Some((vec!["root", "a"], vec!["root", "hot"]))),
        ("unplugged", plain.clone(), full("a"), Some((vec!["root"], vec!["root"]))),
        ("replaced: out first", full("b"), full("a"), Some((vec!["root"], vec!["root"]))),
        ("ejected: the tray stays", empty.clone(), disc("a"), Some((vec!["root"], vec!["root", "hot"]))),
        ("inserted", disc("a"), empty, Some((vec!["root", "a"], vec!["root", "hot"]))),
        ("changed disc: out first, the tray stays", disc("b"), disc("a"), Some((vec!["root"], vec!["root", "hot"]))),
    ];
    for (what, template, guest, expected) in rows {
        let after = instance_after(&running(template, guest)).map(|vmi| {
            let claim = |volume: &api::v1::Volume| crate::claims::claim_name(volume).unwrap_or("root").to_owned();
            let volumes: Vec<_> = vmi.spec.volumes.iter().map(claim).collect();
            let disks: Vec<_> = vmi.spec.domain.devices.disks.iter().map(|disk| disk.name.clone()).collect();
            (volumes, disks)
        });
        let expected = expected.map(|(volumes, disks)| {
            let own = |list: Vec<&str>| list.into_iter().map(str::to_owned).collect::<Vec<_>>();
            (own(volumes), own(disks))
        });
        assert_eq!(after, expected, "{what}");
    }
}

#[test]
fn a_volume_still_on_its_way_out_is_not_plugged_again_before_it_is_gone() {
    let template = spec(json!([root(), hot("b")]), json!([]));
    let mut w = running(template, spec(json!([root()]), json!([])));
    assert!(instance_after(&w).is_some());
    let detaching = json!({"status": {"volumeStatus": [{"name": "hot", "target": "sda", "phase": "Detaching"}]}});
    w.vmi = Some(Arc::new(with((**w.vmi.as_ref().unwrap()).clone(), detaching)));
    assert!(instance_after(&w).is_none());
}

#[test]
fn the_template_is_followed_only_where_the_cluster_says_so_and_the_guest_runs() {
    let template = spec(json!([root(), hot("a")]), json!([]));
    let guest = spec(json!([root()]), json!([]));
    let w = running(template.clone(), guest.clone());
    assert!(instance_after(&w).is_some());
    let gates = |on: Value, off: Value| {
        config(json!({"developerConfiguration": {"featureGates": on, "disabledFeatureGates": off}}))
    };
    let imperative = World { config: gates(json!(["HotplugVolumes"]), json!([])), ..w.clone() };
    assert!(instance_after(&imperative).is_none());
    let off = World { config: gates(json!([]), json!(["DeclarativeHotplugVolumes"])), ..w.clone() };
    assert!(instance_after(&off).is_none());
    let migrates = json!({"spec": {"updateVolumesStrategy": "Migration"}});
    let migrating = World { vm: Arc::new(with((*w.vm).clone(), migrates)), ..w.clone() };
    assert!(instance_after(&migrating).is_none());
    let starting = with(vmi("Scheduled"), json!({"spec": guest}));
    assert!(instance_after(&World { vmi: Some(Arc::new(starting)), ..w }).is_none());
}

/// What is on record about volumes that were moving to other claims.
fn moving(strategy: Option<&str>, claim: &str, conditions: Value, vmi: Option<VirtualMachineInstance>) -> World {
    let moved = json!([{"volumeName": "data", "sourcePVCInfo": {"claimName": "old"}, "destinationPVCInfo": {"claimName": "new"}}]);
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    let vm = with(
        vm("Manual"),
        json!({"spec": {"updateVolumesStrategy": strategy, "template": {"spec": {"volumes": volumes}}},
               "status": {"conditions": conditions, "volumeUpdateState": {"volumeMigrationState": {"migratedVolumes": moved}}}}),
    );
    world(vm, vmi)
}

#[test]
fn what_is_on_record_about_moving_volumes_is_kept_until_it_is_over() {
    let changing = json!([{"type": "VolumesChange", "status": "True"}]);
    let recorded = |w: &World| status_after(w).status.unwrap().volume_update_state.is_some();
    let manual = |w: &World| status_after(w).condition("ManualRecoveryRequired").is_some_and(|c| c.is_true());
    let going = moving(Some("Migration"), "new", changing.clone(), Some(vmi("Running")));
    assert!(recorded(&going) && !manual(&going));
    let reverted = moving(Some("Migration"), "old", changing.clone(), None);
    assert!(!recorded(&reverted) && !manual(&reverted));
    let replaced = moving(None, "new", changing.clone(), None);
    assert!(!recorded(&replaced) && !manual(&replaced));
    assert_eq!(status_after(&replaced).condition("VolumesChange"), None);
    let cancelled = json!({"status": {"conditions": [{"type": "VolumesChange", "status": "False", "reason": "VolumesChangeCancellation"}]}});
    assert!(!recorded(&moving(Some("Migration"), "new", json!([]), Some(with(vmi("Running"), cancelled)))));
    for vmi in [None, Some(vmi("Failed"))] {
        let lost = moving(Some("Migration"), "new", changing.clone(), vmi);
        assert!(recorded(&lost) && manual(&lost), "somebody has to decide");
    }
}

#[test]
fn nothing_starts_while_somebody_has_to_decide_about_volumes() {
    let waiting = json!([{"type": "ManualRecoveryRequired", "status": "True"}]);
    for strategy in ["Always", "Once", "RerunOnFailure", "Manual", "WaitAsReceiver"] {
        let vm = with(vm(strategy), json!({"status": {"conditions": waiting}}));
        let w = world(with_requests(vm, json!([{"action": "Start"}])), None);
        assert!(creates(&decide(&w)).is_none(), "{strategy}");
        assert!(waits_for(&w).contains("ManualRecoveryRequired"), "{}", waits_for(&w));
    }
}
