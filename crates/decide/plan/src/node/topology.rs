//! TSC frequencies of the cluster: which frequency new guests get, and which nodes can run them.
//!
//! A guest with an invariant TSC only runs on nodes whose TSC has that frequency, or can be scaled to it. New guests
//! get the lowest frequency of the cluster, so that as many nodes as possible can run them; it is recorded in the VMI's
//! topology hints. A node has one label per frequency that it can run; the labels follow the frequencies in use.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use api::config::ClusterConfig;
use api::labels;
use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Node;
use machinery::meta::label;
use serde_json::{Map, Value, json};

use crate::meta;

/// QEMU accepts a TSC that deviates from the requested frequency by at most this many parts per million.
const TOLERANCE_PPM: i64 = 250;

/// The configured frequency is not valid for any TSC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidFrequency {
    pub configured: i64,
}

impl fmt::Display for InvalidFrequency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = "spec.configuration.developerConfiguration.minimumClusterTSCFrequency";
        write!(f, "{field} of the KubeVirt object is {}; it must be greater than 0, or absent", self.configured)
    }
}

impl std::error::Error for InvalidFrequency {}

/// The TSC frequency of new guests in Hz: the configured one, or the lowest of the nodes that are schedulable or run
/// guests (`runs_vmis`, called with a node's name). Zero if no node reports one.
pub fn lowest_tsc_frequency<'a>(
    nodes: impl IntoIterator<Item = &'a Arc<Node>>,
    runs_vmis: impl Fn(&str) -> bool,
    config: &ClusterConfig,
) -> Result<i64, InvalidFrequency> {
    match config.minimum_cluster_tsc_frequency() {
        Some(configured) if configured > 0 => return Ok(configured),
        Some(configured) => return Err(InvalidFrequency { configured }),
        None => {}
    }
    let counts = |node: &&Arc<Node>| is_schedulable(node) || runs_vmis(meta::name(&node.metadata));
    let lowest = nodes.into_iter().filter(counts).filter_map(|node| frequency(node)).min();
    Ok(lowest.unwrap_or(0))
}

/// Whether the node reports its TSC frequency.
pub fn offers_counter(node: &Node) -> bool {
    frequency(node).is_some()
}

/// The TSC frequency in a VMI's topology hints, if any.
pub fn promised_frequency(vmi: &VirtualMachineInstance) -> Option<i64> {
    let hints = vmi.status.as_ref()?.topology_hints.as_ref()?;
    hints.tsc_frequency.filter(|frequency| *frequency > 0)
}

/// A label change of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Relabel {
    pub node: String,
    /// A merge patch with the labels to add and to remove, guarded by the UID in it.
    pub patch: Value,
}

/// Computes the patches after which each node's labels name the frequencies in use that it can run.
///
/// `promised` are the frequencies of all VMIs, `lowest` is that of the cluster. Nodes that do not report their own
/// frequency are left alone.
pub fn relabel(nodes: &[Arc<Node>], promised: &BTreeSet<i64>, lowest: i64) -> Vec<Relabel> {
    nodes.iter().filter_map(|node| relabel_one(node, promised, lowest)).collect()
}

fn relabel_one(node: &Node, promised: &BTreeSet<i64>, lowest: i64) -> Option<Relabel> {
    let own = frequency(node)?;
    let scalable = label(&node.metadata, labels::TSC_SCALABLE) == Some("true");
    let tolerance = tolerance(own);
    let runs = |wanted: i64| (wanted - own).abs() <= tolerance || (scalable && wanted <= own);
    let in_use = promised.iter().copied().chain([lowest, own]).filter(|frequency| *frequency > 0);
    let wanted: BTreeSet<i64> = in_use.filter(|frequency| runs(*frequency)).collect();
    let there = offered(node);
    let key = |frequency: i64| format!("{}{frequency}", labels::TSC_FREQUENCY_SCHEDULING_PREFIX);
    let mut changes: Map<String, Value> = wanted.difference(&there).map(|add| (key(*add), json!("true"))).collect();
    changes.extend(there.difference(&wanted).map(|remove| (key(*remove), Value::Null)));
    let patch = json!({"metadata": {"uid": node.metadata.uid, "labels": changes}});
    (!changes.is_empty()).then(|| Relabel { node: meta::name(&node.metadata).to_owned(), patch })
}

/// How far a TSC may deviate from a frequency.
fn tolerance(frequency: i64) -> i64 {
    let millionths = i128::from(frequency) * i128::from(TOLERANCE_PPM) / 1_000_000;
    i64::try_from(millionths).unwrap_or(i64::MAX)
}

pub(super) fn is_schedulable(node: &Node) -> bool {
    label(&node.metadata, labels::SCHEDULABLE) == Some("true")
}

/// The node's own frequency, if its label holds one.
fn frequency(node: &Node) -> Option<i64> {
    label(&node.metadata, labels::TSC_FREQUENCY)?.parse().ok().filter(|frequency| *frequency > 0)
}

/// The frequencies in the node's labels. A suffix that is not a number is not ours.
fn offered(node: &Node) -> BTreeSet<i64> {
    let keys = node.metadata.labels.iter().flat_map(|labels| labels.keys());
    keys.filter_map(|key| key.strip_prefix(labels::TSC_FREQUENCY_SCHEDULING_PREFIX)?.parse().ok()).collect()
}
