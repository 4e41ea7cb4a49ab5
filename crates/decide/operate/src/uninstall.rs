//! The removal of an installation.
//!
//! ```text
//! workloads block ─► wait, and report it
//! CRDs, each with our finalizer ─► the API server deletes their objects; controllers and handlers still run
//!   ─► all objects of all CRDs are gone: the finalizers are removed
//!   ─► virt-handler, Deployments ─► registrations, services, RBAC, certificates, policies, node labels
//!   ─► phase Deleted; the KubeVirt object's finalizer is removed
//! ```

use api::finalizers;
use api::v1::KubeVirt;
use serde_json::{Value, json};

use crate::certificates::Rotation;
use crate::decide::{again, let_go, report};
use crate::effect::{Decision, Effect};
use crate::status::Standing;
use crate::sync::{certificates, refreshed};
use crate::world::{Id, Objects, Operator, World};

/// The uninstall strategy that refuses removal while workloads exist.
const BLOCK: &str = "BlockUninstallIfWorkloadsExist";
/// The API server's finalizer of a CRD that is being deleted, until all of its objects are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Kinds in the order of removal, after CRDs. Workloads go first: they need all the rest to finish.
pub(crate) const ORDER: &[&[&str]] = &[
    &["DaemonSet", "PodDisruptionBudget", "Deployment"],
    &[
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
        "APIService",
        "Service",
        "ClusterRoleBinding",
        "ClusterRole",
        "RoleBinding",
        "Role",
        "ServiceAccount",
        "Secret",
        "ConfigMap",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
        "PriorityClass",
    ],
];

pub(crate) fn decide(w: &World<'_>, kubevirt: &KubeVirt, decision: &mut Decision) {
    let standing = match next(w, kubevirt, decision) {
        Some(standing) => standing,
        None => Standing::Gone,
    };
    decision.effects.extend(report(w, kubevirt, &standing, None, false));
    if standing == Standing::Gone {
        decision.effects.push(let_go(kubevirt));
    }
}

/// What still has to be removed; `None` when everything is gone.
fn next(w: &World<'_>, kubevirt: &KubeVirt, decision: &mut Decision) -> Option<Standing> {
    if kubevirt.spec.uninstall_strategy.as_deref() == Some(BLOCK) && !w.workloads.is_empty() {
        let why = format!(
            "spec.uninstallStrategy blocks the removal while objects of these kinds exist: {}. Delete them, or set \
             spec.uninstallStrategy to RemoveWorkloads.",
            w.workloads.join(", ")
        );
        trust(w, kubevirt, decision);
        return Some(Standing::Stays { why });
    }
    let doomed = removable(w);
    let definitions: Vec<(&Id, &Value)> = doomed.iter().filter(|(id, _)| is_definition(id)).collect();
    if !definitions.is_empty() {
        trust(w, kubevirt, decision);
        return Some(remove_definitions(&definitions, decision));
    }
    for kinds in ORDER {
        let left: Vec<&Id> = doomed.keys().filter(|id| kinds.contains(&id.kind.as_str())).collect();
        if !left.is_empty() {
            let waiting = format!("Waiting for {} to be deleted.", left[0]);
            decision.effects.extend(left.into_iter().filter(|id| is_left(&doomed[*id])).map(delete));
            return Some(Standing::Leaving { waiting });
        }
    }
    decision.effects.extend(w.labelled_nodes.iter().map(|node| Effect::Unlabel { node: node.clone() }));
    None
}

/// The programs that stop VMs still have to trust each other.
fn trust(w: &World<'_>, kubevirt: &KubeVirt, decision: &mut Decision) {
    let Ok(rotation) = Rotation::of(&kubevirt.spec) else { return };
    let found = certificates(w, &rotation);
    decision.again = again(w, found.next);
    decision.effects.extend(found.effects);
    decision.effects.extend(refreshed(&w.live, found.bundle.as_deref()));
}

/// CRDs are released together, once no object of any of them is left: controllers watch several kinds.
fn remove_definitions(definitions: &[(&Id, &Value)], decision: &mut Decision) -> Standing {
    for (id, live) in definitions.iter().filter(|(_, live)| is_left(live)) {
        let finalizers = finalizers_of(live);
        if !finalizers.iter().any(|one| one == finalizers::OPERATOR) {
            let new: Vec<&str> = finalizers.iter().map(String::as_str).chain([finalizers::OPERATOR]).collect();
            decision.effects.push(hold(id, live, &json!(new)));
        }
        decision.effects.push(delete(id));
    }
    let holds = |live: &Value| is_left(live) || finalizers_of(live).iter().any(|one| one == CLEANUP);
    if let Some((id, _)) = definitions.iter().find(|(_, live)| holds(live)) {
        let kind = id.name.split('.').next().unwrap_or_default();
        return Standing::Leaving { waiting: format!("Waiting for {kind} to be deleted.") };
    }
    for (id, live) in definitions {
        let rest: Vec<String> = finalizers_of(live).into_iter().filter(|one| one != finalizers::OPERATOR).collect();
        if rest != finalizers_of(live) {
            decision.effects.push(hold(id, live, &json!(rest)));
        }
    }
    Standing::Leaving { waiting: "Waiting for the CRDs to be deleted.".to_owned() }
}

fn hold(id: &Id, live: &Value, finalizers: &Value) -> Effect {
    let version = &live["metadata"]["resourceVersion"];
    let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
    Effect::Merge { id: id.clone(), patch, because: "Ferrovirt is being uninstalled".to_owned() }
}

fn delete(id: &Id) -> Effect {
    Effect::Delete { id: id.clone(), because: "Ferrovirt is being uninstalled".to_owned() }
}

fn is_definition(id: &Id) -> bool {
    id.kind == "CustomResourceDefinition"
}

fn is_left(live: &Value) -> bool {
    live["metadata"]["deletionTimestamp"].is_null()
}

fn finalizers_of(live: &Value) -> Vec<String> {
    let all = live["metadata"]["finalizers"].as_array().into_iter().flatten();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Existing objects that virt-operator created: those that it manages by name, certificates, and everything with its
/// label in its namespace; and what earlier versions created. Objects applied together with virt-operator belong to the
/// administrator.
pub fn removable(w: &World<'_>) -> Objects {
    let Operator { own, managed, base, .. } = w.operator;
    let is_ours = |id: &Id| managed.contains(id) || id.namespace == base.namespace && id.kind != "Pod";
    let is_ours = |id: &Id, live: &Value| is_ours(id) || w.operator.is_former(id, live);
    let ours = w.live.iter().filter(|(id, live)| is_ours(id, live) && !own.contains(id));
    ours.map(|(id, live)| (id.clone(), live.clone())).collect()
}
