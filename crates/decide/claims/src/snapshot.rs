//! What is to be done about VolumeSnapshots and about what of them is in the storage.
//!
//! ```text
//!   VolumeSnapshot ─► content (derived name) ─► engine ─► content's status ─► VolumeSnapshot's status
//! ```
//!
//! The content is written before the storage is asked, so a crash leaves nothing in the storage that no object knows of.

use std::sync::Arc;

use api::annotations::DEFAULT_SNAPSHOT_CLASS;
use api::volumesnapshot::{
    AS_SOURCE_FINALIZER, BOUND_FINALIZER, CLAIM_FINALIZER as SOURCE_FINALIZER, CONTENT_FINALIZER, GROUP,
    VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent, VolumeSnapshotContentSource, VolumeSnapshotContentSpec,
    VolumeSnapshotStatus,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::{Value, json};

use crate::action::{Action, Kind, Note, Part, Seen, Voice};
use crate::grow::time;
use crate::provision::{DataSource, bytes, data_source};
use crate::read::{self, Phase};
use crate::{DRIVER, class_of};

/// On contents: the VolumeSnapshot is being deleted.
const BEING_DELETED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";

/// Everything a decision about a VolumeSnapshot sees.
pub struct World<'a> {
    pub snapshot: &'a VolumeSnapshot,
    /// The content that [`content_name`] names, if it exists.
    pub content: Option<&'a VolumeSnapshotContent>,
    /// All claims of the namespace.
    pub claims: &'a [Arc<PersistentVolumeClaim>],
    /// The volume of the source claim.
    pub volume: Option<&'a PersistentVolume>,
    /// All snapshots of the namespace.
    pub snapshots: &'a [Arc<VolumeSnapshot>],
    pub classes: &'a [Arc<VolumeSnapshotClass>],
    pub now: Timestamp,
}

/// Everything a decision about a content sees.
pub struct ContentWorld<'a> {
    pub content: &'a VolumeSnapshotContent,
    /// The VolumeSnapshot that it names.
    pub snapshot: Option<&'a VolumeSnapshot>,
}

/// The content of a snapshot: the one that it names, or a derived one.
pub fn content_name(snapshot: &VolumeSnapshot) -> String {
    match &snapshot.spec.source.volume_snapshot_content_name {
        Some(name) => name.clone(),
        None => format!("snapcontent-{}", snapshot.metadata.uid.as_deref().unwrap_or_default()),
    }
}

/// The claim that a snapshot is taken of.
pub fn source_claim(snapshot: &VolumeSnapshot) -> Option<&str> {
    snapshot.spec.source.persistent_volume_claim_name.as_deref()
}

impl World<'_> {
    fn seen(&self) -> Seen {
        Seen::new(Kind::Snapshot, &self.snapshot.metadata)
    }

    fn uid(&self) -> &str {
        self.snapshot.metadata.uid.as_deref().unwrap_or_default()
    }

    fn name(&self) -> String {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        format!("{}/{}", text(&self.snapshot.metadata.namespace), text(&self.snapshot.metadata.name))
    }

    fn patch(&self, part: Part, patch: Value) -> Action {
        Action::Patch { object: self.seen(), part, patch }
    }

    fn claim(&self) -> Option<&PersistentVolumeClaim> {
        let name = source_claim(self.snapshot)?;
        self.claims.iter().map(Arc::as_ref).find(|claim| claim.metadata.name.as_deref() == Some(name))
    }

    fn is_ours(&self, content: &VolumeSnapshotContent) -> bool {
        content.spec.volume_snapshot_ref.uid.as_deref() == Some(self.uid())
    }
}

/// What to do next about a VolumeSnapshot.
pub fn decide(w: &World<'_>) -> Vec<Action> {
    let metadata = &w.snapshot.metadata;
    if metadata.deletion_timestamp.is_some() {
        return ending(w);
    }
    let wanted = [AS_SOURCE_FINALIZER, BOUND_FINALIZER];
    if !wanted.iter().all(|finalizer| read::has_finalizer(metadata, finalizer)) {
        let mut finalizers = metadata.finalizers.clone().unwrap_or_default();
        finalizers
            .extend(wanted.iter().filter(|name| !read::has_finalizer(metadata, name)).map(|&name| name.to_owned()));
        return vec![w.patch(Part::Main, json!({"metadata": {"finalizers": finalizers}}))];
    }
    let is_static = w.snapshot.spec.source.volume_snapshot_content_name.is_some();
    match w.content {
        Some(content) if w.is_ours(content) && is_going(content) => {
            let name = content.metadata.name.as_deref().unwrap_or_default();
            let why = format!("VolumeSnapshotContent [{name}] is being deleted, and no snapshot was taken");
            failed(w, "SnapshotContentMissing", &why)
        }
        Some(content) if w.is_ours(content) => bound(w, content),
        Some(content) if is_static => claim_content(w, content),
        Some(content) => {
            let name = content.metadata.name.as_deref().unwrap_or_default();
            let why = format!("VolumeSnapshotContent [{name}] is bound to a different snapshot");
            failed(w, "SnapshotContentMisbound", &why)
        }
        None if is_static => failed(w, "SnapshotContentMissing", "VolumeSnapshotContent is missing"),
        None => take(w),
    }
}

/// Whether a content is being deleted before there is a snapshot.
fn is_going(content: &VolumeSnapshotContent) -> bool {
    let ready = content.status.as_ref().and_then(|status| status.ready_to_use) == Some(true);
    content.metadata.deletion_timestamp.is_some() && !ready
}

/// Content that exists already is bound to the snapshot that it names, and that names it.
fn claim_content(w: &World<'_>, content: &VolumeSnapshotContent) -> Vec<Action> {
    let reference = &content.spec.volume_snapshot_ref;
    let metadata = &w.snapshot.metadata;
    let unbound = reference.uid.as_deref().unwrap_or_default().is_empty();
    if unbound && reference.name == metadata.name && reference.namespace == metadata.namespace {
        let patch = json!({"spec": {"volumeSnapshotRef": {"uid": w.uid()}}});
        let object = Seen::new(Kind::Content, &content.metadata);
        return vec![Action::Patch { object, part: Part::Main, patch }];
    }
    let name = content.metadata.name.as_deref().unwrap_or_default();
    failed(w, "SnapshotContentMisbound", &format!("VolumeSnapshotContent [{name}] is bound to a different snapshot"))
}

/// Writes the content of a new snapshot.
fn take(w: &World<'_>) -> Vec<Action> {
    let name = source_claim(w.snapshot).unwrap_or_default();
    let refused = |why: &str| {
        let message = format!("Failed to create snapshot content with error {why}");
        failed(w, "SnapshotContentCreationFailed", &message)
    };
    let Some(claim) = w.claim() else {
        return refused(&format!(
            "snapshot controller failed to get the source: persistentvolumeclaims {name:?} not found"
        ));
    };
    let volume = match (read::claim_phase(claim), w.volume) {
        (Phase::Bound, Some(volume)) => volume,
        _ => return refused(&format!("the PVC {name} is not yet bound to a PV, will not attempt to take a snapshot")),
    };
    if claim.metadata.deletion_timestamp.is_some() {
        return refused(&format!("the PVC {name} is being deleted"));
    }
    let driver = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()).map(|csi| csi.driver.as_str());
    let Some(driver) = driver else { return refused(&format!("the volume of PVC {name} is not one of a CSI driver")) };
    let class = match class(w, driver) {
        Ok(class) => class,
        Err(why) => return failed(w, "GetSnapshotClassFailed", &why),
    };
    let class_name = class.metadata.name.as_deref().unwrap_or_default();
    if w.snapshot.spec.volume_snapshot_class_name.is_none() {
        return vec![w.patch(Part::Main, json!({"spec": {"volumeSnapshotClassName": class_name}}))];
    }
    let Some(handle) = read::handle(volume) else {
        return refused(&format!("no snapshotter of driver {driver} runs in this cluster"));
    };
    if class.driver != driver {
        return refused(&format!(
            "VolumeSnapshotClass {class_name} is of driver {}, the volume of {driver}",
            class.driver
        ));
    }
    if !read::has_finalizer(&claim.metadata, SOURCE_FINALIZER) {
        let finalizers = read::finalizers_with(&claim.metadata, SOURCE_FINALIZER);
        let patch = json!({"metadata": {"finalizers": finalizers}});
        let object = Seen::new(Kind::Claim, &claim.metadata);
        return vec![Action::Patch { object, part: Part::Main, patch }];
    }
    let content = content(w, class, handle, volume);
    let message = format!("Waiting for a snapshot {} to be created by the CSI driver.", w.name());
    let told = Note::normal(&w.seen(), Voice::Snapshotter, "CreatingSnapshot", message);
    vec![Action::CreateContent(Box::new(content)), told]
}

/// The class that the snapshot names, or the default one of the driver.
fn class<'a>(w: &'a World<'_>, driver: &str) -> Result<&'a VolumeSnapshotClass, String> {
    let all = || w.classes.iter().map(Arc::as_ref);
    if let Some(name) = &w.snapshot.spec.volume_snapshot_class_name {
        let found = all().find(|class| class.metadata.name.as_ref() == Some(name));
        return found.ok_or_else(|| {
            format!(
                "Failed to get snapshot class with error failed to retrieve snapshot class {name} from the informer: \
                 volumesnapshotclasses.snapshot.storage.k8s.io {name:?} not found"
            )
        });
    }
    let is_default = |class: &&VolumeSnapshotClass| {
        class.driver == driver && read::annotation(&class.metadata, DEFAULT_SNAPSHOT_CLASS) == Some("true")
    };
    let defaults: Vec<&VolumeSnapshotClass> = all().filter(is_default).collect();
    match defaults.as_slice() {
        [class] => Ok(class),
        [] => Err("Failed to set default snapshot class with error cannot find default snapshot class".to_owned()),
        many => Err(format!(
            "Failed to set default snapshot class with error {} default snapshot classes were found",
            many.len()
        )),
    }
}

fn content(
    w: &World<'_>,
    class: &VolumeSnapshotClass,
    handle: &str,
    volume: &PersistentVolume,
) -> VolumeSnapshotContent {
    let metadata = &w.snapshot.metadata;
    VolumeSnapshotContent {
        metadata: ObjectMeta {
            name: Some(content_name(w.snapshot)),
            finalizers: Some(vec![CONTENT_FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: VolumeSnapshotContentSpec {
            deletion_policy: class.deletion_policy.clone(),
            driver: class.driver.clone(),
            source: VolumeSnapshotContentSource {
                volume_handle: Some(handle.to_owned()),
                ..VolumeSnapshotContentSource::default()
            },
            source_volume_mode: volume.spec.as_ref().and_then(|spec| spec.volume_mode.clone()),
            volume_snapshot_class_name: class.metadata.name.clone(),
            volume_snapshot_ref: ObjectReference {
                api_version: Some(format!("{GROUP}/v1")),
                kind: Some("VolumeSnapshot".to_owned()),
                namespace: metadata.namespace.clone(),
                name: metadata.name.clone(),
                uid: metadata.uid.clone(),
                resource_version: metadata.resource_version.clone(),
                field_path: None,
            },
        },
        status: None,
    }
}

/// Copies what the content says to the snapshot.
fn bound(w: &World<'_>, content: &VolumeSnapshotContent) -> Vec<Action> {
    let name = content.metadata.name.clone();
    let there = content.status.clone().unwrap_or_default();
    let ready = there.ready_to_use == Some(true);
    let old = w.snapshot.status.clone().unwrap_or_default();
    let created = there.creation_time.and_then(|nanos| Timestamp::from_nanosecond(nanos.into()).ok());
    let wanted = VolumeSnapshotStatus {
        bound_volume_snapshot_content_name: name,
        creation_time: created.and_then(|time| Timestamp::from_second(time.as_second()).ok()).map(Time),
        error: there.error.clone().filter(|_| !ready),
        ready_to_use: Some(ready),
        restore_size: there.restore_size.map(|size| bytes(size.unsigned_abs())),
        volume_group_snapshot_name: old.volume_group_snapshot_name.clone(),
    };
    if wanted == old {
        return if ready { release_source(w) } else { vec![] };
    }
    let mut status = json!(wanted);
    if wanted.error.is_none() {
        status["error"] = Value::Null;
    }
    let mut actions = vec![w.patch(Part::Status, json!({"status": status}))];
    let tell = |reason, message| Note::normal(&w.seen(), Voice::Snapshotter, reason, message);
    if ready && old.ready_to_use != Some(true) {
        actions.push(tell(
            "SnapshotCreated",
            format!("Snapshot {} was successfully created by the CSI driver.", w.name()),
        ));
        actions.push(tell("SnapshotReady", format!("Snapshot {} is ready to use.", w.name())));
    }
    if let Some(error) = wanted.error.and_then(|error| error.message) {
        actions.push(Note::warning(&w.seen(), Voice::Snapshotter, "SnapshotContentCheckandUpdateFailed", error));
    }
    actions
}

/// The claim may go when no snapshot of it is being taken any more.
fn release_source(w: &World<'_>) -> Vec<Action> {
    let Some(claim) = w.claim().filter(|claim| read::has_finalizer(&claim.metadata, SOURCE_FINALIZER)) else {
        return vec![];
    };
    let own = &w.snapshot.metadata.uid;
    let others = w
        .snapshots
        .iter()
        .filter(|other| other.metadata.uid != *own && source_claim(other) == source_claim(w.snapshot));
    let busy = |other: &&Arc<VolumeSnapshot>| {
        other.metadata.deletion_timestamp.is_none()
            && other.status.as_ref().is_none_or(|status| status.ready_to_use != Some(true))
    };
    if others.into_iter().any(|other| busy(&other)) {
        return vec![];
    }
    let finalizers = read::finalizers_without(&claim.metadata, SOURCE_FINALIZER);
    let patch = json!({"metadata": {"finalizers": finalizers}});
    vec![Action::Patch { object: Seen::new(Kind::Claim, &claim.metadata), part: Part::Main, patch }]
}

fn failed(w: &World<'_>, reason: &'static str, why: &str) -> Vec<Action> {
    let told = Note::warning(&w.seen(), Voice::Snapshotter, reason, why);
    let said = w.snapshot.status.as_ref().and_then(|status| status.error.as_ref()?.message.as_deref());
    if said == Some(why) {
        return vec![told];
    }
    let status = json!({"readyToUse": false, "error": {"message": why, "time": time(w.now)}});
    vec![told, w.patch(Part::Status, json!({"status": status}))]
}

fn ending(w: &World<'_>) -> Vec<Action> {
    let metadata = &w.snapshot.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    let restores = |claim: &&Arc<PersistentVolumeClaim>| {
        matches!(data_source(claim), Some(DataSource::Snapshot(source)) if source == name)
            && read::volume_name(claim).is_none()
            && claim.metadata.deletion_timestamp.is_none()
            && class_of(claim).is_some_and(|class| !class.is_empty())
            && read::has_finalizer(&claim.metadata, crate::PROVISIONING_FINALIZER)
    };
    if w.claims.iter().any(|claim| restores(&claim)) {
        let message = "Snapshot is being used to restore a PVC";
        return vec![Note::normal(&w.seen(), Voice::Snapshotter, "SnapshotDeletePending", message)];
    }
    if let Some(content) = w.content.filter(|content| w.is_ours(content) && content.spec.deletion_policy == "Delete") {
        let object = Seen::new(Kind::Content, &content.metadata);
        if read::annotation(&content.metadata, BEING_DELETED).is_none() {
            let patch = json!({"metadata": {"annotations": {BEING_DELETED: "yes"}}});
            return vec![Action::Patch { object, part: Part::Main, patch }];
        }
        return match content.metadata.deletion_timestamp {
            None => vec![Action::Delete(object)],
            Some(_) => vec![], // until it is gone
        };
    }
    let mut actions = release_source(w);
    let ours = |finalizer: &&String| [AS_SOURCE_FINALIZER, BOUND_FINALIZER].contains(&finalizer.as_str());
    let all = metadata.finalizers.as_deref().unwrap_or_default();
    if all.iter().any(|finalizer| ours(&finalizer)) {
        let kept: Vec<&String> = all.iter().filter(|finalizer| !ours(finalizer)).collect();
        actions.push(w.patch(Part::Main, json!({"metadata": {"finalizers": kept}})));
    }
    actions
}

impl ContentWorld<'_> {
    fn seen(&self) -> Seen {
        Seen::new(Kind::Content, &self.content.metadata)
    }

    fn handle(&self) -> Option<&str> {
        let status = self.content.status.as_ref().and_then(|status| status.snapshot_handle.as_deref());
        status.or(self.content.spec.source.snapshot_handle.as_deref())
    }

    fn confirm_no_snapshot(&self) -> Action {
        let reference = &self.content.spec.volume_snapshot_ref;
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let (namespace, name, uid) = (text(&reference.namespace), text(&reference.name), text(&reference.uid));
        Action::ConfirmGone { kind: Kind::Snapshot, namespace, name, uid }
    }

    /// The name of the request to the storage.
    fn request(&self) -> Option<String> {
        let uid = self.content.spec.volume_snapshot_ref.uid.as_deref().filter(|uid| !uid.is_empty())?;
        Some(format!("snapshot-{uid}"))
    }
}

/// What to do next about a content.
pub fn decide_content(w: &ContentWorld<'_>) -> Vec<Action> {
    let metadata = &w.content.metadata;
    if w.content.spec.driver != DRIVER {
        return vec![];
    }
    let reference = &w.content.spec.volume_snapshot_ref;
    let uid = reference.uid.as_deref().unwrap_or_default();
    let snapshot = w.snapshot.filter(|snapshot| uid.is_empty() || snapshot.metadata.uid.as_deref() == Some(uid));
    if metadata.deletion_timestamp.is_some() {
        return content_ending(w, snapshot);
    }
    if !read::has_finalizer(metadata, CONTENT_FINALIZER) {
        let finalizers = read::finalizers_with(metadata, CONTENT_FINALIZER);
        let patch = json!({"metadata": {"finalizers": finalizers}});
        return vec![Action::Patch { object: w.seen(), part: Part::Main, patch }];
    }
    if snapshot.is_none() && !uid.is_empty() && w.content.spec.deletion_policy == "Delete" {
        return vec![w.confirm_no_snapshot(), Action::Delete(w.seen())];
    }
    if w.content.status.as_ref().is_some_and(|status| status.ready_to_use == Some(true)) {
        return vec![];
    }
    match (w.handle(), &w.content.spec.source.volume_handle, w.request()) {
        (Some(handle), ..) => vec![Action::InspectSnapshot { content: w.seen(), handle: handle.to_owned() }],
        (None, Some(source), Some(name)) => {
            vec![Action::TakeSnapshot { content: w.seen(), name, source: source.clone() }]
        }
        _ => vec![],
    }
}

fn content_ending(w: &ContentWorld<'_>, snapshot: Option<&VolumeSnapshot>) -> Vec<Action> {
    if snapshot.is_some_and(|snapshot| snapshot.metadata.deletion_timestamp.is_none()) {
        return vec![]; // the VolumeSnapshot holds it
    }
    if !read::has_finalizer(&w.content.metadata, CONTENT_FINALIZER) {
        return vec![];
    }
    // A snapshot that is on its way out goes after its content.
    let mut actions = if snapshot.is_none() { vec![w.confirm_no_snapshot()] } else { vec![] };
    if w.content.spec.deletion_policy == "Delete" {
        match (w.handle(), w.request()) {
            (Some(handle), _) => {
                actions.push(Action::RemoveSnapshot { content: w.seen(), handle: handle.to_owned() });
            }
            (None, Some(name)) => actions.push(Action::UntakeSnapshot { name }),
            (None, None) => {}
        }
    }
    let finalizers = read::finalizers_without(&w.content.metadata, CONTENT_FINALIZER);
    let patch = json!({"metadata": {"finalizers": finalizers}});
    actions.push(Action::Patch { object: w.seen(), part: Part::Main, patch });
    actions
}

/// A snapshot is in the storage: what its content says from now on.
pub fn taken(content: &Seen, handle: &str, created: i64, size: u64) -> Action {
    let status = json!({
        "snapshotHandle": handle, "creationTime": created, "restoreSize": size, "readyToUse": true, "error": null,
    });
    Action::Patch { object: content.clone(), part: Part::Status, patch: json!({"status": status}) }
}

/// The storage has refused a snapshot.
pub fn not_taken(content: &VolumeSnapshotContent, why: &str, now: Timestamp) -> Vec<Action> {
    let seen = Seen::new(Kind::Content, &content.metadata);
    let name = content.metadata.name.as_deref().unwrap_or_default();
    let message = match &content.spec.source.volume_handle {
        Some(handle) => format!(
            "Failed to check and update snapshot content: failed to take snapshot of the volume {handle}: {why:?}"
        ),
        None => format!("Failed to check and update snapshot content {name}: {why}"),
    };
    let told = Note::warning(&seen, Voice::Provisioner, "SnapshotContentCheckandUpdateFailed", message.as_str());
    let said = content.status.as_ref().and_then(|status| status.error.as_ref()?.message.as_deref());
    if said == Some(message.as_str()) {
        return vec![told];
    }
    let status = json!({"readyToUse": false, "error": {"message": message, "time": time(now)}});
    vec![told, Action::Patch { object: seen, part: Part::Status, patch: json!({"status": status}) }]
}

/// The storage has not removed a snapshot.
pub fn not_removed(content: &Seen, why: &str) -> Note {
    let message = format!("Failed to delete snapshot: {why}");
    Note { about: content.clone(), from: Voice::Provisioner, warning: true, reason: "SnapshotDeleteError", message }
}
