//! The topology updater: keeps the nodes' TSC frequency labels in line with what VMIs were promised.
//!
//! It has one key, which stands for all nodes and requeues itself. A node that cannot be written does not block the
//! others; the next pass retries it. [`node::topology`](crate::node::topology) says which labels a node should have.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use api::config::ClusterConfig;
use k8s_openapi::api::core::v1::Node;

use crate::effect::{Deed, Effect, Never};
use crate::node::lowest_tsc_frequency;
use crate::node::topology::{Relabel, offers_counter, relabel};

#[cfg(test)]
mod tests;

/// Default minimum pause between two passes.
pub const PERIOD: Duration = Duration::from_secs(30);
/// Maximum jitter in percent of the period, so that controllers of several clusters do not run in lockstep.
const JITTER_PERCENT: u64 = 120;

/// How often the labels are updated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Minimum pause between two passes.
    pub period: Duration,
    /// Unique identity of this process.
    pub identity: String,
}

impl Default for Pace {
    fn default() -> Self {
        Self { period: PERIOD, identity: String::new() }
    }
}

impl Pace {
    /// The pause after a pass. The jitter is not random: it is derived from the identity and the number of the pass.
    fn pause(&self, pass: u64) -> Duration {
        let mut hasher = DefaultHasher::new();
        (&self.identity, pass).hash(&mut hasher);
        let jitter = hasher.finish() % (JITTER_PERCENT + 1);
        self.period + self.period * u32::try_from(jitter).unwrap_or(0) / 100
    }
}

/// The input of the decision.
#[derive(Clone, Debug)]
pub struct World {
    pub nodes: Vec<Arc<Node>>,
    /// Names of the nodes that run VMIs.
    pub occupied: BTreeSet<String>,
    /// The frequencies in the topology hints of all VMIs. Not needed if [no node is concerned](concerns).
    pub promised: BTreeSet<i64>,
    pub config: Arc<ClusterConfig>,
    pub pace: Pace,
    /// The number of this pass.
    pub pass: u64,
}

/// Every effect this controller can have.
pub type Action = Effect<Never, Own>;

/// Effects that only this controller has.
#[derive(Clone, Debug, PartialEq)]
pub enum Own {
    /// Changes the labels of one node. A failure is logged, and the others are still changed.
    Relabel(Relabel),
    /// Logs a warning: there is no API object to report it on.
    Warn(String),
}

impl Deed for Own {}

/// For logs.
impl fmt::Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relabel(Relabel { node, patch: _ }) => write!(f, "update the TSC frequency labels of node {node}"),
            Self::Warn(message) => write!(f, "warn: {message}"),
        }
    }
}

/// Whether some node has labels to update.
pub fn concerns(nodes: &[Arc<Node>]) -> bool {
    nodes.iter().any(|node| offers_counter(node))
}

/// Decides which labels change, and when to look again.
pub fn decide(w: &World) -> Vec<Action> {
    let mut actions = if concerns(&w.nodes) { changes(w) } else { vec![] };
    actions.push(Action::RequeueAfter(w.pace.pause(w.pass)));
    actions
}

fn changes(w: &World) -> Vec<Action> {
    match lowest_tsc_frequency(&w.nodes, |node| w.occupied.contains(node), &w.config) {
        Ok(lowest) => {
            let changes = relabel(&w.nodes, &w.promised, lowest).into_iter();
            changes.map(|change| Action::Own(Own::Relabel(change))).collect()
        }
        Err(error) => vec![Action::Own(Own::Warn(error.to_string()))],
    }
}
