//! The claim for what the guest must not lose.

use api::cdi::StorageProfile;
use api::{annotations, conditions, labels, reasons};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::super::{Storage, decide};
use super::*;

fn secure(phase: &str) -> VirtualMachineInstance {
    let mut vmi = vmi(phase);
    vmi.spec.domain.devices.tpm = Some(serde_json::from_value(json!({"persistent": true})).unwrap());
    vmi.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "kubevirt.io/v1".into(),
        kind: "VirtualMachine".into(),
        name: "vm".into(),
        uid: "vm-uid".into(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }]);
    vmi
}

fn class(name: &str, mark: Option<&str>, binding: &str) -> Arc<StorageClass> {
    let mut value = json!({"metadata": {"name": name}, "provisioner": "p", "volumeBindingMode": binding});
    if let Some(mark) = mark {
        value["metadata"]["annotations"] = json!({mark: "true"});
    }
    Arc::new(serde_json::from_value(value).unwrap())
}

fn stored() -> Storage {
    let classes = vec![
        class("plain", Some(annotations::DEFAULT_STORAGE_CLASS), "Immediate"),
        class("vm", Some(annotations::DEFAULT_VIRT_STORAGE_CLASS), "WaitForFirstConsumer"),
        class("other", None, "Immediate"),
    ];
    Storage { classes, ..Storage::default() }
}

fn needing() -> World {
    World { storage: stored(), ..world(secure("Pending"), vec![]) }
}

fn made(actions: &[Action]) -> Option<&PersistentVolumeClaim> {
    actions.iter().find_map(|action| match action {
        Action::Create { object: Object::Claim(claim), .. } => Some(&**claim),
        Action::Confirm { look: Look::NoStateClaim, then } => made(then),
        _ => None,
    })
}

fn state_claim(name: &str, phase: &str, class: &str) -> PersistentVolumeClaim {
    let mut claim = claim(name);
    claim.metadata.owner_references = None;
    claim.metadata.labels = Some([(labels::PERSISTENT_STATE_FOR.to_owned(), "vm".to_owned())].into());
    claim.spec.as_mut().unwrap().storage_class_name = Some(class.into());
    claim.status.as_mut().unwrap().phase = Some(phase.into());
    claim
}

#[test]
fn the_claim_is_made_once_its_absence_is_confirmed_and_belongs_to_the_virtual_machine() {
    let w = needing();
    let actions = decide(&w);
    assert!(matches!(actions[..], [Action::Confirm { look: Look::NoStateClaim, .. }]), "{actions:#?}");
    let claim = made(&actions).unwrap();
    assert!(claim.metadata.name.as_ref().unwrap().starts_with("persistent-state-for-vm-"));
    assert!(machinery::meta::is_controlled_by(&claim.metadata, "vm-uid"));
    let spec = claim.spec.as_ref().unwrap();
    assert_eq!(spec.storage_class_name.as_deref(), Some("vm"), "the default for virtual machines goes first");
    assert_eq!(spec.access_modes.as_deref(), Some(&["ReadWriteOnce".to_owned()][..]));
    assert_eq!(spec.resources.as_ref().unwrap().requests.as_ref().unwrap()["storage"].0, "10Mi");

    let mut restarted = w.clone();
    Arc::make_mut(&mut restarted.vmi).metadata.uid = Some("another".into());
    let name = claim.metadata.name.clone();
    assert_eq!(made(&decide(&restarted)).unwrap().metadata.name, name, "the next instance finds the same name");
}

#[test]
fn the_class_and_its_profile_decide_the_access_mode() {
    let profile = |modes: &[&str], volume_mode: &str| -> Arc<StorageProfile> {
        let value = json!({"metadata": {"name": "vm"}, "spec": {}, "status": {"claimPropertySets": [
            {"accessModes": modes, "volumeMode": volume_mode}]}});
        Arc::new(serde_json::from_value(value).unwrap())
    };
    for (configured, profile, mode) in [
        (false, None, "ReadWriteOnce"),
        (true, None, "ReadWriteMany"),
        (false, Some(profile(&["ReadWriteOnce", "ReadWriteMany"], "Filesystem")), "ReadWriteMany"),
        (true, Some(profile(&["ReadWriteOnce"], "Filesystem")), "ReadWriteOnce"),
        (false, Some(profile(&["ReadWriteMany"], "Block")), "ReadWriteOnce"),
    ] {
        let mut w = needing();
        Arc::make_mut(&mut w.config).configuration.vm_state_storage_class = configured.then(|| "vm".to_owned());
        let described = profile.is_some();
        w.storage.profiles = profile.into_iter().map(|profile| ("vm".to_owned(), profile)).collect();
        let actions = decide(&w);
        let modes = made(&actions).unwrap().spec.as_ref().unwrap().access_modes.clone().unwrap();
        assert_eq!(modes, [mode], "configured {configured}, profile {described}");
    }
}

#[test]
fn block_tracking_needs_more_room() {
    let mut w = needing();
    let vmi = Arc::make_mut(&mut w.vmi);
    vmi.status_mut().changed_block_tracking = Some(serde_json::from_value(json!({"state": "Initializing"})).unwrap());
    let actions = decide(&w);
    let claim = made(&actions).unwrap();
    assert_eq!(
        claim.spec.as_ref().unwrap().resources.as_ref().unwrap().requests.as_ref().unwrap()["storage"].0,
        "522Mi"
    );
}

/// The claim's phase and its class's binding → what is in the way.
#[test]
fn the_launcher_waits_for_the_claim_unless_it_is_the_one_to_bind_it() {
    for (phase, class, reason) in [
        ("Bound", "plain", None),
        ("Pending", "vm", None),
        ("Pending", "plain", Some(reasons::BACKEND_STORAGE_NOT_READY)),
        ("Pending", "gone", Some(reasons::FAILED_BACKEND_STORAGE_PROBE)),
        ("Lost", "plain", Some(reasons::FAILED_BACKEND_STORAGE_PROBE)),
    ] {
        let w = World { state_claims: vec![Arc::new(state_claim("s", phase, class))], ..needing() };
        let actions = decide(&w);
        match reason {
            None => {
                let volumes = created(&actions)[0].spec.as_ref().unwrap().volumes.clone().unwrap();
                let claims = volumes.iter().filter_map(|v| v.persistent_volume_claim.as_ref());
                assert!(claims.into_iter().any(|claim| claim.claim_name == "s"), "{phase}: the Pod mounts it");
            }
            Some(reason) => {
                let new = written(&w, &actions).unwrap();
                assert_eq!(condition(&new, conditions::SYNCHRONIZED).reason(), reason, "{phase} {class}");
                let entry = &new.status.as_ref().unwrap().volume_status[0];
                assert_eq!(entry.name, "persistent-state-for-this-vm");
                assert_eq!(entry.persistent_volume_claim_info.as_ref().unwrap().claim_name.as_deref(), Some("s"));
            }
        }
    }
}

#[test]
fn a_claim_of_the_old_name_is_found_and_labelled_and_one_on_its_way_out_is_not_counted() {
    let mut old = state_claim("persistent-state-for-vm", "Bound", "plain");
    old.metadata.labels = None;
    let w = World { state_claims: vec![Arc::new(old)], ..needing() };
    let actions = decide(&w);
    assert!(
        matches!(&actions[0], Action::Patch { kind: Kind::Claim, name, .. } if name == "persistent-state-for-vm"),
        "{actions:#?}"
    );
    assert_eq!(created(&actions).len(), 1);
    let mut going = state_claim("s", "Bound", "plain");
    going.metadata.deletion_timestamp = Some(time(1));
    let w = World { state_claims: vec![Arc::new(going)], ..needing() };
    assert!(made(&decide(&w)).is_some());
}

#[test]
fn a_guest_that_keeps_nothing_any_more_loses_the_claim() {
    let mut w = World { state_claims: vec![Arc::new(state_claim("s", "Bound", "plain"))], ..needing() };
    Arc::make_mut(&mut w.vmi).spec.domain.devices.tpm = None;
    let actions = decide(&w);
    assert!(
        matches!(&actions[0], Action::Delete { kind: Kind::Claim, name, uid, .. } if name == "s" && uid == "s-uid"),
        "{actions:#?}"
    );
    assert_eq!(created(&actions).len(), 1, "which does not hold up the start");
}

#[test]
fn an_entry_under_an_old_name_is_renamed() {
    let mut w = World { state_claims: vec![Arc::new(state_claim("s", "Bound", "plain"))], ..needing() };
    let mut running = secure("Running");
    running.status_mut().volume_status =
        serde_json::from_value(json!([{"name": "persistent-state-for-vm-abc", "target": "x"}])).unwrap();
    w.vmi = Arc::new(running);
    w.pods = vec![Arc::new(pod("ready"))];
    let new = written(&w, &decide(&w)).unwrap();
    let names: Vec<_> = new.status.as_ref().unwrap().volume_status.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["persistent-state-for-this-vm", "root"]);
}

#[test]
fn an_instance_stays_until_its_migration_has_found_out_which_claim_has_the_state() {
    let mut ended = vmi("Failed");
    ended.status_mut().migration_state = Some(
        serde_json::from_value(json!({"migrationUid": "m", "sourcePersistentStatePVCName": "state",
            "targetPersistentStatePVCName": "copy"}))
        .unwrap(),
    );
    let migration = |phase: &str| {
        let object = json!({"metadata": {"name": "m", "namespace": "ns", "uid": "m"}, "spec": {"vmiName": "vm"},
            "status": {"phase": phase}});
        Arc::new(serde_json::from_value(object).unwrap())
    };
    let mut w = world(deleting(ended), vec![]);
    w.migrations = vec![migration("Running")];
    assert!(!confirms(&decide(&w)));
    w.migrations = vec![migration("Failed")];
    assert!(confirms(&decide(&w)));
}

#[test]
fn a_claim_that_an_ended_instance_owns_is_this_ones_before_its_launcher_is_made() {
    let owners = |uids: &[(&str, &str)]| -> Vec<OwnerReference> {
        let one = |&(kind, uid): &(&str, &str)| OwnerReference {
            api_version: "kubevirt.io/v1".into(),
            kind: kind.into(),
            name: "vm".into(),
            uid: uid.into(),
            ..OwnerReference::default()
        };
        uids.iter().map(one).collect()
    };
    let claimed = |uids: &[(&str, &str)]| {
        let mut claim = state_claim("s", "Bound", "plain");
        claim.metadata.owner_references = Some(owners(uids));
        World { state_claims: vec![Arc::new(claim)], ..needing() }
    };
    let new_owners = |w: &World| {
        decide(w).iter().find_map(|effect| match effect {
            Action::Patch { kind: Kind::Claim, patch: Patch::Json(patch), .. } => {
                let mut claim = serde_json::to_value(&*w.state_claims[0]).unwrap();
                json_patch::patch(&mut claim, patch).unwrap();
                Some(serde_json::from_value(claim["metadata"]["ownerReferences"].clone()).unwrap())
            }
            _ => None,
        })
    };
    let (vm, own) = (("VirtualMachine", "vm-uid"), ("VirtualMachineInstance", "vmi-uid"));
    let stale = claimed(&[vm, ("VirtualMachineInstance", "earlier")]);
    assert_eq!(new_owners(&stale), Some(owners(&[vm, own])));
    assert_eq!(new_owners(&claimed(&[vm, own])), None);
    assert_eq!(new_owners(&claimed(&[vm])), None, "the usual case costs nothing");
}
