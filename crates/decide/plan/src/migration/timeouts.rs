//! The timeouts of a migration, and the back-off before the next attempt.

use std::cmp::Reverse;
use std::time::Duration;

use api::v1::VirtualMachineInstance;
use api::v1::VirtualMachineInstanceMigration as Migration;
use api::v1::VirtualMachineInstanceMigrationPhase as Phase;
use api::{annotations, conditions, events, labels, reasons};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::action::{Action, note_vmi};
use super::kinds::{self, RUNNING_PRIORITY};
use super::sync::{Sync, Waiting, delete};
use super::world::World;
use crate::{Note, meta, pods};

/// Seconds that a target Pod may be unschedulable.
const UNSCHEDULABLE: i64 = 300;
/// Seconds that a target Pod may be pending for any reason.
const PENDING: i64 = 900;
/// Seconds that utility volumes may delay a migration, unless the cluster configures another value.
const UTILITY_VOLUMES: i64 = 150;
/// Back-off in seconds after the first failure; each further failure doubles it.
const FIRST_BACKOFF: i64 = 20;
/// Enough doublings for years.
const MOST_DOUBLINGS: u32 = 24;

/// A timeout in seconds, and who configured it.
struct Limit {
    seconds: i64,
    annotation: &'static str,
}

fn limit(migration: &Migration, annotation: &'static str, default: i64) -> Limit {
    let own = meta::annotation(&migration.metadata, annotation).and_then(|text| text.parse::<i64>().ok());
    Limit { seconds: own.filter(|seconds| *seconds >= 0).unwrap_or(default), annotation }
}

/// What is left of a timeout that started at some time; `None` if it has expired.
fn left(w: &World, since: Option<&Time>, seconds: i64) -> Option<Duration> {
    let since = since.map_or(w.now.0, |since| since.0);
    let end = since.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(jiff::Timestamp::MAX);
    Duration::try_from(end.duration_since(w.now.0)).ok().filter(|left| !left.is_zero())
}

/// A target Pod that does not run yet: how long the migration waits, and for what.
pub(super) fn pending_pod(w: &World, vmi: &VirtualMachineInstance, pod: &Pod) -> Sync {
    if !pods::is_pending(pod) {
        let message = format!("target Pod {} has not started all of its containers", meta::name(&pod.metadata));
        return Sync::waiting(reasons::TARGET_POD_PENDING, message);
    }
    let created = pod.metadata.creation_timestamp.as_ref();
    let general = limit(&w.migration, annotations::MIGRATION_PENDING_POD_TIMEOUT, PENDING);
    let scheduler = pods::condition(pod, conditions::POD_SCHEDULED).filter(|c| c.status == "False");
    let unschedulable = scheduler.filter(|c| c.reason.as_deref() == Some(reasons::UNSCHEDULABLE));
    let special = limit(&w.migration, annotations::MIGRATION_UNSCHEDULABLE_POD_TIMEOUT, UNSCHEDULABLE);
    let name = meta::name(&pod.metadata);
    let (limits, waiting) = match unschedulable {
        Some(condition) => {
            let why = condition.message.as_deref().unwrap_or("the scheduler gave no message");
            let message = format!("no node fits target Pod {name}: {why}");
            (vec![special, general], Waiting::new(reasons::TARGET_POD_UNSCHEDULABLE, message))
        }
        None => {
            let why =
                pods::blocked_container(pod).map_or_else(String::new, |(reason, why)| format!(": {reason}: {why}"));
            let message = format!("target Pod {name} has not started{why}");
            (vec![general], Waiting::new(reasons::TARGET_POD_PENDING, message))
        }
    };
    if let Some(over) = limits.iter().find(|limit| left(w, created, limit.seconds).is_none()) {
        let message = format!(
            "{} within {} seconds (annotation {} on the migration changes that)",
            waiting.message, over.seconds, over.annotation
        );
        let actions = delete(pod, "it has not started in time");
        return Sync { expired: Some(message), ..Sync::doing(actions) };
    }
    let next = limits.iter().filter_map(|limit| left(w, created, limit.seconds)).min().unwrap_or_default();
    let mut sync = Sync { waiting: Some(waiting), ..Sync::default() }.again(next, RUNNING_PRIORITY);
    if unschedulable.is_some() && !shows(w, sync.waiting.as_ref()) {
        let message = sync.waiting.as_ref().map(|waiting| waiting.message.clone()).unwrap_or_default();
        sync.actions.push(Action::Note(Note::warning(events::MIGRATION_TARGET_POD_UNSCHEDULABLE, message)));
        sync.actions.extend(no_other_cpu(w, vmi));
    }
    sync
}

/// Whether the migration already reports this wait.
fn shows(w: &World, waiting: Option<&Waiting>) -> bool {
    let list = w.migration.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let shown = conditions::find(list, conditions::MIGRATION_WAITING);
    shown.is_some_and(|shown| waiting.is_some_and(|w| shown.reason() == w.reason && shown.message() == w.message))
}

/// A guest with its host's CPU model needs a node that can run that model.
fn no_other_cpu(w: &World, vmi: &VirtualMachineInstance) -> Option<Action> {
    let model = vmi.spec.domain.cpu.as_ref().and_then(|cpu| cpu.model.as_deref());
    let own = vmi.status.as_ref().and_then(|status| status.node_name.as_deref()).unwrap_or_default();
    let source = w.nodes.iter().find(|node| meta::name(&node.metadata) == own)?;
    let keys = |node: &Node| node.metadata.labels.clone().unwrap_or_default();
    let of_source = keys(source);
    let host = of_source.keys().find_map(|key| key.strip_prefix(labels::HOST_MODEL_CPU_PREFIX))?;
    let wanted = format!("{}{host}", labels::CPU_MODEL_MIGRATION_PREFIX);
    let fits = |node: &&std::sync::Arc<Node>| meta::name(&node.metadata) != own && keys(node).contains_key(&wanted);
    let message = format!("no other node can run guests with the CPU model {host} of node {own}");
    let note = Note::warning(events::NO_SUITABLE_NODES_FOR_HOST_MODEL_MIGRATION, message);
    (model == Some("host-model") && w.nodes.iter().find(fits).is_none()).then(|| note_vmi(w, note))
}

/// The Pod with the plugged volumes is not up yet.
pub(super) fn pending_attachment(w: &World) -> Sync {
    match w.attachment() {
        Some(pod) if !pods::is_single_container_ready(pod) => {
            let message =
                format!("Pod {} with the plugged volumes is not up on the target node", meta::name(&pod.metadata));
            Sync::waiting(reasons::TARGET_POD_PENDING, message)
        }
        _ => Sync::default(),
    }
}

/// Utility volumes serve the system, not the guest; a migration waits some time for them to be detached.
pub(super) fn utility_volumes(w: &World) -> Sync {
    let configured = w.config.migrations().utility_volumes_timeout.unwrap_or(UTILITY_VOLUMES);
    let limit = limit(&w.migration, annotations::MIGRATION_UTILITY_VOLUMES_TIMEOUT, configured);
    match left(w, w.migration.metadata.creation_timestamp.as_ref(), limit.seconds) {
        Some(left) => Sync::default().again(left, RUNNING_PRIORITY),
        None => Sync {
            expired: Some(format!(
                "utility volumes were not gone within {} seconds (annotation {} on the migration changes that)",
                limit.seconds, limit.annotation
            )),
            ..Sync::default()
        },
    }
}

/// Automatic migrations that keep failing are retried with exponential back-off. A user's migrations are not delayed.
pub(super) fn backoff(w: &World) -> Option<Sync> {
    let ignored = meta::annotation(&w.migration.metadata, annotations::IGNORE_MIGRATION_BACKOFF).is_some();
    if !kinds::is_automatic(&w.migration) || ignored || w.target().is_some() {
        return None;
    }
    let mut all: Vec<&Migration> =
        w.siblings.iter().map(AsRef::as_ref).filter(|sibling| kinds::is_automatic(sibling)).collect();
    // Times have no fractions: of two that were created within a second, the one that has ended is the earlier.
    let age = |m: &&Migration| (m.metadata.creation_timestamp.clone(), !m.is_final(), m.metadata.name.clone());
    all.sort_by_key(|m| Reverse(age(m)));
    if all.first().is_none_or(|newest| meta::uid(&newest.metadata) != w.uid()) {
        return None;
    }
    let recent = all[1..].iter().take_while(|m| m.phase() != Some(&Phase::Succeeded));
    let failed: Vec<&&Migration> =
        recent.filter(|m| !kinds::was_given_up(m) && m.phase() == Some(&Phase::Failed)).collect();
    let last = kinds::reached(failed.first()?, &Phase::Failed)?;
    let doublings = u32::try_from(failed.len() - 1).unwrap_or(MOST_DOUBLINGS).min(MOST_DOUBLINGS);
    let seconds = FIRST_BACKOFF << doublings;
    let left = left(w, Some(&last), seconds)?;
    let message =
        format!("{} earlier migrations failed; the next attempt waits {seconds} seconds after the last", failed.len());
    let mut wait = Sync::waiting(reasons::MIGRATION_BACKOFF, message.clone()).again(left, RUNNING_PRIORITY);
    if !shows(w, wait.waiting.as_ref()) {
        wait.actions.push(note_vmi(w, Note::warning(events::MIGRATION_BACKOFF, message)));
    }
    Some(wait)
}
