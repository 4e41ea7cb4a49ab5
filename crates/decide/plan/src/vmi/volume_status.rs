//! `status.volumeStatus`: one entry per volume, and per hot-plugged volume that some Pod still holds.

use std::collections::BTreeMap;

use api::cdi;
use api::reasons;
use api::v1::{DomainMemoryDumpInfo, PersistentVolumeClaimInfo, Volume, VolumePhase, VolumeStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use super::world::World;
use super::{backend, hotplug};
use crate::claims;
use crate::{Note, pods};

/// The desired entries, sorted by name, and the events for their changes.
pub(super) fn compute(w: &World, launcher: &Pod) -> (Vec<VolumeStatus>, Vec<Note>) {
    let mut old: BTreeMap<String, VolumeStatus> = BTreeMap::new();
    let mut new = vec![];
    let mut notes = vec![];
    for status in w.vmi.status.iter().flat_map(|status| &status.volume_status) {
        if backend::is_entry(status) {
            new.push(status.clone());
        } else {
            old.insert(status.name.clone(), status.clone());
        }
    }
    backend::record(w, &mut new);
    let wanted = hotplug::wanted(&w.vmi, launcher);
    let attachments = hotplug::attachment_pods(w, launcher);
    let current = hotplug::current(&attachments, &hotplug::sort(w, &wanted).ready);
    let mut take = |name: &str| {
        let fresh = VolumeStatus { name: name.to_owned(), ..VolumeStatus::default() };
        old.remove(name).unwrap_or(fresh)
    };
    for volume in &w.vmi.spec.volumes {
        let mut status = take(&volume.name);
        if let Some(want) = wanted.iter().find(|want| want.volume == volume.name && !want.utility) {
            plugged(w, &want.claim, current, &attachments, &mut status, &mut notes);
        }
        own(w, volume, &mut status);
        new.push(status);
    }
    for want in wanted.iter().filter(|want| want.utility) {
        let mut status = take(&want.volume);
        plugged(w, &want.claim, current, &attachments, &mut status, &mut notes);
        match w.claims.claim(&want.claim) {
            Some(claim) if hotplug::is_block(claim) => {
                let message = format!(
                    "PersistentVolumeClaim {} has volumeMode Block; a utility volume needs Filesystem",
                    want.claim
                );
                set(&mut status, VolumePhase::Pending, reasons::PVC_NOT_READY, message);
            }
            claim => describe(w, claim, &mut status),
        }
        new.push(status);
    }
    for (_, status) in old {
        new.extend(unplugged(status, &attachments, &mut notes));
    }
    new.sort_by(|a, b| a.name.cmp(&b.name));
    (new, notes)
}

/// The entry of a volume in the spec.
fn own(w: &World, volume: &Volume, status: &mut VolumeStatus) {
    if volume.is_memory_dump() && status.memory_dump_volume.is_none() {
        let claim_name = Some(volume.name.clone());
        status.memory_dump_volume = Some(DomainMemoryDumpInfo { claim_name, ..DomainMemoryDumpInfo::default() });
    }
    if let Some(claim) = claims::claim_under(volume) {
        describe(w, w.claims.claim(claim), status);
    }
}

/// Copies information about the claim. If the claim is not in the cache, the entry keeps what it has.
fn describe(w: &World, claim: Option<&PersistentVolumeClaim>, status: &mut VolumeStatus) {
    let Some(claim) = claim else { return };
    let spec = claim.spec.clone().unwrap_or_default();
    let requests = spec.resources.and_then(|resources| resources.requests).unwrap_or_default();
    status.persistent_volume_claim_info = Some(PersistentVolumeClaimInfo {
        access_modes: spec.access_modes.unwrap_or_default(),
        capacity: claim.status.as_ref().and_then(|status| status.capacity.clone()).unwrap_or_default(),
        claim_name: claim.metadata.name.clone(),
        filesystem_overhead: Some(overhead(w, claim)),
        preallocated: is_preallocated(claim).then_some(true),
        requests,
        volume_mode: spec.volume_mode,
    });
}

fn is_preallocated(claim: &PersistentVolumeClaim) -> bool {
    let marks = [cdi::PREALLOCATION_SUFFIX, cdi::THICK_PROVISIONED_SUFFIX];
    let annotations = claim.metadata.annotations.iter().flatten();
    annotations.into_iter().any(|(key, value)| value == "true" && marks.iter().any(|mark| key.contains(mark)))
}

/// The fraction of the volume used by file system overhead.
fn overhead(w: &World, claim: &PersistentVolumeClaim) -> String {
    if hotplug::is_block(claim) {
        return "0".to_owned();
    }
    let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default();
    let configured = w.storage.overhead.as_ref().and_then(|overhead| {
        overhead.storage_class.get(class).or(overhead.global.as_ref()).filter(|fraction| !fraction.is_empty())
    });
    configured.map_or(cdi::DEFAULT_FILESYSTEM_OVERHEAD, String::as_str).to_owned()
}

/// The entry of a hot-plugged volume up to the point where virt-handler takes over.
fn plugged(
    w: &World,
    claim: &str,
    current: Option<&Pod>,
    attachments: &[&Pod],
    status: &mut VolumeStatus,
    notes: &mut Vec<Note>,
) {
    let name = status.name.clone();
    let pod = current.filter(|pod| hotplug::carries(pod, &name));
    let in_use = hotplug::is_in_use(status);
    let hotplug = status.hotplug_volume.get_or_insert_default();
    let Some(pod) = pod else {
        let held = attachments.iter().any(|pod| !pods::is_deleting(pod) && hotplug::carries(pod, &name));
        let ready = status.phase == Some(VolumePhase::Ready);
        if !(ready || held && in_use) {
            hotplug.attach_pod_uid = None;
            from_claim(w, claim, status);
        }
        return;
    };
    // Named before virt-handler is to mount it, it could be mounted without a trace: see `hotplug::is_in_use`.
    let comes_again = status.phase == Some(VolumePhase::Detaching);
    let is_ready = pods::is_single_container_ready(pod) && !comes_again;
    // For the same reason the Pod that was named stays so until its successor is ready.
    if is_ready || !(in_use && status.phase == Some(VolumePhase::AttachedToNode)) {
        hotplug.attach_pod_name = pod.metadata.name.clone();
        hotplug.attach_pod_uid = is_ready.then(|| pod.metadata.uid.clone()).flatten();
    }
    match status.phase {
        None | Some(VolumePhase::Bound | VolumePhase::Pending) => {
            let pod = pod.metadata.name.as_deref().unwrap_or_default();
            let message = format!("Created hotplug attachment pod {pod}, for volume {name}");
            notes.push(Note::normal(reasons::SUCCESSFUL_CREATE, message.clone()));
            set(status, VolumePhase::AttachedToNode, reasons::SUCCESSFUL_CREATE, message);
        }
        // virt-handler mounts nothing in this phase: it would be taken for unused.
        Some(VolumePhase::UnMountedFromPod) => {
            let message = format!("Volume {name} has reached the node");
            set(status, VolumePhase::AttachedToNode, reasons::SUCCESSFUL_CREATE, message);
        }
        // Plugged again before the previous unplug was complete.
        Some(VolumePhase::Detaching) => from_claim(w, claim, status),
        _ => {}
    }
}

fn from_claim(w: &World, claim: &str, status: &mut VolumeStatus) {
    let found = w.claims.claim(claim);
    let state = w.claims.state(claim);
    let bound = found.and_then(|claim| claim.status.as_ref()?.phase.as_deref()).unwrap_or("Pending");
    let words =
        state.obstacle().map_or_else(|| format!("PersistentVolumeClaim {claim} is in phase {bound}"), str::to_owned);
    let (phase, reason) = match (found, bound) {
        (None, _) => (VolumePhase::Pending, reasons::FAILED_PVC_NOT_FOUND),
        (Some(_), "Bound") => (VolumePhase::Bound, reasons::PVC_NOT_READY),
        (Some(_), _) => (VolumePhase::Pending, reasons::PVC_NOT_READY),
    };
    set(status, phase, reason, words);
}

/// A changed message alone is not worth a write.
fn set(status: &mut VolumeStatus, phase: VolumePhase, reason: &str, message: String) {
    if status.phase.as_ref() == Some(&phase) && status.reason.as_deref() == Some(reason) {
        return;
    }
    status.phase = Some(phase);
    status.reason = Some(reason.to_owned());
    status.message = Some(message);
}

/// The entry of a volume that left the spec, for as long as some Pod holds it.
fn unplugged(mut status: VolumeStatus, attachments: &[&Pod], notes: &mut Vec<Note>) -> Option<VolumeStatus> {
    let holders = || attachments.iter().filter(|pod| hotplug::carries(pod, &status.name));
    let stays = |pod: &&&Pod| !pods::is_deleting(pod);
    // Not from one that does not run yet: it never had the volume.
    let runs = |pod: &&&Pod| stays(pod) && pods::is_running(pod);
    let pod = holders().find(runs).or_else(|| holders().find(stays)).or_else(|| holders().next())?;
    let in_use = hotplug::is_in_use(&status);
    let hotplug = status.hotplug_volume.get_or_insert_default();
    hotplug.attach_pod_name = pod.metadata.name.clone();
    hotplug.attach_pod_uid = pod.metadata.uid.clone();
    if in_use {
        return Some(status);
    }
    status.phase = Some(VolumePhase::Detaching);
    if pods::is_deleting(pod) && status.reason.as_deref() != Some(reasons::SUCCESSFUL_DELETE) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let message = format!("Deleted hotplug attachment pod {name}, for volume {}", status.name);
        notes.push(Note::normal(reasons::SUCCESSFUL_DELETE, message.clone()));
        set(&mut status, VolumePhase::Detaching, reasons::SUCCESSFUL_DELETE, message);
    }
    Some(status)
}
