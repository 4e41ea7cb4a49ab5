//! The status of a DataVolume: conditions, and the events that tell of its changes.

use api::cdi::{self, Condition, DataVolumePhase, DataVolumeStatus};
use api::v1::ConditionStatus;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::meta;

use crate::note::Note;
use crate::transfer::{FULL_PROGRESS, UNKNOWN_PROGRESS};
use crate::words::{keys, reasons};

/// What the status is made of.
pub(crate) struct Look<'a> {
    pub(crate) phase: DataVolumePhase,
    pub(crate) claim: Option<&'a PersistentVolumeClaim>,
    /// Why there is no claim: reason and message of the condition `Bound`.
    pub(crate) unbound: Option<(&'a str, &'a str)>,
    /// Why nothing runs, where no claim could tell.
    pub(crate) stopped: Option<(&'a str, &'a str)>,
    pub(crate) progress: Option<String>,
}

/// The status that follows on `old`.
pub(crate) fn status(old: &DataVolumeStatus, look: Look<'_>, now: Timestamp) -> DataVolumeStatus {
    let Look { phase, claim, unbound, stopped, progress } = look;
    let mut status = old.clone();
    if let Some(claim) = claim {
        status.claim_name = claim.metadata.name.clone();
        let restarts = meta::annotation(&claim.metadata, keys::RESTARTS).and_then(|text| text.parse::<i32>().ok());
        // Zero is left out, as upstream writes it.
        status.restart_count = restarts.filter(|restarts| *restarts >= 0).or(status.restart_count).filter(|n| *n > 0);
    }
    let done = phase == DataVolumePhase::Succeeded;
    status.progress = match progress {
        _ if done => Some(FULL_PROGRESS.to_owned()),
        Some(progress) => Some(progress),
        None => status.progress.or_else(|| Some(UNKNOWN_PROGRESS.to_owned())),
    };
    let [bound, running] = [bound(claim, unbound), running(claim, stopped)];
    let ready_reason = match (&running.status, unbound) {
        (ConditionStatus::True, _) if !done => (reasons::TRANSFER_RUNNING, ""),
        (_, Some((reason, message))) if !done => (reason, message),
        _ => ("", ""),
    };
    let ready = Words {
        status: match phase {
            DataVolumePhase::Succeeded => ConditionStatus::True,
            DataVolumePhase::Unknown => ConditionStatus::Unknown,
            _ => ConditionStatus::False,
        },
        reason: ready_reason.0.to_owned(),
        message: ready_reason.1.to_owned(),
    };
    for (type_, words) in
        [(cdi::CONDITION_BOUND, bound), (cdi::CONDITION_READY, ready), (cdi::CONDITION_RUNNING, running)]
    {
        set(&mut status.conditions, type_, words, now);
    }
    status.phase = Some(phase);
    status
}

struct Words {
    status: ConditionStatus,
    reason: String,
    message: String,
}

fn words(status: ConditionStatus, reason: &str, message: impl Into<String>) -> Words {
    Words { status, reason: reason.to_owned(), message: message.into() }
}

fn bound(claim: Option<&PersistentVolumeClaim>, unbound: Option<(&str, &str)>) -> Words {
    let Some(claim) = claim else {
        let (reason, message) = unbound.unwrap_or((reasons::NOT_FOUND, "No PVC found"));
        return words(ConditionStatus::False, reason, message);
    };
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    match claim.status.as_ref().and_then(|status| status.phase.as_deref()) {
        Some("Bound") => words(ConditionStatus::True, reasons::BOUND, format!("PVC {name} Bound")),
        Some("Pending") => words(ConditionStatus::False, reasons::PENDING, format!("PVC {name} Pending")),
        Some("Lost") => words(ConditionStatus::False, reasons::CLAIM_LOST, "Claim Lost"),
        _ => words(ConditionStatus::False, "", ""),
    }
}

fn running(claim: Option<&PersistentVolumeClaim>, stopped: Option<(&str, &str)>) -> Words {
    if let Some((reason, message)) = stopped {
        return words(ConditionStatus::False, reason, message);
    }
    let noted = |key| claim.and_then(|claim| meta::annotation(&claim.metadata, key)).unwrap_or_default();
    let status = match noted(keys::RUNNING) {
        "true" => ConditionStatus::True,
        _ => ConditionStatus::False,
    };
    words(status, noted(keys::RUNNING_REASON), noted(keys::RUNNING_MESSAGE))
}

/// Sets a condition. Its times change only if it does.
pub(crate) fn set_condition(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: ConditionStatus,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    set(conditions, type_, words(status, reason, message), now);
}

fn set(conditions: &mut Vec<Condition>, type_: &str, words: Words, now: Timestamp) {
    let now = Some(Time(whole_seconds(now)));
    let Words { status, reason, message } = words;
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let (reason, message) = (some(reason), some(message));
    let index = conditions.iter().position(|condition| condition.type_ == type_);
    let old = index.map(|index| &conditions[index]);
    let changed = old.is_none_or(|old| old.status != status);
    if old.is_some_and(|old| !changed && old.reason == reason && old.message == message) {
        return;
    }
    let last_transition_time = if changed { now.clone() } else { old.and_then(|old| old.last_transition_time.clone()) };
    let condition =
        Condition { last_heartbeat_time: now, last_transition_time, message, reason, status, type_: type_.to_owned() };
    match index {
        Some(index) => conditions[index] = condition,
        None => conditions.push(condition),
    }
}

/// The API stores whole seconds; a finer time would not survive a round trip.
fn whole_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// The events that tell how a status became another. `arrival` is what the phase's arrival is told with.
pub(crate) fn told(old: &DataVolumeStatus, new: &DataVolumeStatus, arrival: Option<Note>) -> Vec<Note> {
    let of = |status: &DataVolumeStatus, type_: &str| {
        status.conditions.iter().find(|condition| condition.type_ == type_).cloned().unwrap_or_default()
    };
    let differs = |old: &Condition, new: &Condition| {
        (&old.status, &old.reason, &old.message) != (&new.status, &new.reason, &new.message)
    };
    let mut notes: Vec<Note> = arrival.into_iter().filter(|_| old.phase != new.phase).collect();
    let (bound, running) = (of(new, cdi::CONDITION_BOUND), of(new, cdi::CONDITION_RUNNING));
    if differs(&of(old, cdi::CONDITION_BOUND), &bound)
        && let (Some(reason), Some(message)) = (&bound.reason, &bound.message)
    {
        notes.push(Note::normal(reason, message));
    }
    let failed = running.status == ConditionStatus::False
        && of(new, cdi::CONDITION_READY).status == ConditionStatus::False
        && bound.status == ConditionStatus::True;
    if failed
        && of(old, cdi::CONDITION_RUNNING).message != running.message
        && let (Some(reason), Some(message)) = (&running.reason, &running.message)
    {
        notes.push(Note::warning(reason, message));
    }
    notes
}
