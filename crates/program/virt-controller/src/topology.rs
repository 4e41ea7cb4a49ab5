//! The topology updater: keeps the nodes' TSC frequency labels in line with what VMIs were promised.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use informer::Key;
use k8s_openapi::api::core::v1::Node;
use machinery::rights::{Right, Verb};
use plan::node::lowest_tsc_frequency;
use plan::node::topology::{Relabel, offers_counter, promised_frequency, relabel};
use plan::object::Kind;

use crate::api::{Part, Patch};
use crate::context::Shared;
use crate::stores::BY_NODE;
use crate::writer::Writer;

/// Default minimum pause between two passes.
pub(crate) const PERIOD: Duration = Duration::from_secs(30);
/// Maximum jitter in percent of the period, so that controllers of several clusters do not run in lockstep.
const JITTER_PERCENT: u64 = 120;

pub(crate) const NAME: &str = "the topology updater";
pub(crate) const RIGHTS: &[Right] = &[Right::on::<Node>(&[Verb::Patch])];

pub(crate) struct Updater {
    shared: Arc<Shared>,
    writer: Writer,
}

impl Updater {
    pub(crate) fn new(shared: Arc<Shared>, writer: Writer) -> Self {
        Self { shared, writer }
    }

    /// Updates all nodes once. A node that cannot be written does not block the others; the next pass retries it.
    pub(crate) async fn update(&self) {
        for Relabel { node, patch } in self.outdated() {
            let key = Key::new("", &node);
            let patch = Patch::Strategic(patch);
            if let Err(error) = self.writer.patch(&key, Kind::Node, &node, Part::Object, &patch).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(node, error, "failed to update the TSC frequency labels");
            }
        }
    }

    fn outdated(&self) -> Vec<Relabel> {
        let nodes = self.shared.stores.nodes.all();
        if !nodes.iter().any(|node| offers_counter(node)) {
            return vec![]; // no need to look at every VMI
        }
        let vmis = &self.shared.stores.vmis;
        let runs_vmis = |node: &str| !vmis.by_index(BY_NODE, node).is_empty();
        match lowest_tsc_frequency(&nodes, runs_vmis, &self.shared.config.now()) {
            Ok(lowest) => {
                let promised = vmis.all().iter().filter_map(|vmi| promised_frequency(vmi)).collect();
                relabel(&nodes, &promised, lowest)
            }
            Err(error) => {
                tracing::warn!(%error, "leaving the TSC frequency labels unchanged");
                vec![]
            }
        }
    }
}

/// The pause after a pass. The jitter is not random: it is derived from `identity` and the number of the pass.
pub(crate) fn pause(period: Duration, identity: &str, pass: u64) -> Duration {
    let mut hasher = DefaultHasher::new();
    (identity, pass).hash(&mut hasher);
    let jitter = hasher.finish() % (JITTER_PERCENT + 1);
    period + period * u32::try_from(jitter).unwrap_or(0) / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_differ_and_stay_within_their_bounds() {
        let pauses: Vec<Duration> = (0..200).map(|pass| pause(PERIOD, "a", pass)).collect();
        assert!(pauses.iter().all(|pause| (PERIOD..=PERIOD * 22 / 10).contains(pause)), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
        assert_ne!(pauses, (0..200).map(|pass| pause(PERIOD, "b", pass)).collect::<Vec<_>>());
    }
}
