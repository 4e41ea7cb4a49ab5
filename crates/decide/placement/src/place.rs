//! The scheduling decision: which node a Pod goes to, or why none fits.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use machinery::quantity::Quantity;

use crate::resources::{Amounts, requests};
use crate::rules;
use crate::volumes::{Storage, Wants};

/// A node and its Pods.
#[derive(Debug, Clone)]
pub struct NodeView {
    /// The node.
    pub node: Arc<Node>,
    /// Pods bound to it that have not finished.
    pub pods: Vec<Arc<Pod>>,
}

/// No node fits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unschedulable {
    /// The message in Kubernetes' format: how many nodes there are, and how many failed for which reason.
    pub message: String,
}

/// Where a Pod goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    pub node: String,
    /// Whether claims have to be bound first.
    pub waits: bool,
    /// The claims that have to be told the node.
    pub select: Vec<String>,
}

/// Of the feasible nodes, chooses the one where most of the Pod's claims are in use that only one node may use, then the
/// one that stays least allocated, then the one with the fewest Pods, then the first by name. Deterministic.
pub fn place(pod: &Pod, nodes: &[NodeView], storage: &Storage) -> Result<Placed, Unschedulable> {
    if nodes.is_empty() {
        return Err(Unschedulable { message: "no nodes available to schedule pods".into() });
    }
    if let Some(rule) = rules::unknown_rule(pod) {
        return Err(Unschedulable { message: format!("0/{} nodes are available: {rule}.", nodes.len()) });
    }
    let volumes = storage
        .wants(pod)
        .map_err(|why| Unschedulable { message: format!("0/{} nodes are available: {why}.", nodes.len()) })?;
    let taken = nodes.iter().find_map(|view| volumes.taken(pod, view));
    let wanted = requests(pod);
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut best: Option<((usize, Score<'_>), &NodeView)> = None;
    for view in nodes {
        let room = Room::of(view);
        let objections = objections(pod, &wanted, &volumes, taken, view, &room, nodes);
        if objections.is_empty() {
            let score = (volumes.in_use_here(pod, view), room.score(&wanted, view));
            if best.as_ref().is_none_or(|(best, _)| score > *best) {
                best = Some((score, view));
            }
        }
        for objection in objections {
            *reasons.entry(objection).or_default() += 1;
        }
    }
    match best {
        Some((_, view)) => {
            let (waits, select) = volumes.waiting();
            Ok(Placed { node: view.node.metadata.name.clone().unwrap_or_default(), waits, select })
        }
        None => Err(Unschedulable { message: explain(nodes.len(), reasons) }),
    }
}

fn explain(nodes: usize, reasons: BTreeMap<String, usize>) -> String {
    let mut counted: Vec<String> = reasons.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    counted.sort();
    format!("0/{nodes} nodes are available: {}.", counted.join(", "))
}

/// Why this node does not fit: the first failing rule, except that for resources all shortages are listed.
fn objections(
    pod: &Pod,
    wanted: &Amounts,
    volumes: &Wants<'_>,
    taken: Option<&'static str>,
    view: &NodeView,
    room: &Room,
    nodes: &[NodeView],
) -> Vec<String> {
    let node = &view.node;
    let one = |text: &str| vec![text.to_owned()];
    if rules::is_cordoned(pod, node) {
        return one("node(s) were unschedulable");
    }
    if !rules::is_ready(node) {
        return one("node(s) were not ready");
    }
    if let Some(taint) = rules::untolerated_taint(pod, node) {
        let value = taint.value.as_deref().unwrap_or_default();
        return vec![format!("node(s) had untolerated taint {{{}: {value}}}", taint.key)];
    }
    if !rules::selects(pod, node) {
        return one("node(s) didn't match Pod's node affinity/selector");
    }
    let shortages = room.shortages(wanted);
    if !shortages.is_empty() {
        return shortages;
    }
    if let Some(why) = taken.or_else(|| volumes.objection(view)) {
        return one(why);
    }
    if !rules::has_companions(pod, view, nodes) {
        return one("node(s) didn't match pod affinity rules");
    }
    if !rules::avoids(pod, view, nodes) {
        return one("node(s) didn't match pod anti-affinity rules");
    }
    if !rules::is_welcome(pod, view, nodes) {
        return one("node(s) didn't satisfy existing pods anti-affinity rules");
    }
    vec![]
}

/// Higher is better; compared lexicographically.
type Score<'a> = (i64, Reverse<usize>, Reverse<&'a str>);

/// A node's allocatable and allocated resources.
struct Room {
    allocatable: Amounts,
    used: Amounts,
    pods: usize,
}

impl Room {
    fn of(view: &NodeView) -> Self {
        let allocatable = view.node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let mut used = Amounts::default();
        for pod in &view.pods {
            used.add(&requests(pod));
        }
        Self { allocatable: Amounts::read(allocatable), used, pods: view.pods.len() }
    }

    fn shortages(&self, wanted: &Amounts) -> Vec<String> {
        let mut short = vec![];
        let capacity = usize::try_from(self.allocatable.get("pods").value()).unwrap_or(0);
        if self.pods >= capacity {
            short.push("Too many pods".to_owned());
        }
        for (name, amount) in wanted.iter().filter(|(_, amount)| !amount.is_zero()) {
            if self.used.get(name) + amount > self.allocatable.get(name) {
                short.push(format!("Insufficient {name}"));
            }
        }
        short
    }

    /// The free share of CPU and memory with the Pod on the node, in thousandths.
    fn score<'a>(&self, wanted: &Amounts, view: &'a NodeView) -> Score<'a> {
        let free = |name: &str| {
            let total = self.allocatable.get(name);
            if total == Quantity::ZERO {
                return 0;
            }
            let left = total - self.used.get(name) - wanted.get(name);
            let share = i128::from(left.milli_value()) * 1000 / i128::from(total.milli_value());
            i64::try_from(share).unwrap_or(0)
        };
        let name = view.node.metadata.name.as_deref().unwrap_or_default();
        (free("cpu") + free("memory"), Reverse(self.pods), Reverse(name))
    }
}
