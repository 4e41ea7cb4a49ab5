//! The hand-off: one patch of the VMI, after which virt-handler on both nodes migrates the guest.

use api::v1::{
    VirtualMachineInstance, VirtualMachineInstanceMigration as Migration, VirtualMachineInstanceMigrationState as State,
};
use api::{annotations, conditions, events, labels};
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::quantity::Quantity;

use super::action::{Action, Own, SHORTLY, requeue_after};
use super::kinds::{self, Kind, RUNNING_PRIORITY};
use super::side::Side;
use super::world::{World, is_set};
use super::{backend, decentralized, policy, status, sync};
use crate::guard::Guarded;
use crate::{Note, meta, pods};

/// The objects read live before the hand-off.
#[derive(Clone, Debug, Default)]
pub struct Live {
    pub vmi: Option<VirtualMachineInstance>,
    /// The target Pod in the cache, read by name.
    pub target: Option<Pod>,
    /// Every migration of the VMI, selected by label.
    pub migrations: Vec<Migration>,
}

/// Hands the migration off to the nodes, unless the live reads rule it out.
pub fn hand_off(w: &World, live: &Live) -> Vec<Action> {
    let mut later = vec![requeue_after(SHORTLY, RUNNING_PRIORITY)];
    if w.handed_off && live.vmi.as_ref().is_none_or(|vmi| !is_handed_off(w, vmi)) {
        later.insert(0, Action::Own(Own::ForgetHandOff));
        return later;
    }
    if is_called_off(w, live) {
        return status::called_off(w);
    }
    let (Some(vmi), Some(target)) = (ready_instance(w, live), ready_target(w, live)) else { return later };
    let Some(state) = state(w, vmi, target) else { return later };
    let mut labelled = vmi.metadata.clone();
    mark(&mut labelled, vmi, target);
    let old = vmi.status.as_ref().and_then(|status| status.migration_state.clone());
    let patch =
        Guarded::new(&vmi.metadata).whole(&["status", "migrationState"], &old, &Some(state)).labels(&labelled).build();
    let node = pods::node_name(target).unwrap_or_default();
    let message = format!("Migration target pod {} is ready on node {node}", meta::name(&target.metadata));
    let note = Action::Note(Note::normal(events::SUCCESSFUL_HAND_OVER, message));
    patch.into_iter().flat_map(|patch| [Action::Own(Own::HandOff(patch)), note.clone()]).collect()
}

fn is_handed_off(w: &World, vmi: &VirtualMachineInstance) -> bool {
    let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    kinds::owns(&w.migration, state) && state.is_some_and(|state| is_set(&state.target_node))
}

/// Whether the evacuation has been canceled. The live VMI shows that the migration is not handed off, and a hand-off
/// still in flight is guarded by an earlier version of the VMI.
fn is_called_off(w: &World, live: &Live) -> bool {
    let known = w.vmi.as_ref().and_then(|vmi| vmi.metadata.uid.as_ref());
    let vmi = live.vmi.as_ref().filter(|vmi| vmi.metadata.uid.as_ref() == known);
    vmi.is_some_and(|vmi| !is_handed_off(w, vmi) && !kinds::is_needless(&w.migration, vmi) && w.is_called_off(vmi))
}

/// The VMI, if it can be handed off: it is the same VMI, running, neither busy nor claimed by another migration, and
/// the migration is still wanted.
fn ready_instance<'a>(w: &World, live: &'a Live) -> Option<&'a VirtualMachineInstance> {
    let known = w.vmi.as_deref()?;
    let vmi = live.vmi.as_ref().filter(|vmi| vmi.metadata.uid == known.metadata.uid)?;
    let busy = !vmi.spec.utility_volumes.is_empty() || sync::has_unfinished_backup(vmi);
    let ready = match w.kind() {
        Kind::Local => vmi.is_running(),
        // Its Pod has been handed to its node; the hand-off of the migration comes next.
        Kind::Receives => vmi.is_scheduled() && decentralized::is_introduced_to(w, vmi),
        Kind::Sends => false,
    };
    if !ready
        || vmi.is_marked_for_deletion()
        || busy
        || kinds::is_needless(&w.migration, vmi)
        || decentralized::has_sent(&w.migration, vmi)
    {
        return None;
    }
    let own = live.migrations.iter().find(|migration| meta::uid(&migration.metadata) == w.uid())?;
    if meta::is_deleting(&own.metadata) || own.is_final() {
        return None;
    }
    let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    let owner = state.and_then(|state| state.migration_uid.as_deref()).filter(|uid| !uid.is_empty());
    let taken = live.migrations.iter().any(|other| {
        owner == Some(meta::uid(&other.metadata)) && !other.is_final() && meta::uid(&other.metadata) != w.uid()
    });
    (!taken && !is_handed_off(w, vmi)).then_some(vmi)
}

/// The target Pod, if it is up, on another node than the guest, and its hot-plugged volumes are attached.
fn ready_target<'a>(w: &World, live: &'a Live) -> Option<&'a Pod> {
    let known = w.target()?;
    let target = live.target.as_ref().filter(|pod| pod.metadata.uid == known.metadata.uid)?;
    let vmi = live.vmi.as_ref()?;
    let node = pods::node_name(target)?;
    let guest_on = match w.kind() {
        Kind::Receives => decentralized::source_of(vmi).and_then(|source| source.node.as_deref()),
        Kind::Local | Kind::Sends => vmi.status.as_ref().and_then(|status| status.node_name.as_deref()),
    };
    let apart = guest_on != Some(node);
    // A receiver's VMI may have been handed to the node of an earlier attempt's Pod; it is reset when that Pod goes.
    let own = vmi.status.as_ref().and_then(|status| status.node_name.as_deref());
    let settled = w.kind() != Kind::Receives || own == Some(node);
    let plugged = !backend::has_plugged_volumes(vmi) || w.attachment().is_some_and(pods::is_single_container_ready);
    (pods::is_ready_for_handover(target) && apart && settled && plugged).then_some(target)
}

/// The migration state with everything virt-handler needs.
fn state(w: &World, vmi: &VirtualMachineInstance, target: &Pod) -> Option<State> {
    if w.kind() == Kind::Receives {
        return decentralized::handed_off(w, vmi, target);
    }
    // Based on the live VMI: the guest may have moved since the cached version, while its old Pod is still there.
    let source = w.source_of(vmi).filter(|pod| !pods::is_down(pod) && pod.metadata.uid != target.metadata.uid)?;
    let namespace = w.namespace.as_ref().and_then(|namespace| namespace.metadata.labels.clone()).unwrap_or_default();
    let own = vmi.metadata.labels.clone().unwrap_or_default();
    let policy = policy::best(w.policies.iter().map(AsRef::as_ref), &own, &namespace);
    let mut claims = backend::names(w);
    // The guest may have got another claim since the claims were last looked up.
    if let Some((claims, source)) =
        claims.as_mut().filter(|claims| claims.source != claims.target).zip(backend::mounted(source))
    {
        claims.source = source;
    }
    let overhead = meta::annotation(&target.metadata, annotations::MEMORY_OVERHEAD_BYTES);
    let attachment = w.attachment().filter(|_| backend::has_plugged_volumes(vmi));
    let mut state = State {
        migration_uid: Some(w.uid().to_owned()),
        source_persistent_state_pvc_name: claims.as_ref().map(|claims| claims.source.clone()),
        target_persistent_state_pvc_name: claims.map(|claims| claims.target),
        target_memory_overhead: overhead.map(|bytes| Wire(bytes.to_owned())),
        target_attachment_pod_uid: attachment.map(|pod| meta::uid(&pod.metadata).to_owned()),
        migration_policy_name: policy.map(|policy| meta::name(&policy.metadata).to_owned()),
        migration_configuration: Some(policy::overlay(&w.config.migrations(), policy)),
        ..State::default()
    };
    Side::running(vmi, source).set_source(&mut state);
    Side::receiving(target).set_target(&mut state);
    Some(state)
}

/// Sets the label that the target's virt-handler selects by, and what it must know of the Pod's size.
fn mark(meta: &mut ObjectMeta, vmi: &VirtualMachineInstance, target: &Pod) {
    let labels = meta.labels.get_or_insert_default();
    let node = pods::node_name(target).unwrap_or_default();
    labels.insert(labels::MIGRATION_TARGET_NODE_NAME.to_owned(), node.to_owned());
    let compute = target.spec.iter().flat_map(|spec| &spec.containers).find(|c| c.name == render::COMPUTE);
    let dedicated = vmi.spec.domain.cpu.as_ref().and_then(|cpu| cpu.dedicated_cpu_placement) == Some(true);
    if vmi.has_condition(conditions::HOT_VCPU_CHANGE) && dedicated {
        let limits = compute.and_then(|compute| compute.resources.as_ref()?.limits.as_ref()?.get("cpu"));
        labels.extend(limits.map(|cpus| (labels::VMI_POD_CPU_LIMITS.to_owned(), cpus.0.clone())));
    }
    if vmi.has_condition(conditions::HOT_MEMORY_CHANGE) {
        let bytes = compute.and_then(requested_memory);
        labels.extend(bytes.map(|bytes| (labels::VMI_POD_MEMORY_REQUESTS.to_owned(), bytes.to_string())));
    }
}

/// The memory that the container requests, over all page sizes, in bytes.
fn requested_memory(compute: &Container) -> Option<i128> {
    let requests = compute.resources.as_ref()?.requests.as_ref()?;
    let sizes = ["memory", "hugepages-2Mi", "hugepages-1Gi"];
    let amounts = sizes.iter().filter_map(|size| Quantity::try_from(requests.get(*size)?).ok());
    Some(amounts.map(|amount| i128::from(amount.value())).sum())
}
