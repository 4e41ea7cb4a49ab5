//! What becomes of a DataVolume and its claim.
//!
//! ```text
//!              no claim ─► Pending ─► claim made ─► WaitForFirstConsumer ─► bound
//!   http, registry, blank:   ─► ImportScheduled ─► ImportInProgress ─► Succeeded
//!                                                   │  ▲ pauses of 10 s to 5 min
//!                                                   └──┘ failed; Failed only for content that is not the promised one
//!   upload:                  ─► UploadScheduled ─► UploadReady ─► Succeeded
//!   pvc, snapshot:           CSICloneInProgress, CloneFromSnapshotSourceInProgress ─► Succeeded
//! ```
//!
//! Expected flow: [`decide`] is called for each change of the DataVolume, its claim or its transfer. What was done is noted
//! in annotations of the claim, in upstream's words, so that another process goes on from there.
//!
//! Guarantees:
//!
//! - A claim that was filled is not filled again: neither after a crash, nor if somebody edits its annotations.
//! - A claim that is being filled is used by nobody else (the transfer holds its volume), and is given back when the
//!   transfer has ended for good, or the claim or the DataVolume goes.
//! - A claim that this DataVolume does not control is not touched.

use std::collections::BTreeMap;
use std::time::Duration;

use api::cdi::{self, DataVolume, DataVolumePhase, DataVolumeStatus};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use machinery::meta;

use crate::claim::{self, NotYet, content_type};
use crate::cluster::{Cluster, class_of, waits};
use crate::note::Note;
use crate::source::{Import, Obstacle, OriginKind, Work, work};
use crate::status::{self, Look};
use crate::transfer::{Failure, Transfer, remaining, shown};
use crate::words::{complete, content, keys, phases, reasons};

/// The driver whose volumes this importer can fill.
pub const DRIVER: &str = "csi.ferrovirt.io";

/// How long to wait for what tells nobody when it comes.
const AGAIN: Duration = Duration::from_secs(2);

/// What a decision is made from.
pub struct World<'a> {
    pub now: Timestamp,
    pub data_volume: Option<&'a DataVolume>,
    /// The claim of the same name.
    pub claim: Option<&'a PersistentVolumeClaim>,
    /// The volume that the claim is bound to, once it has been seen.
    pub volume: Option<&'a PersistentVolume>,
    /// What fills the claim, if something does.
    pub transfer: Option<&'a Transfer>,
    /// A node that claims can be bound for, which are not to wait for a consumer.
    pub node: Option<&'a str>,
    pub cluster: &'a dyn Cluster,
}

/// What to do, in this order.
#[derive(Debug, Default, PartialEq)]
pub struct Decision {
    pub actions: Vec<Action>,
    /// The DataVolume's new status, if it differs. It is written last.
    pub status: Option<DataVolumeStatus>,
    /// Events about the DataVolume, told once the status has been written.
    pub notes: Vec<Note>,
    /// To look again even if nothing changes.
    pub again: Option<Duration>,
}

#[derive(Debug, PartialEq)]
pub enum Action {
    CreateClaim(Box<PersistentVolumeClaim>),
    /// Changes metadata of the claim.
    PatchClaim(ClaimPatch),
    /// Begins to fill the claim, holding its volume.
    Start(Box<Task>),
    /// Ends what fills the claim, and gives its volume back.
    Stop {
        because: &'static str,
    },
}

#[derive(Debug, Default, PartialEq)]
pub struct ClaimPatch {
    pub annotations: BTreeMap<&'static str, String>,
    /// Makes the DataVolume the claim's owner.
    pub owner: Option<OwnerReference>,
}

/// How a claim is filled.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The volume's name in its storage.
    pub volume: String,
    pub content: Content,
    /// The disk's content is a directory tree in an archive.
    pub archive: bool,
    pub preallocate: bool,
    /// The share of a file system claim that is left free.
    pub overhead: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    Import(Import),
    Upload,
}

/// The name that a claim's volume is held under, as it appears in messages.
pub fn holder(claim: &PersistentVolumeClaim) -> Option<String> {
    let metadata = &claim.metadata;
    let (namespace, name) = (metadata.namespace.as_deref()?, metadata.name.as_deref()?);
    Some(format!("{HOLDER}{namespace}/{name} ({})", metadata.uid.as_deref()?))
}

/// How the names of all holders of this importer begin.
const HOLDER: &str = "the import into claim ";

/// The claim that a holder's name is about: its namespace, name and UID. `None` for holders that are not ours.
pub fn claim_of_holder(holder: &str) -> Option<(&str, &str, &str)> {
    let (claim, uid) = holder.strip_prefix(HOLDER)?.strip_suffix(')')?.split_once(" (")?;
    let (namespace, name) = claim.split_once('/')?;
    Some((namespace, name, uid))
}

/// Whether a claim is about to be filled by this importer, so that nobody may use its volume before.
pub fn is_reserved(claim: &PersistentVolumeClaim) -> bool {
    let noted = |key| meta::annotation(&claim.metadata, key);
    let wanted = noted(keys::UPLOAD).is_some() || noted(keys::SOURCE).is_some();
    wanted && noted(keys::PHASE).is_none_or(|phase| phase != phases::SUCCEEDED)
}

/// Decides about a DataVolume and the claim of its name.
pub fn decide(w: &World<'_>) -> Decision {
    let Some(dv) = w.data_volume else { return alone(w) };
    if meta::is_deleting(&dv.metadata) {
        return stop(w, "the DataVolume is being deleted");
    }
    let Some(claim) = w.claim else { return without_claim(w, dv) };
    if meta::is_deleting(&claim.metadata) {
        let message = format!("Resource {:?} marked for deletion", name_of(claim));
        let mut decision = stop(w, "the claim is being deleted");
        // Once: the status is not touched until the claim is gone.
        if w.transfer.is_some() {
            decision.notes.push(Note::warning(reasons::MARKED_FOR_DELETION, message));
        }
        return decision;
    }
    if !controls(dv, claim) {
        return strange_claim(w, dv, claim);
    }
    if is_done(dv, claim) {
        let mut decision = stop(w, "the claim is filled");
        arrive(&mut decision, w, dv, look(DataVolumePhase::Succeeded, claim));
        return decision;
    }
    match work(dv, w.cluster) {
        Ok(work) => fill(w, dv, claim, &work),
        // The claim exists, so the source was there: a clone does not need it any more once it is under way.
        Err(Obstacle::Missing { .. }) => follow(w, dv, claim, &Aim::Clone(OriginKind::Claim)),
        Err(Obstacle::Unsupported(why)) => refuse(w, dv, &why),
    }
}

/// A claim without a DataVolume: filled by an upload, if it says so.
fn alone(w: &World<'_>) -> Decision {
    let Some(claim) = w.claim.filter(|claim| !meta::is_deleting(&claim.metadata)) else {
        return stop(w, "the claim is gone");
    };
    let noted = |key| meta::annotation(&claim.metadata, key);
    let orphan = meta::controller_of(&claim.metadata).is_some_and(|owner| owner.kind == "DataVolume");
    if noted(keys::UPLOAD).is_none() || orphan {
        return stop(w, "nobody asks for the content any more");
    }
    if noted(keys::PHASE) == Some(phases::SUCCEEDED) {
        return stop(w, "the claim is filled");
    }
    let archive = noted(cdi::CONTENT_TYPE) == Some(content::ARCHIVE);
    let preallocate = noted(keys::PREALLOCATION_REQUESTED) == Some("true");
    let mut decision = Decision::default();
    match phase_of(claim) {
        Some("Bound") => transfer(&mut decision, w, claim, &Content::Upload, archive, preallocate),
        _ => decision.actions.extend(select_node(w, claim)),
    }
    decision
}

fn stop(w: &World<'_>, because: &'static str) -> Decision {
    let actions = w.transfer.map(|_| Action::Stop { because }).into_iter().collect();
    Decision { actions, ..Decision::default() }
}

fn controls(dv: &DataVolume, claim: &PersistentVolumeClaim) -> bool {
    dv.metadata.uid.as_deref().is_some_and(|uid| meta::is_controlled_by(&claim.metadata, uid))
}

fn name_of(claim: &PersistentVolumeClaim) -> &str {
    claim.metadata.name.as_deref().unwrap_or_default()
}

fn phase_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.status.as_ref()?.phase.as_deref()
}

/// Whether the claim holds the content already.
fn is_done(dv: &DataVolume, claim: &PersistentVolumeClaim) -> bool {
    let noted = |key| meta::annotation(&claim.metadata, key);
    let said = dv.status.as_ref().and_then(|status| status.phase.as_ref()) == Some(&DataVolumePhase::Succeeded);
    // Somebody may have edited the claim's annotations: what a DataVolume has said stays true for its claim.
    let lost = phase_of(claim) == Some("Lost");
    !lost && (said || noted(keys::PHASE) == Some(phases::SUCCEEDED) || is_populated(dv, claim))
}

/// Whether the claim was filled before this DataVolume came.
fn is_populated(dv: &DataVolume, claim: &PersistentVolumeClaim) -> bool {
    let of_claim = |key| meta::annotation(&claim.metadata, key);
    let populated = of_claim(cdi::POPULATED_FOR).is_some_and(|name| Some(name) == dv.metadata.name.as_deref());
    populated || may_adopt(dv, claim)
}

/// Whether the DataVolume takes over a claim that was not made for it, as it is.
fn may_adopt(dv: &DataVolume, claim: &PersistentVolumeClaim) -> bool {
    let made_for = meta::annotation(&claim.metadata, keys::CREATED_FOR);
    made_for.is_none_or(|uid| Some(uid) != dv.metadata.uid.as_deref())
        && meta::annotation(&dv.metadata, cdi::ALLOW_CLAIM_ADOPTION) == Some("true")
}

/// A claim of the right name that is somebody else's, or nobody's.
fn strange_claim(w: &World<'_>, dv: &DataVolume, claim: &PersistentVolumeClaim) -> Decision {
    let ownerless = meta::controller_of(&claim.metadata).is_none();
    if ownerless
        && is_populated(dv, claim)
        && let Some(owner) = meta::controller_ref(dv)
    {
        let adopt = Action::PatchClaim(ClaimPatch { owner: Some(owner), ..ClaimPatch::default() });
        return Decision { actions: vec![adopt], ..Decision::default() };
    }
    let message = format!("Resource {:?} already exists and is not managed by DataVolume", name_of(claim));
    let mut decision = Decision::default();
    // The status tells once what the event would tell again and again.
    let look = Look {
        phase: DataVolumePhase::Pending,
        claim: None,
        unbound: Some((reasons::RESOURCE_EXISTS, &message)),
        stopped: None,
        progress: None,
    };
    arrive(&mut decision, w, dv, look);
    decision.again = Some(Duration::from_secs(30));
    decision
}

fn without_claim(w: &World<'_>, dv: &DataVolume) -> Decision {
    let mut decision = stop(w, "the claim is gone");
    let old = dv.status.as_ref().and_then(|status| status.phase.as_ref());
    if meta::annotation(&dv.metadata, cdi::PRE_POPULATED).is_some() {
        let mut look = none(DataVolumePhase::Pending);
        let message = "The claim that already holds the data does not exist";
        look.unbound = Some((reasons::NOT_FOUND, message));
        arrive(&mut decision, w, dv, look);
        return decision;
    }
    let made = match work(dv, w.cluster) {
        Err(Obstacle::Unsupported(why)) => return refuse(w, dv, &why),
        Err(Obstacle::Missing { reason, message }) => Err(NotYet::new(reason, message)),
        Ok(work) => claim::render(dv, &work, w.cluster),
    };
    match made {
        // First the status says that the content is gone: a new claim must not pass for the filled one.
        Ok(_) if old == Some(&DataVolumePhase::Succeeded) => {
            arrive(&mut decision, w, dv, none(DataVolumePhase::Pending))
        }
        Ok(claim) => {
            decision.actions.push(Action::CreateClaim(Box::new(claim)));
            arrive(&mut decision, w, dv, none(DataVolumePhase::Pending));
        }
        Err(not_yet) => {
            let mut look = none(DataVolumePhase::Pending);
            look.unbound = Some((not_yet.reason, &not_yet.message));
            arrive(&mut decision, w, dv, look);
            // The condition's event is a normal one, and virtctl looks for this one.
            let told = decision.status.is_some() && !not_yet.waits;
            if told {
                decision.notes.retain(|note| note.reason != not_yet.reason);
                decision.notes.push(Note::warning(not_yet.reason, not_yet.message.clone()));
            }
            decision.again = Some(AGAIN);
        }
    }
    decision
}

/// The status of a DataVolume whose claim the namespace's quota does not allow.
pub fn over_quota(dv: &DataVolume, why: &str, now: Timestamp) -> DataVolumeStatus {
    let mut look = none(DataVolumePhase::Pending);
    look.unbound = Some((cdi::REASON_EXCEEDED_QUOTA, why));
    status::status(&dv.status.clone().unwrap_or_default(), look, now)
}

/// The status of a DataVolume whose claim the API server refuses.
pub fn claim_refused(dv: &DataVolume, why: &str, now: Timestamp) -> DataVolumeStatus {
    let mut look = none(DataVolumePhase::Pending);
    look.unbound = Some((reasons::CLAIM_NOT_VALID, why));
    status::status(&dv.status.clone().unwrap_or_default(), look, now)
}

/// A DataVolume that this importer will not work on.
fn refuse(w: &World<'_>, dv: &DataVolume, why: &str) -> Decision {
    let mut decision = stop(w, "the DataVolume asks for what is not supported");
    let mut look = none(DataVolumePhase::Failed);
    look.claim = w.claim;
    look.stopped = Some((reasons::NOT_SUPPORTED, why));
    arrive(&mut decision, w, dv, look);
    if decision.status.is_some() {
        decision.notes.push(Note::warning(reasons::NOT_SUPPORTED, why));
    }
    decision
}

fn none<'a>(phase: DataVolumePhase) -> Look<'a> {
    Look { phase, claim: None, unbound: None, stopped: None, progress: None }
}

fn look(phase: DataVolumePhase, claim: &PersistentVolumeClaim) -> Look<'_> {
    Look { claim: Some(claim), ..none(phase) }
}

/// Sets the status, if it is another one, and tells what changed.
fn arrive(decision: &mut Decision, w: &World<'_>, dv: &DataVolume, look: Look<'_>) {
    let old = dv.status.clone().unwrap_or_default();
    let arrival = arrival(dv, &look, w.cluster);
    let new = status::status(&old, look, w.now);
    if new != old || dv.status.is_none() {
        decision.notes.extend(status::told(&old, &new, arrival));
        decision.status = Some(new);
    }
}

/// The event with which a phase is reached.
fn arrival(dv: &DataVolume, look: &Look<'_>, cluster: &dyn Cluster) -> Option<Note> {
    use DataVolumePhase as Phase;
    let name = dv.metadata.name.as_deref().unwrap_or_default();
    let namespace = dv.metadata.namespace.as_deref().unwrap_or_default();
    let origin = match work(dv, cluster) {
        Ok(Work::Clone(origin)) => Some(origin),
        _ => None,
    };
    let from = origin.as_ref().map(|origin| format!("{}/{}", origin.namespace, origin.name)).unwrap_or_default();
    Some(match &look.phase {
        Phase::ImportScheduled => Note::normal(reasons::IMPORT_SCHEDULED, format!("Import into {name} scheduled")),
        Phase::ImportInProgress => Note::normal(reasons::IMPORT_IN_PROGRESS, format!("Import into {name} in progress")),
        Phase::UploadScheduled => Note::normal(reasons::UPLOAD_SCHEDULED, format!("Upload into {name} scheduled")),
        Phase::UploadReady => Note::normal(reasons::UPLOAD_READY, format!("Upload into {name} ready")),
        Phase::CSICloneInProgress => {
            let message = format!("CSI Volume clone in progress (for pvc {from})");
            Note::normal(reasons::CSI_CLONE_IN_PROGRESS, message)
        }
        Phase::CloneFromSnapshotSourceInProgress => {
            let message = format!("Creating PVC from snapshot source is in progress (for snapshot {from})");
            Note::normal(reasons::CLONE_FROM_SNAPSHOT, message)
        }
        Phase::Failed if phase_of(look.claim?) == Some("Lost") => {
            Note::warning(reasons::ERR_CLAIM_LOST, format!("PVC {name} lost"))
        }
        Phase::Failed if look.stopped.is_none() => {
            Note::warning(reasons::IMPORT_FAILED, format!("Failed to import into PVC {name}"))
        }
        Phase::Succeeded => match (dv.spec.source.as_ref(), origin) {
            (_, Some(_)) => {
                let message = format!("Successfully cloned from {from} into {namespace}/{name}");
                Note::normal(reasons::CLONE_SUCCEEDED, message)
            }
            (Some(source), None) if source.upload.is_some() => {
                Note::normal(reasons::UPLOAD_SUCCEEDED, format!("Successfully uploaded into {name}"))
            }
            (Some(_), None) => {
                Note::normal(reasons::IMPORT_SUCCEEDED, format!("Successfully imported into PVC {name}"))
            }
            (None, None) => return None,
        },
        _ => return None,
    })
}

/// What happens to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    Import,
    Upload,
    Clone(OriginKind),
    External,
}

fn fill(w: &World<'_>, dv: &DataVolume, claim: &PersistentVolumeClaim, work: &Work) -> Decision {
    let (aim, content) = match work {
        Work::Import(import) => (Aim::Import, Some(Content::Import(import.clone()))),
        Work::Upload => (Aim::Upload, Some(Content::Upload)),
        Work::Clone(origin) => (Aim::Clone(origin.kind), None),
        Work::External => (Aim::External, None),
    };
    let mut decision = Decision::default();
    if let Some(content) = content.filter(|_| phase_of(claim) == Some("Bound")) {
        let archive = content_type(dv) == content::ARCHIVE;
        transfer(&mut decision, w, claim, &content, archive, dv.spec.preallocation.unwrap_or(false));
    }
    let followed = follow(w, dv, claim, &aim);
    decision.actions.extend(followed.actions);
    decision.again = [decision.again, followed.again].into_iter().flatten().min();
    Decision { actions: decision.actions, again: decision.again, ..followed }
}

/// The phase of a DataVolume whose claim exists.
fn follow(w: &World<'_>, dv: &DataVolume, claim: &PersistentVolumeClaim, aim: &Aim) -> Decision {
    use DataVolumePhase as Phase;
    let mut decision = Decision::default();
    let noted = |key| meta::annotation(&claim.metadata, key);
    let phase = match phase_of(claim) {
        Some("Lost") => {
            decision.actions.extend(w.transfer.map(|_| Action::Stop { because: "the claim is lost" }));
            Phase::Failed
        }
        Some("Bound") => match aim {
            Aim::Clone(_) | Aim::External => {
                decision.actions.extend(note(claim, done(complete::CLONE)));
                // The annotation brings us back here, and then it is done.
                current(dv).unwrap_or(Phase::PVCBound)
            }
            Aim::Import => match noted(keys::PHASE) {
                _ if w.volume.is_none() => Phase::PVCBound,
                Some(phases::RUNNING) => Phase::ImportInProgress,
                Some(phases::FAILED) if noted(keys::FATAL) == Some("true") => Phase::Failed,
                Some(phases::FAILED) => Phase::ImportInProgress,
                _ => Phase::ImportScheduled,
            },
            Aim::Upload => match noted(keys::PHASE) {
                _ if w.volume.is_none() => Phase::PVCBound,
                Some(phases::RUNNING) if noted(keys::READY) == Some("true") => Phase::UploadReady,
                _ => Phase::UploadScheduled,
            },
        },
        None | Some("Pending") => {
            decision.actions.extend(select_node(w, claim));
            match aim {
                _ if waits_for_consumer(w, claim) => Phase::WaitForFirstConsumer,
                Aim::Clone(OriginKind::Claim) => Phase::CSICloneInProgress,
                Aim::Clone(OriginKind::Snapshot) => Phase::CloneFromSnapshotSourceInProgress,
                Aim::Import | Aim::Upload | Aim::External => Phase::Pending,
            }
        }
        Some(_) => Phase::Unknown,
    };
    let mut look = look(phase, claim);
    look.progress = match w.transfer {
        Some(Transfer::Running { progress }) if *aim == Aim::Import => Some(shown(*progress)),
        _ => None,
    };
    arrive(&mut decision, w, dv, look);
    decision
}

fn current(dv: &DataVolume) -> Option<DataVolumePhase> {
    dv.status.as_ref()?.phase.clone().filter(|phase| !phase.as_str().is_empty())
}

/// Whether the claim is bound only once a Pod uses it.
fn waits_for_consumer(w: &World<'_>, claim: &PersistentVolumeClaim) -> bool {
    is_waiting_class(w, claim) && meta::annotation(&claim.metadata, cdi::IMMEDIATE_BINDING).is_none()
}

fn is_waiting_class(w: &World<'_>, claim: &PersistentVolumeClaim) -> bool {
    let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    waits(class_of(w.cluster, class, false).as_deref())
}

/// Binds a claim that is not to wait, by choosing a node in the scheduler's place: every node sees the pool.
fn select_node(w: &World<'_>, claim: &PersistentVolumeClaim) -> Option<Action> {
    let noted = |key| meta::annotation(&claim.metadata, key);
    let wanted = noted(cdi::IMMEDIATE_BINDING).is_some() && noted(keys::SELECTED_NODE).is_none();
    if !wanted || !is_waiting_class(w, claim) {
        return None;
    }
    note(claim, vec![(keys::SELECTED_NODE, w.node?.to_owned())])
}

type Notes = Vec<(&'static str, String)>;

fn done(message: &str) -> Notes {
    vec![
        (keys::PHASE, phases::SUCCEEDED.to_owned()),
        (keys::RUNNING, "false".to_owned()),
        (keys::RUNNING_REASON, reasons::COMPLETED.to_owned()),
        (keys::RUNNING_MESSAGE, message.to_owned()),
    ]
}

/// A change of the claim's annotations, unless they are as wanted.
fn note(claim: &PersistentVolumeClaim, notes: Notes) -> Option<Action> {
    let differs =
        |(key, value): &(&'static str, String)| meta::annotation(&claim.metadata, key) != Some(value.as_str());
    let annotations: BTreeMap<&'static str, String> = notes.into_iter().filter(differs).collect();
    (!annotations.is_empty()).then_some(Action::PatchClaim(ClaimPatch { annotations, owner: None }))
}

fn idle(phase: &str, reason: &str, message: &str) -> Notes {
    vec![
        (keys::PHASE, phase.to_owned()),
        (keys::RUNNING, "false".to_owned()),
        (keys::RUNNING_REASON, reason.to_owned()),
        (keys::RUNNING_MESSAGE, message.to_owned()),
    ]
}

fn busy(message: &str) -> Notes {
    vec![
        (keys::PHASE, phases::RUNNING.to_owned()),
        (keys::RUNNING, "true".to_owned()),
        (keys::RUNNING_REASON, reasons::POD_RUNNING.to_owned()),
        (keys::RUNNING_MESSAGE, message.to_owned()),
    ]
}

/// Fills a bound claim.
fn transfer(
    decision: &mut Decision,
    w: &World<'_>,
    claim: &PersistentVolumeClaim,
    content: &Content,
    archive: bool,
    preallocate: bool,
) {
    let noted = |key| meta::annotation(&claim.metadata, key);
    let restarts = noted(keys::RESTARTS).and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
    let fatal = noted(keys::FATAL) == Some("true");
    let say = |decision: &mut Decision, notes: Notes| decision.actions.extend(note(claim, notes));
    // Where it had begun before, it stays begun: a restart is no step back.
    let before = |begun: bool| if begun { phases::RUNNING } else { phases::PENDING };
    let begun = noted(keys::PHASE) == Some(phases::RUNNING);
    match w.transfer {
        None if fatal => {}
        None => {
            let Some(volume) = w.volume else { return }; // its arrival brings us back
            let task = match task(w, claim, volume, content, archive, preallocate) {
                Ok(task) => task,
                Err(why) => return say(decision, idle(phases::PENDING, cdi::REASON_ERROR, &why)),
            };
            if begun && matches!(content, Content::Import(_)) {
                say(decision, vec![(keys::RESTARTS, restarts.saturating_add(1).to_string())]);
            }
            decision.actions.push(Action::Start(Box::new(task)));
        }
        Some(Transfer::Queued) => {
            say(decision, vec![(keys::PHASE, before(begun).to_owned())]);
        }
        Some(Transfer::Waiting { why }) => {
            let mut notes = idle(before(begun), reasons::TARGET_IN_USE, why);
            if *content == Content::Upload {
                notes.push((keys::READY, "false".to_owned()));
            }
            say(decision, notes);
            decision.again = Some(AGAIN);
        }
        Some(Transfer::Running { .. }) => say(decision, busy("")),
        Some(Transfer::Ready { failures, last }) => {
            let mut notes = busy(last.as_deref().unwrap_or_default());
            notes.push((keys::READY, "true".to_owned()));
            notes.push((keys::RESTARTS, restarts.max(*failures).to_string()));
            say(decision, notes);
        }
        Some(Transfer::Done { preallocated }) => {
            let mut notes = match content {
                Content::Import(_) => done(complete::IMPORT),
                Content::Upload => done(complete::UPLOAD),
            };
            if *content == Content::Upload {
                notes.push((keys::READY, "false".to_owned()));
            }
            if *preallocated {
                notes.push((keys::PREALLOCATION_APPLIED, "true".to_owned()));
            }
            say(decision, notes);
        }
        Some(Transfer::Failed { failure, .. }) if fatal || failure.is_fatal() => {
            let mut notes = idle(phases::FAILED, reasons::CHECKSUM, &failure.message);
            notes.push((keys::FATAL, "true".to_owned()));
            match note(claim, notes) {
                Some(patch) => decision.actions.push(patch),
                // It is noted: nobody will try again, and the volume need not be held.
                None => decision.actions.push(Action::Stop { because: "the content is not the promised one" }),
            }
        }
        Some(Transfer::Failed { failure, at }) => {
            failed(decision, w, claim, failure, *at, restarts, content, archive, preallocate)
        }
    }
}

/// Notes a failure, and tries again after a pause.
fn failed(
    decision: &mut Decision,
    w: &World<'_>,
    claim: &PersistentVolumeClaim,
    failure: &Failure,
    at: Timestamp,
    restarts: u32,
    content: &Content,
    archive: bool,
    preallocate: bool,
) {
    let told = note(claim, idle(phases::RUNNING, cdi::REASON_ERROR, &failure.message));
    if let Some(patch) = told {
        decision.actions.push(patch);
        decision.again = Some(remaining(at, restarts, w.now).unwrap_or(AGAIN));
        return;
    }
    if let Some(rest) = remaining(at, restarts, w.now) {
        decision.again = Some(rest);
        return;
    }
    let Some(Ok(task)) = w.volume.map(|volume| task(w, claim, volume, content, archive, preallocate)) else {
        decision.again = Some(AGAIN);
        return;
    };
    decision.actions.extend(note(claim, vec![(keys::RESTARTS, restarts.saturating_add(1).to_string())]));
    decision.actions.push(Action::Start(Box::new(task)));
}

fn task(
    w: &World<'_>,
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    content: &Content,
    archive: bool,
    preallocate: bool,
) -> Result<Task, String> {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let csi = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
    let csi = csi.filter(|csi| csi.driver == DRIVER).ok_or_else(|| {
        format!(
            "PersistentVolume {name} is not of the driver {DRIVER}, and this importer fills no others; use a \
             StorageClass of that provisioner"
        )
    })?;
    let spec = claim.spec.clone().unwrap_or_default();
    if archive && claim::mode(&spec) == claim::BLOCK {
        return Err("ContentType Archive cannot have block volumeMode".to_owned());
    }
    Ok(Task {
        volume: csi.volume_handle.clone(),
        content: content.clone(),
        archive,
        preallocate,
        overhead: claim::overhead_of(w.cluster, spec.storage_class_name.as_deref()),
    })
}
