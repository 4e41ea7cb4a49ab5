//! Volumes that are plugged into a running guest, and unplugged.

use api::v1::VirtualMachineInstance;
use api::v1::VirtualMachineInstancePhase as Phase;
use proptest::prelude::*;
use serde_json::{Value, json};
use vmstate::{Action, DomainDisk, DomainReason, DomainState, DomainStatus, Mounted, Shape, Told, Trouble, plugged};

use crate::support::{Scene, at, domain, running, settled, vmi};

/// A plugged volume: its name, its claim (`None` if it has left the spec), the phase in the status, and the attachment Pod.
type Plugged = (&'static str, Option<&'static str>, Option<&'static str>, Option<&'static str>);

fn with_volumes(phase: Phase, volumes: &[Plugged]) -> VirtualMachineInstance {
    let mut vmi = serde_json::to_value(vmi(phase)).unwrap();
    let mut spec: Vec<Value> = vec![];
    let mut statuses: Vec<Value> = vec![];
    for (name, claim, phase, pod) in volumes {
        if let Some(claim) = claim {
            spec.push(json!({"name": name, "persistentVolumeClaim": {"claimName": claim, "hotpluggable": true}}));
        }
        let mode = if name.starts_with("block") { "Block" } else { "Filesystem" };
        let info = json!({
            "claimName": claim, "volumeMode": mode, "capacity": {"storage": "1Gi"}, "filesystemOverhead": "0.5",
            "accessModes": ["ReadWriteMany"],
        });
        let pod = json!({"attachPodName": "hp", "attachPodUID": pod});
        statuses.push(json!({
            "name": name, "target": "", "phase": phase, "hotplugVolume": pod, "persistentVolumeClaimInfo": info,
        }));
    }
    vmi["spec"]["volumes"] = json!(spec);
    vmi["status"]["volumeStatus"] = json!(statuses);
    serde_json::from_value(vmi).unwrap()
}

fn disk(name: &str) -> DomainDisk {
    let source = format!("/var/run/kubevirt/hotplug-disks/{name}.img");
    DomainDisk { alias: name.to_owned(), target: "sda".to_owned(), source, ..DomainDisk::default() }
}

fn guest(disks: &[&str]) -> DomainState {
    DomainState { disks: disks.iter().map(|name| disk(name)).collect(), ..running() }
}

fn mounted(name: &str, claim: &str) -> (String, Mounted) {
    (name.to_owned(), Mounted { claim: claim.to_owned(), shape: Shape::Image })
}

/// A running guest with these disks, and these volumes mounted.
fn scene(volumes: &[Plugged], mounts: &[(&str, &str)], disks: &[&str]) -> Scene {
    let vmi = with_volumes(Phase::Running, volumes);
    Scene::new(vmi, guest(disks))
        .but(|s| s.mounted = mounts.iter().map(|(name, claim)| mounted(name, claim)).collect())
        .but(|s| s.expand_disks = false)
}

/// What is done besides writing the status.
fn does(scene: &Scene) -> Vec<String> {
    scene.does().into_iter().filter(|word| !word.starts_with("status")).collect()
}

const A: Plugged = ("a", Some("a"), Some("AttachedToNode"), Some("hp-1"));
const READY: Plugged = ("a", Some("a"), Some("Ready"), Some("hp-1"));
const LEAVING: Plugged = ("a", None, Some("Ready"), Some("hp-1"));

#[test]
fn a_volume_comes_and_goes_step_by_step() {
    for (name, scene, expected) in [
        ("its claim is not bound", scene(&[("a", Some("a"), Some("Pending"), None)], &[], &[]), &[][..]),
        ("its Pod does not run yet", scene(&[("a", Some("a"), Some("AttachedToNode"), Some(""))], &[], &[]), &[]),
        ("it has reached the node", scene(&[A], &[], &[]), &["mount a=a from hp-1 as Image"]),
        ("it is mounted", scene(&[A], &[("a", "a")], &[]), &["plug a"]),
        ("the guest has it", scene(&[READY], &[("a", "a")], &["a"]), &[]),
        (
            "another Pod holds it now",
            scene(&[("a", Some("a"), Some("Ready"), Some("hp-2"))], &[("a", "a")], &["a"]),
            &[],
        ),
        ("it has left the spec", scene(&[LEAVING], &[("a", "a")], &["a"]), &["plug "]),
        ("the guest has let go", scene(&[LEAVING], &[("a", "a")], &[]), &["unmount a"]),
        ("it is out", scene(&[LEAVING], &[], &[]), &[]),
        (
            "a block device",
            scene(&[("block", Some("b"), None, Some("hp-1"))], &[], &[]),
            &["mount block=b from hp-1 as Device"],
        ),
        (
            "a second beside the first",
            scene(&[READY, ("b", Some("b"), Some("AttachedToNode"), Some("hp-2"))], &[("a", "a")], &["a"]),
            &["mount b=b from hp-2 as Image"],
        ),
        (
            "several at once",
            scene(&[A, ("b", Some("b"), Some("AttachedToNode"), Some("hp-1"))], &[], &[]),
            &["mount a=a from hp-1 as Image, b=b from hp-1 as Image"],
        ),
        (
            "the guest still has the claim of before",
            scene(&[("a", Some("new"), Some("Ready"), Some("hp-2"))], &[("a", "a")], &["a"]),
            &["plug "],
        ),
        (
            "the claim of before is still mounted",
            scene(&[("a", Some("new"), Some("Ready"), Some("hp-2"))], &[("a", "a")], &[]),
            &["unmount a"],
        ),
        (
            "it left and came back, and virt-controller has not seen it again",
            scene(&[("a", Some("a"), Some("UnMountedFromPod"), Some("hp-1"))], &[], &[]),
            &[],
        ),
        ("its Pod is about to be deleted", scene(&[("a", Some("a"), Some("Detaching"), Some("hp-1"))], &[], &[]), &[]),
        ("a mount that was interrupted", scene(&[A], &[("a", "")], &[]), &["unmount a"]),
    ] {
        assert_eq!(does(&scene), expected, "{name}");
    }
}

#[test]
fn a_status_that_describes_another_claim_is_waited_for() {
    let mut waiting = scene(&[A], &[], &[]);
    let status = waiting.vmi.as_mut().unwrap().status_mut();
    status.volume_status[0].persistent_volume_claim_info.as_mut().unwrap().claim_name = Some("before".to_owned());
    assert_eq!(does(&waiting), [""; 0]);
}

#[test]
fn a_volume_that_moves_to_another_claim_stays_with_its_guest_until_then() {
    let (from, to) = (json!({"claimName": "a"}), json!({"claimName": "new", "volumeMode": "Block"}));
    let moves = json!([{"volumeName": "a", "sourcePVCInfo": from, "destinationPVCInfo": to}]);
    let mut source = scene(&[("a", Some("new"), Some("Ready"), Some("hp-1"))], &[("a", "a")], &["a"]);
    source.vmi.as_mut().unwrap().status_mut().migrated_volumes = serde_json::from_value(moves.clone()).unwrap();
    assert_eq!(does(&source), [""; 0], "the guest runs on the old claim");
    assert_eq!(plugged(source.vmi.as_ref().unwrap(), &source.mounted), ["a".to_owned()].into());

    let mut target = source.clone();
    target.mounted.clear();
    target.state = Some(vmstate::LauncherState::default());
    let vmi = target.vmi.as_mut().unwrap();
    let labels = vmi.metadata.labels.get_or_insert_default();
    labels.insert("kubevirt.io/nodeName".to_owned(), "node02".to_owned());
    labels.insert("kubevirt.io/migrationTargetNodeName".to_owned(), crate::support::NODE.to_owned());
    let state = json!({
        "migrationUid": "m", "sourceNode": "node02", "targetNode": crate::support::NODE,
        "targetPod": "virt-launcher-testvm", "targetAttachmentPodUID": "hp-2",
    });
    vmi.status_mut().migration_state = serde_json::from_value(state).unwrap();
    assert_eq!(does(&target), ["mount a=new from hp-2 as Device"], "and arrives on the new one");
    target.mounted = [mounted("a", "new")].into();
    assert_eq!(does(&target), ["prepare"]);
    target.mounted.clear();
    target.troubles.insert("a".to_owned(), Trouble { message: "lost".to_owned(), count: 5, at: at(60) });
    let failed = target.stored().unwrap().status.unwrap().migration_state.unwrap();
    assert_eq!((failed.failed, failed.failure_reason.as_deref()), (Some(true), Some("lost")));
}

#[test]
fn the_image_to_make_leaves_its_file_system_what_it_needs() {
    let actions = scene(&[A], &[], &[]).decide();
    let mount = actions.iter().find_map(|action| match action {
        Action::MountVolumes(mounts) => mounts.first(),
        _ => None,
    });
    assert_eq!(mount.unwrap().image_bytes, 512 << 20);
}

#[test]
fn the_status_says_how_far_a_volume_is_and_an_event_that_it_has_come() {
    for (name, mut scene, expected) in [
        ("mounted", scene(&[A], &[("a", "a")], &[]), ("MountedToPod", "VolumeMountedToPod")),
        (
            "in the guest",
            scene(&[("a", Some("a"), Some("MountedToPod"), Some("hp-1"))], &[("a", "a")], &["a"]),
            ("Ready", "VolumeReady"),
        ),
        ("out", scene(&[LEAVING], &[], &[]), ("UnMountedFromPod", "VolumeUnMountedFromPod")),
        (
            "out, on its way in",
            scene(&[("a", None, Some("AttachedToNode"), None)], &[], &[]),
            ("UnMountedFromPod", "VolumeUnMountedFromPod"),
        ),
        (
            "out, without ever having been in",
            scene(&[("a", None, Some("AttachedToNode"), Some("hp-1"))], &[], &[]),
            ("UnMountedFromPod", "VolumeUnMountedFromPod"),
        ),
        (
            "the same before the guest starts",
            scene(&[("a", None, Some("AttachedToNode"), Some("hp-1"))], &[], &[])
                .but(|s| s.state = Some(vmstate::LauncherState::default())),
            ("UnMountedFromPod", "VolumeUnMountedFromPod"),
        ),
        (
            "out for another claim",
            scene(&[("a", Some("new"), Some("Ready"), None)], &[], &[]),
            ("UnMountedFromPod", "VolumeUnMountedFromPod"),
        ),
        (
            "in again",
            scene(&[("a", Some("new"), Some("UnMountedFromPod"), None)], &[("a", "new")], &[]),
            ("MountedToPod", "VolumeMountedToPod"),
        ),
    ] {
        let status = scene.stored().unwrap().status.unwrap().volume_status.remove(0);
        let found = (status.phase.as_ref().map(|phase| phase.as_str()), status.reason.as_deref());
        assert_eq!(found, (Some(expected.0), Some(expected.1)), "{name}");
        assert!(scene.says().contains(&format!("Normal {}", expected.1)), "{name}: {:?}", scene.says());
        // Once it is written, nothing is written again.
        scene.vmi = scene.stored();
        let again = scene.stored().map(|vmi| vmi.status.unwrap().volume_status);
        assert_eq!(again, None, "{name}");
    }
    for (name, scene) in [
        ("the guest still has it", scene(&[LEAVING], &[("a", "a")], &["a"])),
        ("it is still mounted", scene(&[("a", None, Some("MountedToPod"), None)], &[("a", "a")], &[])),
        ("the same, and never written", scene(&[("a", None, Some("AttachedToNode"), None)], &[("a", "a")], &[])),
        (
            "the guest has it, and that was never written",
            scene(&[("a", None, Some("AttachedToNode"), None)], &[("a", "a")], &["a"]),
        ),
        ("it is for a backup", {
            let utility = serde_json::from_value(json!([{"name": "a", "claimName": "a"}])).unwrap();
            scene(&[("a", None, Some("AttachedToNode"), Some("hp-1"))], &[], &[])
                .but(|s| s.vmi.as_mut().unwrap().spec.utility_volumes = utility)
        }),
    ] {
        let phase = scene.stored().unwrap().status.unwrap().volume_status[0].phase.clone().unwrap();
        assert_ne!(phase.as_str(), "UnMountedFromPod", "{name}");
    }
}

fn refused(count: u32, passes: bool, volumes: &[&str]) -> Told {
    let refusal = Some(Trouble { message: "QEMU said no".to_owned(), count, at: at(0) });
    Told { volumes: volumes.iter().map(ToString::to_string).collect(), at: at(0), refusal, passes }
}

#[test]
fn a_refusal_is_told_and_not_retried_for_ever() {
    let at_second = |now: i64, told: Option<Told>| {
        settled(scene(&[A], &[("a", "a")], &[])).but(|s| (s.now, s.told) = (at(now), told))
    };
    let accepted = Told { refusal: None, ..refused(0, false, &["a"]) };
    for (name, now, told, expected) in [
        ("nothing was said yet", 60, None, &["plug a"][..]),
        ("it was said about other volumes", 60, Some(refused(9, false, &["b"])), &["plug a"]),
        ("it has just been accepted", 10, Some(accepted.clone()), &["again in 20"]),
        ("the guest took its time", 30, Some(accepted), &["plug a"]),
        ("refused once", 0, Some(refused(1, false, &["a"])), &["again in 0.5"]),
        ("refused once, a while ago", 1, Some(refused(1, false, &["a"])), &["plug a"]),
        ("refused four times", 1, Some(refused(4, false, &["a"])), &["again in 3"]),
        ("refused five times", 1000, Some(refused(5, false, &["a"])), &[]),
        ("held by the guest many times", 10, Some(refused(50, true, &["a"])), &["again in 20"]),
        ("held by the guest for long", 30, Some(refused(50, true, &["a"])), &["plug a"]),
    ] {
        assert_eq!(does(&at_second(now, told)), expected, "{name}");
    }
    let given_up = at_second(1000, Some(refused(5, false, &["a"])));
    let stored = given_up.stored().unwrap();
    let condition = stored.condition("Synchronized").unwrap();
    assert!(condition.is_false());
    assert_eq!((condition.reason(), condition.message()), ("Synchronizing with the Domain failed.", "QEMU said no"));
    assert_eq!(given_up.says(), ["Warning SyncFailed"]);
    let told = given_up.but(|s| s.vmi = Some(stored));
    assert_eq!(told.decide(), [], "it is told once, and quiet from then on");
    // Without the volume there is nothing to complain about.
    let mut removed = told;
    removed.vmi.as_mut().unwrap().spec.volumes.clear();
    assert!(removed.stored().unwrap().condition("Synchronized").is_none());
}

#[test]
fn one_volume_that_cannot_be_mounted_does_not_hold_up_others() {
    let trouble = |count| Trouble { message: "no such disk".to_owned(), count, at: at(60) };
    let two = &[A, ("b", Some("b"), Some("AttachedToNode"), Some("hp-1"))];
    let stuck = scene(two, &[], &[]).but(|s| drop(s.troubles.insert("a".to_owned(), trouble(3))));
    assert_eq!(does(&stuck), ["mount b=b from hp-1 as Image", "again in 2"]);
    assert_eq!(stuck.stored().unwrap().condition("Synchronized").unwrap().message(), "no such disk");
    let later = stuck.clone().but(|s| s.now = at(62));
    assert_eq!(does(&later), ["mount a=a from hp-1 as Image, b=b from hp-1 as Image"]);
    let busy = scene(&[LEAVING], &[("a", "a")], &[]).but(|s| drop(s.troubles.insert("a".to_owned(), trouble(20))));
    assert_eq!(does(&busy), ["again in 30"]);
}

#[test]
fn a_guest_starts_with_its_plugged_volumes() {
    let starts = |volumes: &[Plugged], mounts: &[(&str, &str)]| {
        let vmi = with_volumes(Phase::Scheduled, volumes);
        Scene::new(vmi, None).but(|s| s.mounted = mounts.iter().map(|(name, claim)| mounted(name, claim)).collect())
    };
    let waiting = ("a", Some("a"), Some("Bound"), None);
    assert_eq!(does(&starts(&[waiting], &[])), ["again in 1"]);
    assert_eq!(does(&starts(&[A], &[])), ["mount a=a from hp-1 as Image"]);
    let mounted = starts(&[A], &[("a", "a")]);
    assert_eq!(mounted.does(), ["status Scheduled", "sync"]);
    let status = mounted.stored().unwrap().status.unwrap().volume_status.remove(0);
    assert_eq!(status.phase.unwrap().as_str(), "MountedToPod");
    assert_eq!(does(&starts(&[], &[])), ["sync"]);
    // The attachment Pod waits for the label.
    let labelled = starts(&[waiting], &[]).but(|s| s.selinux = Some("none".to_owned()));
    assert_eq!(labelled.stored().unwrap().status.unwrap().selinux_context.as_deref(), Some("none"));
    assert!(starts(&[], &[]).but(|s| s.selinux = Some("none".to_owned())).stored().is_none(), "no write without need");
    assert_eq!(does(&starts(&[A], &[("a", "before")])), ["unmount a"], "of an earlier attempt");
}

#[test]
fn nothing_is_plugged_into_a_guest_that_shuts_down() {
    let shutting = scene(&[A], &[], &[]).but(|s| s.state.as_mut().unwrap().marked_for_graceful_shutdown = true);
    assert!(!shutting.does().iter().any(|word| word.starts_with("mount") || word.starts_with("plug")));
}

#[test]
fn a_guest_that_stands_still_because_of_a_disk_may_lose_it() {
    let paused = DomainState { disks: vec![disk("a")], ..domain(DomainStatus::Paused, DomainReason::PausedIOError) };
    let leaving = scene(&[LEAVING], &[("a", "a")], &[]).but(|s| s.state.as_mut().unwrap().domain = Some(paused));
    assert_eq!(does(&leaving), ["plug ", "sync"]);
}

#[test]
fn only_disks_that_are_mounted_for_their_claim_are_plugged() {
    let vmi = with_volumes(Phase::Running, &[A, ("b", Some("b"), None, None), ("gone", None, None, None)]);
    let dump = ("d".to_owned(), Mounted { claim: "d".to_owned(), shape: Shape::Directory });
    let all = [mounted("a", "a"), mounted("b", "other"), mounted("gone", "gone"), dump];
    assert_eq!(plugged(&vmi, &all.into()), ["a".to_owned()].into());
}

/// Something that happens to the volumes of a running guest.
#[derive(Debug, Clone)]
enum Turn {
    /// The volume of this number is to be this claim, or no more.
    Wish(usize, Option<usize>),
    /// QEMU refuses, or takes, what it is asked.
    Refuses(bool),
    /// The guest releases disks, or holds on to them.
    Holds(bool),
    /// virt-handler starts anew: it knows what it has recorded.
    Restarts,
    Passes(i64),
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = prop_oneof![
        4 => (0..3usize, prop::option::of(0..2usize)).prop_map(|(volume, claim)| Turn::Wish(volume, claim)),
        1 => any::<bool>().prop_map(Turn::Refuses),
        1 => any::<bool>().prop_map(Turn::Holds),
        1 => Just(Turn::Restarts),
        2 => (1..40i64).prop_map(Turn::Passes),
    ];
    prop::collection::vec(turn, 1..40)
}

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A guest whose volumes change, with what is mounted and plugged for it.
struct Plugging {
    scene: Scene,
    wishes: [Option<usize>; 3],
    /// The claim behind each disk of the guest.
    disks: std::collections::BTreeMap<String, String>,
    refuses: bool,
    holds: bool,
}

impl Plugging {
    fn claim(volume: usize, claim: usize) -> String {
        format!("{}-{claim}", NAMES[volume])
    }

    /// Writes the VMI as users and the controller do: the attachment Pod is there at once.
    fn wish(&mut self) {
        let vmi = self.scene.vmi.as_mut().unwrap();
        let known = std::mem::take(&mut vmi.status_mut().volume_status);
        vmi.spec.volumes.clear();
        for (volume, name) in NAMES.iter().enumerate() {
            let claim = self.wishes[volume].map(|claim| Self::claim(volume, claim));
            if let Some(claim) = &claim {
                let source = json!({"name": name, "persistentVolumeClaim": {"claimName": claim, "hotpluggable": true}});
                vmi.spec.volumes.push(serde_json::from_value(source).unwrap());
            }
            let held = self.scene.mounted.contains_key(*name) || self.disks.contains_key(*name);
            if claim.is_none() && !held {
                continue;
            }
            let fresh = || {
                let hotplug = json!({"attachPodUID": "hp"});
                serde_json::from_value(json!({"name": name, "target": "", "hotplugVolume": hotplug})).unwrap()
            };
            let mut status = known.iter().find(|status| status.name == *name).cloned().unwrap_or_else(fresh);
            status.persistent_volume_claim_info.get_or_insert_default().claim_name = claim;
            vmi.status_mut().volume_status.push(status);
        }
    }

    fn shows(&mut self) {
        let names: Vec<&str> = self.disks.keys().map(String::as_str).collect();
        self.scene.state.as_mut().unwrap().domain = Some(guest(&names));
    }

    /// Decides and acts until there is nothing to do but wait.
    fn work(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..50 {
            let mut worked = false;
            for action in self.scene.decide() {
                worked |= action.kind().is_some();
                match action {
                    Action::UpdateStatus(status) => self.scene.vmi.as_mut().unwrap().status = Some(*status),
                    Action::MountVolumes(mounts) => {
                        for mount in mounts {
                            prop_assert!(!self.scene.mounted.contains_key(&mount.volume), "two in one place");
                            prop_assert!(!self.disks.contains_key(&mount.volume), "the guest has one of this name");
                            let known = Mounted { claim: mount.claim, shape: mount.shape };
                            self.scene.mounted.insert(mount.volume, known);
                        }
                    }
                    Action::UnmountVolumes(volumes) => {
                        for volume in volumes {
                            prop_assert!(!self.disks.contains_key(&volume), "the guest still has {}", volume);
                            prop_assert!(self.scene.mounted.remove(&volume).is_some(), "nothing is there");
                        }
                    }
                    Action::SyncVolumes { volumes } => self.sync(volumes)?,
                    Action::RequeueAfter { .. } | Action::EmitEvent { .. } => {}
                    other => return Err(TestCaseError::fail(format!("volumes do not call for {other:?}"))),
                }
                self.wish();
                self.shows();
            }
            if !worked {
                return Ok(());
            }
        }
        Err(TestCaseError::fail("it does not come to rest"))
    }

    /// What the launcher does.
    fn sync(&mut self, volumes: std::collections::BTreeSet<String>) -> Result<(), TestCaseError> {
        let refused = |passes| {
            let message = "no".to_owned();
            (Some(Trouble { message, count: 1, at: self.scene.now }), passes)
        };
        let held = self.holds && self.disks.keys().any(|name| !volumes.contains(name));
        let (refusal, passes) = match (self.refuses, held) {
            (true, _) => refused(false),
            (false, true) => refused(true),
            (false, false) => (None, false),
        };
        if !self.refuses {
            self.disks.retain(|name, _| volumes.contains(name) || self.holds);
            for name in &volumes {
                let Some(mounted) = self.scene.mounted.get(name) else {
                    return Err(TestCaseError::fail(format!("{name} is not mounted")));
                };
                let claim = self.disks.entry(name.clone()).or_insert_with(|| mounted.claim.clone());
                prop_assert_eq!(&*claim, &mounted.claim, "the guest writes to another claim");
            }
        }
        let before = self.scene.told.as_ref().filter(|told| told.volumes == volumes);
        let count = before.and_then(|told| told.refusal.as_ref()).map_or(0, |refusal| refusal.count);
        let refusal = refusal.map(|refusal| Trouble { count: count + 1, ..refusal });
        self.scene.told = Some(Told { volumes, at: self.scene.now, refusal, passes });
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_guest_gets_the_volumes_of_its_vmi_and_lets_go_of_each_before_it_leaves(turns in turns()) {
        let scene = settled(scene(&[], &[], &[]));
        let mut plugging = Plugging { scene, wishes: [None; 3], disks: Default::default(), refuses: false, holds: false };
        for turn in turns {
            match turn {
                Turn::Wish(volume, claim) => plugging.wishes[volume] = claim,
                Turn::Refuses(refuses) => plugging.refuses = refuses,
                Turn::Holds(holds) => plugging.holds = holds,
                Turn::Restarts => (plugging.scene.told, plugging.scene.troubles) = (None, Default::default()),
                Turn::Passes(seconds) => {
                    plugging.scene.now = plugging.scene.now.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap();
                }
            }
            plugging.wish();
            plugging.shows();
            plugging.work()?;
        }
        // In the end nobody refuses, and whoever was refused for good starts anew.
        (plugging.refuses, plugging.holds, plugging.scene.told) = (false, false, None);
        for _ in 0..3 {
            plugging.scene.now = plugging.scene.now.checked_add(jiff::SignedDuration::from_secs(60)).unwrap();
            plugging.work()?;
        }
        let wanted = plugging.wishes.iter().enumerate().filter_map(|(volume, claim)| {
            Some((NAMES[volume].to_owned(), Plugging::claim(volume, (*claim)?)))
        });
        prop_assert_eq!(&plugging.disks, &wanted.collect());
        let mounted: std::collections::BTreeMap<_, _> =
            plugging.scene.mounted.into_iter().map(|(name, mounted)| (name, mounted.claim)).collect();
        prop_assert_eq!(mounted, plugging.disks);
    }
}

/// A guest whose memory is dumped to a mounted volume in this phase, with what the launcher says about a dump.
fn dumping(phase: &'static str, dump: Option<(&str, bool, Option<&str>)>) -> Scene {
    let vmi = with_volumes(Phase::Running, &[("d", Some("d"), Some(phase), Some("hp"))]);
    let mut vmi = serde_json::to_value(vmi).unwrap();
    vmi["spec"]["volumes"] = json!([{"name": "d", "memoryDump": {"claimName": "d", "hotpluggable": true}}]);
    vmi["status"]["volumeStatus"][0]["memoryDumpVolume"] = json!({"claimName": "d", "targetFileName": "file"});
    let vmi: VirtualMachineInstance = serde_json::from_value(vmi).unwrap();
    let known = Mounted { claim: "d".to_owned(), shape: Shape::Directory };
    let dump = dump.map(|(file, ended, failure)| vmstate::MemoryDump {
        volume: "d".to_owned(),
        file: file.to_owned(),
        started_at: at(10),
        ended_at: ended.then(|| at(20)),
        failure: failure.map(str::to_owned),
    });
    Scene::new(vmi, guest(&[])).but(|s| {
        s.mounted = [("d".to_owned(), known)].into();
        s.state.as_mut().unwrap().memory_dump = dump;
    })
}

#[test]
fn memory_is_dumped_once_to_the_volume_that_waits_for_it() {
    let status = |scene: &Scene| scene.stored().unwrap().status.unwrap().volume_status.remove(0);
    let begun = status(&dumping("MountedToPod", None));
    assert_eq!(begun.phase.unwrap().as_str(), "MemoryDumpInProgress");
    let file = begun.memory_dump_volume.unwrap().target_file_name.unwrap();
    assert!(file.starts_with("testvm-d-2027") && file.ends_with(".memory.dump"), "{file}");

    assert_eq!(does(&dumping("MemoryDumpInProgress", None)), ["dump to d/file"]);
    assert_eq!(does(&dumping("MemoryDumpInProgress", Some(("earlier", true, None)))), ["dump to d/file"]);
    assert_eq!(does(&dumping("MemoryDumpInProgress", Some(("file", false, None)))), [""; 0]);
    let started = status(&dumping("MemoryDumpInProgress", Some(("file", false, None))));
    assert!(started.memory_dump_volume.unwrap().start_timestamp.is_some());
    for (failure, phase, event) in [
        (None, "MemoryDumpCompleted", "Normal MemoryDumpCompleted"),
        (Some("No space left on device"), "MemoryDumpFailed", "Warning MemoryDumpFailed"),
    ] {
        let scene = dumping("MemoryDumpInProgress", Some(("file", true, failure)));
        let ended = status(&scene);
        assert_eq!(ended.phase.as_ref().unwrap().as_str(), phase);
        assert!(ended.memory_dump_volume.unwrap().end_timestamp.is_some());
        assert!(failure.is_none_or(|why| ended.message.as_deref() == Some(why)));
        assert_eq!(scene.says(), [event]);
        assert_eq!(does(&scene), [""; 0]);
    }
    let mut leaving = dumping("MemoryDumpCompleted", Some(("file", true, None)));
    leaving.vmi.as_mut().unwrap().spec.volumes.clear();
    assert_eq!(does(&leaving), ["unmount d"]);
    leaving.mounted.clear();
    assert_eq!(status(&leaving).phase.unwrap().as_str(), "UnMountedFromPod");
}
