//! ResourceQuotas of a namespace, for Pods and claims: [`exceeded`] checks a new Pod, [`exceeded_by_claim`] a new or
//! growing claim, [`used`] computes a quota's status.
//!
//! Usage is counted from the objects themselves on each request, so a stale status admits nothing.

mod claims;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    Container, PersistentVolumeClaim, Pod, ResourceQuota, ScopedResourceSelectorRequirement,
};
use machinery::pod::has_ended;
use machinery::quantity::{Format, Quantity};

use crate::resources::{Amounts, limits, requests};

/// Amounts keyed by their names in a quota.
pub type Charges = BTreeMap<String, Quantity>;

/// Resources that count Pods, whatever they request.
const COUNTS: [&str; 2] = ["pods", "count/pods"];
/// Resources that every container must specify, or the quota could not be enforced.
const MEASURED: [&str; 2] = ["cpu", "memory"];

/// Whether this server counts a resource of this name.
pub fn is_counted(name: &str) -> bool {
    COUNTS.contains(&name) || resource(name).is_some() || claims::is_counted(name)
}

/// Whether a name refers to requests or limits, and to which resource.
enum Side<'a> {
    Request(&'a str),
    Limit(&'a str),
}

fn resource(name: &str) -> Option<Side<'_>> {
    match name {
        "cpu" | "memory" => Some(Side::Request(name)),
        _ => {
            if let Some(limited) = name.strip_prefix("limits.") {
                return Some(Side::Limit(limited));
            }
            // Storage is requested by claims, not by Pods.
            name.strip_prefix("requests.").filter(|name| *name != "storage").map(Side::Request)
        }
    }
}

/// Why a new Pod exceeds a quota, in Kubernetes' wording. `pods` are the existing ones of the namespace.
pub fn exceeded(pod: &Pod, quotas: &[ResourceQuota], pods: &[Pod]) -> Option<String> {
    let mut quotas: Vec<&ResourceQuota> = quotas.iter().filter(|quota| applies(quota, pod)).collect();
    quotas.sort_by_key(|quota| &quota.metadata.name);
    quotas.into_iter().find_map(|quota| {
        let name = quota.metadata.name.as_deref().unwrap_or_default();
        let hard = hard(quota);
        let unsaid = unsaid(pod, &hard);
        if !unsaid.is_empty() {
            return Some(format!("failed quota: {name}: must specify {}", unsaid.join("; ")));
        }
        over(name, &hard, &charges(pod, &hard), &used(quota, pods, &[]))
    })
}

/// Why a claim exceeds a quota: a new one, or one that has grown. `claims` are the existing ones of the namespace.
pub fn exceeded_by_claim(
    claim: &PersistentVolumeClaim,
    quotas: &[ResourceQuota],
    others: &[PersistentVolumeClaim],
) -> Option<String> {
    let mut quotas: Vec<&ResourceQuota> = quotas.iter().filter(|quota| claims::applies(quota)).collect();
    quotas.sort_by_key(|quota| &quota.metadata.name);
    let others: Vec<PersistentVolumeClaim> =
        others.iter().filter(|other| other.metadata.name != claim.metadata.name).cloned().collect();
    quotas.into_iter().find_map(|quota| {
        let hard = hard(quota);
        let used = used(quota, &[], &others);
        over(quota.metadata.name.as_deref().unwrap_or_default(), &hard, &claims::charges(claim, &hard), &used)
    })
}

/// What does not fit into a quota, in Kubernetes' wording.
fn over(name: &str, hard: &Charges, asked: &Charges, used: &Charges) -> Option<String> {
    let zero = Quantity::ZERO;
    let exceeds = |(key, limit): &(&String, &Quantity)| {
        let more = asked.get(*key).copied().unwrap_or(zero);
        more > zero && used.get(*key).copied().unwrap_or(zero) + more > **limit
    };
    let over: Vec<&String> = hard.iter().filter(exceeds).map(|(key, _)| key).collect();
    if over.is_empty() {
        return None;
    }
    let told = |amounts: &Charges| {
        let one = |key: &&String| format!("{key}={}", amounts.get(*key).copied().unwrap_or(zero));
        over.iter().map(one).collect::<Vec<_>>().join(",")
    };
    let (asked, used, hard) = (told(asked), told(used), told(hard));
    Some(format!("exceeded quota: {name}, requested: {asked}, used: {used}, limited: {hard}"))
}

/// How much of a quota the Pods and claims of a namespace use.
pub fn used(quota: &ResourceQuota, pods: &[Pod], claims: &[PersistentVolumeClaim]) -> Charges {
    let hard = hard(quota);
    let start = |key: &String| (key.clone(), Quantity::new(0, hard.get(key).map_or(Format::DecimalSi, |q| q.format())));
    let mut used: Charges = hard.keys().filter(|key| is_counted(key)).map(start).collect();
    for pod in pods.iter().filter(|pod| applies(quota, pod)) {
        for (key, amount) in charges(pod, &hard) {
            *used.entry(key).or_default() += amount;
        }
    }
    for claim in claims.iter().filter(|_| claims::applies(quota)) {
        for (key, amount) in claims::charges(claim, &hard) {
            *used.entry(key).or_default() += amount;
        }
    }
    used
}

/// The limits of a quota that this server counts.
fn hard(quota: &ResourceQuota) -> Charges {
    let limits = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref()).into_iter().flatten();
    let counted = limits.filter(|(name, _)| is_counted(name));
    counted.map(|(name, limit)| (name.clone(), limit.0.parse().unwrap_or(Quantity::ZERO))).collect()
}

/// What a Pod uses of a quota. A finished Pod only counts as an object.
fn charges(pod: &Pod, hard: &Charges) -> Charges {
    let (requests, limits, over) = (requests(pod), limits(pod), has_ended(pod));
    let one = Quantity::new(1, Format::DecimalSi);
    let amount = |amounts: &Amounts, name: &str| if over { Quantity::ZERO } else { amounts.get(name) };
    let charge = |key: &String| {
        let amount = match (key.as_str(), resource(key)) {
            ("count/pods", _) => one,
            ("pods", _) if over => Quantity::ZERO,
            ("pods", _) => one,
            (_, Some(Side::Request(name))) => amount(&requests, name),
            (_, Some(Side::Limit(name))) => amount(&limits, name),
            (_, None) => Quantity::ZERO,
        };
        (key.clone(), amount)
    };
    hard.keys().map(charge).collect()
}

/// `limits.cpu for: compute`: limited resources that not every container specifies.
fn unsaid(pod: &Pod, hard: &Charges) -> Vec<String> {
    let containers: Vec<&Container> = pod.spec.iter().flat_map(|spec| &spec.containers).collect();
    let initial = pod.spec.iter().filter_map(|spec| spec.init_containers.as_ref()).flatten();
    let containers: Vec<&Container> = containers.into_iter().chain(initial).collect();
    let silent = |key: &String| {
        let (side, name) = match resource(key)? {
            Side::Request(name) => (false, name),
            Side::Limit(name) => (true, name),
        };
        if !MEASURED.contains(&name) {
            return None;
        }
        let says = |container: &&Container| {
            let resources = container.resources.as_ref();
            let limits = resources.and_then(|resources| resources.limits.as_ref());
            let requests = resources.and_then(|resources| resources.requests.as_ref());
            let of = |amounts: Option<&BTreeMap<_, _>>| amounts.is_some_and(|amounts| amounts.contains_key(name));
            of(limits) || (!side && of(requests))
        };
        let names: BTreeSet<&str> =
            containers.iter().filter(|container| !says(container)).map(|container| container.name.as_str()).collect();
        let names: Vec<&str> = names.into_iter().collect();
        (!names.is_empty()).then(|| format!("{key} for: {}", names.join(",")))
    };
    hard.keys().filter_map(silent).collect()
}

/// Whether a quota applies to this Pod.
fn applies(quota: &ResourceQuota, pod: &Pod) -> bool {
    let Some(spec) = &quota.spec else { return false };
    let scopes = spec.scopes.iter().flatten().all(|scope| in_scope(scope, pod));
    let selected = spec.scope_selector.iter().filter_map(|selector| selector.match_expressions.as_ref()).flatten();
    scopes && selected.into_iter().all(|requirement| is_selected(requirement, pod))
}

/// An unknown scope matches no Pod; a quota with one causes a warning when it is written.
fn in_scope(scope: &str, pod: &Pod) -> bool {
    let deadline = pod.spec.as_ref().is_some_and(|spec| spec.active_deadline_seconds.is_some());
    let best_effort = pod.status.as_ref().and_then(|status| status.qos_class.as_deref()) == Some("BestEffort");
    match scope {
        "Terminating" => deadline,
        "NotTerminating" => !deadline,
        "BestEffort" => best_effort,
        "NotBestEffort" => !best_effort,
        _ => false,
    }
}

/// The scopes that [`applies`] knows.
pub fn is_known_scope(scope: &str) -> bool {
    matches!(scope, "Terminating" | "NotTerminating" | "BestEffort" | "NotBestEffort" | "PriorityClass")
}

fn is_selected(requirement: &ScopedResourceSelectorRequirement, pod: &Pod) -> bool {
    if requirement.scope_name != "PriorityClass" {
        return requirement.operator == "Exists" && in_scope(&requirement.scope_name, pod);
    }
    let class = pod.spec.as_ref().and_then(|spec| spec.priority_class_name.as_deref()).filter(|name| !name.is_empty());
    let listed = class.is_some_and(|class| requirement.values.iter().flatten().any(|value| value == class));
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => class.is_some(),
        "DoesNotExist" => class.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
