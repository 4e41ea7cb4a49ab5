//! Volume hotplug and unplug.
//!
//! Volumes cannot be added to a running launcher Pod, so an attachment Pod on the same node mounts all hot-plugged
//! claims and virt-handler passes them on. A different set of claims needs a new Pod: the new one runs before the old
//! one is deleted, and a Pod with a volume that a guest still sees stays until virt-handler has released it.

use std::collections::BTreeSet;

use api::reasons;
use api::v1::{VirtualMachineInstance, Volume, VolumePhase, VolumeStatus};
use k8s_openapi::api::core::v1::Pod;
use render::Attachment;

use super::action::{Action, Look};
use super::world::World;
use crate::claims::{self, State};
use crate::effect::Why;
use crate::object::Kind;
use crate::{Note, SyncError, meta, pods};

/// A claim that is to be hot-plugged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wanted {
    pub(super) volume: String,
    pub(super) claim: String,
    /// It serves the system and not the guest; then it must be a file system.
    pub(super) utility: bool,
}

impl Wanted {
    fn attachment(&self) -> Attachment {
        Attachment { volume: self.volume.clone(), claim: self.claim.clone() }
    }
}

/// Every claim that the launcher Pod does not mount itself.
pub(super) fn wanted(vmi: &VirtualMachineInstance, launcher: &Pod) -> Vec<Wanted> {
    let spec = launcher.spec.as_ref();
    let has = |name: &str| spec.is_some_and(|spec| spec.volumes.iter().flatten().any(|volume| volume.name == name));
    let plugged = vmi.spec.volumes.iter().filter_map(|volume: &Volume| {
        let claim = claims::claim_name(volume)?;
        Some(Wanted { volume: volume.name.clone(), claim: claim.to_owned(), utility: false })
    });
    let utility = vmi.spec.utility_volumes.iter().map(|volume| Wanted {
        volume: volume.name.clone(),
        claim: volume.claim_name.clone(),
        utility: true,
    });
    let mut all: Vec<Wanted> = plugged.chain(utility).filter(|wanted| !has(&wanted.volume)).collect();
    all.sort();
    all.dedup_by(|a, b| a.volume == b.volume);
    all
}

/// Attachment Pods, without trigger Pods.
pub(super) fn attachment_pods<'a>(w: &'a World, launcher: &Pod) -> Vec<&'a Pod> {
    let mut all: Vec<&Pod> = w.helpers_of(launcher).filter(|pod| !pods::is_temporary(pod)).collect();
    let age = |pod: &&Pod| (pod.metadata.creation_timestamp.clone(), pod.metadata.name.clone());
    all.sort_by_key(|pod| std::cmp::Reverse(age(pod)));
    all
}

/// What an attachment Pod mounts.
pub(super) fn cargo(pod: &Pod) -> BTreeSet<Attachment> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| {
        let claim = volume.persistent_volume_claim.as_ref()?;
        Some(Attachment { volume: volume.name.clone(), claim: claim.claim_name.clone() })
    });
    claims.collect()
}

pub(super) fn carries(pod: &Pod, volume: &str) -> bool {
    cargo(pod).iter().any(|attachment| attachment.volume == volume)
}

/// Which of the wanted claims can be attached now, and which need a Pod to trigger their binding first.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Sorted {
    pub(super) ready: BTreeSet<Attachment>,
    waiting: Vec<Attachment>,
}

pub(super) fn sort(w: &World, wanted: &[Wanted]) -> Sorted {
    let mut sorted = Sorted::default();
    for want in wanted {
        let Some(claim) = w.claims.claim(&want.claim) else { continue };
        if want.utility && is_block(claim) {
            continue;
        }
        match w.claims.state(&want.claim) {
            State::Ready => drop(sorted.ready.insert(want.attachment())),
            // A volume that has reached the guest stays, whatever happens to its DataVolume.
            _ if status_of(&w.vmi, &want.volume).is_some_and(is_in_use) => {
                sorted.ready.insert(want.attachment());
            }
            State::WaitsForConsumer => sorted.waiting.push(want.attachment()),
            State::NotReady(_) | State::NotFound(_) | State::Orphaned(_) => {}
        }
    }
    sorted
}

pub(super) fn is_block(claim: &k8s_openapi::api::core::v1::PersistentVolumeClaim) -> bool {
    claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()) == Some("Block")
}

pub(super) fn status_of<'a>(vmi: &'a VirtualMachineInstance, volume: &str) -> Option<&'a VolumeStatus> {
    let plugged = vmi.status.iter().flat_map(|status| &status.volume_status);
    plugged.filter(|status| status.hotplug_volume.is_some()).find(|status| status.name == volume)
}

/// The launcher or the guest uses it, or may do so, and its attachment Pod must stay. virt-handler gives a volume to the
/// guest once its Pod is named, and writes that afterwards; when it has none of it, it writes `UnMountedFromPod`.
pub(super) fn is_in_use(status: &VolumeStatus) -> bool {
    match status.phase {
        Some(VolumePhase::Ready | VolumePhase::MountedToPod) => true,
        Some(VolumePhase::AttachedToNode) => {
            let uid = status.hotplug_volume.as_ref().and_then(|plugged| plugged.attach_pod_uid.as_deref());
            uid.is_some_and(|uid| !uid.is_empty())
        }
        _ => false,
    }
}

/// Whether the status says that virt-handler has some volume from this Pod.
fn is_named(vmi: &VirtualMachineInstance, pod: &Pod) -> bool {
    let plugged = vmi.status.iter().flat_map(|status| &status.volume_status);
    let mut sources = plugged.filter_map(|status| status.hotplug_volume.as_ref()?.attach_pod_uid.as_deref());
    sources.any(|uid| uid == meta::uid(&pod.metadata))
}

/// The attachment Pod with exactly these claims.
pub(super) fn current<'a>(attachments: &[&'a Pod], cargo_wanted: &BTreeSet<Attachment>) -> Option<&'a Pod> {
    if cargo_wanted.is_empty() {
        return None;
    }
    attachments.iter().copied().find(|pod| !pods::is_deleting(pod) && cargo(pod) == *cargo_wanted)
}

/// Reconciles the attachment Pods with the VMI's volumes.
pub(super) fn sync(w: &World, launcher: &Pod) -> Result<Vec<Action>, SyncError> {
    let wanted = wanted(&w.vmi, launcher);
    let attachments = attachment_pods(w, launcher);
    if wanted.is_empty() && attachments.is_empty() {
        return Ok(vec![]);
    }
    let Sorted { ready, waiting } = sort(w, &wanted);
    let mut actions = trigger(w, launcher, &waiting)?;
    let current = current(&attachments, &ready);
    let others: Vec<&Pod> =
        attachments.into_iter().filter(|pod| current.is_none_or(|c| c.metadata.uid != pod.metadata.uid)).collect();
    let pending = others.iter().any(|pod| !pods::is_running(pod) && !pods::is_down(pod));
    if current.is_none() && !pending && !ready.is_empty() {
        actions.extend(attach(w, launcher, &ready, &others)?);
    }
    let current_runs = current.filter(|pod| pods::is_running(pod));
    let retired = retired(w, &wanted, &ready, current_runs, &others).into_iter().flat_map(|pod| {
        let name = meta::name(&pod.metadata);
        let because = "another attachment Pod holds the volumes that are still plugged";
        remove(pod, because, reasons::FAILED_DELETE, format!("Deleted attachment pod {name}"))
    });
    let retired: Vec<Action> = retired.collect();
    // A cache that predates the plug shows neither the volume nor that the guest has it.
    actions.extend((!retired.is_empty()).then(|| Action::confirm(Look::Current, retired)));
    Ok(actions)
}

/// The Pods that are no longer needed.
fn retired<'a>(
    w: &World,
    wanted: &[Wanted],
    ready: &BTreeSet<Attachment>,
    current: Option<&Pod>,
    others: &[&'a Pod],
) -> Vec<&'a Pod> {
    let in_use = |volume: &str| status_of(&w.vmi, volume).is_some_and(is_in_use);
    let is_wanted = |volume: &str| wanted.iter().any(|want| want.volume == volume);
    let elsewhere = |volume: &str| is_wanted(volume) && current.is_some_and(|pod| carries(pod, volume));
    let holds = |pod: &Pod| cargo(pod).iter().any(|a| in_use(&a.volume) && !elsewhere(&a.volume));
    let useful = |pod: &Pod| holds(pod) || cargo(pod).iter().any(|a| is_wanted(&a.volume));
    let alive = |pod: &&&Pod| pods::is_running(pod) && !pods::is_deleting(pod);
    let fallback = others
        .iter()
        .filter(alive)
        .find(|pod| !ready.is_empty() && current.is_none() && useful(pod))
        .map(|pod| pod.metadata.uid.clone());
    let keep = |pod: &Pod| {
        let is_fallback = fallback.as_ref().is_some_and(|uid| *uid == pod.metadata.uid);
        let leaves = || cargo(pod).iter().any(|a| in_use(&a.volume) && !is_wanted(&a.volume));
        // The guest has nothing from a Pod that does not start. Kept, it would block the next one for ever.
        let idle = pods::is_pending(pod) && !is_named(&w.vmi, pod) && !leaves();
        pods::is_deleting(pod) || is_fallback || holds(pod) && !idle
    };
    others.iter().copied().filter(|pod| !keep(pod)).collect()
}

fn attach(w: &World, launcher: &Pod, ready: &BTreeSet<Attachment>, others: &[&Pod]) -> Result<Vec<Action>, SyncError> {
    let volumes: Vec<Attachment> = ready.iter().cloned().collect();
    let pod = match render::attachment_pod(&w.vmi, launcher, &volumes, &w.config, &w.context(None)) {
        Ok(pod) => pod,
        // virt-handler has not reported the SELinux context yet, or a claim has just gone: both requeue us.
        Err(render::Error::NoSelinuxContext | render::Error::ClaimNotFound { .. }) => return Ok(vec![]),
        Err(error) => return Err(SyncError::caused_by(reasons::FAILED_CREATE, &error)),
    };
    let name = meta::name(&pod.metadata).to_owned();
    if others.iter().any(|other| meta::name(&other.metadata) == name) {
        return Ok(vec![]); // its namesake is being deleted
    }
    let message = format!("Created attachment pod {name}");
    Ok(create(pod, "volumes were plugged or unplugged", message))
}

/// One Pod per claim that waits for its first consumer. A trigger Pod that has ended stays as long as its claim waits:
/// another one would have the same result.
fn trigger(w: &World, launcher: &Pod, waiting: &[Attachment]) -> Result<Vec<Action>, SyncError> {
    let mut actions = vec![];
    for attachment in waiting {
        let pod = match render::trigger_pod(&w.vmi, launcher, attachment, &w.config, &w.context(None)) {
            Ok(pod) => pod,
            Err(render::Error::NoSelinuxContext) => continue,
            Err(error) => return Err(SyncError::caused_by(reasons::FAILED_CREATE, &error)),
        };
        let name = meta::name(&pod.metadata);
        if w.helpers_of(launcher).any(|helper| meta::name(&helper.metadata) == name) {
            continue;
        }
        let message = format!("Created hotplug trigger pod for volume {}", attachment.volume);
        actions.extend(create(pod, "a plugged claim waits for its first consumer", message));
    }
    Ok(actions)
}

/// Trigger Pods whose claim no longer waits.
pub(super) fn spent_triggers<'a>(w: &'a World, launcher: &Pod) -> Vec<&'a Pod> {
    let Sorted { waiting, .. } = sort(w, &wanted(&w.vmi, launcher));
    let waits = |pod: &Pod| cargo(pod).iter().any(|attachment| waiting.contains(attachment));
    w.helpers_of(launcher).filter(|pod| pods::is_temporary(pod) && !waits(pod)).collect()
}

fn create(pod: Pod, because: &'static str, message: String) -> Vec<Action> {
    let note = Note::normal(reasons::SUCCESSFUL_CREATE, message);
    vec![Action::create(pod, Why::shown(reasons::FAILED_CREATE, because)), Action::Note(note)]
}

/// Deletes a helper Pod without grace, unless it is already being deleted.
pub(super) fn remove(pod: &Pod, because: &'static str, on_failure: &'static str, message: String) -> Vec<Action> {
    if pods::is_deleting(pod) {
        return vec![];
    }
    let delete = Action::delete_at_once(Kind::Pod, &pod.metadata, Why::shown(on_failure, because));
    vec![delete, Action::Note(Note::normal(reasons::SUCCESSFUL_DELETE, message))]
}
