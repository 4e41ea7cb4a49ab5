//! Volumes that come and go while the guest runs.

use api::reasons;
use api::v1::VolumePhase;

use super::super::decide;
use super::*;

fn plug(name: &str) -> Value {
    json!({"name": name, "persistentVolumeClaim": {"claimName": name, "hotpluggable": true}})
}

/// A running instance with these volumes plugged, and entries in the status as `name:phase`.
fn running(volumes: &[&str], statuses: &[&str], helpers: Vec<Pod>) -> World {
    let mut vmi = volumes.iter().fold(vmi("Running"), |vmi, name| with_volume(vmi, plug(name)));
    let status = vmi.status_mut();
    status.selinux_context = Some("none".into());
    status.volume_status = vec![serde_json::from_value(json!({"name": "root", "target": "vda"})).unwrap()];
    status.volume_status.extend(statuses.iter().map(|entry| {
        let (name, phase) = entry.split_once(':').unwrap();
        serde_json::from_value(json!({"name": name, "target": "", "phase": phase, "hotplugVolume": {}})).unwrap()
    }));
    let names: Vec<&str> = volumes.iter().copied().chain(statuses.iter().filter_map(|s| s.split(':').next())).collect();
    let w = names.iter().fold(world(vmi, vec![pod("ready")]), |w, name| with_claim(w, name, "Succeeded"));
    World { helpers: helpers.into_iter().map(Arc::new).collect(), ..w }
}

fn cargo(pod: &Pod) -> Vec<String> {
    super::super::hotplug::cargo(pod).into_iter().map(|attachment| attachment.volume).collect()
}

fn aged(mut pod: Pod, seconds: i64) -> Pod {
    pod.metadata.creation_timestamp = Some(time(seconds));
    pod
}

fn going(mut pod: Pod) -> Pod {
    pod.metadata.deletion_timestamp = Some(time(90));
    pod
}

/// Here c was plugged and never bound, so the Pod with a and c does not start; then c left, and d came.
#[test]
fn a_pod_that_does_not_start_makes_way_although_the_guest_has_one_of_its_volumes() {
    let stuck = || aged(attachment("a2", &["a", "c"], "Pending"), 20);
    let one = || attachment("a1", &["a"], "Running");
    let statuses = ["a:Ready", "c:Detaching"];
    let w = running(&["a", "d"], &statuses, vec![one(), stuck()]);
    assert_eq!(deleted(&decide(&w)), ["a2"]);
    assert_eq!(
        created(&decide(&running(&["a", "d"], &statuses, vec![one()]))).len(),
        1,
        "then there is room for the next"
    );
    // A cache of Pods can be behind that of VMIs: virt-handler has the volume from this one.
    let mut named = w.clone();
    for entry in &mut Arc::make_mut(&mut named.vmi).status_mut().volume_status {
        if let Some(plugged) = entry.hotplug_volume.as_mut().filter(|_| entry.name == "a") {
            plugged.attach_pod_uid = Some("a2-uid".into());
        }
    }
    assert!(deleted(&decide(&named)).is_empty());
}

#[test]
fn a_disk_that_leaves_is_with_the_pod_that_runs() {
    let stuck = aged(attachment("a2", &["a", "b"], "Pending"), 20);
    let w = running(&[], &["a:Ready"], vec![attachment("a1", &["a"], "Running"), stuck]);
    let actions = decide(&w);
    assert!(deleted(&actions).is_empty(), "the guest has a: {actions:#?}");
    let new = written(&w, &actions).expect("where it is from").status.expect("a status");
    let a = new.volume_status.iter().find(|entry| entry.name == "a").expect("its entry");
    assert_eq!(a.hotplug_volume.as_ref().and_then(|plugged| plugged.attach_pod_name.as_deref()), Some("a1"));
}

/// The cache of a new leader can predate the plug: then it shows a Pod that nothing uses, and the guest has the disk from it.
#[test]
fn an_attachment_pod_goes_only_if_a_live_read_finds_the_instance_unchanged() {
    let w = running(&[], &[], vec![attachment("a1", &["a"], "Running")]);
    let actions = decide(&w);
    assert!(!actions.iter().any(|action| matches!(action, Action::Delete { .. })), "{actions:#?}");
    let looked = actions.iter().find_map(|action| match action {
        Action::Confirm { look: look @ Look::Current, then } => Some((look, then)),
        _ => None,
    });
    let (look, then) = looked.expect("a live read");
    assert_eq!(deleted(then), ["a1"]);
    let plugged = running(&["a"], &["a:Ready"], vec![]).vmi;
    let mut plugged = (*plugged).clone();
    plugged.metadata.resource_version = Some("2".into());
    assert!(!look.holds(&w, &[Object::Vmi(Box::new(plugged))]));
    assert!(look.holds(&w, &[Object::Vmi(Box::new((*w.vmi).clone()))]));
}

/// Volumes, statuses and Pods → the cargo of a Pod that is made, and the Pods that go.
#[test]
fn the_attachment_pods_follow_the_volumes() {
    let one = || attachment("a1", &["a"], "Running");
    let both = |state: &str| aged(attachment("a2", &["a", "b"], state), 20);
    let rows: Vec<(&str, World, &[&str], &[&str])> = vec![
        ("nothing plugged", running(&[], &[], vec![]), &[], &[]),
        ("a first volume", running(&["a"], &[], vec![]), &["a"], &[]),
        ("its Pod is there", running(&["a"], &["a:Ready"], vec![one()]), &[], &[]),
        ("a second volume", running(&["a", "b"], &["a:Ready"], vec![one()]), &["a", "b"], &[]),
        ("the second Pod is pending", running(&["a", "b"], &["a:Ready"], vec![one(), both("Pending")]), &[], &[]),
        ("the second Pod runs", running(&["a", "b"], &["a:Ready"], vec![one(), both("Running")]), &[], &["a1"]),
        ("b left, the guest holds it", running(&["a"], &["a:Ready", "b:Ready"], vec![both("Running")]), &["a"], &[]),
        (
            "b left, the launcher holds it",
            running(&["a"], &["a:Ready", "b:MountedToPod"], vec![one(), both("Running")]),
            &[],
            &[],
        ),
        (
            "b left and is let go",
            running(&["a"], &["a:Ready", "b:UnMountedFromPod"], vec![one(), both("Running")]),
            &[],
            &["a2"],
        ),
        (
            "b is let go, the other Pod is not up",
            running(
                &["a"],
                &["a:Ready", "b:UnMountedFromPod"],
                vec![attachment("a1", &["a"], "Pending"), both("Running")],
            ),
            &[],
            &[],
        ),
        ("everything left and is let go", running(&[], &["a:UnMountedFromPod"], vec![one()]), &[], &["a1"]),
        ("everything left, the guest holds it", running(&[], &["a:Ready"], vec![one()]), &[], &[]),
        ("a Pod of that cargo failed", running(&["a"], &[], vec![attachment("a1", &["a"], "Failed")]), &[], &[]),
        ("the Pod is on its way out", running(&["a"], &[], vec![going(one())]), &["a"], &[]),
        ("an unfit Pod is pending", running(&["a", "b"], &[], vec![attachment("a1", &["a"], "Pending")]), &[], &["a1"]),
    ];
    for (name, w, made, gone) in rows {
        let actions = decide(&w);
        let cargos: Vec<String> = created(&actions).into_iter().flat_map(cargo).collect();
        assert_eq!(cargos, made, "{name}: {actions:#?}");
        assert_eq!(deleted(&actions), gone, "{name}: {actions:#?}");
    }
}

#[test]
fn an_attachment_pod_belongs_to_the_launcher_and_is_bound_to_its_node() {
    let actions = decide(&running(&["a"], &[], vec![]));
    let [pod] = created(&actions)[..] else { panic!("{actions:#?}") };
    assert!(machinery::meta::is_controlled_by(&pod.metadata, "pod-uid"));
    let affinity = serde_json::to_string(&pod.spec.as_ref().unwrap().affinity).unwrap();
    assert!(affinity.contains("n1"), "{affinity}");
    assert!(actions.iter().any(|a| matches!(a, Action::Note(n) if n.message.starts_with("Created attachment pod"))));
}

/// Volumes whose claims are not ready do not keep others away.
#[test]
fn only_ready_claims_are_plugged_and_each_other_one_says_why() {
    let mut w = running(&["a", "b", "c"], &[], vec![]);
    w = with_claim(w, "b", "ImportInProgress");
    w.claims.claims.remove("c");
    let actions = decide(&w);
    assert_eq!(created(&actions).into_iter().flat_map(cargo).collect::<Vec<_>>(), ["a"]);
    let status = written(&w, &actions).unwrap().status.unwrap();
    let entry = |name: &str| status.volume_status.iter().find(|v| v.name == name).unwrap();
    assert_eq!(
        (entry("a").phase.clone(), entry("a").reason.as_deref()),
        (Some(VolumePhase::Bound), Some(reasons::PVC_NOT_READY))
    );
    assert!(entry("b").message.as_ref().unwrap().contains("ImportInProgress"));
    assert_eq!(entry("c").reason.as_deref(), Some(reasons::FAILED_PVC_NOT_FOUND));
}

#[test]
fn a_plugged_claim_that_waits_for_its_first_consumer_gets_a_trigger_once() {
    let mut w = with_claim(running(&["a"], &[], vec![]), "a", "WaitForFirstConsumer");
    let actions = decide(&w);
    let [trigger] = created(&actions)[..] else { panic!("{actions:#?}") };
    assert!(crate::pods::is_temporary(trigger));
    let mut trigger = trigger.clone();
    trigger.metadata.uid = Some("t".into());
    trigger.status = pod("succeeded").status;
    w.helpers = vec![Arc::new(trigger)];
    let actions = decide(&w);
    assert!(created(&actions).is_empty() && deleted(&actions).is_empty(), "it has done what it could: {actions:#?}");
    let w = with_claim(w, "a", "Succeeded");
    let actions = decide(&w);
    assert_eq!(deleted(&actions).len(), 1, "the trigger is spent");
    assert_eq!(created(&actions).into_iter().flat_map(cargo).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn nothing_is_attached_before_the_guests_label_is_known() {
    let mut w = running(&["a"], &[], vec![]);
    Arc::make_mut(&mut w.vmi).status_mut().selinux_context = None;
    assert!(created(&decide(&w)).is_empty());
}

#[test]
fn a_utility_volume_must_hold_files() {
    let mut w = running(&[], &[], vec![]);
    let utility = json!([{"name": "u", "claimName": "u"}]);
    Arc::make_mut(&mut w.vmi).spec.utility_volumes = serde_json::from_value(utility).unwrap();
    let mut w = with_claim(w, "u", "Succeeded");
    assert_eq!(created(&decide(&w)).into_iter().flat_map(cargo).collect::<Vec<_>>(), ["u"]);
    let mut block = claim("u");
    block.spec.as_mut().unwrap().volume_mode = Some("Block".into());
    w.claims.claims.insert("u".into(), Arc::new(block));
    let actions = decide(&w);
    assert!(created(&actions).is_empty());
    let status = written(&w, &actions).unwrap().status.unwrap();
    let entry = status.volume_status.iter().find(|v| v.name == "u").unwrap();
    assert_eq!((entry.phase.clone(), entry.persistent_volume_claim_info.clone()), (Some(VolumePhase::Pending), None));
    assert!(entry.message.as_ref().unwrap().contains("needs Filesystem"));
}

#[test]
fn the_claims_of_an_ended_instance_are_let_go_and_its_launcher_is_not() {
    let mut w = running(&["a"], &["a:Ready"], vec![attachment("a1", &["a"], "Running")]);
    Arc::make_mut(&mut w.vmi).status_mut().phase = Some(Phase::Failed);
    let actions = decide(&w);
    assert_eq!(deleted(&actions), ["a1"]);
    let delete = actions.iter().find(|action| matches!(action, Action::Delete { kind: Kind::Pod, .. })).unwrap();
    assert_eq!(delete.on_failure(), Some(reasons::FAILED_HOTPLUG_SYNC));
}

#[test]
fn helpers_of_a_launcher_that_ended_go() {
    let w = World {
        pods: vec![Arc::new(pod("failed"))],
        ..running(&["a"], &["a:Ready"], vec![attachment("a1", &["a"], "Running")])
    };
    assert_eq!(deleted(&decide(&w)), ["a1"]);
}

/// Plugging and unplugging, seen through the status.
#[test]
fn a_volumes_status_follows_it_in_and_out() {
    let phase_of = |w: &World| -> (Option<VolumePhase>, Option<String>, Option<String>) {
        let new = written(w, &decide(w)).unwrap_or_else(|| (*w.vmi).clone());
        let status = new.status.unwrap();
        let Some(entry) = status.volume_status.iter().find(|v| v.name == "a") else { return (None, None, None) };
        let hotplug = entry.hotplug_volume.clone().unwrap();
        (entry.phase.clone(), hotplug.attach_pod_name, hotplug.attach_pod_uid)
    };
    let named = |phase, name: &str, uid: Option<&str>| (Some(phase), Some(name.to_owned()), uid.map(str::to_owned));
    let pending = attachment("a1", &["a"], "Pending");
    let up = attachment("a1", &["a"], "Running");
    assert_eq!(phase_of(&running(&["a"], &[], vec![])), (Some(VolumePhase::Bound), None, None));
    let w = running(&["a"], &["a:Bound"], vec![pending]);
    assert_eq!(phase_of(&w), named(VolumePhase::AttachedToNode, "a1", None));
    assert!(decide(&w).iter().any(|a| matches!(a, Action::Note(n) if n.reason == reasons::SUCCESSFUL_CREATE)));
    for phase in [VolumePhase::AttachedToNode, VolumePhase::MountedToPod, VolumePhase::Ready] {
        let w = running(&["a"], &[&format!("a:{phase}")], vec![up.clone()]);
        assert_eq!(phase_of(&w), named(phase, "a1", Some("a1-uid")));
    }
    let w = running(&[], &["a:Ready"], vec![up.clone()]);
    assert_eq!(phase_of(&w), named(VolumePhase::Ready, "a1", Some("a1-uid")), "the guest still holds it");
    let w = running(&[], &["a:UnMountedFromPod"], vec![up.clone()]);
    assert_eq!(phase_of(&w), named(VolumePhase::Detaching, "a1", Some("a1-uid")));
    let w = running(&[], &["a:Detaching"], vec![going(up.clone())]);
    assert!(decide(&w).iter().any(|a| matches!(a, Action::Note(n) if n.reason == reasons::SUCCESSFUL_DELETE)));
    let w = running(&[], &["a:Detaching"], vec![]);
    assert_eq!(phase_of(&w), (None, None, None), "the last trace");
    let w = running(&["a"], &["a:Detaching"], vec![up]);
    assert_eq!(phase_of(&w).0, Some(VolumePhase::Bound), "plugged again in time");
}

/// virt-handler mounts a volume and plugs it into the guest before it writes so.
#[test]
fn a_volume_that_virt_handler_may_have_given_to_the_guest_is_held_until_it_says_otherwise() {
    let named = |mut w: World, pod: &str| {
        let entry = Arc::make_mut(&mut w.vmi).status_mut().volume_status.iter_mut().find(|entry| entry.name == "a");
        let plugged = entry.unwrap().hotplug_volume.as_mut().unwrap();
        (plugged.attach_pod_name, plugged.attach_pod_uid) = (Some(pod.into()), Some(format!("{pod}-uid")));
        w
    };
    let entry = |w: &World| {
        let status = written(w, &decide(w)).unwrap_or_else(|| (*w.vmi).clone()).status.unwrap();
        let entry = status.volume_status.into_iter().find(|entry| entry.name == "a").expect("its entry");
        (entry.phase.unwrap(), entry.hotplug_volume.unwrap().attach_pod_uid)
    };
    let up = || attachment("a1", &["a"], "Running");
    let from = |pod: &str| (VolumePhase::AttachedToNode, Some(format!("{pod}-uid")));

    let left = named(running(&[], &["a:AttachedToNode"], vec![up()]), "a1");
    assert_eq!(entry(&left), from("a1"));
    assert!(deleted(&decide(&left)).is_empty());
    let unnamed = running(&[], &["a:AttachedToNode"], vec![up()]);
    assert_eq!(entry(&unnamed).0, VolumePhase::Detaching, "virt-handler was told of no Pod");
    assert_eq!(deleted(&decide(&unnamed)), ["a1"]);

    // Another volume comes, and virt-handler may still have this one from the first Pod.
    let both = |state: &str| aged(attachment("a2", &["a", "b"], state), 20);
    let second = |helpers| named(running(&["a", "b"], &["a:AttachedToNode"], helpers), "a1");
    assert_eq!(entry(&second(vec![up()])), from("a1"), "there is no second Pod");
    assert_eq!(entry(&second(vec![up(), both("Pending")])), from("a1"), "it does not run");
    assert_eq!(entry(&second(vec![up(), both("Running")])), from("a2"), "it runs");

    // Phases in which an unplugged volume counts as unused name no Pod to mount it from, or are left first.
    let again = named(running(&["a"], &["a:Detaching"], vec![up()]), "a1");
    assert_eq!(entry(&again), (VolumePhase::Bound, None));
    assert_eq!(entry(&named(running(&["a"], &["a:UnMountedFromPod"], vec![up()]), "a1")), from("a1"));
}

#[test]
fn an_entry_carries_the_claims_facts() {
    let w = running(&["a"], &[], vec![]);
    let mut w = with_claim(w, "a", "Succeeded");
    let mut thick = claim("a");
    thick.metadata.annotations = Some([("cdi.kubevirt.io/storage.preallocation".to_owned(), "true".to_owned())].into());
    w.claims.claims.insert("a".into(), Arc::new(thick));
    let fact = |w: &World| {
        let status = written(w, &decide(w)).unwrap().status.unwrap();
        status.volume_status.into_iter().find(|v| v.name == "a").unwrap().persistent_volume_claim_info.unwrap()
    };
    let info = fact(&w);
    assert_eq!((info.claim_name.as_deref(), info.preallocated), (Some("a"), Some(true)));
    assert_eq!((info.capacity["storage"].0.as_str(), info.requests["storage"].0.as_str()), ("2Gi", "1Gi"));
    assert_eq!(info.filesystem_overhead.as_deref(), Some("0.055"));
    w.storage.overhead =
        Some(serde_json::from_value(json!({"global": "0.1", "storageClass": {"fast": "0.2"}})).unwrap());
    assert_eq!(fact(&w).filesystem_overhead.as_deref(), Some("0.2"));
}

#[test]
fn entries_are_sorted_and_another_order_alone_is_not_written() {
    let w = running(&["z", "a"], &[], vec![]);
    let mut new = written(&w, &decide(&w)).unwrap();
    let names: Vec<String> = new.status.as_ref().unwrap().volume_status.iter().map(|v| v.name.clone()).collect();
    assert_eq!(names, ["a", "root", "z"]);
    new.status_mut().volume_status.reverse();
    let actions = decide(&w);
    let helpers = created(&actions).into_iter().map(|pod| {
        let mut pod = pod.clone();
        pod.metadata.uid = Some("p".into());
        pod.metadata.creation_timestamp = Some(time(1));
        pod
    });
    let w = World { vmi: Arc::new(new), helpers: helpers.map(Arc::new).collect(), ..w };
    let once = written(&w, &decide(&w)).expect("the Pod shows in the status");
    let mut reversed = once.clone();
    reversed.status_mut().volume_status.reverse();
    let w = World { vmi: Arc::new(reversed), ..w };
    assert_eq!(written(&w, &decide(&w)), None);
}
