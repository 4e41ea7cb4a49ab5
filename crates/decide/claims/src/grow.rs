//! Growth of a bound claim.
//!
//! ```text
//!   request above status.capacity ─► condition Resizing ─► engine ─► the volume's capacity ─► status.capacity
//! ```
//!
//! The capacity in the volume's spec is the record of what the storage has done, so a pass after a crash goes on from there.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use machinery::quantity::Quantity;
use serde_json::{Value, json};

use crate::action::{Action, Kind, Note, Part, Seen, Voice};
use crate::claim::World;
use crate::class::allows_growth;
use crate::provision::bytes;
use crate::read;

const RESIZING: &str = "Resizing";
const RESIZE_ERROR: &str = "ControllerResizeError";
const FILE_SYSTEM_PENDING: &str = "FileSystemResizePending";
/// The conditions that a finished growth removes.
const GROWTH: [&str; 4] = [RESIZING, RESIZE_ERROR, "NodeResizeError", FILE_SYSTEM_PENDING];

pub(crate) fn decide(w: &World<'_>, volume: &PersistentVolume) -> Vec<Action> {
    let (wanted, has) = (read::request(w.claim), read::size(w.claim).unwrap_or(Quantity::ZERO));
    let capacity = read::capacity(volume);
    if capacity > has && read::handle(volume).is_some() {
        // Also what a user no longer asks for: the storage does not shrink.
        let status = json!({
            "capacity": {"storage": bytes(capacity.value().unsigned_abs())},
            "conditions": without_growth(w.claim),
        });
        let done = w.patch(Part::Status, json!({"status": status}));
        return vec![done, w.tell(Voice::Provisioner, "VolumeResizeSuccessful", "Resize volume succeeded")];
    }
    if wanted <= has {
        return match has_condition(w.claim, &GROWTH) {
            true => vec![w.patch(Part::Status, json!({"status": {"conditions": without_growth(w.claim)}}))],
            false => vec![],
        };
    }
    let Some(handle) = read::handle(volume) else {
        let message = "waiting for an external controller to expand this PVC";
        return vec![w.tell(Voice::Binder, "ExternalExpanding", message)];
    };
    if !w.class().is_some_and(allows_growth) {
        let message = "didn't find a class of the claim that allows volumes to grow (allowVolumeExpansion)";
        return vec![w.warn(Voice::Provisioner, "VolumeResizeFailed", message)];
    }
    if !has_condition(w.claim, &[RESIZING, RESIZE_ERROR]) {
        let resizing = json!({"type": RESIZING, "status": "True", "lastTransitionTime": time(w.now)});
        let mut conditions = without_growth(w.claim);
        conditions.push(resizing);
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let message = format!("External resizer is resizing volume {name}");
        return vec![
            w.patch(Part::Status, json!({"status": {"conditions": conditions}})),
            w.tell(Voice::Provisioner, "Resizing", message),
        ];
    }
    vec![Action::Grow {
        claim: w.seen(),
        volume: Seen::new(Kind::Volume, &volume.metadata),
        handle: handle.to_owned(),
        bytes: wanted.value(),
    }]
}

/// The storage has grown a volume.
pub fn grown(volume: &Seen, capacity: u64) -> Action {
    let patch = json!({"spec": {"capacity": {"storage": bytes(capacity)}}});
    Action::Patch { object: volume.clone(), part: Part::Main, patch }
}

/// The storage has not grown a volume: what the claim says about it.
pub fn growth_failed(claim: &PersistentVolumeClaim, why: &str, now: Timestamp) -> Vec<Action> {
    let seen = Seen::new(Kind::Claim, &claim.metadata);
    let volume = read::volume_name(claim).unwrap_or_default();
    let message = format!("resize volume {volume:?} by resizer {:?} failed: {why}", crate::DRIVER);
    let told = Note::warning(&seen, Voice::Provisioner, "VolumeResizeFailed", &message);
    let said = conditions(claim)
        .iter()
        .any(|condition| condition["type"] == RESIZE_ERROR && condition["message"].as_str() == Some(why));
    if said {
        return vec![told];
    }
    let mut all: Vec<Value> =
        conditions(claim).into_iter().filter(|condition| condition["type"] != RESIZE_ERROR).collect();
    all.push(json!({"type": RESIZE_ERROR, "status": "True", "lastTransitionTime": time(now), "message": why}));
    let patch = json!({"status": {"conditions": all}});
    vec![told, Action::Patch { object: seen, part: Part::Status, patch }]
}

fn conditions(claim: &PersistentVolumeClaim) -> Vec<Value> {
    let all = claim.status.iter().flat_map(|status| status.conditions.iter().flatten());
    all.map(|condition| json!(condition)).collect()
}

fn without_growth(claim: &PersistentVolumeClaim) -> Vec<Value> {
    let others = |condition: &Value| !GROWTH.contains(&condition["type"].as_str().unwrap_or_default());
    conditions(claim).into_iter().filter(others).collect()
}

fn has_condition(claim: &PersistentVolumeClaim, types: &[&str]) -> bool {
    conditions(claim).iter().any(|condition| types.contains(&condition["type"].as_str().unwrap_or_default()))
}

pub(crate) fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
