//! Source and target of a live migration.

use api::v1::MigrationMode;
use api::v1::VirtualMachineInstance;
use api::v1::VirtualMachineInstancePhase as Phase;
use serde_json::{Value, json};
use vmstate::migration::SOURCE_GONE;
use vmstate::{
    Action, ActionKind, DomainReason, DomainState, DomainStatus, Endpoint, Failure, Migration, MigrationPhase,
};

use crate::support::{Launcher, NODE, Scene, at, deleting, domain, running, settled, vmi, with};

const OTHER: &str = "node02";
const POD: &str = "virt-launcher-testvm";
const OTHER_POD: &str = "virt-launcher-testvm-other";

/// What the controller hands off: the guest goes from one node to the other.
fn state(from: (&str, &str), to: (&str, &str), more: Value) -> Value {
    let mut state = json!({
        "migrationUid": "m", "sourceNode": from.0, "sourcePod": from.1, "targetNode": to.0, "targetPod": to.1,
    });
    state.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"migrationState": state})
}

fn leaving(more: Value) -> VirtualMachineInstance {
    with(vmi(Phase::Running), state((NODE, POD), (OTHER, OTHER_POD), more))
}

/// A guest of the other node that is to come here.
fn coming(more: Value) -> VirtualMachineInstance {
    let mut vmi = with(vmi(Phase::Running), state((OTHER, OTHER_POD), (NODE, POD), more));
    vmi.status.as_mut().unwrap().node_name = Some(OTHER.to_string());
    let labels = vmi.metadata.labels.as_mut().unwrap();
    labels.insert("kubevirt.io/nodeName".to_string(), OTHER.to_string());
    labels.insert("kubevirt.io/migrationTargetNodeName".to_string(), NODE.to_string());
    vmi
}

fn address() -> Value {
    json!({"targetNodeAddress": "10.0.0.2", "targetDirectMigrationNodePorts": {"4001": 0, "4002": 49152, "4003": 49153}})
}

fn endpoint() -> Endpoint {
    let ports = [("4001", 0), ("4002", 49152), ("4003", 49153)];
    let ports = ports.into_iter().map(|(port, channel)| (port.to_string(), channel)).collect();
    Endpoint { address: "10.0.0.2".to_string(), ports }
}

fn merged(a: Value, b: Value) -> Value {
    let mut all = a;
    all.as_object_mut().unwrap().extend(b.as_object().unwrap().clone());
    all
}

/// A launcher that says this about the migration.
fn scene(vmi: VirtualMachineInstance, domain: Option<DomainState>, phase: Option<MigrationPhase>) -> Scene {
    Scene::new(vmi, domain).but(|scene| {
        let migration = |phase| Migration { uid: "m".to_string(), phase, ..Migration::default() };
        scene.state.as_mut().unwrap().migration = phase.map(migration);
    })
}

fn migrated() -> DomainState {
    domain(DomainStatus::Shutoff, DomainReason::Migrated)
}

fn waiting() -> DomainState {
    domain(DomainStatus::Paused, DomainReason::PausedMigration)
}

fn annotated(mut vmi: VirtualMachineInstance) -> VirtualMachineInstance {
    vmi.metadata.annotations.get_or_insert_default().insert(SOURCE_GONE.to_string(), "m".to_string());
    vmi
}

#[test]
fn each_step_of_a_source() {
    use MigrationPhase::*;
    let ready = || leaving(address());
    let abort = || leaving(merged(address(), json!({"abortRequested": true})));
    let over = |what: Value| leaving(merged(address(), merged(what, json!({"endTimestamp": at(50).to_string()}))));
    let failed = || over(json!({"failed": true, "completed": true}));
    let dialled = |scene: Scene| scene.but(|scene| scene.dialling = Some(endpoint()));
    for (name, scene, expected) in [
        ("waits for its target", scene(leaving(json!({})), Some(running()), None), &["again in 5"][..]),
        ("begins when the target is ready", scene(ready(), Some(running()), None), &["dial 10.0.0.2", "migrate m"]),
        ("does not dial twice", dialled(scene(ready(), Some(running()), None)), &["migrate m"]),
        ("lets it go on", dialled(scene(ready(), Some(running()), Some(Transferring))), &["again in 30"]),
        (
            "opens the way again after a restart",
            scene(ready(), Some(waiting()), Some(SwitchingOver)),
            &["dial 10.0.0.2", "again in 5"],
        ),
        ("aborts when asked", dialled(scene(abort(), Some(running()), Some(Transferring))), &["abort", "again in 30"]),
        (
            "does not abort a switch-over",
            dialled(scene(abort(), Some(waiting()), Some(SwitchingOver))),
            &["again in 5"],
        ),
        ("does not decide in doubt", dialled(scene(ready(), Some(waiting()), Some(Undecided))), &["again in 5"]),
        (
            "keeps the launcher until the target has the guest",
            dialled(scene(ready(), Some(migrated()), Some(Completed))),
            &["again in 5"],
        ),
        (
            "goes on when the target's node says that it failed",
            dialled(scene(failed(), Some(waiting()), Some(Undecided))),
            &["settle, runs at the target: false", "again in 5"],
        ),
        (
            "stops a transfer that has failed elsewhere",
            dialled(scene(failed(), Some(running()), Some(Transferring))),
            &["abort"],
        ),
        ("closes the way after a failure", dialled(scene(failed(), Some(running()), Some(Failed))), &["close"]),
        ("has nothing left to do then", scene(failed(), Some(running()), Some(Failed)), &[]),
    ] {
        // What is new to tell is told first; it is looked at elsewhere.
        let scene = settled(scene);
        assert_eq!(scene.does(), expected, "{name}");
    }
}

#[test]
fn a_guest_that_is_to_stop_is_not_sent_away() {
    let ready = deleting(leaving(address()));
    assert_eq!(settled(scene(ready.clone(), Some(running()), None)).does(), ["shutdown", "again in 5"]);
    let under_way = settled(scene(ready, Some(running()), Some(MigrationPhase::Transferring)));
    let under_way = under_way.but(|scene| scene.dialling = Some(endpoint()));
    assert_eq!(under_way.does(), ["abort"]);
}

#[test]
fn a_source_reports_beginning_mode_and_failure() {
    let scene = scene(leaving(address()), Some(running()), Some(MigrationPhase::Failed)).but(|scene| {
        let migration = scene.state.as_mut().unwrap().migration.as_mut().unwrap();
        (migration.started_at, migration.ended_at) = (Some(at(30)), Some(at(55)));
        migration.mode = Some(api::v1::MigrationMode::PreCopy);
        migration.failure = Some("the link broke".to_string());
    });
    let stored = scene.stored().unwrap();
    let state = stored.status.as_ref().unwrap().migration_state.clone().unwrap();
    assert_eq!((state.failed, state.completed), (Some(true), Some(true)));
    assert_eq!(state.failure_reason.as_deref(), Some("the link broke"));
    assert_eq!((state.start_timestamp.unwrap().0, state.end_timestamp.unwrap().0), (at(30), at(55)));
    assert_eq!(stored.status.unwrap().node_name.as_deref(), Some(NODE), "the guest stays where it was");
    assert!(scene.says().contains(&"Warning Migrated".to_string()));
}

#[test]
fn a_migration_that_was_aborted_is_not_completed() {
    let aborted = scene(leaving(address()), Some(running()), Some(MigrationPhase::Failed)).but(|scene| {
        let migration = scene.state.as_mut().unwrap().migration.as_mut().unwrap();
        migration.abort = Some(api::v1::MigrationAbortStatus::Succeeded);
    });
    let state = aborted.stored().unwrap().status.unwrap().migration_state.unwrap();
    assert_eq!((state.failed, state.completed), (Some(true), None));
    assert!(state.end_timestamp.is_some());
}

#[test]
fn an_abort_before_the_beginning_is_reported_by_the_source() {
    let aborted = scene(leaving(json!({"abortRequested": true})), Some(running()), None).stored().unwrap();
    let state = aborted.status.unwrap().migration_state.unwrap();
    assert_eq!((state.failed, state.failure_reason.as_deref()), (Some(true), Some("Live migration has been aborted")));
    assert_eq!(state.completed, None);
}

#[test]
fn a_source_that_dies_asks_its_target_before_anything_is_declared() {
    let begun = || leaving(merged(address(), json!({"startTimestamp": at(30).to_string()})));
    let gone = |vmi| scene(vmi, Some(running()), Some(MigrationPhase::Transferring)).launcher(Launcher::Gone);
    let first = gone(begun());
    assert_eq!(first.does(), ["store, owner node01", "again in 5"]);
    assert_eq!(gone(annotated(begun())).does(), ["again in 5"], "it waits for an answer");
    let answered = leaving(merged(
        address(),
        json!({
            "startTimestamp": at(30).to_string(), "endTimestamp": at(59).to_string(), "failed": true, "completed": true,
        }),
    ));
    assert_eq!(gone(annotated(answered)).does(), ["status Failed"]);
    let not_begun = scene(leaving(address()), Some(running()), None).launcher(Launcher::Gone);
    assert_eq!(not_begun.does(), ["status Failed"], "a guest that never left cannot be elsewhere");
}

#[test]
fn a_post_copy_that_breaks_ends_the_guest_only_when_its_launcher_gives_up() {
    let broken = |phase| {
        let vmi = leaving(merged(address(), json!({"startTimestamp": at(10).to_string()})));
        let domain = domain(DomainStatus::Paused, DomainReason::PausedPostcopyFailed);
        scene(vmi, Some(domain), Some(phase)).but(|scene| {
            scene.state.as_mut().unwrap().migration.as_mut().unwrap().mode = Some(MigrationMode::PostCopy);
        })
    };
    let phase = |scene: Scene| scene.stored().unwrap().phase().cloned();
    assert_eq!(phase(broken(MigrationPhase::Transferring)), Some(Phase::Running));
    assert_eq!(phase(broken(MigrationPhase::Failed)), Some(Phase::Failed));
    let why = |scene: Scene| {
        scene.decide().into_iter().find_map(|action| match action {
            Action::EmitEvent { message, reason: "Stopped", .. } => Some(message),
            _ => None,
        })
    };
    let said = broken(MigrationPhase::Failed).but(|scene| {
        scene.state.as_mut().unwrap().migration.as_mut().unwrap().failure = Some("the link is cut".to_string());
    });
    assert!(why(said).unwrap().contains("lost during migration: the link is cut"));
    let told = json!({"failed": true, "completed": true, "mode": "PostCopy", "failureReason": "its memory is gone"});
    let gone = scene(leaving(merged(address(), told)), Some(running()), None).launcher(Launcher::Gone);
    assert!(why(gone).unwrap().contains("lost during migration: its memory is gone"));
}

#[test]
fn a_guest_that_left_and_never_arrived_is_lost() {
    let failed = json!({"failed": true, "completed": true, "endTimestamp": at(50).to_string(), "failureReason": "cut"});
    let scene = scene(leaving(merged(address(), failed)), Some(migrated()), Some(MigrationPhase::Completed));
    assert_eq!(scene.does(), ["status Failed"]);
}

/// The VMI after the target has taken it.
fn taken(more: Value) -> VirtualMachineInstance {
    let end = json!({"startTimestamp": at(30).to_string(), "endTimestamp": at(50).to_string()});
    let mut vmi = leaving(merged(end, more));
    vmi.status.as_mut().unwrap().node_name = Some(OTHER.to_string());
    vmi.metadata.labels.as_mut().unwrap().insert("kubevirt.io/nodeName".to_string(), OTHER.to_string());
    vmi
}

#[test]
fn a_launcher_that_is_left_behind_ends_without_touching_the_guest() {
    use MigrationPhase::*;
    let completed = || taken(json!({"completed": true}));
    let open = |scene: Scene| scene.but(|scene| scene.dialling = Some(endpoint()));
    for (name, scene, expected) in [
        (
            "its guest has gone",
            open(scene(completed(), Some(migrated()), Some(Completed))),
            &["close", "delete", "again in 5"][..],
        ),
        (
            "it is told what it could not learn",
            scene(taken(json!({})), Some(waiting()), Some(Undecided)),
            &["settle, runs at the target: true", "again in 5"],
        ),
        ("it learns it by itself", scene(taken(json!({})), Some(waiting()), Some(SwitchingOver)), &["again in 1"]),
        ("a guest that runs on is fenced", scene(completed(), Some(running()), Some(Failed)), &["kill", "again in 5"]),
        ("it is gone", scene(completed(), Some(migrated()), Some(Completed)).launcher(Launcher::Gone), &["clean up"]),
        ("a launcher of no migration is left alone", scene(completed(), None, None), &[]),
    ] {
        assert_eq!(scene.does(), expected, "{name}");
    }
}

#[test]
fn a_launcher_of_an_earlier_stay_is_not_taken_for_the_present_one() {
    // The guest went away and came back to this node in another Pod.
    let end = json!({"startTimestamp": at(30).to_string(), "endTimestamp": at(50).to_string(), "completed": true});
    let vmi = with(vmi(Phase::Running), state((OTHER, "x"), (NODE, OTHER_POD), end));
    let old = scene(vmi, Some(migrated()), Some(MigrationPhase::Completed));
    assert_eq!(old.does(), ["delete", "again in 5"]);
}

#[test]
fn a_launcher_of_an_earlier_stay_does_not_end_the_guest_when_it_leaves_again() {
    let failed = json!({"endTimestamp": at(50).to_string(), "failed": true, "completed": true});
    for more in [json!({}), address(), failed] {
        let present = with(vmi(Phase::Running), state((NODE, OTHER_POD), (OTHER, "x"), more.clone()));
        let old = scene(present.clone(), Some(migrated()), Some(MigrationPhase::Completed));
        assert_eq!(old.does(), ["delete", "again in 5"], "{more}");
        let gone = scene(present, None, None).launcher(Launcher::Gone);
        let unnamed = gone.clone().but(|scene| scene.pod_name = None);
        for does in [gone.does(), unnamed.does()] {
            assert!(does.iter().all(|action| !action.starts_with("status")), "{more}: {does:?}");
        }
    }
}

#[test]
fn each_step_of_a_target() {
    use MigrationPhase::*;
    let fresh = || coming(json!({}));
    let listening = |scene: Scene| scene.but(|scene| scene.listening = Some(endpoint()));
    let no_network = |scene: Scene| scene.but(|scene| scene.network = None);
    let published = || {
        let scene = listening(scene(fresh(), None, Some(Ready)));
        scene.stored().unwrap()
    };
    for (name, scene, expected) in [
        ("prepares the network", no_network(scene(fresh(), None, None)), &["network"][..]),
        ("then the launcher", scene(fresh(), None, None), &["prepare"]),
        ("then listens", scene(fresh(), None, Some(Ready)), &["listen"]),
        ("then tells where", listening(scene(fresh(), None, Some(Ready))), &["status Running", "again in 30"]),
        ("then waits", listening(scene(published(), None, Some(Ready))), &["again in 30"]),
        ("also while memory comes", listening(scene(published(), Some(waiting()), Some(Ready))), &["again in 30"]),
        ("listens also for a guest that fetches", scene(published(), Some(running()), Some(Transferring)), &["listen"]),
        (
            "and tells where, if that has changed",
            scene(published(), Some(running()), Some(Transferring)).but(|scene| {
                scene.listening = Some(Endpoint { address: "10.0.0.3".to_string(), ..endpoint() });
            }),
            &["status Running", "again in 5"],
        ),
        (
            "takes a guest that runs here",
            listening(scene(published(), Some(running()), Some(Completed))),
            &["store, owner node01"],
        ),
        (
            "takes one that has powered off here since",
            listening(scene(published(), Some(domain(DomainStatus::Shutoff, DomainReason::Shutdown)), Some(Failed))),
            &["store, owner node01"],
        ),
        ("reports a launcher that is gone", scene(fresh(), None, None).launcher(Launcher::Gone), &["status Running"]),
        ("leaves a silent one alone", scene(fresh(), None, None).launcher(Launcher::Silent), &["again in 1"]),
        ("another Pod's business is not ours", scene(fresh(), None, None).but(|s| s.pod_name = Some("x".into())), &[]),
    ] {
        assert_eq!(scene.does(), expected, "{name}");
    }
}

fn after_take_over() -> VirtualMachineInstance {
    let scene = scene(coming(address()), Some(running()), Some(MigrationPhase::Completed));
    let new = scene.decide().into_iter().find_map(|action| match action {
        Action::UpdateVmi(vmi) => Some(*vmi),
        _ => None,
    });
    new.unwrap()
}

#[test]
fn ownership_moves_in_one_write() {
    let mut vmi = coming(address());
    vmi.metadata.annotations = Some([("kubevirt.io/eviction-source".to_string(), "drain".to_string())].into());
    vmi.metadata.labels.as_mut().unwrap().insert("kubevirt.io/outdatedLauncherImage".to_string(), String::new());
    vmi.status.as_mut().unwrap().evacuation_node_name = Some(OTHER.to_string());
    vmi.status.as_mut().unwrap().launcher_container_image_version = Some("v1".to_string());
    let scene = scene(vmi, Some(running()), Some(MigrationPhase::Completed));
    let actions = scene.decide();
    let [Action::UpdateVmi(new), Action::EmitEvent { reason: "Migrated", .. }] = actions.as_slice() else {
        panic!("{actions:?}")
    };
    let labels = new.metadata.labels.as_ref().unwrap();
    assert_eq!(labels.get("kubevirt.io/nodeName").map(String::as_str), Some(NODE));
    assert!(labels.contains_key("kubevirt.io/migrationTargetNodeName"), "until it is finished");
    assert!(!labels.contains_key("kubevirt.io/outdatedLauncherImage"));
    assert!(new.metadata.annotations.as_ref().unwrap().is_empty());
    let status = new.status.as_ref().unwrap();
    assert_eq!((status.node_name.as_deref(), &status.evacuation_node_name), (Some(NODE), &None));
    assert_eq!(
        (&status.launcher_container_image_version, status.migration_transport.as_deref()),
        (&None, Some("Unix"))
    );
    let state = status.migration_state.as_ref().unwrap();
    assert!(state.end_timestamp.is_some() && state.target_node_domain_ready_timestamp.is_some());
    assert_eq!((state.target_node_domain_detected, state.completed, state.failed), (Some(true), None, None));
}

#[test]
fn a_guest_that_was_taken_is_finished_and_then_an_ordinary_one() {
    let taken = scene(after_take_over(), Some(running()), Some(MigrationPhase::Completed));
    assert_eq!(taken.does(), ["finalise", "store, owner node01"]);
    let failure = Failure { action: ActionKind::UpdateVmi, message: "c".into(), critical: false, count: 1, at: at(60) };
    let refused = taken.clone().but(|scene| scene.failure = Some(failure));
    assert!(!refused.does().contains(&"finalise".to_string()), "it was done before the write that has to wait");
    let new = taken.decide().into_iter().find_map(|action| match action {
        Action::UpdateVmi(vmi) => Some(*vmi),
        _ => None,
    });
    let new = new.unwrap();
    assert!(!new.metadata.labels.as_ref().unwrap().contains_key("kubevirt.io/migrationTargetNodeName"));
    assert_eq!(new.status.as_ref().unwrap().migration_state.as_ref().unwrap().completed, Some(true));
    let ordinary = settled(scene(new, Some(running()), Some(MigrationPhase::Completed)));
    assert!(ordinary.does().is_empty());
    let entrance = ordinary.but(|scene| scene.listening = Some(endpoint()));
    assert_eq!(entrance.does(), ["again in 30"], "the source may have questions");
    assert_eq!(entrance.but(|scene| scene.now = at(91)).does(), ["close"]);
}

/// The write met a newer object: only that is tried again, and not at once.
#[test]
fn a_launcher_is_told_once_to_finish_when_the_write_after_it_fails() {
    let taken = scene(after_take_over(), Some(running()), Some(MigrationPhase::Completed));
    let action = ActionKind::UpdateVmi;
    let failure = Failure { action, message: "conflict".to_string(), critical: false, count: 1, at: taken.now };
    let taken = taken.but(|scene| scene.failure = Some(failure));
    assert_eq!(taken.does(), ["again in 0.5"]);
}

#[test]
fn a_guest_that_has_arrived_is_taken_before_it_is_stopped() {
    let stopped = |phase| scene(deleting(coming(address())), Some(running()), Some(phase));
    assert_eq!(stopped(MigrationPhase::Completed).does(), ["store, owner node01"]);
    assert_eq!(stopped(MigrationPhase::Ready).does(), ["kill", "again in 5"], "what has not arrived goes");
}

#[test]
fn a_target_that_lost_ends_what_it_has_before_it_lets_go() {
    let failed =
        || coming(merged(address(), json!({"failed": true, "completed": true, "endTimestamp": at(50).to_string()})));
    let open = |scene: Scene| scene.but(|scene| scene.listening = Some(endpoint()));
    for (name, scene, expected) in [
        ("kills", open(scene(failed(), Some(waiting()), Some(MigrationPhase::Ready))), &["kill", "again in 5"][..]),
        (
            "also a guest that runs",
            open(scene(failed(), Some(running()), Some(MigrationPhase::Completed))),
            &["kill", "again in 5"],
        ),
        (
            "then lets go",
            open(scene(failed(), None, Some(MigrationPhase::Ready))),
            &["delete", "close", "store, owner node02"],
        ),
        (
            "a VMI that has ended has no target",
            scene(with(coming(json!({})), json!({"phase": "Failed"})), None, None),
            &["delete", "store, owner node02"],
        ),
    ] {
        assert_eq!(scene.does(), expected, "{name}");
    }
}

#[test]
fn a_target_whose_source_is_gone_tells_what_became_of_the_guest() {
    use MigrationPhase::*;
    let orphaned = || annotated(coming(merged(address(), json!({"startTimestamp": at(30).to_string()}))));
    let long_ago = |scene: Scene| scene.but(|scene| scene.state_at = at(40));
    for (name, scene, expected) in [
        ("it runs here", scene(orphaned(), Some(running()), Some(Completed)), &["store, owner node01"][..]),
        ("it never came", scene(orphaned(), None, Some(Ready)), &["status Running"]),
        ("it may be about to run", scene(orphaned(), Some(waiting()), Some(Ready)), &["again in 10"]),
        ("it will not run", long_ago(scene(orphaned(), Some(waiting()), Some(Ready))), &["kill", "again in 5"]),
        ("the rest may be here", scene(orphaned(), Some(running()), Some(Transferring)), &["again in 10"]),
        ("it is not", long_ago(scene(orphaned(), Some(running()), Some(Transferring))), &["kill", "again in 5"]),
    ] {
        assert_eq!(scene.does(), expected, "{name}");
    }
    let stored = scene(orphaned(), None, Some(Ready)).stored().unwrap();
    assert_eq!(stored.status.unwrap().migration_state.unwrap().failed, Some(true));
}

#[test]
fn a_guest_that_ends_in_post_copy_is_the_targets_only_if_it_ended_by_itself() {
    let ended = |reason, source_gone| {
        let coming = coming(merged(address(), json!({"startTimestamp": at(30).to_string()})));
        let vmi = if source_gone { annotated(coming) } else { coming };
        let scene = scene(vmi, Some(domain(DomainStatus::Shutoff, reason)), Some(MigrationPhase::Failed));
        scene.but(|scene| {
            scene.state.as_mut().unwrap().migration.as_mut().unwrap().mode = Some(MigrationMode::PostCopy);
        })
    };
    let why = |scene: Scene| scene.stored().unwrap().status.unwrap().migration_state.unwrap().failure_reason;
    for (reason, by_itself) in [
        (DomainReason::Shutdown, true),
        (DomainReason::Panicked, true),
        (DomainReason::Crashed, false),
        (DomainReason::Destroyed, false),
        (DomainReason::Daemon, false),
    ] {
        let expected = if by_itself { "store, owner node01" } else { "status Running" };
        assert_eq!(ended(reason, false).does(), [expected], "{reason:?}");
        assert_eq!(ended(reason, true).does(), [expected], "{reason:?}, and the source is gone");
    }
    assert!(why(ended(DomainReason::Crashed, false)).unwrap().contains("guest ended on the target before"));
    assert!(why(ended(DomainReason::Destroyed, true)).unwrap().contains("source was lost before"));
}

#[test]
fn a_guest_whose_qemu_dies_as_it_arrives_is_still_the_sources() {
    use MigrationPhase::*;
    let ended = |phase, reason, arrived| {
        scene(coming(address()), Some(domain(DomainStatus::Shutoff, reason)), Some(phase)).but(|scene| {
            scene.state.as_mut().unwrap().migration.as_mut().unwrap().ended_at = Some(at(arrived));
            scene.state_at = at(60);
        })
    };
    for (phase, reason, arrived, sources) in [
        (Failed, DomainReason::Crashed, 60, true),
        (Failed, DomainReason::Failed, 60, true),
        (Completed, DomainReason::Crashed, 59, true),
        (Completed, DomainReason::Crashed, 50, true),
        (Completed, DomainReason::Crashed, 49, false),
        (Completed, DomainReason::Shutdown, 59, false),
        (Failed, DomainReason::Panicked, 60, false),
    ] {
        let expected = if sources { "status Running" } else { "store, owner node01" };
        assert_eq!(ended(phase, reason, arrived).does(), [expected], "{phase:?} {reason:?} {arrived}");
    }
    let told = ended(Completed, DomainReason::Crashed, 59).stored().unwrap().status.unwrap().migration_state.unwrap();
    assert_eq!(told.failed, Some(true));
    assert!(told.failure_reason.unwrap().contains("QEMU died at the target"));
    let goes_on = scene(leaving(json!({"failed": true, "completed": true})), Some(waiting()), Some(Undecided));
    assert!(goes_on.does().iter().any(|deed| deed == "settle, runs at the target: false"), "{:?}", goes_on.does());
}

#[test]
fn what_cannot_follow_its_guest_is_named() {
    let condition = |vmi: VirtualMachineInstance| {
        let stored = Scene::new(vmi, running()).stored().unwrap();
        let condition = stored.condition("LiveMigratable").unwrap().clone();
        (condition.is_true(), condition.reason().to_string(), stored.status.unwrap().migration_method.unwrap())
    };
    assert_eq!(condition(vmi(Phase::Running)), (true, String::new(), "LiveMigration".to_string()));
    let mut bridged = vmi(Phase::Running);
    bridged.spec.domain.devices.interfaces[0] = serde_json::from_value(json!({"name": "default"})).unwrap();
    assert_eq!(condition(bridged).1, "InterfaceNotLiveMigratable");
    let mut on_two = vmi(Phase::Running);
    let devices = &mut on_two.spec.domain.devices;
    devices.interfaces.push(serde_json::from_value(json!({"name": "blue", "bridge": {}})).unwrap());
    let blue = json!({"name": "blue", "multus": {"networkName": "second"}});
    on_two.spec.networks.push(serde_json::from_value(blue).unwrap());
    assert!(condition(on_two).0, "a second network is bridged at the target, too");
    let mut with_disk = vmi(Phase::Running);
    with_disk.spec.volumes = serde_json::from_value(json!([{"name": "d", "emptyDisk": {"capacity": "1Gi"}}])).unwrap();
    with_disk.spec.domain.devices.disks = serde_json::from_value(json!([{"name": "d", "disk": {}}])).unwrap();
    assert_eq!(condition(with_disk).2, "BlockMigration");
}

/// The two addresses of a migration between instances, as each side has them.
fn between(source: &str, target: &str) -> Value {
    json!({"sourceState": {"syncAddress": source}, "targetState": {"syncAddress": target}})
}

/// An instance that another one sends its guest to.
fn receiving(more: Value) -> VirtualMachineInstance {
    let more = merged(between("this-cluster/here", ""), more);
    let mut vmi = with(vmi(Phase::Scheduled), state((OTHER, OTHER_POD), (NODE, POD), more));
    let labels = vmi.metadata.labels.as_mut().unwrap();
    labels.insert("kubevirt.io/migrationTargetNodeName".to_string(), NODE.to_string());
    let annotations = vmi.metadata.annotations.get_or_insert_default();
    annotations.insert("kubevirt.io/create-migration-target".to_string(), "true".to_string());
    vmi
}

#[test]
fn a_receiver_never_starts_a_guest_of_its_own() {
    let mut waiting = receiving(json!({}));
    waiting.metadata.labels.as_mut().unwrap().remove("kubevirt.io/migrationTargetNodeName");
    for vmi in [with(waiting.clone(), json!({"migrationState": null})), waiting] {
        assert_eq!(scene(vmi.clone(), None, None).does(), Vec::<String>::new(), "the hand-off is awaited");
        let over = scene(vmi.clone(), None, Some(MigrationPhase::Failed));
        assert_eq!(over.does(), ["delete", "again in 5"], "an attempt that has failed");
        let gone = Scene::new(vmi, None).launcher(Launcher::Gone);
        assert_eq!(gone.does(), ["clean up"]);
    }
}

#[test]
fn a_receiver_has_the_guest_when_it_runs_there() {
    let prepares = scene(receiving(json!({})), None, None);
    assert_eq!(prepares.does(), ["prepare"], "the label came with the Pod and means nothing yet");
    let arrived = scene(receiving(json!({})), Some(running()), Some(MigrationPhase::Completed));
    let taken = arrived.decide().into_iter().find_map(|action| match action {
        Action::UpdateVmi(vmi) => Some(*vmi),
        _ => None,
    });
    let taken = taken.unwrap();
    assert_eq!(taken.phase(), Some(&Phase::Running));
    assert!(taken.status.as_ref().unwrap().migration_state.as_ref().unwrap().end_timestamp.is_some());
    let finished = scene(taken, Some(running()), Some(MigrationPhase::Completed)).decide();
    let last = finished.into_iter().find_map(|action| match action {
        Action::UpdateVmi(vmi) => Some(*vmi),
        _ => None,
    });
    let last = last.unwrap();
    assert_eq!(last.status.as_ref().unwrap().migration_state.as_ref().unwrap().completed, Some(true));
    assert!(!last.metadata.annotations.unwrap().contains_key("kubevirt.io/create-migration-target"));
}

#[test]
fn a_receiver_ends_what_came_with_a_failed_migration() {
    let failed = || receiving(json!({"failed": true, "completed": true, "endTimestamp": at(50).to_string()}));
    assert_eq!(scene(failed(), Some(waiting()), Some(MigrationPhase::Ready)).does()[0], "kill");
    assert_eq!(scene(failed(), None, Some(MigrationPhase::Ready)).does()[0], "delete");
}

#[test]
fn a_sender_ends_its_guest_before_its_instance() {
    use MigrationPhase::*;
    let sent = |more: Value| {
        let end = json!({"endTimestamp": at(50).to_string()});
        leaving(merged(merged(address(), between("", "this-cluster/there")), merged(end, more)))
    };
    let taken = || sent(json!({}));
    let completed = || sent(json!({"completed": true}));
    for vmi in [taken(), completed()] {
        let doubts = scene(vmi.clone(), Some(waiting()), Some(Undecided));
        assert_eq!(doubts.does()[0], "settle, runs at the target: true");
        assert_eq!(scene(vmi.clone(), Some(waiting()), Some(SwitchingOver)).does(), ["again in 1"]);
        assert_eq!(scene(vmi, Some(waiting()), Some(Failed)).does()[0], "kill", "two must not run");
    }
    assert_eq!(scene(taken(), Some(migrated()), Some(Completed)).does(), ["again in 5"]);
    let ends = scene(completed(), Some(migrated()), Some(Completed));
    assert_eq!(ends.stored().unwrap().phase(), Some(&Phase::Succeeded));
    let gone = scene(completed(), None, None).launcher(Launcher::Gone);
    assert_eq!(gone.stored().unwrap().phase(), Some(&Phase::Succeeded));
    let failed = scene(sent(json!({"completed": true, "failed": true})), Some(running()), Some(Failed));
    assert_eq!(settled(failed).does(), Vec::<String>::new(), "it runs on here");
}
