//! The virt-handler of every node: starts guests that were handed over, and reports how they end.

use std::sync::Arc;

use api::v1::{
    Condition, ConditionStatus, VirtualMachineInstance, VirtualMachineInstancePhase as Phase,
    VirtualMachineInstancePhaseTransitionTimestamp as PhaseTransition, VolumePhase,
};
use api::{conditions, labels};
use informer::Key;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::meta::{is_deleting, label};
use virt_controller::api::Part;

use super::{between, has_ended, launchers_of, node_of, state};
use crate::engine::{Actor, Sim};
use crate::hub::lock;
use crate::kinds::{Object, uid};
use crate::script::GuestFate;
use crate::server::{Server, Writer};

/// A migration is in progress whose transfer has started.
fn has_left(vmi: &VirtualMachineInstance) -> bool {
    let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    state.is_some_and(|state| state.start_timestamp.is_some() && state.end_timestamp.is_none())
}

/// State of the launcher, as virt-handler sees it.
#[derive(PartialEq, Eq)]
pub(super) enum Launcher {
    Absent,
    Ended,
    Ending,
    Alive,
}

/// The VMI's launcher on its node. A guest that migrates back may find the launcher of its earlier stay there.
fn launcher_on<'a>(server: &'a Server, vmi: &'a str, node: Option<&'a str>) -> Option<&'a Arc<Pod>> {
    launchers_of(server, vmi)
        .filter(|pod| node_of(pod) == node)
        .max_by_key(|pod| pod.metadata.creation_timestamp.clone())
}

pub(super) fn set_phase(vmi: &mut VirtualMachineInstance, phase: Phase, now: Time) {
    let status = vmi.status_mut();
    let known = |transition: &PhaseTransition| transition.phase.as_ref() == Some(&phase);
    if !status.phase_transition_timestamps.iter().any(known) {
        let transition = PhaseTransition { phase: Some(phase.clone()), phase_transition_timestamp: Some(now) };
        status.phase_transition_timestamps.push(transition);
    }
    status.phase = Some(phase);
}

/// What virt-handler reports about a running guest.
pub(super) fn examine(vmi: &mut VirtualMachineInstance, now: &Time) {
    // Node-local storage does not follow the guest.
    let bound = vmi.spec.volumes.iter().any(|volume| volume.source().container_disk().is_none());
    let status = vmi.status_mut();
    status.selinux_context = Some("none".to_owned());
    let (holds, why) = match bound {
        true => (ConditionStatus::False, "DisksNotLiveMigratable"),
        false => (ConditionStatus::True, ""),
    };
    let migratable = Condition::new(conditions::LIVE_MIGRATABLE, holds, why, "", now.clone());
    conditions::set(&mut status.conditions, migratable);
}

impl Sim {
    /// Handles one VMI: one step, and another one later if there is more to do.
    pub(super) fn attend(&mut self, key: &Key, uid: &str) {
        let Some(vmi) = self.live::<VirtualMachineInstance>(key, uid) else { return };
        if between::receives(&vmi) {
            return self.receive_guest(&vmi);
        }
        if vmi.is_running() && if between::sends(&vmi) { self.send_guest(&vmi) } else { self.escort(&vmi) } {
            return;
        }
        let Some(vmi) = self.live::<VirtualMachineInstance>(key, uid) else { return };
        let Some(node) = label(&vmi.metadata, labels::NODE_NAME) else { return };
        if !self.answers(node) {
            return;
        }
        let launcher = self.launcher(uid, node);
        let phase = match (vmi.phase(), launcher) {
            (Some(Phase::Scheduled), Launcher::Ended) => Phase::Failed,
            (Some(Phase::Scheduled), Launcher::Alive) => return self.start_guest(&vmi),
            // The other side is asked before the guest is given up.
            (Some(Phase::Running), Launcher::Ended | Launcher::Ending) if self.lives_elsewhere(&vmi) => return,
            (Some(Phase::Running), Launcher::Ended) if has_left(&vmi) => {
                return self.lose(&vmi, "the guest died on its way");
            }
            (Some(Phase::Running), Launcher::Ended) => Phase::Failed,
            (Some(Phase::Running), Launcher::Ending) => Phase::Succeeded,
            (Some(Phase::Running), Launcher::Alive) if is_deleting(&vmi.metadata) => Phase::Succeeded,
            // The launcher may be one that waits for a guest from elsewhere, next to where this one ended.
            (Some(Phase::Running), Launcher::Alive) if self.judge.guests.of(uid).next().is_none() => Phase::Failed,
            (Some(Phase::Running), Launcher::Alive) => return self.attend_volumes(&vmi),
            _ => return,
        };
        self.set_guest_phase(&vmi, phase);
    }

    pub(super) fn launcher(&self, uid: &str, node: &str) -> Launcher {
        let hub = lock(&self.hub);
        match launcher_on(&hub.server, uid, Some(node)) {
            None => Launcher::Absent,
            Some(pod) if has_ended(pod) => Launcher::Ended,
            Some(pod) if is_deleting(&pod.metadata) => Launcher::Ending,
            Some(_) => Launcher::Alive,
        }
    }

    pub(super) fn set_guest_phase(&mut self, vmi: &VirtualMachineInstance, phase: Phase) {
        let mut new = vmi.clone();
        if phase == Phase::Running {
            // Nothing is attached to a guest whose SELinux label is unknown.
            new.status_mut().selinux_context = Some("none".to_owned());
            self.begin_guest(vmi);
        } else {
            self.judge.guests.ends(uid(&vmi.metadata));
        }
        let mut hub = lock(&self.hub);
        set_phase(&mut new, phase, hub.server.time());
        hub.server.update(Writer::NodeAgent, Part::Object, new).expect("written right after it was read");
    }

    /// From now on the guest runs in the launcher on its node.
    fn begin_guest(&mut self, vmi: &VirtualMachineInstance) {
        let (own, node) = (uid(&vmi.metadata), label(&vmi.metadata, labels::NODE_NAME));
        let server = &lock(&self.hub).server;
        let Some(pod) = launcher_on(server, own, node) else { return };
        let name = Key::of(vmi).to_string();
        self.judge.guests.starts(uid(&pod.metadata), own, &name);
        self.judge.guests.kept.starts(&name, state::claim_of(server, pod), |claim| server.exists(claim));
        if self.script.storage {
            self.judge.guests.disks.open_all(own, pod);
        }
        self.judge.guest_changed(server);
    }

    fn start_guest(&mut self, vmi: &VirtualMachineInstance) {
        let object = Object::Vmi(vmi.clone().into());
        let seen = vmi.status.as_ref().is_some_and(|status| status.guest_os_info.is_some());
        if !seen && !self.world.attended.contains(object.uid()) {
            self.world.attended.insert(object.uid().to_owned());
            self.draw_guest_fate(object.uid());
        }
        match self.world.guest_fates.get(object.uid()).copied() {
            Some(GuestFate::NeverStarts) => return self.set_guest_phase(vmi, Phase::Failed),
            Some(GuestFate::SlowStart(wait)) => {
                self.world.guest_fates.remove(object.uid());
                return self.act_after(wait, Actor::NodeAgent, &object);
            }
            Some(GuestFate::ShutsDown(after)) => {
                self.act_after(after, Actor::GuestEnds { crashed: false }, &object);
            }
            Some(GuestFate::Crashes(after)) => self.act_after(after, Actor::GuestEnds { crashed: true }, &object),
            None => {}
        }
        let mut started = vmi.clone();
        examine(&mut started, &lock(&self.hub).server.time());
        self.set_guest_phase(&started, Phase::Running);
    }

    /// The backup has finished.
    pub(super) fn end_backup(&mut self, key: &Key, uid: &str) {
        let Some(vmi) = self.live::<VirtualMachineInstance>(key, uid) else { return };
        let mut new = (*vmi).clone();
        let tracking = new.status_mut().changed_block_tracking.as_mut();
        if let Some(backup) = tracking.and_then(|tracking| tracking.backup_status.as_mut()) {
            backup.completed = Some(true);
        }
        lock(&self.hub).server.update(Writer::NodeAgent, Part::Object, new).expect("written right after it was read");
    }

    /// The guest ends by itself.
    pub(super) fn end_guest(&mut self, key: &Key, uid: &str, crashed: bool) {
        let Some(vmi) = self.live::<VirtualMachineInstance>(key, uid).filter(|vmi| vmi.is_running()) else { return };
        if between::sends(&vmi) && self.judge.guests.of(uid).next().is_none() {
            return; // it belongs to another VMI by now
        }
        if label(&vmi.metadata, labels::NODE_NAME).is_some_and(|node| self.answers(node)) {
            self.set_guest_phase(&vmi, if crashed { Phase::Failed } else { Phase::Succeeded });
        }
    }

    /// Mounts and attaches volumes that are on the node; detaches those that left the spec.
    fn attend_volumes(&mut self, vmi: &VirtualMachineInstance) {
        if self.script.storage {
            return self.attend_disks(vmi);
        }
        let mut new = vmi.clone();
        let ours = vmi.spec.utility_volumes.iter().map(|volume| &volume.name);
        let wanted: Vec<String> = vmi.spec.volumes.iter().map(|volume| &volume.name).chain(ours).cloned().collect();
        let mut more = false;
        for entry in &mut new.status_mut().volume_status {
            let Some(plugged) = &entry.hotplug_volume else { continue };
            let held = plugged.attach_pod_uid.as_deref().is_some_and(|uid| !uid.is_empty());
            let next = match (&entry.phase, wanted.contains(&entry.name)) {
                (Some(VolumePhase::AttachedToNode), true) if held => VolumePhase::MountedToPod,
                (Some(VolumePhase::MountedToPod), true) => VolumePhase::Ready,
                (Some(VolumePhase::MountedToPod | VolumePhase::Ready), false) => VolumePhase::UnMountedFromPod,
                (Some(VolumePhase::AttachedToNode), false) if held => VolumePhase::UnMountedFromPod,
                _ => continue,
            };
            entry.target = "sda".to_owned();
            entry.phase = Some(next);
            more = true;
        }
        if more {
            let stored = lock(&self.hub).server.update(Writer::NodeAgent, Part::Object, new);
            let stored = Object::Vmi(stored.expect("written right after it was read"));
            let after = self.some_ms(100, 2_000);
            self.act_after(after, Actor::NodeAgent, &stored);
        }
    }
}
