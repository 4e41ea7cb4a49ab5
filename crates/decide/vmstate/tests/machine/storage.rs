//! Disks that outlive their guest: what is said about them, how they grow, and whether they can follow.

use api::v1::VirtualMachineInstance;
use api::v1::VirtualMachineInstancePhase as Phase;
use serde_json::{Value, json};
use vmstate::migration::options;
use vmstate::{Action, DiskError, DomainDisk, DomainReason, DomainState, DomainStatus, LauncherState, Sent};

use crate::support::{Scene, at, domain, running, settled, vmi, with};

/// A VMI with these volumes, each of which is a disk, and what the status says about their claims.
fn with_volumes(volumes: Value, infos: &[(&str, Value)]) -> VirtualMachineInstance {
    let statuses: Vec<Value> = infos
        .iter()
        .map(|(name, info)| json!({"name": name, "target": "", "persistentVolumeClaimInfo": info}))
        .collect();
    let mut vmi = with(vmi(Phase::Running), json!({"volumeStatus": statuses}));
    let names = volumes.as_array().unwrap().iter().map(|volume| json!({"name": volume["name"], "disk": {}}));
    vmi.spec.domain.devices.disks = serde_json::from_value(names.collect()).unwrap();
    vmi.spec.volumes = serde_json::from_value(volumes).unwrap();
    vmi
}

fn claim(name: &str) -> Value {
    json!({"name": name, "persistentVolumeClaim": {"claimName": format!("{name}-claim")}})
}

fn modes(modes: &[&str]) -> Value {
    json!({"accessModes": modes})
}

fn condition(vmi: VirtualMachineInstance, type_: &str) -> (String, String, String) {
    let stored = Scene::new(vmi, running()).stored().unwrap();
    let found = stored.condition(type_).unwrap();
    (found.status.to_string(), found.reason().to_owned(), found.message().to_owned())
}

fn method(vmi: VirtualMachineInstance) -> String {
    Scene::new(vmi, running()).stored().unwrap().status.unwrap().migration_method.unwrap()
}

fn shared(vmi: &VirtualMachineInstance) -> Vec<String> {
    options(vmi, &Default::default(), |_| false, 1).shared_volumes
}

#[test]
fn a_migration_copies_exactly_what_is_not_shared() {
    let yes = |volumes: Value, infos: &[(&str, Value)], expected: &str, both: &[&str]| {
        let vmi = with_volumes(volumes, infos);
        assert_eq!(shared(&vmi), both, "{expected}");
        assert_eq!(condition(vmi.clone(), "LiveMigratable").0, "True", "{expected}");
        assert_eq!(method(vmi), expected);
    };
    let everywhere = || ("a", modes(&["ReadWriteMany"]));
    yes(json!([claim("a")]), &[everywhere()], "LiveMigration", &["a"]);
    yes(json!([claim("a")]), &[("a", modes(&["ReadWriteOnce", "ReadWriteMany"]))], "LiveMigration", &["a"]);
    yes(json!([claim("a")]), &[("a", modes(&["ReadOnlyMany"]))], "LiveMigration", &["a"]);
    let scratch = json!({"name": "b", "emptyDisk": {"capacity": "1Gi"}});
    yes(json!([claim("a"), scratch]), &[everywhere()], "BlockMigration", &["a"]);
    let host = json!({"name": "h", "hostDisk": {"path": "/x", "type": "Disk", "shared": true}});
    yes(json!([host]), &[], "LiveMigration", &["h"]);
    let over = json!({"name": "a", "ephemeral": {"persistentVolumeClaim": {"claimName": "base"}}});
    yes(json!([over]), &[everywhere()], "BlockMigration", &[]);
    yes(json!([{"name": "a", "dataVolume": {"name": "dv"}}]), &[everywhere()], "LiveMigration", &["a"]);
    let dump = json!({"name": "m", "memoryDump": {"claimName": "m"}});
    yes(json!([dump]), &[("m", modes(&["ReadWriteOnce"]))], "LiveMigration", &[]);
}

#[test]
fn a_disk_that_can_neither_be_shared_nor_copied_keeps_its_guest_and_is_named() {
    let no = |volumes: Value, infos: &[(&str, Value)]| {
        let vmi = with_volumes(volumes, infos);
        let (status, reason, why) = condition(vmi.clone(), "LiveMigratable");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "DisksNotLiveMigratable"), "{why}");
        assert_eq!(condition(vmi, "StorageLiveMigratable").0, "True", "its claims could be replaced");
        why
    };
    let once = ("a", modes(&["ReadWriteOnce"]));
    assert_eq!(
        no(json!([claim("a")]), std::slice::from_ref(&once)),
        "cannot migrate VMI: PVC a-claim is not shared, live migration requires that all PVCs must be shared (using ReadWriteMany \
         access mode)"
    );
    assert!(no(json!([claim("a")]), &[]).contains("Unable to determine if PVC a-claim is shared"));
    assert!(no(json!([claim("a")]), &[("a", modes(&["ReadWriteOnce", "ReadOnlyMany"]))]).contains("is not shared"));
    assert!(no(json!([{"name": "a", "dataVolume": {"name": "dv"}}]), std::slice::from_ref(&once)).contains("PVC dv"));
    let over = json!({"name": "a", "ephemeral": {"persistentVolumeClaim": {"claimName": "base"}}});
    assert!(no(json!([over]), std::slice::from_ref(&once)).contains("PVC base"));
    let host = json!({"name": "h", "hostDisk": {"path": "/x", "type": "Disk"}});
    assert_eq!(no(json!([host]), &[]), "cannot migrate VMI with non-shared HostDisk");
}

#[test]
fn volumes_on_their_way_to_other_claims_are_copied() {
    let vmi = with_volumes(json!([claim("a")]), &[("a", modes(&["ReadWriteOnce"]))]);
    let vmi = with(vmi, json!({"migratedVolumes": [{"volumeName": "a"}]}));
    assert_eq!((shared(&vmi), condition(vmi.clone(), "LiveMigratable").0), (vec![], "True".to_owned()));
    assert_eq!(method(vmi), "BlockMigration");
}

#[test]
fn a_volume_that_moves_says_how_large_its_disk_is_and_does_not_grow() {
    let on = |migrated: Value| {
        let vmi = with_volumes(json!([claim("a")]), &[("a", capacity("Block", "2Gi"))]);
        let state = DomainState { disks: vec![disk("a", None)], ..running() };
        settled(Scene::new(with(vmi, json!({ "migratedVolumes": migrated })), state))
    };
    let size = |scene: &Scene| scene.vmi.as_ref().unwrap().status.as_ref().unwrap().volume_status[0].size;
    let to = |mode: &str| json!([{"volumeName": "a", "destinationPVCInfo": {"volumeMode": mode}}]);
    let moving = on(to("Block"));
    assert_eq!((size(&moving), moving.does()), (Some(1 << 30), vec![]));
    let told = options(moving.vmi.as_ref().unwrap(), &Default::default(), |_| false, 1).moved_volumes;
    assert_eq!(
        told.iter().map(|one| (one.volume.as_str(), one.block, one.plugged)).collect::<Vec<_>>(),
        [("a", true, false)]
    );
    let to_file = options(on(to("Filesystem")).vmi.as_ref().unwrap(), &Default::default(), |_| false, 1).moved_volumes;
    assert!(!to_file[0].block);
    let stays = on(json!([]));
    assert_eq!((size(&stays), stays.does()), (None, vec!["grow".to_owned()]));
}

#[test]
fn what_keeps_even_a_guest_without_disks_is_said_for_its_storage_too() {
    let mut vmi = vmi(Phase::Running);
    vmi.spec.domain.devices.interfaces[0] = serde_json::from_value(json!({"name": "default"})).unwrap();
    let (status, reason, why) = condition(vmi, "StorageLiveMigratable");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NotMigratable"));
    assert!(why.starts_with("InterfaceNotLiveMigratable: cannot migrate VMI"), "{why}");
}

fn disk(name: &str, error: Option<DiskError>) -> DomainDisk {
    DomainDisk { alias: name.into(), target: "vda".into(), source: "/x".into(), capacity: 1 << 30, error }
}

#[test]
fn a_guest_that_stands_still_says_which_disk_failed_and_why() {
    let paused = |errors: [Option<DiskError>; 2]| DomainState {
        disks: vec![disk("root", errors[0]), disk("data", errors[1])],
        ..domain(DomainStatus::Paused, DomainReason::PausedIOError)
    };
    let message = |vmi: &VirtualMachineInstance| {
        let condition = vmi.condition("Paused").unwrap();
        assert_eq!(condition.reason(), "PausedIOError");
        condition.message().to_owned()
    };
    let scene = settled(Scene::new(vmi(Phase::Running), paused([None, None])));
    let plain = "VMI was paused, low-level IO error detected";
    assert_eq!(message(scene.vmi.as_ref().unwrap()), plain);
    // The disk becomes known a moment later.
    let known = scene.but(|s| s.state.as_mut().unwrap().domain = Some(paused([None, Some(DiskError::NoSpace)])));
    let known = settled(known);
    let full = format!("{plain}: disk data: the storage behind it is full; free some space and the guest goes on");
    assert_eq!(message(known.vmi.as_ref().unwrap()), full);
    let forgotten = known.clone().but(|s| s.state.as_mut().unwrap().domain = Some(paused([None, None])));
    assert_eq!(forgotten.stored(), None, "what is known stays");
    let lost = known.clone().but(|s| s.state.as_mut().unwrap().domain = Some(paused([Some(DiskError::Other), None])));
    assert!(message(&settled(lost).vmi.unwrap()).contains("disk root: the storage behind it failed"));
    let gone = settled(known.but(|s| s.state.as_mut().unwrap().domain = Some(running())));
    assert!(gone.vmi.unwrap().condition("Paused").is_none());
}

fn capacity(mode: &str, size: &str) -> Value {
    let overhead = if mode == "Block" { "0" } else { "0.055" };
    json!({"volumeMode": mode, "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "filesystemOverhead": overhead})
}

#[test]
fn a_disk_grows_when_its_claim_has_and_not_for_its_file_systems_share() {
    let of = |info: Value, has: DomainDisk| {
        let vmi = with_volumes(json!([claim("a")]), &[("a", info)]);
        let state = DomainState { disks: vec![has], ..running() };
        settled(Scene::new(vmi, state))
    };
    for (info, expected) in [
        (capacity("Block", "1Gi"), &[][..]),
        (capacity("Block", "2Gi"), &["grow"]),
        (capacity("Filesystem", "1Gi"), &[]),
        (capacity("Filesystem", "1080Mi"), &[]),
        (capacity("Filesystem", "2Gi"), &["grow"]),
        (json!({"accessModes": []}), &[]),
    ] {
        assert_eq!(of(info.clone(), disk("a", None)).does(), expected, "{info}");
    }
    let grown = || of(capacity("Block", "2Gi"), disk("a", None));
    assert_eq!(grown().but(|s| s.expand_disks = false).does(), [""; 0], "the gate is closed");
    let unknown = DomainDisk { capacity: 0, ..disk("a", None) };
    assert_eq!(of(capacity("Block", "2Gi"), unknown).does(), [""; 0], "its size is not known yet");
    let started = grown().but(|s| s.sent = Sent { sync: Some(at(50)), ..Sent::default() });
    assert_eq!(started.does(), ["grow"], "another sync was not for this");
    let tried = |bytes| grown().but(|s| s.sent = Sent { growth: Some((at(50), bytes)), ..Sent::default() });
    assert_eq!(tried(2 << 30).does(), ["again in 50"]);
    assert_eq!(tried(2 << 30).but(|s| s.now = at(110)).does(), ["grow"]);
    assert_eq!(tried(3 << 29).does(), ["grow"], "the claim has grown once more");
    let stopping = grown().but(|s| s.state.as_mut().unwrap().shutdown_requested_at = Some(at(59)));
    assert_eq!(stopping.does(), [""; 0], "its guest is going away");
}

#[test]
fn an_image_that_is_smaller_than_its_claim_is_told_once() {
    let scheduled = vmi(Phase::Scheduled);
    let scene = Scene::new(scheduled, running()).but(|s| {
        let state = s.state.take().unwrap();
        s.state = Some(LauncherState { small_volumes: vec!["volume a: too small".into()], ..state });
    });
    assert_eq!(scene.says(), ["Normal Started", "Warning ToleratedSmallPV"]);
    let told = scene
        .decide()
        .into_iter()
        .any(|action| matches!(action, Action::EmitEvent { message, .. } if message == "volume a: too small"));
    assert!(told);
    assert_eq!(settled(scene).says(), [""; 0]);
}
