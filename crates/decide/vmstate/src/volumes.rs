//! Volumes that are plugged into a running guest and unplugged again.
//!
//! ```text
//!  attachment Pod runs ───► MountVolumes ──► MountedToPod ──► SyncVolumes ──► the guest has the disk ──► Ready
//!  volume left the spec ──► SyncVolumes ──► the guest has let go ──► UnmountVolumes ──► UnMountedFromPod
//! ```
//!
//! - **The guest lets go first.** A volume is taken out of the launcher's Pod only when the domain has no such disk any
//!   more, and its attachment Pod is deleted only after that has been written.
//! - **A volume is the claim behind it.** If another claim is plugged under the name of one that the guest still has, the
//!   guest has to let go of the first.
//! - **One volume does not hold up another.** Each is mounted by itself and retried by itself.
//! - **What QEMU refuses is tried a few times** and then left alone until the volumes change: a condition says why.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::reasons;
use api::v1::{StorageMigratedVolumeInfo, VirtualMachineInstance, Volume, VolumePhase as Phase, VolumeStatus};
use jiff::Timestamp;
use launcher_contract::paths;
use launcher_contract::types::MemoryDump;
use machinery::quantity::Quantity;

use crate::action::{normal, warning};
use crate::decide::{backoff, shutdown_began};
use crate::launcher::{Verdict, since};
use crate::status::time;
use crate::{Action, DomainState, LauncherState, Vmi, World};

/// Attempts to plug or unplug the same volumes before QEMU's refusal is final.
const ATTEMPTS: u32 = 5;
/// How long a guest has to release a disk before it is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// The mode of a claim that is a device.
const BLOCK: &str = "Block";

/// What of a claim appears in the launcher's Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The disk image of a claim in file system mode.
    Image,
    /// A claim in block mode.
    Device,
    /// The whole file system, for what is written beside the guest.
    Directory,
}

/// A volume to mount in the launcher's Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub volume: String,
    pub claim: String,
    /// UID of the Pod that brings it to the node.
    pub attachment: String,
    pub shape: Shape,
    /// How large a disk image can be made if there is none.
    pub image_bytes: u64,
}

/// A volume that is mounted in the launcher's Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    pub claim: String,
    pub shape: Shape,
}

/// Something that failed, and how often in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub message: String,
    pub count: u32,
    pub at: Timestamp,
}

/// The last time that the launcher was told which volumes the guest is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub volumes: BTreeSet<String>,
    pub at: Timestamp,
    pub refusal: Option<Trouble>,
    /// It was refused because of something that passes: the guest is still busy, or moving.
    pub passes: bool,
}

/// Everything known about plugged volumes besides the VMI.
#[derive(Debug, Clone, Copy)]
pub struct Volumes<'a> {
    /// By name, as recorded on disk.
    pub mounted: &'a BTreeMap<String, Mounted>,
    /// Those that could not be mounted or unmounted at the last attempt.
    pub troubles: &'a BTreeMap<String, Trouble>,
    pub told: Option<&'a Told>,
}

impl Default for Volumes<'_> {
    fn default() -> Self {
        static MOUNTED: BTreeMap<String, Mounted> = BTreeMap::new();
        static TROUBLES: BTreeMap<String, Trouble> = BTreeMap::new();
        Volumes { mounted: &MOUNTED, troubles: &TROUBLES, told: None }
    }
}

/// The mounted volumes that the guest is to have as disks.
pub fn plugged(vmi: &VirtualMachineInstance, mounted: &BTreeMap<String, Mounted>) -> BTreeSet<String> {
    let is_disk = |volume: &&Volume| {
        mounted.get(&volume.name).is_some_and(|known| known.shape != Shape::Directory && is_of(vmi, volume, known))
    };
    wanted(vmi).filter(is_disk).map(|volume| volume.name.clone()).collect()
}

/// Whether what is mounted is the claim of the volume: the one in the spec, or the one that a migration takes it from.
fn is_of(vmi: &VirtualMachineInstance, volume: &Volume, mounted: &Mounted) -> bool {
    let left = moved(vmi, &volume.name).and_then(|moved| moved.source_pvc_info.as_ref()?.claim_name.as_deref());
    let claim = Some(mounted.claim.as_str());
    volume.source().claim_name() == claim || (left.is_some() && left == claim)
}

/// How the volume moves to another claim, if it does.
fn moved<'a>(vmi: &'a VirtualMachineInstance, name: &str) -> Option<&'a StorageMigratedVolumeInfo> {
    vmi.status.as_ref()?.migrated_volumes.iter().find(|moved| moved.volume_name == name)
}

/// The volumes of the spec that the launcher's Pod was not started with.
fn wanted(vmi: &VirtualMachineInstance) -> impl Iterator<Item = &Volume> {
    vmi.spec.volumes.iter().filter(|volume| {
        let source = volume.source();
        source.claim_name().is_some() && (source.is_hotpluggable() || status_of(vmi, &volume.name).is_some())
    })
}

/// Whether any volume of the VMI comes through an attachment Pod.
pub(crate) fn has_plugged(vmi: &VirtualMachineInstance) -> bool {
    wanted(vmi).next().is_some()
}

/// The status of a plugged volume.
fn status_of<'a>(vmi: &'a VirtualMachineInstance, name: &str) -> Option<&'a VolumeStatus> {
    let statuses = vmi.status.iter().flat_map(|status| &status.volume_status);
    statuses.filter(|status| status.hotplug_volume.is_some()).find(|status| status.name == name)
}

/// Whose attachment Pod brings the volumes.
#[derive(Clone, Copy)]
enum Side {
    Owner,
    Target,
}

fn mount(vmi: &VirtualMachineInstance, side: Side, volume: &Volume) -> Option<Mount> {
    let claim = volume.source().claim_name()?;
    let status = status_of(vmi, &volume.name)?;
    let (attachment, destination) = match side {
        // Unplugged again before it is written that it is mounted, it would be taken for unused in these phases.
        Side::Owner if matches!(status.phase, Some(Phase::Detaching | Phase::UnMountedFromPod)) => return None,
        Side::Owner => (status.hotplug_volume.as_ref()?.attach_pod_uid.as_deref(), None),
        Side::Target => {
            let state = vmi.status.as_ref()?.migration_state.as_ref()?;
            let destination = moved(vmi, &volume.name).and_then(|moved| moved.destination_pvc_info.as_ref());
            (state.target_attachment_pod_uid.as_deref(), destination)
        }
    };
    let info = destination.or(status.persistent_volume_claim_info.as_ref())?;
    let attachment = attachment.filter(|uid| !uid.is_empty())?;
    // The status may still describe a claim that had this name before.
    if info.claim_name.as_deref() != Some(claim) {
        return None;
    }
    let capacity = info.capacity.get("storage").and_then(|amount| Quantity::try_from(amount).ok());
    let capacity = capacity.and_then(|amount| u64::try_from(amount.value()).ok()).unwrap_or_default();
    let shape = match info.volume_mode.as_deref() {
        _ if volume.is_memory_dump() => Shape::Directory,
        Some(BLOCK) => Shape::Device,
        _ => Shape::Image,
    };
    Some(Mount {
        volume: volume.name.clone(),
        claim: claim.to_owned(),
        attachment: attachment.to_owned(),
        shape,
        image_bytes: launcher_contract::disks::usable(capacity, info.filesystem_overhead.as_deref()),
    })
}

fn is_mounted(w: &World<'_>, vmi: &VirtualMachineInstance, volume: &Volume) -> bool {
    w.volumes.mounted.get(&volume.name).is_some_and(|known| is_of(vmi, volume, known))
}

/// The time until a volume that failed is tried again.
fn delay(w: &World<'_>, volume: &str) -> Option<Duration> {
    let trouble = w.volumes.troubles.get(volume)?;
    backoff(trouble.count).checked_sub(since(trouble.at, w.now)).filter(|left| !left.is_zero())
}

/// Splits names into those that are due and the time until the next one is.
fn due<'a, T>(w: &World<'_>, all: impl Iterator<Item = (&'a str, T)>) -> (Vec<T>, Option<Duration>) {
    let (mut now, mut next) = (Vec::new(), None);
    for (name, item) in all {
        match delay(w, name) {
            None => now.push(item),
            Some(left) => next = Some(next.map_or(left, |next: Duration| next.min(left))),
        }
    }
    (now, next)
}

/// Mounts what has reached the node. The place of a volume is free once another claim under its name is out.
fn bring(w: &World<'_>, vmi: &VirtualMachineInstance, side: Side) -> Vec<Action> {
    let missing = wanted(vmi).filter(|volume| !w.volumes.mounted.contains_key(&volume.name));
    let missing = missing.filter_map(|volume| Some((volume.name.as_str(), mount(vmi, side, volume)?)));
    let (mounts, next) = due(w, missing);
    let mut actions = Vec::new();
    if !mounts.is_empty() {
        actions.push(Action::MountVolumes(mounts));
    }
    let because = "a volume could not be mounted";
    actions.extend(next.map(|delay| Action::RequeueAfter { delay, because }));
    actions
}

/// What has to be mounted before the guest starts, or arrives; `None` once everything is.
fn prepare(w: &World<'_>, vmi: &VirtualMachineInstance, side: Side) -> Option<Vec<Action>> {
    if wanted(vmi).all(|volume| is_mounted(w, vmi, volume)) {
        return None;
    }
    let mut actions = take_out(w, vmi, &BTreeSet::new());
    actions.extend(bring(w, vmi, side));
    if actions.is_empty() {
        let because = "plugged volumes have not reached the node yet";
        actions.push(Action::RequeueAfter { delay: Duration::from_secs(1), because });
    }
    Some(actions)
}

/// The same for a guest that is to start here.
pub(crate) fn before_start(w: &World<'_>, vmi: &VirtualMachineInstance) -> Option<Vec<Action>> {
    prepare(w, vmi, Side::Owner)
}

/// The same for a guest that is to arrive here.
pub(crate) fn before_arrival(w: &World<'_>, vmi: &VirtualMachineInstance) -> Option<Vec<Action>> {
    prepare(w, vmi, Side::Target)
}

/// Why volumes cannot be mounted here, after some attempts.
pub(crate) fn hopeless<'a>(w: &World<'a>) -> Option<&'a str> {
    w.volumes.troubles.values().find(|trouble| trouble.count >= ATTEMPTS).map(|trouble| trouble.message.as_str())
}

/// Makes a running guest follow its VMI.
pub(crate) fn follow(
    w: &World<'_>,
    vmi: &VirtualMachineInstance,
    state: &LauncherState,
    domain: &DomainState,
) -> Vec<Action> {
    if shutdown_began(w, state) {
        return Vec::new();
    }
    let has = disks(domain);
    let mut actions = bring(w, vmi, Side::Owner);
    let is_to_have = plugged(vmi, w.volumes.mounted);
    if is_to_have != has {
        actions.extend(tell(w, is_to_have));
    }
    actions.extend(dump(vmi, state));
    actions.extend(take_out(w, vmi, &has));
    actions
}

/// The plugged volumes that the guest has.
fn disks(domain: &DomainState) -> BTreeSet<String> {
    let is_plugged = |source: &str| source.strip_prefix(paths::HOTPLUG_DISKS).is_some_and(|rest| rest.starts_with('/'));
    let plugged = domain.disks.iter().filter(|disk| is_plugged(&disk.source));
    plugged.map(|disk| disk.alias.clone()).collect()
}

/// Tells the launcher which volumes the guest is to have, unless that has just been done.
fn tell(w: &World<'_>, volumes: BTreeSet<String>) -> Option<Action> {
    let last = w.volumes.told.filter(|told| told.volumes == volumes);
    let (wait, at) = match last {
        None => return Some(Action::SyncVolumes { volumes }),
        Some(Told { refusal: None, at, .. }) => (ASK_AGAIN, *at),
        Some(Told { refusal: Some(refusal), passes, .. }) => {
            if refusal.count >= ATTEMPTS && !passes {
                return None; // the condition says why
            }
            (backoff(refusal.count), refusal.at)
        }
    };
    match wait.checked_sub(since(at, w.now)).filter(|left| !left.is_zero()) {
        Some(delay) => {
            Some(Action::RequeueAfter { delay, because: "the guest does not have the volumes of its VMI yet" })
        }
        None => Some(Action::SyncVolumes { volumes }),
    }
}

/// Unmounts what neither the VMI nor the guest has any more.
fn take_out(w: &World<'_>, vmi: &VirtualMachineInstance, has: &BTreeSet<String>) -> Vec<Action> {
    let stays = |name: &str| wanted(vmi).any(|volume| volume.name == name && is_mounted(w, vmi, volume));
    let leaving = w.volumes.mounted.keys().filter(|name| !stays(name) && !has.contains(*name) && !dumps(vmi, name));
    let (volumes, next) = due(w, leaving.map(|name| (name.as_str(), name.clone())));
    let mut actions = Vec::new();
    if !volumes.is_empty() {
        actions.push(Action::UnmountVolumes(volumes));
    }
    let because = "a volume could not be unmounted";
    actions.extend(next.map(|delay| Action::RequeueAfter { delay, because }));
    actions
}

/// Has the guest's memory written to the volume that waits for it, once.
fn dump(vmi: &VirtualMachineInstance, state: &LauncherState) -> Option<Action> {
    let statuses = vmi.status.iter().flat_map(|status| &status.volume_status);
    let mut waiting = statuses.filter(|status| status.phase == Some(Phase::MemoryDumpInProgress));
    let status = waiting.next()?;
    let file = status.memory_dump_volume.as_ref()?.target_file_name.clone()?;
    if state.memory_dump.as_ref().is_some_and(|dump| (&dump.volume, &dump.file) == (&status.name, &file)) {
        return None;
    }
    Some(Action::DumpMemory { volume: status.name.clone(), file })
}

/// The name of the file, which says what it is and from when.
fn dump_file(vmi: &VirtualMachineInstance, volume: &str, now: Timestamp) -> String {
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    format!("{name}-{volume}-{}.memory.dump", now.strftime("%Y%m%d-%H%M%S"))
}

/// How far the dump to a volume has come.
fn report_dump(w: &World<'_>, vmi: &VirtualMachineInstance, dump: Option<&MemoryDump>, status: &mut VolumeStatus) {
    let name = status.name.clone();
    let info = status.memory_dump_volume.get_or_insert_default();
    match status.phase {
        Some(Phase::MountedToPod) => {
            info.claim_name.get_or_insert_with(|| name.clone());
            let file = dump_file(vmi, &name, w.now);
            (info.start_timestamp, info.end_timestamp, info.target_file_name) = (None, None, Some(file));
            status.phase = Some(Phase::MemoryDumpInProgress);
            status.reason = Some(reasons::MEMORY_DUMP_IN_PROGRESS.to_owned());
            status.message = Some(format!("Memory dump to volume {name} is in progress"));
        }
        Some(Phase::MemoryDumpInProgress) => {
            let is_this = |dump: &&MemoryDump| {
                dump.volume == name && Some(dump.file.as_str()) == info.target_file_name.as_deref()
            };
            let Some(dump) = dump.filter(is_this) else { return };
            info.start_timestamp.get_or_insert_with(|| time(dump.started_at));
            let Some(ended_at) = dump.ended_at else { return };
            info.end_timestamp.get_or_insert_with(|| time(ended_at));
            let (phase, reason, message) = match &dump.failure {
                Some(why) => (Phase::MemoryDumpFailed, reasons::MEMORY_DUMP_FAILED, why.clone()),
                None => {
                    let message = format!("Memory dump to volume {name} is complete");
                    (Phase::MemoryDumpCompleted, reasons::MEMORY_DUMP_COMPLETED, message)
                }
            };
            (status.phase, status.reason, status.message) = (Some(phase), Some(reason.to_owned()), Some(message));
        }
        _ => {}
    }
}

/// The guest's memory is being written to it.
fn dumps(vmi: &VirtualMachineInstance, name: &str) -> bool {
    status_of(vmi, name).is_some_and(|status| status.phase == Some(Phase::MemoryDumpInProgress))
}

/// What keeps the guest from following its VMI, for its owner.
pub(crate) fn trouble<'a>(w: &World<'a>) -> Option<&'a str> {
    let Vmi::Present(vmi) = w.vmi else { return None };
    let mounting = w.volumes.troubles.values().next();
    let plugging = || {
        let Verdict::Connected(state) = w.launcher.verdict(w.now) else { return None };
        let domain = state.domain.as_ref().filter(|domain| !domain.is_down())?;
        let is_to_have = plugged(vmi, w.volumes.mounted);
        let told = w.volumes.told.filter(|told| told.volumes == is_to_have && disks(domain) != is_to_have)?;
        told.refusal.as_ref()
    };
    mounting.or_else(plugging).map(|trouble| trouble.message.as_str())
}

/// Writes how far the plugged volumes have come.
pub(crate) fn report(
    w: &World<'_>,
    vmi: &VirtualMachineInstance,
    state: &LauncherState,
    statuses: &mut [VolumeStatus],
) {
    let is_dump = |name: &str| wanted(vmi).any(|volume| volume.name == name && volume.is_memory_dump());
    let is_utility = |name: &str| vmi.spec.utility_volumes.iter().any(|volume| volume.name == name);
    let runs = state.domain.as_ref().is_some_and(|domain| !domain.is_down());
    for status in statuses.iter_mut().filter(|status| runs && status.hotplug_volume.is_some() && is_dump(&status.name))
    {
        report_dump(w, vmi, state.memory_dump.as_ref(), status);
    }
    for status in statuses.iter_mut().filter(|status| status.hotplug_volume.is_some()) {
        let in_spec = wanted(vmi).find(|volume| volume.name == status.name);
        let mounted = w.volumes.mounted.get(&status.name);
        let is_wanted = in_spec.is_some_and(|volume| is_mounted(w, vmi, volume));
        let name = &status.name;
        let (phase, reason, message) = match status.phase {
            _ if !status.target.is_empty() => {
                (Phase::Ready, reasons::VOLUME_READY, format!("Successfully attach hotplugged volume {name} to VM"))
            }
            None | Some(Phase::Bound | Phase::Pending | Phase::AttachedToNode | Phase::UnMountedFromPod)
                if is_wanted =>
            {
                let message = format!("Volume {name} has been mounted in virt-launcher pod");
                (Phase::MountedToPod, reasons::VOLUME_MOUNTED_TO_POD, message)
            }
            Some(Phase::Ready | Phase::MountedToPod) if mounted.is_none() => unmounted(name),
            Some(Phase::MemoryDumpInProgress | Phase::MemoryDumpCompleted | Phase::MemoryDumpFailed)
                if mounted.is_none() && in_spec.is_none() =>
            {
                unmounted(name)
            }
            // virt-controller keeps its attachment Pod until this is written, whether or not it was ever mounted.
            Some(Phase::AttachedToNode) if mounted.is_none() && in_spec.is_none() && !is_utility(name) => {
                unmounted(name)
            }
            _ => continue,
        };
        if status.phase.as_ref() != Some(&phase) {
            status.phase = Some(phase);
            status.reason = Some(reason.to_owned());
            status.message = Some(message);
        }
    }
}

fn unmounted(name: &str) -> (Phase, &'static str, String) {
    let message = format!("Volume {name} has been unmounted from virt-launcher pod");
    (Phase::UnMountedFromPod, reasons::VOLUME_UNMOUNTED_FROM_POD, message)
}

/// Events for volumes whose phase has changed.
pub(crate) fn events(old: &[VolumeStatus], new: &[VolumeStatus]) -> Vec<Action> {
    let changed = new.iter().filter(|status| {
        let before = old.iter().find(|old| old.name == status.name).and_then(|old| old.phase.as_ref());
        status.hotplug_volume.is_some() && status.phase.is_some() && before != status.phase.as_ref()
    });
    let event = |status: &VolumeStatus| {
        let reason = match status.phase.as_ref()? {
            Phase::Ready => reasons::VOLUME_READY,
            Phase::MountedToPod => reasons::VOLUME_MOUNTED_TO_POD,
            Phase::UnMountedFromPod => reasons::VOLUME_UNMOUNTED_FROM_POD,
            Phase::MemoryDumpCompleted => reasons::MEMORY_DUMP_COMPLETED,
            Phase::MemoryDumpFailed => {
                let message = status.message.clone().unwrap_or_default();
                return Some(warning(reasons::MEMORY_DUMP_FAILED, message));
            }
            _ => return None,
        };
        Some(normal(reason, status.message.clone().unwrap_or_default()))
    };
    changed.filter_map(event).collect()
}
