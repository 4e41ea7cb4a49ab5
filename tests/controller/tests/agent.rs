//! A stand-in for the node agent: starts guests as soon as they are handed over, ends them when they are deleted, and moves
//! them when a migration says so.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::v1::VirtualMachineInstanceMigrationState as State;
use api::v1::{Between, Condition, ConditionStatus, MigrationAbortStatus};
use api::v1::{VirtualMachineInstance, VirtualMachineInstancePhase as Phase, VolumePhase};
use api::{annotations, conditions, labels};
use informer::{Classify, ErrorClass, Informer, Key, Requeue, Store, WorkQueue, run_workers};
use jiff::{Timestamp, Unit};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use kube::api::{Api, PostParams};
use machinery::meta::annotation;
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::{CancellationToken, DropGuard};

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Failed(#[from] kube::Error);

impl Classify for Failed {
    fn class(&self) -> ErrorClass {
        ErrorClass::Conflict
    }
}

/// A guest on its way stays there as long as its instance has this annotation.
pub(crate) const TRAVELS: &str = "test/travels";

/// The agent of one node, until it goes.
pub(crate) struct Agent {
    _stop: DropGuard,
}

impl Agent {
    pub(crate) fn start(client: Client, node: &str) -> Self {
        let stop = CancellationToken::new();
        follow(client.clone(), labels::NODE_NAME, node, stop.clone(), of_its_own);
        follow(client, labels::MIGRATION_TARGET_NODE_NAME, node, stop.clone(), incoming);
        Self { _stop: stop.drop_guard() }
    }
}

/// What an instance becomes next, on a node; none if it stays as it is.
type Step = fn(&VirtualMachineInstance, &str) -> Option<VirtualMachineInstance>;

/// Takes steps with the instances whose label names the node.
fn follow(client: Client, label: &str, node: &str, stop: CancellationToken, step: Step) {
    let informer = Informer::new().labels(&format!("{label}={node}"));
    let vmis: Store<VirtualMachineInstance> = informer.start(Api::all(client.clone()), stop.clone());
    let queue = WorkQueue::new("agent");
    vmis.feed(&queue);
    let node = node.to_owned();
    tokio::spawn(run_workers(queue, 4, stop, move |key: Key| {
        let api: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), &key.namespace);
        let new = vmis.get(&key).and_then(|vmi| step(&vmi, &node));
        async move {
            if let Some(new) = new {
                api.replace(&key.name, &PostParams::default(), &new).await?;
            }
            Ok::<_, Failed>(Requeue::No)
        }
    }));
}

fn now() -> Time {
    Time(Timestamp::now().round(Unit::Second).unwrap())
}

fn set_phase(vmi: &mut VirtualMachineInstance, phase: Phase) {
    let entered = json!({"phase": phase, "phaseTransitionTimestamp": now()});
    let status = vmi.status_mut();
    status.phase_transition_timestamps.push(serde_json::from_value(entered).unwrap());
    if phase == Phase::Running {
        let movable = json!({"type": api::conditions::LIVE_MIGRATABLE, "status": "True"});
        status.conditions.push(serde_json::from_value(movable).unwrap());
    }
    status.phase = Some(phase);
}

fn state_of(vmi: &VirtualMachineInstance) -> Option<&State> {
    vmi.status.as_ref()?.migration_state.as_ref().filter(|state| state.migration_uid.is_some())
}

fn is_over(state: &State) -> bool {
    state.completed == Some(true) || state.failed == Some(true)
}

/// Whether the instance gets its guest from another one, and has not got it yet.
fn receives(vmi: &VirtualMachineInstance) -> bool {
    annotation(&vmi.metadata, annotations::CREATE_MIGRATION_TARGET) == Some("true")
}

fn of_its_own(vmi: &VirtualMachineInstance, node: &str) -> Option<VirtualMachineInstance> {
    let going = vmi.is_marked_for_deletion();
    let sent = state_of(vmi).is_some_and(|state| {
        state.between() == Some(Between::Sends) && state.end_timestamp.is_some() && state.failed != Some(true)
    });
    let phase = match vmi.phase() {
        Some(Phase::Scheduled) if !going && !receives(vmi) => Phase::Running,
        Some(Phase::Running) if sent => Phase::Succeeded,
        Some(Phase::Scheduled | Phase::Running) if going => Phase::Succeeded,
        _ => return unplugged(vmi).or_else(|| outgoing(vmi, node)),
    };
    let mut new = vmi.clone();
    set_phase(&mut new, phase.clone());
    let status = new.status_mut();
    status.selinux_context = Some("none".to_owned()); // a target Pod gets the same
    if phase == Phase::Running {
        let movable = Condition::new(conditions::LIVE_MIGRATABLE, ConditionStatus::True, "", "", now());
        conditions::set(&mut status.conditions, movable);
    }
    Some(new)
}

/// The guest lets go of volumes as soon as they are to be unplugged.
fn unplugged(vmi: &VirtualMachineInstance) -> Option<VirtualMachineInstance> {
    let mut new = vmi.clone();
    let mut changed = false;
    for volume in new.status.iter_mut().flat_map(|status| &mut status.volume_status) {
        let wanted = vmi.spec.volumes.iter().any(|one| one.name == volume.name);
        if !wanted && volume.hotplug_volume.is_some() && volume.phase == Some(VolumePhase::AttachedToNode) {
            volume.phase = Some(VolumePhase::UnMountedFromPod);
            changed = true;
        }
    }
    changed.then_some(new)
}

/// The guest leaves as soon as somebody waits for it, and stays if it is asked to.
fn outgoing(vmi: &VirtualMachineInstance, node: &str) -> Option<VirtualMachineInstance> {
    let state = state_of(vmi).filter(|state| !is_over(state) && state.end_timestamp.is_none())?;
    if state.source_node.as_deref() != Some(node) || state.target_node_address.is_none() {
        return None;
    }
    let mut new = vmi.clone();
    let changed = new.status_mut().migration_state.as_mut()?;
    if state.abort_requested == Some(true) && state.start_timestamp.is_some() {
        (changed.failed, changed.completed, changed.end_timestamp) = (Some(true), Some(true), Some(now()));
        changed.abort_status = Some(MigrationAbortStatus::Succeeded);
        changed.failure_reason = Some("Live migration has been aborted".to_owned());
        return Some(new);
    }
    if state.start_timestamp.is_some() {
        return None;
    }
    changed.start_timestamp = Some(now());
    Some(new)
}

/// The node waits for a guest, takes it, and is its owner then.
fn incoming(vmi: &VirtualMachineInstance, node: &str) -> Option<VirtualMachineInstance> {
    let state = state_of(vmi).filter(|state| state.target_node.as_deref() == Some(node))?;
    let mut new = vmi.clone();
    let arrived = state.end_timestamp.is_some();
    if arrived || is_over(state) {
        new.metadata.labels.get_or_insert_default().remove(labels::MIGRATION_TARGET_NODE_NAME);
    }
    if arrived && !is_over(state) {
        new.metadata.annotations.get_or_insert_default().remove(annotations::CREATE_MIGRATION_TARGET);
    }
    let received = receives(vmi);
    let changed = new.status_mut().migration_state.as_mut()?;
    if is_over(state) {
        return Some(new);
    }
    if arrived {
        changed.completed = Some(true);
        return Some(new);
    }
    if state.target_node_address.is_none() {
        let target = changed.target_state.get_or_insert_default();
        (target.node_address, changed.target_node_address) = (Some("192.0.2.1".into()), Some("192.0.2.1".into()));
        changed.target_direct_migration_node_ports = [("40000".to_owned(), 0)].into();
        return Some(new);
    }
    let travels = annotation(&vmi.metadata, TRAVELS).is_some();
    if state.start_timestamp.is_none() || state.abort_requested == Some(true) || travels {
        return None;
    }
    changed.target_node_domain_detected = Some(true);
    (changed.target_node_domain_ready_timestamp, changed.end_timestamp) = (Some(now()), Some(now()));
    let status = new.status_mut();
    (status.node_name, status.evacuation_node_name) = (Some(node.to_owned()), None);
    new.metadata.labels.get_or_insert_default().insert(labels::NODE_NAME.to_owned(), node.to_owned());
    if received {
        set_phase(&mut new, Phase::Running);
    }
    Some(new)
}

/// Counts every Pod and instance that there has ever been in a namespace.
pub(crate) struct Census {
    pods: Seen,
    vmis: Seen,
    _stop: DropGuard,
}

type Seen = Arc<Mutex<BTreeSet<String>>>;

impl Census {
    pub(crate) async fn start(client: &Client, namespace: &str) -> Self {
        let stop = CancellationToken::new();
        let pods: Store<Pod> = Informer::new().start(Api::namespaced(client.clone(), namespace), stop.clone());
        let vmis: Store<VirtualMachineInstance> =
            Informer::new().start(Api::namespaced(client.clone(), namespace), stop.clone());
        let census = Self { pods: Seen::default(), vmis: Seen::default(), _stop: stop.drop_guard() };
        let seen = census.pods.clone();
        pods.subscribe(move |change| seen.lock().extend(change.object().metadata.uid.clone()));
        let seen = census.vmis.clone();
        vmis.subscribe(move |change| seen.lock().extend(change.object().metadata.uid.clone()));
        assert!(pods.synced().await && vmis.synced().await, "the census has begun");
        census
    }

    /// How many instances, and how many Pods.
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.vmis.lock().len(), self.pods.lock().len())
    }
}
