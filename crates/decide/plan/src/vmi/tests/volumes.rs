//! Volumes that are filled only once a Pod uses them.

use api::{conditions, reasons};

use super::super::decide;
use super::*;

fn waiting(phase: &str, pods: Vec<Pod>) -> World {
    let vmi = with_volume(vmi("Pending"), json!({"name": "data", "dataVolume": {"name": "data"}}));
    with_claim(world(vmi, pods), "data", phase)
}

/// The start of a virtual machine whose DataVolume waits for its first consumer, step by step.
#[test]
fn a_temporary_pod_goes_before_the_launcher() {
    let w = waiting("WaitForFirstConsumer", vec![]);
    let actions = decide(&w);
    let [temp] = created(&actions)[..] else { panic!("{actions:#?}") };
    assert!(crate::pods::is_temporary(temp));
    let launcher = render::launcher_pod(&w.vmi, &w.config, &w.context(None)).unwrap();
    assert_ne!(temp.metadata.name, launcher.metadata.name);

    let w = waiting("WaitForFirstConsumer", vec![temporary("unschedulable")]);
    let new = written(&w, &decide(&w)).unwrap();
    assert_eq!(new.phase(), Some(&Phase::Pending), "a temporary Pod is not a launcher");
    assert!(condition(&new, conditions::PROVISIONING).is_true());
    assert_eq!(condition(&new, conditions::POD_SCHEDULED).reason(), reasons::UNSCHEDULABLE);
    assert_eq!(condition(&new, conditions::READY).reason(), reasons::POD_NOT_EXISTS);
    assert_eq!(new.status.as_ref().unwrap().launcher_container_image_version, None);
    assert_eq!(new.status.as_ref().unwrap().active_pods.len(), 1, "it is one of the Pods all the same");

    let w = World { vmi: Arc::new(new), ..waiting("WaitForFirstConsumer", vec![temporary("succeeded")]) };
    let actions = decide(&w);
    assert!(created(&actions).is_empty() && deleted(&actions).is_empty(), "the content is not there yet");

    let mut w =
        World { vmi: Arc::new(written(&w, &actions).unwrap()), ..waiting("Succeeded", vec![temporary("succeeded")]) };
    let actions = decide(&w);
    assert_eq!(deleted(&actions), ["virt-launcher-vm-temp"]);
    w.pods.clear();
    let actions = decide(&w);
    let [launcher] = created(&actions)[..] else { panic!("{actions:#?}") };
    assert!(!crate::pods::is_temporary(launcher));

    w.pods = vec![Arc::new(pod("new"))];
    let new = written(&w, &decide(&w)).unwrap();
    assert_eq!(new.phase(), Some(&Phase::Scheduling));
    assert_eq!(new.condition(conditions::PROVISIONING), None);
}

#[test]
fn a_temporary_pod_that_waits_is_left_alone_and_one_that_failed_fails_the_instance() {
    let w = waiting("Succeeded", vec![temporary("new")]);
    let actions = decide(&w);
    assert!(created(&actions).is_empty() && deleted(&actions).is_empty(), "it may be about to run");
    let w = waiting("WaitForFirstConsumer", vec![temporary("failed")]);
    assert_eq!(phase_after(&w, &decide(&w)), Some(Phase::Failed));
    let w = waiting("WaitForFirstConsumer", vec![temporary("running")]);
    assert_eq!(phase_after(&w, &decide(&w)), Some(Phase::Pending));
}

#[test]
fn content_that_will_not_come_fails_the_instance_with_the_importers_words() {
    let w = waiting("Failed", vec![]);
    let actions = decide(&w);
    assert_eq!(phase_after(&w, &actions), Some(Phase::Failed));
    assert!(actions.iter().any(|a| matches!(a, Action::Note(n) if n.reason == reasons::FAILED_DATA_VOLUME_IMPORT)));
}

#[test]
fn a_volume_that_can_be_plugged_does_not_hold_up_the_start() {
    let volume = json!({"name": "later", "dataVolume": {"name": "later", "hotpluggable": true}});
    for phase in ["ImportInProgress", "WaitForFirstConsumer"] {
        let w = with_claim(world(with_volume(vmi("Pending"), volume.clone()), vec![]), "later", phase);
        let actions = decide(&w);
        let [pod] = created(&actions)[..] else { panic!("{phase}: {actions:#?}") };
        assert!(!crate::pods::is_temporary(pod));
    }
}

#[test]
fn a_running_instance_is_not_held_up_by_what_became_of_its_claims() {
    let mut w = waiting("ImportInProgress", vec![pod("ready")]);
    let mut running = (*w.vmi).clone();
    running.status = vmi("Running").status;
    running.status_mut().evacuation_node_name = Some("n1".into());
    w.vmi = Arc::new(running);
    w.claims = crate::claims::Claims::default();
    assert!(
        decide(&w).iter().any(|action| matches!(action, Action::Patch { kind: Kind::Pod, patch: Patch::Json(_), .. }))
    );
}

#[test]
fn what_lies_under_an_ephemeral_disk_is_waited_for_and_described_like_a_disk() {
    let volume = json!({"name": "data", "ephemeral": {"persistentVolumeClaim": {"claimName": "base"}}});
    let pending = || with_volume(vmi("Pending"), volume.clone());
    let w = with_claim(world(pending(), vec![]), "base", "ImportInProgress");
    assert!(created(&decide(&w)).is_empty(), "its content is not there yet");
    let missing = world(pending(), vec![]);
    let told = written(&missing, &decide(&missing)).unwrap();
    let why = condition(&told, conditions::SYNCHRONIZED);
    assert_eq!(why.reason(), reasons::FAILED_PVC_NOT_FOUND, "{}", why.message());

    let scheduling = with_volume(vmi("Scheduling"), volume);
    let w = with_claim(world(scheduling, vec![pod("ready")]), "base", "Succeeded");
    let new = written(&w, &decide(&w)).unwrap();
    let statuses = new.status.unwrap().volume_status;
    let known = statuses.iter().find(|status| status.name == "data").unwrap();
    let info = known.persistent_volume_claim_info.as_ref().unwrap();
    assert_eq!(
        (info.claim_name.as_deref(), info.access_modes.as_slice()),
        (Some("base"), &["ReadWriteOnce".to_owned()][..])
    );
}
