//! # Expected flow
//!
//! ```text
//!  heartbeat old, or no Node ──► live look ──► still so ──► label schedulable=false
//!                                    │                          │
//!                                    └─ it answers: nothing     ├─ instance with an alive Pod: left alone
//!                                                               └─ without: phase Failed, reason NodeUnresponsive
//! ```
//!
//! virt-handler writes a heartbeat into an annotation of its node once a minute. A node without a heartbeat for five
//! minutes, or whose object is gone, becomes unschedulable for new guests. Its guests may still be running: only VMIs
//! whose launcher Pod has ended as well are failed, so that their VMs can start elsewhere.
//!
//! # Guarantees
//!
//! - A VMI is failed only if live reads find the node unresponsive or gone *and* no live Pod of the VMI on it, nor the
//!   target of a migration that may have taken over the guest.
//! - A VMI that waits to receive a guest is not failed: the VMI controller lets it wait again.
//! - Every write tests its preconditions: the label is left alone if the node was written meanwhile (possibly by a
//!   heartbeat), the phase if anybody else changed it.
//! - An unresponsive node is checked every minute while it exists or has VMIs.
//!
//! # Assumptions
//!
//! The label `kubevirt.io/nodeName` of a VMI names the node that its guest is on; launcher Pods carry
//! `kubevirt.io/created-by`. A node without the annotation has never run virt-handler and counts as responsive.
//!
//! # Caveats
//!
//! There is no fencing. As long as the API shows a launcher Pod as running, its guest may write to its disks, and the
//! VMI stays; the wait ends when the kubelet or the Pod garbage collector reports the Pod's end.

use std::time::Duration;

use api::v1::{VirtualMachineInstance, VirtualMachineInstancePhase as Phase};
use api::{annotations, labels, reasons};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::meta::{annotation, is_controlled_by, label};
use serde_json::json;

use super::action::{Action, Own};
use super::topology::is_schedulable;
use super::world::{Agents, Live, World};
use crate::effect::{Part, Patch, reference};
use crate::guard::Guarded;
use crate::object::Kind;
use crate::{Note, flight, meta, pods};

/// A node without a heartbeat for this long is unresponsive.
const HEARTBEAT_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);
/// How often nodes are checked.
const RECHECK: Duration = Duration::from_secs(60);

/// Whether the node's virt-handler is unresponsive, or the node is gone. Only then does it matter what runs there.
pub fn is_silent(node: Option<&Node>, now: &Time) -> bool {
    is_responsive(node, now) == Ok(false)
}

/// Decides what to do about one node, based on the caches.
pub fn decide(w: &World) -> Vec<Action> {
    let again = (w.node.is_some() || !w.vmis.is_empty()).then_some(Action::RequeueAfter(RECHECK));
    match is_responsive(w.node.as_deref(), &w.now) {
        Ok(true) => again.into_iter().collect(),
        Ok(false) => {
            let at_stake = w.node.as_deref().is_some_and(is_schedulable) || w.vmis.iter().any(|vmi| is_active(vmi));
            at_stake.then_some(Action::Own(Own::LookLive)).into_iter().chain(again).collect()
        }
        // The next write to the node requeues it.
        Err(unreadable) => vec![Action::Own(Own::Warn(unreadable))],
    }
}

/// Decides what to do about the node after it was read live.
pub fn judge(w: &World, live: &Live) -> Vec<Action> {
    match is_responsive(live.node.as_ref(), &w.now) {
        Ok(true) => return vec![], // the cache is stale
        Ok(false) => {}
        Err(unreadable) => return vec![Action::Own(Own::Warn(unreadable))],
    }
    let mut actions = live.node.as_ref().map(keep_guests_away).unwrap_or_default();
    let on_node = |vmi: &&VirtualMachineInstance| label(&vmi.metadata, labels::NODE_NAME) == Some(&w.name);
    let vmis: Vec<_> = live.vmis.iter().filter(on_node).filter(|vmi| is_active(vmi)).collect();
    if vmis.is_empty() {
        return actions;
    }
    if live.node.is_some() && lacks_agent(&w.name, &live.agents) {
        let message = "virt-handler is not present and will not come, and there are virtual machine instances on this \
                       node. Let virt-handler run here again, or delete them.";
        actions.push(Action::Note(Note::warning(reasons::NODE_UNRESPONSIVE, message)));
    }
    // A migrating guest may have arrived: its target must be resolved first.
    let lost = vmis.into_iter().filter(|vmi| {
        !live.pods.iter().any(|pod| is_alive(pod, &w.name, vmi)) && flight::landing(vmi, &live.pods).is_none()
    });
    actions.extend(lost.flat_map(|vmi| fail(vmi, &w.name)));
    actions
}

/// Whether the node's heartbeat is recent. An error if the annotation is not a valid time.
fn is_responsive(node: Option<&Node>, now: &Time) -> Result<bool, String> {
    let Some(node) = node else { return Ok(false) };
    let Some(heartbeat) = annotation(&node.metadata, annotations::HEARTBEAT) else { return Ok(true) };
    let last: Timestamp = heartbeat
        .parse()
        .map_err(|error| format!("annotation {} is not a time: {heartbeat:?}: {error}", annotations::HEARTBEAT))?;
    Ok(now.0.duration_since(last) <= HEARTBEAT_TIMEOUT)
}

/// virt-handler owns the VMI in these phases: if it is gone, nothing else will end the VMI. A VMI that waits to receive
/// a guest loses nothing with its node: without its Pod it waits again, and the guest keeps running on the source.
fn is_active(vmi: &VirtualMachineInstance) -> bool {
    match vmi.phase() {
        Some(Phase::Scheduled) => !vmi.receives(),
        Some(Phase::Running) => true,
        _ => false,
    }
}

fn keep_guests_away(node: &Node) -> Vec<Action> {
    if !is_schedulable(node) {
        return vec![];
    }
    let guards = (&node.metadata.uid, &node.metadata.resource_version);
    let patch = json!({"metadata": {"uid": guards.0, "resourceVersion": guards.1,
                                    "labels": {labels::SCHEDULABLE: "false"}}});
    let message = "virt-handler is not responsive, marking node as unresponsive";
    let note = Note::normal(reasons::NODE_UNRESPONSIVE, message);
    let patch = Action::Patch {
        kind: Kind::Node,
        namespace: None,
        name: meta::name(&node.metadata).to_owned(),
        part: Part::Object,
        patch: Patch::Strategic(patch),
        why: "virt-handler on the node has stopped reporting".into(),
    };
    vec![patch, Action::Note(note)]
}

/// No virt-handler runs on the node, and none is starting.
fn lacks_agent(node: &str, agents: &Agents) -> bool {
    let present = agents.pods.iter().any(|pod| pods::node_name(pod) == Some(node));
    !present && matches!(agents.daemon_sets.as_slice(), [one] if is_settled(one))
}

fn is_settled(set: &DaemonSet) -> bool {
    set.status.as_ref().is_some_and(|status| {
        let wanted = status.desired_number_scheduled;
        status.current_number_scheduled == wanted || status.number_ready == wanted
    })
}

/// Whether the guest may run in this Pod: it belongs to the VMI, is on this node, and has not ended.
fn is_alive(pod: &Pod, node: &str, vmi: &VirtualMachineInstance) -> bool {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let mut states = containers.map(|c| c.state.as_ref().is_some_and(|state| state.terminated.is_some())).peekable();
    // A Pod may be stuck in termination without virt-handler, with every container gone.
    let ended = states.peek().is_some() && states.all(|terminated| terminated);
    let ours = pod.metadata.namespace == vmi.metadata.namespace
        && is_controlled_by(&pod.metadata, meta::uid(&vmi.metadata))
        && pods::node_name(pod) == Some(node);
    ours && !ended && !pods::is_down(pod)
}

fn fail(vmi: &VirtualMachineInstance, node: &str) -> Vec<Action> {
    let status = vmi.status.clone().unwrap_or_default();
    let patch = Guarded::new(&vmi.metadata)
        .field(&["status", "phase"], &status.phase, &Some(Phase::Failed))
        .field(&["status", "reason"], &status.reason, &Some(reasons::NODE_UNRESPONSIVE.to_owned()))
        .build();
    let message = format!("virt-handler on node {node} is not responsive, marking VMI as failed");
    let about = Box::new(reference::<VirtualMachineInstance>(&vmi.metadata));
    let note = Action::NoteAbout(about, Note::normal(reasons::NODE_UNRESPONSIVE, message));
    let why = "virt-handler on its node has stopped reporting, and its Pod has ended";
    let patch = patch.map(|patch| Action::patch_at(Kind::Vmi, &vmi.metadata, patch, why));
    patch.into_iter().chain([note]).collect()
}
