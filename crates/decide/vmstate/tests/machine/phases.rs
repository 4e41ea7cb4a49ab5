//! The phase that follows from the domain.

use api::v1::VirtualMachineInstancePhase as Phase;
use vmstate::{DomainReason as Reason, DomainStatus as Status, LauncherState};

use crate::support::{Launcher, Scene, at, domain, running, vmi};

/// The phase after one round; the one before if nothing is stored.
fn next(scene: &Scene) -> Phase {
    let stored = scene.stored().or_else(|| scene.vmi.clone()).unwrap();
    stored.phase().cloned().unwrap_or_default()
}

#[test]
fn each_state_and_reason_has_its_phase() {
    use Phase::{Failed, Running, Scheduled, Succeeded};
    for (status, reason, from_scheduled, from_running) in [
        (Status::Shutoff, Reason::Crashed, Failed, Failed),
        (Status::Shutoff, Reason::Panicked, Failed, Failed),
        (Status::Crashed, Reason::Crashed, Failed, Failed),
        (Status::Crashed, Reason::Panicked, Failed, Failed),
        (Status::Shutoff, Reason::Destroyed, Failed, Failed),
        (Status::Shutoff, Reason::Shutdown, Succeeded, Succeeded),
        (Status::Shutoff, Reason::Saved, Succeeded, Succeeded),
        (Status::Shutoff, Reason::FromSnapshot, Succeeded, Succeeded),
        (Status::Shutoff, Reason::Migrated, Scheduled, Running),
        (Status::Shutoff, Reason::Unknown, Scheduled, Running),
        (Status::Shutoff, Reason::Failed, Scheduled, Running),
        (Status::Paused, Reason::PausedPostcopyFailed, Failed, Failed),
        (Status::Paused, Reason::PausedUser, Running, Running),
        (Status::Paused, Reason::PausedIOError, Running, Running),
        (Status::Paused, Reason::PausedStartingUp, Running, Running),
        (Status::Running, Reason::Booted, Running, Running),
        (Status::Blocked, Reason::Booted, Running, Running),
        (Status::PMSuspended, Reason::User, Running, Running),
        (Status::Shutdown, Reason::User, Scheduled, Running),
        (Status::NoState, Reason::Daemon, Scheduled, Running),
        (Status::Unknown, Reason::Unknown, Scheduled, Running),
    ] {
        for (from, expected) in [(Phase::Scheduled, &from_scheduled), (Phase::Running, &from_running)] {
            let scene = Scene::new(vmi(from.clone()), domain(status, reason));
            assert_eq!(&next(&scene), expected, "{status:?} {reason:?} from {from}");
        }
    }
}

#[test]
fn a_destroyed_guest_failed_only_if_it_could_have_gone_by_itself() {
    for (acpi, grace, expected) in [
        (true, None, Phase::Failed),
        (true, Some(30), Phase::Failed),
        (true, Some(0), Phase::Succeeded),
        (false, Some(30), Phase::Succeeded),
        (false, None, Phase::Succeeded),
    ] {
        let mut destroyed = domain(Status::Shutoff, Reason::Destroyed);
        destroyed.acpi = acpi;
        let scene = Scene::new(vmi(Phase::Running), destroyed)
            .but(|s| s.vmi.as_mut().unwrap().spec.termination_grace_period_seconds = grace);
        assert_eq!(next(&scene), expected, "acpi {acpi}, grace {grace:?}");
    }
}

#[test]
fn without_a_domain_the_launcher_decides() {
    for (from, launcher, expected) in [
        (Phase::Scheduled, Launcher::NotInitialised, Phase::Scheduled),
        (Phase::Running, Launcher::NotInitialised, Phase::Running),
        (Phase::Scheduled, Launcher::Gone, Phase::Failed),
        (Phase::Running, Launcher::Gone, Phase::Failed),
        (Phase::Scheduled, Launcher::Talking, Phase::Scheduled),
        (Phase::Running, Launcher::Talking, Phase::Running),
        (Phase::Unknown, Launcher::Talking, Phase::Scheduled),
        (Phase::WaitingForSync, Launcher::Talking, Phase::Scheduled),
    ] {
        let mut scene = Scene::new(vmi(from.clone()), None).launcher(launcher.clone());
        if matches!(launcher, Launcher::NotInitialised) {
            scene.state = None;
        }
        assert_eq!(next(&scene), expected, "{from} {launcher:?}");
    }
}

#[test]
fn a_gone_launcher_is_explained() {
    let scene = Scene::new(vmi(Phase::Running), None).launcher(Launcher::Gone);
    let stored = scene.stored().unwrap();
    let condition = stored.condition("Synchronized").unwrap();
    assert_eq!(condition.reason(), "Synchronizing with the Domain failed.");
    assert_eq!(condition.message(), "virt-launcher exited without reporting a reason");
}

#[test]
fn what_a_gone_launcher_left_in_writing_decides() {
    let wrote = |domain| LauncherState { domain, ..LauncherState::default() };
    let unexplained = "virt-launcher exited without reporting a reason";
    for (status, reason, expected, why) in [
        (Status::Shutoff, Reason::Shutdown, Phase::Succeeded, None),
        (Status::Shutoff, Reason::Crashed, Phase::Failed, None),
        (Status::Crashed, Reason::Panicked, Phase::Failed, None),
        (Status::Shutoff, Reason::Destroyed, Phase::Failed, None),
        (Status::Shutoff, Reason::Unknown, Phase::Failed, Some(unexplained)),
        (Status::Running, Reason::Booted, Phase::Failed, Some(unexplained)),
        (Status::Unknown, Reason::Unknown, Phase::Failed, Some(unexplained)),
    ] {
        // The last answer, if there was one, is older than what was written at the end.
        for told in [None, Some(wrote(Some(running())))] {
            let scene = Scene::new(vmi(Phase::Running), None).launcher(Launcher::Gone).but(|s| {
                s.state = told;
                s.left_behind = Some(wrote(Some(domain(status, reason))));
            });
            let stored = scene.stored().unwrap();
            assert_eq!(stored.phase(), Some(&expected), "{status:?} {reason:?}");
            let said = stored.condition("Synchronized").map(|condition| condition.message());
            assert_eq!(said, why, "{status:?} {reason:?}");
        }
    }
    let ended = || Some(wrote(Some(domain(Status::Shutoff, Reason::Shutdown))));
    let graceless = Scene::new(vmi(Phase::Running), None).launcher(Launcher::Gone).but(|s| {
        s.left_behind = Some(wrote(Some(domain(Status::Shutoff, Reason::Destroyed))));
        s.vmi.as_mut().unwrap().spec.termination_grace_period_seconds = Some(0);
    });
    assert_eq!(next(&graceless), Phase::Succeeded, "the rule for destroyed guests holds here, too");
    let silent = Scene::new(vmi(Phase::Running), running()).launcher(Launcher::Silent);
    assert_eq!(next(&silent.but(|s| s.left_behind = ended())), Phase::Running, "a living launcher may still answer");
    let talking = Scene::new(vmi(Phase::Running), running());
    assert_eq!(next(&talking.but(|s| s.left_behind = ended())), Phase::Running, "and an answer counts for more");
}

#[test]
fn each_phase_is_stamped_when_first_reached() {
    let scene = Scene::new(vmi(Phase::Scheduled), domain(Status::Running, Reason::Booted));
    let stored = scene.stored().unwrap();
    let stamps = &stored.status.as_ref().unwrap().phase_transition_timestamps;
    let last = stamps.last().unwrap();
    assert_eq!(last.phase, Some(Phase::Running));
    assert_eq!(last.phase_transition_timestamp.as_ref().unwrap().0, at(60));
    assert_eq!(stamps.len(), 2);
}
